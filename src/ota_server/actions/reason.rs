//! The word in `X-OTA-Reason`: what a program reads where OpenYurt says 403 and 500 to many different things.

use crate::core::names::UNTOLERATED_TAINT;

/// Why an action was answered as it was. The list is closed: a new reason is a new variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// 503: the API server does not answer.
    Disconnected,
    /// 503: the API server asks for fewer requests.
    Throttled,
    /// 500: there is no such pod, or it is none of this node's.
    NotFound,
    /// 500: the API server answered a read with a failure.
    ReadFailed,
    /// 500: the agent's service account lacks a permission.
    Forbidden,
    /// 500: an admission policy, a webhook or a quota refuses the write.
    Refused,
    /// 500: nothing is known of this node's pods yet.
    NothingKnownYet,
    /// 403: the pod is being deleted.
    Deleting,
    /// 403: the pod runs on another node.
    OtherNode,
    /// 403: no new version waits for this pod.
    NotUpgradable,
    /// 403: its DaemonSet is gone, or is another one of the same name.
    DaemonSetGone,
    /// 403: its DaemonSet is not in OTA mode (any more), or its settings cannot be used.
    ModeChanged,
    /// 403: its DaemonSet is paused.
    Paused,
    /// 403: the native controller has not handled the last change of the DaemonSet yet.
    NativeControllerBehind,
    /// 403: the pod runs the current revision, whatever its condition says.
    NotOutdated,
    /// 409: no other pod would come to this node.
    UntoleratedTaint,
    /// 403: the images that were asked for are not there yet.
    ImageNotReady,
    /// 403: pulling the images failed.
    ImagePullFailed,
    /// 400: nobody owns the pod, so nobody would make it again.
    NoOwner,
    /// 400: its owner is of a kind that this is not made for.
    UnsupportedKind,
    /// 500: a static pod whose name does not end in that of the node.
    StaticPodName,
    /// 403: a static pod without its ConfigMap.
    ConfigMapMissing,
    /// 500: what the ConfigMap holds is not the manifest of that pod.
    ManifestInvalid,
    /// 500: the write was refused, or not answered.
    ApplyFailed,
    /// 200: the pod is on its way.
    Started,
    /// 200: the pull is asked for.
    Requested,
    /// 200: the pull was asked for before, and is on its way.
    AlreadyRequested,
    /// 200: the images are there.
    AlreadyPulled,
    /// 200: the static pod has this manifest already.
    Unchanged,
}

impl Reason {
    /// The word.
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
