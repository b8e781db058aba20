//! Input of a decision: one entry per node, with its readiness and its pods of one DaemonSet.
//!
//! `crate::index` builds a [`Fleet`] from API objects and never changes it afterwards. For a change that the controller observed
//! itself, the timestamp is the time of the observation, because clocks of nodes may be wrong.

mod crowd;
pub mod evictions;
mod hold;
pub mod in_place;
mod node_window;
mod pause_record;
mod pods;
pub mod record;
mod rollback_targets;
pub mod write_failures;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::action::PodRef;
use super::id::{NodeName, PodName, PodRevision, PodUid, ResourceVersion, Revision, RevisionState};
use super::instant::earlier;
use super::kind::SetKind;
use super::labels::Labels;
use super::lifecycle::Exit;
use super::shared::Shared;
use evictions::Evictions;
use in_place::{InPlace, InPlaceTransitions};
use record::FailureRecord;
use write_failures::WriteFailures;

pub use crowd::Crowd;
pub use hold::{Hold, Holds};
pub use node_window::NodeWindow;
pub use pause_record::PauseRecord;
pub use pods::Pods;
pub use rollback_targets::{RollbackTarget, RollbackTargets};

/// Current state of one DaemonSet and its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Current revision, or the reason why it is unknown.
    pub revision: RevisionState,
    /// Time since which the current revision is unknown, as observed by the controller; `None` while it is known.
    pub behind_since: Option<Timestamp>,
    /// Creation time of the current revision, by the API server's clock; `None` if unknown.
    pub made: Option<Timestamp>,
    /// Time at which the current revision last became current, either by its creation or by a rollback to it.
    pub adopted: Option<Timestamp>,
    /// True if the current revision is known to work. Its pods then count as available after `minReadySeconds` alone.
    ///
    /// A revision is known to work if it was current before, or if one of its pods stayed Ready long enough
    /// ([`terms`](super::engine::terms)). The value false is always safe: the rollout then waits for such a pod.
    pub is_proven: bool,
    /// True if a revision older than the current one is known. If it is false, no pod of the current revision replaced another pod.
    pub replaces: bool,
    /// Older revisions that are still kept, with their ControllerRevision numbers, newest first.
    pub earlier: Vec<(Revision, i64)>,
    /// Number of the revision from which the last rollback returned; `None` if the last change of the template was not a rollback.
    pub undone: Option<i64>,
    /// For each old revision, the change that updates its running pods in place; empty unless in-place updates are enabled.
    pub transitions: InPlaceTransitions,
    /// Revisions to which pods of the current revision can be rolled back; empty unless `on-failure` requests rollbacks.
    pub rollback_targets: RollbackTargets,
    /// Results of earlier evictions. They show which pods a PodDisruptionBudget protects.
    pub evictions: Evictions,
    /// Writes other than evictions that the API server rejected.
    pub write_failures: WriteFailures,
    /// The guard's record from the DaemonSet's status. It may be about another revision.
    pub record: Option<FailureRecord>,
    /// Record of the current pause, or of a pause that has just ended, from the DaemonSet's status.
    pub pause: Option<PauseRecord>,
    /// Kind of the DaemonSet, which determines the controller that creates its pods.
    pub kind: SetKind,
    /// Reason of the last Event about a pod that could not be created. `None` if creation works, or if no Events were read.
    pub not_created: Option<Arc<str>>,
    /// Reasons why pods don't become available. Only pods whose Events were read have one
    /// ([`not_ready`](super::engine::not_ready)).
    pub not_ready: BTreeMap<PodName, Arc<str>>,
    /// True if the native controller is known to see changes of several pods in the order in which they happened.
    ///
    /// The feature gate of client-go is `InOrderInformers`, enabled since Kubernetes 1.33. False is always safe: surge pods then
    /// change their owner later ([`surge`](super::engine::surge)).
    pub in_order: bool,
    /// Nodes that should run a pod or have one, sorted by name, without duplicates. Nodes that are counted in [`Self::crowd`] are
    /// left out.
    pub nodes: Vec<Node>,
    /// Totals of the nodes that are not listed.
    pub crowd: Crowd,
}

/// A node and its pods of this DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the Node.
    pub name: NodeName,
    /// Labels of the Node.
    pub labels: Labels,
    /// Hold that keeps the node's pod on its revision. It may have expired.
    pub hold: Option<Hold>,
    /// Maintenance window set on the Node itself.
    pub window: Option<NodeWindow>,
    /// Eligibility of the node for the DaemonSet's pod. NotReady nodes stay eligible.
    pub targeting: Targeting,
    /// Eligibility by the rules of the native controller, which doesn't tolerate the `NoSchedule` taint of NotReady nodes.
    ///
    /// For an Advanced DaemonSet, this value determines where pods are created. See [`eligibility`](super::eligibility).
    pub native: Targeting,
    /// Ready condition of the node.
    pub readiness: Readiness,
    /// Times at which the node recently became NotReady, in order. They are kept after the node returns.
    ///
    /// Only a few of the times within [`FLAPS_WITHIN`](crate::core::engine::timeouts::FLAPS_WITHIN) before the last one are stored.
    pub losses: Option<Arc<[Timestamp]>>,
    /// True if the node has OpenYurt's taint for disconnected nodes. It then counts as offline, regardless of its Ready
    /// condition.
    pub cut_off: bool,
    /// Pods of this DaemonSet that are bound or will be bound to the node, sorted by creation time, then by name.
    pub pods: Pods,
    /// Time since which the node has no pod, not counting surge pods; `None` if it has one.
    pub podless_since: Option<Timestamp>,
    /// Time at which the controller deleted the node's last outdated pod, or at which the API server accepted an in-place update.
    ///
    /// A deletion or update for an earlier template doesn't set the time. It is cleared when the new pod becomes Ready.
    pub disrupted_at: Option<Timestamp>,
    /// True if the controller deleted the node's pod for the current template, and no new pod has become Ready since.
    ///
    /// The value is known from a deletion by this process or, after a restart, from the guard's record
    /// ([`FailureRecord::updated_before_loss`]).
    pub emptied: bool,
    /// Reason why no new pod is created on an emptied node, such as a taint; `None` if nothing prevents it.
    pub kept_away_by: Option<Box<str>>,
    /// True if the node had a pod of an Advanced DaemonSet that disappeared while this process ran, for any reason.
    pub had_pod: bool,
    /// Reason why pods of the current revision keep ending on the node, one after the other.
    ///
    /// The reason is set when two pods in a row have ended, or when the DaemonSet's condition names the node. It stays while the
    /// node has no pod. A pod that has been Ready for 30 s clears it.
    pub trouble: Option<Box<PodProblem>>,
    /// True if the node is known to have every image of the current revision, so that it needs no pre-pull. Its Node lists the
    /// images, or a Ready pod on it uses them. Computed only for decisions that need the value.
    pub has_images: bool,
}

/// Eligibility of a node for a DaemonSet's pod, by the native controller's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targeting {
    /// The node should run a pod.
    Run,
    /// An existing pod stays, but a new one could not start: the template doesn't tolerate a `NoSchedule` taint of the node.
    Keep,
    /// The node should not run a pod.
    No,
}

/// Ready condition of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The Ready condition is `True`.
    Ready {
        /// Time at which the node became Ready, as far as it is known.
        since: Timestamp,
    },
    /// The Ready condition is `False`, `Unknown` or missing.
    NotReady {
        /// Time at which the node became NotReady, as far as it is known; `None` if the node never reported its status.
        since: Option<Timestamp>,
    },
    /// The Node, or a pod on it, cannot be decoded. The controller changes nothing on the node.
    Unreadable,
    /// The Node object does not exist.
    Gone,
}

/// A pod of the DaemonSet.
///
/// Pods use most of the controller's memory. Therefore rarely used fields are boxed, and values that are equal in most pods of a
/// revision are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Name of the pod.
    pub name: PodName,
    /// UID of the pod.
    pub uid: PodUid,
    /// Resource version that the decision is based on. A deletion requires that the pod still has this version.
    pub resource_version: ResourceVersion,
    /// Creation time, by the API server's clock.
    pub created: Timestamp,
    /// Relation of the pod's revision to the current one: current, outdated or unknown.
    pub revision: PodRevision,
    /// Number of the pod's ControllerRevision. Newer revisions have greater numbers; 0 means unknown.
    pub number: i64,
    /// True if the pod was created or updated in place for the current template.
    ///
    /// A rollback can make an earlier revision current again. The field is false for pods that had this revision before the
    /// rollback.
    pub of_template: bool,
    /// True if the pod is being deleted. This includes a requested deletion that the cache doesn't show yet.
    pub terminating: bool,
    /// Grace period of the pod's deletion; `None` until the API server has accepted the deletion.
    pub leaving: Option<Box<Leaving>>,
    /// True if the pod is `terminating` only because of a request that the API server hasn't answered. It may still reject the
    /// request.
    pub in_doubt: bool,
    /// Time at which the pod became Ready with its current containers; `None` if it is not Ready.
    ///
    /// The Ready condition can stay `True` during an in-place update. Then this is the time at which the new containers were seen.
    pub ready_since: Option<Timestamp>,
    /// Start of the current not-Ready period. If the pod is Ready, start of its latest not-Ready period.
    ///
    /// A Ready period that is too short for the pod to become available doesn't end the not-Ready period. `None` if the pod was
    /// never Ready, or has been Ready all the time. [`Self::unready`] also covers these cases.
    pub unready_since: Option<Timestamp>,
    /// Time at which the kubelet accepted the pod.
    ///
    /// This is the time at which the controller saw `status.startTime` appear. The value of `status.startTime` is used if it was
    /// set when the controller first saw the pod.
    pub started: Option<Timestamp>,
    /// Facts about the pod that are needed for in-place updates.
    pub in_place: Shared<InPlace>,
    /// Problem that prevents the pod from becoming Ready, if its containers report one.
    pub problem: Option<Box<PodProblem>>,
    /// Facts about the pod that affect its deletion: hooks, finalizers and labels.
    pub exit: Shared<Exit>,
    /// The pod condition `PodNeedUpgrade`, if present.
    pub need_upgrade: Option<Box<OtaCondition>>,
    /// The pod condition `PodImageReady`, if present.
    pub image_ready: Option<Box<OtaCondition>>,
    /// True if the controller created the pod as a second pod next to the old one (`max-surge`), and the DaemonSet is not its owner
    /// yet.
    pub surge: bool,
}

impl Fleet {
    /// Returns true if the current revision is unknown.
    pub fn revision_is_unknown(&self) -> bool {
        matches!(self.revision, RevisionState::Unknown(_))
    }
}

/// Returns the position of the node `name`, or `Err` with the position at which to insert it. `nodes` must be sorted by name.
pub fn position_of(nodes: &[Node], name: &NodeName) -> Result<usize, usize> {
    nodes.binary_search_by(|node| node.name.cmp(name))
}

/// Returns the node `name`. `nodes` must be sorted by name, as in [`position_of`].
pub fn by_name<'a>(nodes: &'a [Node], name: &NodeName) -> Option<&'a Node> {
    let position = position_of(nodes, name).ok()?;
    nodes.get(position)
}

/// Grace period of a pod's deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// End of the grace period, by the controller's clock.
    pub ends: Timestamp,
    /// End of the grace period, by the API server's clock (`deletionTimestamp`).
    ///
    /// Messages use this time, so that all replicas write the same text.
    pub stamped: Timestamp,
    /// Length of the grace period (`deletionGracePeriodSeconds`).
    pub grace: Duration,
}

impl Leaving {
    /// Returns the time of the deletion request, by the API server's clock.
    pub fn asked_at(&self) -> Timestamp {
        earlier(self.stamped, self.grace)
    }
}

/// Problem of a container that doesn't start or keeps crashing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodProblem {
    /// Waiting or termination reason of the container, such as `CrashLoopBackOff`, `ErrImagePull` or `Error`.
    pub reason: Arc<str>,
    /// Details from the kubelet or the scheduler, truncated to one line. Empty if there are none, or if they change too often to
    /// report.
    pub detail: Arc<str>,
    /// Number of restarts of the container under the pod's current revision. The restart by an in-place update is not included.
    pub restarts: u32,
    /// Number of pods of this revision that ended one after another on this node for this reason; 0 if the pod has not ended.
    pub ended: u32,
}

impl PodProblem {
    /// Returns the reason to report. A crashing container gets the same reason in all its phases, so that messages don't flap.
    pub fn steady(word: &str) -> &str {
        match word {
            "Error" => "CrashLoopBackOff",
            other => other,
        }
    }

    /// Returns the reason, or `Error` for a container that ended without one.
    pub fn word(&self) -> &str {
        match &*self.reason {
            "" => "Error",
            reason => reason,
        }
    }

    /// Returns the reason with its details as one phrase.
    pub fn words(&self) -> String {
        Self::phrase(self.word(), &self.detail)
    }

    /// Joins a reason and its details into one phrase.
    pub(in crate::core) fn phrase(word: &str, detail: &str) -> String {
        match detail {
            "" => word.to_owned(),
            detail => format!("{word}: {detail}"),
        }
    }
}

/// Content of a pod's condition `PodNeedUpgrade` or `PodImageReady`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtaCondition {
    /// True if the status of the condition is `True`.
    pub status: bool,
    /// Revision hash in the condition's message; `None` if the message has another form.
    pub revision: Option<Revision>,
    /// True if a pull is requested and not finished. In this case, the condition's status is not `True`, and its reason is missing
    /// or is that of a request. Only for `PodImageReady`.
    pub waits: bool,
    /// True if the condition's reason reports that no new pod would be created on the node. Only for `PodNeedUpgrade`.
    pub repelled: bool,
    /// Latest failed pull for this revision, even if another attempt is running. Only for `PodImageReady`.
    pub failure: Option<Arc<PullFailure>>,
}

/// Failed image pulls for a revision on a node. The times come from the clock of the condition's writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullFailure {
    /// Time at which the images were requested for the first time.
    pub asked: Timestamp,
    /// Time at which the last attempt to pull them failed.
    pub failed: Timestamp,
    /// Reason of the failure in one sentence; empty while another attempt is running.
    pub why: Arc<str>,
}

impl Pod {
    /// Returns true if all containers of the terminating pod have ended, and only a finalizer keeps its object. The native
    /// controller ignores such a pod.
    pub fn has_ended(&self) -> bool {
        self.terminating && self.in_place.is_over
    }

    /// Returns a reference to the pod, with the resource version on which the decision is based.
    pub fn reference(&self) -> PodRef {
        PodRef {
            name: self.name.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
        }
    }

    /// Returns the start of the current or latest not-Ready period. Times before the pod got its revision don't count.
    pub fn unready(&self) -> Timestamp {
        let revised = self.revised();
        self.unready_since
            .map_or(revised, |since| since.max(revised))
    }

    /// Returns the time at which the pod got its revision, by creation or by an in-place update.
    pub fn revised(&self) -> Timestamp {
        self.in_place
            .update
            .map_or(self.created, |update| update.at)
    }
}

impl Node {
    /// Returns the outdated pod to replace; `None` if the node has none.
    pub fn outdated(&self) -> Option<&Pod> {
        let is_outdated = |pod: &&Pod| !pod.terminating && pod.revision == PodRevision::Outdated;
        self.pods.iter().find(is_outdated)
    }

    /// Returns true if an outdated pod is on the node, even a terminating one.
    pub(super) fn holds_outdated(&self) -> bool {
        let mut pods = self.pods.iter();
        pods.any(|pod| pod.revision == PodRevision::Outdated)
    }

    /// Returns true if the node may keep its pod, but a new pod could not start because of a `NoSchedule` taint.
    pub(super) fn is_repelled(&self) -> bool {
        self.targeting == Targeting::Keep
    }

    /// Returns the times at which the rollout touched the node.
    ///
    /// A touch is the deletion or marking of the outdated pod, or the creation or update of a pod for the current template. Changes
    /// for an earlier template don't count. Deletions are only included if `removes` is true.
    pub(super) fn touched_at(&self, removes: bool) -> impl Iterator<Item = Timestamp> + Clone {
        let removed = self.disrupted_at.filter(|_| removes);
        removed.into_iter().chain(self.marked_at())
    }

    /// Returns those times of [`Self::touched_at`] that the node's pods show: marks, creations and in-place updates.
    pub(super) fn marked_at(&self) -> impl Iterator<Item = Timestamp> + Clone {
        let marked = |pod: &Pod| match pod.exit.preparing {
            Some(preparing) if pod.revision == PodRevision::Outdated => preparing.since,
            _ => None,
        };
        let revised = |pod: &Pod| {
            let is_new = pod.revision == PodRevision::Current && pod.of_template;
            (is_new && !pod.terminating).then(|| pod.revised())
        };
        let pods = self.pods.iter();
        pods.flat_map(move |pod| marked(pod).into_iter().chain(revised(pod)))
    }

    /// Returns true if the controller deleted the node's pod, and a new taint or label prevents the next pod.
    pub(super) fn is_barred(&self) -> bool {
        self.emptied
            && self.targeting != Targeting::Run
            && self.pods.iter().all(|pod| pod.terminating)
    }

    /// Returns true if the node's Ready condition is `True`.
    pub fn is_ready(&self) -> bool {
        matches!(self.readiness, Readiness::Ready { .. })
    }
}
