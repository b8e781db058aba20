//! Minimal model of a cluster: nodes that go offline and return, slow kubelets, and the native DaemonSet controller with
//! `OnDelete`.
//!
//! One tick is one second. A story in this model takes microseconds, so a property can run a million stories. The embedded cluster,
//! which runs the scenarios, would be too slow. The model checker (`tests/model`) uses another model without continuous time,
//! because it has to compare and enumerate states.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::{after, now};
use crate::core::testing::old;
use crate::core::*;

/// Delays on a node, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateLimit {
    /// Time from the deletion of a pod until its end.
    pub(super) to_terminate: i64,
    /// Time from the end of a pod until the native controller creates the next one.
    pub(super) to_create: i64,
    /// Time from the creation of a pod until it is Ready.
    pub(super) to_start: i64,
    /// Time until an old pod is Ready again after its node returned; `None` if the pod stays Ready (node autonomy).
    pub(super) to_recover: Option<i64>,
}

#[derive(Clone, Debug)]
struct ModelNode {
    name: NodeName,
    pace: RateLimit,
    readiness: Readiness,
    targeting: Targeting,
    pod: Option<ModelPod>,
    podless_since: i64,
}

#[derive(Clone, Debug)]
struct ModelPod {
    name: PodName,
    uid: PodUid,
    template: u8,
    created: i64,
    started: Option<i64>,
    ready_since: Option<i64>,
    unready_since: Option<i64>,
    ready_at: i64,
    gone_at: Option<i64>,
}

/// Model of a cluster.
#[derive(Clone, Debug)]
pub(super) struct World {
    nodes: Vec<ModelNode>,
    /// Template of the DaemonSet.
    pub(super) wanted: u8,
    /// Template that the native controller has observed.
    pub(super) observed: u8,
    /// Number of the ControllerRevision of each template that was current before or is current now.
    known: BTreeMap<u8, i64>,
    /// True if the observed template was current before, so that it is current again after a rollback.
    ran_before: bool,
    tick: i64,
    next_pod: usize,
    /// The guard's record from the DaemonSet's status.
    record: Option<FailureRecord>,
    /// Record of the active pause.
    pause: Option<PauseRecord>,
    /// Number of times that plans deleted a pod, for each node.
    pub(super) replaced: BTreeMap<usize, u32>,
}

impl World {
    /// Returns a cluster in which all nodes have run template 0 for a long time.
    pub(super) fn settled(paces: &[RateLimit]) -> Self {
        let long_ago = -10_000;
        let node = |(i, pace): (usize, &RateLimit)| ModelNode {
            name: format!("n{i:02}").into(),
            pace: *pace,
            readiness: Readiness::Ready {
                since: at(long_ago),
            },
            targeting: Targeting::Run,
            pod: Some(ModelPod {
                started: Some(long_ago),
                ready_since: Some(long_ago),
                ..ModelPod::new(i, 0, long_ago, 0)
            }),
            podless_since: 0,
        };
        Self {
            nodes: paces.iter().enumerate().map(node).collect(),
            wanted: 0,
            observed: 0,
            known: BTreeMap::from([(0, 1)]),
            ran_before: false,
            tick: 0,
            next_pod: paces.len(),
            record: None,
            pause: None,
            replaced: BTreeMap::new(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        at(self.tick)
    }

    pub(super) fn is_online(&self, node: usize) -> bool {
        matches!(self.nodes[node].readiness, Readiness::Ready { .. })
    }

    pub(super) fn set_online(&mut self, node: usize, online: bool) {
        if online == self.is_online(node) {
            return;
        }
        let (tick, since) = (self.tick, self.now());
        let node = &mut self.nodes[node];
        node.readiness = if online {
            Readiness::Ready { since }
        } else {
            Readiness::NotReady { since: Some(since) }
        };
        let (Some(pod), Some(to_recover)) = (&mut node.pod, node.pace.to_recover) else {
            return;
        };
        if online {
            pod.ready_at = pod.ready_at.max(tick + to_recover);
        } else {
            (pod.ready_since, pod.unready_since) =
                (None, pod.ready_since.and(Some(tick)).or(pod.unready_since));
        }
    }

    pub(super) fn set_targeted(&mut self, node: usize, targeted: bool) {
        self.nodes[node].targeting = if targeted {
            Targeting::Run
        } else {
            Targeting::Keep
        };
    }

    /// Deletes the node's pod, as another client than yurt-ds would.
    pub(super) fn kill(&mut self, node: usize) {
        let gone_at = self.tick + self.nodes[node].pace.to_terminate;
        if let Some(pod) = &mut self.nodes[node].pod {
            pod.gone_at.get_or_insert(gone_at);
        }
    }

    /// Makes the node's container crash. The container restarts a few seconds later.
    pub(super) fn crash(&mut self, node: usize) {
        let ready_at = self.tick + 7;
        if let Some(pod) = &mut self.nodes[node].pod {
            pod.unready_since = Some(ready_at - 7);
            (pod.ready_since, pod.ready_at) = (None, ready_at);
        }
    }

    /// Lets the native controller observe the current template of the DaemonSet.
    pub(super) fn observe(&mut self) {
        if self.observed != self.wanted {
            self.observed = self.wanted;
            let greatest = self.known.values().max().copied().unwrap_or(0);
            self.ran_before = self.known.insert(self.wanted, greatest + 1).is_some();
        }
    }

    /// Simulates one second for kubelets and the native controller.
    pub(super) fn pass(&mut self) {
        self.tick += 1;
        for node in &mut self.nodes {
            if matches!(node.readiness, Readiness::Ready { .. }) {
                node.kubelet(self.tick);
                if node.wants_pod(self.tick) {
                    let to_start = node.pace.to_start;
                    let pod = ModelPod::new(self.next_pod, self.observed, self.tick, to_start);
                    node.pod = Some(pod);
                    self.next_pod += 1;
                }
            }
        }
    }

    /// Returns the time that the node's pod of `template` has been running, in seconds.
    pub(super) fn running_for(&self, node: usize, template: u8) -> Option<i64> {
        let pod = self.nodes[node].pod.as_ref()?;
        (pod.template == template && pod.gone_at.is_none())
            .then_some(pod.started?)
            .map(|started| self.tick - started)
    }

    /// Returns the time that the node's pod of `template` has been Ready, in seconds.
    pub(super) fn ready_for(&self, node: usize, template: u8) -> Option<i64> {
        let pod = self.nodes[node].pod.as_ref()?;
        let is_alive = pod.template == template && pod.gone_at.is_none();
        Some(self.tick - pod.ready_since.filter(|_| is_alive)?)
    }

    /// Returns the fleet that the index builds for this cluster.
    pub(super) fn fleet(&self) -> Fleet {
        let revision = if self.observed == self.wanted {
            RevisionState::Current(hash(self.wanted))
        } else {
            RevisionState::Unknown(RevisionUnknown::NotObserved)
        };
        Fleet {
            in_order: true,
            revision,
            made: None,
            adopted: None,
            is_proven: self.ran_before,
            behind_since: None,
            replaces: self.known.len() > 1,
            earlier: Vec::new(),
            undone: None,
            evictions: Default::default(),
            write_failures: Default::default(),
            transitions: Default::default(),
            rollback_targets: Default::default(),
            record: self.record.clone(),
            pause: self.pause,
            kind: Default::default(),
            not_created: None,
            not_ready: Default::default(),
            crowd: Default::default(),
            nodes: self
                .nodes
                .iter()
                .map(|node| node.view(self.wanted, &self.known))
                .collect(),
        }
    }

    /// Carries out a plan. Panics if the plan names a pod that does not exist.
    pub(super) fn apply(&mut self, plan: &Plan) {
        self.record = plan.record.clone();
        self.pause = plan.pause.as_ref().map(|stand| stand.record);
        for action in &plan.actions {
            let (Action::Delete(target) | Action::Evict(target)) = action else {
                panic!("the model knows no {action:?}");
            };
            let holds = |node: &ModelNode| {
                let pod = node.pod.as_ref();
                pod.is_some_and(|pod| pod.uid == target.uid)
            };
            let node = self.nodes.iter().position(holds).expect("the pod is there");
            assert_ne!(
                self.nodes[node].pod.as_ref().map(|pod| pod.template),
                Some(self.wanted)
            );
            self.kill(node);
            *self.replaced.entry(node).or_default() += 1;
        }
    }
}

impl ModelNode {
    fn kubelet(&mut self, tick: i64) {
        let Some(pod) = &mut self.pod else {
            return;
        };
        if pod.gone_at.is_some_and(|gone_at| gone_at <= tick) {
            (self.pod, self.podless_since) = (None, tick);
            return;
        }
        pod.started.get_or_insert(tick);
        if pod.ready_at <= tick && pod.gone_at.is_none() {
            pod.ready_since.get_or_insert(tick);
            pod.unready_since = None;
        }
    }

    fn wants_pod(&self, tick: i64) -> bool {
        self.pod.is_none()
            && self.targeting == Targeting::Run
            && self.podless_since + self.pace.to_create <= tick
    }

    fn view(&self, wanted: u8, known: &BTreeMap<u8, i64>) -> Node {
        Node {
            name: self.name.clone(),
            labels: Labels::default(),
            hold: None,
            window: None,
            targeting: self.targeting,
            native: self.targeting,
            readiness: self.readiness,
            pods: self.pod.iter().map(|pod| pod.view(wanted, known)).collect(),
            disrupted_at: None,
            emptied: false,
            kept_away_by: None,
            had_pod: false,
            losses: None,
            cut_off: false,
            podless_since: self.pod.is_none().then(|| at(self.podless_since)),
            trouble: None,
            has_images: false,
        }
    }
}

impl ModelPod {
    fn new(number: usize, template: u8, created: i64, to_start: i64) -> Self {
        Self {
            name: format!("p{number}").into(),
            uid: format!("u{number}").into(),
            template,
            created,
            started: None,
            ready_since: None,
            unready_since: None,
            ready_at: created + to_start,
            gone_at: None,
        }
    }

    fn view(&self, wanted: u8, known: &BTreeMap<u8, i64>) -> Pod {
        Pod {
            name: self.name.clone(),
            uid: self.uid.clone(),
            created: at(self.created),
            revision: if self.template == wanted {
                PodRevision::Current
            } else {
                PodRevision::Outdated
            },
            terminating: self.gone_at.is_some(),
            ready_since: self.ready_since.map(at),
            unready_since: self.unready_since.map(at),
            started: self.started.map(at),
            ..old(known.get(&self.template).copied().unwrap_or(0))
        }
    }
}

fn hash(template: u8) -> Revision {
    format!("hash-{template}").into()
}

pub(super) fn at(tick: i64) -> Timestamp {
    after(now(), tick)
}
