//! Cost of a node's agent: `cargo bench --bench ota`.
//!
//! Starts `../shared/control-plane` (or the folder in `CONTROL_PLANE`), one node with thirty pods in OTA mode, and `yurt-ds
//! ota-server` for that node. Then sends the requests of a node owner: reads, upgrades and pre-pulls. These requests are also
//! measured while other clients send junk requests or keep silent connections open.
//!
//! Prints a table with the target, the measurement, and the value of OpenYurt's agent. CPU time and memory come from the kernel,
//! API requests from the API server's audit log. `-- --reads 2000` is a quick run. The environment variable `YURT_DS` names
//! another yurt-ds binary to measure, such as the static one of the image.
//!
//! This is a benchmark, not a test. Timings vary, because clients and control plane run on the same machine.

#[path = "support/fleet.rs"]
mod fleet;
#[path = "support/owner.rs"]
mod owner;
#[path = "support/plane.rs"]
mod plane;
#[path = "support/process.rs"]
mod process;

use std::cell::Cell;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::fleet::{Fleet, NODE, PODS};
use self::owner::{Owner, Times, request};
use self::plane::{Plane, Requests, now};
use self::process::Process;

/// Time after which the audit log is complete and the agent is idle.
const REST: Duration = Duration::from_secs(2);
/// Number of POST requests for pods that don't exist, and number of connections that send them.
const JUNK: usize = 300;
const JUNK_CONNECTIONS: usize = 30;
/// Number of connections that send nothing.
const SILENT: usize = 500;
/// Number of valid requests that are sent in parallel, each on a new connection.
const HONEST: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let reads = reads()?;
    let Some(plane) = Plane::up(&[])? else {
        return Ok(());
    };
    let fleet = Fleet::start(&plane.client().await?).await?;
    let bench = Bench::start(plane).await?;
    row("figure", "target", "measured", "reference");
    bench.memory("RSS after the start")?;
    bench.reads(&fleet, reads).await?;
    bench.writes(&fleet).await?;
    bench.junk(&fleet).await?;
    bench.silence(&fleet).await?;
    tokio::time::sleep(REST).await;
    bench.memory("RSS after all this")?;
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("load of the machine: {}", load.trim());
    Ok(())
}

/// Returns the number of reads per measurement: the value of `--reads`, or 20,000.
fn reads() -> Result<usize> {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    match &arguments[..] {
        [] => Ok(20_000),
        [flag, number] if flag == "--reads" => {
            number.parse().with_context(|| format!("--reads {number}"))
        }
        _ => bail!("{}: expected --reads N", arguments.join(" ")),
    }
}

struct Bench {
    plane: Plane,
    server: Process,
    address: SocketAddr,
}

impl Bench {
    /// Starts the agent and waits until it has listed the node's pods.
    async fn start(plane: Plane) -> Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let listen = address.to_string();
        let arguments = ["ota-server", "--node-name", NODE, "--listen", &listen];
        let server = Process::start(&arguments, &plane.kubeconfig())?;
        let bench = Self {
            plane,
            server,
            address,
        };
        let ready = request("GET", "/ready", "");
        plane::wait("the server", || async {
            let answer = Owner::connect(address).and_then(|mut owner| owner.ask(&ready));
            Ok(answer.is_ok_and(|answer| answer.status == 200))
        })
        .await?;
        tokio::time::sleep(REST).await;
        Ok(bench)
    }

    fn memory(&self, when: &str) -> Result<()> {
        let [all, own, peak] = ["VmRSS", "RssAnon", "VmHWM"].map(|field| self.server.memory(field));
        let measured = format!("{:.1} MiB ({:.1} anonymous)", all?, own?);
        row(when, "10 MiB", &measured, "74 MiB");
        row("  peak", "", &format!("{:.1} MiB", peak?), "");
        Ok(())
    }

    async fn reads(&self, fleet: &Fleet, reads: usize) -> Result<()> {
        let before = self.requests().await?;
        let plain = request("GET", "/pods", "");
        let answer = Owner::connect(self.address)?.ask(&plain)?;
        let kilobytes = answer.length / 1000;
        let what = format!("GET /pods, {PODS} pods, {kilobytes} KB");
        self.read(&what, &plain, reads, 200).await?;

        let tag = format!("if-none-match: {}\r\n", answer.etag.context("an ETag")?);
        let known = request("GET", "/pods", &tag);
        self.read("GET /pods, If-None-Match: 304", &known, reads, 304)
            .await?;
        let asked = (self.requests().await? - before).all;
        row(
            "  API requests by all of these",
            "0",
            &asked.to_string(),
            "0",
        );

        let names = fleet.names().await?;
        let rounds = Cell::new(0);
        let what = format!("GET /pods, {PODS} changes a second");
        tokio::select! {
            done = self.read(&what, &plain, reads, 200) => done?,
            changed = changing(fleet, &names, &rounds) => match changed? {},
        }
        row(
            "  changes of pods meanwhile",
            "",
            &(rounds.get() * PODS).to_string(),
            "",
        );
        Ok(())
    }

    /// Measures a read that is repeated on one connection.
    async fn read(&self, what: &str, request: &str, reads: usize, status: u16) -> Result<()> {
        let cpu = self.server.cpu()?;
        let times = self.asked(vec![request.to_owned(); reads], status).await?;
        let cpu = (self.server.cpu()? - cpu) * 1e3 / reads as f64;
        let latency = format!(
            "{:.3} / {:.3} ms",
            times.percentile(50),
            times.percentile(99)
        );
        row(
            &format!("{what}: p50 / p99"),
            "p99 < 1 ms",
            &latency,
            "4.2 / 18 ms",
        );
        row(
            "  CPU a request",
            "0.1 ms",
            &format!("{cpu:.4} ms"),
            "4.4 ms",
        );
        Ok(())
    }

    async fn writes(&self, fleet: &Fleet) -> Result<()> {
        fleet.announce(&self.plane, "v2").await?;
        self.write(fleet, "upgrade").await?;
        fleet.settle().await?;
        fleet.announce(&self.plane, "v3").await?;
        self.write(fleet, "imagepull").await
    }

    /// Measures one request for each pod, sent one after another.
    async fn write(&self, fleet: &Fleet, verb: &str) -> Result<()> {
        let names = fleet.names().await?;
        let calls: Vec<String> = names.iter().map(|name| call(name, verb)).collect();
        let before = self.requests().await?;
        let times = self.asked(calls, 200).await?;
        let asked = self.requests().await? - before;
        let latency = format!(
            "{:.1} / {:.1} ms",
            times.percentile(50),
            times.percentile(99)
        );
        let each = |count: usize| format!("{:.2}", count as f64 / PODS as f64);
        row(
            &format!("{verb}, one after the other: p50 / p99"),
            "10 ms",
            &latency,
            "370 ms",
        );
        row("  API writes each", "1", &each(asked.writes), "1");
        row("  API requests each, with reads", "", &each(asked.all), "2");
        Ok(())
    }

    /// Measures valid requests that follow junk requests. The first junk requests have names that no pod can have, the next ones
    /// names that a pod could have.
    async fn junk(&self, fleet: &Fleet) -> Result<()> {
        fleet.announce(&self.plane, "v4").await?;
        let names = fleet.names().await?;
        let imitated = format!("{}-zz", fleet::name(0));
        for (what, prefix, honest) in [
            ("of junk", "nobody-", &names[0]),
            ("for names of its own kind", imitated.as_str(), &names[1]),
        ] {
            let before = self.requests_about(prefix).await?;
            let time = self.behind(prefix, call(honest, "imagepull")).await?;
            let asked = self.requests_about(prefix).await? - before;
            let what = format!("imagepull behind {JUNK} POSTs {what}");
            row(&what, "50 ms", &format!("{time:.1} ms"), "57600 ms");
            row(
                "  API requests by the POSTs",
                "0",
                &asked.to_string(),
                "300",
            );
        }
        Ok(())
    }

    /// Sends junk requests for pods with this name prefix, then a valid request. Returns the response time of the valid request in
    /// milliseconds.
    async fn behind(&self, prefix: &str, honest: String) -> Result<f64> {
        let (address, prefix) = (self.address, prefix.to_owned());
        blocking(move || {
            let mut owner = Owner::connect(address)?;
            let others = (0..JUNK_CONNECTIONS).map(|_| Owner::connect(address));
            let mut others = others.collect::<Result<Vec<_>>>()?;
            for number in 0..JUNK {
                let pod = format!("{prefix}{}", letters(number));
                others[number % JUNK_CONNECTIONS].send(&call(&pod, "imagepull"))?;
            }
            let times = Times::measure(&mut owner, [honest.as_str()], 200)?;
            for number in 0..JUNK {
                let status = others[number % JUNK_CONNECTIONS].hear()?.status;
                ensure!(status >= 400, "an unknown pod was answered {status}");
            }
            Ok(times.percentile(100))
        })
        .await
    }

    /// Measures valid requests, each on a new connection, while many other connections are open and send nothing.
    async fn silence(&self, fleet: &Fleet) -> Result<()> {
        let address = self.address;
        let pull = call(&fleet.names().await?[2], "imagepull");
        let (reads, pull) = blocking(move || {
            let silent = (0..SILENT).map(|_| TcpStream::connect(address));
            let _silent = silent.collect::<std::io::Result<Vec<_>>>()?;
            let ask = |request: &str| {
                let start = now();
                let answer = Owner::connect(address)?.ask(request)?;
                let time = start.elapsed();
                ensure!(answer.status == 200, "{request:?}: {}", answer.status);
                Ok(time)
            };
            let plain = request("GET", "/pods", "");
            let reads = (0..HONEST).map(|_| ask(&plain)).collect::<Result<_>>()?;
            Ok((Times::sorted(reads), Times::sorted(vec![ask(&pull)?])))
        })
        .await?;
        let reads = format!(
            "{:.1} / {:.1} ms",
            reads.percentile(50),
            reads.percentile(100)
        );
        let pull = format!("{:.1} ms", pull.percentile(100));
        let what = format!("GET /pods beside {SILENT} silent connections: p50 / worst");
        row(&what, "50 ms", &reads, "");
        row("  imagepull beside them", "50 ms", &pull, "");
        Ok(())
    }

    /// Sends these requests on one connection, one after another. Returns their response times.
    async fn asked(&self, requests: Vec<String>, expected: u16) -> Result<Times> {
        let address = self.address;
        blocking(move || {
            let requests = requests.iter().map(String::as_str);
            Times::measure(&mut Owner::connect(address)?, requests, expected)
        })
        .await
    }

    /// Returns the number of requests from the agent to the API server so far.
    async fn requests(&self) -> Result<Requests> {
        tokio::time::sleep(REST).await;
        self.plane.requests("ota-server", "")
    }

    /// Returns the number of requests from the agent to the API server that contain this name.
    async fn requests_about(&self, name: &str) -> Result<usize> {
        tokio::time::sleep(REST).await;
        Ok(self.plane.requests("ota-server", name)?.all)
    }
}

/// Changes every pod once a second, and counts these rounds of changes.
async fn changing(
    fleet: &Fleet,
    names: &[String],
    rounds: &Cell<usize>,
) -> Result<std::convert::Infallible> {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        second.tick().await;
        rounds.set(rounds.get() + 1);
        fleet.touch(names, rounds.get()).await?;
    }
}

/// Runs blocking work on another thread, so that the fake kubelets continue to run.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

fn call(pod: &str, verb: &str) -> String {
    // `force=true` upgrades the pod without a pre-pull of its images.
    let query = if verb == "upgrade" { "?force=true" } else { "" };
    let path = format!("/openyurt.io/v1/namespaces/default/pods/{pod}/{verb}{query}");
    request("POST", &path, "content-length: 0\r\n")
}

/// Returns three letters for a pod name, from the alphabet that Kubernetes uses for generated names.
fn letters(number: usize) -> String {
    let alphabet = b"bcdfghjklmnpqrstvwxz2456789";
    let letter = |digit: usize| char::from(alphabet[digit % alphabet.len()]);
    [number / 729, number / 27, number]
        .map(letter)
        .iter()
        .collect()
}

fn row(figure: &str, target: &str, measured: &str, reference: &str) {
    println!("{figure:<62} {target:>10} {measured:>28} {reference:>12}");
}
