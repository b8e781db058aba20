//! The Node objects of the fake kubelets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::pod::PodStep;

/// A node to be added.
#[derive(Clone, Debug, Default)]
pub struct FakeNodeSpec {
    /// Its name.
    pub name: String,
    /// Its labels; hostname, os and arch come by themselves.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// How far its clock is ahead (or behind).
    pub skew: SignedDuration,
    /// How long its containers take to end; `None`: as all others.
    pub terminate: Option<Duration>,
}

impl FakeNodeSpec {
    /// A node with this name and nothing special.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// With this label too.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With this annotation too.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }
}

/// What else happens when a node goes offline, besides its kubelet falling silent. The node lifecycle controller does
/// both after its grace period; where that is long, the fake kubelets can do it at once in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outage {
    /// Set the node's Ready condition to `Unknown`.
    pub mark_node: bool,
    /// Set the Ready condition of its pods to `False`.
    pub mark_pods: bool,
}

impl Outage {
    /// Both marks: what becomes of an ordinary node after the grace period.
    pub const MARKED: Self = Self {
        mark_node: true,
        mark_pods: true,
    };
    /// Only the node is marked, as for nodes with autonomy, whose pods go on serving.
    pub const AUTONOMOUS: Self = Self {
        mark_node: true,
        mark_pods: false,
    };
}

/// A node as its kubelet knows it.
pub(super) struct KubeletNode {
    pub(super) spec: FakeNodeSpec,
    pub(super) online: bool,
    /// It went down and has to boot: its containers will start anew.
    pub(super) crashed: bool,
    /// Counts its lives, so that what was planned for an earlier one is void.
    pub(super) life: u32,
    pub(super) images: BTreeSet<String>,
    pub(super) ip: String,
    pub(super) ready_since: Timestamp,
    /// What came due while it was offline.
    pub(super) missed: Vec<(String, PodStep)>,
    pub(super) flap: Option<Flap>,
}

/// A node that goes up and down by itself.
#[derive(Clone, Copy)]
pub(super) struct Flap {
    pub(super) up: Duration,
    pub(super) down: Duration,
    /// Tells the steps of this flapping from those of an earlier one.
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

    /// The object that the kubelet registers, status included.
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

    /// The status of a node that is online.
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

/// The status of a node whose kubelet is silent, as the node lifecycle controller writes it.
pub(crate) fn unknown(now: Timestamp) -> Value {
    json!({ "conditions": [{
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.", "lastTransitionTime": Time(now),
    }] })
}
