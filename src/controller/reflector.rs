//! A list and watch of one resource that decodes each object as it arrives.
//!
//! The watcher of `kube` decodes a list as a whole, fails at the first unreadable object, and doesn't report bookmarks.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, Request};
use kube::Client;
use kube::core::Status;
use kube::runtime::watcher::Event;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::freshness::{STALE_AFTER, WATCH_TIMEOUT};
use crate::k8s::client::{CallError, Failure};
use crate::k8s::json_list::ListSplitter;
use crate::k8s::object::{LARGEST, read, read_beginning};
use crate::k8s::{Item, Readable, meta_of};

/// Objects per page of a list. The API server holds a whole page in memory, so pages are small.
pub(super) const PAGE: u32 = 100;

/// Maximum time until the API server begins to respond.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// Maximum time without data within a page. The API server itself gives up after a minute.
const PAGE_SILENCE: Duration = Duration::from_secs(75);

/// Time without data after which a streaming list is replaced by a list in pages. The API server may be unable to complete a
/// streaming list.
const LIST_SILENCE: Duration = Duration::from_secs(15);

/// Shortest timeout that a watch requests from the API server, in seconds.
const SHORTEST_WATCH: u32 = 2;

/// Annotation of the bookmark that ends the initial events of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Reason why a list or a watch ended early.
#[derive(Debug)]
pub(super) enum Ended {
    /// The API server no longer has the changes since the requested version, so everything must be listed again.
    Expired,
    /// The API server rejected, interrupted or didn't complete a streaming list, so list in pages instead.
    NoStreamingList(&'static str),
    Failed {
        /// Operation that failed, such as `cannot list`.
        doing: &'static str,
        /// RBAC verb: `list` or `watch`.
        verb: &'static str,
        error: CallError,
    },
    /// No data arrived for this duration.
    Silent(Duration),
    /// The data is not in the API server's format.
    Garbled(String),
    /// The receiver of the events is gone.
    Unheard,
}

impl Ended {
    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Failed { error, .. } => error.failure(),
            Self::Silent(_) => Failure::Unreachable,
            _ => Failure::Refused,
        }
    }

    pub(super) fn message(&self) -> String {
        match self {
            Self::Expired => {
                "the API server no longer has the changes since the last event".to_owned()
            }
            Self::NoStreamingList(why) => format!("streaming list not available: {why}"),
            Self::Failed { doing, error, .. } => format!("{doing}: {error}"),
            Self::Silent(silence) => format!("the watch received nothing for {silence:?}"),
            Self::Garbled(what) => format!("cannot parse the response: {what}"),
            Self::Unheard => "the receiver is closed".to_owned(),
        }
    }
}

/// Receiver of the events of a list or watch.
pub(super) trait Sink<K> {
    /// Passes on an event. Returns false if the receiver is gone.
    fn take(&self, event: Event<Item<K>>) -> impl Future<Output = bool> + Send;

    /// Records that data arrived from the API server. The data proves that all earlier changes have been passed on.
    fn heard(&self);

    /// Time since [`heard`](Self::heard) was last called.
    fn age(&self) -> Duration;
}

/// Collection of objects, with selectors.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) path: String,
    /// Label selector; empty: all objects.
    pub(super) labels: String,
    /// Field selector; empty: all objects.
    pub(super) fields: String,
    /// Objects per page of a list.
    pub(super) page: u32,
}

impl Target {
    fn request(&self, parameters: &[(&str, &str)]) -> Request<Vec<u8>> {
        let mut target = format!("{}?", self.path);
        let selectors = [
            ("labelSelector", self.labels.as_str()),
            ("fieldSelector", self.fields.as_str()),
        ];
        let selectors = selectors.iter().filter(|(_, text)| !text.is_empty());
        for (at, (key, value)) in selectors.chain(parameters).enumerate() {
            if at > 0 {
                target.push('&');
            }
            target.push_str(key);
            target.push('=');
            escape_into(&mut target, value);
        }
        let mut request = Request::new(Vec::new());
        // Parsing can't fail, because all special characters are escaped.
        *request.uri_mut() = target.parse().unwrap_or_default();
        // Compression saves nothing on a connection to the API server, and would require inflating the whole response.
        let identity = HeaderValue::from_static("identity");
        request.headers_mut().insert(ACCEPT_ENCODING, identity);
        request
    }

    /// Lists everything in pages. Returns the resource version from which to watch.
    pub(super) async fn list<K: Readable>(
        &self,
        client: &Client,
        sink: &(impl Sink<K> + Sync),
    ) -> Result<String, Ended> {
        if !sink.take(Event::Init).await {
            return Err(Ended::Unheard);
        }
        let limit = self.page.to_string();
        let mut next = String::new();
        loop {
            let from = Some(("continue", next.as_str())).filter(|_| !next.is_empty());
            let parameters: Vec<_> = [("limit", limit.as_str())]
                .into_iter()
                .chain(from)
                .collect();
            let page = self.page(client, sink, &parameters).await?;
            match page.metadata.next.filter(|token| !token.is_empty()) {
                Some(token) => next = token,
                None if sink.take(Event::InitDone).await => {
                    sink.heard();
                    return Ok(page.metadata.resource_version);
                }
                None => return Err(Ended::Unheard),
            }
        }
    }

    async fn page<K: Readable>(
        &self,
        client: &Client,
        sink: &(impl Sink<K> + Sync),
        parameters: &[(&str, &str)],
    ) -> Result<Page, Ended> {
        let failed = |error| expired_or("cannot list", "list", error);
        let mut body = open(client, self.request(parameters))
            .await
            .map_err(failed)?;
        let (mut splitter, mut items) = (ListSplitter::default(), Vec::new());
        loop {
            let piece = match timeout(PAGE_SILENCE, body.fill_buf()).await {
                Err(_) => return Err(failed(CallError::TimedOut(PAGE_SILENCE))),
                Ok(Err(error)) => return Err(failed(broken(error))),
                Ok(Ok(piece)) => piece,
            };
            let length = piece.len();
            let split = splitter.feed(piece, |item| {
                items.push(read(item));
                Ok(())
            });
            split.map_err(|error| Ended::Garbled(error.to_string()))?;
            body.as_mut().consume(length);
            for item in items.drain(..) {
                if !sink.take(Event::InitApply(item)).await {
                    return Err(Ended::Unheard);
                }
            }
            if length == 0 {
                let page = splitter.finish();
                return page.map_err(|error| Ended::Garbled(error.to_string()));
            }
        }
    }

    /// Watches from `version` until the API server ends the watch, and updates `version`.
    ///
    /// Without a version, a streaming list comes first: the watch begins with all existing objects.
    pub(super) async fn watch<K: Readable>(
        &self,
        client: &Client,
        sink: &(impl Sink<K> + Sync),
        version: &mut Option<String>,
    ) -> Result<(), Ended> {
        let mut list = version.is_none();
        if list && !sink.take(Event::Init).await {
            return Err(Ended::Unheard);
        }
        // Set the timeout so that the watch ends before its data is too old, even if no event arrives. A regular end proves that
        // no event was missed.
        let age = u32::try_from(sink.age().as_secs()).unwrap_or(u32::MAX);
        let seconds = WATCH_TIMEOUT
            .saturating_sub(age)
            .max(SHORTEST_WATCH)
            .to_string();
        let parameters = watch_parameters(version.as_deref(), &seconds);
        let opened = open(client, self.request(&parameters)).await;
        let mut body = match opened {
            Ok(body) => body,
            Err(error) if list && error.failure() == Failure::Refused => {
                return Err(Ended::NoStreamingList("rejected by the API server"));
            }
            Err(error) => return Err(expired_or("cannot watch", "watch", error)),
        };
        let mut lines = Lines::default();
        loop {
            let silence = if list { LIST_SILENCE } else { STALE_AFTER };
            let piece = match timeout(silence, body.fill_buf()).await {
                Err(_) if list => return Err(Ended::NoStreamingList("no response")),
                Err(_) => return Err(Ended::Silent(silence)),
                Ok(Err(error)) if list => {
                    let error = broken(error);
                    tracing::debug!(%error, "A streaming list was interrupted");
                    return Err(Ended::NoStreamingList("interrupted"));
                }
                Ok(Err(error)) => {
                    return Err(Ended::Failed {
                        doing: "the watch was interrupted",
                        verb: "watch",
                        error: broken(error),
                    });
                }
                Ok(Ok(piece)) => piece,
            };
            let length = piece.len();
            if length == 0 {
                return match list {
                    true => Err(Ended::NoStreamingList("ended early")),
                    false => {
                        sink.heard();
                        Ok(())
                    }
                };
            }
            let mut changes = Vec::new();
            lines.feed(piece, |line| changes.push(Change::read(line)));
            body.as_mut().consume(length);
            for change in changes {
                let event = event_of(change, &mut list, version)?;
                if !list {
                    sink.heard();
                }
                if let Some(event) = event
                    && !sink.take(event).await
                {
                    return Err(Ended::Unheard);
                }
            }
        }
    }
}

/// Returns the parameters of a watch from `version`; `None`: a streaming list comes first.
fn watch_parameters<'a>(
    version: Option<&'a str>,
    seconds: &'a str,
) -> Vec<(&'static str, &'a str)> {
    let mut parameters = vec![
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", seconds),
    ];
    match version {
        Some(version) => parameters.push(("resourceVersion", version)),
        // Without a version, `NotOlderThan` makes the list at least as new as the request. Otherwise an API server replica that
        // lags behind could report pods that are gone.
        None => parameters.extend([
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
        ]),
    }
    parameters
}

/// Returns the event for a change, and updates `version`. Returns `None` for a bookmark, unless the bookmark ends the list.
///
/// `list` is true until a streaming list has sent all existing objects.
///
/// # Errors
/// If the change ends the watch.
fn event_of<K: Readable>(
    change: Change<K>,
    list: &mut bool,
    version: &mut Option<String>,
) -> Result<Option<Event<Item<K>>>, Ended> {
    Ok(Some(match change {
        Change::Added(item) if *list => Event::InitApply(item),
        Change::Added(item) => {
            note_version(version, &item);
            Event::Apply(item)
        }
        Change::Deleted(item) => {
            note_version(version, &item);
            Event::Delete(item)
        }
        Change::Bookmark(at, ends_list) => {
            if !at.is_empty() && (!*list || ends_list) {
                *version = Some(at);
            }
            if !(*list && ends_list) {
                return Ok(None);
            }
            *list = false;
            Event::InitDone
        }
        Change::Error(status) if status.code == 410 && !*list => return Err(Ended::Expired),
        Change::Error(_) if *list => {
            return Err(Ended::NoStreamingList("aborted by the API server"));
        }
        Change::Error(status) => {
            return Err(Ended::Failed {
                doing: "the watch failed",
                verb: "watch",
                error: CallError::Kube(kube::Error::Api(status)),
            });
        }
        Change::Garbled(what) => return Err(Ended::Garbled(what)),
    }))
}

/// Sink that collects the objects of one list.
struct Collector<F>(Mutex<F>);

impl<K: Readable, F: FnMut(K) + Send> Sink<K> for Collector<F> {
    async fn take(&self, event: Event<Item<K>>) -> bool {
        if let Event::InitApply(Ok(object)) = event {
            let mut take = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (*take)(object);
        }
        true
    }

    fn heard(&self) {}

    fn age(&self) -> Duration {
        Duration::ZERO
    }
}

/// Lists objects once and passes on the readable ones. Holds one object in memory at a time.
///
/// # Errors
/// If the list could not be completed.
pub(super) async fn list_each<K: Readable>(
    client: &Client,
    namespace: Option<&str>,
    labels: &str,
    take: impl FnMut(K) + Send,
) -> Result<(), CallError> {
    list_selected(client, namespace, labels, "", PAGE, take).await
}

/// Lists objects like [`list_each`], limited by a label selector and a field selector, in pages of the given size.
///
/// # Errors
/// If the list could not be completed.
pub(super) async fn list_selected<K: Readable>(
    client: &Client,
    namespace: Option<&str>,
    labels: &str,
    fields: &str,
    page: u32,
    take: impl FnMut(K) + Send,
) -> Result<(), CallError> {
    let target = Target {
        path: K::url_path(&(), namespace),
        labels: labels.to_owned(),
        fields: fields.to_owned(),
        page,
    };
    let listed = target.list(client, &Collector(Mutex::new(take))).await;
    listed.map(drop).map_err(|ended| match ended {
        Ended::Failed { error, .. } => error,
        other => CallError::Kube(kube::Error::Service(other.message().into())),
    })
}

/// Records the version of an object, from which the next watch begins.
fn note_version<K: Readable>(version: &mut Option<String>, item: &Item<K>) {
    if let Some(seen) = &meta_of(item).resource_version {
        *version = Some(seen.clone());
    }
}

type Body = Pin<Box<dyn AsyncBufRead + Send>>;

async fn open(client: &Client, request: Request<Vec<u8>>) -> Result<Body, CallError> {
    match timeout(ANSWER_DEADLINE, client.request_stream(request)).await {
        Ok(body) => Ok(Box::pin(body.map_err(CallError::Kube)?)),
        Err(_) => Err(CallError::TimedOut(ANSWER_DEADLINE)),
    }
}

fn expired_or(doing: &'static str, verb: &'static str, error: CallError) -> Ended {
    match &error {
        CallError::Kube(kube::Error::Api(status)) if status.code == 410 => Ended::Expired,
        _ => Ended::Failed { doing, verb, error },
    }
}

fn broken(error: std::io::Error) -> CallError {
    CallError::Kube(kube::Error::ReadEvents(error))
}

fn escape_into(target: &mut String, value: &str) {
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                target.push(char::from(byte));
            }
            _ => target.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// Page of a list, without the items.
#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Buffer that splits a watch into lines. For a line with more than [`LARGEST`] bytes, only the beginning is kept.
#[derive(Default)]
struct Lines(Vec<u8>);

/// Capacity that the buffer keeps between lines, in bytes.
const KEPT: usize = 64 * 1024;

impl Lines {
    fn feed(&mut self, piece: &[u8], mut take: impl FnMut(&[u8])) {
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            match self.0.is_empty() {
                true if end == 0 => {}
                true => take(&rest[..end]),
                false => {
                    self.keep(&rest[..end]);
                    take(&self.0);
                    self.0.clear();
                    self.0.shrink_to(KEPT);
                }
            }
            rest = &rest[end + 1..];
        }
        self.keep(rest);
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.0.len() <= LARGEST {
            self.0.extend_from_slice(bytes);
        }
    }
}

/// Change that one line of a watch reports.
enum Change<K> {
    /// Addition or change of an object.
    Added(Item<K>),
    Deleted(Item<K>),
    /// Bookmark: version up to which everything was reported, and true if the initial events end there.
    Bookmark(String, bool),
    Error(Box<Status>),
    Garbled(String),
}

/// Line of a watch whose object is not decoded yet. In the JSON, the field `type` comes before `object`.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct BookmarkMeta {
    resource_version: String,
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

impl<K: Readable> Change<K> {
    fn read(line: &[u8]) -> Self {
        if line.len() > LARGEST {
            return Self::of_huge(line);
        }
        if let Some(change) = Self::read_as_written(line) {
            return change;
        }
        let parsed: Line<'_> = match serde_json::from_slice(line) {
            Ok(parsed) => parsed,
            Err(error) => return Self::Garbled(error.to_string()),
        };
        let object = parsed.object.get();
        match &*parsed.kind {
            "ADDED" | "MODIFIED" => Self::Added(read(object.as_bytes())),
            "DELETED" => Self::Deleted(read(object.as_bytes())),
            "BOOKMARK" => {
                let found: Bookmark = serde_json::from_str(object).unwrap_or_default();
                let annotations = found.metadata.annotations.unwrap_or_default();
                let ends = annotations.get(INITIAL_EVENTS_END);
                let ends = ends.is_some_and(|value| value == "true");
                Self::Bookmark(found.metadata.resource_version, ends)
            }
            "ERROR" => match serde_json::from_str(object) {
                Ok(status) => Self::Error(status),
                Err(error) => Self::Garbled(error.to_string()),
            },
            kind => Self::Garbled(format!("an event of type {kind:?}")),
        }
    }

    /// Reads a change in one pass. Returns `None` if the line differs from the exact format that the API server writes.
    fn read_as_written(line: &[u8]) -> Option<Self> {
        let added: fn(Item<K>) -> Self = Self::Added;
        let changes: [(&[u8], _); 3] = [
            (br#"{"type":"MODIFIED","object":"#, added),
            (br#"{"type":"ADDED","object":"#, added),
            (br#"{"type":"DELETED","object":"#, Self::Deleted),
        ];
        let line = line.strip_suffix(b"}")?;
        let (object, change) = (changes.into_iter())
            .find_map(|(head, change)| Some((line.strip_prefix(head)?, change)))?;
        read(object).ok().map(|object| change(Ok(object)))
    }

    /// Reads a line of which only the beginning was kept, because it was too long.
    fn of_huge(line: &[u8]) -> Self {
        const OBJECT: &[u8] = b"\"object\":";
        let at = line.windows(OBJECT.len()).position(|seen| seen == OBJECT);
        let Some(at) = at.filter(|at| *at < 64) else {
            return Self::Garbled("a line without an object".to_owned());
        };
        let (head, object) = line.split_at(at);
        let object = read_beginning(&object[OBJECT.len()..]);
        if head.windows(7).any(|seen| seen == b"DELETED") {
            Self::Deleted(object)
        } else {
            Self::Added(object)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::{StreamExt as _, TryStreamExt as _};
    use http::{Response, StatusCode};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;
    use crate::k8s::Pod;

    const POD: &str =
        r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"3"}}}"#;
    const END: &str = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
    const GONE: &str = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"too old","reason":"Expired","code":410}}"#;

    /// Behavior of the test server after the lines of a watch.
    #[derive(Clone, Copy)]
    enum Then {
        Silence,
        End,
        Break,
    }

    /// Sink that counts events and calls of `heard`.
    #[derive(Default)]
    struct Counter {
        events: AtomicUsize,
        heard: AtomicUsize,
    }

    impl Sink<Pod> for Counter {
        async fn take(&self, event: Event<Item<Pod>>) -> bool {
            let counts = !matches!(event, Event::Init);
            self.events.fetch_add(counts.into(), Ordering::Relaxed);
            true
        }

        fn heard(&self) {
            self.heard.fetch_add(1, Ordering::Relaxed);
        }

        fn age(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// Returns a client for a test server that answers each watch with these lines.
    fn client(code: u16, lines: &[&'static str], then: Then) -> Client {
        let lines: Vec<&'static str> = lines.to_vec();
        let answer = move |request: Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            assert_eq!(
                query.contains("resourceVersion="),
                !query.contains("sendInitialEvents"),
                "a list of the moment of the request has no version: {query}"
            );
            let pieces = lines
                .clone()
                .into_iter()
                .map(|line| Ok(Bytes::from(format!("{line}\n"))));
            let pieces = futures::stream::iter(pieces);
            let rest: futures::stream::BoxStream<'static, Result<Bytes, std::io::Error>> =
                match then {
                    Then::Silence => futures::stream::pending().boxed(),
                    Then::End => futures::stream::empty().boxed(),
                    Then::Break => {
                        let broken = Err(std::io::Error::other("reset"));
                        futures::stream::iter([broken]).boxed()
                    }
                };
            let body = StreamBody::new(pieces.chain(rest).map_ok(Frame::data));
            let mut response = Response::new(body);
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            async move { Ok::<_, Infallible>(response) }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    /// Returns how a watch ended, the time until then, the number of events, and the number of calls of `heard`.
    async fn ending(
        client: Client,
        mut version: Option<String>,
    ) -> (Result<(), Ended>, Duration, usize, usize) {
        let target = Target {
            path: "/api/v1/pods".to_owned(),
            labels: String::new(),
            fields: String::new(),
            page: PAGE,
        };
        let (counter, began) = (Counter::default(), Instant::now());
        let ended = target.watch(&client, &counter, &mut version).await;
        let counts = [&counter.events, &counter.heard].map(|count| count.load(Ordering::Relaxed));
        (ended, began.elapsed(), counts[0], counts[1])
    }

    #[tokio::test(start_paused = true)]
    async fn an_incomplete_streaming_list_falls_back_to_pages_and_an_expired_watch_relists() {
        let list = |lines: &[&'static str], then| ending(client(200, lines, then), None);
        let (ended, after, events, heard) = list(&[POD], Then::Silence).await;
        assert!(matches!(ended, Err(Ended::NoStreamingList(_))), "{ended:?}");
        assert_eq!((after, events, heard), (LIST_SILENCE, 1, 0));
        // Three cases of an incomplete list: the connection was interrupted, the response ended, or the API server sent an error.
        for (lines, then) in [
            (&[POD][..], Then::Break),
            (&[POD], Then::End),
            (&[GONE], Then::Silence),
        ] {
            let (ended, after, _, heard) = list(lines, then).await;
            assert!(matches!(ended, Err(Ended::NoStreamingList(_))), "{ended:?}");
            assert_eq!((after, heard), (Duration::ZERO, 0));
        }
        // 503 means that the API server is unavailable, and the list is not repeated in pages. 422 rejects the streaming list, so
        // pages follow.
        let (ended, ..) = ending(client(503, &[], Then::End), None).await;
        let unreachable = matches!(&ended, Err(ended @ Ended::Failed { .. }) if ended.failure() == Failure::Unreachable);
        assert!(unreachable, "{ended:?}");
        let (ended, ..) = ending(client(422, &[], Then::End), None).await;
        assert!(matches!(ended, Err(Ended::NoStreamingList(_))), "{ended:?}");
        // After a complete list, the watch may be silent until its data is stale.
        let (ended, after, events, heard) = list(&[POD, END], Then::Silence).await;
        assert!(matches!(ended, Err(Ended::Silent(_))), "{ended:?}");
        assert_eq!((after, events, heard), (STALE_AFTER, 2, 1));
        let (ended, ..) = list(&[END, GONE], Then::Silence).await;
        assert!(matches!(ended, Err(Ended::Expired)), "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn events_bookmarks_and_an_orderly_end_refresh_a_watch() {
        let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
        let from = || Some("2".to_owned());
        let (ended, _, events, heard) =
            ending(client(200, &[POD, bookmark], Then::End), from()).await;
        assert!(ended.is_ok(), "{ended:?}");
        assert_eq!((events, heard), (1, 3));
        let (ended, _, _, heard) = ending(client(200, &[], Then::Break), from()).await;
        assert!(matches!(ended, Err(Ended::Failed { .. })), "{ended:?}");
        assert_eq!(heard, 0);
    }

    #[test]
    fn lines_are_split_correctly_at_any_chunk_size() {
        let text = b"{\"a\":1}\n\n{\"b\":2}\n{\"c\"";
        for size in [1, 2, 5, text.len()] {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for piece in text.chunks(size) {
                lines.feed(piece, |line| found.push(line.to_vec()));
            }
            assert_eq!(found, [&b"{\"a\":1}"[..], b"{\"b\":2}"], "{size}");
            assert_eq!(lines.0, b"{\"c\"");
        }
    }

    /// Generates JSON objects with hostile values in some fields.
    fn hostile_json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("-1".to_owned()),
            Just("1e999".to_owned()),
            Just("18446744073709551616".to_owned()),
            Just(r#""9999-12-31T23:59:59Z""#.to_owned()),
            Just(r#""\ud800""#.to_owned()),
            Just(r#""\\\"}]""#.to_owned()),
            Just(format!("\"{}\"", "x".repeat(100_000))),
            Just(format!("{}{}", "[".repeat(200), "]".repeat(200))),
            Just("[[], {}, 7, null]".to_owned()),
            Just("{\"a\":".to_owned()),
            Just("".to_owned()),
        ];
        let field = prop_oneof![
            Just("metadata"),
            Just("spec"),
            Just("status"),
            Just("kind"),
            Just("x"),
        ];
        proptest::collection::vec((field, leaf), 0..4).prop_map(|fields| {
            let fields = fields.into_iter();
            let fields: Vec<String> = fields
                .map(|(key, value)| format!("\"{key}\":{value}"))
                .collect();
            format!("{{{}}}", fields.join(","))
        })
    }

    proptest! {
        #[test]
        fn whatever_an_object_of_a_watch_holds_those_beside_it_are_read(
            objects in proptest::collection::vec(hostile_json(), 1..4), piece in 1..5000_usize,
        ) {
            let line = |object: &String| format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n{POD}\n");
            let text: String = objects.iter().map(line).collect();
            let (mut lines, mut read) = (Lines::default(), 0);
            for bytes in text.as_bytes().chunks(piece) {
                lines.feed(bytes, |line| match Change::<Pod>::read(line) {
                    Change::Added(Ok(pod)) if pod.metadata.name.as_deref() == Some("a") => read += 1,
                    _ => {}
                });
            }
            prop_assert_eq!(read, objects.len());
        }
    }

    #[test]
    fn a_too_large_object_keeps_its_name_and_is_not_buffered_whole() {
        let padding = "x".repeat(3 * LARGEST);
        let line = format!(
            "{{\"type\":\"MODIFIED\",\"object\":{{\"metadata\":{{\"name\":\"huge\",\"namespace\":\"shop\",\"uid\":\"u\",\
             \"resourceVersion\":\"7\"}},\"spec\":{{\"nodeName\":\"n1\"}},\"status\":{{\"message\":\"{padding}\"}}}}}}\n"
        );
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for piece in line.as_bytes().chunks(1 << 16) {
            lines.feed(piece, |line| found.push(Change::<Pod>::read(line)));
            assert!(lines.0.len() <= LARGEST + (1 << 16));
        }
        let [Change::Added(Err(unreadable))] = &found[..] else {
            panic!("not one object that cannot be read");
        };
        assert_eq!(unreadable.metadata.name.as_deref(), Some("huge"));
        assert_eq!(unreadable.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(unreadable.node.as_deref(), Some("n1"));
        assert_eq!(unreadable.reason.word(), "TooLarge");
    }

    #[test]
    fn list_parameters_are_percent_encoded() {
        let target = Target {
            path: "/api/v1/pods".to_owned(),
            labels: "app in (a,b),!old".to_owned(),
            fields: String::new(),
            page: 5,
        };
        let request = target.request(&[("limit", "5"), ("continue", "a+b/c=")]);
        assert_eq!(
            request.uri().to_string(),
            "/api/v1/pods?labelSelector=app%20in%20%28a%2Cb%29%2C%21old&limit=5&continue=a%2Bb%2Fc%3D"
        );
    }
}
