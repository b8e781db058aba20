//! A policy that refuses one kind of write on one node, and what our controller remembers of that.
//!
//! ```text
//!            ┌────────── refused ◄──────────┐
//!            ▼                              │
//! WriteFailure: left out ──the policy is gone, time passes──► due ──► asked again ──accepted──► forgotten
//! ```
//!
//! As with evictions, whoever asks in vain once more learns nothing new: so time alone makes nobody due, and a policy that
//! lasts lets the fleet come to rest. Being woken for that is part of having converged.

use yurt_ds::core::{NodeName, PodUid, WriteFailures, WriteVerb};

use super::state::{State, Template};
use super::view::{at, hash};
use super::writes::Pending;

/// The words of the policy.
const WORDS: &str = "denied by a policy";

/// What the API server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Policy {
    pub(crate) node: usize,
    pub(crate) write: WriteVerb,
}

/// What our controller was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WriteFailure {
    node: usize,
    write: WriteVerb,
    /// The pod; `None` for one that was to be made.
    pub(crate) uid: Option<u8>,
    /// Which template it was about.
    template: Template,
    /// Time has passed since it was refused first.
    lasts: bool,
    /// It may be tried again.
    due: bool,
}

impl State {
    /// What was refused, in the form of the engine.
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

    /// Whether the API server refuses such a write there.
    pub(crate) fn is_refused(&self, node: usize, write: WriteVerb) -> bool {
        self.policy == Some(Policy { node, write })
    }

    /// Our controller takes in that this was refused.
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

    /// Our controller takes in that this was carried out.
    pub(crate) fn note_accepted(&mut self, write: &Pending) {
        if self.take_denial(write).is_some() {
            let alike = self.denials.iter_mut();
            let alike = alike.filter(|denial| denial.write == write.is());
            alike.for_each(|denial| (denial.lasts, denial.due) = (true, true));
        }
    }

    /// Time passes for those who were refused.
    pub(crate) fn wait_for_policy(&mut self) {
        for denial in &mut self.denials {
            denial.lasts = true;
            let (node, write) = (denial.node, denial.write);
            denial.due = self.policy != Some(Policy { node, write });
        }
    }

    /// Forgets what is about pods and templates that nobody sees any more.
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

    /// What is known of that kind of write there, or of one that it follows or precedes.
    fn take_denial(&mut self, write: &Pending) -> Option<WriteFailure> {
        let is_same = |denial: &WriteFailure| {
            denial.node == write.node && part(denial.write) == part(write.is())
        };
        let known = self.denials.iter().position(is_same)?;
        Some(self.denials.remove(known))
    }
}

/// Writes of one part hold up one another on a node.
fn part(write: WriteVerb) -> u8 {
    match write {
        WriteVerb::Create => 1,
        WriteVerb::Unmark | WriteVerb::Tell => 2,
        _ => 0,
    }
}
