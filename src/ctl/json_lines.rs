//! Output format `jsonl` of `ctl status`: one compact JSON object per line.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use super::code::Code;
use super::error::CliError;
use super::row::{SUPERSEDED, SetRow};
use super::screen::{Closed, Screen};
use crate::core::{foreign, instant};
use crate::index::SetKey;

/// A line: the fields of `-o json`, and the time of the line.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    row: &'a SetRow,
}

/// Renders one line per DaemonSet.
pub(super) fn render<'a>(
    rows: impl IntoIterator<Item = &'a SetRow>,
    now: Timestamp,
) -> Result<String, CliError> {
    rows.into_iter().map(|row| line(row, now)).collect()
}

fn line(row: &SetRow, now: Timestamp) -> Result<String, CliError> {
    let time = instant::words(now);
    let text = serde_json::to_string(&Line { time, row })
        .map_err(|error| CliError::new(Code::Failed, error.to_string()))?;
    Ok(foreign::json(&text).into_owned() + "\n")
}

/// Last printed row of each DaemonSet, by title.
#[derive(Default)]
pub(super) struct JsonLines(BTreeMap<String, SetRow>);

impl JsonLines {
    /// Prints a line for each DaemonSet whose state has changed since its last line.
    pub(super) fn progress(
        &mut self,
        rows: &[SetRow],
        now: Timestamp,
        screen: &mut Screen<'_>,
    ) -> Result<Result<(), Closed>, CliError> {
        self.print(rows, now, screen, |last, row| {
            last.summary() == row.summary()
        })
    }

    /// Prints a line for each DaemonSet whose last line differs from its final state in any field.
    pub(super) fn end(
        &mut self,
        rows: &[SetRow],
        now: Timestamp,
        screen: &mut Screen<'_>,
    ) -> Result<Result<(), Closed>, CliError> {
        self.print(rows, now, screen, |last, row| last == row)
    }

    /// Prints a last line for a DaemonSet that was replaced or deleted, or for all DaemonSets if `key` is `None`: the fields of its
    /// last line, with the phase [`SUPERSEDED`] and the reason.
    pub(super) fn supersede(
        &mut self,
        key: Option<&SetKey>,
        why: &str,
        now: Timestamp,
        screen: &mut Screen<'_>,
    ) -> Result<Result<(), Closed>, CliError> {
        let is_meant = |row: &&SetRow| {
            key.is_none_or(|key| {
                (row.kind, &*row.namespace, &*row.name) == (key.kind, &*key.namespace, &*key.name)
            })
        };
        let superseded = |row: &SetRow| SetRow {
            phase: SUPERSEDED,
            message: why.to_owned(),
            next: Vec::new(),
            ..row.clone()
        };
        let rows: Vec<SetRow> = self.0.values().filter(is_meant).map(superseded).collect();
        self.end(&rows, now, screen)
    }

    fn print(
        &mut self,
        rows: &[SetRow],
        now: Timestamp,
        screen: &mut Screen<'_>,
        is_same: impl Fn(&SetRow, &SetRow) -> bool,
    ) -> Result<Result<(), Closed>, CliError> {
        let changed: Vec<&SetRow> = rows
            .iter()
            .filter(|row| {
                let last = self.0.get(&row.title());
                last.is_none_or(|last| !is_same(last, row))
            })
            .collect();
        let text = render(changed.iter().copied(), now)?;
        let changed = changed.into_iter().map(|row| (row.title(), row.clone()));
        self.0.extend(changed);
        Ok(if text.is_empty() {
            Ok(())
        } else {
            screen.print(&text)
        })
    }
}
