//! What the node's agent may do: the one list, compared with the manifests by a test, both ways.

use crate::core::names::KRUISE_GROUP;
use crate::k8s::permission::{Permission, cluster};

/// Everything that the agent asks of the API server, and nothing else.
pub const NEEDED: [Permission; 7] = [
    // Those of its own node, watched by a field selector; single ones are read before they are written.
    cluster("", "pods", "get"),
    cluster("", "pods", "list"),
    cluster("", "pods", "watch"),
    // How an owner replaces a pod.
    cluster("", "pods", "delete"),
    // How an owner asks for its images.
    cluster("", "pods/status", "patch"),
    // Whether a pod is outdated, and what waits for it.
    cluster("apps", "daemonsets", "get"),
    cluster("apps", "controllerrevisions", "list"),
];

/// What Advanced DaemonSets add: whether one of their pods is outdated.
pub const NEEDED_FOR_ADVANCED: [Permission; 1] = [cluster(KRUISE_GROUP, "daemonsets", "get")];

/// What static pods add, in the namespaces that have such pods: their manifests are ConfigMaps.
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
