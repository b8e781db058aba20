//! Messages about images that nodes pre-pull.

use k8s_openapi::jiff::Timestamp;

use super::pods::{Answer, NodeView, newest};
use crate::core::action::PULLS_AT_ONCE;
use crate::core::engine::predownload::Predownloading;
use crate::core::fleet::OtaCondition;
use crate::core::instant;
use crate::core::names::{PRE_PULL_POD, PULL_IMAGE_FAIL};
use crate::core::plan::PullsAwait;
use crate::core::remedy::other_revision;
use crate::core::settings::image_predownload_min_updated_ready_pods::IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS;
use crate::core::settings::image_predownload_parallelism::IMAGE_PREDOWNLOAD_PARALLELISM;
use crate::core::settings::predownload::PREDOWNLOAD;
use crate::core::verdict::PullStage;
use crate::core::words::{joined, plural};

/// Returns true if the images were not pulled because the Job or its pod could not be created.
pub fn is_about_jobs(why: &str) -> bool {
    why.contains("jobs.batch") || why.contains(" is forbidden: ")
}

/// Returns the message and the next step for a requested pull that no pod has begun yet.
pub fn unbegun(namespace: &str) -> (String, String) {
    (
        "is outdated and waits to pull the new images; no pod pulls them yet".to_owned(),
        format!(
            "The pull begins automatically. At most {PULLS_AT_ONCE} pulls run at once in the cluster, shared between namespaces. \
             Pulls of this namespace: kubectl -n {namespace} get pods -l {PRE_PULL_POD}"
        ),
    )
}

impl PullsAwait {
    /// Returns how many pods must be Ready before pre-pulls begin. The number of Ready pods is omitted, because it changes with
    /// every pod.
    pub(super) fn words(&self) -> String {
        format!(
            "image pre-pulls begin when {} {} of the new revision {} Ready",
            self.needed,
            plural(self.needed, "pod", "pods"),
            plural(self.needed, "is", "are")
        )
    }
}

impl<'a> NodeView<'a> {
    /// Describes a node that must pull its images before its update.
    pub(super) fn pull_pending(self, stage: PullStage) -> Answer<'a> {
        let strategy = self.rollout.strategy;
        let again = if stage.has_failed() { " again" } else { "" };
        let (reason, because) = match stage {
            PullStage::Queued { .. } => {
                let limit =
                    Predownloading::from_strategy(strategy).map(|settings| settings.parallelism);
                let limit = limit.map(|share| share.to_string()).unwrap_or_default();
                (
                    "Queued",
                    format!(
                        "is outdated and waits to pull the new images{again} ({IMAGE_PREDOWNLOAD_PARALLELISM}: {limit})"
                    ),
                )
            }
            PullStage::AwaitingReady => (
                "AwaitingReady",
                format!(
                    "is outdated; its new images are pulled later{}",
                    self.awaited_pods()
                        .map_or_else(String::new, |awaited| format!(": {awaited}"))
                ),
            ),
            PullStage::UnderWay { .. } => (
                "Asked",
                format!("is outdated and is pulling the new images{again}"),
            ),
            PullStage::Failed { retry } => (
                PULL_IMAGE_FAIL,
                format!(
                    "is outdated, and the new images could not be pulled{}; next attempt after {}",
                    self.pull_failure(),
                    instant::words(retry)
                ),
            ),
        };
        Answer::new(because, move || self.after_pull(stage)).reason(reason)
    }

    fn after_pull(&self, stage: PullStage) -> String {
        let (rollout, strategy) = (self.rollout, self.rollout.strategy);
        let namespace = rollout.key.namespace;
        match stage {
            PullStage::Queued { .. } => format!(
                "the pull begins automatically, after pulls on other nodes. To pull on more nodes at once, raise {}",
                strategy.place_of(IMAGE_PREDOWNLOAD_PARALLELISM)
            ),
            PullStage::AwaitingReady => format!(
                "the pull begins automatically, when enough new pods are Ready. To pull earlier, lower {}",
                strategy.place_of(IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS)
            ),
            PullStage::UnderWay { .. } => {
                let uid = newest(self.node).map(|pod| pod.uid.to_string());
                format!(
                    "the update follows automatically. See the pull: kubectl -n {namespace} get pods -l {PRE_PULL_POD}={}",
                    uid.unwrap_or_default()
                )
            }
            PullStage::Failed { .. } => {
                let best_effort =
                    format!("to update without the images, set {PREDOWNLOAD}: best-effort");
                let (cause, back) = if is_about_jobs(&self.pull_failure()) {
                    ("change what rejects the Job".to_owned(), None)
                } else {
                    (
                        format!(
                            "correct the image, its pull secret or the registry. Details: {}",
                            self.describe_pod()
                        ),
                        Some(other_revision(rollout.fleet, &rollout.key)),
                    )
                };
                joined(
                    ["retried automatically".to_owned(), best_effort, cause]
                        .into_iter()
                        .chain(back),
                )
            }
        }
    }

    /// Describes a node that waits for its owner, with the result of a requested pull.
    pub(super) fn awaits_owner(self) -> Answer<'a> {
        let because = "is outdated; its owner decides when to upgrade".to_owned();
        let next = move || self.upgrade();
        if self.has_failed_pull() {
            let why = self.pull_failure();
            Answer::new(
                format!("{because}; the requested images could not be pulled{why}"),
                next,
            )
            .reason(PULL_IMAGE_FAIL)
        } else {
            Answer::new(because, next)
        }
    }

    fn upgrade(&self) -> String {
        let namespace = self.rollout.key.namespace;
        let Some(pod) = newest(self.node) else {
            return String::new();
        };
        let name = &pod.name;
        let pull = match &pod.image_ready {
            Some(_) if self.has_failed_pull() => Some(format!(
                "an upgrade without --force is rejected until a pull succeeds. Retry the pull: yurt-ds ctl imagepull {namespace}/{name} --wait"
            )),
            Some(image) if !image.status => {
                Some("an upgrade is rejected until the requested image pull is done".to_owned())
            }
            _ => None,
        };
        let upgrade = format!(
            "upgrade on the node: yurt-ds ctl upgrade {namespace}/{name}, or curl -X POST \
             http://127.0.0.1:10267/openyurt.io/v1/namespaces/{namespace}/pods/{name}/upgrade"
        );
        let delete = format!(
            "without the agent's checks, from any machine: kubectl -n {namespace} delete pod {name}"
        );
        joined(pull.into_iter().chain([upgrade, delete]))
    }

    /// Returns the node's newest request to pull images.
    fn image(&self) -> Option<&'a OtaCondition> {
        newest(self.node)?.image_ready.as_deref()
    }

    /// Returns true if the last requested pull failed and no new attempt is running.
    pub(super) fn has_failed_pull(&self) -> bool {
        self.image()
            .is_some_and(|image| !image.status && !image.waits)
    }

    /// Returns a clause about the images of a node that doesn't have to wait for them; `None` if the images were not requested.
    pub(super) fn images(&self) -> Option<String> {
        Predownloading::from_strategy(self.rollout.strategy)?;
        let image = self.image();
        match image.filter(|image| image.revision.as_ref() == self.rollout.revision()) {
            Some(image) if image.status => Some("; the new images are pulled".to_owned()),
            Some(image) if image.waits => Some("; the new images are being pulled".to_owned()),
            Some(_) => Some(format!(
                "; the new images could not be pulled{}",
                self.pull_failure()
            )),
            None => self.awaited_pods().map(|awaited| format!("; {awaited}")),
        }
    }

    /// Says how many Ready pods are required before nodes pre-pull; `None` if there are enough.
    fn awaited_pods(&self) -> Option<String> {
        let strategy = self.rollout.strategy;
        let awaited = self.rollout.plan.pulls_await?;
        let name = strategy.name_of(IMAGE_PREDOWNLOAD_MIN_UPDATED_READY_PODS);
        let share = strategy.image_predownload_min_updated_ready_pods;
        Some(format!(
            "{}, {} now ({name}: {share})",
            awaited.words(),
            awaited.ready
        ))
    }

    /// Returns the time at which the images were first requested; `None` before the first failed attempt, which records it.
    pub(super) fn pull_since(&self) -> Option<Timestamp> {
        Some(self.image()?.failure.as_ref()?.asked)
    }

    fn pull_failure(&self) -> String {
        let failure = self.image().and_then(|image| image.failure.as_ref());
        let why = failure.map_or("", |failure| &*failure.why);
        if why.is_empty() {
            String::new()
        } else {
            format!(": {why}")
        }
    }
}
