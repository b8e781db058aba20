//! Checks before the installation: the caller may create the objects of the manifests, and their names are free.

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt as _};

use super::finding::{CheckId, Finding};
use super::reader::{Unread, few, read};
use crate::ctl::access::Access;
use crate::k8s::permission::{Permission, cluster};

/// Label of the objects that belong to yurt-ds.
const NAME_LABEL: &str = "app.kubernetes.io/name";
/// Label of the objects that the chart installs.
const CHART_LABEL: &str = "helm.sh/chart";

/// Rights to create each kind of object in `manifests/base`.
const BASE: [Permission; 11] = [
    cluster("", "namespaces", "create"),
    cluster("", "serviceaccounts", "create"),
    cluster("apps", "deployments", "create"),
    cluster("apps", "daemonsets", "create"),
    cluster("rbac.authorization.k8s.io", "clusterroles", "create"),
    cluster("rbac.authorization.k8s.io", "clusterrolebindings", "create"),
    cluster("rbac.authorization.k8s.io", "roles", "create"),
    cluster("rbac.authorization.k8s.io", "rolebindings", "create"),
    cluster("policy", "poddisruptionbudgets", "create"),
    cluster("scheduling.k8s.io", "priorityclasses", "create"),
    cluster("networking.k8s.io", "networkpolicies", "create"),
];
/// Right to create the CustomResourceDefinition of Advanced DaemonSets.
const ADVANCED: [Permission; 1] = [cluster(
    "apiextensions.k8s.io",
    "customresourcedefinitions",
    "create",
)];

/// Object of the manifests whose name other software could use.
struct InstalledObject {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    /// Namespace in the manifests; `None` for a cluster-scoped object.
    namespace: Option<&'static str>,
    name: &'static str,
}

/// Objects of `manifests/base`, except namespaces.
const OBJECTS: [InstalledObject; 16] = [
    of_cluster(RBAC, "ClusterRole", "clusterroles", CONTROLLER),
    of_cluster(RBAC, "ClusterRole", "clusterroles", AGENT),
    of_cluster(RBAC, "ClusterRole", "clusterroles", "yurt-ds-viewer"),
    of_cluster(RBAC, "ClusterRole", "clusterroles", "yurt-ds-operator"),
    of_cluster(
        RBAC,
        "ClusterRoleBinding",
        "clusterrolebindings",
        CONTROLLER,
    ),
    of_cluster(RBAC, "ClusterRoleBinding", "clusterrolebindings", AGENT),
    of_cluster(
        "scheduling.k8s.io",
        "PriorityClass",
        "priorityclasses",
        CONTROLLER,
    ),
    of_cluster(
        "scheduling.k8s.io",
        "PriorityClass",
        "priorityclasses",
        AGENT,
    ),
    of_controller("", "ServiceAccount", "serviceaccounts"),
    of_controller(RBAC, "Role", "roles"),
    of_controller(RBAC, "RoleBinding", "rolebindings"),
    of_controller("apps", "Deployment", "deployments"),
    of_controller("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
    of_controller("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
    of_agent("", "ServiceAccount", "serviceaccounts"),
    of_agent("apps", "DaemonSet", "daemonsets"),
];

/// API group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";
/// Name of the controller's objects.
const CONTROLLER: &str = "yurt-ds-controller";
/// Name of the agents' objects.
const AGENT: &str = "yurt-ds-ota-server";

const fn of_cluster(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    name: &'static str,
) -> InstalledObject {
    InstalledObject {
        group,
        kind,
        plural,
        namespace: None,
        name,
    }
}

const fn of_controller(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> InstalledObject {
    InstalledObject {
        namespace: Some("yurt-ds"),
        ..of_cluster(group, kind, plural, CONTROLLER)
    }
}

const fn of_agent(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> InstalledObject {
    InstalledObject {
        namespace: Some("yurt-ds-edge"),
        ..of_cluster(group, kind, plural, AGENT)
    }
}

/// Owner of an object with a name of the manifests.
enum NameOwner {
    /// The name is free.
    Nobody,
    /// An earlier installation of yurt-ds.
    YurtDs(String),
    /// Other software.
    Other(String),
}

/// Returns the findings about the rights of the caller, and about the names.
pub(super) async fn findings(access: &Access) -> Vec<Finding> {
    let (base, advanced, names) = tokio::join!(base(access), advanced(access), names(access));
    vec![base, advanced, names]
}

async fn base(access: &Access) -> Finding {
    let id = CheckId::InstallRights;
    match lacking(access, &BASE).await {
        Err(unread) => Finding::skipped(id, unread.0),
        Ok(lacks) if lacks.is_empty() => Finding::ok(
            id,
            "These credentials may create the objects of manifests/base.",
        ),
        Ok(lacks) => Finding::failed(
            id,
            format!(
                "These credentials may not create {}, which manifests/base contains.",
                few(&lacks)
            ),
            "Use the credentials of an administrator of the cluster: --kubeconfig or --context.",
        ),
    }
}

async fn advanced(access: &Access) -> Finding {
    let id = CheckId::InstallRightsAdvanced;
    match lacking(access, &ADVANCED).await {
        Err(unread) => Finding::skipped(id, unread.0),
        Ok(lacks) if lacks.is_empty() => Finding::ok(
            id,
            "These credentials may create the definition of Advanced DaemonSets.",
        ),
        Ok(lacks) => Finding::warning(
            id,
            format!(
                "These credentials may not create {}. Only Advanced DaemonSets need that.",
                few(&lacks)
            ),
            "For Advanced DaemonSets, use the credentials of an administrator of the cluster.",
        ),
    }
}

/// Returns the resources that the caller may not create.
async fn lacking(access: &Access, needed: &[Permission]) -> Result<Vec<String>, Unread> {
    let mut lacking = Vec::new();
    let reviews = needed.iter().map(|one| is_granted(access, *one));
    for (permission, review) in needed.iter().zip(join_all(reviews).await) {
        if !review? {
            lacking.push(permission.resource_and_group());
        }
    }
    Ok(lacking)
}

async fn is_granted(access: &Access, permission: Permission) -> Result<bool, Unread> {
    let api: Api<SelfSubjectAccessReview> = Api::all(access.client.clone());
    let review = permission.review("");
    let created = async { api.create(&PostParams::default(), &review).await };
    match access.wait(created).await {
        Ok(answer) => Ok(answer.status.is_some_and(|status| status.allowed)),
        Err(error) => Err(Unread::new("ask which rights they have", &error)),
    }
}

async fn names(access: &Access) -> Finding {
    let id = CheckId::NamesFree;
    let owners = OBJECTS.iter().map(|object| owner(access, object));
    let (mut own, mut other) = (Vec::new(), Vec::new());
    for owner in join_all(owners).await {
        match owner {
            Err(unread) => return Finding::skipped(id, unread.0),
            Ok(NameOwner::Nobody) => {}
            Ok(NameOwner::YurtDs(name)) => own.push(name),
            Ok(NameOwner::Other(name)) => other.push(name),
        }
    }
    if let Some(first) = other.first() {
        let (kind, name) = first.split_once(' ').unwrap_or(("object", first));
        return Finding::failed(
            id,
            format!(
                "Other software uses names of the manifests: {}.",
                few(&other)
            ),
            format!(
                "Remove it, or install with Helm under another name (fullnameOverride). See it: kubectl get {kind} {name} -o yaml"
            ),
        );
    }
    match own.first() {
        None => Finding::ok(id, "No object has a name of the manifests."),
        Some(first) => Finding::ok(
            id,
            format!("yurt-ds is installed already ({first}). A new installation upgrades it."),
        ),
    }
}

/// Finds out which software uses the name of an object.
async fn owner(access: &Access, object: &InstalledObject) -> Result<NameOwner, Unread> {
    let gvk = GroupVersionKind::gvk(object.group, "v1", object.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, object.plural);
    let client = access.client.clone();
    let api: Api<DynamicObject> = match object.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let doing = format!("get {}", object.plural);
    let found = read(access, &doing, api.get_metadata(object.name)).await?;
    let name = match object.namespace {
        Some(namespace) => format!("{} {} -n {namespace}", object.plural, object.name),
        None => format!("{} {}", object.plural, object.name),
    };
    Ok(match found {
        None => NameOwner::Nobody,
        Some(found) if is_own(&found) => NameOwner::YurtDs(name),
        Some(_) => NameOwner::Other(name),
    })
}

fn is_own(found: &PartialObjectMeta<DynamicObject>) -> bool {
    let label = |key: &str| found.labels().get(key).map(String::as_str);
    label(NAME_LABEL) == Some("yurt-ds")
        || label(CHART_LABEL).is_some_and(|chart| chart.starts_with("yurt-ds-"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    /// Returns kind, namespace and name of each object in `manifests/base`.
    fn objects_of_base() -> BTreeSet<[String; 3]> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/base");
        let folders = ["", "rbac", "controller", "ota-server"].map(|name| root.join(name));
        let mut objects = BTreeSet::new();
        for file in folders
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        {
            let path = file.unwrap().path();
            let is_object = path.extension().is_some_and(|end| end == "yaml")
                && !path.ends_with("kustomization.yaml");
            if !is_object {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for document in text.split("\n---\n") {
                let object: Value = serde_saphyr::from_str(document).unwrap();
                let part = |field: &Value| field.as_str().unwrap_or_default().to_owned();
                let meta = &object["metadata"];
                objects.insert([
                    part(&object["kind"]),
                    part(&meta["namespace"]),
                    part(&meta["name"]),
                ]);
            }
        }
        objects
    }

    #[test]
    fn checked_objects_and_kinds_match_the_base_manifests() {
        let objects = objects_of_base();
        assert!(objects.len() > 15, "{objects:?}");
        let checked = OBJECTS.iter().map(|object| {
            let namespace = object.namespace.unwrap_or_default();
            [object.kind, namespace, object.name].map(str::to_owned)
        });
        let named = objects.iter().filter(|[kind, ..]| kind != "Namespace");
        assert_eq!(checked.collect::<BTreeSet<_>>(), named.cloned().collect());
        let kinds: BTreeSet<String> = objects.into_iter().map(|[kind, ..]| kind).collect();
        let plurals: BTreeSet<&str> = BASE.iter().map(|right| right.resource).collect();
        assert_eq!(kinds.len(), plurals.len(), "{kinds:?} {plurals:?}");
        for kind in kinds {
            let name = kind.to_lowercase();
            let plural = match name.strip_suffix('y') {
                Some(start) => format!("{start}ies"),
                None if name.ends_with('s') => format!("{name}es"),
                None => format!("{name}s"),
            };
            assert!(plurals.contains(&*plural), "{kind}");
        }
    }
}
