//! A plan as text: first the result, then the order of nodes, which is shortened for large fleets.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::change::UNSET;
use super::measure::ReactionTimes;
use super::row::{PlanRow, StepRow};
use crate::core::forecast::ReplacementManner;
use crate::core::foreign::cut;
use crate::core::words::{named, plural};
use crate::ctl::brief::wrapped;
use crate::ctl::table::{CellStyle, Table};

/// Maximum length in characters of a planned change in the text. An image with registry and digest fits.
const SHOWN: usize = 200;
/// Maximum number of nodes that are listed one by one. A longer list has one line per batch.
const EACH: usize = 20;
/// Maximum number of batches in the list. Batches in the middle are omitted.
const BATCHES: usize = 20;

/// Renders the plan. If `wide` is true, it lists every node.
pub(super) fn plan(row: &PlanRow, wide: bool, colour: bool) -> String {
    let head = head(row);
    // Begin each sentence on its own line, and wrap it at 80 columns.
    let indent = |line: &str| line.chars().take_while(|letter| *letter == ' ').count();
    let lines = head.lines();
    let mut text: String = lines
        .map(|line| wrapped(line, indent(line), usize::MAX))
        .collect();
    if !row.steps.is_empty() {
        text.push('\n');
        text += &if wide || row.steps.len() <= EACH {
            each(row, colour)
        } else {
            folded(row, colour)
        };
    }
    text
}

/// Returns the planned changes as text: ` with a=1, b=2 without c`.
pub(super) fn changes(change: &[String]) -> String {
    let set = change.iter().map(String::as_str);
    let (unset, set): (Vec<&str>, Vec<&str>) = set.partition(|word| word.starts_with(UNSET));
    let unset: Vec<&str> = unset.iter().map(|word| &word[UNSET.len()..]).collect();
    let with = [(" with ", set), (" without ", unset)];
    let with = with.into_iter().filter(|(_, texts)| !texts.is_empty());
    let list = |texts: Vec<&str>| {
        let texts: Vec<_> = texts.iter().map(|word| cut(word, SHOWN)).collect();
        texts.join(", ")
    };
    with.map(|(with, texts)| format!("{with}{}", list(texts)))
        .collect()
}

fn head(row: &PlanRow) -> String {
    // Ignore the results of `writeln!`: writing to a String cannot fail.
    let mut text = String::new();
    let key = format!("{}/{}", row.namespace, row.name);
    let with = changes(&row.change);
    if row.steps.is_empty() {
        let _ = writeln!(text, "{key}{with}: nothing would be replaced.");
    } else {
        let _ = writeln!(
            text,
            "{key}{with}: {} of {} {} would get {}{}, in {} {}.",
            row.replaced,
            row.targeted,
            plural(row.targeted, "node", "nodes"),
            match &row.to {
                Some(hash) => format!("revision {hash}"),
                None => "the new revision".to_owned(),
            },
            match row.complete {
                true => format!(" within {}", exact(row.seconds)),
                // Show no total duration for an incomplete rollout: the time until it stops would be misleading.
                false => String::new(),
            },
            row.batches,
            plural(row.batches, "batch", "batches"),
        );
        let _ = writeln!(text, "{}", pace(row));
    }
    // Skip a wait without an end: it is the final state, which the line "At the end" reports.
    for wait in &row.waits {
        if let Some(until) = &wait.until {
            let (from, why) = (&wait.from, &wait.message);
            let _ = writeln!(text, "Waits from {from} until {until}: {why}");
        }
    }
    if !row.broke.is_empty() {
        let lost = row.broke.join(", ");
        let _ = writeln!(text, "Nodes assumed to fail with the new revision: {lost}.");
    }
    // Omit the full stop: the message may end with a command that users copy.
    let _ = writeln!(text, "At the end: {}: {}", row.phase, row.message);
    if row.cut {
        let _ = writeln!(text, "The rollout is not complete by then (see --horizon).");
    }
    for line in left(row) {
        let _ = writeln!(text, "  {line}");
    }
    for note in &row.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    text
}

fn pace(row: &PlanRow) -> String {
    let pace = &row.pace;
    let are_all = |manner| row.steps.iter().all(|step| step.manner == manner);
    let measured_in_place = pace.in_place_seconds;
    if let Some(seconds) = measured_in_place.filter(|_| are_all(ReplacementManner::InPlace)) {
        let (seconds, next) = (exact(seconds), reaction(pace.in_place_reaction));
        return format!("An update in place takes {seconds} (measured on recent updates).{next}");
    }
    let measured = match pace.measured_pods {
        0 => "assumed, as there is no pod to measure".to_owned(),
        pods => format!(
            "measured on {pods} {}{}",
            plural(pods, "pod", "pods"),
            if pace.crowded {
                " that started together with more pods than planned here, so the rollout may be faster"
            } else {
                ""
            }
        ),
    };
    let slow = if row.complete && row.slow_seconds > row.seconds {
        format!(
            "; if all were as slow as the slowest tenth ({}): {}",
            exact(pace.slow_start_seconds),
            exact(row.slow_seconds)
        )
    } else {
        String::new()
    };
    if are_all(ReplacementManner::Create) {
        let start = exact(pace.start_seconds);
        return format!("A pod takes {start} to start ({measured}{slow}).");
    }
    let end = exact(pace.end_seconds);
    let end = if pace.end_measured {
        format!("{end} to end (as in the last rollout)")
    } else {
        format!("up to {end} to end")
    };
    format!(
        "A pod takes {end} and {} to start ({measured}{slow}).{}",
        exact(pace.start_seconds),
        reaction(pace.reaction)
    )
}

/// Returns a sentence about the time between the end of one pod and the start of the next.
fn reaction(reaction: ReactionTimes) -> String {
    let known = if reaction.measured {
        "as in the last rollout"
    } else {
        "assumed"
    };
    let seconds = reaction.milliseconds as f64 / 1_000.0;
    format!(" Until the next one begins, {seconds:.1}s pass ({known}).")
}

/// Returns the nodes without the new revision at the end, one line per verdict (state of a node in the rollout).
fn left(row: &PlanRow) -> Vec<String> {
    let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for left in &row.left {
        texts.entry(left.verdict).or_default().push(&left.node);
    }
    let line =
        |(word, nodes): (&str, Vec<&str>)| format!("{word} {}: {}", nodes.len(), named(nodes, 0));
    texts.into_iter().map(line).collect()
}

fn each(row: &PlanRow, colour: bool) -> String {
    let mut table = Table::new(&["BATCH", "AT", "NODE", "HOW", "READY"]);
    for step in &row.steps {
        table.row(vec![
            plain(step.batch.to_string()),
            plain(at(step.seconds)),
            plain(step.node.clone()),
            plain(manner(step.manner).to_owned()),
            ready(step.ready_seconds),
        ]);
    }
    table.print(colour)
}

fn folded(row: &PlanRow, colour: bool) -> String {
    let mut table = Table::new(&["BATCH", "AT", "NODES", "FROM", "TO", "HOW", "READY"]);
    let batches: Vec<&[StepRow]> = row.steps.chunk_by(|a, b| a.batch == b.batch).collect();
    let hidden = batches.len().saturating_sub(BATCHES);
    for (position, batch) in batches.iter().enumerate() {
        if hidden > 0 && position == BATCHES / 2 {
            table.row(vec![(
                format!("… {hidden} more (-o wide shows all)"),
                CellStyle::Faint,
            )]);
        }
        if hidden > 0 && (BATCHES / 2..BATCHES / 2 + hidden).contains(&position) {
            continue;
        }
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else {
            continue;
        };
        let all = batch.iter().map(|step| step.ready_seconds);
        let slowest = all
            .collect::<Option<Vec<_>>>()
            .and_then(|all| all.into_iter().max());
        table.row(vec![
            plain(first.batch.to_string()),
            plain(at(first.seconds)),
            plain(batch.len().to_string()),
            plain(first.node.clone()),
            plain(last.node.clone()),
            plain(manner(first.manner).to_owned()),
            ready(slowest),
        ]);
    }
    table.print(colour)
}

fn plain(text: String) -> (String, CellStyle) {
    (text, CellStyle::Plain)
}

fn ready(seconds: Option<u64>) -> (String, CellStyle) {
    match seconds {
        Some(seconds) => (at(seconds), CellStyle::Good),
        None => ("never".to_owned(), CellStyle::Bad),
    }
}

fn at(seconds: u64) -> String {
    format!("+{}", exact(seconds))
}

/// Formats a duration to the second, such as `2m40s`. In the coarser format of tables, several batches would look equal.
fn exact(seconds: u64) -> String {
    let duration = humantime::format_duration(Duration::from_secs(seconds));
    duration.to_string().replace(' ', "")
}

fn manner(manner: ReplacementManner) -> &'static str {
    match manner {
        ReplacementManner::Delete => "delete",
        ReplacementManner::Surge => "surge",
        ReplacementManner::InPlace => "in place",
        ReplacementManner::Create => "create",
    }
}
