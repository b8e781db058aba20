//! Error responses: a `v1` Status with the code, reason and message of kube-apiserver.

use serde_json::{Value, json};

/// Error of a rejected request. It is sent as a `v1` Status.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiFailure {
    /// HTTP status.
    pub code: u16,
    /// Machine-readable reason, such as `NotFound`.
    pub reason: &'static str,
    /// Message for a person.
    pub message: String,
    /// Kind and name of the object and causes of the error, if known.
    pub details: Option<Value>,
    /// Value of the `Retry-After` header, in seconds.
    pub retry_after: Option<u32>,
}

/// Invalid field that caused the error.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusCause {
    /// Machine-readable reason, such as `FieldValueRequired`.
    pub reason: &'static str,
    /// Path of the field, such as `spec.selector`.
    pub field: String,
    /// Description of the error.
    pub message: String,
}

impl StatusCause {
    /// Returns the cause for a missing field.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = match detail {
            "" => "Required value".to_owned(),
            detail => format!("Required value: {detail}"),
        };
        Self {
            reason: "FieldValueRequired",
            field: field.into(),
            message,
        }
    }

    /// Returns the cause for an invalid value.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            message: format!("Invalid value: {value}: {detail}"),
        }
    }

    /// Returns the cause for a field that must not be set or changed here.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.into(),
            message: format!("Forbidden: {detail}"),
        }
    }

    /// Returns the cause for a value that is not one of the allowed values.
    pub fn unsupported(field: impl Into<String>, value: &Value, allowed: &[&str]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
        Self {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message: format!(
                "Unsupported value: {value}: supported values: {}",
                allowed.join(", ")
            ),
        }
    }

    /// Returns the cause for a value that occurs twice in a list.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            field: field.into(),
            message: format!("Duplicate value: {value}"),
        }
    }
}

impl ApiFailure {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            retry_after: None,
        }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let mut details = json!({ "kind": kind });
        if !group.is_empty() {
            details["group"] = group.into();
        }
        if !name.is_empty() {
            details["name"] = name.into();
        }
        self.details = Some(details);
        self
    }

    /// Returns a 400: the request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Returns a 403: the request is not allowed. The message contains the resource, such as `pods` or `daemonsets.apps`.
    pub fn forbidden(group: &str, plural: &str, name: &str, why: impl std::fmt::Display) -> Self {
        let resource = qualified(plural, group);
        let message = match name {
            "" => format!("{resource} is forbidden: {why}"),
            name => format!("{resource} {name:?} is forbidden: {why}"),
        };
        Self::new(403, "Forbidden", message).about(group, plural, name)
    }

    /// Returns a 404: the object does not exist.
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let resource = qualified(plural, group);
        Self::new(404, "NotFound", format!("{resource} {name:?} not found"))
            .about(group, plural, name)
    }

    /// Returns a 404: the path does not exist.
    pub fn no_such_path() -> Self {
        let mut failure = Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        failure.details = Some(json!({}));
        failure
    }

    /// Returns a 405: the path does not support the verb.
    pub fn method_not_allowed() -> Self {
        let mut failure = Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        failure.details = Some(json!({}));
        failure
    }

    /// Returns a 406: the client accepts none of the representations.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(406, "NotAcceptable", message)
    }

    /// Returns a 409: an object with this name already exists.
    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let resource = qualified(plural, group);
        Self::new(
            409,
            "AlreadyExists",
            format!("{resource} {name:?} already exists"),
        )
        .about(group, plural, name)
    }

    /// Returns a 409: the stored object is not the one that the client expects.
    pub fn conflict(group: &str, plural: &str, name: &str, why: impl std::fmt::Display) -> Self {
        let resource = qualified(plural, group);
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {resource} {name:?}: {why}"),
        )
        .about(group, plural, name)
    }

    /// Returns a 409: the resourceVersion in the request is outdated.
    pub fn modified(group: &str, plural: &str, name: &str) -> Self {
        Self::conflict(
            group,
            plural,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Returns a 410: the events since this resourceVersion (or the continue token) have been dropped.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Returns a 413: the body exceeds the limit.
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// Returns a 415: the content type is not supported for this request.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// Returns a 422: fields are invalid.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: &[StatusCause]) -> Self {
        let list: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let list = match list.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let kind_and_group = qualified(kind, group);
        let mut failure = Self::new(
            422,
            "Invalid",
            format!("{kind_and_group} {name:?} is invalid: {list}"),
        )
        .about(group, kind, name);
        if let Some(details) = &mut failure.details {
            details["causes"] = causes
                .iter()
                .map(|cause| json!({ "reason": cause.reason, "message": cause.message, "field": cause.field }))
                .collect();
        }
        failure
    }

    /// Returns a 422: the operation cannot be applied to this object.
    pub fn unprocessable(why: String) -> Self {
        let mut failure = Self::new(
            422,
            "Invalid",
            format!("the server rejected our request due to an error in our request: {why}"),
        );
        failure.details = Some(json!({}));
        failure
    }

    /// Returns a 429: the client must try again later.
    pub fn too_many_requests(message: impl Into<String>, retry_after: Option<u32>) -> Self {
        let mut failure = Self::new(429, "TooManyRequests", message);
        failure.retry_after = retry_after;
        failure.details = Some(match retry_after {
            Some(seconds) => json!({ "retryAfterSeconds": seconds }),
            None => json!({}),
        });
        failure
    }

    /// Returns a 500 with an empty reason, which kube-apiserver sends for unclassified errors.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// Returns a 504: the requested resourceVersion is newer than that of the server.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut failure = Self::new(504, "Timeout", format!("Timeout: {message}"));
        failure.retry_after = Some(1);
        failure.details = Some(json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        }));
        failure
    }

    /// Returns the error of an injected fault or a proxy, with any status.
    pub fn of_status(code: u16, retry_after: Option<u32>) -> Self {
        let (reason, message) = match code {
            400 => ("BadRequest", "the server rejected our request"),
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "forbidden"),
            404 => (
                "NotFound",
                "the server could not find the requested resource",
            ),
            409 => (
                "Conflict",
                "the server reported a conflict; please apply your changes to the latest version and try again",
            ),
            410 => ("Gone", "the resource is no longer available"),
            429 => (
                "TooManyRequests",
                "the server has received too many requests and has asked us to try again later",
            ),
            500 => (
                "InternalError",
                "an error on the server has prevented the request from succeeding",
            ),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => (
                "Timeout",
                "the server was unable to return a response in the time allotted",
            ),
            _ => ("", "the server returned an error"),
        };
        let mut failure = Self::new(code, reason, message);
        failure.retry_after = retry_after;
        if let Some(seconds) = retry_after {
            failure.details = Some(json!({ "retryAfterSeconds": seconds }));
        }
        failure
    }

    /// Returns the error with another message.
    #[must_use]
    pub fn saying(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Returns the error as a Status object.
    pub fn to_json(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}

/// Returns a qualified name such as `pods` or `daemonsets.apps`.
pub fn qualified(word: &str, group: &str) -> String {
    match group {
        "" => word.to_owned(),
        group => format!("{word}.{group}"),
    }
}

/// Returns a Status that reports success.
pub(crate) fn success(details: Value) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    })
}
