//! Observer with its own watches of all objects in a story. It checks every event in the order of arrival.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event as K8sEvent;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch as channel;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::checks::Check;
use super::objects::Daemon;
use super::picture::Picture;

/// Running observer of one story.
pub(crate) struct Monitor {
    picture: Arc<Mutex<Picture>>,
    changed: channel::Receiver<u64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Monitor {
    /// Starts to watch the nodes and the namespace of the story to which `picture` belongs.
    pub(crate) fn start(client: &Client, picture: Picture) -> Self {
        let namespace = picture.scenario.clone();
        let picture = Arc::new(Mutex::new(picture));
        let (sender, changed) = channel::channel(0);
        let observer = Observer {
            picture: picture.clone(),
            changed: Arc::new(sender),
        };
        let own = watcher::Config::default().labels(&format!("scenario={namespace}"));
        let all = watcher::Config::default;
        let space = namespace.as_str();
        let is_advanced = lock(&picture).is_advanced;
        let daemons = if is_advanced {
            observer.follow(
                Api::<DynamicObject>::namespaced_with(
                    client.clone(),
                    space,
                    &Daemon::advanced().resource(),
                ),
                all(),
                Picture::apply_advanced,
                Picture::delete_advanced,
            )
        } else {
            observer.follow(
                Api::<DaemonSet>::namespaced(client.clone(), space),
                all(),
                Picture::apply_daemon,
                Picture::delete_daemon,
            )
        };
        let tasks = vec![
            daemons,
            observer.follow(
                Api::<Node>::all(client.clone()),
                own,
                Picture::apply_node,
                Picture::delete_node,
            ),
            observer.follow(
                Api::<ControllerRevision>::namespaced(client.clone(), space),
                all(),
                Picture::apply_revision,
                Picture::delete_revision,
            ),
            observer.follow(
                Api::<Pod>::namespaced(client.clone(), space),
                all(),
                Picture::apply_pod,
                Picture::delete_pod,
            ),
            observer.follow(
                Api::<Job>::namespaced(client.clone(), space),
                all(),
                Picture::apply_job,
                Picture::delete_job,
            ),
            observer.follow(
                Api::<K8sEvent>::namespaced(client.clone(), space),
                all(),
                Picture::apply_event,
                |_, _| {},
            ),
        ];
        Self {
            picture,
            changed,
            tasks,
        }
    }

    pub(crate) fn picture(&self) -> MutexGuard<'_, Picture> {
        lock(&self.picture)
    }

    /// Waits until a check succeeds.
    ///
    /// # Errors
    /// Returns an error if the check still fails after `limit`, or if the budget or another rule is violated before.
    pub(crate) async fn until(&mut self, check: &Check, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        loop {
            self.changed.mark_unchanged();
            let found = self.look(check)?;
            let Err(missing) = found else { return Ok(()) };
            // Check again after a second even without an event. When a pod becomes available after minReadySeconds, no object
            // changes.
            let next = deadline.min(Instant::now() + Duration::from_secs(1));
            if timeout_at(next, self.changed.changed()).await.is_err() && next == deadline {
                let picture = self.picture().describe();
                return Err(format!(
                    "not within {limit:?}: {}: {missing}\n{picture}",
                    check.name
                ));
            }
        }
    }

    /// Repeats a check after every event for this time. The check must always succeed.
    ///
    /// # Errors
    /// Returns an error if the check fails at any moment, or if the budget or another rule is violated.
    pub(crate) async fn throughout(&mut self, check: &Check, time: Duration) -> Result<(), String> {
        let deadline = Instant::now() + time;
        loop {
            self.changed.mark_unchanged();
            if let Err(broken) = self.look(check)? {
                let picture = self.picture().describe();
                return Err(format!("did not hold: {}: {broken}\n{picture}", check.name));
            }
            if timeout_at(deadline, self.changed.changed()).await.is_err() {
                return Ok(());
            }
        }
    }

    fn look(&self, check: &Check) -> Result<Result<(), String>, String> {
        let picture = self.picture();
        match picture.violations.first() {
            Some(violation) => Err(format!("{violation}\n{}", picture.describe())),
            None => Ok(check.holds(&picture)),
        }
    }
}

struct Observer {
    picture: Arc<Mutex<Picture>>,
    changed: Arc<channel::Sender<u64>>,
}

impl Observer {
    fn follow<K>(
        &self,
        api: Api<K>,
        config: watcher::Config,
        apply: fn(&mut Picture, K),
        delete: fn(&mut Picture, &K),
    ) -> JoinHandle<()>
    where
        K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let (picture, changed) = (self.picture.clone(), self.changed.clone());
        tokio::spawn(async move {
            let mut known: std::collections::BTreeMap<String, K> = Default::default();
            let mut listed = BTreeSet::new();
            let mut events = std::pin::pin!(watch(api, config).default_backoff());
            while let Some(event) = events.next().await {
                let mut picture = lock(&picture);
                match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => {
                        let uid = object.uid().unwrap_or_default();
                        listed.insert(uid.clone());
                        known.insert(uid, object.clone());
                        apply(&mut picture, object);
                    }
                    Ok(Event::Delete(object)) => {
                        known.remove(&object.uid().unwrap_or_default());
                        delete(&mut picture, &object);
                    }
                    Ok(Event::Init) => listed.clear(),
                    Ok(Event::InitDone) => {
                        known.retain(|uid, object| {
                            let kept = listed.contains(uid);
                            if !kept {
                                delete(&mut picture, object);
                            }
                            kept
                        });
                    }
                    Err(_) => {}
                }
                changed.send_modify(|version| *version += 1);
            }
        })
    }
}

fn lock(picture: &Mutex<Picture>) -> MutexGuard<'_, Picture> {
    picture.lock().unwrap_or_else(PoisonError::into_inner)
}
