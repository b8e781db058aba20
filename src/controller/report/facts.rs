//! Numbers and nodes of a rollout, for notifications.

use serde::Serialize;

use crate::core::{Fleet, Offline, Plan, Revision, Verdict};

/// Maximum number of nodes that a notification names.
const NAMED: usize = 20;

/// Numbers and nodes of a rollout at the time of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct RolloutFacts {
    /// Revision that the report is about.
    pub(in crate::controller) revision: Option<Revision>,
    pub(in crate::controller) counts: NodeCounts,
    /// Nodes that are not up to date, with their verdicts. Failed nodes and nodes in progress come first.
    pub(in crate::controller) nodes: Vec<NodeVerdict>,
    /// Number of such nodes that `nodes` doesn't contain.
    pub(in crate::controller) nodes_omitted: usize,
}

/// Numbers of nodes, as in `ctl status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(in crate::controller) struct NodeCounts {
    targeted: usize,
    updated: usize,
    outdated: usize,
    offline: usize,
    failed: usize,
}

/// Node with the word of its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::controller) struct NodeVerdict {
    name: String,
    verdict: &'static str,
}

impl RolloutFacts {
    /// Returns the facts of a plan.
    pub(super) fn of_plan(revision: Option<Revision>, fleet: &Fleet, plan: &Plan) -> Self {
        let nodes = plan.verdicts.iter().zip(&fleet.nodes);
        let is_updated = |verdict: &Verdict| match verdict {
            Verdict::Done | Verdict::NotTargeted => true,
            Verdict::Offline(offline) => matches!(offline, Offline::Updated { .. }),
            _ => false,
        };
        let mut behind: Vec<_> = nodes.filter(|(verdict, _)| !is_updated(verdict)).collect();
        behind.sort_by_key(|(verdict, _)| !verdict.is_begun());
        let named = behind
            .iter()
            .take(NAMED)
            .map(|(verdict, node)| NodeVerdict {
                name: node.name.to_string(),
                verdict: verdict.word(),
            });
        // The fleet counts some nodes instead of listing them. Failed nodes are always listed.
        let crowd = &fleet.crowd;
        let counted = crowd.len() - crowd.done - crowd.offline_updated;
        let counts = &plan.counts;
        Self {
            revision,
            counts: NodeCounts {
                targeted: counts.targeted,
                updated: plan.running(),
                outdated: counts.outdated + counts.offline_outdated,
                offline: counts.offline,
                failed: counts.failed,
            },
            nodes: named.collect(),
            nodes_omitted: behind.len().saturating_sub(NAMED) + counted,
        }
    }
}
