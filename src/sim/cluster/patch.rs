//! Patch types: JSON patch (RFC 6902), merge patch (RFC 7386), strategic merge patch.
//!
//! A strategic merge patch is a merge patch that treats some lists as sets or maps. [`merge_key`] defines these lists, as the
//! `patchMergeKey` tags of the Kubernetes API types do.

use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde_json::{Map, Value};

use super::status::ApiFailure;

/// Maximum number of operations in a JSON patch, as in kube-apiserver.
const JSON_PATCH_OPERATIONS: usize = 10_000;

pub(crate) fn json(object: &Value, patch: Value) -> Result<Value, ApiFailure> {
    let is_list_of_objects = patch
        .as_array()
        .is_some_and(|list| list.iter().all(Value::is_object));
    let patch: json_patch::Patch = serde_json::from_value(patch).map_err(|error| {
        if is_list_of_objects {
            ApiFailure::unprocessable(error.to_string())
        } else {
            ApiFailure::bad_request(format!("error decoding patch: {error}"))
        }
    })?;
    if patch.0.len() > JSON_PATCH_OPERATIONS {
        return Err(ApiFailure::too_large(JSON_PATCH_OPERATIONS));
    }
    let mut patched = object.clone();
    for operation in patch.0 {
        let operation = lenient(&patched, operation);
        json_patch::patch(&mut patched, &[operation])
            .map_err(|error| ApiFailure::unprocessable(error.to_string()))?;
    }
    Ok(patched)
}

/// Converts `replace` of a missing field to `add`. kube-apiserver accepts such a `replace`, although RFC 6902 does not.
fn lenient(object: &Value, operation: PatchOperation) -> PatchOperation {
    let PatchOperation::Replace(ReplaceOperation { path, value }) = operation else {
        return operation;
    };
    let parent = path.split_back().and_then(|(parent, _)| {
        object
            .pointer(parent.as_str())
            .filter(|parent| parent.is_object())
    });
    if parent.is_some() && object.pointer(path.as_str()).is_none() {
        return PatchOperation::Add(AddOperation { path, value });
    }
    PatchOperation::Replace(ReplaceOperation { path, value })
}

pub(crate) fn merge(object: &Value, patch: &Value) -> Result<Value, ApiFailure> {
    if !patch.is_object() {
        return Err(ApiFailure::bad_request(
            "error decoding patch: a merge patch must be an object",
        ));
    }
    let mut patched = object.clone();
    json_patch::merge(&mut patched, patch);
    Ok(patched)
}

pub(crate) fn strategic(object: &Value, patch: &Value) -> Result<Value, ApiFailure> {
    let Value::Object(patch) = patch else {
        return Err(ApiFailure::bad_request(
            "error decoding patch: a strategic merge patch must be an object",
        ));
    };
    let mut patched = object.clone();
    merge_map(&mut patched, patch, "")?;
    Ok(patched)
}

fn merge_map(
    object: &mut Value,
    patch: &Map<String, Value>,
    parent: &str,
) -> Result<(), ApiFailure> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            let mut whole = patch.clone();
            whole.remove("$patch");
            *object = without_directives(Value::Object(whole));
            return Ok(());
        }
        Some("delete") => {
            *object = Value::Object(Map::new());
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(unknown_directive(other)),
    }
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else {
        return Ok(());
    };
    retain_keys(fields, patch);
    let ordered = patch
        .keys()
        .filter_map(|key| key.strip_prefix("$setElementOrder/"));
    let before = ordered.filter_map(|list| fields.get_key_value(list));
    let before: Map<String, Value> = before
        .map(|(list, was)| (list.clone(), was.clone()))
        .collect();
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            delete_from_set(fields, list, value);
        } else if !key.starts_with('$') {
            merge_field(fields, key, value, parent)?;
        }
    }
    set_orders(fields, &before, patch, parent);
    Ok(())
}

fn merge_field(
    fields: &mut Map<String, Value>,
    key: &str,
    value: &Value,
    parent: &str,
) -> Result<(), ApiFailure> {
    match value {
        Value::Null => drop(fields.remove(key)),
        Value::Object(patch) => {
            if patch.get("$patch").and_then(Value::as_str) == Some("delete") {
                fields.remove(key);
            } else {
                let place = fields.entry(key.to_owned()).or_insert(Value::Null);
                merge_map(place, patch, key)?;
            }
        }
        Value::Array(patch) => match list_kind(parent, key) {
            ListKind::Atomic => drop(fields.insert(key.to_owned(), value.clone())),
            ListKind::Set => merge_set(fields, key, patch),
            ListKind::Map(merge_key) => merge_list(fields, key, patch, merge_key)?,
        },
        value => drop(fields.insert(key.to_owned(), value.clone())),
    }
    Ok(())
}

/// Way in which a strategic merge patch merges a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// The patch replaces the whole list.
    Atomic,
    /// The list is a set of primitive values.
    Set,
    /// The list is a map of objects, with this field as the key.
    Map(&'static str),
}

/// Returns how the list `field` in the object `parent` is merged.
pub(crate) fn list_kind(parent: &str, field: &str) -> ListKind {
    match field {
        "finalizers" | "podCIDRs" => ListKind::Set,
        _ => merge_key(parent, field).map_or(ListKind::Atomic, ListKind::Map),
    }
}

/// Returns the `patchMergeKey` of a list in the API types that this server knows.
fn merge_key(parent: &str, field: &str) -> Option<&'static str> {
    Some(match (parent, field) {
        ("metadata", "ownerReferences") => "uid",
        (
            "spec",
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "volumes"
            | "imagePullSecrets"
            | "schedulingGates"
            | "resourceClaims",
        ) => "name",
        ("spec", "hostAliases") => "ip",
        ("spec", "topologySpreadConstraints") => "topologyKey",
        ("spec", "ports") => "port",
        ("containers" | "initContainers" | "ephemeralContainers", "ports") => "containerPort",
        ("containers" | "initContainers" | "ephemeralContainers", "env") => "name",
        ("containers" | "initContainers" | "ephemeralContainers", "volumeMounts") => "mountPath",
        ("containers" | "initContainers" | "ephemeralContainers", "volumeDevices") => "devicePath",
        (
            "containerStatuses" | "initContainerStatuses" | "ephemeralContainerStatuses",
            "volumeMounts",
        ) => "mountPath",
        (
            "containerStatuses" | "initContainerStatuses" | "ephemeralContainerStatuses",
            "allocatedResourcesStatus",
        ) => "name",
        ("status", "conditions" | "addresses") => "type",
        ("status", "podIPs" | "hostIPs") => "ip",
        ("status", "resourceClaimStatuses") => "name",
        // An empty parent stands for the object itself: `secrets` is a top-level field of a ServiceAccount.
        ("", "secrets") => "name",
        _ => return None,
    })
}

fn merge_set(fields: &mut Map<String, Value>, key: &str, patch: &[Value]) {
    let place = fields
        .entry(key.to_owned())
        .or_insert_with(|| Value::Array(Vec::new()));
    if !place.is_array() {
        *place = Value::Array(Vec::new());
    }
    if let Value::Array(list) = place {
        let before = list.clone();
        for value in patch {
            if !list.contains(value) {
                list.push(value.clone());
            }
        }
        reorder(list, patch, &before, &identity(ListKind::Set));
    }
}

fn delete_from_set(fields: &mut Map<String, Value>, key: &str, gone: &Value) {
    if let (Some(Value::Array(list)), Some(gone)) = (fields.get_mut(key), gone.as_array()) {
        list.retain(|value| !gone.contains(value));
    }
}

fn merge_list(
    fields: &mut Map<String, Value>,
    key: &str,
    patch: &[Value],
    merge_key: &'static str,
) -> Result<(), ApiFailure> {
    let place = fields
        .entry(key.to_owned())
        .or_insert_with(|| Value::Array(Vec::new()));
    if !place.is_array() {
        *place = Value::Array(Vec::new());
    }
    let Value::Array(list) = place else {
        return Ok(());
    };
    if patch.iter().any(|item| item["$patch"] == "replace") {
        *list = patch
            .iter()
            .filter(|item| item["$patch"] != "replace")
            .cloned()
            .map(without_directives)
            .collect();
        return Ok(());
    }
    let before = list.clone();
    for item in patch {
        merge_item(list, item, key, merge_key)?;
    }
    reorder(list, patch, &before, &identity(ListKind::Map(merge_key)));
    Ok(())
}

fn merge_item(
    list: &mut Vec<Value>,
    item: &Value,
    key: &str,
    merge_key: &str,
) -> Result<(), ApiFailure> {
    let Value::Object(patch) = item else {
        return Err(ApiFailure::bad_request(format!(
            "error decoding patch: an entry of {key} must be an object"
        )));
    };
    let identity = &item[merge_key];
    if identity.is_null() {
        return Err(ApiFailure::internal(format!(
            "map: {item} does not contain declared merge key: {merge_key}"
        )));
    }
    if item["$patch"] == "delete" {
        list.retain(|have| have[merge_key] != *identity);
        return Ok(());
    }
    match list.iter_mut().find(|have| have[merge_key] == *identity) {
        Some(have) => merge_map(have, patch, key),
        None => {
            let mut fresh = Value::Object(Map::new());
            merge_map(&mut fresh, patch, key)?;
            list.push(fresh);
            Ok(())
        }
    }
}

/// Removes all fields that are not in the patch's `$retainKeys`.
fn retain_keys(fields: &mut Map<String, Value>, patch: &Map<String, Value>) {
    if let Some(Value::Array(keep)) = patch.get("$retainKeys") {
        fields.retain(|key, _| keep.iter().any(|kept| kept == key));
    }
}

/// Sorts each list for which the patch has a `$setElementOrder/` entry.
fn set_orders(
    fields: &mut Map<String, Value>,
    before: &Map<String, Value>,
    patch: &Map<String, Value>,
    parent: &str,
) {
    for (key, order) in patch {
        let Some(name) = key.strip_prefix("$setElementOrder/") else {
            continue;
        };
        let (Some(Value::Array(list)), Value::Array(order)) = (fields.get_mut(name), order) else {
            continue;
        };
        let before = before.get(name).and_then(Value::as_array);
        let before = before.map_or(&[][..], Vec::as_slice);
        let identity = identity(list_kind(parent, name));
        reorder(list, order, before, &identity);
    }
}

/// Returns a function that identifies list elements: by the value of the merge key, or by the whole element.
fn identity(kind: ListKind) -> impl Fn(&Value) -> Value {
    move |item| match kind {
        ListKind::Map(merge_key) => item.get(merge_key).unwrap_or(item).clone(),
        ListKind::Set | ListKind::Atomic => item.clone(),
    }
}

/// Orders a merged list as kube-apiserver does (`mergeSortedSlice`).
///
/// Elements in the patch have the order of `wanted`, and all other elements have their order in `before`. An element that is not in
/// the patch precedes the next element of the patch only if it preceded that element in `before`.
fn reorder(
    list: &mut Vec<Value>,
    wanted: &[Value],
    before: &[Value],
    identity: &dyn Fn(&Value) -> Value,
) {
    let place = |order: &[Value], item: &Value| {
        let key = identity(item);
        order.iter().position(|known| identity(known) == key)
    };
    let (mut listed, mut others): (Vec<_>, Vec<_>) = std::mem::take(list)
        .into_iter()
        .partition(|item| place(wanted, item).is_some());
    listed.sort_by_key(|item| place(wanted, item));
    others.sort_by_key(|item| place(before, item));
    let mut others = others.into_iter().peekable();
    for item in listed {
        let at = place(before, &item);
        while let Some(other) =
            others.next_if(|other| at.is_some_and(|at| place(before, other) < Some(at)))
        {
            list.push(other);
        }
        list.push(item);
    }
    list.extend(others);
}

fn without_directives(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(key, value)| !key.starts_with('$') && !value.is_null())
                .map(|(key, value)| (key, without_directives(value)))
                .collect(),
        ),
        Value::Array(list) => Value::Array(list.into_iter().map(without_directives).collect()),
        other => other,
    }
}

fn unknown_directive(directive: &str) -> ApiFailure {
    ApiFailure::internal(format!(
        "unknown patch type: {directive} (known: replace, merge, delete)"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn case(object: Value, patch: Value, expected: Value) {
        let patched = strategic(&object, &patch).unwrap();
        assert_eq!(patched, expected, "{object} patched by {patch}");
    }

    #[test]
    fn a_strategic_patch_merges_maps_and_removes_null_fields() {
        case(json!({}), json!({ "a": 1 }), json!({ "a": 1 }));
        case(
            json!({ "a": { "b": 1, "c": 2 } }),
            json!({ "a": { "b": null, "d": 3 } }),
            json!({ "a": { "c": 2, "d": 3 } }),
        );
        case(
            json!({ "spec": { "type": "A", "rest": 1 } }),
            json!({ "spec": { "$patch": "replace", "type": "B" } }),
            json!({ "spec": { "type": "B" } }),
        );
        case(
            json!({ "spec": { "a": 1 }, "kept": true }),
            json!({ "spec": { "$patch": "delete" } }),
            json!({ "kept": true }),
        );
        case(
            json!({ "spec": { "a": 1, "b": 2 } }),
            json!({ "spec": { "$retainKeys": ["b"], "b": 3 } }),
            json!({ "spec": { "b": 3 } }),
        );
    }

    #[test]
    fn a_strategic_patch_merges_lists_by_their_key() {
        let pod = json!({ "spec": { "containers": [
            { "name": "a", "image": "1", "env": [{ "name": "X", "value": "1" }] },
            { "name": "b", "image": "1" },
        ] } });
        case(
            pod.clone(),
            json!({ "spec": { "containers": [{ "name": "b", "image": "2" }] } }),
            json!({ "spec": { "containers": [
                { "name": "a", "image": "1", "env": [{ "name": "X", "value": "1" }] },
                { "name": "b", "image": "2" },
            ] } }),
        );
        case(
            pod.clone(),
            json!({ "spec": { "containers": [{ "name": "b", "$patch": "delete" }] } }),
            json!({ "spec": { "containers": [
                { "name": "a", "image": "1", "env": [{ "name": "X", "value": "1" }] },
            ] } }),
        );
        case(
            pod.clone(),
            json!({ "spec": { "containers": [{ "$patch": "replace" }, { "name": "c" }] } }),
            json!({ "spec": { "containers": [{ "name": "c" }] } }),
        );
        case(
            pod,
            json!({ "spec": { "containers": [
                { "name": "a", "env": [{ "name": "Y", "value": "2" }] },
            ] } }),
            json!({ "spec": { "containers": [
                { "name": "a", "image": "1", "env": [
                    { "name": "Y", "value": "2" },
                    { "name": "X", "value": "1" },
                ] },
                { "name": "b", "image": "1" },
            ] } }),
        );
    }

    /// The expected orders were measured on Kubernetes 1.36.
    #[test]
    fn a_strategic_patch_orders_the_listed_entries() {
        fn order(before: &[&str], patch: &[&str], expected: &[&str]) {
            let list = |names: &[&str]| {
                let conditions = names.iter().map(|name| json!({ "type": name }));
                json!({ "status": { "conditions": conditions.collect::<Vec<_>>() } })
            };
            case(list(before), list(patch), list(expected));
        }
        order(&["b", "a"], &["a", "b"], &["a", "b"]);
        order(&["b", "x", "a"], &["b", "a"], &["b", "x", "a"]);
        order(&["x", "b", "a"], &["a", "b"], &["x", "a", "b"]);
        order(&["a", "x", "b"], &["b", "a"], &["x", "b", "a"]);
        order(&["a", "b"], &["new"], &["new", "a", "b"]);
        order(&["a", "b"], &["b", "new"], &["a", "b", "new"]);
    }

    #[test]
    fn one_condition_is_patched_and_the_others_stay() {
        case(
            json!({ "status": { "conditions": [
                { "type": "Ready", "status": "True" },
                { "type": "PodNeedUpgrade", "status": "False" },
            ] } }),
            json!({ "status": {
                "$setElementOrder/conditions": [{ "type": "PodNeedUpgrade" }, { "type": "Ready" }],
                "conditions": [{ "type": "PodNeedUpgrade", "status": "True" }],
            } }),
            json!({ "status": { "conditions": [
                { "type": "PodNeedUpgrade", "status": "True" },
                { "type": "Ready", "status": "True" },
            ] } }),
        );
    }

    #[test]
    fn sets_grow_and_shrink_by_value_and_other_lists_are_replaced() {
        case(
            json!({ "metadata": { "finalizers": ["a"] } }),
            json!({ "metadata": { "finalizers": ["a", "b"] } }),
            json!({ "metadata": { "finalizers": ["a", "b"] } }),
        );
        case(
            json!({ "metadata": { "finalizers": ["a", "b"] } }),
            json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a"] } }),
            json!({ "metadata": { "finalizers": ["b"] } }),
        );
        case(
            json!({ "spec": { "tolerations": [{ "key": "a" }] } }),
            json!({ "spec": { "tolerations": [{ "key": "b" }] } }),
            json!({ "spec": { "tolerations": [{ "key": "b" }] } }),
        );
    }

    #[test]
    fn entries_without_their_key_are_rejected() {
        let patch = json!({ "spec": { "containers": [{ "image": "x" }] } });
        assert_eq!(strategic(&json!({}), &patch).unwrap_err().code, 500);
        let patch = json!({ "spec": { "containers": ["x"] } });
        assert_eq!(strategic(&json!({}), &patch).unwrap_err().code, 400);
        assert_eq!(strategic(&json!({}), &json!([])).unwrap_err().code, 400);
    }

    #[test]
    fn a_json_patch_may_replace_a_missing_field_but_not_remove_it() {
        let object = json!({ "spec": { "a": 1 } });
        let replace = json!([{ "op": "replace", "path": "/spec/b", "value": 2 }]);
        assert_eq!(
            json(&object, replace).unwrap(),
            json!({ "spec": { "a": 1, "b": 2 } })
        );
        let remove = json!([{ "op": "remove", "path": "/spec/b" }]);
        assert_eq!(json(&object, remove).unwrap_err().code, 422);
        let deep = json!([{ "op": "replace", "path": "/none/b", "value": 2 }]);
        assert_eq!(json(&object, deep).unwrap_err().code, 422);
        let test = json!([{ "op": "test", "path": "/spec/a", "value": 2 }]);
        assert_eq!(json(&object, test).unwrap_err().code, 422);
    }
}
