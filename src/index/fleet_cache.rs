//! The last fleet that was built, and the nodes that have to be built again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::crowd_index::CrowdIndex;
use crate::core::images::TemplateImage;
use crate::core::instant::later;
use crate::core::{Fleet, InView, NodeName, Revision, RevisionState};

/// Time for which all nodes stay in the list after a decision needed them: leaving nodes out again costs an evaluation of every
/// node.
const WIDE: Duration = Duration::from_secs(10);

/// The last fleet that was built, and the changes since.
#[derive(Debug, Default)]
pub(super) struct FleetCache {
    pub(super) fleet: Option<Arc<Fleet>>,
    /// Nodes that are counted instead of listed; `None` if all nodes are listed.
    pub(super) crowd: Option<CrowdIndex>,
    /// Time until which all nodes have to be listed.
    wide_until: Option<Timestamp>,
    pub(super) basis: Option<Basis>,
    pub(super) dirty: BTreeSet<NodeName>,
    /// True if a fleet was built before.
    pub(super) looked: bool,
    /// Nodes in the guard's record whose pod was removed and that were then lost.
    remembered: BTreeSet<NodeName>,
    /// The revision that a decision found proven.
    proven: Option<Revision>,
}

/// Facts that the evaluation of every pod depends on; a change causes a new evaluation of all pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    pub(super) state: RevisionState,
    /// The images of the current revision, if their presence on nodes matters.
    pub(super) images: Option<Arc<[TemplateImage]>>,
    pub(super) known: Vec<(Revision, i64)>,
    pub(super) absent: BTreeSet<Revision>,
    pub(super) template_generation: Option<String>,
    /// Time at which the current revision last became current.
    pub(super) adopted: Option<Timestamp>,
}

impl FleetCache {
    /// Records a change of a node or of a pod on it.
    pub(super) fn mark_dirty(&mut self, node: &NodeName) {
        if self.fleet.is_some() {
            self.dirty.insert(node.clone());
        }
    }

    /// Returns the current revision at the time when the fleet was last built.
    pub(super) fn revision(&self) -> Option<&Revision> {
        self.basis.as_ref()?.state.current()
    }

    /// Returns true while the first fleet is being built.
    pub(super) fn is_first_look(&self) -> bool {
        !self.looked
    }

    /// Returns true if the guard's record contains `node` as lost after the removal of its pod.
    pub(super) fn remembers(&self, node: &NodeName) -> bool {
        self.remembered.contains(node)
    }

    /// Sets the nodes that the guard's record contains as lost after the removal of their pod.
    pub(super) fn remember(&mut self, nodes: BTreeSet<NodeName>) {
        let changed = self.remembered.symmetric_difference(&nodes);
        self.dirty.extend(changed.cloned());
        self.remembered = nodes;
    }

    /// Returns true if all nodes have to be listed at `now`.
    pub(super) fn is_wide(&self, now: Timestamp) -> bool {
        self.wide_until.is_some_and(|until| now < until)
    }

    /// Records what a decision at `now` found about the list. Returns true if the next one sees more nodes.
    pub(super) fn widen(&mut self, view: InView, now: Timestamp) -> bool {
        match view {
            InView::Enough => {
                self.wide_until = None;
                if let Some(crowd) = &mut self.crowd {
                    crowd.show_few();
                }
                false
            }
            InView::Proven => {
                self.proven = self.revision().cloned();
                self.proven.is_some()
            }
            InView::MoreWaiting if self.crowd.as_mut().is_some_and(CrowdIndex::show_more) => true,
            InView::MoreWaiting | InView::Everybody => {
                self.wide_until = Some(later(now, WIDE));
                let crowd = self.crowd.as_ref();
                crowd.is_some_and(|crowd| !crowd.numbers().is_empty())
            }
        }
    }

    /// Returns true if a decision found that revision proven.
    pub(super) fn is_proven(&self, revision: &Revision) -> bool {
        self.proven.as_ref() == Some(revision)
    }

    /// Invalidates the whole fleet.
    pub(super) fn forget(&mut self) {
        self.fleet = None;
    }
}
