//! Removal of the defaults that an API server adds to a pod template.
//!
//! A native DaemonSet is stored with these defaults, an Advanced DaemonSet without them. The controller of either kind copies the
//! stored form into its revisions. Two templates that differ only in defaults create the same pods. They count as equal, so a
//! conversion between the kinds restarts no pod.
//!
//! Values that the API server never stores (empty lists, `readOnly: false`) are also removed. Quantities are normalized (`0.5` is
//! `500m`). See `SetDefaults_PodSpec`, `SetDefaults_Container` and similar functions in `pkg/apis/core/v1/defaults.go`.

use serde_json::{Map, Value, json};

type Fields = Map<String, Value>;

/// Removes all values from a template that an API server would add by default.
pub(in crate::core) fn leave_out(template: &mut Value) {
    drop_empty(template);
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
    // `serviceAccount` is the deprecated name of `serviceAccountName`, and the API server sets both.
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
    for flag in ["tty", "stdin", "stdinOnce"] {
        drop_if(fields, flag, &json!(false));
    }
    if let Some(resources) = at(fields, &["resources"]) {
        quantities(resources);
    }
    for mount in each(fields, "volumeMounts") {
        drop_if(mount, "readOnly", &json!(false));
    }
    for port in each(fields, "ports") {
        drop_if(port, "protocol", &json!("TCP"));
        if let Some(number) = port.get("containerPort").cloned().filter(|_| host_network) {
            drop_if(port, "hostPort", &number);
        }
    }
    for variable in each(fields, "env") {
        drop_if(variable, "value", &json!(""));
        if let Some(source) = at(variable, &["valueFrom"]) {
            item(source);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = at(fields, &[name]) {
            drop_if(probe, "initialDelaySeconds", &json!(0));
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
    if let Some(limit) = at(fields, &["emptyDir"]).and_then(|source| source.get_mut("sizeLimit")) {
        quantity(limit);
    }
    if let Some(claim) = at(fields, &["persistentVolumeClaim"]) {
        drop_if(claim, "readOnly", &json!(false));
    }
    if let Some(claim) = at(fields, &["ephemeral", "volumeClaimTemplate", "spec"]) {
        drop_if(claim, "volumeMode", &json!("Filesystem"));
        if let Some(resources) = at(claim, &["resources"]) {
            quantities(resources);
        }
    }
    // An explicit empty `emptyDir` is the same as a volume without a source, so remove it.
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

/// Removes the defaults of a `fieldRef` or `resourceFieldRef`.
fn item(fields: &mut Fields) {
    if let Some(reference) = at(fields, &["fieldRef"]) {
        drop_if(reference, "apiVersion", &json!("v1"));
    }
    if let Some(reference) = at(fields, &["resourceFieldRef"]) {
        drop_if(reference, "divisor", &json!("0"));
        reference.get_mut("divisor").into_iter().for_each(quantity);
    }
}

/// Normalizes the quantities of `requests` and `limits`.
fn quantities(resources: &mut Fields) {
    for kind in ["requests", "limits"] {
        let amounts = at(resources, &[kind])
            .into_iter()
            .flat_map(Fields::values_mut);
        amounts.for_each(quantity);
    }
}

/// Converts a quantity to a number of billionths, so that `0.5` and `500m` are equal (Kubernetes, `resource.Quantity`). Other
/// values stay as they are.
fn quantity(amount: &mut Value) {
    let text = match amount {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    if let Some(billionths) = billionths(&text) {
        *amount = Value::String(billionths.to_string());
    }
}

fn billionths(text: &str) -> Option<i128> {
    const UNITS: [(&str, i128); 15] = [
        ("Ki", 1_000_000_000 << 10),
        ("Mi", 1_000_000_000 << 20),
        ("Gi", 1_000_000_000 << 30),
        ("Ti", 1_000_000_000 << 40),
        ("Pi", 1_000_000_000 << 50),
        ("Ei", 1_000_000_000 << 60),
        ("n", 1),
        ("u", 1_000),
        ("m", 1_000_000),
        ("k", 1_000_000_000_000),
        ("M", 1_000_000_000_000_000),
        ("G", 1_000_000_000_000_000_000),
        ("T", 1_000_000_000_000_000_000_000),
        ("P", 1_000_000_000_000_000_000_000_000),
        ("E", 1_000_000_000_000_000_000_000_000_000),
    ];
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
    let (digits, scale) = match unit {
        Some((unit, scale)) => (text.strip_suffix(unit)?, *scale),
        None => (text, 1_000_000_000),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !(is_number(whole) && is_number(part))
        || whole.is_empty() && part.is_empty()
        || part.len() > 9
    {
        return None;
    }
    let number = |text: &str| match text {
        "" => Some(0),
        text => text.parse::<i128>().ok(),
    };
    let tenths = 10_i128.pow(u32::try_from(part.len()).ok()?);
    let all = number(whole)?
        .checked_mul(tenths)?
        .checked_add(number(part)?)?;
    let scaled = all.checked_mul(scale)?;
    (scaled % tenths == 0).then_some(scaled / tenths)
}

/// Fields of a pod template that map keys to strings or quantities.
const MAPS: [&str; 9] = [
    "annotations",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "options",
    "overhead",
    "requests",
    "volumeAttributes",
];

/// Removes empty lists and empty maps. In a pod, an empty list means the same as a missing one, and Kubernetes doesn't store empty
/// maps.
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty);
            fields.retain(|key, value| match value {
                Value::Array(items) => !items.is_empty(),
                Value::Object(entries) => !(entries.is_empty() && MAPS.contains(&key.as_str())),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// Returns the default pull policy of a container: `Always` for `latest`, `IfNotPresent` for any other tag.
fn pull_policy(image: &str) -> &'static str {
    let last = image.rsplit('/').next().unwrap_or(image);
    let is_latest = !image.contains('@') && (!last.contains(':') || last.ends_with(":latest"));
    if is_latest { "Always" } else { "IfNotPresent" }
}

fn drop_if(fields: &mut Fields, key: &str, default: &Value) {
    if fields.get(key) == Some(default) {
        fields.remove(key);
    }
}

fn at<'a>(fields: &'a mut Fields, path: &[&str]) -> Option<&'a mut Fields> {
    let (first, rest) = path.split_first()?;
    let found = fields.get_mut(*first)?.as_object_mut()?;
    if rest.is_empty() {
        Some(found)
    } else {
        at(found, rest)
    }
}

fn each<'a>(fields: &'a mut Fields, list: &str) -> impl Iterator<Item = &'a mut Fields> {
    let items = fields.get_mut(list).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_has_one_value_in_every_notation() {
        for (one, other) in [
            ("0.5", "500m"),
            ("1", "1000m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1M", "1000k"),
            ("0", "0m"),
            (".5", "500m"),
        ] {
            assert_eq!(billionths(one), billionths(other), "{one} {other}");
            assert!(billionths(one).is_some(), "{one}");
        }
        assert_ne!(billionths("1M"), billionths("1Mi"));
        for text in ["", "m", "1e3", "-1", "x", "1.2.3", "0.0000000001"] {
            assert_eq!(billionths(text), None, "{text}");
        }
    }

    #[test]
    fn fields_with_default_values_are_left_out() {
        let left = |mut template: Value| {
            leave_out(&mut template);
            template
        };
        let written = json!({ "metadata": { "annotations": {}, "labels": {}, "finalizers": [] }, "spec": {
            "nodeSelector": {}, "overhead": {}, "tolerations": [],
            "containers": [{
                "name": "a", "image": "a:1", "args": [], "env": [{ "name": "E", "value": "" }], "tty": false, "stdin": false,
                "resources": { "limits": { "cpu": 0.5, "memory": "1024Mi" }, "requests": { "cpu": 1 } },
                "volumeMounts": [{ "name": "v", "mountPath": "/v", "readOnly": false }],
                "readinessProbe": { "initialDelaySeconds": 0, "exec": { "command": ["true"] } },
            }],
        } });
        let kept = json!({ "metadata": {}, "spec": {
            "containers": [{
                "name": "a", "image": "a:1", "env": [{ "name": "E" }],
                "resources": { "limits": { "cpu": "500m", "memory": "1Gi" }, "requests": { "cpu": "1" } },
                "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
                "readinessProbe": { "exec": { "command": ["true"] } },
            }],
        } });
        assert_eq!(left(written), left(kept));
        // These values look empty, but mean something else than the defaults.
        for spec in [
            json!({ "enableServiceLinks": false }),
            json!({ "containers": [{ "securityContext": { "runAsUser": 0 } }] }),
            json!({ "containers": [{ "securityContext": { "allowPrivilegeEscalation": false } }] }),
        ] {
            let template = json!({ "spec": spec });
            assert_eq!(left(template.clone()), template);
        }
    }
}
