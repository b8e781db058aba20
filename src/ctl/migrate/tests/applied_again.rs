//! Tests in which a tool applies the old manifest again during a migration, as GitOps tools do.

use std::sync::Mutex;

use kube::api::DeleteParams;
use tokio::sync::Notify;

use super::*;
use crate::ctl::error::CliError;
use crate::k8s::DaemonSet;

impl Migrating {
    fn of_kind(&self, api_version: &str) -> Api<DynamicObject> {
        let kind = match api_version {
            "apps/v1" => ApiResource::erase::<DaemonSet>(&()),
            _ => ApiResource::erase::<AdvancedDaemonSet>(&()),
        };
        Api::namespaced_with(self.world.client.clone(), "default", &kind)
    }

    /// Runs the migration command `line` and applies the old manifest again at the given moment. Returns the command's error.
    async fn applied_again_at(&self, line: &str, api_version: &str, moment: Moment) -> CliError {
        let sets = self.of_kind(api_version);
        let mut manifest = sets.get("web").await.unwrap();
        manifest.metadata = serde_json::from_value(json!({
            "name": "web",
            "annotations": manifest.metadata.annotations,
        }))
        .unwrap();
        manifest.data["status"].take();
        let (reached, group) = (Arc::new(Notify::new()), api_version.split('/').next());
        let group = group.unwrap_or_default().to_owned();
        let (told, seen) = (reached.clone(), Mutex::new((0, 0)));
        let _guard = self.world.cluster.faults().add(move |request| {
            if request.user_agent != "ctl" || request.resource != "daemonsets" {
                return Fault::Pass;
            }
            let mut seen = seen.lock().unwrap();
            let is_old = request.group == group;
            match request.verb.as_str() {
                "delete" => seen.0 += 1,
                "create" => seen.1 += 1,
                _ => {}
            }
            // The first deletion is a dry run, as are all creations before the second deletion. Only later requests are real.
            let is_it = match moment {
                Moment::Deleted => request.verb == "get" && is_old && seen.0 > 1,
                Moment::Created => request.verb == "create" && seen.0 > 1,
            };
            if is_it {
                told.notify_one();
                Fault::Delay(Duration::from_secs(5))
            } else {
                Fault::Pass
            }
        });
        let applying = async {
            reached.notified().await;
            for attempt in 1.. {
                match sets.create(&Default::default(), &manifest).await {
                    Ok(_) => break,
                    Err(error) => assert!(attempt < 100, "{error}"),
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let both = futures::future::join(self.world.run(line), applying);
        let patience = Duration::from_secs(600);
        let (ended, ()) = tokio::time::timeout(patience, both).await.unwrap();
        ended.1.unwrap_err()
    }

    async fn pod_count(&self) -> usize {
        let pods: Api<Pod> = Api::namespaced(self.world.client.clone(), "default");
        pods.list(&Default::default()).await.unwrap().items.len()
    }
}

/// Moment when the old manifest is applied.
#[derive(Clone, Copy)]
enum Moment {
    /// After the old DaemonSet is gone, before the new one is created.
    Deleted,
    /// While the new DaemonSet is being created.
    Created,
}

const NATIVE: &str = "apps/v1";
const ADVANCED: &str = "apps.kruise.io/v1beta1";

#[tokio::test(start_paused = true)]
async fn an_old_manifest_applied_before_the_new_object_keeps_the_pods() {
    let (cluster, _controller) = Migrating::with_controller().await;
    let (world, pods) = (&cluster.world, cluster.pods().await);
    for (line, old, new) in [
        ("migrate web --to advanced", NATIVE, ADVANCED),
        ("migrate web --to native", ADVANCED, NATIVE),
        ("eject web", ADVANCED, NATIVE),
    ] {
        if line == "eject web" {
            world.text("migrate web --to advanced").await;
        }
        let error = cluster.applied_again_at(line, old, Moment::Deleted).await;
        assert_eq!(error.code, Code::Failed, "{error}");
        let command = line.replace("web", "default/web");
        assert!(error.text.contains(&command), "{command}: {error}");
        let other = cluster.of_kind(new).get_opt("web").await.unwrap();
        assert!(other.is_none(), "{line}");
        tokio::time::sleep(A_MOMENT).await;
        assert_eq!(cluster.pods().await, pods, "{line}");
        // Running the same command again succeeds.
        world.text(line).await;
        tokio::time::sleep(A_MOMENT).await;
        assert_eq!(cluster.pods().await, pods, "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_manifest_applied_after_the_new_object_is_reported_and_migration_resumes() {
    let (cluster, _controller) = Migrating::with_controller().await;
    let (world, pods) = (&cluster.world, cluster.pods().await);
    for (line, old) in [
        ("migrate web --to advanced", NATIVE),
        ("migrate web --to native", ADVANCED),
        ("eject web", ADVANCED),
    ] {
        if line == "eject web" {
            world.text("migrate web --to advanced").await;
        }
        let error = cluster.applied_again_at(line, old, Moment::Created).await;
        assert_eq!(error.code, Code::Failed, "{error}");
        assert!(error.text.contains("--cascade=orphan"), "{error}");
        tokio::time::sleep(A_MOMENT).await;
        assert_eq!(cluster.pod_count().await, 4, "{line}: two on each node");
        let orphan = DeleteParams::orphan();
        let deleted = cluster.of_kind(old).delete("web", &orphan).await;
        deleted.unwrap();
        tokio::time::sleep(A_MOMENT).await;
        world.text(line).await;
        tokio::time::sleep(A_MOMENT).await;
        assert_eq!(cluster.pod_count().await, 2, "{line}");
        assert_eq!(cluster.pods().await, pods, "{line}");
    }
}
