//! Plans: the actions to take and their reasons, returned by [`decide`](crate::core::decide()).

mod holds;
mod pause_stand;
mod reversal;

use k8s_openapi::jiff::Timestamp;

use super::action::{Action, Pull};
use super::fleet::in_place::Recreate;
use super::fleet::record::FailureRecord;
use super::settings::Invalid;
use super::verdict::{Guarded, Progress, PullStage, Verdict, WaveShut};

pub use pause_stand::PauseStand;
pub use reversal::{Reversal, ReversalStage};

/// Result of a decision: the actions to take now, the verdict of each node, and the time of the next decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Writes to make, in this order. Making them twice has the same effect as making them once.
    pub actions: Vec<Action>,
    /// One verdict per entry of `Fleet::nodes`, in the same order.
    pub verdicts: Vec<Verdict>,
    /// Reason why this plan recreates pods although an update in place was requested; `None` if it recreates none.
    pub recreates: Option<Recreate>,
    /// Image pulls to request before the update, in the order of nodes.
    pub pulls: Vec<Pull>,
    /// Set if more pods have to be Ready before images are requested on further nodes; `None` if enough pods are Ready, or if no
    /// node has to pull images.
    pub pulls_await: Option<PullsAwait>,
    /// Totals of the nodes, for example by verdict.
    pub counts: Counts,
    /// State of the rollout as a whole.
    pub phase: Phase,
    /// Earliest time at which `min-interval` allows the next replacement, even if slots are free.
    pub opens: Option<Timestamp>,
    /// True if conditions report the time `opens`.
    ///
    /// They don't if `min-interval` is less than a minute, because every updated pod would then cost another write of the
    /// conditions.
    pub tells_opening: bool,
    /// Setting whose selector matches no node (for [`Phase::Invalid`]); `None` if all selectors match.
    pub invalid: Option<Invalid>,
    /// Failure domains (values of `topology-key`) in which nodes are being updated or may be updated next, in order. Empty without
    /// `topology-key`, and if no rollout is active.
    pub domains: Vec<String>,
    /// Reason why the guard, which stops failing revisions, allows no further updates; `None` if it allows them.
    pub guarded: Option<Guarded>,
    /// Record of failed nodes that the guard keeps in the DaemonSet's status. It replaces [`Fleet::record`].
    ///
    /// [`Fleet::record`]: crate::core::Fleet::record
    pub record: Option<FailureRecord>,
    /// Progress of the rollback from a revision that the guard stopped. `None` if no rollback was requested, or if the revision is
    /// not stopped.
    pub reversal: Option<Reversal>,
    /// The active pause, even if no node is outdated; `None` if the rollout is not paused.
    pub pause: Option<PauseStand>,
    /// State of each wave, in order. Empty without the setting `waves`, and while the current revision is unknown.
    pub waves: Vec<WaveStand>,
    /// Positions in `Fleet::nodes` of the nodes whose update is past its deadline ([`overdue`](super::engine::overdue)). They are
    /// listed even if other nodes make progress.
    pub overdue: Vec<usize>,
    /// True if the rollout only waits for disruption budgets to allow evictions.
    pub blocked: bool,
    /// Writes that the API server rejected, including writes that this plan retries.
    pub refused: super::fleet::write_failures::WriteFailures,
    /// Earliest time at which a decision about the same fleet has another result. `None` if the result stays until the fleet
    /// changes.
    pub next_wake: Option<Timestamp>,
}

/// Required and present number of Ready pods of the current revision. Images are pre-pulled only after enough pods are Ready
/// (`image-predownload-min-updated-ready-pods`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullsAwait {
    /// Number of Ready pods of the current revision; less than `needed`.
    pub ready: usize,
    /// Number of pods of the current revision that must be Ready.
    pub needed: usize,
}

impl Plan {
    /// Returns this plan without its writes to pods, for a controller whose data is stale (too old for decisions). The phase of a
    /// rollout in progress becomes [`Phase::Stale`].
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

    /// Returns the time at which the next maintenance window opens for a waiting node; `None` if no node waits for one.
    pub fn next_opening(&self) -> Option<Timestamp> {
        let opens = |verdict: &Verdict| match *verdict {
            Verdict::OutOfWindow { opens } => opens,
            _ => None,
        };
        self.verdicts.iter().filter_map(opens).min()
    }

    /// Returns the number of nodes that wait for a maintenance window. Windows that never open don't count.
    pub fn out_of_window(&self) -> usize {
        let waits = |verdict: &&Verdict| matches!(verdict, Verdict::OutOfWindow { opens: Some(_) });
        self.verdicts.iter().filter(waits).count()
    }

    /// Returns the number of targeted nodes that run the current revision. An online node needs an available pod of it; for an
    /// offline node, any pod of it is enough.
    pub fn running(&self) -> usize {
        self.counts.updated + self.counts.offline_updated
    }

    /// Returns true if the rollout only waits for image pulls.
    pub fn is_pull_pending(&self) -> bool {
        self.counts
            .of_kind(Verdict::PullPending(PullStage::Queued { failed: false }))
            > 0
            && self
                .counts
                .of_kind(Verdict::InProgress(Progress::Replacing))
                == 0
            && !self.awaits_hooks()
            && self.counts.awaiting_turn() == 0
    }

    /// Returns true if a pod waits for its preDelete hook.
    pub(super) fn awaits_hooks(&self) -> bool {
        let of_hooks = |verdict: &Verdict| matches!(verdict, Verdict::HookPending { .. });
        self.verdicts.iter().any(of_hooks)
    }

    /// Returns true if pods wait for their preDelete hooks, and no node makes progress in another way.
    pub(super) fn awaits_hooks_only(&self) -> bool {
        self.awaits_hooks() && !self.verdicts.iter().any(Verdict::is_begun)
    }

    /// Returns true if a pod has waited for its preDelete hook for so long that an operator has to check it.
    pub fn is_hook_overdue(&self) -> bool {
        let is_overdue =
            |verdict: &Verdict| matches!(verdict, Verdict::HookPending { overdue: true, .. });
        self.verdicts.iter().any(is_overdue)
    }

    /// Returns the reason why the rollout waits for a wave to open; `None` if the update of another node can begin before the wave
    /// opens.
    pub fn awaited(&self) -> Option<WaveShut> {
        let moves = self
            .counts
            .of_kind(Verdict::InProgress(Progress::Replacing))
            + self.counts.awaiting_turn()
            + self.counts.of_kind(Verdict::OutOfWindow { opens: None });
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

    /// Returns true if the rollout waits for a maintenance window. If image pulls block more nodes than windows do, it waits for
    /// the pulls instead.
    pub fn is_out_of_window(&self) -> bool {
        let blocked = |verdict: &Verdict| matches!(verdict, Verdict::BlockedByPdb { .. });
        self.next_opening().is_some()
            && self
                .counts
                .of_kind(Verdict::PullPending(PullStage::AwaitingReady))
                <= self.out_of_window()
            && !self.verdicts.iter().any(blocked)
            && self
                .counts
                .of_kind(Verdict::InProgress(Progress::Replacing))
                == 0
            && !self.awaits_hooks()
            && self.counts.awaiting_turn() == 0
    }
}

/// State of one wave: a pool of nodes that is updated after another pool (setting `waves`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaveStand {
    /// Name of the wave; the last wave is called [`REST`](super::settings::REST).
    pub name: String,
    /// Number of the wave's targeted nodes that take part in the rollout.
    pub nodes: usize,
    /// Number of nodes in the wave with an available pod of the current revision.
    pub done: usize,
    /// Number of nodes in the wave that are being updated or wait for a preDelete hook, or that are Ready with a new pod that fails.
    pub in_flight: usize,
    /// Number of nodes that take one of the [`allowed`](Self::allowed) slots while the wave is open. Nodes with a broken old pod,
    /// and nodes whose update begins in this plan, are included.
    pub taken: usize,
    /// Maximum number of nodes in the wave without an available pod. A wave without its own limit has the limit of the rollout.
    pub allowed: usize,
    /// Progress of the wave.
    pub state: WaveState,
}

/// Progress of a wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaveState {
    /// All online nodes of the wave are updated. The soak time, for which the wave has to stay healthy, may still be running.
    Complete,
    /// Nodes of the wave are being updated.
    Open,
    /// Nodes of the wave are not updated yet, for this reason.
    NotOpen(WaveShut),
}

/// Totals of a plan, in numbers of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Nodes that should run a pod.
    pub targeted: usize,
    /// Targeted nodes that take part in the rollout. Percentages of `max-unavailable` refer to this number.
    pub base: usize,
    /// Number of nodes that may be unavailable at once: `max-unavailable`, resolved for `base`.
    pub allowed: usize,
    /// Targeted nodes that take a slot of `max-unavailable` after this plan is carried out.
    pub unavailable: usize,
    /// Nodes included in `unavailable` that keep an unavailable pod, because a setting excludes them from the rollout.
    ///
    /// They take a slot because the controller may be the cause: it took the pod out of service for a preDelete hook, or the pod
    /// was created recently.
    pub withheld: usize,
    /// Maximum number of nodes with a second pod (`max-surge`), resolved for `base`.
    pub surge_allowed: usize,
    /// Nodes with two pods after this plan is carried out, even if one of the pods is being deleted.
    pub surging: usize,
    /// Targeted online nodes with an available pod of the current revision, including nodes that also have a second pod.
    pub updated: usize,
    /// Targeted online nodes without an available pod because of an update, including the updates of this plan.
    pub in_progress: usize,
    /// Targeted nodes that failed because of the current revision and have not recovered.
    pub failed: usize,
    /// Nodes included in `failed` that are NotReady.
    pub lost: usize,
    /// Nodes whose containers crashed and run again, but for less than the failure window. They are included in `failures`.
    pub relapsing: usize,
    /// Targeted online nodes with an outdated, unavailable pod that this plan doesn't replace.
    pub broken_before: usize,
    /// Nodes that failed because of the current revision, including nodes that have been deleted or are recovering.
    pub failures: usize,
    /// Highest value of `failures` with which the guard doesn't stop the revision.
    pub threshold: usize,
    /// Targeted online nodes that are outdated, including the nodes that this plan updates.
    pub outdated: usize,
    /// Targeted offline nodes with a pod of the current revision.
    pub offline_updated: usize,
    /// Targeted outdated nodes that are offline, or that returned recently and have not settled.
    pub offline_outdated: usize,
    /// Targeted nodes that keep their old revision (`partition`, `selector`, `hold`).
    pub kept: usize,
    /// Nodes that keep an outdated pod because the template does not tolerate one of their taints.
    ///
    /// They don't count as targeted, because Kubernetes doesn't include them in its `maxUnavailable` either.
    pub repelled: usize,
    /// Targeted nodes that are offline.
    pub offline: usize,
    /// Targeted online nodes whose pod was rolled back, or is being rolled back, from the revision that the guard stopped.
    pub reverted: usize,
    /// Number of nodes for each word of [`Verdict::WORDS`].
    pub by_word: [usize; Verdict::WORDS.len()],
}

impl Counts {
    /// Returns the number of targeted nodes without an available pod, by reason. Each node is counted for one reason.
    pub fn lacking(&self) -> [(&'static str, usize); 4] {
        [
            ("offline", self.offline - self.lost),
            ("in_progress", self.in_progress),
            ("failed", self.failed),
            ("broken_before", self.broken_before),
        ]
    }

    /// Returns the number of nodes whose verdict has the same word as `verdict`, whatever its details.
    pub fn of_kind(&self, verdict: Verdict) -> usize {
        self.by_word[verdict.index()]
    }

    /// Returns the number of nodes that wait only for other nodes; see [`Verdict::awaits_turn`].
    fn awaiting_turn(&self) -> usize {
        let words = [Verdict::Budget { broken: false }, Verdict::AwaitingDomain];
        words.map(|verdict| self.of_kind(verdict)).iter().sum()
    }
}

/// State of a rollout as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Every targeted node runs the current revision, with these exceptions: offline nodes, nodes that keep their old revision, and
    /// at most `failure-threshold` lost nodes.
    Complete {
        /// Targeted nodes that are offline and outdated. They are updated when they return.
        offline: usize,
        /// Nodes that keep their old revision because of the settings, or because no new pod could be created there.
        kept: usize,
    },
    /// Nodes are being updated, or will be updated soon.
    Progressing,
    /// The current revision is unknown, because the native controller or the cached data is behind.
    RevisionUnknown(super::id::RevisionUnknown),
    /// The controller's data is too old, so it changes no pods.
    Stale(StaleData),
    /// The rollout needs an operator, or the recovery of a node, before it makes progress.
    Stalled(Stall),
    /// The rollout is paused, and outdated nodes are left.
    Paused {
        /// End of the pause; `None` if an operator has to end it.
        until: Option<Timestamp>,
    },
    /// Outdated nodes wait for their node owners, who decide when to update (strategy `OTA`).
    AwaitingOwners,
    /// Outdated nodes wait until another client deletes their pods (`OnDelete`).
    AwaitingDeletions,
    /// A setting matches no node. No pod is changed until the setting or the node labels are corrected.
    Invalid,
}

impl Phase {
    /// Returns true if the current revision is unknown. After some minutes, that is reported as a stall.
    pub fn is_behind(self) -> bool {
        matches!(
            self,
            Self::RevisionUnknown(_) | Self::Stalled(Stall::NativeControllerBehind)
        )
    }
}

/// Data that is too old for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleData {
    /// Resource that is stale, such as `nodes` or `pods`.
    pub resource: &'static str,
    /// Time of the last message from the API server about the resource. The message can be a change or a bookmark of the watch.
    pub heard: Timestamp,
}

/// Reason why a rollout is stalled, the most serious first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stall {
    /// More nodes failed with the current revision than `failure-threshold` allows. If outdated nodes are left, the guard stopped
    /// the revision to protect them.
    FailedByRevision,
    /// The guard stopped the revision because a replacement doesn't help: the pod of a node was replaced twice and is outdated
    /// again.
    ReplacedTwice,
    /// Nodes whose pods don't start take the whole budget (crashes, image errors).
    PodsDoNotStart,
    /// Every remaining node waits for images that could not be pulled (`predownload: required`).
    ImagesNotPulled,
    /// Every remaining node waits for a maintenance window that never opens, because the annotation on its Node cannot be parsed.
    WindowNeverOpens,
    /// Nodes for which the native controller cannot create a pod take the whole budget (quota, admission).
    PodsNotCreated,
    /// Nodes without a pod take the whole budget: the controller deleted the pod, and a taint or a label prevents the next one.
    PodsKeptAway,
    /// Every remaining node, or the whole budget, waits for a write that the API server rejects.
    WritesRefused,
    /// Nodes that don't become available in time take the whole budget.
    NoProgress,
    /// Pods whose preDelete hooks take too long take the whole budget.
    HookPending,
    /// A disruption budget has blocked every remaining node for too long.
    BlockedByPdb,
    /// The native controller has not processed the latest change of the DaemonSet for too long, so the current revision is unknown.
    NativeControllerBehind,
}
