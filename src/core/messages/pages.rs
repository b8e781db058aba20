//! Documentation page for each verdict.

use crate::core::verdict::Verdict;

/// Returns the documentation page about the verdict, with its section, as a path in the repository.
pub fn page(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Done | Verdict::NativeControllerBehind => "docs/README.md#verdicts",
        Verdict::InProgress(_) | Verdict::Budget { .. } => "docs/max-unavailable.md",
        Verdict::AwaitingDomain => "docs/topology-key.md",
        Verdict::Offline(_) => "docs/ready-settle.md",
        Verdict::FailedByRevision { .. } => "docs/guard.md#what-counts-as-a-failure",
        Verdict::Guarded(_) => "docs/guard.md#what-you-see",
        Verdict::Paused { .. } => "docs/paused.md",
        Verdict::Partition => "docs/partition.md",
        Verdict::NotSelected => "docs/selector.md",
        Verdict::Held { .. } => "docs/hold.md",
        Verdict::Revert(_) => "docs/revert.md",
        Verdict::WaveNotOpen { .. } => "docs/waves.md",
        Verdict::OutOfWindow { .. } => "docs/maintenance-window.md",
        Verdict::PullPending(_) => "docs/image-predownload.md",
        Verdict::HookPending { .. } => "docs/lifecycle.md",
        Verdict::BlockedByPdb { .. } => "docs/disruption.md#which-budgets-work",
        Verdict::Refused { .. } => "docs/refused.md",
        Verdict::AwaitingOwner => "docs/reference/ota.md",
        Verdict::AwaitingDeletion => "docs/advanced.md#ondelete",
        Verdict::Invalid => "docs/README.md#all-settings",
        Verdict::NotTargeted | Verdict::UntoleratedTaint => {
            "docs/README.md#nodes-that-repel-new-pods"
        }
    }
}
