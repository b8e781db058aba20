//! What the guard never does, whatever fleet it looks at and whatever it remembers.

use std::collections::BTreeSet;

use proptest::collection::btree_set;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::{Random, carry_out, config, deleted, fleets, later, now, strategies};
use crate::core::Strategy;
use crate::core::guard::failure_window;
use crate::core::*;

/// A sheet about the current revision or an older one, with nodes that exist and one that does not.
pub(super) fn records() -> impl Random<Record> {
    let names = || btree_set("n0[0-9]|gone", 0..4);
    let stopped = prop_oneof![
        Just(Stopped::FailedByRevision),
        Just(Stopped::ReplacedTwice)
    ];
    let hashes = prop_oneof![3 => Just("new"), 1 => Just("old")];
    let lists = (names(), names(), names());
    (hashes, option::weighted(0.3, stopped), lists).prop_map(|(hash, stopped, lists)| {
        let names = |names: BTreeSet<String>| names.into_iter().map(NodeName::from).collect();
        Record {
            stopped,
            before: (lists.0.len() > 2).then(|| "old".into()),
            failed: names(lists.0),
            broken_before: names(lists.1),
            replaced_twice: names(lists.2),
            ..Record::of(hash.into())
        }
    })
}

/// What is remembered about the current revision.
fn sheet(record: Option<&Record>) -> Option<&Record> {
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
        let was_stopped = sheet(fleet.record.as_ref()).is_some_and(|record| record.stopped.is_some());
        let judged = fleet.replaces && strategy.mode == Mode::AdvancedRollingUpdate;
        let known = matches!(fleet.revision, RevisionState::Current(_))
            && !matches!(plan.phase, Phase::Behind(_));
        if was_stopped && judged && known {
            let stops = sheet(plan.record.as_ref()).is_some_and(|record| record.stopped.is_some());
            prop_assert_eq!(stops, resume.is_none());
        }
        if let Some(Guarded::Stopped(_)) = plan.guarded {
            prop_assert!(resume.is_none());
            prop_assert_eq!(plan.actions.iter().find(|action| action.begins()), None);
            let waits = |verdict: &Verdict| matches!(verdict, Verdict::Budget { .. });
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
            let mut pods = node.pods.iter().filter(|pod| pod.revision == PodRevision::Current);
            prop_assert!(fleet.replaces && strategy.resume != Some("new".into()));
            let charged = pods.any(|pod| {
                !pod.terminating && pod.revised() <= since && since <= later(pod.revised(), window)
            });
            prop_assert!(charged);
            // Under OTA nothing is replaced by us, and no sheet is heeded.
            let heeded = fleet.record.as_ref().filter(|_| strategy.mode == Mode::AdvancedRollingUpdate);
            let record = sheet(heeded);
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
            let stopped = record.stopped.is_some();
            let read = Record::read(stopped, record.reason(), &record.to_string());
            prop_assert_eq!(read.as_ref(), Some(record));
        }
    }

    #[test]
    fn what_is_carried_out_changes_no_judgement_of_a_lost_node(
        strategy in strategies(), fleet in fleets(),
    ) {
        let plan = decide(&strategy, &fleet, now());
        let then = Fleet { record: plan.record.clone(), ..carry_out(&fleet, &plan) };
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
        let failed = |record: Option<&Record>| {
            sheet(record).is_some_and(|record| record.failed.contains(&node.name))
        };
        let after = decide(&strategy, &then, now());
        if failed(plan.record.as_ref()) && !matches!(after.phase, Phase::Behind(_)) {
            prop_assert!(failed(after.record.as_ref()));
        }
    }
}
