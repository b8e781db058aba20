//! What the machine of a test run is good for: how far it searches, and how much longer everything may take on a busy one. The
//! unit tests have this file, too.
//!
//! What tries a great deal (the model, the properties, every scenario on several clusters) tries a share of it, so that a
//! newcomer waits for minutes and not for a quarter of an hour. `YURT_DS_DEEP=1` asks for all of it, as `.ci/run` does for the
//! properties; `YURT_DS_DEEP=10` for ten times as many states of the model and cases of the properties.
#![allow(dead_code, reason = "each of the two needs a part of it")]

/// Names the depth.
const DEEP: &str = "YURT_DS_DEEP";

/// How many times as long as on a quiet machine something may take before a test says that it takes too long. Beside a rollout on a
/// real control plane, the other tests and eight programs that only compute, some fifteen want one of two cores: each waits
/// eight times as long, and now and then more than twice that.
pub(crate) const BUSY: u32 = 20;

/// Whether everything is to be tried.
pub(crate) fn is_deep() -> bool {
    times() > 0
}

/// How many of something are tried: a share, or all of them as many times as asked for.
pub(crate) fn limit(share: usize, all: usize) -> usize {
    match times() {
        0 => share,
        times => all.saturating_mul(times),
    }
}

/// Whether the environment says something under that name.
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
