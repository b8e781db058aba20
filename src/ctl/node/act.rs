//! Results of a request to the node's server: accepted, rejected with a reason and next steps, or completed.

use http::StatusCode;

use super::answer::{ActReply, one_line};
use super::client::NodeClient;
use super::pod::{AnnouncedUpdate, PulledImages};
use super::row::{ActRow, NodePodRow};
use super::server::CHECK;
use crate::cli::Output;
use crate::core::messages::is_about_jobs;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::print;
use crate::ctl::screen::Screen;
use crate::k8s::Pod;

/// Action that the user requests from the node's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeAct {
    /// Replaces a pod. The flag is true with `--force`.
    Upgrade(bool),
    /// Pulls the images of a pod's new revision while the old pod runs.
    ImagePull,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ActOutcome {
    pub(super) code: Code,
    /// Result in one word.
    pub(super) word: &'static str,
    pub(super) message: String,
    /// New pod, or the pod whose images were pulled.
    pub(super) pod: Option<NodePodRow>,
}

impl NodeAct {
    fn word(self) -> &'static str {
        match self {
            Self::Upgrade(_) => "upgrade",
            Self::ImagePull => "imagepull",
        }
    }

    /// Builds the row of a request with this outcome.
    pub(super) fn row(self, pod: &Pod, reply: &ActReply, outcome: &ActOutcome) -> ActRow {
        ActRow {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            request: self.word(),
            answer: reply.text.clone(),
            outcome: outcome.word,
            message: outcome.message.clone(),
            pod: outcome.pod.clone(),
        }
    }

    /// Checks that the server accepted the request.
    ///
    /// # Errors
    /// Returns the server's reason and the next steps if the server rejected it.
    pub(super) fn agreed(
        self,
        client: &NodeClient,
        pod: &Pod,
        reply: &ActReply,
    ) -> Result<(), CliError> {
        let ActReply { status, text, .. } = reply;
        let reason = match text.trim_end_matches('.') {
            "" => format!("HTTP {}", status.as_u16()),
            text => format!("{text} (HTTP {})", status.as_u16()),
        };
        let server = &client.server;
        let (code, sentence) = match *status {
            status if status.is_success() => return Ok(()),
            StatusCode::SERVICE_UNAVAILABLE if text.contains("disconnected") => (
                Code::Disconnected,
                format!(
                    "{reason}. Nothing was done, and the request is not queued. Try again when the node is connected \
                     to the cloud."
                ),
            ),
            _ if is_missing(reply) => (
                Code::NotFound,
                format!("{reason}. List the pods of this node: yurt-ds ctl pods"),
            ),
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => (
                Code::Unreachable,
                format!(
                    "{server} does not support the request {}: {reason}. Another program may be using this address.{}",
                    self.word(),
                    CHECK
                ),
            ),
            status if status.is_client_error() => (
                Code::Refused,
                format!(
                    "The server of this node rejected the request: {reason}.{}",
                    self.way_on(pod, reply)
                ),
            ),
            _ => (
                Code::Failed,
                format!("The server of this node, {server}, failed: {reason}."),
            ),
        };
        Err(CliError::new(code, sentence))
    }

    /// Returns the next steps after a rejected request. They follow from the server's reason or the pod's state.
    fn way_on(self, pod: &Pod, reply: &ActReply) -> String {
        if let Some(text) = reply.reason.as_deref().and_then(explanation) {
            return format!(" {text}");
        }
        let key = one_line(&pod.key());
        if pod.is_deleting() {
            return " The pod is already being replaced. Check its progress: yurt-ds ctl pods"
                .into();
        }
        if AnnouncedUpdate::of(pod) != Some(AnnouncedUpdate::Available) {
            return " No update is announced for this pod. List the announced updates: yurt-ds ctl upgrade".into();
        }
        let pull = format!("yurt-ds ctl imagepull {key} --wait");
        match (self, PulledImages::of(pod)) {
            (Self::ImagePull, _) | (_, None | Some(PulledImages::Pulled)) => String::new(),
            (Self::Upgrade(true), Some(_)) => {
                format!(" If this server does not support --force, pull the images again: {pull}")
            }
            (Self::Upgrade(false), Some(PulledImages::Pulling)) => {
                format!(
                    " Its images are still being pulled. Wait for them: {pull}. Or upgrade without them: --force"
                )
            }
            (Self::Upgrade(false), Some(PulledImages::Failed(why))) if is_about_jobs(&why) => {
                " An operator has to fix that in the cluster. To upgrade without the images: --force"
                    .to_owned()
            }
            (Self::Upgrade(false), Some(_)) => {
                format!(" Pull the images again: {pull}. Or upgrade without them: --force")
            }
        }
    }
}

/// Returns an explanation of the server's reason for the node owner. It is shown after the server's own text.
fn explanation(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "Paused" => "Its DaemonSet is paused. Try again after an operator has resumed it.",
        "ModeChanged" => {
            "Its DaemonSet no longer uses OTA, or its settings are invalid. Only an operator can change that."
        }
        "DaemonSetGone" => "Its DaemonSet no longer exists. Kubernetes will delete the pod.",
        "NativeControllerBehind" => {
            "Kubernetes has not processed the latest change of its DaemonSet yet. Try again in a moment."
        }
        "UntoleratedTaint" => {
            "The taints are in kubectl describe node, the tolerations in the template of the DaemonSet. To upgrade \
             and leave the node without a pod: --force"
        }
        "NotOutdated" => "It already runs the newest revision.",
        _ => return None,
    })
}

/// Returns true if the server reports that the pod does not exist.
fn is_missing(reply: &ActReply) -> bool {
    let missing = |reason: &String| reason.eq_ignore_ascii_case("NotFound");
    reply.status == StatusCode::INTERNAL_SERVER_ERROR
        && (reply.reason.as_ref().is_some_and(missing)
            || (reply.text.starts_with("Get pod failed") && reply.text.contains("not found")))
}

/// Prints that the request was accepted, for a command without `--wait`.
///
/// # Errors
/// Fails if a row cannot be written as a document.
pub(super) fn accepted(
    act: NodeAct,
    pod: &Pod,
    reply: &ActReply,
    output: Output,
    screen: &mut Screen<'_>,
) -> Result<Code, CliError> {
    let outcome = ActOutcome {
        code: Code::Complete,
        word: "Accepted",
        message: reply.text.clone(),
        pod: None,
    };
    let text = match output {
        Output::Json | Output::Yaml => print::document(&act.row(pod, reply, &outcome), output)?,
        _ => format!("{}\n", reply.text),
    };
    let _ = screen.print(&text);
    Ok(outcome.code)
}
