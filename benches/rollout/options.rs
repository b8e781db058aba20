//! Flags after `cargo bench --bench rollout --`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use super::kind::Kind;
use super::process::own_binary;

const EXPECTED: &str = "expected --nodes N[,N...], --daemonsets D, --advanced, --against PATH, --runs R, --at-rest, --churn, \
                        --revisions or --memory";

/// Measurements that the flags can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measurement {
    /// Rollouts of one DaemonSet: by the native controller, by yurt-ds, and by yurt-ds with different settings.
    Cases,
    /// One rollout of all DaemonSets at the same time.
    Rollout,
    /// Start of a controller, and an idle minute after it.
    AtRest,
    /// One rollout while nodes join and leave.
    Churn,
    /// Memory of a controller after its start, with and without large ControllerRevisions of other owners.
    Revisions,
    /// Memory of a controller in a cluster with many pods of other controllers.
    Memory,
}

/// Parsed options: measurement, binaries and sizes.
pub(crate) struct Options {
    /// Numbers of nodes to measure, in ascending order.
    pub(crate) nodes: Vec<usize>,
    /// Number of DaemonSets. Each has a pod on every node.
    pub(crate) daemonsets: usize,
    pub(crate) kind: Kind,
    /// Binaries to compare: the one of this build and, with `--against`, another one.
    pub(crate) binaries: Vec<PathBuf>,
    /// Number of measurements per binary.
    pub(crate) runs: usize,
    pub(crate) measurement: Measurement,
}

/// Command-line flags, parsed but not yet checked.
#[derive(Default)]
struct Flags {
    nodes: Vec<usize>,
    daemonsets: Option<usize>,
    advanced: bool,
    against: Option<PathBuf>,
    runs: Option<usize>,
    measurement: Option<Measurement>,
}

impl Options {
    /// Parses the command line.
    ///
    /// # Errors
    /// Returns an error if a flag is unknown or its value is invalid. The message names the flag and the expected value.
    pub(crate) fn read() -> Result<Self> {
        let flags = Flags::read(std::env::args().skip(1))?;
        let measurement = flags.measurement();
        flags.check(measurement)?;
        let other = flags.against.is_some();
        Ok(Self {
            nodes: if flags.nodes.is_empty() {
                vec![1_000]
            } else {
                flags.nodes
            },
            daemonsets: flags.daemonsets.unwrap_or(1),
            kind: if flags.advanced {
                Kind::Advanced
            } else {
                Kind::Native
            },
            binaries: std::iter::once(own_binary()).chain(flags.against).collect(),
            runs: flags.runs.unwrap_or(if other { 5 } else { 1 }),
            measurement,
        })
    }
}

impl Flags {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut flags = Self::default();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                let value = arguments.next();
                value.with_context(|| format!("{argument} needs a value; {EXPECTED}"))
            };
            match argument.as_str() {
                "--nodes" => flags.nodes = sizes(&value()?)?,
                "--daemonsets" => flags.daemonsets = Some(number("--daemonsets", &value()?)?),
                "--runs" => flags.runs = Some(number("--runs", &value()?)?),
                "--against" => flags.against = Some(binary(&value()?)?),
                "--advanced" => flags.advanced = true,
                "--at-rest" => flags.measure(Measurement::AtRest)?,
                "--churn" => flags.measure(Measurement::Churn)?,
                "--revisions" => flags.measure(Measurement::Revisions)?,
                "--memory" => flags.measure(Measurement::Memory)?,
                "--bench" => {}
                other => bail!("{other}: {EXPECTED}"),
            }
        }
        Ok(flags)
    }

    /// Rejects flags that have no effect on this measurement.
    fn check(&self, measurement: Measurement) -> Result<()> {
        let sizes = self.nodes.len();
        let others = self.compares() || self.advanced;
        match measurement {
            Measurement::Revisions if sizes > 1 => {
                bail!("--nodes: expected one number with --revisions")
            }
            Measurement::Churn if sizes > 1 || self.compares() => {
                bail!("--churn: expected --advanced and one number of --nodes beside it")
            }
            Measurement::Memory if sizes > 0 || others => {
                bail!("--memory: expected no other flag beside it")
            }
            _ => Ok(()),
        }
    }

    /// Returns true if a flag sets the number of DaemonSets, the number of runs, or another binary.
    fn compares(&self) -> bool {
        self.daemonsets.or(self.runs).is_some() || self.against.is_some()
    }

    fn measure(&mut self, measurement: Measurement) -> Result<()> {
        let before = self.measurement.replace(measurement);
        ensure!(
            before.is_none_or(|before| before == measurement),
            "expected one of --at-rest, --churn, --revisions and --memory"
        );
        Ok(())
    }

    /// Returns the measurement that the flags select: `Cases` by default, `Rollout` if other flags require it.
    fn measurement(&self) -> Measurement {
        let rollout = self.compares() || self.nodes.len() > 1 || self.advanced;
        self.measurement.unwrap_or(if rollout {
            Measurement::Rollout
        } else {
            Measurement::Cases
        })
    }
}

fn sizes(text: &str) -> Result<Vec<usize>> {
    let sizes = text.split(',').map(|size| number("--nodes", size));
    let mut sizes = sizes.collect::<Result<Vec<_>>>()?;
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

fn number(flag: &str, text: &str) -> Result<usize> {
    let number = text.parse::<NonZeroUsize>();
    let number = number.with_context(|| format!("{flag} {text}: expected a number from 1 on"))?;
    Ok(number.get())
}

fn binary(path: &str) -> Result<PathBuf> {
    let found = std::fs::canonicalize(path);
    found.with_context(|| format!("--against {path}: expected a binary of yurt-ds"))
}
