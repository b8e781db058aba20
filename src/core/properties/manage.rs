//! Properties of the pods of an Advanced DaemonSet. The controller never creates two pods for one node, and it never deletes the
//! only pod of an eligible node.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::{Random, config, fleets, now, shares, strategies};
use crate::core::engine::manage::{FailedPodsBackoff, Manage, ManageTerms, manage};
use crate::core::settings::Scaling;
use crate::core::{
    Action, Fleet, IntOrPercent, Node, NodeName, Pod, PodRevision, PodUid, Readiness, Strategy,
    Targeting,
};

/// Arguments of the decision in addition to the fleet.
#[derive(Clone, Debug)]
struct Given {
    strategy: Option<Strategy>,
    scaling: Scaling,
    creating: BTreeMap<NodeName, Timestamp>,
    backoff: FailedPodsBackoff,
}

impl Given {
    fn surges(&self) -> bool {
        let strategy = self.strategy.as_ref();
        strategy.is_some_and(|strategy| !strategy.max_surge.is_zero())
    }

    fn manage(&self, fleet: &Fleet) -> Manage {
        manage(
            fleet,
            ManageTerms {
                strategy: self.strategy.as_ref(),
                keeps_pairs: false,
                scaling: self.scaling,
                creating: &self.creating,
                refused: &BTreeMap::new(),
                orphans: &BTreeMap::new(),
                backoff: &self.backoff,
                now: now(),
            },
        )
    }
}

/// Generates fleets with the other arguments of the decision. The nodes differ in their eligibility by the rules of the native
/// controller.
fn given() -> impl Random<(Fleet, Given)> {
    let native = prop_oneof![
        6 => Just(Targeting::Run),
        1 => Just(Targeting::Keep),
        1 => Just(Targeting::No)
    ];
    let strategy = (strategies(), option::weighted(0.4, shares())).prop_map(|(strategy, surge)| {
        let max_surge = surge.unwrap_or(IntOrPercent::Number(0));
        Strategy {
            max_surge,
            ..strategy
        }
    });
    let scaling = (option::weighted(0.5, 1..4_u32), any::<bool>());
    let scaling = scaling.prop_map(|(burst, partitioned)| Scaling {
        burst: burst.map_or(Scaling::default().burst, IntOrPercent::Number),
        partitioned,
        ..Scaling::default()
    });
    // For each node, three flags: a pod was requested, an ended pod has just disappeared, and a requested deletion is confirmed.
    let past = (
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.8),
    );
    let past = vec(past, 24);
    let natives = vec(native, 24);
    let all = (
        fleets(),
        option::weighted(0.9, strategy),
        scaling,
        past,
        natives,
    );
    all.prop_map(|(mut fleet, strategy, scaling, past, natives)| {
        let (mut creating, mut backoff) = (BTreeMap::new(), FailedPodsBackoff::default());
        let nodes = fleet.nodes.iter_mut().zip(past).zip(natives);
        for ((node, (asked, went, known)), native) in nodes {
            node.native = native;
            for pod in node.pods.iter_mut() {
                pod.in_doubt = !known && pod.terminating && pod.leaving.is_none();
            }
            if asked && node.pods.is_empty() {
                creating.insert(node.name.clone(), now());
            }
            if went {
                backoff.note(&node.name, now());
            }
        }
        let given = Given {
            strategy,
            scaling,
            creating,
            backoff,
        };
        (fleet, given)
    })
}

fn alive(node: &Node) -> impl Iterator<Item = &Pod> {
    node.pods
        .iter()
        .filter(|pod| !pod.terminating && !pod.in_place.is_over)
}

fn deleted(manage: &Manage) -> BTreeSet<&PodUid> {
    let deletions = manage.actions.iter();
    let deletions = deletions.filter(|action| matches!(action, Action::Delete(_)));
    deletions.map(|action| &action.pod().uid).collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_pod_is_made_only_where_one_belongs_and_no_other_stands_or_was_asked_for((fleet, given) in given()) {
        let done = given.manage(&fleet);
        let once: BTreeSet<&NodeName> = done.create.iter().collect();
        prop_assert_eq!(once.len(), done.create.len(), "one node is asked for twice");
        let surges = given.surges();
        for name in &done.create {
            let node = fleet.nodes.iter().find(|node| node.name == *name).unwrap();
            prop_assert_eq!(node.native, Targeting::Run);
            prop_assert!(node.readiness != Readiness::Gone);
            prop_assert!(!given.creating.contains_key(name));
            let holds = |pod: &Pod| match surges {
                _ if pod.in_doubt => true,
                true => !pod.terminating,
                false => !pod.has_ended(),
            };
            prop_assert!(!node.pods.iter().any(holds), "{name} has a pod");
        }
        let targeted = fleet.nodes.len() + fleet.crowd.len();
        let burst = match given.scaling.burst {
            IntOrPercent::Number(pods) => pods as usize,
            share => share.resolve_down(targeted).max(1),
        };
        prop_assert!(done.create.len() <= burst && deleted(&done).len() <= burst);
    }

    #[test]
    fn where_a_pod_belongs_one_that_runs_is_left((fleet, given) in given()) {
        let done = given.manage(&fleet);
        for node in &fleet.nodes {
            let stays = |pod: &&Pod| !done.leaving.contains(&pod.uid);
            let left = alive(node).filter(stays).count();
            if node.readiness == Readiness::Gone {
                prop_assert!(alive(node).filter(|pod| pod.started.is_some()).all(|pod| stays(&pod)));
            } else if node.native == Targeting::No {
                prop_assert_eq!(left, 0);
            } else {
                prop_assert!(left > 0 || alive(node).next().is_none(), "{} lost its only pod", node.name);
                // While revisions are unknown, the controller can't tell which pod is the new one. It may then keep more than two.
                let is_known = alive(node).all(|pod| pod.revision != PodRevision::Unknown);
                prop_assert!(left <= 2 || !is_known);
                let is_pair = given.surges() || alive(node).any(|pod| pod.surge);
                let serves = |pod: &Pod| pod.ready_since.is_some();
                let served = alive(node).filter(stays).any(serves) || !alive(node).any(serves);
                prop_assert!(served || !is_pair, "{} lost the pod that serves", node.name);
            }
        }
        // Each pod is deleted by one write only. A pod that already terminates gets no write.
        let mut written = BTreeSet::new();
        for action in &done.actions {
            let uid = &action.pod().uid;
            prop_assert!(done.leaving.contains(uid) && written.insert(uid.clone()));
            let mut pods = fleet.nodes.iter().flat_map(|node| &node.pods);
            prop_assert!(pods.any(|pod| pod.uid == *uid && !pod.terminating));
        }
        prop_assert!(done.over.iter().all(|(_, uid)| deleted(&done).contains(uid)));
        prop_assert!(done.wake.is_none_or(|wake| wake > now()));
    }

    /// Checks that the same input gives the same decision, and that a request is not repeated after it was carried out.
    #[test]
    fn what_was_done_is_not_done_again((fleet, given) in given()) {
        let done = given.manage(&fleet);
        prop_assert_eq!(&given.manage(&fleet), &done);
        let gone = deleted(&done);
        let mut after = fleet.clone();
        for pod in after.nodes.iter_mut().flat_map(|node| node.pods.iter_mut()) {
            pod.terminating |= gone.contains(&pod.uid);
        }
        let mut next = given.clone();
        next.creating.extend(done.create.iter().map(|node| (node.clone(), now())));
        done.over.iter().for_each(|(node, _)| next.backoff.note(node, now()));
        let again = next.manage(&after);
        prop_assert!(again.create.iter().all(|node| !done.create.contains(node)));
        prop_assert!(deleted(&again).is_disjoint(&gone));
    }
}
