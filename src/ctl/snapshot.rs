//! State of one DaemonSet: the result of `decide`, which evaluates a rollout as the controller does, and the controller's last
//! report.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::code::Code;
use super::condition_times::{blocked_since, incomplete_since};
use super::liveness::ControllerLiveness;
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

/// Evaluated state of a DaemonSet.
#[derive(Clone, Debug)]
pub(super) struct RolloutSnapshot {
    pub(super) key: SetKey,
    /// Settings. Invalid ones are replaced by defaults and a pause.
    pub(super) strategy: Strategy,
    /// Error in the settings; `None` if they are valid.
    pub(super) invalid: Option<Invalid>,
    /// Notes about the settings for the person who maintains the DaemonSet.
    pub(super) notes: Vec<Note>,
    /// State of nodes and pods.
    pub(super) fleet: Fleet,
    pub(super) plan: Plan,
    /// Conditions from the controller.
    pub(super) conditions: Vec<Condition>,
    /// State that the controller stores in the DaemonSet's status.
    pub(super) state: Arc<RolloutState>,
    /// Liveness of the controller according to its Lease, if it was read.
    pub(super) liveness: ControllerLiveness,
    /// True if Kruise's manager creates the DaemonSet's pods, so that yurt-ds does not manage it.
    pub(super) is_of_kruise: bool,
    /// Sentence about resources that the caller may not read; `None` if there are none.
    pub(super) unread: Option<String>,
    /// Note about the client that set `partition`; `None` if it was not read.
    pub(super) partition_origin: Option<String>,
    /// Time of the first read. A state that `ctl` found at this time may have begun earlier.
    pub(super) first_read: Timestamp,
    pub(super) now: Timestamp,
}

impl RolloutSnapshot {
    /// Evaluates a managed DaemonSet of the view; `None` if it is not managed.
    pub(super) fn take(view: &mut ClusterView, key: &SetKey, now: Timestamp) -> Option<Self> {
        let first_read = view.loaded;
        view.mark_blocked(key, now);
        let mut snapshot = Self::new(&mut view.index, key, first_read, now)?;
        snapshot.is_of_kruise = view.is_of_kruise(key);
        snapshot.unread = view.unread(key);
        Some(snapshot)
    }

    /// Evaluates a DaemonSet of an index that has been up to date since `first_read`.
    pub(super) fn new(
        index: &mut Index,
        key: &SetKey,
        first_read: Timestamp,
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
        // In all messages, use the settings that apply to the current revision.
        let strategy = strategy.on(&fleet.revision).into_owned();
        let mut plan = decide(&strategy, &fleet, now);
        while let Some(write_failures) = with_unlisted_rejections(&fleet, &plan, &state) {
            fleet.write_failures = write_failures;
            plan = decide(&strategy, &fleet, now);
        }
        let on_revision = strategy.notes_on(&fleet.revision);
        let notes = notes.into_iter().chain(on_revision);
        let notes: Vec<Note> = notes.chain(plan.notes_on_nodes(&fleet)).collect();
        if invalid.is_some() {
            for (node, verdict) in fleet.nodes.iter().zip(&mut plan.verdicts) {
                // An offline node with an outdated pod gets the verdict `Invalid` too: invalid settings keep its pod when it
                // returns.
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
            partition_origin: None,
            first_read,
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
        self.fleet.revision.current()
    }

    fn name(&self) -> SetName<'_> {
        SetName {
            namespace: &self.key.namespace,
            name: &self.key.name,
        }
    }

    /// Returns the data that messages are rendered from.
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
            first_read: self.first_read,
            now: self.now,
        }
    }

    /// Returns the evaluated phase. If the evaluation needs budgets that the caller may not read, the controller's phase takes
    /// precedence.
    pub(super) fn phase(&self) -> Phase {
        if self.invalid.is_some() {
            return Phase::Invalid;
        }
        match self.decided_phase() {
            Phase::Progressing if self.unread.is_some() && self.reported_block().is_some() => {
                Phase::Stalled(Stall::BlockedByPdb)
            }
            phase => phase,
        }
    }

    /// Returns the phase according to `decide`.
    fn decided_phase(&self) -> Phase {
        let was_complete = self.state.was_complete(&self.fleet.revision);
        self.plan.reported_phase(was_complete)
    }

    /// Returns the sentence about the phase without the revision, as in the conditions.
    pub(super) fn sentence(&self) -> StatusSentence {
        let blocked = self.reported_block().filter(|_| self.unread.is_some());
        if let Some(blocked) = blocked {
            return StatusSentence {
                reason: BLOCKED,
                head: blocked.to_owned(),
                fact: blocked.to_owned(),
                clauses: Vec::new(),
                next: Vec::new(),
            };
        }
        let about = RolloutStatus {
            set: self.name(),
            fleet: &self.fleet,
            plan: &self.plan,
            strategy: &self.strategy,
        };
        about.describe(self.decided_phase())
    }

    /// Returns the sentence about the phase for another plan of this DaemonSet, such as a simulated one.
    pub(super) fn sentence_of(&self, fleet: &Fleet, plan: &Plan) -> StatusSentence {
        let about = RolloutStatus {
            set: self.name(),
            fleet,
            plan,
            strategy: &self.strategy,
        };
        about.held().unwrap_or_else(|| about.describe(plan.phase))
    }

    /// Returns a sentence about the phase, with current numbers.
    pub(super) fn message(&self) -> String {
        message(&self.rollout(), &self.sentence())
    }

    /// Returns the controller's message that disruption budgets block the current revision; `None` if it reports nothing of that
    /// kind.
    fn reported_block(&self) -> Option<&str> {
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

    /// Returns the exit code for the rollout. With `strict`, a rollout with outdated offline nodes is not complete.
    pub(super) fn code(&self, strict: bool) -> Code {
        let phase = self.phase();
        let by_controller = matches!(
            phase,
            Phase::Progressing | Phase::Complete { .. } | Phase::Stalled(_)
        );
        match Code::from_phase(phase, strict) {
            Code::Progressing | Code::Stalled
                if by_controller && self.liveness.silent_since().is_some() =>
            {
                Code::Silent
            }
            code => code,
        }
    }

    /// Returns the message that no controller is running; `None` if one is, or if the rollout needs none.
    pub(super) fn silence(&self) -> Option<String> {
        self.liveness.silence(self.code(false))
    }

    /// Returns true if waiting is pointless because nothing changes until an operator acts.
    pub(super) fn needs_a_person(&self, strict: bool) -> bool {
        self.phase().needs_a_person() || self.code(strict) == Code::Silent
    }

    /// Returns the start of the phase; `None` if the controller has not reported it.
    pub(super) fn phase_since(&self) -> Option<Timestamp> {
        let kind = match self.phase() {
            Phase::Complete { .. } => ROLLOUT_COMPLETE,
            Phase::Progressing => PROGRESSING,
            Phase::RevisionUnknown(_) => return self.behind_since(),
            Phase::Stale(stale) => return Some(stale.heard),
            Phase::Stalled(_) => STALLED,
            Phase::Paused { .. } => PAUSED_CONDITION,
            Phase::Invalid => INVALID_SETTINGS,
            // These phases have no condition. They begin when the last of the other conditions becomes `False`.
            Phase::AwaitingOwners | Phase::AwaitingDeletions => return self.others_since(),
        };
        // A condition `RolloutComplete` about another revision does not show when the current one completed.
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

    /// Returns `since`, or the creation of the current revision if that is later. A condition may be older than the revision.
    fn of_revision(&self, since: Timestamp) -> Timestamp {
        let adopted = self.fleet.adopted;
        adopted.map_or(since, |adopted| adopted.min(self.now).max(since))
    }

    /// Returns the time when the last condition became `False`; `None` if the controller does not report the rollout as incomplete.
    fn others_since(&self) -> Option<Timestamp> {
        self.incomplete_since()?;
        let states = [
            ROLLOUT_COMPLETE,
            PROGRESSING,
            STALLED,
            PAUSED_CONDITION,
            INVALID_SETTINGS,
        ];
        let conditions = states.iter().filter_map(|kind| self.condition(kind));
        let ended = conditions.filter(|condition| condition.status == "False");
        let times = ended.filter_map(|condition| condition.last_transition.as_ref());
        let ended = times.map(|time| time.0).max()?;
        Some(self.of_revision(ended))
    }

    /// Returns the time since which the native controller has not processed the template; `None` if that time is after the first
    /// read.
    fn behind_since(&self) -> Option<Timestamp> {
        self.fleet
            .behind_since
            .filter(|since| *since < self.first_read)
    }

    /// Returns the time since which the controller has reported the rollout as incomplete.
    pub(super) fn incomplete_since(&self) -> Option<Timestamp> {
        incomplete_since(&self.conditions).map(|since| self.of_revision(since))
    }

    /// Returns true if nodes without an available pod may recover soon, because the rollout is not stalled. A waiting command waits
    /// for them even if the rollout is complete.
    pub(super) fn is_recovering(&self) -> bool {
        self.rollout().unavailable() > 0 && !matches!(self.plan.phase, Phase::Stalled(_))
    }

    /// Returns true if a disruption budget rejected the last eviction and the controller has not repeated it yet.
    ///
    /// The controller repeats it within [`BACK_OFF`](crate::core::fleet::evictions::BACK_OFF), even if the budget allows the
    /// eviction earlier.
    fn asks_again(&self) -> bool {
        self.strategy.disruption == Disruption::Evict
            && *self.state.reported.reason == *BLOCKED
            && self.state.is_about(&self.fleet.revision)
    }

    /// Returns true if a controller has reported on this DaemonSet.
    pub(super) fn is_reported(&self) -> bool {
        !self.conditions.is_empty()
    }
}

/// Returns settings that replace invalid ones: they pause the rollout.
fn untouched() -> Strategy {
    Strategy {
        pause: Some(Pause::Indefinite),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    }
}

/// Returns all rejected writes, including those for nodes that the controller's report does not name; `None` if `fleet` already has
/// all of them.
///
/// The report (condition `Stalled`) names only some nodes. While it says that rejected writes stall the rollout, writes of the same
/// kind that `plan` would begin count as rejected, too.
fn with_unlisted_rejections(
    fleet: &Fleet,
    plan: &Plan,
    state: &RolloutState,
) -> Option<WriteFailures> {
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

    /// Found in a user test: for nine of 59 nodes with rejected writes, `ctl` reported that they are next and that the rollout
    /// continues.
    #[test]
    fn nodes_missing_from_the_condition_still_have_the_verdict_refused() {
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
        assert_eq!(
            with_unlisted_rejections(&fleet, &plan, &state("NoProgress")),
            None
        );
        while let Some(write_failures) = with_unlisted_rejections(&fleet, &plan, &stalled) {
            fleet.write_failures = write_failures;
            plan = decide(&strategy, &fleet, now);
        }
        assert_eq!(plan.phase, Phase::Stalled(Stall::WritesRefused));
        let refused = Verdict::Refused { since: now };
        assert_eq!(plan.counts.by_word[refused.index()], 59);
    }
}
