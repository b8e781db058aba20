//! What the API server says about DaemonSets, their pods and the nodes: listed once, then watched if somebody stays.
//!
//! ```text
//! load ──LIST──► Index ◄──WATCH── changed
//! ```
//!
//! Pods are listed before revisions, so that no pod can carry a revision that is newer than those listed. A watch whose
//! time is up goes on where it ended; one that ends for another reason means: load again.

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
use super::error::CliError;
use super::kinds;
use super::list::list;
use super::liveness::is_kruise_running;
use super::told::{blocked_since, incomplete_since};
use crate::core::names::ON_DELETE;
use crate::core::settings::paused::PAUSED;
use crate::core::{Disruption, ParsedSettings, PodUid, RevisionState, RevisionUnknown, SetKind};
use crate::index::{Index, SetChange, SetKey};
use crate::k8s::{AdvancedDaemonSet, ControllerRevision, DaemonSet, Listed, Node, Pod};

/// Lists under way at once: quick, and no burst that a server would notice.
const PARALLEL: usize = 8;
/// What the API server is asked to end a watch after, in seconds; below the client's read timeout.
const WATCH_SECONDS: u32 = 100;
/// A watch that ends before this was not ended because its time was up.
const SHORTEST: Duration = Duration::from_secs(30);

/// Which DaemonSets are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListScope {
    /// One.
    One(SetKey),
    /// Those of a namespace.
    Namespace(String),
    /// All.
    Everywhere,
}

/// What was listed, and kept up to date by [`ClusterView::changed`].
pub(super) struct ClusterView {
    /// What it shows.
    scope: ListScope,
    /// Why nodes could not be listed, where the caller lacks that right; nothing is judged then.
    pub(super) unlisted_nodes: Option<CliError>,
    /// Everything that decides.
    pub(super) index: Index,
    /// Every DaemonSet of the scope, managed or not.
    pub(super) present: BTreeMap<SetKey, ListedDaemonSet>,
    /// When it was loaded: whatever is dated so was found so, and may be older.
    pub(super) loaded: Timestamp,
    /// The same on the clock that waits.
    pub(super) loaded_at: Instant,
    /// Why Advanced DaemonSets could not be listed while native ones were; `None`: they were, or there is no such kind.
    pub(super) unlisted_advanced: Option<String>,
    /// Whether Kruise's manager was at work then, as far as its Lease may be read; asked only where there are Advanced DaemonSets.
    kruise_runs: bool,
    /// The disruption budgets of the namespaces where pods are evicted.
    pub(super) budgets: Budgets,
    /// Why the budgets of a namespace are not known.
    unread: BTreeMap<String, String>,
    versions: ListVersions,
    /// Never locked: that only lets other threads look at the rest meanwhile.
    watches: Mutex<SelectAll<BoxStream<'static, ListedChange>>>,
}

/// A DaemonSet as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedDaemonSet {
    /// Whether it is being deleted.
    pub(super) deleting: bool,
    /// Its annotation `paused`.
    pub(super) paused: Option<String>,
    /// The field of that name, which decides before the annotation; only an Advanced one has it.
    pub(super) paused_field: Option<Value>,
    /// Whether it is under `OnDelete`.
    pub(super) on_delete: bool,
    /// Number of nodes where a pod belongs, as its status says.
    pub(super) desired: Option<usize>,
}

/// Where watches have to begin.
#[derive(Default)]
struct ListVersions {
    nodes: String,
    sets: BTreeMap<SetKind, String>,
    revisions: String,
    pods: Vec<(SetKey, String, String)>,
    /// By namespace.
    budgets: Vec<(String, String)>,
}

enum ListedChange {
    Node(WatchEvent<Listed<Node>>),
    /// `None`: not even the metadata of a DaemonSet can be read.
    Set(Option<WatchEvent<DaemonSet>>),
    Revision(WatchEvent<Listed<ControllerRevision>>),
    Pod(SetKey, WatchEvent<Listed<Pod>>),
    Budget(WatchEvent<PodDisruptionBudget>),
    Over,
}

/// What became of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchStep {
    /// It is up to date again.
    Changed,
    /// It has to be loaded again.
    Outdated,
}

/// Said where Advanced DaemonSets may not be listed.
const MAY_NOT_LIST: &str =
    "they may not be listed with these credentials (ClusterRole yurt-ds-viewer-advanced).";

impl ClusterView {
    /// Lists what `scope` needs.
    ///
    /// # Errors
    /// What could not be listed. A DaemonSet that does not exist is none: it is not in the index then.
    pub(super) async fn load(
        access: &Access,
        scope: &ListScope,
        now: Timestamp,
    ) -> Result<Self, CliError> {
        let mut view = Self::load_settings(access, scope, now).await?;
        view.load_rest(access).await?;
        Ok(view)
    }

    /// Lists only the DaemonSets.
    ///
    /// # Errors
    /// When they cannot be listed.
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

    /// Lists everything else that the managed ones need.
    ///
    /// # Errors
    /// What could not be listed.
    pub(super) async fn load_rest(&mut self, access: &Access) -> Result<(), CliError> {
        let scope = self.scope.clone();
        let keys: Vec<SetKey> = self.managed().cloned().collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.load_pods(access, &keys).await?;
        self.load_budgets(access).await;
        self.load_revisions(access, &scope).await?;
        // The revisions tell which images of nodes matter.
        self.load_nodes(access).await?;
        for key in &keys {
            self.confirm(access, key).await?;
        }
        Ok(())
    }

    /// The DaemonSets that are managed.
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
                let (sets, version) = kinds::list_one(access, key).await?;
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
            kinds::list_native(access, namespace, doing),
            kinds::list_advanced(access, namespace)
        );
        let (sets, version) = native?;
        self.take_sets(SetKind::Native, &sets, version);
        self.unlisted_advanced = match advanced {
            Ok(Some((sets, version))) => {
                self.take_sets(SetKind::Advanced, &sets, version);
                None
            }
            Ok(None) => kinds::is_advanced_served(access)
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

    async fn load_nodes(&mut self, access: &Access) -> Result<(), CliError> {
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

    /// Lists the budgets of the namespaces where pods are evicted. Not everybody may: then less is known.
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

    /// Why it is not known what disruption budgets let go, where that matters.
    pub(super) fn unread(&self, key: &SetKey) -> Option<String> {
        let evicts = matches!(
            self.index.reading(key).as_deref(),
            Some(ParsedSettings::Strategy { strategy, .. }) if strategy.disruption == Disruption::Evict
        );
        let why = self.unread.get(&*key.namespace).filter(|_| evicts)?;
        Some(format!(
            "whether PodDisruptionBudgets let pods go is not known here: {why}"
        ))
    }

    /// Whether Kruise's manager makes its pods.
    pub(super) fn is_of_kruise(&self, key: &SetKey) -> bool {
        key.is_advanced() && self.kruise_runs
    }

    /// Lets the index know which pods of a DaemonSet could not be evicted at `now`.
    pub(super) fn weigh(&mut self, key: &SetKey, now: Timestamp) {
        if let Some(set) = self.index.set_mut(key) {
            let told = blocked_since(&set.conditions);
            let began = incomplete_since(&set.conditions);
            let lasts = |since, why| budgets::counts_since(told, began, since, now, why);
            self.budgets.weigh(&key.namespace, set, lasts, now);
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

    /// Clears up what a list at the wrong moment leaves open about revisions.
    async fn confirm(&mut self, access: &Access, key: &SetKey) -> Result<(), CliError> {
        for hash in self.index.unknown_hashes(key) {
            // Revisions were listed after the pods: one that is not there was deleted, and is an old one.
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

    /// Watches from where the lists ended.
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
            let sets: Api<Listed<DaemonSet>> = kinds::api_in(access, namespace);
            self.follow(sets, params.clone(), version, |event| {
                ListedChange::Set(kinds::of_set(event))
            });
        }
        // Where they are not served there is no version.
        let advanced = versions.sets.remove(&SetKind::Advanced);
        if let Some(version) = advanced.filter(|version| !version.is_empty()) {
            let sets: Api<Listed<AdvancedDaemonSet>> = kinds::api_in(access, namespace);
            self.follow(sets, params, version, |event| {
                ListedChange::Set(kinds::of_set(event))
            });
        }
        if self.managed().next().is_none() {
            return; // nothing else was listed
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

    /// Waits for a change, and takes in everything that is told within `gather` after it.
    ///
    /// Taking in is all that happens meanwhile: on a large fleet hundreds of changes come in that time, and whoever took in
    /// one of them per look would be minutes behind.
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

/// One watch, which the API server ends now and then.
struct ListFollower<K> {
    api: Api<K>,
    params: WatchParams,
    /// From where it begins anew.
    version: String,
    events: Option<BoxStream<'static, kube::Result<WatchEvent<K>>>>,
    begun: Instant,
}

impl<K> ListFollower<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// The next event, and how it goes on; neither when everything has to be listed again.
    ///
    /// A watch whose time is up goes on where it ended. One that ends sooner has a reason, which a new list will tell.
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

/// Adds the way on to the refusal of a list of all namespaces.
fn try_one_namespace(error: CliError) -> CliError {
    match &error.refusal {
        None => error,
        Some(refusal) => CliError {
            text: format!(
                "You may not list DaemonSets in all namespaces; try one: yurt-ds ctl status -n NAMESPACE. The API server says: \
                 {refusal}."
            ),
            ..error
        },
    }
}

/// The version of the collection that an event tells of.
fn version<K: Resource>(event: &WatchEvent<K>) -> Option<String> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
            object.meta().resource_version.clone()
        }
        WatchEvent::Bookmark(mark) => Some(mark.metadata.resource_version.clone()),
        WatchEvent::Error(_) => None,
    }
}

/// Where the revisions of a scope are found. They carry the labels of the template.
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
