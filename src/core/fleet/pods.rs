//! The pods of a node: shared with whoever else remembers them, for most of a fleet's memory is pods.

use std::sync::Arc;

use super::Pod;

/// The pods of a node, the oldest first. A clone shares them; one that is changed is copied first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods(Box<[Arc<Pod>]>);

impl Pods {
    /// One after the other.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Pod> + ExactSizeIterator + Clone {
        self.0.iter().map(|pod| &**pod)
    }

    /// The same to change them.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Pod> + ExactSizeIterator {
        self.0.iter_mut().map(Arc::make_mut)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The oldest.
    pub fn first(&self) -> Option<&Pod> {
        self.iter().next()
    }

    /// The youngest.
    pub fn last(&self) -> Option<&Pod> {
        self.iter().next_back()
    }

    /// The only one, if it is alone.
    pub fn only(&self) -> Option<&Pod> {
        match &*self.0 {
            [pod] => Some(pod),
            _ => None,
        }
    }

    /// Adds one at the end.
    pub fn push(&mut self, pod: Pod) {
        let pods = std::mem::take(&mut self.0).into_iter();
        self.0 = pods.chain([Arc::new(pod)]).collect();
    }

    /// Leaves out those of which `is_kept` does not hold.
    pub fn retain(&mut self, is_kept: impl Fn(&Pod) -> bool) {
        if !self.iter().all(&is_kept) {
            let pods = std::mem::take(&mut self.0).into_iter();
            self.0 = pods.filter(|pod| is_kept(pod)).collect();
        }
    }

    /// Leaves out all.
    pub fn clear(&mut self) {
        self.0 = Box::default();
    }
}

impl From<Vec<Pod>> for Pods {
    fn from(pods: Vec<Pod>) -> Self {
        pods.into_iter().collect()
    }
}

impl<const N: usize> From<[Pod; N]> for Pods {
    fn from(pods: [Pod; N]) -> Self {
        pods.into_iter().collect()
    }
}

impl<P: Into<Arc<Pod>>> FromIterator<P> for Pods {
    fn from_iter<I: IntoIterator<Item = P>>(pods: I) -> Self {
        Self(pods.into_iter().map(Into::into).collect())
    }
}

impl<'a> IntoIterator for &'a Pods {
    type Item = &'a Pod;
    type IntoIter = std::iter::Map<std::slice::Iter<'a, Arc<Pod>>, fn(&'a Arc<Pod>) -> &'a Pod>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|pod| &**pod)
    }
}

impl<'a> IntoIterator for &'a mut Pods {
    type Item = &'a mut Pod;
    type IntoIter =
        std::iter::Map<std::slice::IterMut<'a, Arc<Pod>>, fn(&'a mut Arc<Pod>) -> &'a mut Pod>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut().map(Arc::make_mut)
    }
}

impl IntoIterator for Pods {
    type Item = Pod;
    type IntoIter = std::iter::Map<std::vec::IntoIter<Arc<Pod>>, fn(Arc<Pod>) -> Pod>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_vec().into_iter().map(Arc::unwrap_or_clone)
    }
}

impl std::ops::Index<usize> for Pods {
    type Output = Pod;

    fn index(&self, position: usize) -> &Pod {
        &self.0[position]
    }
}

impl std::ops::IndexMut<usize> for Pods {
    fn index_mut(&mut self, position: usize) -> &mut Pod {
        Arc::make_mut(&mut self.0[position])
    }
}
