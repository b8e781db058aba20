//! Clients that keep connections to the controller busy, and an API server that limits the controller's streams.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use yurt_ds::task::Task;

use super::BUSY;
use super::plane::{Plane, throughout};
use super::stage::{Setup, Stage};
use crate::support::objects::Daemon;

/// Number of clients that never read a response.
const CLIENTS: usize = 32;

/// Time for which these clients stay connected.
const LASTS: Duration = Duration::from_secs(20);

/// Time limit for a probe: 1 s, the default of the kubelet, and three times that on a busy machine.
const PROBE: Duration = Duration::from_secs(BUSY);

/// Number of DaemonSets. Each has its own label key, so the controller needs separate watches for it.
const DAEMONSETS: usize = 60;

pub(super) async fn clients_that_never_read(plane: &Plane) -> anyhow::Result<()> {
    Stage::play(plane, Setup::named("greedy"), async |stage| {
        let address = stage.controller()?.address;
        let _clients: Vec<Task> = (0..CLIENTS)
            .map(|_| Task::spawn(never_read(address)))
            .collect();
        // Wait until the unread responses fill the connections of all clients.
        tokio::time::sleep(Duration::from_secs(1)).await;
        throughout(LASTS, async || {
            for path in ["/live", "/ready"] {
                let answer = stage.controller()?.probe(path, PROBE).await;
                let (status, text) = answer.context("with clients that never read")?;
                ensure!(status == 200, "{path}: {status} {text}");
            }
            Ok(None)
        })
        .await?;
        stage.neighbour.roll().await
    })
    .await
}

/// Requests the metrics repeatedly without reading a response. Reconnects when the connection is closed.
async fn never_read(address: SocketAddr) {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
    loop {
        if let Ok(mut stream) = TcpStream::connect(address).await {
            while stream.write_all(request.as_bytes()).await.is_ok() {}
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The API server allows 20 streams per connection (`--http2-max-streams-per-connection=20`). The controller needs more, because it
/// watches pods and revisions for each label key.
pub(super) async fn few_streams_per_connection(plane: &Plane) -> anyhow::Result<()> {
    Stage::play(plane, Setup::named("streams"), async |stage| {
        let path = stage.tenant.path("daemonsets");
        let made = (0..DAEMONSETS).map(|number| {
            let labels = json!({ format!("key-{number}"): "x" });
            let mut set = Daemon::new()
                .renamed(&format!("set-{number}"))
                .manifest("nowhere");
            set["spec"]["selector"]["matchLabels"] = labels.clone();
            set["spec"]["template"]["metadata"]["labels"] = labels;
            let path = &path;
            async move { plane.create(path, &set).await }
        });
        try_join_all(made).await?;
        stage
            .outage_is_noticed()
            .await
            .context("before a restart")?;
        stage.neighbour_goes_on().await?;
        stage.outage_is_noticed().await.context("after a restart")
    })
    .await
}
