//! Output of plays: a terminal on which each frame replaces the previous one, or consecutive lines.

use std::io::{IsTerminal as _, Write as _};

use super::view::Canvas;
use crate::core::foreign::styled;

/// Assumed size of a terminal whose size is unknown.
const USUAL: (u16, u16) = (80, 24);

/// Control sequences that frames and reports may contain: line breaks and the colors of `view`.
const OWN: [&str; 9] = [
    "\n",
    "\x1b[0m",
    "\x1b[1m",
    "\x1b[2m",
    "\x1b[32m",
    "\x1b[33m",
    "\x1b[35m",
    "\x1b[36m",
    "\x1b[1;31m",
];

/// Standard output. The cursor becomes visible again when it is dropped.
pub(super) struct DemoScreen {
    live: bool,
    colour: bool,
    /// Number of lines in the frame that the next one replaces.
    drawn: usize,
    cursor_hidden: bool,
}

impl DemoScreen {
    /// Returns the standard output of this process.
    pub(super) fn standard() -> Self {
        let out = std::io::stdout();
        let choice = anstream::AutoStream::choice(&out);
        Self {
            live: out.is_terminal(),
            colour: choice != anstream::ColorChoice::Never,
            drawn: 0,
            cursor_hidden: false,
        }
    }

    /// Returns true if frames can replace each other.
    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    /// Returns its current size and color support.
    pub(super) fn canvas(&self) -> Canvas {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        let size = size.map(|size| (size.ws_col, size.ws_row));
        let (columns, rows) = size
            .ok()
            .filter(|(columns, _)| *columns > 0)
            .unwrap_or(USUAL);
        Canvas {
            columns: columns.into(),
            rows: rows.into(),
            colour: self.colour,
        }
    }

    /// Prints lines that are not replaced.
    pub(super) fn print(&mut self, text: &str) {
        self.leave_picture();
        write(&styled(text, &OWN));
    }

    /// Draws a frame over the previous one.
    pub(super) fn draw(&mut self, picture: &str) {
        let picture = &*styled(picture, &OWN);
        let mut frame = String::new();
        if !std::mem::replace(&mut self.cursor_hidden, true) {
            frame.push_str("\x1b[?25l");
        }
        if self.drawn > 0 {
            frame.push_str(&format!("\x1b[{}F", self.drawn));
        }
        // Long lines are cut at the edge, so that the number of lines is known; the rest below is cleared.
        frame.push_str("\x1b[?7l");
        for line in picture.lines() {
            frame.push_str(line);
            frame.push_str("\x1b[K\n");
        }
        frame.push_str("\x1b[J\x1b[?7h");
        self.drawn = picture.lines().count();
        write(&frame);
    }

    /// Keeps the last frame; later output appears below it.
    fn leave_picture(&mut self) {
        self.drawn = 0;
        if std::mem::take(&mut self.cursor_hidden) {
            write("\x1b[?25h");
        }
    }
}

impl Drop for DemoScreen {
    fn drop(&mut self) {
        self.leave_picture();
    }
}

/// Prints text unchanged.
pub(crate) fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    // The output may be closed, as with `| head`. The exit code still reports the guarantees.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
