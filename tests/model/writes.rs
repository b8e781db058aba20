//! Writes of the controller. The controller decides on several writes together. The API server then performs them one by one, or
//! rejects them.
//!
//! ```text
//! Decide ──► pending writes ──Write, in any order──► the API server's pods
//!                 │ meanwhile anything may happen: a write that depends on a pod's version fails if the pod has changed
//!                 └──Die──► lost
//! ```

use std::collections::BTreeSet;

use yurt_ds::core::names::{POD_IMAGE_READY, POD_NEED_UPGRADE};
use yurt_ds::core::{Action, FailureRecord, NodeName, WriteVerb};

use super::rules::Rules;
use super::state::{Pod, Sheet, State, Template, Write};
use super::view::{node_of, number, template_of};

/// Write of the controller that is decided on but not sent yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pending {
    /// Index of the pod's node.
    pub(crate) node: usize,
    /// UID of the pod to write. For the creation of a surge pod, UID of the node's old pod.
    uid: u8,
    deed: Deed,
    /// True if the pod has changed since the controller saw it.
    stale: bool,
    /// True if another pod of the node has changed since the controller saw it.
    raced: bool,
}

/// Kind of write. [`Pending`] contains the pod and its node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Deed {
    /// Delete or evict the pod, then transfer the surge pod `heir` to the DaemonSet.
    Delete { heir: Option<u8>, evicts: bool },
    /// Delete a pod of an Advanced DaemonSet that doesn't belong on its node, regardless of its revision.
    Remove,
    /// Make the DaemonSet the owner of the surge pod.
    TransferOwnership,
    /// Create a surge pod of this template on the node of the pod.
    Make(Template),
    /// Update the pod to this template in place. If this is a revert, the second value is the stopped revision.
    UpdateInPlace(Template, Option<Template>),
    /// Request the images of this template for the pod.
    Ask(Template),
    /// Write the condition `PodNeedUpgrade`: its status, and the template that its message names.
    Tell(bool, Template),
    /// Remove conditions of the pod: `PodNeedUpgrade` if `need`, `PodImageReady` if `images`.
    Withdraw { need: bool, images: bool },
    /// Mark the pod `PreparingDelete`, or remove the mark.
    Mark(bool),
}

impl Pending {
    /// Returns the UIDs of all pods that the write concerns.
    pub(crate) fn uids(&self) -> impl Iterator<Item = u8> + use<> {
        let heir = match self.deed {
            Deed::Delete { heir, .. } => heir,
            _ => None,
        };
        [self.uid].into_iter().chain(heir)
    }

    /// Returns mutable UIDs of all pods that the write concerns, to renumber them.
    pub(crate) fn uids_mut(&mut self) -> impl Iterator<Item = &mut u8> {
        let heir = match &mut self.deed {
            Deed::Delete { heir, .. } => heir.as_mut(),
            _ => None,
        };
        [&mut self.uid].into_iter().chain(heir)
    }

    /// Returns the verb of the write, as the engine names it.
    pub(crate) fn is(&self) -> WriteVerb {
        match self.deed {
            Deed::Delete { evicts: false, .. } | Deed::Remove => WriteVerb::Delete,
            Deed::Delete { evicts: true, .. } => WriteVerb::Evict,
            Deed::TransferOwnership => WriteVerb::TransferOwnership,
            Deed::Make(_) => WriteVerb::Create,
            Deed::UpdateInPlace(..) => WriteVerb::UpdateInPlace,
            Deed::Mark(true) => WriteVerb::Mark,
            Deed::Mark(false) => WriteVerb::Unmark,
            Deed::Ask(_) | Deed::Tell(..) | Deed::Withdraw { .. } => WriteVerb::Tell,
        }
    }

    /// Returns the UID of the pod that the write changes; `None` for the creation of a pod.
    pub(crate) fn about(&self) -> Option<u8> {
        (self.is() != WriteVerb::Create).then_some(self.uid)
    }

    /// Records a change that happened after the decision. `changed` is the UID of the changed pod, or `None` if a pod was added or
    /// removed.
    pub(crate) fn overtake(&mut self, changed: Option<u8>) {
        let is_it = changed == Some(self.uid);
        self.stale |= is_it;
        self.raced |= !is_it;
    }

    /// Returns true if the pod's version is a precondition of the write. The API server then rejects the write if the pod has
    /// changed since the controller saw it.
    fn rests_on_version(&self) -> bool {
        matches!(
            self.deed,
            Deed::Delete { .. } | Deed::Remove | Deed::UpdateInPlace(..)
        )
    }
}

impl State {
    /// Adds the controller's actions to the pending writes. If `is_upkeep` is true, deletions are independent of the pod's
    /// revision.
    pub(crate) fn intend(&mut self, actions: &[Action], is_upkeep: bool) {
        for action in actions {
            let uid = number(action.pod());
            let node = self.seen_place(uid);
            let deed = match action {
                Action::Delete(_) if is_upkeep => Deed::Remove,
                Action::Delete(_) | Action::Evict(_) => Deed::Delete {
                    heir: None,
                    evicts: matches!(action, Action::Evict(_)),
                },
                Action::DeleteAfterSurge {
                    successor, evict, ..
                } => Deed::Delete {
                    heir: Some(number(successor)),
                    evicts: *evict,
                },
                Action::TransferOwnership(_) => Deed::TransferOwnership,
                Action::Surge { revision, .. } => Deed::Make(template_of(revision)),
                Action::UpdateInPlace { patch, .. } => {
                    let from = patch.reverts.as_ref().map(template_of);
                    Deed::UpdateInPlace(template_of(&patch.revision), from)
                }
                Action::AskForImages { revision, .. } => Deed::Ask(template_of(revision)),
                Action::SetNeedUpgrade {
                    needed, revision, ..
                } => Deed::Tell(*needed, template_of(revision)),
                Action::RemoveConditions { types, .. } => Deed::Withdraw {
                    need: types.contains(&POD_NEED_UPGRADE),
                    images: types.contains(&POD_IMAGE_READY),
                },
                Action::Mark { preparing, .. } => match preparing {
                    Some(preparing) => Deed::Mark(*preparing),
                    None => continue,
                },
            };
            let mut write = Pending {
                node,
                uid,
                deed,
                stale: false,
                raced: false,
            };
            self.lay_over(&write);
            if let Some(seen) = self.view.pods.as_ref().map(|nodes| &nodes[node]) {
                write.stale = seen.iter().any(|pod| pod.uid == uid && pod.changed);
                let is = self.nodes[node].pods.iter().map(|pod| pod.uid);
                write.raced =
                    seen.iter().any(|pod| pod.changed) || !seen.iter().map(|pod| pod.uid).eq(is);
            }
            self.pending.push(write);
        }
    }

    /// Returns the node on which the controller sees a pod.
    fn seen_place(&self, uid: u8) -> usize {
        let holds = |pods: &[Pod]| pods.iter().any(|pod| pod.uid == uid);
        let place = match &self.view.pods {
            Some(nodes) => nodes.iter().position(|pods| holds(pods)),
            None => self.nodes.iter().position(|node| holds(&node.pods)),
        };
        place.expect("a pod that is seen")
    }

    /// Records the expected result of a write, until the controller's watch shows it.
    fn lay_over(&mut self, write: &Pending) {
        let laid = match write.deed {
            Deed::Delete { .. } | Deed::Remove => Write::Deletion,
            Deed::UpdateInPlace(_, None) => Write::InPlacePatch,
            Deed::UpdateInPlace(to, Some(from)) => Write::Reversal { to, from },
            Deed::Mark(true) => Write::PreDeleteHook,
            _ => return,
        };
        self.view.overlay.push((write.uid, laid, false));
    }

    /// Performs a write in the API server. The controller sees the result immediately, unless its watch of pods is frozen.
    pub(crate) fn carry_out(&mut self, write: &Pending, rules: &Rules) {
        if self.view.pods.is_none() {
            self.view.overlay.retain(|(uid, ..)| *uid != write.uid);
        }
        let Some((n, p)) = self.place(write.uid) else {
            return;
        };
        if self.is_refused(write.node, write.is()) {
            self.note_denied(write);
            self.view.overlay.retain(|(uid, ..)| *uid != write.uid);
            return;
        }
        let evicts = matches!(write.deed, Deed::Delete { evicts: true, .. });
        if evicts && !self.allows_eviction(n, p, rules) {
            self.note_refused(write.uid);
            self.view.overlay.retain(|(uid, ..)| *uid != write.uid);
            return;
        }
        if write.stale && write.rests_on_version() {
            let laid = self.view.overlay.iter_mut();
            let laid = laid.filter(|(uid, ..)| *uid == write.uid);
            laid.for_each(|(_, _, doubt)| *doubt = true);
            return;
        }
        self.note_accepted(write);
        let pod = &mut self.nodes[n].pods[p];
        match write.deed {
            Deed::Delete { heir, evicts } => {
                let pod = &self.nodes[n].pods[p];
                let beside = heir.is_some() || pod.spare || rules.disordered;
                let beside = beside || rules.is_advanced && rules.surge() > 0;
                let is_race = write.raced && beside;
                match evicts {
                    true => self.note_evicted(write.uid),
                    false if !is_race => self.judge_deletion(n, p, rules),
                    false => {}
                }
                self.take_down(n, p, is_race, rules);
                self.terminate(n, p);
                self.haunt(n, p, rules);
                self.pending.extend(heir.map(|heir| Pending {
                    uid: heir,
                    deed: Deed::TransferOwnership,
                    stale: false,
                    ..write.clone()
                }));
            }
            Deed::Remove => self.terminate(n, p),
            Deed::TransferOwnership => {
                (pod.spare, pod.beside) = (false, None);
                self.nodes[n].raced |= write.raced || write.stale;
                self.outdate(write.uid);
            }
            Deed::Make(template) => self.make(n, write.uid, template, rules),
            Deed::UpdateInPlace(template, from) => {
                self.take_down(n, p, false, rules);
                let pod = &mut self.nodes[n].pods[p];
                (pod.template, pod.changing, pod.rolled_back) = (template, true, from);
                self.outdate(write.uid);
            }
            Deed::Ask(template) => {
                pod.images = Some((template, false));
                self.outdate(write.uid);
            }
            Deed::Tell(needed, template) => {
                pod.need_upgrade = Some((needed, template));
                self.outdate(write.uid);
            }
            Deed::Withdraw { need, images } => {
                pod.need_upgrade = pod.need_upgrade.filter(|_| !need);
                pod.images = pod.images.filter(|_| !images);
                self.outdate(write.uid);
            }
            Deed::Mark(marked) => {
                pod.marked = marked;
                self.outdate(write.uid);
            }
        }
    }

    /// Creates a surge pod for an old pod of the node, unless a pod with the same name exists. The controller learns about the new
    /// pod from the response, even if its watch is frozen.
    fn make(&mut self, n: usize, beside: u8, template: Template, rules: &Rules) {
        let mut pods = self.nodes[n].pods.iter();
        if pods.any(|pod| pod.beside == Some(beside) && pod.template == template) {
            return;
        }
        let pod = Pod {
            uid: self.fresh_uid(),
            spare: !rules.is_advanced,
            beside: Some(beside).filter(|_| !rules.is_advanced),
            hooked: rules.hooked(),
            ..Pod::new(template, 0)
        };
        if let Some(nodes) = &mut self.view.pods {
            nodes[n].push(pod.clone());
        }
        self.nodes[n].pods.push(pod);
        self.overtake(n, None);
    }

    /// Records that the controller makes a node unavailable by ending one of its pods.
    ///
    /// If the pod is not available, its deletion makes nothing worse, so it doesn't count. If `is_race` is true, it doesn't count
    /// either: the node's other pod may have failed while the controller deleted this one.
    pub(crate) fn take_down(&mut self, n: usize, p: usize, is_race: bool, rules: &Rules) {
        let pod = &self.nodes[n].pods[p];
        self.nodes[n].down |= self.nodes[n].ready && rules.is_available(pod) && !is_race;
    }
}

/// Returns the part of the guard's record of failed nodes that the model keeps.
pub(crate) fn sheet_of(record: Option<&FailureRecord>) -> Sheet {
    let Some(record) = record else {
        return Sheet::default();
    };
    let numbers = |nodes: &BTreeSet<NodeName>| {
        let numbers = nodes.iter().map(node_of).map(u8::try_from);
        numbers.map(|node| node.expect("few nodes")).collect()
    };
    Sheet {
        template: template_of(&record.revision),
        stopped: record.stopped.map(Into::into),
        before: record.before.as_ref().map(template_of),
        failed: numbers(&record.failed),
        broken_before: numbers(&record.broken_before),
    }
}
