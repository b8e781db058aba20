//! Discovery requests of clients: health, version, groups and resources.

use serde_json::{Value, json};

use super::resources::{self, Resource};

/// Returns the response of Kubernetes 1.`minor` to a path that names no resource; `None` if the path is unknown.
///
/// `custom` is true if Advanced DaemonSets are installed.
pub(crate) fn answer(path: &str, aggregated: bool, minor: u32, custom: bool) -> Option<Value> {
    let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match segments.as_slice() {
        [] => Some(json!({ "paths": paths(custom) })),
        ["version"] => Some(version(minor)),
        ["api"] if aggregated => Some(aggregated_groups(true, custom)),
        ["apis"] if aggregated => Some(aggregated_groups(false, custom)),
        ["api"] => Some(json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        })),
        ["apis"] => Some(json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": groups(custom).map(|(name, versions)| group(name, &versions)).collect::<Vec<_>>(),
        })),
        ["apis", name] => groups(custom)
            .find(|found| found.0 == *name)
            .map(|(_, versions)| {
                let mut group = group(name, &versions);
                group["kind"] = "APIGroup".into();
                group["apiVersion"] = "v1".into();
                group
            }),
        ["api", version] => resource_list("", version, custom),
        ["apis", group, version] => resource_list(group, version, custom),
        _ => None,
    }
}

fn paths(custom: bool) -> Vec<String> {
    let mut paths: Vec<String> = ["/api", "/api/v1", "/apis"].map(str::to_owned).to_vec();
    for (group, versions) in groups(custom) {
        paths.push(format!("/apis/{group}"));
        let versions = versions.iter();
        paths.extend(versions.map(|version| format!("/apis/{group}/{version}")));
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

/// Returns the API groups except core, each with its versions.
fn groups(custom: bool) -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    resources::groups(custom)
        .into_iter()
        .filter(|(group, _)| !group.is_empty())
}

fn group(group: &str, versions: &[&str]) -> Value {
    let version = |version: &&str| json!({ "groupVersion": format!("{group}/{version}"), "version": version });
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({ "name": group, "versions": versions, "preferredVersion": versions.first() })
}

fn of_group<'a>(
    group: &'a str,
    version: &'a str,
    custom: bool,
) -> impl Iterator<Item = &'static Resource> + 'a {
    resources::served(custom)
        .filter(move |resource| resource.group == group && resource.version == version)
}

fn resource_list(group: &str, version: &str, custom: bool) -> Option<Value> {
    let mut list = Vec::new();
    for resource in of_group(group, version, custom) {
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

/// Returns discovery in the format `apidiscovery.k8s.io/v2`. With this format, clients need two requests in total. Otherwise they
/// need one request per group.
fn aggregated_groups(core: bool, custom: bool) -> Value {
    let of_version = |group: &str, version: &str| {
        let resources = of_group(group, version, custom).map(aggregated_resource);
        let resources: Vec<Value> = resources.collect();
        json!({ "version": version, "resources": resources, "freshness": "Current" })
    };
    let items: Vec<Value> = resources::groups(custom)
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions = versions.into_iter();
            let versions: Vec<Value> = versions.map(|one| of_version(group, one)).collect();
            json!({
                "metadata": { "name": group, "creationTimestamp": null },
                "versions": versions,
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
