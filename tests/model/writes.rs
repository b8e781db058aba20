//! What our controller writes: decided at once, carried out one by one, and refused where the API server would.
//!
//! ```text
//! Decide ──► pending writes ──Write, in any order──► the API server's pods
//!                 │ meanwhile anything may happen: a pod that changed refuses what rests on its version
//!                 └──Die──► nothing of it
//! ```

use std::collections::BTreeSet;

use yurt_ds::core::names::{POD_IMAGE_READY, POD_NEED_UPGRADE};
use yurt_ds::core::{Action, FailureRecord, NodeName, WriteVerb};

use super::rules::Rules;
use super::state::{Pod, Sheet, State, Template, Write};
use super::view::{node_of, number, template_of};

/// One request that is about to be sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pending {
    /// On which node.
    pub(crate) node: usize,
    /// The pod that it is about; for one that is to be made, the one beside it.
    uid: u8,
    deed: Deed,
    /// The pod is no longer as it was seen.
    stale: bool,
    /// Another pod of the node is no longer as it was seen.
    raced: bool,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Deed {
    /// To delete the pod, or to evict it, and then to hand that one over to the DaemonSet.
    Delete { heir: Option<u8>, evicts: bool },
    /// To delete a pod that goes whatever its revision.
    Remove,
    /// To hand the pod over.
    TransferOwnership,
    /// To make a pod beside it.
    Make(Template),
    /// To update it in place, or to take it back so from that revision.
    UpdateInPlace(Template, Option<Template>),
    /// To pull images.
    Ask(Template),
    /// To tell whether an upgrade is needed.
    Tell(bool, Template),
    /// To remove these conditions: that one, and the one about images.
    Withdraw { need: bool, images: bool },
    /// To mark it `PreparingDelete`, or to take that away.
    Mark(bool),
}

impl Pending {
    /// Every number of a pod in it.
    pub(crate) fn uids(&self) -> impl Iterator<Item = u8> + use<> {
        let heir = match self.deed {
            Deed::Delete { heir, .. } => heir,
            _ => None,
        };
        [self.uid].into_iter().chain(heir)
    }

    /// The same, to be renumbered.
    pub(crate) fn uids_mut(&mut self) -> impl Iterator<Item = &mut u8> {
        let heir = match &mut self.deed {
            Deed::Delete { heir, .. } => heir.as_mut(),
            _ => None,
        };
        [&mut self.uid].into_iter().chain(heir)
    }

    /// The kind of write.
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

    /// The pod that it is about, if that is there already.
    pub(crate) fn about(&self) -> Option<u8> {
        (self.is() != WriteVerb::Create).then_some(self.uid)
    }

    /// That pod of its node changed, or (`None`) pods came or went.
    pub(crate) fn overtake(&mut self, changed: Option<u8>) {
        let is_it = changed == Some(self.uid);
        self.stale |= is_it;
        self.raced |= !is_it;
    }

    /// Whether the API server refuses it when the pod is another version than was seen.
    fn rests_on_version(&self) -> bool {
        matches!(
            self.deed,
            Deed::Delete { .. } | Deed::Remove | Deed::UpdateInPlace(..)
        )
    }
}

impl State {
    /// What our controller is about to write from now on; `is_upkeep`: whatever the revision of the pods is.
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

    /// The node on which our controller sees a pod.
    fn seen_place(&self, uid: u8) -> usize {
        let holds = |pods: &[Pod]| pods.iter().any(|pod| pod.uid == uid);
        let place = match &self.view.pods {
            Some(nodes) => nodes.iter().position(|pods| holds(pods)),
            None => self.nodes.iter().position(|node| holds(&node.pods)),
        };
        place.expect("a pod that is seen")
    }

    /// What is asked for is remembered until it can be seen.
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

    /// What the API server makes of a write; our controller sees that at once, unless its watch stands still.
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
                (pod.template, pod.changing, pod.taken_back) = (template, true, from);
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

    /// A pod beside another one, unless there is one of that name. The answer tells of it before the watch does.
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

    /// We are about to take a pod away. One that was not available anyway is repaired, not taken down; and of two pods one may
    /// fail while we take the other.
    pub(crate) fn take_down(&mut self, n: usize, p: usize, is_race: bool, rules: &Rules) {
        let pod = &self.nodes[n].pods[p];
        self.nodes[n].down |= self.nodes[n].ready && rules.is_available(pod) && !is_race;
    }
}

/// What of a record the model keeps.
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
