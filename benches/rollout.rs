//! Cost of a rollout on real Kubernetes: `cargo bench --bench rollout`.
//!
//! Starts `../shared/control-plane` (or the folder in `CONTROL_PLANE`) with fake kubelets, creates one DaemonSet on many nodes, and
//! rolls out new images, 10 % of the nodes at a time:
//!
//! - by the native controller;
//! - by `yurt-ds controller` with deletions: once with default settings, and once with every setting that causes no write;
//! - by `yurt-ds controller` in place, with a surge of 10 %, and with deletions while a fifth of the nodes is offline;
//! - an Advanced DaemonSet on the same nodes, by a controller that serves only this kind: its first pods, deletions, and deletions
//!   while a fifth of the nodes is offline.
//!
//! Prints a table with wall time, API requests, writes per replaced pod, and CPU time and peak memory of the controller. The API
//! server's audit log provides the numbers of requests. For rollouts by deletion, the table also contains the writes of the status,
//! the connections to the API server, and the decisions from the controller's metrics. Flags after `--`:
//!
//! ```text
//! --nodes N[,N...]   number of nodes (1000); 200 for a quick run; several sizes also print the growth of memory with nodes
//! --daemonsets D     D DaemonSets on all nodes (1), rolled out at once by yurt-ds
//! --advanced         Advanced DaemonSets instead of native ones
//! --against PATH     another binary of yurt-ds, measured in turns with this build on the same cluster: medians and their ratio
//! --runs R           number of measurements per binary (5 with --against, else 1)
//! --at-rest          no rollout: a start with these DaemonSets and nodes, and an idle minute
//! --churn            half of the nodes leave and as many join during a rollout; fails if the rollout breaks a promise
//! --revisions        no rollout: memory of a start without and with 100 ControllerRevisions of 1 MB of another owner
//! --memory           no other flag: memory with 10,000 nodes and 100,000 pods of other owners (takes a quarter of an hour)
//! ```
//!
//! The native controller and the rollout with settings are measured only without flags, or with a single size in `--nodes`. The
//! environment variable `YURT_DS` names another yurt-ds binary to measure instead of this build's.
//!
//! This is a benchmark, not a test. Timings vary between machines and runs, so quote the ratio to the native controller, or to
//! the other binary, within one run.

#[path = "rollout/at_rest.rs"]
mod at_rest;
#[path = "rollout/cases.rs"]
mod cases;
#[path = "rollout/churn.rs"]
mod churn;
#[path = "rollout/compare.rs"]
mod compare;
#[path = "support/connections.rs"]
mod connections;
#[path = "rollout/controller.rs"]
mod controller;
#[path = "support/history.rs"]
mod history;
#[path = "rollout/kind.rs"]
mod kind;
#[path = "rollout/memory.rs"]
mod memory;
#[path = "rollout/nodes.rs"]
mod nodes;
#[path = "rollout/options.rs"]
mod options;
#[path = "support/page.rs"]
mod page;
#[path = "support/plane.rs"]
mod plane;
#[path = "support/process.rs"]
mod process;
#[path = "rollout/replacing.rs"]
mod replacing;
#[path = "rollout/revisions.rs"]
mod revisions;
#[path = "rollout/sets.rs"]
mod sets;

use anyhow::Result;
use kube::Client;

use self::compare::{Medians, in_turns};
use self::controller::Controller;
use self::kind::Kind;
use self::options::{Measurement, Options};
use self::plane::Plane;
use self::replacing::{RESIDENT, Rollout};
use self::sets::Sets;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::read()?;
    let Some(plane) = Plane::up(&[("KWOK", "1")])? else {
        return Ok(());
    };
    let client = plane.client().await?;
    if options.measurement == Measurement::Memory {
        return memory::memory(&plane, &client).await;
    }
    nodes::make_nodes(&client, options.nodes[0]).await?; // the nodes come first, because that order is faster
    let sets = Sets::create(&client, options.kind, options.daemonsets).await?;
    let bench = Bench {
        options,
        plane,
        client,
        sets,
    };
    bench.run().await
}

/// Control plane with DaemonSets, and the measurements on them.
struct Bench {
    options: Options,
    plane: Plane,
    client: Client,
    sets: Sets,
}

impl Bench {
    async fn run(&self) -> Result<()> {
        match self.options.measurement {
            Measurement::Cases => self.cases().await,
            Measurement::Revisions => self.revisions().await,
            Measurement::Churn => self.churn().await,
            _ => self.sizes().await,
        }
    }

    async fn cases(&self) -> Result<()> {
        let nodes = self.options.nodes[0];
        self.grow(nodes).await?;
        let binary = &self.options.binaries[0];
        cases::cases(binary, &self.plane, &self.client, &self.sets, nodes).await
    }

    /// Measures one fleet size after another on the same cluster.
    async fn sizes(&self) -> Result<()> {
        self.sets.take_over().await?;
        let mut versions = 2..;
        let mut before: Option<(usize, Medians)> = None;
        for &nodes in &self.options.nodes {
            self.grow(nodes).await?;
            let medians = self.measure(nodes, &mut versions).await?;
            medians.print(&self.title(nodes));
            if let Some((fewer, smaller)) = &before {
                let pods = (nodes - fewer) * self.options.daemonsets;
                let each = format!("RSS per pod and node from {fewer} on, KiB");
                medians.print_growth(smaller, RESIDENT, &each, pods as f64 / 1024.0);
            }
            before = Some((nodes, medians));
        }
        Ok(())
    }

    async fn measure(
        &self,
        nodes: usize,
        versions: &mut impl Iterator<Item = usize>,
    ) -> Result<Medians> {
        let Options { binaries, runs, .. } = &self.options;
        if self.options.measurement == Measurement::AtRest {
            return in_turns(binaries, *runs, async |binary| {
                at_rest::at_rest(binary, &self.plane, &self.sets).await
            })
            .await;
        }
        in_turns(binaries, *runs, async |binary| {
            let version = format!("v{}", versions.next().unwrap_or_default());
            self.sets.forget_reports().await?;
            let controller = Controller::start(binary, &self.plane, self.sets.kind).await?;
            self.sets.wait_for_reports().await?;
            let rollout = Rollout::new(&controller, &self.sets, &version, nodes).await?;
            rollout.figures(&controller).await
        })
        .await
    }

    async fn revisions(&self) -> Result<()> {
        let Options { binaries, runs, .. } = &self.options;
        let nodes = self.options.nodes[0];
        self.grow(nodes).await?;
        self.sets.take_over().await?;
        for count in [0, revisions::COUNT] {
            revisions::make(&self.client, count).await?;
            let medians = in_turns(binaries, *runs, async |binary| {
                revisions::start(binary, &self.plane, &self.sets).await
            });
            let title = format!("{}, {count} large revisions", self.title(nodes));
            medians.await?.print(&title);
        }
        Ok(())
    }

    async fn churn(&self) -> Result<()> {
        let nodes = self.options.nodes[0];
        self.grow(nodes).await?;
        self.sets.take_over().await?;
        let binary = &self.options.binaries[0];
        churn::churn(binary, &self.plane, &self.client, &self.sets, nodes).await
    }

    /// Adds nodes until there are this many, and waits until each node has its pods.
    async fn grow(&self, nodes: usize) -> Result<()> {
        nodes::make_nodes(&self.client, nodes).await?;
        let maker = match self.sets.kind {
            Kind::Native => None, // Kubernetes creates the pods
            Kind::Advanced => {
                let binary = &self.options.binaries[0];
                Some(Controller::start(binary, &self.plane, Kind::Advanced).await?)
            }
        };
        self.sets.wait_for_pods(nodes).await?;
        drop(maker);
        Ok(())
    }

    fn title(&self, nodes: usize) -> String {
        let Options {
            daemonsets, runs, ..
        } = &self.options;
        let kind = match self.sets.kind {
            Kind::Native => "",
            Kind::Advanced => "Advanced ",
        };
        format!("{daemonsets} {kind}DaemonSet(s), {nodes} nodes, {runs} run(s)")
    }
}
