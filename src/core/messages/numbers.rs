//! Sentences about a phase with current numbers, for `ctl`. Conditions don't contain such numbers.

use super::NextStep;
use super::groups::opening_words;
use super::guarded::rollback_words;
use super::rollout::RolloutView;
use super::slots::about_to_be;
use super::status::{BLOCKED, OUT_OF_WINDOW, PULL_PENDING, StatusSentence};
use crate::core::instant;
use crate::core::names::PROGRESSING;
use crate::core::plan::Phase;
use crate::core::settings::Mode;
use crate::core::verdict::{Progress, PullStage, Verdict, WaveShut};
use crate::core::words::{append, joined, nodes, plural};

/// Returns sentences about the next opening of a maintenance window; empty if no node waits for one.
///
/// If another cause affects more nodes than windows do, the sentence about that cause comes first.
fn opening(rollout: &RolloutView<'_>) -> Vec<String> {
    let plan = rollout.plan;
    let Some(at) = plan.next_opening() else {
        return Vec::new();
    };
    let words = opening_words(rollout.fleet, plan, rollout.strategy, at);
    let left = instant::between(rollout.now, at);
    match outnumbering(rollout) {
        None => vec![format!(
            "maintenance window closed; opens {words} (in {left})"
        )],
        Some(other) => {
            let waiting = plan.out_of_window();
            let wait = plural(waiting, "waits", "wait");
            vec![
                other,
                format!(
                    "{} {wait} for the maintenance window, which opens {words} (in {left})",
                    nodes(waiting)
                ),
            ]
        }
    }
}

/// Returns the cause that affects more nodes than maintenance windows do.
///
/// `None` if no other cause affects more nodes, or if the whole rollout waits for a window.
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
    (moves && nodes > plan.out_of_window()).then(|| format!("{nodes} nodes wait {cause}"))
}

/// Returns the message about the phase: the sentence of the condition, with current numbers and next steps.
pub fn message(rollout: &RolloutView<'_>, status: &StatusSentence) -> String {
    let text = with_numbers(rollout, status);
    match rollout.phase {
        Phase::Paused { .. } => joined([text, paused_next(rollout).to_string()]),
        _ => text,
    }
}

/// Returns the message about the phase without next steps.
pub fn fact(rollout: &RolloutView<'_>, status: &StatusSentence) -> String {
    with_numbers(rollout, &status.without_steps())
}

/// Returns the next steps for the phase, best first.
pub fn next_steps(rollout: &RolloutView<'_>, status: &StatusSentence) -> Vec<NextStep> {
    let key = rollout.key;
    let one = |text: &str, command: String| vec![NextStep::command(text, command)];
    match rollout.phase {
        // The plan of a DaemonSet with invalid settings contains an artificial pause, so its steps don't apply.
        Phase::Invalid => one("what to correct", format!("yurt-ds ctl settings {key}")),
        Phase::Paused { .. } => {
            let steps = status.next.iter().cloned();
            steps.chain([paused_next(rollout)]).collect()
        }
        _ if !status.next.is_empty() => status.next.clone(),
        Phase::Complete { .. } => Vec::new(),
        Phase::Stalled(_) => one("why a node waits", format!("yurt-ds ctl why {key} NODE")),
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

fn with_numbers(rollout: &RolloutView<'_>, status: &StatusSentence) -> String {
    let counts = &rollout.plan.counts;
    // For an active rollout, the numbers already show the progress. Add only the details of the sentence.
    let rest = match status.reason {
        PROGRESSING => joined(status.details()),
        _ => status.sentence(),
    };
    match rollout.phase {
        Phase::Complete { .. } => complete(rollout, status),
        Phase::Progressing if status.reason == OUT_OF_WINDOW => {
            let parts = [updated(rollout)].into_iter().chain(opening(rollout));
            joined(parts.chain(offline(rollout)).chain(status.details()))
        }
        Phase::Progressing => {
            let slots = rollout.slots(" slots") + &about_to_be(rollout);
            let opening = match status.reason {
                // A sentence with this reason already contains the maintenance windows.
                PULL_PENDING | BLOCKED => Vec::new(),
                _ => opening(rollout),
            };
            let parts = [format!("{}, {slots}", updated(rollout))];
            joined(
                parts
                    .into_iter()
                    .chain(offline(rollout))
                    .chain(opening)
                    .chain([rest]),
            )
        }
        Phase::AwaitingOwners | Phase::AwaitingDeletions => {
            joined([updated(rollout), rest].into_iter().chain(offline(rollout)))
        }
        Phase::RevisionUnknown(_) | Phase::Stale(_) => status.sentence(),
        Phase::Stalled(_) => joined(
            [status.sentence()]
                .into_iter()
                .chain(rollback_words(rollout)),
        ),
        Phase::Paused { until } => {
            let ends = until.map_or_else(String::new, |until| {
                format!(" (in {})", instant::between(rollout.now, until))
            });
            let left = (counts.outdated > 0).then(|| format!("{} left", nodes(counts.outdated)));
            let parts = [format!("{}{ends}", status.head)].into_iter();
            joined(parts.chain(status.details()).chain(left))
        }
        Phase::Invalid => rollout
            .invalid
            .map_or_else(String::new, ToString::to_string),
    }
}

/// Returns the sentence about a complete rollout, with the number of updated nodes and the nodes that lack a pod.
fn complete(rollout: &RolloutView<'_>, status: &StatusSentence) -> String {
    let mut text = match rollout.plan.counts.targeted {
        0 => status.sentence(),
        _ => joined([updated(rollout)].into_iter().chain(status.details())),
    };
    let lacking = rollout.unavailable();
    if lacking > 0 {
        let have = plural(lacking, "has", "have");
        append(
            &mut text,
            &format!("{} {have} no available pod", nodes(lacking)),
        );
    }
    text
}

/// Returns the number of nodes that run the current revision.
fn updated(rollout: &RolloutView<'_>) -> String {
    let targeted = rollout.plan.counts.targeted;
    match (rollout.plan.running(), targeted) {
        (1, 1) => "1 node updated".to_owned(),
        (running, _) if running == targeted => format!("all {targeted} nodes updated"),
        (running, _) => format!("{running} of {targeted} nodes updated"),
    }
}

/// Returns a sentence about outdated offline nodes; `None` if there are none. Only for a rolling update, it says when they will be
/// updated: in the other modes, a person decides that.
fn offline(rollout: &RolloutView<'_>) -> Option<String> {
    let count = rollout.plan.counts.offline_outdated;
    let are = plural(count, "is", "are");
    let then = match rollout.strategy.mode {
        Mode::AdvancedRollingUpdate => rollout.plan.updated_later(rollout.strategy, count),
        Mode::Ota | Mode::OnDelete => String::new(),
    };
    (count > 0).then(|| format!("{} {are} offline{then}", nodes(count)))
}
