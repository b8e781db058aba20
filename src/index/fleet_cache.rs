//! The fleet as it was made last, and which nodes have to be made anew since.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::core::images::TemplateImage;
use crate::core::{Fleet, NodeName, Revision, RevisionState};

/// The fleet as it was made last, and what happened since.
#[derive(Debug, Default)]
pub(super) struct FleetCache {
    pub(super) fleet: Option<Arc<Fleet>>,
    pub(super) basis: Option<Basis>,
    pub(super) dirty: BTreeSet<NodeName>,
    /// Whether a fleet was made before.
    pub(super) looked: bool,
    /// The nodes of which the guard remembers that their pod was removed, and they were lost.
    remembered: BTreeSet<NodeName>,
}

/// What the judgement of every pod rests on; when it changes, all are judged anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    pub(super) state: RevisionState,
    /// The images of the current revision, where it matters who has them.
    pub(super) images: Option<Arc<[TemplateImage]>>,
    pub(super) known: Vec<(Revision, i64)>,
    pub(super) absent: BTreeSet<Revision>,
    pub(super) template_generation: Option<String>,
    /// When the current revision last became that.
    pub(super) adopted: Option<Timestamp>,
}

impl FleetCache {
    /// Something happened to a node or to a pod on it.
    pub(super) fn mark_dirty(&mut self, node: &NodeName) {
        if self.fleet.is_some() {
            self.dirty.insert(node.clone());
        }
    }

    /// The current revision, as it was when the fleet was made last.
    pub(super) fn revision(&self) -> Option<&Revision> {
        match &self.basis.as_ref()?.state {
            RevisionState::Current(revision) => Some(revision),
            RevisionState::Unknown(_) => None,
        }
    }

    /// Whether the first fleet is being made.
    pub(super) fn is_first_look(&self) -> bool {
        !self.looked
    }

    /// Whether the guard remembers that the pod of `node` was removed, and the node was lost.
    pub(super) fn remembers(&self, node: &NodeName) -> bool {
        self.remembered.contains(node)
    }

    /// Of these nodes it remembers that now.
    pub(super) fn remember(&mut self, nodes: BTreeSet<NodeName>) {
        let changed = self.remembered.symmetric_difference(&nodes);
        self.dirty.extend(changed.cloned());
        self.remembered = nodes;
    }

    /// Something happened to all of them.
    pub(super) fn forget(&mut self) {
        self.fleet = None;
    }
}
