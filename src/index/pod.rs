//! What is remembered of a Pod.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api;
use crate::core::names::{
    POD_IMAGE_READY, POD_NEED_UPGRADE, PULL_FAILED, REVISION_HASH_LABEL, TEMPLATE_GENERATION_LABEL,
    WAIT_PULL_IMAGE,
};
use crate::core::{
    NodeName, OtaCondition, Pod, PodRevision, PodUid, PullFailure, Revision, Trouble, revision_in,
};

/// A pod of a DaemonSet; everything but its revision is settled here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodRecord {
    /// The pod as core sees it; `revision` and `number` are filled in when a fleet is made.
    pub(super) pod: Pod,
    /// The label `controller-revision-hash`.
    pub(super) hash: Option<Arc<str>>,
    /// The label `pod-template-generation`.
    pub(super) generation: Option<Arc<str>>,
    stamped: Option<Timestamp>,
}

impl PodRecord {
    /// Reads a pod; `before` is what was known of it.
    pub(super) fn read(
        pod: &api::Pod,
        before: Option<&Self>,
        now: Timestamp,
    ) -> Option<(NodeName, Self)> {
        let meta = &pod.metadata;
        let label = |key| {
            meta.labels
                .as_ref()
                .and_then(|labels| labels.get(key))
                .map(|text| text.as_str().into())
        };
        let condition = |kind| {
            pod.status
                .conditions
                .iter()
                .find(|condition| condition.kind == kind)
        };
        let created = meta.creation_timestamp.as_ref().map_or(now, |time| time.0);
        let ready = condition("Ready").filter(|condition| condition.status == "True");
        let stamped = ready
            .and_then(|condition| condition.last_transition.as_ref())
            .map(|time| time.0);
        let ready_since = ready.map(|_| ready_since(before, stamped, created, now));
        let record = Self {
            pod: Pod {
                name: meta.name.as_deref()?.into(),
                uid: meta.uid.as_deref()?.into(),
                resource_version: meta.resource_version.as_deref().unwrap_or_default().into(),
                created,
                revision: PodRevision::Unknown,
                number: 0,
                terminating: meta.deletion_timestamp.is_some(),
                ready_since,
                started: pod.status.start_time.as_ref().map(|time| time.0),
                trouble: trouble(&pod.status),
                need_upgrade: condition(POD_NEED_UPGRADE).map(ota_condition),
                image_ready: condition(POD_IMAGE_READY).map(ota_condition),
            },
            hash: label(REVISION_HASH_LABEL),
            generation: label(TEMPLATE_GENERATION_LABEL),
            stamped,
        };
        Some((pod.spec.target_node().unwrap_or_default().into(), record))
    }

    /// Whether nothing but the version differs.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let mut pod = self.pod.clone();
        pod.resource_version = other.pod.resource_version.clone();
        pod == other.pod && self.hash == other.hash && self.generation == other.generation
    }

    /// Since when it is Ready.
    pub(super) fn ready_since(&self) -> Option<Timestamp> {
        self.pod.ready_since
    }

    /// Its UID.
    pub(super) fn uid(&self) -> &PodUid {
        &self.pod.uid
    }
}

/// Since when a pod that is Ready is so. Never before the API server made it, never in the future.
fn ready_since(
    before: Option<&PodRecord>,
    stamped: Option<Timestamp>,
    created: Timestamp,
    now: Timestamp,
) -> Timestamp {
    match before {
        Some(before) if before.stamped == stamped => before.pod.ready_since.unwrap_or(now),
        Some(_) => now,
        None => stamped.map_or(now, |at| at.max(created).min(now)),
    }
}

fn ota_condition(condition: &api::Condition) -> OtaCondition {
    let status = condition.status == "True";
    OtaCondition {
        status,
        waits: !status && ["", WAIT_PULL_IMAGE].contains(&condition.reason.as_str()),
        revision: revision_in(&condition.message).map(Revision::from),
        failure: failure(condition).map(Arc::new),
    }
}

/// What is written down of attempts that failed: when the first was asked for stands in the time of the transition, when
/// the last ended in the time of the probe.
fn failure(condition: &api::Condition) -> Option<PullFailure> {
    let failed = condition.last_probe.as_ref()?.0;
    let said = condition.message.split_once(PULL_FAILED);
    let why = said.map_or("", |(_, why)| {
        why.rsplit_once(" (").map_or(why, |(why, _)| why)
    });
    (condition.status != "True").then(|| PullFailure {
        asked: condition
            .last_transition
            .as_ref()
            .map_or(failed, |time| time.0),
        failed,
        why: why.into(),
    })
}

/// What keeps a container from coming up: a reason to wait, or that it ended.
fn trouble(status: &api::PodStatus) -> Option<Trouble> {
    let containers = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses);
    containers
        .filter(|container| !container.ready)
        .find_map(|container| {
            let waiting = container.state.waiting.as_ref();
            let waiting = waiting.filter(|state| {
                !["", "ContainerCreating", "PodInitializing"].contains(&state.reason.as_str())
            });
            let mut ended = [&container.state, &container.last_state]
                .into_iter()
                .filter_map(|state| state.terminated.as_ref());
            let ended = ended.find(|state| state.exit_code != Some(0));
            let reason = waiting.or(ended)?.reason.as_str().into();
            Some(Trouble {
                reason,
                restarts: u32::try_from(container.restart_count).unwrap_or_default(),
            })
        })
}
