//! Remedies for a failing revision, the best first. Conditions, Events and `ctl` use these sentences.

use std::fmt::Display;

use super::fleet::Fleet;
use super::fleet::record::FailureRecord;
use super::id::{Revision, RevisionState};

/// Instructions to find out if a controller is running.
pub const LOOK_FOR_IT: &str = "kubectl get leases -A --field-selector metadata.name=yurt-ds-controller -o yaml shows which one is and when it last said \
    so (without leader election there is no Lease), and its log names a right that it lacks";

/// Message that Advanced DaemonSets are not rolled out, because the manager of OpenKruise is running.
pub const KRUISE_RUNS: &str = "Kruise's manager runs (its Lease kruise-system/kruise-manager is renewed), and two controllers would fight over the \
    pods of Advanced DaemonSets, so yurt-ds leaves them alone; stop one of them: kubectl -n kruise-system scale deployment \
    kruise-controller-manager --replicas=0, or run yurt-ds controller with --controllers native";

/// Returns the remedies for a failing revision, as the end of a sentence. `set` is the DaemonSet, as `NAMESPACE/NAME`.
///
/// If the DaemonSet was rolled back to its oldest revision, another rollback would return to the failed one and is not
/// recommended.
pub fn way_on(fleet: &Fleet, set: &dyn Display) -> String {
    match back(fleet, set) {
        Some(back) => format!("{back}; or roll out another template"),
        None if !fleet.earlier.is_empty() && unstopped(fleet).is_empty() => {
            "repair the nodes, or roll out another template (the guard stopped all revisions that are kept from before this one)"
                .to_owned()
        }
        None if fleet.undone.is_some() => {
            "repair the nodes, or roll out another template (this revision is what somebody went back to)"
                .to_owned()
        }
        None => "repair the nodes, or roll out another template (no revision is kept that was made before this one)"
            .to_owned(),
    }
}

/// Returns the remedies for pods that the scheduler cannot place on `nodes`, as the end of a sentence.
///
/// `set` is the DaemonSet, as `NAMESPACE/NAME`. A rollback is suggested too: it helps if the new template requests more resources
/// than the previous one.
pub fn make_room(nodes: &str, fleet: &Fleet, set: &dyn Display) -> String {
    let room = format!(
        "make room on {nodes} (kubectl get pods -A -o wide --field-selector spec.nodeName=NODE shows the pods there), or set a \
         priorityClassName in the template, so that pods of lower priority are evicted"
    );
    match back(fleet, set).filter(|_| fleet.undone.is_none()) {
        Some(back) => format!("{room}. If this revision requests more than the one before, {back}"),
        None => room,
    }
}

/// Returns the remedies for `nodes` whose kubelets reject each pod, as the end of a sentence.
///
/// `set` is the DaemonSet, as `NAMESPACE/NAME`.
pub fn mend_nodes(nodes: &str, fleet: &Fleet, set: &dyn Display) -> String {
    format!(
        "mend {nodes} (kubectl describe node NODE shows what it lacks); then the rollout goes on by itself. If this revision uses more of \
         that than the one before, {}",
        way_on(fleet, set)
    )
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
pub struct WayBack<'a> {
    /// Revision to roll back to.
    pub revision: &'a Revision,
    /// Number of the revision, if it is not the previous one and `ctl undo` needs it; otherwise `None`.
    pub number: Option<i64>,
    /// True if only offline nodes have the revision, and no earlier revision has a serving pod.
    is_away: bool,
}

/// Returns the recommended rollback; `None` if no earlier revision is kept, or the guard stopped all of them.
///
/// The target is the newest earlier revision with serving pods, because the previous revision may be broken too. If no earlier
/// revision has serving pods, the target is the previous one. After a rollback, the next rollback goes further back, never
/// forward.
pub fn way_back(fleet: &Fleet) -> Option<WayBack<'_>> {
    let earlier = unstopped(fleet);
    let (before, _) = *earlier.first()?;
    let mut all = earlier.iter().copied();
    let serving = all.find(|(revision, _)| serves(fleet, revision));
    // While all nodes are offline, no pod counts as serving. Choose the revision that most nodes have: the previous revision may
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
    let away = match serving {
        None => most(),
        Some(_) => None,
    };
    let other = serving.or(away).filter(|(other, _)| other != before);
    Some(WayBack {
        revision: other.map_or(before, |(other, _)| other),
        number: other.map(|(_, number)| *number),
        is_away: other.is_some() && serving.is_none(),
    })
}

/// Returns the recommended rollback as the end of a sentence. `set` is the DaemonSet, as `NAMESPACE/NAME`.
pub fn back(fleet: &Fleet, set: &dyn Display) -> Option<String> {
    let WayBack {
        revision,
        number,
        is_away,
    } = way_back(fleet)?;
    let which = match (number, is_away) {
        (None, _) => "",
        (Some(_), true) => ", which nodes have that are away,",
        (Some(_), false) => ", with which pods serve,",
    };
    let number = number.map_or_else(String::new, |number| format!(" --to-revision {number}"));
    Some(format!(
        "go back to revision {revision}{which} with: yurt-ds ctl undo {set}{number}"
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

/// Returns the command that continues a stopped revision. It is the last of the remedies.
pub fn nevertheless(set: &dyn Display) -> String {
    format!("to go on with this revision nevertheless: yurt-ds ctl resume {set}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::{current, fleet, node, old};

    #[test]
    fn going_back_comes_first_and_only_where_there_is_something_to_go_back_to() {
        let mut fleet = fleet(Vec::new());
        let words = way_on(&fleet, &"edge/web");
        assert!(
            words.starts_with("go back to revision old with: yurt-ds ctl undo edge/web; or "),
            "{words}"
        );
        fleet.earlier.clear();
        let words = way_on(&fleet, &"edge/web");
        assert!(words.starts_with("repair the nodes, or "), "{words}");
        assert!(!words.contains("undo"), "{words}");
    }

    #[test]
    fn who_has_gone_back_is_sent_further_back() {
        let mut fleet = fleet(vec![node("a", current(3))]);
        fleet.undone = Some(2);
        fleet.earlier = Vec::new();
        let words = way_on(&fleet, &"edge/web");
        assert!(words.ends_with("what somebody went back to)"), "{words}");
        fleet.earlier = vec![("older".into(), 1)];
        let words = way_on(&fleet, &"edge/web");
        assert!(
            words.starts_with("go back to revision older with: "),
            "{words}"
        );
        let mut serving = old(1);
        serving.in_place.revision = Some("older".into());
        fleet.nodes.push(node("b", serving));
        let words = way_on(&fleet, &"edge/web");
        assert!(
            words.starts_with("go back to revision older with"),
            "{words}"
        );
    }

    #[test]
    fn while_all_are_away_the_way_back_leads_to_what_they_have() {
        let mut away = node("a", old(1)).away();
        away.pods[0].in_place.revision = Some("good".into());
        away.pods[0].ready_since = None;
        let mut fleet = fleet(vec![away, node("b", current(3)).away()]);
        fleet.nodes[1].pods[0].ready_since = None;
        fleet.earlier = vec![("untried".into(), 2), ("good".into(), 1)];
        let words = back(&fleet, &"edge/web").expect("a way back");
        assert!(
            words.starts_with("go back to revision good, which"),
            "{words}"
        );
        assert!(words.ends_with("edge/web --to-revision 1"), "{words}");
    }

    #[test]
    fn nobody_is_sent_back_to_what_the_guard_stopped() {
        use crate::core::Stopped;
        let mut fleet = fleet(vec![node("a", current(3))]);
        fleet.earlier = vec![("bad".into(), 2), ("good".into(), 1)];
        let stop = |revision: &str| FailureRecord {
            stopped: Some(Stopped::FailedByRevision),
            ..FailureRecord::new(revision.into())
        };
        // The advice must not change when the record of the stopped revision is replaced by the record of the next revision.
        fleet.record = Some(stop("bad"));
        let at_once = back(&fleet, &"edge/web").expect("a way back");
        fleet.record = Some(FailureRecord::begun(Some(&stop("bad")), &"new".into()));
        let words = back(&fleet, &"edge/web").expect("a way back");
        assert_eq!(at_once, words);
        assert_eq!(
            words,
            "go back to revision good with: yurt-ds ctl undo edge/web"
        );
        fleet.earlier.pop();
        let words = way_on(&fleet, &"edge/web");
        assert!(
            words.ends_with("(the guard stopped all revisions that are kept from before this one)"),
            "{words}"
        );
        assert!(!words.contains("undo"), "{words}");
    }

    #[test]
    fn the_way_back_leads_past_a_revision_with_which_nobody_serves() {
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
        let words = back(&fleet, &"edge/web").expect("a way back");
        let command = "yurt-ds ctl undo edge/web --to-revision 1";
        assert!(words.starts_with("go back to revision good, "), "{words}");
        assert!(words.ends_with(command), "{words}");
        assert_eq!(way_back(&fleet).and_then(|back| back.number), Some(1));
        fleet.nodes[1].pods[0].ready_since = fleet.nodes[0].pods[0].ready_since;
        let words = back(&fleet, &"edge/web").expect("a way back");
        assert!(
            words.starts_with("go back to revision bad with: "),
            "{words}"
        );
    }
}
