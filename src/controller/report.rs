//! What a DaemonSet's own status and its Events say about the rollout: only changes of state, never progress.
//!
//! The conditions are the memory: what was reported already is read back from the object, so that a restarted
//! controller repeats nothing. No counter stands in a message, so nothing is written while a rollout merely moves.

mod blocked;
mod conditions;
mod guarded;
mod notice;
mod paused;
pub(super) mod refused;
mod reverted;

use serde_json::{Value, json};

use self::blocked::stays_blocked;
use self::conditions::{condition, find, or_not, says_the_same};
use self::guarded::{is_stopped, same_stall, sheet, stall_news};
pub(super) use self::notice::Notice;
use self::reverted::reversal;
use super::apply::on_the_wire;
use crate::core::messages::{
    BLOCKED, RolloutStatus, STALE_DATA, StatusSentence, UNDER_WAY, WAVE_NOT_OPEN,
};
use crate::core::names::{
    GUARD, INVALID_SETTINGS, PAUSED_CONDITION, PROGRESSING, REFUSED, ROLLOUT_COMPLETE, STALLED,
};
use crate::core::{
    Fleet, Invalid, PauseRecord, Phase, Plan, Refusals, RevisionState, Stall, instant,
};
use crate::index::{OWN_CONDITIONS, SetRecord, was_complete};
use crate::k8s::Condition;
use crate::k8s::client::conditions::removal;
use k8s_openapi::jiff::Timestamp;

/// Stands before the revision that was current while it is not known which one is.
const AFTER: &str = "after ";

/// Said of a DaemonSet that is ours no longer.
const HANDED_BACK: &str = "not rolled out any more";

/// What the status should say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// The conditions as they should be; one of ours that is not here should not be there.
    pub(super) conditions: Vec<Condition>,
    /// What to tell in Events, if `conditions` differ from the present ones in status or reason.
    pub(super) notices: Vec<Notice>,
    /// What is remembered of a pause once these are written.
    pub(super) pause: Option<PauseRecord>,
}

impl Report {
    /// The report on settings that cannot be used.
    pub(super) fn of_invalid(set: &SetRecord, invalid: &Invalid) -> Self {
        let note = invalid.to_string();
        let mut report = Self {
            conditions: vec![
                condition(ROLLOUT_COMPLETE, false, "InvalidSettings", &note),
                condition(PROGRESSING, false, "InvalidSettings", invalid.consequence()),
                condition(INVALID_SETTINGS, true, "InvalidSettings", &note),
            ],
            notices: Vec::new(),
            pause: set.last_pause(),
        };
        report
            .conditions
            .extend(set.last_record().as_ref().map(sheet));
        // Whether it goes on is told when the settings can be read again.
        let paused = find(&set.conditions, PAUSED_CONDITION);
        report
            .conditions
            .extend(paused.filter(|_| report.pause.is_some()).cloned());
        // How many nodes there are, and their labels, may change: the same mistake is told once.
        let (mistake, _) = note.split_at(note.len() - invalid.why.len());
        let is_told = |present: &Condition| present.message.starts_with(mistake);
        if !find(&set.conditions, INVALID_SETTINGS).is_some_and(is_told) {
            let news = Some(mistake.to_owned());
            report.notices.push(Notice {
                warning: true,
                reason: "InvalidSettings",
                note,
                news,
                ..Notice::default()
            });
        }
        report
    }

    /// The report on a DaemonSet that is ours no longer, while the API server refuses to take away what we made.
    pub(super) fn of_release(set: &SetRecord, refused: &Refusals) -> Self {
        let note = format!(
            "{HANDED_BACK}; what was made for it cannot be taken away{}; it is tried again",
            refused.aside()
        );
        let reason = refused::WRITE_REFUSED;
        let known = find(&set.conditions, REFUSED);
        let notices = refused::news(refused, HANDED_BACK, known);
        Self {
            conditions: vec![
                condition(PROGRESSING, false, reason, &note),
                condition(STALLED, true, reason, &note),
                condition(REFUSED, true, reason, &refused.to_string()),
            ],
            notices: notices.into_iter().collect(),
            ..Self::default()
        }
    }

    /// The report on a plan; `lasting` tells that the native controller has been behind for a while already.
    pub(super) fn of_plan(set: &SetRecord, fleet: &Fleet, plan: &Plan, lasting: bool) -> Self {
        let mut report = match &plan.invalid {
            Some(invalid) => Self::of_invalid(set, invalid),
            None => Self::of_state(set, fleet, plan, lasting),
        };
        report.conditions.retain(|condition| {
            ![GUARD, PAUSED_CONDITION, REFUSED].contains(&condition.kind.as_str())
        });
        report.conditions.extend(plan.record.as_ref().map(sheet));
        let revision = about(fleet, None);
        let before = find(&set.conditions, PAUSED_CONDITION);
        let sheet = paused::sheet(plan, &revision, &fleet.revision, before);
        report.conditions.push(sheet);
        let known = find(&set.conditions, REFUSED);
        report.conditions.extend(refused::sheet(plan, known));
        report
            .notices
            .extend(refused::notice(plan, &revision, known));
        report.notices.extend(paused::reminder(plan, &revision));
        report.pause = plan.pause.as_ref().map(|stand| stand.record);
        report
    }

    fn of_state(set: &SetRecord, fleet: &Fleet, plan: &Plan, lasting: bool) -> Self {
        let before = find(&set.conditions, ROLLOUT_COMPLETE);
        let revision = about(fleet, before);
        let said = saying(set, fleet, plan);
        let (reason, note) = (said.reason, format!("{revision}: {}", said.sentence()));
        let complete = matches!(plan.phase, Phase::Complete { .. });
        let stays = |before: &Condition| {
            stays(before, set, &fleet.revision, plan, lasting)
                || reason == PROGRESSING && stays_blocked(before, plan, &revision)
        };
        if !complete && before.is_some_and(stays) {
            return Self {
                conditions: set.conditions.clone(),
                ..Self::default()
            };
        }
        let moving = matches!(plan.phase, Phase::Progressing | Phase::RevisionUnknown(_));
        let stalled = matches!(plan.phase, Phase::Stalled(_));
        let report = Self {
            conditions: vec![
                condition(ROLLOUT_COMPLETE, complete, reason, &note),
                condition(PROGRESSING, moving, reason, &note),
                or_not(STALLED, stalled, reason, "NotStalled", &note),
            ],
            ..Self::default()
        };
        let was_paused = before.is_some_and(|before| before.reason == "Paused");
        let stopped = !was_paused && is_stopped(set.record_that_stands().as_ref(), plan);
        let stall = find(&set.conditions, STALLED).filter(|told| told.status == "True");
        let told = notice((before, stall), plan, stopped, reason, &note);
        let notices = told
            .into_iter()
            .chain(reversal(before, (fleet, &set.key()), plan))
            .collect();
        Self { notices, ..report }
    }

    /// The report on a DaemonSet that is ours no longer.
    pub(super) fn of_nothing() -> Self {
        Self::default()
    }

    /// All of them with when each changed, as they should be written whole.
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

    /// What to patch so that the status says this; empty when it does.
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

/// What is said of a rollout, the revision aside.
fn saying(set: &SetRecord, fleet: &Fleet, plan: &Plan) -> StatusSentence {
    let hook = set.reading.usable();
    let hook = hook.and_then(|strategy| strategy.pre_delete.as_deref());
    let about = RolloutStatus {
        set: &set.key(),
        fleet,
        plan,
        hook,
    };
    about.said(plan.phase)
}

/// Whether what was reported before stays.
///
/// Nor is every short moment in which the native controller has something to observe worth a word.
fn stays(
    before: &Condition,
    set: &SetRecord,
    state: &RevisionState,
    plan: &Plan,
    lasting: bool,
) -> bool {
    let complete = before.status == "True";
    match plan.phase {
        Phase::RevisionUnknown(_) => !lasting && (!complete || set.is_template_current()),
        _ => {
            let was_complete = was_complete(std::slice::from_ref(before), state);
            matches!(plan.standing(was_complete), Phase::Complete { .. })
        }
    }
}

/// The revision that all this is about. While it is not known, it is told after which one: should that still be the one, no
/// other rollout began.
fn about(fleet: &Fleet, before: Option<&Condition>) -> String {
    let told = before.and_then(|before| subject(&before.message));
    match (&fleet.revision, told) {
        (RevisionState::Current(revision), _) => format!("revision {revision}"),
        (RevisionState::Unknown(_), Some(told)) => format!("{AFTER}{told}"),
        (RevisionState::Unknown(_), None) => "the new revision".to_owned(),
    }
}

/// The revision that a message is about, as it says so.
fn subject(message: &str) -> Option<&str> {
    let (head, _) = message.split_once(':')?;
    let head = head.strip_prefix(AFTER).unwrap_or(head);
    head.starts_with("revision ").then_some(head)
}

/// The Event for what is new since `before`, and since `stall` if it was stalled then.
fn notice(
    (before, stall): (Option<&Condition>, Option<&Condition>),
    plan: &Plan,
    stopped: bool,
    reason: &'static str,
    note: &str,
) -> Option<Notice> {
    let same_reason = before.is_some_and(|before| before.reason == reason);
    let same_revision = before
        .is_some_and(|before| subject(note).is_some_and(|is| subject(&before.message) == Some(is)));
    let under_way = |before: &Condition| UNDER_WAY.contains(&before.reason.as_str());
    let goes_on = same_revision && before.is_some_and(under_way);
    // When it goes on is dated by each replica's own clock, and moves with what happens in between.
    let says_when =
        |before: &Condition| instant::timeless(&before.message) == instant::timeless(note);
    if same_reason && before.is_some_and(|before| before.message == note) {
        return None;
    }
    let mut news = None;
    let (warning, reason) = match plan.phase {
        // What is said beside it changes; it was complete before.
        Phase::Complete { .. } if same_reason && same_revision => return None,
        Phase::Complete { .. } if before.is_some() => (false, "RolloutComplete"),
        // Which nodes they are changes while they come and go.
        Phase::Progressing if reason == "Inconclusive" && same_reason && same_revision => {
            return None;
        }
        Phase::Progressing if reason == "Inconclusive" => (true, "RolloutInconclusive"),
        Phase::Progressing
            if reason == WAVE_NOT_OPEN && same_reason && before.is_some_and(says_when) =>
        {
            return None;
        }
        Phase::Progressing if reason == WAVE_NOT_OPEN => (false, WAVE_NOT_OPEN),
        Phase::Progressing if reason == BLOCKED => (true, BLOCKED),
        // What goes on did not begin, however often it waited for something in between.
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
        // Told once: which nodes they are changes while they crash and try again.
        Phase::Stalled(_) if stopped || same_stall(stall, plan, reason, same_revision) => {
            return None;
        }
        Phase::Stalled(_) => {
            let revision = subject(note).unwrap_or_default();
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
    Some(Notice {
        warning,
        reason,
        note: note.to_owned(),
        news,
        ..Notice::default()
    })
}

#[cfg(test)]
mod tests;
