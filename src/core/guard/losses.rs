//! Nodes that turned NotReady: those that just got the current revision, and the control group, which has not.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::core::classify::{Class, later};
use crate::core::glance::Glance;

/// The losses of a fleet.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Position and time of nodes that were lost within the window after their new pod was made, by time.
    suspects: Vec<(usize, Timestamp)>,
    /// When nodes of the old revision were lost, in order.
    control: Vec<Timestamp>,
    /// Nodes that were lost after they got the current revision, however long after.
    lost: usize,
    /// When the nodes that were not lost got the current revision, in order.
    updated: Vec<Timestamp>,
    /// All nodes that count, of either revision.
    targeted: usize,
}

impl Losses {
    /// Looks for suspects, and at the control group only if there are some.
    pub(super) fn of(classes: &[Class], glance: &Glance<'_>, window: Duration) -> Self {
        let mut losses = Self::default();
        for (position, class) in classes.iter().enumerate() {
            let Class::Offline {
                since: Some(since), ..
            } = *class
            else {
                continue;
            };
            let is_soon = |revised: Timestamp| revised <= since && since <= later(revised, window);
            let pod = glance.current(position);
            if pod.is_some_and(|pod| is_soon(pod.revised)) {
                losses.suspects.push((position, since));
            }
        }
        if !losses.suspects.is_empty() {
            losses
                .suspects
                .sort_by_key(|(position, since)| (*since, *position));
            losses.hear(classes, glance);
        }
        losses
    }

    fn hear(&mut self, classes: &[Class], glance: &Glance<'_>) {
        for (position, class) in classes.iter().enumerate() {
            if !class.is_targeted() {
                continue;
            }
            self.targeted += 1;
            let revised = glance.current(position).map(|pod| pod.revised);
            match (class, revised) {
                (Class::Offline { since, .. }, None) => self.control.extend(*since),
                (
                    Class::Offline {
                        since: Some(since), ..
                    },
                    Some(revised),
                ) if *since < revised => self.control.push(*since),
                (Class::Offline { .. }, Some(_)) => self.lost += 1,
                (_, revised) => self.updated.extend(revised),
            }
        }
        self.control.sort();
        self.updated.sort();
    }

    /// Nodes that were lost soon after they got the current revision: position and time.
    pub(super) fn suspects(&self) -> impl Iterator<Item = (usize, Timestamp)> {
        self.suspects.iter().copied()
    }

    /// Whether, around that time, nodes of the old revision were lost at no smaller rate than updated ones.
    ///
    /// Who got the revision later than that had the old one then, so what the rollout does meanwhile changes no judgement.
    pub(super) fn is_network_event(&self, at: Timestamp, window: Duration) -> bool {
        let (from, to) = (earlier(at, window), later(at, window));
        let control = between(&self.control, from, to, |since| *since);
        let suspects = between(&self.suspects, from, to, |(_, since)| *since);
        let updated = self.lost + self.updated.partition_point(|revised| *revised <= at);
        let old = self.targeted - updated;
        // control / old >= suspects / updated, without division
        control > 0 && control * updated >= suspects * old
    }
}

/// How many of the sorted `items` lie in that span.
fn between<T>(items: &[T], from: Timestamp, to: Timestamp, at: impl Fn(&T) -> Timestamp) -> usize {
    let begin = items.partition_point(|item| at(item) < from);
    let end = items.partition_point(|item| at(item) <= to);
    end - begin
}

/// `instant - duration`, saturating.
fn earlier(instant: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    instant.checked_sub(duration).unwrap_or(Timestamp::MIN)
}
