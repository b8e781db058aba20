//! Creation and deletion of the pods of an Advanced DaemonSet, independent of their revision.
//!
//! For an Advanced DaemonSet, this module replaces Kubernetes' own controller (`manage` in
//! `pkg/controller/daemon/daemon_controller.go`), with Kruise's additions.
//!
//! | state of the node | result |
//! |---|---|
//! | the DaemonSet runs a pod there, and there is none | a pod is created |
//! | the DaemonSet runs no pod there (an untolerated `NoExecute` taint, other labels) | every pod is deleted |
//! | a pod has ended (`Failed`, `Succeeded`) | the pod is deleted; the next ended pod of the node after a pause, which doubles |
//! | more than one pod | the oldest stays; with [`surge`](super::surge), the oldest Ready pod of each revision stays |
//! | the Node is gone, and the pod never started | the pod is deleted; the pod garbage collector deletes pods that ran there |
//!
//! New pods always get the current revision. This work continues during a rollout and during a pause. As in a rollout, a pod is
//! deleted only after its preDelete hook allows it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::progressive::{runs, withheld};
use super::removal;
use crate::core::action::Action;
use crate::core::fleet::{Fleet, Node, Pod, Readiness, Targeting};
use crate::core::id::{NodeName, PodName, PodRevision, PodUid};
use crate::core::instant::later;
use crate::core::lifecycle::PreDelete;
use crate::core::settings::{Mode, Scaling, Strategy};

/// Pause between the deletions of the first and the second ended pod of a node (as in Kubernetes).
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause between deletions of ended pods on one node (as in Kubernetes).
const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);

/// Time without another ended pod after which the pauses start over (as in Kubernetes).
const QUIET: SignedDuration = SignedDuration::from_mins(30);

/// Pods to create and to delete now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manage {
    /// Nodes that get a pod of the current revision, in this order.
    pub create: Vec<NodeName>,
    /// Writes that delete or mark pods.
    pub actions: Vec<Action>,
    /// Pods that this module will delete, now or after their hook allows it. A rollout ignores these pods.
    pub leaving: BTreeSet<PodUid>,
    /// Ended pods (`Failed` or `Succeeded`) that `actions` deletes, with their nodes.
    pub over: Vec<(NodeName, PodUid)>,
    /// Earliest time at which the result changes without an event.
    pub wake: Option<Timestamp>,
}

/// Backoff of each node before its next ended pod may be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedPodsBackoff {
    /// Time of the last deletion on each node, and the pause after it.
    nodes: BTreeMap<NodeName, (Timestamp, Duration)>,
}

impl FailedPodsBackoff {
    /// Returns the time from which an ended pod of this node may be deleted; `None` if it may be deleted now.
    fn holds(&self, node: &NodeName, now: Timestamp) -> Option<Timestamp> {
        let (at, pause) = self.nodes.get(node)?;
        Some(later(*at, *pause)).filter(|until| *until > now)
    }

    /// Records the deletion of an ended pod on `node` at `now`.
    pub fn note(&mut self, node: &NodeName, now: Timestamp) {
        self.nodes
            .retain(|_, (at, pause)| now.duration_since(later(*at, *pause)) < QUIET);
        let known = self.nodes.get(node).map(|(_, pause)| *pause);
        let pause = known.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
        self.nodes.insert(node.clone(), (now, pause));
    }

    /// Removes all pauses, because the DaemonSet changed and its next pods may work.
    pub fn reset(&mut self) {
        self.nodes.clear();
    }
}

/// Input of [`manage`] in addition to the fleet.
#[derive(Clone, Copy, Debug)]
pub struct ManageTerms<'a> {
    /// Settings; `None` if they are invalid. Missing pods are created even then.
    pub strategy: Option<&'a Strategy>,
    /// True if a setting is invalid. Then an old and a new pod on one node both stay, because the invalid setting may be
    /// `max-surge`.
    pub keeps_pairs: bool,
    /// Scaling settings.
    pub scaling: Scaling,
    /// Nodes for which the controller has requested a pod that the cache doesn't show yet, with the time of the request.
    pub creating: &'a BTreeMap<NodeName, Timestamp>,
    /// Nodes for which the API server rejected a new pod, with the number of rejections in a row. These nodes get their pods last.
    pub refused: &'a BTreeMap<NodeName, u32>,
    /// Pods that match the selector but have no owner, with their nodes. The DaemonSet is about to adopt these pods, so no other
    /// pod is created on their nodes.
    pub orphans: &'a BTreeMap<PodUid, NodeName>,
    /// Backoff for ended pods.
    pub backoff: &'a FailedPodsBackoff,
    /// Current time.
    pub now: Timestamp,
}

impl ManageTerms<'_> {
    fn surges(&self) -> bool {
        self.strategy
            .is_some_and(|strategy| !strategy.max_surge.is_zero())
    }

    fn hook(&self) -> Option<&PreDelete> {
        self.strategy?.pre_delete.as_deref()
    }
}

/// Returns the pods to create and to delete in `fleet`.
pub fn manage(fleet: &Fleet, terms: ManageTerms<'_>) -> Manage {
    let mut manage = Manage::default();
    for node in &fleet.nodes {
        manage.look_at(node, terms);
    }
    let counted = fleet.crowd.len();
    let targeted = counted + fleet.nodes.iter().filter(|node| runs(node)).count();
    manage.limit_to_partition(fleet, terms);
    let burst = terms.scaling.at_once(targeted);
    // Pods that are requested but not in the cache yet also count toward `burstReplicas`.
    let free = burst.saturating_sub(terms.creating.len());
    // Move nodes with rejected pods to the end of the list before it is cut. Otherwise they could block other nodes.
    if !terms.refused.is_empty() {
        let times = |node: &NodeName| terms.refused.get(node).copied().unwrap_or(0);
        manage.create.sort_by_key(times);
    }
    manage.create.truncate(free);
    let mut deletions = 0;
    let (over, wake) = (&mut manage.over, &mut manage.wake);
    manage.actions.retain(|action| {
        let is_deletion = matches!(action, Action::Delete(_));
        deletions += usize::from(is_deletion);
        let fits = !is_deletion || deletions <= burst;
        if !fits {
            over.retain(|(_, uid)| *uid != action.pod().uid);
            // Delete the remaining pods in a later decision, at the latest one second from now.
            let soon = later(terms.now, FIRST_PAUSE);
            *wake = Some(wake.map_or(soon, |until| until.min(soon)));
        }
        fits
    });
    manage
}

/// Returns the sort key of a node's pods. Pods that stay come before terminating and ended pods, then pods that a kubelet has
/// accepted before the others, then older pods before younger ones.
///
/// The order follows Kruise with one exception: Kruise sorts an ended pod that a finalizer keeps before the running pod next to it.
fn rank(pod: &Pod) -> (bool, bool, Timestamp, &PodName) {
    let is_leaving = pod.terminating || pod.in_place.is_over;
    (is_leaving, pod.started.is_none(), pod.created, &pod.name)
}

impl Manage {
    /// Returns all pod writes: the ones in `actions`, and the ones of the rollout (`rolled`) that concern other pods.
    pub fn with_rollout(self, rolled: Vec<Action>) -> Vec<Action> {
        let Self {
            mut actions,
            leaving,
            ..
        } = self;
        let free = rolled.into_iter();
        let free = free.filter(|action| !leaving.contains(&action.pod().uid));
        actions.extend(free.filter_map(|action| match action {
            // The yurt-ds controller creates all pods of an Advanced DaemonSet, so the DaemonSet already owns the new pod. No
            // ownership has to be transferred.
            Action::DeleteAfterSurge {
                pod, evict: false, ..
            } => Some(Action::Delete(pod)),
            Action::DeleteAfterSurge { pod, .. } => Some(Action::Evict(pod)),
            Action::TransferOwnership(_) => None,
            action => Some(action),
        }));
        actions
    }

    fn look_at(&mut self, node: &Node, terms: ManageTerms<'_>) {
        let alive = || node.pods.iter().filter(|pod| !pod.terminating);
        match (node.readiness, node.native) {
            (Readiness::Gone, _) => {
                let unbound = alive().filter(|pod| pod.started.is_none());
                unbound.for_each(|pod| self.remove(pod, terms));
            }
            (Readiness::Unreadable, _) => {}
            (_, Targeting::No) => alive().for_each(|pod| self.remove(pod, terms)),
            (_, targeting) => {
                self.triage(node, terms);
                let stays = |pod: &Pod| match terms.surges() {
                    // The API server has not answered the request to delete the pod, so the pod may still run.
                    _ if pod.in_doubt => true,
                    // While an ended pod waits for its deletion, the node gets no new pod.
                    true => !pod.terminating,
                    false => !pod.has_ended(),
                };
                if !node.pods.iter().any(stays)
                    && targeting == Targeting::Run
                    && !terms.creating.contains_key(&node.name)
                    && !terms.orphans.values().any(|taken| *taken == node.name)
                {
                    self.create.push(node.name.clone());
                }
            }
        }
    }

    /// Deletes ended pods whose pause is over, and surplus running pods.
    fn triage(&mut self, node: &Node, terms: ManageTerms<'_>) {
        let mut running: Vec<&Pod> = Vec::new();
        for pod in node.pods.iter().filter(|pod| !pod.terminating) {
            if !pod.in_place.is_over {
                running.push(pod);
                continue;
            }
            self.leaving.insert(pod.uid.clone());
            match terms.backoff.holds(&node.name, terms.now) {
                Some(until) => self.wake = self.wake.into_iter().chain([until]).min(),
                None => {
                    self.remove(pod, terms);
                    if self.actions.last().is_some_and(
                        |last| matches!(last, Action::Delete(gone) if gone.uid == pod.uid),
                    ) {
                        self.over.push((node.name.clone(), pod.uid.clone()));
                    }
                }
            }
        }
        if running.len() < 2 {
            return;
        }
        running.sort_by(|a, b| rank(a).cmp(&rank(b)));
        let is_pair = terms.surges() || terms.keeps_pairs || running.iter().any(|pod| pod.surge);
        let is_unknown = |pod: &&Pod| pod.revision == PodRevision::Unknown;
        if is_pair && running.iter().any(is_unknown) {
            return; // any of the pods may be the new one
        }
        // If several pods have the same revision, keep a Ready one.
        let first = |is_new: bool| {
            let alike = |pod: &&&Pod| (pod.revision == PodRevision::Current) == is_new;
            let alike = running.iter().filter(alike);
            alike.min_by_key(|pod| pod.ready_since.is_none())
        };
        let kept = if is_pair {
            [first(true), first(false)]
        } else {
            [running.first(), None]
        };
        let kept: BTreeSet<&PodUid> = kept.into_iter().flatten().map(|pod| &pod.uid).collect();
        let surplus = running.iter().filter(|pod| !kept.contains(&pod.uid));
        surplus.for_each(|pod| self.remove(pod, terms));
    }

    /// Deletes a pod once its hook allows it.
    fn remove(&mut self, pod: &Pod, terms: ManageTerms<'_>) {
        self.leaving.insert(pod.uid.clone());
        let hook = terms.hook().filter(|hook| hook.hooks(&pod.exit));
        self.actions.extend(match hook {
            None => Some(Action::Delete(pod.reference())),
            Some(hook) => removal::mark(hook, pod),
        });
    }

    /// Removes the nodes from `create` that `partition` leaves without a pod: first the nodes that never had one.
    fn limit_to_partition(&mut self, fleet: &Fleet, terms: ManageTerms<'_>) {
        let rolls = terms
            .strategy
            .filter(|strategy| strategy.mode == Mode::AdvancedRollingUpdate);
        let Some(strategy) = rolls.filter(|_| terms.scaling.partitioned) else {
            return;
        };
        let is_asked = |node: &Node| terms.creating.contains_key(&node.name);
        let withheld = withheld(strategy, fleet, is_asked);
        let kept: BTreeSet<&NodeName> = (withheld.iter())
            .map(|position| &fleet.nodes[*position].name)
            .collect();
        self.create.retain(|name| !kept.contains(name));
    }
}

/// Counts of nodes for the status of a DaemonSet, defined as in Kubernetes and Kruise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DaemonSetCounts {
    /// Nodes that should run a pod now.
    pub desired: usize,
    /// Nodes of `desired` with a pod.
    pub current: usize,
    /// Nodes with a pod that should run none now.
    pub misscheduled: usize,
    /// Nodes of `current` whose first pod is Ready.
    pub ready: usize,
    /// Nodes of `ready` whose first pod has been Ready for `minReadySeconds`.
    pub available: usize,
    /// Nodes of `desired` without an available pod.
    pub unavailable: usize,
    /// Nodes of `current` whose first pod has the current revision.
    pub updated: usize,
}

impl DaemonSetCounts {
    /// Adds a node with its pods. `native` is the node's eligibility by the rules of the native controller.
    pub fn add(&mut self, native: Targeting, pods: &[&Pod], min_ready: Duration, now: Timestamp) {
        let first = pods.iter().min_by_key(|pod| rank(pod));
        if native != Targeting::Run {
            self.misscheduled += usize::from(first.is_some());
            return;
        }
        self.desired += 1;
        let ready = first.and_then(|pod| pod.ready_since);
        let is_available = ready.is_some_and(|since| later(since, min_ready) <= now);
        let is_new = first.is_some_and(|pod| pod.revision == PodRevision::Current);
        self.current += usize::from(first.is_some());
        self.ready += usize::from(ready.is_some());
        self.available += usize::from(is_available);
        self.unavailable += usize::from(!is_available);
        self.updated += usize::from(is_new);
    }
}
