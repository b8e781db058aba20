//! The two pod conditions of OTA mode: who gets them, and who loses them (spec/openyurt-upgrade-model.md §1.6, §5).

use super::budget::BATCH;
use super::fleet::{Fleet, OtaCondition, Pod, PodRevision, Revision};
use super::names::{POD_IMAGE_READY, POD_NEED_UPGRADE};
use super::plan::{Action, PodRef};

/// What to write so that every pod tells the owner of its node whether `target` waits for it.
pub(super) fn announce(fleet: &Fleet, target: &Revision) -> Vec<Action> {
    let mut actions = Vec::new();
    for pod in fleet
        .nodes
        .iter()
        .flat_map(|node| &node.pods)
        .filter(|pod| !pod.terminating)
    {
        if actions.len() >= BATCH {
            break; // the rest follows when these are done
        }
        let needed = match pod.revision {
            PodRevision::Current => false,
            PodRevision::Outdated => true,
            PodRevision::Unknown => continue,
        };
        let present = pod.need_upgrade.as_ref();
        let flips = present.is_none_or(|condition| condition.status != needed);
        if flips || present.and_then(|condition| condition.revision.as_ref()) != Some(target) {
            actions.push(Action::SetNeedUpgrade {
                pod: reference(pod),
                needed,
                revision: target.clone(),
                flips,
                drops_image: is_stale(pod, target),
            });
        } else if is_stale(pod, target) {
            actions.push(Action::RemoveConditions {
                pod: reference(pod),
                types: vec![POD_IMAGE_READY],
            });
        }
    }
    actions
}

/// A pre-pull of another revision than the target must not block the upgrade for ever (spec §5.2).
fn is_stale(pod: &Pod, target: &Revision) -> bool {
    let names_other = |condition: &OtaCondition| {
        condition
            .revision
            .as_ref()
            .map(|revision| revision != target)
    };
    match &pod.image_ready {
        None => false,
        // A failed pull names its Job, not a revision: it belongs to the revision that was asked for then.
        Some(image) => names_other(image)
            .or_else(|| pod.need_upgrade.as_ref().and_then(names_other))
            .unwrap_or(false),
    }
}

/// Whether the pod carries one of the two conditions.
pub(super) fn is_announced(pod: &Pod) -> bool {
    pod.need_upgrade.is_some() || pod.image_ready.is_some()
}

/// What to write so that no pod of a DaemonSet that left OTA mode still invites an upgrade.
pub(super) fn withdraw<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<Action> {
    let mut actions = Vec::new();
    for pod in pods.filter(|pod| !pod.terminating && is_announced(pod)) {
        if actions.len() >= BATCH {
            break; // the rest follows when these are done
        }
        let present = [
            (POD_NEED_UPGRADE, pod.need_upgrade.is_some()),
            (POD_IMAGE_READY, pod.image_ready.is_some()),
        ];
        let types: Vec<_> = present
            .iter()
            .filter(|(_, present)| *present)
            .map(|(name, _)| *name)
            .collect();
        actions.push(Action::RemoveConditions {
            pod: reference(pod),
            types,
        });
    }
    actions
}

/// The pod as it was judged.
pub(super) fn reference(pod: &Pod) -> PodRef {
    PodRef {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        resource_version: pod.resource_version.clone(),
    }
}
