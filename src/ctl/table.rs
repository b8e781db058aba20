//! Tables with aligned columns, and colours for good and bad states.
//!
//! Crates for tables draw borders and wrap cells, unlike kubectl. Only padding is needed here, so no such crate is used.

use std::fmt::Write as _;

use crate::core::foreign::{TEXT, cut};

/// Style of a cell on a terminal with colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CellStyle {
    #[default]
    Plain,
    /// The state is good.
    Good,
    /// The state is temporary: an update is in progress.
    Busy,
    /// The state needs action.
    Bad,
    /// The text is less important.
    Faint,
    /// The text is a heading.
    Bold,
}

/// Escape sequence that ends every style.
const PLAIN: &str = "\x1b[0m";

impl CellStyle {
    /// Escape sequences of all styles. They are the only ones that a screen prints unchanged.
    pub(super) const SEQUENCES: [&str; 6] = [
        Self::Good.codes(),
        Self::Busy.codes(),
        Self::Bad.codes(),
        Self::Faint.codes(),
        Self::Bold.codes(),
        PLAIN,
    ];

    /// Returns the style of a phase or a verdict.
    pub(super) fn for_word(word: &str) -> Self {
        match word {
            "Complete" | "Done" => Self::Good,
            "Progressing"
            | "InProgress"
            | "Budget"
            | "AwaitingDomain"
            | "AwaitingOwners"
            | "AwaitingOwner"
            | "AwaitingDeletions"
            | "AwaitingDeletion"
            | "Paused"
            | "NativeControllerBehind" => Self::Busy,
            "Stalled" | "Invalid" | "FailedByRevision" | "Refused" => Self::Bad,
            "Offline" | "NotTargeted" => Self::Faint,
            _ => Self::Plain,
        }
    }

    const fn codes(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "\x1b[32m",
            Self::Busy => "\x1b[33m",
            Self::Bad => "\x1b[1;31m",
            Self::Faint => "\x1b[2m",
            Self::Bold => "\x1b[1m",
        }
    }

    /// Returns the text with its style if `colour` is true.
    pub(super) fn on(self, text: &str, colour: bool) -> String {
        match self.codes() {
            codes if !colour || codes.is_empty() || text.is_empty() => text.to_owned(),
            codes => format!("{codes}{text}{PLAIN}"),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Vec<(String, CellStyle)>>,
}

impl Table {
    /// Creates a table with a heading.
    pub(super) fn new(heading: &[&str]) -> Self {
        let heading = heading
            .iter()
            .map(|name| ((*name).to_owned(), CellStyle::Bold));
        Self {
            rows: vec![heading.collect()],
        }
    }

    /// Adds a row. Cells may have text from outside this program, so each cell is limited to one line and [`TEXT`] characters.
    pub(super) fn row(&mut self, cells: Vec<(String, CellStyle)>) {
        let cells = cells.into_iter();
        let shown = cells.map(|(cell, style)| (cut(&cell, TEXT).into_owned(), style));
        self.rows.push(shown.collect());
    }

    /// Renders the table with one line per row and no trailing spaces.
    pub(super) fn print(&self, colour: bool) -> String {
        let mut text = String::new();
        let widths = self.widths();
        for row in &self.rows {
            let last = row.iter().rposition(|(cell, _)| !cell.is_empty());
            for (column, (cell, paint)) in row.iter().enumerate() {
                // Ignore the result: writing to a String cannot fail.
                let _ = write!(text, "{}", paint.on(cell, colour));
                if last.is_some_and(|last| column < last) {
                    let gap = widths[column] - cell.chars().count() + 2;
                    let _ = write!(text, "{:gap$}", "");
                }
            }
            text.push('\n');
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|(cell, _)| cell.chars().count()).max()
        };
        (0..columns)
            .map(|column| width(column).unwrap_or_default())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        let mut table = Table::new(&["NAME", "PHASE", "WHY"]);
        table.row(vec![
            ("a".into(), CellStyle::Plain),
            ("Complete".into(), CellStyle::Good),
            (String::new(), CellStyle::Plain),
        ]);
        table.row(vec![
            ("long-name".into(), CellStyle::Plain),
            ("Paused".into(), CellStyle::Busy),
            ("two words".into(), CellStyle::Plain),
        ]);
        table
    }

    #[test]
    fn columns_are_aligned_without_trailing_spaces() {
        assert_eq!(
            example().print(false),
            "NAME       PHASE     WHY\na          Complete\nlong-name  Paused    two words\n"
        );
    }

    #[test]
    fn colour_does_not_change_the_columns() {
        let plain = example().print(false);
        let mut coloured = example().print(true);
        assert!(coloured.contains("\x1b[32mComplete\x1b[0m"));
        for code in ["\x1b[32m", "\x1b[33m", "\x1b[1m", "\x1b[0m"] {
            coloured = coloured.replace(code, "");
        }
        assert_eq!(coloured, plain);
    }
}
