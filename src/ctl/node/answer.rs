//! Responses of the node's server: a list of pods, or a text. Another program may listen on the port, so any response is possible.

use bytes::Bytes;
use http::header::ETAG;
use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::server::{CHECK, NodeServer};
use crate::core::foreign;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::k8s::Pod;

/// Header with the age of the server's data in seconds.
const AGE: &str = "x-cache-age";
/// Header with the reason for a rejection in one word. Only yurt-ds servers send it.
const REASON: &str = "x-ota-reason";
/// Maximum length in characters of a text from the server. Longer texts are cut.
const LONGEST: usize = 500;
/// Age in seconds above which the data is marked as old. A connected node gets data from the cloud at least every two minutes.
const OLD: u64 = 120;

/// Pods of the node, as the server reported them.
#[derive(Clone, Debug, Default)]
pub(super) struct Pods {
    /// All pods, sorted by namespace and name.
    pub(super) items: Vec<Pod>,
    age: Option<u64>,
    etag: Option<String>,
}

/// Response body of `GET /pods`.
#[derive(Deserialize)]
struct PodListWire<'a> {
    #[serde(default)]
    kind: String,
    // The field is required but may be null: OpenYurt encodes an empty list as null.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

impl Pods {
    /// Reads a response to `GET /pods`.
    ///
    /// # Errors
    /// Fails if the response is not a list of pods. The message says what it is instead.
    pub(super) fn read(server: &NodeServer, response: &Response<Bytes>) -> Result<Self, CliError> {
        if response.status() != StatusCode::OK {
            return Err(no_pods(server, response));
        }
        let odd = |error: serde_json::Error| stranger(server, response, &error.to_string());
        let wire: PodListWire<'_> = serde_json::from_slice(response.body()).map_err(odd)?;
        if wire.kind != "PodList" {
            let why = format!("its kind is {:?}", one_line(&wire.kind));
            return Err(stranger(server, response, &why));
        }
        let items = wire.items.into_iter().flatten().map(Pod::read_leniently);
        let mut items: Vec<Pod> = items.collect::<Result<_, _>>().map_err(odd)?;
        items.retain(|pod| !pod.name().is_empty());
        items.sort_by_cached_key(|pod| (pod.namespace().to_owned(), pod.name().to_owned()));
        Ok(Self {
            items,
            age: header(response, AGE).and_then(|age| age.trim().parse().ok()),
            etag: header(response, ETAG.as_str()).map(str::to_owned),
        })
    }

    /// Updates the pods from a response to `GET /pods` with `If-None-Match`.
    ///
    /// # Errors
    /// Fails like [`Pods::read`].
    pub(super) fn renew(
        &mut self,
        server: &NodeServer,
        response: &Response<Bytes>,
    ) -> Result<(), CliError> {
        if response.status() == StatusCode::NOT_MODIFIED && self.etag.is_some() {
            self.age = header(response, AGE).and_then(|age| age.trim().parse().ok());
        } else {
            *self = Self::read(server, response)?;
        }
        Ok(())
    }

    /// Returns the entity tag of the last response, for `If-None-Match`.
    pub(super) fn etag(&self) -> Option<&str> {
        self.etag.as_deref()
    }

    /// Returns the age of the server's data in seconds, if the server reports it.
    pub(super) fn age(&self) -> Option<u64> {
        self.age
    }

    /// Returns the age of the server's data in seconds if it is above [`OLD`].
    pub(super) fn old(&self) -> Option<u64> {
        self.age.filter(|age| *age > OLD)
    }
}

/// Response to a POST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ActReply {
    pub(super) status: StatusCode,
    /// Response body, on one line.
    pub(super) text: String,
    /// Reason for a rejection in one word; `None` if the server sends none.
    pub(super) reason: Option<String>,
}

impl ActReply {
    pub(super) fn read(response: &Response<Bytes>) -> Self {
        Self {
            status: response.status(),
            text: text(response),
            reason: header(response, REASON).map(str::to_owned),
        }
    }
}

fn header<'a>(response: &'a Response<Bytes>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// Returns the response body as one line that is safe for a terminal.
fn text(response: &Response<Bytes>) -> String {
    let body = response.body();
    let start = &body[..body.len().min(8 * LONGEST)];
    one_line(&String::from_utf8_lossy(start))
}

/// Returns a text from the server on one line, with limited length.
pub(super) fn one_line(text: &str) -> String {
    foreign::one_line(text, LONGEST)
}

/// Returns the error for a response to `GET /pods` that has no pods.
fn no_pods(server: &NodeServer, response: &Response<Bytes>) -> CliError {
    let (status, text) = (response.status(), text(response));
    let has_none_yet = status == StatusCode::INTERNAL_SERVER_ERROR
        && (text.starts_with("Get pod list failed") || text.starts_with("Get pods key failed"));
    if has_none_yet {
        return CliError::new(
            Code::Unreachable,
            format!(
                "The server of this node, {server}, has no list of pods yet: {text} (HTTP 500). It needs a \
                 connection to the cloud after its first start. Try again in a moment, or read its log."
            ),
        );
    }
    if header(response, REASON).is_some() && status.is_client_error() {
        // The header shows that this is a yurt-ds server, so its text explains the rejection.
        let text = format!(
            "The server of this node, {server}, rejected the request: {text} (HTTP {status})."
        );
        return CliError::new(Code::Refused, text);
    }
    stranger(server, response, &format!("HTTP {status}"))
}

/// Returns the error for a response that no ota-server sends.
pub(super) fn stranger(server: &NodeServer, response: &Response<Bytes>, why: &str) -> CliError {
    let body = match text(response) {
        text if text.is_empty() => "empty".to_owned(),
        text => format!("{:?}", text.chars().take(80).collect::<String>()),
    };
    CliError::new(
        Code::Unreachable,
        format!(
            "{server} does not answer GET /pods with a PodList ({}). Its answer is {body}. Another program may be \
             using this address.{}",
            one_line(why),
            CHECK
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_escaped_and_bounded() {
        assert_eq!(one_line("a\n\tb\x1b[31m c\r\n"), "a b\\u{1b}[31m c");
        assert_eq!(
            one_line(&"é".repeat(LONGEST + 1)).chars().count(),
            LONGEST + 1
        );
        assert_eq!(one_line(""), "");
    }
}
