//! All scenarios on a real control plane, in parallel, as a single test.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::scenarios;
use crate::support::machine::BUSY;
use crate::support::player::play;
use crate::support::real;
use crate::support::story::{Pace, Scenario};
use crate::support::suite::Entry;
use crate::support::world::World;

/// Number of scenarios that run in parallel. More scenarios would need too many watches at the same time.
const AT_ONCE: usize = 16;

/// Time limit for a scenario, after which it counts as hung.
const LONGEST: Duration = Duration::from_secs(120 * BUSY as u64);

/// Environment variable that limits the run to scenarios whose outcome may depend on the Kubernetes version.
const VARYING: &str = "YURT_DS_SUITE_VARYING";

/// Environment variable that limits the run to a part. `alone` selects scenarios that need the cluster for themselves, and
/// `together` selects all others.
const PART: &str = "YURT_DS_SUITE_PART";

fn all() -> impl Iterator<Item = &'static Entry> {
    [
        scenarios::annotations::ALL,
        scenarios::rolling::ALL,
        scenarios::identity::ALL,
        scenarios::knobs::ALL,
        scenarios::paused::ALL,
        scenarios::exceptions::ALL,
        scenarios::inplace::ALL,
        scenarios::guard::ALL,
        scenarios::revert::ALL,
        scenarios::kruise::ALL,
        scenarios::lifecycle::ALL,
        scenarios::advice::ALL,
        scenarios::disruption::ALL,
        scenarios::surge::ALL,
        scenarios::ota::ALL,
        scenarios::refused::ALL,
        scenarios::rest::ALL,
        scenarios::prepull::ALL,
        scenarios::predownload::ALL,
        scenarios::operations::ALL,
        scenarios::waves::ALL,
        scenarios::advanced::ALL,
    ]
    .into_iter()
    .flatten()
}

#[derive(Default)]
struct Summary {
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<String>,
}

#[test]
fn the_scenarios_hold_on_a_real_control_plane() {
    let Some(kubeconfig) = real::kubeconfig() else {
        eprintln!(
            "SKIPPED: the scenarios on a real control plane; {} names no kubeconfig",
            real::KUBECONFIG
        );
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let summary = runtime.expect("a runtime").block_on(async {
        let world = real::world(&kubeconfig)
            .await
            .expect("a cluster behind the kubeconfig");
        let summary = run(&world).await;
        if !summary.failed.is_empty() {
            eprintln!("{}", world.backend.log());
        }
        summary
    });
    for why in &summary.skipped {
        println!("skipped {why}");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        summary.passed,
        summary.failed.len(),
        summary.skipped.len()
    );
    assert!(summary.failed.is_empty(), "{}", summary.failed.join("\n\n"));
}

async fn run(world: &World) -> Summary {
    let mut summary = Summary::default();
    let only = std::env::var("YURT_DS_SUITE_ONLY").unwrap_or_default();
    let varying = std::env::var_os(VARYING).is_some();
    let is_named = |entry: &&Entry| {
        only.is_empty() || only.split(',').any(|word| entry.name.starts_with(word))
    };
    let is_wanted = |entry: &&Entry| !varying || entry.varies.is_some();
    let left_out = all().filter(is_named).filter(|entry| !is_wanted(entry));
    if varying {
        let same = left_out.count();
        println!("{same} scenarios are the same on every Kubernetes, and left out");
    }
    let chosen = all().filter(is_named).filter(is_wanted);
    let minor = minor(world).await;
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    for entry in chosen {
        let scenario = (entry.tell)(Pace::Real);
        match scenario.only_embedded {
            Some(why) => summary.skipped.push(format!("{}: {why}", entry.sentence())),
            None if scenario.since > minor => summary.skipped.push(format!(
                "{}: Kubernetes 1.{minor} does not have what it needs, 1.{} does",
                entry.sentence(),
                scenario.since
            )),
            None if scenario.alone => alone.push((entry, scenario)),
            None => together.push((entry, scenario)),
        }
    }
    match std::env::var(PART).as_deref() {
        Err(_) => {}
        Ok("alone") => together.clear(),
        Ok("together") => alone.clear(),
        Ok(other) => panic!("{PART}={other}: not one of alone, together"),
    }
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let runs = together.into_iter().map(|(entry, scenario)| {
        let permits = permits.clone();
        async move {
            let _permit = permits.acquire().await;
            report(world, entry, scenario).await
        }
    });
    let mut results = join_all(runs).await;
    for (entry, scenario) in alone {
        results.push(report(world, entry, scenario).await);
    }
    for result in results {
        match result {
            Ok(()) => summary.passed += 1,
            Err(error) => summary.failed.push(error),
        }
    }
    summary
}

async fn report(world: &World, entry: &Entry, scenario: Scenario) -> Result<(), String> {
    let begin = Instant::now();
    let names: Vec<String> = (1..=scenario.stories.len())
        .map(|number| entry.short_among(all(), number))
        .collect();
    let stories = scenario
        .stories
        .iter()
        .zip(&names)
        .map(|(story, name)| play(world, name, story));
    let played = tokio::time::timeout(LONGEST, join_all(stories)).await;
    let failures: Vec<String> = match played {
        Ok(results) => results.into_iter().filter_map(Result::err).collect(),
        Err(_) => vec![format!("not done after {LONGEST:?}")],
    };
    let word = if failures.is_empty() {
        "ok    "
    } else {
        "FAILED"
    };
    println!(
        "{word} {:6.1} s  {}",
        begin.elapsed().as_secs_f32(),
        entry.sentence()
    );
    if failures.is_empty() {
        Ok(())
    } else {
        Err(format!("{}\n{}", entry.sentence(), failures.join("\n")))
    }
}

/// Returns the minor version of the cluster's Kubernetes.
async fn minor(world: &World) -> u32 {
    let version = world
        .client
        .apiserver_version()
        .await
        .expect("the version of the API server");
    version
        .minor
        .trim_end_matches('+')
        .parse()
        .expect("a number")
}
