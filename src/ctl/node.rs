//! `yurt-ds ctl pods`, `upgrade` and `imagepull`: commands for node owners on their node.
//!
//! ```text
//! typed ─find─► pod ─── POST ──► answer ─follow─► (GET /pods, once a second) ─► outcome
//!                │
//! GET /pods ─────┴─► rows ─► table, JSON, YAML
//! ```
//!
//! The commands send requests to the server on the node itself: `yurt-ds ota-server`, or OpenYurt's YurtHub. They use routes that
//! both servers have, and one optional route of yurt-ds. They need no cluster access and no kubeconfig. Responses are escaped
//! before they are shown.

mod act;
mod answer;
mod client;
mod connect;
mod find;
mod follow;
mod imagepull;
mod list;
mod pod;
mod pull;
mod row;
mod server;
mod succession;
#[cfg(test)]
mod tests;
mod upgrade;
mod upgrades;

pub use client::NodeClient;
pub use connect::{Connector, Stream};
pub(super) use row::FIELDS;
pub use row::{ActRow, ContainerRow, NodePodRow};

use super::code::Code;
use super::error::CliError;
use super::screen::Screen;
use crate::cli::node::NodeVerb;
use crate::clock::Clock;

/// Runs a command on a node.
///
/// # Errors
/// Returns the error together with its exit code.
pub async fn perform_on_node(
    verb: &NodeVerb,
    client: &NodeClient,
    screen: &mut Screen<'_>,
    clock: &Clock,
) -> Result<Code, CliError> {
    match verb {
        NodeVerb::Pods(args) => list::pods(client, args, screen, clock).await,
        NodeVerb::Upgrade(args) => upgrade::upgrade(client, args, screen).await,
        NodeVerb::Imagepull(args) => imagepull::imagepull(client, args, screen).await,
    }
}
