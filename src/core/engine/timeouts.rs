//! Timeouts: times after which a step counts as blocked, and times for the evaluation of failures.

use std::time::Duration;

use crate::core::settings::Strategy;
use crate::core::settings::failure_window::DEFAULT_FAILURE_WINDOW;
use crate::core::verdict::Obstruction;

/// Time for a kubelet to end a pod and report it, in addition to the pod's grace period or after the node's return.
pub const MARGIN: Duration = Duration::from_secs(60);

/// Time that a pod may be missing. The native controller creates it within two seconds, unless something rejects the pod.
pub(crate) const MISSING_GRACE: Duration = Duration::from_secs(15);

/// Time for the native controller to process a change. It usually takes a second, but minutes during a failover or upgrade of its
/// replicas.
pub(crate) const BEHIND_PATIENCE: Duration = Duration::from_secs(300);

/// Time after which a node counts as stalled (as in Kubernetes: default of a Deployment's `progressDeadlineSeconds`).
pub(super) const PROGRESS_DEADLINE: Duration = Duration::from_secs(600);

/// Time after which a rollout that waits for a disruption budget needs an operator.
pub const BUDGET_PATIENCE: Duration = Duration::from_secs(600);

/// Returns the time that a rollout may wait for a disruption budget before it needs an operator.
///
/// The time is zero if the budget can never allow an eviction because of a mistake in it.
pub(super) fn budget_patience(obstruction: Obstruction) -> Duration {
    if obstruction.is_mistake() {
        Duration::ZERO
    } else {
        BUDGET_PATIENCE
    }
}

/// Time after which a rollout that waits only for rejected writes needs an operator. A webhook can restart in that time.
pub const REFUSAL_PATIENCE: Duration = Duration::from_secs(15);

/// Time after which a pending hook is reported. The pod still waits for the hook. Kruise waits indefinitely and reports nothing.
pub const HOOK_PATIENCE: Duration = Duration::from_secs(600);

/// Longest time between two losses that count as simultaneous.
///
/// Kubelets renew their leases every 10 s, so nodes that are cut off at the same moment turn NotReady within 10 s of each other.
pub(in crate::core) const LOST_TOGETHER: Duration = Duration::from_secs(10);

/// Time from a loss to its evaluation.
///
/// Leases are renewed every 10 s and checked every 5 s. Therefore Kubernetes detects all node losses of one outage within about 20
/// s. The control group has to be complete by then.
pub(in crate::core) const EVALUATED_AFTER: Duration = Duration::from_secs(30);

/// Longest time between two losses of a flapping node.
///
/// A flapping node delays other nodes only once, for [`EVALUATED_AFTER`] from its first loss after the rollout touched it.
/// Otherwise one kubelet that changes its status every few seconds could block a rollout.
pub(crate) const FLAPS_WITHIN: Duration = Duration::from_secs(300);

/// Time from each further loss of a flapping node to its evaluation.
///
/// Losses of other nodes in the same outage are detected within that time (see [`EVALUATED_AFTER`]). A node that reboots repeatedly
/// takes longer to return, so it is still NotReady at its evaluation.
pub(in crate::core) const EVALUATED_AGAIN_AFTER: Duration = Duration::from_secs(20);

/// Returns the time after the creation of its new pod within which a node's failure counts against the revision.
pub(in crate::core) fn failure_window(strategy: &Strategy) -> Duration {
    let least = DEFAULT_FAILURE_WINDOW.max(strategy.min_ready);
    strategy.failure_window.unwrap_or(least)
}

/// Time after its creation during which an unavailable pod takes a slot, even if its wave is not open.
///
/// The controller may have deleted the pod's predecessor recently.
pub(super) const STARTING: Duration = Duration::from_secs(300);
