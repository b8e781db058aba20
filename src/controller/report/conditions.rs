//! Conditions as they stand and as they should be.

use crate::core::foreign::{cut, shown};
use crate::k8s::Condition;

/// The condition of that type.
pub(super) fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Whether they differ at most in when.
pub(super) fn says_the_same(a: &Condition, b: &Condition) -> bool {
    (&a.status, &a.reason, &a.message) == (&b.status, &b.reason, &b.message)
}

/// A condition that has nothing to say while it does not hold.
pub(super) fn or_not(kind: &str, holds: bool, reason: &str, not: &str, message: &str) -> Condition {
    if holds {
        condition(kind, true, reason, message)
    } else {
        condition(kind, false, not, "")
    }
}

/// Most characters of a condition. What is longer is shown by `ctl status`.
pub(super) const LONGEST: usize = 200;

/// Returns as much of a message as a condition has.
pub(super) fn short(message: &str) -> String {
    cut(message, LONGEST - 1).into_owned()
}

/// A condition as it should be; when it changed is found out where it is written.
pub(super) fn condition(kind: &str, status: bool, reason: &str, message: &str) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: shown(message).into_owned(),
        last_transition: None,
        last_probe: None,
    }
}
