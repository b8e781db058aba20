//! Output as text: rows as a table, as a report on one DaemonSet, or as JSON or YAML.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_saphyr::DoubleQuoted;

use super::brief;
use super::code::Code;
use super::error::CliError;
use super::row::{NodeRow, PodCountsRow, PodRow, SetRow};
use super::table::{CellStyle, Table};
use super::waves_and_domains::{domain_table, wave_table};
use crate::cli::Output;
use crate::core::words::plural;
use crate::core::{SetKind, foreign, instant};
use k8s_openapi::jiff::Timestamp;

/// Maximum number of node names in a table. If there are more, the table refers to `-o wide`.
const NAMED: usize = 15;

/// Renders a JSON or YAML document.
pub(super) fn document<T: Serialize>(rows: &T, output: Output) -> Result<String, CliError> {
    let failed = |error: String| CliError::new(Code::Failed, error);
    match output {
        Output::Yaml => yaml(rows).map_err(|error| failed(error.to_string())),
        _ => serde_json::to_string_pretty(rows)
            .map(|text| foreign::json(&text).into_owned() + "\n")
            .map_err(|error| failed(error.to_string())),
    }
}

fn yaml<T: Serialize>(rows: &T) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(rows)?;
    if let Cow::Borrowed(_) = foreign::yaml(&text) {
        return Ok(text);
    }
    let quoted = serde_saphyr::to_string(&Quoted(&serde_json::to_value(rows)?))?;
    Ok(foreign::yaml(&quoted).into_owned())
}

/// A value in YAML output. Strings from the cluster are double-quoted, because YAML allows escapes only in double quotes.
struct Quoted<'a>(&'a Value);

impl Serialize for Quoted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::String(text) if text.chars().any(foreign::is_forbidden) => {
                DoubleQuoted(text).serialize(serializer)
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Quoted)),
            Value::Object(fields) => {
                serializer.collect_map(fields.iter().map(|(key, value)| (key, Quoted(value))))
            }
            other => other.serialize(serializer),
        }
    }
}

/// Renders one line per DaemonSet.
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
    ];
    let kinds = rows.iter().any(|row| row.kind == SetKind::Advanced);
    if kinds {
        heading.insert(1, "KIND");
    }
    if wide {
        heading.extend(["REVISION", "STRATEGY", "MESSAGE"]);
    }
    let mut table = Table::new(&heading);
    // Allow twice as many lines as for a table in a report, because this table is the only one on the screen.
    let limit = limit.saturating_mul(2);
    for row in rows.iter().take(limit) {
        let plain = |text: String| (text, CellStyle::Plain);
        let mut cells = vec![
            plain(row.key()),
            (row.phase.to_owned(), CellStyle::for_word(row.phase)),
            plain(since(row, now).unwrap_or_else(|| "-".into())),
            plain(format!(
                "{}/{}",
                number(
                    row.updated
                        .or(row.pod_counts.as_ref().map(|pods| pods.current))
                ),
                number(row.targeted)
            )),
            plain(match (&row.max_unavailable, row.allowed) {
                (Some(_), Some(allowed)) => format!("{}/{allowed}", number(row.unavailable)),
                _ => number(row.unavailable),
            }),
            plain(number(row.offline)),
        ];
        if kinds {
            let kind = match row.kind {
                SetKind::Native => "Native",
                SetKind::Advanced => "Advanced",
            };
            cells.insert(1, plain(kind.to_owned()));
        }
        if wide {
            let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
            cells.push(plain(or_none(&row.revision)));
            cells.push(plain(or_none(&row.strategy)));
            cells.push(plain(row.message.clone()));
        }
        table.row(cells);
    }
    let mut text = table.print(colour);
    if rows.len() > limit {
        text.push_str(&format!("… and {} more\n", rows.len() - limit));
    }
    let is_shown = |row: &SetRow, note: &String| wide && *note == row.message;
    text + &warnings(rows, is_shown)
}

/// Renders a number; `-` if the number is unknown.
fn number(known: Option<usize>) -> String {
    known.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// Renders each distinct warning once, with the DaemonSets that it applies to. Omits warnings that a row already shows.
pub(super) fn warnings(rows: &[SetRow], is_shown: impl Fn(&SetRow, &String) -> bool) -> String {
    let warns = |row: &SetRow, note: &String| row.warnings.contains(note) && !is_shown(row, note);
    let all = rows.iter().flat_map(|row| &row.warnings);
    let notes: BTreeSet<&String> = all
        .filter(|note| rows.iter().any(|row| warns(row, note)))
        .collect();
    let line = |note: &String| {
        let about = rows.iter().filter(|row| warns(row, note));
        let about: Vec<String> = about.map(SetRow::title).collect();
        let about = if about.len() == rows.len() && rows.len() > 1 {
            "all of them".to_owned()
        } else {
            about.join(", ")
        };
        format!("\nNote, on {about}: {note}\n")
    };
    notes.into_iter().map(line).collect()
}

fn since(row: &SetRow, now: Timestamp) -> Option<String> {
    let since: Timestamp = row.since.as_ref()?.parse().ok()?;
    Some(instant::between(since, now))
}

/// Renders a report on one DaemonSet and its nodes. If `wide` is true, it includes all nodes and details.
pub(super) fn report(
    row: &SetRow,
    wide: bool,
    colour: bool,
    now: Timestamp,
    limit: usize,
) -> String {
    let (title, phase) = (title(row), phase(row, colour, now));
    let pods = row.pod_counts.as_ref();
    if let (None, false) = (pods, wide) {
        return brief::report(row, &title, &phase, colour);
    }
    let title = CellStyle::Bold.on(&title, colour);
    let numbers = match pods {
        Some(counts) => self::pods(row, counts, wide, colour, limit),
        None => brief::bar(row) + "\n",
    };
    let mut text = format!("{title}\n{phase}\n  {}\n\n{numbers}", row.message);
    if !row.waves.is_empty() {
        text.push_str(&format!(
            "\n{}\n{}",
            CellStyle::Bold.on("Waves", colour),
            wave_table(&row.waves, true, colour)
        ));
    }
    if !row.domains.is_empty() {
        text.push_str(&format!(
            "\n{}\n{}",
            CellStyle::Bold.on("Failure domains", colour),
            domain_table(&row.domains, colour)
        ));
    }
    // Show nodes only if they have verdicts. Otherwise the list of pods above is complete.
    let nodes = row.nodes.as_deref().filter(|_| row.pod_counts.is_none());
    let shown: Vec<&NodeRow> = nodes.unwrap_or_default().iter().collect();
    if !shown.is_empty() {
        text.push_str(&format!("\n{}\n", CellStyle::Bold.on("Nodes", colour)));
        let limit = limit.min(shown.len());
        text.push_str(&table_of(&shown[..limit], colour));
        if shown.len() > limit {
            text.push_str(&format!("… and {} more\n", shown.len() - limit));
        }
    }
    for note in row.notes.iter().filter(|note| **note != row.message) {
        text.push_str(&format!("\nNote: {note}\n"));
    }
    text
}

/// Returns the heading of a report: name and strategy of the DaemonSet.
fn title(row: &SetRow) -> String {
    let strategy = match (&row.strategy, &row.max_unavailable) {
        (Some(strategy), Some(share)) => {
            let of_base = |number: Option<usize>| match (number, row.base) {
                (Some(number), Some(base)) => format!(": {number} of {base}"),
                _ => String::new(),
            };
            let surge = row.max_surge.as_ref().map_or_else(String::new, |share| {
                format!(", max-surge {share}{}", of_base(row.surge_allowed))
            });
            let allowed = of_base(row.allowed);
            let nodes = if allowed.is_empty() { "" } else { " nodes" };
            format!("  {strategy}, max-unavailable {share}{allowed}{nodes}{surge}")
        }
        (Some(strategy), None) => format!("  {strategy}"),
        (None, _) => String::new(),
    };
    format!("{}{strategy}", row.title())
}

/// Returns the phase, the time for which it has lasted, and the revision.
fn phase(row: &SetRow, colour: bool, now: Timestamp) -> String {
    let since = since(row, now).map_or_else(String::new, |age| format!(" for {age}"));
    let revision = row
        .revision
        .as_ref()
        .map_or_else(String::new, |revision| format!(", revision {revision}"));
    let word = CellStyle::for_word(row.phase).on(row.phase, colour);
    format!("{word}{since}{revision}:")
}

/// Renders the pods for a caller without the right to list nodes: the counts, and the pods that are outdated or not Ready.
fn pods(row: &SetRow, counts: &PodCountsRow, wide: bool, colour: bool, limit: usize) -> String {
    let mut text = format!(
        "  {} {}: {} current, {} outdated; {} Ready\n",
        counts.pods,
        plural(counts.pods, "pod", "pods"),
        counts.current,
        counts.outdated,
        counts.ready
    );
    if let Some(targeted) = row.targeted {
        let nodes = plural(targeted, "node", "nodes");
        text.push_str(&format!(
            "  desired: {targeted} {nodes}, according to its status\n"
        ));
    }
    let nodes = row.nodes.iter().flatten();
    let pods = nodes.flat_map(|node| node.pods.iter().map(|pod| (node.node.as_str(), pod)));
    let is_shown =
        |(_, pod): &(&str, &PodRow)| wide || pod.revision != "current" || pod.state() != "Ready";
    let shown: Vec<(&str, &PodRow)> = pods.filter(is_shown).collect();
    if shown.is_empty() {
        return text;
    }
    let title = if wide {
        "Pods"
    } else {
        "Pods that are outdated or not Ready"
    };
    text.push_str(&format!("\n{}\n", CellStyle::Bold.on(title, colour)));
    let mut table = Table::new(&["NODE", "POD", "REVISION", "STATE"]);
    let limit = limit.min(if wide { shown.len() } else { NAMED });
    for (node, pod) in shown.iter().take(limit) {
        let cells = [*node, pod.name.as_str(), pod.revision, pod.state()];
        table.row(cells.map(|cell| (cell.to_owned(), CellStyle::Plain)).into());
    }
    text.push_str(&table.print(colour));
    if shown.len() > limit {
        let more = shown.len() - limit;
        text.push_str(&format!("… and {more} more: -o wide shows every pod\n"));
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
            (word, CellStyle::for_word(node.verdict)),
            (
                node.age.clone().unwrap_or_else(|| "-".into()),
                CellStyle::Plain,
            ),
            (node.message.clone(), CellStyle::Plain),
        ]);
    }
    table.print(colour)
}

/// Renders the state of a DaemonSet on one line, for the progress of a waiting command.
pub(super) fn line(row: &SetRow, colour: bool) -> String {
    let revision = row
        .revision
        .as_ref()
        .map_or_else(String::new, |revision| format!(" (revision {revision})"));
    format!(
        "{}  {}{revision}: {}\n",
        row.title(),
        CellStyle::for_word(row.phase).on(row.phase, colour),
        row.message
    )
}
