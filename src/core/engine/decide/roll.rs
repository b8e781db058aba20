//! Rollout step of a plan: chooses the nodes that are updated next, and how each pod is replaced.

use std::collections::BTreeSet;

use super::PlanDraft;
use super::slots::{SlotKind, Slots};
use crate::core::action::{Action, BATCH};
use crate::core::engine::class::Class;
use crate::core::engine::domains::Domains;
use crate::core::engine::order::{Order, Turn};
use crate::core::engine::predownload::Images;
use crate::core::engine::rate_limit::RateLimit;
use crate::core::engine::replacement::{self, UpdateMethod};
use crate::core::engine::revert::RevertTurn;
use crate::core::engine::{ota, removal, revert, surge};
use crate::core::fleet::Pod;
use crate::core::id::{PodUid, RevisionState};
use crate::core::verdict::{Progress, PullStage, Revert, Verdict};

impl PlanDraft<'_> {
    /// Replaces as many pods as the budget allows, in the order of the queue.
    ///
    /// Returns true if the list of nodes was too short: the budget allows more replacements, and the next node is only counted
    /// ([`crowd`](crate::core::engine::crowd)), not listed.
    pub(super) fn roll(&mut self) -> bool {
        self.step_surge_pairs(true);
        self.delete_unhooked();
        self.roll_back();
        let wave_progress = &self.evaluation.preconditions.wave_progress;
        let mut pace = RateLimit::new(
            self.evaluation.strategy,
            &self.evaluation.classes,
            &self.verdicts,
            &self.evaluation.summary,
            wave_progress,
            self.evaluation.now,
        );
        let waiting = pace
            .iter()
            .enumerate()
            .filter(|(wave, _)| wave_progress.waits(*wave));
        let opens = waiting.filter_map(|(_, pace)| pace.opens).min();
        self.opens = opens.filter(|_| self.evaluation.is_any_outdated());
        let mut in_wave: Vec<Slots> = (0..wave_progress.count())
            .map(|wave| Slots::of_wave(wave_progress.slots(wave, self.evaluation.strategy)))
            .collect();
        let mut slots = Slots::new(&self.evaluation.budget, self.evaluation.strategy);
        let batch = BATCH.saturating_sub(self.actions.len());
        let mut left = self.evaluation.preconditions.retry_gate.room(batch);
        let queue = match slots.is_empty() {
            true if self.evaluation.strategy.topology.is_none() => Vec::new(),
            _ => self.evaluation.queue(),
        };
        let domains = Domains::new(
            self.evaluation.strategy,
            self.evaluation.fleet,
            &self.evaluation.classes,
            &queue,
        );
        self.domains = domains.names();
        let images = self.evaluation.preconditions.images.as_ref();
        let mut forerunners =
            images.map_or(0, |images| images.forerunners(&self.evaluation.classes));
        let mut wants_more = false;
        for turn in queue {
            if left == 0 || slots.is_empty() {
                break;
            }
            wants_more = turn.available && slots.has_for_available() && self.is_behind(&turn);
            if wants_more {
                break; // a node that is only counted is next, so it has to be listed
            }
            let (in_wave, in_time) = (&mut in_wave[turn.wave], &mut pace[turn.wave].replacements);
            let may = |manner| match manner {
                SlotKind::Delete => self.evaluation.may_delete(turn.position),
                SlotKind::Surge => self.evaluation.preconditions.may_surge(turn.position),
            };
            let images = self.evaluation.preconditions.images.as_ref();
            let forerunning = images.is_some_and(|images| images.needs_forerunning(turn.position));
            if *in_time > 0
                && (!forerunning || forerunners > 0)
                && domains.may_begin(&self.evaluation.fleet.nodes[turn.position])
                && let Some(manner) = slots.take(in_wave, turn.available, may)
            {
                self.replace(turn.position, manner);
                *in_time -= 1;
                left -= 1;
                forerunners -= usize::from(forerunning);
            }
        }
        let is_more_waiting = self.evaluation.fleet.crowd.waiting > 0;
        wants_more |= is_more_waiting && left > 0 && slots.has_for_available();
        self.mark_not_open(forerunners == 0);
        let asked = self.ask_for_images();
        if self.evaluation.summary.is_announced {
            self.withdraw(&asked);
        }
        self.keep_marks_true();
        wants_more
    }

    /// Handles nodes with a surge pod. This continues even while no other node may be updated. As on other nodes, the old pod waits
    /// for its preDelete hook, and is then deleted or evicted.
    ///
    /// If `replaces` is false, a surge pod and its old pod both stay. If the old pod is gone, the DaemonSet becomes the owner of
    /// the surge pod. If the DaemonSet should run no pod on the node, the surge pod is deleted.
    pub(super) fn step_surge_pairs(&mut self, replaces: bool) {
        let terms = self.evaluation.terms;
        self.mark_left_behind();
        for position in 0..self.evaluation.classes.len() {
            if self.actions.len() >= BATCH {
                break; // the remaining nodes follow after these writes
            }
            let node = &self.evaluation.fleet.nodes[position];
            let actions = match &self.evaluation.classes[position] {
                Class::NotTargeted | Class::NoNode => surge::leave(node, terms),
                _ if !replaces && surge::has_old(node) => continue,
                Class::Surging(pair) => {
                    let pair = **pair;
                    let old = surge::alive(node)
                        .filter(|_| pair.step == surge::SurgeStep::DeleteAfterSurge);
                    let leaves = old.and_then(|old| {
                        let (leaves, verdict) = self.leave(old);
                        let is_known =
                            |verdict: &Verdict| matches!(verdict, Verdict::InProgress(_));
                        if let Some(verdict) = verdict.filter(|verdict| !is_known(verdict)) {
                            self.verdicts[position] = pair.failed_or(verdict);
                        }
                        leaves
                    });
                    pair.actions(node, leaves, self.evaluation.fleet.in_order)
                }
                Class::UntoleratedTaint => surge::leave(node, terms),
                // A setting makes the node keep its old pod, so its surge pod is deleted.
                Class::Excluded(_) if self.evaluation.summary.is_surging => {
                    if surge::surge_pod(node).is_none()
                        || !surge::has_way_back(self.evaluation.strategy, node)
                    {
                        continue;
                    }
                    self.verdicts[position] = Verdict::InProgress(Progress::SurgeLeaving);
                    surge::leave(node, terms)
                }
                _ => continue,
            };
            self.actions.extend(actions);
        }
    }

    /// Deletes the pods that were marked for deletion and whose preDelete hook is done. While the guard blocks updates, nothing is
    /// deleted.
    fn delete_unhooked(&mut self) {
        if self.evaluation.guard.gate.is_some() {
            return;
        }
        let mut free = self.evaluation.budget.for_waiting();
        let wave_progress = &self.evaluation.preconditions.wave_progress;
        let share = self.evaluation.strategy.max_unavailable;
        let mut in_wave: Vec<usize> = (0..wave_progress.count())
            .map(|wave| wave_progress.for_waiting(wave, share))
            .collect();
        for position in 0..self.evaluation.classes.len() {
            let Class::PreDeleteHook {
                available,
                settling: None,
                ..
            } = self.evaluation.classes[position]
            else {
                continue;
            };
            let is_hooked = removal::is_hooked(
                self.evaluation.strategy,
                &self.evaluation.fleet.nodes[position],
            );
            if !self.evaluation.preconditions.may_step(position) {
                if !is_hooked {
                    self.verdicts[position] = Verdict::Budget { broken: false };
                }
                continue;
            }
            let in_wave = &mut in_wave[self
                .evaluation
                .preconditions
                .wave_progress
                .of_node(position)];
            let written = self.actions.len();
            if !available || free > 0 && *in_wave > 0 {
                self.replace(position, SlotKind::Delete);
            } else if !is_hooked {
                self.verdicts[position] = Verdict::Budget { broken: false };
            }
            let goes = self.actions[written..].iter().any(Action::takes_down);
            free = free.saturating_sub(usize::from(available && goes));
            *in_wave = in_wave.saturating_sub(usize::from(available && goes));
        }
    }

    /// Sets the verdict of nodes at `positions` whose available pod is rolled back later.
    pub(super) fn tell_reverts(&mut self, positions: impl IntoIterator<Item = usize>) {
        for position in positions {
            let verdict = &mut self.verdicts[position];
            if *verdict == Verdict::Done {
                *verdict = Verdict::Revert(Revert::Pending);
            }
        }
    }

    /// Rolls back pods in place from the revision that the guard stopped.
    fn roll_back(&mut self) {
        let revert::RevertTurns {
            turns,
            settling,
            reversal,
            again,
        } = self.evaluation.reverts();
        (self.reversal, self.reverts_again) = (reversal, again);
        self.tell_reverts(settling);
        if self.reversal.is_none() {
            return;
        }
        let wave_progress = &self.evaluation.preconditions.wave_progress;
        let mut in_wave: Vec<usize> = (0..wave_progress.count())
            .map(|wave| wave_progress.slots(wave, self.evaluation.strategy)[1])
            .collect();
        let mut free = self.evaluation.budget.for_available();
        let order = Order::new(
            self.evaluation.strategy,
            self.evaluation.fleet,
            &self.evaluation.classes,
            &self.evaluation.summary,
            &self.evaluation.scope,
        );
        // If the API server rejects the rollback on a node, the failure domain of the node must not count as busy.
        let preconditions = &self.evaluation.preconditions;
        let may = |turn: &&RevertTurn| turn.is_available() && preconditions.may_step(turn.position);
        let available = turns.iter().filter(may);
        let queue = available.map(|turn| {
            let wave = wave_progress.of_node(turn.position);
            order.turn(&self.evaluation.summary, turn.position, wave, true)
        });
        let queue: Vec<Turn> = queue.collect();
        let domains = Domains::new(
            self.evaluation.strategy,
            self.evaluation.fleet,
            &self.evaluation.classes,
            &queue,
        );
        for turn in turns {
            if self.actions.len() >= BATCH {
                break; // the remaining pods follow after these writes
            }
            let node = &self.evaluation.fleet.nodes[turn.position];
            if !self.evaluation.preconditions.may_step(turn.position) {
                self.verdicts[turn.position] = Verdict::Revert(Revert::Pending);
                continue;
            }
            if turn.is_available() {
                self.verdicts[turn.position] = Verdict::Revert(Revert::Pending);
                let in_wave = &mut in_wave[self
                    .evaluation
                    .preconditions
                    .wave_progress
                    .of_node(turn.position)];
                let opening = self.evaluation.preconditions.opening_at(turn.position);
                let may_begin = opening.is_open && domains.may_begin(node);
                if !may_begin || free == 0 || *in_wave == 0 {
                    let again = self.reverts_again.into_iter();
                    self.reverts_again = again.chain(opening.changes).min();
                    continue;
                }
                (free, *in_wave) = (free - 1, *in_wave - 1);
                self.evaluation.budget.in_flight += 1;
                self.evaluation
                    .preconditions
                    .wave_progress
                    .take_slot(turn.position);
            }
            let pod = node.pods.iter().find(|pod| !pod.terminating);
            let Some(pod) = pod.map(Pod::reference) else {
                continue;
            };
            let progress = Progress::Reverting {
                since: self.evaluation.now,
            };
            self.evaluation.classes[turn.position] = Class::InProgress(progress);
            self.verdicts[turn.position] = Verdict::InProgress(progress);
            let patch = turn.patch;
            self.actions.push(Action::UpdateInPlace { pod, patch });
        }
    }

    /// Removes the deletion marks of pods that stay after all, and opens the readiness gates of new pods.
    pub(super) fn keep_marks_true(&mut self) {
        if !self.evaluation.summary.is_marked {
            return;
        }
        let leaves = |position: usize| {
            matches!(
                self.evaluation.classes[position],
                Class::PreDeleteHook { .. }
            ) || matches!(
                (&self.evaluation.classes[position], &self.verdicts[position]),
                (_, Verdict::HookPending { .. })
                    | (
                        _,
                        Verdict::InProgress(Progress::Replacing | Progress::SurgeTakingOver)
                    )
                    | (Class::Surging(_), Verdict::BlockedByPdb { .. })
            )
        };
        let deleted = self.ended();
        let nodes = self.evaluation.fleet.nodes.iter().enumerate();
        let ready = nodes.filter(|(_, node)| node.is_ready());
        let pods = ready.flat_map(|(position, node)| {
            let leaves = leaves(position);
            node.pods.iter().map(move |pod| (leaves, pod))
        });
        let alive = pods.filter(|(_, pod)| !pod.terminating && !deleted.contains(&pod.uid));
        let marks = alive.filter_map(|(leaves, pod)| {
            if leaves {
                removal::begin(pod)
            } else {
                removal::stay(pod, true)
            }
        });
        let marks: Vec<Action> = marks.take(BATCH).collect();
        self.actions.extend(marks);
    }

    /// Returns the pods that this plan removes.
    fn ended(&self) -> BTreeSet<PodUid> {
        let ends = self.actions.iter().filter(|action| action.ends());
        ends.map(|action| action.pod().uid.clone()).collect()
    }

    /// Requests image pulls on waiting nodes, and returns the positions of the nodes with a new request.
    fn ask_for_images(&mut self) -> BTreeSet<usize> {
        let Some(images) = &self.evaluation.preconditions.images else {
            return BTreeSet::new();
        };
        let queue = || {
            self.evaluation
                .waiting()
                .iter()
                .map(|turn| turn.position)
                .collect()
        };
        let (classes, verdicts) = (&self.evaluation.classes, &self.verdicts);
        let may = |position: usize| self.evaluation.preconditions.may_tell(position);
        let asking = images.ask(classes, verdicts, self.evaluation.budget.base, queue, may);
        self.actions.extend(asking.actions);
        self.pulls = asking.pulls;
        self.pulls_await = asking.awaits;
        self.pulls_again = asking.wake;
        asking.asked
    }

    /// Sets the verdict of waiting nodes that don't meet a precondition.
    ///
    /// `are_forerunners_chosen` is true if this plan already replaces all pods that may be replaced before their images are pulled.
    fn mark_not_open(&mut self, are_forerunners_chosen: bool) {
        for (position, class) in self.evaluation.classes.iter().enumerate() {
            if !matches!(class, Class::Outdated { settling: None, .. }) {
                continue;
            }
            let preconditions = &self.evaluation.preconditions;
            let waits = matches!(self.verdicts[position], Verdict::Budget { .. });
            let follows = |images: &&Images<'_>| {
                waits && are_forerunners_chosen && images.needs_forerunning(position)
            };
            let behind = || {
                let images = preconditions.images.as_ref().filter(follows);
                images.map(|_| Verdict::PullPending(PullStage::AwaitingReady))
            };
            let blocked = || preconditions.blocked_at(position).filter(|_| waits);
            if let Some(verdict) = preconditions
                .shut_at(position)
                .or_else(behind)
                .or_else(blocked)
            {
                let is_back =
                    revert::is_back(self.evaluation.strategy, self.evaluation.fleet, position);
                self.verdicts[position] = if is_back {
                    Verdict::Revert(Revert::Done)
                } else {
                    verdict
                };
            }
        }
    }

    /// Returns true if a node that is only counted is updated before the node of `turn`.
    fn is_behind(&self, turn: &Turn) -> bool {
        let next = self.evaluation.fleet.crowd.next.as_ref();
        let name = &self.evaluation.fleet.nodes[turn.position].name;
        next.is_some_and(|next| self.evaluation.strategy.order.is_before(next, name))
    }

    fn leave(&mut self, pod: &Pod) -> (Option<Action>, Option<Verdict>) {
        removal::leave(
            self.evaluation.strategy,
            &mut self.evaluation.preconditions.asking,
            pod,
            self.evaluation.now,
        )
    }

    /// Removes pod conditions that the strategy OTA left behind, and image conditions that are no longer needed.
    ///
    /// Pods that this plan removes keep their conditions. Pods on the nodes in `asked` keep their image condition, because this
    /// plan requests images there.
    fn withdraw(&mut self, asked: &BTreeSet<usize>) {
        let keeps_image = |position: usize, pod: &Pod| {
            let images = self.evaluation.preconditions.images.as_ref();
            asked.contains(&position)
                || images.is_some_and(|images| {
                    images.keeps(position, &self.evaluation.classes[position], pod)
                })
        };
        let ended = self.ended();
        let nodes = self.evaluation.fleet.nodes.iter().enumerate();
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

    fn replace(&mut self, position: usize, manner: SlotKind) {
        let node = &self.evaluation.fleet.nodes[position];
        let Some(pod) = node.outdated() else {
            return;
        };
        if let (SlotKind::Surge, RevisionState::Current(revision)) =
            (manner, &self.evaluation.fleet.revision)
        {
            self.actions.push(Action::Surge {
                node: node.name.clone(),
                beside: pod.reference(),
                revision: revision.clone(),
            });
            self.verdicts[position] = Verdict::InProgress(Progress::SurgeStarting);
            return;
        }
        let in_place = match replacement::way(self.evaluation.strategy, self.evaluation.fleet, pod)
        {
            UpdateMethod::InPlace(change) => {
                replacement::patch(self.evaluation.fleet, pod, &change)
            }
            UpdateMethod::Recreate(why) => {
                self.recreates = self.recreates.or(why);
                None
            }
        };
        let (action, verdict) = match in_place {
            Some(patch) => {
                let pod = pod.reference();
                let update = Action::UpdateInPlace { pod, patch };
                let verdict = Verdict::InProgress(Progress::Replacing);
                (Some(update), Some(verdict))
            }
            None => self.leave(pod),
        };
        self.actions.extend(action);
        self.verdicts[position] = verdict.unwrap_or(self.verdicts[position]);
    }
}
