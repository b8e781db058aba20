//! How long a decision takes: `cargo bench --bench decide`.
//!
//! Four situations of a fleet, each with 1,000, 10,000 and 100,000 nodes of which a fifth is offline: in the middle of a
//! rollout, at its start, done, and OTA at its start. Prints the median and the best of many runs: on a busy machine the
//! median tells more about the neighbours.

use std::hint::black_box;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use yurt_ds::core::{
    Fleet, Labels, Mode, Node, Pod, PodRevision, Readiness, RevisionState, Share, Strategy,
    Targeting, decide,
};

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
const RUNS: usize = 31;
/// A moment long after everything in the fleet happened.
const NOW: i64 = 2_000_000_000;

fn main() {
    println!(
        "{:<14} {:>9} {:>12} {:>12} {:>12}",
        "situation", "nodes", "median ms", "best ms", "ns per node"
    );
    for (name, mode, updated) in [
        ("mid rollout", Mode::AdvancedRollingUpdate, 50),
        ("first batch", Mode::AdvancedRollingUpdate, 0),
        ("steady state", Mode::AdvancedRollingUpdate, 100),
        ("ota announced", Mode::Ota, 0),
    ] {
        for size in SIZES {
            let times = measure(&strategy(mode), &fleet(size, updated));
            let [best, median] = [0, RUNS / 2].map(|position| times[position].as_secs_f64());
            println!(
                "{name:<14} {size:>9} {:>12.3} {:>12.3} {:>12.1}",
                median * 1e3,
                best * 1e3,
                median * 1e9 / size as f64
            );
        }
    }
}

/// The times of all runs, the best first.
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
        max_unavailable: Share::Percent(10),
        min_ready: Duration::from_secs(5),
        ..Strategy::of(mode)
    }
}

/// A fleet of which `updated` percent of the online nodes run the current revision.
fn fleet(size: usize, updated: usize) -> Fleet {
    Fleet {
        revision: RevisionState::Current("7f9f6846dc".into()),
        replaces: true,
        successions: Default::default(),
        record: None,
        nodes: (0..size).map(|i| node(i, i * 37 % 100 < updated)).collect(),
    }
}

fn node(i: usize, updated: bool) -> Node {
    let offline = i.is_multiple_of(5);
    let readiness = match offline {
        true => Readiness::NotReady {
            since: Some(at(NOW - 5_000)),
        },
        false => Readiness::Ready {
            since: at(NOW - 90_000),
        },
    };
    Node {
        name: format!("edge-node-{i:06}").into(),
        labels: Labels::default(),
        hold: None,
        window: None,
        targeting: Targeting::Run,
        readiness,
        pods: vec![pod(i, updated && !offline)],
        podless_since: None,
        has_images: false,
    }
}

fn pod(i: usize, updated: bool) -> Pod {
    Pod {
        name: format!("daemon-{i:06}").into(),
        uid: format!("00000000-0000-0000-0000-{i:012}").into(),
        resource_version: "123456789".into(),
        created: at(NOW - 80_000),
        revision: match updated {
            true => PodRevision::Current,
            false => PodRevision::Outdated,
        },
        number: 1 + i64::from(updated),
        terminating: false,
        ready_since: Some(at(NOW - 79_000)),
        unready_since: None,
        started: Some(at(NOW - 79_990)),
        in_place: Default::default(),
        trouble: None,
        need_upgrade: None,
        image_ready: None,
    }
}
