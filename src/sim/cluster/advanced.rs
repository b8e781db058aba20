//! Fields, defaults and validation of Advanced DaemonSets (`apps.kruise.io`), as a real API server derives them from the CRD.
//!
//! Each error message describes the valid values. Both API versions have the same fields, so objects are not converted between
//! them. The schema of the template contains only fields that are checked. All other fields of the template are kept as written,
//! without defaults.

use serde_json::{Value, json};

use super::object::{Object, default};
use super::selector::selects;
use super::shape::{Field, Shape, optional, required};
use super::status::StatusCause;
use crate::core::eligibility;
use crate::core::selector::{Selector, is_label_key, is_label_value};

const INT32: Shape = Shape::Number(i32::MIN as i64, i32::MAX as i64);
const COUNT: Shape = Shape::Number(0, i32::MAX as i64);
const INT64: Shape = Shape::Number(i64::MIN, i64::MAX);

const OBJECT: Shape = Shape::Fields(&[
    optional("apiVersion", Shape::Text),
    optional("kind", Shape::Text),
    optional("metadata", Shape::Anything),
    required("spec", SPEC),
    optional("status", STATUS),
]);

const SPEC: Shape = Shape::Fields(&[
    required("selector", SELECTOR),
    required("template", TEMPLATE),
    optional("updateStrategy", UPDATE_STRATEGY),
    optional("minReadySeconds", COUNT),
    optional("burstReplicas", Shape::NumberOrText(burst)),
    optional("revisionHistoryLimit", COUNT),
    optional("lifecycle", LIFECYCLE),
    optional(
        "scaleStrategy",
        Shape::Fields(&[optional("partitionedScaling", Shape::Flag)]),
    ),
]);

const SELECTOR: Shape = Shape::Fields(&[
    optional("matchLabels", LABELS),
    optional(
        "matchExpressions",
        Shape::List(
            0,
            &Shape::Fields(&[
                required("key", Shape::TextThat(label_key)),
                required(
                    "operator",
                    Shape::Word(&["In", "NotIn", "Exists", "DoesNotExist"]),
                ),
                optional("values", Shape::List(0, &LABEL_VALUE)),
            ]),
        ),
    ),
]);

const LABELS: Shape = Shape::Map(&LABEL_VALUE);
const LABEL_VALUE: Shape = Shape::TextThat(label_value);

const TEMPLATE: Shape = Shape::OpenFields(&[
    optional("metadata", Shape::OpenFields(&[optional("labels", LABELS)])),
    required("spec", POD),
]);

const POD: Shape = Shape::OpenFields(&[
    optional("restartPolicy", Shape::Text),
    optional("activeDeadlineSeconds", INT64),
    required(
        "containers",
        Shape::List(
            1,
            &Shape::OpenFields(&[
                required("name", Shape::TextThat(container_name)),
                required("image", Shape::TextThat(not_empty)),
            ]),
        ),
    ),
]);

const UPDATE_STRATEGY: Shape = Shape::Fields(&[
    optional("type", Shape::Word(&["RollingUpdate", "OnDelete"])),
    optional(
        "rollingUpdate",
        Shape::Fields(&[
            optional(
                "rollingUpdateType",
                Shape::Word(&["Standard", "InPlaceIfPossible", "Surging"]),
            ),
            optional("maxUnavailable", SHARE),
            optional("maxSurge", SHARE),
            optional("selector", SELECTOR),
            optional("partition", SHARE),
            optional("paused", Shape::Flag),
        ]),
    ),
]);

const SHARE: Shape = Shape::NumberOrText(share);

const LIFECYCLE: Shape = Shape::Fields(&[
    optional("preDelete", Shape::Fields(HOOK)),
    optional("inPlaceUpdate", Shape::Fields(HOOK)),
    optional("preNormal", Shape::Fields(HOOK)),
]);

const HOOK: &[Field] = &[
    optional("labelsHandler", Shape::Map(&Shape::Text)),
    optional("finalizersHandler", Shape::List(0, &Shape::Text)),
    optional("markPodNotReady", Shape::Flag),
];

const STATUS: Shape = Shape::Fields(&[
    required("currentNumberScheduled", INT32),
    required("numberMisscheduled", INT32),
    required("desiredNumberScheduled", INT32),
    required("numberReady", INT32),
    required("updatedNumberScheduled", INT32),
    optional("numberAvailable", INT32),
    optional("numberUnavailable", INT32),
    optional("observedGeneration", INT64),
    optional("collisionCount", INT32),
    optional("conditions", Shape::List(0, &CONDITION)),
    optional("updateRevision", Shape::Text),
    optional("daemonSetHash", Shape::Text),
]);

const CONDITION: Shape = Shape::Fields(&[
    required("type", Shape::Text),
    required("status", Shape::Text),
    optional("lastTransitionTime", Shape::TextThat(instant)),
    optional("reason", Shape::Text),
    optional("message", Shape::Text),
]);

fn label_key(text: &str) -> Option<&'static str> {
    (!is_label_key(text)).then_some("must be a valid label key, for example app or example.com/app")
}

fn label_value(text: &str) -> Option<&'static str> {
    (!is_label_value(text)).then_some(
        "must be a valid label value: at most 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends",
    )
}

fn container_name(text: &str) -> Option<&'static str> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fits = (1..=63).contains(&text.len())
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    (!fits).then_some("must be at most 63 small letters, digits and hyphens, for example web-1")
}

fn not_empty(text: &str) -> Option<&'static str> {
    text.is_empty().then_some("must be an image")
}

fn instant(text: &str) -> Option<&'static str> {
    let read = text.parse::<k8s_openapi::jiff::Timestamp>();
    read.err()
        .map(|_| "must be a time, for example 2026-01-01T00:00:00Z")
}

/// Returns the requirement that the value violates: it must be a number of nodes, or a percentage up to 100. `None` if it is valid.
fn share(value: &Value) -> Option<&'static str> {
    let fits = match amount(value) {
        Some((number, false)) => i32::try_from(number).is_ok(),
        Some((number, true)) => number <= 100,
        None => false,
    };
    (!fits).then_some(
        "must be a number of nodes, 0 or more, or a percentage from 0% to 100%, for example 5 or 10%",
    )
}

/// Returns the requirement that the value of `burstReplicas` violates; `None` if it is valid.
///
/// 0 is invalid, because the rollout would never progress and nothing would report the reason.
fn burst(value: &Value) -> Option<&'static str> {
    let fits = match amount(value) {
        Some((number, false)) => number >= 1 && i32::try_from(number).is_ok(),
        Some((number, true)) => (1..=9999).contains(&number),
        None => false,
    };
    (!fits).then_some(
        "must be a number of pods, at least 1, or a percentage, at least 1%, for example 250 or 10%; to stop a rollout, set \
         updateStrategy.rollingUpdate.paused to true",
    )
}

/// Parses a number or a percentage. The second value is true for a percentage.
fn amount(value: &Value) -> Option<(u64, bool)> {
    match value {
        Value::String(text) => {
            let digits = text.strip_suffix('%')?;
            let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            Some((digits.parse().ok().filter(|_| plain)?, true))
        }
        number => Some((number.as_u64()?, false)),
    }
}

/// Removes fields that the schema of the Advanced DaemonSet does not contain.
pub(super) fn prune(object: &mut Value) {
    OBJECT.prune(object);
}

/// Fills in the default values of an Advanced DaemonSet.
pub(super) fn fill(object: &mut Value) {
    let Some(Value::Object(spec)) = object.get_mut("spec") else {
        return;
    };
    default(spec, "burstReplicas", 250);
    default(spec, "revisionHistoryLimit", 10);
    default(spec, "updateStrategy", json!({}));
    let Some(Value::Object(strategy)) = spec.get_mut("updateStrategy") else {
        return;
    };
    default(strategy, "type", "RollingUpdate");
    default(strategy, "rollingUpdate", json!({}));
    if let Some(Value::Object(rolling)) = strategy.get_mut("rollingUpdate") {
        default(rolling, "rollingUpdateType", "Standard");
    }
}

/// Checks an object. `old` is the version that it replaces; parts that have not changed since `old` are not checked again.
pub(super) fn check(object: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    let mut found = Vec::new();
    let mut changed = object.clone();
    let is_same = |part: &str| old.is_some_and(|old| old.get(part) == object.get(part));
    if is_same("status") {
        changed.set_or_remove("status", None);
    }
    let has_new_spec = !is_same("spec");
    if has_new_spec {
        OBJECT.check(&changed, "", &mut found);
    } else if let Some(status) = changed.get("status") {
        STATUS.check(status, "status", &mut found);
    }
    // The following checks assume that all values have the right types.
    if found.is_empty() {
        distinct_conditions(&changed, &mut found);
        if has_new_spec {
            rules(&object["spec"], old.map(|old| &old["spec"]), &mut found);
        }
    }
    causes.append(&mut found);
}

fn distinct_conditions(object: &Value, causes: &mut Vec<StatusCause>) {
    let conditions = object["status"]["conditions"].as_array();
    let kinds: Vec<&Value> = conditions
        .into_iter()
        .flatten()
        .map(|condition| &condition["type"])
        .collect();
    for (at, kind) in kinds.iter().enumerate() {
        if kinds[..at].contains(kind) {
            let path = format!("status.conditions[{at}]");
            causes.push(StatusCause::duplicate(path, &json!({ "type": kind })));
        }
    }
}

fn rules(spec: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    let mut refuse = |field: &str, value: &Value, why: &str| {
        causes.push(StatusCause::invalid(format!("spec.{field}"), value, why));
    };
    let selector = &spec["selector"];
    if old.is_some_and(|old| old["selector"] != *selector) {
        refuse(
            "selector",
            selector,
            "is immutable: pods of the old selector would be orphaned; create a DaemonSet with another name, and delete this one",
        );
    }
    let nodes = "updateStrategy/rollingUpdate/selector";
    for path in ["selector", nodes] {
        let selector = spec.pointer(&format!("/{path}"));
        expressions(&path.replace('/', "."), selector, &mut refuse);
    }
    match Selector::from_json(selector) {
        Ok(selects) if selects.is_empty() => refuse(
            "selector",
            selector,
            "must have at least one label, because it would select every pod otherwise: set matchLabels to labels of \
             template.metadata.labels",
        ),
        Ok(wanted) if !selects(&wanted, &spec["template"]) => refuse(
            "template",
            &spec["template"]["metadata"]["labels"],
            "its labels must match the selector: change template.metadata.labels so that they meet all requirements of the \
             selector",
        ),
        // A selector that matches the template is valid. An unreadable selector was reported above.
        Ok(_) | Err(_) => {}
    }
    pods(&spec["template"]["spec"], &mut refuse);
    if let Err(flaw) = eligibility::template::check(&spec["template"]) {
        let field = format!("template.{}", flaw.path);
        refuse(&field, flaw.value, &format!("must be {}", flaw.expected));
    }
    let hook = &spec["lifecycle"]["inPlaceUpdate"];
    if !hook.is_null() {
        refuse(
            "lifecycle.inPlaceUpdate",
            hook,
            "is not called for pods of a DaemonSet: remove it; preDelete is called before a pod is deleted",
        );
    }
    rolling_update(&spec["updateStrategy"], &mut refuse);
}

/// Checks the requirements of a label selector.
fn expressions(path: &str, selector: Option<&Value>, refuse: &mut impl FnMut(&str, &Value, &str)) {
    let selector = selector.unwrap_or(&Value::Null);
    let labels = selector["matchLabels"].as_object();
    for why in labels
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| label_key(key))
    {
        refuse(
            &format!("{path}.matchLabels"),
            &selector["matchLabels"],
            why,
        );
    }
    let list = selector["matchExpressions"].as_array();
    for (at, one) in list.into_iter().flatten().enumerate() {
        let has_values = one["values"]
            .as_array()
            .is_some_and(|values| !values.is_empty());
        let why = match (one.text("/operator"), has_values) {
            ("In" | "NotIn", false) => {
                "operators In and NotIn need values: add at least one, or use Exists or DoesNotExist"
            }
            ("Exists" | "DoesNotExist", true) => {
                "operators Exists and DoesNotExist take no values: remove them, or use In or NotIn"
            }
            _ => continue,
        };
        refuse(&format!("{path}.matchExpressions[{at}]"), one, why);
    }
}

/// Checks the pod template. The restart policy has to be `Always`, because pods of a DaemonSet must never end.
fn pods(pod: &Value, refuse: &mut impl FnMut(&str, &Value, &str)) {
    if !matches!(pod.text("/restartPolicy"), "" | "Always") {
        refuse(
            "template.spec.restartPolicy",
            &pod["restartPolicy"],
            "must be Always, because pods of a DaemonSet never end: remove it",
        );
    }
    if !pod["activeDeadlineSeconds"].is_null() {
        refuse(
            "template.spec.activeDeadlineSeconds",
            &pod["activeDeadlineSeconds"],
            "must not be set, because pods of a DaemonSet never end: remove it",
        );
    }
    let containers = pod["containers"].as_array();
    let names = containers.into_iter().flatten().map(|one| &one["name"]);
    let names: Vec<&Value> = names.collect();
    let twice = names.iter().enumerate();
    if let Some((_, name)) = twice
        .into_iter()
        .find(|(at, name)| names[..*at].contains(name))
    {
        let why = "two containers have the same name: rename one of them";
        refuse("template.spec.containers", name, why);
    }
}

/// Checks the combination of the rollout settings if the update strategy is `RollingUpdate`.
fn rolling_update(strategy: &Value, refuse: &mut impl FnMut(&str, &Value, &str)) {
    let rolling = &strategy["rollingUpdate"];
    if strategy["type"] != "RollingUpdate" || rolling.is_null() {
        return;
    }
    let is_set = |field: &str| !rolling[field].is_null();
    let is_more = |field: &str| amount(&rolling[field]).is_some_and(|(number, _)| number > 0);
    let (unavailable, surge) = (is_more("maxUnavailable"), is_more("maxSurge"));
    let surging = rolling["rollingUpdateType"] == "Surging";
    // `Surging` without maxSurge is valid, because maxSurge then has a default.
    let has_budget = surging && !is_set("maxSurge");
    let why = if unavailable && surge {
        "maxUnavailable and maxSurge cannot both be more than 0: the new pod of a node starts either after or before the \
         deletion of the old one; remove one of them"
    } else if (is_set("maxUnavailable") || is_set("maxSurge"))
        && !(unavailable || surge || has_budget)
    {
        "maxUnavailable and maxSurge are both 0, so no pod could be replaced: set one of them to 1 or more; to stop a \
         rollout, set paused to true"
    } else if rolling["rollingUpdateType"] == "InPlaceIfPossible" && surge {
        "maxSurge is not supported for in-place updates: remove maxSurge, or set rollingUpdateType to Standard"
    } else if surging && unavailable {
        "Surging starts the new pod before the old one is deleted: remove maxUnavailable, or set rollingUpdateType to Standard"
    } else {
        return;
    };
    refuse("updateStrategy.rollingUpdate", rolling, why);
}
