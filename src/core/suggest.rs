//! How far apart two names are, to tell a slip from another name.

/// Insertions, deletions, replacements and swaps of neighbours that turn one into the other (optimal string alignment).
pub use strsim::osa_distance as distance;

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn a_distance_counts_single_edits() {
        assert_eq!(distance("nginx", "nginx"), 0);
        assert_eq!(distance("ngnix", "nginx"), 1);
        assert_eq!(distance("ca", "abc"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
