//! Writes that the API server refuses for a pod or a node: an admission policy, a webhook, a quota, a missing right.
//!
//! Only an answer tells, so whoever writes notes down the answers in [`WriteFailures`], and a plan goes by them: who was refused
//! is tried again after a pause that grows from one to the other end of [`BACK_OFF`], holds no slot until then, and holds up
//! nobody else. When one of several that were refused in the same words succeeds, all of them are forgotten.
//!
//! ```text
//!           ┌────────────── refused ◄─────────────┐
//!           ▼                                     │
//! refused: left out ──pause is over──► tried again ──accepted──► forgotten, and its equals
//! ```
//!
//! What is remembered is about one revision, and goes with it, with the pod, and with the node. It is a part of the
//! [`RolloutState`](crate::core::RolloutState), so a restart forgets nothing of it, and `ctl` reads it there.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Node, Readiness, Targeting, by_name};
use crate::core::action::Action;
use crate::core::id::{NodeName, PodRevision, PodUid, Revision};
use crate::core::instant::later;
use crate::core::kind::SetKind;
use crate::core::names::{ADVANCED_RBAC, BASE_RBAC, IN_PLACE_RBAC, LIFECYCLE_RBAC, MAX_SURGE_RBAC};

pub(in crate::core) use plan::RetryGate;

/// The shortest and the longest pause after a refusal; it doubles from one to the other.
pub const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// So many writes may be refused within [`SECOND`] before everything that begins has to wait for the rest of it: a policy
/// against a whole fleet is found out node by node, and costs the API server little.
pub(in crate::core) const PER_SECOND: usize = 10;
pub(in crate::core) const SECOND: Duration = Duration::from_secs(1);

/// Conflicts (or errors inside the API server) in a row that are no coincidence: the view of a pod is seldom old twice.
const CONFLICTS: u32 = 5;

/// Number of conflicts after which a pod is replaced by its UID alone: its status changes faster than it can be read.
const CONTENDED: u32 = 3;

/// Different sentences that are told apart; those who refuse have a few.
const SENTENCES: usize = 16;

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteVerb {
    /// The deletion of a pod.
    Delete,
    /// Its eviction, and not by a disruption budget.
    Evict,
    /// Its update in place.
    UpdateInPlace,
    /// Its way back in place from a revision that failed (`on-failure: RevertInPlace`).
    Revert,
    /// The mark that it waits for its hook.
    Mark,
    /// To make the DaemonSet the controller of it (`max-surge`).
    TransferOwnership,
    /// The creation of a pod (`max-surge`).
    Create,
    /// A mark that is taken away.
    Unmark,
    /// What is said in its status.
    Tell,
}

/// Writes that hold up one another on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) enum WriteGroup {
    /// A step of the replacement of a pod that is there.
    Step,
    /// The pod beside it.
    Create,
    /// Everything else.
    Tell,
}

impl WriteVerb {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Delete,
        Self::Evict,
        Self::UpdateInPlace,
        Self::Revert,
        Self::Mark,
        Self::TransferOwnership,
        Self::Create,
        Self::Unmark,
        Self::Tell,
    ];

    /// What an action asks for.
    pub fn from_action(action: &Action) -> Self {
        match action {
            Action::Delete(_) | Action::DeleteAfterSurge { evict: false, .. } => Self::Delete,
            Action::Evict(_) | Action::DeleteAfterSurge { evict: true, .. } => Self::Evict,
            Action::UpdateInPlace { patch, .. } if patch.reverts.is_some() => Self::Revert,
            Action::UpdateInPlace { .. } => Self::UpdateInPlace,
            Action::Mark {
                preparing: Some(true),
                ..
            } => Self::Mark,
            Action::Mark {
                preparing: Some(false),
                ..
            } => Self::Unmark,
            Action::TransferOwnership(_) => Self::TransferOwnership,
            Action::Surge { .. } => Self::Create,
            Action::Mark { .. }
            | Action::SetNeedUpgrade { .. }
            | Action::AskForImages { .. }
            | Action::RemoveConditions { .. } => Self::Tell,
        }
    }

    /// What is refused, as it follows "refuses to".
    pub fn words(self) -> &'static str {
        match self {
            Self::Delete => "delete pods",
            Self::Evict => "evict pods",
            Self::UpdateInPlace => "update pods in place",
            Self::Revert => "roll pods back in place",
            Self::Mark => "mark pods PreparingDelete",
            Self::TransferOwnership => "hand pods over to the DaemonSet",
            Self::Create => "create pods",
            Self::Unmark => "take marks off pods",
            Self::Tell => "patch the conditions of pods",
        }
    }

    /// Manifests that grant the controller this write to pods of a DaemonSet of this kind.
    pub fn granted_by(self, kind: SetKind) -> &'static str {
        match (self, kind) {
            (Self::Delete | Self::Evict | Self::Tell, _) => BASE_RBAC,
            (_, SetKind::Advanced) => ADVANCED_RBAC,
            (Self::UpdateInPlace | Self::Revert, SetKind::Native) => IN_PLACE_RBAC,
            (Self::Mark | Self::Unmark, SetKind::Native) => LIFECYCLE_RBAC,
            (Self::Create | Self::TransferOwnership, SetKind::Native) => MAX_SURGE_RBAC,
        }
    }

    pub(in crate::core) fn part(self) -> WriteGroup {
        match self {
            Self::Delete
            | Self::Evict
            | Self::UpdateInPlace
            | Self::Revert
            | Self::Mark
            | Self::TransferOwnership => WriteGroup::Step,
            Self::Create => WriteGroup::Create,
            Self::Unmark | Self::Tell => WriteGroup::Tell,
        }
    }
}

/// Which writes were refused, for one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteFailures {
    revision: Option<Revision>,
    by_place: BTreeMap<FailureKey, WriteFailure>,
    /// Conflicts, and the like, in a row.
    conflicts: BTreeMap<FailureKey, u32>,
    /// Number of conflicts by pod: how often it had changed between the look and the write.
    contended: BTreeMap<PodUid, u32>,
    /// Pods that the API server does not let be updated in place: they are made anew.
    unfit: BTreeSet<PodUid>,
    /// The different sentences.
    sentences: BTreeSet<Arc<str>>,
}

/// Whom a refusal holds up.
pub(in crate::core) type FailureKey = (NodeName, WriteGroup);

/// How a write was refused last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// What was asked for.
    pub write: WriteVerb,
    /// Since when it is refused.
    pub since: Timestamp,
    /// What the API server said about it.
    pub sentence: Arc<str>,
    /// The pod; `None` for one that is to be made, and where that is not known any more.
    pod: Option<PodUid>,
    asked: Timestamp,
    times: u32,
}

impl WriteFailure {
    /// Whether the node has come back since it was asked.
    fn is_before(&self, readiness: Readiness) -> bool {
        let asked = self.asked.max(self.since);
        matches!(readiness, Readiness::Ready { since } if since > asked)
    }

    /// From when on it may be tried again: whole seconds, so that many of them are one look.
    fn due(&self) -> Timestamp {
        if self.asked == Timestamp::MIN {
            return self.asked;
        }
        let pause = BACK_OFF.0 * (1 << self.times.saturating_sub(1).min(10));
        let due = later(self.asked, pause.min(BACK_OFF.1));
        let whole = i64::from(due.subsec_nanosecond() > 0);
        Timestamp::from_second(due.as_second() + whole).unwrap_or(due)
    }
}

impl WriteFailures {
    /// Takes in that `write` was refused on `node`, for `pod` if it is there, in these words.
    pub fn refuse(
        &mut self,
        (node, pod): (&NodeName, Option<&PodUid>),
        write: WriteVerb,
        sentence: &str,
        now: Timestamp,
    ) {
        let sentence = self.steady(sentence);
        let place = (node.clone(), write.part());
        // Of several pods on a node each may be the one: as long as one of them is there it is the same refusal.
        let known = self.by_place.get(&place);
        let failure = WriteFailure {
            write,
            since: known.map_or(now, |known| known.since),
            sentence,
            pod: pod.cloned(),
            asked: now,
            times: known.map_or(1, |known| known.times + u32::from(known.asked < now)),
        };
        self.by_place.insert(place, failure);
    }

    /// Takes in what a condition remembers of `revision`: since then, and nobody is known to have been asked again.
    pub(in crate::core) fn remember(
        revision: Option<Revision>,
        refused: impl IntoIterator<Item = (NodeName, WriteVerb, Arc<str>)>,
        since: Timestamp,
    ) -> Self {
        let mut write_failures = Self {
            revision,
            ..Self::default()
        };
        for (node, write, sentence) in refused {
            let failure = WriteFailure {
                write,
                since,
                sentence: sentence.clone(),
                pod: None,
                asked: Timestamp::MIN,
                times: 0,
            };
            write_failures
                .by_place
                .insert((node, write.part()), failure);
            write_failures.sentences.insert(sentence);
        }
        write_failures
    }

    /// The revision that it is about.
    pub(in crate::core) fn revision(&self) -> Option<&Revision> {
        self.revision.as_ref()
    }

    /// Who is refused what, by the names of nodes.
    pub(in crate::core) fn failures(&self) -> impl Iterator<Item = (&NodeName, &WriteFailure)> {
        self.by_place
            .iter()
            .map(|((node, _), failure)| (node, failure))
    }

    /// Takes in that `write` met a pod that is not as it was judged, or an error inside the API server. That happens; when it
    /// happens all the time, or to others, it is a refusal as any other.
    pub fn meet(
        &mut self,
        (node, pod): (&NodeName, Option<&PodUid>),
        write: WriteVerb,
        sentence: &str,
        now: Timestamp,
    ) {
        let place = (node.clone(), write.part());
        let met = self.conflicts.entry(place).or_default();
        *met += 1;
        let met = *met;
        let is_known =
            |failure: &WriteFailure| failure.write == write && *failure.sentence == *sentence;
        if met >= CONFLICTS || self.by_place.values().any(is_known) {
            self.refuse((node, pod), write, sentence, now);
            if let Some(failure) = self.by_place.get_mut(&(node.clone(), write.part())) {
                failure.times = failure.times.max(CONFLICTS);
            }
        }
    }

    /// Takes in that the pod had changed since it was looked at. That is a coincidence until the pod is contended; after that, and
    /// where no pod is known, it counts like an error inside the API server.
    pub fn conflict(
        &mut self,
        place: (&NodeName, Option<&PodUid>),
        write: WriteVerb,
        sentence: &str,
        now: Timestamp,
    ) {
        match place.1.filter(|pod| !self.is_contended(pod)) {
            Some(pod) => *self.contended.entry(pod.clone()).or_default() += 1,
            None => self.meet(place, write, sentence, now),
        }
    }

    /// Returns true for a pod that changes too often for writes that rest on its version.
    pub fn is_contended(&self, pod: &PodUid) -> bool {
        let met = self.contended.get(pod);
        met.is_some_and(|met| *met >= CONTENDED)
    }

    /// Takes in what was refused to others of the same fleet.
    pub fn join(&mut self, others: Self) {
        self.revision = self.revision.take().or(others.revision);
        self.by_place.extend(others.by_place);
    }

    /// Takes in that `write` was carried out on `node`. Who was refused in the same words is so no longer, as far as anybody
    /// knows, and is tried as if for the first time.
    pub fn accept(&mut self, node: &NodeName, write: WriteVerb) {
        if self.is_empty() {
            return;
        }
        let place = (node.clone(), write.part());
        self.conflicts.remove(&place);
        let Some(ended) = self.by_place.remove(&place) else {
            return;
        };
        let is_equal = |failure: &WriteFailure| {
            failure.write == ended.write && failure.sentence == ended.sentence
        };
        self.by_place.retain(|_, failure| !is_equal(failure));
    }

    /// Takes in that this pod cannot be updated in place.
    pub fn note_unfit(&mut self, pod: Option<PodUid>) {
        self.unfit.extend(pod);
    }

    /// Whether the API server did not let this pod be updated in place.
    pub fn is_unfit(&self, pod: &PodUid) -> bool {
        self.unfit.contains(pod)
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.by_place.is_empty()
            && self.conflicts.is_empty()
            && self.contended.is_empty()
            && self.unfit.is_empty()
    }

    /// Whether nobody is refused.
    pub fn has_no_failures(&self) -> bool {
        self.by_place.is_empty()
    }

    /// Whether such a write is refused on this node.
    pub fn is_refused(&self, node: &NodeName, write: WriteVerb) -> bool {
        self.at(node, write.part()).is_some()
    }

    /// What was refused on this node, the gravest first.
    pub fn on(&self, node: &NodeName) -> impl Iterator<Item = &WriteFailure> {
        let parts = [WriteGroup::Step, WriteGroup::Create, WriteGroup::Tell];
        let parts = parts.into_iter().filter(|_| !self.by_place.is_empty());
        parts.filter_map(|part| self.at(node, part))
    }

    fn at(&self, node: &NodeName, part: WriteGroup) -> Option<&WriteFailure> {
        if self.by_place.is_empty() {
            None
        } else {
            self.by_place.get(&(node.clone(), part))
        }
    }

    /// Forgets what is about another revision than this one: that is tried anew.
    pub fn keep_to(&mut self, revision: &Revision) {
        if self.revision.as_ref() != Some(revision) {
            *self = Self {
                revision: Some(revision.clone()),
                ..Self::default()
            };
        }
    }

    /// Forgets what is about pods and nodes that are not there any more, or about nodes that were offline since they were asked
    /// last: the answer may be another one by now. `nodes` as in a fleet.
    pub fn tidy(&mut self, nodes: &[Node]) {
        if self.is_empty() {
            return;
        }
        self.conflicts
            .retain(|(name, _), _| by_name(nodes, name).is_some());
        self.by_place.retain(|(name, _), failure| {
            let node = by_name(nodes, name).filter(|node| !failure.is_before(node.readiness));
            let belongs = node.is_some_and(|node| node.native != Targeting::No);
            let mut pods = node.into_iter().flat_map(|node| &node.pods);
            match &failure.pod {
                Some(uid) => pods.any(|pod| pod.uid == *uid),
                None => match failure.write {
                    WriteVerb::UpdateInPlace
                    | WriteVerb::Revert
                    | WriteVerb::Mark
                    | WriteVerb::Unmark
                    | WriteVerb::Tell => pods.any(|pod| !pod.terminating),
                    // It goes for its revision, or because it ended, or belongs nowhere.
                    _ => pods.any(|pod| {
                        let is_new = pod.revision == PodRevision::Current && !pod.in_place.is_over;
                        pod.surge || !is_new || !belongs
                    }),
                },
            }
        });
        if !(self.unfit.is_empty() && self.contended.is_empty()) {
            let pods: BTreeSet<&PodUid> = nodes
                .iter()
                .flat_map(|node| &node.pods)
                .map(|pod| &pod.uid)
                .collect();
            self.unfit.retain(|uid| pods.contains(uid));
            self.contended.retain(|uid, _| pods.contains(uid));
        }
        if self.by_place.is_empty() {
            self.sentences.clear();
        }
    }

    /// These words, or others of which they only differ by numbers: how much of a quota is used changes all the time.
    fn steady(&mut self, sentence: &str) -> Arc<str> {
        let letters = |text: &str| -> String {
            let letter = |letter: &char| !letter.is_ascii_digit();
            text.chars().filter(letter).collect()
        };
        let meant = letters(sentence);
        let mut known = self.sentences.iter();
        if let Some(known) = known.find(|known| letters(known) == meant) {
            return known.clone();
        }
        let sentence: Arc<str> = sentence.into();
        if self.sentences.len() < SENTENCES {
            self.sentences.insert(sentence.clone());
        }
        sentence
    }
}
