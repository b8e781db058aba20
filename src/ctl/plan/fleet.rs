//! The live fleet as objects of an embedded cluster.
//!
//! Of templates only what matters for a rollout is kept: labels, images, ports, where pods belong, how long they may take
//! to end. What is left out stands as one fingerprint in the template, so that two revisions that differ only there still
//! differ, and an update in place is judged as on the live cluster. A second mark names the revision itself: the template
//! of the DaemonSet is that of its revision by construction, not by comparison.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::change::PlannedChange;
use super::live::LiveFleet;
use super::slim::{self, is_kept};
use crate::core::names::ANNOTATION_PREFIX;
use crate::core::revision::TemplateFingerprint;
use crate::ctl::error::CliError;
use crate::sim::cluster::Cluster;
use crate::sim::cluster::resources::Storage;
use crate::sim::kubelet::FakeNodeSpec;

/// Annotation of a planned template: the revision that it is.
const MARK: &str = "plan.yurt-ds.io/revision";
/// Environment variable of a planned container: the fingerprint of what was left out.
const REST: &str = "LEFT_OUT";
/// The mark of a template that is no revision yet.
const PLANNED: &str = "planned";

/// Objects to begin with, and the change to be made then.
pub(super) struct PlannedFleet {
    objects: BTreeMap<Storage, Vec<Value>>,
    /// Every node and its pods, small until they are put into a cluster.
    nodes: Vec<slim::SlimNode>,
    pods: Vec<slim::SlimPod>,
    /// Nodes whose kubelets answer, and those that are silent.
    pub(super) online: Vec<FakeNodeSpec>,
    pub(super) offline: Vec<FakeNodeSpec>,
    /// What a person would patch; `None`: nothing.
    pub(super) patch: Option<Value>,
}

impl PlannedFleet {
    /// The fleet, without its nodes and pods as yet, and the change.
    ///
    /// # Errors
    /// When the change does not fit the template.
    pub(super) fn of(live: &LiveFleet, change: &PlannedChange) -> Result<Self, CliError> {
        let mut template = live.template().clone();
        change.to_template(&mut template)?;
        let planned = live.revision_of(&template);
        let mark = planned.as_deref().unwrap_or(PLANNED);
        let mut patch = json!({});
        if mark != live.current.as_str() {
            patch["spec"]["template"] = marked(&template, mark);
        }
        if !change.settings.is_empty() {
            patch["metadata"]["annotations"] = json!(change.settings);
        }
        let (online, offline) = live.nodes.iter().partition(|node| node.is_ready());
        let named = |nodes: Vec<&slim::SlimNode>| -> Vec<FakeNodeSpec> {
            let names = nodes.iter().filter_map(|node| node.metadata.name.clone());
            names.map(FakeNodeSpec::named).collect()
        };
        Ok(Self {
            objects: BTreeMap::from([
                (Storage::Namespaces, vec![namespace(live)]),
                (Storage::ControllerRevisions, revisions(live)),
                (Storage::DaemonSets, vec![daemonset(live)]),
            ]),
            nodes: Vec::new(),
            pods: Vec::new(),
            online: named(online),
            offline: named(offline),
            patch: (patch != json!({})).then_some(patch),
        })
    }

    /// The DaemonSet as it will be, to read its settings beforehand.
    pub(super) fn settings(&self) -> Option<crate::k8s::DaemonSet> {
        let mut set = self.objects.get(&Storage::DaemonSets)?.first()?.clone();
        json_patch::merge(&mut set, self.patch.as_ref().unwrap_or(&json!({})));
        serde_json::from_value(set).ok()
    }

    /// With these disruption budgets.
    pub(super) fn guarded_by(&mut self, budgets: Vec<Value>) {
        self.objects.insert(Storage::PodDisruptionBudgets, budgets);
    }

    /// With these nodes and pods.
    pub(super) fn inhabited_by(
        &mut self,
        nodes: Vec<slim::SlimNode>,
        mut pods: Vec<slim::SlimPod>,
    ) {
        pods.iter_mut().for_each(slim::SlimPod::name_old_images);
        (self.nodes, self.pods) = (nodes, pods);
    }

    /// Puts all of it into a cluster.
    pub(super) fn restore(&mut self, cluster: &Cluster) {
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        cluster.restore(Storage::Nodes, nodes.map(|node| of("v1", "Node", &node)));
        let pods = std::mem::take(&mut self.pods).into_iter();
        cluster.restore(Storage::Pods, pods.map(|one| pod(&one)));
        for (storage, objects) in std::mem::take(&mut self.objects) {
            cluster.restore(storage, objects);
        }
    }
}

fn of(version: &str, kind: &str, object: &impl serde::Serialize) -> Value {
    let mut value = json!(object);
    value["apiVersion"] = json!(version);
    value["kind"] = json!(kind);
    value
}

fn pod(pod: &slim::SlimPod) -> Value {
    let mut value = of("v1", "Pod", pod);
    value["spec"]["restartPolicy"] = json!("Always");
    value
}

/// One that admits whatever the live one let in.
fn namespace(live: &LiveFleet) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": &*live.key.namespace,
            "uid": "00000000-0000-4000-8000-000000000000",
            "creationTimestamp": Timestamp::UNIX_EPOCH,
        },
        "status": { "phase": "Active" },
    })
}

fn revisions(live: &LiveFleet) -> Vec<Value> {
    let mut revisions = Vec::new();
    for revision in &live.revisions {
        let hash = revision.hash(&live.key.name);
        // The present one may be spelled in a way that only its number tells.
        let mut template = match hash == live.current.as_str() {
            true => marked(live.template(), &hash),
            false => marked(&revision.data["spec"]["template"], &hash),
        };
        template["$patch"] = json!("replace");
        let mut value = of("apps/v1", "ControllerRevision", revision);
        value["data"] = json!({ "spec": { "template": template } });
        revisions.push(value);
    }
    revisions
}

fn daemonset(live: &LiveFleet) -> Value {
    let meta = &live.set.metadata;
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| is_kept(key) || key.starts_with(ANNOTATION_PREFIX));
    let spec = &live.set.data["spec"];
    json!({
        "apiVersion": <DaemonSet as k8s_openapi::Resource>::API_VERSION,
        "kind": <DaemonSet as k8s_openapi::Resource>::KIND,
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
            "generation": meta.generation,
            "creationTimestamp": meta.creation_timestamp,
            "labels": meta.labels,
            "annotations": annotations,
        },
        "spec": {
            "selector": spec["selector"],
            "updateStrategy": spec["updateStrategy"],
            "minReadySeconds": spec["minReadySeconds"].as_i64().unwrap_or(0),
            "revisionHistoryLimit": spec["revisionHistoryLimit"].as_i64().unwrap_or(10),
            "template": marked(live.template(), live.current.as_str()),
        },
        "status": live.set.data["status"],
    })
}

/// The template as far as it matters, completed as the API server would, with both marks.
fn marked(template: &Value, mark: &str) -> Value {
    let rest = left_out(template);
    let spec = &template["spec"];
    let mut kept = Map::new();
    for key in [
        "nodeSelector",
        "affinity",
        "tolerations",
        "hostNetwork",
        "terminationGracePeriodSeconds",
    ] {
        if !spec[key].is_null() {
            kept.insert(key.to_owned(), spec[key].clone());
        }
    }
    let containers = spec["containers"].as_array().into_iter().flatten();
    let containers = containers.map(|container| {
        let mut kept = json!({
            "name": container["name"],
            "image": container["image"],
            "env": [{ "name": REST, "value": rest }],
        });
        if !container["ports"].is_null() {
            kept["ports"] = container["ports"].clone();
        }
        kept
    });
    kept.insert("containers".to_owned(), containers.collect());
    // A claim is what keeps two pods off one node.
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let claims = volumes.filter(|volume| volume["persistentVolumeClaim"].is_object());
    let claims: Vec<Value> = claims.cloned().collect();
    if !claims.is_empty() {
        kept.insert("volumes".to_owned(), json!(claims));
    }
    let mut set = json!({ "spec": { "template": {
        "metadata": {
            "labels": template["metadata"]["labels"],
            "annotations": { MARK: mark },
        },
        "spec": kept,
    } } });
    Cluster::complete(Storage::DaemonSets, &mut set);
    set["spec"]["template"].take()
}

/// One text for everything that an update in place cannot change.
fn left_out(template: &Value) -> String {
    let mut rest = template["spec"].clone();
    for container in rest["containers"].as_array_mut().into_iter().flatten() {
        container["image"] = Value::Null;
    }
    format!("{:?}", TemplateFingerprint::of(&json!({ "spec": rest })))
}
