//! Writes: one action per write to one pod, and the image pulls that are requested.

use super::fleet::in_place::InPlacePatch;
use super::id::{NodeName, PodName, PodUid, ResourceVersion, Revision};
use super::lifecycle::GateWrite;

/// One write to one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Delete the pod, if its UID and version still match.
    Delete(PodRef),
    /// Delete the pod through the eviction API, so that its disruption budget can refuse (`disruption: evict`).
    Evict(PodRef),
    /// Update the running pod in place, if its UID and version still match.
    UpdateInPlace {
        /// The pod.
        pod: PodRef,
        /// The change to write.
        patch: InPlacePatch,
    },
    /// Change the marks that announce the deletion of the pod.
    Mark {
        /// The pod.
        pod: PodRef,
        /// True to mark the pod `PreparingDelete`, false to remove that mark; `None` to leave it.
        preparing: Option<bool>,
        /// Write to its readiness gate `KruisePodReady`, sent before the mark.
        gate: Option<GateWrite>,
    },
    /// Create a pod of `revision` on `node`, next to the existing one (`max-surge`).
    ///
    /// Node and revision determine its name, so the API server refuses a second creation.
    Surge {
        /// The node.
        node: NodeName,
        /// The existing pod.
        beside: PodRef,
        /// Revision of the new pod.
        revision: Revision,
    },
    /// Delete (or evict) the pod, then make the DaemonSet the owner of its successor.
    DeleteAfterSurge {
        /// The old pod.
        pod: PodRef,
        /// The surge pod that replaces it.
        successor: PodRef,
        /// True if the disruption budget of the pod can refuse the deletion.
        evict: bool,
    },
    /// Make the DaemonSet the controller of this surge pod.
    TransferOwnership(PodRef),
    /// Set the pod condition `PodNeedUpgrade`.
    SetNeedUpgrade {
        /// The pod.
        pod: PodRef,
        /// The new status.
        needed: bool,
        /// The target revision, for the message.
        revision: Revision,
        /// True if the status differs from the present one; then `lastTransitionTime` is set.
        flips: bool,
        /// True if no new pod would be created on this node if this one were deleted; the reason says so.
        repelled: bool,
        /// Change to a `PodImageReady` for another revision, in the same write.
        stale_image: Option<StaleImage>,
    },
    /// Set the pod condition `PodImageReady` to request the images of this revision.
    AskForImages {
        /// The pod.
        pod: PodRef,
        /// The target revision, for the message.
        revision: Revision,
        /// True if this is the first request for this revision: `lastTransitionTime` is set, and earlier failures are cleared.
        anew: bool,
    },
    /// Remove the listed OTA conditions from the pod.
    RemoveConditions {
        /// The pod.
        pod: PodRef,
        /// Condition types.
        types: Vec<&'static str>,
    },
}

impl Action {
    /// Returns the pod of the action; for a surge pod that is to be created, the existing pod next to it.
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

    /// Returns this action without the version precondition: it applies to any version of the pod.
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

    /// Returns true if it is a step of the replacement of a pod.
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

    /// Returns this action for a pod with a surge pod next to it.
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

    /// Returns true if it deletes the pod.
    pub fn ends(&self) -> bool {
        matches!(
            self,
            Self::Delete(_) | Self::Evict(_) | Self::DeleteAfterSurge { .. }
        )
    }

    /// Returns true if a serving pod may stop serving because of it.
    pub(super) fn takes_down(&self) -> bool {
        self.ends() || matches!(self, Self::UpdateInPlace { .. })
    }

    /// Returns true if both have the same effect, regardless of the version of the pod.
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

/// Change to a `PodImageReady` for a revision other than the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleImage {
    /// It holds the result of an old pull, or its images are no longer needed: it is removed.
    Drop,
    /// It requested a pull and got no answer yet: it now requests the images of the target revision.
    AskAgain,
}

/// A request for the images of `revision` on the node of this pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// The pod whose condition holds the request.
    pub pod: PodRef,
    /// Its node.
    pub node: NodeName,
    /// The target revision.
    pub revision: Revision,
    /// Initiator of the pull.
    pub initiator: PullInitiator,
    /// True if the pull may begin now. No pull begins on a node that is not Ready or during a pause; running ones continue.
    pub begins: bool,
    /// True if the result may be written now.
    pub tells: bool,
}

/// Initiator of an image pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullInitiator {
    /// The node owner, before approving the update (OTA).
    Owner,
    /// The rollout, which limits the number of nodes that pull at once.
    Rollout,
}

/// A pod at the version for which an action was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Its name.
    pub name: PodName,
    /// Its UID.
    pub uid: PodUid,
    /// Its version; [`ResourceVersion::any`] where it does not matter.
    pub resource_version: ResourceVersion,
}

/// Limit of deletions per plan, and roughly of pods whose conditions are written.
///
/// It is the native controller's `BurstReplicas`, kept for the same reason: to avoid bursts of writes.
pub(crate) const BATCH: usize = 250;

/// Limit of concurrent pulls in the cluster.
///
/// Each pull adds a Job and a pod to the load of the API server, and most pulls share one registry.
pub(crate) const PULLS_AT_ONCE: usize = 50;
