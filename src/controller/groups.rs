//! Which DaemonSets share a watch of their pods, and one of their ControllerRevisions.
//!
//! A watch each costs the API server and this process a connection's worth of state, and a list from etcd reads all pods of
//! the namespace each time. Where DaemonSets of a namespace ask for values of the same labels (`app=a`, `app=b`), one watch
//! with all of their values (`app in (a,b)`) tells the same. It may tell a little more, and whoever takes it in looks at the
//! selector of each DaemonSet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::core::selector::Selector;
use crate::index::SetKey;

/// What the selectors of one watch come to, in bytes: they stand in its URL, and proxies take 8 KB.
const LONGEST: usize = 4_000;

/// Beyond so many namespaces watches are of the whole cluster: there are never more of them than one connection carries.
const NAMESPACES: usize = 16;

/// DaemonSets whose pods one watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Where they are; `None`: in several namespaces.
    pub(super) namespace: Option<Arc<str>>,
    /// What selects the pods of all of them, as a query.
    pub(super) selector: String,
    /// Each with its own selector.
    pub(super) members: BTreeMap<SetKey, Selector>,
}

impl Group {
    /// The groups of these DaemonSets, each given with its selector as a query.
    pub(super) fn all<'a>(sets: impl IntoIterator<Item = (&'a SetKey, &'a str)>) -> Vec<Self> {
        let mut alike: BTreeMap<_, BTreeMap<SetKey, Selector>> = BTreeMap::new();
        let sets: Vec<(&SetKey, &str)> = sets.into_iter().collect();
        let namespaces: BTreeSet<&str> = sets.iter().map(|(key, _)| &*key.namespace).collect();
        let is_few = namespaces.len() <= NAMESPACES;
        for (key, query) in sets {
            // The API server took it, so it can be read.
            let selector = Selector::from_query(query).unwrap_or_default();
            let labels: Option<BTreeSet<Box<str>>> = selector.labels_with_values();
            let alone = labels.is_none().then(|| key.clone());
            let namespace = (is_few || alone.is_some()).then(|| key.namespace.clone());
            let place = (namespace, labels, alone);
            alike
                .entry(place)
                .or_default()
                .insert(key.clone(), selector);
        }
        let mut groups = Vec::new();
        for ((namespace, ..), members) in alike {
            for members in in_parts(members) {
                groups.push(Self {
                    namespace: namespace.clone(),
                    selector: Selector::any_of(members.values()).to_query(),
                    members,
                });
            }
        }
        groups
    }

    /// Whether the labels of an object, looked up by `label`, are those of pods of this member.
    pub(super) fn selects<'a>(
        &self,
        key: &SetKey,
        label: impl Fn(&str) -> Option<&'a str>,
    ) -> bool {
        self.members
            .get(key)
            .is_some_and(|selector| selector.matches(label))
    }
}

/// The same in parts that are not too long for one watch.
fn in_parts(members: BTreeMap<SetKey, Selector>) -> Vec<BTreeMap<SetKey, Selector>> {
    let (mut parts, mut length) = (vec![BTreeMap::new()], 0);
    for (key, selector) in members {
        let own = selector.to_query().len();
        if length + own > LONGEST && length > 0 {
            parts.push(BTreeMap::new());
            length = 0;
        }
        length += own;
        parts.last_mut().map(|part| part.insert(key, selector));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(sets: &[(&str, &str, &str)]) -> Vec<(String, Vec<String>)> {
        let keys: Vec<(SetKey, &str)> = sets
            .iter()
            .map(|(namespace, name, query)| (SetKey::new(namespace, name), *query))
            .collect();
        let groups = Group::all(keys.iter().map(|(key, query)| (key, *query)));
        let names = |group: &Group| {
            group
                .members
                .keys()
                .map(|key| key.name.to_string())
                .collect()
        };
        groups
            .iter()
            .map(|group| {
                (
                    format!(
                        "{}: {}",
                        group.namespace.as_deref().unwrap_or("*"),
                        group.selector
                    ),
                    names(group),
                )
            })
            .collect()
    }

    #[test]
    fn those_that_ask_for_values_of_the_same_labels_share_one() {
        let found = groups(&[
            ("n", "a", "app=a"),
            ("n", "b", "app in (b,c)"),
            ("n", "c", "app=a,tier=x"),
            ("n", "d", "tier in (x,y),app=d"),
            ("m", "e", "app=a"),
        ]);
        let expected = [
            ("m: app=a", vec!["e"]),
            ("n: app in (a,b,c)", vec!["a", "b"]),
            ("n: app in (a,d),tier in (x,y)", vec!["c", "d"]),
        ];
        let expected = expected.map(|(what, names)| {
            (
                what.to_owned(),
                names.iter().map(ToString::to_string).collect(),
            )
        });
        assert_eq!(found, Vec::from(expected));
    }

    #[test]
    fn whoever_asks_for_anything_else_is_alone() {
        let found = groups(&[
            ("n", "a", "app"),
            ("n", "b", "app"),
            ("n", "c", "app=c,!old"),
            ("n", "d", "app=c,app in (c,d)"),
            ("n", "e", ""),
        ]);
        assert_eq!(found.len(), 5, "{found:?}");
    }

    #[test]
    fn those_of_many_namespaces_share_one_of_the_whole_cluster() {
        let names: Vec<String> = (0..20).map(|number| format!("n-{number:02}")).collect();
        let sets: Vec<(&str, &str, &str)> = names
            .iter()
            .map(|name| (name.as_str(), "a", "app=a"))
            .collect();
        let found = groups(&sets);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "*: app=a");
        assert_eq!(groups(&sets[..16]).len(), 16);
    }

    #[test]
    fn a_group_does_not_grow_without_end() {
        let names: Vec<String> = (0..250).map(|number| format!("ds-{number:03}")).collect();
        let queries: Vec<String> = names.iter().map(|name| format!("app={name}")).collect();
        let sets: Vec<(&str, &str, &str)> = names
            .iter()
            .zip(&queries)
            .map(|(name, query)| ("n", name.as_str(), query.as_str()))
            .collect();
        let found = groups(&sets);
        let all: usize = found.iter().map(|(_, names)| names.len()).sum();
        assert_eq!((found.len(), all), (1, 250));
        let long: Vec<String> = names
            .iter()
            .map(|name| format!("app={name:-<60}0"))
            .collect();
        let sets = sets.iter().zip(&long);
        let sets: Vec<(&str, &str, &str)> = sets
            .map(|((namespace, name, _), query)| (*namespace, *name, query.as_str()))
            .collect();
        let found = groups(&sets);
        assert_eq!(found.len(), 5);
        assert!(
            found.iter().all(|(selector, _)| selector.len() <= LONGEST),
            "{found:?}"
        );
    }
}
