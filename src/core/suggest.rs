//! Distance between two names, by which typos are found.

/// Number of insertions, deletions, replacements and swaps of neighbors that turn one name into the other (optimal string
/// alignment).
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
