//! What came of a plan that was played: steps, waits, and the state at the end.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::core::Phase;
use crate::core::messages::StatusSentence;
use crate::ctl::snapshot::RolloutSnapshot;

/// What was played.
pub(super) struct Played {
    pub(super) began: Timestamp,
    pub(super) steps: Vec<Replacement>,
    pub(super) waits: Vec<RolloutWait>,
    /// Nodes that broke.
    pub(super) broke: Vec<String>,
    /// When something happened to a pod last.
    pub(super) last: Option<Timestamp>,
    /// How long a pod has to be Ready to be available.
    pub(super) min_ready: Duration,
    /// The last look.
    pub(super) end: RolloutSnapshot,
    /// It was not over when nobody looked any more.
    pub(super) cut: bool,
}

/// A time in which nothing was replaced although something was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RolloutWait {
    pub(super) from: Timestamp,
    /// When something can change by itself; `None`: never.
    pub(super) until: Option<Timestamp>,
    pub(super) phase: Phase,
    /// What is awaited, as conditions say it: the reason, and its sentence.
    pub(super) awaited: StatusSentence,
}

/// A node that gets the new revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replacement {
    pub(super) node: String,
    pub(super) manner: ReplacementManner,
    pub(super) begins: Timestamp,
    pub(super) ready: Option<Timestamp>,
}

/// How a pod is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ReplacementManner {
    /// The old pod goes first.
    Delete,
    /// The new pod comes first.
    Surge,
    /// The pod stays and its images change.
    InPlace,
    /// There was no pod.
    Create,
}
