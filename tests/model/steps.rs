//! What can happen next, and what becomes of it.
//!
//! Kubelets work on nodes that are Ready; the native controller behaves as under `OnDelete` (spec/openyurt-upgrade-model.md
//! §8); our controller is `core::decide` with the index' overlay before it and the API server's preconditions behind it.

use yurt_ds::core::{Action, Fleet, Mode, Node, Pause, Plan, Readiness, Strategy, decide};

use super::Rules;
use super::state::{Pod, State, Template, View, Violation, Watch, Write};
use super::view::{now, template_of};
use yurt_ds::core::names::{POD_IMAGE_READY, POD_NEED_UPGRADE};

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Time passes.
    Tick,
    /// A kubelet starts a container (again), and the pod becomes Ready; or, of a broken image, crashes.
    Start(usize, usize),
    /// A node has pulled the images that it was asked for.
    Pull(usize, usize),
    /// A pod has ended.
    End(usize, usize),
    /// The native controller observes the template and makes its revision.
    Observe,
    /// It makes a pod on a node without any.
    Create(usize),
    /// It removes the youngest of several pods on a node.
    Prune(usize),
    /// Our controller decides, and its writes are carried out.
    Decide,
    /// A watch goes on.
    Thaw(Watch),
    /// A lost node returns.
    Return(usize),

    /// A node is lost.
    Lose(usize),
    /// A container crashes.
    Crash(usize, usize),
    /// Somebody else deletes a pod.
    Kill(usize, usize),
    /// The owner changes the template.
    Change(Template),
    /// The owner pauses or resumes.
    Pause(bool),
    /// A watch stands still.
    Freeze(Watch),
    /// Our controller dies after so many writes of what it decided, and starts again.
    Die(usize),
}

const WATCHES: [Watch; 3] = [Watch::Pods, Watch::Nodes, Watch::Set];

impl State {
    /// What happens by itself sooner or later.
    pub(crate) fn progress(&self, rules: &Rules) -> Vec<Step> {
        let mut steps = vec![Step::Decide];
        for (n, node) in self.nodes.iter().enumerate() {
            for (p, pod) in node.pods.iter().enumerate() {
                if node.ready && pod.terminating {
                    steps.push(Step::End(n, p));
                } else if node.ready && pod.is_to_start() && !rules.is_done_for(pod) {
                    steps.push(Step::Start(n, p));
                }
                if node.ready && pod.images.is_some_and(|(_, are_there)| !are_there) {
                    steps.push(Step::Pull(n, p));
                }
            }
            let alive = node.pods.iter().filter(|pod| !pod.terminating).count();
            if node.pods.is_empty() {
                steps.push(Step::Create(n));
            } else if alive > 1 {
                steps.push(Step::Prune(n));
            }
        }
        if self.set.observed != self.set.wanted {
            steps.push(Step::Observe);
        }
        let frozen = WATCHES.into_iter().filter(|watch| self.is_frozen(*watch));
        steps.extend(frozen.map(Step::Thaw));
        steps.push(Step::Tick);
        steps
    }

    /// What may go wrong.
    pub(crate) fn faults(&self, rules: &Rules) -> Vec<Step> {
        let (faults, mut steps) = (self.faults, Vec::new());
        for (n, node) in self.nodes.iter().enumerate() {
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
            }
        }
        if faults.templates > 0 {
            let others = (0..3).filter(|template| *template != self.set.wanted);
            // Versions are as good as each other: a new one is the next that nobody knows.
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
        if faults.restarts > 0 {
            let writes = self.plan(rules).actions.len();
            steps.extend((0..=writes).map(Step::Die));
        }
        steps
    }

    /// The state after `step`, in its one form.
    pub(crate) fn after(&self, step: Step, rules: &Rules) -> Self {
        let mut next = self.clone();
        next.take(step, rules);
        next.forgive(rules);
        if next.nodes.iter().filter(|node| node.down).count() > rules.allowed() {
            next.violation.get_or_insert(Violation::BudgetExceeded);
        }
        next.canonical(rules)
    }

    fn take(&mut self, step: Step, rules: &Rules) {
        match step {
            Step::Tick => {
                self.tick();
                // What was written and stays unseen is looked up (`Doubt::patience`).
                if !self.view.overlay.is_empty() {
                    self.thaw(Watch::Pods);
                }
            }
            Step::Start(n, p) => {
                let pod = &mut self.nodes[n].pods[p];
                pod.started.get_or_insert(0);
                pod.changing = false;
                let runs = rules.broken != Some(pod.template);
                pod.ready_since = runs.then_some(0);
                let uid = pod.uid;
                self.outdate(uid);
            }
            Step::Pull(n, p) => {
                let pod = &mut self.nodes[n].pods[p];
                pod.images = pod.images.map(|(template, _)| (template, true));
                let uid = pod.uid;
                self.outdate(uid);
            }
            Step::End(n, p) => drop(self.nodes[n].pods.remove(p)),
            Step::Observe => self.set.observe(),
            Step::Create(n) => {
                let pod = Pod::new(self.set.observed, 0);
                let uid = self.fresh_uid();
                self.nodes[n].pods.push(Pod { uid, ..pod });
            }
            Step::Prune(n) => {
                let pods = self.nodes[n].pods.iter().enumerate();
                let youngest = pods
                    .filter(|(_, pod)| !pod.terminating)
                    .map(|(p, _)| p)
                    .next_back();
                self.terminate(n, youngest.expect("several pods"));
            }
            Step::Decide => self.decide(None, rules),
            Step::Die(writes) => {
                self.faults.restarts -= 1;
                self.decide(Some(writes), rules);
                WATCHES.into_iter().for_each(|watch| self.thaw(watch));
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
        }
    }

    fn terminate(&mut self, n: usize, p: usize) {
        let pod = &mut self.nodes[n].pods[p];
        pod.terminating = true;
        let uid = pod.uid;
        self.outdate(uid);
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
                self.view.nodes = Some(nodes.map(|node| (node.ready, node.since)).collect());
            }
            Watch::Set => self.view.set = Some(self.set),
        }
    }

    fn thaw(&mut self, watch: Watch) {
        match watch {
            Watch::Pods => {
                self.view.pods = None;
                self.view.overlay.clear();
            }
            Watch::Nodes => self.view.nodes = None,
            Watch::Set => self.view.set = None,
        }
    }

    /// The settings as our controller sees them.
    fn strategy(&self, rules: &Rules) -> Strategy {
        let paused = self.seen_set().paused;
        Strategy {
            pause: paused.then_some(Pause::Indefinite),
            ..rules.strategy.clone()
        }
    }

    /// What our controller would do now.
    pub(crate) fn plan(&self, rules: &Rules) -> Plan {
        decide(&self.strategy(rules), &self.fleet(rules), now())
    }

    /// Our controller decides; of its writes so many are carried out, or all.
    fn decide(&mut self, writes: Option<usize>, rules: &Rules) {
        let (plan, fleet) = (self.plan(rules), self.fleet(rules));
        if plan.next_wake.is_some_and(|wake| wake <= now()) {
            self.violation.get_or_insert(Violation::WakePassed);
        }
        let old_before = self.old();
        for action in plan.actions.iter().take(writes.unwrap_or(usize::MAX)) {
            self.judge(action, &fleet, rules);
            self.carry_out(action, rules);
        }
        let kept = rules.kept(self.nodes.len());
        let is_blind = self.view != View::default();
        if old_before > self.old() && self.old() < kept && !is_blind {
            self.violation.get_or_insert(Violation::PartitionUndercut);
        }
    }

    /// Whether a write is one that must not be.
    fn judge(&mut self, action: &Action, fleet: &Fleet, rules: &Rules) {
        let uid = number(action);
        let holds = |node: &Node| node.pods.iter().any(|pod| pod.uid == action.pod().uid);
        let position = fleet
            .nodes
            .iter()
            .position(holds)
            .expect("a pod of the fleet");
        let replaces = action.begins();
        let offline = matches!(fleet.nodes[position].readiness, Readiness::NotReady { .. });
        let current = self.set.wanted;
        let knows = self.view.set.is_none();
        let is_current = self.pod_mut(uid).is_some_and(|pod| pod.template == current);
        let violations = [
            (self.seen_set().paused, Violation::PausedTouched),
            (
                replaces && rules.strategy.mode == Mode::Ota,
                Violation::OtaReplaced,
            ),
            (replaces && offline, Violation::OfflineTouched),
            (
                replaces && !rules.is_selected(position),
                Violation::UnselectedTouched,
            ),
            (replaces && knows && is_current, Violation::CurrentReplaced),
        ];
        let found = violations.into_iter().find(|(happened, _)| *happened);
        if let Some((_, violation)) = found {
            self.violation.get_or_insert(violation);
        }
    }

    /// What the API server makes of a write: nothing, unless the pod is still as it was seen.
    fn carry_out(&mut self, action: &Action, rules: &Rules) {
        let uid = number(action);
        let mut seen = self.view.pods.iter().flatten().flatten();
        let is_old = seen.any(|pod| pod.uid == uid && pod.changed);
        let write = match action {
            Action::Delete(_) | Action::Evict(_) => Some(Write::Deletion),
            Action::UpdateInPlace { .. } => Some(Write::Renewal),
            _ => None,
        };
        let is_blind = self.view.pods.is_some();
        self.view
            .overlay
            .extend(write.filter(|_| is_blind).map(|write| (uid, write)));
        if is_old {
            return;
        }
        let holder = self.nodes.iter().enumerate().find_map(|(n, node)| {
            let p = node.pods.iter().position(|pod| pod.uid == uid)?;
            Some((n, p))
        });
        let Some((n, p)) = holder else {
            return;
        };
        match action {
            Action::Delete(_) | Action::Evict(_) => {
                self.take_down(n, p, rules);
                self.terminate(n, p);
            }
            Action::UpdateInPlace { renewal, .. } => {
                self.take_down(n, p, rules);
                let pod = &mut self.nodes[n].pods[p];
                (pod.template, pod.changing) = (template_of(&renewal.revision), true);
                self.outdate(uid);
            }
            Action::AskForImages { revision, .. } => {
                self.nodes[n].pods[p].images = Some((template_of(revision), false));
                self.outdate(uid);
            }
            Action::SetNeedUpgrade {
                needed, revision, ..
            } => {
                self.nodes[n].pods[p].need_upgrade = Some((*needed, template_of(revision)));
                self.outdate(uid);
            }
            Action::Mark { .. }
            | Action::Surge { .. }
            | Action::Retire { .. }
            | Action::HandOver(_) => {}
            Action::RemoveConditions { types, .. } => {
                let pod = &mut self.nodes[n].pods[p];
                if types.contains(&POD_NEED_UPGRADE) {
                    pod.need_upgrade = None;
                }
                if types.contains(&POD_IMAGE_READY) {
                    pod.images = None;
                }
                self.outdate(uid);
            }
        }
    }

    /// We are about to take a pod away. One that was not available anyway is repaired, not taken down.
    fn take_down(&mut self, n: usize, p: usize, rules: &Rules) {
        let pod = &self.nodes[n].pods[p];
        self.nodes[n].down |= self.nodes[n].ready && rules.is_available(pod);
    }

    /// Targeted nodes on an old revision.
    fn old(&self) -> usize {
        let is_old = |pod: &Pod| !pod.terminating && pod.template != self.set.wanted;
        let nodes = self.nodes.iter();
        nodes.filter(|node| node.pods.iter().any(is_old)).count()
    }

    /// A node is no longer down because of us once it has an available pod, or is lost.
    fn forgive(&mut self, rules: &Rules) {
        for node in &mut self.nodes {
            node.down &= node.ready && !node.pods.iter().any(|pod| rules.is_available(pod));
        }
    }
}

/// The number of the pod that an action is about.
fn number(action: &Action) -> u8 {
    let uid = action.pod().uid.as_str().strip_prefix('u');
    uid.and_then(|n| n.parse().ok()).expect("a UID of ours")
}
