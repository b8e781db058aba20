//! Objects that a client library can't decode. The permissions of a single tenant or kubelet suffice to create them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use yurt_ds::core::names::LEASE;

use super::fleet::running;
use super::plane::Plane;
use super::stage::{MOMENTS, Setup, Stage};
use crate::support::objects::{DAEMON, Daemon};

/// Time that the API server accepts but many client libraries can't represent.
const FAR: &str = "9999-12-31T23:59:59Z";

/// Number of status writes in a flood.
const FLOOD: usize = 12;

/// Returns JSON that is nested too deeply for many client libraries.
fn deep() -> Value {
    (0..200).fold(json!(1), |inner, _| json!({ "deeper": inner }))
}

/// [`FAR`] with microseconds, the format in Leases.
const FAR_MICRO: &str = "9999-12-31T23:59:59.000000Z";

/// Creates a ControllerRevision with deeply nested data and the labels of the tenant's pods.
async fn deep_revision(stage: &Stage<'_>, owner: Value) -> anyhow::Result<()> {
    let revision = json!({
        "metadata": { "name": "deep", "labels": { "app": "nginx" }, "ownerReferences": [owner] },
        "data": deep(),
        "revision": 7,
    });
    let path = stage.tenant.path("controllerrevisions");
    stage.plane.create(&path, &revision).await
}

pub(super) async fn a_revision_nested_200_deep_that_belongs_to_no_daemonset(
    plane: &Plane,
) -> anyhow::Result<()> {
    Stage::play(plane, Setup::named("lone-revision"), async |stage| {
        let owner = stage.other_owner().await?;
        deep_revision(stage, owner).await?;
        stage.neighbour_goes_on().await?;
        stage.tenant.change_image().await?;
        stage.tenant.until_complete_or_unreadable().await
    })
    .await
}

pub(super) async fn a_revision_nested_200_deep_of_the_tenants_daemonset(
    plane: &Plane,
) -> anyhow::Result<()> {
    Stage::play(plane, Setup::named("own-revision"), async |stage| {
        let daemon = plane.read(&stage.tenant.daemon()).await?;
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": DAEMON,
            "uid": daemon["metadata"]["uid"], "controller": true,
        });
        deep_revision(stage, owner).await?;
        stage.neighbour_goes_on().await?;
        stage.tenant.change_image().await?;
        stage.tenant.until_complete_or_unreadable().await
    })
    .await
}

pub(super) async fn an_advanced_daemonset_nested_200_deep(plane: &Plane) -> anyhow::Result<()> {
    Stage::play(plane, Setup::named("deep-advanced"), async |stage| {
        let mut set = Daemon::advanced().renamed("deep").manifest("nowhere");
        set["spec"]["template"]["spec"]["unknownField"] = deep();
        let path = format!(
            "/apis/apps.kruise.io/v1beta1/namespaces/{}/daemonsets",
            stage.tenant.name
        );
        plane.create(&path, &set).await?;
        stage.neighbour_goes_on().await?;
        stage.tenant.roll().await.context("of the same namespace")
    })
    .await
}

pub(super) async fn a_time_in_the_status_of_a_daemonset(plane: &Plane) -> anyhow::Result<()> {
    Stage::play(plane, Setup::named("far-set"), async |stage| {
        let condition =
            json!({ "type": "example.com/Audit", "status": "True", "lastTransitionTime": FAR });
        let status = json!({ "status": { "conditions": [condition] } });
        let path = format!("{}/status", stage.tenant.daemon());
        plane.patch(&path, &status).await?;
        stage.neighbour_goes_on().await?;
        stage.tenant.change_image().await?;
        stage.tenant.until_complete_or_unreadable().await
    })
    .await
}

/// Returns a Ready condition for a node, with times that client libraries can't decode. `number` makes each condition different.
fn far_node(number: usize) -> Value {
    json!({ "conditions": [{
        "type": "Ready", "status": "True", "reason": "Test", "message": number.to_string(),
        "lastHeartbeatTime": FAR, "lastTransitionTime": FAR,
    }] })
}

pub(super) async fn a_time_in_a_condition_of_a_node(plane: &Plane) -> anyhow::Result<()> {
    Stage::play(plane, Setup::named("far-node"), async |stage| {
        stage.tenant.set_node(1, far_node(0)).await?;
        for (moment, restarts) in MOMENTS {
            if restarts {
                stage.restart().await?;
            }
            stage.neighbour.roll().await.context(moment)?;
            stage.tenant.change_image().await?;
            stage.tenant.until_updated(2).await.context(moment)?;
            let seen = stage.tenant.until_updated_or_named(1).await;
            seen.context(moment)?;
        }
        Ok(())
    })
    .await
}

/// Writes a status with times that client libraries can't decode to the tenant's first pod. `number` makes each status different.
async fn far_pod(stage: &Stage<'_>, number: usize) -> anyhow::Result<()> {
    let pod = stage.tenant.pod_on(1).await?;
    let mut status = running(&pod, &json!(FAR));
    status["message"] = json!(number.to_string());
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("{}/{name}/status", stage.tenant.path("pods"));
    stage.plane.patch(&path, &json!({ "status": status })).await
}

pub(super) async fn a_time_in_the_status_of_a_pod(plane: &Plane) -> anyhow::Result<()> {
    Stage::play(plane, Setup::named("far-pod"), async |stage| {
        for (moment, restarts) in MOMENTS {
            far_pod(stage, 0).await?;
            if restarts {
                stage.restart().await?;
            }
            stage.neighbour.roll().await.context(moment)?;
            stage.tenant.change_image().await?;
            stage.tenant.until_updated(2).await.context(moment)?;
            let seen = stage.tenant.until_updated_or_named(1).await;
            seen.context(moment)?;
        }
        Ok(())
    })
    .await
}

pub(super) async fn a_flood_of_such_times(plane: &Plane) -> anyhow::Result<()> {
    Stage::play(plane, Setup::named("flood"), async |stage| {
        for (moment, restarts) in MOMENTS {
            if restarts {
                stage.restart().await?;
            }
            let nodes = (0..FLOOD).map(|number| stage.tenant.set_node(1, far_node(number)));
            let pods = (0..FLOOD).map(|number| far_pod(stage, number));
            tokio::try_join!(try_join_all(nodes), try_join_all(pods))?;
            stage.outage_is_noticed().await.context(moment)?;
            stage.neighbour.roll().await.context(moment)?;
        }
        Ok(())
    })
    .await
}

/// A Lease in the tenant's namespace that has the same name as the controller's Lease.
pub(super) async fn a_time_in_a_lease(plane: &Plane) -> anyhow::Result<()> {
    Stage::play(plane, Setup::named("far-lease"), async |stage| {
        let lease = json!({
            "metadata": { "name": LEASE },
            "spec": { "holderIdentity": "tenant", "renewTime": FAR_MICRO },
        });
        plane.create(&stage.tenant.path("leases"), &lease).await?;
        stage.neighbour_goes_on().await?;
        // The controller has just become leader and has looked for Leases of other installations. It must ignore the tenant's
        // Lease.
        let log = stage.controller_mut()?.tail();
        ensure!(!log.contains("other installations"), "it complains:\n{log}");
        Ok(())
    })
    .await
}

/// Time limit for the rollout on the other nodes while one node flaps. The controller waits once, for 30 s, for the flapping node.
const BESIDE_FLAPPING: Duration = Duration::from_secs(75);

/// Time for which the flapping node is NotReady. A slightly longer outage would count as a failure of the revision.
const DOWN: Duration = Duration::from_secs(28);

/// Time for which the flapping node is Ready in between. In this time, at most one pod can be replaced.
const UP: Duration = Duration::from_millis(300);

pub(super) async fn a_node_that_flaps(plane: &Plane) -> anyhow::Result<()> {
    let setup = Setup {
        nodes: 5,
        daemon: Daemon::new()
            .max_unavailable("1")
            .annotate("ready-settle", "0s"),
        ..Setup::named("flapping-node")
    };
    Stage::play(plane, setup, async |stage| {
        stage.neighbour.change_image().await?;
        let neighbour = &stage.neighbour;
        neighbour.until_updated(1).await?;
        let flap = async {
            loop {
                neighbour.flap(1, false).await?;
                tokio::time::sleep(DOWN).await;
                neighbour.flap(1, true).await?;
                tokio::time::sleep(UP).await;
            }
        };
        let others = async {
            let begin = Instant::now();
            for number in 2..=5 {
                neighbour.until_updated(number).await?;
            }
            let took = begin.elapsed();
            ensure!(
                took <= BESIDE_FLAPPING,
                "the others are updated after {took:?}"
            );
            println!("       flapping-node: the others are updated after {took:?}");
            Ok(())
        };
        tokio::select! {
            ended = flap => ended,
            done = others => done,
        }
    })
    .await
}
