//! A disruption budget that rejects evictions, and the controller's record of the responses.
//!
//! ```text
//! Silent ──rejected──► Refused ──time passes, and the budget allows it──► Due ──► next request ──► Refused or Accepted
//! ```
//!
//! A second rejection of the same eviction would lead to no new state. So the model retries an eviction only after the budget
//! allows it. Under a budget that never allows the eviction, no step is left. The fleet then counts as converged only if the
//! controller has scheduled a wake-up for the retry.

use yurt_ds::core::{Evictions, Obstruction, Plan, Refusal};

use super::rules::Rules;
use super::state::{Pod, State, View, Violation};
use super::view::at;

/// Last responses to evictions. The controller keeps them separately for pods that are Ready and pods that are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Answers {
    ready: Answer,
    unready: Answer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Answer {
    /// No eviction has been rejected.
    #[default]
    Silent,
    /// The last eviction was rejected a moment ago.
    Refused,
    /// The last eviction was rejected, and the backoff has passed.
    Due,
    /// An eviction was accepted after an earlier one had been rejected.
    Accepted,
}

impl Answers {
    fn of(&mut self, ready: bool) -> &mut Answer {
        if ready {
            &mut self.ready
        } else {
            &mut self.unready
        }
    }
}

impl State {
    /// Converts the responses to the engine's type.
    pub(crate) fn evictions(&self, rules: &Rules) -> Evictions {
        let mut evictions = Evictions::default();
        let answers = [(true, self.answers.ready), (false, self.answers.unready)];
        for (ready, answer) in answers {
            let asked = match answer {
                Answer::Silent => continue,
                Answer::Refused => at(0),
                Answer::Due | Answer::Accepted => at(-1),
            };
            let pod = Pod {
                ready_since: ready.then_some(0),
                ..Pod::new(0, 0)
            };
            let pod = self.pod(&pod, rules);
            let refusal = Refusal {
                budget: Some("budget".into()),
                obstruction: Obstruction::Exhausted,
            };
            evictions.refuse(&pod, refusal, asked);
            if answer == Answer::Accepted {
                evictions.accept(&pod);
            }
        }
        evictions
    }

    /// Returns the number of Ready pods that are not terminating.
    fn healthy(&self) -> usize {
        let pods = self.nodes.iter().flat_map(|node| &node.pods);
        pods.filter(|pod| !pod.terminating && pod.ready_since.is_some())
            .count()
    }

    /// Returns true if the budget allows the eviction of a pod that is Ready (`ready`) or not. The eviction of a pod that is not
    /// Ready doesn't lower the number of healthy pods. So the budget allows it if enough pods are healthy (`IfHealthyBudget`).
    fn allows(&self, ready: bool, rules: &Rules) -> bool {
        self.healthy() >= rules.min_ready_pods + usize::from(ready)
    }

    /// Returns true if the API server accepts the eviction of this pod. The eviction of a terminating pod is always accepted.
    pub(crate) fn allows_eviction(&self, n: usize, p: usize, rules: &Rules) -> bool {
        let pod = &self.nodes[n].pods[p];
        pod.terminating || self.allows(pod.ready_since.is_some(), rules)
    }

    /// Returns true if the budget allows no eviction of a Ready pod.
    pub(crate) fn is_exhausted(&self, rules: &Rules) -> bool {
        !self.allows(true, rules)
    }

    pub(crate) fn note_refused(&mut self, uid: u8) {
        if let Some(ready) = self.is_seen_ready(uid) {
            *self.answers.of(ready) = Answer::Refused;
        }
    }

    pub(crate) fn note_evicted(&mut self, uid: u8) {
        if let Some(ready) = self.is_seen_ready(uid) {
            let answer = self.answers.of(ready);
            if *answer != Answer::Silent {
                *answer = Answer::Accepted;
            }
        }
    }

    fn is_seen_ready(&self, uid: u8) -> Option<bool> {
        let mut known = self.nodes.iter().map(|node| &node.pods);
        let seen = self.view.pods.as_ref();
        let found = |pods: &Vec<Pod>| pods.iter().find(|pod| pod.uid == uid).cloned();
        let pod = match seen {
            Some(nodes) => nodes.iter().find_map(found),
            None => known.find_map(found),
        };
        pod.map(|pod| pod.ready_since.is_some())
    }

    /// Lets time pass for rejected evictions. The controller may retry the evictions that the budget now allows.
    pub(crate) fn wait_for_budget(&mut self, rules: &Rules) {
        for ready in [true, false] {
            let is_allowed = self.allows(ready, rules);
            let answer = self.answers.of(ready);
            if *answer == Answer::Refused && is_allowed {
                *answer = Answer::Due;
            }
        }
    }

    /// Checks a deletion by the controller where the settings require evictions. If the budget allows no eviction, the controller
    /// must not delete the last Ready pod of a node.
    pub(crate) fn judge_deletion(&mut self, n: usize, p: usize, rules: &Rules) {
        let serves = |pod: &&Pod| !pod.terminating && pod.ready_since.is_some();
        let is_last = self.nodes[n].pods.iter().filter(serves).count() == 1
            && serves(&&self.nodes[n].pods[p]);
        if is_last && self.healthy() <= rules.min_ready_pods {
            self.violate(Violation::DisruptionExceeded);
        }
    }

    /// Checks that nodes whose eviction was rejected don't count against `max-unavailable`.
    pub(crate) fn judge_refusals(&mut self, plan: &Plan, rules: &Rules) {
        if !rules.evicts() || self.view != View::default() {
            return;
        }
        let is_quiet = |pods: &[Pod]| matches!(pods, [pod] if rules.is_available(pod));
        let nodes = self.nodes.iter();
        let busy = nodes.filter(|node| !is_quiet(&node.pods)).count();
        let begun = plan.actions.iter().filter(|action| action.begins()).count();
        if plan.counts.unavailable > busy + begun {
            self.violate(Violation::RefusalSpent);
        }
    }
}
