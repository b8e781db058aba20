//! Tests of the alerts and the dashboard: their metrics, labels and links must exist, and their copies must be equal.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::METRICS;
use crate::controller::metrics::tests::page_with_every_metric;

const RULES: &str = include_str!("../../charts/yurt-ds/files/rules.yaml");
const PROMETHEUS_RULE: &str = include_str!("../../manifests/components/alerts/prometheusrule.yaml");
const STORIES: &str = include_str!("../../tests/alerts.yaml");
const DASHBOARD: &str = include_str!("../../charts/yurt-ds/files/dashboard.json");
const DASHBOARD_COPY: &str = include_str!("../../manifests/components/dashboard/dashboard.json");
const TROUBLESHOOTING: &str = include_str!("../../docs/troubleshooting.md");

/// Labels that Prometheus adds to each series, by its configuration.
const TARGET_LABELS: [&str; 3] = ["cluster", "instance", "namespace"];

/// Labels with names from the cluster. All other labels have fixed values.
const NAME_LABELS: [&str; 2] = ["namespace", "daemonset"];

/// Values by label.
type Labels<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Returns the label of a matcher such as `verdict=~"Guarded|Revert"`, with its values; `None` without a matcher.
fn matcher(text: &str) -> Option<(&str, BTreeSet<&str>)> {
    let (label, value) = text.trim().split_once(['=', '!'])?;
    let value = value.split('"').nth(1).expect("a value in quotes");
    Some((label, value.split('|').collect()))
}

/// Returns each metric in a query, an input series or a line of a metrics page, with the labels in its braces.
fn selectors(text: &str) -> Vec<(&str, Labels<'_>)> {
    let selector = |(at, _)| {
        let text: &str = &text[at..];
        let end = text.find(|letter| !is_word(letter));
        let (metric, rest) = text.split_at(end.unwrap_or(text.len()));
        let braces = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let matchers = braces.map_or("", |(inside, _)| inside).split(',');
        (metric, matchers.filter_map(matcher).collect())
    };
    text.match_indices("yurt_ds_").map(selector).collect()
}

/// Returns the metrics of a metrics page with their labels.
fn metrics_of(page: &str) -> BTreeMap<&str, Labels<'_>> {
    let mut metrics: BTreeMap<&str, Labels<'_>> = BTreeMap::new();
    // Comments name a counter without its suffix.
    let series = page.lines().filter(|line| !line.starts_with('#'));
    for (metric, labels) in series.flat_map(selectors) {
        let known = metrics.entry(metric).or_default();
        for (label, values) in labels {
            known.entry(label).or_default().extend(values);
        }
    }
    metrics
}

/// Returns the labels that a query keeps: those in `by (…)`.
fn grouped(query: &str) -> BTreeSet<&str> {
    let groups = query.split("by (").skip(1);
    let groups = groups.filter_map(|rest| Some(rest.split_once(')')?.0));
    groups.flat_map(|labels| labels.split(", ")).collect()
}

/// Checks the metrics and labels of a query, and the labels that its texts show.
fn check_query(query: &str, texts: &[&str]) {
    let page = page_with_every_metric();
    let program = metrics_of(&page);
    let used = selectors(query);
    assert!(!used.is_empty(), "no metric: {query}");
    let mut labels = BTreeSet::from(TARGET_LABELS);
    for (metric, matchers) in used {
        let known = program.get(metric);
        let known = known.unwrap_or_else(|| panic!("{metric} does not exist: {query}"));
        labels.extend(known.keys());
        for (label, values) in matchers {
            let exist = known.get(label);
            let exist = exist.unwrap_or_else(|| panic!("{metric} has no {label}: {query}"));
            let is_known = NAME_LABELS.contains(&label) || values.is_subset(exist);
            assert!(is_known, "{metric} has only {label}={exist:?}: {query}");
        }
    }
    let kept = grouped(query);
    assert!(kept.is_subset(&labels), "{kept:?} of {labels:?}: {query}");
    for text in texts {
        for start in ["{{ $labels.", "{{"] {
            let shown = text.split(start).skip(1);
            let shown = shown.filter_map(|rest| rest.split(|letter| !is_word(letter)).next());
            for label in shown.filter(|label| !label.is_empty()) {
                assert!(kept.contains(label), "{text:?} shows {label}: {query}");
            }
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    let text = value[key].as_str();
    text.unwrap_or_else(|| panic!("no text {key}: {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    let list = value[key].as_array();
    list.unwrap_or_else(|| panic!("no list {key}: {value}"))
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("valid YAML")
}

fn alerts() -> Vec<Value> {
    let rules = yaml(RULES);
    let groups = list(&rules, "groups").iter();
    groups
        .flat_map(|group| list(group, "rules"))
        .cloned()
        .collect()
}

#[test]
fn every_metric_and_label_of_an_alert_exists() {
    let alerts = alerts();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        let notes = &alert["annotations"];
        let texts = ["summary", "description"].map(|key| text(notes, key));
        check_query(text(&alert, "expr"), &texts);
    }
}

/// Returns the sections of the troubleshooting page by anchor.
fn sections() -> BTreeMap<String, &'static str> {
    let anchor = |heading: &str| {
        let kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
        let words: String = heading.chars().filter(kept).collect();
        words.to_lowercase().replace(' ', "-")
    };
    let sections = TROUBLESHOOTING.split("\n## ").skip(1);
    let section = |section: &'static str| {
        let heading = section.lines().next().unwrap_or_default();
        (anchor(heading), section)
    };
    sections.map(section).collect()
}

#[test]
fn every_alert_is_documented_at_its_link() {
    let sections = sections();
    for alert in alerts() {
        let name = text(&alert, "alert");
        let link = text(&alert["annotations"], "runbook");
        let section = link.strip_prefix("docs/troubleshooting.md#");
        let section = section.and_then(|anchor| sections.get(anchor));
        let section = section.unwrap_or_else(|| panic!("{name}: no section {link}"));
        assert!(section.contains(name), "{link} doesn't name {name}");
        let severity = text(&alert["labels"], "severity");
        let row = format!("| `{name}` | {severity} | {} |", text(&alert, "for"));
        assert!(METRICS.contains(&row), "metrics.md has no {row}");
    }
}

#[test]
fn every_alert_fires_and_resolves_in_a_test() {
    let stories = yaml(STORIES);
    let stories = list(&stories, "tests");
    let fires_and_ends = |name: &str| {
        stories.iter().any(|story| {
            let tests = list(story, "alert_rule_test").iter();
            let tests = tests.filter(|test| text(test, "alertname") == name);
            let fires: Vec<bool> = tests
                .map(|test| !list(test, "exp_alerts").is_empty())
                .collect();
            fires.windows(2).any(|pair| pair == [true, false])
        })
    };
    for alert in alerts() {
        let name = text(&alert, "alert");
        assert!(fires_and_ends(name), "{name}");
    }
    let page = page_with_every_metric();
    let program = metrics_of(&page);
    let series = stories.iter().flat_map(|story| list(story, "input_series"));
    for series in series.map(|series| text(series, "series")) {
        let (metric, labels) = selectors(series).remove(0);
        let known = program.get(metric);
        let known = known.unwrap_or_else(|| panic!("{series}: no such metric"));
        let mut labels: BTreeSet<&str> = labels.into_keys().collect();
        labels.retain(|label| known.contains_key(label) || !TARGET_LABELS.contains(label));
        assert!(labels.iter().eq(known.keys()), "{series}: {known:?}");
    }
}

#[test]
fn both_copies_of_the_alerts_are_equal() {
    let (_, groups) = RULES.split_once("\ngroups:").expect("groups");
    let indented = groups.replace("\n  ", "\n    ");
    let spec = format!("\nspec:\n  groups:{indented}");
    assert!(
        PROMETHEUS_RULE.ends_with(&spec),
        "prometheusrule.yaml should have the groups of rules.yaml below spec, indented by two spaces"
    );
}

#[test]
fn every_panel_queries_existing_metrics_and_describes_them() {
    assert!(DASHBOARD == DASHBOARD_COPY, "copy dashboard.json");
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("valid JSON");
    assert_eq!(text(&dashboard, "uid"), "yurt-ds");
    let panels = list(&dashboard, "panels");
    assert!(panels.len() <= 12, "{}", panels.len());
    for part in panels.iter().chain([&dashboard]) {
        assert_eq!(part.get("id"), None, "ids are those of one Grafana");
        assert!(text(part, "description").ends_with('.'));
    }
    for panel in panels {
        assert_eq!(text(&panel["datasource"], "uid"), "${datasource}");
        for target in list(panel, "targets") {
            check_query(text(target, "expr"), &[text(target, "legendFormat")]);
        }
    }
    for variable in list(&dashboard["templating"], "list") {
        if variable["type"] == "query" {
            check_query(text(&variable["query"], "query"), &[]);
        }
    }
}
