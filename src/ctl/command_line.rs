//! Complete command line: [`crate::cli`] with `ctl`'s examples in `--help` and completion of names.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command, CommandFactory as _, Error};
use clap_complete::engine::ArgValueCompleter;
use clap_complete::env::CompleteEnv;

use super::{complete, examples};
use crate::cli::Cli;

/// Maximum width of the help in columns.
pub(super) const COLUMNS: usize = 80;

/// Returns the complete definition of the command line.
pub fn described() -> Command {
    Cli::command()
        .max_term_width(COLUMNS)
        .mut_subcommand("ctl", |ctl| with_verbs(ctl, examples::help))
        .mut_subcommand("version", |version| with_examples(version, examples::help))
}

/// Adds examples and completion of names to `ctl` and its verbs. `help` returns the examples for the name of a command.
pub(super) fn with_verbs(ctl: Command, help: impl Fn(&str) -> String) -> Command {
    with_examples(ctl, &help)
        .mut_subcommands(|verb| with_examples(verb, &help).mut_args(with_names))
}

/// Handles a completion request from a shell and exits. Returns if the shell did not request completion.
pub fn answer_shell() {
    CompleteEnv::with_factory(described)
        .var(complete::ASKED)
        .complete();
}

/// Adds examples to a verb. Also makes `-h` the same as `--help`: longer explanations are in the reference.
fn with_examples(verb: Command, help: impl Fn(&str) -> String) -> Command {
    let help = help(verb.get_name());
    let flag = Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::HelpShort)
        .help("Print help");
    verb.disable_help_flag(true)
        .arg(flag)
        .mut_args(|argument| argument.hide_env(true).hide_possible_values(false))
        .after_help(help)
}

fn with_names(argument: Arg) -> Arg {
    let names = match argument.get_id().as_str() {
        "daemonset" => complete::daemonsets,
        "node" => complete::nodes,
        "pod" => complete::pods,
        _ => return argument,
    };
    argument.add(ArgValueCompleter::new(names))
}

/// Returns a valid command line that the user probably meant; `None` if there is no suggestion.
///
/// `typed` has the words after the program name.
pub fn meant(error: &Error, typed: &[String]) -> Option<String> {
    let all = described();
    let ctl = all.find_subcommand("ctl")?;
    let words: Vec<&str> = typed.iter().map(String::as_str).collect();
    match (error.kind(), words.as_slice()) {
        (ErrorKind::InvalidSubcommand, [verb, rest @ ..])
            if ctl.find_subcommand(verb).is_some() =>
        {
            Some(format!("yurt-ds ctl {verb} {}", rest.join(" ")))
        }
        (ErrorKind::UnknownArgument, ["ctl", verb, kind, name, rest @ ..])
            if is_daemonset(kind) =>
        {
            Some(format!("yurt-ds ctl {verb} {name} {}", rest.join(" ")))
        }
        _ => None,
    }
    .map(|line| line.trim_end().to_owned())
}

/// Returns a line for each flag that the error names and that was set by an environment variable instead of the command line.
///
/// `typed` has the words after the program name, and `is_set` returns true for a variable of the environment.
pub fn set_by_variables(
    error: &Error,
    typed: &[String],
    is_set: impl Fn(&OsStr) -> bool,
) -> Vec<String> {
    let text = error.to_string();
    let is_named = |flag: &str| {
        let mut after = text.split(flag).skip(1);
        after.any(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '-'))
    };
    let mut lines = BTreeSet::new();
    for_every_argument(&described(), &mut |argument| {
        let (Some(long), Some(variable)) = (argument.get_long(), argument.get_env()) else {
            return;
        };
        let flag = format!("--{long}");
        let short = argument.get_short().map(|short| format!("-{short}"));
        let is_typed = typed.iter().any(|word| {
            let name = word.split('=').next().unwrap_or_default();
            name == flag || (short.as_ref()).is_some_and(|short| word.starts_with(short))
        });
        if !is_typed && is_set(variable) && is_named(&flag) {
            let variable = variable.to_string_lossy();
            lines.insert(format!("the environment variable {variable} sets {flag}"));
        }
    });
    lines.into_iter().collect()
}

fn for_every_argument(command: &Command, act: &mut dyn FnMut(&Arg)) {
    command.get_arguments().for_each(&mut *act);
    for verb in command.get_subcommands() {
        for_every_argument(verb, act);
    }
}

/// Returns true if `kind` is one of kubectl's names for DaemonSets.
fn is_daemonset(kind: &str) -> bool {
    ["daemonset", "daemonsets", "daemonsets.apps", "ds"].contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_typed_as_for_kubectl_suggest_the_yurt_ds_command() {
        let meant = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let parsed =
                described().try_get_matches_from(["yurt-ds"].into_iter().chain(line.split(' ')));
            super::meant(&parsed.unwrap_err(), &words)
        };
        let cases = [
            ("status", Some("yurt-ds ctl status")),
            (
                "undo shop/web --dry-run",
                Some("yurt-ds ctl undo shop/web --dry-run"),
            ),
            (
                "ctl status daemonset web -n shop",
                Some("yurt-ds ctl status web -n shop"),
            ),
            ("ctl undo ds web", Some("yurt-ds ctl undo web")),
            ("fly", None),
            ("ctl fly", None),
            ("ctl status web other", None),
        ];
        for (typed, expected) in cases {
            assert_eq!(meant(typed).as_deref(), expected, "{typed}");
        }
    }
    #[test]
    fn an_error_names_the_variable_that_set_the_flag() {
        let parsed =
            described().try_get_matches_from("yurt-ds ctl why web n1 --output jsonl".split(' '));
        let error = parsed.unwrap_err();
        let lines = |typed: &str, set: &str| {
            let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
            set_by_variables(&error, &words, |name| name == set)
        };
        let expected = ["the environment variable YURT_DS_OUTPUT sets --output"];
        assert_eq!(lines("ctl why web n1", "YURT_DS_OUTPUT"), expected);
        for (typed, set) in [
            ("ctl why web n1 --output jsonl", "YURT_DS_OUTPUT"),
            ("ctl why web n1 --output=jsonl", "YURT_DS_OUTPUT"),
            ("ctl why web n1 -ojsonl", "YURT_DS_OUTPUT"),
            ("ctl why web n1", "YURT_DS_WAIT"),
        ] {
            assert!(lines(typed, set).is_empty(), "{typed}, {set}");
        }
    }
}
