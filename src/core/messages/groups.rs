//! What nodes have in common that wait, fail or are left out, with their names: parts of the sentences about a rollout.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use crate::core::fleet::{Fleet, NodeWindow};
use crate::core::id::NodeName;
use crate::core::instant;
use crate::core::plan::Plan;
use crate::core::settings::Strategy;
use crate::core::settings::maintenance_window::MAINTENANCE_WINDOW;
use crate::core::verdict::{Verdict, WaveShut};
use crate::core::words::named;

impl Plan {
    /// What a wave waits for, in words that follow "waiting".
    pub fn awaited_words(&self, why: WaveShut) -> String {
        let name = |wave| self.wave_name(wave);
        match why {
            WaveShut::Approval { wave } => format!("for the approval of wave {}", name(wave)),
            WaveShut::Soaking { wave, until } => {
                format!(
                    "until {}: wave {} has to stay well until then",
                    instant::words(until),
                    name(wave)
                )
            }
            WaveShut::Unfinished { wave } => {
                format!("for wave {}, which is not complete", name(wave))
            }
            WaveShut::Charged { wave: Some(wave) } => format!(
                "because a node of wave {} failed after it got this revision",
                name(wave)
            ),
            WaveShut::Charged { wave: None } => {
                "because a node of a wave that is not among them any more failed after it got this revision".to_owned()
            }
        }
    }

    /// Returns what a wave waits for, without times: an Event is told once for each.
    pub fn awaited_subject(&self, why: WaveShut) -> String {
        let name = |wave| self.wave_name(wave);
        match why {
            WaveShut::Approval { wave } => format!("approval of {}", name(wave)),
            WaveShut::Soaking { wave, .. } => format!("soak of {}", name(wave)),
            WaveShut::Unfinished { wave } => format!("end of {}", name(wave)),
            WaveShut::Charged { wave } => format!("failure in {}", wave.map_or("", name)),
        }
    }

    fn wave_name(&self, wave: usize) -> &str {
        self.waves.get(wave).map_or("", |stand| &stand.name)
    }

    /// Returns what a complete rollout leaves out, a clause per cause. Nodes that no person kept on purpose are named.
    pub fn exceptions(&self, fleet: &Fleet, strategy: &Strategy) -> Vec<String> {
        let counts = &self.counts;
        let of_word = |verdict: Verdict| counts.by_word[verdict.index()];
        let with = |count: usize, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 node {one}")),
            count => Some(format!("{count} nodes {many}")),
        };
        let names = |wanted: fn(&Verdict) -> bool| {
            let nodes = fleet.nodes.iter().zip(&self.verdicts);
            let meant = nodes.filter(|(_, told)| wanted(told));
            named(meant.map(|(node, _)| node.name.as_str()), 0)
        };
        let offline = with(
            counts.offline_outdated,
            "is offline and will be updated when it reconnects",
            "are offline and will be updated when they reconnect",
        );
        let lost = with(
            counts.lost,
            "is offline and failed with this version",
            "are offline and failed with this version",
        );
        let partition = with(
            of_word(Verdict::Partition),
            "stays on the old version",
            "stay on the old version",
        );
        let held = with(
            of_word(Verdict::Held { until: None }),
            "is on hold",
            "are on hold",
        );
        let unreadable = self.unreadable_holds(fleet);
        let unreadable = named(unreadable.iter().map(|node| node.name.as_str()), 0);
        let repelled = with(
            counts.repelled,
            "has an untolerated taint",
            "have an untolerated taint",
        );
        let clauses = [
            offline,
            lost,
            partition.map(|words| format!("{words} (partition {})", strategy.partition)),
            with(
                of_word(Verdict::NotSelected),
                "is not selected",
                "are not selected",
            ),
            held.map(|words| {
                if unreadable.is_empty() {
                    words
                } else {
                    format!("{words} (unreadable annotation on {unreadable})")
                }
            }),
            repelled.map(|words| {
                format!(
                    "{words}: {}",
                    names(|told| *told == Verdict::UntoleratedTaint)
                )
            }),
        ];
        clauses.into_iter().flatten().collect()
    }

    /// Returns the nodes that failed on the current revision's account, as far as they have names, and how many they are.
    pub(super) fn failed<'a>(&'a self, fleet: &'a Fleet) -> (BTreeSet<&'a NodeName>, usize) {
        let told = fleet.nodes.iter().zip(&self.verdicts);
        let told = told.filter(|(_, told)| matches!(told, Verdict::FailedByRevision { .. }));
        let remembered = self.record.iter().flat_map(|record| &record.failed);
        let names: BTreeSet<&NodeName> =
            told.map(|(node, _)| &node.name).chain(remembered).collect();
        let failures = self.counts.failures.max(names.len());
        (names, failures)
    }

    /// Who failed on the current revision's account, and how many may.
    pub fn failed_words(&self, fleet: &Fleet) -> String {
        let (names, failures) = self.failed(fleet);
        let nameless = failures - names.len();
        format!(
            "{}: {}",
            self.failures_words(failures),
            named(names.into_iter().map(NodeName::as_str), nameless)
        )
    }

    /// How many nodes failed on the current revision's account, and how many may.
    pub fn failures_words(&self, failures: usize) -> String {
        let (nodes, they) = match failures {
            1 => ("node", "it"),
            _ => ("nodes", "they"),
        };
        let record = self.record.as_ref();
        let is_stopped = record.is_some_and(|record| record.stopped.is_some());
        let may = if is_stopped && failures <= self.counts.threshold {
            format!("{} may by now", self.counts.threshold)
        } else {
            format!("{} may", self.counts.threshold)
        };
        format!("{failures} {nodes} failed after {they} got this revision ({may})")
    }

    /// Where replacing does not help.
    pub fn replaced_twice_words(&self) -> String {
        let record = self.record.iter();
        let nodes = record.flat_map(|record| &record.replaced_twice);
        format!(
            "the pods on {} were replaced twice for this revision and are outdated again",
            named(nodes.map(NodeName::as_str), 0)
        )
    }

    /// Whose maintenance window never opens, and why; empty when it is nobody's.
    pub fn shut_words(&self, fleet: &Fleet) -> String {
        let nodes = fleet.nodes.iter().zip(&self.verdicts);
        let is_shut = |told: &Verdict| matches!(told, Verdict::OutOfWindow { opens: None });
        let shut = nodes.filter(|(_, told)| is_shut(told));
        let names = named(shut.clone().map(|(node, _)| node.name.as_str()), 0);
        if names.is_empty() {
            return names;
        }
        let is_alone = shut.clone().nth(1).is_none();
        let mut why = shut.filter_map(|(node, _)| match node.window.as_ref()? {
            NodeWindow::Unreadable(why) if is_alone => Some(format!(" ({why})")),
            NodeWindow::Unreadable(why) => Some(format!(" ({}: {why})", node.name)),
            NodeWindow::Windows(_) => None,
        });
        let why = why.next();
        format!(
            "the maintenance window of {names} never opens{}; correct or remove the annotation {MAINTENANCE_WINDOW} there",
            why.unwrap_or_default()
        )
    }

    /// Returns the nodes whose images cannot be pulled ahead, the first reason that is known of one, and true if that is about Jobs.
    pub(super) fn failed_pulls(&self, fleet: &Fleet) -> (Vec<String>, String, bool) {
        let nodes = fleet.nodes.iter().zip(&self.verdicts);
        let waiting = nodes.filter(|(_, told)| matches!(told, Verdict::PullPending(_)));
        let names = waiting.clone().map(|(node, _)| node.name.to_string());
        let pods = waiting.clone().flat_map(|(node, _)| &node.pods);
        let images = pods.filter_map(|pod| pod.image_ready.as_ref()?.failure.as_ref());
        let mut reasons = images.map(|failure| &*failure.why);
        let why = reasons.find(|why| !why.is_empty()).unwrap_or_default();
        (names.collect(), why.to_owned(), is_about_jobs(why))
    }
}

/// Returns an instant at which a maintenance window opens, in the time zone of that window.
pub(super) fn opening_words(
    fleet: &Fleet,
    plan: &Plan,
    strategy: &Strategy,
    at: Timestamp,
) -> String {
    let nodes = fleet.nodes.iter().zip(&plan.verdicts);
    let mut waiting = nodes.filter(|(_, told)| **told == Verdict::OutOfWindow { opens: Some(at) });
    let windows = waiting.next().and_then(|(node, _)| match &node.window {
        Some(NodeWindow::Windows(windows)) => Some(windows),
        Some(NodeWindow::Unreadable(_)) => None,
        None => strategy.window.as_ref(),
    });
    windows.map_or_else(|| instant::words(at), |windows| windows.words(at))
}

/// Whether images were not pulled because the Job for that, or its pod, was not made.
pub fn is_about_jobs(why: &str) -> bool {
    why.contains("jobs.batch") || why.contains(" is forbidden: ")
}
