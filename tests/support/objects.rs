//! Objects in words: what a person would put into a manifest.

use kube::api::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use yurt_ds::sim::kubelet::Behaviour;

/// The image that everything starts with.
pub(crate) const OLD: &str = "nginx:1.19.4";
/// The image that is rolled out.
pub(crate) const NEW: &str = "nginx:1.19.5";
/// An image after that.
pub(crate) const NEWER: &str = "nginx:1.19.6";
/// The DaemonSet of every story.
pub(crate) const DAEMON: &str = "nginx-daemonset";
/// The family of our annotations.
pub(crate) const FAMILY: &str = "apps.openyurt.io";

/// API version of Advanced DaemonSets.
const ADVANCED: &str = "apps.kruise.io/v1beta1";

/// A DaemonSet manifest in the making.
#[derive(Clone, Debug)]
pub(crate) struct Daemon(Value);

impl Daemon {
    /// `OnDelete`, AdvancedRollingUpdate, one node at a time, nodes settle in two seconds.
    pub(crate) fn new() -> Self {
        Self::plain()
            .annotate("update-strategy", "AdvancedRollingUpdate")
            .annotate("max-unavailable", "1")
            .annotate("ready-settle", "2s")
    }

    /// `OnDelete`, without any annotation of ours.
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

    /// An Advanced DaemonSet, one node at a time, nodes settle in two seconds.
    pub(crate) fn advanced() -> Self {
        let mut daemon = Self::plain().annotate("ready-settle", "2s");
        daemon.0["apiVersion"] = ADVANCED.into();
        daemon.0["spec"]["updateStrategy"] =
            json!({ "type": "RollingUpdate", "rollingUpdate": {} });
        daemon
    }

    /// Whether it is an Advanced DaemonSet.
    pub(crate) fn is_advanced(&self) -> bool {
        self.0["apiVersion"] == ADVANCED
    }

    /// What its kind is called in the API.
    pub(crate) fn resource(&self) -> ApiResource {
        let group = if self.is_advanced() {
            ("apps.kruise.io", "v1beta1")
        } else {
            ("apps", "v1")
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group.0, group.1, "DaemonSet"))
    }

    /// With this field of its `spec`.
    pub(crate) fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0["spec"][name] = value.into();
        self
    }

    /// With this field of its `rollingUpdate`.
    pub(crate) fn rolling(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0["spec"]["updateStrategy"]["rollingUpdate"][name] = value.into();
        self
    }

    /// With an annotation of our family.
    pub(crate) fn annotate(mut self, name: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][format!("{FAMILY}/{name}")] = value.into();
        self
    }

    /// Without an annotation of our family.
    pub(crate) fn without(mut self, name: &str) -> Self {
        if let Some(annotations) = self.0["metadata"]["annotations"].as_object_mut() {
            annotations.remove(&format!("{FAMILY}/{name}"));
        }
        self
    }

    /// With this strategy annotation.
    pub(crate) fn strategy(self, value: &str) -> Self {
        self.annotate("update-strategy", value)
    }

    /// With this `max-unavailable`.
    pub(crate) fn max_unavailable(self, value: &str) -> Self {
        self.annotate("max-unavailable", value)
    }

    /// With this `minReadySeconds`.
    pub(crate) fn min_ready(mut self, seconds: u64) -> Self {
        self.0["spec"]["minReadySeconds"] = seconds.into();
        self
    }

    /// With this `revisionHistoryLimit`.
    pub(crate) fn history_limit(mut self, revisions: u64) -> Self {
        self.0["spec"]["revisionHistoryLimit"] = revisions.into();
        self
    }

    /// With these ports of its container.
    pub(crate) fn ports(mut self, ports: Value) -> Self {
        self.0["spec"]["template"]["spec"]["containers"][0]["ports"] = ports;
        self
    }

    /// The native controller replaces the pods.
    pub(crate) fn native_rolling_update(mut self) -> Self {
        self.0["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate" });
        self
    }

    /// With this image.
    pub(crate) fn image(mut self, image: &str) -> Self {
        self.0["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        self
    }

    /// With one more container.
    pub(crate) fn container(mut self, name: &str, image: &str) -> Self {
        let containers = self.0["spec"]["template"]["spec"]["containers"].as_array_mut();
        let container = json!({ "name": name, "image": image });
        containers.expect("a list of containers").push(container);
        self
    }

    /// With a label on every new pod.
    pub(crate) fn pod_label(mut self, key: &str, value: &str) -> Self {
        self.0["spec"]["template"]["metadata"]["labels"][key] = value.into();
        self
    }

    /// With a PriorityClass.
    pub(crate) fn priority(mut self, class: &str) -> Self {
        self.0["spec"]["template"]["spec"]["priorityClassName"] = class.into();
        self
    }

    /// With a readiness gate on every new pod.
    pub(crate) fn gate(mut self, kind: &str) -> Self {
        self.0["spec"]["template"]["spec"]["readinessGates"] = json!([{ "conditionType": kind }]);
        self
    }

    /// With another name and the same labels.
    pub(crate) fn renamed(mut self, name: &str) -> Self {
        self.0["metadata"]["name"] = name.into();
        self
    }

    /// The manifest, for the nodes that carry this label.
    pub(crate) fn manifest(&self, scenario: &str) -> Value {
        let mut manifest = self.0.clone();
        manifest["spec"]["template"]["spec"]["nodeSelector"] = json!({ "scenario": scenario });
        manifest
    }
}

/// Sets the image of the template.
pub(crate) fn image_patch(image: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [{ "name": "nginx", "image": image }] } } } })
}

/// Sets the images of both containers of a template: `nginx` and this one.
pub(crate) fn two_images_patch(second: &str, image: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "nginx", "image": image },
        { "name": second, "image": image },
    ] } } } })
}

/// Changes the `rollingUpdate` of an Advanced DaemonSet.
pub(crate) fn rolling_patch(change: Value) -> Value {
    json!({ "spec": { "updateStrategy": { "rollingUpdate": change } } })
}

/// Sets or (with null) removes an annotation of our family.
pub(crate) fn annotation_patch(name: &str, value: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { format!("{FAMILY}/{name}"): value } } })
}

/// What `kubectl rollout restart` writes.
pub(crate) fn restart_patch(stamp: &str) -> Value {
    json!({ "spec": { "template": { "metadata": { "annotations": { "kubectl.kubernetes.io/restartedAt": stamp } } } } })
}

/// Containers run and never become Ready.
pub(crate) fn never_ready() -> Behaviour {
    Behaviour {
        never_ready: true,
        ..Behaviour::default()
    }
}

/// No registry has the image.
pub(crate) fn missing_image() -> Behaviour {
    Behaviour {
        image_error: true,
        ..Behaviour::default()
    }
}

/// The kubelet evicts each pod at once.
pub(crate) fn evicted() -> Behaviour {
    Behaviour {
        evicted: true,
        ..Behaviour::default()
    }
}
