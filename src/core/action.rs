//! Actions: the writes to pods and the image pulls that a plan contains.

use super::fleet::in_place::InPlacePatch;
use super::id::{NodeName, PodName, PodUid, ResourceVersion, Revision};
use super::lifecycle::GateWrite;

/// One write to one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Delete the pod, if its UID and resource version still match.
    Delete(PodRef),
    /// Delete the pod through the eviction API, so that its disruption budget can reject the deletion (`disruption: evict`).
    Evict(PodRef),
    /// Update the running pod in place, if its UID and resource version still match.
    UpdateInPlace {
        /// Pod to update.
        pod: PodRef,
        /// Change to write.
        patch: InPlacePatch,
    },
    /// Mark the pod `PreparingDelete`, or remove the mark. The mark announces the deletion to the program that implements the
    /// preDelete hook.
    Mark {
        /// Pod to change.
        pod: PodRef,
        /// True to mark the pod `PreparingDelete`, false to remove that mark; `None` to leave it.
        preparing: Option<bool>,
        /// Write to the condition of the pod's readiness gate `KruisePodReady`. It is made before the pod is marked.
        gate: Option<GateWrite>,
    },
    /// Create a surge pod of `revision` on `node`, next to the existing pod (`max-surge`).
    ///
    /// The name of the pod depends only on node and revision, so the API server rejects a second creation.
    Surge {
        /// Node of the new pod.
        node: NodeName,
        /// Existing pod on the node.
        beside: PodRef,
        /// Revision of the new pod.
        revision: Revision,
    },
    /// Delete or evict the old pod, then make the DaemonSet the owner of the surge pod.
    DeleteAfterSurge {
        /// Old pod, which is deleted.
        pod: PodRef,
        /// Surge pod that replaces the old pod.
        successor: PodRef,
        /// True if the pod is evicted, so that its disruption budget can reject the deletion.
        evict: bool,
    },
    /// Make the DaemonSet the controller of this surge pod in the pod's owner references.
    TransferOwnership(PodRef),
    /// Set the pod condition `PodNeedUpgrade`.
    SetNeedUpgrade {
        /// Pod to change.
        pod: PodRef,
        /// New status of the condition.
        needed: bool,
        /// Target revision, for the message of the condition.
        revision: Revision,
        /// True if the status changes. `lastTransitionTime` then has to be set.
        flips: bool,
        /// True if the node has a taint because of which no new pod could start there after this pod's deletion. The condition then
        /// has a reason that says so.
        repelled: bool,
        /// Correction of the pod's condition `PodImageReady` if that is about another revision. The same write makes it.
        stale_image: Option<StaleImage>,
    },
    /// Set the pod condition `PodImageReady` to request the images of this revision.
    AskForImages {
        /// Pod to change.
        pod: PodRef,
        /// Target revision, for the message of the condition.
        revision: Revision,
        /// True if this is the first request for this revision. Then the write also sets `lastTransitionTime` and removes reported
        /// failures.
        anew: bool,
    },
    /// Remove the listed OTA conditions from the pod.
    RemoveConditions {
        /// Pod to change.
        pod: PodRef,
        /// Types of the conditions.
        types: Vec<&'static str>,
    },
}

impl Action {
    /// Returns the pod that the action changes. For the creation of a surge pod, this is the existing pod next to it.
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

    /// Returns this action without the precondition on the resource version, so that it succeeds even if the pod has changed.
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

    /// Returns true if the action is a step in the replacement of a pod.
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

    /// Returns true if the action deletes a pod or updates it in place.
    pub fn replaces(&self) -> bool {
        matches!(
            self,
            Self::Delete(_)
                | Self::Evict(_)
                | Self::UpdateInPlace { .. }
                | Self::DeleteAfterSurge { .. }
        )
    }

    /// Returns the form of this action for a node with a surge pod. If the action deletes the old pod, it then also makes the
    /// DaemonSet the owner of the surge pod `successor`.
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

    /// Returns true if the action deletes the pod.
    pub fn ends(&self) -> bool {
        matches!(
            self,
            Self::Delete(_) | Self::Evict(_) | Self::DeleteAfterSurge { .. }
        )
    }

    /// Returns true if the action deletes or updates the pod, so that an available pod may become unavailable.
    pub(super) fn takes_down(&self) -> bool {
        self.ends() || matches!(self, Self::UpdateInPlace { .. })
    }

    /// Returns true if both actions have the same effect, regardless of the resource version of the pod.
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

/// Correction of a pod's `PodImageReady` that is about another revision than the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleImage {
    /// Remove the condition: it is the result of an old pull, or its images are no longer needed.
    Drop,
    /// Request the images of the target revision instead, because the old request has no result yet.
    AskAgain,
}

/// A request to pull the images of `revision` on the node of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// Pod whose condition contains the request.
    pub pod: PodRef,
    /// Node of the pod.
    pub node: NodeName,
    /// Revision whose images are pulled.
    pub revision: Revision,
    /// Initiator of the pull.
    pub initiator: PullInitiator,
    /// True if the pull may begin now.
    ///
    /// No pull begins during a pause, or on a node that is not Ready. Running pulls continue.
    pub may_start: bool,
    /// True if the result of the pull may be written to the pod now.
    pub may_report: bool,
}

/// Initiator of an image pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullInitiator {
    /// The node owner under OTA, who pulls the images before the update.
    Owner,
    /// The rollout. It limits the number of nodes that pull at once.
    Rollout,
}

/// Reference to one version of a pod, for which an action was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Name of the pod.
    pub name: PodName,
    /// UID of the pod.
    pub uid: PodUid,
    /// Resource version that the pod must still have; [`ResourceVersion::any`] if it does not matter.
    pub resource_version: ResourceVersion,
}

/// Maximum number of deletions in a plan, and approximate maximum number of pods whose conditions a plan writes.
///
/// It equals `BurstReplicas` of the native controller, which limits bursts of writes in the same way.
pub(crate) const BATCH: usize = 250;

/// Maximum number of concurrent pulls in the cluster.
///
/// Each pull adds a Job and a pod to the load of the API server. Most pulls use the same registry.
pub(crate) const PULLS_AT_ONCE: usize = 50;
