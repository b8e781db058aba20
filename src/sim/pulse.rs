//! Heartbeats that cost no requests: which nodes are silent, shared between the fake kubelets and our own node
//! lifecycle controller. On the embedded cluster they stand for Lease renewals, which at thousands of nodes would be
//! nearly all of its traffic.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

/// The nodes that are silent, and since when; clones share it.
#[derive(Clone, Debug)]
pub struct NodePulse(Arc<watch::Sender<BTreeMap<String, Instant>>>);

impl Default for NodePulse {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeMap::new())))
    }
}

impl NodePulse {
    /// A node is heard of again, or falls silent.
    pub fn set(&self, node: &str, alive: bool) {
        self.0.send_if_modified(|silent| {
            if alive {
                return silent.remove(node).is_some();
            }
            let known = silent.contains_key(node);
            if !known {
                silent.insert(node.to_owned(), Instant::now());
            }
            !known
        });
    }

    /// Follows the silent nodes.
    pub fn subscribe(&self) -> watch::Receiver<BTreeMap<String, Instant>> {
        self.0.subscribe()
    }
}
