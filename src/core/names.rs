//! Every key, value and word that other programs read or write, each in one place, with who defined it.

/// Prefix of all annotations of the upgrade model (OpenYurt).
pub const ANNOTATION_PREFIX: &str = "apps.openyurt.io/";
/// How the DaemonSet is rolled out: `AdvancedRollingUpdate` (alias `auto`) or `OTA`, any letter case (OpenYurt).
pub const UPDATE_STRATEGY: &str = "apps.openyurt.io/update-strategy";
/// The same under the key of OpenYurt's proposal of 2022, read when the current key is absent.
pub const UPGRADE_STRATEGY: &str = "apps.openyurt.io/upgrade-strategy";
/// Integer or percent of the targeted nodes; see [`crate::core::Strategy`] (OpenYurt, ACK Edge).
pub const MAX_UNAVAILABLE: &str = "apps.openyurt.io/max-unavailable";
/// On how many targeted nodes (integer or percent) a new pod is made beside the old one at once (KEP, Kruise).
pub const MAX_SURGE: &str = "apps.openyurt.io/max-surge";
/// `true`, `false`, or an RFC 3339 time until which the pause holds (KEP "RollingUpdate enhancement", Kruise).
pub const PAUSED: &str = "apps.openyurt.io/paused";
/// Integer or percent of the targeted nodes (rounded down) that keep the old revision (KEP, Kruise).
pub const PARTITION: &str = "apps.openyurt.io/partition";
/// Which nodes take part in a rollout: a label selector over nodes, as a string or as JSON (KEP, Kruise).
pub const SELECTOR: &str = "apps.openyurt.io/selector";
/// How long a node that returned has to be Ready before its pod is touched, as a duration (`30s`).
pub const READY_SETTLE: &str = "apps.openyurt.io/ready-settle";
/// What has to happen before a pod is deleted: the JSON of `spec.lifecycle` of an Advanced DaemonSet (Kruise).
pub const LIFECYCLE: &str = "apps.openyurt.io/lifecycle";
/// How a pod is made to go: `delete` or `evict`; see [`crate::core::strategy::Disruption`].
pub const DISRUPTION: &str = "apps.openyurt.io/disruption";
/// How many nodes (integer or percent) pull the new images at once, ahead of their replacement (Kruise, ACK Edge).
pub const IMAGE_PREDOWNLOAD_PARALLELISM: &str = "apps.openyurt.io/image-predownload-parallelism";
/// Whether a replacement waits for the images of its node: `required` or `best-effort`; see [`crate::core::Predownload`].
pub const PREDOWNLOAD: &str = "apps.openyurt.io/predownload";
/// The shortest time between two replacements, as a duration (k/k#111073).
pub const MIN_INTERVAL: &str = "apps.openyurt.io/min-interval";
/// How many nodes (integer or percent) are replaced at once at first; it doubles while all goes well.
pub const RAMP_UP: &str = "apps.openyurt.io/ramp-up";
/// A node label whose values are failure domains, touched one after the other (k/k#114010).
pub const TOPOLOGY_KEY: &str = "apps.openyurt.io/topology-key";
/// In how many of these domains something may be under way at once.
pub const MAX_DOMAINS: &str = "apps.openyurt.io/max-domains";
/// Whether running pods are updated in place where that is possible: `Standard` or `InPlaceIfPossible` (Kruise).
pub const ROLLING_UPDATE_TYPE: &str = "apps.openyurt.io/rolling-update-type";
/// On a pod that was updated in place: what it was like before, see [`super::fleet::in_place::State`].
pub const IN_PLACE_STATE: &str = "apps.openyurt.io/inplace-update-state";
/// How long after its new pod was made a node may fail on the revision's account, as a duration.
pub const FAILURE_WINDOW: &str = "apps.openyurt.io/failure-window";
/// How many nodes (integer or percent of the targeted nodes) may fail before a revision is stopped.
pub const FAILURE_THRESHOLD: &str = "apps.openyurt.io/failure-threshold";
/// What happens when a revision is stopped: `Stop` or `RevertInPlace`.
pub const ON_FAILURE: &str = "apps.openyurt.io/on-failure";
/// The hash of the revision that is to go on although it was stopped.
pub const RESUME: &str = "apps.openyurt.io/resume";
/// `unlimited`: nodes whose old pod is broken are all replaced at once.
pub const REPLACE_BROKEN_FIRST: &str = "apps.openyurt.io/replace-broken-first";
/// Pools of nodes that are rolled out one after the other, as a YAML or JSON list; see [`crate::core::strategy::Wave`].
pub const WAVES: &str = "apps.openyurt.io/waves";
/// Which waves may open for which revision: `canary@HASH`, separated by commas.
pub const APPROVED_WAVES: &str = "apps.openyurt.io/approved-waves";
/// When replacements may begin, on a DaemonSet and, instead of that, on a Node; see [`crate::core::window`].
pub const MAINTENANCE_WINDOW: &str = "apps.openyurt.io/maintenance-window";
/// On a Node: which DaemonSets leave it on its version, until when and why; see [`crate::core::fleet::Hold`].
pub const HOLD: &str = "apps.openyurt.io/hold";
/// `spec.updateStrategy.type` of a DaemonSet, which has to be [`ON_DELETE`] (Kubernetes).
pub const UPDATE_STRATEGY_TYPE_FIELD: &str = "spec.updateStrategy.type";
/// The update strategy under which the native controller leaves replacing to others (Kubernetes).
pub const ON_DELETE: &str = "OnDelete";
/// Left over from a rolling update of the native controller; stands in for an absent [`MAX_UNAVAILABLE`] (Kubernetes).
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

/// On an Advanced DaemonSet: `partition` limits the first creation of pods too; refused on a native one (Kruise).
pub const PROGRESSIVE_CREATE_POD: &str = "daemonset.kruise.io/progressive-create-pod";
/// On an Advanced DaemonSet what [`IMAGE_PREDOWNLOAD_PARALLELISM`] is here; warned of on a native one (Kruise).
pub const KRUISE_PREDOWNLOAD_PARALLELISM: &str = "apps.kruise.io/image-predownload-parallelism";

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
/// DaemonSet condition: what the guard remembers about a revision; `True` when it stopped it.
pub const GUARD: &str = "Guard";
/// DaemonSet condition: the settings cannot be used; the message names key, value and cure.
pub const INVALID_SETTINGS: &str = "InvalidSettings";
/// Type of our condition on a DaemonSet that says, and remembers, what the API server refuses.
pub const REFUSED: &str = "Refused";

/// Name of the controller in Events, field managers and the Lease.
pub const CONTROLLER: &str = "yurt-ds-controller";
/// Name of the node's agent in field managers.
pub const OTA_SERVER: &str = "yurt-ds-ota-server";
/// Name of the Lease that the replicas of the controller share.
pub const LEASE: &str = "yurt-ds-controller";

/// Node annotations of which one makes a node autonomous: its pods are not marked not ready while it is offline
/// (OpenYurt). The first two count with the value `true`, the last with any.
pub const AUTONOMY: [&str; 3] = [
    "apps.openyurt.io/binding",
    "node.beta.openyurt.io/autonomy",
    "node.openyurt.io/autonomy-duration",
];
