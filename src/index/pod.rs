//! Record of a Pod: the fields that decisions need, and the times that the controller observed.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::pod_problem::{as_before, is_seen, problem, unscheduled};
use crate::core::engine::failing::PROVED_AFTER;
use crate::core::fleet::in_place::{
    InPlaceState, InPlaceUpdate, RunningContainer, is_half_written,
};
use crate::core::instant::later;
use crate::core::names::{
    IN_PLACE_UPDATE_READY, KRUISE_POD_READY, LIFECYCLE_STATE, LIFECYCLE_TIMESTAMP, POD_IMAGE_READY,
    POD_NEED_UPGRADE, PREPARING_DELETE, PULL_FAILED, REVISION_HASH_LABEL,
    TEMPLATE_GENERATION_LABEL, UNTOLERATED_TAINT, WAIT_PULL_IMAGE,
};
use crate::core::{
    Exit, Gate, InPlace, Labels, Leaving, OtaCondition, Pod, PodName, PodRevision, PodUid,
    PreDeleteHook, PullFailure, Revision, Shared, revision_in,
};
use crate::k8s;

/// Pod of a DaemonSet, read from the object. The comparison with the current revision is made later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodRecord {
    /// Pod in the form that decisions use, shared with the fleet. Its field `revision` was set when the fleet was last built.
    pub(super) pod: Arc<Pod>,
    /// Time at which the Ready condition became `True`, in whole seconds by the node's clock; `None` if it isn't `True`.
    stamped: Option<NonZero<i64>>,
}

/// Parts that many pods of a DaemonSet share. For example, most pods of a revision have the same labels and images.
#[derive(Debug, Default)]
pub(super) struct SharedParts {
    exits: BTreeSet<Shared<Exit>>,
    in_places: BTreeSet<Shared<InPlace>>,
    labels: BTreeSet<Labels>,
    containers: BTreeSet<Arc<[RunningContainer]>>,
}

/// Maximum number of stored parts. If there are more, nearly every pod has its own, so that sharing saves nothing.
const MOST_SHARED: usize = 64;

/// Returns the stored part that equals `part`. If there is none, stores `part`.
fn share<T: Ord + Clone>(known: &mut BTreeSet<T>, part: T) -> T {
    if let Some(known) = known.get(&part) {
        return known.clone();
    }
    if known.len() >= MOST_SHARED {
        known.clear();
    }
    known.insert(part.clone());
    part
}

impl PodRecord {
    /// Reads a pod that the DaemonSet controls; with `surge`, a surge pod. `before` is the previous record of the pod.
    pub(super) fn read(
        pod: &k8s::Pod,
        surge: bool,
        before: Option<&Self>,
        shared: &mut SharedParts,
        min_ready: Duration,
        now: Timestamp,
    ) -> Option<Self> {
        let meta = &pod.metadata;
        let created = meta.creation_timestamp.as_ref().map_or(now, |time| time.0);
        // An ended pod serves nothing, even if its Ready condition is still `True`.
        let ready = pod
            .condition("Ready")
            .filter(|condition| condition.is_true() && !pod.is_over());
        let stamped = ready
            .and_then(|condition| condition.last_transition.as_ref())
            .map(|time| time.0);
        let state = state(pod);
        let problem_before = before.and_then(|before| before.pod.problem.as_deref());
        let known = before.map(|before| &before.pod.in_place);
        let in_place = in_place(pod, state.as_ref(), known, shared);
        let restarted = Restarted::by(state.as_ref(), pod, &in_place);
        let ota = |kind| pod.condition(kind).map(|found| ota_condition(found).into());
        let ready_since = ready.map(|_| ready_since(before, stamped, restarted, created, now));
        Some(Self {
            pod: Arc::new(Pod {
                name: meta.name.as_deref()?.into(),
                uid: meta.uid.as_deref()?.into(),
                resource_version: meta.resource_version.as_deref().unwrap_or_default().into(),
                created,
                revision: before.map_or(PodRevision::Unknown, |before| before.pod.revision),
                number: before.map_or(0, |before| before.pod.number),
                of_template: before.is_none_or(|before| before.pod.of_template),
                terminating: meta.deletion_timestamp.is_some(),
                leaving: leaving(before, meta, now).map(Box::new),
                ready_since,
                unready_since: unready_since(
                    before,
                    ready.is_some(),
                    pod.condition("Ready"),
                    created,
                    min_ready,
                    now,
                ),
                started: started(before, pod, created, now),
                in_place,
                problem: problem(pod, state.as_ref())
                    .or_else(|| pod.condition("PodScheduled").and_then(unscheduled))
                    .map(|problem| as_before(problem, problem_before).into()),
                exit: exit(pod, before.map(|before| &before.pod.exit), shared),
                need_upgrade: ota(POD_NEED_UPGRADE),
                image_ready: ota(POD_IMAGE_READY),
                surge,
                in_doubt: false,
            }),
            stamped: seconds(stamped),
        })
    }

    /// Returns true if the records are equal, or differ only in the resource version.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let mut pod = Pod::clone(&self.pod);
        pod.resource_version = other.pod.resource_version.clone();
        pod == *other.pod
    }

    /// Returns the revision hash of the pod: the label `controller-revision-hash`.
    pub(super) fn hash(&self) -> Option<&Revision> {
        self.pod.in_place.revision.as_ref()
    }

    pub(super) fn generation(&self) -> Option<&str> {
        self.pod.exit.labels.get(TEMPLATE_GENERATION_LABEL)
    }

    /// Returns the time since which the pod has been Ready; `None` if it is not Ready.
    pub(super) fn ready_since(&self) -> Option<Timestamp> {
        self.pod.ready_since
    }

    pub(super) fn name(&self) -> &PodName {
        &self.pod.name
    }

    pub(super) fn uid(&self) -> &PodUid {
        &self.pod.uid
    }
}

/// Update in place that is complete, so that the new containers run.
///
/// The pod may stay Ready during such an update. Then its Ready condition doesn't show how long the new containers have run.
struct Restarted {
    update: InPlaceUpdate,
    /// Time at which the last updated container started, by the node's clock.
    at: Timestamp,
}

impl Restarted {
    fn by(state: Option<&InPlaceState>, pod: &k8s::Pod, in_place: &InPlace) -> Option<Self> {
        let state = state?;
        let update = in_place.update.filter(|update| update.is_carried_out)?;
        let changed = || {
            let statuses = pod.status.container_statuses.iter();
            statuses.filter(|status| state.changes(&status.name))
        };
        changed().next()?;
        let started = |status: &k8s::ContainerStatus| {
            let running = status.state.running.as_ref()?;
            running.started_at.as_ref().map(|time| time.0)
        };
        let started = changed().filter_map(started).max();
        Some(Self {
            update,
            at: started.map_or(update.at, |at| at.max(update.at)),
        })
    }

    /// Returns true if the record `before` doesn't show this update.
    fn is_news(&self, before: &PodRecord) -> bool {
        before.pod.in_place.update != Some(self.update)
    }
}

fn seconds(at: Option<Timestamp>) -> Option<NonZero<i64>> {
    NonZero::new(at?.as_second())
}

/// Returns the time since which a Ready pod has been Ready with its current containers. It is neither before the pod's creation nor
/// in the future.
fn ready_since(
    before: Option<&PodRecord>,
    stamped: Option<Timestamp>,
    restarted: Option<Restarted>,
    created: Timestamp,
    now: Timestamp,
) -> Timestamp {
    match (before, restarted) {
        (Some(before), Some(restarted)) if restarted.is_news(before) => now,
        (Some(before), _) if before.stamped == seconds(stamped) => {
            before.pod.ready_since.unwrap_or(now)
        }
        (Some(_), _) => now,
        (None, restarted) => {
            let least = restarted.map_or(created, |restarted| restarted.at.max(created));
            stamped.map_or(now, |at| at.max(least).min(now))
        }
    }
}

/// Returns the grace period of a pod that is being deleted. Its end is counted from when the controller saw the deletion.
///
/// If the pod was already being deleted when the controller first saw it, the end is the one by the API server's clock.
fn leaving(before: Option<&PodRecord>, meta: &ObjectMeta, now: Timestamp) -> Option<Leaving> {
    let stamped = meta.deletion_timestamp.as_ref()?.0;
    let grace = meta.deletion_grace_period_seconds.unwrap_or_default();
    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
    let known = before.and_then(|before| before.pod.leaving.as_deref());
    if let Some(known) = known.filter(|known| known.grace == grace) {
        return Some(*known);
    }
    let at_most = later(now, grace);
    Some(Leaving {
        ends: match before {
            Some(_) => at_most,
            None => stamped.min(at_most),
        },
        stamped,
        grace,
    })
}

/// Returns the time at which the kubelet accepted the pod. If the controller saw that happen, the time is by its own clock.
/// Otherwise it is `status.startTime`.
fn started(
    before: Option<&PodRecord>,
    pod: &k8s::Pod,
    created: Timestamp,
    now: Timestamp,
) -> Option<Timestamp> {
    let stamped = pod.status.start_time.as_ref()?.0;
    Some(match before {
        Some(before) => before.pod.started.unwrap_or(now),
        None => stamped.max(created).min(now),
    })
}

/// Returns the start of the last period in which the pod was not Ready; `None` in the first period after its creation.
///
/// A Ready period that was too short for the pod to become available is ignored. If the controller saw the change, the time is by
/// its own clock. Otherwise it is the time in the Ready condition.
fn unready_since(
    before: Option<&PodRecord>,
    is_ready: bool,
    condition: Option<&k8s::Condition>,
    created: Timestamp,
    min_ready: Duration,
    now: Timestamp,
) -> Option<Timestamp> {
    let Some(before) = before else {
        let stamped = condition?.last_transition.as_ref()?.0;
        return Some(stamped.max(created).min(now));
    };
    let known = before.pod.unready_since;
    let Some(since) = before.pod.ready_since.filter(|_| !is_ready) else {
        return known;
    };
    let was_available = later(since, min_ready.max(PROVED_AFTER)) <= now;
    Some(if was_available {
        now
    } else {
        known.unwrap_or(created)
    })
}

/// Returns the facts about the pod that its deletion depends on.
fn exit(pod: &k8s::Pod, before: Option<&Shared<Exit>>, shared: &mut SharedParts) -> Shared<Exit> {
    let meta = &pod.metadata;
    let labels = meta.labels.iter().flatten();
    let labels = labels.map(|(key, value)| (key.as_str(), value.as_str()));
    let known = before.map(|before| &before.labels);
    let labels = match known.filter(|known| known.iter().eq(labels.clone())) {
        Some(known) => known.clone(),
        None => share(&mut shared.labels, labels.collect()),
    };
    let state = labels.get(LIFECYCLE_STATE);
    let stamp = || {
        meta.annotations
            .as_ref()?
            .get(LIFECYCLE_TIMESTAMP)?
            .parse()
            .ok()
    };
    let preparing = (state == Some(PREPARING_DELETE)).then(|| PreDeleteHook { since: stamp() });
    let gate = pod.spec.has_gate(KRUISE_POD_READY).then(|| {
        let condition = pod.condition(KRUISE_POD_READY);
        let changed = condition.and_then(|found| Some(found.last_transition.as_ref()?.0));
        Gate::read(condition.map(|found| (found.is_true(), found.message.as_str())))
            .changed_at(changed)
    });
    let exit = Exit {
        labels,
        finalizers: meta
            .finalizers
            .iter()
            .flatten()
            .map(|name| name.as_str().into())
            .collect(),
        preparing,
        gate: gate.map(Box::new),
    };
    match before.filter(|before| ***before == exit) {
        Some(before) => before.clone(),
        None => share(&mut shared.exits, exit.into()),
    }
}

fn ota_condition(condition: &k8s::Condition) -> OtaCondition {
    let status = condition.is_true();
    OtaCondition {
        status,
        waits: !status && ["", WAIT_PULL_IMAGE].contains(&condition.reason.as_str()),
        repelled: condition.reason == UNTOLERATED_TAINT,
        revision: revision_in(&condition.message).map(Revision::from),
        failure: failure(condition).map(Arc::new),
    }
}

/// Returns the failures of image pulls in the condition `PodImageReady`.
///
/// Its transition time is the time of the first request. Its probe time is the end of the last attempt.
fn failure(condition: &k8s::Condition) -> Option<PullFailure> {
    let failed = condition.last_probe.as_ref()?.0;
    let parts = condition.message.split_once(PULL_FAILED);
    let why = parts.map_or("", |(_, why)| {
        why.rsplit_once(" (").map_or(why, |(why, _)| why)
    });
    (!condition.is_true()).then(|| PullFailure {
        asked: condition
            .last_transition
            .as_ref()
            .map_or(failed, |time| time.0),
        failed,
        why: why.into(),
    })
}

/// Returns the state that an update in place stored in the pod; `None` if there is none or it is invalid.
fn state(pod: &k8s::Pod) -> Option<InPlaceState> {
    InPlaceState::from_annotations(pod.metadata.annotations.as_ref()?)
}

/// Returns the status of the readiness gate for updates in place; `None` if the pod doesn't have this gate.
fn in_place_gate(pod: &k8s::Pod) -> Option<bool> {
    let gate = pod.condition(IN_PLACE_UPDATE_READY);
    let is_open = gate.is_some_and(k8s::Condition::is_true);
    pod.spec.has_gate(IN_PLACE_UPDATE_READY).then_some(is_open)
}

fn in_place(
    pod: &k8s::Pod,
    state: Option<&InPlaceState>,
    before: Option<&Shared<InPlace>>,
    shared: &mut SharedParts,
) -> Shared<InPlace> {
    let known = before.filter(|before| before.containers.iter().map(reported).eq(containers(pod)));
    let containers: Arc<[RunningContainer]> = match known {
        Some(before) => before.containers.clone(),
        None => {
            let read = containers(pod).map(|container| container.read());
            share(&mut shared.containers, read.collect())
        }
    };
    let annotations = pod.metadata.annotations.as_ref();
    let hash = pod
        .label(REVISION_HASH_LABEL)
        .filter(|_| !annotations.is_some_and(is_half_written));
    let in_place = InPlace {
        revision: hash.map(Into::into),
        is_over: pod.is_over(),
        update: state.map(|state| state.progress(&containers, is_seen(pod))),
        unfinished: state.map_or_else(Default::default, |state| {
            state.unfinished(&containers, is_seen(pod))
        }),
        reverted_from: state.and_then(|state| Some(state.reverted_from.as_deref()?.into())),
        gate: in_place_gate(pod),
        containers,
    };
    match before.filter(|before| ***before == in_place) {
        Some(before) => before.clone(),
        None => share(&mut shared.in_places, in_place.into()),
    }
}

/// Fields of a container as the API server sent them. They are compared with the record first, because most have not changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ReportedContainer<'a> {
    name: &'a str,
    image: &'a str,
    reported: &'a str,
    image_id: &'a str,
    restarts: u32,
    is_init: bool,
}

impl<'a> ReportedContainer<'a> {
    fn new(status: &'a k8s::ContainerStatus, image: &'a str, is_init: bool) -> Self {
        Self {
            name: &status.name,
            image,
            reported: &status.image,
            image_id: &status.image_id,
            restarts: u32::try_from(status.restart_count).unwrap_or_default(),
            is_init,
        }
    }

    fn read(self) -> RunningContainer {
        RunningContainer {
            name: self.name.into(),
            image: self.image.into(),
            reported: self.reported.into(),
            image_id: self.image_id.into(),
            restarts: self.restarts,
            is_init: self.is_init,
        }
    }
}

fn reported(known: &RunningContainer) -> ReportedContainer<'_> {
    ReportedContainer {
        name: &known.name,
        image: &known.image,
        reported: &known.reported,
        image_id: &known.image_id,
        restarts: known.restarts,
        is_init: known.is_init,
    }
}

fn containers(pod: &k8s::Pod) -> impl Iterator<Item = ReportedContainer<'_>> {
    let asked = pod.spec.containers.iter().map(|asked| {
        let mut statuses = pod.status.container_statuses.iter();
        let status = statuses.find(|status| status.name == asked.name);
        let nothing = ReportedContainer {
            name: &asked.name,
            image: &asked.image,
            reported: "",
            image_id: "",
            restarts: 0,
            is_init: false,
        };
        status.map_or(nothing, |status| {
            ReportedContainer::new(status, &asked.image, false)
        })
    });
    let restarted = pod.status.init_container_statuses.iter();
    let restarted = restarted.filter(|status| status.restart_count > 0);
    asked.chain(restarted.map(|status| ReportedContainer::new(status, "", true)))
}
