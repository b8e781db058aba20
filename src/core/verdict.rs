//! Verdicts: one word per node for its state in the rollout. `ctl`, Events, metrics, the simulator's report and the tests use the
//! same words.

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

/// State of one node, from the closed list of words in [`Verdict::WORDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The node runs an available pod of the current revision.
    Done,
    /// The node is being updated. It takes a slot until its pod is available.
    InProgress(Progress),
    /// The pod is to be deleted, but its preDelete hook has to agree first (`lifecycle`). The node takes a slot.
    HookPending {
        /// Time at which the pod began to wait for its hook; `None` if the mark on the pod contains no time.
        since: Option<Timestamp>,
        /// True if the hook has taken so long that an operator has to check it.
        overdue: bool,
    },
    /// The node is next in the order, but a PodDisruptionBudget rejects the eviction of its pod (`disruption: evict`). The node
    /// takes no slot.
    BlockedByPdb {
        /// Time of the first rejected eviction.
        since: Timestamp,
        /// Reason why the eviction was rejected.
        obstruction: Obstruction,
    },
    /// The node is next in the order, but the API server rejects the write. The node takes a slot only if it had one before.
    Refused {
        /// Time of the first rejected write.
        since: Timestamp,
    },
    /// The node is outdated and waits for a free slot.
    Budget {
        /// True if the node's old pod is unavailable.
        broken: bool,
    },
    /// The node is outdated, and nodes of other failure domains are updated first (`topology-key`).
    AwaitingDomain,
    /// The node is offline, or returned recently and has not settled. It does not block other nodes.
    Offline(Offline),
    /// The node failed soon after the rollout touched it. It takes a slot while it is Ready.
    FailedByRevision {
        /// Time at which the node failed.
        since: Timestamp,
        /// Kind of failure.
        cause: Cause,
    },
    /// The node is outdated, and the rollout is paused.
    Paused {
        /// End of the pause; `None` if an operator has to resume the rollout.
        until: Option<Timestamp>,
    },
    /// The node keeps its outdated pod because of `partition`.
    Partition,
    /// The node keeps its outdated pod because its labels don't match `selector`.
    NotSelected,
    /// The node keeps its outdated pod because of its annotation `hold`.
    Held {
        /// End of the hold; `None` if it has none.
        until: Option<Timestamp>,
    },
    /// The node is outdated, and the guard allows no further updates.
    Guarded(Guarded),
    /// The node's pod is rolled back from the revision that the guard stopped (`on-failure: RevertInPlace`).
    Revert(Revert),
    /// The node is outdated, and its wave is not open.
    WaveNotOpen {
        /// Position of the node's wave in the list of waves.
        wave: usize,
        /// Reason why the node's wave is not open.
        why: WaveShut,
    },
    /// The node is outdated, and no maintenance window is open.
    OutOfWindow {
        /// Time of the next opening; `None` if the window never opens, because the annotation on its Node cannot be parsed.
        opens: Option<Timestamp>,
    },
    /// The node is outdated and first has to pull the images (`predownload: required`).
    PullPending(PullStage),
    /// The node is outdated, and its owner decides when to update it (OTA).
    AwaitingOwner,
    /// The node is outdated until another client deletes its pod (`OnDelete`).
    AwaitingDeletion,
    /// The native controller has not processed the latest change of the DaemonSet, so the current revision is not known yet.
    NativeControllerBehind,
    /// The settings of the DaemonSet are invalid.
    Invalid,
    /// The node should not run a pod. If a pod is left there, the native controller decides about it.
    NotTargeted,
    /// The node keeps its outdated pod, because a `NoSchedule` taint would prevent a new one.
    UntoleratedTaint,
}

/// Stage of the update of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// This plan deletes or updates the node's pod.
    Replacing,
    /// The old pod is terminating.
    Terminating,
    /// The node has no pod, and the native controller creates one.
    Missing {
        /// Time since which the node has no pod; `None` if it is unknown.
        since: Option<Timestamp>,
    },
    /// The pod is being updated in place, and the kubelet has not started the new containers yet.
    UpdatingInPlace {
        /// Time at which the update was requested.
        since: Timestamp,
    },
    /// The pod is being rolled back in place from the revision that the guard stopped, and is not available yet.
    Reverting {
        /// Time at which the rollback was requested.
        since: Timestamp,
    },
    /// The new pod is not Ready.
    Starting,
    /// The new pod is Ready, but not yet for `minReadySeconds`.
    NotYetAvailable {
        /// Time at which the pod becomes available.
        available_at: Timestamp,
    },
    /// The node has more than one pod. The native controller removes all but one.
    Surplus,
    /// The previous pod is still terminating, while another pod serves.
    OldTerminating,
    /// A surge pod was created next to the old one (`max-surge`) and is not Ready.
    SurgeStarting,
    /// The surge pod is Ready, but not yet for `minReadySeconds`, so the old pod stays.
    SurgeYoung {
        /// Time at which the surge pod becomes available and the old pod is deleted.
        available_at: Timestamp,
    },
    /// The surge pod is available. The old pod is deleted, and the DaemonSet adopts the surge pod.
    SurgeTakingOver,
    /// The surge pod is no longer needed and is being deleted.
    SurgeLeaving,
}

/// Progress of the image pre-pull on a node that waits for its images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullStage {
    /// The node waits for its pull, because the maximum number of nodes is pulling (`image-predownload-parallelism`).
    Queued {
        /// True if an earlier attempt to pull the images failed.
        failed: bool,
    },
    /// The images were requested, and the pull is not finished.
    UnderWay {
        /// True if an earlier attempt to pull the images failed.
        again: bool,
    },
    /// The last attempt to pull the images failed.
    Failed {
        /// Earliest time of the next attempt.
        retry: Timestamp,
    },
    /// The node may not pull before more pods of the current revision are Ready (`image-predownload-min-updated-ready-pods`).
    ///
    /// These pods are on nodes that are updated without a pre-pull.
    AwaitingReady,
}

impl PullStage {
    /// Returns true if an attempt to pull has failed, even if another attempt is queued or running.
    pub fn has_failed(self) -> bool {
        match self {
            Self::Queued { failed: tried } | Self::UnderWay { again: tried } => tried,
            Self::Failed { .. } => true,
            Self::AwaitingReady => false,
        }
    }
}

/// Reason why the API server rejected an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstruction {
    /// The disruption budget allows no further disruption now.
    Exhausted,
    /// Kubernetes has not processed the current version of the disruption budget yet.
    NotProcessed,
    /// Kubernetes cannot compute the allowed disruptions. For pods of a DaemonSet, the budget needs an absolute `minAvailable`.
    NotComputed,
    /// More than one disruption budget selects the pod.
    Several,
}

impl Obstruction {
    /// Returns the reason to report if the rejections last longer than ten seconds. Kubernetes processes a budget within a second,
    /// so `NotProcessed` then means that the budget can't be computed.
    pub(super) fn after_a_while(self) -> Self {
        match self {
            Self::NotProcessed => Self::NotComputed,
            other => other,
        }
    }

    /// Returns true if the budgets contain a mistake, which only an operator can correct.
    pub fn is_mistake(self) -> bool {
        matches!(self, Self::NotComputed | Self::Several)
    }
}

/// Kind of failure of a node that got the current revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The node became NotReady.
    NodeLost,
    /// The node's new pod crashes.
    Crashing,
    /// A container of the node's new pod cannot be started.
    NotStarting,
}

impl Cause {
    /// Returns true if a node with this failure takes a slot: it is Ready and has a failing pod. A lost node blocks no other nodes.
    pub fn holds_slot(self) -> bool {
        match self {
            Self::NodeLost => false,
            Self::Crashing | Self::NotStarting => true,
        }
    }
}

/// Reason why the guard allows no further updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// The guard stopped the revision. The rollout continues with a new revision, or after an operator resumes it.
    Stopped(Stopped),
    /// Nodes were lost, and the guard has not decided yet if the revision or the network is the cause.
    Inconclusive {
        /// Time at which the guard decides, if nothing changes before.
        until: Timestamp,
    },
}

impl Guarded {
    /// Returns the word for this reason, as in conditions.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stopped(stopped) => stopped.word(),
            Self::Inconclusive { .. } => "Inconclusive",
        }
    }
}

/// Reason why the guard stopped a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Stopped {
    /// More nodes failed with the revision than `failure-threshold` allows.
    FailedByRevision,
    /// The pod of a node was replaced twice and is outdated again, so a third replacement would not help.
    ReplacedTwice,
}

impl Stopped {
    /// All reasons for a stop.
    pub const ALL: [Self; 2] = [Self::FailedByRevision, Self::ReplacedTwice];

    /// Returns the word for this reason, as in conditions.
    pub fn word(self) -> &'static str {
        match self {
            Self::FailedByRevision => "FailedByRevision",
            Self::ReplacedTwice => "ReplacedTwice",
        }
    }

    /// Returns the reason with this word; `None` if no reason has it.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stopped| stopped.word() == word)
    }
}

/// Progress of the rollback of a pod from the revision that the guard stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revert {
    /// The pod is available with the stopped revision, and waits for a slot for its rollback.
    Pending,
    /// The pod was rolled back to an earlier revision and keeps it.
    Done,
}

/// Reason why a wave is not open. Waves are identified by their position in the list of waves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaveShut {
    /// A node of an earlier wave failed after it got the current revision.
    Charged {
        /// Position of the earlier wave; `None` if it is unknown or no longer in the list.
        wave: Option<usize>,
    },
    /// Some online nodes of an earlier wave are not updated yet.
    Unfinished {
        /// Position of the earlier wave.
        wave: usize,
    },
    /// All online nodes of an earlier wave are updated, and its soak time has not ended.
    Soaking {
        /// Position of the earlier wave.
        wave: usize,
        /// Time at which the soak time ends.
        until: Timestamp,
    },
    /// This wave or an earlier one is not approved for the current revision.
    Approval {
        /// Position of the wave to approve.
        wave: usize,
    },
}

impl WaveShut {
    /// Returns true if the wave waits for its soak time or an approval, and false if it waits for other nodes.
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
    /// The Ready condition of the node is not `True`.
    NotReady {
        /// Time at which the node became NotReady; `None` if it never reported its status.
        since: Option<Timestamp>,
    },
    /// The node is NotReady and has a terminating pod, which can't finish before the node returns.
    Terminating {
        /// Time at which the node became NotReady; `None` if it never reported its status.
        since: Option<Timestamp>,
    },
    /// The Node object does not exist.
    NoNode,
    /// The node returned recently and may be lost again.
    Settling {
        /// Time from which the node counts as online.
        until: Timestamp,
    },
    /// The node is NotReady and already runs the current revision.
    Updated {
        /// Time at which the node became NotReady; `None` if it never reported its status.
        since: Option<Timestamp>,
    },
}

impl Verdict {
    /// All words, in the order in which tables list them.
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

    /// Returns the position of the verdict's word in [`Verdict::WORDS`].
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

    /// Returns true if the node takes a slot. It is being updated, or it is Ready with a pod that fails because of the revision.
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

    /// Returns true if the node failed after it got the current revision.
    pub(super) fn is_failed(&self) -> bool {
        matches!(self, Self::FailedByRevision { .. })
    }

    /// Returns true if a disruption budget rejects the eviction of the node's pod.
    pub(super) fn is_blocked(&self) -> bool {
        matches!(self, Self::BlockedByPdb { .. })
    }

    /// Returns true if the node waits only for other nodes: for a slot, or for an earlier failure domain.
    pub fn awaits_turn(&self) -> bool {
        matches!(self, Self::Budget { .. } | Self::AwaitingDomain)
    }

    /// Returns true if a setting makes the node keep its outdated pod.
    pub(super) fn is_kept(&self) -> bool {
        matches!(
            self,
            Self::Partition | Self::NotSelected | Self::Held { .. }
        )
    }

    /// Returns the word for this verdict, as in metric labels and tables.
    pub fn word(&self) -> &'static str {
        Self::WORDS[self.index()]
    }
}
