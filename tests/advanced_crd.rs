//! Tests of the Advanced DaemonSet CRD on a real API server: the schema accepts and rejects objects, and conversion between the two
//! versions loses nothing. The embedded cluster doesn't evaluate the schema of the CRD.
//!
//! Like the scenarios, these tests need `YURT_DS_SUITE_KUBECONFIG`. `advanced-crd.sh` tests the CRD with `kubectl`.

mod cases;
mod server;
mod versions;

use serde_json::{Value, json};

use self::server::Server;
use crate::support::real;

/// Both versions of the Advanced DaemonSet API.
const VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];

/// Returns a valid Advanced DaemonSet after a merge patch. As in any merge patch, null removes a field.
fn web(change: &Value) -> Value {
    let mut set = json!({
        "kind": "DaemonSet",
        "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "main", "image": "web:1" }] },
            },
        },
    });
    json_patch::merge(&mut set, change);
    set
}

#[test]
fn the_api_server_holds_to_the_definition_of_the_advanced_daemonset() {
    let Some(kubeconfig) = real::kubeconfig() else {
        eprintln!(
            "SKIPPED: the Advanced DaemonSet on a real API server; {} names no kubeconfig",
            real::KUBECONFIG
        );
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let failures = runtime.expect("a runtime").block_on(async {
        let client = real::client(&kubeconfig, "yurt-ds-suite").await;
        let server = Server::prepare(client.expect("a client")).await;
        let mut failures = cases::play(&server).await;
        failures.extend(versions::play(&server).await);
        server.tidy_up().await;
        failures
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
