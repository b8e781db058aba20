//! Cache of the fleet that was built last, with the nodes that have changed since.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::crowd_index::CrowdIndex;
use crate::core::images::TemplateImage;
use crate::core::instant::later;
use crate::core::{Fleet, InView, NodeName, Revision, RevisionState};

/// Time for which all nodes stay listed after a decision needed all of them. To count them again, every node has to be evaluated.
const WIDE: Duration = Duration::from_secs(10);

/// Last fleet that was built, and the changes since.
#[derive(Debug, Default)]
pub(super) struct FleetCache {
    pub(super) fleet: Option<Arc<Fleet>>,
    /// Index of the counted nodes; `None` if all nodes are listed.
    pub(super) crowd: Option<CrowdIndex>,
    /// Time until which all nodes have to be listed.
    wide_until: Option<Timestamp>,
    pub(super) basis: Option<Basis>,
    pub(super) dirty: BTreeSet<NodeName>,
    /// True if any fleet was built before.
    pub(super) was_built: bool,
    /// Nodes that were lost after their pod was deleted, according to the guard's record.
    remembered: BTreeSet<NodeName>,
    /// Revision that works, according to a decision ([`Fleet::is_proven`]).
    proven: Option<Revision>,
}

/// Facts that the evaluation of every pod depends on. If one changes, all pods are evaluated again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    pub(super) state: RevisionState,
    /// Images of the current revision; `None` if no decision depends on their presence on nodes.
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

    /// Returns the revision that was current when the fleet was last built.
    pub(super) fn revision(&self) -> Option<&Revision> {
        self.basis.as_ref()?.state.current()
    }

    /// Returns true while the first fleet is being built.
    pub(super) fn is_first_look(&self) -> bool {
        !self.was_built
    }

    /// Returns true if `node` was lost after its pod was deleted, according to the guard's record.
    pub(super) fn remembers(&self, node: &NodeName) -> bool {
        self.remembered.contains(node)
    }

    /// Sets the nodes that were lost after their pod was deleted, from the guard's record.
    pub(super) fn remember(&mut self, nodes: BTreeSet<NodeName>) {
        let changed = self.remembered.symmetric_difference(&nodes);
        self.dirty.extend(changed.cloned());
        self.remembered = nodes;
    }

    /// Returns true if all nodes have to be listed at `now`.
    pub(super) fn is_wide(&self, now: Timestamp) -> bool {
        self.wide_until.is_some_and(|until| now < until)
    }

    /// Records the result of a decision at `now` about the listed nodes. Returns true if the decision has to be repeated with more
    /// nodes.
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

    /// Returns true if this revision works, according to a decision ([`Fleet::is_proven`]).
    pub(super) fn is_proven(&self, revision: &Revision) -> bool {
        self.proven.as_ref() == Some(revision)
    }

    /// Drops the cached fleet, so that the next one is built from scratch.
    pub(super) fn forget(&mut self) {
        self.fleet = None;
    }
}
