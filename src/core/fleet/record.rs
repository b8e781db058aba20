//! Memory of the guard: a part of the [`RolloutState`](crate::core::RolloutState).
//!
//! Most of a judgement follows from nodes and pods as they are. This is the rest: who was charged before its Node was
//! deleted, its pod was deleted or it came back; whose old pod was broken before it was replaced; who was lost while its pod
//! was removed, or is being judged; in which waves nodes failed; that the revision was stopped. It is about one revision, and
//! another one begins with an empty record, on which stands only which ones were stopped before: nobody is to be led back to
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::core::id::{NodeName, Revision};
use crate::core::lenient::{dated, grouped, list, stop, value};
use crate::core::verdict::Stopped;
use crate::core::words::named;

/// Failed nodes that are named; a condition has to stay small, so the others are only counted.
pub(in crate::core) const FAILED_NAMED: usize = 200;
/// Nodes of [`FailureRecord::broken_before`] that are remembered, the first by name; those beyond are judged like all others.
pub(in crate::core) const BROKEN_NAMED: usize = 1000;
/// Revisions of [`FailureRecord::stopped_before`] that are remembered: ten times what a DaemonSet keeps by default.
const STOPPED_KEPT: usize = 100;

/// What the guard remembers about a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureRecord {
    /// The revision.
    pub revision: Revision,
    /// Why it was stopped, if it was. Only another revision or `resume` ends that.
    #[serde(
        default,
        deserialize_with = "stop",
        skip_serializing_if = "Option::is_none"
    )]
    pub stopped: Option<Stopped>,
    /// Whether more nodes failed than may, also where nobody was left to be saved by a stop.
    #[serde(
        default,
        deserialize_with = "value",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub exceeded: bool,
    /// The revision that its pods are taken back to, chosen when it was stopped (`on-failure: RevertInPlace`).
    #[serde(
        default,
        deserialize_with = "value",
        skip_serializing_if = "Option::is_none"
    )]
    pub before: Option<Revision>,
    /// Nodes that were charged to it and have not proved since that they run it.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub failed: BTreeSet<NodeName>,
    /// More of these, whose names are not kept.
    #[serde(default, deserialize_with = "value", skip_serializing_if = "is_zero")]
    pub more: usize,
    /// Nodes whose old pod had been broken for longer than the failure window before it was replaced.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub broken_before: BTreeSet<NodeName>,
    /// Nodes whose pod we replaced twice for this revision.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub replaced_twice: BTreeSet<NodeName>,
    /// Nodes that were lost after the removal of their old pod and are not judged yet, where nothing else shows any more that
    /// there was such a removal.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub touched: BTreeSet<NodeName>,
    /// Nodes that were lost after the rollout touched them, and since when they are NotReady. Who is not judged yet is judged
    /// all the same when its Node is deleted meanwhile, and who failed stays a loss beside the others then.
    #[serde(
        default,
        deserialize_with = "dated",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub judged: BTreeMap<NodeName, Timestamp>,
    /// Nodes that the rollout had not touched and that were lost at about the same time, and since when: as long as somebody of
    /// [`Self::judged`] or a node that was let off is away, they stay a proof for the network, also when they are back.
    #[serde(
        default,
        deserialize_with = "dated",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub beside: BTreeMap<NodeName, Timestamp>,
    /// By wave, those of the nodes that were in it when they were last seen: once failed, they hold the later waves shut also
    /// when their Node is deleted.
    #[serde(
        default,
        deserialize_with = "grouped",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub waves: BTreeMap<Arc<str>, BTreeSet<NodeName>>,
    /// Other revisions that were stopped before this one came, or with which more nodes failed than may, the last one last; of
    /// more than a hundred the first are forgotten.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub stopped_before: Vec<Revision>,
}

impl FailureRecord {
    /// Those of [`Self::judged`] that failed, or that wait for their judgement.
    pub(in crate::core) fn losses(
        &self,
        failed: bool,
    ) -> impl Iterator<Item = (&NodeName, &Timestamp)> {
        let judged = self.judged.iter();
        judged.filter(move |(name, _)| self.failed.contains(*name) == failed)
    }

    /// Whether that node was lost after the rollout touched it, or failed: then it is no proof that a network took nodes away,
    /// also when nothing else tells of it any more.
    pub(in crate::core) fn remembers(&self, node: &NodeName) -> bool {
        self.touched.contains(node) || self.failed.contains(node)
    }

    /// Nothing is known against the revision.
    pub fn of(revision: Revision) -> Self {
        Self {
            revision,
            stopped: None,
            exceeded: false,
            before: None,
            failed: BTreeSet::new(),
            more: 0,
            broken_before: BTreeSet::new(),
            replaced_twice: BTreeSet::new(),
            touched: BTreeSet::new(),
            judged: BTreeMap::new(),
            beside: BTreeMap::new(),
            waves: BTreeMap::new(),
            stopped_before: Vec::new(),
        }
    }

    /// The record of `revision`: what is `known` where that is about it, else an empty one.
    pub fn begun(known: Option<&Self>, revision: &Revision) -> Self {
        match known.filter(|known| known.revision == *revision) {
            Some(known) => known.clone(),
            None => Self::anew(known, revision),
        }
    }

    /// An empty record of `revision`, on which stands only what was stopped besides it, as far as `known`.
    pub(in crate::core) fn anew(known: Option<&Self>, revision: &Revision) -> Self {
        Self {
            stopped_before: Self::stopped_besides(known, revision),
            ..Self::of(revision.clone())
        }
    }

    /// The revisions besides `current` that were stopped, or with which more nodes failed than may, as far as `known`; the last
    /// one last.
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

    /// The wave in which that node was lost or failed, as far as known.
    pub(in crate::core) fn wave_of(&self, node: &NodeName) -> Option<&Arc<str>> {
        let mut waves = self.waves.iter();
        waves.find_map(|(wave, failed)| failed.contains(node).then_some(wave))
    }

    /// Nodes that failed, named or not.
    pub fn failures(&self) -> usize {
        self.failed.len() + self.more
    }

    /// Whether there is anything to remember.
    pub fn is_empty(&self) -> bool {
        *self == Self::of(self.revision.clone())
    }

    /// The reason of the condition, whose status is `True` when the revision was stopped.
    pub fn reason(&self) -> &'static str {
        self.stopped.map_or("Watching", Stopped::word)
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The message of the condition `Guard`.
impl fmt::Display for FailureRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "revision {}: ", self.revision)?;
        let names = |names: &mut dyn Iterator<Item = &NodeName>, more| {
            named(names.map(NodeName::as_str), more)
        };
        let exceeded = self.exceeded.then_some("more nodes failed than may");
        let before = self.before.as_ref().map_or("", Revision::as_str);
        let stopped = self.stopped_before.iter().rev().map(Revision::as_str);
        let parts = [
            ("", exceeded.unwrap_or_default().to_owned()),
            ("back to: ", before.to_owned()),
            ("failed: ", names(&mut self.failed.iter(), self.more)),
            ("broken before: ", names(&mut self.broken_before.iter(), 0)),
            (
                "replaced twice: ",
                names(&mut self.replaced_twice.iter(), 0),
            ),
            (
                "being judged: ",
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
    fn of_another_revision_remains_that_it_was_stopped() {
        let bad = FailureRecord {
            stopped: Some(Stopped::FailedByRevision),
            failed: names(&["edge-1"]),
            ..FailureRecord::of("bad".into())
        };
        let next = FailureRecord::begun(Some(&bad), &"next".into());
        assert_eq!(next.to_string(), "revision next: stopped before: bad");
        assert!(!next.is_empty() && next.failures() == 0);
        assert_eq!(FailureRecord::begun(Some(&next), &"next".into()), next);
        let good = FailureRecord::begun(Some(&next), &"good".into());
        assert_eq!(good.stopped_before, ["bad".into()]);
        // Who comes again is judged anew.
        let again = FailureRecord::begun(Some(&good), &"bad".into());
        assert!(again.is_empty(), "{again}");
        assert!(FailureRecord::begun(None, &"good".into()).is_empty());
        // Nobody was left to be saved from it.
        let everywhere = FailureRecord {
            exceeded: true,
            ..FailureRecord::of("everywhere".into())
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
