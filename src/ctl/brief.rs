//! Report on one DaemonSet for a screen of 80 columns and 24 lines: a headline, a line of numbers, groups of nodes, and next steps.

use super::row::{NodeRow, SetRow};
use super::table::CellStyle;
use super::waves_and_domains::{domain_table, wave_table};
use crate::core::foreign::cut;
use crate::core::messages::NextStep;
use crate::core::words::plural;

/// Width of a screen in columns.
pub(super) const COLUMNS: usize = 80;
/// Number of lines of a screen, without the one for the shell prompt.
const LINES: usize = 23;
/// Maximum number of lines of the headline.
const HEADLINE: usize = 4;
/// Maximum number of node groups.
const GROUPS: usize = 5;
/// Maximum number of node names shown for a group.
const NAMED: usize = 3;
/// Maximum length of the reason that a component reports for a group, in characters.
const LONGEST_REASON: usize = 32;
/// Maximum number of notes.
const NOTES: usize = 2;
/// Maximum number of rows shown in a table of waves or failure domains.
const ROWS: usize = 4;
/// Label before the list of next steps.
const LABEL: &str = "Next:";
/// Width of the progress bar in columns.
const BAR: usize = 20;

/// Nodes with the same verdict (state in the rollout) and the same cause.
struct Group<'a> {
    verdict: &'static str,
    reason: Option<&'a str>,
    /// Text of the cause, the same for all nodes of the group.
    cause: &'a str,
    urgency: Option<u8>,
    nodes: Vec<&'a str>,
}

/// Returns the report on the DaemonSet in `row`.
pub(super) fn report(row: &SetRow, title: &str, phase: &str, colour: bool) -> String {
    let next = next(&row.next, colour);
    let notes = notes(row);
    let mut text = format!("{}{phase}\n", wrapped(title, 0, 2));
    text.push_str(&wrapped(&row.fact, 2, HEADLINE));
    text.push_str(&format!("\n{}\n", bar(row)));
    let lines = |text: &str| text.lines().count();
    let mut left = LINES.saturating_sub(lines(&text) + lines(&next) + lines(&notes));
    for (name, table) in tables(row, colour) {
        let table = first_rows(&table, &format!("\n{}\n", CellStyle::Bold.on(name, colour)));
        // Reserve four lines for groups of nodes. If the table does not fit into the rest, refer to `-o wide`.
        if lines(&table) + 4 <= left {
            left -= lines(&table);
            text.push_str(&table);
        } else {
            left = left.saturating_sub(1);
            text.push_str(&format!("{name}: -o wide\n"));
        }
    }
    text.push_str(&groups(row, left, colour));
    text + &notes + &next
}

fn tables(row: &SetRow, colour: bool) -> Vec<(&'static str, String)> {
    let waves = (!row.waves.is_empty()).then(|| ("Waves", wave_table(&row.waves, false, colour)));
    let domains =
        (!row.domains.is_empty()).then(|| ("Failure domains", domain_table(&row.domains, colour)));
    waves.into_iter().chain(domains).collect()
}

/// Returns a heading, the column names of the table, and its first rows.
fn first_rows(table: &str, heading: &str) -> String {
    let mut text = heading.to_owned();
    for line in table.lines().take(ROWS + 1) {
        text.push_str(&format!("{line}\n"));
    }
    match table.lines().count().saturating_sub(ROWS + 1) {
        0 => text,
        more => format!("{text}… and {more} more: -o wide\n"),
    }
}

/// Returns a progress bar with the numbers of nodes, on one line.
pub(super) fn bar(row: &SetRow) -> String {
    let (Some(updated), Some(targeted)) = (row.updated, row.targeted) else {
        return String::new();
    };
    let filled = match targeted {
        0 => BAR,
        targeted => updated * BAR / targeted,
    };
    let filled = filled.min(BAR);
    let mut parts = vec![format!("{updated}/{targeted} updated")];
    let unavailable = row.unavailable.unwrap_or_default();
    parts.push(match (&row.max_unavailable, row.allowed) {
        (Some(_), Some(allowed)) => format!("{unavailable}/{allowed} unavailable"),
        _ => format!("{unavailable} unavailable"),
    });
    let numbers = [
        (row.surging, "surging"),
        (row.offline, "offline"),
        (row.failed, "failed"),
    ];
    let present = numbers
        .iter()
        .filter(|(number, _)| number.is_some_and(|number| number > 0));
    parts.extend(present.map(|(number, word)| format!("{} {word}", number.unwrap_or_default())));
    format!(
        "[{}{}] {}",
        "#".repeat(filled),
        ".".repeat(BAR - filled),
        parts.join(", ")
    )
}

/// Returns the groups of unfinished nodes, the most urgent first, in at most `lines` lines.
fn groups(row: &SetRow, lines: usize, colour: bool) -> String {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let nodes = row.nodes.iter().flatten();
    for node in nodes.filter(|node| node.verdict != "Done") {
        let is_same = |group: &&mut Group<'_>| {
            group.verdict == node.verdict
                && group.reason == node.reason.as_deref()
                && group.cause == node.cause
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.nodes.push(&node.node),
            None => groups.push(Group::from_node(node)),
        }
    }
    let rank = |group: &Group<'_>| {
        (
            group.urgency.unwrap_or(u8::MAX),
            usize::MAX - group.nodes.len(),
        )
    };
    groups.sort_by_key(rank);
    if groups.is_empty() {
        return match row.targeted {
            Some(0) => "\n  no node is targeted: the template matches none\n".to_owned(),
            _ => String::new(),
        };
    }
    // Use a blank line, two lines per group, and one line for the number of nodes in other groups.
    let fit = (lines.saturating_sub(2) / 2).clamp(1, GROUPS);
    let mut text = "\n".to_owned();
    for group in groups.iter().take(fit) {
        text.push_str(&group.text(colour));
    }
    let rest: usize = groups.iter().skip(fit).map(|group| group.nodes.len()).sum();
    if rest > 0 {
        let nodes = plural(rest, "node", "nodes");
        text.push_str(&format!("  … and {rest} more {nodes}: -o wide\n"));
    }
    text
}

impl<'a> Group<'a> {
    fn from_node(node: &'a NodeRow) -> Self {
        Self {
            verdict: node.verdict,
            reason: node.reason.as_deref(),
            cause: &node.cause,
            urgency: node.urgency,
            nodes: vec![&node.node],
        }
    }

    fn text(&self, colour: bool) -> String {
        let word = match self.reason {
            Some(reason) => format!("{}({})", self.verdict, cut(reason, LONGEST_REASON)),
            None => self.verdict.to_owned(),
        };
        let count = self.nodes.len();
        let head = format!("  {count:>5}  ");
        let room = COLUMNS.saturating_sub(head.chars().count() + word.chars().count() + 2);
        let shown = CellStyle::for_word(self.verdict).on(&word, colour);
        format!(
            "{head}{shown}  {}\n         {}\n",
            cut(&names(&self.nodes, room), room - 1),
            cut(self.cause, COLUMNS - 10),
        )
    }
}

/// Returns the node names that fit into `room` columns, followed by the number of omitted nodes.
fn names(nodes: &[&str], room: usize) -> String {
    let with = |count: usize| {
        let named = nodes[..count].join(", ");
        match nodes.len() - count {
            0 => named,
            more if count == 0 => format!("{more} {}", plural(more, "node", "nodes")),
            more => format!("{named} and {more} more"),
        }
    };
    let most = nodes.len().min(NAMED);
    let fits = (1..=most)
        .rev()
        .map(with)
        .find(|text| text.chars().count() <= room);
    fits.unwrap_or_else(|| with(usize::from(nodes.len() == 1)))
}

fn notes(row: &SetRow) -> String {
    let mut notes = row
        .notes
        .iter()
        .filter(|note| **note != row.message && **note != row.fact);
    let mut text = String::new();
    for note in notes.by_ref().take(NOTES) {
        text.push_str(&format!("\n{}", wrapped(&format!("Note: {note}"), 0, 2)));
    }
    match notes.count() {
        0 => text,
        more => format!(
            "{text}… and {more} more {}: -o wide\n",
            plural(more, "note", "notes")
        ),
    }
}

/// Returns the next steps. Commands are not wrapped, so that they can be copied.
fn next(steps: &[NextStep], colour: bool) -> String {
    let mut text = String::new();
    for (position, step) in steps.iter().enumerate() {
        let label = match position {
            0 => format!("\n{}", CellStyle::Bold.on(LABEL, colour)),
            _ => " ".repeat(LABEL.len()),
        };
        let line = step.to_string();
        let fits = LABEL.len() + 1 + line.chars().count() <= COLUMNS;
        let step = match &step.command {
            Some(command) if !fits => format!(" {}:\n  {command}\n", step.text),
            Some(_) => format!(" {line}\n"),
            // Indent by the width of the label, and then remove the indentation of the first line: the label is printed there.
            None => wrapped(&line, LABEL.len() + 1, usize::MAX).split_off(LABEL.len()),
        };
        text.push_str(&label);
        text.push_str(&step);
    }
    text
}

/// Splits a text into pieces of at most `room` characters that must not be wrapped: words and whole commands. A command may be
/// longer.
fn pieces(text: &str, room: usize) -> Vec<String> {
    let mut words = text.split_whitespace().peekable();
    let mut pieces = Vec::new();
    while let Some(word) = words.next() {
        let is_command = match word.trim_start_matches(['(', '*']) {
            "kubectl" | "curl" => true,
            "yurt-ds" => words.peek() == Some(&"ctl"),
            _ => false,
        };
        if !is_command {
            let letters: Vec<char> = word.chars().collect();
            pieces.extend(letters.chunks(room).map(String::from_iter));
            continue;
        }
        let mut piece = word.to_owned();
        while !piece.ends_with([';', ',', '.', ')', ':'])
            && let Some(next) = words.next()
        {
            piece = format!("{piece} {next}");
        }
        pieces.push(piece);
    }
    pieces
}

/// Returns a text wrapped to [`COLUMNS`] between words, with at most `lines` lines.
pub(super) fn wrapped(text: &str, indent: usize, lines: usize) -> String {
    let room = COLUMNS - indent;
    let mut all: Vec<String> = vec![String::new()];
    for word in &pieces(text, room) {
        let line = all.last_mut().filter(|line| {
            line.is_empty() || line.chars().count() + 1 + word.chars().count() <= room
        });
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => line.push_str(&format!(" {word}")),
            None => all.push(word.clone()),
        }
    }
    if all.len() > lines {
        all.truncate(lines);
        if let Some(last) = all.last_mut() {
            let mut kept = last.as_str();
            while kept.chars().count() >= room
                && let Some((rest, _)) = kept.rsplit_once(' ')
            {
                kept = rest;
            }
            *last = format!("{}…", cut(kept, room - 2).trim_end_matches('…'));
        }
    }
    let indent = " ".repeat(indent);
    all.iter().map(|line| format!("{indent}{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_and_cut_after_the_last_line() {
        assert_eq!(wrapped("a b", 2, 2), "  a b\n");
        let long = "word ".repeat(100);
        let text = wrapped(&long, 2, 3);
        assert_eq!(text.lines().count(), 3);
        assert!(
            text.lines().all(|line| line.chars().count() <= COLUMNS),
            "{text}"
        );
        assert!(text.ends_with("word…\n"), "{text}");
    }

    #[test]
    fn only_commands_get_their_own_line() {
        let setting = "correct the image, pull secret or registry, or set predownload: best-effort";
        let command = format!("yurt-ds ctl undo {}/web", "s".repeat(63));
        let steps = [
            NextStep::plain(setting),
            NextStep::command("roll back", "yurt-ds ctl undo shop/web"),
            NextStep::command("roll back", &command),
        ];
        assert_eq!(
            next(&steps, false),
            format!(
                "\nNext: correct the image, pull secret or registry, or set predownload:\n      best-effort\n      \
                 roll back: yurt-ds ctl undo shop/web\n      roll back:\n  {command}\n"
            )
        );
        assert_eq!(steps[0].to_string(), setting);
        assert_eq!(steps[2].to_string(), format!("roll back: {command}"));
    }

    #[test]
    fn commands_stay_on_one_line() {
        let text = format!("{} Check: kubectl -n yurt-ds get pods", "word ".repeat(12));
        let wrapped = wrapped(&text, 2, 9);
        assert!(
            wrapped.contains("\n  kubectl -n yurt-ds get pods\n"),
            "{wrapped}"
        );
    }

    #[test]
    fn names_that_do_not_fit_are_counted() {
        assert_eq!(names(&["a"], 1), "a");
        assert_eq!(names(&["a", "b", "c", "d"], 40), "a, b, c and 1 more");
        assert_eq!(names(&["a-long-name", "b-long-name"], 20), "2 nodes");
        assert_eq!(
            names(&["a-long-name", "b-long-name"], 22),
            "a-long-name and 1 more"
        );
    }
}
