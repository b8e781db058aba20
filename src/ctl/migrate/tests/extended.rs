//! Tests of the manifests printed for an ExtendedDaemonSet: the API server has to accept them in a dry run.

use std::convert::Infallible;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;

use super::*;
use crate::core::selector::Selector;

const LABEL: &str = "extendeddaemonset.datadoghq.com/name";

impl Migrating {
    /// Creates a cluster with an ExtendedDaemonSet that has the given name and specification.
    async fn with_extended(name: &str, spec: Value) -> Self {
        let mut cluster = Self::with_nodes(1).await;
        let extended = json!({
            "apiVersion": "datadoghq.com/v1alpha1",
            "kind": "ExtendedDaemonSet",
            "metadata": { "name": name, "namespace": "default", "uid": "e" },
            "spec": spec,
        });
        let access = &mut cluster.world.context.access;
        let inner = access.client.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inner, extended) = (inner.clone(), extended.clone());
            async move {
                let is_it = request.uri().path().contains("/extendeddaemonsets/");
                let answered = if is_it {
                    Response::new(Body::from(extended.to_string().into_bytes()))
                } else {
                    inner.send(request).await.unwrap()
                };
                Ok::<_, Infallible>(answered)
            }
        });
        access.client = Client::new(service, "default");
        cluster
    }

    /// Returns the printed manifest, after the API server has accepted it in a dry run.
    async fn printed(&self, line: &str) -> Value {
        let output = self.world.text(line).await;
        assert!(!output.contains("has not checked"), "{output}");
        let manifest: Value = serde_saphyr::from_str(&output).unwrap();
        let kind = match manifest["apiVersion"].as_str().unwrap() {
            "apps/v1" => ApiResource::erase::<crate::k8s::DaemonSet>(&()),
            _ => ApiResource::erase::<AdvancedDaemonSet>(&()),
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.world.client.clone(), "default", &kind);
        let dry = kube::api::PostParams {
            dry_run: true,
            field_manager: None,
        };
        let object = serde_json::from_value(manifest.clone()).unwrap();
        api.create(&dry, &object).await.unwrap();
        manifest
    }
}

fn template(labels: Value) -> Value {
    let spec = json!({ "containers": [{ "name": "c", "image": "agent:7" }] });
    if labels.is_null() {
        json!({ "spec": spec })
    } else {
        json!({ "metadata": { "labels": labels }, "spec": spec })
    }
}

#[tokio::test(start_paused = true)]
async fn every_extended_daemonset_is_converted_with_a_selector_for_its_running_pods() {
    let named = json!({ "matchLabels": { LABEL: "foo" } });
    let app = json!({ "app": "agent" });
    let strategy = json!({ "rollingUpdate": { "maxUnavailable": 2 } });
    for (selector, labels) in [
        // Datadog's own example has neither a selector nor labels.
        (Value::Null, Value::Null),
        (json!({}), Value::Null),
        (json!({ "matchLabels": {} }), json!({})),
        (json!({ "matchLabels": null }), app.clone()),
        (Value::Null, app.clone()),
        (named, app.clone()),
        (json!({ "matchLabels": app }), app.clone()),
    ] {
        let mut spec = json!({ "strategy": strategy, "template": template(labels.clone()) });
        if !selector.is_null() {
            spec["selector"] = selector.clone();
        }
        let cluster = Migrating::with_extended("foo", spec).await;
        for kind in ["advanced", "native"] {
            let line = format!("migrate eds/foo --to {kind}");
            let manifest = cluster.printed(&line).await;
            // Running pods have the labels of the template, and the label that Datadog's controller adds.
            let mut pod = labels.as_object().cloned().unwrap_or_default();
            pod.insert(LABEL.to_owned(), json!("foo"));
            let selector = Selector::from_json(&manifest["spec"]["selector"]).unwrap();
            let is_selected = selector.matches(|key| pod.get(key)?.as_str());
            assert!(is_selected && !selector.is_empty(), "{manifest}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_the_api_server_rejects_is_not_printed() {
    let app = json!({ "app": "agent" });
    let long = "a".repeat(64);
    let mut no_image = template(app.clone());
    no_image["spec"]["containers"][0]["image"] = Value::Null;
    let other = json!({ "matchLabels": { "app": "other" } });
    for (name, spec, code) in [
        // The name becomes the value of a label, which has at most 63 characters.
        (
            &*long,
            json!({ "template": template(Value::Null) }),
            Code::Refused,
        ),
        ("foo", json!({ "template": no_image }), Code::Refused),
        (
            "foo",
            json!({ "selector": other, "template": template(app) }),
            Code::Invalid,
        ),
    ] {
        let cluster = Migrating::with_extended(name, spec).await;
        for kind in ["advanced", "native"] {
            let line = format!("migrate eds/{name} --to {kind}");
            let error = cluster.world.error(&line).await;
            assert_eq!(error.code, code, "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_already_in_use_is_refused() {
    let spec = json!({ "template": template(json!({ "app": "agent" })) });
    let cluster = Migrating::with_extended("web", spec).await;
    let error = cluster.world.error("migrate eds/web --to native").await;
    assert_eq!(error.code, Code::Refused, "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_unchecked_manifest_is_printed_with_a_note() {
    let spec = json!({ "template": template(json!({ "app": "agent" })) });
    let cluster = Migrating::with_extended("foo", spec).await;
    let _guard = cluster.world.cluster.faults().add(|request| {
        match (request.verb.as_str(), request.resource.as_str()) {
            ("create", "daemonsets") => Fault::Status(403, None),
            _ => Fault::Pass,
        }
    });
    let output = cluster.world.text("migrate eds/foo --to native").await;
    assert!(
        output.contains("The API server has not checked this manifest"),
        "{output}"
    );
}
