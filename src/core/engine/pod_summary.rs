//! Summary of the pods of all nodes, so that later steps of a decision don't have to read the pods again.
//!
//! The pods of a large fleet are scattered in memory and don't fit into the CPU cache, so reading them takes longer than the rest
//! of the decision. Nearly every node has exactly one living pod. The summary stores a few facts about this pod. If a node has none
//! or several, its pods are read again on demand.

use k8s_openapi::jiff::Timestamp;

use super::surge;
use super::terms::Terms;
use super::timeouts::STARTING;
use super::{ota, removal};
use crate::core::fleet::{Fleet, Node, Pod, Targeting};
use crate::core::id::{FIRST_REVISION, PodRevision};
use crate::core::instant::later;
use crate::core::settings::Strategy;
use crate::core::verdict::Progress;

/// Facts about one pod that several steps need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PodFacts {
    /// Relation of the pod's revision to the current one.
    pub(super) revision: PodRevision,
    /// Number of the pod's ControllerRevision.
    pub(super) number: i64,
    /// Time at which the pod got its revision.
    pub(super) revised: Timestamp,
    pub(super) ready_since: Option<Timestamp>,
    /// True while an update in place changes the pod's image.
    pub(super) is_under_way: bool,
    /// True if the pod was created or updated for the current template.
    pub(super) of_template: bool,
}

impl PodFacts {
    fn from_pod(pod: &Pod) -> Self {
        Self {
            revision: pod.revision,
            number: pod.number,
            revised: pod.revised(),
            ready_since: pod.ready_since,
            is_under_way: pod.in_place.is_under_way(),
            of_template: pod.of_template,
        }
    }
}

/// Summary of all pods of a fleet. Each method gives the same result as a check of the pods themselves.
#[derive(Debug)]
pub(super) struct PodSummary<'a> {
    nodes: &'a [Node],
    /// The single pod of each node, by position in the fleet. `None` if the node has several living pods, or none.
    only: Vec<Option<PodFacts>>,
    /// True if any pod has a condition of the strategy OTA (`PodNeedUpgrade`, `PodImageReady`).
    pub(super) is_announced: bool,
    /// True if any pod waits for its preDelete hook, or has a readiness gate that the controller can close.
    pub(super) is_marked: bool,
    /// True if the fleet has a surge pod.
    pub(super) is_surging: bool,
    /// True if any pod was rolled back in place.
    pub(super) is_rolled_back: bool,
}

impl<'a> PodSummary<'a> {
    /// Creates an empty summary. Every node has to be [added](Self::note) in the order of the fleet.
    pub(super) fn at(fleet: &'a Fleet) -> Self {
        Self {
            nodes: &fleet.nodes,
            only: Vec::with_capacity(fleet.nodes.len()),
            is_announced: false,
            is_marked: false,
            is_surging: false,
            is_rolled_back: false,
        }
    }

    pub(super) fn note(&mut self, node: &Node) {
        for pod in &node.pods {
            self.is_announced |= ota::is_announced(pod);
            self.is_marked |= removal::is_marked(pod);
            self.is_surging |= pod.surge;
            self.is_rolled_back |= pod.in_place.reverted_from.is_some();
        }
        let only = node.pods.only().filter(|pod| !pod.terminating);
        self.only.push(only.map(PodFacts::from_pod));
    }

    /// Returns true if the node at `position` has a pod in any state.
    pub(super) fn has_pods(&self, position: usize) -> bool {
        self.only[position].is_some() || !self.nodes[position].pods.is_empty()
    }

    /// Returns true if the DaemonSet should run a pod on the node at `position`.
    pub(super) fn is_wanted(&self, position: usize) -> bool {
        self.nodes[position].targeting == Targeting::Run
    }

    /// Returns true if the node at `position` is online and has two pods.
    pub(super) fn is_doubled(&self, position: usize) -> bool {
        let node = &self.nodes[position];
        self.only[position].is_none() && node.is_ready() && surge::is_doubled(node)
    }

    /// Returns true if the node at `position` has two pods, one of which is a surge pod that is not terminating.
    pub(super) fn is_paired(&self, position: usize) -> bool {
        let made = || surge::surge_pod(&self.nodes[position]);
        self.is_surging && self.is_doubled(position) && made().is_some_and(|made| !made.terminating)
    }

    /// Returns the time until which the node at `position` takes a slot because its pod was out of service for a hook.
    pub(super) fn withheld_until(&self, position: usize, terms: Terms) -> Option<Timestamp> {
        let node = self.is_marked.then(|| &self.nodes[position])?;
        removal::withheld_until(node, terms)
    }

    /// Returns the time until which the node at `position` takes a slot because its unavailable pod was created recently.
    pub(super) fn starting_until(&self, position: usize, terms: Terms) -> Option<Timestamp> {
        if self.only[position].is_some_and(|only| is_long_ready(&only, terms)) {
            return None;
        }
        removal::starting_until(&self.nodes[position], terms)
    }

    /// Returns the time until which the pod at `position` takes a slot because it was created recently. Unlike
    /// [`Self::starting_until`], this includes available pods. Returns `None` for a pod of the first revision, because it replaced
    /// no other pod.
    pub(super) fn fresh_until(&self, strategy: &Strategy, position: usize) -> Option<Timestamp> {
        let living = self.living(position);
        if living.is_some_and(|pod| pod.number == FIRST_REVISION) {
            return None;
        }
        let made = self.revised(position)?;
        Some(later(made, STARTING.max(strategy.min_ready)))
    }

    /// Returns true if the controller deleted the pod of the node at `position`, and a taint or a label prevents the next pod.
    pub(super) fn is_barred(&self, position: usize) -> bool {
        self.only[position].is_none() && self.nodes[position].is_barred()
    }

    /// Returns true if the rollout is known to have begun the update of the node at `position`: it deleted the old pod, or it
    /// updates the pod in place.
    pub(super) fn is_ours(&self, position: usize, progress: Progress) -> bool {
        self.nodes[position].emptied || matches!(progress, Progress::UpdatingInPlace { .. })
    }

    /// Returns the first pod of the node at `position` that is not terminating.
    pub(super) fn living(&self, position: usize) -> Option<PodFacts> {
        self.only[position].or_else(|| self.alive(position).next())
    }

    /// Returns the first pod of the node at `position` that is not terminating and has the current revision.
    pub(super) fn current(&self, position: usize) -> Option<PodFacts> {
        let is_current = |facts: &PodFacts| facts.revision == PodRevision::Current;
        match self.only[position] {
            Some(only) => Some(only).filter(is_current),
            None => self.alive(position).find(is_current),
        }
    }

    /// Returns the latest time at which a living pod of the node at `position` got its revision.
    pub(super) fn revised(&self, position: usize) -> Option<Timestamp> {
        match self.only[position] {
            Some(only) => Some(only.revised),
            None => self.alive(position).map(|pod| pod.revised).max(),
        }
    }

    /// Returns the latest time at which a pod of the node at `position` got the current revision. Terminating pods are included.
    pub(super) fn got_current(&self, position: usize) -> Option<Timestamp> {
        let when =
            |facts: PodFacts| (facts.revision == PodRevision::Current).then_some(facts.revised);
        match self.only[position] {
            Some(only) => when(only),
            None => {
                let pods = self.nodes[position].pods.iter();
                pods.map(PodFacts::from_pod).filter_map(when).max()
            }
        }
    }

    /// Returns the time at which the old pod of the node at `position` was removed; `None` if the node has exactly one living pod,
    /// or if the time is unknown.
    pub(super) fn removed_at(&self, position: usize) -> Option<Timestamp> {
        match self.only[position] {
            Some(_) => None,
            None => self.nodes[position].disrupted_at,
        }
    }

    fn alive(&self, position: usize) -> impl Iterator<Item = PodFacts> {
        let pods = self.nodes[position].pods.iter();
        pods.filter(|pod| !pod.terminating).map(PodFacts::from_pod)
    }
}

/// Returns true if the pod is certainly available: it has been Ready for `minReadySeconds`.
fn is_long_ready(pod: &PodFacts, terms: Terms) -> bool {
    let ready_since = pod.ready_since.filter(|_| !pod.is_under_way);
    ready_since.is_some_and(|since| later(since, terms.min_ready) <= terms.now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::{at, current, fleet, node, old};

    fn leaving(pod: Pod) -> Pod {
        Pod {
            terminating: true,
            ..pod
        }
    }

    #[test]
    fn the_pod_summary_matches_the_pods() {
        let pods = [
            vec![],
            vec![old(1)],
            vec![current(2)],
            vec![leaving(current(2))],
            vec![old(1), current(2).made(500)],
            vec![leaving(old(1)), current(2).made(500)],
            vec![old(1), leaving(current(2).made(500))],
        ];
        let nodes = pods.map(|pods| Node {
            pods: pods.into(),
            ..node("n", old(1))
        });
        let fleet = fleet(nodes.into());
        let mut summary = PodSummary::at(&fleet);
        fleet.nodes.iter().for_each(|node| summary.note(node));
        for (position, node) in fleet.nodes.iter().enumerate() {
            let alive = || node.pods.iter().filter(|pod| !pod.terminating);
            assert_eq!(
                summary.living(position),
                alive().next().map(PodFacts::from_pod)
            );
            assert_eq!(summary.revised(position), alive().map(Pod::revised).max());
            let of_current = |pod: &&Pod| pod.revision == PodRevision::Current;
            assert_eq!(
                summary.current(position),
                alive().find(of_current).map(PodFacts::from_pod)
            );
            assert_eq!(summary.has_pods(position), !node.pods.is_empty());
            let got = node.pods.iter().filter(|pod| pod.number == 2);
            assert_eq!(summary.got_current(position), got.map(Pod::revised).max());
        }
        assert_eq!(summary.got_current(6), Some(at(500)));
    }
}
