//! `yurt-ds sim`: plays rollouts on the embedded cluster with the real controller, either as a live view or for scripts.
//!
//! ```text
//! args ─► script ─► stage (world + steps) ─► monitor ─► summary ─► report
//!                              └─ picture ─► view ─► screen   (drawn during the play)
//! ```
//!
//! Time is virtual. Between two frames the thread sleeps while virtual time stands still, so the speed of a play doesn't affect
//! its results.

pub mod agents;
mod args;
mod kubelets;
mod monitor;
mod ota;
pub mod report;
pub(crate) mod screen;
mod script;
pub mod serve;
mod shell;
mod stage;
mod summary;
mod text;
mod view;

#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;
use tokio::runtime::Runtime;

use self::report::DemoReport;
use self::screen::DemoScreen;
use self::script::{Script, ScriptEngine};
use self::stage::{DemoStage, StoryEnd};
use crate::cli::sim::{PlayArgs, ReportFormat, SimArgs, SimVerb, Story};
use crate::clock::Clock;
use crate::shutdown::Shutdown;
use crate::sim::dice::mix;

/// Virtual time between two frames.
const FRAME: Duration = Duration::from_millis(500);
/// Virtual time between two progress lines, for output that is not a terminal.
const LINE: Duration = Duration::from_secs(15);
/// Virtual time without a change after which the play continues at a higher speed.
const DULL: Duration = Duration::from_secs(35);
/// Exit code for invalid flags.
const USAGE: u8 = 2;
/// Exit code after Ctrl-C, as returned by shells.
const INTERRUPTED: u8 = 130;

const OPENING: &str = "\
Everything below runs in this process: a small Kubernetes API server, the native
controllers, fake kubelets, and the real yurt-ds: controller, ota-server and ctl.
Time is virtual; nothing leaves this machine.
";

const NEXT: &str = "
Try next:
  yurt-ds sim --story ota                      the owner of a node decides, once more
  yurt-ds sim --nodes 1000 --offline 30%       an own fleet
  yurt-ds sim --nodes 50 --bad-revision crash  a bad image: the rollout stops
  yurt-ds sim serve                            such a cluster to use kubectl on
  README.md                                    yurt-ds on a cluster of yours
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

/// Returns the DaemonSet of the play with offline nodes, with the image that it has before the change.
pub(crate) fn first_daemonset() -> serde_json::Value {
    script::three_nodes().rollout.object()
}

/// Speed at which virtual time advances.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pace {
    /// As fast as possible.
    Unpaced,
    /// This number of virtual seconds per real second.
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

/// Creates a runtime. Unless it runs in real time, its time is paused from the start.
///
/// Timers are rounded to milliseconds since the runtime's start. If time were paused later, each run would differ.
fn own_runtime(real_time: bool) -> std::io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(!real_time).build()
}

/// Runs the plays in a separate thread with its own runtime, because that runtime's time is virtual.
async fn in_own_time(args: PlayArgs, shutdown: Shutdown) -> Result<ExitCode> {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = own_runtime(args.real_time).context("cannot start the runtime");
        let code = runtime.and_then(|runtime| runtime.block_on(show(&args, shutdown)));
        // Ignore the error: the receiver is dropped if the caller no longer waits.
        let _ = ended.send(code);
    });
    end.await.context("the show broke off")?
}

async fn show(args: &PlayArgs, shutdown: Shutdown) -> Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(any_seed);
    let scripts = match scripts(args, seed) {
        Ok(scripts) => scripts,
        Err(wrong) => {
            eprintln!("error: {wrong}\n\nFor more information, try '--help'.");
            return Ok(ExitCode::from(USAGE));
        }
    };
    let mut theatre = StoryPlayer {
        screen: (args.output == ReportFormat::Text).then(DemoScreen::standard),
        shutdown,
        args,
    };
    theatre.print(&format!("seed {seed}\n\n"));
    if !args.is_own_fleet() {
        theatre.print(OPENING);
    }
    let mut reports = Vec::new();
    for script in scripts {
        let Some(report) = theatre.play(script, seed).await? else {
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
        theatre.print(NEXT);
    }
    Ok(if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns a random seed with at most five digits, so that it is easy to type.
fn any_seed() -> u64 {
    let nanoseconds = Clock::System.now().as_nanosecond();
    mix(u64::try_from(nanoseconds).unwrap_or_default()) % 100_000
}

/// Returns the scripts that the flags select: a custom fleet, or one story. The default is both stories, then the same fleet with
/// yurt-ds and with the native controller.
fn scripts(args: &PlayArgs, seed: u64) -> Result<Vec<Script>, String> {
    let fleet = args.fleet(seed)?;
    if let Some(story) = args.story {
        if args.is_own_fleet() {
            return Err(
                "--story: the fleet of a story is its own; leave the other flags about fleets out"
                    .to_owned(),
            );
        }
        return Ok(vec![story.script()]);
    }
    if args.is_own_fleet() {
        return Ok(vec![fleet.script()]);
    }
    let mut native = fleet.clone();
    native.rollout.engine = ScriptEngine::Native;
    let mut native = native.script();
    native.title += ", for comparison";
    native.in_background = true;
    Ok(vec![
        Story::Offline.script(),
        Story::Ota.script(),
        fleet.script(),
        native,
    ])
}

/// Plays scripts and prints their frames and reports.
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

    fn pace(&self, script: &Script) -> Pace {
        let seen = self.screen.as_ref().is_some_and(DemoScreen::is_live);
        match self.args {
            args if args.real_time => Pace::Real,
            args if args.fast || !seen || script.in_background => Pace::Unpaced,
            _ => Pace::Times(script.speed),
        }
    }

    /// Plays a script to its end; returns `None` if it is interrupted.
    async fn play(&mut self, script: Script, seed: u64) -> Result<Option<DemoReport>> {
        let pace = self.pace(&script);
        let live = self.screen.as_ref().is_some_and(DemoScreen::is_live);
        if !live || script.in_background {
            let heading = format!("── {} ", script.title);
            let rule = "─".repeat(78_usize.saturating_sub(heading.chars().count()));
            self.print(&format!("\n{heading}{rule}\n\n"));
        } else {
            self.print("\n");
            self.draw_over(&format!(" {}: starting …\n", script.title));
        }
        // Without a live view, the timeline was already printed line by line, so the report omits it.
        let in_full = script.in_full && live;
        let Some(report) = self.perform(script, seed, pace).await? else {
            return Ok(None);
        };
        self.print(&format!("\n{}\n", report.text(in_full)));
        Ok(Some(report))
    }

    async fn perform(
        &mut self,
        script: Script,
        seed: u64,
        pace: Pace,
    ) -> Result<Option<DemoReport>> {
        let mut stage = DemoStage::set_up(script, seed).await?;
        let mut told = PrintedSoFar::default();
        let mut to = Duration::ZERO;
        loop {
            let began = wall_clock();
            stage.advance(to).await?;
            stage.news();
            let ending = stage.ending();
            self.draw(&stage, &mut told, ending.as_ref());
            if let Some(ending) = ending {
                let report = stage.report(&ending);
                stage.world.finish().await;
                return Ok(Some(report));
            }
            if self.shutdown.is_requested() {
                return Ok(None);
            }
            wait(pace, stage.quiet(), began);
            to += FRAME;
        }
    }

    fn draw(&mut self, stage: &DemoStage, told: &mut PrintedSoFar, ending: Option<&StoryEnd>) {
        let Some(screen) = &mut self.screen else {
            return;
        };
        if stage.script.in_background {
            return;
        }
        if screen.is_live() {
            let picture = stage.frame().draw(screen.canvas());
            screen.draw(&picture);
            return;
        }
        for line in stage.timeline.iter().skip(told.lines) {
            screen.print(&line.text(""));
        }
        told.lines = stage.timeline.len();
        let now = stage.now();
        let due = now >= told.next && stage.changed.is_some() && !stage.script.in_full;
        if due || (ending.is_some() && !stage.script.in_full) {
            screen.print(&format!("{}\n", stage.frame().line()));
            told.next = now + LINE;
        }
    }
}

/// Output of the current play that was already printed.
#[derive(Default)]
struct PrintedSoFar {
    lines: usize,
    next: Duration,
}

/// Returns the real time, which also advances while virtual time is paused.
#[expect(
    clippy::disallowed_methods,
    reason = "pictures are paced by real time while virtual time stands still"
)]
fn wall_clock() -> std::time::Instant {
    std::time::Instant::now()
}

/// Sleeps for the real duration of a frame. This blocks the whole runtime, so virtual time stands still.
fn wait(pace: Pace, quiet: Duration, began: std::time::Instant) {
    if let Pace::Times(speed) = pace {
        let speed = if quiet > DULL { speed * 6.0 } else { speed };
        std::thread::sleep(FRAME.div_f64(speed).saturating_sub(began.elapsed()));
    }
}

/// Plays a script to its end without pauses, for tests.
#[cfg(test)]
async fn play(script: Script, seed: u64) -> Result<DemoReport> {
    let mut stage = DemoStage::set_up(script, seed).await?;
    let mut to = Duration::ZERO;
    loop {
        stage.advance(to).await?;
        stage.news();
        if let Some(ending) = stage.ending() {
            let report = stage.report(&ending);
            stage.world.finish().await;
            return Ok(report);
        }
        to += FRAME;
    }
}
