//! The state of a small cluster. `canonical` says in which form equal situations are equal values.

use std::collections::BTreeSet;

use yurt_ds::core::Stopped;

use super::denials::{Policy, WriteFailure};
use super::evictions::Answers;
use super::rules::Rules;
use super::upkeep::Upkeep;
use super::writes::Pending;

/// An instant, in ticks before now; never positive.
pub(crate) type Ago = i16;
/// A version of the template: 0, 1 or 2.
pub(crate) type Template = u8;

/// Ticks after which an instant is merely long ago: more than the longest time of the settings (the guard's window of five
/// minutes, two ticks).
pub(crate) const FAR: Ago = 3;

/// Ticks for which a pod that does not serve yet takes a slot, also where its wave is not open any more (five minutes).
pub(crate) const STARTING: Ago = 2;

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The nodes with their pods, as the API server has them.
    pub(crate) nodes: Vec<Node>,
    /// The DaemonSet, as the API server has it.
    pub(crate) set: Set,
    /// What the guard told: it stands on the DaemonSet.
    pub(crate) sheet: Sheet,
    /// What our controller sees of all that.
    pub(crate) view: View,
    /// What it has decided to write and has not written yet.
    pub(crate) pending: Vec<Pending>,
    /// How the API server answered when it was asked to evict pods.
    pub(crate) answers: Answers,
    /// What the API server refuses.
    pub(crate) policy: Option<Policy>,
    /// What of that our controller has met.
    pub(crate) denials: Vec<WriteFailure>,
    /// What it remembers of the pods that it makes itself.
    pub(crate) upkeep: Upkeep,
    /// What the guard is about to tell.
    pub(crate) telling: Option<Sheet>,
    /// What may still go wrong.
    pub(crate) faults: Faults,
    /// What must not have happened and did.
    pub(crate) violation: Option<Violation>,
}

/// A node and its pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// Whether its Ready condition is `True`; its kubelet works only then.
    pub(crate) ready: bool,
    /// Since when.
    pub(crate) since: Ago,
    /// Its pods, the oldest first.
    pub(crate) pods: Vec<Pod>,
    /// Its available pod was taken by us, and no other one has been available since.
    pub(crate) down: bool,
    /// Something happened on it between what we saw and what we wrote, and with it two pods are sorted out now.
    pub(crate) raced: bool,
    /// Its Node object was deleted.
    pub(crate) gone: bool,
    /// It has a taint that its pods do not tolerate: who is there stays, and nobody comes.
    pub(crate) tainted: bool,
    /// Its labels are not those that the DaemonSet asks for: no pod belongs there.
    pub(crate) unfit: bool,
    /// A pod was adopted on it where another one stands or comes, and with it two are sorted out now.
    pub(crate) claimed: bool,
    /// Something holds its pods that are being deleted.
    pub(crate) hung: bool,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pod {
    pub(crate) uid: u8,
    /// Whether the view's copy is older than what the API server has; always false there.
    pub(crate) changed: bool,
    pub(crate) template: Template,
    pub(crate) created: Ago,
    pub(crate) started: Option<Ago>,
    pub(crate) ready_since: Option<Ago>,
    pub(crate) terminating: bool,
    /// When its grace period was over, where pods may hang.
    pub(crate) left: Option<Ago>,
    /// It was updated in place, and its kubelet has not restarted the container yet.
    pub(crate) changing: bool,
    /// The stopped revision from which it was taken back in place.
    pub(crate) taken_back: Option<Template>,
    /// `PodImageReady`: of which revision the images are asked for, and whether they are there.
    pub(crate) images: Option<(Template, bool)>,
    /// `PodNeedUpgrade`: its status, and the revision that its message names.
    pub(crate) need_upgrade: Option<(bool, Template)>,
    /// We made it beside another one, and the DaemonSet does not control it yet.
    pub(crate) spare: bool,
    /// The pod beside which it was made, as long as that is there: with the template, this is its name.
    pub(crate) beside: Option<u8>,
    /// It carries a label of the preDelete hook.
    pub(crate) hooked: bool,
    /// It is marked `PreparingDelete`.
    pub(crate) marked: bool,
    /// The native controller takes an older pod of the node for alive that is not.
    pub(crate) haunted: bool,
    /// It has failed, and runs never again.
    pub(crate) over: bool,
    /// Nobody controls it.
    pub(crate) orphan: bool,
}

/// A DaemonSet with its revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Set {
    /// The template that the owner asks for.
    pub(crate) wanted: Template,
    /// The one that the native controller has observed.
    pub(crate) observed: Template,
    /// The numbers of the templates' ControllerRevisions, the greatest is the newest; 0: there is none.
    pub(crate) numbers: [u8; 3],
    /// The annotation `paused`.
    pub(crate) paused: bool,
    /// The annotation `resume`: the guard does not judge this one.
    pub(crate) resumed: Option<Template>,
    /// The annotation `approved-waves`: for this one.
    pub(crate) approved: Option<Template>,
    /// Whether the first wave was complete once, since the template was observed.
    pub(crate) opened: bool,
}

/// What the guard remembers, of the whole [`yurt_ds::core::FailureRecord`]. By default: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sheet {
    pub(crate) template: Template,
    pub(crate) stopped: Option<Stop>,
    pub(crate) before: Option<Template>,
    pub(crate) failed: BTreeSet<u8>,
    pub(crate) broken_before: BTreeSet<u8>,
}

/// Why a revision was stopped.
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

/// One watch of our controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Watch {
    Pods,
    Nodes,
    Set,
}

/// Watches that stand still, with what they told last. The others show what the API server has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) pods: Option<Vec<Vec<Pod>>>,
    pub(crate) nodes: Option<Vec<Seen>>,
    pub(crate) set: Option<Set>,
    /// Pods that we asked to delete (or to update in place), while that cannot be seen.
    pub(crate) overlay: Vec<(u8, Write, Doubt)>,
}

/// What a watch tells of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) ready: bool,
    pub(crate) since: Ago,
    pub(crate) tainted: bool,
    pub(crate) unfit: bool,
}

/// Whether the API server refused it because our view of the pod was old.
pub(crate) type Doubt = bool;

/// What we asked for of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Write {
    Deletion,
    InPlacePatch,
    Reversal { to: Template, from: Template },
    PreDeleteHook,
}

/// How often each thing may still go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// Nodes lost (each may return at any time).
    pub(crate) losses: u8,
    /// Containers that crash, and start again.
    pub(crate) crashes: u8,
    /// Pods deleted by somebody else.
    pub(crate) kills: u8,
    /// Changes of the template, forth and back.
    pub(crate) templates: u8,
    /// Deaths of our controller, between any two of its writes.
    pub(crate) restarts: u8,
    /// Watches that stand still for a while.
    pub(crate) freezes: u8,
    /// The owner pauses or resumes.
    pub(crate) pauses: u8,
    /// The owner lets a stopped revision go on.
    pub(crate) resumes: u8,
    /// Nodes whose Node object is deleted.
    pub(crate) removals: u8,
    /// Hooks that let go before anybody asked.
    pub(crate) unhooks: u8,
    /// Policies that refuse us one kind of write on one node.
    pub(crate) policies: u8,
    /// Nodes on which no pod ends.
    pub(crate) hangs: u8,
    /// Nodes that get a taint, or lose it.
    pub(crate) taints: u8,
    /// Nodes that get other labels, or their own again.
    pub(crate) misfits: u8,
    /// Pods that fail for good.
    pub(crate) failures: u8,
    /// Pods that somebody makes, and nobody controls.
    pub(crate) orphans: u8,
    /// Pods of ours that the API server refuses to make.
    pub(crate) write_failures: u8,
    /// The same, without an answer.
    pub(crate) silences: u8,
}

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Violation {
    /// Design invariant 1.
    BudgetExceeded,
    /// 2: fewer pods of an old revision are left than `partition` says.
    PartitionUndercut,
    /// 2: a node that is not selected was touched.
    UnselectedTouched,
    /// 3: a node was touched that was known to be offline.
    OfflineTouched,
    /// 4: a pod was written to while paused, and not for upkeep.
    PausedTouched,
    /// 6: a pod was replaced under OTA.
    OtaReplaced,
    /// 8: a pod went that was known to run the template that is asked for.
    CurrentReplaced,
    /// The plan asks to be woken in the past: a busy loop.
    WakePassed,
    /// More nodes than `max-surge` says got a second pod.
    SurgeExceeded,
    /// A pod went before its hook had let go.
    HookIgnored,
    /// A pod of a later wave went before the first one was complete, or without the approval.
    WaveJumped,
    /// A pod went for a revision that the guard had stopped.
    StoppedTouched,
    /// The guard forgot that it had stopped a revision, or to which one its pods are taken back.
    StopForgotten,
    /// A pod was taken back from a revision that was not stopped, or a second time.
    WronglyTakenBack,
    /// A pod was deleted that had to be evicted.
    NotEvicted,
    /// Fewer pods are Ready than the disruption budget asks for, because of us.
    DisruptionExceeded,
    /// A pod went from a node on which no new one can come.
    TaintedTouched,
    /// An eviction that was refused takes a slot.
    RefusalSpent,
    /// A pod was asked for where none belongs.
    Misplaced,
    /// A pod was made beside one that was there.
    MadeBeside,
    /// A node has more pods than belong there.
    TooMany,
    /// The only pod of a node was taken away, and not for a rollout.
    OnlyOneTaken,
}

impl State {
    /// Where a test begins.
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

    /// Every node runs template 0, and has done so for long.
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

    /// Time passes.
    pub(crate) fn tick(&mut self) {
        for n in 0..self.nodes.len() {
            self.each_instant_on(n, |instant| *instant -= 1);
        }
    }

    /// A number that no pod has, seen or not.
    pub(crate) fn fresh_uid(&self) -> u8 {
        let known = self.nodes.iter().map(|node| &node.pods);
        let seen = self.view.pods.iter().flatten();
        let uids = known.chain(seen).flatten().map(|pod| pod.uid);
        let uids = uids.chain(self.view.overlay.iter().map(|(uid, ..)| *uid));
        let uids = uids.chain(self.pending.iter().flat_map(Pending::uids));
        uids.max().map_or(0, |most| most + 1)
    }

    /// The pod of that number, if it still exists.
    pub(crate) fn pod_mut(&mut self, uid: u8) -> Option<&mut Pod> {
        let mut pods = self.nodes.iter_mut().flat_map(|node| &mut node.pods);
        pods.find(|pod| pod.uid == uid)
    }

    /// Where the pod of that number is, if it still exists.
    pub(crate) fn place(&self, uid: u8) -> Option<(usize, usize)> {
        self.nodes.iter().enumerate().find_map(|(n, node)| {
            let p = node.pods.iter().position(|pod| pod.uid == uid)?;
            Some((n, p))
        })
    }

    /// The API server's pod became another version: what was seen of it is old.
    pub(crate) fn outdate(&mut self, uid: u8) {
        let seen = self.view.pods.iter_mut().flatten().flatten();
        for pod in seen.filter(|pod| pod.uid == uid) {
            pod.changed = true;
        }
        if let Some((n, _)) = self.place(uid) {
            self.overtake(n, Some(uid));
        }
    }

    /// Something happened on a node, to this pod or another one: what is about to be written there rests on an older view.
    pub(crate) fn overtake(&mut self, n: usize, changed: Option<u8>) {
        let here = self.pending.iter_mut().filter(|write| write.node == n);
        here.for_each(|write| write.overtake(changed));
    }
}

impl Pod {
    /// Whether its kubelet has to start its container (again).
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
    /// Whether there is a ControllerRevision of that template.
    pub(crate) fn knows(&self, template: Template) -> bool {
        self.numbers[usize::from(template)] > 0
    }

    /// The native controller handles the template: its revision is the newest now.
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
    /// What a watch tells of it.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            ready: self.ready,
            since: self.since,
            tainted: self.tainted,
            unfit: self.unfit,
        }
    }

    /// The pods that the DaemonSet controls.
    pub(crate) fn own(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| !pod.spare)
    }

    /// How many of them are not terminating.
    pub(crate) fn alive(&self) -> usize {
        self.own().filter(|pod| !pod.terminating).count()
    }
    /// Whether the native controller takes one that is not alive for older than one of these.
    pub(crate) fn is_haunted(&self) -> bool {
        self.own().any(|pod| pod.haunted && !pod.terminating)
    }
}
