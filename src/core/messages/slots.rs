//! Messages about slots: why an outdated node waits. The reason is a slot of `max-unavailable` (in the fleet or its wave), a slot
//! of `max-surge`, the previous node, or another failure domain.

use super::rollout::RolloutView;
use crate::core::engine::rate_limit::is_awaited;
use crate::core::fleet::Node;
use crate::core::plan::WaveStand;
use crate::core::settings::max_surge::MAX_SURGE;
use crate::core::settings::max_unavailable::MAX_UNAVAILABLE;
use crate::core::verdict::Verdict;

/// Returns the node's wave if all slots of the wave are used while the fleet has a free slot.
pub(super) fn full_wave<'a>(rollout: &RolloutView<'a>, node: &Node) -> Option<&'a WaveStand> {
    let (plan, waves) = (rollout.plan, rollout.strategy.waves.as_ref()?);
    let stand = plan.waves.get(waves.index_for(&node.labels))?;
    let is_free = plan.counts.unavailable < plan.counts.allowed;
    (is_free && stand.taken >= stand.allowed).then_some(stand)
}

/// Describes the slots that a node waits for: how many of them are used.
pub(super) fn taken(rollout: &RolloutView<'_>, node: &Node) -> String {
    let counts = &rollout.plan.counts;
    match full_wave(rollout, node) {
        Some(wave) => format!(
            "{} of {} taken in its wave {}",
            wave.taken, wave.allowed, wave.name
        ),
        None => {
            let down = format!("{} of {} taken", rollout.unavailable(), counts.allowed);
            let beside = format!(
                "{} of {} of max-surge taken",
                rollout.surge_taken(),
                counts.surge_allowed
            );
            rollout.limits(down, beside) + &about_to_be(rollout)
        }
    }
}

/// Describes the nodes that the controller updates next, as in `ctl status`. They use no slot yet.
pub fn about_to_be(rollout: &RolloutView<'_>) -> String {
    let replaced = match rollout.next() {
        0 => String::new(),
        next if rollout.asks_again => {
            format!(", {next} to be evicted when the disruption budget is asked again")
        }
        next => format!(", {next} to be replaced now"),
    };
    match rollout.next_surging() {
        0 => replaced,
        next => format!("{replaced}, {next} to get a second pod now"),
    }
}

/// Returns the limit for simultaneous updates, and the annotation or field that sets it.
pub(super) fn limit(rollout: &RolloutView<'_>) -> (String, String) {
    let (counts, strategy) = (&rollout.plan.counts, rollout.strategy);
    let down = format!(
        "max-unavailable {} allows {} of {} nodes",
        strategy.max_unavailable, counts.allowed, counts.base
    );
    let beside = format!(
        "max-surge {} allows {} of {} nodes a second pod",
        strategy.max_surge, counts.surge_allowed, counts.base
    );
    let setting = match counts.surge_allowed {
        0 => MAX_UNAVAILABLE,
        _ => MAX_SURGE,
    };
    (rollout.limits(down, beside), strategy.place_of(setting))
}

/// Returns the node whose unfinished update delays the other nodes of its wave (`min-interval`).
pub(super) fn paced_by<'a>(rollout: &RolloutView<'a>, position: usize) -> Option<&'a str> {
    if rollout.strategy.min_interval.is_zero() {
        return None;
    }
    let waves = rollout.strategy.waves.as_ref();
    let wave = |node: &Node| waves.map(|waves| waves.index_for(&node.labels));
    let own = wave(&rollout.fleet.nodes[position]);
    let mut others = rollout.fleet.nodes.iter().zip(&rollout.plan.verdicts);
    let ahead = others.find(|(node, verdict)| {
        let is_asked = matches!(
            verdict,
            Verdict::BlockedByPdb { .. } | Verdict::Refused { .. }
        );
        let is_leaving = is_asked && node.pods.iter().any(|pod| pod.exit.preparing.is_some());
        is_awaited(verdict, is_leaving) && wave(node) == own
    });
    ahead.map(|(node, _)| node.name.as_str())
}

/// Describes a node that waits because another failure domain is updated first.
pub(super) fn other_domain(rollout: &RolloutView<'_>, node: &Node) -> String {
    let Some(topology) = &rollout.strategy.topology else {
        return "is outdated, and it is another domain's turn".to_owned();
    };
    format!(
        "is outdated, and it is another domain's turn: its {} is {:?}, now at work: {}",
        topology.key,
        topology.domain_of(&node.labels),
        domains_at_work(rollout)
    )
}

/// Returns the failure domains in which updates are in progress or may begin.
pub(super) fn domains_at_work(rollout: &RolloutView<'_>) -> String {
    let named = |name: &String| match name.as_str() {
        "" => "that of the nodes without this label".to_owned(),
        name => name.to_owned(),
    };
    let names: Vec<String> = rollout.plan.domains.iter().map(named).collect();
    names.join(", ")
}
