//! State of a DaemonSet before `ctl eject`, and what the native RollingUpdate would do with it.

use std::collections::BTreeMap;

use crate::core::names::ON_DELETE;
use crate::core::{Node, PodRevision, RevisionState, Verdict};
use crate::ctl::snapshot::RolloutSnapshot;
use crate::index::SetKey;
use k8s_openapi::api::apps::v1::DaemonSet;

/// State of a DaemonSet before `ctl eject`.
pub(super) struct EjectCandidate {
    pub(super) key: SetKey,
    pub(super) set: DaemonSet,
    pub(super) snapshot: RolloutSnapshot,
    /// Annotations of yurt-ds on the DaemonSet.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) old: OldNodes,
}

/// Numbers of nodes whose pods the native RollingUpdate would replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OldNodes {
    /// Number of nodes with an outdated pod that is not terminating.
    pub(super) nodes: usize,
    /// Number of these nodes that are offline.
    pub(super) offline: usize,
    /// Number of these nodes that a hold, a selector or a partition keeps on their revision.
    pub(super) kept: usize,
    /// Number of nodes whose outdated pods are all terminating; not included in `nodes`.
    pub(super) ending: usize,
    /// True if the current revision is known. Otherwise it is unknown which pods are outdated.
    pub(super) known: bool,
}

impl OldNodes {
    /// Counts the nodes with outdated pods.
    pub(super) fn new(snapshot: &RolloutSnapshot) -> Self {
        let has_old = |node: &Node, ending: bool| {
            let mut pods = node.pods.iter();
            pods.any(|pod| {
                let is_old = pod.revision != PodRevision::Current;
                pod.terminating == ending && !pod.has_ended() && is_old
            })
        };
        let mut old = Self {
            known: matches!(snapshot.fleet.revision, RevisionState::Current(_)),
            ..Self::default()
        };
        for (node, verdict) in snapshot.fleet.nodes.iter().zip(&snapshot.plan.verdicts) {
            if has_old(node, false) {
                old.nodes += 1;
                old.offline += usize::from(matches!(verdict, Verdict::Offline(_)));
                old.kept += usize::from(matches!(
                    verdict,
                    Verdict::Held { .. } | Verdict::NotSelected | Verdict::Partition
                ));
            } else if has_old(node, true) {
                old.ending += 1;
            }
        }
        old
    }
}

impl EjectCandidate {
    pub(super) fn is_on_delete(&self) -> bool {
        let spec = self.set.spec.as_ref();
        let strategy = spec.and_then(|spec| spec.update_strategy.as_ref());
        strategy.and_then(|strategy| strategy.type_.as_deref()) == Some(ON_DELETE)
    }
}
