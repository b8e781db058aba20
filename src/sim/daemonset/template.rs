//! Pods and revisions created from a template.

use serde_json::{Map, Value, json};

use super::set::Set;
use crate::core::names::{REVISION_HASH_LABEL, TEMPLATE_GENERATION_LABEL};
use crate::sim::dice::mix;
use crate::sim::fnv::fnv;

/// Returns the pod for a node, created from the template with revision labels, owner, affinity to the node, and tolerations.
pub(super) fn pod(set: &Set, hash: &str, node: &str) -> Value {
    let meta = &set.template["metadata"];
    let mut labels = object(&meta["labels"]);
    labels.insert(REVISION_HASH_LABEL.to_owned(), json!(hash));
    if let Some(generation) = &set.template_generation {
        labels.insert(TEMPLATE_GENERATION_LABEL.to_owned(), json!(generation));
    }
    let mut spec = set.template["spec"].clone();
    pin(&mut spec, node);
    tolerate(&mut spec);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": format!("{}-", set.name),
            "namespace": set.namespace,
            "labels": labels,
            "annotations": meta["annotations"],
            "finalizers": meta["finalizers"],
            "ownerReferences": [set.owner()],
        },
        "spec": spec,
    })
}

/// Returns the data of a ControllerRevision, which contains the template.
pub(super) fn patch(set: &Set) -> Value {
    let mut template = set.template.clone();
    if let Value::Object(fields) = &mut template {
        fields.insert("$patch".to_owned(), json!("replace"));
    }
    json!({ "spec": { "template": template } })
}

/// Returns the ControllerRevision for the current template.
pub(super) fn revision(set: &Set, hash: &str, number: i64) -> Value {
    let mut labels = object(&set.template["metadata"]["labels"]);
    labels.insert(REVISION_HASH_LABEL.to_owned(), json!(hash));
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": format!("{}-{hash}", set.name),
            "namespace": set.namespace,
            "labels": labels,
            "annotations": set.annotations,
            "ownerReferences": [set.owner()],
        },
        "data": patch(set),
        "revision": number,
    })
}

/// Returns ten characters derived from the template and the collision count. There are no vowels, so that no words appear.
pub(super) fn hash(set: &Set) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let text = set.template.to_string();
    let collisions = set.status["collisionCount"].as_u64().unwrap_or(0);
    let bytes = text.bytes().chain(collisions.to_le_bytes());
    let mut number = mix(fnv(bytes));
    let letters = (0..10).map(|_| {
        let index = usize::try_from(number % 27).unwrap_or(0);
        number /= 27;
        char::from(ALPHABET[index])
    });
    letters.collect()
}

/// Restricts a pod to one node by replacing the template's node affinity.
fn pin(spec: &mut Value, node: &str) {
    let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
    let term = json!({ "matchFields": [field] });
    if !spec["affinity"].is_object() {
        spec["affinity"] = json!({});
    }
    if !spec["affinity"]["nodeAffinity"].is_object() {
        spec["affinity"]["nodeAffinity"] = json!({});
    }
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({ "nodeSelectorTerms": [term] });
}

/// Adds tolerations, so that the pod can run on nodes that are not ready, under pressure or cordoned.
fn tolerate(spec: &mut Value) {
    const NO_EXECUTE: [&str; 2] = ["not-ready", "unreachable"];
    const NO_SCHEDULE: [&str; 4] = [
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
    ];
    let network = (spec["hostNetwork"] == true).then_some("network-unavailable");
    let mut tolerations = match spec["tolerations"].take() {
        Value::Array(tolerations) => tolerations,
        _ => Vec::new(),
    };
    let added = NO_EXECUTE.map(|name| (name, "NoExecute")).into_iter();
    let added = added.chain(NO_SCHEDULE.map(|name| (name, "NoSchedule")));
    for (name, effect) in added.chain(network.map(|name| (name, "NoSchedule"))) {
        let key = format!("node.kubernetes.io/{name}");
        let toleration = json!({ "key": key, "operator": "Exists", "effect": effect });
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    spec["tolerations"] = Value::Array(tolerations);
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
