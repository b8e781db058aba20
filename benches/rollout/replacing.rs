//! Measures one rollout of all DaemonSets by a controller.

use anyhow::Result;

use super::compare::{Figure, figure};
use super::controller::{Controller, SETTLE, Usage};
use super::sets::Sets;

/// Name of the memory figure. Its growth between fleet sizes is printed.
pub(crate) const RESIDENT: &str = "RSS after, MiB";

/// Resources and time that a rollout takes.
pub(crate) struct Rollout {
    /// Wall time in seconds.
    pub(crate) wall: f64,
    pub(crate) usage: Usage,
    /// Peak memory in MiB since the controller started.
    pub(crate) peak: f64,
    /// Largest number of connections at the same time.
    connections: usize,
}

impl Rollout {
    /// Rolls out this version, measures until the rollout is complete, and returns the cost.
    pub(crate) async fn new(
        controller: &Controller<'_>,
        sets: &Sets,
        version: &str,
        nodes: usize,
    ) -> Result<Self> {
        Self::until(controller, sets.roll_out(version, nodes)).await
    }

    /// Measures a controller from now until `end` completes.
    pub(crate) async fn until(
        controller: &Controller<'_>,
        end: impl Future<Output = Result<()>>,
    ) -> Result<Self> {
        let before = controller.usage()?;
        let (wall, connections) = controller.watched(end).await?;
        Ok(Self {
            wall,
            usage: controller.used_since(before)?,
            peak: controller.peak()?,
            connections,
        })
    }

    /// Returns all figures of the rollout. Waits until the controller is idle, to include its memory at that time.
    pub(crate) async fn figures(&self, controller: &Controller<'_>) -> Result<Vec<Figure>> {
        tokio::time::sleep(SETTLE).await;
        let Usage {
            cpu,
            requests,
            decisions,
        } = self.usage;
        let replaced = requests.deletions as f64;
        Ok(vec![
            figure("replaced pods", replaced, 0),
            figure("wall time, s", self.wall, 1),
            figure("CPU, s", cpu, 2),
            figure("CPU per replaced pod, ms", cpu * 1e3 / replaced, 3),
            figure("peak RSS, MiB", self.peak, 1),
            figure(RESIDENT, controller.resident()?, 1),
            figure("API requests", requests.all as f64, 0),
            figure(
                "API requests per replaced pod",
                requests.all as f64 / replaced,
                3,
            ),
            figure(
                "writes to pods per replaced pod",
                requests.to_pods as f64 / replaced,
                3,
            ),
            figure(
                "status writes per second",
                requests.to_status as f64 / self.wall,
                2,
            ),
            figure("connections, at most", self.connections as f64, 0),
            figure("connections at rest", controller.connections()? as f64, 0),
            figure("decisions", decisions.count, 0),
            figure(
                "mean decision, µs",
                decisions.seconds * 1e6 / decisions.count,
                1,
            ),
        ])
    }
}
