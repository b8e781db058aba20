//! Report on all checks: text for one screen, or a document.

use serde::Serialize;

use super::finding::{Category, CheckStatus, Finding};
use super::version::OWN;
use crate::cli::ctl::CheckOutput;
use crate::core::words::plural;
use crate::ctl::brief::{COLUMNS, wrapped};
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::print;
use crate::ctl::table::CellStyle;

/// Description of the fields of `-o json` and `-o yaml`, for the reference.
pub(crate) const FIELDS: &str = "\
Fields of -o json and -o yaml (fields may be added, but not renamed; null if unknown):
  of a report     version (of ctl), kubernetes (version of the API server), status (the worst of all checks), checks
  of a check      id (stable), category, status, message, fix (command or action; null if nothing has to be done), docs
  status          ok, skipped (not checked; message says why), warning, failed
  category        api, controller, permissions, daemonsets, advanced, agents, policies; install with --pre";

/// Width of the column with the categories.
const CATEGORY: usize = 13;

/// Results of all checks. Field names are stable for scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct CheckReport {
    version: &'static str,
    kubernetes: Option<String>,
    status: CheckStatus,
    checks: Vec<Finding>,
    /// True if the API server answered.
    #[serde(skip)]
    is_reachable: bool,
}

/// Findings with the same status, message and fix, printed once.
struct Paragraph<'a> {
    first: &'a Finding,
    others: usize,
}

impl CheckReport {
    /// Creates the report about an API server that answered.
    pub(super) fn new(kubernetes: Option<String>, mut checks: Vec<Finding>) -> Self {
        checks.sort_by_key(|finding| finding.category);
        let status = checks.iter().map(|finding| finding.status).max();
        Self {
            version: OWN,
            kubernetes,
            status: status.unwrap_or(CheckStatus::Ok),
            checks,
            is_reachable: true,
        }
    }

    /// Creates the report about an API server that did not answer.
    pub(super) fn unreachable(finding: Finding) -> Self {
        Self {
            is_reachable: false,
            ..Self::new(None, vec![finding])
        }
    }

    /// Returns true if the API server answered.
    pub(super) fn is_reachable(&self) -> bool {
        self.is_reachable
    }

    /// Returns the exit code.
    pub(super) fn code(&self) -> Code {
        match self.status {
            _ if !self.is_reachable => Code::Unreachable,
            CheckStatus::Failed => Code::Failed,
            CheckStatus::Ok | CheckStatus::Skipped | CheckStatus::Warning => Code::Complete,
        }
    }

    /// Returns the names of the failed checks.
    pub(super) fn failed(&self) -> Vec<&'static str> {
        let failed = self.with(CheckStatus::Failed);
        failed.map(|finding| finding.id.name()).collect()
    }

    fn with(&self, status: CheckStatus) -> impl Iterator<Item = &Finding> {
        let checks = self.checks.iter();
        checks.filter(move |finding| finding.status == status)
    }

    /// Renders the report in the requested format.
    ///
    /// # Errors
    /// Fails if the report cannot be rendered as a document.
    pub(super) fn render(&self, output: CheckOutput, colour: bool) -> Result<String, CliError> {
        if let Some(output) = output.document() {
            return print::document(self, output);
        }
        Ok(match output {
            CheckOutput::Short => self.short(colour),
            CheckOutput::Wide => self.groups(colour, true) + &self.conclusion(),
            _ => self.groups(colour, false) + &self.conclusion(),
        })
    }

    /// Renders only the faults.
    fn short(&self, colour: bool) -> String {
        let faults = self.checks.iter();
        let faults = faults.filter(|finding| finding.status >= CheckStatus::Warning);
        paragraphs(faults)
            .iter()
            .map(|paragraph| paragraph.text(colour))
            .collect()
    }

    /// Renders a line per category, followed by the findings that are not ok. With `all`, findings that are ok follow, too.
    fn groups(&self, colour: bool, all: bool) -> String {
        let mut text = String::new();
        let categories = self.checks.chunk_by(|a, b| a.category == b.category);
        for checks in categories {
            text.push_str(&heading(checks, colour));
            let shown = checks
                .iter()
                .filter(|finding| all || finding.status != CheckStatus::Ok);
            for paragraph in paragraphs(shown) {
                text.push_str(&paragraph.text(colour));
            }
        }
        text
    }

    /// Returns the last line, with the numbers of failed checks, warnings and skipped checks.
    fn conclusion(&self) -> String {
        let count = |status| self.with(status).count();
        let (failed, warnings) = (count(CheckStatus::Failed), count(CheckStatus::Warning));
        let skipped = count(CheckStatus::Skipped);
        if failed + warnings + skipped == 0 {
            return "\nAll checks passed.\n".to_owned();
        }
        let parts = [
            (
                failed,
                format!("{failed} {} failed", plural(failed, "check", "checks")),
            ),
            (
                warnings,
                format!("{warnings} {}", plural(warnings, "warning", "warnings")),
            ),
            (skipped, format!("{skipped} not checked")),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter_map(|(count, text)| (count > 0).then_some(text))
            .collect();
        let start = if failed == 0 { "No check failed: " } else { "" };
        format!("\n{start}{}.\n", parts.join(", "))
    }
}

/// Returns the line of a category: its name, and the worst status of its checks.
fn heading(checks: &[Finding], colour: bool) -> String {
    let worst = checks.iter().map(|finding| finding.status).max();
    let status = worst.unwrap_or(CheckStatus::Ok);
    let category = checks
        .first()
        .map_or(Category::Api, |finding| finding.category);
    format!(
        "{:CATEGORY$}{}\n",
        category.name(),
        style(status).on(status.word(), colour)
    )
}

fn style(status: CheckStatus) -> CellStyle {
    match status {
        CheckStatus::Ok => CellStyle::Good,
        CheckStatus::Skipped => CellStyle::Faint,
        CheckStatus::Warning => CellStyle::Busy,
        CheckStatus::Failed => CellStyle::Bad,
    }
}

/// Groups findings with the same status, message and fix. Keeps their order.
fn paragraphs<'a>(findings: impl Iterator<Item = &'a Finding>) -> Vec<Paragraph<'a>> {
    let mut all: Vec<Paragraph<'a>> = Vec::new();
    for finding in findings {
        let is_same = |one: &&mut Paragraph<'a>| {
            let first = one.first;
            (first.category, first.status) == (finding.category, finding.status)
                && (&first.message, &first.fix) == (&finding.message, &finding.fix)
        };
        match all.iter_mut().find(is_same) {
            Some(same) => same.others += 1,
            None => all.push(Paragraph {
                first: finding,
                others: 0,
            }),
        }
    }
    all
}

impl Paragraph<'_> {
    fn text(&self, colour: bool) -> String {
        let finding = self.first;
        let others = match self.others {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let status = style(finding.status).on(finding.status.word(), colour);
        let mut text = format!("  {}{others}: {status}\n", finding.id.name());
        text.push_str(&wrapped(&finding.message, 4, usize::MAX));
        if let Some(fix) = &finding.fix {
            text.push_str(&labelled("Fix:", fix));
        }
        if finding.status >= CheckStatus::Warning {
            text.push_str(&labelled("Docs:", finding.docs));
        }
        text
    }
}

/// Returns a labelled text. A command or page that does not fit after the label gets a line of its own, so that it can be copied.
fn labelled(label: &str, text: &str) -> String {
    let line = format!("    {label:5} {text}");
    if line.chars().count() <= COLUMNS {
        format!("{line}\n")
    } else if ["kubectl ", "yurt-ds ", "docs/"]
        .iter()
        .any(|start| text.starts_with(start))
    {
        format!("    {label}\n  {text}\n")
    } else {
        wrapped(&format!("{label}  {text}"), 4, usize::MAX)
    }
}
