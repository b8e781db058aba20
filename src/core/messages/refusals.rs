//! Sentences for writes that the API server refuses, in Events, conditions and `ctl`.

use std::collections::BTreeMap;

use super::NextStep;
use super::headline::Headline;
use crate::core::fleet::write_failures::{WriteFailures, WriteVerb};
use crate::core::id::NodeName;

/// Nodes that are named for each sentence.
const NAMED: usize = 10;

/// Different sentences that are told.
const TOLD: usize = 3;

/// Stands for those who are not named.
const OTHERS: &str = " and others";

/// What was refused in the same words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// What was asked for.
    pub write: WriteVerb,
    /// What the API server said.
    pub sentence: &'a str,
    /// On which nodes, in the order of names.
    pub nodes: Vec<&'a NodeName>,
}

impl Group<'_> {
    /// Whether it is the controller that lacks a right (RBAC).
    pub fn lacks_permission(&self) -> bool {
        lacks_permission(self.sentence)
    }

    /// What is refused, and where: `delete pods on a, b and others: SENTENCE`.
    pub fn words(&self) -> String {
        let names: Vec<&str> = self.nodes.iter().map(|name| name.as_str()).collect();
        let others = if names.len() > NAMED { OTHERS } else { "" };
        let names = names[..names.len().min(NAMED)].join(", ");
        format!(
            "{} on {names}{others}: {}",
            self.write.words(),
            self.sentence
        )
    }
}

/// Whether the API server says so that a role is too small (RBAC), rather than that a quota or a policy objects.
pub fn lacks_permission(sentence: &str) -> bool {
    let says = |part| sentence.contains(part);
    says("User \"") && says(" cannot ") && says(" resource ")
}

/// Returns what the API server refuses, the first of several.
pub(super) fn headline(refused: &WriteFailures) -> Headline {
    let groups = refused.groups();
    let Some(first) = groups.first() else {
        return Headline::default();
    };
    Headline {
        fact: format!("the API server refuses to {}", first.write.words()),
        nodes: first.nodes.iter().map(ToString::to_string).collect(),
        cause: without_binding(first.sentence),
        or: Some(NextStep::plain(match groups.len() {
            1 => "retried automatically",
            _ => "and more",
        })),
        look: Some(NextStep::plain(if first.lacks_permission() {
            "grant the controller this right (manifests/base/rbac)"
        } else {
            "ask the owner of the policy, quota or webhook that denies it"
        })),
        ..Headline::on_nodes()
    }
}

/// Returns what an admission policy said without the name of its binding, which most of the time repeats that of the policy.
fn without_binding(sentence: &str) -> String {
    let parts = sentence.split_once(" with binding '");
    let parts = parts.and_then(|(policy, rest)| Some((policy, rest.split_once("' ")?.1)));
    parts.map_or_else(
        || sentence.to_owned(),
        |(policy, said)| format!("{policy} {said}"),
    )
}

impl WriteFailures {
    /// Returns what is refused in one sentence, as for a condition.
    pub fn sentence(&self) -> String {
        headline(self).sentence()
    }

    /// By what was refused and in which words.
    pub fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: BTreeMap<(WriteVerb, &str), Vec<&NodeName>> = BTreeMap::new();
        for (node, denial) in self.failures() {
            let group = groups.entry((denial.write, &denial.sentence)).or_default();
            group.push(node);
        }
        let group = |((write, sentence), nodes)| Group {
            write,
            sentence,
            nodes,
        };
        groups.into_iter().map(group).collect()
    }

    /// What is refused, in words that follow a semicolon or stand alone; empty when nothing is.
    pub fn words(&self) -> String {
        let groups = self.groups();
        let told: Vec<String> = groups.iter().take(TOLD).map(Group::words).collect();
        let more = if groups.len() > TOLD {
            "; and more"
        } else {
            ""
        };
        if told.is_empty() {
            String::new()
        } else {
            format!("the API server refuses to {}{more}", told.join("; and to "))
        }
    }

    /// The same, to follow a sentence; empty when nothing is.
    pub fn aside(&self) -> String {
        match self.words() {
            words if words.is_empty() => words,
            words => format!("; {words}"),
        }
    }
}
