//! Checks that conditions, Events, metrics and `ctl` report the same state of a story's DaemonSet.
//!
//! The check runs after every step that waits, if the rollout is idle then. The four sources are not updated at exactly the same
//! time, so the check is repeated until they agree. The check is skipped if no controller or more than one runs. It is also skipped
//! if a fault affects the controller's requests ([`Backend::metrics`]).
//!
//! [`Backend::metrics`]: super::world::Backend::metrics

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use yurt_ds::ctl::Code;

use super::machine::BUSY;
use super::objects::DAEMON;
use super::picture::{Picture, Told};
use super::player::Stage;
use super::typed::ctl;

/// Time within which the four sources must agree.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two checks.
const AGAIN: Duration = Duration::from_millis(200);

/// Numbers that `ctl status -o json` and the metrics have in common: the JSON field, the name of the metric, and the value of the
/// metric's last label (empty: no label).
const NUMBERS: [(&str, &str, &str); 8] = [
    ("targeted", "targeted", ""),
    ("updated", "updated", ""),
    ("unavailable", "unavailable", ""),
    ("allowed", "allowed_unavailable", ""),
    ("failures", "charged", ""),
    ("inProgress", "without_available_pod", "in_progress"),
    ("failed", "without_available_pod", "failed"),
    ("brokenBefore", "without_available_pod", "broken_before"),
];

/// Reports of the four sources (conditions, Events, metrics, `ctl`) at one moment.
struct Said {
    /// Reasons and messages that the condition `RolloutComplete` has had, latest last.
    told: Vec<Told>,
    /// Phase of the rollout according to the conditions.
    phase: Option<&'static str>,
    /// Reason and note of every Event about the DaemonSet.
    events: Vec<(String, String)>,
    metrics: Metrics,
    /// Output of `ctl status -o json`, and its exit code.
    row: Value,
    code: u8,
}

/// Metrics page of the controller. Only lines about the story's DaemonSet are used.
struct Metrics {
    page: String,
    namespace: String,
}

impl Stage {
    /// Compares the four sources repeatedly until they agree or the rollout is no longer idle.
    ///
    /// # Errors
    /// Returns an error if the sources still disagree after [`PATIENCE`]. The error contains the report of each source.
    pub(crate) async fn agree(&self) -> Result<(), String> {
        let patience = self.world.pace.pick(PATIENCE, PATIENCE * BUSY);
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let told = |error: anyhow::Error| format!("{error:#}");
            let Some(said) = self.listen().await.map_err(told)? else {
                return Ok(());
            };
            if !said.rests() {
                return Ok(());
            }
            let compared = match said.compare() {
                Ok(()) => self.compare_asked(&said).await,
                differs => differs,
            };
            let Err(why) = compared else {
                return Ok(());
            };
            if tokio::time::Instant::now() >= deadline {
                let picture = self.see(Picture::describe).await;
                return Err(format!("they do not agree: {why}\n{said}\n{picture}"));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Reads all four sources. Returns `None` if the comparison must be skipped.
    async fn listen(&self) -> anyhow::Result<Option<Said>> {
        let Some(page) = self.world.backend.metrics().await? else {
            return Ok(None);
        };
        let (text, ended) = ctl(self, &format!("status {DAEMON} -o json")).await?;
        let code = match ended {
            Ok(code) => code,
            Err(trouble) if trouble.code == Code::NotFound => return Ok(None),
            Err(trouble) => anyhow::bail!("ctl status: {trouble}"),
        };
        let namespace = self.name.clone();
        let row = serde_json::from_str(&text)?;
        Ok(self
            .see(|picture| {
                Some(Said {
                    phase: phase(picture),
                    told: picture.told.clone(),
                    events: picture.state_events(),
                    metrics: Metrics { page, namespace },
                    row,
                    code: code.number(),
                })
            })
            .await)
    }

    async fn compare_asked(&self, said: &Said) -> Result<(), String> {
        self.compare_why(said).await?;
        self.compare_settings(said).await
    }

    /// Checks that `ctl settings` and `ctl status` report the same invalid settings in the same words.
    async fn compare_settings(&self, said: &Said) -> Result<(), String> {
        let line = format!("settings {DAEMON} -o json");
        let (text, ended) = ctl(self, &line).await.map_err(|e| format!("{e:#}"))?;
        let answer: Value =
            serde_json::from_str(&text).map_err(|e| format!("{line}: {e}: {text}"))?;
        let code = ended.map_err(|trouble| format!("{line}: {trouble}"))?;
        same(
            "an invalid setting",
            code == Code::Invalid,
            answer["invalid"].is_string(),
        )?;
        let Some(invalid) = answer["invalid"].as_str() else {
            return Ok(());
        };
        same("the phase", "Invalid", said.text("phase"))?;
        same(
            "the sentence of ctl settings",
            invalid,
            said.text("message"),
        )
    }

    /// Checks that `ctl why` and `ctl status` agree about a node whose update is not complete, if there is one.
    async fn compare_why(&self, said: &Said) -> Result<(), String> {
        let nodes = said.row["nodes"].as_array().into_iter().flatten();
        let mut open = nodes.filter(|node| node["verdict"] != "Done");
        let Some(node) = open.find(|node| node["verdict"] != "NotTargeted") else {
            return Ok(());
        };
        let name = node["node"].as_str().unwrap_or_default();
        let line = format!("why {DAEMON} {name} -o json");
        let (text, _) = ctl(self, &line).await.map_err(|e| format!("{e:#}"))?;
        let why: Value = serde_json::from_str(&text).map_err(|e| format!("{line}: {e}: {text}"))?;
        let row = &said.row;
        same("the phase of ctl why", &why["phase"], &row["phase"])?;
        same(
            "the sentence of ctl why",
            &why["phaseMessage"],
            &row["message"],
        )?;
        same("the verdict of ctl why", &why["verdict"], &node["verdict"])?;
        let next = why["next"].as_str().unwrap_or_default();
        demand(!next.is_empty(), || format!("{line} names no way on"))
    }
}

impl Said {
    fn text(&self, field: &str) -> &str {
        self.row[field].as_str().unwrap_or_default()
    }

    /// Returns true if the rollout is idle. Otherwise it may change while the sources are read one after another.
    fn rests(&self) -> bool {
        let verdicts = &self.row["verdicts"];
        let moves = |word: &str| verdicts[word].as_u64().unwrap_or_default() > 0;
        match self.text("phase") {
            "Progressing" | "Complete" => !moves("InProgress"),
            // `ctl` reports this phase until the native controller has observed the last change of the DaemonSet. If the condition
            // still shows another phase, the controller has not seen the change yet.
            "NativeControllerBehind" => self.phase == Some("NativeControllerBehind"),
            _ => true,
        }
    }

    fn compare(&self) -> Result<(), String> {
        let phase = self.phase.ok_or("no condition stands on it")?;
        same("the phase", phase, self.text("phase"))?;
        same("the exit code", exit_code(phase), self.code)?;
        self.compare_flags(phase)?;
        self.compare_numbers(phase)?;
        self.compare_sentence(phase)?;
        self.compare_event(phase)
    }

    /// Compares the metrics that are 1 in one phase and 0 in all others.
    fn compare_flags(&self, phase: &str) -> Result<(), String> {
        for (gauge, stands_for) in [
            ("rollout_complete", "Complete"),
            ("rollout_stalled", "Stalled"),
            ("rollout_paused", "Paused"),
            ("settings_invalid", "Invalid"),
        ] {
            let found = self.metrics.number(gauge, "");
            let silent = phase == "Invalid" && found.is_none();
            let expected = Some(u64::from(phase == stands_for));
            demand(silent || found == expected, || {
                format!("metric {gauge} is {found:?} while it is {phase}")
            })?;
        }
        Ok(())
    }

    /// Compares the numbers of `ctl status` with the metrics, and the number of nodes per verdict.
    fn compare_numbers(&self, phase: &str) -> Result<(), String> {
        if phase == "Invalid" {
            return Ok(()); // with invalid settings, nodes are not counted
        }
        let verdicts = self.row["verdicts"].as_object().into_iter().flatten();
        let verdicts = verdicts.map(|(word, nodes)| (word.as_str(), nodes.as_u64().unwrap_or(0)));
        same("verdicts", by_verdict(verdicts), self.metrics.verdicts())?;
        for (field, gauge, label) in NUMBERS {
            let found = self.metrics.number(gauge, label);
            same(field, self.row[field].as_u64(), found)?;
        }
        Ok(())
    }

    /// Checks that the message of `ctl status` contains every clause of the condition's message.
    fn compare_sentence(&self, phase: &str) -> Result<(), String> {
        let told = self.told.last().ok_or("no condition tells of it")?;
        let message = self.text("message");
        if phase == "Invalid" {
            return same("the mistake", told.message.as_str(), message);
        }
        let (about, sentence) = told.message.split_once(": ").unwrap_or_default();
        let revision = self.text("revision");
        demand(
            revision.is_empty() || about == format!("revision {revision}"),
            || format!("the condition is about {about}, ctl about {revision}"),
        )?;
        // Skip two kinds of clauses. "complete" and "being rolled out" only name the phase, for which `ctl` reports numbers of
        // nodes. A clause that ends with "…" was cut off at the length limit of a condition.
        let is_phase = |clause: &&str| !["complete", "being rolled out"].contains(clause);
        let is_whole = |clause: &&str| is_phase(clause) && !clause.ends_with('…');
        // Compare in lower case, because the first word of a clause is capitalized in one message and not in the other.
        let (lower, message) = (sentence.to_lowercase(), message.to_lowercase());
        let clauses = lower.split("; ").flat_map(|part| part.split(". "));
        for clause in clauses.filter(is_whole) {
            demand(message.contains(clause), || {
                format!("ctl does not say {clause:?}")
            })?;
        }
        self.compare_nodes(phase, sentence)
    }

    /// Checks that the message about a stall names a blocked or failed node. If the native controller is behind, the message names
    /// no node.
    fn compare_nodes(&self, phase: &str, sentence: &str) -> Result<(), String> {
        if phase != "Stalled" || sentence.contains("if kube-controller-manager runs") {
            return Ok(());
        }
        let words: BTreeSet<&str> = sentence
            .split(|c: char| !(c.is_alphanumeric() || c == '-'))
            .collect();
        let nodes = self.row["nodes"].as_array().into_iter().flatten();
        let word = |node: &Value| node["verdict"].as_str().map(str::to_owned);
        let named = nodes.filter(|node| node["node"].as_str().is_some_and(|n| words.contains(n)));
        let verdicts: BTreeSet<String> = named.filter_map(word).collect();
        let held = verdicts.iter().any(|verdict| verdict != "Done");
        demand(held || self.row["failures"].as_u64() > Some(0), || {
            format!("it is stalled, and names no node that is held up: {verdicts:?}")
        })
    }

    /// Checks that an Event reports the current state in the words of the condition.
    fn compare_event(&self, phase: &str) -> Result<(), String> {
        let Some(reason) = self.promised(phase) else {
            return Ok(());
        };
        let latest = self.told.last().map_or("", |told| told.reason.as_str());
        let told: Vec<&str> = self
            .told
            .iter()
            .filter(|told| told.reason == latest || reason == "RolloutStarted")
            .map(|told| told.message.as_str())
            .collect();
        let mut notes = self.events.iter().filter(|(event, _)| event == reason);
        let says_so = |note: &str| told.iter().any(|message| message.starts_with(note));
        demand(notes.any(|(_, note)| says_so(note)), || {
            format!("no Event {reason} with the words of the condition")
        })
    }

    /// Returns the reason of the Event that must exist in this phase; `None` if no Event is required.
    fn promised(&self, phase: &str) -> Option<&'static str> {
        let began = self.told.len() > 1;
        match (phase, self.told.last()?.reason.as_str()) {
            ("Complete", _) => began.then_some("RolloutComplete"),
            ("Stalled", _) => Some("RolloutStalled"),
            ("Paused", _) => Some("RolloutPaused"),
            ("Invalid", _) => Some("InvalidSettings"),
            ("AwaitingOwners" | "AwaitingDeletions", _) => Some("UpgradeAvailable"),
            (_, "Inconclusive") => Some("RolloutInconclusive"),
            (_, "WaveNotOpen") => Some("WaveNotOpen"),
            (_, "BlockedByPDB") => Some("BlockedByPDB"),
            ("Progressing", _) => Some("RolloutStarted"),
            _ => None,
        }
    }
}

impl Metrics {
    /// Returns the lines of this metric about the story's DaemonSet.
    fn lines(&self, gauge: &str) -> impl Iterator<Item = &str> {
        let head = format!(
            "yurt_ds_{gauge}{{namespace=\"{}\",daemonset=\"{DAEMON}\"",
            self.namespace
        );
        let lines = self.page.lines();
        lines.filter(move |line| line.starts_with(&head))
    }

    /// Returns the value of a metric. If `label` is not empty, it must be the value of the line's last label.
    fn number(&self, gauge: &str, label: &str) -> Option<u64> {
        let is_meant = |line: &&str| label.is_empty() || line.contains(&format!("=\"{label}\"}}"));
        let line = self.lines(gauge).find(is_meant)?;
        line.rsplit(' ').next()?.parse().ok()
    }

    /// Returns the number of nodes per verdict according to the metrics.
    fn verdicts(&self) -> BTreeMap<&str, u64> {
        by_verdict(self.lines("nodes").filter_map(verdict_of))
    }
}

/// Parses verdict and number of nodes from a metrics line.
fn verdict_of(line: &str) -> Option<(&str, u64)> {
    let (_, rest) = line.split_once("verdict=\"")?;
    let (word, nodes) = rest.split_once("\"} ")?;
    Some((word, nodes.parse().ok()?))
}

/// Returns the number of nodes per verdict, without verdicts that no node has.
///
/// `ctl` reads the disruption budgets, but the controller learns about them only from a rejected eviction. So a node that waits for
/// its eviction has the verdict `BlockedByPDB` in `ctl` and `Budget` in the metrics. Both are counted as `Budget` here.
fn by_verdict<'a>(verdicts: impl Iterator<Item = (&'a str, u64)>) -> BTreeMap<&'a str, u64> {
    let mut nodes = BTreeMap::new();
    for (word, count) in verdicts.filter(|(_, count)| *count > 0) {
        let word = match word {
            "BlockedByPDB" => "Budget",
            word => word,
        };
        *nodes.entry(word).or_default() += count;
    }
    nodes
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "  conditions: {:?}, {:?}", self.phase, self.told.last())?;
        writeln!(f, "  Events: {:?}", self.events)?;
        let about = format!("namespace=\"{}\"", self.metrics.namespace);
        let lines = self.metrics.page.lines();
        let metrics: Vec<&str> = lines.filter(|line| line.contains(&about)).collect();
        writeln!(f, "  metrics: {}", metrics.join("\n    "))?;
        write!(f, "  ctl status ends with {}: {}", self.code, self.row)
    }
}

/// Returns the phase of the rollout according to the conditions.
fn phase(picture: &Picture) -> Option<&'static str> {
    let holds = |kind: &str| picture.condition(kind).is_some_and(|c| c.status == "True");
    let told = picture.told.last()?;
    Some(match told.reason.as_str() {
        _ if holds("InvalidSettings") => "Invalid",
        _ if holds("Stalled") => "Stalled",
        _ if holds("RolloutComplete") => "Complete",
        "Paused" => "Paused",
        "AwaitingOwners" => "AwaitingOwners",
        "AwaitingDeletions" => "AwaitingDeletions",
        "NativeControllerBehind" => "NativeControllerBehind",
        _ if holds("Progressing") => "Progressing",
        _ => return None,
    })
}

/// Returns the exit code that `ctl status` must have in this phase.
fn exit_code(phase: &str) -> u8 {
    match phase {
        "Complete" => 0,
        "Stalled" => 4,
        "Paused" => 5,
        "Invalid" => 6,
        _ => 3,
    }
}

fn same<A: PartialEq<B> + std::fmt::Debug, B: std::fmt::Debug>(
    what: &str,
    one: A,
    other: B,
) -> Result<(), String> {
    demand(one == other, || format!("{what}: {one:?} and {other:?}"))
}

fn demand(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
