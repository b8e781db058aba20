//! Eligibility: the nodes on which a DaemonSet runs pods. The rules are those of the native controller, with one exception.
//!
//! The exception: a node that turns NotReady stays targeted. Kubernetes taints such a node `not-ready` or `unreachable`, once with
//! `NoExecute` and once with `NoSchedule`. The native controller tolerates only `NoExecute`. So its `desiredNumberScheduled`
//! doesn't include offline nodes (seen on 1.36).
//!
//! Here they stay targeted for two reasons: a percentage must not shrink when nodes go offline, and the nodes have to be updated
//! when they return.
//!
//! The rules are parsed from the template once, and evaluated for every node without allocation. The API server rejects templates
//! with invalid parts. If such a template is evaluated anyway, an invalid node selector or affinity term matches nothing, as in
//! Kubernetes. An invalid toleration tolerates nothing.

mod obstacle;
pub mod template;

use std::sync::Arc;

use serde_json::Value;

use super::fleet::Targeting;
use super::labels::Labels;
use super::selector::{Operators, Requirement, equal_to};

pub use obstacle::Obstacle;

/// The scheduling constraints of a pod template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduling {
    node_name: Option<Box<str>>,
    /// Requirements of the node selector; `None` if the selector is invalid and matches nothing.
    node_selector: Option<Vec<Requirement>>,
    /// Terms of the required node affinity, of which at least one has to match; `None` if the template has no affinity.
    affinity: Option<Vec<Term>>,
    /// Tolerations of the template, followed by the tolerations of every daemon pod.
    tolerations: Vec<Toleration>,
    /// Number of `tolerations` that come from the template. They are the first ones.
    of_template: usize,
}

/// Facts about a node that eligibility depends on.
#[derive(Clone, Copy, Debug)]
pub struct NodeFacts<'a> {
    /// Name of the node (`metadata.name`).
    pub name: &'a str,
    /// Labels of the node (`metadata.labels`).
    pub labels: &'a Labels,
    /// Taints of the node (`spec.taints`).
    pub taints: &'a [Taint],
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Key of the taint.
    pub key: Arc<str>,
    /// Value of the taint, often empty.
    pub value: Arc<str>,
    /// Effect of the taint.
    pub effect: Effect,
}

/// Effect of a taint on pods that don't tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// New pods are not created.
    NoSchedule,
    /// Daemon pods are not affected.
    PreferNoSchedule,
    /// Pods are removed.
    NoExecute,
}

/// Term of the required node affinity. The node has to meet all requirements of the term.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Toleration {
    /// Tolerated key; `None` means any.
    key: Option<Box<str>>,
    /// Tolerated value; `None` means any.
    value: Option<Box<str>>,
    /// Tolerated effect; `None` means any.
    effect: Option<Effect>,
}

/// Taint that OpenYurt's pool coordinator sets on a node that cannot reach the API server, but still sends heartbeats through other
/// nodes of its pool.
///
/// The node's Ready condition then stays `True`, although the API server can't reach its kubelet.
pub const CUT_OFF_TAINT: &str = "node.openyurt.io/unschedulable";

/// Taints that follow from the Ready condition. They are tolerated with any effect, so that NotReady nodes stay targeted.
const READINESS: [&str; 3] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    CUT_OFF_TAINT,
];
/// Taints with `NoSchedule` that every daemon pod tolerates, because the native controller adds these tolerations.
const PRESSURE: [&str; 4] = [
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
];
/// Taint with `NoSchedule` that daemon pods on the host network tolerate, because the native controller adds this toleration.
const NETWORK: &str = "node.kubernetes.io/network-unavailable";

impl Scheduling {
    /// Parses `spec.template` of a DaemonSet.
    pub fn from_template(template: &Value) -> Self {
        let spec = &template["spec"];
        let (tolerations, of_template) = read_tolerations(spec);
        Self {
            node_name: non_empty(&spec["nodeName"]),
            node_selector: match &spec["nodeSelector"] {
                Value::Null => Some(Vec::new()),
                labels => equal_to(labels).ok(),
            },
            affinity: read_affinity(spec),
            tolerations,
            of_template,
        }
    }

    /// Returns the number of terms, requirements, values and tolerations, as a measure of the memory and time that the constraints
    /// take.
    pub fn size(&self) -> usize {
        let asked = |all: &[Requirement]| all.iter().map(Requirement::size).sum::<usize>();
        let terms = self.affinity.iter().flatten();
        let terms = terms.map(|term| 1 + asked(&term.labels) + asked(&term.fields));
        let selector = self.node_selector.as_deref().unwrap_or_default();
        terms.sum::<usize>() + asked(selector) + self.of_template
    }

    /// Returns the eligibility of this node for the DaemonSet's pod. Being NotReady makes no difference.
    pub fn targeting(&self, node: &NodeFacts<'_>) -> Targeting {
        self.evaluate(node, |taint| self.tolerates(taint))
    }

    /// Returns the eligibility of this node by the rules of Kubernetes and Kruise, which decide where they create pods now.
    ///
    /// In contrast to [`targeting`](Self::targeting), NotReady nodes are not eligible for new pods.
    pub fn native_targeting(&self, node: &NodeFacts<'_>) -> Targeting {
        self.evaluate(node, |taint| {
            if is_readiness(taint) {
                self.template_tolerates(taint)
            } else {
                self.tolerates(taint)
            }
        })
    }

    fn evaluate(&self, node: &NodeFacts<'_>, tolerates: impl Fn(&Taint) -> bool) -> Targeting {
        if !(self.names(node) && self.selects(node) && self.is_attracted_by(node)) {
            return Targeting::No;
        }
        let repelled_by = |effect| {
            let mut taints = node.taints.iter().filter(|taint| taint.effect == effect);
            taints.any(|taint| !tolerates(taint))
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

    /// Returns true if the template itself tolerates a taint. The tolerations that the native controller adds don't count.
    fn template_tolerates(&self, taint: &Taint) -> bool {
        let mut own = self.tolerations[..self.of_template].iter();
        own.any(|toleration| toleration.tolerates(taint))
    }
}

impl NodeFacts<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    /// Returns the value of a field for `matchFields`. Only the node's name is supported; any other field has an empty value.
    fn field(&self, key: &str) -> &str {
        if key == "metadata.name" {
            self.name
        } else {
            ""
        }
    }
}

impl Term {
    /// Parses a term; `None` if the term can never match, because it is empty or has an invalid part.
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
    fn new(key: &str, effect: Option<Effect>) -> Self {
        Self {
            key: Some(key.into()),
            value: None,
            effect,
        }
    }

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
    /// Returns the effect with that name; `None` if the name is unknown.
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

/// Returns true if the taint follows from the Ready condition and keeps new pods off the node.
///
/// The `NoExecute` effect of the two Kubernetes taints is not included, because every daemon pod tolerates it.
fn is_readiness(taint: &Taint) -> bool {
    let keeps_away = taint.effect == Effect::NoSchedule || *taint.key == *CUT_OFF_TAINT;
    keeps_away && READINESS.contains(&&*taint.key)
}

/// Returns the tolerations of the template, followed by the tolerations of every daemon pod, and the number of tolerations in the
/// template.
fn read_tolerations(spec: &Value) -> (Vec<Toleration>, usize) {
    let own = spec["tolerations"].as_array().into_iter().flatten();
    let own: Vec<Toleration> = own.filter_map(Toleration::from_json).collect();
    let of_template = own.len();
    let on_host_network = spec["hostNetwork"] == Value::Bool(true);
    let no_schedule = PRESSURE
        .into_iter()
        .chain(on_host_network.then_some(NETWORK));
    let all = own
        .into_iter()
        .chain(READINESS.map(|key| Toleration::new(key, None)))
        .chain(no_schedule.map(|key| Toleration::new(key, Some(Effect::NoSchedule))));
    (all.collect(), of_template)
}

fn non_empty(value: &Value) -> Option<Box<str>> {
    value
        .as_str()
        .filter(|text| !text.is_empty())
        .map(Into::into)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(spec: Value, labels: &[(&str, &str)], taints: &[(&str, &str, Effect)]) -> Targeting {
        let labels = labels.iter().copied().collect();
        let taints: Vec<Taint> = taints
            .iter()
            .map(|(key, value, effect)| Taint {
                key: (*key).into(),
                value: (*value).into(),
                effect: *effect,
            })
            .collect();
        let scheduling = Scheduling::from_template(&json!({ "spec": spec }));
        scheduling.targeting(&NodeFacts {
            name: "n1",
            labels: &labels,
            taints: &taints,
        })
    }

    fn labelled(spec: Value, labels: &[(&str, &str)]) -> Targeting {
        node(spec, labels, &[])
    }

    fn tainted(spec: Value, taints: &[(&str, &str, Effect)]) -> Targeting {
        node(spec, &[], taints)
    }

    fn affinity(terms: Value) -> Value {
        let required = json!({"nodeSelectorTerms": terms});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    }

    fn expression(key: &str, operator: &str, values: Value) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn a_template_without_constraints_targets_every_node() {
        assert_eq!(labelled(json!({}), &[]), Targeting::Run);
        let nothing = json!({"nodeName": "", "nodeSelector": {}, "tolerations": [], "affinity": {"nodeAffinity": {}}});
        assert_eq!(labelled(nothing, &[]), Targeting::Run);
    }

    #[test]
    fn a_node_name_targets_only_that_node() {
        assert_eq!(labelled(json!({"nodeName": "n1"}), &[]), Targeting::Run);
        assert_eq!(labelled(json!({"nodeName": "n2"}), &[]), Targeting::No);
    }

    #[test]
    fn every_node_selector_label_must_match() {
        let spec = || json!({"nodeSelector": {"a": "1", "b": ""}});
        assert_eq!(labelled(spec(), &[("a", "1"), ("b", "")]), Targeting::Run);
        assert_eq!(labelled(spec(), &[("a", "1")]), Targeting::No);
        assert_eq!(labelled(spec(), &[("a", "2"), ("b", "")]), Targeting::No);
    }

    #[test]
    fn node_affinity_supports_every_operator() {
        let yes = [
            expression("a", "In", json!(["5", "6"])),
            expression("a", "NotIn", json!(["6"])),
            expression("b", "NotIn", json!(["6"])),
            expression("a", "Exists", json!([])),
            expression("b", "DoesNotExist", json!([])),
            expression("a", "Gt", json!(["4"])),
            expression("a", "Lt", json!(["6"])),
        ];
        let no = [
            expression("a", "In", json!(["6"])),
            expression("b", "In", json!(["5"])),
            expression("a", "NotIn", json!(["5"])),
            expression("b", "Exists", json!([])),
            expression("a", "DoesNotExist", json!([])),
            expression("a", "Gt", json!(["5"])),
            expression("a", "Lt", json!(["5"])),
            expression("b", "Gt", json!(["0"])),
        ];
        for (terms, expected) in [(yes.as_slice(), Targeting::Run), (&no, Targeting::No)] {
            for term in terms {
                let found = labelled(affinity(json!([term])), &[("a", "5")]);
                assert_eq!(found, expected, "{term}");
            }
        }
    }

    #[test]
    fn node_selector_terms_are_ored_and_their_expressions_anded() {
        let has = |key: &str| expression(key, "Exists", json!([]));
        let either = affinity(json!([has("a"), has("b")]));
        let both = affinity(json!([{"matchExpressions": [
            {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]}]));
        assert_eq!(labelled(either, &[("b", "")]), Targeting::Run);
        assert_eq!(labelled(both, &[("b", "")]), Targeting::No);
    }

    #[test]
    fn node_selector_and_affinity_must_both_match() {
        let mut spec = affinity(json!([expression("a", "Exists", json!([]))]));
        spec["nodeSelector"] = json!({"b": "1"});
        assert_eq!(labelled(spec.clone(), &[("a", "")]), Targeting::No);
        assert_eq!(labelled(spec.clone(), &[("b", "1")]), Targeting::No);
        assert_eq!(labelled(spec, &[("a", ""), ("b", "1")]), Targeting::Run);
    }

    #[test]
    fn affinity_matches_the_node_name_field() {
        let field = |operator: &str, values: Value| {
            affinity(json!([{"matchFields":
                [{"key": "metadata.name", "operator": operator, "values": values}]}]))
        };
        assert_eq!(labelled(field("In", json!(["n1"])), &[]), Targeting::Run);
        assert_eq!(labelled(field("In", json!(["n2"])), &[]), Targeting::No);
        assert_eq!(labelled(field("NotIn", json!(["n1"])), &[]), Targeting::No);
        assert_eq!(labelled(field("NotIn", json!(["n2"])), &[]), Targeting::Run);
        // As in Kubernetes, `matchFields` accepts only `In` and `NotIn` with exactly one value.
        assert_eq!(
            labelled(field("In", json!(["n1", "n2"])), &[]),
            Targeting::No
        );
        assert_eq!(labelled(field("Exists", json!([])), &[]), Targeting::No);
    }

    #[test]
    fn invalid_affinity_matches_no_node() {
        let broken = [
            affinity(json!([])),
            affinity(json!(null)),
            affinity(json!([{}])),
            affinity(json!([null, 1, "x"])),
            affinity(json!([{"matchExpressions": {}}])),
            affinity(json!([{"matchExpressions": [null]}])),
            affinity(json!([expression("a", "Near", json!(["5"]))])),
            affinity(json!([expression("a", "Gt", json!(["five"]))])),
            // -1 is less than 5 as a number, but it is no valid label value.
            affinity(json!([expression("a", "Gt", json!(["-1"]))])),
            affinity(json!([expression("a", "In", json!([5]))])),
            affinity(json!([expression("a", "NotIn", json!(["not a value"]))])),
            json!({"nodeSelector": {"a": 5}}),
            json!({"nodeSelector": ["a"]}),
        ];
        for spec in broken {
            assert_eq!(
                labelled(spec.clone(), &[("a", "5")]),
                Targeting::No,
                "{spec}"
            );
        }
        let second_term = affinity(json!([
            expression("a", "Near", json!([])),
            expression("a", "Exists", json!([]))
        ]));
        assert_eq!(labelled(second_term, &[("a", "5")]), Targeting::Run);
    }

    #[test]
    fn no_schedule_keeps_existing_pods_and_no_execute_removes_them() {
        let taint = |effect| [("dedicated", "gpu", effect)];
        let cases = [
            (Effect::NoSchedule, Targeting::Keep),
            (Effect::PreferNoSchedule, Targeting::Run),
            (Effect::NoExecute, Targeting::No),
        ];
        for (effect, expected) in cases {
            assert_eq!(tainted(json!({}), &taint(effect)), expected);
        }
        let both = [taint(Effect::NoSchedule)[0], taint(Effect::NoExecute)[0]];
        assert_eq!(tainted(json!({}), &both), Targeting::No);
    }

    #[test]
    fn tolerations_match_as_in_kubernetes() {
        let cases = [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (
                json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}),
                true,
            ),
            (
                json!({"key": "k", "operator": "", "value": "v", "effect": ""}),
                true,
            ),
            (json!({"key": "k"}), false),
            (json!({"key": "k", "value": "w"}), false),
            (json!({"key": "l", "operator": "Exists"}), false),
            (
                json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
            (json!({"key": "k", "operator": "Near", "value": "v"}), false),
            (
                json!({"key": "k", "operator": "Exists", "effect": "Unheard"}),
                false,
            ),
            (json!(null), false),
            (json!("Exists"), false),
        ];
        for (toleration, tolerates) in cases {
            let expected = if tolerates {
                Targeting::Run
            } else {
                Targeting::Keep
            };
            let spec = json!({ "tolerations": [toleration] });
            let found = tainted(spec.clone(), &[("k", "v", Effect::NoSchedule)]);
            assert_eq!(found, expected, "{spec}");
        }
    }

    #[test]
    fn readiness_and_cordon_taints_are_tolerated() {
        let all = [
            ("node.kubernetes.io/not-ready", "", Effect::NoExecute),
            ("node.kubernetes.io/not-ready", "", Effect::NoSchedule),
            ("node.kubernetes.io/unreachable", "", Effect::NoExecute),
            ("node.kubernetes.io/unreachable", "", Effect::NoSchedule),
            ("node.kubernetes.io/disk-pressure", "", Effect::NoSchedule),
            ("node.kubernetes.io/memory-pressure", "", Effect::NoSchedule),
            ("node.kubernetes.io/pid-pressure", "", Effect::NoSchedule),
            ("node.kubernetes.io/unschedulable", "", Effect::NoSchedule),
            ("node.openyurt.io/unschedulable", "", Effect::NoSchedule),
        ];
        assert_eq!(tainted(json!({}), &all), Targeting::Run);
        let evicting = [("node.kubernetes.io/disk-pressure", "", Effect::NoExecute)];
        assert_eq!(tainted(json!({}), &evicting), Targeting::No);
    }

    #[test]
    fn only_host_network_pods_tolerate_an_unavailable_network() {
        let taint = [(
            "node.kubernetes.io/network-unavailable",
            "",
            Effect::NoSchedule,
        )];
        assert_eq!(
            tainted(json!({"hostNetwork": true}), &taint),
            Targeting::Run
        );
        assert_eq!(
            tainted(json!({"hostNetwork": false}), &taint),
            Targeting::Keep
        );
    }

    #[test]
    fn a_malformed_template_is_read_without_a_panic() {
        let labels = Labels::default();
        let facts = NodeFacts {
            name: "n1",
            labels: &labels,
            taints: &[],
        };
        for template in [
            json!(null),
            json!([]),
            json!("x"),
            json!({"spec": [1]}),
            json!({"spec": {
            "nodeName": 1, "affinity": [], "tolerations": {"a": 1}, "hostNetwork": "true"}}),
        ] {
            assert_eq!(
                Scheduling::from_template(&template).targeting(&facts),
                Targeting::Run
            );
        }
    }
}
