//! Messages about failed nodes, and about revisions that the guard evaluates, stops or rolls back.

use k8s_openapi::jiff::Timestamp;

use super::pods::{Answer, NodeView, are_seen_to_end, newest, problem_word, problem_words};
use super::rollout::RolloutView;
use super::slots;
use crate::core::engine::deadline::rejects;
use crate::core::fleet::Readiness;
use crate::core::fleet::in_place::Recreate;
use crate::core::id::NodeName;
use crate::core::instant;
use crate::core::plan::{Reversal, ReversalStage, WaveState};
use crate::core::remedy::{other_revision, repair_node, resume_anyway};
use crate::core::settings::Mode;
use crate::core::settings::max_unavailable::MAX_UNAVAILABLE;
use crate::core::verdict::{Cause, Guarded, Offline, Revert, Stopped, Verdict, WaveShut};
use crate::core::words::{joined, nodes, spaced};

/// Reason of the Event about nodes that keep the stopped revision.
pub const NOT_REVERTED: &str = "NotReverted";

/// Node that was lost while it ran the stopped revision, and whose Node object has been deleted since.
pub struct DeletedNode {
    /// Name of the verdict for the node.
    pub verdict: &'static str,
    /// Time at which the node became NotReady, as far as it is known.
    pub since: Option<Timestamp>,
    /// Reason, as text that follows "node NAME".
    pub because: String,
    /// Remedy for the verdict.
    pub next: String,
}

/// Returns what the guard's record contains about a node whose Node object was deleted; `None` if it contains nothing.
pub fn gone(rollout: &RolloutView<'_>, name: &NodeName) -> Option<DeletedNode> {
    let plan = rollout.plan;
    let record = plan.record.as_ref()?;
    let since = record.lost.get(name).copied();
    if record.failed.contains(name) {
        let failed = Verdict::FailedByRevision {
            since: since.unwrap_or(rollout.now),
            cause: Cause::NodeLost,
        };
        let failures = plan.failures_words(plan.counts.failures);
        return Some(DeletedNode {
            verdict: failed.word(),
            since,
            because: format!("failed with this revision and was deleted: {failures}"),
            next: joined([
                "it counts until the next revision, but blocks no other node".to_owned(),
                other_revision(rollout.fleet, &rollout.key),
            ]),
        });
    }
    let is_open = since.is_some() || record.updated_before_loss.contains(name);
    is_open.then(|| DeletedNode {
        verdict: Verdict::Offline(Offline::NoNode).word(),
        since,
        because: "was lost after its update and deleted; the guard has not decided if the revision caused it".to_owned(),
        next: match plan.guarded {
            Some(Guarded::Inconclusive { until }) => {
                format!("The guard decides in {}.", instant::between(rollout.now, until))
            }
            _ => "The guard decides when the Node exists again.".to_owned(),
        },
    })
}

impl<'a> NodeView<'a> {
    /// Describes a node that failed with the revision.
    pub(super) fn failed(self, cause: Cause) -> Answer<'a> {
        let (node, pod) = (self.node, self.pod());
        let (reason, because) = match cause {
            Cause::NodeLost => (
                Some("NotReady".to_owned()),
                "became NotReady soon after its update".to_owned(),
            ),
            Cause::Crashing if are_seen_to_end(node) => {
                let (reason, because) = self.ended_pods();
                (Some(reason), because)
            }
            Cause::Crashing => (
                problem_word(node),
                format!("has its new pod{pod}, which crashes{}", problem_words(node)),
            ),
            Cause::NotStarting => (
                problem_word(node),
                format!(
                    "has its new pod{pod}, which does not start{}",
                    problem_words(node)
                ),
            ),
        };
        let answer = Answer::new(because, move || self.recover(cause));
        Answer { reason, ..answer }
    }

    fn recover(&self, cause: Cause) -> String {
        let (rollout, node) = (self.rollout, self.node);
        let (fleet, key, counts) = (rollout.fleet, &rollout.key, &rollout.plan.counts);
        let has_two = self.find(|pod| pod.surge).is_some() || counts.allowed == 0;
        let slot = match cause {
            _ if rollout.strategy.mode != Mode::AdvancedRollingUpdate => {
                "it blocks no other node".to_owned()
            }
            Cause::NodeLost if rollout.are_waves_shut() => {
                "it holds no slot, but later waves wait".to_owned()
            }
            Cause::NodeLost => "it blocks no other node".to_owned(),
            _ if has_two && counts.surge_allowed > 0 => {
                format!(
                    "it holds a slot of max-surge (limit {})",
                    counts.surge_allowed
                )
            }
            _ => format!(
                "it holds a slot of max-unavailable ({} of {} used)",
                counts.unavailable, counts.allowed
            ),
        };
        let paused = rollout.pause().map(|_| {
            format!("the rollout is paused; if you roll back, the rollback starts after yurt-ds ctl resume {key}")
        });
        let look = match cause {
            Cause::NodeLost => None,
            Cause::Crashing if rejects(node) => None,
            Cause::Crashing => Some(format!(
                "logs: kubectl -n {} logs{} --previous{}",
                key.namespace,
                self.pod(),
                self.crashing_container()
            )),
            Cause::NotStarting => Some(format!("details: {}", self.describe_pod())),
        };
        let remedy = match cause {
            Cause::NodeLost => {
                format!("repair the node. Otherwise: {}", other_revision(fleet, key))
            }
            Cause::Crashing if rejects(node) => repair_node(node.name.as_str(), fleet, key),
            _ => other_revision(fleet, key),
        };
        joined(
            [Some(slot), paused, Some(remedy), look]
                .into_iter()
                .flatten(),
        )
    }

    /// Returns the option of `kubectl logs` that selects the crashing container; empty if the pod has only one container.
    fn crashing_container(&self) -> String {
        let containers = newest(self.node).map(|pod| &pod.in_place.containers);
        let containers = containers.filter(|containers| containers.len() > 1);
        let worst =
            containers.and_then(|all| all.iter().max_by_key(|container| container.restarts));
        worst.map_or_else(String::new, |container| format!(" -c {}", container.name))
    }

    /// Describes an outdated node that is not updated because of the guard.
    pub(super) fn guarded(self, guarded: Guarded) -> Answer<'a> {
        let (rollout, plan) = (self.rollout, self.rollout.plan);
        let why = match guarded {
            Guarded::Stopped(Stopped::FailedByRevision) => {
                format!("the guard stopped this revision: {}", plan.failures_words(plan.counts.failures))
            }
            Guarded::Stopped(Stopped::ReplacedTwice) => {
                "the guard stopped this revision: pods were replaced twice, and the new ones are outdated again".to_owned()
            }
            Guarded::Inconclusive { until } => format!(
                "no further updates for {}: {}",
                instant::between(rollout.now, until),
                plan.evaluation_words()
            ),
        };
        Answer::new(format!("is outdated; {why}"), move || {
            rollout.after_guard(guarded)
        })
        .reason(guarded.word())
    }

    /// Describes the guard's evaluation of an offline node; `None` if there is none.
    pub(super) fn loss(&self) -> Option<String> {
        let (plan, name) = (self.rollout.plan, &self.node.name);
        let record = plan.record.as_ref()?;
        if record.failed.contains(name) {
            return Some("it failed with this revision".to_owned());
        }
        let is_open = record.lost.contains_key(name) || record.updated_before_loss.contains(name);
        match plan.guarded {
            Some(Guarded::Inconclusive { until }) if is_open => Some(format!(
                "the guard decides in {} if the revision or the network caused this",
                instant::between(self.rollout.now, until)
            )),
            _ => None,
        }
    }

    /// Returns the time until which a returned node has to stay Ready (`ready-settle`); `None` if that time has passed.
    fn settles(&self) -> Option<Timestamp> {
        let Readiness::Ready { since } = self.node.readiness else {
            return None;
        };
        let until = since
            .saturating_add(self.rollout.strategy.ready_settle)
            .ok()?;
        (until > self.rollout.now).then_some(until)
    }

    /// Describes a node whose pod waits for its rollback from the stopped revision, or was rolled back.
    pub(super) fn rollback(self, revert: Revert) -> Answer<'a> {
        let (rollout, pod, to) = (self.rollout, self.pod(), self.rollout.to_revision());
        let after_guard = move || rollout.after_guard(Guarded::Stopped(Stopped::FailedByRevision));
        let settles = self.settles();
        match revert {
            Revert::Pending => {
                let is_forbidden = rollout.plan.counts.allowed == 0;
                let then = match (rollout.pause(), settles) {
                    (Some(_), _) => format!("is rolled back in place{to} after the pause"),
                    (None, _) if is_forbidden => {
                        let setting = rollout.strategy.name_of(MAX_UNAVAILABLE);
                        format!("is not rolled back, because {setting} is 0")
                    }
                    (None, Some(until)) => {
                        let left = instant::between(rollout.now, until);
                        format!("is rolled back in place{to} in {left}: ready-settle")
                    }
                    (None, None) => {
                        let taken = slots::taken(&self);
                        format!("is rolled back in place{to} when a slot is free: {taken}")
                    }
                };
                let because =
                    format!("has the revision that the guard stopped; its pod{pod} {then}");
                Answer::new(because, move || match rollout.pause() {
                    Some(pause) => rollout.until_resumed(pause.until),
                    None if is_forbidden => after_guard(),
                    None => "the rollback begins automatically when a slot is free and its maintenance window is open".to_owned(),
                })
                .reason("Pending")
            }
            Revert::Done => {
                let because = format!(
                    "runs pod{pod}, which was rolled back in place{to}, because the guard stopped revision{}",
                    spaced(rollout.revision())
                );
                Answer::new(because, after_guard).reason("Done")
            }
        }
    }
}

impl RolloutView<'_> {
    /// Returns a phrase with the name of the revision to which pods are rolled back; empty if it is unknown.
    pub(super) fn to_revision(self) -> String {
        let record = self.plan.record.as_ref();
        let before = record.and_then(|record| record.before.as_ref());
        before.map_or_else(String::new, |before| format!(" to revision {before}"))
    }

    /// Returns true if a wave is not open because a node failed with the revision.
    fn are_waves_shut(&self) -> bool {
        let mut waves = self.plan.waves.iter();
        waves.any(|stand| matches!(stand.state, WaveState::NotOpen(WaveShut::Charged { .. })))
    }

    /// Returns the remedy for a node that the guard keeps from being updated.
    pub(super) fn after_guard(&self, guarded: Guarded) -> String {
        match guarded {
            Guarded::Stopped(stopped) => {
                let check = (stopped == Stopped::ReplacedTwice)
                    .then(|| "check which other client changes the pods".to_owned());
                let steps = [
                    other_revision(self.fleet, &self.key),
                    resume_anyway(&self.key),
                ];
                joined(check.into_iter().chain(steps))
            }
            Guarded::Inconclusive { until } => format!(
                "continues automatically in {}, or earlier when the lost nodes return",
                instant::between(self.now, until)
            ),
        }
    }

    /// Returns the remedy for a node that waits because a wave is not open. `own` is the position of the node's own wave.
    pub(super) fn open_wave(&self, own: usize, why: WaveShut) -> String {
        let approve = |wave: usize| {
            format!(
                "yurt-ds ctl approve {} {}",
                self.key,
                self.plan.wave_name(wave)
            )
        };
        let (wave, until) = match why {
            WaveShut::Approval { wave } => return format!("approve the wave: {}", approve(wave)),
            WaveShut::Charged { .. } => {
                let failed = self.plan.failed_words(self.fleet);
                return joined([
                    failed,
                    self.after_guard(Guarded::Stopped(Stopped::FailedByRevision)),
                ]);
            }
            WaveShut::Soaking { wave, until } => (wave, Some(until)),
            WaveShut::Unfinished { wave } => (wave, None),
        };
        let name = self.plan.wave_name(wave);
        let ends = match until {
            Some(until) => format!(
                "the soak time of wave {name} ends in {}",
                instant::between(self.now, until)
            ),
            None => format!("continues when all online nodes of wave {name} are updated"),
        };
        let then = self
            .awaits_approval(wave, own)
            .map(|wave| format!("then approve the next wave: {}", approve(wave)));
        let progress = format!("progress: yurt-ds ctl status {}", self.key);
        joined([ends, then.unwrap_or(progress)])
    }

    /// Returns the position of the first wave in `done + 1..=own` that waits for an approval; `None` if none does.
    fn awaits_approval(&self, done: usize, own: usize) -> Option<usize> {
        let waves = self.strategy.waves.as_ref()?;
        let revision = self.revision()?;
        (done + 1..=own).find(|wave| {
            let manual = waves.list.get(*wave).is_some_and(|wave| wave.approve);
            manual && !waves.is_approved(*wave, revision)
        })
    }
}

/// Describes the progress of the rollback from a stopped revision; `None` if there is none.
pub fn rollback_words(rollout: &RolloutView<'_>) -> Option<String> {
    let reversal = rollout.plan.reversal.as_ref()?;
    let (done, stuck) = (reversal.done.len(), reversal.stuck.len());
    let all = done + reversal.under_way.len();
    let back = (all > 0).then(|| {
        format!(
            "rolled back in place{}: {done} of {all}",
            rollout.to_revision()
        )
    });
    let stuck = (stuck > 0).then(|| {
        format!(
            "{} cannot be rolled back in place: {}",
            nodes(stuck),
            reversal.why_words()
        )
    });
    let all = joined(back.into_iter().chain(stuck));
    (!all.is_empty()).then_some(all)
}

impl Reversal {
    /// Returns the reason why nodes keep the stopped revision, as the end of a sentence.
    pub fn why_words(&self) -> &'static str {
        match self.why {
            None => "another client updated rolled-back pods again",
            Some(Recreate::UnknownRevision) if self.to.is_none() => "no earlier revision is kept",
            Some(Recreate::UnknownRevision) => {
                "the previous revision is not in the history of the DaemonSet (revisionHistoryLimit)"
            }
            Some(why) => why.words(),
        }
    }

    /// Returns the reason, the message and the affected nodes of the Event about a rollback, without next steps.
    ///
    /// The message changes when the rollback begins and ends, but not with every node, because each change is a new Event.
    pub fn event(&self) -> Option<(&'static str, String, &[NodeName])> {
        let to = self.to.as_ref();
        let to = to.map_or_else(
            || "an earlier revision".to_owned(),
            |to| format!("revision {to}"),
        );
        Some(match self.stage()? {
            ReversalStage::UnderWay => {
                let words = format!("RevertInPlace rolls pods back in place to {to}");
                ("Reverting", words, &self.under_way)
            }
            ReversalStage::Stuck => {
                let why = self.why_words();
                let words = format!(
                    "RevertInPlace is not possible, so nodes keep the failed revision: {why}"
                );
                (NOT_REVERTED, words, &self.stuck)
            }
            ReversalStage::Away => {
                let words = format!(
                    "RevertInPlace rolls pods back in place to {to} when their nodes reconnect"
                );
                ("Reverting", words, &self.away)
            }
            ReversalStage::Done => {
                let words = format!("RevertInPlace rolled all pods on online nodes back to {to}");
                ("Reverted", words, &self.done)
            }
        })
    }
}
