//! Reference of `yurt-ds ctl`: manual pages that are generated from the flags of the program. `docs/reference/cli.md` has the
//! same content on one page.

use std::fs::File;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

use super::code::Code;
use super::command_line::described;
use super::{check, node, plan, rights, row, settings};

/// Text above the table of exit codes.
const CODES: &str = "For a list, the exit code is that of the DaemonSet in the worst state.";

/// Returns heading and text of each section after the exit codes.
fn texts() -> [(&'static str, &'static str); 6] {
    [
        ("Fields of status, why, undo", row::FIELDS),
        ("Fields of plan", plan::FIELDS),
        ("Fields of settings", settings::FIELDS),
        ("Fields of check", check::FIELDS),
        ("Fields of pods, upgrade, imagepull", node::FIELDS),
        ("Rights", rights::RIGHTS),
    ]
}

/// Writes the manual pages of the program and of all its commands into a folder.
///
/// # Errors
/// Fails if a page cannot be written.
pub fn manuals(folder: &Path) -> io::Result<()> {
    let all = described();
    let ctl = all.find_subcommand("ctl");
    let verbs = ctl.into_iter().flat_map(Command::get_subcommands);
    let verbs: Vec<String> = verbs.map(|verb| verb.get_name().to_owned()).collect();
    let mut all = all.disable_help_subcommand(true);
    all.build();
    write_pages(&all, folder)?;
    // The pages of `ctl` have more sections.
    for verb in verbs.iter().map(Some).chain([None]) {
        let name = verb.map_or_else(String::new, |verb| format!("-{verb}"));
        let mut file = File::create(folder.join(format!("yurt-ds-ctl{name}.1")))?;
        manual(verb.map(String::as_str), &mut file)?;
    }
    Ok(())
}

/// Writes the pages of a command and of all commands below it.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands() {
        write_pages(below, folder)?;
    }
    page(command.clone()).generate_to(folder).map(drop)
}

/// Returns the manual page of a command, with the version of the program in its footer.
fn page(command: Command) -> Man {
    Man::new(command).source(concat!("yurt-ds ", env!("CARGO_PKG_VERSION")))
}

/// Writes the manual page of `yurt-ds ctl`, or of one of its verbs.
///
/// # Errors
/// Fails if there is no such verb, or if the page cannot be written.
pub fn manual(verb: Option<&str>, out: &mut dyn io::Write) -> io::Result<()> {
    let all = described();
    let ctl = all.find_subcommand("ctl");
    let found = match verb {
        None => ctl,
        Some(verb) => ctl.and_then(|ctl| ctl.find_subcommand(verb)),
    };
    let Some(found) = found else {
        let text = format!("yurt-ds ctl has no verb {:?}", verb.unwrap_or_default());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    };
    let words: Vec<&str> = ["yurt-ds", "ctl"].into_iter().chain(verb).collect();
    let codes: String = Code::meanings()
        .map(|(code, meaning)| format!("\n  {code:<2} {meaning}"))
        .collect();
    let texts = texts().map(|(title, text)| format!("\n\n{title}\n\n{text}"));
    let found = found
        .clone()
        .display_name(words.join("-"))
        .bin_name(words.join(" "))
        .after_long_help(format!("Exit codes\n\n{CODES}{codes}{}", texts.concat()));
    page(found).render(out)
}

#[cfg(test)]
mod tests;
