//! The server of a node, as a client of it.

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, IF_NONE_MATCH, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::Empty;

use super::answer::{ActReply, Pods};
use super::connect::{ConnectError, Connector, exchange, tcp};
use super::pod::LocalPod;
use super::server::{CHECK, NodeServer};
use super::upgrades::Upgrades;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::k8s::client::Role;

/// The server of a node. Every request has a connection of its own.
#[derive(Clone)]
pub struct Edge {
    pub(super) server: NodeServer,
    connect: Connector,
    /// The namespace of `-n`.
    pub(super) namespace: Option<String>,
}

impl Edge {
    /// The server at that address, as typed after `--server`.
    ///
    /// # Errors
    /// When it is no address that can be used.
    pub fn to(address: &str) -> Result<Self, CliError> {
        let server = NodeServer::read(address)?;
        let connect = tcp(server.host.clone(), server.port);
        Ok(Self {
            server,
            connect,
            namespace: None,
        })
    }

    /// The same, over connections made by somebody else.
    ///
    /// # Errors
    /// As [`Edge::to`].
    pub fn through(address: &str, connect: Connector) -> Result<Self, CliError> {
        let edge = Self::to(address)?;
        Ok(Self { connect, ..edge })
    }

    /// The same, with the namespace of `-n`.
    pub fn in_namespace(self, namespace: Option<String>) -> Self {
        Self { namespace, ..self }
    }

    /// The pods of the node.
    pub(super) async fn get_pods(&self) -> Result<Pods, CliError> {
        let response = self.ask(Method::GET, "/pods", None).await?;
        Pods::read(&self.server, &response)
    }

    /// The names of its pods, with their namespaces; `None` when it does not answer.
    pub(in crate::ctl) async fn names(&self) -> Option<Vec<String>> {
        let pods = self.get_pods().await.ok()?;
        let name = |pod: &LocalPod| format!("{}/{}", pod.namespace(), pod.name());
        Some(pods.items.iter().map(name).collect())
    }

    /// The pods of the node, if they changed since.
    pub(super) async fn look_again(&self, pods: &mut Pods) -> Result<(), CliError> {
        let response = self.ask(Method::GET, "/pods", pods.etag()).await?;
        pods.renew(&self.server, &response)
    }

    /// What an upgrade would bring; `None` when this server does not tell.
    pub(super) async fn get_upgrades(&self) -> Option<Upgrades> {
        let response = self.ask(Method::GET, "/yurt-ds/v1/upgrades", None).await;
        Upgrades::read(&response.ok()?)
    }

    /// Asks for a pod to be replaced.
    pub(super) async fn upgrade(&self, pod: &LocalPod, force: bool) -> Result<ActReply, CliError> {
        let query = if force { "?force=true" } else { "" };
        self.act(pod, &format!("upgrade{query}")).await
    }

    /// Asks for the images of a pod's new version.
    pub(super) async fn image_pull(&self, pod: &LocalPod) -> Result<ActReply, CliError> {
        self.act(pod, "imagepull").await
    }

    async fn act(&self, pod: &LocalPod, what: &str) -> Result<ActReply, CliError> {
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
            let text = format!("{path:?} cannot be asked for: {error}.");
            CliError::new(Code::Failed, text)
        })?;
        let answer = exchange(&self.connect, request).await;
        answer.map_err(|silence| self.unreachable(&silence, is_write))
    }

    /// What was tried, what happened, and what to check.
    fn unreachable(&self, silence: &ConnectError, is_write: bool) -> CliError {
        let server = &self.server;
        let heard = match is_write && silence.may_have_been_heard() {
            true => {
                " It may have heard the request all the same: yurt-ds ctl pods shows whether something changed."
            }
            false => "",
        };
        let text = format!(
            "No answer from the server of this node, {server}: {silence}.{heard}{}",
            CHECK
        );
        CliError::new(Code::Unreachable, text)
    }
}
