//! Checks of the controller's decisions. Some compare them with the data that the controller could see, others with the real state.

use yurt_ds::core::{
    Action, Fleet, Mode, Node, Pause, Plan, PodRevision, Readiness, Strategy, Targeting, decide,
};

use super::reversal::reverts;
use super::rules::Rules;
use super::state::{self, Pod, STARTING, State, View, Violation};
use super::view::{node_of, now, number};
use super::writes::sheet_of;

impl State {
    /// Returns the DaemonSet's settings as the controller sees them.
    pub(crate) fn strategy(&self, rules: &Rules) -> Strategy {
        let set = self.seen_set();
        Strategy {
            pause: set.paused.then_some(Pause::Indefinite),
            resume: set.resumed.map(super::view::hash),
            waves: rules.waves(set.approved),
            ..rules.strategy.clone()
        }
    }

    /// Returns the plan that the controller would make now.
    pub(crate) fn plan(&self, rules: &Rules) -> Plan {
        decide(&self.strategy(rules), &self.fleet(rules), now())
    }

    /// Lets the controller decide, checks the decision, and adds its writes to the pending ones.
    pub(crate) fn decide(&mut self, rules: &Rules) {
        let (mut plan, fleet) = (self.plan(rules), self.fleet(rules));
        let managed = rules.is_advanced.then(|| self.managed(&fleet, rules));
        if let Some(managed) = &managed {
            let goes = |action: &Action| managed.leaving.contains(&action.pod().uid);
            plan.actions.retain(|action| !goes(action));
        }
        if plan.next_wake.is_some_and(|wake| wake <= now()) {
            self.violate(Violation::WakePassed);
        }
        self.judge_refusals(&plan, rules);
        let judged = plan.actions.iter();
        let replaced = judged
            .filter(|action| self.judge(action, &fleet, rules))
            .count();
        self.judge_together(&plan.actions, replaced, rules);
        let told = sheet_of(plan.record.as_ref());
        if rules.remembers && told != self.sheet {
            let same = told.template == self.sheet.template;
            let lasts = same && told.stopped.is_some() && told.keeps_way_back_of(&self.sheet);
            if self.is_stopped() && !lasts {
                self.violate(Violation::StopForgotten);
            }
            self.telling = Some(told);
        }
        if let Some(mut managed) = managed {
            self.tend(&managed, &fleet, rules);
            self.intend(&std::mem::take(&mut managed.actions), true);
            plan.actions = managed.with_rollout(plan.actions);
        }
        self.intend(&plan.actions, false);
    }

    pub(crate) fn violate(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// Returns true if the guard has stopped the revision of the wanted template, the operator has not resumed it, and the
    /// controller's watch of DaemonSets is live.
    pub(crate) fn is_stopped(&self) -> bool {
        let set = self.set;
        self.sheet.stopped.is_some()
            && self.sheet.template == set.wanted
            && set.observed == set.wanted
            && set.resumed != Some(set.wanted)
            && self.view.set.is_none()
    }

    /// Checks that the invariants allow an action. Returns true if the action begins the replacement of a pod by the new revision.
    fn judge(&mut self, action: &Action, fleet: &Fleet, rules: &Rules) -> bool {
        let found = |pod: &&yurt_ds::core::Pod| pod.uid == action.pod().uid;
        let holder = |node: &&Node| node.pods.iter().any(|pod| found(&pod));
        let node = fleet.nodes.iter().find(holder).expect("a node");
        let pod = node.pods.iter().find(found).expect("its pod");
        let place = node_of(&node.name);
        // Creating, deleting or transferring a surge pod makes no node unavailable, so it doesn't count as a replacement.
        let replaces = action.begins() && !pod.surge;
        let goes_on = node.pods.iter().any(|pod| pod.surge);
        let deletes = action.ends();
        let evicts = matches!(
            action,
            Action::Evict(_) | Action::DeleteAfterSurge { evict: true, .. }
        );
        let from = reverts(action);
        let hooks = rules.strategy.pre_delete.as_ref();
        let is_hooked = hooks.is_some_and(|hook| hook.hooks(&pod.exit));
        let current = self.set.wanted;
        let knows = self.view.set.is_none();
        let is_current = self
            .pod_mut(number(action.pod()))
            .is_some_and(|pod| pod.template == current);
        let violations = [
            (
                self.seen_set().paused && !is_upkeep(action, node, pod),
                Violation::PausedTouched,
            ),
            (
                replaces && rules.strategy.mode == Mode::Ota,
                Violation::OtaReplaced,
            ),
            (
                replaces && matches!(node.readiness, Readiness::NotReady { .. }),
                Violation::OfflineTouched,
            ),
            (
                replaces && !goes_on && node.targeting != Targeting::Run,
                Violation::TaintedTouched,
            ),
            (
                replaces && !rules.is_selected(place),
                Violation::UnselectedTouched,
            ),
            (
                replaces && knows && is_current && from.is_none(),
                Violation::CurrentReplaced,
            ),
            (
                from.is_some_and(|from| !self.may_take_back(action, from)),
                Violation::WronglyTakenBack,
            ),
            (
                deletes && !pod.surge && evicts != rules.evicts(),
                Violation::NotEvicted,
            ),
            (deletes && is_hooked && !pod.surge, Violation::HookIgnored),
            (
                replaces && !goes_on && self.view == View::default() && self.waits(place, rules),
                Violation::WaveJumped,
            ),
            (
                replaces && !goes_on && from.is_none() && self.is_stopped(),
                Violation::StoppedTouched,
            ),
        ];
        let found = violations.into_iter().find(|(happened, _)| *happened);
        if let Some((_, violation)) = found {
            self.violate(violation);
        }
        replaces && !goes_on && from.is_none()
    }

    /// Checks that the invariants allow all actions of a plan together. `replaced` is the number of pods whose replacement they
    /// begin.
    fn judge_together(&mut self, actions: &[Action], replaced: usize, rules: &Rules) {
        let made = |action: &&Action| matches!(action, Action::Surge { .. });
        let made = actions.iter().filter(made).count();
        let is_seen_ready = |n: usize| {
            let seen = self.view.nodes.as_ref();
            seen.map_or(self.nodes[n].ready, |nodes| nodes[n].ready)
        };
        let is_spare = |pod: &Pod| pod.spare && !pod.terminating;
        // No new pod can start on a tainted node, so a tainted node with a single pod can't get a second one.
        let may_be_two = |node: &state::Node| !node.tainted || node.pods.len() > 1;
        let is_doubled = |node: &state::Node| {
            if rules.is_advanced {
                node.counted() > 1
            } else {
                node.pods.iter().any(is_spare)
            }
        };
        let surging = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(n, node)| is_seen_ready(*n) && may_be_two(node) && is_doubled(node));
        let together = made + surging.count();
        if made > 0 && together > rules.surge() {
            self.violate(Violation::SurgeExceeded);
        }
        let kept = rules.kept(self.nodes.len());
        if replaced > 0 && self.old() < kept + replaced && self.view == View::default() {
            self.violate(Violation::PartitionUndercut);
        }
    }

    /// Returns the number of nodes with a pod of an old revision.
    fn old(&self) -> usize {
        let is_old = |pod: &Pod| !pod.terminating && pod.template != self.set.wanted;
        let nodes = self.nodes.iter();
        nodes.filter(|node| node.pods.iter().any(is_old)).count()
    }

    /// Returns true if a node is in the second wave and must not be updated yet. The second wave waits until the first wave has
    /// been complete and, if required, for an approval.
    fn waits(&self, place: usize, rules: &Rules) -> bool {
        let is_later = rules.strategy.waves.is_some() && !rules.is_first(place);
        let is_approved = !rules.asks() || self.set.approved == Some(self.set.wanted);
        is_later && !(self.set.opened && is_approved)
    }

    /// Returns true if every online node of the first wave has been updated and available for the soak time.
    pub(crate) fn is_first_wave_complete(&self, rules: &Rules) -> bool {
        let since = rules.soaked();
        let is_done = |node: &state::Node| {
            let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
            alive.all(|pod| {
                pod.template == self.set.wanted
                    && rules.is_available(pod)
                    && pod
                        .ready_since
                        .is_some_and(|ready| ready.max(node.since) <= since)
            }) && !node.pods.is_empty()
        };
        let nodes = self.nodes.iter().enumerate();
        let mut first = nodes.filter(|(n, node)| rules.is_first(*n) && node.ready);
        rules.strategy.waves.is_some()
            && self.set.observed == self.set.wanted
            && first.all(|(_, node)| is_done(node))
    }

    /// Clears `down` on nodes that are no longer unavailable because of the controller.
    ///
    /// Such a node has an available pod, is lost, or can't get a pod. With waves, `down` is also cleared if the new pod takes
    /// longer than [`STARTING`] to start. The engine then no longer counts the node if its wave is closed.
    pub(crate) fn forgive(&mut self, rules: &Rules) {
        let waits = rules.strategy.waves.is_some();
        for (n, node) in self.nodes.iter_mut().enumerate() {
            let is_stuck = |pod: &Pod| waits && !pod.terminating && pod.created <= -STARTING;
            node.down &= node.ready
                && !node.tainted
                && !node.unfit
                && !node.pods.iter().any(|pod| rules.is_available(pod));
            node.down &= !node.pods.iter().any(is_stuck);
            // The controller may still see the node with labels that the DaemonSet doesn't select. It then doesn't know that a pod
            // belongs on the node, so clear `down`.
            let seen = self.view.nodes.as_ref();
            node.down &= seen.is_none_or(|nodes| !nodes[n].unfit);
            node.raced &= node.alive() > 1;
        }
    }
}

/// Returns true if `action` on `pod` of `node` is upkeep, which is allowed even while the rollout is paused.
///
/// Upkeep removes marks and opens readiness gates. It also transfers a surge pod to the DaemonSet or deletes it, if the node has no
/// old pod left.
fn is_upkeep(action: &Action, node: &yurt_ds::core::Node, pod: &yurt_ds::core::Pod) -> bool {
    let is_old = |pod: &yurt_ds::core::Pod| {
        !pod.surge && !pod.terminating && pod.revision == PodRevision::Outdated
    };
    match action {
        Action::Mark {
            preparing, gate, ..
        } => *preparing != Some(true) && gate.as_ref().is_none_or(|gate| gate.open),
        Action::TransferOwnership(_) | Action::Delete(_) => {
            let stays = node.targeting != Targeting::No;
            pod.surge && !(stays && node.pods.iter().any(is_old))
        }
        _ => false,
    }
}
