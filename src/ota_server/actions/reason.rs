//! Values of the header `X-OTA-Reason`. They distinguish the many cases for which OpenYurt uses the statuses 403 and 500.

use crate::core::names::UNTOLERATED_TAINT;

/// Reason of an answer. docs/reference/node-api.md documents the complete list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// 503: the API server does not answer.
    Disconnected,
    /// 503: the API server asks for fewer requests.
    Throttled,
    /// 500: the pod does not exist, or is not on this node.
    NotFound,
    /// 500: the API server answered a read with an error.
    ReadFailed,
    /// 500: the agent's service account lacks a permission.
    Forbidden,
    /// 500: an admission policy, a webhook or a quota rejected the write.
    Refused,
    /// 500: the agent has not received the pods of this node yet.
    NothingKnownYet,
    /// 403: the pod is being deleted.
    Deleting,
    /// 403: the pod runs on another node.
    OtherNode,
    /// 403: no newer revision is available for this pod.
    NotUpgradable,
    /// 403: the pod's DaemonSet was deleted or recreated.
    DaemonSetGone,
    /// 403: the pod's DaemonSet does not use OTA, or its settings are invalid.
    ModeChanged,
    /// 403: the pod's DaemonSet is paused.
    Paused,
    /// 403: the native controller has not processed the latest change of the DaemonSet.
    NativeControllerBehind,
    /// 403: the pod runs the current revision, although `PodNeedUpgrade` may be `True`.
    NotOutdated,
    /// 409: the node's taints would repel a new pod.
    UntoleratedTaint,
    /// 403: the requested images are not pulled yet.
    ImageNotReady,
    /// 403: pulling the images failed.
    ImagePullFailed,
    /// 400: the pod has no owner that would create it again.
    NoOwner,
    /// 400: owners of this kind are not supported.
    UnsupportedKind,
    /// 500: the name of a static pod doesn't end in the name of the node.
    StaticPodName,
    /// 403: the static pod has no ConfigMap with a manifest.
    ConfigMapMissing,
    /// 500: the ConfigMap doesn't contain a manifest of this pod.
    ManifestInvalid,
    /// 500: the write was rejected, or there was no response to it.
    ApplyFailed,
    /// 200: the pod is being replaced.
    Started,
    /// 200: the pull was requested.
    Requested,
    /// 200: the pull was requested before and is in progress.
    AlreadyRequested,
    /// 200: the images are pulled.
    AlreadyPulled,
    /// 200: the static pod already has this manifest.
    Unchanged,
}

impl Reason {
    /// Returns the value of the header.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Disconnected => "Disconnected",
            Self::Throttled => "Throttled",
            Self::NotFound => "NotFound",
            Self::ReadFailed => "ReadFailed",
            Self::Forbidden => "Forbidden",
            Self::Refused => "Refused",
            Self::NothingKnownYet => "NothingKnownYet",
            Self::Deleting => "Deleting",
            Self::OtherNode => "OtherNode",
            Self::NotUpgradable => "NotUpgradable",
            Self::DaemonSetGone => "DaemonSetGone",
            Self::ModeChanged => "ModeChanged",
            Self::Paused => "Paused",
            Self::NativeControllerBehind => "NativeControllerBehind",
            Self::NotOutdated => "NotOutdated",
            Self::UntoleratedTaint => UNTOLERATED_TAINT,
            Self::ImageNotReady => "ImageNotReady",
            Self::ImagePullFailed => "ImagePullFailed",
            Self::NoOwner => "NoOwner",
            Self::UnsupportedKind => "UnsupportedKind",
            Self::StaticPodName => "StaticPodName",
            Self::ConfigMapMissing => "ConfigMapMissing",
            Self::ManifestInvalid => "ManifestInvalid",
            Self::ApplyFailed => "ApplyFailed",
            Self::Started => "Started",
            Self::Requested => "Requested",
            Self::AlreadyRequested => "AlreadyRequested",
            Self::AlreadyPulled => "AlreadyPulled",
            Self::Unchanged => "Unchanged",
        }
    }
}
