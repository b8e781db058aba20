//! Who is charged to the current revision.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::losses::Losses;
use crate::core::engine::class::Class;
use crate::core::engine::deadline::{fails, is_between_pods};
use crate::core::engine::failing::Failing;
use crate::core::engine::pod_summary::PodSummary;
use crate::core::engine::timeouts::{JUDGED_AFTER, JUDGED_AGAIN_AFTER, failure_window};
use crate::core::fleet::record::{FAILED_NAMED, FailureRecord};
use crate::core::fleet::{Fleet, Node, Pod, Readiness, position_of};
use crate::core::id::{NodeName, PodRevision, RevisionState};
use crate::core::instant::later;
use crate::core::settings::{Mode, Strategy};
use crate::core::verdict::{Cause, Progress};

/// What there is against the current revision.
#[derive(Debug, Default)]
pub(in crate::core) struct FailureAttribution {
    /// The record; `None`: the revision is not judged (it is not known, replaces nothing, or somebody resumed it).
    pub(super) record: Option<FailureRecord>,
    /// What remains of it where it is not judged.
    pub(super) rest: Option<FailureRecord>,
    /// Nodes whose pod cannot be started: only as long as that is so, for want of an image is often want of a network.
    pub(super) not_starting: usize,
    /// Until when it is open whose fault some losses are.
    pub(super) open_until: Option<Timestamp>,
    /// When time alone changes something, at the earliest.
    pub(super) changes: Option<Timestamp>,
    /// Whether nodes were judged beside all others (see [`Losses`]).
    pub(in crate::core) heard_others: bool,
}

impl FailureAttribution {
    /// The record, while the revision is judged.
    pub(in crate::core) fn record(&self) -> Option<&FailureRecord> {
        self.record.as_ref()
    }

    /// Whether this node failed on the revision's account, and has not been cleared since.
    pub(in crate::core) fn is_charged(&self, node: &NodeName) -> bool {
        self.record()
            .is_some_and(|record| record.failed.contains(node))
    }
}

/// Turns the classes of the nodes that are charged to the current revision into [`Class::Failed`].
pub(in crate::core) fn attribute(
    strategy: &Strategy,
    fleet: &Fleet,
    now: Timestamp,
    classes: &mut [Class],
    summary: &PodSummary<'_>,
) -> FailureAttribution {
    let RevisionState::Current(revision) = &fleet.revision else {
        return FailureAttribution::default();
    };
    if !fleet.replaces {
        return FailureAttribution::default();
    }
    let known = fleet.record.as_ref();
    let known = known.filter(|_| strategy.mode == Mode::AdvancedRollingUpdate);
    if strategy.resume.as_ref() == Some(revision) {
        let rest = FailureRecord::anew(known, revision);
        return FailureAttribution {
            rest: Some(rest).filter(|rest| !rest.is_empty()),
            ..FailureAttribution::default()
        };
    }
    let mut tracker = FailureTracker {
        mode: strategy.mode,
        window: failure_window(strategy),
        now,
        fleet,
        record: FailureRecord::begun(known, revision),
        added: BTreeSet::new(),
        charges: FailureAttribution::default(),
    };
    tracker.judge_losses(classes, summary);
    tracker.judge_pods(classes);
    tracker.clear(classes);
    tracker.heed_taken_back(summary);
    tracker.finish()
}

/// A judgement in the making.
struct FailureTracker<'a> {
    mode: Mode,
    window: Duration,
    now: Timestamp,
    fleet: &'a Fleet,
    record: FailureRecord,
    /// Nodes charged now that are not on the record yet.
    added: BTreeSet<NodeName>,
    charges: FailureAttribution,
}

impl FailureTracker<'_> {
    /// Nodes that turned NotReady.
    fn judge_losses(&mut self, classes: &mut [Class], summary: &PodSummary<'_>) {
        let nodes = &self.fleet.nodes;
        let mut losses = Losses::new(
            self.fleet,
            classes,
            summary,
            (&self.record, self.mode),
            self.window,
        );
        self.charges.heard_others = losses.is_anybody_lost();
        losses.forget(&self.record, self.window, self.now);
        let (mut touched, mut judged) = (BTreeSet::new(), BTreeMap::new());
        for suspect in losses.suspects() {
            let name = &nodes[suspect.position].name;
            if self.record.broken_before.contains(name) {
                // Nobody is to blame for it, and it is no proof against the others either.
                touched.extend(self.record.updated_before_loss.take(name));
                continue;
            }
            let loss = (suspect.first, suspect.since);
            let is_open = self.judge(&losses, name, loss, &mut judged);
            if is_open && suspect.is_only_known_here && touched.len() < FAILED_NAMED {
                touched.insert(name.clone());
            }
        }
        for (name, since) in losses.gone() {
            if self.record.failed.contains(name) {
                note_loss(&mut judged, name, *since);
            } else {
                self.judge(&losses, name, (*since, *since), &mut judged);
            }
        }
        self.record.judged = judged;
        self.record.control_group = losses.control_group(self.window, FAILED_NAMED);
        self.remember_barred(classes, &mut touched);
        // Whoever is gone may come back under its name, and is judged when its node says for how long it has not been Ready.
        let remembered = std::mem::take(&mut self.record.updated_before_loss).into_iter();
        touched.extend(remembered.filter(|name| {
            let class = self.position(name).map(|position| &classes[position]);
            matches!(
                class,
                None | Some(Class::NoNode | Class::Offline { since: None, .. })
            )
        }));
        self.record.updated_before_loss = touched;
        self.tell_lost(classes);
    }

    /// A node that was lost after the rollout touched it: charges it, or says that this is open; notes in `judged` what is to be
    /// remembered until then, and of who is charged: it is a loss beside the others also when no Node tells of it any more.
    ///
    /// A charged node stays charged, whatever becomes of the others later, but nothing new begins while it is judged again. A node that
    /// flaps delays the others only for its `first` loss.
    fn judge(
        &mut self,
        losses: &Losses,
        name: &NodeName,
        (first, since): (Timestamp, Timestamp),
        judged: &mut BTreeMap<NodeName, Timestamp>,
    ) -> bool {
        let is_charged = self.record.failed.contains(name);
        let held_until = later(first, JUDGED_AFTER);
        let judged_at = held_until.max(later(since, JUDGED_AGAIN_AFTER));
        let is_network = losses.is_network_event(since, self.window);
        let open_until = if is_network {
            later(since, self.window)
        } else {
            judged_at
        };
        let is_first = first == since;
        self.leave_open(if is_network && is_first {
            open_until
        } else {
            held_until
        });
        if open_until > self.now {
            self.look_again(open_until);
        }
        let is_judged = !is_network && judged_at <= self.now;
        if is_judged {
            self.attribute(name, true);
        }
        if is_judged || is_charged || open_until > self.now {
            note_loss(judged, name, since);
        }
        !is_judged && !is_charged
    }

    /// Remembers nodes whose pod we deleted, and where a taint or a label keeps the next one away: nothing else tells after a restart
    /// that they take a slot.
    fn remember_barred(&self, classes: &[Class], touched: &mut BTreeSet<NodeName>) {
        for (class, node) in classes.iter().zip(&self.fleet.nodes) {
            let may_be = matches!(
                class,
                Class::InProgress(Progress::Missing { .. } | Progress::Terminating)
            );
            // Looking at a pod of every node takes longer than all the rest.
            if may_be && node.is_barred() && touched.len() < FAILED_NAMED {
                touched.insert(node.name.clone());
            }
        }
    }

    /// Who is on the record and NotReady is so on the revision's account, also when its pod is another one by now.
    fn tell_lost(&self, classes: &mut [Class]) {
        for name in self.record.failed.iter().chain(&self.added) {
            let Some(position) = self.position(name) else {
                continue;
            };
            if let Class::Offline {
                since: Some(since), ..
            } = classes[position]
            {
                classes[position] = Class::Failed {
                    since,
                    cause: Cause::NodeLost,
                };
            }
        }
    }

    fn position(&self, name: &NodeName) -> Option<usize> {
        let nodes = &self.fleet.nodes;
        position_of(nodes, name).ok()
    }

    /// New pods that crash or cannot be started.
    fn judge_pods(&mut self, classes: &mut [Class]) {
        // Back within a moment, as when two tools write the template in turn, it is no rollback to something that is known.
        let at = self.fleet.made.zip(self.fleet.adopted);
        let comes_again = at.is_some_and(|(made, adopted)| adopted <= later(made, self.window));
        for (class, node) in classes.iter_mut().zip(&self.fleet.nodes) {
            if self.record.failed.contains(&node.name) && goes_on_ending(node, class) {
                let since = new_pod(node).map(Pod::unready).or(node.podless_since);
                if let Some(since) = since {
                    fail(class, (since, Cause::Crashing));
                }
                continue;
            }
            let is_new = match class {
                Class::InProgress(Progress::Starting | Progress::UpdatingInPlace { .. }) => true,
                Class::Surging(pair) => pair.progress == Progress::SurgeStarting,
                _ => false,
            };
            if !is_new || self.record.broken_before.contains(&node.name) {
                continue;
            }
            // One that was left from before a rollback has nothing to do with it.
            let is_own =
                |pod: &&Pod| pod.of_template || comes_again && pod.in_place.reverted_from.is_none();
            let Some(pod) = new_pod(node).filter(is_own) else {
                continue;
            };
            let since = pod.unready();
            let cause = match Failing::find(pod) {
                None => continue,
                _ if !self.record.failed.contains(&node.name)
                    && since > later(pod.revised(), self.window) =>
                {
                    continue;
                }
                Some(Failing::Crashes) => Cause::Crashing,
                Some(Failing::CannotStart) => Cause::NotStarting,
            };
            self.attribute(&node.name, cause == Cause::Crashing);
            fail(class, (since, cause));
        }
    }

    /// FailureAttribution a node; `lasts` puts it on the record.
    fn attribute(&mut self, name: &NodeName, lasts: bool) {
        if self.record.failed.contains(name) {
            return;
        }
        if lasts {
            self.added.insert(name.clone());
        } else {
            self.charges.not_starting += 1;
        }
    }

    /// Whoever runs the revision for as long as one may be charged is no longer on the record. That of a stopped revision keeps
    /// its names: people read there why it was stopped.
    fn clear(&mut self, classes: &[Class]) {
        let record = &self.record;
        if record.failed.is_empty() && record.broken_before.is_empty() {
            return;
        }
        let nodes = &self.fleet.nodes;
        let names = record.failed.union(&record.broken_before).cloned();
        for name in names.collect::<Vec<_>>() {
            let Some(position) = self.position(&name) else {
                // A Node that is gone proves nothing, but nobody waits for its old pod either.
                self.record.broken_before.remove(&name);
                continue;
            };
            let Some(since) = healthy_since(&nodes[position], &classes[position]) else {
                continue;
            };
            let proved_at = later(since, self.window);
            if proved_at <= self.now {
                if self.record.stopped.is_none() {
                    self.record.failed.remove(&name);
                }
                self.record.broken_before.remove(&name);
            } else {
                self.look_again(proved_at);
            }
        }
    }

    /// A pod that was taken back from this revision a moment ago tells of a stop that this view does not show yet.
    fn heed_taken_back(&mut self, summary: &PodSummary<'_>) {
        if self.record.stopped.is_some() || !summary.is_taken_back {
            return;
        }
        let pods = self.fleet.nodes.iter().flat_map(|node| &node.pods);
        let is_back = |pod: &&Pod| {
            pod.revision == PodRevision::Outdated
                && pod.in_place.reverted_from.as_ref() == Some(&self.record.revision)
        };
        if let Some(last) = pods.filter(is_back).map(Pod::revised).max() {
            self.leave_open(later(last, JUDGED_AFTER));
        }
    }

    fn leave_open(&mut self, until: Timestamp) {
        if until > self.now {
            self.charges.open_until = self.charges.open_until.max(Some(until));
            self.look_again(until);
        }
    }

    fn look_again(&mut self, at: Timestamp) {
        self.charges.changes = self.charges.changes.into_iter().chain([at]).min();
    }

    /// Closes the record; of too many names the rest is a number, which only grows.
    fn finish(mut self) -> FailureAttribution {
        let room = FAILED_NAMED.saturating_sub(self.record.failed.len());
        let beyond = self.added.len().saturating_sub(room);
        self.record.failed.extend(self.added.into_iter().take(room));
        self.record.more = self.record.more.max(beyond);
        FailureAttribution {
            record: Some(self.record),
            ..self.charges
        }
    }
}

fn note_loss(judged: &mut BTreeMap<NodeName, Timestamp>, name: &NodeName, since: Timestamp) {
    if judged.len() < FAILED_NAMED {
        judged.insert(name.clone(), since);
    }
}

/// Returns true if the pods of this node keep ending. A node on the record then fails even while it has no pod.
fn goes_on_ending(node: &Node, class: &Class) -> bool {
    let progress = match class {
        Class::InProgress(progress) => *progress,
        Class::Surging(pair) => pair.progress,
        _ => return false,
    };
    node.trouble.is_some() && (fails(node, progress) || is_between_pods(node, progress))
}

/// Marks a node as failed since that time. A pair of pods stays a pair, because the old pod serves.
fn fail(class: &mut Class, (since, cause): (Timestamp, Cause)) {
    match class {
        Class::Surging(pair) => pair.failed = Some((since, cause)),
        _ => *class = Class::Failed { since, cause },
    }
}

/// The only pod of a node that is in progress, if it is of the current revision.
fn new_pod(node: &Node) -> Option<&Pod> {
    let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
    alive.find(|pod| pod.revision == PodRevision::Current)
}

/// Since when a node and its pod of the current revision are both well; an update in place may have left it Ready.
fn healthy_since(node: &Node, class: &Class) -> Option<Timestamp> {
    let Readiness::Ready { since } = node.readiness else {
        return None;
    };
    let is_up = matches!(
        class,
        Class::Done | Class::InProgress(Progress::NotYetAvailable { .. })
    );
    let pod = new_pod(node).filter(|_| is_up)?;
    Some(pod.ready_since?.max(since).max(pod.revised()))
}
