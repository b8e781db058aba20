//! Detection of rollbacks from the traces that they leave on the DaemonSet.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

use super::{RevisionFacts, earlier};
use crate::core::foreign::{WORD, one_line};
use crate::core::id::Revision;
use crate::core::instant;
use crate::core::names::ROLLED_BACK_FROM;

/// Field manager of `kubectl rollout undo` and `kubectl rollout restart`.
const KUBECTL_ROLLOUT: &str = "kubectl-rollout";

/// Traces that the last rollback left on a DaemonSet: an annotation of `ctl undo`, or the field manager of kubectl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollbackMark {
    /// Revision that `ctl undo` rolled back from, in the annotation [`ROLLED_BACK_FROM`].
    from: Option<Revision>,
    /// True if `kubectl rollout` wrote the template last.
    by_kubectl: bool,
}

impl RollbackMark {
    /// Reads the mark from the metadata of a DaemonSet.
    pub fn from_meta(meta: &ObjectMeta) -> Self {
        let from = meta.annotations.as_ref();
        let from = from.and_then(|annotations| annotations.get(ROLLED_BACK_FROM));
        let writer = TemplateWriter::from_meta(meta);
        Self {
            from: from.map(|hash| hash.as_str().into()),
            by_kubectl: writer.is_some_and(|writer| writer.manager == KUBECTL_ROLLOUT),
        }
    }

    /// Returns true if the traces prove a rollback from `left` to `current`. `left` is the revision with the next lower number.
    fn fits(&self, left: &RevisionFacts, current: &RevisionFacts) -> bool {
        self.from.as_ref() == Some(&left.hash) || self.by_kubectl && left.made > current.made
    }
}

/// Possible targets of a rollback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollbackCandidates<'a> {
    /// Possible targets; the revision that a rollback would choose is first.
    pub revisions: Vec<&'a RevisionFacts>,
    /// True if the current revision is itself the result of a rollback.
    pub is_rolled_back: bool,
}

impl<'a> RollbackCandidates<'a> {
    /// Returns the candidates for a rollback from `current`.
    ///
    /// After a rollback, a second rollback must not return to the revision that the first one left. So its candidates are older
    /// than the current revision.
    pub fn new(revisions: &'a [RevisionFacts], current: &Revision, mark: &RollbackMark) -> Self {
        let mut candidates = earlier(revisions, current);
        let known = revisions.iter().find(|known| known.hash == *current);
        let pair = candidates.first().copied().zip(known);
        let Some((left, current)) = pair.filter(|(left, current)| mark.fits(left, current)) else {
            return Self {
                revisions: candidates,
                is_rolled_back: false,
            };
        };
        candidates.retain(|known| match left.made > current.made {
            true => known.made <= current.made,
            // `left` was created before `current`: its old template was applied again before the rollback. Only the numbers show
            // this order.
            false => known.number < left.number,
        });
        Self {
            revisions: candidates,
            is_rolled_back: true,
        }
    }
}

/// Last writer of a DaemonSet's template, from `metadata.managedFields`.
///
/// For each manager, Kubernetes records only the time of its last write to any field. So the result is only reliable directly after
/// a change of the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateWriter {
    /// Field manager of that writer.
    pub manager: String,
    at: Option<Timestamp>,
}

impl TemplateWriter {
    /// Returns the last writer of the template; `None` if `managedFields` doesn't name one.
    pub fn from_meta(meta: &ObjectMeta) -> Option<Self> {
        let writes = |entry: &&ManagedFieldsEntry| {
            let fields = entry.fields_v1.as_ref();
            fields.is_some_and(|fields| !fields.0["f:spec"]["f:template"].is_null())
        };
        let entries = meta.managed_fields.iter().flatten().filter(writes);
        let last = entries.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
        Some(Self {
            manager: last.manager.clone().unwrap_or_default(),
            at: last.time.as_ref().map(|time| time.0),
        })
    }
}

impl fmt::Display for TemplateWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.manager, WORD))?;
        match self.at {
            Some(at) => write!(f, " at {}", instant::words(at)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::core::fleet::in_place::Shape;
    use crate::core::revision::TemplateFingerprint;

    /// Returns revisions with these hashes, numbers and creation times.
    fn revisions(all: &[(&str, i64, i64)]) -> Vec<RevisionFacts> {
        let facts = |(hash, number, made): &(&str, i64, i64)| RevisionFacts {
            number: *number,
            hash: (*hash).into(),
            made: Timestamp::from_second(*made).ok(),
            adopted: None,
            template: TemplateFingerprint::from_template(&json!({})),
            shape: Arc::new(Shape::from_template(&json!({}))),
            images: Arc::new([]),
        };
        all.iter().map(facts).collect()
    }

    fn mark(from: &str) -> RollbackMark {
        RollbackMark {
            from: Some(from.into()),
            by_kubectl: false,
        }
    }

    #[track_caller]
    fn case(all: &[(&str, i64, i64)], current: &str, mark: &RollbackMark, expected: &[&str]) {
        let all = revisions(all);
        let candidates = RollbackCandidates::new(&all, &current.into(), mark);
        let hashes: Vec<&str> = (candidates.revisions.iter())
            .map(|known| known.hash.as_str())
            .collect();
        assert_eq!(hashes, expected);
    }

    #[test]
    fn after_a_rollback_the_next_one_goes_further_back() {
        let by_kubectl = RollbackMark {
            by_kubectl: true,
            ..RollbackMark::default()
        };
        // An operator rolled back from c to b.
        let back = [("a", 1, 1), ("c", 3, 3), ("b", 4, 2)];
        case(&back, "b", &mark("c"), &["a"]);
        case(&back, "b", &by_kubectl, &["a"]);
        // Here the mark shows no rollback, or only an earlier one, from revision `a`. So a user applied the template of `b` again, and
        // `c` remains a candidate.
        case(&back, "b", &RollbackMark::default(), &["c", "a"]);
        case(&back, "b", &mark("a"), &["c", "a"]);
        // A user applied the template of b again. A rollback then returned to c, which was created later than b.
        let forth = [("a", 1, 1), ("b", 4, 2), ("c", 5, 3)];
        case(&forth, "c", &mark("b"), &["a"]);
        // After the rollback from c, a user changed the template to d.
        let on = [("a", 1, 1), ("c", 3, 3), ("b", 4, 2), ("d", 5, 4)];
        case(&on, "d", &mark("c"), &["b", "c", "a"]);
        // `kubectl rollout restart` also writes the template. It creates a newer revision, so it is no rollback.
        case(&on, "d", &by_kubectl, &["b", "c", "a"]);
        case(&on, "gone", &mark("c"), &[]);
    }
}
