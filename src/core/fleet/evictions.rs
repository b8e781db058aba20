//! Answers of the API server to evictions of a DaemonSet's pods. They are the only way to learn what PodDisruptionBudgets allow.
//!
//! A budget selects pods by labels and treats pods that are not Ready differently. So an answer for one pod holds for its whole
//! [`BudgetClass`]: a thousand nodes behind one budget need one request. The request is repeated after [`BACK_OFF`], or shortly
//! after a pod of the fleet becomes Ready, which is usually what a budget waits for.
//!
//! The answers are in memory only. After a restart, the controller asks again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::Pod;
use crate::core::instant::later;
use crate::core::labels::Labels;
use crate::core::verdict::Obstruction;

/// Shortest and longest pause after a refusal. The pause doubles with each refusal.
pub const BACK_OFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(120));

/// Number of answers that are always kept. It covers the pods of a few revisions, Ready or not.
pub(in crate::core) const KEPT: usize = 16;

/// Time after which a budget has counted a pod that became Ready. Kubernetes needs a fraction of a second.
const NOTICED: Duration = Duration::from_secs(1);

/// Pods that disruption budgets cannot distinguish.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) struct BudgetClass {
    labels: Labels,
    ready: bool,
}

impl BudgetClass {
    pub(in crate::core) fn from_pod(pod: &Pod) -> Self {
        Self {
            labels: pod.exit.labels.clone(),
            ready: pod.ready_since.is_some(),
        }
    }
}

/// Answers to evictions of a DaemonSet's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evictions(pub(in crate::core) BTreeMap<BudgetClass, EvictionAnswer>);

/// Last answer for a class of pods. There is none for a class that was never refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::core) enum EvictionAnswer {
    /// Refused, `times` in a row.
    Refused {
        refusal: Refusal,
        since: Timestamp,
        asked: Timestamp,
        times: u32,
    },
    /// Accepted after a refusal; the next eviction may follow.
    Accepted,
}

/// Reason for a refused eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the disruption budget; `None` if the API server doesn't name one.
    pub budget: Option<Arc<str>>,
    /// State of the budget.
    pub obstruction: Obstruction,
}

impl Evictions {
    /// Returns true if no answer is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records that `pod` was evicted.
    pub fn accept(&mut self, pod: &Pod) {
        // Classes that were never refused are not remembered.
        if let Some(answer) = self.0.get_mut(&BudgetClass::from_pod(pod)) {
            *answer = EvictionAnswer::Accepted;
        }
    }

    /// Records that the eviction of `pod` was refused at `now`.
    pub fn refuse(&mut self, pod: &Pod, mut refusal: Refusal, now: Timestamp) {
        let answer = self
            .0
            .entry(BudgetClass::from_pod(pod))
            .or_insert(EvictionAnswer::Accepted);
        let (first, earlier) = match answer {
            EvictionAnswer::Refused {
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
                // Several requests of one plan count as one attempt.
                (*since, *times + u32::from(later(*asked, NOTICED) <= now))
            }
            EvictionAnswer::Refused { since, .. } => (*since, 1),
            EvictionAnswer::Accepted => (now, 1),
        };
        *answer = EvictionAnswer::Refused {
            refusal,
            since: first,
            asked: now,
            times: earlier,
        };
    }

    /// Records that an eviction of `pod` would be refused at `now`, and would have been since `since`.
    pub fn refuse_since(&mut self, pod: &Pod, refusal: Refusal, since: Timestamp, now: Timestamp) {
        let answer = EvictionAnswer::Refused {
            refusal,
            since: since.min(now),
            asked: now,
            times: 1,
        };
        self.0.insert(BudgetClass::from_pod(pod), answer);
    }

    /// Removes answers that concern none of these pods, if `KEPT` or more are stored.
    pub fn tidy<'a>(&mut self, pods: impl Iterator<Item = &'a Pod>) {
        if self.0.len() >= KEPT {
            let labels: BTreeSet<&Labels> = pods.map(|pod| &pod.exit.labels).collect();
            self.0.retain(|alike, _| labels.contains(&alike.labels));
        }
    }

    /// Returns the reason why the eviction of `pod` is refused, if known.
    pub fn refusal_of(&self, pod: &Pod) -> Option<&Refusal> {
        match self.answer(pod)? {
            EvictionAnswer::Refused { refusal, .. } => Some(refusal),
            EvictionAnswer::Accepted => None,
        }
    }

    pub(in crate::core) fn answer(&self, pod: &Pod) -> Option<&EvictionAnswer> {
        if self.0.is_empty() {
            None
        } else {
            self.0.get(&BudgetClass::from_pod(pod))
        }
    }
}

impl EvictionAnswer {
    /// Returns the time of the next request for the class. `newest`: time at which a pod of the fleet last became Ready.
    pub(in crate::core) fn due(&self, newest: Option<Timestamp>) -> Timestamp {
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
