//! Scripts of plays: a fleet, a DaemonSet, and events with their times. Data only.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::core::settings::max_unavailable::MAX_UNAVAILABLE;
use crate::core::settings::update_strategy::UPDATE_STRATEGY;
use crate::core::{IntOrPercent, Mode, names};
use crate::sim::dice::mix;
use crate::sim::kubelet::Behaviour;

/// Script of a play.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// Title line of the play.
    pub(super) title: String,
    /// Names of the nodes, in order.
    pub(super) nodes: Vec<String>,
    /// DaemonSet and its update.
    pub(super) rollout: Rollout,
    /// Default behavior of containers.
    pub(super) usual: Behaviour,
    /// Behavior of containers with the new image.
    pub(super) new: Behaviour,
    /// Steps in order of time.
    pub(super) steps: Vec<ScriptStep>,
    /// Time limit of the play, counted from the start.
    pub(super) limit: Duration,
    /// True if the timeline reports every node individually.
    pub(super) in_full: bool,
    /// True if the new image is meant to fail. The guarantee is then that the rollout stops.
    pub(super) doomed: bool,
    /// Virtual seconds per real second in an interactive play.
    pub(super) speed: f64,
    /// True if only the report is shown.
    pub(super) in_background: bool,
    /// Node whose owner types commands on it, if the play has one.
    pub(super) owner: Option<String>,
}

/// DaemonSet and the change of its image.
#[derive(Clone, Debug)]
pub(super) struct Rollout {
    /// Engine that replaces pods.
    pub(super) engine: ScriptEngine,
    /// Number or share of nodes that may lack their pod at the same time.
    pub(super) max_unavailable: IntOrPercent,
    /// `spec.minReadySeconds`.
    pub(super) min_ready: Duration,
    /// Image before the change.
    pub(super) old: String,
    /// Image after the change.
    pub(super) new: String,
}

/// Engine that replaces pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptEngine {
    /// yurt-ds.
    YurtDs(Mode),
    /// DaemonSet controller of Kubernetes.
    Native,
}

/// Event of a script.
#[derive(Clone, Debug)]
pub(super) struct ScriptStep {
    /// Earliest time, counted from the start. The step waits until an earlier command has ended and its output was shown.
    pub(super) at: Duration,
    /// Event that happens.
    pub(super) deed: ScriptedEvent,
    /// Narration of the step; empty for none.
    pub(super) say: String,
}

/// Events that can happen.
#[derive(Clone, Debug)]
pub(super) enum ScriptedEvent {
    /// Takes these nodes offline.
    Leave(Vec<String>),
    /// Lets these nodes return.
    Return(Vec<String>),
    /// Takes these nodes offline and back repeatedly. The durations are the online and the offline time.
    Flap(Vec<String>, Duration, Duration),
    /// Sets the new image.
    SetImage,
    /// Disconnects the agent of this node from the API server, for less time than Kubernetes needs to mark a node as offline.
    Cut(String),
    /// Reconnects the agent to the API server.
    Mend,
    /// Types a command.
    Type(OwnerCommand),
    /// Only the narration.
    Tell,
}

/// Command that a node's owner types on that node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnerCommand {
    /// Name of the node.
    pub(super) node: String,
    /// Command line. `{NODE}` stands for the name of the pod on that node.
    pub(super) line: String,
    /// Purpose of the command.
    pub(super) aim: CommandPurpose,
}

/// Purpose of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandPurpose {
    /// Show the state of the node's pods.
    Read,
    /// Preview an upgrade.
    Ask,
    /// Pull images in advance.
    Pull,
    /// Make a mistake, which must be refused.
    Slip,
    /// Replace the pod while the cloud is unreachable, which must be refused.
    Away,
    /// Replace the pod.
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
            ScriptEngine::YurtDs(mode) => (
                json!({
                    UPDATE_STRATEGY: mode.to_string(),
                    MAX_UNAVAILABLE: self.max_unavailable.to_string(),
                }),
                json!({ "type": names::ON_DELETE }),
            ),
            ScriptEngine::Native => (json!({}), self.native_strategy()),
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

    /// Returns the patch that changes the image, as `kubectl set image` sends it.
    pub(super) fn change(&self) -> Value {
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "nginx", "image": self.new }] } } } })
    }
}

pub(super) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn step(at: u64, deed: ScriptedEvent, say: impl Into<String>) -> ScriptStep {
    ScriptStep {
        at: seconds(at),
        deed,
        say: say.into(),
    }
}

/// Returns the offline play: three nodes, two of them offline while the image changes.
pub(super) fn three_nodes() -> Script {
    let away = || vec!["edge-2".to_owned(), "edge-3".to_owned()];
    Script {
        title: "Three nodes, two of them offline".to_owned(),
        nodes: (1..=3).map(|number| format!("edge-{number}")).collect(),
        rollout: Rollout {
            engine: ScriptEngine::YurtDs(Mode::AdvancedRollingUpdate),
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
                ScriptedEvent::Tell,
                "nginx:1.19.4 runs on three edge nodes.",
            ),
            step(
                5,
                ScriptedEvent::Leave(away()),
                "edge-2 and edge-3 lose their connection to the cloud. Their pods go on serving there.",
            ),
            step(
                15,
                ScriptedEvent::SetImage,
                "The image changes to nginx:1.19.5. edge-1 is online: its turn is now.",
            ),
            step(
                35,
                ScriptedEvent::Tell,
                "edge-1 is done; the rollout is complete as far as nodes can be reached. The native RollingUpdate would \
                 be stuck here: it counts the two offline nodes as unavailable and waits for them.",
            ),
            step(
                55,
                ScriptedEvent::Return(away()),
                "edge-2 and edge-3 are back. Nobody does anything; yurt-ds waits 30s to see that they stay.",
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

/// Seconds from the start to the change of the image.
const CHANGE: u64 = 10;
/// Seconds after the change within which the returning nodes come back.
const RETURNS: u64 = 120;

impl FleetPlan {
    /// Returns the script. The seed selects the offline nodes and the times of their return.
    pub(super) fn script(self) -> Script {
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
            ScriptedEvent::Leave(away.to_vec()),
            format!("{} of {} nodes are offline.", away.len(), self.nodes),
        )];
        if !flapping.is_empty() {
            let say = format!("{} nodes come and go all the time.", flapping.len());
            steps.push(step(
                2,
                ScriptedEvent::Flap(flapping, seconds(45), seconds(20)),
                say,
            ));
        }
        steps.push(step(
            CHANGE,
            ScriptedEvent::SetImage,
            match self.rollout.engine {
                ScriptEngine::Native => format!("The image changes to {}.", self.rollout.new),
                ScriptEngine::YurtDs(_) => format!(
                    "The image changes to {}. Offline nodes are passed over.",
                    self.rollout.new
                ),
            },
        ));
        steps.extend(returns(back, self.seed));
        Script {
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

/// Returns node names whose alphabetical order is their numerical order.
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

/// Returns steps in which nodes return one by one, at times derived from the seed.
fn returns(back: &[String], seed: u64) -> Vec<ScriptStep> {
    let mut at: Vec<u64> = (0..back.len())
        .map(|number| CHANGE + 5 + mix(seed.wrapping_add(number as u64)) % RETURNS)
        .collect();
    at.sort_unstable();
    let mut told = BTreeSet::new();
    let mut returned = 0;
    back.iter()
        .zip(at)
        .map(|(name, at)| {
            returned += 1;
            // At most one message per ten seconds, so that it can be read.
            let say = if told.insert(at / 10) {
                format!("{name} is back ({returned} of {}).", back.len())
            } else {
                String::new()
            };
            step(at, ScriptedEvent::Return(vec![name.clone()]), say)
        })
        .collect()
}
