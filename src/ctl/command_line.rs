//! The command line as a person meets it: the types of [`crate::cli`], with what only `ctl` knows laid over them, the
//! tables below `--help` and the names that a shell offers.

use clap::{Arg, Command, CommandFactory as _};
use clap_complete::engine::ArgValueCompleter;
use clap_complete::env::CompleteEnv;

use super::code::Code;
use super::edge::help;
use super::{complete, plan, rights, row, settings};
use crate::cli::Cli;

/// All that can be typed, described.
pub fn described() -> Command {
    Cli::command().mut_subcommand("ctl", |ctl| {
        ctl.after_help(Code::help())
            .after_long_help(long_help())
            .mut_subcommands(|verb| with_tables(verb).mut_args(with_names))
    })
}

/// Answers a shell that asks what could be typed, and ends the process; does nothing otherwise.
pub fn answer_shell() {
    CompleteEnv::with_factory(described)
        .var(complete::ASKED)
        .complete();
}

/// The table of exit codes, the fields of machine-readable answers, and who may ask.
fn long_help() -> String {
    format!("{}\n\n{}\n\n{}", Code::help(), row::FIELDS, rights::RIGHTS)
}

/// The same for `plan`, whose answers have fields of their own.
fn plan_help() -> String {
    format!("{}\n\n{}", Code::help(), plan::FIELDS)
}

/// The same for `settings`.
fn settings_help() -> String {
    format!(
        "{}\n\n{}\n\n{}",
        Code::help(),
        settings::FIELDS,
        rights::RIGHTS
    )
}

fn with_tables(verb: Command) -> Command {
    let on_the_node = |verb: Command, examples| {
        verb.after_help(help::short(examples))
            .after_long_help(help::long(examples))
    };
    match verb.get_name() {
        "status" => verb.after_help(Code::help()).after_long_help(long_help()),
        "why" | "undo" | "pause" | "resume" | "approve" | "eject" | "migrate" => {
            verb.after_long_help(long_help())
        }
        "plan" => verb.after_long_help(plan_help()),
        "settings" => verb.after_long_help(settings_help()),
        "pods" => on_the_node(verb, help::PODS),
        "upgrade" => on_the_node(verb, help::UPGRADE),
        "imagepull" => on_the_node(verb, help::IMAGEPULL),
        _ => verb,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_has_an_exit_code_of_its_own_shows_the_table() {
        let command = described();
        let ctl = command.find_subcommand("ctl").unwrap();
        let plain = ["completions"];
        for verb in ctl.get_subcommands() {
            let tables = verb.get_after_long_help();
            let shown = tables.is_some_and(|text| text.to_string().contains("Exit codes"));
            assert_eq!(
                shown,
                !plain.contains(&verb.get_name()),
                "{}",
                verb.get_name()
            );
        }
    }
}
