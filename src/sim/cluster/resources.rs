//! Table of the served resources: groups, kinds, names, verbs and subresources.

/// Kind of object in one API group and version, with its properties.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group; empty for core.
    pub group: &'static str,
    /// Name of the API version, such as `v1`.
    pub version: &'static str,
    /// Plural name in paths.
    pub plural: &'static str,
    /// Singular name, used in messages and by kubectl.
    pub singular: &'static str,
    /// Name of the kind.
    pub kind: &'static str,
    /// Short names that kubectl accepts.
    pub short: &'static [&'static str],
    /// True if objects of this kind belong to a namespace.
    pub namespaced: bool,
    /// Categories for kubectl, such as `all`.
    pub categories: &'static [&'static str],
    /// Subresources with their verbs.
    pub subresources: &'static [(&'static str, &'static [&'static str])],
    /// True if the server counts changes in `metadata.generation`.
    pub generation: bool,
    /// True if PUT may create an object.
    pub create_on_update: bool,
    /// True if a PUT without a resourceVersion is allowed.
    pub unconditional_update: bool,
    /// Collection that contains the objects. If several resources share a collection, it is named after the one in whose form the
    /// objects are stored.
    pub storage: Storage,
    /// True if objects are stored in this group and version. Exactly one of the resources that share a collection has this
    /// property.
    pub as_stored: bool,
    /// True for a custom resource. It is served only after its CRD was installed.
    pub custom: bool,
}

/// Collection of stored objects.
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
    CustomResourceDefinitions,
    ValidatingAdmissionPolicies,
    ValidatingAdmissionPolicyBindings,
    /// No collection. The server answers such requests directly and stores nothing.
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

/// API group of OpenKruise's workloads.
pub const KRUISE: &str = "apps.kruise.io";

/// Advanced DaemonSet. As in OpenKruise, it has no category and no scale subresource.
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

/// All resources in discovery order. Custom resources are served only after their CRD was installed ([`served`]).
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
    Resource {
        group: "authorization.k8s.io",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        kind: "SubjectAccessReview",
        namespaced: false,
        ..PLAIN
    },
    Resource {
        group: "apiextensions.k8s.io",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        kind: "CustomResourceDefinition",
        short: &["crd", "crds"],
        namespaced: false,
        storage: Storage::CustomResourceDefinitions,
        ..PLAIN
    },
    Resource {
        group: "admissionregistration.k8s.io",
        plural: "validatingadmissionpolicies",
        singular: "validatingadmissionpolicy",
        kind: "ValidatingAdmissionPolicy",
        namespaced: false,
        storage: Storage::ValidatingAdmissionPolicies,
        ..PLAIN
    },
    Resource {
        group: "admissionregistration.k8s.io",
        plural: "validatingadmissionpolicybindings",
        singular: "validatingadmissionpolicybinding",
        kind: "ValidatingAdmissionPolicyBinding",
        namespaced: false,
        storage: Storage::ValidatingAdmissionPolicyBindings,
        ..PLAIN
    },
    ADVANCED_DAEMON_SET,
    // Both versions share one collection of objects.
    Resource {
        version: "v1alpha1",
        as_stored: false,
        ..ADVANCED_DAEMON_SET
    },
];

impl Resource {
    /// Returns the `apiVersion`, such as `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns the verbs that the resource supports.
    ///
    /// Definitions and policies are read-only, because the server would not apply them.
    pub fn verbs(&self) -> &'static [&'static str] {
        match self.storage {
            Storage::Nothing => return CREATE,
            Storage::CustomResourceDefinitions
            | Storage::ValidatingAdmissionPolicies
            | Storage::ValidatingAdmissionPolicyBindings => return &["get", "list", "watch"],
            _ => {}
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

    /// Returns the verbs that a subresource supports; `None` if the subresource does not exist.
    pub fn subresource(&self, name: &str) -> Option<&'static [&'static str]> {
        let found = self.subresources.iter().find(|(sub, _)| *sub == name)?;
        Some(found.1)
    }

    /// Returns true if the resource has the subresource `status`.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Returns the `apiVersion` in which the objects are stored.
    pub fn stored_version(&self) -> String {
        stored(self.storage).api_version()
    }
}

/// Returns the served resources. `custom` is true if custom resources are installed.
pub fn served(custom: bool) -> impl Iterator<Item = &'static Resource> {
    RESOURCES
        .iter()
        .filter(move |resource| custom || !resource.custom)
}

/// Returns the served resource with this group, version and plural.
pub fn find(group: &str, version: &str, plural: &str, custom: bool) -> Option<&'static Resource> {
    served(custom).find(|resource| {
        resource.group == group && resource.version == version && resource.plural == plural
    })
}

/// Returns the resource in whose form a collection's objects are stored. Events are stored in the form of the core group.
pub fn stored(storage: Storage) -> &'static Resource {
    RESOURCES
        .iter()
        .find(|resource| resource.storage == storage && resource.as_stored)
        .unwrap_or(&PLAIN)
}

/// Returns every group and version once, in order. The preferred version of a group is first.
pub fn group_versions(custom: bool) -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<_> = served(custom)
        .map(|resource| (resource.group, resource.version))
        .collect();
    all.dedup();
    all
}

/// Returns every group with its versions, in order.
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
