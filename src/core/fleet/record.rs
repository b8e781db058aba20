//! What the guard has to remember, in the form in which it stands on the DaemonSet: a condition of its own.
//!
//! Most of a judgement follows from nodes and pods as they are. This is the rest: who was charged before its Node was
//! deleted, its pod was deleted or it came back; whose old pod was broken before it was replaced; who was lost while its pod
//! was removed, or is being judged; in which waves nodes failed; that the revision was stopped. It is about one revision, and
//! another one begins with an empty record, on which stands only which ones were stopped before: nobody is to be led back to
//! them.
//!
//! ```text
//! revision 5d4f8: back to: 8c1a2; failed: edge-1, edge-2 and 3 more; broken before: edge-7; replaced twice: edge-9
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::core::id::{NodeName, Revision};
use crate::core::verdict::Stopped;

/// Failed nodes that are named; a condition has to stay small, so the others are only counted.
pub(in crate::core) const FAILED_NAMED: usize = 200;
/// Nodes of [`FailureRecord::broken_before`] that are remembered, the first by name; those beyond are judged like all others.
pub(in crate::core) const BROKEN_NAMED: usize = 1000;
/// Revisions of [`FailureRecord::stopped_before`] that are remembered: ten times what a DaemonSet keeps by default.
const STOPPED_KEPT: usize = 100;

const EXCEEDED: &str = "more nodes failed than may";
const BACK: &str = "back to: ";
const FAILED: &str = "failed: ";
const BROKEN: &str = "broken before: ";
const TWICE: &str = "replaced twice: ";
const TOUCHED: &str = "lost while touched: ";
const JUDGED: &str = "being judged: ";
const LOST: &str = "lost: ";
const BESIDE: &str = "lost beside: ";
const SINCE: &str = " since ";
const STOPPED: &str = "stopped before: ";
const WAVE: &str = "in wave ";

/// What the guard remembers about a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureRecord {
    /// The revision.
    pub revision: Revision,
    /// Why it was stopped, if it was. Only another revision or `resume` ends that.
    pub stopped: Option<Stopped>,
    /// Whether more nodes failed than may, also where nobody was left to be saved by a stop.
    pub exceeded: bool,
    /// The revision that its pods are taken back to, chosen when it was stopped (`on-failure: RevertInPlace`).
    pub before: Option<Revision>,
    /// Nodes that were charged to it and have not proved since that they run it.
    pub failed: BTreeSet<NodeName>,
    /// More of these, whose names are not kept.
    pub more: usize,
    /// Nodes whose old pod had been broken for longer than the failure window before it was replaced.
    pub broken_before: BTreeSet<NodeName>,
    /// Nodes whose pod we replaced twice for this revision.
    pub replaced_twice: BTreeSet<NodeName>,
    /// Nodes that were lost after the removal of their old pod and are not judged yet, where nothing else shows any more that
    /// there was such a removal.
    pub touched: BTreeSet<NodeName>,
    /// Nodes that were lost after the rollout touched them, and since when they are NotReady. Who is not judged yet is judged
    /// all the same when its Node is deleted meanwhile, and who failed stays a loss beside the others then.
    pub judged: BTreeMap<NodeName, Timestamp>,
    /// Nodes that the rollout had not touched and that were lost at about the same time, and since when: as long as somebody of
    /// [`Self::judged`] or a node that was let off is away, they stay a proof for the network, also when they are back.
    pub beside: BTreeMap<NodeName, Timestamp>,
    /// By wave, those of the nodes that were in it when they were last seen: once failed, they hold the later waves shut also
    /// when their Node is deleted.
    pub waves: BTreeMap<Arc<str>, BTreeSet<NodeName>>,
    /// Other revisions that were stopped before this one came, or with which more nodes failed than may, the last one last; of
    /// more than a hundred the first are forgotten.
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

    /// Reads a condition back: status `True`?, reason and message. `None`: it is none of ours.
    pub fn read(status: bool, reason: &str, message: &str) -> Option<Self> {
        let (revision, parts) = message.strip_prefix("revision ")?.split_once(": ")?;
        let mut record = Self::of(revision.into());
        record.stopped = match status {
            true => Some(Stopped::from_word(reason)?),
            false => None,
        };
        for part in parts.split("; ") {
            if part == EXCEEDED {
                record.exceeded = true;
            } else if let Some(before) = part.strip_prefix(BACK) {
                record.before = Some(before.into());
            } else if let Some(names) = part.strip_prefix(FAILED) {
                (record.failed, record.more) = read_names(names);
            } else if let Some(names) = part.strip_prefix(BROKEN) {
                record.broken_before = read_names(names).0;
            } else if let Some(names) = part.strip_prefix(TWICE) {
                record.replaced_twice = read_names(names).0;
            } else if let Some(names) = part.strip_prefix(TOUCHED) {
                record.touched = read_names(names).0;
            } else if let Some((wave, names)) =
                (part.strip_prefix(WAVE)).and_then(|part| part.split_once(": "))
            {
                record.waves.insert(wave.into(), read_names(names).0);
            } else if let Some(revisions) = part.strip_prefix(STOPPED) {
                record.stopped_before = revisions.split(", ").map(Revision::from).collect();
            } else if let Some(names) = part.strip_prefix(BESIDE) {
                record.beside = read_dated(names);
            } else if let Some(names) = part
                .strip_prefix(JUDGED)
                .or_else(|| part.strip_prefix(LOST))
            {
                record.judged.extend(read_dated(names));
            }
        }
        Some(record)
    }
}

/// Names of nodes have neither spaces nor commas in them.
fn read_names(text: &str) -> (BTreeSet<NodeName>, usize) {
    let (names, more) = match text.rsplit_once(" and ") {
        Some((names, more)) => (names, more.strip_suffix(" more")),
        None => match text.strip_suffix(" more") {
            Some(more) => ("", Some(more)),
            None => (text, None),
        },
    };
    let names = names.split(", ").filter(|name| !name.is_empty());
    let more = more.and_then(|more| more.parse().ok()).unwrap_or(0);
    (names.map(NodeName::from).collect(), more)
}

/// Names with instants; what has none is left out.
fn read_dated(text: &str) -> BTreeMap<NodeName, Timestamp> {
    let dated = |part: &str| {
        let (name, since) = part.split_once(SINCE)?;
        Some((NodeName::from(name), since.parse().ok()?))
    };
    text.split(", ").filter_map(dated).collect()
}

/// The message of the condition.
impl fmt::Display for FailureRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "revision {}: ", self.revision)?;
        let parts = [
            (FAILED, &self.failed, self.more),
            (BROKEN, &self.broken_before, 0),
            (TWICE, &self.replaced_twice, 0),
            (TOUCHED, &self.touched, 0),
        ];
        let mut separator = "";
        if self.exceeded {
            write!(f, "{EXCEEDED}")?;
            separator = "; ";
        }
        if let Some(before) = &self.before {
            write!(f, "{separator}{BACK}{before}")?;
            separator = "; ";
        }
        for (title, names, more) in parts {
            if names.is_empty() && more == 0 {
                continue;
            }
            let names: Vec<&str> = names.iter().map(NodeName::as_str).collect();
            write!(f, "{separator}{title}{}", names.join(", "))?;
            match (names.is_empty(), more) {
                (_, 0) => {}
                (true, more) => write!(f, "{more} more")?,
                (false, more) => write!(f, " and {more} more")?,
            }
            separator = "; ";
        }
        let dated = [
            (JUDGED, self.losses(false).collect()),
            (LOST, self.losses(true).collect()),
            (BESIDE, self.beside.iter().collect::<Vec<_>>()),
        ];
        for (title, lost) in dated {
            let lost = lost.iter();
            let lost: Vec<String> = lost
                .map(|(name, since)| format!("{name}{SINCE}{since}"))
                .collect();
            if !lost.is_empty() {
                write!(f, "{separator}{title}{}", lost.join(", "))?;
                separator = "; ";
            }
        }
        for (wave, failed) in &self.waves {
            let failed: Vec<&str> = failed.iter().map(NodeName::as_str).collect();
            write!(f, "{separator}{WAVE}{wave}: {}", failed.join(", "))?;
            separator = "; ";
        }
        if !self.stopped_before.is_empty() {
            let stopped: Vec<&str> = self.stopped_before.iter().map(Revision::as_str).collect();
            write!(f, "{separator}{STOPPED}{}", stopped.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<NodeName> {
        names.iter().map(|name| NodeName::from(*name)).collect()
    }

    #[test]
    fn what_is_written_can_be_read_back() {
        let empty = FailureRecord::of("5d4f8".into());
        let some = FailureRecord {
            failed: names(&["edge-1", "edge-2.and.more"]),
            broken_before: names(&["edge-7"]),
            replaced_twice: names(&["edge-9", "edge-8"]),
            touched: names(&["edge-5"]),
            judged: [("edge-3".into(), Timestamp::from_second(90).unwrap())].into(),
            beside: [("edge-4".into(), Timestamp::from_second(60).unwrap())].into(),
            waves: [("canary".into(), names(&["edge-1"]))].into(),
            stopped_before: vec!["77aa1".into(), "0b2c3".into()],
            ..empty.clone()
        };
        let many = FailureRecord {
            stopped: Some(Stopped::FailedByRevision),
            more: 3,
            ..some.clone()
        };
        let nameless = FailureRecord {
            stopped: Some(Stopped::ReplacedTwice),
            more: 7,
            ..empty.clone()
        };
        let judged = FailureRecord {
            judged: some.judged.clone(),
            ..empty.clone()
        };
        let gone = FailureRecord {
            failed: names(&["edge-3"]),
            ..judged.clone()
        };
        let exceeded = FailureRecord {
            exceeded: true,
            failed: names(&["edge-1"]),
            ..empty.clone()
        };
        let bare = FailureRecord {
            stopped: Some(Stopped::FailedByRevision),
            before: Some("8c1a2".into()),
            ..empty.clone()
        };
        let back = FailureRecord {
            before: bare.before.clone(),
            ..many.clone()
        };
        for record in [
            &empty, &some, &many, &nameless, &judged, &gone, &bare, &back, &exceeded,
        ] {
            let message = record.to_string();
            let read = FailureRecord::read(record.stopped.is_some(), record.reason(), &message);
            assert_eq!(read.as_ref(), Some(record), "{message}");
        }
        assert!(empty.is_empty() && !nameless.is_empty());
        assert_eq!(many.failures(), 5);
        assert_eq!(
            gone.to_string(),
            "revision 5d4f8: failed: edge-3; lost: edge-3 since 1970-01-01T00:01:30Z"
        );
        assert_eq!(
            many.to_string(),
            "revision 5d4f8: failed: edge-1, edge-2.and.more and 3 more; broken before: edge-7; \
             replaced twice: edge-8, edge-9; lost while touched: edge-5; being judged: edge-3 since 1970-01-01T00:01:30Z; \
             lost beside: edge-4 since 1970-01-01T00:01:00Z; \
             in wave canary: edge-1; stopped before: 77aa1, 0b2c3"
        );
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

    #[test]
    fn what_others_wrote_is_no_record() {
        for (status, reason, message) in [
            (true, "FailedByRevision", "something else"),
            (true, "Unknown", "revision 5d4f8: failed: edge-1"),
            (false, "", ""),
        ] {
            assert_eq!(FailureRecord::read(status, reason, message), None);
        }
    }
}
