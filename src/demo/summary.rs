//! Creates the report of a play from its records: numbers, checked guarantees and the outcome.

use std::collections::BTreeMap;

use super::monitor::{MonitorRecord, MonitoredNode};
use super::report::{DemoReport, FollowedRollout, Promise, Time, WriteCounts};
use super::run::{DemoRun, RunEnd};
use super::scenario::RolloutEngine;
use crate::core::Mode;
use crate::k8s::client::Role;
use crate::sim::cluster::Count;

impl DemoRun {
    pub(super) fn report(&mut self, ending: &RunEnd) -> DemoReport {
        self.timeline.sort_by_key(|line| line.at);
        let record = self.record();
        let nodes = &record.nodes;
        let offline = nodes.values().filter(|node| !node.ready);
        let rollout = &self.scenario.rollout;
        let mut report = DemoReport {
            title: self.scenario.title.clone(),
            seed: self.seed,
            strategy: match rollout.engine {
                RolloutEngine::YurtDs(mode) => mode.to_string(),
                RolloutEngine::Native => "native RollingUpdate".to_owned(),
            },
            nodes: self.scenario.nodes.len(),
            max_unavailable: rollout.max_unavailable.to_string(),
            allowed: self.allowed(),
            most_down: record.peak.0,
            most_down_at: record.peak.1.into(),
            updated: record.updated(),
            offline: offline.clone().count(),
            offline_outdated: offline
                .clone()
                .filter(|node| node.updated.is_none() && !node.is_lost_in_between())
                .count(),
            lost_in_between: offline.filter(|node| node.is_lost_in_between()).count(),
            lost_after_update: nodes.values().filter(|node| node.is_lost()).count(),
            followed: followed(&self.away, nodes),
            losses_twice: nodes.values().filter(|node| node.losses > 1).count(),
            changed_at: self.changed.map(Time::from),
            updated_at: updated_at(nodes),
            ended_at: self.now().into(),
            ending: outcome(ending, &record, self.scenario.nodes.len()),
            writes: (rollout.engine != RolloutEngine::Native).then(|| self.writes(record.replaced)),
            owner: self.owner(&record),
            promises: Vec::new(),
            timeline: self.timeline.clone(),
        };
        report.promises = self.promises(&report, &record, ending);
        report
    }

    /// Returns `max-unavailable` as a number of nodes.
    pub(super) fn allowed(&self) -> usize {
        self.scenario
            .rollout
            .max_unavailable
            .resolve(self.scenario.nodes.len())
    }

    /// Returns the numbers of the controller's write requests since the play began.
    fn writes(&self, replaced_pods: usize) -> WriteCounts {
        let now = self.world.cluster.requests();
        let number = |verb: &str, resource: &str| {
            number(&now, verb, resource) - number(&self.before, verb, resource)
        };
        WriteCounts {
            replaced_pods,
            pod_deletions: number("delete", "pods"),
            pod_patches: number("patch", "pods"),
            jobs: number("create", "jobs"),
            status_patches: number("patch", "daemonsets"),
            events: number("create", "events") + number("patch", "events"),
        }
    }

    fn promises(
        &self,
        report: &DemoReport,
        record: &MonitorRecord,
        ending: &RunEnd,
    ) -> Vec<Promise> {
        let Some(writes) = &report.writes else {
            return Vec::new(); // The native controller gives none of the guarantees of yurt-ds.
        };
        let promise = |text: &str, held: bool| Promise {
            text: text.to_owned(),
            held,
        };
        if let Some(owner) = &report.owner {
            return self.promises_to(owner, record, ending);
        }
        if self.scenario.rollout.engine == RolloutEngine::YurtDs(Mode::Ota) {
            let asked = *ending == RunEnd::Announced && writes.pod_deletions == 0;
            return vec![promise(
                "no pod was replaced; all node owners were notified",
                asked,
            )];
        }
        let budget = promise(
            "never more nodes down at once than allowed",
            report.most_down <= report.allowed,
        );
        if self.scenario.doomed {
            let stopped = matches!(ending, RunEnd::Stopped(_));
            return vec![
                budget,
                promise("the guard stopped the failing revision", stopped),
            ];
        }
        let mut online = record.nodes.values().filter(|node| node.ready);
        let mut away = self.away.iter().filter_map(|name| record.nodes.get(name));
        let complete = matches!(ending, RunEnd::Complete(_));
        let frugal = writes.pod_deletions == writes.replaced_pods as u64;
        let frugal = promise("one API write per replaced pod", frugal);
        if matches!(ending, RunEnd::TimeUp) {
            return vec![budget, frugal]; // Other guarantees apply only to a rollout that has ended.
        }
        vec![
            budget,
            promise(
                "offline nodes did not block the rollout: all online nodes were updated",
                complete && online.all(|node| node.updated.is_some()),
            ),
            promise(
                "nodes that returned were updated automatically",
                away.all(|node| !node.ready || node.updated.is_some()),
            ),
            frugal,
        ]
    }
}

fn updated_at(nodes: &BTreeMap<String, MonitoredNode>) -> BTreeMap<String, Time> {
    let at = |(name, node): (&String, &MonitoredNode)| Some((name.clone(), node.updated?.into()));
    nodes.iter().filter_map(at).collect()
}

/// Returns the nodes that were offline when the image changed and have been updated since.
fn followed(away: &[String], nodes: &BTreeMap<String, MonitoredNode>) -> Vec<FollowedRollout> {
    let mut followed: Vec<FollowedRollout> = away
        .iter()
        .filter_map(|name| {
            let node = nodes.get(name)?;
            Some(FollowedRollout {
                node: name.clone(),
                returned_at: node.returned?.into(),
                updated_at: node.updated?.into(),
            })
        })
        .collect();
    followed.sort_by_key(|one| one.updated_at);
    followed
}

fn outcome(ending: &RunEnd, record: &MonitorRecord, nodes: usize) -> String {
    match ending {
        RunEnd::Complete(0) => "complete".to_owned(),
        RunEnd::Complete(1) => "complete. 1 node is offline".to_owned(),
        RunEnd::Complete(offline) => format!("complete. {offline} nodes are offline"),
        RunEnd::Stopped(reason) => format!("stopped automatically ({reason})"),
        RunEnd::Announced if record.updated() > 0 => format!(
            "{} of {nodes} node owners confirmed, the others were notified (OTA)",
            record.updated()
        ),
        RunEnd::Announced => "all node owners were notified (OTA)".to_owned(),
        RunEnd::Stuck => format!(
            "stuck at {}%: nothing changes any more",
            record.updated() * 100 / nodes.max(1)
        ),
        RunEnd::TimeUp => format!(
            "the time ended at {}%",
            record.updated() * 100 / nodes.max(1)
        ),
    }
}

/// Returns the number of requests of the controller with this verb for this resource.
fn number(requests: &[Count], verb: &str, resource: &str) -> u64 {
    let agent = Role::Controller.user_agent();
    let of = |count: &&Count| {
        count.user_agent == agent && count.verb == verb && count.resource == resource
    };
    requests.iter().filter(of).map(|count| count.number).sum()
}
