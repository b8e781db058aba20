//! The one test binary. Contents:
//!
//! - `scenarios`: the sentences of the specification, as data (annotations, rolling, knobs, paused, surge, guard, revert,
//!   identity, exceptions, ota, refused, rest, advice, prepull, predownload, lifecycle, disruption, operations, waves, inplace, kruise, advanced); each is a test
//!   on the embedded cluster, all together play on a real control plane (`real_cluster`).
//! - `advanced_crd`: what a real API server makes of the definition of the Advanced DaemonSet.
//! - `agent`: the real agent as a process, on a cluster of ours (`served`) where single requests can go wrong.
//! - `isolation`: hostile objects, stale data, faults of connections and memory, against the built controller. Most of it needs a
//!   real control plane of its own (`tests/isolation.sh`).
//! - `answers`: whether the embedded API server answers requests as a real one does.
//! - `completion`: what shells offer, by running them.
//! - `flood`: the real controller as a process, with crowds at its ports.
//! - `docs`: what the pages of `docs/` say is played on the embedded cluster.
//! - `support`: what the scenarios are told with. `story` (data) is played by `player` in a `world` (embedded or real),
//!   watched by `monitor`, which keeps a `picture` and judges every deletion; `checks` are the words for expectations.
//!   `agents` are the nodes' ota-servers with their owners, behind a `link` that can be cut; `said` is what they answer,
//!   `asking` the steps of a story in which they are asked, `forged` pods that only look as if they could be upgraded;
//!   `typed` is what a person types after `yurt-ds ctl` in the middle of a story; `agreement` compares what conditions,
//!   Events, metrics and `ctl` say after every step of a story that waits.
//!   `golden` compares what the controller writes in each story with `tests/golden/writes.txt`.
//!   `machine` is how far all of them search (`YURT_DS_DEEP`), and how long a busy one may take.

mod support {
    pub(crate) mod agents;
    pub(crate) mod agreement;
    pub(crate) mod asking;
    pub(crate) mod binary;
    pub(crate) mod checks;
    pub(crate) mod embedded;
    pub(crate) mod faulty;
    pub(crate) mod fnv;
    pub(crate) mod forged;
    pub(crate) mod golden;
    pub(crate) mod link;
    pub(crate) mod machine;
    pub(crate) mod monitor;
    pub(crate) mod objects;
    pub(crate) mod picture;
    pub(crate) mod player;
    pub(crate) mod real;
    pub(crate) mod said;
    pub(crate) mod served;
    pub(crate) mod story;
    pub(crate) mod suite;
    pub(crate) mod typed;
    pub(crate) mod world;
}

mod scenarios {
    pub(crate) mod advanced;
    pub(crate) mod advice;
    pub(crate) mod annotations;
    pub(crate) mod disruption;
    pub(crate) mod exceptions;
    pub(crate) mod guard;
    pub(crate) mod identity;
    pub(crate) mod inplace;
    pub(crate) mod knobs;
    pub(crate) mod kruise;
    pub(crate) mod lifecycle;
    pub(crate) mod operations;
    pub(crate) mod ota;
    pub(crate) mod paused;
    pub(crate) mod predownload;
    pub(crate) mod prepull;
    pub(crate) mod refused;
    pub(crate) mod rest;
    pub(crate) mod revert;
    pub(crate) mod rolling;
    pub(crate) mod surge;
    pub(crate) mod waves;
}

mod advanced_crd;
mod agent;
mod answers;
mod completion;
mod docs;
mod flood;
mod isolation;
mod model;
mod real_cluster;
