//! The heart: `decide(&Strategy, &Fleet, now) -> Plan`, pure.

mod budget;
mod classify;
mod decide;
pub mod eligibility;
pub mod fleet;
mod guard;
pub mod names;
mod ota;
mod phase;
pub mod plan;
pub mod revision;
pub mod selector;
pub mod strategy;
pub mod verdict;

pub use decide::{decide, release};
pub use fleet::{
    Behind, Fleet, Node, NodeName, OtaCondition, Pod, PodName, PodRevision, PodUid, Readiness,
    ResourceVersion, Revision, RevisionState, Targeting, Trouble,
};
pub use plan::{Action, Counts, Phase, Plan, PodRef, Stall};
pub use strategy::{Invalid, Mode, Note, Pause, Reading, Share, Strategy};
pub use verdict::{Offline, Progress, Verdict};
