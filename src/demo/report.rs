//! What a play came to: the data, and the same for a person.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::text::hanging;
use crate::core::Mode;

/// Columns of a report: the same everywhere, so that equal seeds give equal bytes.
const WIDTH: usize = 80;

/// The report on one play. Times count in virtual time from its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DemoReport {
    /// What was played.
    pub title: String,
    /// Decides every name and every chance.
    pub seed: u64,
    /// Who replaced pods: `AdvancedRollingUpdate`, `OTA` or `native RollingUpdate`.
    pub strategy: String,
    /// Nodes of the fleet.
    pub nodes: usize,
    /// `max-unavailable` as it was set.
    pub max_unavailable: String,
    /// The same in nodes.
    pub allowed: usize,
    /// The most nodes that lacked their pod at once because of the rollout, as the independent monitor saw it.
    pub most_down: usize,
    /// When that was.
    pub most_down_at: Time,
    /// Nodes that run the new image.
    pub updated: usize,
    /// Nodes that were offline at the end, and how many of these still run the old image.
    pub offline: usize,
    /// Of the offline nodes, those that still run the old image.
    pub offline_outdated: usize,
    /// Nodes that are offline at the end, and whose old pod had been asked to go when no new one was available yet.
    pub lost_in_between: usize,
    /// Nodes that ran the new image and went NotReady after that.
    pub lost_after_update: usize,
    /// Nodes that were away when the image changed, returned, and were updated then.
    pub followed: Vec<FollowedRollout>,
    /// Nodes that lost their pod more than once.
    pub losses_twice: usize,
    /// When each of them had an available pod of the new image.
    pub updated_at: BTreeMap<String, Time>,
    /// When the image changed.
    pub changed_at: Option<Time>,
    /// When it ended.
    pub ended_at: Time,
    /// How it ended.
    pub ending: String,
    /// Requests of the yurt-ds controller that change something, where it runs.
    pub writes: Option<WriteCounts>,
    /// What the owner of a node did, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<DeviceOwner>,
    /// What was promised, and whether it held.
    pub promises: Vec<Promise>,
    /// What happened when.
    pub timeline: Vec<Line>,
}

/// An instant, in milliseconds from the start of the play.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Time(u64);

/// A node that was away and followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowedRollout {
    /// Its name.
    pub node: String,
    /// When it was back.
    pub returned_at: Time,
    /// When its new pod was available.
    pub updated_at: Time,
}

/// What the owner of a node did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceOwner {
    /// The node.
    pub node: String,
    /// How long the pull took that was asked for ahead.
    pub pulled_in: Option<Time>,
    /// From the confirmation until ctl said that the new pod is there.
    pub upgraded_in: Option<Time>,
    /// How long the node was without an available pod.
    pub without_pod: Option<Time>,
    /// How long a node pulls the new image.
    pub pull: Time,
    /// Deletions of pods by all agents.
    pub pod_deletions: u64,
    /// Patches of pods by all agents.
    pub pod_patches: u64,
    /// Everything that was typed.
    pub commands: Vec<TypedCommand>,
}

/// A command that was typed on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypedCommand {
    /// When.
    pub at: Time,
    /// Where.
    pub node: String,
    /// What.
    pub line: String,
    /// Its exit code; `None` when it did not end.
    pub code: Option<u8>,
    /// What agents asked of the API server meanwhile.
    pub requests: u64,
}

/// Requests by what they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteCounts {
    /// Pods that were replaced, as the monitor saw it.
    pub replaced_pods: usize,
    /// Deletions of pods.
    pub pod_deletions: u64,
    /// Patches of pods (conditions).
    pub pod_patches: u64,
    /// Jobs that pull images ahead.
    pub jobs: u64,
    /// Patches of the DaemonSet's status.
    pub status_patches: u64,
    /// Events.
    pub events: u64,
}

/// Something that yurt-ds stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Promise {
    /// In a sentence.
    pub text: String,
    /// Whether it held.
    pub held: bool,
}

/// A line of the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// When.
    pub at: Time,
    /// Who says it.
    #[serde(skip_serializing_if = "LineKind::is_story")]
    pub voice: LineKind,
    /// What.
    pub text: String,
}

/// Whose words a line of the timeline has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LineKind {
    /// Whoever tells the story.
    Story,
    /// Somebody types it on a node.
    Typed,
    /// A command answers it.
    Printed,
}

impl LineKind {
    fn is_story(&self) -> bool {
        *self == Self::Story
    }
}

impl Line {
    /// A line for a person, behind that indent. What a command printed stays as it is.
    pub(super) fn text(&self, indent: &str) -> String {
        let first = format!("{indent}{}  ", self.at);
        match self.voice {
            LineKind::Story => hanging(&first, &self.text, WIDTH),
            LineKind::Typed => format!("{first}{}\n", self.text),
            LineKind::Printed => {
                let line = format!("{:1$}{2}", "", first.len(), self.text);
                format!("{}\n", line.trim_end())
            }
        }
    }
}

impl From<Duration> for Time {
    fn from(time: Duration) -> Self {
        Self(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Time> for Duration {
    fn from(time: Time) -> Self {
        Self::from_millis(time.0)
    }
}

impl std::fmt::Display for Time {
    /// Minutes and seconds.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0 / 1000;
        write!(f, "{:02}:{:02}", seconds / 60, seconds % 60)
    }
}

impl Time {
    /// In seconds.
    fn seconds(self) -> f64 {
        Duration::from(self).as_secs_f64()
    }

    /// From an earlier instant to this one, in whole seconds.
    fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1000
    }
}

impl DemoReport {
    /// Whether every promise held.
    pub fn held(&self) -> bool {
        self.promises.iter().all(|promise| promise.held)
    }

    /// The report for a person.
    pub fn text(&self, in_full: bool) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text, in_full);
        text
    }

    fn write(&self, out: &mut String, in_full: bool) -> std::fmt::Result {
        writeln!(
            out,
            "Report: {} ({}, seed {})",
            self.title, self.strategy, self.seed
        )?;
        out.push_str(&hanging(
            &format!("  ended at {}: ", self.ended_at),
            &self.ending,
            WIDTH,
        ));
        for told in self.timeline.iter().filter(|_| in_full) {
            out.push_str(&told.text("    "));
        }
        let mut line = |first: &str, text: &str| out.push_str(&hanging(first, text, WIDTH));
        for (name, fact) in self.facts() {
            line(&format!("  {name:<22}"), &fact);
        }
        for promise in &self.promises {
            let mark = if promise.held { "held" } else { "BROKEN" };
            line(&format!("  {mark:<8}"), &promise.text);
        }
        Ok(())
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = match &self.owner {
            Some(owner) => owner.facts(self.updated, self.nodes),
            None => self.fleet_facts(),
        };
        if self.lost_after_update > 0 {
            let lost = format!("{} nodes are NotReady since", self.lost_after_update);
            facts.push(("after the update", lost));
        }
        if let Some(writes) = &self.writes {
            facts.push(("writes of yurt-ds", writes.words()));
        }
        facts
    }

    fn fleet_facts(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "updated",
                format!("{} of {} nodes{}", self.updated, self.nodes, self.took()),
            ),
            (
                "most down at once",
                format!(
                    "{} (at {}), allowed: {} (max-unavailable {})",
                    self.most_down, self.most_down_at, self.allowed, self.max_unavailable
                ),
            ),
            ("offline at the end", self.offline_words()),
            ("returned and followed", self.followed_words()),
        ]
    }

    fn took(&self) -> String {
        let mut at: Vec<Time> = self.updated_at.values().copied().collect();
        at.sort_unstable();
        match (self.changed_at, at.get(at.len() / 2), at.last()) {
            (Some(from), Some(half), Some(last)) => format!(
                ", half of them within {}s, the last one {}s after the change",
                half.since(from),
                last.since(from)
            ),
            _ => String::new(),
        }
    }

    fn offline_words(&self) -> String {
        let (all, old, between) = (self.offline, self.offline_outdated, self.lost_in_between);
        let follow = if self.strategy == Mode::Ota.to_string() {
            "; their owners decide"
        } else {
            " and follow when they return"
        };
        let parts = [
            (old, format!("{old} run the old image{follow}")),
            (
                between,
                format!("{between} went away while they were updated"),
            ),
        ];
        let parts = parts.into_iter().filter(|(nodes, _)| *nodes > 0);
        let parts: Vec<String> = parts.map(|(_, words)| words).collect();
        match (all, parts.is_empty()) {
            (0, _) => "none".to_owned(),
            (all, true) => format!("{all}, all of them updated before"),
            (all, false) => format!("{all}, of which {}", parts.join(", ")),
        }
    }

    fn followed_words(&self) -> String {
        let took = self
            .followed
            .iter()
            .map(|one| one.updated_at.since(one.returned_at));
        let (Some(shortest), Some(longest)) = (took.clone().min(), took.max()) else {
            return "none".to_owned();
        };
        let nodes = self.followed.len();
        format!(
            "{nodes} of the nodes that had been offline, {shortest}s to {longest}s after their return"
        )
    }
}

impl DeviceOwner {
    fn facts(&self, updated: usize, nodes: usize) -> Vec<(&'static str, String)> {
        let seconds = |time: Option<Time>| {
            time.map_or("never".to_owned(), |time| format!("{:.1}s", time.seconds()))
        };
        let codes = self.commands.iter().map(|command| match command.code {
            Some(code) => code.to_string(),
            None => "none".to_owned(),
        });
        let codes: Vec<String> = codes.collect();
        vec![
            ("updated", format!("{updated} of {nodes} nodes")),
            (
                "image pulled ahead",
                format!("in {}", seconds(self.pulled_in)),
            ),
            (
                "without its pod",
                format!(
                    "{} for {} (a pull takes {})",
                    self.node,
                    seconds(self.without_pod),
                    seconds(Some(self.pull))
                ),
            ),
            ("exit codes of ctl", codes.join(", ")),
            (
                "writes of the agents",
                format!(
                    "{} condition, {} deletion, over {} commands",
                    self.pod_patches,
                    self.pod_deletions,
                    self.commands.len()
                ),
            ),
        ]
    }
}

impl WriteCounts {
    fn words(&self) -> String {
        let mut words = Vec::new();
        if self.pod_deletions > 0 {
            words.push(format!(
                "{} pods replaced with {} deletions ({})",
                self.replaced_pods,
                self.pod_deletions,
                self.per_pod()
            ));
        }
        if self.pod_patches > 0 {
            words.push(format!("{} pod conditions", self.pod_patches));
        }
        if self.jobs > 0 {
            words.push(match self.jobs {
                1 => "1 Job that pulls".to_owned(),
                jobs => format!("{jobs} Jobs that pull"),
            });
        }
        words.push(format!(
            "{} changes of the DaemonSet's status",
            self.status_patches
        ));
        words.push(match self.events {
            1 => "1 Event".to_owned(),
            events => format!("{events} Events"),
        });
        words.join(", ")
    }

    fn per_pod(&self) -> String {
        if self.replaced_pods == 0 {
            return "no pod was replaced".to_owned();
        }
        let hundredths = self.pod_deletions * 100 / (self.replaced_pods as u64);
        format!("{}.{:02} per pod", hundredths / 100, hundredths % 100)
    }
}
