//! Runs a story on a cluster: creates its objects, performs its steps, and checks the result.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ResourceQuota, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::SignedDuration;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use yurt_ds::sim::kubelet::{FakeNodeSpec, Rule};

use super::asking::Agents;
use super::checks::{Check, all_available};
use super::machine::BUSY;
use super::monitor::Monitor;
use super::objects::{DAEMON, Daemon};
use super::picture::{Picture, node_name, uid};
use super::story::{Pace, Step, Story, Writes};
use super::world::{Denied, PodWrites, World};

/// Cluster on which a story runs, with the namespace, nodes and agents of the story.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) world: World,
    /// Name of the story. It is the namespace and the prefix of the node names.
    pub(crate) name: String,
    /// Agents of the story's nodes.
    pub(crate) agents: Agents,
    /// API resource of the story's DaemonSet, which may be an Advanced one.
    kind: ApiResource,
    before: PodWrites,
    monitor: Arc<tokio::sync::Mutex<Monitor>>,
}

/// Runs a story under this name, then deletes its objects.
///
/// # Errors
/// Returns an error if a step or a check fails. The error describes the picture at that moment.
pub(crate) async fn play(world: &World, name: &str, story: &Story) -> Result<(), String> {
    let stage = Stage::set(world, name, story)
        .await
        .map_err(|error| format!("{name}: {error:#}"))?;
    let played = stage.play(story).await;
    let played = played.map_err(|error| format!("{error}{}", stage.agents.logs()));
    stage.agents.end();
    let cleaned = stage.clean(story).await;
    played.map_err(|error| format!("{name}: {error}"))?;
    cleaned.map_err(|error| format!("{name}: {error:#}"))
}

impl Stage {
    async fn set(world: &World, name: &str, story: &Story) -> anyhow::Result<Self> {
        let client = &world.client;
        let namespace: Namespace =
            from(json!({ "metadata": { "name": name, "labels": { "suite": "yurt-ds" } } }))?;
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .context("create the namespace")?;
        world.await_service_account(name).await?;
        let nodes = (1..=story.nodes)
            .map(|number| FakeNodeSpec::named(node_name(name, number)).label("scenario", name));
        world.kubelets.add_nodes(nodes.collect()).await?;
        let slack = world.pace.pick(
            SignedDuration::from_millis(100),
            SignedDuration::from_millis(1500),
        );
        let mut picture = Picture::new(name, story.allowed, slack, world.clock.clone());
        picture.only_wished = story.only_wished;
        picture.always_served = story.always_served;
        picture.is_advanced = story.daemon.is_advanced();
        let monitor = Monitor::start(client, picture);
        let stage = Self {
            world: world.clone(),
            name: name.to_owned(),
            agents: Agents::new()?,
            kind: story.daemon.resource(),
            before: world.pod_writes(name)?,
            monitor: Arc::new(tokio::sync::Mutex::new(monitor)),
        };
        stage.create_daemon(&story.daemon).await?;
        Ok(stage)
    }

    async fn play(&self, story: &Story) -> Result<(), String> {
        self.until(&all_available(story.nodes)).await?;
        self.agree().await?;
        self.until_seen().await?;
        self.monitor.lock().await.picture().remember();
        let mut since = self.pod_writes().await?;
        let mut seen = 0;
        let mut nodes_changed = false;
        for (number, step) in story.steps.iter().enumerate() {
            let told =
                |error: String| format!("step {} of {}: {error}", number + 1, story.steps.len());
            match step {
                Step::Remember => {
                    seen += self.see(Picture::changes).await;
                    self.monitor.lock().await.picture().remember();
                    // Wait, because a real API server writes its audit log after it has responded. The monitor may see the effect
                    // of a request before the request is in the log.
                    self.until_settled().await.map_err(told)?;
                    since = self.pod_writes().await?;
                }
                Step::PodWrites(expected) => {
                    let now = self.pod_writes().await?;
                    let found = now.total() - since.total();
                    if found != *expected {
                        return Err(told(format!(
                            "{found} writes to pods instead of {expected}"
                        )));
                    }
                }
                step => {
                    if nodes_changed && matches!(step, Step::Patch(_)) {
                        self.until_settled().await.map_err(told)?;
                    }
                    self.perform(step).await.map_err(told)?;
                    nodes_changed = match step {
                        Step::Patch(_) => false,
                        step => step.changes_nodes() || nodes_changed && !step.waits(),
                    };
                    if step.waits() {
                        self.agree().await.map_err(told)?;
                    }
                }
            }
        }
        seen += self.see(Picture::changes).await;
        self.judge(story, seen).await
    }

    /// Waits until the controller has certainly seen what the monitor has seen, for example that pods became available.
    ///
    /// The controller has its own watches, and decides by their data.
    async fn until_seen(&self) -> Result<(), String> {
        self.perform(&Step::Wait(self.lag())).await
    }

    /// Waits until the controller has certainly seen all changes of nodes, before the DaemonSet changes. On a real cluster, the
    /// controller watches nodes and DaemonSets separately, so their changes can arrive in any order.
    async fn until_settled(&self) -> Result<(), String> {
        match self.world.pace {
            Pace::Virtual => Ok(()),
            Pace::Real => self.until_seen().await,
        }
    }

    /// Returns the time after which the controller has certainly seen a change. Timestamps in the API are whole seconds.
    fn lag(&self) -> Duration {
        let (embedded, real) = (Duration::from_millis(1100), Duration::from_secs(3));
        self.world.pace.pick(embedded, real)
    }

    /// Compares the API server's counts of writes to pods with the changes that the monitor saw and with the writes that the story
    /// allows.
    async fn judge(&self, story: &Story, seen: usize) -> Result<(), String> {
        let written = self.pod_writes().await?.since(self.before);
        let picture = || async { self.monitor.lock().await.picture().describe() };
        // Marks and ownership transfers patch a pod without replacing it, so patches don't count in these stories.
        let replaced = match story.writes {
            Writes::Marks | Writes::Surges => written.deletions + written.evictions,
            _ => written.deletions + written.evictions + written.patches,
        };
        if replaced > seen {
            let picture = picture().await;
            return Err(format!(
                "the controller deleted or patched {replaced} pods, {seen} were seen changing\n{picture}"
            ));
        }
        // On a busy machine, a pod may change while a request for it is in flight. The API server then reports a conflict, and the
        // controller retries. A story that kills the controller also aborts requests of stories that run in parallel. The next
        // controller repeats these requests.
        let in_vain = match self.world.pace {
            Pace::Virtual => written.conflicts + written.unanswered,
            Pace::Real => written.conflicts.saturating_sub(seen),
        };
        let superfluous = match story.writes {
            Writes::Deletions => written.others + written.refused + in_vain,
            Writes::Attempts => written.others,
            Writes::Evictions => written.others + written.deletions + written.patches,
            Writes::Conditions | Writes::Marks | Writes::Surges => 0,
        };
        if superfluous > 0 {
            return Err(format!("superfluous writes to pods: {written:?}"));
        }
        Ok(())
    }

    async fn perform(&self, step: &Step) -> Result<(), String> {
        match step {
            Step::Until(check) => self.until(check).await,
            Step::UntilWithin(check, limit) => {
                let limit = self.patience(*limit);
                self.monitor.lock().await.until(check, limit).await
            }
            Step::Wait(time) => {
                self.monitor
                    .lock()
                    .await
                    .throughout(&Check::new("nothing", |_| Ok(())), *time)
                    .await
            }
            Step::Quiet(embedded, real) => self.quiet(self.world.pace.pick(*embedded, *real)).await,
            Step::Throughout(check, time) => {
                self.monitor.lock().await.throughout(check, *time).await
            }
            Step::Ask(ask) => self.ask(ask).await,
            other => self.act(other).await.map_err(|error| format!("{error:#}")),
        }
    }

    /// Waits until a check succeeds, within the usual time limit of this cluster.
    pub(crate) async fn until(&self, check: &Check) -> Result<(), String> {
        let limit = Duration::from_secs(45) * BUSY;
        self.monitor.lock().await.until(check, limit).await
    }

    /// Returns the time limit for an operation that takes `time` on a quiet machine. On a real cluster it is multiplied by
    /// [`BUSY`].
    pub(crate) fn patience(&self, time: Duration) -> Duration {
        self.world.pace.pick(time, time * BUSY)
    }

    /// Checks that the controller sends no request for this time, after it has finished its current work.
    ///
    /// On a busy machine, an Event may be written seconds late, so the check is repeated. A controller that keeps sending requests
    /// fails every attempt.
    async fn quiet(&self, time: Duration) -> Result<(), String> {
        let watch = |time| async move {
            let quiet = Check::new("quiet", |_| Ok(()));
            self.monitor.lock().await.throughout(&quiet, time).await
        };
        let requests = || {
            self.world
                .backend
                .requests(&self.name)
                .map_err(|error| format!("{error:#}"))
        };
        watch(self.lag()).await?;
        let mut more = 0;
        for _ in 0..self.world.pace.pick(1, BUSY) {
            let before = requests()?;
            watch(time).await?;
            more = requests()? - before;
            if more == 0 {
                return Ok(());
            }
        }
        Err(format!("{more} requests within {time:?} of quiet"))
    }

    async fn act(&self, step: &Step) -> anyhow::Result<()> {
        let kubelets = &self.world.kubelets;
        match step {
            Step::Offline(nodes, how) => {
                for node in nodes {
                    kubelets.set_offline(&self.node(*node), *how).await?;
                }
            }
            Step::Online(nodes) => {
                for node in nodes {
                    kubelets.set_online(&self.node(*node)).await?;
                }
                self.await_return(nodes).await;
            }
            Step::Flap(node, up, down) => kubelets.flap(&self.node(*node), *up, *down).await?,
            Step::RemoveNode(node) => {
                self.excuse(&self.node(*node)).await;
                kubelets.remove_node(&self.node(*node)).await?;
            }
            Step::Behave(image, node, behaviour) => {
                let node = if *node == 0 {
                    format!("{}-*", self.name)
                } else {
                    self.node(*node)
                };
                let (image, behaviour) = (image.clone(), (**behaviour).clone());
                kubelets
                    .rule(Rule {
                        image,
                        node,
                        behaviour,
                    })
                    .await?;
            }
            Step::TerminateIn(node, time) => {
                kubelets.terminate_in(&self.node(*node), *time).await?
            }
            Step::Patch(patch) => self.patch_daemon(patch).await?,
            Step::PatchNode(node, patch) => self.patch_node(*node, patch).await?,
            Step::PatchPod(node, patch) => self.patch_pod(*node, patch).await?,
            Step::DeletePod(node) => self.delete_pod(*node).await?,
            Step::RefusePods(refused) => self.refuse_pods(*refused).await?,
            Step::Policy(verb, node, begins) => self.policy(verb, *node, *begins).await?,
            Step::Excuse(node) => self.excuse(&self.node(*node)).await,
            Step::Does(what, deed) => deed(self.clone()).await.context(*what)?,
            Step::Controller(runs) => self.world.backend.controller(*runs)?,
            Step::Native(runs) => self.world.backend.native(*runs)?,
            _ => {}
        }
        Ok(())
    }

    /// Returns the name of the story's node with this number.
    pub(crate) fn node(&self, number: usize) -> String {
        node_name(&self.name, number)
    }

    /// Excludes deletions from the checks if they concern the pod, node or owner with this name or UID, because the controller does
    /// not cause them.
    pub(crate) async fn excuse(&self, what: &str) {
        self.monitor.lock().await.picture().excuse(what);
    }

    /// Reads the current picture of the story.
    pub(crate) async fn see<T>(&self, look: impl FnOnce(&Picture) -> T) -> T {
        look(&self.monitor.lock().await.picture())
    }

    /// Changes the current picture of the story.
    pub(crate) async fn look<T>(&self, look: impl FnOnce(&mut Picture) -> T) -> T {
        look(&mut self.monitor.lock().await.picture())
    }

    /// Returns an API for objects of this type in the story's namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.world.client.clone(), &self.name)
    }

    /// Returns an API for DaemonSets of the kind that the story uses.
    pub(crate) fn daemons(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.world.client.clone(), &self.name, &self.kind)
    }

    /// Creates a DaemonSet in the story's namespace.
    pub(crate) async fn create_daemon(&self, daemon: &Daemon) -> anyhow::Result<()> {
        let daemon: DynamicObject = from(daemon.manifest(&self.name))?;
        let made = self.daemons().create(&PostParams::default(), &daemon).await;
        let meta = made.context("create the DaemonSet")?.metadata;
        if meta.name.as_deref() == Some(DAEMON) {
            self.monitor.lock().await.picture().written = (meta.uid, meta.generation);
        }
        Ok(())
    }

    /// Creates a second pod of the current revision on a node, with the owner reference that the native controller would set.
    pub(crate) async fn add_pod(&self, node: usize) -> anyhow::Result<()> {
        let old = self.pod_on(node).await?;
        let current = self.see(|picture| picture.current().cloned()).await;
        let mut spec = old.spec.clone().context("a pod without spec")?;
        spec.volumes = None;
        spec.containers
            .iter_mut()
            .for_each(|container| container.volume_mounts = None);
        let mut labels = old.metadata.labels.clone().unwrap_or_default();
        labels.insert(
            "controller-revision-hash".into(),
            current.context("no revision")?,
        );
        let pod = Pod {
            metadata: ObjectMeta {
                name: Some(format!("{DAEMON}-second")),
                labels: Some(labels),
                owner_references: old.metadata.owner_references.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
            status: None,
        };
        let made = self
            .api::<Pod>()
            .create(&PostParams::default(), &pod)
            .await?;
        self.excuse(&uid(&made.metadata)).await;
        Ok(())
    }

    /// Deletes the DaemonSet and waits until it is gone. `params` determines if its pods are deleted, too.
    pub(crate) async fn delete_daemon(&self, params: &DeleteParams) -> anyhow::Result<()> {
        let daemons = self.daemons();
        let owner = daemons.get(DAEMON).await?.metadata.uid.unwrap_or_default();
        self.excuse(&owner).await;
        daemons.delete(DAEMON, params).await?;
        for _ in 0..200 * BUSY {
            let gone = daemons
                .get_opt(DAEMON)
                .await?
                .is_none_or(|present| present.metadata.uid.as_ref() != Some(&owner));
            if gone {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("the DaemonSet is still there")
    }

    /// Waits for a short time until the monitor has seen these nodes Ready. Otherwise the next check might succeed only because the
    /// nodes still look offline.
    ///
    /// A timeout is no error: if the story has frozen the API server, the monitor can't see the nodes.
    async fn await_return(&self, nodes: &[usize]) {
        let names: Vec<String> = nodes.iter().map(|node| self.node(*node)).collect();
        for _ in 0..self.world.pace.pick(100, 30 * BUSY) {
            let seen = |picture: &Picture| names.iter().all(|name| picture.is_node_ready(name));
            if self.see(seen).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Kills the replica that holds the Lease.
    pub(crate) async fn kill_leader(&self) -> anyhow::Result<()> {
        let backend = &self.world.backend;
        let leases = Api::<Lease>::namespaced(self.world.client.clone(), backend.lease_namespace());
        let lease = leases
            .get("yurt-ds-controller")
            .await
            .context("read the Lease")?;
        let holder = lease
            .spec
            .and_then(|spec| spec.holder_identity)
            .context("nobody holds the Lease")?;
        backend.kill(&holder)
    }

    /// Patches the DaemonSet: with a strategic merge patch if it is native, with a merge patch if it is Advanced.
    pub(crate) async fn patch_daemon(&self, patch: &Value) -> anyhow::Result<()> {
        let patch = match self.kind.group.as_str() {
            "apps" => Patch::Strategic(patch),
            _ => Patch::Merge(patch),
        };
        let patched = self
            .daemons()
            .patch(DAEMON, &PatchParams::default(), &patch)
            .await;
        let meta = patched.context("patch the DaemonSet")?.metadata;
        self.monitor.lock().await.picture().written = (meta.uid, meta.generation);
        Ok(())
    }

    pub(crate) async fn patch_node(&self, node: usize, patch: &Value) -> anyhow::Result<()> {
        let nodes = Api::<Node>::all(self.world.client.clone());
        let patched = nodes
            .patch(
                &self.node(node),
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await;
        patched.map(drop).context("patch the node")
    }

    async fn patch_pod(&self, node: usize, patch: &Value) -> anyhow::Result<()> {
        let pod = self.pod_on(node).await?;
        let patched = self
            .api::<Pod>()
            .patch(
                &pod.name_any(),
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await;
        patched.map(drop).context("patch the pod")
    }

    /// Returns the pod on a node that is not terminating. Fails if there is none.
    pub(crate) async fn pod_on(&self, node: usize) -> anyhow::Result<Pod> {
        let name = self.node(node);
        let pod = self
            .see(|picture| picture.living(&name).next().cloned())
            .await;
        pod.with_context(|| format!("{name} has no pod"))
    }

    /// Returns a pod on the node, preferably one that is not terminating.
    pub(crate) async fn any_pod_on(&self, node: usize) -> anyhow::Result<Pod> {
        let name = self.node(node);
        let pod = self
            .see(|picture| {
                let any = || picture.pods_on(&name).next();
                picture.living(&name).next().or_else(any).cloned()
            })
            .await;
        pod.with_context(|| format!("{name} has no pod"))
    }

    async fn delete_pod(&self, node: usize) -> anyhow::Result<()> {
        let pod = self.pod_on(node).await?;
        self.excuse(&uid(&pod.metadata)).await;
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: pod.metadata.uid.clone(),
            resource_version: None,
        });
        let deleted = self.api::<Pod>().delete(&pod.name_any(), &params).await;
        deleted.map(drop).context("delete the pod")
    }

    async fn policy(&self, verb: &'static str, node: usize, begins: bool) -> anyhow::Result<()> {
        let name = self.node(node);
        let pod = match node {
            0 => None,
            node => Some(self.pod_on(node).await?.name_any()),
        };
        let denied = Denied {
            namespace: &self.name,
            verb,
            on: pod.as_deref().map(|pod| (name.as_str(), pod)),
        };
        let policy = self.world.backend.policy(denied, begins).await;
        policy.context("change the admission policy")
    }

    async fn refuse_pods(&self, refused: bool) -> anyhow::Result<()> {
        let quotas = self.api::<ResourceQuota>();
        if refused {
            let quota = from(
                json!({ "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } } }),
            )?;
            quotas
                .create(&PostParams::default(), &quota)
                .await
                .context("create the quota")?;
            return self.world.await_quota(&self.name).await;
        }
        quotas
            .delete("none", &DeleteParams::default())
            .await
            .map(drop)
            .context("delete the quota")
    }

    async fn pod_writes(&self) -> Result<PodWrites, String> {
        self.world
            .pod_writes(&self.name)
            .map_err(|error| format!("{error:#}"))
    }

    async fn clean(&self, story: &Story) -> anyhow::Result<()> {
        if self.world.pace == Pace::Virtual {
            return Ok(());
        }
        if story
            .steps
            .iter()
            .any(|step| matches!(step, Step::Controller(false)))
        {
            self.world.backend.controller(true)?;
        }
        // A story that failed may have left its admission policies behind. Remove them.
        for verb in story.steps.iter().filter_map(|step| match step {
            Step::Policy(verb, _, true) => Some(*verb),
            _ => None,
        }) {
            let _ = self.policy(verb, 0, false).await;
        }
        let params = DeleteParams::default();
        let _ = self
            .daemons()
            .delete_collection(&DeleteParams::background(), &Default::default())
            .await;
        for number in 1..=story.nodes {
            let _ = self.world.kubelets.remove_node(&self.node(number)).await;
        }
        let pods = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        self.api::<Pod>()
            .delete_collection(&pods, &Default::default())
            .await?;
        let namespaces = Api::<Namespace>::all(self.world.client.clone());
        namespaces
            .delete(&self.name, &params)
            .await
            .map(drop)
            .context("delete the namespace")
    }
}

pub(crate) fn from<T: serde::de::DeserializeOwned>(manifest: Value) -> anyhow::Result<T> {
    serde_json::from_value(manifest).context("read a manifest")
}

/// Returns true if a namespace has the default service account. Pods can't be created before it exists.
pub(crate) async fn has_service_account(accounts: &Api<ServiceAccount>) -> bool {
    accounts
        .get_opt("default")
        .await
        .is_ok_and(|account| account.is_some())
}
