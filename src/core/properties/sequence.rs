//! Who goes before whom, over random fleets.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::{Random, begun, config, fleets, now, strategies};
use crate::core::Strategy;
use crate::core::*;

/// Failure domains by the label that every random node has.
pub(super) fn topologies() -> impl Random<Topology> {
    (1..3_usize).prop_map(|at_once| Topology {
        key: "zone".into(),
        at_once,
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_begins_leaves_no_more_domains_in_flight_than_allowed(
        strategy in strategies(), fleet in fleets(), topology in topologies(),
    ) {
        let strategy = Strategy { topology: Some(topology.clone()), ..strategy };
        let plan = decide(&strategy, &fleet, now());
        let in_flight = |verdict: &Verdict| {
            matches!(
                verdict,
                Verdict::InProgress(_) | Verdict::HookPending { .. } | Verdict::FailedByRevision { .. }
            )
        };
        let told = fleet.nodes.iter().zip(&plan.verdicts);
        let held = told.filter(|(_, verdict)| in_flight(verdict));
        let held: BTreeSet<&str> = held.map(|(node, _)| topology.domain_of(node)).collect();
        prop_assert!(begun(&fleet, &plan).is_empty() || held.len() <= topology.at_once, "{held:?}");
    }

    #[test]
    fn a_domain_that_has_its_turn_uses_the_budget_up(
        strategy in strategies(), fleet in fleets(), topology in topologies(),
    ) {
        let strategy = Strategy {
            topology: Some(topology.clone()),
            min_interval: std::time::Duration::ZERO,
            ..strategy
        };
        let plan = decide(&strategy, &fleet, now());
        let in_flight = |verdict: &Verdict| {
            matches!(
                verdict,
                Verdict::InProgress(_) | Verdict::HookPending { .. } | Verdict::FailedByRevision { .. }
            )
        };
        let told = || fleet.nodes.iter().zip(&plan.verdicts);
        let held: BTreeSet<&str> =
            told().filter(|(_, verdict)| in_flight(verdict)).map(|(node, _)| topology.domain_of(node)).collect();
        let left = |(node, verdict): (&Node, &Verdict)| {
            *verdict == Verdict::Budget { broken: false } && held.contains(topology.domain_of(node))
        };
        if held.len() <= topology.at_once && told().any(left) {
            prop_assert!(plan.counts.unavailable >= plan.counts.allowed);
        }
        // Nobody waits for a turn that does not come: something is under way, or takes the whole budget.
        let waits = plan.verdicts.iter().any(|verdict| matches!(verdict, Verdict::Budget { .. }));
        prop_assert!(!waits || !held.is_empty() || plan.counts.unavailable >= plan.counts.allowed);
    }
}
