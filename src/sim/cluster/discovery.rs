//! What clients ask before they ask for objects: health, version, groups and resources.

use serde_json::{Value, json};

use super::resources::{self, RESOURCES, Resource};

/// The answer of Kubernetes 1.`minor` to a path that is no resource; `None` when there is nothing there.
pub(crate) fn answer(path: &str, aggregated: bool, minor: u32) -> Option<Value> {
    let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match segments.as_slice() {
        [] => Some(json!({ "paths": paths() })),
        ["version"] => Some(version(minor)),
        ["api"] if aggregated => Some(aggregated_groups(true)),
        ["apis"] if aggregated => Some(aggregated_groups(false)),
        ["api"] => Some(json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        })),
        ["apis"] => Some(json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": groups().map(group).collect::<Vec<_>>(),
        })),
        ["apis", name] => groups().find(|found| found.0 == *name).map(|found| {
            let mut group = group(found);
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            group
        }),
        ["api", version] => resource_list("", version),
        ["apis", group, version] => resource_list(group, version),
        _ => None,
    }
}

fn paths() -> Vec<String> {
    let mut paths: Vec<String> = ["/api", "/api/v1", "/apis"].map(str::to_owned).to_vec();
    for (group, version) in groups() {
        paths.push(format!("/apis/{group}"));
        paths.push(format!("/apis/{group}/{version}"));
    }
    paths.extend(
        [
            "/healthz",
            "/livez",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        .map(str::to_owned),
    );
    paths
}

fn version(minor: u32) -> Value {
    json!({
        "major": "1",
        "minor": minor.to_string(),
        "gitVersion": format!("v1.{minor}.0+yurt-ds-sim"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// The named groups, without core.
fn groups() -> impl Iterator<Item = (&'static str, &'static str)> {
    resources::group_versions()
        .into_iter()
        .filter(|(group, _)| !group.is_empty())
}

fn group((group, version): (&str, &str)) -> Value {
    let version = json!({ "groupVersion": format!("{group}/{version}"), "version": version });
    json!({ "name": group, "versions": [version], "preferredVersion": version })
}

fn of_group<'a>(group: &'a str, version: &'a str) -> impl Iterator<Item = &'static Resource> + 'a {
    RESOURCES
        .iter()
        .filter(move |resource| resource.group == group && resource.version == version)
}

fn resource_list(group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for resource in of_group(group, version) {
        list.push(json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": resource.verbs(),
            "shortNames": resource.short,
            "categories": resource.categories,
        }));
        for (name, verbs) in resource.subresources {
            let (group, version, kind) = subresource_kind(resource, name);
            list.push(json!({
                "name": format!("{}/{name}", resource.plural),
                "singularName": "",
                "namespaced": resource.namespaced,
                "group": group,
                "version": version,
                "kind": kind,
                "verbs": verbs,
            }));
        }
    }
    if list.is_empty() {
        return None;
    }
    let group_version = match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    };
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": list,
    }))
}

fn subresource_kind(resource: &Resource, name: &str) -> (&'static str, &'static str, &'static str) {
    match name {
        "eviction" => ("policy", "v1", "Eviction"),
        "binding" => ("", "v1", "Binding"),
        _ => (resource.group, resource.version, resource.kind),
    }
}

/// `apidiscovery.k8s.io/v2`: everything in two requests instead of one for each group.
fn aggregated_groups(core: bool) -> Value {
    let items: Vec<Value> = resources::group_versions()
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, version)| {
            let resources: Vec<Value> = of_group(group, version).map(aggregated_resource).collect();
            json!({
                "metadata": { "name": group, "creationTimestamp": null },
                "versions": [{ "version": version, "resources": resources, "freshness": "Current" }],
            })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(resource: &'static Resource) -> Value {
    let kind = |(group, version, kind): (&str, &str, &str)| json!({ "group": group, "version": version, "kind": kind });
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|(name, verbs)| {
            json!({
                "subresource": name,
                "responseKind": kind(subresource_kind(resource, name)),
                "verbs": verbs,
            })
        })
        .collect();
    json!({
        "resource": resource.plural,
        "responseKind": kind((resource.group, resource.version, resource.kind)),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs(),
        "shortNames": resource.short,
        "categories": resource.categories,
        "subresources": subresources,
    })
}
