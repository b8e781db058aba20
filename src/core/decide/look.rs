//! The first look: what follows from each node alone.
//!
//! It is the only pass that fetches every node, its labels and its pods: whatever a later pass asks of all of them is noted
//! here, by position in the fleet. A part that is to know something of every node gets its line in [`Look::at`].

use k8s_openapi::jiff::Timestamp;

use crate::core::classify::{Class, classify};
use crate::core::fleet::Fleet;
use crate::core::glance::Glance;
use crate::core::opening::Openings;
use crate::core::predownload::Images;
use crate::core::scope::Scope;
use crate::core::settings::Strategy;
use crate::core::surge::Terms;
use crate::core::waves::Members;

/// What was seen.
pub(super) struct Look<'a> {
    pub(super) classes: Vec<Class>,
    pub(super) glance: Glance<'a>,
    pub(super) scope: Scope,
    pub(super) members: Members<'a>,
    pub(super) openings: Openings<'a>,
    /// `None`: nothing is pulled ahead.
    pub(super) images: Option<Images<'a>>,
}

impl<'a> Look<'a> {
    /// Looks at every node.
    pub(super) fn at(strategy: &'a Strategy, fleet: &'a Fleet, now: Timestamp) -> Self {
        let nodes = fleet.nodes.len();
        let mut look = Self {
            classes: Vec::with_capacity(nodes),
            glance: Glance::at(fleet),
            scope: Scope::of(nodes),
            members: Members::of(strategy, nodes),
            openings: Openings::of(strategy, nodes, now),
            images: Images::of(strategy, fleet, now),
        };
        let terms = Terms::of(strategy, fleet, now);
        for (position, node) in fleet.nodes.iter().enumerate() {
            let class = classify(strategy, node, terms);
            look.glance.note(node);
            look.scope.note(strategy, (position, node), now);
            look.members.note(node);
            look.openings.note((position, node));
            if let Some(images) = &mut look.images {
                images.note(node, &class);
            }
            look.classes.push(class);
        }
        look
    }
}
