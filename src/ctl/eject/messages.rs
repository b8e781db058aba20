//! Messages of `ctl eject`: why it is refused, what it would do, and what it has done.

use super::candidate::EjectCandidate;
use crate::core::words::plural;
use crate::core::{IntOrPercent, Mode, Strategy};
use crate::ctl::migrate::{nothing_like, rolling_update};
use crate::index::SetKey;

impl EjectCandidate {
    /// Says why eject is refused while pods are outdated, and what to do.
    pub(super) fn refusal(&self) -> String {
        let key = &self.key;
        if !self.old.known {
            return format!(
                "{key} was not handed back: {} has not processed its latest change, so it is not known which pods \
                 are outdated and would be restarted. Try again in a moment.",
                key.kind.controller()
            );
        }
        let targeted = self.snapshot.plan.counts.targeted;
        if self.old.nodes == 0 {
            return format!(
                "{key} was not handed back: the old {} still terminating.\nWait for that first (yurt-ds ctl status \
                 {key} --wait --strict). To hand it back now, without restarting other pods: yurt-ds ctl eject {key} \
                 --now",
                self.ending(),
            );
        }
        let wait = match self.snapshot.strategy.mode {
            Mode::AdvancedRollingUpdate if self.snapshot.rollout().is_paused() => {
                format!("First resume it and let the rollout finish (yurt-ds ctl resume {key})")
            }
            // Waiting does not help here: the rollout is complete, and a setting keeps these nodes on the old revision.
            Mode::AdvancedRollingUpdate if self.old.kept > 0 => format!(
                "First remove the setting that holds them back (partition, selector, hold) and let the rollout \
                 finish (yurt-ds ctl status {key} --wait --strict)"
            ),
            Mode::AdvancedRollingUpdate => {
                format!("First let the rollout finish (yurt-ds ctl status {key} --wait --strict)")
            }
            Mode::Ota => "First let the node owners upgrade them".to_owned(),
            Mode::OnDelete => "First delete their pods".to_owned(),
        };
        format!(
            "{key} was not handed back: {} of {targeted} {} an old revision{}. {}\n{wait}, or roll back to the \
             template that these nodes run. To hand it back now and have their pods restarted: yurt-ds ctl eject \
             {key} --now",
            self.old.nodes,
            plural(self.old.nodes, "nodes runs", "nodes run"),
            self.old_ones(),
            self.consequence(),
        )
    }

    /// Says what the native controller would do with the outdated pods.
    fn consequence(&self) -> String {
        let asking = match self.snapshot.strategy.mode {
            Mode::AdvancedRollingUpdate | Mode::OnDelete => "",
            Mode::Ota => " without asking the node owners",
        };
        format!(
            "The native RollingUpdate would start to replace {} immediately{asking}, {} at a time, also on nodes \
             that are offline or held back.",
            plural(self.old.nodes, "its pod", "their pods"),
            self.budget(),
        )
    }

    fn old_ones(&self) -> String {
        let parts = [
            (self.old.offline, "offline"),
            (self.old.kept, "held back by settings"),
        ];
        let parts = parts.iter().filter(|(nodes, _)| *nodes > 0);
        let parts: Vec<String> = parts.map(|(n, what)| format!("{n} {what}")).collect();
        if parts.is_empty() {
            String::new()
        } else {
            format!(" ({})", parts.join(", "))
        }
    }

    /// Returns the subject and the verb of a sentence about the nodes whose old pods are terminating.
    fn ending(&self) -> String {
        match self.old.ending {
            1 => "pod of 1 node is".to_owned(),
            nodes => format!("pods of {nodes} nodes are"),
        }
    }

    fn budget(&self) -> String {
        let strategy = &self.snapshot.strategy;
        let share = if strategy.max_surge.is_zero() {
            strategy.max_unavailable
        } else {
            strategy.max_surge
        };
        match share {
            IntOrPercent::Number(nodes) => {
                format!("{nodes} {}", plural(nodes as usize, "node", "nodes"))
            }
            share @ IntOrPercent::Percent(_) => format!("{share} of the nodes"),
        }
    }

    /// Returns the output of `--dry-run`.
    pub(super) fn would(&self) -> String {
        format!(
            "{} would be handed back to Kubernetes; nothing was written.\n{}",
            self.key,
            self.what("would be")
        )
    }

    /// Returns the message for a DaemonSet that has been returned to Kubernetes.
    pub(super) fn done(&self) -> String {
        format!(
            "{} was handed back to Kubernetes.\n{}",
            self.key,
            self.what("is")
        )
    }

    fn what(&self, is: &str) -> String {
        let counts = &self.snapshot.plan.counts;
        let pods = match self.old.nodes {
            0 if self.old.ending > 0 => format!(
                "No other pod {is} restarted: the old {} already terminating, and all other nodes run the current \
                 revision.",
                self.ending()
            ),
            0 => format!(
                "No pod {is} restarted: {}.",
                match counts.targeted {
                    0 => "the DaemonSet has none".to_owned(),
                    nodes => format!(
                        "{} the current revision",
                        plural(nodes, "the only node runs", "all nodes run")
                    ),
                }
            ),
            nodes => format!(
                "{nodes} {} an old revision{}. {}",
                plural(nodes, "node runs", "nodes run"),
                self.old_ones(),
                self.consequence().replace("would start", "starts"),
            ),
        };
        let strategy = if self.is_on_delete() {
            format!(
                "updateStrategy {is} RollingUpdate with {}.",
                native_settings(&self.snapshot.strategy)
            )
        } else {
            "updateStrategy remains RollingUpdate.".to_owned()
        };
        let keys: Vec<&str> = self.settings.keys().map(String::as_str).collect();
        let lost = nothing_like(keys.iter().copied());
        let lost = lost.map_or_else(String::new, |lost| format!("{lost}\n"));
        format!(
            "{pods}\n{strategy}\nRemoved: {}.\n{lost}Change the manifest in the same way, or the next apply reverts \
             this.\n",
            keys.join(", ")
        )
    }
}

/// Says that the controller is still removing conditions that it wrote.
pub(super) fn at_work(key: &SetKey) -> String {
    format!(
        "The controller is still cleaning up. It removes its conditions last. To see what it waits for: kubectl -n \
         {} describe daemonset {}\n",
        key.namespace, key.name
    )
}

/// Says that the old manifest was applied again after the hand-over.
pub(super) fn applied_again(key: &SetKey, settings: &[&str]) -> String {
    format!(
        "{key} was handed back to Kubernetes, but then its old manifest was applied again and set {}. Change the \
         manifest, or stop the tool that applies it. Then: yurt-ds ctl eject {key}",
        settings.join(", ")
    )
}

/// Says whether the conditions of yurt-ds were removed by the controller or by this command.
pub(super) fn released(announced: usize, by_controller: bool) -> String {
    let who = if by_controller {
        "The controller removed"
    } else {
        "No controller responded, so this command removed"
    };
    let pods = match announced {
        0 => String::new(),
        pods => format!(
            ", and those for node owners (OTA) from {pods} {}",
            plural(pods, "pod", "pods")
        ),
    };
    format!("{who} the conditions of yurt-ds on the DaemonSet{pods}.\n")
}

/// Says that an Advanced DaemonSet has been converted to a native one but not returned to Kubernetes yet.
pub(super) fn native_by_now(key: &SetKey) -> String {
    format!(
        "{key} is now a native DaemonSet (apps/v1), and stays paused until it is handed back: yurt-ds ctl eject \
         {key}\nTo keep it managed by yurt-ds: yurt-ds ctl resume {key}"
    )
}

/// Returns the settings of the native RollingUpdate in words.
fn native_settings(strategy: &Strategy) -> String {
    rolling_update(strategy)
        .to_string()
        .replace(['{', '}', '"'], "")
        .replace(':', " ")
        .replace(',', " and ")
}
