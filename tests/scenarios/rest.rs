//! Requests of node owners to their agents: lists of pods with available updates, and upgrades.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::Value;
use tokio::net::TcpStream;
use yurt_ds::k8s::client::Role;
use yurt_ds::sim::kubelet::Behaviour;

use crate::support::agents::other_addresses;
use crate::support::asking::PODS;
use crate::support::checks::*;
use crate::support::forged::*;
use crate::support::link::Way;
use crate::support::objects::*;
use crate::support::picture::condition_of;
use crate::support::player::Stage;
use crate::support::said::*;
use crate::support::story::{Pace, Scenario, Step, Story, Writes, secs};
use crate::support::suite::scenarios;

/// Returns a story on three nodes in OTA mode. A pod may be replaced only at the request of its node owner.
pub(super) fn ota() -> Story {
    Story::on(3)
        .with(Daemon::new().strategy("OTA"))
        .writing(Writes::Conditions)
        .only_wished()
        .until(need_upgrade(1..=3, false))
}

/// Returns a story in which the controller has announced a new version on all pods.
pub(super) fn waiting() -> Story {
    ota().image(NEW).until(need_upgrade(1..=3, true)).remember()
}

/// Returns a story in which the controller has announced a new version, and the agent of node 1 lists it.
pub(super) fn seen() -> Story {
    waiting().agent(1).shows(1, announced(true))
}

/// Checks that only the pod of node 1 was replaced, at the request of its node owner, and that it is up to date.
fn only_the_first_is_replaced(story: Story) -> Story {
    story
        .until(replaced([1]).and(need_upgrade([1], false)))
        .expect(untouched([2, 3]).and(need_upgrade([2, 3], true)))
        .expect(granted([1]))
}

/// Sends `upgrade` and `imagepull` for the pod with this name to the agent of node 1, and compares the responses.
fn both(story: Story, pod: &str, upgrade: Said, pull: Said) -> Story {
    story
        .call(1, "POST", &format!("{PODS}/{pod}/upgrade"), upgrade)
        .call(1, "POST", &format!("{PODS}/{pod}/imagepull"), pull)
}

/// Invalid requests to an agent: method, path and expected status.
const BAD: [(&str, &str, u16); 18] = [
    ("GET", "{pods}/{pod}/upgrade", 405),
    ("GET", "{pods}/{pod}/imagepull", 405),
    ("PUT", "{pods}/{pod}/upgrade", 405),
    ("DELETE", "{pods}/{pod}/upgrade", 405),
    ("POST", "/pods", 405),
    ("POST", "/openyurt.io/v1/pods", 404),
    ("POST", "{pods}/{pod}/update", 404),
    ("POST", "{pods}/{pod}", 404),
    ("GET", "/", 404),
    ("GET", "/debug/pprof/", 404),
    ("POST", "{pods}/..%2F{pod}/upgrade", 400),
    ("POST", "{pods}/x%2f{pod}/upgrade", 400),
    ("POST", "{pods}/%2e%2e/upgrade", 400),
    ("POST", "{pods}/../pods/{pod}/upgrade", 400),
    ("POST", "{pods}/./{pod}/upgrade", 400),
    ("POST", "{pods}//{pod}/upgrade", 400),
    ("POST", "{pods}/UPPER_case/upgrade", 400),
    ("POST", "{pods}/{pod}/upgrade?force=perhaps", 400),
];

/// Expects that the agent lists the pod with this name as outdated.
fn listed_as_outdated(name: &'static str) -> Shown {
    Shown::new(format!("{name} as outdated"), move |list, _, _| {
        let items = list["items"].as_array().ok_or("no items")?;
        let find = |item: &&Value| item["metadata"]["name"] == name;
        let pod = items.iter().find(find).ok_or("not listed")?;
        let pod: Pod = serde_json::from_value(pod.clone()).map_err(|e| e.to_string())?;
        let marked = condition_of(&pod, "PodNeedUpgrade").is_some_and(|c| c.status == "True");
        let owned = pod.metadata.owner_references.is_some() || name == "bare";
        if marked && owned {
            Ok(())
        } else {
            Err(format!("{} is not marked yet", pod.name_any()))
        }
    })
}

/// Checks that exactly the pods of these nodes were replaced at the request of their node owners, in this order.
fn granted(nodes: impl IntoIterator<Item = usize>) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    Check::new(format!("granted on {nodes:?}"), move |picture| {
        let expected: Vec<String> = nodes.iter().map(|number| picture.node(*number)).collect();
        if picture.granted == expected {
            Ok(())
        } else {
            Err(format!("{:?}", picture.granted))
        }
    })
}

/// Checks that no pod has the condition of a pre-pull.
fn no_image_condition() -> Check {
    Check::new("no PodImageReady", |picture| {
        let marked = picture
            .pods()
            .find(|pod| condition_of(pod, "PodImageReady").is_some());
        marked.map_or(Ok(()), |pod| Err(pod.name_any()))
    })
}

/// Checks that the agent of node 1 can be reached on 127.0.0.1 but on no other address of this machine.
async fn knock_from_elsewhere(stage: Stage) -> anyhow::Result<()> {
    let address = stage.agents.of(1)?.address.context("no socket")?;
    anyhow::ensure!(address.ip().is_loopback(), "it listens on {address}");
    for other in other_addresses() {
        let reached = TcpStream::connect((other, address.port())).await;
        anyhow::ensure!(reached.is_err(), "it is reached by {other}");
    }
    Ok(())
}

/// Grants the agents the permission to delete pods, or revokes it.
fn deletions_are(
    granted: bool,
) -> impl Fn(Stage) -> futures::future::BoxFuture<'static, anyhow::Result<()>> {
    move |stage| {
        Box::pin(async move {
            let backend = &stage.world.backend;
            backend
                .permission(Role::OtaServer, "delete", "pods", granted)
                .await?;
            // Wait, because the authorizers of a real API server see a changed role only after a moment.
            let lag = stage.world.pace.pick(secs(0), secs(2));
            tokio::time::sleep(lag).await;
            Ok(())
        })
    }
}

/// Returns the behavior of an image that takes this long to pull.
pub(super) fn pulled_in(seconds: u64) -> Behaviour {
    Behaviour {
        pull: secs(seconds),
        ..Behaviour::default()
    }
}

scenarios! {
    vary because "agents list, watch and patch as their own service account, and how watches begin and what tokens say changed";
    fn s61_get_pods_answers_200_with_a_podlist_in_which_the_pod_carries_podneedupgrade_true(_pace) {
        ota()
            .agent(1)
            .agent(2)
            .shows(1, announced(false))
            .shows(2, announced(false))
            .count_calls()
            .image(NEW)
            .shows(1, announced(true))
            .shows(2, announced(true))
            .shows_now(1, announced(true).and(so_many(1)))
            .calls(1, 0)
            .calls(2, 0)
    }

    fn s62_offline_get_pods_answers_200_from_the_cache(pace) {
        let offline = |way: Way| {
            seen()
                .wait(3)
                .way(1, way)
                .offline([1])
                .shows_now(1, announced(true))
                .wait(pace.pick(3600, 10))
                .shows_now(1, announced(true))
                .agent(1)
                .shows_now(1, announced(true))
                .way(1, Way::Open)
                .online([1])
                .image(OLD)
                .shows(1, announced(false))
        };
        vec![offline(Way::Cut), offline(Way::Frozen)]
    }

    fn s62_before_any_cache_exists_500_get_pod_list_failed(_pace) {
        let never = |way: Way| {
            waiting()
                .way(1, way)
                .agent(1)
                .call(1, "GET", "/pods", says(500, "Get pod list failed"))
                .wait(10)
                .call(1, "GET", "/pods", says(500, "Get pod list failed"))
                .way(1, Way::Open)
                .shows(1, announced(true))
        };
        vec![never(Way::Cut), never(Way::Frozen)]
    }

    fn s63_upgrade_answers_start_updating_pod_and_only_that_pod_is_replaced(pace) {
        let story = seen().count_calls().post(1, "upgrade", started()).asked_deletions(1, 1);
        only_the_first_is_replaced(story)
            .shows(1, announced(false))
            .post(1, "upgrade", refused(NOTHING_NEW))
            .throughout(untouched([2, 3]), pace.pick(3600, 5))
            .agent(3)
            .shows(3, announced(true))
            .post(3, "upgrade", started())
            .until(replaced([1, 3]).and(need_upgrade([1, 3], false)))
            .expect(untouched([2]).and(granted([1, 3])))
    }

    fn s64_imagepull_answers_image_pre_pull_requested_for_pod(pace) {
        seen()
            .post(1, "imagepull", requested())
            .until(image_ready([1], "True", "PullImageSuccess"))
            .shows(1, image_shown("True", "PullImageSuccess"))
            .throughout(untouched(1..=3), pace.pick(600, 5))
    }

    fn s65_cloud_unreachable_then_both_posts_answer_503_and_nothing_happens_later(pace) {
        let away = |way: Way| {
            seen()
                .way(1, way)
                .post(1, "upgrade", disconnected())
                .post(1, "imagepull", disconnected())
                .wait(pace.pick(600, 10))
                .post(1, "upgrade", disconnected())
                .post(1, "imagepull", disconnected())
                .way(1, Way::Open)
                .throughout(untouched(1..=3).and(no_image_condition()), pace.pick(600, 15))
                .post_until(1, "upgrade", started())
                .until(replaced([1]))
                .expect(untouched([2, 3]).and(granted([1])))
        };
        vec![away(Way::Cut), away(Way::Frozen)]
    }

    fn s66_unknown_pod_then_500_get_pod_failed_without_an_api_request(_pace) {
        let absent = |name: &str| begins(500, &format!("Get pod failed, pods {name:?} not found")).because("NotFound");
        let story = seen().count_calls();
        let story = both(story, "no-such-pod", absent("no-such-pod"), absent("no-such-pod"));
        both(story, "nginx-daemonset", absent("nginx-daemonset"), absent("nginx-daemonset"))
            .call(1, "POST", "/openyurt.io/v1/namespaces/kube-system/pods/{pod}/upgrade", begins(500, "Get pod failed, "))
            .calls(1, 0)
    }

    fn s67_deleting_pod_then_403(pace) {
        let going = || seen().step(Step::TerminateIn(1, secs(pace.pick(20, 60))));
        vec![
            going()
                .count_calls()
                .post(1, "upgrade", started())
                .post(1, "upgrade", refused(DELETING).because("Deleting"))
                .post(1, "imagepull", pull_refused(DELETING).because("Deleting"))
                .asked_deletions(1, 1)
                .until(replaced([1])),
            going()
                .delete_pod(1)
                .until(terminating(1))
                .wait(3)
                .count_calls()
                .post(1, "upgrade", refused(DELETING))
                .post(1, "imagepull", pull_refused(DELETING))
                .calls(1, 0),
        ]
    }

    fn s68_pod_of_another_node_then_403_with_that_nodes_name(_pace) {
        seen()
            .post_for(1, 2, "upgrade", refused(ELSEWHERE).because("OtherNode"))
            .post_for(1, 3, "imagepull", pull_refused(ELSEWHERE).because("OtherNode"))
            .throughout(untouched(1..=3), 5)
    }

    fn s69_podneedupgrade_missing_or_false_then_403(_pace) {
        let refused_both = |story: Story| {
            story
                .count_calls()
                .post(1, "upgrade", refused(NOTHING_NEW).because("NotUpgradable"))
                .post(1, "imagepull", pull_refused(NOTHING_NEW).because("NotUpgradable"))
                .calls(1, 0)
        };
        let plain = Story::on(3).with(Daemon::plain()).only_wished().image(NEW).until(observed());
        vec![
            refused_both(ota().agent(1).shows(1, announced(false))),
            refused_both(plain.agent(1).shows(1, so_many(1))),
        ]
    }

    fn s70_podimageready_false_then_403_true_for_the_same_hash_then_200(pace) {
        let pull = pace.pick(30, 12);
        let hash = "controllerrevision: {hash}";
        vec![
            seen()
                .behave(NEW, pulled_in(pull))
                .post(1, "imagepull", requested())
                .shows(1, image_shown("False", "WaitPullImage"))
                .post(1, "upgrade", image_not_ready("WaitPullImage", hash).because("ImageNotReady"))
                .shows(1, image_shown("True", "PullImageSuccess"))
                .expect(untouched(1..=3))
                .post(1, "upgrade", started())
                .until(replaced([1])),
            seen()
                .behave(NEW, missing_image())
                .post(1, "imagepull", requested())
                .shows(1, image_shown("False", "PullImageFail"))
                .post(1, "upgrade", image_not_ready("PullImageFail", "").because("ImagePullFailed"))
                .expect(untouched(1..=3))
                .behave(NEW, Behaviour::default())
                .post(1, "upgrade?force=true", started())
                .until(replaced([1])),
        ]
    }

    fn s71_bare_pod_then_400_pod_has_no_owner_references(_pace) {
        let answer = || says(400, "Pod has no owner references").because("NoOwner");
        let story = seen()
            .does("a bare pod", bare_pod)
            .shows(1, listed_as_outdated("bare"))
            .count_calls();
        both(story, "bare", answer(), answer()).calls(1, 0).throughout(untouched(1..=3), 3)
    }

    fn s72_replicaset_pod_with_forged_condition_then_400(_pace) {
        let answer = || says(400, "Not support ota upgrade pod type ReplicaSet").because("UnsupportedKind");
        let story = seen()
            .does("a pod of a ReplicaSet", pod_of_a_replica_set)
            .shows(1, listed_as_outdated("replicated"))
            .count_calls();
        both(story, "replicated", answer(), answer()).calls(1, 0).throughout(untouched(1..=3), 3)
    }

    fn s73_static_pod_with_and_without_its_configmap_then_200_and_403(pace) {
        let pod = "web-{node}";
        let upgrade = |story: Story, said: Said| story.call(1, "POST", &format!("{PODS}/{pod}/upgrade"), said);
        let begin = || seen().does("a static pod", static_pod).shows(1, shown_static());
        let missing = says(403, "Configmap for static pod does not exist").because("ConfigMapMissing");
        let with = |image: &'static str| move |stage: Stage| config_map(stage, image);
        let story = upgrade(begin(), missing)
            .does("nothing is written", |stage| manifest_says(stage, OLD))
            .does("its ConfigMap", with(NEW));
        let story = upgrade(story, says(200, &format!("Start updating pod {{ns}}/{pod}")).because("Started"))
            .does("the manifest is the new one", |stage| manifest_says(stage, NEW))
            .call(1, "POST", &format!("{PODS}/{pod}/imagepull"), says(400, "Not support ota upgrade pod type Node"))
            .expect(untouched(1..=3));
        match pace {
            // In virtual time, no kubelet reads the new manifest, so its pod never starts. The agent must then restore the old
            // manifest.
            Pace::Virtual => story.wait(600).does("the old manifest is back", |stage| manifest_says(stage, OLD)),
            Pace::Real => story,
        }
    }

    fn s74_the_api_refuses_the_delete_then_500_apply_update_failed(_pace) {
        let story = seen()
            .does("agents may not delete", deletions_are(false))
            .post(1, "upgrade", says(500, "Apply update failed"))
            .throughout(untouched(1..=3), 3)
            .does("they may again", deletions_are(true))
            .post(1, "upgrade", started())
            .until(replaced([1]))
            .expect(untouched([2, 3]));
        Scenario::from(story).alone()
    }

    fn s75_wrong_methods_paths_and_encodings_then_4xx_and_no_api_call(_pace) {
        let begin = seen().count_calls();
        BAD.into_iter()
            .fold(begin, |story, (method, path, code)| {
                story.call(1, method, &path.replace("{pods}", PODS), status(code))
            })
            .calls(1, 0)
            .throughout(untouched(1..=3), 3)
    }

    fn s76_ten_parallel_upgrade_calls_for_one_pod_then_one_deletion(_pace) {
        let story = seen()
            .count_calls()
            .post_at_once(1, "upgrade", 10, [started(), refused(DELETING)])
            .asked_deletions(1, 1);
        only_the_first_is_replaced(story).asked_deletions(1, 1)
    }

    fn s78_answers_are_json_and_the_listener_is_not_reachable_from_another_host(_pace) {
        Scenario::from(seen().does("knock from elsewhere", knock_from_elsewhere).shows_now(1, announced(true)))
            .only_real("there are no sockets in virtual time; that answers are JSON, and errors text, is compared in every story here")
    }

    fn s77_condition_true_left_behind_daemonset_since_switched_then_refused(_pace) {
        let refused_both = |story: Story| {
            story
                .post(1, "upgrade", refused(NOTHING_NEW).because("ModeChanged"))
                .post(1, "imagepull", pull_refused(NOTHING_NEW).because("ModeChanged"))
        };
        let mode = "update-strategy";
        let story = refused_both(seen().controller(false).annotate(mode, "AdvancedRollingUpdate"));
        let story = refused_both(story.annotate(mode, "Sideways"));
        let story = refused_both(story.unannotate(mode)).throughout(untouched(1..=3), 3);
        let back = story.annotate(mode, "OTA").post(1, "upgrade", started()).until(replaced([1])).expect(untouched([2, 3]));
        Scenario::from(back.controller(true).until(need_upgrade([1], false))).alone()
    }
}
