//! Output of a command: a terminal, a pipe, or a test.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use super::command_form::CommandForm;
use super::table::CellStyle;
use crate::core::foreign::styled;

/// Output of a command, and its capabilities.
pub struct Screen<'a> {
    out: &'a mut (dyn Write + Send),
    /// True if the output is a terminal whose lines can be redrawn.
    pub(super) live: bool,
    /// True if colour is allowed.
    pub(super) colour: bool,
    /// Number of lines that the next redraw replaces.
    drawn: usize,
    /// Text on these lines.
    shown: String,
    /// Form of the commands in texts.
    pub(super) form: CommandForm,
}

/// Error for an output that cannot be written. Commands ignore it: its reader has closed it, as with `| head`, or
/// [`crate::stdout`] has recorded the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed;

/// Returns two flags: standard output is a terminal, and colour is allowed (by `NO_COLOR` and similar variables).
pub(super) fn standard_output() -> (bool, bool) {
    let out = std::io::stdout();
    let live = out.is_terminal();
    let choice = anstream::AutoStream::choice(&out);
    (live, choice != anstream::ColorChoice::Never)
}

impl<'a> Screen<'a> {
    /// Creates a screen on `out`.
    pub fn new(out: &'a mut (dyn Write + Send), live: bool, colour: bool) -> Self {
        Self {
            out,
            live,
            colour,
            drawn: 0,
            shown: String::new(),
            form: CommandForm::default(),
        }
    }

    /// Prints a text. Escapes control characters except line breaks and, if colour is allowed, the styles of this program.
    pub(super) fn print(&mut self, text: &str) -> Result<(), Closed> {
        let text = self.shown(text);
        self.write(&text)
    }

    /// Returns the text with control characters escaped, and with commands as the user types them.
    fn shown<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let styles: &[&str] = if self.colour {
            &CellStyle::SEQUENCES
        } else {
            &[]
        };
        let allowed = [&["\n"], styles].concat();
        match self.form.apply(text) {
            Cow::Borrowed(text) => styled(text, &allowed),
            Cow::Owned(text) => Cow::Owned(styled(&text, &allowed).into_owned()),
        }
    }

    /// Writes a text without escaping. It must not have content from outside this program.
    pub(super) fn write(&mut self, text: &str) -> Result<(), Closed> {
        let written = self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush());
        written.map_err(|_| Closed)
    }

    /// Replaces the previous text on a terminal. On another output, prints the text below.
    pub(super) fn redraw(&mut self, text: &str) -> Result<(), Closed> {
        if !self.live {
            return self.print(text);
        }
        let text = &*self.shown(text);
        let mut frame = String::new();
        if self.drawn > 0 {
            frame.push_str(&format!("\x1b[{}F", self.drawn));
        }
        // Turn off line wrap: the terminal then cuts long lines, and the number of lines is known. Clear each line, and everything
        // below the text.
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

    /// Prints a warning below the present text. On a terminal, the next redraw removes it.
    pub(super) fn warn(&mut self, text: &str) {
        if self.live && self.drawn > 0 {
            let shown = std::mem::take(&mut self.shown);
            let _ = self.redraw(&format!("{shown}{text}\n"));
            self.shown = shown;
        } else {
            let text = self.form.apply(text);
            // Ignore the error: there is no other place to report it.
            let _ = writeln!(std::io::stderr(), "{}", styled(&text, &["\n"]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_redrawn_and_a_pipe_is_appended() {
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
