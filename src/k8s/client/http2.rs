//! The controller's connections: HTTP/2 where the API server speaks it, one for watches and one for everything else.
//!
//! `kube` asks for HTTP/1.1 alone, where every request under way has a connection, and a TLS handshake, of its own. Here a batch of deletions
//! shares one. Watches have another: what of them is not read yet may fill its window, and no write, least of all the renewal
//! of the Lease, may wait for that.
//!
//! A connection that died without a word is noticed by a ping that nobody answers: where requests wait on it, within the time
//! that a write may take.

use std::time::Duration;

use anyhow::{Context, Result};
use http::Request;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use tower::ServiceBuilder;

/// Silence on a connection with requests under way after which a ping is sent, and how long its answer may take.
/// Together less than [`WRITE_DEADLINE`](super::WRITE_DEADLINE).
const PING: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_secs(2));
/// The same where watches alone wait, which are silent for long.
const WATCH_PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15));
/// What a stream, and all of a connection, may send before it is read, in bytes: what the slow reader of a fast server holds in memory. With a
/// quarter of that, a streaming list of 50,000 pods takes twice as long: the thread sleeps between reads (see
/// [`Gathering`](crate::controller::Gathering)).
const WINDOWS: (u32, u32) = (1 << 20, 2 << 20);

type Connector = TimeoutConnector<HttpsConnector<HttpConnector>>;

/// A client for the API server of `config`; does not talk to it yet.
///
/// Lists are not compressed: beside the API server that costs both sides more than it saves.
///
/// # Errors
/// When the certificates or headers of `config` cannot be used.
pub(super) fn client(config: &Config) -> Result<Client> {
    let (watches, calls) = (pool(config, WATCH_PING)?, pool(config, PING)?);
    let send = move |request: Request<Body>| match is_watch(&request) {
        true => watches.request(super::streaming::of_now(request)),
        false => calls.request(request),
    };
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(tower::service_fn(send));
    Ok(Client::new(stack, config.default_namespace.clone()))
}

fn is_watch(request: &Request<Body>) -> bool {
    let mut asked = request.uri().query().unwrap_or_default().split('&');
    asked.any(|parameter| ["watch=true", "watch=1"].contains(&parameter))
}

fn pool(
    config: &Config,
    (interval, timeout): (Duration, Duration),
) -> Result<HttpClient<Connector, Body>> {
    let (window, connection_window) = WINDOWS;
    Ok(HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(interval)
        .http2_keep_alive_timeout(timeout)
        .http2_initial_stream_window_size(window)
        .http2_initial_connection_window_size(connection_window)
        .build(connector(config)?))
}

fn connector(config: &Config) -> Result<Connector> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let tls = config.rustls_client_config()?;
    let mut https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name
            .clone()
            .try_into()
            .with_context(|| format!("tls-server-name {name:?}"))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let mut connector = TimeoutConnector::new(https.enable_all_versions().wrap_connector(tcp));
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    Ok(connector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_told_from_everything_else() {
        for (uri, expected) in [
            ("/api/v1/pods?watch=true&resourceVersion=5", true),
            ("/api/v1/pods?labelSelector=app%3Da&watch=1", true),
            ("/api/v1/pods?labelSelector=watch%3Dtrue", false),
            ("/api/v1/pods?watch=false", false),
            ("/api/v1/namespaces/n/pods/watch", false),
        ] {
            let request = Request::get(uri).body(Body::empty()).unwrap();
            assert_eq!(is_watch(&request), expected, "{uri}");
        }
    }

    /// In time for a write to be told as unanswered, and for the next one to have a connection that works.
    #[test]
    fn a_dead_connection_is_given_up_within_the_time_of_a_write() {
        assert!(PING.0 + PING.1 < super::super::WRITE_DEADLINE);
    }
}
