//! Command line of `yurt-ds ctl`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::Shell;
use k8s_openapi::jiff::Timestamp;

use super::node::NodeVerb;
use super::{KindName, Output, StatusOutput};

/// Flags and verbs of `yurt-ds ctl`.
#[derive(Clone, Debug, Args)]
pub struct CtlArgs {
    /// Cluster to use.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Verb to run.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Heading of the cluster flags in the help.
const CLUSTER: &str = "Cluster";

/// Flags that select the cluster.
#[derive(Clone, Debug, Default, Args)]
pub struct AccessArgs {
    /// Kubeconfig [default: $KUBECONFIG, ~/.kube/config, in-cluster]
    #[arg(long, global = true, env = "YURT_DS_KUBECONFIG", value_name = "FILE", help_heading = CLUSTER)]
    pub kubeconfig: Option<PathBuf>,
    /// Context [default: the current context of the kubeconfig]
    #[arg(long, global = true, env = "YURT_DS_CONTEXT", value_name = "NAME", help_heading = CLUSTER)]
    pub context: Option<String>,
    /// Namespace [default: the namespace of the context]
    #[arg(
        short,
        long,
        global = true,
        env = "YURT_DS_NAMESPACE",
        value_name = "NAMESPACE",
        help_heading = CLUSTER
    )]
    pub namespace: Option<String>,
}

/// A verb of `yurt-ds ctl`.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Show the state of all rollouts, or of one rollout and its nodes
    Status(StatusArgs),
    /// Explain why a node is updated or not, and what would change that
    Why(WhyArgs),
    /// Roll back to an earlier revision
    ///
    /// Writes the template of that revision and prints its images. Without --to-revision, rolls back to the previous revision
    /// that the guard did not stop. Removes the annotation start-now, and the annotation resume and approvals of waves if they
    /// name another revision. Waves, budgets and windows apply as to every rollout.
    ///
    /// A second undo goes back one more revision. It is refused (exit code 9) while the first is in progress or if there is no
    /// older revision.
    Undo(UndoArgs),
    /// Pause a rollout: no pod is replaced until it is resumed
    Pause(PauseArgs),
    /// Resume a paused rollout, or continue a revision stopped by the guard
    ///
    /// To return to an earlier revision instead, use `ctl undo`.
    Resume(ResumeArgs),
    /// Predict a rollout: order of nodes, duration, what blocks it
    ///
    /// Reads the fleet and replays the controller's decisions in virtual time. Writes nothing to the cluster. Offline nodes stay
    /// offline. The exit code is that of the state at the end of the plan.
    Plan(PlanArgs),
    /// List all settings, or those of a DaemonSet
    ///
    /// Without a DaemonSet, no cluster is contacted. For a DaemonSet, each setting is checked separately, so all errors show at
    /// once (exit code 6). Nodes are not checked: `ctl status` shows if a selector matches no node.
    Settings(SettingsArgs),
    /// Approve a wave for the revision that is being rolled out
    ///
    /// Writes the annotation approved-waves: WAVE@HASH. An approval is valid for one revision; the next one needs a new approval.
    Approve(ApproveArgs),
    /// Start a rollout before its maintenance window opens
    ///
    /// Writes the annotation start-now with the hash of the current revision. Maintenance window and min-interval of the
    /// DaemonSet don't delay this revision; they apply again to the next one. Windows of Nodes and all other settings stay in
    /// effect.
    StartNow(StartNowArgs),
    /// Hand a DaemonSet back to Kubernetes' RollingUpdate
    ///
    /// An Advanced DaemonSet is first converted to a native one, as by `migrate`.
    ///
    /// Sets updateStrategy to RollingUpdate with the same max-unavailable and removes the annotations of yurt-ds in one write,
    /// then removes the conditions. Refused (exit code 9) while a node runs an old revision, because the native controller would
    /// replace its pod at once.
    Eject(EjectArgs),
    /// Convert a native DaemonSet to an Advanced one, or back
    ///
    /// Deletes the DaemonSet but not its pods, and creates one of the other kind with the same name, which adopts pods and
    /// revisions. Moves settings between annotations and fields, and lists settings without a counterpart. Tries all steps on the
    /// API server before it deletes anything; exit code 9, 7 or 6 tells why it refused. After an interruption, the same command
    /// finishes it.
    ///
    /// For eds/NAME, an ExtendedDaemonSet of Datadog, prints the manifest and writes nothing.
    Migrate(MigrateArgs),
    /// Check that yurt-ds is installed and working
    ///
    /// Checks API server, controller, its permissions, DaemonSets, agents and policies. For each fault, prints the fix and a page
    /// of the documentation. With -n, only DaemonSets of that namespace are checked. Writes nothing; to learn about permissions,
    /// asks the API server for reviews. The exit code is 1 if a check failed, and 0 if there are only warnings or checks that were
    /// not made.
    Check(CheckArgs),
    /// Verbs that ask the node itself.
    #[command(flatten)]
    Node(NodeVerb),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

impl Verb {
    /// Returns the DaemonSet to inspect or change, as typed.
    ///
    /// `None`: the verb has none, or looks it up itself (`eject`, `migrate`).
    pub fn daemonset(&self) -> Option<&str> {
        match self {
            Self::Status(args) => args.daemonset.as_deref(),
            Self::Settings(args) => args.daemonset.as_deref(),
            Self::Why(args) => Some(&args.daemonset),
            Self::Undo(args) => Some(&args.daemonset),
            Self::Pause(args) => Some(&args.daemonset),
            Self::Resume(args) => Some(&args.daemonset),
            Self::Plan(args) => Some(&args.daemonset),
            Self::Approve(args) => Some(&args.daemonset),
            Self::StartNow(args) => Some(&args.daemonset),
            Self::Eject(_)
            | Self::Migrate(_)
            | Self::Check(_)
            | Self::Node(_)
            | Self::Completions(_) => None,
        }
    }

    /// Returns the DaemonSet that the command line names, as typed. `None`: it names none.
    pub fn typed(&self) -> Option<&str> {
        match self {
            Self::Eject(args) => Some(&args.daemonset),
            Self::Migrate(args) => Some(&args.daemonset),
            verb => verb.daemonset(),
        }
    }
}

/// Flags of `yurt-ds ctl status`.
#[derive(Clone, Debug, Default, Args)]
pub struct StatusArgs {
    /// DaemonSet; ads/NAME is an Advanced one [default: all managed DaemonSets]
    #[arg(value_name = "[NAMESPACE/]DAEMONSET")]
    pub daemonset: Option<String>,
    /// Output format; jsonl prints one line per DaemonSet, or with --wait or --watch per change
    #[arg(short, long, env = "YURT_DS_OUTPUT", default_value = "table")]
    pub output: StatusOutput,
    /// Show each change until interrupted; -o json prints one document per change
    #[arg(
        short,
        long,
        env = "YURT_DS_WATCH",
        hide_env = true,
        conflicts_with = "wait"
    )]
    pub watch: bool,
    /// Wait until the rollout is complete or cannot continue without a person
    ///
    /// Ends when the rollout is complete, stalled or paused, when its settings are invalid, or when the controller stops
    /// responding. Pending approvals, of waves or by node owners, don't end the wait; --timeout limits it. Waits for the revision
    /// that is current when the command starts. Exits with code 13 if the revision changes, or if the DaemonSet is deleted or
    /// recreated.
    #[arg(long, env = "YURT_DS_WAIT", hide_env = true)]
    pub wait: bool,
    /// Longest wait, such as 10m [default: no limit]
    #[arg(long, env = "YURT_DS_TIMEOUT", hide_env = true, requires = "wait",
        conflicts_with = "watch", value_parser = crate::clock::duration, value_name = "DURATION")]
    pub timeout: Option<Duration>,
    /// Revision to wait for; exit code 13 if another one is current
    #[arg(long, env = "YURT_DS_REVISION", hide_env = true, requires_all = ["wait", "daemonset"],
        conflicts_with = "watch", value_parser = clap::builder::NonEmptyStringValueParser::new(), value_name = "HASH")]
    pub revision: Option<String>,
    /// Write a JUnit report to this file: one test case per DaemonSet
    ///
    /// The file is replaced. It is also written if the wait fails or times out. If it cannot be written, the command fails before
    /// it waits.
    #[arg(
        long,
        env = "YURT_DS_JUNIT",
        hide_env = true,
        requires = "wait",
        conflicts_with = "watch",
        value_name = "FILE"
    )]
    pub junit: Option<PathBuf>,
    /// Treat a rollout as incomplete while offline nodes run an old revision
    #[arg(long, env = "YURT_DS_STRICT", hide_env = true)]
    pub strict: bool,
}

/// Flags of `yurt-ds ctl why`.
#[derive(Clone, Debug, Args)]
pub struct WhyArgs {
    /// DaemonSet; ads/NAME is an Advanced one
    #[arg(value_name = "[NAMESPACE/]DAEMONSET")]
    pub daemonset: String,
    /// Node
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Output format
    #[arg(short, long, env = "YURT_DS_OUTPUT", default_value = "table")]
    pub output: Output,
}

/// Flags of `yurt-ds ctl undo`.
#[derive(Clone, Debug, Args)]
pub struct UndoArgs {
    /// DaemonSet; ads/NAME is an Advanced one
    #[arg(value_name = "[NAMESPACE/]DAEMONSET")]
    pub daemonset: String,
    /// Number of the revision, as in kubectl rollout history [default: the previous one that the guard did not stop]
    #[arg(
        long,
        env = "YURT_DS_TO_REVISION",
        hide_env = true,
        value_name = "NUMBER"
    )]
    pub to_revision: Option<i64>,
    /// Show what would be restored; write nothing
    #[arg(long, env = "YURT_DS_DRY_RUN", hide_env = true)]
    pub dry_run: bool,
    /// Output format
    #[arg(short, long, env = "YURT_DS_OUTPUT", default_value = "table")]
    pub output: Output,
}

/// Flags of `yurt-ds ctl pause`.
#[derive(Clone, Debug, Args)]
pub struct PauseArgs {
    /// DaemonSet; ads/NAME is an Advanced one
    #[arg(value_name = "[NAMESPACE/]DAEMONSET")]
    pub daemonset: String,
    /// Resume automatically after this time, such as 2h
    #[arg(long = "for", env = "YURT_DS_FOR", hide_env = true, conflicts_with = "until",
        value_parser = crate::clock::duration, value_name = "DURATION")]
    pub for_: Option<Duration>,
    /// Resume automatically at this time, such as 2030-01-31T18:00:00Z
    #[arg(long, env = "YURT_DS_UNTIL", hide_env = true, value_name = "RFC3339")]
    pub until: Option<Timestamp>,
    /// Replace an existing pause even if the new one ends sooner
    #[arg(long, env = "YURT_DS_FORCE", hide_env = true)]
    pub force: bool,
}

/// Flags of `yurt-ds ctl resume`.
#[derive(Clone, Debug, Args)]
pub struct ResumeArgs {
    /// DaemonSet; ads/NAME is an Advanced one
    #[arg(value_name = "[NAMESPACE/]DAEMONSET")]
    pub daemonset: String,
}

/// Flags of `yurt-ds ctl plan`.
#[derive(Clone, Debug, Args)]
pub struct PlanArgs {
    /// DaemonSet; ads/NAME is an Advanced one
    #[arg(value_name = "[NAMESPACE/]DAEMONSET")]
    pub daemonset: String,
    /// Setting to add or change; can be repeated
    #[arg(long, env = "YURT_DS_SET", hide_env = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Setting to remove; can be repeated
    #[arg(long, env = "YURT_DS_UNSET", hide_env = true, value_name = "KEY")]
    pub unset: Vec<String>,
    /// New image, or CONTAINER=IMAGE; can be repeated
    #[arg(long, env = "YURT_DS_IMAGE", hide_env = true, value_name = "IMAGE")]
    pub image: Vec<String>,
    /// Roll out a new template with the same images
    #[arg(long, env = "YURT_DS_RESTART", hide_env = true)]
    pub restart: bool,
    /// Number of nodes on which the new revision fails
    #[arg(
        long = "break",
        env = "YURT_DS_BREAK",
        hide_env = true,
        default_value_t = 0,
        value_name = "K"
    )]
    pub break_: usize,
    /// Time that a pod takes to terminate [default: as measured]
    ///
    /// Measured in the last rollout, or else the grace period of the pod.
    #[arg(long, env = "YURT_DS_ENDS_IN", hide_env = true, value_name = "DURATION",
        value_parser = crate::clock::duration)]
    pub ends_in: Option<Duration>,
    /// Longest time to predict
    #[arg(
        long,
        env = "YURT_DS_HORIZON",
        hide_env = true,
        default_value = "30d",
        value_parser = crate::clock::duration,
        value_name = "DURATION"
    )]
    pub horizon: Duration,
    /// Output format
    #[arg(short, long, env = "YURT_DS_OUTPUT", default_value = "table")]
    pub output: Output,
}

/// Flags of `yurt-ds ctl settings`.
#[derive(Clone, Debug, Args)]
pub struct SettingsArgs {
    /// DaemonSet; ads/NAME is an Advanced one [default: none]
    #[arg(value_name = "[NAMESPACE/]DAEMONSET")]
    pub daemonset: Option<String>,
    /// Also show settings that have their default values
    #[arg(long, env = "YURT_DS_ALL", hide_env = true)]
    pub all: bool,
    /// Output format
    #[arg(short, long, env = "YURT_DS_OUTPUT", default_value = "table")]
    pub output: Output,
}

/// Flags of `yurt-ds ctl approve`.
#[derive(Clone, Debug, Args)]
pub struct ApproveArgs {
    /// DaemonSet; ads/NAME is an Advanced one
    #[arg(value_name = "[NAMESPACE/]DAEMONSET")]
    pub daemonset: String,
    /// Name of the wave, as in the annotation waves
    #[arg(value_name = "WAVE")]
    pub wave: String,
}

/// Flags of `yurt-ds ctl start-now`.
#[derive(Clone, Debug, Args)]
pub struct StartNowArgs {
    /// DaemonSet; ads/NAME is an Advanced one
    #[arg(value_name = "[NAMESPACE/]DAEMONSET")]
    pub daemonset: String,
}

/// Flags of `yurt-ds ctl eject`.
#[derive(Clone, Debug, Args)]
pub struct EjectArgs {
    /// DaemonSet; ads/NAME is an Advanced one
    #[arg(value_name = "[NAMESPACE/]DAEMONSET")]
    pub daemonset: String,
    /// Eject even if Kubernetes then starts to replace outdated pods
    #[arg(long, env = "YURT_DS_NOW", hide_env = true)]
    pub now: bool,
    /// Show what would be done; write nothing
    #[arg(long, env = "YURT_DS_DRY_RUN", hide_env = true)]
    pub dry_run: bool,
}

/// Flags of `yurt-ds ctl migrate`.
#[derive(Clone, Debug, Args)]
pub struct MigrateArgs {
    /// DaemonSet; eds/NAME is an ExtendedDaemonSet of Datadog
    #[arg(value_name = "[NAMESPACE/]DAEMONSET")]
    pub daemonset: String,
    /// Kind to convert to
    #[arg(long, env = "YURT_DS_TO", hide_env = true)]
    pub to: KindName,
    /// Show what would be done and the manifest; write nothing
    #[arg(long, env = "YURT_DS_DRY_RUN", hide_env = true)]
    pub dry_run: bool,
}

/// Flags of `yurt-ds ctl check`.
#[derive(Clone, Debug, Default, Args)]
pub struct CheckArgs {
    /// Check before the installation: rights of the caller, and names in use
    #[arg(long, env = "YURT_DS_PRE", hide_env = true)]
    pub pre: bool,
    /// Repeat the checks until none fails
    ///
    /// Warnings and checks that were not made don't count as failed.
    #[arg(long, env = "YURT_DS_WAIT", hide_env = true)]
    pub wait: bool,
    /// Longest wait, such as 10m [default: no limit]
    #[arg(long, env = "YURT_DS_TIMEOUT", hide_env = true, requires = "wait",
        value_parser = crate::clock::duration, value_name = "DURATION")]
    pub timeout: Option<Duration>,
    /// Output format
    #[arg(short, long, env = "YURT_DS_OUTPUT", default_value = "table")]
    pub output: CheckOutput,
}

/// Output format of `yurt-ds ctl check`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CheckOutput {
    /// For people: a line per group, and the faults
    #[default]
    Table,
    /// For people: only the faults
    Short,
    /// For people: every check
    Wide,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

impl CheckOutput {
    /// Returns the format of a document; `None` for text.
    pub fn document(self) -> Option<Output> {
        match self {
            Self::Json => Some(Output::Json),
            Self::Yaml => Some(Output::Yaml),
            Self::Table | Self::Short | Self::Wide => None,
        }
    }
}

/// Flags of `yurt-ds ctl completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsArgs {
    /// Shell
    pub shell: Shell,
}
