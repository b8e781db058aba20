//! Memory of a controller in a cluster with many pods of other controllers.

use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

use super::kind::Kind;
use super::nodes::{make_nodes, name};
use super::plane::Plane;
use super::process::Process;
use super::sets::Sets;

const NODES: usize = 10_000;
const PODS: usize = 100_000;
const CONTROLLER: [&str; 3] = ["controller", "--listen=127.0.0.1:0", "--leader-elect=false"];

/// Creates nodes and pods. Prints the controller's peak memory after its start and after a minute of a rollout.
pub(crate) async fn memory(plane: &Plane, client: &Client) -> Result<()> {
    make_nodes(client, NODES).await?;
    make_foreign_pods(client).await?;
    let sets = Sets::create(client, Kind::Native, 1).await?;
    sets.wait_for_pods(NODES).await?;
    sets.take_over().await?;
    let controller = Process::start(&CONTROLLER, &plane.kubeconfig())?;
    sets.wait_for_reports().await?;
    println!(
        "{NODES} nodes, {PODS} pods of other owners: peak {:.1} MiB after the start",
        controller.memory("VmHWM")?
    );
    sets.set_image("v2").await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    println!(
        "after a minute of a rollout: peak {:.1} MiB, CPU {:.1} s",
        controller.memory("VmHWM")?,
        controller.cpu()?
    );
    Ok(())
}

async fn make_foreign_pods(client: &Client) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    println!("making {PODS} pods of other owners");
    let results = stream::iter(0..PODS).map(|number| {
        let pods = pods.clone();
        async move {
            pods.create(&PostParams::default(), &foreign_pod(number))
                .await
                .map(drop)
        }
    });
    results.buffer_unordered(64).try_collect::<()>().await?;
    Ok(())
}

fn foreign_pod(number: usize) -> Pod {
    let node = name(number % NODES);
    serde_json::from_value(
        json!({"metadata": {"name": format!("other-{number:06}"), "labels": {"app": "other"},
        "annotations": {"offline": "true"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "other:v1"}]}}),
    )
    .expect("a pod")
}
