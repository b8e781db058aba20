//! Pods of a DaemonSet, including unreadable ones, and nodes without a pod.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::{PodController, Podless, RequeueDelay, SetRecord, UnreadablePod};
use crate::core::engine::timeouts::MISSING_GRACE;
use crate::core::plan::Stall;
use crate::core::revision::{RevisionFacts, number_of};
use crate::core::{
    NodeName, Pod, PodName, PodRef, PodRevision, PodUid, Pods, Revision, RevisionState, instant,
};
use crate::index::ended::RecalledProblem;
use crate::index::pod::PodRecord;
use crate::index::texts::Texts;
use crate::k8s;

impl SetRecord {
    /// Returns the pods on a node.
    pub fn pods_on(&self, node: &NodeName) -> impl DoubleEndedIterator<Item = &Pod> {
        self.pods.on(node).iter().map(|record| &*record.pod)
    }

    /// Stores a pod. If the DaemonSet no longer controls it and it is no surge pod, removes it.
    pub(in crate::index) fn apply_pod(
        &mut self,
        pod: &k8s::Pod,
        texts: &mut Texts,
        now: Timestamp,
    ) -> RequeueDelay {
        let uid = PodUid::from(pod.uid());
        self.forget_unreadable(&uid);
        let Some(controller) = PodController::new(&pod.metadata, &self.uid) else {
            let gone = if self.remove_pod(&uid) {
                self.of_loss()
            } else {
                RequeueDelay::Never
            };
            let advanced = self.advanced.as_mut();
            let is_orphan = advanced.is_some_and(|advanced| advanced.note_orphan(pod));
            return if is_orphan { RequeueDelay::Short } else { gone };
        };
        let by_revision = controller == PodController::Revision;
        let is_to_adopt = self
            .advanced
            .as_mut()
            .is_some_and(|advanced| match by_revision {
                true => advanced.note_made_beside(pod),
                false => {
                    advanced.forget_orphan(&uid);
                    false
                }
            });
        let before = self.pods.get(&uid).cloned();
        // No field of an Advanced DaemonSet's pod shows that it is a surge pod. It counts as one if its node had another pod, so
        // keep the previous result.
        let paired = || before.as_ref().is_some_and(|before| before.pod.surge);
        let surge = by_revision || self.is_advanced() && paired();
        let record = PodRecord::read(
            pod,
            surge,
            before.as_ref(),
            &mut self.shared,
            self.min_ready,
            now,
        );
        let Some(mut record) = record else {
            return RequeueDelay::Never;
        };
        let node = texts.share(pod.spec.target_node().unwrap_or_default());
        let node = NodeName::from(node);
        let is_first_look = self.cache.is_first_look();
        let recalled = || RecalledProblem::new(&self.state, &node).filter(|_| is_first_look);
        if self.ended.end(&node, before.as_ref(), now) {
            self.cache.mark_dirty(&node);
        }
        self.ended.note(&node, pod, &mut record, now, recalled);
        if before.as_ref() == Some(&record) {
            return RequeueDelay::Never;
        }
        self.disruptions.note(&node, before.as_ref(), &record, now);
        let settled = self.expectations.settle(&record);
        if before.is_none()
            && let Some(advanced) = &mut self.advanced
        {
            advanced.end_creation(&node);
        }
        let is_spare = |known: &PodRecord| known.pod.surge;
        // The native controller created a pod next to a surge pod. Before Kubernetes 1.33, the DaemonSet may become the owner of the
        // surge pod only then (see `core::engine::surge`), so decide again soon.
        let is_third = before.is_none() && !surge && self.pods.on(&node).iter().any(is_spare);
        let delay = match before.as_ref() {
            _ if settled || is_third || is_to_adopt => RequeueDelay::Short,
            Some(before) if before.is_alike(&record) => RequeueDelay::Never,
            before => match (
                before.and_then(PodRecord::ready_since),
                record.ready_since(),
            ) {
                (None, Some(_)) => RequeueDelay::Short,
                _ if before.is_some_and(|before| before.pod.exit != record.pod.exit) => {
                    RequeueDelay::Short
                }
                _ => RequeueDelay::Long,
            },
        };
        if let Some(elsewhere) = self.pods.place_of(&uid).filter(|place| **place != node) {
            self.cache.mark_dirty(elsewhere);
        }
        self.cache.mark_dirty(&node);
        self.pods.insert(&node, record);
        delay
    }

    /// Records a pod that can't be parsed.
    ///
    /// From then on, the controller changes no pod on that node. If the node is unknown, it changes no pod of the DaemonSet.
    pub(in crate::index) fn note_unreadable_pod(
        &mut self,
        unreadable: &k8s::Unreadable,
        node: Option<NodeName>,
    ) {
        let meta = &unreadable.metadata;
        let mut owners = meta.owner_references.iter().flatten();
        if !owners.any(|owner| *owner.uid == *self.uid) {
            return;
        }
        let uid = PodUid::from(meta.uid.as_deref().unwrap_or_default());
        self.forget_unreadable(&uid);
        let pod = UnreadablePod {
            name: meta.name.as_deref().unwrap_or_default().into(),
            node: node.or_else(|| self.pods.place_of(&uid).cloned()),
            why: unreadable.error.clone(),
        };
        if let Some(node) = &pod.node {
            self.cache.mark_dirty(node);
        }
        self.unreadable.insert(uid, pod);
    }

    pub(super) fn forget_unreadable(&mut self, uid: &PodUid) {
        if let Some(pod) = self.unreadable.remove(uid)
            && let Some(node) = &pod.node
        {
            self.cache.mark_dirty(node);
        }
    }

    pub(in crate::index) fn has_unreadable_pod_on(&self, node: &NodeName) -> bool {
        let mut pods = self.unreadable.values();
        pods.any(|pod| pod.node.as_ref() == Some(node))
    }

    /// Returns an unreadable pod whose node is unknown, with the parse error. While there is one, no pod of the DaemonSet is
    /// changed.
    pub(in crate::index) fn unreadable_pod_somewhere(&self) -> Option<(&PodName, &str)> {
        let mut pods = self.unreadable.values();
        let pod = pods.find(|pod| pod.node.is_none())?;
        Some((&pod.name, &pod.why))
    }

    /// Removes a pod that is gone.
    pub fn delete_pod(&mut self, uid: &str) -> RequeueDelay {
        let uid = PodUid::from(uid);
        self.forget_unreadable(&uid);
        if let Some(PodRecord { pod, .. }) = self.pods.get(&uid)
            && !pod.terminating
            && (self.is_advanced() || pod.surge)
        {
            let stray = (uid.clone(), pod.name.to_string());
            self.unmanaged.insert(stray);
        }
        let advanced = self.advanced.as_mut();
        let was_orphan = advanced.is_some_and(|advanced| advanced.forget_orphan(&uid));
        match self.remove_pod(&uid) {
            true => self.of_loss(),
            false if was_orphan => RequeueDelay::Short,
            false => RequeueDelay::Never,
        }
    }

    /// Returns true if the controller has to release pods that the selector no longer matches.
    pub fn has_strays(&self) -> bool {
        !self.unmanaged.is_empty()
    }

    /// Removes and returns the pods to release, by UID and name. Some may be gone.
    pub fn take_strays(&mut self) -> BTreeSet<(PodUid, String)> {
        std::mem::take(&mut self.unmanaged)
    }

    /// Returns the delay of the next decision after a pod is gone. It is short for an Advanced DaemonSet, whose next pod this
    /// controller creates. Otherwise the native controller creates it.
    pub(super) fn of_loss(&self) -> RequeueDelay {
        if self.is_advanced() {
            RequeueDelay::Short
        } else {
            RequeueDelay::Long
        }
    }

    /// Removes the pods that a complete list doesn't contain. Also drops expected writes from before the list began.
    ///
    /// This corrects the effects of lost watch events and lost answers.
    pub fn retain_pods(&mut self, seen: &BTreeSet<PodUid>, began: Option<Timestamp>) {
        let gone: Vec<PodUid> = self
            .pods
            .uids()
            .filter(|uid| !seen.contains(uid))
            .cloned()
            .collect();
        for uid in gone {
            self.remove_pod(&uid);
        }
        self.unreadable.retain(|uid, _| seen.contains(uid));
        self.cache.forget();
        if let Some(advanced) = &mut self.advanced {
            advanced.retain_creations(began);
        }
        let pods = &self.pods;
        self.expectations
            .retain_since(began, |uid| pods.place_of(uid).is_some());
        self.synced = true;
    }

    pub(super) fn remove_pod(&mut self, uid: &PodUid) -> bool {
        self.expectations.forget(uid);
        self.remove(uid)
    }

    pub(super) fn remove(&mut self, uid: &PodUid) -> bool {
        let node = self.pods.remove(uid);
        if let Some(node) = &node {
            self.cache.mark_dirty(node);
            if let Some(advanced) = &mut self.advanced {
                advanced.note_held(node);
            }
        }
        node.is_some()
    }

    /// Returns the node of a pod.
    pub fn place_of(&self, uid: &PodUid) -> Option<&NodeName> {
        self.pods.place_of(uid)
    }

    /// Returns the revision hashes of the pods.
    pub fn hashes(&self) -> impl Iterator<Item = &Revision> {
        self.pods.iter().filter_map(|(_, record)| record.hash())
    }

    /// Returns each pod that has a revision hash, together with this hash.
    pub fn hashed_pods(&self) -> impl Iterator<Item = (Revision, PodRef)> {
        self.pods
            .iter()
            .filter_map(|(_, record)| Some((record.hash()?.clone(), record.pod.reference())))
    }

    /// Returns the name of a pod with this revision hash.
    pub fn pod_with(&self, hash: &Revision) -> Option<&PodName> {
        let mut pods = self.pods.iter().map(|(_, record)| record);
        let found = pods.find(|record| record.hash() == Some(hash));
        found.map(|record| record.name())
    }

    pub(in crate::index) fn has_pods_on(&self, node: &NodeName) -> bool {
        !self.pods.on(node).is_empty()
    }

    /// Returns all pods, each with its node.
    pub fn pods(&self) -> impl Iterator<Item = (&NodeName, &Pod)> {
        self.pods.iter().map(|(node, record)| (node, &*record.pod))
    }

    /// Returns true if the last view of the fleet counts the node, instead of listing it, as one with an available pod of the
    /// current revision.
    pub fn is_counted_as_done(&self, node: &NodeName) -> bool {
        let crowd = self.cache.crowd.as_ref();
        crowd.is_some_and(|crowd| crowd.counts_as_done(node))
    }

    /// Returns a pod and its node.
    pub fn pod(&self, uid: &PodUid) -> Option<(&NodeName, &Pod)> {
        let record = self.pods.get(uid)?;
        Some((self.pods.place_of(uid)?, &*record.pod))
    }

    /// Returns the names of the nodes that have pods, sorted.
    pub(in crate::index) fn places_of_pods(&self) -> impl Iterator<Item = &NodeName> {
        self.pods.nodes()
    }

    /// Returns the pods on a node as decisions see them: compared with the current revision, and after the controller's pending
    /// writes.
    pub(in crate::index) fn judged_pods(
        &mut self,
        node: &NodeName,
        state: &RevisionState,
        revisions: &[RevisionFacts],
    ) -> Pods {
        let mut known = std::mem::take(&mut self.pods); // put back at the end
        let classify = |record: &mut PodRecord| {
            let revision = match state {
                RevisionState::Current(target) => self.revision_of(record, target, revisions),
                RevisionState::Unknown(_) => PodRevision::Unknown,
            };
            let number = number_of(record.hash(), revisions);
            let of_template = self.is_of_template(record);
            let known = (
                record.pod.revision,
                record.pod.number,
                record.pod.of_template,
            );
            if known != (revision, number, of_template) {
                let pod = Arc::make_mut(&mut record.pod);
                (pod.revision, pod.number, pod.of_template) = (revision, number, of_template);
            }
            self.expectations.shown(&record.pod)
        };
        let mut pods: Pods = known.on_mut(node).iter_mut().map(classify).collect();
        if self.advanced.is_some() && known.on(node).len() > 1 {
            let surplus = pods.surplus().map(|pod| pod.uid.clone());
            for pod in pods.iter_mut() {
                pod.surge = surplus.as_ref() == Some(&pod.uid);
            }
            for record in known.on_mut(node) {
                let surge = surplus.as_ref() == Some(&record.pod.uid);
                if record.pod.surge != surge {
                    Arc::make_mut(&mut record.pod).surge = surge;
                }
            }
        } else if let [record] = known.on_mut(node)
            && self.advanced.is_some()
            && record.pod.surge
        {
            Arc::make_mut(&mut record.pod).surge = false;
            pods.iter_mut().for_each(|pod| pod.surge = false);
        }
        self.pods = known;
        pods
    }

    /// Returns true if the pod was created from the current template, or if that is unknown.
    ///
    /// False for a pod that was created from a newer template and rolled back in place.
    pub(super) fn is_of_template(&self, record: &PodRecord) -> bool {
        let generations = record.generation().zip(self.template_generation.as_deref());
        let is_rolled_back = record.pod.in_place.reverted_from.is_some();
        !is_rolled_back && generations.is_none_or(|(pod, template)| pod == template)
    }

    /// Records whether `node` lacks a pod. Returns the time since which it lacks one; `None` if it has a pod.
    ///
    /// `podless` is `None` if the node has a pod. Otherwise it tells if the node should run one. The time starts again when this
    /// changes.
    pub(in crate::index) fn note_podless(
        &mut self,
        node: &NodeName,
        podless: Option<bool>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let Some(is_targeted) = podless else {
            if !self.podless.is_empty() {
                self.podless.remove(node);
            }
            return None;
        };
        let since = if self.cache.is_first_look() {
            self.missing_since().map_or(now, |since| since.min(now))
        } else {
            now
        };
        let begins = Podless { since, is_targeted };
        let known = self.podless.entry(node.clone()).or_insert(begins);
        if known.is_targeted != is_targeted {
            *known = begins;
        }
        Some(known.since)
    }

    /// Records that a pod was created on `node`, even if the cache doesn't show the pod yet. The time without a pod starts again.
    pub fn note_made(&mut self, node: &NodeName, now: Timestamp) {
        if let Some(known) = self.podless.get_mut(node) {
            known.since = now;
            self.cache.mark_dirty(node);
        }
    }

    /// Returns a time at which pods were already missing, from the condition `RolloutState`; `None` if none were missing.
    ///
    /// After a restart, the exact times are unknown.
    pub(super) fn missing_since(&self) -> Option<Timestamp> {
        let stalls = [Stall::PodsNotCreated, Stall::PodsKeptAway].into_iter();
        let since = stalls.filter_map(|stall| self.state.stalled_since(stall.reason()));
        Some(instant::earlier(since.min()?, MISSING_GRACE))
    }
}
