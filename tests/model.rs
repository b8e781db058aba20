//! Model checker (stateright) for small fleets. It explores every order in which kubelets, native controller, operator and faults
//! can act on a few nodes, together with the real `core::decide`. It searches for a state that violates one of the design
//! invariants 1 to 8, which `Violation` in `state` lists.
//!
//! ```text
//! state: nodes, pods, DaemonSet, frozen watches, pending writes ── every possible step ──► states ── …
//!            always: no violation        whenever no step is left: the fleet has converged
//! ```
//!
//! Each test has a limit of states, so that all tests together take about a minute. With `YURT_DS_DEEP=N`, the limit is 100,000
//! states times N instead of 5,000. `cargo test --test main model:: -- --nocapture` prints the number of explored states.
//!
//! - `rules`: parameters of a test; `state`: the cluster; `canonical`: conversion of equivalent states to equal values.
//! - `steps`: possible steps; `view`: the controller's view of the cluster; `judge`: its decisions and the checks on them;
//!   `writes`: the effects of its writes; `search`: the exploration.
//! - `upkeep`: the pods that the controller creates for an Advanced DaemonSet. Nodes join, leave and change their labels. Pods fail
//!   or are adopted. The API server may reject a creation, not respond to it, or show its result late.
//! - `evictions`: a disruption budget that rejects evictions; `denials`: a policy that rejects writes; `reversal`: reverts of pods.
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
