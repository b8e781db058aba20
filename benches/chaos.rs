//! Random combinations of faults on real Kubernetes: `cargo bench --bench chaos`.
//!
//! Starts `../shared/control-plane` (or the folder in `CONTROL_PLANE`) with fake kubelets and two replicas of the controller. Then
//! runs random test cases, called stories. In a story, DaemonSets with different strategies share the nodes. Their templates and
//! settings change, nodes leave, deletions are rejected, controllers are killed, and the API server freezes.
//!
//! A monitor records all changes in the order of the API (resourceVersion). `judge` checks the controller's promises about the
//! budget, surge, partition, pauses, OTA and invalid settings. At the end of a story, every DaemonSet must be complete, stopped
//! with a reason, or waiting for something that its condition names.
//!
//! A story that breaks a promise is run again with fewer steps, a limited number of times. The shortest story that still breaks a
//! promise is printed with its seed. The seed determines the random choices but not the timing, so a story may succeed when it is
//! run again.
//!
//! Environment variables with their defaults: `CHAOS_SECONDS` (600), `CHAOS_SEED` (from the clock), `CHAOS_NODES` (200),
//! `CHAOS_DAEMONSETS` (12), `CHAOS_STEPS` (25 per story), `CHAOS_REPLAYS` (4). `CHAOS_SEED=SEED/STORY` runs only that story.

#[path = "support/history.rs"]
mod history;
#[path = "chaos/judge.rs"]
mod judge;
#[path = "chaos/monitor.rs"]
mod monitor;
#[path = "support/plane.rs"]
mod plane;
#[path = "support/process.rs"]
mod process;
#[path = "chaos/stage.rs"]
mod stage;
#[path = "chaos/story.rs"]
mod story;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::jiff::Timestamp;

use self::plane::{Plane, now};
use self::stage::Stage;
use self::story::{Step, Story};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::read()?;
    let Some(plane) = Plane::up(&[("KWOK", "1")])? else {
        return Ok(());
    };
    println!("CHAOS_SEED={}", options.seed);
    let mut stage = Stage::set(plane, options.nodes).await?;
    let began = now();
    for number in options.first.. {
        let story = Story::new(options.seed, number, options.sets, options.steps);
        let broken = stage.play(&story).await?;
        println!(
            "story {}/{number}: {} steps, {} of our deletions, {}",
            options.seed,
            story.steps.len(),
            stage.deletions,
            if broken.is_empty() { "kept" } else { "BROKEN" }
        );
        if !broken.is_empty() {
            tell_broken(&broken);
            let (story, broken) = shortest(&mut stage, story, broken, options.replays).await?;
            tell(&story, &broken);
            bail!("a promise was broken: CHAOS_SEED={}/{number}", options.seed);
        }
        if options.only || began.elapsed() >= options.lasts {
            break;
        }
    }
    println!(
        "all promises were kept for {:?}; {}",
        began.elapsed(),
        stage.cost()?
    );
    Ok(())
}

struct Options {
    lasts: Duration,
    seed: u64,
    /// Number of the first story to run. If `only` is true, it is the only story.
    first: u64,
    only: bool,
    nodes: usize,
    sets: usize,
    steps: usize,
    replays: usize,
}

impl Options {
    fn read() -> Result<Self> {
        let seed = std::env::var("CHAOS_SEED").unwrap_or_else(|_| {
            let now = Timestamp::now().as_second();
            now.to_string()
        });
        let (seed, story) = match seed.split_once('/') {
            Some((seed, story)) => (seed.to_owned(), Some(story.to_owned())),
            None => (seed, None),
        };
        let first = story.as_deref().unwrap_or("0").parse();
        Ok(Self {
            lasts: Duration::from_secs(number("CHAOS_SECONDS", 600)? as u64),
            seed: seed.parse().context("CHAOS_SEED")?,
            first: first.context("CHAOS_SEED=SEED/STORY")?,
            only: story.is_some(),
            nodes: number("CHAOS_NODES", 200)?,
            sets: number("CHAOS_DAEMONSETS", 12)?,
            steps: number("CHAOS_STEPS", 25)?,
            replays: number("CHAOS_REPLAYS", 4)?,
        })
    }
}

fn number(name: &str, usual: usize) -> Result<usize> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text}")),
        Err(_) => Ok(usual),
    }
}

/// Shortens a story that breaks a promise. Removes halves of its steps, and then quarters, while the story still breaks a promise.
async fn shortest(
    stage: &mut Stage,
    mut story: Story,
    mut broken: Vec<String>,
    replays: usize,
) -> Result<(Story, Vec<String>)> {
    let (mut left, mut parts, mut part) = (replays, 2, 0);
    while left > 0 && story.steps.len() > 1 {
        let size = story.steps.len().div_ceil(parts);
        let from = part * size;
        if from >= story.steps.len() {
            if size == 1 {
                break;
            }
            (parts, part) = (parts * 2, 0);
            continue;
        }
        let kept = |(at, _): &(usize, &(Duration, Step))| *at < from || *at >= from + size;
        let steps = story.steps.iter().enumerate().filter(kept);
        let shorter = Story {
            steps: steps.map(|(_, step)| step.clone()).collect(),
            ..story.clone()
        };
        left -= 1;
        let found = stage.play(&shorter).await?;
        println!(
            "  again with {} steps: {}",
            shorter.steps.len(),
            if found.is_empty() { "kept" } else { "BROKEN" }
        );
        if found.is_empty() {
            part += 1
        } else {
            (story, broken) = (shorter, found)
        }
    }
    Ok((story, broken))
}

fn tell(story: &Story, broken: &[String]) {
    println!("\nthe shortest story that was found:");
    for (number, strategy) in story.sets.iter().enumerate() {
        println!("  {}: {strategy:?}", story::set_name(number));
    }
    for (at, step) in &story.steps {
        println!("  {:>6.1} s  {step:?}", at.as_secs_f64());
    }
    tell_broken(broken);
}

fn tell_broken(broken: &[String]) {
    println!("what it breaks:");
    for line in broken {
        println!("  {line}");
    }
}
