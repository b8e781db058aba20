//! Looking again until something is over: once a second, on one line of a terminal, or line by line elsewhere.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::act::ActOutcome;
use super::answer::Pods;
use super::client::Edge;
use crate::cli::Output;
use crate::cli::edge::WaitArgs;
use crate::core::instant;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::screen::Screen;
use crate::ctl::table::CellStyle;

/// An unchanged answer costs the server next to nothing; and whoever waits hears of the end within a second.
const EVERY: Duration = Duration::from_secs(1);
/// The server may be the very pod that is replaced; one that is silent for longer has not come back.
const PATIENCE: Duration = Duration::from_secs(300);

/// Somebody who waits.
pub(super) struct Follow<'a, 'b> {
    edge: &'a Edge,
    screen: &'a mut Screen<'b>,
    timeout: Option<Duration>,
    begun: Instant,
    /// Nothing is shown before a document is whole.
    quiet: bool,
    /// What was printed last.
    told: String,
    /// Since when the server is silent.
    silent: Option<Instant>,
}

/// What comes after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowStep {
    /// Look at the pods.
    Look,
    /// The time is up.
    TooLate,
}

impl<'a, 'b> Follow<'a, 'b> {
    /// Begins to wait.
    pub(super) fn begin(edge: &'a Edge, screen: &'a mut Screen<'b>, args: &WaitArgs) -> Self {
        Self {
            edge,
            screen,
            timeout: args.timeout,
            begun: Instant::now(),
            quiet: matches!(args.output, Output::Json | Output::Yaml),
            told: String::new(),
            silent: None,
        }
    }

    /// How long it has taken so far.
    pub(super) fn passed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The same for people.
    pub(super) fn after(&self) -> String {
        instant::seconds(self.passed().as_secs())
    }

    /// Waits a moment, then looks again.
    ///
    /// # Errors
    /// When the server is silent for too long, or is not what it was.
    pub(super) async fn next(&mut self, pods: &mut Pods) -> Result<FollowStep, CliError> {
        let end = self
            .timeout
            .and_then(|timeout| self.begun.checked_add(timeout));
        let soon = Instant::now() + EVERY;
        sleep_until(end.map_or(soon, |end| end.min(soon))).await;
        if end.is_some_and(|end| end <= Instant::now()) {
            return Ok(FollowStep::TooLate);
        }
        let look = self.edge.look_again(pods);
        let looked = match end {
            Some(end) => timeout_at(end, look).await,
            None => Ok(look.await),
        };
        match looked {
            Err(_) => return Ok(FollowStep::TooLate),
            Ok(Ok(())) => self.silent = None,
            Ok(Err(error)) => {
                let since = *self.silent.get_or_insert_with(Instant::now);
                if error.code != Code::Unreachable || since.elapsed() > PATIENCE {
                    return Err(error);
                }
            }
        }
        Ok(FollowStep::Look)
    }

    /// Shows how far it is.
    pub(super) fn show(&mut self, step: &str, pods: &Pods) {
        if self.quiet {
            return;
        }
        let mut line = step.to_owned();
        if self.silent.is_some() {
            line.push_str("; the server of this node is silent (perhaps it is replaced itself)");
        } else if pods.old().is_some() {
            line.push_str("; the node has no contact with the cloud");
        }
        let _ = if self.screen.live {
            // In front, because the end of a long line is cut.
            let passed = CellStyle::Faint.on(&format!("{:>4}", self.after()), self.screen.colour);
            self.screen.redraw(&format!("{passed} {line}\n"))
        } else if self.told != line {
            let shown = self.screen.print(&format!("{line}\n"));
            self.told = line;
            shown
        } else {
            Ok(())
        };
    }

    /// Shows how it ended, in the place of how far it was.
    pub(super) fn end(self, outcome: &ActOutcome) {
        if self.quiet {
            return;
        }
        let paint = match outcome.code {
            Code::Complete => CellStyle::Good,
            Code::Progressing => CellStyle::Busy,
            _ => CellStyle::Bad,
        };
        let message = paint.on(&outcome.message, self.screen.colour);
        if self.screen.live {
            // Its end is for reading: not cut at the edge of the terminal.
            let _ = self.screen.redraw("");
        }
        let _ = self.screen.print(&format!("{message}\n"));
    }

    /// What to say when the time is up.
    pub(super) fn too_late(&self, step: &str) -> ActOutcome {
        let waited = self
            .timeout
            .map(|timeout| humantime::format_duration(timeout).to_string());
        ActOutcome {
            code: Code::Progressing,
            word: "TimedOut",
            message: format!(
                "Not over after {}: {step}.",
                waited.unwrap_or_else(|| self.after())
            ),
            pod: None,
        }
    }
}
