//! What is played: a fleet, a DaemonSet, and what happens when. Data only.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::core::settings::max_unavailable::MAX_UNAVAILABLE;
use crate::core::settings::update_strategy::UPDATE_STRATEGY;
use crate::core::{IntOrPercent, Mode, names};
use crate::sim::dice::mix;
use crate::sim::kubelet::Behaviour;

/// A play from its first to its last deed.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// One line above everything.
    pub(super) title: String,
    /// Names of the nodes, in order.
    pub(super) nodes: Vec<String>,
    /// What is rolled out, and how.
    pub(super) rollout: Rollout,
    /// What containers do unless it is said otherwise.
    pub(super) usual: Behaviour,
    /// What containers of the new image do.
    pub(super) new: Behaviour,
    /// What happens, in order of time.
    pub(super) steps: Vec<ScriptStep>,
    /// The latest end, counted from the start.
    pub(super) limit: Duration,
    /// Whether every node is told of on its own.
    pub(super) in_full: bool,
    /// Whether the new image is meant to fail: then the promise is that the rollout stops.
    pub(super) doomed: bool,
    /// Virtual seconds in a second, where somebody looks on.
    pub(super) speed: f64,
    /// Whether only the report is of interest.
    pub(super) in_background: bool,
    /// The node whose owner types commands there, where one does.
    pub(super) owner: Option<String>,
}

/// A DaemonSet and its change.
#[derive(Clone, Debug)]
pub(super) struct Rollout {
    /// Who replaces pods.
    pub(super) engine: ScriptEngine,
    /// How many nodes may lack their pod at once.
    pub(super) max_unavailable: IntOrPercent,
    /// `spec.minReadySeconds`.
    pub(super) min_ready: Duration,
    /// The image before.
    pub(super) old: String,
    /// The image after.
    pub(super) new: String,
}

/// Who replaces pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptEngine {
    /// yurt-ds.
    YurtDs(Mode),
    /// The DaemonSet controller of Kubernetes.
    Native,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) struct ScriptStep {
    /// When, counted from the start; later, when a command that was typed before has not ended or not been read.
    pub(super) at: Duration,
    /// What.
    pub(super) deed: ScriptedEvent,
    /// What a person is told; empty: nothing.
    pub(super) say: String,
}

/// What can happen.
#[derive(Clone, Debug)]
pub(super) enum ScriptedEvent {
    /// These nodes cannot be reached any more.
    Leave(Vec<String>),
    /// These nodes are back.
    Return(Vec<String>),
    /// These nodes go and come by themselves: so long there, so long away.
    Flap(Vec<String>, Duration, Duration),
    /// The new image is set.
    SetImage,
    /// The agent of this node loses the API server, for less time than Kubernetes needs to call a node offline.
    Cut(String),
    /// It finds it again.
    Mend,
    /// A command is typed.
    Type(OwnerCommand),
    /// Only the words.
    Tell,
}

/// A command that the owner of a node types there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnerCommand {
    /// The node.
    pub(super) node: String,
    /// The command line, in which `{NODE}` stands for the name of the pod on that node.
    pub(super) line: String,
    /// What it is for.
    pub(super) aim: CommandPurpose,
}

/// What a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandPurpose {
    /// To know how the pods of the node are.
    Read,
    /// To know what an upgrade would bring.
    Ask,
    /// To have images pulled ahead.
    Pull,
    /// A mistake, which has to be refused.
    Slip,
    /// To have the pod replaced while the cloud is away, which has to be refused.
    Away,
    /// To have the pod replaced.
    Confirm,
}

/// Namespace of the DaemonSet.
pub(super) const NAMESPACE: &str = "default";
/// Its name, as in OpenYurt's documents.
pub(super) const NAME: &str = "nginx-daemonset";

impl Rollout {
    /// The DaemonSet as a person would write it.
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

    /// The change of the image, as `kubectl set image` sends it.
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

/// The story of the mission: three nodes, two of them away while the image changes.
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

/// What an own fleet is made of.
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

/// The image changes this long after the start.
const CHANGE: u64 = 10;
/// From the change on, the nodes that return do so within this time.
const RETURNS: u64 = 120;

impl FleetPlan {
    /// The script: who is away and when they return is up to the seed.
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

/// Names that sort as they count.
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

/// One node after the other returns, at times that the seed decides.
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
            // Not more often than a person can read.
            let say = if told.insert(at / 10) {
                format!("{name} is back ({returned} of {}).", back.len())
            } else {
                String::new()
            };
            step(at, ScriptedEvent::Return(vec![name.clone()]), say)
        })
        .collect()
}
