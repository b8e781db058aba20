//! What is read of the live cluster, and nothing more: the DaemonSet, its pods, its revisions, the nodes.
//!
//! Lists come page by page, and what the plan does not need is skipped while parsing. Nothing is ever written.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Resource};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::api::{nullable, resource};
use crate::core::images::of_template;
use crate::core::in_place::Shape;
use crate::core::names::{REVISION_HASH_LABEL, TEMPLATE_GENERATION_ANNOTATION};
use crate::core::revision::{RevisionFacts, TemplateFingerprint, current, hash_of};
use crate::core::{Behind, Revision, RevisionState};
use crate::ctl::access::{Access, Trouble};
use crate::ctl::code::Code;
use crate::ctl::lookup;
use crate::ctl::view::list;
use crate::index::SetKey;

/// What annotations are kept of nodes and pods: those of this family, wherever they come from.
const FAMILY: &str = "openyurt.io/";
/// So often everything is read again when the newest revision did not fit the template: a moment ago it was made.
const ATTEMPTS: usize = 2;

/// A DaemonSet on its fleet, as it is now.
pub(super) struct Live {
    /// Its name.
    pub(super) key: SetKey,
    /// The DaemonSet, whole.
    pub(super) set: DynamicObject,
    /// Which pods are its own, as a query for labels.
    pub(super) selector: String,
    /// Every node.
    pub(super) nodes: Vec<Node>,
    /// Its pods, also those on their way to become its own (surge).
    pub(super) pods: Vec<Pod>,
    /// Its revisions.
    pub(super) revisions: Vec<ControllerRevision>,
    /// The one that holds its template.
    pub(super) current: Revision,
    /// When it was read.
    pub(super) at: Timestamp,
}

/// A Node without what no plan needs (images alone are ten kilobytes).
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Node {
    #[serde(deserialize_with = "slim", default)]
    pub(super) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable", default)]
    pub(super) spec: NodeSpec,
    #[serde(deserialize_with = "nullable", default)]
    pub(super) status: Conditions,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct NodeSpec {
    #[serde(skip_serializing_if = "Value::is_null")]
    taints: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    unschedulable: Value,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Conditions {
    #[serde(deserialize_with = "nullable")]
    pub(super) conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_transition_time: Option<Time>,
}

/// A Pod without the template's details.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Pod {
    #[serde(deserialize_with = "slim", default)]
    pub(super) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable", default)]
    pub(super) spec: PodSpec,
    #[serde(deserialize_with = "nullable", default)]
    pub(super) status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node_name: Option<String>,
    #[serde(deserialize_with = "nullable")]
    containers: Vec<Container>,
    #[serde(skip_serializing_if = "Value::is_null")]
    affinity: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    tolerations: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Container {
    name: String,
    image: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    #[serde(deserialize_with = "nullable")]
    pub(super) phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<Time>,
    #[serde(rename = "podIP", skip_serializing_if = "Option::is_none")]
    pod_ip: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    pub(super) container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatus {
    name: String,
    image: String,
    #[serde(rename = "imageID")]
    image_id: String,
    ready: bool,
    pub(super) restart_count: i64,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(super) state: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    last_state: Value,
}

/// A ControllerRevision.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct ControllerRevision {
    #[serde(deserialize_with = "slim", default)]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) revision: i64,
    #[serde(default)]
    pub(super) data: Value,
}

resource!(
    Node,
    k8s_openapi::ClusterResourceScope,
    "Node",
    "",
    "v1",
    "nodes"
);
resource!(
    Pod,
    k8s_openapi::NamespaceResourceScope,
    "Pod",
    "",
    "v1",
    "pods"
);
resource!(
    ControllerRevision,
    k8s_openapi::NamespaceResourceScope,
    "ControllerRevision",
    "apps",
    "v1",
    "controllerrevisions"
);

/// `metadata` without what belongs to others.
fn slim<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Slim {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        deletion_grace_period_seconds: Option<i64>,
        labels: Option<std::collections::BTreeMap<String, String>>,
        annotations: Option<std::collections::BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let slim = Slim::deserialize(deserializer)?;
    let mut annotations = slim.annotations.unwrap_or_default();
    annotations.retain(|key, _| is_kept(key));
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        deletion_grace_period_seconds: slim.deletion_grace_period_seconds,
        labels: slim.labels,
        annotations: Some(annotations),
        owner_references: slim.owner_references,
        ..ObjectMeta::default()
    })
}

/// Whether an annotation may matter to a plan.
pub(super) fn is_kept(key: &str) -> bool {
    key == TEMPLATE_GENERATION_ANNOTATION
        || key
            .split_once('/')
            .is_some_and(|(domain, _)| domain.ends_with(FAMILY.trim_end_matches('/')))
}

impl Live {
    /// Reads a managed DaemonSet and its fleet.
    ///
    /// # Errors
    /// What may not be read, or does not exist, or is not ready to be planned, in a sentence.
    pub(super) async fn read(
        access: &Access,
        key: &SetKey,
        now: impl Fn() -> Timestamp,
    ) -> Result<Self, Trouble> {
        for attempt in 1.. {
            let trust = attempt == ATTEMPTS;
            match Self::look(access, key, now(), trust).await? {
                Ok(live) => return Ok(live),
                Err(_) if !trust => {}
                Err(behind) => {
                    let text = format!(
                        "{key} cannot be planned now: Kubernetes' DaemonSet controller has not handled its latest change \
                         ({behind:?}). Try again in a moment."
                    );
                    return Err(Trouble::new(Code::Progressing, text));
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    async fn look(
        access: &Access,
        key: &SetKey,
        at: Timestamp,
        trust: bool,
    ) -> Result<Result<Self, Behind>, Trouble> {
        let client = || access.client.clone();
        // In the words of `status` where there is none, or it is not ours.
        let found = lookup::find(access, key, at).await?;
        let selector = found.index.set(key).map(|set| set.selector.clone());
        let selector = selector.unwrap_or_default();
        let labelled = ListParams::default().labels(&selector);
        let kind = ApiResource::erase::<k8s_openapi::api::apps::v1::DaemonSet>(&());
        let sets: Api<DynamicObject> = Api::namespaced_with(client(), &key.namespace, &kind);
        let doing = format!("read DaemonSet {key}");
        let set = access.call(&doing, sets.get(&key.name)).await?;
        let nodes: Api<Node> = Api::all(client());
        let (nodes, _) = list(access, "list nodes", &nodes, ListParams::default()).await?;
        let doing = format!("list pods in namespace {}", key.namespace);
        let pods: Api<Pod> = Api::namespaced(client(), &key.namespace);
        let (mut pods, _) = list(access, &doing, &pods, labelled.clone()).await?;
        let doing = format!("list controllerrevisions in namespace {}", key.namespace);
        let revisions: Api<ControllerRevision> = Api::namespaced(client(), &key.namespace);
        let (mut revisions, _) = list(access, &doing, &revisions, labelled).await?;
        let uid = set.metadata.uid.clone().unwrap_or_default();
        revisions.retain(|revision| owner(revision) == Some(&uid));
        let owners: Vec<String> = revisions
            .iter()
            .filter_map(|one| one.metadata.uid.clone())
            .collect();
        pods.retain(|pod| owner(pod).is_some_and(|owner| *owner == uid || owners.contains(owner)));
        let state = revision_state(&set, &revisions, trust);
        Ok(match state {
            RevisionState::Behind(behind) => Err(behind),
            RevisionState::Current(current) => Ok(Self {
                key: key.clone(),
                set,
                selector,
                nodes,
                pods,
                revisions,
                current,
                at,
            }),
        })
    }

    /// `spec.template`.
    pub(super) fn template(&self) -> &Value {
        &self.set.data["spec"]["template"]
    }

    /// The hash of the revision that holds this template, if one does.
    pub(super) fn revision_of(&self, template: &Value) -> Option<String> {
        let wanted = TemplateFingerprint::of(template);
        if wanted == TemplateFingerprint::of(self.template()) {
            return Some(self.current.to_string());
        }
        let facts = facts(&self.set, &self.revisions);
        let mut found = facts.into_iter().filter(|known| known.template == wanted);
        found.next().map(|known| known.hash.to_string())
    }
}

fn revision_state(
    set: &DynamicObject,
    revisions: &[ControllerRevision],
    trust: bool,
) -> RevisionState {
    let observed = set.data["status"]["observedGeneration"].as_i64();
    let observed = observed.is_some() && observed >= set.metadata.generation;
    let template = TemplateFingerprint::of(&set.data["spec"]["template"]);
    current(&facts(set, revisions), &template, observed, trust)
}

fn facts(set: &DynamicObject, revisions: &[ControllerRevision]) -> Vec<RevisionFacts> {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let fact = |revision: &ControllerRevision| RevisionFacts {
        number: revision.revision,
        hash: revision.hash(name).as_str().into(),
        template: TemplateFingerprint::of(&revision.data["spec"]["template"]),
        shape: Arc::new(Shape::of(&revision.data["spec"]["template"])),
        images: of_template(&revision.data["spec"]["template"]).into(),
    };
    revisions.iter().map(fact).collect()
}

impl ControllerRevision {
    /// Its hash; `set` is the name of the DaemonSet.
    pub(super) fn hash(&self, set: &str) -> String {
        let labels = self.metadata.labels.as_ref();
        let label = labels.and_then(|labels| labels.get(REVISION_HASH_LABEL));
        let name = self.metadata.name.as_deref().unwrap_or_default();
        hash_of(label.map(String::as_str), name, set).to_string()
    }
}

impl Pod {
    /// The condition of that type.
    pub(super) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|one| one.kind == kind)
    }

    /// Whether it is Ready.
    pub(super) fn is_ready(&self) -> bool {
        self.condition("Ready")
            .is_some_and(|ready| ready.status == "True")
    }
}

impl Node {
    /// Whether it is Ready.
    pub(super) fn is_ready(&self) -> bool {
        let conditions = &self.status.conditions;
        conditions
            .iter()
            .any(|one| one.kind == "Ready" && one.status == "True")
    }
}

fn owner(object: &impl Resource) -> Option<&String> {
    let owners = object.meta().owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.next().map(|owner| &owner.uid)
}
