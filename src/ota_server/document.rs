//! `GET /pods`: the list of all pods as one piece of bytes, made once per change and shared by all who read it.

use std::hash::Hasher;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::pod::NodePod;
use super::pod_cache::PodCache;

const HEAD: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#;
const TAIL: &str = "]}";
/// How the API server begins an object in a watch, and not in a list.
const TYPE: &str = r#"{"kind":"Pod","apiVersion":"v1","#;

/// The list at one moment. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// JSON.
    pub(super) bytes: Bytes,
    /// A strong entity tag with its quotes: equal for equal bytes.
    pub(super) etag: String,
}

/// Makes documents of the memory, at the first read after a change.
#[derive(Debug)]
pub(super) struct Documents {
    pod_cache: PodCache,
    last: Mutex<Option<(u64, Document)>>,
}

impl Documents {
    /// Of that memory.
    pub(super) fn new(pod_cache: PodCache) -> Self {
        Self {
            pod_cache,
            last: Mutex::new(None),
        }
    }

    /// The present one; `None` before anything was ever known.
    pub(super) fn current(&self) -> Option<Document> {
        let number = *self.pod_cache.changes().borrow(); // before the pods: a change in between makes one more document
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made_of, document)) = &*last
            && *made_of == number
        {
            return Some(document.clone());
        }
        *last = None; // not both at once
        let document = Document::of(&self.pod_cache.pods()?);
        *last = Some((number, document.clone()));
        Some(document)
    }
}

impl Document {
    fn of(pods: &[NodePod]) -> Self {
        let length = pods.iter().map(|pod| pod.raw().len() + 1).sum::<usize>();
        let mut text = String::with_capacity(HEAD.len() + length + TAIL.len());
        text.push_str(HEAD);
        for (index, pod) in pods.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            item(&mut text, pod.raw());
        }
        text.push_str(TAIL);
        let etag = etag(text.as_bytes());
        Self {
            bytes: Bytes::from(text),
            etag,
        }
    }
}

/// Items of a list have no kind of their own in Kubernetes; so a list and a watch give equal bytes for an equal pod.
fn item(text: &mut String, raw: &str) {
    match raw.strip_prefix(TYPE) {
        Some(rest) => {
            text.push('{');
            text.push_str(rest);
        }
        None => text.push_str(raw),
    }
}

fn etag(bytes: &[u8]) -> String {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(bytes);
    format!("\"{:x}-{:016x}\"", bytes.len(), hasher.finish())
}

/// Whether a client that sends this `If-None-Match` has that document already (RFC 9110 §13.1.2, weak comparison).
pub(super) fn matches(if_none_match: &str, etag: &str) -> bool {
    let mut candidates = if_none_match.split(',').map(str::trim);
    candidates.any(|candidate| {
        candidate == "*" || candidate.strip_prefix("W/").unwrap_or(candidate) == etag
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn pod(raw: &str) -> NodePod {
        NodePod::read(RawValue::from_string(raw.to_owned()).unwrap()).unwrap()
    }

    const A: &str =
        r#"{"metadata":{"name":"a","namespace":"n","x":[1, 2]},"spec":{"nodeName":"edge"}}"#;
    const B: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","namespace":"n"}}"#;

    #[test]
    fn nothing_is_served_before_anything_is_known_and_an_empty_list_is_a_list() {
        let pod_cache = PodCache::default();
        let documents = Documents::new(pod_cache.clone());
        assert!(documents.current().is_none());
        pod_cache.replace([]);
        let document = documents.current().unwrap();
        let list: serde_json::Value = serde_json::from_slice(&document.bytes).unwrap();
        assert_eq!(list["kind"], "PodList");
        assert_eq!(list["items"], serde_json::json!([]));
    }

    #[test]
    fn pods_are_complete_and_made_into_a_document_once_per_change() {
        let pod_cache = PodCache::default();
        let documents = Documents::new(pod_cache.clone());
        pod_cache.replace([pod(B), pod(A)]);
        let first = documents.current().unwrap();
        let list: serde_json::Value = serde_json::from_slice(&first.bytes).unwrap();
        assert_eq!(list["items"][0]["metadata"]["x"][1], 2);
        assert_eq!(list["items"][0]["spec"]["nodeName"], "edge");
        assert_eq!(list["items"][1]["metadata"]["name"], "b");
        assert_eq!(list["items"][1].get("kind"), None);
        let second = documents.current().unwrap();
        assert_eq!(first.bytes.as_ptr(), second.bytes.as_ptr());
        pod_cache.delete(pod(A).key());
        let third = documents.current().unwrap();
        assert_ne!(first.etag, third.etag);
        pod_cache.apply(pod(A));
        assert_eq!(documents.current().unwrap().etag, first.etag);
    }

    #[test]
    fn a_reader_who_has_it_already_is_recognised() {
        assert!(matches("\"1-a\"", "\"1-a\""));
        assert!(matches("W/\"1-a\"", "\"1-a\""));
        assert!(matches("\"x\", W/\"y\" , \"1-a\"", "\"1-a\""));
        assert!(matches("*", "\"1-a\""));
        assert!(!matches("1-a", "\"1-a\""));
        assert!(!matches("\"x\"", "\"1-a\""));
        assert!(!matches("", "\"1-a\""));
    }
}
