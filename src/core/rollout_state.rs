//! State of a rollout: one versioned value, written as JSON into the condition `RolloutState` of the DaemonSet.
//!
//! A restarted controller can't derive everything from nodes, pods and revisions. The state contains the rest. It is part of the
//! status, because a permission to write a status allows no other changes. One request writes it together with the conditions that
//! people read.
//!
//! # Versions
//! If a later release adds a field, this release keeps the field ([`RolloutState::unknown`]). If a field gets another meaning,
//! [`VERSION`] must change. A state of a newer version is read as far as possible, and never overwritten.
//!
//! # Size
//! The JSON has at most [`LIMIT`] bytes, whatever the number of nodes: [`RolloutState::to_json`] truncates lists of names. A
//! missing name never makes the rollout less careful.

mod bounded;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fleet::PauseRecord;
use super::fleet::record::FailureRecord;
use super::fleet::write_failures::{WriteFailures, WriteVerb};
use super::id::{NodeName, PodName, Revision, RevisionState};
use super::lenient::{list, value};

/// Version of the state that this program writes.
pub const VERSION: u32 = 1;

/// Maximum number of groups of rejected writes, and of nodes that a group names.
const GROUPS: usize = 20;
const NAMED: usize = 50;

/// Maximum size of the JSON, in bytes.
pub const LIMIT: usize = 16 * 1024;

/// State of a rollout that a restarted controller needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutState {
    /// [`VERSION`] of the program that wrote this state.
    #[serde(deserialize_with = "value")]
    pub version: u32,
    /// Facts that the conditions for people contained at the last report.
    #[serde(deserialize_with = "value")]
    pub reported: Reported,
    /// The guard's record about a revision.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub guard: Option<FailureRecord>,
    /// State of the active pause; `None` if there is none.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub pause: Option<ReportedPause>,
    /// Writes that the API server rejects; `None` if there are none.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub refused: Option<ReportedFailures>,
    /// Reason why pods or the ControllerRevision cannot be created; `None` if they can.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub not_created: Option<Arc<str>>,
    /// Reasons why pods do not become available, by name of the pod.
    #[serde(deserialize_with = "value", skip_serializing_if = "BTreeMap::is_empty")]
    pub not_ready: BTreeMap<PodName, Arc<str>>,
    /// Nodes on which pods keep ending, grouped by cause.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<FailingPods>,
    /// Error about the invalid setting for which an Event was last written.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub invalid: Option<Arc<str>>,
    /// Fields of a later release, which are written back unchanged.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// Facts that the conditions for people contained at the last report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reported {
    /// Revision that the report was about. While the current revision is unknown, this is the previous one.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// `metadata.generation` that the conditions describe; `None` before the first report.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// True if the rollout of the reported revision is complete.
    #[serde(deserialize_with = "value")]
    pub complete: bool,
    /// Reason of the condition `RolloutComplete`, from a closed list; empty before the first report.
    #[serde(deserialize_with = "value")]
    pub reason: Arc<str>,
    /// Subject of the last Event, if its reason can have several subjects. An example is the wave that a rollout waits for.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub subject: Option<Arc<str>>,
    /// Time at which the rollout stalled; `None` if it is not stalled. The time stays the same if the reason changes.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub stalled_since: Option<Timestamp>,
    /// Time at which the current revision became unknown; `None` if that was not reported.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub behind_since: Option<Timestamp>,
    /// Number of the revision to which a stalled rollout was recommended to roll back; `None` if that is the previous revision.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub advised: Option<i64>,
    /// Stage of the rollback in place for which an Event was last written.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub reversal: Option<Arc<str>>,
}

/// State of the active pause, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedPause {
    /// Times of the start of the pause and of its last reminder.
    #[serde(flatten)]
    pub record: PauseRecord,
    /// Nodes that got the current revision during the pause: the first ones by name.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub newcomers: Vec<NodeName>,
    /// True if more nodes got the current revision during the pause than `newcomers` names.
    #[serde(
        default,
        deserialize_with = "value",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub more: bool,
}

/// Writes that the API server rejects, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedFailures {
    /// Revision of the rejected writes.
    #[serde(
        default,
        deserialize_with = "value",
        skip_serializing_if = "Option::is_none"
    )]
    pub revision: Option<Revision>,
    /// Time of the oldest rejection that is still in effect.
    pub since: Timestamp,
    /// Rejected writes, grouped by kind and by message of the API server.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub writes: Vec<FailureGroup>,
}

/// Write that the API server rejects on several nodes with the same message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureGroup {
    /// Kind of the rejected write.
    pub write: WriteVerb,
    /// Message of the API server.
    #[serde(rename = "said")]
    pub message: Arc<str>,
    /// Nodes with the rejected write: the first ones by name.
    #[serde(default, deserialize_with = "list")]
    pub nodes: Vec<NodeName>,
    /// True if the API server rejects the write on more nodes than `nodes` names.
    #[serde(
        default,
        deserialize_with = "value",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub more: bool,
}

/// Nodes on which pods keep ending with the same cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingPods {
    /// Reason that the kubelet reports, as one word.
    pub reason: Arc<str>,
    /// Message of the kubelet.
    #[serde(default, rename = "said", deserialize_with = "value")]
    pub message: Arc<str>,
    /// Nodes on which pods end: the first ones by name.
    #[serde(default, deserialize_with = "list")]
    pub nodes: Vec<NodeName>,
}

impl Default for RolloutState {
    fn default() -> Self {
        Self {
            version: VERSION,
            reported: Reported::default(),
            guard: None,
            pause: None,
            refused: None,
            not_created: None,
            not_ready: BTreeMap::new(),
            failing: Vec::new(),
            invalid: None,
            unknown: Map::new(),
        }
    }
}

impl RolloutState {
    /// Parses the output of [`Self::to_json`], from this release or another one.
    ///
    /// A field that cannot be parsed gets its default value, and the other fields keep theirs.
    ///
    /// # Errors
    /// Returns an error if the text is not a JSON object.
    pub fn read(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }

    /// Returns true if a later release wrote the state, so that this program may misunderstand it. Such a state must not be
    /// overwritten.
    pub fn is_newer(&self) -> bool {
        self.version > VERSION
    }

    /// Returns true if the rollout of the current revision was reported as complete.
    pub fn was_complete(&self, revision: &RevisionState) -> bool {
        self.reported.complete && self.is_about(revision)
    }

    /// Returns true if the last report is about the current revision.
    pub fn is_about(&self, revision: &RevisionState) -> bool {
        let current = revision.current();
        current.is_some() && self.reported.revision.as_ref() == current
    }

    /// Returns the time since which the rollout is stalled for this reason; `None` if it isn't stalled, or is stalled for another
    /// reason.
    pub fn stalled_since(&self, reason: &str) -> Option<Timestamp> {
        let since = self.reported.stalled_since?;
        (*self.reported.reason == *reason).then_some(since)
    }

    /// Returns the rejected writes in the form that decisions need.
    pub fn refusals(&self) -> Option<WriteFailures> {
        let reported = self.refused.as_ref()?;
        let refused = reported.writes.iter().flat_map(|group| {
            let nodes = group.nodes.iter().cloned();
            nodes.map(|node| (node, group.write, group.message.clone()))
        });
        let revision = reported.revision.clone();
        Some(WriteFailures::remember(revision, refused, reported.since))
    }

    /// Adds to `known` the rejections on nodes that the state counts, but doesn't name ([`FailureGroup::more`]). Returns `None` if
    /// the state names all nodes.
    ///
    /// The nodes without a name are in `begun`. Their replacement would begin now, although the last report said that the API
    /// server rejects all remaining writes.
    pub fn with_unnamed<'a>(
        &self,
        known: &WriteFailures,
        begun: impl IntoIterator<Item = (&'a NodeName, WriteVerb)>,
    ) -> Option<WriteFailures> {
        let reported = self.refused.as_ref()?;
        let unnamed = reported.writes.iter().filter(|group| group.more);
        let unnamed: BTreeMap<WriteVerb, &Arc<str>> =
            unnamed.map(|group| (group.write, &group.message)).collect();
        let known_ones = known.failures().map(|(node, failure)| {
            let message = failure.sentence.clone();
            (node.clone(), failure.write, message)
        });
        let begun = begun.into_iter().filter_map(|(node, write)| {
            let message = (*unnamed.get(&write)?).clone();
            let is_new = !known.is_refused(node, write);
            is_new.then(|| (node.clone(), write, message))
        });
        let begun: Vec<_> = begun.collect();
        let revision = reported.revision.clone();
        (!begun.is_empty())
            .then(|| WriteFailures::remember(revision, known_ones.chain(begun), reported.since))
    }

    /// Returns the stored reason why pods keep ending on `node`; `None` if the node is not named.
    pub fn failing_on(&self, node: &NodeName) -> Option<&FailingPods> {
        let mut failing = self.failing.iter();
        failing.find(|failing| failing.nodes.contains(node))
    }
}

impl ReportedPause {
    /// Returns the state of a pause in which no node has got the current revision yet.
    pub fn from_record(record: PauseRecord) -> Self {
        Self {
            record,
            newcomers: Vec::new(),
            more: false,
        }
    }
}

impl ReportedFailures {
    /// Returns the present rejections in the stored form; `None` if no write is rejected. `before` is the last report.
    pub fn new(write_failures: &WriteFailures, before: Option<&Self>) -> Option<Self> {
        let first = write_failures
            .failures()
            .map(|(_, failure)| failure.since)
            .min()?;
        let revision = write_failures.revision().cloned();
        let same = before.filter(|before| before.revision == revision);
        let groups = write_failures.groups().into_iter().take(GROUPS);
        let writes = groups.map(|group| FailureGroup {
            write: group.write,
            message: group.sentence.into(),
            more: group.nodes.len() > NAMED,
            nodes: group.nodes.into_iter().take(NAMED).cloned().collect(),
        });
        Some(Self {
            revision,
            since: same.map_or(first, |before| before.since),
            writes: writes.collect(),
        })
    }

    /// Returns true if one of the writes was rejected with this message.
    pub fn says(&self, sentence: &str) -> bool {
        self.writes.iter().any(|group| *group.message == *sentence)
    }
}

#[cfg(test)]
mod tests;
