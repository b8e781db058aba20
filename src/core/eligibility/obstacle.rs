//! Obstacles: the reasons why a DaemonSet runs no pod on a node, for users who expect a pod there.

use std::fmt;

use super::{Effect, NodeFacts, Scheduling, Taint};
use crate::core::fleet::Targeting;

/// First reason why a DaemonSet runs no pod on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The template names another node.
    NodeName(String),
    /// The node lacks these labels of the template's node selector. If the selector can't match any node, the list is empty.
    NodeSelector(Vec<String>),
    /// No term of the template's required node affinity matches.
    NodeAffinity,
    /// The template does not tolerate this taint.
    Taint(Taint),
}

impl Scheduling {
    /// Returns the reason why the DaemonSet runs no pod on this node; `None` if it runs one.
    pub fn obstacle(&self, node: &NodeFacts<'_>) -> Option<Obstacle> {
        if self.targeting(node) == Targeting::Run {
            return None;
        }
        if let Some(name) = self.node_name.as_ref().filter(|_| !self.names(node)) {
            return Some(Obstacle::NodeName(name.to_string()));
        }
        if !self.selects(node) {
            let asked = self.node_selector.iter().flatten();
            let missing = asked.filter(|r| !r.matches(node.label(r.key())));
            return Some(Obstacle::NodeSelector(
                missing.map(ToString::to_string).collect(),
            ));
        }
        if !self.is_attracted_by(node) {
            return Some(Obstacle::NodeAffinity);
        }
        let repels =
            |taint: &&Taint| taint.effect != Effect::PreferNoSchedule && !self.tolerates(taint);
        node.taints
            .iter()
            .find(repels)
            .cloned()
            .map(Obstacle::Taint)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeName(name) => write!(f, "spec.nodeName of the template is {name}"),
            Self::NodeSelector(missing) if missing.is_empty() => {
                write!(f, "the template's nodeSelector matches no node")
            }
            Self::NodeSelector(missing) => {
                write!(
                    f,
                    "the template's nodeSelector asks for {}, which the node does not have",
                    missing.join(", ")
                )
            }
            Self::NodeAffinity => {
                write!(f, "the template's required node affinity does not match it")
            }
            Self::Taint(taint) => write!(f, "the template does not tolerate its taint {taint}"),
        }
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match self.effect {
            Effect::NoSchedule => "NoSchedule",
            Effect::PreferNoSchedule => "PreferNoSchedule",
            Effect::NoExecute => "NoExecute",
        };
        match &*self.value {
            "" => write!(f, "{}:{effect}", self.key),
            value => write!(f, "{}={value}:{effect}", self.key),
        }
    }
}

#[cfg(test)]
mod tests {

    use serde_json::{Value, json};

    use super::*;

    /// Checks the obstacle for a template with `spec`, on node `n1` with the label `role=edge` and the taint `site=a:NoSchedule`.
    #[track_caller]
    fn case(spec: Value, expected: Option<&str>) {
        let labels = [("role", "edge")].into_iter().collect();
        let taints = [Taint {
            key: "site".into(),
            value: "a".into(),
            effect: Effect::NoSchedule,
        }];
        let node = NodeFacts {
            name: "n1",
            labels: &labels,
            taints: &taints,
        };
        let scheduling = Scheduling::from_template(&json!({ "spec": spec }));
        let found = scheduling.obstacle(&node).map(|found| found.to_string());
        assert_eq!(found.as_deref(), expected, "{spec}");
    }

    #[test]
    fn the_first_scheduling_obstacle_is_named() {
        let tolerations = json!([{ "operator": "Exists" }]);
        case(json!({ "tolerations": tolerations }), None);
        case(
            json!({}),
            Some("the template does not tolerate its taint site=a:NoSchedule"),
        );
        case(
            json!({ "nodeName": "n2", "tolerations": tolerations }),
            Some("spec.nodeName of the template is n2"),
        );
        case(
            json!({ "nodeSelector": { "role": "edge", "zone": "b" } }),
            Some("the template's nodeSelector asks for zone=b, which the node does not have"),
        );
        case(
            json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
                { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "gpu", "operator": "Exists" }] }] } } } }),
            Some("the template's required node affinity does not match it"),
        );
    }
}
