//! Server-side apply: a manager sends the fields that it wants, and owns these fields from then on.
//!
//! An apply that changes a field of another manager is a conflict (409) unless it is forced. The server removes fields that the
//! manager no longer sends, unless another manager also owns them.
//!
//! Kubernetes tracks managers from the creation of an object, this server from the first apply, with the exceptions in
//! `verbs::create`. As in Kubernetes, the fields of an object without managers belong to `before-first-apply`.

use serde_json::{Value, json};

use super::fields::{self, Paths};
use super::managed_fields::{FieldOwner, FieldOwners, entries, owners};
use super::object::Object;
use super::parsed::Parsed;
use super::request::{Target, option_failure};
use super::schema;
use super::status::{ApiFailure, StatusCause};
use super::store::Store;
use super::verbs;
use super::write::{WriteContext, WriteOutcome};

/// Processes a server-side apply (PATCH with `application/apply-patch+yaml`).
pub(crate) fn apply(
    store: &mut Store,
    parsed: &Parsed,
    target: &Target,
    config: Value,
    writing: &WriteContext,
) -> Result<WriteOutcome, ApiFailure> {
    let manager = parsed.query.get("fieldManager");
    if manager.is_empty() {
        return Err(option_failure(
            "PatchOptions",
            StatusCause::required("fieldManager", "is required for apply patch"),
        ));
    }
    let (config, warnings) = checked(target, config, writing)?;
    let wanted = fields::paths(&config);
    let me = FieldOwner {
        manager: manager.to_owned(),
        operation: "Apply",
        subresource: target.subresource.clone(),
        version: target.resource.api_version(),
    };
    let current = match verbs::get(store, target) {
        Ok(current) => current,
        Err(missing) if !target.subresource.is_empty() => return Err(missing),
        Err(_) => {
            let mut writing = writing.clone();
            writing.managed = Some(json!([me.entry(&wanted, &writing)]));
            return verbs::create(store, target, config, &writing);
        }
    };
    let mut owners = owners(&current.value);
    let conflicts = conflicts(&me, &wanted, &config, &current.value, &owners);
    if !conflicts.is_empty() && !parsed.query.flag("force") {
        return Err(conflict(&conflicts));
    }
    for (path, _) in &conflicts {
        for (owner, paths) in &mut owners {
            if *owner != me {
                paths.remove(path);
            }
        }
    }
    let mut object = current.value.clone();
    fields::overlay(&mut object, &config);
    drop_abandoned(&mut object, &me, &wanted, &owners);
    owners.retain(|(owner, paths)| *owner != me && !paths.is_empty());
    owners.push((me, wanted));
    let mut writing = writing.clone();
    writing.managed = Some(entries(&owners, &current.value, &writing, None));
    let (object, _) = verbs::decode(target, object, &writing)?;
    let body = verbs::update(store, target, &current, object, &writing)?;
    Ok(WriteOutcome {
        code: 200,
        body,
        warnings,
    })
}

/// Returns the applied configuration in canonical form, with only the fields that the client sent.
fn checked(
    target: &Target,
    mut config: Value,
    writing: &WriteContext,
) -> Result<(Value, Vec<String>), ApiFailure> {
    for (field, pointer) in [("apiVersion", "/apiVersion"), ("kind", "/kind")] {
        if config.text(pointer).is_empty() {
            return Err(ApiFailure::bad_request(format!(
                "error decoding patch: the field {field} is required"
            )));
        }
    }
    let name = config.name();
    if !name.is_empty() && name != target.name {
        return Err(ApiFailure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    if config["metadata"].get("managedFields").is_some() {
        return Err(ApiFailure::bad_request(
            "metadata.managedFields must be nil: the server counts the owners of fields",
        ));
    }
    let url_name = target.name.clone();
    config
        .metadata_mut()
        .insert("name".to_owned(), url_name.into());
    if target.subresource == "status" {
        config.set_or_remove("spec", None);
        if target.resource.custom {
            let metadata = config.metadata_mut();
            metadata.retain(|field, _| !fields::OWNED_METADATA.contains(&field.as_str()));
        }
    } else if target.resource.has_status() {
        config.set_or_remove("status", None);
    }
    let (canonical, warnings) = verbs::decode(target, config.clone(), writing)?;
    Ok((schema::restrict(canonical, &config), warnings))
}

/// Returns the paths of fields that belong to another manager and whose values would change.
fn conflicts(
    me: &FieldOwner,
    wanted: &Paths,
    config: &Value,
    live: &Value,
    owners: &FieldOwners,
) -> Vec<(fields::Path, FieldOwner)> {
    let mut conflicts = Vec::new();
    for path in wanted {
        let have = fields::value(live, path);
        if have.is_none() || have == fields::value(config, path) {
            continue;
        }
        for (owner, paths) in owners {
            if owner != me && paths.contains(path) {
                conflicts.push((path.clone(), owner.clone()));
            }
        }
    }
    conflicts
}

fn conflict(conflicts: &[(fields::Path, FieldOwner)]) -> ApiFailure {
    let with = |owner: &FieldOwner| {
        let operation = match owner.subresource.as_str() {
            "" => String::new(),
            sub => format!(" with subresource {sub:?}"),
        };
        format!(
            "conflict with {:?}{operation} using {}",
            owner.manager, owner.version
        )
    };
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|(path, owner)| {
            json!({
                "reason": "FieldManagerConflict",
                "message": with(owner),
                "field": fields::display(path),
            })
        })
        .collect();
    let sentences: Vec<String> = conflicts
        .iter()
        .map(|(path, owner)| format!("{}: {}", with(owner), fields::display(path)))
        .collect();
    let plural = if conflicts.len() == 1 { "" } else { "s" };
    let mut failure = ApiFailure::conflict("", "", "", "").saying(format!(
        "Apply failed with {} conflict{plural}: {}",
        conflicts.len(),
        sentences.join("\n")
    ));
    failure.details = Some(json!({ "causes": causes }));
    failure
}

/// Removes the fields that the manager no longer declares, unless they also belong to another manager.
fn drop_abandoned(object: &mut Value, me: &FieldOwner, wanted: &Paths, owners: &FieldOwners) {
    let named = owners
        .iter()
        .find(|(owner, _)| owner == me)
        .map(|(_, paths)| paths.clone())
        .unwrap_or_default();
    // Paths are sorted, so a list entry is removed before its own fields.
    for path in named.difference(wanted) {
        let shared = owners
            .iter()
            .any(|(owner, paths)| owner != me && fields::holds(paths, path));
        if !shared && !fields::is_key(path) && !fields::holds(wanted, path) {
            fields::remove(object, path);
        }
    }
}
