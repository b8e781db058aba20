//! JUnit report of `ctl status --wait`: one test case per DaemonSet.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::code::Code;
use super::error::CliError;
use super::look::Look;
use super::row::{NO_CONTROLLER, SetRow};
use crate::cli::ctl::StatusArgs;
use crate::core::{Phase, SetKind, foreign, instant};
use crate::index::SetKey;

/// Name of the test suite.
const SUITE: &str = "yurt-ds ctl status";

/// Result of a test case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The rollout is complete.
    Passed,
    /// The rollout has not ended. The final report contains no such case.
    Pending { message: String },
    /// The rollout failed, needs an operator, or exceeded the timeout.
    Failed { reason: String, message: String },
    /// The wait ended because of another DaemonSet.
    Skipped { message: String },
    /// The command could not determine the state.
    Error { reason: String, message: String },
}

impl Outcome {
    fn of_look(look: &Look, strict: bool) -> Self {
        let code = look.code(strict);
        if code == Code::Complete && look.recovering() == 0 {
            return Self::Passed;
        }
        let row = SetRow::of_look(look, false);
        let reason = match look {
            Look::Judged(snapshot) => match snapshot.phase() {
                Phase::Stalled(stall) if row.phase != NO_CONTROLLER => stall.reason(),
                _ => row.phase,
            },
            Look::Reported(_) => row.phase,
        };
        let message = row.message;
        match code {
            Code::Complete | Code::Progressing => Self::Pending { message },
            _ => Self::Failed {
                reason: reason.to_owned(),
                message,
            },
        }
    }

    /// Returns the result at the end of a wait. `waited` is the timeout if it ended the wait.
    fn ended(self, waited: Option<Duration>) -> Self {
        match (self, waited) {
            (Self::Pending { message }, Some(waited)) => {
                let waited = humantime::format_duration(waited);
                Self::Failed {
                    reason: "Timeout".to_owned(),
                    message: format!("Not complete after {waited}: {message}"),
                }
            }
            (Self::Pending { message }, None) => Self::Skipped {
                message: format!("The wait ended before this rollout: {message}"),
            },
            (other, _) => other,
        }
    }

    /// Returns the XML element inside the test case; `None` if the case passed.
    fn element(&self) -> Option<String> {
        let with_type = |name: &str, reason: &str, message: &str| {
            let (reason, message) = (escaped(reason), escaped(message));
            Some(format!("<{name} type=\"{reason}\" message=\"{message}\"/>"))
        };
        match self {
            Self::Passed => None,
            Self::Failed { reason, message } => with_type("failure", reason, message),
            Self::Error { reason, message } => with_type("error", reason, message),
            Self::Skipped { message } | Self::Pending { message } => {
                Some(format!("<skipped message=\"{}\"/>", escaped(message)))
            }
        }
    }
}

/// A test case, and the time from the start of the wait to its result.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Case {
    outcome: Outcome,
    after: Duration,
}

/// JUnit report that is written at the end of a wait.
pub(super) struct JunitReport {
    path: PathBuf,
    /// Name of the test case for an error before the DaemonSets are known.
    typed: String,
    strict: bool,
    started: Timestamp,
    begun: Instant,
    cases: BTreeMap<SetKey, Case>,
}

impl JunitReport {
    /// Creates the report, and writes it to `path`. The file says that the command was killed, until [`write`](Self::write)
    /// replaces it.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn create(path: &Path, args: &StatusArgs, now: Timestamp) -> Result<Self, CliError> {
        // Opening a named pipe would block until a reader opens it, too.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            let text = format!(
                "The JUnit file {} is not a regular file. Choose another one with --junit.",
                path.display()
            );
            return Err(CliError::new(Code::Failed, text));
        }
        let typed = args.daemonset.as_deref().unwrap_or("all DaemonSets");
        let report = Self {
            path: path.to_owned(),
            typed: typed.to_owned(),
            strict: args.strict,
            started: now,
            begun: Instant::now(),
            cases: BTreeMap::new(),
        };
        let killed = CliError::new(
            Code::Failed,
            "The command was killed before the wait ended.",
        );
        report.write(&Err(killed))?;
        Ok(report)
    }

    /// Records the state of the DaemonSets. A case that has passed keeps its time; the time of all others is updated.
    pub(super) fn observe(&mut self, looks: &[Look]) {
        for look in looks {
            let outcome = Outcome::of_look(look, self.strict);
            self.set(look.key().clone(), outcome);
        }
    }

    fn set(&mut self, key: SetKey, outcome: Outcome) {
        let is_same = |case: &Case| case.outcome == outcome && outcome == Outcome::Passed;
        if !self.cases.get(&key).is_some_and(is_same) {
            let after = self.begun.elapsed();
            self.cases.insert(key, Case { outcome, after });
        }
    }

    /// Records the end of the wait. `waited` is the timeout if it ended the wait.
    pub(super) fn end(&mut self, waited: Option<Duration>) {
        for case in self.cases.values_mut() {
            case.outcome = case.outcome.clone().ended(waited);
        }
    }

    /// Records that the revision or the DaemonSet for which the command waited was replaced.
    pub(super) fn supersede(&mut self, key: &SetKey, message: String) {
        let reason = "Superseded".to_owned();
        self.set(key.clone(), Outcome::Failed { reason, message });
        self.end(None);
    }

    /// Records that all DaemonSets were replaced or deleted.
    pub(super) fn supersede_all(&mut self, message: &str) {
        let keys: Vec<SetKey> = self.cases.keys().cloned().collect();
        for key in keys {
            self.supersede(&key, message.to_owned());
        }
    }

    /// Writes the report. `ended` is the result of the command. If it is an error, each pending case has this error as its result.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn write(&self, ended: &Result<Code, CliError>) -> Result<(), CliError> {
        let xml = self.render(ended.as_ref().err());
        fs::write(&self.path, xml).map_err(|error| {
            let text = format!(
                "The JUnit file {} cannot be written: {error}. Create its directory, or choose another file with --junit.",
                self.path.display()
            );
            CliError::new(Code::Failed, text)
        })
    }

    fn render(&self, error: Option<&CliError>) -> String {
        let error = error.map(|error| Case {
            outcome: Outcome::Error {
                reason: format!("{:?}", error.code),
                message: error.to_string(),
            },
            after: self.begun.elapsed(),
        });
        let mut cases: Vec<(String, String, Case)> = Vec::new();
        for (key, case) in &self.cases {
            let pending = matches!(case.outcome, Outcome::Pending { .. });
            let failed = error.clone().filter(|_| pending);
            let case = failed.unwrap_or_else(|| case.clone());
            cases.push((key.namespace.to_string(), kind_and_name(key), case));
        }
        if let (Some(case), true) = (error, self.cases.is_empty()) {
            cases.push((SUITE.to_owned(), self.typed.clone(), case));
        }
        suite(&cases, self.started, self.begun.elapsed())
    }
}

/// Replaces the report of an earlier run by an error that occurred before the API server was contacted.
///
/// # Errors
/// Fails if the file cannot be written.
pub(super) fn report_error(
    args: &StatusArgs,
    now: Timestamp,
    error: &CliError,
) -> Result<(), CliError> {
    match &args.junit {
        Some(path) => JunitReport::create(path, args, now)?.write(&Err(error.clone())),
        None => Ok(()),
    }
}

/// Renders the test suite. Each case has a class, a name and a result.
fn suite(cases: &[(String, String, Case)], started: Timestamp, passed: Duration) -> String {
    let count =
        |is: fn(&Outcome) -> bool| cases.iter().filter(|(.., case)| is(&case.outcome)).count();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{SUITE}\" tests=\"{}\" \
         failures=\"{}\" errors=\"{}\" skipped=\"{}\" timestamp=\"{}\" time=\"{}\">\n",
        cases.len(),
        count(|outcome| matches!(outcome, Outcome::Failed { .. })),
        count(|outcome| matches!(outcome, Outcome::Error { .. })),
        count(|outcome| matches!(outcome, Outcome::Skipped { .. } | Outcome::Pending { .. })),
        instant::words(started),
        seconds(passed),
    );
    for (class, name, case) in cases {
        let (class, name, time) = (escaped(class), escaped(name), seconds(case.after));
        let start = format!("    <testcase classname=\"{class}\" name=\"{name}\" time=\"{time}\"");
        // Writing to a String cannot fail.
        let _ = match case.outcome.element() {
            None => writeln!(xml, "{start}/>"),
            Some(element) => writeln!(xml, "{start}>\n      {element}\n    </testcase>"),
        };
    }
    xml + "  </testsuite>\n</testsuites>\n"
}

/// Returns the name of a test case, as in `ds/web`. Its class is the namespace.
fn kind_and_name(key: &SetKey) -> String {
    match key.kind {
        SetKind::Native => format!("ds/{}", key.name),
        SetKind::Advanced => format!("ads/{}", key.name),
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64())
}

/// Returns the text for an attribute in double quotes. Characters that XML 1.0 doesn't allow, and all others that
/// [`foreign::is_forbidden`] names, become visible escapes such as `\u{1b}`.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in foreign::shown(text).chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            // The only characters outside XML 1.0 that `shown` leaves.
            '\u{fffe}' | '\u{ffff}' => escaped.extend(letter.escape_unicode()),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
