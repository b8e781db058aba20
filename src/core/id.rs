//! Identifiers of nodes, pods and revisions, and the state of the current revision.

mod compact;

/// Number of a DaemonSet's first ControllerRevision. Pods of that revision are the first pods on their nodes, so they replaced no
/// others.
pub const FIRST_REVISION: i64 = 1;

use std::fmt;
use std::sync::Arc;

pub use compact::{PodUid, ResourceVersion};
use serde::{Deserialize, Serialize};

macro_rules! text {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<Arc<str>> for $name {
            fn from(text: Arc<str>) -> Self {
                Self(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text! {
    /// Name of a Node, unique in the cluster.
    NodeName
}
text! {
    /// Name of a Pod, unique in its namespace.
    PodName
}
text! {
    /// Hash of a ControllerRevision, as in the label `controller-revision-hash`.
    Revision
}

/// Current revision of a DaemonSet, or the reason why it is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevisionState {
    /// The current revision is known.
    Current(Revision),
    /// The current revision is unknown, so no pod may be replaced yet. Messages report the reason.
    Unknown(RevisionUnknown),
}

impl RevisionState {
    /// Returns the current revision; `None` while it is not known.
    pub fn current(&self) -> Option<&Revision> {
        match self {
            Self::Current(revision) => Some(revision),
            Self::Unknown(_) => None,
        }
    }
}

/// Reason why the current revision is unknown.
///
/// The current revision is the newest ControllerRevision with the same template as the DaemonSet (Kubernetes, `constructHistory` in
/// `pkg/controller/daemon/update.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevisionUnknown {
    /// The native controller has not observed the latest generation of the DaemonSet.
    NotObserved,
    /// No ControllerRevision of this DaemonSet is known.
    NoRevision,
    /// Two revisions share the greatest number, because the native controller is merging duplicates.
    Tie,
    /// The newest revision does not contain the DaemonSet's template, so one of the two cached objects is out of date.
    Mismatch,
    /// A pod has a revision that is not in the cache, possibly because the cache is out of date.
    UnknownRevision,
}

/// Relation of a pod's revision, in the label `controller-revision-hash`, to the current revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodRevision {
    /// The pod has the current revision.
    Current,
    /// The pod has an older revision.
    Outdated,
    /// The pod's revision is not known. No pod is changed before it is.
    Unknown,
}
