//! One DaemonSet as it is judged now: the answer of `decide`, and what the controller said about it last.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::code::Code;
use super::pulse::Heard;
use super::told::{blocked_since, incomplete_since};
use super::view::View;
use crate::core::names::{
    INVALID_SETTINGS, PAUSED_CONDITION, PROGRESSING, ROLLOUT_COMPLETE, STALLED,
};
use crate::core::said::{About, BLOCKED, Said};
use crate::core::{
    Action, Behind, Disruption, Fleet, Guarded, Invalid, Leaving, Mode, Node, NodeName, Note,
    Offline, Pause, PauseStand, Phase, Plan, PodRevision, Progress, Reading, Revert, Revision,
    RevisionState, Stall, Strategy, Verdict, decide,
};
use crate::index::{Index, SetKey, told_revision, was_complete};
use crate::k8s::Condition;

/// A leader may have written that long after it renewed its Lease for the last time.
const HANDING_OVER: SignedDuration = SignedDuration::from_secs(30);

/// A DaemonSet as it is judged now.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    /// Its name.
    pub(super) key: SetKey,
    /// Its settings; what is assumed where they cannot be used.
    pub(super) strategy: Strategy,
    /// What cannot be used.
    pub(super) invalid: Option<Invalid>,
    /// What the owner should know about the settings.
    pub(super) notes: Vec<Note>,
    /// What is true.
    pub(super) fleet: Fleet,
    /// What `decide` makes of it.
    pub(super) plan: Plan,
    /// The conditions of the controller.
    pub(super) conditions: Vec<Condition>,
    /// What the Lease of the controller tells, where somebody asked.
    pub(super) heard: Heard,
    /// What may not be read, as a sentence.
    pub(super) unread: Option<String>,
    /// When it was first looked at: whatever is dated so may be older.
    pub(super) first_look: Timestamp,
    /// The present.
    pub(super) now: Timestamp,
}

/// The state of a rollout for a person: the same words as in the conditions of the DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Complete, with that many offline nodes left.
    Complete(usize),
    /// Moving.
    Progressing,
    /// OTA: waiting for owners.
    AwaitingOwners,
    /// Waiting for the native controller.
    Behind(Behind),
    /// Stopped by itself.
    Stalled(Stall),
    /// Paused, until then if a time is set.
    Paused(Option<Timestamp>),
    /// The settings cannot be used.
    Invalid,
}

impl Picture {
    /// Judges a managed DaemonSet of the view; `None` when it is not one.
    pub(super) fn take(view: &mut View, key: &SetKey, now: Timestamp) -> Option<Self> {
        let first_look = view.loaded;
        view.weigh(key, now);
        let mut picture = Self::of(&mut view.index, key, first_look, now)?;
        picture.unread = view.unread(key);
        Some(picture)
    }

    /// The same of an index that was filled since `first_look`.
    pub(super) fn of(
        index: &mut Index,
        key: &SetKey,
        first_look: Timestamp,
        now: Timestamp,
    ) -> Option<Self> {
        let (strategy, invalid, notes) = match index.reading(key)? {
            Reading::NotOurs => return None,
            Reading::Invalid(invalid) => (untouched(), Some(invalid.clone()), Vec::new()),
            Reading::Strategy { strategy, notes } => (strategy.clone(), None, notes.clone()),
        };
        let fleet = Arc::unwrap_or_clone(index.fleet(key, now)?);
        let conditions = index.set(key)?.conditions.clone();
        let mut plan = decide(&strategy, &fleet, now);
        let on_revision = strategy.notes_on(&fleet.revision);
        let notes = notes.into_iter().chain(on_revision);
        let notes: Vec<Note> = notes.chain(plan.notes_on_nodes(&fleet)).collect();
        if invalid.is_some() {
            for (node, verdict) in fleet.nodes.iter().zip(&mut plan.verdicts) {
                // Who is away does not follow on its return either.
                let is_kept = match verdict {
                    Verdict::Paused { .. } => true,
                    Verdict::Offline(Offline::NotReady { .. } | Offline::Settling { .. }) => {
                        node.outdated().is_some()
                    }
                    _ => false,
                };
                if is_kept {
                    *verdict = Verdict::Invalid;
                }
            }
            plan.counts.by_word = by_word(&plan.verdicts);
        }
        Some(Self {
            key: key.clone(),
            strategy,
            invalid: invalid.or_else(|| plan.invalid.clone()),
            notes,
            fleet,
            plan,
            conditions,
            heard: Heard::default(),
            unread: None,
            first_look,
            now,
        })
    }

    /// Takes in what the Lease tells. A controller that runs without an election lets an old one lie; the conditions that it
    /// writes show that it is at work.
    pub(super) fn hear(&mut self, heard: Heard) {
        let wrote = |since: Timestamp| {
            let mut told = self.conditions.iter();
            told.any(|condition| {
                let at = condition.last_transition.as_ref().map(|time| time.0);
                at.is_some_and(|at| at.duration_since(since) > HANDING_OVER)
            })
        };
        self.heard = match heard.silent_since().is_some_and(wrote) {
            true => Heard::Lately,
            false => heard,
        };
    }

    /// The revision that nodes should run; `None` while it is not known.
    pub(super) fn revision(&self) -> Option<&Revision> {
        match &self.fleet.revision {
            RevisionState::Current(revision) => Some(revision),
            RevisionState::Behind(_) => None,
        }
    }

    /// How the rollout stands.
    pub(super) fn state(&self) -> State {
        if self.invalid.is_some() {
            return State::Invalid;
        }
        match self.phase() {
            Phase::Complete { offline, .. } => State::Complete(offline),
            // What may not be read is not guessed: then the controller's word counts.
            Phase::Progressing if self.unread.is_some() && self.told_blocked().is_some() => {
                State::Stalled(Stall::BlockedByPdb)
            }
            Phase::Progressing => State::Progressing,
            Phase::Behind(behind) => State::Behind(behind),
            Phase::Stalled(stall) => State::Stalled(stall),
            Phase::Paused { until } => State::Paused(until),
            Phase::AwaitingOwners => State::AwaitingOwners,
            Phase::Invalid => State::Invalid,
        }
    }

    /// The phase, as the controller sees it.
    fn phase(&self) -> Phase {
        let was_complete = was_complete(&self.conditions, &self.fleet.revision);
        self.plan.standing(was_complete)
    }

    /// What is said of the rollout, the revision aside: the words of the conditions.
    pub(super) fn said(&self) -> Said {
        let told = self.told_blocked().filter(|_| self.unread.is_some());
        if let Some(told) = told {
            return Said {
                reason: BLOCKED,
                sentence: told.to_owned(),
            };
        }
        let about = About {
            set: &self.key,
            fleet: &self.fleet,
            plan: &self.plan,
            hook: self.strategy.pre_delete.as_deref(),
        };
        about.said(self.phase())
    }

    /// What the controller says of disruption budgets that let no pod of the present revision go, if it says so.
    fn told_blocked(&self) -> Option<&str> {
        blocked_since(&self.conditions)?;
        let about = format!("revision {}: ", self.revision()?);
        self.condition(STALLED)?.message.strip_prefix(&about)
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }

    /// Its exit code. `strict`: offline nodes that are left count as progress to be made.
    pub(super) fn code(&self, strict: bool) -> Code {
        let state = self.state();
        let by_controller = matches!(state, State::Progressing | State::Complete(_));
        match state.code(strict) {
            Code::Progressing if by_controller && self.heard.silent_since().is_some() => {
                Code::Silent
            }
            code => code,
        }
    }

    /// Whether waiting is in vain: nothing changes before a person acts.
    pub(super) fn needs_a_person(&self, strict: bool) -> bool {
        self.state().needs_a_person() || self.code(strict) == Code::Silent
    }

    /// Since when the rollout is in its state, as far as the controller told.
    pub(super) fn state_since(&self) -> Option<Timestamp> {
        let kind = match self.state() {
            State::Complete(_) => ROLLOUT_COMPLETE,
            State::Progressing => PROGRESSING,
            State::Behind(_) => return self.behind_since(),
            State::Stalled(_) => STALLED,
            State::Paused(_) => PAUSED_CONDITION,
            State::Invalid => INVALID_SETTINGS,
            // It has no condition of its own: it holds since the last of the others ended.
            State::AwaitingOwners => return self.others_since(),
        };
        // What was said of another revision tells nothing of this one.
        let is_about = |revision: &Revision| self.told_revision() == Some(revision.as_str());
        if !self.revision().is_some_and(is_about) && kind == ROLLOUT_COMPLETE {
            return None;
        }
        let condition = self.condition(kind)?;
        let holds = condition.status == "True";
        let since = holds.then_some(condition.last_transition.as_ref()?.0)?;
        match [PROGRESSING, STALLED].contains(&kind) {
            true => Some(self.of_revision(since)),
            false => Some(since),
        }
    }

    /// Conditions last from one revision to the next; nothing has been so of the present one for longer than it is there.
    fn of_revision(&self, since: Timestamp) -> Timestamp {
        let adopted = self.fleet.adopted;
        adopted.map_or(since, |adopted| adopted.min(self.now).max(since))
    }

    /// When the last of its conditions ended, or the rollout stopped being complete.
    fn others_since(&self) -> Option<Timestamp> {
        self.incomplete_since()?;
        let states = [
            ROLLOUT_COMPLETE,
            PROGRESSING,
            STALLED,
            PAUSED_CONDITION,
            INVALID_SETTINGS,
        ];
        let told = states.iter().filter_map(|kind| self.condition(kind));
        let ended = told.filter(|condition| condition.status == "False");
        let times = ended.filter_map(|condition| condition.last_transition.as_ref());
        let ended = times.map(|time| time.0).max()?;
        Some(self.of_revision(ended))
    }

    /// Since when it waits for the native controller, as far as the controller told.
    fn behind_since(&self) -> Option<Timestamp> {
        self.fleet
            .behind_since
            .filter(|since| *since < self.first_look)
    }

    /// Since when the rollout is not complete, as far as the controller told.
    pub(super) fn incomplete_since(&self) -> Option<Timestamp> {
        incomplete_since(&self.conditions).map(|since| self.of_revision(since))
    }

    /// Nodes with an available pod that this plan would replace: the controller's next step, not yet taken.
    pub(super) fn next(&self) -> usize {
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let next = nodes.filter(|(node, verdict)| {
            let begins = match verdict {
                Verdict::InProgress(Progress::Replacing) => true,
                Verdict::InProgress(Progress::Reverting { .. }) => has_current(node),
                Verdict::HookPending { .. } => !is_preparing(node),
                _ => false,
            };
            begins && self.is_served(node)
        });
        next.count()
    }

    /// Whether the guard stopped the present revision.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.plan.guarded, Some(Guarded::Stopped(_)))
    }

    /// Whether nothing may be replaced now.
    pub(super) fn is_paused(&self) -> bool {
        crate::core::is_paused(&self.strategy, self.now)
    }

    /// The pause that holds, if one does.
    pub(super) fn pause(&self) -> Option<&PauseStand> {
        // What cannot be used is assumed to be paused, and is not.
        self.plan.pause.as_ref().filter(|_| self.invalid.is_none())
    }

    /// Whether nodes lack an available pod and that may be over in a moment: complete or not, whoever waits waits for them.
    pub(super) fn is_recovering(&self) -> bool {
        self.unavailable() > 0 && !matches!(self.plan.phase, Phase::Stalled(_))
    }

    /// What there is to say of `max-unavailable` (`down`), of `max-surge` (`beside`), or of both: of what allows something.
    pub(super) fn limits(&self, down: String, beside: String) -> String {
        match (self.plan.counts.surge_allowed, self.plan.counts.allowed) {
            (0, _) => down,
            (_, 0) => beside,
            _ => format!("{down}, {beside}"),
        }
    }

    /// Nodes that fail by the revision, without a second pod: they take a slot of either kind.
    pub(super) fn failing_alone(&self) -> usize {
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let failing = nodes.filter(|(node, verdict)| {
            let fails =
                matches!(verdict, Verdict::FailedByRevision { cause, .. } if cause.holds_slot());
            fails && node.pods.iter().all(|pod| !pod.surge)
        });
        failing.count()
    }

    /// Nodes that this plan would give a second pod: the controller's next step, not yet taken.
    pub(super) fn next_surging(&self) -> usize {
        let made = self.plan.actions.iter().filter_map(|action| match action {
            Action::Surge { node, .. } => Some(node),
            _ => None,
        });
        let made: BTreeSet<&NodeName> = made.collect();
        // Who was refused one, and is asked for again, is not counted in the first place.
        let begins = Verdict::InProgress(Progress::SurgeStarting);
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let begun =
            nodes.filter(|(node, verdict)| **verdict == begins && made.contains(&node.name));
        begun.count()
    }

    /// Nodes that have a second pod now.
    pub(super) fn surging(&self) -> usize {
        self.plan.counts.surging.saturating_sub(self.next_surging())
    }

    /// Slots of `max-surge` that are taken now. Nodes that fail with their only pod keep one, as far as there are any.
    pub(super) fn surge_taken(&self) -> usize {
        let surging = self.surging();
        let allowed = self.plan.counts.surge_allowed;
        surging.max(allowed.min(surging + self.failing_alone()))
    }

    /// Whether a disruption budget refused the controller the last time, and it has not asked again yet: it does within
    /// [`BACK_OFF`](crate::core::fleet::evictions::BACK_OFF), whatever the budget allows now.
    pub(super) fn asks_again(&self) -> bool {
        let told = self.condition(ROLLOUT_COMPLETE);
        let revision = self.revision().map(Revision::as_str);
        self.strategy.disruption == Disruption::Evict
            && told.is_some_and(|told| told.reason == BLOCKED && told_revision(told) == revision)
    }

    /// Slots of the budget that are taken now.
    pub(super) fn unavailable(&self) -> usize {
        self.plan.counts.unavailable.saturating_sub(self.next())
    }

    fn is_served(&self, node: &Node) -> bool {
        node.pods.iter().any(|pod| {
            let young = SignedDuration::try_from(self.strategy.min_ready).unwrap_or_default();
            let available = |since: Timestamp| since.checked_add(young).ok() <= Some(self.now);
            !pod.terminating && pod.ready_since.is_some_and(available)
        })
    }

    /// The revision that the conditions are about, as far as a controller told.
    pub(super) fn told_revision(&self) -> Option<&str> {
        told_revision(self.condition(ROLLOUT_COMPLETE)?)
    }

    /// Whether any controller ever reported on this DaemonSet.
    pub(super) fn is_reported(&self) -> bool {
        !self.conditions.is_empty()
    }
}

impl State {
    /// Its word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Complete(_) => "Complete",
            Self::Progressing => "Progressing",
            Self::AwaitingOwners => "AwaitingOwners",
            Self::Behind(_) => "NativeControllerBehind",
            Self::Stalled(_) => "Stalled",
            Self::Paused(_) => "Paused",
            Self::Invalid => "Invalid",
        }
    }

    /// Its exit code. `strict`: offline nodes that are left count as progress to be made.
    pub(super) fn code(self, strict: bool) -> Code {
        match self {
            Self::Complete(offline) if strict && offline > 0 => Code::Progressing,
            Self::Complete(_) => Code::Complete,
            Self::Progressing | Self::AwaitingOwners | Self::Behind(_) => Code::Progressing,
            Self::Stalled(_) => Code::Stalled,
            Self::Paused(_) => Code::Paused,
            Self::Invalid => Code::Invalid,
        }
    }

    /// Whether waiting is in vain: nothing changes before a person acts.
    pub(super) fn needs_a_person(self) -> bool {
        matches!(self, Self::Stalled(_) | Self::Paused(None) | Self::Invalid)
    }
}

/// Whether its pod is of the current revision.
fn has_current(node: &Node) -> bool {
    let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
    alive.any(|pod| pod.revision == PodRevision::Current)
}

/// Whether its pod waits for its hook already.
fn is_preparing(node: &Node) -> bool {
    node.pods.iter().any(|pod| pod.exit.preparing.is_some())
}

/// What is done with settings that cannot be used: nothing.
fn untouched() -> Strategy {
    Strategy {
        pause: Some(Pause::Indefinite),
        ..Strategy::of(Mode::AdvancedRollingUpdate)
    }
}

fn by_word(verdicts: &[Verdict]) -> [usize; Verdict::WORDS.len()] {
    let mut counts = [0; Verdict::WORDS.len()];
    for verdict in verdicts {
        counts[verdict.index()] += 1;
    }
    counts
}

/// Since when a verdict holds, as far as that can be told.
pub(super) fn verdict_since(
    node: &Node,
    verdict: &Verdict,
    first_look: Timestamp,
) -> Option<Timestamp> {
    let newest = node.pods.iter().max_by_key(|pod| pod.created);
    match *verdict {
        Verdict::Done => newest?.ready_since,
        Verdict::InProgress(Progress::Missing { since }) => {
            since.filter(|since| *since != first_look)
        }
        Verdict::InProgress(
            Progress::UpdatingInPlace { since } | Progress::Reverting { since },
        ) => Some(since),
        Verdict::Revert(Revert::Done) => Some(newest?.revised()),
        Verdict::InProgress(
            Progress::Terminating | Progress::OldTerminating | Progress::SurgeLeaving,
        ) => {
            let leaving = node.pods.iter().filter_map(|pod| pod.leaving.as_deref());
            leaving.map(Leaving::asked_at).max()
        }
        Verdict::InProgress(Progress::Starting | Progress::Surplus | Progress::SurgeStarting) => {
            Some(newest?.revised())
        }
        Verdict::InProgress(
            Progress::Young { .. } | Progress::SurgeYoung { .. } | Progress::SurgeTakingOver,
        ) => newest?.ready_since,
        Verdict::Offline(
            Offline::NotReady { since }
            | Offline::Terminating { since }
            | Offline::Updated { since },
        ) => since,
        Verdict::FailedByRevision { since, .. } => Some(since),
        Verdict::HookPending { since, .. } => since,
        Verdict::BlockedByPdb { since, .. } | Verdict::Refused { since } => Some(since),
        _ => None,
    }
}
