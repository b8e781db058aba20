//! Ownership of fields: the sets of paths in `metadata.managedFields`.
//!
//! A path consists of steps: fields (`f:spec`), entries of keyed lists (`k:{"name":"c"}`) and values of sets (`v:"x"`). A set of
//! paths has one path per innermost value, and one for each entry of a keyed list. A list or map that is replaced as a whole
//! ("atomic") counts as one value.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::patch::{ListKind, list_kind};
use super::resources::KRUISE;

/// Path as a list of steps in the notation of `fieldsV1`.
pub(crate) type Path = Vec<String>;

pub(crate) type Paths = BTreeSet<Path>;

/// Last step of a path that stands for a list entry itself, without its contents.
const SELF: &str = ".";

/// Function that returns the step to an entry of a list; `None` if the entry lacks its key.
type StepOf<'a> = Box<dyn Fn(&Value) -> Option<String> + 'a>;

/// Structure of a value. Managers own its fields, its entries or the whole value.
enum Shape<'a> {
    Fields(&'a Map<String, Value>),
    Entries(Vec<(String, &'a Value)>),
    Whole,
}

/// Placeholder for the names of a field and its parent if no schema defines how lists are merged.
///
/// Without a schema, lists are atomic (replaced as a whole), and maps are merged field by field.
const UNTYPED: &str = "*";

/// Name of a field, and name of its parent. Together they determine how the field is merged.
#[derive(Clone, Copy)]
struct Names<'a> {
    parent: &'a str,
    field: &'a str,
    /// True inside an Advanced DaemonSet, whose schema does not describe the template.
    custom: bool,
}

impl<'a> Names<'a> {
    fn root(object: &Value) -> Self {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        Self {
            parent: "",
            field: "",
            custom: version.starts_with(KRUISE),
        }
    }

    /// Returns the names of the field `name` inside this field.
    fn inside(self, name: &'a str) -> Self {
        let is_template = self.custom && self.field == "spec" && name == "template";
        let (parent, field) = if self.field == UNTYPED || is_template {
            (UNTYPED, UNTYPED)
        } else {
            (self.field, name)
        };
        Self {
            parent,
            field,
            ..self
        }
    }
}

/// Returns true for maps that the API types define as atomic.
fn is_atomic(field: &str) -> bool {
    matches!(
        field,
        "selector"
            | "nodeSelector"
            | "fieldRef"
            | "resourceFieldRef"
            | "configMapKeyRef"
            | "secretKeyRef"
            | "involvedObject"
            | "requiredDuringSchedulingIgnoredDuringExecution"
    )
}

fn shape<'a>(names: Names<'_>, value: &'a Value) -> Shape<'a> {
    match value {
        Value::Object(map) if !map.is_empty() && !is_atomic(names.field) => Shape::Fields(map),
        Value::Array(list) if !list.is_empty() => {
            let step: StepOf<'_> = match list_kind(names.parent, names.field) {
                ListKind::Atomic => return Shape::Whole,
                ListKind::Set => Box::new(|item| Some(format!("v:{item}"))),
                ListKind::Map(key) => Box::new(move |item| key_step(names.field, key, item)),
            };
            let steps: Option<Vec<_>> = list.iter().map(|item| Some((step(item)?, item))).collect();
            steps.map_or(Shape::Whole, Shape::Entries)
        }
        _ => Shape::Whole,
    }
}

/// Returns the step to a list entry. Ports and spread constraints have a second key field.
fn key_step(field: &str, key: &str, item: &Value) -> Option<String> {
    let mut keys = Map::new();
    keys.insert(key.to_owned(), item.get(key)?.clone());
    let second = match field {
        "ports" => Some(("protocol", "TCP")),
        "topologySpreadConstraints" => Some(("whenUnsatisfiable", "")),
        _ => None,
    };
    if let Some((name, default)) = second {
        let value = item.get(name).cloned().unwrap_or_else(|| default.into());
        keys.insert(name.to_owned(), value);
    }
    Some(format!("k:{}", Value::Object(keys)))
}

/// Metadata fields that managers can own. The server manages all others.
pub(crate) const OWNED_METADATA: [&str; 4] =
    ["labels", "annotations", "finalizers", "ownerReferences"];

/// Returns the paths of all fields of an object that managers can own.
pub(crate) fn paths(object: &Value) -> Paths {
    let mut paths = Paths::new();
    let Value::Object(fields) = object else {
        return paths;
    };
    let root = Names::root(object);
    for (field, value) in fields {
        match field.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                for name in OWNED_METADATA {
                    if let Some(value) = value.get(name) {
                        let start = vec!["f:metadata".to_owned(), format!("f:{name}")];
                        let names = root.inside(field).inside(name);
                        collect(names, value, start, &mut paths);
                    }
                }
            }
            _ => {
                let start = vec![format!("f:{field}")];
                collect(root.inside(field), value, start, &mut paths);
            }
        }
    }
    paths
}

fn collect(names: Names<'_>, value: &Value, path: Path, paths: &mut Paths) {
    let extended = |step: String| {
        let mut longer = path.clone();
        longer.push(step);
        longer
    };
    match shape(names, value) {
        Shape::Whole => drop(paths.insert(path)),
        Shape::Fields(map) => {
            for (name, value) in map {
                let path = extended(format!("f:{name}"));
                collect(names.inside(name), value, path, paths);
            }
        }
        Shape::Entries(entries) => {
            for (step, item) in entries {
                let inside = extended(step);
                match item {
                    Value::Object(map) => {
                        for (name, value) in map {
                            let mut longer = inside.clone();
                            longer.push(format!("f:{name}"));
                            collect(names.inside(name), value, longer, paths);
                        }
                        let mut itself = inside;
                        itself.push(SELF.to_owned());
                        paths.insert(itself);
                    }
                    _ => drop(paths.insert(inside)),
                }
            }
        }
    }
}

/// Returns the value to which a path leads; `None` if the object has no such field or entry.
pub(crate) fn value<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    let (mut place, mut names) = (object, Names::root(object));
    for step in path {
        if step == SELF {
            // The path stands for the entry itself. The manager owns its existence but not its contents.
            return Some(&Value::Null);
        }
        place = match step.strip_prefix("f:") {
            Some(name) => {
                names = names.inside(name);
                place.get(name)?
            }
            None => {
                let Shape::Entries(entries) = shape(names, place) else {
                    return None;
                };
                entries.into_iter().find(|(have, _)| have == step)?.1
            }
        };
    }
    Some(place)
}

/// Removes the value at the end of a path. Also removes the lists and maps that become empty.
pub(crate) fn remove(object: &mut Value, path: &[String]) {
    let names = Names::root(object);
    remove_in(object, path, names);
}

fn remove_in(place: &mut Value, path: &[String], names: Names<'_>) {
    let Some((step, rest)) = path.split_first() else {
        return;
    };
    let last = rest.is_empty() || rest[0] == SELF;
    if let (Some(name), Value::Object(map)) = (step.strip_prefix("f:"), &mut *place) {
        if let (false, Some(child)) = (last, map.get_mut(name)) {
            remove_in(child, rest, names.inside(name));
        }
        let emptied = map.get(name).is_some_and(is_empty);
        if last || emptied {
            map.remove(name);
        }
        return;
    }
    let found = match shape(names, place) {
        Shape::Entries(entries) => entries.iter().position(|(have, _)| have == step),
        _ => None,
    };
    if let (Some(at), Value::Array(list)) = (found, place) {
        if last {
            list.remove(at);
        } else {
            remove_in(&mut list[at], rest, names);
        }
    }
}

fn has_owners_inside(names: Names<'_>, place: &Value) -> bool {
    !matches!(shape(names, place), Shape::Whole)
}

/// Returns true if `paths` contains this path or a path inside it.
pub(crate) fn holds(paths: &Paths, path: &[String]) -> bool {
    let place = match path {
        [place @ .., last] if last == SELF => place,
        path => path,
    };
    paths.iter().any(|have| have.starts_with(place))
}

/// Returns true if the field is a key of its list entry. A key field is only removed together with the entry.
pub(crate) fn is_key(path: &[String]) -> bool {
    let [.., entry, field] = path else {
        return false;
    };
    let keys = entry
        .strip_prefix("k:")
        .and_then(|keys| serde_json::from_str::<Value>(keys).ok());
    let field = field.strip_prefix("f:").unwrap_or("");
    keys.is_some_and(|keys| keys.get(field).is_some())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Sets all fields of `config` in an object, and keeps all other fields.
pub(crate) fn overlay(object: &mut Value, config: &Value) {
    let Value::Object(fields) = config else {
        return;
    };
    let root = Names::root(config);
    for (field, value) in fields {
        overlay_at(&mut object[field], value, root.inside(field));
    }
}

fn overlay_at(place: &mut Value, config: &Value, names: Names<'_>) {
    match shape(names, config) {
        // An empty list or map removes nothing, so entries that other managers own are kept.
        Shape::Whole if is_empty(config) && has_owners_inside(names, place) => {}
        Shape::Whole => *place = config.clone(),
        Shape::Fields(map) => {
            if !place.is_object() {
                *place = json!({});
            }
            for (name, value) in map {
                overlay_at(&mut place[name], value, names.inside(name));
            }
        }
        Shape::Entries(entries) => {
            for (step, item) in entries {
                let found = match shape(names, place) {
                    Shape::Entries(have) => have.iter().position(|(name, _)| *name == step),
                    _ => None,
                };
                if !place.is_array() {
                    *place = json!([]);
                }
                let Value::Array(list) = place else {
                    continue;
                };
                match (found, item) {
                    (Some(at), Value::Object(map)) => {
                        for (name, value) in map {
                            overlay_at(&mut list[at][name], value, names.inside(name));
                        }
                    }
                    (Some(_), _) => {}
                    (None, item) => list.push(item.clone()),
                }
            }
        }
    }
}

/// Encodes paths as `fieldsV1`.
pub(crate) fn to_json(paths: &Paths) -> Value {
    let mut tree = json!({});
    for path in paths {
        let mut place = &mut tree;
        for step in path {
            place = &mut place[step];
            if place.is_null() {
                *place = json!({});
            }
        }
    }
    tree
}

/// Decodes `fieldsV1` to paths.
pub(crate) fn from_json(tree: &Value) -> Paths {
    fn walk(tree: &Value, path: &Path, paths: &mut Paths) {
        let Some(map) = tree.as_object().filter(|map| !map.is_empty()) else {
            if !path.is_empty() {
                paths.insert(path.clone());
            }
            return;
        };
        for (step, below) in map {
            let mut longer = path.clone();
            longer.push(step.clone());
            walk(below, &longer, paths);
        }
    }
    let mut paths = Paths::new();
    walk(tree, &Path::new(), &mut paths);
    paths
}

/// Formats a path for messages: `.spec.template.spec.containers[name="c"].image`.
pub(crate) fn display(path: &[String]) -> String {
    let mut text = String::new();
    for step in path {
        if let Some(name) = step.strip_prefix("f:") {
            text.push('.');
            text.push_str(name);
        } else if let Some(keys) = step.strip_prefix("k:") {
            let keys: Value = serde_json::from_str(keys).unwrap_or_default();
            let pairs: Vec<String> = keys
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            text.push_str(&format!("[{}]", pairs.join(",")));
        } else if let Some(value) = step.strip_prefix("v:") {
            text.push_str(&format!("[={value}]"));
        }
    }
    text
}
