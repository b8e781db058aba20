//! The live fleet as objects of an embedded cluster.
//!
//! Of templates only what matters for a rollout is kept: labels, images, ports, where pods belong, how long they may take
//! to end. What is left out stands as one fingerprint in the template, so that two revisions that differ only there still
//! differ, and an update in place is judged as on the live cluster. A second mark names the revision itself: the template
//! of the DaemonSet is that of its revision by construction, not by comparison.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::change::PlannedChange;
use super::live::LiveFleet;
use super::slim::{self, is_kept};
use crate::core::lifecycle::PreDelete;
use crate::core::names::REVISION_HASH_LABEL;
use crate::core::revision::{TemplateFingerprint, data_of};
use crate::core::{Revision, SetKind};
use crate::ctl::error::CliError;
use crate::ctl::kinds::decided_upon;
use crate::k8s::{DaemonSet, time};
use crate::sim::cluster::Cluster;
use crate::sim::cluster::resources::Storage;
use crate::sim::kubelet::FakeNodeSpec;

/// Annotation of a planned template: the revision that it is.
const MARK: &str = "plan.yurt-ds.io/revision";
/// Environment variable of a planned container: the fingerprint of what was left out.
const REST: &str = "LEFT_OUT";
/// The mark of a template that is no revision yet. Of an Advanced DaemonSet it is one in the copy from the beginning, under this hash.
const PLANNED: &str = "planned";
/// UIDs of what is in no live cluster.
const OF_NAMESPACE: &str = "00000000-0000-4000-8000-000000000000";
const OF_REVISION: &str = "00000000-0000-4000-8000-000000000001";

/// Objects to begin with, and the change to be made then.
pub(super) struct PlannedFleet {
    kind: SetKind,
    objects: BTreeMap<Storage, Vec<Value>>,
    /// Every node and its pods, small until they are put into a cluster.
    nodes: Vec<slim::SlimNode>,
    pods: Vec<slim::SlimPod>,
    /// Nodes whose kubelets answer, and those that are silent.
    pub(super) online: Vec<FakeNodeSpec>,
    pub(super) offline: Vec<FakeNodeSpec>,
    /// What a person would patch; `None`: nothing.
    pub(super) patch: Option<Value>,
    /// The revision that nodes get; `None`: Kubernetes' controller is about to make it.
    pub(super) target: Option<String>,
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
        let mark = planned.as_ref().map_or(PLANNED, Revision::as_str);
        let kind = live.key.kind;
        let mut patch = change.to_settings(kind);
        if planned.is_none() || planned != live.current {
            patch["spec"]["template"] = marked(&template, mark);
        }
        let mut revisions = revisions(live);
        if planned.is_none() && kind == SetKind::Advanced {
            revisions.push(revision_to_come(live, &template));
        }
        let (online, offline) = live.nodes.iter().partition(|node| node.is_ready());
        let named = |nodes: Vec<&slim::SlimNode>| -> Vec<FakeNodeSpec> {
            let names = nodes.iter().filter_map(|node| node.metadata.name.clone());
            names.map(FakeNodeSpec::named).collect()
        };
        Ok(Self {
            kind,
            objects: BTreeMap::from([
                (Storage::Namespaces, vec![namespace(live)]),
                (Storage::ControllerRevisions, revisions),
                (storage(kind), vec![daemonset(live)]),
            ]),
            nodes: Vec::new(),
            pods: Vec::new(),
            online: named(online),
            offline: named(offline),
            patch: (patch != json!({})).then_some(patch),
            target: (kind == SetKind::Advanced).then(|| mark.to_owned()),
        })
    }

    /// The DaemonSet as it is.
    pub(super) fn present(&self) -> Option<DaemonSet> {
        decided_upon(self.kind, self.whole()?)
    }

    /// The DaemonSet as it will be, to read its settings beforehand.
    pub(super) fn changed(&self) -> Option<DaemonSet> {
        let mut set = self.whole()?;
        json_patch::merge(&mut set, self.patch.as_ref().unwrap_or(&json!({})));
        decided_upon(self.kind, set)
    }

    fn whole(&self) -> Option<Value> {
        self.objects.get(&storage(self.kind))?.first().cloned()
    }

    /// With these disruption budgets.
    pub(super) fn guarded_by(&mut self, budgets: Vec<Value>) {
        self.objects.insert(Storage::PodDisruptionBudgets, budgets);
    }

    /// With these nodes and pods. Of their finalizers those stay that stand for the hook: who answers for others is not known.
    pub(super) fn inhabited_by(
        &mut self,
        nodes: Vec<slim::SlimNode>,
        mut pods: Vec<slim::SlimPod>,
        hook: Option<&PreDelete>,
    ) {
        let asked = hook.map_or(&[][..], |hook| &hook.finalizers);
        for pod in &mut pods {
            pod.name_old_images();
            let finalizers = &mut pod.metadata.finalizers;
            finalizers
                .iter_mut()
                .for_each(|all| all.retain(|one| asked.contains(one)));
        }
        (self.nodes, self.pods) = (nodes, pods);
    }

    /// Puts all of it into a cluster.
    pub(super) fn restore(&mut self, cluster: &Cluster) {
        if self.kind == SetKind::Advanced {
            cluster.install_advanced();
        }
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        cluster.restore(Storage::Nodes, nodes.map(|node| of("v1", "Node", &node)));
        let pods = std::mem::take(&mut self.pods).into_iter();
        cluster.restore(Storage::Pods, pods.map(|one| pod(&one)));
        for (storage, objects) in std::mem::take(&mut self.objects) {
            cluster.restore(storage, objects);
        }
    }
}

fn storage(kind: SetKind) -> Storage {
    match kind {
        SetKind::Native => Storage::DaemonSets,
        SetKind::Advanced => Storage::AdvancedDaemonSets,
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
            "uid": OF_NAMESPACE,
            "creationTimestamp": Timestamp::UNIX_EPOCH,
        },
        "status": { "phase": "Active" },
    })
}

fn revisions(live: &LiveFleet) -> Vec<Value> {
    let present = TemplateFingerprint::of(live.template());
    let mut revisions = Vec::new();
    for revision in &live.revisions {
        let hash = revision.hash(&live.key.name);
        let template = &revision.data["spec"]["template"];
        let current = live.current.as_ref().map(Revision::as_str);
        // The present one may be spelled in a way that only its number tells; a twin of it is one in the copy, too.
        let is_current =
            |current: &&str| hash == **current || present == TemplateFingerprint::of(template);
        let template = match current.filter(is_current) {
            Some(current) => marked(live.template(), current),
            None => marked(template, &hash),
        };
        let mut value = of("apps/v1", "ControllerRevision", revision);
        value["data"] = data_of(template);
        revisions.push(value);
    }
    revisions
}

/// The revision of an Advanced DaemonSet that its controller would make of this template, made already: so it is known whom it reaches
/// first.
fn revision_to_come(live: &LiveFleet, template: &Value) -> Value {
    let meta = &live.set.metadata;
    let labels = template["metadata"]["labels"].as_object();
    let mut labels = labels.cloned().unwrap_or_default();
    labels.insert(REVISION_HASH_LABEL.to_owned(), json!(PLANNED));
    let numbers = live.revisions.iter().map(|known| known.revision);
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": format!("{}-{PLANNED}", live.key.name),
            "namespace": &*live.key.namespace,
            "uid": OF_REVISION,
            "creationTimestamp": Time(live.at),
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": live.key.kind.api_version(),
                "kind": "DaemonSet",
                "name": &*live.key.name,
                "uid": meta.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "revision": numbers.max().unwrap_or(0).saturating_add(1),
        "data": data_of(marked(template, PLANNED)),
    })
}

fn daemonset(live: &LiveFleet) -> Value {
    let meta = &live.set.metadata;
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| is_kept(key));
    let mark = live.current.as_ref().map_or(PLANNED, Revision::as_str);
    let mut spec = live.set.data["spec"].clone();
    spec["template"] = marked(live.template(), mark);
    json!({
        "apiVersion": live.key.kind.api_version(),
        "kind": "DaemonSet",
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
            "generation": meta.generation,
            "creationTimestamp": meta.creation_timestamp,
            "labels": meta.labels,
            "annotations": annotations,
        },
        "spec": spec,
        "status": with_clamped_times(live.set.data["status"].clone()),
    })
}

/// A status whose conditions have times that a library can hold. The API server accepts others, too.
fn with_clamped_times(mut status: Value) -> Value {
    let conditions = status
        .get_mut("conditions")
        .and_then(|told| told.as_array_mut());
    for condition in conditions.into_iter().flatten() {
        if let Some(since) = condition.get_mut("lastTransitionTime") {
            *since = json!(since.as_str().and_then(|text| time::read(text).ok()));
        }
    }
    status
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
    // One of them asks for a restart, and some cannot be changed in a pod.
    let annotations = template["metadata"]["annotations"].as_object();
    let mut annotations = annotations.cloned().unwrap_or_default();
    annotations.insert(MARK.to_owned(), json!(mark));
    let mut set = json!({ "spec": { "template": {
        "metadata": {
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_at_the_end_of_the_calendar_are_clamped() {
        let status = |since: Value| json!({ "conditions": [{ "type": "Guard", "lastTransitionTime": since }] });
        let clamped = |since| with_clamped_times(status(since));
        let far = json!("9999-12-31T23:59:59Z");
        assert_eq!(clamped(far.clone()), status(json!("9000-01-01T00:00:00Z")));
        let known = json!("2026-01-01T00:00:00Z");
        assert_eq!(clamped(known.clone()), status(known));
        assert_eq!(clamped(json!("tomorrow")), status(Value::Null));
        assert_eq!(with_clamped_times(Value::Null), Value::Null);
        let node = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": far }] } });
        let node: slim::SlimNode = serde_json::from_value(node).unwrap();
        assert!(node.is_ready() && node.ready_since().is_some());
    }
}
