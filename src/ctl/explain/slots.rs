//! Slots of `max-unavailable`, those of the whole fleet or of one wave, and of `max-surge`.

use crate::core::settings::max_surge::MAX_SURGE;
use crate::core::settings::max_unavailable::MAX_UNAVAILABLE;
use crate::core::{Node, WaveStand};
use crate::ctl::picture::Picture;

/// The wave that has no free slot for a node although the fleet has one.
pub(super) fn full_wave<'a>(picture: &'a Picture, node: &Node) -> Option<&'a WaveStand> {
    let (plan, waves) = (&picture.plan, picture.strategy.waves.as_ref()?);
    let stand = plan.waves.get(waves.of(&node.labels))?;
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
