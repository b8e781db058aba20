//! Slots of `max-unavailable`, those of the whole fleet or of one wave.

use crate::core::{Node, WaveStand};
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
        None => format!("{} of {} taken", counts.unavailable, counts.allowed),
    }
}
