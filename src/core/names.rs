//! Names that other programs read or write, such as annotations and conditions. Each comment names the project that introduced the
//! name.
//!
//! The keys of settings are defined in the modules of [`super::settings`].

/// Prefix of all annotations by which OpenYurt and yurt-ds configure updates of pods.
pub const ANNOTATION_PREFIX: &str = "apps.openyurt.io/";
/// Annotation of a pod that was updated in place. It stores the state before the update; see
/// [`crate::core::fleet::in_place::InPlaceState`].
pub const IN_PLACE_STATE: &str = "apps.openyurt.io/inplace-update-state";
/// Annotation of a Node. It lists DaemonSets whose pods keep their revision on the node; see [`crate::core::fleet::Hold`].
pub const HOLD: &str = "apps.openyurt.io/hold";
/// Path of the update strategy's type, which has to be [`ON_DELETE`] in a managed native DaemonSet (Kubernetes).
pub const UPDATE_STRATEGY_TYPE_FIELD: &str = "spec.updateStrategy.type";
/// Type of the update strategy under which the native controller replaces no pods (Kubernetes).
pub const ON_DELETE: &str = "OnDelete";
/// Path of the limit of the native rolling update, which is the default for `max-unavailable` (Kubernetes).
pub const ROLLING_UPDATE_MAX_UNAVAILABLE_FIELD: &str =
    "spec.updateStrategy.rollingUpdate.maxUnavailable";

/// Annotation of an `apps/v1` DaemonSet that the API server increments on every change of the template (Kubernetes).
pub const TEMPLATE_GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
/// Pod label with the template generation for which the pod was created (Kubernetes).
pub const TEMPLATE_GENERATION_LABEL: &str = "pod-template-generation";
/// Label of pods and ControllerRevisions with the hash of the revision (Kubernetes).
pub const REVISION_HASH_LABEL: &str = "controller-revision-hash";

/// Reason of the pod condition `PodScheduled` if its status is `False`: no node has the resources for the pod (Kubernetes).
pub const UNSCHEDULABLE: &str = "Unschedulable";
/// Pod condition that is `True` while a newer revision waits for the node owner (OpenYurt).
pub const POD_NEED_UPGRADE: &str = "PodNeedUpgrade";
/// Pod condition with the state of the image pre-pull (OpenYurt).
pub const POD_IMAGE_READY: &str = "PodImageReady";
/// Reason of the condition `PodNeedUpgrade` if its status is `True` and no new pod would be created on the node. The cause is a
/// `NoSchedule` taint that the template does not tolerate.
///
/// OpenYurt leaves the reason empty.
pub const UNTOLERATED_TAINT: &str = "UntoleratedTaint";
/// Prefix of the message of `PodNeedUpgrade` and `PodImageReady`. The hash of the revision follows (OpenYurt).
pub const CONDITION_MESSAGE_PREFIX: &str = "controllerrevision: ";
/// Reason of the condition `PodImageReady` if its status is `False`: a pull was requested (OpenYurt).
pub const WAIT_PULL_IMAGE: &str = "WaitPullImage";
/// Reason of the condition `PodImageReady` if its status is `True` (OpenYurt).
pub const PULL_IMAGE_SUCCESS: &str = "PullImageSuccess";
/// Reason of the condition `PodImageReady` if its status is `False`: the pull failed (OpenYurt).
pub const PULL_IMAGE_FAIL: &str = "PullImageFail";
/// Text between the Job's name and the cause in the message about a failed pull (OpenYurt, there without the colon).
pub const PULL_FAILED: &str = " failed: ";

/// API group of Advanced DaemonSets (Kruise).
pub const KRUISE_GROUP: &str = "apps.kruise.io";
/// Namespace and name of the Lease that Kruise's manager holds while it runs (Kruise).
pub const KRUISE_LEASE: (&str, &str) = ("kruise-system", "kruise-manager");
/// API version in owner references to an Advanced DaemonSet, even if the DaemonSet was created in another version (Kruise).
pub const KRUISE_VERSION: &str = "apps.kruise.io/v1beta1";
/// Readiness gate and condition of a pod that may be updated in place (Kruise).
pub const IN_PLACE_UPDATE_READY: &str = "InPlaceUpdateReady";
/// Annotation of an Advanced DaemonSet's pod that was updated in place. It stores the state before the update (Kruise).
pub const KRUISE_IN_PLACE_STATE: &str = "apps.kruise.io/inplace-update-state";
/// Annotation of an Advanced DaemonSet. With it, `partition` also keeps nodes without a pod from getting their first one (Kruise).
///
/// A native DaemonSet with this annotation is invalid.
pub const PROGRESSIVE_CREATE_POD: &str = "daemonset.kruise.io/progressive-create-pod";
/// Annotations of an Advanced DaemonSet with the meaning of the settings `image-predownload-…` (Kruise).
///
/// On a native DaemonSet they have no effect, so each one causes a warning.
pub const KRUISE_PREDOWNLOADS: [&str; 3] = [
    "apps.kruise.io/image-predownload-parallelism",
    "apps.kruise.io/image-predownload-timeout-seconds",
    "apps.kruise.io/image-predownload-min-updated-ready-pods",
];

/// Label of a pre-pull Job and of its pod. The value is the UID of the DaemonSet pod on whose node the images are pulled.
pub const PRE_PULL_POD: &str = "apps.openyurt.io/image-pre-pull";
/// Annotation of a pre-pull Job with the hash of the revision whose images it pulls.
pub const PRE_PULL_REVISION: &str = "apps.openyurt.io/image-pre-pull-revision";
/// Annotation of a pre-pull Job with the name of the DaemonSet.
pub const PRE_PULL_DAEMONSET: &str = "apps.openyurt.io/image-pre-pull-daemonset";

/// Hook in a `lifecycle` that runs before a deletion (Kruise).
pub const PRE_DELETE: &str = "preDelete";
/// Hook in a `lifecycle` that runs before an in-place update. It is rejected for a DaemonSet, as in Kruise.
pub const IN_PLACE_UPDATE: &str = "inPlaceUpdate";
/// Hook in a `lifecycle` that runs before a pod first becomes Ready. It is ignored for DaemonSets (Kruise).
pub const PRE_NORMAL: &str = "preNormal";
/// Pod label with the state of the pod in its lifecycle (Kruise).
pub const LIFECYCLE_STATE: &str = "lifecycle.apps.kruise.io/state";
/// Value of [`LIFECYCLE_STATE`] for a pod whose deletion waits for its preDelete hook (Kruise).
pub const PREPARING_DELETE: &str = "PreparingDelete";
/// Pod annotation with the time of the last change of [`LIFECYCLE_STATE`] (RFC 3339, Kruise).
pub const LIFECYCLE_TIMESTAMP: &str = "lifecycle.apps.kruise.io/timestamp";
/// Readiness gate of a pod, and the condition of the same name. While its message lists a reason, its status is `False` (Kruise).
pub const KRUISE_POD_READY: &str = "KruisePodReady";

/// DaemonSet condition that is `True` if every targeted online node runs the current revision.
pub const ROLLOUT_COMPLETE: &str = "RolloutComplete";
/// DaemonSet condition that is `True` while a rollout continues without an operator.
pub const PROGRESSING: &str = "Progressing";
/// DaemonSet condition that is `True` if the rollout cannot continue without an operator.
pub const STALLED: &str = "Stalled";
/// DaemonSet condition that is `True` while the rollout is paused.
pub const PAUSED_CONDITION: &str = "Paused";
/// DaemonSet condition with the nodes that failed with the current revision. It is `True` if the guard stopped the revision.
pub const GUARD: &str = "Guard";
/// DaemonSet condition that is `True` if a setting is invalid. The message names key, value and remedy.
pub const INVALID_SETTINGS: &str = "InvalidSettings";
/// DaemonSet condition with the writes that the API server rejects.
pub const REFUSED: &str = "Refused";

/// DaemonSet condition with the state of the rollout as JSON ([`RolloutState`](crate::core::RolloutState)).
///
/// Only programs read it. The other conditions are for people.
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
/// Name of the agent on each node, in field managers.
pub const OTA_SERVER: &str = "yurt-ds-ota-server";
/// Name of the Lease that the replicas of the controller share.
pub const LEASE: &str = "yurt-ds-controller";
/// Annotation of the Lease with the kinds of DaemonSets that its holder manages, in the format of `--controllers`.
pub const LEASE_KINDS: &str = "apps.openyurt.io/controllers";

/// Node annotations that make a node autonomous. While such a node is offline, its pods are not marked not Ready (OpenYurt).
///
/// The first two annotations require the value `true`. The last one accepts any value.
pub const AUTONOMY: [&str; 3] = [
    "apps.openyurt.io/binding",
    "node.beta.openyurt.io/autonomy",
    "node.openyurt.io/autonomy-duration",
];

/// Path of the manifests with the permissions that the controller always needs.
pub const BASE_RBAC: &str = "manifests/base/rbac";
/// Path of the manifests with the permissions for updates in place.
pub const IN_PLACE_RBAC: &str = "manifests/components/in-place";
/// Path of the manifests with the permissions for preDelete hooks.
pub const LIFECYCLE_RBAC: &str = "manifests/components/lifecycle";
/// Path of the manifests with the permissions for `max-surge`.
pub const MAX_SURGE_RBAC: &str = "manifests/components/max-surge";
/// Path of the manifests with the permissions for image pre-pulls.
pub const PRE_PULL_RBAC: &str = "manifests/components/pre-pull";
/// Path of the manifests with the permissions for Advanced DaemonSets.
pub const ADVANCED_RBAC: &str = "manifests/components/advanced";

/// Annotation of a DaemonSet with the hash of the revision from which the last `ctl undo` rolled back.
///
/// The annotation is ignored unless the number of that revision comes directly before the current one.
pub const ROLLED_BACK_FROM: &str = "apps.openyurt.io/rolled-back-from";
