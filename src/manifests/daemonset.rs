//! The fields of an Advanced DaemonSet, once for both versions: nothing converts between them, so that each has all that the other
//! one can hold. What a field says here is what `kubectl explain` says.
//!
//! These types are never filled: the controller reads slim ones of its own.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::json;

use super::rules;
use super::schema::IntOrString;

/// Runs a pod on every node that fits, and replaces these pods step by step when their template changes.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "what counts is the schema")]
pub(super) struct DaemonSet {
    /// What shall run, where, and how it is replaced.
    spec: DaemonSetSpec,
    /// How far that has come, as the controller last saw it.
    status: Option<DaemonSetStatus>,
}

/// What shall run, where, and how it is replaced.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = rules::spec()))]
#[expect(dead_code, reason = "what counts is the schema")]
struct DaemonSetSpec {
    /// Which pods are of this DaemonSet. It must name at least one label, match the labels of the template, and never changes.
    #[schemars(extend("x-kubernetes-validations" = rules::selector()))]
    selector: LabelSelector,
    /// The pod that runs on every node which its nodeSelector, its required node affinity and its tolerations admit. All fields of a
    /// pod template are kept as they are written; kubectl explain pod.spec describes them.
    template: PodTemplate,
    /// How pods are replaced when the template changes.
    #[schemars(extend("default" = json!({})))]
    #[schemars(extend("x-kubernetes-validations" = rules::update_strategy()))]
    update_strategy: Option<UpdateStrategy>,
    /// How many seconds a new pod has to be Ready to count as available. 0 when missing.
    #[schemars(range(min = 0))]
    min_ready_seconds: Option<i32>,
    /// How many pods are made, and how many are deleted, at once: a number from 1, or a percentage of the nodes that shall run a pod,
    /// rounded down.
    #[schemars(extend("default" = 250, "x-kubernetes-validations" = rules::burst()))]
    burst_replicas: Option<IntOrString>,
    /// How many old revisions of the template are kept to go back to.
    #[schemars(range(min = 0), extend("default" = 10))]
    revision_history_limit: Option<i32>,
    /// What others are told, and have to agree to, before a pod goes.
    #[schemars(extend("x-kubernetes-validations" = rules::lifecycle()))]
    lifecycle: Option<Lifecycle>,
    /// How nodes that have no pod yet get one.
    scale_strategy: Option<ScaleStrategy>,
}

/// A selector by labels. All that it says has to hold.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-map-type" = "atomic"))]
#[expect(dead_code, reason = "what counts is the schema")]
struct LabelSelector {
    /// Labels, each with the value it has to have.
    #[schemars(extend("maxProperties" = 100, "x-kubernetes-validations" = rules::label_key()))]
    match_labels: Option<BTreeMap<String, LabelValue>>,
    /// Sentences about labels.
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "atomic"))]
    match_expressions: Option<Vec<LabelRequirement>>,
}

/// The value of a label.
#[derive(JsonSchema)]
#[schemars(transparent, extend("maxLength" = 63, "pattern" = rules::LABEL_VALUE_PATTERN))]
#[expect(dead_code, reason = "what counts is the schema")]
struct LabelValue(String);

/// A sentence about a label.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::label_requirement()))]
#[expect(dead_code, reason = "what counts is the schema")]
struct LabelRequirement {
    /// The label.
    #[schemars(length(max = rules::LABEL_KEY), extend("pattern" = rules::LABEL_KEY_PATTERN))]
    key: String,
    /// In, NotIn: its value is (not) among values. Exists, DoesNotExist: it is (not) there.
    #[schemars(extend("enum" = ["In", "NotIn", "Exists", "DoesNotExist"]))]
    operator: String,
    /// The values of In and NotIn, at least one; the others have none.
    #[schemars(length(max = 5000), extend("x-kubernetes-list-type" = "atomic"))]
    values: Option<Vec<LabelValue>>,
}

/// A pod template. Only what is checked has a schema.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct PodTemplate {
    /// Labels, annotations and finalizers of the pods.
    metadata: Option<PodMetadata>,
    /// What the pods are. Missing fields have the defaults of Kubernetes.
    spec: Pod,
}

/// The metadata of pods.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct PodMetadata {
    /// Labels of the pods. They must match the selector.
    #[schemars(extend("maxProperties" = 1000))]
    labels: Option<BTreeMap<String, LabelValue>>,
}

/// The pods.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true, "x-kubernetes-validations" = rules::pod()))]
#[expect(dead_code, reason = "what counts is the schema")]
struct Pod {
    /// Always, or missing.
    restart_policy: Option<String>,
    /// Must be missing: pods of a DaemonSet never end.
    active_deadline_seconds: Option<i64>,
    /// At least one container, each with a name of its own and an image.
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-validations" = rules::containers()))]
    containers: Vec<Container>,
    /// The only node that gets a pod, by its name. All when missing.
    node_name: Option<String>,
    /// Labels of the nodes that get a pod, each with the value it has to have.
    #[schemars(extend("maxProperties" = 100, "x-kubernetes-validations" = rules::label_key()))]
    node_selector: Option<BTreeMap<String, LabelValue>>,
    /// Which nodes get a pod, by sentences about their labels.
    affinity: Option<Affinity>,
    /// Taints of nodes that get a pod all the same.
    tolerations: Option<Vec<Toleration>>,
}

/// Which nodes get a pod, by sentences about their labels.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct Affinity {
    /// What decides about nodes.
    node_affinity: Option<NodeAffinity>,
}

/// What decides about nodes.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct NodeAffinity {
    /// What has to hold of a node that gets a pod.
    required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

/// What has to hold of a node: one of the terms.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct NodeSelector {
    /// One of them has to hold.
    #[schemars(length(min = 1))]
    node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Sentences that have to hold together.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct NodeSelectorTerm {
    /// Sentences about labels of the node.
    match_expressions: Option<Vec<NodeRequirement>>,
    /// Sentences about its fields; the one that there is is metadata.name.
    match_fields: Option<Vec<NodeRequirement>>,
}

/// A sentence about a node.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct NodeRequirement {
    /// The label, or the field.
    key: String,
    /// In, NotIn: its value is (not) among values. Exists, DoesNotExist: it is (not) there. Gt, Lt: it is a number greater, less than
    /// the only value.
    #[schemars(extend("enum" = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))]
    operator: String,
    /// The values.
    values: Option<Vec<String>>,
}

/// A taint that keeps no pod away.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct Toleration {
    /// Its key. Any when missing.
    key: Option<String>,
    /// Equal, or missing: its value is the one below. Exists: whatever its value is.
    operator: Option<String>,
    /// Its value.
    value: Option<String>,
    /// What it does to pods. Anything when missing.
    #[schemars(extend("enum" = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"]))]
    effect: Option<String>,
}

/// A container.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[expect(dead_code, reason = "what counts is the schema")]
struct Container {
    /// Its name: small letters, digits and hyphens.
    #[schemars(length(max = 63), extend("pattern" = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    name: String,
    /// Its image.
    #[schemars(length(min = 1))]
    image: String,
}

/// How pods are replaced when the template changes.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct UpdateStrategy {
    /// RollingUpdate: the controller replaces old pods. OnDelete: whoever deletes an old pod gets a new one in its place.
    #[schemars(extend("default" = "RollingUpdate", "enum" = ["RollingUpdate", "OnDelete"]))]
    r#type: Option<String>,
    /// How the controller replaces old pods. Without effect with OnDelete.
    #[schemars(extend("default" = json!({})))]
    rolling_update: Option<RollingUpdate>,
}

/// How the controller replaces old pods.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct RollingUpdate {
    /// Standard: a new pod for the old one. InPlaceIfPossible: where only images or metadata change, the pod stays and its containers
    /// restart; else as Standard. Surging is deprecated and the same as Standard with maxSurge 1 and maxUnavailable 0; it is taken in
    /// both versions, for nothing converts between them.
    #[schemars(extend("default" = "Standard", "enum" = ["Standard", "InPlaceIfPossible", "Surging"]))]
    rolling_update_type: Option<String>,
    /// How many nodes may be without an available pod meanwhile: a number, or a percentage of the nodes that shall run a pod, rounded
    /// up. 1 when both this and maxSurge are missing.
    #[schemars(extend("x-kubernetes-validations" = rules::share()))]
    max_unavailable: Option<IntOrString>,
    /// On how many nodes a new pod may start before the old one goes: a number, or a percentage of the nodes that shall run a pod,
    /// rounded up. Either this or maxUnavailable is more than 0. Pods that use ports of the node cannot stand side by side.
    #[schemars(extend("x-kubernetes-validations" = rules::share()))]
    max_surge: Option<IntOrString>,
    /// Only nodes with these labels are updated. All when missing.
    selector: Option<LabelSelector>,
    /// On how many nodes old pods stay: a number, or a percentage of the nodes that shall run a pod, rounded down. 0 when missing.
    #[schemars(extend("x-kubernetes-validations" = rules::share()))]
    partition: Option<IntOrString>,
    /// Whether old pods stay for now. Nodes without a pod still get one.
    paused: Option<bool>,
}

/// What others are told, and have to agree to, before a pod goes.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct Lifecycle {
    /// Before the controller deletes a pod that has one of these labels or finalizers, it gives it the label
    /// lifecycle.apps.kruise.io/state: PreparingDelete, and waits until all of them are gone.
    pre_delete: Option<Hook>,
    /// Must be missing: it is not called for pods of a DaemonSet.
    in_place_update: Option<Hook>,
    /// Without effect.
    pre_normal: Option<Hook>,
}

/// By what a pod is held.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct Hook {
    /// Labels that hold a pod, with their values. The template, or whoever acts on the hook, puts them on the pod.
    labels_handler: Option<BTreeMap<String, String>>,
    /// Finalizers that hold a pod. The template, or whoever acts on the hook, puts them on the pod.
    finalizers_handler: Option<Vec<String>>,
    /// Whether a pod that is held gets no more traffic, for which it needs the readiness gate KruisePodReady.
    mark_pod_not_ready: Option<bool>,
}

/// How nodes that have no pod yet get one.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct ScaleStrategy {
    /// Whether partition holds for nodes without a pod too: so many of them stay empty. When it is missing, the annotation
    /// daemonset.kruise.io/progressive-create-pod with the value true says the same, as in OpenKruise's v1alpha1: nothing converts
    /// between the versions, and neither follows the other.
    partitioned_scaling: Option<bool>,
}

/// How far a rollout has come, as the controller last saw it.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct DaemonSetStatus {
    /// How many nodes run a pod and shall.
    current_number_scheduled: i32,
    /// How many nodes run a pod and shall not.
    number_misscheduled: i32,
    /// How many nodes shall run a pod.
    desired_number_scheduled: i32,
    /// How many nodes run a pod that is Ready.
    number_ready: i32,
    /// How many nodes run a pod of the present template.
    updated_number_scheduled: i32,
    /// How many nodes run a pod that has been Ready for minReadySeconds.
    number_available: Option<i32>,
    /// How many nodes shall run a pod and have none that is available.
    number_unavailable: Option<i32>,
    /// The generation of the spec that this status is about.
    observed_generation: Option<i64>,
    /// How often the name of a new revision was taken already.
    collision_count: Option<i32>,
    /// What holds for the DaemonSet as a whole, one entry per type.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Option<Vec<Condition>>,
    /// The revision of the present template, as the label controller-revision-hash of pods has it. daemonSetHash is the same: both are
    /// written in both versions, for nothing converts between them.
    update_revision: Option<String>,
    /// The same as updateRevision, by the name it has in v1alpha1.
    daemon_set_hash: Option<String>,
}

/// What holds for a DaemonSet as a whole.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "what counts is the schema")]
struct Condition {
    /// What is judged.
    r#type: String,
    /// True, False or Unknown.
    status: String,
    /// When the status last changed.
    #[schemars(extend("format" = "date-time"))]
    last_transition_time: Option<String>,
    /// Why, as one word.
    reason: Option<String>,
    /// Why, for people.
    message: Option<String>,
}
