//! What the owner of a DaemonSet says about nodes that fail: how long and how many may, and what then.

use std::collections::BTreeMap;
use std::time::Duration;

use super::read::{invalid, parse, quoted};
use super::value::duration;
use super::{Invalid, OnFailure, Share};
use crate::core::id::Revision;
use crate::core::names::{
    FAILURE_THRESHOLD, FAILURE_WINDOW, ON_FAILURE, REPLACE_BROKEN_FIRST, RESUME,
};

/// A node that fails a day after its update failed for another reason; a longer value is more likely a wrong unit.
const WINDOW_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

type Annotations = BTreeMap<String, String>;

/// `failure-window`.
pub(super) fn window(annotations: &Annotations) -> Result<Option<Duration>, Invalid> {
    let Some(text) = annotations.get(FAILURE_WINDOW) else {
        return Ok(None);
    };
    let window =
        duration(text, WINDOW_LIMIT).map_err(|flaw| invalid(FAILURE_WINDOW, text, flaw))?;
    Ok(Some(window))
}

/// `failure-threshold`.
pub(super) fn threshold(annotations: &Annotations) -> Result<Option<Share>, Invalid> {
    let text = annotations.get(FAILURE_THRESHOLD);
    text.map(|text| parse(FAILURE_THRESHOLD, text)).transpose()
}

/// `replace-broken-first`: whether all of them go at once.
pub(super) fn broken(annotations: &Annotations) -> Result<bool, Invalid> {
    match annotations.get(REPLACE_BROKEN_FIRST).map(String::as_str) {
        None => Ok(false),
        Some("unlimited") => Ok(true),
        Some(text) => Err(refused(
            REPLACE_BROKEN_FIRST,
            text,
            "which is not known here; use unlimited, or remove it: then nodes whose old pod is broken go first, within \
             max-unavailable",
        )),
    }
}

/// `on-failure`.
pub(super) fn reaction(annotations: &Annotations) -> Result<OnFailure, Invalid> {
    let Some(text) = annotations.get(ON_FAILURE) else {
        return Ok(OnFailure::Stop);
    };
    let why = match text.as_str() {
        "Stop" => return Ok(OnFailure::Stop),
        "RevertInPlace" => return Ok(OnFailure::RevertInPlace),
        "RevertSpec" => {
            "which is not offered: it would change the template behind the back of whoever owns it; use RevertInPlace, \
             which takes the pods back and leaves the template alone, or Stop, and go back with yurt-ds ctl undo"
        }
        _ => "which is not known here; use Stop or RevertInPlace",
    };
    Err(refused(ON_FAILURE, text, why))
}

/// `resume`: the hash of a revision, as `controller-revision-hash` on its pods.
pub(super) fn resume(annotations: &Annotations) -> Result<Option<Revision>, Invalid> {
    let Some(text) = annotations.get(RESUME) else {
        return Ok(None);
    };
    let is_hash = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !text.is_empty() && text.len() <= 63 && text.bytes().all(plain)
    };
    match is_hash(text) {
        true => Ok(Some(text.as_str().into())),
        false => Err(refused(
            RESUME,
            text,
            "which is no hash of a revision; use the one that the condition Stalled names, or yurt-ds ctl resume",
        )),
    }
}

fn refused(key: &str, value: &str, why: &str) -> Invalid {
    Invalid {
        key: key.into(),
        value: quoted(value),
        why: why.into(),
    }
}
