//! `GET /pods`: the list of all pods. It is sent pod by pod from the cache, without a copy of the whole list.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::pod_cache::LentPods;
use crate::core::foreign;

/// Texts around the pods: `HEAD` is at the beginning, `OPEN` before the first pod, `NEXT` before each further pod, and `TAIL` at
/// the end.
const HEAD: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#;
const OPEN: &str = "{";
const NEXT: &str = ",{";
const TAIL: &str = "]}";
/// Number of bytes that are copied for a connection at a time. It limits the memory of a slow client.
const PIECE: usize = 32 << 10;

/// List of pods at one point in time.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) body: PodsBody,
    /// Strong entity tag with its quotes. Equal bodies have equal tags.
    pub(super) etag: String,
}

impl Document {
    /// Creates the document from a snapshot of the pods; `None` if the snapshot has already lost its pods ([`LentPods`]).
    pub(super) fn from_lent(lent: LentPods) -> Option<Self> {
        let pods = lent.left()?;
        let mut hasher = DefaultHasher::new();
        let mut length = HEAD.len() + TAIL.len();
        for pod in &pods {
            pod.digest().hash(&mut hasher);
            length += NEXT.len() + pod.length();
        }
        length -= usize::from(!pods.is_empty()); // n pods have n - 1 commas.
        Some(Self {
            etag: format!("\"{length:x}-{:016x}\"", hasher.finish()),
            body: PodsBody {
                lent,
                left: length,
                pending: vec![HEAD, if pods.is_empty() { TAIL } else { OPEN }],
                offset: 0,
            },
        })
    }
}

/// Body of the list of pods, while it is sent.
#[derive(Debug)]
pub struct PodsBody {
    lent: LentPods,
    /// Number of bytes that remain to be sent.
    left: usize,
    /// Texts that are sent before the remaining bytes of the next pod.
    pending: Vec<&'static str>,
    /// Number of bytes of the next pod that were sent, without the bytes that escaping adds.
    offset: usize,
}

impl PodsBody {
    /// Returns the next piece of the body.
    ///
    /// # Errors
    /// Fails if the pods have changed and the client reads too slowly.
    fn piece(&mut self) -> io::Result<Bytes> {
        let mut piece = Vec::with_capacity(PIECE.min(self.left));
        while piece.len() < PIECE && self.left > 0 {
            let before = piece.len();
            self.extend(&mut piece)?;
            self.left = self.left.saturating_sub(piece.len() - before);
        }
        Ok(piece.into())
    }

    fn extend(&mut self, piece: &mut Vec<u8>) -> io::Result<()> {
        for text in self.pending.drain(..) {
            piece.extend_from_slice(text.as_bytes());
        }
        let next = self.lent.front().map_err(|_| too_slow())?;
        let Some(pod) = next else {
            return Ok(());
        };
        let rest = &pod.item()[self.offset..];
        let mut end = rest.len().min(PIECE.saturating_sub(piece.len()));
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let part = &rest[..end];
        piece.extend_from_slice(foreign::json(part).as_bytes());
        self.offset += part.len();
        if part.len() == rest.len() {
            self.lent.pop();
            self.offset = 0;
            let is_last = matches!(self.lent.front(), Ok(None));
            self.pending = vec![if is_last { TAIL } else { NEXT }];
        }
        Ok(())
    }
}

fn too_slow() -> io::Error {
    io::Error::other("the pods changed before this client had read the response")
}

impl Body for PodsBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(self.piece().map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

/// Returns true if `If-None-Match` contains the tag of the document (RFC 9110 §13.1.2, weak comparison).
pub(super) fn matches(if_none_match: &str, etag: &str) -> bool {
    let mut candidates = if_none_match.split(',').map(str::trim);
    candidates.any(|candidate| {
        candidate == "*" || candidate.strip_prefix("W/").unwrap_or(candidate) == etag
    })
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::value::RawValue;

    use super::*;
    use crate::ota_server::pod::NodePod;
    use crate::ota_server::pod_cache::PodCache;

    fn pod(raw: &str) -> NodePod {
        NodePod::read(RawValue::from_string(raw.to_owned()).unwrap()).unwrap()
    }

    const A: &str =
        r#"{"metadata":{"name":"a","namespace":"n","x":[1, 2]},"spec":{"nodeName":"edge"}}"#;
    const B: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","namespace":"n"}}"#;

    fn current(pod_cache: &PodCache) -> Document {
        Document::from_lent(pod_cache.lend().unwrap()).unwrap()
    }

    async fn text(document: Document) -> String {
        let announced = document.body.size_hint().exact().unwrap();
        let bytes = document.body.collect().await.unwrap().to_bytes();
        assert_eq!(bytes.len() as u64, announced);
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn nothing_is_served_before_the_first_list_and_an_empty_list_is_valid() {
        let pod_cache = PodCache::default();
        assert!(pod_cache.lend().is_none());
        pod_cache.replace([]);
        assert_eq!(
            text(current(&pod_cache)).await,
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}"#
        );
    }

    #[tokio::test]
    async fn pods_are_served_unchanged_and_the_etag_changes_with_them() {
        let pod_cache = PodCache::default();
        pod_cache.replace([pod(B), pod(A)]);
        let first = current(&pod_cache);
        let etag = first.etag.clone();
        assert_eq!(
            text(first).await,
            format!(
                r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":[{A},{{"metadata":{{"name":"b","namespace":"n"}}}}]}}"#
            )
        );
        assert_eq!(current(&pod_cache).etag, etag);
        pod_cache.delete(pod(A).key());
        assert_ne!(current(&pod_cache).etag, etag);
        pod_cache.apply(pod(A));
        assert_eq!(current(&pod_cache).etag, etag);
    }

    #[tokio::test]
    async fn large_pods_are_sent_completely_in_small_pieces() {
        let pod_cache = PodCache::default();
        let large = |name: &str, length: usize| {
            let filling = "ä".repeat(length);
            let raw =
                format!(r#"{{"metadata":{{"name":"{name}","namespace":"n"}},"x":"{filling}"}}"#);
            pod(&raw)
        };
        // Use lengths that differ by one byte, so that pods end at all positions around the ends of pieces.
        pod_cache.replace((0..90).map(|number| large(&format!("p{number:02}"), 16_320 + number)));
        let mut document = current(&pod_cache);
        let mut whole = Vec::new();
        while let Some(frame) = document.body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(
                piece.len() <= PIECE + NEXT.len() + TAIL.len(),
                "{}",
                piece.len()
            );
            whole.extend_from_slice(&piece);
        }
        assert!(document.body.is_end_stream());
        let list: serde_json::Value = serde_json::from_slice(&whole).unwrap();
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 90);
        assert_eq!(items[89]["x"].as_str().unwrap().chars().count(), 16_409);
    }

    #[tokio::test]
    async fn a_response_keeps_its_snapshot_and_is_aborted_after_too_many_changes() {
        let pod_cache = PodCache::default();
        let large = |length: usize| {
            let filling = "x".repeat(length);
            pod(&format!(
                r#"{{"metadata":{{"name":"a","namespace":"n"}},"x":"{filling}"}}"#
            ))
        };
        pod_cache.replace([large(100_000)]);
        let kept = current(&pod_cache);
        pod_cache.replace([large(9_000_000)]);
        assert!(text(kept).await.len() > 100_000);
        let lost = current(&pod_cache);
        pod_cache.replace([]);
        let error = lost.body.collect().await.unwrap_err();
        assert!(
            error.to_string().contains("changed before this client"),
            "{error}"
        );
    }

    #[test]
    fn a_matching_etag_is_recognized() {
        assert!(matches("\"1-a\"", "\"1-a\""));
        assert!(matches("W/\"1-a\"", "\"1-a\""));
        assert!(matches("\"x\", W/\"y\" , \"1-a\"", "\"1-a\""));
        assert!(matches("*", "\"1-a\""));
        assert!(!matches("1-a", "\"1-a\""));
        assert!(!matches("\"x\"", "\"1-a\""));
        assert!(!matches("", "\"1-a\""));
    }
}
