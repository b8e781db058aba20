//! State of the maintenance window of each node: the Node's own window, or the DaemonSet's window if the Node has none.
//!
//! A window only limits the start of replacements. Thousands of nodes share a few windows, so each window is evaluated once per
//! decision.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use crate::core::fleet::{Node, NodeWindow};
use crate::core::settings::{Mode, Strategy};
use crate::core::window::WindowState;

/// States of all windows at one time.
#[derive(Debug)]
pub(super) struct WindowStates<'a> {
    /// States of the distinct windows. The DaemonSet's window comes first.
    different: Vec<WindowState>,
    /// Index of each node's window, by position in the fleet. Nodes after the end of the list have the DaemonSet's window.
    nodes: Vec<usize>,
    /// Indexes of the windows of Nodes, by their text.
    known: BTreeMap<&'a str, usize>,
    /// True if windows limit this rollout; under OTA and `OnDelete` they don't.
    rolls: bool,
    now: Timestamp,
}

impl<'a> WindowStates<'a> {
    /// Creates the states at `now`, with capacity for `nodes` Nodes.
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

    /// Adds the window of the node at `position`; called in the order of the fleet.
    pub(super) fn note(&mut self, position: usize, node: &'a Node) {
        let Some(window) = node.window.as_ref().filter(|_| self.rolls) else {
            return;
        };
        let text = match window {
            NodeWindow::Windows(windows) => windows.text(),
            NodeWindow::Unreadable(_) => "", // differs from the text of every valid window
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

    /// Returns the state of the window of the node at `position`. Replacements may begin while it is open.
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
