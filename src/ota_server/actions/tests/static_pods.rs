//! Tests of static pods. The agent writes a manifest from a ConfigMap to its file. If the pod doesn't become Ready, the agent
//! restores the old manifest.

use std::path::Path;

use super::*;

const READY: &str = "Ready";

fn text(image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: nginx}}\nspec: {{containers: [{{name: c, image: {image}}}]}}\n"
    )
}

/// Folder of manifests with `nginx.yaml`, and the agent of node n1.
struct Statics {
    world: World,
    folder: tempfile::TempDir,
    key: PodKey,
}

impl Statics {
    async fn start() -> Self {
        let mut world = World::start().await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("nginx.yaml"), text("nginx:1")).unwrap();
        world.actions = Actions::new(Setup {
            manifest_dir: folder.path().to_owned(),
            ..world.actions.setup.clone()
        });
        // The tests write the mirror pods to the cache, so the guard sees exactly these pods.
        let statics = Self {
            world,
            folder,
            key: PodKey::new("default", "nginx-n1"),
        };
        statics.mirror("u1", true).await;
        statics
    }

    /// Creates the mirror pod of the manifest in the API, as the kubelet does, and adds it to the cache.
    async fn mirror(&self, uid: &str, ready: bool) {
        let node: Api<core_v1::Node> = Api::all(self.world.client.clone());
        let node = node.get("n1").await.unwrap().metadata.uid.unwrap();
        let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node, "controller": true });
        let ready = if ready { "True" } else { "False" };
        if self.world.pod_cache().pod(&self.key).is_none() {
            let owned = json!({ "metadata": { "ownerReferences": [owner] } });
            self.world.create_pod(&self.key.name, owned.clone()).await;
            self.world
                .set_condition(
                    &self.key,
                    json!({ "type": "PodNeedUpgrade", "status": "True" }),
                )
                .await;
        }
        let pod = json!({
            "metadata": {
                "name": self.key.name, "namespace": self.key.namespace, "uid": uid, "ownerReferences": [owner],
            },
            "spec": { "nodeName": "n1" },
            "status": { "conditions": [
                { "type": "PodNeedUpgrade", "status": "True" },
                { "type": READY, "status": ready },
            ] },
        });
        self.world
            .pod_cache()
            .apply(serde_json::from_value(pod).unwrap());
    }

    async fn give(&self, data: Value) {
        let map = json!({ "metadata": { "name": "yurt-static-set-nginx" }, "data": data });
        let map = serde_json::from_value(map).unwrap();
        let api = self.world.api::<core_v1::ConfigMap>();
        api.create(&PostParams::default(), &map).await.unwrap();
    }

    async fn upgrade(&self) -> Answer {
        self.world.actions.upgrade(&self.key, false).await
    }

    fn manifest(&self) -> String {
        read(self.folder.path(), "nginx.yaml")
    }

    /// Starts the guard, which restores a manifest whose pod doesn't become Ready.
    fn guard(&self) -> crate::task::Task {
        let actions = self.world.actions.clone();
        crate::task::Task::spawn(actions.guard_static_pods())
    }
}

fn read(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap()
}

fn started() -> &'static str {
    "Start updating pod default/nginx-n1"
}

#[tokio::test(start_paused = true)]
async fn the_manifest_of_the_config_map_replaces_the_current_one() {
    let statics = Statics::start().await;
    statics.give(json!({ "nginx.yaml": text("nginx:2") })).await;
    told(&statics.upgrade().await, 200, Reason::Started, started());
    assert_eq!(statics.manifest(), text("nginx:2"));
    assert_eq!(
        read(statics.folder.path(), ".nginx.yaml.backup"),
        text("nginx:1")
    );
    told(&statics.upgrade().await, 200, Reason::Unchanged, started());
    assert_eq!(statics.world.writes(), Vec::<String>::new());
    assert_eq!(statics.world.asked().len(), 4, "pod and ConfigMap, twice");
}

#[tokio::test(start_paused = true)]
async fn a_missing_config_map_is_refused() {
    let statics = Statics::start().await;
    let text = "Configmap for static pod does not exist";
    told(
        &statics.upgrade().await,
        403,
        Reason::ConfigMapMissing,
        text,
    );
    let text = "Not support ota upgrade pod type Node";
    let answer = statics.world.actions.image_pull(&statics.key).await;
    told(&answer, 400, Reason::UnsupportedKind, text);
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_invalid_or_unwritable_manifest_fails_the_upgrade() {
    let statics = Statics::start().await;
    let failed = "Apply update failed";
    let denied = statics
        .world
        .sim
        .cluster
        .deny(|request| request.resource == "configmaps");
    told(&statics.upgrade().await, 500, Reason::Forbidden, failed);
    drop(denied);
    statics
        .give(json!({ "nginx.yaml": text("nginx:2").replace("nginx}", "other}") }))
        .await;
    told(
        &statics.upgrade().await,
        500,
        Reason::ManifestInvalid,
        failed,
    );
    assert_eq!(statics.manifest(), text("nginx:1"));
    let statics = Statics::start().await;
    statics.give(json!({ "nginx.yaml": text("nginx:2") })).await;
    std::fs::remove_dir_all(statics.folder.path()).unwrap();
    told(&statics.upgrade().await, 500, Reason::ApplyFailed, failed);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_api_server_changes_no_file() {
    let statics = Statics::start().await;
    statics.give(json!({ "nginx.yaml": text("nginx:2") })).await;
    let _frozen = statics.world.without(AGENT);
    told(&statics.upgrade().await, 503, Reason::Disconnected, ROW_1);
    assert_eq!(statics.manifest(), text("nginx:1"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_becomes_ready_keeps_its_manifest() {
    let statics = Statics::start().await;
    let _guard = statics.guard();
    statics.give(json!({ "nginx.yaml": text("nginx:2") })).await;
    assert_eq!(statics.upgrade().await.status, 200);
    statics.mirror("u2", false).await;
    sleep(Duration::from_secs(290)).await;
    statics.mirror("u2", true).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(statics.manifest(), text("nginx:2"));
    assert!(!statics.folder.path().join(".nginx.yaml.pending").exists());
}

#[tokio::test(start_paused = true)]
async fn the_manifest_of_an_unready_pod_is_restored_after_five_minutes() {
    let statics = Statics::start().await;
    let _guard = statics.guard();
    statics.give(json!({ "nginx.yaml": text("nginx:2") })).await;
    assert_eq!(statics.upgrade().await.status, 200);
    statics.mirror("u2", false).await;
    sleep(Duration::from_secs(299)).await;
    assert_eq!(statics.manifest(), text("nginx:2"));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(statics.manifest(), text("nginx:1"));
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_the_agent_keeps_the_pending_restore() {
    let statics = Statics::start().await;
    let guard = statics.guard();
    statics.give(json!({ "nginx.yaml": text("nginx:2") })).await;
    assert_eq!(statics.upgrade().await.status, 200);
    sleep(Duration::from_secs(200)).await;
    drop(guard);
    sleep(Duration::from_secs(50)).await;
    let _guard = statics.guard();
    sleep(Duration::from_secs(49)).await;
    assert_eq!(statics.manifest(), text("nginx:2"));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(statics.manifest(), text("nginx:1"));
}

#[tokio::test(start_paused = true)]
async fn no_manifest_is_restored_while_the_pod_cannot_be_observed() {
    let statics = Statics::start().await;
    let _guard = statics.guard();
    statics.give(json!({ "nginx.yaml": text("nginx:2") })).await;
    assert_eq!(statics.upgrade().await.status, 200);
    statics.world.pod_cache().set_live(false);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(statics.manifest(), text("nginx:2"));
    statics.world.pod_cache().set_live(true);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(
        statics.manifest(),
        text("nginx:2"),
        "the kubelet reports first"
    );
    sleep(Duration::from_secs(30)).await;
    assert_eq!(statics.manifest(), text("nginx:1"));
}
