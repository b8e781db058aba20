//! The state of a small cluster. `canonical` defines the canonical form of equivalent states.

use std::collections::BTreeSet;

use yurt_ds::core::Stopped;

use super::denials::{Policy, WriteFailure};
use super::evictions::Answers;
use super::rules::Rules;
use super::upkeep::Upkeep;
use super::writes::Pending;

/// Instant in ticks before now. Never positive.
pub(crate) type Ago = i16;
/// Version of the template: 0, 1 or 2.
pub(crate) type Template = u8;

/// Ticks after which the age of an instant no longer matters. More than the longest time of the settings: the guard's window of
/// five minutes, or two ticks.
pub(crate) const FAR: Ago = 3;

/// Ticks for which a starting pod uses a slot, even if its wave is no longer open (five minutes).
pub(crate) const STARTING: Ago = 2;

/// Complete state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Nodes with their pods, as stored by the API server.
    pub(crate) nodes: Vec<Node>,
    /// DaemonSet, as stored by the API server.
    pub(crate) set: Set,
    /// The guard's record on the DaemonSet.
    pub(crate) sheet: Sheet,
    /// The controller's view of all that.
    pub(crate) view: View,
    /// Writes that the controller has decided on but not sent yet.
    pub(crate) pending: Vec<Pending>,
    /// The API server's last answers to evictions.
    pub(crate) answers: Answers,
    /// Write that the API server rejects.
    pub(crate) policy: Option<Policy>,
    /// The controller's record of rejected writes.
    pub(crate) denials: Vec<WriteFailure>,
    /// The controller's record of pods that it creates itself.
    pub(crate) upkeep: Upkeep,
    /// Record that the guard is about to write.
    pub(crate) telling: Option<Sheet>,
    /// Faults that may still occur.
    pub(crate) faults: Faults,
    /// First violation that occurred.
    pub(crate) violation: Option<Violation>,
}

/// Node with its pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// True if its Ready condition is `True`. Its kubelet works only then.
    pub(crate) ready: bool,
    /// Instant of the last change of `ready`.
    pub(crate) since: Ago,
    /// Its pods, oldest first.
    pub(crate) pods: Vec<Pod>,
    /// True if the controller ended its available pod, and no other one has been available since.
    pub(crate) down: bool,
    /// True if the node changed between the controller's view and its write, so that the native controller now removes one of two
    /// pods.
    pub(crate) raced: bool,
    /// True if its Node object was deleted.
    pub(crate) gone: bool,
    /// True if it has a taint that its pods don't tolerate. Existing pods stay, and no new pod can start.
    pub(crate) tainted: bool,
    /// True if its labels don't match the DaemonSet. No pod belongs there.
    pub(crate) unfit: bool,
    /// True if a pod was adopted although the node has or gets another one. One of the two is removed.
    pub(crate) claimed: bool,
    /// True if its deleted pods can't end.
    pub(crate) hung: bool,
}

/// Pod of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pod {
    pub(crate) uid: u8,
    /// True if this copy in the view is older than the API server's pod. Always false in the API server's pods.
    pub(crate) changed: bool,
    pub(crate) template: Template,
    pub(crate) created: Ago,
    pub(crate) started: Option<Ago>,
    pub(crate) ready_since: Option<Ago>,
    pub(crate) terminating: bool,
    /// Instant at which its grace period ended. Only used where pods may hang.
    pub(crate) left: Option<Ago>,
    /// True if it was updated in place, but its kubelet has not restarted the container yet.
    pub(crate) changing: bool,
    /// Stopped revision from which it was reverted in place.
    pub(crate) taken_back: Option<Template>,
    /// `PodImageReady`: the revision of the requested images, and true if they are pulled.
    pub(crate) images: Option<(Template, bool)>,
    /// `PodNeedUpgrade`: its status and the revision in its message.
    pub(crate) need_upgrade: Option<(bool, Template)>,
    /// True for a surge pod that the DaemonSet doesn't own yet.
    pub(crate) spare: bool,
    /// The older pod next to which it was created, while that exists. Its name consists of this and the template.
    pub(crate) beside: Option<u8>,
    /// True if it has a label of the preDelete hook.
    pub(crate) hooked: bool,
    /// True if it is marked `PreparingDelete`.
    pub(crate) marked: bool,
    /// True if the native controller treats an older pod of the node as alive although it has ended.
    pub(crate) haunted: bool,
    /// True if it has failed and will never run again.
    pub(crate) over: bool,
    /// True if it has no owner.
    pub(crate) orphan: bool,
}

/// DaemonSet with its revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Set {
    /// Template that the owner wants.
    pub(crate) wanted: Template,
    /// Template that the native controller has observed.
    pub(crate) observed: Template,
    /// Revision numbers of the templates. The greatest is the newest; 0 means that there is no ControllerRevision.
    pub(crate) numbers: [u8; 3],
    /// Annotation `paused`.
    pub(crate) paused: bool,
    /// Annotation `resume`: the guard doesn't evaluate this template.
    pub(crate) resumed: Option<Template>,
    /// Annotation `approved-waves`: the template that it approves.
    pub(crate) approved: Option<Template>,
    /// True if the first wave has been complete since the template was observed.
    pub(crate) opened: bool,
}

/// The part of [`yurt_ds::core::FailureRecord`] that the model keeps. Empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sheet {
    pub(crate) template: Template,
    pub(crate) stopped: Option<Stop>,
    pub(crate) before: Option<Template>,
    pub(crate) failed: BTreeSet<u8>,
    pub(crate) broken_before: BTreeSet<u8>,
}

/// Reason for which a revision was stopped.
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

/// Watch of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Watch {
    Pods,
    Nodes,
    Set,
}

/// Frozen watches with their last content. The other watches show the API server's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) pods: Option<Vec<Vec<Pod>>>,
    pub(crate) nodes: Option<Vec<Seen>>,
    pub(crate) set: Option<Set>,
    /// Pods that the controller has requested to delete or to update in place, while its watch doesn't show the result.
    pub(crate) overlay: Vec<(u8, Write, Doubt)>,
}

/// Content of a watch about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) ready: bool,
    pub(crate) since: Ago,
    pub(crate) tainted: bool,
    pub(crate) unfit: bool,
}

/// True if the API server rejected the write because the controller's view of the pod was old.
pub(crate) type Doubt = bool;

/// Write to a pod that the controller requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Write {
    Deletion,
    InPlacePatch,
    Reversal { to: Template, from: Template },
    PreDeleteHook,
}

/// Number of times that each fault may still occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// Lost nodes. Each may return at any time.
    pub(crate) losses: u8,
    /// Crashes of containers, which then restart.
    pub(crate) crashes: u8,
    /// Deletions of pods by other clients.
    pub(crate) kills: u8,
    /// Changes of the template, to new and to old versions.
    pub(crate) templates: u8,
    /// Restarts of the controller between any two of its writes.
    pub(crate) restarts: u8,
    /// Temporary freezes of watches.
    pub(crate) freezes: u8,
    /// Changes of the annotation `paused` by the owner.
    pub(crate) pauses: u8,
    /// Resumptions of a stopped revision by the owner.
    pub(crate) resumes: u8,
    /// Deletions of Node objects.
    pub(crate) removals: u8,
    /// Hooks that release a pod before the controller asks.
    pub(crate) unhooks: u8,
    /// Policies that reject one kind of write on one node.
    pub(crate) policies: u8,
    /// Nodes on which no pod ends.
    pub(crate) hangs: u8,
    /// Added or removed taints.
    pub(crate) taints: u8,
    /// Nodes whose labels change, or change back.
    pub(crate) misfits: u8,
    /// Permanent failures of pods.
    pub(crate) failures: u8,
    /// Pods that another client creates without an owner.
    pub(crate) orphans: u8,
    /// Pods whose creation the API server rejects.
    pub(crate) write_failures: u8,
    /// Pods whose creation fails without an answer.
    pub(crate) silences: u8,
}

/// Violation of an invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Violation {
    /// Design invariant 1.
    BudgetExceeded,
    /// Invariant 2: fewer pods of an old revision are left than `partition` requires.
    PartitionUndercut,
    /// Invariant 2: an unselected node was touched.
    UnselectedTouched,
    /// Invariant 3: a node was touched that was known to be offline.
    OfflineTouched,
    /// Invariant 4: a pod was written to while paused, and not for upkeep.
    PausedTouched,
    /// Invariant 6: a pod was replaced in OTA mode.
    OtaReplaced,
    /// Invariant 8: a pod was replaced that was known to run the wanted template.
    CurrentReplaced,
    /// The plan asks for a wake-up in the past, which would be a busy loop.
    WakePassed,
    /// More nodes than `max-surge` got a second pod.
    SurgeExceeded,
    /// A pod was deleted before its hook released it.
    HookIgnored,
    /// A pod of a later wave was replaced before the first wave was complete, or without the approval.
    WaveJumped,
    /// A pod was replaced for a revision that the guard had stopped.
    StoppedTouched,
    /// The guard forgot that it had stopped a revision, or the target revision of reverts.
    StopForgotten,
    /// A pod was reverted from a revision that was not stopped, or a second time.
    WronglyTakenBack,
    /// A pod was deleted although evictions are required.
    NotEvicted,
    /// Fewer pods are Ready than the disruption budget requires, because of the controller.
    DisruptionExceeded,
    /// A pod was replaced on a node on which no new one can start.
    TaintedTouched,
    /// A rejected eviction uses a slot.
    RefusalSpent,
    /// A pod was requested where none belongs.
    Misplaced,
    /// A pod was created next to an existing one.
    MadeBeside,
    /// A node has more pods than belong there.
    TooMany,
    /// The only pod of a node was deleted, but not for a rollout.
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

    /// Returns a state in which every node has run template 0 for a long time.
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

    /// Returns a number that no pod has, seen or not.
    pub(crate) fn fresh_uid(&self) -> u8 {
        let known = self.nodes.iter().map(|node| &node.pods);
        let seen = self.view.pods.iter().flatten();
        let uids = known.chain(seen).flatten().map(|pod| pod.uid);
        let uids = uids.chain(self.view.overlay.iter().map(|(uid, ..)| *uid));
        let uids = uids.chain(self.pending.iter().flat_map(Pending::uids));
        uids.max().map_or(0, |most| most + 1)
    }

    /// Returns the pod with that number, if it still exists.
    pub(crate) fn pod_mut(&mut self, uid: u8) -> Option<&mut Pod> {
        let mut pods = self.nodes.iter_mut().flat_map(|node| &mut node.pods);
        pods.find(|pod| pod.uid == uid)
    }

    /// Returns the indices of the node and the pod with that number, if it still exists.
    pub(crate) fn place(&self, uid: u8) -> Option<(usize, usize)> {
        self.nodes.iter().enumerate().find_map(|(n, node)| {
            let p = node.pods.iter().position(|pod| pod.uid == uid)?;
            Some((n, p))
        })
    }

    /// Marks the seen copies of a pod as old after a change in the API server.
    pub(crate) fn outdate(&mut self, uid: u8) {
        let seen = self.view.pods.iter_mut().flatten().flatten();
        for pod in seen.filter(|pod| pod.uid == uid) {
            pod.changed = true;
        }
        if let Some((n, _)) = self.place(uid) {
            self.overtake(n, Some(uid));
        }
    }

    /// Marks pending writes on a node as based on an older view, after a change of this or another pod.
    pub(crate) fn overtake(&mut self, n: usize, changed: Option<u8>) {
        let here = self.pending.iter_mut().filter(|write| write.node == n);
        here.for_each(|write| write.overtake(changed));
    }
}

impl Pod {
    /// Returns true if its kubelet has to start its container (again).
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
            taken_back: None,
            images: None,
            need_upgrade: None,
            spare: false,
            beside: None,
            hooked: false,
            marked: false,
            haunted: false,
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
    /// Returns true if there is a ControllerRevision of that template.
    pub(crate) fn knows(&self, template: Template) -> bool {
        self.numbers[usize::from(template)] > 0
    }

    /// Lets the native controller observe the wanted template. Its revision is now the newest.
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
    /// Returns the content of a watch about this node.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            ready: self.ready,
            since: self.since,
            tainted: self.tainted,
            unfit: self.unfit,
        }
    }

    /// Returns the pods that the DaemonSet owns.
    pub(crate) fn own(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| !pod.spare)
    }

    /// Returns the number of owned pods that are not terminating.
    pub(crate) fn alive(&self) -> usize {
        self.own().filter(|pod| !pod.terminating).count()
    }
    /// Returns true if the native controller treats an ended pod as alive and as older than one of these.
    pub(crate) fn is_haunted(&self) -> bool {
        self.own().any(|pod| pod.haunted && !pod.terminating)
    }
}
