//! Detection of selectors that match no node, usually because of a typo.
//!
//! Without the check, a `selector` without nodes would complete the rollout immediately. A wave without nodes would open the next
//! wave before the revision was tried. The parser can't check this, because only the fleet shows if a selector matches. The check
//! runs only while a node is outdated.
//!
//! Only labels count: offline nodes, and nodes that a setting excludes, also belong to a wave. `allowEmpty` permits an empty wave.

use std::collections::BTreeSet;

use super::class::Class;
use crate::core::fleet::{Fleet, Node};
use crate::core::foreign::quoted;
use crate::core::selector::{Requirement, Selector};
use crate::core::settings::selector::SELECTOR;
use crate::core::settings::waves::WAVES;
use crate::core::settings::{Invalid, Mode, Strategy, Waves};
use crate::core::suggest::distance;

/// Maximum number of similar labels in a message.
const NAMED: usize = 4;

/// Maximum number of edits (inserted, removed or changed characters) between two words that look similar.
const NEAR: usize = 2;

/// Returns the first setting whose selector matches no targeted node. `None` if all selectors match, or if no targeted node is
/// outdated.
///
/// `wave` returns the wave of the node at a position.
pub(super) fn unmatched(
    strategy: &Strategy,
    fleet: &Fleet,
    classes: &[Class],
    wave: impl Fn(usize) -> usize,
) -> Option<Invalid> {
    let (selector, waves) = (strategy.selector.as_ref(), strategy.waves.as_deref());
    if strategy.mode != Mode::AdvancedRollingUpdate || selector.is_none() && waves.is_none() {
        return None;
    }
    let targeted = || {
        let classes = classes.iter().enumerate();
        let targeted = classes.filter(|(_, class)| class.is_targeted());
        targeted.map(|(position, _)| (position, &fleet.nodes[position]))
    };
    let takes = |selector: &Selector, node: &Node| selector.matches(|key| node.labels.get(key));
    let unmatched = selector.filter(|selector| !targeted().any(|(_, node)| takes(selector, node)));
    let empty = waves.and_then(|waves| {
        let mut has_nodes = vec![false; waves.count()];
        targeted().for_each(|(position, _)| has_nodes[wave(position)] = true);
        let list = waves.list.iter().enumerate();
        let mut empty = list.filter(|(position, wave)| !wave.allow_empty && !has_nodes[*position]);
        empty.next().map(|(position, _)| (waves, position))
    });
    if unmatched.is_none() && empty.is_none()
        || !targeted().any(|(_, node)| node.outdated().is_some())
    {
        return None;
    }
    let nodes: Vec<&Node> = targeted().map(|(_, node)| node).collect();
    unmatched
        .map(|selector| Invalid {
            key: strategy.name_of(SELECTOR).into(),
            value: quoted(&selector.to_string()),
            why: format!(
                "which {}; correct it, remove it, or label nodes",
                none_of(selector, &nodes)
            ),
            is_object: false,
        })
        .or_else(|| empty.map(|(waves, position)| empty_wave(waves, position, &nodes)))
}

fn empty_wave(waves: &Waves, position: usize, nodes: &[&Node]) -> Invalid {
    let wave = &waves.list[position];
    let takes = |node: &&&Node| wave.selector.matches(|key| node.labels.get(key));
    let why = match nodes.iter().find(takes) {
        Some(node) => format!(
            "matches only nodes that belong to earlier waves ({} is in {})",
            node.name,
            waves.name(waves.index_for(&node.labels))
        ),
        None => none_of(&wave.selector, nodes),
    };
    Invalid {
        key: format!("{WAVES}[{position}].selector"),
        value: quoted(&wave.selector.to_string()),
        why: format!(
            "which {why}, so wave {} has no nodes; correct it, label nodes, or set allowEmpty: true in this wave",
            wave.name
        ),
        is_object: false,
    }
}

/// Returns the message that `selector` matches none of `nodes`, with similar labels that may be meant.
fn none_of(selector: &Selector, nodes: &[&Node]) -> String {
    let none = match nodes.len() {
        1 => "does not match the only node that should run a pod".to_owned(),
        count => format!("matches none of the {count} nodes that should run a pod"),
    };
    let is_met = |asked: &&Requirement| {
        let mut nodes = nodes.iter();
        nodes.any(|node| asked.matches(node.labels.get(asked.key())))
    };
    let failing: Vec<&Requirement> = selector.requirements().iter().collect();
    let (met, failing): (Vec<_>, Vec<_>) = failing.into_iter().partition(is_met);
    if failing.is_empty() && met.len() > 1 {
        return format!(
            "{none} (each requirement matches some nodes, but no node matches all of them)"
        );
    }
    let mut similar = Vec::new();
    for asked in failing {
        let found = similar_to(asked, nodes);
        similar.extend(
            found
                .into_iter()
                .filter(|label| !similar.contains(label))
                .collect::<Vec<_>>(),
        );
    }
    similar.truncate(NAMED);
    if similar.is_empty() {
        format!("{none}; they have no similar labels")
    } else {
        format!("{none}; similar labels: {}", similar.join(", "))
    }
}

/// Returns labels of `nodes` that may be meant by `asked`, a requirement that no node meets. The most similar come first.
///
/// Other values of the same key are preferred. Only if there are none, labels with a similar key are returned.
fn similar_to(asked: &Requirement, nodes: &[&Node]) -> Vec<String> {
    let labels = || nodes.iter().flat_map(|node| node.labels.iter());
    let wanted = asked.values();
    let far = |value: &str| wanted.iter().map(|wanted| distance(value, wanted)).min();
    let of_key: BTreeSet<&str> = labels()
        .filter(|(key, _)| *key == asked.key())
        .map(|(_, value)| value)
        .collect();
    let mut ranked: Vec<(usize, &str, &str)> = match of_key.is_empty() {
        false => {
            let values = of_key.into_iter();
            values
                .map(|value| (far(value).unwrap_or(0), asked.key(), value))
                .collect()
        }
        true => {
            let keys: BTreeSet<&str> = labels().map(|(key, _)| key).collect();
            let is_near = |key: &&str| {
                let lower = key.to_ascii_lowercase();
                distance(&lower, &asked.key().to_ascii_lowercase()) <= NEAR
            };
            let near: BTreeSet<&str> = keys.into_iter().filter(is_near).collect();
            let meant: BTreeSet<(&str, &str)> =
                labels().filter(|(key, _)| near.contains(key)).collect();
            let meant = meant.into_iter();
            meant
                .map(|(key, value)| (far(value).unwrap_or(0), key, value))
                .collect()
        }
    };
    ranked.sort_unstable();
    let shown = ranked.into_iter().take(NAMED);
    shown
        .map(|(_, key, value)| format!("{key}={value}"))
        .collect()
}

#[cfg(test)]
mod tests;
