//! Pods that leave by eviction (`disruption: evict`), and PodDisruptionBudgets that refuse it.
//!
//! The answer to an eviction is the only way to know: budgets are not watched. Whoever asks writes down the answer in
//! [`Evictions`]; a plan asks accordingly.
//!
//! ```text
//!          ┌──────────────── refused ◄────────────────┐
//!          ▼                                          │
//! refused: nobody is asked ──back-off is over──► one is asked ──accepted──► one at a time, as slots allow
//! ```
//!
//! A budget selects pods by their labels and treats those that are not Ready in another way. So what is said about one pod
//! holds for all that are [`Alike`]: a thousand nodes behind one budget are one question. It is asked again after
//! [`BACK_OFF`], or a moment after a pod of the fleet became Ready, which is what a budget mostly waits for.
//!
//! A restart of the controller forgets all that: then it is asked once more.

#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::Labels;
use super::fleet::{Fleet, Pod};
use super::instant::later;
use super::ota::reference;
use super::plan::Action;
use super::settings::{Disruption, Strategy};
use super::verdict::{Obstruction, Progress, Verdict};

/// The shortest and the longest pause after a refusal; it doubles from one to the other.
pub const BACK_OFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(120));

/// A rollout that waits for a disruption budget for longer needs a person.
pub const BUDGET_PATIENCE: Duration = Duration::from_secs(600);

/// So many answers are kept in any case: those for pods of a few revisions, Ready or not.
const KEPT: usize = 16;

/// So long after a pod became Ready the budget has noticed: Kubernetes counts within a fraction of a second.
const NOTICED: Duration = Duration::from_secs(1);

/// Pods that no disruption budget tells apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    labels: Labels,
    ready: bool,
}

impl Alike {
    fn of(pod: &Pod) -> Self {
        Self {
            labels: pod.exit.labels.clone(),
            ready: pod.ready_since.is_some(),
        }
    }
}

/// How evictions of the pods of a DaemonSet were answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evictions(BTreeMap<Alike, Answer>);

/// The last answer for pods that are alike. While they never were refused there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// No, so often in a row.
    Refused {
        refusal: Refusal,
        since: Timestamp,
        asked: Timestamp,
        times: u32,
    },
    /// Yes, after a refusal: another one may follow.
    Accepted,
}

/// Why an eviction was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The disruption budget; `None` where the API server does not name one.
    pub budget: Option<Arc<str>>,
    /// What it says about it.
    pub obstruction: Obstruction,
}

impl Evictions {
    /// Takes in that `pod` was evicted.
    pub fn accept(&mut self, pod: &Pod) {
        // Who was never refused is not remembered.
        if let Some(answer) = self.0.get_mut(&Alike::of(pod)) {
            *answer = Answer::Accepted;
        }
    }

    /// Takes in that the eviction of `pod` was refused at `now`.
    pub fn refuse(&mut self, pod: &Pod, mut refusal: Refusal, now: Timestamp) {
        let answer = self.0.entry(Alike::of(pod)).or_insert(Answer::Accepted);
        let (first, earlier) = match answer {
            Answer::Refused {
                refusal: known,
                since,
                asked,
                times,
            } if known.budget == refusal.budget => {
                let is_mistake = known.obstruction == Obstruction::NotComputed;
                let is_late =
                    known.obstruction == refusal.obstruction && later(*asked, BACK_OFF.0) <= now;
                if is_mistake || is_late {
                    refusal.obstruction = refusal.obstruction.after_a_while();
                }
                // Several asked by one plan are one try.
                (*since, *times + u32::from(later(*asked, NOTICED) <= now))
            }
            Answer::Refused { since, .. } => (*since, 1),
            Answer::Accepted => (now, 1),
        };
        *answer = Answer::Refused {
            refusal,
            since: first,
            asked: now,
            times: earlier,
        };
    }

    /// Takes in that the eviction of `pod` would be refused at `now`, as it would have been since `since`.
    pub fn refuse_since(&mut self, pod: &Pod, refusal: Refusal, since: Timestamp, now: Timestamp) {
        let answer = Answer::Refused {
            refusal,
            since: since.min(now),
            asked: now,
            times: 1,
        };
        self.0.insert(Alike::of(pod), answer);
    }

    /// Forgets what is about none of these pods, once there is much to forget.
    pub fn tidy<'a>(&mut self, pods: impl Iterator<Item = &'a Pod>) {
        if self.0.len() >= KEPT {
            let labels: BTreeSet<&Labels> = pods.map(|pod| &pod.exit.labels).collect();
            self.0.retain(|alike, _| labels.contains(&alike.labels));
        }
    }

    /// Why this pod may not go, as far as known.
    pub fn refusal_of(&self, pod: &Pod) -> Option<&Refusal> {
        match self.of(pod)? {
            Answer::Refused { refusal, .. } => Some(refusal),
            Answer::Accepted => None,
        }
    }

    fn of(&self, pod: &Pod) -> Option<&Answer> {
        match self.0.is_empty() {
            true => None,
            false => self.0.get(&Alike::of(pod)),
        }
    }
}

impl Answer {
    /// From when on one of these pods may be asked; `newest`: when a pod of the fleet became Ready last.
    fn due(&self, newest: Option<Timestamp>) -> Timestamp {
        match self {
            Self::Accepted => Timestamp::MIN,
            Self::Refused { asked, times, .. } => {
                let pause = BACK_OFF.0 * (1 << (times - 1).min(10));
                let due = later(*asked, pause.min(BACK_OFF.1));
                let since = newest.filter(|newest| newest > asked);
                since.map_or(due, |newest| due.min(later(newest, NOTICED)))
            }
        }
    }
}

/// Whom a plan may ask to go.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    /// `None`: pods are deleted, and nobody else has a say.
    answers: Option<&'a Evictions>,
    now: Timestamp,
    /// When a pod of the fleet became Ready last.
    newest: Option<Timestamp>,
    /// For whom this plan asks once more.
    asked: BTreeSet<Alike>,
    /// So many of these were refused before.
    again: usize,
}

impl<'a> Asking<'a> {
    /// As it is at `now`.
    pub(super) fn of(strategy: &Strategy, fleet: &'a Fleet, now: Timestamp) -> Self {
        let answers = (strategy.disruption == Disruption::Evict).then_some(&fleet.evictions);
        let pods = || fleet.nodes.iter().flat_map(|node| &node.pods);
        let known = answers.is_some_and(|answers| !answers.0.is_empty());
        Self {
            answers,
            now,
            newest: match known {
                true => pods().filter_map(|pod| pod.ready_since).max(),
                false => None,
            },
            asked: BTreeSet::new(),
            again: 0,
        }
    }

    /// Whether anybody was refused.
    pub(super) fn is_any_refused(&self) -> bool {
        self.answers.is_some_and(|answers| !answers.0.is_empty())
    }

    /// What is said of a pod that may not go, as far as known.
    pub(super) fn blocked(&self, pod: &Pod) -> Option<Verdict> {
        match self.answers?.of(pod)? {
            Answer::Refused { refusal, since, .. } => Some(Verdict::BlockedByPdb {
                since: *since,
                obstruction: refusal.obstruction,
            }),
            Answer::Accepted => None,
        }
    }

    /// When this pod, which may not go, may be asked for again.
    pub(super) fn due(&self, pod: &Pod) -> Option<Timestamp> {
        Some(self.answers?.of(pod)?.due(self.newest))
    }

    /// Whether this pod may be asked for now: one at a time of those that were refused.
    pub(super) fn may_ask(&self, pod: &Pod) -> bool {
        let due = self.due(pod);
        due.is_none_or(|due| due <= self.now && !self.asked.contains(&Alike::of(pod)))
    }

    /// Whether it is about to be asked again although the back-off is not over: somebody became Ready meanwhile.
    pub(super) fn is_hurried(&self, pod: &Pod) -> bool {
        let answer = self.answers.and_then(|answers| answers.of(pod));
        answer.is_some_and(|answer| answer.due(self.newest) < answer.due(None))
    }

    /// Asks for a pod that may go as far as we are concerned: what to write, and what is said of it if there is something
    /// to say.
    pub(super) fn ask(&mut self, pod: &Pod) -> (Option<Action>, Option<Verdict>) {
        let replacing = Some(Verdict::InProgress(Progress::Replacing));
        let Some(answers) = self.answers else {
            return (Some(Action::Delete(reference(pod))), replacing);
        };
        let blocked = self.blocked(pod);
        if !self.may_ask(pod) {
            return (None, blocked);
        }
        if answers.of(pod).is_some() {
            self.asked.insert(Alike::of(pod));
        }
        self.again += usize::from(blocked.is_some());
        (Some(Action::Evict(reference(pod))), blocked.or(replacing))
    }

    /// How many pods this plan asks for that were refused before.
    pub(super) fn again(&self) -> usize {
        self.again
    }
}
