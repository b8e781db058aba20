//! Checks of the origin of requests. Only programs on this machine, and pages that this server itself served, may send requests.
//!
//! Requests over loopback need no password, so any web page in a browser on the device could send one. The headers `Origin`,
//! `Sec-Fetch-Site` and `Referer` name the page that sends a request. `Host` reveals an attacker's DNS name that resolves to
//! 127.0.0.1. All checks precede the reading of the body.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::header::{HOST, HeaderMap, HeaderName, ORIGIN, REFERER};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, StatusCode, Uri, Version};

use super::answer::Answer;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Listener on which a request arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// The TCP port.
    Port,
    /// The Unix socket. Its mode and group determine which users may connect.
    Socket,
    /// The port for the kubelet's probes. Other requests are rejected.
    Probes,
}

/// Host names that requests to this server may use.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestOrigin {
    listen: Option<IpAddr>,
    allowed: Vec<String>,
}

impl RequestOrigin {
    /// Allows loopback names, the listen address and the names in `allowed`.
    pub(super) fn new(listen: Option<SocketAddr>, allowed: &[String]) -> Self {
        let listen = listen.map(|address| address.ip());
        Self {
            listen: listen.filter(|address| !address.is_unspecified()),
            allowed: allowed.to_vec(),
        }
    }

    /// Checks that a request is allowed.
    ///
    /// `Host` is checked only on the TCP port: browsers cannot reach the socket, and the probe port serves no data. Headers that
    /// only browsers send are checked on all listeners, because a proxy may forward a browser's requests to the socket.
    ///
    /// # Errors
    /// Returns the answer that rejects the request. Its text says what to change.
    pub(super) fn check(&self, head: &Parts, endpoint: Endpoint) -> Result<(), Answer> {
        let host = host(head)?;
        if endpoint == Endpoint::Port {
            let authority = head.uri.authority().map(Authority::as_str);
            for name in authority.into_iter().chain(host) {
                self.own(name)?;
            }
        }
        let header = |name: &HeaderName| single(&head.headers, name);
        if let Some(origin) = header(&ORIGIN)?
            && !is_same(origin, host)
        {
            return Err(foreign(format!(
                "Requests from pages of {origin} are not allowed, only from programs on this machine and this server's own \
                 pages. Use `yurt-ds ctl` or curl"
            )));
        }
        if let Some(site) = header(&SEC_FETCH_SITE)?
            && !["same-origin", "none"].contains(&site)
        {
            return Err(foreign(format!(
                "Requests from pages of other sites are not allowed (Sec-Fetch-Site: {site}), only from programs on this \
                 machine and this server's own pages. Use `yurt-ds ctl` or curl"
            )));
        }
        match header(&REFERER)? {
            Some(referer) if !is_same(referer, host) => Err(foreign(
                "Requests from links and forms of other pages are not allowed (Referer), only from programs on this machine \
                 and this server's own pages. Use `yurt-ds ctl` or curl"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Returns an error if `host` is not a name of this server.
    fn own(&self, host: &str) -> Result<(), Answer> {
        match name(host) {
            Some(name) if self.is_own(&name) => Ok(()),
            _ => Err(Answer::new(
                StatusCode::MISDIRECTED_REQUEST,
                "ForeignHost",
                format!(
                    "This server does not accept the host {host:?}. Use 127.0.0.1 or localhost, or start the agent with \
                     --allowed-host NAME"
                ),
            )),
        }
    }

    fn is_own(&self, name: &str) -> bool {
        if self
            .allowed
            .iter()
            .any(|own| own.eq_ignore_ascii_case(name))
        {
            return true;
        }
        let bare = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let address = match bare {
            Some(v6) => v6.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            None => name.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        };
        match address {
            Some(address) => address.is_loopback() || Some(address) == self.listen,
            None => name.eq_ignore_ascii_case("localhost"),
        }
    }
}

/// Returns true if the text is a valid value for `--allowed-host`: a name or an address, without a port.
pub(super) fn is_name(text: &str) -> bool {
    name(text).is_some_and(|name| name == text)
}

/// Returns the host in `host:port`, or `None` if the text is invalid.
fn name(host: &str) -> Option<String> {
    let authority: Authority = host.parse().ok()?;
    let is_plain = !host.contains('@') && !authority.host().is_empty();
    let port = host.strip_prefix(authority.host())?;
    let is_port = match port.strip_prefix(':') {
        Some(digits) => digits.parse::<u16>().is_ok(),
        None => port.is_empty(),
    };
    (is_plain && is_port).then(|| authority.host().to_owned())
}

/// Returns the header `Host`. Only HTTP/1.0 requests may omit it.
fn host(head: &Parts) -> Result<Option<&str>, Answer> {
    match single(&head.headers, &HOST)? {
        Some(host) => Ok(Some(host)),
        None if head.version < Version::HTTP_11 => Ok(None),
        None => Err(Answer::new(
            StatusCode::BAD_REQUEST,
            "NoHost",
            "The header Host is missing. HTTP/1.1 requires it, as in `Host: 127.0.0.1:10267`",
        )),
    }
}

/// Returns the value of a header, or an error if the header occurs more than once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Answer> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), rest) = (values.next(), values.next()) else {
        return Ok(None);
    };
    match (value.to_str(), rest) {
        (Ok(text), None) => Ok(Some(text)),
        _ => Err(Answer::new(
            StatusCode::BAD_REQUEST,
            "BadHeader",
            format!("The header {name} must occur once, in plain text"),
        )),
    }
}

/// Returns true if the URL has the same host and port as `host`.
fn is_same(url: &str, host: Option<&str>) -> bool {
    let Ok(url) = HeaderValue::from_str(url) else {
        return false;
    };
    let Ok(url) = Uri::try_from(url.as_bytes()) else {
        return false;
    };
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let (Some(authority), Some(host)) = (url.authority(), host) else {
        return false;
    };
    is_http && authority.as_str().eq_ignore_ascii_case(host)
}

fn foreign(text: String) -> Answer {
    Answer::new(StatusCode::FORBIDDEN, "ForeignOrigin", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    #[track_caller]
    fn case(version: Version, uri: &str, headers: &[(&str, &str)], expected: u16) {
        at(Endpoint::Port, version, uri, headers, expected);
    }

    #[track_caller]
    fn at(
        endpoint: Endpoint,
        version: Version,
        uri: &str,
        headers: &[(&str, &str)],
        expected: u16,
    ) {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let listen = "192.0.2.7:10267".parse().unwrap();
        let origin = RequestOrigin::new(Some(listen), &["edge.example".to_owned()]);
        let found = match origin.check(&head, endpoint) {
            Ok(()) => 200,
            Err(answer) => {
                assert!(answer.text.len() > 30, "{answer:?}");
                answer.status.as_u16()
            }
        };
        assert_eq!(found, expected, "{uri} {headers:?}");
    }

    #[test]
    fn only_own_host_names_are_accepted() {
        let host = |host: &str, expected| {
            case(Version::HTTP_11, "/pods", &[("host", host)], expected);
        };
        for own in [
            "127.0.0.1",
            "127.0.0.1:10267",
            "127.0.0.1:80",
            "127.9.8.7",
            "localhost",
            "LOCALHOST:10267",
            "[::1]",
            "[::1]:10267",
            "192.0.2.7:10267",
            "edge.example",
            "Edge.Example:443",
        ] {
            host(own, 200);
        }
        for foreign in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "evil.example@127.0.0.1",
            "192.0.2.8",
            "0.0.0.0",
            "0x7f.0.0.1",
            "2130706433",
            "0177.0.0.1",
            "[::2]",
            "[::1",
            "::1",
            "127.0.0.1:",
            "127.0.0.1:99999",
            "127.0.0.1:x",
            "",
            " ",
            "localhost.",
            "a b",
        ] {
            host(foreign, 421);
        }
    }

    #[test]
    fn http_1_1_requires_exactly_one_host() {
        case(Version::HTTP_11, "/pods", &[], 400);
        case(Version::HTTP_10, "/pods", &[], 200);
        case(Version::HTTP_10, "/pods", &[("host", "evil.example")], 421);
        let twice = [("host", "127.0.0.1"), ("host", "127.0.0.1")];
        case(Version::HTTP_11, "/pods", &twice, 400);
    }

    #[test]
    fn proxy_requests_to_other_hosts_are_refused() {
        let own = [("host", "127.0.0.1:10267")];
        case(Version::HTTP_11, "http://127.0.0.1:10267/pods", &own, 200);
        case(Version::HTTP_11, "http://evil.example/pods", &own, 421);
        case(Version::HTTP_11, "http://x@127.0.0.1/pods", &own, 421);
        let foreign = [("host", "evil.example")];
        case(
            Version::HTTP_11,
            "http://127.0.0.1:10267/pods",
            &foreign,
            421,
        );
    }

    #[test]
    fn requests_from_other_sites_are_refused() {
        let own = "127.0.0.1:10267";
        let with = |name: &str, value: &str, expected| {
            let headers = [("host", own), (name, value)];
            case(Version::HTTP_11, "/pods", &headers, expected);
        };
        with("origin", "http://127.0.0.1:10267", 200);
        with("origin", "https://127.0.0.1:10267", 200);
        with("origin", "http://127.0.0.1", 403);
        with("origin", "http://127.0.0.1:8080", 403);
        with("origin", "http://localhost:10267", 403);
        with("origin", "http://evil.example", 403);
        with("origin", "null", 403);
        with("origin", "", 403);
        with("origin", "file://127.0.0.1:10267", 403);
        with("origin", "http://127.0.0.1:10267@evil.example", 403);
        with("sec-fetch-site", "same-origin", 200);
        with("sec-fetch-site", "none", 200);
        with("sec-fetch-site", "same-site", 403);
        with("sec-fetch-site", "cross-site", 403);
        with("sec-fetch-site", "", 403);
        with("referer", "http://127.0.0.1:10267/", 200);
        with("referer", "http://127.0.0.1:10267/page?x=1", 200);
        with("referer", "http://evil.example/", 403);
        with("referer", "/page", 403);
        with("referer", "about:blank", 403);
        let twice = [
            ("host", own),
            ("origin", "http://127.0.0.1:10267"),
            ("origin", "http://evil.example"),
        ];
        case(Version::HTTP_11, "/pods", &twice, 400);
        case(
            Version::HTTP_10,
            "/pods",
            &[("origin", "http://127.0.0.1")],
            403,
        );
    }

    #[test]
    fn socket_and_probes_accept_any_host_but_no_other_site() {
        for endpoint in [Endpoint::Socket, Endpoint::Probes] {
            let with = |headers: &[(&str, &str)], expected| {
                at(endpoint, Version::HTTP_11, "/pods", headers, expected);
            };
            with(&[("host", "localhost")], 200);
            with(&[("host", "docker.example")], 200);
            with(&[("host", "")], 200);
            with(&[], 400);
            let own = [("host", "edge.lan"), ("origin", "https://edge.lan")];
            with(&own, 200);
            let foreign = [("host", "edge.lan"), ("origin", "http://evil.example")];
            with(&foreign, 403);
            let foreign = [("host", "edge.lan"), ("sec-fetch-site", "cross-site")];
            with(&foreign, 403);
        }
    }

    #[test]
    fn an_allowed_host_is_a_name_without_a_port() {
        assert!(is_name("edge.example"));
        assert!(is_name("192.0.2.7"));
        assert!(is_name("[2001:db8::1]"));
        for odd in ["", "edge:80", "http://edge", "a/b", "a b", "user@edge"] {
            assert!(!is_name(odd), "{odd}");
        }
    }
}
