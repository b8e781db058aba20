//! What a write is made of: its circumstances, its options, and what it leads to.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// What a write leads to.
pub(crate) struct WriteOutcome {
    /// HTTP status.
    pub(crate) code: u16,
    /// The object, or a Status.
    pub(crate) body: Value,
    /// Sentences for the client.
    pub(crate) warnings: Vec<String>,
}

impl WriteOutcome {
    /// An answer without warnings.
    pub(crate) fn new(code: u16, body: Value) -> Self {
        Self {
            code,
            body,
            warnings: Vec::new(),
        }
    }
}

/// The circumstances of a write.
#[derive(Clone, Debug)]
pub(crate) struct WriteContext {
    /// The server's time.
    pub(crate) now: Timestamp,
    /// Check everything, change nothing.
    pub(crate) dry_run: bool,
    /// Unknown fields are an error.
    pub(crate) strict: bool,
    /// Unknown fields are worth a warning.
    pub(crate) warn: bool,
    /// Who writes: the parameter `fieldManager`, or the program in the user agent.
    pub(crate) manager: String,
    /// The owners of fields as an apply has counted them; `None` for any other write.
    pub(crate) managed: Option<Value>,
}

impl WriteContext {
    pub(crate) fn timestamp(&self) -> String {
        seconds(self.now)
    }
}

/// An instant as Kubernetes writes it.
pub(crate) fn seconds(instant: Timestamp) -> String {
    k8s_openapi::jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%SZ", instant).unwrap_or_default()
}

/// How an object is to be deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    /// Seconds that a pod has to end; `None` takes the pod's own.
    pub(crate) grace: Option<i64>,
    /// `Background`, `Foreground`, `Orphan` or empty.
    pub(crate) propagation: String,
    /// Only if this is its UID.
    pub(crate) uid: Option<String>,
    /// Only if this is its resourceVersion.
    pub(crate) version: Option<String>,
}
