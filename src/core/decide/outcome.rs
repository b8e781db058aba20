//! What is said of a fleet when its actions are chosen: numbers, phase, and when to look again.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::Draft;
use crate::core::budget::starting_until;
use crate::core::classify::{Class, judged_at};
use crate::core::domains::is_others_turn;
use crate::core::fleet::{Node, NodeName, Pod, PodRevision, Readiness, Targeting, position_of};
use crate::core::guard::failure_window;
use crate::core::instant::later;
use crate::core::overdue::Overdue;
use crate::core::pause::PauseStand;
use crate::core::plan::{Counts, Phase, Plan, Stall, WaveStand};
use crate::core::refusals::Part;
use crate::core::revert::Reversal;
use crate::core::strategy::Mode;
use crate::core::surge::Parting;
use crate::core::verdict::{Cause, Guarded, Offline, Progress, Revert, Verdict, WaveShut};
use crate::core::{phase, removal, surge};

/// From this `min-interval` on its end is told.
const TOLD_INTERVAL: Duration = Duration::from_secs(60);

impl Draft<'_> {
    pub(super) fn finish(mut self, phase: Option<Phase>) -> Plan {
        let actions = std::mem::take(&mut self.actions);
        let mut refused = self.gates.refusing.again(actions.iter());
        let (actions, tried_again) = self.gates.refusing.without_held(actions);
        self.actions = actions;
        self.tell_refused(&mut refused);
        self.tell_domains();
        let counts = self.counts();
        let waves = match phase {
            Some(phase) if phase.is_behind() => Vec::new(),
            _ => self.waves(),
        };
        let refusing = &self.gates.refusing;
        let begun = self.actions.iter().filter(|action| action.begins());
        let tried = begun.filter(|action| !refusing.is_again(action)).count();
        let moving = tried > self.gates.asking.again() || self.waits_for_next_second();
        let blocked = self.blocked_since().filter(|_| !moving);
        let judged = || {
            let reverts = |reversal: &Reversal| !reversal.under_way.is_empty();
            // Who is away follows as little as the others.
            let is_held = counts.outdated + counts.offline_outdated > 0
                || self.reversal.as_ref().is_some_and(reverts);
            let stopped = match self.guard.gate {
                Some(Guarded::Stopped(stopped)) => Some(stopped).filter(|_| is_held),
                _ => None,
            };
            let about = (self.fleet, self.verdicts.as_slice(), stopped, blocked);
            phase::of_rollout(about, &counts, [moving, self.is_judging()], self.now)
        };
        let (phase, wake) = match phase.map_or_else(judged, |phase| (phase, None)) {
            (Phase::Stalled(Stall::WritesRefused), _) if self.others_follow() => {
                (Phase::Progressing, None)
            }
            (Phase::Progressing, _) if !moving && self.is_behind_a_failed_wave(&counts) => {
                (Phase::Stalled(Stall::FailedByRevision), None)
            }
            known => known,
        };
        let Overdue {
            nodes: mut overdue,
            next: overdue_at,
        } = Overdue::of(self.fleet, &self.verdicts, counts.surging > 0, self.now);
        overdue.retain(|position| !self.leaves_now(*position));
        let next_wake = self
            .turns()
            .chain(wake)
            .chain(overdue_at)
            .chain(self.scope.next_change())
            .chain(self.opens)
            .chain(self.pulls_again)
            .chain(self.guard.changes)
            .chain(self.gate_changes())
            .chain(self.reverts_again)
            .chain(self.asked_again())
            .chain(tried_again)
            .chain(self.refused_again(&refused))
            .chain(self.pause.as_ref().map(PauseStand::changes))
            .min();
        Plan {
            actions: self.actions,
            recreates: self.recreates,
            verdicts: self.verdicts,
            pulls: self.pulls,
            counts,
            phase,
            opens: self.opens,
            tells_opening: self.strategy.min_interval >= TOLD_INTERVAL,
            invalid: self.invalid,
            domains: self.domains,
            guarded: self.guard.gate,
            record: self.guard.record,
            reversal: self.reversal,
            pause: self.pause,
            waves,
            overdue,
            blocked: blocked.is_some(),
            refused: self.fleet.refusals.only(&refused),
            next_wake,
        }
    }

    /// Whether the second pod of that node goes by this plan: however old the two are, that has just begun.
    fn leaves_now(&self, position: usize) -> bool {
        let pods = &self.fleet.nodes[position].pods;
        self.verdicts[position] == Verdict::InProgress(Progress::SurgeLeaving)
            && (self.actions.iter().filter(|action| action.ends()))
                .any(|action| pods.iter().any(|pod| pod.uid == action.pod().uid))
    }

    /// Whether a node that was lost with the revision waits for its judgement, be it the network or not.
    fn is_judging(&self) -> bool {
        matches!(self.guard.gate, Some(Guarded::Inconclusive { .. }))
    }

    /// Says of those whom the API server refused that they wait for it, be they tried again by this plan or not; adds them to
    /// `refused`.
    fn tell_refused(&mut self, refused: &mut BTreeSet<(NodeName, Part)>) {
        if self.fleet.refusals.is_nobody_refused() {
            return;
        }
        let terms = self.terms();
        for (position, node) in self.fleet.nodes.iter().enumerate() {
            let part = match (self.verdicts[position], &self.classes[position]) {
                (Verdict::Refused { .. } | Verdict::Budget { .. }, _) => None,
                (Verdict::InProgress(Progress::SurgeStarting), Class::Outdated { .. }) => {
                    Some(Part::Create)
                }
                (
                    Verdict::InProgress(Progress::SurgeTakingOver | Progress::SurgeLeaving),
                    Class::Surging(_),
                )
                | (Verdict::InProgress(Progress::Replacing | Progress::Reverting { .. }), _)
                | (Verdict::Revert(Revert::Pending), _)
                | (Verdict::HookPending { since: None, .. }, _) => Some(Part::Step),
                (Verdict::InProgress(Progress::Terminating), _)
                    if node
                        .pods
                        .iter()
                        .any(|pod| self.fleet.refusals.is_in_doubt(node, pod)) =>
                {
                    Some(Part::Step)
                }
                (Verdict::PullPending(_), _) => Some(Part::Tell),
                // Its readiness gate is shut, by us.
                (Verdict::InProgress(Progress::Starting | Progress::Young { .. }), _)
                    if refused.contains(&(node.name.clone(), Part::Tell)) =>
                {
                    Some(Part::Tell)
                }
                (Verdict::Held { .. } | Verdict::Partition | Verdict::NotSelected, _)
                    if (self.glance.withheld_until(position, terms))
                        .is_some_and(|until| until == Timestamp::MAX) =>
                {
                    Some(Part::Tell)
                }
                _ => continue,
            };
            let parts = match &part {
                Some(part) => std::slice::from_ref(part),
                None => &[Part::Step, Part::Create],
            };
            let at = |part: &Part| {
                let denial = self.gates.refusing.at(&node.name, *part)?;
                Some((*part, denial.since))
            };
            let Some((part, since)) = parts.iter().find_map(at) else {
                continue;
            };
            self.verdicts[position] = Verdict::Refused { since };
            refused.insert((node.name.clone(), part));
        }
    }

    /// Says of those who would be next that another failure domain has its turn.
    fn tell_domains(&mut self) {
        let Some(topology) = self.strategy.topology.as_ref() else {
            return;
        };
        let is_marked = |node: &Node| node.pods.iter().any(|pod| pod.exit.preparing.is_some());
        for (node, verdict) in self.fleet.nodes.iter().zip(&mut self.verdicts) {
            let waits = *verdict == Verdict::Budget { broken: false } && !is_marked(node);
            if waits && is_others_turn(topology, node, &self.domains) {
                *verdict = Verdict::AwaitingDomain;
            }
        }
    }

    /// When one of those who were `refused`, or whoever has to wait because of them, may be tried.
    fn refused_again(&self, refused: &BTreeSet<(NodeName, Part)>) -> Option<Timestamp> {
        let refusing = &self.gates.refusing;
        let matters = !refused.is_empty() || refusing.is_full();
        refusing.wake().filter(|_| matters)
    }

    /// Whether somebody who could begin has to wait only because so much was refused within this second.
    fn waits_for_next_second(&self) -> bool {
        self.gates.refusing.is_full() && self.verdicts.iter().any(Verdict::awaits_turn)
    }

    /// Whether somebody waits for a time, or for something else than those whom the API server refuses.
    fn others_follow(&self) -> bool {
        let follows = |verdict: &Verdict| match *verdict {
            Verdict::PullPending(stage) => !stage.has_failed(),
            Verdict::Guarded(_) | Verdict::BlockedByPdb { .. } => true,
            Verdict::WaveNotOpen { why, .. } => why.is_named(),
            _ => false,
        };
        self.opens.is_some() || self.verdicts.iter().any(follows)
    }

    /// How each wave stands with this plan.
    fn waves(&self) -> Vec<WaveStand> {
        let mut waves = self.gates.front.told(self.strategy.max_unavailable);
        if waves.is_empty() {
            return waves;
        }
        for (position, (class, verdict)) in self.classes.iter().zip(&self.verdicts).enumerate() {
            if let Class::Outdated {
                available: true, ..
            } = class
            {
                let wave = self.gates.front.of_node(position);
                waves[wave].taken += usize::from(begins(verdict));
            }
        }
        waves
    }

    /// Since when nothing moves before a disruption budget lets a pod go; `None`: something does, or may by itself.
    fn blocked_since(&self) -> Option<Timestamp> {
        let (mut since, mut others) = (None, self.opens.is_some());
        for (position, verdict) in self.verdicts.iter().enumerate() {
            match *verdict {
                Verdict::BlockedByPdb { since: from, .. } => {
                    since = since.max(Some(from));
                    let pod = leaving(&self.fleet.nodes[position]);
                    others |= pod.is_some_and(|pod| self.gates.asking.is_hurried(pod));
                }
                Verdict::InProgress(_)
                | Verdict::HookPending { .. }
                | Verdict::PullPending(_)
                | Verdict::Revert(_)
                | Verdict::Guarded(_) => others = true,
                Verdict::FailedByRevision { cause, .. } => others |= cause.holds_slot(),
                Verdict::WaveNotOpen { why, .. } => others |= why.is_named(),
                _ => {}
            }
        }
        since.filter(|_| !others)
    }

    /// Whether everybody who is left and online waits for a wave in which a node failed: a person has to look at that.
    fn is_behind_a_failed_wave(&self, counts: &Counts) -> bool {
        let is_shut = |why: Option<Verdict>| {
            let Some(Verdict::WaveNotOpen { why, .. }) = why else {
                return false;
            };
            matches!(why, WaveShut::Charged { .. })
        };
        let waiting = self.verdicts.iter();
        let waiting = waiting.filter(|verdict| is_shut(Some(**verdict))).count();
        let moves = |(position, verdict): (usize, &Verdict)| match verdict {
            Verdict::Offline(Offline::Settling { .. }) => !is_shut(self.gates.shut_at(position)),
            verdict => verdict.is_in_flight(),
        };
        waiting > 0 && waiting == counts.outdated && !self.verdicts.iter().enumerate().any(moves)
    }

    /// When a pod may be asked for again that a disruption budget did not let go.
    fn asked_again(&self) -> Option<Timestamp> {
        if !self.gates.asking.is_any_refused() {
            return None;
        }
        let nodes = self.fleet.nodes.iter().zip(&self.verdicts);
        let waits =
            |told: &Verdict| told.awaits_turn() || matches!(told, Verdict::BlockedByPdb { .. });
        let waiting = nodes.filter(|(_, told)| waits(told));
        let due = waiting.filter_map(|(node, _)| self.gates.asking.due(leaving(node)?));
        due.filter(|due| *due > self.now).min()
    }

    /// When a gate opens or shuts for a node that waits.
    fn gate_changes(&self) -> Option<Timestamp> {
        let waits = |class: &Class| matches!(class, Class::Outdated { .. });
        let waiting = self.classes.iter().enumerate();
        let waiting = waiting.filter(|(_, class)| waits(class));
        waiting
            .filter_map(|(position, _)| self.gates.changes_at(position))
            .min()
    }

    /// When nodes change their class by time alone: back for long enough, or available for long enough.
    fn turns(&self) -> impl Iterator<Item = Timestamp> {
        fn alive(node: &Node) -> Option<&Pod> {
            node.pods.iter().find(|pod| !pod.terminating)
        }
        let terms = self.terms();
        let available_at = move |node: &Node| terms.available_at(alive(node)?);
        // Who was out of service because of us is back, or is not because of us any more.
        let serves_again = move |position: usize| {
            let is_kept = matches!(self.classes[position], Class::Kept(_));
            let starting = is_kept.then(|| self.glance.starting_until(position, terms));
            let until = [
                self.glance.withheld_until(position, terms),
                starting.flatten(),
            ];
            let mut until = until.into_iter().flatten().peekable();
            until.peek()?;
            let back = available_at(&self.fleet.nodes[position]);
            let turns = until.chain(back);
            turns
                .filter(|at| *at > self.now && *at < Timestamp::MAX)
                .min()
        };
        let turn = move |(position, (node, class)): (usize, (&Node, &Class))| match *class {
            Class::InProgress(Progress::Young { available_at }) => Some(available_at),
            Class::InProgress(Progress::Missing { .. }) if node.is_barred() => judged_at(node),
            Class::InProgress(Progress::Surplus) => {
                let pods = node.pods.iter().filter_map(|pod| pod.ready_since);
                let ripe = pods.map(|since| later(since, self.strategy.min_ready));
                ripe.filter(|at| *at > self.now).min()
            }
            Class::Surging(ref pair) => pair.turn,
            Class::Kept(_) | Class::NotTargeted if self.glance.is_surging => {
                let parts = Parting::of(node, terms).and_then(|parting| parting.turn);
                parts.into_iter().chain(serves_again(position)).min()
            }
            Class::Kept(_) => serves_again(position),
            Class::Outdated {
                settling: Some(until),
                ..
            } => Some(until),
            Class::Preparing {
                available,
                overdue,
                settling,
                ..
            } => {
                let overdue_at = alive(node).and_then(removal::overdue_at);
                let overdue_at = overdue_at.filter(|_| !overdue);
                let available_at = available_at(node).filter(|_| !available);
                let turns = [overdue_at, available_at, settling];
                turns.into_iter().flatten().min()
            }
            Class::Outdated {
                available: false, ..
            }
            | Class::InProgress(Progress::Reverting { .. })
            | Class::Unknown { available: false } => {
                let waves = self.strategy.waves.is_some();
                let started = waves.then(|| starting_until(self.strategy, &self.glance, position));
                let turns = available_at(node).into_iter().chain(started.flatten());
                let turns = turns.chain(serves_again(position));
                // A pod that is taken back while it is available counts as available before its image changes.
                turns.filter(|at| *at > self.now).min()
            }
            _ => None,
        };
        // What began where no pod belongs any more takes a slot for as long as a node may be charged.
        let window = failure_window(self.strategy);
        let lets_go = move |(_, (node, class)): (usize, (&Node, &Class))| {
            let began = matches!(class, Class::InProgress(_) | Class::Failed { .. });
            let is_barred = began && node.targeting != Targeting::Run;
            let revised = alive(node).filter(|_| is_barred).map(Pod::revised)?;
            Some(later(revised, window)).filter(|at| *at > self.now)
        };
        let nodes = self.fleet.nodes.iter().zip(&self.classes);
        let nodes = nodes.enumerate();
        nodes.filter_map(move |told| turn(told).into_iter().chain(lets_go(told)).min())
    }

    /// Whether one of the pods of a node is of the current revision and available.
    fn serves(&self, position: usize) -> bool {
        let ripe = |since| later(since, self.strategy.min_ready) <= self.now;
        self.fleet.nodes[position].pods.iter().any(|pod| {
            !pod.terminating
                && pod.revision == PodRevision::Current
                && pod.ready_since.is_some_and(ripe)
        })
    }

    /// Nodes whose pods crashed, run at the moment, and have not proved themselves: between two crashes a rollout is not well.
    /// A node that was away started its containers again for another reason.
    fn relapsing(&self) -> usize {
        let failed = self.guard.record.iter().flat_map(|record| &record.failed);
        let crashed = |pod: &Pod, since: Timestamp| {
            let mut containers = pod.in_place.containers.iter();
            since <= pod.revised() && containers.any(|container| container.restarts > 0)
        };
        let relapsing = failed.filter(|name| {
            let Ok(position) = position_of(&self.fleet.nodes, name) else {
                return false;
            };
            let node = &self.fleet.nodes[position];
            let Readiness::Ready { since } = node.readiness else {
                return false;
            };
            let runs = matches!(
                self.classes[position],
                Class::Done | Class::InProgress(Progress::Young { .. } | Progress::Starting)
            );
            runs && node.pods.iter().any(|pod| crashed(pod, since))
        });
        relapsing.count()
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts {
            targeted: self.budget.targeted,
            base: self.budget.base,
            allowed: match self.strategy.mode {
                Mode::AdvancedRollingUpdate => self.budget.allowed,
                Mode::Ota => 0,
            },
            failures: self.guard.failures,
            threshold: self.guard.threshold,
            ..Counts::default()
        };
        (counts.unavailable, counts.withheld) = (self.budget.used(), self.budget.staying());
        counts.relapsing = self.relapsing();
        (counts.surging, counts.surge_allowed) = (self.budget.surging, self.budget.surge);
        for (position, (class, verdict)) in self.classes.iter().zip(&self.verdicts).enumerate() {
            counts.by_word[verdict.index()] += 1;
            counts.updated += usize::from(match class {
                Class::Done => true,
                Class::InProgress(Progress::Surplus) => self.serves(position),
                _ => false,
            });
            match *class {
                Class::Offline { updated, .. } => {
                    counts.offline += 1;
                    counts.offline_outdated += usize::from(!updated);
                }
                Class::Failed { cause, .. } => {
                    counts.failed += 1;
                    counts.offline += usize::from(cause == Cause::NodeLost);
                    counts.barred += usize::from(cause == Cause::Barred);
                    counts.lost += usize::from(!cause.holds_slot());
                }
                Class::InProgress(progress) => {
                    let is_back = matches!(progress, Progress::Reverting { .. });
                    counts.in_progress += 1;
                    counts.outdated += usize::from(is_back);
                    counts.reverted += usize::from(is_back);
                }
                Class::Kept(_) => counts.kept += 1,
                Class::Repelled => counts.repelled += 1,
                Class::Outdated {
                    settling: Some(_), ..
                } => counts.offline_outdated += 1,
                Class::Preparing { .. } => counts.outdated += 1,
                Class::Surging(ref pair) => {
                    counts.outdated += usize::from(pair.outdated);
                    counts.updated += usize::from(!pair.outdated);
                }
                Class::Outdated { available, .. } => {
                    let replacing = begins(verdict);
                    let surging = *verdict == Verdict::InProgress(Progress::SurgeStarting);
                    counts.surging += usize::from(surging);
                    counts.reverted += usize::from(*verdict == Verdict::Revert(Revert::Done));
                    counts.outdated += 1;
                    counts.unavailable += usize::from(available && replacing);
                    counts.in_progress += usize::from(replacing);
                    counts.broken_before += usize::from(!available && !replacing);
                }
                _ => {}
            }
        }
        counts
    }
}

/// Whether this is the verdict of an outdated node whose turn is now.
fn begins(verdict: &Verdict) -> bool {
    matches!(
        verdict,
        Verdict::InProgress(Progress::Replacing) | Verdict::HookPending { .. }
    )
}

/// The pod of a node that has to go, whether another one stands beside it or not.
fn leaving(node: &Node) -> Option<&Pod> {
    let is_old = |pod: &&Pod| pod.revision == PodRevision::Outdated;
    surge::alive(node).filter(is_old)
}
