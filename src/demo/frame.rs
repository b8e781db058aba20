//! Live view of a fleet: a cell per node, a legend with counts, a progress bar, the budget, and a sentence about the state.
//!
//! The module has no I/O. It only renders data as lines that fit the terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::monitor::{MonitorRecord, MonitoredNode, MonitoredPod};
use super::report::Time;
use super::text::wrap;
use crate::core::names::{POD_IMAGE_READY, POD_NEED_UPGRADE};
use crate::core::{Offline, Verdict};
use crate::sim::picture::RolloutSnapshot;

/// State of a node in its cell. The legend has the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cell {
    /// The node runs the new image.
    Updated,
    /// The node's pod is being replaced.
    Updating,
    /// The node waits for its update.
    Waiting,
    /// OTA: the node waits for its owner to confirm the upgrade.
    Owner,
    /// The node returned a moment ago.
    Settling,
    Offline,
    /// The node failed because of the new image.
    Failed,
}

/// Data that a frame shows.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) title: String,
    pub(super) now: Duration,
    /// Nodes in order, with their cells.
    pub(super) cells: Vec<(String, Cell)>,
    pub(super) down: usize,
    pub(super) peak: usize,
    pub(super) allowed: usize,
    pub(super) max_unavailable: String,
    /// Last line of the narration.
    pub(super) narration: String,
    /// True after the image was changed.
    pub(super) changed: bool,
    /// True if the native controller performs the rollout. Such a rollout has no verdicts (states of nodes from `decide`).
    pub(super) is_native: bool,
    /// Images before and after the change.
    pub(super) images: (String, String),
    /// View of node owners; `None` if no owner types commands. It takes the place of the budget.
    pub(super) owners: Option<OwnersView>,
}

/// Data for the view of node owners: their pods and the latest command.
#[derive(Clone, Debug)]
pub(super) struct OwnersView {
    /// Pods by the name of their node.
    pub(super) pods: BTreeMap<String, MonitoredPod>,
    /// Latest command line, followed by its output.
    pub(super) session: Vec<String>,
}

/// Size and color support of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Canvas {
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) colour: bool,
}

/// Maximum number of nodes that are shown by name, one per line. A larger fleet is shown as a grid.
const BY_NAME: usize = 8;
/// Number of lines of a frame without the cells, including a long sentence and the line of the cursor.
const OTHER_LINES: usize = 15;

impl Cell {
    const ALL: [Self; 7] = [
        Self::Updated,
        Self::Updating,
        Self::Waiting,
        Self::Owner,
        Self::Settling,
        Self::Offline,
        Self::Failed,
    ];

    /// Returns the cell for a verdict, the state of a node in the rollout. Before the change (`updated` is false), `Done` means
    /// that the node runs the old image.
    fn new(verdict: &Verdict, updated: bool) -> Self {
        match verdict {
            Verdict::Offline(Offline::Settling { .. }) => Self::Settling,
            Verdict::Offline(_) => Self::Offline,
            Verdict::FailedByRevision { .. } => Self::Failed,
            Verdict::InProgress(_) => Self::Updating,
            Verdict::AwaitingOwner | Verdict::AwaitingDeletion => Self::Owner,
            Verdict::Done if updated => Self::Updated,
            _ => Self::Waiting,
        }
    }

    /// Returns the cell for a node in the monitor's record. Used for a rollout by the native controller, which has no verdicts.
    fn seen(node: &MonitoredNode) -> Self {
        match node {
            _ if !node.ready => Self::Offline,
            _ if node.updated.is_some() => Self::Updated,
            _ if node.taken.is_some() => Self::Updating,
            _ => Self::Waiting,
        }
    }

    fn glyph(self) -> char {
        match self {
            Self::Updated => '■',
            Self::Updating => '▲',
            Self::Waiting => '□',
            Self::Owner => '?',
            Self::Settling => '◦',
            Self::Offline => '·',
            Self::Failed => '✗',
        }
    }

    fn label(self, changed: bool) -> &'static str {
        match self {
            Self::Updated => "updated",
            Self::Updating => "being updated",
            Self::Waiting if changed => "waiting",
            Self::Waiting => "running",
            Self::Owner => "awaiting the owner",
            Self::Settling => "just returned",
            Self::Offline => "offline",
            Self::Failed => "failed",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Self::Updated => "32",
            Self::Updating => "33",
            Self::Waiting => "0",
            Self::Owner => "35",
            Self::Settling => "36",
            Self::Offline => "2",
            Self::Failed => "1;31",
        }
    }

    /// Returns the rank of a cell. A mark that stands for several nodes shows the cell with the lowest rank.
    fn urgency(self) -> usize {
        match self {
            Self::Failed => 0,
            Self::Updating => 1,
            Self::Settling => 2,
            Self::Owner => 3,
            Self::Waiting => 4,
            Self::Offline => 5,
            Self::Updated => 6,
        }
    }
}

/// Returns the nodes with their cells, in order. Without `look`, the cells come from the monitor's record.
pub(super) fn cells(look: Option<&RolloutSnapshot>, record: &MonitorRecord) -> Vec<(String, Cell)> {
    let updated = |name: &String| {
        let node = record.nodes.get(name);
        node.is_some_and(|node| node.updated.is_some())
    };
    match look {
        Some(look) => {
            let nodes = look.nodes.iter();
            nodes
                .map(|(name, verdict)| (name.clone(), Cell::new(verdict, updated(name))))
                .collect()
        }
        None => {
            let nodes = record.nodes.iter();
            nodes
                .map(|(name, node)| (name.clone(), Cell::seen(node)))
                .collect()
        }
    }
}

impl Frame {
    /// Draws the frame. No line is wider than the canvas.
    pub(super) fn draw(&self, canvas: Canvas) -> String {
        let mut lines = vec![self.head(canvas), String::new()];
        if self.cells.len() <= BY_NAME {
            lines.extend(self.by_name(canvas));
        } else {
            lines.extend(self.grid(canvas));
        }
        let width = canvas.columns.saturating_sub(4);
        let sentences = [wrap(&self.narration, width), wrap(&self.present(), width)].concat();
        let sentences = sentences.iter().map(|line| format!("  {line}"));
        lines.push(String::new());
        match &self.owners {
            Some(owners) => {
                lines.extend(sentences);
                lines.push(String::new());
                let room = canvas.rows.saturating_sub(lines.len() + 1);
                lines.extend(owners.session(canvas, room));
            }
            None => {
                lines.extend(self.legend(canvas));
                lines.push(String::new());
                lines.push(self.bar(canvas));
                lines.push(self.budget());
                lines.push(String::new());
                lines.extend(sentences);
            }
        }
        lines.join("\n") + "\n"
    }

    /// Returns the state in one line, for output that is not a terminal.
    pub(super) fn line(&self) -> String {
        let mut line = format!("{}  {:>3}% updated:", Time::from(self.now), self.percent());
        for (cell, number) in self.counts() {
            let _ = write!(line, " {number} {},", cell.label(self.changed));
        }
        let _ = write!(
            line,
            " {} down (most at once: {}, allowed: {})",
            self.down, self.peak, self.allowed
        );
        line
    }

    /// Describes the current state in one sentence.
    fn present(&self) -> String {
        let nodes = |number: usize| match number {
            1 => "1 node".to_owned(),
            number => format!("{number} nodes"),
        };
        let number = |cell| self.number(cell);
        let (offline, waiting) = (number(Cell::Offline), number(Cell::Waiting));
        let hold = match offline {
            0 => String::new(),
            _ => format!(
                " {} cannot be reached; the rollout does not wait.",
                nodes(offline)
            ),
        };
        let failed = number(Cell::Failed);
        match number(Cell::Updating) {
            _ if !self.changed || self.is_native => String::new(),
            _ if failed > 0 => format!(
                "{} failed with the new image. The guard stops the rollout at {}.",
                nodes(failed),
                self.allowed
            ),
            0 if number(Cell::Owner) > 0 => {
                format!(
                    "OTA: the owners of {} decide when to upgrade.",
                    nodes(number(Cell::Owner))
                )
            }
            0 if number(Cell::Settling) > 0 => {
                format!("Nodes that returned must stay Ready for 30s before their update.{hold}")
            }
            0 if waiting == 0 && offline > 0 => format!(
                "Complete except on {}. Offline nodes are updated automatically when they return.",
                nodes(offline)
            ),
            0 if waiting == 0 => "Complete.".to_owned(),
            updating => format!(
                "{} being updated; {waiting} wait for a free slot.{hold}",
                match updating {
                    1 => "1 node is".to_owned(),
                    number => format!("{number} nodes are"),
                }
            ),
        }
    }

    fn counts(&self) -> impl Iterator<Item = (Cell, usize)> {
        let number = |cell: Cell| self.cells.iter().filter(|(_, one)| *one == cell).count();
        let counts = Cell::ALL.map(|cell| (cell, number(cell)));
        counts.into_iter().filter(|(_, number)| *number > 0)
    }

    fn number(&self, cell: Cell) -> usize {
        self.cells.iter().filter(|(_, one)| *one == cell).count()
    }

    fn percent(&self) -> usize {
        self.number(Cell::Updated) * 100 / self.cells.len().max(1)
    }

    fn head(&self, canvas: Canvas) -> String {
        let time = Time::from(self.now).to_string();
        let room = canvas.columns.saturating_sub(time.len() + 10);
        let title: String = self.title.chars().take(room).collect();
        let gap = room - title.chars().count();
        let title = paint(&title, "1", canvas.colour);
        format!(" {title}{}time {time} ", " ".repeat(gap))
    }

    fn by_name(&self, canvas: Canvas) -> Vec<String> {
        let line = |(name, cell): &(String, Cell)| {
            let image = match cell {
                Cell::Updated => format!("runs {}", self.images.1),
                Cell::Updating => format!("is being updated to {}", self.images.1),
                Cell::Waiting if self.changed => {
                    format!("runs {}, waits for its update", self.images.0)
                }
                Cell::Waiting => format!("runs {}", self.images.0),
                Cell::Owner => format!("runs {}, awaits its owner", self.images.0),
                Cell::Settling => format!("is back with {}, must stay Ready", self.images.0),
                Cell::Offline => "is offline; its pod keeps running".to_owned(),
                Cell::Failed => format!("failed with {}", self.images.1),
            };
            let image = match &self.owners {
                Some(owners) => owners.render(name, &self.images),
                None => image,
            };
            let glyph = paint(&cell.glyph().to_string(), cell.colour(), canvas.colour);
            format!("   {glyph} {name}  {image}")
        };
        self.cells.iter().map(line).collect()
    }

    fn grid(&self, canvas: Canvas) -> Vec<String> {
        let columns = canvas.columns.saturating_sub(4).max(10);
        let rows = canvas.rows.saturating_sub(OTHER_LINES).max(3);
        let airy = self.cells.len() * 2 <= columns * rows;
        let per_row = if airy { columns / 2 } else { columns };
        // If a mark stands for several nodes, a note says so. Reserve one row for the note.
        let per_cell = if self.cells.len().div_ceil(per_row) <= rows {
            1
        } else {
            self.cells.len().div_ceil(per_row * (rows - 1))
        };
        let cells: Vec<Cell> = self
            .cells
            .chunks(per_cell)
            .filter_map(|some| {
                some.iter()
                    .map(|(_, cell)| *cell)
                    .min_by_key(|cell| cell.urgency())
            })
            .collect();
        let row = |row: &[Cell]| {
            let mut line = String::from("  ");
            for cell in row {
                line += &paint(&cell.glyph().to_string(), cell.colour(), canvas.colour);
                line += if airy { " " } else { "" };
            }
            line
        };
        let mut lines: Vec<String> = cells.chunks(per_row).map(row).collect();
        if per_cell > 1 {
            lines.push(format!("  each mark stands for {per_cell} nodes"));
        }
        lines
    }

    /// Returns the legend: each mark in the frame with its number of nodes. The legend always has two lines, so that the height of
    /// the frame does not change.
    fn legend(&self, canvas: Canvas) -> [String; 2] {
        let mut lines = [String::from("  "), String::from("  ")];
        let (mut line, mut width) = (0, 0);
        for (cell, number) in self.counts() {
            let label = format!("{number} {}", cell.label(self.changed));
            let glyph = paint(&cell.glyph().to_string(), cell.colour(), canvas.colour);
            width += label.len() + 5;
            if width > canvas.columns.saturating_sub(4) && line == 0 {
                (line, width) = (1, label.len() + 5);
            }
            let _ = write!(lines[line], "{glyph} {label}   ");
        }
        lines
    }

    fn bar(&self, canvas: Canvas) -> String {
        let width = canvas.columns.saturating_sub(24).clamp(10, 60);
        let (done, all) = (self.number(Cell::Updated), self.cells.len().max(1));
        let full = width * done / all;
        let (full, rest) = ("█".repeat(full), "░".repeat(width - full));
        let full = paint(&full, "32", canvas.colour);
        format!("  {full}{rest} {:>3}%  {done} of {all}", self.percent())
    }

    fn budget(&self) -> String {
        format!(
            "  down now: {}   most at once: {}   allowed: {} (max-unavailable {})",
            self.down, self.peak, self.allowed, self.max_unavailable
        )
    }
}

impl OwnersView {
    /// Describes the pod of a node and its conditions.
    fn render(&self, node: &str, images: &(String, String)) -> String {
        let Some(pod) = self.pods.get(node) else {
            return "pod is being replaced".to_owned();
        };
        let mut text = if pod.new { &images.1 } else { &images.0 }.clone();
        if let Some(status) = &pod.need_upgrade {
            let _ = write!(text, "  {POD_NEED_UPGRADE}={status}");
        }
        if let Some(status) = &pod.image_ready {
            let _ = write!(text, " {POD_IMAGE_READY}={status}");
        }
        text
    }

    /// Returns the prompt with the command line, and the last lines of its output that fit.
    fn session(&self, canvas: Canvas, room: usize) -> Vec<String> {
        let Some((prompt, printed)) = self.session.split_first() else {
            return Vec::new();
        };
        // Wrap long lines before they are counted, as a terminal would.
        let width = canvas.columns.saturating_sub(2).max(1);
        let folded = |line: &String| -> Vec<String> {
            let letters: Vec<char> = line.chars().collect();
            if letters.is_empty() {
                vec![String::new()]
            } else {
                letters.chunks(width).map(String::from_iter).collect()
            }
        };
        let prompt = folded(prompt);
        let printed: Vec<String> = printed.iter().flat_map(folded).collect();
        let hidden = (prompt.len() + printed.len()).saturating_sub(room);
        let prompt = prompt.iter().map(|line| paint(line, "1", canvas.colour));
        prompt
            .chain(printed.into_iter().skip(hidden))
            .map(|line| format!("  {line}"))
            .collect()
    }
}

/// Adds a color code to a text if the terminal supports colors.
fn paint(text: &str, code: &str, colour: bool) -> String {
    if colour && !text.is_empty() && code != "0" {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Canvas = Canvas {
        columns: 80,
        rows: 24,
        colour: false,
    };

    fn frame(nodes: usize) -> Frame {
        let of = |number: usize| match number % 5 {
            0 => Cell::Offline,
            1 => Cell::Updating,
            2 => Cell::Waiting,
            _ => Cell::Updated,
        };
        Frame {
            title: format!("{nodes} nodes"),
            now: Duration::from_secs(83),
            cells: (0..nodes).map(|number| (format!("edge-{number}"), of(number))).collect(),
            down: 3,
            peak: 7,
            allowed: 20,
            max_unavailable: "10%".to_owned(),
            narration: "The image changes, and this is told in a sentence that is longer than one line of a small terminal can hold."
                .to_owned(),
            changed: true,
            is_native: false,
            images: ("nginx:1.19.4".to_owned(), "nginx:1.19.5".to_owned()),
            owners: None,
        }
    }

    #[test]
    fn a_frame_of_any_fleet_fits_the_terminal() {
        for (columns, rows) in [(80, 24), (120, 40)] {
            let canvas = Canvas {
                columns,
                rows,
                colour: false,
            };
            for nodes in [1, 3, 8, 9, 200, 1000, 20_000] {
                let picture = frame(nodes).draw(canvas);
                let lines = picture.lines().count();
                assert!(lines < rows, "{nodes} nodes take {lines} of {rows} lines");
                for line in picture.lines() {
                    assert!(line.chars().count() <= columns, "{nodes} nodes: {line:?}");
                }
            }
        }
    }

    #[test]
    fn the_session_of_a_node_owner_fits_below_the_pods_and_shows_its_end() {
        let mut frame = frame(3);
        let pod = |image_ready: &str| {
            MonitoredPod::of_owner("nginx-daemonset-bwzss", "True", image_ready)
        };
        frame.owners = Some(OwnersView {
            pods: BTreeMap::from([("edge-1".to_owned(), pod("False WaitPullImage"))]),
            session: (0..40)
                .map(|number| format!("line {number}{}", " longer".repeat(number)))
                .collect(),
        });
        let picture = frame.draw(NARROW);
        assert!(picture.lines().count() < NARROW.rows, "{picture}");
        assert!(
            picture
                .lines()
                .all(|line| line.chars().count() <= NARROW.columns),
            "{picture}"
        );
        assert!(picture.contains(
            "edge-1  nginx:1.19.4  PodNeedUpgrade=True PodImageReady=False WaitPullImage"
        ));
        assert!(
            picture.contains("edge-2  pod is being replaced"),
            "{picture}"
        );
        assert!(
            picture.contains("  line 0\n") && picture.contains("  line 39 longer"),
            "{picture}"
        );
        assert!(
            !picture.contains("max-unavailable"),
            "owners have no budget: {picture}"
        );
    }

    #[test]
    fn every_node_has_a_mark_and_every_mark_is_in_the_legend() {
        let picture = frame(200).draw(NARROW);
        assert_eq!(picture.matches('·').count(), 40 + 1);
        assert_eq!(picture.matches('■').count(), 80 + 1);
        assert!(picture.contains("■ 80 updated"), "{picture}");
        assert!(picture.contains("40%  80 of 200"), "{picture}");
        assert!(
            picture.contains("down now: 3   most at once: 7   allowed: 20 (max-unavailable 10%)")
        );
    }

    #[test]
    fn escape_codes_are_written_only_with_colour() {
        assert!(!frame(200).draw(NARROW).contains('\x1b'));
        let coloured = Canvas {
            colour: true,
            ..NARROW
        };
        assert!(frame(200).draw(coloured).contains("\x1b[32m■\x1b[0m"));
    }
}
