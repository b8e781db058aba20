//! Failure domains: replacements at the same time stay within a few values of one node label (kubernetes/kubernetes#114010).
//!
//! A node's domain is its value of the label `topology-key`. All nodes without that label form one domain with an empty value. A
//! domain is *held* while a node in it is being updated, waits for a pod, or is Ready with a failed new pod. Offline nodes don't
//! hold a domain.
//!
//! A replacement begins only if at most `max-domains` domains are held, including its own. Domains with a broken pod that needs
//! repair come first, then all other domains. Both groups are in alphabetical order.
//!
//! More domains can be held than `max-domains` allows, for example after a crash in another domain. Then no replacement begins
//! until the nodes of enough domains are done.

use std::collections::BTreeSet;

use super::class::Class;
use super::order::Turn;
use crate::core::fleet::{Fleet, Node};
use crate::core::settings::{Strategy, Topology};

/// Domains in which replacements may begin.
#[derive(Debug)]
pub(super) struct Domains<'a> {
    /// Settings of the failure domains; `None` if every node may begin.
    topology: Option<&'a Topology>,
    held: BTreeSet<&'a str>,
    /// Domains in which replacements may begin.
    turn: BTreeSet<&'a str>,
}

impl<'a> Domains<'a> {
    /// Chooses the domains in which nodes of `queue` may be replaced.
    pub(super) fn new(
        strategy: &'a Strategy,
        fleet: &'a Fleet,
        classes: &[Class],
        queue: &[Turn],
    ) -> Self {
        let Some(topology) = &strategy.topology else {
            return Self {
                topology: None,
                held: BTreeSet::new(),
                turn: BTreeSet::new(),
            };
        };
        let value = |position: usize| topology.domain_of(&fleet.nodes[position].labels);
        let busy = classes.iter().enumerate();
        let busy = busy.filter(|(_, class)| class.is_in_flight());
        let held: BTreeSet<&str> = busy.map(|(position, _)| value(position)).collect();
        let mut turn = BTreeSet::new();
        if held.len() <= topology.at_once {
            turn.clone_from(&held);
            for available in [false, true] {
                let waiting = queue.iter().filter(|turn| turn.available == available);
                let waiting = waiting.map(|turn| value(turn.position));
                let free = topology.at_once - turn.len();
                turn.extend(least(waiting.filter(|value| !turn.contains(value)), free));
            }
        }
        Self {
            topology: Some(topology),
            held,
            turn,
        }
    }

    /// Returns true if the limit of domains allows a replacement on this node.
    pub(super) fn may_begin(&self, node: &Node) -> bool {
        self.topology
            .is_none_or(|topology| self.turn.contains(topology.domain_of(&node.labels)))
    }

    /// Returns the domains that are held, or in which replacements may begin, in alphabetical order.
    pub(super) fn names(&self) -> Vec<String> {
        let names = self.held.union(&self.turn);
        names.map(|name| (*name).to_owned()).collect()
    }
}

/// Returns true if the node has to wait for other domains. `at_work` contains the domains of [`Domains::names`].
pub(super) fn is_others_turn(topology: &Topology, node: &Node, at_work: &[String]) -> bool {
    let own = topology.domain_of(&node.labels);
    !at_work.is_empty() && at_work.iter().all(|domain| domain != own)
}

/// Returns the first `count` values in alphabetical order, without sorting all of them.
fn least<'a>(values: impl Iterator<Item = &'a str>, count: usize) -> BTreeSet<&'a str> {
    let mut least = BTreeSet::new();
    for value in values {
        let is_among = least.len() < count || least.last().is_some_and(|last| value < *last);
        if is_among && least.insert(value) && least.len() > count {
            least.pop_last();
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::{at, current, fleet, node, old};
    use crate::core::{Action, IntOrPercent, Mode, Pause, Verdict, decide};

    /// Returns the nodes that are replaced now, and the domains that are held or next.
    fn chosen(at_once: usize, nodes: Vec<Node>) -> (Vec<String>, Vec<String>) {
        let strategy = Strategy {
            max_unavailable: IntOrPercent::Percent(100),
            topology: Some(Topology {
                key: "zone".into(),
                at_once,
            }),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        let plan = decide(&strategy, &fleet(nodes), at(1_000));
        let name = |action: &Action| action.pod().name.to_string();
        (plan.actions.iter().map(name).collect(), plan.domains)
    }

    fn zone(name: &str, zone: &str, pod: crate::core::Pod) -> Node {
        node(name, pod).labelled("zone", zone)
    }

    #[test]
    fn domains_take_turns_in_alphabetical_order() {
        let nodes = || {
            vec![
                zone("n1", "b", old(1)),
                zone("n2", "a", old(1)),
                zone("n3", "c", old(1)),
                zone("n4", "a", old(1)),
            ]
        };
        let (nodes_, domains) = chosen(1, nodes());
        assert_eq!((nodes_, domains), (names(&["n2", "n4"]), names(&["a"])));
        let (nodes_, domains) = chosen(2, nodes());
        assert_eq!(
            (nodes_, domains),
            (names(&["n1", "n2", "n4"]), names(&["a", "b"]))
        );
    }

    #[test]
    fn nodes_that_wait_for_another_domain_have_their_own_verdict() {
        let strategy = Strategy {
            topology: Some(Topology {
                key: "zone".into(),
                at_once: 1,
            }),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        let nodes = vec![
            zone("n1", "a", old(1)),
            zone("n2", "a", old(1)),
            zone("n3", "b", old(1)),
            zone("n4", "b", current(2)),
        ];
        let words = |plan: crate::core::Plan| -> Vec<&str> {
            plan.verdicts.iter().map(|verdict| verdict.word()).collect()
        };
        let plan = decide(&strategy, &fleet(nodes.clone()), at(1_000));
        assert_eq!(plan.counts.by_word[Verdict::AwaitingDomain.index()], 1);
        assert_eq!(
            words(plan),
            ["InProgress", "Budget", "AwaitingDomain", "Done"]
        );
        // During a pause no domain is held or next, so the node waits for no other domain.
        let paused = Strategy {
            pause: Some(Pause::Indefinite),
            ..strategy
        };
        let plan = decide(&paused, &fleet(nodes), at(1_000));
        assert_eq!(words(plan), ["Paused", "Paused", "Paused", "Done"]);
    }

    #[test]
    fn a_node_in_progress_holds_its_domain_and_an_offline_node_does_not() {
        let nodes = vec![
            zone("n1", "a", old(1)),
            zone("n2", "a", old(1)).away(),
            zone("n3", "b", current(2).broken()),
            zone("n4", "b", old(1)),
        ];
        assert_eq!(chosen(1, nodes), (names(&["n4"]), names(&["b"])));
    }

    #[test]
    fn a_crash_in_another_domain_blocks_new_updates() {
        let nodes = vec![
            zone("n1", "a", old(1)),
            zone("n2", "a", current(2).broken()),
            zone("n3", "b", current(2).broken()),
        ];
        assert_eq!(chosen(1, nodes), (names(&[]), names(&["a", "b"])));
    }

    #[test]
    fn a_domain_with_a_broken_pod_comes_first() {
        let nodes = vec![zone("n1", "a", old(1)), zone("n2", "b", old(1).broken())];
        assert_eq!(chosen(1, nodes), (names(&["n2"]), names(&["b"])));
    }

    #[test]
    fn nodes_without_the_label_form_the_first_domain() {
        let nodes = vec![zone("n1", "a", old(1)), node("n2", old(1))];
        assert_eq!(chosen(1, nodes), (names(&["n2"]), names(&[""])));
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }
}
