//! `yurt-ds ota-server`: the agent with which a node owner lists updates, pre-pulls images and confirms upgrades.
//!
//! ```text
//!                        ┌─ watch ──► cache ───► document (GET /pods, ETag)     state (disk)
//! API server ◄───────────┤              │
//!                        └─ actions ◄───┴──── route ◄── origin ◄── listen ◄──── owner (loopback, Unix socket)
//!                           (upgrade, imagepull)
//! ```
//!
//! The agent answers reads from its cache, so reads work without a connection to the API server. It also uses the cache to reject
//! requests for pods of other nodes. Only a request that could succeed reaches the API server.

mod actions;
mod agent;
mod answer;
mod answer_body;
mod body;
mod cloud;
mod document;
pub(crate) mod group;
mod last_sync;
mod listen;
mod origin;
pub mod permissions;
mod pod;
mod pod_cache;
mod received;
mod reply;
mod route;
mod state;
mod watch;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use futures::future::OptionFuture;
use tokio::net::TcpListener;
use tracing::{info, warn};

pub use self::agent::{Agent, AgentConfig};
pub use self::answer_body::AnswerBody;
use self::listen::socket::{Socket, SocketConfig};
pub use self::listen::{serve, serve_stream};
use crate::cli::ota_server::OtaServerArgs;
use crate::clock::Clock;
use crate::k8s::client::{self, Role, Source};
use crate::shutdown::Shutdown;

/// Runs the agent until shutdown is requested.
///
/// # Errors
/// Fails if there are no usable credentials, a port or socket is in use, or a name is invalid.
pub async fn start(args: OtaServerArgs, shutdown: Shutdown) -> Result<()> {
    let source = Source {
        kubeconfig: args.kubeconfig.clone(),
        in_cluster: args.kubeconfig.is_none(),
        ..Source::default()
    };
    let client = client::connect(&source, Role::OtaServer).await?;
    let port = match args.listen.0 {
        Some(address) => Some(bind(address, "--listen").await?),
        None => None,
    };
    let probes = match args.probe_listen {
        Some(address) => Some(bind(address, "--probe-listen").await?),
        None => None,
    };
    let socket = match socket_config(&args)? {
        Some(config) => Some((Socket::open(&config).await?, config)),
        None => None,
    };
    if port.is_none() && socket.is_none() {
        bail!("no address to listen on: --listen is none and --socket is not set. Set one of them");
    }
    let address = local_address(port.as_ref())?;
    let agent = Agent::start(AgentConfig {
        client,
        node: args.node_name,
        clock: Clock::System,
        state_dir: args.state_dir,
        manifest_dir: args.manifest_dir,
        allowed_hosts: args.allowed_host,
        listen: address,
    })?;
    info!(
        address = address.map(tracing::field::display),
        socket = socket
            .as_ref()
            .map(|(_, config)| tracing::field::display(config)),
        probes = local_address(probes.as_ref())?.map(tracing::field::display),
        version = env!("CARGO_PKG_VERSION"),
        "Listening"
    );
    if let Some(address) = address
        && !listen::is_loopback(address.ip())
    {
        warn!(
            %address,
            "Every program that reaches this address can read and upgrade the pods of this node without a password. Use a \
             loopback address (--listen) or a firewall"
        );
    }
    let served = |endpoint: TcpListener| serve(endpoint, agent.clone(), shutdown.clone());
    let probed = |endpoint| listen::serve_probes(endpoint, agent.clone(), shutdown.clone());
    let spoken = |(socket, _)| listen::serve_socket(socket, agent.clone(), shutdown.clone());
    tokio::join!(
        OptionFuture::from(port.map(served)),
        OptionFuture::from(probes.map(probed)),
        OptionFuture::from(socket.map(spoken)),
    );
    agent.close().await;
    Ok(())
}

async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} ({flag}): is another ota-server, or YurtHub, listening there?")
    })
}

fn local_address(listener: Option<&TcpListener>) -> Result<Option<SocketAddr>> {
    let address = listener.map(TcpListener::local_addr).transpose();
    address.context("a listener has no address")
}

fn socket_config(args: &OtaServerArgs) -> Result<Option<SocketConfig>> {
    let Some(path) = &args.socket else {
        return Ok(None);
    };
    let group = args.socket_group.as_deref().map(group::id).transpose()?;
    Ok(Some(SocketConfig {
        path: path.clone(),
        mode: args.socket_mode,
        group,
    }))
}
