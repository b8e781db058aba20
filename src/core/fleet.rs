//! Current state that decisions are made from: one entry per node, with its readiness and its pods of one DaemonSet.
//!
//! `crate::index` builds a [`Fleet`] from API objects; it is never changed afterwards. Timestamps are corrected for nodes with
//! wrong clocks: if the controller observed a change itself, they hold the time of that observation.

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
    /// Current revision and whether it is known.
    pub revision: RevisionState,
    /// Start of the time with an unknown revision, as observed by the controller; `None` while the revision is known.
    pub behind_since: Option<Timestamp>,
    /// Creation time of the current revision, by the API server's clock; `None` if unknown.
    pub made: Option<Timestamp>,
    /// Time at which the revision last became current, by its creation or by a rollback to it.
    pub adopted: Option<Timestamp>,
    /// True if the current revision may go beyond the first batch without proof.
    ///
    /// It was current before, or one of its pods has [proved](super::engine::terms) it. False is always safe.
    pub is_proven: bool,
    /// True if a revision older than the current one is known. Only then can a pod of the current revision replace another pod.
    pub replaces: bool,
    /// Kept revisions that were created before the current one, with their ControllerRevision numbers, newest first.
    pub earlier: Vec<(Revision, i64)>,
    /// Number of the revision that was rolled back to get to the current one; `None` if the last change was a new template.
    pub undone: Option<i64>,
    /// In-place transitions from old revisions to the current one; empty unless in-place updates are enabled.
    pub transitions: InPlaceTransitions,
    /// Revisions that pods of the current revision can be rolled back to, if `on-failure` asks for it.
    pub rollback_targets: RollbackTargets,
    /// Answers to evictions.
    pub evictions: Evictions,
    /// Other writes that the API server refused.
    pub write_failures: WriteFailures,
    /// Memory of the guard, as written in the DaemonSet's status. It may be about another revision.
    pub record: Option<FailureRecord>,
    /// Memory of the current pause, or of one that has just ended, as written in the DaemonSet's status.
    pub pause: Option<PauseRecord>,
    /// Kind of the DaemonSet, which determines the controller that creates its pods.
    pub kind: SetKind,
    /// Reason of the last Event about a pod that could not be created; `None` if creation works or has not been checked.
    pub not_created: Option<Arc<str>>,
    /// Reasons why pods don't become available, for pods that were checked ([`not_ready`](super::engine::not_ready)).
    pub not_ready: BTreeMap<PodName, Arc<str>>,
    /// True if the native controller is known to observe changes of several pods in the order in which they happened.
    ///
    /// client-go calls it `InOrderInformers`; it is enabled since Kubernetes 1.33. False is always safe.
    pub in_order: bool,
    /// Nodes that should run a pod or hold one, sorted by name without duplicates. Nodes in [`Self::crowd`] are not listed.
    pub nodes: Vec<Node>,
    /// Nodes that are only counted.
    pub crowd: Crowd,
}

/// A node and its pods of this DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the Node.
    pub name: NodeName,
    /// Labels of the Node.
    pub labels: Labels,
    /// Hold that keeps the node on its version; it may have expired.
    pub hold: Option<Hold>,
    /// Maintenance window set on the Node itself.
    pub window: Option<NodeWindow>,
    /// Eligibility of the node for the DaemonSet's pod.
    pub targeting: Targeting,
    /// Eligibility by the rules of the native controller, which doesn't tolerate the `NoSchedule` taint of NotReady nodes.
    ///
    /// See [`eligibility`](super::eligibility). For an Advanced DaemonSet it determines where pods are created.
    pub native: Targeting,
    /// Ready condition of the node.
    pub readiness: Readiness,
    /// Recent times at which the node became NotReady, in order. They are kept after the node returns.
    ///
    /// The list holds some of the times within [`FLAPS_WITHIN`](crate::core::engine::timeouts::FLAPS_WITHIN) before the last one.
    pub losses: Option<Arc<[Timestamp]>>,
    /// True if the node is offline because of OpenYurt's taint for disconnected nodes, regardless of its Ready condition.
    pub cut_off: bool,
    /// Pods of this DaemonSet that are bound or will be bound to the node, sorted by creation time, then by name.
    pub pods: Pods,
    /// Start of the time without a pod, surge pods not included; `None` if the node has one.
    pub podless_since: Option<Timestamp>,
    /// Time at which the node's last outdated pod was deleted, or its in-place update accepted.
    ///
    /// It refers to the current template and is cleared when the successor becomes Ready.
    pub disrupted_at: Option<Timestamp>,
    /// True if the controller deleted the node's last pod for the current template and no successor has become Ready since.
    ///
    /// This process observed it, or the guard remembers it ([`FailureRecord::updated_before_loss`]).
    pub emptied: bool,
    /// Message that says what keeps the next pod off an emptied node; `None` if nothing does.
    pub kept_away_by: Option<Box<str>>,
    /// True if this process saw a pod of an Advanced DaemonSet disappear from the node, whatever removed it.
    pub had_pod: bool,
    /// Reason why pods of the current revision keep ending on the node.
    ///
    /// It is set when two pods in a row have ended, or when the DaemonSet's condition says so. It is cleared when a pod has been
    /// Ready for 30 s, and does not depend on whether the next pod exists.
    pub trouble: Option<Box<PodProblem>>,
    /// True if the node is known to have every image of the current revision without a pre-download. Only set where it matters.
    pub has_images: bool,
}

/// Eligibility of a node for a DaemonSet's pod, by the native controller's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targeting {
    /// A pod belongs here.
    Run,
    /// An existing pod stays, but a new one would not be created (an untolerated `NoSchedule` taint).
    Keep,
    /// No pod belongs here.
    No,
}

/// Ready condition of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Condition `True`.
    Ready {
        /// Time of the transition, as far as known.
        since: Timestamp,
    },
    /// Condition `False`, `Unknown` or missing.
    NotReady {
        /// Time of the transition, as far as known; `None` if the node never reported.
        since: Option<Timestamp>,
    },
    /// The Node, or a pod on it, cannot be decoded. The controller does nothing there.
    Unreadable,
    /// The Node object does not exist.
    Gone,
}

/// A pod of the DaemonSet.
///
/// Pods make up most of the controller's memory. Fields that few pods have are boxed; fields that most pods of a revision have in
/// common are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Name of the pod.
    pub name: PodName,
    /// UID of the pod.
    pub uid: PodUid,
    /// Resource version that the decision is based on; a precondition of every deletion.
    pub resource_version: ResourceVersion,
    /// Creation time, by the API server's clock.
    pub created: Timestamp,
    /// Current or outdated revision.
    pub revision: PodRevision,
    /// Number of the ControllerRevision; greater is newer, 0 is unknown.
    pub number: i64,
    /// True if the pod was created or updated in place for the current template.
    ///
    /// After a rollback, pods of the current revision may be left from before.
    pub of_template: bool,
    /// True if the pod is being deleted, or if the controller requested that and the cache doesn't show it yet.
    pub terminating: bool,
    /// Time that the deletion may take, once the API server has accepted it.
    pub leaving: Option<Box<Leaving>>,
    /// True if the pod is `terminating` only because of a request that the API server has not accepted yet. The pod may survive.
    pub in_doubt: bool,
    /// Time at which the pod became Ready with its current containers; `None` if it is not Ready.
    ///
    /// An in-place update may leave the Ready condition `True` throughout. Then this is the time at which the new containers were
    /// seen running.
    pub ready_since: Option<Timestamp>,
    /// Start of the current not-Ready period, or else of the latest one.
    ///
    /// Ready periods too short to count as available don't end it. `None`: the pod has never been Ready, or has been Ready ever
    /// since.
    pub unready_since: Option<Timestamp>,
    /// Time at which the kubelet accepted the pod.
    ///
    /// It is the time at which `status.startTime` appeared, or its value if the pod already had it when first observed.
    pub started: Option<Timestamp>,
    /// Facts that in-place updates need.
    pub in_place: Shared<InPlace>,
    /// Problem that keeps the pod from becoming Ready, as far as its containers report one.
    pub problem: Option<Box<PodProblem>>,
    /// State of the pod's deletion: hooks, finalizers and labels.
    pub exit: Shared<Exit>,
    /// The pod condition `PodNeedUpgrade`, if present.
    pub need_upgrade: Option<Box<OtaCondition>>,
    /// The pod condition `PodImageReady`, if present.
    pub image_ready: Option<Box<OtaCondition>>,
    /// True if the controller created it as a surge pod (`max-surge`) and the DaemonSet is not its owner yet.
    pub surge: bool,
}

impl Fleet {
    /// Returns true if the current revision is unknown.
    pub fn revision_is_unknown(&self) -> bool {
        matches!(self.revision, RevisionState::Unknown(_))
    }
}

/// Returns the position of the node `name`; `Err` holds the position to insert it. `nodes` must be sorted by name.
pub fn position_of(nodes: &[Node], name: &NodeName) -> Result<usize, usize> {
    nodes.binary_search_by(|node| node.name.cmp(name))
}

/// Returns the node `name`. `nodes` must be sorted by name, as in [`position_of`].
pub fn by_name<'a>(nodes: &'a [Node], name: &NodeName) -> Option<&'a Node> {
    let position = position_of(nodes, name).ok()?;
    nodes.get(position)
}

/// Time that a pod's deletion may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// End of the grace period, by the controller's clock.
    pub ends: Timestamp,
    /// End of the grace period, by the API server's clock (`deletionTimestamp`).
    ///
    /// Messages use it, so that all replicas write the same.
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
    /// Waiting or termination reason of the container (`CrashLoopBackOff`, `ErrImagePull`, `Error`, …).
    pub reason: Arc<str>,
    /// Details from the kubelet or the scheduler, truncated to one line. Empty if there are none, or none that last.
    pub said: Arc<str>,
    /// Restarts of the container under the pod's current revision, without the restart that an in-place update caused.
    pub restarts: u32,
    /// Number of pods of this revision that ended for this reason on this node in a row; 0 if the pod has not ended.
    pub ended: u32,
}

impl PodProblem {
    /// Returns the same reason for a crashing container in all its phases, so that messages don't flap.
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

    /// Returns the reason and its details.
    pub fn words(&self) -> String {
        Self::phrase(self.word(), &self.said)
    }

    /// Joins a reason and its details.
    pub(in crate::core) fn phrase(word: &str, said: &str) -> String {
        match said {
            "" => word.to_owned(),
            said => format!("{word}: {said}"),
        }
    }
}

/// `PodNeedUpgrade` or `PodImageReady` as found on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtaCondition {
    /// True if `status` is `True`.
    pub status: bool,
    /// Revision hash in the message; `None` if the message has another form.
    pub revision: Option<Revision>,
    /// True for a pending request: not `True`, and with the reason of a request or none. Only for `PodImageReady`.
    pub waits: bool,
    /// True if the reason says that the node would not get another pod. Only for `PodNeedUpgrade`.
    pub repelled: bool,
    /// Failed pull for this revision, even if another attempt is in progress. Only for `PodImageReady`.
    pub failure: Option<Arc<PullFailure>>,
}

/// Failed image pulls for a revision on a node, by the clock of the writer of the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullFailure {
    /// Time at which the images were first requested.
    pub asked: Timestamp,
    /// Time at which the last attempt failed.
    pub failed: Timestamp,
    /// Reason, in one sentence; empty while another attempt is in progress.
    pub why: Arc<str>,
}

impl Pod {
    /// Returns true if the pod has ended and only a finalizer keeps its object. The native controller doesn't count such a pod.
    pub fn has_ended(&self) -> bool {
        self.terminating && self.in_place.is_over
    }

    /// Returns a reference to the pod with the resource version that the decision is based on.
    pub fn reference(&self) -> PodRef {
        PodRef {
            name: self.name.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
        }
    }

    /// Returns the start of the current or latest not-Ready period, at the earliest the time at which the pod got its revision.
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
    /// Returns the pod to replace.
    pub fn outdated(&self) -> Option<&Pod> {
        let is_outdated = |pod: &&Pod| !pod.terminating && pod.revision == PodRevision::Outdated;
        self.pods.iter().find(is_outdated)
    }

    /// Returns true if an outdated pod is on the node, terminating or not.
    pub(super) fn holds_outdated(&self) -> bool {
        let mut pods = self.pods.iter();
        pods.any(|pod| pod.revision == PodRevision::Outdated)
    }

    /// Returns true if a pod on the node stays, but the native controller's rules allow no new one.
    pub(super) fn is_repelled(&self) -> bool {
        self.targeting == Targeting::Keep
    }

    /// Returns the times at which the rollout touched the node.
    ///
    /// Those are the deletion of its outdated pod, the mark for it, and the creation or update of a pod for the current template.
    /// Actions for an earlier template don't count. Removed pods count only with `removes`.
    pub(super) fn touched_at(&self, removes: bool) -> impl Iterator<Item = Timestamp> + Clone {
        let removed = self.disrupted_at.filter(|_| removes);
        removed.into_iter().chain(self.marked_at())
    }

    /// Returns those times of [`Self::touched_at`] that the node's non-terminating pods show.
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

    /// Returns true if the controller deleted the node's pod, and new taints or labels now keep its successor away.
    pub(super) fn is_barred(&self) -> bool {
        self.emptied
            && self.targeting != Targeting::Run
            && self.pods.iter().all(|pod| pod.terminating)
    }

    /// Returns true if the Ready condition is `True`.
    pub fn is_ready(&self) -> bool {
        matches!(self.readiness, Readiness::Ready { .. })
    }
}
