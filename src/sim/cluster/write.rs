//! Writes: their context, options and results.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Result of a write.
pub(crate) struct WriteOutcome {
    /// HTTP status.
    pub(crate) code: u16,
    /// Object, or a Status.
    pub(crate) body: Value,
    /// Warnings for the client.
    pub(crate) warnings: Vec<String>,
}

impl WriteOutcome {
    /// Returns a result without warnings.
    pub(crate) fn new(code: u16, body: Value) -> Self {
        Self {
            code,
            body,
            warnings: Vec::new(),
        }
    }
}

/// Context of a write.
#[derive(Clone, Debug)]
pub(crate) struct WriteContext {
    /// Time of the server.
    pub(crate) now: Timestamp,
    /// True to check everything but change nothing.
    pub(crate) dry_run: bool,
    /// True if unknown fields are an error.
    pub(crate) strict: bool,
    /// True if unknown fields cause a warning.
    pub(crate) warn: bool,
    /// Field manager: the parameter `fieldManager`, or the program in the user agent.
    pub(crate) manager: String,
    /// Field ownership as computed by an apply; `None` for any other write.
    pub(crate) managed: Option<Value>,
}

impl WriteContext {
    pub(crate) fn timestamp(&self) -> String {
        seconds(self.now)
    }
}

/// Formats a time as Kubernetes does.
pub(crate) fn seconds(instant: Timestamp) -> String {
    k8s_openapi::jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%SZ", instant).unwrap_or_default()
}

/// Options of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    /// Grace period of a pod in seconds; `None` for the pod's own.
    pub(crate) grace: Option<i64>,
    /// `Background`, `Foreground`, `Orphan` or empty.
    pub(crate) propagation: String,
    /// UID that the object must have.
    pub(crate) uid: Option<String>,
    /// resourceVersion that the object must have.
    pub(crate) version: Option<String>,
}
