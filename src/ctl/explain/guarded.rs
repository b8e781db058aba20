//! What the guard has to do with a node, in words.

use super::{age, pod_name, trouble_word, trouble_words};
use crate::core::{Cause, Guarded, Node, Stopped};
use crate::ctl::picture::Picture;

pub(super) fn failed(node: &Node, cause: Cause) -> (Option<String>, String) {
    let pod = pod_name(node);
    match cause {
        Cause::NodeLost => (
            Some("NotReady".into()),
            "turned NotReady soon after it got the current revision".to_owned(),
        ),
        Cause::Crashing => (
            trouble_word(node),
            format!("has its new pod{pod}, which crashes{}", trouble_words(node)),
        ),
        Cause::NotStarting => (
            trouble_word(node),
            format!(
                "has its new pod{pod}, which does not start{}",
                trouble_words(node)
            ),
        ),
    }
}

pub(super) fn guarded_words(picture: &Picture, guarded: Guarded) -> (Option<String>, String) {
    let counts = &picture.plan.counts;
    match guarded {
        Guarded::Stopped(stopped @ Stopped::FailedByRevision) => (
            Some(stopped.word().into()),
            format!(
                "is outdated, and the guard stopped this revision: {} failed after they got it, {} may",
                counts.failures, counts.threshold
            ),
        ),
        Guarded::Stopped(stopped @ Stopped::ReplacedTwice) => (
            Some(stopped.word().into()),
            format!(
                "is outdated, and the guard stopped this revision: the pods on {} were replaced twice for it and are \
                 outdated again",
                replaced_twice(picture)
            ),
        ),
        Guarded::Inconclusive { until } => (
            Some("Inconclusive".into()),
            format!(
                "is outdated, and nothing new begins for {}: nodes were lost, and it is open whether this revision or the \
                 network took them away",
                age::between(picture.now, until)
            ),
        ),
    }
}

/// The nodes of which the circuit breaker speaks.
fn replaced_twice(picture: &Picture) -> String {
    let record = picture.plan.record.iter();
    let nodes = record.flat_map(|record| &record.replaced_twice);
    nodes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
