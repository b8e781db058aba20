//! Properties of the guard: rules that it keeps for every fleet and every record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::{
    Random, after, carry_out, config, deleted, fleets, later, now, recent, settle, strategies,
};
use crate::core::engine::pause::is_paused;
use crate::core::engine::timeouts::failure_window;
use crate::core::{Strategy, *};

/// Generates records of the guard about the current revision or an older one. The records name nodes of the fleet, and a node that
/// doesn't exist.
pub(super) fn records() -> impl Random<FailureRecord> {
    let names = || btree_set("n0[0-9]|gone", 0..4);
    let stopped = prop_oneof![
        Just(Stopped::FailedByRevision),
        Just(Stopped::ReplacedTwice)
    ];
    let hashes = prop_oneof![3 => Just("new"), 1 => Just("old")];
    let dated = || btree_map("n0[0-9]|gone", recent(), 0..2);
    let before = prop_oneof![3 => Just(&[][..]), 1 => Just(&["older"][..]), 1 => Just(&["old", "older"][..])];
    let lists = (
        names(),
        names(),
        names(),
        names(),
        (dated(), dated(), before),
    );
    (hashes, option::weighted(0.3, stopped), lists).prop_map(|(hash, stopped, lists)| {
        let names = |names: BTreeSet<String>| names.into_iter().map(NodeName::from).collect();
        let dated = |dated: BTreeMap<String, Timestamp>| {
            let dated = dated.into_iter();
            dated.map(|(name, since)| (name.into(), since)).collect()
        };
        FailureRecord {
            stopped,
            before: (lists.0.len() > 2).then(|| "old".into()),
            broken_before: names(&lists.1 - &lists.0),
            failed: names(lists.0),
            replaced_twice: names(lists.2),
            updated_before_loss: names(lists.3),
            lost: dated(lists.4.0),
            control_group: dated(lists.4.1),
            stopped_before: lists.4.2.iter().map(|name| (*name).into()).collect(),
            ..FailureRecord::new(hash.into())
        }
    })
}

/// Generates fleets in which updated nodes and nodes with an old pod are lost at about the same time. The remaining nodes wait for
/// their update and have no problems.
pub(super) fn outages() -> impl Random<(Strategy, Fleet)> {
    let lost = vec((any::<bool>(), 31..90_i64), 1..6);
    let limits = ((1..9_u32), (1..5_u32), 0..6_usize);
    (strategies(), fleets(), lost, limits).prop_map(|(strategy, mut fleet, lost, limits)| {
        let (down, threshold, updated) = limits;
        fleet.revision = RevisionState::Current("new".into());
        (fleet.record, fleet.replaces) = (None, true);
        fleet.nodes.retain(|node| !node.pods.is_empty());
        for (position, node) in fleet.nodes.iter_mut().enumerate() {
            settle(node);
            let is_updated = |(updated, _): &(bool, _)| *updated;
            let pod = &mut node.pods[0];
            pod.revision = if lost
                .get(position)
                .map_or(position < lost.len() + updated, is_updated)
            {
                PodRevision::Current
            } else {
                PodRevision::Outdated
            };
            (pod.of_template, pod.number) = (pod.revision == PodRevision::Current, 3);
            if let Some((_, seconds)) = lost.get(position) {
                let since = after(now(), -seconds);
                node.readiness = Readiness::NotReady { since: Some(since) };
                let made = after(since, -20);
                (pod.created, pod.started, pod.ready_since) = (made, Some(made), None);
            }
        }
        let strategy = Strategy {
            mode: Mode::AdvancedRollingUpdate,
            max_unavailable: IntOrPercent::Number(down),
            failure_threshold: Some(IntOrPercent::Number(threshold)),
            ..strategy
        };
        (strategy, fleet)
    })
}

/// Replaces the pod with its successor, as the native controller creates it.
fn follow(pod: &mut Pod) {
    pod.terminating = false;
    (pod.revision, pod.of_template) = (PodRevision::Current, true);
    pod.uid = format!("{}-next", pod.uid).as_str().into();
    (pod.created, pod.started, pod.ready_since) = (now(), None, None);
    (pod.in_place, pod.exit) = Default::default();
}

/// Returns the guard's record if it is about the current revision.
fn current_record(record: Option<&FailureRecord>) -> Option<&FailureRecord> {
    record.filter(|record| record.revision == "new".into())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_revision_that_was_stopped_stays_so_and_nothing_new_begins(
        strategy in strategies(), fleet in fleets(), resume in any::<bool>(),
    ) {
        let resume = resume.then(|| "new".into());
        let strategy = Strategy { resume: resume.clone(), ..strategy };
        let plan = decide(&strategy, &fleet, now());
        let was_stopped = current_record(fleet.record.as_ref()).is_some_and(|record| record.stopped.is_some());
        let judged = fleet.replaces && strategy.mode == Mode::AdvancedRollingUpdate;
        let known = matches!(fleet.revision, RevisionState::Current(_))
            && !plan.phase.is_behind();
        if was_stopped && judged && known {
            let stops = current_record(plan.record.as_ref()).is_some_and(|record| record.stopped.is_some());
            prop_assert_eq!(stops, resume.is_none());
        }
        if let Some(Guarded::Stopped(_)) = plan.guarded {
            prop_assert!(resume.is_none());
            prop_assert_eq!(plan.actions.iter().find(|action| action.begins()), None);
            let waits = |verdict: &Verdict| matches!(verdict, Verdict::Budget { .. } | Verdict::AwaitingDomain);
            prop_assert!(!plan.verdicts.iter().any(waits));
        }
        if resume.is_some() {
            let charged = |verdict: &Verdict| {
                matches!(verdict, Verdict::FailedByRevision { .. } | Verdict::Guarded(_))
            };
            prop_assert!(!plan.verdicts.iter().any(charged));
        }
    }

    #[test]
    fn more_failures_than_may_be_stop_whatever_is_left(
        strategy in strategies(), fleet in fleets(),
    ) {
        let plan = decide(&strategy, &fleet, now());
        if plan.counts.failures > plan.counts.threshold && strategy.mode == Mode::AdvancedRollingUpdate {
            prop_assert_eq!(deleted(&plan), Vec::<&PodRef>::new());
            if plan.counts.outdated > 0 {
                prop_assert!(matches!(plan.guarded, Some(Guarded::Stopped(_))));
            }
        }
    }

    #[test]
    fn only_what_failed_after_its_new_pod_was_made_is_charged(
        strategy in strategies(), fleet in fleets(),
    ) {
        let plan = decide(&strategy, &fleet, now());
        let window = failure_window(&strategy);
        for (node, verdict) in fleet.nodes.iter().zip(&plan.verdicts) {
            let Verdict::FailedByRevision { since, .. } = *verdict else {
                continue;
            };
            prop_assert!(fleet.replaces && strategy.resume != Some("new".into()));
            // Under OTA the controller replaces no pods, so it ignores the guard's record.
            let heeded = fleet.record.as_ref().filter(|_| strategy.mode == Mode::AdvancedRollingUpdate);
            let record = current_record(heeded);
            let is_soon = |touched: Timestamp| touched <= since && since <= later(touched, window);
            let is_on_sheet = |record: &FailureRecord| {
                record.failed.contains(&node.name) || record.updated_before_loss.contains(&node.name)
            };
            prop_assert!(
                node.touched_at(true).any(is_soon) || node.emptied || record.is_some_and(is_on_sheet)
            );
            prop_assert!(record.is_none_or(|record| !record.broken_before.contains(&node.name)));
        }
    }

    #[test]
    fn what_is_remembered_decides_as_the_moment_itself_did(
        strategy in strategies(), fleet in fleets(),
    ) {
        let plan = decide(&strategy, &fleet, now());
        let told = Fleet { record: plan.record.clone(), ..fleet };
        let again = decide(&strategy, &told, now());
        prop_assert_eq!(&again, &plan);
        if let Some(record) = &plan.record {
            let state = RolloutState { guard: Some(record.clone()), ..RolloutState::default() };
            let read = RolloutState::read(&state.to_json()).unwrap();
            prop_assert_eq!(read.guard.as_ref(), Some(record));
        }
    }

    /// Checks that no update begins because a stored record omits names of nodes to stay within its maximum size.
    #[test]
    fn what_is_left_out_of_the_memory_begins_nothing(
        strategy in strategies(), fleet in fleets(), limit in 150..500_usize,
    ) {
        let Some(record) = &fleet.record else { return Ok(()) };
        let state = RolloutState { guard: Some(record.clone()), ..RolloutState::default() };
        let read = RolloutState::read(&state.to_json_within(limit)).unwrap().guard;
        let cut = read.expect("the record");
        prop_assert!(cut.failures() >= record.failures(), "{cut:?}");
        prop_assert_eq!((cut.stopped, &cut.stopped_before), (record.stopped, &record.stopped_before));
        let whole = decide(&strategy, &fleet, now());
        let careful = decide(&strategy, &Fleet { record: Some(cut), ..fleet.clone() }, now());
        let begun = |plan: &Plan| plan.actions.iter().filter(|action| action.begins()).count();
        prop_assert!(begun(&careful) <= begun(&whole), "{:?}\n{:?}", careful.actions, whole.actions);
    }

    #[test]
    fn what_is_carried_out_changes_no_judgement_of_a_lost_node(
        (strategy, fleet) in prop_oneof![(strategies(), fleets()), outages()],
    ) {
        let plan = decide(&strategy, &fleet, now());
        let mut then = Fleet { record: plan.record.clone(), ..carry_out(&fleet, &plan) };
        let gone: Vec<&PodUid> = deleted(&plan).into_iter().map(|pod| &pod.uid).collect();
        for node in &mut then.nodes {
            node.pods.iter_mut().filter(|pod| gone.contains(&&pod.uid)).for_each(follow);
        }
        let lost = |plan: &Plan| {
            let is_lost = |verdict: &Verdict| {
                matches!(verdict, Verdict::FailedByRevision { cause: Cause::NodeLost, .. })
            };
            plan.verdicts.iter().map(is_lost).collect::<Vec<_>>()
        };
        prop_assert_eq!(lost(&decide(&strategy, &then, now())), lost(&plan));
    }

    #[test]
    fn a_node_that_is_deleted_is_not_forgotten(
        strategy in strategies(), fleet in fleets(), gone in 0..24_usize,
    ) {
        let plan = decide(&strategy, &fleet, now());
        let mut then = Fleet { record: plan.record.clone(), ..carry_out(&fleet, &plan) };
        prop_assume!(gone < then.nodes.len());
        let node = then.nodes.remove(gone);
        let failed = |record: Option<&FailureRecord>| {
            current_record(record).is_some_and(|record| record.failed.contains(&node.name))
        };
        let after = decide(&strategy, &then, now());
        // Without an older revision to compare with, the guard evaluates no node.
        if fleet.replaces
            && failed(plan.record.as_ref())
            && !after.phase.is_behind()
        {
            prop_assert!(failed(after.record.as_ref()));
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_node_that_is_lost_while_its_pod_leaves_lets_nothing_begin_and_is_then_charged(
        strategy in strategies(), fleet in fleets(), position in 0..24_usize,
    ) {
        let mut fleet = Fleet { record: None, ..fleet };
        prop_assume!(position < fleet.nodes.len());
        // All other nodes are online, so the network can't be the cause of the loss.
        for node in &mut fleet.nodes {
            if matches!(node.readiness, Readiness::NotReady { .. }) {
                node.readiness = Readiness::Ready { since: later(now(), Duration::ZERO) };
            }
        }
        let node = &mut fleet.nodes[position];
        node.pods.retain(|pod| pod.revision == PodRevision::Outdated && !pod.surge);
        node.pods.iter_mut().for_each(|pod| pod.terminating = true);
        node.targeting = Targeting::Run;
        node.readiness = Readiness::NotReady { since: Some(now()) };
        node.disrupted_at = Some(now());
        node.losses = None;
        let judged = |at| decide(&strategy, &fleet, at);
        let early = judged(now());
        let rolls = strategy.mode == Mode::AdvancedRollingUpdate && fleet.replaces
            && strategy.resume != Some("new".into()) && !is_paused(&strategy, now());
        if rolls && matches!(fleet.revision, RevisionState::Current(_)) && !early.phase.is_behind() {
            prop_assert_eq!(early.actions.iter().find(|action| action.begins()), None);
            prop_assert!(early.guarded.is_some());
            let late = judged(later(now(), Duration::from_secs(30)));
            let is_charged = matches!(
                late.verdicts[position],
                Verdict::FailedByRevision { cause: Cause::NodeLost, .. }
            );
            prop_assert!(is_charged, "{:?}", late.verdicts[position]);
            prop_assert!(late.counts.failures > 0);
            // The node also counts as failed if its Node is deleted before the evaluation.
            let mut nodes = fleet.nodes.clone();
            let gone = nodes.remove(position);
            let deleted = Fleet { record: early.record, nodes, ..fleet.clone() };
            let early = decide(&strategy, &deleted, later(now(), Duration::from_secs(29)));
            prop_assert_eq!(early.actions.iter().find(|action| action.begins()), None);
            let late = decide(&strategy, &deleted, later(now(), Duration::from_secs(30)));
            let failed = late.record.is_some_and(|record| record.failed.contains(&gone.name));
            prop_assert!(failed || deleted.nodes.is_empty(), "{} is forgotten", gone.name);
        }
    }

    #[test]
    fn nodes_that_flap_delay_nothing_and_are_charged_in_the_end((strategy, fleet) in outages()) {
        let mut fleet = Fleet { adopted: None, ..fleet };
        let strategy = Strategy { failure_window: None, ..strategy };
        let lost = after(now(), -5);
        for node in &mut fleet.nodes {
            let is_touched = node.pods[0].revision == PodRevision::Current;
            match node.readiness {
                Readiness::NotReady { .. } if is_touched => {
                    node.readiness = Readiness::NotReady { since: Some(lost) };
                    node.losses = Some([after(now(), -30), lost].into());
                    // The rollout updated this node before both losses.
                    let made = after(now(), -35);
                    (node.pods[0].created, node.pods[0].started) = (made, Some(made));
                    node.pods[0].in_place = Default::default();
                }
                // The other nodes are online, so the network can't be the cause.
                _ => {
                    node.readiness = Readiness::Ready { since: after(now(), -90) };
                    node.losses = None;
                }
            }
        }
        let plan = decide(&strategy, &fleet, now());
        let is_open = matches!(plan.guarded, Some(Guarded::Inconclusive { .. }));
        prop_assert!(!is_open, "{:?}", plan.guarded);
        let judges = fleet.replaces && strategy.resume.is_none();
        let late = decide(&strategy, &fleet, after(lost, 20));
        for (node, verdict) in fleet.nodes.iter().zip(&late.verdicts) {
            let is_charged = matches!(verdict, Verdict::FailedByRevision { cause: Cause::NodeLost, .. });
            if judges && node.losses.is_some() && node.targeting == Targeting::Run {
                prop_assert!(is_charged, "{:?}", verdict);
            }
        }
    }

    #[test]
    fn who_is_charged_stays_so_while_all_are_away(
        strategy in strategies(), fleet in fleets(), passed in 0..900_u64,
    ) {
        // The setting `resume` would remove the failures from the record, perhaps only after the revisions of all online nodes are
        // known. So don't use it here.
        let strategy = Strategy { resume: None, ..strategy };
        let plan = decide(&strategy, &fleet, now());
        let mut then = Fleet { record: plan.record.clone(), ..carry_out(&fleet, &plan) };
        for node in &mut then.nodes {
            if matches!(node.readiness, Readiness::Ready { .. }) {
                node.readiness = Readiness::NotReady { since: Some(now()) };
            }
        }
        let away = decide(&strategy, &then, later(now(), Duration::from_secs(passed)));
        if let (Some(before), Some(after)) = (current_record(plan.record.as_ref()), away.record) {
            prop_assert!(before.failed.is_subset(&after.failed), "{before} became {after}");
        }
    }

    #[test]
    fn while_a_judgement_is_open_nothing_is_complete((strategy, fleet) in outages()) {
        let plan = decide(&strategy, &fleet, now());
        if matches!(plan.guarded, Some(Guarded::Inconclusive { .. })) {
            let is_complete = matches!(plan.phase, Phase::Complete { .. });
            prop_assert!(!is_complete);
            prop_assert!(plan.next_wake.is_some());
        }
    }

    #[test]
    fn what_was_lost_before_its_revision_was_adopted_is_not_charged(
        (strategy, fleet) in prop_oneof![(strategies(), fleets()), outages()],
    ) {
        let fleet = Fleet {
            record: None,
            adopted: Some(later(now(), Duration::from_secs(1))),
            ..fleet
        };
        let plan = decide(&strategy, &fleet, now());
        let lost = |verdict: &Verdict| {
            matches!(verdict, Verdict::FailedByRevision { cause: Cause::NodeLost, .. })
        };
        prop_assert!(!plan.verdicts.iter().any(lost));
    }

    #[test]
    fn what_was_made_before_the_template_changed_is_never_charged(
        strategy in strategies(), fleet in fleets(),
    ) {
        let mut fleet = Fleet { record: None, ..fleet };
        for node in &mut fleet.nodes {
            (node.disrupted_at, node.emptied) = (None, false);
            for pod in &mut node.pods {
                pod.of_template = false;
                pod.exit.preparing = None;
            }
        }
        let plan = decide(&strategy, &fleet, now());
        let charged = |verdict: &Verdict| matches!(verdict, Verdict::FailedByRevision { .. });
        prop_assert!(!plan.verdicts.iter().any(charged));
        prop_assert_eq!(plan.counts.failures, 0);
    }
}
