//! Each alert fires in a story of the simulator, and ends when its cause ends.
//!
//! A story records the metrics pages of the controller, one per minute, as Prometheus would. promtool then evaluates the alerts
//! over the record. Without promtool, the stories run and the evaluation is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};
use yurt_ds::k8s::client::Role;

use crate::scenarios::guard::{crashing, guarded, is_stopped};
use crate::scenarios::operations::{blind, mend};
use crate::support::checks::*;
use crate::support::embedded::play_in_step;
use crate::support::objects::*;
use crate::support::player::{Stage, from};
use crate::support::story::{Story, Writes};

/// Minutes after which every alert with `for: 5m` fires.
const SOON: usize = 7;
/// Minutes of a day.
const DAY: usize = 24 * 60;

/// Metrics of a controller over time, and the alerts that are expected.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Samples>>);

#[derive(Default)]
struct Samples {
    /// Value of each series that the alerts use, for each minute.
    minutes: Vec<BTreeMap<String, f64>>,
    /// Minute, name of an alert, and whether it should fire then.
    expected: Vec<(usize, &'static str, bool)>,
}

impl Record {
    fn samples(&self) -> std::sync::MutexGuard<'_, Samples> {
        self.0.lock().expect("nobody panics while recording")
    }

    /// Adds a step in which Prometheus scrapes the controller for some minutes.
    fn scraped(&self, story: Story, minutes: usize) -> Story {
        let record = self.clone();
        story.does("scrape the metrics", move |stage| {
            let record = record.clone();
            async move {
                for _ in 0..minutes {
                    record.scrape(&stage)?;
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
                Ok(())
            }
        })
    }

    /// Adds a step in which all metrics keep their last value for some minutes.
    fn unchanged(&self, story: Story, minutes: usize) -> Story {
        let record = self.clone();
        story.does("nothing changes", move |_| {
            let last = record.samples().minutes.last().cloned();
            let held = std::iter::repeat_n(last.unwrap_or_default(), minutes);
            record.samples().minutes.extend(held);
            async { Ok(()) }
        })
    }

    /// Adds an expectation: at the last minute so far, exactly these of the alerts fire.
    fn firing(&self, story: Story, alerts: &'static [&'static str]) -> Story {
        let record = self.clone();
        story.does("the alerts are noted", move |_| {
            let mut samples = record.samples();
            let minute = samples.minutes.len() - 1;
            let expected = names().into_iter();
            let expected = expected.map(|name| (minute, name, alerts.contains(&name)));
            samples.expected.extend(expected);
            async { Ok(()) }
        })
    }

    fn scrape(&self, stage: &Stage) -> anyhow::Result<()> {
        let mut samples = self.samples();
        // promtool's time begins at 0.
        let began =
            stage.world.clock.now().as_second() - 60 * i64::try_from(samples.minutes.len())?;
        let mut values = BTreeMap::new();
        for (instance, page) in stage.world.backend.pages()? {
            let lines = page.lines().filter(|line| !line.starts_with('#'));
            for line in lines.filter(|line| RULES.contains(metric(line))) {
                let (series, value) = line.rsplit_once(' ').context("a line without value")?;
                let labels = series.strip_prefix(metric(line)).unwrap_or_default();
                let labels = labels.trim_matches(['{', '}']);
                let series = format!("{}{{instance=\"{instance}\",{labels}}}", metric(line));
                let mut value: f64 = value.parse()?;
                if metric(line).ends_with("_timestamp_seconds") {
                    value -= began as f64;
                }
                values.insert(series.replace(",}", "}"), value);
            }
        }
        samples.minutes.push(values);
        Ok(())
    }
}

/// Returns the name of the metric in a line of a metrics page.
fn metric(line: &str) -> &str {
    line.split(['{', ' ']).next().unwrap_or(line)
}

const RULES: &str = include_str!("../charts/yurt-ds/files/rules.yaml");

/// Returns the names of all alerts.
fn names() -> BTreeSet<&'static str> {
    let names = RULES
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.collect()
}

impl Samples {
    /// Returns the values of a series in promtool's notation.
    fn values(&self, series: &str) -> String {
        let mut runs: Vec<(String, usize)> = Vec::new();
        let mut is_present = false;
        for minute in &self.minutes {
            let value = match minute.get(series) {
                Some(value) => value.to_string(),
                // Prometheus marks the end of a series.
                None if is_present => "stale".to_owned(),
                None => "_".to_owned(),
            };
            is_present = minute.contains_key(series);
            match runs.last_mut() {
                Some((last, count)) if *last == value => *count += 1,
                _ => runs.push((value, 1)),
            }
        }
        let run = |(value, count): (String, usize)| match (value.as_str(), count) {
            ("stale", _) | (_, 1) => value,
            ("_", count) => format!("_x{count}"),
            (_, count) => format!("{value}x{}", count - 1),
        };
        runs.into_iter().map(run).collect::<Vec<_>>().join(" ")
    }

    /// Returns the record as a test for promtool.
    fn test(&self, name: &str) -> Value {
        let series: BTreeSet<&String> = self.minutes.iter().flat_map(BTreeMap::keys).collect();
        let input = series
            .into_iter()
            .map(|series| json!({ "series": series, "values": self.values(series) }));
        let expected = self.expected.iter().map(|(minute, alert, fires)| {
            let samples = if *fires {
                json!([{ "labels": "{}", "value": 1 }])
            } else {
                json!([])
            };
            json!({
                "expr": format!("count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})"),
                "eval_time": format!("{minute}m"),
                "exp_samples": samples,
            })
        });
        json!({
            "name": name,
            "interval": "1m",
            "input_series": input.collect::<Vec<_>>(),
            "promql_expr_test": expected.collect::<Vec<_>>(),
        })
    }
}

/// Evaluates the alerts over these tests.
fn promtool(tests: &[Value]) {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/yurt-ds/files/rules.yaml");
    let file = folder.path().join("stories.yaml");
    let text = json!({ "rule_files": [rules], "evaluation_interval": "1m", "tests": tests });
    std::fs::write(&file, text.to_string()).expect("the file is written");
    let output = match Command::new("promtool")
        .args(["test", "rules"])
        .arg(&file)
        .output()
    {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("SKIPPED: the alerts are not evaluated, because promtool is not installed");
            return;
        }
        output => output.expect("promtool runs"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Story with its record.
struct Told {
    name: &'static str,
    record: Record,
    story: Story,
}

impl Told {
    fn on(name: &'static str, story: Story) -> Self {
        let told = Self {
            name,
            record: Record::default(),
            story,
        };
        told.scraped(1).firing(&[])
    }

    fn then(mut self, next: impl FnOnce(Story) -> Story) -> Self {
        self.story = next(self.story);
        self
    }

    fn scraped(mut self, minutes: usize) -> Self {
        self.story = self.record.scraped(self.story, minutes);
        self
    }

    fn unchanged(mut self, minutes: usize) -> Self {
        self.story = self.record.unchanged(self.story, minutes);
        self
    }

    fn firing(mut self, alerts: &'static [&'static str]) -> Self {
        self.story = self.record.firing(self.story, alerts);
        self
    }
}

/// Creates a DaemonSet with the name of the agents, whose image can't be pulled.
async fn broken_agents(stage: Stage) -> anyhow::Result<()> {
    stage
        .create_daemon(&Daemon::new().renamed(AGENTS).image(NEW))
        .await
}

const AGENTS: &str = "yurt-ds-ota-server";

async fn delete_agents(stage: Stage) -> anyhow::Result<()> {
    stage
        .api::<DaemonSet>()
        .delete(AGENTS, &DeleteParams::background())
        .await?;
    Ok(())
}

fn revisions(stage: &Stage) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apps", "v1", "ControllerRevision");
    Api::namespaced_with(
        stage.world.client.clone(),
        &stage.name,
        &ApiResource::from_gvk(&kind),
    )
}

/// Creates a ControllerRevision that the API server stores, but that has too many values for the controller.
async fn unreadable_revision(stage: Stage) -> anyhow::Result<()> {
    let revision = json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": { "name": "broken", "labels": { "app": "nginx" } },
        "revision": 1,
        "data": { "many": vec![0; 20_000] },
    });
    let revision: DynamicObject = from(revision)?;
    revisions(&stage)
        .create(&PostParams::default(), &revision)
        .await?;
    Ok(())
}

async fn delete_revision(stage: Stage) -> anyhow::Result<()> {
    revisions(&stage)
        .delete("broken", &DeleteParams::default())
        .await?;
    Ok(())
}

fn stories() -> Vec<Told> {
    let lacks = |stage: Stage| async move {
        stage
            .world
            .backend
            .permission(Role::Controller, "delete", "pods", false)
            .await
    };
    let gets = |stage: Stage| async move {
        stage
            .world
            .backend
            .permission(Role::Controller, "delete", "pods", true)
            .await
    };
    vec![
        Told::on("the controller ends and starts again", Story::on(1))
            .then(|story| story.controller(false))
            .scraped(SOON)
            .firing(&["YurtDsNoLeader"])
            .then(|story| story.controller(true))
            .scraped(2)
            .firing(&[]),
        Told::on("a second installation is made and removed", Story::on(1))
            .then(|story| {
                story.does("a second installation", |stage| async move {
                    stage.world.backend.second_installation()
                })
            })
            .scraped(2 * SOON)
            .firing(&["YurtDsTwoLeaders"])
            .then(|story| {
                story.does("it ends", |stage| async move {
                    stage.world.backend.kill("second")
                })
            })
            .scraped(SOON)
            .firing(&[]),
        Told::on(
            "the guard stops a rollout, and the next image works",
            Story::on(6).with(guarded(3, 1)).allowed(3),
        )
        .then(|story| story.behave(NEW, crashing()).image(NEW).until(is_stopped()))
        .scraped(SOON)
        .firing(&["YurtDsGuardStopped"])
        .then(|story| story.image(NEWER).until(converged()))
        .scraped(2)
        .firing(&[]),
        Told::on(
            "a permission is revoked and granted again",
            Story::on(3).writing(Writes::Attempts),
        )
        .then(|story| {
            story.does("revoke", lacks).image(NEW).until(condition(
                "Stalled",
                "True",
                "refuses to delete",
            ))
        })
        .scraped(SOON)
        .firing(&["YurtDsPermissionMissing", "YurtDsRolloutStalled"])
        .then(|story| story.does("grant", gets).until(converged()))
        .scraped(2)
        .firing(&[]),
        Told::on("a setting is invalid and corrected", Story::on(2))
            .then(|story| story.annotate("max-unavailable", "few"))
            .scraped(SOON)
            .firing(&["YurtDsSettingsInvalid"])
            .then(|story| story.annotate("max-unavailable", "1"))
            .scraped(2)
            .firing(&[]),
        Told::on(
            "a rollout is paused for days",
            Story::on(2).with(Daemon::new().annotate("paused", "true")),
        )
        .then(|story| story.image(NEW))
        .scraped(2)
        .unchanged(3 * DAY - 60)
        .firing(&[])
        .unchanged(60 + SOON)
        .firing(&["YurtDsPausedTooLong"])
        .then(|story| story.unannotate("paused").until(converged()))
        .scraped(2)
        .firing(&[]),
        Told::on("an offline node misses a rollout for a week", Story::on(2))
            .then(|story| story.offline([2]).image(NEW).until(replaced([1])))
            .scraped(2)
            .unchanged(7 * DAY - 60)
            .firing(&[])
            .unchanged(60 + SOON)
            .firing(&["YurtDsOfflineNodesOutdated"])
            .then(|story| story.online([2]).until(converged()))
            .scraped(20)
            .firing(&[]),
        Told::on("agents can't start, and are deleted", Story::on(2))
            .then(|story| {
                story
                    .behave(NEW, missing_image())
                    .does("broken agents", broken_agents)
            })
            .scraped(25)
            .firing(&["YurtDsRolloutStalled"])
            .scraped(SOON)
            .firing(&["YurtDsAgentsUnavailable", "YurtDsRolloutStalled"])
            .then(|story| story.does("delete the agents", delete_agents))
            .scraped(2)
            .firing(&[]),
        Told::on("a watch gets no data for a while", Story::on(1))
            .then(|story| story.does("no news of nodes", |stage| blind(stage, "nodes")))
            .scraped(SOON)
            .firing(&["YurtDsWatchStale"])
            .then(|story| story.does("news again", mend))
            .scraped(3)
            .firing(&[]),
        Told::on(
            "the receiver of notifications doesn't exist",
            Story::on(2).writing(Writes::Attempts),
        )
        .then(|story| {
            story
                .does("notify a closed port", |stage| async move {
                    stage.world.backend.notifying("http://127.0.0.1:1/")
                })
                .image(NEW)
                .until(converged())
        })
        .scraped(2 * SOON)
        .firing(&["YurtDsNotificationsDropped"])
        .scraped(20)
        .firing(&[]),
        Told::on("an object can't be read, and is deleted", Story::on(1))
            .then(|story| story.does("an unreadable revision", unreadable_revision))
            .scraped(SOON)
            .firing(&["YurtDsObjectsUnreadable"])
            .then(|story| story.does("delete it", delete_revision))
            .scraped(2)
            .firing(&[]),
    ]
}

#[test]
fn every_alert_fires_in_a_story_and_ends_with_its_cause() {
    let mut tests = Vec::new();
    let mut fired = BTreeSet::new();
    for (number, told) in stories().into_iter().enumerate() {
        let played = play_in_step(&format!("alert-{number}"), &told.story);
        played.unwrap_or_else(|error| panic!("{}: {error}", told.name));
        let samples = told.record.samples();
        fired.extend(
            samples
                .expected
                .iter()
                .filter(|(_, _, fires)| *fires)
                .map(|(_, alert, _)| *alert),
        );
        tests.push(samples.test(told.name));
    }
    assert_eq!(fired, names(), "alerts with a story");
    promtool(&tests);
}
