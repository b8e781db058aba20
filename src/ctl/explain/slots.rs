//! What a node that has not had its turn waits for: slots of `max-unavailable`, those of the whole fleet or of one wave, and of
//! `max-surge`; the node before it; another failure domain.

use crate::core::names::{MAX_SURGE, MAX_UNAVAILABLE};
use crate::core::{Node, Progress, Verdict, WaveStand};
use crate::ctl::picture::Picture;

/// The wave that has no free slot for a node although the fleet has one.
pub(super) fn full_wave<'a>(picture: &'a Picture, node: &Node) -> Option<&'a WaveStand> {
    let (plan, waves) = (&picture.plan, picture.strategy.waves.as_ref()?);
    let stand = plan.waves.get(waves.of(node))?;
    let is_free = plan.counts.unavailable < plan.counts.allowed;
    (is_free && stand.taken >= stand.allowed).then_some(stand)
}

/// How many of the slots that a node waits for are taken.
pub(super) fn taken(picture: &Picture, node: &Node) -> String {
    let counts = &picture.plan.counts;
    match full_wave(picture, node) {
        Some(wave) => format!(
            "{} of {} taken in its wave {}",
            wave.taken, wave.allowed, wave.name
        ),
        None => {
            let down = format!("{} of {} taken", picture.unavailable(), counts.allowed);
            let beside = format!(
                "{} of {} of max-surge taken",
                picture.surge_taken(),
                counts.surge_allowed
            );
            picture.limits(down, beside) + &about_to_be(picture)
        }
    }
}

/// Those that the controller replaces next hold no slot yet; as `status` says it.
pub(in crate::ctl) fn about_to_be(picture: &Picture) -> String {
    let replaced = match picture.next() {
        0 => String::new(),
        next if picture.asks_again() => {
            format!(", {next} to be evicted when the disruption budget is asked again")
        }
        next => format!(", {next} to be replaced now"),
    };
    match picture.next_surging() {
        0 => replaced,
        next => format!("{replaced}, {next} to get a second pod now"),
    }
}

/// What limits how many nodes are replaced at once, and the annotation that says so.
pub(super) fn limit(picture: &Picture) -> (String, &'static str) {
    let (counts, strategy) = (&picture.plan.counts, &picture.strategy);
    let down = format!(
        "max-unavailable {} allows {} of {} nodes",
        strategy.max_unavailable, counts.allowed, counts.base
    );
    let beside = format!(
        "max-surge {} allows {} of {} nodes a second pod",
        strategy.max_surge, counts.surge_allowed, counts.base
    );
    let annotation = match counts.surge_allowed {
        0 => MAX_UNAVAILABLE,
        _ => MAX_SURGE,
    };
    (picture.limits(down, beside), annotation)
}

/// The node whose replacement is not over, and that keeps the others of its wave waiting (`min-interval`).
pub(super) fn paced_by(picture: &Picture, position: usize) -> Option<&str> {
    if picture.strategy.min_interval.is_zero() {
        return None;
    }
    let waves = picture.strategy.waves.as_ref();
    let wave = |node: &Node| waves.map(|waves| waves.of(node));
    let own = wave(&picture.fleet.nodes[position]);
    let mut others = picture.fleet.nodes.iter().zip(&picture.plan.verdicts);
    let ahead = others.find(|(node, verdict)| {
        let is_awaited = matches!(
            verdict,
            Verdict::HookPending { .. }
                | Verdict::InProgress(
                    Progress::Terminating | Progress::Replacing | Progress::Missing { .. }
                )
        );
        is_awaited && wave(node) == own
    });
    ahead.map(|(node, _)| node.name.as_str())
}

/// That another failure domain has its turn.
pub(super) fn other_domain(picture: &Picture, node: &Node) -> Option<String> {
    let topology = picture.strategy.topology.as_ref()?;
    let (domain, now) = (topology.domain_of(node), &picture.plan.domains);
    if now.is_empty() || now.iter().any(|name| name == domain) {
        return None;
    }
    let named = |name: &str| match name {
        "" => "that of the nodes without this label".to_owned(),
        name => name.to_owned(),
    };
    let others: Vec<String> = now.iter().map(|name| named(name)).collect();
    Some(format!(
        "is outdated, and it is another domain's turn: its {} is {domain:?}, now at work: {}",
        topology.key,
        others.join(", ")
    ))
}
