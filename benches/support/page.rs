//! Reads `/ready` and `/metrics` of the controller over plain HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns a loopback address whose port was free a moment ago. Another process may have taken the port since.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Returns true if a process at this address reports that it is ready.
pub(crate) fn is_ready(address: SocketAddr) -> bool {
    get(address, "/ready").is_ok()
}

/// Number of the controller's decisions, and their total duration.
#[derive(Clone, Copy)]
pub(crate) struct Decisions {
    pub(crate) count: f64,
    pub(crate) seconds: f64,
}

impl Decisions {
    /// Returns the decisions so far, from the metrics.
    pub(crate) fn of(address: SocketAddr) -> Result<Self> {
        let page = get(address, "/metrics")?;
        Ok(Self {
            count: sample(&page, "yurt_ds_decide_duration_seconds_count")?,
            seconds: sample(&page, "yurt_ds_decide_duration_seconds_sum")?,
        })
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            count: self.count - before.count,
            seconds: self.seconds - before.seconds,
        }
    }
}

/// Returns the value of the metric with this name that has no labels.
fn sample(page: &str, name: &str) -> Result<f64> {
    let mut lines = page.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.with_context(|| format!("{name} is not at /metrics"))?;
    Ok(value.trim().parse()?)
}

/// Returns the body of a response with status 200.
fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP")?;
    ensure!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
    Ok(body.to_owned())
}
