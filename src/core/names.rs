//! Keys, values and words that other programs read or write, each defined once, with the project that defined it.
//!
//! The keys of settings are defined in the modules of [`super::settings`].

/// Prefix of all annotations of the upgrade model (OpenYurt).
pub const ANNOTATION_PREFIX: &str = "apps.openyurt.io/";
/// Annotation of a pod that was updated in place: its state before, see [`crate::core::fleet::in_place::InPlaceState`].
pub const IN_PLACE_STATE: &str = "apps.openyurt.io/inplace-update-state";
/// Annotation of a Node: the DaemonSets that keep their version on it, until when and why; see [`crate::core::fleet::Hold`].
pub const HOLD: &str = "apps.openyurt.io/hold";
/// `spec.updateStrategy.type` of a DaemonSet; must be [`ON_DELETE`] (Kubernetes).
pub const UPDATE_STRATEGY_TYPE_FIELD: &str = "spec.updateStrategy.type";
/// The update strategy under which the native controller does not replace pods (Kubernetes).
pub const ON_DELETE: &str = "OnDelete";
/// Field left over from a rolling update of the native controller; the default for `max-unavailable` (Kubernetes).
pub const ROLLING_UPDATE_MAX_UNAVAILABLE_FIELD: &str =
    "spec.updateStrategy.rollingUpdate.maxUnavailable";

/// Server-managed annotation of `apps/v1` DaemonSets, incremented on every change of the template (Kubernetes).
pub const TEMPLATE_GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
/// Pod label: the template generation when the pod was created (Kubernetes).
pub const TEMPLATE_GENERATION_LABEL: &str = "pod-template-generation";
/// Pod and ControllerRevision label: the hash of the revision (Kubernetes).
pub const REVISION_HASH_LABEL: &str = "controller-revision-hash";

/// Reason of a pod condition `PodScheduled` that is `False`: the node lacks resources for the pod (Kubernetes).
pub const UNSCHEDULABLE: &str = "Unschedulable";
/// Pod condition: `True` if a newer revision waits for the node owner (OpenYurt).
pub const POD_NEED_UPGRADE: &str = "PodNeedUpgrade";
/// Pod condition: state of the image pre-pull (OpenYurt).
pub const POD_IMAGE_READY: &str = "PodImageReady";
/// Reason of a `PodNeedUpgrade` that is `True` on a node where no new pod would be created: the template does not tolerate a
/// `NoSchedule` taint.
///
/// OpenYurt leaves the reason empty.
pub const UNTOLERATED_TAINT: &str = "UntoleratedTaint";
/// Prefix of the message of both conditions, followed by the hash (OpenYurt).
pub const CONDITION_MESSAGE_PREFIX: &str = "controllerrevision: ";
/// Reason of a `PodImageReady` that is `False` because a pull was requested (OpenYurt).
pub const WAIT_PULL_IMAGE: &str = "WaitPullImage";
/// Reason of a `PodImageReady` that is `True` (OpenYurt).
pub const PULL_IMAGE_SUCCESS: &str = "PullImageSuccess";
/// Reason of a `PodImageReady` that is `False` because the pull failed (OpenYurt).
pub const PULL_IMAGE_FAIL: &str = "PullImageFail";
/// Part of its message between the name of the Job and the reason (OpenYurt, without the colon).
pub const PULL_FAILED: &str = " failed: ";

/// Group of Advanced DaemonSets (Kruise).
pub const KRUISE_GROUP: &str = "apps.kruise.io";
/// The Lease that Kruise's manager holds while it runs, and its namespace (Kruise).
pub const KRUISE_LEASE: (&str, &str) = ("kruise-system", "kruise-manager");
/// API version with which pods and revisions refer to their Advanced DaemonSet, in whatever version it was created (Kruise).
pub const KRUISE_VERSION: &str = "apps.kruise.io/v1beta1";
/// Readiness gate and condition of a pod that may be updated in place (Kruise).
pub const IN_PLACE_UPDATE_READY: &str = "InPlaceUpdateReady";
/// Annotation of a pod of an Advanced DaemonSet that was updated in place: its state before (Kruise).
pub const KRUISE_IN_PLACE_STATE: &str = "apps.kruise.io/inplace-update-state";
/// Annotation of an Advanced DaemonSet: `partition` also limits the first creation of pods. Rejected on a native one (Kruise).
pub const PROGRESSIVE_CREATE_POD: &str = "daemonset.kruise.io/progressive-create-pod";
/// Annotations of an Advanced DaemonSet that correspond to the settings with these names. Warned about on a native one (Kruise).
pub const KRUISE_PREDOWNLOADS: [&str; 3] = [
    "apps.kruise.io/image-predownload-parallelism",
    "apps.kruise.io/image-predownload-timeout-seconds",
    "apps.kruise.io/image-predownload-min-updated-ready-pods",
];

/// Label of a pre-pull Job and of its pod: the UID of the DaemonSet pod on whose node the images are pulled.
pub const PRE_PULL_POD: &str = "apps.openyurt.io/image-pre-pull";
/// Annotation of a pre-pull Job: the hash of the revision whose images it pulls.
pub const PRE_PULL_REVISION: &str = "apps.openyurt.io/image-pre-pull-revision";
/// Annotation of a pre-pull Job: the name of the DaemonSet.
pub const PRE_PULL_DAEMONSET: &str = "apps.openyurt.io/image-pre-pull-daemonset";

/// Hook of a `lifecycle` before a deletion (Kruise).
pub const PRE_DELETE: &str = "preDelete";
/// Hook of a `lifecycle` before an update in place; rejected for a DaemonSet (Kruise).
pub const IN_PLACE_UPDATE: &str = "inPlaceUpdate";
/// Hook of a `lifecycle` before a pod first becomes Ready; without effect for a DaemonSet (Kruise).
pub const PRE_NORMAL: &str = "preNormal";
/// Pod label: state of the pod in its lifecycle (Kruise).
pub const LIFECYCLE_STATE: &str = "lifecycle.apps.kruise.io/state";
/// Value of [`LIFECYCLE_STATE`]: the pod is to be deleted, and waits for its hook (Kruise).
pub const PREPARING_DELETE: &str = "PreparingDelete";
/// Pod annotation: time of the last change of [`LIFECYCLE_STATE`] (RFC 3339, Kruise).
pub const LIFECYCLE_TIMESTAMP: &str = "lifecycle.apps.kruise.io/timestamp";
/// Readiness gate of a pod, and its condition: `False` while its message lists a reason to keep the pod not Ready (Kruise).
pub const KRUISE_POD_READY: &str = "KruisePodReady";

/// DaemonSet condition: every targeted online node runs the current revision.
pub const ROLLOUT_COMPLETE: &str = "RolloutComplete";
/// DaemonSet condition: the rollout is moving.
pub const PROGRESSING: &str = "Progressing";
/// DaemonSet condition: the rollout stopped automatically and needs an operator.
pub const STALLED: &str = "Stalled";
/// DaemonSet condition: the rollout is paused.
pub const PAUSED_CONDITION: &str = "Paused";
/// DaemonSet condition: the nodes that failed with the current revision; `True` if the guard stopped it.
pub const GUARD: &str = "Guard";
/// DaemonSet condition: the settings are invalid; the message names key, value and remedy.
pub const INVALID_SETTINGS: &str = "InvalidSettings";
/// DaemonSet condition: the writes that the API server refuses.
pub const REFUSED: &str = "Refused";

/// DaemonSet condition: the state of the rollout as JSON, for the controller ([`RolloutState`](crate::core::RolloutState)).
///
/// The other conditions are human-readable.
pub const ROLLOUT_STATE: &str = "RolloutState";

/// Types of the conditions that the controller writes to a DaemonSet's status.
pub const OWN_CONDITIONS: [&str; 8] = [
    ROLLOUT_COMPLETE,
    PROGRESSING,
    STALLED,
    PAUSED_CONDITION,
    INVALID_SETTINGS,
    REFUSED,
    GUARD,
    ROLLOUT_STATE,
];

/// Name of the controller in Events, field managers and the Lease.
pub const CONTROLLER: &str = "yurt-ds-controller";
/// Name of the node's agent in field managers.
pub const OTA_SERVER: &str = "yurt-ds-ota-server";
/// Name of the Lease that the replicas of the controller share.
pub const LEASE: &str = "yurt-ds-controller";
/// Annotation of the Lease: the kinds of DaemonSets that its holder rolls out, in the format of `--controllers`.
pub const LEASE_KINDS: &str = "apps.openyurt.io/controllers";

/// Node annotations that make a node autonomous: its pods are not marked not Ready while it is offline (OpenYurt).
///
/// The first two need the value `true`; the last takes any value.
pub const AUTONOMY: [&str; 3] = [
    "apps.openyurt.io/binding",
    "node.beta.openyurt.io/autonomy",
    "node.openyurt.io/autonomy-duration",
];

/// Manifests with the permissions that the controller always needs.
pub const BASE_RBAC: &str = "manifests/base/rbac";
/// Manifests with the permissions for updates in place.
pub const IN_PLACE_RBAC: &str = "manifests/components/in-place";
/// Manifests with the permissions for hooks.
pub const LIFECYCLE_RBAC: &str = "manifests/components/lifecycle";
/// Manifests with the permissions for `max-surge`.
pub const MAX_SURGE_RBAC: &str = "manifests/components/max-surge";
/// Manifests with the permissions for image pre-pulls.
pub const PRE_PULL_RBAC: &str = "manifests/components/pre-pull";
/// Manifests with the permissions for Advanced DaemonSets.
pub const ADVANCED_RBAC: &str = "manifests/components/advanced";

/// Annotation of a DaemonSet: hash of the revision that the last `ctl undo` rolled back from.
///
/// It is ignored unless that revision comes directly before the current one, by number.
pub const ROLLED_BACK_FROM: &str = "apps.openyurt.io/rolled-back-from";
