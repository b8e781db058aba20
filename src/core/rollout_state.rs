//! The memory of a rollout: one versioned value, written as JSON into the condition `RolloutState` of the DaemonSet.
//!
//! It holds all that a restarted controller cannot find out from nodes, pods and revisions. It stands in the status, because
//! the right to write a status grants nothing else, and because one request writes it together with the conditions for people.
//!
//! # Versions
//! A field that a later release adds is kept as it is ([`RolloutState::unknown`]). A field whose meaning changes needs a new
//! [`VERSION`]. A state of a newer version is read as far as it is understood, and never overwritten.
//!
//! # Size
//! The JSON has at most [`LIMIT`] bytes, however many nodes there are. [`RolloutState::to_json`] cuts lists of names; what is cut
//! makes the rollout more careful, never less.

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

/// Groups of refused writes that are kept, and nodes that are named in each.
const GROUPS: usize = 20;
const NAMED: usize = 50;

/// Longest JSON, in bytes.
pub const LIMIT: usize = 16 * 1024;

/// What a restarted controller has to know of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutState {
    /// [`VERSION`] of the program that wrote it.
    #[serde(deserialize_with = "value")]
    pub version: u32,
    /// What the conditions for people say.
    #[serde(deserialize_with = "value")]
    pub reported: Reported,
    /// What the guard remembers of a revision.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub guard: Option<FailureRecord>,
    /// The pause that holds.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub pause: Option<ReportedPause>,
    /// Writes that the API server refuses.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub refused: Option<ReportedFailures>,
    /// Why pods, or the ControllerRevision, cannot be created.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub not_created: Option<Arc<str>>,
    /// Why pods do not become available.
    #[serde(deserialize_with = "value", skip_serializing_if = "BTreeMap::is_empty")]
    pub not_ready: BTreeMap<PodName, Arc<str>>,
    /// Nodes on which one pod after another ends, by cause.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<FailingPods>,
    /// The setting that cannot be used, as its Event named it.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub invalid: Option<Arc<str>>,
    /// Fields that a later release wrote.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// What the conditions for people say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reported {
    /// The revision that they are about; while the current one is not known, the one before.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// The rollout of it is complete.
    #[serde(deserialize_with = "value")]
    pub complete: bool,
    /// Reason of `RolloutComplete`, from a closed list; empty before the first report.
    #[serde(deserialize_with = "value")]
    pub reason: Arc<str>,
    /// What an Event of that reason was about, where one reason has several: the wave that is awaited.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub subject: Option<Arc<str>>,
    /// When the rollout stalled, if it did. Another reason does not change that.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub stalled_since: Option<Timestamp>,
    /// Since when the current revision is not known, if that was reported.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub behind_since: Option<Timestamp>,
    /// Number of the revision that a stalled rollout advises to go back to, where that is not the one before.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub advised: Option<i64>,
    /// How far a stopped revision is taken back in place, as the last Event said.
    #[serde(deserialize_with = "value", skip_serializing_if = "Option::is_none")]
    pub reversal: Option<Arc<str>>,
}

/// A pause that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedPause {
    /// When it began, and when it was reported last.
    #[serde(flatten)]
    pub record: PauseRecord,
    /// Nodes that got the current revision meanwhile, the first of them.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub newcomers: Vec<NodeName>,
    /// Further nodes got it.
    #[serde(
        default,
        deserialize_with = "value",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub more: bool,
}

/// Writes that the API server refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedFailures {
    /// The revision that they are for.
    #[serde(
        default,
        deserialize_with = "value",
        skip_serializing_if = "Option::is_none"
    )]
    pub revision: Option<Revision>,
    /// Time of the first refusal that still holds.
    pub since: Timestamp,
    /// By what was asked for and what the API server said.
    #[serde(
        default,
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub writes: Vec<FailureGroup>,
}

/// A write that is refused on several nodes in the same words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureGroup {
    /// What was asked for.
    pub write: WriteVerb,
    /// What the API server said.
    pub said: Arc<str>,
    /// The first of the nodes, by name.
    #[serde(default, deserialize_with = "list")]
    pub nodes: Vec<NodeName>,
    /// Further nodes are refused it.
    #[serde(
        default,
        deserialize_with = "value",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub more: bool,
}

/// Nodes on which one pod after another ends for the same cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingPods {
    /// One word: the kubelet's reason.
    pub reason: Arc<str>,
    /// What the kubelet said.
    #[serde(default, deserialize_with = "value")]
    pub said: Arc<str>,
    /// The first of the nodes, by name.
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
    /// Reads what was written by [`Self::to_json`], by this release or another one.
    ///
    /// A field that cannot be understood is left out; the others count.
    ///
    /// # Errors
    /// If the text is not a JSON object.
    pub fn read(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }

    /// Returns true if a later release wrote it in a form that this program may misunderstand: then it must not be overwritten.
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

    /// Returns the time since when the rollout is stalled for this reason.
    pub fn stalled_since(&self, reason: &str) -> Option<Timestamp> {
        let since = self.reported.stalled_since?;
        (*self.reported.reason == *reason).then_some(since)
    }

    /// Returns the writes that were refused.
    pub fn refusals(&self) -> Option<WriteFailures> {
        let reported = self.refused.as_ref()?;
        let refused = reported.writes.iter().flat_map(|group| {
            let nodes = group.nodes.iter().cloned();
            nodes.map(|node| (node, group.write, group.said.clone()))
        });
        let revision = reported.revision.clone();
        Some(WriteFailures::remember(revision, refused, reported.since))
    }

    /// Returns `known` refusals with those whose nodes are not named: who is to be replaced although the controller says that
    /// nothing moves but what is refused. `None`: all are named.
    pub fn with_unnamed<'a>(
        &self,
        known: &WriteFailures,
        begun: impl IntoIterator<Item = (&'a NodeName, WriteVerb)>,
    ) -> Option<WriteFailures> {
        let reported = self.refused.as_ref()?;
        let unnamed = reported.writes.iter().filter(|group| group.more);
        let unnamed: BTreeMap<WriteVerb, &Arc<str>> =
            unnamed.map(|group| (group.write, &group.said)).collect();
        let known_ones = known.failures().map(|(node, denial)| {
            let said = denial.sentence.clone();
            (node.clone(), denial.write, said)
        });
        let begun = begun.into_iter().filter_map(|(node, write)| {
            let said = (*unnamed.get(&write)?).clone();
            let is_new = !known.is_refused(node, write);
            is_new.then(|| (node.clone(), write, said))
        });
        let begun: Vec<_> = begun.collect();
        let revision = reported.revision.clone();
        (!begun.is_empty())
            .then(|| WriteFailures::remember(revision, known_ones.chain(begun), reported.since))
    }

    /// Returns the cause for which pods keep ending on `node`.
    pub fn failing_on(&self, node: &NodeName) -> Option<&FailingPods> {
        let mut failing = self.failing.iter();
        failing.find(|failing| failing.nodes.contains(node))
    }
}

impl ReportedPause {
    /// Returns a pause in which no node got the revision.
    pub fn from_record(record: PauseRecord) -> Self {
        Self {
            record,
            newcomers: Vec::new(),
            more: false,
        }
    }
}

impl ReportedFailures {
    /// Takes what is refused; `before` is what was reported last. `None`: nothing is.
    pub fn new(write_failures: &WriteFailures, before: Option<&Self>) -> Option<Self> {
        let first = write_failures
            .failures()
            .map(|(_, denial)| denial.since)
            .min()?;
        let revision = write_failures.revision().cloned();
        let same = before.filter(|before| before.revision == revision);
        let groups = write_failures.groups().into_iter().take(GROUPS);
        let writes = groups.map(|group| FailureGroup {
            write: group.write,
            said: group.sentence.into(),
            more: group.nodes.len() > NAMED,
            nodes: group.nodes.into_iter().take(NAMED).cloned().collect(),
        });
        Some(Self {
            revision,
            since: same.map_or(first, |before| before.since),
            writes: writes.collect(),
        })
    }

    /// Returns true if one of the writes was refused in these words.
    pub fn says(&self, sentence: &str) -> bool {
        self.writes.iter().any(|group| *group.said == *sentence)
    }
}

#[cfg(test)]
mod tests;
