//! Every key, value and word that other programs read or write, each in one place, with who defined it. The keys of
//! settings stand in the modules of [`super::settings`].

/// Prefix of all annotations of the upgrade model (OpenYurt).
pub const ANNOTATION_PREFIX: &str = "apps.openyurt.io/";
/// On a pod that was updated in place: what it was like before, see [`crate::core::fleet::in_place::InPlaceState`].
pub const IN_PLACE_STATE: &str = "apps.openyurt.io/inplace-update-state";
/// On a Node: which DaemonSets leave it on its version, until when and why; see [`crate::core::fleet::Hold`].
pub const HOLD: &str = "apps.openyurt.io/hold";
/// `spec.updateStrategy.type` of a DaemonSet, which has to be [`ON_DELETE`] (Kubernetes).
pub const UPDATE_STRATEGY_TYPE_FIELD: &str = "spec.updateStrategy.type";
/// The update strategy under which the native controller leaves replacing to others (Kubernetes).
pub const ON_DELETE: &str = "OnDelete";
/// Left over from a rolling update of the native controller; stands in for an absent `max-unavailable` (Kubernetes).
pub const ROLLING_UPDATE_MAX_UNAVAILABLE_FIELD: &str =
    "spec.updateStrategy.rollingUpdate.maxUnavailable";

/// Server-managed annotation of `apps/v1` DaemonSets: +1 for every change of the template (Kubernetes).
pub const TEMPLATE_GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
/// Pod label: the generation above when the pod was made (Kubernetes).
pub const TEMPLATE_GENERATION_LABEL: &str = "pod-template-generation";
/// Pod and ControllerRevision label: the hash of the revision (Kubernetes).
pub const REVISION_HASH_LABEL: &str = "controller-revision-hash";

/// Reason of a pod condition `PodScheduled` that is `False`: the node has no room for it (Kubernetes).
pub const UNSCHEDULABLE: &str = "Unschedulable";
/// Pod condition: `True` when a newer revision waits for the owner of the node (OpenYurt).
pub const POD_NEED_UPGRADE: &str = "PodNeedUpgrade";
/// Pod condition: state of the image pre-pull (OpenYurt).
pub const POD_IMAGE_READY: &str = "PodImageReady";
/// Reason of a `PodNeedUpgrade` that is `True` on a node to which no other pod would come: a taint of effect `NoSchedule`
/// that the template does not tolerate. OpenYurt leaves the reason empty.
pub const UNTOLERATED_TAINT: &str = "UntoleratedTaint";
/// What the message of both conditions starts with, followed by the hash (OpenYurt).
pub const CONDITION_MESSAGE_PREFIX: &str = "controllerrevision: ";
/// Reason of a `PodImageReady` that is `False` because a pull was asked for (OpenYurt).
pub const WAIT_PULL_IMAGE: &str = "WaitPullImage";
/// Reason of a `PodImageReady` that is `True` (OpenYurt).
pub const PULL_IMAGE_SUCCESS: &str = "PullImageSuccess";
/// Reason of a `PodImageReady` that is `False` because the pull failed (OpenYurt).
pub const PULL_IMAGE_FAIL: &str = "PullImageFail";
/// What its message says between the name of the Job and the reason (OpenYurt, without the colon).
pub const PULL_FAILED: &str = " failed: ";

/// Group of Advanced DaemonSets (Kruise).
pub const KRUISE_GROUP: &str = "apps.kruise.io";
/// The Lease that Kruise's manager holds while it runs, and its namespace (Kruise).
pub const KRUISE_LEASE: (&str, &str) = ("kruise-system", "kruise-manager");
/// The version by which pods and revisions name their Advanced DaemonSet, whatever version made it (Kruise).
pub const KRUISE_VERSION: &str = "apps.kruise.io/v1beta1";
/// Readiness gate of a pod that may be updated in place, and the condition for it (Kruise).
pub const IN_PLACE_UPDATE_READY: &str = "InPlaceUpdateReady";
/// On a pod of an Advanced DaemonSet that was updated in place: what it was like before (Kruise).
pub const KRUISE_IN_PLACE_STATE: &str = "apps.kruise.io/inplace-update-state";
/// On an Advanced DaemonSet: `partition` limits the first creation of pods too; refused on a native one (Kruise).
pub const PROGRESSIVE_CREATE_POD: &str = "daemonset.kruise.io/progressive-create-pod";
/// On an Advanced DaemonSet what the settings of these names are here; warned of on a native one (Kruise).
pub const KRUISE_PREDOWNLOADS: [&str; 3] = [
    "apps.kruise.io/image-predownload-parallelism",
    "apps.kruise.io/image-predownload-timeout-seconds",
    "apps.kruise.io/image-predownload-min-updated-ready-pods",
];

/// Label of a pre-pull Job and of its pod: the UID of the DaemonSet's pod whose node is to pull.
pub const PRE_PULL_POD: &str = "apps.openyurt.io/image-pre-pull";
/// Annotation of a pre-pull Job: the hash of the revision whose images it pulls.
pub const PRE_PULL_REVISION: &str = "apps.openyurt.io/image-pre-pull-revision";
/// Annotation of a pre-pull Job: the name of the DaemonSet.
pub const PRE_PULL_DAEMONSET: &str = "apps.openyurt.io/image-pre-pull-daemonset";

/// The hooks of a `lifecycle`: before a deletion, before an update in place, before the first Ready (Kruise).
pub const PRE_DELETE: &str = "preDelete";
/// See [`PRE_DELETE`]; refused for a DaemonSet (Kruise).
pub const IN_PLACE_UPDATE: &str = "inPlaceUpdate";
/// See [`PRE_DELETE`]; without effect for a DaemonSet (Kruise).
pub const PRE_NORMAL: &str = "preNormal";
/// Pod label: where the pod is in its lifecycle (Kruise).
pub const LIFECYCLE_STATE: &str = "lifecycle.apps.kruise.io/state";
/// Value of [`LIFECYCLE_STATE`]: the pod is to be deleted, and waits for its hook (Kruise).
pub const PREPARING_DELETE: &str = "PreparingDelete";
/// Pod annotation: since when [`LIFECYCLE_STATE`] is as it is (RFC 3339, Kruise).
pub const LIFECYCLE_TIMESTAMP: &str = "lifecycle.apps.kruise.io/timestamp";
/// Readiness gate of a pod, and the condition for it: `False` while anybody in its message keeps the pod not Ready (Kruise).
pub const KRUISE_POD_READY: &str = "KruisePodReady";

/// DaemonSet condition: every targeted node that is online runs the current revision.
pub const ROLLOUT_COMPLETE: &str = "RolloutComplete";
/// DaemonSet condition: the rollout is moving.
pub const PROGRESSING: &str = "Progressing";
/// DaemonSet condition: the rollout stopped by itself and needs a person.
pub const STALLED: &str = "Stalled";
/// DaemonSet condition: the rollout is paused.
pub const PAUSED_CONDITION: &str = "Paused";
/// DaemonSet condition: nodes that failed with the current revision, and `True` when the guard stopped it.
pub const GUARD: &str = "Guard";
/// DaemonSet condition: the settings cannot be used; the message names key, value and cure.
pub const INVALID_SETTINGS: &str = "InvalidSettings";
/// DaemonSet condition: what the API server refuses.
pub const REFUSED: &str = "Refused";

/// DaemonSet condition: the memory of the rollout, as JSON for the controller
/// ([`RolloutState`](crate::core::RolloutState)). The other conditions are for people.
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
/// Annotation of the Lease: the kinds of DaemonSets that its holder rolls out, as `--controllers` takes them.
pub const LEASE_KINDS: &str = "apps.openyurt.io/controllers";

/// Node annotations of which one makes a node autonomous: its pods are not marked not ready while it is offline
/// (OpenYurt). The first two count with the value `true`, the last with any.
pub const AUTONOMY: [&str; 3] = [
    "apps.openyurt.io/binding",
    "node.beta.openyurt.io/autonomy",
    "node.openyurt.io/autonomy-duration",
];

/// Manifests with the rights that the controller always needs.
pub const BASE_RBAC: &str = "manifests/base/rbac";
/// Manifests with the rights that updates in place add.
pub const IN_PLACE_RBAC: &str = "manifests/components/in-place";
/// Manifests with the rights that hooks add.
pub const LIFECYCLE_RBAC: &str = "manifests/components/lifecycle";
/// Manifests with the rights that `max-surge` adds.
pub const MAX_SURGE_RBAC: &str = "manifests/components/max-surge";
/// Manifests with the rights that pulling images ahead adds.
pub const PRE_PULL_RBAC: &str = "manifests/components/pre-pull";
/// Manifests with the rights that Advanced DaemonSets add.
pub const ADVANCED_RBAC: &str = "manifests/components/advanced";

/// Annotation of a DaemonSet: hash of the revision that the last `ctl undo` left. It is ignored unless that revision comes
/// directly before the current one, by number.
pub const ROLLED_BACK_FROM: &str = "apps.openyurt.io/rolled-back-from";
