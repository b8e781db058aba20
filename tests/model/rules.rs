//! The fleet of a test: how large it is, what it is told, and what may go wrong.

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

/// The name of the second wave.
const SECOND: &str = "second";

/// A fleet with its settings.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) nodes: usize,
    pub(crate) strategy: Strategy,
    pub(crate) faults: Faults,
    /// How many of the first nodes are in zone `a`.
    pub(crate) selected: usize,
    /// Containers of this template crash.
    pub(crate) broken: Option<Template>,
    /// Nodes die of this template.
    pub(crate) killer: Option<Template>,
    /// Taking a pod of this template away may take its node down.
    pub(crate) deadly: Option<Template>,
    /// A policy, and what holds pods that are being deleted, stay for ever.
    pub(crate) lasting: bool,
    /// Every node got template 1 a moment ago, in the place of 0.
    pub(crate) rolled_out: bool,
    /// Pods stay Ready while their node is lost.
    pub(crate) autonomous: bool,
    /// What the guard tells is written down. Otherwise it judges by what it sees.
    pub(crate) remembers: bool,
    /// So many pods have to be Ready: a disruption budget.
    pub(crate) min_ready_pods: usize,
    /// The native controller learns as late as can be that others end a pod: when it makes the next one. Until then it takes
    /// an older one for alive, whatever it is told of younger ones.
    pub(crate) disordered: bool,
    /// Our controller takes it for one that learns of everything in its order.
    pub(crate) trusted: bool,
    /// Our controller makes the pods: it is an Advanced DaemonSet.
    pub(crate) is_advanced: bool,
    /// How it makes them.
    pub(crate) scaling: Scaling,
    /// So many of the first nodes are not there yet.
    pub(crate) joining: usize,
    /// There are no pods yet.
    pub(crate) is_empty: bool,
    /// By which budget it is judged, if not by its own: a smaller one has to be found exceeded.
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

    /// Only so many of the first nodes are selected.
    pub(crate) fn selecting(mut self, nodes: usize) -> Self {
        self.selected = nodes;
        let zone = Selector::from_query("zone=a").expect("a selector");
        self.with(|strategy| strategy.selector = Some(zone))
    }

    /// The first nodes are in zone `a`, which `selector` selects, the others in `b`.
    pub(crate) fn zone_of(&self, position: usize) -> &'static str {
        if position < self.selected { "a" } else { "b" }
    }

    pub(crate) fn is_selected(&self, position: usize) -> bool {
        let selector = self.strategy.selector.as_ref();
        selector.is_none() || self.zone_of(position) == "a"
    }

    /// With a preDelete hook: a label that every pod is made with.
    pub(crate) fn hooking(self) -> Self {
        let hook = PreDelete {
            labels: [HOOK].map(|(key, value)| (key.into(), value.into())).into(),
            ..PreDelete::default()
        };
        self.with(|strategy| strategy.pre_delete = Some(Arc::new(hook)))
    }

    /// Pods are evicted, and a disruption budget asks for so many that are Ready.
    pub(crate) fn evicting(self, min_ready_pods: usize) -> Self {
        let rules = Self {
            min_ready_pods,
            ..self
        };
        rules.with(|strategy| strategy.disruption = Disruption::Evict)
    }

    /// Whether pods are evicted.
    pub(crate) fn evicts(&self) -> bool {
        self.strategy.disruption == Disruption::Evict
    }

    /// Pods are taken back from a revision that was stopped.
    pub(crate) fn reverting(self) -> Self {
        self.with(|strategy| strategy.on_failure = OnFailure::RevertInPlace)
    }

    /// Whether pods are taken back.
    pub(crate) fn reverts(&self) -> bool {
        self.strategy.on_failure == OnFailure::RevertInPlace
    }

    /// Pods are updated in place.
    pub(crate) fn in_place(self) -> Self {
        self.with(|strategy| strategy.rolling_update_type = RollingUpdateType::InPlaceIfPossible)
    }

    /// On so many nodes at once the new pod is made beside the old one.
    pub(crate) fn surging(self, nodes: u32) -> Self {
        self.with(|strategy| strategy.max_surge = IntOrPercent::Number(nodes))
    }

    /// The nodes of zone `a` are a first wave, which has to be well for `soak`; those of zone `b` a second one, which waits
    /// for an approval if that is asked for.
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

    /// The waves, of which the second one was approved for that template.
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

    /// Whether a wave waits for an approval.
    pub(crate) fn asks(&self) -> bool {
        let waves = self.strategy.waves.iter();
        waves.flat_map(|waves| &waves.list).any(|wave| wave.approve)
    }

    /// Whether a node is in the first wave.
    pub(crate) fn is_first(&self, position: usize) -> bool {
        position < self.selected
    }

    /// Who is well since then has been so for as long as the first wave has to be.
    pub(crate) fn soaked(&self) -> Ago {
        let waves = self.strategy.waves.as_ref();
        let soak = waves.map_or(Duration::ZERO, |waves| waves.list[0].soak);
        -Ago::try_from(soak.as_secs() / TICK.as_secs()).expect("a short soak")
    }

    /// How many nodes may have two pods.
    pub(crate) fn surge(&self) -> usize {
        number(self.strategy.max_surge)
    }

    /// An Advanced DaemonSet.
    pub(crate) fn advanced(self) -> Self {
        Self {
            is_advanced: true,
            ..self
        }
    }

    /// Its pods are made so.
    pub(crate) fn scaling(self, scaling: Scaling) -> Self {
        let rules = Self { scaling, ..self };
        rules.with(|strategy| strategy.partitioned = scaling.partitioned)
    }

    /// So many of the first nodes join later.
    pub(crate) fn joining(self, nodes: usize) -> Self {
        Self {
            joining: nodes,
            ..self
        }
    }

    /// Every pod is still to be made.
    pub(crate) fn empty(self) -> Self {
        Self {
            is_empty: true,
            ..self
        }
    }

    /// With a native controller that learns of changes out of order.
    pub(crate) fn out_of_order(self) -> Self {
        Self {
            disordered: true,
            trusted: false,
            ..self
        }
    }

    /// Whether pods are made with the label of a hook.
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

    /// Whether a pod has been Ready for `minReadySeconds`.
    pub(crate) fn is_available(&self, pod: &Pod) -> bool {
        let ripe = |since: Ago| {
            let age = u32::from(since.unsigned_abs());
            TICK * age >= self.strategy.min_ready
        };
        !pod.terminating && !pod.changing && pod.ready_since.is_some_and(ripe)
    }

    /// Whether a pod has started, and will never be Ready.
    pub(crate) fn is_done_for(&self, pod: &Pod) -> bool {
        self.broken == Some(pod.template) && pod.started.is_some() && !pod.changing
    }

    /// Whether a node may die of what it runs.
    pub(crate) fn dies(&self, node: &Node) -> bool {
        let kills = |pod: &Pod| self.killer == Some(pod.template) && pod.started.is_some();
        let takes_along = |pod: &Pod| self.deadly == Some(pod.template) && pod.terminating;
        let mut pods = node.pods.iter();
        pods.any(|pod| kills(pod) || takes_along(pod))
    }

    /// Whether pods may hang.
    pub(crate) fn hangs(&self) -> bool {
        self.faults.hangs > 0
    }

    /// What may be refused on a node: what these settings ask for.
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
