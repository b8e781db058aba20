//! Results of a request to the node's server: accepted, rejected with a reason and next steps, or completed.

use http::StatusCode;

use super::answer::{ActReply, one_line};
use super::client::Edge;
use super::pod::{AnnouncedUpdate, LocalPod, PulledImages};
use super::row::{ActRow, NodePodRow};
use super::server::CHECK;
use crate::cli::Output;
use crate::core::messages::is_about_jobs;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::print;
use crate::ctl::screen::Screen;

/// Action that the user requests from the node's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeAct {
    /// Replaces a pod. The flag is true with `--force`.
    Upgrade(bool),
    /// Pulls the images of a pod's new revision while the old pod runs.
    ImagePull,
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ActOutcome {
    /// Exit code.
    pub(super) code: Code,
    /// Result in one word.
    pub(super) word: &'static str,
    /// Message for the user.
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
    pub(super) fn row(self, pod: &LocalPod, reply: &ActReply, outcome: &ActOutcome) -> ActRow {
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
    /// Returns the server's reason and the next steps if it did not.
    pub(super) fn agreed(
        self,
        edge: &Edge,
        pod: &LocalPod,
        reply: &ActReply,
    ) -> Result<(), CliError> {
        let ActReply { status, text, .. } = reply;
        let said = match text.trim_end_matches('.') {
            "" => format!("HTTP {}", status.as_u16()),
            text => format!("{text} (HTTP {})", status.as_u16()),
        };
        let server = &edge.server;
        let (code, sentence) = match *status {
            status if status.is_success() => return Ok(()),
            StatusCode::SERVICE_UNAVAILABLE if text.contains("disconnected") => (
                Code::Disconnected,
                format!(
                    "{said}. Nothing was done, and nothing will be later: ask again when the node is back in contact \
                     with the cloud."
                ),
            ),
            _ if is_missing(reply) => (
                Code::NotFound,
                format!("{said}. What is here: yurt-ds ctl pods"),
            ),
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => (
                Code::Unreachable,
                format!(
                    "{server} does not know the request {}: {said}. Is something else behind that port?{}",
                    self.word(),
                    CHECK
                ),
            ),
            status if status.is_client_error() => (
                Code::Refused,
                format!(
                    "The server of this node refuses: {said}.{}",
                    self.way_on(pod, reply)
                ),
            ),
            _ => (
                Code::Failed,
                format!("The server of this node, {server}, could not do it: {said}."),
            ),
        };
        Err(CliError::new(code, sentence))
    }

    /// Returns the next steps after a rejected request, if the server's reason or the pod's state explains the rejection.
    fn way_on(self, pod: &LocalPod, reply: &ActReply) -> String {
        if let Some(told) = reply.reason.as_deref().and_then(told) {
            return format!(" {told}");
        }
        let key = one_line(&pod.key());
        if pod.is_deleting() {
            return " It is being replaced already; yurt-ds ctl pods shows how far it is.".into();
        }
        if pod.update() != Some(AnnouncedUpdate::Available) {
            return " Nothing newer is announced for it; yurt-ds ctl upgrade shows what is.".into();
        }
        let pull = format!("yurt-ds ctl imagepull {key} --wait");
        match (self, pod.images()) {
            (Self::ImagePull, _) | (_, None | Some(PulledImages::Pulled)) => String::new(),
            (Self::Upgrade(true), Some(_)) => {
                format!(" If this server does not know --force, pull once more: {pull}")
            }
            (Self::Upgrade(false), Some(PulledImages::Pulling)) => {
                format!(
                    " Its images are being pulled. Wait for them: {pull}; or do without: --force"
                )
            }
            (Self::Upgrade(false), Some(PulledImages::Failed(why))) if is_about_jobs(&why) => {
                " That is mended in the cluster, not here; to do without the pull: --force"
                    .to_owned()
            }
            (Self::Upgrade(false), Some(_)) => {
                format!(" Pull once more: {pull}; or do without: --force")
            }
        }
    }
}

/// Explains a reason in the server's response to the node owner. The text is shown after the server's own text.
fn told(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "Paused" => "Its DaemonSet is paused in the cloud: ask again when somebody has resumed it.",
        "ModeChanged" => {
            "Its DaemonSet is not under OTA any more, or its settings cannot be used; that is decided in the cloud."
        }
        "DaemonSetGone" => {
            "Its DaemonSet does not exist any more: the cloud is about to remove the pod."
        }
        "NativeControllerBehind" => {
            "The cloud has not taken over the last change of its DaemonSet yet: ask again in a moment."
        }
        "UntoleratedTaint" => {
            "kubectl describe node shows its taints, the template of the DaemonSet what it tolerates; without a pod \
             nevertheless: --force"
        }
        "NotOutdated" => "It runs the newest revision already, whatever was announced.",
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
    pod: &LocalPod,
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
