//! Rights that the caller of a command needs, for the reference. The roles in the manifests grant them.

/// Section of the reference about rights.
pub(super) const RIGHTS: &str = "\
Permissions (manifests/base/rbac/people.yaml grants them by the ClusterRoles yurt-ds-viewer and yurt-ds-operator;
Kubernetes' ClusterRole view does not include nodes). For one namespace, a RoleBinding is enough. Without nodes, status
and why show the controller's report and the pods, and plan predicts nothing (exit code 7). The output names what you
may not read (-o json: the list unknown):
  status, why, plan  list and watch daemonsets, controllerrevisions and pods in a namespace or in the whole cluster,
                     and nodes; with disruption: evict also poddisruptionbudgets; get daemonsets (plan);
                     to check that a controller is running, list the Lease yurt-ds-controller
  settings           nothing; of a DaemonSet, get and list daemonsets
  check              the same as status, in the whole cluster; list validatingadmissionpolicies and -bindings; for the rights
                     of the controller, create subjectaccessreviews (not granted: Kubernetes' role system:auth-delegator);
                     with --pre, get the objects of the manifests; what you may not read is not checked
  pause, resume      the same as status, and patch daemonsets
  approve, start-now,
  eject              the same, and get daemonsets (eject needs nodes); where no controller runs, eject also patches daemonsets/status and
                     pods/status
  undo               get, list and patch daemonsets, list controllerrevisions
  migrate            the same as status, get and delete daemonsets of the one kind, create, get and patch those of the other,
                     get, create and delete controllerrevisions; eject of an Advanced one, too
For Advanced DaemonSets, the same daemonsets in the group apps.kruise.io (manifests/components/advanced/people.yaml), and to check
if Kruise's manager is running, list the Lease kruise-manager; check gets their CustomResourceDefinition. Native DaemonSets need none
of this";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use crate::ctl::tests::CtlWorld;
    use crate::k8s::permission::testing::{Rule, rules_of};

    type Granted = BTreeSet<(String, String)>;

    /// Returns the verbs and resources that a role in the manifests grants.
    fn granted(name: &str) -> Granted {
        granted_by(include_str!("../../manifests/base/rbac/people.yaml"), name)
    }

    fn granted_by(file: &str, name: &str) -> Granted {
        let of_rule = |rule: &Rule| {
            let all = rule.resources.iter();
            let all =
                all.flat_map(|what| rule.verbs.iter().map(|verb| (verb.clone(), what.clone())));
            all.collect::<Vec<_>>()
        };
        rules_of(file, name).iter().flat_map(of_rule).collect()
    }

    const ADVANCED: &str = include_str!("../../manifests/components/advanced/people.yaml");

    /// Checks that the roles for Advanced DaemonSets grant the same rights to DaemonSets as the roles for native ones. In addition,
    /// they grant to list Leases and to get CustomResourceDefinitions, and to operators the rights that `ctl migrate` and `ctl
    /// eject` need.
    #[test]
    fn roles_for_advanced_daemonsets_grant_the_same_as_for_native_ones() {
        let right = |(verb, what): (&str, &str)| (verb.to_owned(), what.to_owned());
        let migrating = [
            ("create", "daemonsets"),
            ("delete", "daemonsets"),
            ("create", "controllerrevisions"),
            ("delete", "controllerrevisions"),
        ];
        for (name, more) in [
            ("yurt-ds-viewer", &[][..]),
            ("yurt-ds-operator", &migrating),
        ] {
            let mut native = granted(name);
            native.retain(|(_, what)| what == "daemonsets");
            native.insert(right(("list", "leases")));
            native.insert(right(("get", "customresourcedefinitions")));
            native.extend(more.iter().copied().map(right));
            assert_eq!(granted_by(ADVANCED, &format!("{name}-advanced")), native);
        }
        assert!(ADVANCED.matches("apiGroups: [apps.kruise.io]").count() == 2);
    }

    /// Returns the rights that the commands of this test have used so far.
    fn asked(world: &CtlWorld) -> Granted {
        let counts = world.cluster.requests().into_iter();
        let of_ctl = counts.filter(|count| count.user_agent == "ctl" && !count.resource.is_empty());
        of_ctl
            .map(|count| {
                let what = match count.subresource.as_str() {
                    "" => count.resource,
                    below => format!("{}/{below}", count.resource),
                };
                (count.verb, what)
            })
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn roles_for_people_grant_the_permissions_of_all_commands() {
        let world = CtlWorld::with_nodes(2).await;
        let waves =
            r#"[{"name":"first","selector":"kubernetes.io/hostname=n1","approve":"manual"}]"#;
        let annotations =
            json!({ "apps.openyurt.io/disruption": "evict", "apps.openyurt.io/waves": waves });
        world
            .patch(json!({ "metadata": { "annotations": annotations } }))
            .await;
        world.set_image("web:2").await;
        for line in [
            "status",
            "status web --wait --timeout 1m",
            "why web n1",
            "settings web",
        ] {
            world.run(line).await.1.unwrap();
        }
        world.run("plan web --image web:3").await.1.unwrap();
        let viewer = granted("yurt-ds-viewer");
        let looked = asked(&world);
        assert!(looked.len() > 8, "{looked:?}");
        assert_eq!(looked.difference(&viewer).next(), None);
        for line in [
            "pause web",
            "resume web",
            "approve web first",
            "undo web",
            "undo web --to-revision 2",
            "eject web --now",
        ] {
            world.run(line).await.1.unwrap();
        }
        let operator = granted("yurt-ds-operator");
        assert_eq!(asked(&world).difference(&operator).next(), None);
        assert_eq!(viewer.difference(&operator).next(), None);
    }

    /// Checks the roles for `check`. They don't grant reviews of the controller's rights, because a review needs the verb `create`.
    #[tokio::test(start_paused = true)]
    async fn roles_for_people_grant_the_permissions_of_check() {
        let world = CtlWorld::with_nodes(2).await;
        world.cluster.install_advanced();
        crate::ctl::check::testing::install(&world).await;
        world.run("check").await.1.unwrap();
        let right = |verb: &str, what: &str| (verb.to_owned(), what.to_owned());
        let mut asked = asked(&world);
        assert!(asked.remove(&right("create", "subjectaccessreviews")));
        for name in ["yurt-ds-viewer", "yurt-ds-operator"] {
            let advanced = granted_by(ADVANCED, &format!("{name}-advanced"));
            let both: Granted = granted(name).union(&advanced).cloned().collect();
            assert_eq!(asked.difference(&both).next(), None, "{name}");
        }
        for resource in [
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "customresourcedefinitions",
        ] {
            assert!(
                asked.iter().any(|(_, asked)| asked == resource),
                "{resource}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn roles_for_both_kinds_grant_the_permissions_of_migrate() {
        let world = CtlWorld::with_nodes(2).await;
        world.cluster.install_advanced();
        let _collector = crate::sim::gc::start(world.cluster.client("gc"));
        for line in ["migrate web --to advanced", "migrate web --to native"] {
            world.run(line).await.1.unwrap();
        }
        let advanced = granted_by(ADVANCED, "yurt-ds-operator-advanced");
        let both: Granted = granted("yurt-ds-operator")
            .union(&advanced)
            .cloned()
            .collect();
        let asked = asked(&world);
        assert!(asked.len() > 8, "{asked:?}");
        assert_eq!(asked.difference(&both).next(), None);
        // `check` needs this right (see `roles_for_people_grant_the_permissions_of_check`).
        let of_check = ("get".to_owned(), "customresourcedefinitions".to_owned());
        let mut granted_more: Granted = advanced
            .difference(&granted("yurt-ds-operator"))
            .cloned()
            .collect();
        assert!(granted_more.remove(&of_check));
        assert_eq!(
            granted_more.difference(&asked).next(),
            None,
            "granted, and never asked for"
        );
    }
}
