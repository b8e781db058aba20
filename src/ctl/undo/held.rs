//! Nodes that a rollback does not update yet, because of a wave, a window, a partition or a similar setting.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::core::messages::node::{explain, remedy};
use crate::core::messages::rollout::RolloutView;
use crate::core::revision::RevisionFacts;
use crate::core::settings::maintenance_window::MAINTENANCE_WINDOW;
use crate::core::settings::partition::PARTITION;
use crate::core::settings::selector::SELECTOR;
use crate::core::settings::waves::WAVES;
use crate::core::{Node, PodRevision, RevisionState, Strategy, Verdict, decide};
use crate::ctl::look::Look;
use crate::ctl::reported::ReportedRollout;
use crate::ctl::snapshot::RolloutSnapshot;
use crate::index::SetKey;

/// Nodes that keep their pods for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeldBack {
    /// Verdict (state in the rollout) of these nodes; `null` if the caller may not list nodes.
    verdict: Option<&'static str>,
    /// Names of the nodes; empty if the caller may not list nodes.
    nodes: Vec<String>,
    /// Sentence about the reason for which the first node keeps its pods.
    message: String,
    /// Sentence about the event or action after which the first node is updated.
    next: String,
    /// Command with which these nodes are rolled back now: it removes the setting, or starts the rollback before the window opens.
    ///
    /// `null` if `next` has the command, or the reason is not a setting.
    remove: Option<String>,
    /// True if all nodes wait for the same event: the end of a pause, the node owners, or a correction of the settings.
    #[serde(skip)]
    pub(super) is_for_all: bool,
}

impl HeldBack {
    /// Returns the nodes that a rollback to the revision `to` would not update yet, grouped by reason.
    ///
    /// `settings` are those of the DaemonSet. `from` is the number of the revision that is rolled back. `newest` is the highest
    /// number of a revision before the rollback.
    pub(super) fn all(
        look: &Look,
        settings: Option<&Strategy>,
        to: &RevisionFacts,
        from: Option<i64>,
        newest: i64,
    ) -> Vec<Self> {
        match look {
            Look::Judged(snapshot) => of_nodes(&rolled_back(snapshot, settings, to, from, newest)),
            Look::Reported(reported) => of_settings(reported),
        }
    }

    /// Returns the text about these nodes. `is_done` is true if the rollback has been written.
    pub(super) fn text(&self, is_done: bool) -> String {
        let rest = self.nodes.len().saturating_sub(1);
        let rest = match rest {
            0 => String::new(),
            rest => format!(" (and {rest} more)"),
        };
        let remove = self.remove.as_ref();
        let remove = remove.map_or_else(String::new, |command| {
            let then = if is_done {
                ""
            } else {
                ", run this after the undo"
            };
            format!("  To roll back these nodes now{then}: {command}\n")
        });
        let next = if self.next.is_empty() {
            String::new()
        } else {
            format!("  {}\n", self.next)
        };
        match self.nodes.first() {
            Some(first) => format!(
                "Held back: node {first}{rest} {}.\n{next}{remove}",
                self.message
            ),
            None => format!("{}\n{next}{remove}", self.message),
        }
    }
}

/// Evaluates the DaemonSet as if `to` were already its current revision.
fn rolled_back(
    snapshot: &RolloutSnapshot,
    settings: Option<&Strategy>,
    to: &RevisionFacts,
    from: Option<i64>,
    newest: i64,
) -> RolloutSnapshot {
    if snapshot.revision() == Some(&to.hash) {
        return snapshot.clone();
    }
    let mut after = snapshot.clone();
    if let Some(settings) = settings.filter(|_| after.invalid.is_none()) {
        // Evaluate without `start-now`: undo removes this annotation, so the window applies.
        after.strategy = Strategy {
            start_now: None,
            ..settings.clone()
        };
    }
    let fleet = &mut after.fleet;
    fleet.revision = RevisionState::Current(to.hash.clone());
    fleet.behind_since = None;
    fleet.adopted = Some(snapshot.now);
    fleet.is_proven = true;
    fleet.undone = from;
    for node in &mut fleet.nodes {
        for pod in node.pods.iter_mut() {
            // A number above `newest` is the new number of `to`. The controller may already have assigned it.
            pod.revision = if pod.number == to.number || pod.number > newest {
                PodRevision::Current
            } else {
                PodRevision::Outdated
            };
        }
    }
    after.plan = decide(&after.strategy, fleet, after.now);
    if after.invalid.is_some() {
        let verdicts = after.plan.verdicts.iter_mut();
        let paused = verdicts.filter(|verdict| matches!(verdict, Verdict::Paused { .. }));
        paused.for_each(|verdict| *verdict = Verdict::Invalid);
    }
    after
}

/// Returns the nodes that would keep an outdated pod, grouped by reason.
fn of_nodes(snapshot: &RolloutSnapshot) -> Vec<HeldBack> {
    let rollout = snapshot.rollout();
    let mut groups: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (position, verdict) in snapshot.plan.verdicts.iter().enumerate() {
        let node = &snapshot.fleet.nodes[position];
        if let Some(group) = group(verdict, node) {
            groups.entry(group).or_default().push(position);
        }
    }
    let of_group = |positions: Vec<usize>| {
        let first = *positions.first()?;
        let (node, verdict) = (&snapshot.fleet.nodes[first], snapshot.plan.verdicts[first]);
        let names = positions.iter();
        let names = names.map(|position| snapshot.fleet.nodes[*position].name.to_string());
        Some(HeldBack {
            verdict: Some(verdict.word()),
            nodes: names.collect(),
            message: explain(&rollout, first).because,
            next: remedy(&rollout, first),
            remove: removal(&rollout, node, verdict, &snapshot.key),
            is_for_all: matches!(
                verdict,
                Verdict::Paused { .. }
                    | Verdict::Invalid
                    | Verdict::AwaitingOwner
                    | Verdict::AwaitingDeletion
            ),
        })
    };
    groups.into_values().filter_map(of_group).collect()
}

/// Returns a key that nodes with the same reason have in common; `None` if the node is updated.
fn group(verdict: &Verdict, node: &Node) -> Option<(usize, usize)> {
    let part = match *verdict {
        Verdict::WaveNotOpen { wave, .. } => wave,
        Verdict::OutOfWindow { .. } => usize::from(node.window.is_some()),
        Verdict::Paused { .. }
        | Verdict::Partition
        | Verdict::NotSelected
        | Verdict::Held { .. }
        | Verdict::Guarded(_)
        | Verdict::AwaitingOwner
        | Verdict::AwaitingDeletion
        | Verdict::Invalid
        | Verdict::UntoleratedTaint => 0,
        _ => return None,
    };
    Some((verdict.index(), part))
}

/// Returns the command with which a node is rolled back now: it removes the setting, or starts the rollback before the window
/// opens.
fn removal(
    rollout: &RolloutView<'_>,
    node: &Node,
    verdict: Verdict,
    key: &SetKey,
) -> Option<String> {
    let of_set = |setting| remove(key, setting, rollout.strategy.name_of(setting));
    match verdict {
        Verdict::Partition => Some(of_set(PARTITION)),
        Verdict::NotSelected => Some(of_set(SELECTOR)),
        Verdict::WaveNotOpen { .. } => Some(of_set(WAVES)),
        Verdict::OutOfWindow { .. } if node.window.is_some() => Some(format!(
            "kubectl annotate node {} {MAINTENANCE_WINDOW}-",
            node.name
        )),
        Verdict::OutOfWindow { .. } => Some(start_now(key)),
        _ => None,
    }
}

/// Returns the command that starts the rollback before the window of the DaemonSet opens.
fn start_now(key: &SetKey) -> String {
    format!("yurt-ds ctl start-now {key}")
}

/// Returns the command that removes a setting from the DaemonSet. `place` is its annotation or the path of its field.
fn remove(key: &SetKey, setting: &str, place: &str) -> String {
    let (namespace, resource, name) = (&key.namespace, key.kind.resource(), &key.name);
    if place == setting {
        return format!("kubectl -n {namespace} annotate {resource} {name} {setting}-");
    }
    let nest = |inner: Value, part: &str| json!({ part: inner });
    let patch = place.rsplit('.').fold(Value::Null, nest);
    format!("kubectl -n {namespace} patch {resource} {name} --type=merge -p '{patch}'")
}

/// Returns the settings that may keep nodes from being updated, for a caller without the right to list nodes.
fn of_settings(reported: &ReportedRollout) -> Vec<HeldBack> {
    let Some(strategy) = &reported.strategy else {
        return Vec::new();
    };
    let settings = [
        (WAVES, strategy.waves.is_some()),
        (MAINTENANCE_WINDOW, strategy.window.is_some()),
        (PARTITION, !strategy.partition.is_zero()),
        (SELECTOR, strategy.selector.is_some()),
    ];
    let set = settings.into_iter().filter(|(_, is_set)| *is_set);
    let held = set.map(|(setting, _)| HeldBack {
        verdict: None,
        nodes: Vec::new(),
        message: format!("Nodes may be held back by {}.", strategy.place_of(setting)),
        next: String::new(),
        remove: Some(match setting {
            MAINTENANCE_WINDOW => start_now(&reported.key),
            _ => remove(&reported.key, setting, strategy.name_of(setting)),
        }),
        is_for_all: false,
    });
    held.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::SetKind;

    #[test]
    fn a_setting_is_removed_from_its_annotation_or_field() {
        let (native, advanced) = (SetKind::Native, SetKind::Advanced);
        let key = |kind| SetKey::of_kind(kind, "shop", "web");
        assert_eq!(
            remove(&key(native), WAVES, WAVES),
            "kubectl -n shop annotate daemonset web apps.openyurt.io/waves-"
        );
        assert_eq!(
            remove(
                &key(advanced),
                SELECTOR,
                "spec.updateStrategy.rollingUpdate.selector"
            ),
            "kubectl -n shop patch daemonset.apps.kruise.io web --type=merge -p \
             '{\"spec\":{\"updateStrategy\":{\"rollingUpdate\":{\"selector\":null}}}}'"
        );
    }
}
