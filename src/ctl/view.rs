//! DaemonSets, their pods and the nodes as the API server reports them. They are listed once, and watched while the command keeps
//! running.
//!
//! ```text
//! load ──LIST──► Index ◄──WATCH── changed
//! ```
//!
//! Pods are listed before revisions, so no listed pod has a revision that is newer than the listed ones. A watch that reaches its
//! timeout resumes where it ended. If it ends for another reason, everything is loaded again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{self, BoxStream, SelectAll};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::access::Access;
use super::budgets::{self, Budgets};
use super::code::Code;
use super::condition_times::{blocked_since, incomplete_since};
use super::daemonset_api;
use super::error::CliError;
use super::list::list;
use super::liveness::is_kruise_running;
use crate::core::names::ON_DELETE;
use crate::core::settings::paused::PAUSED;
use crate::core::{Disruption, ParsedSettings, PodUid, RevisionState, RevisionUnknown, SetKind};
use crate::index::{Index, SetChange, SetKey};
use crate::k8s::{AdvancedDaemonSet, ControllerRevision, DaemonSet, Listed, Node, Pod};

/// Number of concurrent LIST requests. A higher number would put more load on the API server.
const PARALLEL: usize = 8;
/// Timeout of a watch in seconds, enforced by the API server. It is below the client's read timeout.
const WATCH_SECONDS: u32 = 100;
/// Minimum duration of a watch that ended because of its timeout. A shorter watch ended for another reason.
const SHORTEST: Duration = Duration::from_secs(30);

/// DaemonSets that a command reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListScope {
    One(SetKey),
    Namespace(String),
    Everywhere,
}

/// Listed objects. [`ClusterView::changed`] keeps them up to date.
pub(super) struct ClusterView {
    /// DaemonSets that the command reads.
    scope: ListScope,
    /// Error of the node list if the caller may not list nodes. Rollouts are not evaluated in this case.
    pub(super) unlisted_nodes: Option<CliError>,
    /// Objects that the evaluation depends on.
    pub(super) index: Index,
    /// All DaemonSets of the scope, managed or not.
    pub(super) present: BTreeMap<SetKey, ListedDaemonSet>,
    /// Time when the objects were listed. A state that existed at this time may have begun earlier.
    pub(super) loaded: Timestamp,
    /// Time when the objects were listed, on the monotonic clock.
    pub(super) loaded_at: Instant,
    /// Reason why Advanced DaemonSets could not be listed. `None` if they were listed, or if the cluster does not serve them.
    pub(super) unlisted_advanced: Option<String>,
    /// True if Kruise's manager was running when the objects were listed. Its Lease is read only if there are Advanced DaemonSets.
    kruise_runs: bool,
    /// Disruption budgets of the namespaces where pods are evicted.
    pub(super) budgets: Budgets,
    /// Reason why the budgets of a namespace are unknown, by namespace.
    unread: BTreeMap<String, String>,
    versions: ListVersions,
    /// Watches. The mutex is never locked: it makes the view `Sync`, so that other threads can read the other fields.
    watches: Mutex<SelectAll<BoxStream<'static, ListedChange>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedDaemonSet {
    /// True if it is being deleted.
    pub(super) deleting: bool,
    /// Value of the annotation `paused`; `None` without the annotation.
    pub(super) paused: Option<String>,
    /// Field `paused`, which overrides the annotation. Only Advanced DaemonSets have it.
    pub(super) paused_field: Option<Value>,
    /// True if its update strategy is `OnDelete`.
    pub(super) on_delete: bool,
    /// Number of nodes that should run a pod, from its status.
    pub(super) desired: Option<usize>,
}

/// Resource versions from which the watches start.
#[derive(Default)]
struct ListVersions {
    nodes: String,
    sets: BTreeMap<SetKind, String>,
    revisions: String,
    pods: Vec<(SetKey, String, String)>,
    /// Namespaces with disruption budgets, and the resource version of each list.
    budgets: Vec<(String, String)>,
}

enum ListedChange {
    Node(WatchEvent<Listed<Node>>),
    /// `None` if even the metadata of the DaemonSet cannot be decoded.
    Set(Option<WatchEvent<DaemonSet>>),
    Revision(WatchEvent<Listed<ControllerRevision>>),
    Pod(SetKey, WatchEvent<Listed<Pod>>),
    Budget(WatchEvent<PodDisruptionBudget>),
    Over,
}

/// Result of waiting for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchStep {
    /// The changes were applied to the view.
    Changed,
    /// The watches cannot continue, so all objects have to be listed again.
    Outdated,
}

/// Message for a caller that may not list Advanced DaemonSets.
const MAY_NOT_LIST: &str =
    "these credentials may not list them (needed: ClusterRole yurt-ds-viewer-advanced).";

impl ClusterView {
    /// Lists everything that a command needs to know about `scope`.
    ///
    /// # Errors
    /// Fails if a LIST request fails. A missing DaemonSet is not an error: it is absent from the index.
    pub(super) async fn load(
        access: &Access,
        scope: &ListScope,
        now: Timestamp,
    ) -> Result<Self, CliError> {
        let mut view = Self::load_settings(access, scope, now).await?;
        view.load_rest(access).await?;
        Ok(view)
    }

    /// Lists only the DaemonSets, for commands that need no pods or nodes.
    ///
    /// # Errors
    /// Fails if the DaemonSets cannot be listed.
    pub(super) async fn load_settings(
        access: &Access,
        scope: &ListScope,
        now: Timestamp,
    ) -> Result<Self, CliError> {
        let mut view = Self {
            scope: scope.clone(),
            unlisted_nodes: None,
            index: Index::default(),
            present: BTreeMap::new(),
            loaded: now,
            loaded_at: Instant::now(),
            unlisted_advanced: None,
            kruise_runs: false,
            budgets: Budgets::default(),
            unread: BTreeMap::new(),
            versions: ListVersions::default(),
            watches: Mutex::default(),
        };
        view.load_sets(access, scope).await?;
        if view.managed().any(SetKey::is_advanced) {
            view.kruise_runs = is_kruise_running(access, now).await.unwrap_or(false);
        }
        Ok(view)
    }

    /// Lists the pods, budgets, revisions and nodes that the managed DaemonSets need.
    ///
    /// # Errors
    /// Fails if a LIST request fails.
    pub(super) async fn load_rest(&mut self, access: &Access) -> Result<(), CliError> {
        let scope = self.scope.clone();
        let keys: Vec<SetKey> = self.managed().cloned().collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.load_pods(access, &keys).await?;
        self.load_budgets(access).await;
        self.load_revisions(access, &scope).await?;
        // List nodes last: the index keeps only the images in a node's status that the listed revisions use.
        self.load_nodes(access).await?;
        for key in &keys {
            self.confirm(access, key).await?;
        }
        Ok(())
    }

    pub(super) fn managed(&self) -> impl Iterator<Item = &SetKey> {
        let index = &self.index;
        index.keys().filter(|key| {
            !matches!(
                index.reading(key).as_deref(),
                None | Some(ParsedSettings::NotOurs)
            )
        })
    }

    async fn load_sets(&mut self, access: &Access, scope: &ListScope) -> Result<(), CliError> {
        match scope {
            ListScope::One(key) => {
                let (sets, version) = daemonset_api::list_one(access, key).await?;
                self.take_sets(key.kind, &sets, version);
            }
            ListScope::Namespace(namespace) => {
                let doing = format!("list the DaemonSets of namespace {namespace}");
                self.load_both(access, Some(namespace), &doing).await?;
            }
            ListScope::Everywhere => {
                let doing = "list the DaemonSets of all namespaces";
                let loaded = self.load_both(access, None, doing).await;
                loaded.map_err(try_one_namespace)?;
            }
        }
        Ok(())
    }

    async fn load_both(
        &mut self,
        access: &Access,
        namespace: Option<&str>,
        doing: &str,
    ) -> Result<(), CliError> {
        let (native, advanced) = tokio::join!(
            daemonset_api::list_native(access, namespace, doing),
            daemonset_api::list_advanced(access, namespace)
        );
        let (sets, version) = native?;
        self.take_sets(SetKind::Native, &sets, version);
        self.unlisted_advanced = match advanced {
            Ok(Some((sets, version))) => {
                self.take_sets(SetKind::Advanced, &sets, version);
                None
            }
            Ok(None) => daemonset_api::is_advanced_served(access)
                .await
                .then(|| MAY_NOT_LIST.to_owned()),
            Err(error) if error.code == Code::Failed => Some(error.text),
            Err(error) => return Err(error),
        };
        Ok(())
    }

    fn take_sets(&mut self, kind: SetKind, sets: &[DaemonSet], version: String) {
        self.versions.sets.insert(kind, version);
        for set in sets {
            self.index.apply_set(set);
            self.note_present(set);
        }
    }

    fn note_present(&mut self, set: &DaemonSet) {
        let annotations = set.metadata.annotations.as_ref();
        let field = set.spec.update_strategy.rolling_update.as_ref();
        let field = field.and_then(|block| block.get("paused"));
        let present = ListedDaemonSet {
            deleting: set.metadata.deletion_timestamp.is_some(),
            paused: annotations.and_then(|all| all.get(PAUSED).cloned()),
            paused_field: field.filter(|_| set.is_advanced()).cloned(),
            on_delete: set.spec.update_strategy.kind.as_deref() == Some(ON_DELETE),
            desired: set.status.desired_number_scheduled,
        };
        self.present
            .extend(SetKey::of_set(set).map(|key| (key, present)));
    }

    /// Lists the nodes. If the caller may not list them, records the error in `unlisted_nodes`.
    ///
    /// # Errors
    /// Fails if the API server does not answer.
    pub(super) async fn load_nodes(&mut self, access: &Access) -> Result<(), CliError> {
        let api: Api<Listed<Node>> = Api::all(access.client.clone());
        let listed = list(access, "list nodes", &api, ListParams::default()).await;
        let (nodes, version) = match listed {
            Err(error) if error.refusal.is_some() => {
                self.unlisted_nodes = Some(error);
                return Ok(());
            }
            listed => listed?,
        };
        for node in &nodes {
            self.index.take_listed_node(&node.item, self.loaded);
        }
        self.versions.nodes = version;
        Ok(())
    }

    async fn load_pods(&mut self, access: &Access, keys: &[SetKey]) -> Result<(), CliError> {
        let selector = |key: &SetKey| self.index.set(key).map(|set| set.selector.clone());
        let wanted: Vec<(SetKey, String)> = keys
            .iter()
            .filter_map(|key| Some((key.clone(), selector(key)?)))
            .collect();
        let lists = stream::iter(wanted).map(|(key, selector)| async move {
            let api: Api<Listed<Pod>> = Api::namespaced(access.client.clone(), &key.namespace);
            let params = ListParams::default().labels(&selector);
            let (pods, version) =
                list(access, &format!("list the pods of {key}"), &api, params).await?;
            Ok::<_, CliError>((key, selector, version, pods))
        });
        let mut lists = lists.buffer_unordered(PARALLEL);
        while let Some((key, selector, version, pods)) = lists.try_next().await? {
            for pod in &pods {
                self.take_pod(&key, pod, self.loaded);
            }
            let Some(set) = self.index.set_mut(&key) else {
                continue;
            };
            let uids = pods.iter().filter_map(|pod| pod.meta().uid.as_deref());
            set.retain_pods(&uids.map(PodUid::from).collect(), None);
            self.versions.pods.push((key, selector, version));
        }
        Ok(())
    }

    /// Lists the disruption budgets of the namespaces where yurt-ds evicts pods. If the caller may not list them, records the
    /// reason.
    pub(super) async fn load_budgets(&mut self, access: &Access) {
        let evicts = |key: &&SetKey| match self.index.reading(key).as_deref() {
            Some(ParsedSettings::Strategy { strategy, .. }) => {
                strategy.disruption == Disruption::Evict
            }
            _ => false,
        };
        let evicting = self.managed().filter(evicts);
        let namespaces: BTreeSet<String> = evicting.map(|key| key.namespace.to_string()).collect();
        for namespace in namespaces {
            match budgets::list_of(access, &namespace).await {
                Ok((budgets, version)) => {
                    budgets
                        .into_iter()
                        .for_each(|budget| self.budgets.apply(budget));
                    self.versions.budgets.push((namespace, version));
                }
                Err(error) => drop(self.unread.insert(namespace, error.text)),
            }
        }
    }

    /// Returns the reason why disruption budgets are unknown; `None` if they are known, or if the DaemonSet does not use eviction.
    pub(super) fn unread(&self, key: &SetKey) -> Option<String> {
        let evicts = matches!(
            self.index.reading(key).as_deref(),
            Some(ParsedSettings::Strategy { strategy, .. }) if strategy.disruption == Disruption::Evict
        );
        let why = self.unread.get(&*key.namespace).filter(|_| evicts)?;
        Some(format!(
            "it is not known if PodDisruptionBudgets allow evictions: {why}"
        ))
    }

    pub(super) fn is_of_kruise(&self, key: &SetKey) -> bool {
        key.is_advanced() && self.kruise_runs
    }

    /// Marks the pods in the index that a disruption budget would protect from eviction at `now`.
    pub(super) fn mark_blocked(&mut self, key: &SetKey, now: Timestamp) {
        if let Some(set) = self.index.set_mut(key) {
            let reported = blocked_since(&set.conditions);
            let began = incomplete_since(&set.conditions);
            let lasts = |since, why| budgets::counts_since(reported, began, since, now, why);
            self.budgets.mark_blocked(&key.namespace, set, lasts, now);
        }
    }

    async fn load_revisions(&mut self, access: &Access, scope: &ListScope) -> Result<(), CliError> {
        let (api, params) = revisions(access, scope, &self.index);
        let (revisions, version) = list(access, "list ControllerRevisions", &api, params).await?;
        for revision in &revisions {
            self.index.take_listed_revision(&revision.item);
        }
        self.versions.revisions = version;
        Ok(())
    }

    /// Resolves contradictions between pods and revisions, which were listed at different times.
    async fn confirm(&mut self, access: &Access, key: &SetKey) -> Result<(), CliError> {
        for hash in self.index.unknown_hashes(key) {
            // Mark a revision that is in no list as an old one. It has been deleted: otherwise the list of revisions, which was
            // read after the pods, would have it.
            if let Some(set) = self.index.set_mut(key) {
                set.note_absent(hash);
            }
        }
        if !self.mismatches(key) {
            return Ok(());
        }
        let scope = ListScope::One(key.clone());
        self.load_sets(access, &scope).await?;
        self.load_revisions(access, &scope).await?;
        if self.mismatches(key)
            && let Some(set) = self.index.set_mut(key)
        {
            set.trust_greatest(set.generation);
        }
        Ok(())
    }

    fn mismatches(&mut self, key: &SetKey) -> bool {
        let fleet = self.index.fleet(key, self.loaded);
        fleet.is_some_and(|fleet| {
            fleet.revision == RevisionState::Unknown(RevisionUnknown::Mismatch)
        })
    }

    /// Starts watches at the resource versions where the lists ended.
    pub(super) fn watch(&mut self, access: &Access) {
        let client = || access.client.clone();
        let scope = &self.scope.clone();
        let mut versions = std::mem::take(&mut self.versions);
        let plain = WatchParams::default().timeout(WATCH_SECONDS);
        let (namespace, params) = match scope {
            ListScope::One(key) => (
                Some(&*key.namespace),
                plain.clone().fields(&format!("metadata.name={}", key.name)),
            ),
            ListScope::Namespace(namespace) => (Some(&**namespace), plain.clone()),
            ListScope::Everywhere => (None, plain.clone()),
        };
        if let Some(version) = versions.sets.remove(&SetKind::Native) {
            let sets: Api<Listed<DaemonSet>> = daemonset_api::api_in(access, namespace);
            self.follow(sets, params.clone(), version, |event| {
                ListedChange::Set(daemonset_api::of_set(event))
            });
        }
        // Without a resource version, the cluster does not serve Advanced DaemonSets.
        let advanced = versions.sets.remove(&SetKind::Advanced);
        if let Some(version) = advanced.filter(|version| !version.is_empty()) {
            let sets: Api<Listed<AdvancedDaemonSet>> = daemonset_api::api_in(access, namespace);
            self.follow(sets, params, version, |event| {
                ListedChange::Set(daemonset_api::of_set(event))
            });
        }
        if self.managed().next().is_none() {
            return;
        }
        if self.unlisted_nodes.is_none() {
            let nodes = Api::all(client());
            self.follow(nodes, plain.clone(), versions.nodes, ListedChange::Node);
        }
        let (api, list) = revisions(access, scope, &self.index);
        let labelled = match list.label_selector {
            Some(selector) => plain.clone().labels(&selector),
            None => plain.clone(),
        };
        self.follow(api, labelled, versions.revisions, ListedChange::Revision);
        for (namespace, version) in versions.budgets {
            let api = Api::namespaced(client(), &namespace);
            self.follow(api, plain.clone(), version, ListedChange::Budget);
        }
        for (key, selector, version) in versions.pods {
            let api = Api::namespaced(client(), &key.namespace);
            let labelled = plain.clone().labels(&selector);
            self.follow(api, labelled, version, move |event| {
                ListedChange::Pod(key.clone(), event)
            });
        }
    }

    fn follow<K>(
        &mut self,
        api: Api<K>,
        params: WatchParams,
        version: String,
        change: impl Fn(WatchEvent<K>) -> ListedChange + Send + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let following = ListFollower {
            api,
            params,
            version,
            events: None,
            begun: Instant::now(),
        };
        let events = stream::unfold(Some(following), |following| async move {
            Some(following?.next().await)
        });
        let changes = events.map(move |event| event.map_or(ListedChange::Over, &change));
        self.watches().push(changes.boxed());
    }

    fn watches(&mut self) -> &mut SelectAll<BoxStream<'static, ListedChange>> {
        let watches = self.watches.get_mut();
        watches.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, then applies all changes that arrive within `gather`.
    ///
    /// On a large fleet, hundreds of changes arrive in that time. If the rollout were evaluated after each of them, the output
    /// would be minutes late.
    pub(super) async fn changed(
        &mut self,
        gather: Duration,
        now: impl Fn() -> Timestamp,
    ) -> WatchStep {
        let mut next = self.watches().next().await;
        let end = Instant::now() + gather;
        loop {
            let step = next.map_or(WatchStep::Outdated, |change| self.take(change, now()));
            if step == WatchStep::Outdated {
                return step;
            }
            match timeout_at(end, self.watches().next()).await {
                Ok(more) => next = more,
                Err(_) => return WatchStep::Changed,
            }
        }
    }

    fn take(&mut self, change: ListedChange, now: Timestamp) -> WatchStep {
        use WatchEvent::{Added, Bookmark, Deleted, Error, Modified};
        match change {
            ListedChange::Node(Added(node) | Modified(node)) => {
                drop(self.index.take_listed_node(&node.item, now))
            }
            ListedChange::Node(Deleted(node)) => {
                drop(
                    self.index
                        .delete_node(node.meta().name.as_deref().unwrap_or_default()),
                );
            }
            ListedChange::Set(None) => {}
            ListedChange::Set(Some(Added(set) | Modified(set))) => {
                if !matches!(
                    self.index.apply_set(&set),
                    SetChange::Updated | SetChange::Ignored
                ) {
                    return WatchStep::Outdated;
                }
                self.note_present(&set);
            }
            ListedChange::Set(Some(Deleted(_))) => return WatchStep::Outdated,
            ListedChange::Revision(Added(revision) | Modified(revision)) => {
                drop(self.index.take_listed_revision(&revision.item));
            }
            ListedChange::Revision(Deleted(revision)) => {
                drop(self.index.delete_revision(revision.meta()));
            }
            ListedChange::Pod(key, Added(pod) | Modified(pod)) => {
                self.take_pod(&key, &pod, now);
            }
            ListedChange::Pod(key, Deleted(pod)) => {
                if let Some(set) = self.index.set_mut(&key) {
                    set.delete_pod(pod.meta().uid.as_deref().unwrap_or_default());
                }
            }
            ListedChange::Budget(Added(budget) | Modified(budget)) => self.budgets.apply(budget),
            ListedChange::Budget(Deleted(budget)) => self.budgets.delete(&budget),
            ListedChange::Node(Bookmark(_))
            | ListedChange::Set(Some(Bookmark(_)))
            | ListedChange::Revision(Bookmark(_))
            | ListedChange::Pod(_, Bookmark(_))
            | ListedChange::Budget(Bookmark(_)) => {}
            ListedChange::Node(Error(_))
            | ListedChange::Set(Some(Error(_)))
            | ListedChange::Revision(Error(_))
            | ListedChange::Pod(_, Error(_))
            | ListedChange::Budget(Error(_))
            | ListedChange::Over => return WatchStep::Outdated,
        }
        WatchStep::Changed
    }
}

impl ClusterView {
    fn take_pod(&mut self, key: &SetKey, pod: &Listed<Pod>, now: Timestamp) {
        match &pod.item {
            Ok(pod) => drop(self.index.apply_pod(key, pod, now)),
            Err(unreadable) => self.index.note_unreadable_pod(key, unreadable),
        }
    }
}

/// Watch of listed objects. It resumes whenever the API server ends it because of its timeout.
struct ListFollower<K> {
    api: Api<K>,
    params: WatchParams,
    /// Resource version where the watch resumes.
    version: String,
    events: Option<BoxStream<'static, kube::Result<WatchEvent<K>>>>,
    begun: Instant,
}

impl<K> ListFollower<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Returns the next event, and the watch that continues. Both are `None` if all objects have to be listed again.
    ///
    /// A watch that reached its timeout resumes where it ended. If it ended earlier, the reason is unknown, and a new list is
    /// needed.
    async fn next(mut self) -> (Option<WatchEvent<K>>, Option<Self>) {
        loop {
            let mut events = match self.events.take() {
                Some(events) => events,
                None => match self.api.watch(&self.params, &self.version).await {
                    Ok(events) => {
                        self.begun = Instant::now();
                        events.boxed()
                    }
                    Err(_) => return (None, None),
                },
            };
            match events.next().await {
                Some(Ok(event)) => {
                    self.version = version(&event).unwrap_or(self.version);
                    self.events = Some(events);
                    return (Some(event), Some(self));
                }
                None if self.begun.elapsed() >= SHORTEST => {}
                Some(Err(_)) | None => return (None, None),
            }
        }
    }
}

/// Changes the error for a forbidden list of all namespaces: suggests `-n`, which limits the command to one namespace.
fn try_one_namespace(error: CliError) -> CliError {
    match &error.refusal {
        None => error,
        Some(refusal) => CliError {
            text: format!(
                "You may not list DaemonSets in all namespaces. Try one namespace: yurt-ds ctl status -n NAMESPACE. \
                 The API server says: {refusal}."
            ),
            ..error
        },
    }
}

fn version<K: Resource>(event: &WatchEvent<K>) -> Option<String> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
            object.meta().resource_version.clone()
        }
        WatchEvent::Bookmark(mark) => Some(mark.metadata.resource_version.clone()),
        WatchEvent::Error(_) => None,
    }
}

/// Returns the API and the parameters to list the revisions of a scope. The selector of a DaemonSet also matches its revisions,
/// because they have the labels of its pod template.
fn revisions(
    access: &Access,
    scope: &ListScope,
    index: &Index,
) -> (Api<Listed<ControllerRevision>>, ListParams) {
    let client = access.client.clone();
    let all = ListParams::default();
    match scope {
        ListScope::One(key) => {
            let selector = index.set(key).map(|set| set.selector.as_str());
            (
                Api::namespaced(client, &key.namespace),
                all.labels(selector.unwrap_or_default()),
            )
        }
        ListScope::Namespace(namespace) => (Api::namespaced(client, namespace), all),
        ListScope::Everywhere => (Api::all(client), all),
    }
}
