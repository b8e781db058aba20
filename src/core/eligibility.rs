//! Where the pods of a DaemonSet belong: the native controller's rules, exactly.
//!
//! Read once from the template, then asked for every node without allocating. A node's readiness is no part of it, nor
//! is being cordoned. What the API server would have refused cannot be in a template; should it be there, then a node
//! affinity term with such a part matches nothing (as in Kubernetes), a node selector with such a part matches nothing,
//! and such a toleration tolerates nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::fleet::Targeting;
use super::selector::{Operators, Requirement, equal_to};

/// What of a pod template decides about nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduling {
    node_name: Option<Box<str>>,
    /// `None` matches nothing.
    node_selector: Option<Vec<Requirement>>,
    /// `None` matches everything; otherwise one of the terms has to match.
    affinity: Option<Vec<Term>>,
    tolerations: Vec<Toleration>,
}

/// A node, as far as eligibility looks at it.
#[derive(Clone, Copy, Debug)]
pub struct NodeFacts<'a> {
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.labels`.
    pub labels: &'a BTreeMap<Arc<str>, Arc<str>>,
    /// `spec.taints`.
    pub taints: &'a [Taint],
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Its key.
    pub key: Arc<str>,
    /// Its value, often empty.
    pub value: Arc<str>,
    /// What it does.
    pub effect: Effect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// New ones are not made.
    NoSchedule,
    /// Nothing, for daemon pods.
    PreferNoSchedule,
    /// They are removed.
    NoExecute,
}

/// A term of the required node affinity: all of its requirements have to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Toleration {
    /// `None`: any.
    key: Option<Box<str>>,
    /// `None`: any.
    value: Option<Box<str>>,
    /// `None`: any.
    effect: Option<Effect>,
}

/// Tolerations that the native controller adds to every daemon pod.
const ADDED: [(&str, Effect); 6] = [
    ("node.kubernetes.io/not-ready", Effect::NoExecute),
    ("node.kubernetes.io/unreachable", Effect::NoExecute),
    ("node.kubernetes.io/disk-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/memory-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/pid-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/unschedulable", Effect::NoSchedule),
];
/// … and this one to those on the host's network.
const ADDED_ON_HOST_NETWORK: (&str, Effect) =
    ("node.kubernetes.io/network-unavailable", Effect::NoSchedule);

impl Scheduling {
    /// Reads `spec.template` of a DaemonSet.
    pub fn from_template(template: &Value) -> Self {
        let spec = &template["spec"];
        Self {
            node_name: non_empty(&spec["nodeName"]),
            node_selector: match &spec["nodeSelector"] {
                Value::Null => Some(Vec::new()),
                labels => equal_to(labels).ok(),
            },
            affinity: read_affinity(spec),
            tolerations: read_tolerations(spec),
        }
    }

    /// Whether the DaemonSet's pod belongs on this node.
    pub fn targeting(&self, node: &NodeFacts<'_>) -> Targeting {
        if !(self.names(node) && self.selects(node) && self.is_attracted_by(node)) {
            return Targeting::No;
        }
        let repelled_by = |effect| {
            let mut taints = node.taints.iter().filter(|taint| taint.effect == effect);
            taints.any(|taint| !self.tolerates(taint))
        };
        if repelled_by(Effect::NoExecute) {
            Targeting::No
        } else if repelled_by(Effect::NoSchedule) {
            Targeting::Keep
        } else {
            Targeting::Run
        }
    }

    fn names(&self, node: &NodeFacts<'_>) -> bool {
        self.node_name
            .as_ref()
            .is_none_or(|name| **name == *node.name)
    }

    fn selects(&self, node: &NodeFacts<'_>) -> bool {
        let holds = |r: &Requirement| r.matches(node.label(r.key()));
        self.node_selector
            .as_ref()
            .is_some_and(|requirements| requirements.iter().all(holds))
    }

    fn is_attracted_by(&self, node: &NodeFacts<'_>) -> bool {
        self.affinity
            .as_ref()
            .is_none_or(|terms| terms.iter().any(|term| term.matches(node)))
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|t| t.tolerates(taint))
    }
}

impl NodeFacts<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(|value| &**value)
    }

    /// The one field that node affinity can ask for is the name; another one would be empty.
    fn field(&self, key: &str) -> &str {
        if key == "metadata.name" {
            self.name
        } else {
            ""
        }
    }
}

impl Term {
    /// `None` when it can never match: it is empty, or a part of it is not usable.
    fn from_json(term: &Value) -> Option<Self> {
        let read = |key: &str, operators| match &term[key] {
            Value::Null => Some(Vec::new()),
            Value::Array(list) => list
                .iter()
                .map(|expression| Requirement::from_json(expression, operators).ok())
                .collect(),
            _ => None,
        };
        let labels = read("matchExpressions", Operators::NodeAffinity)?;
        let fields = read("matchFields", Operators::Fields)?;
        (!labels.is_empty() || !fields.is_empty()).then_some(Self { labels, fields })
    }

    fn matches(&self, node: &NodeFacts<'_>) -> bool {
        self.labels.iter().all(|r| r.matches(node.label(r.key())))
            && self
                .fields
                .iter()
                .all(|r| r.matches(Some(node.field(r.key()))))
    }
}

impl Toleration {
    fn from_json(toleration: &Value) -> Option<Self> {
        let effect = match non_empty(&toleration["effect"]) {
            Some(word) => Some(Effect::from_word(&word)?),
            None => None,
        };
        let value = match toleration["operator"].as_str() {
            Some("Exists") => None,
            Some("Equal" | "") | None => Some(toleration["value"].as_str().unwrap_or_default()),
            Some(_) => return None,
        };
        Some(Self {
            key: non_empty(&toleration["key"]),
            value: value.map(Into::into),
            effect,
        })
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| **key == *taint.key)
            && self
                .value
                .as_ref()
                .is_none_or(|value| **value == *taint.value)
    }
}

impl Effect {
    /// The effect of that name; `None` when there is none.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "NoSchedule" => Some(Self::NoSchedule),
            "PreferNoSchedule" => Some(Self::PreferNoSchedule),
            "NoExecute" => Some(Self::NoExecute),
            _ => None,
        }
    }
}

fn read_affinity(spec: &Value) -> Option<Vec<Term>> {
    let required =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    if required.is_null() {
        return None;
    }
    let terms = required["nodeSelectorTerms"].as_array();
    Some(
        terms
            .into_iter()
            .flatten()
            .filter_map(Term::from_json)
            .collect(),
    )
}

fn read_tolerations(spec: &Value) -> Vec<Toleration> {
    let own = spec["tolerations"].as_array().into_iter().flatten();
    let on_host_network = spec["hostNetwork"] == Value::Bool(true);
    let added = ADDED
        .into_iter()
        .chain(on_host_network.then_some(ADDED_ON_HOST_NETWORK));
    own.filter_map(Toleration::from_json)
        .chain(added.map(|(key, effect)| Toleration {
            key: Some(key.into()),
            value: None,
            effect: Some(effect),
        }))
        .collect()
}

fn non_empty(value: &Value) -> Option<Box<str>> {
    value
        .as_str()
        .filter(|text| !text.is_empty())
        .map(Into::into)
}
