//! Pod Security standard `restricted`, for namespaces that enforce it.
//!
//! The module contains only the rules about host namespaces and security contexts. The messages are those of Kubernetes.

use serde_json::Value;

use super::object::Object;

/// Label by which a namespace enforces a standard.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// Returns a sentence that lists the pod's violations; `None` if the namespace allows the pod.
pub(super) fn violation(namespace: &Value, pod: &Value) -> Option<String> {
    if namespace["metadata"]["labels"][ENFORCE] != "restricted" {
        return None;
    }
    let spec = &pod["spec"];
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| spec[*field] == true)
        .map(|field| format!("{field}=true"))
        .collect();
    let host = (!shared.is_empty()).then(|| format!("host namespaces ({})", shared.join(", ")));
    let rules = [
        host,
        rule(
            "allowPrivilegeEscalation != false",
            "securityContext.allowPrivilegeEscalation=false",
            &breaking(spec, |c| {
                c["securityContext"]["allowPrivilegeEscalation"] == false
            }),
            "",
        ),
        rule(
            "unrestricted capabilities",
            "securityContext.capabilities.drop=[\"ALL\"]",
            &breaking(spec, |c| {
                let dropped = c["securityContext"]["capabilities"]["drop"].as_array();
                dropped.is_some_and(|all| all.iter().any(|one| one == "ALL"))
            }),
            "",
        ),
        rule(
            "runAsNonRoot != true",
            "securityContext.runAsNonRoot=true",
            &breaking(spec, |c| {
                either(spec, c, &["runAsNonRoot"]).as_bool() == Some(true)
            }),
            "pod or ",
        ),
        rule(
            "seccompProfile",
            "securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            &breaking(spec, |c| {
                let kind = either(spec, c, &["seccompProfile", "type"]);
                kind == "RuntimeDefault" || kind == "Localhost"
            }),
            "pod or ",
        ),
    ];
    let broken: Vec<String> = rules.into_iter().flatten().collect();
    (!broken.is_empty()).then(|| {
        format!(
            "violates PodSecurity \"restricted:latest\": {}",
            broken.join(", ")
        )
    })
}

/// Returns the names of the containers that violate a rule.
fn breaking(spec: &Value, keeps: impl Fn(&Value) -> bool) -> Vec<String> {
    let lists = ["initContainers", "containers"].into_iter();
    let containers = lists.filter_map(|list| spec[list].as_array()).flatten();
    containers
        .filter(|container| !keeps(container))
        .map(|container| format!("\"{}\"", container.text("/name")))
        .collect()
}

/// Returns a security setting of the container or, if the container doesn't have it, of the pod.
fn either<'a>(spec: &'a Value, container: &'a Value, path: &[&str]) -> &'a Value {
    let find = |object: &'a Value| {
        let mut value = &object["securityContext"];
        for step in path {
            value = &value[*step];
        }
        value
    };
    let own = find(container);
    if own.is_null() { find(spec) } else { own }
}

fn rule(name: &str, wanted: &str, breaking: &[String], or: &str) -> Option<String> {
    let plural = if breaking.len() == 1 { "" } else { "s" };
    (!breaking.is_empty()).then(|| {
        let names = breaking.join(", ");
        format!("{name} ({or}container{plural} {names} must set {wanted})")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_pod_violates_four_rules_and_a_restricted_pod_none() {
        let strict = json!({ "metadata": { "labels": { ENFORCE: "restricted" } } });
        let plain = json!({ "spec": { "containers": [{ "name": "prepull-0" }] } });
        // Message of a Kubernetes 1.36 API server.
        let message = "violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \
                    \"prepull-0\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities \
                    (container \"prepull-0\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true \
                    (pod or container \"prepull-0\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or \
                    container \"prepull-0\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
                    \"Localhost\")";
        assert_eq!(violation(&strict, &plain).as_deref(), Some(message));
        assert_eq!(violation(&json!({}), &plain), None);
        let modest = json!({ "spec": {
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{ "name": "c", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
            } }],
        } });
        assert_eq!(violation(&strict, &modest), None);
    }
}
