//! Measured program as a separate process, and the kernel's figures about it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Returns the path of the yurt-ds binary: the one in `YURT_DS`, or else the one of this build.
pub(crate) fn own_binary() -> PathBuf {
    let other = std::env::var_os("YURT_DS");
    other
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_yurt-ds").into())
        .into()
}

/// Process of yurt-ds. It is killed when dropped.
pub(crate) struct Process(Child);

impl Process {
    /// Starts the binary of [`own_binary`] with these arguments on this cluster.
    pub(crate) fn start(arguments: &[&str], kubeconfig: &Path) -> Result<Self> {
        Self::start_binary(&own_binary(), arguments, kubeconfig)
    }

    /// Starts this yurt-ds binary with these arguments.
    pub(crate) fn start_binary(
        binary: &Path,
        arguments: &[&str],
        kubeconfig: &Path,
    ) -> Result<Self> {
        let mut command = Command::new(binary);
        command.args(arguments).arg("--kubeconfig").arg(kubeconfig);
        let child = command.stderr(Stdio::null()).spawn();
        Ok(Self(child.with_context(|| binary.display().to_string())?))
    }

    /// Returns the process's folder in `/proc`.
    pub(crate) fn folder(&self) -> PathBuf {
        format!("/proc/{}", self.0.id()).into()
    }

    /// Returns the process's user and system CPU time in seconds.
    pub(crate) fn cpu(&self) -> Result<f64> {
        cpu_of(&self.folder())
    }

    /// Returns a memory figure in MiB. `VmHWM` is the peak memory, `VmRSS` the resident memory, and `RssAnon` the part of the
    /// resident memory that no file backs.
    pub(crate) fn memory(&self, field: &str) -> Result<f64> {
        let status = std::fs::read_to_string(self.folder().join("status"))?;
        let line = status.lines().find(|line| line.starts_with(field));
        let value = line.and_then(|line| line.split_whitespace().nth(1));
        let kib: f64 = value.with_context(|| field.to_owned())?.parse()?;
        Ok(kib / 1024.0)
    }
}

/// Returns the user and system CPU time of the process with this folder in `/proc`, in seconds.
pub(crate) fn cpu_of(folder: &Path) -> Result<f64> {
    let stat = std::fs::read_to_string(folder.join("stat"))?;
    let after = stat.rsplit_once(')').context("/proc/PID/stat")?.1;
    let ticks = |field: usize| {
        after
            .split_whitespace()
            .nth(field)
            .and_then(|text| text.parse::<f64>().ok())
    };
    Ok((ticks(11).context("utime")? + ticks(12).context("stime")?) / 100.0)
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}
