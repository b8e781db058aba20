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
    /// Nodes that have the current revision, lost or not.
    updated: usize,
    /// Nodes that have not.
    old: usize,
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
            match *class {
                Class::Offline { .. } if glance.current(position).is_some() => self.updated += 1,
                Class::Done | Class::Failed { .. } | Class::Surging(_) | Class::InProgress(_) => {
                    self.updated += 1
                }
                Class::Offline { since, .. } => {
                    self.old += 1;
                    self.control.extend(since);
                }
                Class::Outdated { .. }
                | Class::Preparing { .. }
                | Class::Kept(_)
                | Class::Unknown { .. } => self.old += 1,
                Class::NotTargeted | Class::NoNode => {}
            }
        }
        self.control.sort();
    }

    /// Nodes that were lost soon after they got the current revision: position and time.
    pub(super) fn suspects(&self) -> impl Iterator<Item = (usize, Timestamp)> {
        self.suspects.iter().copied()
    }

    /// Whether, around that time, nodes of the old revision were lost at no smaller rate than updated ones.
    pub(super) fn is_network_event(&self, at: Timestamp, window: Duration) -> bool {
        let (from, to) = (earlier(at, window), later(at, window));
        let control = between(&self.control, from, to, |since| *since);
        let suspects = between(&self.suspects, from, to, |(_, since)| *since);
        // control / old >= suspects / updated, without division
        control > 0 && control * self.updated >= suspects * self.old
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
