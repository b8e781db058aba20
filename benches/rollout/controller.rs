//! Measured controller: its process, its metrics, and its requests in the API server's audit log.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::connections::{server_port, to_port};
use super::kind::Kind;
use super::page::{Decisions, free_address, is_ready};
use super::plane::{Plane, Requests, now, wait};
use super::process::Process;

/// Time to wait until a controller is idle.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);
/// Interval between counts of a controller's connections.
const SAMPLE: Duration = Duration::from_millis(100);

/// Running controller, the only one on its control plane.
pub(crate) struct Controller<'a> {
    plane: &'a Plane,
    process: Process,
    address: SocketAddr,
    server: u16,
}

/// Resources that a controller used since its start, or between two moments.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    /// CPU time in seconds.
    pub(crate) cpu: f64,
    /// Counts of requests to the API server.
    pub(crate) requests: Requests,
    /// Number and duration of decisions, from the metrics.
    pub(crate) decisions: Decisions,
}

impl<'a> Controller<'a> {
    /// Starts this binary as the controller of one kind of DaemonSet, and waits until it is ready.
    pub(crate) async fn start(binary: &Path, plane: &'a Plane, kind: Kind) -> Result<Self> {
        let address = free_address()?;
        let listen = format!("--listen={address}");
        let usual = ["controller", &listen, "--leader-elect=false"];
        let arguments = [&usual, kind.flags()].concat();
        let kubeconfig = plane.kubeconfig();
        let controller = Self {
            plane,
            process: Process::start_binary(binary, &arguments, &kubeconfig)?,
            address,
            server: server_port(&kubeconfig)?,
        };
        wait("/ready", || async {
            controller.resident().context("the controller has ended")?;
            Ok(is_ready(address))
        })
        .await?;
        Ok(controller)
    }

    /// Returns the controller's usage since its start. Reads the CPU time first, because reading the audit log takes long.
    pub(crate) fn usage(&self) -> Result<Usage> {
        Ok(Usage {
            cpu: self.process.cpu()?,
            requests: self.plane.requests("controller", "")?,
            decisions: Decisions::of(self.address)?,
        })
    }

    pub(crate) fn used_since(&self, before: Usage) -> Result<Usage> {
        let now = self.usage()?;
        Ok(Usage {
            cpu: now.cpu - before.cpu,
            requests: now.requests - before.requests,
            decisions: now.decisions.since(before.decisions),
        })
    }

    /// Returns the controller's peak memory in MiB.
    pub(crate) fn peak(&self) -> Result<f64> {
        self.process.memory("VmHWM")
    }

    /// Returns the controller's resident memory in MiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        self.process.memory("VmRSS")
    }

    /// Returns the number of the controller's connections to the API server.
    pub(crate) fn connections(&self) -> Result<usize> {
        to_port(&self.process, self.server)
    }

    /// Waits until `work` ends. Returns its duration in seconds and the largest number of connections during that time.
    pub(crate) async fn watched(
        &self,
        work: impl Future<Output = Result<()>>,
    ) -> Result<(f64, usize)> {
        let (start, most) = (now(), Cell::new(0));
        let count = async {
            loop {
                most.set(most.get().max(self.connections()?));
                tokio::time::sleep(SAMPLE).await;
            }
        };
        tokio::select! {
            done = work => done?,
            failed = count => return failed,
        }
        Ok((start.elapsed().as_secs_f64(), most.get()))
    }
}
