//! The maintenance window that a Node has of its own.

use std::sync::Arc;

use crate::core::window::Windows;

/// The window of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeWindow {
    /// These instead of the DaemonSet's.
    Windows(Arc<Windows>),
    /// The annotation cannot be read, for this reason: it never opens.
    Unreadable(Arc<str>),
}
