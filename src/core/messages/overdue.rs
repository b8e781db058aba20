//! Sentences about pods that use a slot for too long, with the pod and the cause. Conditions, Events and `ctl` use them.

use super::not_ready;
use crate::core::engine::deadline::ending;
use crate::core::engine::not_ready::EXPLAINED;
use crate::core::engine::surge;
use crate::core::fleet::{Fleet, Leaving, Node, Pod};
use crate::core::instant;
use crate::core::plan::Plan;
use crate::core::verdict::{Progress, Verdict};
use crate::core::words::named;

/// Describes the cause for a node past its deadline. The text follows "node NAME: ".
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
        Progress::Missing { .. } => format!("{controller} makes no pod"),
        Progress::SurgeTakingOver if own.is_none() => {
            format!("{controller} makes no pod of its own, which pod {newest} waits for")
        }
        Progress::SurgeTakingOver => format!("the pod beside {newest} is not deleted"),
        Progress::SurgeLeaving => format!(
            "{}, and so the one beside it stays",
            not_ready::sentence(fleet, own.map_or("", |own| own.name.as_str()))
        ),
        Progress::Surplus => format!("{controller} removes none of its {} pods", node.pods.len()),
        _ => not_ready::sentence(fleet, newest),
    }
}

impl Plan {
    /// Describes the nodes past their deadline and the causes, as the end of a sentence.
    pub fn overdue_words(&self, fleet: &Fleet) -> String {
        let explained = self.overdue.iter().take(EXPLAINED).map(|position| {
            let (node, verdict) = (&fleet.nodes[*position], &self.verdicts[*position]);
            format!("{}: {}", node.name, words(fleet, node, verdict))
        });
        let rest = self.overdue.iter().skip(EXPLAINED);
        let mut rest = rest
            .map(|position| fleet.nodes[*position].name.as_str())
            .peekable();
        let is_more = rest.peek().is_some();
        let rest = is_more.then(|| format!("also {}", named(rest, 0)));
        let all: Vec<String> = explained.chain(rest).collect();
        format!("{}; see ctl why", all.join("; "))
    }

    /// Returns the description of the nodes past their deadline as a clause after a semicolon; empty if there are none.
    pub fn overdue_aside(&self, fleet: &Fleet) -> String {
        if self.overdue.is_empty() {
            String::new()
        } else {
            format!("; {}", self.overdue_words(fleet))
        }
    }
}

/// Describes a pod that doesn't terminate, with the cause.
fn does_not_end(pod: &Pod) -> String {
    let since = match pod.leaving.as_deref() {
        Some(Leaving { stamped, grace, .. }) if !grace.is_zero() => format!(
            " since {}, past its grace period of {} s",
            instant::words(*stamped),
            grace.as_secs()
        ),
        Some(Leaving { stamped, .. }) => format!(" since {}", instant::words(*stamped)),
        None => String::new(),
    };
    let finalizers: Vec<&str> = pod.exit.finalizers.iter().map(|name| &**name).collect();
    let held = match finalizers.as_slice() {
        [] => "its kubelet has not ended it".to_owned(),
        [one] => format!("finalizer {one} holds it"),
        many => format!("finalizers {} hold it", many.join(", ")),
    };
    format!("pod {} is still terminating{since}: {held}", pod.name)
}
