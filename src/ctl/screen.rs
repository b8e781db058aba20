//! Where answers go: a terminal, a pipe, or a test.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use super::table::CellStyle;
use crate::core::foreign::styled;

/// Where answers go, and what may be done there.
pub struct Screen<'a> {
    out: &'a mut (dyn Write + Send),
    /// Whether it is a terminal that lines can be drawn again on.
    pub(super) live: bool,
    /// Whether colour is welcome.
    pub(super) colour: bool,
    /// Lines that are to be drawn over.
    drawn: usize,
    /// What they say.
    shown: String,
}

/// Nobody reads any more; not an error, as with `| head`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed;

/// Whether standard output is a terminal, and whether it wants colour (`NO_COLOR` and the like).
pub(super) fn standard_output() -> (bool, bool) {
    let out = std::io::stdout();
    let live = out.is_terminal();
    let choice = anstream::AutoStream::choice(&out);
    (live, choice != anstream::ColorChoice::Never)
}

impl<'a> Screen<'a> {
    /// A screen on `out`.
    pub fn new(out: &'a mut (dyn Write + Send), live: bool, colour: bool) -> Self {
        Self {
            out,
            live,
            colour,
            drawn: 0,
            shown: String::new(),
        }
    }

    /// Prints text. Only line breaks and, where color is welcome, styles of this program reach a terminal as they are.
    pub(super) fn print(&mut self, text: &str) -> Result<(), Closed> {
        let text = self.shown(text);
        self.write(&text)
    }

    /// Returns the text as a terminal may get it.
    fn shown<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.colour {
            styled(text, &[&["\n"], &CellStyle::SEQUENCES[..]].concat())
        } else {
            styled(text, &["\n"])
        }
    }

    /// Writes what this program alone made, as it is.
    pub(super) fn write(&mut self, text: &str) -> Result<(), Closed> {
        let written = self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush());
        written.map_err(|_| Closed)
    }

    /// Prints text in the place of what was drawn before; below it, where that is not possible.
    pub(super) fn redraw(&mut self, text: &str) -> Result<(), Closed> {
        if !self.live {
            return self.print(text);
        }
        let text = &*self.shown(text);
        let mut frame = String::new();
        if self.drawn > 0 {
            frame.push_str(&format!("\x1b[{}F", self.drawn));
        }
        // Long lines are cut at the edge, so that the number of lines is known; the rest below is cleared.
        frame.push_str("\x1b[?7l");
        for line in text.lines() {
            frame.push_str(line);
            frame.push_str("\x1b[K\n");
        }
        frame.push_str("\x1b[J\x1b[?7h");
        self.drawn = text.lines().count();
        self.shown = text.to_owned();
        self.write(&frame)
    }

    /// Tells what went wrong while something is shown; the next picture takes its place.
    pub(super) fn warn(&mut self, text: &str) {
        if self.live && self.drawn > 0 {
            let shown = std::mem::take(&mut self.shown);
            let _ = self.redraw(&format!("{shown}{text}\n"));
            self.shown = shown;
        } else {
            // Standard error is the last place to complain.
            let _ = writeln!(std::io::stderr(), "{}", styled(text, &["\n"]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_drawn_over_and_a_pipe_is_not() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, true, false);
        screen.redraw("a\nb\n").unwrap();
        screen.redraw("c\n").unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("\x1b[2Fc") || text.contains("\x1b[2F\x1b[?7lc\x1b[K\n\x1b[J"),
            "{text:?}"
        );

        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, false, false);
        screen.redraw("a\n").unwrap();
        screen.redraw("b\n").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a\nb\n");
    }
}
