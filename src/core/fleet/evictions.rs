//! How evictions of the pods of a DaemonSet were answered: the answer to an eviction is the only way to know what
//! PodDisruptionBudgets allow.
//!
//! A budget selects pods by their labels and treats those that are not Ready in another way. So what is said about one pod
//! holds for all of one [`BudgetClass`]: a thousand nodes behind one budget are one question. It is asked again after
//! [`BACK_OFF`], or a moment after a pod of the fleet became Ready, which is what a budget mostly waits for.
//!
//! A restart of the controller forgets all that: then it is asked once more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::Pod;
use crate::core::instant::later;
use crate::core::labels::Labels;
use crate::core::verdict::Obstruction;

/// The shortest and the longest pause after a refusal; it doubles from one to the other.
pub const BACK_OFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(120));

/// So many answers are kept in any case: those for pods of a few revisions, Ready or not.
pub(in crate::core) const KEPT: usize = 16;

/// So long after a pod became Ready the budget has noticed: Kubernetes counts within a fraction of a second.
const NOTICED: Duration = Duration::from_secs(1);

/// Pods that no disruption budget tells apart.
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

/// How evictions of the pods of a DaemonSet were answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evictions(pub(in crate::core) BTreeMap<BudgetClass, EvictionAnswer>);

/// The last answer for pods that are alike. While they never were refused there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::core) enum EvictionAnswer {
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
    /// Whether nobody was refused.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes in that `pod` was evicted.
    pub fn accept(&mut self, pod: &Pod) {
        // Who was never refused is not remembered.
        if let Some(answer) = self.0.get_mut(&BudgetClass::from_pod(pod)) {
            *answer = EvictionAnswer::Accepted;
        }
    }

    /// Takes in that the eviction of `pod` was refused at `now`.
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
                // Several asked by one plan are one try.
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

    /// Takes in that the eviction of `pod` would be refused at `now`, as it would have been since `since`.
    pub fn refuse_since(&mut self, pod: &Pod, refusal: Refusal, since: Timestamp, now: Timestamp) {
        let answer = EvictionAnswer::Refused {
            refusal,
            since: since.min(now),
            asked: now,
            times: 1,
        };
        self.0.insert(BudgetClass::from_pod(pod), answer);
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
    /// From when on one of these pods may be asked; `newest`: when a pod of the fleet became Ready last.
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
