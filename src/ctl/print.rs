//! Rows as text: a table, a report on one DaemonSet, or a document for programs.

use std::collections::BTreeSet;

use serde::Serialize;

use super::code::Code;
use super::error::CliError;
use super::groups::{domain_table, wave_table};
use super::row::{NodeRow, SetRow};
use super::table::{CellStyle, Table};
use crate::cli::Output;
use crate::core::messages::verdict::meaning;
use crate::core::{SetKind, Verdict, instant};
use k8s_openapi::jiff::Timestamp;

/// Nodes that a table names before it refers to `-o wide`.
const NAMED: usize = 15;

/// A document for programs.
pub(super) fn document<T: Serialize>(rows: &T, output: Output) -> Result<String, CliError> {
    let failed = |error: String| CliError::new(Code::Failed, error);
    match output {
        Output::Yaml => serde_saphyr::to_string(rows).map_err(|error| failed(error.to_string())),
        _ => serde_json::to_string_pretty(rows)
            .map(|text| text + "\n")
            .map_err(|error| failed(error.to_string())),
    }
}

/// One line per DaemonSet.
pub(super) fn list(
    rows: &[SetRow],
    wide: bool,
    colour: bool,
    now: Timestamp,
    limit: usize,
) -> String {
    let mut heading = vec![
        "DAEMONSET",
        "PHASE",
        "SINCE",
        "UPDATED",
        "UNAVAILABLE",
        "OFFLINE",
        "REVISION",
        "STRATEGY",
    ];
    let kinds = rows.iter().any(|row| row.kind == SetKind::Advanced);
    if kinds {
        heading.insert(1, "KIND");
    }
    if wide {
        heading.push("MESSAGE");
    }
    let mut table = Table::new(&heading);
    // Twice the lines of a report: there is nothing else on the screen.
    let limit = limit.saturating_mul(2);
    for row in rows.iter().take(limit) {
        let plain = |text: String| (text, CellStyle::Plain);
        let mut cells = vec![
            plain(row.key()),
            (row.phase.to_owned(), CellStyle::of(row.phase)),
            plain(since(row, now).unwrap_or_else(|| "-".into())),
            plain(format!("{}/{}", row.updated, row.targeted)),
            plain(match &row.max_unavailable {
                Some(_) => format!("{}/{}", row.unavailable, row.allowed),
                None => row.unavailable.to_string(),
            }),
            plain(row.offline.to_string()),
            plain(row.revision.clone().unwrap_or_else(|| "-".into())),
            plain(row.strategy.clone().unwrap_or_else(|| "-".into())),
        ];
        if kinds {
            let kind = match row.kind {
                SetKind::Native => "Native",
                SetKind::Advanced => "Advanced",
            };
            cells.insert(1, plain(kind.to_owned()));
        }
        if wide {
            cells.push(plain(row.message.clone()));
        }
        table.row(cells);
    }
    let mut text = table.print(colour);
    if rows.len() > limit {
        text.push_str(&format!("… and {} more\n", rows.len() - limit));
    }
    text + &warnings(rows)
}

/// What a list warns of, each thing once, with whom it is about.
pub(super) fn warnings(rows: &[SetRow]) -> String {
    let notes: BTreeSet<&String> = rows.iter().flat_map(|row| &row.warnings).collect();
    let line = |note: &String| {
        let about = rows.iter().filter(|row| row.warnings.contains(note));
        let about: Vec<String> = about.map(SetRow::title).collect();
        let about = match about.len() == rows.len() && rows.len() > 1 {
            true => "all of them".to_owned(),
            false => about.join(", "),
        };
        format!("\nNote, on {about}: {note}\n")
    };
    notes.into_iter().map(line).collect()
}

fn since(row: &SetRow, now: Timestamp) -> Option<String> {
    let since: Timestamp = row.since.as_ref()?.parse().ok()?;
    Some(instant::between(since, now))
}

/// One DaemonSet: how it stands, how its nodes stand, and those that somebody should look at.
pub(super) fn report(
    row: &SetRow,
    wide: bool,
    colour: bool,
    now: Timestamp,
    limit: usize,
) -> String {
    let mut text = head(row, colour, now);
    text.push('\n');
    text.push_str(&classes(row, colour));
    if !row.waves.is_empty() {
        text.push_str(&format!(
            "\n{}\n{}",
            CellStyle::Bold.on("Waves", colour),
            wave_table(&row.waves, colour)
        ));
    }
    if !row.domains.is_empty() {
        text.push_str(&format!(
            "\n{}\n{}",
            CellStyle::Bold.on("Failure domains", colour),
            domain_table(&row.domains, colour)
        ));
    }
    let nodes = row.nodes.as_deref().unwrap_or_default();
    let mut shown: Vec<&NodeRow> = nodes
        .iter()
        .filter(|node| wide || node.needs_attention)
        .collect();
    if !wide {
        shown.sort_by_key(|node| (node.urgency, &node.node));
    }
    if !shown.is_empty() {
        let title = if wide {
            "Nodes"
        } else {
            "Nodes that need attention"
        };
        text.push_str(&format!("\n{}\n", CellStyle::Bold.on(title, colour)));
        let limit = limit.min(if wide { shown.len() } else { NAMED });
        text.push_str(&table_of(&shown[..shown.len().min(limit)], colour));
        if shown.len() > limit {
            let more = shown.len() - limit;
            text.push_str(&format!("… and {more} more: -o wide shows every node\n"));
        }
    }
    for note in &row.notes {
        text.push_str(&format!("\nNote: {note}\n"));
    }
    text
}

fn head(row: &SetRow, colour: bool, now: Timestamp) -> String {
    let strategy = match (&row.strategy, &row.max_unavailable) {
        (Some(strategy), Some(share)) => {
            let surge = row.max_surge.as_ref().map_or_else(String::new, |share| {
                format!(", max-surge {share}: {} of {}", row.surge_allowed, row.base)
            });
            format!(
                "  {strategy}, max-unavailable {share}: {} of {} nodes{surge}",
                row.allowed, row.base
            )
        }
        (Some(strategy), None) => format!("  {strategy}"),
        (None, _) => String::new(),
    };
    let since = since(row, now).map_or_else(String::new, |age| format!(" for {age}"));
    let revision = row
        .revision
        .as_ref()
        .map_or_else(String::new, |revision| format!(", revision {revision}"));
    format!(
        "{}{strategy}\n{}{since}{revision}:\n  {}\n",
        CellStyle::Bold.on(&row.title(), colour),
        CellStyle::of(row.phase).on(row.phase, colour),
        row.message
    )
}

fn classes(row: &SetRow, colour: bool) -> String {
    let mut text = String::new();
    let width = row.verdicts.keys().map(|word| word.len()).max();
    let width = width.unwrap_or_default();
    let digits = row
        .verdicts
        .values()
        .max()
        .map(|most| most.to_string().len());
    let digits = digits.unwrap_or_default().max(3);
    for (position, word) in Verdict::WORDS.into_iter().enumerate() {
        let Some(nodes) = row.verdicts.get(word) else {
            continue;
        };
        let padding = " ".repeat(width - word.len());
        let meaning = meaning(row.kind, position);
        let word = CellStyle::of(word).on(word, colour);
        text.push_str(&format!("  {nodes:>digits$}  {word}{padding}  {meaning}\n"));
    }
    if text.is_empty() {
        text.push_str("  no node is targeted: the template matches none\n");
    }
    text
}

fn table_of(nodes: &[&NodeRow], colour: bool) -> String {
    let mut table = Table::new(&["NODE", "VERDICT", "SINCE", "WHY"]);
    for node in nodes {
        let word = match &node.reason {
            Some(reason) => format!("{}({reason})", node.verdict),
            None => node.verdict.to_owned(),
        };
        table.row(vec![
            (node.node.clone(), CellStyle::Plain),
            (word, CellStyle::of(node.verdict)),
            (
                node.age.clone().unwrap_or_else(|| "-".into()),
                CellStyle::Plain,
            ),
            (node.message.clone(), CellStyle::Plain),
        ]);
    }
    table.print(colour)
}

/// A DaemonSet on one line, for those who wait.
pub(super) fn line(row: &SetRow, colour: bool) -> String {
    let revision = row
        .revision
        .as_ref()
        .map_or_else(String::new, |revision| format!(" (revision {revision})"));
    format!(
        "{}  {}{revision}: {}\n",
        row.title(),
        CellStyle::of(row.phase).on(row.phase, colour),
        row.message
    )
}
