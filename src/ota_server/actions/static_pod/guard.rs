//! Watches over static pods that were replaced: one that does not become Ready in time is put back.
//!
//! What is awaited stands in the folder itself, so a restart of the agent forgets nothing. Only what the API server tells
//! counts: while the watch is broken nobody can see a pod become Ready, so nothing is put back then.

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

/// How long a new static pod may take to become Ready before the old one is put back.
pub(super) const PATIENCE: SignedDuration = SignedDuration::from_mins(5);
/// How often is looked while something is awaited.
const LOOK: Duration = Duration::from_secs(5);
/// How long the watch has to stand before its word counts: a kubelet that was cut off reports first.
const SETTLE: Duration = Duration::from_secs(30);

/// The folder of manifests, one change at a time. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(in crate::ota_server::actions) struct GuardedManifest {
    folder: ManifestFolder,
    turn: Arc<Mutex<()>>,
    awaited: Arc<Notify>,
}

/// A replaced pod, and when its time is over.
#[derive(Debug)]
struct AwaitedReturn {
    pending: Pending,
    due: Instant,
}

impl GuardedManifest {
    /// That folder; it need not be there.
    pub(in crate::ota_server::actions) fn new(path: PathBuf) -> Self {
        Self {
            folder: ManifestFolder { path },
            turn: Arc::default(),
            awaited: Arc::default(),
        }
    }

    /// Something is awaited from now on.
    pub(super) fn wake(&self) {
        self.awaited.notify_one();
    }

    /// Works on the folder, on a thread that may block. What began is ended, even if nobody waits for it any more.
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

    /// Watches over replaced static pods until dropped, beginning with those of an earlier run.
    pub(in crate::ota_server::actions) async fn watch(&self, pod_cache: &PodCache, clock: &Clock) {
        let mut awaited: Vec<AwaitedReturn> = Vec::new();
        let mut live_since = None;
        loop {
            match self.with_folder(|folder| folder.pending()).await {
                Ok(found) => follow(&mut awaited, found, clock.now()),
                Err(error) => warn!(
                    error = format!("{error:#}"),
                    "Cannot look for replaced static pods"
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
                self.judge(one, pod_cache, counts).await;
            }
            tokio::select! {
                () = self.awaited.notified() => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    async fn judge(&self, one: &AwaitedReturn, pod_cache: &PodCache, counts: bool) {
        let pending = one.pending.clone();
        let pod = &pending.pod.clone();
        if is_ready(pod_cache, &pending) {
            match self
                .with_folder(move |folder| folder.settle(&pending))
                .await
            {
                Ok(()) => info!(%pod, "The new static pod is Ready"),
                Err(error) => warn!(%pod, error = format!("{error:#}"), "Cannot clean up"),
            }
        } else if counts && one.due <= Instant::now() {
            match self
                .with_folder(move |folder| folder.restore(&pending))
                .await
            {
                Ok(true) => {
                    warn!(%pod, "The new static pod did not become Ready in time; put the old manifest back")
                }
                Ok(false) => {
                    info!(%pod, "Somebody else changed the manifest meanwhile; left it alone")
                }
                Err(error) => {
                    error!(%pod, error = format!("{error:#}"), "Cannot put the old manifest back")
                }
            }
        }
    }
}

/// Keeps what is still awaited with its time, and takes in what is new.
fn follow(awaited: &mut Vec<AwaitedReturn>, found: Vec<Pending>, now: Timestamp) {
    awaited.retain(|one| found.contains(&one.pending));
    for pending in found {
        if awaited.iter().all(|one| one.pending != pending) {
            let due = Instant::now() + left(&pending, now);
            awaited.push(AwaitedReturn { pending, due });
        }
    }
}

/// Whether the mirror of the new pod is there, and Ready.
fn is_ready(pod_cache: &PodCache, pending: &Pending) -> bool {
    let pod = pod_cache.pod(&PodKey::new(&pending.namespace, &pending.pod));
    pod.is_some_and(|pod| {
        let facts = pod.facts();
        facts.ready && !facts.deleting && !pending.old.contains(&facts.uid)
    })
}

/// How much of its time is left. A clock that jumped neither ends it at once nor stretches it.
fn left(pending: &Pending, now: Timestamp) -> Duration {
    let until = pending.until.parse().unwrap_or(now);
    let left = Duration::try_from(until.duration_since(now)).unwrap_or(Duration::ZERO);
    let most = Duration::try_from(PATIENCE).unwrap_or(SETTLE);
    left.clamp(SETTLE, most)
}
