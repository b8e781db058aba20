//! Properties that hold for every fleet, every strategy and every order of events.
//!
//! The properties in this file are about one decision for a random fleet. The properties in `story` are about many decisions during
//! a random sequence of events (a *story*) in `world`, a small model of a cluster.
//!
//! The seed is fixed, so that a run can be repeated. `PROPTEST_RNG_SEED` and `PROPTEST_CASES` set another seed and another number
//! of cases. `YURT_DS_DEEP=1` runs as many cases as the CI.
//!
//! To show that the properties find errors, `tests/mutants.toml` lists a mutant for each: a deliberate mistake in the engine, with
//! which the property must fail (`.ci/mutants`).

mod crowd;
mod evictions;
mod golden;
mod guarded;
mod invalid;
mod manage;
mod paused;
mod place;
mod pulls;
mod revert;
mod sequence;
mod still;
mod story;
mod surge;
mod upkeep;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;
use proptest::test_runner::RngSeed;

use super::action::BATCH;
use super::instant::later;
use super::selector::Selector;
use super::*;
use crate::core::Strategy;
use crate::machine;

/// Seed of every run, unless `PROPTEST_RNG_SEED` sets another.
const SEED: u64 = 20;

/// Number of cases per property: by default, and with `YURT_DS_DEEP=1`. `PROPTEST_CASES` sets another number.
const CASES: [usize; 2] = [64, 256];

fn config() -> ProptestConfig {
    let mut asked = ProptestConfig::default();
    if !machine::is_set("PROPTEST_CASES") {
        let [few, all] = CASES;
        asked.cases = machine::limit(few, all)
            .try_into()
            .expect("a number of cases");
    }
    let rng_seed = match asked.rng_seed {
        RngSeed::Random => RngSeed::Fixed(SEED),
        fixed => fixed,
    };
    ProptestConfig {
        rng_seed,
        failure_persistence: None,
        max_global_rejects: asked.max_global_rejects.max(4 * asked.cases),
        ..asked
    }
}

/// Current time in all random fleets.
fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn after(start: Timestamp, seconds: i64) -> Timestamp {
    start + SignedDuration::from_secs(seconds)
}

/// Generates a time in the last minutes, or rarely a few seconds in the future, because clocks differ.
fn recent() -> impl Random<Timestamp> {
    (-400_i64..5).prop_map(|seconds| after(now(), seconds))
}

/// Generates a time shortly before or after now.
fn soon() -> impl Random<Timestamp> {
    (-100_i64..100).prop_map(|seconds| after(now(), seconds))
}

/// Generator of random values. Proptest calls it `Strategy`, but that is the name of the settings here.
trait Random<T>: proptest::strategy::Strategy<Value = T> {}
impl<T, S: proptest::strategy::Strategy<Value = T>> Random<T> for S {}

fn strategies() -> impl Random<Strategy> {
    let scope = (
        option::weighted(0.3, shares()),
        option::weighted(0.3, zones()),
        option::weighted(0.2, sequence::topologies()),
        option::weighted(0.2, sequence::waves()),
    );
    let times = (0..60_u64, 0..60_u64);
    let pace = (
        option::weighted(0.2, 1..300_u64),
        option::weighted(0.2, shares()),
        option::weighted(0.2, windows()),
        (
            option::weighted(0.3, shares()),
            option::weighted(0.5, Just(Predownload::Required)),
        ),
        (
            option::weighted(0.4, hooks().prop_map(Arc::new)),
            prop_oneof![Just(Disruption::Delete), Just(Disruption::Evict)],
        ),
    );
    let manner = prop_oneof![
        3 => Just(RollingUpdateType::Standard),
        1 => Just(RollingUpdateType::InPlaceIfPossible)
    ];
    let guard = (
        option::weighted(0.3, 1..400_u64),
        option::weighted(0.3, (0..4_u32).prop_map(IntOrPercent::Number)),
        option::weighted(0.1, prop_oneof!["new", "old"]),
        prop::bool::weighted(0.1),
    );
    (
        modes(),
        shares(),
        pauses(),
        times,
        scope,
        (pace, guard, manner),
    )
        .prop_map(
            |(mode, max_unavailable, pause, (min_ready, ready_settle), scope, rest)| {
                let (partition, zone, topology, waves) = scope;
                let (pace, guard, rolling_update_type) = rest;
                Strategy {
                    rolling_update_type,
                    topology,
                    waves,
                    min_interval: Duration::from_secs(pace.0.unwrap_or(0)),
                    ramp_up: pace.1,
                    failure_window: guard.0.map(Duration::from_secs),
                    failure_threshold: guard.1,
                    resume: guard.2.map(|hash| hash.as_str().into()),
                    broken_unlimited: guard.3,
                    window: pace.2,
                    image_predownload_parallelism: pace.3.0,
                    predownload: pace.3.1,
                    pre_delete: pace.4.0,
                    disruption: pace.4.1,
                    max_unavailable,
                    partition: partition.unwrap_or(IntOrPercent::Number(0)),
                    selector: zone.map(|zone| selector(&zone)),
                    pause,
                    min_ready: Duration::from_secs(min_ready),
                    ready_settle: Duration::from_secs(ready_settle),
                    ..Strategy::with_mode(mode)
                }
            },
        )
}

/// Generates a maintenance window that opens and closes within minutes of now, which is a Friday at 08:00.
fn windows() -> impl Random<Arc<Windows>> {
    (470..480_u16, 475..490_u16).prop_filter_map("an empty window", |(from, to)| {
        let time = |minutes: u16| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        let text = format!("Fri {}-{} UTC", time(from), time(to));
        Windows::read(&text).ok().map(Arc::new)
    })
}

/// Generates names of zones. Every node is in one of them.
fn zones() -> impl Random<String> {
    "[ab]"
}

fn selector(zone: &str) -> selector::Selector {
    selector::Selector::from_query(&format!("zone={zone}")).unwrap()
}

fn modes() -> impl Random<Mode> {
    prop_oneof![4 => Just(Mode::AdvancedRollingUpdate), 1 => Just(Mode::Ota)]
}

fn shares() -> impl Random<IntOrPercent> {
    prop_oneof![
        (1..6_u32).prop_map(IntOrPercent::Number),
        (1..150_u32).prop_map(IntOrPercent::Percent),
    ]
}

fn pauses() -> impl Random<Option<Pause>> {
    prop_oneof![
        8 => Just(None),
        1 => Just(Some(Pause::Indefinite)),
        2 => soon().prop_map(|at| Some(Pause::Until(at))),
    ]
}

/// Generates fleets. Half of them have few problems. With all kinds of problems at once, a fleet would make little progress.
fn fleets() -> impl Random<Fleet> {
    let calm = vec(prop::bool::weighted(0.8), 24);
    (wild_fleets(), option::weighted(0.5, calm)).prop_map(|(mut fleet, calm)| {
        if let Some(calm) = calm {
            fleet.revision = RevisionState::Current("new".into());
            fleet.record = None;
            let nodes = fleet.nodes.iter_mut().zip(calm);
            nodes
                .filter(|(_, calm)| *calm)
                .for_each(|(node, _)| settle(node));
        }
        fleet
    })
}

/// Makes the node healthy: Ready for an hour, with at most one pod, which has been Ready for half an hour.
fn settle(node: &mut Node) {
    node.targeting = Targeting::Run;
    node.readiness = Readiness::Ready {
        since: after(now(), -3600),
    };
    (node.hold, node.window, node.podless_since) = (None, None, None);
    (node.disrupted_at, node.emptied) = (None, false);
    node.pods = node.pods.first().cloned().into_iter().collect();
    for pod in &mut node.pods {
        let made = after(now(), -1800 - pod.number);
        (pod.created, pod.started, pod.ready_since) = (made, Some(made), Some(made));
        (pod.terminating, pod.leaving, pod.unready_since) = (false, None, None);
        (pod.problem, pod.exit.gate, pod.exit.preparing) = (None, None, None);
        if pod.revision == PodRevision::Unknown {
            pod.revision = PodRevision::Outdated;
        }
    }
}

fn wild_fleets() -> impl Random<Fleet> {
    let revision = prop_oneof![
        9 => Just(RevisionState::Current("new".into())),
        1 => Just(RevisionState::Unknown(RevisionUnknown::Mismatch)),
    ];
    let record = option::weighted(0.3, guarded::records());
    let told = (place::transitions(), record);
    let history = (any::<bool>(), option::weighted(0.2, 0..3_i64));
    let fleet = (
        revision,
        history,
        [any::<bool>(), any::<bool>()],
        vec(nodes(), 0..24),
        told,
        paused::records(),
    );
    fleet.prop_map(
        |(
            revision,
            (replaces, undone),
            [in_order, is_proven],
            mut nodes,
            (transitions, record),
            pause,
        )| {
            for (i, node) in nodes.iter_mut().enumerate() {
                node.name = format!("n{i:02}").into();
                for (j, pod) in node.pods.iter_mut().enumerate() {
                    pod.name = format!("p{i:02}-{j}").into();
                    pod.uid = format!("u{i:02}-{j}").into();
                }
                sort_pods(node);
            }
            Fleet {
                revision,
                made: None,
                adopted: None,
                is_proven,
                behind_since: None,
                replaces,
                earlier: Vec::new(),
                undone,
                evictions: Default::default(),
                write_failures: Default::default(),
                transitions,
                rollback_targets: Default::default(),
                record,
                pause: Some(pause),
                kind: Default::default(),
                not_created: None,
                not_ready: Default::default(),
                in_order,
                nodes,
                crowd: Default::default(),
            }
        },
    )
}

/// Gives all nodes new names with the same order.
fn renamed(fleet: Fleet) -> Fleet {
    let name = |name: &NodeName| NodeName::from(format!("longer-{name}").as_str());
    let names = |names: &BTreeSet<NodeName>| names.iter().map(name).collect();
    let rename = |mut node: Node| {
        node.name = name(&node.name);
        for pod in &mut node.pods {
            pod.name = format!("longer-{}", pod.name).as_str().into();
            pod.uid = format!("longer-{}", pod.uid).as_str().into();
        }
        node
    };
    let record = fleet.record.map(|record| FailureRecord {
        failed: names(&record.failed),
        broken_before: names(&record.broken_before),
        replaced_twice: names(&record.replaced_twice),
        updated_before_loss: names(&record.updated_before_loss),
        lost: (record.lost.iter())
            .map(|(node, since)| (name(node), *since))
            .collect(),
        control_group: (record.control_group.iter())
            .map(|(node, since)| (name(node), *since))
            .collect(),
        waves: (record.waves.iter())
            .map(|(wave, nodes)| (wave.clone(), names(nodes)))
            .collect(),
        ..record
    });
    Fleet {
        nodes: fleet.nodes.into_iter().map(rename).collect(),
        record,
        ..fleet
    }
}

fn sort_pods(node: &mut Node) {
    let mut pods: Vec<Pod> = std::mem::take(&mut node.pods).into_iter().collect();
    pods.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    node.pods = pods.into();
}

fn nodes() -> impl Random<Node> {
    let targeting = prop_oneof![
        8 => Just(Targeting::Run),
        1 => Just(Targeting::Keep),
        1 => Just(Targeting::No),
    ];
    let readiness = prop_oneof![
        8 => recent().prop_map(|since| Readiness::Ready { since }),
        3 => option::of(recent()).prop_map(|since| Readiness::NotReady { since }),
        1 => Just(Readiness::Gone),
    ];
    let count = prop_oneof![1 => Just(0_usize), 10 => Just(1), 1 => Just(2), 1 => Just(3)];
    let pods = count.prop_flat_map(|count| vec(pods(), count));
    let own = (
        option::weighted(0.1, option::of(soon())),
        option::weighted(0.1, windows()),
        prop::bool::weighted(0.2),
        option::weighted(0.3, recent()),
        prop::bool::weighted(0.3),
        option::weighted(0.1, 2..5_u32),
        option::weighted(0.2, vec(recent(), 1..3)),
    );
    (
        targeting,
        readiness,
        pods,
        option::of(recent()),
        zones(),
        own,
    )
        .prop_map(
            |(
                targeting,
                readiness,
                pods,
                podless,
                zone,
                (hold, window, has_images, disrupted_at, emptied, ended, losses),
            )| Node {
                name: "".into(),
                labels: [("zone", zone)].into_iter().collect(),
                window: window.map(NodeWindow::Windows),
                hold: hold.map(|until| Hold {
                    until,
                    reason: "".into(),
                    unreadable: false,
                }),
                targeting,
                native: targeting,
                readiness,
                // The controller knows when a terminating pod was deleted.
                disrupted_at: disrupted_at.or(began_to_leave(&pods)),
                emptied,
                kept_away_by: None,
                had_pod: emptied,
                trouble: ended.map(evicted),
                losses: losses.map(|losses| in_order(losses).into()),
                cut_off: false,
                podless_since: podless.filter(|_| pods.is_empty()),
                has_images,
                pods: pods.into(),
            },
        )
}

fn in_order(mut times: Vec<Timestamp>) -> Vec<Timestamp> {
    times.sort();
    times
}

/// Returns the problem of a node on which as many pods as `ended` were evicted, one after the other.
fn evicted(ended: u32) -> Box<PodProblem> {
    let problem = PodProblem {
        reason: "Evicted".into(),
        detail: Default::default(),
        restarts: 0,
        ended,
    };
    problem.into()
}

/// Returns the creation time of the youngest outdated pod that is terminating. Its deletion can't have begun earlier.
fn began_to_leave(pods: &[Pod]) -> Option<Timestamp> {
    let leaves = |pod: &&Pod| pod.terminating && pod.revision == PodRevision::Outdated;
    pods.iter().filter(leaves).map(|pod| pod.created).max()
}

fn pods() -> impl Random<Pod> {
    let revision = prop_oneof![
        40 => Just(PodRevision::Current),
        60 => Just(PodRevision::Outdated),
        1 => Just(PodRevision::Unknown),
    ];
    let revision = (revision, 0..3_i64);
    let problem = option::weighted(0.2, (prop_oneof!["Error", "ErrImagePull"], 0..5_u32));
    let conditions = (
        option::of(conditions()),
        option::weighted(0.2, conditions()),
    );
    (
        (
            recent(),
            option::of(recent()),
            option::weighted(0.8, recent()),
            option::of(recent()),
        ),
        (revision, prop::bool::weighted(0.15), problem, conditions),
        (exits(), place::pods(), prop::bool::weighted(0.8)),
    )
        .prop_map(|((created, started, ready_since, unready), rest, own)| {
            let ((revision, number), terminating, problem, (need_upgrade, image_ready)) = rest;
            let (exit, in_place, of_template): (Exit, _, _) = own;
            // The pod can only be Ready if its readiness gate has a status.
            let gate = exit.gate.as_ref();
            let may_be_ready = gate.is_none_or(|gate| gate.status.is_some());
            let ready_since = ready_since.filter(|_| may_be_ready);
            Pod {
                name: "".into(),
                uid: "".into(),
                created,
                revision,
                number: match revision {
                    PodRevision::Current => 3,
                    PodRevision::Outdated => number,
                    PodRevision::Unknown => 0,
                },
                of_template,
                terminating,
                leaving: unready.filter(|_| terminating).map(|ends| {
                    let grace = Duration::from_secs(30);
                    Box::new(Leaving {
                        ends,
                        stamped: ends,
                        grace,
                    })
                }),
                ready_since,
                unready_since: unready.filter(|_| ready_since.is_none() && may_be_ready),
                started,
                in_place: in_place.into(),
                problem: problem.map(|(reason, restarts)| {
                    PodProblem {
                        detail: Default::default(),
                        reason: reason.into(),
                        restarts,
                        ended: 0,
                    }
                    .into()
                }),
                exit: exit.into(),
                need_upgrade: need_upgrade.map(Box::new),
                image_ready: image_ready.map(Box::new),
                ..testing::old(0)
            }
        })
}

fn exits() -> impl Random<Exit> {
    let gate = prop_oneof![
        Just(None),
        Just(Some((true, ""))),
        Just(Some((
            false,
            r#"[{"userAgent":"Lifecycle","key":"preDeleteHook"}]"#
        ))),
        Just(Some((false, r#"[{"userAgent":"Drain","key":"x"}]"#))),
        Just(Some((false, "drained"))),
    ];
    let preparing = option::of(recent()).prop_map(|since| PreDeleteHook { since });
    (
        prop::bool::weighted(0.4),
        prop::bool::weighted(0.2),
        option::weighted(0.15, preparing),
        option::weighted(0.3, (gate.prop_map(Gate::read), option::of(recent()))),
    )
        .prop_map(|(label, finalizer, preparing, gate)| Exit {
            labels: label.then_some(("drain", "true")).into_iter().collect(),
            finalizers: finalizer.then(|| "x.io/y".into()).into_iter().collect(),
            preparing,
            gate: gate.map(|(gate, changed)| gate.changed_at(changed).into()),
        })
}

fn hooks() -> impl Random<PreDelete> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(label, finalizer, mark)| PreDelete {
        labels: label
            .then(|| ("drain".into(), "true".into()))
            .into_iter()
            .collect(),
        finalizers: finalizer.then(|| "x.io/y".into()).into_iter().collect(),
        mark_not_ready: mark,
    })
}

fn conditions() -> impl Random<OtaCondition> {
    let hashes = prop_oneof!["new", "old"].prop_map(|hash| hash.as_str().into());
    let failure = option::of((recent(), soon()));
    (any::<bool>(), option::of(hashes), any::<bool>(), failure).prop_map(
        |(status, revision, waits, failure)| OtaCondition {
            status,
            revision,
            waits: waits && !status,
            repelled: false,
            failure: failure.filter(|_| !status).map(|(asked, failed)| {
                Arc::new(PullFailure {
                    asked,
                    failed,
                    why: "".into(),
                })
            }),
        },
    )
}

/// Returns the fleet after all actions of the plan have succeeded.
fn carry_out(fleet: &Fleet, plan: &Plan) -> Fleet {
    let mut fleet = fleet.clone();
    for action in &plan.actions {
        let target = action.pod();
        if action.takes_down() {
            let holds = |node: &&mut Node| node.pods.iter().any(|pod| pod.uid == target.uid);
            let node = fleet.nodes.iter_mut().find(holds);
            node.unwrap().disrupted_at = Some(now());
        }
        let mut pods = fleet.nodes.iter_mut().flat_map(|node| &mut node.pods);
        let pod = pods.find(|pod| pod.uid == target.uid).unwrap();
        match action {
            Action::Delete(_) | Action::Evict(_) => pod.terminating = true,
            Action::UpdateInPlace { patch, .. } => {
                pod.of_template = patch.reverts.is_none();
                pod.revision = match patch.reverts {
                    None => PodRevision::Current,
                    Some(_) => PodRevision::Outdated,
                };
                pod.in_place.revision = Some(patch.revision.clone());
                pod.in_place.reverted_from = patch.reverts.clone();
                // The problem concerned the old containers.
                pod.problem = None;
                let mut unfinished = patch.before.clone();
                unfinished.retain(|_, before| before.image_id.is_some());
                pod.in_place.update = Some(crate::core::fleet::in_place::InPlaceUpdate {
                    at: now(),
                    is_carried_out: unfinished.is_empty(),
                });
                pod.in_place.unfinished = unfinished;
            }
            Action::Mark {
                preparing, gate, ..
            } => {
                match preparing {
                    None => {}
                    Some(true) => pod.exit.preparing = Some(PreDeleteHook { since: Some(now()) }),
                    Some(false) => pod.exit.preparing = None,
                }
                if let Some(gate) = gate {
                    let gate = Gate::read(Some((gate.open, &gate.message)));
                    pod.exit.gate = Some(gate.changed_at(Some(now())).into());
                }
            }
            Action::Surge { .. }
            | Action::DeleteAfterSurge { .. }
            | Action::TransferOwnership(_) => {
                panic!("nothing surges here: {action:?}")
            }
            Action::SetNeedUpgrade {
                needed,
                revision,
                repelled,
                stale_image,
                ..
            } => {
                match stale_image {
                    None => {}
                    Some(StaleImage::Drop) => pod.image_ready = None,
                    Some(StaleImage::AskAgain) => {
                        pod.image_ready = Some(request(revision).into());
                    }
                }
                pod.need_upgrade = Some(
                    OtaCondition {
                        status: *needed,
                        revision: Some(revision.clone()),
                        waits: !needed,
                        repelled: *repelled,
                        failure: None,
                    }
                    .into(),
                );
            }
            Action::AskForImages { revision, anew, .. } => {
                let before = pod.image_ready.take().filter(|_| !anew);
                pod.image_ready = Some(
                    OtaCondition {
                        failure: before.and_then(|before| before.failure),
                        ..request(revision)
                    }
                    .into(),
                );
            }
            Action::RemoveConditions { types, .. } => {
                for kind in types {
                    match *kind {
                        names::POD_NEED_UPGRADE => pod.need_upgrade = None,
                        names::POD_IMAGE_READY => pod.image_ready = None,
                        other => panic!("not a condition of ours: {other}"),
                    }
                }
            }
        }
    }
    fleet
}

/// Returns a condition `PodImageReady` that requests a pull.
fn request(revision: &Revision) -> OtaCondition {
    OtaCondition {
        status: false,
        revision: Some(revision.clone()),
        waits: true,
        repelled: false,
        failure: None,
    }
}

/// Returns the pods that the plan replaces, by deletion or by an in-place update.
fn deleted(plan: &Plan) -> Vec<&PodRef> {
    let replaces = |action: &&Action| {
        matches!(
            action,
            Action::Delete(_) | Action::Evict(_) | Action::UpdateInPlace { .. }
        )
    };
    let replaced = plan.actions.iter().filter(replaces);
    replaced.map(Action::pod).collect()
}

/// Returns the pods whose replacement begins with this plan. The replacement of a pod that was marked for deletion earlier has
/// begun before.
fn begun<'a>(fleet: &Fleet, plan: &'a Plan) -> Vec<&'a PodRef> {
    let mut begun = Vec::new();
    for action in &plan.actions {
        let waited = |pod: &Pod| pod.uid == action.pod().uid && pod.exit.preparing.is_some();
        if action.begins() && !fleet.nodes.iter().flat_map(|node| &node.pods).any(waited) {
            begun.push(action.pod());
        }
    }
    begun
}

fn is_available(pod: &Pod, strategy: &Strategy, now: Timestamp) -> bool {
    let ripe = |since| later(since, strategy.min_ready) <= now;
    !pod.terminating && !pod.in_place.is_under_way() && pod.ready_since.is_some_and(ripe)
}

/// Returns true if the node waits for its wave to open. It may also wait for something else.
fn awaits_wave(node: &Node, verdict: &Verdict, plan: &Plan, strategy: &Strategy) -> bool {
    let stand = |waves: &Arc<Waves>| {
        plan.waves
            .get(waves.index_for(&node.labels))
            .map(|stand| stand.state)
    };
    match verdict {
        Verdict::WaveNotOpen { .. } => true,
        Verdict::Guarded(_) | Verdict::Paused { .. } => {
            let state = strategy.waves.as_ref().and_then(stand);
            matches!(state, Some(WaveState::NotOpen(_)))
        }
        _ => false,
    }
}

/// Returns true if another client deleted the node's pod and the node doesn't take part in the rollout. Such a node takes no slot
/// while it gets a new pod.
///
/// The node doesn't take part because it is not selected, or because its wave is not open.
fn is_taken_by_others(node: &Node, verdict: &Verdict, plan: &Plan, strategy: &Strategy) -> bool {
    let Verdict::InProgress(progress) = verdict else {
        return false;
    };
    let selector = strategy.selector.as_ref();
    let is_selected = selector.is_none_or(|all| all.matches(|key| node.labels.get(key)));
    let waves = strategy.waves.as_ref();
    let stand = waves.and_then(|waves| plan.waves.get(waves.index_for(&node.labels)));
    let is_shut = stand.is_some_and(|stand| matches!(stand.state, WaveState::NotOpen(_)));
    let is_ours = node.emptied || matches!(progress, Progress::UpdatingInPlace { .. });
    (!is_selected || is_shut) && !is_ours
}

/// Returns the number of targeted Ready nodes that lack an available pod and take a slot.
///
/// Nodes that take no slot: nodes that returned recently with an old pod, nodes that keep their pod because of a setting, nodes
/// that wait for their wave, and nodes that don't take part and whose pod another client deleted.
fn lacking(fleet: &Fleet, plan: &Plan, strategy: &Strategy, now: Timestamp) -> usize {
    let nodes = fleet.nodes.iter().zip(&plan.verdicts);
    let lacks = nodes.filter(|(node, verdict)| lacks(node, verdict, plan, strategy, now));
    lacks.count()
}

/// Returns true if [`lacking`] counts the node.
fn lacks(node: &Node, verdict: &Verdict, plan: &Plan, strategy: &Strategy, now: Timestamp) -> bool {
    let Readiness::Ready { since } = node.readiness else {
        return false;
    };
    let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
    let settling = alive.clone().count() == 1
        && alive.clone().all(|pod| {
            pod.revision == PodRevision::Outdated
                && pod.started.unwrap_or(pod.created) < since
                && later(since, strategy.ready_settle) > now
        });
    node.targeting == Targeting::Run
        && !settling
        && !matches!(
            verdict,
            Verdict::Partition | Verdict::NotSelected | Verdict::Held { .. }
        )
        && !awaits_wave(node, verdict, plan, strategy)
        && !is_taken_by_others(node, verdict, plan, strategy)
        && (matches!(verdict, Verdict::HookPending { .. })
            || !alive.any(|pod| is_available(pod, strategy, now)))
}

/// Returns true if a pause allows the action.
///
/// A pause allows to remove deletion marks and to open readiness gates. If the node of a surge pod has no old pod, or is not
/// eligible, a pause also allows to transfer or delete the surge pod.
fn is_upkeep(fleet: &Fleet, action: &Action) -> bool {
    let made_beside = |uid: &PodUid| {
        let holds = |node: &&Node| node.pods.iter().any(|pod| pod.uid == *uid);
        let node = fleet.nodes.iter().find(holds).expect("a node");
        let old =
            |pod: &Pod| !pod.surge && !pod.terminating && pod.revision == PodRevision::Outdated;
        let stays = node.targeting != Targeting::No && node.readiness != Readiness::Gone;
        node.pods.iter().any(|pod| pod.uid == *uid && pod.surge)
            && !(stays && node.pods.iter().any(old))
    };
    match action {
        Action::Mark {
            preparing, gate, ..
        } => *preparing != Some(true) && gate.as_ref().is_none_or(|gate| gate.open),
        Action::TransferOwnership(pod) | Action::Delete(pod) => made_beside(&pod.uid),
        _ => false,
    }
}

/// Returns true if the action only opens the readiness gate of a new pod.
fn opens_gate(action: &Action) -> bool {
    match action {
        Action::Mark {
            preparing: None,
            gate: Some(gate),
            ..
        } => gate.open,
        _ => false,
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_node_has_one_verdict_and_the_numbers_add_up(
        strategy in strategies(), fleet in fleets(),
    ) {
        let plan = decide(&strategy, &fleet, now());
        prop_assert_eq!(plan.verdicts.len(), fleet.nodes.len());
        prop_assert_eq!(plan.counts.by_word.iter().sum::<usize>(), fleet.nodes.len());
        for word in Verdict::WORDS {
            let of_word = plan.verdicts.iter().filter(|verdict| verdict.word() == word).count();
            let index = Verdict::WORDS.iter().position(|other| *other == word).unwrap();
            prop_assert_eq!(plan.counts.by_word[index], of_word);
        }
        let most = strategy.max_unavailable.resolve(plan.counts.base);
        match strategy.ramp_up {
            _ if strategy.mode == Mode::Ota => prop_assert_eq!(plan.counts.allowed, 0),
            None => prop_assert_eq!(plan.counts.allowed, most),
            Some(_) => prop_assert!(plan.counts.allowed <= most),
        }
    }

    #[test]
    fn only_a_settled_online_targeted_node_with_one_outdated_pod_is_touched(
        strategy in strategies(), fleet in fleets(),
    ) {
        let plan = decide(&strategy, &fleet, now());
        for target in deleted(&plan) {
            let holds = |node: &&Node| node.pods.iter().any(|pod| pod.uid == target.uid);
            let node = fleet.nodes.iter().find(holds).unwrap();
            let alive: Vec<_> = node.pods.iter().filter(|pod| !pod.terminating).collect();
            prop_assert_eq!(alive.len(), 1);
            prop_assert_eq!(&alive[0].uid, &target.uid);
            prop_assert_eq!(&alive[0].resource_version, &target.resource_version);
            prop_assert_eq!(alive[0].revision, PodRevision::Outdated);
            prop_assert_eq!(node.targeting, Targeting::Run);
            let Readiness::Ready { since } = node.readiness else {
                return Err(TestCaseError::fail("a pod on an offline node is deleted"));
            };
            let returned = alive[0].started.unwrap_or(alive[0].created) < since;
            prop_assert!(!returned || later(since, strategy.ready_settle) <= now());
        }
    }

    #[test]
    fn an_outdated_pod_that_would_have_no_successor_stays_and_is_counted(
        strategy in strategies(), fleet in fleets(),
    ) {
        let plan = decide(&strategy, &fleet, now());
        let keeps = |node: &Node| {
            let is_old = |pod: &Pod| !pod.terminating && pod.revision == PodRevision::Outdated;
            node.targeting == Targeting::Keep
                && node.readiness != Readiness::Gone
                && node.pods.iter().any(is_old)
        };
        let kept: Vec<bool> = fleet.nodes.iter().map(keeps).collect();
        for (kept, verdict) in kept.iter().zip(&plan.verdicts) {
            prop_assert_eq!(*kept, *verdict == Verdict::UntoleratedTaint, "{:?}", verdict);
        }
        let count = kept.iter().filter(|kept| **kept).count();
        prop_assert_eq!(plan.counts.repelled, count);
        if let Phase::Complete { kept, .. } = plan.phase {
            prop_assert_eq!(kept, count + plan.counts.kept);
            let named = plan.exceptions(&fleet, &strategy).join("; ").contains("untolerated taint: ");
            prop_assert_eq!(named, count > 0);
        }
    }

    #[test]
    fn the_budget_is_never_exceeded_and_used_up(strategy in strategies(), fleet in fleets()) {
        let plan = decide(&strategy, &fleet, now());
        let lacking = lacking(&carry_out(&fleet, &plan), &plan, &strategy, now());
        let was_available = |target: &&PodRef| {
            let mut pods = fleet.nodes.iter().flat_map(|node| &node.pods);
            pods.any(|pod| pod.uid == target.uid && is_available(pod, &strategy, now()))
        };
        let deleted = begun(&fleet, &plan);
        let of_available = deleted.iter().filter(|target| was_available(target)).count();
        let allowed = plan.counts.allowed;
        prop_assert!(of_available == 0 || lacking <= allowed, "{lacking} of {allowed} lack a pod");
        prop_assert!(strategy.broken_unlimited || deleted.len() <= allowed.max(1));
        // If no rollout is active, the verdict of a node doesn't show if a setting keeps the node on its revision, or if its wave
        // is closed. So the numbers are compared only if there are no waves, or if a rollout is active.
        let told = plan.counts.unavailable + plan.counts.kept;
        let rolls = strategy.mode == Mode::AdvancedRollingUpdate
            && !is_paused(&strategy, now())
            && !plan.phase.is_behind();
        let is_told = strategy.waves.is_none() || rolls;
        prop_assert!(!is_told || told >= lacking, "{:?}, counted {lacking}", plan.counts);
        let left = |broken| plan.verdicts.contains(&Verdict::Budget { broken });
        if deleted.len() < BATCH && strategy.min_interval.is_zero() && strategy.topology.is_none() && strategy.waves.is_none() {
            prop_assert!(!left(false) || plan.counts.unavailable >= allowed);
            prop_assert!(!left(true) || plan.counts.unavailable >= allowed.max(1));
        }
    }

    #[test]
    fn a_node_that_is_not_selected_and_that_others_emptied_uses_no_budget(
        strategy in strategies(), fleet in fleets(), made in recent(),
    ) {
        let strategy = Strategy {
            mode: Mode::AdvancedRollingUpdate,
            selector: Some(Selector::from_query("zone in (a,b,c)").expect("a selector")),
            partition: IntOrPercent::Number(0),
            failure_threshold: Some(IntOrPercent::Number(5)),
            waves: None,
            topology: None,
            ..strategy
        };
        let pod = Pod { created: made, ..testing::current(2).broken() };
        let node = Node {
            name: "zz".into(),
            labels: [("zone", "outside")].into_iter().collect(),
            ..testing::node("zz", pod)
        };
        let used = |fleet: &Fleet| decide(&strategy, fleet, now()).counts.unavailable;
        // A NotReady node can affect other nodes in two ways: the guard compares losses with it, and its pod can prove the
        // revision. Exclude both ways here.
        let mut fleet = Fleet { is_proven: true, record: None, ..fleet };
        fleet.nodes.retain(Node::is_ready);
        let mut beside = fleet.clone();
        beside.nodes.push(node);
        prop_assert_eq!(used(&beside), used(&fleet));
    }

    #[test]
    fn what_is_kept_is_never_touched_and_no_more_is_kept_than_asked_for(
        strategy in strategies(), fleet in fleets(),
    ) {
        let mut pods = fleet.nodes.iter().flat_map(|node| &node.pods);
        // While the revision of any pod is unknown, the plan replaces nothing.
        prop_assume!(!pods.any(|pod| pod.revision == PodRevision::Unknown));
        let plan = decide(&strategy, &fleet, now());
        let is_undone = |pod: &Pod| fleet.undone == Some(pod.number);
        // Nodes that `selector` or a hold excludes also keep their pods. The number in `partition` includes these nodes, whatever
        // the revision of their pods.
        let is_out = |node: &Node| {
            let selector = strategy.selector.as_ref();
            let selected = selector.is_none_or(|selector| selector.matches(|key| node.labels.get(key)));
            !selected || node.hold.as_ref().is_some_and(|hold| hold.holds(now()))
        };
        let runs_old = |node: &&Node| {
            let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
            let settled = node.is_ready() || node.pods.iter().all(|pod| !pod.terminating);
            node.targeting == Targeting::Run
                && node.readiness != Readiness::Gone
                && settled
                && alive.clone().count() > 0
                // If the node has several pods, `partition` looks at the revision of the first.
                && (is_out(node) || !alive.clone().next().is_some_and(is_undone))
                && alive.all(|pod| pod.revision == PodRevision::Outdated)
        };
        let old = fleet.nodes.iter().filter(runs_old).count();
        let then = carry_out(&fleet, &plan).nodes.iter().filter(runs_old).count();
        let kept = strategy.partition.resolve_down(plan.counts.targeted);
        prop_assert!(then >= old.min(kept), "{then} of {old} are left, {kept} are to be kept");
        let by_word = |verdict: Verdict| plan.counts.by_word[verdict.index()];
        if by_word(Verdict::Partition) > 0 {
            prop_assert!(by_word(Verdict::Partition) <= kept);
        }
        for (node, told) in fleet.nodes.iter().zip(&plan.verdicts) {
            let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
            let is_left = *told == Verdict::Partition && alive.next().is_some_and(is_undone);
            prop_assert!(!is_left, "{} stays on what was gone back from", node.name);
        }
        let (deleted, begun) = (deleted(&plan), begun(&fleet, &plan));
        for node in &fleet.nodes {
            let goes = node.pods.iter().any(|pod| deleted.iter().any(|gone| gone.uid == pod.uid));
            let selector = strategy.selector.as_ref();
            let selected = selector.is_none_or(|selector| selector.matches(|key| node.labels.get(key)));
            let held = node.hold.as_ref().is_some_and(|hold| hold.holds(now()));
            let window = match &node.window {
                Some(NodeWindow::Windows(windows)) => Some(windows),
                _ => strategy.window.as_ref(),
            };
            let open = window.is_none_or(|window| window.at(now()).is_open);
            let begins = node.pods.iter().any(|pod| begun.iter().any(|gone| gone.uid == pod.uid));
            prop_assert!(!goes && !begins || selected && !held);
            prop_assert!(!begins || open);
        }
    }

    #[test]
    fn replacements_follow_each_other_no_sooner_than_min_interval(
        strategy in strategies(), fleet in fleets(), seconds in 1..300_u64,
    ) {
        let strategy = Strategy { min_interval: Duration::from_secs(seconds), waves: None, ..strategy };
        let plan = decide(&strategy, &fleet, now());
        let deleted = begun(&fleet, &plan);
        prop_assert!(deleted.len() <= 1);
        if !deleted.is_empty() {
            let pods = fleet.nodes.iter().flat_map(|node| &node.pods);
            let mut current = pods.filter(|pod| pod.revision == PodRevision::Current);
            prop_assert!(current.all(|pod| later(pod.revised(), strategy.min_interval) <= now()));
        }
    }

    #[test]
    fn broken_pods_go_first_then_the_unfinished_revision_and_equal_ones_by_name(strategy in strategies(), fleet in fleets()) {
        let plan = decide(&strategy, &fleet, now());
        let position = |target: &&PodRef| {
            let holds = |node: &Node| node.pods.iter().any(|pod| pod.uid == target.uid);
            fleet.nodes.iter().position(holds).unwrap()
        };
        // Compare the nodes that are replaced now or wait for their update with the nodes that are done. All these nodes are online
        // and settled, and take part in the rollout.
        let replacing = |verdict: &Verdict| *verdict == Verdict::InProgress(Progress::Replacing);
        let waiting = |verdict: &Verdict| {
            let waits = matches!(
                verdict,
                Verdict::Budget { .. } | Verdict::AwaitingDomain
                    | Verdict::OutOfWindow { .. }
                    | Verdict::PullPending(_)
                    | Verdict::HookPending { .. }
                    | Verdict::WaveNotOpen { .. }
            );
            waits || replacing(verdict)
        };
        let selected = |node: &Node| {
            let selector = strategy.selector.as_ref();
            selector.is_none_or(|selector| selector.matches(|key| node.labels.get(key)))
                && !node.hold.as_ref().is_some_and(|hold| hold.holds(now()))
        };
        let living = |node: &Node| node.pods.iter().find(|pod| !pod.terminating).cloned();
        let of = |wanted: &dyn Fn(&Verdict) -> bool| -> Vec<Pod> {
            let told = fleet.nodes.iter().zip(&plan.verdicts);
            let nodes = told.filter(|(node, verdict)| wanted(verdict) && selected(node));
            nodes.filter_map(|(node, _)| living(node)).collect()
        };
        let old = of(&waiting);
        let greatest = old.iter().map(|pod| pod.number).max();
        let made = old.iter().filter(|pod| Some(pod.number) == greatest).map(|pod| pod.revised()).max();
        let mixed = old.iter().any(|pod| Some(pod.number) < greatest);
        let kept = of(&|verdict| *verdict == Verdict::Done).iter().any(|pod| Some(pod.revised()) < made);
        let rank = |target: &&PodRef| {
            let node = &fleet.nodes[position(target)];
            let available = node.pods.iter().any(|pod| is_available(pod, &strategy, now()));
            let pod = living(node).unwrap();
            let first = fleet.replaces && (mixed || kept) && Some(pod.number) == greatest;
            let wave = strategy.waves.as_ref().map_or(0, |waves| waves.index_for(&node.labels));
            (wave, available, !first, std::cmp::Reverse(first.then_some(pod.revised())), node.name.clone())
        };
        let ranks: Vec<_> = begun(&fleet, &plan).iter().map(rank).collect();
        prop_assert!(ranks.is_sorted(), "{ranks:?}");
    }

    #[test]
    fn a_pause_a_hold_and_ota_delete_nothing(strategy in strategies(), fleet in fleets()) {
        let plan = decide(&strategy, &fleet, now());
        let paused = match strategy.pause {
            None => false,
            Some(Pause::Indefinite) => true,
            Some(Pause::Until(until)) => now() < until,
        };
        let is_unknown = |verdict: &Verdict| *verdict == Verdict::NativeControllerBehind;
        if plan.verdicts.iter().any(is_unknown) {
            prop_assert!(plan.actions.iter().all(opens_gate), "{:?}", plan.actions);
        } else if paused {
            prop_assert!(plan.actions.iter().all(|action| is_upkeep(&fleet, action)), "{:?}", plan.actions);
        }
        if strategy.mode == Mode::Ota {
            prop_assert_eq!(deleted(&plan), Vec::<&PodRef>::new());
        }
    }

    /// Checks the rules for preDelete hooks (`lifecycle.preDelete` in Kruise).
    #[test]
    fn a_hooked_pod_is_never_deleted_and_what_stays_loses_its_mark(
        strategy in strategies(), fleet in fleets(),
    ) {
        let plan = decide(&strategy, &fleet, now());
        let hook = strategy.pre_delete.clone().unwrap_or_default();
        let pods = fleet.nodes.iter().flat_map(|node| &node.pods);
        for action in &plan.actions {
            if let Action::Delete(gone) | Action::Evict(gone) = action {
                let mut pods = pods.clone();
                prop_assert!(pods.all(|pod| pod.uid != gone.uid || !hook.hooks(&pod.exit)));
            }
        }
        let behind = plan.verdicts.contains(&Verdict::NativeControllerBehind);
        let is_held = behind || plan.invalid.is_some() || plan.phase.is_behind();
        if is_paused(&strategy, now()) || is_held {
            return Ok(());
        }
        let then = carry_out(&fleet, &plan);
        // An update in place doesn't wait for a hook. The mark on such a pod is removed when the cache shows the update.
        let renewed: Vec<_> = deleted(&plan).iter().map(|pod| &pod.uid).collect();
        for (node, verdict) in then.nodes.iter().zip(&plan.verdicts).filter(|(n, _)| n.is_ready()) {
            let marked = |pod: &&Pod| {
                !pod.terminating && pod.exit.preparing.is_some() && !renewed.contains(&&pod.uid)
            };
            let in_motion = matches!(verdict, Verdict::HookPending { .. } | Verdict::Budget { .. } | Verdict::AwaitingDomain);
            prop_assert!(in_motion || node.pods.iter().find(marked).is_none(), "{verdict:?}");
        }
    }

    #[test]
    fn carrying_out_a_plan_leaves_nothing_to_do(strategy in strategies(), fleet in fleets()) {
        let plan = decide(&strategy, &fleet, now());
        // An update that changes no image is complete at once. The next node may then be updated.
        let is_over = |action: &Action| match action {
            Action::UpdateInPlace { patch, .. } => {
                patch.before.values().all(|before| before.image_id.is_none())
            }
            _ => false,
        };
        if plan.actions.iter().any(is_over) {
            return Ok(());
        }
        let done = carry_out(&fleet, &plan);
        let again = decide(&strategy, &done, now());
        prop_assert!(again.counts.unavailable <= plan.counts.unavailable.max(plan.counts.allowed));
        // After an update in place, the next plan removes old conditions of the pod. If one requested a pull, another node may now
        // pull instead.
        let renewed: Vec<_> = deleted(&plan).into_iter().map(|pod| &pod.uid).collect();
        let pods = fleet.nodes.iter().flat_map(|node| &node.pods);
        let pulled = |pod: &&Pod| pod.image_ready.as_ref().is_some_and(|image| image.waits);
        let mut places = pods.filter(pulled).filter(|pod| renewed.contains(&&pod.uid)).count();
        for action in &again.actions {
            if matches!(action, Action::AskForImages { .. }) && places > 0 {
                places -= 1;
                continue;
            }
            let clears = matches!(
                action,
                Action::RemoveConditions { .. } | Action::Mark { preparing: None | Some(false), .. }
            );
            prop_assert!(clears && renewed.contains(&&action.pod().uid), "{action:?}");
        }
        let cleared = carry_out(&done, &again);
        prop_assert_eq!(decide(&strategy, &cleared, now()).actions, vec![]);
    }

    #[test]
    fn nothing_but_the_order_by_name_and_age_matters(strategy in strategies(), fleet in fleets()) {
        let plan = decide(&strategy, &fleet, now());
        let told = decide(&strategy, &renamed(fleet), now());
        // Give the nodes their old names again. Then both plans must be equal.
        let told = format!("{told:?}").replace("(\"longer-", "(\"");
        prop_assert_eq!(told, format!("{plan:?}"));
    }

    #[test]
    fn nothing_changes_before_the_next_wake(
        strategy in strategies(), fleet in fleets(), later_by in 0..700_i64,
    ) {
        let plan = decide(&strategy, &fleet, now());
        if let Some(wake) = plan.next_wake {
            prop_assert!(wake > now(), "a wake that is over");
        }
        let then = after(now(), later_by);
        if plan.next_wake.is_none_or(|wake| then < wake) {
            prop_assert_eq!(decide(&strategy, &fleet, then), plan);
        }
    }

    #[test]
    fn offline_nodes_neither_use_the_budget_nor_hold_up_others(
        strategy in strategies(), fleet in fleets(), share in 1..6_u32,
    ) {
        // The plan must not depend on the number of nodes. So use an absolute budget, let all nodes take part, and count no
        // failures.
        let strategy = Strategy {
            max_unavailable: IntOrPercent::Number(share),
            partition: IntOrPercent::Number(0),
            selector: None,
            min_interval: Duration::ZERO,
            ramp_up: None,
            waves: None,
            ..strategy
        };
        let mut online = Fleet { replaces: false, ..fleet };
        online.nodes.iter_mut().for_each(|node| node.hold = None);
        let all = decide(&strategy, &online, now());
        let offline = |verdict: &Verdict| matches!(verdict, Verdict::Offline(_));
        let mut verdicts = all.verdicts.iter();
        online.nodes.retain(|node| {
            let told_offline = verdicts.next().is_some_and(offline);
            node.is_ready() && !told_offline
        });
        prop_assume!(online.nodes.iter().filter(|n| n.targeting == Targeting::Run).count() >= 6);
        let without = decide(&strategy, &online, now());
        prop_assert_eq!(deleted(&all), deleted(&without));
        prop_assert_eq!(all.counts.unavailable, without.counts.unavailable);
    }

    #[test]
    fn leaving_ota_takes_our_conditions_away_once(strategy in strategies(), fleet in fleets()) {
        let released = |fleet: &Fleet| release(fleet, strategy.min_ready, now()).actions;
        let plan = Plan { actions: released(&fleet), ..decide(&strategy, &fleet, now()) };
        let after = carry_out(&fleet, &plan);
        let pods = || after.nodes.iter().flat_map(|node| &node.pods);
        let mut alive = pods().filter(|pod| !pod.terminating);
        prop_assert!(alive.all(|pod| pod.need_upgrade.is_none() && pod.image_ready.is_none()));
        prop_assert_eq!(released(&after), vec![]);
    }

    #[test]
    fn ota_tells_every_pod_the_truth(fleet in fleets()) {
        let strategy = Strategy::with_mode(Mode::Ota);
        prop_assume!(fleet.revision == RevisionState::Current("new".into()));
        let mut pods = fleet.nodes.iter().flat_map(|node| &node.pods);
        prop_assume!(pods.all(|pod| pod.revision != PodRevision::Unknown));
        let told = carry_out(&fleet, &decide(&strategy, &fleet, now()));
        for pod in told.nodes.iter().flat_map(|node| &node.pods) {
            let needed = pod.revision == PodRevision::Outdated;
            if pod.terminating {
                continue;
            }
            let told = pod.need_upgrade.as_ref().unwrap();
            prop_assert_eq!((told.status, &told.revision), (needed, &Some("new".into())));
            let asked = pod.image_ready.as_ref();
            prop_assert!(asked.is_none_or(|image| !image.waits || needed));
            let of_target = |hash: &Revision| *hash == "new".into();
            let hash = asked.and_then(|image| image.revision.as_ref());
            prop_assert!(hash.is_none_or(of_target));
        }
    }

    #[test]
    fn a_pull_that_was_asked_for_is_never_lost_and_never_begins_offline(fleet in fleets()) {
        let strategy = Strategy::with_mode(Mode::Ota);
        prop_assume!(fleet.revision == RevisionState::Current("new".into()));
        let mut pods = fleet.nodes.iter().flat_map(|node| &node.pods);
        prop_assume!(pods.all(|pod| pod.revision != PodRevision::Unknown));
        let told = carry_out(&fleet, &decide(&strategy, &fleet, now()));
        let plan = decide(&strategy, &told, now());
        let mut asked = Vec::new();
        for node in &fleet.nodes {
            let waits = |pod: &&Pod| pod.image_ready.as_ref().is_some_and(|image| image.waits);
            let alive = |pod: &&Pod| !pod.terminating && pod.revision == PodRevision::Outdated;
            let pods = node.pods.iter().filter(waits).filter(alive);
            asked.extend(pods.map(|pod| (&pod.uid, node.is_ready())));
        }
        let pulls = plan.pulls.iter().map(|pull| (&pull.pod.uid, pull.may_start));
        prop_assert_eq!(pulls.collect::<Vec<_>>(), asked);
    }
}

#[test]
fn a_large_fleet_is_told_in_batches_until_every_pod_knows() {
    let strategy = Strategy::with_mode(Mode::Ota);
    let node = |i: usize| Node {
        name: format!("n{i:04}").into(),
        labels: Labels::default(),
        hold: None,
        window: None,
        targeting: Targeting::Run,
        native: Targeting::Run,
        readiness: Readiness::Ready { since: now() },
        disrupted_at: None,
        emptied: false,
        kept_away_by: None,
        had_pod: false,
        losses: None,
        cut_off: false,
        podless_since: None,
        trouble: None,
        has_images: false,
        pods: [Pod {
            name: format!("p{i:04}").into(),
            uid: format!("u{i:04}").into(),
            created: now(),
            ready_since: None,
            started: None,
            ..testing::old(1)
        }]
        .into(),
    };
    let mut fleet = testing::fleet((0..2 * BATCH + 1).map(node).collect());
    for expected in [BATCH, BATCH, 1, 0] {
        let plan = decide(&strategy, &fleet, now());
        assert_eq!(plan.actions.len(), expected);
        fleet = carry_out(&fleet, &plan);
    }
    for expected in [BATCH, BATCH, 1, 0] {
        let actions = release(&fleet, Duration::ZERO, now()).actions;
        assert_eq!(actions.len(), expected);
        let plan = decide(&strategy, &fleet, now());
        fleet = carry_out(&fleet, &Plan { actions, ..plan });
    }
}
