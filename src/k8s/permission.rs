//! Permissions: one verb on one resource, as in an RBAC rule. Each component lists the permissions that it needs.

use std::fmt;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};

use crate::core::names;

/// Scope of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PermissionScope {
    /// Objects in all namespaces.
    Cluster,
    /// All Leases in the namespace of the yurt-ds Lease.
    LeaseNamespace,
    /// Only the yurt-ds Lease itself.
    Lease,
    /// Leases with the name of the yurt-ds Lease, in all namespaces.
    AnyLease,
    /// The Lease of OpenKruise's manager.
    KruiseLease,
}

/// One verb on one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// Objects for which the permission is needed.
    pub scope: PermissionScope,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Name of the resource, or resource/subresource.
    pub resource: &'static str,
    /// Verb, as in an RBAC rule.
    pub verb: &'static str,
}

/// Creates a permission for objects in all namespaces.
pub(crate) const fn cluster(
    group: &'static str,
    resource: &'static str,
    verb: &'static str,
) -> Permission {
    Permission {
        scope: PermissionScope::Cluster,
        group,
        resource,
        verb,
    }
}

/// Creates a permission for Leases in this scope.
pub(crate) const fn lease(scope: PermissionScope, verb: &'static str) -> Permission {
    Permission {
        scope,
        group: "coordination.k8s.io",
        resource: "leases",
        verb,
    }
}

impl Permission {
    /// Describes the permission by verb, resource and group.
    pub(crate) fn describe(&self) -> String {
        format!("{} {}", self.verb, self.resource_and_group())
    }

    /// Returns resource and group in kubectl's notation, such as `daemonsets.apps`.
    pub fn resource_and_group(&self) -> String {
        match self.group {
            "" => self.resource.to_owned(),
            group => format!("{}.{group}", self.resource),
        }
    }

    /// Returns true if a request with this verb and resource needs this permission. `resource` may include the group.
    pub(crate) fn is_for(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && (self.resource == resource || self.resource_and_group() == resource)
    }

    /// Returns a SelfSubjectAccessReview, which checks if the caller has the permission. `lease_namespace` is the namespace of the
    /// Lease.
    pub(crate) fn review(&self, lease_namespace: &str) -> SelfSubjectAccessReview {
        SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(self.attributes(lease_namespace)),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        }
    }

    /// Returns a SubjectAccessReview, which checks if another service account has the permission. `lease_namespace` is the
    /// namespace of the Lease.
    pub(crate) fn review_of(
        &self,
        account: &ServiceAccountName,
        lease_namespace: &str,
    ) -> SubjectAccessReview {
        SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                resource_attributes: Some(self.attributes(lease_namespace)),
                user: Some(account.user()),
                groups: Some(account.groups()),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        }
    }

    fn attributes(&self, lease_namespace: &str) -> ResourceAttributes {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (self.resource, None),
        };
        let (namespace, name) = match self.scope {
            PermissionScope::Cluster => (None, None),
            PermissionScope::LeaseNamespace => (Some(lease_namespace), None),
            PermissionScope::Lease => (Some(lease_namespace), Some(names::LEASE)),
            PermissionScope::AnyLease => (None, Some(names::LEASE)),
            PermissionScope::KruiseLease => {
                let (namespace, name) = names::KRUISE_LEASE;
                (Some(namespace), Some(name))
            }
        };
        ResourceAttributes {
            group: Some(self.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            verb: Some(self.verb.to_owned()),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            ..ResourceAttributes::default()
        }
    }
}

/// Name of a service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceAccountName {
    /// Namespace of the service account.
    pub namespace: String,
    /// Name of the service account in its namespace.
    pub name: String,
}

impl ServiceAccountName {
    /// Returns the user name that the API server derives from a token of the service account.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// Returns the groups that every service account of the namespace has.
    fn groups(&self) -> Vec<String> {
        let of_namespace = format!("system:serviceaccounts:{}", self.namespace);
        [
            "system:serviceaccounts",
            &of_namespace,
            "system:authenticated",
        ]
        .map(str::to_owned)
        .to_vec()
    }
}

impl fmt::Display for ServiceAccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::collections::BTreeSet;

    use serde::Deserialize;

    use super::*;

    /// A role in the manifests.
    #[derive(Deserialize)]
    pub(crate) struct Role {
        pub(crate) metadata: Metadata,
        #[serde(default)]
        pub(crate) rules: Vec<Rule>,
    }

    #[derive(Deserialize)]
    pub(crate) struct Metadata {
        pub(crate) name: String,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(crate) struct Rule {
        pub(crate) api_groups: Vec<String>,
        pub(crate) resources: Vec<String>,
        #[serde(default)]
        pub(crate) resource_names: Vec<String>,
        pub(crate) verbs: Vec<String>,
    }

    /// Returns the rules of the role with this name in a file.
    pub(crate) fn rules_of(file: &str, name: &str) -> Vec<Rule> {
        let roles = file.split("\n---\n");
        let mut roles = roles.map(|role| serde_saphyr::from_str::<Role>(role).expect("a role"));
        let role = roles.find(|role| role.metadata.name == name);
        role.expect("a role of that name").rules
    }

    /// Returns the permissions that the role in the manifest `file` grants, as (scope, group, resource, verb). `scope` is that of
    /// rules without `resourceNames`.
    pub(crate) fn granted(
        file: &str,
        scope: PermissionScope,
    ) -> BTreeSet<(PermissionScope, String, String, String)> {
        let role: Role = serde_saphyr::from_str(file).expect("a role");
        let mut granted = BTreeSet::new();
        for rule in role.rules {
            let scope = match (scope, rule.resource_names.as_slice()) {
                (scope, []) => scope,
                (PermissionScope::LeaseNamespace, [name]) if name == names::LEASE => {
                    PermissionScope::Lease
                }
                (PermissionScope::Cluster, [name]) if name == names::LEASE => {
                    PermissionScope::AnyLease
                }
                (PermissionScope::Cluster, [name]) if name == names::KRUISE_LEASE.1 => {
                    PermissionScope::KruiseLease
                }
                (_, names) => panic!("unexpected resourceNames {names:?}"),
            };
            for group in &rule.api_groups {
                for resource in &rule.resources {
                    for verb in &rule.verbs {
                        let new =
                            granted.insert((scope, group.clone(), resource.clone(), verb.clone()));
                        assert!(new, "{verb} {resource} is granted twice");
                    }
                }
            }
        }
        granted
    }
}
