//! Pod conditions of the strategy OTA, under which node owners update the pods (docs/reference/node-api.md).

use crate::core::action::{Action, BATCH, Pull, PullInitiator, StaleImage};
use crate::core::fleet::{Fleet, OtaCondition, Pod};
use crate::core::id::{PodRevision, Revision};
use crate::core::names::{CONDITION_MESSAGE_PREFIX, POD_IMAGE_READY, POD_NEED_UPGRADE};

/// Returns the message with which `PodNeedUpgrade` and `PodImageReady` name a revision.
pub fn message_of(revision: &str) -> String {
    format!("{CONDITION_MESSAGE_PREFIX}{revision}")
}

/// Returns the revision that a condition's message names, which may be empty. `None` if the message has another form.
///
/// The text of [`message_of`] can be the whole message, or stand in parentheses at its end.
pub fn revision_in(message: &str) -> Option<&str> {
    let at_the_end = || {
        message
            .strip_suffix(')')?
            .rsplit_once('(')
            .map(|(_, end)| end)
    };
    message
        .strip_prefix(CONDITION_MESSAGE_PREFIX)
        .or_else(|| at_the_end()?.strip_prefix(CONDITION_MESSAGE_PREFIX))
        .map(str::trim)
}

/// Returns the writes of `PodNeedUpgrade`, which shows the node owner if an update to `target` is available.
pub(super) fn announce(fleet: &Fleet, target: &Revision) -> Vec<Action> {
    let mut actions = Vec::new();
    let pods = fleet.nodes.iter().flat_map(|node| {
        let repels = node.is_repelled();
        node.pods.iter().map(move |pod| (repels, pod))
    });
    for (repels, pod) in pods.filter(|(_, pod)| !pod.terminating) {
        if actions.len() >= BATCH {
            break; // the remaining pods follow after these writes
        }
        let needed = match pod.revision {
            PodRevision::Current => false,
            PodRevision::Outdated => true,
            PodRevision::Unknown => continue,
        };
        let present = pod.need_upgrade.as_ref();
        let flips = present.is_none_or(|condition| condition.status != needed);
        let repelled = needed && repels;
        let is_told = present.is_some_and(|condition| {
            condition.revision.as_ref() == Some(target) && condition.repelled == repelled
        });
        if flips || !is_told {
            actions.push(Action::SetNeedUpgrade {
                pod: pod.reference(),
                needed,
                revision: target.clone(),
                flips,
                repelled,
                stale_image: stale(pod, target),
            });
        } else if let Some(stale) = stale(pod, target) {
            let pod = pod.reference();
            actions.push(match stale {
                StaleImage::Drop => Action::RemoveConditions {
                    pod,
                    types: vec![POD_IMAGE_READY],
                },
                StaleImage::AskAgain => Action::AskForImages {
                    pod,
                    revision: target.clone(),
                    anew: false,
                },
            });
        }
    }
    actions
}

/// Returns the correction of an obsolete `PodImageReady`; `None` if the condition is correct.
///
/// A pre-pull of an older revision would block the upgrade indefinitely. A pod that needs no upgrade needs no pull.
fn stale(pod: &Pod, target: &Revision) -> Option<StaleImage> {
    let image = pod.image_ready.as_ref()?;
    let outdated = pod.revision == PodRevision::Outdated;
    let asks = image.waits && outdated;
    if asks {
        return (image.revision.as_ref() != Some(target)).then_some(StaleImage::AskAgain);
    }
    let names_other = |condition: &OtaCondition| {
        condition
            .revision
            .as_ref()
            .map(|revision| revision != target)
    };
    // The message of a failed pull names its Job and no revision. Then `PodNeedUpgrade` names the revision that was pulled.
    let of_other = names_other(image).or_else(|| pod.need_upgrade.as_deref().and_then(names_other));
    (image.waits || of_other == Some(true)).then_some(StaleImage::Drop)
}

/// Returns the pulls that node owners requested and that are not finished. A request for another revision is skipped, because
/// [`announce`] corrects it first.
pub(super) fn pulls(fleet: &Fleet, target: &Revision, paused: bool) -> Vec<Pull> {
    let pulls = fleet.nodes.iter().flat_map(|node| {
        let asking = node.pods.iter().filter(|pod| asks_for(pod, target));
        asking.map(|pod| Pull {
            pod: pod.reference(),
            node: node.name.clone(),
            revision: target.clone(),
            initiator: PullInitiator::Owner,
            may_start: node.is_ready() && !paused,
            may_report: true,
        })
    });
    pulls.collect()
}

fn asks_for(pod: &Pod, target: &Revision) -> bool {
    let names = |condition: &&OtaCondition| condition.revision.as_ref() == Some(target);
    let needed = pod.need_upgrade.as_deref().filter(names);
    let asked = pod.image_ready.as_deref().filter(names);
    !pod.terminating
        && pod.revision == PodRevision::Outdated
        && needed.is_some_and(|condition| condition.status)
        && asked.is_some_and(|condition| condition.waits)
}

/// Returns true if the pod has `PodNeedUpgrade` or `PodImageReady`.
pub(super) fn is_announced(pod: &Pod) -> bool {
    pod.need_upgrade.is_some() || pod.image_ready.is_some()
}

/// Returns the writes that remove both conditions from the pods of a DaemonSet that no longer uses OTA.
pub(super) fn withdraw<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<Action> {
    let all = pods.map(|pod| (pod, false));
    withdraw_but_images(all)
}

/// Returns the same writes as [`withdraw`], except that pods with `true` keep their `PodImageReady`.
pub(super) fn withdraw_but_images<'a>(pods: impl Iterator<Item = (&'a Pod, bool)>) -> Vec<Action> {
    let mut actions = Vec::new();
    for (pod, keeps_image) in pods.filter(|(pod, _)| !pod.terminating) {
        let present = [
            (POD_NEED_UPGRADE, pod.need_upgrade.is_some()),
            (POD_IMAGE_READY, pod.image_ready.is_some() && !keeps_image),
        ];
        let types: Vec<_> = present
            .iter()
            .filter(|(_, present)| *present)
            .map(|(name, _)| *name)
            .collect();
        if types.is_empty() {
            continue;
        }
        if actions.len() >= BATCH {
            break; // the remaining pods follow after these writes
        }
        actions.push(Action::RemoveConditions {
            pod: pod.reference(),
            types,
        });
    }
    actions
}

#[cfg(test)]
mod tests;
