//! Tests that pulls which never end don't block the pulls of other namespaces and DaemonSets.

use proptest::prelude::*;

use super::*;

fn keys(of: &[(&str, &str, usize)]) -> Vec<SetKey> {
    let keys = of.iter().flat_map(|(namespace, name, count)| {
        std::iter::repeat_n(SetKey::new(namespace, name), *count)
    });
    keys.collect()
}

/// Queues pulls. Each entry has namespace, DaemonSet and number of pulls. Returns how many pulls start for each entry.
fn fill(slots: &mut Slots, of: &[(&str, &str, usize)]) -> Vec<usize> {
    let keys = keys(of);
    let begun = slots.fill(&keys.iter().collect::<Vec<_>>());
    let of_entry = |(namespace, name, _): &(&str, &str, usize)| {
        let key = SetKey::new(namespace, name);
        begun
            .iter()
            .filter(|position| keys[**position] == key)
            .count()
    };
    of.iter().map(of_entry).collect()
}

#[test]
fn a_single_daemonset_pulls_on_27_nodes() {
    let mut slots = Slots::default();
    assert_eq!(fill(&mut slots, &[("shop", "web", 1000)]), [27]);
    assert_eq!(fill(&mut slots, &[("shop", "web", 1000)]), [0]);
}

#[test]
fn a_namespace_with_hanging_pulls_leaves_slots_to_later_namespaces() {
    let mut slots = Slots::default();
    let mut next = |namespace| {
        let sets = [
            (namespace, "a", 99),
            (namespace, "b", 99),
            (namespace, "c", 99),
        ];
        fill(&mut slots, &sets).iter().sum::<usize>()
    };
    let namespaces = ["n1", "n2", "n3", "n4", "n5", "n6"];
    assert_eq!(namespaces.map(&mut next), [33, 10, 4, 2, 1, 1]);
    assert_eq!(namespaces.map(next), [0; 6]);
}

#[test]
fn a_daemonset_with_hanging_pulls_leaves_slots_to_its_namespace() {
    let mut slots = Slots::default();
    let mut next = |name| fill(&mut slots, &[("shop", name, 99)])[0];
    assert_eq!(["a", "b", "c", "d", "e"].map(&mut next), [27, 7, 2, 1, 0]);
}

#[test]
fn slots_that_a_namespace_does_not_need_go_to_other_namespaces() {
    let waiting = [
        ("shop", "web", 2),
        ("edge", "proxy", 99),
        ("lab", "agent", 99),
    ];
    assert_eq!(fill(&mut Slots::default(), &waiting), [2, 17, 17]);
}

#[test]
fn many_daemonsets_give_a_namespace_no_extra_slots() {
    let names: Vec<String> = (0..20).map(|n| format!("a{n}")).collect();
    let mut waiting = vec![("shop", "web", 12)];
    waiting.extend(names.iter().map(|name| ("many", name.as_str(), 9)));
    let begun = fill(&mut Slots::default(), &waiting);
    assert_eq!(begun[0], 12);
    assert!(begun[1..].iter().max() <= Some(&2), "{begun:?}");
}

/// Generates the key of one of 36 DaemonSets, three in each of 12 namespaces.
fn any_key() -> impl Strategy<Value = SetKey> {
    (0..12, 0..3)
        .prop_map(|(namespace, name)| SetKey::new(&format!("n{namespace}"), &format!("a{name}")))
}

/// Generates the steps of a test. In each step, new pulls are queued, and then the selected running pulls end.
fn rounds() -> impl Strategy<Value = Vec<(Vec<SetKey>, Vec<prop::sample::Index>)>> {
    let coming = prop::collection::vec((any_key(), 1..60usize), 0..4).prop_map(|coming| {
        let keys = coming.into_iter();
        keys.flat_map(|(key, count)| std::iter::repeat_n(key, count))
            .collect()
    });
    let ending = prop::collection::vec(any::<prop::sample::Index>(), 0..40);
    prop::collection::vec((coming, ending), 1..12)
}

proptest! {
    #[test]
    fn no_namespace_waits_without_a_pull_and_the_total_is_bounded(rounds in rounds()) {
        let (mut waiting, mut running): (Vec<SetKey>, Vec<SetKey>) = Default::default();
        for (coming, ending) in rounds {
            waiting.extend(coming);
            let mut slots = Slots::default();
            running.iter().for_each(|key| slots.take(key));
            let mut begun = slots.fill(&waiting.iter().collect::<Vec<_>>());
            begun.sort_unstable();
            running.extend(begun.into_iter().rev().map(|position| waiting.remove(position)));
            for key in &waiting {
                prop_assert!(slots.of_namespace(key) > 0, "{key} waits: {slots:?}");
                prop_assert!(!slots.has_room(key), "{key} waits beside a free slot: {slots:?}");
            }
            prop_assert_eq!(slots.all, running.len());
            prop_assert!(slots.all <= PULLS_AT_ONCE + slots.namespaces.len().saturating_sub(1), "{slots:?}");
            for end in ending {
                if !running.is_empty() {
                    running.swap_remove(end.index(running.len()));
                }
            }
        }
    }

    #[test]
    fn a_namespace_with_less_than_others_has_what_it_wants(wanted in prop::collection::vec(0..60usize, 1..20)) {
        let names: Vec<String> = (0..wanted.len()).map(|n| format!("n{n}")).collect();
        let waiting: Vec<_> = names.iter().zip(&wanted).map(|(name, wants)| (name.as_str(), "web", *wants)).collect();
        let begun = fill(&mut Slots::default(), &waiting);
        let most = begun.iter().max().copied().unwrap_or_default();
        for (wants, has) in wanted.iter().zip(&begun) {
            prop_assert!(has == wants || has + 1 >= most, "{wanted:?} {begun:?}");
        }
    }
}
