//! Monitor of nodes and pods, with its own client. It records their changes independently of the controller.
//!
//! The monitor can check the controller, because it uses neither the controller's caches nor `core`. It counts like a person with a
//! stopwatch who reads `kubectl get pods --watch`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client, ResourceExt as _};

use crate::clock::Clock;
use crate::core::names::{POD_IMAGE_READY, POD_NEED_UPGRADE};
use crate::task::Task;

/// Pods that the monitor observes, and values that it needs to measure them.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    pub(super) namespace: String,
    /// Label selector of the pods, as in an API request.
    pub(super) selector: String,
    /// Image after the change.
    pub(super) image: String,
    /// Time for which a pod has to be Ready to count as available.
    pub(super) min_ready: Duration,
}

/// Running monitor. It stops when dropped.
pub(super) struct Monitor {
    record: Arc<Mutex<MonitorRecord>>,
    _task: Task,
}

/// Observations of the monitor so far. Times count from the start of the play.
#[derive(Clone, Debug, Default)]
pub(super) struct MonitorRecord {
    /// Observed nodes by name.
    pub(super) nodes: BTreeMap<String, MonitoredNode>,
    /// Number of online nodes without an available pod after the rollout deleted their pod.
    pub(super) down: usize,
    /// Highest value of `down`, and the time at which it was first reached.
    pub(super) peak: (usize, Duration),
    /// Number of pods that were deleted and are gone.
    pub(super) replaced: usize,
    /// Time of the last change of a pod or node.
    pub(super) last_change: Duration,
    /// Observed pods by UID.
    pods: BTreeMap<String, MonitoredPod>,
}

/// Pod as the monitor observed it.
#[derive(Clone, Debug)]
pub(super) struct MonitoredPod {
    pub(super) name: String,
    /// True if the pod has the new image.
    pub(super) new: bool,
    /// Status of the condition `PodNeedUpgrade`.
    pub(super) need_upgrade: Option<String>,
    /// Status of the condition `PodImageReady`, with the reason if it is not `True`.
    pub(super) image_ready: Option<String>,
    node: String,
    going: bool,
    ready_since: Option<Duration>,
}

#[cfg(test)]
impl MonitoredPod {
    /// Returns a pod with the old image and both OTA conditions.
    pub(super) fn of_owner(name: &str, need_upgrade: &str, image_ready: &str) -> Self {
        Self {
            name: name.to_owned(),
            new: false,
            need_upgrade: Some(need_upgrade.to_owned()),
            image_ready: Some(image_ready.to_owned()),
            node: String::new(),
            going: false,
            ready_since: None,
        }
    }
}

/// Observations of one node.
#[derive(Clone, Debug, Default)]
pub(super) struct MonitoredNode {
    /// True if the node's Ready condition is `True`.
    pub(super) ready: bool,
    /// Time at which the node last went offline.
    pub(super) left: Option<Duration>,
    /// Time at which the node last returned.
    pub(super) returned: Option<Duration>,
    /// Time at which the deletion of a pod on the node was last requested.
    pub(super) taken: Option<Duration>,
    /// Time at which the first pod with the new image became available; `None` before that.
    pub(super) updated: Option<Duration>,
    /// Number of times that a pod on the node was deleted while the node was online.
    pub(super) losses: usize,
    /// True from the deletion of the node's pod until another pod is available.
    lacks: bool,
    /// True if the node was offline at any time while `lacks` was true. Then the rollout did not cause the missing pod.
    interrupted: bool,
}

impl MonitoredNode {
    /// Returns true if the node went offline after its update and has not returned.
    pub(super) fn is_lost(&self) -> bool {
        !self.ready && self.updated.is_some() && self.left > self.updated
    }

    /// Returns true if the node went offline between the deletion of its old pod and the availability of a new one.
    pub(super) fn is_lost_in_between(&self) -> bool {
        let is_taken_before = self.taken.is_some_and(|taken| self.left > Some(taken));
        !self.ready && self.updated.is_none() && is_taken_before
    }
}

enum MonitorEvent {
    Node(Box<Event<Node>>),
    Pod(Box<Event<Pod>>),
}

impl Monitor {
    /// Starts the monitor. Times count from this call.
    pub(super) fn start(client: Client, clock: Clock, measure: Measure) -> Self {
        let record = Arc::new(Mutex::new(MonitorRecord::default()));
        let witness = ObjectWatcher {
            client,
            start: clock.now(),
            clock,
            measure,
            record: record.clone(),
        };
        Self {
            record,
            _task: Task::spawn(witness.run()),
        }
    }

    /// Waits until the monitor has seen this number of nodes and pods, so that it sees all later changes.
    pub(super) async fn has_seen(&self, nodes: usize) {
        let complete = || {
            let record = self.record();
            record.nodes.len() >= nodes && record.pods.len() >= nodes
        };
        while !complete() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(super) fn record(&self) -> MutexGuard<'_, MonitorRecord> {
        lock(&self.record)
    }
}

fn lock(record: &Mutex<MonitorRecord>) -> MutexGuard<'_, MonitorRecord> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

struct ObjectWatcher {
    client: Client,
    clock: Clock,
    start: Timestamp,
    measure: Measure,
    record: Arc<Mutex<MonitorRecord>>,
}

impl ObjectWatcher {
    async fn run(self) {
        let nodes = seen(Api::<Node>::all(self.client.clone()), "")
            .map(|event| MonitorEvent::Node(Box::new(event)));
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.measure.namespace);
        let pods =
            seen(pods, &self.measure.selector).map(|event| MonitorEvent::Pod(Box::new(event)));
        let mut events = std::pin::pin!(futures::stream::select(nodes, pods));
        loop {
            let next = lock(&self.record).next_available(self.now(), self.measure.min_ready);
            let wait = async {
                match next {
                    Some(after) => tokio::time::sleep(after).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(event) = events.next() => self.take(event),
                () = wait => {}
            }
            let now = self.now();
            lock(&self.record).count(now, self.measure.min_ready);
        }
    }

    fn now(&self) -> Duration {
        Duration::try_from(self.clock.now().duration_since(self.start)).unwrap_or_default()
    }

    fn take(&self, seen: MonitorEvent) {
        let now = self.now();
        let mut record = lock(&self.record);
        match seen {
            MonitorEvent::Node(event) => match *event {
                Event::Apply(node) | Event::InitApply(node) => record.node(&node, now),
                Event::Delete(node) => {
                    record.nodes.remove(&node.name_any());
                }
                Event::Init | Event::InitDone => {}
            },
            MonitorEvent::Pod(event) => match *event {
                Event::Apply(pod) | Event::InitApply(pod) => {
                    record.pod(&pod, &self.measure.image, now);
                }
                Event::Delete(pod) => {
                    record.taken(&pod, now);
                    record.pod_gone(&pod);
                }
                Event::Init | Event::InitDone => {}
            },
        }
    }
}

fn seen<K>(api: Api<K>, labels: &str) -> impl Stream<Item = Event<K>> + Send
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let config = watcher::Config::default().labels(labels);
    watch(api, config)
        .default_backoff()
        .filter_map(|event| std::future::ready(event.ok()))
}

impl MonitorRecord {
    fn node(&mut self, node: &Node, now: Duration) {
        let conditions = node
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let ready = conditions
            .into_iter()
            .any(|one| one.type_ == "Ready" && one.status == "True");
        let record = self.nodes.entry(node.name_any()).or_default();
        match (record.ready, ready) {
            (true, false) => {
                record.left = Some(now);
                record.interrupted = record.lacks;
            }
            (false, true) if record.left.is_some() => record.returned = Some(now),
            _ => {}
        }
        if record.ready != ready {
            record.ready = ready;
            self.last_change = now;
        }
    }

    fn pod(&mut self, pod: &Pod, image: &str, now: Duration) {
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else {
            return;
        };
        if pod.metadata.deletion_timestamp.is_some() {
            self.taken(pod, now);
            return;
        }
        let spec = pod.spec.as_ref();
        let images = spec.into_iter().flat_map(|spec| &spec.containers);
        let new = images
            .into_iter()
            .any(|one| one.image.as_deref() == Some(image));
        let condition = |kind: &str| {
            let status = pod.status.iter();
            let mut conditions = status.flat_map(|status| status.conditions.iter().flatten());
            conditions.find(|one| one.type_ == kind)
        };
        let ready = condition("Ready").is_some_and(|one| one.status == "True");
        let uid = pod.uid().unwrap_or_default();
        let record = self.pods.entry(uid).or_insert_with(|| MonitoredPod {
            name: pod.name_any(),
            new,
            need_upgrade: None,
            image_ready: None,
            node,
            going: false,
            ready_since: None,
        });
        record.new = new;
        record.need_upgrade = condition(POD_NEED_UPGRADE).map(|one| one.status.clone());
        record.image_ready = condition(POD_IMAGE_READY).map(|one| match &one.reason {
            Some(reason) if one.status != "True" => format!("{} {reason}", one.status),
            _ => one.status.clone(),
        });
        record.ready_since = if ready {
            record.ready_since.or(Some(now))
        } else {
            None
        };
    }

    /// Records that the deletion of a pod was requested. From this time, the node lacks a pod.
    fn taken(&mut self, pod: &Pod, now: Duration) {
        let uid = pod.uid().unwrap_or_default();
        let Some(record) = self.pods.get_mut(&uid).filter(|record| !record.going) else {
            return;
        };
        record.going = true;
        record.ready_since = None;
        self.last_change = now;
        let Some(node) = self.nodes.get_mut(&record.node) else {
            return;
        };
        node.taken = Some(now);
        node.lacks = true;
        node.interrupted = !node.ready;
        node.losses += usize::from(node.ready);
    }

    fn pod_gone(&mut self, pod: &Pod) {
        if self.pods.remove(&pod.uid().unwrap_or_default()).is_some() {
            self.replaced += 1;
        }
    }

    /// Recounts the nodes without an available pod.
    fn count(&mut self, now: Duration, min_ready: Duration) {
        for pod in self.pods.values().filter(|pod| !pod.going) {
            let Some(node) = self.nodes.get_mut(&pod.node) else {
                continue;
            };
            if pod
                .ready_since
                .is_some_and(|since| since + min_ready <= now)
            {
                node.lacks = false;
                node.interrupted = false;
                if pod.new && node.updated.is_none() {
                    node.updated = Some(now);
                    self.last_change = now;
                }
            }
        }
        let lacking = |node: &&MonitoredNode| node.lacks && node.ready && !node.interrupted;
        self.down = self.nodes.values().filter(lacking).count();
        if self.down > self.peak.0 {
            self.peak = (self.down, now);
        }
    }

    /// Returns the time until the next Ready pod becomes available; `None` if there is no such pod. The monitor needs a timer,
    /// because no event reports that a pod became available.
    fn next_available(&self, now: Duration, min_ready: Duration) -> Option<Duration> {
        let since = self.pods.values().filter_map(|pod| pod.ready_since);
        let at = since.map(|since| since + min_ready).filter(|at| *at > now);
        at.min().map(|at| at - now)
    }

    /// Returns UID and record of the pod on a node. Ignores pods that are being deleted.
    pub(super) fn pod_on(&self, node: &str) -> Option<(&str, &MonitoredPod)> {
        let mut pods = self.pods.iter();
        let (uid, pod) = pods.find(|(_, pod)| pod.node == node && !pod.going)?;
        Some((uid, pod))
    }

    /// Returns the UID of each node's pod. Ignores pods that are being deleted.
    pub(super) fn uids(&self) -> BTreeMap<String, String> {
        let staying = self.pods.iter().filter(|(_, pod)| !pod.going);
        staying
            .map(|(uid, pod)| (pod.node.clone(), uid.clone()))
            .collect()
    }

    /// Returns the number of nodes on which a new pod has become available.
    pub(super) fn updated(&self) -> usize {
        self.nodes
            .values()
            .filter(|node| node.updated.is_some())
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SECOND: Duration = Duration::from_secs(1);

    fn node(name: &str, ready: bool) -> Node {
        let status = if ready { "True" } else { "Unknown" };
        serde_json::from_value(json!({
            "metadata": { "name": name },
            "status": { "conditions": [{ "type": "Ready", "status": status }] },
        }))
        .unwrap()
    }

    fn pod(uid: &str, node: &str, image: &str, ready: bool, going: bool) -> Pod {
        let deleted = going.then_some("2026-01-01T00:00:00Z");
        let status = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": { "name": uid, "uid": uid, "deletionTimestamp": deleted },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": image }] },
            "status": { "conditions": [{ "type": "Ready", "status": status }] },
        }))
        .unwrap()
    }

    fn fleet() -> MonitorRecord {
        let mut record = MonitorRecord::default();
        for name in ["a", "b"] {
            record.node(&node(name, true), Duration::ZERO);
            record.pod(
                &pod(&format!("{name}-old"), name, "old", true, false),
                "new",
                Duration::ZERO,
            );
        }
        record.count(Duration::ZERO, Duration::ZERO);
        record
    }

    #[test]
    fn a_node_is_down_from_the_deletion_of_its_pod_until_the_next_one_is_available() {
        let mut record = fleet();
        assert_eq!(record.down, 0);
        record.pod(&pod("a-old", "a", "old", true, true), "new", SECOND);
        record.count(SECOND, 5 * SECOND);
        assert_eq!((record.down, record.peak), (1, (1, SECOND)));
        record.pod_gone(&pod("a-old", "a", "old", true, true));
        record.pod(&pod("a-new", "a", "new", true, false), "new", 2 * SECOND);
        record.count(6 * SECOND, 5 * SECOND);
        assert_eq!(
            (record.down, record.updated()),
            (1, 0),
            "Ready, but too young"
        );
        record.count(7 * SECOND, 5 * SECOND);
        assert_eq!((record.down, record.updated()), (0, 1));
        assert_eq!(record.nodes["a"].updated, Some(7 * SECOND));
    }

    #[test]
    fn an_offline_node_is_never_down_because_of_the_rollout() {
        let mut record = fleet();
        record.node(&node("b", false), SECOND);
        record.pod(&pod("b-old", "b", "old", false, false), "new", SECOND);
        record.count(SECOND, Duration::ZERO);
        assert_eq!(record.down, 0);
        record.node(&node("b", true), 2 * SECOND);
        record.count(2 * SECOND, Duration::ZERO);
        assert_eq!(
            record.down, 0,
            "its pod is not Ready yet, but nobody took it away"
        );
    }
}
