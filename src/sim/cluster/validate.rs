//! Validation of decoded objects: missing, malformed or immutable fields.

use serde_json::Value;

use super::advanced;
use super::object::Object;
use super::request::Target;
use super::resources::{Resource, Storage};
use super::selector::{check_label_key, check_label_value, selects};
use super::status::{ApiFailure, StatusCause};
use crate::core::selector::Selector;

/// Checks an object. `old` is the version that it replaces, if there is one.
///
/// # Errors
///
/// Returns a 422 with a cause for every invalid field.
pub(crate) fn check(
    target: &Target,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), ApiFailure> {
    let mut causes = Vec::new();
    if old.is_none() {
        name(target.resource, object, &mut causes);
    }
    labels_and_annotations(object, &mut causes);
    owners(object, &mut causes);
    finalizers(target.resource, object, &mut causes);
    if let Some(old) = old.filter(|old| old.is_terminating()) {
        new_finalizers(object, old, &mut causes);
    }
    match target.resource.storage {
        Storage::Pods => pod(object, old, &mut causes),
        Storage::DaemonSets => daemon_set(object, old, &mut causes),
        Storage::AdvancedDaemonSets => advanced::check(object, old, &mut causes),
        Storage::Jobs => job(object, old, &mut causes),
        Storage::ControllerRevisions => controller_revision(object, old, &mut causes),
        Storage::Nodes => node(object, &mut causes),
        Storage::ConfigMaps | Storage::Secrets => immutable_data(object, old, &mut causes),
        Storage::PodDisruptionBudgets => disruption_budget(object, &mut causes),
        Storage::Leases => lease(object, &mut causes),
        Storage::Events => event(target.resource, object, old, &mut causes),
        _ => {}
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiFailure::invalid(
        target.resource.group,
        target.resource.kind,
        object.name(),
        &causes,
    ))
}

/// Returns true for kinds whose names must be DNS labels. Such names are shorter than other names and have no dots.
fn is_label_name(storage: Storage) -> bool {
    matches!(storage, Storage::Namespaces | Storage::Services)
}

fn name(resource: &Resource, object: &Value, causes: &mut Vec<StatusCause>) {
    let name = object.name();
    let limit = if is_label_name(resource.storage) {
        63
    } else {
        253
    };
    let words: Box<dyn Iterator<Item = &str>> = if is_label_name(resource.storage) {
        Box::new(std::iter::once(name))
    } else {
        Box::new(name.split('.'))
    };
    if name.len() > limit || !words.into_iter().all(is_dns_label) {
        let rule = if is_label_name(resource.storage) {
            LABEL_RULE
        } else {
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character"
        };
        causes.push(StatusCause::invalid("metadata.name", &name.into(), rule));
    }
}

const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                          must start and end with an alphanumeric character";

fn is_dns_label(word: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !word.is_empty() && word.chars().all(inner) && !word.starts_with('-') && !word.ends_with('-')
}

fn labels_and_annotations(object: &Value, causes: &mut Vec<StatusCause>) {
    labels("metadata.labels", &object["metadata"]["labels"], causes);
    let Some(annotations) = object["metadata"]["annotations"].as_object() else {
        return;
    };
    for key in annotations.keys() {
        if let Err(why) = check_label_key(&key.to_lowercase()) {
            causes.push(StatusCause::invalid(
                "metadata.annotations",
                &key.as_str().into(),
                &why,
            ));
        }
    }
    let size: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    const LIMIT: usize = 256 * 1024;
    if size > LIMIT {
        causes.push(StatusCause {
            reason: "FieldValueTooLong",
            field: "metadata.annotations".to_owned(),
            message: format!("Too long: may not be more than {LIMIT} bytes"),
        });
    }
}

/// Checks that every owner reference has a name and a UID, and that at most one has `controller: true`.
fn owners(object: &Value, causes: &mut Vec<StatusCause>) {
    let field = "metadata.ownerReferences";
    let Some(owners) = object["metadata"]["ownerReferences"].as_array() else {
        return;
    };
    for owner in owners {
        for part in ["name", "uid"] {
            if owner[part].as_str().is_none_or(str::is_empty) {
                let field = format!("{field}.{part}");
                causes.push(StatusCause::invalid(field, &"".into(), "must not be empty"));
            }
        }
    }
    let controllers = owners.iter().filter(|owner| owner["controller"] == true);
    let named = |owner: &Value| format!("{}/{}", owner.text("/kind"), owner.text("/name"));
    let controllers: Vec<String> = controllers.map(named).collect();
    if let [first, second, ..] = &controllers[..] {
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        let owners = &object["metadata"]["ownerReferences"];
        causes.push(StatusCause::invalid(field, owners, &detail));
    }
}

/// Checks that finalizers are qualified names. In the core group, finalizers other than those of Kubernetes must also have a
/// domain.
fn finalizers(resource: &Resource, object: &Value, causes: &mut Vec<StatusCause>) {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    for finalizer in object.finalizers() {
        let wrong = match check_label_key(finalizer) {
            Err(why) => Some(why),
            Ok(()) if STANDARD.contains(&finalizer) || finalizer.contains('/') => None,
            Ok(()) if !resource.group.is_empty() => None,
            Ok(()) => {
                Some("name is neither a standard finalizer name nor is it fully qualified".into())
            }
        };
        if let Some(why) = wrong {
            let field = "metadata.finalizers";
            causes.push(StatusCause::invalid(field, &finalizer.into(), &why));
        }
    }
}

/// Checks that no finalizers are added to an object that is being deleted.
fn new_finalizers(object: &Value, old: &Value, causes: &mut Vec<StatusCause>) {
    let known = old.finalizers();
    let new = object.finalizers().into_iter();
    let new: Vec<&str> = new.filter(|one| !known.contains(one)).collect();
    if !new.is_empty() {
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            new.iter()
                .map(|one| format!("{one:?}"))
                .collect::<Vec<_>>()
                .join(", ")
        );
        causes.push(StatusCause::forbidden("metadata.finalizers", &detail));
    }
}

fn labels(field: &str, labels: &Value, causes: &mut Vec<StatusCause>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        if let Err(why) = check_label_key(key) {
            causes.push(StatusCause::invalid(field, &key.as_str().into(), &why));
        }
        if let Err(why) = check_label_value(value.as_str().unwrap_or("")) {
            causes.push(StatusCause::invalid(field, value, &why));
        }
    }
}

fn daemon_set(object: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    let spec = &object["spec"];
    if let Some(old) = old
        && old["spec"]["selector"] != spec["selector"]
    {
        causes.push(StatusCause::invalid(
            "spec.selector",
            &spec["selector"],
            "field is immutable",
        ));
    }
    selector_and_template(spec, causes);
    not_negative(spec, "minReadySeconds", causes);
    not_negative(spec, "revisionHistoryLimit", causes);
    if spec.text("/template/spec/restartPolicy") != "Always" {
        causes.push(StatusCause::unsupported(
            "spec.template.spec.restartPolicy",
            &spec["template"]["spec"]["restartPolicy"],
            &["Always"],
        ));
    }
    let strategy = &spec["updateStrategy"];
    match strategy.text("/type") {
        "OnDelete" => {}
        "RollingUpdate" => rolling_update(&strategy["rollingUpdate"], causes),
        _ => causes.push(StatusCause::unsupported(
            "spec.updateStrategy",
            &strategy["type"],
            &["RollingUpdate", "OnDelete"],
        )),
    }
}

fn rolling_update(rolling: &Value, causes: &mut Vec<StatusCause>) {
    let mut zero = Vec::new();
    for field in ["maxUnavailable", "maxSurge"] {
        let path = format!("spec.updateStrategy.rollingUpdate.{field}");
        let value = &rolling[field];
        let number = match value {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.strip_suffix('%').and_then(|text| text.parse().ok()),
            _ => Some(0),
        };
        match number {
            None => causes.push(StatusCause::invalid(
                path,
                value,
                "a valid percent string must be a numeric string followed by an ending '%'",
            )),
            Some(number) if number < 0 => {
                causes.push(StatusCause::invalid(
                    path,
                    value,
                    "must be greater than or equal to 0",
                ));
            }
            Some(number) if number > 100 && value.is_string() => {
                causes.push(StatusCause::invalid(
                    path,
                    value,
                    "must not be greater than 100%",
                ));
            }
            Some(0) => zero.push(path),
            Some(_) => {}
        }
    }
    if let [unavailable, _] = zero.as_slice() {
        causes.push(StatusCause::invalid(
            unavailable.clone(),
            &rolling["maxUnavailable"],
            "cannot be 0 when maxSurge is 0",
        ));
    } else if zero.is_empty() && !rolling["maxSurge"].is_null() {
        causes.push(StatusCause::invalid(
            "spec.updateStrategy.rollingUpdate.maxSurge",
            &rolling["maxSurge"],
            "may not be set when maxUnavailable is non-zero",
        ));
    }
}

/// Parses a label selector. A missing selector selects everything.
fn label_selector(selector: &Value) -> Result<Selector, String> {
    match selector {
        Value::Null => Ok(Selector::default()),
        selector => Selector::from_json(selector).map_err(|why| why.to_string()),
    }
}

fn selector_and_template(spec: &Value, causes: &mut Vec<StatusCause>) {
    let selector = label_selector(&spec["selector"]);
    match selector {
        Err(why) => causes.push(StatusCause::invalid(
            "spec.selector",
            &spec["selector"],
            &why,
        )),
        Ok(selector) if selector.is_empty() => {
            causes.push(StatusCause::invalid(
                "spec.selector",
                &spec["selector"],
                "empty selector is invalid for daemonset",
            ));
        }
        Ok(selector) if !selects(&selector, &spec["template"]) => {
            causes.push(StatusCause::invalid(
                "spec.template.metadata.labels",
                &spec["template"]["metadata"]["labels"],
                "`selector` does not match template `labels`",
            ))
        }
        Ok(_) => {}
    }
    labels(
        "spec.template.metadata.labels",
        &spec["template"]["metadata"]["labels"],
        causes,
    );
    pod_spec("spec.template.spec", &spec["template"]["spec"], causes);
}

fn pod_spec(path: &str, spec: &Value, causes: &mut Vec<StatusCause>) {
    let containers = spec["containers"].as_array();
    if containers.is_none_or(Vec::is_empty) {
        causes.push(StatusCause::required(format!("{path}.containers"), ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for list in ["initContainers", "containers"] {
        for (at, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let path = format!("{path}.{list}[{at}]");
            let name = container.text("/name");
            if name.is_empty() {
                causes.push(StatusCause::required(format!("{path}.name"), ""));
            } else if name.len() > 63 || !is_dns_label(name) {
                causes.push(StatusCause::invalid(
                    format!("{path}.name"),
                    &name.into(),
                    LABEL_RULE,
                ));
            } else if names.contains(&name) {
                causes.push(StatusCause::duplicate(format!("{path}.name"), &name.into()));
            }
            names.push(name);
            if container.text("/image").trim() != container.text("/image") {
                causes.push(StatusCause::invalid(
                    format!("{path}.image"),
                    &container["image"],
                    "must not have leading or trailing whitespace",
                ));
            }
            if container.text("/image").is_empty() {
                causes.push(StatusCause::required(format!("{path}.image"), ""));
            }
            let policy = &container["imagePullPolicy"];
            const POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
            if !POLICIES.contains(&policy.as_str().unwrap_or("")) {
                causes.push(StatusCause::unsupported(
                    format!("{path}.imagePullPolicy"),
                    policy,
                    POLICIES,
                ));
            }
            ports_and_variables(&path, container, causes);
            mounts(&path, container, spec, causes);
        }
    }
    const RESTART: &[&str] = &["Always", "OnFailure", "Never"];
    if !RESTART.contains(&spec.text("/restartPolicy")) {
        causes.push(StatusCause::unsupported(
            format!("{path}.restartPolicy"),
            &spec["restartPolicy"],
            RESTART,
        ));
    }
}

fn ports_and_variables(path: &str, container: &Value, causes: &mut Vec<StatusCause>) {
    let each = |list: &str| container[list].as_array().cloned().unwrap_or_default();
    for (at, port) in each("ports").iter().enumerate() {
        let field = format!("{path}.ports[{at}].containerPort");
        match port["containerPort"].as_i64() {
            None | Some(0) => causes.push(StatusCause::required(field, "")),
            Some(1..=65535) => {}
            Some(_) => causes.push(StatusCause::invalid(
                field,
                &port["containerPort"],
                "must be between 1 and 65535, inclusive",
            )),
        }
    }
    for (at, variable) in each("env").iter().enumerate() {
        if variable.text("/name").is_empty() {
            causes.push(StatusCause::required(format!("{path}.env[{at}].name"), ""));
        }
    }
}

fn mounts(path: &str, container: &Value, spec: &Value, causes: &mut Vec<StatusCause>) {
    let mounts = container["volumeMounts"].as_array();
    for (at, mount) in mounts.into_iter().flatten().enumerate() {
        let known = spec["volumes"]
            .as_array()
            .is_some_and(|volumes| volumes.iter().any(|volume| volume["name"] == mount["name"]));
        if !known {
            causes.push(StatusCause {
                reason: "FieldValueNotFound",
                field: format!("{path}.volumeMounts[{at}].name"),
                message: format!("Not found: {}", mount["name"]),
            });
        }
    }
}

/// Checks a pod. In the spec of an existing pod, only images, `activeDeadlineSeconds` and `schedulingGates` may change, and
/// tolerations may be added.
fn pod(object: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    let Some(old) = old else {
        pod_spec("spec", &object["spec"], causes);
        return;
    };
    if old["spec"] == object["spec"] {
        return;
    }
    pod_spec("spec", &object["spec"], causes);
    let number = |pod: &Value, list: &str| pod["spec"][list].as_array().map_or(0, Vec::len);
    if number(old, "containers") != number(object, "containers") {
        causes.push(StatusCause::forbidden(
            "spec.containers",
            "pod updates may not add or remove containers",
        ));
        return;
    }
    let mut allowed = old["spec"].clone();
    for list in ["containers", "initContainers"] {
        let news = object["spec"][list].as_array();
        let olds = allowed.get_mut(list).and_then(Value::as_array_mut);
        for (old, new) in olds.into_iter().flatten().zip(news.into_iter().flatten()) {
            old["image"] = new["image"].clone();
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        allowed.set_or_remove(field, object["spec"].get(field).cloned());
    }
    let additions_only = old["spec"]["tolerations"]
        .as_array()
        .into_iter()
        .flatten()
        .all(|toleration| {
            object["spec"]["tolerations"]
                .as_array()
                .is_some_and(|list| list.contains(toleration))
        });
    if allowed != object["spec"] || !additions_only {
        causes.push(StatusCause::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
             existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously \
             negative)",
        ));
    }
}

fn job(object: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    let spec = &object["spec"];
    for field in ["completions", "parallelism", "backoffLimit"] {
        not_negative(spec, field, causes);
    }
    pod_spec("spec.template.spec", &spec["template"]["spec"], causes);
    if !["OnFailure", "Never"].contains(&spec.text("/template/spec/restartPolicy")) {
        causes.push(StatusCause::unsupported(
            "spec.template.spec.restartPolicy",
            &spec["template"]["spec"]["restartPolicy"],
            &["OnFailure", "Never"],
        ));
    }
    let Some(old) = old else {
        return;
    };
    for field in ["selector", "template", "completionMode"] {
        if old["spec"][field] != spec[field] {
            causes.push(StatusCause::invalid(
                format!("spec.{field}"),
                &spec[field],
                "field is immutable",
            ));
        }
    }
}

fn controller_revision(object: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    if object["data"].is_null() {
        causes.push(StatusCause::required("data", "data is mandatory"));
    }
    if object["revision"]
        .as_i64()
        .is_some_and(|revision| revision < 0)
    {
        causes.push(StatusCause::invalid(
            "revision",
            &object["revision"],
            "must be greater than or equal to 0",
        ));
    }
    if old.is_some_and(|old| old["data"] != object["data"]) {
        causes.push(StatusCause::invalid(
            "data",
            &object["data"],
            "field is immutable",
        ));
    }
}

fn node(object: &Value, causes: &mut Vec<StatusCause>) {
    let taints = object["spec"]["taints"].as_array();
    for (at, taint) in taints.into_iter().flatten().enumerate() {
        const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if !EFFECTS.contains(&taint.text("/effect")) {
            causes.push(StatusCause::unsupported(
                format!("spec.taints[{at}].effect"),
                &taint["effect"],
                EFFECTS,
            ));
        }
        if let Err(why) = check_label_key(taint.text("/key")) {
            causes.push(StatusCause::invalid(
                format!("spec.taints[{at}].key"),
                &taint["key"],
                &why,
            ));
        }
    }
}

fn immutable_data(object: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    let Some(old) = old.filter(|old| old["immutable"] == true) else {
        return;
    };
    if old["data"] != object["data"] || object["immutable"] != true {
        causes.push(StatusCause::forbidden(
            "data",
            "field is immutable when `immutable` is set",
        ));
    }
}

fn disruption_budget(object: &Value, causes: &mut Vec<StatusCause>) {
    let spec = &object["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        causes.push(StatusCause::invalid(
            "spec",
            spec,
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    if let Err(why) = label_selector(&spec["selector"]) {
        causes.push(StatusCause::invalid(
            "spec.selector",
            &spec["selector"],
            &why,
        ));
    }
}

/// Checks an Event. `events.k8s.io` has more required fields than the core group.
fn event(resource: &Resource, object: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    let involved = object.text("/involvedObject/namespace");
    let cluster_wide = involved.is_empty() && object.namespace() == "default";
    let is_legacy = resource.group.is_empty();
    if is_legacy && involved != object.namespace() && !cluster_wide && old.is_none() {
        causes.push(StatusCause::invalid(
            "involvedObject.namespace",
            &involved.into(),
            "does not match event.namespace",
        ));
    }
    if is_legacy || old.is_some() {
        return;
    }
    const LONGEST_NOTE: usize = 1024;
    if object.text("/message").len() > LONGEST_NOTE {
        let detail = format!("can have at most {LONGEST_NOTE} characters");
        causes.push(StatusCause::invalid("message", &"".into(), &detail));
    }
    let controller = &object["reportingComponent"];
    if let Some(Err(why)) = controller.as_str().map(check_label_key) {
        causes.push(StatusCause::invalid(
            "reportingController",
            controller,
            &why,
        ));
    }
    for (field, stored) in [
        ("eventTime", "eventTime"),
        ("reportingController", "reportingComponent"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    ] {
        if object.text(&format!("/{stored}")).is_empty() {
            causes.push(StatusCause::required(field, ""));
        }
    }
    if !["Normal", "Warning"].contains(&object.text("/type")) {
        causes.push(StatusCause::invalid(
            "type",
            &object["type"],
            "has invalid value",
        ));
    }
}

fn lease(object: &Value, causes: &mut Vec<StatusCause>) {
    let seconds = &object["spec"]["leaseDurationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
        causes.push(StatusCause::invalid(
            "spec.leaseDurationSeconds",
            seconds,
            "must be greater than 0",
        ));
    }
    not_negative(&object["spec"], "leaseTransitions", causes);
}

fn not_negative(spec: &Value, field: &str, causes: &mut Vec<StatusCause>) {
    if spec[field].as_i64().is_some_and(|number| number < 0) {
        causes.push(StatusCause::invalid(
            format!("spec.{field}"),
            &spec[field],
            "must be greater than or equal to 0",
        ));
    }
}
