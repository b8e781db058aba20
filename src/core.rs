//! The heart: `decide(&Strategy, &Fleet, now) -> Plan`, pure.
//!
//! # Expected flow
//! Whoever knows a DaemonSet reads its settings once ([`strategy::read`]), describes its nodes and pods as a [`Fleet`],
//! and asks [`decide()`]. It carries out the plan's actions, tells people the verdicts, and asks again when something
//! changed or at [`Plan::next_wake`].
//!
//! # Guarantees
//! - The same arguments give the same plan. Nothing here reads a clock, rolls dice, waits, or talks to anybody.
//! - At no moment do more than `max-unavailable` of the targeted nodes that are online lack an available pod because of
//!   a plan; missing, terminating, young and broken pods all count, offline nodes never do.
//! - No pod on a node that is offline, paused, or of an unclear revision is touched.
//! - Every node has a verdict, and carrying out a plan twice changes nothing.
//!
//! # Assumptions
//! - The caller lays its own unseen deletions over the fleet ([`Pod::terminating`]).
//! - Instants in the fleet are comparable with `now`; a node's own clock is not to be trusted.
//!
//! # Caveats
//! Whether a lost node is the revision's fault is a judgement (`guard`), made from API timestamps alone.

mod budget;
mod classify;
mod decide;
mod domains;
pub mod eligibility;
pub mod eviction;
pub(crate) mod failing;
pub mod fleet;
mod gates;
mod glance;
mod guard;
pub mod hold;
pub mod images;
pub mod in_place;
pub mod instant;
mod labels;
pub mod lifecycle;
pub mod names;
pub mod near;
pub mod not_created;
pub mod not_ready;
mod opening;
mod order;
mod ota;
pub mod overdue;
mod pace;
mod pause;
mod phase;
pub mod plan;
mod predownload;
#[cfg(test)]
mod properties;
pub mod refusals;
pub mod remedy;
mod removal;
pub mod revert;
pub mod revision;
pub mod said;
mod scope;
pub mod selector;
pub mod strategy;
mod surge;
#[cfg(test)]
pub(crate) mod testing;
mod unmatched;
pub mod verdict;
mod waves;
pub mod window;
pub mod words;

pub use decide::{decide, queue, release};
pub use eviction::{Evictions, Refusal};
pub use fleet::{
    Behind, Fleet, Leaving, Node, NodeName, OtaCondition, Pod, PodName, PodRevision, PodUid,
    PullFailure, Readiness, ResourceVersion, Revision, RevisionState, Targeting, Trouble,
};
pub use guard::Record;
pub use hold::{Hold, Holds};
pub use in_place::{InPlace, Renewal};
pub use labels::Labels;
pub use lifecycle::{Exit, Gate, GateWrite, PreDelete, Preparing};
pub use opening::NodeWindow;
pub use ota::{message_of, revision_in};
pub use pause::{PauseRecord, PauseStand, is_paused};
pub use phase::{is_between_crashes, stall_of};
pub use plan::{
    Action, Counts, Phase, Plan, PodRef, Pull, PullInitiator, StaleImage, Stall, WaveStand,
    WaveState,
};
pub use predownload::Predownloading;
pub use refusals::{Refusals, RefusedWrite};
pub use removal::is_withheld;
pub use revert::{Past, Reversal, WayBack};
pub use strategy::{
    Disruption, Invalid, Mode, Note, OnFailure, Pause, Predownload, Reading, RollingUpdateType,
    Share, Strategy, Topology, Waves,
};
pub use surge::Release;
pub use surge::exclusive::Exclusive;
pub use surge::preempting::Preempting;
pub use verdict::{
    Cause, Guarded, Obstruction, Offline, Progress, PullStage, Revert, Stopped, Verdict, WaveShut,
};
pub use window::Windows;

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Every file below `folder`, with its text.
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
    fn core_knows_no_runtime_no_client_and_no_clock() {
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
