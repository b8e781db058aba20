//! Record of the guard: a part of the [`RolloutState`](crate::core::RolloutState).
//!
//! The guard derives most of an evaluation from the current nodes and pods. The record contains the facts that nodes and pods don't
//! show. It survives restarts of the controller, and deletions of Nodes and pods.
//!
//! A record is about one revision. The record of the next revision only takes over the list of revisions that were stopped, so that
//! rollbacks avoid them.
//!
//! The comment of each field names a test that fails if decisions ignore the field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::core::id::{NodeName, Revision};
use crate::core::lenient::{dated, grouped, list, stop, value};
use crate::core::verdict::Stopped;
use crate::core::words::named;

/// Maximum number of names in [`FailureRecord::failed`] and in the lists of lost nodes. Further failed nodes are only counted.
pub(in crate::core) const FAILED_NAMED: usize = 200;
/// Maximum number of names in [`FailureRecord::broken_before`]. For further nodes, the guard doesn't know that their old pod was
/// broken.
pub(in crate::core) const BROKEN_NAMED: usize = 1000;
/// Maximum number of revisions in [`FailureRecord::stopped_before`]: ten times the default of `revisionHistoryLimit`.
const STOPPED_KEPT: usize = 100;

/// Facts about a revision that the guard remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureRecord {
    /// Hash of the revision that the record is about.
    ///
    /// `a_stopped_revision_stays_stopped_until_a_new_revision_or_a_resume` (guard tests) fails without it.
    pub revision: Revision,
    /// Reason why the guard stopped the revision. A new revision or `resume` ends the stop.
    ///
    /// `a_stop_lasts_while_outdated_nodes_are_offline` (guard tests) fails without it.
    #[serde(
        default,
        deserialize_with = "stop",
        skip_serializing_if = "Option::is_none"
    )]
    pub stopped: Option<Stopped>,
    /// True if more nodes failed than `failure-threshold` allows, but no node was left that a stop could protect.
    ///
    /// The revision is then not stopped, but rollbacks avoid it.
    ///
    /// `a_revision_that_failed_on_all_nodes_counts_as_stopped_before` (guard tests) fails without it.
    #[serde(
        default,
        deserialize_with = "value",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub exceeded: bool,
    /// Revision to which `on-failure: RevertInPlace` rolls pods back. It is chosen when the guard stops the current revision.
    ///
    /// `a_stop_saves_the_rollback_target_even_if_no_node_waits` (revert tests) fails without it.
    #[serde(
        default,
        deserialize_with = "value",
        skip_serializing_if = "Option::is_none"
    )]
    pub before: Option<Revision>,
    /// Failed nodes that count against the revision.
    ///
    /// A node is removed when it has run the revision for the failure window without failure. While the revision is stopped, no
    /// node is removed.
    ///
    /// `a_failure_survives_node_deletion_pod_deletion_and_a_short_recovery` (guard tests) fails without it.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub failed: BTreeSet<NodeName>,
    /// Number of failed nodes in addition to those named in `failed`.
    ///
    /// `the_list_of_failed_nodes_is_bounded_and_their_number_is_kept` (guard tests) fails without it.
    #[serde(default, deserialize_with = "value", skip_serializing_if = "is_zero")]
    pub more: usize,
    /// Nodes whose old pod was broken for longer than the failure window before its replacement. They don't count as failed.
    ///
    /// `nodes_broken_before_the_failure_window_do_not_count_as_failed` (guard tests) fails without it.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub broken_before: BTreeSet<NodeName>,
    /// Nodes whose pod the controller replaced twice to get to this revision.
    ///
    /// `a_node_replaced_twice_and_outdated_again_stops_the_rollout` (guard tests) fails without it.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub replaced_twice: BTreeSet<NodeName>,
    /// Nodes whose old pod the controller removed, if only this record shows the removal.
    ///
    /// Such a node was lost and is being evaluated, or a taint or a label prevents its new pod.
    ///
    /// `a_loss_by_pod_deletion_survives_new_pods_node_deletion_and_a_restart` (guard tests) fails without it.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub updated_before_loss: BTreeSet<NodeName>,
    /// Nodes that were lost after the rollout touched them, with the time of the loss.
    ///
    /// If such a Node is deleted, its evaluation continues. A failed node stays in the list, because the guard compares the times
    /// of other losses with the time of this one.
    ///
    /// `a_node_deleted_during_its_evaluation_still_counts_as_failed` (guard tests) fails without it.
    #[serde(
        default,
        rename = "judged",
        deserialize_with = "dated",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub lost: BTreeMap<NodeName, Timestamp>,
    /// Nodes that the rollout has not touched, but that were lost at about the same time as touched nodes. The value is the time of
    /// the loss.
    ///
    /// They are the evidence of a network outage. They stay in the record when they return, as long as a touched node is lost.
    ///
    /// `when_untouched_nodes_are_lost_too_the_network_is_the_cause` (guard tests) fails without it.
    #[serde(
        default,
        deserialize_with = "dated",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub control_group: BTreeMap<NodeName, Timestamp>,
    /// Failed and lost nodes by wave. Deleted or relabelled Nodes keep the wave in which they were lost or failed.
    ///
    /// Waves after the one of a failed node don't open. If its wave is unknown, no wave opens.
    ///
    /// `a_failed_node_closes_later_waves_even_after_its_deletion` (wave tests) fails without it.
    #[serde(
        default,
        deserialize_with = "grouped",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub waves: BTreeMap<Arc<str>, BTreeSet<NodeName>>,
    /// Earlier revisions that were stopped or exceeded `failure-threshold`, the latest last. At most 100 are kept.
    ///
    /// `nobody_is_sent_back_to_what_the_guard_stopped` (remedy tests) fails without it.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub stopped_before: Vec<Revision>,
}

impl FailureRecord {
    /// Returns nodes of [`Self::lost`]: the failed ones if `failed` is true, otherwise the ones that are still being evaluated.
    pub(in crate::core) fn losses(
        &self,
        failed: bool,
    ) -> impl Iterator<Item = (&NodeName, &Timestamp)> {
        let lost = self.lost.iter();
        lost.filter(move |(name, _)| self.failed.contains(*name) == failed)
    }

    /// Returns true if the record names the node as touched or failed. The loss of such a node is no evidence of a network outage.
    pub(in crate::core) fn remembers(&self, node: &NodeName) -> bool {
        self.updated_before_loss.contains(node) || self.failed.contains(node)
    }

    /// Returns an empty record of the revision.
    pub fn new(revision: Revision) -> Self {
        Self {
            revision,
            stopped: None,
            exceeded: false,
            before: None,
            failed: BTreeSet::new(),
            more: 0,
            broken_before: BTreeSet::new(),
            replaced_twice: BTreeSet::new(),
            updated_before_loss: BTreeSet::new(),
            lost: BTreeMap::new(),
            control_group: BTreeMap::new(),
            waves: BTreeMap::new(),
            stopped_before: Vec::new(),
        }
    }

    /// Returns the `known` record if it is about `revision`, otherwise a new record.
    pub fn begun(known: Option<&Self>, revision: &Revision) -> Self {
        match known.filter(|known| known.revision == *revision) {
            Some(known) => known.clone(),
            None => Self::anew(known, revision),
        }
    }

    /// Returns a new record of `revision` that takes over only the [other stopped revisions](Self::stopped_besides).
    pub(in crate::core) fn anew(known: Option<&Self>, revision: &Revision) -> Self {
        Self {
            stopped_before: Self::stopped_besides(known, revision),
            ..Self::new(revision.clone())
        }
    }

    /// Returns the revisions other than `current` that were stopped or exceeded `failure-threshold`; the latest is last.
    pub fn stopped_besides(known: Option<&Self>, current: &Revision) -> Vec<Revision> {
        let Some(known) = known else {
            return Vec::new();
        };
        let is_bad = known.stopped.is_some() || known.exceeded;
        let last = is_bad.then_some(&known.revision);
        let before = (known.stopped_before.iter()).filter(|before| Some(*before) != last);
        let all = before.chain(last).filter(|stopped| *stopped != current);
        let all: Vec<Revision> = all.cloned().collect();
        all[all.len().saturating_sub(STOPPED_KEPT)..].to_vec()
    }

    /// Returns the wave in which the node was lost or failed.
    pub(in crate::core) fn wave_of(&self, node: &NodeName) -> Option<&Arc<str>> {
        let mut waves = self.waves.iter();
        waves.find_map(|(wave, failed)| failed.contains(node).then_some(wave))
    }

    /// Returns the number of failed nodes, including nodes that `failed` doesn't name.
    pub fn failures(&self) -> usize {
        self.failed.len() + self.more
    }

    /// Returns true if the record contains nothing but its revision.
    pub fn is_empty(&self) -> bool {
        *self == Self::new(self.revision.clone())
    }

    /// Returns the reason of the condition `Guard`. The status of this condition is `True` if the revision was stopped.
    pub fn reason(&self) -> &'static str {
        self.stopped.map_or("Watching", Stopped::word)
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Writes the message of the condition `Guard`.
impl fmt::Display for FailureRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "revision {}: ", self.revision)?;
        let names = |names: &mut dyn Iterator<Item = &NodeName>, more| {
            named(names.map(NodeName::as_str), more)
        };
        let exceeded = self.exceeded.then_some("more nodes failed than allowed");
        let before = self.before.as_ref().map_or("", Revision::as_str);
        let stopped = self.stopped_before.iter().rev().map(Revision::as_str);
        let parts = [
            ("", exceeded.unwrap_or_default().to_owned()),
            ("previous revision: ", before.to_owned()),
            ("failed: ", names(&mut self.failed.iter(), self.more)),
            ("broken before: ", names(&mut self.broken_before.iter(), 0)),
            (
                "replaced twice: ",
                names(&mut self.replaced_twice.iter(), 0),
            ),
            (
                "being evaluated: ",
                names(&mut self.losses(false).map(|(name, _)| name), 0),
            ),
            ("stopped before: ", named(stopped, 0)),
        ];
        let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<String> = parts
            .map(|(title, names)| title.to_owned() + &names)
            .collect();
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<NodeName> {
        names.iter().map(|name| NodeName::from(*name)).collect()
    }

    #[test]
    fn the_record_of_a_new_revision_keeps_only_the_earlier_stop() {
        let bad = FailureRecord {
            stopped: Some(Stopped::FailedByRevision),
            failed: names(&["edge-1"]),
            ..FailureRecord::new("bad".into())
        };
        let next = FailureRecord::begun(Some(&bad), &"next".into());
        assert_eq!(next.to_string(), "revision next: stopped before: bad");
        assert!(!next.is_empty() && next.failures() == 0);
        assert_eq!(FailureRecord::begun(Some(&next), &"next".into()), next);
        let good = FailureRecord::begun(Some(&next), &"good".into());
        assert_eq!(good.stopped_before, ["bad".into()]);
        // If a revision becomes current again, its failures are counted from zero.
        let again = FailureRecord::begun(Some(&good), &"bad".into());
        assert!(again.is_empty(), "{again}");
        assert!(FailureRecord::begun(None, &"good".into()).is_empty());
        // More nodes failed than allowed, but the rollout was not stopped because no node was left to protect. The next record
        // still names the revision.
        let everywhere = FailureRecord {
            exceeded: true,
            ..FailureRecord::new("everywhere".into())
        };
        let next = FailureRecord::begun(Some(&everywhere), &"next".into());
        assert_eq!(next.stopped_before, ["everywhere".into()]);
        assert!(!next.exceeded);
        let mut many = good;
        for number in 0..300 {
            many.stopped = Some(Stopped::ReplacedTwice);
            many = FailureRecord::begun(Some(&many), &format!("bad-{number}").as_str().into());
        }
        assert_eq!(many.stopped_before.len(), STOPPED_KEPT);
        assert_eq!(many.stopped_before.last(), Some(&"bad-298".into()));
    }
}
