//! Nodes that turned NotReady: those that the rollout had just touched, and the control group, which it had not.

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

/// The losses of a fleet.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Nodes that were lost within the window after the rollout touched them, by time.
    suspects: Vec<LostNode>,
    /// The same of those that are gone since, in the order of names.
    gone: Vec<(NodeName, Timestamp)>,
    /// Nodes that the rollout had not touched when they were lost, also those that are back since and of which `record` tells.
    control_group: BTreeMap<NodeName, Timestamp>,
    /// When that was, in order.
    control: Vec<Timestamp>,
    /// Nodes that were lost after the rollout touched them, however long after.
    lost: usize,
    /// When the nodes that were not lost got the current revision, in order.
    updated: Vec<Timestamp>,
    /// All nodes that count, touched or not.
    targeted: usize,
    /// Whether pods that leave are the rollout's doing. Under OTA they are the owners', which nothing remembers: what counts is
    /// the new pod.
    removes: bool,
}

/// A node that was lost soon after the rollout touched it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LostNode {
    /// Its position in the fleet.
    pub(super) position: usize,
    /// When it turned NotReady.
    pub(super) since: Timestamp,
    /// When it was lost for the first time after the rollout touched it; `since` unless it flaps.
    pub(super) first: Timestamp,
    /// Whether nothing on the API server tells (any more) that it was touched: somebody has to remember that.
    pub(super) is_only_known_here: bool,
}

impl Losses {
    /// Looks for suspects, and at the control group only if there are some.
    ///
    /// A node is touched by what [`Node::touched_at`] names: also by the removal of its old pod alone, which can take down
    /// what the node is reached by (CNI, VPN, tunnel). `record` remembers those of which nothing else tells that any more.
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
                continue; // it was lost under another revision
            }
            let node = &nodes[position];
            let is_soon =
                |touched: &Timestamp| *touched <= since && since <= later(*touched, window);
            let mut touched = node.touched_at(losses.removes);
            let begun = touched.clone().min();
            if record.remembers(&node.name) || touched.any(|touched| is_soon(&touched)) {
                let leaves = |pod: &Pod| pod.terminating && pod.revision == PodRevision::Outdated;
                // One that was asked to go after the loss tells nothing of what was before it.
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
        // Also who is lost still, and where no pod belongs any more.
        let is_gone = |name: &NodeName| {
            let position = position_of(nodes, name).ok();
            position.is_none_or(|position| match classes[position] {
                Class::NoNode => true,
                Class::NotTargeted => !nodes[position].is_ready(),
                _ => false,
            })
        };
        let gone = record.judged.iter().filter(|(name, _)| is_gone(name));
        losses.gone = gone.map(|(name, since)| (name.clone(), *since)).collect();
        if losses.is_anybody_lost() {
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
                continue; // it is away, still or again: what is known of it now says more
            }
            self.control_group.insert(name.clone(), *since);
            // Where no pod belongs any more, one did.
            let is_counted = position.is_some_and(|position| classes[position].is_targeted());
            self.targeted += usize::from(!is_counted);
        }
        self.targeted += self.gone.len();
        self.lost += self.gone.len();
        self.control.extend(self.control_group.values());
        self.control.sort();
        self.updated.sort();
    }

    /// Whether somebody was lost who has to be judged: then all others are heard.
    pub(super) fn is_anybody_lost(&self) -> bool {
        !self.suspects.is_empty() || !self.gone.is_empty()
    }

    /// Nodes that were lost soon after the rollout touched them.
    pub(super) fn suspects(&self) -> impl Iterator<Item = LostNode> {
        self.suspects.iter().copied()
    }

    /// Takes those out whose Node was deleted, whom the network took away, and whose window is over: nothing is known of them
    /// any more, so the others are judged without them at once. Who is charged stays.
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

    /// The control group, as far as it says anything of those that are away: what is to be remembered of it, `most` at most.
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

    /// When losses say anything of those that are away; `None`: nobody is.
    fn span(&self, window: Duration) -> Option<(Timestamp, Timestamp)> {
        let suspects = self.suspects.iter().map(|suspect| suspect.since);
        let lost = || {
            suspects
                .clone()
                .chain(self.gone.iter().map(|(_, since)| *since))
        };
        Some((earlier(lost().min()?, window), later(lost().max()?, window)))
    }

    /// Those of them whose Node was deleted before they were judged, with since when they were NotReady.
    pub(super) fn gone(&self) -> &[(NodeName, Timestamp)] {
        &self.gone
    }

    /// Returns true if the network took away a node that was lost at that time. Untouched nodes prove it that were lost
    ///
    /// - within [`LOST_TOGETHER`], if they are at least as many as the touched ones, and at least half of the untouched ones that were
    ///   lost within the window. So a coincidence excuses one node at most, and none in a fleet where nodes come and go all the time;
    /// - or within the window, at no smaller rate than the touched ones.
    ///
    /// A node that was touched later had the old revision then, so what the rollout does meanwhile changes no judgement.
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

    /// Number of nodes lost no longer than `span` before or after `at`: untouched ones, and touched ones.
    fn lost_within(&self, at: Timestamp, span: Duration) -> (usize, usize) {
        let (from, to) = (earlier(at, span), later(at, span));
        let control = between(&self.control, from, to, |since| *since);
        let gone = self.gone.iter();
        let gone = gone.filter(|(_, since)| from <= *since && *since <= to);
        let suspects = between(&self.suspects, from, to, |suspect| suspect.since) + gone.count();
        (control, suspects)
    }
}

/// Returns when a node was lost for the first time after the rollout touched it, as far as that is remembered; it is lost since `since`,
/// and what shows of the touch is as old as `begun`. The pods of a node that is charged, or whose pods keep ending, are replaced also by
/// others, which says nothing of the first touch.
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

/// How many of the sorted `items` lie in that span.
fn between<T>(items: &[T], from: Timestamp, to: Timestamp, at: impl Fn(&T) -> Timestamp) -> usize {
    let begin = items.partition_point(|item| at(item) < from);
    let end = items.partition_point(|item| at(item) <= to);
    end - begin
}
