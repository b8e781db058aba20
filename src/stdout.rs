//! Standard output of the program.
//!
//! All commands write here. A reader of a pipe, such as `head`, may close it early: this is not an error. Every other write
//! error is recorded, and `main` reports it after the command has ended.

use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// First write error of this process.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Standard output that records write errors.
#[derive(Clone, Copy, Debug)]
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).inspect_err(record)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().inspect_err(record)
    }
}

/// Writes bytes and flushes them. After an error, the rest of the output is lost, and [`failure`] returns the error.
pub fn print(bytes: &[u8]) {
    // Ignore the result: it is recorded, or the reader has closed the pipe.
    let _ = Stdout.write_all(bytes).and_then(|()| Stdout.flush());
}

/// Writes a line to standard error. If that is closed or full, the line is lost, because nothing can report it.
pub fn complain(line: &str) {
    let _lost = writeln!(io::stderr(), "{line}");
}

/// Records a write error of standard output.
pub fn record(error: &io::Error) {
    if ![ErrorKind::BrokenPipe, ErrorKind::Interrupted].contains(&error.kind()) {
        FAILURE.get_or_init(|| error.to_string());
    }
}

/// Returns the first write error; `None` if all output was written, or if the reader closed the pipe.
pub fn failure() -> Option<&'static str> {
    FAILURE.get().map(String::as_str)
}
