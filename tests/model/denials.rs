//! A policy that rejects one kind of write on one node, and the controller's record of the rejected writes.
//!
//! ```text
//!            ┌───────── rejected ◄────────┐
//!            ▼                            │
//! WriteFailure: deferred ──policy removed, time passes──► due ──► retried ──accepted──► forgotten
//! ```
//!
//! A second rejection of the same write would lead to no new state. So the model retries a rejected write only after the policy is
//! removed. Under a permanent policy, no step is left. The fleet then counts as converged only if the controller has scheduled a
//! wake-up for the retry.

use yurt_ds::core::{NodeName, PodUid, WriteFailures, WriteVerb};

use super::state::{State, Template};
use super::view::{at, hash};
use super::writes::Pending;

/// Message of the policy that rejects a write.
const WORDS: &str = "denied by a policy";

/// Kind of write that the policy rejects on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Policy {
    pub(crate) node: usize,
    pub(crate) write: WriteVerb,
}

/// Controller's record of a rejected write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WriteFailure {
    node: usize,
    write: WriteVerb,
    /// UID of the pod. `None` for the creation of a pod.
    pub(crate) uid: Option<u8>,
    /// Template that the DaemonSet had at the time of the write.
    template: Template,
    /// True if a retry was rejected again, or if time has passed since the first rejection.
    lasts: bool,
    /// True if the controller may retry the write.
    due: bool,
}

impl State {
    /// Converts the rejected writes to the engine's type.
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

    /// Returns true if the API server rejects this kind of write on this node.
    pub(crate) fn is_refused(&self, node: usize, write: WriteVerb) -> bool {
        self.policy == Some(Policy { node, write })
    }

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

    /// Records an accepted write. If an earlier write of the same [`part`] of the rollout was rejected on this node, the controller
    /// may now retry all rejected writes of this kind.
    pub(crate) fn note_accepted(&mut self, write: &Pending) {
        if self.take_denial(write).is_some() {
            let alike = self.denials.iter_mut();
            let alike = alike.filter(|denial| denial.write == write.is());
            alike.for_each(|denial| (denial.lasts, denial.due) = (true, true));
        }
    }

    /// Lets time pass for rejected writes. The controller may then retry the writes that the policy no longer rejects.
    pub(crate) fn wait_for_policy(&mut self) {
        for denial in &mut self.denials {
            denial.lasts = true;
            let (node, write) = (denial.node, denial.write);
            denial.due = self.policy != Some(Policy { node, write });
        }
    }

    /// Removes records about pods and templates that no longer exist, neither in the API server nor in the controller's view.
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

    /// Removes and returns the record of a rejected write on the node of `write`. Both writes must belong to the same [`part`] of
    /// the rollout.
    fn take_denial(&mut self, write: &Pending) -> Option<WriteFailure> {
        let is_same = |denial: &WriteFailure| {
            denial.node == write.node && part(denial.write) == part(write.is())
        };
        let known = self.denials.iter().position(is_same)?;
        Some(self.denials.remove(known))
    }
}

/// Returns the part of a rollout to which a kind of write belongs: replacing a pod (0), creating a pod (1), or removing a mark and
/// announcing a version (2). On a node, a rejected write blocks all writes of its part.
fn part(write: WriteVerb) -> u8 {
    match write {
        WriteVerb::Create => 1,
        WriteVerb::Unmark | WriteVerb::Tell => 2,
        _ => 0,
    }
}
