//! Parts of a pod template that cannot exist twice on a node. With such a part, surge is impossible: the old pod has to be deleted
//! before its successor can start.
//!
//! The template alone decides. A PersistentVolumeClaim also defines (by its access modes) if two pods may mount it, but the
//! controller has no permission to read claims. Therefore every claim counts as exclusive unless it is mounted read-only.

use std::fmt;

use serde_json::Value;

use crate::core::selector::Selector;

/// Reason why two pods of a template cannot run on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusive {
    /// A container uses this `hostPort`.
    HostPort(u64),
    /// The pod uses the node's network, and a container uses this port.
    HostNetworkPort(u64),
    /// A volume uses this PersistentVolumeClaim.
    Claim(String),
    /// A volume is a disk of this kind that can be attached to one pod.
    Disk(&'static str),
    /// The template names this node.
    NodeName(String),
    /// The template's own `podAntiAffinity` prevents a second pod on the node.
    AntiAffinity,
}

/// Volume types of disks that two pods can't share, unless they are mounted read-only (`NoDiskConflict` in Kubernetes).
const DISKS: [&str; 4] = ["awsElasticBlockStore", "gcePersistentDisk", "iscsi", "rbd"];

impl Exclusive {
    /// Returns the first part of `template` that can't exist twice on a node.
    pub fn from_template(template: &Value) -> Option<Self> {
        let spec = &template["spec"];
        port(spec)
            .or_else(|| volume(spec))
            .or_else(|| node_name(spec))
            .or_else(|| anti_affinity(template))
    }
}

impl fmt::Display for Exclusive {
    /// Writes the reason as the end of a sentence after "because".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostPort(port) => write!(f, "only one pod per node can use hostPort {port}"),
            Self::HostNetworkPort(port) => write!(
                f,
                "only one pod per node can use port {port} of the node's network (hostNetwork)"
            ),
            Self::Claim(claim) => write!(
                f,
                "the volume of PersistentVolumeClaim {claim} may support only one pod (mount it readOnly if it supports more)"
            ),
            Self::Disk(kind) => write!(f, "only one pod can use a volume of type {kind}"),
            Self::NodeName(node) => write!(f, "spec.nodeName of the template is {node}"),
            Self::AntiAffinity => {
                f.write_str("the podAntiAffinity of the template prevents a second pod on the node")
            }
        }
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn port(spec: &Value) -> Option<Exclusive> {
    let containers = items(&spec["containers"]).chain(items(&spec["initContainers"]));
    let mut ports = containers.flat_map(|container| items(&container["ports"]));
    let host_network = spec["hostNetwork"] == true;
    ports.find_map(|port| {
        let number = |key: &str| port[key].as_u64().filter(|number| *number > 0);
        if host_network {
            number("containerPort").map(Exclusive::HostNetworkPort)
        } else {
            number("hostPort").map(Exclusive::HostPort)
        }
    })
}

fn volume(spec: &Value) -> Option<Exclusive> {
    items(&spec["volumes"]).find_map(|volume| {
        let claim = &volume["persistentVolumeClaim"];
        if claim.is_object() && claim["readOnly"] != true {
            let name = claim["claimName"].as_str().unwrap_or_default();
            return Some(Exclusive::Claim(name.to_owned()));
        }
        let is_disk = |kind: &&str| volume[*kind].is_object() && volume[*kind]["readOnly"] != true;
        DISKS.into_iter().find(is_disk).map(Exclusive::Disk)
    })
}

fn node_name(spec: &Value) -> Option<Exclusive> {
    let name = spec["nodeName"].as_str().filter(|name| !name.is_empty())?;
    Some(Exclusive::NodeName(name.to_owned()))
}

/// Returns [`Exclusive::AntiAffinity`] if the template's anti-affinity matches its own pods.
///
/// The topology key is ignored, because two pods on one node share every topology. A term that applies only to other namespaces
/// matches no pod of the DaemonSet. Such terms are rare, so they are treated like the others.
fn anti_affinity(template: &Value) -> Option<Exclusive> {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let labels = &template["metadata"]["labels"];
    let mut terms = items(&template["spec"]["affinity"]["podAntiAffinity"][required]);
    let meets_itself = |term: &Value| {
        let selector = Selector::from_json(&term["labelSelector"]).ok();
        selector.is_some_and(|selector| selector.matches(|key| labels[key].as_str()))
    };
    terms.any(meets_itself).then_some(Exclusive::AntiAffinity)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conflicts_between_two_pods_of_a_node_are_found_in_the_template() {
        #[track_caller]
        fn case(spec: Value, expected: Option<Exclusive>) {
            let template = json!({ "metadata": { "labels": { "app": "agent" } }, "spec": spec });
            assert_eq!(Exclusive::from_template(&template), expected, "{spec}");
        }
        let container = |ports: Value| json!([{ "name": "main", "image": "a:1", "ports": ports }]);
        case(json!({ "containers": container(json!([])) }), None);
        case(
            json!({ "containers": container(json!([{ "containerPort": 80 }])) }),
            None,
        );
        case(
            json!({ "containers": container(json!([{ "containerPort": 80, "hostPort": 8080 }])) }),
            Some(Exclusive::HostPort(8080)),
        );
        case(
            json!({ "hostNetwork": true, "containers": container(json!([{ "containerPort": 80 }])) }),
            Some(Exclusive::HostNetworkPort(80)),
        );
        case(
            json!({ "hostNetwork": true, "containers": container(json!([])) }),
            None,
        );
        case(
            json!({ "volumes": [{ "name": "a", "emptyDir": {} },
                                { "name": "b", "persistentVolumeClaim": { "claimName": "data" } }] }),
            Some(Exclusive::Claim("data".into())),
        );
        case(
            json!({ "volumes": [{ "persistentVolumeClaim": { "claimName": "data", "readOnly": true } }] }),
            None,
        );
        case(
            json!({ "volumes": [{ "iscsi": { "iqn": "x" } }] }),
            Some(Exclusive::Disk("iscsi")),
        );
        case(
            json!({ "nodeName": "n1" }),
            Some(Exclusive::NodeName("n1".into())),
        );
        let anti = |selector: Value| {
            json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
                { "topologyKey": "kubernetes.io/hostname", "labelSelector": selector },
            ] } } })
        };
        let app = |name: &str| json!({ "matchLabels": { "app": name } });
        case(anti(app("agent")), Some(Exclusive::AntiAffinity));
        case(anti(app("other")), None);
        case(anti(Value::Null), None);
    }
}
