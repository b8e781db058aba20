//! Messages about stalled rollouts, with the nodes and the remedy.

use std::collections::{BTreeMap, BTreeSet};

use super::headline::{COUNTED, Headline};
use super::overdue::{barrier, words as overdue_words};
use super::pods::{newest, problem_word};
use super::refusals::headline as refused;
use super::{NextStep, RolloutStatus, StatusSentence, behind_remedy, behind_words, is_about_jobs};
use crate::core::engine::deadline::{is_unscheduled, rejects};
use crate::core::engine::timeouts::{BEHIND_PATIENCE, HOOK_PATIENCE};
use crate::core::fleet::PodProblem;
use crate::core::fleet::record::FailureRecord;
use crate::core::id::{RevisionState, RevisionUnknown};
use crate::core::plan::{ReversalStage, Stall, WaveState};
use crate::core::remedy::undo_target;
use crate::core::verdict::{Guarded, Verdict, WaveShut};

/// Reasons that kubelets give for images that cannot be pulled.
const PULLS: [&str; 4] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
];

impl RolloutStatus<'_> {
    /// Returns the sentence about the stall: cause, nodes and next steps.
    pub(super) fn stalled(&self, stall: Stall) -> StatusSentence {
        let headline = self.headline(stall);
        StatusSentence {
            fact: headline.fact_alone(),
            next: headline.steps(),
            ..StatusSentence::new(stall.reason(), headline.sentence())
        }
    }

    fn headline(&self, stall: Stall) -> Headline {
        let (fleet, plan) = (self.fleet, self.plan);
        if let (Some(Guarded::Stopped(_)), Some(record)) = (plan.guarded, &plan.record) {
            return self.stopped(stall, record);
        }
        let on_begun = |fact: &str| Headline {
            fact: fact.to_owned(),
            nodes: self.named(Verdict::is_begun),
            ..Headline::on_nodes()
        };
        match stall {
            Stall::FailedByRevision => Headline {
                next: Some(self.roll_back()),
                ..self.failed(&format!("rollout stopped{}", self.before_wave()))
            },
            // Only the guard reports `ReplacedTwice`, so `stopped` usually handles it above.
            Stall::ReplacedTwice => on_begun("pods were replaced twice and are outdated again"),
            Stall::PodsDoNotStart => {
                let (next, or) = self.way_to_start();
                let fact = if self.are_pulls() {
                    "the new image cannot be pulled"
                } else {
                    "the new pods do not start"
                };
                Headline {
                    cause: self.problems(),
                    next: Some(next),
                    or,
                    look: self.look(),
                    ..on_begun(fact)
                }
            }
            Stall::ImagesNotPulled => self.not_pulled(),
            Stall::WindowNeverOpens => Headline {
                fact: plan.shut_words(fleet).unwrap_or_default(),
                ..Headline::default()
            },
            Stall::PodsNotCreated if let Some(why) = &fleet.not_created => Headline {
                // The prefix contains the pod's name, which doesn't help to find the cause.
                cause: (why
                    .split_once(" is forbidden: ")
                    .map_or(&**why, |(_, why)| why))
                .to_owned(),
                next: Some(NextStep::plain("raise the quota or change the policy")),
                or: Some(self.roll_back()),
                ..on_begun(&format!("{} cannot create pods", fleet.kind.controller()))
            },
            Stall::PodsNotCreated => Headline {
                next: Some(NextStep::plain(format!(
                    "check quotas, admission webhooks and whether {} runs",
                    fleet.kind.process()
                ))),
                ..on_begun(&format!("{} creates no pods", fleet.kind.controller()))
            },
            Stall::PodsKeptAway => self.kept_away(),
            Stall::HookPending => self.overdue_hooks(),
            Stall::BlockedByPdb => {
                let (next, look) = plan.unblocking(fleet, self.set.namespace);
                Headline {
                    fact: plan.blocked_words(fleet),
                    of: ". Waiting: ",
                    nodes: self.named(Verdict::is_blocked),
                    next: Some(next),
                    look,
                    ..Headline::default()
                }
            }
            Stall::NativeControllerBehind => self.behind(),
            Stall::WritesRefused => refused(&plan.refused),
            Stall::NoProgress if plan.overdue.is_empty() => Headline {
                next: Some(NextStep::plain("check their readiness")),
                ..on_begun("the new pods do not become available")
            },
            // After a rollback, these pods would still be terminating, so a rollback is no remedy.
            Stall::NoProgress if plan.awaits_ends(fleet) => self.overdue(),
            Stall::NoProgress => Headline {
                next: Some(self.roll_back()),
                ..self.overdue()
            },
        }
    }

    fn not_pulled(&self) -> Headline {
        let (nodes, why) = self.plan.failed_pulls(self.fleet);
        let (fact, next) = if is_about_jobs(why) {
            (
                "Jobs that pull the new images cannot be created",
                "change what rejects the Jobs",
            )
        } else {
            (
                "the new images cannot be pulled",
                "correct the image, pull secret or registry",
            )
        };
        Headline {
            fact: fact.to_owned(),
            nodes,
            cause: why.to_owned(),
            next: Some(NextStep::plain(format!(
                "{next}, or set predownload: best-effort"
            ))),
            or: Some(self.roll_back()),
            ..Headline::on_nodes()
        }
    }

    fn kept_away(&self) -> Headline {
        let barred = self.fleet.nodes.iter().filter(|node| node.is_barred());
        let mut why = barred.clone().map(barrier);
        Headline {
            fact: "no new pod can be created".to_owned(),
            cause: why.next().unwrap_or_default().to_owned(),
            nodes: barred.map(|node| node.name.to_string()).collect(),
            next: Some(NextStep::plain(
                "correct the taints or labels of the nodes, or the template",
            )),
            ..Headline::on_nodes()
        }
    }

    /// Returns the message for a current revision that has been unknown for too long.
    fn behind(&self) -> Headline {
        let fleet = self.fleet;
        let behind = match fleet.revision {
            RevisionState::Unknown(behind) => behind,
            RevisionState::Current(_) => RevisionUnknown::UnknownRevision,
        };
        let patience = humantime::format_duration(BEHIND_PATIENCE);
        Headline {
            fact: format!(
                "waiting for more than {patience}: {}",
                behind_words(fleet.kind, behind)
            ),
            cause: fleet.not_created.as_deref().unwrap_or_default().to_owned(),
            next: Some(NextStep::plain(behind_remedy(fleet.kind, behind))),
            ..Headline::default()
        }
    }

    /// Returns the message about a revision that the guard stopped, with the progress of the rollback.
    fn stopped(&self, stall: Stall, record: &FailureRecord) -> Headline {
        let reversal = self.plan.reversal.as_ref();
        let next = match reversal.and_then(|reversal| Some((reversal.stage()?, reversal.event()?)))
        {
            None => self.roll_back(),
            Some((ReversalStage::Stuck, _)) => {
                self.roll_back().after("RevertInPlace is not possible; ")
            }
            Some((_, (_, words, _))) => NextStep::plain(words),
        };
        match stall {
            Stall::ReplacedTwice => Headline {
                fact: "rollout stopped: pods were replaced twice and are outdated again".to_owned(),
                nodes: record
                    .replaced_twice
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                next: Some(next.after("check which other client changes them, or ")),
                ..Headline::on_nodes()
            },
            _ => Headline {
                cause: self.endings(),
                look: self.look(),
                next: Some(next),
                or: match self.plan.pause {
                    // Don't suggest `ctl resume` during a pause. It would end the pause, but not the stop.
                    Some(_) => None,
                    None => Some(NextStep::command(
                        "to continue anyway",
                        format!("yurt-ds ctl resume {}", self.set),
                    )),
                },
                ..self.failed("rollout stopped")
            },
        }
    }

    /// Returns the message with the failed nodes and the limit. `before` is the beginning of the message.
    fn failed(&self, before: &str) -> Headline {
        let (names, failures) = self.plan.failed(self.fleet);
        Headline {
            fact: format!("{before}: {}", self.plan.failures_words(failures)),
            of: COUNTED,
            more: failures - names.len(),
            nodes: names.into_iter().map(ToString::to_string).collect(),
            ..Headline::default()
        }
    }

    /// Returns the message about overdue nodes, with the cause for the first of them.
    fn overdue(&self) -> Headline {
        let (fleet, plan) = (self.fleet, self.plan);
        let mut overdue = plan
            .overdue
            .iter()
            .map(|position| (&fleet.nodes[*position], &plan.verdicts[*position]));
        let Some((node, verdict)) = overdue.next() else {
            return Headline::default();
        };
        Headline {
            fact: format!(
                "node {}: {}",
                node.name,
                overdue_words(fleet, node, verdict)
            ),
            of: ". Also waiting: ",
            nodes: overdue.map(|(node, _)| node.name.to_string()).collect(),
            next: Some(NextStep::command(
                "details",
                format!("yurt-ds ctl why {} NODE", self.set),
            )),
            ..Headline::default()
        }
    }

    fn named(&self, is_wanted: fn(&Verdict) -> bool) -> Vec<String> {
        let nodes = self.plan.nodes_with(self.fleet, is_wanted);
        nodes.map(|node| node.name.to_string()).collect()
    }

    /// Returns the command that rolls back, or another remedy if no rollback is possible.
    pub(super) fn roll_back(&self) -> NextStep {
        match undo_target(self.fleet) {
            Some(target) => NextStep::command("roll back", target.command(&self.set)),
            None => NextStep::plain("repair the nodes, or roll out another template"),
        }
    }

    /// Returns a phrase about the first wave that cannot open because a node failed in an earlier wave; empty if there is none.
    fn before_wave(&self) -> String {
        let mut waves = self.plan.waves.iter();
        let is_shut = |state| matches!(state, WaveState::NotOpen(WaveShut::Charged { .. }));
        let first = waves.find(|stand| stand.nodes > 0 && is_shut(stand.state));
        first.map_or_else(String::new, |stand| format!(" before wave {}", stand.name))
    }

    /// Returns the remedy for pods that don't start. Another revision helps unschedulable pods only if it requests less.
    fn way_to_start(&self) -> (NextStep, Option<NextStep>) {
        let mut begun = self.plan.nodes_with(self.fleet, Verdict::is_begun);
        let other_version = match self.fleet.undone {
            None => Some(
                self.roll_back()
                    .after("if this version needs more than the previous one, "),
            ),
            Some(_) => None,
        };
        let free = "free resources there, or set a priorityClassName in the template";
        let repair = "repair what the kubelet names; the rollout then continues";
        match begun.clone().next() {
            Some(_) if begun.clone().all(is_unscheduled) => (NextStep::plain(free), other_version),
            Some(_) if begun.all(|node| rejects(node) && !is_unscheduled(node)) => {
                (NextStep::plain(repair), other_version)
            }
            _ => (self.roll_back(), None),
        }
    }

    /// Returns the message about preDelete hooks that take too long.
    fn overdue_hooks(&self) -> Headline {
        let nodes = self.plan.nodes_with(self.fleet, |verdict| {
            matches!(verdict, Verdict::HookPending { overdue: true, .. })
        });
        let pods = nodes.clone().flat_map(|node| &node.pods);
        let hooks = self.strategy.pre_delete.iter();
        let awaited: BTreeSet<String> = pods
            .flat_map(|pod| hooks.clone().flat_map(|hook| hook.awaited(&pod.exit)))
            .collect();
        let patience = humantime::format_duration(HOOK_PATIENCE);
        let next = format!(
            "check the component that removes {} from the pod",
            Vec::from_iter(awaited).join(", ")
        );
        Headline {
            fact: format!("preDelete hooks take longer than {patience}"),
            nodes: nodes.map(|node| node.name.to_string()).collect(),
            next: Some(NextStep::plain(next)),
            ..Headline::on_nodes()
        }
    }

    /// Returns a sentence about preDelete hooks that take too long; `None` if there are none.
    pub(super) fn hooks_aside(&self) -> Option<String> {
        let headline = self.overdue_hooks();
        (!headline.nodes.is_empty()).then(|| headline.sentence())
    }

    /// Returns true if all pods that don't start report problems with image pulls.
    fn are_pulls(&self) -> bool {
        let begun = self.plan.nodes_with(self.fleet, Verdict::is_begun);
        let words: Vec<String> = begun.filter_map(problem_word).collect();
        !words.is_empty() && words.iter().all(|word| PULLS.contains(&word.as_str()))
    }

    /// Returns the command that shows why the first failing pod fails.
    fn look(&self) -> Option<NextStep> {
        let failing = self.plan.nodes_with(self.fleet, Verdict::is_begun);
        let pods = failing.filter_map(newest);
        let mut failing = pods.filter(|pod| pod.problem.is_some());
        let pod = failing.next()?;
        let crashes = pod
            .problem
            .as_ref()
            .is_some_and(|problem| problem.restarts > 0);
        let (namespace, name) = (self.set.namespace, &pod.name);
        Some(if crashes {
            NextStep::command(
                "logs",
                format!("kubectl -n {namespace} logs {name} --previous"),
            )
        } else {
            NextStep::command(
                "details",
                format!("kubectl -n {namespace} describe pod {name}"),
            )
        })
    }

    /// Returns the reasons why pods don't start; empty if no pod reports one.
    fn problems(&self) -> String {
        let problems = self.fleet.nodes.iter().flat_map(|node| {
            let of_pods = node.pods.iter().filter_map(|pod| pod.problem.as_deref());
            of_pods.chain(node.trouble.as_deref())
        });
        causes(problems)
    }

    /// Returns the reasons why pods end one after another; empty if none do.
    fn endings(&self) -> String {
        let nodes = self.fleet.nodes.iter();
        causes(nodes.filter_map(|node| node.trouble.as_deref()))
    }
}

/// Returns each kind of problem once, with the details of its first pod. The other details differ only in numbers.
fn causes<'a>(problems: impl Iterator<Item = &'a PodProblem>) -> String {
    let mut reasons = BTreeMap::new();
    for problem in problems {
        let details = reasons
            .entry(PodProblem::steady(problem.word()))
            .or_insert("");
        if details.is_empty() {
            *details = &problem.detail;
        }
    }
    let phrases: Vec<String> = (reasons.into_iter())
        .map(|(word, details)| PodProblem::phrase(word, details))
        .collect();
    phrases.join(", ")
}
