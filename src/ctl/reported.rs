//! State of a rollout for a caller without the right to list nodes: the controller's report, and the pods.
//!
//! The rollout is not evaluated by [`decide`](crate::core::decide), because the result would be wrong without nodes: `decide` would
//! treat them as deleted, and could regard the rollout as complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::code::Code;
use super::liveness::ControllerLiveness;
use super::view::ClusterView;
use crate::core::messages::{NATIVE_BEHIND, behind_words};
use crate::core::names::{
    INVALID_SETTINGS, PAUSED_CONDITION, PROGRESSING, ROLLOUT_COMPLETE, STALLED,
};
use crate::core::{
    FailureRecord, Invalid, NodeName, Note, ParsedSettings, Pause, PauseRecord, Phase, Pod,
    PodRevision, Revision, RevisionState, RolloutState, Stall, Strategy, is_paused,
};
use crate::index::SetKey;
use crate::k8s::Condition;

/// Value for an unknown phase or verdict.
pub(super) const UNKNOWN: &str = "Unknown";

/// Note in each answer that is based on the controller's report.
pub(super) const NODES_UNKNOWN: &str = "node readiness is not known, because you may not list nodes; the phase is \
    the last one that the controller reported (needed: the ClusterRole yurt-ds-viewer with a ClusterRoleBinding)";

/// State of a managed DaemonSet that is known without nodes.
#[derive(Clone, Debug)]
pub(super) struct ReportedRollout {
    pub(super) key: SetKey,
    /// Settings; `None` if they are invalid.
    pub(super) strategy: Option<Strategy>,
    /// Error in the settings; `None` if they are valid.
    pub(super) invalid: Option<Invalid>,
    /// Notes about the settings for the person who maintains the DaemonSet.
    pub(super) notes: Vec<Note>,
    /// Current revision, if it is known.
    pub(super) revision: RevisionState,
    /// Conditions from the controller.
    pub(super) conditions: Vec<Condition>,
    /// State that the controller stores in the DaemonSet's status.
    pub(super) state: Arc<RolloutState>,
    /// Failures with the current revision, as the guard recorded them.
    pub(super) record: Option<FailureRecord>,
    /// Start of the pause, as the controller reported it.
    pub(super) paused: Option<PauseRecord>,
    /// Pods by node.
    pub(super) pods: BTreeMap<NodeName, Vec<Pod>>,
    /// Number of nodes that should run a pod, from the DaemonSet's status.
    pub(super) desired: Option<usize>,
    /// Liveness of the controller according to its Lease, if it was read.
    pub(super) liveness: ControllerLiveness,
    /// True if Kruise's manager creates the DaemonSet's pods, according to its Lease.
    pub(super) is_of_kruise: bool,
    /// Sentence about resources other than nodes that the caller may not read; `None` if there are none.
    pub(super) unread: Option<String>,
    pub(super) now: Timestamp,
}

/// Phase in the controller's report, or `Invalid` if the settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReportedPhase {
    /// Name of the phase; [`UNKNOWN`] if the controller has not reported on the current revision.
    pub(super) word: &'static str,
    code: Code,
    /// Sentence about the phase.
    pub(super) message: String,
    /// Start of the phase; `None` if the controller has not reported it.
    pub(super) since: Option<Timestamp>,
}

/// Numbers of pods of a DaemonSet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PodCounts {
    pub(super) pods: usize,
    /// Number of pods of the current revision.
    pub(super) current: usize,
    /// Number of pods of other revisions.
    pub(super) outdated: usize,
    /// Number of Ready pods.
    pub(super) ready: usize,
}

impl ReportedRollout {
    /// Reads a managed DaemonSet of the view; `None` if it is not managed.
    pub(super) fn take(view: &mut ClusterView, key: &SetKey, now: Timestamp) -> Option<Self> {
        let (strategy, invalid, notes) = match view.index.reading(key).as_deref()? {
            ParsedSettings::NotOurs => return None,
            ParsedSettings::Invalid(invalid, _) => (None, Some(invalid.clone()), Vec::new()),
            ParsedSettings::Strategy { strategy, notes } => {
                (Some(Strategy::clone(strategy)), None, notes.clone())
            }
        };
        // The fleet has no nodes, because the caller may not list them. Use it only for the revisions of pods.
        let revision = view.index.fleet(key, now)?.revision.clone();
        let set = view.index.set(key)?;
        let mut pods: BTreeMap<NodeName, Vec<Pod>> = BTreeMap::new();
        for (node, pod) in set.pods() {
            pods.entry(node.clone()).or_default().push(pod.clone());
        }
        let on_revision = strategy.iter().flat_map(|all| all.notes_on(&revision));
        let is_present = |record: &FailureRecord| matches!(&revision, RevisionState::Current(current) if *current == record.revision);
        Some(Self {
            key: key.clone(),
            notes: notes.into_iter().chain(on_revision).collect(),
            strategy,
            invalid,
            conditions: set.conditions.clone(),
            state: set.state.clone(),
            record: set.reported_record().filter(is_present),
            paused: set.last_pause(),
            pods,
            desired: view.present.get(key).and_then(|listed| listed.desired),
            liveness: ControllerLiveness::default(),
            is_of_kruise: view.is_of_kruise(key),
            unread: view.unread(key),
            revision,
            now,
        })
    }

    /// Records the liveness of the controller according to its Lease.
    pub(super) fn note_liveness(&mut self, liveness: ControllerLiveness) {
        let kind = self.key.kind;
        self.liveness = liveness.with_signs(kind, &self.conditions, self.is_of_kruise);
    }

    /// Returns the current revision; `None` if it is not known yet.
    pub(super) fn revision(&self) -> Option<&Revision> {
        self.revision.current()
    }

    /// Returns the pause in the settings; `None` if there is none or it has ended.
    pub(super) fn pause(&self) -> Option<Pause> {
        let strategy = self.strategy.as_ref();
        strategy.filter(|all| is_paused(all, self.now))?.pause
    }

    /// Returns the phase from the controller's report.
    pub(super) fn phase(&self) -> ReportedPhase {
        if let Some(invalid) = &self.invalid {
            let since = self.holding(INVALID_SETTINGS).and_then(since);
            return ReportedPhase::new(Phase::Invalid.word(), Code::Invalid, invalid, since);
        }
        // Use the controller's condition: without nodes, `ctl` cannot detect a setting that matches no node.
        if let Some(condition) = self.holding(INVALID_SETTINGS) {
            return ReportedPhase::new(
                Phase::Invalid.word(),
                Code::Invalid,
                &condition.message,
                since(condition),
            );
        }
        let revision = match &self.revision {
            RevisionState::Current(revision) => revision,
            RevisionState::Unknown(behind) => {
                let message = behind_words(self.key.kind, *behind);
                return ReportedPhase::new(NATIVE_BEHIND, Code::Progressing, &message, None);
            }
        };
        let Some(condition) = self.condition(ROLLOUT_COMPLETE) else {
            let message = "no controller has reported on it yet";
            return ReportedPhase::new(UNKNOWN, Code::Progressing, &message, None);
        };
        if !self.state.is_about(&self.revision) {
            let message = match &self.state.reported.revision {
                Some(before) => format!(
                    "the controller has not reported on revision {revision} yet; its last report is on revision \
                     {before}"
                ),
                None => format!("the controller has not reported on revision {revision} yet"),
            };
            return ReportedPhase::new(UNKNOWN, Code::Progressing, &message, None);
        }
        let message = &condition.message;
        let holds = |kind: &str| self.holding(kind).and_then(since);
        let (word, code, since) = match condition.reason.as_str() {
            _ if condition.status == "True" => ("Complete", Code::Complete, since(condition)),
            _ if self.holding(STALLED).is_some() => ("Stalled", Code::Stalled, holds(STALLED)),
            "Paused" => ("Paused", Code::Paused, holds(PAUSED_CONDITION)),
            "AwaitingOwners" => (Phase::AwaitingOwners.word(), Code::Progressing, None),
            "AwaitingDeletions" => (Phase::AwaitingDeletions.word(), Code::Progressing, None),
            _ if self.holding(PROGRESSING).is_some() => (
                Phase::Progressing.word(),
                Code::Progressing,
                holds(PROGRESSING),
            ),
            _ => (UNKNOWN, Code::Progressing, None),
        };
        ReportedPhase::new(word, code, &message, since)
    }

    /// Returns the exit code for the rollout. With `strict`, outdated pods make the rollout incomplete, because their nodes may be
    /// offline.
    pub(super) fn code(&self, strict: bool) -> Code {
        match self.phase().code {
            Code::Complete if strict && self.counts().outdated > 0 => Code::Progressing,
            Code::Progressing | Code::Stalled if self.liveness.silent_since().is_some() => {
                Code::Silent
            }
            code => code,
        }
    }

    /// Returns true if waiting is pointless because nothing changes until an operator acts.
    pub(super) fn needs_a_person(&self, strict: bool) -> bool {
        match self.code(strict) {
            Code::Stalled | Code::Invalid | Code::Silent => true,
            Code::Paused => !matches!(self.pause(), None | Some(Pause::Until(_))),
            _ => false,
        }
    }

    /// Returns true if the controller reports that the guard stopped the current revision.
    pub(super) fn is_stopped(&self) -> bool {
        let stalled = self.holding(STALLED);
        stalled.is_some_and(|condition| condition.reason == Stall::FailedByRevision.reason())
    }

    pub(super) fn counts(&self) -> PodCounts {
        let mut counts = PodCounts::default();
        for pod in self.pods.values().flatten() {
            counts.pods += 1;
            counts.current += usize::from(pod.revision == PodRevision::Current);
            counts.outdated += usize::from(pod.revision == PodRevision::Outdated);
            counts.ready += usize::from(pod.ready_since.is_some());
        }
        counts
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        let mut conditions = self.conditions.iter();
        conditions.find(|condition| condition.kind == kind)
    }

    /// Returns the condition of that type if it is `True`.
    fn holding(&self, kind: &str) -> Option<&Condition> {
        self.condition(kind)
            .filter(|condition| condition.status == "True")
    }
}

impl ReportedPhase {
    fn new(
        word: &'static str,
        code: Code,
        message: &impl ToString,
        since: Option<Timestamp>,
    ) -> Self {
        Self {
            word,
            code,
            message: message.to_string(),
            since,
        }
    }
}

fn since(condition: &Condition) -> Option<Timestamp> {
    Some(condition.last_transition.as_ref()?.0)
}
