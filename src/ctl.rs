//! `yurt-ds ctl`: reports on rollouts and controls them from the command line.
//!
//! ```text
//! typed ─lookup─► view (LIST, WATCH → Index) ─decide─► snapshot ─core::messages─► rows ─► table, JSON, YAML
//! ```
//!
//! A verdict is the state of a node in a rollout. `ctl` computes the same verdicts as the controller, because it calls the same
//! function `decide` on the same index of objects. Every outcome has its own exit code, [`Code`].
//!
//! Only these verbs write to the cluster:
//!
//! - `pause`, `resume`, `approve` and `start-now` set one annotation or field.
//! - `undo` restores a pod template.
//! - `eject` hands a DaemonSet back to the rolling update of Kubernetes.
//! - `migrate` converts a native DaemonSet to an Advanced one, or the reverse.
//!
//! On a node, [`node`] sends requests to the node's own server instead, and needs no access to the cluster.

mod access;
mod approve;
mod brief;
mod budgets;
mod check;
mod code;
mod command_form;
pub mod command_line;
mod complete;
mod context;
mod daemonset_api;
mod eject;
mod error;
mod examples;
mod json_lines;
mod junit;
pub mod kubectl;
mod list;
mod look;
mod lookup;
mod migrate;
pub mod node;
mod partition_origin;
mod pause;
mod suggest;
mod waves_and_domains;

mod condition_times;
mod liveness;
mod plan;
mod print;
mod reference;
mod reported;
mod rights;
mod row;
mod screen;
mod settings;
mod snapshot;
mod start_now;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod undo;
mod view;
mod why;
mod write;

use std::io::Write;

pub use access::Access;
pub use code::Code;
pub use context::Context;
pub use error::CliError;
pub use reference::{manual, manuals};
pub use row::{NodeRow, PodCountsRow, PodRow, SetRow};
pub use screen::Screen;
pub use waves_and_domains::{DomainRow, WaveRow};
pub use why::WhyAnswer;

use crate::cli::ctl::{AccessArgs, CtlArgs, Verb};
use crate::clock::Clock;
use crate::k8s::client::Source;
use crate::stdout::Stdout;
use kubectl::Role;
use lookup::TypedName;
use node::NodeClient;

/// Runs the command on the terminal and returns its exit code. `role` decides how recommended commands begin.
pub async fn run(args: &CtlArgs, clock: Clock, role: Role) -> Code {
    let (live, colour) = screen::standard_output();
    let mut out = Stdout;
    let mut screen = Screen::new(&mut out, live, colour);
    screen.form.is_plugin = role == Role::Plugin;
    let ended = match &args.verb {
        Verb::Completions(wanted) => completions(wanted.shell).map(|script| {
            let _ = screen.write(&script);
            Code::Complete
        }),
        Verb::Settings(wanted) if wanted.daemonset.is_none() => {
            settings::list(wanted, colour).map(|text| {
                let _ = screen.print(&text);
                Code::Complete
            })
        }
        Verb::Node(verb) => match NodeClient::find(verb.server()).await {
            Err(error) => Err(error),
            Ok(client) => {
                let client = client.in_namespace(args.access.namespace.clone());
                node::perform_on_node(verb, &client, &mut screen, &clock).await
            }
        },
        verb => match Access::connect(&source(&args.access)).await {
            Err(error) => unconfigured(verb, error, &clock, &mut screen),
            Ok(access) => {
                let context = Context {
                    access,
                    namespace: args.access.namespace.clone(),
                    clock,
                };
                perform(&context, verb, &mut screen).await
            }
        },
    };
    ended.unwrap_or_else(|error| {
        // Ignore the error: if standard error cannot be written, the exit code is the only report.
        let _ = writeln!(
            std::io::stderr(),
            "{}",
            screen.form.apply(&error.to_string())
        );
        error.code
    })
}

/// Runs one of the verbs, such as `status`.
///
/// # Errors
/// Returns the error together with its exit code.
pub async fn perform(
    context: &Context,
    verb: &Verb,
    screen: &mut Screen<'_>,
) -> Result<Code, CliError> {
    let typed = verb.typed().map(|typed| TypedName::read(context, typed));
    screen.form.with_kind = typed.and_then(Result::ok).and_then(|name| name.with_kind());
    match (
        Box::pin(do_it(context, verb, screen)).await,
        verb.daemonset(),
    ) {
        // A DaemonSet is missing for a short time while it is migrated. Report an unfinished migration instead of "not found".
        (Err(error), Some(typed)) if error.code == Code::NotFound => {
            let on_its_way = Box::pin(migrate::on_its_way(context, typed)).await;
            Err(on_its_way.unwrap_or(error))
        }
        (done, _) => done,
    }
}

async fn do_it(context: &Context, verb: &Verb, screen: &mut Screen<'_>) -> Result<Code, CliError> {
    match verb {
        Verb::Plan(args) => return Box::pin(plan::plan(context, args, screen)).await,
        Verb::Status(args) => return Box::pin(status::status(context, args, screen)).await,
        Verb::Why(args) => return Box::pin(why::why(context, args, screen)).await,
        Verb::Settings(args) => return Box::pin(settings::settings(context, args, screen)).await,
        Verb::Check(args) => return Box::pin(check::check(context, args, screen)).await,
        Verb::Pause(args) => Box::pin(pause::pause(context, args, screen)).await?,
        Verb::Resume(args) => Box::pin(pause::resume(context, args, screen)).await?,
        Verb::Undo(args) => Box::pin(undo::undo(context, args, screen)).await?,
        Verb::StartNow(args) => {
            Box::pin(start_now::start_now(context, args, screen)).await?;
        }
        Verb::Approve(args) => Box::pin(approve::approve(context, args, screen)).await?,
        Verb::Eject(args) => Box::pin(eject::eject(context, args, screen)).await?,
        Verb::Migrate(args) => Box::pin(migrate::migrate(context, args, screen)).await?,
        Verb::Node(verb) => {
            let client = NodeClient::find(verb.server())
                .await?
                .in_namespace(context.namespace.clone());
            return node::perform_on_node(verb, &client, screen, &context.clock).await;
        }
        Verb::Completions(args) => {
            let _ = screen.write(&completions(args.shell)?);
        }
    }
    Ok(Code::Complete)
}

/// Reports that no cluster is configured, also in the report of the verb if it writes one.
fn unconfigured(
    verb: &Verb,
    error: CliError,
    clock: &Clock,
    screen: &mut Screen<'_>,
) -> Result<Code, CliError> {
    match verb {
        Verb::Check(args) => return check::unconfigured(args, &error, screen),
        Verb::Status(args) => {
            if let Err(unwritten) = junit::report_error(args, clock.now(), &error) {
                screen.warn(&unwritten.to_string());
            }
        }
        _ => {}
    }
    Err(error)
}

fn source(args: &AccessArgs) -> Source {
    Source {
        kubeconfig: args.kubeconfig.clone(),
        context: args.context.clone(),
        in_cluster: false,
    }
}

fn completions(shell: clap_complete::Shell) -> Result<String, CliError> {
    let mut script = Vec::new();
    let failed = |error: std::io::Error| CliError::new(Code::Failed, format!("{error}."));
    complete::script(shell, &mut script).map_err(failed)?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}
