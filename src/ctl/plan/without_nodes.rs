//! Plan for a caller without the right to list nodes: the changes, and the number of affected pods.
//!
//! The rollout is not simulated: it is unknown which nodes are online, need a pod, or belong to a wave.

use serde::Serialize;

use super::print::changes;
use super::row::RevisionChange;
use crate::core::words::plural;
use crate::core::{Revision, SetKind};
use crate::ctl::row::api_version;
use crate::ctl::view::ClusterView;
use crate::index::SetKey;

/// The parts of a plan that are known without nodes. Field names are stable for scripts.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanWithoutNodes {
    /// Kind of the DaemonSet, serialized as its API version.
    #[serde(serialize_with = "api_version")]
    kind: SetKind,
    namespace: String,
    name: String,
    /// Planned changes in words.
    change: Vec<String>,
    /// Hash of the revision before the change; `null` if it does not exist yet.
    from: Option<String>,
    /// Hash of the revision that pods would get; `null` if it does not exist yet.
    to: Option<String>,
    /// Resources that the simulation needs and the caller may not read.
    unknown: Vec<&'static str>,
    pods: usize,
    /// Number of pods whose revision is not `to`.
    outdated: usize,
    message: &'static str,
}

/// Reason why the rollout is not simulated.
const NOT_PLAYED: &str = "order, duration and obstacles are not known, because you may not list nodes (needed: the \
    ClusterRole yurt-ds-viewer with a ClusterRoleBinding)";

impl PlanWithoutNodes {
    /// Builds the plan of a change to a DaemonSet whose nodes are unknown.
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

    pub(super) fn text(&self) -> String {
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
