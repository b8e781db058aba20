//! The engine: from a fleet and its settings to a plan.
//!
//! ```text
//! Fleet ──observation──► a class per node, looked at alone
//!       ──judged───────► who failed (guard), who keeps its pod (scope), what is allowed (budget, waves, preconditions)
//!       ──order────────► the queue of those who wait
//!       ──decide───────► Plan: actions and verdicts (roll), phase, numbers, and when to look again (outcome)
//! ```
//!
//! Nodes to which nothing happens may be left out and counted: [`crowd`].
//!
//! What a node can be is its [`class`]; how long it may be so is in [`patience`], and what follows when it is not is in
//! [`deadline`]. Each other module is one rule.

pub(super) mod budget;
pub(super) mod class;
pub(super) mod classify;
pub mod crowd;
pub mod deadline;
pub(super) mod decide;
pub(super) mod domains;
pub(super) mod evaluation;
pub mod eviction;
pub(crate) mod failing;
pub(super) mod guard;
pub mod manage;
pub mod not_ready;
pub(super) mod observation;
pub(super) mod order;
pub(super) mod ota;
pub mod overdue;
pub(super) mod pause;
pub(super) mod phase;
pub(super) mod pod_summary;
pub(super) mod preconditions;
pub(super) mod predownload;
pub(super) mod progressive;
pub(super) mod rate_limit;
pub(super) mod removal;
pub mod replacement;
pub mod revert;
pub(super) mod scope;
pub(super) mod surge;
pub(crate) mod terms;
pub mod timeouts;
pub(super) mod unmatched;
pub(super) mod waves;
pub(super) mod window_state;
