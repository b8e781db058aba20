//! Messages about rollouts: conditions, Events, `ctl` and metrics all use them.
//!
//! ```text
//! (fleet, plan) ─RolloutStatus─► reason and sentence of conditions and Events       (said, stall, groups, blocked)
//! RolloutView ─message─► the same sentence with current numbers                      (numbers)
//! RolloutView, node ─explain─► reason for the node's state                           (node and its submodules)
//! RolloutView, node ─remedy─► steps that change the state, with commands             (next)
//! ```
//!
//! Sentences of [`RolloutStatus`] contain no numbers that change with every pod, because each change of a condition costs a
//! write. The messages of `ctl` are not stored and contain such numbers. For remedies for a failing revision see
//! [`remedy`](super::remedy).

mod blocked;
mod budgets;
mod deletion;
mod groups;
mod guarded;
mod headline;
pub mod next;
pub mod node;
pub mod not_created;
pub mod not_ready;
mod numbers;
pub(super) mod overdue;
pub mod pages;
mod pause;
mod pods;
pub mod pulls;
mod reasons;
pub mod refusals;
mod refused;
mod reversal;
pub mod rollout;
mod since;
mod slots;
mod stall;
mod step;
mod surging;
pub mod verdict;

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

pub use deletion::undeletable;
pub use groups::is_about_jobs;
use groups::opening_words;
pub use guarded::{DeletedNode, gone, reversal_words};
pub use numbers::{fact, message, next_steps};
pub use pause::{newcomers, paused_words, quietly_paused, still_paused};
pub use pods::revision_word;
pub use reasons::{
    BLOCKED, HELD, NATIVE_BEHIND, STALE_DATA, StatusSentence, UNDER_WAY, WAVE_NOT_OPEN,
    WRITES_REFUSED, behind_remedy, behind_words,
};
pub use reversal::NOT_REVERTED;
pub use slots::about_to_be;
pub use step::NextStep;
pub use surging::kept_words;

use node::held;
use reasons::{COMPLETE, OUT_OF_WINDOW, PULL_PENDING, unrevised};
use rollout::SetName;

use super::fleet::{Fleet, Node, Readiness, by_name};
use super::id::NodeName;
use super::instant;
use super::names::{INVALID_SETTINGS, PROGRESSING};
use super::plan::{Phase, Plan, PullsAwait, StaleData, Stall};
use super::remedy::way_on;
use super::settings::Strategy;
use super::settings::partition::PARTITION;
use super::verdict::{Guarded, Stopped, Verdict};
use super::words::named;

/// View of a rollout from which conditions and Events are written.
#[derive(Clone, Copy)]
pub struct RolloutStatus<'a> {
    /// Name of the DaemonSet.
    pub set: SetName<'a>,
    /// Current state of the nodes and pods.
    pub fleet: &'a Fleet,
    /// Decision that the controller takes for the current state.
    pub plan: &'a Plan,
    /// Settings, with defaults for invalid ones.
    pub strategy: &'a Strategy,
}

impl Plan {
    /// Returns the phase to report. `was_complete` is true if the rollout of the same revision was complete before.
    ///
    /// A complete rollout stays complete while no node is outdated, because restarted pods and new nodes are normal operation. It
    /// is incomplete again while the guard evaluates a lost node.
    pub fn standing(&self, was_complete: bool) -> Phase {
        let counts = &self.counts;
        let is_daily_life = match self.phase {
            Phase::Stalled(Stall::FailedByRevision | Stall::ReplacedTwice) => false,
            Phase::Progressing | Phase::Stalled(_) => counts.outdated == 0 && counts.lost == 0,
            _ => false,
        };
        let is_judging = matches!(self.guarded, Some(Guarded::Inconclusive { .. }));
        if is_daily_life && was_complete && !is_judging {
            Phase::Complete {
                offline: counts.offline_outdated,
                kept: counts.kept + counts.repelled,
            }
        } else {
            self.phase
        }
    }

    /// Describes the lost nodes that the guard evaluates. No update begins during the evaluation.
    pub fn judging_words(&self) -> String {
        let open = self.record.iter().flat_map(|record| {
            let judged = record.losses(false).map(|(name, _)| name);
            judged.chain(&record.updated_before_loss)
        });
        let lost: BTreeSet<&str> = open.map(NodeName::as_str).collect();
        let failed = self.record.iter().flat_map(|record| record.losses(true));
        let failed: BTreeSet<&str> = failed.map(|(name, _)| name.as_str()).collect();
        let count = lost.len();
        let names = named(lost, 0);
        match count {
            0 if failed.len() == 1 => format!(
                "node {}, which failed with this revision, is away now, and whether others follow is still to be seen",
                named(failed, 0)
            ),
            0 if !failed.is_empty() => format!(
                "nodes {}, which failed with this revision, are away now, and whether others follow is still to be seen",
                named(failed, 0)
            ),
            0 => {
                "a pod was taken back from this revision a moment ago, and why is still to be read"
                    .to_owned()
            }
            1 => format!(
                "node {names} was lost, and it is open whether this revision or the network took it away"
            ),
            _ => format!(
                "nodes {names} were lost, and it is open whether this revision or the network took them away"
            ),
        }
    }
}

/// Describes the stale data for which the controller changes no pods.
fn stale_words(stale: StaleData) -> String {
    format!(
        "no news of {} since {}: pods are not changed until the API server is heard again; check the controller's connection to it",
        stale.resource,
        instant::words(stale.heard)
    )
}

impl RolloutStatus<'_> {
    /// Returns the status sentence for this phase.
    pub fn said(&self, phase: Phase) -> StatusSentence {
        let state = self.state(phase);
        let plan = self.plan;
        let overdue = match phase {
            Phase::Progressing | Phase::AwaitingOwners | Phase::AwaitingDeletions => {
                plan.overdue_aside(self.fleet)
            }
            _ => String::new(),
        };
        let refused = match phase {
            // The status sentence already reports the rejected writes.
            Phase::Stalled(Stall::WritesRefused) => String::new(),
            _ => plan.refused.aside(),
        };
        let asides = state.asides
            + &overdue
            + &refused
            + &self.pause_aside(phase)
            + &self.budgets_aside(phase)
            + &self.windows_aside(phase, state.reason);
        StatusSentence { asides, ..state }
    }

    /// Returns the sentence about the nodes whose holds end next; `None` while anything other than time can change the state.
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
        let (until, first) = *ends.iter().min_by_key(|(until, _)| *until)?;
        let more = match ends.iter().filter(|(end, _)| *end == until).count() {
            1 => String::new(),
            nodes => format!(" (and {} more)", nodes - 1),
        };
        let words = format!("node {}{more} {}", first.name, held(first, Some(until)));
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
                let behind = behind_words(self.fleet.kind, behind);
                let head = format!("waiting{since}: {behind}{}", unrevised(self.fleet));
                StatusSentence::new(NATIVE_BEHIND, head)
            }
            Phase::Stale(stale) => StatusSentence::new(STALE_DATA, stale_words(stale)),
            Phase::Stalled(stall) => self.stalled(stall),
            Phase::Paused { until } => StatusSentence {
                asides: self.stopped_aside(),
                ..StatusSentence::new("Paused", paused_words(until))
            },
            // `StatusSentence` takes its text from the invalid setting.
            Phase::Invalid => StatusSentence::new(INVALID_SETTINGS, ""),
            Phase::AwaitingDeletions => StatusSentence::new(
                "AwaitingDeletions",
                "waiting until somebody deletes the old pods (updateStrategy.type: OnDelete)",
            ),
            Phase::AwaitingOwners => StatusSentence::new(
                "AwaitingOwners",
                "waiting for the owners of nodes to upgrade (OTA)",
            ),
        }
    }

    fn complete(&self, offline: usize, kept: usize) -> StatusSentence {
        let exceptions = self.plan.exceptions(self.fleet, self.strategy);
        let gone = self.gone_aside();
        let of = |reason| {
            let head = if exceptions.is_empty() {
                COMPLETE.to_owned()
            } else {
                format!("{COMPLETE}; {}", exceptions.join("; "))
            };
            StatusSentence::new(reason, head)
        };
        match (offline, kept) {
            _ if !gone.is_empty() => StatusSentence {
                asides: gone,
                ..of("CompleteExceptFailed")
            },
            _ if self.plan.counts.lost > 0 => StatusSentence {
                asides: format!("{}; repair them", self.failed_aside()),
                ..of("CompleteExceptFailed")
            },
            (0, 0) if self.plan.counts.targeted == 0 => {
                StatusSentence::new("Complete", "complete: the template matches no node")
            }
            (0, 0) => of("Complete"),
            (_, 0) => StatusSentence {
                asides: "; no action needed".to_owned(),
                ..of("CompleteExceptOffline")
            },
            _ => of("CompleteExceptKept").with_next(self.past_partition()),
        }
    }

    /// Returns the step that updates the nodes that only `partition` keeps; `None` if there are none.
    fn past_partition(&self) -> Option<NextStep> {
        if self.plan.counts.of_kind(Verdict::Partition) == 0 {
            return None;
        }
        let SetName { namespace, name } = self.set;
        Some(match self.strategy.name_of(PARTITION) {
            PARTITION => NextStep::command(
                "to update them",
                format!(
                    "kubectl -n {namespace} annotate {} {name} {PARTITION}-",
                    self.fleet.kind.short_name()
                ),
            ),
            field => NextStep::plain(format!("to update them, lower {field}")),
        })
    }

    fn progressing(&self) -> StatusSentence {
        let plan = self.plan;
        if let Some(guarded @ Guarded::Inconclusive { until }) = plan.guarded {
            let words = format!(
                "nothing new begins before {}: {}",
                instant::words(until),
                plan.judging_words()
            );
            return StatusSentence::new(guarded.word(), words);
        }
        if let Some(opens) = self.opening().filter(|_| plan.is_out_of_window()) {
            let words = format!("maintenance window closed; opens {opens}");
            return StatusSentence::new(OUT_OF_WINDOW, words).with_next(self.past_window());
        }
        if plan.is_pull_pending() {
            let words = "waiting for nodes to pull its images (predownload: required)";
            return StatusSentence {
                asides: self.pulls_aside(),
                ..StatusSentence::new(PULL_PENDING, words)
            };
        }
        if plan.blocked {
            let words = format!("waiting: {}", plan.blocked_words(self.fleet));
            return StatusSentence::new(BLOCKED, words);
        }
        if let Some(why) = plan.awaited() {
            let words = format!("waiting {}", plan.awaited_words(why));
            return StatusSentence::new(WAVE_NOT_OPEN, words);
        }
        let paced = plan
            .opens
            .filter(|_| plan.tells_opening)
            .map_or_else(String::new, |at| {
                let at = instant::words(at);
                format!("; the next node is replaced at {at} (min-interval)")
            });
        StatusSentence {
            asides: paced + &self.pulls_aside() + &self.failed_aside() + &self.hooks_aside(),
            ..StatusSentence::new(PROGRESSING, "being rolled out")
        }
    }

    /// Returns a clause that says that no node pre-pulls yet; empty if nodes do, or if pre-pulls are not configured.
    fn pulls_aside(&self) -> String {
        let awaits = self.plan.pulls_await.as_ref();
        awaits.map_or_else(String::new, PullsAwait::aside)
    }

    /// Returns a clause for a paused rollout whose revision the guard stopped, with the effect of a resume; empty if it was not
    /// stopped.
    fn stopped_aside(&self) -> String {
        let plan = self.plan;
        if plan.guarded != Some(Guarded::Stopped(Stopped::FailedByRevision)) {
            return String::new();
        }
        let reverts = plan.pause.as_ref().is_some_and(|stand| stand.reverts);
        let reverts = if reverts {
            "; when it is resumed, pods that have it are taken back in place (RevertInPlace)"
        } else {
            ""
        };
        format!(
            "; the guard stopped this revision: {}{reverts}; {}: either begins when it is resumed",
            plan.failed_words(self.fleet),
            way_on(self.fleet, &self.set)
        )
    }

    /// Returns a clause that says that the next rollout begins only after the pause ends.
    ///
    /// The clause follows the sentence about a stalled rollout in which no node waits for the pause.
    fn pause_aside(&self, phase: Phase) -> String {
        match (phase, &self.plan.pause) {
            (Phase::Stalled(_), Some(_)) => format!(
                "; it is paused, so what is rolled out next begins after: yurt-ds ctl resume {}",
                self.set
            ),
            _ => String::new(),
        }
    }

    /// Returns a clause with the nodes that disruption budgets block, if all other nodes wait for people too.
    ///
    /// The clause is empty while a node makes progress, because the next eviction may succeed then.
    fn budgets_aside(&self, phase: Phase) -> String {
        let plan = self.plan;
        let waits = match phase {
            Phase::Progressing => !plan.blocked && plan.awaits_hooks_only(),
            Phase::Stalled(stall) => stall != Stall::BlockedByPdb,
            _ => false,
        };
        let names = if waits {
            self.names_with(|verdict| matches!(verdict, Verdict::BlockedByPdb { .. }))
        } else {
            String::new()
        };
        if names.is_empty() {
            names
        } else {
            format!("; {}: {names}", plan.blocked_words(self.fleet))
        }
    }

    /// Returns a clause about further nodes that wait for a maintenance window; empty if there are none.
    fn windows_aside(&self, phase: Phase, reason: &str) -> String {
        let plan = self.plan;
        let shut = match phase {
            Phase::Progressing | Phase::Stalled(_)
                if phase != Phase::Stalled(Stall::WindowNeverOpens) =>
            {
                plan.shut_words(self.fleet)
            }
            _ => String::new(),
        };
        let opens = match phase {
            Phase::Stalled(Stall::WritesRefused | Stall::BlockedByPdb) => self.opening(),
            Phase::Progressing if plan.blocked || reason == PULL_PENDING => self.opening(),
            _ => None,
        };
        let opens = opens
            .map(|at| format!("other nodes wait for their maintenance window, which opens {at}"));
        let parts = opens
            .into_iter()
            .chain(Some(shut).filter(|shut| !shut.is_empty()));
        parts.map(|part| format!("; {part}")).collect()
    }

    /// Returns the time at which the next maintenance window opens, in the time zone of that window; `None` if no node waits for
    /// one.
    fn opening(&self) -> Option<String> {
        let at = self.plan.next_opening()?;
        Some(opening_words(self.fleet, self.plan, self.strategy, at))
    }

    /// Returns the step that starts a rollout before its window opens; `None` if all waiting nodes have their own windows.
    fn past_window(&self) -> Option<NextStep> {
        let mut waiting = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let of_set = waiting.any(|(node, verdict)| {
            matches!(verdict, Verdict::OutOfWindow { .. }) && node.window.is_none()
        });
        of_set.then(|| {
            NextStep::command(
                "to start now",
                format!("yurt-ds ctl start-now {}", self.set),
            )
        })
    }

    /// Returns a clause with the failed nodes of this revision that were deleted since; empty if there are none.
    fn gone_aside(&self) -> String {
        let failed = self.plan.record.iter().flat_map(|record| &record.failed);
        let gone = failed.filter(|name| {
            let node = by_name(&self.fleet.nodes, name);
            // A deleted Node counts as gone although its pod object may exist for another minute.
            node.is_none_or(|node| node.readiness == Readiness::Gone)
        });
        let names = named(gone.map(NodeName::as_str), 0);
        if names.is_empty() {
            names
        } else {
            format!("; failed by this revision, and deleted since: {names}")
        }
    }

    /// Returns a clause with the nodes that failed with this revision; empty if there are none.
    fn failed_aside(&self) -> String {
        let names = self.names_with(|verdict| matches!(verdict, Verdict::FailedByRevision { .. }));
        if names.is_empty() {
            names
        } else {
            format!("; failed by this revision: {names}")
        }
    }

    fn names_with(&self, wanted: impl Fn(&Verdict) -> bool) -> String {
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let meant = nodes.filter(|(_, verdict)| wanted(verdict));
        named(meant.map(|(node, _)| node.name.as_str()), 0)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::core::plan::Counts;
    use crate::core::settings::Mode;
    use crate::core::testing::{fleet, said};
    use crate::core::{Strategy, decide};

    fn plan(phase: Phase, counts: Counts) -> Plan {
        let strategy = Strategy::with_mode(Mode::AdvancedRollingUpdate);
        let decided = decide(&strategy, &fleet(Vec::new()), Timestamp::UNIX_EPOCH);
        Plan {
            phase,
            counts,
            ..decided
        }
    }

    #[test]
    fn a_rollout_of_nobody_says_so() {
        let fleet = fleet(Vec::new());
        let phase = Phase::Complete {
            offline: 0,
            kept: 0,
        };
        let plan = plan(phase, Counts::default());
        assert_eq!(
            said(&fleet, &plan).sentence(),
            "complete: the template matches no node"
        );
    }

    #[test]
    fn what_was_complete_stays_so_while_nobody_is_outdated_or_lost() {
        let complete = |phase, counts| {
            let told = plan(phase, counts).standing(true);
            matches!(told, Phase::Complete { .. })
        };
        let (none, outdated, lost) = (
            Counts::default(),
            Counts {
                outdated: 1,
                ..Counts::default()
            },
            Counts {
                lost: 1,
                ..Counts::default()
            },
        );
        assert!(complete(Phase::Progressing, none));
        assert!(complete(Phase::Stalled(Stall::NoProgress), none));
        assert!(!complete(Phase::Stalled(Stall::FailedByRevision), none));
        assert!(!complete(Phase::Progressing, outdated));
        assert!(!complete(Phase::Progressing, lost));
        let until = crate::core::testing::at(30);
        let judging = Plan {
            guarded: Some(Guarded::Inconclusive { until }),
            ..plan(Phase::Progressing, none)
        };
        assert_eq!(judging.standing(true), Phase::Progressing);
        let fresh = plan(Phase::Progressing, none).standing(false);
        assert_eq!(fresh, Phase::Progressing);
    }
}
