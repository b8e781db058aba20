//! Which kinds of DaemonSets there are to roll out.

use crate::index::SetKind;

/// Which kinds of DaemonSets are rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    /// Native ones.
    pub native: bool,
    /// Advanced ones.
    pub advanced: bool,
}

/// That kind alone.
impl From<SetKind> for Kinds {
    fn from(kind: SetKind) -> Self {
        Self {
            native: kind == SetKind::Native,
            advanced: kind == SetKind::Advanced,
        }
    }
}

/// What is waited for at the start, by the kind of DaemonSets.
pub(super) fn resource_of(kind: SetKind) -> &'static str {
    match kind {
        SetKind::Native => "daemonsets",
        SetKind::Advanced => "daemonsets.apps.kruise.io",
    }
}
