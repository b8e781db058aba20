//! Tests of the real agent process while its API server, its disk or its clients misbehave.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use yurt_ds::sim::cluster::{Fault, RequestInfo};

use crate::support::agents::{Agent, Answer, other_addresses};
use crate::support::binary::{ANY_PORT, Process};
use crate::support::link::Way;
use crate::support::machine::BUSY;
use crate::support::served::{NAMESPACE, Running, Served, node, path};

const DISCONNECTED: &str = "OTA upgrade is not allowed when node is disconnected to cloud";

/// Limit for the median response time of valid requests: 50 ms on a quiet machine.
const HONEST: Duration = Duration::from_millis(50 * BUSY as u64);

/// Time within which the agent must respond with an error to a request that can't succeed: five seconds on a quiet machine.
const SOON: Duration = Duration::from_secs(5 * BUSY as u64);

/// Time that an agent waits for the response to a list of pods before it retries.
const GIVEN_UP: Duration = Duration::from_secs(30);

/// Longest time until an agent connects to an API server that is available again. The agent tries once a minute.
const RETURNED: Duration = Duration::from_secs(70);

/// Longest time until an agent that has loaded its pods from disk also requests them from the API server.
const STARTED: Duration = Duration::from_secs(10);

fn play<F: Future<Output = anyhow::Result<()>>>(story: F) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(story).expect("the story ends well");
}

async fn read(agent: &Agent) -> anyhow::Result<Vec<String>> {
    let answer = agent.call("GET", "/pods", &[]).await?;
    anyhow::ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    let list: Value = serde_json::from_slice(&answer.body)?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let name = |item: &Value| item["metadata"]["name"].as_str().map(str::to_owned);
    Ok(items.iter().filter_map(name).collect())
}

/// Repeats a request until the response has this status, for at most [`SOON`].
async fn until(agent: &Agent, method: &str, path: &str, status: u16) -> anyhow::Result<Answer> {
    until_within(SOON, agent, method, path, status).await
}

async fn until_within(
    time: Duration,
    agent: &Agent,
    method: &str,
    path: &str,
    status: u16,
) -> anyhow::Result<Answer> {
    let deadline = Instant::now() + time;
    loop {
        let answer = agent.call(method, path, &[]).await?;
        if answer.status == status {
            return Ok(answer);
        }
        let text = answer.text();
        anyhow::ensure!(Instant::now() < deadline, "{} {text}", answer.status);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Checks the agent between `begin` and `end` of a fault: reads succeed, and the agent refuses actions in time.
///
/// After `end`, everything must work as before, and the agent must not carry out an action that it has refused.
async fn holds_out<G>(
    begin: impl AsyncFnOnce(&Served) -> G,
    end: impl AsyncFnOnce(&Served, G),
) -> anyhow::Result<()> {
    let served = Served::start(2).await?;
    let running = served.ready_agent(1).await?;
    let (agent, before) = (&running.agent, served.pod_on(1).await?.uid());
    let upgrade = served.path(1, "upgrade").await?;
    let pull = served.path(1, "imagepull").await?;
    let fault = begin(&served).await;
    let deadline = Instant::now() + Duration::from_secs(8);
    while Instant::now() < deadline {
        assert_eq!(read(agent).await?.len(), 1);
        for path in [&upgrade, &pull] {
            let begin = Instant::now();
            let answer = agent.call("POST", path, &[]).await?;
            let (status, text) = (answer.status, answer.text());
            let is_known = status == 503 && text == DISCONNECTED
                || status == 500 && text.starts_with("Get pod failed, ");
            assert!(is_known, "{status} {text}");
            assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    end(&served, fault).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(served.pod_on(1).await?.uid(), before);
    let answer = until(agent, "POST", &upgrade, 200).await?;
    assert!(answer.text().starts_with("Start updating pod "));
    Ok(())
}

async fn fails_with(
    rule: impl Fn(&RequestInfo) -> Fault + Send + Sync + 'static,
) -> anyhow::Result<()> {
    holds_out(
        async |served| {
            let guard = served.fault(rule);
            served.world.cluster.disconnect_watches();
            guard
        },
        async |_, guard| drop(guard),
    )
    .await
}

#[test]
fn an_api_server_that_is_stopped_delays_no_read_and_no_refusal() {
    play(holds_out(
        async |served| served.world.cluster.stop(),
        async |served, ()| served.world.cluster.start(),
    ));
}

#[test]
fn an_api_server_that_is_frozen_delays_no_read_and_no_refusal() {
    play(holds_out(
        async |served| served.link.set(Way::Frozen),
        async |served, ()| served.link.set(Way::Open),
    ));
}

#[test]
fn an_api_server_that_answers_500_delays_no_read_and_no_refusal() {
    play(fails_with(|_| Fault::Status(500, None)));
}

#[test]
fn an_api_server_that_answers_429_delays_no_read_and_no_refusal() {
    play(fails_with(|_| Fault::Status(429, Some(1))));
}

#[test]
fn connections_that_are_reset_delay_no_read_and_no_refusal() {
    play(fails_with(|_| Fault::ResetBefore));
}

#[test]
fn a_deletion_whose_answer_is_lost_is_not_repeated() {
    play(async {
        let served = Served::start(1).await?;
        let running = served.ready_agent(1).await?;
        let upgrade = served.path(1, "upgrade").await?;
        let lost = served.fault(|request| match request.verb.as_str() {
            "delete" => Fault::ResetAfter,
            _ => Fault::Pass,
        });
        let answer = running.agent.call("POST", &upgrade, &[]).await?;
        assert_eq!(answer.status, 200, "the pod goes: {}", answer.text());
        let again = running.agent.call("POST", &upgrade, &[]).await?;
        assert_eq!(again.status, 403, "{}", again.text());
        drop(lost);
        let deletions = served.world.cluster.requests().into_iter();
        let deletions = deletions
            .filter(|count| count.user_agent.contains("(ota-server)") && count.verb == "delete");
        assert_eq!(deletions.map(|count| count.number).sum::<u64>(), 1);
        Ok(())
    });
}

#[test]
fn a_deletion_that_hangs_is_told_soon_and_does_not_happen_later() {
    play(async {
        let served = Served::start(1).await?;
        let running = served.ready_agent(1).await?;
        let before = served.pod_on(1).await?.uid();
        let upgrade = served.path(1, "upgrade").await?;
        let hangs = served.fault(|request| match request.verb.as_str() {
            "delete" => Fault::Hang,
            _ => Fault::Pass,
        });
        let begin = Instant::now();
        let answer = running.agent.call("POST", &upgrade, &[]).await?;
        assert_eq!(
            (answer.status.as_u16(), answer.text().as_str()),
            (500, "Apply update failed")
        );
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        drop(hangs);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(served.pod_on(1).await?.uid(), before);
        until(&running.agent, "POST", &upgrade, 200).await?;
        Ok(())
    });
}

#[test]
fn started_offline_it_serves_the_last_state_and_says_how_old_it_is() {
    play(async {
        let served = Served::start(1).await?;
        let running = served.ready_agent(1).await?;
        let before = read(&running.agent).await?;
        served.until_kept(&node(1)).await?;
        drop(running);
        served.link.set(Way::Cut);
        let running = served.agent(&node(1), &node(1)).await?;
        assert_eq!(read(&running.agent).await?, before);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let answer = running.agent.call("GET", "/pods", &[]).await?;
        let age: u64 = answer.header("x-cache-age").parse()?;
        assert!((2..60 * u64::from(BUSY)).contains(&age), "{age}");
        served.link.set(Way::Frozen);
        drop(running);
        let begin = Instant::now();
        let running = served.agent(&node(1), &node(1)).await?;
        assert_eq!(read(&running.agent).await?, before);
        assert!(begin.elapsed() < GIVEN_UP / 2, "{:?}", begin.elapsed());
        Ok(())
    });
}

#[test]
fn a_node_that_was_renamed_does_not_serve_the_pods_of_its_old_name() {
    play(async {
        let served = Served::start(2).await?;
        let running = served.ready_agent(1).await?;
        served.until_kept(&node(1)).await?;
        drop(running);
        served.link.set(Way::Cut);
        let running = served.agent(&node(2), &node(1)).await?;
        let answer = running.agent.call("GET", "/pods", &[]).await?;
        assert_eq!(
            (answer.status.as_u16(), answer.text().as_str()),
            (500, "Get pod list failed")
        );
        served.link.set(Way::Open);
        until_within(RETURNED, &running.agent, "GET", "/pods", 200).await?;
        assert_eq!(
            read(&running.agent).await?,
            [served.pod_on(2).await?.name_any()]
        );
        Ok(())
    });
}

#[test]
fn two_agents_on_one_node_delete_a_pod_once() {
    play(async {
        let served = Served::start(1).await?;
        let (one, two) = (served.ready_agent(1).await?, served.ready_agent(1).await?);
        assert_eq!(read(&one.agent).await?, read(&two.agent).await?);
        let upgrade = served.path(1, "upgrade").await?;
        let (first, second) = tokio::join!(
            one.agent.call("POST", &upgrade, &[]),
            two.agent.call("POST", &upgrade, &[])
        );
        for answer in [first?, second?] {
            let (status, text) = (answer.status.as_u16(), answer.text());
            assert!([200, 403, 500].contains(&status), "{status} {text}");
        }
        tokio::time::sleep(STARTED + Duration::from_secs(4)).await;
        let name = served.pod_on(1).await?.name_any();
        assert!(!upgrade.contains(&name), "the pod was not replaced");
        let (one, two) = (read(&one.agent).await?, read(&two.agent).await?);
        assert_eq!((one, two), (vec![name.clone()], vec![name]));
        Ok(())
    });
}

#[test]
fn a_port_that_is_taken_ends_the_second_agent_with_a_sentence() {
    play(async {
        let served = Served::start(1).await?;
        let running = served.ready_agent(1).await?;
        let address = running.address.to_string();
        let ended = served.command(&node(1), "other", &address)?.output()?;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success());
        let sentence = format!("cannot listen on {address}");
        assert!(said.contains(&sentence), "{said}");
        Ok(())
    });
}

#[test]
fn killed_at_any_moment_it_starts_again_with_a_whole_state() {
    play(async {
        let served = Served::start(1).await?;
        let running = served.ready_agent(1).await?;
        served.until_kept(&node(1)).await?;
        drop(running);
        let name = served.pod_on(1).await?.name_any();
        let pods = served.pods();
        let busy = tokio::spawn(async move {
            for number in 0_u64.. {
                let label = json!({ "metadata": { "annotations": { "example.com/number": number.to_string() } } });
                let _ = pods
                    .patch(&name, &PatchParams::default(), &Patch::Merge(label))
                    .await;
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        });
        for round in 0..20 {
            served.link.set(Way::Open);
            let running = served.agent(&node(1), &node(1)).await?;
            // Kill the agent a little later in each round: during its start, during its first write to disk, or during a later
            // write.
            tokio::time::sleep(Duration::from_millis(60 * round)).await;
            drop(running);
            served.link.set(Way::Cut);
            let running = served.agent(&node(1), &node(1)).await?;
            assert_eq!(read(&running.agent).await?.len(), 1, "round {round}");
        }
        busy.abort();
        let mut left: Vec<_> = std::fs::read_dir(served.home(&node(1)))?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<_, _>>()?;
        left.sort();
        assert!(
            left.len() <= 2,
            "what was half written is cleaned up: {left:?}"
        );
        Ok(())
    });
}

/// Sends valid requests while the test sends other requests in parallel. Returns the response times of the valid ones, sorted.
async fn honest(running: &Running) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..40 {
        let begin = Instant::now();
        assert!(!read(&running.agent).await?.is_empty());
        times.push(begin.elapsed());
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    times.sort();
    Ok(times)
}

fn assert_quick(times: &[Duration]) {
    let median = times[times.len() / 2];
    assert!(median < HONEST, "{times:?}");
    assert!(times[times.len() - 1] < SOON, "{times:?}");
}

#[test]
fn five_hundred_silent_connections_delay_no_other_client() {
    play(async {
        let served = Served::start(1).await?;
        let running = served.ready_agent(1).await?;
        let mut silent = Vec::new();
        for number in 0..500 {
            let mut stream = TcpStream::connect(running.address).await?;
            if number % 2 == 0 {
                stream.write_all(b"POST /openyurt.io/v1/na").await?; // an incomplete request
            }
            silent.push(stream);
        }
        assert_quick(&honest(&running).await?);
        // The agent must close a connection that doesn't send complete headers within the header timeout.
        tokio::time::sleep(Duration::from_secs(6)).await;
        for stream in &mut silent {
            let mut rest = Vec::new();
            let ended = tokio::time::timeout(SOON, stream.read_to_end(&mut rest));
            assert!(ended.await.is_ok(), "a silent connection is still open");
        }
        assert_quick(&honest(&running).await?);
        Ok(())
    });
}

#[test]
fn three_hundred_junk_requests_delay_no_other_client_and_cost_no_api_request() {
    play(async {
        let served = Served::start(2).await?;
        let running = served.ready_agent(1).await?;
        let before = served.asked();
        // The agent accepts at most 256 connections at a time. The semaphore keeps the test far below that limit, even if the agent
        // still counts some closed connections.
        let seats = Arc::new(Semaphore::new(100));
        let junk = (0..300).map(|number| {
            let (agent, seats) = (running.agent.clone(), seats.clone());
            tokio::spawn(async move {
                let _seat = seats.acquire().await?;
                let (pod, header) = match number % 4 {
                    0 => (format!("junk-{number}"), ("accept", "*/*")),
                    1 => ("nginx-daemonset-zzzzz0".to_owned(), ("accept", "*/*")),
                    2 => (
                        "nginx-daemonset-bwzss".to_owned(),
                        ("origin", "http://evil.example.com"),
                    ),
                    _ => (
                        "nginx-daemonset-bwzss".to_owned(),
                        ("host", "evil.example.com"),
                    ),
                };
                let action = if number % 2 == 0 {
                    "upgrade"
                } else {
                    "imagepull"
                };
                agent.call("POST", &path(&pod, action), &[header]).await
            })
        });
        let junk: Vec<_> = junk.collect();
        let pull = served.path(1, "imagepull").await?;
        let begin = Instant::now();
        let honest_answer = running.agent.call("POST", &pull, &[]).await?;
        let took = begin.elapsed();
        assert_eq!(honest_answer.status, 200, "{}", honest_answer.text());
        // Clients, agent and API server compete for the same machine, so the limit is generous. It proves only that the request
        // didn't wait until all junk requests had ended.
        assert!(took < SOON, "{took:?}");
        assert_quick(&honest(&running).await?);
        for answer in junk {
            let answer = answer.await??;
            assert!(
                [403, 421, 500].contains(&answer.status.as_u16()),
                "{}",
                answer.status
            );
        }
        // The valid request needs a few API requests. The junk requests must not cause any API request.
        let asked = served.asked() - before;
        assert!(asked <= 4, "{asked} API requests");
        Ok(())
    });
}

/// Invalid requests, each with its name and the expected status.
const TABLE: [(&str, &str, u16); 20] = [
    ("no request", "\r\n\r\n", 408),
    ("not HTTP", "\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
    ("no version", "GET /pods\r\nHost: localhost\r\n\r\n", 400),
    (
        "HTTP/2 without prior talk",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        505,
    ),
    ("HTTP/0.9", "GET /pods HTTP/0.9\r\n\r\n", 400),
    ("no host", "GET /pods HTTP/1.1\r\n\r\n", 400),
    (
        "two hosts",
        "GET /pods HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        400,
    ),
    (
        "foreign host",
        "GET /pods HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
        421,
    ),
    (
        "foreign host in the line",
        "GET http://evil.example.com/pods HTTP/1.1\r\nHost: localhost\r\n\r\n",
        421,
    ),
    (
        "foreign origin",
        "GET /pods HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example.com\r\n\r\n",
        403,
    ),
    (
        "null origin",
        "POST /pods HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n\r\n",
        403,
    ),
    (
        "another site",
        "GET /pods HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n",
        403,
    ),
    (
        "space in the path",
        "GET /po ds HTTP/1.1\r\nHost: localhost\r\n\r\n",
        400,
    ),
    (
        "two lengths",
        "POST /openyurt.io/v1/namespaces/default/pods/x/upgrade HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        400,
    ),
    (
        "length that is none",
        "POST /openyurt.io/v1/namespaces/default/pods/x/upgrade HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        400,
    ),
    (
        "unknown coding",
        "POST /openyurt.io/v1/namespaces/default/pods/x/upgrade HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
        400,
    ),
    (
        "CONNECT",
        "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n",
        405,
    ),
    (
        "TRACE",
        "TRACE /pods HTTP/1.1\r\nHost: localhost\r\n\r\n",
        405,
    ),
    (
        "OPTIONS",
        "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        404,
    ),
    ("old but honest", "GET /pods HTTP/1.0\r\n\r\n", 200),
];

#[test]
fn what_cannot_be_meant_is_answered_with_its_status_and_costs_no_api_request() {
    play(async {
        let served = Served::start(1).await?;
        let running = served.ready_agent(1).await?;
        let before = served.asked();
        let mut wrong = Vec::new();
        for (what, request, expected) in TABLE {
            let found = raw(&running, request.as_bytes()).await?;
            if found != Some(expected) {
                wrong.push(format!("{what}: {found:?} instead of {expected:?}"));
            }
        }
        let long = format!(
            "GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "x".repeat(1 << 20)
        );
        let found = raw(&running, long.as_bytes()).await?;
        if !matches!(found, Some(400..=499) | None) {
            wrong.push(format!("a path of 1 MiB: {found:?}"));
        }
        let headers = format!(
            "GET /pods HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
            "a: b\r\n".repeat(5000)
        );
        let found = raw(&running, headers.as_bytes()).await?;
        if !matches!(found, Some(400..=499) | None) {
            wrong.push(format!("5,000 headers: {found:?}"));
        }
        let body = format!(
            "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n{}",
            path("nothing", "upgrade"),
            "x".repeat(70_000)
        );
        let found = raw(&running, body.as_bytes()).await?;
        if found != Some(413) {
            wrong.push(format!("a body of 70,000 bytes: {found:?}"));
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert_eq!(served.asked(), before);
        assert_quick(&honest(&running).await?);
        Ok(())
    });
}

/// Sends raw bytes on a new connection. Returns the status of the response.
async fn raw(running: &Running, request: &[u8]) -> anyhow::Result<Option<u16>> {
    let mut stream = TcpStream::connect(running.address).await?;
    let _refused_early = stream.write_all(request).await;
    let mut head = [0; 64];
    let read = tokio::time::timeout(SOON, stream.read(&mut head)).await;
    let Ok(Ok(read)) = read else { return Ok(None) };
    let head = String::from_utf8_lossy(&head[..read]).into_owned();
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok(status)
}

#[test]
fn only_this_machine_reaches_it() {
    play(async {
        let served = Served::start(1).await?;
        let running = served.ready_agent(1).await?;
        for other in other_addresses() {
            let reached = TcpStream::connect((other, running.address.port())).await;
            assert!(reached.is_err(), "reached by {other}");
        }
        let default = Command::new(env!("CARGO_BIN_EXE_yurt-ds"))
            .args(["ota-server", "--help"])
            .output()?;
        let help = String::from_utf8(default.stdout)?;
        assert!(help.contains("[default: 127.0.0.1:10267]"), "{help}");
        Ok(())
    });
}

/// Starts the agent of a node with a Unix socket in its home directory and without a TCP port. Waits until it has listed its pods.
async fn at_socket(served: &Served, number: usize) -> anyhow::Result<(Agent, PathBuf, SocketAddr)> {
    let name = node(number);
    let (mut process, socket) = on_socket(served, number)?;
    let probes = process.address().await?;
    let agent = Agent::at_socket(socket.clone(), Mutex::new(process));
    until(&agent, "GET", "/ready", 200).await?;
    assert!(socket.starts_with(served.home(&name)));
    Ok((agent, socket, probes))
}

fn on_socket(served: &Served, number: usize) -> anyhow::Result<(Process, PathBuf)> {
    let name = node(number);
    let socket = served.home(&name).join("ota.sock");
    let mut command = served.command(&name, &name, "none")?;
    command.arg("--socket").arg(&socket);
    command.args(["--socket-mode", "0600", "--probe-listen", ANY_PORT]);
    let process = Process::start(&mut command, served.home(&format!("{name}.log")))?;
    Ok((process, socket))
}

/// Runs `yurt-ds ctl` with this socket and, if given, as this user. Returns the exit code and the output.
fn ctl(
    program: &Path,
    socket: &Path,
    line: &str,
    user: Option<u32>,
) -> anyhow::Result<(i32, String)> {
    let mut command = Command::new(program);
    command.arg("ctl").args(line.split(' '));
    command
        .arg("--server")
        .arg(format!("unix://{}", socket.display()));
    if let Some(user) = user {
        command.uid(user).gid(user).current_dir("/");
    }
    let output = command.output()?;
    let mut text = String::from_utf8(output.stdout)?;
    text += &String::from_utf8(output.stderr)?;
    Ok((output.status.code().context("no exit code")?, text))
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_yurt-ds");

#[test]
fn a_socket_serves_without_the_port_what_the_port_serves() {
    play(async {
        let served = Served::start(2).await?;
        let (agent, socket, probes) = at_socket(&served, 1).await?;
        let mode = std::fs::metadata(&socket)?.permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let before = served.pod_on(1).await?;
        assert_eq!(read(&agent).await?, [before.name_any()]);
        let upgrade = served.path(1, "upgrade").await?;
        let foreign = [("host", "localhost"), ("origin", "http://evil.example")];
        let refused = agent.call("POST", &upgrade, &foreign).await?;
        assert_eq!(refused.status, 403, "{}", refused.text());
        let answer = agent.call("POST", &upgrade, &[("host", "any")]).await?;
        assert!(
            answer.text().starts_with("Start updating pod "),
            "{}",
            answer.text()
        );
        until_replaced(&served, 1, &before).await?;

        // The port for probes must serve neither the list of pods nor actions on them.
        let probes = Agent::at(probes, (), String::new);
        until(&probes, "GET", "/ready", 200).await?;
        until(&probes, "GET", "/live", 200).await?;
        for (method, path) in [
            ("GET", "/pods"),
            ("GET", "/yurt-ds/v1/upgrades"),
            ("POST", &*upgrade),
        ] {
            let answer = probes.call(method, path, &[]).await?;
            let word = answer.header("x-ota-reason");
            assert_eq!(
                (answer.status.as_u16(), word),
                (403, "ProbesOnly"),
                "{path}"
            );
        }

        let (_agent, socket, _) = at_socket(&served, 2).await?;
        let before = served.pod_on(2).await?;
        let (code, text) = ctl(Path::new(PROGRAM), &socket, "pods -o json", None)?;
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(&before.name_any()), "{text}");
        let line = format!("upgrade {NAMESPACE}/{}", before.name_any());
        let (code, text) = ctl(Path::new(PROGRAM), &socket, &line, None)?;
        assert_eq!(code, 0, "{text}");
        until_replaced(&served, 2, &before).await
    });
}

async fn until_replaced(served: &Served, number: usize, before: &Pod) -> anyhow::Result<()> {
    let deadline = Instant::now() + SOON * 2;
    loop {
        match served.pod_on(number).await {
            Ok(pod) if pod.uid() != before.uid() => return Ok(()),
            _ => anyhow::ensure!(
                Instant::now() < deadline,
                "{} is still there",
                before.name_any()
            ),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn a_socket_is_replaced_after_a_kill_and_removed_at_the_end_and_taken_from_no_agent() {
    play(async {
        let served = Served::start(1).await?;
        let (agent, socket, _) = at_socket(&served, 1).await?;
        let (mut second, _) = on_socket(&served, 1)?;
        let ended = second.address().await;
        assert!(ended.is_err(), "two agents on one socket");
        let said = second.log();
        let sentence = format!("cannot listen on the socket {}", socket.display());
        assert!(said.contains(&sentence), "{said}");
        assert!(said.contains("another process listens there"), "{said}");
        assert_eq!(read(&agent).await?.len(), 1);
        drop(agent); // kills the agent by SIGKILL, so that its socket file stays
        assert!(socket.exists());
        let (code, text) = ctl(Path::new(PROGRAM), &socket, "pods", None)?;
        assert_eq!(code, 7, "{text}");
        assert!(text.contains("no process listens on it"), "{text}");
        let (mut process, _) = on_socket(&served, 1)?;
        process.address().await?;
        let (code, text) = ctl(Path::new(PROGRAM), &socket, "pods", None)?;
        assert_eq!(code, 0, "{text}");
        process.end().await?;
        assert!(!socket.exists());
        let (code, text) = ctl(Path::new(PROGRAM), &socket, "pods", None)?;
        assert_eq!(code, 7, "{text}");
        assert!(text.contains("the socket does not exist"), "{text}");
        Ok(())
    });
}

#[test]
fn the_mode_of_a_socket_keeps_other_users_out() {
    play(async {
        let served = Served::start(1).await?;
        let (_agent, socket, _) = at_socket(&served, 1).await?;
        let directory = socket.parent().context("no directory")?;
        if std::fs::metadata(directory)?.uid() != 0 {
            return Ok(()); // only root can run a program as another user, so skip the test
        }
        // Copy socket and program into a directory that the other user can enter. Then the mode of the socket is the only thing
        // that can deny access.
        let open = tempfile::tempdir()?;
        std::fs::set_permissions(open.path(), Permissions::from_mode(0o755))?;
        let program = open.path().join("yurt-ds");
        std::fs::copy(PROGRAM, &program)?;
        let near = open.path().join("ota.sock");
        std::fs::rename(&socket, &near)?;
        let stranger = Some(65_534);
        let (code, text) = ctl(&program, &near, "pods", stranger)?;
        assert_eq!(code, 7, "{text}");
        let why = format!(
            "permission denied; {} belongs to group root and has mode 0600",
            near.display()
        );
        assert!(text.contains(&why), "{text}");
        std::fs::set_permissions(&near, Permissions::from_mode(0o606))?;
        let (code, text) = ctl(&program, &near, "pods", stranger)?;
        assert_eq!(code, 0, "{text}");
        Ok(())
    });
}

#[test]
fn a_loopback_address_in_ipv6_form_serves_this_machine() {
    play(async {
        let served = Served::start(1).await?;
        let log = served.home("mapped.log");
        let mut command = served.command(&node(1), &node(1), "[::ffff:127.0.0.1]:0")?;
        let process = Process::start(&mut command, log)?;
        let port = until_listening(&process).await?;
        let process = Mutex::new(process);
        let agent = Agent::at((Ipv4Addr::LOCALHOST, port).into(), process, String::new);
        until(&agent, "GET", "/ready", 200).await?;
        Ok(())
    });
}

/// Waits until the log of an agent that listens on an IPv6-mapped address contains its port.
async fn until_listening(process: &Process) -> anyhow::Result<u16> {
    let deadline = Instant::now() + SOON * 2;
    loop {
        let log = process.log();
        let after = log.split("[::ffff:127.0.0.1]:").nth(1);
        let digits = after.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        if let Some(port) = digits.and_then(|digits| digits.parse().ok()) {
            return Ok(port);
        }
        anyhow::ensure!(Instant::now() < deadline, "{log}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn an_agent_that_no_owner_could_ask_does_not_start() {
    play(async {
        let served = Served::start(1).await?;
        let ended = served.command(&node(1), &node(1), "none")?.output()?;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success());
        assert!(
            said.contains("--listen is none and --socket is not set"),
            "{said}"
        );
        Ok(())
    });
}
