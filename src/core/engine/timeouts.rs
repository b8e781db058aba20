//! How long things may take before they are called held up, and how long a failure is judged: all patience in one place.

use std::time::Duration;

use crate::core::settings::Strategy;
use crate::core::settings::failure_window::DEFAULT_FAILURE_WINDOW;
use crate::core::verdict::Obstruction;

/// A kubelet has this long beyond the grace period of a pod, or after its node came back, to end it and to say so.
pub const MARGIN: Duration = Duration::from_secs(60);

/// The native controller makes a missing pod within a second or two; past this something refuses it.
pub(crate) const MISSING_GRACE: Duration = Duration::from_secs(15);

/// The native controller handles a change within a second; its replicas take over from each other, and are upgraded, within
/// minutes.
pub(crate) const BEHIND_PATIENCE: Duration = Duration::from_secs(300);

/// A node that takes longer than this is not just slow (Kubernetes, default of a Deployment's `progressDeadlineSeconds`).
pub(super) const PROGRESS_DEADLINE: Duration = Duration::from_secs(600);

/// A rollout that waits for a disruption budget for longer needs a person.
pub const BUDGET_PATIENCE: Duration = Duration::from_secs(600);

/// Returns how long a rollout may wait for a disruption budget before it needs a person: not at all where the budget is a mistake,
/// which never allows an eviction.
pub(super) fn budget_patience(obstruction: Obstruction) -> Duration {
    if obstruction.is_mistake() {
        Duration::ZERO
    } else {
        BUDGET_PATIENCE
    }
}

/// A rollout in which nothing else is left than what was refused for longer needs a person; a webhook that is being
/// restarted takes a moment.
pub const REFUSAL_PATIENCE: Duration = Duration::from_secs(15);

/// A hook that takes longer is reported. Nothing is forced then: Kruise waits for ever and says nothing.
pub const HOOK_PATIENCE: Duration = Duration::from_secs(600);

/// Longest time between two losses that count as simultaneous: kubelets renew their leases every 10 s, so nodes that are cut off at
/// the same moment turn NotReady within 10 s of each other.
pub(in crate::core) const LOST_TOGETHER: Duration = Duration::from_secs(10);

/// How long a loss waits for its judgement: Kubernetes notices the nodes that one outage takes away within some 20 s of
/// each other (leases are renewed every 10 s and looked at every 5 s), and the control group has to be heard.
pub(in crate::core) const JUDGED_AFTER: Duration = Duration::from_secs(30);

/// A node that is lost again so soon is flapping. It delays the others only once, for [`JUDGED_AFTER`] from the first of these losses after
/// the rollout touched it: otherwise one kubelet could stop a rollout by reporting another status every few seconds.
pub(crate) const FLAPS_WITHIN: Duration = Duration::from_secs(300);

/// Time from each further loss of a flapping node to its judgement. Other nodes that the same outage takes away are noticed within
/// that time (see [`JUDGED_AFTER`]). A node that reboots over and over takes longer than that to return.
pub(in crate::core) const JUDGED_AGAIN_AFTER: Duration = Duration::from_secs(20);

/// How long after its new pod was made a node may fail on the revision's account.
pub(in crate::core) fn failure_window(strategy: &Strategy) -> Duration {
    let least = DEFAULT_FAILURE_WINDOW.max(strategy.min_ready);
    strategy.failure_window.unwrap_or(least)
}

/// A pod that is not available takes a slot for so long after it was made, also in a wave that is not open (any more): we may
/// have taken its predecessor a moment ago.
pub(super) const STARTING: Duration = Duration::from_secs(300);
