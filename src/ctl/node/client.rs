//! Client of a node's server.

use std::path::Path;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, IF_NONE_MATCH, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::Empty;

use super::answer::{ActReply, Pods};
use super::connect::{ConnectError, Connector, exchange, reached, tcp, unix};
use super::server::{CHECK, NodeServer, Place};
use super::upgrades::Upgrades;
use crate::cli::node::{SERVER, SOCKET};
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::k8s::Pod;
use crate::k8s::client::Role;

/// A client of a node's server that opens a new connection for every request.
#[derive(Clone)]
pub struct NodeClient {
    pub(super) server: NodeServer,
    connect: Connector,
    /// Text that explains why the default socket cannot be used; `None` if it can be used or does not exist.
    passed_over: Option<String>,
    /// Namespace that `-n` names; `None` without `-n`.
    pub(super) namespace: Option<String>,
}

impl NodeClient {
    /// Creates a client for an address, as given in `--server`.
    ///
    /// # Errors
    /// Fails if the address is invalid.
    pub fn to(address: &str) -> Result<Self, CliError> {
        Ok(Self::at(NodeServer::read(address)?))
    }

    /// Creates a client for the server in `--server`. Without `--server`, uses the default socket, or the default port if the
    /// socket cannot be used.
    ///
    /// The socket is safer: any user can listen on a free port, but not in the directory of the socket.
    ///
    /// # Errors
    /// Fails like [`NodeClient::to`].
    pub async fn find(named: Option<&str>) -> Result<Self, CliError> {
        match named {
            Some(address) => Self::to(address),
            None => Self::usual(Path::new(SOCKET), SERVER).await,
        }
    }

    /// Creates a client for the given socket, or for the port if the socket cannot be used.
    pub(super) async fn usual(socket: &Path, port: &str) -> Result<Self, CliError> {
        let client = Self::at(NodeServer::socket(socket));
        let passed_over = match reached(&client.connect).await {
            Ok(_) => return Ok(client),
            Err(silence) if silence.is_nothing_there() => None,
            Err(silence) => Some(format!(
                " {} cannot be used either: {silence}.",
                client.server
            )),
        };
        Ok(Self {
            passed_over,
            ..Self::to(port)?
        })
    }

    fn at(server: NodeServer) -> Self {
        let connect = match &server.place {
            Place::Port { host, port } => tcp(host.clone(), *port),
            Place::Socket(path) => unix(path.clone()),
        };
        Self {
            server,
            connect,
            passed_over: None,
            namespace: None,
        }
    }

    /// Creates a client that connects with the given connector, for tests.
    ///
    /// # Errors
    /// Fails like [`NodeClient::to`].
    pub fn through(address: &str, connect: Connector) -> Result<Self, CliError> {
        let client = Self::to(address)?;
        Ok(Self { connect, ..client })
    }

    /// Sets the namespace for pod names without a namespace.
    pub fn in_namespace(self, namespace: Option<String>) -> Self {
        Self { namespace, ..self }
    }

    pub(super) async fn get_pods(&self) -> Result<Pods, CliError> {
        let response = self.ask(Method::GET, "/pods", None).await?;
        Pods::read(&self.server, &response)
    }

    /// Returns the names of the node's pods as `namespace/name`; `None` if the server does not answer.
    pub(in crate::ctl) async fn names(&self) -> Option<Vec<String>> {
        let pods = self.get_pods().await.ok()?;
        Some(pods.items.iter().map(Pod::key).collect())
    }

    /// Reads the pods again. The server sends them only if they have changed.
    pub(super) async fn look_again(&self, pods: &mut Pods) -> Result<(), CliError> {
        let response = self.ask(Method::GET, "/pods", pods.etag()).await?;
        pods.renew(&self.server, &response)
    }

    /// Returns the available upgrades; `None` if the server does not report them.
    pub(super) async fn get_upgrades(&self) -> Option<Upgrades> {
        let response = self.ask(Method::GET, "/yurt-ds/v1/upgrades", None).await;
        Upgrades::read(&response.ok()?)
    }

    /// Requests the replacement of a pod.
    pub(super) async fn upgrade(&self, pod: &Pod, force: bool) -> Result<ActReply, CliError> {
        let query = if force { "?force=true" } else { "" };
        self.act(pod, &format!("upgrade{query}")).await
    }

    /// Requests a pull of the images of a pod's new revision.
    pub(super) async fn image_pull(&self, pod: &Pod) -> Result<ActReply, CliError> {
        self.act(pod, "imagepull").await
    }

    async fn act(&self, pod: &Pod, what: &str) -> Result<ActReply, CliError> {
        let (namespace, name) = (pod.namespace(), pod.name());
        let path = format!("/openyurt.io/v1/namespaces/{namespace}/pods/{name}/{what}");
        let response = self.ask(Method::POST, &path, None).await?;
        Ok(ActReply::read(&response))
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        etag: Option<&str>,
    ) -> Result<Response<Bytes>, CliError> {
        let is_write = method == Method::POST;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.server.authority)
            .header(USER_AGENT, Role::Ctl.user_agent())
            .header(ACCEPT, "application/json")
            .header(CONNECTION, "close");
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let request = request.body(Empty::new()).map_err(|error| {
            let text = format!("Cannot send a request for {path:?}: {error}.");
            CliError::new(Code::Failed, text)
        })?;
        let answer = exchange(&self.connect, request).await;
        answer.map_err(|silence| self.unreachable(&silence, is_write))
    }

    /// Returns the error for a server that cannot be reached or does not answer, with hints.
    fn unreachable(&self, silence: &ConnectError, is_write: bool) -> CliError {
        let server = &self.server;
        let hint = if is_write && silence.may_have_been_received() {
            " The server may have received the request. Check: yurt-ds ctl pods"
        } else {
            ""
        };
        let passed_over = self.passed_over.as_deref().unwrap_or_default();
        let text = format!(
            "No answer from the server of this node, {server}: {silence}.{passed_over}{hint}{CHECK}"
        );
        CliError::new(Code::Unreachable, text)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn the_default_socket_is_used_if_it_responds_and_the_port_otherwise() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("ota.sock");
        let port = "http://127.0.0.1:1"; // below the ephemeral ports, and unused
        let usual = async || NodeClient::usual(&socket, port).await.unwrap();
        let error = async |client: NodeClient| client.get_pods().await.unwrap_err().text;

        let client = usual().await;
        assert_eq!(client.server.to_string(), port);
        let text = error(client).await;
        assert!(!text.contains("unix://"), "{text}");

        let listener = UnixListener::bind(&socket).unwrap();
        let shown = format!("unix://{}", socket.display());
        assert_eq!(usual().await.server.to_string(), shown);

        drop(listener);
        let client = usual().await;
        assert_eq!(client.server.to_string(), port);
        let text = error(client).await;
        let why = format!(
            "{port}: connection refused. {shown} cannot be used either: no process listens on it.\n"
        );
        assert!(text.contains(&why), "{text}");
    }
}
