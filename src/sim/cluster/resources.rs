//! The table of what this server serves: groups, kinds, names, verbs and subresources.

/// One kind of object under one group and version.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group, empty for core.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Name of one, in messages and for kubectl.
    pub singular: &'static str,
    /// Name of the type.
    pub kind: &'static str,
    /// Abbreviations for kubectl.
    pub short: &'static [&'static str],
    /// Does it live in a namespace?
    pub namespaced: bool,
    /// Groups of resources for kubectl, such as `all`.
    pub categories: &'static [&'static str],
    /// What can be under one object, with the verbs that work there.
    pub subresources: &'static [(&'static str, &'static [&'static str])],
    /// Is `metadata.generation` counted?
    pub generation: bool,
    /// May PUT create it?
    pub create_on_update: bool,
    /// May it be replaced without a resourceVersion?
    pub unconditional_update: bool,
    /// Which collection holds the objects: the plural and group of the resource that is stored.
    pub storage: Storage,
    /// Are its objects stored as it shows them? Of several forms of the same objects, one is.
    pub as_stored: bool,
    /// Is it a custom resource? Then it is served only once its definition is installed.
    pub custom: bool,
}

/// A collection of stored objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "each is named after the resource that it holds"
)]
pub enum Storage {
    Namespaces,
    Nodes,
    Pods,
    ConfigMaps,
    Secrets,
    ServiceAccounts,
    Services,
    Events,
    ResourceQuotas,
    DaemonSets,
    ControllerRevisions,
    Jobs,
    Leases,
    PodDisruptionBudgets,
    AdvancedDaemonSets,
    /// Answered at once and never stored.
    Nothing,
}

const STATUS: (&str, &[&str]) = ("status", &["get", "patch", "update"]);
const CREATE: &[&str] = &["create"];

const PLAIN: Resource = Resource {
    group: "",
    version: "v1",
    plural: "",
    singular: "",
    kind: "",
    short: &[],
    namespaced: true,
    categories: &[],
    subresources: &[],
    generation: false,
    create_on_update: false,
    unconditional_update: true,
    storage: Storage::Nothing,
    as_stored: true,
    custom: false,
};

/// The group of OpenKruise's workloads.
pub const KRUISE: &str = "apps.kruise.io";

/// The Advanced DaemonSet. It is in no category and has no scale, as in OpenKruise.
const ADVANCED_DAEMON_SET: Resource = Resource {
    group: KRUISE,
    version: "v1beta1",
    plural: "daemonsets",
    singular: "daemonset",
    kind: "DaemonSet",
    short: &["daemon", "ads"],
    subresources: &[STATUS],
    generation: true,
    unconditional_update: false,
    storage: Storage::AdvancedDaemonSets,
    custom: true,
    ..PLAIN
};

/// Everything that can be served, in the order of discovery; custom resources only once they are installed ([`served`]).
pub const RESOURCES: &[Resource] = &[
    Resource {
        plural: "namespaces",
        singular: "namespace",
        kind: "Namespace",
        short: &["ns"],
        namespaced: false,
        subresources: &[STATUS],
        storage: Storage::Namespaces,
        ..PLAIN
    },
    Resource {
        plural: "nodes",
        singular: "node",
        kind: "Node",
        short: &["no"],
        namespaced: false,
        subresources: &[STATUS],
        storage: Storage::Nodes,
        ..PLAIN
    },
    Resource {
        plural: "pods",
        singular: "pod",
        kind: "Pod",
        short: &["po"],
        categories: &["all"],
        subresources: &[STATUS, ("binding", CREATE), ("eviction", CREATE)],
        generation: true,
        storage: Storage::Pods,
        ..PLAIN
    },
    Resource {
        plural: "configmaps",
        singular: "configmap",
        kind: "ConfigMap",
        short: &["cm"],
        storage: Storage::ConfigMaps,
        ..PLAIN
    },
    Resource {
        plural: "secrets",
        singular: "secret",
        kind: "Secret",
        storage: Storage::Secrets,
        ..PLAIN
    },
    Resource {
        plural: "serviceaccounts",
        singular: "serviceaccount",
        kind: "ServiceAccount",
        short: &["sa"],
        storage: Storage::ServiceAccounts,
        ..PLAIN
    },
    Resource {
        plural: "services",
        singular: "service",
        kind: "Service",
        short: &["svc"],
        categories: &["all"],
        subresources: &[STATUS],
        create_on_update: true,
        storage: Storage::Services,
        ..PLAIN
    },
    Resource {
        plural: "events",
        singular: "event",
        kind: "Event",
        short: &["ev"],
        create_on_update: true,
        storage: Storage::Events,
        ..PLAIN
    },
    Resource {
        plural: "resourcequotas",
        singular: "resourcequota",
        kind: "ResourceQuota",
        short: &["quota"],
        subresources: &[STATUS],
        storage: Storage::ResourceQuotas,
        ..PLAIN
    },
    Resource {
        group: "apps",
        plural: "daemonsets",
        singular: "daemonset",
        kind: "DaemonSet",
        short: &["ds"],
        categories: &["all"],
        subresources: &[STATUS],
        generation: true,
        storage: Storage::DaemonSets,
        ..PLAIN
    },
    Resource {
        group: "apps",
        plural: "controllerrevisions",
        singular: "controllerrevision",
        kind: "ControllerRevision",
        storage: Storage::ControllerRevisions,
        ..PLAIN
    },
    Resource {
        group: "batch",
        plural: "jobs",
        singular: "job",
        kind: "Job",
        categories: &["all"],
        subresources: &[STATUS],
        generation: true,
        storage: Storage::Jobs,
        ..PLAIN
    },
    Resource {
        group: "coordination.k8s.io",
        plural: "leases",
        singular: "lease",
        kind: "Lease",
        create_on_update: true,
        unconditional_update: false,
        storage: Storage::Leases,
        ..PLAIN
    },
    Resource {
        group: "events.k8s.io",
        plural: "events",
        singular: "event",
        kind: "Event",
        short: &["ev"],
        create_on_update: true,
        storage: Storage::Events,
        as_stored: false,
        ..PLAIN
    },
    Resource {
        group: "policy",
        plural: "poddisruptionbudgets",
        singular: "poddisruptionbudget",
        kind: "PodDisruptionBudget",
        short: &["pdb"],
        subresources: &[STATUS],
        generation: true,
        storage: Storage::PodDisruptionBudgets,
        ..PLAIN
    },
    Resource {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        kind: "SelfSubjectAccessReview",
        namespaced: false,
        ..PLAIN
    },
    ADVANCED_DAEMON_SET,
    // The same objects: nothing but the version is another one.
    Resource {
        version: "v1alpha1",
        as_stored: false,
        ..ADVANCED_DAEMON_SET
    },
];

impl Resource {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// What clients may do with it.
    pub fn verbs(&self) -> &'static [&'static str] {
        if self.storage == Storage::Nothing {
            return CREATE;
        }
        &[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]
    }

    /// The verbs of a subresource; `None` when there is no such one.
    pub fn subresource(&self, name: &str) -> Option<&'static [&'static str]> {
        let found = self.subresources.iter().find(|(sub, _)| *sub == name)?;
        Some(found.1)
    }

    /// Has it a status that is written apart?
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// The `apiVersion` that its objects are stored with.
    pub fn stored_version(&self) -> String {
        stored(self.storage).api_version()
    }
}

/// What is served, with the custom resources if those are installed.
pub fn served(custom: bool) -> impl Iterator<Item = &'static Resource> {
    RESOURCES
        .iter()
        .filter(move |resource| custom || !resource.custom)
}

/// The resource at a path.
pub fn find(group: &str, version: &str, plural: &str, custom: bool) -> Option<&'static Resource> {
    served(custom).find(|resource| {
        resource.group == group && resource.version == version && resource.plural == plural
    })
}

/// The resource whose objects a collection holds (core for events).
pub fn stored(storage: Storage) -> &'static Resource {
    RESOURCES
        .iter()
        .find(|resource| resource.storage == storage && resource.as_stored)
        .unwrap_or(&PLAIN)
}

/// Every group and version, each once, in order: the preferred version of a group first.
pub fn group_versions(custom: bool) -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<_> = served(custom)
        .map(|resource| (resource.group, resource.version))
        .collect();
    all.dedup();
    all
}

/// Every group with its versions, in order.
pub fn groups(custom: bool) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for (group, version) in group_versions(custom) {
        match all.last_mut() {
            Some((last, versions)) if *last == group => versions.push(version),
            _ => all.push((group, vec![version])),
        }
    }
    all
}
