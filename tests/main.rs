//! The only test binary. Contents:
//!
//! - `scenarios`: the sentences of the specification as data. The name of each test is a sentence. Each test runs on the embedded
//!   cluster, and `real_cluster` runs all of them on a real control plane. Files: annotations, rolling, knobs, paused, surge,
//!   guard, revert, identity, exceptions, ota, refused, rest, advice, prepull, predownload, lifecycle, disruption, operations,
//!   waves, inplace, kruise, advanced.
//! - `advanced_crd`: the CRD of Advanced DaemonSets on a real API server.
//! - `agent`: the real agent process, on an embedded cluster (`served`) that can let single requests fail.
//! - `alerts`: stories in which each alert fires and ends. promtool evaluates the alerts over the metrics of the controller.
//! - `isolation`: hostile objects, stale data, connection faults and memory, tested on the built controller. Most of these tests
//!   need a separate real control plane (`tests/isolation.sh`).
//! - `answers`: comparison of the responses of the embedded API server with those of a real one.
//! - `completion`: shell completion in real shells.
//! - `flood`: the real controller process with many connections to its ports.
//! - `docs`: the examples of `docs/` on the embedded cluster.
//! - `output`: the program with a full disk, and with a reader that closes the pipe.
//! - `recording`: the picture of `yurt-ds sim` in the README, drawn from its output.
//! - `pipelines`: the scripts of `docs/how-to/pipelines.md`, run in a shell against `yurt-ds sim serve`.
//! - `tutorials`: the commands of `docs/tutorials`, run in a shell against `yurt-ds sim serve`.
//! - `model`: a model checker that explores every interleaving on small fleets.
//! - `support`: the building blocks of scenarios:
//!   - `story` defines a test case as data, `player` runs it, and `world` is the cluster (embedded or real) on which it runs.
//!   - `monitor` watches the cluster, keeps a `picture` of it and checks every deletion. `checks` contains the expectations.
//!   - `agents` are the clients of the node agents. `link` connects an agent to the API server. Tests can cut the link.
//!   - `asking` contains the steps that send requests to agents, and `said` the expected responses.
//!   - `forged` creates pods that look upgradable but are not. `typed` runs `yurt-ds ctl` in the middle of a story.
//!   - `agreement` compares conditions, Events, metrics and `ctl` after every step that waits.
//!   - `golden` compares the controller's writes in each story with `tests/golden/writes.txt`.
//!   - `machine` defines how much the tests search (`YURT_DS_DEEP`) and how long they may take on a busy machine.

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
mod alerts;
mod answers;
mod completion;
mod docs;
mod flood;
mod isolation;
mod model;
mod output;
mod pipelines;
mod real_cluster;
mod recording;
mod tutorials;
