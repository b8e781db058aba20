//! Admission: checks of namespaces, quotas and Pod Security, and fields that admission adds to pods and Jobs.

use serde_json::{Map, Value, json};

use super::object::{Object, default};
use super::request::Target;
use super::resources::{self, Storage};
use super::status::ApiFailure;
use super::store::{Filter, ObjectKey, Store};
use super::{compute_quota, pod_security};

/// Checks that the object may be created in its namespace.
///
/// # Errors
///
/// Returns a 404 if the namespace does not exist. Returns a 403 if the namespace is being deleted or a quota is exhausted.
pub(crate) fn admit(store: &Store, target: &Target, object: &Value) -> Result<(), ApiFailure> {
    let resource = target.resource;
    if !resource.namespaced || resource.storage == Storage::Nothing {
        return Ok(());
    }
    let key = ObjectKey {
        namespace: String::new(),
        name: target.namespace.clone(),
    };
    let namespace = store
        .get(Storage::Namespaces, &key)
        .ok_or_else(|| ApiFailure::not_found("", "namespaces", &target.namespace))?;
    if namespace.value.is_terminating() {
        let why = format!(
            "unable to create new content in namespace {} because it is being terminated",
            target.namespace
        );
        let mut failure =
            ApiFailure::forbidden(resource.group, resource.plural, object.name(), &why);
        if let Some(details) = &mut failure.details {
            details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {} is being terminated", target.namespace),
                "field": "metadata.namespace",
            }]);
        }
        return Err(failure);
    }
    if resource.storage == Storage::Pods
        && let Some(why) = pod_security::violation(&namespace.value, object)
    {
        return Err(refused(target, object, why));
    }
    within_quota(store, target, object)
}

/// Adds the pull secrets of the pod's service account to a pod without pull secrets.
pub(crate) fn take_pull_secrets(store: &Store, pod: &mut Value) {
    let key = ObjectKey {
        namespace: pod.namespace().to_owned(),
        name: pod.text("/spec/serviceAccountName").to_owned(),
    };
    let Some(account) = store.get(Storage::ServiceAccounts, &key) else {
        return;
    };
    let secrets = account.value["imagePullSecrets"].clone();
    let has = pod["spec"]["imagePullSecrets"].as_array();
    if secrets.is_array() && has.is_none_or(Vec::is_empty) {
        pod["spec"]["imagePullSecrets"] = secrets;
    }
}

/// Returns the names under which quotas count objects of a resource.
fn quota_names(storage: Storage) -> Vec<String> {
    let resource = resources::stored(storage);
    let mut names = vec![format!(
        "count/{}",
        super::status::qualified(resource.plural, resource.group)
    )];
    if matches!(
        storage,
        Storage::Pods
            | Storage::Services
            | Storage::Secrets
            | Storage::ConfigMaps
            | Storage::ResourceQuotas
    ) {
        names.push(resource.plural.to_owned());
    }
    names
}

fn within_quota(store: &Store, target: &Target, object: &Value) -> Result<(), ApiFailure> {
    let storage = target.resource.storage;
    let filter = Filter {
        namespace: target.namespace.clone(),
        ..Filter::default()
    };
    for (key, quota) in store.select(Storage::ResourceQuotas, &filter, None) {
        for name in quota_names(storage) {
            let Some(limit) = limit(&quota.value, &name) else {
                continue;
            };
            let used = count(store, storage, &target.namespace, &name);
            if used >= limit {
                let why = format!(
                    "exceeded quota: {}, requested: {name}=1, used: {name}={used}, limited: {name}={limit}",
                    key.name
                );
                return Err(refused(target, object, why));
            }
        }
        if storage == Storage::Pods {
            let running = store.select(storage, &filter, None);
            let running = running.map(|(_, stored)| &stored.value);
            let running: Vec<&Value> = running.filter(|pod| runs(pod)).collect();
            if let Some(why) = compute_quota::objection(&quota.value, object, &running) {
                return Err(refused(target, object, why));
            }
        }
    }
    Ok(())
}

fn refused(target: &Target, object: &Value, why: String) -> ApiFailure {
    let resource = target.resource;
    ApiFailure::forbidden(resource.group, resource.plural, object.name(), why)
}

fn runs(pod: &Value) -> bool {
    !matches!(pod.text("/status/phase"), "Failed" | "Succeeded")
}

fn limit(quota: &Value, name: &str) -> Option<u64> {
    quota["spec"]["hard"][name].as_str()?.parse().ok()
}

/// Counts objects for the quota `name`. `pods` counts only running pods; `count/pods` counts all pods.
fn count(store: &Store, storage: Storage, namespace: &str, name: &str) -> u64 {
    let filter = Filter {
        namespace: namespace.to_owned(),
        ..Filter::default()
    };
    let counted = store
        .select(storage, &filter, None)
        .filter(|(_, stored)| name != "pods" || runs(&stored.value));
    counted.count() as u64
}

/// Updates the status of the quotas in a namespace. Writes only quotas whose status has changed.
pub(crate) fn count_quotas(store: &mut Store, namespace: &str) {
    let filter = Filter {
        namespace: namespace.to_owned(),
        ..Filter::default()
    };
    let quotas: Vec<Value> = store
        .select(Storage::ResourceQuotas, &filter, None)
        .map(|(_, stored)| stored.value.clone())
        .collect();
    for mut quota in quotas {
        let hard = quota["spec"]["hard"].clone();
        let mut used = Map::new();
        for resource in resources::RESOURCES {
            for name in quota_names(resource.storage) {
                if hard.get(&name).is_some() && !used.contains_key(&name) {
                    let number = count(store, resource.storage, namespace, &name);
                    used.insert(name, number.to_string().into());
                }
            }
        }
        let status = json!({ "hard": hard, "used": used });
        if quota["status"] != status {
            quota["status"] = status;
            store.put(Storage::ResourceQuotas, quota);
        }
    }
}

/// Adds the fields that admission plugins and kube-apiserver's create strategies set on a new object.
pub(crate) fn complete(storage: Storage, object: &mut Value) {
    match storage {
        Storage::Pods => pod(object.entry_object("spec")),
        Storage::DaemonSets => set_template_generation(object, None),
        Storage::Jobs => job(object),
        _ => {}
    }
}

fn pod(spec: &mut Map<String, Value>) {
    default(spec, "priority", 0);
    default(spec, "preemptionPolicy", "PreemptLowerPriority");
    default(spec, "serviceAccountName", "default");
    let account = spec["serviceAccountName"].clone();
    spec.insert("serviceAccount".to_owned(), account);
    default(spec, "tolerations", Vec::<Value>::new());
    let Some(Value::Array(tolerations)) = spec.get_mut("tolerations") else {
        return;
    };
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerated = tolerations.iter().any(|toleration| {
            let (of, effect) = (toleration.text("/key"), toleration.text("/effect"));
            (of.is_empty() || of == key) && (effect.is_empty() || effect == "NoExecute")
        });
        if !tolerated {
            tolerations.push(json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }));
        }
    }
}

/// Adds a selector by UID to a Job, unless the Job has a manual selector.
fn job(job: &mut Value) {
    let (uid, name) = (job.uid().to_owned(), job.name().to_owned());
    if job["spec"]["manualSelector"] == true {
        return;
    }
    job["spec"]["selector"] =
        json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": uid } });
    let labels = job["spec"]["template"].entry_object("metadata");
    let labels = labels
        .entry("labels".to_owned())
        .or_insert_with(|| json!({}));
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        labels[key] = value.as_str().into();
    }
    // As in Kubernetes, a Job without labels gets the labels of its pod template.
    let labels = labels.clone();
    default(job.metadata_mut(), "labels", labels);
}

const TEMPLATE_GENERATION: &str = crate::core::names::TEMPLATE_GENERATION_ANNOTATION;

/// Counts the changes of a DaemonSet's template in an annotation. A client can set only the initial value.
pub(crate) fn set_template_generation(object: &mut Value, old: Option<&Value>) {
    let read = |object: &Value| -> i64 {
        object["metadata"]["annotations"][TEMPLATE_GENERATION]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    };
    let generation = match old {
        None => read(object).max(1),
        Some(old) if old["spec"]["template"] != object["spec"]["template"] => read(old) + 1,
        Some(old) => read(old),
    };
    let annotations = object
        .metadata_mut()
        .entry("annotations".to_owned())
        .or_insert_with(|| json!({}));
    annotations[TEMPLATE_GENERATION] = generation.to_string().into();
}
