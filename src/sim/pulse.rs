//! Heartbeats without requests: a shared set of silent nodes. The fake kubelets write the set, and the simulator's node lifecycle
//! controller reads it.
//!
//! The set replaces Lease renewals on the embedded cluster. With thousands of nodes, nearly all requests would be renewals.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

/// Silent nodes, each with the time at which it became silent. All clones share the data.
#[derive(Clone, Debug)]
pub struct SilentNodes(Arc<watch::Sender<BTreeMap<String, Instant>>>);

impl Default for SilentNodes {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeMap::new())))
    }
}

impl SilentNodes {
    /// Records that a node is alive or silent.
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

    /// Subscribes to the silent nodes.
    pub fn subscribe(&self) -> watch::Receiver<BTreeMap<String, Instant>> {
        self.0.subscribe()
    }
}
