//! HTTP/1.1 server for a cluster, with a timeout for request headers and a graceful shutdown.

use std::future::Future;
use std::io;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use super::Cluster;
use crate::serve::Connections;

/// Time limit for receiving request headers. Clients on the same machine need far less.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for requests in progress at shutdown.
const GRACE: Duration = Duration::from_secs(3);

/// Accepts connections until `shutdown` completes.
pub(crate) async fn serve(
    cluster: Cluster,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut connections = Connections::on(listener);
    let (closing, _) = tokio::sync::watch::channel(false);
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = connections.accept() => accepted,
        };
        match accepted {
            // While the cluster is stopped, new connections are closed immediately.
            Ok(stream) if cluster.is_running() => {
                connections.spawn(connection(cluster.clone(), stream, closing.subscribe()));
            }
            Err(error) if is_fatal(&error) => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    let closing = async {
        closing.send_replace(true);
        cluster.disconnect_watches();
    };
    connections.end(GRACE, closing).await;
    Ok(())
}

fn is_fatal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
    )
}

async fn connection(
    cluster: Cluster,
    stream: TcpStream,
    mut closing: tokio::sync::watch::Receiver<bool>,
) {
    let service = {
        let cluster = cluster.clone();
        service_fn(move |request| {
            let cluster = cluster.clone();
            async move { cluster.handle(request).await }
        })
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        () = cluster.stopped() => return,
        // Ignore connection errors: the client has disconnected or doesn't use HTTP.
        _ = connection.as_mut() => return,
        _ = closing.wait_for(|closing| *closing) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        () = cluster.stopped() => {}
        _ = connection => {}
    }
}
