//! A controller that is measured: its process, what it serves about itself, and what the API server saw of it.

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

/// How long after its work a controller is taken to be at rest.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);
/// How often its connections are counted.
const SAMPLE: Duration = Duration::from_millis(100);

/// A controller that runs, alone, on a control plane.
pub(crate) struct Controller<'a> {
    plane: &'a Plane,
    process: Process,
    address: SocketAddr,
    server: u16,
}

/// What a controller has used so far, or did in between.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    /// Seconds of CPU.
    pub(crate) cpu: f64,
    /// What it asked the API server for.
    pub(crate) requests: Requests,
    /// What it decided.
    pub(crate) decisions: Decisions,
}

impl<'a> Controller<'a> {
    /// Starts that binary for DaemonSets of one kind, and waits until it is ready.
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

    /// What it has used so far. CPU comes first: the audit log takes a while to read.
    pub(crate) fn usage(&self) -> Result<Usage> {
        Ok(Usage {
            cpu: self.process.cpu()?,
            requests: self.plane.requests("controller", "")?,
            decisions: Decisions::of(self.address)?,
        })
    }

    /// What it used since then.
    pub(crate) fn used_since(&self, before: Usage) -> Result<Usage> {
        let now = self.usage()?;
        Ok(Usage {
            cpu: now.cpu - before.cpu,
            requests: now.requests - before.requests,
            decisions: now.decisions.since(before.decisions),
        })
    }

    /// The most memory it ever had, in MiB.
    pub(crate) fn peak(&self) -> Result<f64> {
        self.process.memory("VmHWM")
    }

    /// The memory it has, in MiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        self.process.memory("VmRSS")
    }

    /// How many connections it has to the API server.
    pub(crate) fn connections(&self) -> Result<usize> {
        to_port(&self.process, self.server)
    }

    /// Waits for something, and says how long that took in seconds and how many connections there were at most.
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
