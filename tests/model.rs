//! Every interleaving, for small fleets: a model checker (stateright) explores all that kubelets, the native controller, the
//! owner and bad luck can do to a few nodes, with the real `core::decide` in the middle, and looks for a state in which an
//! invariant does not hold (design invariants 1 to 8).
//!
//! ```text
//! state: nodes, pods, DaemonSet, watches that stand still, writes under way ── every step that is possible ──► states ── …
//!            always: no violation        whenever nothing moves any more: the fleet has converged
//! ```
//!
//! A test has a limit of states, so that all of them take a minute or so; with `YURT_DS_DEEP=N` it is the one of CI, N times.
//! `cargo test --test main model:: -- --nocapture` prints what was explored.
//!
//! - `rules`: the fleet of a test; `state`: the cluster; `canonical`: equal situations as equal values.
//! - `steps`: what can happen; `view`: what our controller sees; `judge`: what it decides, and whether it may; `writes`: what
//!   becomes of that; `search`: how far it is explored.
//! - `upkeep`: what our controller does where it makes the pods itself, those of an Advanced DaemonSet: nodes that join, leave, fit no
//!   longer and fit again, pods that fail, are refused, not answered for, not seen yet, or adopted.
//! - `evictions`: a disruption budget that refuses; `denials`: a policy that refuses; `reversal`: pods that are taken back.
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
