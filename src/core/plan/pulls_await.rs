//! Condition for image pre-pulls, as part of a plan: a number of Ready pods.

/// Number of pods of the current revision that must be Ready before images are pre-pulled
/// (`image-predownload-min-updated-ready-pods`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullsAwait {
    /// Number of Ready pods of the current revision, which is less than `needed`.
    pub ready: usize,
    /// Number of pods of the current revision that must be Ready.
    pub needed: usize,
}
