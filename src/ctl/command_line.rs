//! The command line as a person meets it: the types of [`crate::cli`], with what only `ctl` knows laid over them, the
//! examples below `--help` and the names that a shell offers.

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use clap_complete::engine::ArgValueCompleter;
use clap_complete::env::CompleteEnv;

use super::{complete, examples};
use crate::cli::Cli;

/// Widest help, in columns.
const COLUMNS: usize = 80;

/// All that can be typed, described.
pub fn described() -> Command {
    Cli::command()
        .max_term_width(COLUMNS)
        .mut_subcommand("ctl", |ctl| {
            with_examples(ctl).mut_subcommands(|verb| with_examples(verb).mut_args(with_names))
        })
}

/// Answers a shell that asks what could be typed, and ends the process; does nothing otherwise.
pub fn answer_shell() {
    CompleteEnv::with_factory(described)
        .var(complete::ASKED)
        .complete();
}

/// Lays examples over a verb, and one help for `-h` and `--help`: what is longer stands in the reference.
fn with_examples(verb: Command) -> Command {
    let help = examples::help(verb.get_name());
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
