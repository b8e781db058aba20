//! What happens to the pods of a planned fleet, in the order in which it happens.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;

use super::played::{Replacement, ReplacementManner};
use crate::core::names::{PRE_PULL_POD, REVISION_HASH_LABEL};
use crate::k8s::Pod;

/// Pods as they were seen last, and the steps that follow from it.
#[derive(Default)]
pub(super) struct ReplacementLog {
    target: String,
    pods: BTreeMap<String, SeenPod>,
    unseen: Option<BTreeSet<String>>,
    pub(super) steps: Vec<Replacement>,
    by_node: BTreeMap<String, usize>,
    /// Nodes where a pod was seen, whatever became of it.
    inhabited: BTreeSet<String>,
    /// When something happened last.
    pub(super) last: Option<Timestamp>,
}

struct SeenPod {
    node: String,
    hash: String,
    going: bool,
    ready: bool,
}

impl ReplacementLog {
    /// From now on nodes that get this revision are noted down; what is under way goes on.
    pub(super) fn begin(&mut self, target: &str) {
        target.clone_into(&mut self.target);
    }

    /// Takes in what the watch said.
    pub(super) fn take(&mut self, event: Event<Pod>, now: Timestamp) {
        match event {
            Event::Init => self.unseen = Some(self.pods.keys().cloned().collect()),
            Event::InitDone => {
                for uid in self.unseen.take().unwrap_or_default() {
                    self.gone(&uid, now);
                }
            }
            Event::Apply(pod) | Event::InitApply(pod) => self.seen(&pod, now),
            Event::Delete(pod) => self.gone(pod.metadata.uid.as_deref().unwrap_or_default(), now),
        }
    }

    fn seen(&mut self, pod: &Pod, now: Timestamp) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let Some(node) = pod.spec.target_node() else {
            return;
        };
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(&uid);
        }
        let label = |key: &str| pod.metadata.labels.as_ref()?.get(key);
        if label(PRE_PULL_POD).is_some() {
            return; // it only pulls images
        }
        let hash = label(REVISION_HASH_LABEL);
        let ready = pod.status.conditions.iter();
        let mut ready = ready.filter(|one| one.kind == "Ready");
        let after = SeenPod {
            node: node.to_owned(),
            hash: hash.cloned().unwrap_or_default(),
            going: pod.metadata.deletion_timestamp.is_some(),
            ready: ready.any(|one| one.status == "True"),
        };
        let before = self.pods.remove(&uid);
        self.compare(before.as_ref(), &after, now);
        if !self.inhabited.contains(&after.node) {
            self.inhabited.insert(after.node.clone());
        }
        self.pods.insert(uid, after);
    }

    fn gone(&mut self, uid: &str, now: Timestamp) {
        if let Some(seen) = self.pods.remove(uid)
            && !seen.going
            && seen.hash != self.target
        {
            self.step(&seen.node, ReplacementManner::Delete, now);
        }
        self.last = Some(now);
    }

    fn compare(&mut self, before: Option<&SeenPod>, after: &SeenPod, now: Timestamp) {
        let is_new = after.hash == self.target;
        let was_going = before.is_some_and(|before| before.going);
        let was_ready = before.is_some_and(|before| before.ready && before.hash == after.hash);
        match before {
            _ if self.target.is_empty() => {}
            Some(before) if is_new && before.hash != after.hash => {
                self.step(&after.node, ReplacementManner::InPlace, now);
            }
            Some(_) if !is_new && after.going && !was_going => {
                self.step(&after.node, ReplacementManner::Delete, now);
            }
            None if is_new && self.is_served(&after.node) => {
                self.step(&after.node, ReplacementManner::Surge, now);
            }
            None if is_new && !self.inhabited.contains(&after.node) => {
                self.step(&after.node, ReplacementManner::Create, now);
            }
            _ => {}
        }
        let position = self.by_node.get(&after.node);
        if is_new
            && after.ready
            && !was_ready
            && let Some(step) = position.and_then(|at| self.steps.get_mut(*at))
        {
            // One that is changed in place is Ready with its old containers for a while.
            let first = step
                .ready
                .filter(|_| step.manner != ReplacementManner::InPlace);
            step.ready = first.or(Some(now));
        }
        let changed = |before: &SeenPod| {
            (before.going, before.ready, &before.hash) != (after.going, after.ready, &after.hash)
        };
        if before.is_none_or(changed) {
            self.last = Some(now);
        }
    }

    /// Whether an old pod stays there while the new one comes.
    fn is_served(&self, node: &str) -> bool {
        let mut pods = self.pods.values();
        pods.any(|pod| pod.node == node && !pod.going && pod.hash != self.target)
    }

    fn step(&mut self, node: &str, manner: ReplacementManner, now: Timestamp) {
        if self.target.is_empty() || self.by_node.contains_key(node) {
            return;
        }
        self.by_node.insert(node.to_owned(), self.steps.len());
        self.steps.push(Replacement {
            node: node.to_owned(),
            manner,
            begins: now,
            ready: None,
        });
    }
}
