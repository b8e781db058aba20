//! HTTP responses and their headers.

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};

use super::answer::Answer;
use super::answer_body::AnswerBody;
use super::document::Document;
use super::route::{PATHS, Reject};
use crate::core::foreign::{self, cut};

/// Response of the agent. A response to `HEAD` has the body of `GET`, which the connection omits.
pub(super) type Reply = Response<AnswerBody>;

/// Header with the reason of an answer in one word, for programs.
const X_OTA_REASON: HeaderName = HeaderName::from_static("x-ota-reason");
/// Header with the age of the data: seconds since the API server last confirmed it.
const X_CACHE_AGE: HeaderName = HeaderName::from_static("x-cache-age");

const JSON: &str = "application/json";
/// Content type of plain texts.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// Returns a text response. Like OpenYurt (YurtHub's `otaupdate`), a success has the content type of JSON.
pub(super) fn words(answer: &Answer) -> Reply {
    let kind = if answer.status.is_success() {
        JSON
    } else {
        TEXT
    };
    let text = cut(&answer.text, foreign::TEXT).into_owned();
    let mut reply = plain(answer.status, kind, text);
    if !answer.reason.is_empty() {
        let reason = HeaderValue::from_static(answer.reason);
        reply.headers_mut().insert(X_OTA_REASON, reason);
    }
    reply
}

pub(super) fn json(value: &serde_json::Value) -> Reply {
    let text = foreign::json(&value.to_string()).into_owned();
    plain(StatusCode::OK, JSON, text)
}

/// Returns a text response that no cache may store.
pub(super) fn plain(status: StatusCode, kind: &'static str, text: String) -> Reply {
    let mut reply = Response::new(AnswerBody::words(text));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

/// Returns the list of pods, or 304 if `is_known` is true because the client already has it.
pub(super) fn document(document: Document, is_known: bool, age: Option<i64>) -> Reply {
    let mut reply = if is_known {
        Response::new(AnswerBody::words(""))
    } else {
        Response::new(AnswerBody::Pods(Box::new(document.body)))
    };
    if is_known {
        *reply.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = reply.headers_mut();
    if !is_known {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    }
    // A client may store the response, and has to revalidate it with If-None-Match.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(etag) = HeaderValue::try_from(document.etag) {
        headers.insert(ETAG, etag);
    }
    if let Some(age) = age {
        headers.insert(X_CACHE_AGE, age.into());
    }
    reply
}

/// Returns the error response to a request without a route.
pub(super) fn reject(reject: &Reject, method: &http::Method, path: &str) -> Reply {
    let (reason, text) = match reject {
        Reject::NotFound => (
            "NoSuchPath",
            format!("Unknown path {path:?}. Available: {PATHS}"),
        ),
        Reject::Method(allowed) => (
            "MethodNotAllowed",
            format!("{path} supports {allowed}, not {method}"),
        ),
        Reject::Bad(sentence) => ("BadRequest", sentence.clone()),
    };
    let mut reply = words(&Answer::new(reject.status(), reason, text));
    if let Reject::Method(allowed) = reject {
        let allow = HeaderValue::from_static(allowed);
        reply.headers_mut().insert(ALLOW, allow);
    }
    reply
}
