//! Verdicts: the state of each node and its reason. `ctl`, Events, metrics, the simulator's report and the tests use these words.

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

/// State of one node, from the closed list of words in [`Verdict::WORDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Runs an available pod of the current revision.
    Done,
    /// Being updated: occupies budget until its pod is available.
    InProgress(Progress),
    /// Its pod is to be deleted and waits for its preDelete hook (`lifecycle`): occupies budget.
    HookPending {
        /// Start of the wait; `None` if the pod doesn't record it.
        since: Option<Timestamp>,
        /// True if the wait is so long that an operator should look.
        overdue: bool,
    },
    /// Its pod is next, but a PodDisruptionBudget refuses the eviction (`disruption: evict`): uses no budget.
    BlockedByPdb {
        /// Time of the first refusal.
        since: Timestamp,
        /// Reason of the refusal.
        obstruction: Obstruction,
    },
    /// Next, but the API server refuses the write: uses only the budget that it already held.
    Refused {
        /// Time of the first refusal.
        since: Timestamp,
    },
    /// Outdated; waits for a free slot.
    Budget {
        /// True if its present pod is already unavailable.
        broken: bool,
    },
    /// Outdated; another failure domain is updated first (`topology-key`).
    AwaitingDomain,
    /// Unreachable, or returned too recently; does not block other nodes.
    Offline(Offline),
    /// Failed soon after the rollout touched it: keeps its slot while it is Ready.
    FailedByRevision {
        /// Time of the failure.
        since: Timestamp,
        /// Kind of failure.
        cause: Cause,
    },
    /// The rollout is paused.
    Paused {
        /// End of the pause; `None` if an operator has to resume the rollout.
        until: Option<Timestamp>,
    },
    /// Keeps its outdated pod: `partition` holds it back.
    Partition,
    /// Keeps its outdated pod: its labels don't match `selector`.
    NotSelected,
    /// Keeps its outdated pod: the annotation `hold` on the Node asks for that.
    Held {
        /// End of the hold; `None` if it has none.
        until: Option<Timestamp>,
    },
    /// Outdated, and the guard starts no further updates.
    Guarded(Guarded),
    /// Its pod is rolled back from the revision that the guard stopped (`on-failure: RevertInPlace`).
    Revert(Revert),
    /// Outdated, and its wave is not open.
    WaveNotOpen {
        /// Position of its wave.
        wave: usize,
        /// Reason why the wave is not open.
        why: WaveShut,
    },
    /// Outdated, and no maintenance window is open.
    OutOfWindow {
        /// Next opening; `None` if there is none, because the Node's own window cannot be read.
        opens: Option<Timestamp>,
    },
    /// Outdated, and its images are not on the node yet (`predownload: required`).
    PullPending(PullStage),
    /// OTA: a newer revision exists; the node owner decides when to update.
    AwaitingOwner,
    /// `OnDelete`: outdated until its pod is deleted by an operator.
    AwaitingDeletion,
    /// The native DaemonSet controller has not handled the latest change of the DaemonSet; no pod may be touched.
    NativeControllerBehind,
    /// The settings of the DaemonSet are invalid.
    Invalid,
    /// No pod belongs on this node. The native controller removes or keeps a remaining pod.
    NotTargeted,
    /// Keeps its outdated pod: a `NoSchedule` taint on the node would keep a new pod away.
    UntoleratedTaint,
}

/// Stage of a node in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// This plan replaces its pod.
    Replacing,
    /// Its pod is terminating.
    Terminating,
    /// It has no pod; the native controller creates one.
    Missing {
        /// Start of the time without a pod; `None` if unknown.
        since: Option<Timestamp>,
    },
    /// Its pod is being updated in place: the kubelet has not started the new containers yet.
    UpdatingInPlace {
        /// Start of the update.
        since: Timestamp,
    },
    /// Its pod is being rolled back in place from the revision that the guard stopped, and is not available yet.
    Reverting {
        /// Start of the rollback.
        since: Timestamp,
    },
    /// Its new pod is not Ready.
    Starting,
    /// Its new pod is Ready, but not yet for `minReadySeconds`.
    NotYetAvailable {
        /// Time at which it becomes available.
        available_at: Timestamp,
    },
    /// It has more than one pod; the native controller removes the surplus.
    Surplus,
    /// The previous pod is still terminating next to the one that serves.
    OldTerminating,
    /// A surge pod was created next to the old one (`max-surge`), and is not Ready.
    SurgeStarting,
    /// The surge pod is Ready, but not yet for `minReadySeconds`.
    SurgeYoung {
        /// Time at which it becomes available and the old pod is deleted.
        available_at: Timestamp,
    },
    /// The surge pod is available: the old pod is deleted, and the DaemonSet adopts the new one.
    SurgeTakingOver,
    /// The surge pod is no longer wanted, and is deleted.
    SurgeLeaving,
}

/// Progress of an image pre-pull on a node that waits for its images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullStage {
    /// The maximum number of nodes is pulling (`image-predownload-parallelism`); this node follows.
    Queued {
        /// True if an earlier attempt failed.
        failed: bool,
    },
    /// The node was asked to pull the images.
    UnderWay {
        /// True if an earlier attempt failed.
        again: bool,
    },
    /// The last attempt failed.
    Failed {
        /// Earliest time of the next attempt.
        retry: Timestamp,
    },
    /// No node is asked before more pods of the current revision are Ready (`image-predownload-min-updated-ready-pods`), and
    /// enough nodes are already being updated without a pre-pull.
    AwaitingReady,
}

impl PullStage {
    /// Returns true if an attempt has failed, at any stage.
    pub fn has_failed(self) -> bool {
        match self {
            Self::Queued { failed: tried } | Self::UnderWay { again: tried } => tried,
            Self::Failed { .. } => true,
            Self::AwaitingReady => false,
        }
    }
}

/// Reason why an eviction was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstruction {
    /// The disruption budget allows no further disruption now.
    Exhausted,
    /// Kubernetes has not processed the current version of the disruption budget yet.
    NotProcessed,
    /// Kubernetes cannot compute how many disruptions are allowed. For pods of a DaemonSet that needs an absolute `minAvailable`.
    NotComputed,
    /// More than one disruption budget selects the pod.
    Several,
}

impl Obstruction {
    /// Returns the meaning of the same refusal after ten seconds: Kubernetes processes a budget within one second.
    pub(super) fn after_a_while(self) -> Self {
        match self {
            Self::NotProcessed => Self::NotComputed,
            other => other,
        }
    }

    /// Returns true if an operator has to correct the disruption budgets.
    pub fn is_mistake(self) -> bool {
        matches!(self, Self::NotComputed | Self::Several)
    }
}

/// Kind of failure on a node that got the current revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The node became NotReady.
    NodeLost,
    /// Its new pod crashes.
    Crashing,
    /// A container of its new pod cannot be started.
    NotStarting,
}

impl Cause {
    /// Returns true if the node is Ready and has a failing pod, so it keeps its slot. A lost node does not block other nodes.
    pub fn holds_slot(self) -> bool {
        match self {
            Self::NodeLost => false,
            Self::Crashing | Self::NotStarting => true,
        }
    }
}

/// Reason why the guard starts no further updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// The revision was stopped: a new revision or an operator has to release the rollout.
    Stopped(Stopped),
    /// Nodes were lost, and the cause may be the revision or the network.
    Inconclusive {
        /// Time at which this state ends automatically.
        until: Timestamp,
    },
}

impl Guarded {
    /// Returns its word, the reason of conditions.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stopped(stopped) => stopped.word(),
            Self::Inconclusive { .. } => "Inconclusive",
        }
    }
}

/// Reason why a revision was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Stopped {
    /// More nodes failed after they got the revision than `failure-threshold` allows.
    FailedByRevision,
    /// The pod of a node was replaced twice and is outdated again: replacing it does not help.
    ReplacedTwice,
}

impl Stopped {
    /// All reasons.
    pub const ALL: [Self; 2] = [Self::FailedByRevision, Self::ReplacedTwice];

    /// Returns its word, the reason of conditions.
    pub fn word(self) -> &'static str {
        match self {
            Self::FailedByRevision => "FailedByRevision",
            Self::ReplacedTwice => "ReplacedTwice",
        }
    }

    /// Returns the reason with that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stopped| stopped.word() == word)
    }
}

/// Progress of the rollback of a pod from the revision that the guard stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revert {
    /// The pod is available and still has the stopped revision: it waits for a free slot.
    Pending,
    /// The pod is back on the previous revision, and keeps it.
    Done,
}

/// Reason why a wave is not open. Waves are identified by their position in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaveShut {
    /// A node of an earlier wave failed after it got the current revision.
    Charged {
        /// The earlier wave; `None` if it is unknown or no longer in the list.
        wave: Option<usize>,
    },
    /// Some online nodes of an earlier wave are not done.
    Unfinished {
        /// The earlier wave.
        wave: usize,
    },
    /// An earlier wave is done, and its soak time has not ended.
    Soaking {
        /// The earlier wave.
        wave: usize,
        /// End of the soak time.
        until: Timestamp,
    },
    /// This wave or an earlier one is not approved for the current revision.
    Approval {
        /// The wave to approve.
        wave: usize,
    },
}

impl WaveShut {
    /// Returns true if the wave waits for a time or an approval, and not for other nodes.
    pub(super) fn is_named(self) -> bool {
        match self {
            Self::Soaking { .. } | Self::Approval { .. } => true,
            Self::Charged { .. } | Self::Unfinished { .. } => false,
        }
    }
}

/// Reason why a node counts as offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offline {
    /// Its Ready condition is not `True`.
    NotReady {
        /// Time at which it became NotReady; `None` if it never reported.
        since: Option<Timestamp>,
    },
    /// Like [`Offline::NotReady`], with a pod that cannot finish terminating before the node returns.
    Terminating {
        /// Time at which the node became NotReady; `None` if it never reported.
        since: Option<Timestamp>,
    },
    /// Its Node object does not exist.
    NoNode,
    /// It returned recently and may be lost again.
    Settling {
        /// Time from which it counts as online.
        until: Timestamp,
    },
    /// It is NotReady and already runs the current revision.
    Updated {
        /// Time at which the node became NotReady; `None` if it never reported.
        since: Option<Timestamp>,
    },
}

impl Verdict {
    /// All words, in the order of tables.
    pub const WORDS: [&'static str; 24] = [
        "Done",
        "InProgress",
        "Budget",
        "AwaitingDomain",
        "Offline",
        "FailedByRevision",
        "Paused",
        "Partition",
        "NotSelected",
        "Held",
        "Guarded",
        "Revert",
        "WaveNotOpen",
        "OutOfWindow",
        "PullPending",
        "HookPending",
        "BlockedByPDB",
        "Refused",
        "AwaitingOwner",
        "AwaitingDeletion",
        "NativeControllerBehind",
        "Invalid",
        "NotTargeted",
        "UntoleratedTaint",
    ];

    /// Returns the position of its word in [`Verdict::WORDS`].
    pub fn index(&self) -> usize {
        match self {
            Self::Done => 0,
            Self::InProgress(_) => 1,
            Self::Budget { .. } => 2,
            Self::AwaitingDomain => 3,
            Self::Offline(_) => 4,
            Self::FailedByRevision { .. } => 5,
            Self::Paused { .. } => 6,
            Self::Partition => 7,
            Self::NotSelected => 8,
            Self::Held { .. } => 9,
            Self::Guarded(_) => 10,
            Self::Revert(_) => 11,
            Self::WaveNotOpen { .. } => 12,
            Self::OutOfWindow { .. } => 13,
            Self::PullPending(_) => 14,
            Self::HookPending { .. } => 15,
            Self::BlockedByPdb { .. } => 16,
            Self::Refused { .. } => 17,
            Self::AwaitingOwner => 18,
            Self::AwaitingDeletion => 19,
            Self::NativeControllerBehind => 20,
            Self::Invalid => 21,
            Self::NotTargeted => 22,
            Self::UntoleratedTaint => 23,
        }
    }

    /// Returns true if the node is being updated, or is Ready with a pod that fails because of the revision: other nodes wait
    /// for its slot.
    pub fn is_in_flight(&self) -> bool {
        match self {
            Self::InProgress(_) | Self::HookPending { .. } => true,
            Self::FailedByRevision { cause, .. } => cause.holds_slot(),
            _ => false,
        }
    }

    /// Returns true if the node is being updated, or failed after it got the current revision.
    pub fn is_begun(&self) -> bool {
        matches!(self, Self::InProgress(_) | Self::FailedByRevision { .. })
    }

    /// Returns true if the node only waits for other nodes: for a slot, or for an earlier failure domain.
    pub fn awaits_turn(&self) -> bool {
        matches!(self, Self::Budget { .. } | Self::AwaitingDomain)
    }

    /// Returns true if the node keeps its outdated pod because the settings say so.
    pub(super) fn is_kept(&self) -> bool {
        matches!(
            self,
            Self::Partition | Self::NotSelected | Self::Held { .. }
        )
    }

    /// Returns its word: a label for metrics, a cell of a table.
    pub fn word(&self) -> &'static str {
        Self::WORDS[self.index()]
    }
}
