//! Which nodes' maintenance windows are open: the DaemonSet's, or the Node's own.
//!
//! A window governs the beginning of a replacement alone. Thousands of nodes share a handful of windows, so each is
//! looked at once per pass.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use crate::core::fleet::{Node, NodeWindow};
use crate::core::settings::{Mode, Strategy};
use crate::core::window::WindowState;

/// Whose windows are open now.
#[derive(Debug)]
pub(super) struct WindowStates<'a> {
    /// How the different windows are, the DaemonSet's first.
    different: Vec<WindowState>,
    /// By position in the fleet which of them is a node's; whoever comes after the last one has the DaemonSet's.
    nodes: Vec<usize>,
    /// Where the windows of Nodes stand among the different ones.
    known: BTreeMap<&'a str, usize>,
    /// Whether windows matter.
    rolls: bool,
    now: Timestamp,
}

impl<'a> WindowStates<'a> {
    /// As it is at `now`, before any of so many Nodes has said anything.
    pub(super) fn new(strategy: &Strategy, nodes: usize, now: Timestamp) -> Self {
        let rolls = strategy.mode == Mode::AdvancedRollingUpdate;
        let windows = strategy.window.as_ref().filter(|_| rolls);
        Self {
            different: vec![windows.map_or(ALWAYS, |windows| windows.at(now))],
            nodes: Vec::with_capacity(nodes),
            known: BTreeMap::new(),
            rolls,
            now,
        }
    }

    /// Notes the window of the node at `position`; called in the order of the fleet.
    pub(super) fn note(&mut self, position: usize, node: &'a Node) {
        let Some(window) = node.window.as_ref().filter(|_| self.rolls) else {
            return;
        };
        let text = match window {
            NodeWindow::Windows(windows) => windows.text(),
            NodeWindow::Unreadable(_) => "", // never the text of one that can be read
        };
        let which = *self.known.entry(text).or_insert_with(|| {
            self.different.push(match window {
                NodeWindow::Windows(windows) => windows.at(self.now),
                NodeWindow::Unreadable(_) => NEVER,
            });
            self.different.len() - 1
        });
        self.nodes.resize(position, 0);
        self.nodes.push(which);
    }

    /// Whether a replacement may begin on the node at `position`, and until when that holds.
    pub(super) fn at(&self, position: usize) -> WindowState {
        let which = self.nodes.get(position).copied().unwrap_or_default();
        self.different[which]
    }
}

const ALWAYS: WindowState = WindowState {
    is_open: true,
    changes: None,
};
const NEVER: WindowState = WindowState {
    is_open: false,
    changes: None,
};
