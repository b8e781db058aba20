//! Revisions of a DaemonSet: the current one, its images, and the changes that lead from one revision to another in place.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::SetRecord;
use crate::core::fleet::in_place::{InPlaceTransition, InPlaceTransitions};
use crate::core::images::TemplateImage;
use crate::core::revision::{RevisionFacts, classify, current, earlier};
use crate::core::settings::DEFAULT_IMAGE_PREDOWNLOAD_TIMEOUT;
use crate::core::{
    NodeName, OnFailure, ParsedSettings, PodRevision, Predownloading, Revision, RevisionState,
    RollbackTarget, RollbackTargets, RollingUpdateType,
};
use crate::index::fleet_cache::Basis;
use crate::index::node::NodeRecord;
use crate::index::pod::PodRecord;

impl SetRecord {
    /// Returns the current revision, or the reason why it is unknown.
    pub fn revision_state(&self, revisions: &[RevisionFacts]) -> RevisionState {
        self.current_revision(revisions)
    }

    /// Records that no ControllerRevision has this hash. Pods with the hash then count as outdated.
    pub fn note_absent(&mut self, hash: Revision) {
        self.absent.insert(hash);
    }

    /// Treats the newest revision as current for this generation, even if its template seems to differ.
    ///
    /// Has no effect on an Advanced DaemonSet. This controller writes the revisions of an Advanced DaemonSet itself, so their
    /// templates never differ only in their encoding.
    pub fn trust_greatest(&mut self, generation: i64) {
        self.trusted = Some(generation).filter(|_| !self.is_advanced());
    }

    /// Returns true if the newest revision counts as current for this generation, even if its template seems to differ.
    pub fn trusts_greatest(&self) -> bool {
        self.trusted == Some(self.generation)
    }

    /// Returns the value of the label `pod-template-generation` that new pods get.
    pub fn template_generation(&self) -> Option<&str> {
        self.template_generation.as_deref()
    }

    /// Returns true if the controller that creates the pods has observed the current generation.
    ///
    /// Always true for an Advanced DaemonSet, because yurt-ds itself is this controller.
    pub fn is_observed(&self) -> bool {
        self.is_advanced() || self.observed >= self.generation
    }

    /// Returns true if the newest revision had the current template when the fleet was last built.
    pub fn is_template_current(&self) -> bool {
        self.confirmed == Some(self.template)
    }

    /// Returns the timeout for image pulls on a node of the DaemonSet.
    pub fn pull_timeout(&self) -> Duration {
        match &self.reading {
            ParsedSettings::Strategy { strategy, .. } => strategy.image_predownload_timeout,
            ParsedSettings::Invalid(..) | ParsedSettings::NotOurs => {
                DEFAULT_IMAGE_PREDOWNLOAD_TIMEOUT
            }
        }
    }

    /// Returns true if images are pre-pulled on the nodes of the DaemonSet.
    pub(in crate::index) fn pulls_ahead(&self) -> bool {
        match &self.reading {
            ParsedSettings::Strategy { strategy, .. } => {
                Predownloading::from_strategy(strategy).is_some()
            }
            ParsedSettings::Invalid(..) | ParsedSettings::NotOurs => false,
        }
    }

    /// Returns true if the node `name` has all of `images`: the Node lists them, or a Ready pod there runs a revision with the same
    /// images.
    pub(in crate::index) fn has_images(
        &self,
        name: &NodeName,
        record: &NodeRecord,
        images: &[TemplateImage],
        revisions: &[RevisionFacts],
    ) -> bool {
        let pods = self.pods.on(name).iter();
        let ready = pods.filter(|record| record.ready_since().is_some());
        let run = |pod: &PodRecord| {
            let of_pod = |known: &&RevisionFacts| Some(&known.hash) == pod.hash();
            revisions.iter().find(of_pod)
        };
        let running: Vec<&RevisionFacts> = ready.filter_map(run).collect();
        images.iter().all(|image| {
            let mut run = running.iter().flat_map(|facts| facts.images.iter());
            !image.moves && (record.lists(image.key) || run.any(|other| other.key == image.key))
        })
    }

    /// Records whether the newest revision contains the current template (see [`Self::is_template_current`]).
    pub(in crate::index) fn confirm(&mut self, revisions: &[RevisionFacts]) {
        let newest = revisions.iter().max_by_key(|revision| revision.number);
        let found = newest.filter(|newest| newest.template == self.template);
        self.confirmed = found.map(|newest| newest.template);
    }

    pub(in crate::index) fn current_revision(&self, revisions: &[RevisionFacts]) -> RevisionState {
        current(
            revisions,
            &self.template,
            self.is_observed(),
            self.trusts_greatest(),
        )
    }

    pub(in crate::index) fn unknown_hashes(&self, revisions: &[RevisionFacts]) -> Vec<Revision> {
        let RevisionState::Current(target) = self.current_revision(revisions) else {
            return Vec::new();
        };
        let unknown = self.pods.iter().map(|(_, record)| record);
        let unknown = unknown
            .filter(|record| self.revision_of(record, &target, revisions) == PodRevision::Unknown);
        let hashes: BTreeSet<Revision> = unknown
            .filter_map(|record| record.hash().cloned())
            .collect();
        hashes.into_iter().collect()
    }

    pub(super) fn revision_of(
        &self,
        record: &PodRecord,
        target: &Revision,
        revisions: &[RevisionFacts],
    ) -> PodRevision {
        let hash = record.hash();
        match classify(
            hash.map(Revision::as_str),
            record.generation(),
            target,
            revisions,
            self.template_generation.as_deref(),
        ) {
            PodRevision::Unknown if hash.is_some_and(|hash| self.absent.contains(hash)) => {
                PodRevision::Outdated
            }
            classified => classified,
        }
    }

    /// Returns for each old revision the change that updates its pods in place. Empty if updates in place are not enabled.
    pub(in crate::index) fn transitions(
        &self,
        state: &RevisionState,
        revisions: &[RevisionFacts],
    ) -> InPlaceTransitions {
        let RevisionState::Current(target) = state else {
            return InPlaceTransitions::new();
        };
        let asked = match &self.reading {
            ParsedSettings::Strategy { strategy, .. } => strategy.rolling_update_type,
            ParsedSettings::NotOurs | ParsedSettings::Invalid(..) => RollingUpdateType::Standard,
        };
        let new = revisions.iter().find(|known| known.hash == *target);
        let Some(new) = new.filter(|_| asked == RollingUpdateType::InPlaceIfPossible) else {
            return InPlaceTransitions::new();
        };
        let generation = self.template_generation.as_deref();
        let old = revisions.iter().filter(|known| known.hash != *target);
        let between =
            |old: &RevisionFacts| InPlaceTransition::between(&old.shape, &new.shape, generation);
        old.map(|old| (old.hash.clone(), between(old))).collect()
    }

    /// Returns the older revisions, with the changes that roll pods back in place. Empty if such rollbacks are not enabled.
    pub(in crate::index) fn rollback_targets(
        &self,
        state: &RevisionState,
        revisions: &[RevisionFacts],
    ) -> RollbackTargets {
        let asked = match &self.reading {
            ParsedSettings::Strategy { strategy, .. } => {
                strategy.on_failure == OnFailure::RevertInPlace
            }
            ParsedSettings::NotOurs | ParsedSettings::Invalid(..) => false,
        };
        let RevisionState::Current(current) = state else {
            return RollbackTargets::default();
        };
        let current = revisions.iter().find(|known| known.hash == *current);
        let Some(current) = current.filter(|_| asked) else {
            return RollbackTargets::default();
        };
        let older = earlier(revisions, &current.hash).into_iter();
        // Without the generation label: the generation of an older template is unknown, and the current one would be wrong.
        let past = |old: &RevisionFacts| RollbackTarget {
            number: old.number,
            transition: InPlaceTransition::between(&current.shape, &old.shape, None),
        };
        RollbackTargets {
            stands: self.guard.stands(&self.state),
            revisions: older.map(|old| (old.hash.clone(), past(old))).collect(),
        }
    }

    /// Returns true if the guard stopped the revision, but the DaemonSet's status doesn't show the stop yet.
    pub fn is_stopped_unseen(&self) -> bool {
        let stopped = self
            .last_record()
            .is_some_and(|record| record.stopped.is_some());
        stopped && !self.guard.stands(&self.state)
    }

    /// Returns the images of the current revision; `None` if no decision depends on their presence on nodes.
    pub(super) fn wanted_images(
        &self,
        revisions: &[RevisionFacts],
    ) -> Option<Arc<[TemplateImage]>> {
        let RevisionState::Current(target) = self.current_revision(revisions) else {
            return None;
        };
        let current = revisions.iter().find(|known| known.hash == target);
        let current = current.filter(|_| self.pulls_ahead());
        current.map(|current| current.images.clone())
    }

    /// Returns the facts that the evaluation of every pod depends on.
    pub(in crate::index) fn basis(&self, revisions: &[RevisionFacts]) -> Basis {
        let state = self.current_revision(revisions);
        let is_current =
            |known: &&RevisionFacts| state == RevisionState::Current(known.hash.clone());
        let adopted = revisions
            .iter()
            .find(is_current)
            .and_then(|known| known.adopted);
        Basis {
            images: self.wanted_images(revisions),
            adopted,
            state,
            known: revisions
                .iter()
                .map(|known| (known.hash.clone(), known.number))
                .collect(),
            absent: self.absent.clone(),
            template_generation: self.template_generation.clone(),
        }
    }

    /// Records whether the current revision is known. Returns the time since which it is unknown; `None` if it is known.
    pub(in crate::index) fn note_behind(
        &mut self,
        state: &RevisionState,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.behind_since = match (state, self.behind_since) {
            (RevisionState::Current(_), _) => None,
            (RevisionState::Unknown(_), Some(since)) => Some(since),
            (RevisionState::Unknown(_), None) => {
                let since = self.state.reported.behind_since;
                Some(since.unwrap_or(now).min(now))
            }
        };
        self.behind_since
    }
}
