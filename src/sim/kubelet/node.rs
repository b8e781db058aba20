//! Node objects that the fake kubelets register and update.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::pod::PodStep;

/// Specification of a new node.
#[derive(Clone, Debug, Default)]
pub struct FakeNodeSpec {
    /// Name of the node.
    pub name: String,
    /// Labels of the node. Those for hostname, OS and architecture are added automatically.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the node.
    pub annotations: BTreeMap<String, String>,
    /// Taints of the node.
    pub taints: Vec<Taint>,
    /// Offset of the node's clock; positive if it is ahead.
    pub skew: SignedDuration,
    /// Time that containers on the node take to end; `None` for the default of all nodes.
    pub terminate: Option<Duration>,
}

impl FakeNodeSpec {
    /// Returns a node with this name and default settings.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Adds a label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds an annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }
}

/// Effects of a node's outage, in addition to a silent kubelet.
///
/// Normally, the node lifecycle controller causes these effects after its grace period. The fake kubelets can cause them
/// immediately, so that a test doesn't have to wait for the grace period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outage {
    /// True if the node's Ready condition becomes `Unknown`.
    pub mark_node: bool,
    /// True if the Ready condition of the node's pods becomes `False`.
    pub mark_pods: bool,
}

impl Outage {
    /// Outage of an ordinary node after the grace period: node and pods are marked.
    pub const MARKED: Self = Self {
        mark_node: true,
        mark_pods: true,
    };
    /// Outage of an autonomous node (OpenYurt). Only the node is marked, and its pods stay Ready.
    pub const AUTONOMOUS: Self = Self {
        mark_node: true,
        mark_pods: false,
    };
}

/// Node as its fake kubelet knows it.
pub(super) struct KubeletNode {
    pub(super) spec: FakeNodeSpec,
    pub(super) online: bool,
    /// True if the node crashed. When it comes back, its containers restart.
    pub(super) crashed: bool,
    /// Number of the node's present life. It grows each time the node comes online, and timers of an earlier life are ignored.
    pub(super) life: u32,
    pub(super) images: BTreeSet<String>,
    pub(super) ip: String,
    pub(super) ready_since: Timestamp,
    /// Steps that became due while the node was offline.
    pub(super) missed: Vec<(String, PodStep)>,
    pub(super) flap: Option<Flap>,
}

/// Schedule of a node that repeatedly goes offline and returns.
#[derive(Clone, Copy)]
pub(super) struct Flap {
    pub(super) up: Duration,
    pub(super) down: Duration,
    /// Number of the schedule. Steps of an earlier schedule are ignored.
    pub(super) number: u32,
}

impl KubeletNode {
    pub(super) fn new(spec: FakeNodeSpec, ip: String, now: Timestamp) -> Self {
        Self {
            spec,
            online: true,
            crashed: false,
            life: 0,
            images: BTreeSet::new(),
            ip,
            ready_since: now,
            missed: Vec::new(),
            flap: None,
        }
    }

    /// Returns the Node object that the kubelet registers, with its status.
    pub(super) fn object(&self, now: Timestamp) -> Value {
        let name = &self.spec.name;
        let mut labels = self.spec.labels.clone();
        for (key, value) in [
            ("kubernetes.io/hostname", name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
        ] {
            labels
                .entry(key.to_owned())
                .or_insert_with(|| value.to_owned());
        }
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name, "labels": labels, "annotations": self.spec.annotations },
            "spec": { "taints": self.spec.taints },
            "status": self.status(now),
        })
    }

    /// Returns the status of an online node.
    pub(super) fn status(&self, now: Timestamp) -> Value {
        let room =
            json!({ "cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "250" });
        json!({
            "capacity": room,
            "allocatable": room,
            "addresses": [
                { "type": "InternalIP", "address": self.ip },
                { "type": "Hostname", "address": self.spec.name },
            ],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.36.0-fake",
                "kubeProxyVersion": "", "containerRuntimeVersion": "fake://1.0.0", "kernelVersion": "6.1.0",
                "osImage": "simulated", "machineID": "", "systemUUID": "", "bootID": "",
            },
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
                "lastHeartbeatTime": Time(now), "lastTransitionTime": Time(self.ready_since),
            }],
        })
    }
}

/// Returns the status that the node lifecycle controller writes for a node whose kubelet is silent.
pub(crate) fn unknown(now: Timestamp) -> Value {
    json!({ "conditions": [{
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.", "lastTransitionTime": Time(now),
    }] })
}
