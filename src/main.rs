//! Parses the command line, runs the command and returns an exit code.

use std::ffi::OsStr;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::FromArgMatches as _;
use yurt_ds::cli::manifests::ManifestsVerb;
use yurt_ds::cli::{Cli, Command, Output};
use yurt_ds::clock::Clock;
use yurt_ds::controller::{self, WakeupBatching};
use yurt_ds::core::foreign::{TEXT, cut};
use yurt_ds::ctl::kubectl::{self, Role};
use yurt_ds::stdout::{self, Stdout};
use yurt_ds::version::Version;
use yurt_ds::{ctl, demo, log, manifests, ota_server, shutdown};

/// Exit code after Ctrl-C, as returned by shells.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    // For shell completion, the shell runs this program: print the candidates and exit.
    ctl::command_line::answer_shell();
    let role = Role::of(&std::env::args_os().next().unwrap_or_default());
    let cli = match role {
        Role::Completion => {
            let words = std::env::args_os().skip(1);
            let printed = kubectl::print_candidates(words, &mut Stdout);
            // kubectl offers nothing if this fails. A user who presses Tab cannot use an error message.
            return printed.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
        }
        Role::Plugin => kubectl::parse(std::env::args_os()),
        Role::Program => ctl::command_line::described()
            .try_get_matches()
            .and_then(|typed| Cli::from_arg_matches(&typed)),
    };
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => return wrong(&error, role),
    };
    log::init(cli.log_levels(), cli.log.log_format);
    let code = run(cli.command, role).unwrap_or_else(|error| {
        stdout::complain(&format!("yurt-ds: {}", cut(&format!("{error:#}"), TEXT)));
        ExitCode::FAILURE
    });
    unwritten().unwrap_or(code)
}

/// Reports that standard output could not be written, and returns the exit code for this; `None` if it could be written.
fn unwritten() -> Option<ExitCode> {
    let error = stdout::failure()?;
    stdout::complain(&format!(
        "yurt-ds: cannot write to standard output: {error}"
    ));
    Some(ExitCode::FAILURE)
}

/// Prints the error of a command line with a suggestion, or its help, and returns the exit code.
fn wrong(error: &clap::Error, role: Role) -> ExitCode {
    let typed = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned());
    // The plugin has the verbs of `ctl`.
    let parent = (role == Role::Plugin).then(|| "ctl".to_owned());
    let words: Vec<String> = parent.into_iter().chain(typed).collect();
    // An error is printed to stderr. If that is closed, nothing can be reported. Help and version are printed to stdout.
    if let (Err(unwritten), false) = (error.print(), error.use_stderr()) {
        stdout::record(&unwritten);
    }
    if let Some(line) = ctl::command_line::meant(error, &words) {
        let line = match role {
            Role::Plugin => kubectl::in_plugin(&line),
            Role::Program | Role::Completion => line,
        };
        stdout::complain(&format!("\n  tip: {line}"));
    }
    let is_set = |name: &OsStr| std::env::var_os(name).is_some();
    for line in ctl::command_line::set_by_variables(error, &words, is_set) {
        stdout::complain(&format!("\n  tip: {line}"));
    }
    let code = u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
    unwritten().unwrap_or(code)
}

fn run(command: Command, role: Role) -> Result<ExitCode> {
    // One thread suffices, because the program mostly waits. Each additional thread would cost memory on every replica.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let gathering = WakeupBatching::default();
    let is_controller = matches!(command, Command::Controller(_));
    if is_controller {
        let gathering = gathering.clone();
        runtime.on_thread_park(move || gathering.sleep());
    }
    let runtime = runtime
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let code = runtime.block_on(dispatch(command, role, gathering));
    if is_controller {
        // Don't wait for a DNS lookup of the receiver of notifications.
        runtime.shutdown_background();
    }
    code
}

async fn dispatch(command: Command, role: Role, gathering: WakeupBatching) -> Result<ExitCode> {
    let mut shutdown = shutdown::on_signals().context("cannot listen for signals")?;
    match command {
        Command::Controller(args) => controller::start(args, gathering, shutdown).await?,
        Command::OtaServer(args) => ota_server::start(args, shutdown).await?,
        Command::Ctl(args) => {
            let ended = tokio::select! {
                code = ctl::run(&args, Clock::System, role) => code.number(),
                () = shutdown.requested() => INTERRUPTED,
            };
            return Ok(ended.into());
        }
        Command::Sim(args) => return demo::run(args, shutdown).await,
        Command::Manifests(args) => {
            let text = match args.verb {
                ManifestsVerb::Crd => manifests::crd()
                    .context("cannot write it as YAML")?
                    .into_bytes(),
                ManifestsVerb::Man(man) => {
                    if let Some(folder) = man.dir {
                        let written = ctl::manuals(&folder);
                        written.with_context(|| format!("cannot write to {}", folder.display()))?;
                        return Ok(ExitCode::SUCCESS);
                    }
                    let mut page = Vec::new();
                    ctl::manual(man.verb.as_deref(), &mut page)?;
                    page
                }
            };
            stdout::print(&text);
        }
        Command::Version(args) => {
            let version = Version::of_this_program();
            let text = match args.output {
                Output::Table | Output::Wide => version.to_string(),
                Output::Json => format!("{}\n", serde_json::to_string_pretty(&version)?),
                Output::Yaml => serde_saphyr::to_string(&version)?,
            };
            stdout::print(text.as_bytes());
        }
    }
    Ok(ExitCode::SUCCESS)
}
