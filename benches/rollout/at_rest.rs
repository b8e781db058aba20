//! Measures the start of a controller, and a minute in which nothing changes.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use http::Request;

use super::compare::{Figure, figure};
use super::controller::{Controller, SETTLE};
use super::plane::{Plane, now, wait_within};
use super::process::cpu_of;
use super::sets::Sets;

const MINUTE: Duration = Duration::from_secs(60);

/// Measures a start of this binary and an idle minute. At the start, the DaemonSets have no conditions, so the controller writes
/// all conditions.
pub(crate) async fn at_rest(binary: &Path, plane: &Plane, sets: &Sets) -> Result<Vec<Figure>> {
    sets.forget_reports().await?;
    wait_for_quiet(plane).await?;
    let list = plain_list(plane).await?;
    let before = api_server_cpu(plane)?;
    let began = now();
    let controller = Controller::start(binary, plane, sets.kind).await?;
    let ready = began.elapsed().as_secs_f64();
    let (_, connections) = controller.watched(sets.wait_for_reports()).await?;
    let reported = began.elapsed().as_secs_f64();
    let served = api_server_cpu(plane)? - before;
    let start = controller.usage()?;
    tokio::time::sleep(SETTLE).await;
    let before = controller.usage()?;
    tokio::time::sleep(MINUTE).await;
    let minute = controller.used_since(before)?;
    Ok(vec![
        figure("start until ready, s", ready, 2),
        figure("start until all is reported, s", reported, 2),
        figure("CPU until then, s", start.cpu, 2),
        figure("CPU of the API server until then, s", served, 2),
        figure("and for one plain list of all pods, s", list, 2),
        figure("decisions until then", start.decisions.count, 0),
        figure("peak RSS, MiB", controller.peak()?, 1),
        figure(super::replacing::RESIDENT, controller.resident()?, 1),
        figure("connections, at most", connections as f64, 0),
        figure("connections at rest", controller.connections()? as f64, 0),
        figure("CPU in a minute at rest, s", minute.cpu, 2),
        figure(
            "API requests in a minute at rest",
            minute.requests.all as f64,
            0,
        ),
    ])
}

/// Measures the CPU time of the API server for one list of all pods, in seconds.
async fn plain_list(plane: &Plane) -> Result<f64> {
    let client = plane.client().await?;
    let before = api_server_cpu(plane)?;
    let request = Request::get("/api/v1/pods").body(Vec::new())?;
    client.request_text(request).await?;
    Ok(api_server_cpu(plane)? - before)
}

/// Waits until the API server is almost idle. It stays busy for some time after the objects of the measurement were created.
async fn wait_for_quiet(plane: &Plane) -> Result<()> {
    const LOOK: Duration = Duration::from_secs(5);
    wait_within(
        10 * MINUTE,
        Duration::ZERO,
        "a quiet API server",
        || async {
            let before = api_server_cpu(plane)?;
            tokio::time::sleep(LOOK).await;
            Ok(api_server_cpu(plane)? - before < LOOK.as_secs_f64() / 5.0)
        },
    )
    .await
}

fn api_server_cpu(plane: &Plane) -> Result<f64> {
    let number = plane.kubeconfig().with_file_name("kube-apiserver.pid");
    let number = std::fs::read_to_string(number)?;
    cpu_of(&Path::new("/proc").join(number.trim()))
}
