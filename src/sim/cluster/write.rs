//! Writes: their context, options and results.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Successful result of a write, from which the response is made.
pub(crate) struct WriteOutcome {
    pub(crate) code: u16,
    /// Object after the write, or a Status.
    pub(crate) body: Value,
    /// Warnings that are sent to the client.
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

/// Context and options of a write.
#[derive(Clone, Debug)]
pub(crate) struct WriteContext {
    /// Current time of the server.
    pub(crate) now: Timestamp,
    /// True for a dry run, which checks everything but changes nothing.
    pub(crate) dry_run: bool,
    /// True if unknown fields are rejected.
    pub(crate) strict: bool,
    /// True if the client is warned about unknown fields.
    pub(crate) warn: bool,
    /// Field manager: the parameter `fieldManager`, or the program in the user agent.
    pub(crate) manager: String,
    /// New managedFields, computed by an apply; `None` for any other write.
    pub(crate) managed: Option<Value>,
}

impl WriteContext {
    pub(crate) fn timestamp(&self) -> String {
        seconds(self.now)
    }
}

/// Formats a time like Kubernetes, in whole seconds.
pub(crate) fn seconds(instant: Timestamp) -> String {
    k8s_openapi::jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%SZ", instant).unwrap_or_default()
}

/// Options of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    /// Grace period in seconds; `None` for the pod's own grace period.
    pub(crate) grace: Option<i64>,
    /// Propagation policy: `Background`, `Foreground`, `Orphan`, or empty for the default.
    pub(crate) propagation: String,
    /// Precondition: UID that the object must have.
    pub(crate) uid: Option<String>,
    /// Precondition: resourceVersion that the object must have.
    pub(crate) version: Option<String>,
}
