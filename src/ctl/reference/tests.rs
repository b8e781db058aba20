//! Tests of the reference: the page in the documentation is up to date, and it and the manual pages are complete.

use std::fmt::Write as _;

use clap::Arg;

use super::*;
use crate::ctl::examples;

/// Returns the expected content of `docs/reference/cli.md`.
fn page() -> String {
    let mut page = String::from(
        "# Command line\n\n\
        Generated from the program: `YURT_DS_GOLDEN=1 cargo test --lib reference` writes this page. `yurt-ds manifests man` prints the same as\n\
        manual pages. Every flag has an environment variable.\n",
    );
    let all = described();
    let ctl = all.find_subcommand("ctl");
    let verbs = ctl.iter().flat_map(|ctl| ctl.get_subcommands());
    let verbs = verbs.map(|verb| section(verb, "ctl "));
    let version = all.find_subcommand("version");
    for section in verbs.chain(version.map(|version| section(version, ""))) {
        // Ignore the result: writing to a String cannot fail.
        let _ = write!(page, "\n{section}");
    }
    let _ = write!(
        page,
        "\n## Flags of all commands\n\nThe first three are flags of `ctl` only.\n{}",
        table(&global(&all, ctl))
    );
    let _ = write!(
        page,
        "\n## Exit codes\n\n{CODES}\n\n| code | meaning |\n| --- | --- |\n"
    );
    for (code, meaning) in Code::meanings() {
        let _ = writeln!(page, "| {code} | {meaning} |");
    }
    for (title, text) in texts() {
        let _ = write!(page, "\n## {title}\n\n```text\n{text}\n```\n");
    }
    page
}

/// Returns the section of the page about one verb. `parent` has the words between the program and the verb.
fn section(verb: &Command, parent: &str) -> String {
    let name = verb.get_name();
    let about = verb.get_long_about().or(verb.get_about());
    let about = about.map_or_else(String::new, ToString::to_string);
    let positionals = verb.get_positionals().map(|arg| {
        if arg.is_required_set() {
            format!(" {}", value(arg))
        } else {
            format!(" [{}]", value(arg))
        }
    });
    let positionals: String = positionals.collect();
    let mut text = format!(
        "## `{parent}{name}`\n\n{about}\n\n```text\nyurt-ds {parent}{name} [OPTIONS]{positionals}\n```\n\n```sh\n"
    );
    for example in examples::for_command(name).into_iter().flat_map(str::lines) {
        let (typed, comment) = example.split_once("  ").unwrap_or((example, ""));
        let comment = match comment.trim() {
            "" => String::new(),
            comment => format!("  # {comment}"),
        };
        let _ = writeln!(text, "{typed}{comment}");
    }
    text.push_str("```\n");
    let arguments: Vec<&Arg> = (verb.get_arguments())
        .filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()))
        .collect();
    text + &table(&arguments)
}

/// Returns the flags that `ctl` and the whole program accept after every verb.
fn global<'a>(all: &'a Command, ctl: Option<&'a Command>) -> Vec<&'a Arg> {
    let arguments = ctl
        .into_iter()
        .chain([all])
        .flat_map(Command::get_arguments);
    arguments.filter(|arg| arg.is_global_set()).collect()
}

/// Returns a table of arguments; nothing if there are none.
fn table(arguments: &[&Arg]) -> String {
    let mut text = String::new();
    if !arguments.is_empty() {
        text.push_str("\n| argument | meaning | variable |\n| --- | --- | --- |\n");
    }
    for argument in arguments {
        let help = argument.get_long_help().or(argument.get_help());
        let help = help.map_or_else(String::new, ToString::to_string);
        let help = help
            .replace("\n\n", ". ")
            .replace('\n', " ")
            .replace('|', "\\|");
        let default: Vec<_> = argument
            .get_default_values()
            .iter()
            .map(|one| one.to_string_lossy())
            .collect();
        let default = if default.is_empty() || !argument.get_action().takes_values() {
            String::new()
        } else {
            format!(" [default: {}]", default.join(","))
        };
        let variable = argument.get_env().filter(|_| !argument.is_positional());
        let variable =
            variable.map_or_else(String::new, |name| format!("`{}`", name.to_string_lossy()));
        let _ = writeln!(
            text,
            "| `{}` | {help}{default} | {variable} |",
            shown(argument)
        );
    }
    text
}

/// Returns an argument as users write it.
fn shown(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    match (names.is_empty(), argument.get_action().takes_values()) {
        (true, _) => value(argument),
        (false, true) => format!("{} {}", names.join(", "), value(argument)),
        (false, false) => names.join(", "),
    }
}

fn value(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    names.first().map_or_else(
        || argument.get_id().to_string().to_uppercase(),
        ToString::to_string,
    )
}

#[test]
fn the_cli_page_matches_the_program() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/cli.md");
    if crate::machine::is_set("YURT_DS_GOLDEN") {
        std::fs::write(file, page()).unwrap();
    }
    let known = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        known == page(),
        "to rewrite it: YURT_DS_GOLDEN=1 cargo test --lib reference"
    );
}

#[test]
fn every_verb_has_a_manual_page() {
    let all = described();
    let ctl = all.find_subcommand("ctl").unwrap();
    let verbs = ctl.get_subcommands().map(|verb| Some(verb.get_name()));
    for verb in verbs.chain([None]) {
        let mut text = Vec::new();
        manual(verb, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains(".SH NAME") && text.contains("Exit codes"),
            "{verb:?}: {text}"
        );
    }
    assert!(manual(Some("fly"), &mut Vec::new()).is_err());
}

#[test]
fn all_manual_pages_are_written_to_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    manuals(folder.path()).unwrap();
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    for name in ["yurt-ds.1", "yurt-ds-controller.1", "yurt-ds-version.1"] {
        assert!(page(name).contains(".SH NAME"), "{name}");
    }
    for name in ["yurt-ds-ctl.1", "yurt-ds-ctl-undo.1"] {
        assert!(page(name).contains("Exit codes"), "{name}");
    }
    let footer = concat!("\"yurt-ds ", env!("CARGO_PKG_VERSION"), "\"");
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let name = file.unwrap().file_name();
        let text = page(name.to_str().unwrap());
        let title = text.lines().find(|line| line.starts_with(".TH")).unwrap();
        assert!(title.contains(footer), "{title}");
    }
}
