//! Command line of the verbs of `yurt-ds ctl` that run on a node. They ask the server of the node and need no kubeconfig.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::Output;

/// A verb that asks the server of a node.
#[derive(Clone, Debug, Subcommand)]
pub enum NodeVerb {
    /// On a node: list its pods, with available updates
    ///
    /// Asks the server on the node where it runs. Needs no kubeconfig, and works while the cloud is unreachable.
    Pods(PodsArgs),
    /// On a node: replace a pod with its new version
    ///
    /// Without a pod, shows what would change. Asks the server on the node where it runs; needs no kubeconfig.
    Upgrade(UpgradeArgs),
    /// On a node: pull the images of a new version ahead of the upgrade
    ///
    /// Without a pod, shows what can be pulled. Once a pull is requested, an upgrade is refused until the images are pulled,
    /// except with --force.
    Imagepull(ImagepullArgs),
}

impl NodeVerb {
    /// Returns the server to ask, if a flag names it.
    pub fn server(&self) -> Option<&str> {
        let server = match self {
            Self::Pods(args) => &args.server,
            Self::Upgrade(args) => &args.server,
            Self::Imagepull(args) => &args.server,
        };
        server.server.as_deref()
    }
}

/// Default address of the server of a node (OpenYurt's port).
pub const SERVER: &str = "http://127.0.0.1:10267";
/// Path of the server's Unix socket in the manifests.
pub const SOCKET: &str = "/run/yurt-ds/ota.sock";

/// Flags that select the server of a node.
#[derive(Clone, Debug, Args)]
pub struct NodeServerArgs {
    /// Server of the node (yurt-ds ota-server or YurtHub) [default:
    /// unix:///run/yurt-ds/ota.sock if it answers, else http://127.0.0.1:10267]
    #[arg(
        long,
        env = "YURT_DS_SERVER",
        value_name = "URL",
        help_heading = "Node"
    )]
    pub server: Option<String>,
}

/// Flags of `yurt-ds ctl pods`.
#[derive(Clone, Debug, Args)]
pub struct PodsArgs {
    /// Server to ask.
    #[command(flatten)]
    pub server: NodeServerArgs,
    /// Pods of all namespaces [default without -n]
    #[arg(short = 'A', long, env = "YURT_DS_ALL_NAMESPACES", hide_env = true)]
    pub all_namespaces: bool,
    /// Output format
    #[arg(short, long, env = "YURT_DS_OUTPUT", default_value = "table")]
    pub output: Output,
}

/// Flags of `yurt-ds ctl upgrade`.
#[derive(Clone, Debug, Args)]
pub struct UpgradeArgs {
    /// Server to ask.
    #[command(flatten)]
    pub server: NodeServerArgs,
    /// Pod, or DaemonSet with one pod on this node
    #[arg(value_name = "[NAMESPACE/]POD")]
    pub pod: Option<String>,
    /// Upgrade despite missing images or a taint that repels new pods
    ///
    /// The images may still be pulling, or could not be pulled. If a taint (NoSchedule) of the node repels the new pod, the node
    /// is left without a pod.
    #[arg(long, env = "YURT_DS_FORCE", hide_env = true, requires = "pod")]
    pub force: bool,
    /// Flags for waiting and output.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Flags of `yurt-ds ctl imagepull`.
#[derive(Clone, Debug, Args)]
pub struct ImagepullArgs {
    /// Server to ask.
    #[command(flatten)]
    pub server: NodeServerArgs,
    /// Pod, or DaemonSet with one pod on this node
    #[arg(value_name = "[NAMESPACE/]POD")]
    pub pod: Option<String>,
    /// Flags for waiting and output.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Flags that `upgrade` and `imagepull` share.
#[derive(Clone, Debug, Args)]
pub struct WaitArgs {
    /// Wait for the result: the new pod is Ready, or the images are pulled
    #[arg(long, env = "YURT_DS_WAIT", hide_env = true, requires = "pod")]
    pub wait: bool,
    /// Longest wait, such as 10m [default: no limit]
    #[arg(long, env = "YURT_DS_TIMEOUT", hide_env = true, requires = "wait",
        value_parser = crate::clock::duration, value_name = "DURATION")]
    pub timeout: Option<Duration>,
    /// Output format
    #[arg(short, long, env = "YURT_DS_OUTPUT", default_value = "table")]
    pub output: Output,
}
