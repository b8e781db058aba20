//! Tests with conditions that commit f471909 wrote in the middle of simulated rollouts.

use serde_json::{Value, json};

use super::*;

/// Recorded conditions with the expected states. `YURT_DS_GOLDEN=1` rewrites the states; explain changes in the commit message.
const SEEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/index/legacy/seen.json");

fn conditions(one: &Value) -> Vec<Condition> {
    serde_json::from_value(one["conditions"].clone()).unwrap()
}

#[test]
fn conditions_of_the_previous_release_are_parsed() {
    let text = std::fs::read_to_string(SEEN).unwrap();
    let mut seen: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(seen.len() > 20);
    let mut differs = Vec::new();
    for one in &mut seen {
        let state = read(&conditions(one)).expect("conditions of ours");
        // The state that will be saved in `RolloutState` must parse to the same state again.
        assert_eq!(RolloutState::read(&state.to_json()).unwrap(), state);
        let state = serde_json::to_value(&state).unwrap();
        if one["state"] != state {
            differs.push(one["story"].clone());
            one["state"] = state;
        }
    }
    if std::env::var_os("YURT_DS_GOLDEN").is_some() {
        std::fs::write(SEEN, serde_json::to_string_pretty(&seen).unwrap() + "\n").unwrap();
    } else {
        assert!(differs.is_empty(), "{differs:?}");
    }
}

#[test]
fn foreign_conditions_are_not_parsed_as_state() {
    let other = json!([{ "type": "Available", "status": "True", "reason": "x", "message": "revision 5d4f8: failed: edge-1" }]);
    let other: Vec<Condition> = serde_json::from_value(other).unwrap();
    assert_eq!(read(&other), None);
    for (status, reason, message) in [
        (true, "FailedByRevision", "something else"),
        (true, "Unknown", "revision 5d4f8: failed: edge-1"),
        (false, "", ""),
    ] {
        assert_eq!(record(status, reason, message), None);
    }
    assert_eq!(refusals("something else", Timestamp::UNIX_EPOCH), None);
    assert_eq!(not_created("revision 5d4f8: complete"), None);
    assert!(not_ready(" does not become available: x (says ").is_empty());
    assert_eq!(failing("revision 5d4f8: stopped"), None);
}
