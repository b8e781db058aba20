//! Phrases about groups of nodes that wait, fail or are left out. They are parts of the sentences about a rollout.

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
    /// Describes why a wave doesn't open. The phrase follows "waiting".
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

    /// Returns the reason why a wave doesn't open, without times. Each such reason is reported by one Event.
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

    /// Returns the exceptions of a complete rollout, one clause per cause.
    ///
    /// The clauses don't name nodes that an operator excluded on purpose.
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

    /// Returns the nodes that failed with the current revision and their total number. Some nodes may have no stored name.
    pub(super) fn failed<'a>(&'a self, fleet: &'a Fleet) -> (BTreeSet<&'a NodeName>, usize) {
        let told = fleet.nodes.iter().zip(&self.verdicts);
        let told = told.filter(|(_, told)| matches!(told, Verdict::FailedByRevision { .. }));
        let remembered = self.record.iter().flat_map(|record| &record.failed);
        let names: BTreeSet<&NodeName> =
            told.map(|(node, _)| &node.name).chain(remembered).collect();
        let failures = self.counts.failures.max(names.len());
        (names, failures)
    }

    /// Describes the nodes that failed with the current revision, with the limit for failures.
    pub fn failed_words(&self, fleet: &Fleet) -> String {
        let (names, failures) = self.failed(fleet);
        let nameless = failures - names.len();
        format!(
            "{}: {}",
            self.failures_words(failures),
            named(names.into_iter().map(NodeName::as_str), nameless)
        )
    }

    /// Describes how many nodes failed with the current revision, with the limit for failures.
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

    /// Describes the nodes whose pods were replaced twice without success.
    pub fn replaced_twice_words(&self) -> String {
        let record = self.record.iter();
        let nodes = record.flat_map(|record| &record.replaced_twice);
        format!(
            "the pods on {} were replaced twice for this revision and are outdated again",
            named(nodes.map(NodeName::as_str), 0)
        )
    }

    /// Describes the nodes whose maintenance windows never open, with the reason; empty if there are none.
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

    /// Returns the nodes that failed to pre-pull images, the first known reason, and true if that reason is about Jobs.
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

/// Returns the opening time of a maintenance window in the time zone of that window.
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

/// Returns true if the images were not pulled because the Job or its pod could not be created.
pub fn is_about_jobs(why: &str) -> bool {
    why.contains("jobs.batch") || why.contains(" is forbidden: ")
}
