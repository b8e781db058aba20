//! Messages about nodes that the guard stopped, evaluates or rolls back.

use k8s_openapi::jiff::Timestamp;

use super::pods::{are_seen_to_end, ending_words, pod_name, trouble_word, trouble_words};
use super::rollout::RolloutView;
use super::slots;
use crate::core::fleet::{Node, Readiness};
use crate::core::id::NodeName;
use crate::core::instant;
use crate::core::plan::Reversal;
use crate::core::remedy::way_on;
use crate::core::verdict::{Cause, Guarded, Offline, Revert, Stopped, Verdict};
use crate::core::words::plural;

pub(super) fn failed(node: &Node, cause: Cause) -> (Option<String>, String) {
    let pod = pod_name(node);
    match cause {
        Cause::NodeLost => (
            Some("NotReady".into()),
            "turned NotReady soon after its pod was replaced; it holds up nobody".to_owned(),
        ),
        Cause::Crashing if are_seen_to_end(node) => ending_words(node),
        Cause::Crashing => (
            trouble_word(node),
            format!("has its new pod{pod}, which crashes{}", trouble_words(node)),
        ),
        Cause::NotStarting => (
            trouble_word(node),
            format!(
                "has its new pod{pod}, which does not start{}",
                trouble_words(node)
            ),
        ),
    }
}

pub(super) fn guarded_words(
    rollout: &RolloutView<'_>,
    guarded: Guarded,
) -> (Option<String>, String) {
    let plan = rollout.plan;
    match guarded {
        Guarded::Stopped(Stopped::FailedByRevision) => (
            Some(guarded.word().into()),
            format!(
                "is outdated, and the guard stopped this revision: {}",
                plan.failures_words(plan.counts.failures)
            ),
        ),
        Guarded::Stopped(Stopped::ReplacedTwice) => (
            Some(guarded.word().into()),
            format!(
                "is outdated, and the guard stopped this revision: {}",
                plan.replaced_twice_words()
            ),
        ),
        Guarded::Inconclusive { until } => (
            Some(guarded.word().into()),
            format!(
                "is outdated, and nothing new begins for {}: {}",
                instant::between(rollout.now, until),
                rollout.plan.judging_words()
            ),
        ),
    }
}

/// Returns a clause about the guard's evaluation of an offline node; empty if there is none.
pub(super) fn loss_aside(rollout: &RolloutView<'_>, node: &Node) -> String {
    let Some(record) = &rollout.plan.record else {
        return String::new();
    };
    if record.failed.contains(&node.name) {
        return "; it failed after it got this revision".to_owned();
    }
    let judged =
        record.lost.contains_key(&node.name) || record.updated_before_loss.contains(&node.name);
    match rollout.plan.guarded {
        Some(Guarded::Inconclusive { until }) if judged => format!(
            "; whether this revision or the network took it away is judged in {}",
            instant::between(rollout.now, until)
        ),
        _ => String::new(),
    }
}

/// Returns the time until which a node that returned is not updated (`ready-settle`); `None` if that time has passed.
pub(super) fn settles(rollout: &RolloutView<'_>, node: &Node) -> Option<Timestamp> {
    let Readiness::Ready { since } = node.readiness else {
        return None;
    };
    let until = since.saturating_add(rollout.strategy.ready_settle).ok()?;
    (until > rollout.now).then_some(until)
}

/// Describes an offline node whose pod will be rolled back when the node returns.
pub(super) fn reverted_later(rollout: &RolloutView<'_>, node: &Node) -> String {
    format!(
        "is NotReady, and its pod{} has the revision that the guard stopped: it is taken back{} in place after the node returns",
        pod_name(node),
        to(rollout)
    )
}

/// Information about a deleted Node that was lost with this revision.
pub struct DeletedNode {
    /// Word of the verdict for the node.
    pub verdict: &'static str,
    /// Time at which the node became NotReady, as far as known.
    pub since: Option<Timestamp>,
    /// Reason, as text that follows "node NAME …".
    pub because: String,
    /// Remedy for the verdict.
    pub next: String,
}

/// Returns the guard's record of a node whose Node object was deleted; `None` if there is none.
pub fn gone(rollout: &RolloutView<'_>, name: &NodeName) -> Option<DeletedNode> {
    let record = rollout.plan.record.as_ref()?;
    let since = record.lost.get(name).copied();
    if record.failed.contains(name) {
        return Some(DeletedNode {
            verdict: Verdict::FailedByRevision {
                since: since.unwrap_or(rollout.now),
                cause: Cause::NodeLost,
            }
            .word(),
            since,
            because: format!(
                "failed after it got this revision, and its Node was deleted since: {}",
                rollout.plan.failures_words(rollout.plan.counts.failures)
            ),
            next: format!(
                "Nobody waits for it, and it counts until another revision comes. If this revision is bad, {}",
                way_on(rollout.fleet, &rollout.key)
            ),
        });
    }
    let is_open = since.is_some() || record.updated_before_loss.contains(name);
    is_open.then(|| DeletedNode {
        verdict: Verdict::Offline(Offline::NoNode).word(),
        since,
        because: "was lost after its pod was touched, and its Node was deleted since; it is not judged yet whether this \
                  revision or the network took it away"
            .to_owned(),
        next: match rollout.plan.guarded {
            Some(Guarded::Inconclusive { until }) => {
                format!("It is judged in {}.", instant::between(rollout.now, until))
            }
            _ => "It is judged when its Node is made anew.".to_owned(),
        },
    })
}

/// Describes a node whose pod has the revision that the guard stopped, or was rolled back from it.
pub(super) fn revert_words(
    rollout: &RolloutView<'_>,
    node: &Node,
    revert: Revert,
) -> (Option<String>, String) {
    let pod = pod_name(node);
    match revert {
        Revert::Pending => (
            Some("Pending".into()),
            format!(
                "has the revision that the guard stopped, and its pod{pod} is available: it is taken back{} in place when {}",
                to(rollout),
                match (rollout.pause(), settles(rollout, node)) {
                    (Some(_), _) => "the rollout is not paused any more".to_owned(),
                    (None, Some(_)) => "its node has been back for long enough".to_owned(),
                    (None, None) => format!("a slot is free ({})", slots::taken(rollout, node)),
                }
            ),
        ),
        Revert::Done => (
            Some("Done".into()),
            format!(
                "has its pod{pod} taken back{} in place, because the guard stopped the current one",
                to(rollout)
            ),
        ),
    }
}

/// Describes a node whose pod is being rolled back from the stopped revision.
pub(super) fn reverting(rollout: &RolloutView<'_>, node: &Node) -> (Option<String>, String) {
    let because = format!(
        "has its pod{} taken back{} in place, because the guard stopped the current one; it is not available yet{}",
        pod_name(node),
        to(rollout),
        trouble_words(node)
    );
    (Some("Reverting".into()), because)
}

/// Returns a phrase that names the revision that pods are rolled back to; empty if it is unknown.
fn to(rollout: &RolloutView<'_>) -> String {
    let record = rollout.plan.record.as_ref();
    let before = record.and_then(|record| record.before.as_ref());
    before.map_or_else(String::new, |before| format!(" to revision {before}"))
}

/// Describes the progress of the rollback from a stopped revision.
pub fn reversal_words(rollout: &RolloutView<'_>) -> String {
    let Some(reversal) = &rollout.plan.reversal else {
        return String::new();
    };
    let Reversal {
        under_way,
        done,
        stuck,
        ..
    } = reversal;
    let taken = done.len() + under_way.len();
    let back = match taken {
        0 => String::new(),
        all => format!(
            "; taken back{} in place: {} of {all}",
            to(rollout),
            done.len()
        ),
    };
    let stuck = match (stuck.len(), taken) {
        (0, _) => String::new(),
        (nodes, 0) => format!(
            "; on {nodes} {} it cannot be taken back in place: {}",
            plural(nodes, "node", "nodes"),
            reversal.why_words()
        ),
        (nodes, _) => format!(", {nodes} cannot be: {}", reversal.why_words()),
    };
    back + &stuck
}
