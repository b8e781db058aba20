//! Engine: turns a fleet and its settings into a plan.
//!
//! ```text
//! Fleet ──observation──► one class per node, from that node alone
//!       ──evaluation───► failed nodes (guard), excluded nodes (scope), what is allowed (budget, waves, preconditions)
//!       ──order────────► queue of waiting nodes
//!       ──decide───────► Plan: actions and verdicts (roll), phase, counts, and time of the next evaluation (outcome)
//! ```
//!
//! Nodes that need no decision can be counted instead of listed: see [`crowd`].
//!
//! [`class`] lists the states of a node, [`timeouts`] how long each may last, and [`deadline`] what happens after that. Each
//! other module implements one rule.

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
