//! The two kinds called DaemonSet, and the words that differ between them.

use super::names::{KRUISE_GROUP, KRUISE_VERSION};

/// Which of the two kinds called DaemonSet it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetKind {
    /// Of the group `apps`: Kubernetes' own controller makes its pods.
    #[default]
    Native,
    /// Of the group `apps.kruise.io` (Advanced DaemonSet): this controller makes its pods.
    Advanced,
}

impl SetKind {
    /// That of a DaemonSet which names this `apiVersion`, whatever version of its group.
    pub fn of_api_version(api_version: &str) -> Self {
        match api_version.split_once('/') {
            Some((KRUISE_GROUP, _)) => Self::Advanced,
            _ => Self::Native,
        }
    }

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Native => Self::Advanced,
            Self::Advanced => Self::Native,
        }
    }

    /// Who makes and removes its pods and its revisions, as sentences call it.
    pub fn controller(self) -> &'static str {
        match self {
            Self::Native => "the native DaemonSet controller",
            Self::Advanced => "the yurt-ds controller",
        }
    }

    /// Of whom somebody sees whether it runs, where that is not done.
    pub fn process(self) -> &'static str {
        match self {
            Self::Native => "kube-controller-manager",
            Self::Advanced => "the yurt-ds controller",
        }
    }

    /// The group of its API.
    pub fn group(self) -> &'static str {
        match self {
            Self::Native => "apps",
            Self::Advanced => KRUISE_GROUP,
        }
    }

    /// Its `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Native => "apps/v1",
            Self::Advanced => KRUISE_VERSION,
        }
    }

    /// Short name of the resource for kubectl.
    pub fn short_name(self) -> &'static str {
        match self {
            Self::Native => "ds",
            Self::Advanced => "ads",
        }
    }

    /// How kubectl names the resource so that the other one is not meant.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Native => "daemonset",
            Self::Advanced => "daemonset.apps.kruise.io",
        }
    }
}
