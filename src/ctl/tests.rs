//! Tests that run `ctl` commands against the embedded cluster: its API server, native controllers and kubelets, in virtual time.

mod foreign;
mod people;
mod pipelines;
mod situations;

use std::time::Duration;

use clap::Parser;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{Access, CliError, Code, Context, Screen, perform};
use crate::cli::{Cli, Command};
use crate::clock::Clock;
use crate::core::{FailureRecord, NodeName, RolloutState, SetKind, Stopped};
use crate::sim::cluster::faults::Fault;
use crate::sim::cluster::{Cluster, ClusterOptions};
use crate::sim::kubelet::{self, Behaviour, FakeNodeSpec, Kubelets, Outage};
use crate::sim::{daemonset, scheduler};
use crate::task::Task;

/// Time in which native controllers and kubelets react to a change.
const A_MOMENT: Duration = Duration::from_secs(60);

pub(super) struct CtlWorld {
    pub(super) cluster: Cluster,
    pub(super) client: Client,
    pub(super) kubelets: Kubelets,
    pub(super) context: Context,
    _tasks: Vec<Task>,
}

/// Joins the lines of a text, because `ctl` wraps its output.
pub(super) fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asserts that no line is longer than 80 columns, the width of a small terminal.
#[track_caller]
pub(super) fn assert_fits(text: &str) {
    let fits = |line: &str| line.chars().count() <= 80;
    assert!(text.lines().all(fits), "{text}");
}

impl CtlWorld {
    /// Creates a cluster with nodes n1, n2, … and the managed DaemonSet `default/web` on them.
    pub(super) async fn with_nodes(count: usize) -> Self {
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::starting_at(epoch);
        let cluster = Cluster::new(ClusterOptions::new(clock.clone(), 1));
        let options = kubelet::KubeletOptions::default();
        let kubelets = Kubelets::start(cluster.client("kubelet"), clock.clone(), options);
        let native = cluster.client("kube-controller-manager");
        let tasks = vec![
            daemonset::start(
                native,
                clock.clone(),
                daemonset::DaemonSetsOptions::default(),
            ),
            scheduler::start(cluster.client("kube-scheduler")),
        ];
        let nodes = (1..=count).map(|n| FakeNodeSpec::named(format!("n{n}")));
        kubelets.add_nodes(nodes.collect()).await.unwrap();
        let access = Access {
            client: cluster.client("ctl"),
            server: "https://sim".into(),
            origin: "kubeconfig sim".into(),
            namespace: "default".into(),
            is_warned: std::sync::Arc::default(),
        };
        let world = Self {
            client: cluster.client("test"),
            cluster,
            kubelets,
            context: Context {
                access,
                namespace: None,
                clock,
            },
            _tasks: tasks,
        };
        world
            .create("web", json!({ "apps.openyurt.io/update-strategy": "auto" }))
            .await;
        world
    }

    pub(super) async fn create(&self, name: &str, annotations: Value) {
        let set = json!({
            "metadata": { "name": name, "annotations": annotations },
            "spec": {
                "selector": { "matchLabels": { "app": name } },
                "updateStrategy": { "type": "OnDelete" },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [{ "name": "c", "image": "web:1" }] },
                },
            },
        });
        let set = serde_json::from_value(set).unwrap();
        let sets = self.sets().create(&PostParams::default(), &set).await;
        sets.unwrap();
        tokio::time::sleep(A_MOMENT).await;
    }

    pub(super) fn sets(&self) -> Api<DaemonSet> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(super) async fn patch(&self, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        self.sets().patch("web", &params, &patch).await.unwrap();
        tokio::time::sleep(A_MOMENT).await;
    }

    pub(super) async fn set_image(&self, image: &str) {
        let containers = json!([{ "name": "c", "image": image }]);
        let template = json!({ "spec": { "containers": containers } });
        self.patch(json!({ "spec": { "template": template } }))
            .await;
    }

    /// Deletes the pod of a node, as the controller does to update it.
    pub(super) async fn replace(&self, node: &str) {
        let pods: Api<k8s_openapi::api::core::v1::Pod> =
            Api::namespaced(self.client.clone(), "default");
        for pod in pods.list(&Default::default()).await.unwrap() {
            if pod.spec.unwrap().node_name.as_deref() == Some(node) {
                let name = pod.metadata.name.unwrap();
                pods.delete(&name, &Default::default()).await.unwrap();
            }
        }
        tokio::time::sleep(A_MOMENT).await;
    }

    /// Runs a command, and returns its output and its result.
    pub(super) async fn run(&self, line: &str) -> (String, Result<Code, CliError>) {
        let words = format!("yurt-ds ctl {line}");
        let Command::Ctl(args) = Cli::parse_from(words.split(' ')).command else {
            panic!("not ctl")
        };
        let context = Context {
            access: self.context.access.clone(),
            namespace: args.access.namespace.clone(),
            clock: self.context.clock.clone(),
        };
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, false, false);
        let ended = Box::pin(perform(&context, &args.verb, &mut screen)).await;
        (String::from_utf8(out).unwrap(), ended)
    }

    pub(super) async fn text(&self, line: &str) -> String {
        let (text, ended) = self.run(line).await;
        ended.unwrap();
        text
    }

    pub(super) async fn code(&self, line: &str) -> Code {
        self.run(line).await.1.unwrap()
    }

    pub(super) async fn error(&self, line: &str) -> CliError {
        let (text, ended) = self.run(line).await;
        assert_eq!(text, "", "nothing is printed before a failure");
        ended.unwrap_err()
    }

    pub(super) async fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.text(&format!("{line} -o json")).await).unwrap()
    }

    /// Returns the number of write requests (not get, list or watch) that `ctl` has sent.
    pub(super) fn writes(&self) -> u64 {
        let of_ctl = self.cluster.requests().into_iter();
        of_ctl
            .filter(|count| count.user_agent == "ctl")
            .filter(|count| !["get", "list", "watch"].contains(&count.verb.as_str()))
            .map(|count| count.number)
            .sum()
    }
}

#[tokio::test(start_paused = true)]
async fn a_complete_rollout_is_complete_in_every_output_format() {
    let world = CtlWorld::with_nodes(3).await;
    world.create("plain", json!({})).await;
    let list = world.text("status").await;
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("DAEMONSET"), "{list}");
    assert!(lines[1].starts_with("default/web"), "{list}");
    assert!(!list.contains("plain"), "{list}");
    assert_eq!(world.code("status").await, Code::Complete);
    assert_eq!(world.code("status web --wait").await, Code::Complete);
    let list = world.json("status").await;
    let one = world.json("status default/web").await;
    for row in [&list[0], &one] {
        assert_eq!(row["phase"], "Complete");
        assert_eq!((&row["updated"], &row["targeted"]), (&json!(3), &json!(3)));
        assert_eq!(row["verdicts"], json!({ "Done": 3 }));
    }
    assert_eq!(one["nodes"][0]["node"], "n1");
    assert_eq!(one["nodes"][0]["pods"][0]["revision"], "current");
    assert_eq!(world.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn help_lists_exactly_the_fields_of_documents() {
    let world = CtlWorld::with_nodes(1).await;
    let listed = |line: &str| -> Vec<String> {
        let help = super::row::FIELDS.split("\n  of ");
        let found = help.filter_map(|part| part.strip_prefix(line)).next();
        let text = found.unwrap().split("\n  phase ").next().unwrap();
        let outside = text.split('(').map(|part| part.rsplit(')').next().unwrap());
        let words = outside.collect::<Vec<_>>().join(" ");
        let words = words.split(|c: char| !c.is_alphanumeric());
        words
            .filter(|word| !word.is_empty())
            .map(Into::into)
            .collect()
    };
    #[track_caller]
    fn same(mut listed: Vec<String>, object: &Value) {
        let mut found: Vec<String> = object.as_object().unwrap().keys().cloned().collect();
        listed.sort();
        found.sort();
        assert_eq!(listed, found);
    }
    let set = world.json("status web").await;
    let node = &set["nodes"][0];
    same(listed("a DaemonSet"), &set);
    same(listed("a node"), node);
    same(listed("a pod"), &node["pods"][0]);
    let mut why = listed("why");
    why.retain(|word| !["those", "of", "a", "and"].contains(&word.as_str()));
    why.retain(|word| word != "node");
    why.extend(listed("a node"));
    same(why, &world.json("why web n1").await);
    for word in crate::core::Verdict::WORDS {
        assert!(super::row::FIELDS.contains(word), "{word}");
    }
}

#[tokio::test(start_paused = true)]
async fn offline_nodes_do_not_prevent_a_rollout_from_completing() {
    let world = CtlWorld::with_nodes(3).await;
    let offline = world.kubelets.set_offline("n3", Outage::MARKED).await;
    offline.unwrap();
    world.set_image("web:2").await;
    assert_eq!(world.code("status web").await, Code::Progressing);
    let report = world.text("status web").await;
    assert!(report.contains("1 to be replaced now"), "{report}");
    assert!(report.contains("Offline(NotReady)  n3"), "{report}");
    world.replace("n1").await;
    world.replace("n2").await;
    assert_eq!(world.code("status web").await, Code::Complete);
    assert_eq!(world.code("status web --strict").await, Code::Progressing);
    let (text, ended) = world.run("status web --wait").await;
    assert_eq!(ended, Ok(Code::Complete));
    assert!(
        text.contains("2 of 3 nodes updated. 1 node is offline and will be updated when it reconnects. No action needed"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_offline_count_is_the_number_of_nodes_with_that_verdict() {
    let world = CtlWorld::with_nodes(2).await;
    let offline = world.kubelets.set_offline("n2", Outage::MARKED).await;
    offline.unwrap();
    world.set_image("web:2").await;
    let away = world.json("status web").await;
    world.kubelets.set_online("n2").await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    // Five seconds after its return, the node is still counted as offline (`Settling`).
    let settling = world.json("status web").await;
    for row in [away, settling] {
        assert_eq!(row["offline"], 1, "{row}");
        assert_eq!(row["offlineOutdated"], 1, "{row}");
        assert_eq!(row["verdicts"]["Offline"], 1, "{row}");
    }
}

#[tokio::test(start_paused = true)]
async fn why_shows_verdict_slot_holders_and_remedy() {
    let crashing = Behaviour {
        crash_after: Some(Duration::from_secs(1)),
        ..Behaviour::default()
    };
    let world = CtlWorld::with_nodes(4).await;
    world.kubelets.behaviour("web:2", crashing).await.unwrap();
    world
        .kubelets
        .set_offline("n4", Outage::MARKED)
        .await
        .unwrap();
    world.set_image("web:2").await;
    world.replace("n1").await;
    let holder = world.json("why web n1").await;
    assert_eq!(holder["verdict"], "FailedByRevision");
    assert_eq!(holder["needsAttention"], true);
    assert!(
        text_of(&holder["next"]).contains("yurt-ds ctl undo default/web"),
        "{holder}"
    );
    let waiting = world.json("why web n3").await;
    assert_eq!(waiting["verdict"], "Budget");
    for word in [
        "Number 2 of 2",
        "Slots are held by n1 (",
        "max-unavailable 10%",
    ] {
        assert!(text_of(&waiting["next"]).contains(word), "{waiting}");
    }
    let offline = world.json("why default/web n4").await;
    assert_eq!(offline["verdict"], "Offline");
    assert!(offline["since"].is_string());
    let sentence = world.text("why web n4").await;
    assert!(
        sentence.starts_with("Node n4 is NotReady and outdated"),
        "{sentence}"
    );
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn why_links_to_the_pull_pod_only_if_it_exists() {
    let world = CtlWorld::with_nodes(1).await;
    let required = json!({
        "apps.openyurt.io/image-predownload-parallelism": "1",
        "apps.openyurt.io/predownload": "required",
    });
    world
        .patch(json!({ "metadata": { "annotations": required } }))
        .await;
    world.set_image("web:2").await;
    let pods: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(world.client.clone(), "default");
    let pod = pods
        .list(&Default::default())
        .await
        .unwrap()
        .items
        .remove(0);
    let revision = text_of(&world.json("status web").await["revision"]).to_owned();
    let asked = json!({ "status": { "conditions": [{
        "type": "PodImageReady", "status": "False", "reason": "WaitPullImage",
        "message": crate::core::message_of(&revision),
    }] } });
    let (name, params) = (pod.metadata.name.unwrap(), PatchParams::default());
    let asked = Patch::Strategic(asked);
    pods.patch_status(&name, &params, &asked).await.unwrap();
    let answer = world.json("why web n1").await;
    assert_eq!(answer["verdict"], "PullPending");
    for (field, words) in [
        ("message", "waits to pull the new images; no pod"),
        ("next", "At most 50 pulls run at once in the cluster"),
    ] {
        assert!(text_of(&answer[field]).contains(words), "{answer}");
    }
    let uid = pod.metadata.uid.unwrap();
    let pull = json!({
        "metadata": { "name": "pull", "labels": { crate::core::names::PRE_PULL_POD: uid } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "web:2" }] },
    });
    let pull = serde_json::from_value(pull).unwrap();
    pods.create(&PostParams::default(), &pull).await.unwrap();
    let answer = world.json("why web n1").await;
    assert!(
        text_of(&answer["message"]).contains("is pulling the new images"),
        "{answer}"
    );
    assert!(text_of(&answer["next"]).contains(&uid), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn why_names_the_constraint_that_keeps_a_pod_off_a_node() {
    let world = CtlWorld::with_nodes(2).await;
    let template = json!({ "spec": { "nodeSelector": { "role": "edge" } } });
    world
        .patch(json!({ "spec": { "template": template } }))
        .await;
    let answer = world.json("why web n2").await;
    assert_eq!(answer["verdict"], "NotTargeted");
    assert!(
        text_of(&answer["message"]).contains("role=edge"),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn pause_and_resume_write_once_and_only_when_something_changes() {
    let world = CtlWorld::with_nodes(3).await;
    world.set_image("web:2").await;
    let text = world.text("pause web").await;
    assert!(
        text.starts_with("default/web is paused. 3 outdated nodes stay"),
        "{text}"
    );
    assert_eq!(world.writes(), 1);
    assert!(
        world
            .text("pause web")
            .await
            .contains("nothing was changed")
    );
    assert_eq!(world.writes(), 1);
    assert_eq!(world.code("status web").await, Code::Paused);
    assert_eq!(world.code("status web --wait").await, Code::Paused);
    let paused = world.text("why web n1").await;
    assert!(
        paused.contains("yurt-ds ctl resume default/web"),
        "{paused}"
    );
    let text = world.text("resume web").await;
    assert!(
        text.contains("3 outdated nodes follow, at most 1 at a time"),
        "{text}"
    );
    assert!(
        world
            .text("resume web")
            .await
            .contains("nothing was changed")
    );
    assert_eq!(world.writes(), 2);
    // `pause` refuses to shorten an existing pause, because another operator may have set it.
    world.text("pause web").await;
    let error = world.error("pause web --for 2h").await;
    assert_eq!(error.code, Code::Refused);
    let text = error.to_string();
    assert!(
        text.contains("indefinitely") && text.contains("--force"),
        "{text}"
    );
    assert_eq!(world.writes(), 3);
    let text = world.text("pause web --for 2h --force").await;
    assert!(text.contains("resumes automatically"), "{text}");
    assert_eq!(world.error("pause web --for 1h").await.code, Code::Refused);
    let set = world.sets().get("web").await.unwrap();
    let until = &set.metadata.annotations.unwrap()["apps.openyurt.io/paused"];
    let until: Timestamp = until.parse().unwrap();
    let span = until.as_second() - world.context.clock.now().as_second();
    assert!((7190..=7200).contains(&span), "{span}");
    tokio::time::sleep(Duration::from_secs(7200)).await;
    assert_eq!(world.code("status web").await, Code::Progressing);
    let text = world.text("resume web").await;
    assert!(text.contains("nothing was changed"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn commands_on_an_unmanaged_daemonset_are_refused_with_the_next_step() {
    let world = CtlWorld::with_nodes(1).await;
    world.create("plain", json!({})).await;
    for line in [
        "pause plain",
        "resume plain",
        "status plain",
        "why plain n1",
    ] {
        let error = world.error(line).await;
        assert_eq!(error.code, Code::NotFound, "{line}");
        assert!(
            error
                .text
                .contains("kubectl -n default annotate daemonset plain"),
            "{error}"
        );
    }
    assert_eq!(world.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_daemonset_replaced_by_kubernetes_cannot_be_paused() {
    let world = CtlWorld::with_nodes(1).await;
    world
        .patch(json!({ "spec": { "updateStrategy": { "type": "RollingUpdate" } } }))
        .await;
    let error = world.error("pause web").await;
    assert_eq!(error.code, Code::Invalid);
    let said = "default/web was not paused: its spec.updateStrategy.type is RollingUpdate, so Kubernetes replaces \
        the pods";
    assert!(error.text.starts_with(said), "{error}");
    assert!(
        error
            .text
            .contains("kubectl -n default patch daemonset web"),
        "{error}"
    );
    assert_eq!(world.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_daemonset_with_a_misspelled_annotation_is_reported() {
    let world = CtlWorld::with_nodes(1).await;
    world
        .create("slip", json!({ "apps.openyurt.io/update-stategy": "auto" }))
        .await;
    let list = world.text("status").await;
    let note = "\nNote, on default/slip: apps.openyurt.io/update-stategy has no effect (similar setting: apps.openyurt.io/update-strategy)";
    assert!(list.contains(note), "{list}");
    let error = world.error("status slip").await;
    assert!(
        error.text.contains("update-stategy has no effect"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_selector_without_matches_and_a_taint_are_explained() {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    let selector = |value: Option<&str>| json!({ "metadata": { "annotations": { "apps.openyurt.io/selector": value } } });
    world.patch(selector(Some("pool=nope"))).await;
    assert_eq!(world.code("status web").await, Code::Invalid);
    let answer = world.json("status web").await;
    assert_eq!(answer["phase"], "Invalid");
    assert!(
        text_of(&answer["message"])
            .contains("which matches none of the 2 nodes that should run a pod"),
        "{answer}"
    );
    let why = world.text("why web n1").await;
    assert!(
        why.contains("apps.openyurt.io/selector is invalid"),
        "{why}"
    );
    world.patch(selector(None)).await;
    let taint = json!({ "spec": { "taints": [{ "key": "site", "value": "closed", "effect": "NoSchedule" }] } });
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(world.client.clone());
    let (params, patch) = (PatchParams::default(), Patch::Merge(taint));
    nodes.patch("n2", &params, &patch).await.unwrap();
    world.replace("n1").await;
    let text = world.text("status web").await;
    assert!(
        text.contains("1 node updated. 1 node has an untolerated taint: n2"),
        "{text}"
    );
    let answer = world.json("why web n2").await;
    assert_eq!(answer["verdict"], "UntoleratedTaint");
    assert!(
        text_of(&answer["message"]).contains("its taint site=closed:NoSchedule"),
        "{answer}"
    );
    assert!(
        text_of(&answer["next"]).contains("kubectl taint node n2 site=closed:NoSchedule-"),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_names_suggest_similar_ones() {
    let world = CtlWorld::with_nodes(2).await;
    let case = async |line: &str, words: &str| {
        let error = world.error(line).await;
        assert_eq!(error.code, Code::NotFound, "{line}");
        assert!(error.text.contains(words), "{error}");
    };
    case(
        "status weeb",
        "no DaemonSet weeb in namespace default. Did you mean default/web?",
    )
    .await;
    case("pause defualt/web", "Did you mean default/web?").await;
    case("why web n11", "There is no node n11. Did you mean n1?").await;
    case(
        "status -n defualt",
        "There is no namespace defualt. Did you mean default?",
    )
    .await;
    case(
        "status -n defualt --wait",
        "There is no namespace defualt. Did you mean default?",
    )
    .await;
    assert_eq!(world.error("status -n ..").await.code, Code::Usage);
    assert_eq!(world.error("status a/b/c").await.code, Code::Usage);
    assert_eq!(
        world.error("status -n other default/web").await.code,
        Code::Usage
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_settings_are_named_with_a_remedy() {
    let world = CtlWorld::with_nodes(2).await;
    world
        .patch(
            json!({ "metadata": { "annotations": { "apps.openyurt.io/max-unavailable": "abc" } } }),
        )
        .await;
    world.set_image("web:2").await;
    assert_eq!(world.code("status web").await, Code::Invalid);
    assert_eq!(world.code("status --wait").await, Code::Invalid);
    let answer = world.json("why web n1").await;
    assert_eq!(answer["verdict"], "Invalid");
    for word in ["apps.openyurt.io/max-unavailable", "\"abc\"", "such as 10%"] {
        assert!(text_of(&answer["next"]).contains(word), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn status_wait_ends_when_the_last_pod_is_available_or_at_the_timeout() {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    let (text, ended) = world.run("status web --wait --timeout 30s").await;
    assert_eq!(ended, Ok(Code::Progressing));
    assert!(text.contains("\nNot complete after 30s.\n"), "{text}");
    assert!(text.contains("no controller has reported yet"), "{text}");
    let replacing = async {
        world.replace("n1").await;
        world.replace("n2").await;
    };
    let ((text, ended), ()) = tokio::join!(world.run("status web --wait --timeout 10m"), replacing);
    assert_eq!(ended, Ok(Code::Complete), "{text}");
    assert!(text.ends_with("all 2 nodes updated\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn status_wait_ends_when_another_revision_is_rolled_out() {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    let awaited = text_of(&world.json("status web").await["revision"]).to_owned();
    let back = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.set_image("web:1").await;
    };
    let ((_, ended), ()) = tokio::join!(world.run("status web --wait"), back);
    assert_eq!(ended, Ok(Code::Superseded));
    // The rollout is complete, but the current revision is not the one in `--revision`.
    let line = format!("status web --wait --revision {awaited}");
    assert_eq!(world.code(&line).await, Code::Superseded);
    let current = text_of(&world.json("status web").await["revision"]).to_owned();
    let line = format!("status web --wait --revision {current}");
    assert_eq!(world.code(&line).await, Code::Complete);
    world.set_image("web:3").await;
    let again = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        world
            .sets()
            .delete("web", &Default::default())
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        world
            .create("web", json!({ "apps.openyurt.io/update-strategy": "auto" }))
            .await;
    };
    let ((_, ended), ()) = tokio::join!(world.run("status web --wait"), again);
    assert_eq!(ended, Ok(Code::Superseded));
}

/// Checks that `--wait` continues while nodes lack a pod, although the condition `RolloutComplete` is `True` for the current
/// revision.
#[tokio::test(start_paused = true)]
async fn status_wait_continues_while_nodes_lack_a_pod_despite_a_complete_condition() {
    let world = CtlWorld::with_nodes(2).await;
    let revision = text_of(&world.json("status web").await["revision"]).to_owned();
    let complete = json!({
        "type": "RolloutComplete", "status": "True", "reason": "Complete",
        "message": format!("revision {revision}: complete"), "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({ "status": { "conditions": [complete] } });
    let (params, patch) = (PatchParams::default(), Patch::Strategic(status));
    let patched = world.sets().patch_status("web", &params, &patch).await;
    patched.unwrap();
    let slow = kubelet::Rule {
        image: "web:1".into(),
        node: "n1".into(),
        behaviour: Behaviour {
            ready_after: Duration::from_secs(300),
            ..Behaviour::default()
        },
    };
    world.kubelets.rule(slow).await.unwrap();
    world.replace("n1").await;
    let (text, ended) = world.run("status web").await;
    assert_eq!(ended, Ok(Code::Complete));
    assert!(
        text.contains("1 of 2 nodes updated. 1 node has no available pod"),
        "{text}"
    );
    let (text, ended) = world.run("status web --wait --timeout 30s").await;
    assert_eq!(ended, Ok(Code::Progressing));
    let words =
        "Not complete after 30s: default/web is complete, but 1 node has no available pod.\n";
    assert!(text.ends_with(words), "{text}");
    let (text, ended) = world.run("status web --wait").await;
    assert_eq!(ended, Ok(Code::Complete));
    assert!(text.ends_with("all 2 nodes updated\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn why_shows_node_owners_the_upgrade_command() {
    let world = CtlWorld::with_nodes(2).await;
    world
        .patch(
            json!({ "metadata": { "annotations": { "apps.openyurt.io/update-strategy": "OTA" } } }),
        )
        .await;
    world.set_image("web:2").await;
    assert_eq!(world.json("status web").await["phase"], "AwaitingOwners");
    assert_eq!(world.code("status web").await, Code::Progressing);
    let answer = world.json("why web n1").await;
    assert_eq!(answer["verdict"], "AwaitingOwner");
    assert!(
        text_of(&answer["next"])
            .contains("127.0.0.1:10267/openyurt.io/v1/namespaces/default/pods/web-")
    );
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_api_server_and_a_denied_request_are_distinguished() {
    let world = CtlWorld::with_nodes(1).await;
    let refusing = world.cluster.faults().add(|_| Fault::Status(403, None));
    let error = world.error("status").await;
    assert_eq!(error.code, Code::Unreachable);
    assert!(
        error
            .text
            .starts_with("You may not list DaemonSets in all namespaces. Try one namespace:"),
        "{error}"
    );
    drop(refusing);
    let silent = world.cluster.faults().add(|_| Fault::Hang);
    let error = world.error("status web").await;
    assert_eq!(error.code, Code::Unreachable);
    assert!(
        error
            .text
            .contains("https://sim (kubeconfig sim) does not respond"),
        "{error}"
    );
    drop(silent);
    assert_eq!(world.code("status web").await, Code::Complete);
}

/// Stores a record in which the guard stopped `revision`.
async fn stop(world: &CtlWorld, revision: &str) {
    let record = FailureRecord {
        stopped: Some(Stopped::FailedByRevision),
        failed: ["n1", "n2"].map(NodeName::from).into(),
        ..FailureRecord::new(revision.into())
    };
    guard(world, record).await;
}

/// Stores the guard's record in the DaemonSet's status.
async fn guard(world: &CtlWorld, record: FailureRecord) {
    let state = RolloutState {
        guard: Some(record),
        ..RolloutState::default()
    };
    remember(world, &state).await;
}

/// Stores the controller's state in the DaemonSet's status.
pub(super) async fn remember(world: &CtlWorld, state: &RolloutState) {
    let state = json!({ "type": "RolloutState", "status": "True", "reason": "Version1", "message": state.to_json() });
    let patch = Patch::Merge(json!({ "status": { "conditions": [state] } }));
    let params = PatchParams::default();
    let sets = world.sets();
    sets.patch_status("web", &params, &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn why_explains_lost_nodes_whose_node_objects_are_deleted() {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    let revision = world.json("status web").await["revision"].clone();
    let revision = text_of(&revision);
    let now = world.context.clock.now();
    let record = FailureRecord {
        failed: [NodeName::from("n8")].into(),
        lost: ["n7", "n8"].map(|name| (name.into(), now)).into(),
        ..FailureRecord::new(revision.into())
    };
    guard(&world, record).await;
    let failed = world.text("why web n8").await;
    assert!(
        failed.starts_with("Node n8 failed with this revision and was deleted"),
        "{failed}"
    );
    assert!(failed.contains("yurt-ds ctl undo default/web"), "{failed}");
    let judged = world.text("why web n7").await;
    assert!(judged.contains("The guard decides in 30s."), "{judged}");
    let waits = flat(&world.text("why web n1").await);
    let named = "the guard has not decided yet if the new version took these nodes offline: n7";
    assert!(waits.contains(named), "{waits}");
    let said = &world.json("status web").await["message"];
    assert!(text_of(said).contains(named), "{said}");
    let unknown = world.error("why web n9").await;
    assert_eq!(unknown.code, Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn resume_releases_a_stopped_revision_and_reports_it() {
    let world = CtlWorld::with_nodes(2).await;
    let annotation = async |name: &str| {
        let set = world.sets().get("web").await.unwrap();
        let annotations = set.metadata.annotations.unwrap_or_default();
        annotations
            .get(&format!("apps.openyurt.io/{name}"))
            .cloned()
    };
    stop(&world, "5d4f8").await;
    // While the rollout is paused, `resume` only ends the pause. A second `resume` releases the stopped revision.
    world.text("pause web").await;
    let text = world.text("resume web").await;
    assert!(text.starts_with("default/web is resumed."), "{text}");
    assert_eq!(annotation("resume").await, None);
    let text = world.text("resume web").await;
    let expected = "Revision 5d4f8 continues. The guard no longer stops it, however many nodes fail (annotation \
        resume). 2 nodes";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(annotation("resume").await.as_deref(), Some("5d4f8"));
    let text = world.text("resume web").await;
    assert!(text.contains("nothing was changed"), "{text}");
    let notes = world.json("status web").await["notes"].to_string();
    assert!(
        notes.contains("resume has no effect: it names revision 5d4f8"),
        "{notes}"
    );
}

/// Sets the last renewal of the controller's Lease to `ago` seconds in the past.
async fn renewed(world: &CtlWorld, ago: i64) {
    let at = world.context.clock.now().as_second() - ago;
    let at = Timestamp::from_second(at).unwrap();
    let lease = json!({
        "metadata": { "name": "yurt-ds-controller" },
        "spec": { "holderIdentity": "a", "renewTime": format!("{}.000000Z", at.to_string().trim_end_matches('Z')) },
    });
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::namespaced(world.client.clone(), "yurt-ds");
    let lease = serde_json::from_value(lease).unwrap();
    let _ = leases
        .delete("yurt-ds-controller", &Default::default())
        .await;
    leases.create(&PostParams::default(), &lease).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn status_wait_ends_without_a_controller() {
    let world = CtlWorld::with_nodes(2).await;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(world.client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "yurt-ds" } })).unwrap();
    let made = namespaces.create(&PostParams::default(), &namespace).await;
    made.unwrap();
    world.set_image("web:2").await;
    // Without a Lease, no warning is shown: a controller without leader election has none.
    assert_eq!(world.code("status web").await, Code::Progressing);
    assert!(!world.text("status web").await.contains("its Lease"));
    renewed(&world, 60).await;
    assert_eq!(world.code("status web").await, Code::Progressing);
    renewed(&world, 200).await;
    let words = "the yurt-ds controller has not renewed its Lease for 3m";
    for line in [
        "status web",
        "why web n1",
        "status",
        "status -o wide",
        "status web --wait",
        "status --wait",
    ] {
        let (text, ended) = world.run(line).await;
        assert_eq!(ended, Ok(Code::Silent), "{line}");
        let text = flat(&text);
        assert_eq!(text.matches(words).count(), 1, "{line}: {text}");
    }
    let row = world.json("status web").await;
    assert_ne!(row["silentSince"], Value::Null);
    assert_eq!(row["phase"], "NoController");
    assert!(text_of(&row["message"]).starts_with(words), "{row}");
    assert!(world.text("status").await.contains("NoController"));
    // If the Lease is not readable, the output says that it is unknown if a controller is running.
    let forbidden = world
        .cluster
        .faults()
        .add(|request| match request.resource.as_str() {
            "leases" => Fault::Status(403, None),
            _ => Fault::Pass,
        });
    let (text, ended) = world.run("status web").await;
    assert_eq!(ended, Ok(Code::Progressing));
    assert!(
        text.contains("it is not known if a controller is running"),
        "{text}"
    );
    drop(forbidden);
    // `--wait` ends once the Lease has not been renewed for three minutes, which is 80 seconds later.
    renewed(&world, 100).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(
        world.code("status web --wait --timeout 1h").await,
        Code::Silent
    );
    let took = begun.elapsed().as_secs();
    assert!((75..=95).contains(&took), "{took}");
    // `--wait` reports a complete rollout even if no controller is running.
    for node in ["n1", "n2"] {
        world.replace(node).await;
    }
    assert_eq!(world.code("status web --wait").await, Code::Complete);
}

#[tokio::test(start_paused = true)]
async fn status_wait_honors_its_timeout_while_the_api_server_hangs() {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    let frozen = world
        .cluster
        .faults()
        .add(|request| match request.user_agent.as_str() {
            "ctl" => Fault::Hang,
            _ => Fault::Pass,
        });
    let begun = tokio::time::Instant::now();
    let error = world.error("status web --wait --timeout 10s").await;
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert_eq!(error.code, Code::Unreachable);
    let words = "Not complete after 10s. The API server https://sim has not answered for 10s.";
    assert_eq!(error.text, words);
    drop(frozen);
    // The API server can also stop answering after the wait has begun.
    let begun = tokio::time::Instant::now();
    let freeze = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        world
            .cluster
            .faults()
            .add(|request| match request.user_agent.as_str() {
                "ctl" => Fault::Hang,
                _ => Fault::Pass,
            })
    };
    let ((_, ended), _frozen) = tokio::join!(world.run("status web --wait --timeout 20s"), freeze);
    let error = ended.unwrap_err();
    assert_eq!(begun.elapsed().as_secs(), 20);
    assert_eq!(error.code, Code::Unreachable);
    assert!(
        error
            .text
            .starts_with("Not complete after 20s. The API server"),
        "{error}"
    );
}

/// Checks that `--wait` processes the events of a rollout on many nodes without delay.
#[tokio::test(start_paused = true)]
async fn status_wait_ends_within_a_second_of_completion() {
    let world = CtlWorld::with_nodes(60).await;
    let clock = world.context.clock.clone();
    let client = world
        .cluster
        .client(&crate::k8s::client::Role::Controller.user_agent());
    let (_end, _controller) = crate::sim::world::start_controller(client, clock, SetKind::Native);
    let annotations = json!({ "apps.openyurt.io/max-unavailable": "100%" });
    world
        .patch(json!({ "metadata": { "annotations": annotations } }))
        .await;
    let containers = json!([{ "name": "c", "image": "web:2" }]);
    let template = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    let (params, patch) = (PatchParams::default(), Patch::Strategic(template));
    world.sets().patch("web", &params, &patch).await.unwrap();
    let complete = async {
        loop {
            let set = world.sets().get("web").await.unwrap();
            let status = set.status.unwrap();
            let is_done = |one: &k8s_openapi::api::apps::v1::DaemonSetCondition| {
                one.type_ == "RolloutComplete" && one.status == "True"
            };
            let is_reported = status.conditions.iter().flatten().any(is_done);
            if is_reported && status.observed_generation >= set.metadata.generation {
                return tokio::time::Instant::now();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let waited = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(world.code("status web --wait").await, Code::Complete);
        tokio::time::Instant::now()
    };
    let (complete, waited) = tokio::join!(complete, waited);
    let late = waited.saturating_duration_since(complete);
    assert!(late < Duration::from_secs(1), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn an_approval_is_suggested_while_the_previous_wave_soaks() {
    let world = CtlWorld::with_nodes(2).await;
    let waves = r#"[{"name":"first","selector":"kubernetes.io/hostname=n1","soak":"1h"},
        {"name":"second","selector":"kubernetes.io/hostname=n2","approve":"manual"}]"#;
    let annotations = json!({ "apps.openyurt.io/waves": waves });
    world
        .patch(json!({ "metadata": { "annotations": annotations } }))
        .await;
    world.set_image("web:2").await;
    world.replace("n1").await;
    let why = world.json("why web n2").await;
    let next = text_of(&why["next"]);
    assert!(
        next.contains("hen approve the next wave: yurt-ds ctl approve default/web second"),
        "{next}"
    );
}

#[tokio::test(start_paused = true)]
async fn pause_and_resume_report_their_actual_effect() {
    let missing = Behaviour {
        image_error: true,
        ..Behaviour::default()
    };
    let world = CtlWorld::with_nodes(4).await;
    let hold = |partition: Value| json!({ "metadata": { "annotations": { "apps.openyurt.io/partition": partition } } });
    world.patch(hold(json!("4"))).await;
    world.set_image("web:2").await;
    let said = world.text("pause web").await;
    assert!(
        said.contains(
            "No pod would be replaced now: 4 nodes stay on the old version: partition 4."
        ),
        "{said}"
    );
    world.patch(hold(Value::Null)).await;
    world.kubelets.behaviour("web:2", missing).await.unwrap();
    world.replace("n1").await;
    let said = world.text("resume web").await;
    assert!(!said.contains("nodes follow"), "{said}");
    assert!(said.contains("the rollout is stalled"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_kind_prefix_selects_the_kind_even_if_a_namespace_has_that_name() {
    let world = CtlWorld::with_nodes(1).await;
    for name in [
        "ds/web",
        "ds/default/web",
        "daemonset.apps/web",
        "daemonset/web -n default",
    ] {
        let row = world.json(&format!("status {name}")).await;
        assert_eq!(row["kind"], "apps/v1", "{name}");
        assert_eq!(row["name"], "web", "{name}");
    }
    // The cluster does not serve Advanced DaemonSets. The error suggests the native DaemonSet of the same name.
    for name in ["ads/web", "daemonset.apps.kruise.io/default/web"] {
        let error = world.error(&format!("status {name}")).await;
        assert_eq!(error.code, Code::NotFound, "{error}");
        assert!(
            error.text.contains("Did you mean ds/default/web?"),
            "{error}"
        );
    }
    let error = world.error("status ads/a/b/c").await;
    assert_eq!(error.code, Code::Usage, "{error}");
    let error = world.error("pause ds/ds/web").await;
    assert!(error.text.contains("in namespace ds"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn recommended_commands_name_the_kind_if_the_user_did() {
    let world = CtlWorld::with_nodes(1).await;
    world.set_image("web:2").await;
    world.text("pause web").await;
    for (typed, named) in [
        ("web", "default/web"),
        ("default/web", "default/web"),
        ("ds/web", "ds/default/web"),
        ("daemonsets.apps/default/web", "ds/default/web"),
    ] {
        let (text, _) = world.run(&format!("status {typed}")).await;
        let wanted = format!("yurt-ds ctl resume {named}\n");
        assert!(text.contains(&wanted), "{typed}: {text}");
        let json = world.json(&format!("status {typed}")).await;
        let next = text_of(&json["next"][0]).to_owned() + "\n";
        assert!(next.ends_with(&wanted), "{typed}: {next}");
    }
}

#[tokio::test(start_paused = true)]
async fn why_never_cuts_the_name_of_a_node() {
    let world = CtlWorld::with_nodes(0).await;
    let label = "n".repeat(62);
    let name = [label.as_str(); 4].join(".");
    let node = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(world.client.clone());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let text = world.text(&format!("why web {name}")).await;
    assert_fits(&text);
    let letters: String = text.split_whitespace().collect();
    assert!(letters.contains(&name), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_controller_is_the_first_note() {
    let world = CtlWorld::with_nodes(1).await;
    let annotations = json!({
        "apps.openyurt.io/max-unavailabe": "1",
        "apps.openyurt.io/max-unavailable": "150%",
    });
    world
        .patch(json!({ "metadata": { "annotations": annotations } }))
        .await;
    world.set_image("web:2").await;
    let notes = world.json("status web").await["notes"].clone();
    let order = [
        "no controller has reported",
        "max-unavailabe has no effect",
        "counts as 100%",
    ];
    for (position, words) in order.into_iter().enumerate() {
        assert!(text_of(&notes[position]).contains(words), "{notes:#}");
    }
}
