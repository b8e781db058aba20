//! The two kinds of objects named DaemonSet, and the words that messages use for each.

use super::names::{KRUISE_GROUP, KRUISE_VERSION};

/// Kind of a DaemonSet, which determines the controller that creates its pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetKind {
    /// DaemonSet of the group `apps`. The native controller of Kubernetes creates its pods.
    #[default]
    Native,
    /// Advanced DaemonSet of the group `apps.kruise.io`. The yurt-ds controller creates its pods.
    Advanced,
}

impl SetKind {
    /// Returns the kind for an `apiVersion`. The version within the group is ignored.
    pub fn of_api_version(api_version: &str) -> Self {
        match api_version.split_once('/') {
            Some((KRUISE_GROUP, _)) => Self::Advanced,
            _ => Self::Native,
        }
    }

    /// Returns the other kind.
    pub fn other(self) -> Self {
        match self {
            Self::Native => Self::Advanced,
            Self::Advanced => Self::Native,
        }
    }

    /// Returns the name of the controller that creates the pods and revisions, as messages use it.
    pub fn controller(self) -> &'static str {
        match self {
            Self::Native => "the native DaemonSet controller",
            Self::Advanced => "the yurt-ds controller",
        }
    }

    /// Returns the name of the process in which that controller runs, for messages about a failure of the controller.
    pub fn process(self) -> &'static str {
        match self {
            Self::Native => "kube-controller-manager",
            Self::Advanced => "the yurt-ds controller",
        }
    }

    /// Returns the API group of the kind, such as `apps`.
    pub fn group(self) -> &'static str {
        match self {
            Self::Native => "apps",
            Self::Advanced => KRUISE_GROUP,
        }
    }

    /// Returns the `apiVersion` of the kind, such as `apps/v1`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Native => "apps/v1",
            Self::Advanced => KRUISE_VERSION,
        }
    }

    /// Returns the short name of the resource for kubectl, such as `ds`.
    pub fn short_name(self) -> &'static str {
        match self {
            Self::Native => "ds",
            Self::Advanced => "ads",
        }
    }

    /// Returns the unambiguous name of the resource for kubectl, such as `daemonset`.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Native => "daemonset",
            Self::Advanced => "daemonset.apps.kruise.io",
        }
    }
}
