//! Groups of DaemonSets. A group shares one watch of pods and one watch of ControllerRevisions.
//!
//! Each watch takes memory in the API server and in this process. Each list from etcd reads all pods of the namespace, whatever its
//! selector. If the DaemonSets of a namespace select values of the same labels (`app=a`, `app=b`), one watch with all values (`app
//! in (a,b)`) suffices. Such a watch may also report other pods, so each DaemonSet's own selector is checked afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::core::selector::Selector;
use crate::index::SetKey;

/// Maximum total length of the selectors of one watch, in bytes. The selectors are part of the URL, and proxies accept URLs of 8
/// KB.
const LONGEST: usize = 4_000;

/// Maximum number of namespaces with watches of their own. With more namespaces, DaemonSets that select values of the same labels
/// share one watch of the whole cluster, so that all watches fit on one connection.
const NAMESPACES: usize = 16;

/// Maximum number of groups per namespace. With more groups, one watch covers all pods of the namespace. So one tenant can't use up
/// the connections.
const GROUPS_OF_NAMESPACE: usize = 16;

/// Maximum number of groups in total. With more groups, one watch covers the whole cluster.
const GROUPS: usize = 256;

/// DaemonSets that share a watch of their pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Namespace of the DaemonSets; `None`: they are in several namespaces.
    pub(super) namespace: Option<Arc<str>>,
    /// Selector of the watch, in the syntax of the query parameter `labelSelector`. It matches the pods of all members.
    pub(super) selector: String,
    /// Members of the group, each with its own selector.
    pub(super) members: BTreeMap<SetKey, Selector>,
}

/// Common property of the selectors in a group. DaemonSets with the same property can share a watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    /// All members select values of these labels.
    Labels(BTreeSet<Box<str>>),
    /// The group has only this member.
    Alone(SetKey),
    /// The selectors have nothing in common. There are too many groups, so one watch covers all pods of the namespace or of the
    /// cluster.
    Everything,
}

/// Namespace of a group (`None`: several), with the common property of the selectors.
type Place = (Option<Arc<str>>, Asked);

impl Group {
    /// Returns the groups of these DaemonSets. Each DaemonSet comes with its selector in the syntax of `labelSelector`.
    pub(super) fn all<'a>(sets: impl IntoIterator<Item = (&'a SetKey, &'a str)>) -> Vec<Self> {
        let sets = sets.into_iter().map(|(key, query)| {
            // The API server validated the selector, so parsing succeeds.
            let selector = Selector::from_query(query).unwrap_or_default();
            let asked = match selector.labels_with_values() {
                Some(labels) => Asked::Labels(labels),
                None => Asked::Alone(key.clone()),
            };
            (key, selector, asked)
        });
        let sets: Vec<(&SetKey, Selector, Asked)> = sets.collect();
        let mut asked: BTreeMap<&str, BTreeSet<&Asked>> = BTreeMap::new();
        for (key, _, what) in &sets {
            asked.entry(&*key.namespace).or_default().insert(what);
        }
        let is_few = asked.len() <= NAMESPACES;
        let place = |key: &SetKey, what: &Asked| -> Place {
            let is_crowded = asked[&*key.namespace].len() > GROUPS_OF_NAMESPACE;
            let what = if is_crowded {
                Asked::Everything
            } else {
                what.clone()
            };
            let in_one = is_few || !matches!(what, Asked::Labels(_));
            (in_one.then(|| key.namespace.clone()), what)
        };
        let mut alike: BTreeMap<Place, BTreeMap<SetKey, Selector>> = BTreeMap::new();
        for (key, selector, what) in &sets {
            let members = alike.entry(place(key, what)).or_default();
            members.insert((*key).clone(), selector.clone());
        }
        if alike.len() > GROUPS {
            let members = std::mem::take(&mut alike).into_values().flatten();
            alike.insert((None, Asked::Everything), members.collect());
        }
        let mut groups = Vec::new();
        for ((namespace, what), members) in alike {
            if what == Asked::Everything {
                groups.push(Self {
                    namespace,
                    selector: String::new(),
                    members,
                });
                continue;
            }
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

    /// Returns true if the member `key` selects an object. `label` returns the object's value of a label.
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

/// Splits members into parts that are small enough for one watch each.
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
    fn daemonsets_that_select_on_the_same_labels_share_a_watch() {
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
    fn daemonsets_with_unusual_selectors_get_their_own_group() {
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
    fn many_namespaces_share_one_cluster_wide_watch() {
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
    fn a_namespace_with_many_selectors_has_one_watch_for_all_its_pods() {
        let queries: Vec<String> = (0..1500).map(|number| format!("key-{number}=v")).collect();
        let mut sets: Vec<(&str, &str, &str)> = queries
            .iter()
            .map(|query| ("tenant", query.as_str(), query.as_str()))
            .collect();
        sets.push(("n", "a", "app=a"));
        let found = groups(&sets);
        let counts: Vec<(&str, usize)> = found
            .iter()
            .map(|(what, names)| (what.as_str(), names.len()))
            .collect();
        assert_eq!(counts, [("n: app=a", 1), ("tenant: ", 1500)]);
        assert_eq!(groups(&sets[..16]).len(), 16);
        // One watch covers all pods of the namespace. The members' own selectors still separate their pods.
        let (a, b) = (SetKey::new("tenant", "a"), SetKey::new("tenant", "b"));
        let many: Vec<SetKey> = (0..20)
            .map(|number| SetKey::new("tenant", &format!("n{number}")))
            .collect();
        let others = many
            .iter()
            .zip(&queries)
            .map(|(key, query)| (key, query.as_str()));
        let all = Group::all([(&a, "app=a"), (&b, "app=b")].into_iter().chain(others));
        let label = |key: &str| (key == "app").then_some("a");
        assert!(all[0].selects(&a, label) && !all[0].selects(&b, label));
    }

    #[test]
    fn many_namespaces_with_different_labels_share_one_cluster_wide_watch() {
        let names: Vec<String> = (0..300).map(|number| format!("n-{number:03}")).collect();
        let queries: Vec<String> = (0..300).map(|number| format!("key-{number}=v")).collect();
        let sets = names.iter().zip(&queries);
        let sets: Vec<(&str, &str, &str)> = sets
            .map(|(name, query)| (name.as_str(), "a", query.as_str()))
            .collect();
        assert_eq!(groups(&sets[..256]).len(), 256);
        let found = groups(&sets);
        assert_eq!(
            (found.len(), found[0].0.as_str(), found[0].1.len()),
            (1, "*: ", 300)
        );
    }

    #[test]
    fn the_selector_of_a_group_is_bounded() {
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
