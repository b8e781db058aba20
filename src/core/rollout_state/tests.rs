//! Tests of the JSON of a state, including JSON that is too large, damaged, or written by another program.

use serde_json::json;

use super::*;
use crate::core::testing::at;
use crate::core::verdict::Stopped;

fn names(names: &[&str]) -> Vec<NodeName> {
    names.iter().map(|name| NodeName::from(*name)).collect()
}

/// Returns a state with every field set.
fn full() -> RolloutState {
    RolloutState {
        reported: Reported {
            revision: Some("5d4f8".into()),
            generation: Some(2),
            complete: false,
            reason: "FailedByRevision".into(),
            subject: Some("end of canary".into()),
            stalled_since: Some(at(100)),
            behind_since: Some(at(40)),
            advised: Some(3),
            reversal: Some("UnderWay".into()),
        },
        guard: Some(FailureRecord {
            stopped: Some(Stopped::FailedByRevision),
            exceeded: true,
            before: Some("8c1a2".into()),
            failed: names(&["edge-1", "edge-2"]).into_iter().collect(),
            more: 3,
            broken_before: names(&["edge-7"]).into_iter().collect(),
            replaced_twice: names(&["edge-9"]).into_iter().collect(),
            updated_before_loss: names(&["edge-5"]).into_iter().collect(),
            lost: [("edge-3".into(), at(90))].into(),
            control_group: [("edge-4".into(), at(60))].into(),
            waves: [("canary".into(), [NodeName::from("edge-1")].into())].into(),
            stopped_before: vec!["77aa1".into()],
            ..FailureRecord::new("5d4f8".into())
        }),
        pause: Some(ReportedPause {
            record: PauseRecord {
                since: at(10),
                reminded: 2,
            },
            newcomers: names(&["edge-6"]),
            more: true,
        }),
        refused: Some(ReportedFailures {
            revision: Some("5d4f8".into()),
            since: at(50),
            writes: vec![FailureGroup {
                write: WriteVerb::TransferOwnership,
                message: "policy: no".into(),
                nodes: names(&["edge-8"]),
                more: true,
            }],
        }),
        not_created: Some("quota".into()),
        not_ready: [("agent-x".into(), "probe fails".into())].into(),
        failing: vec![FailingPods {
            reason: "Evicted".into(),
            message: "low on memory".into(),
            nodes: names(&["edge-1"]),
        }],
        invalid: Some("k: v".into()),
        ..RolloutState::default()
    }
}

fn reread(state: &RolloutState) -> RolloutState {
    RolloutState::read(&state.to_json()).expect("JSON")
}

#[test]
fn a_rollout_state_round_trips() {
    assert_eq!(reread(&full()), full());
    let empty = RolloutState::default();
    assert_eq!(reread(&empty), empty);
    assert_eq!(
        empty.to_json(),
        r#"{"version":1,"reported":{"complete":false,"reason":""}}"#
    );
}

#[test]
fn foreign_messages_are_kept_and_escaped_to_ascii() {
    let mut state = full();
    let said = "no \u{1b}[31m \u{202e} \u{7f} 停 \u{1f6d1} \"\\";
    state.refused.as_mut().unwrap().writes[0].message = said.into();
    let json = state.to_json();
    assert!(
        json.chars()
            .all(|letter| (' '..='\u{7f}').contains(&letter)),
        "{json}"
    );
    assert_eq!(reread(&state), state);
}

#[test]
fn an_unreadable_field_does_not_affect_other_fields() {
    let whole = serde_json::to_value(full()).unwrap();
    let strange = [
        json!(null),
        json!(7),
        json!("x"),
        json!([{}]),
        json!({"a": 1}),
    ];
    for key in whole.as_object().unwrap().keys() {
        for strange in &strange {
            let mut broken = whole.clone();
            broken[key] = strange.clone();
            let read = RolloutState::read(&broken.to_string()).expect("still a state");
            let mut left = serde_json::to_value(&read).unwrap();
            for other in whole
                .as_object()
                .unwrap()
                .keys()
                .filter(|other| *other != key)
            {
                assert_eq!(
                    left[other].take(),
                    whole[other],
                    "{other} beside {key}: {strange}"
                );
            }
        }
    }
    let guard = json!({"guard": {"revision": "a", "stopped": "BySunspots", "failed": ["n1", 7, "n2"], "more": -1}});
    let read = RolloutState::read(&guard.to_string()).unwrap();
    let guard = read.guard.expect("a record");
    // A later release may store a reason that this release doesn't know. It is read as `FailedByRevision`.
    assert_eq!(guard.stopped, Some(Stopped::FailedByRevision));
    assert_eq!(guard.failed.len(), 2);
    for broken in ["", "null", "[]", "7", "{", "\"\"", "{}x"] {
        assert!(RolloutState::read(broken).is_err(), "{broken}");
    }
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    assert!(RolloutState::read(&format!(r#"{{"guard": {deep}}}"#)).is_err());
}

#[test]
fn fields_of_a_later_version_are_kept_and_its_number_is_recognized() {
    let mut later = serde_json::to_value(full()).unwrap();
    later["moonPhase"] = json!({"full": true});
    let read = RolloutState::read(&later.to_string()).unwrap();
    assert!(!read.is_newer());
    assert_eq!(serde_json::to_value(&read).unwrap(), later);
    later["version"] = json!(VERSION + 1);
    let read = RolloutState::read(&later.to_string()).unwrap();
    assert!(read.is_newer());
    assert_eq!(read.guard, full().guard);
}

#[test]
fn the_rollout_state_is_bounded_and_never_understates_failures() {
    let name = |kind: &str, number: usize| NodeName::from(format!("{kind}-{number:0>240}"));
    let many = |kind: &str| {
        (0..100_000)
            .map(|number| name(kind, number))
            .collect::<Vec<_>>()
    };
    let dated = |kind: &str| many(kind).into_iter().map(|name| (name, at(1))).collect();
    let mut state = full();
    let guard = state.guard.as_mut().unwrap();
    guard.failed = many("failed").into_iter().collect();
    guard.more = 0;
    guard.broken_before = many("broken").into_iter().collect();
    guard.replaced_twice = many("twice").into_iter().collect();
    guard.updated_before_loss = many("touched").into_iter().collect();
    guard.lost = dated("judged");
    guard.control_group = dated("beside");
    let in_wave: std::collections::BTreeSet<NodeName> =
        guard.failed.iter().take(1000).cloned().collect();
    let wave = |number: usize| (format!("{number:0>63}").into(), in_wave.clone());
    guard.waves = (0..50).map(wave).collect();
    guard.stopped_before = (0..100)
        .map(|number| format!("{number:0>63}").into())
        .collect();
    let guard = guard.clone();
    state.pause.as_mut().unwrap().newcomers = many("new");
    state.refused.as_mut().unwrap().writes[0].nodes = many("refused");
    state.refused.as_mut().unwrap().writes[0].message = "no ".repeat(100_000).into();
    state.not_created = Some("no ".repeat(100_000).into());
    state.failing[0].nodes = many("failing");
    state
        .unknown
        .insert("later".to_owned(), json!("x".repeat(100_000)));
    assert!(state.to_json().len() <= LIMIT, "{}", state.to_json().len());
    let read = reread(&state).guard.expect("a record");
    assert_eq!(
        (read.stopped, read.exceeded),
        (guard.stopped, guard.exceeded)
    );
    assert_eq!(
        (&read.before, &read.stopped_before),
        (&guard.before, &guard.stopped_before)
    );
    assert_eq!(read.failures(), 300_000, "failed, touched or lost");
    assert!(!read.replaced_twice.is_empty() && read.control_group.is_empty());
    assert_eq!(read.waves.len(), 50);
    let mut charged = read.waves.values().flatten();
    assert!(charged.all(|node| read.failed.contains(node)));
    // Another program than yurt-ds wrote this record, which is too large.
    let mut hostile = full();
    let guard = hostile.guard.as_mut().unwrap();
    guard.stopped_before = vec!["x".repeat(1_000_000).into()];
    assert!(hostile.to_json().len() <= LIMIT);
    assert_eq!(
        reread(&hostile).guard.unwrap().stopped,
        Some(Stopped::FailedByRevision)
    );
}
