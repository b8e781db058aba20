//! Observation: the first step of a decision, which evaluates each node on its own.
//!
//! Only this step reads every node with its labels and pods. For the later steps, it stores one value per node, by position in the
//! fleet. A new rule that needs data of every node gets a line in [`Observation::new`].

use k8s_openapi::jiff::Timestamp;

use crate::core::engine::class::Class;
use crate::core::engine::classify::classify;
use crate::core::engine::pod_summary::PodSummary;
use crate::core::engine::predownload::Images;
use crate::core::engine::scope::RolloutScope;
use crate::core::engine::terms::Terms;
use crate::core::engine::waves::WaveMembership;
use crate::core::engine::window_state::WindowStates;
use crate::core::fleet::Fleet;
use crate::core::settings::Strategy;

pub(super) struct Observation<'a> {
    pub(super) classes: Vec<Class>,
    pub(super) summary: PodSummary<'a>,
    pub(super) scope: RolloutScope,
    pub(super) members: WaveMembership<'a>,
    pub(super) openings: WindowStates<'a>,
    /// States of the pre-pulled images on the nodes; `None` if images are not pre-pulled.
    pub(super) images: Option<Images<'a>>,
    /// Rules for when a pod counts as available.
    pub(super) terms: Terms,
}

impl<'a> Observation<'a> {
    pub(super) fn new(strategy: &'a Strategy, fleet: &'a Fleet, now: Timestamp) -> Self {
        let nodes = fleet.nodes.len();
        let mut observed = Self {
            classes: Vec::with_capacity(nodes),
            summary: PodSummary::at(fleet),
            scope: RolloutScope::new(nodes),
            members: WaveMembership::new(strategy, nodes),
            openings: WindowStates::new(strategy, nodes, now),
            images: Images::new(strategy, fleet, now),
            terms: Terms::of_rollout(strategy, fleet, now),
        };
        let terms = observed.terms;
        for (position, node) in fleet.nodes.iter().enumerate() {
            let class = classify(strategy, node, terms);
            observed.summary.note(node);
            observed.scope.note(strategy, position, node, now);
            observed.members.note(node);
            observed.openings.note(position, node);
            if let Some(images) = &mut observed.images {
                images.note(node, &class);
            }
            observed.classes.push(class);
        }
        observed
    }
}
