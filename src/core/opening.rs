//! Which nodes' maintenance windows are open: the DaemonSet's, or the Node's own.
//!
//! A window governs the beginning of a replacement alone. Thousands of nodes share a handful of windows, so each is
//! looked at once per pass.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::fleet::{Fleet, Node};
use super::strategy::{Mode, Strategy};
use super::window::{Opening, Windows};

/// The window of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeWindow {
    /// These instead of the DaemonSet's.
    Windows(Arc<Windows>),
    /// The annotation cannot be read, for this reason: it never opens.
    Unreadable(Arc<str>),
}

/// Whose windows are open now.
#[derive(Debug)]
pub(super) struct Openings {
    /// By position in the fleet; `None`: nobody has a window.
    nodes: Option<Vec<Opening>>,
}

impl Openings {
    /// As it is at `now`.
    pub(super) fn of(strategy: &Strategy, fleet: &Fleet, now: Timestamp) -> Self {
        let is_told = strategy.window.is_some() || fleet.nodes.iter().any(|n| n.window.is_some());
        let nodes = (is_told && strategy.mode == Mode::AdvancedRollingUpdate).then(|| {
            let mut looked = BTreeMap::new();
            let nodes = fleet.nodes.iter();
            nodes
                .map(|node| opening(strategy, node, now, &mut looked))
                .collect()
        });
        Self { nodes }
    }

    /// Whether a replacement may begin on the node at `position`, and until when that holds.
    pub(super) fn at(&self, position: usize) -> Opening {
        let nodes = self.nodes.as_ref();
        nodes.map_or(ALWAYS, |nodes| nodes[position])
    }
}

const ALWAYS: Opening = Opening {
    is_open: true,
    changes: None,
};
const NEVER: Opening = Opening {
    is_open: false,
    changes: None,
};

fn opening<'a>(
    strategy: &'a Strategy,
    node: &'a Node,
    now: Timestamp,
    looked: &mut BTreeMap<&'a str, Opening>,
) -> Opening {
    let windows = match (&node.window, &strategy.window) {
        (Some(NodeWindow::Unreadable(_)), _) => return NEVER,
        (Some(NodeWindow::Windows(windows)), _) | (None, Some(windows)) => windows,
        (None, None) => return ALWAYS,
    };
    *looked
        .entry(windows.text())
        .or_insert_with(|| windows.at(now))
}
