//! What the server answered: pods, or a sentence. Anything may stand behind a port, so anything may come.

use bytes::Bytes;
use http::header::ETAG;
use http::{Response, StatusCode};
use serde::Deserialize;

use super::pod::LocalPod;
use super::server::{CHECK, NodeServer};
use crate::core::foreign;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;

/// How old the answer is, in seconds.
const AGE: &str = "x-cache-age";
/// Why, in a word for programs (an addition of yurt-ds).
const REASON: &str = "x-ota-reason";
/// Longer texts of the server are cut.
const LONGEST: usize = 500;
/// An answer that is older than this is told to be so: nodes hear from the cloud at least every minute or two.
const OLD: u64 = 120;

/// The pods of the node at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Pods {
    /// All of them, by namespace and name.
    pub(super) items: Vec<LocalPod>,
    age: Option<u64>,
    etag: Option<String>,
}

/// A `PodList` on the wire.
#[derive(Deserialize)]
struct PodListWire {
    #[serde(default)]
    kind: String,
    // Present, though it may be null: OpenYurt writes an empty list so.
    items: Option<Vec<LocalPod>>,
}

impl Pods {
    /// Reads an answer to `GET /pods`.
    ///
    /// # Errors
    /// When it is anything but pods; says what it is instead.
    pub(super) fn read(server: &NodeServer, response: &Response<Bytes>) -> Result<Self, CliError> {
        if response.status() != StatusCode::OK {
            return Err(no_pods(server, response));
        }
        let wire: PodListWire = serde_json::from_slice(response.body())
            .map_err(|error| stranger(server, response, &error.to_string()))?;
        if wire.kind != "PodList" {
            let why = format!("its kind is {:?}", one_line(&wire.kind));
            return Err(stranger(server, response, &why));
        }
        let mut items = wire.items.unwrap_or_default();
        items.retain(|pod| !pod.name().is_empty());
        items.sort_by_cached_key(|pod| (pod.namespace().to_owned(), pod.name().to_owned()));
        Ok(Self {
            items,
            age: header(response, AGE).and_then(|age| age.trim().parse().ok()),
            etag: header(response, ETAG.as_str()).map(str::to_owned),
        })
    }

    /// Takes over an answer to `GET /pods` with `If-None-Match`.
    ///
    /// # Errors
    /// As [`Pods::read`].
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

    /// What tells this state from another.
    pub(super) fn etag(&self) -> Option<&str> {
        self.etag.as_deref()
    }

    /// How old this is, in seconds, if the server tells.
    pub(super) fn age(&self) -> Option<u64> {
        self.age
    }

    /// The age, when it is worth a word.
    pub(super) fn old(&self) -> Option<u64> {
        self.age.filter(|age| *age > OLD)
    }
}

/// An answer in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ActReply {
    /// The status.
    pub(super) status: StatusCode,
    /// The text, on one line.
    pub(super) text: String,
    /// A word for programs, of servers that have one.
    pub(super) reason: Option<String>,
}

impl ActReply {
    /// Reads an answer to a POST.
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

/// The body as one line that a terminal can take.
fn text(response: &Response<Bytes>) -> String {
    let body = response.body();
    let start = &body[..body.len().min(8 * LONGEST)];
    one_line(&String::from_utf8_lossy(start))
}

/// Returns words of the server on one line, of bounded length.
pub(super) fn one_line(text: &str) -> String {
    foreign::one_line(text, LONGEST)
}

/// Why there are no pods.
fn no_pods(server: &NodeServer, response: &Response<Bytes>) -> CliError {
    let (status, text) = (response.status(), text(response));
    let has_none_yet = status == StatusCode::INTERNAL_SERVER_ERROR
        && (text.starts_with("Get pod list failed") || text.starts_with("Get pods key failed"));
    if has_none_yet {
        return CliError::new(
            Code::Unreachable,
            format!(
                "The server of this node, {server}, knows no pods yet: {text} (HTTP 500). It has to reach the cloud \
                 once after its first start; look again in a moment, and at its log."
            ),
        );
    }
    if header(response, REASON).is_some() && status.is_client_error() {
        // One of ours, and it says what it wants.
        let text = format!("The server of this node, {server}, refuses: {text} (HTTP {status}).");
        return CliError::new(Code::Refused, text);
    }
    stranger(server, response, &format!("HTTP {status}"))
}

/// What to say of a server that seems to be something else.
pub(super) fn stranger(server: &NodeServer, response: &Response<Bytes>, why: &str) -> CliError {
    let said = match text(response) {
        text if text.is_empty() => "nothing".to_owned(),
        text => format!("{:?}", text.chars().take(80).collect::<String>()),
    };
    CliError::new(
        Code::Unreachable,
        format!(
            "{server} answers, but GET /pods there gives no PodList ({}); it says {said}. Is something else behind \
             that port?{}",
            one_line(why),
            CHECK
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_obeys_nobody_and_has_an_end() {
        assert_eq!(one_line("a\n\tb\x1b[31m c\r\n"), "a b\\u{1b}[31m c");
        assert_eq!(
            one_line(&"é".repeat(LONGEST + 1)).chars().count(),
            LONGEST + 1
        );
        assert_eq!(one_line(""), "");
    }
}
