//! Tests of the real controller process while many clients send requests to its ports.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use yurt_ds::clock::Clock;
use yurt_ds::sim::kubelet::{FakeNodeSpec, KubeletOptions};
use yurt_ds::sim::world::{World, WorldSetup};

use crate::support::binary::{ANY_PORT, Process};
use crate::support::machine::BUSY;

/// Time limit for a probe: one second on a quiet machine.
const PROBE: Duration = Duration::from_secs(BUSY as u64);

/// Number of connections that a [`Crowd`] keeps open at the same time.
const CROWD: usize = 40;

/// Cluster and controller process, with the addresses of the controller's ports.
struct Running {
    _world: World,
    _process: Process,
    _directory: tempfile::TempDir,
    metrics: SocketAddr,
    probes: SocketAddr,
}

async fn start() -> anyhow::Result<Running> {
    let world = World::start(WorldSetup {
        clock: Clock::System,
        seed: 1,
        kubelets: KubeletOptions::default(),
        controller: false,
        advanced: false,
    });
    world
        .kubelets
        .add_nodes(vec![FakeNodeSpec::named("n1")])
        .await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(
        &kubeconfig,
        world.cluster.kubeconfig(listener.local_addr()?),
    )?;
    let cluster = world.cluster.clone();
    tokio::spawn(async move {
        let _ended = cluster.serve(listener, std::future::pending()).await;
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_yurt-ds"));
    command.args([
        "controller",
        "--listen",
        ANY_PORT,
        "--probe-listen",
        ANY_PORT,
    ]);
    command.arg("--kubeconfig").arg(&kubeconfig);
    let mut process = Process::start(&mut command, directory.path().join("log"))?;
    let metrics = process.address().await?;
    let mut probes = None;
    for _ in 0..200 * BUSY {
        probes = said(&process.log());
        if probes.is_some_and(|address| probe(address, "/ready").is_ok()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(Running {
        _world: world,
        _process: process,
        _directory: directory,
        metrics,
        probes: probes.context("no port for probes in the log")?,
    })
}

/// Finds the address of the probe port in a log.
fn said(log: &str) -> Option<SocketAddr> {
    let line = log.lines().find(|line| line.contains("Answering probes"))?;
    let (_, address) = line.rsplit_once("address=")?;
    address.trim().parse().ok()
}

/// Sends a readiness or liveness probe as a kubelet does. The response must be 200.
fn probe(address: SocketAddr, path: &str) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PROBE)?;
    stream.set_read_timeout(Some(PROBE))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    anyhow::ensure!(
        answer.starts_with("HTTP/1.1 200 OK\r\n"),
        "{path}: {answer}"
    );
    Ok(())
}

/// Clients that send a thousand requests per connection and never read a response. They reconnect when a connection is closed.
struct Crowd {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn at(address: SocketAddr, path: &'static str) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let threads = (0..CROWD).map(|number| {
            let ends = ends.clone();
            std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    ask(address, path, number % 4 == 0, &ends);
                }
            })
        });
        let threads = threads.collect();
        Self { ends, threads }
    }
}

/// Sends requests on one connection until it is closed. If `is_silent` is true, the client sends nothing and only keeps the
/// connection open.
fn ask(address: SocketAddr, path: &str, is_silent: bool, ends: &AtomicBool) {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return;
    };
    let pause = Duration::from_millis(20);
    let _slower_otherwise = stream.set_write_timeout(Some(pause));
    let requests = format!("GET {path} HTTP/1.1\r\nhost: crowd\r\n\r\n").repeat(1000);
    for _ in 0..100 {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        if !is_silent && stream.write_all(requests.as_bytes()).is_err() {
            return;
        }
        std::thread::sleep(pause);
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

/// Checks that every probe succeeds while a [`Crowd`] sends requests to the chosen port.
async fn holds_out(
    choose: impl Fn(&Running) -> SocketAddr,
    path: &'static str,
) -> anyhow::Result<()> {
    let running = start().await?;
    let probes = running.probes;
    let crowd = Crowd::at(choose(&running), path);
    let tries = tokio::task::spawn_blocking(move || {
        for number in 0..30 {
            for path in ["/live", "/ready"] {
                probe(probes, path).with_context(|| format!("try {number} of {path}"))?;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        anyhow::Ok(())
    });
    tries.await??;
    drop(crowd);
    // Check that the metrics port also answers immediately after the flood.
    let metrics = running.metrics;
    tokio::task::spawn_blocking(move || probe(metrics, "/metrics")).await??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_never_reads_metrics_fails_no_probe() {
    let ended = holds_out(|running| running.metrics, "/metrics").await;
    ended.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_at_the_probe_port_fails_no_probe() {
    let ended = holds_out(|running| running.probes, "/live").await;
    ended.unwrap();
}
