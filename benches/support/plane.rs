//! Real control plane for one benchmark, and the requests of yurt-ds in its audit log.

use std::ops::Sub;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(600);

/// Running control plane. It is stopped when dropped.
pub(crate) struct Plane {
    scripts: PathBuf,
    dir: tempfile::TempDir,
}

impl Plane {
    /// Starts a control plane. `environment` contains additional environment variables for its scripts.
    ///
    /// Returns `None` and prints a message if the scripts are not installed.
    pub(crate) fn up(environment: &[(&str, &str)]) -> Result<Option<Self>> {
        let scripts =
            std::env::var("CONTROL_PLANE").unwrap_or_else(|_| "../shared/control-plane".into());
        if !Path::new(&scripts).join("up").exists() {
            println!("SKIPPED: no control plane at {scripts}; name one by CONTROL_PLANE");
            return Ok(None);
        }
        let plane = Self {
            scripts: scripts.into(),
            dir: tempfile::tempdir()?,
        };
        let status = Command::new(plane.scripts.join("up"))
            .arg(plane.dir.path())
            .env("AUDIT", "1")
            .env("CONTROLLER_MANAGER_FLAGS", "--node-monitor-grace-period=1h")
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "the control plane did not start");
        Ok(Some(plane))
    }

    /// Returns the path of the administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// Returns a client for the benchmark itself. [`Self::requests`] doesn't count its requests.
    pub(crate) async fn client(&self) -> Result<Client> {
        let file = Kubeconfig::read_from(self.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// Returns counts of the requests of this yurt-ds role in the audit log so far. Only log lines that contain `about` are
    /// counted.
    pub(crate) fn requests(&self, role: &str, about: &str) -> Result<Requests> {
        let log = std::fs::read_to_string(self.dir.path().join("audit.log"))?;
        let agent = format!("({role})");
        let is_meant = |line: &&str| {
            line.contains("yurt-ds/") && line.contains(&agent) && line.contains(about)
        };
        let mut requests = Requests::default();
        for line in log.lines().filter(is_meant) {
            let entry: Value = serde_json::from_str(line)?;
            let verb = entry["verb"].as_str().unwrap_or_default();
            let is_write = !["get", "list", "watch"].contains(&verb);
            requests.all += usize::from(verb != "watch");
            requests.writes += usize::from(is_write);
            let object = &entry["objectRef"];
            let of_fleet = object["resource"] == "pods" || object["resource"] == "nodes";
            let uri = entry["requestURI"].as_str().unwrap_or_default();
            let is_list = verb == "list" || uri.contains("sendInitialEvents=true");
            requests.lists += usize::from(of_fleet && is_list);
            let to_pods = is_write && object["resource"] == "pods";
            requests.to_pods += usize::from(to_pods);
            requests.deletions += usize::from(to_pods && verb == "delete");
            requests.creations += usize::from(to_pods && verb == "create");
            let to_status = object["resource"] == "daemonsets" && object["subresource"] == "status";
            requests.to_status += usize::from(is_write && to_status);
        }
        Ok(requests)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let _stopped = Command::new(self.scripts.join("down"))
            .arg(self.dir.path())
            .status();
    }
}

/// Counts of requests to the API server.
#[derive(Clone, Copy, Default)]
pub(crate) struct Requests {
    /// All requests except watches.
    pub(crate) all: usize,
    /// Lists of nodes and pods, and watches that begin with a list. The audit log contains a watch only after its end.
    pub(crate) lists: usize,
    pub(crate) writes: usize,
    pub(crate) to_pods: usize,
    pub(crate) deletions: usize,
    pub(crate) creations: usize,
    pub(crate) to_status: usize,
}

impl Sub for Requests {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            all: self.all - before.all,
            lists: self.lists - before.lists,
            writes: self.writes - before.writes,
            to_pods: self.to_pods - before.to_pods,
            deletions: self.deletions - before.deletions,
            creations: self.creations - before.creations,
            to_status: self.to_status - before.to_status,
        }
    }
}

/// Waits until `reached` returns true, with the usual time limit.
pub(crate) async fn wait<F: Future<Output = Result<bool>>>(
    what: &str,
    reached: impl FnMut() -> F,
) -> Result<()> {
    wait_within(LIMIT, Duration::from_millis(20), what, reached).await
}

/// Waits with this time limit and with `pause` between checks. Use it for conditions that take long or are expensive to check.
pub(crate) async fn wait_within<F: Future<Output = Result<bool>>>(
    limit: Duration,
    pause: Duration,
    what: &str,
    mut reached: impl FnMut() -> F,
) -> Result<()> {
    let start = now();
    while !reached().await? {
        ensure!(
            start.elapsed() < limit,
            "{what}: not reached after {limit:?}"
        );
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
