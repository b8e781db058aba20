//! `yurt-ds sim`: plays rollouts on the embedded cluster with the real controller, as a live view or for scripts.
//!
//! ```text
//! args ─► scenario ─► run (world + steps) ─► monitor ─► summary ─► report
//!                              └─ picture ─► frame ─► screen   (drawn during the play)
//! ```
//!
//! Time is virtual. Between two frames, the thread sleeps while virtual time is stopped. So the speed of a play doesn't affect its
//! results.

pub mod agents;
mod args;
mod frame;
mod kubelets;
mod monitor;
mod ota;
pub mod report;
mod run;
mod scenario;
pub(crate) mod screen;
pub mod serve;
mod shell;
mod summary;
mod text;

#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;
use tokio::runtime::Runtime;

use self::report::DemoReport;
use self::run::{DemoRun, RunEnd};
use self::scenario::{RolloutEngine, Scenario};
use self::screen::DemoScreen;
use crate::cli::sim::{PlayArgs, ReportFormat, SimArgs, SimVerb, Story};
use crate::clock::Clock;
use crate::shutdown::Shutdown;
use crate::sim::dice::mix;

/// Virtual time between two frames.
const FRAME: Duration = Duration::from_millis(500);
/// Virtual time between two progress lines, for output that is not a terminal.
const LINE: Duration = Duration::from_secs(15);
/// Virtual time without a change after which the play runs at a higher speed.
const DULL: Duration = Duration::from_secs(35);
/// Exit code for invalid flags.
const USAGE: u8 = 2;
/// Exit code after Ctrl-C, as returned by shells.
const INTERRUPTED: u8 = 130;

const OPENING: &str = "\
Everything below runs in this process: a small Kubernetes API server, the native
controllers, fake kubelets, and the real controller, ota-server and ctl of yurt-ds.
Time is virtual, and no other machine is contacted.
";

const NEXT: &str = "
Try next:
  yurt-ds sim --story ota                      only the story in which a node owner decides
  yurt-ds sim --nodes 1000 --offline 30%       a fleet of your choice
  yurt-ds sim --nodes 50 --bad-revision crash  a bad image: the guard stops the rollout
  yurt-ds sim serve                            a cluster for kubectl
  README.md                                    yurt-ds on your own cluster
";

/// Runs the command `yurt-ds sim`.
///
/// # Errors
///
/// Fails if the play cannot be carried out.
pub async fn run(args: SimArgs, shutdown: Shutdown) -> Result<ExitCode> {
    match args.verb {
        Some(SimVerb::Serve(args)) => serve::run(args, shutdown).await,
        Some(SimVerb::Kubelets(args)) => kubelets::run(args).await.map(|()| ExitCode::SUCCESS),
        None => in_own_time(args.play, shutdown).await,
    }
}

/// Returns the DaemonSet of the play with offline nodes, before its image changes.
pub(crate) fn first_daemonset() -> serde_json::Value {
    scenario::three_nodes().rollout.object()
}

/// Speed at which virtual time advances.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pace {
    /// As fast as the machine allows.
    Unpaced,
    /// Number of virtual seconds per real second.
    Times(f64),
    /// Real time instead of virtual time.
    Real,
}

/// Reports of all plays, for output as JSON.
#[derive(Serialize)]
struct Document<'a> {
    seed: u64,
    held: bool,
    plays: &'a [DemoReport],
}

/// Creates a runtime. Except in real time, its time is paused from the start.
///
/// Timers are rounded to milliseconds since the runtime's start. If time were paused later, this rounding would differ, and no two
/// runs would be equal.
fn own_runtime(real_time: bool) -> std::io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(!real_time).build()
}

/// Runs the plays in a new thread, with a runtime of its own whose time is virtual.
async fn in_own_time(args: PlayArgs, shutdown: Shutdown) -> Result<ExitCode> {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = own_runtime(args.real_time).context("cannot start the runtime");
        let code = runtime.and_then(|runtime| runtime.block_on(show(&args, shutdown)));
        // Ignore the error: it means that the caller no longer waits.
        let _ = ended.send(code);
    });
    end.await.context("the simulation ended early")?
}

async fn show(args: &PlayArgs, shutdown: Shutdown) -> Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(any_seed);
    let scenarios = match scenarios(args, seed) {
        Ok(scenarios) => scenarios,
        Err(wrong) => {
            crate::stdout::complain(&format!(
                "error: {wrong}\n\nFor more information, try '--help'."
            ));
            return Ok(ExitCode::from(USAGE));
        }
    };
    let mut player = StoryPlayer {
        screen: (args.output == ReportFormat::Text).then(DemoScreen::standard),
        shutdown,
        args,
    };
    player.print(&format!("seed {seed}\n\n"));
    if !args.is_own_fleet() {
        player.print(OPENING);
    }
    let mut reports = Vec::new();
    for scenario in scenarios {
        let Some(report) = player.play(scenario, seed).await? else {
            return Ok(ExitCode::from(INTERRUPTED));
        };
        reports.push(report);
    }
    let held = reports.iter().all(DemoReport::held);
    if args.output == ReportFormat::Json {
        let document = Document {
            seed,
            held,
            plays: &reports,
        };
        screen::write(&(serde_json::to_string_pretty(&document)? + "\n"));
    } else if !args.is_own_fleet() {
        player.print(NEXT);
    }
    Ok(if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns a random seed with at most five digits, which is easy to type.
fn any_seed() -> u64 {
    let nanoseconds = Clock::System.now().as_nanosecond();
    mix(u64::try_from(nanoseconds).unwrap_or_default()) % 100_000
}

/// Returns the scenarios that the flags select: a custom fleet, or one story. The default is both stories, followed by one fleet
/// that is played twice: with yurt-ds, and with the native controller.
fn scenarios(args: &PlayArgs, seed: u64) -> Result<Vec<Scenario>, String> {
    let fleet = args.fleet(seed)?;
    if let Some(story) = args.story {
        if args.is_own_fleet() {
            return Err("--story has its own fleet; remove the other fleet flags".to_owned());
        }
        return Ok(vec![story.scenario()]);
    }
    if args.is_own_fleet() {
        return Ok(vec![fleet.scenario()]);
    }
    let mut native = fleet.clone();
    native.rollout.engine = RolloutEngine::Native;
    let mut native = native.scenario();
    native.title += ", for comparison";
    native.in_background = true;
    Ok(vec![
        Story::Offline.scenario(),
        Story::Ota.scenario(),
        fleet.scenario(),
        native,
    ])
}

/// Plays scenarios and prints their frames and reports.
struct StoryPlayer<'a> {
    /// Screen for frames and reports; `None` if nothing is printed.
    screen: Option<DemoScreen>,
    shutdown: Shutdown,
    args: &'a PlayArgs,
}

impl StoryPlayer<'_> {
    fn print(&mut self, text: &str) {
        if let Some(screen) = &mut self.screen {
            screen.print(text);
        }
    }

    fn draw_over(&mut self, picture: &str) {
        if let Some(screen) = &mut self.screen {
            screen.draw(picture);
        }
    }

    fn pace(&self, scenario: &Scenario) -> Pace {
        let seen = self.screen.as_ref().is_some_and(DemoScreen::is_live);
        match self.args {
            args if args.real_time => Pace::Real,
            args if args.fast || !seen || scenario.in_background => Pace::Unpaced,
            _ => Pace::Times(scenario.speed),
        }
    }

    /// Plays a scenario to its end. Returns `None` if it is interrupted.
    async fn play(&mut self, scenario: Scenario, seed: u64) -> Result<Option<DemoReport>> {
        let pace = self.pace(&scenario);
        let live = self.screen.as_ref().is_some_and(DemoScreen::is_live);
        if !live || scenario.in_background {
            let heading = format!("── {} ", scenario.title);
            let rule = "─".repeat(78_usize.saturating_sub(heading.chars().count()));
            self.print(&format!("\n{heading}{rule}\n\n"));
        } else {
            self.print("\n");
            self.draw_over(&format!(" {}: starting …\n", scenario.title));
        }
        // Without a live view, the timeline has already been printed, so the report omits it.
        let in_full = scenario.in_full && live;
        let Some(report) = self.perform(scenario, seed, pace).await? else {
            return Ok(None);
        };
        self.print(&format!("\n{}\n", report.text(in_full)));
        Ok(Some(report))
    }

    async fn perform(
        &mut self,
        scenario: Scenario,
        seed: u64,
        pace: Pace,
    ) -> Result<Option<DemoReport>> {
        let mut run = DemoRun::set_up(scenario, seed).await?;
        let mut printed = PrintedSoFar::default();
        let mut to = Duration::ZERO;
        loop {
            let began = wall_clock();
            run.advance(to).await?;
            run.news();
            let ending = run.ending();
            self.draw(&run, &mut printed, ending.as_ref());
            if let Some(ending) = ending {
                let report = run.report(&ending);
                run.world.finish().await;
                return Ok(Some(report));
            }
            if self.shutdown.is_requested() {
                return Ok(None);
            }
            wait(pace, run.quiet(), began);
            to += FRAME;
        }
    }

    fn draw(&mut self, run: &DemoRun, printed: &mut PrintedSoFar, ending: Option<&RunEnd>) {
        let Some(screen) = &mut self.screen else {
            return;
        };
        if run.scenario.in_background {
            return;
        }
        if screen.is_live() {
            let picture = run.frame().draw(screen.canvas());
            screen.draw(&picture);
            return;
        }
        for line in run.timeline.iter().skip(printed.lines) {
            screen.print(&line.text(""));
        }
        printed.lines = run.timeline.len();
        let now = run.now();
        let due = now >= printed.next && run.changed.is_some() && !run.scenario.in_full;
        if due || (ending.is_some() && !run.scenario.in_full) {
            screen.print(&format!("{}\n", run.frame().line()));
            printed.next = now + LINE;
        }
    }
}

/// Output that was already printed for the current play.
#[derive(Default)]
struct PrintedSoFar {
    lines: usize,
    next: Duration,
}

/// Returns the real time, which advances even while virtual time is paused.
#[expect(
    clippy::disallowed_methods,
    reason = "pictures are paced by real time while virtual time stands still"
)]
fn wall_clock() -> std::time::Instant {
    std::time::Instant::now()
}

/// Sleeps for the real duration of a frame. This blocks the runtime, so virtual time does not advance.
fn wait(pace: Pace, quiet: Duration, began: std::time::Instant) {
    if let Pace::Times(speed) = pace {
        let speed = if quiet > DULL { speed * 6.0 } else { speed };
        std::thread::sleep(FRAME.div_f64(speed).saturating_sub(began.elapsed()));
    }
}

/// Plays a scenario to its end without pauses, for tests.
#[cfg(test)]
async fn play(scenario: Scenario, seed: u64) -> Result<DemoReport> {
    let mut run = DemoRun::set_up(scenario, seed).await?;
    let mut to = Duration::ZERO;
    loop {
        run.advance(to).await?;
        run.news();
        if let Some(ending) = run.ending() {
            let report = run.report(&ending);
            run.world.finish().await;
            return Ok(report);
        }
        to += FRAME;
    }
}
