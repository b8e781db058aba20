//! Which pods of an Advanced DaemonSet are made and which go, whatever revision they have: what Kubernetes' own controller
//! does for a native one (`manage` in `pkg/controller/daemon/daemon_controller.go`), with Kruise's additions.
//!
//! | on the node | then |
//! |---|---|
//! | a pod belongs there, and there is none | one is made |
//! | no pod belongs there (an untolerated `NoExecute` taint, other labels) | every pod goes |
//! | pods that are over (`Failed`, `Succeeded`) | they go, the next of a node after a pause that doubles |
//! | more than one pod | the oldest stays; of an old and a new one both do, for they are a surge ([`surge`](super::surge)), and of several old or new ones the oldest that is Ready |
//! | the Node is gone, and the pod was never started | it goes; what ran there is the pod garbage collector's |
//!
//! Pods are made with the current revision always. Nothing of this waits for a rollout, and a pause does not hold it up. What
//! goes asks its hook first, as in a rollout.

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

/// The pause after the first pod of a node that was over, before the next one goes (Kubernetes).
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest such pause (Kubernetes).
const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);

/// After so long without another one the pauses begin anew (Kubernetes).
const QUIET: SignedDuration = SignedDuration::from_mins(30);

/// What is made and what goes now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manage {
    /// Nodes that get a pod of the current revision, in this order.
    pub create: Vec<NodeName>,
    /// What is written to pods that go.
    pub actions: Vec<Action>,
    /// Pods that go sooner or later: a rollout leaves them alone.
    pub leaving: BTreeSet<PodUid>,
    /// Those of `actions` that delete a pod that is over, with the node of each.
    pub over: Vec<(NodeName, PodUid)>,
    /// When time alone changes this.
    pub wake: Option<Timestamp>,
}

/// When the next pod of a node that is over may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedPodsBackoff {
    /// Of each node when the last one went, and the pause after it.
    nodes: BTreeMap<NodeName, (Timestamp, Duration)>,
}

impl FailedPodsBackoff {
    /// When the next one of this node may go, if that is after `now`.
    fn holds(&self, node: &NodeName, now: Timestamp) -> Option<Timestamp> {
        let (at, pause) = self.nodes.get(node)?;
        Some(later(*at, *pause)).filter(|until| *until > now)
    }

    /// One went at `now`.
    pub fn note(&mut self, node: &NodeName, now: Timestamp) {
        self.nodes
            .retain(|_, (at, pause)| now.duration_since(later(*at, *pause)) < QUIET);
        let known = self.nodes.get(node).map(|(_, pause)| *pause);
        let pause = known.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
        self.nodes.insert(node.clone(), (now, pause));
    }

    /// Forgets all of them: the DaemonSet was changed.
    pub fn reset(&mut self) {
        self.nodes.clear();
    }
}

/// What the choice depends on, beside the fleet.
#[derive(Clone, Copy, Debug)]
pub struct ManageTerms<'a> {
    /// The settings that can be used; `None`: there are none, and the pods that belong are made all the same.
    pub strategy: Option<&'a Strategy>,
    /// True if a setting is invalid. An old and a new pod on one node then both stay, because `max-surge` may be the invalid one.
    pub keeps_pairs: bool,
    /// How pods are made.
    pub scaling: Scaling,
    /// Nodes whose pod was asked for and does not show yet.
    pub creating: &'a BTreeMap<NodeName, Timestamp>,
    /// Nodes for which the API server refused a pod, and how often in a row: they come after all others.
    pub refused: &'a BTreeMap<NodeName, u32>,
    /// Pods that nobody controls and that are to be adopted, with their nodes: no other one is made there.
    pub orphans: &'a BTreeMap<PodUid, NodeName>,
    /// When pods that are over may go.
    pub backoff: &'a FailedPodsBackoff,
    /// This moment.
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

/// What to make and what to let go in `fleet`.
pub fn manage(fleet: &Fleet, terms: ManageTerms<'_>) -> Manage {
    let mut manage = Manage::default();
    for node in &fleet.nodes {
        manage.look_at(node, terms);
    }
    let counted = fleet.crowd.len();
    let targeted = counted + fleet.nodes.iter().filter(|node| runs(node)).count();
    manage.limit_to_partition(fleet, terms);
    let burst = terms.scaling.at_once(targeted);
    // Those that were asked for and do not show yet are among them.
    let free = burst.saturating_sub(terms.creating.len());
    // Before they are counted out: who is refused holds up nobody.
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
            // The rest follows when these are done, which wakes whoever asks.
            let soon = later(terms.now, FIRST_PAUSE);
            *wake = Some(wake.map_or(soon, |until| until.min(soon)));
        }
        fits
    });
    manage
}

/// Which of the pods of a node is the first: one that is not on its way out and that a kubelet has accepted, then by age and name
/// (Kruise, which also counts one that has ended and is kept by a finalizer before the one that runs beside it).
fn rank(pod: &Pod) -> (bool, bool, Timestamp, &PodName) {
    let is_leaving = pod.terminating || pod.in_place.is_over;
    (is_leaving, pod.started.is_none(), pod.created, &pod.name)
}

impl Manage {
    /// What is written to pods in all, where a rollout asks for `rolled`: it leaves alone who goes anyway.
    pub fn with_rollout(self, rolled: Vec<Action>) -> Vec<Action> {
        let Self {
            mut actions,
            leaving,
            ..
        } = self;
        let free = rolled.into_iter();
        let free = free.filter(|action| !leaving.contains(&action.pod().uid));
        actions.extend(free.filter_map(|action| match action {
            // Whoever makes pods needs nobody to hand them over to.
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
                    // Nobody knows whether it goes.
                    _ if pod.in_doubt => true,
                    // Beside one that is over and waits for its pause no other is made.
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

    /// Has superfluous pods go.
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
            return; // any of them may be the new one
        }
        // One that serves is not taken away for one that does not.
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

    /// Has a pod go, once its hook agrees.
    fn remove(&mut self, pod: &Pod, terms: ManageTerms<'_>) {
        self.leaving.insert(pod.uid.clone());
        let hook = terms.hook().filter(|hook| hook.hooks(&pod.exit));
        self.actions.extend(match hook {
            None => Some(Action::Delete(pod.reference())),
            Some(hook) => removal::mark(hook, pod),
        });
    }

    /// Leaves those out whom `partition` keeps without a pod; who had one comes before all others.
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

/// The numbers in the status of a DaemonSet (Kubernetes, Kruise).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DaemonSetCounts {
    /// Nodes where a pod belongs now.
    pub desired: usize,
    /// Those of them with a pod.
    pub current: usize,
    /// Nodes with a pod where none belongs now.
    pub misscheduled: usize,
    /// Nodes of `current` whose first pod is Ready.
    pub ready: usize,
    /// Those of them that are so for `minReadySeconds`.
    pub available: usize,
    /// Nodes of `desired` without an available pod.
    pub unavailable: usize,
    /// Nodes of `current` whose first pod has the current revision.
    pub updated: usize,
}

impl DaemonSetCounts {
    /// Counts a node: whether a pod belongs there, and its pods.
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
