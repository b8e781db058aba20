//! `ctl settings`: lists all settings, or their values on a DaemonSet. The parser uses the same table of settings.

use serde::Serialize;

use super::brief::{COLUMNS, wrapped};
use super::code::Code;
use super::daemonset_api::list_one;
use super::error::CliError;
use super::row::api_version;
use super::screen::Screen;
use super::table::{CellStyle, Table};
use super::{Context, lookup, print};
use crate::cli::Output;
use crate::cli::ctl::SettingsArgs;
use crate::core::SetKind;
use crate::core::foreign::one_line;
use crate::core::settings::{
    Invalid, Mode, ParsedSettings, SETTINGS, Setting, SettingState, SettingStatus, states,
};
use crate::index::SetKey;
use crate::k8s::DaemonSet;

/// Description of the fields of `-o json` and `-o yaml`, for the reference.
pub(crate) const FIELDS: &str = "\
Fields of -o json and -o yaml (fields may be added, but not renamed; null if unknown):
  of a setting    name, annotation, summary, syntax, default, modes; with a DaemonSet also value (null if it is not
                  set), place (the annotation or field that has it, or could have it), state, message
  of a DaemonSet  kind (its API version), namespace, name, settings, invalid (why no pod is replaced; null if all are valid), notes
  state           Default, Set, NoEffect, Invalid";

/// Maximum length in characters of a value in a table.
const SHOWN: usize = 48;

/// A setting. Field names are stable for scripts.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SettingRow {
    name: &'static str,
    annotation: &'static str,
    summary: String,
    syntax: String,
    /// Default value. For a DaemonSet, the value that applies if the setting is absent or has no effect.
    default: String,
    modes: Vec<String>,
    #[serde(flatten)]
    on: Option<ValueRow>,
}

/// Value of a setting on a DaemonSet.
#[derive(Clone, Debug, Serialize)]
struct ValueRow {
    value: Option<String>,
    /// Annotation or field that has the value, or could have it.
    place: String,
    state: &'static str,
    message: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct SettingsAnswer {
    #[serde(serialize_with = "api_version")]
    kind: SetKind,
    namespace: String,
    name: String,
    settings: Vec<SettingRow>,
    invalid: Option<String>,
    /// Sentence about the effect of invalid settings on the pods.
    #[serde(skip)]
    consequence: &'static str,
    notes: Vec<String>,
}

/// Renders all settings, without access to a cluster.
///
/// # Errors
/// Fails if the settings cannot be rendered in the requested format.
pub(super) fn list(args: &SettingsArgs, colour: bool) -> Result<String, CliError> {
    let rows: Vec<SettingRow> = SETTINGS.iter().map(SettingRow::from_setting).collect();
    match args.output {
        Output::Json | Output::Yaml => print::document(&rows, args.output),
        Output::Table => Ok(rows.iter().map(|row| row.paragraph(colour)).collect()),
        Output::Wide => Ok(table_of_all(&rows, colour)),
    }
}

/// Shows all settings, or their values on a DaemonSet.
pub(super) async fn settings(
    context: &Context,
    args: &SettingsArgs,
    screen: &mut Screen<'_>,
) -> Result<Code, CliError> {
    let Some(typed) = &args.daemonset else {
        // Ignore a closed output pipe, as with `| head`.
        let _ = screen.print(&list(args, screen.colour)?);
        return Ok(Code::Complete);
    };
    let key = lookup::target(context, typed).await?;
    let answer = answer(&key, &managed(context, &key).await?);
    let text = match args.output {
        Output::Json | Output::Yaml => print::document(&answer, args.output)?,
        Output::Table => report(&answer, args.all, screen.colour),
        Output::Wide => wide(&answer, screen.colour),
    };
    let _ = screen.print(&text);
    Ok(match answer.invalid {
        Some(_) => Code::Invalid,
        None => Code::Complete,
    })
}

/// Reads the DaemonSet from the cluster.
///
/// # Errors
/// Fails if the DaemonSet does not exist or is not managed.
async fn managed(context: &Context, key: &SetKey) -> Result<DaemonSet, CliError> {
    let access = &context.access;
    lookup::find(access, key, context.clock.now()).await?;
    let (found, _) = list_one(access, key).await?;
    found.into_iter().next().ok_or_else(|| {
        let text = format!("DaemonSet {key} no longer exists.");
        CliError::new(Code::NotFound, text)
    })
}

fn answer(key: &SetKey, set: &DaemonSet) -> SettingsAnswer {
    let source = set.settings();
    let settings: Vec<SettingRow> = states(&source).iter().map(SettingRow::on).collect();
    let (invalid, notes) = match set.reading() {
        ParsedSettings::NotOurs => (None, Vec::new()),
        ParsedSettings::Invalid(invalid, _) => (Some(invalid), Vec::new()),
        ParsedSettings::Strategy { notes, .. } => (None, notes),
    };
    let notes = notes.into_iter().map(|note| note.text);
    let notes = notes.filter(|text| !is_in_rows(&settings, text)).collect();
    SettingsAnswer {
        kind: key.kind,
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        settings,
        consequence: invalid.as_ref().map_or("", Invalid::consequence),
        invalid: invalid.map(|invalid| invalid.to_string()),
        notes,
    }
}

/// Returns true if the note is already the message of a row.
fn is_in_rows(rows: &[SettingRow], note: &str) -> bool {
    let messages = rows.iter().filter_map(|row| row.on.as_ref());
    let mut messages = messages.filter_map(|on| on.message.as_deref());
    messages.any(|message| message == note)
}

impl SettingRow {
    fn from_setting(setting: &Setting) -> Self {
        Self {
            name: setting.name(),
            annotation: setting.key,
            summary: plain(setting.summary),
            syntax: plain(&setting.syntax.to_string()),
            default: plain(setting.default),
            modes: setting.modes.iter().map(Mode::to_string).collect(),
            on: None,
        }
    }

    fn on(status: &SettingStatus<'_>) -> Self {
        Self {
            default: plain(&status.default),
            on: Some(ValueRow {
                value: status.written.map(str::to_owned),
                place: status.place.to_owned(),
                state: status.state.word(),
                message: status.message.clone(),
            }),
            ..Self::from_setting(status.setting)
        }
    }

    /// Renders the description of the setting in 80 columns.
    fn paragraph(&self, colour: bool) -> String {
        let name = CellStyle::Bold.on(self.name, colour);
        let written = format!("{}; default: {}", self.syntax, self.default);
        format!(
            "{name}\n{}{}",
            wrapped(&written, 4, usize::MAX),
            wrapped(&self.summary, 4, usize::MAX)
        )
    }

    /// Returns "yes" if the setting applies under OTA. Each setting applies to rolling updates.
    fn ota(&self) -> &'static str {
        if self.modes.contains(&Mode::Ota.to_string()) {
            "yes"
        } else {
            "no"
        }
    }
}

/// Removes the backquotes from a text of the documentation.
fn plain(text: &str) -> String {
    text.replace('`', "")
}

fn table_of_all(rows: &[SettingRow], colour: bool) -> String {
    let mut table = Table::new(&["SETTING", "WRITTEN AS", "DEFAULT", "OTA", "DESCRIPTION"]);
    for row in rows {
        let cells = [row.name, &row.syntax, &row.default, row.ota(), &row.summary];
        table.row(cells.map(|cell| (cell.to_owned(), CellStyle::Plain)).into());
    }
    table.print(colour)
}

/// Renders the settings that the DaemonSet sets, with their errors, in 80 columns. If `all` is true, includes settings with their
/// default value.
fn report(answer: &SettingsAnswer, all: bool, colour: bool) -> String {
    let is_default = |on: &ValueRow| on.state == SettingState::Default.word();
    let rows = answer
        .settings
        .iter()
        .filter_map(|row| Some((row, row.on.as_ref()?)));
    let shown: Vec<_> = rows
        .clone()
        .filter(|(_, on)| all || !is_default(on))
        .collect();
    let name = shown.iter().map(|(row, _)| row.name.len()).max();
    // The value gets the remaining columns: all but the name, the longest state and two gaps of two columns.
    let room = COLUMNS.saturating_sub(name.unwrap_or_default() + 4 + "NoEffect".len());
    let mut table = Table::new(&["SETTING", "VALUE", "STATE"]);
    for (row, on) in &shown {
        let value = on.value.as_deref().unwrap_or(&row.default);
        table.row(vec![
            (row.name.to_owned(), CellStyle::Plain),
            (
                one_line(value, room.min(SHOWN) - 1),
                paint(on.state, CellStyle::Plain),
            ),
            (on.state.to_owned(), paint(on.state, CellStyle::Good)),
        ]);
    }
    let mut text = table.print(colour);
    for (row, on) in &shown {
        if let Some(message) = &on.message {
            let line = format!("{}: {message}", row.name);
            text.push_str(&format!("\n{}", wrapped(&line, 0, usize::MAX)));
        }
    }
    text.push_str(&notes(answer));
    match rows.count() - shown.len() {
        0 => text,
        left => format!(
            "{text}\n{left} more have their defaults: --all shows them, -o wide explains them.\n"
        ),
    }
}

/// Renders all settings with explanations, without a limit of columns.
fn wide(answer: &SettingsAnswer, colour: bool) -> String {
    let mut heading = vec!["SETTING", "VALUE", "STATE", "WRITTEN AS", "DEFAULT", "OTA"];
    if answer.kind == SetKind::Advanced {
        heading.push("PLACE");
    }
    heading.push("DESCRIPTION OR ERROR");
    let mut table = Table::new(&heading);
    for row in &answer.settings {
        let Some(on) = &row.on else {
            continue;
        };
        let shown = |value| one_line(value, SHOWN);
        let value = on.value.as_deref().map_or(row.default.clone(), shown);
        let mut cells = vec![
            (row.name.to_owned(), CellStyle::Plain),
            (value, paint(on.state, CellStyle::Plain)),
            (on.state.to_owned(), paint(on.state, CellStyle::Good)),
        ];
        let more = [
            row.syntax.clone(),
            row.default.clone(),
            row.ota().to_owned(),
        ];
        cells.extend(more.map(|text| (text, CellStyle::Plain)));
        if answer.kind == SetKind::Advanced {
            cells.push((on.place.clone(), CellStyle::Plain));
        }
        let message = on.message.clone();
        cells.push((
            message.unwrap_or_else(|| row.summary.clone()),
            CellStyle::Plain,
        ));
        table.row(cells);
    }
    table.print(colour) + &notes(answer)
}

/// Renders the notes. For invalid settings, also renders the error and its effect.
fn notes(answer: &SettingsAnswer) -> String {
    let mut text = String::new();
    if let Some(invalid) = &answer.invalid {
        let line = format!("Note: {invalid}; {}", answer.consequence);
        text.push_str(&format!("\n{}", wrapped(&line, 0, usize::MAX)));
    }
    for note in &answer.notes {
        text.push_str(&format!(
            "\n{}",
            wrapped(&format!("Note: {note}"), 0, usize::MAX)
        ));
    }
    text
}

/// Returns the style of a state. `set` is the style of a value that takes effect.
fn paint(state: &str, set: CellStyle) -> CellStyle {
    let is = |known: SettingState| state == known.word();
    if is(SettingState::Invalid) {
        CellStyle::Bad
    } else if is(SettingState::NoEffect) {
        CellStyle::Busy
    } else if is(SettingState::Default) {
        CellStyle::Faint
    } else {
        set
    }
}

#[cfg(test)]
mod tests;
