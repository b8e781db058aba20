//! Determines the current revision and the revision of each pod, without computing hashes.
//!
//! A revision is identified by its ControllerRevision. The current one has the greatest number, and it contains the DaemonSet's
//! template (specification of OpenYurt's upgrade model: "which pods are up to date"). Templates are compared as JSON, so that
//! fields that this program doesn't know are compared, too.

mod data;
pub(in crate::core) mod defaults;
pub(in crate::core) mod fingerprint;
mod rollback;

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::fleet::in_place::Shape;
use super::id::{PodRevision, Revision, RevisionState, RevisionUnknown};
use super::images::TemplateImage;

pub use data::{data_of, template_in};
pub use fingerprint::TemplateFingerprint;
pub use rollback::{RollbackCandidates, RollbackMark, TemplateWriter};

/// A ControllerRevision that this DaemonSet controls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionFacts {
    /// Number of the revision (`.revision`).
    pub number: i64,
    /// Hash of the revision, see [`hash_of`].
    pub hash: Revision,
    /// Creation time. In contrast to the number, it stays the same when a rollback makes the revision current again.
    pub made: Option<Timestamp>,
    /// Time at which the revision last became the newest: by its creation, or by a rollback, for which the native controller raises
    /// its number.
    pub adopted: Option<Timestamp>,
    /// Fingerprint of the template (`data.spec.template`).
    pub template: TemplateFingerprint,
    /// Parts of the template that in-place updates depend on.
    pub shape: Arc<Shape>,
    /// Images of the template.
    pub images: Arc<[TemplateImage]>,
}

/// Returns the time at which a ControllerRevision last became the newest, from the times of writes in its `metadata`. The native
/// controller rarely writes to it for another reason.
pub fn adopted(meta: &ObjectMeta) -> Option<Timestamp> {
    let written = meta.managed_fields.iter().flatten();
    let written = written.filter_map(|entry| entry.time.as_ref());
    let times = written.chain(meta.creation_timestamp.as_ref());
    times.map(|time| time.0).max()
}

/// Returns the current revision, or the reason why it is unknown.
///
/// - `observed` is true if the native controller has observed this generation of the DaemonSet (`status.observedGeneration`).
/// - `trust_greatest` is true if the templates also differed in a live read, so that the cache is not the cause. The revision then
///   contains the template in a form that the comparison doesn't know. In this case, the greatest number alone decides.
pub fn current(
    revisions: &[RevisionFacts],
    template: &TemplateFingerprint,
    observed: bool,
    trust_greatest: bool,
) -> RevisionState {
    if !observed {
        return RevisionState::Unknown(RevisionUnknown::NotObserved);
    }
    let Some(newest) = revisions.iter().max_by_key(|revision| revision.number) else {
        return RevisionState::Unknown(RevisionUnknown::NoRevision);
    };
    // The native controller keeps the newest of two duplicate revisions and relabels the pods of the other. Before that, these
    // pods would count as outdated, which is wrong.
    let tied = |revision: &&RevisionFacts| {
        revision.number == newest.number
            || revision.hash != newest.hash && revision.template.is_twin(&newest.template)
    };
    if revisions.iter().filter(tied).count() > 1 {
        RevisionState::Unknown(RevisionUnknown::Tie)
    } else if newest.template != *template && !trust_greatest {
        RevisionState::Unknown(RevisionUnknown::Mismatch)
    } else {
        RevisionState::Current(newest.hash.clone())
    }
}

/// Returns the revisions before `current`, sorted by number, the newest first.
///
/// Kubernetes gives the greatest number to a revision that becomes current again. So the first result is the revision that
/// `current` replaced, as in `kubectl rollout undo`.
pub fn earlier<'a>(revisions: &'a [RevisionFacts], current: &Revision) -> Vec<&'a RevisionFacts> {
    let Some(current) = revisions.iter().find(|known| known.hash == *current) else {
        return Vec::new();
    };
    let is_earlier = |known: &&RevisionFacts| known.number < current.number;
    let mut found: Vec<&RevisionFacts> = revisions.iter().filter(is_earlier).collect();
    found.sort_by_key(|known| Reverse(known.number));
    found
}

/// Returns the number of the revision from which the last rollback returned to `current`. `None` if the last change was a new
/// template.
///
/// It is the revision with the next lower number, if that was created later than `current`.
pub fn undone(revisions: &[RevisionFacts], current: &Revision) -> Option<i64> {
    let current = revisions.iter().find(|known| known.hash == *current)?;
    let lower = revisions
        .iter()
        .filter(|known| known.number < current.number);
    let next = lower.max_by_key(|known| known.number)?;
    (next.made > current.made).then_some(next.number)
}

/// Returns the hash of a ControllerRevision from its label. Without the label, it is the part of its name after the DaemonSet's
/// name.
pub fn hash_of(label: Option<&str>, revision_name: &str, daemonset_name: &str) -> Revision {
    let from_name = || {
        revision_name
            .strip_prefix(daemonset_name)
            .and_then(|rest| rest.strip_prefix('-'))
            .unwrap_or(revision_name)
    };
    non_empty(label).unwrap_or_else(from_name).into()
}

/// Returns the relation of a pod's revision to the current one. The hash decides; without a hash, the template generation.
///
/// `hash_label` and `generation_label` are labels of the pod. `template_generation` is the annotation of the DaemonSet.
pub fn classify(
    hash_label: Option<&str>,
    generation_label: Option<&str>,
    current: &Revision,
    revisions: &[RevisionFacts],
    template_generation: Option<&str>,
) -> PodRevision {
    let Some(hash) = non_empty(hash_label) else {
        let generation = non_empty(generation_label);
        return if generation.is_some() && generation == template_generation {
            PodRevision::Current
        } else {
            PodRevision::Outdated
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

/// Returns the number of the revision with this hash label; 0 if there is no such revision.
pub fn number_of(hash_label: Option<&Revision>, revisions: &[RevisionFacts]) -> i64 {
    let of_pod = |known: &&RevisionFacts| Some(&known.hash) == hash_label;
    revisions
        .iter()
        .find(of_pod)
        .map_or(0, |known| known.number)
}

fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const A: u8 = 1;
    const B: u8 = 2;

    fn template(image: u8) -> TemplateFingerprint {
        TemplateFingerprint::from_template(&json!({"spec": {"image": image}}))
    }

    fn revision(number: i64, hash: &str, image: u8) -> RevisionFacts {
        RevisionFacts {
            number,
            hash: hash.into(),
            adopted: None,
            made: Timestamp::from_second(number).ok(),
            template: template(image),
            shape: Arc::new(Shape::from_template(&json!({}))),
            images: Arc::new([]),
        }
    }

    fn now_current(revisions: &[RevisionFacts], image: u8) -> RevisionState {
        current(revisions, &template(image), true, false)
    }

    fn classified(hash: Option<&str>, generation: Option<&str>) -> PodRevision {
        let revisions = [revision(1, "old", A), revision(2, "new", B)];
        classify(hash, generation, &"new".into(), &revisions, Some("7"))
    }

    #[test]
    fn the_revision_is_unknown_before_the_native_controller_observes_the_template() {
        let state = current(&[revision(1, "a", A)], &template(A), false, true);
        assert_eq!(state, RevisionState::Unknown(RevisionUnknown::NotObserved));
    }

    #[test]
    fn without_revisions_the_current_revision_is_unknown() {
        assert_eq!(
            now_current(&[], A),
            RevisionState::Unknown(RevisionUnknown::NoRevision)
        );
    }

    #[test]
    fn the_highest_revision_number_is_current() {
        let [a, b] = [revision(1, "a", A), revision(2, "b", B)];
        let expected = RevisionState::Current("b".into());
        assert_eq!(now_current(&[a.clone(), b.clone()], B), expected);
        assert_eq!(now_current(&[b, a], B), expected);
    }

    #[test]
    fn two_revisions_with_the_highest_number_are_ambiguous() {
        let tied = [
            revision(1, "a", A),
            revision(2, "b", B),
            revision(2, "c", B),
        ];
        assert_eq!(
            now_current(&tied, B),
            RevisionState::Unknown(RevisionUnknown::Tie)
        );
        assert_eq!(
            current(&tied, &template(B), true, true),
            RevisionState::Unknown(RevisionUnknown::Tie)
        );
        let below = [
            revision(1, "a", A),
            revision(1, "c", A),
            revision(2, "b", B),
        ];
        assert_eq!(now_current(&below, B), RevisionState::Current("b".into()));
    }

    #[test]
    fn a_template_newer_than_its_revisions_is_a_mismatch() {
        let state = now_current(&[revision(1, "a", A)], B);
        assert_eq!(state, RevisionState::Unknown(RevisionUnknown::Mismatch));
    }

    #[test]
    fn revisions_newer_than_the_template_are_a_mismatch() {
        let state = now_current(&[revision(1, "a", A), revision(2, "b", B)], A);
        assert_eq!(state, RevisionState::Unknown(RevisionUnknown::Mismatch));
    }

    #[test]
    fn after_a_live_read_the_highest_number_decides_alone() {
        let state = current(&[revision(1, "a", A)], &template(B), true, true);
        assert_eq!(state, RevisionState::Current("a".into()));
    }

    #[test]
    fn a_rollback_raises_the_number_of_the_old_revision() {
        let after_a_b_a = [revision(3, "a", A), revision(2, "b", B)];
        assert_eq!(
            now_current(&after_a_b_a, A),
            RevisionState::Current("a".into())
        );
        let classify = |hash| classify(Some(hash), Some("1"), &"a".into(), &after_a_b_a, Some("3"));
        assert_eq!(classify("a"), PodRevision::Current);
        assert_eq!(classify("b"), PodRevision::Outdated);
    }

    #[test]
    fn earlier_revisions_are_listed_from_the_replaced_one_back() {
        #[track_caller]
        fn case(revisions: &[RevisionFacts], current: &str, expected: &[&str]) {
            let found = earlier(revisions, &current.into());
            let found: Vec<&str> = found.iter().map(|known| known.hash.as_str()).collect();
            assert_eq!(found, expected, "from {current}");
        }
        let [a, b, c, bad] = [
            revision(1, "a", A),
            revision(3, "b", B),
            revision(4, "c", 3),
            revision(2, "bad", 4),
        ];
        case(std::slice::from_ref(&a), "a", &[]);
        case(&[c.clone(), a.clone(), b.clone()], "c", &["b", "a"]);
        case(&[a.clone(), b.clone()], "gone", &[]);
        let again = |known: &RevisionFacts, number| RevisionFacts {
            number,
            ..known.clone()
        };
        // The template changed in this order: a, bad, a, b, c, bad.
        let [a, bad] = [again(&a, 3), again(&bad, 6)];
        let (b, c) = (again(&b, 4), again(&c, 5));
        case(&[a, bad, b, c], "bad", &["c", "b", "a"]);
    }

    #[test]
    fn an_undone_revision_has_the_next_lower_number_and_a_later_creation() {
        let [a, b, c] = [
            revision(1, "a", A),
            revision(2, "b", B),
            revision(3, "c", 3),
        ];
        let again = |known: &RevisionFacts, number| RevisionFacts {
            number,
            ..known.clone()
        };
        assert_eq!(undone(&[a.clone(), b.clone()], &"b".into()), None);
        let back = [again(&a, 3), b.clone()];
        assert_eq!(undone(&back, &"a".into()), Some(2));
        // Two rollbacks: from the third revision to the second, and then to the first.
        let twice = [again(&a, 5), again(&b, 4), c.clone()];
        assert_eq!(undone(&twice, &"a".into()), Some(4));
        // A return to a newer revision is no rollback. That revision was created later than the one before.
        assert_eq!(undone(&[again(&a, 3), again(&b, 4)], &"b".into()), None);
        assert_eq!(undone(&[a, b], &"gone".into()), None);
        assert_eq!(undone(&[c], &"c".into()), None);
    }

    #[test]
    fn the_revision_hash_comes_from_the_label_or_else_the_name() {
        assert_eq!(hash_of(Some("abc"), "ds-xyz", "ds"), "abc".into());
        assert_eq!(hash_of(None, "ds-xyz", "ds"), "xyz".into());
        assert_eq!(hash_of(Some(""), "a-b-xyz", "a-b"), "xyz".into());
        assert_eq!(hash_of(None, "other", "ds"), "other".into());
    }

    #[test]
    fn a_pod_with_the_current_hash_is_current_for_any_generation() {
        for generation in [None, Some("7"), Some("1")] {
            assert_eq!(classified(Some("new"), generation), PodRevision::Current);
        }
    }

    #[test]
    fn a_pod_with_another_known_hash_is_outdated_even_with_the_current_generation() {
        assert_eq!(classified(Some("old"), Some("7")), PodRevision::Outdated);
    }

    #[test]
    fn a_pod_with_an_unknown_hash_has_an_unknown_revision() {
        assert_eq!(classified(Some("newer"), Some("7")), PodRevision::Unknown);
    }

    #[test]
    fn without_a_hash_the_generation_decides() {
        for hash in [None, Some("")] {
            assert_eq!(classified(hash, Some("7")), PodRevision::Current);
            assert_eq!(classified(hash, Some("6")), PodRevision::Outdated);
            assert_eq!(classified(hash, Some("")), PodRevision::Outdated);
            assert_eq!(classified(hash, None), PodRevision::Outdated);
        }
        assert_eq!(
            classify(None, None, &"new".into(), &[], None),
            PodRevision::Outdated
        );
        assert_eq!(
            classify(None, Some(""), &"new".into(), &[], Some("")),
            PodRevision::Outdated
        );
    }
}
