//! Why each node is where it is. `ctl`, Events, metrics, the simulator's report and the tests all speak these words.

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

/// What the engine thinks of one node, from the closed list of words in [`Verdict::WORDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Runs an available pod of the current revision.
    Done,
    /// On its way: occupies budget until its pod is available.
    InProgress(Progress),
    /// Its pod is to be deleted, and whoever has to agree to that has not (`lifecycle`): occupies budget.
    HookPending {
        /// Since when, as far as the pod says so.
        since: Option<Timestamp>,
        /// Whether that is for so long that somebody should look.
        overdue: bool,
    },
    /// Its pod has its turn, and a PodDisruptionBudget does not let it go (`disruption: evict`): spends nothing.
    BlockedByPdb {
        /// Since when it is refused.
        since: Timestamp,
        /// In which way.
        obstruction: Obstruction,
    },
    /// Has its turn, and the API server refuses what is asked for: spends nothing that it did not hold before.
    Refused {
        /// Since when.
        since: Timestamp,
    },
    /// Outdated; its turn comes when a slot is free.
    Budget {
        /// Its present pod is not available anyway.
        broken: bool,
    },
    /// Outdated; another failure domain has its turn (`topology-key`).
    AwaitingDomain,
    /// Cannot be reached, or has not been back for long enough; does not hold up others.
    Offline(Offline),
    /// Failed soon after the rollout touched it: keeps its slot while it is Ready.
    FailedByRevision {
        /// Since when.
        since: Timestamp,
        /// In which way.
        cause: Cause,
    },
    /// The rollout is paused.
    Paused {
        /// When it goes on by itself; `None` when a person has to resume it.
        until: Option<Timestamp>,
    },
    /// Keeps its outdated pod: it is one of those that `partition` holds back.
    Partition,
    /// Keeps its outdated pod: its labels do not match `selector`.
    NotSelected,
    /// Keeps its outdated pod: the annotation `hold` on the Node asks for that.
    Held {
        /// When that ends by itself.
        until: Option<Timestamp>,
    },
    /// Outdated, and the guard lets nothing new begin.
    Guarded(Guarded),
    /// Its pod is taken back to the revision before the one that the guard stopped (`on-failure: RevertInPlace`).
    Revert(Revert),
    /// Outdated, and its wave is not open.
    WaveNotOpen {
        /// The position of its wave.
        wave: usize,
        /// What is awaited.
        why: WaveShut,
    },
    /// Outdated, and no maintenance window is open.
    OutOfWindow {
        /// When the next one opens; `None`: never, because the Node's own cannot be read.
        opens: Option<Timestamp>,
    },
    /// Outdated, and its images are not on the node yet (`predownload: required`).
    PullPending(PullStage),
    /// OTA: a newer revision is there; the owner of the node decides when.
    AwaitingOwner,
    /// `OnDelete`: outdated until somebody deletes its pod.
    AwaitingDeletion,
    /// The native DaemonSet controller has not caught up with the DaemonSet; nothing may be touched.
    NativeControllerBehind,
    /// The DaemonSet's settings cannot be used.
    Invalid,
    /// No pod belongs here (any more); what is left is the native controller's to remove or to keep.
    NotTargeted,
    /// Keeps its outdated pod: a taint of effect `NoSchedule` on the node would keep the next one away.
    UntoleratedTaint,
}

/// What a node in progress is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Its pod is being replaced by this very plan.
    Replacing,
    /// Its pod is terminating.
    Terminating,
    /// It has no pod; the native controller makes one.
    Missing {
        /// Since when, as far as known.
        since: Option<Timestamp>,
    },
    /// Its pod is being updated in place: the kubelet has not started the new containers yet.
    UpdatingInPlace {
        /// Since when.
        since: Timestamp,
    },
    /// Its pod is taken back in place to the revision before the one that the guard stopped, and is not available yet.
    Reverting {
        /// Since when.
        since: Timestamp,
    },
    /// Its new pod is not Ready.
    Starting,
    /// Its new pod is Ready, but not yet for `minReadySeconds`.
    NotYetAvailable {
        /// When it will be available.
        available_at: Timestamp,
    },
    /// It has more than one pod; the native controller removes the surplus.
    Surplus,
    /// The pod before the one that serves is still terminating beside it.
    OldTerminating,
    /// A new pod was made beside the old one (`max-surge`), and is not Ready.
    SurgeStarting,
    /// The new pod beside the old one is Ready, but not yet for `minReadySeconds`.
    SurgeYoung {
        /// When it will be available: the old one goes then.
        available_at: Timestamp,
    },
    /// The new pod beside the old one is available: the old one goes, and the DaemonSet takes the new one over.
    SurgeTakingOver,
    /// The pod that was made beside the old one is not wanted any more, and goes.
    SurgeLeaving,
}

/// How far the images of a node are that waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullStage {
    /// As many nodes pull as may (`image-predownload-parallelism`); its turn comes.
    Queued {
        /// Whether an earlier attempt failed.
        failed: bool,
    },
    /// It is asked to pull them.
    UnderWay {
        /// Whether an earlier attempt failed.
        again: bool,
    },
    /// The last attempt failed.
    Failed {
        /// When the next one may begin.
        retry: Timestamp,
    },
    /// Nobody is asked before more pods of the current revision are Ready (`image-predownload-min-updated-ready-pods`), and enough
    /// nodes are on their way without.
    AwaitingReady,
}

impl PullStage {
    /// Whether an attempt has failed, whatever happens now.
    pub fn has_failed(self) -> bool {
        match self {
            Self::Queued { failed: tried } | Self::UnderWay { again: tried } => tried,
            Self::Failed { .. } => true,
            Self::AwaitingReady => false,
        }
    }
}

/// In which way an eviction was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstruction {
    /// The disruption budget has none to give now.
    Exhausted,
    /// Kubernetes has not looked at the disruption budget (as it is now) yet.
    NotProcessed,
    /// Kubernetes cannot work out how many pods it lets go: for the pods of a DaemonSet it can do that only with a
    /// `minAvailable` that is a number.
    NotComputed,
    /// More than one disruption budget selects the pod.
    Several,
}

impl Obstruction {
    /// What it means when it is said again after ten seconds: Kubernetes looks at a budget within one.
    pub(super) fn after_a_while(self) -> Self {
        match self {
            Self::NotProcessed => Self::NotComputed,
            other => other,
        }
    }

    /// Whether somebody has to correct the disruption budgets.
    pub fn is_mistake(self) -> bool {
        matches!(self, Self::NotComputed | Self::Several)
    }
}

/// In which way a node failed after it got the current revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It turned NotReady.
    NodeLost,
    /// Its new pod crashes.
    Crashing,
    /// A container of its new pod cannot be started.
    NotStarting,
}

impl Cause {
    /// Whether the node is Ready and has a pod that fails: it keeps its slot. Who was lost holds up nobody.
    pub fn holds_slot(self) -> bool {
        match self {
            Self::NodeLost => false,
            Self::Crashing | Self::NotStarting => true,
        }
    }
}

/// Why the guard lets nothing new begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// The revision was stopped: another one, or a person, has to release it.
    Stopped(Stopped),
    /// Nodes were lost, and it is open whether the revision or the network took them away.
    Inconclusive {
        /// When that ends by itself.
        until: Timestamp,
    },
}

impl Guarded {
    /// Its word, the reason of conditions.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stopped(stopped) => stopped.word(),
            Self::Inconclusive { .. } => "Inconclusive",
        }
    }
}

/// Why a revision was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Stopped {
    /// More nodes failed after they got it than `failure-threshold` allows.
    FailedByRevision,
    /// A node's pod was replaced twice for it and is outdated again: replacing does not help.
    ReplacedTwice,
}

impl Stopped {
    /// Every reason.
    pub const ALL: [Self; 2] = [Self::FailedByRevision, Self::ReplacedTwice];

    /// Its word, the reason of conditions.
    pub fn word(self) -> &'static str {
        match self {
            Self::FailedByRevision => "FailedByRevision",
            Self::ReplacedTwice => "ReplacedTwice",
        }
    }

    /// The reason of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stopped| stopped.word() == word)
    }
}

/// How far a pod is taken back that had the revision which the guard stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revert {
    /// It has that revision and is available: its turn comes when a slot is free.
    Pending,
    /// It has the revision before again, and keeps it.
    Done,
}

/// Why a wave is not open. Waves are told by their position in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaveShut {
    /// A node of that earlier wave failed after it got the current revision.
    Charged {
        /// The earlier wave; `None`: it is not in the list any more, or not known.
        wave: Option<usize>,
    },
    /// Not all nodes of that earlier wave that are online are done.
    Unfinished {
        /// The earlier wave.
        wave: usize,
    },
    /// That earlier wave is done, and has to stay well until then.
    Soaking {
        /// The earlier wave.
        wave: usize,
        /// When it is complete.
        until: Timestamp,
    },
    /// Nobody approved that wave (itself, or an earlier one) for the current revision.
    Approval {
        /// The wave to approve.
        wave: usize,
    },
}

impl WaveShut {
    /// Whether a time or an approval is awaited, and not what other nodes do.
    pub(super) fn is_named(self) -> bool {
        match self {
            Self::Soaking { .. } | Self::Approval { .. } => true,
            Self::Charged { .. } | Self::Unfinished { .. } => false,
        }
    }
}

/// Why a node counts as offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offline {
    /// Its Ready condition is not `True`.
    NotReady {
        /// Since when; `None` when it never reported.
        since: Option<Timestamp>,
    },
    /// As [`Offline::NotReady`], with a pod that cannot finish terminating before the node returns.
    Terminating {
        /// Since when the node is NotReady.
        since: Option<Timestamp>,
    },
    /// Its Node object does not exist.
    NoNode,
    /// It returned a moment ago and may go again.
    Settling {
        /// When it counts as back.
        until: Timestamp,
    },
    /// It is NotReady, and runs the current revision already.
    Updated {
        /// Since when the node is NotReady.
        since: Option<Timestamp>,
    },
}

impl Verdict {
    /// Every word, in the order of tables.
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

    /// Position of its word in [`Verdict::WORDS`].
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

    /// Whether the node is on its way, or Ready with a pod that fails on the revision's account: others wait for its slot.
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

    /// Whether nothing keeps the node back but that others go first: in its queue, or in its order of failure domains.
    pub fn awaits_turn(&self) -> bool {
        matches!(self, Self::Budget { .. } | Self::AwaitingDomain)
    }

    /// Whether the node keeps its outdated pod because the settings say so.
    pub(super) fn is_kept(&self) -> bool {
        matches!(
            self,
            Self::Partition | Self::NotSelected | Self::Held { .. }
        )
    }

    /// Its word: a label for metrics, a cell of a table.
    pub fn word(&self) -> &'static str {
        Self::WORDS[self.index()]
    }
}
