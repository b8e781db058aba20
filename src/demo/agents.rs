//! Real ota-servers, one per node. Clients reach them over in-memory connections.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::FutureExt as _;

use crate::cli::node::SERVER;
use crate::clock::Clock;
use crate::ctl::node::{Connector, NodeClient, Stream};
use crate::k8s::client::Role;
use crate::ota_server::{Agent, AgentConfig, serve_stream};
use crate::sim::cluster::{Cluster, Count, Fault, FaultGuard};

/// Buffer size of an in-memory connection, per direction.
const PIPE: usize = 64 << 10;
/// Maximum time for a new agent to receive the pods of its node.
const STARTING: Duration = Duration::from_secs(30);

/// Running agents by the name of their node. They stop when dropped.
pub struct Agents {
    of: BTreeMap<String, Agent>,
}

impl Agents {
    /// Starts an agent on each of these nodes.
    ///
    /// # Errors
    ///
    /// Fails if an agent cannot start.
    pub async fn start(cluster: &Cluster, clock: &Clock, nodes: &[String]) -> Result<Self> {
        let mut of = BTreeMap::new();
        for node in nodes {
            let agent = start(cluster, clock, node, None)?;
            of.insert(node.clone(), agent);
        }
        let agents = Self { of };
        let waited = tokio::time::timeout(STARTING, agents.know_their_pods()).await;
        waited.context("the agents have not received their pods")?;
        Ok(agents)
    }

    /// Returns a client with which `ctl` sends requests to the agent of a node.
    ///
    /// # Errors
    ///
    /// Fails if the node does not exist.
    pub fn client(&self, node: &str) -> Result<NodeClient> {
        let agent = self
            .of
            .get(node)
            .with_context(|| format!("no agent on {node}"))?;
        NodeClient::through(SERVER, connector(agent.clone()))
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    async fn know_their_pods(&self) {
        for agent in self.of.values() {
            while !agent.is_live() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Returns the `User-Agent` header of a node's agent.
pub fn user_agent(node: &str) -> String {
    format!("{} {node}", Role::OtaServer.user_agent())
}

/// Returns true if the requests in this count were sent by an agent.
pub(super) fn is_agent(count: &Count) -> bool {
    count.user_agent.starts_with(&Role::OtaServer.user_agent())
}

/// Disconnects a node's agent from the API server until the guard is dropped. All watches break. Every client except the agent
/// resumes its watches.
pub fn cut(cluster: &Cluster, node: &str) -> FaultGuard {
    let agent = user_agent(node);
    let faults = cluster.faults();
    let cut = faults.add(move |request| {
        if request.user_agent == agent {
            Fault::ResetBefore
        } else {
            Fault::Pass
        }
    });
    cluster.disconnect_watches();
    cut
}

/// Starts the agent of a node with its own client.
///
/// # Errors
///
/// Fails if the node name is invalid.
pub fn start(
    cluster: &Cluster,
    clock: &Clock,
    node: &str,
    listen: Option<SocketAddr>,
) -> Result<Agent> {
    Agent::start(AgentConfig {
        client: cluster.client(&user_agent(node)),
        node: node.to_owned(),
        clock: clock.clone(),
        state_dir: None,
        manifest_dir: PathBuf::from("/nonexistent"),
        allowed_hosts: Vec::new(),
        listen,
    })
}

/// Returns a connector that creates in-memory connections to the agent. A connection ends when the client drops its end.
fn connector(agent: Agent) -> Connector {
    Arc::new(move || {
        let agent = agent.clone();
        async move {
            let (near, far) = tokio::io::duplex(PIPE);
            tokio::spawn(serve_stream(far, agent));
            io::Result::Ok(Box::new(near) as Box<dyn Stream>)
        }
        .boxed()
    })
}
