//! Validation rules for the API server, in addition to the types. The message of each rule names the mistake and its correction.
//!
//! The rules are CEL expressions. They reject what the validating webhook of OpenKruise rejects, and DaemonSets that could never
//! progress ([`burst`], [`label_key`], [`label_requirement`]). Limits on lists and strings keep the cost of the rules within the
//! limit of API servers.

use serde_json::{Value, json};

/// Maximum length of a label key: a prefix of 253 characters, a slash, and a name of 63.
pub(super) const LABEL_KEY: usize = 317;

pub(super) const LABEL_KEY_PATTERN: &str =
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";

pub(super) const LABEL_VALUE_PATTERN: &str = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";

fn rule(rule: &str, message: &str) -> Value {
    json!({ "rule": rule, "message": message })
}

/// Returns one rule that reports its error at the nested field `field`.
fn rule_of(field: &str, text: &str, message: &str) -> Value {
    json!({ "rule": text, "message": message, "fieldPath": field })
}

/// Returns the rules for a field that is a number or a percentage of nodes.
///
/// A string must be a percentage, with at most nine leading zeros.
pub(super) fn share() -> Value {
    json!([rule(
        "type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^0{0,9}(100|[0-9]{1,2})%$')",
        "must be a number of nodes, 0 or more, or a percentage from 0% to 100%, for example 5 or 10%",
    )])
}

/// Returns the rules for the maximum number of pods that are created or deleted at once.
///
/// 0 is rejected: nothing would ever happen, and no message would say why.
pub(super) fn burst() -> Value {
    json!([rule(
        "type(self) == int ? self >= 1 && self <= 2147483647 : self.matches('^0{0,9}[1-9][0-9]{0,3}%$')",
        "must be a number of pods, at least 1, or a percentage, at least 1%, for example 250 or 10%; to stop a rollout, set \
         updateStrategy.rollingUpdate.paused to true",
    )])
}

/// Returns the rules for the pod selector, which is immutable.
pub(super) fn selector() -> Value {
    json!([
        rule(
            "(has(self.matchLabels) && self.matchLabels.size() > 0) || \
             (has(self.matchExpressions) && self.matchExpressions.size() > 0)",
            "must have at least one label, because it would select every pod otherwise: set matchLabels to labels of \
             template.metadata.labels",
        ),
        rule(
            "self == oldSelf",
            "is immutable: pods of the old selector would be orphaned; create a DaemonSet with another name, and delete this one",
        ),
    ])
}

/// Returns the rules for one requirement of a selector (`matchExpressions`).
pub(super) fn label_requirement() -> Value {
    json!([
        rule(
            "!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",
            "operators In and NotIn need values: add at least one, or use Exists or DoesNotExist",
        ),
        rule(
            "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || self.values.size() == 0",
            "operators Exists and DoesNotExist take no values: remove them, or use In or NotIn",
        ),
    ])
}

/// Returns the rules for the label keys of a selector.
pub(super) fn label_key() -> Value {
    let text =
        format!("self.all(key, key.size() <= {LABEL_KEY} && key.matches('{LABEL_KEY_PATTERN}'))");
    json!([rule(
        &text,
        "every key must be a valid label key, for example app or example.com/app",
    )])
}

/// Returns the rules that compare the pod selector with the labels of the template.
pub(super) fn spec() -> Value {
    const LABELS: &str = "self.template.metadata.labels";
    let has_labels = format!("has(self.template.metadata) && has({LABELS})");
    let labels = format!(
        "!has(self.selector.matchLabels) || self.selector.matchLabels.all(key, \
         {has_labels} && key in {LABELS} && {LABELS}[key] == self.selector.matchLabels[key])"
    );
    let expressions = format!(
        "!has(self.selector.matchExpressions) || self.selector.matchExpressions.all(one, \
         {has_labels} && one.key in {LABELS} \
         ? one.operator == 'Exists' \
         || (one.operator == 'In' && has(one.values) && {LABELS}[one.key] in one.values) \
         || (one.operator == 'NotIn' && has(one.values) && !({LABELS}[one.key] in one.values)) \
         : one.operator in ['NotIn', 'DoesNotExist'])"
    );
    let field = ".template";
    json!([
        rule_of(
            field,
            &labels,
            "its labels must match the selector: add the labels of selector.matchLabels to template.metadata.labels",
        ),
        rule_of(
            field,
            &expressions,
            "its labels must match the selector: change template.metadata.labels so that they meet all of \
             selector.matchExpressions",
        ),
    ])
}

/// Returns the rules for the pod template.
pub(super) fn pod() -> Value {
    json!([
        rule_of(
            ".restartPolicy",
            "!has(self.restartPolicy) || self.restartPolicy in ['', 'Always']",
            "must be Always, because pods of a DaemonSet never end: remove it",
        ),
        rule_of(
            ".activeDeadlineSeconds",
            "!has(self.activeDeadlineSeconds)",
            "must not be set, because pods of a DaemonSet never end: remove it",
        ),
    ])
}

/// Returns the rules for container names.
pub(super) fn containers() -> Value {
    json!([rule(
        "self.all(one, self.exists_one(other, other.name == one.name))",
        "two containers have the same name: rename one of them",
    )])
}

/// Returns the rules that reject hooks that would never be called.
pub(super) fn lifecycle() -> Value {
    json!([rule_of(
        ".inPlaceUpdate",
        "!has(self.inPlaceUpdate)",
        "is not called for pods of a DaemonSet: remove it; preDelete is called before a pod is deleted",
    )])
}

/// Returns the rules for combinations of rollout settings.
///
/// A rule applies only where its settings have an effect. If maxUnavailable and maxSurge are both missing, maxUnavailable is 1.
pub(super) fn update_strategy() -> Value {
    const ROLLING: &str = "self.rollingUpdate";
    let has_no_effect = format!("self.type != 'RollingUpdate' || !has({ROLLING})");
    let is_set = |field: &str| format!("has({ROLLING}.{field})");
    let is_more = |field: &str| {
        let field = format!("{ROLLING}.{field}");
        format!("(has({field}) && !string({field}).matches('^0+%?$'))")
    };
    let is_type = |name: &str| format!("{ROLLING}.rollingUpdateType == '{name}'");
    let (unavailable, surge) = (is_more("maxUnavailable"), is_more("maxSurge"));
    let in_place = is_type("InPlaceIfPossible");
    let surging = is_type("Surging");
    let refuse = |condition: &str, message: &str| {
        let text = format!("{has_no_effect} || !({condition})");
        rule_of(".rollingUpdate", &text, message)
    };
    json!([
        refuse(
            &format!("{unavailable} && {surge}"),
            "maxUnavailable and maxSurge cannot both be more than 0: the new pod of a node starts either after or before the \
             deletion of the old one; remove one of them",
        ),
        refuse(
            &format!(
                "({} || {}) && !{unavailable} && !{surge} && !({surging} && !{})",
                is_set("maxUnavailable"),
                is_set("maxSurge"),
                is_set("maxSurge")
            ),
            "maxUnavailable and maxSurge are both 0, so no pod could be replaced: set one of them to 1 or more; to stop a \
             rollout, set paused to true",
        ),
        refuse(
            &format!("{in_place} && {surge}"),
            "maxSurge is not supported for in-place updates: remove maxSurge, or set rollingUpdateType to Standard",
        ),
        refuse(
            &format!("{surging} && {unavailable}"),
            "Surging starts the new pod before the old one is deleted: remove maxUnavailable, or set rollingUpdateType to Standard",
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_message_is_one_line() {
        let all = [
            share(),
            burst(),
            selector(),
            label_requirement(),
            label_key(),
            spec(),
            pod(),
            containers(),
            lifecycle(),
            update_strategy(),
        ];
        let rules = all.iter().flat_map(|rules| rules.as_array().unwrap());
        for rule in rules {
            let (text, message) = (
                rule["rule"].as_str().unwrap(),
                rule["message"].as_str().unwrap(),
            );
            assert!(
                !text.contains("  ") && !message.contains("  "),
                "{text}: {message}"
            );
            assert!(
                !message.ends_with('.') && !message.contains('\n'),
                "{message}"
            );
            assert_eq!(
                text.matches('(').count(),
                text.matches(')').count(),
                "{text}"
            );
        }
    }
}
