//! Tests with the objects of a hostile tenant and a hostile kubelet. The rollout of another tenant must complete, whatever they
//! contain.

use proptest::prelude::*;
use proptest::sample::Index as Choice;

use super::*;
use crate::core::PodRevision;
use crate::k8s::json_list::ListSplitter;
use crate::k8s::object::read;

const NODES: [&str; 6] = ["n1", "n2", "n3", "n4", "n5", "n6"];

fn web() -> SetKey {
    SetKey::new("shop", "web")
}

fn owner(name: &str, uid: &str) -> Value {
    json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": uid, "controller": true }])
}

fn web_template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

fn web_pod(on: &str, hash: &str, since: i64) -> Value {
    json!({
        "metadata": {
            "name": format!("web-{on}-{hash}"), "namespace": "shop", "uid": format!("{on}-{hash}"), "resourceVersion": "1",
            "creationTimestamp": at(since).to_string(), "labels": { "app": "web", "controller-revision-hash": hash },
            "ownerReferences": owner("web", "web"),
        },
        "spec": { "nodeName": on },
        "status": { "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": at(since).to_string() }] },
    })
}

/// Returns an index with six nodes. Each has a pod of the hostile DaemonSet `edge/agent`, and an outdated pod of `shop/web`, whose
/// rollout has to complete.
fn fleets() -> Index {
    let mut index = Index::default();
    for name in NODES {
        index.apply_node(&node(name, "True", 0), at(100));
    }
    index.apply_set(&set("v1", 1, 1));
    index.apply_revision(&revision("aaa", 1, "v1"));
    let web_set = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "web", "generation": 2, "resourceVersion": "2",
            "annotations": { "apps.openyurt.io/update-strategy": "AdvancedRollingUpdate" },
        },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } }, "updateStrategy": { "type": "OnDelete" },
            "template": web_template("v2"),
        },
        "status": { "observedGeneration": 2 },
    });
    index.apply_set(&parsed(web_set));
    for (hash, number, image) in [("aaa", 1, "v1"), ("bbb", 2, "v2")] {
        index.apply_revision(&parsed(json!({
            "metadata": {
                "name": format!("web-{hash}"), "namespace": "shop", "labels": { "controller-revision-hash": hash },
                "ownerReferences": owner("web", "web"),
            },
            "revision": number,
            "data": { "spec": { "template": web_template(image) } },
        })));
    }
    for name in NODES {
        index.apply_pod(&web(), &parsed(web_pod(name, "aaa", 10)), at(100));
    }
    for key in [key(), web()] {
        index.set_mut(&key).unwrap().synced = true;
    }
    index
}

/// Returns the objects that the hostile tenant and the kubelet of `n1` write.
fn hostile_objects() -> [Value; 4] {
    let times = json!([{ "type": "Ready", "status": "True", "reason": "x", "message": "y",
        "lastTransitionTime": CREATED, "lastHeartbeatTime": CREATED, "lastProbeTime": CREATED }]);
    [
        json!({
            "metadata": { "name": "n1", "labels": { "pool": "a" }, "annotations": { "apps.openyurt.io/hold": "true" },
                "managedFields": [{ "manager": "kubelet", "time": CREATED }] },
            "spec": { "taints": [{ "key": "k", "value": "v", "effect": "PreferNoSchedule" }] },
            "status": { "conditions": times, "images": [{ "names": ["i"] }] },
        }),
        json!({
            "metadata": { "name": "agent-n1", "namespace": "edge", "uid": "uid-n1", "resourceVersion": "7",
                "creationTimestamp": CREATED, "labels": { "app": "agent", "controller-revision-hash": "aaa" },
                "ownerReferences": owner("agent", "ds") },
            "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }], "readinessGates": [{ "conditionType": "x" }] },
            "status": { "phase": "Running", "startTime": CREATED, "conditions": times, "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "x", "ready": true, "restartCount": 3,
                "state": { "running": { "startedAt": CREATED } },
                "lastState": { "terminated": { "exitCode": 1, "reason": "Error", "message": "m" } } }] },
        }),
        json!({
            "metadata": { "name": "agent", "namespace": "edge", "uid": "ds", "generation": 1, "resourceVersion": "9",
                "annotations": { "apps.openyurt.io/update-strategy": "auto", "apps.openyurt.io/max-unavailable": "1" } },
            "spec": { "selector": { "matchLabels": { "app": "agent" } }, "minReadySeconds": 1,
                "updateStrategy": { "type": "OnDelete" }, "template": template("v1") },
            "status": { "observedGeneration": 1, "conditions": times },
        }),
        json!({
            "metadata": { "name": "agent-ccc", "namespace": "edge", "labels": { "controller-revision-hash": "ccc" },
                "creationTimestamp": CREATED, "ownerReferences": owner("agent", "ds") },
            "revision": 2,
            "data": { "spec": { "template": template("v2") } },
        }),
    ]
}

/// Collects the paths of all fields of an object. Name, namespace and UID are not included, because they identify the object.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    if ["/metadata/name", "/metadata/namespace", "/metadata/uid"].contains(&at) {
        return;
    }
    if !["", "/metadata"].contains(&at) {
        found.push(at.to_owned());
    }
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(list) => (0..).map(|at: usize| at.to_string()).zip(list).collect(),
        _ => Vec::new(),
    };
    for (key, value) in inner {
        let key = key.replace('~', "~0").replace('/', "~1");
        places(value, &format!("{at}/{key}"), found);
    }
}

/// Stands for 200 nested levels, which `serde_json` can't write.
const DEEP: &str = "<deep>";

fn hostile_value() -> impl proptest::strategy::Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!(true)),
        Just(json!(i64::MAX)),
        Just(json!(u64::MAX)),
        Just(json!(-1)),
        Just(json!(1e300)),
        Just(json!("")),
        Just(json!("\u{1b}]52;c;x\u{7}")),
        Just(json!("9999-12-31T23:59:59Z")),
        Just(json!("0000-01-01T00:00:00Z")),
        Just(json!("x".repeat(100_000))),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[], {}, 7, null])),
        Just(json!(DEEP)),
    ]
}

fn written(object: &Value) -> String {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    object.to_string().replace(&format!("\"{DEEP}\""), &deep)
}

/// Returns the object from a list of three that arrives in pieces of `piece` bytes. Fails if the other two objects changed.
fn listed(json: &str, piece: usize) -> Vec<u8> {
    const NEIGHBOUR: &str = r#"{"metadata":{"name":"a\\\"],}"}}"#;
    let list = format!(
        r#"{{"kind":"List","metadata":{{"resourceVersion":"5"}},"items":[{NEIGHBOUR},{json},{NEIGHBOUR}]}}"#
    );
    let (mut splitter, mut items) = (ListSplitter::default(), Vec::new());
    for bytes in list.as_bytes().chunks(piece) {
        let keep = |item: &[u8]| {
            items.push(item.to_vec());
            Ok(())
        };
        splitter.feed(bytes, keep).unwrap();
    }
    splitter.finish::<Value>().unwrap();
    let [before, item, after] = <[Vec<u8>; 3]>::try_from(items).unwrap();
    assert_eq!(
        (&*before, &*after),
        (NEIGHBOUR.as_bytes(), NEIGHBOUR.as_bytes())
    );
    item
}

/// Stores an object in the index, as a list or a watch does.
fn take(index: &mut Index, (kind, piece): (usize, usize), object: &Value, now: Timestamp) {
    let json = listed(&written(object), piece);
    let json = json.as_slice();
    match kind {
        0 => drop(index.take_listed_node(&read(json), now)),
        1 => match read::<k8s::Pod>(json) {
            Ok(pod) => drop(index.apply_pod(&key(), &pod, now)),
            Err(unreadable) => index.note_unreadable_pod(&key(), &unreadable),
        },
        2 => {
            if let Ok(set) = read::<k8s::DaemonSet>(json) {
                index.apply_set(&set);
            }
        }
        _ => drop(index.take_listed_revision(&read(json))),
    }
}

/// Returns the actions for a DaemonSet; empty if its settings are invalid.
fn decided(index: &mut Index, key: &SetKey, now: Timestamp) -> Vec<Action> {
    let reading = index.reading(key).map(Cow::into_owned);
    let fleet = index.fleet(key, now);
    match (reading, fleet) {
        (Some(ParsedSettings::Strategy { strategy, .. }), Some(fleet)) => {
            decide(&strategy, &fleet, now).actions
        }
        _ => Vec::new(),
    }
}

proptest! {
    #[test]
    fn whatever_a_tenant_and_a_kubelet_write_the_rollout_of_another_tenant_completes(
        writes in proptest::collection::vec((0..4_usize, any::<Choice>(), hostile_value()), 1..8),
        piece in 1..5000_usize,
    ) {
        let mut index = fleets();
        let mut now = 1000;
        let mut left = writes.iter();
        for _ in 0..60 {
            now += 30;
            if let Some((kind, place, value)) = left.next() {
                let mut object = hostile_objects()[*kind].clone();
                let mut all = Vec::new();
                places(&object, "", &mut all);
                let place = place.get(&all);
                if let Some(target) = object.pointer_mut(place) {
                    *target = value.clone();
                }
                take(&mut index, (*kind, piece), &object, at(now));
            }
            decided(&mut index, &key(), at(now));
            for action in decided(&mut index, &web(), at(now)) {
                if let Action::Delete(pod) = action {
                    let set = index.set_mut(&web()).unwrap();
                    let on = set.place_of(&pod.uid).unwrap().to_string();
                    set.delete_pod(&pod.uid.to_string());
                    index.apply_pod(&web(), &parsed(web_pod(&on, "bbb", now)), at(now));
                }
            }
        }
        let fleet = index.fleet(&web(), at(now)).unwrap();
        for node in fleet.nodes.iter().filter(|node| node.name.as_str() != "n1") {
            let is_current = node.pods.iter().all(|pod| pod.revision == PodRevision::Current);
            prop_assert!(is_current, "{} keeps its old pod: {:?}", node.name, writes);
        }
    }
}
