//! CustomResourceDefinition of the Advanced DaemonSet: names, versions, and columns of `kubectl get`.

use serde_json::{Value, json};

use super::daemonset::DaemonSet;
use super::schema;

/// API group of OpenKruise's workloads.
const GROUP: &str = "apps.kruise.io";

/// Versions; `true`: the stored one. They have the same schema, so conversion only changes the version and loses nothing.
const VERSIONS: [(&str, bool); 2] = [("v1alpha1", false), ("v1beta1", true)];

/// Returns the CustomResourceDefinition. It is in no category, so that `kubectl delete all --all` deletes the same objects as
/// with OpenKruise.
pub(super) fn definition() -> Value {
    let schema = schema::structural::<DaemonSet>();
    let versions = VERSIONS.map(|(name, is_stored)| {
        json!({
            "name": name,
            "served": true,
            "storage": is_stored,
            "additionalPrinterColumns": columns(),
            "schema": { "openAPIV3Schema": schema },
            "subresources": { "status": {} },
        })
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("daemonsets.{GROUP}") },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": "DaemonSet",
                "listKind": "DaemonSetList",
                "plural": "daemonsets",
                "singular": "daemonset",
                "shortNames": ["daemon", "ads"],
            },
            "scope": "Namespaced",
            // `null` removes the conversion webhook of an installed OpenKruise. A webhook together with `None` would be rejected.
            "conversion": { "strategy": "None", "webhook": null },
            "versions": versions,
        },
    })
}

/// Returns the columns of `kubectl get`. The last two appear only with `-o wide`.
fn columns() -> Value {
    let number = |name: &str, field: &str, description: &str| {
        json!({
            "name": name,
            "type": "integer",
            "jsonPath": format!(".status.{field}"),
            "description": description,
        })
    };
    let of_containers = |name: &str, field: &str, description: &str| {
        json!({
            "name": name,
            "type": "string",
            "priority": 1,
            "jsonPath": format!(".spec.template.spec.containers[*].{field}"),
            "description": description,
        })
    };
    json!([
        number("DESIRED", "desiredNumberScheduled", "How many nodes shall run a pod."),
        number("CURRENT", "currentNumberScheduled", "How many of them do."),
        number("READY", "numberReady", "How many nodes run a pod that is Ready."),
        number("UP-TO-DATE", "updatedNumberScheduled", "How many nodes run a pod of the present template."),
        number("AVAILABLE", "numberAvailable", "How many nodes run a pod that has been Ready for minReadySeconds."),
        {
            "name": "AGE",
            "type": "date",
            "jsonPath": ".metadata.creationTimestamp",
            "description": "How long ago it was made.",
        },
        of_containers("CONTAINERS", "name", "The containers of the template."),
        of_containers("IMAGES", "image", "Their images."),
    ])
}
