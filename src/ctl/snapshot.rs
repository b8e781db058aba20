//! One DaemonSet as it is judged now: the answer of `decide`, and what the controller said about it last.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::code::Code;
use super::liveness::ControllerLiveness;
use super::told::{blocked_since, incomplete_since};
use super::view::ClusterView;
use crate::core::messages::rollout::{RolloutView, SetName};
use crate::core::messages::{BLOCKED, RolloutStatus, StatusSentence, message};
use crate::core::names::{
    INVALID_SETTINGS, PAUSED_CONDITION, PROGRESSING, ROLLOUT_COMPLETE, STALLED,
};
use crate::core::{
    Disruption, Fleet, Invalid, Mode, Node, Note, Offline, ParsedSettings, Pause, Phase, Plan,
    Revision, RolloutState, Stall, Strategy, Verdict, WriteFailures, WriteVerb, decide,
};
use crate::index::{Index, SetKey};
use crate::k8s::Condition;

/// A DaemonSet as it is judged now.
#[derive(Clone, Debug)]
pub(super) struct RolloutSnapshot {
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
    /// What the controller remembers.
    pub(super) state: Arc<RolloutState>,
    /// What the Lease of the controller tells, where somebody asked.
    pub(super) liveness: ControllerLiveness,
    /// Whether Kruise's manager makes its pods, and ours leaves it alone.
    pub(super) is_of_kruise: bool,
    /// What may not be read, as a sentence.
    pub(super) unread: Option<String>,
    /// When it was first looked at: whatever is dated so may be older.
    pub(super) first_look: Timestamp,
    /// The present.
    pub(super) now: Timestamp,
}

impl RolloutSnapshot {
    /// Judges a managed DaemonSet of the view; `None` when it is not one.
    pub(super) fn take(view: &mut ClusterView, key: &SetKey, now: Timestamp) -> Option<Self> {
        let first_look = view.loaded;
        view.weigh(key, now);
        let mut snapshot = Self::new(&mut view.index, key, first_look, now)?;
        snapshot.is_of_kruise = view.is_of_kruise(key);
        snapshot.unread = view.unread(key);
        Some(snapshot)
    }

    /// The same of an index that was filled since `first_look`.
    pub(super) fn new(
        index: &mut Index,
        key: &SetKey,
        first_look: Timestamp,
        now: Timestamp,
    ) -> Option<Self> {
        let (strategy, invalid, notes) = match index.reading(key).as_deref()? {
            ParsedSettings::NotOurs => return None,
            ParsedSettings::Invalid(invalid, _) => (untouched(), Some(invalid.clone()), Vec::new()),
            ParsedSettings::Strategy { strategy, notes } => {
                (Strategy::clone(strategy), None, notes.clone())
            }
        };
        let mut fleet = Arc::unwrap_or_clone(index.fleet(key, now)?);
        let set = index.set(key)?;
        let (conditions, state) = (set.conditions.clone(), set.state.clone());
        // Sentences speak of what counts for this revision.
        let strategy = strategy.on(&fleet.revision).into_owned();
        let mut plan = decide(&strategy, &fleet, now);
        while let Some(write_failures) = refused_unnamed(&fleet, &plan, &state) {
            fleet.write_failures = write_failures;
            plan = decide(&strategy, &fleet, now);
        }
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
            state,
            liveness: ControllerLiveness::default(),
            is_of_kruise: false,
            unread: None,
            first_look,
            now,
        })
    }

    /// Takes in what the Lease tells.
    pub(super) fn note_liveness(&mut self, liveness: ControllerLiveness) {
        let kind = self.key.kind;
        self.liveness = liveness.with_signs(kind, &self.conditions, self.is_of_kruise);
    }

    /// The revision that nodes should run; `None` while it is not known.
    pub(super) fn revision(&self) -> Option<&Revision> {
        self.fleet.revision.current()
    }

    fn name(&self) -> SetName<'_> {
        SetName {
            namespace: &self.key.namespace,
            name: &self.key.name,
        }
    }

    /// What sentences are made of.
    pub(super) fn rollout(&self) -> RolloutView<'_> {
        RolloutView {
            key: self.name(),
            strategy: &self.strategy,
            invalid: self.invalid.as_ref(),
            fleet: &self.fleet,
            plan: &self.plan,
            phase: self.phase(),
            phase_since: self.phase_since(),
            incomplete_since: self.incomplete_since(),
            asks_again: self.asks_again(),
            first_look: self.first_look,
            now: self.now,
        }
    }

    /// The phase of the rollout for a person: the controller's, and its word where what may not be read is not guessed.
    pub(super) fn phase(&self) -> Phase {
        if self.invalid.is_some() {
            return Phase::Invalid;
        }
        match self.decided_phase() {
            Phase::Progressing if self.unread.is_some() && self.told_blocked().is_some() => {
                Phase::Stalled(Stall::BlockedByPdb)
            }
            phase => phase,
        }
    }

    /// The phase, as the controller sees it.
    fn decided_phase(&self) -> Phase {
        let was_complete = self.state.was_complete(&self.fleet.revision);
        self.plan.standing(was_complete)
    }

    /// What is said of the rollout, the revision aside: the words of the conditions.
    pub(super) fn said(&self) -> StatusSentence {
        let told = self.told_blocked().filter(|_| self.unread.is_some());
        if let Some(told) = told {
            return StatusSentence {
                reason: BLOCKED,
                head: told.to_owned(),
                asides: String::new(),
                fact: told.to_owned(),
                next: Vec::new(),
            };
        }
        let about = RolloutStatus {
            set: self.name(),
            fleet: &self.fleet,
            plan: &self.plan,
            strategy: &self.strategy,
        };
        about.said(self.decided_phase())
    }

    /// What is said of another plan for this DaemonSet: which holds it waits for, or what conditions would say.
    pub(super) fn said_of(&self, fleet: &Fleet, plan: &Plan) -> StatusSentence {
        let about = RolloutStatus {
            set: self.name(),
            fleet,
            plan,
            strategy: &self.strategy,
        };
        about.held().unwrap_or_else(|| about.said(plan.phase))
    }

    /// A sentence about the phase, with the numbers of this moment.
    pub(super) fn message(&self) -> String {
        message(&self.rollout(), &self.said())
    }

    /// What the controller says of disruption budgets that let no pod of the present revision go, if it says so.
    fn told_blocked(&self) -> Option<&str> {
        blocked_since(&self.conditions)?;
        let stalled = self.condition(STALLED)?;
        let is_present = self.state.is_about(&self.fleet.revision);
        is_present.then_some(stalled.message.as_str())
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }

    /// Its exit code. `strict`: offline nodes that are left count as progress to be made.
    pub(super) fn code(&self, strict: bool) -> Code {
        let phase = self.phase();
        let by_controller = matches!(phase, Phase::Progressing | Phase::Complete { .. });
        match Code::from_phase(phase, strict) {
            Code::Progressing if by_controller && self.liveness.silent_since().is_some() => {
                Code::Silent
            }
            code => code,
        }
    }

    /// Whether waiting is in vain: nothing changes before a person acts.
    pub(super) fn needs_a_person(&self, strict: bool) -> bool {
        self.phase().needs_a_person() || self.code(strict) == Code::Silent
    }

    /// Since when the rollout is in its state, as far as the controller told.
    pub(super) fn phase_since(&self) -> Option<Timestamp> {
        let kind = match self.phase() {
            Phase::Complete { .. } => ROLLOUT_COMPLETE,
            Phase::Progressing => PROGRESSING,
            Phase::RevisionUnknown(_) => return self.behind_since(),
            Phase::Stale(stale) => return Some(stale.heard),
            Phase::Stalled(_) => STALLED,
            Phase::Paused { .. } => PAUSED_CONDITION,
            Phase::Invalid => INVALID_SETTINGS,
            // It has no condition of its own: it holds since the last of the others ended.
            Phase::AwaitingOwners | Phase::AwaitingDeletions => return self.others_since(),
        };
        // What was said of another revision tells nothing of this one.
        if !self.state.is_about(&self.fleet.revision) && kind == ROLLOUT_COMPLETE {
            return None;
        }
        let condition = self.condition(kind)?;
        let holds = condition.status == "True";
        let since = holds.then_some(condition.last_transition.as_ref()?.0)?;
        if [PROGRESSING, STALLED].contains(&kind) {
            Some(self.of_revision(since))
        } else {
            Some(since)
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

    /// Whether nodes lack an available pod and that may be over in a moment: complete or not, whoever waits waits for them.
    pub(super) fn is_recovering(&self) -> bool {
        self.rollout().unavailable() > 0 && !matches!(self.plan.phase, Phase::Stalled(_))
    }

    /// Whether a disruption budget refused the controller the last time, and it has not asked again yet: it does within
    /// [`BACK_OFF`](crate::core::fleet::evictions::BACK_OFF), whatever the budget allows now.
    fn asks_again(&self) -> bool {
        self.strategy.disruption == Disruption::Evict
            && *self.state.reported.reason == *BLOCKED
            && self.state.is_about(&self.fleet.revision)
    }

    /// Whether any controller ever reported on this DaemonSet.
    pub(super) fn is_reported(&self) -> bool {
        !self.conditions.is_empty()
    }
}

/// What is done with settings that cannot be used: nothing.
fn untouched() -> Strategy {
    Strategy {
        pause: Some(Pause::Indefinite),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    }
}

/// Who is refused, with those whom the condition does not name, while the controller says that nothing else moves; `None`: they are
/// known already.
fn refused_unnamed(fleet: &Fleet, plan: &Plan, state: &RolloutState) -> Option<WriteFailures> {
    state.stalled_since(Stall::WritesRefused.reason())?;
    if !state.is_about(&fleet.revision) {
        return None;
    }
    let begun = plan.actions.iter().filter(|action| action.begins());
    let begun = begun.filter_map(|action| {
        let is_here = |node: &&Node| node.pods.iter().any(|pod| pod.uid == action.pod().uid);
        let node = fleet.nodes.iter().find(is_here)?;
        Some((&node.name, WriteVerb::from_action(action)))
    });
    state.with_unnamed(&fleet.write_failures, begun)
}

fn by_word(verdicts: &[Verdict]) -> [usize; Verdict::WORDS.len()] {
    let mut counts = [0; Verdict::WORDS.len()];
    for verdict in verdicts {
        counts[verdict.index()] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::IntOrPercent;
    use crate::core::rollout_state::{Reported, ReportedFailures};
    use crate::core::testing::{at, current, fleet, node, old};

    /// Found by somebody who tried: of 59 nodes nine were told to be next, and the rollout to go on.
    #[test]
    fn who_is_refused_and_not_named_in_the_condition_is_refused_all_the_same() {
        let now = at(5_000);
        let pod = |i| if i < 59 { old(1) } else { current(2) };
        let nodes = (0..200).map(|i| node(&format!("n{i:03}"), pod(i)));
        let mut fleet = fleet(nodes.collect());
        let mut all = WriteFailures::default();
        all.keep_to(&"new".into());
        for node in &fleet.nodes[..59] {
            let place = (&node.name, node.pods.first().map(|pod| &pod.uid));
            all.refuse(place, WriteVerb::Delete, "kept by test", at(4_000));
        }
        let state = |reason: &str| RolloutState {
            reported: Reported {
                revision: Some("new".into()),
                reason: reason.into(),
                stalled_since: Some(at(4_000)),
                ..Reported::default()
            },
            refused: ReportedFailures::new(&all, None),
            ..RolloutState::default()
        };
        let stalled = state("WritesRefused");
        fleet.write_failures = stalled.refusals().expect("refusals");
        let strategy = Strategy {
            max_unavailable: IntOrPercent::Percent(50),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        let mut plan = decide(&strategy, &fleet, now);
        assert_eq!(plan.phase, Phase::Progressing);
        assert_eq!(refused_unnamed(&fleet, &plan, &state("NoProgress")), None);
        while let Some(write_failures) = refused_unnamed(&fleet, &plan, &stalled) {
            fleet.write_failures = write_failures;
            plan = decide(&strategy, &fleet, now);
        }
        assert_eq!(plan.phase, Phase::Stalled(Stall::WritesRefused));
        let refused = Verdict::Refused { since: now };
        assert_eq!(plan.counts.by_word[refused.index()], 59);
    }
}
