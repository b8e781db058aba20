//! Decision logic: `decide(&Strategy, &Fleet, now) -> Plan`, without I/O.
//!
//! # Expected flow
//! The caller reads the settings of a DaemonSet once ([`settings::read`]), and describes its nodes and pods as a [`Fleet`]. It
//! calls [`decide()`], makes the writes of the plan, and publishes the verdicts. It decides again after every change, and at
//! [`Plan::next_wake`].
//!
//! # Layers
//! The modules from top to bottom. Each module uses only modules in the layers below its own.
//!
//! ```text
//! forecast                                a rollout in virtual time
//! messages, remedy                        sentences: how a plan is reported, and what an operator can do
//! engine                                  the rules: observation, evaluation, order, plan
//! plan                                    their result
//! fleet, rollout_state, action            known facts, persistent state, possible writes
//! settings, revision, eligibility         settings, histories of templates, which nodes run a pod
//! id, names, kind, labels, shared, lifecycle, selector, window, images, instant, verdict,
//! suggest, words, foreign
//! ```
//!
//! # Guarantees
//! - The same arguments give the same plan. No code here reads a clock, uses randomness, waits, or does I/O.
//! - A plan never leaves more targeted online nodes without an available pod than `max-unavailable` allows. A pod that is missing,
//!   terminating, not yet available or broken makes its node unavailable. Offline nodes never count.
//! - The rollout doesn't delete, evict or update a pod if its node is offline, its DaemonSet is paused, or its revision is unknown.
//! - Every node has a verdict.
//! - A plan can be carried out twice with the same effect as once.
//!
//! # Assumptions
//! - The cache shows a deletion later than the controller requests it. Until the cache shows the deletion, the caller marks the pod
//!   as terminating ([`Pod::terminating`]).
//! - Timestamps in the fleet are comparable with `now`. The clocks of nodes are not trusted.
//!
//! # Caveats
//! The guard knows only times and states of nodes and pods. So its decision that a revision made a node fail is an estimate (see
//! `guard`).

pub mod action;
pub mod eligibility;
pub mod engine;
pub mod fleet;
pub mod forecast;
pub mod foreign;
pub mod id;
pub mod images;
pub mod instant;
mod kind;
mod labels;
mod lenient;
pub mod lifecycle;
pub mod messages;
pub mod names;
pub mod plan;
#[cfg(test)]
mod properties;
pub mod remedy;
pub mod revision;
pub mod rollout_state;
pub mod selector;
pub mod settings;
mod shared;
pub mod suggest;
#[cfg(test)]
pub(crate) mod testing;
pub mod verdict;
pub mod window;
pub mod words;

pub use action::{Action, PodRef, Pull, PullInitiator, StaleImage};
pub use engine::crowd::InView;
pub use engine::deadline::{is_between_crashes, stall_of};
pub use engine::decide::{decide, decide_in_view, queue, release, upkeep};
pub use engine::manage::{DaemonSetCounts, FailedPodsBackoff, Manage, ManageTerms, manage};
pub use engine::ota::{message_of, revision_in};
pub use engine::pause::is_paused;
pub use engine::predownload::Predownloading;
pub use engine::removal::is_withheld;
pub use engine::surge::SurgeRelease;
pub use engine::surge::exclusive::Exclusive;
pub use engine::surge::preempting::Preempting;
pub use fleet::evictions::{Evictions, Refusal};
pub use fleet::in_place::{InPlace, InPlacePatch};
pub use fleet::record::FailureRecord;
pub use fleet::write_failures::{WriteFailures, WriteVerb};
pub use fleet::{
    Crowd, Fleet, Hold, Holds, Leaving, Node, NodeWindow, OtaCondition, PauseRecord, Pod,
    PodProblem, Pods, PullFailure, Readiness, RollbackTarget, RollbackTargets, Targeting,
};
pub use id::{
    NodeName, PodName, PodRevision, PodUid, ResourceVersion, Revision, RevisionState,
    RevisionUnknown,
};
pub use kind::SetKind;
pub use labels::Labels;
pub use lifecycle::{Exit, Gate, GateWrite, PreDelete, PreDeleteHook};
pub use plan::{
    Counts, PauseStand, Phase, Plan, PullsAwait, Reversal, ReversalStage, StaleData, Stall,
    WaveStand, WaveState,
};
pub use rollout_state::RolloutState;
pub use settings::{
    Disruption, IntOrPercent, Invalid, Mode, NodeOrder, Note, OnFailure, ParsedSettings, Pause,
    Predownload, RollingUpdateType, Scaling, Strategy, Topology, Waves,
};
pub use shared::Shared;
pub use verdict::{
    Cause, Guarded, Obstruction, Offline, Progress, PullStage, Revert, Stopped, Verdict, WaveShut,
};
pub use window::Windows;

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Returns the path and text of every file below `folder`.
    fn files(folder: &Path) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(files(&path));
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.display().to_string(), text));
            }
        }
        found
    }

    #[test]
    fn core_uses_no_runtime_client_or_clock() {
        let files = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/core"));
        assert!(files.len() > 10, "found only {} files", files.len());
        for (path, text) in files {
            for word in [
                "async",
                "tokio",
                "kube::",
                "::now(",
                "std::env",
                "std::net",
                "tracing::",
            ] {
                assert!(!text.contains(word), "{path} contains {word}");
            }
        }
    }
}
