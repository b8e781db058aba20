//! Tests of image pulls, from the request to the result, on the embedded cluster in virtual time.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::planner::{PullStep, PullStepResult};
use super::{PullRequest, PullerParts};
use crate::clock::Clock;
use crate::controller::apply::Writer;
use crate::controller::lease::Leadership;
use crate::controller::{self, events, lease, metrics::Metrics};
use crate::core::{PodRef, Pull, PullInitiator};
use crate::index::SetKey;
use crate::k8s::client::Role;
use crate::serve::ReadinessHandle;
use crate::shutdown;
use crate::sim::cluster::{Fault, RequestInfo};
use crate::sim::kubelet::{Behaviour, FakeNodeSpec, Outage};
use crate::sim::world::{World, WorldSetup};

const OLD: &str = "nginx:1.19.4";
const NEW: &str = "nginx:1.19.5";

/// Setup of a test: a cluster with nodes n1, n2, …, one DaemonSet in OTA mode, and the controller.
struct Story {
    world: World,
    client: Client,
    controller: Option<JoinHandle<()>>,
}

impl Drop for Story {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Story {
    async fn begin(nodes: usize) -> Self {
        Self::with(nodes, "nginx-daemonset", |_| {}).await
    }

    /// Starts like [`Self::begin`], but the DaemonSet has this name and is modified by `change`.
    async fn with(nodes: usize, name: &str, change: impl FnOnce(&mut Value)) -> Self {
        let world = World::start(WorldSetup {
            clock: Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()),
            seed: 1,
            kubelets: crate::sim::kubelet::KubeletOptions::default(),
            controller: false,
            advanced: false,
        });
        let nodes = (1..=nodes).map(|n| FakeNodeSpec::named(format!("n{n}")));
        world.kubelets.add_nodes(nodes.collect()).await.unwrap();
        let mut set = json!({
            "metadata": {
                "name": name,
                "annotations": { "apps.openyurt.io/update-strategy": "OTA" },
            },
            "spec": {
                "updateStrategy": { "type": "OnDelete" },
                "selector": { "matchLabels": { "app": "nginx" } },
                "template": {
                    "metadata": { "labels": { "app": "nginx" } },
                    "spec": { "containers": [{ "name": "nginx", "image": OLD }] },
                },
            },
        });
        change(&mut set);
        let client = world.client();
        let mut story = Self {
            world,
            client,
            controller: None,
        };
        let set = serde_json::from_value(set).unwrap();
        let params = PostParams::default();
        story.sets().create(&params, &set).await.unwrap();
        story.start();
        pass(10).await;
        story
    }

    fn sets(&self) -> Api<DaemonSet> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn start(&mut self) {
        let (end, shutdown) = shutdown::channel();
        let config = controller::ControllerConfig {
            client: self.world.cluster.client(&Role::Controller.user_agent()),
            clock: self.world.clock.clone(),
            settings: lease::Settings {
                namespace: "default".to_owned(),
                identity: "test".to_owned(),
                duration: Duration::from_secs(15),
                renew_deadline: Duration::from_secs(10),
                renew_every: Duration::from_secs(5),
            },
            elects: false,
            metrics: Metrics::new(),
            readiness: ReadinessHandle::default(),
            gathering: controller::WakeupBatching::default(),
            kinds: controller::Kinds {
                native: true,
                advanced: false,
            },
            notifications: None,
            traces: None,
        };
        self.controller = Some(tokio::spawn(async move {
            let _end = end;
            controller::run(config, shutdown).await;
        }));
    }

    /// Kills the controller at an arbitrary moment.
    fn kill(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.abort();
        }
    }

    async fn image(&self, image: &str) {
        let name = self.set_name().await;
        let patch = json!({ "spec": { "template": { "spec": {
            "containers": [{ "name": "nginx", "image": image }],
        } } } });
        self.patch_set(&name, patch).await;
    }

    async fn patch_set(&self, name: &str, patch: Value) {
        let patch = Patch::Strategic(patch);
        let params = PatchParams::default();
        self.sets().patch(name, &params, &patch).await.unwrap();
        pass(2).await;
    }

    async fn set_name(&self) -> String {
        let sets = self.sets().list(&ListParams::default()).await.unwrap();
        sets.items[0].metadata.name.clone().unwrap()
    }

    async fn pod(&self, node: &str) -> Pod {
        let pods = ListParams::default().labels("app=nginx");
        let pods = self.pods().list(&pods).await.unwrap();
        let on_it = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some(node);
        pods.items.into_iter().find(on_it).unwrap()
    }

    /// Returns status, reason and message of a condition of the pod on a node.
    async fn condition(&self, node: &str, kind: &str) -> Option<[String; 3]> {
        let pod = self.pod(node).await;
        let conditions = pod.status.unwrap().conditions.unwrap();
        let condition = conditions.into_iter().find(|known| known.type_ == kind)?;
        let text = Option::unwrap_or_default;
        Some([
            condition.status,
            text(condition.reason),
            text(condition.message),
        ])
    }

    /// Requests a pull of the images for the pod's next revision, as the node's agent does. Returns the message of the condition.
    async fn imagepull(&self, node: &str) -> String {
        let [needed, _, message] = self.condition(node, "PodNeedUpgrade").await.unwrap();
        assert_eq!(needed, "True");
        let patch = Patch::Strategic(json!({ "status": { "conditions": [{
            "type": "PodImageReady", "status": "False", "reason": "WaitPullImage", "message": message,
        }] } }));
        let name = self.pod(node).await.metadata.name.unwrap();
        let params = PatchParams::default();
        self.pods()
            .patch_status(&name, &params, &patch)
            .await
            .unwrap();
        message
    }

    /// Returns the condition `PodImageReady` of the pod on a node.
    async fn ready(&self, node: &str) -> [String; 3] {
        self.condition(node, "PodImageReady").await.unwrap()
    }

    async fn assert_pulled(&self, node: &str, message: &str) {
        let pulled = ["True", "PullImageSuccess", message];
        assert_eq!(self.ready(node).await, pulled);
    }

    /// Checks that the condition `PodImageReady` reports a failed pull. Returns the failure reason.
    async fn failure(&self, node: &str) -> String {
        let [status, reason, message] = self.ready(node).await;
        assert_eq!(
            [&*status, &*reason],
            ["False", "PullImageFail"],
            "{message}"
        );
        let (job, why) = message.split_once(" failed: ").unwrap();
        assert!(job.starts_with("pull image job image-pre-pull-"), "{job}");
        why.to_owned()
    }

    async fn job_names(&self) -> Vec<String> {
        let jobs = self.jobs().list(&ListParams::default()).await.unwrap();
        jobs.into_iter()
            .map(|job| job.metadata.name.unwrap())
            .collect()
    }

    /// Returns the number of the controller's requests for this resource.
    fn requests(&self, resource: &str) -> u64 {
        let all = self.world.cluster.requests();
        let own = Role::Controller.user_agent();
        all.iter()
            .filter(|count| count.resource == resource && count.user_agent == own)
            .map(|count| count.number)
            .sum()
    }

    async fn behaviour(&self, image: &str, behaviour: Behaviour) {
        self.world
            .kubelets
            .behaviour(image, behaviour)
            .await
            .unwrap();
    }

    async fn quota(&self, hard: Value) {
        let quotas = Api::<k8s_openapi::api::core::v1::ResourceQuota>::namespaced(
            self.client.clone(),
            "default",
        );
        let _first = quotas.delete("q", &DeleteParams::default()).await;
        let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } });
        let quota = serde_json::from_value(quota).unwrap();
        quotas.create(&PostParams::default(), &quota).await.unwrap();
    }

    async fn offline(&self, node: &str) {
        let how = Outage::default();
        self.world.kubelets.set_offline(node, how).await.unwrap();
        pass(45).await;
    }
}

/// Advances time in small steps, so that all tasks can run in between.
async fn pass(seconds: u32) {
    for _ in 0..seconds * 4 {
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Waits up to a minute until `is_met` returns true. The checks follow each other so closely that nothing else happens before the
/// test continues.
async fn until(is_met: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is_met().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    waited.expect("what was waited for");
}

fn slow(seconds: u64) -> Behaviour {
    Behaviour {
        pull: Duration::from_secs(seconds),
        ..Behaviour::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_requested_pull_is_reported_and_its_job_deleted() {
    let story = Story::begin(2).await;
    story.behaviour(NEW, slow(20)).await;
    story.image(NEW).await;
    let message = story.imagepull("n1").await;
    pass(10).await;
    assert_eq!(story.ready("n1").await[1], "WaitPullImage");
    assert_eq!(story.job_names().await.len(), 1);
    pass(15).await;
    story.assert_pulled("n1", &message).await;
    assert_eq!(story.job_names().await, Vec::<String>::new());
    assert_eq!(story.condition("n2", "PodImageReady").await, None);
    // The update of the pod now starts without pulling its image.
    let name = story.pod("n1").await.metadata.name.unwrap();
    story
        .pods()
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    pass(5).await;
    let [needed, ..] = story.condition("n1", "PodNeedUpgrade").await.unwrap();
    assert_eq!(needed, "False");
    let [ready, ..] = story.condition("n1", "Ready").await.unwrap();
    assert_eq!(ready, "True");
}

/// After a result was written and its Job was deleted, the cache may still show the request. No second Job may be created then.
#[tokio::test(start_paused = true)]
async fn a_request_that_only_the_cache_shows_creates_no_job() {
    let mut story = Story::begin(1).await;
    story.image(NEW).await;
    let message = story.imagepull("n1").await;
    pass(10).await;
    story.assert_pulled("n1", &message).await;
    let (set, pod) = (
        story.sets().get("nginx-daemonset").await.unwrap(),
        story.pod("n1").await,
    );
    let request = PullRequest {
        key: SetKey::new("default", "nginx-daemonset"),
        set_uid: set.metadata.uid.unwrap().into(),
        generation: set.metadata.generation.unwrap(),
        timeout: Duration::from_secs(60),
        pull: Pull {
            pod: PodRef {
                name: pod.metadata.name.as_deref().unwrap().into(),
                uid: pod.metadata.uid.as_deref().unwrap().into(),
                resource_version: "1".into(),
            },
            node: "n1".into(),
            revision: message.split_once(": ").unwrap().1.into(),
            initiator: PullInitiator::Owner,
            may_start: true,
            may_report: true,
        },
    };
    let create = PullStep::Create(request);
    let (client, clock, metrics) = (
        story.client.clone(),
        story.world.clock.clone(),
        Metrics::new(),
    );
    let (_lead, leadership) = watch::channel(Leadership::Alone);
    let (events, _sending) = events::start(client.clone(), "test", clock.clone(), metrics.clone());
    let parts = PullerParts {
        writer: Writer::new(client.clone(), metrics.clone(), leadership.clone()),
        client,
        leadership,
        events,
        metrics,
        clock,
        written: mpsc::unbounded_channel().0,
    };
    assert_eq!(parts.carry_out(&create).await, PullStepResult::Retry);
    assert_eq!(story.job_names().await, Vec::<String>::new());
    // If the pod still has the request, its Job is created again.
    story.kill();
    story.imagepull("n1").await;
    let result = parts.carry_out(&create).await;
    assert!(matches!(result, PullStepResult::Created(_)), "{result:?}");
}

/// Regression test: pulls of one namespace took all slots while its registry didn't respond.
#[tokio::test(start_paused = true)]
async fn pulls_that_hang_in_one_namespace_delay_no_other_namespace() {
    let required = |set: &mut Value| {
        set["metadata"]["annotations"] = json!({
            "apps.openyurt.io/update-strategy": "AdvancedRollingUpdate",
            "apps.openyurt.io/image-predownload-parallelism": "100%",
            "apps.openyurt.io/predownload": "required",
        });
    };
    let story = Story::with(60, "nginx-daemonset", required).await;
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "other" } })).unwrap();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(story.client.clone());
    let params = PostParams::default();
    namespaces.create(&params, &namespace).await.unwrap();
    let other: Api<DaemonSet> = Api::namespaced(story.client.clone(), "other");
    let mut set = story.sets().get("nginx-daemonset").await.unwrap();
    set.metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        name: Some("proxy".to_owned()),
        annotations: set.metadata.annotations,
        ..Default::default()
    };
    set.status = None;
    other.create(&params, &set).await.unwrap();
    pass(10).await;
    story.behaviour(NEW, slow(36_000)).await;
    story.image(NEW).await;
    pass(20).await;
    assert_eq!(story.job_names().await.len(), 27);
    let image = json!({ "spec": { "template": { "spec": {
        "containers": [{ "name": "nginx", "image": "proxy:2" }],
    } } } });
    story.behaviour("proxy:2", slow(30)).await;
    let (image, params) = (Patch::Strategic(image), PatchParams::default());
    other.patch("proxy", &params, &image).await.unwrap();
    pass(3).await;
    let jobs: Api<Job> = Api::namespaced(story.client.clone(), "other");
    let jobs = jobs.list(&ListParams::default()).await.unwrap();
    assert_eq!(jobs.items.len(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_missing_image_fails_early_and_the_next_request_retries_at_once() {
    let story = Story::begin(1).await;
    let missing = Behaviour {
        image_error: true,
        ..Behaviour::default()
    };
    story.behaviour(NEW, missing).await;
    story.image(NEW).await;
    story.imagepull("n1").await;
    pass(5).await;
    let why = story.failure("n1").await;
    assert!(why.contains(NEW) && why.contains("not found"), "{why}");
    assert_eq!(story.job_names().await, Vec::<String>::new());
    // A failed pull is not repeated until the node owner requests it again.
    let before = story.pod("n1").await.metadata.resource_version;
    pass(600).await;
    assert_eq!(story.pod("n1").await.metadata.resource_version, before);
    story.behaviour(NEW, slow(3)).await;
    let message = story.imagepull("n1").await;
    pass(6).await;
    story.assert_pulled("n1", &message).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_right_after_a_failure_starts_a_new_attempt() {
    let story = Story::begin(1).await;
    let missing = Behaviour {
        image_error: true,
        ..Behaviour::default()
    };
    story.behaviour(NEW, missing).await;
    story.image(NEW).await;
    let message = story.imagepull("n1").await;
    let ended = async || story.ready("n1").await[1] != "WaitPullImage";
    until(ended).await;
    story.behaviour(NEW, slow(3)).await;
    story.imagepull("n1").await;
    pass(8).await;
    story.assert_pulled("n1", &message).await;
}

#[tokio::test(start_paused = true)]
async fn a_pull_survives_a_brief_registry_outage_and_fails_in_a_two_minute_one() {
    let story = Story::begin(2).await;
    let down = Behaviour {
        registry_down: true,
        ..Behaviour::default()
    };
    story.behaviour(NEW, down.clone()).await;
    story.image(NEW).await;
    let message = story.imagepull("n1").await;
    pass(8).await;
    story.behaviour(NEW, slow(300)).await;
    pass(290).await;
    // The second attempt downloads slowly. Meanwhile the pod's status still shows the failure of the first attempt, which is no
    // result yet.
    assert_eq!(story.ready("n1").await[1], "WaitPullImage");
    pass(30).await;
    story.assert_pulled("n1", &message).await;
    story.behaviour(NEW, down).await;
    story.imagepull("n2").await;
    pass(50).await;
    assert_eq!(story.ready("n2").await[1], "WaitPullImage");
    pass(70).await;
    let why = story.failure("n2").await;
    assert!(why.contains("connection refused"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn an_image_without_a_shell_is_pulled() {
    let story = Story::begin(1).await;
    let distroless = Behaviour {
        no_shell: true,
        ..slow(5)
    };
    story.behaviour(NEW, distroless).await;
    story.image(NEW).await;
    let message = story.imagepull("n1").await;
    pass(10).await;
    story.assert_pulled("n1", &message).await;
}

#[tokio::test(start_paused = true)]
async fn images_of_daemonsets_with_the_longest_names_are_pulled() {
    let name = "d".repeat(57);
    let container = "c".repeat(63);
    let story = Story::with(1, &name, |set| {
        set["spec"]["template"]["spec"]["containers"][0]["name"] = json!(container);
    })
    .await;
    story.behaviour(NEW, slow(5)).await;
    let patch = json!({ "spec": { "template": { "spec": {
        "containers": [{ "name": container, "image": NEW }],
        "initContainers": [{ "name": format!("i{}", &container[1..]), "image": "busybox:1" }],
    } } } });
    story.patch_set(&name, patch).await;
    let message = story.imagepull("n1").await;
    pass(2).await;
    let names = story.job_names().await;
    assert!(names.len() == 1 && names[0].len() <= 63, "{names:?}");
    pass(10).await;
    story.assert_pulled("n1", &message).await;
}

#[tokio::test(start_paused = true)]
async fn a_template_change_during_a_pull_replaces_the_pull() {
    let story = Story::begin(1).await;
    story.behaviour("*", slow(20)).await;
    story.image(NEW).await;
    let old = story.imagepull("n1").await;
    pass(5).await;
    let before = story.job_names().await;
    story.image("nginx:1.19.6").await;
    pass(3).await;
    let [status, reason, message] = story.ready("n1").await;
    let [_, _, needed] = story.condition("n1", "PodNeedUpgrade").await.unwrap();
    assert_eq!(
        [&*status, &*reason, &message],
        ["False", "WaitPullImage", &needed]
    );
    assert_ne!(needed, old);
    let names = story.job_names().await;
    assert!(
        names.len() == 1 && names != before,
        "{names:?} after {before:?}"
    );
    pass(25).await;
    story.assert_pulled("n1", &needed).await;
}

#[tokio::test(start_paused = true)]
async fn a_pull_uses_the_image_pull_secret_of_the_service_account() {
    let story = Story::with(1, "nginx-daemonset", |set| {
        set["spec"]["template"]["spec"]["serviceAccountName"] = json!("puller");
    })
    .await;
    let account = json!({
        "metadata": { "name": "puller" }, "imagePullSecrets": [{ "name": "registry" }],
    });
    let private = Behaviour {
        needs_secret: Some("registry".to_owned()),
        ..slow(5)
    };
    story.behaviour(NEW, private).await;
    story.image(NEW).await;
    story.imagepull("n1").await;
    pass(8).await;
    let why = story.failure("n1").await;
    assert!(why.contains("pull access denied"), "{why}");
    let accounts = Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(
        story.client.clone(),
        "default",
    );
    let account = serde_json::from_value(account).unwrap();
    accounts
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    let message = story.imagepull("n1").await;
    pass(10).await;
    story.assert_pulled("n1", &message).await;
}

#[tokio::test(start_paused = true)]
async fn a_pull_tolerates_taints_meets_pod_security_and_reports_quotas() {
    let story = Story::begin(1).await;
    story.behaviour("*", slow(5)).await;
    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(story.client.clone());
    let taint = Patch::Merge(json!({ "spec": { "taints": [
        { "key": "mine", "value": "yes", "effect": "NoSchedule" },
    ] } }));
    let params = PatchParams::default();
    nodes.patch("n1", &params, &taint).await.unwrap();
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(story.client.clone());
    let strict = Patch::Merge(json!({ "metadata": { "labels": {
        "pod-security.kubernetes.io/enforce": "restricted",
    } } }));
    namespaces.patch("default", &params, &strict).await.unwrap();
    story
        .quota(json!({
            "requests.cpu": "1", "requests.memory": "1Gi", "limits.cpu": "1", "limits.memory": "1Gi",
            "requests.ephemeral-storage": "1Gi", "limits.ephemeral-storage": "1Gi",
        }))
        .await;
    story.image(NEW).await;
    let message = story.imagepull("n1").await;
    pass(10).await;
    story.assert_pulled("n1", &message).await;
    // An exceeded quota is reported soon, instead of only at the deadline of the pull.
    story.quota(json!({ "pods": "1" })).await;
    story.image("nginx:1.19.6").await;
    story.imagepull("n1").await;
    pass(15).await;
    let why = story.failure("n1").await;
    assert!(
        why.contains("is forbidden: exceeded quota: q, requested: pods=1"),
        "{why}"
    );
    assert_eq!(story.job_names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn pull_results_are_reported_after_a_controller_restart() {
    let mut story = Story::begin(2).await;
    let missing = Behaviour {
        image_error: true,
        ..Behaviour::default()
    };
    story.behaviour(NEW, slow(20)).await;
    let rule = crate::sim::kubelet::Rule {
        image: NEW.to_owned(),
        node: "n2".to_owned(),
        behaviour: missing,
    };
    story.world.kubelets.rule(rule).await.unwrap();
    story.image(NEW).await;
    let message = story.imagepull("n1").await;
    story.imagepull("n2").await;
    // Kill the controller as soon as the Jobs exist.
    let made = async || story.job_names().await.len() >= 2;
    until(made).await;
    story.kill();
    pass(60).await;
    assert_eq!(story.ready("n1").await[1], "WaitPullImage");
    assert_eq!(story.ready("n2").await[1], "WaitPullImage");
    story.start();
    pass(5).await;
    story.assert_pulled("n1", &message).await;
    assert!(story.failure("n2").await.contains("not found"));
    assert_eq!(story.job_names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_controller_killed_at_any_moment_completes_the_pull() {
    for moment in (0..400).step_by(20) {
        let mut story = Story::begin(1).await;
        story.behaviour(NEW, slow(0)).await;
        story.image(NEW).await;
        let message = story.imagepull("n1").await;
        tokio::time::sleep(Duration::from_millis(moment * 5)).await;
        story.kill();
        pass(2).await;
        story.start();
        pass(10).await;
        story.assert_pulled("n1", &message).await;
        assert_eq!(story.job_names().await, Vec::<String>::new(), "{moment}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pull_on_an_offline_node_starts_when_the_node_returns() {
    let story = Story::begin(1).await;
    story.behaviour(NEW, slow(5)).await;
    story.image(NEW).await;
    story.offline("n1").await;
    let message = story.imagepull("n1").await;
    pass(60).await;
    assert_eq!(story.job_names().await, Vec::<String>::new());
    story.world.kubelets.set_online("n1").await.unwrap();
    pass(12).await;
    story.assert_pulled("n1", &message).await;
}

#[tokio::test(start_paused = true)]
async fn deleting_a_pod_deletes_its_pull_job() {
    let story = Story::begin(1).await;
    story.behaviour(NEW, slow(60)).await;
    story.image(NEW).await;
    story.imagepull("n1").await;
    pass(5).await;
    let name = story.pod("n1").await.metadata.name.unwrap();
    story
        .pods()
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    pass(10).await;
    assert_eq!(story.job_names().await, Vec::<String>::new());
    assert_eq!(story.condition("n1", "PodImageReady").await, None);
}

#[tokio::test(start_paused = true)]
async fn idle_pulls_send_no_requests_and_one_pull_sends_four() {
    let story = Story::begin(3).await;
    story.behaviour(NEW, slow(5)).await;
    story.image(NEW).await;
    pass(60).await;
    let before = story.requests("jobs");
    pass(3600).await;
    assert_eq!(story.requests("jobs"), before);
    let message = story.imagepull("n1").await;
    pass(10).await;
    story.assert_pulled("n1", &message).await;
    let made = story.requests("jobs") - before;
    // One request each to list, watch, create and delete Jobs.
    assert_eq!(made, 4);
}

#[tokio::test(start_paused = true)]
async fn a_pull_without_permission_for_jobs_names_the_component_to_apply() {
    let story = Story::begin(1).await;
    let deny = story
        .world
        .cluster
        .deny(|request| request.resource == "jobs" && request.user_agent.contains("(controller)"));
    story.image(NEW).await;
    let message = story.imagepull("n1").await;
    pass(20).await;
    let why = story.failure("n1").await;
    assert!(
        why.contains("jobs") && why.contains("manifests/components/pre-pull"),
        "{why}"
    );
    drop(deny);
    pass(60).await;
    story.imagepull("n1").await;
    pass(20).await;
    story.assert_pulled("n1", &message).await;
}

#[tokio::test(start_paused = true)]
async fn a_rejected_result_is_reported_and_written_when_permitted() {
    let story = Story::begin(1).await;
    story.behaviour(NEW, slow(20)).await;
    story.image(NEW).await;
    let message = story.imagepull("n1").await;
    pass(10).await;
    let denied = story.world.cluster.faults().add(|request: &RequestInfo| {
        let is_meant = (request.resource.as_str(), request.subresource.as_str())
            == ("pods", "status")
            && request.user_agent.contains("(controller)");
        if is_meant {
            Fault::Denied("denied request: not now".into())
        } else {
            Fault::Pass
        }
    });
    pass(120).await;
    let events: Api<Event> = Api::all(story.world.cluster.client("test"));
    let events = events.list(&ListParams::default()).await.unwrap();
    let told = events.items.iter().filter(|event| {
        event.reason.as_deref() == Some("WriteRefused")
            && event.message.as_deref().is_some_and(|text| {
                text.contains("how pulls of images ended: denied request: not now")
            })
    });
    assert_eq!(told.count(), 1);
    drop(denied);
    pass(90).await;
    story.assert_pulled("n1", &message).await;
}
