//! Which absences are the revision's fault, and which the network's (spec/beyond.md §2, wish 1).
//!
//! A node that turned NotReady soon after it got the current revision is charged to that revision: it keeps its slot
//! of the budget, so that a revision that kills its nodes stops by itself. When at least as large a share of the nodes
//! that still run the old revision went away in the same time, it is the network, and nobody is charged.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::classify::{Class, later};
use super::fleet::{Fleet, Node, PodRevision};
use super::strategy::Strategy;

/// A node that goes away later than this after its replacement went for another reason.
const FAILURE_WINDOW: Duration = Duration::from_secs(300);

/// Turns the classes of the nodes whose absence is charged to the current revision into [`Class::Failed`].
pub(super) fn charge(strategy: &Strategy, fleet: &Fleet, classes: &mut [Class]) {
    if !fleet.replaces {
        return;
    }
    let window = FAILURE_WINDOW.max(strategy.min_ready);
    let mut charges: Vec<(usize, Timestamp)> = Vec::new();
    for (position, class) in classes.iter().enumerate() {
        let since = charge_of(&fleet.nodes[position], class, window);
        charges.extend(since.map(|since| (position, since)));
    }
    let first = charges.iter().map(|(_, since)| *since).min();
    if first.is_none_or(|first| is_network_event(classes, charges.len(), first, window)) {
        return;
    }
    for (position, since) in charges {
        classes[position] = Class::Failed { since };
    }
}

fn charge_of(node: &Node, class: &Class, window: Duration) -> Option<Timestamp> {
    let Class::Offline {
        updated: true,
        since: Some(since),
        ..
    } = *class
    else {
        return None;
    };
    let pod = node
        .pods
        .iter()
        .find(|pod| !pod.terminating && pod.revision == PodRevision::Current)?;
    (pod.revised() <= since && since <= later(pod.revised(), window)).then_some(since)
}

/// Whether old-revision nodes went away at no smaller rate than updated ones, from one window before the first charge.
fn is_network_event(classes: &[Class], charged: usize, first: Timestamp, window: Duration) -> bool {
    let (mut updated, mut old, mut old_lost) = (0, 0, 0);
    for class in classes {
        match *class {
            Class::Offline { updated: true, .. }
            | Class::Failed { .. }
            | Class::Done
            | Class::InProgress(_) => updated += 1,
            Class::Offline { since, .. } => {
                old += 1;
                old_lost += usize::from(since.is_some_and(|since| later(since, window) >= first));
            }
            Class::Outdated { .. } | Class::Kept(_) | Class::Unknown { .. } => old += 1,
            Class::NotTargeted | Class::NoNode => {}
        }
    }
    // old_lost / old >= charged / updated, without division
    old_lost > 0 && old_lost * updated >= charged * old
}
