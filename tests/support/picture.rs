//! State of one story as an independent observer sees it. The observer also checks every deletion of a pod.
//!
//! The data comes from the monitor's own watches, not from the controller. At every deletion of a pod, the observer counts the
//! Ready nodes that lack an available pod. The allowed number comes from the story, not from the code under test.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetCondition};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, Node, Pod, PodCondition};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use serde_json::Value;
use yurt_ds::clock::Clock;

use super::objects::DAEMON;

/// Annotation that an in-place update leaves on the pod.
const IN_PLACE: &str = "apps.openyurt.io/inplace-update-state";
/// Annotation that an in-place update leaves on pods of Advanced DaemonSets.
const ADVANCED_IN_PLACE: &str = "apps.kruise.io/inplace-update-state";
/// Label of a pod or a revision with the hash of the revision.
const HASH: &str = "controller-revision-hash";

/// State of one story: the DaemonSet, its nodes and pods, all counts, and all violations.
pub(crate) struct Picture {
    /// Name of the story. It is the namespace and the prefix of the node names.
    pub(crate) scenario: String,
    /// Number of Ready nodes that may lack an available pod because of the controller.
    pub(crate) allowed: usize,
    /// True if the story's DaemonSet is an Advanced one.
    pub(crate) is_advanced: bool,
    /// DaemonSet as last seen. An Advanced one is reduced to the fields that native ones also have.
    pub(crate) daemon: Option<DaemonSet>,
    /// Status of an Advanced DaemonSet, with all its fields.
    pub(crate) status: Value,
    /// UID and generation of the DaemonSet after the story's last write. While `daemon` is older, the picture is not up to date.
    pub(crate) written: (Option<String>, Option<i64>),
    /// All reasons and messages that the condition `RolloutComplete` has had.
    pub(crate) told: Vec<Told>,
    /// Violations of the budget or another rule, at any time in the story.
    pub(crate) violations: Vec<String>,
    /// Largest number of nodes that lacked an available pod at the same time because of the controller.
    pub(crate) peak: usize,
    /// The controller's deletions of pods, in the order in which the monitor saw them.
    pub(crate) deletions: Vec<Deletion>,
    /// The controller's in-place updates, in the order in which the monitor saw them.
    pub(crate) renewals: Vec<Deletion>,
    /// True if a pod may only be deleted after a node owner has requested it from the agent.
    pub(crate) only_wished: bool,
    /// True if a Ready node must never lose its last available pod.
    pub(crate) always_served: bool,
    /// Number of pods that disappeared for other reasons than a rollout, for example because the story removed their owner or node.
    pub(crate) orphans_gone: usize,
    /// Number of surge pods that disappeared, and largest number of surge pods at the same time. A surge pod is a new pod next to
    /// an old one.
    pub(crate) spares_gone: usize,
    pub(crate) most_spares: usize,
    /// Largest number of nodes that had two pods at the same time. The pods may have any owner.
    pub(crate) most_doubled: usize,
    /// Nodes whose pods were replaced at the request of a node owner, in the order in which the monitor saw the replacements.
    pub(crate) granted: Vec<String>,
    clock: Clock,
    slack: SignedDuration,
    pods: BTreeMap<String, Pod>,
    on_node: BTreeMap<String, BTreeSet<String>>,
    nodes: BTreeMap<String, NodeSeen>,
    revisions: BTreeMap<String, ControllerRevision>,
    events: BTreeMap<String, Event>,
    baseline: BTreeMap<String, String>,
    transitions: BTreeMap<String, Time>,
    revision: Option<String>,
    excused: BTreeSet<String>,
    wished: BTreeSet<String>,
    jobs: BTreeMap<String, Job>,
    made_jobs: BTreeSet<String>,
    pulled_at_once: usize,
    disrupted: BTreeSet<String>,
    served: BTreeSet<String>,
    broke: BTreeMap<String, Timestamp>,
}

/// Reason and message of the condition `RolloutComplete`, for any status. Other conditions must agree with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Deletion or in-place update of a pod by the controller.
#[derive(Clone, Debug)]
pub(crate) struct Deletion {
    pub(crate) node: String,
    /// Time of the deletion by the API server's clock.
    pub(crate) at: Timestamp,
}

struct NodeSeen {
    node: Node,
    ready: bool,
    since: Timestamp,
}

impl Picture {
    /// Returns an empty picture. The checks ignore changes in the last `slack`, because the controller may not have seen them yet.
    pub(crate) fn new(scenario: &str, allowed: usize, slack: SignedDuration, clock: Clock) -> Self {
        Self {
            scenario: scenario.to_owned(),
            allowed,
            is_advanced: false,
            daemon: None,
            status: Value::Null,
            written: (None, None),
            told: Vec::new(),
            violations: Vec::new(),
            peak: 0,
            deletions: Vec::new(),
            renewals: Vec::new(),
            only_wished: false,
            always_served: false,
            spares_gone: 0,
            orphans_gone: 0,
            most_spares: 0,
            most_doubled: 0,
            served: BTreeSet::new(),
            granted: Vec::new(),
            clock,
            slack,
            pods: BTreeMap::new(),
            on_node: BTreeMap::new(),
            nodes: BTreeMap::new(),
            revisions: BTreeMap::new(),
            events: BTreeMap::new(),
            baseline: BTreeMap::new(),
            transitions: BTreeMap::new(),
            revision: None,
            excused: BTreeSet::new(),
            wished: BTreeSet::new(),
            jobs: BTreeMap::new(),
            made_jobs: BTreeSet::new(),
            pulled_at_once: 0,
            disrupted: BTreeSet::new(),
            broke: BTreeMap::new(),
        }
    }

    /// Returns the name of the story's node with this number. Numbers start at 1.
    pub(crate) fn node(&self, number: usize) -> String {
        node_name(&self.scenario, number)
    }

    /// Excludes deletions from the checks if they concern the pod, node or owner with this name or UID, because the controller does
    /// not cause them.
    pub(crate) fn excuse(&mut self, what: &str) {
        self.excused.insert(what.to_owned());
    }

    /// Records that a node owner has requested an upgrade of the pod with this UID.
    pub(crate) fn wish(&mut self, uid: &str) {
        self.wished.insert(uid.to_owned());
    }

    /// Removes the record of a node owner's request, because the agent has refused it.
    pub(crate) fn withdraw(&mut self, uid: &str) {
        self.wished.remove(uid);
    }

    /// Remembers the current pods for checks such as "replaced" and "untouched", and sets all counts to zero.
    pub(crate) fn remember(&mut self) {
        self.baseline = self
            .on_node
            .keys()
            .filter_map(|node| Some((node.clone(), uid(&self.living(node).next()?.metadata))))
            .collect();
        let transition = |node: &String| {
            let pod = self.living(node).next()?;
            let condition = condition_of(pod, "PodNeedUpgrade")?;
            Some((node.clone(), condition.last_transition_time.clone()?))
        };
        self.transitions = self.on_node.keys().filter_map(transition).collect();
        self.revision = self.current().cloned();
        self.deletions.clear();
        self.renewals.clear();
        self.granted.clear();
        self.made_jobs.clear();
        self.pulled_at_once = 0;
        self.peak = 0;
        (self.spares_gone, self.orphans_gone) = (0, 0);
        (self.most_spares, self.most_doubled) = (0, 0);
    }

    /// Returns the lastTransitionTime of `PodNeedUpgrade` that was remembered for the pod of a node.
    pub(crate) fn remembered_transition(&self, node: &str) -> Option<&Time> {
        self.transitions.get(node)
    }

    /// Returns the hash of the revision that was current at `remember`.
    pub(crate) fn remembered_revision(&self) -> Option<&String> {
        self.revision.as_ref()
    }

    /// Returns the UID of the pod that a node had at `remember`.
    pub(crate) fn remembered(&self, node: &str) -> Option<&String> {
        self.baseline.get(node)
    }

    pub(crate) fn apply_node(&mut self, node: Node) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let ready = is_ready(&node);
        let same = self.nodes.get(&name).filter(|seen| seen.ready == ready);
        let since = same.map_or_else(|| self.clock.now(), |seen| seen.since);
        self.nodes.insert(name, NodeSeen { node, ready, since });
    }

    pub(crate) fn delete_node(&mut self, node: &Node) {
        self.nodes
            .remove(node.metadata.name.as_deref().unwrap_or_default());
    }

    /// Stores the DaemonSet of the story. Other DaemonSets are ignored.
    pub(crate) fn apply_daemon(&mut self, daemon: DaemonSet) {
        if daemon.metadata.name.as_deref() == Some(DAEMON) {
            self.daemon = Some(daemon);
            self.listen();
        }
    }

    /// Stores the Advanced DaemonSet of the story.
    pub(crate) fn apply_advanced(&mut self, object: DynamicObject) {
        if object.metadata.name.as_deref() == Some(DAEMON) {
            self.status = object.data["status"].clone();
        }
        match as_native(&object) {
            Ok(daemon) => self.apply_daemon(daemon),
            Err(why) => self
                .violations
                .push(format!("the DaemonSet cannot be read: {why}")),
        }
    }

    pub(crate) fn delete_advanced(&mut self, object: &DynamicObject) {
        if let Ok(daemon) = as_native(object) {
            self.delete_daemon(&daemon);
        }
    }

    /// Records the reason and message of the condition `RolloutComplete` if they have changed.
    fn listen(&mut self) {
        let Some(condition) = self.condition("RolloutComplete") else {
            return self.told.clear();
        };
        let told = Told {
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
        };
        if self.told.last() != Some(&told) {
            self.told.push(told);
        }
    }

    pub(crate) fn delete_daemon(&mut self, daemon: &DaemonSet) {
        let uid = |daemon: &DaemonSet| daemon.metadata.uid.clone();
        if self.daemon.as_ref().map(uid) == Some(uid(daemon)) {
            self.daemon = None;
            self.told.clear();
        }
    }

    pub(crate) fn apply_revision(&mut self, revision: ControllerRevision) {
        self.revisions
            .insert(revision.metadata.name.clone().unwrap_or_default(), revision);
    }

    pub(crate) fn delete_revision(&mut self, revision: &ControllerRevision) {
        self.revisions
            .remove(revision.metadata.name.as_deref().unwrap_or_default());
    }

    pub(crate) fn apply_job(&mut self, job: Job) {
        let uid = uid(&job.metadata);
        if !self.jobs.contains_key(&uid) {
            self.made_jobs.insert(uid.clone());
        }
        self.jobs.insert(uid, job);
    }

    pub(crate) fn delete_job(&mut self, job: &Job) {
        self.jobs.remove(&uid(&job.metadata));
    }

    /// Returns all Jobs that are not terminating.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs
            .values()
            .filter(|job| job.metadata.deletion_timestamp.is_none())
    }

    /// Returns the number of Jobs created since `remember`.
    pub(crate) fn made_jobs(&self) -> usize {
        self.made_jobs.len()
    }

    /// Returns the largest number of nodes that pulled images for Jobs at the same time since `remember`.
    pub(crate) fn pulled_at_once(&self) -> usize {
        self.pulled_at_once
    }

    /// Updates the largest number of nodes that pull images for Jobs at the same time.
    fn count_pulls(&mut self) {
        let pulls = |pod: &&Pod| {
            let mut owners = pod.metadata.owner_references.iter().flatten();
            owners.any(|owner| owner.kind == "Job")
                && pod.metadata.deletion_timestamp.is_none()
                && !has_images(pod)
        };
        let nodes: BTreeSet<Option<String>> = self.pods().filter(pulls).map(node_of).collect();
        self.pulled_at_once = self.pulled_at_once.max(nodes.len());
    }

    /// Returns reason and note of all Events that the controller has created about the DaemonSet.
    pub(crate) fn state_events(&self) -> Vec<(String, String)> {
        let is_about = |event: &&Event| {
            let about = event.regarding.as_ref();
            about.is_some_and(|about| about.name.as_deref() == Some(DAEMON))
        };
        let events = self.events.values().filter(is_about);
        let words = |event: &Event| Some((event.reason.clone()?, event.note.clone()?));
        events.filter_map(words).collect()
    }

    pub(crate) fn apply_event(&mut self, event: Event) {
        self.events
            .insert(event.metadata.name.clone().unwrap_or_default(), event);
    }

    /// Stores a pod. Checks the deletion if the pod has just begun to terminate.
    pub(crate) fn apply_pod(&mut self, pod: Pod) {
        let (uid, node) = (uid(&pod.metadata), node_of(&pod));
        let before = self.pods.get(&uid).cloned();
        let dying = pod.metadata.deletion_timestamp.is_some();
        let died_now = dying
            && before
                .as_ref()
                .is_none_or(|pod| pod.metadata.deletion_timestamp.is_none());
        let was_available = before
            .as_ref()
            .is_some_and(|pod| self.is_available(pod, deleted_at(pod, self.clock.now())));
        let at = deleted_at(&pod, self.clock.now());
        if let Some(node) = &node {
            self.on_node
                .entry(node.clone())
                .or_default()
                .insert(uid.clone());
            if was_available && (died_now || !self.is_available(&pod, at)) {
                self.broke.insert(node.clone(), self.clock.now());
            }
        }
        self.pods.insert(uid, pod.clone());
        self.count_pulls();
        if let (Some(before), Some(node)) = (&before, &node)
            && !dying
            && [IN_PLACE, ADVANCED_IN_PLACE]
                .iter()
                .any(|key| annotation(&before.metadata, key) != annotation(&pod.metadata, key))
        {
            self.judge_renewal(&pod, node, was_available, at);
        }
        if died_now {
            self.judge(&pod, node.as_deref(), before.as_ref(), at);
        }
        if let Some(node) = node.filter(|node| self.disrupted.contains(node))
            && self.has_available(&node, at)
        {
            self.disrupted.remove(&node);
        }
        self.look_at_service();
    }

    /// Returns the number of surge pods.
    ///
    /// An Advanced DaemonSet owns its surge pods from the start, so they can't be told apart by their owner. Its nodes with two
    /// pods are counted instead.
    pub(crate) fn spares(&self) -> usize {
        if self.is_advanced {
            let nodes = self.on_node.keys();
            return nodes.filter(|node| self.living(node).count() > 1).count();
        }
        let spares = self.pods.values().filter(|pod| is_spare(pod));
        let living = spares.filter(|pod| pod.metadata.deletion_timestamp.is_none());
        living.count()
    }

    /// Updates the counts of surge pods. If the story requires it, checks that no Ready node has lost its last available pod.
    pub(crate) fn look_at_service(&mut self) {
        self.most_spares = self.most_spares.max(self.spares());
        let nodes = self.on_node.values();
        let doubled = nodes.filter(|uids| {
            let pods = uids.iter().filter_map(|uid| self.pods.get(uid));
            pods.filter(|pod| !has_ended(pod)).count() > 1
        });
        self.most_doubled = self.most_doubled.max(doubled.count());
        if !self.always_served {
            return;
        }
        let now = self.clock.now();
        let online: BTreeSet<String> = self.online().cloned().collect();
        let left = |node: &String| {
            let excused = self.excused.contains(node);
            online.contains(node) && !excused && !self.has_available(node, now)
        };
        let left: Vec<String> = self
            .served
            .iter()
            .filter(|node| left(node))
            .cloned()
            .collect();
        for node in left {
            self.violations
                .push(format!("at {now} {node} had no available pod"));
        }
        let served = online
            .into_iter()
            .filter(|node| self.has_available(node, now));
        self.served = served.collect();
    }

    /// Removes a pod. Checks the deletion now if the monitor never saw the pod terminating.
    pub(crate) fn delete_pod(&mut self, pod: &Pod) {
        let uid = uid(&pod.metadata);
        let Some(before) = self.pods.remove(&uid) else {
            return;
        };
        let node = node_of(&before);
        if let Some(pods) = node.as_ref().and_then(|node| self.on_node.get_mut(node)) {
            pods.remove(&uid);
        }
        if before.metadata.deletion_timestamp.is_none() {
            let now = self.clock.now();
            self.judge(&before, node.as_deref(), Some(&before), now);
        }
        self.look_at_service();
    }

    fn judge(&mut self, pod: &Pod, node: Option<&str>, before: Option<&Pod>, at: Timestamp) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let owner = controller_of(&pod.metadata);
        let phase = before
            .and_then(|pod| pod.status.as_ref())
            .and_then(|status| status.phase.as_deref());
        let has_ended = matches!(phase, Some("Failed" | "Succeeded"));
        let marks = [
            Some(uid(&pod.metadata)),
            node.map(str::to_owned),
            owner.map(|owner| owner.uid.clone()),
        ];
        if marks
            .iter()
            .flatten()
            .any(|mark| self.excused.contains(mark))
            || has_ended
        {
            // This deletion breaks no rule. Count it if the controller may have requested it, because [`Self::changes`] is compared
            // with the controller's writes. The controller deletes pods of Advanced DaemonSets. It also deletes a pod that had
            // ended, if the node is updated before the native controller deletes that pod.
            let is_orphaned = owner.is_some_and(|owner| self.excused.contains(&owner.uid));
            self.orphans_gone += usize::from(is_orphaned || self.is_advanced || has_ended);
            self.spares_gone += usize::from(is_spare(pod));
            return;
        }
        if owner.is_some_and(|owner| owner.kind == "Job") {
            return;
        }
        if is_spare(pod) {
            self.spares_gone += 1;
            return;
        }
        if self.is_surplus(pod, node) {
            self.orphans_gone += usize::from(self.is_advanced);
            return; // the native controller removes the younger pods of a node
        }
        if self.wished.remove(&uid(&pod.metadata)) {
            self.granted.extend(node.map(str::to_owned));
            return;
        }
        if self.only_wished {
            self.violations
                .push(format!("pod {name} was deleted, and nobody asked for it"));
        }
        if owner.is_none_or(|owner| owner.kind != "DaemonSet" || owner.name != DAEMON) {
            self.violations
                .push(format!("pod {name} is not ours, and was deleted"));
            return;
        }
        let Some(node) = node.map(str::to_owned) else {
            self.violations
                .push(format!("pod {name} stands on no node, and was deleted"));
            return;
        };
        let available = before.is_some_and(|pod| self.is_available(pod, at));
        self.disrupted.insert(node.clone());
        self.deletions.push(Deletion {
            node: node.clone(),
            at,
        });
        self.judge_place(&name, &node);
        self.judge_budget(&name, &node, available, at);
    }

    /// Returns true if the node has an older pod that is not terminating and has the same owner as `pod`.
    fn is_surplus(&self, pod: &Pod, node: Option<&str>) -> bool {
        let age = |pod: &Pod| {
            let created = pod.metadata.creation_timestamp.clone();
            (created.map(|time| time.0), pod.metadata.name.clone())
        };
        let beside = node.and_then(|node| self.on_node.get(node));
        let mut beside = beside
            .into_iter()
            .flatten()
            .filter_map(|uid| self.pods.get(uid));
        let owner = |pod: &Pod| controller_of(&pod.metadata).map(|owner| owner.uid.clone());
        beside.any(|other| {
            other.metadata.deletion_timestamp.is_none()
                && owner(other) == owner(pod)
                && age(other) < age(pod)
        })
    }

    /// Checks an in-place update. If the update makes an available pod unavailable, it uses the budget like a deletion.
    fn judge_renewal(&mut self, pod: &Pod, node: &str, was_available: bool, at: Timestamp) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        self.renewals.push(Deletion {
            node: node.to_owned(),
            at: self.clock.now(),
        });
        if self.is_available(pod, at) {
            return; // only metadata has changed, so no container ends
        }
        self.disrupted.insert(node.to_owned());
        self.judge_place(&name, node);
        self.judge_budget(&name, node, was_available, at);
    }

    /// Returns the number of pods that disappeared or were updated in place since `remember`, for any reason.
    pub(crate) fn changes(&self) -> usize {
        self.deletions.len() + self.renewals.len() + self.spares_gone + self.orphans_gone
    }

    fn judge_place(&mut self, pod: &str, node: &str) {
        let settled = self.clock.now() - self.slack;
        match self.nodes.get(node) {
            None => self.violations.push(format!(
                "pod {pod} was deleted, whose node {node} does not exist"
            )),
            Some(seen) if !seen.ready && seen.since <= settled => self
                .violations
                .push(format!("pod {pod} was deleted on the offline node {node}")),
            Some(_) => {}
        }
    }

    /// Checks `max-unavailable` after a deletion. If the node still has an available pod, the deleted pod was one of two.
    /// `max-surge` limits such pods, so this check ignores them.
    fn judge_budget(&mut self, pod: &str, node: &str, available: bool, at: Timestamp) {
        if self.has_available(node, at) {
            return;
        }
        let lacking: Vec<String> = self.lacking(at).cloned().collect();
        let ours = lacking
            .iter()
            .filter(|node| self.disrupted.contains(*node))
            .count();
        let in_flight = lacking
            .iter()
            .filter(|node| self.is_in_flight(node))
            .count();
        self.peak = self.peak.max(ours);
        let (used, allowed) = if available {
            (lacking.len(), self.allowed)
        } else {
            (in_flight, self.allowed.max(1))
        };
        if used > allowed {
            self.violations.push(format!(
                "the deletion of pod {pod} on {node} at {at} left {used} nodes without an available pod, {allowed} allowed: {lacking:?}"
            ));
        }
    }

    /// Returns the Ready, targeted nodes without an available pod.
    ///
    /// A node that has changed or returned recently is included only if the controller has ended its pod, because the controller
    /// may not have seen the change yet.
    fn lacking(&self, at: Timestamp) -> impl Iterator<Item = &String> {
        let known = self.clock.now() - self.slack;
        let settled = known - self.settle();
        self.nodes
            .iter()
            .filter(|(_, seen)| seen.ready && self.is_targeted(seen))
            .filter(move |(name, seen)| {
                self.disrupted.contains(*name)
                    || seen.since <= settled && self.broke.get(*name).is_none_or(|at| *at <= known)
            })
            .filter(move |(name, _)| !self.has_available(name, at))
            .map(|(name, _)| name)
    }

    /// Returns the `ready-settle` of the DaemonSet: the time for which a returned node must be Ready before its pod may be
    /// replaced.
    fn settle(&self) -> SignedDuration {
        let annotations = self
            .daemon
            .as_ref()
            .and_then(|daemon| daemon.metadata.annotations.as_ref());
        let settle = annotations.and_then(|all| all.get("apps.openyurt.io/ready-settle"));
        let seconds = settle.and_then(|text| text.strip_suffix('s')?.parse().ok());
        SignedDuration::from_secs(seconds.unwrap_or(30))
    }

    fn is_in_flight(&self, node: &str) -> bool {
        let current = self.current();
        let mut living = self.living(node).peekable();
        living.peek().is_none() || living.any(|pod| hash(&pod.metadata) == current)
    }

    fn is_targeted(&self, seen: &NodeSeen) -> bool {
        let labels = seen.node.metadata.labels.as_ref();
        let label = labels.and_then(|labels| labels.get("scenario"));
        let taints = seen
            .node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.as_ref());
        let repels = |key: &str| !key.starts_with("node.kubernetes.io/");
        label == Some(&self.scenario)
            && !taints.is_some_and(|taints| taints.iter().any(|taint| repels(&taint.key)))
    }

    /// Returns the names of the nodes that are Ready and targeted.
    pub(crate) fn online(&self) -> impl Iterator<Item = &String> {
        self.nodes
            .iter()
            .filter(|(_, seen)| seen.ready && self.is_targeted(seen))
            .map(|(name, _)| name)
    }

    /// Returns true if the node was Ready when the monitor last saw it.
    pub(crate) fn is_node_ready(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|seen| seen.ready)
    }

    /// Returns the pods of the story's DaemonSet on a node that are not terminating.
    pub(crate) fn living(&self, node: &str) -> impl Iterator<Item = &Pod> {
        self.pods_on(node)
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
    }

    /// Returns the pods of the story's DaemonSet on a node.
    pub(crate) fn pods_on(&self, node: &str) -> impl Iterator<Item = &Pod> {
        self.on_node
            .get(node)
            .into_iter()
            .flatten()
            .filter_map(|uid| self.pods.get(uid))
            .filter(|pod| {
                let controller = controller_of(&pod.metadata);
                controller.is_some_and(|owner| owner.name == DAEMON) || is_spare(pod)
            })
    }

    /// Returns all pods in the story's namespace, of any owner.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values()
    }

    /// Returns all Events in the story's namespace.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.values()
    }

    pub(crate) fn revisions(&self) -> impl Iterator<Item = &ControllerRevision> {
        let owner = self
            .daemon
            .as_ref()
            .and_then(|daemon| daemon.metadata.uid.clone());
        self.revisions.values().filter(move |revision| {
            controller_of(&revision.metadata).map(|owner| &owner.uid) == owner.as_ref()
        })
    }

    /// Returns the hash of the current revision, which has the highest number.
    pub(crate) fn current(&self) -> Option<&String> {
        let newest = self.revisions().max_by_key(|revision| revision.revision);
        newest.and_then(|revision| hash(&revision.metadata))
    }

    /// Returns the hash of the oldest revision, which has the lowest number.
    pub(crate) fn oldest(&self) -> Option<&String> {
        let oldest = self.revisions().min_by_key(|revision| revision.revision);
        oldest.and_then(|revision| hash(&revision.metadata))
    }

    /// Returns true if the monitor has seen the story's last write of the DaemonSet.
    pub(crate) fn is_up_to_date(&self) -> bool {
        let meta = self.daemon.as_ref().map(|daemon| &daemon.metadata);
        meta.is_some_and(|meta| meta.uid == self.written.0 && meta.generation >= self.written.1)
    }

    pub(crate) fn condition(&self, kind: &str) -> Option<&DaemonSetCondition> {
        let status = self.daemon.as_ref()?.status.as_ref()?;
        status.conditions.iter().flatten().find(|c| c.type_ == kind)
    }

    pub(crate) fn has_available(&self, node: &str, at: Timestamp) -> bool {
        self.living(node).any(|pod| self.is_available(pod, at))
    }

    pub(crate) fn is_available_now(&self, pod: &Pod) -> bool {
        self.is_available(pod, self.clock.now())
    }

    fn is_available(&self, pod: &Pod, at: Timestamp) -> bool {
        let min_ready = self.daemon.as_ref().and_then(|daemon| daemon.spec.as_ref());
        let min_ready = min_ready
            .and_then(|spec| spec.min_ready_seconds)
            .unwrap_or(0);
        let ready = condition_of(pod, "Ready").filter(|ready| ready.status == "True");
        let ready = ready.filter(|_| runs_its_images(pod));
        pod.metadata.deletion_timestamp.is_none()
            && ready.is_some_and(|ready| {
                min_ready == 0
                    || ready.last_transition_time.as_ref().is_some_and(|since| {
                        since.0 + SignedDuration::from_secs(i64::from(min_ready)) <= at
                    })
            })
    }

    /// Describes the picture for messages about a failed story.
    pub(crate) fn describe(&self) -> String {
        let mut lines = vec![format!(
            "{} at {}: current revision {:?}, {} deletions by us, peak {} of {}",
            self.scenario,
            self.clock.now(),
            self.current(),
            self.deletions.len(),
            self.peak,
            self.allowed
        )];
        for (name, seen) in self.nodes.iter().take(24) {
            let pods: Vec<String> = self.pods_on(name).map(|pod| self.line(pod)).collect();
            let ready = if seen.ready { "Ready" } else { "NotReady" };
            lines.push(format!("  {name} {ready}: {}", pods.join(", ")));
        }
        for job in self.jobs.values().take(24) {
            let name = job.metadata.name.as_deref().unwrap_or_default();
            lines.push(format!("  job {name}: {:?}", job.status));
        }
        let status = self
            .daemon
            .as_ref()
            .and_then(|daemon| daemon.status.as_ref());
        for condition in status
            .and_then(|status| status.conditions.as_ref())
            .into_iter()
            .flatten()
        {
            lines.push(format!(
                "  condition {}={} {}: {}",
                condition.type_,
                condition.status,
                condition.reason.as_deref().unwrap_or_default(),
                condition.message.as_deref().unwrap_or_default()
            ));
        }
        for event in self
            .events
            .values()
            .filter(|event| event.note.is_some())
            .take(24)
        {
            lines.push(format!(
                "  event {} {}: {}",
                event.type_.as_deref().unwrap_or_default(),
                event.reason.as_deref().unwrap_or_default(),
                event.note.as_deref().unwrap_or_default()
            ));
        }
        lines.join("\n")
    }

    fn line(&self, pod: &Pod) -> String {
        let state = match pod.metadata.deletion_timestamp {
            Some(_) => "terminating",
            None if is_spare(pod) && self.is_available_now(pod) => "beside, available",
            None if is_spare(pod) => "beside, unavailable",
            None if self.is_available_now(pod) => "available",
            None => "unavailable",
        };
        let hash = hash(&pod.metadata).map_or("", String::as_str);
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let told = ["PodNeedUpgrade", "PodImageReady"].map(|kind| {
            let found = condition_of(pod, kind)?;
            let word = |text: &Option<String>| text.clone().unwrap_or_default();
            let (reason, message) = (word(&found.reason), word(&found.message));
            Some(format!(", {kind}={} {reason} {message:?}", found.status))
        });
        let told: String = told.into_iter().flatten().collect();
        format!("{name} ({hash}, {state}{told})")
    }
}

/// Converts an Advanced DaemonSet to a native one, with the fields that both have.
fn as_native(object: &DynamicObject) -> serde_json::Result<DaemonSet> {
    let mut object = serde_json::to_value(object)?;
    object["apiVersion"] = "apps/v1".into();
    serde_json::from_value(object)
}

/// Returns the name of a story's node by its number.
pub(crate) fn node_name(scenario: &str, number: usize) -> String {
    format!("{scenario}-{number:04}")
}

pub(crate) fn uid(meta: &ObjectMeta) -> String {
    meta.uid.clone().unwrap_or_default()
}

pub(crate) fn hash(meta: &ObjectMeta) -> Option<&String> {
    meta.labels.as_ref()?.get(HASH)
}

pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a String> {
    meta.annotations.as_ref()?.get(key)
}

/// Returns true if every container runs the image in the pod's spec. Otherwise a container will soon restart with a new image.
fn runs_its_images(pod: &Pod) -> bool {
    let statuses = pod.status.iter();
    let statuses = statuses.flat_map(|status| status.container_statuses.iter().flatten());
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut pairs = statuses.flat_map(|status| {
        let of_name = containers.clone().filter(|asked| asked.name == status.name);
        of_name.map(|asked| asked.image.as_deref() == Some(&status.image))
    });
    pairs.all(|same| same)
}

/// Returns true for a surge pod that a ControllerRevision still owns, instead of the DaemonSet.
pub(crate) fn is_spare(pod: &Pod) -> bool {
    let revision = hash(&pod.metadata).map(|hash| format!("{DAEMON}-{hash}"));
    let controller = controller_of(&pod.metadata);
    controller.is_some_and(|owner| {
        owner.kind == "ControllerRevision" && Some(&owner.name) == revision.as_ref()
    })
}

pub(crate) fn condition_of<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Returns true if no container of a pod is still pulling its image.
fn has_images(pod: &Pod) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    let statuses = status.container_statuses.unwrap_or_default();
    let pulls = |waiting: &str| ["ContainerCreating", ""].contains(&waiting);
    let ended = ["Succeeded", "Failed"].contains(&status.phase.as_deref().unwrap_or_default());
    let has = |state: Option<ContainerState>| {
        let waiting = state.unwrap_or_default().waiting;
        waiting.is_none_or(|waiting| !pulls(waiting.reason.as_deref().unwrap_or_default()))
    };
    ended || !statuses.is_empty() && statuses.into_iter().all(|status| has(status.state))
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let ready = |(kind, status): (&str, &str)| kind == "Ready" && status == "True";
    conditions.is_some_and(|all| all.iter().any(|c| ready((&c.type_, &c.status))))
}

fn node_of(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = &spec.node_name {
        return Some(node.clone());
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let mut fields = required
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten());
    fields
        .find(|field| field.key == "metadata.name")?
        .values
        .as_ref()?
        .first()
        .cloned()
}

/// Returns the time at which the API server accepted the deletion of a terminating pod; `now` for any other pod.
fn deleted_at(pod: &Pod, now: Timestamp) -> Timestamp {
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    pod.metadata
        .deletion_timestamp
        .as_ref()
        .map_or(now, |end| end.0 - grace)
}

/// Returns true if the pod is terminating and all its containers have ended.
fn has_ended(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_some() && matches!(phase, Some("Succeeded" | "Failed"))
}
