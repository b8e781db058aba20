//! `yurt-ds ota-server`: the owner of a node asks what is new, pre-pulls, and confirms.
//!
//! ```text
//!                        ┌─ watch ──► memory ──► document (GET /pods, ETag)     state (disk)
//! API server ◄───────────┤              │
//!                        └─ actions ◄───┴──── route ◄── origin ◄── listen ◄──── owner (loopback)
//!                           (upgrade, imagepull)
//! ```
//!
//! Reads are answered from memory and work without the cloud. What is not a pod of this node is refused from memory.
//! Only a request that could succeed reaches the API server.

mod actions;
mod agent;
mod answer;
mod answer_body;
mod body;
mod cloud;
mod document;
mod json_list;
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

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tracing::{info, warn};

pub use self::agent::{Agent, AgentConfig};
pub use self::answer_body::AnswerBody;
pub use self::listen::{serve, serve_stream};
use crate::cli::ota_server::OtaServerArgs;
use crate::clock::Clock;
use crate::k8s::client::{self, Role, Source};
use crate::shutdown::Shutdown;

/// The process: listens, watches, answers, and ends when asked to.
///
/// # Errors
/// When it cannot start: no usable credentials, a port that is taken, a name that cannot be one.
pub async fn start(args: OtaServerArgs, shutdown: Shutdown) -> Result<()> {
    let source = Source {
        kubeconfig: args.kubeconfig.clone(),
        in_cluster: args.kubeconfig.is_none(),
        ..Source::default()
    };
    let client = client::connect(&source, Role::OtaServer).await?;
    let listener = TcpListener::bind(args.listen).await.with_context(|| {
        let address = args.listen;
        format!("cannot listen on {address} (--listen): is another ota-server, or YurtHub, listening there?")
    })?;
    let address = listener.local_addr()?;
    let agent = Agent::start(AgentConfig {
        client,
        node: args.node_name,
        clock: Clock::System,
        state_dir: args.state_dir,
        manifest_dir: args.manifest_dir,
        allowed_hosts: args.allowed_host,
        listen: Some(address),
    })?;
    info!(%address, version = env!("CARGO_PKG_VERSION"), "Listening");
    if !address.ip().is_loopback() {
        warn!(
            %address,
            "Whoever reaches this address may read and upgrade the pods of this node: there is no password; use a \
             loopback address (--listen), or a firewall"
        );
    }
    serve(listener, agent.clone(), shutdown).await;
    agent.close().await;
    Ok(())
}
