//! Report of a play as data and as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::text::hanging;
use crate::core::Mode;

/// Width of a report in columns. It is independent of the terminal, so that equal seeds give equal bytes.
const WIDTH: usize = 80;

/// Report of one play. Times are virtual and count from its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DemoReport {
    /// Title of the play.
    pub title: String,
    /// Seed from which generated names and random decisions were derived.
    pub seed: u64,
    /// Update strategy: `AdvancedRollingUpdate`, `OTA` or `native RollingUpdate`.
    pub strategy: String,
    /// Number of nodes in the fleet.
    pub nodes: usize,
    /// Value of `max-unavailable` in the scenario: a number or a percentage.
    pub max_unavailable: String,
    /// `max-unavailable` as a number of nodes.
    pub allowed: usize,
    /// Highest number of nodes that lacked their pod at the same time because of the rollout, as counted by the independent
    /// monitor.
    pub most_down: usize,
    /// Time at which `most_down` was reached.
    pub most_down_at: Time,
    /// Number of nodes that run the new image.
    pub updated: usize,
    /// Number of nodes that are offline at the end of the play.
    pub offline: usize,
    /// Number of offline nodes that still have the old image.
    pub offline_outdated: usize,
    /// Number of nodes that are offline at the end of the play and lack a pod: they went offline after the deletion of their old
    /// pod and before their new pod was available.
    pub lost_in_between: usize,
    /// Number of nodes that went offline after their new pod had become available.
    pub lost_after_update: usize,
    /// Nodes that were offline when the image changed and were updated after they returned.
    pub followed: Vec<FollowedRollout>,
    /// Number of nodes that lost their pod more than once.
    pub losses_twice: usize,
    /// Time at which a pod with the new image became available, by node.
    pub updated_at: BTreeMap<String, Time>,
    /// Time at which the image changed.
    pub changed_at: Option<Time>,
    /// Time at which the play ended.
    pub ended_at: Time,
    /// Outcome of the play, as a phrase.
    pub ending: String,
    /// Numbers of write requests of the yurt-ds controller; `None` for a rollout by the native controller.
    pub writes: Option<WriteCounts>,
    /// Actions of a node owner; `None` if no owner types commands in the play.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<DeviceOwner>,
    /// Guarantees of yurt-ds, each with the result of its check.
    pub promises: Vec<Promise>,
    /// Events of the play in order of time.
    pub timeline: Vec<Line>,
}

/// Milliseconds since the start of the play.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Time(u64);

/// Node that was offline when the image changed and was updated after it returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowedRollout {
    /// Name of the node.
    pub node: String,
    /// Time at which the node returned.
    pub returned_at: Time,
    /// Time at which the new pod of the node became available.
    pub updated_at: Time,
}

/// Actions of a node owner and their results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceOwner {
    /// Name of the node.
    pub node: String,
    /// Duration of the pull that the owner requested before the upgrade.
    pub pulled_in: Option<Time>,
    /// Time from the owner's confirmation until `ctl` reported the new pod.
    pub upgraded_in: Option<Time>,
    /// Time for which the node had no available pod.
    pub without_pod: Option<Time>,
    /// Time that a node needs to pull the new image.
    pub pull: Time,
    /// Number of pods deleted by all agents.
    pub pod_deletions: u64,
    /// Number of pod patches sent by all agents.
    pub pod_patches: u64,
    /// All commands that node owners typed.
    pub commands: Vec<TypedCommand>,
}

/// Command that a node owner typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypedCommand {
    /// Time at which the command was typed.
    pub at: Time,
    /// Node on which the command was typed.
    pub node: String,
    /// Command line.
    pub line: String,
    /// Exit code; `None` if the command did not end.
    pub code: Option<u8>,
    /// Number of requests that agents sent to the API server while the command ran.
    pub requests: u64,
}

/// Numbers of write requests by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteCounts {
    /// Number of replaced pods, as counted by the monitor.
    pub replaced_pods: usize,
    /// Number of pod deletions.
    pub pod_deletions: u64,
    /// Number of patches that set conditions of pods.
    pub pod_patches: u64,
    /// Number of Jobs that pull images in advance.
    pub jobs: u64,
    /// Number of patches of the DaemonSet's status.
    pub status_patches: u64,
    /// Number of writes of Events.
    pub events: u64,
}

/// Guarantee of yurt-ds that a play checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Promise {
    /// Guarantee, as a phrase.
    pub text: String,
    /// True if the play kept the guarantee.
    pub held: bool,
}

/// Line of the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Time of the event that the line reports.
    pub at: Time,
    /// Kind of the line.
    #[serde(skip_serializing_if = "LineKind::is_story")]
    pub voice: LineKind,
    /// Text of the line.
    pub text: String,
}

/// Kind of a line in the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LineKind {
    /// Narration of the play.
    Story,
    /// Command that a node owner typed.
    Typed,
    /// Output of a command.
    Printed,
}

impl LineKind {
    fn is_story(&self) -> bool {
        *self == Self::Story
    }
}

impl Line {
    /// Formats the line with an indent. Lines of command output are kept as they are.
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
    /// Formats the time as minutes and seconds.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0 / 1000;
        write!(f, "{:02}:{:02}", seconds / 60, seconds % 60)
    }
}

impl Time {
    fn seconds(self) -> f64 {
        Duration::from(self).as_secs_f64()
    }

    /// Returns the number of whole seconds since an earlier time.
    fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1000
    }
}

impl DemoReport {
    /// Returns true if the play kept all guarantees.
    pub fn held(&self) -> bool {
        self.promises.iter().all(|promise| promise.held)
    }

    /// Returns the report as text. With `in_full`, it contains the timeline.
    pub fn text(&self, in_full: bool) -> String {
        let mut text = String::new();
        // Ignore the result: writing to a String cannot fail.
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
        for line in self.timeline.iter().filter(|_| in_full) {
            out.push_str(&line.text("    "));
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
            let lost = format!("{} nodes became NotReady", self.lost_after_update);
            facts.push(("after the update", lost));
        }
        if let Some(writes) = &self.writes {
            facts.push(("writes of yurt-ds", writes.text()));
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
            ("offline at the end", self.offline_text()),
            ("returned and updated", self.followed_text()),
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

    fn offline_text(&self) -> String {
        let (all, old, between) = (self.offline, self.offline_outdated, self.lost_in_between);
        let follow = if self.strategy == Mode::Ota.to_string() {
            "; their node owners decide"
        } else {
            " and are updated when they return"
        };
        let parts = [
            (old, format!("{old} run the old image{follow}")),
            (
                between,
                format!("{between} went offline during their update"),
            ),
        ];
        let parts = parts.into_iter().filter(|(nodes, _)| *nodes > 0);
        let parts: Vec<String> = parts.map(|(_, parts)| parts).collect();
        match (all, parts.is_empty()) {
            (0, _) => "none".to_owned(),
            (all, true) => format!("{all}, all already updated"),
            (all, false) => format!("{all}, of which {}", parts.join(", ")),
        }
    }

    fn followed_text(&self) -> String {
        let took = self
            .followed
            .iter()
            .map(|one| one.updated_at.since(one.returned_at));
        let (Some(shortest), Some(longest)) = (took.clone().min(), took.max()) else {
            return "none".to_owned();
        };
        let nodes = self.followed.len();
        format!(
            "{nodes} nodes that were offline before, {shortest}s to {longest}s after their return"
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
                "image pulled first",
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
    fn text(&self) -> String {
        let mut parts = Vec::new();
        if self.pod_deletions > 0 {
            parts.push(format!(
                "{} pods replaced with {} deletions ({})",
                self.replaced_pods,
                self.pod_deletions,
                self.per_pod()
            ));
        }
        if self.pod_patches > 0 {
            parts.push(format!("{} pod conditions", self.pod_patches));
        }
        if self.jobs > 0 {
            parts.push(match self.jobs {
                1 => "1 pull Job".to_owned(),
                jobs => format!("{jobs} pull Jobs"),
            });
        }
        parts.push(format!(
            "{} changes of the DaemonSet's status",
            self.status_patches
        ));
        parts.push(match self.events {
            1 => "1 Event".to_owned(),
            events => format!("{events} Events"),
        });
        parts.join(", ")
    }

    fn per_pod(&self) -> String {
        if self.replaced_pods == 0 {
            return "no pod was replaced".to_owned();
        }
        let hundredths = self.pod_deletions * 100 / (self.replaced_pods as u64);
        format!("{}.{:02} per pod", hundredths / 100, hundredths % 100)
    }
}
