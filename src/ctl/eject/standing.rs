//! A DaemonSet that is to be handed back, as it stands, and what the native RollingUpdate would make of it.

use std::collections::BTreeMap;

use crate::core::names::ON_DELETE;
use crate::core::{Node, PodRevision, RevisionState, Verdict};
use crate::ctl::snapshot::RolloutSnapshot;
use crate::index::SetKey;
use k8s_openapi::api::apps::v1::DaemonSet;

/// A DaemonSet as it stands, and what follows from that.
pub(super) struct EjectCandidate {
    pub(super) key: SetKey,
    pub(super) set: DaemonSet,
    pub(super) snapshot: RolloutSnapshot,
    /// Our annotations on it.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) old: OldNodes,
}

/// Nodes whose pods the native RollingUpdate would replace at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OldNodes {
    /// All of them.
    pub(super) nodes: usize,
    /// Those that are offline.
    pub(super) offline: usize,
    /// Those that keep their revision because the settings say so.
    pub(super) kept: usize,
    /// Not among them: nodes whose outdated pods are ending already.
    pub(super) ending: usize,
    /// Whether the present revision is known.
    pub(super) known: bool,
}

impl OldNodes {
    /// Counts what the native controller would replace.
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
