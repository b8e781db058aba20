//! State that a report saves in the condition `RolloutState`, for the next leader or a restarted controller.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::conditions::{condition, find};
use crate::core::messages::WAVE_NOT_OPEN;
use crate::core::names::ROLLOUT_STATE;
use crate::core::remedy::undo_target;
use crate::core::rollout_state::{FailingPods, Reported, ReportedPause};
use crate::core::{Fleet, Phase, Plan, PodProblem, RevisionState, RolloutState, SetKind, Stall};
use crate::index::SetRecord;
use crate::k8s::Condition;

/// Maximum number of nodes that are saved for each cause of failing pods.
const NAMED: usize = 50;

/// Returns the saved state, updated with the last reported pause and the last reported record of failed nodes (the guard's record).
pub(super) fn kept(set: &SetRecord) -> RolloutState {
    let known = &*set.state;
    let pause = set.last_pause().map(|record| {
        let shown = known.pause.as_ref().filter(|pause| pause.record == record);
        shown
            .cloned()
            .unwrap_or_else(|| ReportedPause::from_record(record))
    });
    RolloutState {
        guard: set.last_record(),
        pause,
        ..known.clone()
    }
}

/// Returns the state to save with a report that has this reason. The caller adds the guard's record, the pause and the rejected
/// writes.
pub(super) fn next_state(
    known: &RolloutState,
    fleet: &Fleet,
    plan: &Plan,
    reason: &str,
    now: Timestamp,
) -> RolloutState {
    let before = &known.reported;
    let is_unknown = fleet.revision_is_unknown();
    let revision = match &fleet.revision {
        RevisionState::Current(revision) => Some(revision.clone()),
        RevisionState::Unknown(_) => before.revision.clone(),
    };
    let stall = match plan.phase {
        Phase::Stalled(stall) => Some(stall),
        _ => None,
    };
    let waits_for_creation =
        stall == Some(Stall::PodsNotCreated) || is_unknown && fleet.kind == SetKind::Advanced;
    let reversal = plan.reversal.as_ref().filter(|_| stall.is_some());
    RolloutState {
        reported: Reported {
            revision,
            generation: before.generation,
            complete: matches!(plan.phase, Phase::Complete { .. }),
            reason: reason.into(),
            subject: (plan.awaited().filter(|_| reason == WAVE_NOT_OPEN))
                .map(|why| plan.awaited_subject(why).into()),
            stalled_since: stall.map(|_| whole(before.stalled_since.unwrap_or(now))),
            behind_since: fleet.behind_since.filter(|_| is_unknown).map(whole),
            advised: stall
                .filter(|stall| leads_back(*stall))
                .and_then(|_| undo_target(fleet)?.number),
            reversal: reversal
                .and_then(|reversal| reversal.stage())
                .map(|stage| stage.word().into()),
        },
        not_created: fleet.not_created.clone().filter(|_| waits_for_creation),
        not_ready: if plan.overdue.is_empty() {
            BTreeMap::new()
        } else {
            fleet.not_ready.clone()
        },
        failing: stall.map_or_else(Vec::new, |_| failing(fleet)),
        unknown: known.unknown.clone(),
        ..RolloutState::default()
    }
}

/// Returns the condition that saves `state`. If a later release of yurt-ds wrote the current condition, returns the current one
/// unchanged.
pub(super) fn to_condition(set: &SetRecord, state: &RolloutState) -> Condition {
    let known = find(&set.conditions, ROLLOUT_STATE).filter(|_| set.state.is_newer());
    match known {
        Some(known) => known.clone(),
        None => Condition {
            message: state.to_json(),
            ..condition(ROLLOUT_STATE, true, &generation_word(&state.reported), "")
        },
    }
}

/// Returns the generation that the conditions describe, in the form of a reason for the condition `RolloutState`.
///
/// Conditions of a native DaemonSet have no field for the generation. The expressions of Argo CD and Flux can compare a reason, but
/// can't parse JSON.
fn generation_word(reported: &Reported) -> String {
    let generation = reported.generation.map(|generation| generation.to_string());
    format!("Generation{}", generation.as_deref().unwrap_or("Unknown"))
}

/// Returns true if a rollback can resolve this stall.
fn leads_back(stall: Stall) -> bool {
    match stall {
        Stall::FailedByRevision
        | Stall::ReplacedTwice
        | Stall::PodsDoNotStart
        | Stall::ImagesNotPulled
        | Stall::PodsNotCreated
        | Stall::NoProgress => true,
        Stall::WindowNeverOpens
        | Stall::PodsKeptAway
        | Stall::WritesRefused
        | Stall::HookPending
        | Stall::BlockedByPdb
        | Stall::NativeControllerBehind => false,
    }
}

/// Returns the nodes on which pods keep failing, by cause.
///
/// For each cause, only the first node's message is saved, because the messages differ only in numbers. After a restart of the
/// controller, the statuses of the existing pods show their own messages again.
fn failing(fleet: &Fleet) -> Vec<FailingPods> {
    let mut causes: BTreeMap<&str, FailingPods> = BTreeMap::new();
    for node in &fleet.nodes {
        let Some(trouble) = &node.trouble else {
            continue;
        };
        let reason = PodProblem::steady(trouble.word());
        let cause = causes.entry(reason).or_insert_with(|| FailingPods {
            reason: reason.into(),
            message: trouble.detail.clone(),
            nodes: Vec::new(),
        });
        if cause.nodes.len() < NAMED {
            cause.nodes.push(node.name.clone());
        }
    }
    causes.into_values().collect()
}

/// Returns the time in whole seconds, like all times in a status.
fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
