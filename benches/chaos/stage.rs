//! Runs stories on a control plane and returns the promises that they break.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use yurt_ds::core::names::ANNOTATION_PREFIX;

use super::judge::{Deeds, Judge};
use super::monitor::Monitor;
use super::plane::{Plane, Requests, now, wait};
use super::process::Process;
use super::story::{Settings, Step, Story, set_name};

/// Number of controller replicas. Their Lease has a short duration, so another replica soon takes over from a killed leader.
const REPLICAS: usize = 2;
const CONTROLLER: [&str; 6] = [
    "controller",
    "--listen=127.0.0.1:0",
    "--lease-namespace=default",
    "--lease-duration=9s",
    "--lease-renew-deadline=4s",
    "--lease-renew-every=2s",
];

/// Time within which pods must stop changing after all faults of a story have ended.
///
/// A rollout of 200 nodes, one at a time, takes seven minutes on a quiet machine.
const REST: Duration = Duration::from_secs(900);

/// Time without any change of a pod after which a story has ended. It is longer than the duration of a Lease, and longer than any
/// pause between the steps of a story.
const STILL: Duration = Duration::from_secs(60);

/// Number of requests that the benchmark sends in parallel.
const AT_ONCE: usize = 32;

/// Control plane with the nodes and controllers for all stories.
pub(crate) struct Stage {
    plane: Plane,
    client: Client,
    nodes: usize,
    replicas: Vec<Process>,
    /// Counts of the controllers' requests before the first story.
    before: Requests,
    /// Number of stories that have run so far. It makes the names of namespaces unique.
    played: usize,
    /// Number of pods that the controller deleted in the last story.
    pub(crate) deletions: usize,
}

impl Stage {
    /// Creates the nodes and starts the controllers.
    pub(crate) async fn set(plane: Plane, nodes: usize) -> Result<Self> {
        let client = plane.client().await?;
        let api: Api<Node> = Api::all(client.clone());
        let made = stream::iter(0..nodes).map(|number| {
            let api = api.clone();
            async move {
                api.create(&PostParams::default(), &node(number))
                    .await
                    .map(drop)
            }
        });
        made.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let replicas = (0..REPLICAS).map(|_| Process::start(&CONTROLLER, &plane.kubeconfig()));
        Ok(Self {
            replicas: replicas.collect::<Result<_>>()?,
            before: plane.requests("controller", "")?,
            plane,
            client,
            nodes,
            played: 0,
            deletions: 0,
        })
    }

    /// Runs a story until its pods stop changing. Returns the broken promises.
    pub(crate) async fn play(&mut self, story: &Story) -> Result<Vec<String>> {
        self.played += 1;
        let namespace = format!("chaos-{}-{}", story.name, self.played);
        let audited = std::fs::metadata(self.audit_log())?.len();
        let scene = Scene {
            client: self.client.clone(),
            namespace: namespace.clone(),
            nodes: self.nodes,
            images: BTreeMap::new(),
        };
        scene.open(story).await?;
        let monitor = Monitor::start(&self.client, &namespace);
        let broken = self.act(scene, story, &monitor, audited).await;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces
            .delete(&namespace, &DeleteParams::default())
            .await?;
        broken
    }

    /// Returns the requests, CPU time and peak memory of the controllers. Killed replicas don't count for CPU and memory.
    pub(crate) fn cost(&self) -> Result<String> {
        let asked = self.plane.requests("controller", "")? - self.before;
        let (mut cpu, mut peak) = (0.0, 0.0_f64);
        for replica in &self.replicas {
            cpu += replica.cpu()?;
            peak = peak.max(replica.memory("VmHWM")?);
        }
        Ok(format!(
            "{} requests, {} of them writes; CPU {cpu:.1} s, peak {peak:.1} MiB",
            asked.all, asked.writes
        ))
    }

    async fn act(
        &mut self,
        mut scene: Scene,
        story: &Story,
        monitor: &Monitor,
        audited: u64,
    ) -> Result<Vec<String>> {
        let began = now();
        for (at, step) in &story.steps {
            tokio::time::sleep(at.saturating_sub(began.elapsed())).await;
            match step {
                Step::Kill(replica) => self.kill(*replica)?,
                Step::Freeze(seconds) => self.freeze(Duration::from_secs(*seconds)).await?,
                step => scene.act(step).await.with_context(|| format!("{step:?}"))?,
            }
        }
        scene.calm(story).await?;
        let (began, mut moved, mut pods) = (now(), now(), 0);
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let entries = monitor.entries();
            let of_pods = entries.iter().filter(|entry| entry.fact.is_of_pod());
            let changes = of_pods.count();
            if changes != pods {
                (pods, moved) = (changes, now());
            }
            let nothing = Deeds::default();
            let settled = Judge::of(&entries, &nothing).unsettled().is_empty();
            let still = moved.elapsed();
            if still > STILL || settled && still > STILL / 3 || began.elapsed() > REST {
                break;
            }
        }
        let deeds = self.deeds(audited, &scene.namespace)?;
        let entries = monitor.entries();
        let judge = Judge::of(&entries, &deeds);
        self.deletions = judge.deletions;
        let said = [judge.broken(), judge.unsettled(), judge.untrue()];
        Ok(said.concat())
    }

    fn kill(&mut self, replica: usize) -> Result<()> {
        // Dropping a replica kills its process. The next replica must start after that.
        drop(self.replicas.remove(replica % REPLICAS));
        let next = Process::start(&CONTROLLER, &self.plane.kubeconfig())?;
        self.replicas.push(next);
        Ok(())
    }

    async fn freeze(&self, lasts: Duration) -> Result<()> {
        self.signal("-STOP")?;
        tokio::time::sleep(lasts).await;
        self.signal("-CONT")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.plane.kubeconfig().with_file_name("kube-apiserver.pid");
        let pid = std::fs::read_to_string(pid)?;
        let status = Command::new("kill").args([signal, pid.trim()]).status()?;
        ensure!(status.success(), "kill {signal} {pid}");
        Ok(())
    }

    fn audit_log(&self) -> std::path::PathBuf {
        self.plane.kubeconfig().with_file_name("audit.log")
    }

    /// Reads the controller's writes to pods of a namespace from the audit log, starting at this position.
    fn deeds(&self, from: u64, namespace: &str) -> Result<Deeds> {
        let mut log = std::fs::File::open(self.audit_log())?;
        log.seek(SeekFrom::Start(from))?;
        let mut deeds = Deeds::default();
        for line in BufReader::new(log).lines() {
            let line = line?;
            if !line.contains("(controller)") || !line.contains(namespace) {
                continue;
            }
            let entry: Value = serde_json::from_str(&line)?;
            let about = &entry["objectRef"];
            let code = entry["responseStatus"]["code"].as_u64().unwrap_or_default();
            if about["resource"] != "pods" || about["namespace"] != namespace || code >= 300 {
                continue;
            }
            let name = about["name"].as_str().unwrap_or_default().to_owned();
            let part = about["subresource"].as_str().unwrap_or_default();
            match (entry["verb"].as_str().unwrap_or_default(), part) {
                ("delete", _) | ("create", "eviction") => deeds.deleted.insert(name),
                ("patch", "") => deeds.patched.insert(name),
                ("create", "") => deeds.made.insert(name),
                _ => continue,
            };
        }
        Ok(deeds)
    }
}

/// Namespace, nodes and DaemonSets of one story.
struct Scene {
    client: Client,
    namespace: String,
    nodes: usize,
    /// Images that each DaemonSet has had, the current one last.
    images: BTreeMap<usize, Vec<u64>>,
}

impl Scene {
    fn sets(&self) -> Api<DaemonSet> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates the DaemonSets of a story and waits for all their pods.
    async fn open(&self, story: &Story) -> Result<()> {
        let parameters = PostParams::default();
        let namespace: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": self.namespace } }))?;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.create(&parameters, &namespace).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        wait("the service account", || async {
            Ok(accounts.get_opt("default").await?.is_some())
        })
        .await?;
        for (number, settings) in story.sets.iter().enumerate() {
            let name = set_name(number);
            self.sets()
                .create(&parameters, &daemonset(&name, settings))
                .await?;
            if settings.contains(&("disruption", "evict")) {
                let budgets: Api<PodDisruptionBudget> =
                    Api::namespaced(self.client.clone(), &self.namespace);
                let budget = json!({ "metadata": { "name": name }, "spec": {
                    "maxUnavailable": 2, "selector": { "matchLabels": { "app": name } } } });
                budgets
                    .create(&parameters, &serde_json::from_value(budget)?)
                    .await?;
            }
        }
        wait("the first pods", || async {
            let sets = self.sets().list(&ListParams::default()).await?.items;
            let full = |set: &DaemonSet| {
                let status = set.status.clone().unwrap_or_default();
                status.number_available == i32::try_from(self.nodes).ok()
            };
            Ok(sets.len() == story.sets.len() && sets.iter().all(full))
        })
        .await
    }

    async fn act(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Image(set, image) => {
                self.images
                    .entry(*set)
                    .or_insert_with(|| vec![0])
                    .push(*image);
                self.set_image(*set, *image).await
            }
            Step::Undo(set) => {
                let images = self.images.entry(*set).or_insert_with(|| vec![0]);
                if images.len() > 1 {
                    images.pop();
                }
                let image = images.last().copied().unwrap_or_default();
                self.set_image(*set, image).await
            }
            Step::Set(set, key, value) => {
                let annotations = json!({ format!("{ANNOTATION_PREFIX}{key}"): value });
                let patch = json!({ "metadata": { "annotations": annotations } });
                self.patch_set(*set, Patch::Merge(patch)).await
            }
            Step::Leave(first, count) => self.online(*first, *count, false).await,
            Step::Return(first, count) => self.online(*first, *count, true).await,
            Step::Refuse(set, true) => self.refuse(*set).await,
            Step::Refuse(set, false) => self.permit(*set).await,
            Step::DeletePod(set, node) => self.delete_pod(*set, *node).await,
            Step::Kill(_) | Step::Freeze(_) => Ok(()),
        }
    }

    /// Ends all faults and pauses of a story, and restores the original `max-unavailable`.
    async fn calm(&mut self, story: &Story) -> Result<()> {
        self.online(0, self.nodes, true).await?;
        for (number, settings) in story.sets.iter().enumerate() {
            self.permit(number).await?;
            let usual = settings.iter().find(|(key, _)| *key == "max-unavailable");
            let mut annotations = json!({ format!("{ANNOTATION_PREFIX}paused"): null });
            annotations[format!("{ANNOTATION_PREFIX}max-unavailable")] =
                json!(usual.map(|(_, value)| value));
            let patch = json!({ "metadata": { "annotations": annotations } });
            self.patch_set(number, Patch::Merge(patch)).await?;
        }
        Ok(())
    }

    async fn set_image(&self, set: usize, image: u64) -> Result<()> {
        let containers = json!([{ "name": "main", "image": format!("agent:v{image}") }]);
        let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
        self.patch_set(set, Patch::Strategic(patch)).await
    }

    async fn patch_set(&self, set: usize, patch: Patch<Value>) -> Result<()> {
        let name = set_name(set);
        self.sets()
            .patch(&name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Starts or ends a simulated network outage: the fake kubelet ignores nodes and pods, and the nodes are not Ready.
    async fn online(&self, first: usize, count: usize, online: bool) -> Result<()> {
        let names = (first..first + count).map(|number| node_name(number % self.nodes));
        let names: Vec<String> = names.collect();
        let mark = if online { json!(null) } else { json!("true") };
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "offline": mark } } }));
        let parameters = PatchParams::default();
        let nodes: Api<Node> = Api::all(self.client.clone());
        for name in &names {
            let node = nodes.patch(name, &parameters, &patch).await?;
            let status = node.status.unwrap_or_default();
            let mut conditions = status.conditions.into_iter().flatten();
            let is_ready = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
            if !online && is_ready {
                let time = k8s_openapi::jiff::Timestamp::now().to_string();
                let ready = json!({ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
                    "lastTransitionTime": time });
                let patch = Patch::Strategic(json!({ "status": { "conditions": [ready] } }));
                nodes.patch_status(name, &parameters, &patch).await?;
            }
        }
        let pods = self.pods();
        let listed = pods.list(&ListParams::default()).await?.items;
        let concerned = listed.into_iter().filter(|pod| {
            let marked = pod.annotations().contains_key("offline");
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            marked == online && node.is_some_and(|node| names.contains(node))
        });
        let patched = concerned.map(|pod| {
            let (pods, patch, parameters) = (pods.clone(), patch.clone(), parameters.clone());
            async move {
                // Ignore errors, because the pod may have been deleted since the list was read.
                let name = pod.name_any();
                let _patched = pods.patch(&name, &parameters, &patch).await;
                if online {
                    // Kubernetes set the pod's Ready condition to `False` during the outage. The fake kubelet does not check
                    // existing pods again, so set Ready here.
                    let ready = Patch::Strategic(json!({ "status": { "conditions": [
                        { "type": "Ready", "status": "True", "reason": "", "message": "" },
                    ] } }));
                    let _ready = pods.patch_status(&name, &parameters, &ready).await;
                }
            }
        });
        stream::iter(patched)
            .buffer_unordered(AT_ONCE)
            .collect::<()>()
            .await;
        Ok(())
    }

    /// Rejects deletions of the DaemonSet's pods, except of pods that are already terminating.
    async fn refuse(&self, set: usize) -> Result<()> {
        let name = format!("{}-{}", self.namespace, set_name(set));
        let policy = json!({ "metadata": { "name": name }, "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": {
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": self.namespace } },
                "resourceRules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"],
                    "resources": ["pods"] }],
            },
            "matchConditions": [
                { "name": "of-the-daemonset", "expression": format!("oldObject.metadata.labels['app'] == '{}'", set_name(set)) },
                { "name": "not-under-way", "expression": "!has(oldObject.metadata.deletionTimestamp)" },
            ],
            "validations": [{ "expression": "false", "message": "chaos lets no pod go" }],
        } });
        let binding = json!({ "metadata": { "name": name },
            "spec": { "policyName": name, "validationActions": ["Deny"] } });
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        let parameters = PostParams::default();
        if policies.get_opt(&name).await?.is_none() {
            policies
                .create(&parameters, &serde_json::from_value(policy)?)
                .await?;
            bindings
                .create(&parameters, &serde_json::from_value(binding)?)
                .await?;
        }
        Ok(())
    }

    async fn permit(&self, set: usize) -> Result<()> {
        let name = format!("{}-{}", self.namespace, set_name(set));
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        if policies.get_opt(&name).await?.is_some() {
            let parameters = DeleteParams::default();
            bindings.delete(&name, &parameters).await?;
            policies.delete(&name, &parameters).await?;
        }
        Ok(())
    }

    async fn delete_pod(&self, set: usize, node: usize) -> Result<()> {
        let (pods, node) = (self.pods(), node_name(node % self.nodes));
        let of_set = ListParams::default()
            .labels(&format!("app={}", set_name(set)))
            .fields(&format!("spec.nodeName={node}"));
        for pod in pods.list(&of_set).await? {
            // Ignore errors: the pod may have been deleted since the list was read, or an admission policy may reject the deletion.
            let _deleted = pods.delete(&pod.name_any(), &DeleteParams::default()).await;
        }
        Ok(())
    }
}

fn node_name(number: usize) -> String {
    format!("node-{number:05}")
}

fn node(number: usize) -> Node {
    let name = node_name(number);
    let pool = if number.is_multiple_of(10) {
        "canary"
    } else {
        "field"
    };
    serde_json::from_value(json!({ "metadata": { "name": name,
        "annotations": { "kwok.x-k8s.io/node": "fake" },
        "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "pool": pool, "zone": format!("zone-{}", number % 4) } } }))
    .expect("a node")
}

fn daemonset(name: &str, settings: Settings) -> DaemonSet {
    let mut annotations: BTreeMap<String, &str> = settings
        .iter()
        .map(|(key, value)| (format!("{ANNOTATION_PREFIX}{key}"), *value))
        .collect();
    annotations
        .entry(format!("{ANNOTATION_PREFIX}update-strategy"))
        .or_insert("AdvancedRollingUpdate");
    serde_json::from_value(json!({ "metadata": { "name": name, "annotations": annotations }, "spec": {
        "selector": { "matchLabels": { "app": name } }, "updateStrategy": { "type": "OnDelete" },
        "template": { "metadata": { "labels": { "app": name } },
            "spec": { "terminationGracePeriodSeconds": 1, "containers": [{ "name": "main", "image": "agent:v0" }] } } } }))
    .expect("a DaemonSet")
}
