//! What a refused write means: for the pod that it was about, or for all writes.

use crate::core::foreign::cut;
use crate::core::messages::refusals::lacks_permission;
use crate::k8s::client::{CallError, Failure};

use super::apply::WriteError;

/// The longest sentence that is kept of the API server's.
const LONGEST: usize = 300;

/// Stands for the pod's own name in such a sentence, so that a thousand pods are refused in the same words.
const ITSELF: &str = "POD";

/// What a refused write means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RefusalMeaning {
    /// Nothing: it was not sent, the pod is gone, or a disruption budget refused, which is told elsewhere.
    Nothing,
    /// The API server is not well, or wants fewer requests: all writes slow down. Where it is well with others all the time, who
    /// meets it again and again is refused.
    Server(String),
    /// The pod is not as it was judged.
    Conflict(String),
    /// Something is wrong inside the API server, with this object or with all: who meets it again and again is refused.
    Unwell(String),
    /// The API server does not want this write.
    Rejected(RejectedWrite),
}

impl RefusalMeaning {
    /// What the API server says about it, if there is something to say.
    pub(super) fn sentence(self) -> Option<String> {
        match self {
            Self::Rejected(rejected) => Some(rejected.sentence),
            Self::Server(said) | Self::Conflict(said) | Self::Unwell(said) => Some(said),
            Self::Nothing => None,
        }
    }
}

/// A write that the API server does not want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RejectedWrite {
    /// What the API server says about it.
    pub(super) sentence: String,
    /// Whether the controller lacks a permission (RBAC).
    pub(super) lacks_permission: bool,
    /// Whether the object would not be valid so, whoever asked for it.
    pub(super) is_invalid: bool,
}

/// What `refusal` of a write to the pod of this name means.
pub(super) fn meaning(refusal: &WriteError, pod: &str) -> RefusalMeaning {
    let WriteError::Failed { error, .. } = refusal else {
        return RefusalMeaning::Nothing;
    };
    let CallError::Kube(kube::Error::Api(status)) = error else {
        return RefusalMeaning::Server(sentence(&error.to_string(), pod));
    };
    let unwell = || RefusalMeaning::Server(sentence(&status.message, pod));
    let rejected = || {
        RefusalMeaning::Rejected(RejectedWrite {
            sentence: sentence(&status.message, pod),
            lacks_permission: lacks_permission(&status.message),
            is_invalid: status.code == 422 && status.message.contains(IS_INVALID),
        })
    };
    match error.failure() {
        Failure::Gone | Failure::Blocked => RefusalMeaning::Nothing,
        Failure::Conflict => RefusalMeaning::Conflict(sentence(&status.message, pod)),
        // Credentials that have just been renewed work in a moment.
        Failure::Forbidden if status.code == 401 => unwell(),
        Failure::Forbidden | Failure::Refused => rejected(),
        Failure::Unreachable if is_by_webhook(refusal) => rejected(),
        Failure::Unreachable if status.code == 500 => {
            RefusalMeaning::Unwell(sentence(&status.message, pod))
        }
        Failure::Throttled | Failure::Unreachable => unwell(),
    }
}

/// Whether it is certain that a write did not happen that was answered so: admission comes before everything else.
pub(super) fn is_by_webhook(refusal: &WriteError) -> bool {
    match refusal {
        WriteError::Failed {
            error: CallError::Kube(kube::Error::Api(status)),
            ..
        } => status.code == 500 && status.message.contains("webhook"),
        _ => false,
    }
}

/// Stands between the object and what is wrong with it (Kubernetes, validation).
const IS_INVALID: &str = " is invalid: ";
/// Stands between the object and who forbids it (Kubernetes, admission and authorization).
const IS_FORBIDDEN: &str = " is forbidden: ";

/// What the API server says, in one line, without the name of the pod in front.
pub(super) fn sentence(message: &str, pod: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let about = [IS_FORBIDDEN, IS_INVALID].into_iter().find_map(|mark| {
        let (object, rest) = line.split_once(mark)?;
        // `pods "a" is forbidden: …`, `Pod "a" is invalid: …`
        let name = object.split('"').nth(1)?;
        (object.split(' ').count() == 2).then_some((name, rest))
    });
    let (name, said) = about.unwrap_or((pod, &line));
    let mut said = said.to_owned();
    for name in [name, pod] {
        if name.len() > 3 {
            said = said.replace(name, ITSELF);
        }
    }
    if said.is_empty() {
        said = "it does not say why".to_owned();
    }
    cut(&said, LONGEST).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use std::time::Duration;

    fn answer(code: u16, message: &str) -> WriteError {
        let status = Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        };
        WriteError::Failed {
            verb: "delete",
            resource: "pods",
            error: CallError::Kube(kube::Error::Api(Box::new(status))),
        }
    }

    /// Answers as Kubernetes 1.36 gives them.
    #[test]
    fn an_answer_is_about_the_pod_about_a_right_or_about_the_server() {
        let case = |code: u16, message: &str, expected: Option<(&str, bool, bool)>| {
            let found = match meaning(&answer(code, message), "agent-x7k2p") {
                RefusalMeaning::Rejected(rejected) => Some(rejected),
                _ => None,
            };
            let found = found.as_ref().map(|found| {
                (
                    found.sentence.as_str(),
                    found.lacks_permission,
                    found.is_invalid,
                )
            });
            assert_eq!(found, expected, "{code} {message}");
        };
        case(
            422,
            "pods \"agent-x7k2p\" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: not agent-x7k2p",
            Some((
                "ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: not POD",
                false,
                false,
            )),
        );
        case(
            403,
            "pods \"agent-0123\" is forbidden: exceeded quota: none, requested: pods=1, used: pods=3, limited: pods=3",
            Some((
                "exceeded quota: none, requested: pods=1, used: pods=3, limited: pods=3",
                false,
                false,
            )),
        );
        case(
            403,
            "pods \"agent-x7k2p\" is forbidden: User \"system:serviceaccount:a:b\" cannot delete resource \"pods\" in API group \"\" in the namespace \"shop\"",
            Some((
                "User \"system:serviceaccount:a:b\" cannot delete resource \"pods\" in API group \"\" in the namespace \"shop\"",
                true,
                false,
            )),
        );
        case(
            422,
            "Pod \"agent-x7k2p\" is invalid: metadata.annotations[x]: Forbidden: may not add AppArmor annotations",
            Some((
                "metadata.annotations[x]: Forbidden: may not add AppArmor annotations",
                false,
                true,
            )),
        );
        case(
            400,
            "admission webhook \"guard.example.io\" denied the request:\n  agent-x7k2p stays",
            Some((
                "admission webhook \"guard.example.io\" denied the request: POD stays",
                false,
                false,
            )),
        );
        let webhook =
            "Internal error occurred: failed calling webhook \"guard.example.io\": no endpoints";
        case(500, webhook, Some((webhook, false, false)));
        assert!(is_by_webhook(&answer(500, webhook)));
        assert!(!is_by_webhook(&answer(
            500,
            "etcdserver: request timed out"
        )));
        for (code, message) in [
            (404, "pods \"a\" not found"),
            (401, "Unauthorized"),
            (429, "too many requests"),
            (503, "the server is currently unable to handle the request"),
        ] {
            case(code, message, None);
        }
        assert_eq!(
            meaning(&answer(429, "slower"), "a"),
            RefusalMeaning::Server("slower".into())
        );
        assert_eq!(meaning(&answer(404, "gone"), "a"), RefusalMeaning::Nothing);
        assert_eq!(
            meaning(&answer(409, "the object has been modified"), "a"),
            RefusalMeaning::Conflict("the object has been modified".into())
        );
        assert_eq!(
            meaning(&answer(500, "etcdserver: request timed out"), "a"),
            RefusalMeaning::Unwell("etcdserver: request timed out".into())
        );
        let silent = WriteError::Failed {
            verb: "delete",
            resource: "pods",
            error: CallError::TimedOut(Duration::from_secs(4)),
        };
        assert_eq!(
            meaning(&silent, "a"),
            RefusalMeaning::Server("no answer within 4s".into())
        );
    }

    #[test]
    fn a_long_sentence_is_cut() {
        let said = sentence(&"é".repeat(1000), "a");
        assert_eq!(said.chars().count(), LONGEST + 1);
    }
}
