//! What is written: one action per write to one pod, and the pulls that are asked for.

use super::fleet::in_place::InPlacePatch;
use super::id::{NodeName, PodName, PodUid, ResourceVersion, Revision};
use super::lifecycle::GateWrite;

/// One write to one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Delete the pod, if it still is the one that was judged.
    Delete(PodRef),
    /// The same, if its disruption budget allows that too (`disruption: evict`).
    Evict(PodRef),
    /// Update the running pod in place, if it still is the one that was judged.
    UpdateInPlace {
        /// The pod.
        pod: PodRef,
        /// What to write.
        patch: InPlacePatch,
    },
    /// Change how the pod is marked for its way out.
    Mark {
        /// The pod.
        pod: PodRef,
        /// Whether it is to be marked `PreparingDelete`, or that mark to be removed; `None`: neither.
        preparing: Option<bool>,
        /// What to write into its readiness gate `KruisePodReady`, before the mark.
        gate: Option<GateWrite>,
    },
    /// Make a pod of `revision` on `node`, beside the one that is there (`max-surge`). It is found again by the name that
    /// follows from the two: made twice, it is refused the second time.
    Surge {
        /// The node.
        node: NodeName,
        /// The pod that is there.
        beside: PodRef,
        /// What the new one runs.
        revision: Revision,
    },
    /// Delete (or evict) the pod, then hand its successor over to the DaemonSet.
    DeleteAfterSurge {
        /// The old pod.
        pod: PodRef,
        /// The one that was made beside it.
        successor: PodRef,
        /// Whether it goes only if its disruption budget allows that.
        evict: bool,
    },
    /// Make the DaemonSet the controller of this pod, which was made beside another one.
    TransferOwnership(PodRef),
    /// Set the pod condition `PodNeedUpgrade`.
    SetNeedUpgrade {
        /// The pod.
        pod: PodRef,
        /// The new status.
        needed: bool,
        /// The target revision, for the message.
        revision: Revision,
        /// Whether the status differs from the present one (then `lastTransitionTime` is set).
        flips: bool,
        /// Whether no other pod would come to this node if this one went; the reason says so.
        repelled: bool,
        /// What happens in the same write to a `PodImageReady` that is about another revision.
        stale_image: Option<StaleImage>,
    },
    /// Let the pod condition `PodImageReady` ask for the images of this revision.
    AskForImages {
        /// The pod.
        pod: PodRef,
        /// The target revision, for the message.
        revision: Revision,
        /// Whether this revision is asked for the first time: then `lastTransitionTime` is set, and what failed before
        /// is forgotten.
        anew: bool,
    },
    /// Remove these of the two OTA conditions from the pod.
    RemoveConditions {
        /// The pod.
        pod: PodRef,
        /// Condition types.
        types: Vec<&'static str>,
    },
}

impl Action {
    /// The pod that it is about; for a pod that is to be made, the one beside it.
    pub fn pod(&self) -> &PodRef {
        match self {
            Self::Delete(pod)
            | Self::Evict(pod)
            | Self::UpdateInPlace { pod, .. }
            | Self::Mark { pod, .. }
            | Self::TransferOwnership(pod)
            | Self::Surge { beside: pod, .. }
            | Self::DeleteAfterSurge { pod, .. }
            | Self::SetNeedUpgrade { pod, .. }
            | Self::AskForImages { pod, .. }
            | Self::RemoveConditions { pod, .. } => pod,
        }
    }

    /// Returns the same action, which replaces the pod whatever its version is.
    pub fn by_uid(mut self) -> Self {
        if let Self::Delete(pod)
        | Self::Evict(pod)
        | Self::DeleteAfterSurge { pod, .. }
        | Self::UpdateInPlace { pod, .. } = &mut self
        {
            pod.resource_version = ResourceVersion::any();
        }
        self
    }

    /// Whether it is a step of the replacement of a pod.
    pub fn begins(&self) -> bool {
        match self {
            Self::Delete(_)
            | Self::Evict(_)
            | Self::UpdateInPlace { .. }
            | Self::Surge { .. }
            | Self::DeleteAfterSurge { .. }
            | Self::TransferOwnership(_) => true,
            Self::Mark { preparing, .. } => *preparing == Some(true),
            _ => false,
        }
    }

    /// The same for a pod whose successor stands beside it.
    pub(super) fn before(self, successor: PodRef) -> Self {
        match self {
            Self::Delete(pod) => Self::DeleteAfterSurge {
                pod,
                successor,
                evict: false,
            },
            Self::Evict(pod) => Self::DeleteAfterSurge {
                pod,
                successor,
                evict: true,
            },
            other => other,
        }
    }

    /// Whether the pod goes because of it.
    pub fn ends(&self) -> bool {
        matches!(
            self,
            Self::Delete(_) | Self::Evict(_) | Self::DeleteAfterSurge { .. }
        )
    }

    /// Whether a pod that serves may stop doing so because of it.
    pub(super) fn takes_down(&self) -> bool {
        self.ends() || matches!(self, Self::UpdateInPlace { .. })
    }

    /// Whether both would have the same effect, whatever version of the pod they were decided upon.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let uid = |action: &Self| action.pod().uid.clone();
        uid(self) == uid(other)
            && match (self, other) {
                (Self::Delete(_), Self::Delete(_))
                | (Self::Evict(_), Self::Evict(_))
                | (Self::TransferOwnership(_), Self::TransferOwnership(_)) => true,
                (Self::Surge { revision: a, .. }, Self::Surge { revision: b, .. }) => a == b,
                (
                    Self::DeleteAfterSurge { successor: a, .. },
                    Self::DeleteAfterSurge { successor: b, .. },
                ) => a.uid == b.uid,
                (Self::UpdateInPlace { patch: a, .. }, Self::UpdateInPlace { patch: b, .. }) => {
                    (&a.revision, &a.reverts) == (&b.revision, &b.reverts)
                }
                (
                    Self::Mark {
                        preparing: a,
                        gate: b,
                        ..
                    },
                    Self::Mark {
                        preparing: c,
                        gate: d,
                        ..
                    },
                ) => (a, b) == (c, d),
                (
                    Self::SetNeedUpgrade {
                        needed: a,
                        revision: b,
                        repelled: c,
                        stale_image: d,
                        ..
                    },
                    Self::SetNeedUpgrade {
                        needed: e,
                        revision: f,
                        repelled: g,
                        stale_image: h,
                        ..
                    },
                ) => (a, b, c, d) == (e, f, g, h),
                (
                    Self::AskForImages { revision: a, .. },
                    Self::AskForImages { revision: b, .. },
                ) => a == b,
                (
                    Self::RemoveConditions { types: a, .. },
                    Self::RemoveConditions { types: b, .. },
                ) => a == b,
                _ => false,
            }
    }
}

/// What becomes of a `PodImageReady` that is about another revision than the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleImage {
    /// It says how an old pull ended, or nobody needs it any more: it goes.
    Drop,
    /// It asked for a pull and had no answer yet: it asks for the target now.
    AskAgain,
}

/// A wish: the images of `revision` on the node of this pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// The pod whose condition asks.
    pub pod: PodRef,
    /// Its node.
    pub node: NodeName,
    /// The target revision.
    pub revision: Revision,
    /// Who wants that.
    pub initiator: PullInitiator,
    /// Whether it may begin now. On a node that is not Ready, or while all is paused, nothing begins; what is under way
    /// there goes on.
    pub begins: bool,
    /// Whether the result may be written now.
    pub tells: bool,
}

/// Who wants images on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullInitiator {
    /// The owner of the node, before saying "upgrade" (OTA).
    Owner,
    /// The rollout, which asks no more nodes at once than it may.
    Rollout,
}

/// A pod as it was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Its name.
    pub name: PodName,
    /// Its UID.
    pub uid: PodUid,
    /// Its version; [`ResourceVersion::any`] where that does not matter.
    pub resource_version: ResourceVersion,
}

/// Deletions per plan, and (about) pods whose conditions are written: the native controller's limit, kept for the same
/// reason, no avalanche of writes (Kubernetes, `BurstReplicas`).
pub(crate) const BATCH: usize = 250;

/// Pulls that run at once in the cluster. Each adds a Job and a pod to the load of the API server, and most share one registry.
pub(crate) const PULLS_AT_ONCE: usize = 50;
