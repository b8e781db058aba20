//! What is true now: one entry per node, with its readiness and its pods of one DaemonSet.
//!
//! A [`Fleet`] is built at the door (`crate::index`) from API objects and never changed afterwards. Instants in it are
//! already corrected for nodes whose clocks are wrong: where the change was seen happening, it is the time of seeing.

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

/// The fleet of one DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// What is known about the current revision.
    pub revision: RevisionState,
    /// Since when it is not known, as far as somebody was there to see; `None` while it is.
    pub behind_since: Option<Timestamp>,
    /// When the current revision was made first, by the clock of the API server; `None`: that is not known.
    pub made: Option<Timestamp>,
    /// When it last became the current one: it was made, or somebody went back to it.
    pub adopted: Option<Timestamp>,
    /// Whether the current revision needs no proof before it gets beyond the first batch: it ran before, or a pod of it has
    /// [proved](super::engine::terms) it. False is always safe.
    pub is_proven: bool,
    /// Whether an older revision than the current one is known: only then does a pod of the current one replace another.
    pub replaces: bool,
    /// The revisions that are kept and were made before the current one, with the numbers of their ControllerRevisions, the newest
    /// first.
    pub earlier: Vec<(Revision, i64)>,
    /// The number of the revision that somebody went back from to the current one; `None`: a new template was the last change.
    pub undone: Option<i64>,
    /// How pods of old revisions become those of the current one in place; empty where nobody asked for that.
    pub transitions: InPlaceTransitions,
    /// How pods of the current revision get back to older ones, where somebody asked for that.
    pub rollback_targets: RollbackTargets,
    /// How evictions were answered.
    pub evictions: Evictions,
    /// Which other writes the API server refused.
    pub write_failures: WriteFailures,
    /// What the guard told and has to remember, as it stands on the DaemonSet; may be about another revision.
    pub record: Option<FailureRecord>,
    /// What is remembered of the pause that holds or just held, as it stands on the DaemonSet.
    pub pause: Option<PauseRecord>,
    /// Of which kind the DaemonSet is: who makes its pods.
    pub kind: SetKind,
    /// Why whoever makes its pods could not make one, as the last Event said; `None`: it could, or nobody has looked.
    pub not_created: Option<Arc<str>>,
    /// Why pods do not become available, as far as somebody was asked that ([`not_ready`](super::engine::not_ready)).
    pub not_ready: BTreeMap<PodName, Arc<str>>,
    /// Whether the native controller is known to learn of changes of several pods in the order in which they happened
    /// (client-go's `InOrderInformers`, on since Kubernetes 1.33); false is always safe.
    pub in_order: bool,
    /// Every node that should run a pod or holds one, sorted by name, each name once; but for those of [`Self::crowd`].
    pub nodes: Vec<Node>,
    /// The nodes that are counted and not looked at.
    pub crowd: Crowd,
}

/// A node and its pods of this DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Its labels.
    pub labels: Labels,
    /// What keeps it on its version for a while, if anything (possibly over by now).
    pub hold: Option<Hold>,
    /// When replacements may begin on it, if it says so itself.
    pub window: Option<NodeWindow>,
    /// Whether the DaemonSet's pod belongs on it.
    pub targeting: Targeting,
    /// The same as Kubernetes' own controller judges it, which makes no pod where a node that is away is tainted so
    /// ([`eligibility`](super::eligibility)): of an Advanced DaemonSet it says where pods are made.
    pub native: Targeting,
    /// Whether it can run anything now.
    pub readiness: Readiness,
    /// When it turned NotReady lately, in order, also while it is back: some of the times within
    /// [`FLAPS_WITHIN`](crate::core::engine::timeouts::FLAPS_WITHIN) before the last one.
    pub losses: Option<Arc<[Timestamp]>>,
    /// It is offline because of OpenYurt's taint for nodes that are cut off, whatever its condition `Ready` says.
    pub cut_off: bool,
    /// Pods of this DaemonSet bound (or to be bound) to it, sorted by creation, then name.
    pub pods: Pods,
    /// Since when the node is known to have no pod, or none but what we made, while that is so.
    pub podless_since: Option<Timestamp>,
    /// When its last pod of another revision was seen to be deleted, or an update of it in place was accepted, for the
    /// template as it is now; forgotten as soon as its successor was Ready.
    pub disrupted_at: Option<Timestamp>,
    /// Whether we deleted its last pod for the template as it is now, and no successor was Ready since: as far as this process
    /// saw that, or the guard remembers it ([`FailureRecord::touched`]).
    pub emptied: bool,
    /// In words, what keeps the next pod away from a node that was emptied, if anything does.
    pub kept_away_by: Option<Box<str>>,
    /// Whether a pod of an Advanced DaemonSet was there before and is gone, whoever took it away: as far as this process saw that.
    pub had_pod: bool,
    /// Why its pods of the current revision keep ending: set when two have ended in a row, or when the DaemonSet's condition says so.
    /// It lasts until a pod has been Ready for 30 s, and does not depend on whether the next pod exists.
    pub trouble: Option<Box<PodProblem>>,
    /// Whether it is known, without anybody having pulled ahead, that it has every image of the current revision. Only
    /// told where it matters.
    pub has_images: bool,
}

/// Whether a DaemonSet's pod belongs on a node (the native controller's eligibility rules).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targeting {
    /// A pod belongs here.
    Run,
    /// A pod that is here stays, a new one would not be made (an untolerated `NoSchedule` taint).
    Keep,
    /// No pod belongs here.
    No,
}

/// A node's Ready condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// `True`, since then.
    Ready {
        /// Since when, as far as known.
        since: Timestamp,
    },
    /// `False`, `Unknown` or no such condition.
    NotReady {
        /// Since when, as far as known; `None` when the node never reported.
        since: Option<Timestamp>,
    },
    /// Its Node, or a pod on it, cannot be read: nothing is done there.
    Unreadable,
    /// There is no such Node object.
    Gone,
}

/// A pod of the DaemonSet. Of all that is kept there is most of this: what few pods have is boxed, and what most pods of a
/// revision have in common is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: PodName,
    /// Its UID.
    pub uid: PodUid,
    /// The version that was judged; a precondition of every deletion.
    pub resource_version: ResourceVersion,
    /// When the API server made it (the server's clock).
    pub created: Timestamp,
    /// Whether it runs the current revision.
    pub revision: PodRevision,
    /// The number of its revision's ControllerRevision: greater is newer, 0 is not known.
    pub number: i64,
    /// Whether it was made, or updated in place, for the template that the DaemonSet has now: after a rollback pods of the
    /// current revision are left from before.
    pub of_template: bool,
    /// Whether it is being deleted, or we asked for that and do not see it yet.
    pub terminating: bool,
    /// How long that may take, once the API server has said yes.
    pub leaving: Option<Box<Leaving>>,
    /// Whether it is only `terminating` because we asked for that, and the API server has not said yes: it may go on living.
    pub in_doubt: bool,
    /// Since when its Ready condition is `True` with the containers that it has: an update in place may leave it `True` all the
    /// while, and then this is when the new ones were seen to run. `None` when it is not `True`.
    pub ready_since: Option<Timestamp>,
    /// Start of the current not-Ready period, or else the latest one. Ready periods that are too short to count as available don't end it.
    /// `None`: the pod has never been Ready, or has been Ready ever since.
    pub unready_since: Option<Timestamp>,
    /// When its kubelet accepted it: when `status.startTime` was seen to appear, or that time itself at the first look.
    pub started: Option<Timestamp>,
    /// What an update in place has to know of it.
    pub in_place: Shared<InPlace>,
    /// What keeps it from becoming Ready, as far as its containers tell.
    pub problem: Option<Box<PodProblem>>,
    /// What it says about its way out.
    pub exit: Shared<Exit>,
    /// The pod condition `PodNeedUpgrade`, when present.
    pub need_upgrade: Option<Box<OtaCondition>>,
    /// The pod condition `PodImageReady`, when present.
    pub image_ready: Option<Box<OtaCondition>>,
    /// Whether we made it beside another pod (`max-surge`), and the DaemonSet does not control it yet.
    pub surge: bool,
}

impl Fleet {
    /// Whether it is not known which revision is the current one.
    pub fn revision_is_unknown(&self) -> bool {
        matches!(self.revision, RevisionState::Unknown(_))
    }
}

/// Where the node of this name stands among `nodes`, which are in the order of names; `Err`: where it would.
pub fn position_of(nodes: &[Node], name: &NodeName) -> Result<usize, usize> {
    nodes.binary_search_by(|node| node.name.cmp(name))
}

/// The node of this name; `nodes` as in [`position_of`].
pub fn by_name<'a>(nodes: &'a [Node], name: &NodeName) -> Option<&'a Node> {
    let position = position_of(nodes, name).ok()?;
    nodes.get(position)
}

/// How long a pod that is being deleted may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// When its grace period is over, by our own clock.
    pub ends: Timestamp,
    /// The same by that of the API server (`deletionTimestamp`): so it is told, to be the same whoever tells it.
    pub stamped: Timestamp,
    /// That period (`deletionGracePeriodSeconds`).
    pub grace: Duration,
}

impl Leaving {
    /// When it was asked to go, by the clock of the API server.
    pub fn asked_at(&self) -> Timestamp {
        earlier(self.stamped, self.grace)
    }
}

/// Signs of a container that does not come up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodProblem {
    /// The container's waiting or termination reason (`CrashLoopBackOff`, `ErrImagePull`, `Error`, …).
    pub reason: Arc<str>,
    /// What the kubelet or the scheduler says of it beyond that word, on one line and cut; empty when that is nothing, or nothing
    /// that lasts.
    pub said: Arc<str>,
    /// Restarts of that container under the revision that the pod has now; the one by which an update in place brought
    /// its image is none.
    pub restarts: u32,
    /// Number of pods of this revision that ended for this reason on this node in a row; 0 if it is the problem of a pod that has not
    /// ended.
    pub ended: u32,
}

impl PodProblem {
    /// Returns the same word for a container that crashes, whatever it does at the moment: what is told must not flap.
    pub fn steady(word: &str) -> &str {
        match word {
            "Error" => "CrashLoopBackOff",
            other => other,
        }
    }

    /// Its word; a container may end without a reason.
    pub fn word(&self) -> &str {
        match &*self.reason {
            "" => "Error",
            reason => reason,
        }
    }

    /// Its word, and what is said of it.
    pub fn words(&self) -> String {
        Self::phrase(self.word(), &self.said)
    }

    /// Such a word, and what is said of it.
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
    /// Whether `status` is `True`.
    pub status: bool,
    /// The hash in the message; `None` when the message has no such form.
    pub revision: Option<Revision>,
    /// Whether it is a request that waits: not `True`, and its reason is that of a request, or none. Only of
    /// `PodImageReady` does this tell anything.
    pub waits: bool,
    /// Whether its reason says that no other pod would come to this node. Only of `PodNeedUpgrade` does this tell anything.
    pub repelled: bool,
    /// That a pull for this revision has failed, whether another attempt is under way or not. Only of `PodImageReady`.
    pub failure: Option<Arc<PullFailure>>,
}

/// How pulls for a revision on a node have failed so far, by the clock of whoever wrote it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullFailure {
    /// When the images were asked for first.
    pub asked: Timestamp,
    /// When the last attempt failed.
    pub failed: Timestamp,
    /// Why, in one sentence; empty while another attempt is under way.
    pub why: Arc<str>,
}

impl Pod {
    /// Whether it is over and only its object is kept, by a finalizer: nothing of it runs any more, and the native controller
    /// does not count it either.
    pub fn has_ended(&self) -> bool {
        self.terminating && self.in_place.is_over
    }

    /// The pod as it was judged.
    pub fn reference(&self) -> PodRef {
        PodRef {
            name: self.name.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
        }
    }

    /// Returns the start of the present or last time without being Ready, at the earliest when it got what it runs.
    pub fn unready(&self) -> Timestamp {
        let revised = self.revised();
        self.unready_since
            .map_or(revised, |since| since.max(revised))
    }

    /// When it got the revision that it has: by its creation, or by an update in place.
    pub fn revised(&self) -> Timestamp {
        self.in_place
            .update
            .map_or(self.created, |update| update.at)
    }
}

impl Node {
    /// The pod that is to be replaced.
    pub fn outdated(&self) -> Option<&Pod> {
        let is_outdated = |pod: &&Pod| !pod.terminating && pod.revision == PodRevision::Outdated;
        self.pods.iter().find(is_outdated)
    }

    /// Returns true if an outdated pod is on the node, terminating or not.
    pub(super) fn holds_outdated(&self) -> bool {
        let mut pods = self.pods.iter();
        pods.any(|pod| pod.revision == PodRevision::Outdated)
    }

    /// Whether a pod that is here stays, and no other would come: the native controller makes none where it would not be
    /// scheduled.
    pub(super) fn is_repelled(&self) -> bool {
        self.targeting == Targeting::Keep
    }

    /// When the rollout touched it: when its outdated pod was deleted or marked to be, and when a pod got the present
    /// template. What was done for an earlier template is no part of it; nor, unless it `removes` them, that pods left.
    pub(super) fn touched_at(&self, removes: bool) -> impl Iterator<Item = Timestamp> + Clone {
        let removed = self.disrupted_at.filter(|_| removes);
        removed.into_iter().chain(self.marked_at())
    }

    /// The same, as far as its pods tell that are not terminating.
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

    /// Whether we deleted its pod, and then its taints or labels became such that none may come.
    pub(super) fn is_barred(&self) -> bool {
        self.emptied
            && self.targeting != Targeting::Run
            && self.pods.iter().all(|pod| pod.terminating)
    }

    /// Whether its Ready condition is `True`.
    pub fn is_ready(&self) -> bool {
        matches!(self.readiness, Readiness::Ready { .. })
    }
}
