//! Address of a receiver, and the HTTP client for it.

use std::future::Future;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Uri, response};
use http_body_util::Full;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// Function that sends a request and returns the head of the response.
pub(in crate::controller) type Transport =
    Arc<dyn Fn(Request<Full<Bytes>>) -> BoxFuture<'static, Result<response::Parts>> + Send + Sync>;

/// Address of a receiver, with the client that connects to it.
#[derive(Clone)]
pub(in crate::controller) struct Endpoint {
    uri: Uri,
    transport: Transport,
}

impl Endpoint {
    /// Parses the value of a flag and creates the client.
    ///
    /// # Errors
    /// If the URL is unusable, or if there are no CA certificates for `https`. The error doesn't contain the URL, because its path
    /// or query may contain a token.
    pub(in crate::controller) fn parse(flag: &str, url: &str) -> Result<Self> {
        let Ok(uri) = url.parse::<Uri>() else {
            bail!("{flag} is not a URL: use https://HOST/PATH");
        };
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            bail!("{flag} is not a complete URL: use https://HOST/PATH");
        };
        if !["http", "https"].contains(&scheme) {
            bail!("{flag} has the scheme {scheme:?}: use https://HOST/PATH");
        }
        if authority.as_str().contains('@') {
            bail!("{flag} contains a user name or password: use https://HOST/PATH without them");
        }
        let port = authority.as_str().strip_prefix(authority.host());
        let has_port = port.is_some_and(|port| !port.is_empty());
        if authority.host().is_empty()
            || has_port && authority.port_u16().is_none_or(|port| port == 0)
        {
            bail!("{flag} has no valid host and port: use https://HOST/PATH");
        }
        let transport =
            transport(scheme == "https").with_context(|| format!("cannot use {flag}"))?;
        Ok(Self { uri, transport })
    }

    /// Returns an endpoint with this transport, for tests in virtual time, which sockets don't follow.
    #[cfg(test)]
    pub(in crate::controller) fn through(transport: Transport) -> Self {
        let uri = Uri::from_static("http://receiver.test/hook?token=t0p");
        Self { uri, transport }
    }

    /// Returns the URL, which may contain a token.
    pub(in crate::controller) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns scheme, host and port. They contain no secrets.
    pub(super) fn name(&self) -> String {
        let scheme = self.uri.scheme_str().unwrap_or_default();
        let authority = self
            .uri
            .authority()
            .map_or("", |authority| authority.as_str());
        format!("{scheme}://{authority}")
    }

    /// Sends a request and returns the head of the response.
    pub(super) fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> impl Future<Output = Result<response::Parts>> + use<> {
        (self.transport)(request)
    }
}

/// Returns a transport that opens a connection per request and follows no redirects.
fn transport(is_https: bool) -> Result<Transport> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let mut builder = Client::builder(TokioExecutor::new());
    // A connection without requests would be closed before the next message, and bodies of responses are not read.
    builder.pool_max_idle_per_host(0);
    if !is_https {
        let client = builder.build(tcp);
        return Ok(Arc::new(move |request| head(client.request(request))));
    }
    let https = HttpsConnectorBuilder::new()
        .with_native_roots()
        .context("there are no CA certificates: set SSL_CERT_FILE or SSL_CERT_DIR")?
        .https_only()
        .enable_http1()
        .wrap_connector(tcp);
    let client = builder.build(https);
    Ok(Arc::new(move |request| head(client.request(request))))
}

fn head(
    response: hyper_util::client::legacy::ResponseFuture,
) -> BoxFuture<'static, Result<response::Parts>> {
    async { Ok(response.await?.into_parts().0) }.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusable_url_is_rejected_without_its_secrets() {
        for (url, expected) in [
            ("", "--notify-url is not a URL: use https://HOST/PATH"),
            (
                "hooks t0p",
                "--notify-url is not a URL: use https://HOST/PATH",
            ),
            (
                "/hook?token=t0p",
                "--notify-url is not a complete URL: use https://HOST/PATH",
            ),
            (
                "t0p.example.com:80",
                "--notify-url is not a complete URL: use https://HOST/PATH",
            ),
            (
                "ftp://example.com/t0p",
                "--notify-url has the scheme \"ftp\": use https://HOST/PATH",
            ),
            (
                "http://example.com:99999/t0p",
                "--notify-url has no valid host and port: use https://HOST/PATH",
            ),
            (
                "http://example.com:t0p/",
                "--notify-url has no valid host and port: use https://HOST/PATH",
            ),
            (
                "http://example.com:0/",
                "--notify-url has no valid host and port: use https://HOST/PATH",
            ),
            (
                "https://me:t0p@example.com/",
                "--notify-url contains a user name or password: use https://HOST/PATH without them",
            ),
        ] {
            let error = Endpoint::parse("--notify-url", url).err().unwrap();
            assert_eq!(error.to_string(), expected, "{url}");
        }
        for url in ["http://[::1]:8080/", "http://example.com"] {
            assert!(Endpoint::parse("--notify-url", url).is_ok(), "{url}");
        }
        // A machine without CA certificates is the only reason for an error.
        if let Err(error) = Endpoint::parse("--notify-url", "https://example.com/hook") {
            assert!(
                format!("{error:#}").contains("no CA certificates"),
                "{error:#}"
            );
        }
        let endpoint = Endpoint::parse("--notify-url", "http://example.com:8080/hook?t0p").unwrap();
        assert_eq!(endpoint.name(), "http://example.com:8080");
    }
}
