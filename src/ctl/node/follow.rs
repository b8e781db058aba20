//! Follows a request until it is done. Polls the server once per second, and shows the progress on one redrawn line or on several
//! lines.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::act::ActOutcome;
use super::answer::Pods;
use super::client::NodeClient;
use crate::cli::Output;
use crate::cli::node::WaitArgs;
use crate::core::instant;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::screen::Screen;
use crate::ctl::table::CellStyle;

/// Polling interval. It is short, because the server answers a request for unchanged pods at almost no cost (304).
const EVERY: Duration = Duration::from_secs(1);
/// Maximum time without a response. The replaced pod may be the server itself, which then needs time to start.
const PATIENCE: Duration = Duration::from_secs(300);

/// Progress of a command with `--wait`.
pub(super) struct Follow<'a, 'b> {
    client: &'a NodeClient,
    screen: &'a mut Screen<'b>,
    timeout: Option<Duration>,
    begun: Instant,
    /// True for JSON and YAML: only the final document is shown, without progress.
    quiet: bool,
    /// Progress line that was printed last.
    printed: String,
    /// Time when the server stopped answering; `None` while it answers.
    silent: Option<Instant>,
}

/// Result of waiting for the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowStep {
    /// The pods were read again.
    Look,
    /// The timeout of the command has ended.
    TooLate,
}

impl<'a, 'b> Follow<'a, 'b> {
    pub(super) fn begin(
        client: &'a NodeClient,
        screen: &'a mut Screen<'b>,
        args: &WaitArgs,
    ) -> Self {
        Self {
            client,
            screen,
            timeout: args.timeout,
            begun: Instant::now(),
            quiet: matches!(args.output, Output::Json | Output::Yaml),
            printed: String::new(),
            silent: None,
        }
    }

    /// Returns the time since the request.
    pub(super) fn passed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns the time since the request as text, such as `5m`.
    pub(super) fn after(&self) -> String {
        instant::seconds(self.passed().as_secs())
    }

    /// Waits for the next poll and reads the pods again.
    ///
    /// # Errors
    /// Fails if the server does not answer for [`PATIENCE`], or answers unexpectedly.
    pub(super) async fn next(&mut self, pods: &mut Pods) -> Result<FollowStep, CliError> {
        let end = self
            .timeout
            .and_then(|timeout| self.begun.checked_add(timeout));
        let soon = Instant::now() + EVERY;
        sleep_until(end.map_or(soon, |end| end.min(soon))).await;
        if end.is_some_and(|end| end <= Instant::now()) {
            return Ok(FollowStep::TooLate);
        }
        let look = self.client.look_again(pods);
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

    pub(super) fn show(&mut self, step: &str, pods: &Pods) {
        if self.quiet {
            return;
        }
        let mut line = step.to_owned();
        if self.silent.is_some() {
            line.push_str("; the server of this node does not respond (it may be restarting)");
        } else if pods.old().is_some() {
            line.push_str("; the node is not connected to the cloud");
        }
        let _ = if self.screen.live {
            // Show the time first, because the end of a long line is cut off.
            let passed = CellStyle::Faint.on(&format!("{:>4}", self.after()), self.screen.colour);
            self.screen.redraw(&format!("{passed} {line}\n"))
        } else if self.printed != line {
            let shown = self.screen.print(&format!("{line}\n"));
            self.printed = line;
            shown
        } else {
            Ok(())
        };
    }

    /// Shows the result instead of the progress.
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
            // Clear the progress line and print the result below. A redrawn line would be cut off at the edge of the terminal.
            let _ = self.screen.redraw("");
        }
        let _ = self.screen.print(&format!("{message}\n"));
    }

    /// Returns the result for a command whose timeout has ended.
    pub(super) fn too_late(&self, step: &str) -> ActOutcome {
        let waited = self
            .timeout
            .map(|timeout| humantime::format_duration(timeout).to_string());
        ActOutcome {
            code: Code::Progressing,
            word: "TimedOut",
            message: format!(
                "Not finished after {}: {step}.",
                waited.unwrap_or_else(|| self.after())
            ),
            pod: None,
        }
    }
}
