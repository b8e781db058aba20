//! Classes of failed writes ([`ErrorClass`]). The class shows whether the failure concerns one pod or all writes.

use crate::core::foreign::cut;
use crate::core::messages::refusals::lacks_permission;
use crate::k8s::client::{CallError, Failure};

use super::apply::WriteError;

/// Maximum length of the API server's message that is kept.
const LONGEST: usize = 300;

/// Placeholder for the pod's name in a message, so that the same failure of a thousand pods has one message.
const ITSELF: &str = "POD";

/// Class of a failed write to a pod. It decides which writes are delayed, and what is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorClass {
    /// The write was not sent, the pod is gone, or a PodDisruptionBudget blocks the write. Such a block is reported elsewhere.
    Ignored,
    /// The API server doesn't respond, throttles requests, or doesn't accept the credentials yet. All writes slow down.
    Busy,
    /// The pod has changed since it was read.
    Conflict,
    /// The API server had an internal error, for this object or for all.
    Internal,
    /// An admission policy, a webhook or a quota rejects the write.
    Rejected,
    /// The controller lacks a permission (RBAC).
    NotPermitted,
    /// The object would be invalid, so any client's write would fail.
    Invalid,
}

impl ErrorClass {
    /// Returns true if the write will fail again until a user changes something in the cluster.
    pub(super) fn is_rejection(self) -> bool {
        matches!(self, Self::Rejected | Self::NotPermitted | Self::Invalid)
    }
}

pub(super) fn class(error: &WriteError) -> ErrorClass {
    let WriteError::Failed { error: call, .. } = error else {
        return ErrorClass::Ignored;
    };
    let CallError::Kube(kube::Error::Api(status)) = call else {
        return ErrorClass::Busy;
    };
    let rejection = || match &status.message {
        message if lacks_permission(message) => ErrorClass::NotPermitted,
        message if status.code == 422 && message.contains(IS_INVALID) => ErrorClass::Invalid,
        _ => ErrorClass::Rejected,
    };
    match call.failure() {
        Failure::Gone | Failure::Blocked => ErrorClass::Ignored,
        Failure::Conflict => ErrorClass::Conflict,
        // 401: the credentials may have just been renewed, so the next attempts may succeed.
        Failure::Forbidden if status.code == 401 => ErrorClass::Busy,
        Failure::Forbidden | Failure::Refused => rejection(),
        Failure::Unreachable if is_by_webhook(error) => rejection(),
        Failure::Unreachable if status.code == 500 => ErrorClass::Internal,
        Failure::Throttled | Failure::Unreachable => ErrorClass::Busy,
    }
}

/// Returns the API server's message about a failed write to the pod `pod`, or the cause if there was no response.
///
/// Returns an empty text for [`ErrorClass::Ignored`].
pub(super) fn message(error: &WriteError, pod: &str) -> String {
    match error {
        _ if class(error) == ErrorClass::Ignored => String::new(),
        WriteError::NotLeader => String::new(),
        WriteError::Failed {
            error: CallError::Kube(kube::Error::Api(status)),
            ..
        } => sentence(&status.message, pod),
        WriteError::Failed { error: call, .. } => sentence(&call.to_string(), pod),
    }
}

/// Returns true if an admission webhook rejected the write. Admission runs before anything is stored, so the write had no effect.
pub(super) fn is_by_webhook(refusal: &WriteError) -> bool {
    match refusal {
        WriteError::Failed {
            error: CallError::Kube(kube::Error::Api(status)),
            ..
        } => status.code == 500 && status.message.contains("webhook"),
        _ => false,
    }
}

/// Text between the object and its error in a validation message of Kubernetes, such as `Pod "a" is invalid: …`.
const IS_INVALID: &str = " is invalid: ";
/// Text between the object and the reason of its rejection, in messages of admission and authorization.
const IS_FORBIDDEN: &str = " is forbidden: ";

/// Returns the API server's message in one line, without its prefix about the object. Replaces the names of that object and of
/// `pod` by [`ITSELF`], unless they are very short.
pub(super) fn sentence(message: &str, pod: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let about = [IS_FORBIDDEN, IS_INVALID].into_iter().find_map(|mark| {
        let (object, rest) = line.split_once(mark)?;
        // The message begins with the object: `pods "a" is forbidden: …` or `Pod "a" is invalid: …`.
        let name = object.split('"').nth(1)?;
        (object.split(' ').count() == 2).then_some((name, rest))
    });
    let (name, text) = about.unwrap_or((pod, &line));
    let mut text = text.to_owned();
    for name in [name, pod] {
        if name.len() > 3 {
            text = text.replace(name, ITSELF);
        }
    }
    if text.is_empty() {
        text = "it gives no reason".to_owned();
    }
    cut(&text, LONGEST).into_owned()
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

    /// Checks responses that Kubernetes 1.36 sent.
    #[test]
    fn each_api_error_has_a_class_and_a_message() {
        let case = |code: u16, message: &str, expected: &str, expected_class: ErrorClass| {
            let error = answer(code, message);
            let found = (super::message(&error, "agent-x7k2p"), class(&error));
            assert_eq!(
                found,
                (expected.to_owned(), expected_class),
                "{code} {message}"
            );
        };
        case(
            422,
            "pods \"agent-x7k2p\" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: not agent-x7k2p",
            "ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: not POD",
            ErrorClass::Rejected,
        );
        case(
            403,
            "pods \"agent-0123\" is forbidden: exceeded quota: none, requested: pods=1, used: pods=3, limited: pods=3",
            "exceeded quota: none, requested: pods=1, used: pods=3, limited: pods=3",
            ErrorClass::Rejected,
        );
        case(
            403,
            "pods \"agent-x7k2p\" is forbidden: User \"system:serviceaccount:a:b\" cannot delete resource \"pods\" in API group \"\" in the namespace \"shop\"",
            "User \"system:serviceaccount:a:b\" cannot delete resource \"pods\" in API group \"\" in the namespace \"shop\"",
            ErrorClass::NotPermitted,
        );
        case(
            422,
            "Pod \"agent-x7k2p\" is invalid: metadata.annotations[x]: Forbidden: may not add AppArmor annotations",
            "metadata.annotations[x]: Forbidden: may not add AppArmor annotations",
            ErrorClass::Invalid,
        );
        case(
            400,
            "admission webhook \"guard.example.io\" denied the request:\n  agent-x7k2p stays",
            "admission webhook \"guard.example.io\" denied the request: POD stays",
            ErrorClass::Rejected,
        );
        let webhook =
            "Internal error occurred: failed calling webhook \"guard.example.io\": no endpoints";
        case(500, webhook, webhook, ErrorClass::Rejected);
        assert!(is_by_webhook(&answer(500, webhook)));
        assert!(!is_by_webhook(&answer(
            500,
            "etcdserver: request timed out"
        )));
        case(404, "pods \"a\" not found", "", ErrorClass::Ignored);
        case(401, "Unauthorized", "Unauthorized", ErrorClass::Busy);
        case(429, "slower", "slower", ErrorClass::Busy);
        case(503, "not now", "not now", ErrorClass::Busy);
        case(
            409,
            "it has changed",
            "it has changed",
            ErrorClass::Conflict,
        );
        let internal = "etcdserver: request timed out";
        case(500, internal, internal, ErrorClass::Internal);
        let silent = WriteError::Failed {
            verb: "delete",
            resource: "pods",
            error: CallError::TimedOut(Duration::from_secs(4)),
        };
        let found = (super::message(&silent, "a"), class(&silent));
        assert_eq!(
            found,
            ("no response within 4s".to_owned(), ErrorClass::Busy)
        );
    }

    #[test]
    fn a_long_api_error_message_is_cut() {
        let text = sentence(&"é".repeat(1000), "a");
        assert_eq!(text.chars().count(), LONGEST + 1);
    }
}
