//! The one test binary. Contents:
//!
//! - `scenarios`: the sentences of the specification, as data (annotations, rolling, knobs, identity, ota, operations); each is
//!   a test on the embedded cluster, all together play on a real control plane (`real_cluster`).
//! - `support`: what the scenarios are told with. `story` (data) is played by `player` in a `world` (embedded or real),
//!   watched by `monitor`, which keeps a `picture` and judges every deletion; `checks` are the words for expectations.

mod support {
    pub(crate) mod binary;
    pub(crate) mod checks;
    pub(crate) mod embedded;
    pub(crate) mod monitor;
    pub(crate) mod objects;
    pub(crate) mod picture;
    pub(crate) mod player;
    pub(crate) mod real;
    pub(crate) mod story;
    pub(crate) mod suite;
    pub(crate) mod world;
}

mod scenarios {
    pub(crate) mod annotations;
    pub(crate) mod identity;
    pub(crate) mod knobs;
    pub(crate) mod operations;
    pub(crate) mod ota;
    pub(crate) mod rolling;
}

mod real_cluster;
