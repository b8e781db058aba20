//! Remedies for a failing revision, the best first. Conditions, Events and `ctl` contain these sentences.

use std::fmt::Display;

use super::fleet::Fleet;
use super::fleet::record::FailureRecord;
use super::id::{Revision, RevisionState};
use super::words::joined;

/// Instructions for checking that a controller is running.
pub const LOOK_FOR_IT: &str = "read the log of the controller for missing permissions, and check that it runs: kubectl get leases -A --field-selector \
    metadata.name=yurt-ds-controller -o yaml";

/// Message about Advanced DaemonSets that yurt-ds doesn't manage, because the manager of OpenKruise is running.
pub const KRUISE_RUNS: &str = "OpenKruise's manager is running, so yurt-ds doesn't manage Advanced DaemonSets. Stop one of them: kubectl -n \
    kruise-system scale deployment kruise-controller-manager --replicas=0, or run yurt-ds controller with --controllers native";

/// Returns the remedies for a failing revision. `set` is the DaemonSet, as `NAMESPACE/NAME`.
///
/// If an operator has already rolled back to the oldest revision, no rollback is recommended: it would lead to the failed one.
pub fn other_revision(fleet: &Fleet, set: &dyn Display) -> String {
    match roll_back(fleet, set) {
        Some(roll_back) => roll_back,
        None if fleet.earlier.is_empty() => {
            "repair the nodes, or roll out another template: no earlier revision is kept".to_owned()
        }
        None => "repair the nodes, or roll out another template: the guard stopped all earlier revisions"
            .to_owned(),
    }
}

/// Returns the remedies for pods that the scheduler cannot place on the node. `set` is the DaemonSet, as `NAMESPACE/NAME`.
///
/// A rollback is also suggested, because the new template may request more resources than the previous one.
pub fn free_resources(node: &str, fleet: &Fleet, set: &dyn Display) -> String {
    let free = format!(
        "set a priorityClassName in the template, or free resources on {node}: kubectl get pods -A --field-selector spec.nodeName={node}"
    );
    let roll_back = roll_back(fleet, set).filter(|_| fleet.undone.is_none());
    let roll_back = roll_back
        .map(|back| format!("if this version requests more than the previous one, {back}"));
    joined(Some(free).into_iter().chain(roll_back))
}

/// Returns the remedies for a node whose kubelet rejects every pod. `set` is the DaemonSet, as `NAMESPACE/NAME`.
pub fn repair_node(node: &str, fleet: &Fleet, set: &dyn Display) -> String {
    let repair = format!("repair {node}, which lacks resources: kubectl describe node {node}");
    joined([repair, other_revision(fleet, set)])
}

/// Returns the earlier revisions that the guard did not stop, the newest first.
fn unstopped(fleet: &Fleet) -> Vec<&(Revision, i64)> {
    let stopped = match &fleet.revision {
        RevisionState::Current(current) => {
            FailureRecord::stopped_besides(fleet.record.as_ref(), current)
        }
        RevisionState::Unknown(_) => Vec::new(),
    };
    let earlier = fleet.earlier.iter();
    let good = earlier.filter(|(revision, _)| !stopped.contains(revision));
    good.collect()
}

/// Recommended rollback to an earlier revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoTarget<'a> {
    /// Revision to roll back to.
    pub revision: &'a Revision,
    /// Number of the revision, as the argument of `ctl undo`; `None` for the previous revision, which needs no argument.
    pub number: Option<i64>,
}

impl UndoTarget<'_> {
    /// Returns the command that rolls back. `set` is the DaemonSet, as `NAMESPACE/NAME`.
    pub fn command(&self, set: &dyn Display) -> String {
        let number = self
            .number
            .map_or_else(String::new, |number| format!(" --to-revision {number}"));
        format!("yurt-ds ctl undo {set}{number}")
    }
}

/// Returns the recommended rollback; `None` if no earlier revision is kept, or the guard stopped all of them.
///
/// The target is the newest earlier revision with serving pods, because the previous revision may also be broken. If no earlier
/// revision serves, the target is the previous one. After a rollback, a second rollback never leads to a newer revision.
pub fn undo_target(fleet: &Fleet) -> Option<UndoTarget<'_>> {
    let earlier = unstopped(fleet);
    let (before, _) = *earlier.first()?;
    let mut all = earlier.iter().copied();
    let serving = all.find(|(revision, _)| serves(fleet, revision));
    // While all nodes are offline, no pod counts as serving. Then choose the revision of most nodes. The previous revision may
    // never have run.
    let most = || {
        let has = |revision: &Revision| {
            let pods = fleet.nodes.iter().filter(|node| !node.is_ready());
            let pods = pods.flat_map(|node| &node.pods);
            pods.filter(|pod| pod.in_place.revision.as_ref() == Some(revision))
                .count()
        };
        let all = earlier.iter().copied().rev();
        let best = all.max_by_key(|(revision, _)| has(revision));
        best.filter(|(revision, _)| has(revision) > 0)
    };
    let other = serving.or_else(most).filter(|(other, _)| other != before);
    Some(UndoTarget {
        revision: other.map_or(before, |(other, _)| other),
        number: other.map(|(_, number)| *number),
    })
}

/// Returns the recommended rollback as a sentence. `set` is the DaemonSet, as `NAMESPACE/NAME`.
fn roll_back(fleet: &Fleet, set: &dyn Display) -> Option<String> {
    let target = undo_target(fleet)?;
    Some(format!(
        "roll back to revision {}: {}",
        target.revision,
        target.command(set)
    ))
}

/// Returns true if a pod of that revision is Ready and not terminating.
fn serves(fleet: &Fleet, revision: &Revision) -> bool {
    let mut pods = fleet.nodes.iter().flat_map(|node| &node.pods);
    pods.any(|pod| {
        pod.ready_since.is_some()
            && !pod.terminating
            && !pod.in_place.is_under_way()
            && pod.in_place.revision.as_ref() == Some(revision)
    })
}

/// Returns the step that continues a stopped revision. It is the last of the remedies.
pub fn resume_anyway(set: &dyn Display) -> String {
    format!("to continue with this revision anyway: yurt-ds ctl resume {set}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::{current, fleet, node, old};

    #[test]
    fn a_rollback_is_recommended_first_if_an_earlier_revision_is_kept() {
        let mut fleet = fleet(Vec::new());
        let words = other_revision(&fleet, &"edge/web");
        assert!(
            words == "roll back to revision old: yurt-ds ctl undo edge/web",
            "{words}"
        );
        fleet.earlier.clear();
        let words = other_revision(&fleet, &"edge/web");
        assert!(words.starts_with("repair the nodes, or "), "{words}");
        assert!(!words.contains("undo"), "{words}");
    }

    #[test]
    fn after_a_rollback_the_next_one_goes_further_back() {
        let mut fleet = fleet(vec![node("a", current(3))]);
        fleet.undone = Some(2);
        fleet.earlier = Vec::new();
        let words = other_revision(&fleet, &"edge/web");
        assert!(words.ends_with("no earlier revision is kept"), "{words}");
        fleet.earlier = vec![("older".into(), 1)];
        let words = other_revision(&fleet, &"edge/web");
        assert!(
            words.starts_with("roll back to revision older: "),
            "{words}"
        );
        let mut serving = old(1);
        serving.in_place.revision = Some("older".into());
        fleet.nodes.push(node("b", serving));
        let words = other_revision(&fleet, &"edge/web");
        assert!(words.starts_with("roll back to revision older:"), "{words}");
    }

    #[test]
    fn while_all_nodes_are_offline_a_rollback_targets_the_revision_on_them() {
        let mut away = node("a", old(1)).away();
        away.pods[0].in_place.revision = Some("good".into());
        away.pods[0].ready_since = None;
        let mut fleet = fleet(vec![away, node("b", current(3)).away()]);
        fleet.nodes[1].pods[0].ready_since = None;
        fleet.earlier = vec![("untried".into(), 2), ("good".into(), 1)];
        let words = roll_back(&fleet, &"edge/web").expect("a rollback");
        assert!(words.starts_with("roll back to revision good:"), "{words}");
        assert!(words.ends_with("edge/web --to-revision 1"), "{words}");
    }

    #[test]
    fn no_rollback_goes_to_a_stopped_revision() {
        use crate::core::Stopped;
        let mut fleet = fleet(vec![node("a", current(3))]);
        fleet.earlier = vec![("bad".into(), 2), ("good".into(), 1)];
        let stop = |revision: &str| FailureRecord {
            stopped: Some(Stopped::FailedByRevision),
            ..FailureRecord::new(revision.into())
        };
        // The recommendation stays the same when the next revision gets its record, which names the stopped one.
        fleet.record = Some(stop("bad"));
        let at_once = roll_back(&fleet, &"edge/web").expect("a rollback");
        fleet.record = Some(FailureRecord::begun(Some(&stop("bad")), &"new".into()));
        let words = roll_back(&fleet, &"edge/web").expect("a rollback");
        assert_eq!(at_once, words);
        assert_eq!(
            words,
            "roll back to revision good: yurt-ds ctl undo edge/web"
        );
        fleet.earlier.pop();
        let words = other_revision(&fleet, &"edge/web");
        assert!(
            words.ends_with("the guard stopped all earlier revisions"),
            "{words}"
        );
        assert!(!words.contains("undo"), "{words}");
    }

    #[test]
    fn a_rollback_skips_a_revision_without_serving_pods() {
        let of = |revision: &str, mut pod: crate::core::Pod| {
            pod.in_place.revision = Some(revision.into());
            pod
        };
        let broken = crate::core::Pod {
            ready_since: None,
            ..old(2)
        };
        let mut fleet = fleet(vec![
            node("a", of("good", old(1))),
            node("b", of("bad", broken)),
            node("c", of("new", current(3))),
        ]);
        fleet.earlier = vec![("bad".into(), 2), ("good".into(), 1)];
        let words = roll_back(&fleet, &"edge/web").expect("a rollback");
        let command = "yurt-ds ctl undo edge/web --to-revision 1";
        assert!(words.starts_with("roll back to revision good: "), "{words}");
        assert!(words.ends_with(command), "{words}");
        assert_eq!(
            undo_target(&fleet).and_then(|target| target.number),
            Some(1)
        );
        fleet.nodes[1].pods[0].ready_since = fleet.nodes[0].pods[0].ready_since;
        let words = roll_back(&fleet, &"edge/web").expect("a rollback");
        assert!(words.starts_with("roll back to revision bad: "), "{words}");
    }
}
