//! Pre-pulls that a node owner requests before the upgrade.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Pod, PodSpec, ResourceQuota, Secret, ServiceAccount};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use yurt_ds::sim::kubelet::Behaviour;

use super::rest::{ota, pulled_in, seen};
use crate::support::asking::PODS;
use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::picture::{condition_of, controller_of};
use crate::support::player::{Stage, from};
use crate::support::said::*;
use crate::support::story::{Pace, Scenario, Story};
use crate::support::suite::scenarios;

/// Returns a story in which the owner of node 1 has requested a pre-pull that takes this many seconds.
fn pulling(seconds: u64) -> Story {
    seen()
        .behave(NEW, pulled_in(seconds))
        .post(1, "imagepull", requested())
        .until(image_ready([1], "False", "WaitPullImage").and(jobs(1, 1)))
}

/// Checks that the running pre-pull succeeds, that its Job is deleted, and that all pods stay untouched.
fn ends_well(story: Story) -> Story {
    story
        .until(image_ready([1], "True", "PullImageSuccess"))
        .until(jobs(0, 1))
        .expect(untouched(1..=3))
}

/// Checks that there is a pod of a pre-pull Job and that its spec satisfies a predicate.
fn pull_pods(
    what: &'static str,
    predicate: impl Fn(&PodSpec) -> Result<(), String> + Send + Sync + 'static,
) -> Check {
    Check::new(format!("a pull with {what}"), move |picture| {
        let is_pull = |pod: &&Pod| {
            let mut owners = pod.metadata.owner_references.iter().flatten();
            owners.any(|owner| owner.kind == "Job")
        };
        let pod = picture.pods().find(is_pull).ok_or("no pod of a Job")?;
        predicate(pod.spec.as_ref().ok_or("no spec")?)
    })
}

/// Checks that the message of `PodImageReady` on a node's pod contains these words.
fn image_message(node: usize, says: &'static str) -> Check {
    Check::new(format!("PodImageReady saying {says:?}"), move |picture| {
        let pod = picture.living(&picture.node(node)).next().cloned();
        let found = pod
            .as_ref()
            .and_then(|pod| condition_of(pod, "PodImageReady"));
        let message = found
            .and_then(|found| found.message.clone())
            .unwrap_or_default();
        if message.contains(says) {
            Ok(())
        } else {
            Err(message)
        }
    })
}

/// Creates the pull secret of a private registry, and a service account that refers to it.
async fn private_registry(stage: Stage) -> anyhow::Result<()> {
    let secret: Secret = from(json!({
        "metadata": { "name": "registry" },
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": r#"{"auths":{"registry.example.com":{"auth":"dTpw"}}}"# },
    }))?;
    let secrets = stage.api::<Secret>();
    secrets.create(&PostParams::default(), &secret).await?;
    let account: ServiceAccount = from(json!({
        "metadata": { "name": "private" },
        "imagePullSecrets": [{ "name": "registry" }],
    }))?;
    let accounts = stage.api::<ServiceAccount>();
    accounts.create(&PostParams::default(), &account).await?;
    Ok(())
}

/// Enforces the `restricted` pod security standard in the story's namespace.
async fn restrict(stage: Stage) -> anyhow::Result<()> {
    let label =
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let spaces = Api::<Namespace>::all(stage.world.client.clone());
    let patched = spaces
        .patch(&stage.name, &PatchParams::default(), &Patch::Merge(label))
        .await;
    patched.map(drop).map_err(Into::into)
}

/// Adds a resource quota and waits until it is in force.
async fn quota(stage: Stage, hard: Value) -> anyhow::Result<()> {
    let quota: ResourceQuota =
        from(json!({ "metadata": { "name": "none" }, "spec": { "hard": hard } }))?;
    let quotas = stage.api::<ResourceQuota>();
    quotas.create(&PostParams::default(), &quota).await?;
    stage.world.await_quota(&stage.name).await
}

/// Creates a second DaemonSet, whose revisions have the longest possible names. Checks that a pre-pull for it succeeds.
async fn longest_name(stage: Stage) -> anyhow::Result<()> {
    let name = "x".repeat(253 - "-xxxxxxxxxx".len());
    let daemon = Daemon::new().strategy("OTA").renamed(&name);
    stage.create_daemon(&daemon).await?;
    until_marked(&stage, &name, "PodNeedUpgrade", "False").await?;
    let (sets, patch) = (stage.api::<DaemonSet>(), image_patch(NEWER));
    sets.patch(&name, &PatchParams::default(), &Patch::Strategic(patch))
        .await?;
    let pod = until_marked(&stage, &name, "PodNeedUpgrade", "True").await?;
    let path = format!("{PODS}/{pod}/imagepull").replace("{ns}", &stage.name);
    for _ in 0..50 {
        let answer = stage.agents.of(1)?.call("POST", &path, &[]).await?;
        if answer.status == 200 {
            until_marked(&stage, &name, "PodImageReady", "True").await?;
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await; // the agent may not have seen the announcement yet, so retry
    }
    anyhow::bail!("the pull was refused for ten seconds")
}

/// Waits until the pod of a DaemonSet on node 1 has this condition. Returns the name of the pod.
async fn until_marked(
    stage: &Stage,
    daemon: &str,
    kind: &str,
    status: &str,
) -> anyhow::Result<String> {
    let node = stage.node(1);
    for _ in 0..600 {
        let pods = stage.api::<Pod>().list(&ListParams::default()).await?;
        let is_meant = |pod: &&Pod| {
            let place = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            place == Some(&node) && controller_of(&pod.metadata).is_some_and(|o| o.name == daemon)
        };
        let pod = pods.items.iter().find(is_meant);
        let found = pod.and_then(|pod| condition_of(pod, kind));
        if let (Some(pod), Some(found)) = (pod, found)
            && found.status == status
        {
            return Ok(pod.name_any());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("{kind} is not {status} on {node} after a minute")
}

/// Returns a patch of the template with the longest possible container names.
fn long_names() -> Value {
    let name = |what: &str| format!("{what}{}", "x".repeat(63 - what.len()));
    json!({ "spec": { "template": { "spec": {
        "initContainers": [{ "name": name("init"), "image": "busybox:1.36" }],
        "containers": [
            { "name": "nginx", "image": NEW },
            { "name": name("side"), "image": "side:2" },
            { "name": "init-x", "image": NEW },
        ],
    } } } })
}

scenarios! {
    vary because "images are pulled by Jobs, and how those fail and report changed (podReplacementPolicy, suspended and terminating pods)";
    fn s79_imagepull_then_podimageready_true_with_the_hash_then_upgrade_starts_without_a_pull(pace) {
        let (pull, upgrade) = pace.pick((300, 10), (40, 25));
        ends_well(pulling(pull))
            .post(1, "upgrade", started())
            .until_within(replaced([1]), upgrade)
            .until(need_upgrade([1], false))
            .expect(untouched([2, 3]))
            .throughout(jobs(0, 1), pace.pick(600, 3))
    }

    fn s79_several_nodes_and_a_second_request_then_one_pull_each(pace) {
        [1, 2, 3]
            .into_iter()
            .fold(seen().behave(NEW, pulled_in(pace.pick(60, 10))).agent(2).agent(3), |story, node| {
                story
                    .shows(node, announced(true))
                    .post(node, "imagepull", requested())
                    .post(node, "imagepull", requested())
            })
            .until(image_ready(1..=3, "True", "PullImageSuccess"))
            .until(jobs(0, 3))
            .shows(1, image_shown("True", "PullImageSuccess"))
            .post(1, "imagepull", requested().because("AlreadyPulled"))
            .throughout(image_ready(1..=3, "True", "PullImageSuccess").and(jobs(0, 3)), pace.pick(600, 5))
    }

    fn s80_image_does_not_exist_then_false_well_before_ten_minutes_and_the_next_call_retries_at_once(_pace) {
        seen()
            .behave(NEW, missing_image())
            .post(1, "imagepull", requested())
            .until_within(image_ready([1], "False", "PullImageFail"), 120)
            .until(jobs(0, 1))
            .shows(1, image_shown("False", "PullImageFail"))
            .post(1, "upgrade", image_not_ready("PullImageFail", "pull image job image-pre-pull-").because("ImagePullFailed"))
            .behave(NEW, Behaviour::default())
            .post(1, "imagepull", requested())
            .until_within(image_ready([1], "True", "PullImageSuccess"), 30)
            .until(jobs(0, 2))
            .shows(1, image_shown("True", "PullImageSuccess"))
            .post(1, "upgrade", started())
            .until(replaced([1]))
            .expect(untouched([2, 3]))
    }

    fn s81_distroless_image_then_success(_pace) {
        let distroless = Behaviour { no_shell: true, ..Behaviour::default() };
        let story = seen().behave(NEW, distroless).post(1, "imagepull", requested());
        ends_well(story)
            .shows(1, image_shown("True", "PullImageSuccess"))
            .post(1, "upgrade", started())
            .until(replaced([1]))
    }

    fn s82_names_of_maximum_length_then_works(_pace) {
        let story = seen()
            .patch(long_names())
            .until(another_revision().and(need_upgrade(1..=3, true)))
            .shows(1, announced(true))
            .post(1, "imagepull", requested());
        vec![ends_well(story), seen().does("a DaemonSet with the longest name", longest_name)]
    }

    fn s83_image_changes_during_the_pull_then_the_state_follows_the_new_hash_and_the_upgrade_is_not_blocked_for_ever(pace) {
        let (slow, fast) = pace.pick((300, 20), (60, 10));
        pulling(slow)
            .behave(NEWER, pulled_in(fast))
            .image(NEWER)
            .until(another_revision().and(need_upgrade(1..=3, true)))
            .until_within(image_ready([1], "True", "PullImageSuccess"), fast + 30)
            .until(jobs(0, 2))
            .shows(1, announced(true).and(image_shown("True", "PullImageSuccess")))
            .post(1, "upgrade", started())
            .until(replaced([1]))
            .expect(untouched([2, 3]))
    }

    fn s84_private_registry_with_the_secret_on_the_service_account_only_then_works(pace) {
        let private = Behaviour { needs_secret: Some("registry".into()), ..pulled_in(pace.pick(60, 10)) };
        let account = json!({ "spec": { "template": { "spec": { "serviceAccountName": "private" } } } });
        let story = seen()
            .does("a private registry", private_registry)
            .behave(NEW, private)
            .patch(account)
            .until(another_revision().and(need_upgrade(1..=3, true)))
            .shows(1, announced(true))
            .post(1, "imagepull", requested())
            .until(pull_pods("the service account and its secrets", |spec| {
                let account = spec.service_account_name.as_deref();
                let secrets: Vec<&str> = spec.image_pull_secrets.iter().flatten().map(|secret| secret.name.as_str()).collect();
                let fits = account == Some("private")
                    && spec.automount_service_account_token == Some(false)
                    && secrets == ["registry"];
                if fits { Ok(()) } else { Err(format!("{account:?} {secrets:?}")) }
            }));
        ends_well(story)
    }

    fn s85_noexecute_tainted_node_then_works(pace) {
        let taint = json!({ "key": "maintenance", "value": "soon", "effect": "NoExecute" });
        let tolerate = json!({ "spec": { "template": { "spec": { "tolerations": [{ "key": "maintenance", "operator": "Exists" }] } } } });
        let story = ota()
            .patch(tolerate)
            .until(need_upgrade(1..=3, true))
            .agent(1)
            .shows(1, announced(true))
            .post(1, "upgrade", started())
            .until(replaced([1]))
            .step(crate::support::story::Step::PatchNode(1, json!({ "spec": { "taints": [taint] } })))
            .image(NEW)
            .until(need_upgrade(1..=3, true))
            .shows(1, announced(true))
            .remember()
            .behave(NEW, pulled_in(pace.pick(60, 10)))
            .post(1, "imagepull", requested());
        ends_well(story)
    }

    fn s85_restricted_namespace_then_works(_pace) {
        let story = seen().does("restrict the namespace", restrict).post(1, "imagepull", requested());
        Scenario::from(ends_well(story)).since(25)
    }

    fn s85_quota_of_compute_then_works_or_fails_with_a_clear_message(_pace) {
        let with_quota = |hard: Value| seen().does("a quota", move |stage| quota(stage, hard.clone())).post(1, "imagepull", requested());
        vec![
            ends_well(with_quota(json!({
                "requests.cpu": "1", "requests.memory": "1Gi", "limits.cpu": "1", "limits.memory": "1Gi",
            }))),
            with_quota(json!({ "pods": "0" }))
                .until_within(image_ready([1], "False", "PullImageFail"), 120)
                .expect(image_message(1, "exceeded quota"))
                .until(jobs(0, 1))
                .expect(untouched(1..=3)),
        ]
    }

    fn s86_controller_down_while_the_pull_ends_then_the_result_is_reported_after_its_restart(pace) {
        let pull = pace.pick(300, 15);
        let told = |story: Story, reason: &'static str, status: &'static str| {
            story
                .controller(false)
                .wait(pull + pace.pick(300, 15))
                .expect(image_ready([1], "False", "WaitPullImage"))
                .controller(true)
                .until_within(image_ready([1], status, reason), 60)
                .until(jobs(0, 1))
                .expect(untouched(1..=3))
        };
        let good = told(pulling(pull), "PullImageSuccess", "True");
        let bad = seen()
            .behave(NEW, missing_image())
            .post(1, "imagepull", requested())
            .until(image_ready([1], "False", "WaitPullImage").and(jobs(1, 1)));
        let bad = told(bad, "PullImageFail", "False");
        let stories = match pace {
            Pace::Virtual => vec![good, bad],
            // On a real cluster, each of these stories kills the only controller, so it must run alone. One of them is enough
            // there.
            Pace::Real => vec![good],
        };
        Scenario::from(stories).alone()
    }

    fn s87_notready_node_then_nothing_is_started_it_starts_when_the_node_returns(pace) {
        let story = seen()
            .offline([1])
            .wait(pace.pick(10, 3))
            .post(1, "imagepull", requested())
            .until(image_ready([1], "False", "WaitPullImage"))
            .throughout(jobs(0, 0), pace.pick(3600, 10))
            .online([1]);
        ends_well(story)
    }

    fn s88_pod_deleted_during_the_pull_then_its_job_goes_too(pace) {
        pulling(pace.pick(3600, 300))
            .delete_pod(1)
            .until(jobs(0, 1))
            .until(Check::new("no pod of a Job", |picture| {
                let owned = |pod: &Pod| pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Job");
                match picture.pods().find(|pod| owned(pod)) {
                    Some(pod) => Err(format!("{:?} stands", pod.metadata.name)),
                    None => Ok(()),
                }
            }))
            .throughout(jobs(0, 1), pace.pick(600, 5))
    }
}
