//! Fake kubelets for any API server. They start, stop and restart pods and pull images, as [`Behaviour`] describes for each image
//! and node.
//!
//! ```text
//! Kubelets (handle) ── commands ──► one task for all nodes ── status patches, deletions ──► API server
//!                                     ▲        │ one ordered queue of due steps             │
//!                                     └────────┴──────────── one watch of bound pods ◄──────┘
//! ```
//!
//! The fake kubelets are ordinary API clients, so the same code runs on the embedded cluster and on a real kube-apiserver. They
//! expect that a scheduler binds the pods.

mod behaviour;
mod engine;
mod node;
mod options;
mod pod;
mod status;
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

/// Size of the command queue. Users and scenarios send one command at a time.
const COMMANDS: usize = 64;

/// Handle to the running kubelets. All clones control the same kubelets, which stop when the last clone is dropped.
///
/// Every method returns after its effect has been written to the API server.
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
    /// Starts the task of the kubelets, without nodes.
    pub fn start(client: Client, clock: Clock, options: KubeletOptions) -> Self {
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let engine = KubeletEngine::new(client, clock, options);
        Self {
            commands,
            _task: Arc::new(Task::spawn(engine.run(receiver))),
        }
    }

    /// Registers a node. Its kubelet is online.
    pub async fn add_node(&self, node: FakeNodeSpec) -> anyhow::Result<()> {
        self.add_nodes(vec![node]).await
    }

    /// Registers several nodes at once. Their kubelets are online.
    pub async fn add_nodes(&self, nodes: Vec<FakeNodeSpec>) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Add(nodes)).await
    }

    /// Takes a node offline: stops its kubelet and all activity on the node.
    pub async fn set_offline(&self, name: &str, how: Outage) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Offline(name.to_owned(), how))
            .await
    }

    /// Brings a node back online. Its kubelet then processes the changes that it missed.
    pub async fn set_online(&self, name: &str) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Online(name.to_owned())).await
    }

    /// Removes a node permanently, with its kubelet and Node object. The pod garbage collector deletes its pods.
    pub async fn remove_node(&self, name: &str) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Remove(name.to_owned())).await
    }

    /// Takes a node offline and online repeatedly, until `set_online` or `set_offline` is called.
    pub async fn flap(&self, name: &str, up: Duration, down: Duration) -> anyhow::Result<()> {
        self.ask(KubeletCommand::Flap(name.to_owned(), up, down))
            .await
    }

    /// Sets the behavior of containers on all nodes whose image matches `image`. `*` matches any text.
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

    /// Sets the time that the containers on a node take to end.
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
