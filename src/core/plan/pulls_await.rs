//! Ready pods that pulling ahead waits for, as a plan tells it.

/// So many pods of the current revision have to be Ready before images are pulled ahead
/// (`image-predownload-min-updated-ready-pods`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullsAwait {
    /// How many are; fewer than `needed`.
    pub ready: usize,
    /// How many have to be.
    pub needed: usize,
}
