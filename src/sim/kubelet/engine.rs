//! Task that runs all fake kubelets. It processes commands, pod events, timers and responses, and sends requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use tokio::sync::mpsc;

use super::behaviour::{Rule, Rules};
use super::node::{FakeNodeSpec, Flap, KubeletNode, Outage, unknown};
use super::options::KubeletOptions;
use super::pod::{KubeletPod, NextStep, NodeHandle, PodStage, PodStep};

use super::status;
use super::write::{self, Ack, PodAddress, Request, StatusWriteOutcome, WriteSubject};
use crate::clock::Clock;
use crate::sim::pod_view::PodView;
use crate::sim::queue::Queue;
use crate::sim::watched::events;

/// Delay before a failed request is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Command of a [`Kubelets`](super::Kubelets) handle.
pub(super) enum KubeletCommand {
    Add(Vec<FakeNodeSpec>),
    Offline(String, Outage),
    Online(String),
    Remove(String),
    Flap(String, Duration, Duration),
    Rule(Rule),
    Terminate(String, Duration),
}

/// Timer that fires at a planned time.
enum Due {
    Pod(String, PodStep),
    Retry(String),
    Flap(String, u32),
    NodeDies(String, u32),
    Report(String),
    Beat(String, u32),
}

/// State of all fake nodes and their pods.
pub(super) struct KubeletEngine {
    client: Client,
    clock: Clock,
    options: KubeletOptions,
    rules: Rules,
    nodes: BTreeMap<String, KubeletNode>,
    pods: BTreeMap<String, KubeletPod>,
    /// UIDs of bound pods by node. Contains pods on nodes without a fake kubelet, because such a node may be added later.
    bound: BTreeMap<String, BTreeSet<String>>,
    due: Queue<Due>,
    waiting: VecDeque<Request>,
    under_way: FuturesUnordered<Request>,
    /// UIDs of known pods that the list in progress has not contained so far. They are removed when the list ends.
    relist: Option<BTreeSet<String>>,
    /// Counter from which nodes get the numbers of their addresses and of their lives (periods online). Random delays are derived
    /// from the counter, too.
    count: u32,
}

impl KubeletEngine {
    pub(super) fn new(client: Client, clock: Clock, options: KubeletOptions) -> Self {
        Self {
            client,
            clock,
            rules: Rules::new(options.behaviour.clone()),
            options,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            bound: BTreeMap::new(),
            due: Queue::default(),
            waiting: VecDeque::new(),
            under_way: FuturesUnordered::new(),
            relist: None,
            count: 0,
        }
    }

    /// Runs until all handles are dropped.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<(KubeletCommand, Ack)>) {
        let pods = Api::<PodView>::all(self.client.clone());
        let mut events = events(pods, "spec.nodeName!=");
        loop {
            self.send_waiting();
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some((command, ack)) => self.command(command, &ack),
                    None => return,
                },
                Some((subject, outcome)) = self.under_way.next() => self.answered(subject, &outcome),
                Some(event) = events.next() => self.event(event),
                () = self.due.wait() => self.fire(),
            }
        }
    }

    fn send_waiting(&mut self) {
        while self.under_way.len() < self.options.parallel_writes {
            let Some(request) = self.waiting.pop_front() else {
                return;
            };
            self.under_way.push(request);
        }
    }

    fn command(&mut self, command: KubeletCommand, ack: &Ack) {
        match command {
            KubeletCommand::Add(specs) => specs.into_iter().for_each(|spec| self.add(spec, ack)),
            KubeletCommand::Rule(rule) => self.rules.add(rule),
            KubeletCommand::Offline(name, how) => self.known(&name, ack, |e| {
                e.stop_flapping(&name);
                e.offline(&name, how, ack);
            }),
            KubeletCommand::Online(name) => self.known(&name, ack, |e| {
                e.stop_flapping(&name);
                e.online(&name, Some(ack.clone()));
            }),
            KubeletCommand::Remove(name) => self.known(&name, ack, |e| e.remove(&name, ack)),
            KubeletCommand::Flap(name, up, down) => {
                self.known(&name, ack, |e| e.flap(&name, up, down))
            }
            KubeletCommand::Terminate(name, time) => self.known(&name, ack, |e| {
                if let Some(node) = e.nodes.get_mut(&name) {
                    node.spec.terminate = Some(time);
                }
            }),
        }
    }

    fn known(&mut self, name: &str, ack: &Ack, act: impl FnOnce(&mut Self)) {
        if self.nodes.contains_key(name) {
            act(self)
        } else {
            ack.fail(format!("node {name} is not a fake node: add it first"))
        }
    }

    /// Returns the time according to a node's clock.
    fn now(&self, node: &str) -> Timestamp {
        let skew = self
            .nodes
            .get(node)
            .map_or(SignedDuration::ZERO, |n| n.spec.skew);
        let now = self.clock.now();
        now.saturating_add(skew).unwrap_or(now)
    }

    fn number(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    fn add(&mut self, spec: FakeNodeSpec, ack: &Ack) {
        let number = self.number();
        let name = spec.name.clone();
        let now = self.clock.now().saturating_add(spec.skew);
        let now = now.unwrap_or_else(|_| self.clock.now());
        let node = KubeletNode::new(spec, address([100, 64], number), now);
        let request = write::register(
            self.client.clone(),
            name.clone(),
            node.object(now),
            ack.clone(),
        );
        self.waiting.push_back(request);
        self.nodes.insert(name.clone(), node);
        self.alive(&name, true);
        self.beat_first(&name, number);
        self.sync_all(&name);
    }

    fn beat_first(&mut self, name: &str, number: u32) {
        if let Some(every) = self.options.lease {
            let share = f64::from(number % 64) / 64.0;
            self.due
                .add(every.mul_f64(share), Due::Beat(name.to_owned(), 0));
        }
    }

    fn offline(&mut self, name: &str, how: Outage, ack: &Ack) {
        let now = self.clock.now();
        let life = self.number();
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        node.online = false;
        node.life = life;
        self.alive(name, false);
        if how.mark_node {
            let request = write::node_status(
                self.client.clone(),
                name.to_owned(),
                unknown(now),
                Some(ack.clone()),
            );
            self.waiting.push_back(request);
        }
        if how.mark_pods {
            for uid in self.bound.get(name).into_iter().flatten() {
                let Some(pod) = self.pods.get(uid).filter(|pod| pod.ready.is) else {
                    continue;
                };
                let key = PodAddress::from(&pod.seen);
                let request = write::mark_not_ready(self.client.clone(), key, now, ack.clone());
                self.waiting.push_back(request);
            }
        }
    }

    fn online(&mut self, name: &str, ack: Option<Ack>) {
        let now = self.now(name);
        let life = self.number();
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        node.online = true;
        node.life = life;
        node.ready_since = now;
        let missed = std::mem::take(&mut node.missed);
        let crashed = std::mem::take(&mut node.crashed);
        let status = node.status(now);
        let request = write::node_status(self.client.clone(), name.to_owned(), status, ack);
        self.waiting.push_back(request);
        self.alive(name, true);
        for (uid, step) in missed {
            self.due.add(Duration::ZERO, Due::Pod(uid, step));
        }
        if crashed {
            for uid in self.bound.get(name).cloned().unwrap_or_default() {
                self.with(&uid, |pod, host| pod.reboot(host));
            }
        }
        if self.options.lease.is_some() {
            self.due
                .add(Duration::ZERO, Due::Beat(name.to_owned(), life));
        }
        self.sync_all(name);
    }

    fn remove(&mut self, name: &str, ack: &Ack) {
        self.nodes.remove(name);
        self.alive(name, true);
        let request = write::delete_node(self.client.clone(), name.to_owned(), ack.clone());
        self.waiting.push_back(request);
    }

    fn flap(&mut self, name: &str, up: Duration, down: Duration) {
        let number = self.number();
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        node.flap = Some(Flap { up, down, number });
        let first = if node.online { up } else { down };
        self.due.add(first, Due::Flap(name.to_owned(), number));
    }

    fn stop_flapping(&mut self, name: &str) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.flap = None;
        }
    }

    /// Records in the shared set of silent nodes (`SilentNodes`) that a node is alive or silent. Does nothing if the options have no
    /// set.
    fn alive(&self, name: &str, alive: bool) {
        if let Some(pulse) = &self.options.pulse {
            pulse.set(name, alive);
        }
    }

    fn fire(&mut self) {
        while let Some(due) = self.due.take() {
            match due {
                Due::Pod(uid, step) => self.step(&uid, step),
                Due::Retry(uid) => self.flush(&uid),
                Due::Flap(name, number) => self.flip(&name, number),
                Due::NodeDies(name, life) => self.die(&name, life),
                Due::Report(name) => self.report(&name),
                Due::Beat(name, life) => self.beat(&name, life),
            }
        }
    }

    fn flip(&mut self, name: &str, number: u32) {
        let Some(node) = self.nodes.get(name) else {
            return;
        };
        let Some(flap) = node.flap.filter(|flap| flap.number == number) else {
            return;
        };
        let next = if node.online {
            let (ack, _) = Ack::new();
            self.offline(name, self.options.offline, &ack);
            flap.down
        } else {
            self.online(name, None);
            flap.up
        };
        self.due.add(next, Due::Flap(name.to_owned(), number));
    }

    fn die(&mut self, name: &str, life: u32) {
        let up = |node: &&mut KubeletNode| node.online && node.life == life;
        if let Some(node) = self.nodes.get_mut(name).filter(up) {
            node.crashed = true;
            tracing::debug!(node = name, "A container crashed its node");
            let (ack, _) = Ack::new();
            self.offline(name, self.options.offline, &ack);
        }
    }

    /// Writes the status of a node again.
    fn report(&mut self, name: &str) {
        let now = self.now(name);
        if let Some(node) = self.nodes.get(name).filter(|node| node.online) {
            let status = node.status(now);
            let request = write::node_status(self.client.clone(), name.to_owned(), status, None);
            self.waiting.push_back(request);
        }
    }

    fn beat(&mut self, name: &str, life: u32) {
        let alive = |node: &&KubeletNode| node.online && node.life == life;
        let Some(every) = self.options.lease else {
            return;
        };
        if self.nodes.get(name).filter(alive).is_some() {
            let now = self.now(name);
            let request = write::renew(self.client.clone(), name.to_owned(), now);
            self.waiting.push_back(request);
            self.due.add(every, Due::Beat(name.to_owned(), life));
        }
    }

    fn event(&mut self, event: Event<PodView>) {
        match event {
            Event::Init => self.relist = Some(self.pods.keys().cloned().collect()),
            Event::InitApply(pod) => {
                if let Some(unseen) = &mut self.relist {
                    unseen.remove(pod.uid());
                }
                self.seen(pod);
            }
            Event::InitDone => {
                for uid in self.relist.take().into_iter().flatten() {
                    self.forget(&uid);
                }
            }
            Event::Apply(pod) => self.seen(pod),
            Event::Delete(pod) => self.forget(pod.uid()),
        }
    }

    fn seen(&mut self, view: PodView) {
        let uid = view.uid().to_owned();
        match self.pods.get_mut(&uid) {
            Some(pod) => pod.seen = view,
            None => {
                let number = self.number();
                let now = self.now(&view.spec.node_name);
                let ip = match self.nodes.get(&view.spec.node_name) {
                    Some(node) if view.spec.host_network => node.ip.clone(),
                    _ => address([10, 0], number),
                };
                let bound = self.bound.entry(view.spec.node_name.clone()).or_default();
                bound.insert(uid.clone());
                self.pods
                    .insert(uid.clone(), KubeletPod::new(view, ip, now));
            }
        }
        self.with(&uid, |pod, host| pod.sync(host));
    }

    fn forget(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else {
            return;
        };
        let node = &pod.seen.spec.node_name;
        if let Some(bound) = self.bound.get_mut(node) {
            bound.remove(uid);
            if bound.is_empty() {
                self.bound.remove(node);
            }
        }
    }

    fn sync_all(&mut self, node: &str) {
        for uid in self.bound.get(node).cloned().unwrap_or_default() {
            self.with(&uid, |pod, host| pod.sync(host));
        }
    }

    fn step(&mut self, uid: &str, step: PodStep) {
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        match self.nodes.get_mut(&pod.seen.spec.node_name) {
            Some(node) if !node.online => node.missed.push((uid.to_owned(), step)),
            _ => self.with(uid, |pod, host| pod.step(step, host)),
        }
    }

    /// Runs an action on a pod if its node is online, then plans the pod's next steps and sends its status.
    fn with(&mut self, uid: &str, act: impl FnOnce(&mut KubeletPod, &mut NodeHandle<'_>)) {
        let Some(name) = self
            .pods
            .get(uid)
            .map(|pod| pod.seen.spec.node_name.clone())
        else {
            return;
        };
        let now = self.now(&name);
        let mut next = NextStep::default();
        let (Some(pod), Some(node)) = (self.pods.get_mut(uid), self.nodes.get_mut(&name)) else {
            return;
        };
        if !node.online {
            return;
        }
        let mut host = NodeHandle {
            name: &name,
            rules: &self.rules,
            images: &mut node.images,
            terminate: node.spec.terminate.unwrap_or(self.options.terminate),
            now,
            next: &mut next,
        };
        act(pod, &mut host);
        let life = node.life;
        if let Some(delay) = next.node_dies {
            self.due.add(delay, Due::NodeDies(name, life));
        }
        for (delay, step) in next.steps {
            let delay = delay + self.jitter();
            self.due.add(delay, Due::Pod(uid.to_owned(), step));
        }
        self.flush(uid);
    }

    /// Returns a random delay. It differs for each step and is reproducible from the seed.
    fn jitter(&mut self) -> Duration {
        if self.options.jitter.is_zero() {
            return Duration::ZERO;
        }
        let number = u64::from(self.number());
        let dice = crate::sim::dice::mix(self.options.seed ^ number);
        self.options
            .jitter
            .mul_f64(f64::from(u16::try_from(dice >> 48).unwrap_or(0)) / 65536.0)
    }

    /// Sends the pending write of a pod, unless another write of this pod is in flight.
    fn flush(&mut self, uid: &str) {
        let Some(pod) = self.pods.get_mut(uid).filter(|pod| !pod.writing) else {
            return;
        };
        let host_ip = match self.nodes.get(&pod.seen.spec.node_name) {
            Some(node) if node.online => &node.ip,
            _ => return,
        };
        let key = PodAddress::from(&pod.seen);
        let request = match pod.stage {
            PodStage::Stopped => {
                let last = self.options.final_status.then(|| status::pod(pod, host_ip));
                write::pod_removal(self.client.clone(), key, last)
            }
            PodStage::Live | PodStage::Stopping if pod.dirty => {
                let status = status::pod(pod, host_ip);
                write::pod_status(self.client.clone(), key, status, self.options.status_write)
            }
            _ => return,
        };
        pod.dirty = false;
        pod.writing = true;
        self.waiting.push_back(request);
    }

    fn answered(&mut self, subject: WriteSubject, outcome: &StatusWriteOutcome) {
        match subject {
            WriteSubject::Status(uid) | WriteSubject::Removal(uid)
                if !self.pods.contains_key(&uid) => {}
            WriteSubject::Status(uid) => self.status_written(&uid, outcome),
            WriteSubject::Removal(uid) => self.removed(&uid, outcome),
            WriteSubject::Node(name) if matches!(outcome, StatusWriteOutcome::Failed) => {
                self.due.add(RETRY, Due::Report(name));
            }
            WriteSubject::Node(_) | WriteSubject::Other => {}
        }
    }

    fn status_written(&mut self, uid: &str, outcome: &StatusWriteOutcome) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        pod.writing = false;
        match outcome {
            StatusWriteOutcome::Done(version) => {
                pod.written = *version;
                self.flush(uid);
            }
            StatusWriteOutcome::Moot => {}
            StatusWriteOutcome::Failed => {
                pod.dirty = true;
                self.due.add(RETRY, Due::Retry(uid.to_owned()));
            }
        }
    }

    fn removed(&mut self, uid: &str, outcome: &StatusWriteOutcome) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        pod.writing = false;
        match outcome {
            StatusWriteOutcome::Done(_) | StatusWriteOutcome::Moot => pod.stage = PodStage::Gone,
            StatusWriteOutcome::Failed => self.due.add(RETRY, Due::Retry(uid.to_owned())),
        }
    }
}

/// Returns the IP address with this number in a network.
fn address([a, b]: [u8; 2], number: u32) -> String {
    let [_, high, middle, low] = number.to_be_bytes();
    format!("{a}.{}.{middle}.{low}", b.wrapping_add(high))
}
