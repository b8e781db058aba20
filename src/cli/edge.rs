//! What can be typed after `yurt-ds ctl` on a node: verbs that ask the node itself, and need no kubeconfig.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::Output;

/// A verb that asks the server of a node.
#[derive(Clone, Debug, Subcommand)]
pub enum EdgeVerb {
    /// On a node: show its pods, which of them have something new, and what is pulled
    Pods(PodsArgs),
    /// On a node: replace a pod by its new version; without a pod, show what would change
    Upgrade(UpgradeArgs),
    /// On a node: pull the images of a pod's new version ahead of its upgrade
    Imagepull(ImagepullArgs),
}

impl EdgeVerb {
    /// The server that is asked, if one was named.
    pub fn server(&self) -> Option<&str> {
        let edge = match self {
            Self::Pods(args) => &args.edge,
            Self::Upgrade(args) => &args.edge,
            Self::Imagepull(args) => &args.edge,
        };
        edge.server.as_deref()
    }
}

/// Address of the server of a node by default (OpenYurt's port).
pub const SERVER: &str = "http://127.0.0.1:10267";
/// Path of its Unix socket in the manifests.
pub const SOCKET: &str = "/run/yurt-ds/ota.sock";

/// Flags that say which node is meant.
#[derive(Clone, Debug, Args)]
pub struct EdgeArgs {
    /// The node's own server (yurt-ds ota-server, or YurtHub), as http://HOST:PORT or unix://PATH [default:
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
    /// Which node.
    #[command(flatten)]
    pub edge: EdgeArgs,
    /// Pods of every namespace, whatever -n says [default without -n]
    #[arg(short = 'A', long, env = "YURT_DS_ALL_NAMESPACES", hide_env = true)]
    pub all_namespaces: bool,
    /// How to show it
    #[arg(short, long, env = "YURT_DS_OUTPUT", default_value = "table")]
    pub output: Output,
}

/// Flags of `yurt-ds ctl upgrade`.
#[derive(Clone, Debug, Args)]
pub struct UpgradeArgs {
    /// Which node.
    #[command(flatten)]
    pub edge: EdgeArgs,
    /// The pod, or the DaemonSet of which there is one pod on this node
    #[arg(value_name = "[NAMESPACE/]POD")]
    pub pod: Option<String>,
    /// Also when its images could not be pulled ahead, or are being pulled; and when a taint of the node (NoSchedule) repels every
    /// new pod, which leaves the node without one
    #[arg(long, env = "YURT_DS_FORCE", hide_env = true, requires = "pod")]
    pub force: bool,
    /// How long to wait, and how to show it.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Flags of `yurt-ds ctl imagepull`.
#[derive(Clone, Debug, Args)]
pub struct ImagepullArgs {
    /// Which node.
    #[command(flatten)]
    pub edge: EdgeArgs,
    /// The pod, or the DaemonSet of which there is one pod on this node
    #[arg(value_name = "[NAMESPACE/]POD")]
    pub pod: Option<String>,
    /// How long to wait, and how to show it.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Flags of both.
#[derive(Clone, Debug, Args)]
pub struct WaitArgs {
    /// Wait for the result: the new pod is Ready, or the images are pulled
    #[arg(long, env = "YURT_DS_WAIT", hide_env = true, requires = "pod")]
    pub wait: bool,
    /// How long to wait, as 10m or 90s [default: for ever]
    #[arg(long, env = "YURT_DS_TIMEOUT", hide_env = true, requires = "wait",
        value_parser = crate::clock::duration, value_name = "DURATION")]
    pub timeout: Option<Duration>,
    /// How to show it
    #[arg(short, long, env = "YURT_DS_OUTPUT", default_value = "table")]
    pub output: Output,
}
