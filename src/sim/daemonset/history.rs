//! ControllerRevisions: finds the revision of the current template, and the writes that create or update revisions.

use kube::api::DynamicObject;
use serde_json::json;

use super::set::Set;
use super::template;
use super::write::DaemonSetWrite;
use crate::core::names::REVISION_HASH_LABEL;

/// State of a DaemonSet's revisions, based on all revisions in its namespace.
pub(super) enum History<'a> {
    /// Writes that are needed before anything else.
    Write(Vec<DaemonSetWrite>),
    /// Hash of the revision with the current template, and the old revisions, oldest first.
    Known {
        hash: String,
        old: Vec<&'a DynamicObject>,
    },
}

pub(super) fn read<'a>(
    set: &Set,
    revisions: impl Iterator<Item = &'a DynamicObject>,
    relabel: impl Fn(&str, &str) -> Vec<DaemonSetWrite>,
) -> History<'a> {
    let mut writes = Vec::new();
    let mut mine: Vec<&DynamicObject> = Vec::new();
    let mut others: Vec<&DynamicObject> = Vec::new();
    for revision in revisions {
        match claim(set, revision) {
            Claim::Mine => mine.push(revision),
            Claim::Adopt => writes.push(DaemonSetWrite::Revision {
                name: name(revision),
                patch: json!({ "metadata": {
                    "uid": revision.metadata.uid, "ownerReferences": [set.owner()],
                } }),
            }),
            Claim::NotMine => others.push(revision),
        }
    }
    if !writes.is_empty() {
        return History::Write(writes);
    }
    mine.sort_by_key(|revision| (number(revision), revision.metadata.name.clone()));
    let wanted = template::patch(set);
    let (mut current, old): (Vec<_>, Vec<_>) = mine
        .into_iter()
        .partition(|revision| revision.data["data"] == wanted);
    let next = old.last().map_or(0, |revision| number(revision)) + 1;
    let Some(keep) = current.pop() else {
        let hash = template::hash(set);
        // If a revision with this name and content exists, Kubernetes uses it, regardless of its owner (`snapshot` in
        // `pkg/controller/daemon/update.go`).
        let named = format!("{}-{hash}", set.name);
        let is_same = |other: &&DynamicObject| name(other) == named && other.data["data"] == wanted;
        if others.iter().any(is_same) {
            return History::Known { hash, old };
        }
        let object = template::revision(set, &hash, next);
        return History::Write(vec![DaemonSetWrite::NewRevision { object }]);
    };
    let kept = hash(keep);
    for duplicate in current {
        writes.extend(relabel(&hash(duplicate), &kept));
        writes.push(DaemonSetWrite::DropRevision {
            name: name(duplicate),
        });
    }
    if number(keep) < next {
        writes.push(DaemonSetWrite::Revision {
            name: name(keep),
            patch: json!({ "revision": next }),
        });
    }
    if writes.is_empty() {
        History::Known { hash: kept, old }
    } else {
        History::Write(writes)
    }
}

/// Returns the deletions of the oldest revisions beyond the history limit. A revision is kept while a pod has its hash.
pub(super) fn superfluous(
    set: &Set,
    old: &[&DynamicObject],
    is_live: impl Fn(&str) -> bool,
) -> Vec<DaemonSetWrite> {
    let surplus = old.len().saturating_sub(set.history_limit);
    old.iter()
        .filter(|revision| !is_live(&hash(revision)))
        .take(surplus)
        .map(|revision| DaemonSetWrite::DropRevision {
            name: name(revision),
        })
        .collect()
}

enum Claim {
    Mine,
    Adopt,
    NotMine,
}

fn claim(set: &Set, revision: &DynamicObject) -> Claim {
    let meta = &revision.metadata;
    let owners = meta.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    let labels = meta.labels.as_ref();
    let label = |key: &str| labels?.get(key).map(String::as_str);
    let selected = set.selector.as_ref().is_some_and(|s| s.matches(label));
    match controllers.next() {
        Some(owner) if owner.uid == set.uid => Claim::Mine,
        None if selected && meta.deletion_timestamp.is_none() => Claim::Adopt,
        _ => Claim::NotMine,
    }
}

fn number(revision: &DynamicObject) -> i64 {
    revision.data["revision"].as_i64().unwrap_or(0)
}

fn name(revision: &DynamicObject) -> String {
    revision.metadata.name.clone().unwrap_or_default()
}

fn hash(revision: &DynamicObject) -> String {
    let labels = revision.metadata.labels.as_ref();
    let hash = labels.and_then(|labels| labels.get(REVISION_HASH_LABEL));
    hash.cloned().unwrap_or_else(|| name(revision))
}
