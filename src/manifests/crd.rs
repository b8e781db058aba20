//! CustomResourceDefinition of the Advanced DaemonSet: names, versions, and columns of `kubectl get`.

use serde_json::{Value, json};

use super::daemonset::DaemonSet;
use super::schema;

/// API group of OpenKruise's workloads.
const GROUP: &str = "apps.kruise.io";

/// Versions, each with a flag that is true for the version in which objects are stored. Both have the same schema, so a conversion
/// only changes the version and loses nothing.
pub(super) const VERSIONS: [(&str, bool); 2] = [("v1alpha1", false), ("v1beta1", true)];

/// Returns the CustomResourceDefinition. It belongs to no category such as `all`, so that `kubectl delete all --all` deletes the
/// same objects as with OpenKruise.
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
        number("DESIRED", "desiredNumberScheduled", "Number of nodes that should run a pod."),
        number("CURRENT", "currentNumberScheduled", "Number of these nodes that run a pod."),
        number("READY", "numberReady", "Number of nodes that run a Ready pod."),
        number("UP-TO-DATE", "updatedNumberScheduled", "Number of nodes that run a pod of the current template."),
        number("AVAILABLE", "numberAvailable", "Number of nodes that run a pod that has been Ready for minReadySeconds."),
        {
            "name": "AGE",
            "type": "date",
            "jsonPath": ".metadata.creationTimestamp",
            "description": "Time since the creation.",
        },
        of_containers("CONTAINERS", "name", "Names of the template's containers."),
        of_containers("IMAGES", "image", "Images of the template's containers."),
    ])
}
