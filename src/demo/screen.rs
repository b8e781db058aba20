//! Output of plays. On a terminal, each frame replaces the previous one. On another output, each line follows the previous one.

use std::io::IsTerminal as _;

use super::frame::Canvas;
use crate::core::foreign::styled;
use crate::stdout;

/// Assumed size of a terminal that doesn't report its size.
const USUAL: (u16, u16) = (80, 24);

/// Control sequences that are allowed in frames and reports: line breaks, and the colours that [`Frame`](super::frame::Frame) uses.
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

/// Standard output. When dropped, it shows the cursor again.
pub(super) struct DemoScreen {
    live: bool,
    colour: bool,
    /// Number of lines of the last frame, which the next frame replaces.
    drawn: usize,
    cursor_hidden: bool,
}

impl DemoScreen {
    /// Creates the screen for this process's standard output.
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

    /// Returns true if the output is a terminal on which frames can replace each other.
    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    /// Returns the present size and colour support of the terminal.
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

    /// Prints lines that remain visible. The next frame is drawn below them.
    pub(super) fn print(&mut self, text: &str) {
        self.leave_picture();
        write(&styled(text, &OWN));
    }

    /// Draws a frame in place of the previous one.
    pub(super) fn draw(&mut self, picture: &str) {
        let picture = &*styled(picture, &OWN);
        let mut frame = String::new();
        if !std::mem::replace(&mut self.cursor_hidden, true) {
            frame.push_str("\x1b[?25l");
        }
        if self.drawn > 0 {
            frame.push_str(&format!("\x1b[{}F", self.drawn));
        }
        // Turn off line wrap: a long line must not change the number of lines to replace. Then clear everything below.
        frame.push_str("\x1b[?7l");
        for line in picture.lines() {
            frame.push_str(line);
            frame.push_str("\x1b[K\n");
        }
        frame.push_str("\x1b[J\x1b[?7h");
        self.drawn = picture.lines().count();
        write(&frame);
    }

    /// Leaves the last frame visible, so that later output appears below it.
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
    stdout::print(text.as_bytes());
}
