//! Builders for the objects of stories, as a user would write them in a manifest.

use kube::api::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use yurt_ds::sim::kubelet::Behaviour;

/// Image that every story has at its start.
pub(crate) const OLD: &str = "nginx:1.19.4";
/// Image that stories roll out.
pub(crate) const NEW: &str = "nginx:1.19.5";
/// Image that stories roll out after [`NEW`].
pub(crate) const NEWER: &str = "nginx:1.19.6";
/// Name of the DaemonSet in every story.
pub(crate) const DAEMON: &str = "nginx-daemonset";
/// Prefix of yurt-ds annotations.
pub(crate) const FAMILY: &str = "apps.openyurt.io";

/// API version of Advanced DaemonSets.
const ADVANCED: &str = "apps.kruise.io/v1beta1";

/// Builder for a DaemonSet manifest.
#[derive(Clone, Debug)]
pub(crate) struct Daemon(Value);

impl Daemon {
    /// Returns a native DaemonSet with `OnDelete` and AdvancedRollingUpdate. One node is updated at a time, and `ready-settle` is 2
    /// s.
    pub(crate) fn new() -> Self {
        Self::plain()
            .annotate("update-strategy", "AdvancedRollingUpdate")
            .annotate("max-unavailable", "1")
            .annotate("ready-settle", "2s")
    }

    /// Returns a native DaemonSet with `OnDelete` and without yurt-ds annotations.
    pub(crate) fn plain() -> Self {
        Self(json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": { "name": DAEMON, "labels": { "app": "nginx" }, "annotations": {} },
            "spec": {
                "selector": { "matchLabels": { "app": "nginx" } },
                "updateStrategy": { "type": "OnDelete" },
                "template": {
                    "metadata": { "labels": { "app": "nginx" } },
                    "spec": {
                        "terminationGracePeriodSeconds": 30,
                        "containers": [{ "name": "nginx", "image": OLD }],
                    },
                },
            },
        }))
    }

    /// Returns an Advanced DaemonSet. One node is updated at a time, and `ready-settle` is 2 s.
    pub(crate) fn advanced() -> Self {
        let mut daemon = Self::plain().annotate("ready-settle", "2s");
        daemon.0["apiVersion"] = ADVANCED.into();
        daemon.0["spec"]["updateStrategy"] =
            json!({ "type": "RollingUpdate", "rollingUpdate": {} });
        daemon
    }

    pub(crate) fn is_advanced(&self) -> bool {
        self.0["apiVersion"] == ADVANCED
    }

    /// Returns the API resource for DaemonSets of this kind.
    pub(crate) fn resource(&self) -> ApiResource {
        let group = if self.is_advanced() {
            ("apps.kruise.io", "v1beta1")
        } else {
            ("apps", "v1")
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group.0, group.1, "DaemonSet"))
    }

    /// Sets this field of `spec`.
    pub(crate) fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0["spec"][name] = value.into();
        self
    }

    /// Sets this field of `spec.updateStrategy.rollingUpdate`.
    pub(crate) fn rolling(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0["spec"]["updateStrategy"]["rollingUpdate"][name] = value.into();
        self
    }

    /// Sets a yurt-ds annotation.
    pub(crate) fn annotate(mut self, name: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][format!("{FAMILY}/{name}")] = value.into();
        self
    }

    /// Removes a yurt-ds annotation.
    pub(crate) fn without(mut self, name: &str) -> Self {
        if let Some(annotations) = self.0["metadata"]["annotations"].as_object_mut() {
            annotations.remove(&format!("{FAMILY}/{name}"));
        }
        self
    }

    /// Sets the annotation `update-strategy`.
    pub(crate) fn strategy(self, value: &str) -> Self {
        self.annotate("update-strategy", value)
    }

    pub(crate) fn max_unavailable(self, value: &str) -> Self {
        self.annotate("max-unavailable", value)
    }

    pub(crate) fn min_ready(mut self, seconds: u64) -> Self {
        self.0["spec"]["minReadySeconds"] = seconds.into();
        self
    }

    /// Sets how many old ControllerRevisions are kept.
    pub(crate) fn history_limit(mut self, revisions: u64) -> Self {
        self.0["spec"]["revisionHistoryLimit"] = revisions.into();
        self
    }

    /// Sets the ports of the container in the template.
    pub(crate) fn ports(mut self, ports: Value) -> Self {
        self.0["spec"]["template"]["spec"]["containers"][0]["ports"] = ports;
        self
    }

    /// Sets the update strategy under which the native controller replaces the pods.
    pub(crate) fn native_rolling_update(mut self) -> Self {
        self.0["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate" });
        self
    }

    /// Sets the image of the first container in the template.
    pub(crate) fn image(mut self, image: &str) -> Self {
        self.0["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        self
    }

    /// Adds a container to the template.
    pub(crate) fn container(mut self, name: &str, image: &str) -> Self {
        let containers = self.0["spec"]["template"]["spec"]["containers"].as_array_mut();
        let container = json!({ "name": name, "image": image });
        containers.expect("a list of containers").push(container);
        self
    }

    /// Sets a label in the template, which new pods get.
    pub(crate) fn pod_label(mut self, key: &str, value: &str) -> Self {
        self.0["spec"]["template"]["metadata"]["labels"][key] = value.into();
        self
    }

    pub(crate) fn priority(mut self, class: &str) -> Self {
        self.0["spec"]["template"]["spec"]["priorityClassName"] = class.into();
        self
    }

    /// Sets a readiness gate in the template, which new pods get.
    pub(crate) fn gate(mut self, kind: &str) -> Self {
        self.0["spec"]["template"]["spec"]["readinessGates"] = json!([{ "conditionType": kind }]);
        self
    }

    /// Sets the name of the DaemonSet but not its labels.
    pub(crate) fn renamed(mut self, name: &str) -> Self {
        self.0["metadata"]["name"] = name.into();
        self
    }

    /// Returns the manifest. Its node selector limits the DaemonSet to the nodes of this story.
    pub(crate) fn manifest(&self, scenario: &str) -> Value {
        let mut manifest = self.0.clone();
        manifest["spec"]["template"]["spec"]["nodeSelector"] = json!({ "scenario": scenario });
        manifest
    }
}

/// Returns a patch that sets the image of the first container in the template.
pub(crate) fn image_patch(image: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [{ "name": "nginx", "image": image }] } } } })
}

/// Returns a patch that sets the image of both containers in the template: `nginx` and `second`.
pub(crate) fn two_images_patch(second: &str, image: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "nginx", "image": image },
        { "name": second, "image": image },
    ] } } } })
}

/// Returns a patch of the `rollingUpdate` field of an Advanced DaemonSet.
pub(crate) fn rolling_patch(change: Value) -> Value {
    json!({ "spec": { "updateStrategy": { "rollingUpdate": change } } })
}

/// Returns a patch that sets a yurt-ds annotation or, with `None`, removes it.
pub(crate) fn annotation_patch(name: &str, value: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { format!("{FAMILY}/{name}"): value } } })
}

/// Returns the patch that `kubectl rollout restart` applies.
pub(crate) fn restart_patch(stamp: &str) -> Value {
    json!({ "spec": { "template": { "metadata": { "annotations": { "kubectl.kubernetes.io/restartedAt": stamp } } } } })
}

/// Returns the behavior of containers that run and never become Ready.
pub(crate) fn never_ready() -> Behaviour {
    Behaviour {
        never_ready: true,
        ..Behaviour::default()
    }
}

/// Returns the behavior of containers whose image is in no registry.
pub(crate) fn missing_image() -> Behaviour {
    Behaviour {
        image_error: true,
        ..Behaviour::default()
    }
}

/// Returns the behavior of pods that the kubelet evicts as soon as they start.
pub(crate) fn evicted() -> Behaviour {
    Behaviour {
        evicted: true,
        ..Behaviour::default()
    }
}
