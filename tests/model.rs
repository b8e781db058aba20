//! Every interleaving, for small fleets. A model checker (stateright) explores the actions of kubelets, native controller, owner
//! and faults on a few nodes, with the real `core::decide`. It searches for a state that violates one of the design invariants 1
//! to 8.
//!
//! ```text
//! state: nodes, pods, DaemonSet, frozen watches, pending writes ── every possible step ──► states ── …
//!            always: no violation        whenever no step is left: the fleet has converged
//! ```
//!
//! Each test has a limit of states, so that all of them together take about a minute. `YURT_DS_DEEP=N` sets N times the limit of
//! CI. `cargo test --test main model:: -- --nocapture` prints the extent of the exploration.
//!
//! - `rules`: parameters of a test; `state`: the cluster; `canonical`: equal values for equivalent states.
//! - `steps`: possible steps; `view`: the controller's view; `judge`: its decisions and their checks; `writes`: their effects;
//!   `search`: the exploration.
//! - `upkeep`: the pods that the controller creates for an Advanced DaemonSet. Nodes join, leave, and change labels; pods fail,
//!   are rejected, get no answer, are not seen yet, or are adopted.
//! - `evictions`: a disruption budget that rejects; `denials`: a policy that rejects; `reversal`: reverts of pods.
//! - `plain`, `surge`, `place`, `order`, `guard`, `evict`, `refuse`, `revert`, `advanced`: the tests.

mod advanced;
mod canonical;
mod denials;
mod evict;
mod evictions;
mod guard;
mod judge;
mod order;
mod place;
mod plain;
mod refuse;
mod reversal;
mod revert;
mod rules;
mod search;
mod state;
mod steps;
mod surge;
mod upkeep;
mod view;
mod writes;
