//! Messages about pods whose eviction a disruption budget blocks.

use super::pods::pod_name;
use super::rollout::RolloutView;
use crate::core::fleet::evictions::Refusal;
use crate::core::fleet::{Node, Pod};
use crate::core::settings::disruption::DISRUPTION;
use crate::core::verdict::Obstruction;

/// Describes a node that waits for a disruption budget.
pub(super) fn blocked(
    rollout: &RolloutView<'_>,
    node: &Node,
    obstruction: Obstruction,
) -> (Option<String>, String) {
    let pod = leaving(node).map_or_else(|| pod_name(node), |pod| format!(" {}", pod.name));
    let budget = named(rollout, node);
    let (reason, why) = match obstruction {
        Obstruction::Exhausted => ("Exhausted", format!("{budget} does not let it go now")),
        Obstruction::NotProcessed => (
            "NotProcessed",
            format!("Kubernetes has not counted for {budget} yet"),
        ),
        Obstruction::NotComputed => (
            "NotComputed",
            format!("Kubernetes cannot count for {budget}, and so lets no pod go"),
        ),
        Obstruction::Several => (
            "Several",
            "more than one PodDisruptionBudget selects it, and Kubernetes evicts no such pod"
                .to_owned(),
        ),
    };
    (
        Some(reason.to_owned()),
        format!("is to be updated; its pod{pod} is to be evicted, and {why}"),
    )
}

/// Returns the remedy for a node whose pod a disruption budget protects.
pub(super) fn remedy(rollout: &RolloutView<'_>, node: &Node, obstruction: Obstruction) -> String {
    let namespace = &rollout.key.namespace;
    let look = match refusal(rollout, node).and_then(|refusal| refusal.budget.as_deref()) {
        Some(budget) => format!("kubectl -n {namespace} describe poddisruptionbudget {budget}"),
        None => format!("kubectl -n {namespace} get poddisruptionbudgets"),
    };
    let delete =
        format!("Without the annotation {DISRUPTION} pods are deleted, and no budget is asked.");
    let is_under_way = node
        .pods
        .iter()
        .any(|pod| pod.surge || pod.exit.preparing.is_some());
    let slot = if is_under_way {
        ""
    } else {
        ", holds no slot meanwhile, and others go first"
    };
    match obstruction {
        Obstruction::Exhausted | Obstruction::NotProcessed => format!(
            "It goes when enough pods are Ready, or when the budget allows more: lower its minAvailable. It is asked again \
             after 10 seconds to 2 minutes{slot}. To see it: {look}. {delete}"
        ),
        Obstruction::NotComputed => format!(
            "Set minAvailable of the budget to a number, without maxUnavailable and percentages, which Kubernetes cannot \
             count for a DaemonSet: {look}. {delete}"
        ),
        Obstruction::Several => format!(
            "Leave one of them, or have their selectors select different pods: {look}. {delete}"
        ),
    }
}

fn named(rollout: &RolloutView<'_>, node: &Node) -> String {
    let budget = refusal(rollout, node).and_then(|refusal| refusal.budget.as_deref());
    match budget {
        Some(budget) => format!("PodDisruptionBudget {budget}"),
        None => "a PodDisruptionBudget".to_owned(),
    }
}

fn refusal<'a>(rollout: &RolloutView<'a>, node: &Node) -> Option<&'a Refusal> {
    rollout.fleet.evictions.refusal_of(leaving(node)?)
}

/// Returns the old pod of the node, even if there is a surge pod too.
fn leaving(node: &Node) -> Option<&Pod> {
    node.pods.iter().find(|pod| !pod.terminating && !pod.surge)
}
