//! Runs an example of a page on its own embedded cluster with the controller.
//!
//! `docs/README.md` describes the fleet. A Node in the example changes or adds a node.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use yurt_ds::core::names::{ANNOTATION_PREFIX, KRUISE_GROUP};
use yurt_ds::core::settings::{AdvancedSpec, FieldSettings, ParsedSettings, SettingsSource, read};
use yurt_ds::core::{Exclusive, Preempting};
use yurt_ds::sim::kubelet::{FakeNodeSpec, Outage};

use super::page::{Example, Step, is_daemon_set};
use crate::scenarios::guard::crashing;
use crate::support::embedded;
use crate::support::world::World;

/// Name, pool and zone of every node in the fleet.
const FLEET: [(&str, &str, &str); 4] = [
    ("node-1", "canary", "a"),
    ("node-2", "field", "a"),
    ("node-3", "field", "b"),
    ("node-4", "field", "b"),
];

/// Virtual time within which an expectation must be met. It is long, because a maintenance window may not open before the next day.
const PATIENCE: Duration = Duration::from_secs(48 * 60 * 60);

/// Applies an example to a cluster and performs its steps.
///
/// # Errors
/// Returns an error if an expectation is not met.
pub(crate) fn play(example: &Example) -> Result<(), String> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let played = runtime.block_on(async {
        let daemon = example.objects.iter().find(|object| is_daemon_set(object));
        let world = if daemon.is_some_and(is_advanced) {
            embedded::world_with_advanced()
        } else {
            embedded::world()
        };
        let stage = Stage::set(world, example).await?;
        stage.play(example).await
    });
    played.map_err(|error: anyhow::Error| format!("{error:#}"))
}

struct Stage {
    world: World,
    daemons: Api<DynamicObject>,
    pods: Api<Pod>,
    name: String,
}

impl Stage {
    async fn set(world: World, example: &Example) -> anyhow::Result<Self> {
        let client = world.client.clone();
        world.kubelets.add_nodes(fleet(&example.objects)).await?;
        let daemon = example.objects.iter().find(|object| is_daemon_set(object));
        let daemon = daemon.context("a DaemonSet")?;
        is_valid(daemon)?;
        let resource = resource_of(daemon);
        let daemon: DynamicObject = serde_json::from_value(daemon.clone())?;
        let namespace = daemon.namespace().unwrap_or_else(|| "default".into());
        if let Some(name) = daemon.namespace().filter(|name| name != "default") {
            let mut object = Namespace::default();
            object.metadata.name = Some(name);
            let spaces: Api<Namespace> = Api::all(client.clone());
            spaces.create(&PostParams::default(), &object).await?;
        }
        for object in &example.objects {
            if !is_daemon_set(object) && object["kind"] != "Node" {
                create(&client, object, &namespace).await?;
            }
        }
        let stage = Self {
            daemons: Api::namespaced_with(client.clone(), &namespace, &resource),
            pods: Api::namespaced(client.clone(), &namespace),
            name: daemon.name_any(),
            world,
        };
        let made = stage.daemons.create(&PostParams::default(), &daemon).await;
        made.context("create the DaemonSet")?;
        stage.until("every pod is available", all_available).await?;
        // Wait until the controller has seen that the pods are available. Otherwise it would count too few available pods in its
        // first decision.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(stage)
    }

    async fn play(&self, example: &Example) -> anyhow::Result<()> {
        for (number, step) in example.steps.iter().enumerate() {
            let done = self.perform(step).await;
            done.with_context(|| format!("step {} ({step:?})", number + 1))?;
        }
        Ok(())
    }

    async fn perform(&self, step: &Step) -> anyhow::Result<()> {
        let kubelets = &self.world.kubelets;
        match step {
            Step::Image => self.change_image().await,
            Step::Crashes => kubelets.behaviour("*-next", crashing()).await,
            Step::Annotate(name, value) => self.annotate(name, value.as_deref()).await,
            Step::Offline(node) => kubelets.set_offline(node, Outage::MARKED).await,
            Step::Online(node) => kubelets.set_online(node).await,
            Step::Converged => self.until("converged", converged).await,
            Step::Condition(kind, status, words) => {
                self.until("that condition", |daemon| {
                    has_condition(daemon, kind, status, words)
                })
                .await
            }
        }
    }

    async fn change_image(&self) -> anyhow::Result<()> {
        let daemon = self.daemons.get(&self.name).await?;
        let mut containers = daemon.data["spec"]["template"]["spec"]["containers"].clone();
        let image = containers[0]["image"].as_str().context("an image")?;
        containers[0]["image"] = format!("{image}-next").into();
        let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
        self.patch(&patch).await
    }

    async fn annotate(&self, name: &str, value: Option<&str>) -> anyhow::Result<()> {
        let key = if name.contains('/') {
            name.to_owned()
        } else {
            format!("{ANNOTATION_PREFIX}{name}")
        };
        let value = match value {
            Some(value) if value.contains("{revision}") => {
                Some(value.replace("{revision}", &self.revision().await?))
            }
            other => other.map(str::to_owned),
        };
        self.patch(&json!({ "metadata": { "annotations": { key: value } } }))
            .await
    }

    /// Returns the hash of the current revision, from the message of the condition `RolloutComplete`.
    async fn revision(&self) -> anyhow::Result<String> {
        let daemon = as_native(self.daemons.get(&self.name).await?)?;
        let complete = condition(&daemon, "RolloutComplete").context("no RolloutComplete")?;
        let hash = complete.1.strip_prefix("revision ");
        let hash = hash.and_then(|rest| rest.split(':').next());
        Ok(hash.context("a message without a revision")?.to_owned())
    }

    async fn patch(&self, patch: &Value) -> anyhow::Result<()> {
        let params = PatchParams::default();
        let patched = self
            .daemons
            .patch(&self.name, &params, &Patch::Merge(patch))
            .await?;
        is_valid(&serde_json::to_value(patched)?)
    }

    /// Polls the DaemonSet at increasing intervals until `holds` succeeds.
    async fn until(
        &self,
        what: &str,
        holds: impl Fn(&DaemonSet) -> Result<(), String>,
    ) -> anyhow::Result<()> {
        let begin = self.world.clock.now();
        loop {
            let daemon = as_native(self.daemons.get(&self.name).await?)?;
            let Err(why) = holds(&daemon) else {
                return Ok(());
            };
            let waited = self.world.clock.now().duration_since(begin).unsigned_abs();
            if waited > PATIENCE {
                bail!("not {what}: {why}\n{}", self.picture(&daemon).await?);
            }
            let pause = waited / 20;
            tokio::time::sleep(pause.clamp(Duration::from_secs(1), Duration::from_secs(60))).await;
        }
    }

    /// Describes conditions and pods for error messages.
    async fn picture(&self, daemon: &DaemonSet) -> anyhow::Result<String> {
        let mut lines = Vec::new();
        let status = daemon.status.clone().unwrap_or_default();
        for condition in status.conditions.iter().flatten() {
            let message = condition.message.as_deref().unwrap_or_default();
            lines.push(format!(
                "  {}={}: {message}",
                condition.type_, condition.status
            ));
        }
        for pod in self.pods.list(&ListParams::default()).await?.items {
            let spec = pod.spec.clone().unwrap_or_default();
            let image = spec.containers.first().and_then(|c| c.image.clone());
            let node = spec.node_name.unwrap_or_default();
            lines.push(format!("  {} on {node}: {image:?}", pod.name_any()));
        }
        Ok(lines.join("\n"))
    }
}

/// Returns the nodes of the fleet, with the changes of the example.
fn fleet(objects: &[Value]) -> Vec<FakeNodeSpec> {
    let mut nodes: BTreeMap<String, FakeNodeSpec> = BTreeMap::new();
    for (name, pool, zone) in FLEET {
        let node = FakeNodeSpec::named(name)
            .label("pool", pool)
            .label("topology.kubernetes.io/zone", zone);
        nodes.insert(name.to_owned(), node);
    }
    for object in objects.iter().filter(|object| object["kind"] == "Node") {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let mut node = nodes
            .remove(name)
            .unwrap_or_else(|| FakeNodeSpec::named(name));
        for (key, value) in map(&object["metadata"]["labels"]) {
            node = node.label(key, value);
        }
        for (key, value) in map(&object["metadata"]["annotations"]) {
            node = node.annotation(key, value);
        }
        nodes.insert(name.to_owned(), node);
    }
    nodes.into_values().collect()
}

fn map(value: &Value) -> impl Iterator<Item = (&str, &str)> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

fn resource_of(object: &Value) -> ApiResource {
    let word = |field: &str| object[field].as_str().unwrap_or_default();
    let (version, kind) = (word("apiVersion"), word("kind"));
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn is_advanced(daemon: &Value) -> bool {
    let version = daemon["apiVersion"].as_str().unwrap_or_default();
    version.starts_with(KRUISE_GROUP)
}

/// Converts an Advanced DaemonSet to a native one. The status fields used here are the same in both kinds.
fn as_native(daemon: DynamicObject) -> anyhow::Result<DaemonSet> {
    let mut daemon = serde_json::to_value(daemon)?;
    daemon["apiVersion"] = "apps/v1".into();
    Ok(serde_json::from_value(daemon)?)
}

async fn create(client: &Client, object: &Value, namespace: &str) -> anyhow::Result<()> {
    let (resource, kind) = (resource_of(object), &object["kind"]);
    let api: Api<DynamicObject> = match kind.as_str().unwrap_or_default() {
        "Namespace" | "ClusterRole" | "ClusterRoleBinding" => {
            Api::all_with(client.clone(), &resource)
        }
        _ => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let made = api.create(&PostParams::default(), &object).await;
    made.map(drop).with_context(|| format!("create the {kind}"))
}

/// Checks that yurt-ds can parse the settings of a DaemonSet and accepts them.
fn is_valid(daemon: &Value) -> anyhow::Result<()> {
    let spec = &daemon["spec"];
    let strategy = &spec["updateStrategy"];
    let annotations: BTreeMap<String, String> = map(&daemon["metadata"]["annotations"])
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let fields = is_advanced(daemon).then(|| {
        FieldSettings::from_spec(AdvancedSpec {
            rolling_update: strategy.get("rollingUpdate"),
            lifecycle: spec.get("lifecycle"),
            burst_replicas: spec.get("burstReplicas"),
            revision_history_limit: spec["revisionHistoryLimit"].as_i64(),
            partitioned_scaling: spec["scaleStrategy"]["partitionedScaling"].as_bool(),
            annotations: &annotations,
        })
    });
    let exclusive = Exclusive::from_template(&spec["template"]);
    let preempting = Preempting::from_template(&spec["template"]);
    let reading = read(&SettingsSource {
        annotations: &annotations,
        update_strategy: strategy["type"].as_str(),
        rolling_update_max_unavailable: strategy["rollingUpdate"].get("maxUnavailable"),
        min_ready_seconds: spec["minReadySeconds"].as_i64().unwrap_or_default(),
        in_template: &[],
        exclusive: exclusive.as_ref(),
        preempting: preempting.as_ref(),
        fields: fields.as_ref(),
    });
    match reading {
        ParsedSettings::NotOurs => bail!("the annotation update-strategy is missing"),
        ParsedSettings::Invalid(invalid, _) => bail!("{invalid}"),
        ParsedSettings::Strategy { notes, .. } => {
            let warnings: Vec<&str> = notes
                .iter()
                .filter(|note| note.warning)
                .map(|note| note.text.as_str())
                .collect();
            ensure!(warnings.is_empty(), "{}", warnings.join("; "));
            Ok(())
        }
    }
}

fn all_available(daemon: &DaemonSet) -> Result<(), String> {
    let status = daemon.status.clone().unwrap_or_default();
    let (desired, available) = (
        status.desired_number_scheduled,
        status.number_available.unwrap_or_default(),
    );
    let observed = status.observed_generation >= daemon.metadata.generation;
    if observed && desired > 0 && available == desired {
        Ok(())
    } else {
        Err(format!("{available} of {desired} are"))
    }
}

fn converged(daemon: &DaemonSet) -> Result<(), String> {
    all_available(daemon)?;
    let status = daemon.status.clone().unwrap_or_default();
    let updated = status.updated_number_scheduled.unwrap_or_default();
    if updated != status.desired_number_scheduled {
        return Err(format!("{updated} pods are of the new revision"));
    }
    has_condition(daemon, "RolloutComplete", "True", ": complete")?;
    match has_condition(daemon, "RolloutComplete", "True", "except") {
        Ok(()) => Err("complete but for exceptions".into()),
        Err(_) => Ok(()),
    }
}

fn condition(daemon: &DaemonSet, kind: &str) -> Option<(String, String)> {
    let status = daemon.status.as_ref()?;
    let condition = status
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == kind)?;
    let message = condition.message.clone().unwrap_or_default();
    Some((condition.status.clone(), message))
}

fn has_condition(daemon: &DaemonSet, kind: &str, status: &str, words: &str) -> Result<(), String> {
    match condition(daemon, kind) {
        Some((found, message)) if found == status && message.contains(words) => Ok(()),
        other => Err(format!("{kind} is {other:?}")),
    }
}
