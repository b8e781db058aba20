//! Pods of a node. Pods take most of the memory, so clones of a fleet share them.

use std::fmt;
use std::sync::Arc;

use super::Pod;
use crate::core::id::PodRevision;

/// Pods of a node, oldest first. Clones share the pods, and a shared pod is copied before it is changed.
#[derive(Clone, Default)]
pub struct Pods(Held);

/// Storage for zero, one or several pods. One pod has a form of its own, because nearly every node has exactly one.
#[derive(Clone, Default)]
enum Held {
    #[default]
    None,
    One(Arc<Pod>),
    Several(Vec<Arc<Pod>>),
}

impl Pods {
    fn slice(&self) -> &[Arc<Pod>] {
        match &self.0 {
            Held::None => &[],
            Held::One(pod) => std::slice::from_ref(pod),
            Held::Several(pods) => pods,
        }
    }

    fn slice_mut(&mut self) -> &mut [Arc<Pod>] {
        match &mut self.0 {
            Held::None => &mut [],
            Held::One(pod) => std::slice::from_mut(pod),
            Held::Several(pods) => pods,
        }
    }

    fn into_vec(self) -> Vec<Arc<Pod>> {
        match self.0 {
            Held::None => Vec::new(),
            Held::One(pod) => vec![pod],
            Held::Several(pods) => pods,
        }
    }

    /// Iterates over the pods, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Pod> + ExactSizeIterator + Clone {
        self.slice().iter().map(|pod| &**pod)
    }

    /// Iterates mutably over the pods, oldest first. Pods that are shared with another fleet are copied.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Pod> + ExactSizeIterator {
        self.slice_mut().iter_mut().map(Arc::make_mut)
    }

    /// Returns the pod of an Advanced DaemonSet that is too many, if the node has two. Terminating pods don't count.
    ///
    /// If one pod is new and the other old, the new one is too many, even if it has ended. If both are old, the younger one is too
    /// many.
    pub fn surplus(&self) -> Option<&Pod> {
        let alive = || {
            let alive = self.iter().filter(|pod| !pod.terminating);
            alive.filter(|pod| !pod.in_place.is_over)
        };
        let is_new = |pod: &&Pod| pod.revision == PodRevision::Current;
        let (new, old) = (alive().filter(is_new).count(), alive().count());
        match (new, old - new) {
            (0, 2..) => alive().next_back(),
            (0, 1) => {
                let mut ended = self.iter().filter(|pod| !pod.terminating).filter(is_new);
                ended.next_back()
            }
            (1, 1..) => alive().find(is_new),
            _ => None,
        }
    }

    /// Returns the number of pods, including terminating and ended ones.
    pub fn len(&self) -> usize {
        self.slice().len()
    }

    /// Returns true if the node has no pod in any state.
    pub fn is_empty(&self) -> bool {
        self.slice().is_empty()
    }

    /// Returns the oldest pod, which may be terminating.
    pub fn first(&self) -> Option<&Pod> {
        self.iter().next()
    }

    /// Returns the youngest pod, which may be terminating.
    pub fn last(&self) -> Option<&Pod> {
        self.iter().next_back()
    }

    /// Returns the node's pod; `None` unless there is exactly one.
    pub fn only(&self) -> Option<&Pod> {
        match self.slice() {
            [pod] => Some(pod),
            _ => None,
        }
    }

    /// Appends a pod, which has to be the youngest.
    pub fn push(&mut self, pod: Pod) {
        let pods = std::mem::take(self).into_vec().into_iter();
        *self = pods.chain([Arc::new(pod)]).collect();
    }

    /// Keeps only the pods for which `is_kept` returns true.
    pub fn retain(&mut self, is_kept: impl Fn(&Pod) -> bool) {
        if !self.iter().all(&is_kept) {
            let pods = std::mem::take(self).into_vec().into_iter();
            *self = pods.filter(|pod| is_kept(pod)).collect();
        }
    }

    /// Removes all pods from the node. Clones keep their pods.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl PartialEq for Pods {
    fn eq(&self, other: &Self) -> bool {
        self.slice() == other.slice()
    }
}

impl Eq for Pods {}

impl fmt::Debug for Pods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
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
        let mut pods = pods.into_iter().map(Into::into);
        let Some(first) = pods.next() else {
            return Self::default();
        };
        Self(match pods.next() {
            None => Held::One(first),
            Some(second) => Held::Several([first, second].into_iter().chain(pods).collect()),
        })
    }
}

impl<'a> IntoIterator for &'a Pods {
    type Item = &'a Pod;
    type IntoIter = std::iter::Map<std::slice::Iter<'a, Arc<Pod>>, fn(&'a Arc<Pod>) -> &'a Pod>;

    fn into_iter(self) -> Self::IntoIter {
        self.slice().iter().map(|pod| &**pod)
    }
}

impl<'a> IntoIterator for &'a mut Pods {
    type Item = &'a mut Pod;
    type IntoIter =
        std::iter::Map<std::slice::IterMut<'a, Arc<Pod>>, fn(&'a mut Arc<Pod>) -> &'a mut Pod>;

    fn into_iter(self) -> Self::IntoIter {
        self.slice_mut().iter_mut().map(Arc::make_mut)
    }
}

impl IntoIterator for Pods {
    type Item = Pod;
    type IntoIter = std::iter::Map<std::vec::IntoIter<Arc<Pod>>, fn(Arc<Pod>) -> Pod>;

    fn into_iter(self) -> Self::IntoIter {
        self.into_vec().into_iter().map(Arc::unwrap_or_clone)
    }
}

impl std::ops::Index<usize> for Pods {
    type Output = Pod;

    fn index(&self, position: usize) -> &Pod {
        &self.slice()[position]
    }
}

impl std::ops::IndexMut<usize> for Pods {
    fn index_mut(&mut self, position: usize) -> &mut Pod {
        Arc::make_mut(&mut self.slice_mut()[position])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::{current, old};

    fn numbers(pods: &Pods) -> Vec<i64> {
        pods.iter().map(|pod| pod.number).collect()
    }

    #[test]
    fn pods_stay_in_insertion_order_for_any_number() {
        let mut pods = Pods::default();
        assert_eq!((pods.len(), pods.only()), (0, None));
        for (number, expected) in [(1, vec![1]), (2, vec![1, 2]), (3, vec![1, 2, 3])] {
            pods.push(old(number));
            assert_eq!(numbers(&pods), expected);
            assert_eq!(pods.only().is_some(), number == 1);
            assert_eq!(pods.last().map(|pod| pod.number), Some(number));
        }
        pods.retain(|pod| pod.number != 2);
        assert_eq!(numbers(&pods), [1, 3]);
        pods.retain(|pod| pod.number == 3);
        assert_eq!(pods, Pods::from([old(3)]));
        pods.clear();
        assert!(pods.is_empty());
    }

    #[test]
    fn changing_shared_pods_leaves_the_other_copy_unchanged() {
        let shared = Pods::from([current(1), current(2)]);
        let mut pods = shared.clone();
        pods[1].terminating = true;
        pods.iter_mut().for_each(|pod| pod.number += 1);
        assert_eq!(numbers(&pods), [2, 3]);
        assert_eq!(numbers(&shared), [1, 2]);
        assert!(!shared[1].terminating);
    }
}
