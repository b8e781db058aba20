//! Status and Events of a DaemonSet's rollout. They report changes of state, not progress.
//!
//! Conditions and Events are for users. The condition `RolloutState` saves the state for a restarted controller, so that it
//! doesn't repeat Events. Messages contain no counters, so that a rollout that progresses causes no status writes.

mod blocked;
mod conditions;
mod facts;
mod guarded;
mod memory;
mod paused;
pub(super) mod refused;
mod reverted;
mod rollout_event;

use serde_json::{Value, json};

use self::blocked::stays_blocked;
use self::conditions::{LONGEST, condition, find, or_not, says_the_same, short};
pub(super) use self::facts::RolloutFacts;
use self::guarded::{is_stopped, same_stall, stall_news, to_condition};
use self::reverted::reversal;
pub(super) use self::rollout_event::RolloutEvent;
use super::apply::on_the_wire;
use crate::controller::step::Step;
use crate::core::messages::rollout::SetName;
use crate::core::messages::{
    BLOCKED, RolloutStatus, STALE_DATA, StatusSentence, UNDER_WAY, WAVE_NOT_OPEN,
};
use crate::core::names::{
    GUARD, INVALID_SETTINGS, PAUSED_CONDITION, PROGRESSING, REFUSED, ROLLOUT_COMPLETE,
    ROLLOUT_STATE, STALLED,
};
use crate::core::rollout_state::{Reported, ReportedFailures};
use crate::core::{
    Fleet, Invalid, Mode, Phase, Plan, Revision, RevisionState, RolloutState, Stall, Strategy,
    WriteFailures,
};
use crate::index::{OWN_CONDITIONS, SetRecord};
use crate::k8s::Condition;
use crate::k8s::client::conditions::removal;
use k8s_openapi::jiff::Timestamp;

/// Prefix of the previous revision's name in messages. Messages name the previous revision while the current one is unknown.
const AFTER: &str = "after ";

/// Message about a DaemonSet that yurt-ds no longer manages.
const HANDED_BACK: &str = "no longer managed by yurt-ds";

/// Status to write, with the Events to publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// Desired conditions. A condition of this controller that is not among them is removed.
    pub(super) conditions: Vec<Condition>,
    /// Events to publish with `conditions`. They are not published if the DaemonSet already has the conditions, or the conditions
    /// were sent before.
    pub(super) notices: Vec<RolloutEvent>,
    /// Facts about the step that the report makes; `None` until [`Self::add_facts`], and if it makes none.
    pub(super) facts: Option<RolloutFacts>,
    /// State of the rollout that `conditions` save for a restarted controller.
    pub(super) state: RolloutState,
}

impl Report {
    /// Returns the report on a DaemonSet with unusable settings.
    pub(super) fn of_invalid(set: &SetRecord, invalid: &Invalid) -> Self {
        let mut report = Self::of_settings(set, invalid);
        let record = report.state.guard.as_ref();
        report.conditions.extend(record.map(to_condition));
        report.with_state(set)
    }

    fn of_settings(set: &SetRecord, invalid: &Invalid) -> Self {
        let note = invalid.to_string();
        let mut report = Self {
            conditions: vec![
                condition(ROLLOUT_COMPLETE, false, "InvalidSettings", &note),
                condition(PROGRESSING, false, "InvalidSettings", invalid.consequence()),
                condition(INVALID_SETTINGS, true, "InvalidSettings", &note),
            ],
            state: memory::kept(set),
            ..Self::default()
        };
        report.state.reported = Reported {
            reason: "InvalidSettings".into(),
            revision: set.state.reported.revision.clone(),
            generation: Some(set.generation),
            ..Reported::default()
        };
        // Keep the condition about a pause. The corrected settings will decide whether the pause continues.
        let paused = find(&set.conditions, PAUSED_CONDITION);
        let is_paused = report.state.pause.is_some();
        (report.conditions).extend(paused.filter(|_| is_paused).cloned());
        // Compare only the part about the setting. The rest of the text names nodes and labels, which may change without a new
        // mistake.
        let (mistake, _) = note.split_at(note.len() - invalid.why.len());
        report.state.invalid = Some(mistake.into());
        let is_known = |known: &str| known.starts_with(mistake);
        if !set.state.invalid.as_deref().is_some_and(is_known) {
            let news = Some(mistake.to_owned());
            report.notices.push(RolloutEvent {
                warning: true,
                reason: "InvalidSettings",
                note,
                news,
                ..RolloutEvent::default()
            });
        }
        report
    }

    /// Returns the report on a DaemonSet that is no longer managed, but whose surge pods the API server refuses to delete.
    pub(super) fn of_release(set: &SetRecord, refused: &WriteFailures) -> Self {
        let note = format!(
            "{HANDED_BACK}. Its surge pods cannot be deleted: {}",
            refused.sentence()
        );
        let reason = refused::WRITE_REFUSED;
        let known = set.state.refused.as_ref();
        let notices = refused::news(refused, HANDED_BACK, known);
        let report = Self {
            conditions: vec![
                condition(PROGRESSING, false, reason, &note),
                condition(STALLED, true, reason, &note),
                condition(REFUSED, true, reason, &short(&refused.sentence())),
            ],
            notices: notices.into_iter().collect(),
            state: RolloutState {
                refused: ReportedFailures::new(refused, known),
                ..RolloutState::default()
            },
            ..Self::default()
        };
        report.with_state(set)
    }

    /// Returns the report on a plan. `lasting` is true if the native controller has lagged behind a change of the DaemonSet for
    /// several seconds.
    pub(super) fn of_plan(
        set: &SetRecord,
        fleet: &Fleet,
        plan: &Plan,
        lasting: bool,
        now: Timestamp,
    ) -> Self {
        let mut report = match &plan.invalid {
            Some(invalid) => Self::of_settings(set, invalid),
            None => Self::of_state(set, fleet, plan, lasting, now),
        };
        report.conditions.retain(|condition| {
            ![GUARD, PAUSED_CONDITION, REFUSED, ROLLOUT_STATE].contains(&condition.kind.as_str())
        });
        let known = &set.state;
        let revision = about(fleet, None);
        let state = &mut report.state;
        state.guard = plan.record.clone();
        state.pause = paused::memory(plan, &fleet.revision, known.pause.as_ref());
        state.refused = if plan.phase.is_behind() {
            known.refused.clone()
        } else {
            ReportedFailures::new(&plan.refused, known.refused.as_ref())
        };
        let paused = find(&set.conditions, PAUSED_CONDITION);
        let conditions = [
            plan.record.as_ref().map(to_condition),
            Some(paused::to_condition(
                plan,
                &fleet.revision,
                state.pause.as_ref(),
                paused,
            )),
            refused::to_condition(plan, &revision, find(&set.conditions, REFUSED)),
        ];
        let refused = refused::notice(plan, &fleet.revision, known.refused.as_ref());
        let reminder = paused::reminder(plan, &revision);
        report.conditions.extend(conditions.into_iter().flatten());
        report
            .notices
            .extend([refused, reminder].into_iter().flatten());
        report.with_state(set)
    }

    /// Adds the facts for notifications and traces. `before` is the previous report.
    pub(super) fn add_facts(&mut self, before: &Reported, fleet: &Fleet, plan: &Plan) {
        let reported = &self.state.reported;
        let has_outdated = plan.counts.outdated > 0;
        self.facts = Step::between(before, reported, has_outdated).map(|step| {
            let complete = find(&self.conditions, ROLLOUT_COMPLETE);
            let message = complete.map_or_else(String::new, |told| told.message.clone());
            RolloutFacts::of_plan(step, (reported, message), fleet, plan)
        });
    }

    /// Adds the condition that saves the state.
    fn with_state(mut self, set: &SetRecord) -> Self {
        self.conditions.push(memory::to_condition(set, &self.state));
        let unreadable = set.state_error.as_ref().map(|error| RolloutEvent {
            warning: true,
            reason: "StateUnreadable",
            note: format!(
                "another client wrote condition {ROLLOUT_STATE}, which cannot be read ({error}). The controller saves its own findings \
                 again. If it was restarted in the meantime, the guard examines a stopped revision again. Find that client in \
                 the managedFields of DaemonSet {}",
                set.key()
            ),
            ..RolloutEvent::default()
        });
        self.notices.extend(unreadable);
        self
    }

    fn of_state(
        set: &SetRecord,
        fleet: &Fleet,
        plan: &Plan,
        lasting: bool,
        now: Timestamp,
    ) -> Self {
        let before = find(&set.conditions, ROLLOUT_COMPLETE);
        let known = &set.state.reported;
        let revision = about(fleet, known.revision.as_ref());
        let sentence = status_sentence(set, fleet, plan);
        let reason = sentence.reason;
        let room = LONGEST.saturating_sub(revision.chars().count() + ": ".len());
        let note = format!("{revision}: {}", sentence.short(room));
        let complete = matches!(plan.phase, Phase::Complete { .. });
        let stays = || {
            stays(set, &fleet.revision, plan, lasting)
                || reason == PROGRESSING && stays_blocked(&set.state, &fleet.revision, plan)
        };
        if !complete && before.is_some() && stays() {
            let mut state = memory::kept(set);
            if fleet.revision.current().is_some() {
                state.reported.generation = Some(set.generation);
            }
            return Self {
                conditions: set.conditions.clone(),
                state,
                ..Self::default()
            };
        }
        let moving = matches!(plan.phase, Phase::Progressing | Phase::RevisionUnknown(_));
        let stalled = matches!(plan.phase, Phase::Stalled(_));
        let mut state = memory::next_state(&set.state, fleet, plan, reason, now);
        state.reported.generation = Some(set.generation);
        let report = Self {
            conditions: vec![
                condition(ROLLOUT_COMPLETE, complete, reason, &note),
                condition(PROGRESSING, moving, reason, &note),
                or_not(STALLED, stalled, reason, "NotStalled", &note),
            ],
            state,
            ..Self::default()
        };
        let was_paused = *known.reason == *"Paused";
        let stopped = !was_paused && is_stopped(set.state.guard.as_ref(), plan);
        let news = ReportChange {
            known: before.map(|_| known),
            is_repeated: before.is_some_and(|before| before.message == note),
            reported: &report.state.reported,
            stopped,
        };
        let event = news.notice(plan, &revision, &note);
        let reversal = reversal(known, fleet, &set.key(), plan);
        let notices = event.into_iter().chain(reversal).collect();
        Self { notices, ..report }
    }

    /// Returns an empty report, for a DaemonSet that is no longer managed.
    pub(super) fn of_nothing() -> Self {
        Self::default()
    }

    /// Returns all desired conditions with their transition times, for a write that replaces the conditions as a whole.
    pub(super) fn complete(&self, present: &[Condition], now: Timestamp) -> Vec<Value> {
        let wanted = self.conditions.iter().map(|wanted| {
            let before = find(present, &wanted.kind).filter(|known| known.status == wanted.status);
            let since = before.and_then(|before| before.last_transition.as_ref());
            let since = since.or(wanted.last_transition.as_ref()).map_or(now, |time| time.0);
            json!({
                "type": wanted.kind, "status": wanted.status, "reason": wanted.reason, "message": wanted.message,
                "lastTransitionTime": on_the_wire(since),
            })
        });
        wanted.collect()
    }

    /// Returns a patch with the conditions that differ from the current ones; empty: no condition differs.
    pub(super) fn difference(&self, present: &[Condition], now: Timestamp) -> Vec<Value> {
        let changed = self.conditions.iter().filter_map(|wanted| {
            let before = find(present, &wanted.kind);
            if before.is_some_and(|before| says_the_same(before, wanted)) {
                return None;
            }
            let mut patch = json!({
                "type": wanted.kind, "status": wanted.status, "reason": wanted.reason, "message": wanted.message,
            });
            if before.is_none_or(|before| before.status != wanted.status) {
                let at = wanted.last_transition.as_ref().map_or(now, |time| time.0);
                patch["lastTransitionTime"] = json!(on_the_wire(at));
            }
            Some(patch)
        });
        let surplus = OWN_CONDITIONS
            .iter()
            .filter(|kind| find(present, kind).is_some() && find(&self.conditions, kind).is_none());
        changed.chain(surplus.map(|kind| removal(kind))).collect()
    }
}

/// Returns the status message of a rollout, without the name of its revision.
fn status_sentence(set: &SetRecord, fleet: &Fleet, plan: &Plan) -> StatusSentence {
    let key = set.key();
    let default = Strategy::with_mode(Mode::AdvancedRollingUpdate);
    let about = RolloutStatus {
        set: SetName {
            namespace: &key.namespace,
            name: &key.name,
        },
        fleet,
        plan,
        strategy: set.reading.usable().unwrap_or(&default),
    };
    about.describe(plan.phase)
}

/// Returns true if the previous report stays in place. While the native controller lags behind for only a few seconds, nothing new
/// is reported.
fn stays(set: &SetRecord, state: &RevisionState, plan: &Plan, lasting: bool) -> bool {
    match plan.phase {
        Phase::RevisionUnknown(_) => {
            !lasting && (!set.state.reported.complete || set.is_template_current())
        }
        _ => {
            let was_complete = set.state.was_complete(state);
            matches!(plan.reported_phase(was_complete), Phase::Complete { .. })
        }
    }
}

/// Returns the subject of a message: the current revision, or the previous one while the current one is unknown.
fn about(fleet: &Fleet, before: Option<&Revision>) -> String {
    match (&fleet.revision, before) {
        (RevisionState::Current(revision), _) => format!("revision {revision}"),
        (RevisionState::Unknown(_), Some(before)) => format!("{AFTER}revision {before}"),
        (RevisionState::Unknown(_), None) => "the new revision".to_owned(),
    }
}

/// Difference between the previous report and the new one.
struct ReportChange<'a> {
    /// Previous report; `None`: this is the first one.
    known: Option<&'a Reported>,
    /// True if the new report equals the previous one word for word.
    is_repeated: bool,
    reported: &'a Reported,
    /// True if the guard had stopped the revision before this report. The guard stops a revision when too many nodes fail with it.
    stopped: bool,
}

impl ReportChange<'_> {
    /// Returns the Event about the difference; `None`: the difference needs no Event.
    fn notice(&self, plan: &Plan, revision: &str, note: &str) -> Option<RolloutEvent> {
        let (known, reported) = (self.known, self.reported);
        let same_reason = known.is_some_and(|known| known.reason == reported.reason);
        let same_revision = reported.revision.is_some()
            && known.is_some_and(|known| known.revision == reported.revision);
        let under_way = |known: &Reported| UNDER_WAY.contains(&&*known.reason);
        let goes_on = same_revision && known.is_some_and(under_way);
        let same_subject = known.is_some_and(|known| known.subject == reported.subject);
        if same_reason && self.is_repeated {
            return None;
        }
        let reason = &*reported.reason;
        let mut news = None;
        let (warning, reason) = match plan.phase {
            // The rollout was already complete, and only details of the message changed.
            Phase::Complete { .. } if same_reason && same_revision => return None,
            Phase::Complete { .. } if known.is_some() => (false, "RolloutComplete"),
            // Only the nodes named in the message changed. They change too often for an Event.
            Phase::Progressing if reason == "Inconclusive" && same_reason && same_revision => {
                return None;
            }
            Phase::Progressing if reason == "Inconclusive" => (true, "RolloutInconclusive"),
            // Only the expected time of the next step changed. Replicas calculate different times, and later events change the
            // time.
            Phase::Progressing
                if reason == WAVE_NOT_OPEN && same_reason && same_revision && same_subject =>
            {
                return None;
            }
            Phase::Progressing if reason == WAVE_NOT_OPEN => (false, WAVE_NOT_OPEN),
            Phase::Progressing if reason == BLOCKED => (true, BLOCKED),
            // A rollout that continues after a wait is not reported as started again.
            Phase::Progressing if plan.counts.outdated > 0 && !goes_on => (false, "RolloutStarted"),
            Phase::Progressing if plan.is_hook_overdue() => (true, "HookPending"),
            Phase::Progressing | Phase::AwaitingOwners | Phase::AwaitingDeletions
                if !plan.overdue.is_empty() =>
            {
                (true, Stall::NoProgress.reason())
            }
            Phase::AwaitingOwners | Phase::AwaitingDeletions => (false, "UpgradeAvailable"),
            Phase::Stale(_) if same_reason => return None,
            Phase::Stale(_) => (true, STALE_DATA),
            Phase::Paused { .. } => (false, "RolloutPaused"),
            // A stall is reported once. Its message names nodes, and these change while their pods crash and restart.
            Phase::Stalled(_) if self.stopped || same_stall(known, reported, plan) => return None,
            Phase::Stalled(_) => {
                news = Some(stall_news(plan, revision, reason));
                (true, "RolloutStalled")
            }
            Phase::Complete { .. }
            | Phase::Progressing
            | Phase::RevisionUnknown(_)
            | Phase::Invalid => {
                return None;
            }
        };
        Some(RolloutEvent {
            warning,
            reason,
            note: note.to_owned(),
            news,
            ..RolloutEvent::default()
        })
    }
}

#[cfg(test)]
mod tests;
