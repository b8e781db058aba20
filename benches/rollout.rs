//! What a rollout costs on a real Kubernetes: `cargo bench --bench rollout`.
//!
//! Starts `../shared/control-plane` (or the folder in `CONTROL_PLANE`) with fake kubelets, puts one DaemonSet on many
//! nodes, and rolls out a new image at 10 %: first by the native controller, then by `yurt-ds controller`: by deletion, the same
//! with every setting that judges and writes nothing itself, in place, with a surge of 10 %, and by deletion with a fifth of the
//! nodes offline. Prints a table: wall time, requests of the controller by the API server's own audit log, writes per replaced
//! pod, CPU time and peak memory of its process. `-- --nodes 200` for a quick look; `-- --memory` measures the memory with 10,000
//! nodes and 100,000 pods of other owners instead (takes a quarter of an hour).
//!
//! A benchmark, not a test: machines are noisy, so quote the ratio to the native controller of the same run.

#[path = "support/plane.rs"]
mod plane;
#[path = "support/process.rs"]
mod process;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use yurt_ds::core::names::ANNOTATION_PREFIX;

use self::plane::{Plane, Requests, now, wait};
use self::process::Process;

const NAME: &str = "agent";
const CONTROLLER: [&str; 3] = ["controller", "--listen=127.0.0.1:0", "--leader-elect=false"];

/// Settings that judge, and hold nobody back here: they must not cost a request. Those that write (`lifecycle`, pulls ahead)
/// have costs of their own, and those that pace (`min-interval`, `ramp-up`) would only make it last.
const JUDGES: [(&str, &str); 11] = [
    ("partition", "0"),
    ("selector", "kubernetes.io/os=linux"),
    ("ready-settle", "1s"),
    ("maintenance-window", "Mon-Sun 00:00-24:00 UTC"),
    (
        "waves",
        r#"[{"name": "all", "selector": "kubernetes.io/os=linux"}]"#,
    ),
    ("topology-key", "kubernetes.io/os"),
    ("max-domains", "1"),
    ("failure-window", "5m"),
    ("failure-threshold", "20%"),
    ("on-failure", "Stop"),
    ("replace-broken-first", "unlimited"),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::read()?;
    let Some(plane) = Plane::up(&[("KWOK", "1")])? else {
        return Ok(());
    };
    let client = plane.client().await?;
    if options.memory {
        return memory(&plane, &client).await;
    }
    rollouts(&plane, &client, options.nodes).await
}

struct Options {
    nodes: usize,
    memory: bool,
}

impl Options {
    fn read() -> Result<Self> {
        let mut options = Self {
            nodes: 1_000,
            memory: false,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--nodes" => {
                    let value = arguments.next().context("--nodes needs a number")?;
                    options.nodes = value.parse().with_context(|| format!("--nodes {value}"))?;
                }
                "--memory" => options.memory = true,
                "--bench" => {}
                other => bail!("{other}: expected --nodes N or --memory"),
            }
        }
        Ok(options)
    }
}

async fn rollouts(plane: &Plane, client: &Client, nodes: usize) -> Result<()> {
    let sets: Api<DaemonSet> = Api::default_namespaced(client.clone());
    make_nodes(client, nodes).await?;
    sets.create(&PostParams::default(), &daemonset("v1"))
        .await?;
    wait("the first pods", || async {
        Ok(available(&sets).await? == nodes)
    })
    .await?;

    patch(&sets, json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}}}})).await?;
    let native = native(&sets, nodes).await?;
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>9}",
        "case", "wall s", "requests", "CPU s", "peak MiB"
    );
    println!(
        "{:<34} {native:>9.1} {:>9} {:>9} {:>9}",
        format!("native, {nodes} nodes, 10 %"),
        "-",
        "-",
        "-"
    );

    patch(&sets, json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}, "metadata": {"annotations":
        {"apps.openyurt.io/update-strategy": "AdvancedRollingUpdate", "apps.openyurt.io/max-unavailable": "10%"}}})).await?;
    let controller = Process::start(&CONTROLLER, &plane.kubeconfig())?;
    wait("the first report", || async {
        complete(&sets, "True").await
    })
    .await?;
    let ours = ours(plane, &controller, &sets, "v3").await?;
    ours.print(&format!("yurt-ds, {nodes} nodes, 10 %"));
    println!(
        "{:<34} {:>9.3}",
        "  wall, to the native controller",
        ours.wall / native
    );
    println!(
        "{:<34} {:>9.3}",
        "  requests per replaced pod",
        ours.requests.all as f64 / ours.requests.deletions as f64
    );

    ours.print_writes(nodes);

    let before = plane.requests("controller", "")?.all;
    tokio::time::sleep(Duration::from_secs(60)).await;
    println!(
        "{:<34} {:>9}",
        "  requests in a minute at rest",
        plane.requests("controller", "")?.all - before
    );

    let set = JUDGES.map(|(name, value)| (name, Some(value)));
    annotate(&sets, &set).await?;
    let judged = self::ours(plane, &controller, &sets, "v7").await?;
    judged.print("yurt-ds, every judging setting");
    println!(
        "{:<34} {:>9.3}",
        "  requests, to those without", // as many pods are replaced
        judged.requests.all as f64 / ours.requests.all as f64
    );
    annotate(&sets, &JUDGES.map(|(name, _)| (name, None))).await?;

    // The images are not pulled ahead: that is a cost of its own, and here nobody could pull.
    annotate(
        &sets,
        &[
            ("rolling-update-type", Some("InPlaceIfPossible")),
            ("image-predownload-parallelism", Some("0")),
            ("predownload", Some("best-effort")),
        ],
    )
    .await?;
    let in_place = self::ours(plane, &controller, &sets, "v4").await?;
    in_place.print("yurt-ds, in place, 10 %");
    in_place.print_writes(nodes);

    annotate(
        &sets,
        &[
            ("rolling-update-type", None),
            ("image-predownload-parallelism", None),
            ("predownload", None),
            ("max-unavailable", None),
            ("max-surge", Some("10%")),
        ],
    )
    .await?;
    let surge = self::ours(plane, &controller, &sets, "v5").await?;
    surge.print("yurt-ds, surge 10 %");
    surge.print_writes(nodes);

    annotate(
        &sets,
        &[("max-surge", None), ("max-unavailable", Some("10%"))],
    )
    .await?;
    take_offline(client, nodes / 5).await?;
    let offline = self::ours(plane, &controller, &sets, "v6").await?;
    offline.print("yurt-ds, a fifth offline, 10 %");
    println!("{:<34} {:>9}", "  replaced", offline.requests.deletions);
    Ok(())
}

struct Figures {
    wall: f64,
    cpu: f64,
    peak: f64,
    requests: Requests,
}

impl Figures {
    fn print(&self, case: &str) {
        println!(
            "{case:<34} {:>9.1} {:>9} {:>9.2} {:>9.1}",
            self.wall, self.requests.all, self.cpu, self.peak
        );
    }

    /// The last writes of a rollout may follow its end by a moment: they are in the next case's count, if anywhere.
    fn print_writes(&self, replaced: usize) {
        let per_pod = |writes: usize| writes as f64 / replaced as f64;
        println!(
            "{:<34} {:>9.3} {:>9.3}",
            "  writes per replaced pod, creations",
            per_pod(self.requests.to_pods),
            per_pod(self.requests.creations)
        );
    }
}

/// Sets annotations of ours, or takes them away.
async fn annotate(sets: &Api<DaemonSet>, settings: &[(&str, Option<&str>)]) -> Result<()> {
    let setting =
        |(name, value): &(&str, Option<&str>)| (format!("{ANNOTATION_PREFIX}{name}"), json!(value));
    let annotations: serde_json::Map<_, _> = settings.iter().map(setting).collect();
    patch(sets, json!({"metadata": {"annotations": annotations}})).await
}

async fn native(sets: &Api<DaemonSet>, nodes: usize) -> Result<f64> {
    let start = now();
    set_image(sets, "v2").await?;
    wait("the native rollout", || async {
        let set = sets.get(NAME).await?;
        let status = set.status.unwrap_or_default();
        let seen = status.observed_generation == set.metadata.generation;
        let updated = status.updated_number_scheduled.unwrap_or(0) as usize;
        let available = status.number_available.unwrap_or(0) as usize;
        Ok(seen && updated == nodes && available == nodes)
    })
    .await?;
    Ok(start.elapsed().as_secs_f64())
}

async fn ours(
    plane: &Plane,
    controller: &Process,
    sets: &Api<DaemonSet>,
    version: &str,
) -> Result<Figures> {
    let (requests, cpu, start) = (plane.requests("controller", "")?, controller.cpu()?, now());
    set_image(sets, version).await?;
    wait("the rollout to begin", || async {
        complete(sets, "False").await
    })
    .await?;
    wait("the rollout", || async { complete(sets, "True").await }).await?;
    let wall = start.elapsed().as_secs_f64();
    Ok(Figures {
        wall,
        cpu: controller.cpu()? - cpu,
        peak: controller.memory("VmHWM")?,
        requests: plane.requests("controller", "")? - requests,
    })
}

async fn memory(plane: &Plane, client: &Client) -> Result<()> {
    const NODES: usize = 10_000;
    const PODS: usize = 100_000;
    make_nodes(client, NODES).await?;
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
    let sets: Api<DaemonSet> = Api::default_namespaced(client.clone());
    sets.create(&PostParams::default(), &daemonset("v1"))
        .await?;
    wait("the first pods", || async {
        Ok(available(&sets).await? == NODES)
    })
    .await?;
    patch(&sets, json!({"metadata": {"annotations": {"apps.openyurt.io/update-strategy": "AdvancedRollingUpdate"}}})).await?;
    let controller = Process::start(&CONTROLLER, &plane.kubeconfig())?;
    wait("the first report", || async {
        complete(&sets, "True").await
    })
    .await?;
    println!(
        "{NODES} nodes, {PODS} pods of other owners: peak {:.1} MiB after the start",
        controller.memory("VmHWM")?
    );
    set_image(&sets, "v2").await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    println!(
        "after a minute of a rollout: peak {:.1} MiB, CPU {:.1} s",
        controller.memory("VmHWM")?,
        controller.cpu()?
    );
    Ok(())
}

async fn make_nodes(client: &Client, nodes: usize) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let results = stream::iter(0..nodes).map(|number| {
        let api = api.clone();
        async move {
            api.create(&PostParams::default(), &node(number))
                .await
                .map(drop)
        }
    });
    results.buffer_unordered(32).try_collect::<()>().await?;
    wait("the nodes", || async {
        let ready = api
            .list(&ListParams::default())
            .await?
            .items
            .iter()
            .filter(|node| is_ready(node))
            .count();
        Ok(ready == nodes)
    })
    .await
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// As a cut connection looks like: the fake kubelet leaves node and pods alone, and the node is not Ready.
async fn take_offline(client: &Client, count: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let annotation = Patch::Merge(json!({"metadata": {"annotations": {"offline": "true"}}}));
    for pod in pods.list(&ListParams::default()).await? {
        let on = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        let number: usize = on.trim_start_matches("node-").parse().unwrap_or(usize::MAX);
        if number < count {
            let name = pod.metadata.name.unwrap_or_default();
            pods.patch(&name, &PatchParams::default(), &annotation)
                .await?;
        }
    }
    for number in 0..count {
        let name = format!("node-{number:05}");
        nodes
            .patch(&name, &PatchParams::default(), &annotation)
            .await?;
        let time = k8s_openapi::jiff::Timestamp::now().to_string();
        let condition = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": time});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        nodes
            .patch_status(&name, &PatchParams::default(), &patch)
            .await?;
    }
    Ok(())
}

fn node(number: usize) -> Node {
    let name = format!("node-{number:05}");
    serde_json::from_value(json!({"metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"},
        "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}}}))
    .expect("a node")
}

fn foreign_pod(number: usize) -> Pod {
    let node = format!("node-{:05}", number % 10_000);
    serde_json::from_value(
        json!({"metadata": {"name": format!("other-{number:06}"), "labels": {"app": "other"},
        "annotations": {"offline": "true"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "other:v1"}]}}),
    )
    .expect("a pod")
}

fn daemonset(version: &str) -> DaemonSet {
    serde_json::from_value(json!({"metadata": {"name": NAME}, "spec": {
        "selector": {"matchLabels": {"app": NAME}}, "updateStrategy": {"type": "OnDelete"},
        "template": {"metadata": {"labels": {"app": NAME}},
            "spec": {"containers": [{"name": "main", "image": format!("agent:{version}")}]}}}}))
    .expect("a DaemonSet")
}

async fn set_image(sets: &Api<DaemonSet>, version: &str) -> Result<()> {
    let image = format!("agent:{version}");
    patch(
        sets,
        json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}),
    )
    .await
}

async fn patch(sets: &Api<DaemonSet>, patch: Value) -> Result<()> {
    sets.patch(NAME, &PatchParams::default(), &Patch::Strategic(patch))
        .await?;
    Ok(())
}

async fn available(sets: &Api<DaemonSet>) -> Result<usize> {
    let status = sets.get(NAME).await?.status.unwrap_or_default();
    Ok(usize::try_from(status.number_available.unwrap_or(0))?)
}

async fn complete(sets: &Api<DaemonSet>, wanted: &str) -> Result<bool> {
    let status = sets.get(NAME).await?.status.unwrap_or_default();
    let mut conditions = status.conditions.into_iter().flatten();
    Ok(conditions
        .any(|condition| condition.type_ == "RolloutComplete" && condition.status == wanted))
}
