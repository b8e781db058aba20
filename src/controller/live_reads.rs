//! Live reads: reads of objects from the API server, because their state is unclear from the watches. They are rare and limited.
//! There are none if the watches are consistent and all pods exist and become available.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Api, Client};
use tokio::sync::Mutex;
use tracing::{debug, warn};

use super::event_handler::{Enqueue, EventHandler};
use super::reflector::{list_each, list_selected};
use super::report::RolloutEvent;
use crate::core::messages::events;
use crate::core::names::REVISION_HASH_LABEL;
use crate::core::{PodName, PodUid, Revision, RevisionState, RevisionUnknown};
use crate::index::Index;
use crate::index::{SetKey, SetRecord};
use crate::k8s::client::{CallError, WRITE_DEADLINE, within};
use crate::k8s::{Condition, ControllerRevision, DaemonSet, Pod};

/// Time for the watches to become consistent before objects are read.
const PATIENCE: SignedDuration = SignedDuration::from_secs(1);

/// Pause before the same objects are read again.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// Interval between checks while the native controller lags behind a change of the DaemonSet. Its next write also triggers a check,
/// unless the event about that write is lost.
const SLOWLY: SignedDuration = SignedDuration::from_secs(30);

/// Events per page of a list. An Event can have more than a megabyte, and the API server holds a whole page in memory.
const EVENTS_PAGE: u32 = 10;

/// Reason of Events about pods that could not be created.
const FAILED_CREATE: &str = "FailedCreate";

/// Result of a live read of objects.
pub(super) enum LookupResult {
    /// Revisions that were looked up, by hash.
    Revisions(Vec<(Revision, FoundRevision)>),
    /// DaemonSet, with all its revisions.
    Whole(Box<(DaemonSet, Vec<ControllerRevision>)>),
    /// Message of the native controller's last Event about a pod that it could not create; `None`: there is no such Event.
    NotCreated(Option<String>),
    /// Messages about pods that don't become available. The map has no entry for a pod without a message.
    NotReady(BTreeMap<PodName, String>),
    Failed(CallError),
}

/// Result of looking up the revision with a hash that pods carry.
pub(super) enum FoundRevision {
    /// The revision with this hash exists.
    Revision(Box<ControllerRevision>),
    /// No revision has this hash, although the pod still carries it.
    Absent,
    /// No revision has this hash, and the pod now carries another hash or is gone. So the cached pod is outdated.
    ///
    /// This happens when the native controller finds a duplicate revision: it relabels the pods, and then deletes the duplicate.
    Late,
}

type Lookup = Pin<Box<dyn Future<Output = LookupResult> + Send>>;

/// Decides which objects to read from the API server, and applies the results.
pub(super) struct Lookups {
    client: Client,
    last: BTreeMap<SetKey, Timestamp>,
    /// Reason why the current revision of a DaemonSet is unknown, with the time since which it applies.
    doubts: BTreeMap<SetKey, (RevisionUnknown, Timestamp)>,
    /// Time of the last lookup of the reason why pods are missing.
    missing: BTreeMap<SetKey, Timestamp>,
    /// Time of the last lookup of the reasons why pods don't become available, with these pods.
    unready: BTreeMap<SetKey, (Timestamp, Vec<PodName>)>,
    turns: Turns,
}

/// Maximum number of lookups of Events that wait in one namespace. A further one is dropped, and requested again later.
const MOST_WAITING: usize = 8;

/// Limits lists of Events to one at a time per namespace.
///
/// Without the limit, a tenant could cause one list per DaemonSet at the same time. Each list could return many large Events.
#[derive(Default)]
struct Turns(BTreeMap<String, Weak<Mutex<()>>>);

impl Turns {
    /// Queues a lookup behind earlier ones in the same namespace. Returns `None` if too many are waiting.
    fn queue(
        &mut self,
        namespace: &str,
        lookup: impl Future<Output = LookupResult> + Send + 'static,
    ) -> Option<Lookup> {
        self.0.retain(|_, turn| turn.strong_count() > 0);
        let turn = self.0.get(namespace).and_then(Weak::upgrade);
        let turn = turn.unwrap_or_default();
        if Arc::strong_count(&turn) > MOST_WAITING {
            return None;
        }
        self.0.insert(namespace.to_owned(), Arc::downgrade(&turn));
        Some(Box::pin(async move {
            let _turn = turn.lock().await;
            lookup.await
        }))
    }
}

impl Lookups {
    /// Creates the state for a controller that has read nothing yet.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            last: BTreeMap::new(),
            doubts: BTreeMap::new(),
            missing: BTreeMap::new(),
            unready: BTreeMap::new(),
            turns: Turns::default(),
        }
    }

    /// Decides whether to look up the revisions of a DaemonSet or of its pods. Returns the time of the next call, and the lookup to
    /// start now, if one is due.
    pub(super) fn wanted(
        &mut self,
        key: &SetKey,
        set: &SetRecord,
        reason: RevisionUnknown,
        unknown: Vec<Revision>,
        since: Timestamp,
        now: Timestamp,
    ) -> (Timestamp, Option<Lookup>) {
        let doubt = self.doubts.get(key).copied();
        let since = match doubt.filter(|(known, at)| *known == reason && *at >= since) {
            Some((_, at)) => at,
            None => now,
        };
        self.doubts.insert(key.clone(), (reason, since));
        let after = |at: Timestamp, pause| at.checked_add(pause).unwrap_or(now);
        let due = match reason {
            // Wait even if only the hash of a pod is unknown. The pod's new label may arrive in the cache a moment after the
            // deletion of the old revision.
            RevisionUnknown::UnknownRevision | RevisionUnknown::Mismatch => after(since, PATIENCE),
            RevisionUnknown::NotObserved | RevisionUnknown::NoRevision | RevisionUnknown::Tie => {
                return (after(now, SLOWLY), None);
            }
        };
        let due = self
            .last
            .get(key)
            .map_or(due, |last| due.max(after(*last, AGAIN)));
        if due > now {
            return (due, None);
        }
        self.last.insert(key.clone(), now);
        let lookup: Lookup = match reason {
            RevisionUnknown::UnknownRevision => {
                let asked = unknown.into_iter().filter_map(|hash| {
                    let pod = set.pod_with(&hash)?.clone();
                    Some((hash, pod))
                });
                Box::pin(revisions(self.client.clone(), key.clone(), asked.collect()))
            }
            _ => Box::pin(whole(
                self.client.clone(),
                key.clone(),
                set.selector.clone(),
            )),
        };
        (after(now, AGAIN), Some(lookup))
    }

    /// Looks up why pods have been missing since `since`. Returns the time of the next call, and the lookup to start now, if one is
    /// due.
    ///
    /// The first lookup comes shortly before the rollout reports missing pods. The lookup is repeated, because the reason may
    /// change: after one quota is raised, another may be exceeded.
    pub(super) fn why_missing(
        &mut self,
        key: &SetKey,
        uid: &str,
        since: Timestamp,
        now: Timestamp,
    ) -> (Timestamp, Option<Lookup>) {
        let after = |at: Timestamp, pause| at.checked_add(pause).unwrap_or(now);
        let asked = self.missing.get(key);
        let due = asked.map_or(after(since, AGAIN), |asked| after(*asked, SLOWLY));
        if due > now {
            return (due, None);
        }
        self.missing.insert(key.clone(), now);
        let lookup = not_created(self.client.clone(), key.clone(), uid.to_owned());
        let lookup = self.turns.queue(&key.namespace, lookup);
        (after(now, SLOWLY), lookup)
    }

    /// Records that no pod is missing. Returns true if pods were missing before.
    pub(super) fn none_missing(&mut self, key: &SetKey) -> bool {
        self.missing.remove(key).is_some()
    }

    /// Looks up why `pods` don't become available. Returns the time of the next call, and the lookup to start now, if one is due.
    ///
    /// Pods that were not in the last lookup are looked up at once. All pods are looked up again at intervals.
    pub(super) fn why_not_ready(
        &mut self,
        key: &SetKey,
        pods: Vec<(PodName, PodUid)>,
        now: Timestamp,
    ) -> (Timestamp, Option<Lookup>) {
        let after = |at: Timestamp, pause| at.checked_add(pause).unwrap_or(now);
        let names: Vec<PodName> = pods.iter().map(|(name, _)| name.clone()).collect();
        let asked = self.unready.get(key);
        let is_known =
            |(_, known): &&(_, Vec<PodName>)| names.iter().all(|name| known.contains(name));
        let due = asked
            .filter(is_known)
            .map(|(asked, _)| after(*asked, SLOWLY));
        if let Some(due) = due.filter(|due| *due > now) {
            return (due, None);
        }
        self.unready.insert(key.clone(), (now, names));
        let lookup = not_ready(self.client.clone(), key.clone(), pods, now);
        let lookup = self.turns.queue(&key.namespace, lookup);
        (after(now, SLOWLY), lookup)
    }

    /// Records that no pod takes too long to become available. Returns true if at least one pod took too long before.
    pub(super) fn none_unready(&mut self, key: &SetKey) -> bool {
        self.unready.remove(key).is_some()
    }

    /// Forgets a DaemonSet that is gone or no longer managed.
    pub(super) fn forget(&mut self, key: &SetKey) {
        self.unready.remove(key);
        self.missing.remove(key);
        self.last.remove(key);
        self.doubts.remove(key);
    }

    /// Applies the result of a lookup. Returns the DaemonSets to reconcile, and the Event to publish, if any.
    pub(super) fn take(
        &mut self,
        feed: &mut EventHandler,
        index: &mut Index,
        key: &SetKey,
        looked: LookupResult,
    ) -> (Enqueue, Option<RolloutEvent>) {
        match looked {
            LookupResult::Failed(error) => {
                warn!(daemonset = %key, %error, "Cannot look up objects");
                (Enqueue::default(), None)
            }
            LookupResult::NotCreated(message) => {
                if let Some(set) = index.set_mut(key) {
                    let why =
                        message.map(|message| events::not_created(&message, &key.name).into());
                    set.set_not_created(why);
                }
                (Enqueue::default(), None)
            }
            LookupResult::NotReady(messages) => {
                if let Some(set) = index.set_mut(key) {
                    let why = messages.into_iter().map(|(pod, why)| (pod, why.into()));
                    set.set_not_ready(why.collect());
                }
                (Enqueue::default(), None)
            }
            LookupResult::Revisions(found) => {
                let is_late =
                    |(_, known): &(_, FoundRevision)| matches!(known, FoundRevision::Late);
                if !found.iter().any(is_late) {
                    self.last.remove(key);
                }
                for (hash, known) in found {
                    take_revision(index, key, hash, known);
                }
                (Enqueue::default(), None)
            }
            LookupResult::Whole(read) => {
                let (set, revisions) = *read;
                let fed = feed.apply_set(index, &set);
                revisions
                    .iter()
                    .for_each(|revision| drop(index.apply_revision(revision)));
                (fed, trust(index, key, &set))
            }
        }
    }
}

fn take_revision(index: &mut Index, key: &SetKey, hash: Revision, known: FoundRevision) {
    let Some(uid) = index.set(key).map(|set| set.uid.clone()) else {
        return;
    };
    let owned = |revision: &ControllerRevision| {
        revision
            .metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| *owner.uid == *uid)
    };
    match known {
        FoundRevision::Revision(revision) if owned(&revision) && revision.template.is_some() => {
            debug!(daemonset = %key, %hash, "Found a revision");
            index.apply_revision(&revision);
        }
        FoundRevision::Late => debug!(daemonset = %key, %hash, "The cached pods are outdated"),
        FoundRevision::Revision(_) | FoundRevision::Absent => {
            if let Some(set) = index.set_mut(key) {
                set.note_absent(hash);
            }
        }
    }
}

/// Accepts the revision with the highest number as the current one, although its template differs from the DaemonSet's in a live
/// read. Returns an Event about the difference.
fn trust(index: &mut Index, key: &SetKey, read: &DaemonSet) -> Option<RolloutEvent> {
    let revisions = index.revisions_of(&index.set(key)?.uid);
    let set = index.set_mut(key)?;
    let observed = read.status.observed_generation.unwrap_or_default()
        >= read.metadata.generation.unwrap_or_default();
    let same = read.metadata.generation == Some(set.generation);
    let still = crate::core::revision::current(&revisions, &set.template, set.is_observed(), false);
    if !(observed && same && still == RevisionState::Unknown(RevisionUnknown::Mismatch)) {
        return None;
    }
    set.trust_greatest(set.generation);
    Some(RolloutEvent {
        warning: true,
        reason: "RevisionNotComparable",
        note: "the newest ControllerRevision differs from the template, although the native controller has observed the \
               template; yurt-ds uses the revision with the highest number"
            .to_owned(),
        ..RolloutEvent::default()
    })
}

/// Reads the revisions with these hashes. Each hash comes with a pod that carries it, according to the cache.
async fn revisions(client: Client, key: SetKey, asked: Vec<(Revision, PodName)>) -> LookupResult {
    let mut found = Vec::new();
    for (hash, pod) in asked {
        match in_time(known(&client, &key, &hash, &pod)).await {
            Ok(known) => found.push((hash, known)),
            Err(error) => return LookupResult::Failed(error),
        }
    }
    LookupResult::Revisions(found)
}

/// Runs a lookup with the same deadline as a write.
pub(super) async fn in_time<T>(
    lookup: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(WRITE_DEADLINE, lookup).await {
        Ok(found) => found,
        Err(_) => Err(CallError::TimedOut(WRITE_DEADLINE)),
    }
}

async fn known(
    client: &Client,
    key: &SetKey,
    hash: &Revision,
    pod: &PodName,
) -> Result<FoundRevision, CallError> {
    let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), &key.namespace);
    let name = format!("{}-{hash}", key.name);
    if let Some(revision) = revisions.get_opt(&name).await? {
        return Ok(FoundRevision::Revision(Box::new(revision)));
    }
    // A revision that was adopted from another DaemonSet has a name that contains the other DaemonSet's name. So search by label.
    let labels = format!("{REVISION_HASH_LABEL}={hash}");
    let mut adopted = None;
    let take = |revision: ControllerRevision| {
        let mut owners = revision.metadata.owner_references.iter().flatten();
        if owners.any(|owner| owner.kind == "DaemonSet" && *owner.name == *key.name) {
            adopted.get_or_insert(revision);
        }
    };
    list_each(client, Some(&key.namespace), &labels, take).await?;
    if let Some(revision) = adopted {
        return Ok(FoundRevision::Revision(Box::new(revision)));
    }
    // Read the pod after the revision: if the native controller deleted the revision as a duplicate, it relabelled the pod first.
    let pods: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let labels = pods
        .get_opt(pod.as_str())
        .await?
        .and_then(|pod| pod.metadata.labels);
    let carried = labels.and_then(|mut labels| labels.remove(REVISION_HASH_LABEL));
    Ok(if carried.as_deref() == Some(hash.as_str()) {
        FoundRevision::Absent
    } else {
        FoundRevision::Late
    })
}

/// Reads the native controller's last Event about a pod that it could not create.
async fn not_created(client: Client, key: SetKey, uid: String) -> LookupResult {
    let fields = format!("involvedObject.uid={uid},reason={FAILED_CREATE}");
    match last_event(&client, &key.namespace, &fields).await {
        Ok(last) => LookupResult::NotCreated(last.and_then(|event| event.message)),
        Err(error) => LookupResult::Failed(error),
    }
}

/// Returns the newest Event that matches `fields`. Holds one Event in memory at a time, because a tenant can write many large
/// ones.
pub(super) async fn last_event(
    client: &Client,
    namespace: &str,
    fields: &str,
) -> Result<Option<Event>, CallError> {
    let mut last: Option<Event> = None;
    let take = |event: Event| {
        if last
            .as_ref()
            .is_none_or(|last| occurred_at(last) <= occurred_at(&event))
        {
            last = Some(event);
        }
    };
    in_time(list_selected(
        client,
        Some(namespace),
        "",
        fields,
        EVENTS_PAGE,
        take,
    ))
    .await?;
    Ok(last)
}

/// Maximum age of an Event to report. It equals the default lifetime of Events, because an old message is better than none.
const FRESH: SignedDuration = SignedDuration::from_hours(1);

/// Reads the last message about each of these pods.
async fn not_ready(
    client: Client,
    key: SetKey,
    pods: Vec<(PodName, PodUid)>,
    now: Timestamp,
) -> LookupResult {
    let mut messages = BTreeMap::new();
    for (pod, uid) in pods {
        let message = async { Ok(last_message_of(&client, &key.namespace, &pod, &uid, now).await) };
        match within(WRITE_DEADLINE, message).await {
            Ok(message) => messages.extend(message.map(|message| (pod, message))),
            Err(error) => return LookupResult::Failed(error),
        }
    }
    LookupResult::NotReady(messages)
}

/// Returns the message of the last Warning Event about a pod. Without a recent one, returns the message of the pod's conditions.
async fn last_message_of(
    client: &Client,
    namespace: &str,
    pod: &PodName,
    uid: &PodUid,
    now: Timestamp,
) -> Option<String> {
    let fields = format!("involvedObject.uid={uid},type=Warning");
    // If Events can't be read, use the pod's conditions. A missing permission is reported elsewhere.
    let last = last_event(client, namespace, &fields)
        .await
        .unwrap_or_default();
    let is_fresh =
        |event: &Event| occurred_at(event).is_some_and(|at| now.duration_since(at) < FRESH);
    if let Some(event) = last.filter(is_fresh) {
        let source = event.source.as_ref();
        let by = source.and_then(|source| source.component.as_deref());
        let by = by.or(event.reporting_component.as_deref());
        let reason = event.reason.as_deref().unwrap_or_default();
        let message = event.message.as_deref().unwrap_or_default();
        return Some(events::not_ready(reason, message, by.unwrap_or_default()));
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = pods.get_opt(pod.as_str()).await.ok()??;
    let condition = |kind| {
        let mut conditions = pod.status.conditions.iter();
        let says_why = |found: &&Condition| {
            found.kind == kind && found.status != "True" && !found.message.is_empty()
        };
        conditions.find(says_why)
    };
    let Some(found) = condition("PodScheduled").or_else(|| condition("Ready")) else {
        let message = "no kubelet has started it";
        return (pod.status.start_time.is_none())
            .then(|| events::not_ready("", message, "its status"));
    };
    let by = format!("its condition {}", found.kind);
    Some(events::not_ready(&found.reason, &found.message, &by))
}

fn occurred_at(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    let last = event.last_timestamp.as_ref().map(|at| at.0);
    let first = event.event_time.as_ref().map(|at| at.0);
    last.max(series.map(|at| at.0)).max(first)
}

async fn whole(client: Client, key: SetKey, selector: String) -> LookupResult {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), &key.namespace);
    let read = async {
        let set = within(WRITE_DEADLINE, sets.get(&key.name)).await?;
        let mut revisions: Vec<ControllerRevision> = Vec::new();
        let take = |revision| revisions.push(revision);
        list_each(&client, Some(&key.namespace), &selector, take).await?;
        Ok((set, revisions))
    };
    match in_time(read).await {
        Ok(read) => LookupResult::Whole(Box::new(read)),
        Err(error) => LookupResult::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_lookups_are_bounded_per_namespace() {
        let mut turns = Turns::default();
        let mut queue = |namespace| turns.queue(namespace, std::future::pending());
        let waiting: Vec<Lookup> = (0..MOST_WAITING).filter_map(|_| queue("a")).collect();
        assert_eq!(waiting.len(), MOST_WAITING);
        assert!(queue("a").is_none());
        assert!(queue("b").is_some());
        drop(waiting);
        assert!(queue("a").is_some());
    }

    #[tokio::test]
    async fn lookups_of_one_namespace_run_one_after_the_other() {
        let mut turns = Turns::default();
        let (end, ended) = tokio::sync::oneshot::channel();
        let first = async {
            let _ended = ended.await;
            LookupResult::NotCreated(None)
        };
        let first = tokio::spawn(turns.queue("a", first).expect("a turn"));
        tokio::task::yield_now().await;
        let second = async { LookupResult::NotCreated(Some("second".to_owned())) };
        let second = tokio::spawn(turns.queue("a", second).expect("a turn"));
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        assert!(end.send(()).is_ok());
        first.await.expect("the first");
        let LookupResult::NotCreated(message) = second.await.expect("the second") else {
            panic!("another result");
        };
        assert_eq!(message.as_deref(), Some("second"));
    }
}
