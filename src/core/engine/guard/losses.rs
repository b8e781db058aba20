//! Losses: nodes that turned NotReady. The losses of nodes that the rollout touched (see [`Node::touched_at`]) are compared with
//! those of untouched nodes, the *control group*.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::core::engine::class::Class;
use crate::core::engine::pod_summary::PodSummary;
use crate::core::engine::timeouts::LOST_TOGETHER;
use crate::core::fleet::record::FailureRecord;
use crate::core::fleet::{Fleet, Node, Pod, position_of};
use crate::core::id::{NodeName, PodRevision};
use crate::core::instant::{earlier, later};
use crate::core::settings::Mode;

/// Losses of a fleet, as input of the comparison.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Nodes that were lost within the failure window after the rollout touched them, sorted by time.
    suspects: Vec<LostNode>,
    /// Lost nodes from the record that were deleted or are no longer targeted, with the time of their loss; sorted by name.
    gone: Vec<(NodeName, Timestamp)>,
    /// Lost nodes that the rollout had not touched before the loss. Nodes in the guard's record are included even after they are
    /// online again.
    control_group: BTreeMap<NodeName, Timestamp>,
    /// Times of the losses in `control_group`, sorted.
    control: Vec<Timestamp>,
    /// Number of touched nodes that were lost, at any time after the touch.
    lost: usize,
    /// For each node that was not lost and has the current revision, the time at which it got the revision; sorted.
    updated: Vec<Timestamp>,
    /// Number of nodes that are compared, touched or not.
    targeted: usize,
    /// True if the controller deletes pods. A deletion is then a touch.
    ///
    /// Under OTA, node owners delete the pods. The controller doesn't record these deletions, so only the creation of the new pod
    /// is a touch.
    removes: bool,
}

/// Node that was lost soon after the rollout touched it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LostNode {
    pub(super) position: usize,
    /// Time at which the node turned NotReady.
    pub(super) since: Timestamp,
    /// Time of the node's first loss after the rollout touched it. It differs from `since` only for flapping nodes.
    pub(super) first: Timestamp,
    /// True if neither the node nor its pods show the touch, so that the record has to store it.
    pub(super) is_only_known_here: bool,
}

impl Losses {
    /// Finds the touched nodes that were lost and, if there are any, the control group.
    ///
    /// [`Node::touched_at`] defines a touch. The deletion of the old pod alone is one, because it can cut the node's connection
    /// (CNI, VPN, tunnel). `record` contains touches that no object shows.
    pub(super) fn new(
        fleet: &Fleet,
        classes: &[Class],
        summary: &PodSummary<'_>,
        (record, mode): (&FailureRecord, Mode),
        window: Duration,
    ) -> Self {
        let nodes = &fleet.nodes;
        let mut losses = Self {
            removes: mode == Mode::AdvancedRollingUpdate,
            ..Self::default()
        };
        for (position, class) in classes.iter().enumerate() {
            let Class::Offline {
                since: Some(since), ..
            } = *class
            else {
                continue;
            };
            if fleet.adopted.is_some_and(|adopted| since < adopted) {
                continue; // the node was lost under another revision
            }
            let node = &nodes[position];
            let is_soon =
                |touched: &Timestamp| *touched <= since && since <= later(*touched, window);
            let mut touched = node.touched_at(losses.removes);
            let begun = touched.clone().min();
            if record.remembers(&node.name) || touched.any(|touched| is_soon(&touched)) {
                let leaves = |pod: &Pod| pod.terminating && pod.revision == PodRevision::Outdated;
                // If the pod became terminating after the loss, it doesn't show that the rollout touched the node before the loss.
                let is_seen = node.disrupted_at.as_ref().is_some_and(is_soon);
                let shows = node.marked_at().any(|touched| is_soon(&touched))
                    || is_seen && node.pods.iter().any(leaves);
                losses.suspects.push(LostNode {
                    position,
                    since,
                    first: first_loss(node, since, begun, record),
                    is_only_known_here: !shows,
                });
            }
        }
        // A node that is NotReady and no longer targeted counts as gone. The guard still evaluates its loss.
        let is_gone = |name: &NodeName| {
            let position = position_of(nodes, name).ok();
            position.is_none_or(|position| match classes[position] {
                Class::NoNode => true,
                Class::NotTargeted => !nodes[position].is_ready(),
                _ => false,
            })
        };
        let gone = record.lost.iter().filter(|(name, _)| is_gone(name));
        losses.gone = gone.map(|(name, since)| (name.clone(), *since)).collect();
        if losses.is_any_node_lost() {
            losses
                .suspects
                .sort_by_key(|suspect| (suspect.since, suspect.position));
            losses.add_control_group(nodes, (classes, summary), record, window);
        }
        losses
    }

    fn add_control_group(
        &mut self,
        nodes: &[Node],
        (classes, summary): (&[Class], &PodSummary<'_>),
        record: &FailureRecord,
        window: Duration,
    ) {
        for (position, class) in classes.iter().enumerate() {
            if !class.is_targeted() {
                continue;
            }
            self.targeted += 1;
            match *class {
                Class::Offline { since, .. } => {
                    let node = &nodes[position];
                    let touched = node.touched_at(self.removes).min();
                    let is_after = |since| touched.is_some_and(|touched| touched <= since);
                    match since {
                        _ if record.remembers(&node.name) => self.lost += 1,
                        Some(since) if !is_after(since) => {
                            self.control_group.insert(node.name.clone(), since);
                        }
                        Some(_) => self.lost += 1,
                        None => self.lost += usize::from(touched.is_some()),
                    }
                }
                _ => {
                    let current = summary.current(position).filter(|pod| pod.of_template);
                    self.updated.extend(current.map(|pod| pod.revised));
                }
            }
        }
        let span = self.span(window);
        let is_near =
            |since: &Timestamp| span.is_some_and(|(from, to)| from <= *since && *since <= to);
        for (name, since) in record
            .control_group
            .iter()
            .filter(|(_, since)| is_near(since))
        {
            let position = position_of(nodes, name).ok();
            let is_of_that = |position: usize| matches!(classes[position], Class::Offline { since: Some(lost), .. } if lost == *since);
            if self.control_group.contains_key(name) || position.is_some_and(is_of_that) {
                continue; // already counted by its present state, which is more reliable than the record
            }
            self.control_group.insert(name.clone(), *since);
            // A node that is no longer targeted counts here, because it was targeted when it was lost.
            let is_counted = position.is_some_and(|position| classes[position].is_targeted());
            self.targeted += usize::from(!is_counted);
        }
        self.targeted += self.gone.len();
        self.lost += self.gone.len();
        self.control.extend(self.control_group.values());
        self.control.sort();
        self.updated.sort();
    }

    pub(super) fn is_any_node_lost(&self) -> bool {
        !self.suspects.is_empty() || !self.gone.is_empty()
    }

    /// Returns the nodes that were lost soon after the rollout touched them.
    pub(super) fn suspects(&self) -> impl Iterator<Item = LostNode> {
        self.suspects.iter().copied()
    }

    /// Removes the gone nodes that were lost in a network failure, after their failure window is over.
    ///
    /// The guard can learn nothing more about these nodes, so it leaves them out of later comparisons. Gone nodes that count
    /// against the revision stay.
    pub(super) fn forget(&mut self, record: &FailureRecord, window: Duration, now: Timestamp) {
        loop {
            let mut gone = self.gone.iter();
            let over = gone.position(|(name, since)| {
                later(*since, window) <= now
                    && !record.failed.contains(name)
                    && self.is_network_event(*since, window)
            });
            let Some(over) = over else {
                return;
            };
            (self.targeted, self.lost) = (self.targeted - 1, self.lost - 1);
            self.gone.remove(over);
        }
    }

    /// Returns the nodes of the control group to record, at most `most`. Only losses close to those of touched nodes are needed.
    pub(super) fn control_group(
        &self,
        window: Duration,
        most: usize,
    ) -> BTreeMap<NodeName, Timestamp> {
        let Some((from, to)) = self.span(window) else {
            return BTreeMap::new();
        };
        let control_group = self.control_group.iter();
        let near = control_group.filter(|(_, since)| from <= **since && **since <= to);
        near.take(most)
            .map(|(name, since)| (name.clone(), *since))
            .collect()
    }

    /// Returns the period in which losses of untouched nodes are compared with those of touched nodes; `None` if no node was lost.
    fn span(&self, window: Duration) -> Option<(Timestamp, Timestamp)> {
        let suspects = self.suspects.iter().map(|suspect| suspect.since);
        let lost = || {
            suspects
                .clone()
                .chain(self.gone.iter().map(|(_, since)| *since))
        };
        Some((earlier(lost().min()?, window), later(lost().max()?, window)))
    }

    /// Returns the touched nodes that were lost and gone before their evaluation, with the time at which they became NotReady.
    pub(super) fn gone(&self) -> &[(NodeName, Timestamp)] {
        &self.gone
    }

    /// Returns true if a network failure caused the losses of touched nodes at the time `at`.
    ///
    /// The evidence is losses of untouched nodes. Either of these is enough:
    ///
    /// - Within [`LOST_TOGETHER`] of `at`, at least as many untouched nodes were lost as touched ones. These untouched nodes must
    ///   be at least half of all untouched nodes that were lost within the window.
    /// - Within the window, untouched nodes were lost at a rate at least as high as that of touched nodes.
    ///
    /// The half in the first rule limits the effect of an unrelated loss that happens at the same time. Such a loss excuses at most
    /// one touched node, and none in a fleet that loses nodes all the time.
    ///
    /// A node that was touched after `at` counts as untouched, so later progress of the rollout doesn't change the result.
    pub(super) fn is_network_event(&self, at: Timestamp, window: Duration) -> bool {
        let (control, suspects) = self.lost_within(at, window);
        let (together, suspects_together) = self.lost_within(at, LOST_TOGETHER);
        if together >= suspects_together && together > 0 && together * 2 >= control {
            return true;
        }
        let updated = self.lost + self.updated.partition_point(|revised| *revised <= at);
        let old = self.targeted - updated;
        // control / old >= suspects / updated, without division
        control > 0 && control * updated >= suspects * old
    }

    /// Returns the numbers of untouched and touched nodes that were lost at most `span` before or after `at`.
    fn lost_within(&self, at: Timestamp, span: Duration) -> (usize, usize) {
        let (from, to) = (earlier(at, span), later(at, span));
        let control = between(&self.control, from, to, |since| *since);
        let gone = self.gone.iter();
        let gone = gone.filter(|(_, since)| from <= *since && *since <= to);
        let suspects = between(&self.suspects, from, to, |suspect| suspect.since) + gone.count();
        (control, suspects)
    }
}

/// Returns the time of a node's first loss after the rollout touched it, if it is known.
///
/// The present loss began at `since`, and the first visible touch was at `begun`. If the node counts against the revision or its
/// pods keep ending, its present pod may not be the first of this revision. Then `begun` says nothing about the first touch.
fn first_loss(
    node: &Node,
    since: Timestamp,
    begun: Option<Timestamp>,
    record: &FailureRecord,
) -> Timestamp {
    let is_known = node.trouble.is_some() || record.failed.contains(&node.name);
    let begun = begun.filter(|_| !is_known);
    let losses = node.losses.iter().flat_map(|losses| losses.iter().copied());
    let after = losses.filter(|at| begun.is_none_or(|begun| begun <= *at));
    after.min().map_or(since, |first| first.min(since))
}

/// Returns the number of items between `from` and `to`. `items` must be sorted by time.
fn between<T>(items: &[T], from: Timestamp, to: Timestamp, at: impl Fn(&T) -> Timestamp) -> usize {
    let begin = items.partition_point(|item| at(item) < from);
    let end = items.partition_point(|item| at(item) <= to);
    end - begin
}
