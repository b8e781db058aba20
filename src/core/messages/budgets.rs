//! Messages about evictions that disruption budgets reject.

use super::pods::NodeView;
use crate::core::fleet::Pod;
use crate::core::fleet::evictions::Refusal;
use crate::core::settings::disruption::DISRUPTION;
use crate::core::verdict::Obstruction;

/// Describes why `budget` rejects evictions. `budget` is empty if its name is unknown.
pub(super) fn words(obstruction: Obstruction, budget: &str) -> String {
    let budget = match budget {
        "" => "a PodDisruptionBudget".to_owned(),
        name => format!("PodDisruptionBudget {name}"),
    };
    match obstruction {
        Obstruction::Exhausted => format!("{budget} allows no eviction now"),
        Obstruction::NotProcessed => {
            format!("Kubernetes has not processed {budget} yet")
        }
        Obstruction::NotComputed => format!(
            "{budget} blocks all evictions: maxUnavailable and percentages do not work for DaemonSets"
        ),
        Obstruction::Several => {
            "more than one PodDisruptionBudget selects the pods, so Kubernetes rejects all evictions"
                .to_owned()
        }
    }
}

/// Returns the remedy for the rejection. The text is the beginning of a sentence.
pub(super) fn remedy(obstruction: Obstruction) -> &'static str {
    match obstruction {
        Obstruction::Exhausted => {
            "retried within 2 minutes; to allow evictions, lower minAvailable"
        }
        Obstruction::NotProcessed => {
            "retried within 2 minutes. If this lasts, check if kube-controller-manager runs"
        }
        Obstruction::NotComputed => "set minAvailable to a number",
        Obstruction::Several => "delete all but one budget, or change their selectors",
    }
}

impl NodeView<'_> {
    /// Returns the reason and the text for a node whose pod a disruption budget keeps from being evicted.
    pub(super) fn blocked(&self, obstruction: Obstruction) -> (&'static str, String) {
        let reason = match obstruction {
            Obstruction::Exhausted => "Exhausted",
            Obstruction::NotProcessed => "NotProcessed",
            Obstruction::NotComputed => "NotComputed",
            Obstruction::Several => "Several",
        };
        let pod = self.evicted().map_or("", |pod| pod.name.as_str());
        let because = format!(
            "is outdated, and the eviction of its pod {pod} is rejected: {}",
            words(obstruction, self.budget().unwrap_or_default())
        );
        (reason, because)
    }

    /// Returns the remedy for a node whose pod a disruption budget keeps from being evicted.
    pub(super) fn unblock(&self, obstruction: Obstruction) -> String {
        let namespace = &self.rollout.key.namespace;
        let look = match self.budget() {
            Some(budget) if obstruction != Obstruction::NotProcessed => {
                format!("edit poddisruptionbudget {budget}")
            }
            Some(budget) => format!("describe poddisruptionbudget {budget}"),
            None => "get poddisruptionbudgets".to_owned(),
        };
        let also = match obstruction {
            Obstruction::NotComputed => ", and remove maxUnavailable",
            Obstruction::NotProcessed => ", and see the budget",
            _ => "",
        };
        format!(
            "{}{also}: kubectl -n {namespace} {look}. Without the annotation {DISRUPTION}, pods are deleted regardless of budgets",
            remedy(obstruction)
        )
    }

    fn budget(&self) -> Option<&str> {
        let refusal: &Refusal = self.rollout.fleet.evictions.refusal_of(self.evicted()?)?;
        refusal.budget.as_deref()
    }

    /// Returns the old pod of the node, also if there is a surge pod.
    fn evicted(&self) -> Option<&Pod> {
        let mut pods = self.node.pods.iter();
        pods.find(|pod| !pod.terminating && !pod.surge)
    }
}
