//! Conditions of releases before 0.2, which stored the state of a rollout in their messages.
//!
//! These conditions are parsed only if the condition `RolloutState` is missing. The first report of this release writes it. This
//! module can be removed after release 0.2 (2027-06).
//!
//! The texts in this module are those of commit f471909 and later commits up to 0.2. They must not change.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::core::engine::timeouts::BEHIND_PATIENCE;
use crate::core::names::{
    GUARD, INVALID_SETTINGS, PAUSED_CONDITION, PROGRESSING, REFUSED, ROLLOUT_COMPLETE, STALLED,
};
use crate::core::rollout_state::{
    FailingPods, FailureGroup, Reported, ReportedFailures, ReportedPause,
};
use crate::core::{
    FailureRecord, NodeName, PauseRecord, PodName, Revision, RolloutState, Stopped, WriteVerb,
    instant,
};
use crate::k8s::Condition;

/// Reason in conditions while the current revision was unknown.
const NATIVE_BEHIND: &str = "NativeControllerBehind";
/// Prefix of the previous revision in messages while the current revision was unknown.
const AFTER: &str = "after ";
/// End of a list of node names that was cut.
const OTHERS: &str = " and others";

/// Returns the state of the rollout from these conditions; `None` if yurt-ds wrote none of them.
pub(super) fn read(conditions: &[Condition]) -> Option<RolloutState> {
    let find = |kind: &str| conditions.iter().find(|told| told.kind == kind);
    let holding = |kind: &str| find(kind).filter(|told| told.status == "True");
    let said = |kind: &str| find(kind).map_or("", |told| told.message.as_str());
    let complete = find(ROLLOUT_COMPLETE);
    let stalled = holding(STALLED);
    // If both conditions exist, they have the same reason.
    let reason = complete.or(stalled).map_or("", |told| told.reason.as_str());
    // Without any of these conditions, yurt-ds has not reported anything yet.
    find(GUARD)
        .or(complete)
        .or(stalled)
        .or(find(PAUSED_CONDITION))
        .or(find(REFUSED))?;
    let stalled_since = stalled.and_then(|told| Some(told.last_transition.as_ref()?.0));
    let behind_since = match (reason == NATIVE_BEHIND, stalled_since) {
        (false, _) => None,
        (true, Some(since)) => Some(instant::earlier(since, BEHIND_PATIENCE)),
        (true, None) => behind_since(said(ROLLOUT_COMPLETE)),
    };
    let messages = conditions.iter().map(|told| told.message.as_str());
    Some(RolloutState {
        reported: Reported {
            revision: about(said(ROLLOUT_COMPLETE)).or_else(|| about(said(STALLED))),
            complete: holding(ROLLOUT_COMPLETE).is_some(),
            reason: reason.into(),
            stalled_since,
            behind_since,
            advised: stalled.and_then(|told| advised(&told.message)),
            ..Reported::default()
        },
        guard: find(GUARD)
            .and_then(|told| record(told.status == "True", &told.reason, &told.message)),
        pause: holding(PAUSED_CONDITION)
            .and_then(|told| Some(pause(told.last_transition.as_ref()?.0, &told.message))),
        refused: find(REFUSED)
            .and_then(|told| refusals(&told.message, told.last_transition.as_ref()?.0)),
        not_created: not_created(said(PROGRESSING)).map(Arc::from),
        not_ready: messages.flat_map(not_ready).collect(),
        failing: stalled
            .and_then(|told| failing(&told.message))
            .into_iter()
            .collect(),
        invalid: holding(INVALID_SETTINGS).map(|told| told.message.as_str().into()),
        ..RolloutState::default()
    })
}

/// Returns the revision that a message names at its beginning.
fn about(message: &str) -> Option<Revision> {
    let (head, _) = message.split_once(':')?;
    let head = head.strip_prefix(AFTER).unwrap_or(head);
    head.strip_prefix("revision ").map(Revision::from)
}

/// Returns the time since which the current revision is unknown.
fn behind_since(message: &str) -> Option<Timestamp> {
    let (_, since) = message.split_once(" since ")?;
    since.split_once(": ")?.0.parse().ok()
}

/// Returns the number of the revision that a message about a stalled rollout recommends for a rollback.
fn advised(message: &str) -> Option<i64> {
    let (_, number) = message.split_once(" --to-revision ")?;
    let end = number.find(|c: char| !c.is_ascii_digit());
    number[..end.unwrap_or(number.len())].parse().ok()
}

/// Parses the message about a pause that began at `since`.
fn pause(since: Timestamp, message: &str) -> ReportedPause {
    let days = message.split_once(", reminded after ");
    let days = days.and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    let newcomers = message.split_once("; nodes that got it meanwhile: ");
    let newcomers = newcomers.map_or("", |(_, names)| names);
    let names = newcomers.strip_suffix(OTHERS).unwrap_or(newcomers);
    ReportedPause {
        record: PauseRecord {
            since,
            reminded: days.unwrap_or_default(),
        },
        newcomers: read_names(names).0.into_iter().collect(),
        more: newcomers.ends_with(OTHERS),
    }
}

/// Parses the message about writes that have been rejected since `since`. Each line is about one kind of write and one message of
/// the API server.
fn refusals(message: &str, since: Timestamp) -> Option<ReportedFailures> {
    let (revision, rest) = message.strip_prefix("revision ")?.split_once(": ")?;
    let group = |line: &str| {
        let (write, rest) = REFUSED_WRITES.iter().find_map(|(write, words)| {
            let rest = line.strip_prefix(words)?.strip_prefix(" on ")?;
            Some((*write, rest))
        })?;
        let (names, said) = rest.split_once(": ")?;
        let named = names.strip_suffix(OTHERS).unwrap_or(names);
        Some(FailureGroup {
            write,
            message: said.into(),
            nodes: read_names(named).0.into_iter().collect(),
            more: names.ends_with(OTHERS),
        })
    };
    Some(ReportedFailures {
        revision: Some(revision.into()),
        since,
        writes: rest.lines().filter_map(group).collect(),
    })
}

const REFUSED_WRITES: [(WriteVerb, &str); 9] = [
    (WriteVerb::Delete, "delete pods"),
    (WriteVerb::Evict, "evict pods"),
    (WriteVerb::UpdateInPlace, "update pods in place"),
    (WriteVerb::Revert, "roll pods back in place"),
    (WriteVerb::Mark, "mark pods PreparingDelete"),
    (
        WriteVerb::TransferOwnership,
        "hand pods over to the DaemonSet",
    ),
    (WriteVerb::Create, "create pods"),
    (WriteVerb::Unmark, "take marks off pods"),
    (WriteVerb::Tell, "patch the conditions of pods"),
];

/// Returns the error that kept pods, or their ControllerRevision, from being created.
fn not_created(message: &str) -> Option<&str> {
    if let Some((_, rest)) = message.split_once(" (the API server refuses it: ") {
        return rest.rsplit_once("; it is tried again)").map(|(why, _)| why);
    }
    let (_, rest) = message.split_once(" cannot create pods on ")?;
    let (_, rest) = rest.split_once(": ")?;
    rest.rsplit_once(" (Events with reason FailedCreate)")
        .map(|(why, _)| why)
}

/// Returns the reasons why pods don't become available, by pod.
fn not_ready(message: &str) -> BTreeMap<PodName, Arc<str>> {
    const SAYS: &str = " (says ";
    let mut found = BTreeMap::new();
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(" does not become available: ") {
        rest = after;
        let pod = before.rsplit_once("pod ").map_or("", |(_, pod)| pod);
        let end = after
            .split_once(SAYS)
            .and_then(|(why, by)| Some(why.len() + SAYS.len() + by.find(')')? + 1));
        if let Some(end) = end.filter(|_| !pod.is_empty() && !pod.contains(' ')) {
            found.insert(pod.into(), after[..end].into());
        }
    }
    found
}

/// Returns the nodes on which new pods end or don't start, with the cause.
fn failing(message: &str) -> Option<FailingPods> {
    let before_nodes = [" may): ", " may by now): ", "the new pods do not start on "];
    let mut rest = before_nodes
        .iter()
        .filter_map(|words| message.split_once(words));
    let (_, rest) = rest.next()?;
    let (nodes, rest) = rest
        .split_once(" (")
        .filter(|(nodes, _)| !nodes.contains(';'))?;
    let (why, _) = rest.split_once(')')?;
    let (reason, said) = why.split_once(": ").unwrap_or((why, ""));
    Some(FailingPods {
        reason: reason.into(),
        message: said.into(),
        nodes: read_names(nodes).0.into_iter().collect(),
    })
}

const EXCEEDED: &str = "more nodes failed than may";
const BACK: &str = "back to: ";
const FAILED: &str = "failed: ";
const BROKEN: &str = "broken before: ";
const TWICE: &str = "replaced twice: ";
const TOUCHED: &str = "lost while touched: ";
const JUDGED: &str = "being judged: ";
const LOST: &str = "lost: ";
const BESIDE: &str = "lost beside: ";
const SINCE: &str = " since ";
const STOPPED: &str = "stopped before: ";
const WAVE: &str = "in wave ";

/// Returns the guard's record, parsed from the status (`True` or not), reason and message of its condition.
fn record(status: bool, reason: &str, message: &str) -> Option<FailureRecord> {
    let (revision, parts) = message.strip_prefix("revision ")?.split_once(": ")?;
    let mut record = FailureRecord::new(revision.into());
    record.stopped = if status {
        Some(Stopped::from_word(reason)?)
    } else {
        None
    };
    for part in parts.split("; ") {
        if part == EXCEEDED {
            record.exceeded = true;
        } else if let Some(before) = part.strip_prefix(BACK) {
            record.before = Some(before.into());
        } else if let Some(names) = part.strip_prefix(FAILED) {
            (record.failed, record.more) = read_names(names);
        } else if let Some(names) = part.strip_prefix(BROKEN) {
            record.broken_before = read_names(names).0;
        } else if let Some(names) = part.strip_prefix(TWICE) {
            record.replaced_twice = read_names(names).0;
        } else if let Some(names) = part.strip_prefix(TOUCHED) {
            record.updated_before_loss = read_names(names).0;
        } else if let Some((wave, names)) =
            (part.strip_prefix(WAVE)).and_then(|part| part.split_once(": "))
        {
            record.waves.insert(wave.into(), read_names(names).0);
        } else if let Some(revisions) = part.strip_prefix(STOPPED) {
            record.stopped_before = revisions.split(", ").map(Revision::from).collect();
        } else if let Some(names) = part.strip_prefix(BESIDE) {
            record.control_group = read_dated(names);
        } else if let Some(names) = part
            .strip_prefix(JUDGED)
            .or_else(|| part.strip_prefix(LOST))
        {
            record.lost.extend(read_dated(names));
        }
    }
    Some(record)
}

/// Parses a list of node names, which contain neither spaces nor commas.
fn read_names(text: &str) -> (BTreeSet<NodeName>, usize) {
    let (names, more) = match text.rsplit_once(" and ") {
        Some((names, more)) => (names, more.strip_suffix(" more")),
        None => match text.strip_suffix(" more") {
            Some(more) => ("", Some(more)),
            None => (text, None),
        },
    };
    let names = names.split(", ").filter(|name| !name.is_empty());
    let more = more.and_then(|more| more.parse().ok()).unwrap_or(0);
    (names.map(NodeName::from).collect(), more)
}

/// Parses a list of names with timestamps. A name without a timestamp is skipped.
fn read_dated(text: &str) -> BTreeMap<NodeName, Timestamp> {
    let dated = |part: &str| {
        let (name, since) = part.split_once(SINCE)?;
        Some((NodeName::from(name), since.parse().ok()?))
    };
    text.split(", ").filter_map(dated).collect()
}

#[cfg(test)]
mod tests;
