//! Command line of `yurt-ds sim`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::core::{IntOrPercent, Mode};

/// Largest fleet that fits into the memory of a laptop.
const MOST_NODES: i64 = 20_000;

const EXAMPLES: &str = "Examples:
  yurt-ds sim                                      two stories of three nodes, then a fleet of 200
  yurt-ds sim --story ota                          only the story in which a node owner decides
  yurt-ds sim --seed 7                             repeatable: equal seeds give equal reports
  yurt-ds sim --nodes 1000 --offline 20%           a fleet of your choice
  yurt-ds sim --nodes 50 --bad-revision crash      a new image that fails: the guard stops the rollout
  yurt-ds sim --nodes 50 --offline 20% --native    the same with the native RollingUpdate, for comparison
  yurt-ds sim serve                                a cluster for kubectl

How to read the picture:
  ■ runs the new image     ▲ is being updated       □ waits for its update
  · is offline             ◦ returned a moment ago  ✗ failed because of the new image

Exit codes:
  0  all promises held    1  a promise was broken, or the run failed    2  wrong usage
  130  interrupted by Ctrl-C";

/// Flags and verbs of `yurt-ds sim`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct SimArgs {
    /// Verb; without one, rollouts are played.
    #[command(subcommand)]
    pub verb: Option<SimVerb>,
    /// Flags of the rollouts to play.
    #[command(flatten)]
    pub play: PlayArgs,
}

/// A verb of `yurt-ds sim`.
#[derive(Clone, Debug, Subcommand)]
pub enum SimVerb {
    /// Keep an embedded cluster running, for kubectl and other Kubernetes clients
    Serve(ServeArgs),
    /// Run fake kubelets of many nodes against a real API server
    ///
    /// Commands on standard input control them:
    /// `offline NODE`, `online NODE`, `remove NODE`, `flap NODE UP DOWN`, and
    /// `image PATTERN [pull=5s] [start=1s] [ready-after=3s] [crash-after=1s] [kills-node-after=2s] [error] [never-ready]`.
    Kubelets(KubeletsArgs),
}

/// Flags that select what is played and how it is shown.
#[derive(Clone, Debug, Args)]
pub struct PlayArgs {
    /// Seed of all names and random choices; equal seeds give equal reports [default: random]
    #[arg(long, env = "YURT_DS_SIM_SEED", value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Play only this story
    #[arg(long, env = "YURT_DS_SIM_STORY", value_name = "STORY")]
    pub story: Option<Story>,
    /// Play one fleet of this many nodes instead of the stories [default: 200 if any other fleet flag is set]
    #[arg(long, env = "YURT_DS_SIM_NODES", value_name = "NUMBER", help_heading = "Fleet",
        value_parser = clap::value_parser!(u32).range(1..=MOST_NODES))]
    pub nodes: Option<u32>,
    /// Nodes that are offline when the image changes, as a number or a percentage [default: 20%]
    #[arg(long, env = "YURT_DS_SIM_OFFLINE", value_name = "SHARE", help_heading = "Fleet", value_parser = part)]
    pub offline: Option<IntOrPercent>,
    /// Nodes that return during the rollout, as a number or a percentage of all nodes [default: half of the offline nodes]
    #[arg(long, env = "YURT_DS_SIM_RETURNING", value_name = "SHARE", help_heading = "Fleet", value_parser = part)]
    pub returning: Option<IntOrPercent>,
    /// Number of nodes that repeatedly go offline and return
    #[arg(
        long,
        env = "YURT_DS_SIM_FLAP",
        value_name = "NUMBER",
        help_heading = "Fleet"
    )]
    pub flap: Option<u32>,
    /// Annotation max-unavailable of the DaemonSet: a number or a percentage [default: 10%]
    #[arg(long, env = "YURT_DS_SIM_MAX_UNAVAILABLE", value_name = "SHARE", help_heading = "Fleet", value_parser = budget)]
    pub max_unavailable: Option<IntOrPercent>,
    /// Annotation update-strategy of the DaemonSet: AdvancedRollingUpdate or OTA [default: AdvancedRollingUpdate]
    #[arg(long, env = "YURT_DS_SIM_STRATEGY", value_name = "STRATEGY", help_heading = "Fleet", value_parser = mode)]
    pub strategy: Option<Mode>,
    /// Use the native RollingUpdate of Kubernetes instead, for comparison
    #[arg(
        long,
        env = "YURT_DS_SIM_NATIVE",
        conflicts_with = "strategy",
        help_heading = "Fleet"
    )]
    pub native: bool,
    /// Time that a pod must be Ready to count as available (minReadySeconds, in whole seconds) [default: 0s]
    #[arg(long, env = "YURT_DS_SIM_MIN_READY", value_name = "DURATION", help_heading = "Fleet", value_parser = crate::clock::duration)]
    pub min_ready: Option<Duration>,
    /// Time that a node takes to pull the new image [default: 15s]
    #[arg(long, env = "YURT_DS_SIM_PULL", value_name = "DURATION", help_heading = "Fleet", value_parser = crate::clock::duration)]
    pub pull: Option<Duration>,
    /// Make the new image fail in this way
    #[arg(
        long,
        env = "YURT_DS_SIM_BAD_REVISION",
        value_name = "HOW",
        help_heading = "Fleet"
    )]
    pub bad_revision: Option<BadRevision>,
    /// Short for --bad-revision crash
    #[arg(
        long,
        env = "YURT_DS_SIM_CRASH_IMAGE",
        conflicts_with = "bad_revision",
        help_heading = "Fleet"
    )]
    pub crash_image: bool,
    /// End after this many minutes of virtual time [default: 30]
    #[arg(long, env = "YURT_DS_SIM_MINUTES", value_name = "NUMBER", help_heading = "Fleet",
        value_parser = clap::value_parser!(u32).range(1..=1440))]
    pub minutes: Option<u32>,
    /// Don't pause between pictures, for tests and scripts
    #[arg(
        long,
        env = "YURT_DS_SIM_FAST",
        conflicts_with = "real_time",
        help_heading = "Show"
    )]
    pub fast: bool,
    /// Play in real time: one second takes one second
    #[arg(long, env = "YURT_DS_SIM_REAL_TIME", help_heading = "Show")]
    pub real_time: bool,
    /// Format of the report; json also omits the pictures
    #[arg(
        short,
        long,
        env = "YURT_DS_SIM_OUTPUT",
        default_value = "text",
        value_name = "FORMAT",
        help_heading = "Show"
    )]
    pub output: ReportFormat,
}

/// A story to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Story {
    /// Two of three nodes go offline during an image change
    Offline,
    /// On one of three nodes, the owner finds a new version, pulls its images and confirms the upgrade
    Ota,
}

/// Way in which a new image fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BadRevision {
    /// Crashes repeatedly
    Crash,
    /// Runs but never becomes Ready
    NeverReady,
    /// Cannot be pulled
    ImageError,
    /// Takes the whole node down, which shows after 40s; compare with --min-ready 60s
    KillsNodes,
}

/// Format of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For people
    Text,
    /// For programs
    Json,
}

const SERVE_EXAMPLES: &str = "Annotate a node to take it offline, and remove the annotation to let it return:
  kubectl annotate node edge-2 sim.yurt-ds.io/offline=true
  kubectl annotate node edge-2 sim.yurt-ds.io/offline-

Roll out an image that fails. Its tag says how: crash, never-ready, image-error, kills-nodes:
  kubectl set image ds/nginx-daemonset nginx=nginx:crash

Act as a node owner, after `kubectl annotate ds nginx-daemonset apps.openyurt.io/update-strategy=OTA --overwrite`:
  yurt-ds sim serve --ota-server edge-1
  yurt-ds ctl pods                                             # or: curl 127.0.0.1:10267/pods

Containers don't run: images are only names, and kubectl logs and exec don't work.";

/// Flags of `yurt-ds sim serve`.
#[derive(Clone, Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    /// Address of the API, on this machine only, because it has no encryption and no authentication; port 0 picks a free port
    #[arg(long, env = "YURT_DS_SIM_LISTEN", default_value = "127.0.0.1:0", value_name = "ADDR", value_parser = loopback)]
    pub listen: SocketAddr,
    /// Number of nodes
    #[arg(long, env = "YURT_DS_SIM_NODES", default_value_t = 3, value_name = "NUMBER",
        value_parser = clap::value_parser!(u32).range(0..=20_000))]
    pub nodes: u32,
    /// Write the kubeconfig to this file instead of a temporary one
    #[arg(long, env = "YURT_DS_SIM_KUBECONFIG_OUT", value_name = "FILE")]
    pub kubeconfig_out: Option<PathBuf>,
    /// Start without the DaemonSet default/nginx-daemonset
    #[arg(long, env = "YURT_DS_SIM_EMPTY")]
    pub empty: bool,
    /// Start without the yurt-ds controller, to run your own: `yurt-ds controller --kubeconfig FILE`
    #[arg(long, env = "YURT_DS_SIM_NO_CONTROLLER")]
    pub no_controller: bool,
    /// Time that a node takes to pull a missing image
    #[arg(long, env = "YURT_DS_SIM_PULL", default_value = "3s", value_name = "DURATION",
        value_parser = crate::clock::duration)]
    pub pull: Duration,
    /// Also run the ota-server of this node, for `yurt-ds ctl pods` and curl
    #[arg(long, env = "YURT_DS_SIM_OTA_SERVER", value_name = "NODE")]
    pub ota_server: Option<String>,
    /// Address of that ota-server; port 0 picks a free port
    #[arg(long, env = "YURT_DS_SIM_OTA_LISTEN", default_value = "127.0.0.1:10267", value_name = "ADDR",
        value_parser = loopback)]
    pub ota_listen: SocketAddr,
    /// Seed of all names
    #[arg(
        long,
        env = "YURT_DS_SIM_SEED",
        default_value_t = 1,
        value_name = "NUMBER"
    )]
    pub seed: u64,
}

/// Run fake kubelets of many nodes against a real API server
///
/// Commands on standard input control them:
/// `offline NODE`, `online NODE`, `remove NODE`, `flap NODE UP DOWN`, and
/// `image PATTERN [pull=5s] [start=1s] [ready-after=3s] [crash-after=1s] [kills-node-after=2s] [error] [never-ready]`.
#[derive(Clone, Debug, Args)]
pub struct KubeletsArgs {
    /// Kubeconfig of the cluster [default: as for kubectl]
    #[arg(long, value_name = "FILE", env = "YURT_DS_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Number of nodes
    #[arg(long, default_value_t = 10, env = "YURT_DS_SIM_NODES")]
    pub nodes: usize,
    /// Prefix of the node names
    #[arg(long, default_value = "fake-", env = "YURT_DS_SIM_PREFIX")]
    pub prefix: String,
    /// Labels of the nodes, as KEY=VALUE, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = label, env = "YURT_DS_SIM_LABELS")]
    pub labels: Vec<(String, String)>,
    /// Time that a container takes to start once its image is pulled
    #[arg(long, default_value = "1s", value_parser = crate::clock::duration, env = "YURT_DS_SIM_START")]
    pub start: Duration,
    /// Time that a node takes to pull a missing image
    #[arg(long, default_value = "0s", value_parser = crate::clock::duration, env = "YURT_DS_SIM_PULL")]
    pub pull: Duration,
    /// Time that a container takes to end
    #[arg(long, default_value = "1s", value_parser = crate::clock::duration, env = "YURT_DS_SIM_TERMINATE")]
    pub terminate: Duration,
    /// Maximum extra time of every step
    #[arg(long, default_value = "0s", value_parser = crate::clock::duration, env = "YURT_DS_SIM_JITTER")]
    pub jitter: Duration,
    /// Seed of the jitter
    #[arg(long, default_value_t = 0, env = "YURT_DS_SIM_SEED")]
    pub seed: u64,
    /// Interval of renewing every node's Lease; needed if the node lifecycle controller checks it (after 40s by default)
    #[arg(long, value_parser = crate::clock::duration, env = "YURT_DS_SIM_LEASE")]
    pub lease: Option<Duration>,
    /// Mark a node and its pods as offline at once, instead of after the grace period
    #[arg(long, env = "YURT_DS_SIM_MARK")]
    pub mark: bool,
    /// Delete the nodes at the end
    #[arg(long, env = "YURT_DS_SIM_CLEANUP")]
    pub cleanup: bool,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not a label: write KEY=VALUE")),
    }
}

/// Parses a number or percentage of nodes. A percentage must not exceed 100%.
fn part(text: &str) -> Result<IntOrPercent, String> {
    match share(text)? {
        IntOrPercent::Percent(percent) if percent > 100 => {
            Err("more than all nodes: use at most 100%".to_owned())
        }
        share => Ok(share),
    }
}

fn budget(text: &str) -> Result<IntOrPercent, String> {
    let share = part(text)?;
    if share.is_zero() {
        Err("a rollout needs a budget: use at least 1 or 1%".to_owned())
    } else {
        Ok(share)
    }
}

fn share(text: &str) -> Result<IntOrPercent, String> {
    text.parse()
        .map_err(|_| "use a number of nodes such as 3 or a percentage such as 10%".to_owned())
}

fn mode(text: &str) -> Result<Mode, String> {
    text.parse()
        .map_err(|_| "use AdvancedRollingUpdate or OTA, or the flag --native".to_owned())
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "use an address and a port, such as 127.0.0.1:8001".to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(
            "the API has no authentication, so other machines must not reach it: use 127.0.0.1 or [::1]"
                .to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_accepted() {
        assert!(loopback("127.0.0.1:0").is_ok() && loopback("[::1]:8001").is_ok());
        assert!(loopback("0.0.0.0:8001").unwrap_err().contains("127.0.0.1"));
        assert!(loopback("localhost").unwrap_err().contains("such as"));
    }
}
