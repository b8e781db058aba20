//! The decision: one pass over a fleet.
//!
//! ```text
//! nodes ──classify──► classes ──guard──► classes ──scope──► classes ──gates──► candidates ──budget──► actions + verdicts ──phase──► Plan
//! ```
//!
//! # Guarantees
//! - The same input gives the same plan; nothing but the arguments is looked at.
//! - A plan that is carried out twice changes nothing more.
//! - Nodes are served in a stated order (see `order`).

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use super::budget::{BATCH, Budget, starting_until};
use super::classify::{Class, classify, later};
use super::domains::Domains;
use super::fleet::{Behind, Fleet, Node, Pod, PodRevision, PodUid, RevisionState};
use super::gates::Gates;
use super::guard::Guard;
use super::in_place::{Recreate, Way};
use super::order::{Order, Turn};
use super::pace::Pace;
use super::pause::{PauseStand, is_paused};
use super::plan::{Action, Counts, Phase, Plan, Pull};
use super::revert::Reversal;
use super::scope::Scope;
use super::strategy::{Mode, Strategy};
use super::verdict::{Cause, Guarded, Progress, Revert, Verdict, WaveShut};
use super::waves::Front;
use super::{guard, in_place, ota, phase, removal, revert, surge};

/// What to do with `fleet` at `now`, as `strategy` asks.
///
/// # Assumptions
/// `fleet.nodes` is sorted by name and each pod of the DaemonSet stands in exactly one of them. `now` never runs
/// backwards between calls; if it does, the worst is a later replacement.
pub fn decide(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> Plan {
    let mut draft = Draft::new(strategy, fleet, now);
    match &fleet.revision {
        RevisionState::Behind(behind) => draft.hold(*behind),
        RevisionState::Current(_) if draft.meets_unknown() => draft.hold(Behind::UnknownRevision),
        RevisionState::Current(revision) if is_paused(strategy, now) => {
            if strategy.mode == Mode::Ota {
                draft.pulls = ota::pulls(fleet, revision, true);
            } else if let Some(images) = &draft.gates.images {
                draft.pulls = images.rest(fleet);
            }
            draft.pause()
        }
        RevisionState::Current(revision) => match strategy.mode {
            Mode::Ota => {
                draft.actions = surge::release(fleet);
                draft.actions.extend(ota::announce(fleet, revision));
                draft.keep_marks_true();
                draft.pulls = ota::pulls(fleet, revision, false);
                draft.await_owners()
            }
            Mode::AdvancedRollingUpdate => {
                draft.roll();
                draft.finish(None)
            }
        },
    }
}

/// What to write to the pods of a DaemonSet that is ours no longer (annotation removed, or not under `OnDelete`): what OTA
/// mode left behind goes, and so does every pod that was made beside another one, unless it is all there is.
pub fn release(fleet: &Fleet) -> Vec<Action> {
    let mut actions = surge::release(fleet);
    actions.extend(ota::withdraw(fleet.nodes.iter().flat_map(surge::own)));
    let ready = fleet.nodes.iter().filter(|node| node.is_ready());
    let pods = ready.flat_map(|node| &node.pods);
    let alive = pods.filter(|pod| !pod.terminating);
    actions.extend(alive.filter_map(|pod| removal::stay(pod, false)));
    actions
}

/// The positions of the outdated nodes that may be replaced at `now`, in the order in which they have their turn; a plan of
/// the same moment replaces some of them.
pub fn queue(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> Vec<usize> {
    let draft = Draft::new(strategy, fleet, now);
    draft
        .queue(true)
        .into_iter()
        .map(|turn| turn.position)
        .collect()
}

/// How the pod of a node is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It is deleted, and the native controller makes the next one.
    Delete,
    /// The next one is made beside it.
    Surge,
}

/// How many more nodes may be replaced now, and how.
struct Slots {
    broken: usize,
    available: usize,
    surge: usize,
}

impl Slots {
    fn of(budget: &Budget, strategy: &Strategy) -> Self {
        Self {
            broken: budget.for_broken(strategy),
            available: budget.for_available(),
            surge: budget.for_surge(),
        }
    }

    /// What a wave limits by its own `max-unavailable`; `max-surge` is one for all.
    fn of_wave([broken, available]: [usize; 2]) -> Self {
        Self {
            broken,
            available,
            surge: usize::MAX,
        }
    }

    fn is_empty(&self) -> bool {
        [self.broken, self.available, self.surge] == [0; 3]
    }

    /// The slot of a node whose old pod is available or not, where its wave has one too: a broken one has nothing to lose
    /// and is deleted, as far as `max-unavailable` goes; an available one gets its successor first, as far as `max-surge`
    /// goes.
    ///
    /// Whose pod may not be deleted now (`may_delete`) can still get a successor first.
    fn take(&mut self, in_wave: &mut Self, available: bool, may_delete: bool) -> Option<Manner> {
        let pairs = match available {
            true => [
                (&mut self.surge, &mut in_wave.surge, Manner::Surge),
                (&mut self.available, &mut in_wave.available, Manner::Delete),
            ],
            false => [
                (&mut self.broken, &mut in_wave.broken, Manner::Delete),
                (&mut self.surge, &mut in_wave.surge, Manner::Surge),
            ],
        };
        let mut pairs = pairs.into_iter();
        let is_open = |manner| may_delete || manner != Manner::Delete;
        let (slots, in_wave, manner) =
            pairs.find(|(all, wave, manner)| **all > 0 && **wave > 0 && is_open(*manner))?;
        (*slots, *in_wave) = (*slots - 1, *in_wave - 1);
        Some(manner)
    }
}

/// A plan in the making.
struct Draft<'a> {
    strategy: &'a Strategy,
    fleet: &'a Fleet,
    now: Timestamp,
    classes: Vec<Class>,
    /// Whether a pod carries a condition of OTA mode.
    announced: bool,
    /// Whether a pod is marked for its way out, or could be.
    marked: bool,
    scope: Scope,
    budget: Budget,
    guard: Guard,
    gates: Gates<'a>,
    /// The pause that holds, if one does.
    pause: Option<PauseStand>,
    /// Before this instant nothing is replaced (`min-interval`).
    opens: Option<Timestamp>,
    /// When a node may be asked again to pull its images.
    pulls_again: Option<Timestamp>,
    /// The failure domains that are held or have their turn.
    domains: Vec<String>,
    actions: Vec<Action>,
    /// Why pods are made anew although an update in place was asked for.
    recreates: Option<Recreate>,
    pulls: Vec<Pull>,
    verdicts: Vec<Verdict>,
    /// How far a stopped revision is taken back.
    reversal: Option<Reversal>,
    /// When time alone adds somebody to those who are taken back.
    reverts_again: Option<Timestamp>,
}

impl<'a> Draft<'a> {
    /// Gives every node the class and verdict that follow from its own state, and looks at every pod just once.
    fn new(strategy: &'a Strategy, fleet: &'a Fleet, now: Timestamp) -> Self {
        let (mut announced, mut marked) = (false, false);
        let class = |node: &Node| {
            announced |= node.pods.iter().any(ota::is_announced);
            marked |= node.pods.iter().any(removal::is_marked);
            classify(strategy, node, now)
        };
        let mut classes: Vec<Class> = fleet.nodes.iter().map(class).collect();
        let charges = guard::charge(strategy, fleet, now, &mut classes);
        revert::mark(strategy, fleet, &mut classes);
        let scope = Scope::of(strategy, fleet, now);
        scope.narrow(strategy, fleet, &mut classes);
        let front = Front::of(strategy, fleet, &classes, &scope, now);
        let budget = Budget::count(&classes, &scope, strategy, &front, (fleet, now));
        let guard = charges.conclude(strategy, fleet, &classes, &budget, now);
        Self {
            strategy,
            fleet,
            now,
            budget,
            scope,
            gates: Gates::of(strategy, fleet, front, guard.gate, now),
            guard,
            pause: PauseStand::of(strategy, fleet, now),
            opens: None,
            pulls_again: None,
            domains: Vec::new(),
            actions: Vec::new(),
            recreates: None,
            pulls: Vec::new(),
            reversal: None,
            reverts_again: None,
            verdicts: classes.iter().map(Class::verdict).collect(),
            classes,
            announced,
            marked,
        }
    }

    /// Whether an online node runs a revision that is not known: this view may be older than that pod.
    fn meets_unknown(&self) -> bool {
        let is_unknown = |class: &Class| matches!(class, Class::Unknown { .. });
        self.classes.iter().any(is_unknown)
    }

    /// Nothing is replaced before the native controller and this view agree on the revision.
    fn hold(mut self, behind: Behind) -> Plan {
        self.guard = Guard {
            record: self.fleet.record.clone(),
            ..Guard::default()
        };
        for (verdict, class) in self.verdicts.iter_mut().zip(&self.classes) {
            if matches!(
                class,
                Class::Done
                    | Class::InProgress(_)
                    | Class::Surging(_)
                    | Class::Outdated { .. }
                    | Class::Preparing { .. }
                    | Class::Kept(_)
                    | Class::Unknown { .. }
            ) {
                *verdict = Verdict::NativeControllerBehind;
            }
        }
        self.finish(Some(Phase::Behind(behind)))
    }

    /// Nothing is written to any pod.
    fn pause(mut self) -> Plan {
        let until = self.pause.as_ref().and_then(|stand| stand.until);
        self.tell_outdated(Verdict::Paused { until });
        let phase = self.is_any_outdated().then_some(Phase::Paused { until });
        self.finish(phase)
    }

    /// The owners of the nodes decide.
    fn await_owners(mut self) -> Plan {
        self.tell_outdated(Verdict::AwaitingOwner);
        let phase = self.is_any_outdated().then_some(Phase::AwaitingOwners);
        self.finish(phase)
    }

    fn tell_outdated(&mut self, told: Verdict) {
        for (verdict, class) in self.verdicts.iter_mut().zip(&self.classes) {
            if matches!(class, Class::Outdated { settling: None, .. }) {
                *verdict = told;
            }
        }
    }

    /// Replaces what the budget allows, in the stated order.
    fn roll(&mut self) {
        self.go_on_beside();
        self.go_on();
        self.take_back();
        let front = &self.gates.front;
        let mut pace = Pace::of(self.strategy, self.fleet, &self.classes, front, self.now);
        let waiting = pace
            .iter()
            .enumerate()
            .filter(|(wave, _)| front.waits(*wave));
        let opens = waiting.filter_map(|(_, pace)| pace.opens).min();
        self.opens = opens.filter(|_| self.is_any_outdated());
        let mut in_wave: Vec<Slots> = (0..front.count())
            .map(|wave| Slots::of_wave(front.slots(wave, self.strategy)))
            .collect();
        let mut slots = Slots::of(&self.budget, self.strategy);
        let mut left = BATCH.saturating_sub(self.actions.len());
        let queue = match slots.is_empty() {
            true if self.strategy.topology.is_none() => Vec::new(),
            _ => self.queue(true),
        };
        let domains = Domains::of(self.strategy, self.fleet, &self.classes, &queue);
        self.domains = domains.names();
        for turn in queue {
            if left == 0 || slots.is_empty() {
                break;
            }
            let (in_wave, in_time) = (&mut in_wave[turn.wave], &mut pace[turn.wave].replacements);
            let may_delete = self.may_delete(turn.position);
            if *in_time > 0
                && domains.may_begin(&self.fleet.nodes[turn.position])
                && let Some(manner) = slots.take(in_wave, turn.available, may_delete)
            {
                self.replace(turn.position, manner);
                *in_time -= 1;
                left -= 1;
            }
        }
        self.tell_shut();
        let asked = self.ask_for_images();
        if self.announced {
            self.withdraw(&asked);
        }
        self.keep_marks_true();
    }

    /// What is under way beside old pods goes on, whatever keeps others from beginning. An old pod that may go now is
    /// asked for first, as any other is.
    fn go_on_beside(&mut self) {
        for position in 0..self.classes.len() {
            if self.actions.len() >= BATCH {
                break; // the rest follows when these are done
            }
            let node = &self.fleet.nodes[position];
            let actions = match self.classes[position] {
                Class::Surging(pair) => {
                    let old = surge::alive(node).filter(|_| pair.step == surge::Step::Retire);
                    let leaves = old.and_then(|old| {
                        let (leaves, told) = self.leave(old);
                        let is_known = |told: &Verdict| matches!(told, Verdict::InProgress(_));
                        if let Some(told) = told.filter(|told| !is_known(told)) {
                            self.verdicts[position] = pair.failed_or(told);
                        }
                        leaves
                    });
                    pair.actions(node, leaves)
                }
                Class::NotTargeted | Class::NoNode => surge::leave(node),
                _ => continue,
            };
            self.actions.extend(actions);
        }
    }

    /// Lets the pods go whose hooks are gone; none while the guard holds the revision.
    fn go_on(&mut self) {
        if self.guard.gate.is_some() {
            return;
        }
        let mut free = self.budget.for_waiting();
        let front = &self.gates.front;
        let share = self.strategy.max_unavailable;
        let mut in_wave: Vec<usize> = (0..front.count())
            .map(|wave| front.for_waiting(wave, share))
            .collect();
        for position in 0..self.classes.len() {
            let Class::Preparing {
                available,
                settling: None,
                ..
            } = self.classes[position]
            else {
                continue;
            };
            let in_wave = &mut in_wave[self.gates.front.of_node(position)];
            let written = self.actions.len();
            if !available || free > 0 && *in_wave > 0 {
                self.replace(position, Manner::Delete);
            } else if !removal::is_hooked(self.strategy, &self.fleet.nodes[position]) {
                self.verdicts[position] = Verdict::Budget { broken: false };
            }
            let goes = self.actions[written..].iter().any(Action::takes_down);
            free = free.saturating_sub(usize::from(available && goes));
            *in_wave = in_wave.saturating_sub(usize::from(available && goes));
        }
    }

    /// Takes pods back that have the revision which the guard stopped.
    fn take_back(&mut self) {
        let revert::Turns {
            turns,
            reversal,
            again,
        } = revert::turns(
            self.strategy,
            self.fleet,
            &self.classes,
            &self.scope,
            self.now,
        );
        (self.reversal, self.reverts_again) = (reversal, again);
        if self.reversal.is_none() {
            return;
        }
        let front = &self.gates.front;
        let mut in_wave: Vec<usize> = (0..front.count())
            .map(|wave| front.slots(wave, self.strategy)[1])
            .collect();
        let mut free = self.budget.for_available();
        let order = Order::of(self.fleet, &self.classes, &self.scope);
        let available = turns.iter().filter(|turn| turn.is_available());
        let queue = available.map(|turn| {
            let wave = front.of_node(turn.position);
            order.turn(self.fleet, turn.position, wave, true)
        });
        let queue: Vec<Turn> = queue.collect();
        let domains = Domains::of(self.strategy, self.fleet, &self.classes, &queue);
        for turn in turns {
            if self.actions.len() >= BATCH {
                break; // the rest follows when these are done
            }
            let node = &self.fleet.nodes[turn.position];
            if turn.is_available() {
                self.verdicts[turn.position] = Verdict::Revert(Revert::Pending);
                let in_wave = &mut in_wave[self.gates.front.of_node(turn.position)];
                let opening = self.gates.opening_at(turn.position);
                let may_begin = opening.is_open && domains.may_begin(node);
                if !may_begin || free == 0 || *in_wave == 0 {
                    let again = self.reverts_again.into_iter();
                    self.reverts_again = again.chain(opening.changes).min();
                    continue;
                }
                (free, *in_wave) = (free - 1, *in_wave - 1);
                self.budget.in_flight += 1;
            }
            let pod = node.pods.iter().find(|pod| !pod.terminating);
            let Some(pod) = pod.map(ota::reference) else {
                continue;
            };
            let progress = Progress::Reverting { since: self.now };
            self.classes[turn.position] = Class::InProgress(progress);
            self.verdicts[turn.position] = Verdict::InProgress(progress);
            let renewal = turn.renewal;
            self.actions.push(Action::UpdateInPlace { pod, renewal });
        }
    }

    /// Takes the marks off the pods that are not on their way out, or not any more.
    fn keep_marks_true(&mut self) {
        if !self.marked {
            return;
        }
        let hook = self.strategy.pre_delete.as_ref();
        let opens = hook.is_some_and(|hook| hook.mark_not_ready);
        let leaves = |position: usize| {
            matches!(self.classes[position], Class::Preparing { .. })
                || matches!(
                    (&self.classes[position], &self.verdicts[position]),
                    (_, Verdict::HookPending { .. })
                        | (
                            _,
                            Verdict::InProgress(Progress::Replacing | Progress::SurgeTakingOver)
                        )
                        | (Class::Surging(_), Verdict::BlockedByPdb { .. })
                )
        };
        let deleted = self.ended();
        let nodes = self.fleet.nodes.iter().enumerate();
        let staying = nodes.filter(|(position, node)| node.is_ready() && !leaves(*position));
        let pods = staying.flat_map(|(_, node)| &node.pods);
        let alive = pods.filter(|pod| !pod.terminating && !deleted.contains(&pod.uid));
        let marks = alive.filter_map(|pod| removal::stay(pod, opens));
        let marks: Vec<Action> = marks.take(BATCH).collect();
        self.actions.extend(marks);
    }

    /// The pods that go because of this plan.
    fn ended(&self) -> BTreeSet<PodUid> {
        let ends = self.actions.iter().filter(|action| action.ends());
        ends.map(|action| action.pod().uid.clone()).collect()
    }

    /// Has nodes pull ahead that wait for their replacement; says which are asked now.
    fn ask_for_images(&mut self) -> BTreeSet<usize> {
        let Some(images) = &self.gates.images else {
            return BTreeSet::new();
        };
        let queue = || self.queue(false).iter().map(|turn| turn.position).collect();
        let (classes, verdicts) = (&self.classes, &self.verdicts);
        let asking = images.ask(self.fleet, classes, verdicts, self.budget.base, queue);
        self.actions.extend(asking.actions);
        self.pulls = asking.pulls;
        self.pulls_again = asking.wake;
        asking.asked
    }

    /// Says of the nodes that would be next what they wait for.
    fn tell_shut(&mut self) {
        for (position, class) in self.classes.iter().enumerate() {
            if !matches!(class, Class::Outdated { settling: None, .. }) {
                continue;
            }
            let blocked = || {
                let waits = matches!(self.verdicts[position], Verdict::Budget { .. });
                self.gates.blocked_at(position).filter(|_| waits)
            };
            if let Some(verdict) = self.gates.shut_at(position).or_else(blocked) {
                let is_back = revert::is_back(self.strategy, self.fleet, position);
                self.verdicts[position] = match is_back {
                    true => Verdict::Revert(Revert::Done),
                    false => verdict,
                };
            }
        }
    }

    /// Whether the pod of the node at `position` can be made to go now, as far as disruption budgets go.
    fn may_delete(&self, position: usize) -> bool {
        let pod = self.fleet.nodes[position].outdated();
        pod.is_none_or(|pod| {
            let is_in_place = || match in_place::way(self.strategy, self.fleet, pod) {
                Way::InPlace(_) => true,
                Way::Recreate(_) => false,
            };
            self.gates.asking.may_ask(pod) || is_in_place()
        })
    }

    fn leave(&mut self, pod: &Pod) -> (Option<Action>, Option<Verdict>) {
        removal::leave(self.strategy, &mut self.gates.asking, pod, self.now)
    }

    /// The nodes whose gates are open (or all that wait), the first in the queue first.
    fn queue(&self, open: bool) -> Vec<Turn> {
        let order = Order::of(self.fleet, &self.classes, &self.scope);
        let classes = self.classes.iter().enumerate();
        let turns = classes.filter_map(|(position, class)| match *class {
            Class::Outdated {
                available,
                settling: None,
            } if !open || self.gates.shut_at(position).is_none() => {
                let wave = self.gates.front.of_node(position);
                Some(order.turn(self.fleet, position, wave, available))
            }
            _ => None,
        });
        let mut queue: Vec<Turn> = turns.collect();
        queue.sort_unstable();
        queue
    }

    /// What OTA mode left behind goes, and what tells of images that nobody waits for, unless its pod goes anyway or
    /// is `asked` for something else by this very plan.
    fn withdraw(&mut self, asked: &BTreeSet<usize>) {
        let keeps_image = |position: usize, pod: &Pod| {
            let images = self.gates.images.as_ref();
            asked.contains(&position)
                || images.is_some_and(|images| images.keeps(position, &self.classes[position], pod))
        };
        let ended = self.ended();
        let nodes = self.fleet.nodes.iter().enumerate();
        let kept = nodes.filter(|(position, _)| {
            !matches!(
                self.verdicts[*position],
                Verdict::InProgress(Progress::Replacing | Progress::SurgeTakingOver)
            )
        });
        let pods =
            kept.flat_map(|(position, node)| surge::own(node).map(move |pod| (position, pod)));
        let pods = pods.filter(|(_, pod)| !ended.contains(&pod.uid));
        let pods = pods.map(|(position, pod)| (pod, keeps_image(position, pod)));
        let withdrawn = ota::withdraw_but_images(pods);
        self.actions.extend(withdrawn);
    }

    fn replace(&mut self, position: usize, manner: Manner) {
        let node = &self.fleet.nodes[position];
        let Some(pod) = node.outdated() else {
            return;
        };
        if let (Manner::Surge, RevisionState::Current(revision)) = (manner, &self.fleet.revision) {
            self.actions.push(Action::Surge {
                node: node.name.clone(),
                beside: ota::reference(pod),
                revision: revision.clone(),
            });
            self.verdicts[position] = Verdict::InProgress(Progress::SurgeStarting);
            return;
        }
        let in_place = match in_place::way(self.strategy, self.fleet, pod) {
            Way::InPlace(change) => in_place::renewal(self.fleet, pod, &change),
            Way::Recreate(why) => {
                self.recreates = self.recreates.or(why);
                None
            }
        };
        let (action, verdict) = match in_place {
            Some(renewal) => {
                let pod = ota::reference(pod);
                let update = Action::UpdateInPlace { pod, renewal };
                let told = Verdict::InProgress(Progress::Replacing);
                (Some(update), Some(told))
            }
            None => self.leave(pod),
        };
        self.actions.extend(action);
        self.verdicts[position] = verdict.unwrap_or(self.verdicts[position]);
    }

    /// Whether a targeted node is online, settled and outdated.
    fn is_any_outdated(&self) -> bool {
        let is_outdated = |class: &Class| {
            matches!(
                class,
                Class::Outdated { settling: None, .. }
                    | Class::Preparing { .. }
                    | Class::Surging(_)
            )
        };
        self.classes.iter().any(is_outdated)
    }

    fn finish(self, phase: Option<Phase>) -> Plan {
        let counts = self.counts();
        let waves = match phase {
            Some(Phase::Behind(_)) => Vec::new(),
            _ => self.gates.front.told(self.strategy.max_unavailable),
        };
        // Who was refused and is asked once more does not move before the answer is another one.
        let begun = self.actions.iter().filter(|action| action.begins());
        let moving = begun.count() > self.gates.asking.again();
        let blocked = self.blocked_since().filter(|_| !moving);
        let judged = || {
            let stopped = match self.guard.gate {
                Some(Guarded::Stopped(stopped))
                    if counts.outdated > 0 || self.reversal.is_some() =>
                {
                    Some(stopped)
                }
                _ => None,
            };
            let about = (self.fleet, self.verdicts.as_slice(), stopped, blocked);
            phase::of_rollout(about, &counts, moving, self.now)
        };
        let (phase, wake) = phase.map_or_else(judged, |phase| (phase, None));
        let next_wake = self
            .turns()
            .chain(wake)
            .chain(self.scope.next_change())
            .chain(self.opens)
            .chain(self.pulls_again)
            .chain(self.guard.changes)
            .chain(self.gate_changes())
            .chain(self.reverts_again)
            .chain(self.asked_again())
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
            domains: self.domains,
            guarded: self.guard.gate,
            record: self.guard.record,
            reversal: self.reversal,
            pause: self.pause,
            waves,
            blocked: blocked.is_some(),
            next_wake,
        }
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
                | Verdict::FailedByRevision { .. }
                | Verdict::OutOfWindow { .. }
                | Verdict::PullPending(_)
                | Verdict::Revert(_)
                | Verdict::Guarded(_) => others = true,
                Verdict::WaveNotOpen { why, .. } => {
                    others |= !matches!(why, WaveShut::Unfinished { .. });
                }
                _ => {}
            }
        }
        since.filter(|_| !others)
    }

    /// When a pod may be asked for again that a disruption budget did not let go.
    fn asked_again(&self) -> Option<Timestamp> {
        let nodes = self.fleet.nodes.iter().zip(&self.verdicts);
        let waits =
            |told: &Verdict| matches!(told, Verdict::BlockedByPdb { .. } | Verdict::Budget { .. });
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
        let available_at = |node: &Node| {
            let pod = node.pods.iter().find(|pod| !pod.terminating)?;
            let since = pod.ready_since?;
            // While its image changes no time makes it available.
            (!pod.in_place.is_under_way()).then(|| later(since, self.strategy.min_ready))
        };
        let turn = move |(node, class): (&Node, &Class)| match *class {
            Class::InProgress(Progress::Young { available_at }) => Some(available_at),
            Class::InProgress(Progress::Surplus) => {
                let pods = node.pods.iter().filter_map(|pod| pod.ready_since);
                let ripe = pods.map(|since| later(since, self.strategy.min_ready));
                ripe.filter(|at| *at > self.now).min()
            }
            Class::Surging(pair) => pair.turn,
            Class::Outdated {
                settling: Some(until),
                ..
            } => Some(until),
            Class::Preparing {
                preparing,
                available,
                overdue,
                settling,
            } => {
                let overdue_at = removal::overdue_at(preparing).filter(|_| !overdue);
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
                let started = waves.then(|| starting_until(self.strategy, node));
                let started = started.flatten().filter(|at| *at > self.now);
                available_at(node).into_iter().chain(started).min()
            }
            _ => None,
        };
        self.fleet.nodes.iter().zip(&self.classes).filter_map(turn)
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

    fn counts(&self) -> Counts {
        let mut counts = Counts {
            targeted: self.budget.targeted,
            base: self.budget.base,
            allowed: self.budget.allowed,
            failures: self.guard.failures,
            threshold: self.guard.threshold,
            ..Counts::default()
        };
        counts.unavailable = self.budget.used();
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
                    let lost = usize::from(cause == Cause::NodeLost);
                    counts.offline += lost;
                    counts.lost += lost;
                }
                Class::InProgress(progress) => {
                    let is_back = matches!(progress, Progress::Reverting { .. });
                    counts.in_progress += 1;
                    counts.outdated += usize::from(is_back);
                    counts.reverted += usize::from(is_back);
                }
                Class::Kept(_) => counts.kept += 1,
                Class::Outdated {
                    settling: Some(_), ..
                } => counts.offline_outdated += 1,
                Class::Preparing { .. } | Class::Surging(_) => counts.outdated += 1,
                Class::Outdated { available, .. } => {
                    let replacing = matches!(
                        verdict,
                        Verdict::InProgress(Progress::Replacing) | Verdict::HookPending { .. }
                    );
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

/// The pod of a node that has to go, whether another one stands beside it or not.
fn leaving(node: &Node) -> Option<&Pod> {
    let is_old = |pod: &&Pod| pod.revision == PodRevision::Outdated;
    surge::alive(node).filter(is_old)
}
