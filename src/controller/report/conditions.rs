//! Functions that find, compare and build conditions.

use crate::core::foreign::{cut, shown};
use crate::k8s::Condition;

pub(super) fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Returns true if two conditions are equal except for their times.
pub(super) fn says_the_same(a: &Condition, b: &Condition) -> bool {
    (&a.status, &a.reason, &a.message) == (&b.status, &b.reason, &b.message)
}

/// Returns a condition with status `holds`. If `holds` is false, the reason is `not` and the message is empty.
pub(super) fn or_not(kind: &str, holds: bool, reason: &str, not: &str, message: &str) -> Condition {
    if holds {
        condition(kind, true, reason, message)
    } else {
        condition(kind, false, not, "")
    }
}

/// Maximum length of a condition's message, in characters. `ctl status` shows longer messages in full.
pub(super) const LONGEST: usize = 200;

/// Returns the message, shortened to the maximum length.
pub(super) fn short(message: &str) -> String {
    cut(message, LONGEST - 1).into_owned()
}

/// Returns a desired condition. Its transition time is set when the condition is written.
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
