//! Fields of an Advanced DaemonSet. Both API versions use these types: there is no conversion, so each version must have all
//! fields of the other.
//!
//! The doc comments are the text of `kubectl explain`. Only the schema is used: the controller parses objects into its own
//! smaller types.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::json;

use super::rules;
use super::schema::IntOrString;

/// Runs a pod on every matching node, and replaces these pods step by step when their template changes.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "what counts is the schema")]
pub(super) struct DaemonSet {
    /// Desired pods: what runs, on which nodes, and how it is replaced.
    spec: DaemonSetSpec,
    /// Most recently observed progress of the rollout.
    status: Option<DaemonSetStatus>,
}

/// Desired pods: what runs, on which nodes, and how it is replaced.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = rules::spec()))]
#[expect(dead_code, reason = "what counts is the schema")]
struct DaemonSetSpec {
    /// Selects the pods of this DaemonSet. It must name at least one label, match the labels of the template, and is immutable.
    #[schemars(extend("x-kubernetes-validations" = rules::selector()))]
    selector: LabelSelector,
    /// Pod that runs on every node that its nodeSelector, required node affinity and tolerations admit. All fields of a pod
    /// template are kept unchanged. kubectl explain pod.spec describes them.
    template: PodTemplate,
    /// Strategy for replacing pods when the template changes.
    #[schemars(extend("default" = json!({})))]
    #[schemars(extend("x-kubernetes-validations" = rules::update_strategy()))]
    update_strategy: Option<UpdateStrategy>,
    /// Seconds for which a new pod must be Ready to count as available. Default 0.
    #[schemars(range(min = 0))]
    min_ready_seconds: Option<i32>,
    /// Number of pods that are created or deleted at once. It is an absolute number from 1, or a percentage of the nodes that
    /// should run a pod. A percentage is rounded down.
    #[schemars(extend("default" = 250, "x-kubernetes-validations" = rules::burst()))]
    burst_replicas: Option<IntOrString>,
    /// Number of old revisions of the template that are kept for rollbacks.
    #[schemars(range(min = 0), extend("default" = 10))]
    revision_history_limit: Option<i32>,
    /// Hooks that are called, and must agree, before a pod is deleted.
    #[schemars(extend("x-kubernetes-validations" = rules::lifecycle()))]
    lifecycle: Option<Lifecycle>,
    /// Strategy for creating pods on nodes without one.
    scale_strategy: Option<ScaleStrategy>,
}

/// Label selector. All of its requirements must be met.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-map-type" = "atomic"))]
#[expect(dead_code, reason = "what counts is the schema")]
struct LabelSelector {
    /// Required labels, each with its value.
    #[schemars(extend("maxProperties" = 100, "x-kubernetes-validations" = rules::label_key()))]
    match_labels: Option<BTreeMap<String, LabelValue>>,
    /// Requirements on labels.
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "atomic"))]
    match_expressions: Option<Vec<LabelRequirement>>,
}

/// Value of a label.
#[derive(JsonSchema)]
#[schemars(transparent, extend("maxLength" = 63, "pattern" = rules::LABEL_VALUE_PATTERN))]
#[expect(dead_code, reason = "what counts is the schema")]
struct LabelValue(String);

/// Requirement on a label.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::label_requirement()))]
#[expect(dead_code, reason = "what counts is the schema")]
struct LabelRequirement {
    /// Key of the label.
    #[schemars(length(max = rules::LABEL_KEY), extend("pattern" = rules::LABEL_KEY_PATTERN))]
    key: String,
    /// In, NotIn: the value is (not) among values. Exists, DoesNotExist: the label is (not) present.
    #[schemars(extend("enum" = ["In", "NotIn", "Exists", "DoesNotExist"]))]
    operator: String,
    /// Values for In and NotIn, at least one. Must be empty for the other operators.
    #[schemars(length(max = 5000), extend("x-kubernetes-list-type" = "atomic"))]
    values: Option<Vec<LabelValue>>,
}

/// Pod template. Only fields that are validated have a schema.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct PodTemplate {
    /// Labels, annotations and finalizers of the pods.
    metadata: Option<PodMetadata>,
    /// Spec of the pods. Missing fields get the defaults of Kubernetes.
    spec: Pod,
}

/// Metadata of the pods.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct PodMetadata {
    /// Labels of the pods. They must match the selector.
    #[schemars(extend("maxProperties" = 1000))]
    labels: Option<BTreeMap<String, LabelValue>>,
}

/// Spec of the pods.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true, "x-kubernetes-validations" = rules::pod()))]
#[expect(dead_code, reason = "what counts is the schema")]
struct Pod {
    /// Always, or absent.
    restart_policy: Option<String>,
    /// Must be absent: pods of a DaemonSet never end.
    active_deadline_seconds: Option<i64>,
    /// Containers, at least one, each with a unique name and an image.
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-validations" = rules::containers()))]
    containers: Vec<Container>,
    /// Name of the only node that gets a pod. Absent: all nodes.
    node_name: Option<String>,
    /// Required labels of the nodes that get a pod, each with its value.
    #[schemars(extend("maxProperties" = 100, "x-kubernetes-validations" = rules::label_key()))]
    node_selector: Option<BTreeMap<String, LabelValue>>,
    /// Requirements on the labels of nodes.
    affinity: Option<Affinity>,
    /// Taints that don't keep the pods away from a node.
    tolerations: Option<Vec<Toleration>>,
}

/// Requirements on the labels of nodes.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct Affinity {
    /// Requirements on nodes.
    node_affinity: Option<NodeAffinity>,
}

/// Requirements on nodes.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct NodeAffinity {
    /// Requirements that a node must meet to get a pod.
    required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

/// Requirements on a node. It must match one of the terms.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct NodeSelector {
    /// Terms, of which one must match.
    #[schemars(length(min = 1))]
    node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements that must all be met.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct NodeSelectorTerm {
    /// Requirements on labels of the node.
    match_expressions: Option<Vec<NodeRequirement>>,
    /// Requirements on fields of the node. The only supported field is metadata.name.
    match_fields: Option<Vec<NodeRequirement>>,
}

/// Requirement on a node.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct NodeRequirement {
    /// Key of the label, or name of the field.
    key: String,
    /// In, NotIn: the value is (not) among values. Exists, DoesNotExist: the label or field is (not) present. Gt, Lt: it is a
    /// number greater or less than the only value.
    #[schemars(extend("enum" = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))]
    operator: String,
    /// Values to compare with.
    values: Option<Vec<String>>,
}

/// Toleration of a taint.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct Toleration {
    /// Key of the taint. Absent: any key.
    key: Option<String>,
    /// Equal, or absent: the taint has the value below. Exists: the taint has any value.
    operator: Option<String>,
    /// Value of the taint.
    value: Option<String>,
    /// Effect of the taint. Absent: any effect.
    #[schemars(extend("enum" = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"]))]
    effect: Option<String>,
}

/// Container of the pods.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct Container {
    /// Name of the container: lower-case letters, digits and hyphens.
    #[schemars(length(max = 63), extend("pattern" = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    name: String,
    /// Image of the container.
    #[schemars(length(min = 1))]
    image: String,
}

/// Strategy for replacing pods when the template changes.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct UpdateStrategy {
    /// RollingUpdate: the controller replaces old pods. OnDelete: an old pod is replaced after a user deletes it.
    #[schemars(extend("default" = "RollingUpdate", "enum" = ["RollingUpdate", "OnDelete"]))]
    r#type: Option<String>,
    /// Settings of RollingUpdate. Without effect with OnDelete.
    #[schemars(extend("default" = json!({})))]
    rolling_update: Option<RollingUpdate>,
}

/// Settings of RollingUpdate.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct RollingUpdate {
    /// Standard: a new pod replaces the old one. InPlaceIfPossible: if only images or metadata change, the pod stays and its
    /// containers restart; otherwise as Standard. Surging is deprecated and means Standard with maxSurge 1 and maxUnavailable 0.
    /// Both versions accept it, because there is no conversion between them.
    #[schemars(extend("default" = "Standard", "enum" = ["Standard", "InPlaceIfPossible", "Surging"]))]
    rolling_update_type: Option<String>,
    /// Number of nodes that may lack an available pod during the update. It is an absolute number, or a percentage of the nodes
    /// that should run a pod. A percentage is rounded up. Default 1 if maxSurge is absent too.
    #[schemars(extend("x-kubernetes-validations" = rules::share()))]
    max_unavailable: Option<IntOrString>,
    /// Number of nodes on which a new pod may start before the old one is deleted. It is an absolute number, or a percentage of
    /// the nodes that should run a pod. A percentage is rounded up. Either this or maxUnavailable must be more than 0. Two pods
    /// that use the same host port cannot run on one node.
    #[schemars(extend("x-kubernetes-validations" = rules::share()))]
    max_surge: Option<IntOrString>,
    /// Selector of the nodes that are updated, by their labels. Absent: all nodes.
    selector: Option<LabelSelector>,
    /// Number of nodes on which old pods stay: an absolute number, or a percentage of the nodes that should run a pod. A
    /// percentage is rounded down. Default 0.
    #[schemars(extend("x-kubernetes-validations" = rules::share()))]
    partition: Option<IntOrString>,
    /// True if old pods stay for now. Nodes without a pod still get one.
    paused: Option<bool>,
}

/// Hooks that are called, and must agree, before a pod is deleted.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct Lifecycle {
    /// Hook before deletion, for pods with one of these labels or finalizers. The controller sets the label
    /// lifecycle.apps.kruise.io/state: PreparingDelete on such a pod, and deletes it once all of them are gone.
    pre_delete: Option<Hook>,
    /// Must be absent: it is not called for pods of a DaemonSet.
    in_place_update: Option<Hook>,
    /// Without effect.
    pre_normal: Option<Hook>,
}

/// Labels and finalizers that delay a deletion.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct Hook {
    /// Labels that delay the deletion of a pod, with their values. The template, or the program that handles the hook, adds them
    /// to the pod.
    labels_handler: Option<BTreeMap<String, String>>,
    /// Finalizers that delay the deletion of a pod. The template, or the program that handles the hook, adds them to the pod.
    finalizers_handler: Option<Vec<String>>,
    /// True if a delayed pod gets no traffic. The pod needs the readiness gate KruisePodReady for that.
    mark_pod_not_ready: Option<bool>,
}

/// Strategy for creating pods on nodes without one.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct ScaleStrategy {
    /// True if partition also applies to nodes without a pod: that many of them get none. If absent, the annotation
    /// daemonset.kruise.io/progressive-create-pod with the value true has the same effect, as in v1alpha1 of OpenKruise. Neither
    /// is converted into the other.
    partitioned_scaling: Option<bool>,
}

/// Most recently observed progress of a rollout.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct DaemonSetStatus {
    /// Number of nodes that run a pod and should.
    current_number_scheduled: i32,
    /// Number of nodes that run a pod and should not.
    number_misscheduled: i32,
    /// Number of nodes that should run a pod.
    desired_number_scheduled: i32,
    /// Number of nodes that run a Ready pod.
    number_ready: i32,
    /// Number of nodes that run a pod of the current template.
    updated_number_scheduled: i32,
    /// Number of nodes that run a pod that has been Ready for minReadySeconds.
    number_available: Option<i32>,
    /// Number of nodes that should run a pod and lack an available one.
    number_unavailable: Option<i32>,
    /// Generation of the spec that this status describes.
    observed_generation: Option<i64>,
    /// Number of times that the name of a new revision was already taken.
    collision_count: Option<i32>,
    /// Conditions of the whole DaemonSet, one per type.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Option<Vec<Condition>>,
    /// Revision of the current template, as in the label controller-revision-hash of pods. Equals daemonSetHash. Both versions
    /// have both fields, because there is no conversion between them.
    update_revision: Option<String>,
    /// Same value as updateRevision, under its name in v1alpha1.
    daemon_set_hash: Option<String>,
}

/// Condition of a whole DaemonSet.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct Condition {
    /// Type of the condition.
    r#type: String,
    /// True, False or Unknown.
    status: String,
    /// Time at which the status last changed.
    #[schemars(extend("format" = "date-time"))]
    last_transition_time: Option<String>,
    /// Reason for the status, as one word.
    reason: Option<String>,
    /// Reason for the status, as a message.
    message: Option<String>,
}
