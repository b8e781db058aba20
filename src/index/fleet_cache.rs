//! The fleet as it was made last, and which nodes have to be made anew since.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::crowd_index::CrowdIndex;
use crate::core::images::TemplateImage;
use crate::core::instant::later;
use crate::core::{Fleet, InView, NodeName, Revision, RevisionState};

/// So long everybody is in the list after that was needed: to leave nodes out again means to look at all of them once.
const WIDE: Duration = Duration::from_secs(10);

/// The fleet as it was made last, and what happened since.
#[derive(Debug, Default)]
pub(super) struct FleetCache {
    pub(super) fleet: Option<Arc<Fleet>>,
    /// Who is counted instead of being in its list; `None`: everybody is in the list.
    pub(super) crowd: Option<CrowdIndex>,
    /// Until when everybody has to be.
    wide_until: Option<Timestamp>,
    pub(super) basis: Option<Basis>,
    pub(super) dirty: BTreeSet<NodeName>,
    /// Whether a fleet was made before.
    pub(super) looked: bool,
    /// The nodes of which the guard remembers that their pod was removed, and they were lost.
    remembered: BTreeSet<NodeName>,
    /// The revision that a decision found proven.
    proven: Option<Revision>,
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
        self.basis.as_ref()?.state.current()
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

    /// Whether everybody has to be in the list at `now`.
    pub(super) fn is_wide(&self, now: Timestamp) -> bool {
        self.wide_until.is_some_and(|until| now < until)
    }

    /// Takes in what a decision at `now` said of the list; whether the next one sees more.
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

    /// Whether a decision found that revision proven.
    pub(super) fn is_proven(&self, revision: &Revision) -> bool {
        self.proven.as_ref() == Some(revision)
    }

    /// Something happened to all of them.
    pub(super) fn forget(&mut self) {
        self.fleet = None;
    }
}
