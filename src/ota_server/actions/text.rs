//! The answers of both actions, to the letter (docs/reference/node-api.md).

use http::StatusCode;

use super::reason::Reason;
use crate::k8s::client::{CallError, Failure};
use crate::ota_server::answer::Answer;
use crate::ota_server::cloud::is_silent;
use crate::ota_server::pod::{NodePodCondition, PodKey};

/// Characters of an admission's words that an answer quotes.
const LONGEST: usize = 400;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActionVerb {
    /// Replace the pod.
    Upgrade {
        /// Also when the images that were asked for are not there.
        force: bool,
    },
    /// Have its images pulled.
    ImagePull,
}

impl ActionVerb {
    /// 12: it is done, or under way.
    pub(super) fn accepted(self, key: &PodKey, reason: Reason) -> Answer {
        let text = match self {
            Self::Upgrade { .. } => format!("Start updating pod {key}"),
            Self::ImagePull => format!("Image pre-pull requested for pod {key}"),
        };
        answer(StatusCode::OK, reason, text)
    }

    /// 3: it goes already.
    pub(super) fn deleting(self, key: &PodKey) -> Answer {
        let detail = format!("Pod {key} is deleting, can not be updated");
        self.refused(key, Reason::Deleting, &detail)
    }

    /// 4: it runs elsewhere.
    pub(super) fn other_node(self, key: &PodKey, node: &str) -> Answer {
        let detail = format!("Pod: {key} is running on {node}, can not be updated");
        self.refused(key, Reason::OtherNode, &detail)
    }

    /// 5: nothing waits for it; `reason` says how that is known.
    pub(super) fn not_upgradable(self, key: &PodKey, reason: Reason) -> Answer {
        let detail = format!("Pod: {key} update status is False, can not be updated");
        self.refused(key, reason, &detail)
    }

    fn refused(self, key: &PodKey, reason: Reason, detail: &str) -> Answer {
        let text = match self {
            Self::Upgrade { .. } => format!(
                "Pre check update pod failed, Failed to check pod {key} status, error: {detail}"
            ),
            Self::ImagePull => format!("Failed to check pod status {key}, error: {detail}"),
        };
        answer(StatusCode::FORBIDDEN, reason, text)
    }

    /// 11: the write was refused, or there was no answer to it.
    pub(super) fn not_applied(self, reason: Reason) -> Answer {
        answer(StatusCode::INTERNAL_SERVER_ERROR, reason, self.failed())
    }

    /// 11: admission refuses the write; its words stand behind the text that programs know.
    pub(super) fn refused_by_admission(self, said: &str) -> Answer {
        let words: Vec<&str> = said.split_whitespace().collect();
        let said: String = words.join(" ").chars().take(LONGEST).collect();
        let text = format!("{}, the API server refuses: {said}", self.failed());
        answer(StatusCode::INTERNAL_SERVER_ERROR, Reason::Refused, text)
    }

    fn failed(self) -> &'static str {
        match self {
            Self::Upgrade { .. } => "Apply update failed",
            Self::ImagePull => "Patch pod status for imagepull failed",
        }
    }
}

/// 1: the cloud is not there, or asks to be left alone.
pub(super) fn disconnected(reason: Reason) -> Answer {
    let text = "OTA upgrade is not allowed when node is disconnected to cloud";
    answer(StatusCode::SERVICE_UNAVAILABLE, reason, text)
}

/// 2: the pod is not there.
pub(super) fn not_found(key: &PodKey) -> Answer {
    let text = format!("Get pod failed, pods {:?} not found", key.name);
    answer(StatusCode::INTERNAL_SERVER_ERROR, Reason::NotFound, text)
}

/// 1 or 2: what is needed for the decision could not be read.
pub(super) fn not_read(error: &CallError) -> Answer {
    let failed = |reason| {
        let text = match error {
            CallError::Kube(kube::Error::Api(status)) => status.message.clone(),
            error => error.to_string(),
        };
        let text = format!("Get pod failed, {text}");
        answer(StatusCode::INTERNAL_SERVER_ERROR, reason, text)
    };
    match error.failure() {
        _ if is_silent(error) => disconnected(Reason::Disconnected),
        Failure::Throttled => disconnected(Reason::Throttled),
        Failure::Gone => failed(Reason::NotFound),
        Failure::Forbidden => failed(Reason::Forbidden),
        _ => failed(Reason::ReadFailed),
    }
}

/// 6: the images are not there. What to do about a failure is said behind the text that programs know.
pub(super) fn image_not_ready(key: &PodKey, image: &NodePodCondition, failed: bool) -> Answer {
    let (reason, cure) = if failed {
        (
            Reason::ImagePullFailed,
            ". Ask for imagepull again, or for the upgrade with ?force=true to do without it.",
        )
    } else {
        (Reason::ImageNotReady, "")
    };
    let text = format!(
        "Pre check update pod failed, Failed to check pod {key} image ready, error: Pod: {key} image is not ready, \
         reason: {}, message: {}{cure}",
        image.reason, image.message
    );
    answer(StatusCode::FORBIDDEN, reason, text)
}

/// What keeps the next pod away from this node, for whoever wanted to replace the one that is there.
pub(super) const REPELLED: &str = "this node has a taint of effect NoSchedule that its DaemonSet does not tolerate, so no new pod would come";

/// Beside OpenYurt's rows: there would be no pod afterwards.
pub(super) fn repelled(key: &PodKey) -> Answer {
    let text = format!(
        "Pre check update pod failed, Pod: {key} is not replaced: {REPELLED}. Take the taint away first, or ask for the \
         upgrade with ?force=true to be left without a pod."
    );
    answer(StatusCode::CONFLICT, Reason::UntoleratedTaint, text)
}

/// 7: nobody would make it again.
pub(super) fn no_owner() -> Answer {
    let text = "Pod has no owner references";
    answer(StatusCode::BAD_REQUEST, Reason::NoOwner, text)
}

/// 8: somebody else does.
pub(super) fn unsupported(kind: &str) -> Answer {
    let text = format!("Not support ota upgrade pod type {kind}");
    answer(StatusCode::BAD_REQUEST, Reason::UnsupportedKind, text)
}

/// 9: a static pod of another node, or none.
pub(super) fn static_name() -> Answer {
    let text = "Static pod pre-check failed";
    answer(
        StatusCode::INTERNAL_SERVER_ERROR,
        Reason::StaticPodName,
        text,
    )
}

/// An answer.
pub(super) fn answer(status: StatusCode, reason: Reason, text: impl Into<String>) -> Answer {
    Answer::new(status, reason.word(), text)
}
