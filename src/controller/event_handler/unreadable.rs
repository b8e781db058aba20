//! Unreadable objects, by watch. Each object is reported once, and counted as long as it is unreadable.

use std::collections::BTreeMap;

use crate::k8s::{Unreadable, UnreadableReason};

/// Maximum number of tracked objects per watch. Further unreadable objects are neither counted nor reported by name.
const MOST: usize = 256;

/// Watch, identified by its resource and number. Cluster-wide watches have the number zero.
pub(super) type WatchId = (&'static str, u64);

type ObjectName = (String, String);

#[derive(Debug, Default)]
pub(super) struct UnreadableObjects(BTreeMap<WatchId, BTreeMap<ObjectName, Known>>);

#[derive(Debug)]
struct Known {
    reason: UnreadableReason,
    uid: Option<String>,
    /// True if the list in progress contained the object.
    is_listed: bool,
}

impl UnreadableObjects {
    /// Prepares for a new list of the watch.
    pub(super) fn begin(&mut self, watch: WatchId) {
        let known = self.0.get_mut(&watch).into_iter().flatten();
        known.for_each(|(_, known)| known.is_listed = false);
    }

    /// Records an unreadable object. Returns true if the object was readable before, was recreated, or is unreadable for another
    /// reason than before.
    pub(super) fn note(&mut self, watch: WatchId, object: &Unreadable) -> bool {
        let meta = &object.metadata;
        let name = name_of(meta.namespace.as_deref(), meta.name.as_deref());
        let known = self.0.entry(watch).or_default();
        if known.len() >= MOST && !known.contains_key(&name) {
            return false;
        }
        let now = Known {
            reason: object.reason,
            uid: meta.uid.clone(),
            is_listed: true,
        };
        let is_same =
            |before: Known| (before.reason, before.uid) == (object.reason, meta.uid.clone());
        !known.insert(name, now).is_some_and(is_same)
    }

    /// Forgets an object that is readable again or gone. Returns true if the object was recorded.
    pub(super) fn forget(
        &mut self,
        watch: WatchId,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> bool {
        let Some(known) = self.0.get_mut(&watch) else {
            return false;
        };
        let was_known = known.remove(&name_of(namespace, name)).is_some();
        if known.is_empty() {
            self.0.remove(&watch);
        }
        was_known
    }

    /// Forgets the objects that the completed list didn't contain. Returns true if there were any.
    pub(super) fn finish(&mut self, watch: WatchId) -> bool {
        let Some(known) = self.0.get_mut(&watch) else {
            return false;
        };
        let before = known.len();
        known.retain(|_, known| known.is_listed);
        let is_changed = known.len() < before;
        if known.is_empty() {
            self.0.remove(&watch);
        }
        is_changed
    }

    /// Forgets the objects of watches that have ended. Returns true if there were any.
    pub(super) fn retain(&mut self, goes_on: impl Fn(WatchId) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|watch, _| goes_on(*watch));
        self.0.len() < before
    }

    /// Returns true if every object is readable.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of unreadable objects, by resource and reason.
    pub(super) fn counts(&self) -> BTreeMap<(&'static str, UnreadableReason), usize> {
        let mut counts = BTreeMap::new();
        for ((resource, _), known) in &self.0 {
            for known in known.values() {
                *counts.entry((*resource, known.reason)).or_default() += 1;
            }
        }
        counts
    }
}

fn name_of(namespace: Option<&str>, name: Option<&str>) -> ObjectName {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    (text(namespace), text(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::k8s::{Item, Pod, object};

    fn broken(name: &str) -> Box<Unreadable> {
        let json =
            format!("{{\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"n\"}},\"spec\":7}}");
        let item: Item<Pod> = object::read(json.as_bytes());
        item.expect_err("a pod whose spec is a number")
    }

    #[test]
    fn an_unreadable_object_is_reported_once_and_forgotten_when_a_list_lacks_it() {
        let (mut objects, pods) = (UnreadableObjects::default(), ("pods", 1));
        assert!(objects.note(pods, &broken("a")));
        assert!(!objects.note(pods, &broken("a")));
        assert!(objects.note(pods, &broken("b")));
        objects.begin(pods);
        assert!(!objects.note(pods, &broken("b")));
        assert!(objects.finish(pods));
        let malformed = UnreadableReason::Malformed;
        assert_eq!(objects.counts(), BTreeMap::from([(("pods", malformed), 1)]));
        assert!(!objects.forget(pods, Some("n"), Some("a")));
        assert!(objects.forget(pods, Some("n"), Some("b")));
        assert!(objects.is_empty());
    }

    #[test]
    fn remembered_unreadable_objects_are_bounded() {
        let (mut objects, pods) = (UnreadableObjects::default(), ("pods", 1));
        let names = 0..2 * MOST;
        let news = names.filter(|name| objects.note(pods, &broken(&name.to_string())));
        assert_eq!(news.count(), MOST);
        assert!(objects.retain(|watch| watch != pods));
        assert_eq!(objects.counts().len(), 0);
    }
}
