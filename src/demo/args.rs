//! Evaluates the flags of `yurt-ds sim`.

use std::time::Duration;

use super::scenario::{FleetPlan, Rollout, RolloutEngine, Scenario};
use super::{ota, scenario};
use crate::cli::sim::{BadRevision, PlayArgs, Story};
use crate::core::{IntOrPercent, Mode};
use crate::sim::kubelet::Behaviour;

/// Default number of nodes in a custom fleet.
const NODES: u32 = 200;

impl Story {
    pub(super) fn scenario(self) -> Scenario {
        match self {
            Self::Offline => scenario::three_nodes(),
            Self::Ota => ota::story(),
        }
    }
}

impl PlayArgs {
    /// Returns true if a flag describes a custom fleet. That fleet is then played instead of the stories.
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

    /// Returns the fleet that the flags describe. Without such flags, returns the fleet that is played after the stories.
    ///
    /// # Errors
    ///
    /// Returns a message that names the invalid or conflicting flag.
    pub(super) fn fleet(&self, seed: u64) -> Result<FleetPlan, String> {
        let nodes = self.nodes.unwrap_or(NODES) as usize;
        let of_fleet = |flag: &str, share: IntOrPercent| match share {
            IntOrPercent::Number(number) if number as usize > nodes => Err(format!(
                "{flag} {number}: there are only {nodes} nodes; use at most that many, or a percentage such as 20%"
            )),
            share => Ok(share.resolve(nodes)),
        };
        let offline = of_fleet(
            "--offline",
            self.offline.unwrap_or(IntOrPercent::Percent(20)),
        )?;
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
                    true => RolloutEngine::Native,
                    false => {
                        RolloutEngine::YurtDs(self.strategy.unwrap_or(Mode::AdvancedRollingUpdate))
                    }
                },
                max_unavailable: self.max_unavailable.unwrap_or(IntOrPercent::Percent(10)),
                min_ready,
                old: "nginx:1.19.4".to_owned(),
                new: "nginx:1.19.5".to_owned(),
            },
            usual,
            new: bad.map_or(good.clone(), |how| how.apply(good)),
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
    /// Returns the behaviour `good` with this failure added.
    pub(super) fn apply(self, good: Behaviour) -> Behaviour {
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
    fn an_impossible_fleet_is_reported_with_flag_value_and_remedy() {
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
    fn the_story_flag_excludes_fleet_flags() {
        let cli = Cli::try_parse_from(["yurt-ds", "sim", "--story", "ota", "--nodes", "5"]);
        let Command::Sim(args) = cli.unwrap().command else {
            panic!("another command");
        };
        let error = crate::demo::scenarios(&args.play, 1).unwrap_err();
        assert!(error.contains("--story"), "{error}");
        let unknown = Cli::try_parse_from(["yurt-ds", "sim", "--story", "romeo"]).unwrap_err();
        assert!(unknown.to_string().contains("ota"), "{unknown}");
    }

    #[test]
    fn all_or_no_nodes_of_a_fleet_may_be_offline() {
        let all = typed("--nodes 7 --offline 100%").unwrap();
        assert_eq!((all.nodes, all.offline, all.returning), (7, 7, 4));
        let none = typed("--nodes 1 --offline 0").unwrap();
        assert_eq!((none.nodes, none.offline, none.returning), (1, 0, 0));
    }
}
