//! TCP connections of a process, as the kernel lists them.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use super::process::Process;

/// State `ESTABLISHED` in `/proc/PID/net/tcp`.
const ESTABLISHED: &str = "01";

/// Returns the number of established connections from this process to this port on any host.
pub(crate) fn to_port(process: &Process, port: u16) -> Result<usize> {
    let sockets = sockets(&process.folder())?;
    let mut count = 0;
    for table in ["net/tcp", "net/tcp6"] {
        let table = std::fs::read_to_string(process.folder().join(table)).unwrap_or_default();
        let established = table.lines().filter_map(|line| established(line, port));
        count += established.filter(|inode| sockets.contains(*inode)).count();
    }
    Ok(count)
}

pub(crate) fn server_port(kubeconfig: &Path) -> Result<u16> {
    let file = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let mut clusters = file.clusters.into_iter();
    let server = clusters.find_map(|named| named.cluster?.server);
    let server: http::Uri = server.context("a cluster in the kubeconfig")?.parse()?;
    server.port_u16().context("a port in the server's address")
}

/// Returns the inodes of a process's open sockets, except sockets that close during the call.
fn sockets(folder: &Path) -> Result<BTreeSet<String>> {
    let mut inodes = BTreeSet::new();
    for entry in std::fs::read_dir(folder.join("fd"))? {
        let target = std::fs::read_link(entry?.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[");
        inodes.extend(
            inode
                .and_then(|inode| inode.strip_suffix(']'))
                .map(str::to_owned),
        );
    }
    Ok(inodes)
}

/// Returns the socket inode from a line of `/proc/PID/net/tcp`; `None` unless it is an established connection to this port.
fn established(line: &str, port: u16) -> Option<&str> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let remote = fields.get(2)?.rsplit_once(':')?.1;
    let is_meant = u16::from_str_radix(remote, 16) == Ok(port) && *fields.get(3)? == ESTABLISHED;
    fields.get(9).copied().filter(|_| is_meant)
}
