//! Address of a node's server: an `http://` URL or the `unix://` path of its socket.

use std::fmt;
use std::path::{Path, PathBuf};

use http::Uri;

use crate::cli::node::{SERVER, SOCKET};
use crate::ctl::code::Code;
use crate::ctl::error::CliError;

/// Hint in errors about a server that does not answer or is not an ota-server.
pub(super) const CHECK: &str = "
This command contacts the node that it runs on. Check that this is the right node, and that yurt-ds ota-server runs on
it: kubectl -n yurt-ds-edge get pods -o wide -l app.kubernetes.io/component=ota-server
If the server uses another port or socket, as YurtHub may (--serve-port), name it with --server or YURT_DS_SERVER.";
/// Prefix of `--server` for the path of a Unix socket.
const UNIX: &str = "unix://";

/// Address of the node's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeServer {
    /// Host and port, as sent in the `Host` header.
    pub(super) authority: String,
    /// Port or socket that requests are sent to.
    pub(super) place: Place,
}

/// A TCP port or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Port {
        /// Host name or IP address.
        host: String,
        port: u16,
    },
    Socket(PathBuf),
}

impl NodeServer {
    /// Parses the value of `--server`.
    ///
    /// # Errors
    /// Returns an error that says what is wrong with the value, and gives an example.
    pub(super) fn read(typed: &str) -> Result<Self, CliError> {
        let wrong = |why: &str| {
            let text = format!(
                "{typed:?} is not the address of a server (--server, YURT_DS_SERVER): {why}, such as {SERVER} or \
                 {UNIX}{SOCKET}."
            );
            CliError::new(Code::Usage, text)
        };
        if let Some(path) = typed.strip_prefix(UNIX) {
            return if path.starts_with('/') {
                Ok(Self::socket(Path::new(path)))
            } else {
                Err(wrong("write the socket's whole path"))
            };
        }
        let uri: Uri = typed
            .parse()
            .map_err(|_| wrong("write scheme, host and port"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(wrong(
                    "https is not supported; the server of a node listens on loopback without TLS, so write http",
                ));
            }
            _ => return Err(wrong("start it with http:// or unix://")),
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong("remove the text after the port"));
        }
        let authority = uri
            .authority()
            .ok_or_else(|| wrong("write host and port"))?;
        if authority.as_str().contains('@') {
            return Err(wrong(
                "remove user and password, because the server has no login",
            ));
        }
        let host = authority.host();
        // Parse the port here: `Authority::port()` returns `None` for a port that is out of range, such as 99999.
        let port = match authority.as_str().strip_prefix(host).unwrap_or_default() {
            "" => Some(80),
            port => port.trim_start_matches(':').parse().ok(),
        };
        let host = host.trim_matches(['[', ']']);
        match port {
            Some(port) if port > 0 && !host.is_empty() => Ok(Self {
                authority: authority.as_str().to_owned(),
                place: Place::Port {
                    host: host.to_owned(),
                    port,
                },
            }),
            _ => Err(wrong("write host and port")),
        }
    }

    /// Returns the server that listens on the socket.
    pub(super) fn socket(path: &Path) -> Self {
        Self {
            authority: "localhost".to_owned(),
            place: Place::Socket(path.to_owned()),
        }
    }
}

impl fmt::Display for NodeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Port { .. } => write!(f, "http://{}", self.authority),
            Place::Socket(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_addresses_are_parsed() {
        #[track_caller]
        fn case(typed: &str, host: &str, port: u16) {
            let server = NodeServer::read(typed).unwrap();
            let host = host.to_owned();
            assert_eq!(server.place, Place::Port { host, port }, "{typed}");
        }
        case("http://127.0.0.1:10267", "127.0.0.1", 10267);
        case("http://127.0.0.1:10267/", "127.0.0.1", 10267);
        case("HTTP://localhost:1", "localhost", 1);
        case("http://[::1]:10267", "::1", 10267);
        case("http://node-7", "node-7", 80);
        let server = NodeServer::read("unix:///run/my agent/ota.sock").unwrap();
        let path = PathBuf::from("/run/my agent/ota.sock");
        assert_eq!(server.place, Place::Socket(path));
        assert_eq!(server.authority, "localhost");
        assert_eq!(server.to_string(), "unix:///run/my agent/ota.sock");
    }

    #[test]
    fn an_invalid_address_is_answered_with_the_valid_syntax() {
        #[track_caller]
        fn case(typed: &str, word: &str) {
            let error = NodeServer::read(typed).unwrap_err();
            assert_eq!(error.code, Code::Usage);
            assert!(error.text.contains(word), "{error}");
            assert!(error.text.contains(SERVER), "{error}");
        }
        case("", "scheme, host and port");
        case("127.0.0.1:10267", "start it with http:// or unix://");
        case("localhost", "start it with http:// or unix://");
        case("/run/yurt-ds/ota.sock", "start it with http:// or unix://");
        case("unix:/run/yurt-ds/ota.sock", "scheme, host and port");
        case("unix://", "the socket's whole path");
        case("unix://run/yurt-ds/ota.sock", "the socket's whole path");
        case("https://127.0.0.1:10267", "https is not supported");
        case("ftp://127.0.0.1", "start it with http:// or unix://");
        case("http://", "scheme, host and port");
        case("http://127.0.0.1:0", "host and port");
        case("http://127.0.0.1:99999", "host and port");
        case("http://me:secret@127.0.0.1:10267", "has no login");
        case("http://127.0.0.1:10267/pods", "after the port");
        case("http://127.0.0.1:10267/?x=y", "after the port");
        case("http://a b", "scheme, host and port");
    }
}
