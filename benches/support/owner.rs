//! Node owner that sends requests on one connection, one after another, like a small program on a device.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::plane::now;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Connection to the agent of the node.
pub(crate) struct Owner {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Number of received bytes in the buffer.
    filled: usize,
}

/// Response of the agent.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    /// Length of the body in bytes.
    pub(crate) length: usize,
}

impl Owner {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self {
            stream,
            buffer: vec![0; 1 << 20],
            filled: 0,
        })
    }

    /// Sends a request and waits for the response.
    pub(crate) fn ask(&mut self, request: &str) -> Result<Answer> {
        self.send(request)?;
        self.hear()
    }

    /// Sends a request without waiting for the response.
    pub(crate) fn send(&mut self, request: &str) -> Result<()> {
        Ok(self.stream.write_all(request.as_bytes())?)
    }

    /// Waits for the response to a request.
    pub(crate) fn hear(&mut self) -> Result<Answer> {
        let end = loop {
            let head = self.buffer[..self.filled].windows(4);
            if let Some(position) = head.take(4096).position(|bytes| bytes == b"\r\n\r\n") {
                break position + 4;
            }
            self.read()?;
        };
        let head = std::str::from_utf8(&self.buffer[..end])?;
        let status = head.split(' ').nth(1).context("a status")?.parse()?;
        let header = |name: &str| {
            let mut lines = head.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        let length = header("content-length").map_or(Ok(0), str::parse)?;
        let etag = header("etag").map(str::to_owned);
        ensure!(end + length <= self.buffer.len(), "{length} bytes");
        while self.filled < end + length {
            self.read()?;
        }
        self.buffer.copy_within(end + length..self.filled, 0);
        self.filled -= end + length;
        Ok(Answer {
            status,
            etag,
            length,
        })
    }

    fn read(&mut self) -> Result<()> {
        let read = self.stream.read(&mut self.buffer[self.filled..])?;
        ensure!(read > 0, "the connection was closed");
        self.filled += read;
        Ok(())
    }
}

/// Returns a request without a body.
pub(crate) fn request(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n")
}

/// Response times, shortest first.
pub(crate) struct Times(Vec<Duration>);

impl Times {
    /// Sends these requests on the owner's connection, one after another, and measures each.
    pub(crate) fn measure<'a>(
        owner: &mut Owner,
        requests: impl IntoIterator<Item = &'a str>,
        expected: u16,
    ) -> Result<Self> {
        let asked = requests.into_iter().map(|request| {
            let start = now();
            let answer = owner.ask(request)?;
            let time = start.elapsed();
            let line = request.lines().next().unwrap_or_default();
            ensure!(answer.status == expected, "{line}: {}", answer.status);
            Ok(time)
        });
        Ok(Self::sorted(asked.collect::<Result<_>>()?))
    }

    /// Returns response times that other code has measured.
    pub(crate) fn sorted(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self(times)
    }

    /// Returns this percentile of the response times, in milliseconds: the time that this percentage of requests didn't exceed.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let position = (self.0.len() * percent).div_ceil(100).max(1) - 1;
        self.0.get(position).map_or(f64::NAN, milliseconds)
    }
}

fn milliseconds(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
