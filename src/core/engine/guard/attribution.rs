//! Attribution: decides which failures of nodes and pods count against the current revision.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::losses::Losses;
use crate::core::engine::class::Class;
use crate::core::engine::deadline::{fails, is_between_pods};
use crate::core::engine::failing::Failing;
use crate::core::engine::pod_summary::PodSummary;
use crate::core::engine::timeouts::{EVALUATED_AFTER, EVALUATED_AGAIN_AFTER, failure_window};
use crate::core::fleet::record::{FAILED_NAMED, FailureRecord};
use crate::core::fleet::{Fleet, Node, Pod, Readiness, position_of};
use crate::core::id::{NodeName, PodRevision, RevisionState};
use crate::core::instant::later;
use crate::core::settings::{Mode, Strategy};
use crate::core::verdict::{Cause, Progress};

/// Failures that count against the current revision.
#[derive(Debug, Default)]
pub(in crate::core) struct FailureAttribution {
    /// Record of failures. `None` if the revision is not evaluated: it is unknown, replaces no pods, or an operator resumed it.
    pub(super) record: Option<FailureRecord>,
    /// Part of the record to keep if the revision is not evaluated.
    pub(super) rest: Option<FailureRecord>,
    /// Number of nodes whose pod cannot be started.
    ///
    /// Such a node counts only as long as its pod can't start. The cause is often the network, for example an unreachable registry.
    pub(super) not_starting: usize,
    /// End of the period in which the cause of a loss is undecided and no update may begin.
    pub(super) open_until: Option<Timestamp>,
    /// Earliest time at which the result changes without an event.
    pub(super) changes: Option<Timestamp>,
    /// True if the losses of nodes that the rollout touched were compared with those of the other nodes (see [`Losses`]).
    pub(in crate::core) compared_losses: bool,
}

impl FailureAttribution {
    /// Returns the record; `None` if the revision is not evaluated.
    pub(in crate::core) fn record(&self) -> Option<&FailureRecord> {
        self.record.as_ref()
    }

    /// Returns true if this node counts against the revision, that is, if it is in the record.
    pub(in crate::core) fn is_charged(&self, node: &NodeName) -> bool {
        self.record()
            .is_some_and(|record| record.failed.contains(node))
    }
}

/// Gives nodes that count against the current revision the class [`Class::Failed`].
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
        attribution: FailureAttribution::default(),
    };
    tracker.evaluate_losses(classes, summary);
    tracker.evaluate_pods(classes);
    tracker.clear(classes);
    tracker.wait_after_rollback(summary);
    tracker.finish()
}

/// State of the attribution during one decision.
struct FailureTracker<'a> {
    mode: Mode,
    window: Duration,
    now: Timestamp,
    fleet: &'a Fleet,
    record: FailureRecord,
    /// Nodes whose failure was found in this decision, and that are not in the record yet.
    added: BTreeSet<NodeName>,
    attribution: FailureAttribution,
}

impl FailureTracker<'_> {
    /// Evaluates the nodes that turned NotReady after the rollout touched them.
    fn evaluate_losses(&mut self, classes: &mut [Class], summary: &PodSummary<'_>) {
        let nodes = &self.fleet.nodes;
        let mut losses = Losses::new(
            self.fleet,
            classes,
            summary,
            (&self.record, self.mode),
            self.window,
        );
        self.attribution.compared_losses = losses.is_any_node_lost();
        losses.forget(&self.record, self.window, self.now);
        let (mut touched, mut lost) = (BTreeSet::new(), BTreeMap::new());
        for suspect in losses.suspects() {
            let name = &nodes[suspect.position].name;
            if self.record.broken_before.contains(name) {
                // The old pod was broken before its update. The loss of this node proves nothing about the revision or the network.
                touched.extend(self.record.updated_before_loss.take(name));
                continue;
            }
            let loss = (suspect.first, suspect.since);
            let is_open = self.evaluate_loss(&losses, name, loss, &mut lost);
            if is_open && suspect.is_only_known_here && touched.len() < FAILED_NAMED {
                touched.insert(name.clone());
            }
        }
        for (name, since) in losses.gone() {
            if self.record.failed.contains(name) {
                note_loss(&mut lost, name, *since);
            } else {
                self.evaluate_loss(&losses, name, (*since, *since), &mut lost);
            }
        }
        self.record.lost = lost;
        self.record.control_group = losses.control_group(self.window, FAILED_NAMED);
        self.remember_barred(classes, &mut touched);
        // Keep nodes whose Node was deleted. If a Node with that name is created again, it is evaluated as soon as its status shows
        // since when it is NotReady.
        let remembered = std::mem::take(&mut self.record.updated_before_loss).into_iter();
        touched.extend(remembered.filter(|name| {
            let class = self.position(name).map(|position| &classes[position]);
            matches!(
                class,
                None | Some(Class::NoNode | Class::Offline { since: None, .. })
            )
        }));
        self.record.updated_before_loss = touched;
        self.mark_lost(classes);
    }

    /// Evaluates a node that was lost after the rollout touched it. Returns true while the cause is undecided.
    ///
    /// A loss stays in `lost` until its cause is decided. If it counts against the revision, it stays permanently, even if its Node
    /// is deleted, because other losses are compared with it.
    ///
    /// A node that counts against the revision continues to count, whatever happens to other nodes later. While another loss of the
    /// same node is evaluated, no update begins. A flapping node delays other nodes only for [`EVALUATED_AFTER`] from its `first`
    /// loss.
    fn evaluate_loss(
        &mut self,
        losses: &Losses,
        name: &NodeName,
        (first, since): (Timestamp, Timestamp),
        lost: &mut BTreeMap<NodeName, Timestamp>,
    ) -> bool {
        let is_charged = self.record.failed.contains(name);
        let held_until = later(first, EVALUATED_AFTER);
        let attributed_at = held_until.max(later(since, EVALUATED_AGAIN_AFTER));
        let is_network = losses.is_network_event(since, self.window);
        let open_until = if is_network {
            later(since, self.window)
        } else {
            attributed_at
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
        let is_attributed = !is_network && attributed_at <= self.now;
        if is_attributed {
            self.attribute(name, true);
        }
        if is_attributed || is_charged || open_until > self.now {
            note_loss(lost, name, since);
        }
        !is_attributed && !is_charged
    }

    /// Stores the nodes whose pod the controller deleted, and on which a taint or a label prevents the next pod.
    ///
    /// These nodes take a slot. After a restart of the controller, only the record shows that.
    fn remember_barred(&self, classes: &[Class], touched: &mut BTreeSet<NodeName>) {
        for (class, node) in classes.iter().zip(&self.fleet.nodes) {
            let may_be = matches!(
                class,
                Class::InProgress(Progress::Missing { .. } | Progress::Terminating)
            );
            // Check the class first. Reading the pods of every node would take longer than the rest of the decision.
            if may_be && node.is_barred() && touched.len() < FAILED_NAMED {
                touched.insert(node.name.clone());
            }
        }
    }

    /// Gives failed nodes that are NotReady the class [`Class::Failed`], even if they have another pod now.
    fn mark_lost(&self, classes: &mut [Class]) {
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

    /// Evaluates the new pods: a pod that crashes or cannot be started counts against the revision.
    fn evaluate_pods(&mut self, classes: &mut [Class]) {
        // Two tools may overwrite each other's template again and again. If a template becomes current again within the failure
        // window after its revision was created, it has never run for that long. So failures of the pods that it created earlier
        // count against it, too.
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
            // A pod that was created before a rollback made its revision current again says nothing about this rollout.
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

    /// Counts a node against the revision: permanently (in the record) if `lasts` is true, otherwise only in this decision.
    fn attribute(&mut self, name: &NodeName, lasts: bool) {
        if self.record.failed.contains(name) {
            return;
        }
        if lasts {
            self.added.insert(name.clone());
        } else {
            self.attribution.not_starting += 1;
        }
    }

    /// Removes nodes from the record after they have run the revision for the whole failure window without failure.
    ///
    /// If the revision is stopped, their names stay, because they show why it was stopped.
    fn clear(&mut self, classes: &[Class]) {
        let record = &self.record;
        if record.failed.is_empty() && record.broken_before.is_empty() {
            return;
        }
        let nodes = &self.fleet.nodes;
        let names = record.failed.union(&record.broken_before).cloned();
        for name in names.collect::<Vec<_>>() {
            let Some(position) = self.position(&name) else {
                // A deleted Node doesn't prove that the revision works, so its name stays in `failed`. Its name in `broken_before`
                // is no longer needed, because the old pod is gone.
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

    /// Blocks updates for a short time after a pod was rolled back from this revision. The cache may not show yet that the revision
    /// is stopped.
    fn wait_after_rollback(&mut self, summary: &PodSummary<'_>) {
        if self.record.stopped.is_some() || !summary.is_rolled_back {
            return;
        }
        let pods = self.fleet.nodes.iter().flat_map(|node| &node.pods);
        let is_back = |pod: &&Pod| {
            pod.revision == PodRevision::Outdated
                && pod.in_place.reverted_from.as_ref() == Some(&self.record.revision)
        };
        if let Some(last) = pods.filter(is_back).map(Pod::revised).max() {
            self.leave_open(later(last, EVALUATED_AFTER));
        }
    }

    fn leave_open(&mut self, until: Timestamp) {
        if until > self.now {
            self.attribution.open_until = self.attribution.open_until.max(Some(until));
            self.look_again(until);
        }
    }

    fn look_again(&mut self, at: Timestamp) {
        self.attribution.changes = self.attribution.changes.into_iter().chain([at]).min();
    }

    /// Completes the record: it names at most `FAILED_NAMED` failed nodes. `more` counts the rest and never decreases.
    fn finish(mut self) -> FailureAttribution {
        let room = FAILED_NAMED.saturating_sub(self.record.failed.len());
        let beyond = self.added.len().saturating_sub(room);
        self.record.failed.extend(self.added.into_iter().take(room));
        self.record.more = self.record.more.max(beyond);
        FailureAttribution {
            record: Some(self.record),
            ..self.attribution
        }
    }
}

fn note_loss(lost: &mut BTreeMap<NodeName, Timestamp>, name: &NodeName, since: Timestamp) {
    if lost.len() < FAILED_NAMED {
        lost.insert(name.clone(), since);
    }
}

/// Returns true if the pods of this node keep ending. If the node is in the record, it counts as failed even while it has no pod.
fn goes_on_ending(node: &Node, class: &Class) -> bool {
    let progress = match class {
        Class::InProgress(progress) => *progress,
        Class::Surging(pair) => pair.progress,
        _ => return false,
    };
    node.trouble.is_some() && (fails(node, progress) || is_between_pods(node, progress))
}

/// Marks a node as failed since the given time. A node with a surge pod stays [`Class::Surging`], because its old pod serves.
fn fail(class: &mut Class, (since, cause): (Timestamp, Cause)) {
    match class {
        Class::Surging(pair) => pair.failed = Some((since, cause)),
        _ => *class = Class::Failed { since, cause },
    }
}

/// Returns the first living pod of the current revision on the node.
fn new_pod(node: &Node) -> Option<&Pod> {
    let mut alive = node.pods.iter().filter(|pod| !pod.terminating);
    alive.find(|pod| pod.revision == PodRevision::Current)
}

/// Returns the time since which both a node and its pod of the current revision are healthy.
///
/// Time before an update in place doesn't count, because the pod can stay Ready during the update.
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
