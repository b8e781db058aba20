//! Invalid `hold` annotations of Nodes. A node with such an annotation keeps its outdated pod, perhaps by mistake.

use super::Plan;
use crate::core::fleet::{Fleet, Node};
use crate::core::settings::Note;
use crate::core::verdict::Verdict;
use crate::core::words::named;

impl Plan {
    /// Returns the nodes that keep their pod because their `hold` annotation cannot be parsed.
    pub(in crate::core) fn unreadable_holds<'a>(&self, fleet: &'a Fleet) -> Vec<&'a Node> {
        if self.counts.of_kind(Verdict::Held { until: None }) == 0 {
            return Vec::new(); // skip the expensive pass over all nodes if no node is held
        }
        let nodes = fleet.nodes.iter().zip(&self.verdicts);
        let held = nodes.filter(|(_, told)| matches!(told, Verdict::Held { .. }));
        let is_unreadable = |node: &&Node| node.hold.as_ref().is_some_and(|hold| hold.unreadable);
        held.map(|(node, _)| node).filter(is_unreadable).collect()
    }

    /// Returns a note about the nodes with invalid `hold` annotations, for the owner of the DaemonSet.
    pub fn notes_on_nodes(&self, fleet: &Fleet) -> Option<Note> {
        let nodes = self.unreadable_holds(fleet);
        let (first, others) = nodes.split_first()?;
        let why = first.hold.as_ref().map_or("", |hold| &*hold.reason);
        let others = match others {
            [] => String::new(),
            others => {
                let names = others.iter().map(|node| node.name.as_str());
                format!(" (also on {})", named(names, 0))
            }
        };
        let text = format!(
            "node {} keeps the outdated pods of all DaemonSets: {why}{others}",
            first.name
        );
        Some(Note::warning(text))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use crate::core::fleet::Node;
    use crate::core::testing::{current, fleet, node, old};
    use crate::core::{Holds, Mode, Strategy, decide};

    #[test]
    fn an_invalid_hold_is_reported_to_each_daemonset_that_it_delays() {
        let held = |name: &str, text: &str| Node {
            hold: Holds::read(text).get("default", "nginx").cloned(),
            ..node(name, old(1))
        };
        let good = r#"[{"daemonset": "default/nginx", "reason": "calibration"}]"#;
        let told = |nodes: Vec<Node>| {
            let (fleet, strategy) = (
                fleet(nodes),
                Strategy::with_mode(Mode::AdvancedRollingUpdate),
            );
            let now = Timestamp::from_second(1_000).unwrap();
            let plan = decide(&strategy, &fleet, now);
            let note = plan.notes_on_nodes(&fleet).map(|note| note.text);
            (plan.exceptions(&fleet, &strategy).join("; "), note)
        };
        assert_eq!(
            told(vec![held("a", good)]),
            ("1 node is on hold".to_owned(), None)
        );
        let (words, note) = told(vec![held("a", good), held("b", "x"), held("c", "[{}]")]);
        assert_eq!(words, "3 nodes are on hold: unreadable annotation on b, c");
        let note = note.expect("a note");
        assert!(
            note.starts_with("node b keeps the outdated pods of all DaemonSets: "),
            "{note}"
        );
        assert!(
            note.ends_with("is invalid: it is not a JSON list; correct or remove it (also on c)"),
            "{note}"
        );
        // Node b runs the current revision. Its invalid annotation keeps no outdated pod, so there is no note.
        let done = Node {
            pods: [current(2)].into(),
            ..held("b", "x")
        };
        assert_eq!(told(vec![done]).1, None);
    }
}
