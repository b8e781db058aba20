//! A plan for a caller who may not list nodes: what would change, and for how many pods.
//!
//! Nothing is played. Without nodes nothing tells which of them are online, in which wave they are, or where a pod belongs.

use serde::Serialize;

use super::print::changes;
use super::row::RevisionChange;
use crate::core::words::plural;
use crate::core::{Revision, SetKind};
use crate::ctl::row::api_version;
use crate::ctl::view::ClusterView;
use crate::index::SetKey;

/// What is known of a plan without nodes. Field names are a promise to scripts.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UnplayedPlan {
    /// The kind of the DaemonSet, as its API version.
    #[serde(serialize_with = "api_version")]
    kind: SetKind,
    namespace: String,
    name: String,
    /// What would be changed, in words.
    change: Vec<String>,
    /// The present revision; `null` for one that does not exist yet.
    from: Option<String>,
    /// The one that pods would get; `null` for one that does not exist yet.
    to: Option<String>,
    /// Resources that the caller may not read, and without which nothing is played.
    unknown: Vec<&'static str>,
    /// Pods of the DaemonSet.
    pods: usize,
    /// Those of them that are of another revision than `to`.
    outdated: usize,
    message: &'static str,
}

/// Why nothing is played.
const NOT_PLAYED: &str = "not played: you may not list nodes; their order, how long it takes and what blocks it are not known (for that: the \
    ClusterRole yurt-ds-viewer with a ClusterRoleBinding)";

impl UnplayedPlan {
    /// What is known of a change to a DaemonSet whose nodes are not known.
    pub(super) fn new(
        key: &SetKey,
        view: &ClusterView,
        change: Vec<String>,
        revisions: RevisionChange,
    ) -> Self {
        let RevisionChange { from, to } = revisions;
        let set = view.index.set(key).into_iter();
        let pods = set.flat_map(|set| set.pods());
        let revisions = pods.map(|(_, pod)| pod.in_place.revision.as_ref());
        let is_of = |revision: Option<&Revision>| {
            to.is_some() && revision.map(Revision::as_str) == to.as_deref()
        };
        let updated: Vec<bool> = revisions.map(is_of).collect();
        Self {
            kind: key.kind,
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            change,
            from,
            to,
            unknown: vec!["nodes"],
            pods: updated.len(),
            outdated: updated.iter().filter(|updated| !**updated).count(),
            message: NOT_PLAYED,
        }
    }

    /// The answer for people.
    pub(super) fn words(&self) -> String {
        let revision = match &self.to {
            Some(hash) => format!("revision {hash}"),
            None => "the new revision".to_owned(),
        };
        format!(
            "{}/{}{}: {} of {} {} {} not of {revision}.\nNote: {}\n",
            self.namespace,
            self.name,
            changes(&self.change),
            self.outdated,
            self.pods,
            plural(self.pods, "pod", "pods"),
            plural(self.outdated, "is", "are"),
            self.message
        )
    }
}
