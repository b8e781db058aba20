//! Descriptions of the nodes that wait, fail or keep their pods, as parts of sentences about a rollout.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use super::{NextStep, budgets};
use crate::core::fleet::{Fleet, Node, NodeWindow};
use crate::core::id::NodeName;
use crate::core::instant;
use crate::core::plan::Plan;
use crate::core::settings::Strategy;
use crate::core::settings::maintenance_window::MAINTENANCE_WINDOW;
use crate::core::verdict::{Obstruction, Verdict, WaveShut};
use crate::core::words::{named, nodes, plural};

impl Plan {
    /// Returns the nodes for whose verdict `is_wanted` returns true.
    pub(super) fn nodes_with<'a>(
        &'a self,
        fleet: &'a Fleet,
        is_wanted: impl Fn(&Verdict) -> bool + Clone + 'a,
    ) -> impl Iterator<Item = &'a Node> + Clone {
        let nodes = fleet.nodes.iter().zip(&self.verdicts);
        nodes.filter_map(move |(node, verdict)| is_wanted(verdict).then_some(node))
    }

    /// Describes why a wave doesn't open. The text follows "waiting".
    pub fn awaited_words(&self, why: WaveShut) -> String {
        let name = |wave| self.wave_name(wave);
        match why {
            WaveShut::Approval { wave } => format!("for the approval of wave {}", name(wave)),
            WaveShut::Soaking { wave, until } => {
                let until = instant::words(until);
                format!(
                    "for the soak time of wave {}, which ends {until}",
                    name(wave)
                )
            }
            WaveShut::Unfinished { wave } => format!("for wave {} to complete", name(wave)),
            WaveShut::Charged { wave: Some(wave) } => {
                format!(
                    "because a node of wave {} failed with this revision",
                    name(wave)
                )
            }
            WaveShut::Charged { wave: None } => {
                "because a node of an earlier wave failed with this revision".to_owned()
            }
        }
    }

    /// Returns the reason why a wave doesn't open. The text contains no times, because every change of it is reported by a new
    /// Event.
    pub fn awaited_subject(&self, why: WaveShut) -> String {
        let name = |wave| self.wave_name(wave);
        match why {
            WaveShut::Approval { wave } => format!("approval of {}", name(wave)),
            WaveShut::Soaking { wave, .. } => format!("soak of {}", name(wave)),
            WaveShut::Unfinished { wave } => format!("end of {}", name(wave)),
            WaveShut::Charged { wave } => format!("failure in {}", wave.map_or("", name)),
        }
    }

    pub(super) fn wave_name(&self, wave: usize) -> &str {
        self.waves.get(wave).map_or("", |stand| &stand.name)
    }

    /// Returns the exceptions of a complete rollout, such as offline nodes, in one sentence per cause.
    ///
    /// Nodes that an operator excluded on purpose are not named.
    pub fn exceptions(&self, fleet: &Fleet, strategy: &Strategy) -> Vec<String> {
        let counts = &self.counts;
        let names = |nodes: &[&Node]| named(nodes.iter().map(|node| node.name.as_str()), 0);
        let unreadable = self.unreadable_holds(fleet);
        let unreadable = match unreadable.as_slice() {
            [] => String::new(),
            nodes => format!(": unreadable annotation on {}", names(nodes)),
        };
        let repelled = |verdict: &Verdict| *verdict == Verdict::UntoleratedTaint;
        let repelled: Vec<&Node> = match counts.repelled {
            0 => Vec::new(),
            _ => self.nodes_with(fleet, repelled).collect(),
        };
        let all = [
            (
                counts.offline_outdated,
                ["is offline", "are offline"],
                self.updated_later(strategy, counts.offline_outdated),
            ),
            (
                counts.lost,
                [
                    "is offline and failed with this version",
                    "are offline and failed with this version",
                ],
                String::new(),
            ),
            (
                counts.of_kind(Verdict::Partition),
                ["stays on the old version", "stay on the old version"],
                format!(": partition {}", strategy.partition),
            ),
            (
                counts.of_kind(Verdict::NotSelected),
                ["is not selected", "are not selected"],
                String::new(),
            ),
            (
                counts.of_kind(Verdict::Held { until: None }),
                ["is on hold", "are on hold"],
                unreadable,
            ),
            (
                counts.repelled,
                ["has an untolerated taint", "have an untolerated taint"],
                format!(": {}", names(&repelled)),
            ),
        ];
        let all = all.into_iter().filter(|(count, ..)| *count > 0);
        all.map(|(count, [one, many], more)| {
            format!("{} {}{more}", nodes(count), plural(count, one, many))
        })
        .collect()
    }

    /// Returns when `count` outdated offline nodes will be updated, as the end of a sentence.
    pub(super) fn updated_later(&self, strategy: &Strategy, count: usize) -> String {
        let reconnect = plural(count, "it reconnects", "they reconnect");
        let when = if self.pause.is_some() {
            "after the rollout is resumed".to_owned()
        } else if strategy.window.is_some() {
            format!("after {reconnect}, in the maintenance window")
        } else {
            format!("when {reconnect}")
        };
        format!(" and will be updated {when}")
    }

    /// Returns the failed nodes that are known by name, and the number of all failed nodes.
    pub(super) fn failed<'a>(&'a self, fleet: &'a Fleet) -> (BTreeSet<&'a NodeName>, usize) {
        let failing = self
            .nodes_with(fleet, Verdict::is_failed)
            .map(|node| &node.name);
        let recorded = self.record.iter().flat_map(|record| &record.failed);
        let names: BTreeSet<&NodeName> = failing.chain(recorded).collect();
        let failures = self.counts.failures.max(names.len());
        (names, failures)
    }

    /// Describes the nodes that failed with the current revision, with the limit for failures.
    pub fn failed_words(&self, fleet: &Fleet) -> String {
        let (names, failures) = self.failed(fleet);
        let nameless = failures - names.len();
        let names = named(names.into_iter().map(NodeName::as_str), nameless);
        format!("{}: {names}", self.failures_words(failures))
    }

    /// Describes how many nodes failed with the current revision, with the limit for failures.
    pub fn failures_words(&self, failures: usize) -> String {
        let limit = self.counts.threshold;
        format!(
            "the new version failed on {} (limit {limit})",
            nodes(failures)
        )
    }

    /// Describes the lost nodes that the guard evaluates now. No update begins before the result.
    pub fn evaluation_words(&self) -> String {
        let open = self.record.iter().flat_map(|record| {
            let lost = record.losses(false).map(|(name, _)| name);
            lost.chain(&record.updated_before_loss)
        });
        let lost: BTreeSet<&str> = open.map(NodeName::as_str).collect();
        if lost.is_empty() {
            return "the guard is still evaluating failures of the new version".to_owned();
        }
        format!(
            "the guard has not decided yet if the new version took these nodes offline: {}",
            named(lost, 0)
        )
    }

    /// Describes the nodes whose maintenance windows never open, with the reason and the remedy; `None` if there are none.
    pub fn shut_words(&self, fleet: &Fleet) -> Option<String> {
        let shut = self.nodes_with(fleet, |verdict| {
            matches!(verdict, Verdict::OutOfWindow { opens: None })
        });
        shut.clone().next()?;
        let mut why = shut.clone().filter_map(|node| match node.window.as_ref()? {
            NodeWindow::Unreadable(why) => Some(format!(": {why}")),
            NodeWindow::Windows(_) => None,
        });
        Some(format!(
            "the maintenance window of {} never opens{}. Correct or remove the annotation {MAINTENANCE_WINDOW} of the Node",
            named(shut.map(|node| node.name.as_str()), 0),
            why.next().unwrap_or_default()
        ))
    }

    /// Returns the nodes that failed to pre-pull images, and the first known reason.
    pub(super) fn failed_pulls<'a>(&'a self, fleet: &'a Fleet) -> (Vec<String>, &'a str) {
        let waiting = self.nodes_with(fleet, |verdict| matches!(verdict, Verdict::PullPending(_)));
        let pods = waiting.clone().flat_map(|node| &node.pods);
        let images = pods.filter_map(|pod| pod.image_ready.as_ref()?.failure.as_ref());
        let mut reasons = images.map(|failure| &*failure.why);
        let why = reasons.find(|why| !why.is_empty()).unwrap_or_default();
        (waiting.map(|node| node.name.to_string()).collect(), why)
    }

    /// Describes the disruption budgets that block evictions. If there are several causes, the worst is reported.
    pub fn blocked_words(&self, fleet: &Fleet) -> String {
        let (obstruction, budgets) = self.rejection(fleet);
        budgets::words(obstruction, &Vec::from_iter(budgets).join(", "))
    }

    /// Returns the step that allows the blocked evictions, and the command for it.
    pub(super) fn unblocking(
        &self,
        fleet: &Fleet,
        namespace: &str,
    ) -> (NextStep, Option<NextStep>) {
        let (obstruction, budgets) = self.rejection(fleet);
        let edit = |budget: &&str| {
            let command = format!("kubectl -n {namespace} edit pdb {budget}");
            NextStep::command("to change it", command)
        };
        (
            NextStep::plain(budgets::remedy(obstruction)),
            budgets.first().map(edit),
        )
    }

    /// Returns the worst reason for which evictions were rejected, and the names of the disruption budgets with that reason.
    fn rejection<'a>(&'a self, fleet: &'a Fleet) -> (Obstruction, BTreeSet<&'a str>) {
        let blocked = self.nodes_with(fleet, Verdict::is_blocked);
        let pods = blocked.flat_map(|node| &node.pods);
        let all = pods.filter_map(|pod| fleet.evictions.refusal_of(pod));
        let reasons = all.clone().map(|refusal| refusal.obstruction);
        let worst = reasons.max().unwrap_or(Obstruction::Exhausted);
        let worst_ones = all.filter(|refusal| refusal.obstruction == worst);
        (
            worst,
            worst_ones
                .filter_map(|refusal| refusal.budget.as_deref())
                .collect(),
        )
    }
}

/// Returns the opening time of a maintenance window in the time zone of that window.
pub(super) fn opening_words(
    fleet: &Fleet,
    plan: &Plan,
    strategy: &Strategy,
    at: Timestamp,
) -> String {
    let mut waiting = plan.nodes_with(fleet, move |verdict| {
        *verdict == Verdict::OutOfWindow { opens: Some(at) }
    });
    let windows = waiting.next().and_then(|node| match &node.window {
        Some(NodeWindow::Windows(windows)) => Some(windows),
        Some(NodeWindow::Unreadable(_)) => None,
        None => strategy.window.as_ref(),
    });
    windows.map_or_else(|| instant::words(at), |windows| windows.words(at))
}
