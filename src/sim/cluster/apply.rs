//! Server-side apply: a manager says which fields it wants, and owns them.
//!
//! Fields that differ and belong to somebody else are a conflict (409) unless forced; fields that the manager named
//! last time and does not name now go, unless somebody else owns them, too. Owners are tracked from the first apply to
//! an object on; whatever was there before belongs to `before-first-apply`, as in Kubernetes.

use serde_json::{Value, json};

use super::fields::{self, Paths};
use super::http::Parsed;
use super::object::Object;
use super::request::{Target, option_failure};
use super::schema;
use super::status::{Cause, Failure};
use super::store::Store;
use super::verbs::{self, Outcome, Writing, seconds};

/// PATCH with `application/apply-patch+yaml`.
pub(crate) fn apply(
    store: &mut Store,
    parsed: &Parsed,
    target: &Target,
    config: Value,
    writing: &Writing,
) -> Result<Outcome, Failure> {
    let manager = parsed.query.get("fieldManager");
    if manager.is_empty() {
        return Err(option_failure(
            "PatchOptions",
            Cause::required("fieldManager", "is required for apply patch"),
        ));
    }
    let (config, warnings) = checked(target, config, writing)?;
    let wanted = fields::of(&config);
    let me = Owner {
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
    Ok(Outcome {
        code: 200,
        body,
        warnings,
    })
}

/// The configuration in canonical values, with nothing in it that the client did not name.
fn checked(
    target: &Target,
    mut config: Value,
    writing: &Writing,
) -> Result<(Value, Vec<String>), Failure> {
    for (field, pointer) in [("apiVersion", "/apiVersion"), ("kind", "/kind")] {
        if config.text(pointer).is_empty() {
            return Err(Failure::bad_request(format!(
                "error decoding patch: the field {field} has to be given"
            )));
        }
    }
    let name = config.name();
    if !name.is_empty() && name != target.name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    if config["metadata"].get("managedFields").is_some() {
        return Err(Failure::bad_request(
            "metadata.managedFields must be nil: the server counts the owners of fields",
        ));
    }
    let url_name = target.name.clone();
    config
        .metadata_mut()
        .insert("name".to_owned(), url_name.into());
    if target.subresource == "status" {
        config.set_or_remove("spec", None);
    } else if target.resource.has_status() {
        config.set_or_remove("status", None);
    }
    let (canonical, warnings) = verbs::decode(target, config.clone(), writing)?;
    Ok((schema::restrict(canonical, &config), warnings))
}

/// Who wrote, how, and where.
#[derive(Clone, Debug, PartialEq)]
struct Owner {
    manager: String,
    operation: &'static str,
    subresource: String,
    version: String,
}

type Owners = Vec<(Owner, Paths)>;

impl Owner {
    fn of(entry: &Value) -> Self {
        Self {
            manager: entry.text("/manager").to_owned(),
            operation: match entry.text("/operation") {
                "Apply" => "Apply",
                _ => "Update",
            },
            subresource: entry.text("/subresource").to_owned(),
            version: entry.text("/apiVersion").to_owned(),
        }
    }

    fn entry(&self, paths: &Paths, writing: &Writing) -> Value {
        let mut entry = json!({
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.version,
            "time": seconds(writing.now),
            "fieldsType": "FieldsV1",
            "fieldsV1": fields::to_json(paths),
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = self.subresource.as_str().into();
        }
        entry
    }
}

/// The owners of an object, made up where nobody has counted yet.
fn owners(object: &Value) -> Owners {
    let counted = object["metadata"]["managedFields"].as_array();
    match counted {
        Some(entries) => entries
            .iter()
            .map(|entry| (Owner::of(entry), fields::from_json(&entry["fieldsV1"])))
            .collect(),
        None => {
            let before = Owner {
                manager: "before-first-apply".to_owned(),
                operation: "Update",
                subresource: String::new(),
                version: object.text("/apiVersion").to_owned(),
            };
            vec![(before, fields::of(object))]
        }
    }
}

/// As `metadata.managedFields`; an entry whose fields are the same keeps its time, but for that of who `changed` something.
fn entries(owners: &Owners, old: &Value, writing: &Writing, changed: Option<&Owner>) -> Value {
    let olds = old["metadata"]["managedFields"].as_array();
    owners
        .iter()
        .filter(|(_, paths)| !paths.is_empty())
        .map(|(owner, paths)| {
            let fresh = owner.entry(paths, writing);
            let kept = olds
                .into_iter()
                .flatten()
                .filter(|_| changed != Some(owner))
                .find(|entry| Owner::of(entry) == *owner && entry["fieldsV1"] == fresh["fieldsV1"]);
            kept.cloned().unwrap_or(fresh)
        })
        .collect()
}

/// Paths that would get another value and belong to somebody else.
fn conflicts(
    me: &Owner,
    wanted: &Paths,
    config: &Value,
    live: &Value,
    owners: &Owners,
) -> Vec<(fields::Path, Owner)> {
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

fn conflict(conflicts: &[(fields::Path, Owner)]) -> Failure {
    let with = |owner: &Owner| {
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
    let mut failure = Failure::conflict("", "", "", "").saying(format!(
        "Apply failed with {} conflict{plural}: {}",
        conflicts.len(),
        sentences.join("\n")
    ));
    failure.details = Some(json!({ "causes": causes }));
    failure
}

/// Removes what the manager named last time and does not name now, unless it is somebody else's, too.
fn drop_abandoned(object: &mut Value, me: &Owner, wanted: &Paths, owners: &Owners) {
    let named = owners
        .iter()
        .find(|(owner, _)| owner == me)
        .map(|(_, paths)| paths.clone())
        .unwrap_or_default();
    // In this order an entry of a list goes before what is in it.
    for path in named.difference(wanted) {
        let shared = owners
            .iter()
            .any(|(owner, paths)| owner != me && fields::holds(paths, path));
        if !shared && !fields::is_key(path) && !fields::holds(wanted, path) {
            fields::remove(object, path);
        }
    }
}

/// Counts the owners of an object that was written without apply: what changed belongs to the writer now.
pub(crate) fn track(target: &Target, old: &Value, object: &Value, writing: &Writing) -> Value {
    let (before, after) = (fields::of(old), fields::of(object));
    let changed: Paths = after
        .iter()
        .filter(|path| fields::value(old, path) != fields::value(object, path))
        .cloned()
        .collect();
    let me = Owner {
        manager: writing.manager.clone(),
        operation: "Update",
        subresource: target.subresource.clone(),
        version: target.resource.api_version(),
    };
    let mut owners = owners(old);
    for (_, paths) in &mut owners {
        paths.retain(|path| {
            let gone = before.contains(path) && !after.contains(path);
            !gone && !changed.contains(path)
        });
    }
    // Other values are a change also where it owned those fields already.
    let changes = (!changed.is_empty()).then(|| me.clone());
    match owners.iter_mut().find(|(owner, _)| *owner == me) {
        Some((_, paths)) => paths.extend(changed),
        None => owners.push((me, changed)),
    }
    entries(&owners, old, writing, changes.as_ref())
}
