//! A disruption budget that refuses evictions, and what our controller remembers of that.
//!
//! ```text
//! Silent ──refused──► Refused ──time passes, and the budget would allow it──► Due ──► one is asked ──► Refused or Accepted
//! ```
//!
//! Whoever asks in vain once more learns nothing new: so time alone makes nobody due, and a budget that is never met lets
//! the fleet come to rest. Being woken for that is part of having converged.

use yurt_ds::core::{Evictions, Obstruction, Plan, Refusal};

use super::rules::Rules;
use super::state::{Pod, State, View, Violation};
use super::view::at;

/// The last answer for pods that are Ready, and for those that are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Answers {
    ready: Answer,
    unready: Answer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Answer {
    /// Nobody was refused.
    #[default]
    Silent,
    /// No, just now.
    Refused,
    /// No, for longer than the back-off.
    Due,
    /// Yes, after a refusal.
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
    /// The answers in the form of the engine.
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

    /// Pods that are Ready and stay.
    fn healthy(&self) -> usize {
        let pods = self.nodes.iter().flat_map(|node| &node.pods);
        pods.filter(|pod| !pod.terminating && pod.ready_since.is_some())
            .count()
    }

    /// Whether the API server lets a pod go: one that is not Ready does not count (`IfHealthyBudget`).
    fn allows(&self, ready: bool, rules: &Rules) -> bool {
        self.healthy() >= rules.min_ready_pods + usize::from(ready)
    }

    /// The same for this pod; one that goes already may do so.
    pub(crate) fn allows_eviction(&self, n: usize, p: usize, rules: &Rules) -> bool {
        let pod = &self.nodes[n].pods[p];
        pod.terminating || self.allows(pod.ready_since.is_some(), rules)
    }

    /// Whether no pod that is Ready may go.
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

    /// Time passes for those who were refused.
    pub(crate) fn wait_for_budget(&mut self, rules: &Rules) {
        for ready in [true, false] {
            let is_allowed = self.allows(ready, rules);
            let answer = self.answers.of(ready);
            if *answer == Answer::Refused && is_allowed {
                *answer = Answer::Due;
            }
        }
    }

    /// A pod is about to be deleted, whatever the budget says: no node may lose its last one that is Ready while it counts.
    pub(crate) fn judge_deletion(&mut self, n: usize, p: usize, rules: &Rules) {
        let serves = |pod: &&Pod| !pod.terminating && pod.ready_since.is_some();
        let is_last = self.nodes[n].pods.iter().filter(serves).count() == 1
            && serves(&&self.nodes[n].pods[p]);
        if is_last && self.healthy() <= rules.min_ready_pods {
            self.violate(Violation::DisruptionExceeded);
        }
    }

    /// No slot is taken by a node on which nothing happens.
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
