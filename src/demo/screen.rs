//! Where the show is seen: a terminal on which pictures are drawn over each other, or lines one below the other.

use std::io::{IsTerminal as _, Write as _};

use super::view::Canvas;
use crate::core::foreign::styled;

/// A terminal of unknown size is taken for this one.
const USUAL: (u16, u16) = (80, 24);

/// What pictures and reports consist of besides letters: line breaks and the colors of `view`.
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

/// Standard output. When it is dropped the cursor is back.
pub(super) struct DemoScreen {
    live: bool,
    colour: bool,
    /// Lines of the picture that the next one replaces.
    drawn: usize,
    cursor_hidden: bool,
}

impl DemoScreen {
    /// Standard output as it is.
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

    /// Whether pictures can be drawn over each other.
    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    /// Its room and manners now.
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

    /// Prints lines that stay.
    pub(super) fn print(&mut self, text: &str) {
        self.leave_picture();
        write(&styled(text, &OWN));
    }

    /// Draws over the picture before.
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

    /// The last picture stays; what follows comes below it.
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

/// Prints text as it is.
pub(crate) fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody reads any more, as with `| head`: the exit code still tells whether the promises held.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
