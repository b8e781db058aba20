//! What an API server fills into a pod template that does not say it, left out again.
//!
//! A native DaemonSet is stored with these defaults, an Advanced one as it was written, and either controller puts what is stored
//! into its revisions. Two templates that differ in nothing but defaults make the same pods: whoever turns one kind into the other
//! restarts nobody. (Kubernetes, `SetDefaults_PodSpec`, `SetDefaults_Container` and the like in `pkg/apis/core/v1/defaults.go`.)

use serde_json::{Map, Value, json};

type Fields = Map<String, Value>;

/// Takes out of a template what an API server would fill in.
pub(in crate::core) fn leave_out(template: &mut Value) {
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for (key, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("securityContext", json!({})),
        ("hostNetwork", json!(false)),
        ("hostPID", json!(false)),
        ("hostIPC", json!(false)),
    ] {
        drop_if(spec, key, &value);
    }
    // Two names of one field.
    let account = spec.get("serviceAccountName").cloned();
    match account {
        Some(_) => drop(spec.remove("serviceAccount")),
        None => {
            let old = spec.remove("serviceAccount");
            spec.extend(old.map(|name| ("serviceAccountName".to_owned(), name)));
        }
    }
    for list in ["initContainers", "containers"] {
        each(spec, list).for_each(|fields| container(fields, host_network));
    }
    each(spec, "volumes").for_each(volume);
}

fn container(fields: &mut Fields, host_network: bool) {
    let image = fields.get("image").and_then(Value::as_str).unwrap_or("");
    let policy = json!(pull_policy(image));
    drop_if(fields, "imagePullPolicy", &policy);
    drop_if(
        fields,
        "terminationMessagePath",
        &json!("/dev/termination-log"),
    );
    drop_if(fields, "terminationMessagePolicy", &json!("File"));
    for port in each(fields, "ports") {
        drop_if(port, "protocol", &json!("TCP"));
        if let Some(number) = port.get("containerPort").cloned().filter(|_| host_network) {
            drop_if(port, "hostPort", &number);
        }
    }
    for variable in each(fields, "env") {
        if let Some(reference) = at(variable, &["valueFrom", "fieldRef"]) {
            drop_if(reference, "apiVersion", &json!("v1"));
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = at(fields, &[name]) {
            drop_if(probe, "timeoutSeconds", &json!(1));
            drop_if(probe, "periodSeconds", &json!(10));
            drop_if(probe, "successThreshold", &json!(1));
            drop_if(probe, "failureThreshold", &json!(3));
            http_get(probe);
            if let Some(grpc) = at(probe, &["grpc"]) {
                drop_if(grpc, "service", &json!(""));
            }
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(handler) = at(fields, &["lifecycle", hook]) {
            http_get(handler);
        }
    }
}

fn http_get(handler: &mut Fields) {
    if let Some(get) = at(handler, &["httpGet"]) {
        drop_if(get, "path", &json!("/"));
        drop_if(get, "scheme", &json!("HTTP"));
    }
}

fn volume(fields: &mut Fields) {
    // One that says nothing is an `emptyDir`.
    if fields.get("emptyDir") == Some(&json!({})) {
        fields.remove("emptyDir");
    }
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = at(fields, &[source]) {
            drop_if(source, "defaultMode", &json!(0o644));
            each(source, "items").for_each(item);
        }
    }
    if let Some(path) = at(fields, &["hostPath"]) {
        drop_if(path, "type", &json!(""));
    }
    if let Some(projected) = at(fields, &["projected"]) {
        for source in each(projected, "sources") {
            if let Some(token) = at(source, &["serviceAccountToken"]) {
                drop_if(token, "expirationSeconds", &json!(3600));
            }
            if let Some(downward) = at(source, &["downwardAPI"]) {
                each(downward, "items").for_each(item);
            }
        }
    }
}

fn item(fields: &mut Fields) {
    if let Some(reference) = at(fields, &["fieldRef"]) {
        drop_if(reference, "apiVersion", &json!("v1"));
    }
}

/// What holds where a container does not say when its image is pulled: `latest` always, any other tag when it is missing.
fn pull_policy(image: &str) -> &'static str {
    let last = image.rsplit('/').next().unwrap_or(image);
    let is_latest = !image.contains('@') && (!last.contains(':') || last.ends_with(":latest"));
    match is_latest {
        true => "Always",
        false => "IfNotPresent",
    }
}

fn drop_if(fields: &mut Fields, key: &str, default: &Value) {
    if fields.get(key) == Some(default) {
        fields.remove(key);
    }
}

fn at<'a>(fields: &'a mut Fields, path: &[&str]) -> Option<&'a mut Fields> {
    let (first, rest) = path.split_first()?;
    let found = fields.get_mut(*first)?.as_object_mut()?;
    match rest.is_empty() {
        true => Some(found),
        false => at(found, rest),
    }
}

fn each<'a>(fields: &'a mut Fields, list: &str) -> impl Iterator<Item = &'a mut Fields> {
    let items = fields.get_mut(list).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}
