//! Tests of server-side apply: owning, sharing, releasing and taking over fields.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{cluster, config_map};

fn map(data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data })
}

async fn apply(
    api: &Api<ConfigMap>,
    manager: &str,
    force: bool,
    data: Value,
) -> Result<ConfigMap, kube::Error> {
    let mut params = PatchParams::apply(manager);
    params.force = force;
    api.patch("a", &params, &Patch::Apply(map(data))).await
}

fn data(map: &ConfigMap) -> Vec<(&str, &str)> {
    let data = map.data.iter().flatten();
    data.map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_field_omitted_by_its_manager_is_removed_unless_it_is_shared() {
    let api: Api<ConfigMap> = Api::namespaced(cluster().client("test"), "default");
    apply(&api, "one", false, json!({ "x": "1", "y": "1" }))
        .await
        .unwrap();
    apply(&api, "two", false, json!({ "y": "1", "z": "2" }))
        .await
        .unwrap();
    let left = apply(&api, "one", false, json!({})).await.unwrap();
    assert_eq!(data(&left), [("y", "1"), ("z", "2")]);
    let left = apply(&api, "two", false, json!({ "z": "2" }))
        .await
        .unwrap();
    assert_eq!(data(&left), [("z", "2")]);
}

#[tokio::test(start_paused = true)]
async fn a_different_value_for_a_field_of_another_manager_conflicts_unless_forced() {
    let api: Api<ConfigMap> = Api::namespaced(cluster().client("test"), "default");
    apply(&api, "one", false, json!({ "x": "1" }))
        .await
        .unwrap();
    let refused = apply(&api, "two", false, json!({ "x": "2" })).await;
    let Err(kube::Error::Api(status)) = refused else {
        panic!("the apply is refused");
    };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        status.message,
        "Apply failed with 1 conflict: conflict with \"one\" using v1: .data.x"
    );
    let taken = apply(&api, "two", true, json!({ "x": "2" })).await.unwrap();
    assert_eq!(data(&taken), [("x", "2")]);
    // The second manager has taken over the field. So the empty apply of the first manager does not remove the field.
    let left = apply(&api, "one", false, json!({})).await.unwrap();
    assert_eq!(data(&left), [("x", "2")]);
}

#[tokio::test(start_paused = true)]
async fn a_plain_patch_takes_over_a_field_and_older_fields_have_no_known_manager() {
    let api: Api<ConfigMap> = Api::namespaced(cluster().client("test"), "default");
    api.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    apply(&api, "one", false, json!({ "x": "1" }))
        .await
        .unwrap();
    let patch = Patch::Merge(json!({ "data": { "x": "2" } }));
    api.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let refused = apply(&api, "one", false, json!({ "x": "1" })).await;
    assert!(
        matches!(refused, Err(kube::Error::Api(status)) if status.message.contains("\"test\""))
    );
    let managers: Vec<String> = api
        .get("a")
        .await
        .unwrap()
        .metadata
        .managed_fields
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.manager)
        .collect();
    assert_eq!(managers, ["before-first-apply", "test"]);
}

#[tokio::test(start_paused = true)]
async fn applying_the_same_object_twice_writes_nothing() {
    let api: Api<ConfigMap> = Api::namespaced(cluster().client("test"), "default");
    let first = apply(&api, "one", false, json!({ "x": "1" }))
        .await
        .unwrap();
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    let again = apply(&api, "one", false, json!({ "x": "1" }))
        .await
        .unwrap();
    assert_eq!(
        first.metadata.resource_version,
        again.metadata.resource_version
    );
}

#[tokio::test(start_paused = true)]
async fn list_entries_and_conditions_are_owned_individually() {
    let api: Api<DaemonSet> = Api::namespaced(cluster().client("test"), "default");
    let set = |containers: Value| {
        json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": { "name": "d" },
            "spec": {
                "selector": { "matchLabels": { "a": "b" } },
                "template": {
                    "metadata": { "labels": { "a": "b" } },
                    "spec": { "containers": containers },
                },
            },
        })
    };
    let both = set(json!([{ "name": "c", "image": "1" }, { "name": "d", "image": "1" }]));
    let one = set(json!([{ "name": "c", "image": "2" }]));
    let params = PatchParams::apply("one");
    api.patch("d", &params, &Patch::Apply(&both)).await.unwrap();
    let left = api.patch("d", &params, &Patch::Apply(&one)).await.unwrap();
    let containers = left.spec.unwrap().template.spec.unwrap().containers;
    assert_eq!(containers.len(), 1);
    assert_eq!(containers[0].image.as_deref(), Some("2"));
    let condition = |kind: &str| {
        json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "status": { "conditions": [{ "type": kind, "status": "True" }] },
        })
    };
    for (manager, kind) in [("a", "A"), ("b", "B"), ("a", "C")] {
        let params = PatchParams::apply(manager);
        api.patch_status("d", &params, &Patch::Apply(condition(kind)))
            .await
            .unwrap();
    }
    let status = api.get("d").await.unwrap().status.unwrap();
    let kinds: Vec<String> = status
        .conditions
        .into_iter()
        .flatten()
        .map(|one| one.type_)
        .collect();
    assert_eq!(kinds, ["B", "C"]);
}

#[tokio::test(start_paused = true)]
async fn a_nested_list_entry_omitted_by_its_manager_is_removed() {
    let api: Api<DaemonSet> = Api::namespaced(cluster().client("test"), "default");
    let set = |env: Value| {
        json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": { "name": "d" },
            "spec": {
                "selector": { "matchLabels": { "a": "b" } },
                "template": {
                    "metadata": { "labels": { "a": "b" } },
                    "spec": { "containers": [{ "name": "c", "image": "1", "env": env }] },
                },
            },
        })
    };
    let params = PatchParams::apply("one");
    let one = json!({ "name": "X", "value": "1" });
    let both = set(json!([one, { "name": "Y", "value": "2" }]));
    api.patch("d", &params, &Patch::Apply(both)).await.unwrap();
    let left = api
        .patch("d", &params, &Patch::Apply(set(json!([one]))))
        .await
        .unwrap();
    let containers = left.spec.unwrap().template.spec.unwrap().containers;
    let env = containers[0].env.iter().flatten();
    let names: Vec<&str> = env.map(|variable| variable.name.as_str()).collect();
    assert_eq!(names, ["X"]);
}
