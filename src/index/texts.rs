//! Shared strings: node names, labels and taints, which thousands of nodes have in common.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Number of strings below which unused ones are kept.
const FEW: usize = 1024;

/// Store with one copy of each string in use.
#[derive(Debug, Default)]
pub(super) struct Texts {
    known: BTreeSet<Arc<str>>,
    /// Number of strings that were in use after the last removal of unused ones.
    held: usize,
}

impl Texts {
    /// Returns the shared copy of `text`.
    pub(super) fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        if self.known.len() >= FEW.max(2 * self.held) {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.held = self.known.len();
        }
        let new: Arc<str> = text.into();
        self.known.insert(new.clone());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_stored_once_and_freed_with_its_last_reference() {
        let mut texts = Texts::default();
        let node = texts.share("node-1");
        assert!(Arc::ptr_eq(&node, &texts.share("node-1")));
        for number in 0..10 * FEW {
            texts.share(&format!("gone-{number}"));
            assert!(texts.known.len() <= FEW, "{}", texts.known.len());
        }
        assert!(Arc::ptr_eq(&node, &texts.share("node-1")));
    }

    #[test]
    fn held_texts_are_not_scanned_repeatedly() {
        let mut texts = Texts::default();
        let held: Vec<_> = (0..5 * FEW)
            .map(|number| texts.share(&number.to_string()))
            .collect();
        assert_eq!(texts.known.len(), held.len());
        assert_eq!(texts.held, 4 * FEW);
    }
}
