//! Tests of `ctl settings`, without a cluster and with the embedded one.

use serde_json::{Value, json};

use super::*;
use crate::ctl::tests::{CtlWorld, assert_fits, flat};

fn all(output: Output) -> String {
    let args = SettingsArgs {
        daemonset: None,
        all: false,
        output,
    };
    list(&args, false).unwrap()
}

fn keys(object: &Value) -> Vec<&str> {
    let object = object.as_object().unwrap();
    object.keys().map(String::as_str).collect()
}

/// Returns the row of the setting `name` in an answer about a DaemonSet.
fn row<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let rows = answer["settings"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap()
}

#[test]
fn without_a_daemonset_every_setting_is_listed() {
    assert_fits(&all(Output::Table));
    let text = all(Output::Wide);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + SETTINGS.len());
    for (line, setting) in lines[1..].iter().zip(SETTINGS) {
        assert_eq!(line.split("  ").next(), Some(setting.name()));
        assert!(line.ends_with(&plain(setting.summary)), "{line}");
    }
    assert!(!text.contains('`'), "{text}");
    let words = |name: &str| {
        let line = lines.iter().find(|line| line.starts_with(name)).unwrap();
        let words = line.split("  ").map(|word| word.trim().to_owned());
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(
        words("partition")[..4],
        ["partition", "3 or 10%", "0", "no"]
    );
    assert_eq!(words("paused")[2..4], ["not paused", "yes"]);
}

#[test]
fn documents_have_the_fields_listed_in_help() {
    let rows: Value = serde_json::from_str(&all(Output::Json)).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), SETTINGS.len());
    let names = [
        "name",
        "annotation",
        "summary",
        "syntax",
        "default",
        "modes",
    ];
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    assert_eq!(keys(&rows[0]), sorted);
    assert!(FIELDS.contains(&names.join(", ")), "{FIELDS}");
    let states = SettingState::ALL.map(SettingState::word).join(", ");
    assert!(FIELDS.ends_with(&states), "{FIELDS}");
    assert_eq!(rows[0]["modes"], json!(["AdvancedRollingUpdate", "OTA"]));
    let yaml = all(Output::Yaml);
    assert!(
        yaml.contains("annotation: apps.openyurt.io/partition"),
        "{yaml}"
    );
}

#[tokio::test(start_paused = true)]
async fn settings_of_a_daemonset_show_effective_values_and_their_origin() {
    let world = CtlWorld::with_nodes(1).await;
    let annotations = json!({
        "apps.openyurt.io/max-surge": "1",
        "apps.openyurt.io/max-domains": "2",
        "apps.openyurt.io/partitoin": "1",
        "apps.openyurt.io/waves": "- name: a\n  selector: {}\n",
    });
    let annotations = json!({ "metadata": { "annotations": annotations } });
    world.patch(annotations).await;
    let answer = world.json("settings web").await;
    assert_eq!(
        (&answer["namespace"], &answer["name"]),
        (&json!("default"), &json!("web"))
    );
    assert_eq!(
        keys(&answer),
        ["invalid", "kind", "name", "namespace", "notes", "settings"]
    );
    let surge = row(&answer, "max-surge");
    assert_eq!(
        (&surge["value"], &surge["state"]),
        (&json!("1"), &json!("Set"))
    );
    let budget = row(&answer, "max-unavailable");
    assert_eq!(
        (&budget["value"], &budget["state"]),
        (&json!(null), &json!("Default"))
    );
    assert_eq!(budget["default"], "0");
    let domains = row(&answer, "max-domains");
    assert_eq!(domains["state"], "NoEffect");
    let notes = answer["notes"].as_array().unwrap();
    let [slip] = notes.as_slice() else {
        panic!("{notes:?}");
    };
    assert!(
        slip.as_str()
            .unwrap()
            .contains("similar setting: apps.openyurt.io/partition")
    );
    let set = world.text("settings default/web").await;
    assert_fits(&set);
    assert!(!set.contains("max-unavailable "), "{set}");
    assert!(set.contains("more have their defaults: --all"), "{set}");
    let text = world.text("settings default/web --all").await;
    assert_fits(&text);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("max-unavailable ").contains("0      "), "{text}");
    assert!(
        line("waves ").contains("- name: a selector: {}  "),
        "{text}"
    );
    let flat = flat(&text);
    assert!(flat.contains("max-domains: "), "{text}");
    assert!(flat.contains("set both, or remove it"), "{text}");
    assert!(
        flat.contains("Note: ") && flat.contains("partitoin has no effect"),
        "{text}"
    );
    let wide = world.text("settings web -o wide").await;
    assert!(
        wide.lines().next().unwrap().contains("WRITTEN AS"),
        "{wide}"
    );
    assert_eq!(world.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn every_invalid_setting_is_named_and_changes_the_exit_code() {
    let world = CtlWorld::with_nodes(1).await;
    let annotations = json!({
        "apps.openyurt.io/partition": "-1",
        "apps.openyurt.io/ramp-up": "0",
    });
    let annotations = json!({ "metadata": { "annotations": annotations } });
    world.patch(annotations).await;
    let (text, ended) = world.run("settings web").await;
    assert_eq!(ended, Ok(Code::Invalid));
    for said in [
        "apps.openyurt.io/partition is \"-1\", which is negative",
        "apps.openyurt.io/ramp-up is \"0\", which is zero",
        "; no pod is replaced until the settings are corrected",
    ] {
        assert!(flat(&text).contains(said), "{text}");
    }
    assert_fits(&text);
    let native = json!({ "spec": { "updateStrategy": { "type": "RollingUpdate" } } });
    world.patch(native).await;
    let (text, ended) = world.run("settings web").await;
    assert_eq!(ended, Ok(Code::Invalid));
    let note = "Note: spec.updateStrategy.type is \"RollingUpdate\", so Kubernetes replaces the pods itself";
    assert!(flat(&text).contains(note), "{text}");
}

#[tokio::test(start_paused = true)]
async fn unknown_and_unmanaged_daemonsets_are_reported_as_by_other_commands() {
    let world = CtlWorld::with_nodes(1).await;
    world.create("plain", json!({})).await;
    let error = world.error("settings wbe").await;
    assert_eq!(error.code, Code::NotFound);
    assert!(error.text.contains("Did you mean default/web?"), "{error}");
    let error = world.error("settings plain").await;
    assert_eq!(error.code, Code::NotFound);
    assert!(error.text.contains("is not managed by yurt-ds"), "{error}");
    let asked = world.cluster.requests().into_iter();
    let before: u64 = asked
        .filter(|count| count.user_agent == "ctl")
        .map(|count| count.number)
        .sum();
    assert!(world.text("settings").await.starts_with("update-strategy"));
    let asked = world.cluster.requests().into_iter();
    let after: u64 = asked
        .filter(|count| count.user_agent == "ctl")
        .map(|count| count.number)
        .sum();
    assert_eq!(after, before, "no cluster is asked");
}
