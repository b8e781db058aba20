//! Properties of the crowd: a decision must be the same if some nodes are counted instead of listed
//! ([`engine::crowd`](super::super::engine::crowd)).

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::{Random, config, fleets, now, strategies};
use crate::core::engine::crowd::{Bystander, Standing, may_be_counted, named};
use crate::core::testing::status;
use crate::core::{Strategy, *};

/// Generates settings under which nodes may usually be counted.
fn plain() -> impl Random<Strategy> {
    (strategies(), prop::bool::weighted(0.1)).prop_map(|(strategy, is_wild)| {
        if is_wild {
            strategy
        } else {
            Strategy {
                mode: Mode::AdvancedRollingUpdate,
                pause: None,
                max_surge: IntOrPercent::Number(0),
                partition: IntOrPercent::Number(0),
                selector: None,
                min_interval: std::time::Duration::ZERO,
                window: None,
                topology: None,
                waves: None,
                image_predownload_parallelism: None,
                rolling_update_type: RollingUpdateType::Standard,
                ..strategy
            }
        }
    })
}

/// Returns the fleet with as many nodes counted as possible. The first `window` waiting nodes stay in the list.
///
/// In the controller, `crate::index` computes the same result step by step, one changed node at a time.
fn counted(strategy: &Strategy, fleet: &Fleet, window: usize, now: Timestamp) -> Fleet {
    let named: BTreeSet<&NodeName> = named(fleet.record.as_ref()).collect();
    let mut crowd = Crowd::default();
    let mut shown = 0;
    let mut nodes = Vec::new();
    for node in &fleet.nodes {
        let bystander = Bystander::new(strategy, node, [fleet.in_order, fleet.is_proven], now);
        let bystander = bystander.filter(|_| !named.contains(&node.name));
        let Some(bystander) = bystander else {
            nodes.push(node.clone());
            continue;
        };
        let waits = bystander.standing == Standing::Waiting;
        if waits && shown < window {
            shown += 1;
            nodes.push(node.clone());
            continue;
        }
        if waits {
            crowd.next.get_or_insert_with(|| node.name.clone());
        }
        crowd.wake = crowd.wake.into_iter().chain(bystander.until).min();
        crowd.add(&bystander);
    }
    Fleet {
        nodes,
        crowd,
        ..fleet.clone()
    }
}

/// Returns the time of the next decision: the plan's next wake-up, or the next check of pods that are not Ready.
fn wake(fleet: &Fleet, plan: &Plan, now: Timestamp) -> Option<Timestamp> {
    let asked = plan.not_ready(fleet, now).next;
    plan.next_wake.into_iter().chain(asked).min()
}

/// Returns the names of the nodes that are past their deadline.
fn overdue<'a>(fleet: &'a Fleet, plan: &'a Plan) -> Vec<&'a NodeName> {
    let overdue = plan.overdue.iter();
    overdue
        .map(|position| &fleet.nodes[*position].name)
        .collect()
}

/// Compares the decision for counted nodes with the decision for the complete list.
///
/// Returns the result about the listed nodes, and the number of counted nodes.
pub(super) fn compare(
    strategy: &Strategy,
    fleet: &Fleet,
    window: usize,
    now: Timestamp,
) -> Result<(InView, usize), TestCaseError> {
    let (plan, complete) = decide_in_view(strategy, fleet, now);
    prop_assert_ne!(complete, InView::MoreWaiting);
    if !may_be_counted(strategy, now) {
        prop_assert_eq!(complete, InView::Everybody);
        return Ok((complete, 0));
    }
    let list = counted(strategy, fleet, window, now);
    prop_assert_eq!(list.nodes.len() + list.crowd.len(), fleet.nodes.len());
    let (seen, view) = decide_in_view(strategy, &list, now);
    if view == InView::Proven {
        prop_assert!(!fleet.is_proven);
        let fleet = Fleet {
            is_proven: true,
            ..fleet.clone()
        };
        prop_assert_eq!(&decide(strategy, &fleet, now), &plan);
        return compare(strategy, &fleet, window, now);
    }
    if view != InView::Enough {
        // The caller then decides again with more nodes in the list, or with all nodes. Check that all nodes are requested only if
        // the complete fleet needs them, too, and more nodes only while some are left out.
        prop_assert!(
            view == InView::MoreWaiting || complete != InView::Enough || list.crowd.is_empty()
        );
        prop_assert!(view != InView::MoreWaiting || window < usize::MAX);
        return Ok((view, 0));
    }
    prop_assert_eq!(&seen.actions, &plan.actions);
    prop_assert_eq!(seen.counts, plan.counts);
    prop_assert_eq!(seen.phase, plan.phase);
    prop_assert_eq!(&seen.record, &plan.record);
    prop_assert_eq!(seen.guarded, plan.guarded);
    prop_assert_eq!(seen.recreates, plan.recreates);
    prop_assert_eq!(seen.opens, plan.opens);
    prop_assert_eq!(seen.blocked, plan.blocked);
    prop_assert_eq!(seen.running(), plan.running());
    prop_assert_eq!(overdue(&list, &seen), overdue(fleet, &plan));
    prop_assert_eq!(wake(&list, &seen, now), wake(fleet, &plan, now));
    prop_assert_eq!(
        seen.not_ready(&list, now).pods,
        plan.not_ready(fleet, now).pods
    );
    prop_assert_eq!(
        status(&list, &seen).sentence(),
        status(fleet, &plan).sentence()
    );
    for (node, verdict) in list.nodes.iter().zip(&seen.verdicts) {
        let position = fleet::position_of(&fleet.nodes, &node.name).expect("it is one of them");
        prop_assert_eq!(verdict, &plan.verdicts[position], "{}", node.name);
    }
    Ok((view, list.crowd.len()))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn who_is_counted_changes_no_decision(
        strategy in plain(), fleet in fleets(), window in prop_oneof![0..6_usize, Just(usize::MAX)],
    ) {
        compare(&strategy, &fleet, window, now())?;
    }
}
