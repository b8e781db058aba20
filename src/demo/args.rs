//! What can be typed after `yurt-ds sim`, and what it means.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::kubelets::KubeletsArgs;
use super::script::{Engine, FleetPlan, Rollout, Script};
use super::{ota, script};
use crate::core::{Mode, Share};
use crate::demo::serve::ServeArgs;
use crate::sim::kubelet::Behaviour;

/// Nodes of a fleet of which only something else was said.
const NODES: u32 = 200;
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
    pub offline: Option<Share>,
    /// How many of all nodes return during the rollout [default: half of those that are offline]
    #[arg(long, env = "YURT_DS_SIM_RETURNING", value_name = "SHARE", help_heading = "Fleet", value_parser = part)]
    pub returning: Option<Share>,
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
    pub max_unavailable: Option<Share>,
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
    pub output: Output,
}

/// A story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Story {
    /// Three nodes, of which two go offline while the image changes
    Offline,
    /// A new version appears; the owner of one of three nodes asks, pulls ahead, and confirms
    Ota,
}

impl Story {
    /// What is played.
    pub(super) fn script(self) -> Script {
        match self {
            Self::Offline => script::three_nodes(),
            Self::Ota => ota::story(),
        }
    }
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
pub enum Output {
    /// For a person
    Text,
    /// For a program
    Json,
}

/// A part of the fleet.
fn part(text: &str) -> Result<Share, String> {
    match share(text)? {
        Share::Percent(percent) if percent > 100 => {
            Err("more than all: use at most 100%".to_owned())
        }
        share => Ok(share),
    }
}

fn budget(text: &str) -> Result<Share, String> {
    let share = part(text)?;
    match share.is_zero() {
        true => Err("nothing could ever be replaced: use at least 1 or 1%".to_owned()),
        false => Ok(share),
    }
}

fn share(text: &str) -> Result<Share, String> {
    text.parse()
        .map_err(|_| "use a number of nodes such as 3 or a percentage such as 10%".to_owned())
}

fn mode(text: &str) -> Result<Mode, String> {
    text.parse()
        .map_err(|_| "use AdvancedRollingUpdate or OTA, or the flag --native".to_owned())
}

impl PlayArgs {
    /// Whether anything was said about the fleet: then it is played instead of the stories.
    pub(super) fn is_own_fleet(&self) -> bool {
        self.nodes.is_some()
            || self.offline.is_some()
            || self.returning.is_some()
            || self.flap.is_some()
            || self.max_unavailable.is_some()
            || self.strategy.is_some()
            || self.min_ready.is_some()
            || self.pull.is_some()
            || self.bad_revision.is_some()
            || self.minutes.is_some()
            || self.native
            || self.crash_image
    }

    /// The fleet that was asked for; without any flag, the one that follows the stories.
    ///
    /// # Errors
    /// Names the flag that does not fit to the others.
    pub(super) fn fleet(&self, seed: u64) -> Result<FleetPlan, String> {
        let nodes = self.nodes.unwrap_or(NODES) as usize;
        let of_fleet = |flag: &str, share: Share| match share {
            Share::Number(number) if number as usize > nodes => Err(format!(
                "{flag} {number}: there are only {nodes} nodes; use at most that many, or a percentage such as 20%"
            )),
            share => Ok(share.resolve(nodes)),
        };
        let offline = of_fleet("--offline", self.offline.unwrap_or(Share::Percent(20)))?;
        let returning = match self.returning {
            Some(share) => of_fleet("--returning", share)?,
            None => offline.div_ceil(2),
        };
        if returning > offline {
            return Err(format!(
                "--returning: {returning} nodes cannot return when {offline} are offline; use at most {offline}"
            ));
        }
        let flapping = self.flap.unwrap_or(0) as usize;
        if flapping + offline > nodes {
            return Err(format!(
                "--flap {flapping}: {offline} of {nodes} nodes are offline; at most {} can flap",
                nodes - offline
            ));
        }
        let min_ready = self.min_ready.unwrap_or_default();
        if min_ready.subsec_nanos() != 0 {
            return Err("--min-ready: minReadySeconds counts whole seconds; use 5s".to_owned());
        }
        let usual = Behaviour::default();
        let pull = self.pull.unwrap_or(Duration::from_secs(15));
        let good = Behaviour {
            pull,
            ..usual.clone()
        };
        let bad = self.bad();
        Ok(FleetPlan {
            seed,
            nodes,
            offline,
            returning,
            flapping,
            rollout: Rollout {
                engine: match self.native {
                    true => Engine::Native,
                    false => Engine::YurtDs(self.strategy.unwrap_or(Mode::AdvancedRollingUpdate)),
                },
                max_unavailable: self.max_unavailable.unwrap_or(Share::Percent(10)),
                min_ready,
                old: "nginx:1.19.4".to_owned(),
                new: "nginx:1.19.5".to_owned(),
            },
            usual,
            new: bad.map_or(good.clone(), |how| how.of(good)),
            limit: Duration::from_secs(60) * self.minutes.unwrap_or(30),
            doomed: bad.is_some(),
        })
    }

    fn bad(&self) -> Option<BadRevision> {
        self.bad_revision
            .or(self.crash_image.then_some(BadRevision::Crash))
    }
}

impl BadRevision {
    fn of(self, good: Behaviour) -> Behaviour {
        let soon = Duration::from_secs(2);
        match self {
            Self::Crash => Behaviour {
                crash_after: Some(soon),
                ready_after: soon * 2,
                ..good
            },
            Self::NeverReady => Behaviour {
                never_ready: true,
                ..good
            },
            Self::ImageError => Behaviour {
                image_error: true,
                ..good
            },
            Self::KillsNodes => Behaviour {
                kills_node_after: Some(soon),
                ..good
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn typed(flags: &str) -> Result<FleetPlan, String> {
        let words = ["yurt-ds", "sim"]
            .into_iter()
            .chain(flags.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Command::Sim(args) = cli.command else {
            panic!("another command");
        };
        args.play.fleet(1)
    }

    #[test]
    fn a_fleet_that_cannot_be_is_answered_with_flag_value_and_cure() {
        #[track_caller]
        fn case(flags: &str, expected: &[&str]) {
            let error = typed(flags).expect_err(flags);
            for words in expected {
                assert!(error.contains(words), "{flags}: {error}");
            }
        }
        case("--nodes 0", &["--nodes", "'0'", "1..="]);
        case("--nodes many", &["--nodes", "many"]);
        case("--offline 150%", &["--offline", "150%", "at most 100%"]);
        case("--offline some", &["--offline", "some", "such as 10%"]);
        case(
            "--nodes 10 --offline 11",
            &["--offline 11", "only 10 nodes"],
        );
        case(
            "--offline 10 --returning 11",
            &["--returning", "at most 10"],
        );
        case("--max-unavailable 0", &["--max-unavailable", "at least 1"]);
        case("--strategy Recreate", &["--strategy", "Recreate", "OTA"]);
        case("--min-ready 1500ms", &["--min-ready", "whole seconds"]);
        case("--pull fast", &["--pull", "fast", "such as 15s"]);
        case(
            "--nodes 10 --offline 100% --flap 1",
            &["--flap 1", "at most 0"],
        );
        case("--native --strategy OTA", &["--native", "--strategy"]);
    }

    #[test]
    fn a_story_has_its_own_fleet() {
        let cli = Cli::try_parse_from(["yurt-ds", "sim", "--story", "ota", "--nodes", "5"]);
        let Command::Sim(args) = cli.unwrap().command else {
            panic!("another command");
        };
        let error = crate::demo::scripts(&args.play, 1).unwrap_err();
        assert!(error.contains("--story"), "{error}");
        let unknown = Cli::try_parse_from(["yurt-ds", "sim", "--story", "romeo"]).unwrap_err();
        assert!(unknown.to_string().contains("ota"), "{unknown}");
    }

    #[test]
    fn a_fleet_may_be_offline_as_a_whole_or_not_at_all() {
        let all = typed("--nodes 7 --offline 100%").unwrap();
        assert_eq!((all.nodes, all.offline, all.returning), (7, 7, 4));
        let none = typed("--nodes 1 --offline 0").unwrap();
        assert_eq!((none.nodes, none.offline, none.returning), (1, 0, 0));
    }
}
