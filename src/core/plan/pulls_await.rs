//! Ready pods that image pre-pulls wait for, as part of a plan.

/// Number of pods of the current revision that have to be Ready before images are pre-pulled
/// (`image-predownload-min-updated-ready-pods`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullsAwait {
    /// Number of Ready pods; less than `needed`.
    pub ready: usize,
    /// Number of Ready pods that are needed.
    pub needed: usize,
}
