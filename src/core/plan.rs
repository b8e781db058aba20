//! What to do and why: the answer of [`decide`](crate::core::decide()).

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

/// What to do now, what every node is told, and when to look again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What to write, in this order. Carrying it out twice is harmless.
    pub actions: Vec<Action>,
    /// One verdict per entry of `Fleet::nodes`, in the same order.
    pub verdicts: Vec<Verdict>,
    /// Why pods are made anew by this plan although an update in place was asked for, as far as any are.
    pub recreates: Option<Recreate>,
    /// Images that are asked for ahead of the update, in the order of nodes.
    pub pulls: Vec<Pull>,
    /// What it takes before more are asked for; `None`: it is there, or nobody is left to be asked.
    pub pulls_await: Option<PullsAwait>,
    /// Numbers over the verdicts.
    pub counts: Counts,
    /// The state of the rollout as a whole.
    pub phase: Phase,
    /// Before this instant nothing is replaced, whatever slots are free (`min-interval`).
    pub opens: Option<Timestamp>,
    /// Whether conditions tell that: an interval of less than a minute is movement, and to tell each of its ends would take a
    /// write for every pod.
    pub tells_opening: bool,
    /// The setting that matches no node (`Phase::Invalid`).
    pub invalid: Option<Invalid>,
    /// The values of `topology-key` where something is under way or may begin, in order; empty without that setting, and
    /// while nothing is rolled out.
    pub domains: Vec<String>,
    /// Why the guard lets nothing new begin, if it does not.
    pub guarded: Option<Guarded>,
    /// What the guard has to remember: what is to stand on the DaemonSet, instead of [`Fleet::record`].
    ///
    /// [`Fleet::record`]: crate::core::Fleet::record
    pub record: Option<FailureRecord>,
    /// How far the revision that the guard stopped is taken back; `None`: nobody asked for that, or it was not stopped.
    pub reversal: Option<Reversal>,
    /// The pause that holds, if one does, whether anybody is outdated or not.
    pub pause: Option<PauseStand>,
    /// How each wave stands, in their order; empty without that setting, and while it is not known what is rolled out.
    pub waves: Vec<WaveStand>,
    /// Nodes that are past their deadline, by position in the fleet, whoever else moves; see [`overdue`](super::engine::overdue).
    pub overdue: Vec<usize>,
    /// Whether nothing moves before a disruption budget lets a pod go.
    pub blocked: bool,
    /// What the API server refuses of all that is asked for, tried again by this plan or not.
    pub refused: super::fleet::write_failures::WriteFailures,
    /// The earliest instant at which the same fleet would be judged differently; `None`: only a change can do that.
    pub next_wake: Option<Timestamp>,
}

impl Plan {
    /// The same plan for data that is too old: nothing is written to pods, and a rollout that would move says why it does not.
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

    /// When the next maintenance window opens for a node that waits for it.
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

    /// Targeted nodes that run the current revision: with an available pod of it, or offline with such a pod.
    pub fn running(&self) -> usize {
        self.counts.updated + self.counts.offline_updated
    }

    /// Whether nothing moves before a node has pulled its images.
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

    /// Whether everybody who is on the way waits for a hook or a disruption budget.
    pub(super) fn awaits_hooks_only(&self) -> bool {
        self.awaits_hooks() && !self.verdicts.iter().any(Verdict::is_begun)
    }

    /// Whether a pod waits for its hook for so long that somebody should look.
    pub fn is_hook_overdue(&self) -> bool {
        let is_overdue =
            |verdict: &Verdict| matches!(verdict, Verdict::HookPending { overdue: true, .. });
        self.verdicts.iter().any(is_overdue)
    }

    /// What a wave waits for while nothing else moves; `None`: something does, or no wave waits.
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

    /// Returns true if nothing moves before a maintenance window opens, aside from image pulls of at most as many nodes.
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

/// How one wave stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaveStand {
    /// Its name; the last one is called [`REST`](super::settings::REST).
    pub name: String,
    /// Its targeted nodes that take part.
    pub nodes: usize,
    /// Those with an available pod of the current revision.
    pub done: usize,
    /// Its nodes on their way, or failed by the revision.
    pub in_flight: usize,
    /// Slots of [`allowed`](Self::allowed) that are taken, also by nodes whose old pod is broken and by those that begin
    /// now; as long as it is open.
    pub taken: usize,
    /// How many of its nodes may lack an available pod at once, as far as the wave says that.
    pub allowed: usize,
    /// What it does.
    pub state: WaveState,
}

/// What a wave does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaveState {
    /// No node that is online is left.
    Complete,
    /// Nodes are being replaced.
    Open,
    /// It waits.
    NotOpen(WaveShut),
}

/// Numbers of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Nodes where a pod belongs.
    pub targeted: usize,
    /// Those of them that take part in the rollout: the base of `max-unavailable`.
    pub base: usize,
    /// `max-unavailable`, resolved for `base`.
    pub allowed: usize,
    /// Targeted nodes that occupy budget after this plan.
    pub unavailable: usize,
    /// Those of them that keep their old pod: it was taken out of service for its hook and does not serve again yet, or it was
    /// made a moment ago.
    pub withheld: usize,
    /// How many nodes may have a second pod at once (`max-surge`), resolved for `base`.
    pub surge_allowed: usize,
    /// Nodes with two pods, whichever of them goes, after this plan.
    pub surging: usize,
    /// Targeted nodes that are online with an available pod of the current revision, also beside another pod.
    pub updated: usize,
    /// Targeted nodes that are online and lack an available pod because they are being updated, this plan's included.
    pub in_progress: usize,
    /// Targeted nodes that are charged to the current revision and have not recovered.
    pub failed: usize,
    /// Those of them that are NotReady.
    pub lost: usize,
    /// Nodes that were charged because their containers crashed, and run at the moment: not for as long as the failure window yet.
    pub relapsing: usize,
    /// Targeted nodes that are online, and outdated with a pod that is not available, without this plan's replacements.
    pub broken_before: usize,
    /// Nodes that failed on the current revision's account, those that are gone or recovering included.
    pub failures: usize,
    /// How many of these there may be before the revision is stopped.
    pub threshold: usize,
    /// Targeted nodes that are online and outdated, this plan's replacements included.
    pub outdated: usize,
    /// Targeted nodes that are offline with a pod of the current revision.
    pub offline_updated: usize,
    /// Targeted nodes that are offline (or not back for long enough) and outdated.
    pub offline_outdated: usize,
    /// Targeted nodes that keep their old revision (`partition`, `selector`, `hold`).
    pub kept: usize,
    /// Nodes that keep an outdated pod because of a taint that its template does not tolerate. They are no part of those
    /// that are targeted: Kubernetes does not count them for its `maxUnavailable` either.
    pub repelled: usize,
    /// Targeted nodes that are offline.
    pub offline: usize,
    /// Targeted nodes that are online and whose pod was taken back, or is being so, from the revision that the guard
    /// stopped.
    pub reverted: usize,
    /// Nodes per word of [`Verdict::WORDS`].
    pub by_word: [usize; Verdict::WORDS.len()],
}

impl Counts {
    /// Targeted nodes that lack an available pod, by the reason, each in one place.
    pub fn lacking(&self) -> [(&'static str, usize); 4] {
        [
            ("offline", self.offline - self.lost),
            ("in_progress", self.in_progress),
            ("failed", self.failed),
            ("broken_before", self.broken_before),
        ]
    }

    /// Nodes whose turn has not come; see [`Verdict::awaits_turn`].
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
    /// Every targeted node runs the current revision, except those that are offline or to be kept, and no more of those that
    /// were lost with it than `failure-threshold` allows.
    Complete {
        /// Targeted nodes that are offline and outdated; they follow when they return.
        offline: usize,
        /// Nodes that keep their old revision because the settings say so, or because no other pod would come.
        kept: usize,
    },
    /// Moving, or about to.
    Progressing,
    /// Waits for the native controller or for a fresher view.
    RevisionUnknown(super::id::RevisionUnknown),
    /// Nothing is written to pods before the controller has fresh data.
    Stale(StaleData),
    /// Nothing moves before a person acts or a node recovers.
    Stalled(Stall),
    /// Paused, with nodes left.
    Paused {
        /// When it goes on by itself.
        until: Option<Timestamp>,
    },
    /// OTA: outdated nodes wait for their owners.
    AwaitingOwners,
    /// `OnDelete`: outdated nodes wait until somebody deletes their pods.
    AwaitingDeletions,
    /// A setting matches no node: nothing is touched before it, or the labels of nodes, are corrected.
    Invalid,
}

impl Phase {
    /// Whether it is not known what is rolled out, for a moment or for too long.
    pub fn is_behind(self) -> bool {
        matches!(
            self,
            Self::RevisionUnknown(_) | Self::Stalled(Stall::NativeControllerBehind)
        )
    }
}

/// Data that is too old to be acted upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleData {
    /// What it is about: `nodes`, `pods` and the like.
    pub resource: &'static str,
    /// When the API server was last heard about it.
    pub heard: Timestamp,
}

/// Why a rollout stalls, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stall {
    /// More nodes failed after they got the current revision than may: the guard stopped it, or nobody is left to be saved.
    FailedByRevision,
    /// The guard stopped the revision because replacing does not help: a node was replaced twice and is outdated again.
    ReplacedTwice,
    /// The whole budget is held by nodes whose pods do not come up (crashes, image errors).
    PodsDoNotStart,
    /// Every node that is left waits for images that it failed to pull (`predownload: required`).
    ImagesNotPulled,
    /// The maintenance window of every node that is left never opens: a Node's own cannot be read.
    WindowNeverOpens,
    /// The whole budget is held by nodes for which the native controller makes no pod (quota, admission).
    PodsNotCreated,
    /// The whole budget is held by nodes whose pod was deleted and whose next one a taint or a label keeps away.
    PodsKeptAway,
    /// Every node that is left, or the whole budget, waits for something that the API server refuses.
    WritesRefused,
    /// The whole budget is held by nodes that do not become available in time.
    NoProgress,
    /// The whole budget is held by pods whose preDelete hooks take too long.
    HookPending,
    /// Every node that is left waits for a disruption budget, for too long.
    BlockedByPdb,
    /// The native controller has not handled the latest change for too long: nothing else is known.
    NativeControllerBehind,
}
