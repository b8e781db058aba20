//! Timeouts: the times after which a step counts as blocked, and the times in the evaluation of failures.

use std::time::Duration;

use crate::core::settings::Strategy;
use crate::core::settings::failure_window::DEFAULT_FAILURE_WINDOW;
use crate::core::verdict::Obstruction;

/// Time for a kubelet to end a pod and report it, in addition to the pod's grace period or after the node's return.
pub const MARGIN: Duration = Duration::from_secs(60);

/// Time that a pod may be missing. If nothing rejects the pod, the native controller creates it within two seconds.
pub(crate) const MISSING_GRACE: Duration = Duration::from_secs(15);

/// Time for the native controller to process a change. A second is usual. A failover or upgrade of its replicas takes minutes.
pub(crate) const BEHIND_PATIENCE: Duration = Duration::from_secs(300);

/// Time after which a node without progress counts as stalled. Kubernetes has the same default for Deployments
/// (`progressDeadlineSeconds`).
pub(super) const PROGRESS_DEADLINE: Duration = Duration::from_secs(600);

/// Time that a rollout may wait for a disruption budget before it is reported as stalled.
pub const BUDGET_PATIENCE: Duration = Duration::from_secs(600);

/// Returns the time that a rollout may wait for a disruption budget before it is reported as stalled.
///
/// The time is zero if the budget contains a mistake and can therefore never allow an eviction.
pub(super) fn budget_patience(obstruction: Obstruction) -> Duration {
    if obstruction.is_mistake() {
        Duration::ZERO
    } else {
        BUDGET_PATIENCE
    }
}

/// Time after which a rollout that waits only for rejected writes is stalled. It is long enough for a restart of a webhook.
pub const REFUSAL_PATIENCE: Duration = Duration::from_secs(15);

/// Time after which a pending hook is reported. The pod keeps waiting for the hook. Kruise waits without a report.
pub const HOOK_PATIENCE: Duration = Duration::from_secs(600);

/// Longest time between two node losses that count as simultaneous.
///
/// Kubelets renew their leases every 10 s, so nodes that are cut off at the same moment turn NotReady within 10 s of each other.
pub(in crate::core) const LOST_TOGETHER: Duration = Duration::from_secs(10);

/// Time from the loss of a node to the decision about its cause.
///
/// Kubelets renew their leases every 10 s, and Kubernetes checks them every 5 s. So all losses of one outage are detected within
/// about 20 s. By then, the guard can compare the losses of nodes whose pods the rollout changed with the losses of other nodes.
pub(in crate::core) const EVALUATED_AFTER: Duration = Duration::from_secs(30);

/// Longest time between two losses of a flapping node: a node that turns NotReady again and again.
///
/// A flapping node delays other nodes only once, for [`EVALUATED_AFTER`] from its first loss after the rollout touched it. Without
/// this limit, one kubelet that changes its status every few seconds could block a rollout.
pub(crate) const FLAPS_WITHIN: Duration = Duration::from_secs(300);

/// Time from each further loss of a flapping node to the decision about its cause.
///
/// Losses of other nodes in the same outage are detected within that time (see [`EVALUATED_AFTER`]). A rebooting node takes longer
/// to return, so it is still NotReady when the decision is made.
pub(in crate::core) const EVALUATED_AGAIN_AFTER: Duration = Duration::from_secs(20);

/// Returns the time after an update within which a failure of the node counts against the revision.
pub(in crate::core) fn failure_window(strategy: &Strategy) -> Duration {
    let least = DEFAULT_FAILURE_WINDOW.max(strategy.min_ready);
    strategy.failure_window.unwrap_or(least)
}

/// Time after its creation during which an unavailable pod takes a slot, even if the wave of its node is not open.
///
/// The reason is that the controller may have deleted the pod's predecessor.
pub(super) const STARTING: Duration = Duration::from_secs(300);
