//! Restores the previous manifest of a static pod if the new pod doesn't become Ready in time.
//!
//! The expected pods are stored in the folder, so they survive a restart of the agent. Without a live watch, the agent cannot know
//! whether a pod is Ready. In that case, it restores nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::folder::{ManifestFolder, Pending};
use crate::clock::Clock;
use crate::ota_server::pod::PodKey;
use crate::ota_server::pod_cache::PodCache;

/// Time for a new static pod to become Ready before the previous manifest is restored.
pub(super) const PATIENCE: SignedDuration = SignedDuration::from_mins(5);
/// Interval between checks while at least one pod is expected.
const LOOK: Duration = Duration::from_secs(5);
/// Time for which the watch has to be live before a pod counts as not Ready. After an outage, the kubelet needs this time to report
/// that the pod is Ready.
const SETTLE: Duration = Duration::from_secs(30);

/// Folder of manifests with a lock. Cheap to clone: all clones share the lock.
#[derive(Clone, Debug)]
pub(in crate::ota_server::actions) struct GuardedManifest {
    folder: ManifestFolder,
    turn: Arc<Mutex<()>>,
    awaited: Arc<Notify>,
}

/// Expected pod and its deadline.
#[derive(Debug)]
struct AwaitedReturn {
    pending: Pending,
    due: Instant,
}

impl GuardedManifest {
    /// Creates the guard of a folder, which may be missing.
    pub(in crate::ota_server::actions) fn new(path: PathBuf) -> Self {
        Self {
            folder: ManifestFolder { path },
            turn: Arc::default(),
            awaited: Arc::default(),
        }
    }

    /// Wakes the guard after a new `.pending` note was written.
    pub(super) fn wake(&self) {
        self.awaited.notify_one();
    }

    /// Runs `work` on the folder in a blocking thread. Once started, `work` is always completed, even if the caller is dropped.
    pub(super) async fn with_folder<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ManifestFolder) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = self.turn.clone().lock_owned().await;
        let folder = self.folder.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&folder)
        });
        work.await.context("work on the manifests")?
    }

    /// Watches the expected pods until dropped, including pods of an earlier run of the agent.
    pub(in crate::ota_server::actions) async fn watch(&self, pod_cache: &PodCache, clock: &Clock) {
        let mut awaited: Vec<AwaitedReturn> = Vec::new();
        let mut live_since = None;
        loop {
            match self.with_folder(|folder| folder.pending()).await {
                Ok(found) => follow(&mut awaited, found, clock.now()),
                Err(error) => warn!(
                    error = format!("{error:#}"),
                    "Cannot check for replaced static pods"
                ),
            }
            if awaited.is_empty() {
                self.awaited.notified().await;
                continue;
            }
            live_since = if pod_cache.is_live() {
                live_since.or(Some(Instant::now()))
            } else {
                None
            };
            let counts = live_since.is_some_and(|since: Instant| since.elapsed() >= SETTLE);
            for one in &awaited {
                self.settle_or_restore(one, pod_cache, counts).await;
            }
            tokio::select! {
                () = self.awaited.notified() => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    async fn settle_or_restore(&self, one: &AwaitedReturn, pod_cache: &PodCache, counts: bool) {
        let pending = one.pending.clone();
        let pod = &pending.pod.clone();
        if is_ready(pod_cache, &pending) {
            match self
                .with_folder(move |folder| folder.settle(&pending))
                .await
            {
                Ok(()) => info!(%pod, "The new static pod is Ready"),
                Err(error) => {
                    warn!(%pod, error = format!("{error:#}"), "Cannot remove the record of the replaced manifest")
                }
            }
        } else if counts && one.due <= Instant::now() {
            match self
                .with_folder(move |folder| folder.restore(&pending))
                .await
            {
                Ok(true) => {
                    warn!(%pod, "The new static pod did not become Ready in time; restored the old manifest")
                }
                Ok(false) => {
                    info!(%pod, "The manifest was changed by another program; the old manifest is not restored")
                }
                Err(error) => {
                    error!(%pod, error = format!("{error:#}"), "Cannot restore the old manifest")
                }
            }
        }
    }
}

/// Updates `awaited` from the `.pending` notes in the folder. Pods in `awaited` keep their deadline.
fn follow(awaited: &mut Vec<AwaitedReturn>, found: Vec<Pending>, now: Timestamp) {
    awaited.retain(|one| found.contains(&one.pending));
    for pending in found {
        if awaited.iter().all(|one| one.pending != pending) {
            let due = Instant::now() + left(&pending, now);
            awaited.push(AwaitedReturn { pending, due });
        }
    }
}

/// Returns true if the mirror pod of the new static pod exists and is Ready.
fn is_ready(pod_cache: &PodCache, pending: &Pending) -> bool {
    let pod = pod_cache.pod(&PodKey::new(&pending.namespace, &pending.pod));
    pod.is_some_and(|pod| {
        let facts = pod.facts();
        facts.ready && !facts.deleting && !pending.old.contains(&facts.uid)
    })
}

/// Returns the remaining time, at least [`SETTLE`] and at most [`PATIENCE`]. The limits apply after a clock jump, which could
/// otherwise end the wait immediately or prolong it.
fn left(pending: &Pending, now: Timestamp) -> Duration {
    let until = pending.until.parse().unwrap_or(now);
    let left = Duration::try_from(until.duration_since(now)).unwrap_or(Duration::ZERO);
    let most = Duration::try_from(PATIENCE).unwrap_or(SETTLE);
    left.clamp(SETTLE, most)
}
