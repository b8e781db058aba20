//! Step of a rollout with its numbers and nodes, for notifications and traces.

use std::sync::Arc;

use serde::Serialize;

use crate::controller::step::Step;
use crate::core::rollout_state::Reported;
use crate::core::{Fleet, Offline, Plan, Revision, Verdict};

/// Maximum number of nodes that a notification names.
const NAMED: usize = 20;

/// Step of a rollout, with the state of the rollout after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) struct RolloutFacts {
    pub(in crate::controller) step: Step,
    /// Reason of the condition `RolloutComplete`.
    pub(in crate::controller) reason: Arc<str>,
    /// Message of that condition.
    pub(in crate::controller) message: String,
    /// Revision that the report is about.
    pub(in crate::controller) revision: Option<Revision>,
    pub(in crate::controller) counts: NodeCounts,
    /// Nodes that are not up to date, with their verdicts. Failed nodes and nodes in progress come first.
    pub(in crate::controller) nodes: Vec<NodeVerdict>,
    /// Number of such nodes that `nodes` doesn't contain.
    pub(in crate::controller) nodes_omitted: usize,
}

/// Numbers of nodes, as in `ctl status -o json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::controller) struct NodeCounts {
    targeted: usize,
    updated: usize,
    outdated: usize,
    offline: usize,
    offline_outdated: usize,
    failed: usize,
}

/// Node with the word of its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::controller) struct NodeVerdict {
    name: String,
    verdict: &'static str,
}

impl RolloutFacts {
    /// Returns the facts about a step. `reported` is the report after the step, with this message.
    pub(super) fn of_plan(
        step: Step,
        (reported, message): (&Reported, String),
        fleet: &Fleet,
        plan: &Plan,
    ) -> Self {
        let nodes = plan.verdicts.iter().zip(&fleet.nodes);
        let is_updated = |verdict: &Verdict| match verdict {
            Verdict::Done | Verdict::NotTargeted => true,
            Verdict::Offline(offline) => matches!(offline, Offline::Updated { .. }),
            _ => false,
        };
        let is_failed = |verdict: &Verdict| matches!(verdict, Verdict::FailedByRevision { .. });
        let mut behind: Vec<_> = nodes.filter(|(verdict, _)| !is_updated(verdict)).collect();
        behind.sort_by_key(|(verdict, _)| (!is_failed(verdict), !verdict.is_begun()));
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
            step,
            reason: reported.reason.clone(),
            message,
            revision: reported.revision.clone(),
            counts: NodeCounts {
                targeted: counts.targeted,
                updated: plan.running(),
                outdated: counts.outdated,
                offline: counts.offline,
                offline_outdated: counts.offline_outdated,
                failed: counts.failed,
            },
            nodes: named.collect(),
            nodes_omitted: behind.len().saturating_sub(NAMED) + counted,
        }
    }
}
