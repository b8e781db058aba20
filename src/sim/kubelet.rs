//! Fake kubelets: nodes whose pods start, stop, restart and pull images as told, for any API server.
//!
//! ```text
//! Kubelets (handle) ── commands ──► one task for all nodes ── status patches, deletions ──► API server
//!                                     ▲        │ one ordered queue of what is due           │
//!                                     └────────┴──────────── one watch of bound pods ◄──────┘
//! ```
//!
//! They are ordinary clients: on the embedded cluster and on a real kube-apiserver the same code runs. They bind no
//! pods; the scheduler does. What containers do is data ([`Behaviour`]), looked up by image and node.

mod behaviour;
mod engine;
mod node;
mod options;
mod pod;
mod status;
mod view;
mod write;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use tokio::sync::mpsc;

pub use self::behaviour::{Behaviour, Rule};
use self::engine::{KubeletCommand, KubeletEngine};
pub(crate) use self::node::unknown;
pub use self::node::{FakeNodeSpec, Outage};
pub use self::options::{KubeletOptions, StatusWrite};
use self::write::Ack;
use crate::clock::Clock;
use crate::task::Task;

/// How many commands may wait: they come from people and scenarios, one after the other.
const COMMANDS: usize = 64;

/// The running kubelets; clones steer the same ones, and they stop when the last clone is dropped.
///
/// Every method returns when its effect has been written to the API server.
#[derive(Clone)]
pub struct Kubelets {
    commands: mpsc::Sender<(KubeletCommand, Ack)>,
    _task: Arc<Task>,
}

impl Kubelets {
    /// Starts without nodes; add them.
    pub fn start(client: Client, clock: Clock, options: KubeletOptions) -> Self {
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let engine = KubeletEngine::new(client, clock, options);
        Self {
            commands,
            _task: Arc::new(Task::spawn(engine.run(receiver))),
        }
    }

    /// Registers a node; its kubelet is online.
    pub async fn add_node(&self, node: FakeNodeSpec) -> anyhow::Result<()> {
        self.add_nodes(vec![node]).await
    }

    /// Registers many nodes at once.
    pub async fn add_nodes(&self, nodes: Vec<FakeNodeSpec>) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Add(nodes)).await
    }

    /// Stops a node's kubelet: from now on nothing happens there.
    pub async fn set_offline(&self, name: &str, how: Outage) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Offline(name.to_owned(), how))
            .await
    }

    /// Lets a node's kubelet return; it finishes what was asked for meanwhile.
    pub async fn set_online(&self, name: &str) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Online(name.to_owned())).await
    }

    /// Takes a node away for good: kubelet and Node object. Its pods are left to the pod garbage collector.
    pub async fn remove_node(&self, name: &str) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Remove(name.to_owned())).await
    }

    /// Lets a node go down and up by itself until `set_online` or `set_offline`.
    pub async fn flap(&self, name: &str, up: Duration, down: Duration) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Flap(name.to_owned(), up, down))
            .await
    }

    /// From now on containers of images that match `image` (`*` for any text) behave so, on every node.
    pub async fn behaviour(&self, image: &str, behaviour: Behaviour) -> anyhow::Result<()> {
        let node = "*".to_owned();
        let image = image.to_owned();
        self.rule(Rule {
            image,
            node,
            behaviour,
        })
        .await
    }

    /// The same for some nodes only. Of several rules that match, the one added last holds.
    pub async fn rule(&self, rule: Rule) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Rule(rule)).await
    }

    /// From now on containers on this node take this long to end.
    pub async fn terminate_in(&self, name: &str, time: Duration) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Terminate(name.to_owned(), time))
            .await
    }

    async fn ask(&self, command: KubeletCommand) -> anyhow::Result<()> {
        let (ack, done) = Ack::new();
        let sent = self.commands.send((command, ack)).await;
        sent.ok().context("the fake kubelets have stopped")?;
        let result = done.await.context("the fake kubelets have stopped")?;
        result.map_err(anyhow::Error::msg)
    }
}
