//! What an owner may do to a pod: replace it, and have its images pulled before.

use std::path::PathBuf;

use kube::Client;

use super::cloud::Cloud;
use super::memory::Memory;
use crate::clock::Clock;

/// What actions need.
#[derive(Clone)]
pub(super) struct Setup {
    /// The API server.
    pub(super) client: Client,
    /// The pods of this node.
    pub(super) memory: Memory,
    /// Whether the API server answers.
    pub(super) cloud: Cloud,
    /// This node.
    pub(super) node: String,
    /// The time.
    pub(super) clock: Clock,
    /// Where the kubelet finds the manifests of static pods.
    pub(super) manifest_dir: PathBuf,
}

/// What owners may do. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(super) struct Actions {
    setup: Setup,
}

impl Actions {
    /// Ready to act; nothing is asked before somebody does.
    pub(super) fn new(setup: Setup) -> Self {
        Self { setup }
    }
}
