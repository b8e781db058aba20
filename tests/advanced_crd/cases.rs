//! Table of changes to a DaemonSet that the schema accepts or rejects. The test tries every row in both versions of the CRD.

use serde_json::{Value, json};

use super::server::Server;
use super::{VERSIONS, web};

/// Row of the table: a change to a DaemonSet and, if the schema rejects it, the error message.
struct Case {
    change: Value,
    refused: Option<&'static str>,
}

fn ok(change: Value) -> Case {
    let refused = None;
    Case { change, refused }
}

fn err(change: Value, words: &'static str) -> Case {
    let refused = Some(words);
    Case { change, refused }
}

/// Tries all cases. Returns those with an unexpected result.
pub(super) async fn play(server: &Server) -> Vec<String> {
    let cases = [
        selectors(),
        templates(),
        numbers(),
        strategies(),
        budgets(),
        shares(),
        the_rest(),
    ];
    let mut failures = Vec::new();
    let mut count = 0;
    for case in cases.iter().flatten() {
        let set = web(&case.change);
        for version in VERSIONS {
            count += 1;
            let answer = server.create(version, &set, true).await;
            let wrong = match (&answer, case.refused) {
                (Ok(_), None) => continue,
                (Err(said), Some(words)) if said.contains(words) => continue,
                (Ok(_), Some(words)) => format!("is not refused with {words:?}"),
                (Err(said), None) => format!("is refused: {said}"),
                (Err(said), Some(words)) => format!("is refused without {words:?}: {said}"),
            };
            failures.push(format!("{version} {}: {wrong}", case.change));
        }
    }
    println!("{count} creations tried, {} came otherwise", failures.len());
    failures
}

fn spec(change: Value) -> Value {
    json!({ "spec": change })
}

fn selectors() -> Vec<Case> {
    let labels = |labels: Value| spec(json!({ "selector": { "matchLabels": labels } }));
    let expressions =
        |all: Value| spec(json!({ "selector": { "matchLabels": null, "matchExpressions": all } }));
    let one = |key: &str, operator: &str, values: Value| {
        expressions(json!([{ "key": key, "operator": operator, "values": values }]))
    };
    let no_match = "spec.template: Invalid value: its labels must match the selector: ";
    let many: Vec<Value> = (0..5000).map(|n| format!("v{n}").into()).collect();
    let long = "a".repeat(64);
    vec![
        ok(json!({})),
        ok(labels(json!({ "app": "web" }))),
        err(
            spec(json!({ "selector": null })),
            "spec.selector: Required value",
        ),
        err(
            spec(json!({ "selector": "app=web" })),
            "spec.selector: Invalid value",
        ),
        err(
            labels(Value::Null),
            "spec.selector: Invalid value: must have at least one label",
        ),
        err(
            labels(json!({ "app": null })),
            "must have at least one label",
        ),
        err(expressions(json!([])), "must have at least one label"),
        err(labels(json!({ "app": "other" })), no_match),
        err(labels(json!({ "tier": "edge" })), no_match),
        err(spec(json!({ "template": { "metadata": null } })), no_match),
        err(
            spec(json!({ "template": { "metadata": { "labels": null } } })),
            no_match,
        ),
        ok(spec(
            json!({ "template": { "metadata": { "labels": { "tier": "edge" } } } }),
        )),
        err(
            labels(json!({ "-app": "web" })),
            "every key must be a valid label key",
        ),
        err(
            labels(json!({ "a/b/c": "web" })),
            "every key must be a valid label key",
        ),
        err(labels(json!({ "app": "we b" })), "should match"),
        err(labels(json!({ "app": long })), "63"),
        err(
            labels(json!({ "app": 5 })),
            "spec.selector.matchLabels.app: Invalid value",
        ),
        ok(one("app", "In", json!(["api", "web"]))),
        ok(one(
            "app",
            "In",
            [many.clone(), vec!["web".into()]].concat()[1..].into(),
        )),
        err(
            one("app", "In", [many, vec!["web".into()]].concat().into()),
            "5000",
        ),
        ok(one("app", "NotIn", json!(["api"]))),
        ok(one("app", "Exists", Value::Null)),
        ok(one("app", "Exists", json!([]))),
        ok(one("tier", "NotIn", json!(["cloud"]))),
        ok(one("example.com/tier", "DoesNotExist", Value::Null)),
        err(one("app", "In", json!(["api"])), no_match),
        err(one("app", "NotIn", json!(["web"])), no_match),
        err(one("tier", "Exists", Value::Null), no_match),
        err(one("tier", "In", json!(["edge"])), no_match),
        err(one("app", "DoesNotExist", Value::Null), no_match),
        err(
            one("app", "In", Value::Null),
            "operators In and NotIn need values",
        ),
        err(
            one("tier", "NotIn", json!([])),
            "operators In and NotIn need values",
        ),
        err(
            one("app", "Exists", json!(["web"])),
            "operators Exists and DoesNotExist take no values",
        ),
        err(
            one("app", "Equals", json!(["web"])),
            "supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\"",
        ),
        err(one("app!", "Exists", Value::Null), "should match"),
        err(
            expressions(json!([{ "operator": "Exists" }])),
            "key: Required value",
        ),
        err(
            expressions(json!([{ "key": "app" }])),
            "operator: Required value",
        ),
    ]
}

fn templates() -> Vec<Case> {
    let template = |change: Value| spec(json!({ "template": change }));
    let pod = |change: Value| spec(json!({ "template": { "spec": change } }));
    let container = |change: Value| {
        let mut one = json!({ "name": "main", "image": "web:1" });
        json_patch::merge(&mut one, &change);
        pod(json!({ "containers": [one] }))
    };
    let two = |first: &str, second: &str| {
        let one = |name: &str| json!({ "name": name, "image": "web:1" });
        pod(json!({ "containers": [one(first), one(second)] }))
    };
    vec![
        err(template(Value::Null), "spec.template: Required value"),
        err(template(json!("web")), "spec.template: Invalid value"),
        err(pod(Value::Null), "spec.template.spec: Required value"),
        ok(pod(json!({ "restartPolicy": "Always" }))),
        ok(pod(json!({ "restartPolicy": "" }))),
        err(
            pod(json!({ "restartPolicy": "OnFailure" })),
            "must be Always",
        ),
        err(pod(json!({ "restartPolicy": "Never" })), "must be Always"),
        err(
            pod(json!({ "restartPolicy": true })),
            "restartPolicy: Invalid value",
        ),
        err(
            pod(json!({ "activeDeadlineSeconds": 60 })),
            "spec.template.spec.activeDeadlineSeconds: Invalid value: must not be set",
        ),
        err(
            pod(json!({ "containers": null })),
            "containers: Required value",
        ),
        err(
            pod(json!({ "containers": [] })),
            "should have at least 1 items",
        ),
        err(container(json!({ "name": null })), "name: Required value"),
        err(container(json!({ "name": "Main" })), "should match"),
        err(container(json!({ "image": null })), "image: Required value"),
        err(container(json!({ "image": "" })), "image: Invalid value"),
        ok(two("main", "side")),
        err(
            two("main", "main"),
            "two containers have the same name: rename one of them",
        ),
        ok(pod(
            json!({ "hostNetwork": true, "nodeSelector": { "edge": "true" }, "tomorrow": { "a": [1, null] } }),
        )),
        // The schema must reject an invalid node selector. With a wrong value, the controller would delete the pods of nodes that
        // the selector no longer matches.
        err(
            pod(json!({ "nodeSelector": { "edge": true } })),
            "spec.template.spec.nodeSelector.edge: Invalid value",
        ),
        err(
            pod(json!({ "nodeSelector": "edge" })),
            "spec.template.spec.nodeSelector: Invalid value",
        ),
        err(
            pod(json!({ "nodeSelector": { "a b": "c" } })),
            "every key must be a valid label key",
        ),
        err(pod(json!({ "nodeName": 5 })), "spec.template.spec.nodeName"),
        err(
            pod(json!({ "affinity": "x" })),
            "spec.template.spec.affinity: Invalid value",
        ),
        ok(pod(
            json!({ "affinity": { "podAffinity": {}, "nodeAffinity": required("Gt", "1") } }),
        )),
        err(
            pod(json!({ "affinity": { "nodeAffinity": required("in", "a") } })),
            "operator: Unsupported value: \"in\"",
        ),
        ok(pod(json!({ "tolerations": [{ "operator": "Exists" }] }))),
        err(
            pod(json!({ "tolerations": { "operator": "Exists" } })),
            "spec.template.spec.tolerations: Invalid value",
        ),
        err(
            pod(json!({ "tolerations": [{ "effect": "noexecute" }] })),
            "effect: Unsupported value: \"noexecute\"",
        ),
    ]
}

/// Returns a node affinity with one required expression.
fn required(operator: &str, value: &str) -> Value {
    let one = json!({ "key": "example.com/a", "operator": operator, "values": [value] });
    json!({ "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [one] }],
    } })
}

fn numbers() -> Vec<Case> {
    let mut cases = Vec::new();
    for field in ["minReadySeconds", "revisionHistoryLimit"] {
        let value = |value: Value| spec(json!({ field: value }));
        cases.extend([0, 1, 10, i64::from(i32::MAX)].map(|number| ok(value(number.into()))));
        cases.extend([
            err(value(json!(-1)), "should be greater than or equal to 0"),
            err(value(json!(2_147_483_648_i64)), field),
            err(value(json!(1.5)), field),
            err(value(json!("5")), field),
            err(value(json!([5])), field),
        ]);
    }
    let burst = |value: Value| spec(json!({ "burstReplicas": value }));
    for taken in [
        json!(1),
        json!(250),
        json!("1%"),
        json!("100%"),
        json!("250%"),
        json!(i32::MAX),
    ] {
        cases.push(ok(burst(taken)));
    }
    let words = "spec.burstReplicas: Invalid value";
    for refused in [
        json!(0),
        json!(-1),
        json!(2_147_483_648_i64),
        json!("0%"),
        json!("-5%"),
        json!("5"),
        json!("1.5%"),
        json!("ten"),
        json!(""),
        json!(true),
        json!(1.5),
        json!({}),
    ] {
        cases.push(err(burst(refused), words));
    }
    cases.push(err(
        burst(json!(0)),
        "to stop a rollout, set updateStrategy.rollingUpdate.paused to true",
    ));
    cases
}

fn rolling(change: Value) -> Value {
    spec(json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": change } }))
}

fn strategies() -> Vec<Case> {
    let strategy = |change: Value| spec(json!({ "updateStrategy": change }));
    let both = json!({ "maxUnavailable": 1, "maxSurge": 1 });
    vec![
        ok(strategy(json!({}))),
        ok(strategy(json!({ "type": "OnDelete" }))),
        ok(strategy(
            json!({ "type": "OnDelete", "rollingUpdate": both.clone() }),
        )),
        ok(strategy(
            json!({ "type": "OnDelete", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 0 } }),
        )),
        err(
            strategy(json!({ "type": "OnDelete", "rollingUpdate": { "partition": "some" } })),
            "partition: Invalid value",
        ),
        ok(strategy(json!({ "type": "RollingUpdate" }))),
        ok(strategy(json!({ "rollingUpdate": {} }))),
        ok(strategy(
            json!({ "rollingUpdate": { "maxUnavailable": 2 } }),
        )),
        err(
            strategy(json!({ "rollingUpdate": both })),
            "cannot both be more than 0",
        ),
        err(
            strategy(json!({ "type": "Recreate" })),
            "supported values: \"RollingUpdate\", \"OnDelete\"",
        ),
        err(strategy(json!({ "type": "" })), "supported values"),
        err(
            strategy(json!("OnDelete")),
            "spec.updateStrategy: Invalid value",
        ),
        err(
            strategy(json!({ "rollingUpdate": [] })),
            "spec.updateStrategy.rollingUpdate: Invalid value",
        ),
        ok(rolling(json!({ "rollingUpdateType": "Standard" }))),
        ok(rolling(json!({ "rollingUpdateType": "InPlaceIfPossible" }))),
        ok(rolling(json!({ "rollingUpdateType": "Surging" }))),
        err(
            rolling(json!({ "rollingUpdateType": "Fast" })),
            "supported values: \"Standard\", \"InPlaceIfPossible\", \"Surging\"",
        ),
        err(
            rolling(json!({ "rollingUpdateType": "" })),
            "supported values",
        ),
        ok(rolling(json!({ "paused": true }))),
        err(
            rolling(json!({ "paused": "true" })),
            "paused: Invalid value",
        ),
        ok(rolling(json!({ "selector": {} }))),
        ok(rolling(
            json!({ "selector": { "matchLabels": { "zone": "a" } } }),
        )),
        err(
            rolling(json!({ "selector": { "matchLabels": { "zone!": "a" } } })),
            "every key must be a valid label key",
        ),
        err(
            rolling(
                json!({ "selector": { "matchExpressions": [{ "key": "zone", "operator": "Like" }] } }),
            ),
            "supported values",
        ),
        err(
            rolling(
                json!({ "selector": { "matchExpressions": [{ "key": "zone", "operator": "In" }] } }),
            ),
            "need values",
        ),
    ]
}

/// Returns the cases that combine maxUnavailable and maxSurge. Null removes a field.
fn budgets() -> Vec<Case> {
    let case = |kind: &str, unavailable: Value, surge: Value| {
        rolling(
            json!({ "rollingUpdateType": kind, "maxUnavailable": unavailable, "maxSurge": surge }),
        )
    };
    let (standard, in_place, surging) = ("Standard", "InPlaceIfPossible", "Surging");
    let absent = || Value::Null;
    let both = "spec.updateStrategy.rollingUpdate: Invalid value: maxUnavailable and maxSurge cannot both be more than 0";
    let none = "maxUnavailable and maxSurge are both 0, so no pod could be replaced: set one of them to 1 or more";
    let no_second = "maxSurge is not supported for in-place updates: remove maxSurge";
    let before = "Surging starts the new pod before the old one is deleted: remove maxUnavailable";
    vec![
        ok(case(standard, absent(), absent())),
        ok(case(standard, json!(1), absent())),
        ok(case(standard, json!("50%"), json!(0))),
        ok(case(standard, json!("50%"), json!("0%"))),
        ok(case(standard, absent(), json!(1))),
        ok(case(standard, json!(0), json!("10%"))),
        err(case(standard, json!(1), json!(1)), both),
        err(case(standard, json!("10%"), json!("10%")), both),
        err(case(standard, json!(0), absent()), none),
        err(case(standard, absent(), json!(0)), none),
        err(case(standard, json!(0), json!(0)), none),
        err(case(standard, json!("0%"), json!("00%")), none),
        ok(case(in_place, absent(), absent())),
        ok(case(in_place, json!(2), json!(0))),
        err(case(in_place, absent(), json!(1)), no_second),
        err(case(in_place, json!(0), json!("10%")), no_second),
        err(case(in_place, json!(1), json!(1)), no_second),
        err(case(in_place, json!(0), json!(0)), none),
        ok(case(surging, absent(), absent())),
        ok(case(surging, absent(), json!(2))),
        ok(case(surging, json!(0), absent())),
        ok(case(surging, json!(0), json!("10%"))),
        err(case(surging, json!(1), absent()), before),
        err(case(surging, json!("10%"), json!(1)), before),
        err(case(surging, absent(), json!(0)), none),
    ]
}

fn shares() -> Vec<Case> {
    let mut cases = Vec::new();
    for field in ["maxUnavailable", "maxSurge", "partition"] {
        let value = |value: Value| rolling(json!({ field: value }));
        for taken in [
            json!(1),
            json!(5),
            json!(i32::MAX),
            json!("1%"),
            json!("050%"),
            json!("100%"),
        ] {
            cases.push(ok(value(taken)));
        }
        for refused in [
            json!(-1),
            json!(2_147_483_648_i64),
            json!("101%"),
            json!("150%"),
            json!("-1%"),
            json!("5"),
            json!("0"),
            json!("5 %"),
            json!("5%%"),
            json!("half"),
            json!(""),
            json!("%"),
            json!("9".repeat(1000)),
            json!(0.5),
            json!(true),
            json!([1]),
        ] {
            cases.push(err(value(refused), field));
        }
    }
    for taken in [json!(0), json!("0%")] {
        cases.push(ok(rolling(json!({ "partition": taken }))));
    }
    let words = "must be a number of nodes, 0 or more, or a percentage from 0% to 100%";
    cases.push(err(rolling(json!({ "partition": -5 })), words));
    cases
}

fn the_rest() -> Vec<Case> {
    let hook = |name: &str, hook: Value| spec(json!({ "lifecycle": { name: hook } }));
    let full = json!({ "labelsHandler": { "held": "true" }, "finalizersHandler": ["example.com/held"], "markPodNotReady": true });
    vec![
        ok(spec(json!({ "lifecycle": {} }))),
        ok(hook("preDelete", full.clone())),
        ok(hook("preNormal", full.clone())),
        err(
            hook("inPlaceUpdate", full),
            "spec.lifecycle.inPlaceUpdate: Invalid value: is not called for pods of a DaemonSet: remove it",
        ),
        err(hook("inPlaceUpdate", json!({})), "remove it"),
        err(
            hook("preDelete", json!({ "finalizersHandler": "held" })),
            "finalizersHandler: Invalid value",
        ),
        err(
            hook("preDelete", json!({ "labelsHandler": { "held": true } })),
            "labelsHandler.held: Invalid value",
        ),
        err(
            hook("preDelete", json!({ "markPodNotReady": 1 })),
            "markPodNotReady: Invalid value",
        ),
        ok(spec(
            json!({ "scaleStrategy": { "partitionedScaling": true } }),
        )),
        err(
            spec(json!({ "scaleStrategy": { "partitionedScaling": "yes" } })),
            "partitionedScaling: Invalid value",
        ),
        err(json!({ "spec": null }), "spec: Required value"),
        err(json!({ "spec": "web" }), "spec: Invalid value"),
        err(json!({ "metadata": { "name": "Web" } }), "RFC 1123"),
    ]
}
