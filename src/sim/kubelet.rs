//! Fake kubelets: nodes whose pods start, stop, restart and pull images as configured, for any API server.
//!
//! ```text
//! Kubelets (handle) ── commands ──► one task for all nodes ── status patches, deletions ──► API server
//!                                     ▲        │ one ordered queue of due steps             │
//!                                     └────────┴──────────── one watch of bound pods ◄──────┘
//! ```
//!
//! They are ordinary clients: the same code runs on the embedded cluster and on a real kube-apiserver. They bind no pods; the
//! scheduler does that. The behavior of containers is data ([`Behaviour`]), looked up by image and node.

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

/// Size of the command queue. Commands come from users and scenarios, one at a time.
const COMMANDS: usize = 64;

/// Handle to the running kubelets. Clones share them; they stop when the last clone is dropped.
///
/// Every method returns after its effect was written to the API server.
///
/// # Errors
///
/// Methods fail if a request to the API server fails or the kubelets have stopped.
#[derive(Clone)]
pub struct Kubelets {
    commands: mpsc::Sender<(KubeletCommand, Ack)>,
    _task: Arc<Task>,
}

impl Kubelets {
    /// Starts without nodes.
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

    /// Stops a node's kubelet and all activity on the node.
    pub async fn set_offline(&self, name: &str, how: Outage) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Offline(name.to_owned(), how))
            .await
    }

    /// Starts a node's kubelet again. It then processes the changes that it missed.
    pub async fn set_online(&self, name: &str) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Online(name.to_owned())).await
    }

    /// Removes a node permanently: its kubelet and the Node object. The pod garbage collector deletes its pods.
    pub async fn remove_node(&self, name: &str) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Remove(name.to_owned())).await
    }

    /// Takes a node offline and online repeatedly until `set_online` or `set_offline`.
    pub async fn flap(&self, name: &str, up: Duration, down: Duration) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Flap(name.to_owned(), up, down))
            .await
    }

    /// Sets the behavior of containers whose image matches `image` (`*` for any text), on every node.
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

    /// Adds a rule for some nodes and images. If several rules match, the latest one applies.
    pub async fn rule(&self, rule: Rule) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Rule(rule)).await
    }

    /// Sets the time that containers on this node take to end.
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
