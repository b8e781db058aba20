//! Possible steps and their effects.
//!
//! Kubelets work only on nodes that are Ready. The native controller behaves as with `OnDelete`, and ignores pods of other owners.
//! The yurt-ds controller decides with the real `core::decide`. Like the real index, the model shows the controller its own writes
//! before its watch shows them. The API server rejects writes whose preconditions fail.

use super::denials::Policy;
use super::evictions::Answers;
use super::rules::Rules;
use super::state::{Node, Pod, State, Template, Violation, Watch};
use super::upkeep::{Answer, Upkeep};
use super::writes::Pending;

/// Step of the model: an action of a kubelet, a controller, the operator or another client, or a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Time passes.
    Tick,
    /// A kubelet starts or restarts a pod's container. The pod becomes Ready or, with a broken image, crashes.
    Start(usize, usize),
    /// A node has pulled the images that were requested for a pod.
    Pull(usize, usize),
    /// A terminating pod ends.
    End(usize, usize),
    /// The native controller observes the template and creates its revision.
    Observe,
    /// The native controller creates a pod on a node that has none.
    Create(usize),
    /// The native controller removes the youngest pod of a node, because it sees more than one.
    Prune(usize),
    Decide,
    /// The API server carries out one of the controller's pending writes.
    Write(usize),
    /// The guard's record is stored on the DaemonSet.
    Tell,
    /// A preDelete hook releases a pod.
    Unhook(usize, usize),
    /// The operator approves the second wave for the wanted template.
    Approve,
    /// A frozen watch resumes.
    Thaw(Watch),
    /// A lost node returns.
    Return(usize),

    /// A node goes offline.
    Lose(usize),
    Crash(usize, usize),
    /// Another client deletes a pod.
    Kill(usize, usize),
    Change(Template),
    /// The operator pauses (true) or resumes (false) the rollout.
    Pause(bool),
    /// A watch freezes.
    Freeze(Watch),
    /// The controller restarts and loses its pending writes.
    Die,
    /// The operator resumes a stopped revision.
    Resume,
    /// A Node object is deleted together with its pods.
    Remove(usize),
    /// A policy starts to reject one kind of write on a node.
    Refuse(Policy),
    /// The policy is removed again.
    Relent,
    /// Deleted pods on a node no longer end.
    Hang(usize),
    /// Deleted pods on a node can end again.
    LetGo(usize),
    /// A node gets or loses a taint.
    Taint(usize),
    /// A pending creation of a pod ends with this result.
    Make(usize, Answer),
    /// The controller adopts a pod without an owner.
    Adopt(usize, usize),
    /// Another client creates a pod without an owner.
    Orphan(usize),
    /// A pod fails permanently.
    Fail(usize, usize),
    /// A node's labels change, so that the DaemonSet no longer selects the node, or selects it again.
    Relabel(usize),
    /// A node joins, for the first time or again.
    Join(usize),
}

const WATCHES: [Watch; 3] = [Watch::Pods, Watch::Nodes, Watch::Set];

impl State {
    /// Returns the possible steps, without faults. Each of them happens sooner or later.
    pub(crate) fn progress(&self, rules: &Rules) -> Vec<Step> {
        let mut steps: Vec<Step> = (0..self.pending.len()).map(Step::Write).collect();
        match self.telling {
            Some(_) => steps.push(Step::Tell),
            None if steps.is_empty() => steps.push(Step::Decide),
            None => {}
        }
        for (n, node) in self.nodes.iter().enumerate().filter(|(_, node)| !node.gone) {
            for (p, pod) in node.pods.iter().enumerate() {
                if node.ready && pod.terminating && !node.hung {
                    steps.push(Step::End(n, p));
                } else if node.ready && pod.is_to_start() && !rules.is_done_for(pod) {
                    steps.push(Step::Start(n, p));
                }
                if node.ready && pod.images.is_some_and(|(_, are_there)| !are_there) {
                    steps.push(Step::Pull(n, p));
                }
                if pod.marked && pod.hooked {
                    steps.push(Step::Unhook(n, p));
                }
            }
            if node.hung && !rules.lasting {
                steps.push(Step::LetGo(n));
            }
            if rules.is_advanced {
                continue;
            }
            if node.own().next().is_none() && !node.tainted {
                steps.push(Step::Create(n));
            } else if node.alive() > 1 || node.is_haunted() {
                steps.push(Step::Prune(n));
            }
        }
        steps.extend(self.upkeep_progress());
        if self.set.observed != self.set.wanted {
            steps.push(Step::Observe);
        } else if rules.asks() && self.set.approved != Some(self.set.wanted) {
            steps.push(Step::Approve);
        }
        if self.policy.is_some() && !rules.lasting {
            steps.push(Step::Relent);
        }
        let frozen = WATCHES.into_iter().filter(|watch| self.is_frozen(*watch));
        steps.extend(frozen.map(Step::Thaw));
        steps.push(Step::Tick);
        steps
    }

    /// Returns the faults that may occur in this state.
    pub(crate) fn faults(&self, rules: &Rules) -> Vec<Step> {
        let (faults, mut steps) = (self.faults, Vec::new());
        for (n, node) in self.nodes.iter().enumerate().filter(|(_, node)| !node.gone) {
            if faults.removals > 0 {
                steps.push(Step::Remove(n));
            }
            if faults.hangs > 0 && !node.hung {
                steps.push(Step::Hang(n));
            }
            if faults.taints > 0 {
                steps.push(Step::Taint(n));
            }
            if faults.policies > 0 && self.policy.is_none() {
                steps.extend(rules.policies(n).map(Step::Refuse));
            }
            match node.ready {
                true if faults.losses > 0 || rules.dies(node) => steps.push(Step::Lose(n)),
                true => {}
                false => steps.push(Step::Return(n)),
            }
            for (p, pod) in node.pods.iter().enumerate() {
                if faults.crashes > 0 && pod.ready_since.is_some() && node.ready {
                    steps.push(Step::Crash(n, p));
                }
                if faults.kills > 0 && !pod.terminating {
                    steps.push(Step::Kill(n, p));
                }
                if faults.unhooks > 0 && pod.hooked && !pod.marked {
                    steps.push(Step::Unhook(n, p));
                }
            }
        }
        if rules.is_advanced {
            steps.extend(self.upkeep_faults());
        }
        if faults.templates > 0 {
            let others = (0..3).filter(|template| *template != self.set.wanted);
            // All templates without a revision are equivalent. To save states, change only to the one with the lowest number.
            let first_new = (0..3).find(|template| !self.set.knows(*template));
            let of_use = |t: &Template| self.set.knows(*t) || Some(*t) == first_new;
            steps.extend(others.filter(of_use).map(Step::Change));
        }
        if faults.pauses > 0 {
            steps.push(Step::Pause(!self.set.paused));
        }
        if faults.freezes > 0 {
            let live = WATCHES.into_iter().filter(|watch| !self.is_frozen(*watch));
            steps.extend(live.map(Step::Freeze));
        }
        if faults.resumes > 0 && self.sheet.stopped.is_some() {
            steps.push(Step::Resume);
        }
        if faults.restarts > 0 {
            steps.push(Step::Die);
        }
        steps
    }

    /// Returns the canonical state after `step`.
    pub(crate) fn after(&self, step: Step, rules: &Rules) -> Self {
        let mut next = self.clone();
        next.take(step, rules);
        next.forgive(rules);
        if rules.is_advanced {
            next.judge_nodes(rules);
        }
        next.set.opened |= next.is_first_wave_complete(rules);
        if next.nodes.iter().filter(|node| node.down).count() > rules.allowed() {
            next.violation.get_or_insert(Violation::BudgetExceeded);
        }
        next.canonical(rules)
    }

    fn take(&mut self, step: Step, rules: &Rules) {
        match step {
            Step::Tick => {
                self.tick();
                self.wait_for_budget(rules);
                self.wait_for_policy();
                // If the controller doesn't see the result of a write for some time, it lists the pods again.
                if !self.view.overlay.is_empty() || self.upkeep.is_waiting() {
                    self.thaw(Watch::Pods);
                }
                self.upkeep.tick();
            }
            Step::Start(n, p) => {
                let pod = &mut self.nodes[n].pods[p];
                pod.started.get_or_insert(0);
                pod.changing = false;
                let runs = rules.broken != Some(pod.template);
                pod.ready_since = runs.then_some(0);
                let uid = pod.uid;
                self.outdate(uid);
                self.sort_out(n);
            }
            Step::Pull(n, p) => {
                let pod = &mut self.nodes[n].pods[p];
                pod.images = pod.images.map(|(template, _)| (template, true));
                let uid = pod.uid;
                self.outdate(uid);
            }
            Step::End(n, p) => {
                self.nodes[n].pods.remove(p);
                self.overtake(n, None);
            }
            Step::Observe => self.set.observe(),
            Step::Create(n) => {
                let pod = Pod {
                    uid: self.fresh_uid(),
                    hooked: rules.hooked(),
                    ..Pod::new(self.set.observed, 0)
                };
                self.nodes[n].pods.push(pod);
                let pods = self.nodes[n].pods.iter_mut();
                pods.for_each(|pod| pod.native_sees_ghost = false);
                self.overtake(n, None);
            }
            Step::Prune(n) => {
                let mut pods = self.nodes[n].pods.iter();
                let youngest = pods
                    .rposition(|pod| !pod.spare && !pod.terminating)
                    .expect("several pods");
                self.take_down(n, youngest, self.nodes[n].raced, rules);
                self.terminate(n, youngest);
            }
            Step::Decide => self.decide(rules),
            Step::Write(write) => {
                let write = self.pending.remove(write);
                self.carry_out(&write, rules);
            }
            Step::Tell => self.sheet = self.telling.take().unwrap_or_default(),
            Step::Die => {
                self.faults.restarts -= 1;
                self.pending.clear();
                self.telling = None;
                self.answers = Answers::default();
                self.denials.clear();
                self.upkeep = Upkeep::default();
                WATCHES.into_iter().for_each(|watch| self.thaw(watch));
            }
            Step::Unhook(n, p) => {
                let pod = &mut self.nodes[n].pods[p];
                pod.hooked = false;
                let (uid, unasked) = (pod.uid, !pod.marked);
                self.faults.unhooks -= u8::from(unasked);
                self.outdate(uid);
            }
            Step::Approve => self.set.approved = Some(self.set.wanted),
            Step::Resume => {
                self.faults.resumes -= 1;
                self.set.resumed = Some(self.set.wanted);
            }
            Step::Remove(n) => {
                self.faults.removals -= 1;
                let node = &mut self.nodes[n];
                (node.gone, node.ready, node.down, node.raced) = (true, false, false, false);
                (node.since, node.pods) = (0, Vec::new());
            }
            Step::Refuse(policy) => {
                self.faults.policies -= 1;
                self.policy = Some(policy);
            }
            Step::Relent => self.policy = None,
            Step::Hang(n) => {
                self.faults.hangs -= 1;
                self.nodes[n].hung = true;
            }
            Step::LetGo(n) => self.nodes[n].hung = false,
            Step::Taint(n) => {
                self.faults.taints -= 1;
                self.nodes[n].tainted ^= true;
            }
            Step::Make(n, answer) => self.make_asked(n, answer, rules),
            Step::Adopt(n, p) => self.adopt(n, p),
            Step::Orphan(n) => self.orphan(n),
            Step::Fail(n, p) => self.fail(n, p),
            Step::Relabel(n) => {
                self.faults.misfits -= 1;
                self.nodes[n].unfit ^= true;
            }
            Step::Join(n) => {
                let node = &mut self.nodes[n];
                (node.gone, node.ready, node.since) = (false, true, 0);
                (node.unfit, node.tainted, node.hung) = (false, false, false);
            }
            Step::Thaw(watch) => self.thaw(watch),
            Step::Freeze(watch) => {
                self.faults.freezes -= 1;
                self.freeze(watch);
            }
            Step::Return(n) => (self.nodes[n].ready, self.nodes[n].since) = (true, 0),
            Step::Lose(n) => {
                self.faults.losses = self.faults.losses.saturating_sub(1);
                (self.nodes[n].ready, self.nodes[n].since) = (false, 0);
                for p in 0..self.nodes[n].pods.len() {
                    if !rules.autonomous {
                        self.unready(n, p);
                    }
                }
            }
            Step::Crash(n, p) => {
                self.faults.crashes -= 1;
                self.unready(n, p);
            }
            Step::Kill(n, p) => {
                self.faults.kills -= 1;
                self.terminate(n, p);
                self.haunt(n, p, rules);
            }
            Step::Change(template) => {
                self.faults.templates -= 1;
                self.set.wanted = template;
            }
            Step::Pause(paused) => {
                self.faults.pauses -= 1;
                self.set.paused = paused;
            }
        }
    }

    fn unready(&mut self, n: usize, p: usize) {
        let pod = &mut self.nodes[n].pods[p];
        if pod.ready_since.take().is_some() {
            let uid = pod.uid;
            self.outdate(uid);
            self.sort_out(n);
        }
    }

    /// Sets `raced` after a change of a pod, if the node has more than one pod.
    fn sort_out(&mut self, n: usize) {
        self.nodes[n].raced |= self.nodes[n].alive() > 1;
    }

    pub(crate) fn terminate(&mut self, n: usize, p: usize) {
        let pod = &mut self.nodes[n].pods[p];
        pod.terminating = true;
        pod.left.get_or_insert(0);
        let uid = pod.uid;
        self.outdate(uid);
    }

    /// Records that another client ended a pod. A native controller that sees changes out of order doesn't know that yet.
    pub(crate) fn haunt(&mut self, n: usize, p: usize, rules: &Rules) {
        let pods = &mut self.nodes[n].pods;
        if rules.disordered && !pods[p].spare {
            pods[p + 1..]
                .iter_mut()
                .for_each(|pod| pod.native_sees_ghost = true);
        }
    }

    fn is_frozen(&self, watch: Watch) -> bool {
        match watch {
            Watch::Pods => self.view.pods.is_some(),
            Watch::Nodes => self.view.nodes.is_some(),
            Watch::Set => self.view.set.is_some(),
        }
    }

    fn freeze(&mut self, watch: Watch) {
        let nodes = self.nodes.iter();
        match watch {
            Watch::Pods => self.view.pods = Some(nodes.map(|node| node.pods.clone()).collect()),
            Watch::Nodes => {
                self.view.nodes = Some(nodes.map(Node::seen).collect());
            }
            Watch::Set => self.view.set = Some(self.set),
        }
    }

    fn thaw(&mut self, watch: Watch) {
        match watch {
            Watch::Pods => {
                if let Some(before) = self.view.pods.take() {
                    self.show_new(&before);
                }
                let pending: Vec<u8> = self.pending.iter().flat_map(Pending::uids).collect();
                self.view.overlay.retain(|(uid, ..)| pending.contains(uid));
            }
            Watch::Nodes => self.view.nodes = None,
            Watch::Set => self.view.set = None,
        }
    }
}
