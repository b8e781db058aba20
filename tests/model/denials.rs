//! A policy that rejects one kind of write on one node, and the controller's record of that.
//!
//! ```text
//!            ┌───────── rejected ◄────────┐
//!            ▼                            │
//! WriteFailure: deferred ──policy removed, time passes──► due ──► retried ──accepted──► forgotten
//! ```
//!
//! As with evictions, a retry that fails again gives no new information. So time alone makes no write due, and under a permanent
//! policy the fleet becomes idle. A scheduled wake-up for the retry is part of convergence.

use yurt_ds::core::{NodeName, PodUid, WriteFailures, WriteVerb};

use super::state::{State, Template};
use super::view::{at, hash};
use super::writes::Pending;

/// Message of the policy.
const WORDS: &str = "denied by a policy";

/// Write that the API server rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Policy {
    pub(crate) node: usize,
    pub(crate) write: WriteVerb,
}

/// Write of the controller that was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WriteFailure {
    node: usize,
    write: WriteVerb,
    /// UID of the pod. `None` for a pod that was to be created.
    pub(crate) uid: Option<u8>,
    /// Template that the write was about.
    template: Template,
    /// True if time has passed since the first rejection.
    lasts: bool,
    /// True if it may be retried.
    due: bool,
}

impl State {
    /// Returns the rejected writes as a value of the engine.
    pub(crate) fn refusals(&self) -> WriteFailures {
        let mut write_failures = WriteFailures::default();
        let set = self.seen_set();
        write_failures.keep_to(&hash(set.wanted));
        let is_of_set = |denial: &&WriteFailure| denial.template == set.wanted;
        for denial in self.denials.iter().filter(is_of_set) {
            let node: NodeName = format!("n{}", denial.node).into();
            let pod: Option<PodUid> = denial.uid.map(|uid| format!("u{uid}").into());
            let mut refuse =
                |ago| write_failures.refuse((&node, pod.as_ref()), denial.write, WORDS, at(ago));
            if denial.lasts {
                refuse(-1);
            }
            if !denial.due {
                refuse(0);
            }
        }
        write_failures
    }

    /// Returns true if the API server rejects such a write there.
    pub(crate) fn is_refused(&self, node: usize, write: WriteVerb) -> bool {
        self.policy == Some(Policy { node, write })
    }

    /// Records a rejected write.
    pub(crate) fn note_denied(&mut self, write: &Pending) {
        let lasts = self.take_denial(write).is_some_and(|known| known.lasts);
        self.denials.push(WriteFailure {
            node: write.node,
            write: write.is(),
            uid: write.about(),
            template: self.seen_set().wanted,
            lasts,
            due: false,
        });
    }

    /// Records an accepted write. Rejected writes of the same kind become due.
    pub(crate) fn note_accepted(&mut self, write: &Pending) {
        if self.take_denial(write).is_some() {
            let alike = self.denials.iter_mut();
            let alike = alike.filter(|denial| denial.write == write.is());
            alike.for_each(|denial| (denial.lasts, denial.due) = (true, true));
        }
    }

    /// Makes rejected writes due if the policy no longer applies to them.
    pub(crate) fn wait_for_policy(&mut self) {
        for denial in &mut self.denials {
            denial.lasts = true;
            let (node, write) = (denial.node, denial.write);
            denial.due = self.policy != Some(Policy { node, write });
        }
    }

    /// Removes records about pods and templates that no longer exist and are no longer seen.
    pub(crate) fn forget_denials(&mut self) {
        let wanted = [self.set.wanted, self.seen_set().wanted];
        let known = self.nodes.iter().map(|node| &node.pods);
        let seen = self.view.pods.iter().flatten();
        let uids: Vec<u8> = known.chain(seen).flatten().map(|pod| pod.uid).collect();
        self.denials.retain(|denial| {
            wanted.contains(&denial.template) && denial.uid.is_none_or(|uid| uids.contains(&uid))
        });
        self.denials
            .sort_unstable_by_key(|denial| (denial.node, denial.write));
    }

    /// Removes and returns the record of that kind of write there, or of one that precedes or follows it.
    fn take_denial(&mut self, write: &Pending) -> Option<WriteFailure> {
        let is_same = |denial: &WriteFailure| {
            denial.node == write.node && part(denial.write) == part(write.is())
        };
        let known = self.denials.iter().position(is_same)?;
        Some(self.denials.remove(known))
    }
}

/// Returns the part of a rollout that a write belongs to. On a node, writes of one part block each other.
fn part(write: WriteVerb) -> u8 {
    match write {
        WriteVerb::Create => 1,
        WriteVerb::Unmark | WriteVerb::Tell => 2,
        _ => 0,
    }
}
