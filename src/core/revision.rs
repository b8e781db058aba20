//! Which revision is current and which one a pod runs, without re-computing anybody's hash.
//!
//! The identity of a revision is its ControllerRevision object: the current one has the greatest number and holds the
//! present template (spec: the upgrade model's "which pods are up to date"). Templates are compared as raw JSON, so that
//! a field which no library here knows still counts.

mod canonical;

use super::fleet::{Behind, PodRevision, Revision, RevisionState};

pub use canonical::TemplateFingerprint;

/// A ControllerRevision that this DaemonSet controls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionFacts {
    /// Its `.revision`.
    pub number: i64,
    /// Its hash, see [`hash_of`].
    pub hash: Revision,
    /// Its `data.spec.template`.
    pub template: TemplateFingerprint,
}

/// The current revision, or why it is not known.
///
/// `observed`: the native controller has seen this generation of the DaemonSet (`status.observedGeneration`).
/// `trust_greatest`: a live look confirmed that the newest revision does not hold the template as we read it, so its
/// encoding is one that we do not know; then the greatest number decides alone.
pub fn current(
    revisions: &[RevisionFacts],
    template: &TemplateFingerprint,
    observed: bool,
    trust_greatest: bool,
) -> RevisionState {
    if !observed {
        return RevisionState::Behind(Behind::NotObserved);
    }
    let Some(newest) = revisions.iter().max_by_key(|revision| revision.number) else {
        return RevisionState::Behind(Behind::NoRevision);
    };
    let tied = |revision: &&RevisionFacts| revision.number == newest.number;
    if revisions.iter().filter(tied).count() > 1 {
        RevisionState::Behind(Behind::Tie)
    } else if newest.template != *template && !trust_greatest {
        RevisionState::Behind(Behind::Mismatch)
    } else {
        RevisionState::Current(newest.hash.clone())
    }
}

/// The hash of a ControllerRevision: its label, else the part of its name after the DaemonSet's.
pub fn hash_of(label: Option<&str>, revision_name: &str, daemonset_name: &str) -> Revision {
    let from_name = || {
        revision_name
            .strip_prefix(daemonset_name)
            .and_then(|rest| rest.strip_prefix('-'))
            .unwrap_or(revision_name)
    };
    non_empty(label).unwrap_or_else(from_name).into()
}

/// Which revision a pod runs: its hash decides; only without one, the generation does.
///
/// `hash_label` and `generation_label` are the pod's, `template_generation` is the DaemonSet's annotation.
pub fn judge(
    hash_label: Option<&str>,
    generation_label: Option<&str>,
    current: &Revision,
    revisions: &[RevisionFacts],
    template_generation: Option<&str>,
) -> PodRevision {
    let Some(hash) = non_empty(hash_label) else {
        let generation = non_empty(generation_label);
        return match generation.is_some() && generation == template_generation {
            true => PodRevision::Current,
            false => PodRevision::Outdated,
        };
    };
    if hash == current.as_str() {
        PodRevision::Current
    } else if revisions.iter().any(|known| known.hash.as_str() == hash) {
        PodRevision::Outdated
    } else {
        PodRevision::Unknown
    }
}

fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}
