//! Maintenance window set on a Node.

use std::sync::Arc;

use crate::core::window::Windows;

/// Maintenance window of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeWindow {
    /// Windows that replace those of the DaemonSet.
    Windows(Arc<Windows>),
    /// The annotation cannot be parsed for the contained reason. The window never opens.
    Unreadable(Arc<str>),
}
