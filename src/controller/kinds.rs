//! Kinds of DaemonSets that the controller rolls out: native (`apps/v1`) and Advanced (`apps.kruise.io`).

use std::fmt;

use k8s_openapi::api::coordination::v1::Lease;

use crate::core::names::LEASE_KINDS;
use crate::index::SetKind;

/// Kinds of DaemonSets that are rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    /// True if native DaemonSets are rolled out.
    pub native: bool,
    /// True if Advanced DaemonSets are rolled out.
    pub advanced: bool,
}

impl Kinds {
    /// Native and Advanced DaemonSets, the default of `--controllers`.
    pub const BOTH: Self = Self {
        native: true,
        advanced: true,
    };

    /// No kind, so no DaemonSet is rolled out.
    pub const NONE: Self = Self {
        native: false,
        advanced: false,
    };

    /// Returns true if the two sets have a kind in common.
    pub fn meets(self, other: Self) -> bool {
        self.native && other.native || self.advanced && other.advanced
    }

    /// Returns the kinds that are not among `others`.
    pub fn without(self, others: Self) -> Self {
        Self {
            native: self.native && !others.native,
            advanced: self.advanced && !others.advanced,
        }
    }

    /// Returns the kinds that are in either set.
    pub fn with(self, others: Self) -> Self {
        Self {
            native: self.native || others.native,
            advanced: self.advanced || others.advanced,
        }
    }

    /// Returns true if `kind` is in the set.
    pub fn contains(self, kind: SetKind) -> bool {
        match kind {
            SetKind::Native => self.native,
            SetKind::Advanced => self.advanced,
        }
    }

    /// Returns the kinds that the holder of a Lease serves. `None`: the holder is an older version, which doesn't record its kinds.
    pub fn of_lease(lease: &Lease) -> Option<Self> {
        let annotations = lease.metadata.annotations.as_ref()?;
        let kinds: Vec<&str> = annotations.get(LEASE_KINDS)?.split(',').collect();
        Some(Self {
            native: kinds.contains(&word(SetKind::Native)),
            advanced: kinds.contains(&word(SetKind::Advanced)),
        })
    }
}

/// Formats the kinds in the syntax of `--controllers`.
impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [SetKind::Native, SetKind::Advanced].into_iter();
        let words: Vec<&str> = kinds
            .filter(|kind| self.contains(*kind))
            .map(word)
            .collect();
        f.write_str(&words.join(","))
    }
}

/// Converts a single kind to a set.
impl From<SetKind> for Kinds {
    fn from(kind: SetKind) -> Self {
        Self {
            native: kind == SetKind::Native,
            advanced: kind == SetKind::Advanced,
        }
    }
}

/// Returns the name of a kind in `--controllers`.
pub(super) fn word(kind: SetKind) -> &'static str {
    match kind {
        SetKind::Native => "native",
        SetKind::Advanced => "advanced",
    }
}

/// Returns the resource name of a kind, as used for watches and readiness.
pub(super) fn resource_of(kind: SetKind) -> &'static str {
    match kind {
        SetKind::Native => "daemonsets",
        SetKind::Advanced => "daemonsets.apps.kruise.io",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_kinds_annotation_of_a_lease_round_trips() {
        let lease = |kinds: &str| {
            let meta = json!({ "metadata": { "annotations": { LEASE_KINDS: kinds } } });
            serde_json::from_value::<Lease>(meta).unwrap()
        };
        let alone = [SetKind::Native, SetKind::Advanced].map(Kinds::from);
        for kinds in alone.into_iter().chain([Kinds::BOTH]) {
            assert_eq!(Kinds::of_lease(&lease(&kinds.to_string())), Some(kinds));
        }
        assert_eq!(Kinds::of_lease(&Lease::default()), None);
    }
}
