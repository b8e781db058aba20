//! The state of a small cluster, in a form in which equal situations are equal values.
//!
//! Instants are ticks before now, and as soon as nothing in the engine can tell them from longer ago, they are that: so the
//! number of states is finite. Pods are numbered in the order of nodes, so that equal fleets do not differ by the history of
//! their UIDs.

use std::collections::{BTreeMap, BTreeSet};

use super::Rules;

/// An instant, in ticks before now; never positive.
pub(crate) type Ago = i16;
/// A version of the template: 0, 1 or 2.
pub(crate) type Template = u8;

/// Ticks after which an instant is merely long ago: more than the longest time of the settings (the guard's window of five
/// minutes, two ticks).
pub(crate) const FAR: Ago = 3;

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The nodes with their pods, as the API server has them.
    pub(crate) nodes: Vec<Node>,
    /// The DaemonSet, as the API server has it.
    pub(crate) set: Set,
    /// What our controller sees of it.
    pub(crate) view: View,
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
    /// It was updated in place, and its kubelet has not restarted the container yet.
    pub(crate) changing: bool,
    /// `PodImageReady`: of which revision the images are asked for, and whether they are there.
    pub(crate) images: Option<(Template, bool)>,
    /// `PodNeedUpgrade`: its status, and the revision that its message names.
    pub(crate) need_upgrade: Option<(bool, Template)>,
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
    pub(crate) nodes: Option<Vec<(bool, Ago)>>,
    pub(crate) set: Option<Set>,
    /// Pods that we asked to delete (or to update in place), while that cannot be seen.
    pub(crate) overlay: Vec<(u8, Write)>,
}

/// What we asked for of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Write {
    Deletion,
    Renewal,
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
    /// Deaths of our controller, before or after any of its writes.
    pub(crate) restarts: u8,
    /// Watches that stand still for a while.
    pub(crate) freezes: u8,
    /// The owner pauses or resumes.
    pub(crate) pauses: u8,
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
    /// 4: a pod was written to while paused.
    PausedTouched,
    /// 6: a pod was replaced under OTA.
    OtaReplaced,
    /// 8: a pod went that was known to run the template that is asked for.
    CurrentReplaced,
    /// The plan asks to be woken in the past: a busy loop.
    WakePassed,
}

impl State {
    /// Every node runs template 0, and has done so for long.
    pub(crate) fn settled(rules: &Rules) -> Self {
        let node = |uid: usize| Node {
            ready: true,
            since: -2 * FAR,
            pods: vec![Pod {
                uid: u8::try_from(uid).expect("few nodes"),
                started: Some(-FAR),
                ready_since: Some(-FAR),
                ..Pod::new(0, -FAR)
            }],
            down: false,
        };
        let state = Self {
            nodes: (0..rules.nodes).map(node).collect(),
            set: Set {
                wanted: 0,
                observed: 0,
                numbers: [1, 0, 0],
                paused: false,
            },
            view: View::default(),
            faults: rules.faults,
            violation: None,
        };
        state.canonical(rules)
    }

    /// The same situation in its one form.
    pub(crate) fn canonical(mut self, rules: &Rules) -> Self {
        self.number_pods();
        self.forget_times(rules);
        self.shorten_times();
        self
    }

    /// Forgets the instants that these settings never ask for.
    fn forget_times(&mut self, rules: &Rules) {
        let (settles, ripens) = (
            !rules.strategy.ready_settle.is_zero(),
            !rules.strategy.min_ready.is_zero(),
        );
        let may_be_lost = self.faults.losses > 0 || rules.killer.is_some();
        let is_anybody_away = (0..self.nodes.len()).any(|n| self.is_absent(n));
        let ages = may_be_lost || is_anybody_away || !rules.strategy.min_interval.is_zero();
        let forget = |pod: &mut Pod| {
            if !ages && !settles && !ripens {
                pod.created = 0;
            }
            if !settles {
                pod.started = pod.started.and(Some(pod.created));
            }
            if !ripens {
                pod.ready_since = pod.ready_since.and(Some(pod.created));
            }
        };
        let known = self.nodes.iter_mut().map(|node| &mut node.pods);
        let seen = self.view.pods.iter_mut().flatten();
        known.chain(seen).flatten().for_each(forget);
        let known = self
            .nodes
            .iter_mut()
            .map(|node| (node.ready, &mut node.since));
        let seen = self
            .view
            .nodes
            .iter_mut()
            .flatten()
            .map(|(ready, since)| (*ready, since));
        for (_, since) in known.chain(seen).filter(|(ready, _)| *ready && !settles) {
            *since = 0;
        }
    }

    fn number_pods(&mut self) {
        let mut numbers: BTreeMap<u8, u8> = BTreeMap::new();
        let mut number = |uid: &mut u8| {
            let next = u8::try_from(numbers.len()).expect("few pods");
            *uid = *numbers.entry(*uid).or_insert(next);
        };
        let known = self.nodes.iter_mut().map(|node| &mut node.pods);
        let seen = self.view.pods.iter_mut().flatten();
        for pod in known.chain(seen).flatten() {
            number(&mut pod.uid);
        }
        self.view
            .overlay
            .iter_mut()
            .for_each(|(uid, _)| number(uid));
        self.view.overlay.sort_unstable();
        self.view.overlay.dedup();
    }

    /// Forgets what nobody can tell any more.
    ///
    /// What happened on a node that is there is compared with now: [`FAR`] ticks ago is long ago. What happened on an absent
    /// one is compared with its absence, and absences with each other: of these instants the order stays, and the time
    /// between two neighbours up to [`FAR`].
    fn shorten_times(&mut self) {
        let mut instants = BTreeSet::from([0]);
        for n in 0..self.nodes.len() {
            let is_absent = self.is_absent(n);
            self.each_instant_on(n, |instant| match is_absent {
                true => drop(instants.insert(*instant)),
                false => *instant = (*instant).max(-FAR),
            });
        }
        let mut short = BTreeMap::new();
        let mut last: Option<(Ago, Ago)> = None;
        for instant in instants.into_iter().rev() {
            let moved = last.map_or(0, |(later, moved)| moved - (later - instant).min(FAR));
            short.insert(instant, moved);
            last = Some((instant, moved));
        }
        for n in 0..self.nodes.len() {
            if self.is_absent(n) {
                self.each_instant_on(n, |instant| *instant = short[instant]);
            }
        }
    }

    /// Whether a node is away, or seen as such.
    fn is_absent(&self, n: usize) -> bool {
        let seen = self.view.nodes.as_ref();
        !self.nodes[n].ready || seen.is_some_and(|nodes| !nodes[n].0)
    }

    fn each_instant_on(&mut self, n: usize, mut act: impl FnMut(&mut Ago)) {
        act(&mut self.nodes[n].since);
        self.nodes[n]
            .pods
            .iter_mut()
            .for_each(|pod| pod.each_instant(&mut act));
        if let Some(nodes) = &mut self.view.nodes {
            act(&mut nodes[n].1);
        }
        if let Some(nodes) = &mut self.view.pods {
            nodes[n]
                .iter_mut()
                .for_each(|pod| pod.each_instant(&mut act));
        }
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
        let uids = uids.chain(self.view.overlay.iter().map(|(uid, _)| *uid));
        uids.max().map_or(0, |most| most + 1)
    }

    /// The pod of that number, if it still exists.
    pub(crate) fn pod_mut(&mut self, uid: u8) -> Option<&mut Pod> {
        let mut pods = self.nodes.iter_mut().flat_map(|node| &mut node.pods);
        pods.find(|pod| pod.uid == uid)
    }

    /// The API server's pod became another version: what was seen of it is old.
    pub(crate) fn outdate(&mut self, uid: u8) {
        let seen = self.view.pods.iter_mut().flatten().flatten();
        for pod in seen.filter(|pod| pod.uid == uid) {
            pod.changed = true;
        }
    }
}

impl Pod {
    /// Whether its kubelet has to start its container (again).
    pub(crate) fn is_to_start(&self) -> bool {
        self.ready_since.is_none() || self.changing
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
            changing: false,
            images: None,
            need_upgrade: None,
        }
    }

    fn each_instant(&mut self, act: &mut impl FnMut(&mut Ago)) {
        act(&mut self.created);
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
        self.observed = self.wanted;
    }
}
