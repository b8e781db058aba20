//! What was typed behind `cargo bench --bench rollout --`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use super::kind::Kind;
use super::process::own_binary;

const EXPECTED: &str = "expected --nodes N[,N...], --daemonsets D, --advanced, --against PATH, --runs R, --at-rest, --churn, \
                        --revisions or --memory";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measurement {
    /// Rollouts of one DaemonSet: the native controller's, ours, and ours with one setting after the other.
    Cases,
    /// One rollout of all DaemonSets at once.
    Rollout,
    /// A start and a minute at rest.
    AtRest,
    /// One rollout while nodes join and leave.
    Churn,
    /// The memory of a start, with and without large ControllerRevisions of other owners.
    Revisions,
    /// The memory with pods of other owners.
    Memory,
}

/// What is measured, of which binaries, and on how much.
pub(crate) struct Options {
    /// How many nodes there are; several sizes are measured in this order, the smallest first.
    pub(crate) nodes: Vec<usize>,
    /// How many DaemonSets have a pod on each of them.
    pub(crate) daemonsets: usize,
    /// Which DaemonSets they are.
    pub(crate) kind: Kind,
    /// The binaries that are compared: this build's, then the other one, if any.
    pub(crate) binaries: Vec<PathBuf>,
    /// How often each binary is measured.
    pub(crate) runs: usize,
    /// What is measured.
    pub(crate) measurement: Measurement,
}

/// The flags as they were found.
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
    /// Reads the command line.
    ///
    /// # Errors
    /// Names the flag that is not known or cannot be used, and says what is expected.
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

    /// Refuses what a measurement would not heed.
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

    /// Whether it is said how much is measured of which binaries.
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

    /// What is measured when no flag names it: the cases, unless something was asked for that they do not have.
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
