//! Rollouts of one DaemonSet: by the native controller, by yurt-ds with different settings, and of an Advanced DaemonSet.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use kube::Client;
use serde_json::json;

use super::compare::Medians;
use super::controller::Controller;
use super::kind::Kind;
use super::nodes::{bring_back, take_offline};
use super::plane::{Plane, now};
use super::replacing::Rollout;
use super::sets::Sets;

/// Settings that the controller evaluates but that block no node in this benchmark. They must not cause any request.
///
/// The list omits settings that cause writes (`lifecycle`, pre-pulls) or slow a rollout down (`min-interval`, `ramp-up`).
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

/// Measures all rollouts of this kind of DaemonSet and prints a line for each.
pub(crate) async fn cases(
    binary: &Path,
    plane: &Plane,
    client: &Client,
    sets: &Sets,
    nodes: usize,
) -> Result<()> {
    let away = nodes / 5;
    let native = native(sets, nodes).await?;
    sets.take_over().await?;
    let stage = Stage::start(binary, plane, sets, nodes).await?;
    let plain = stage.plain(native).await?;
    stage.at_rest(plane).await?;
    stage.judged(&plain).await?;
    stage.in_place().await?;
    stage.surge().await?;
    take_offline(client, away).await?;
    stage.offline().await?;
    drop(stage);
    bring_back(client, away).await?;
    let sets = Sets::create(client, Kind::Advanced, 1).await?;
    advanced_pods(binary, plane, &sets, nodes).await?;
    sets.take_over().await?;
    let stage = Stage::start(binary, plane, &sets, nodes).await?;
    stage.plain(native).await?;
    stage.at_rest(plane).await?;
    take_offline(client, away).await?;
    stage.offline().await
}

/// Measures a rollout by the native controller. Returns its duration in seconds.
async fn native(sets: &Sets, nodes: usize) -> Result<f64> {
    let budget = json!({"maxUnavailable": "10%", "maxSurge": 0});
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": budget});
    sets.patch(&json!({"spec": {"updateStrategy": strategy}}))
        .await?;
    let start = now();
    sets.roll_out_natively("v2", nodes).await?;
    let wall = start.elapsed().as_secs_f64();
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>9}",
        "case", "wall s", "requests", "CPU s", "peak MiB"
    );
    println!(
        "{:<34} {wall:>9.1} {:>9} {:>9} {:>9}",
        format!("native, {nodes} nodes, 10 %"),
        "-",
        "-",
        "-"
    );
    Ok(wall)
}

/// Measures how an Advanced DaemonSet gets its first pods.
async fn advanced_pods(binary: &Path, plane: &Plane, sets: &Sets, nodes: usize) -> Result<()> {
    let controller = Controller::start(binary, plane, sets.kind).await?;
    let made = Rollout::until(&controller, sets.wait_for_pods(nodes)).await?;
    made.print(&format!("advanced, {nodes} first pods"));
    Ok(())
}

/// Controller that performs all measured rollouts of one kind of DaemonSet.
struct Stage<'a> {
    controller: Controller<'a>,
    sets: &'a Sets,
    nodes: usize,
}

impl<'a> Stage<'a> {
    async fn start(binary: &Path, plane: &'a Plane, sets: &'a Sets, nodes: usize) -> Result<Self> {
        let controller = Controller::start(binary, plane, sets.kind).await?;
        sets.wait_for_reports().await?;
        Ok(Self {
            controller,
            sets,
            nodes,
        })
    }

    async fn plain(&self, native: f64) -> Result<Rollout> {
        let ours = self.roll_out("v3").await?;
        ours.print(&format!(
            "{}, {} nodes, 10 %",
            self.sets.kind.title(),
            self.nodes
        ));
        println!(
            "{:<34} {:>9.3}",
            "  wall, to the native controller",
            ours.wall / native
        );
        ours.print_writes(self.nodes);
        let figures = ours.figures(&self.controller).await?;
        Medians::of_one(figures).print("  the same in figures");
        Ok(ours)
    }

    async fn at_rest(&self, plane: &Plane) -> Result<()> {
        let before = plane.requests("controller", "")?.all;
        tokio::time::sleep(Duration::from_secs(60)).await;
        println!(
            "{:<34} {:>9}",
            "  requests in a minute at rest",
            plane.requests("controller", "")?.all - before
        );
        Ok(())
    }

    async fn judged(&self, plain: &Rollout) -> Result<()> {
        let set = JUDGES.map(|(name, value)| (name, Some(value)));
        self.sets.annotate(&set).await?;
        let judged = self.roll_out("v7").await?;
        judged.print("yurt-ds, every judging setting");
        println!(
            "{:<34} {:>9.3}",
            "  requests, to those without", // both rollouts replace the same number of pods
            judged.usage.requests.all as f64 / plain.usage.requests.all as f64
        );
        self.sets
            .annotate(&JUDGES.map(|(name, _)| (name, None)))
            .await
    }

    /// Measures an in-place rollout without image pre-pulls: pulls have their own cost, and the fake kubelets can't pull.
    async fn in_place(&self) -> Result<()> {
        let settings = [
            ("rolling-update-type", Some("InPlaceIfPossible")),
            ("image-predownload-parallelism", Some("0")),
            ("predownload", Some("best-effort")),
        ];
        self.sets.annotate(&settings).await?;
        let in_place = self.roll_out("v4").await?;
        in_place.print("yurt-ds, in place, 10 %");
        in_place.print_writes(self.nodes);
        self.sets
            .annotate(&settings.map(|(name, _)| (name, None)))
            .await
    }

    async fn surge(&self) -> Result<()> {
        let surge = [("max-unavailable", None), ("max-surge", Some("10%"))];
        self.sets.annotate(&surge).await?;
        let surge = self.roll_out("v5").await?;
        surge.print("yurt-ds, surge 10 %");
        surge.print_writes(self.nodes);
        let back = [("max-surge", None), ("max-unavailable", Some("10%"))];
        self.sets.annotate(&back).await
    }

    async fn offline(&self) -> Result<()> {
        let offline = self.roll_out("v6").await?;
        offline.print(&format!(
            "{}, a fifth offline, 10 %",
            self.sets.kind.title()
        ));
        println!(
            "{:<34} {:>9}",
            "  replaced", offline.usage.requests.deletions
        );
        Ok(())
    }

    async fn roll_out(&self, version: &str) -> Result<Rollout> {
        Rollout::new(&self.controller, self.sets, version, self.nodes).await
    }
}

impl Rollout {
    fn print(&self, case: &str) {
        println!(
            "{case:<34} {:>9.1} {:>9} {:>9.2} {:>9.1}",
            self.wall, self.usage.requests.all, self.usage.cpu, self.peak
        );
    }

    /// Prints the writes per pod. Writes shortly after the end of a rollout count for the next measurement, or not at all.
    fn print_writes(&self, replaced: usize) {
        let per_pod = |writes: usize| writes as f64 / replaced as f64;
        println!(
            "{:<34} {:>9.3} {:>9.3}",
            "  writes per replaced pod, creations",
            per_pod(self.usage.requests.to_pods),
            per_pod(self.usage.requests.creations)
        );
    }
}
