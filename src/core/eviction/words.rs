//! What is said of a rollout that disruption budgets hold up.

use std::collections::BTreeSet;

use super::Refusal;
use crate::core::fleet::Fleet;
use crate::core::plan::Plan;
use crate::core::verdict::{Obstruction, Verdict};

impl Plan {
    /// Which budgets let no pod go, and what to do about it.
    pub fn blocked_words(&self, fleet: &Fleet) -> String {
        let nodes = fleet.nodes.iter().zip(&self.verdicts);
        let blocked = nodes.filter(|(_, verdict)| matches!(verdict, Verdict::BlockedByPdb { .. }));
        let pods = blocked.flat_map(|(node, _)| &node.pods);
        let refusals: Vec<&Refusal> = pods
            .filter_map(|pod| fleet.evictions.refusal_of(pod))
            .collect();
        let of = |wanted: Obstruction| {
            let of = refusals
                .iter()
                .filter(|refusal| refusal.obstruction == wanted);
            of.filter_map(|refusal| refusal.budget.as_deref())
                .collect::<BTreeSet<&str>>()
        };
        let named = |names: BTreeSet<&str>| Vec::from_iter(names).join(", ");
        let mut sentences = Vec::new();
        if refusals
            .iter()
            .any(|refusal| refusal.obstruction == Obstruction::Several)
        {
            sentences.push(
            "more than one PodDisruptionBudget selects its pods, which Kubernetes cannot evict then: leave one".to_owned(),
        );
        }
        let mistaken = of(Obstruction::NotComputed);
        if !mistaken.is_empty() {
            sentences.push(format!(
            "PodDisruptionBudget {} lets no pod go because Kubernetes cannot count for it: for a DaemonSet, set minAvailable to a \
             number, and nothing else",
            named(mistaken)
        ));
        }
        let uncounted = of(Obstruction::NotProcessed);
        if !uncounted.is_empty() {
            sentences.push(format!(
                "PodDisruptionBudget {} lets no pod go before Kubernetes has counted for it; it is asked again",
                named(uncounted)
            ));
        }
        let exhausted = of(Obstruction::Exhausted);
        if !exhausted.is_empty() {
            sentences.push(format!(
                "PodDisruptionBudget {} lets no pod go now (disruption: evict); it is asked again",
                named(exhausted)
            ));
        }
        match sentences.is_empty() {
            true => "evictions are refused (disruption: evict)".to_owned(),
            false => sentences.join("; "),
        }
    }
}
