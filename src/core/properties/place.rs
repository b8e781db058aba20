//! Properties of fleets that are updated in place.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;
use serde_json::json;

use super::{
    Random, begun, carry_out, config, deleted, fleets, is_available, lacking, now, recent,
    strategies,
};
use crate::core::fleet::in_place::{
    InPlaceTransition, InPlaceTransitions, InPlaceUpdate, PreviousContainer, Recreate, Shape,
};
use crate::core::{
    Action, InPlace, IntOrPercent, PodRef, PodRevision, RollingUpdateType, Strategy, decide,
};

/// Generates the changes that update a pod in place from the revision "old" to the current one, or the reason why that is
/// impossible.
pub(super) fn transitions() -> impl Random<InPlaceTransitions> {
    let shape = |image: &str| {
        let containers = json!([{ "name": "main", "image": image }]);
        Shape::from_template(&json!({ "spec": { "containers": containers } }))
    };
    let images = InPlaceTransition::between(&shape("main:1"), &shape("main:2"), None);
    let metadata = InPlaceTransition::between(&shape("main:1"), &shape("main:1"), None);
    let how = prop_oneof![
        3 => Just(images),
        1 => Just(metadata),
        1 => Just(Err(Recreate::OtherChange)),
    ];
    option::weighted(0.9, how)
        .prop_map(|how| how.map(|how| ("old".into(), how)).into_iter().collect())
}

/// Generates the state of a pod's last update in place.
pub(super) fn pods() -> impl Random<InPlace> {
    let container = |image: &str| crate::core::fleet::in_place::RunningContainer {
        name: "main".into(),
        image: image.into(),
        reported: image.into(),
        image_id: image.into(),
        restarts: 0,
        is_init: false,
    };
    let before = || PreviousContainer {
        image_id: Some("main:1".into()),
        restart_count: 0,
        superseded: None,
    };
    let image = prop_oneof![8 => Just("main:1"), 1 => Just("mine:1")];
    let update = (recent(), any::<bool>());
    let update = update
        .prop_map(|(at, is_carried_out): (Timestamp, bool)| InPlaceUpdate { at, is_carried_out });
    let told = (
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.1),
        option::weighted(0.3, update),
    );
    (image, told).prop_map(move |(image, (known, is_over, update))| InPlace {
        revision: Some(if known { "old" } else { "older" }.into()),
        containers: [container(image)].into(),
        is_over,
        unfinished: match update {
            Some(InPlaceUpdate {
                is_carried_out: false,
                ..
            }) => [("main".into(), before())].into(),
            _ => Default::default(),
        },
        update,
        reverted_from: None,
        gate: None,
    })
}

/// Generates settings under which pods are updated in place without waiting for images.
fn in_place() -> impl Random<Strategy> {
    strategies().prop_map(|strategy| Strategy {
        rolling_update_type: RollingUpdateType::InPlaceIfPossible,
        image_predownload_parallelism: Some(IntOrPercent::Number(0)),
        ..strategy
    })
}

proptest! {
    #![proptest_config(config())]

    /// Checks that a single write updates a pod in place. The pod's revision must be known, and the pod must have its images.
    #[test]
    fn only_what_can_be_changed_is_changed_in_place(strategy in in_place(), fleet in fleets()) {
        let plan = decide(&strategy, &fleet, now());
        for action in &plan.actions {
            let Action::UpdateInPlace { pod: target, patch } = action else {
                continue;
            };
            let mut pods = fleet.nodes.iter().flat_map(|node| &node.pods);
            let pod = pods.find(|pod| pod.uid == target.uid).unwrap();
            prop_assert_eq!(pod.revision, PodRevision::Outdated);
            prop_assert!(!pod.terminating && !pod.in_place.is_over);
            prop_assert_eq!(&pod.in_place.revision, &Some("old".into()));
            prop_assert_eq!(&*pod.in_place.containers[0].image, "main:1");
            prop_assert_eq!(&patch.revision, &"new".into());
        }
        let of_pod = deleted(&plan).len();
        let uids: BTreeSet<_> = deleted(&plan).iter().map(|pod| &pod.uid).collect();
        prop_assert_eq!(uids.len(), of_pod, "two writes for one pod");
        let standard = Strategy { rolling_update_type: RollingUpdateType::Standard, ..strategy };
        let other = decide(&standard, &fleet, now());
        prop_assert_eq!(other.recreates, None);
        prop_assert_eq!(begun(&fleet, &other), begun(&fleet, &plan), "the manner changes nothing else");
    }

    /// Checks that the node counts as unavailable as soon as the write is made, even while the old containers are still Ready.
    #[test]
    fn a_node_counts_while_its_pod_is_updated_in_place(strategy in in_place(), fleet in fleets()) {
        let plan = decide(&strategy, &fleet, now());
        let was_available = |target: &&PodRef| {
            let mut pods = fleet.nodes.iter().flat_map(|node| &node.pods);
            pods.any(|pod| pod.uid == target.uid && is_available(pod, &strategy, now()))
        };
        // A pod that waited for its hook already had a slot, so its deletion takes no further slot.
        let of_available = begun(&fleet, &plan).iter().filter(|target| was_available(target)).count();
        let lacking = lacking(&carry_out(&fleet, &plan), &plan, &strategy, now());
        let allowed = plan.counts.allowed;
        prop_assert!(of_available == 0 || lacking <= allowed, "{lacking} of {allowed} lack a pod");
        prop_assert!(plan.next_wake.is_none_or(|wake| wake > now()), "a wake that is over");
    }
}
