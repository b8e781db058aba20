//! Maintenance window set on a Node.

use std::sync::Arc;

use crate::core::window::Windows;

/// Maintenance window of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeWindow {
    /// Windows that apply on this node instead of those of the DaemonSet.
    Windows(Arc<Windows>),
    /// The annotation cannot be parsed, for the contained reason. Then the window never opens.
    Unreadable(Arc<str>),
}
