//! Sentences about a phase with current numbers, for `ctl`. Conditions don't contain such numbers.

use super::NextStep;
use super::groups::opening_words;
use super::guarded::reversal_words;
use super::reasons::{BLOCKED, COMPLETE, OUT_OF_WINDOW, PULL_PENDING, StatusSentence};
use super::rollout::RolloutView;
use super::slots::about_to_be;
use crate::core::instant;
use crate::core::names::PROGRESSING;
use crate::core::plan::Phase;
use crate::core::settings::Mode;
use crate::core::verdict::{Progress, PullStage, Verdict, WaveShut};
use crate::core::words::plural;

/// Returns a clause about the next opening of a maintenance window, if nodes wait for it.
///
/// A cause that affects more nodes is put before it.
fn opening(rollout: &RolloutView<'_>) -> String {
    let plan = rollout.plan;
    let Some(at) = plan.next_opening() else {
        return String::new();
    };
    let words = opening_words(rollout.fleet, plan, rollout.strategy, at);
    let left = instant::between(rollout.now, at);
    match outnumbering(rollout) {
        None => format!("; maintenance window closed; opens {words} (in {left})"),
        Some(other) => {
            let waiting = plan.out_of_window();
            format!(
                "{other}; {waiting} {} for {} maintenance window, which opens {words} (in {left})",
                plural(waiting, "node waits", "nodes wait"),
                plural(waiting, "its", "their")
            )
        }
    }
}

/// Returns the cause that affects more nodes than maintenance windows do.
///
/// `None` if windows affect the most nodes, or if no further update begins before a window opens.
fn outnumbering(rollout: &RolloutView<'_>) -> Option<String> {
    let plan = rollout.plan;
    let counts = &plan.counts;
    let pulls = counts.of_kind(Verdict::PullPending(PullStage::AwaitingReady));
    let begins = counts.of_kind(Verdict::InProgress(Progress::Replacing));
    let moves = pulls + begins > 0 || plan.awaits_hooks();
    let causes = [
        (pulls, "to pull the images"),
        (
            counts.of_kind(Verdict::AwaitingDomain),
            "for other failure domains",
        ),
        (
            counts.of_kind(Verdict::Budget { broken: false }),
            "for a free slot",
        ),
    ];
    let (nodes, cause) = causes.into_iter().max_by_key(|(nodes, _)| *nodes)?;
    (moves && nodes > plan.out_of_window()).then(|| format!("; {nodes} nodes wait {cause}"))
}

/// Returns the number of used slots of `max-unavailable`, of `max-surge`, or of both.
fn slots(rollout: &RolloutView<'_>) -> String {
    let counts = &rollout.plan.counts;
    let down = format!(
        "{} of {} slots taken",
        rollout.unavailable(),
        counts.allowed
    );
    let beside = format!(
        "{} of {} slots of max-surge taken",
        rollout.surge_taken(),
        counts.surge_allowed
    );
    rollout.limits(down, beside)
}

/// Returns the message about the phase: the sentence of the condition, with current numbers and next steps.
pub fn message(rollout: &RolloutView<'_>, said: &StatusSentence) -> String {
    match rollout.phase {
        Phase::Paused { .. } => format!("{}; {}", told(rollout, said), paused_next(rollout)),
        Phase::Stalled(_) => format!("{}; {}", told(rollout, said), slots(rollout)),
        Phase::Progressing if said.reason == OUT_OF_WINDOW => {
            let steps = said.next.iter().map(|step| format!("; {step}"));
            format!("{}{}", told(rollout, said), steps.collect::<String>())
        }
        _ => told(rollout, said),
    }
}

/// Returns the message about the phase without next steps.
pub fn fact(rollout: &RolloutView<'_>, said: &StatusSentence) -> String {
    let said = StatusSentence {
        head: said.fact.clone(),
        ..said.clone()
    };
    told(rollout, &said)
}

/// Returns the next steps for the phase, best first.
pub fn next_steps(rollout: &RolloutView<'_>, said: &StatusSentence) -> Vec<NextStep> {
    let key = rollout.key;
    let one = |text: &str, command: String| vec![NextStep::command(text, command)];
    match rollout.phase {
        _ if !said.next.is_empty() => said.next.clone(),
        Phase::Complete { .. } => Vec::new(),
        Phase::Paused { .. } => vec![paused_next(rollout)],
        Phase::Stalled(_) => one("why a node waits", format!("yurt-ds ctl why {key} NODE")),
        Phase::Invalid => one("what to correct", format!("yurt-ds ctl settings {key}")),
        Phase::AwaitingOwners => one(
            "on each node",
            format!("yurt-ds ctl upgrade {}/POD", key.namespace),
        ),
        Phase::AwaitingDeletions => one(
            "to update a node",
            format!("kubectl -n {} delete pod POD", key.namespace),
        ),
        Phase::RevisionUnknown(_) | Phase::Stale(_) => Vec::new(),
        Phase::Progressing => {
            let wave = match rollout.plan.awaited() {
                Some(WaveShut::Approval { wave }) => rollout.plan.waves.get(wave),
                _ => None,
            };
            match wave {
                Some(wave) => one(
                    "when all is well",
                    format!("yurt-ds ctl approve {key} {}", wave.name),
                ),
                None => one("to follow it", format!("yurt-ds ctl status {key} --watch")),
            }
        }
    }
}

/// Returns the next step that continues a paused rollout.
fn paused_next(rollout: &RolloutView<'_>) -> NextStep {
    let text = if rollout.is_stopped() {
        "to end the pause"
    } else {
        "to continue"
    };
    NextStep::command(text, format!("yurt-ds ctl resume {}", rollout.key))
}

fn told(rollout: &RolloutView<'_>, said: &StatusSentence) -> String {
    let counts = &rollout.plan.counts;
    match rollout.phase {
        Phase::Complete { .. } => complete(rollout, said),
        Phase::Progressing if said.reason == OUT_OF_WINDOW => format!(
            "{}{}{}{}",
            updated(rollout),
            opening(rollout),
            offline(rollout),
            said.asides
        ),
        Phase::Progressing => format!(
            "{}, {}{}{}{}{}",
            updated(rollout),
            slots(rollout),
            about_to_be(rollout),
            offline(rollout),
            match said.reason {
                // Sentences with these reasons mention the maintenance windows themselves.
                PULL_PENDING | BLOCKED => String::new(),
                _ => opening(rollout),
            },
            state_aside(said)
        ),
        Phase::AwaitingOwners | Phase::AwaitingDeletions => format!(
            "{}{}{}",
            updated(rollout),
            state_aside(said),
            offline(rollout)
        ),
        Phase::RevisionUnknown(_) | Phase::Stale(_) => said.sentence(),
        Phase::Stalled(_) => {
            format!("{}{}", said.sentence(), reversal_words(rollout))
        }
        Phase::Paused { until } => {
            let left = counts.outdated;
            let ends = until.map_or_else(String::new, |until| {
                format!("; it ends in {}", instant::between(rollout.now, until))
            });
            format!(
                "{}; {left} {} left{ends}",
                said.sentence(),
                plural(left, "node", "nodes")
            )
        }
        Phase::Invalid => rollout
            .invalid
            .map_or_else(String::new, ToString::to_string),
    }
}

/// Returns the clauses after the numbers of an active rollout. They don't repeat that the rollout is progressing.
fn state_aside(said: &StatusSentence) -> String {
    match said.reason {
        PROGRESSING => said.asides.clone(),
        _ => format!("; {}", said.sentence()),
    }
}

/// Returns the sentence about a complete rollout, with the number of updated nodes and the nodes that lack a pod.
fn complete(rollout: &RolloutView<'_>, said: &StatusSentence) -> String {
    let targeted = rollout.plan.counts.targeted;
    let whole = match said.sentence().strip_prefix(COMPLETE) {
        Some(rest) if targeted > 0 => format!("{}{rest}", updated(rollout)),
        _ => said.sentence(),
    };
    match rollout.unavailable() {
        0 => whole,
        1 => format!("{whole}; 1 node has no available pod now"),
        lacking => format!("{whole}; {lacking} nodes have no available pod now"),
    }
}

/// Returns the clause with the number of nodes that run the current revision.
fn updated(rollout: &RolloutView<'_>) -> String {
    let targeted = rollout.plan.counts.targeted;
    match (rollout.plan.running(), targeted) {
        (1, 1) => "1 node updated".to_owned(),
        (running, _) if running == targeted => format!("all {targeted} nodes updated"),
        (running, _) => format!("{running} of {targeted} nodes updated"),
    }
}

/// Returns a clause about outdated offline nodes. Under OTA the clause doesn't promise an automatic update.
fn offline(rollout: &RolloutView<'_>) -> String {
    let nodes = rollout.plan.counts.offline_outdated;
    match (rollout.strategy.mode, nodes) {
        (_, 0) => String::new(),
        (Mode::AdvancedRollingUpdate, 1) => {
            "; 1 node is offline and will be updated when it reconnects".to_owned()
        }
        (Mode::AdvancedRollingUpdate, _) => {
            format!("; {nodes} nodes are offline and will be updated when they reconnect")
        }
        (Mode::OnDelete, 1) => "; 1 of those is offline".to_owned(),
        (Mode::OnDelete, _) => format!("; {nodes} of those are offline"),
        (Mode::Ota, 1) => "; 1 is offline, and its owner can upgrade it when it is back".to_owned(),
        (Mode::Ota, _) => {
            format!("; {nodes} are offline, and their owners can upgrade them when they are back")
        }
    }
}
