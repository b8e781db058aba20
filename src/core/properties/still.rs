//! Properties of blocked rollouts: if nothing changes any more, the rollout must not be reported as progressing.
//!
//! In this model, successful writes have no effect: pods keep terminating, new images never run, and no container starts. A write
//! that is rejected once is rejected every time.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::{carry_out, config, fleets, later, now, shares, strategies};
use crate::core::fleet::write_failures::WriteVerb;
use crate::core::{Strategy, *};

/// Number of decisions in a row.
const LOOKS: usize = 150;
/// Interval between the last decisions. It is longer than any deadline, soak time or maintenance window.
const LATER: Duration = Duration::from_secs(26 * 3600);
/// Maximum number of rejections in one run: on each node of the largest fleet, the creation of a surge pod and a deletion.
const ANSWERS: usize = 64;

/// Returns the fleet as the controller's index shows it directly after the controller's requests.
fn as_told(mut fleet: Fleet, at: Timestamp) -> Fleet {
    for node in &mut fleet.nodes {
        for pod in node.pods.iter_mut().filter(|pod| pod.terminating) {
            let grace = Duration::from_secs(30);
            let ends = later(at, grace);
            pod.leaving.get_or_insert(Box::new(Leaving {
                ends,
                stamped: ends,
                grace,
            }));
        }
        if node.pods.iter().all(|pod| pod.surge) {
            node.podless_since.get_or_insert(at);
        }
    }
    fleet
}

/// Makes one decision. Writes to pods of the nodes in `deaf` are rejected. All other writes succeed without effect.
fn look(strategy: &Strategy, fleet: &mut Fleet, deaf: &BTreeSet<NodeName>, at: Timestamp) -> Plan {
    let mut plan = decide(strategy, fleet, at);
    let nodes = fleet.nodes.clone();
    let holder = |action: &Action| {
        let holds = |node: &&Node| node.pods.iter().any(|pod| pod.uid == action.pod().uid);
        nodes.iter().find(holds).map(|node| node.name.clone())
    };
    let all = std::mem::take(&mut plan.actions);
    let (refused, taken): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|action| holder(action).is_some_and(|node| deaf.contains(&node)));
    for action in &refused {
        let node = holder(action).expect("it was found");
        let write = WriteVerb::from_action(action);
        let pod = Some(&action.pod().uid).filter(|_| write != WriteVerb::Create);
        fleet.write_failures.refuse((&node, pod), write, "no", at);
    }
    plan.actions = taken;
    let (pairs, others) = std::mem::take(&mut plan.actions)
        .into_iter()
        .partition(is_about_a_pair);
    plan.actions = others;
    let mut then = carry_out(fleet, &plan);
    for action in &pairs {
        pair(&mut then, action, at);
    }
    then.record = plan.record.clone();
    then.write_failures.tidy(&then.nodes);
    *fleet = as_told(then, at);
    plan.actions.extend(pairs.into_iter().chain(refused));
    plan
}

fn is_about_a_pair(action: &Action) -> bool {
    matches!(
        action,
        Action::Surge { .. } | Action::DeleteAfterSurge { .. } | Action::TransferOwnership(_)
    )
}

/// Carries out a write that concerns a surge pod.
fn pair(fleet: &mut Fleet, action: &Action, at: Timestamp) {
    let about = action.pod().uid.clone();
    let node = fleet
        .nodes
        .iter_mut()
        .find(|node| node.pods.iter().any(|pod| pod.uid == about));
    let node = node.expect("a node holds the pod");
    if let Action::Surge { .. } = action {
        node.pods.push(Pod {
            name: format!("{about}-new").as_str().into(),
            uid: format!("{about}-new").as_str().into(),
            created: at,
            ready_since: None,
            started: None,
            surge: true,
            ..testing::current(3)
        });
        return;
    }
    let mut pods = node.pods.iter_mut();
    let pod = pods.find(|pod| pod.uid == about).expect("it is there");
    match action {
        Action::TransferOwnership(_) => pod.surge = false,
        _ => pod.terminating = true,
    }
}

/// Turns the second pod of each node into a surge pod.
fn paired(mut fleet: Fleet) -> Fleet {
    for node in &mut fleet.nodes {
        for pod in node.pods.iter_mut().skip(1) {
            pod.surge = true;
        }
    }
    fleet
}

/// Decides again after each rejection. A rejection changes the state, and `min-interval` allows only one request at a time.
fn settle(
    strategy: &Strategy,
    fleet: &mut Fleet,
    deaf: &BTreeSet<NodeName>,
    at: Timestamp,
) -> Plan {
    let mut plan = look(strategy, fleet, deaf, at);
    for _ in 0..ANSWERS {
        let before = fleet.write_failures.clone();
        plan = look(strategy, fleet, deaf, at);
        if fleet.write_failures == before {
            break;
        }
    }
    plan
}

/// Decides at each wake-up time of the plans. The last decision is so late that time alone changes nothing any more.
fn wait(strategy: &Strategy, fleet: Fleet, deaf: &BTreeSet<NodeName>) -> Plan {
    let mut fleet = as_told(fleet, now());
    let mut at = now();
    for number in 0..LOOKS {
        let plan = settle(strategy, &mut fleet, deaf, at);
        let next = later(at, Duration::from_secs(1));
        at = match plan.next_wake {
            _ if number > LOOKS - 20 => later(at, LATER),
            Some(wake) => wake.max(next).min(later(at, LATER)),
            None if plan.actions.is_empty() => later(at, LATER),
            None => next,
        };
    }
    settle(strategy, &mut fleet, deaf, at);
    // The number of retries per second is limited. If rejections have used up the limit, decide about the remaining nodes two
    // seconds later.
    look(
        strategy,
        &mut fleet,
        deaf,
        later(at, Duration::from_secs(2)),
    )
}

/// Returns true if the verdict itself shows what the node waits for: a maintenance window or an approval.
fn waits_by_name(verdict: &Verdict) -> bool {
    matches!(
        verdict,
        Verdict::OutOfWindow { .. }
            | Verdict::WaveNotOpen {
                why: WaveShut::Approval { .. },
                ..
            }
    )
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_blocked_rollout_reports_no_progress(
        strategy in strategies(), fleet in fleets(), deaf in vec(any::<bool>(), 24), refuses in any::<bool>(),
        surge in option::weighted(0.5, shares()),
    ) {
        let deaf = fleet.nodes.iter().zip(deaf).filter(|(_, deaf)| *deaf && refuses);
        let deaf: BTreeSet<NodeName> = deaf.map(|(node, _)| node.name.clone()).collect();
        let fleet = if surge.is_some() { paired(fleet) } else { fleet };
        let strategy = Strategy {
            // Disable pre-pulls. A pull ends at the latest by the deadline of its Job, which this model doesn't have.
            image_predownload_parallelism: Some(IntOrPercent::Number(0)),
            predownload: None,
            rolling_update_type: match surge {
                Some(_) => RollingUpdateType::Standard,
                None => strategy.rolling_update_type,
            },
            max_surge: surge.unwrap_or(IntOrPercent::Number(0)),
            ..strategy
        };
        let plan = wait(&strategy, fleet, &deaf);
        let named = plan.verdicts.iter().any(waits_by_name);
        prop_assert!(plan.phase != Phase::Progressing || named, "{plan:?}");
    }
}
