//! Tests of selectors that match no node, and of their messages.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::core::settings::Wave;
use crate::core::testing::{at, current, fleet, node, old};
use crate::core::{Phase, Plan, Pod, Targeting, Verdict, decide};

fn selecting(query: &str) -> Strategy {
    Strategy {
        selector: Some(Selector::from_query(query).unwrap()),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    }
}

fn waves(queries: &[(&str, bool)]) -> Strategy {
    let wave = |(query, allow_empty): &(&str, bool)| Wave {
        name: format!("w-{}", query.replace('=', "-")).into(),
        selector: Selector::from_query(query).unwrap(),
        max_unavailable: None,
        soak: Duration::ZERO,
        approve: false,
        allow_empty: *allow_empty,
    };
    Strategy {
        waves: Some(Arc::new(Waves {
            list: queries.iter().map(wave).collect(),
            approved: Vec::new(),
        })),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    }
}

/// Returns a fleet with one node per entry. Each entry has the value of the node's label `pool`, and its pod.
fn pools(pods: &[(&str, Pod)]) -> Fleet {
    let nodes = (1..).zip(pods).map(|(number, (pool, pod))| {
        node(&format!("n{number}"), pod.clone()).labelled("pool", pool)
    });
    fleet(nodes.collect())
}

fn outdated() -> Fleet {
    pools(&[("canary", old(1)), ("field", old(1)), ("field", current(2))])
}

fn decided(strategy: &Strategy, fleet: &Fleet) -> Plan {
    decide(strategy, fleet, at(1_000))
}

/// Returns the message about the setting that matches no node; empty if all selectors match.
fn said(strategy: &Strategy, fleet: &Fleet) -> String {
    let plan = decided(strategy, fleet);
    assert_eq!(plan.invalid.is_some(), plan.phase == Phase::Invalid);
    if plan.invalid.is_some() {
        assert_eq!(plan.actions, []);
    }
    plan.invalid
        .map(|invalid| invalid.to_string())
        .unwrap_or_default()
}

#[test]
fn a_selector_without_matches_stops_the_rollout_and_names_similar_labels() {
    assert_eq!(
        said(&selecting("pool=canray"), &outdated()),
        "apps.openyurt.io/selector is \"pool=canray\", which matches none of the 3 nodes that should run a pod; similar labels: pool=canary, pool=field; correct it, remove it, or label nodes"
    );
    let verdicts = decided(&selecting("pool=canray"), &outdated()).verdicts;
    assert_eq!(
        verdicts,
        [Verdict::Invalid, Verdict::Invalid, Verdict::Done]
    );
}

#[test]
fn a_selector_with_a_typo_suggests_similar_labels() {
    #[track_caller]
    fn case(query: &str, similar: &str) {
        let said = said(&selecting(query), &outdated());
        assert!(said.contains(similar), "{said}");
    }
    case("pol=canary", "similar labels: pool=canary, pool=field;");
    case("Pool=field", "similar labels: pool=field, pool=canary;");
    case("zone=a", "; they have no similar labels;");
    case("pool=canary,zone=a", "; they have no similar labels;");
    case(
        "pool=canary,pool!=canary",
        "each requirement matches some nodes, but no node matches all of them",
    );
}

#[test]
fn offline_and_excluded_nodes_count_as_matches_of_a_selector() {
    let mut away = outdated();
    away.nodes[0] = away.nodes[0].clone().away();
    assert_eq!(said(&selecting("pool=canary"), &away), "");
    let strategy = Strategy {
        selector: Some(Selector::from_query("pool=field").unwrap()),
        ..waves(&[("pool=canary", false)])
    };
    assert_eq!(said(&strategy, &outdated()), "");
}

#[test]
fn an_empty_wave_stops_the_rollout_unless_allow_empty_is_set() {
    assert_eq!(
        said(
            &waves(&[("pool=canary", false), ("pool=plot", false)]),
            &outdated()
        ),
        "apps.openyurt.io/waves[1].selector is \"pool=plot\", which matches none of the 3 nodes that should run a pod; similar labels: pool=field, pool=canary, so wave w-pool-plot has no nodes; correct it, label nodes, or set allowEmpty: true in this wave"
    );
    assert_eq!(
        said(
            &waves(&[("pool=canary", false), ("pool=plot", true)]),
            &outdated()
        ),
        ""
    );
    assert_eq!(
        said(
            &waves(&[("pool", false), ("pool=field", false)]),
            &outdated()
        ),
        "apps.openyurt.io/waves[1].selector is \"pool=field\", which matches only nodes that belong to earlier waves (n2 is in \
         w-pool), so wave w-pool-field has no nodes; correct it, label nodes, or set allowEmpty: true in this wave"
    );
}

#[test]
fn without_outdated_or_targeted_nodes_a_selector_is_never_invalid() {
    let done = pools(&[("canary", current(2)), ("field", current(2))]);
    assert_eq!(said(&selecting("pool=nope"), &done), "");
    assert_eq!(said(&selecting("pool=nope"), &fleet(Vec::new())), "");
    let mut foreign = outdated();
    for node in &mut foreign.nodes {
        node.targeting = Targeting::No;
    }
    assert_eq!(said(&selecting("pool=nope"), &foreign), "");
    let ota = Strategy {
        mode: Mode::Ota,
        ..selecting("pool=nope")
    };
    assert_eq!(said(&ota, &outdated()), "");
}
