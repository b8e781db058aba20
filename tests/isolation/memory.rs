//! Large objects that the controller doesn't manage. At its start, the controller must not need noticeably more memory because of
//! them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use yurt_ds::core::names::{PRE_PULL_DAEMONSET, PRE_PULL_POD, PRE_PULL_REVISION};

use super::PROMPT;
use super::plane::{Plane, until};
use super::stage::{Setup, Stage};
use crate::support::objects::{DAEMON, Daemon};

/// Allowed increase of the peak memory between two starts, in KiB.
const GROWTH: u64 = 8 * 1024;

/// Number of objects that are created in parallel.
const AT_ONCE: usize = 8;

/// Time to wait after the first rollout, because the controller may still receive lists.
const SETTLED: Duration = Duration::from_secs(2);

/// Returns a text of this many kilobytes.
fn text(kilobytes: usize) -> String {
    "x".repeat(kilobytes * 1000)
}

/// Returns environment variables of this many kilobytes for a container.
fn large_environment(kilobytes: usize) -> Value {
    json!([{ "name": "TEXT", "value": text(kilobytes) }])
}

/// Compares the controller's peak memory at its start before and after this many objects are created. `make` returns the path and
/// manifest of the objects. `extra` is an additional allowance in KiB.
async fn weigh(
    plane: &Plane,
    name: &'static str,
    (objects, extra): (usize, u64),
    make: impl AsyncFnOnce(&Stage<'_>) -> anyhow::Result<(String, Value)>,
) -> anyhow::Result<()> {
    Stage::play(plane, Setup::named(name), async |stage| {
        let before = peak_of_start(stage).await?;
        let (path, object) = make(stage).await?;
        let made = (0..objects).map(|number| {
            let mut object = object.clone();
            object["metadata"]["name"] = json!(format!("{}-{number}", stage.tenant.name));
            let path = &path;
            async move { plane.create(path, &object).await }
        });
        let made = stream::iter(made).buffer_unordered(AT_ONCE);
        made.try_collect::<()>().await?;
        let after = peak_of_start(stage).await?;
        let limit = before + GROWTH + extra;
        println!("       {name}: peak {before} KiB without and {after} KiB with {objects} large objects");
        ensure!(
            after <= limit,
            "the start takes {after} KiB with {objects} large objects, and {before} KiB without (limit {limit})"
        );
        Ok(())
    })
    .await
}

/// Restarts the controller and lets it complete a rollout. Returns the peak memory in KiB.
async fn peak_of_start(stage: &mut Stage<'_>) -> anyhow::Result<u64> {
    let mut started = stage.restart().await;
    if started.is_ok() {
        started = stage.neighbour.roll().await;
    }
    tokio::time::sleep(SETTLED).await;
    let peak = stage.controller()?.peak()?;
    started.with_context(|| format!("the start took {peak} KiB until then"))?;
    Ok(peak)
}

pub(super) async fn large_daemonsets_that_are_not_managed(plane: &Plane) -> anyhow::Result<()> {
    weigh(plane, "large-sets", (60, 0), async |stage| {
        let mut set = Daemon::plain().manifest("nowhere");
        set["spec"]["template"]["spec"]["containers"][0]["env"] = large_environment(1200);
        Ok((stage.tenant.path("daemonsets"), set))
    })
    .await
}

pub(super) async fn large_nodes(plane: &Plane) -> anyhow::Result<()> {
    weigh(plane, "large-nodes", (200, 0), async |stage| {
        let node = json!({ "metadata": {
            "labels": stage.tenant.node_labels(false),
            "annotations": { "example.com/text": text(250) },
        } });
        Ok(("/api/v1/nodes".to_owned(), node))
    })
    .await
}

pub(super) async fn large_pods_that_are_not_managed(plane: &Plane) -> anyhow::Result<()> {
    weigh(plane, "large-pods", (60, 0), async |stage| {
        let pod = json!({
            "metadata": {
                "labels": { "app": "nginx" },
                "ownerReferences": [stage.other_owner().await?],
            },
            "spec": {
                "schedulerName": "none",
                "containers": [{ "name": "main", "image": "none", "env": large_environment(1200) }],
            },
        });
        Ok((stage.tenant.path("pods"), pod))
    })
    .await
}

pub(super) async fn large_revisions_of_no_daemonset(plane: &Plane) -> anyhow::Result<()> {
    weigh(plane, "large-revisions", (60, 0), async |stage| {
        let revision = json!({
            "metadata": {
                "labels": { "app": "nginx" },
                "ownerReferences": [stage.other_owner().await?],
            },
            "data": { "text": text(1000) },
            "revision": 7,
        });
        Ok((stage.tenant.path("controllerrevisions"), revision))
    })
    .await
}

/// The controller manages every Advanced DaemonSet, and creates pods and a revision from its template. So the allowed increase
/// includes two copies of each template.
pub(super) async fn large_advanced_daemonsets(plane: &Plane) -> anyhow::Result<()> {
    let (objects, kilobytes) = (20, 1000);
    let templates = 2 * 20 * 1000;
    weigh(
        plane,
        "large-advanced",
        (objects, templates),
        async |stage| {
            let mut set = Daemon::advanced().manifest("nowhere");
            set["spec"]["template"]["spec"]["containers"][0]["env"] = large_environment(kilobytes);
            let namespace = &stage.tenant.name;
            let path = format!("/apis/apps.kruise.io/v1beta1/namespaces/{namespace}/daemonsets");
            Ok((path, set))
        },
    )
    .await
}

/// The Jobs have the labels of a pre-pull, but the controller did not create them. Their pods never run.
pub(super) async fn large_jobs_of_no_pre_pull(plane: &Plane) -> anyhow::Result<()> {
    weigh(plane, "large-jobs", (60, 0), async |stage| {
        let job = json!({
            "metadata": { "labels": {
                PRE_PULL_POD: "4b13dcde-43ef-42a0-a13b-000000000000",
                PRE_PULL_REVISION: "1",
                PRE_PULL_DAEMONSET: "x",
            } },
            "spec": {
                "suspend": true,
                "template": { "spec": {
                    "restartPolicy": "Never",
                    "containers": [{ "name": "main", "image": "none", "env": large_environment(700) }],
                } },
            },
        });
        Ok((stage.tenant.path("jobs"), job))
    })
    .await
}

/// A quota rejects a pod. To report the reason, the controller reads the Events of the DaemonSet, which are large in this test.
pub(super) async fn large_events(plane: &Plane) -> anyhow::Result<()> {
    Stage::play(plane, Setup::named("large-events"), async |stage| {
        let before = peak_of_start(stage).await?;
        let daemon = plane.read(&stage.tenant.daemon()).await?;
        let made = (0..60).map(|number| {
            let event = json!({
                "metadata": { "name": format!("large-{number}") },
                "involvedObject": {
                    "apiVersion": "apps/v1", "kind": "DaemonSet", "name": DAEMON,
                    "namespace": stage.tenant.name, "uid": daemon["metadata"]["uid"],
                },
                "type": "Warning", "reason": "FailedCreate", "message": text(1200),
            });
            let path = stage.tenant.path("events");
            async move { plane.create(&path, &event).await }
        });
        let made = stream::iter(made).buffer_unordered(AT_ONCE);
        made.try_collect::<()>().await?;
        let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } } });
        plane
            .create(&stage.tenant.path("resourcequotas"), &quota)
            .await?;
        stage.tenant.change_image().await?;
        until("the condition names the quota", PROMPT, async || {
            let conditions = Value::from(stage.tenant.conditions().await?).to_string();
            Ok((!conditions.contains("quota")).then_some(conditions))
        })
        .await?;
        stage.neighbour.roll().await?;
        let after = stage.controller()?.peak()?;
        println!("       large-events: peak {before} KiB without and {after} KiB with them");
        ensure!(
            after <= before + GROWTH,
            "it takes {after} KiB to read large Events, and {before} KiB without them"
        );
        Ok(())
    })
    .await
}
