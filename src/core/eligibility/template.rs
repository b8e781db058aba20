//! Validation of a template's scheduling constraints, by the rules of the API server for pods.
//!
//! The API server doesn't validate the template of an Advanced DaemonSet. Without this check, an invalid constraint would match all
//! nodes or none, and the controller would create or remove the wrong pods.

use serde_json::Value;

use super::{Effect, Operators, Requirement};
use crate::core::selector::{is_label_key, is_label_value};

/// A part of a template that Kubernetes would reject in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateFlaw<'a> {
    /// Path of the part, relative to the template.
    pub path: &'static str,
    /// Value of the part.
    pub value: &'a Value,
    /// Description of the expected value.
    pub expected: &'static str,
}

const SELECTOR: &str = "spec.nodeSelector";
const AFFINITY: &str = "spec.affinity";
const NODE_AFFINITY: &str = "spec.affinity.nodeAffinity";
const REQUIRED: &str = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
const TOLERATIONS: &str = "spec.tolerations";

/// Validates the constraints that determine the nodes for the pods of `template`.
///
/// # Errors
/// Returns the first invalid part.
pub fn check(template: &Value) -> Result<(), TemplateFlaw<'_>> {
    let spec = &template["spec"];
    let node_name = &spec["nodeName"];
    if !(node_name.is_null() || node_name.is_string()) {
        return flaw("spec.nodeName", node_name, "the name of a node");
    }
    check_selector(&spec["nodeSelector"])?;
    check_affinity(&spec["affinity"])?;
    check_tolerations(&spec["tolerations"])
}

fn flaw<'a>(
    path: &'static str,
    value: &'a Value,
    expected: &'static str,
) -> Result<(), TemplateFlaw<'a>> {
    Err(TemplateFlaw {
        path,
        value,
        expected,
    })
}

fn check_selector(selector: &Value) -> Result<(), TemplateFlaw<'_>> {
    let is_label = |(key, value): (&String, &Value)| {
        is_label_key(key) && value.as_str().is_some_and(is_label_value)
    };
    match selector {
        Value::Null => Ok(()),
        Value::Object(labels) if labels.iter().all(is_label) => Ok(()),
        _ => flaw(
            SELECTOR,
            selector,
            "a map from label keys to label values (quote true, false and numbers)",
        ),
    }
}

fn check_affinity(affinity: &Value) -> Result<(), TemplateFlaw<'_>> {
    let of_nodes = &affinity["nodeAffinity"];
    let required = &of_nodes["requiredDuringSchedulingIgnoredDuringExecution"];
    for (path, part) in [
        (AFFINITY, affinity),
        (NODE_AFFINITY, of_nodes),
        (REQUIRED, required),
    ] {
        match part {
            Value::Null => return Ok(()),
            Value::Object(_) => {}
            _ => return flaw(path, part, "an object"),
        }
    }
    let terms = required["nodeSelectorTerms"].as_array();
    let Some(terms) = terms.filter(|terms| !terms.is_empty()) else {
        return flaw(
            REQUIRED,
            required,
            "an object whose nodeSelectorTerms have at least one term",
        );
    };
    for term in terms {
        for (list, operators) in [
            ("matchExpressions", Operators::NodeAffinity),
            ("matchFields", Operators::Fields),
        ] {
            let expressions = match (&term[list], term.is_object()) {
                (Value::Null, true) => continue,
                (Value::Array(expressions), _) => expressions,
                _ => {
                    return flaw(
                        REQUIRED,
                        term,
                        "a term with matchExpressions or matchFields",
                    );
                }
            };
            for expression in expressions {
                if let Err(invalid) = Requirement::from_json(expression, operators) {
                    return flaw(REQUIRED, expression, invalid.expected);
                }
            }
        }
    }
    Ok(())
}

fn check_tolerations(tolerations: &Value) -> Result<(), TemplateFlaw<'_>> {
    let all = match tolerations {
        Value::Null => return Ok(()),
        Value::Array(all) => all,
        _ => return flaw(TOLERATIONS, tolerations, "a list of tolerations"),
    };
    let is_text = |value: &Value| value.is_null() || value.is_string();
    for toleration in all {
        let effect = toleration["effect"].as_str().unwrap_or_default();
        let is_usable = toleration.is_object()
            && ["key", "operator", "value", "effect"]
                .into_iter()
                .all(|field| is_text(&toleration[field]))
            && (effect.is_empty() || Effect::from_word(effect).is_some());
        if !is_usable {
            return flaw(
                TOLERATIONS,
                toleration,
                "a toleration with strings for key, operator and value, and with the effect NoSchedule, PreferNoSchedule or \
                 NoExecute",
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn required(terms: Value) -> Value {
        json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } })
    }

    #[test]
    fn scheduling_fields_that_kubernetes_accepts_are_accepted() {
        let term =
            json!({ "matchExpressions": [{ "key": "a", "operator": "Gt", "values": ["1"] }] });
        for spec in [
            json!({}),
            json!({ "nodeName": "n1", "nodeSelector": { "example.com/a": "" }, "tolerations": [] }),
            json!({ "nodeSelector": null, "affinity": null, "tolerations": null }),
            json!({ "affinity": { "podAffinity": {} } }),
            required(json!({ "nodeSelectorTerms": [term, {}] })),
            json!({ "tolerations": [{ "operator": "Exists" }, { "key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 3 }] }),
        ] {
            assert_eq!(check(&json!({ "spec": spec })), Ok(()), "{spec}");
        }
    }

    /// Regression test from a real cluster: `nodeSelector: {edge: true}`, without quotes around `true`, removed every pod.
    #[test]
    fn scheduling_fields_that_kubernetes_rejects_are_rejected() {
        let terms = |operator: &str, values: Value| {
            let one = json!({ "key": "a", "operator": operator, "values": values });
            required(json!({ "nodeSelectorTerms": [{ "matchExpressions": [one] }] }))
        };
        for (spec, path) in [
            (json!({ "nodeName": 5 }), "spec.nodeName"),
            (json!({ "nodeSelector": { "edge": true } }), SELECTOR),
            (json!({ "nodeSelector": { "a": 5 } }), SELECTOR),
            (json!({ "nodeSelector": { "a b": "c" } }), SELECTOR),
            (json!({ "nodeSelector": { "a": "b c" } }), SELECTOR),
            (json!({ "nodeSelector": "edge" }), SELECTOR),
            (json!({ "affinity": "x" }), AFFINITY),
            (json!({ "affinity": { "nodeAffinity": [] } }), NODE_AFFINITY),
            (required(json!("x")), REQUIRED),
            (required(json!({ "nodeSelectorTerms": [] })), REQUIRED),
            (required(json!({ "nodeSelectorTerms": ["x"] })), REQUIRED),
            (terms("in", json!(["b"])), REQUIRED),
            (terms("Gt", json!(["b"])), REQUIRED),
            (terms("In", json!([])), REQUIRED),
            (
                json!({ "tolerations": { "operator": "Exists" } }),
                TOLERATIONS,
            ),
            (json!({ "tolerations": ["x"] }), TOLERATIONS),
            (json!({ "tolerations": [{ "key": true }] }), TOLERATIONS),
            (
                json!({ "tolerations": [{ "effect": "noexecute" }] }),
                TOLERATIONS,
            ),
        ] {
            let template = json!({ "spec": spec });
            assert_eq!(check(&template).unwrap_err().path, path, "{spec}");
        }
    }
}
