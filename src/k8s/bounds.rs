//! Limits on the parts of an object that are kept, so that a single object cannot use up the memory.

use serde_json::Value;

use super::condition::Condition;
use crate::core::eligibility::Scheduling;
use crate::core::fleet::in_place::Shape;
use crate::core::foreign::beginning;

/// Maximum number of parts that are kept per object, such as label requirements, tolerations and containers. Each has up to 200
/// bytes.
const MOST_KEPT: usize = 1 << 11;

/// Maximum number of bytes of text that are kept per object. Kubernetes limits all annotations of a template to the same number.
const MOST_KEPT_BYTES: usize = 256 << 10;

const MOST_CONDITIONS: usize = 100;

/// Maximum length of each text in a condition of an unreadable object, in bytes.
const LONGEST_TEXT: usize = 1 << 10;

/// Returns an error if a DaemonSet exceeds a limit. The error names the limit.
pub(super) fn of_daemonset(
    selector: &Value,
    scheduling: &Scheduling,
    conditions: &[Condition],
) -> Option<String> {
    let texts = conditions
        .iter()
        .map(|one| one.kind.len() + one.reason.len() + one.message.len());
    let parts = [
        (
            "spec.selector",
            "labels and values",
            values(selector),
            MOST_KEPT,
        ),
        (
            "spec.template.spec",
            "entries in node affinity, node selector and tolerations",
            scheduling.size(),
            MOST_KEPT,
        ),
        ("status", "conditions", conditions.len(), MOST_CONDITIONS),
        (
            "status",
            "bytes of text in conditions",
            texts.sum(),
            MOST_KEPT_BYTES,
        ),
    ];
    let found = parts.into_iter().find(|(.., size, most)| size > most);
    found.map(|(place, what, _, most)| too_much(place, what, most))
}

/// Truncates the conditions of an unreadable object, and their texts, so that the object can be kept.
pub(super) fn keep_few(conditions: &mut Vec<Condition>) {
    conditions.truncate(MOST_CONDITIONS);
    for condition in conditions {
        for text in [
            &mut condition.kind,
            &mut condition.status,
            &mut condition.reason,
            &mut condition.message,
        ] {
            *text = beginning(text, LONGEST_TEXT).to_owned();
        }
    }
}

/// Returns an error if the template of a ControllerRevision exceeds a limit. The error names the limit.
pub(super) fn of_revision(template: &Shape) -> Option<String> {
    let (entries, bytes) = template.size();
    let place = "data.spec.template";
    if entries > MOST_KEPT {
        let what = "containers, labels and annotations";
        return Some(too_much(place, what, MOST_KEPT));
    }
    let what = "bytes of labels and annotations";
    (bytes > MOST_KEPT_BYTES).then(|| too_much(place, what, MOST_KEPT_BYTES))
}

fn too_much(place: &str, what: &str, most: usize) -> String {
    format!("{place} has more than {most} {what}")
}

/// Returns the number of all values within a JSON value, including itself.
fn values(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Object(fields) => fields.values().map(values).sum(),
        _ => 0,
    }
}
