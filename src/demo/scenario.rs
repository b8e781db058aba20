//! Scenarios of plays. A scenario is only data: a fleet, a DaemonSet, and events with their times.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::core::settings::max_unavailable::MAX_UNAVAILABLE;
use crate::core::settings::update_strategy::UPDATE_STRATEGY;
use crate::core::{IntOrPercent, Mode, names};
use crate::sim::dice::mix;
use crate::sim::kubelet::Behaviour;

/// Scenario of a play: the fleet, the DaemonSet and the steps.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) title: String,
    /// Names of the nodes, in order.
    pub(super) nodes: Vec<String>,
    /// DaemonSet of the play, and the change of its image.
    pub(super) rollout: Rollout,
    /// Behaviour of containers with any image except the new one.
    pub(super) usual: Behaviour,
    /// Behaviour of containers with the new image.
    pub(super) new: Behaviour,
    /// Steps, ordered by time.
    pub(super) steps: Vec<ScenarioStep>,
    /// Time limit of the play, counted from its start.
    pub(super) limit: Duration,
    /// True if the timeline has the changes of each node.
    pub(super) in_full: bool,
    /// True if the new image fails. The play then checks that the rollout stops.
    pub(super) doomed: bool,
    /// Speed on a terminal, in virtual seconds per real second.
    pub(super) speed: f64,
    /// True if only the report is printed.
    pub(super) in_background: bool,
    /// Node whose owner types commands; `None` if no owner does.
    pub(super) owner: Option<String>,
}

/// DaemonSet and the change of its image.
#[derive(Clone, Debug)]
pub(super) struct Rollout {
    /// Controller that replaces the pods.
    pub(super) engine: RolloutEngine,
    /// Number or percentage of nodes that may lack their pod at the same time.
    pub(super) max_unavailable: IntOrPercent,
    /// `spec.minReadySeconds`.
    pub(super) min_ready: Duration,
    /// Image before the change.
    pub(super) old: String,
    /// Image after the change.
    pub(super) new: String,
}

/// Controller that replaces the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RolloutEngine {
    /// yurt-ds, with this strategy.
    YurtDs(Mode),
    /// The native DaemonSet controller.
    Native,
}

/// Step of a scenario: an event and its time.
#[derive(Clone, Debug)]
pub(super) struct ScenarioStep {
    /// Earliest time, counted from the start of the play. The step also waits until the previous command has ended and its output
    /// has been shown for some seconds.
    pub(super) at: Duration,
    /// Event that the step triggers.
    pub(super) event: ScenarioEvent,
    /// Narration for the step; empty if there is none.
    pub(super) say: String,
}

/// Event that a step can trigger.
#[derive(Clone, Debug)]
pub(super) enum ScenarioEvent {
    /// These nodes go offline.
    Leave(Vec<String>),
    Return(Vec<String>),
    /// These nodes repeatedly go offline and return. The durations are the time online and the time offline.
    Flap(Vec<String>, Duration, Duration),
    /// The DaemonSet gets the new image.
    SetImage,
    /// The agent of this node is disconnected from the API server. The outage is so short that Kubernetes doesn't mark the node as
    /// offline.
    Cut(String),
    /// The agent is connected to the API server again.
    Mend,
    /// A node owner types a command.
    Type(OwnerCommand),
    /// No event: only the narration is shown.
    Tell,
}

/// Command that a node owner types on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnerCommand {
    pub(super) node: String,
    /// Command line. `{NODE}` stands for the name of the pod on node `NODE`.
    pub(super) line: String,
    /// Purpose of the command, which determines its expected result.
    pub(super) aim: CommandPurpose,
}

/// Purpose of a command, which determines its expected result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandPurpose {
    /// List the node's pods.
    Read,
    /// List the available upgrades.
    Ask,
    /// Pull the images of a new revision in advance.
    Pull,
    /// Name a pod of another node by mistake. The command must be rejected.
    Slip,
    /// Replace the pod while the API server is unreachable. The command must be rejected.
    Away,
    /// Confirm the upgrade, which replaces the pod.
    Confirm,
}

/// Namespace of the DaemonSet.
pub(super) const NAMESPACE: &str = "default";
/// Name of the DaemonSet, as in OpenYurt's documentation.
pub(super) const NAME: &str = "nginx-daemonset";

impl Rollout {
    /// Returns the DaemonSet as a user would write it.
    pub(super) fn object(&self) -> Value {
        let labels = json!({ "app": "nginx" });
        let (annotations, strategy) = match self.engine {
            RolloutEngine::YurtDs(mode) => (
                json!({
                    UPDATE_STRATEGY: mode.to_string(),
                    MAX_UNAVAILABLE: self.max_unavailable.to_string(),
                }),
                json!({ "type": names::ON_DELETE }),
            ),
            RolloutEngine::Native => (json!({}), self.native_strategy()),
        };
        json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": { "name": NAME, "namespace": NAMESPACE, "annotations": annotations },
            "spec": {
                "selector": { "matchLabels": labels },
                "minReadySeconds": self.min_ready.as_secs(),
                "updateStrategy": strategy,
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "nginx", "image": self.old }] },
                },
            },
        })
    }

    fn native_strategy(&self) -> Value {
        let share = match self.max_unavailable {
            IntOrPercent::Number(number) => json!(number),
            IntOrPercent::Percent(_) => json!(self.max_unavailable.to_string()),
        };
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": share } })
    }

    /// Returns the patch that changes the image, the same as that of `kubectl set image`.
    pub(super) fn change(&self) -> Value {
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "nginx", "image": self.new }] } } } })
    }
}

pub(super) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn step(at: u64, event: ScenarioEvent, say: impl Into<String>) -> ScenarioStep {
    ScenarioStep {
        at: seconds(at),
        event,
        say: say.into(),
    }
}

/// Returns the play with offline nodes: two of three nodes are offline while the image changes.
pub(super) fn three_nodes() -> Scenario {
    let away = || vec!["edge-2".to_owned(), "edge-3".to_owned()];
    Scenario {
        title: "Three nodes, two of them offline".to_owned(),
        nodes: (1..=3).map(|number| format!("edge-{number}")).collect(),
        rollout: Rollout {
            engine: RolloutEngine::YurtDs(Mode::AdvancedRollingUpdate),
            max_unavailable: IntOrPercent::Percent(10),
            min_ready: Duration::ZERO,
            old: "nginx:1.19.4".to_owned(),
            new: "nginx:1.19.5".to_owned(),
        },
        usual: Behaviour {
            pull: seconds(4),
            ..Behaviour::default()
        },
        new: Behaviour {
            pull: seconds(4),
            ..Behaviour::default()
        },
        steps: vec![
            step(
                0,
                ScenarioEvent::Tell,
                "nginx:1.19.4 runs on three edge nodes.",
            ),
            step(
                5,
                ScenarioEvent::Leave(away()),
                "edge-2 and edge-3 lose their connection to the cloud. Their pods keep running.",
            ),
            step(
                15,
                ScenarioEvent::SetImage,
                "The image changes to nginx:1.19.5. edge-1 is online and is updated now.",
            ),
            step(
                35,
                ScenarioEvent::Tell,
                "edge-1 is updated, and the rollout is complete except on offline nodes. The native RollingUpdate \
                 would be stuck: it counts the two offline nodes as unavailable and waits for them.",
            ),
            step(
                55,
                ScenarioEvent::Return(away()),
                "edge-2 and edge-3 are back. yurt-ds updates them automatically when they have been Ready for 30s.",
            ),
        ],
        limit: seconds(600),
        in_full: true,
        doomed: false,
        speed: 8.0,
        in_background: false,
        owner: None,
    }
}

/// Settings of a custom fleet.
#[derive(Clone, Debug)]
pub(super) struct FleetPlan {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    pub(super) offline: usize,
    pub(super) returning: usize,
    pub(super) flapping: usize,
    pub(super) rollout: Rollout,
    pub(super) usual: Behaviour,
    pub(super) new: Behaviour,
    pub(super) limit: Duration,
    pub(super) doomed: bool,
}

/// Number of seconds from the start of the play to the change of the image.
const CHANGE: u64 = 10;
/// Number of seconds after the change in which nodes return.
const RETURNS: u64 = 120;

impl FleetPlan {
    /// Returns the scenario of the fleet. The seed determines the offline nodes and the times of their return.
    pub(super) fn scenario(self) -> Scenario {
        let names = names_of(self.nodes);
        let shuffled = shuffle(&names, self.seed);
        let away = &shuffled[..self.offline.min(shuffled.len())];
        let back = &away[..self.returning.min(away.len())];
        let flapping = shuffled.iter().rev().take(self.flapping);
        let flapping: Vec<String> = flapping
            .filter(|name| !away.contains(name))
            .cloned()
            .collect();
        let mut steps = vec![step(
            0,
            ScenarioEvent::Leave(away.to_vec()),
            format!("{} of {} nodes are offline.", away.len(), self.nodes),
        )];
        if !flapping.is_empty() {
            let say = format!("{} nodes repeatedly go offline and return.", flapping.len());
            steps.push(step(
                2,
                ScenarioEvent::Flap(flapping, seconds(45), seconds(20)),
                say,
            ));
        }
        steps.push(step(
            CHANGE,
            ScenarioEvent::SetImage,
            match self.rollout.engine {
                RolloutEngine::Native => format!("The image changes to {}.", self.rollout.new),
                RolloutEngine::YurtDs(_) => format!(
                    "The image changes to {}. Offline nodes are skipped.",
                    self.rollout.new
                ),
            },
        ));
        steps.extend(returns(back, self.seed));
        Scenario {
            title: format!("{} nodes, {} of them offline", self.nodes, away.len()),
            nodes: names,
            rollout: self.rollout,
            usual: self.usual,
            new: self.new,
            steps,
            limit: self.limit,
            in_full: false,
            doomed: self.doomed,
            speed: 15.0,
            in_background: false,
            owner: None,
        }
    }
}

/// Returns the names of the nodes. Numbers have leading zeros, so that alphabetical and numerical order are the same.
fn names_of(nodes: usize) -> Vec<String> {
    let width = nodes.to_string().len();
    (1..=nodes)
        .map(|number| format!("edge-{number:0width$}"))
        .collect()
}

fn shuffle(names: &[String], seed: u64) -> Vec<String> {
    let mut shuffled: Vec<(u64, &String)> = (0..)
        .zip(names)
        .map(|(number, name)| (mix(seed ^ mix(number)), name))
        .collect();
    shuffled.sort();
    shuffled.into_iter().map(|(_, name)| name.clone()).collect()
}

/// Returns the steps in which the nodes in `back` return one by one. The seed determines their times.
fn returns(back: &[String], seed: u64) -> Vec<ScenarioStep> {
    let mut at: Vec<u64> = (0..back.len())
        .map(|number| CHANGE + 5 + mix(seed.wrapping_add(number as u64)) % RETURNS)
        .collect();
    at.sort_unstable();
    let mut announced = BTreeSet::new();
    let mut returned = 0;
    back.iter()
        .zip(at)
        .map(|(name, at)| {
            returned += 1;
            // Narrate at most one return in ten seconds, so that users can read the narration.
            let say = if announced.insert(at / 10) {
                format!("{name} is back ({returned} of {}).", back.len())
            } else {
                String::new()
            };
            step(at, ScenarioEvent::Return(vec![name.clone()]), say)
        })
        .collect()
}
