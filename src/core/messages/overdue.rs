//! Causes of updates that take too long, which conditions, Events and `ctl` report.

use crate::core::engine::deadline::ending;
use crate::core::engine::not_ready::EXPLAINED;
use crate::core::engine::surge;
use crate::core::fleet::{Fleet, Leaving, Node, Pod};
use crate::core::id::PodName;
use crate::core::instant;
use crate::core::plan::Plan;
use crate::core::verdict::{Progress, Verdict};
use crate::core::words::{joined, named};

/// Describes why the update of an overdue node takes so long. The text follows "node NAME:".
pub(in crate::core) fn words(fleet: &Fleet, node: &Node, verdict: &Verdict) -> String {
    let ending: Vec<String> = ending(node).map(does_not_end).collect();
    let Verdict::InProgress(progress) = verdict else {
        return ending.join("; ");
    };
    let newest = node.pods.iter().max_by_key(|pod| pod.created);
    let newest = newest.map_or("", |pod| pod.name.as_str());
    let controller = fleet.kind.controller();
    let own = surge::own(node).find(|pod| !pod.terminating);
    match progress {
        Progress::Terminating
        | Progress::OldTerminating
        | Progress::SurgeLeaving
        | Progress::SurgeTakingOver
            if !ending.is_empty() =>
        {
            ending.join("; ")
        }
        Progress::Missing { .. } => format!("{controller} creates no pod"),
        Progress::SurgeTakingOver if own.is_none() => {
            format!("the DaemonSet does not adopt surge pod {newest}")
        }
        Progress::SurgeTakingOver => {
            format!("the old pod next to surge pod {newest} is not deleted")
        }
        Progress::SurgeLeaving => format!(
            "{}, so the surge pod stays",
            not_available(fleet, own.map_or("", |own| own.name.as_str()))
        ),
        Progress::Surplus => format!(
            "{controller} has removed none of the {} pods",
            node.pods.len()
        ),
        _ => not_available(fleet, newest),
    }
}

impl Plan {
    /// Describes the nodes past their deadline and the causes; `None` if there are none.
    pub fn overdue_words(&self, fleet: &Fleet) -> Option<String> {
        let explained = self.overdue.iter().take(EXPLAINED).map(|position| {
            let (node, verdict) = (&fleet.nodes[*position], &self.verdicts[*position]);
            format!("node {}: {}", node.name, words(fleet, node, verdict))
        });
        let rest = self.overdue.iter().skip(EXPLAINED);
        let rest = rest.map(|position| fleet.nodes[*position].name.as_str());
        let rest = Some(named(rest, 0)).filter(|names| !names.is_empty());
        let rest = rest.map(|names| format!("nodes {names} take too long too"));
        let all = joined(explained.chain(rest));
        (!all.is_empty()).then_some(all)
    }
}

/// Returns the reason why a node gets no new pod after the controller deleted the old one.
pub(super) fn barrier(node: &Node) -> &str {
    (node.kept_away_by.as_deref()).unwrap_or("a taint or a label of the node prevents it")
}

/// Describes a pod that doesn't become available. The reason is included if it is known.
fn not_available(fleet: &Fleet, pod: &str) -> String {
    let why = fleet.not_ready.get(&PodName::from(pod));
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    format!("pod {pod} does not become available{why}")
}

/// Describes a pod that doesn't terminate, with the cause.
fn does_not_end(pod: &Pod) -> String {
    let since = pod
        .leaving
        .as_deref()
        .map(|Leaving { stamped, grace, .. }| {
            let (since, grace) = (instant::words(*stamped), grace.as_secs());
            format!(" since {since}, with a grace period of {grace}s")
        });
    let since = since.unwrap_or_default();
    let held = match pod.exit.finalizers.as_slice() {
        [] => "its kubelet has not ended it".to_owned(),
        names => format!("it has finalizer {}", names.join(", ")),
    };
    format!("pod {} has been terminating{since}: {held}", pod.name)
}
