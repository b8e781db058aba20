//! Cluster for the isolation tests, with the controller as a process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use yurt_ds::clock::Clock;
use yurt_ds::sim::cluster::{Cluster, ClusterOptions};
use yurt_ds::sim::{daemonset, gc, scheduler};
use yurt_ds::task::Task;

use crate::support::binary::{ANY_PORT, Installation, NAMESPACE, Process, controller_command};
use crate::support::{machine, real};

/// Environment variable with a yurt-ds binary to test instead of the one that cargo built.
pub(super) const BINARY: &str = "YURT_DS_ISOLATION_BINARY";

/// Polling interval of the tests.
const LOOK: Duration = Duration::from_millis(100);

/// Cluster without a controller.
pub(super) struct Plane {
    /// Client with the permissions of a cluster administrator.
    pub(super) client: Client,
    kubeconfig: PathBuf,
    /// True for a real control plane, false for an embedded cluster.
    pub(super) is_real: bool,
    directory: tempfile::TempDir,
    _life: (Option<Installation>, Vec<Task>),
}

pub(super) struct Controller {
    process: Process,
    /// Address of the controller's metrics.
    pub(super) address: SocketAddr,
}

impl Plane {
    /// Connects to a real control plane with this kubeconfig, and grants the controller the roles of `manifests/`.
    pub(super) async fn real(kubeconfig: &Path) -> anyhow::Result<Self> {
        let client = real::client(kubeconfig, "yurt-ds-isolation").await?;
        let installation = Installation::prepare(&client, kubeconfig).await?;
        Ok(Self {
            client,
            kubeconfig: installation.kubeconfig().to_owned(),
            is_real: true,
            directory: tempfile::tempdir()?,
            _life: (Some(installation), Vec::new()),
        })
    }

    /// Starts an embedded cluster whose API server a process can reach over HTTP.
    pub(super) async fn embedded() -> anyhow::Result<Self> {
        let clock = Clock::System;
        let cluster = Cluster::new(ClusterOptions::new(clock.clone(), 1).with_advanced());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(&kubeconfig, cluster.kubeconfig(listener.local_addr()?))?;
        let native = || cluster.client("kube-controller-manager");
        let served = cluster.clone();
        let options = daemonset::DaemonSetsOptions::default();
        let tasks = vec![
            scheduler::start(native()),
            daemonset::start(native(), clock.clone(), options),
            gc::start(native()),
            Task::spawn(async move {
                let _ended = served.serve(listener, std::future::pending()).await;
            }),
        ];
        let plane = Self {
            client: cluster.client("yurt-ds-isolation"),
            kubeconfig,
            is_real: false,
            directory,
            _life: (None, tasks),
        };
        let namespace = json!({ "metadata": { "name": NAMESPACE } });
        plane.create("/api/v1/namespaces", &namespace).await?;
        Ok(plane)
    }

    /// Starts a controller that connects to the API server directly.
    pub(super) async fn controller(&self) -> anyhow::Result<Controller> {
        self.start_with(&self.kubeconfig).await
    }

    /// Starts a controller that uses this kubeconfig, for example to connect through a proxy.
    pub(super) async fn controller_by(&self, kubeconfig: &str) -> anyhow::Result<Controller> {
        let file = self.directory.path().join("by-proxy.kubeconfig");
        std::fs::write(&file, kubeconfig)?;
        self.start_with(&file).await
    }

    async fn start_with(&self, kubeconfig: &Path) -> anyhow::Result<Controller> {
        let built = PathBuf::from(env!("CARGO_BIN_EXE_yurt-ds"));
        let program = std::env::var_os(BINARY).map_or(built, PathBuf::from);
        // Give all controllers the same identity, so that a restarted one takes over the Lease before it expires.
        let mut command = controller_command(&program, "isolation", kubeconfig);
        command.env("YURT_DS_PROBE_LISTEN", ANY_PORT);
        let log = self.directory.path().join("controller.log");
        let mut process = Process::start(&mut command, log)?;
        let address = process.address().await?;
        Ok(Controller { process, address })
    }

    /// Sends a request to the API server and returns the body of the response as text.
    pub(super) async fn call(
        &self,
        method: &str,
        path: &str,
        body: String,
    ) -> anyhow::Result<String> {
        let kind = match method {
            "PATCH" => "application/strategic-merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(body.into_bytes())?;
        let answer = self.client.request_text(request).await;
        answer.with_context(|| format!("{method} {path}"))
    }

    /// Reads the JSON object at this path.
    pub(super) async fn read(&self, path: &str) -> anyhow::Result<Value> {
        let text = self.call("GET", path, String::new()).await?;
        serde_json::from_str(&text).with_context(|| format!("read {path}"))
    }

    pub(super) async fn create(&self, path: &str, object: &Value) -> anyhow::Result<()> {
        self.call("POST", path, object.to_string()).await.map(drop)
    }

    /// Changes an object by a strategic merge patch.
    pub(super) async fn patch(&self, path: &str, patch: &Value) -> anyhow::Result<()> {
        self.call("PATCH", path, patch.to_string()).await.map(drop)
    }

    /// Deletes the object at this path without a grace period, or all objects of a list.
    pub(super) async fn delete(&self, path: &str) -> anyhow::Result<()> {
        let path = format!(
            "{path}{}gracePeriodSeconds=0",
            if path.contains('?') { '&' } else { '?' }
        );
        self.call("DELETE", &path, String::new()).await.map(drop)
    }
}

impl Controller {
    /// Requests `/live` or `/ready`, on the probe port if there is one. `limit` is the time limit for the response. Returns status
    /// and body.
    pub(super) async fn probe(&self, path: &str, limit: Duration) -> anyhow::Result<(u16, String)> {
        let own = self.process.address_after("Answering probes");
        ask(own.unwrap_or(self.address), path, limit).await
    }

    pub(super) async fn metrics(&self) -> anyhow::Result<String> {
        let answer = ask(self.address, "/metrics", Duration::from_secs(10)).await?;
        Ok(answer.1)
    }

    /// Waits until the controller reports that it is ready.
    pub(super) async fn until_ready(&self, limit: Duration) -> anyhow::Result<()> {
        until("the controller is ready", limit, async || {
            let (status, text) = self.probe("/ready", limit).await?;
            Ok((status != 200).then(|| format!("{status} {text}")))
        })
        .await
    }

    /// Returns the peak of the controller's resident memory, in KiB.
    pub(super) fn peak(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let mut lines = status.lines();
        let found = lines.find_map(|line| line.strip_prefix("VmHWM:"));
        let number = found.and_then(|text| text.trim().strip_suffix(" kB"));
        Ok(number.context("no VmHWM")?.trim().parse()?)
    }

    /// Returns the end of the controller's log.
    pub(super) fn tail(&mut self) -> String {
        self.process.tail()
    }
}

/// Requests a page on a new connection. Returns status and body.
async fn ask(address: SocketAddr, path: &str, limit: Duration) -> anyhow::Result<(u16, String)> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await?;
        let (head, body) = page.split_once("\r\n\r\n").context("no head")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok((status, body.to_owned()))
    };
    let answered = tokio::time::timeout(limit, asked).await;
    answered.with_context(|| format!("no answer to {path} within {limit:?}"))?
}

/// Repeats `look` until it returns `None`. A `Some` describes what is still missing.
///
/// # Errors
/// At the time limit, returns what is still missing, or the last error of `look`.
pub(super) async fn until(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<String>>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        let missing = match look().await {
            Ok(None) => return Ok(()),
            Ok(Some(missing)) => missing,
            Err(error) => format!("{error:#}"),
        };
        if Instant::now() >= deadline {
            bail!("not within {limit:?}: {what}; {missing}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Repeats `look` for this time. `look` must always return `None`; a `Some` describes a problem.
///
/// # Errors
/// Returns the first problem.
pub(super) async fn throughout(
    time: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<String>>,
) -> anyhow::Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let wrong = look().await?;
        ensure!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Returns the time limit for steps that prepare a story.
pub(super) fn patience() -> Duration {
    Duration::from_secs(10) * machine::BUSY
}
