//! Garbage collector for owner references, with background, foreground and orphan deletion.
//!
//! The collector watches the kinds that this project uses, and assumes that owners of other kinds exist. It checks periodically if
//! the cluster serves Advanced DaemonSets. Until the cluster does, the collector assumes that every Advanced DaemonSet in an owner
//! reference exists. The native collector checks all kinds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy,
};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Error};
use serde_json::{Value, json};

use crate::sim::cluster::resources::KRUISE;
use crate::sim::queue::Queue;
use crate::sim::watched::{Cache, WatchedKey, WatchedWrites, events};
use crate::task::Task;

/// Delay before the collector retries a write that failed or left the object unchanged.
const RETRY: Duration = Duration::from_secs(1);
/// Interval between checks for Advanced DaemonSets. It is the native collector's interval.
const DISCOVERY: Duration = Duration::from_secs(30);
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

type Meta = PartialObjectMeta<DynamicObject>;
/// Identity of a watched object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    /// Index of the object's kind.
    kind: usize,
    key: WatchedKey,
}

/// API, name and UID of an owner that is not in the caches, so that it must be read.
type UnresolvedOwner = (Api<DynamicObject>, String, String);

/// Starts the collector. It stops when the returned task is dropped.
pub fn start(client: Client) -> Task {
    Task::spawn(Collector::new(client).run())
}

struct Collector {
    client: Client,
    /// Watched kinds. The last one is the Advanced DaemonSet.
    kinds: Vec<ApiResource>,
    objects: Vec<Cache<Meta>>,
    /// Number of watched kinds that the cluster serves.
    served: usize,
    /// Identities of existing objects by UID.
    known: BTreeMap<String, Id>,
    /// Identities of dependents by the UID of their owner.
    dependents: BTreeMap<String, BTreeSet<Id>>,
    look_at: VecDeque<Id>,
    busy: BTreeSet<Id>,
    due: Queue<Id>,
    writes: WatchedWrites<(Id, Result<(), Error>)>,
}

/// Write that the collector sends for an object.
enum Write {
    Delete(PropagationPolicy),
    Patch(Value),
}

impl Collector {
    fn new(client: Client) -> Self {
        let kinds = vec![
            ApiResource::erase::<Node>(&()),
            ApiResource::erase::<DaemonSet>(&()),
            ApiResource::erase::<ControllerRevision>(&()),
            ApiResource::erase::<Job>(&()),
            ApiResource::erase::<Pod>(&()),
            ApiResource::erase::<ConfigMap>(&()),
            advanced(),
        ];
        Self {
            client,
            served: kinds.len() - 1,
            objects: kinds.iter().map(|_| Cache::default()).collect(),
            kinds,
            known: BTreeMap::new(),
            dependents: BTreeMap::new(),
            look_at: VecDeque::new(),
            busy: BTreeSet::new(),
            due: Queue::default(),
            writes: WatchedWrites::default(),
        }
    }

    async fn run(mut self) {
        let mut streams: SelectAll<_> = (0..self.served).map(|kind| self.events(kind)).collect();
        let mut installed = Box::pin(installed(self.client.clone()));
        loop {
            tokio::select! {
                biased;
                (id, result) = self.writes.next() => {
                    self.busy.remove(&id);
                    if let Err(error) = result {
                        tracing::debug!(%error, object = id.key.name, "A write of the garbage collector failed");
                    }
                    self.due.add(RETRY, id);
                }
                Some((kind, event)) = streams.next() => self.event(kind, event),
                () = self.due.wait() => self.look_at.extend(self.due.take()),
                () = &mut installed, if self.served < self.kinds.len() => {
                    streams.push(self.events(self.served));
                    self.served += 1;
                }
                () = std::future::ready(()), if self.is_synced() && !self.look_at.is_empty() => {
                    if let Some(id) = self.look_at.pop_front() {
                        self.collect(id);
                    }
                }
            }
        }
    }

    fn events(&self, kind: usize) -> BoxStream<'static, (usize, Event<Meta>)> {
        let api = Api::<Meta>::all_with(self.client.clone(), &self.kinds[kind]);
        events(api, "").map(move |event| (kind, event)).boxed()
    }

    fn is_synced(&self) -> bool {
        let mut served = self.objects[..self.served].iter();
        served.all(Cache::is_synced)
    }

    fn get(&self, id: &Id) -> Option<&Meta> {
        self.objects[id.kind].get(&id.key)
    }

    fn event(&mut self, kind: usize, event: Event<Meta>) {
        for change in self.objects[kind].event(event) {
            let id = Id {
                kind,
                key: change.key,
            };
            let now = self.objects[kind].get(&id.key).cloned();
            if let (Some(before), Some(now)) = (&change.before, &now)
                && is_alike(before, now)
            {
                continue;
            }
            if let Some(before) = change.before {
                self.unlink(&id, &before);
            }
            if let Some(now) = now {
                self.link(&id, &now);
            }
            self.look_at.push_back(id);
        }
    }

    fn link(&mut self, id: &Id, object: &Meta) {
        self.known.insert(uid(object), id.clone());
        for owner in owners(object) {
            let dependents = self.dependents.entry(owner.uid.clone()).or_default();
            dependents.insert(id.clone());
        }
    }

    /// Removes the old version of a deleted or changed object from the indexes.
    ///
    /// The object's dependents and owners are checked again, because it may have been the last owner or the last dependent.
    fn unlink(&mut self, id: &Id, before: &Meta) {
        self.known.remove(&uid(before));
        for owner in owners(before) {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(id);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
            self.look_at.extend(self.known.get(&owner.uid).cloned());
        }
        let dependents = self.dependents.get(&uid(before));
        self.look_at
            .extend(dependents.into_iter().flatten().cloned());
    }

    /// Does the work that is pending for one object: deletes it, removes missing owners, or processes its finalizers.
    fn collect(&mut self, id: Id) {
        let Some(object) = self.get(&id).filter(|_| !self.busy.contains(&id)) else {
            return;
        };
        if object.metadata.deletion_timestamp.is_some() {
            if has_finalizer(object, ORPHAN) {
                return self.orphan_dependents(&id);
            }
            if has_finalizer(object, FOREGROUND) {
                return self.delete_dependents(&id);
            }
            return;
        }
        let (gone, left): (Vec<_>, Vec<_>) =
            owners(object).partition(|owner| !self.exists(owner, &id.key.namespace));
        if gone.is_empty() {
            return;
        }
        let write = if left.is_empty() {
            Write::Delete(self.policy(object))
        } else {
            Write::Patch(without_owners(object, gone.iter().map(|owner| &owner.uid)))
        };
        let doubted = gone
            .into_iter()
            .filter_map(|owner| self.api_of(owner, &id.key.namespace));
        let doubted = doubted.collect();
        self.write(id, write, doubted);
    }

    /// Returns true if an owner exists. Owners of kinds that are not watched are assumed to exist.
    fn exists(&self, owner: &OwnerReference, namespace: &str) -> bool {
        if self.known.contains_key(&owner.uid) {
            return true;
        }
        let mut served = self.kinds[..self.served].iter();
        match served.position(|kind| is_of(owner, kind)) {
            None => true,
            Some(kind) => {
                let key = WatchedKey::new(namespace, &owner.name);
                let found = self.objects[kind].get(&key);
                found.is_some_and(|object| uid(object) == owner.uid)
            }
        }
    }

    /// Returns the API, name and UID that are needed to read an owner; `None` if the owner's kind is not watched.
    fn api_of(&self, owner: &OwnerReference, namespace: &str) -> Option<UnresolvedOwner> {
        let mut served = self.kinds[..self.served].iter();
        let kind = served.find(|kind| is_of(owner, kind))?;
        let api = match kind.kind.as_str() {
            "Node" => Api::all_with(self.client.clone(), kind),
            _ => Api::namespaced_with(self.client.clone(), namespace, kind),
        };
        Some((api, owner.name.clone(), owner.uid.clone()))
    }

    /// Returns the policy for deleting an object whose owners are gone. The finalizers of the object determine the policy.
    fn policy(&self, object: &Meta) -> PropagationPolicy {
        match (
            has_finalizer(object, ORPHAN),
            has_finalizer(object, FOREGROUND),
        ) {
            (true, _) => PropagationPolicy::Orphan,
            (_, true) => PropagationPolicy::Foreground,
            _ => PropagationPolicy::Background,
        }
    }

    fn orphan_dependents(&mut self, id: &Id) {
        let Some(owner) = self.get(id).map(uid) else {
            return;
        };
        let dependents = self.dependents.get(&owner).cloned().unwrap_or_default();
        if dependents.is_empty() {
            return self.drop_finalizer(id, ORPHAN);
        }
        for dependent in dependents {
            if let Some(object) = self.get(&dependent) {
                let patch = without_owners(object, [&owner].into_iter());
                self.write(dependent, Write::Patch(patch), Vec::new());
            }
        }
    }

    fn delete_dependents(&mut self, id: &Id) {
        let Some(owner) = self.get(id).map(uid) else {
            return;
        };
        let dependents = self.dependents.get(&owner).cloned().unwrap_or_default();
        let blocks = |dependent: &&Id| {
            let object = self.get(dependent);
            let mut references = object.into_iter().flat_map(owners);
            references.any(|o| o.uid == owner && o.block_owner_deletion == Some(true))
        };
        if !dependents.iter().any(|dependent| blocks(&dependent)) {
            return self.drop_finalizer(id, FOREGROUND);
        }
        for dependent in dependents {
            let alive = |object: &&Meta| object.metadata.deletion_timestamp.is_none();
            let Some(object) = self.get(&dependent).filter(alive) else {
                continue;
            };
            let policy = if self.dependents.contains_key(&uid(object)) {
                PropagationPolicy::Foreground
            } else {
                PropagationPolicy::Background
            };
            self.write(dependent, Write::Delete(policy), Vec::new());
        }
    }

    fn drop_finalizer(&mut self, id: &Id, finalizer: &str) {
        let Some(object) = self.get(id) else {
            return;
        };
        let finalizers = object.metadata.finalizers.iter().flatten();
        let left: Vec<&String> = finalizers.filter(|other| *other != finalizer).collect();
        let version = &object.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": left } });
        self.write(id.clone(), Write::Patch(patch), Vec::new());
    }

    /// Sends a write. First reads the owners in `doubted`, and sends nothing if one of them exists.
    fn write(&mut self, id: Id, write: Write, doubted: Vec<UnresolvedOwner>) {
        let Some(object) = self.get(&id).filter(|_| !self.busy.contains(&id)) else {
            return;
        };
        let resource = &self.kinds[id.kind];
        let api: Api<DynamicObject> = match id.key.namespace.as_str() {
            "" => Api::all_with(self.client.clone(), resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, resource),
        };
        let uid = uid(object);
        self.busy.insert(id.clone());
        self.writes.add(async move {
            let result = match any_exists(doubted).await {
                Ok(true) => Ok(()),
                Ok(false) => send(&api, &id.key.name, uid, write).await,
                Err(error) => Err(error),
            };
            (id, result)
        });
    }
}

/// Returns true if any of these owners exists. Asks the API server, because the watches may deliver a dependent before its owner.
async fn any_exists(doubted: Vec<UnresolvedOwner>) -> Result<bool, Error> {
    for (api, name, uid) in doubted {
        let found = api.get_metadata_opt(&name).await?;
        if found.is_some_and(|object| object.metadata.uid == Some(uid)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if the owner is of this kind. For Advanced DaemonSets, any served version matches.
fn is_of(owner: &OwnerReference, kind: &ApiResource) -> bool {
    let version = owner.api_version.as_str();
    let advanced = kind.group == KRUISE && ADVANCED_VERSIONS.contains(&version);
    kind.kind == owner.kind && (kind.api_version == version || advanced)
}

const ADVANCED_VERSIONS: &[&str] = &["apps.kruise.io/v1beta1", "apps.kruise.io/v1alpha1"];

fn advanced() -> ApiResource {
    ApiResource {
        group: KRUISE.to_owned(),
        version: "v1beta1".to_owned(),
        api_version: ADVANCED_VERSIONS[0].to_owned(),
        kind: "DaemonSet".to_owned(),
        plural: "daemonsets".to_owned(),
    }
}

/// Waits until the cluster serves Advanced DaemonSets.
async fn installed(client: Client) {
    let wanted = advanced();
    loop {
        let found = client.list_api_group_resources(&wanted.api_version).await;
        let has = |name: &str| {
            let resources = found.iter().flat_map(|list| &list.resources);
            resources.into_iter().any(|resource| resource.name == name)
        };
        if has(&wanted.plural) {
            return;
        }
        tokio::time::sleep(DISCOVERY).await;
    }
}

async fn send(
    api: &Api<DynamicObject>,
    name: &str,
    uid: String,
    write: Write,
) -> Result<(), Error> {
    let result = match write {
        Write::Delete(policy) => {
            let params = DeleteParams {
                propagation_policy: Some(policy),
                preconditions: Some(Preconditions {
                    uid: Some(uid),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            api.delete(name, &params).await.map(drop)
        }
        Write::Patch(patch) => {
            let params = PatchParams::default();
            api.patch(name, &params, &Patch::Merge(patch))
                .await
                .map(drop)
        }
    };
    match result {
        Err(Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other,
    }
}

/// Returns true if all fields that matter for garbage collection are equal.
fn is_alike(before: &Meta, now: &Meta) -> bool {
    let (before, now) = (&before.metadata, &now.metadata);
    before.uid == now.uid
        && before.deletion_timestamp == now.deletion_timestamp
        && before.finalizers == now.finalizers
        && before.owner_references == now.owner_references
}

fn uid(object: &Meta) -> String {
    object.metadata.uid.clone().unwrap_or_default()
}

fn owners(object: &Meta) -> impl Iterator<Item = &OwnerReference> {
    object.metadata.owner_references.iter().flatten()
}

fn has_finalizer(object: &Meta, finalizer: &str) -> bool {
    let mut finalizers = object.metadata.finalizers.iter().flatten();
    finalizers.any(|other| other == finalizer)
}

fn without_owners<'a>(object: &Meta, gone: impl Iterator<Item = &'a String>) -> Value {
    let gone: Vec<&String> = gone.collect();
    let left: Vec<&OwnerReference> = owners(object)
        .filter(|owner| !gone.contains(&&owner.uid))
        .collect();
    let version = &object.metadata.resource_version;
    json!({ "metadata": { "resourceVersion": version, "ownerReferences": left } })
}
