//! Labels of nodes and pods, stored compactly: there are many small sets, which are read often and never changed.

use std::sync::Arc;

/// Labels sorted by key, in one allocation. They take a third of the memory of a map and are cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels(Arc<[(Arc<str>, Arc<str>)]>);

impl Labels {
    /// Returns the value of a label; `None` if the label is absent.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(known, _)| (**known).cmp(key));
        found.ok().map(|position| &*self.0[position].1)
    }

    /// Returns all labels with their values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl<K: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let labels = labels.into_iter();
        let mut labels: Vec<_> = labels
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        labels.sort();
        Self(labels.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_by_key_in_any_order() {
        let labels: Labels = [("b", "2"), ("c", "3"), ("a", "1")].into_iter().collect();
        let found = ["a", "b", "c", "d", ""].map(|key| labels.get(key));
        assert_eq!(found, [Some("1"), Some("2"), Some("3"), None, None]);
    }
}
