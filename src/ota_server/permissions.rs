//! Permissions of the agent. A test checks that the manifests grant exactly these permissions.

use crate::core::names::KRUISE_GROUP;
use crate::k8s::permission::{Permission, cluster};

/// All permissions that the agent uses.
pub const NEEDED: [Permission; 7] = [
    // Pods of the agent's node: a watch with a field selector, and a read before each change.
    cluster("", "pods", "get"),
    cluster("", "pods", "list"),
    cluster("", "pods", "watch"),
    // Deletion of a pod when its node owner requests an upgrade.
    cluster("", "pods", "delete"),
    // Write of the condition that requests a pull of the pod's images.
    cluster("", "pods/status", "patch"),
    // DaemonSet and revisions. They determine whether a pod is outdated, and which revision replaces it.
    cluster("apps", "daemonsets", "get"),
    cluster("apps", "controllerrevisions", "list"),
];

/// Additional permission for Advanced DaemonSets: `get`, to find out whether their pods are outdated.
pub const NEEDED_FOR_ADVANCED: [Permission; 1] = [cluster(KRUISE_GROUP, "daemonsets", "get")];

/// Additional permission for static pods: `get` on the ConfigMaps with their manifests, in the namespaces of the static pods.
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
    fn the_manifests_grant_exactly_the_needed_permissions() {
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
