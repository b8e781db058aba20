//! Tables for `kubectl get`: columns for each kind, and one row per object.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::object::Object;
use super::resources::{Resource, Storage};

struct Column {
    name: &'static str,
    kind: &'static str,
    wide: bool,
    cell: fn(&Value) -> Value,
}

const fn column(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column {
        name,
        kind: "string",
        wide: false,
        cell,
    }
}

const fn number(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column {
        name,
        kind: "integer",
        wide: false,
        cell,
    }
}

const fn wide(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column {
        name,
        kind: "string",
        wide: true,
        cell,
    }
}

/// Column with the creation time, which kubectl shows as an age.
const AGE: Column = Column {
    name: "Age",
    kind: "date",
    wide: false,
    cell: |object| object["metadata"]["creationTimestamp"].clone(),
};

const NAME: Column = column("Name", |object| object.name().into());

const PODS: &[Column] = &[
    NAME,
    column("Ready", pod_ready),
    column("Status", pod_status),
    number("Restarts", pod_restarts),
    AGE,
    wide("IP", |pod| or_none(pod.text("/status/podIP"))),
    wide("Node", |pod| or_none(pod.text("/spec/nodeName"))),
    wide("Nominated Node", |pod| {
        or_none(pod.text("/status/nominatedNodeName"))
    }),
    wide("Readiness Gates", |_| or_none("")),
];

const NODES: &[Column] = &[
    NAME,
    column("Status", node_status),
    column("Roles", node_roles),
    AGE,
    column("Version", |node| {
        node.text("/status/nodeInfo/kubeletVersion").into()
    }),
    wide("Internal-IP", node_address),
];

const DAEMON_SETS: &[Column] = &[
    NAME,
    number("Desired", |ds| count(ds, "desiredNumberScheduled")),
    number("Current", |ds| count(ds, "currentNumberScheduled")),
    number("Ready", |ds| count(ds, "numberReady")),
    number("Up-to-date", |ds| count(ds, "updatedNumberScheduled")),
    number("Available", |ds| count(ds, "numberAvailable")),
    column("Node Selector", |ds| {
        pairs(&ds["spec"]["template"]["spec"]["nodeSelector"])
    }),
    AGE,
    wide("Containers", |ds| containers(ds, "name")),
    wide("Images", |ds| containers(ds, "image")),
    wide("Selector", |ds| {
        pairs(&ds["spec"]["selector"]["matchLabels"])
    }),
];

/// Columns from the CRD of the Advanced DaemonSet. If a field is a list, the column shows only the first entry, as on a real API
/// server.
const ADVANCED_DAEMON_SETS: &[Column] = &[
    NAME,
    number("DESIRED", |ds| {
        ds["status"]["desiredNumberScheduled"].clone()
    }),
    number("CURRENT", |ds| {
        ds["status"]["currentNumberScheduled"].clone()
    }),
    number("READY", |ds| ds["status"]["numberReady"].clone()),
    number("UP-TO-DATE", |ds| {
        ds["status"]["updatedNumberScheduled"].clone()
    }),
    number("AVAILABLE", |ds| ds["status"]["numberAvailable"].clone()),
    Column { name: "AGE", ..AGE },
    wide("CONTAINERS", |ds| {
        ds["spec"]["template"]["spec"]["containers"][0]["name"].clone()
    }),
    wide("IMAGES", |ds| {
        ds["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    }),
];

const JOBS: &[Column] = &[
    NAME,
    column("Status", job_status),
    column("Completions", |job| {
        format!(
            "{}/{}",
            count(job, "succeeded"),
            job["spec"]["completions"].as_i64().unwrap_or(1)
        )
        .into()
    }),
    column("Duration", job_duration),
    AGE,
    wide("Containers", |job| containers(job, "name")),
    wide("Images", |job| containers(job, "image")),
];

const EVENTS: &[Column] = &[
    Column {
        name: "Last Seen",
        kind: "date",
        wide: false,
        cell: event_last_seen,
    },
    column("Type", |event| event["type"].clone()),
    column("Reason", |event| event["reason"].clone()),
    column("Object", |event| {
        let object = &event["involvedObject"];
        format!(
            "{}/{}",
            object.text("/kind").to_lowercase(),
            object.text("/name")
        )
        .into()
    }),
    column("Message", |event| event.text("/message").trim().into()),
    wide("Name", |event| event.name().into()),
];

const LEASES: &[Column] = &[
    NAME,
    column("Holder", |lease| lease.text("/spec/holderIdentity").into()),
    AGE,
];

const CONTROLLER_REVISIONS: &[Column] = &[
    NAME,
    column("Controller", |revision| {
        let owners = revision["metadata"]["ownerReferences"].as_array();
        let owner = owners
            .into_iter()
            .flatten()
            .find(|owner| owner["controller"] == true);
        let Some(owner) = owner else {
            return or_none("");
        };
        let group = owner.text("/apiVersion").split('/').next().unwrap_or("");
        format!(
            "{}.{group}/{}",
            owner.text("/kind").to_lowercase(),
            owner.text("/name")
        )
        .into()
    }),
    number("Revision", |revision| {
        revision["revision"].as_i64().unwrap_or(0).into()
    }),
    AGE,
];

const NAMESPACES: &[Column] = &[
    NAME,
    column("Status", |namespace| namespace.text("/status/phase").into()),
    AGE,
];

const DISRUPTION_BUDGETS: &[Column] = &[
    NAME,
    column("Min Available", |budget| {
        or_not_set(&budget["spec"]["minAvailable"])
    }),
    column("Max Unavailable", |budget| {
        or_not_set(&budget["spec"]["maxUnavailable"])
    }),
    number("Allowed Disruptions", |budget| {
        count(budget, "disruptionsAllowed")
    }),
    AGE,
];

const QUOTAS: &[Column] = &[
    NAME,
    column("Request", |quota| {
        let (hard, used) = (&quota["status"]["hard"], &quota["status"]["used"]);
        let parts: Vec<String> = hard
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, limit)| {
                let used = used[name].as_str().unwrap_or("0");
                format!("{name}: {used}/{}", limit.as_str().unwrap_or(""))
            })
            .collect();
        parts.join(", ").into()
    }),
    column("Limit", |_| "".into()),
    AGE,
];

const CONFIG_MAPS: &[Column] = &[NAME, number("Data", entries), AGE];

const SECRETS: &[Column] = &[
    NAME,
    column("Type", |secret| secret["type"].clone()),
    number("Data", entries),
    AGE,
];

const SERVICES: &[Column] = &[
    NAME,
    column("Type", |service| service.text("/spec/type").into()),
    column("Cluster-IP", |service| {
        service.text("/spec/clusterIP").into()
    }),
    AGE,
];

const OTHERS: &[Column] = &[NAME, AGE];

fn columns(resource: &Resource) -> &'static [Column] {
    match resource.storage {
        Storage::Pods => PODS,
        Storage::Nodes => NODES,
        Storage::DaemonSets => DAEMON_SETS,
        Storage::AdvancedDaemonSets => ADVANCED_DAEMON_SETS,
        Storage::Jobs => JOBS,
        Storage::Events => EVENTS,
        Storage::Leases => LEASES,
        Storage::ControllerRevisions => CONTROLLER_REVISIONS,
        Storage::Namespaces => NAMESPACES,
        Storage::PodDisruptionBudgets => DISRUPTION_BUDGETS,
        Storage::ResourceQuotas => QUOTAS,
        Storage::ConfigMaps => CONFIG_MAPS,
        Storage::Secrets => SECRETS,
        Storage::Services => SERVICES,
        _ => OTHERS,
    }
}

/// Returns a Table object with a row for each object.
///
/// `metadata` is the metadata of the list, if the objects are from a list. Ages are relative to `now`. `included` determines the
/// object data in each row.
pub(crate) fn render(
    resource: &Resource,
    objects: &[&Value],
    metadata: Option<&Value>,
    now: Timestamp,
    included: impl Fn(&Value) -> Value,
) -> Value {
    let columns = columns(resource);
    let definitions: Vec<Value> = columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name,
                "type": if column.kind == "date" && !resource.custom { "string" } else { column.kind },
                "format": if column.name == "Name" { "name" } else { "" },
                "description": "",
                "priority": i32::from(column.wide),
            })
        })
        .collect();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| row(columns, object, now, included(object)))
        .collect();
    let own = objects
        .first()
        .map(|object| json!({ "resourceVersion": object["metadata"]["resourceVersion"] }));
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata.cloned().or(own).unwrap_or_else(|| json!({})),
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

fn row(columns: &[Column], object: &Value, now: Timestamp, included: Value) -> Value {
    let cells: Vec<Value> = columns
        .iter()
        .map(|column| match (column.kind, (column.cell)(object)) {
            ("date", instant) => age(instant.as_str().unwrap_or(""), now).into(),
            (_, cell) => cell,
        })
        .collect();
    json!({ "cells": cells, "object": included })
}

/// Formats an age like kubectl, with one or two units.
fn age(instant: &str, now: Timestamp) -> String {
    let Ok(instant) = instant.parse::<Timestamp>() else {
        return "<unknown>".to_owned();
    };
    let seconds = now.duration_since(instant).as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / (24 * 365));
    let two = |large: i64, unit: char, small: i64, part: char| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{part}"),
    };
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, 'd', hours % 24, 'h'),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => two(years, 'y', days % 365, 'd'),
        () => format!("{years}y"),
    }
}

fn or_none(text: &str) -> Value {
    if text.is_empty() { "<none>" } else { text }.into()
}

fn or_not_set(value: &Value) -> Value {
    match value {
        Value::Null => "N/A".into(),
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    }
}

fn count(object: &Value, field: &str) -> Value {
    object["status"][field].as_i64().unwrap_or(0).into()
}

fn entries(object: &Value) -> Value {
    let of = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
    (of("data") + of("binaryData")).into()
}

fn pairs(map: &Value) -> Value {
    let pairs: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
        .collect();
    or_none(&pairs.join(","))
}

fn containers(object: &Value, field: &str) -> Value {
    let list = object["spec"]["template"]["spec"]["containers"].as_array();
    let names: Vec<&str> = list
        .into_iter()
        .flatten()
        .filter_map(|container| container[field].as_str())
        .collect();
    names.join(",").into()
}

fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["status"]["containerStatuses"]
        .as_array()
        .into_iter()
        .flatten()
}

fn pod_ready(pod: &Value) -> Value {
    let all = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    let ready = statuses(pod)
        .filter(|status| status["ready"] == true)
        .count();
    format!("{ready}/{all}").into()
}

fn pod_restarts(pod: &Value) -> Value {
    statuses(pod)
        .filter_map(|status| status["restartCount"].as_i64())
        .sum::<i64>()
        .into()
}

/// Returns the status that `kubectl get` shows for a pod: the most specific one of its phase, its reason and its container states.
fn pod_status(pod: &Value) -> Value {
    let mut reason = match pod.text("/status/reason") {
        "" => pod.text("/status/phase"),
        reason => reason,
    };
    let mut running_and_ready = false;
    for status in statuses(pod) {
        let waiting = status.text("/state/waiting/reason");
        let terminated = status.text("/state/terminated/reason");
        if !waiting.is_empty() {
            reason = waiting;
        } else if !terminated.is_empty() {
            reason = terminated;
        } else if status["ready"] == true {
            running_and_ready = true;
        }
    }
    if reason == "Completed" && running_and_ready {
        reason = "Running";
    }
    if pod.is_terminating() {
        reason = match pod.text("/status/reason") {
            "NodeLost" => "Unknown",
            _ if matches!(pod.text("/status/phase"), "Failed" | "Succeeded") => reason,
            _ => "Terminating",
        };
    }
    reason.into()
}

fn node_status(node: &Value) -> Value {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Ready");
    let mut words = vec![match ready.map(|condition| condition.text("/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if node["spec"]["unschedulable"] == true {
        words.push("SchedulingDisabled");
    }
    words.join(",").into()
}

fn node_roles(node: &Value) -> Value {
    const PREFIX: &str = "node-role.kubernetes.io/";
    let labels = node.strings("/metadata/labels");
    let roles: Vec<&str> = labels
        .keys()
        .filter_map(|label| label.strip_prefix(PREFIX))
        .collect();
    or_none(&roles.join(","))
}

fn node_address(node: &Value) -> Value {
    let addresses = node["status"]["addresses"].as_array();
    let address = addresses
        .into_iter()
        .flatten()
        .find(|address| address["type"] == "InternalIP");
    or_none(address.map_or("", |address| address.text("/address")))
}

fn job_status(job: &Value) -> Value {
    let conditions = job["status"]["conditions"].as_array();
    let holds = |kind: &str| {
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    let word = if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if job.is_terminating() {
        "Terminating"
    } else if holds("Suspended") {
        "Suspended"
    } else {
        "Running"
    };
    word.into()
}

fn job_duration(job: &Value) -> Value {
    let instant = |pointer: &str| job.text(pointer).parse::<Timestamp>().ok();
    let (start, end) = (
        instant("/status/startTime"),
        instant("/status/completionTime"),
    );
    match (start, end) {
        (Some(start), Some(end)) => format!("{}s", end.duration_since(start).as_secs()).into(),
        _ => "".into(),
    }
}

fn event_last_seen(event: &Value) -> Value {
    let times = [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/eventTime",
        "/firstTimestamp",
        "/metadata/creationTimestamp",
    ];
    let seen = times.into_iter().map(|time| event.text(time));
    seen.into_iter()
        .find(|time| !time.is_empty())
        .unwrap_or("")
        .into()
}
