//! Defaults that the API server fills in, so that stored objects don't depend on the client that sent them.
//!
//! The DaemonSet controller compares templates with ControllerRevisions as JSON. So two templates with the same meaning must be
//! equal JSON.

use serde_json::{Map, Value, json};

use super::advanced;
use super::object::{Object, default};
use super::resources::Storage;

type Fields = Map<String, Value>;

/// Fills in the default values of an object.
pub(crate) fn fill(storage: Storage, object: &mut Value) {
    match storage {
        Storage::Pods => {
            let spec = object.entry_object("spec");
            pod_spec(spec);
            default(spec, "enableServiceLinks", true);
            requests_from_limits(spec);
        }
        Storage::DaemonSets => daemon_set(object.entry_object("spec")),
        Storage::AdvancedDaemonSets => advanced::fill(object),
        Storage::Jobs => job(object.entry_object("spec")),
        Storage::Secrets => secret(object),
        Storage::Namespaces => namespace(object),
        Storage::Services => service(object.entry_object("spec")),
        Storage::Events => event(object),
        _ => {}
    }
}

/// Fills in the default values of a native DaemonSet, for tests.
#[cfg(test)]
pub(crate) fn fill_daemonset(object: &mut Value) {
    fill(Storage::DaemonSets, object);
}

fn child<'a>(fields: &'a mut Fields, key: &str) -> &'a mut Fields {
    let place = fields.entry(key.to_owned()).or_insert(Value::Null);
    if !place.is_object() {
        *place = Value::Object(Map::new());
    }
    match place {
        Value::Object(map) => map,
        _ => unreachable!("made an object just above"),
    }
}

fn each<'a>(fields: &'a mut Fields, list: &str) -> impl Iterator<Item = &'a mut Fields> {
    fields
        .get_mut(list)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

fn daemon_set(spec: &mut Fields) {
    default(spec, "revisionHistoryLimit", 10);
    let strategy = child(spec, "updateStrategy");
    default(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        default(rolling, "maxUnavailable", 1);
        default(rolling, "maxSurge", 0);
    }
    template(spec);
}

fn job(spec: &mut Fields) {
    if spec.get("completions").is_none_or(Value::is_null)
        && spec.get("parallelism").is_none_or(Value::is_null)
    {
        default(spec, "completions", 1);
    }
    default(spec, "parallelism", 1);
    default(spec, "backoffLimit", 6);
    default(spec, "completionMode", "NonIndexed");
    default(spec, "suspend", false);
    default(spec, "manualSelector", false);
    default(spec, "podReplacementPolicy", "TerminatingOrFailed");
    template(spec);
}

fn template(spec: &mut Fields) {
    pod_spec(child(child(spec, "template"), "spec"));
}

/// Fills in the default values of a pod's or template's spec.
fn pod_spec(spec: &mut Fields) {
    default(spec, "restartPolicy", "Always");
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "schedulerName", "default-scheduler");
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "securityContext", Map::new());
    service_account(spec);
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["initContainers", "containers"] {
        each(spec, list).for_each(|fields| container(fields, host_network));
    }
    each(spec, "volumes").for_each(volume);
}

/// Gives the old and the new name of the service account field the same value. If they differ, the new name takes precedence.
fn service_account(spec: &mut Fields) {
    let name = spec
        .get("serviceAccountName")
        .or_else(|| spec.get("serviceAccount"))
        .filter(|name| name.as_str().is_some_and(|name| !name.is_empty()))
        .cloned();
    if let Some(name) = name {
        spec.insert("serviceAccountName".to_owned(), name.clone());
        spec.insert("serviceAccount".to_owned(), name);
    }
}

fn container(fields: &mut Fields, host_network: bool) {
    default(fields, "terminationMessagePath", "/dev/termination-log");
    default(fields, "terminationMessagePolicy", "File");
    let image = fields.get("image").and_then(Value::as_str).unwrap_or("");
    default(fields, "imagePullPolicy", pull_policy(image));
    default(fields, "resources", Map::new());
    for port in each(fields, "ports") {
        default(port, "protocol", "TCP");
        if let (true, Some(number)) = (host_network, port.get("containerPort").cloned()) {
            default(port, "hostPort", number);
        }
    }
    for variable in each(fields, "env") {
        if let Some(Value::Object(source)) = variable.get_mut("valueFrom")
            && let Some(Value::Object(reference)) = source.get_mut("fieldRef")
        {
            default(reference, "apiVersion", "v1");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(Value::Object(fields)) = fields.get_mut(name) {
            probe(fields);
        }
    }
}

/// Returns the default pull policy: `Always` for the tag `latest`, `IfNotPresent` for any other tag.
fn pull_policy(image: &str) -> &'static str {
    let last = image.rsplit('/').next().unwrap_or(image);
    let latest = !image.contains('@') && (!last.contains(':') || last.ends_with(":latest"));
    if latest { "Always" } else { "IfNotPresent" }
}

fn probe(fields: &mut Fields) {
    default(fields, "timeoutSeconds", 1);
    default(fields, "periodSeconds", 10);
    default(fields, "successThreshold", 1);
    default(fields, "failureThreshold", 3);
    if let Some(Value::Object(get)) = fields.get_mut("httpGet") {
        default(get, "path", "/");
        default(get, "scheme", "HTTP");
    }
    if let Some(Value::Object(grpc)) = fields.get_mut("grpc") {
        default(grpc, "service", "");
    }
}

fn volume(fields: &mut Fields) {
    if fields.keys().all(|key| key == "name") {
        fields.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(Value::Object(source)) = fields.get_mut(source) {
            default(source, "defaultMode", 0o644);
        }
    }
    if let Some(Value::Object(path)) = fields.get_mut("hostPath") {
        default(path, "type", "");
    }
    if let Some(Value::Object(projected)) = fields.get_mut("projected") {
        for source in each(projected, "sources") {
            if let Some(Value::Object(token)) = source.get_mut("serviceAccountToken") {
                default(token, "expirationSeconds", 3600);
            }
        }
    }
}

fn requests_from_limits(spec: &mut Fields) {
    for list in ["initContainers", "containers"] {
        for fields in each(spec, list) {
            let resources = child(fields, "resources");
            let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
                continue;
            };
            let requests = child(resources, "requests");
            for (name, quantity) in limits {
                default(requests, &name, quantity);
            }
        }
    }
}

/// Returns the quality-of-service class of a pod.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let containers = pod["spec"]["containers"].as_array();
    let (mut any, mut guaranteed) = (false, true);
    for container in containers.into_iter().flatten() {
        let resources = &container["resources"];
        for name in ["cpu", "memory"] {
            let (limit, request) = (&resources["limits"][name], &resources["requests"][name]);
            any |= !limit.is_null() || !request.is_null();
            guaranteed &= !limit.is_null() && limit == request;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn secret(object: &mut Value) {
    let strings = object.strings("/stringData");
    if !strings.is_empty() {
        let data = object.entry_object("data");
        for (key, text) in strings {
            let encoded = serde_json::to_value(k8s_openapi::ByteString(text.into_bytes()));
            data.insert(key, encoded.unwrap_or(Value::Null));
        }
    }
    object.set_or_remove("stringData", None);
    if let Value::Object(fields) = object {
        default(fields, "type", "Opaque");
    }
}

fn namespace(object: &mut Value) {
    let name = object.name().to_owned();
    child(object.metadata_mut(), "labels")
        .insert("kubernetes.io/metadata.name".to_owned(), name.into());
    default(
        object.entry_object("spec"),
        "finalizers",
        vec![Value::from("kubernetes")],
    );
}

fn service(spec: &mut Fields) {
    default(spec, "type", "ClusterIP");
    default(spec, "sessionAffinity", "None");
    default(spec, "clusterIP", "None");
    each(spec, "ports").for_each(|port| {
        default(port, "protocol", "TCP");
        if let Some(number) = port.get("port").cloned() {
            default(port, "targetPort", number);
        }
    });
}

/// Adds the fields of an Event that Kubernetes encodes even if they are empty.
fn event(object: &mut Value) {
    if let Value::Object(fields) = object {
        for field in ["reportingComponent", "reportingInstance"] {
            default(fields, field, "");
        }
        default(fields, "source", Map::new());
        for time in ["eventTime", "firstTimestamp", "lastTimestamp"] {
            fields.entry(time.to_owned()).or_insert(Value::Null);
        }
    }
}

/// Returns the initial status of a new object.
pub(crate) fn first_status(storage: Storage, object: &Value) -> Option<Value> {
    match storage {
        Storage::Pods => Some(json!({ "phase": "Pending", "qosClass": qos_class(object) })),
        Storage::DaemonSets => Some(json!({
            "currentNumberScheduled": 0,
            "desiredNumberScheduled": 0,
            "numberMisscheduled": 0,
            "numberReady": 0,
        })),
        Storage::Namespaces => Some(json!({ "phase": "Active" })),
        Storage::PodDisruptionBudgets => Some(json!({
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "disruptionsAllowed": 0,
            "expectedPods": 0,
        })),
        Storage::Services => Some(json!({ "loadBalancer": {} })),
        Storage::Jobs | Storage::ResourceQuotas => Some(json!({})),
        _ => None,
    }
}
