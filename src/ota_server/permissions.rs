//! Permissions of the agent. A test compares this list with the manifests in both directions.

use crate::core::names::KRUISE_GROUP;
use crate::k8s::permission::{Permission, cluster};

/// All permissions that the agent uses.
pub const NEEDED: [Permission; 7] = [
    // Pods of its own node, watched by a field selector. A pod is read before it is changed.
    cluster("", "pods", "get"),
    cluster("", "pods", "list"),
    cluster("", "pods", "watch"),
    // Replaces a pod on the owner's request.
    cluster("", "pods", "delete"),
    // Requests a pull of the pod's images.
    cluster("", "pods/status", "patch"),
    // Determines if a pod is outdated, and its new version.
    cluster("apps", "daemonsets", "get"),
    cluster("apps", "controllerrevisions", "list"),
];

/// Additional permissions for Advanced DaemonSets, to determine if their pods are outdated.
pub const NEEDED_FOR_ADVANCED: [Permission; 1] = [cluster(KRUISE_GROUP, "daemonsets", "get")];

/// Additional permissions for static pods, in the namespaces with such pods. Their manifests are in ConfigMaps.
pub const NEEDED_FOR_STATIC_PODS: [Permission; 1] = [cluster("", "configmaps", "get")];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::k8s::permission::PermissionScope;
    use crate::k8s::permission::testing::granted;

    #[track_caller]
    fn equal(file: &str, needed: &[Permission]) {
        let needed: BTreeSet<_> = needed
            .iter()
            .map(|one| {
                let [group, resource, verb] =
                    [one.group, one.resource, one.verb].map(str::to_owned);
                (one.scope, group, resource, verb)
            })
            .collect();
        assert_eq!(granted(file, PermissionScope::Cluster), needed);
    }

    #[test]
    fn the_manifests_grant_exactly_what_is_needed() {
        equal(
            include_str!("../../manifests/base/ota-server/clusterrole.yaml"),
            &NEEDED,
        );
        let overlay = include_str!("../../manifests/overlays/static-pods/role.yaml");
        let (role, _binding) = overlay
            .split_once("\n---\n")
            .expect("a role and its binding");
        equal(role, &NEEDED_FOR_STATIC_PODS);
        let component = include_str!("../../manifests/components/advanced/agent.yaml");
        let (role, _binding) = component
            .split_once("\n---\n")
            .expect("a role and its binding");
        equal(role, &NEEDED_FOR_ADVANCED);
    }
}
