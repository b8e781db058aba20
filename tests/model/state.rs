//! State of a small cluster, and of the controller that manages it.

use std::collections::BTreeSet;

use yurt_ds::core::Stopped;

use super::denials::{Policy, WriteFailure};
use super::evictions::Answers;
use super::rules::Rules;
use super::upkeep::Upkeep;
use super::writes::Pending;

/// Time as a number of ticks before now: zero or negative.
pub(crate) type Ago = i16;
/// Number of a version of the pod template: 0, 1 or 2.
pub(crate) type Template = u8;

/// Age in ticks beyond which all times have the same effect. It exceeds every duration in the settings. The longest duration is the
/// guard's failure window of five minutes (two ticks).
pub(crate) const FAR: Ago = 3;

/// Age of a starting pod, in ticks, up to which its node counts against the budget even if the node's wave is closed. Two ticks are
/// five minutes.
pub(crate) const STARTING: Ago = 2;

/// State that the model checker explores: the cluster, the controller's memory, and the remaining faults.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Nodes with their pods, as stored by the API server.
    pub(crate) nodes: Vec<Node>,
    /// DaemonSet, as stored by the API server.
    pub(crate) set: Set,
    /// Guard's record of failed nodes, as stored on the DaemonSet.
    pub(crate) sheet: Sheet,
    /// Controller's view of nodes, pods and DaemonSet.
    pub(crate) view: View,
    /// Writes that the controller has decided on but not sent yet.
    pub(crate) pending: Vec<Pending>,
    /// Last responses of the API server to evictions.
    pub(crate) answers: Answers,
    /// Policy that rejects writes, if there is one.
    pub(crate) policy: Option<Policy>,
    /// Controller's record of rejected writes.
    pub(crate) denials: Vec<WriteFailure>,
    /// Controller's record of pods that it creates itself.
    pub(crate) upkeep: Upkeep,
    /// Guard's record of failed nodes that the controller has decided on but not stored yet.
    pub(crate) telling: Option<Sheet>,
    /// Faults that may still occur.
    pub(crate) faults: Faults,
    /// First violation that occurred.
    pub(crate) violation: Option<Violation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// True if the node's Ready condition is `True`. Only then does its kubelet work.
    pub(crate) ready: bool,
    /// Time at which `ready` last changed.
    pub(crate) since: Ago,
    /// Pods on the node, oldest first.
    pub(crate) pods: Vec<Pod>,
    /// True if the controller ended an available pod of the node and the node has not had an available pod since.
    pub(crate) down: bool,
    /// True if a pod of the node changed between the controller's decision and its write, while the node has two pods. The native
    /// controller then removes one of the two.
    pub(crate) raced: bool,
    /// True if the Node object was deleted.
    pub(crate) gone: bool,
    /// True if the node has a taint that the DaemonSet's pods don't tolerate. Existing pods stay, but no new pod can start.
    pub(crate) tainted: bool,
    /// True if the DaemonSet's node selector doesn't match the node, so that no pod belongs there.
    pub(crate) unfit: bool,
    /// True if the controller adopted a pod on a node that already has another pod or is about to get one. One of the two will be
    /// removed.
    pub(crate) claimed: bool,
    /// True if deleted pods on the node hang: they never end.
    pub(crate) hung: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pod {
    pub(crate) uid: u8,
    /// True in the controller's copy of a pod, if the real pod has changed since the copy was made.
    pub(crate) changed: bool,
    pub(crate) template: Template,
    pub(crate) created: Ago,
    pub(crate) started: Option<Ago>,
    pub(crate) ready_since: Option<Ago>,
    pub(crate) terminating: bool,
    /// Time at which the pod began to terminate; `None` if it is not terminating.
    pub(crate) left: Option<Ago>,
    /// True if the pod was updated in place and its kubelet has not restarted the container yet.
    pub(crate) changing: bool,
    /// Stopped revision from which the pod was reverted in place.
    pub(crate) rolled_back: Option<Template>,
    /// Condition `PodImageReady`: the revision whose images are requested, and true if the node has pulled them.
    pub(crate) images: Option<(Template, bool)>,
    /// Condition `PodNeedUpgrade`: its status, and the revision in its message.
    pub(crate) need_upgrade: Option<(bool, Template)>,
    /// True for a surge pod that the DaemonSet doesn't own yet. A surge pod is a new pod that starts while the old one still runs.
    pub(crate) spare: bool,
    /// UID of the older pod for which this surge pod was created; `None` if the older pod is gone. The UID and the template
    /// determine the name of the surge pod.
    pub(crate) beside: Option<u8>,
    /// True if the pod has a label of the preDelete hook. Such a pod must not be deleted before the hook removes the label.
    pub(crate) hooked: bool,
    /// True if the pod is marked `PreparingDelete`.
    pub(crate) marked: bool,
    /// True if the native controller still treats an older pod of the node as alive, although that pod has ended
    /// ([`Rules::disordered`]).
    pub(crate) native_sees_ghost: bool,
    /// True if the pod has failed permanently (phase `Failed`).
    pub(crate) over: bool,
    /// True if the pod has no owner reference.
    pub(crate) orphan: bool,
}

/// DaemonSet and its revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Set {
    /// Template in the DaemonSet's current spec.
    pub(crate) wanted: Template,
    /// Template that the native controller has observed.
    pub(crate) observed: Template,
    /// Number of each template's ControllerRevision. The newest revision has the greatest number. The number is 0 if the template
    /// has no revision.
    pub(crate) numbers: [u8; 3],
    /// Annotation `paused`.
    pub(crate) paused: bool,
    /// Annotation `resume`: the template whose failures the guard ignores.
    pub(crate) resumed: Option<Template>,
    /// Annotation `approved-waves`: the template for which the second wave is approved.
    pub(crate) approved: Option<Template>,
    /// True if the first wave has been complete at least once since the native controller observed the template.
    pub(crate) opened: bool,
}

/// Part of [`yurt_ds::core::FailureRecord`], the guard's record of failed nodes, that the model needs. The default is an empty
/// record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sheet {
    pub(crate) template: Template,
    pub(crate) stopped: Option<Stop>,
    pub(crate) before: Option<Template>,
    pub(crate) failed: BTreeSet<u8>,
    pub(crate) broken_before: BTreeSet<u8>,
}

/// Reason why the guard stopped a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stop {
    Failed,
    ReplacedTwice,
}

impl From<Stopped> for Stop {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::FailedByRevision => Self::Failed,
            Stopped::ReplacedTwice => Self::ReplacedTwice,
        }
    }
}

impl From<Stop> for Stopped {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Failed => Self::FailedByRevision,
            Stop::ReplacedTwice => Self::ReplacedTwice,
        }
    }
}

/// Watch of the controller that can freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Watch {
    Pods,
    Nodes,
    Set,
}

/// Last content of each frozen watch. `None` means that the watch is live, so the controller sees the API server's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) pods: Option<Vec<Vec<Pod>>>,
    pub(crate) nodes: Option<Vec<Seen>>,
    pub(crate) set: Option<Set>,
    /// Writes whose result the controller's watch of pods doesn't show yet: UID of the pod, kind of write, and [`Doubt`].
    pub(crate) overlay: Vec<(u8, Write, Doubt)>,
}

/// Node as the controller's watch last saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) ready: bool,
    pub(crate) since: Ago,
    pub(crate) tainted: bool,
    pub(crate) unfit: bool,
}

/// Certainty about a write. True if the API server rejected the write because the pod had changed since the controller saw it.
pub(crate) type Doubt = bool;

/// Kind of write to a pod whose result the controller expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Write {
    Deletion,
    InPlacePatch,
    Reversal { to: Template, from: Template },
    PreDeleteHook,
}

/// Number of times that each kind of fault may still occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// Nodes that go offline. Each may return at any time.
    pub(crate) losses: u8,
    /// Crashes of containers, which are then restarted.
    pub(crate) crashes: u8,
    /// Deletions of pods by other clients.
    pub(crate) kills: u8,
    /// Changes of the template, to a new or an earlier version.
    pub(crate) templates: u8,
    /// Restarts of the controller, which lose its pending writes.
    pub(crate) restarts: u8,
    /// Freezes of watches. A frozen watch resumes sooner or later.
    pub(crate) freezes: u8,
    /// Changes of the annotation `paused`.
    pub(crate) pauses: u8,
    /// Resumptions of a revision that the guard stopped, by the annotation `resume`.
    pub(crate) resumes: u8,
    /// Deletions of Node objects.
    pub(crate) removals: u8,
    /// Removals of the hook's label before the controller has marked the pod `PreparingDelete`.
    pub(crate) unhooks: u8,
    /// Policies that reject one kind of write on one node.
    pub(crate) policies: u8,
    /// Nodes on which deleted pods don't end.
    pub(crate) hangs: u8,
    /// Changes of taints: added or removed.
    pub(crate) taints: u8,
    /// Changes of node labels, so that the DaemonSet no longer selects the node, or selects it again.
    pub(crate) misfits: u8,
    /// Permanent failures of pods.
    pub(crate) failures: u8,
    /// Pods that another client creates without an owner.
    pub(crate) orphans: u8,
    /// Pods whose creation the API server rejects.
    pub(crate) write_failures: u8,
    /// Pods whose creation fails without a response.
    pub(crate) silences: u8,
}

/// Violation of a design invariant or of another promise. To touch a node means to delete, evict, update or mark its pod, or to
/// create another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Violation {
    /// Invariant 1: more nodes lack a pod than the budget allows.
    BudgetExceeded,
    /// Invariant 2: fewer pods of an old revision are left than `partition` requires.
    PartitionUndercut,
    /// Invariant 2: an unselected node was touched.
    UnselectedTouched,
    /// Invariant 3: a node was touched although the controller saw it offline.
    OfflineTouched,
    /// Invariant 4: a pod was touched during a pause, although the action was not upkeep such as the removal of a mark.
    PausedTouched,
    /// Invariant 6: a pod was replaced in OTA mode.
    OtaReplaced,
    /// Invariant 8: a pod was replaced although the controller saw it run the wanted template.
    CurrentReplaced,
    /// The plan requests a wake-up in the past, which would cause a busy loop.
    WakePassed,
    /// More nodes got a second pod than `max-surge` allows.
    SurgeExceeded,
    /// A pod was deleted before its preDelete hook released it.
    HookIgnored,
    /// A pod of the second wave was replaced before the first wave was complete, or without approval.
    WaveJumped,
    /// A pod was replaced for a revision that the guard had stopped.
    StoppedTouched,
    /// The guard's record lost a stop, or changed the revision to which pods are reverted.
    StopForgotten,
    /// A pod was reverted from a revision that was not stopped, or a second time.
    WronglyTakenBack,
    /// A pod was deleted although the settings require evictions.
    NotEvicted,
    /// The controller left fewer Ready pods than the disruption budget requires.
    DisruptionExceeded,
    /// A pod was replaced on a tainted node, where no new pod can start.
    TaintedTouched,
    /// A node counts against `max-unavailable` although its eviction was rejected.
    RefusalSpent,
    /// The controller requested a pod for a node on which no pod belongs.
    Misplaced,
    /// The controller created a pod on a node that already has one.
    MadeBeside,
    /// A node has more pods than the DaemonSet allows.
    TooMany,
    /// The controller deleted the only pod of a node where the pod belongs, for another reason than a rollout.
    OnlyOneTaken,
}

impl State {
    /// Returns the initial state of a test.
    pub(crate) fn first(rules: &Rules) -> Self {
        let mut state = Self::settled(rules);
        if rules.rolled_out {
            state.set = Set {
                wanted: 1,
                observed: 1,
                numbers: [1, 2, 0],
                ..state.set
            };
            for pod in state.nodes.iter_mut().flat_map(|node| &mut node.pods) {
                (pod.template, pod.created) = (1, 0);
                (pod.started, pod.ready_since) = (Some(0), Some(0));
            }
        }
        for (n, node) in state.nodes.iter_mut().enumerate() {
            node.gone = n < rules.joining;
            node.ready = !node.gone;
            if node.gone || rules.is_empty {
                node.pods.clear();
            }
        }
        state.canonical(rules)
    }

    /// Returns a state in which every node has run template 0 for longer than any duration in the settings.
    pub(crate) fn settled(rules: &Rules) -> Self {
        let node = |uid: usize| Node {
            ready: true,
            since: -2 * FAR,
            pods: vec![Pod {
                uid: u8::try_from(uid).expect("few nodes"),
                started: Some(-FAR),
                ready_since: Some(-FAR),
                hooked: rules.hooked(),
                ..Pod::new(0, -FAR)
            }],
            down: false,
            raced: false,
            gone: false,
            tainted: false,
            unfit: false,
            claimed: false,
            hung: false,
        };
        let state = Self {
            nodes: (0..rules.nodes).map(node).collect(),
            set: Set {
                wanted: 0,
                observed: 0,
                numbers: [1, 0, 0],
                paused: false,
                resumed: None,
                approved: None,
                opened: false,
            },
            sheet: Sheet::default(),
            view: View::default(),
            pending: Vec::new(),
            answers: Answers::default(),
            policy: None,
            denials: Vec::new(),
            upkeep: Upkeep::default(),
            telling: None,
            faults: rules.faults,
            violation: None,
        };
        state.canonical(rules)
    }

    /// Lets one tick pass.
    pub(crate) fn tick(&mut self) {
        for n in 0..self.nodes.len() {
            self.each_instant_on(n, |instant| *instant -= 1);
        }
    }

    /// Returns a UID that no pod has, in the API server, in the controller's view, or in its writes.
    pub(crate) fn fresh_uid(&self) -> u8 {
        let known = self.nodes.iter().map(|node| &node.pods);
        let seen = self.view.pods.iter().flatten();
        let uids = known.chain(seen).flatten().map(|pod| pod.uid);
        let uids = uids.chain(self.view.overlay.iter().map(|(uid, ..)| *uid));
        let uids = uids.chain(self.pending.iter().flat_map(Pending::uids));
        uids.max().map_or(0, |most| most + 1)
    }

    pub(crate) fn pod_mut(&mut self, uid: u8) -> Option<&mut Pod> {
        let mut pods = self.nodes.iter_mut().flat_map(|node| &mut node.pods);
        pods.find(|pod| pod.uid == uid)
    }

    /// Returns the index of the node and the index of the pod with this UID, if the pod exists.
    pub(crate) fn place(&self, uid: u8) -> Option<(usize, usize)> {
        self.nodes.iter().enumerate().find_map(|(n, node)| {
            let p = node.pods.iter().position(|pod| pod.uid == uid)?;
            Some((n, p))
        })
    }

    /// Marks the controller's copies of a pod as outdated after the real pod has changed.
    pub(crate) fn outdate(&mut self, uid: u8) {
        let seen = self.view.pods.iter_mut().flatten().flatten();
        for pod in seen.filter(|pod| pod.uid == uid) {
            pod.changed = true;
        }
        if let Some((n, _)) = self.place(uid) {
            self.overtake(n, Some(uid));
        }
    }

    /// Marks pending writes on a node as based on outdated data. `changed` is the UID of the pod that has changed, or `None` if a
    /// pod was added or removed.
    pub(crate) fn overtake(&mut self, n: usize, changed: Option<u8>) {
        let here = self.pending.iter_mut().filter(|write| write.node == n);
        here.for_each(|write| write.overtake(changed));
    }
}

impl Pod {
    /// Returns true if the kubelet has to start the pod's container, for the first time or again.
    pub(crate) fn is_to_start(&self) -> bool {
        (self.ready_since.is_none() || self.changing) && !self.over
    }

    pub(crate) fn new(template: Template, created: Ago) -> Self {
        Self {
            uid: 0,
            changed: false,
            template,
            created,
            started: None,
            ready_since: None,
            terminating: false,
            left: None,
            changing: false,
            rolled_back: None,
            images: None,
            need_upgrade: None,
            spare: false,
            beside: None,
            hooked: false,
            marked: false,
            native_sees_ghost: false,
            over: false,
            orphan: false,
        }
    }

    pub(crate) fn each_instant(&mut self, act: &mut impl FnMut(&mut Ago)) {
        act(&mut self.created);
        self.left.iter_mut().for_each(&mut *act);
        self.started.iter_mut().for_each(&mut *act);
        self.ready_since.iter_mut().for_each(act);
    }
}

impl Set {
    pub(crate) fn knows(&self, template: Template) -> bool {
        self.numbers[usize::from(template)] > 0
    }

    /// Lets the native controller observe the wanted template, which creates its revision or makes an old revision the newest one.
    pub(crate) fn observe(&mut self) {
        let others = (0..3).filter(|template| *template != self.wanted && self.knows(*template));
        let mut others: Vec<Template> = others.collect();
        others.sort_by_key(|template| self.numbers[usize::from(*template)]);
        others.push(self.wanted);
        for (number, template) in (1..).zip(others) {
            self.numbers[usize::from(template)] = number;
        }
        (self.observed, self.opened) = (self.wanted, false);
    }
}

impl Node {
    /// Returns the node as a watch sees it now.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            ready: self.ready,
            since: self.since,
            tainted: self.tainted,
            unfit: self.unfit,
        }
    }

    /// Returns the pods on the node that the DaemonSet owns, which excludes surge pods.
    pub(crate) fn own(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| !pod.spare)
    }

    /// Returns the number of owned pods on the node that are not terminating.
    pub(crate) fn alive(&self) -> usize {
        self.own().filter(|pod| !pod.terminating).count()
    }
    /// Returns true if the native controller treats an ended pod of the node as alive and as older than a live pod.
    pub(crate) fn is_haunted(&self) -> bool {
        self.own()
            .any(|pod| pod.native_sees_ghost && !pod.terminating)
    }
}
