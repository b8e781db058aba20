//! Duration of a decision of the engine: `cargo bench --bench decide`.
//!
//! The fleets have 1,000, 10,000 and 100,000 nodes, a fifth of which are offline. Each fleet is measured in the middle of a
//! rollout, at its start, when it is complete, and at the start of an OTA rollout. The first two measurements are repeated with
//! every setting on labeled nodes. Some of these nodes have a hold or a maintenance window, and the new pod fails on one node in a
//! hundred. All these decisions evaluate the whole fleet.
//!
//! The next measurement is the controller's work after one event in the middle of a rollout, where only changed nodes are
//! evaluated. The last measurement is a whole rollout as `ctl plan` forecasts it. Prints the median and the minimum of many runs.
//! Other processes on a busy machine affect the median.

#[path = "decide/event.rs"]
mod event;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use event::Rollout;
use k8s_openapi::jiff::Timestamp;
use yurt_ds::core::forecast::{ForecastTerms, NodePace, forecast};
use yurt_ds::core::messages::StatusSentence;
use yurt_ds::core::names::{ANNOTATION_PREFIX, ON_DELETE};
use yurt_ds::core::settings::{SettingsSource, read};
use yurt_ds::core::{
    Fleet, Hold, IntOrPercent, Labels, Mode, Node, NodeName, NodeWindow, ParsedSettings, Pod,
    PodProblem, PodRevision, Readiness, RevisionState, Strategy, Targeting, Windows, decide,
};

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
const RUNS: usize = 31;
/// Annotations for every setting that can be combined. `IN_PLACE` and `SURGE` exclude each other, so each run adds one of them.
const SETTINGS: [(&str, &str); 17] = [
    ("update-strategy", "AdvancedRollingUpdate"),
    ("max-unavailable", "10%"),
    ("partition", "1%"),
    ("selector", "pool notin (pool-6)"),
    ("ready-settle", "1m"),
    ("min-interval", "5s"),
    ("ramp-up", "1%"),
    ("maintenance-window", "Mon-Sun 00:00-24:00 UTC"),
    ("image-predownload-parallelism", "5%"),
    ("topology-key", "zone"),
    ("max-domains", "5"),
    (
        "lifecycle",
        r#"{"preDelete": {"labelsHandler": {"example.io/drain": "true"}, "markPodNotReady": true}}"#,
    ),
    ("waves", WAVES),
    ("failure-window", "1h"),
    ("failure-threshold", "20%"),
    ("on-failure", "Stop"),
    ("replace-broken-first", "unlimited"),
];
const IN_PLACE: (&str, &str) = ("rolling-update-type", "InPlaceIfPossible");
const SURGE: (&str, &str) = ("max-surge", "5%");
/// Waves: pools of nodes that are updated one after another. `pool-0` and another pool come before the remaining nodes. The second
/// wave is open.
const WAVES: &str = r#"[{"name": "canary", "selector": "pool=pool-0", "maxUnavailable": "50%"},
    {"name": "field", "selector": "pool in (pool-1, pool-2, pool-3)", "soak": "10m"}]"#;
/// Time at which the benchmark makes decisions. It is later than all timestamps in the fleet.
const NOW: i64 = 2_000_000_000;

fn main() {
    println!(
        "{:<15} {:>9} {:>12} {:>12} {:>12}",
        "situation", "nodes", "median ms", "best ms", "ns per node"
    );
    let rolling = strategy(Mode::AdvancedRollingUpdate);
    for (name, strategy, updated, is_plain) in [
        ("mid rollout", rolling.clone(), 50, true),
        ("first batch", rolling.clone(), 0, true),
        ("steady state", rolling, 100, true),
        ("ota announced", strategy(Mode::Ota), 0, true),
        ("all, mid", every_setting(IN_PLACE), 50, false),
        ("all, first", every_setting(IN_PLACE), 0, false),
        ("surge, mid", every_setting(SURGE), 50, false),
        ("surge, first", every_setting(SURGE), 0, false),
    ] {
        for size in SIZES {
            let fleet = fleet(size, updated);
            let fleet = if is_plain {
                fleet
            } else {
                with_everything(fleet)
            };
            let times = measure(&strategy, &fleet);
            print(name, size, &times);
        }
    }
    for size in SIZES {
        let mut rollout = Rollout::new(size);
        let mut times: Vec<Duration> = (0..RUNS)
            .map(|_| {
                let (took, replaced) = rollout.step();
                assert_eq!(replaced, 1, "one slot was freed");
                took
            })
            .collect();
        times.sort();
        print("after one event", size, &times);
    }
    for size in [1_000, 10_000] {
        let (took, steps) = whole_rollout(size);
        assert_eq!(steps, size * 4 / 5, "the nodes that are online");
        print("whole rollout", size, &[took; RUNS]);
    }
}

/// Forecasts a whole rollout as `ctl plan` does. Returns the duration of the forecast and the number of its steps.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn whole_rollout(size: usize) -> (Duration, usize) {
    let (strategy, fleet) = (strategy(Mode::AdvancedRollingUpdate), fleet(size, 0));
    let new_pod = fleet
        .nodes
        .iter()
        .find_map(|node| node.pods.first().cloned());
    let pace = |_: &NodeName| NodePace {
        end: Duration::from_millis(2_000),
        start: Duration::from_millis(2_000),
        change: Duration::from_millis(2_000),
    };
    let terms = ForecastTerms {
        strategy: &strategy,
        pace: &pace,
        pull: Duration::ZERO,
        new_pod: Pod {
            revision: PodRevision::Current,
            ready_since: None,
            started: None,
            ..new_pod.expect("a pod")
        },
        broken: BTreeSet::new(),
        breaks: 0,
        refusal: &|_, _| None,
        scaling: None,
        horizon: at(NOW + 86_400),
    };
    let start = Instant::now();
    let forecast = forecast(fleet, &terms, at(NOW), |_, _| StatusSentence::default());
    (start.elapsed(), forecast.steps.len())
}

fn print(name: &str, size: usize, times: &[Duration]) {
    let [best, median] = [0, RUNS / 2].map(|position| times[position].as_secs_f64());
    println!(
        "{name:<15} {size:>9} {:>12.3} {:>12.3} {:>12.1}",
        median * 1e3,
        best * 1e3,
        median * 1e9 / size as f64
    );
}

/// Returns the durations of all runs, shortest first.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn measure(strategy: &Strategy, fleet: &Fleet) -> Vec<Duration> {
    let now = at(NOW);
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            black_box(decide(black_box(strategy), black_box(fleet), now));
            start.elapsed()
        })
        .collect();
    times.sort();
    times
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

fn strategy(mode: Mode) -> Strategy {
    Strategy {
        max_unavailable: IntOrPercent::Percent(10),
        min_ready: Duration::from_secs(5),
        ..Strategy::with_mode(mode)
    }
}

/// Returns a strategy with every setting, parsed from annotations. `and` is an additional annotation.
fn every_setting(and: (&str, &str)) -> Strategy {
    let settings = SETTINGS.into_iter().chain([and]);
    let annotations =
        settings.map(|(name, value)| (format!("{ANNOTATION_PREFIX}{name}"), value.into()));
    let reading = read(&SettingsSource {
        annotations: &annotations.collect(),
        update_strategy: Some(ON_DELETE),
        rolling_update_max_unavailable: None,
        min_ready_seconds: 5,
        in_template: &[],
        exclusive: None,
        preempting: None,
        fields: None,
    });
    match reading {
        ParsedSettings::Strategy { strategy, .. } => *strategy,
        other => panic!("{other:?}"),
    }
}

/// Adds labels to all nodes, and a hold or a maintenance window to some.
fn with_everything(mut fleet: Fleet) -> Fleet {
    let window = Arc::new(Windows::read("Mon-Fri 22:00-05:00 Europe/Berlin").expect("a window"));
    // Share strings between nodes and label sets between pods, as the controller's cache does.
    let text = |text: String| -> Arc<str> { text.into() };
    let zones: Vec<Arc<str>> = (0..20).map(|i| text(format!("zone-{i:02}"))).collect();
    let pools: Vec<Arc<str>> = (0..7).map(|i| text(format!("pool-{i}"))).collect();
    let [zone, pool] = ["zone", "pool"].map(Arc::<str>::from);
    let hooked: Labels = [("example.io/drain", "true")].into_iter().collect();
    for (i, node) in fleet.nodes.iter_mut().enumerate() {
        let labels = [(&zone, &zones[i % 20]), (&pool, &pools[i % 7])];
        let labels = labels.map(|(key, value)| (key.clone(), value.clone()));
        node.labels = labels.into_iter().collect();
        node.window = i
            .is_multiple_of(11)
            .then(|| NodeWindow::Windows(window.clone()));
        for pod in &mut node.pods {
            pod.exit.labels = hooked.clone();
            if i.is_multiple_of(100) && pod.revision == PodRevision::Current {
                (pod.created, pod.ready_since) = (at(NOW - 600), None);
                pod.problem = Some(
                    PodProblem {
                        detail: Default::default(),
                        reason: "CrashLoopBackOff".into(),
                        restarts: 5,
                        ended: 0,
                    }
                    .into(),
                );
            }
        }
        node.hold = i.is_multiple_of(101).then(|| Hold {
            until: Some(at(NOW + 3_600)),
            reason: "calibration".into(),
            unreadable: false,
        });
    }
    fleet
}

/// Returns a fleet in which `updated` percent of the online nodes run the current revision.
fn fleet(size: usize, updated: usize) -> Fleet {
    Fleet {
        revision: RevisionState::Current("7f9f6846dc".into()),
        behind_since: None,
        made: None,
        adopted: None,
        is_proven: true,
        replaces: true,
        earlier: Vec::new(),
        undone: None,
        evictions: Default::default(),
        write_failures: Default::default(),
        transitions: Default::default(),
        rollback_targets: Default::default(),
        record: None,
        pause: None,
        kind: Default::default(),
        not_created: None,
        not_ready: Default::default(),
        in_order: true,
        crowd: Default::default(),
        nodes: (0..size).map(|i| node(i, i * 37 % 100 < updated)).collect(),
    }
}

fn node(i: usize, updated: bool) -> Node {
    let offline = i.is_multiple_of(5);
    let readiness = if offline {
        Readiness::NotReady {
            since: Some(at(NOW - 5_000)),
        }
    } else {
        Readiness::Ready {
            since: at(NOW - 90_000),
        }
    };
    Node {
        name: format!("edge-node-{i:06}").into(),
        labels: Labels::default(),
        hold: None,
        window: None,
        targeting: Targeting::Run,
        native: Targeting::Run,
        readiness,
        pods: [pod(i, updated && !offline)].into(),
        disrupted_at: None,
        emptied: false,
        kept_away_by: None,
        had_pod: false,
        losses: None,
        cut_off: false,
        podless_since: None,
        trouble: None,
        has_images: false,
    }
}

fn pod(i: usize, updated: bool) -> Pod {
    Pod {
        name: format!("daemon-{i:06}").into(),
        uid: format!("00000000-0000-0000-0000-{i:012}").into(),
        resource_version: "123456789".into(),
        created: at(NOW - 80_000),
        revision: if updated {
            PodRevision::Current
        } else {
            PodRevision::Outdated
        },
        number: 1 + i64::from(updated),
        terminating: false,
        leaving: None,
        ready_since: Some(at(NOW - 79_000)),
        unready_since: None,
        started: Some(at(NOW - 79_990)),
        in_place: Default::default(),
        problem: None,
        exit: Default::default(),
        need_upgrade: None,
        image_ready: None,
        surge: false,
        of_template: true,
        in_doubt: false,
    }
}
