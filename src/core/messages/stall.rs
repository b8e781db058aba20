//! Messages for stalled rollouts, with the nodes and the remedy.

use std::collections::{BTreeMap, BTreeSet};

use super::headline::Headline;
use super::node::kept_away_words;
use super::overdue::words as overdue_words;
use super::pods::{newest, trouble_word};
use super::reasons::{behind_remedy, behind_words};
use super::refusals::headline as refused;
use super::{NextStep, RolloutStatus, StatusSentence};
use crate::core::engine::deadline::{is_unscheduled, rejects};
use crate::core::engine::timeouts::{BEHIND_PATIENCE, HOOK_PATIENCE};
use crate::core::fleet::PodProblem;
use crate::core::fleet::record::FailureRecord;
use crate::core::id::{RevisionState, RevisionUnknown};
use crate::core::plan::{ReversalStage, Stall, WaveState};
use crate::core::remedy::{WayBack, way_back};
use crate::core::verdict::{Guarded, Verdict, WaveShut};
use crate::core::words::{named, plural};

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
        let waiting = || self.named(Verdict::is_begun);
        match stall {
            Stall::FailedByRevision => Headline {
                next: Some(self.roll_back()),
                ..self.failed(&format!("rollout stopped{}", self.before_wave()))
            },
            // Only the guard reports `ReplacedTwice`, so `stopped` normally handles it above.
            Stall::ReplacedTwice => Headline {
                fact: "replacing the pods does not help".to_owned(),
                nodes: waiting(),
                ..Headline::on_nodes()
            },
            Stall::PodsDoNotStart => {
                let (next, or) = self.way_to_start();
                let fact = if self.are_pulls() {
                    "the new image cannot be pulled"
                } else {
                    "the new pods do not start"
                };
                Headline {
                    fact: fact.to_owned(),
                    nodes: waiting(),
                    cause: self.troubles(),
                    next: Some(next),
                    or,
                    look: self.look(),
                    ..Headline::on_nodes()
                }
            }
            Stall::ImagesNotPulled => {
                let (nodes, why, is_about_jobs) = plan.failed_pulls(fleet);
                let (fact, next) = if is_about_jobs {
                    ("no Job can pull its images", "change what refuses the Job")
                } else {
                    (
                        "its images cannot be pulled",
                        "correct the image, the pull secret or the registry",
                    )
                };
                Headline {
                    fact: fact.to_owned(),
                    nodes,
                    cause: why,
                    next: Some(NextStep::plain(format!(
                        "{next}, or set predownload: best-effort"
                    ))),
                    or: Some(self.roll_back()),
                    ..Headline::on_nodes()
                }
            }
            Stall::WindowNeverOpens => Headline {
                fact: plan.shut_words(fleet),
                ..Headline::default()
            },
            Stall::PodsNotCreated if let Some(why) = &fleet.not_created => Headline {
                fact: format!("{} cannot create pods", fleet.kind.controller()),
                nodes: waiting(),
                // Skip the prefix with the pod's name: it doesn't help to find the cause.
                cause: (why
                    .split_once(" is forbidden: ")
                    .map_or(&**why, |(_, why)| why))
                .to_owned(),
                next: Some(NextStep::plain("raise the quota or change the policy")),
                or: Some(self.roll_back()),
                ..Headline::on_nodes()
            },
            Stall::PodsNotCreated => Headline {
                fact: format!("{} creates no pods", fleet.kind.controller()),
                nodes: waiting(),
                next: Some(NextStep::plain(format!(
                    "check quotas, admission webhooks and whether {} runs",
                    fleet.kind.process()
                ))),
                ..Headline::on_nodes()
            },
            Stall::PodsKeptAway => {
                let barred = fleet.nodes.iter().filter(|node| node.is_barred());
                let mut why = barred.clone().map(kept_away_words);
                Headline {
                    fact: "no new pod can be created".to_owned(),
                    cause: why.next().unwrap_or_default().to_owned(),
                    nodes: barred.map(|node| node.name.to_string()).collect(),
                    next: Some(NextStep::plain(
                        "the rollout continues when a pod can run there again",
                    )),
                    ..Headline::on_nodes()
                }
            }
            Stall::HookPending => {
                let (nodes, awaited) = self.overdue_hooks();
                Headline {
                    fact: format!(
                        "preDelete hooks take longer than {}",
                        humantime::format_duration(HOOK_PATIENCE)
                    ),
                    nodes,
                    next: Some(NextStep::plain(format!(
                        "check the component that removes {awaited} from the pod"
                    ))),
                    ..Headline::on_nodes()
                }
            }
            Stall::BlockedByPdb => Headline {
                fact: plan.blocked_words(fleet),
                of: "; waiting: ",
                nodes: self.named(|verdict| matches!(verdict, Verdict::BlockedByPdb { .. })),
                next: plan.blocking(fleet).map(|budget| {
                    NextStep::command(
                        "to change it",
                        format!("kubectl -n {} edit pdb {budget}", self.set.namespace),
                    )
                }),
                ..Headline::default()
            },
            Stall::NativeControllerBehind => {
                let behind = match fleet.revision {
                    RevisionState::Unknown(behind) => behind,
                    RevisionState::Current(_) => RevisionUnknown::UnknownRevision,
                };
                let why = fleet.not_created.as_deref().unwrap_or_default();
                Headline {
                    fact: format!(
                        "for more than {} {}",
                        humantime::format_duration(BEHIND_PATIENCE),
                        behind_words(fleet.kind, behind)
                    ),
                    cause: why.to_owned(),
                    next: Some(NextStep::plain(behind_remedy(fleet.kind, behind))),
                    ..Headline::default()
                }
            }
            Stall::WritesRefused => refused(&plan.refused),
            Stall::NoProgress if plan.overdue.is_empty() => Headline {
                fact: "the new pods do not become available".to_owned(),
                nodes: waiting(),
                next: Some(NextStep::plain("check their readiness")),
                ..Headline::on_nodes()
            },
            // A rollback would not help: it would wait for the same terminating pods.
            Stall::NoProgress if plan.awaits_ends(fleet) => self.overdue(),
            Stall::NoProgress => Headline {
                next: Some(self.roll_back()),
                ..self.overdue()
            },
        }
    }

    /// Returns the message about a revision that the guard stopped, with the progress of the rollback.
    fn stopped(&self, stall: Stall, record: &FailureRecord) -> Headline {
        let reversal = self.plan.reversal.as_ref();
        let next = match reversal.and_then(|reversal| Some((reversal.stage()?, reversal.told()?))) {
            None => self.roll_back(),
            Some((ReversalStage::Stuck, _)) => {
                self.roll_back().after("RevertInPlace is not possible; ")
            }
            Some((_, (_, words, _))) => NextStep::plain(words),
        };
        match stall {
            Stall::ReplacedTwice => Headline {
                fact:
                    "rollout stopped: pods were replaced twice, and the new ones are outdated again"
                        .to_owned(),
                nodes: record
                    .replaced_twice
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                next: Some(next.after("check what else creates or changes them; ")),
                ..Headline::on_nodes()
            },
            _ => Headline {
                cause: self.endings(),
                look: self.look(),
                next: Some(next),
                or: match self.plan.pause {
                    // While the rollout is paused, don't suggest `resume`: it would end the pause, but not the stop.
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

    /// Returns the message with the failed nodes and the limit; `before` is its beginning.
    fn failed(&self, before: &str) -> Headline {
        let (names, failures) = self.plan.failed(self.fleet);
        let limit = self.plan.counts.threshold;
        Headline {
            fact: format!(
                "{before}: the new version failed on {failures} {} (limit {limit})",
                plural(failures, "node", "nodes")
            ),
            of: ": ",
            more: failures - names.len(),
            nodes: names.into_iter().map(ToString::to_string).collect(),
            ..Headline::default()
        }
    }

    /// Returns the message about nodes past their deadline, with the cause for the first of them.
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
            fact: format!("{}: {}", node.name, overdue_words(fleet, node, verdict)),
            of: "; also waiting: ",
            nodes: overdue.map(|(node, _)| node.name.to_string()).collect(),
            next: Some(NextStep::plain(format!("see yurt-ds ctl why {}", self.set))),
            ..Headline::default()
        }
    }

    fn named(&self, wanted: impl Fn(&Verdict) -> bool) -> Vec<String> {
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let meant = nodes.filter(|(_, verdict)| wanted(verdict));
        meant.map(|(node, _)| node.name.to_string()).collect()
    }

    /// Returns the command that rolls back, or another remedy if no rollback is possible.
    fn roll_back(&self) -> NextStep {
        let Some(WayBack { number, .. }) = way_back(self.fleet) else {
            return NextStep::plain("repair the nodes, or roll out another template");
        };
        let number = number.map_or_else(String::new, |number| format!(" --to-revision {number}"));
        NextStep::command(
            "roll back",
            format!("yurt-ds ctl undo {}{number}", self.set),
        )
    }

    /// Returns a phrase about the first wave that cannot open because of a failed node in an earlier wave; empty if there is
    /// none.
    fn before_wave(&self) -> String {
        let mut waves = self.plan.waves.iter();
        let is_shut = |state| matches!(state, WaveState::NotOpen(WaveShut::Charged { .. }));
        let first = waves.find(|stand| stand.nodes > 0 && is_shut(stand.state));
        first.map_or_else(String::new, |stand| format!(" before wave {}", stand.name))
    }

    /// Returns the remedy for pods that don't start. For unschedulable pods, another revision helps only if it requests less.
    fn way_to_start(&self) -> (NextStep, Option<NextStep>) {
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let begun = nodes.filter(|(_, verdict)| verdict.is_begun());
        let (mut lacking, mut rejecting, mut others) = (false, false, false);
        for (node, _) in begun {
            let kind = match (is_unscheduled(node), rejects(node)) {
                (true, _) => &mut lacking,
                (false, true) => &mut rejecting,
                (false, false) => &mut others,
            };
            *kind = true;
        }
        let other_version = match self.fleet.undone {
            None => Some(
                self.roll_back()
                    .after("if this version needs more than the one before, "),
            ),
            Some(_) => None,
        };
        match (lacking, rejecting, others) {
            (true, false, false) => (
                NextStep::plain("free resources there, or set a priorityClassName in the template"),
                other_version,
            ),
            (false, true, false) => (
                NextStep::plain("repair what the kubelet names; the rollout then continues"),
                other_version,
            ),
            _ => (self.roll_back(), None),
        }
    }

    /// Returns the nodes whose preDelete hooks take too long, and the labels and finalizers to remove.
    fn overdue_hooks(&self) -> (Vec<String>, String) {
        let is_overdue =
            |verdict: &Verdict| matches!(verdict, Verdict::HookPending { overdue: true, .. });
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let waiting = nodes.filter(|(_, verdict)| is_overdue(verdict));
        let pods = waiting.flat_map(|(node, _)| &node.pods);
        let awaited = |pod| {
            let hook = self.strategy.pre_delete.iter();
            hook.flat_map(move |hook| hook.awaited(pod))
        };
        let awaited: BTreeSet<String> = pods.flat_map(|pod| awaited(&pod.exit)).collect();
        (self.named(is_overdue), Vec::from_iter(awaited).join(", "))
    }

    /// Returns a clause about preDelete hooks that take too long; empty if there are none.
    pub(super) fn hooks_aside(&self) -> String {
        let (nodes, awaited) = self.overdue_hooks();
        if nodes.is_empty() {
            String::new()
        } else {
            format!(
                "; preDelete hooks take longer than {} on {}: check the component that removes {awaited} from the pod",
                humantime::format_duration(HOOK_PATIENCE),
                named(nodes.iter().map(String::as_str), 0)
            )
        }
    }

    /// Returns true if all pods that don't start report problems with image pulls.
    fn are_pulls(&self) -> bool {
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let begun = nodes.filter(|(_, verdict)| verdict.is_begun());
        let words: Vec<String> = begun.filter_map(|(node, _)| trouble_word(node)).collect();
        !words.is_empty() && words.iter().all(|word| PULLS.contains(&word.as_str()))
    }

    /// Returns the command that shows why the first failing pod fails.
    fn look(&self) -> Option<NextStep> {
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let failing = nodes.filter(|(_, verdict)| {
            verdict.is_begun() || matches!(verdict, Verdict::FailedByRevision { .. })
        });
        let pods = failing.filter_map(|(node, _)| newest(node));
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
    fn troubles(&self) -> String {
        let problems = self.fleet.nodes.iter().flat_map(|node| {
            let of_pods = node.pods.iter().filter_map(|pod| pod.problem.as_deref());
            of_pods.chain(node.trouble.as_deref())
        });
        causes(problems)
    }

    /// Returns the reasons why pods keep ending one after another; empty if none do.
    fn endings(&self) -> String {
        let nodes = self.fleet.nodes.iter();
        causes(nodes.filter_map(|node| node.trouble.as_deref()))
    }
}

/// Returns each kind of problem once, with the details from the first pod. The details of other pods differ only in numbers.
fn causes<'a>(problems: impl Iterator<Item = &'a PodProblem>) -> String {
    let mut reasons = BTreeMap::new();
    for problem in problems {
        let said = reasons
            .entry(PodProblem::steady(problem.word()))
            .or_insert("");
        if said.is_empty() {
            *said = &problem.detail;
        }
    }
    let told = reasons.into_iter();
    let told: Vec<String> = told
        .map(|(word, said)| PodProblem::phrase(word, said))
        .collect();
    told.join(", ")
}
