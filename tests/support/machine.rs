//! Depth of a test run, and time limits on a busy machine. The unit tests share this file.
//!
//! Three kinds of tests are expensive: the model, the properties, and scenarios on several variants of the cluster. By default,
//! they try only a sample, so that a run takes minutes instead of a quarter of an hour. `YURT_DS_DEEP=1` tries everything, as
//! `.ci/run` does for the properties. `YURT_DS_DEEP=10` tries ten times as many states of the model and cases of the properties.
#![allow(dead_code, reason = "each of the two needs a part of it")]

/// Environment variable that sets the depth of a run.
const DEEP: &str = "YURT_DS_DEEP";

/// Factor by which an operation may take longer than on a quiet machine before a test fails.
///
/// If a rollout on a real control plane, other tests and eight compute-bound programs run in parallel, about fifteen processes
/// compete for two cores. Each of them then takes eight times as long, and occasionally more than sixteen times.
pub(crate) const BUSY: u32 = 20;

/// Returns true in a deep run, which tries everything.
pub(crate) fn is_deep() -> bool {
    times() > 0
}

/// Returns the number of cases to try: `share` by default, and `all` times `YURT_DS_DEEP` in a deep run.
pub(crate) fn limit(share: usize, all: usize) -> usize {
    match times() {
        0 => share,
        times => all.saturating_mul(times),
    }
}

pub(crate) fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

fn times() -> usize {
    let asked = std::env::var(DEEP).unwrap_or_default();
    let asked = asked.trim();
    let times = if asked.is_empty() {
        Ok(0)
    } else {
        asked.parse()
    };
    times.unwrap_or_else(|_| panic!("{DEEP}={asked}: not a whole number; 1 is what CI tries"))
}
