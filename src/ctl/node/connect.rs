//! Connections to the node's server: one HTTP/1.1 request per connection, over TCP, a Unix socket, or a stream in tests.
//!
//! Proxy settings in the environment are ignored, because the server is on this machine.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::ota_server::group;

/// Timeout for connecting. The server is on this machine or one network hop away.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// Timeout for a response. Before it responds, the server may send three requests to the cloud with a timeout of two seconds each,
/// and wait ten seconds for an admission webhook on the pod's deletion.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);
/// Maximum size of a response body in bytes. A node runs about a hundred pods of 6 KB each, which is far below this limit.
const MAX_BODY: usize = 64 << 20;

/// A byte stream for a request.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Function that opens a new connection.
pub type Connector = Arc<dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync>;

pub(super) fn tcp(host: String, port: u16) -> Connector {
    Arc::new(move || {
        let host = host.clone();
        async move {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        }
        .boxed()
    })
}

pub(super) fn unix(path: PathBuf) -> Connector {
    Arc::new(move || {
        let path = path.clone();
        async move {
            match UnixStream::connect(&path).await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn Stream>),
                Err(error) => Err(explained(error, &path)),
            }
        }
        .boxed()
    })
}

/// Adds an explanation to an error of connecting to the socket at `path`.
fn explained(error: io::Error, path: &Path) -> io::Error {
    let text = match error.kind() {
        io::ErrorKind::NotFound => "the socket does not exist".to_owned(),
        io::ErrorKind::ConnectionRefused => "no process listens on it".to_owned(),
        io::ErrorKind::PermissionDenied => format!("permission denied; {}", access(path)),
        _ => return error,
    };
    io::Error::new(error.kind(), text)
}

/// Returns the users that may connect, according to the permissions of the socket. If a directory hides the socket, uses the
/// permissions of that directory.
fn access(path: &Path) -> String {
    let mut visible = path.ancestors();
    let Some((place, metadata)) = visible.find_map(|at| Some((at, fs::metadata(at).ok()?))) else {
        return "run this as root".to_owned();
    };
    format!(
        "{} belongs to group {} and has mode {:04o}. Run this as root or as a member of that group",
        place.display(),
        group::name(metadata.gid()),
        metadata.mode() & 0o7777
    )
}

/// Reason why there is no usable response.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The connection could not be established.
    Unconnected(io::Error),
    /// The connection was not established within the timeout.
    NotInTime,
    /// The response was not complete within the timeout.
    Slow,
    /// The connection ended too early, or the response is not HTTP.
    Broken(String),
    /// The response exceeds [`MAX_BODY`].
    Endless,
}

impl ConnectError {
    /// Returns true if the server may have received the request although there is no response.
    pub(super) fn may_have_been_received(&self) -> bool {
        !matches!(self, Self::Unconnected(_) | Self::NotInTime)
    }

    /// Returns true if the socket does not exist.
    pub(super) fn is_nothing_there(&self) -> bool {
        matches!(self, Self::Unconnected(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unconnected(error) => f.write_str(&plain(error)),
            Self::NotInTime => {
                write!(f, "no connection within {}s", CONNECT_DEADLINE.as_secs())
            }
            Self::Slow => write!(
                f,
                "no complete response within {}s",
                ANSWER_DEADLINE.as_secs()
            ),
            Self::Broken(text) => write!(f, "the response cannot be decoded ({text})"),
            Self::Endless => write!(f, "the response has more than {} MiB", MAX_BODY >> 20),
        }
    }
}

/// Returns the text of an error in lower case and without its number: `connection refused`.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

/// Sends one request over a new connection, and returns the response.
pub(super) async fn exchange(
    connect: &Connector,
    request: Request<Empty<Bytes>>,
) -> Result<Response<Bytes>, ConnectError> {
    let stream = reached(connect).await?;
    timeout(ANSWER_DEADLINE, converse(stream, request))
        .await
        .unwrap_or(Err(ConnectError::Slow))
}

/// Opens a connection within the timeout.
pub(super) async fn reached(connect: &Connector) -> Result<Box<dyn Stream>, ConnectError> {
    match timeout(CONNECT_DEADLINE, connect()).await {
        Ok(stream) => stream.map_err(ConnectError::Unconnected),
        Err(_) => Err(ConnectError::NotInTime),
    }
}

async fn converse(
    stream: Box<dyn Stream>,
    request: Request<Empty<Bytes>>,
) -> Result<Response<Bytes>, ConnectError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(&error))?;
    let answer = async move {
        let response = sender.send_request(request).await;
        read(response.map_err(|error| broken(&error))?).await
    };
    // Drive the connection in this task too. If the connection fails, `answer` returns the error.
    let drive = async move { connection.await.ok() };
    tokio::pin!(answer);
    tokio::select! {
        answered = &mut answer => answered,
        _ended = drive => answer.await,
    }
}

async fn read(response: Response<Incoming>) -> Result<Response<Bytes>, ConnectError> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await;
    let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => broken(&error),
        Err(error) if error.is::<LengthLimitError>() => ConnectError::Endless,
        Err(error) => ConnectError::Broken(error.to_string()),
    })?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

fn broken(error: &hyper::Error) -> ConnectError {
    if error.is_parse() {
        return ConnectError::Broken("it is not HTTP".into());
    }
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        let cause = source.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        next = source.source();
    }
    ConnectError::Broken(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_errors_are_shown_without_error_numbers() {
        let refused = io::Error::from_raw_os_error(111);
        assert_eq!(
            ConnectError::Unconnected(refused).to_string(),
            "connection refused"
        );
    }

    #[tokio::test]
    async fn socket_problems_are_explained() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ota.sock");
        let why = async || match reached(&unix(path.clone())).await {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        assert_eq!(why().await, "the socket does not exist");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(why().await, "");
        drop(listener);
        assert_eq!(why().await, "no process listens on it");
    }

    #[test]
    fn a_denied_user_is_shown_the_group_and_the_mode() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ota.sock");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let denied = || {
            let error = io::Error::from(io::ErrorKind::PermissionDenied);
            ConnectError::Unconnected(explained(error, &path)).to_string()
        };
        let group = group::name(fs::metadata(&path).unwrap().gid());
        let expected = format!(
            "permission denied; {} belongs to group {group} and has mode 0640. Run this as root or as a member of that group",
            path.display()
        );
        assert_eq!(denied(), expected);
        fs::remove_file(&path).unwrap();
        let hidden = format!("{} belongs to group", directory.path().display());
        assert!(denied().contains(&hidden), "{}", denied());
    }
}
