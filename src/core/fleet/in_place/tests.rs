//! Tests of changes that can be made in place. The cases are from Kruise's own tests, as far as they apply to native pods.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;
use crate::core::fleet::Fleet;
use crate::core::lifecycle::PreDeleteHook;
use crate::core::settings::{RollingUpdateType, Strategy};
use crate::core::testing::{at, fleet, node, old};
use crate::core::{Action, IntOrPercent, Mode, decide};

fn template() -> Value {
    json!({
        "metadata": { "labels": { "app": "a" }, "annotations": { "note": "1" }, "finalizers": ["x/y"] },
        "spec": {
            "initContainers": [{ "name": "prepare", "image": "prepare:1" }],
            "containers": [
                {
                    "name": "main",
                    "image": "main:1",
                    "env": [{ "name": "T", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['tier']" } } }],
                    "resources": { "limits": { "cpu": "1" } },
                },
                { "name": "side", "image": "side:1" },
            ],
        },
    })
}

fn changed(path: &str, value: Value) -> Value {
    let mut template = template();
    *template.pointer_mut(path).unwrap() = value;
    template
}

fn between(new: &Value) -> Result<InPlaceTransition, Recreate> {
    InPlaceTransition::between(
        &Shape::from_template(&template()),
        &Shape::from_template(new),
        Some("7"),
    )
}

fn change(new: &Value) -> InPlaceChange {
    (*between(new).unwrap().change).clone()
}

fn texts<const N: usize>(pairs: [(&str, Option<&str>); N]) -> BTreeMap<String, Option<String>> {
    let owned = |(key, value): (&str, Option<&str>)| (key.to_owned(), value.map(str::to_owned));
    pairs.map(owned).into()
}

#[test]
fn an_image_change_alone_is_made_in_place() {
    let new = change(&changed("/spec/containers/1/image", json!("side:2")));
    assert_eq!(new.images, [("side".into(), "side:2".into())]);
    assert_eq!(new.labels, texts([("pod-template-generation", Some("7"))]));
    assert!(new.annotations.is_empty() && new.new_finalizers.is_empty());
}

#[test]
fn template_metadata_is_changed_in_place() {
    let mut new = changed(
        "/metadata",
        json!({ "labels": { "new": "l" }, "annotations": { "note": "2" } }),
    );
    new["spec"]["containers"][0]["image"] = json!("main:2");
    let new = change(&new);
    assert_eq!(new.images, [("main".into(), "main:2".into())]);
    let labels = [
        ("app", None),
        ("new", Some("l")),
        ("pod-template-generation", Some("7")),
    ];
    assert_eq!(new.labels, texts(labels));
    assert_eq!(new.annotations, texts([("note", Some("2"))]));
    assert_eq!(new.old_finalizers, ["x/y"]);
}

/// Also covers changes of resources, environment and metadata, which Kruise makes in place with its node agent.
#[test]
fn any_other_change_recreates_the_pod() {
    fn case(path: &str, value: Value, why: Recreate) {
        assert_eq!(between(&changed(path, value)).unwrap_err(), why, "{path}");
    }
    let read = json!({ "app": "a", "tier": "t" });
    case("/metadata/labels", read, Recreate::ReadByContainer);
    let restart = json!({ "kubectl.kubernetes.io/restartedAt": "now" });
    case("/metadata/annotations", restart, Recreate::RestartAsked);
    for fixed in [
        "container.apparmor.security.beta.kubernetes.io/main",
        "kubernetes.io/config.mirror",
    ] {
        let fixed = json!({ "note": "1", fixed: "x" });
        case("/metadata/annotations", fixed, Recreate::FixedAnnotation);
    }
    let other = Recreate::OtherChange;
    case("/spec/initContainers/0/image", json!("prepare:2"), other);
    case("/spec/containers/0/resources/limits/cpu", json!("2"), other);
    case("/spec/containers/0/env", json!([]), other);
    case("/spec/containers/1/name", json!("other"), other);
    case("/spec/containers/1", json!({ "name": "side" }), other);
    case("/spec/containers", json!([]), other);
    case("/spec", json!(null), other);
}

/// Returns the state of the container `main` before its update to `main:2`. It ran `main:1` with this digest.
fn state(image_id: &str) -> InPlaceState {
    let before = PreviousContainer {
        image_id: Some(image_id.into()),
        restart_count: 3,
        superseded: None,
    };
    InPlaceState {
        revision: "new".into(),
        update_timestamp: Time(at(100)),
        reverted_from: None,
        last_container_statuses: [("main".into(), before)].into(),
    }
}

fn container(reported: &str, image_id: &str, restarts: u32) -> RunningContainer {
    RunningContainer {
        name: "main".into(),
        image: "main:2".into(),
        reported: reported.into(),
        image_id: image_id.into(),
        restarts,
        is_init: false,
    }
}

/// Includes the case of openkruise/kruise#1493: the new image has the digest of the old one.
#[test]
fn an_update_is_carried_out_when_every_changed_container_runs_its_new_image() {
    fn case(now: RunningContainer, seen: Option<bool>, done: bool) {
        let progress = state("a").progress(std::slice::from_ref(&now), seen);
        assert_eq!(progress.is_carried_out, done, "{now:?} seen {seen:?}");
        assert_eq!(progress.at, at(100));
    }
    case(container("main:1", "a", 3), None, false);
    case(container("docker.io/library/main:2", "b", 4), None, true);
    // The new image has the digest of the old one under another name. In the first case the container was restarted. In the second
    // case it kept running.
    case(container("main:1", "a", 4), None, true);
    case(container("main:1", "a", 4), Some(false), false);
    case(
        container("docker.io/library/main:2", "a", 3),
        Some(true),
        true,
    );
    case(
        container("docker.io/library/main:2", "a", 3),
        Some(false),
        false,
    );
    assert!(!state("a").progress(&[], None).is_carried_out);
    // The container has never run.
    assert!(
        !state("")
            .progress(&[container("main:1", "", 0)], None)
            .is_carried_out
    );
    assert!(
        state("")
            .progress(&[container("main:2", "b", 0)], None)
            .is_carried_out
    );
}

/// An update of metadata changes no container, so there is nothing to wait for.
#[test]
fn a_metadata_update_is_carried_out_at_once() {
    let mut state = state("a");
    state.last_container_statuses.clear();
    assert!(
        state
            .progress(&[container("main:1", "a", 3)], Some(false))
            .is_carried_out
    );
}

#[test]
fn a_superseded_update_does_not_count_as_the_next_one() {
    let mut state = state("a");
    let before = state.last_container_statuses.get_mut("main").unwrap();
    before.superseded = Some("main:1b".into());
    let done = |reported: &str, restarts| {
        let now = container(reported, reported, restarts);
        state.progress(&[now], None).is_carried_out
    };
    assert!(!done("main:1b", 4), "the one in between");
    assert!(done("main:2", 5));
}

#[test]
fn restarts_by_in_place_updates_are_no_crashes() {
    let mut state = state("a");
    for (restarts, own) in [(3, 0), (4, 0), (5, 1), (9, 5)] {
        assert_eq!(state.own_restarts("main", restarts), own);
    }
    assert_eq!(state.own_restarts("other", 2), 2);
    let before = state.last_container_statuses.get_mut("main").unwrap();
    before.image_id = None; // the update doesn't change the image of this container
    assert_eq!(state.own_restarts("main", 4), 1);
}

#[test]
fn the_in_place_state_round_trips() {
    let text = serde_json::to_string(&state("a")).unwrap();
    assert_eq!(
        text,
        r#"{"revision":"new","updateTimestamp":"1970-01-01T00:01:40Z","lastContainerStatuses":{"main":{"imageID":"a","restartCount":3}}}"#
    );
    assert_eq!(
        serde_json::from_str::<InPlaceState>(&text).unwrap(),
        state("a")
    );
}

/// Returns a strategy, and a fleet of one node whose outdated pod has the revision `old` and this image.
fn one(image: &str) -> (Strategy, Fleet) {
    let mut fleet = fleet(vec![node("n", old(1))]);
    fleet.nodes[0].has_images = true;
    let new = changed("/spec/containers/0/image", json!("main:2"));
    fleet.transitions = [("old".into(), between(&new))].into();
    let side = RunningContainer {
        name: "side".into(),
        image: "side:1".into(),
        ..container("", "", 0)
    };
    let injected = RunningContainer {
        name: "injected".into(),
        ..side.clone()
    };
    let main = RunningContainer {
        image: image.into(),
        ..container("main:1", "a", 3)
    };
    fleet.nodes[0].pods[0].in_place = InPlace {
        revision: Some("old".into()),
        containers: [main, side, injected].into(),
        is_over: false,
        update: None,
        unfinished: BTreeMap::new(),
        reverted_from: None,
        gate: None,
    }
    .into();
    let strategy = Strategy {
        rolling_update_type: RollingUpdateType::InPlaceIfPossible,
        image_predownload_parallelism: Some(IntOrPercent::Number(0)),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    };
    (strategy, fleet)
}

#[test]
fn a_pod_that_matches_its_revision_is_updated_in_place_despite_injected_containers() {
    let (strategy, fleet) = one("main:1");
    let plan = decide(&strategy, &fleet, at(1000));
    let [Action::UpdateInPlace { patch, .. }] = plan.actions.as_slice() else {
        panic!("{:?}", plan.actions);
    };
    assert_eq!(patch.revision, "new".into());
    let before = &patch.before;
    assert_eq!(before.keys().collect::<Vec<_>>(), ["main"]);
    assert_eq!(before["main"].image_id.as_deref(), Some("a"));
    assert_eq!(plan.recreates, None);
}

#[test]
fn containers_are_listed_in_the_order_of_the_pod() {
    let pod = |names: &[&str]| {
        let container = |name: &&str| RunningContainer {
            name: (*name).into(),
            ..container("", "", 0)
        };
        InPlace {
            containers: names.iter().map(container).collect(),
            ..InPlace::default()
        }
    };
    let images = ["a", "b", "c"].map(|name| (name.into(), "new".into()));
    let change = Arc::new(InPlaceChange {
        images: images.into(),
        ..InPlaceChange::default()
    });
    for (order, expected) in [
        (&["c", "b", "a"][..], &["c", "b", "a"][..]),
        (&["b", "injected", "a", "c"], &["b", "a", "c"]),
    ] {
        let patch = renewal_to(&"new".into(), &pod(order), &change);
        let names = patch.change.images.iter().map(|(name, _)| &**name);
        assert_eq!(names.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_pod_that_differs_from_its_revision_is_recreated() {
    fn case(spoil: impl FnOnce(&mut Fleet), why: Recreate) {
        let (strategy, mut fleet) = one("main:1");
        spoil(&mut fleet);
        let plan = decide(&strategy, &fleet, at(1000));
        assert!(
            matches!(plan.actions.as_slice(), [Action::Delete(_)]),
            "{why:?}"
        );
        assert_eq!(plan.recreates, Some(why));
    }
    case(|fleet| *fleet = one("mine:1").1, Recreate::OtherImages);
    case(
        |fleet| fleet.nodes[0].pods[0].in_place.is_over = true,
        Recreate::Over,
    );
    let mark = |fleet: &mut Fleet| {
        let preparing = Some(PreDeleteHook { since: None });
        fleet.nodes[0].pods[0].exit.preparing = preparing;
    };
    case(mark, Recreate::Leaving);
    case(
        |fleet| fleet.nodes[0].pods[0].in_place.revision = None,
        Recreate::UnknownRevision,
    );
    case(|fleet| fleet.transitions.clear(), Recreate::UnknownRevision);
    let (_, fleet) = one("main:1");
    let plan = decide(
        &Strategy::with_mode(Mode::AdvancedRollingUpdate),
        &fleet,
        at(1000),
    );
    assert!(matches!(plan.actions.as_slice(), [Action::Delete(_)]));
    assert_eq!(plan.recreates, None);
}

/// Regression test from the model checker. The template changes again during an update in place, while the pod stays Ready.
#[test]
fn a_superseded_update_requests_no_past_wakeup() {
    let (strategy, mut fleet) = one("main:1");
    fleet.nodes[0].pods[0].in_place.update = Some(InPlaceUpdate {
        at: at(20),
        is_carried_out: false,
    });
    let paused = Strategy {
        pause: Some(crate::core::Pause::Indefinite),
        ..strategy
    };
    let plan = decide(&paused, &fleet, at(100));
    // The only wake-up is for the daily reminder of the pause.
    let reminder = Some(at(100 + 24 * 60 * 60));
    assert_eq!(plan.next_wake, reminder, "{:?}", plan.verdicts);
}

/// Regression test from a property test. The labels of the template change during an update in place of an image.
#[test]
fn a_label_change_does_not_end_an_image_update_in_progress() {
    let first = state("a");
    let renewed = |now: RunningContainer| {
        let pod = InPlace {
            containers: [now.clone()].into(),
            update: Some(first.progress(std::slice::from_ref(&now), None)),
            unfinished: first.unfinished(std::slice::from_ref(&now), None),
            ..InPlace::default()
        };
        let labels = Arc::new(InPlaceChange::default());
        let patch = renewal_to(&"newer".into(), &pod, &labels);
        InPlaceState {
            last_container_statuses: patch.before,
            ..state("a")
        }
    };
    let old = container("main:1", "a", 3);
    let new = container("main:2", "b", 4);
    let is_carried_out = |state: &InPlaceState, now: &RunningContainer| {
        let progress = state.progress(std::slice::from_ref(now), None);
        progress.is_carried_out
    };
    let again = renewed(old.clone());
    assert_eq!(again.last_container_statuses, first.last_container_statuses);
    assert!(!is_carried_out(&again, &old) && is_carried_out(&again, &new));
    // The image has another name but the same digest. An update that was complete stays complete.
    let same = container("main:1", "a", 4);
    assert!(is_carried_out(&renewed(same.clone()), &same));
}
