//! Upkeep of an Advanced DaemonSet: the controller creates pods on nodes where they belong and removes them from other nodes.
//!
//! ```text
//! Decide ──► requested pods ──Make──► created ──► seen: another one may be requested
//!                 │             ├───► rejected: this node is skipped for some time
//!                 │             └───► no answer: expected until the next list of pods
//!                 └──Die──► lost
//! ```
//!
//! In the real controller, a pending request also delays the next decision. Here it doesn't. So the record of expected pods alone
//! must prevent a second request for the same pod.

use std::collections::{BTreeMap, BTreeSet};

use yurt_ds::core::{
    FailedPodsBackoff, Fleet, Manage, ManageTerms, Node as SeenNode, NodeName, Plan, PodRevision,
    RevisionState, Targeting, manage,
};

use super::rules::Rules;
use super::state::{Node, Pod, State, Template, Violation};
use super::steps::Step;
use super::view::{name_of, node_of, now, template_of};

/// Controller's record of pods that it creates and removes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Upkeep {
    /// Pending requests for pods, each with node and template, sorted.
    asked: Vec<(usize, Template)>,
    /// Nodes for which the controller has requested a pod that it has not seen yet.
    expected: BTreeSet<usize>,
    /// Nodes for which the API server recently rejected the creation of a pod.
    refused: BTreeSet<usize>,
    /// Nodes where a failed pod was recently deleted.
    failed: BTreeSet<usize>,
}

/// Result of a request to create a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Made,
    Refused,
    /// The pod is not created, and the controller gets no response.
    Lost,
}

impl Upkeep {
    /// Returns true if the controller still expects a requested pod.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Returns true if no request is pending and the record is empty.
    fn is_over(&self) -> bool {
        *self == Self::default()
    }

    /// Records that the controller has seen a new pod on this node.
    pub(crate) fn show(&mut self, n: usize) {
        self.expected.remove(&n);
    }

    /// Lets one tick pass. The controller may retry creations that were rejected, and backoffs after failed pods end. A new list of
    /// pods replaces the record of expected pods, except pods whose request is still pending.
    pub(crate) fn tick(&mut self) {
        let is_asked = |n: &usize| self.asked.iter().any(|(asked, _)| asked == n);
        self.expected.retain(is_asked);
        self.refused.clear();
        self.failed.clear();
    }
}

impl Pod {
    /// Returns true if the pod counts as the node's pod: it is owned, alive and not terminating.
    fn counts(&self) -> bool {
        !self.terminating && !self.over && !self.orphan
    }
}

impl Node {
    /// Returns the number of pods that count as the node's pod.
    pub(crate) fn counted(&self) -> usize {
        self.pods.iter().filter(|pod| pod.counts()).count()
    }

    /// Returns true if a pod of the DaemonSet belongs on the node.
    fn is_fit(&self) -> bool {
        !self.gone && !self.unfit && !self.tainted
    }
}

impl State {
    /// Returns the possible steps, without faults, for pods that the controller creates. Each of them happens sooner or later.
    pub(crate) fn upkeep_progress(&self) -> Vec<Step> {
        let asked = self.upkeep.asked.iter();
        let mut steps: Vec<Step> = asked.map(|(n, _)| Step::Make(*n, Answer::Made)).collect();
        let nodes = self.nodes.iter().enumerate();
        for (n, node) in nodes.filter(|(_, node)| !node.gone && self.view.pods.is_none()) {
            let pods = node.pods.iter().enumerate();
            let free = pods.filter(|(_, pod)| pod.orphan && !pod.terminating);
            steps.extend(free.map(|(p, _)| Step::Adopt(n, p)));
        }
        steps
    }

    /// Returns the faults that can occur to pods that the controller creates.
    pub(crate) fn upkeep_faults(&self) -> Vec<Step> {
        let (faults, mut steps) = (self.faults, Vec::new());
        for (n, _) in &self.upkeep.asked {
            if faults.write_failures > 0 {
                steps.push(Step::Make(*n, Answer::Refused));
            }
            if faults.silences > 0 {
                steps.push(Step::Make(*n, Answer::Lost));
            }
        }
        for (n, node) in self.nodes.iter().enumerate() {
            if node.gone {
                steps.push(Step::Join(n));
                continue;
            }
            if faults.misfits > 0 {
                steps.push(Step::Relabel(n));
            }
            if faults.orphans > 0 {
                steps.push(Step::Orphan(n));
            }
            let pods = node.pods.iter().enumerate();
            let fails = |pod: &Pod| node.ready && !pod.over && !pod.terminating;
            let pods = pods.filter(|(_, pod)| faults.failures > 0 && fails(pod));
            steps.extend(pods.map(|(p, _)| Step::Fail(n, p)));
        }
        steps
    }

    /// Returns the pods that the controller would create and delete now, regardless of their revision.
    pub(crate) fn managed(&self, fleet: &Fleet, rules: &Rules) -> Manage {
        let expected = self.upkeep.expected.iter();
        let creating: BTreeMap<NodeName, _> = expected.map(|n| (name_of(*n), now())).collect();
        let mut backoff = FailedPodsBackoff::default();
        let failed = self.upkeep.failed.iter();
        failed.for_each(|n| backoff.note(&name_of(*n), now()));
        let strategy = self.strategy(rules);
        let terms = ManageTerms {
            strategy: Some(&strategy),
            keeps_pairs: false,
            scaling: rules.scaling,
            creating: &creating,
            refused: &BTreeMap::new(),
            orphans: &BTreeMap::new(),
            backoff: &backoff,
            now: now(),
        };
        let mut managed = manage(fleet, terms);
        let is_held = |n: usize| self.upkeep.refused.contains(&n) || self.is_claimable(n);
        let is_known = matches!(fleet.revision, RevisionState::Current(_));
        (managed.create).retain(|name| is_known && !is_held(node_of(name)));
        managed
    }

    /// Returns true if the controller sees a pod without an owner on the node. The controller is about to adopt such a pod.
    fn is_claimable(&self, n: usize) -> bool {
        let seen = self.view.pods.as_ref().map(|nodes| &nodes[n]);
        let mut pods = seen.unwrap_or(&self.nodes[n].pods).iter();
        pods.any(|pod| pod.orphan && !pod.terminating)
    }

    /// Adds the pods that the controller wants to create to the pending requests. Checks these creations, and the deletions of
    /// `managed`.
    pub(crate) fn tend(&mut self, managed: &Manage, fleet: &Fleet, rules: &Rules) {
        for action in &managed.actions {
            let is_only = |node: &SeenNode| {
                let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
                let is_it = |pod: &yurt_ds::core::Pod| pod.uid == action.pod().uid;
                alive.all(|pod| is_it(pod) && !pod.in_place.is_over) && node.pods.iter().any(is_it)
            };
            let mut belongs = fleet.nodes.iter();
            if belongs.any(|node| node.native != Targeting::No && is_only(node)) {
                self.violate(Violation::OnlyOneTaken);
            }
        }
        let over = managed.over.iter().map(|(name, _)| node_of(name));
        self.upkeep.failed.extend(over);
        let RevisionState::Current(revision) = &fleet.revision else {
            return;
        };
        let targeted = fleet
            .nodes
            .iter()
            .filter(|node| node.native == Targeting::Run);
        let kept = rules.kept(targeted.clone().count());
        let is_new =
            |pod: &yurt_ds::core::Pod| !pod.terminating && pod.revision == PodRevision::Current;
        let is_updated = |node: &&SeenNode| node.pods.iter().any(is_new);
        let updated = targeted.clone().filter(is_updated).count() + self.upkeep.expected.len();
        let is_beyond = targeted.count() < kept + updated + managed.create.len();
        if rules.scaling.partitioned && !managed.create.is_empty() && is_beyond {
            self.violate(Violation::PartitionUndercut);
        }
        for name in &managed.create {
            let n = node_of(name);
            if self.view.nodes.is_none() && !self.nodes[n].is_fit() {
                self.violate(Violation::Misplaced);
            }
            self.upkeep.asked.push((n, template_of(revision)));
            self.upkeep.expected.insert(n);
        }
        self.upkeep.asked.sort_unstable();
    }

    /// Ends the pending request for a pod on a node, with this result.
    pub(crate) fn make_asked(&mut self, n: usize, answer: Answer, rules: &Rules) {
        let asked = self.upkeep.asked.iter().position(|(node, _)| *node == n);
        let (_, template) = self.upkeep.asked.remove(asked.expect("a request"));
        match answer {
            Answer::Lost => self.faults.silences -= 1,
            Answer::Refused => {
                self.faults.write_failures -= 1;
                self.upkeep.expected.remove(&n);
                self.upkeep.refused.insert(n);
            }
            // The node is gone. No kubelet starts the new pod, and the garbage collector deletes it, so no pod is added here.
            Answer::Made if self.nodes[n].gone => self.upkeep.show(n),
            Answer::Made => {
                self.judge_creation(n, rules);
                let pod = Pod {
                    uid: self.fresh_uid(),
                    hooked: rules.hooked(),
                    ..Pod::new(template, 0)
                };
                self.nodes[n].pods.push(pod);
                self.overtake(n, None);
                if self.view.pods.is_none() {
                    self.upkeep.show(n);
                }
            }
        }
    }

    /// Checks that the controller creates no pod on a node that has one. Without surge, a terminating pod counts, too, until it
    /// ends.
    fn judge_creation(&mut self, n: usize, rules: &Rules) {
        let node = &self.nodes[n];
        let is_there = |pod: &Pod| match rules.surge() {
            0 => !(pod.orphan || pod.terminating && pod.over),
            _ => pod.counts(),
        };
        if !node.claimed && node.pods.iter().any(is_there) {
            self.violate(Violation::MadeBeside);
        }
    }

    /// Adds a pod without an owner to a node, as another client might.
    pub(crate) fn orphan(&mut self, n: usize) {
        self.faults.orphans -= 1;
        let pod = Pod {
            uid: self.fresh_uid(),
            orphan: true,
            ..Pod::new(0, 0)
        };
        self.nodes[n].pods.push(pod);
        self.overtake(n, None);
    }

    /// Lets the controller adopt a pod without an owner. If the node has another pod or is about to get one, one of the two is
    /// removed later.
    pub(crate) fn adopt(&mut self, n: usize, p: usize) {
        let is_asked = self.upkeep.asked.iter().any(|(asked, _)| *asked == n);
        let node = &mut self.nodes[n];
        node.claimed |= is_asked || node.counted() > 0;
        let pod = &mut node.pods[p];
        pod.orphan = false;
        let uid = pod.uid;
        self.outdate(uid);
        self.upkeep.show(n);
    }

    /// Makes a pod fail permanently, as if its kubelet had evicted or rejected it.
    pub(crate) fn fail(&mut self, n: usize, p: usize) {
        self.faults.failures -= 1;
        let pod = &mut self.nodes[n].pods[p];
        (pod.over, pod.ready_since, pod.changing) = (true, None, false);
        let uid = pod.uid;
        self.outdate(uid);
    }

    /// Stops expecting a pod on nodes where the controller now sees a pod that was not in `before`.
    pub(crate) fn show_new(&mut self, before: &[Vec<Pod>]) {
        for (n, (node, seen)) in self.nodes.iter().zip(before).enumerate() {
            let is_seen = |pod: &Pod| seen.iter().any(|known| known.uid == pod.uid);
            let mut own = node.pods.iter().filter(|pod| !pod.orphan);
            if own.any(|pod| !is_seen(pod)) {
                self.upkeep.show(n);
            }
        }
    }

    /// Checks that no node has more pods than the DaemonSet allows.
    pub(crate) fn judge_nodes(&mut self, rules: &Rules) {
        let most = 1 + usize::from(rules.surge() > 0);
        for (n, node) in self.nodes.iter_mut().enumerate() {
            let is_asked = self.upkeep.asked.iter().any(|(asked, _)| *asked == n);
            node.claimed &= node.counted() > 1 || is_asked;
        }
        let mut nodes = self.nodes.iter();
        if nodes.any(|node| !node.claimed && node.counted() > most) {
            self.violate(Violation::TooMany);
        }
    }

    /// Returns true if the controller has nothing to write under this plan.
    pub(crate) fn has_nothing_to_do(&self, plan: &Plan, rules: &Rules) -> bool {
        let rolled = plan.actions.clone();
        if !rules.is_advanced {
            return rolled.is_empty();
        }
        let managed = self.managed(&self.fleet(rules), rules);
        managed.create.is_empty() && managed.with_rollout(rolled).is_empty()
    }

    /// Returns true if every online node has the pods that belong there and the controller expects no further pods.
    ///
    /// If `waits` is true, the rollout is stalled or paused, and a node with a surge pod may keep two pods.
    pub(crate) fn is_manned(&self, waits: bool, rules: &Rules) -> bool {
        let at_most = 1 + usize::from(waits && rules.surge() > 0);
        let has_its_pods = |node: &&Node| match (node.unfit, node.tainted) {
            (true, _) => node.pods.is_empty(),
            (false, true) => node.pods.len() <= 1,
            (false, false) => {
                node.counted() == node.pods.len() && (1..=at_most).contains(&node.counted())
            }
        };
        let there = || self.nodes.iter().filter(|node| node.ready);
        let manned = there().filter(has_its_pods).count();
        let targeted = self.nodes.iter().filter(|node| node.is_fit()).count();
        let empty = if rules.scaling.partitioned {
            rules.kept(targeted)
        } else {
            0
        };
        manned + empty >= there().count() && self.upkeep.is_over()
    }
}
