//! Properties of rollbacks from a revision that the guard stopped. The rollbacks stay within the budget and happen once per pod.
//! The setting `resume` ends them.

use std::collections::BTreeSet;

use k8s_openapi::jiff::SignedDuration;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::{Random, carry_out, config, fleets, is_available, lacking, now, strategies};
use crate::core::testing::rollback_targets;
use crate::core::{Strategy, *};

fn reverting() -> impl Random<Strategy> {
    let strategy = (strategies(), prop::bool::weighted(0.1));
    strategy.prop_map(|(strategy, stop)| Strategy {
        mode: Mode::AdvancedRollingUpdate,
        on_failure: if stop {
            OnFailure::Stop
        } else {
            OnFailure::RevertInPlace
        },
        resume: None,
        ..strategy
    })
}

/// Generates fleets with a stopped revision. Some pods were rolled back before. The revision labels of a few pods were changed
/// since.
fn stopped() -> impl Random<Fleet> {
    (fleets(), vec(0..10_u8, 96), prop::bool::weighted(0.9)).prop_map(|(fleet, dice, stands)| {
        let mut dice = dice.into_iter().cycle();
        let mut fleet = Fleet {
            revision: RevisionState::Current("new".into()),
            replaces: true,
            rollback_targets: RollbackTargets {
                stands,
                ..rollback_targets(&["older", "old"])
            },
            record: Some(FailureRecord {
                stopped: Some(Stopped::FailedByRevision),
                before: Some("old".into()),
                ..FailureRecord::new("new".into())
            }),
            ..fleet
        };
        for pod in fleet.nodes.iter_mut().flat_map(|node| &mut node.pods) {
            let (die, named) = (dice.next(), pod.clone());
            *pod = match (pod.revision, die) {
                (PodRevision::Current, Some(0)) => {
                    named.named("new").rolled_back(now().as_second())
                }
                (PodRevision::Current, Some(1)) => named.named("mine"),
                (PodRevision::Current, _) => named.named("new"),
                (_, Some(0..=2)) => named.named("old").rolled_back(now().as_second()),
                (_, Some(3)) => named.named("older"),
                _ => named.named("old"),
            };
            if pod.revision == PodRevision::Unknown {
                pod.revision = PodRevision::Outdated;
            }
        }
        fleet
    })
}

/// Returns the pods that the plan rolls back, with their nodes.
fn rolled_back<'a>(fleet: &'a Fleet, plan: &Plan) -> Vec<(&'a Node, &'a Pod)> {
    let renews = |action: &Action| match action {
        Action::UpdateInPlace { pod, patch } if patch.reverts.is_some() => Some(pod.uid.clone()),
        _ => None,
    };
    let uids: BTreeSet<PodUid> = plan.actions.iter().filter_map(renews).collect();
    let pods = fleet.nodes.iter();
    let pods = pods.flat_map(|node| node.pods.iter().map(move |pod| (node, pod)));
    pods.filter(|(_, pod)| uids.contains(&pod.uid)).collect()
}

/// Completes the updates in place, as kubelets do.
fn settle(fleet: &mut Fleet) {
    for pod in fleet.nodes.iter_mut().flat_map(|node| &mut node.pods) {
        if let Some(update) = &mut pod.in_place.update {
            update.is_carried_out = true;
            pod.in_place.unfinished.clear();
            pod.ready_since = Some(now() - SignedDuration::from_hours(1));
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn who_is_available_is_only_taken_back_as_far_as_may_be_down(
        strategy in reverting(), fleet in stopped(),
    ) {
        let plan = decide(&strategy, &fleet, now());
        let taken = rolled_back(&fleet, &plan);
        let up = taken.iter().filter(|(_, pod)| is_available(pod, &strategy, now())).count();
        if up > 0 {
            prop_assert!(plan.counts.unavailable <= plan.counts.allowed);
            prop_assert!(lacking(&fleet, &plan, &strategy, now()) + up <= plan.counts.allowed);
        }
    }

    #[test]
    fn only_pods_of_the_stopped_revision_that_may_be_touched_are_taken_back_and_nothing_advances(
        strategy in reverting(), fleet in stopped(),
    ) {
        let plan = decide(&strategy, &fleet, now());
        let taken = rolled_back(&fleet, &plan);
        let advances = |action: &&Action| match action {
            Action::UpdateInPlace { patch, .. } => patch.reverts.is_none(),
            // `begins` includes evictions and marks for deletion.
            other => other.begins(),
        };
        prop_assert_eq!(plan.actions.iter().find(advances), None);
        let asked = strategy.on_failure == OnFailure::RevertInPlace && fleet.rollback_targets.stands;
        prop_assert!(taken.is_empty() || asked && !is_paused(&strategy, now()));
        for (node, pod) in taken {
            prop_assert!(node.is_ready() && node.targeting == Targeting::Run);
            prop_assert!(node.hold.as_ref().is_none_or(|hold| !hold.holds(now())));
            let selector = strategy.selector.as_ref();
            prop_assert!(selector.is_none_or(|selector| selector.matches(|key| node.labels.get(key))));
            prop_assert!(pod.revision == PodRevision::Current && !pod.terminating && !pod.surge);
            prop_assert_eq!(&pod.in_place.reverted_from, &None);
        }
    }

    #[test]
    fn every_pod_is_rolled_back_once_and_the_rollback_ends_despite_relabeling(
        strategy in reverting(), fleet in stopped(), relabelled in vec(0..24_usize, 0..4),
    ) {
        let mut fleet = fleet;
        let mut met: BTreeSet<PodUid> = BTreeSet::new();
        for round in 0..100 {
            let plan = decide(&strategy, &fleet, now());
            let taken = rolled_back(&fleet, &plan);
            for (_, pod) in &taken {
                prop_assert!(met.insert(pod.uid.clone()), "{} again", pod.uid);
            }
            if taken.is_empty() && round > 4 {
                return Ok(());
            }
            fleet = Fleet { record: plan.record.clone(), ..carry_out(&fleet, &plan) };
            settle(&mut fleet);
            if let Some(position) = relabelled.get(round)
                && let Some(node) = fleet.nodes.get_mut(*position)
                && let Some(pod) = node.pods.iter_mut().next()
            {
                pod.revision = PodRevision::Current;
            }
        }
        prop_assert!(false, "it goes on and on");
    }

    #[test]
    fn no_pod_is_rolled_back_to_a_stopped_revision_while_another_one_exists(
        strategy in reverting(), fleet in stopped(), also_older in any::<bool>(), resumes in any::<bool>(),
    ) {
        let mut fleet = fleet;
        fleet.revision = RevisionState::Current("newest".into());
        fleet.record = Some(FailureRecord {
            stopped: Some(Stopped::FailedByRevision),
            stopped_before: also_older.then(|| "older".into()).into_iter().collect(),
            ..FailureRecord::new("old".into())
        });
        let resume = resumes.then(|| "newest".into());
        let strategy = Strategy { resume, ..strategy };
        let plan = decide(&strategy, &fleet, now());
        let record = plan.record.as_ref();
        let stopped = record.map(|record| record.stopped_before.clone()).unwrap_or_default();
        let all: Vec<Revision> = also_older.then(|| "older".into()).into_iter().chain(["old".into()]).collect();
        prop_assert_eq!(&stopped, &all);
        let before = record.and_then(|record| record.before.clone());
        if let Some(before) = before {
            prop_assert!(also_older || before == "older".into(), "{before:?}");
        }
        // The next revision becomes current. Its record must contain the same stopped revisions.
        fleet.revision = RevisionState::Current("last".into());
        fleet.record = plan.record;
        let plan = decide(&Strategy { resume: None, ..strategy }, &fleet, now());
        let then = plan.record.map(|record| record.stopped_before).unwrap_or_default();
        prop_assert!(all.iter().all(|revision| then.contains(revision)), "{then:?}");
    }

    #[test]
    fn resume_and_another_revision_undo_it(
        strategy in reverting(), fleet in stopped(), another in any::<bool>(),
    ) {
        let resume = (!another).then(|| "new".into());
        let strategy = Strategy { resume, ..strategy };
        let mut fleet = fleet;
        if another {
            fleet.revision = RevisionState::Current("newest".into());
        }
        let plan = decide(&strategy, &fleet, now());
        prop_assert_eq!(rolled_back(&fleet, &plan).len(), 0);
        prop_assert_eq!(plan.reversal, None);
        let told = |verdict: &Verdict| matches!(
            verdict,
            Verdict::Revert(_) | Verdict::InProgress(Progress::Reverting { .. })
        );
        prop_assert!(!plan.verdicts.iter().any(told));
    }
}
