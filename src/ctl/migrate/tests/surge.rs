//! Migrations of a native DaemonSet while it has surge pods (`max-surge`).

use std::collections::BTreeSet;

use kube::api::{DeleteParams, PostParams};

use super::*;
use crate::sim::kubelet::Behaviour;

impl Migrating {
    /// Creates two nodes, each with an old pod and a pod of `web:2` that never becomes Ready.
    async fn surging() -> (Self, (shutdown::Trigger, JoinHandle<()>)) {
        let cluster = Self::with_nodes(2).await;
        let controller = cluster.start_controller();
        let never = Behaviour {
            never_ready: true,
            ..Behaviour::default()
        };
        let world = &cluster.world;
        world.kubelets.behaviour("web:2", never).await.unwrap();
        let annotations = json!({ "apps.openyurt.io/max-surge": "2" });
        let metadata = json!({ "metadata": { "annotations": annotations } });
        world.patch(metadata).await;
        world.set_image("web:2").await;
        tokio::time::sleep(A_MOMENT).await;
        (cluster, controller)
    }

    async fn all_pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.world.client.clone(), "default");
        pods.list(&Default::default()).await.unwrap().items
    }
}

/// Returns API version and kind of the controller of each pod.
fn controllers(pods: &[Pod]) -> BTreeSet<(String, String)> {
    let owners = pods.iter().flat_map(|pod| pod.owner_references());
    let controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers
        .map(|owner| (owner.api_version.clone(), owner.kind.clone()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn migration_is_refused_during_a_surge_with_the_surge_pods_named() {
    let (cluster, _controller) = Migrating::surging().await;
    let world = &cluster.world;
    let pods = cluster.all_pods().await;
    assert_eq!(pods.len(), 4);
    let is_second = |pod: &&Pod| {
        let mut owners = pod.owner_references().iter();
        owners.any(|owner| owner.kind == "ControllerRevision")
    };
    let second: Vec<&Pod> = pods.iter().filter(is_second).collect();
    assert_eq!(second.len(), 2);
    for line in [
        "migrate web --to advanced --dry-run",
        "migrate web --to advanced",
    ] {
        let writes = world.writes();
        let error = world.error(line).await;
        assert_eq!(error.code, Code::Refused, "{error}");
        assert_eq!(world.writes(), writes, "{line}");
        for pod in &second {
            let node = pod.spec.as_ref().unwrap().node_name.as_deref().unwrap();
            let named = format!("{} on {node}", pod.name_any());
            assert!(error.text.contains(&named), "{named}: {error}");
        }
    }
    // The rollback ends the surge, so the DaemonSet can be migrated.
    world.text("undo web").await;
    tokio::time::sleep(A_MOMENT).await;
    world.text("migrate web --to advanced").await;
}

#[tokio::test(start_paused = true)]
async fn left_over_surge_pods_are_adopted_and_the_surge_ends() {
    let (cluster, _controller) = Migrating::surging().await;
    let world = &cluster.world;
    // Migrate without `ctl migrate`, which refuses while there are surge pods.
    let mut set = cluster.native().await;
    set["apiVersion"] = json!("apps.kruise.io/v1beta1");
    set["kind"] = json!("DaemonSet");
    set["metadata"] = json!({ "name": "web" });
    let surge = json!({ "maxSurge": 2, "maxUnavailable": 0 });
    set["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": surge });
    let before: BTreeSet<String> = names(&cluster.all_pods().await);
    let orphan = DeleteParams::orphan();
    world.sets().delete("web", &orphan).await.unwrap();
    tokio::time::sleep(A_MOMENT).await;
    let set = serde_json::from_value(set).unwrap();
    let advanced = cluster.advanced();
    advanced.create(&PostParams::default(), &set).await.unwrap();
    tokio::time::sleep(A_MOMENT).await;
    let pods = cluster.all_pods().await;
    assert_eq!(names(&pods), before);
    let own = ("apps.kruise.io/v1beta1".to_owned(), "DaemonSet".to_owned());
    assert_eq!(controllers(&pods), [own].into());
    let ready = Behaviour::default();
    world.kubelets.behaviour("web:2", ready).await.unwrap();
    world.text("undo ads/web").await;
    tokio::time::sleep(A_MOMENT).await;
    assert_eq!(world.code("status ads/web --wait").await, Code::Complete);
    let left = names(&cluster.all_pods().await);
    assert_eq!(left.len(), 2);
    assert!(left.is_subset(&before), "{left:?} of {before:?}");
}

fn names(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().map(|pod| pod.name_any()).collect()
}
