//! Properties of image pre-pulls: their number is limited, only nodes that wait for an update pull, and the update waits for
//! required images.

use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::{
    Random, begun, carry_out, config, deleted, fleets, is_upkeep, now, shares, strategies,
};
use crate::core::{Strategy, *};

fn pulling() -> impl Random<Strategy> {
    let wish = prop_oneof![
        Just(None),
        Just(Some(Predownload::BestEffort)),
        Just(Some(Predownload::Required))
    ];
    (strategies(), shares(), wish).prop_map(|(strategy, share, predownload)| Strategy {
        mode: Mode::AdvancedRollingUpdate,
        image_predownload_parallelism: Some(share),
        predownload,
        ..strategy
    })
}

/// Returns the pods whose condition requests the images of the current revision, with their nodes.
fn asked(fleet: &Fleet) -> Vec<(&Node, &Pod)> {
    let RevisionState::Current(target) = &fleet.revision else {
        return Vec::new();
    };
    let of_node = |node| move |pod| (node, pod);
    let pods = fleet
        .nodes
        .iter()
        .flat_map(|node| node.pods.iter().map(of_node(node)));
    let asks = |(_, pod): &(&Node, &Pod)| {
        let image = pod.image_ready.as_ref();
        let asks = image.filter(|image| image.waits && image.revision.as_ref() == Some(target));
        asks.is_some() && !pod.terminating && pod.revision == PodRevision::Outdated
    };
    pods.filter(asks).collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_more_nodes_pull_at_once_than_may(strategy in pulling(), fleet in fleets()) {
        let plan = decide(&strategy, &fleet, now());
        let limit = strategy.image_predownload_parallelism.unwrap().resolve(plan.counts.base);
        prop_assert!(plan.pulls.iter().filter(|pull| pull.may_start).count() <= limit);
        let asks = |action: &&Action| matches!(action, Action::AskForImages { .. });
        let fresh = plan.actions.iter().filter(asks).count();
        prop_assert!(fresh == 0 || fresh + plan.pulls.len() <= limit, "{fresh} beside {:?}", plan.pulls);
        // A requested pull begins as soon as the cache shows the request. The exception is a node whose pod can be replaced at
        // once.
        let then = carry_out(&fleet, &plan);
        let next = decide(&strategy, &then, now());
        let may_start = |pull: &&Pull| pull.may_start;
        let before = plan.pulls.iter().filter(may_start).count();
        let replaced = begun(&then, &next);
        let goes_on = |pull: &&Pull| pull.may_start || replaced.contains(&&pull.pod);
        prop_assert!(next.pulls.iter().filter(goes_on).count() >= fresh.max(before).min(limit));
    }

    #[test]
    fn only_who_is_about_to_be_replaced_is_asked(strategy in pulling(), fleet in fleets()) {
        let plan = decide(&strategy, &fleet, now());
        for action in &plan.actions {
            let Action::AskForImages { pod: target, .. } = action else {
                continue;
            };
            let holds = |node: &Node| node.pods.iter().any(|pod| pod.uid == target.uid);
            let place = fleet.nodes.iter().position(holds).unwrap();
            prop_assert!(fleet.nodes[place].is_ready());
            let waits = matches!(
                plan.verdicts[place],
                Verdict::Budget { .. } | Verdict::AwaitingDomain | Verdict::PullPending(_) | Verdict::OutOfWindow { .. }
            );
            prop_assert!(waits, "{:?}", plan.verdicts[place]);
        }
        // If a node will not be updated (offline, kept, or no longer targeted), its request is withdrawn.
        let then = carry_out(&fleet, &plan);
        let stands = matches!(
            plan.phase,
            Phase::RevisionUnknown(_)
                | Phase::Stalled(Stall::NativeControllerBehind)
                | Phase::Paused { .. }
                | Phase::Invalid
        );
        // In these phases the controller doesn't withdraw requests.
        if plan.actions.is_empty() || stands || is_paused(&strategy, now()) {
            return Ok(());
        }
        let verdict = |node: &Node| {
            let place = fleet.nodes.iter().position(|other| other.name == node.name);
            plan.verdicts[place.unwrap()]
        };
        for (node, _) in asked(&then) {
            let goes_on = matches!(
                verdict(node),
                Verdict::Budget { .. } | Verdict::AwaitingDomain
                    | Verdict::PullPending(_)
                    | Verdict::OutOfWindow { .. }
                    | Verdict::Guarded(_)
                    | Verdict::HookPending { .. }
                    | Verdict::InProgress(_)
                    | Verdict::WaveNotOpen { .. }
            );
            prop_assert!(goes_on, "{:?}", verdict(node));
        }
    }

    #[test]
    fn if_required_no_pod_is_replaced_without_the_images(
        strategy in pulling(), fleet in fleets(),
    ) {
        let strategy = Strategy { predownload: Some(Predownload::Required), ..strategy };
        let plan = decide(&strategy, &fleet, now());
        let brings_none = |action: &&Action| match action {
            Action::UpdateInPlace { patch, .. } => patch.change.images.is_empty(),
            _ => false,
        };
        let without: Vec<_> = plan.actions.iter().filter(brings_none).map(Action::pod).collect();
        for target in begun(&fleet, &plan).into_iter().filter(|pod| !without.contains(pod)) {
            let of_node = |node| move |pod| (node, pod);
            let mut pods = fleet.nodes.iter().flat_map(|node: &Node| node.pods.iter().map(of_node(node)));
            let (node, pod) = pods.find(|(_, pod)| pod.uid == target.uid).unwrap();
            let image = pod.image_ready.as_ref();
            let pulled = image.is_some_and(|image| image.status && image.revision == Some("new".into()));
            prop_assert!(node.has_images || pulled, "{image:?}");
        }
    }

    #[test]
    fn before_enough_pods_are_ready_no_pull_is_requested_and_few_nodes_are_updated_without_images(
        strategy in pulling(), fleet in fleets(), min_ready in shares(),
    ) {
        let strategy = Strategy {
            predownload: Some(Predownload::Required),
            image_predownload_min_updated_ready_pods: min_ready,
            ..strategy
        };
        let without = Strategy { image_predownload_min_updated_ready_pods: IntOrPercent::Number(0), ..strategy.clone() };
        let (plan, other) = (decide(&strategy, &fleet, now()), decide(&without, &fleet, now()));
        let Some(awaits) = plan.pulls_await else {
            return Ok(());
        };
        let asks = |action: &Action| matches!(action, Action::AskForImages { .. });
        prop_assert!(!plan.actions.iter().any(asks));
        let before = begun(&fleet, &other);
        let forerunners = begun(&fleet, &plan).into_iter().filter(|pod| !before.contains(pod)).count();
        prop_assert!(forerunners <= awaits.needed - awaits.ready, "{forerunners} {awaits:?}");
    }

    #[test]
    fn where_it_is_not_required_the_same_nodes_are_replaced(
        strategy in pulling(), fleet in fleets(),
    ) {
        let strategy = Strategy { predownload: Some(Predownload::BestEffort), ..strategy };
        let none = Some(IntOrPercent::Number(0));
        let without = Strategy { image_predownload_parallelism: none, ..strategy.clone() };
        let (plan, other) = (decide(&strategy, &fleet, now()), decide(&without, &fleet, now()));
        prop_assert_eq!(deleted(&plan), deleted(&other));
        prop_assert_eq!(plan.verdicts, other.verdicts);
        prop_assert_eq!(plan.phase, other.phase);
    }

    #[test]
    fn a_pause_replaces_nothing_and_begins_no_pull(strategy in pulling(), fleet in fleets()) {
        let strategy = Strategy { pause: Some(Pause::Indefinite), ..strategy };
        let plan = decide(&strategy, &fleet, now());
        prop_assert!(plan.actions.iter().all(|action| is_upkeep(&fleet, action)), "{:?}", plan.actions);
        prop_assert!(plan.pulls.iter().all(|pull| !pull.may_start && !pull.may_report));
    }
}
