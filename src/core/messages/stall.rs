//! Why a rollout stopped by itself, with the nodes and the way on.

use std::collections::{BTreeMap, BTreeSet};

use super::RolloutStatus;
use super::reasons::{behind_remedy, behind_words, unrevised};
use crate::core::engine::deadline::{is_unscheduled, rejects};
use crate::core::engine::patience::{BEHIND_PATIENCE, HOOK_PATIENCE};
use crate::core::fleet::{Node, PodProblem};

use super::node::kept_away_words;
use super::not_created;
use crate::core::fleet::record::FailureRecord;
use crate::core::id::{RevisionState, RevisionUnknown};
use crate::core::lifecycle::PreDelete;
use crate::core::plan::{Stall, WaveState};
use crate::core::remedy::{back, make_room, mend_nodes, nevertheless, way_on};
use crate::core::verdict::{Guarded, Verdict, WaveShut};
use crate::core::words::named;

impl RolloutStatus<'_> {
    /// Why it stopped.
    pub(super) fn stalled(&self, stall: Stall) -> String {
        let (fleet, plan) = (self.fleet, self.plan);
        if let (Some(Guarded::Stopped(_)), Some(record)) = (plan.guarded, &plan.record) {
            return self.stopped(stall, record);
        }
        match stall {
            Stall::FailedByRevision => {
                let before = self.before_wave();
                let failed = plan.failed_words(fleet);
                let ways_on = match before.is_empty() || plan.pause.is_some() {
                    true => self.way_on(),
                    false => format!("{}; {}", self.way_on(), nevertheless(self.set)),
                };
                format!("stopped{before}: {failed}; {ways_on}")
            }
            // The guard alone says that.
            Stall::ReplacedTwice => format!(
                "stopped: replacing the pods on {} does not help",
                self.waiting()
            ),
            Stall::PodsDoNotStart => format!(
                "stopped: the new pods do not start on {}{}; {}",
                self.waiting(),
                self.troubles(),
                self.way_to_start()
            ),
            Stall::ImagesNotPulled => format!(
                "stopped: {}{}",
                plan.pulls_words(fleet),
                self.way_back("; or ")
            ),
            Stall::WindowNeverOpens => format!("stopped: {}", plan.shut_words(fleet)),
            Stall::PodsNotCreated if let Some(why) = &fleet.not_created => {
                let refused = not_created::sentence(fleet.kind, &self.waiting(), why);
                format!(
                    "{refused}; mend what refuses them{}",
                    self.way_back("; if it refuses only this revision, ")
                )
            }
            Stall::PodsNotCreated => format!(
                "stopped: waiting for {} to create pods on {}; look for a quota or an admission webhook that refuses them \
                 (Events with reason FailedCreate; where there are none, see whether {} runs)",
                fleet.kind.controller(),
                self.waiting(),
                fleet.kind.process()
            ),
            Stall::PodsKeptAway => format!(
                "stopped: no new pod can be created on {}; the rollout continues when a pod may run there again",
                self.kept_away()
            ),
            Stall::HookPending => format!("stopped{}", self.hooks_aside()),
            Stall::BlockedByPdb => format!(
                "stopped: {}; {} cannot go",
                plan.blocked_words(fleet),
                self.names_with(|verdict| matches!(verdict, Verdict::BlockedByPdb { .. }))
            ),
            Stall::NativeControllerBehind => {
                let behind = match fleet.revision {
                    RevisionState::Unknown(behind) => behind,
                    RevisionState::Current(_) => RevisionUnknown::UnknownRevision,
                };
                format!(
                    "stopped: for more than {} {}{}; {}",
                    humantime::format_duration(BEHIND_PATIENCE),
                    behind_words(fleet.kind, behind),
                    unrevised(fleet),
                    behind_remedy(fleet.kind, behind)
                )
            }
            Stall::WritesRefused => format!(
                "stopped: {}; it is tried again, and goes on by itself when the API server allows it",
                plan.refused.words()
            ),
            Stall::NoProgress if plan.overdue.is_empty() => format!(
                "stopped: the new pods do not become available on {}; look at their readiness",
                self.waiting()
            ),
            // Another revision would wait for those pods as well.
            Stall::NoProgress if plan.awaits_ends(fleet) => {
                format!("stopped: {}", plan.overdue_words(fleet))
            }
            Stall::NoProgress => format!(
                "stopped: {}; or {}",
                plan.overdue_words(fleet),
                self.way_on()
            ),
        }
    }

    /// What the guard says of a revision that it stopped, and how far pods are taken back.
    fn stopped(&self, stall: Stall, record: &FailureRecord) -> String {
        let ways_on = match self.plan.pause {
            // A first `resume` would end the pause alone.
            Some(_) => self.way_on(),
            None => format!(
                "{}; {} (annotation resume: {})",
                self.way_on(),
                nevertheless(self.set),
                record.revision
            ),
        };
        let stopped = match stall {
            Stall::ReplacedTwice => format!(
                "stopped by the guard: {}; something else makes pods of another revision there. Find it; then {ways_on}",
                self.plan.replaced_twice_words()
            ),
            _ => format!(
                "stopped by the guard: {}{}; {ways_on}",
                self.plan.failed_words(self.fleet),
                self.endings()
            ),
        };
        let reversal = self.plan.reversal.as_ref();
        match reversal.and_then(|reversal| reversal.told()) {
            Some((_, words, _)) => format!("{stopped}. {words}"),
            None => stopped,
        }
    }

    /// The first wave that does not open because a node of an earlier one failed, to follow a word; empty when there is none.
    fn before_wave(&self) -> String {
        let mut waves = self.plan.waves.iter();
        let is_shut = |state| matches!(state, WaveState::NotOpen(WaveShut::Charged { .. }));
        let first = waves.find(|stand| stand.nodes > 0 && is_shut(stand.state));
        first.map_or_else(String::new, |stand| format!(" before wave {}", stand.name))
    }

    fn way_on(&self) -> String {
        way_on(self.fleet, self.set)
    }

    /// Returns the way back to an earlier revision after `conjunction`; empty when there is none.
    fn way_back(&self, conjunction: &str) -> String {
        let back = back(self.fleet, self.set);
        back.map_or_else(String::new, |back| format!("{conjunction}{back}"))
    }

    /// Returns the remedy for pods that do not start. Another revision does not help unschedulable pods, unless it requests less.
    fn way_to_start(&self) -> String {
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let waiting = nodes.filter(|(_, verdict)| verdict.is_begun());
        let (lacking, others): (Vec<&Node>, Vec<&Node>) = waiting
            .map(|(node, _)| node)
            .partition(|node| is_unscheduled(node));
        let (rejecting, others): (Vec<&Node>, Vec<&Node>) =
            others.into_iter().partition(|node| rejects(node));
        let names = |nodes: &[&Node]| named(nodes.iter().map(|node| node.name.as_str()), 0);
        let room = || make_room(&names(&lacking), self.fleet, self.set);
        let mended = || mend_nodes(&names(&rejecting), self.fleet, self.set);
        let parts = [
            (!lacking.is_empty()).then(room),
            (!rejecting.is_empty()).then(mended),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        match (parts.join("; "), others.is_empty()) {
            (parts, _) if parts.is_empty() => self.way_on(),
            (parts, true) => parts,
            (parts, false) => format!("{parts}; for the other nodes, {}", self.way_on()),
        }
    }

    /// The nodes that hold the budget.
    fn waiting(&self) -> String {
        self.names_with(Verdict::is_begun)
    }

    /// Returns the barred nodes, each with the reason.
    fn kept_away(&self) -> String {
        let nodes = self.fleet.nodes.iter().filter(|node| node.is_barred());
        let told = nodes.map(|node| format!("{} ({})", node.name, kept_away_words(node)));
        named(told.collect::<Vec<_>>().iter().map(String::as_str), 0)
    }

    /// Whose hooks take too long, and what is awaited there, to follow a sentence; empty when there are none.
    pub(super) fn hooks_aside(&self) -> String {
        let is_overdue =
            |verdict: &Verdict| matches!(verdict, Verdict::HookPending { overdue: true, .. });
        let names = self.names_with(is_overdue);
        if names.is_empty() {
            return names;
        }
        let nodes = self.fleet.nodes.iter().zip(&self.plan.verdicts);
        let waiting = nodes.filter(|(_, verdict)| is_overdue(verdict));
        let pods = waiting.flat_map(|(node, _)| &node.pods);
        let awaited = |pod| {
            let hook = self.hook.into_iter();
            hook.flat_map(move |hook: &PreDelete| hook.awaited(pod))
        };
        let awaited: BTreeSet<String> = pods.flat_map(|pod| awaited(&pod.exit)).collect();
        format!(
            "; preDelete hooks take longer than {} on {names}: look at whoever has to take away {}",
            humantime::format_duration(HOOK_PATIENCE),
            Vec::from_iter(awaited).join(", ")
        )
    }

    /// Returns why pods do not start, in brackets; empty when nothing says so.
    fn troubles(&self) -> String {
        let problems = self.fleet.nodes.iter().flat_map(|node| {
            let of_pods = node.pods.iter().filter_map(|pod| pod.problem.as_deref());
            of_pods.chain(node.trouble.as_deref())
        });
        in_brackets(problems)
    }

    /// Returns why pods end one after another, in brackets; empty when none do.
    fn endings(&self) -> String {
        let nodes = self.fleet.nodes.iter();
        in_brackets(nodes.filter_map(|node| node.trouble.as_deref()))
    }
}

/// Returns each kind of problem with what is said of it first: other nodes say the same, in other numbers.
fn in_brackets<'a>(problems: impl Iterator<Item = &'a PodProblem>) -> String {
    let mut reasons = BTreeMap::new();
    for problem in problems {
        let said = reasons
            .entry(PodProblem::steady(problem.word()))
            .or_insert("");
        if said.is_empty() {
            *said = &problem.said;
        }
    }
    let told = reasons.into_iter();
    let told: Vec<String> = told
        .map(|(word, said)| PodProblem::phrase(word, said))
        .collect();
    match told.is_empty() {
        true => String::new(),
        false => format!(" ({})", told.join(", ")),
    }
}
