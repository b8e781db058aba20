//! Tests of the whole CustomResourceDefinition.

use serde_json::Value;

use super::crd;

/// CustomResourceDefinition that is committed in the repository.
const COMMITTED: &str = include_str!("../../manifests/components/advanced/crd.yaml");

fn definition() -> Value {
    serde_saphyr::from_str(&super::crd().unwrap()).unwrap()
}

/// Calls `visit` for a schema and all nested schemas, with their paths.
fn walk(path: &str, schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, schema);
    let properties = schema["properties"].as_object().into_iter().flatten();
    for (name, field) in properties {
        walk(&format!("{path}.{name}"), field, visit);
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[key].is_object() {
            walk(&format!("{path}{mark}"), &schema[key], visit);
        }
    }
}

/// Calls `visit` for all schemas of one version. Both versions have the same schemas.
fn schemas(mut visit: impl FnMut(&str, &Value)) {
    let definition = crd::definition();
    let version = &definition["spec"]["versions"][1];
    walk("", &version["schema"]["openAPIV3Schema"], &mut visit);
}

#[test]
fn the_committed_crd_matches_the_types() {
    assert!(
        super::crd().unwrap() == COMMITTED,
        "manifests/components/advanced/crd.yaml is old; write it anew:\n\
         cargo run -- manifests crd > manifests/components/advanced/crd.yaml"
    );
}

#[test]
fn the_printed_crd_matches_the_definition() {
    assert_eq!(definition(), crd::definition());
}

#[test]
fn names_and_versions_match_openkruise() {
    let definition = definition();
    let spec = &definition["spec"];
    assert_eq!(definition["metadata"]["name"], "daemonsets.apps.kruise.io");
    let names = serde_json::json!({
        "kind": "DaemonSet",
        "listKind": "DaemonSetList",
        "plural": "daemonsets",
        "singular": "daemonset",
        "shortNames": ["daemon", "ads"],
    });
    assert_eq!(spec["names"], names);
    assert_eq!(spec["group"], "apps.kruise.io");
    assert_eq!(spec["scope"], "Namespaced");
    let versions = spec["versions"].as_array().unwrap();
    let told: Vec<_> = versions
        .iter()
        .map(|version| (&version["name"], &version["served"], &version["storage"]))
        .map(|(name, served, storage)| format!("{name} {served} {storage}"))
        .collect();
    assert_eq!(told, [r#""v1alpha1" true false"#, r#""v1beta1" true true"#]);
    for version in versions {
        assert_eq!(version["subresources"], serde_json::json!({ "status": {} }));
        assert_eq!(version["schema"], versions[0]["schema"]);
        let columns = version["additionalPrinterColumns"].as_array().unwrap();
        let columns: Vec<_> = columns
            .iter()
            .map(|column| column["name"].as_str().unwrap())
            .collect();
        let expected = "DESIRED CURRENT READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES";
        assert_eq!(columns.join(" "), expected);
    }
}

#[test]
fn the_schema_is_structural() {
    let mut count = 0;
    schemas(|path, schema| {
        count += 1;
        let fields = schema.as_object().unwrap();
        for word in [
            "$ref",
            "$defs",
            "definitions",
            "nullable",
            "title",
            "$schema",
            "oneOf",
        ] {
            assert!(!fields.contains_key(word), "{path}: {word}");
        }
        let is_either = fields.contains_key("x-kubernetes-int-or-string");
        assert_eq!(schema["type"].is_string(), !is_either, "{path}");
        assert_eq!(fields.contains_key("anyOf"), is_either, "{path}");
        if schema["type"] == "integer" {
            let format = schema["format"].as_str().unwrap();
            assert!(["int32", "int64"].contains(&format), "{path}: {format}");
            let is_limited = schema["maximum"] == i32::MAX;
            assert_eq!(format == "int32", is_limited, "{path}");
        }
        if schema["type"] == "array" {
            assert!(schema["items"].is_object(), "{path}");
        }
    });
    assert!(count > 80, "{count}");
}

#[test]
fn every_field_has_a_one_paragraph_description() {
    schemas(|path, schema| {
        let is_plain = path.ends_with("{}") || path.ends_with("[]");
        let words = schema["description"].as_str().unwrap_or_default();
        assert!(is_plain || words.ends_with('.'), "{path}: {words:?}");
        assert!(
            !words.contains('\n') && !words.contains("  "),
            "{path}: {words:?}"
        );
    });
}

#[test]
fn only_fields_defaulted_by_the_openkruise_webhook_have_defaults() {
    let mut found = Vec::new();
    schemas(|path, schema| {
        if let Some(value) = schema.get("default") {
            found.push(format!("{path}: {value}"));
        }
    });
    let expected = [
        ".spec.burstReplicas: 250",
        ".spec.revisionHistoryLimit: 10",
        ".spec.updateStrategy: {}",
        ".spec.updateStrategy.rollingUpdate: {}",
        r#".spec.updateStrategy.rollingUpdate.rollingUpdateType: "Standard""#,
        r#".spec.updateStrategy.type: "RollingUpdate""#,
    ];
    assert_eq!(found, expected);
}

#[test]
fn only_mandatory_fields_are_required() {
    let mut found = Vec::new();
    schemas(|path, schema| {
        let names = schema["required"].as_array().into_iter().flatten();
        found.extend(names.map(|name| format!("{path}.{}", name.as_str().unwrap())));
    });
    found.retain(|path| !path.starts_with(".spec.updateStrategy"));
    // Kubernetes itself requires these fields in the node affinity of every pod.
    const REQUIRED: &str =
        ".spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.";
    let mut of_nodes: Vec<String> = (found.iter())
        .filter_map(|path| path.strip_prefix(REQUIRED).map(str::to_owned))
        .collect();
    of_nodes.sort();
    let parts = [
        "nodeSelectorTerms",
        "nodeSelectorTerms[].matchExpressions[].key",
        "nodeSelectorTerms[].matchExpressions[].operator",
        "nodeSelectorTerms[].matchFields[].key",
        "nodeSelectorTerms[].matchFields[].operator",
    ];
    assert_eq!(of_nodes, parts);
    found.retain(|path| !path.starts_with(REQUIRED));
    let expected = [
        ".spec",
        ".spec.selector",
        ".spec.template",
        ".spec.selector.matchExpressions[].key",
        ".spec.selector.matchExpressions[].operator",
        ".spec.template.spec",
        ".spec.template.spec.containers",
        ".spec.template.spec.containers[].name",
        ".spec.template.spec.containers[].image",
        ".status.currentNumberScheduled",
        ".status.numberMisscheduled",
        ".status.desiredNumberScheduled",
        ".status.numberReady",
        ".status.updatedNumberScheduled",
        ".status.conditions[].type",
        ".status.conditions[].status",
    ];
    assert_eq!(found, expected);
}

#[test]
fn unknown_fields_of_a_pod_template_are_preserved() {
    schemas(|path, schema| {
        let is_object = schema["type"] == "object" && !schema["additionalProperties"].is_object();
        if is_object && path.starts_with(".spec.template") {
            let kept = &schema["x-kubernetes-preserve-unknown-fields"];
            assert_eq!(kept, true, "{path}");
        }
    });
}
