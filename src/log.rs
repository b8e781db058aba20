//! Log lines on stderr: text for people, JSON for collectors.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One line for a person.
    Text,
    /// One JSON object.
    Json,
}

/// Starts logging. Colour only on a terminal, and never with `NO_COLOR`. A second call changes nothing.
pub fn init(level: Targets, format: Format) {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        Format::Json => lines.json().flatten_event(true).with_ansi(false).boxed(),
        Format::Text if std::io::stderr().is_terminal() => lines.boxed(), // looks at NO_COLOR itself
        Format::Text => lines.with_ansi(false).boxed(),
    };
    let _already_set = tracing_subscriber::registry()
        .with(lines.with_filter(level))
        .try_init();
}
