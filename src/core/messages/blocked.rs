//! Messages about a rollout in which disruption budgets block all remaining nodes.

use std::collections::BTreeSet;

use crate::core::fleet::Fleet;
use crate::core::fleet::evictions::Refusal;
use crate::core::plan::Plan;
use crate::core::verdict::{Obstruction, Verdict};

impl Plan {
    /// Returns the name of a disruption budget that blocks evictions, the first in alphabetical order; `None` if none is known.
    pub(super) fn blocking<'a>(&self, fleet: &'a Fleet) -> Option<&'a str> {
        let nodes = fleet.nodes.iter().zip(&self.verdicts);
        let blocked = nodes.filter(|(_, verdict)| matches!(verdict, Verdict::BlockedByPdb { .. }));
        let pods = blocked.flat_map(|(node, _)| node.pods.iter());
        let write_failures = pods.filter_map(|pod| fleet.evictions.refusal_of(pod));
        write_failures
            .filter_map(|refusal| refusal.budget.as_deref())
            .min()
    }

    /// Describes the disruption budgets that block evictions, with the remedy.
    pub fn blocked_words(&self, fleet: &Fleet) -> String {
        let nodes = fleet.nodes.iter().zip(&self.verdicts);
        let blocked = nodes.filter(|(_, verdict)| matches!(verdict, Verdict::BlockedByPdb { .. }));
        let pods = blocked.flat_map(|(node, _)| &node.pods);
        let write_failures: Vec<&Refusal> = pods
            .filter_map(|pod| fleet.evictions.refusal_of(pod))
            .collect();
        let of = |wanted: Obstruction| {
            let of = write_failures
                .iter()
                .filter(|refusal| refusal.obstruction == wanted);
            of.filter_map(|refusal| refusal.budget.as_deref())
                .collect::<BTreeSet<&str>>()
        };
        let mut sentences = Vec::new();
        if write_failures
            .iter()
            .any(|refusal| refusal.obstruction == Obstruction::Several)
        {
            sentences.push(
            "more than one PodDisruptionBudget selects its pods, which Kubernetes cannot evict then: leave one".to_owned(),
        );
        }
        let why = [
            (
                Obstruction::NotComputed,
                "blocks all evictions: maxUnavailable and percentages do not work for DaemonSets; set minAvailable to a number",
            ),
            (
                Obstruction::NotProcessed,
                "lets no pod go before Kubernetes has counted for it; it is asked again",
            ),
            (
                Obstruction::Exhausted,
                "lets no pod go now (disruption: evict); it is asked again",
            ),
        ];
        for (obstruction, why) in why {
            let budgets = Vec::from_iter(of(obstruction));
            if !budgets.is_empty() {
                let budgets = budgets.join(", ");
                sentences.push(format!("PodDisruptionBudget {budgets} {why}"));
            }
        }
        if sentences.is_empty() {
            "evictions are refused (disruption: evict)".to_owned()
        } else {
            sentences.join("; ")
        }
    }
}
