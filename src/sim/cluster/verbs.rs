//! The verbs create, get, replace, patch and delete, and their effects on the store.
//!
//! Each verb holds the store's lock from start to end. So every write sees the latest state, and no other write can happen between
//! the read and the write of a patch.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::object::{Object, default};
use super::request::Target;
use super::resources::Storage;
use super::status::{ApiFailure, StatusCause, success};
use super::store::{Filter, ObjectKey, Store, Stored};
use super::write::{DeleteOptions, WriteContext, WriteOutcome, seconds};
use super::{admission, budgets, defaults, managed_fields, schema, validate};

/// Decodes a body as the kind that the path names, and checks that the body matches the path.
pub(crate) fn decode(
    target: &Target,
    mut body: Value,
    writing: &WriteContext,
) -> Result<(Value, Vec<String>), ApiFailure> {
    let resource = target.resource;
    let expected = stored_form_version(target);
    // A missing kind or version is taken from the path.
    if let Value::Object(fields) = &mut body {
        default(fields, "kind", resource.kind);
        default(fields, "apiVersion", expected.as_str());
    }
    let (kind, version) = (
        body.text("/kind").to_owned(),
        body.text("/apiVersion").to_owned(),
    );
    if kind != resource.kind || version != expected {
        return Err(ApiFailure::bad_request(format!(
            "the API version and kind in the data ({version}, {kind}) do not match the expected ({}, {})",
            resource.api_version(),
            resource.kind
        )));
    }
    let decoded = schema::decode(resource, body)?;
    let unknown: Vec<String> = decoded
        .unknown
        .iter()
        .map(|path| format!("unknown field {path:?}"))
        .collect();
    if writing.strict && !unknown.is_empty() {
        return Err(ApiFailure::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: strict decoding error: {}",
            resource.version,
            unknown.join(", ")
        )));
    }
    let warnings = if writing.warn { unknown } else { Vec::new() };
    Ok((decoded.object, warnings))
}

/// Returns the `apiVersion` that a body must have. Bodies of Events were already converted to the core group, even if the path
/// names `events.k8s.io`.
fn stored_form_version(target: &Target) -> String {
    match target.resource.storage {
        Storage::Events => "v1".to_owned(),
        _ => target.resource.api_version(),
    }
}

/// Converts a custom resource to its stored version.
fn as_stored(target: &Target, object: &mut Value) {
    if target.resource.custom {
        object["apiVersion"] = target.resource.stored_version().into();
    }
}

/// Creates an object (POST).
pub(crate) fn create(
    store: &mut Store,
    target: &Target,
    body: Value,
    writing: &WriteContext,
) -> Result<WriteOutcome, ApiFailure> {
    let resource = target.resource;
    let (mut object, warnings) = decode(target, body, writing)?;
    as_stored(target, &mut object);
    place_in_namespace(target, &mut object)?;
    if !object.text("/metadata/resourceVersion").is_empty() {
        return Err(ApiFailure::internal(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    name_object(store, target, &mut object)?;
    let timestamp = writing.timestamp();
    let uid = store.uid();
    let metadata = object.metadata_mut();
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
        "generation",
    ] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), uid.into());
    metadata.insert("creationTimestamp".to_owned(), timestamp.into());
    if resource.generation {
        metadata.insert("generation".to_owned(), 1.into());
    }
    if let Some(managed) = &writing.managed {
        metadata.insert("managedFields".to_owned(), managed.clone());
    }
    // Only these kinds get managedFields when they are created, because yurt-ds reads the managedFields of these kinds: they tell
    // when a revision became the newest, and which client wrote a template. Other objects get managedFields at their first
    // server-side apply.
    let is_counted = matches!(
        resource.storage,
        Storage::ControllerRevisions | Storage::DaemonSets | Storage::AdvancedDaemonSets
    );
    if is_counted && writing.managed.is_none() {
        let managed = managed_fields::track(target, &Value::Null, &object, writing);
        let metadata = object.metadata_mut();
        metadata.insert("managedFields".to_owned(), managed);
    }
    defaults::fill(resource.storage, &mut object);
    admission::complete(resource.storage, &mut object);
    if resource.storage == Storage::Pods {
        admission::take_pull_secrets(store, &mut object);
    }
    if resource.storage != Storage::Nodes && resource.has_status() {
        object.set_or_remove("status", defaults::first_status(resource.storage, &object));
    }
    validate::check(target, &object, None)?;
    let key = ObjectKey::from_object(&object);
    if store.get(resource.storage, &key).is_some() {
        return Err(ApiFailure::already_exists(
            resource.group,
            resource.plural,
            &key.name,
        ));
    }
    admission::admit(store, target, &object)?;
    let body = commit(store, target, object, writing);
    Ok(WriteOutcome {
        code: 201,
        body,
        warnings,
    })
}

fn place_in_namespace(target: &Target, object: &mut Value) -> Result<(), ApiFailure> {
    let given = object.namespace().to_owned();
    if !target.resource.namespaced {
        object.metadata_mut().remove("namespace");
        return Ok(());
    }
    if !given.is_empty() && given != target.namespace {
        return Err(ApiFailure::bad_request(format!(
            "the namespace of the provided object does not match the namespace sent on the request ({given} does not match {})",
            target.namespace
        )));
    }
    let namespace = target.namespace.clone();
    object
        .metadata_mut()
        .insert("namespace".to_owned(), namespace.into());
    Ok(())
}

fn name_object(store: &mut Store, target: &Target, object: &mut Value) -> Result<(), ApiFailure> {
    if !object.name().is_empty() {
        return Ok(());
    }
    let prefix = object.text("/metadata/generateName").to_owned();
    if prefix.is_empty() {
        return Err(target.invalid(&[StatusCause::required(
            "metadata.name",
            "name or generateName is required",
        )]));
    }
    // As in Kubernetes, generated names have at most 63 characters including the suffix.
    let kept: String = prefix.chars().take(58).collect();
    let name = loop {
        let name = format!("{kept}{}", store.suffix());
        let key = ObjectKey {
            namespace: object.namespace().to_owned(),
            name: name.clone(),
        };
        if store.get(target.resource.storage, &key).is_none() {
            break name;
        }
    };
    object.metadata_mut().insert("name".to_owned(), name.into());
    Ok(())
}

/// Stores the object, unless the request is a dry run, and updates dependent objects such as quotas.
fn commit(store: &mut Store, target: &Target, object: Value, writing: &WriteContext) -> Value {
    if writing.dry_run {
        return object;
    }
    let storage = target.resource.storage;
    let namespace = object.namespace().to_owned();
    let stored = store.put(storage, object);
    after_write(store, &namespace, writing.now);
    stored.value.clone()
}

fn after_write(store: &mut Store, namespace: &str, now: Timestamp) {
    admission::count_quotas(store, namespace);
    budgets::count(store, namespace, now);
    finish_namespace(store, namespace);
}

/// Returns one object (GET).
pub(crate) fn get(store: &Store, target: &Target) -> Result<Arc<Stored>, ApiFailure> {
    let key = key(target);
    store
        .get(target.resource.storage, &key)
        .cloned()
        .ok_or_else(|| target.not_found())
}

fn key(target: &Target) -> ObjectKey {
    ObjectKey {
        namespace: target.namespace.clone(),
        name: target.name.clone(),
    }
}

/// Replaces an object or its status (PUT). If the object does not exist, creates it if the kind allows that.
pub(crate) fn replace(
    store: &mut Store,
    target: &Target,
    body: Value,
    writing: &WriteContext,
) -> Result<WriteOutcome, ApiFailure> {
    let resource = target.resource;
    let (mut object, warnings) = decode(target, body, writing)?;
    if object.name().is_empty() {
        return Err(ApiFailure::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )));
    }
    if object.name() != target.name {
        return Err(ApiFailure::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            object.name(),
            target.name
        )));
    }
    place_in_namespace(target, &mut object)?;
    let Some(current) = store.get(resource.storage, &key(target)).cloned() else {
        if resource.create_on_update && target.subresource.is_empty() {
            object.metadata_mut().remove("resourceVersion");
            return create(store, target, object, writing);
        }
        return Err(target.not_found());
    };
    if object.text("/metadata/resourceVersion").is_empty() && !resource.unconditional_update {
        return Err(target.invalid(&[StatusCause::invalid(
            "metadata.resourceVersion",
            &json!(0),
            "must be specified for an update",
        )]));
    }
    let body = update(store, target, &current, object, writing)?;
    Ok(WriteOutcome {
        code: 200,
        body,
        warnings,
    })
}

/// Replaces `current` with `object`, for PUT and PATCH.
pub(crate) fn update(
    store: &mut Store,
    target: &Target,
    current: &Stored,
    mut object: Value,
    writing: &WriteContext,
) -> Result<Value, ApiFailure> {
    let resource = target.resource;
    let old = &current.value;
    as_stored(target, &mut object);
    check_identity(target, old, &object)?;
    keep_server_fields(old, &mut object);
    match target.subresource.as_str() {
        "status" => {
            let status = object.get("status").cloned();
            let metadata = object["metadata"].clone();
            object = old.clone();
            if !resource.custom {
                object["metadata"] = metadata;
            }
            object.set_or_remove("status", status);
        }
        _ if resource.has_status() => object.set_or_remove("status", old.get("status").cloned()),
        _ => {}
    }
    defaults::fill(resource.storage, &mut object);
    if resource.storage == Storage::DaemonSets {
        admission::set_template_generation(&mut object, Some(old));
    }
    if resource.generation && old.get("spec") != object.get("spec") {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        object
            .metadata_mut()
            .insert("generation".to_owned(), generation.into());
    }
    validate::check(target, &object, Some(old))?;
    let counted = old["metadata"].get("managedFields").is_some();
    let managed = match &writing.managed {
        Some(managed) => Some(managed.clone()),
        None if counted && object != *old => {
            Some(managed_fields::track(target, old, &object, writing))
        }
        None => None,
    };
    if let Some(managed) = managed {
        object
            .metadata_mut()
            .insert("managedFields".to_owned(), managed);
    }
    if object == *old {
        return Ok(object);
    }
    if is_finished(resource.storage, &object) {
        if !writing.dry_run {
            remove(
                store,
                resource.storage,
                &ObjectKey::from_object(&object),
                writing.now,
            );
        }
        return Ok(object);
    }
    Ok(commit(store, target, object, writing))
}

/// Returns true if a terminating object can be removed: its deletion waits for no finalizer, no kubelet and no other objects.
fn is_finished(storage: Storage, object: &Value) -> bool {
    let waits_for_kubelet = storage == Storage::Pods
        && object["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .is_some_and(|grace| grace > 0);
    let waits_for_content = storage == Storage::Namespaces;
    object.is_terminating()
        && object.finalizers().is_empty()
        && !waits_for_kubelet
        && !waits_for_content
}

fn check_identity(target: &Target, old: &Value, new: &Value) -> Result<(), ApiFailure> {
    let resource = target.resource;
    let version = new.text("/metadata/resourceVersion");
    if !version.is_empty() && version.parse::<u64>().is_err() {
        return Err(ApiFailure::internal(format!(
            "strconv.ParseUint: parsing {version:?}: invalid syntax"
        )));
    }
    if !new.uid().is_empty() && new.uid() != old.uid() {
        let why = format!(
            "StorageError: invalid object, Code: 4, ObjectKey: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
             failed: UID in precondition: {}, UID in object meta: {}",
            old.name(),
            new.uid(),
            old.uid()
        );
        return Err(ApiFailure::conflict(
            resource.group,
            resource.plural,
            old.name(),
            why,
        ));
    }
    if !version.is_empty() && version != old.text("/metadata/resourceVersion") {
        return Err(ApiFailure::modified(
            resource.group,
            resource.plural,
            old.name(),
        ));
    }
    Ok(())
}

/// Restores the metadata fields that only the server may set.
fn keep_server_fields(old: &Value, object: &mut Value) {
    let metadata = &old["metadata"];
    let mut place = object["metadata"].take();
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "managedFields",
    ] {
        place.set_or_remove(field, metadata.get(field).cloned());
    }
    place.set_or_remove("selfLink", None);
    object["metadata"] = place;
}

/// Deletes one object (DELETE).
pub(crate) fn delete(
    store: &mut Store,
    target: &Target,
    options: &DeleteOptions,
    writing: &WriteContext,
) -> Result<WriteOutcome, ApiFailure> {
    let current = get(store, target)?;
    check_preconditions(target, &current.value, options)?;
    let storage = target.resource.storage;
    const KEPT: &[&str] = &["default", "kube-public", "kube-system"];
    if storage == Storage::Namespaces && KEPT.contains(&target.name.as_str()) {
        let why = "this namespace may not be deleted";
        return Err(ApiFailure::forbidden("", "namespaces", &target.name, why));
    }
    let marked = mark(storage, &current.value, options, writing);
    let Some(marked) = marked else {
        if !writing.dry_run {
            remove(store, storage, &key(target), writing.now);
        }
        return Ok(WriteOutcome::new(200, deleted(target, &current.value)));
    };
    let body = if marked == current.value {
        marked
    } else {
        commit(store, target, marked, writing)
    };
    if storage == Storage::Namespaces && !writing.dry_run {
        empty_namespace(store, &target.name, writing);
    }
    Ok(WriteOutcome::new(200, body))
}

/// Returns the response to a deletion: the last state of the object for pods and service accounts, otherwise a Status.
fn deleted(target: &Target, last: &Value) -> Value {
    if matches!(
        target.resource.storage,
        Storage::Pods | Storage::ServiceAccounts
    ) {
        return last.clone();
    }
    let mut details =
        json!({ "name": last.name(), "kind": target.resource.plural, "uid": last.uid() });
    if !target.resource.group.is_empty() {
        details["group"] = target.resource.group.into();
    }
    success(details)
}

pub(crate) fn check_preconditions(
    target: &Target,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), ApiFailure> {
    let conflict = |why: String| {
        let resource = target.resource;
        Err(ApiFailure::conflict(
            resource.group,
            resource.kind,
            object.name(),
            why,
        ))
    };
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != object.uid()) {
        return conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            object.uid()
        ));
    }
    let have = object.text("/metadata/resourceVersion");
    if let Some(version) = options
        .version
        .as_deref()
        .filter(|version| *version != have)
    {
        return conflict(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
             ({have}). The object might have been modified"
        ));
    }
    Ok(())
}

/// Returns the object marked as terminating, or `None` if it can be removed immediately.
fn mark(
    storage: Storage,
    object: &Value,
    options: &DeleteOptions,
    writing: &WriteContext,
) -> Option<Value> {
    let grace = grace(storage, object, options);
    let finalizers = finalizers(object, options);
    if grace == 0 && finalizers.is_empty() && storage != Storage::Namespaces {
        return None;
    }
    let mut marked = object.clone();
    let metadata = marked.metadata_mut();
    if !finalizers.is_empty() {
        let list: Vec<Value> = finalizers.into_iter().map(Value::from).collect();
        metadata.insert("finalizers".to_owned(), list.into());
    }
    let have = metadata
        .get("deletionGracePeriodSeconds")
        .and_then(Value::as_i64);
    match have {
        // The object is already terminating. A second deletion can only shorten the grace period.
        Some(have) if grace >= have => {}
        Some(have) => {
            let asked = object
                .text("/metadata/deletionTimestamp")
                .parse::<Timestamp>()
                .unwrap_or(writing.now);
            let due = asked
                .saturating_add(SignedDuration::from_secs(grace - have))
                .unwrap_or(asked);
            metadata.insert("deletionTimestamp".to_owned(), seconds(due).into());
            metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
        }
        None => {
            let due = writing
                .now
                .saturating_add(SignedDuration::from_secs(grace))
                .unwrap_or(writing.now);
            metadata.insert("deletionTimestamp".to_owned(), seconds(due).into());
            metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
            if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
                metadata.insert("generation".to_owned(), (generation + 1).into());
            }
        }
    }
    if storage == Storage::Namespaces {
        marked["status"]["phase"] = "Terminating".into();
    }
    Some(marked)
}

/// Returns the grace period of a deletion in seconds. It is zero except for pods that are bound to a node and have not ended.
fn grace(storage: Storage, object: &Value, options: &DeleteOptions) -> i64 {
    let ended = matches!(object.text("/status/phase"), "Failed" | "Succeeded");
    if storage != Storage::Pods || object.text("/spec/nodeName").is_empty() || ended {
        return 0;
    }
    let own = object["spec"]["terminationGracePeriodSeconds"].as_i64();
    match options.grace.or(own).unwrap_or(30) {
        // As in Kubernetes, a negative period becomes one second, so that the kubelet still stops the containers.
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

fn finalizers(object: &Value, options: &DeleteOptions) -> BTreeSet<String> {
    let mut finalizers: BTreeSet<String> =
        object.finalizers().into_iter().map(str::to_owned).collect();
    const ORPHAN: &str = "orphan";
    const FOREGROUND: &str = "foregroundDeletion";
    match options.propagation.as_str() {
        "Orphan" => {
            finalizers.remove(FOREGROUND);
            finalizers.insert(ORPHAN.to_owned());
        }
        "Foreground" => {
            finalizers.remove(ORPHAN);
            finalizers.insert(FOREGROUND.to_owned());
        }
        "Background" => {
            finalizers.remove(ORPHAN);
            finalizers.remove(FOREGROUND);
        }
        _ => {}
    }
    finalizers
}

fn remove(store: &mut Store, storage: Storage, key: &ObjectKey, now: Timestamp) {
    store.remove(storage, key);
    after_write(store, &key.namespace, now);
}

/// Deletes the objects of a collection that the filter selects (DELETE), one by one.
pub(crate) fn delete_collection(
    store: &mut Store,
    target: &Target,
    filter: &Filter,
    options: &DeleteOptions,
    writing: &WriteContext,
) -> Result<Vec<Arc<Stored>>, ApiFailure> {
    let selected: Vec<Arc<Stored>> = store
        .select(target.resource.storage, filter, None)
        .map(|(_, stored)| Arc::clone(stored))
        .collect();
    for stored in &selected {
        let one = Target {
            namespace: stored.value.namespace().to_owned(),
            name: stored.value.name().to_owned(),
            ..target.clone()
        };
        match delete(store, &one, options, writing) {
            Err(failure) if failure.code != 404 => return Err(failure),
            _ => {}
        }
    }
    Ok(selected)
}

/// Deletes all objects in a terminating namespace. Pods are deleted with their grace periods.
fn empty_namespace(store: &mut Store, namespace: &str, writing: &WriteContext) {
    for resource in super::resources::RESOURCES {
        if !resource.namespaced || resource.storage == Storage::Nothing {
            continue;
        }
        let filter = Filter {
            namespace: namespace.to_owned(),
            ..Filter::default()
        };
        let target = Target {
            resource,
            namespace: namespace.to_owned(),
            name: String::new(),
            subresource: String::new(),
        };
        let options = DeleteOptions {
            propagation: "Background".to_owned(),
            ..DeleteOptions::default()
        };
        // Ignore the result: a deletion without preconditions cannot fail.
        let _ = delete_collection(store, &target, &filter, &options, writing);
    }
    finish_namespace(store, namespace);
}

/// Removes a terminating namespace if it is empty.
fn finish_namespace(store: &mut Store, namespace: &str) {
    let key = ObjectKey {
        namespace: String::new(),
        name: namespace.to_owned(),
    };
    let terminating = store.get(Storage::Namespaces, &key).is_some_and(|stored| {
        stored.value.is_terminating() && stored.value.finalizers().is_empty()
    });
    if !terminating {
        return;
    }
    let filter = Filter {
        namespace: namespace.to_owned(),
        ..Filter::default()
    };
    let left = super::resources::RESOURCES.iter().any(|resource| {
        resource.namespaced
            && store
                .select(resource.storage, &filter, None)
                .next()
                .is_some()
    });
    if !left {
        store.remove(Storage::Namespaces, &key);
    }
}
