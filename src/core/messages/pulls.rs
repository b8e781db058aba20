//! Messages about images that nodes pre-pull.

use k8s_openapi::jiff::Timestamp;

use super::groups::is_about_jobs;
use super::pods::newest;
use super::rollout::RolloutView;
use crate::core::action::PULLS_AT_ONCE;
use crate::core::engine::predownload::Predownloading;
use crate::core::fleet::Node;
use crate::core::instant;
use crate::core::names::{POD_IMAGE_READY, PRE_PULL_POD, PULL_IMAGE_FAIL};
use crate::core::plan::PullsAwait;
use crate::core::remedy::way_on;
use crate::core::settings::image_predownload_min_updated_ready_pods::IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS;
use crate::core::settings::image_predownload_parallelism::IMAGE_PREDOWNLOAD_PARALLELISM;
use crate::core::settings::predownload::PREDOWNLOAD;
use crate::core::verdict::PullStage;
use crate::core::words::plural;

/// Describes a node that must pull its images before its update. The second text follows "node NAME …".
pub(super) fn pending(
    rollout: &RolloutView<'_>,
    node: &Node,
    stage: PullStage,
) -> (Option<String>, String) {
    let parallelism =
        Predownloading::from_strategy(rollout.strategy).map(|settings| settings.parallelism);
    let limit = parallelism.map(|share| share.to_string());
    let limit = limit.unwrap_or_default();
    let again = if stage.has_failed() { " once more" } else { "" };
    let (word, because) = match stage {
        PullStage::Queued { .. } => (
            "Queued",
            format!(
                "is outdated and waits for its turn to pull its images{again} ({IMAGE_PREDOWNLOAD_PARALLELISM}: {limit})"
            ),
        ),
        PullStage::AwaitingReady => (
            "AwaitingReady",
            format!(
                "is outdated and waits for others, which go first without their images{}",
                early(rollout)
            ),
        ),
        PullStage::UnderWay { .. } => (
            "Asked",
            format!("is outdated and is asked to pull its images{again}"),
        ),
        PullStage::Failed { retry } => (
            PULL_IMAGE_FAIL,
            format!(
                "is outdated, and its images could not be pulled{}; next attempt after {}",
                why(node),
                instant::words(retry)
            ),
        ),
    };
    (Some(word.to_owned()), because)
}

/// Describes a node that waits for its node owner, with the result of a requested pull.
pub(super) fn awaiting_owner(node: &Node) -> (Option<String>, String) {
    let failed = has_failed(node);
    let pull = if failed {
        format!(
            "; the images that were asked for could not be pulled{}",
            why(node)
        )
    } else {
        String::new()
    };
    (
        failed.then(|| PULL_IMAGE_FAIL.to_owned()),
        format!("is outdated; its owner decides when to upgrade (OTA){pull}"),
    )
}

/// Returns true if the last requested pull failed and no new attempt is in progress.
pub(super) fn has_failed(node: &Node) -> bool {
    let image = newest(node).and_then(|pod| pod.image_ready.as_ref());
    image.is_some_and(|image| !image.status && !image.waits)
}

/// Returns a clause about the images of a node whose update doesn't wait for them; empty if they were not requested.
pub(super) fn aside(rollout: &RolloutView<'_>, node: &Node) -> String {
    if Predownloading::from_strategy(rollout.strategy).is_none() {
        return String::new();
    }
    let image = newest(node).and_then(|pod| pod.image_ready.as_ref());
    match image.filter(|image| image.revision.as_ref() == rollout.revision()) {
        Some(image) if image.status => "; its images are there".to_owned(),
        Some(image) if image.waits => "; it is asked to pull its images meanwhile".to_owned(),
        Some(_) => format!("; its images could not be pulled{}", why(node)),
        None => early(rollout),
    }
}

/// Returns a clause about the Ready pods that are required before nodes pre-pull; empty if there are enough.
fn early(rollout: &RolloutView<'_>) -> String {
    let told = |awaits: PullsAwait| {
        let name = rollout
            .strategy
            .name_of(IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS);
        let share = rollout.strategy.image_predownload_min_updated_ready_pods;
        format!("{}, {} now ({name}: {share})", awaits.aside(), awaits.ready)
    };
    rollout.plan.pulls_await.map_or_else(String::new, told)
}

impl PullsAwait {
    /// Returns a clause about the required Ready pods. It omits the current number of Ready pods, which changes with every pod.
    pub(super) fn aside(&self) -> String {
        format!(
            "; no node pulls its images ahead before {} {} of the new revision {} Ready",
            self.needed,
            plural(self.needed, "pod", "pods"),
            plural(self.needed, "is", "are")
        )
    }
}

/// Returns the time at which the images were requested. It is only known after a failed attempt, which records it.
pub(super) fn since(node: &Node) -> Option<Timestamp> {
    let image = newest(node).and_then(|pod| pod.image_ready.as_ref());
    let failure = image.and_then(|image| image.failure.as_ref());
    failure.map(|failure| failure.asked)
}

/// Returns the remedy for a node that waits for its images.
pub(super) fn remedy(rollout: &RolloutView<'_>, node: &Node, stage: PullStage) -> String {
    let namespace = &rollout.key.namespace;
    let pod = newest(node).map_or("POD", |pod| pod.name.as_str());
    let uid = newest(node).map(|pod| pod.uid.to_string());
    let uid = uid.unwrap_or_default();
    match stage {
        PullStage::Queued { .. } => format!(
            "It goes on by itself. To have more nodes pull at once, raise {}",
            rollout.strategy.place_of(IMAGE_PREDOWNLOAD_PARALLELISM)
        ),
        PullStage::AwaitingReady => format!(
            "It goes on by itself when so many are Ready. To have nodes pull earlier, lower {}",
            rollout
                .strategy
                .place_of(IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS)
        ),
        PullStage::UnderWay { .. } => format!(
            "The rollout continues automatically when they are there. The pull: kubectl -n {namespace} get pods -l {PRE_PULL_POD}={uid}"
        ),
        PullStage::Failed { .. } if is_about_jobs(&why(node)) => format!(
            "It is tried again by itself; mend what refuses the Job, or set {PREDOWNLOAD}: best-effort to go on without"
        ),
        PullStage::Failed { .. } => format!(
            "It is tried again by itself; correct the image, its pull secret or the registry (condition {POD_IMAGE_READY}: \
             kubectl -n {namespace} describe pod {pod}), or {}. To go on without the images, set {PREDOWNLOAD}: best-effort",
            way_on(rollout.fleet, &rollout.key)
        ),
    }
}

/// Returns the message and the next step for a node with a requested pull but no puller pod yet.
pub fn unbegun(namespace: &str) -> (String, String) {
    (
        "is outdated and waits for its turn to pull its images; no pod pulls them yet".to_owned(),
        format!(
            "The pull begins automatically when its turn comes. At most {PULLS_AT_ONCE} pulls run at once in the cluster, \
             shared between namespaces. Pulls of this namespace: kubectl -n {namespace} get pods -l {PRE_PULL_POD}"
        ),
    )
}

fn why(node: &Node) -> String {
    let image = newest(node).and_then(|pod| pod.image_ready.as_ref());
    let failure = image.and_then(|image| image.failure.as_ref());
    match failure.map_or("", |failure| &*failure.why) {
        "" => String::new(),
        why => format!(": {why}"),
    }
}
