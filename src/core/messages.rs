//! Messages about rollouts, which conditions, Events, `ctl` and metrics use.
//!
//! ```text
//! (fleet, plan) ─RolloutStatus─► reason and sentence of conditions and Events       (status, stall, groups)
//! RolloutView ─message─► the same sentence with current numbers                      (numbers)
//! RolloutView, node ─explain─► reason for the node's state                           (node and its submodules)
//! RolloutView, node ─remedy─► steps that change the state, with commands             (node and its submodules)
//! ```
//!
//! Each message states a fact, its cause and the next step. `tests/golden/messages.txt` contains one example of every message.
//!
//! A condition is written when its sentence changes. Therefore sentences of [`RolloutStatus`] contain no numbers that change with
//! every pod. Messages of `ctl` are not stored, so they contain such numbers. Remedies for a failing revision are in
//! [`remedy`](super::remedy).

mod budgets;
pub mod events;
mod groups;
mod guarded;
mod headline;
pub mod node;
mod numbers;
mod offline;
pub(super) mod overdue;
pub mod pages;
mod pause;
mod pods;
mod progress;
pub mod pulls;
pub mod refusals;
pub mod rollout;
mod slots;
mod stall;
mod status;

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use groups::opening_words;
pub use guarded::{DeletedNode, NOT_REVERTED, gone, rollback_words};
pub use numbers::{fact, message, next_steps};
pub use pause::{newcomers, paused_words, quietly_paused, still_paused};
pub use pods::revision_word;
pub use progress::kept_words;
pub use pulls::is_about_jobs;
pub use slots::{about_to_be, holders};
pub use status::{
    BLOCKED, HELD, NATIVE_BEHIND, NextStep, STALE_DATA, StatusSentence, UNDER_WAY, WAVE_NOT_OPEN,
    WRITES_REFUSED, behind_remedy, behind_words,
};

use rollout::SetName;
use status::{COMPLETE, OUT_OF_WINDOW, PULL_PENDING, unrevised};

use super::fleet::{Fleet, Node, Readiness, by_name};
use super::id::NodeName;
use super::instant;
use super::names::{INVALID_SETTINGS, PROGRESSING};
use super::plan::{Phase, Plan, StaleData, Stall};
use super::settings::Strategy;
use super::settings::partition::PARTITION;
use super::verdict::{Guarded, Stopped, Verdict};
use super::words::{append, named};

/// View of a rollout from which conditions and Events are written.
#[derive(Clone, Copy)]
pub struct RolloutStatus<'a> {
    /// Name of the DaemonSet.
    pub set: SetName<'a>,
    /// Current state of the nodes and pods.
    pub fleet: &'a Fleet,
    /// Decision of the controller for the current state.
    pub plan: &'a Plan,
    /// Settings, with defaults for invalid ones.
    pub strategy: &'a Strategy,
}

impl Plan {
    /// Returns the phase to report. `was_complete` is true if the rollout of the same revision was complete before.
    ///
    /// A complete rollout stays complete as long as no node is outdated, because restarted pods and new nodes are normal. It counts
    /// as incomplete only while the guard evaluates a lost node.
    pub fn reported_phase(&self, was_complete: bool) -> Phase {
        let counts = &self.counts;
        let is_daily_life = match self.phase {
            Phase::Stalled(Stall::FailedByRevision | Stall::ReplacedTwice) => false,
            Phase::Progressing | Phase::Stalled(_) => counts.outdated == 0 && counts.lost == 0,
            _ => false,
        };
        let is_evaluating = matches!(self.guarded, Some(Guarded::Inconclusive { .. }));
        if is_daily_life && was_complete && !is_evaluating {
            Phase::Complete {
                offline: counts.offline_outdated,
                kept: counts.kept + counts.repelled,
            }
        } else {
            self.phase
        }
    }
}

/// Describes the stale data because of which the controller changes no pods.
fn stale(stale: StaleData) -> StatusSentence {
    let words = format!(
        "no pods are changed: no data about {} since {}",
        stale.resource,
        instant::words(stale.heard)
    );
    let next = "check the controller's connection to the API server";
    StatusSentence::new(STALE_DATA, words).with_next(Some(NextStep::plain(next)))
}

/// Returns the message about a DaemonSet whose deletion doesn't finish, with the finalizers that keep the object.
pub fn undeletable(finalizers: &[&str]) -> String {
    format!(
        "it is being deleted, so its rollout has ended and no pods are created. Finalizers keep the object and its pods: {}. \
         The components that set them have to remove them",
        finalizers.join(", ")
    )
}

impl RolloutStatus<'_> {
    /// Returns the status sentence for this phase.
    pub fn describe(&self, phase: Phase) -> StatusSentence {
        let status = self.state(phase);
        let (fleet, plan) = (self.fleet, self.plan);
        let overdue = match phase {
            Phase::Progressing | Phase::AwaitingOwners | Phase::AwaitingDeletions => {
                plan.overdue_words(fleet)
            }
            _ => None,
        };
        let refused = match phase {
            // The status sentence already reports the rejected writes.
            Phase::Stalled(Stall::WritesRefused) => None,
            _ => Some(plan.refused.sentence()),
        };
        let paused = matches!(phase, Phase::Stalled(_)) && plan.pause.is_some();
        let paused = paused.then(|| {
            NextStep::command(
                "the rollout is paused; to continue with the next version",
                format!("yurt-ds ctl resume {}", self.set),
            )
        });
        let windows = self.windows_asides(phase, status.reason);
        let facts = [self.budgets_aside(phase)].into_iter().chain(windows);
        status
            .with([overdue, refused].into_iter().flatten())
            .with_next(paused)
            .with(facts.flatten())
    }

    /// Returns the sentence about the nodes whose holds end next; `None` if the rollout also waits for anything else.
    pub fn held(&self) -> Option<StatusSentence> {
        let is_over = matches!(
            self.plan.phase,
            Phase::Complete { .. } | Phase::Stalled(Stall::WindowNeverOpens)
        );
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let ends = nodes.filter_map(|(node, verdict)| match verdict {
            Verdict::Held { until: Some(until) } if is_over => Some((*until, node)),
            _ => None,
        });
        let ends: Vec<(Timestamp, &Node)> = ends.collect();
        let until = ends.iter().map(|(until, _)| *until).min()?;
        let first = ends.iter().filter(|(end, _)| *end == until);
        let names = named(first.clone().map(|(_, node)| node.name.as_str()), 0);
        let mut words = format!("on hold until {}: {names}", instant::words(until));
        let hold = first.clone().find_map(|(_, node)| node.hold.as_ref());
        let reason = hold.filter(|hold| !hold.reason.is_empty());
        if let Some(hold) = reason {
            append(&mut words, &format!("reason: {}", hold.reason));
        }
        Some(StatusSentence::new(HELD, words))
    }

    fn state(&self, phase: Phase) -> StatusSentence {
        match phase {
            Phase::Complete { offline, kept } => self.complete(offline, kept),
            Phase::Progressing => self.progressing(),
            Phase::RevisionUnknown(behind) => {
                let since = self.fleet.behind_since.map_or_else(String::new, |since| {
                    format!(" since {}", instant::words(since))
                });
                let words = format!("waiting{since}: {}", behind_words(self.fleet.kind, behind));
                StatusSentence::new(NATIVE_BEHIND, words).with(unrevised(self.fleet))
            }
            Phase::Stale(data) => stale(data),
            Phase::Stalled(stall) => self.stalled(stall),
            Phase::Paused { until } => {
                let paused = StatusSentence::new("Paused", paused_words(until));
                self.with_stop(paused)
            }
            // The text of `StatusSentence` comes from the invalid setting.
            Phase::Invalid => StatusSentence::new(INVALID_SETTINGS, ""),
            Phase::AwaitingDeletions => StatusSentence::new(
                "AwaitingDeletions",
                "waiting for the deletion of the outdated pods: updateStrategy.type is OnDelete",
            ),
            Phase::AwaitingOwners => StatusSentence::new(
                "AwaitingOwners",
                "waiting for node owners to install the new version on their nodes",
            ),
        }
    }

    fn complete(&self, offline: usize, kept: usize) -> StatusSentence {
        let exceptions = self.plan.exceptions(self.fleet, self.strategy);
        let deleted = self.deleted_aside();
        let of = |reason| StatusSentence::new(reason, COMPLETE).with(exceptions.clone());
        match (offline, kept) {
            _ if deleted.is_some() => of("CompleteExceptFailed").with(deleted),
            _ if self.plan.counts.lost > 0 => {
                let repair = Some("repair these nodes".to_owned());
                of("CompleteExceptFailed").with(self.failed_aside().into_iter().chain(repair))
            }
            (0, 0) if self.plan.counts.targeted == 0 => {
                StatusSentence::new("Complete", "complete: the template matches no node")
            }
            (0, 0) => of("Complete"),
            (_, 0) if self.plan.pause.is_some() => {
                let resume = format!("yurt-ds ctl resume {}", self.set);
                of("CompleteExceptOffline").with_next(Some(NextStep::command("to resume", resume)))
            }
            (_, 0) => of("CompleteExceptOffline").with(Some("no action needed".to_owned())),
            _ => of("CompleteExceptKept").with_next(self.past_partition()),
        }
    }

    /// Returns the step that updates the nodes that `partition` keeps; `None` if `partition` keeps none.
    fn past_partition(&self) -> Option<NextStep> {
        if self.plan.counts.of_kind(Verdict::Partition) == 0 {
            return None;
        }
        let SetName { namespace, name } = self.set;
        let kind = self.fleet.kind.short_name();
        Some(match self.strategy.name_of(PARTITION) {
            PARTITION => NextStep::command(
                "to continue",
                format!("kubectl -n {namespace} annotate {kind} {name} {PARTITION}-"),
            ),
            field => NextStep::plain(format!("to continue, lower {field}")),
        })
    }

    fn progressing(&self) -> StatusSentence {
        let plan = self.plan;
        if let Some(guarded @ Guarded::Inconclusive { until }) = plan.guarded {
            let (until, why) = (instant::words(until), plan.evaluation_words());
            return StatusSentence::new(
                guarded.word(),
                format!("no further updates before {until}: {why}"),
            );
        }
        if let Some(opens) = self.opening().filter(|_| plan.is_out_of_window()) {
            let words = format!("maintenance window closed; opens {opens}");
            return StatusSentence::new(OUT_OF_WINDOW, words).with_next(self.past_window());
        }
        if plan.is_pull_pending() {
            let words = "waiting for nodes to pull the new images";
            let awaited = plan.pulls_await.map(|awaited| awaited.words());
            return StatusSentence::new(PULL_PENDING, words).with(awaited);
        }
        if plan.blocked {
            let words = format!("waiting: {}", plan.blocked_words(self.fleet));
            let (next, look) = plan.unblocking(self.fleet, self.set.namespace);
            let mut status = StatusSentence::new(BLOCKED, words).with_next(Some(next));
            status.next.extend(look);
            return status;
        }
        if let Some(why) = plan.awaited() {
            let words = format!("waiting {}", plan.awaited_words(why));
            return StatusSentence::new(WAVE_NOT_OPEN, words);
        }
        let paced = plan.opens.filter(|_| plan.tells_opening).map(|at| {
            format!(
                "the next node is updated at {}: min-interval",
                instant::words(at)
            )
        });
        let asides = [
            paced,
            plan.pulls_await.map(|awaited| awaited.words()),
            self.failed_aside(),
            self.hooks_aside(),
        ];
        StatusSentence::new(PROGRESSING, "being rolled out").with(asides.into_iter().flatten())
    }

    /// Returns the sentence about a pause. If the guard has stopped the revision, the sentence also says that.
    fn with_stop(&self, paused: StatusSentence) -> StatusSentence {
        let plan = self.plan;
        if plan.guarded != Some(Guarded::Stopped(Stopped::FailedByRevision)) {
            return paused;
        }
        let reverts = plan.pause.as_ref().is_some_and(|stand| stand.reverts);
        let then = if reverts {
            "RevertInPlace rolls pods back after the rollout is resumed"
        } else {
            "if you roll back, the rollback starts after the rollout is resumed"
        };
        let failed = plan.failed_words(self.fleet);
        paused
            .with([
                format!("the guard stopped this revision: {failed}"),
                then.to_owned(),
            ])
            .with_next(Some(self.roll_back()))
    }

    /// Returns a sentence about the nodes that disruption budgets block; `None` if any node makes progress.
    ///
    /// While a node makes progress, the next eviction may succeed, so a report would be premature.
    fn budgets_aside(&self, phase: Phase) -> Option<String> {
        let plan = self.plan;
        let waits = match phase {
            Phase::Progressing => !plan.blocked && plan.awaits_hooks_only(),
            Phase::Stalled(stall) => stall != Stall::BlockedByPdb,
            _ => false,
        };
        let names = self.names_with(Verdict::is_blocked).filter(|_| waits)?;
        Some(format!("{names} wait: {}", plan.blocked_words(self.fleet)))
    }

    /// Returns sentences about nodes that wait for a maintenance window, to be added to a sentence about another cause.
    fn windows_asides(&self, phase: Phase, reason: &str) -> [Option<String>; 2] {
        let plan = self.plan;
        let shut = match phase {
            Phase::Stalled(Stall::WindowNeverOpens) => None,
            Phase::Progressing | Phase::Stalled(_) => plan.shut_words(self.fleet),
            _ => None,
        };
        let opens = match phase {
            Phase::Stalled(Stall::WritesRefused | Stall::BlockedByPdb) => self.opening(),
            Phase::Progressing if plan.blocked || reason == PULL_PENDING => self.opening(),
            _ => None,
        };
        let opens = opens
            .map(|at| format!("other nodes wait for their maintenance window, which opens {at}"));
        [opens, shut]
    }

    /// Returns the time at which the next maintenance window opens, in the time zone of that window; `None` if no node waits for a
    /// window.
    fn opening(&self) -> Option<String> {
        let at = self.plan.next_opening()?;
        Some(opening_words(self.fleet, self.plan, self.strategy, at))
    }

    /// Returns the step that starts a rollout outside its window. `None` if all waiting nodes have windows of their own.
    fn past_window(&self) -> Option<NextStep> {
        let waits = |verdict: &Verdict| matches!(verdict, Verdict::OutOfWindow { .. });
        let mut waiting = self.plan.nodes_with(self.fleet, waits);
        let of_set = waiting.any(|node| node.window.is_none());
        let start_now = || format!("yurt-ds ctl start-now {}", self.set);
        of_set.then(|| NextStep::command("to start now", start_now()))
    }

    /// Returns a sentence with the nodes that failed with this revision and were deleted since; `None` if there are none.
    fn deleted_aside(&self) -> Option<String> {
        let failed = self.plan.record.iter().flat_map(|record| &record.failed);
        let deleted: BTreeSet<&str> = failed
            .filter(|name| {
                let node = by_name(&self.fleet.nodes, name);
                // A deleted Node counts as gone, although its pod object may exist for another minute.
                node.is_none_or(|node| node.readiness == Readiness::Gone)
            })
            .map(NodeName::as_str)
            .collect();
        (!deleted.is_empty()).then(|| {
            format!(
                "nodes that failed with this revision and were deleted: {}",
                named(deleted, 0)
            )
        })
    }

    /// Returns a sentence with the nodes that failed with this revision; `None` if there are none.
    fn failed_aside(&self) -> Option<String> {
        let names = self.names_with(Verdict::is_failed)?;
        Some(format!("failed with this revision: {names}"))
    }

    fn names_with(&self, is_wanted: fn(&Verdict) -> bool) -> Option<String> {
        let nodes = self.plan.nodes_with(self.fleet, is_wanted);
        let names = named(nodes.map(|node| node.name.as_str()), 0);
        (!names.is_empty()).then_some(names)
    }
}

#[cfg(test)]
mod tests;
