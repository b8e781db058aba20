//! Results of the evictions of a DaemonSet's pods. Only the attempt shows if a PodDisruptionBudget allows an eviction.
//!
//! A disruption budget selects pods by labels and treats pods that are not Ready differently. So the result for one pod applies to
//! all pods with the same labels and readiness, its [`BudgetClass`]. For a thousand nodes with the same budget, one request is
//! enough.
//!
//! A rejected eviction is retried after [`BACK_OFF`]. It is retried earlier if a pod of the fleet becomes Ready: more available
//! pods are usually what the budget needs to allow the eviction.
//!
//! The results are only in memory. After a restart, the controller requests evictions again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::Pod;
use crate::core::instant::later;
use crate::core::labels::Labels;
use crate::core::verdict::Obstruction;

/// Shortest and longest pause before a rejected eviction is retried. The pause doubles with each rejection.
pub const BACK_OFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(120));

/// Number of results that are always kept: enough for the pods of a few revisions, Ready or not.
pub(in crate::core) const KEPT: usize = 16;

/// Time within which Kubernetes updates the status of a disruption budget after a pod became Ready. It usually needs a fraction of
/// a second.
const NOTICED: Duration = Duration::from_secs(1);

/// Pods that a disruption budget treats alike, because their labels and their readiness are equal.
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

/// Latest results of evictions. Pods with equal labels and equal readiness share a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evictions(pub(in crate::core) BTreeMap<BudgetClass, EvictionAnswer>);

/// Latest result for pods with equal labels and equal readiness. There is no entry until an eviction of such a pod is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::core) enum EvictionAnswer {
    /// The last `times` evictions were rejected, first at `since` and last at `asked`.
    Refused {
        refusal: Refusal,
        since: Timestamp,
        asked: Timestamp,
        times: u32,
    },
    /// An earlier eviction was rejected and the last one accepted, so the next pod may be evicted.
    Accepted,
}

/// Reason why an eviction was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the disruption budget; `None` if the API server doesn't name one.
    pub budget: Option<Arc<str>>,
    /// Cause of the rejection, as far as the status of the budget shows it.
    pub obstruction: Obstruction,
}

impl Evictions {
    /// Returns true if no result is recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records that the eviction of `pod` was accepted.
    pub fn accept(&mut self, pod: &Pod) {
        // Only budget classes with an earlier rejected eviction have an entry to update.
        if let Some(answer) = self.0.get_mut(&BudgetClass::from_pod(pod)) {
            *answer = EvictionAnswer::Accepted;
        }
    }

    /// Records that the eviction of `pod` was rejected at `now`.
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
                // A plan may evict several pods at once. Their rejections count as one.
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

    /// Records that the API server would reject an eviction of `pod`. The state of the disruption budget showed this at `now`, and
    /// has shown it since `since`.
    pub fn refuse_since(&mut self, pod: &Pod, refusal: Refusal, since: Timestamp, now: Timestamp) {
        let answer = EvictionAnswer::Refused {
            refusal,
            since: since.min(now),
            asked: now,
            times: 1,
        };
        self.0.insert(BudgetClass::from_pod(pod), answer);
    }

    /// Removes the results for labels that no pod in `pods` has, if `KEPT` or more results are stored.
    pub fn tidy<'a>(&mut self, pods: impl Iterator<Item = &'a Pod>) {
        if self.0.len() >= KEPT {
            let labels: BTreeSet<&Labels> = pods.map(|pod| &pod.exit.labels).collect();
            self.0.retain(|alike, _| labels.contains(&alike.labels));
        }
    }

    /// Returns the reason why the API server rejected the latest eviction of a pod with the labels and the readiness of `pod`.
    /// `None` if it accepted that eviction, or if none was tried.
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
    /// Returns the time from which the next eviction may be requested after this answer. `newest` is the time at which a pod last
    /// became Ready.
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
