//! Messages about writes that the API server rejects: its message, and the remedy.

use super::refusals::lacks_permission;
use super::rollout::RolloutView;
use crate::core::fleet::Node;
use crate::core::fleet::write_failures::{BACK_OFF, WriteVerb};
use crate::core::names::BASE_RBAC;
use crate::core::verdict::Verdict;

/// Describes the rejected write on this node, for the verdict `Refused`.
pub(super) fn refused(rollout: &RolloutView<'_>, node: &Node) -> (Option<String>, String) {
    let mut failures = rollout.fleet.write_failures.on(&node.name);
    let because = match failures.next() {
        Some(failure) => format!(
            "has its turn, and the API server refuses to {} there: {}",
            failure.write.words(),
            failure.sentence
        ),
        None => "has its turn, and the API server refuses what is asked for".to_owned(),
    };
    (None, because)
}

/// Returns a clause about a rejected write on this node that its verdict doesn't report.
pub(super) fn aside(rollout: &RolloutView<'_>, node: &Node, verdict: &Verdict) -> String {
    let mut failures = rollout.fleet.write_failures.on(&node.name);
    let told = matches!(verdict, Verdict::Refused { .. });
    match failures.next().filter(|_| !told) {
        Some(failure) => format!(
            "; the API server refuses to {} there: {}",
            failure.write.words(),
            failure.sentence
        ),
        None => String::new(),
    }
}

/// Returns the remedy for the rejected write.
pub(super) fn remedy(rollout: &RolloutView<'_>, node: &Node) -> String {
    let namespace = &rollout.key.namespace;
    let failure = rollout.fleet.write_failures.on(&node.name).next();
    let (write, said) = match failure {
        Some(failure) => (Some(failure.write), &*failure.sentence),
        None => (None, ""),
    };
    let first = if lacks_permission(said) {
        // Before a mark or an in-place update, the controller writes a condition (`pods/status`). The base manifest grants that
        // write.
        let part = match write {
            Some(write) if !said.contains("\"pods/status\"") => {
                write.granted_by(rollout.fleet.kind)
            }
            _ => BASE_RBAC,
        };
        format!("Grant it to the controller: kubectl apply -k {part}.")
    } else if said.contains("exceeded quota") {
        format!(
            "Raise the quota, or make room in it: kubectl -n {namespace} describe resourcequota."
        )
    } else if said.contains("ValidatingAdmissionPolicy") {
        "Change that policy, or except the controller's service account in its matchConditions: kubectl get \
         validatingadmissionpolicies."
            .to_owned()
    } else if said.contains("webhook") {
        "Look at that webhook, or except the controller's service account in it: kubectl get \
         validatingwebhookconfigurations,mutatingwebhookconfigurations."
            .to_owned()
    } else if write == Some(WriteVerb::Create) {
        "Correct the template, or what refuses its pods.".to_owned()
    } else {
        "Remove what refuses it.".to_owned()
    };
    let others = match node.pods.len() {
        0 | 1 => "other nodes have their turn meanwhile",
        _ => "its two pods keep their place of max-surge until then",
    };
    format!(
        "{first} It is tried again every {} and goes on by itself then; {others}.",
        humantime::format_duration(BACK_OFF.1)
    )
}
