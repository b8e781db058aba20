//! Which outdated nodes keep their old revision, because the owner of the DaemonSet said so.
//!
//! `selector` names the nodes that take part; `partition` is a number of nodes that do not, whichever they are. Both are
//! settings of the KEP "RollingUpdate enhancement" and of Kruise's Advanced DaemonSet, and mean the same here
//! (spec/advanced-daemonset.md §4.3): a cap on what is touched. A pod that somebody else deletes comes back with the
//! current revision, and nothing ever goes back to an old one.

use super::classify::Class;
use super::fleet::Fleet;
use super::strategy::{Mode, Strategy};

/// Why an outdated node is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Its labels do not match `selector`.
    NotSelected,
    /// It is one of those that `partition` keeps.
    Partition,
}

/// The nodes that `selector` names.
#[derive(Debug)]
pub(super) struct Scope {
    /// By position in the fleet; `None`: all of them.
    selected: Option<Vec<bool>>,
}

impl Scope {
    /// Who takes part.
    pub(super) fn of(strategy: &Strategy, fleet: &Fleet) -> Self {
        let selector = strategy.selector.as_ref();
        let selector = selector.filter(|_| strategy.mode == Mode::AdvancedRollingUpdate);
        let selected = selector.map(|selector| {
            let labels = fleet.nodes.iter().map(|node| &node.labels);
            labels
                .map(|labels| selector.matches(|key| labels.get(key)))
                .collect()
        });
        Self { selected }
    }

    /// Whether the node at `position` takes part.
    pub(super) fn contains(&self, position: usize) -> bool {
        self.selected
            .as_ref()
            .is_none_or(|selected| selected[position])
    }

    /// Turns the classes of the outdated nodes that are left alone into [`Class::Kept`].
    ///
    /// Whether a node is online plays no part: who is kept must not depend on who happens to be there.
    pub(super) fn narrow(&self, strategy: &Strategy, fleet: &Fleet, classes: &mut [Class]) {
        if strategy.mode != Mode::AdvancedRollingUpdate {
            return;
        }
        if self.selected.is_some() {
            for (position, class) in classes.iter_mut().enumerate() {
                if !self.contains(position) && is_old(fleet, position, class) {
                    *class = Class::Kept(Kept::NotSelected);
                }
            }
        }
        if !strategy.partition.is_zero() {
            keep_partition(strategy, fleet, classes);
        }
    }
}

/// Of the nodes on an old revision `partition` remain: the last ones by name.
fn keep_partition(strategy: &Strategy, fleet: &Fleet, classes: &mut [Class]) {
    let targeted = classes.iter().filter(|class| class.is_targeted()).count();
    let kept = strategy.partition.resolve_down(targeted);
    let is_candidate = |position: &usize| is_old(fleet, *position, &classes[*position]);
    let candidates: Vec<usize> = (0..classes.len()).filter(is_candidate).collect();
    let unselected = |class: &&Class| **class == Class::Kept(Kept::NotSelected);
    let old = candidates.len() + classes.iter().filter(unselected).count();
    for position in candidates.into_iter().skip(old.saturating_sub(kept)) {
        classes[position] = Class::Kept(Kept::Partition);
    }
}

/// Whether a targeted node runs an old revision, and would go on doing so if nobody touched it.
fn is_old(fleet: &Fleet, position: usize, class: &Class) -> bool {
    match class {
        Class::Outdated { .. } => true,
        Class::Offline {
            updated: false,
            terminating: false,
            ..
        } => !fleet.nodes[position].pods.is_empty(),
        _ => false,
    }
}
