//! What can be typed after `yurt-ds ctl`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::Shell;
use k8s_openapi::jiff::Timestamp;

use super::edge::EdgeVerb;
use super::{KindName, Output};

/// Flags and verbs of `yurt-ds ctl`.
#[derive(Clone, Debug, Args)]
pub struct CtlArgs {
    /// Which cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// What to do there.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Heading of these flags in help.
const CLUSTER: &str = "Cluster";

/// Flags that say which cluster is meant.
#[derive(Clone, Debug, Default, Args)]
pub struct AccessArgs {
    /// Kubeconfig [default: $KUBECONFIG, ~/.kube/config, in-cluster]
    #[arg(long, global = true, env = "YURT_DS_KUBECONFIG", value_name = "FILE", help_heading = CLUSTER)]
    pub kubeconfig: Option<PathBuf>,
    /// Context [default: the current one of the kubeconfig]
    #[arg(long, global = true, env = "YURT_DS_CONTEXT", value_name = "NAME", help_heading = CLUSTER)]
    pub context: Option<String>,
    /// Namespace [default: that of the context]
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
    /// Show the state of all rollouts, or of one with its nodes
    Status(StatusArgs),
    /// Explain why a node is updated or not, and what would change that
    Why(WhyArgs),
    /// Roll back to an earlier revision
    ///
    /// Writes the template, and removes the annotation start-now, and the annotation resume and approvals of waves where they name
    /// another revision. Waves, budgets and windows apply to the rollback as to every rollout. Says which images it restores. Without --to-revision it rolls back to
    /// the previous revision that the guard did not stop. A second undo goes back one more revision, and is refused (exit code 9)
    /// while the first is in progress or when no older revision is kept.
    Undo(UndoArgs),
    /// Pause a rollout: no pod is replaced until it is resumed
    Pause(PauseArgs),
    /// Resume a paused rollout, or continue a revision stopped by the guard
    ///
    /// To go back to an earlier revision instead, use `ctl undo`.
    Resume(ResumeArgs),
    /// Predict a rollout: order of nodes, duration, what blocks it
    ///
    /// Reads the fleet, and replays the decisions of the controller in virtual time. Nothing is written to the cluster. Offline
    /// nodes stay offline. The exit code is that of the state in which the plan ends.
    Plan(PlanArgs),
    /// List all settings, or those of a DaemonSet
    ///
    /// Without a DaemonSet no cluster is asked. Of one, each setting is judged by itself, so that everything that has to be
    /// corrected shows at once (exit code 6). Nodes are not looked at: whether a selector matches any says `ctl status`.
    Settings(SettingsArgs),
    /// Approve a wave for the revision that is being rolled out
    ///
    /// Writes the annotation approved-waves: WAVE@HASH. An approval counts for one revision; the next one has to be approved
    /// anew.
    Approve(ApproveArgs),
    /// Start a rollout before its maintenance window opens
    ///
    /// Writes the annotation start-now with the hash of the current revision. Maintenance window and min-interval of the DaemonSet
    /// don't hold that revision back; they apply again to the next one. Windows of Nodes and all other settings stay in effect.
    StartNow(StartNowArgs),
    /// Hand a DaemonSet back to Kubernetes' RollingUpdate
    ///
    /// An Advanced DaemonSet is made a native one first, as by `migrate`.
    ///
    /// Sets updateStrategy to RollingUpdate with the same max-unavailable and removes the annotations of yurt-ds in one
    /// write, then the conditions. While a node runs an old revision this is refused (exit code 9), because the native
    /// controller would replace its pod at once.
    Eject(EjectArgs),
    /// Convert a native DaemonSet to an Advanced one, or back
    ///
    /// Deletes the DaemonSet without its pods, and makes one of the other kind with the same name, which adopts pods and revisions.
    /// Settings move between annotations and fields; what has no counterpart is named. All of it is tried on the API server
    /// before anything is deleted (exit code 9, 7 or 6 says why not). Interrupted, it is finished by the same command.
    ///
    /// Of eds/NAME, an ExtendedDaemonSet of Datadog, it prints the manifest, and writes nothing.
    Migrate(MigrateArgs),
    /// What asks the node itself.
    #[command(flatten)]
    Edge(EdgeVerb),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

impl Verb {
    /// The DaemonSet that is asked about or changed, as it was typed; `None`: none, or one that migrate looks for itself.
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
            Self::Eject(_) | Self::Migrate(_) | Self::Edge(_) | Self::Completions(_) => None,
        }
    }
}

/// Flags of `yurt-ds ctl status`.
#[derive(Clone, Debug, Default, Args)]
pub struct StatusArgs {
    /// DaemonSet; ads/NAME is an Advanced one [default: all that are managed]
    #[arg(value_name = "[NAMESPACE/]DAEMONSET")]
    pub daemonset: Option<String>,
    /// Output format
    #[arg(short, long, env = "YURT_DS_OUTPUT", default_value = "table")]
    pub output: Output,
    /// Show each change until interrupted; with -o json one document each
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
    /// The rollout is complete, stalled or paused, its settings are invalid, or the controller stops responding. Pending
    /// approvals of waves and owners of nodes do not end the wait; --timeout limits it. Waits for the revision that is current
    /// when the command starts. Exits with code 13 if the revision changes, or if the DaemonSet is deleted or recreated.
    #[arg(long, env = "YURT_DS_WAIT", hide_env = true)]
    pub wait: bool,
    /// Longest wait, such as 10m [default: no limit]
    #[arg(long, env = "YURT_DS_TIMEOUT", hide_env = true, requires = "wait",
        value_parser = crate::clock::duration, value_name = "DURATION")]
    pub timeout: Option<Duration>,
    /// Revision to wait for; exit code 13 if another one is current
    #[arg(long, env = "YURT_DS_REVISION", hide_env = true, requires_all = ["wait", "daemonset"], value_name = "HASH")]
    pub revision: Option<String>,
    /// Incomplete while offline nodes run an old revision
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
    /// New template with the same images
    #[arg(long, env = "YURT_DS_RESTART", hide_env = true)]
    pub restart: bool,
    /// Nodes that fail with the new revision
    #[arg(
        long = "break",
        env = "YURT_DS_BREAK",
        hide_env = true,
        default_value_t = 0,
        value_name = "K"
    )]
    pub break_: usize,
    /// Time that a pod takes to end [default: as measured]
    ///
    /// By default, the time in the last rollout, else the grace period of the pod.
    #[arg(long, env = "YURT_DS_ENDS_IN", hide_env = true, value_name = "DURATION",
        value_parser = crate::clock::duration)]
    pub ends_in: Option<Duration>,
    /// Longest time to predict
    #[arg(
        long,
        env = "YURT_DS_HORIZON",
        hide_env = true,
        default_value = "30d",
        value_name = "DURATION"
    )]
    pub horizon: humantime::Duration,
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
    /// Also show settings that have their defaults
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
    /// Name of the wave in the annotation waves
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
    /// Kind that it becomes
    #[arg(long, env = "YURT_DS_TO", hide_env = true)]
    pub to: KindName,
    /// Show what would be done and the manifest; write nothing
    #[arg(long, env = "YURT_DS_DRY_RUN", hide_env = true)]
    pub dry_run: bool,
}

/// Flags of `yurt-ds ctl completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsArgs {
    /// Shell
    pub shell: Shell,
}
