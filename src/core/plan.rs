//! Plans: the actions to take and their reasons, returned by [`decide`](crate::core::decide()).

mod holds;
mod pause_stand;
mod pulls_await;
mod reversal;

use k8s_openapi::jiff::Timestamp;

use super::action::{Action, Pull};
use super::fleet::in_place::Recreate;
use super::fleet::record::FailureRecord;
use super::settings::Invalid;
use super::verdict::{Guarded, Progress, PullStage, Verdict, WaveShut};

pub use pause_stand::PauseStand;
pub use pulls_await::PullsAwait;
pub use reversal::{Reversal, ReversalStage};

/// The actions to take now, the verdict of each node, and when to decide again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Writes, in this order. Carrying them out twice is harmless.
    pub actions: Vec<Action>,
    /// One verdict per entry of `Fleet::nodes`, in the same order.
    pub verdicts: Vec<Verdict>,
    /// Reason why this plan recreates pods although an update in place was requested; `None` if it recreates none.
    pub recreates: Option<Recreate>,
    /// Image pulls to request ahead of the update, in the order of nodes.
    pub pulls: Vec<Pull>,
    /// Ready pods needed before more pulls are requested; `None` if there are enough, or no node is left to ask.
    pub pulls_await: Option<PullsAwait>,
    /// Totals over the verdicts.
    pub counts: Counts,
    /// The state of the rollout as a whole.
    pub phase: Phase,
    /// Earliest time of the next replacement, even if slots are free (`min-interval`).
    pub opens: Option<Timestamp>,
    /// True if conditions name `opens`.
    ///
    /// An interval of less than a minute counts as movement: reporting each end would cost one write per pod.
    pub tells_opening: bool,
    /// The setting that matches no node (`Phase::Invalid`).
    pub invalid: Option<Invalid>,
    /// Values of `topology-key` in which updates are under way or may begin, in order; empty without that setting, and while
    /// nothing is rolled out.
    pub domains: Vec<String>,
    /// Reason why the guard starts no further updates; `None` if it allows them.
    pub guarded: Option<Guarded>,
    /// The guard's record: the value that replaces [`Fleet::record`] on the DaemonSet.
    ///
    /// [`Fleet::record`]: crate::core::Fleet::record
    pub record: Option<FailureRecord>,
    /// Progress of the rollback of a stopped revision; `None` if none was requested or the revision was not stopped.
    pub reversal: Option<Reversal>,
    /// The active pause, if there is one, even if no node is outdated.
    pub pause: Option<PauseStand>,
    /// State of each wave, in order; empty without that setting, and while the current revision is unknown.
    pub waves: Vec<WaveStand>,
    /// Nodes past their deadline, by position in the fleet, even if other nodes make progress; see
    /// [`overdue`](super::engine::overdue).
    pub overdue: Vec<usize>,
    /// True if nothing moves until a disruption budget allows an eviction.
    pub blocked: bool,
    /// Writes that the API server refuses, including writes that this plan retries.
    pub refused: super::fleet::write_failures::WriteFailures,
    /// Earliest time at which the same fleet leads to another plan; `None` if only a change can do that.
    pub next_wake: Option<Timestamp>,
}

impl Plan {
    /// Returns this plan for stale data: without writes to pods, and with the reason why a rollout that would move does not.
    #[must_use]
    pub fn withheld(mut self, stale: StaleData, record: Option<&FailureRecord>) -> Self {
        self.actions.clear();
        self.pulls.clear();
        self.record = record.cloned();
        let (replacing, waiting) = (
            Verdict::InProgress(Progress::Replacing),
            Verdict::Budget { broken: false },
        );
        for verdict in self
            .verdicts
            .iter_mut()
            .filter(|verdict| **verdict == replacing)
        {
            *verdict = waiting;
            self.counts.by_word[replacing.index()] -= 1;
            self.counts.by_word[waiting.index()] += 1;
        }
        if matches!(self.phase, Phase::Progressing | Phase::RevisionUnknown(_)) {
            self.phase = Phase::Stale(stale);
        }
        self
    }

    /// Returns when the next maintenance window opens for a node that waits for one.
    pub fn next_opening(&self) -> Option<Timestamp> {
        let opens = |verdict: &Verdict| match *verdict {
            Verdict::OutOfWindow { opens } => opens,
            _ => None,
        };
        self.verdicts.iter().filter_map(opens).min()
    }

    /// Returns the number of nodes that wait for a maintenance window that opens.
    pub fn out_of_window(&self) -> usize {
        let waits = |verdict: &&Verdict| matches!(verdict, Verdict::OutOfWindow { opens: Some(_) });
        self.verdicts.iter().filter(waits).count()
    }

    /// Returns the number of targeted nodes that run the current revision: online with an available pod of it, or offline with a
    /// pod of it.
    pub fn running(&self) -> usize {
        self.counts.updated + self.counts.offline_updated
    }

    /// Returns true if nothing moves before a node has pulled its images.
    pub fn is_pull_pending(&self) -> bool {
        let of_word = |verdict: Verdict| self.counts.by_word[verdict.index()];
        of_word(Verdict::PullPending(PullStage::Queued { failed: false })) > 0
            && of_word(Verdict::InProgress(Progress::Replacing)) == 0
            && !self.awaits_hooks()
            && self.counts.awaiting_turn() == 0
    }

    fn awaits_hooks(&self) -> bool {
        let of_hooks = |verdict: &Verdict| matches!(verdict, Verdict::HookPending { .. });
        self.verdicts.iter().any(of_hooks)
    }

    /// Returns true if every node in progress waits for a hook or a disruption budget.
    pub(super) fn awaits_hooks_only(&self) -> bool {
        self.awaits_hooks() && !self.verdicts.iter().any(Verdict::is_begun)
    }

    /// Returns true if a pod has waited for its hook for so long that an operator should look.
    pub fn is_hook_overdue(&self) -> bool {
        let is_overdue =
            |verdict: &Verdict| matches!(verdict, Verdict::HookPending { overdue: true, .. });
        self.verdicts.iter().any(is_overdue)
    }

    /// Returns the reason why a wave is not open while nothing else moves; `None` if something moves or no wave waits.
    pub fn awaited(&self) -> Option<WaveShut> {
        let of_word = |verdict: Verdict| self.counts.by_word[verdict.index()];
        let moves = of_word(Verdict::InProgress(Progress::Replacing))
            + self.counts.awaiting_turn()
            + of_word(Verdict::OutOfWindow { opens: None });
        let of_verdict = |verdict: &Verdict| match *verdict {
            Verdict::WaveNotOpen { wave, why } => Some((wave, why)),
            _ => None,
        };
        let waiting = self.verdicts.iter().filter_map(of_verdict);
        let first = waiting.min_by_key(|(wave, _)| *wave);
        first
            .filter(|_| moves == 0 && !self.awaits_hooks())
            .map(|(_, why)| why)
    }

    /// Returns true if nothing moves before a maintenance window opens, and at most as many nodes wait for image pulls as for
    /// windows.
    pub fn is_out_of_window(&self) -> bool {
        let of_word = |verdict: Verdict| self.counts.by_word[verdict.index()];
        let blocked = |verdict: &Verdict| matches!(verdict, Verdict::BlockedByPdb { .. });
        self.next_opening().is_some()
            && of_word(Verdict::PullPending(PullStage::AwaitingReady)) <= self.out_of_window()
            && !self.verdicts.iter().any(blocked)
            && of_word(Verdict::InProgress(Progress::Replacing)) == 0
            && !self.awaits_hooks()
            && self.counts.awaiting_turn() == 0
    }
}

/// State of one wave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaveStand {
    /// Its name; the last one is called [`REST`](super::settings::REST).
    pub name: String,
    /// Number of its targeted nodes that take part in the rollout.
    pub nodes: usize,
    /// Number of those with an available pod of the current revision.
    pub done: usize,
    /// Number of its nodes that are being updated, or failed because of the revision.
    pub in_flight: usize,
    /// Number of used slots of [`allowed`](Self::allowed) while the wave is open, including nodes whose old pod is broken and
    /// nodes that begin now.
    pub taken: usize,
    /// Limit of its nodes without an available pod; a wave without its own limit uses that of the rollout.
    pub allowed: usize,
    /// Its progress.
    pub state: WaveState,
}

/// Progress of a wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaveState {
    /// All of its online nodes are done.
    Complete,
    /// Nodes are being replaced.
    Open,
    /// The wave waits.
    NotOpen(WaveShut),
}

/// Totals of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Nodes on which a pod belongs.
    pub targeted: usize,
    /// Targeted nodes that take part in the rollout: the base of `max-unavailable`.
    pub base: usize,
    /// `max-unavailable`, resolved for `base`.
    pub allowed: usize,
    /// Targeted nodes that occupy budget after this plan.
    pub unavailable: usize,
    /// Unavailable nodes that keep their old pod.
    ///
    /// Either the pod was taken out of service for its hook and doesn't serve again yet, or it was created recently.
    pub withheld: usize,
    /// Limit of nodes with a second pod (`max-surge`), resolved for `base`.
    pub surge_allowed: usize,
    /// Nodes with two pods after this plan, whichever of the two is deleted.
    pub surging: usize,
    /// Targeted online nodes with an available pod of the current revision, including those with a second pod.
    pub updated: usize,
    /// Targeted online nodes that lack an available pod because they are being updated, including the updates of this plan.
    pub in_progress: usize,
    /// Targeted nodes whose failure is attributed to the current revision and that have not recovered.
    pub failed: usize,
    /// Failed nodes that are NotReady.
    pub lost: usize,
    /// Nodes that failed because their containers crashed, and have run since, but for less than the failure window.
    pub relapsing: usize,
    /// Targeted online nodes that are outdated with an unavailable pod, excluding the nodes that this plan updates.
    pub broken_before: usize,
    /// Nodes that failed because of the current revision, including nodes that are gone or recovering.
    pub failures: usize,
    /// Limit of `failures` before the revision is stopped.
    pub threshold: usize,
    /// Targeted online nodes that are outdated, including the nodes that this plan updates.
    pub outdated: usize,
    /// Targeted offline nodes with a pod of the current revision.
    pub offline_updated: usize,
    /// Targeted outdated nodes that are offline or returned too recently.
    pub offline_outdated: usize,
    /// Targeted nodes that keep their old revision (`partition`, `selector`, `hold`).
    pub kept: usize,
    /// Nodes that keep an outdated pod because its template does not tolerate a taint.
    ///
    /// They don't count as targeted; Kubernetes doesn't count them for its `maxUnavailable` either.
    pub repelled: usize,
    /// Targeted nodes that are offline.
    pub offline: usize,
    /// Targeted online nodes whose pod was rolled back, or is being rolled back, from the revision that the guard stopped.
    pub reverted: usize,
    /// Nodes per word of [`Verdict::WORDS`].
    pub by_word: [usize; Verdict::WORDS.len()],
}

impl Counts {
    /// Returns the targeted nodes that lack an available pod, by reason. Each node is counted once.
    pub fn lacking(&self) -> [(&'static str, usize); 4] {
        [
            ("offline", self.offline - self.lost),
            ("in_progress", self.in_progress),
            ("failed", self.failed),
            ("broken_before", self.broken_before),
        ]
    }

    /// Returns the number of nodes that wait for other nodes; see [`Verdict::awaits_turn`].
    fn awaiting_turn(&self) -> usize {
        let words = [Verdict::Budget { broken: false }, Verdict::AwaitingDomain];
        words
            .map(|verdict| self.by_word[verdict.index()])
            .iter()
            .sum()
    }
}

/// The state of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Every targeted node runs the current revision.
    ///
    /// Exceptions: nodes that are offline or kept, and as many lost nodes as `failure-threshold` allows.
    Complete {
        /// Targeted nodes that are offline and outdated; they follow when they return.
        offline: usize,
        /// Nodes that keep their old revision because the settings say so, or because no new pod would be created there.
        kept: usize,
    },
    /// Moving, or about to move.
    Progressing,
    /// Waits for the native controller or for fresher data.
    RevisionUnknown(super::id::RevisionUnknown),
    /// No pod is written until the controller has fresh data.
    Stale(StaleData),
    /// Nothing moves before an operator acts or a node recovers.
    Stalled(Stall),
    /// Paused, with nodes left to update.
    Paused {
        /// End of the pause; `None` if it has none.
        until: Option<Timestamp>,
    },
    /// OTA: outdated nodes wait for their owners.
    AwaitingOwners,
    /// `OnDelete`: outdated nodes wait until their pods are deleted by an operator.
    AwaitingDeletions,
    /// A setting matches no node. Nothing is touched until the setting or the node labels are corrected.
    Invalid,
}

impl Phase {
    /// Returns true if the current revision is unknown, for a moment or for too long.
    pub fn is_behind(self) -> bool {
        matches!(
            self,
            Self::RevisionUnknown(_) | Self::Stalled(Stall::NativeControllerBehind)
        )
    }
}

/// Data that is too old to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleData {
    /// Resource that is stale, such as `nodes` or `pods`.
    pub resource: &'static str,
    /// Time of the last watch event or bookmark from the API server.
    pub heard: Timestamp,
}

/// Reason why a rollout is stalled, the most serious first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stall {
    /// More nodes failed after they got the current revision than allowed: the guard stopped it, or no node is left to protect.
    FailedByRevision,
    /// The guard stopped the revision because replacing does not help: the pod of a node was replaced twice and is outdated
    /// again.
    ReplacedTwice,
    /// Nodes whose pods don't start (crashes, image errors) use the whole budget.
    PodsDoNotStart,
    /// Every remaining node waits for images that it failed to pull (`predownload: required`).
    ImagesNotPulled,
    /// The maintenance window of every remaining node never opens, because the Node's own cannot be read.
    WindowNeverOpens,
    /// Nodes for which the native controller creates no pod (quota, admission) use the whole budget.
    PodsNotCreated,
    /// Nodes whose pod was deleted, and whose new pod a taint or a label keeps away, use the whole budget.
    PodsKeptAway,
    /// Every remaining node, or the whole budget, waits for a write that the API server refuses.
    WritesRefused,
    /// Nodes that don't become available in time use the whole budget.
    NoProgress,
    /// Pods whose preDelete hooks take too long use the whole budget.
    HookPending,
    /// Every remaining node has waited too long for a disruption budget.
    BlockedByPdb,
    /// The native controller has not handled the latest change for too long, so the current revision is unknown.
    NativeControllerBehind,
}
