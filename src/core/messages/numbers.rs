//! The sentence of a phase with the numbers of this moment, which stand in no condition.

use super::guarded::reversal_words;
use super::reasons::{COMPLETE, StatusSentence};
use super::rollout::RolloutView;
use super::slots::about_to_be;
use crate::core::instant;
use crate::core::names::PROGRESSING;
use crate::core::plan::Phase;
use crate::core::settings::Mode;
use crate::core::words::plural;

/// When the next maintenance window opens, for nodes that wait for it.
fn opening(rollout: &RolloutView<'_>) -> String {
    let opens = rollout.plan.next_opening();
    opens.map_or_else(String::new, |at| {
        format!(", the next window opens at {}", instant::words(at))
    })
}

/// How many slots are taken: of `max-unavailable`, of `max-surge`, or of both.
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

/// A sentence about the phase: that of the conditions, and the numbers of this moment.
pub fn message(rollout: &RolloutView<'_>, said: &StatusSentence) -> String {
    let counts = &rollout.plan.counts;
    match rollout.phase {
        Phase::Complete { .. } => complete(rollout, said),
        Phase::Progressing => format!(
            "{}, {}{}{}{}{}",
            share(rollout),
            slots(rollout),
            about_to_be(rollout),
            offline(rollout),
            opening(rollout),
            state_aside(said)
        ),
        Phase::AwaitingOwners | Phase::AwaitingDeletions => format!(
            "{}{}{}",
            share(rollout),
            state_aside(said),
            offline(rollout)
        ),
        Phase::RevisionUnknown(_) | Phase::Stale(_) => said.sentence(),
        Phase::Stalled(_) => {
            format!(
                "{}; {}{}",
                said.sentence(),
                slots(rollout),
                reversal_words(rollout)
            )
        }
        Phase::Paused { until } => {
            let left = counts.outdated;
            let ends = match (until, rollout.is_stopped()) {
                (None, true) => format!("the pause ends with: yurt-ds ctl resume {}", rollout.key),
                (None, false) => format!("goes on after: yurt-ds ctl resume {}", rollout.key),
                (Some(until), true) => {
                    format!("the pause ends in {}", instant::between(rollout.now, until))
                }
                (Some(until), false) => {
                    format!(
                        "goes on by itself in {}",
                        instant::between(rollout.now, until)
                    )
                }
            };
            format!(
                "{}; {left} {} left; {ends}",
                said.sentence(),
                plural(left, "node", "nodes")
            )
        }
        Phase::Invalid => rollout
            .invalid
            .map_or_else(String::new, ToString::to_string),
    }
}

/// How many nodes run it.
fn share(rollout: &RolloutView<'_>) -> String {
    let targeted = rollout.plan.counts.targeted;
    format!("{} of {targeted} nodes run it", rollout.plan.running())
}

/// What is said of a rollout that goes on, to follow its numbers; that it does is the phase itself.
fn state_aside(said: &StatusSentence) -> String {
    match said.reason {
        PROGRESSING => said.asides.clone(),
        _ => format!("; {}", said.sentence()),
    }
}

/// What is said of a complete rollout, and that nodes lack a pod nevertheless.
fn complete(rollout: &RolloutView<'_>, said: &StatusSentence) -> String {
    let targeted = rollout.plan.counts.targeted;
    let (lacking, asides) = (rollout.unavailable(), &said.asides);
    let whole = match (said.head.as_str(), lacking) {
        (COMPLETE, 0) => format!(
            "{} {} it{asides}",
            all(targeted),
            plural(targeted, "runs", "run")
        ),
        (COMPLETE, _) => format!("it was rolled out to {}{asides}", all(targeted)),
        _ => said.sentence(),
    };
    match lacking {
        0 => whole,
        1 => format!("{whole}; 1 node has no available pod at the moment"),
        lacking => format!("{whole}; {lacking} nodes have no available pod at the moment"),
    }
}

/// Who is offline and left, to follow a sentence; under OTA nobody follows by itself.
fn offline(rollout: &RolloutView<'_>) -> String {
    let nodes = rollout.plan.counts.offline_outdated;
    match (rollout.strategy.mode, nodes) {
        (_, 0) => String::new(),
        (Mode::AdvancedRollingUpdate, 1) => "; 1 is offline and follows when it returns".to_owned(),
        (Mode::AdvancedRollingUpdate, _) => {
            format!("; {nodes} are offline and follow when they return")
        }
        (Mode::OnDelete, 1) => "; 1 of those is offline".to_owned(),
        (Mode::OnDelete, _) => format!("; {nodes} of those are offline"),
        (Mode::Ota, 1) => "; 1 is offline, and its owner can upgrade it when it is back".to_owned(),
        (Mode::Ota, _) => {
            format!("; {nodes} are offline, and their owners can upgrade them when they are back")
        }
    }
}

/// Every one of so many nodes.
fn all(nodes: usize) -> String {
    match nodes {
        1 => "the one node".to_owned(),
        nodes => format!("all {nodes} nodes"),
    }
}
