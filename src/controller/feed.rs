//! From watch events to the index: which DaemonSets have to be decided again.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;

use super::caches::{CacheWatch, Caches, Input};
use crate::index::{Index, RequeueDelay, SetChange, SetKey};
use crate::k8s;

/// What is watched in the whole cluster; nothing is decided before all of it has been listed.
pub(super) const CLUSTER_WIDE: [&str; 3] = ["nodes", "daemonsets", "controllerrevisions"];

/// The watches that feed the index, and which of them have told everything once.
pub(super) struct Feed {
    caches: Caches,
    pods: BTreeMap<SetKey, PodWatch>,
    started: u64,
    /// Begins when the other two have told which images to look for.
    nodes_watch: Option<CacheWatch>,
    nodes: Listing<String>,
    sets: Listing<SetKey>,
    revisions: Listing<(String, String)>,
}

#[derive(Debug)]
struct PodWatch {
    number: u64,
    listing: Listing<String>,
    /// When the list under way began.
    began: Option<Timestamp>,
    _watch: CacheWatch,
}

/// A complete list in the making.
#[derive(Debug)]
struct Listing<T> {
    seen: BTreeSet<T>,
    complete: bool,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self {
            seen: BTreeSet::new(),
            complete: false,
        }
    }
}

impl<T: Ord> Listing<T> {
    fn finish(&mut self) -> BTreeSet<T> {
        self.complete = true;
        std::mem::take(&mut self.seen)
    }
}

/// What an input led to.
#[derive(Debug, Default)]
pub(super) struct FeedOutcome {
    /// DaemonSets to decide again, and how soon.
    pub(super) requeued: Vec<(SetKey, RequeueDelay)>,
    /// DaemonSets that are gone, or ours no longer.
    pub(super) gone: Vec<SetKey>,
    /// What there is to say of DaemonSets that are not ours may have changed.
    pub(super) strays: bool,
    /// A complete list of this resource has arrived.
    pub(super) complete: Option<&'static str>,
}

impl FeedOutcome {
    fn of(delay: RequeueDelay, keys: impl IntoIterator<Item = SetKey>) -> Self {
        let requeued = keys.into_iter().map(|key| (key, delay)).collect();
        Self {
            requeued,
            ..Self::default()
        }
    }
}

impl Feed {
    /// Nothing is told yet.
    pub(super) fn new(caches: Caches) -> Self {
        Self {
            caches,
            pods: BTreeMap::new(),
            started: 0,
            nodes_watch: None,
            nodes: Listing::default(),
            sets: Listing::default(),
            revisions: Listing::default(),
        }
    }

    /// Whether the cluster-wide watches have told everything once.
    pub(super) fn is_complete(&self) -> bool {
        self.nodes.complete && self.sets.complete && self.revisions.complete
    }

    /// Lists the pods of every DaemonSet anew, because somebody else may have deleted some a moment ago.
    pub(super) fn look_again(&mut self, index: &mut Index) {
        let watched: Vec<SetKey> = self.pods.keys().cloned().collect();
        let sets = watched.iter();
        sets.for_each(|key| self.look_again_at(index, key));
    }

    /// Lists the pods of one DaemonSet anew; nothing is decided before the list is complete.
    pub(super) fn look_again_at(&mut self, index: &mut Index, key: &SetKey) {
        let Some(set) = index.set_mut(key) else {
            return;
        };
        set.synced = false;
        let selector = set.selector.clone();
        self.watch(key.clone(), selector);
    }

    /// Takes in what a watch said.
    pub(super) fn take(&mut self, index: &mut Index, input: Input, now: Timestamp) -> FeedOutcome {
        let fed = self.take_input(index, input, now);
        if self.nodes_watch.is_none() && self.sets.complete && self.revisions.complete {
            self.nodes_watch = Some(self.caches.nodes());
        }
        fed
    }

    fn take_input(&mut self, index: &mut Index, input: Input, now: Timestamp) -> FeedOutcome {
        match input {
            Input::Node(event) => self.node(index, event, now),
            Input::Set(event) => self.set(index, event),
            Input::Revision(event) => self.revision(index, event),
            Input::Pod(key, number, event) => self.pod(index, (key, number), event, now),
            Input::Order(in_order) => {
                FeedOutcome::of(RequeueDelay::Short, index.know_order(in_order))
            }
        }
    }

    fn node(&mut self, index: &mut Index, event: Event<k8s::Node>, now: Timestamp) -> FeedOutcome {
        match event {
            Event::Init => self.nodes.seen.clear(),
            Event::InitApply(node) => {
                self.nodes.seen.extend(node.metadata.name.clone());
                return FeedOutcome::of(RequeueDelay::Short, index.apply_node(&node, now));
            }
            Event::Apply(node) => {
                return FeedOutcome::of(RequeueDelay::Short, index.apply_node(&node, now));
            }
            Event::Delete(node) => {
                return FeedOutcome::of(
                    RequeueDelay::Short,
                    index.delete_node(node.metadata.name.as_deref().unwrap_or_default()),
                );
            }
            Event::InitDone => {
                let seen = self.nodes.finish();
                return FeedOutcome {
                    complete: Some("nodes"),
                    ..FeedOutcome::of(RequeueDelay::Short, index.retain_nodes(&seen))
                };
            }
        }
        FeedOutcome::default()
    }

    fn set(&mut self, index: &mut Index, event: Event<k8s::DaemonSet>) -> FeedOutcome {
        match event {
            Event::Init => self.sets.seen.clear(),
            Event::InitApply(set) => {
                self.sets.seen.extend(SetKey::of(&set.metadata));
                return self.apply_set(index, &set);
            }
            Event::Apply(set) => return self.apply_set(index, &set),
            Event::Delete(set) => {
                let gone = SetKey::of(&set.metadata).filter(|key| self.drop_set(index, key));
                return FeedOutcome {
                    gone: gone.into_iter().collect(),
                    ..FeedOutcome::default()
                };
            }
            Event::InitDone => {
                let seen = self.sets.finish();
                index.retain_strays(&seen);
                let gone: Vec<SetKey> = index
                    .keys()
                    .filter(|key| !seen.contains(key))
                    .cloned()
                    .collect();
                for key in &gone {
                    self.drop_set(index, key);
                }
                return FeedOutcome {
                    gone,
                    complete: Some("daemonsets"),
                    ..FeedOutcome::default()
                };
            }
        }
        FeedOutcome::default()
    }

    /// Takes in a DaemonSet, watched or read.
    pub(super) fn apply_set(&mut self, index: &mut Index, set: &k8s::DaemonSet) -> FeedOutcome {
        let Some(key) = SetKey::of(&set.metadata) else {
            return FeedOutcome::default();
        };
        match index.apply_set(set) {
            SetChange::Ignored => FeedOutcome {
                strays: index.is_stray(&key),
                ..FeedOutcome::default()
            },
            SetChange::Updated => FeedOutcome::of(RequeueDelay::Zero, [key]),
            SetChange::Watch(selector) => {
                self.watch(key, selector);
                FeedOutcome::default()
            }
            SetChange::Unwatch => {
                self.pods.remove(&key);
                FeedOutcome {
                    strays: index.is_stray(&key),
                    gone: vec![key],
                    ..FeedOutcome::default()
                }
            }
        }
    }

    fn watch(&mut self, key: SetKey, selector: String) {
        self.started += 1;
        let number = self.started;
        let watch = self.caches.pods(&key, &selector, number);
        self.pods.insert(
            key,
            PodWatch {
                number,
                listing: Listing::default(),
                began: None,
                _watch: watch,
            },
        );
    }

    fn drop_set(&mut self, index: &mut Index, key: &SetKey) -> bool {
        self.pods.remove(key);
        index.delete_set(key)
    }

    fn revision(
        &mut self,
        index: &mut Index,
        event: Event<k8s::ControllerRevision>,
    ) -> FeedOutcome {
        let identity = |revision: &k8s::ControllerRevision| {
            let owner = revision.metadata.owner_references.iter().flatten().next()?;
            Some((owner.uid.clone(), revision.metadata.name.clone()?))
        };
        match event {
            Event::Init => self.revisions.seen.clear(),
            Event::InitApply(revision) => {
                self.revisions.seen.extend(identity(&revision));
                return FeedOutcome::of(RequeueDelay::Zero, index.apply_revision(&revision));
            }
            Event::Apply(revision) => {
                return FeedOutcome::of(RequeueDelay::Zero, index.apply_revision(&revision));
            }
            Event::Delete(revision) => {
                return FeedOutcome::of(RequeueDelay::Zero, index.delete_revision(&revision));
            }
            Event::InitDone => {
                let seen = self.revisions.finish();
                let dirty = index.retain_revisions(&seen);
                return FeedOutcome {
                    complete: Some("controllerrevisions"),
                    ..FeedOutcome::of(RequeueDelay::Zero, dirty)
                };
            }
        }
        FeedOutcome::default()
    }

    fn pod(
        &mut self,
        index: &mut Index,
        (key, number): (SetKey, u64),
        event: Event<k8s::Pod>,
        now: Timestamp,
    ) -> FeedOutcome {
        let Some(watch) = self
            .pods
            .get_mut(&key)
            .filter(|watch| watch.number == number)
        else {
            return FeedOutcome::default();
        };
        let Some(set) = index.set_mut(&key) else {
            return FeedOutcome::default();
        };
        let delay = match event {
            Event::Init => {
                watch.listing.seen.clear();
                watch.began = Some(now);
                RequeueDelay::Never
            }
            Event::InitApply(pod) => {
                watch.listing.seen.extend(pod.metadata.uid.clone());
                set.apply_pod(&pod, now)
            }
            Event::Apply(pod) => set.apply_pod(&pod, now),
            Event::Delete(pod) => set.delete_pod(pod.metadata.uid.as_deref().unwrap_or_default()),
            Event::InitDone => {
                set.retain_pods(&watch.listing.finish(), watch.began);
                RequeueDelay::Short
            }
        };
        FeedOutcome::of(delay, [key])
    }
}
