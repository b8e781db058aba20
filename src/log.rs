//! Log lines on stderr: text for people, JSON for log collectors.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use serde_json::Value;
use tracing::Subscriber;
use tracing::field::Field;
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

use crate::core::foreign::{self, TEXT};

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One line for a person
    Text,
    /// One JSON object
    Json,
}

/// Escape sequences that the logger writes in colored lines. They are kept; all others are removed.
const COLORS: [&str; 9] = [
    "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[3m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[34m",
    "\x1b[35m",
];

/// Starts logging. Colors are used only on a terminal, and not if `NO_COLOR` is set. A second call has no effect.
pub fn init(level: Targets, format: Format) {
    let colored = io::stderr().is_terminal();
    let lines = lines(format, colored, io::stderr);
    let _already_set = tracing_subscriber::registry()
        .with(lines.with_filter(level))
        .try_init();
}

/// Returns a logging layer that writes each event as one line.
pub(crate) fn lines<S, W>(
    format: Format,
    colored: bool,
    sink: impl Fn() -> W + Send + Sync + 'static,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: Write + 'static,
{
    let writer = move || LineWriter {
        format,
        colored,
        sink: sink(),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        Format::Json => lines.json().flatten_event(true).with_ansi(false).boxed(),
        Format::Text if colored => lines.fmt_fields(debug_fn(field).delimited(" ")).boxed(), // the layer itself checks NO_COLOR
        Format::Text => lines.with_ansi(false).boxed(),
    }
}

/// Writes a field. Removes escape sequences from its value, because they could imitate the logger's own colors.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = format!("{value:?}");
    match field.name() {
        "message" => writer.write_str(&foreign::shown(&value)),
        name => write!(writer, "{name}={}", foreign::shown(&value)),
    }
}

/// Writer that replaces unsafe characters in events. Each write must contain a whole event.
struct LineWriter<W> {
    format: Format,
    colored: bool,
    sink: W,
}

impl<W: Write> Write for LineWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let safe = match self.format {
            Format::Json => short_json(line),
            Format::Text => short_text(line, self.colored),
        };
        match safe {
            Cow::Borrowed(_) => self.sink.write_all(event)?,
            Cow::Owned(safe) => self.sink.write_all((safe + "\n").as_bytes())?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Returns a text line without unsafe characters. A long line is truncated.
fn short_text(line: &str, colored: bool) -> Cow<'_, str> {
    let own: &[&str] = if colored { &COLORS } else { &[] };
    let shown = foreign::styled(line, own);
    match shown.char_indices().nth(TEXT) {
        None => shown,
        Some((end, _)) => {
            let plain = if colored { COLORS[0] } else { "" };
            Cow::Owned(format!("{}…{plain}", &shown[..end]))
        }
    }
}

/// Returns a JSON line without unsafe characters in its strings. If the line is long, its strings are truncated.
fn short_json(line: &str) -> Cow<'_, str> {
    let value = if line.len() > TEXT {
        serde_json::from_str(line).ok()
    } else {
        None
    };
    match value {
        Some(value) => Cow::Owned(foreign::json(&cut(value).to_string()).into_owned()),
        None => foreign::json(line),
    }
}

fn cut(value: Value) -> Value {
    match value {
        Value::String(text) => foreign::cut(&text, foreign::SENTENCE).into(),
        Value::Array(items) => items.into_iter().map(cut).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields.map(|(key, value)| (key, cut(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::core::testing::{HOSTILE, assert_safe};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, colored: bool, tell: impl FnOnce()) -> String {
        let sink = Sink::default();
        let written = sink.0.clone();
        let lines = lines::<tracing_subscriber::Registry, _>(format, colored, move || sink.clone());
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, tell);
        let bytes = written.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn tell() {
        let span = tracing::info_span!("span", daemonset = HOSTILE);
        let _entered = span.enter();
        tracing::warn!(debugged = ?HOSTILE, displayed = %HOSTILE, plain = HOSTILE, "{HOSTILE} said");
    }

    #[test]
    fn a_text_line_is_one_line_without_control_characters() {
        let line = logged(Format::Text, false, tell);
        assert_eq!(line.matches('\n').count(), 1, "{line:?}");
        assert!(
            line.ends_with('\n') && line.contains("\\u{202e}\\u{2066}"),
            "{line:?}"
        );
        assert_safe("a line", &line);
    }

    #[test]
    fn a_colored_line_has_only_the_programs_own_colors() {
        let line = logged(Format::Text, true, tell);
        assert!(!line.contains("\x1b[32mFORGED"), "{line:?}");
        let rest = COLORS.iter().fold(line, |line, own| line.replace(own, ""));
        assert_safe("a colored line", &rest);
    }

    #[test]
    fn a_json_line_keeps_the_original_values() {
        let line = logged(Format::Json, false, tell);
        assert_safe("a JSON line", &line);
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["plain"], HOSTILE);
        assert_eq!(read["displayed"], HOSTILE);
        assert_eq!(read["message"], format!("{HOSTILE} said"));
    }

    #[test]
    fn long_events_are_cut() {
        let long = "\x1b\n".repeat(100_000);
        let text = logged(Format::Text, false, || tracing::warn!(long, "said"));
        assert!(text.len() < 2 * TEXT, "{}", text.len());
        let json = logged(Format::Json, false, || tracing::warn!(long, "said"));
        assert!(json.len() < 10 * TEXT, "{}", json.len());
        let read: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["message"], "said");
        assert!(read["long"].as_str().unwrap().ends_with('…'));
    }
}
