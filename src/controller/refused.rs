//! Meaning of a failed write: for its pod only, or for all writes.

use crate::core::foreign::cut;
use crate::core::messages::refusals::lacks_permission;
use crate::k8s::client::{CallError, Failure};

use super::apply::WriteError;

/// Longest part of the API server's message that is kept.
const LONGEST: usize = 300;

/// Placeholder for the pod's name in a message, so that a thousand pods fail with the same message.
const ITSELF: &str = "POD";

/// Class of a failed write to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorClass {
    /// The write was not sent, the pod is gone, or a disruption budget blocks it, which is reported elsewhere.
    Ignored,
    /// The API server doesn't answer, asks for fewer requests, or doesn't know the credentials yet. All writes slow down.
    Busy,
    /// The pod has changed since it was read.
    Conflict,
    /// The API server failed internally, for this object or for all.
    Internal,
    /// A policy, a webhook or a quota rejects the write.
    Rejected,
    /// The controller lacks a permission (RBAC).
    NotPermitted,
    /// The object would be invalid, whichever client writes it.
    Invalid,
}

impl ErrorClass {
    /// Returns true if the same write fails until a user changes the cluster.
    pub(super) fn is_rejection(self) -> bool {
        matches!(self, Self::Rejected | Self::NotPermitted | Self::Invalid)
    }
}

/// Returns the class of a failed write.
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
        // Renewed credentials work after a moment.
        Failure::Forbidden if status.code == 401 => ErrorClass::Busy,
        Failure::Forbidden | Failure::Refused => rejection(),
        Failure::Unreachable if is_by_webhook(error) => rejection(),
        Failure::Unreachable if status.code == 500 => ErrorClass::Internal,
        Failure::Throttled | Failure::Unreachable => ErrorClass::Busy,
    }
}

/// Returns the API server's message about a failed write to the pod of this name, or the cause if it didn't answer. Empty for
/// [`ErrorClass::Ignored`].
pub(super) fn message(error: &WriteError, pod: &str) -> String {
    match error {
        WriteError::Failed { error: call, .. } if class(error) != ErrorClass::Ignored => match call
        {
            CallError::Kube(kube::Error::Api(status)) => sentence(&status.message, pod),
            call => sentence(&call.to_string(), pod),
        },
        _ => String::new(),
    }
}

/// Returns true if a write with this answer certainly had no effect, because admission runs before everything else.
pub(super) fn is_by_webhook(refusal: &WriteError) -> bool {
    match refusal {
        WriteError::Failed {
            error: CallError::Kube(kube::Error::Api(status)),
            ..
        } => status.code == 500 && status.message.contains("webhook"),
        _ => false,
    }
}

/// Text between the object and its error (Kubernetes, validation).
const IS_INVALID: &str = " is invalid: ";
/// Text between the object and the reason for its rejection (Kubernetes, admission and authorization).
const IS_FORBIDDEN: &str = " is forbidden: ";

/// Returns the API server's message in one line, without the name of the pod at its beginning.
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

    /// Answers of Kubernetes 1.36.
    #[test]
    fn each_answer_has_a_class_and_a_message() {
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
        assert_eq!(found, ("no answer within 4s".to_owned(), ErrorClass::Busy));
    }

    #[test]
    fn a_long_sentence_is_cut() {
        let said = sentence(&"é".repeat(1000), "a");
        assert_eq!(said.chars().count(), LONGEST + 1);
    }
}
