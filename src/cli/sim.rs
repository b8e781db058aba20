//! What can be typed after `yurt-ds sim`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::core::{IntOrPercent, Mode};

/// A fleet beyond this takes more memory than a laptop likes to give.
const MOST_NODES: i64 = 20_000;

const EXAMPLES: &str = "\
Examples:
  yurt-ds sim                                      two stories of three nodes, then a fleet of 200
  yurt-ds sim --story ota                          the one of them in which the owner of a node decides
  yurt-ds sim --seed 7                             the same once more: equal seeds give equal reports
  yurt-ds sim --nodes 1000 --offline 20%           an own fleet
  yurt-ds sim --nodes 50 --bad-revision crash      a new image that fails: the rollout stops by itself
  yurt-ds sim --nodes 50 --offline 20% --native    the same with the native RollingUpdate, for comparison
  yurt-ds sim serve                                a cluster to try kubectl on

How to read the picture:
  ■ runs the new image     ▲ is being updated       □ waits for its turn
  · is offline             ◦ returned a moment ago  ✗ failed because of the new image

Exit codes:
  0  every promise held    1  a promise was broken, or it could not be played    2  wrong usage
  130  interrupted by Ctrl-C";

/// Flags and verbs of `yurt-ds sim`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct SimArgs {
    /// Something else than to play.
    #[command(subcommand)]
    pub verb: Option<SimVerb>,
    /// What to play.
    #[command(flatten)]
    pub play: PlayArgs,
}

/// A verb of `yurt-ds sim`.
#[derive(Clone, Debug, Subcommand)]
pub enum SimVerb {
    /// Keep an embedded cluster running, for kubectl and everything else that speaks to Kubernetes
    Serve(ServeArgs),
    /// Play the kubelets of many nodes against a real API server
    ///
    /// Lines on standard input steer them: `offline NODE`, `online NODE`, `remove NODE`, `flap NODE UP DOWN`, and
    /// `image PATTERN [pull=5s] [start=1s] [ready-after=3s] [crash-after=1s] [kills-node-after=2s] [error] [never-ready]`.
    Kubelets(KubeletsArgs),
}

/// Flags about what is played, and how.
#[derive(Clone, Debug, Args)]
pub struct PlayArgs {
    /// Decides every name and every chance; equal seeds give equal reports [default: another one each time]
    #[arg(long, env = "YURT_DS_SIM_SEED", value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// One of the stories alone
    #[arg(long, env = "YURT_DS_SIM_STORY", value_name = "STORY")]
    pub story: Option<Story>,
    /// An own fleet of so many nodes, instead of the stories [default: 200 with any other flag about the fleet]
    #[arg(long, env = "YURT_DS_SIM_NODES", value_name = "NUMBER", help_heading = "Fleet",
        value_parser = clap::value_parser!(u32).range(1..=MOST_NODES))]
    pub nodes: Option<u32>,
    /// How many of them are offline when the image changes: a number or a percentage [default: 20%]
    #[arg(long, env = "YURT_DS_SIM_OFFLINE", value_name = "SHARE", help_heading = "Fleet", value_parser = part)]
    pub offline: Option<IntOrPercent>,
    /// How many of all nodes return during the rollout [default: half of those that are offline]
    #[arg(long, env = "YURT_DS_SIM_RETURNING", value_name = "SHARE", help_heading = "Fleet", value_parser = part)]
    pub returning: Option<IntOrPercent>,
    /// How many nodes come and go all the time
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
    /// The native RollingUpdate of Kubernetes instead, for comparison
    #[arg(
        long,
        env = "YURT_DS_SIM_NATIVE",
        conflicts_with = "strategy",
        help_heading = "Fleet"
    )]
    pub native: bool,
    /// How long a pod has to be Ready to count as available (minReadySeconds; whole seconds) [default: 0s]
    #[arg(long, env = "YURT_DS_SIM_MIN_READY", value_name = "DURATION", help_heading = "Fleet", value_parser = crate::clock::duration)]
    pub min_ready: Option<Duration>,
    /// How long a node pulls the new image [default: 15s]
    #[arg(long, env = "YURT_DS_SIM_PULL", value_name = "DURATION", help_heading = "Fleet", value_parser = crate::clock::duration)]
    pub pull: Option<Duration>,
    /// The new image is bad
    #[arg(
        long,
        env = "YURT_DS_SIM_BAD_REVISION",
        value_name = "HOW",
        help_heading = "Fleet"
    )]
    pub bad_revision: Option<BadRevision>,
    /// The same as --bad-revision crash
    #[arg(
        long,
        env = "YURT_DS_SIM_CRASH_IMAGE",
        conflicts_with = "bad_revision",
        help_heading = "Fleet"
    )]
    pub crash_image: bool,
    /// End after so many minutes of virtual time [default: 30]
    #[arg(long, env = "YURT_DS_SIM_MINUTES", value_name = "NUMBER", help_heading = "Fleet",
        value_parser = clap::value_parser!(u32).range(1..=1440))]
    pub minutes: Option<u32>,
    /// Do not wait between pictures: for tests and scripts
    #[arg(
        long,
        env = "YURT_DS_SIM_FAST",
        conflicts_with = "real_time",
        help_heading = "Show"
    )]
    pub fast: bool,
    /// One second takes one second
    #[arg(long, env = "YURT_DS_SIM_REAL_TIME", help_heading = "Show")]
    pub real_time: bool,
    /// How the report looks; json also leaves the pictures out
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

/// A story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Story {
    /// Three nodes, of which two go offline while the image changes
    Offline,
    /// A new version appears; the owner of one of three nodes asks, pulls ahead, and confirms
    Ota,
}

/// What is bad about an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BadRevision {
    /// It crashes again and again
    Crash,
    /// It runs and never becomes ready
    NeverReady,
    /// It cannot be pulled
    ImageError,
    /// It takes the whole node down, which shows after 40s: compare with --min-ready 60s
    KillsNodes,
}

/// How the report looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For a person
    Text,
    /// For a program
    Json,
}

const SERVE_EXAMPLES: &str = "\
Take nodes offline, and let them return, by an annotation:
  kubectl annotate node edge-2 sim.yurt-ds.io/offline=true
  kubectl annotate node edge-2 sim.yurt-ds.io/offline-

Be the owner of a node, after `kubectl annotate ds nginx-daemonset apps.openyurt.io/update-strategy=OTA --overwrite`:
  yurt-ds sim serve --ota-server edge-1
  yurt-ds ctl pods                                             # or: curl 127.0.0.1:10267/pods

Containers are not run: images are only names, there are no logs and nothing to exec into.";

/// Flags of `yurt-ds sim serve`.
#[derive(Clone, Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    /// Where the API is served, without encryption or passwords: keep it on this machine; port 0 picks a free one
    #[arg(long, env = "YURT_DS_SIM_LISTEN", default_value = "127.0.0.1:0", value_name = "ADDR", value_parser = loopback)]
    pub listen: SocketAddr,
    /// How many nodes it has
    #[arg(long, env = "YURT_DS_SIM_NODES", default_value_t = 3, value_name = "NUMBER",
        value_parser = clap::value_parser!(u32).range(0..=20_000))]
    pub nodes: u32,
    /// Write the kubeconfig to this file instead of a temporary one
    #[arg(long, env = "YURT_DS_SIM_KUBECONFIG_OUT", value_name = "FILE")]
    pub kubeconfig_out: Option<PathBuf>,
    /// Without the DaemonSet default/nginx-daemonset to begin with
    #[arg(long, env = "YURT_DS_SIM_EMPTY")]
    pub empty: bool,
    /// Without the yurt-ds controller, to run one beside it: `yurt-ds controller --kubeconfig FILE`
    #[arg(long, env = "YURT_DS_SIM_NO_CONTROLLER")]
    pub no_controller: bool,
    /// How long a node pulls an image that it does not have
    #[arg(long, env = "YURT_DS_SIM_PULL", default_value = "3s", value_name = "DURATION",
        value_parser = crate::clock::duration)]
    pub pull: Duration,
    /// Also run the ota-server of this node, for `yurt-ds ctl pods` and curl
    #[arg(long, env = "YURT_DS_SIM_OTA_SERVER", value_name = "NODE")]
    pub ota_server: Option<String>,
    /// Where that one listens; port 0 picks a free one
    #[arg(long, env = "YURT_DS_SIM_OTA_LISTEN", default_value = "127.0.0.1:10267", value_name = "ADDR",
        value_parser = loopback)]
    pub ota_listen: SocketAddr,
    /// Decides every name
    #[arg(
        long,
        env = "YURT_DS_SIM_SEED",
        default_value_t = 1,
        value_name = "NUMBER"
    )]
    pub seed: u64,
}

/// Play the kubelets of many nodes against a real API server
///
/// Lines on standard input steer them: `offline NODE`, `online NODE`, `remove NODE`, `flap NODE UP DOWN`, and
/// `image PATTERN [pull=5s] [start=1s] [ready-after=3s] [crash-after=1s] [kills-node-after=2s] [error] [never-ready]`.
#[derive(Clone, Debug, Args)]
pub struct KubeletsArgs {
    /// Which cluster; by default the usual rules of kubectl
    #[arg(long, value_name = "FILE", env = "YURT_DS_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// How many nodes
    #[arg(long, default_value_t = 10, env = "YURT_DS_SIM_NODES")]
    pub nodes: usize,
    /// What their names begin with
    #[arg(long, default_value = "fake-", env = "YURT_DS_SIM_PREFIX")]
    pub prefix: String,
    /// Their labels, as KEY=VALUE, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = label, env = "YURT_DS_SIM_LABELS")]
    pub labels: Vec<(String, String)>,
    /// How long a container takes to start once its image is there
    #[arg(long, default_value = "1s", value_parser = crate::clock::duration, env = "YURT_DS_SIM_START")]
    pub start: Duration,
    /// How long a node pulls an image that it does not have
    #[arg(long, default_value = "0s", value_parser = crate::clock::duration, env = "YURT_DS_SIM_PULL")]
    pub pull: Duration,
    /// How long a container takes to end
    #[arg(long, default_value = "1s", value_parser = crate::clock::duration, env = "YURT_DS_SIM_TERMINATE")]
    pub terminate: Duration,
    /// Every step takes up to this much longer
    #[arg(long, default_value = "0s", value_parser = crate::clock::duration, env = "YURT_DS_SIM_JITTER")]
    pub jitter: Duration,
    /// Decides the jitter
    #[arg(long, default_value_t = 0, env = "YURT_DS_SIM_SEED")]
    pub seed: u64,
    /// UpdateInPlace every node's Lease this often; needed where the node lifecycle controller looks for it (40 s by default)
    #[arg(long, value_parser = crate::clock::duration, env = "YURT_DS_SIM_LEASE")]
    pub lease: Option<Duration>,
    /// A node that goes offline and its pods are marked so at once, instead of after the grace period
    #[arg(long, env = "YURT_DS_SIM_MARK")]
    pub mark: bool,
    /// Delete the nodes at the end
    #[arg(long, env = "YURT_DS_SIM_CLEANUP")]
    pub cleanup: bool,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is no label: write KEY=VALUE")),
    }
}

/// A part of the fleet.
fn part(text: &str) -> Result<IntOrPercent, String> {
    match share(text)? {
        IntOrPercent::Percent(percent) if percent > 100 => {
            Err("more than all: use at most 100%".to_owned())
        }
        share => Ok(share),
    }
}

fn budget(text: &str) -> Result<IntOrPercent, String> {
    let share = part(text)?;
    if share.is_zero() {
        Err("the simulator needs a budget: use at least 1 or 1%".to_owned())
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
            "everybody who reaches this address could do everything: use 127.0.0.1 or [::1]"
                .to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_served() {
        assert!(loopback("127.0.0.1:0").is_ok() && loopback("[::1]:8001").is_ok());
        assert!(loopback("0.0.0.0:8001").unwrap_err().contains("127.0.0.1"));
        assert!(loopback("localhost").unwrap_err().contains("such as"));
    }
}
