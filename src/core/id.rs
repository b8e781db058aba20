//! Identifiers of nodes, pods and revisions, and the state of the current revision.

mod compact;

/// Number of the first ControllerRevision of a DaemonSet. Its pods replaced no other pods.
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
            /// Returns the text.
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
    /// Name of a Node.
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

/// The revision that the nodes should run, if it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevisionState {
    /// The ControllerRevision of the present template is known.
    Current(Revision),
    /// The current revision is unknown, and no pod may be replaced yet. Messages name the awaited event.
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
/// It is the newest ControllerRevision whose template is that of the DaemonSet (Kubernetes, `constructHistory` in
/// `pkg/controller/daemon/update.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevisionUnknown {
    /// The native controller has not observed this generation of the DaemonSet.
    NotObserved,
    /// No ControllerRevision of this DaemonSet is known.
    NoRevision,
    /// Two revisions share the greatest number: the native controller is merging duplicates.
    Tie,
    /// The newest revision does not hold the present template: one of the two cached objects is stale.
    Mismatch,
    /// A pod has an unknown revision: the cache may be stale.
    UnknownRevision,
}

/// The revision of a pod, by its label `controller-revision-hash`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodRevision {
    /// The current revision.
    Current,
    /// An older revision.
    Outdated,
    /// An unknown revision; it has to be looked up before any action.
    Unknown,
}
