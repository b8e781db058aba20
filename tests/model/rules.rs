//! Parameters of a test: size of the fleet, its settings, and possible faults.

use std::sync::Arc;
use std::time::Duration;

use yurt_ds::core::selector::Selector;
use yurt_ds::core::settings::{Approval, Wave};
use yurt_ds::core::{
    Disruption, IntOrPercent, Mode, OnFailure, PreDelete, RollingUpdateType, Scaling, Strategy,
    Waves, WriteVerb,
};

use super::denials::Policy;
use super::state::{Ago, Faults, Node, Pod, Template};
use super::view::{HOOK, TICK, hash};

/// Name of the second wave of [`Rules::in_waves`]. A wave is a pool of nodes that is updated after another pool.
const SECOND: &str = "second";

/// Parameters of a test: the fleet, its settings, and the possible faults.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) nodes: usize,
    pub(crate) strategy: Strategy,
    pub(crate) faults: Faults,
    /// Number of nodes in zone `a`, which are the first ones.
    pub(crate) selected: usize,
    /// Template whose containers crash.
    pub(crate) broken: Option<Template>,
    /// Template whose pods may take the node that runs them offline.
    pub(crate) killer: Option<Template>,
    /// Template whose pods may take their node offline when they are deleted.
    pub(crate) deadly: Option<Template>,
    /// True if a policy is never removed and a deleted pod that hangs never ends.
    pub(crate) lasting: bool,
    /// True if the test begins after a rollout: every node has just been updated from template 0 to template 1.
    pub(crate) rolled_out: bool,
    /// True if the pods of a lost node stay Ready in the API.
    pub(crate) autonomous: bool,
    /// True if the guard's record of failed nodes is stored on the DaemonSet. Otherwise the guard sees only failures that the
    /// current state shows.
    pub(crate) remembers: bool,
    /// Number of Ready pods that the disruption budget requires.
    pub(crate) min_ready_pods: usize,
    /// True if the native controller learns very late that another client ended a pod: only when it creates the next pod.
    ///
    /// Until then, it treats the ended pod as alive, even after it has seen younger pods of the node.
    pub(crate) disordered: bool,
    /// True if yurt-ds assumes that the native controller sees all changes in order.
    pub(crate) trusted: bool,
    /// True for an Advanced DaemonSet, whose pods yurt-ds creates.
    pub(crate) is_advanced: bool,
    /// Settings for the creation of an Advanced DaemonSet's pods (`scaleStrategy`).
    pub(crate) scaling: Scaling,
    /// Number of nodes that are missing at the start and may join later. They are the first nodes.
    pub(crate) joining: usize,
    /// True if the test begins without pods.
    pub(crate) is_empty: bool,
    /// Number of nodes that the checks allow to be unavailable, if it differs from `max-unavailable`. A test with a smaller number
    /// shows that the checks can fail.
    pub(crate) judged_by: Option<usize>,
}

impl Rules {
    pub(crate) fn of(nodes: usize, allowed: u32, faults: Faults) -> Self {
        Self {
            nodes,
            strategy: Strategy {
                max_unavailable: IntOrPercent::Number(allowed),
                min_ready: Duration::ZERO,
                ready_settle: Duration::ZERO,
                ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
            },
            faults,
            selected: nodes,
            broken: None,
            killer: None,
            deadly: None,
            lasting: false,
            rolled_out: false,
            autonomous: false,
            remembers: false,
            min_ready_pods: 0,
            disordered: false,
            trusted: true,
            is_advanced: false,
            scaling: Scaling::default(),
            joining: 0,
            is_empty: false,
            judged_by: None,
        }
    }

    pub(crate) fn with(mut self, set: impl FnOnce(&mut Strategy)) -> Self {
        set(&mut self.strategy);
        self
    }

    /// Sets a selector that matches only the first `nodes` nodes.
    pub(crate) fn selecting(mut self, nodes: usize) -> Self {
        self.selected = nodes;
        let zone = Selector::from_query("zone=a").expect("a selector");
        self.with(|strategy| strategy.selector = Some(zone))
    }

    /// Returns the zone of a node: `a` for the nodes that the selector or the first wave matches, `b` for the others.
    pub(crate) fn zone_of(&self, position: usize) -> &'static str {
        if position < self.selected { "a" } else { "b" }
    }

    pub(crate) fn is_selected(&self, position: usize) -> bool {
        let selector = self.strategy.selector.as_ref();
        selector.is_none() || self.zone_of(position) == "a"
    }

    /// Adds a preDelete hook for a label that every new pod has. A pod must not be deleted before another program removes the
    /// label.
    pub(crate) fn hooking(self) -> Self {
        let hook = PreDelete {
            labels: [HOOK].map(|(key, value)| (key.into(), value.into())).into(),
            ..PreDelete::default()
        };
        self.with(|strategy| strategy.pre_delete = Some(Arc::new(hook)))
    }

    /// Lets the controller evict pods instead of deleting them. A disruption budget requires this many Ready pods.
    pub(crate) fn evicting(self, min_ready_pods: usize) -> Self {
        let rules = Self {
            min_ready_pods,
            ..self
        };
        rules.with(|strategy| strategy.disruption = Disruption::Evict)
    }

    /// Returns true if the settings require evictions.
    pub(crate) fn evicts(&self) -> bool {
        self.strategy.disruption == Disruption::Evict
    }

    /// Lets the controller revert pods from a revision that the guard stopped (`on-failure: RevertInPlace`).
    pub(crate) fn reverting(self) -> Self {
        self.with(|strategy| strategy.on_failure = OnFailure::RevertInPlace)
    }

    /// Returns true if the controller reverts pods from a revision that the guard stopped.
    pub(crate) fn reverts(&self) -> bool {
        self.strategy.on_failure == OnFailure::RevertInPlace
    }

    /// Lets the controller update pods in place if possible.
    pub(crate) fn in_place(self) -> Self {
        self.with(|strategy| strategy.rolling_update_type = RollingUpdateType::InPlaceIfPossible)
    }

    /// Sets the number of nodes that may have a surge pod (a new pod next to the old one) at the same time.
    pub(crate) fn surging(self, nodes: u32) -> Self {
        self.with(|strategy| strategy.max_surge = IntOrPercent::Number(nodes))
    }

    /// Puts the first `first` nodes, which form zone `a`, into a first wave, and all others into a second one. The second wave
    /// opens after the first wave has been healthy for the soak time.
    ///
    /// If `approve` is true, the second wave also waits for an approval.
    pub(crate) fn in_waves(mut self, first: usize, soak: Duration, approve: bool) -> Self {
        self.selected = first;
        let wave = |name: &str, zone: &str, soak: Duration, approve: bool| Wave {
            name: name.into(),
            selector: Selector::from_query(&format!("zone={zone}")).expect("a selector"),
            max_unavailable: None,
            soak,
            approve,
            allow_empty: true,
        };
        let list = vec![
            wave("first", "a", soak, false),
            wave(SECOND, "b", Duration::ZERO, approve),
        ];
        let approved = Vec::new();
        self.with(|strategy| strategy.waves = Some(Arc::new(Waves { list, approved })))
    }

    /// Returns the waves, with an approval of the second one for the template `approved`. Returns `None` if the settings have no
    /// waves.
    pub(crate) fn waves(&self, approved: Option<Template>) -> Option<Arc<Waves>> {
        let waves = self.strategy.waves.as_ref()?;
        let approval = |template| Approval {
            wave: SECOND.into(),
            revision: hash(template),
        };
        Some(match approved.map(approval) {
            None => waves.clone(),
            Some(approval) => Arc::new(Waves {
                approved: vec![approval],
                ..(**waves).clone()
            }),
        })
    }

    /// Returns true if the settings have a wave that opens only after an approval.
    pub(crate) fn asks(&self) -> bool {
        let waves = self.strategy.waves.iter();
        waves.flat_map(|waves| &waves.list).any(|wave| wave.approve)
    }

    /// Returns true if a node is in the first wave.
    pub(crate) fn is_first(&self, position: usize) -> bool {
        position < self.selected
    }

    /// Returns the time since which a node must have been available, so that the soak time of the first wave has passed now.
    pub(crate) fn soaked(&self) -> Ago {
        let waves = self.strategy.waves.as_ref();
        let soak = waves.map_or(Duration::ZERO, |waves| waves.list[0].soak);
        -Ago::try_from(soak.as_secs() / TICK.as_secs()).expect("a short soak")
    }

    /// Returns the number of nodes that may have two pods at the same time.
    pub(crate) fn surge(&self) -> usize {
        number(self.strategy.max_surge)
    }

    /// Makes the DaemonSet an Advanced one.
    pub(crate) fn advanced(self) -> Self {
        Self {
            is_advanced: true,
            ..self
        }
    }

    /// Sets how the pods of an Advanced DaemonSet are created.
    pub(crate) fn scaling(self, scaling: Scaling) -> Self {
        let rules = Self { scaling, ..self };
        rules.with(|strategy| strategy.partitioned = scaling.partitioned)
    }

    /// Removes this many of the first nodes at the start. They can join later.
    pub(crate) fn joining(self, nodes: usize) -> Self {
        Self {
            joining: nodes,
            ..self
        }
    }

    /// Removes all pods at the start.
    pub(crate) fn empty(self) -> Self {
        Self {
            is_empty: true,
            ..self
        }
    }

    /// Uses a native controller that sees changes out of order ([`Self::disordered`]). yurt-ds knows that.
    pub(crate) fn out_of_order(self) -> Self {
        Self {
            disordered: true,
            trusted: false,
            ..self
        }
    }

    /// Returns true if new pods have the label of the preDelete hook.
    pub(crate) fn hooked(&self) -> bool {
        self.strategy.pre_delete.is_some()
    }

    pub(crate) fn kept(&self, nodes: usize) -> usize {
        self.strategy.partition.resolve_down(nodes)
    }

    pub(crate) fn allowed(&self) -> usize {
        let own = number(self.strategy.max_unavailable);
        self.judged_by.unwrap_or(own)
    }

    /// Returns true if a pod has been Ready for `minReadySeconds`.
    pub(crate) fn is_available(&self, pod: &Pod) -> bool {
        let ripe = |since: Ago| {
            let age = u32::from(since.unsigned_abs());
            TICK * age >= self.strategy.min_ready
        };
        !pod.terminating && !pod.changing && pod.ready_since.is_some_and(ripe)
    }

    /// Returns true if a pod runs a broken image and will never be Ready.
    pub(crate) fn is_done_for(&self, pod: &Pod) -> bool {
        self.broken == Some(pod.template) && pod.started.is_some() && !pod.changing
    }

    /// Returns true if a pod of the node may take the node offline.
    pub(crate) fn dies(&self, node: &Node) -> bool {
        let kills = |pod: &Pod| self.killer == Some(pod.template) && pod.started.is_some();
        let takes_along = |pod: &Pod| self.deadly == Some(pod.template) && pod.terminating;
        let mut pods = node.pods.iter();
        pods.any(|pod| kills(pod) || takes_along(pod))
    }

    /// Returns true if the test includes deleted pods that hang.
    pub(crate) fn hangs(&self) -> bool {
        self.faults.hangs > 0
    }

    /// Returns the policies that a test may apply to a node. Each rejects one of the kinds of write that the settings of the test
    /// cause.
    pub(crate) fn policies(&self, node: usize) -> impl Iterator<Item = Policy> {
        let in_place = self.strategy.rolling_update_type != RollingUpdateType::Standard;
        let writes = [
            (!self.evicts(), WriteVerb::Delete),
            (self.evicts(), WriteVerb::Evict),
            (in_place || self.reverts(), WriteVerb::UpdateInPlace),
            (self.hooked(), WriteVerb::Mark),
            (self.hooked(), WriteVerb::Unmark),
            (self.surge() > 0, WriteVerb::Create),
            (self.surge() > 0, WriteVerb::TransferOwnership),
        ];
        let asked = writes.into_iter().filter(|(is_asked, _)| *is_asked);
        asked.map(move |(_, write)| Policy { node, write })
    }
}

fn number(share: IntOrPercent) -> usize {
    match share {
        IntOrPercent::Number(nodes) => nodes as usize,
        IntOrPercent::Percent(_) => unreachable!("the model has absolute budgets"),
    }
}
