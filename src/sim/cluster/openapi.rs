//! OpenAPI v3, limited to the parts that kubectl needs: PATCH exists and supports `fieldValidation`.
//!
//! The schemas describe no fields, and `kubectl explain` shows a note about that. The server supports strategic merge patches, but
//! the document doesn't list them. So kubectl takes the merge keys from its own types, which have the same keys as the server.

use serde_json::{Map, Value, json};

use super::resources::{group_versions, served};

/// Text shown by `kubectl explain`.
const NO_FIELDS: &str = "The embedded cluster validates fields but has no descriptions of them. Use a real cluster, or see \
                         https://kubernetes.io/docs/reference/kubernetes-api/";

/// Returns the document at a path under `/openapi/`; `None` if there is none. `custom` is true if Advanced DaemonSets are
/// installed.
pub(crate) fn answer(path: &str, custom: bool) -> Option<Value> {
    let rest = path.strip_prefix("/openapi/v3")?;
    match rest.trim_start_matches('/') {
        "" => Some(index(custom)),
        place => group_versions(custom)
            .into_iter()
            .find(|(group, version)| place == self::place(group, version))
            .map(|(group, version)| document(group, version, custom)),
    }
}

fn place(group: &str, version: &str) -> String {
    match group {
        "" => format!("api/{version}"),
        group => format!("apis/{group}/{version}"),
    }
}

fn index(custom: bool) -> Value {
    let paths: Map<String, Value> = group_versions(custom)
        .into_iter()
        .map(|(group, version)| {
            let place = place(group, version);
            let url = format!("/openapi/v3/{place}?hash=1");
            (place, json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

fn document(group: &str, version: &str, custom: bool) -> Value {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in served(custom) {
        if (resource.group, resource.version) != (group, version) {
            continue;
        }
        let namespace = if resource.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let path = format!(
            "/{}{namespace}/{}/{{name}}",
            place(group, version),
            resource.plural
        );
        let kind = json!({ "group": group, "version": version, "kind": resource.kind });
        schemas.insert(resource.kind.to_owned(), schema(&kind));
        paths.insert(path, json!({ "patch": patch(&kind) }));
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "yurt-ds sim", "version": "unversioned" },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

fn schema(kind: &Value) -> Value {
    let part = json!({ "type": "object", "description": NO_FIELDS });
    json!({
        "type": "object",
        "description": NO_FIELDS,
        "properties": { "metadata": part, "spec": part, "status": part },
        "x-kubernetes-group-version-kind": [kind],
    })
}

fn patch(kind: &Value) -> Value {
    let parameter =
        |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "string" } });
    json!({
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": kind,
        "parameters": [
            parameter("dryRun"),
            parameter("fieldManager"),
            parameter("fieldValidation"),
        ],
        "requestBody": { "content": { "application/merge-patch+json": {} } },
        "responses": { "200": { "description": "OK" } },
    })
}
