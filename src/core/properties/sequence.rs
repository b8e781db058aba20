//! Properties of the order in which nodes are updated: failure domains and waves.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::{Random, begun, config, fleets, lacks, later, now, shares, strategies};
use crate::core::settings::{Approval, Wave};
use crate::core::{Strategy, *};

/// Generates failure domains by the label `zone`, which every random node has.
pub(super) fn topologies() -> impl Random<Topology> {
    (1..3_usize).prop_map(|at_once| Topology {
        key: "zone".into(),
        at_once,
    })
}

/// Generates waves by zone. The two zones of the random nodes come in either order.
pub(super) fn waves() -> impl Random<std::sync::Arc<Waves>> {
    let wave = (option::of(shares()), 0..120_u64, prop::bool::weighted(0.2));
    let list = vec(wave, 1..3);
    let approved = vec(("[ab]", prop_oneof!["new", "old"]), 0..3);
    (list, any::<bool>(), approved).prop_map(|(list, turned, approved)| {
        let zones = if turned { ["b", "a"] } else { ["a", "b"] };
        let wave = |((max_unavailable, soak, approve), zone): (_, &str)| Wave {
            name: zone.into(),
            selector: super::selector(zone),
            max_unavailable,
            soak: std::time::Duration::from_secs(soak),
            approve,
            allow_empty: true,
        };
        let approval = |(wave, hash): (String, String)| Approval {
            wave: wave.as_str().into(),
            revision: hash.into(),
        };
        std::sync::Arc::new(Waves {
            list: list.into_iter().zip(zones).map(wave).collect(),
            approved: approved.into_iter().map(approval).collect(),
        })
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
        let in_flight = Verdict::is_in_flight;
        let told = fleet.nodes.iter().zip(&plan.verdicts);
        let held = told.filter(|(_, verdict)| in_flight(verdict));
        let held: BTreeSet<&str> = held.map(|(node, _)| topology.domain_of(&node.labels)).collect();
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
        if plan.invalid.is_some() {
            return Ok(());
        }
        let in_flight = Verdict::is_in_flight;
        let told = || fleet.nodes.iter().zip(&plan.verdicts);
        let held: BTreeSet<&str> =
            told().filter(|(_, verdict)| in_flight(verdict)).map(|(node, _)| topology.domain_of(&node.labels)).collect();
        // A pod that was marked for deletion keeps its slot, even after the limit of its wave was lowered.
        let is_marked = |node: &Node| {
            node.pods.iter().any(|pod| !pod.terminating && pod.exit.preparing.is_some())
        };
        // If a new pod is available while the old one terminates, the node takes a slot of `max-surge`, and none of
        // `max-unavailable`.
        let is_beside = |verdict: &Verdict| *verdict == Verdict::InProgress(Progress::OldTerminating);
        let takes = |(node, verdict): &(&Node, &Verdict)| {
            in_flight(verdict) && !is_beside(verdict)
                || lacks(node, verdict, &plan, &strategy, now())
                || matches!(verdict, Verdict::Budget { .. } | Verdict::AwaitingDomain) && is_marked(node)
        };
        let used = |wave: usize, waves: &Waves| {
            told().filter(|(node, _)| waves.index_for(&node.labels) == wave).filter(takes).count()
        };
        for (wave, stand) in plan.waves.iter().enumerate() {
            let waves = strategy.waves.as_ref().expect("waves are told of");
            prop_assert!(stand.state != WaveState::Open || stand.taken == used(wave, waves), "{stand:?}");
        }
        // A node may also wait because the budget of its wave is in use. In a wave that is not open, broken pods can use up the
        // budget. Nodes that were marked for deletion earlier then wait.
        let is_full = |wave: usize, waves: &Waves| {
            let stand = plan.waves.get(wave);
            stand.is_some_and(|stand| used(wave, waves).max(stand.taken) >= stand.allowed)
        };
        let is_free = |node: &Node| {
            let waves = strategy.waves.as_ref();
            waves.is_none_or(|waves| !is_full(waves.index_for(&node.labels), waves))
        };
        let left = |(node, verdict): (&Node, &Verdict)| {
            *verdict == Verdict::Budget { broken: false }
                && held.contains(topology.domain_of(&node.labels))
                && is_free(node)
        };
        if held.len() <= topology.at_once && told().any(left) {
            prop_assert!(plan.counts.unavailable >= plan.counts.allowed, "{plan:?}");
        }
        // A node may only wait if another node is in progress, or if the budget is in use.
        let waits = told().any(|(node, verdict)| {
            matches!(verdict, Verdict::Budget { .. } | Verdict::AwaitingDomain) && is_free(node)
        });
        // Exception: a failure domain may stay selected because a marked node in it waits for a slot, and another pod of its wave
        // took the slot that became free.
        let keeps_turn = plan.next_wake.is_some()
            && told().any(|(node, verdict)| {
                matches!(verdict, Verdict::Budget { .. } | Verdict::AwaitingDomain) && is_marked(node) && !is_free(node)
            });
        let is_taken = plan.counts.unavailable >= plan.counts.allowed;
        prop_assert!(!waits || !held.is_empty() || is_taken || keeps_turn, "{plan:?}");
    }

    #[test]
    fn no_node_begins_before_the_earlier_waves_are_complete_except_late_returners(
        strategy in strategies(), fleet in fleets(), waves in waves(),
    ) {
        let strategy = Strategy { waves: Some(waves.clone()), ..strategy };
        let plan = decide(&strategy, &fleet, now());
        let begun = begun(&fleet, &plan);
        let of = |node: &Node| waves.index_for(&node.labels);
        for (node, verdict) in fleet.nodes.iter().zip(&plan.verdicts) {
            let goes = node.pods.iter().any(|pod| begun.iter().any(|gone| gone.uid == pod.uid));
            let shut = matches!(verdict, Verdict::WaveNotOpen { .. });
            prop_assert!(!goes || !shut);
            if !goes {
                continue;
            }
            let RevisionState::Current(revision) = &fleet.revision else {
                return Err(TestCaseError::fail("something begins while the revision is not known"));
            };
            for wave in 0..=of(node) {
                prop_assert!(waves.is_approved(wave, revision), "wave {wave} is not approved");
            }
            let earlier = fleet.nodes.iter().zip(&plan.verdicts).filter(|(other, _)| of(other) < of(node));
            for (other, verdict) in earlier.clone() {
                let charged = matches!(verdict, Verdict::FailedByRevision { .. });
                prop_assert!(!charged, "{} is charged", other.name);
                let selected = strategy.selector.as_ref();
                let selected = selected.is_none_or(|selector| selector.matches(|key| other.labels.get(key)));
                let held = other.hold.as_ref().is_some_and(|hold| hold.holds(now()));
                let begins = matches!(
                    verdict,
                    Verdict::Budget { .. } | Verdict::AwaitingDomain | Verdict::OutOfWindow { .. } | Verdict::PullPending(_)
                        | Verdict::HookPending { .. } | Verdict::InProgress(_)
                );
                let Readiness::Ready { since } = other.readiness else {
                    continue;
                };
                if !begins || !selected || held {
                    continue;
                }
                // `late` is true if the node returned after another node of its wave had already been done for the soak time.
                let soak = waves.list[of(other)].soak;
                let late = earlier.clone().any(|(done, verdict)| {
                    let Readiness::Ready { since: there } = done.readiness else {
                        return false;
                    };
                    of(done) == of(other) && *verdict == Verdict::Done && there < since
                        && done.pods.iter().filter(|pod| !pod.terminating).any(|pod| {
                            let ready = pod.ready_since.map(|at| later(at, strategy.min_ready));
                            ready.is_some_and(|at| later(at.max(pod.revised()), soak) < since)
                        })
                });
                prop_assert!(late, "{} begins before {} is done", node.name, other.name);
            }
        }
    }

    #[test]
    fn no_node_begins_before_the_soak_of_the_earlier_waves_is_over(
        strategy in strategies(), fleet in fleets(), waves in waves(),
    ) {
        let mut waves = Waves::clone(&waves);
        waves.list.iter_mut().for_each(|wave| wave.approve = false);
        let strategy = Strategy {
            waves: Some(waves.clone().into()),
            mode: Mode::AdvancedRollingUpdate,
            pause: None,
            window: None,
            selector: None,
            ..strategy
        };
        let mut fleet = Fleet { record: None, ..fleet };
        // Make all nodes of the first wave done. Then only the soak time keeps the next wave closed.
        for node in fleet.nodes.iter_mut().filter(|node| waves.index_for(&node.labels) == 0) {
            node.pods = node.pods.first().cloned().into_iter().collect();
            for pod in &mut node.pods {
                *pod = Pod {
                    revision: PodRevision::Current,
                    terminating: false,
                    leaving: None,
                    ready_since: Some(pod.ready_since.unwrap_or(pod.created)),
                    problem: None,
                    surge: false,
                    ..pod.clone()
                };
            }
        }
        let plan = decide(&strategy, &fleet, now());
        let begun = begun(&fleet, &plan);
        let goes = |node: &&Node| {
            node.pods.iter().any(|pod| begun.iter().any(|gone| gone.uid == pod.uid))
        };
        let Some(last) = fleet.nodes.iter().filter(goes).map(|node| waves.index_for(&node.labels)).max() else {
            return Ok(());
        };
        let takes_part = |node: &Node| {
            let selector = strategy.selector.as_ref();
            let held = node.hold.as_ref().is_some_and(|hold| hold.holds(now()));
            !held && selector.is_none_or(|selector| selector.matches(|key| node.labels.get(key)))
        };
        for wave in 0..last {
            let told = fleet.nodes.iter().zip(&plan.verdicts);
            let done = told.filter(|(node, verdict)| {
                waves.index_for(&node.labels) == wave && **verdict == Verdict::Done && takes_part(node)
            });
            // Look at the node that has been Ready for the longest time. It did not return late, so the soak time began at the
            // earliest when this node was done.
            let first = done.filter_map(|(node, _)| {
                let Readiness::Ready { since } = node.readiness else {
                    return None;
                };
                let pod = node.pods.iter().find(|pod| !pod.terminating)?;
                let available = later(pod.ready_since?, strategy.min_ready);
                Some((since, available.max(pod.revised()).max(since), &node.name))
            });
            if let Some((_, well, name)) = first.min() {
                let soaked = later(well, waves.list[wave].soak);
                prop_assert!(soaked <= now(), "wave {wave} soaks until {soaked}, as {name} tells");
            }
        }
    }

    #[test]
    fn a_wave_keeps_to_its_own_budget(
        strategy in strategies(), fleet in fleets(), waves in waves(),
    ) {
        let strategy = Strategy { waves: Some(waves.clone()), broken_unlimited: false, ..strategy };
        let plan = decide(&strategy, &fleet, now());
        let begun = begun(&fleet, &plan);
        for (wave, stand) in plan.waves.iter().enumerate() {
            let of_wave = |node: &&Node| waves.index_for(&node.labels) == wave;
            let goes = |node: &&Node| {
                node.pods.iter().any(|pod| begun.iter().any(|gone| gone.uid == pod.uid))
            };
            let beginning = fleet.nodes.iter().filter(of_wave).filter(goes).count();
            // A node with an available new pod and a terminating old one takes a slot of `max-surge`. If its only living pod is
            // outdated and unavailable, the node counts as broken instead.
            let serves = |node: &Node| {
                let ripe = |since| later(since, strategy.min_ready) <= now();
                let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
                alive.any(|pod| pod.ready_since.is_some_and(ripe))
            };
            let told = fleet.nodes.iter().zip(&plan.verdicts).filter(|(node, _)| of_wave(node));
            let beside = told.filter(|(node, verdict)| {
                let is_free = serves(node) || node.outdated().is_some();
                **verdict == Verdict::InProgress(Progress::OldTerminating) && is_free
            });
            let in_flight = stand.in_flight - beside.count();
            // A node whose available pod waits for its deletion must not take a slot from a node with a broken pod.
            let is_available = |pod: &Pod| super::is_available(pod, &strategy, now());
            let takes_from_served = fleet.nodes.iter().filter(of_wave).filter(goes).any(|node| {
                node.outdated().is_some_and(is_available)
            });
            let told = fleet.nodes.iter().zip(&plan.verdicts).filter(|(node, _)| of_wave(node));
            let waiting = told.filter(|(node, verdict)| {
                let waits = matches!(
                    verdict,
                    Verdict::HookPending { .. } | Verdict::Budget { .. } | Verdict::AwaitingDomain | Verdict::BlockedByPdb { .. }
                );
                let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
                let only = alive.next().filter(|_| alive.next().is_none());
                waits && only.is_some_and(|pod| pod.exit.preparing.is_some() && is_available(pod))
            });
            let spared = if takes_from_served { 0 } else { waiting.count() };
            prop_assert!(beginning == 0 || beginning + in_flight - spared <= stand.allowed.max(1));
        }
        prop_assert!(begun.len() <= plan.counts.allowed.max(1));
    }
}
