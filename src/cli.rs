//! Types of the command line: one `Args` struct per command. This module does no I/O.

pub mod ctl;
pub mod manifests;
pub mod node;
pub mod ota_server;
pub mod sim;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::core::SetKind;
use crate::log::Format;

/// Rolls out DaemonSets on fleets whose nodes come and go.
#[derive(Debug, Parser)]
#[command(name = "yurt-ds", version)]
pub struct Cli {
    /// Log flags.
    #[command(flatten)]
    pub log: LogArgs,
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// A command of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controller: watch the cluster and replace pods within their budgets
    Controller(ControllerArgs),
    /// Run the agent of one node: its owner lists updates, pulls images and confirms upgrades
    OtaServer(ota_server::OtaServerArgs),
    /// Inspect and control rollouts in a cluster, and pods on a node
    Ctl(ctl::CtlArgs),
    /// Play rollouts on an embedded cluster with the real controller; needs no other software
    ///
    /// Without flags, plays two stories of three nodes, then a fleet of 200 nodes, and ends within a minute with a report. In the
    /// first story, two nodes go offline during an image change. In the second, a node owner confirms an upgrade (OTA).
    Sim(sim::SimArgs),
    /// Print files that this program generates: a manifest and manual pages
    Manifests(manifests::ManifestsArgs),
    /// Print the version, the build, and the supported versions of Kubernetes
    Version(VersionArgs),
}

impl Cli {
    /// Returns the log levels. Unless a flag sets them, they depend on the command.
    ///
    /// `sim` logs only errors by default, because log lines would disturb its live display.
    pub fn log_levels(&self) -> Targets {
        let usual = LEVELS.parse::<Targets>().ok();
        match &self.command {
            Command::Sim(sim)
                if sim.verb.is_none() && usual.as_ref() == Some(&self.log.log_level) =>
            {
                Targets::new().with_default(tracing::Level::ERROR)
            }
            // By default, `ctl` logs nothing, because it prints its own messages.
            Command::Ctl(_) if usual.as_ref() == Some(&self.log.log_level) => Targets::new(),
            _ => self.log.log_level.clone(),
        }
    }
}

/// Default log levels. kube's logs are reduced, because the code that runs a watch logs its failures itself.
const LEVELS: &str = "info,kube_client=off,kube_runtime=error";

/// Parses log levels: one level for all targets, or TARGET=LEVEL.
///
/// A single word must be a level: `Targets` would treat a misspelled level as the name of a target and turn off all other logs.
fn levels(text: &str) -> Result<Targets, String> {
    let expected = "expected one of error, warn, info, debug, trace, off, and TARGET=LEVEL, with commas in between";
    let words = text.split(',').filter(|word| !word.contains('='));
    for word in words {
        if word.is_empty() || word.parse::<LevelFilter>().is_err() {
            return Err(format!("{word:?} is not a level; {expected}"));
        }
    }
    let targets = text.parse::<Targets>();
    targets.map_err(|error| format!("{error}; {expected}"))
}

/// Flags for log lines.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Log levels, in general and per target (error, warn, info, debug, trace, off)
    #[arg(
        long,
        global = true,
        env = "YURT_DS_LOG_LEVEL",
        default_value = LEVELS,
        value_parser = levels,
        value_name = "LEVELS",
        hide_short_help = true,
        help_heading = "Log"
    )]
    pub log_level: Targets,
    /// Format of log lines
    #[arg(
        long,
        global = true,
        env = "YURT_DS_LOG_FORMAT",
        default_value = "text",
        hide_short_help = true,
        help_heading = "Log"
    )]
    pub log_format: Format,
}

/// Output format. All formats show the same rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Table,
    /// For people, with more columns and every node
    Wide,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

/// Output format of `ctl status`: those of [`Output`], and one line per change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StatusOutput {
    /// For people
    #[default]
    Table,
    /// For people, with more columns and every node
    Wide,
    /// For programs
    Json,
    /// For programs: one JSON object per line, as soon as a state changes
    Jsonl,
    /// For programs and people
    Yaml,
}

/// Flags of `yurt-ds version`.
#[derive(Clone, Debug, Args)]
pub struct VersionArgs {
    /// Output format; wide is the same as table
    #[arg(
        short,
        long,
        env = "YURT_DS_OUTPUT",
        hide_env = true,
        default_value = "table"
    )]
    pub output: Output,
}

/// Flags of `yurt-ds controller`.
#[derive(Clone, Debug, Args)]
pub struct ControllerArgs {
    /// Kubeconfig of the cluster [default: the service account of this pod]
    #[arg(long, env = "YURT_DS_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address of /live, /ready and /metrics; port 0 picks a free port and logs it
    #[arg(
        long,
        env = "YURT_DS_LISTEN",
        default_value = "0.0.0.0:10270",
        value_name = "ADDR"
    )]
    pub listen: SocketAddr,
    /// Extra address of /live and /ready with its own connections, so that many requests to /metrics don't delay probes [default:
    /// only --listen]
    #[arg(long, env = "YURT_DS_PROBE_LISTEN", value_name = "ADDR")]
    pub probe_listen: Option<SocketAddr>,
    /// Kinds of DaemonSets to roll out: native (apps/v1), advanced (apps.kruise.io), or both
    #[arg(
        long,
        env = "YURT_DS_CONTROLLERS",
        value_enum,
        value_delimiter = ',',
        num_args = 1..,
        default_value = "native,advanced",
        value_name = "KINDS"
    )]
    pub controllers: Vec<KindName>,
    /// Leader election flags.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Notification flags.
    #[command(flatten)]
    pub notify: NotifyArgs,
    /// Base URL of an OpenTelemetry collector (OTLP/HTTP) that receives traces of rollouts, such as http://HOST:4318 [default: no
    /// traces]
    #[arg(
        long,
        env = "YURT_DS_OTLP_ENDPOINT",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub otlp_endpoint: Option<String>,
}

/// Flags for notifications about rollouts.
#[derive(Clone, Debug, Default, Args)]
pub struct NotifyArgs {
    /// URL of a webhook that receives a CloudEvent when a rollout starts, stalls, pauses, continues or completes [default: no
    /// notifications]
    #[arg(
        long,
        env = "YURT_DS_NOTIFY_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub notify_url: Option<String>,
    /// File with the secret that signs notifications (Standard Webhooks), read again for each delivery [default: no signature]
    #[arg(
        long,
        env = "YURT_DS_NOTIFY_SECRET_FILE",
        requires = "notify_url",
        value_name = "FILE"
    )]
    pub notify_secret_file: Option<PathBuf>,
    /// Name of this cluster, which notifications contain as the attribute "cluster" [default: no such attribute]
    #[arg(
        long,
        env = "YURT_DS_NOTIFY_CLUSTER",
        requires = "notify_url",
        value_name = "NAME"
    )]
    pub notify_cluster: Option<String>,
}

/// Kind of DaemonSet on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KindName {
    /// Native DaemonSet (apps/v1), with annotations
    Native,
    /// Advanced DaemonSet of OpenKruise (apps.kruise.io)
    Advanced,
}

impl KindName {
    /// Returns the corresponding kind.
    pub fn kind(self) -> SetKind {
        match self {
            Self::Native => SetKind::Native,
            Self::Advanced => SetKind::Advanced,
        }
    }
}

/// Flags for leader election.
#[derive(Clone, Debug, Args)]
pub struct LeaseArgs {
    /// Elect one leader among the replicas; false only if there is never more than one process
    #[arg(
        long,
        env = "YURT_DS_LEADER_ELECT",
        default_value_t = true,
        action = ArgAction::Set,
        value_name = "BOOL"
    )]
    pub leader_elect: bool,
    /// Namespace of the Lease [default: the namespace of the pod, or of the kubeconfig's context]; controllers with different
    /// --controllers need different namespaces
    #[arg(long, env = "YURT_DS_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Time after the leader's last renewal at which another replica takes over
    #[arg(long, env = "YURT_DS_LEASE_DURATION", default_value = "15s", value_parser = crate::clock::duration, value_name = "DURATION")]
    pub lease_duration: Duration,
    /// Time after its last renewal at which the leader stops writing; at least 5s less than the duration
    #[arg(long, env = "YURT_DS_LEASE_RENEW_DEADLINE", default_value = "10s", value_parser = crate::clock::duration, value_name = "DURATION")]
    pub lease_renew_deadline: Duration,
    /// Interval at which the leader renews the Lease and other replicas check it
    #[arg(long, env = "YURT_DS_LEASE_RENEW_EVERY", default_value = "5s", value_parser = crate::clock::duration, value_name = "DURATION")]
    pub lease_renew_every: Duration,
    /// Name of this replica in the Lease, unique among all replicas that ever ran [default: host name and a random suffix]
    #[arg(long, env = "YURT_DS_IDENTITY", value_name = "NAME")]
    pub identity: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_invalid_log_level_names_the_valid_levels() {
        for text in ["foo", "info,foo", "", "inf", "yurt_ds=loud"] {
            let refused = Cli::try_parse_from(["yurt-ds", "--log-level", text, "sim"]);
            let refused = refused.expect_err(text).to_string();
            assert!(refused.contains("--log-level"), "{refused}");
            assert!(refused.contains("expected one of error, warn"), "{refused}");
        }
        for text in ["off", "DEBUG", "info,kube_client=debug", LEVELS] {
            let taken = Cli::try_parse_from(["yurt-ds", "--log-level", text, "sim"]);
            assert_eq!(
                taken.unwrap().log.log_level,
                text.parse::<Targets>().unwrap()
            );
        }
    }

    #[test]
    fn every_flag_is_also_an_environment_variable() {
        fn check(command: &clap::Command, prefix: &str) {
            for argument in command.get_arguments() {
                let long = argument.get_long().unwrap_or_default();
                if argument.is_positional() || ["help", "version"].contains(&long) {
                    continue;
                }
                let prefix = if long == "kubeconfig" { "" } else { prefix };
                let wanted = format!("YURT_DS_{prefix}{}", long.replace('-', "_").to_uppercase());
                let found = argument
                    .get_env()
                    .map(|name| name.to_string_lossy().into_owned());
                assert_eq!(found.as_deref(), Some(wanted.as_str()), "--{long}");
            }
            for verb in command.get_subcommands() {
                let prefix = if verb.get_name() == "sim" {
                    "SIM_"
                } else {
                    prefix
                };
                check(verb, prefix);
            }
        }
        check(&Cli::command(), "");
    }
}
