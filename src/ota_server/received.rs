//! Responses of the API server, processed piece by piece as they arrive. `kube` would have up to three copies of a response in
//! memory before it parses the response.

use std::io;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use kube::Client;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::k8s::json_list::ListSplitter;

/// Sends a request, and passes the pieces of its response to `take` as they arrive.
///
/// # Errors
/// Fails if the response is not a success, is incomplete, or pauses for longer than `silence`. Also returns errors of `take`.
pub(super) async fn receive(
    client: &Client,
    request: http::Request<Vec<u8>>,
    silence: Duration,
    mut take: impl FnMut(&[u8]) -> serde_json::Result<()>,
) -> kube::Result<()> {
    let opening = client.request_stream(request);
    let mut body = std::pin::pin!(in_time(silence, opening).await??);
    loop {
        let piece = in_time(silence, body.fill_buf()).await?;
        let piece = piece.map_err(kube::Error::ReadEvents)?;
        let length = piece.len();
        if length == 0 {
            return Ok(());
        }
        take(piece).map_err(kube::Error::SerdeError)?;
        AsyncBufRead::consume(body.as_mut(), length);
    }
}

/// Returns the items of a list. Each item is parsed as soon as it has arrived.
///
/// # Errors
/// Fails like [`receive`].
pub(super) async fn receive_items<T: DeserializeOwned>(
    client: &Client,
    request: http::Request<Vec<u8>>,
    silence: Duration,
) -> kube::Result<Vec<T>> {
    let (mut splitter, mut items) = (ListSplitter::default(), Vec::new());
    let take = |piece: &[u8]| {
        splitter.feed(piece, |item| {
            items.push(serde_json::from_slice(item));
            Ok(())
        })
    };
    receive(client, request, silence, take).await?;
    let rest = splitter.finish::<IgnoredAny>();
    rest.map_err(kube::Error::SerdeError)?;
    let items: serde_json::Result<Vec<T>> = items.into_iter().collect();
    items.map_err(kube::Error::SerdeError)
}

async fn in_time<T>(silence: Duration, piece: impl Future<Output = T>) -> kube::Result<T> {
    let waited = tokio::time::timeout(silence, piece).await;
    waited.map_err(|_| {
        let text = format!("no data for {silence:?}");
        kube::Error::ReadEvents(io::Error::new(io::ErrorKind::TimedOut, text))
    })
}
