//! Timeouts: times after which a step counts as blocked, and times for the evaluation of failures.

use std::time::Duration;

use crate::core::settings::Strategy;
use crate::core::settings::failure_window::DEFAULT_FAILURE_WINDOW;
use crate::core::verdict::Obstruction;

/// Time that a kubelet gets to end a pod and report it, beyond the pod's grace period or after the node's return.
pub const MARGIN: Duration = Duration::from_secs(60);

/// Time for a missing pod. The native controller creates it within a second or two; after that, something refuses it.
pub(crate) const MISSING_GRACE: Duration = Duration::from_secs(15);

/// Time for the native controller to handle a change. It takes a second; a failover or upgrade of its replicas takes minutes.
pub(crate) const BEHIND_PATIENCE: Duration = Duration::from_secs(300);

/// Time after which a node is not just slow (Kubernetes, default of a Deployment's `progressDeadlineSeconds`).
pub(super) const PROGRESS_DEADLINE: Duration = Duration::from_secs(600);

/// Time after which a rollout that waits for a disruption budget needs an operator.
pub const BUDGET_PATIENCE: Duration = Duration::from_secs(600);

/// Returns how long a rollout may wait for a disruption budget before it needs an operator.
///
/// The time is zero if the budget is a mistake that never allows an eviction.
pub(super) fn budget_patience(obstruction: Obstruction) -> Duration {
    if obstruction.is_mistake() {
        Duration::ZERO
    } else {
        BUDGET_PATIENCE
    }
}

/// Time after which a rollout with nothing left but refused writes needs an operator. A webhook that restarts takes a moment.
pub const REFUSAL_PATIENCE: Duration = Duration::from_secs(15);

/// Time after which a pending hook is reported. The hook is not overruled then. Kruise waits indefinitely without a report.
pub const HOOK_PATIENCE: Duration = Duration::from_secs(600);

/// Longest time between two losses that count as simultaneous.
///
/// Kubelets renew their leases every 10 s, so nodes that are cut off at the same moment turn NotReady within 10 s of each other.
pub(in crate::core) const LOST_TOGETHER: Duration = Duration::from_secs(10);

/// Time from a loss to its evaluation.
///
/// Leases are renewed every 10 s and checked every 5 s. So Kubernetes notices the nodes of one outage within about 20 s of each
/// other. The control group has to be complete by then.
pub(in crate::core) const JUDGED_AFTER: Duration = Duration::from_secs(30);

/// Longest time between two losses of a flapping node.
///
/// It delays the others only once, for [`JUDGED_AFTER`] from the first of these losses after the rollout touched it. Otherwise
/// one kubelet could stop a rollout with a new status every few seconds.
pub(crate) const FLAPS_WITHIN: Duration = Duration::from_secs(300);

/// Time from each further loss of a flapping node to its evaluation.
///
/// Other nodes of the same outage are noticed within that time (see [`JUDGED_AFTER`]). A node that reboots over and over takes
/// longer than that to return.
pub(in crate::core) const JUDGED_AGAIN_AFTER: Duration = Duration::from_secs(20);

/// Returns how long after the creation of its new pod a node's failure counts against the revision.
pub(in crate::core) fn failure_window(strategy: &Strategy) -> Duration {
    let least = DEFAULT_FAILURE_WINDOW.max(strategy.min_ready);
    strategy.failure_window.unwrap_or(least)
}

/// Time after its creation in which an unavailable pod takes a slot, also in a wave that is not open (any more).
///
/// The controller may have deleted its predecessor recently.
pub(super) const STARTING: Duration = Duration::from_secs(300);
