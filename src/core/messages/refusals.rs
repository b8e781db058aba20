//! Sentences about writes that the API server rejects, which Events, conditions and `ctl` report.

use std::collections::BTreeMap;

use super::NextStep;
use super::headline::Headline;
use crate::core::fleet::write_failures::{WriteFailures, WriteVerb};
use crate::core::id::NodeName;

/// Rejected writes of one kind with the same message of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// Kind of the write.
    pub write: WriteVerb,
    /// Message of the API server.
    pub sentence: &'a str,
    /// Nodes with a rejected write, sorted by name.
    pub nodes: Vec<&'a NodeName>,
}

impl Group<'_> {
    /// Returns true if the writes were rejected because the controller lacks a permission (RBAC).
    pub fn lacks_permission(&self) -> bool {
        lacks_permission(self.sentence)
    }
}

/// Returns true if the message is about a missing permission (RBAC), and not about a quota or a policy.
pub fn lacks_permission(sentence: &str) -> bool {
    ["User \"", " cannot ", " resource "]
        .iter()
        .all(|part| sentence.contains(part))
}

/// Returns the headline about the first group of rejected writes.
pub(super) fn headline(refused: &WriteFailures) -> Headline {
    let groups = refused.groups();
    let Some(first) = groups.first() else {
        return Headline::default();
    };
    let ask = NextStep::plain("ask the owner of the policy, quota or webhook to allow the write");
    let grant = NextStep::plain("grant the controller this permission");
    let (next, look) = if first.lacks_permission() {
        (Some(grant), None)
    } else {
        (None, Some(ask))
    };
    Headline {
        fact: format!("the API server refuses to {}", first.write.words()),
        nodes: first.nodes.iter().map(ToString::to_string).collect(),
        cause: shortened(first.sentence),
        next,
        or: Some(NextStep::plain(match groups.len() {
            1 => "retried automatically",
            _ => "other writes are rejected too",
        })),
        look,
        ..Headline::on_nodes()
    }
}

/// Shortens a message of the API server to what the reader needs, because a long cause is truncated at its end.
///
/// - About a missing permission, the verb and the resource stay. The account is always that of the controller.
/// - About an admission policy, the name of its binding is removed. It is usually similar to the policy's name, which stays.
fn shortened(sentence: &str) -> String {
    if lacks_permission(sentence) {
        let verb = sentence.find("cannot ").unwrap_or_default();
        let denied = &sentence[verb..];
        return denied
            .split(" in API group \"\"")
            .next()
            .unwrap_or(denied)
            .to_owned();
    }
    let parts = sentence.split_once(" with binding '");
    let parts = parts.and_then(|(policy, rest)| Some((policy, rest.split_once("' ")?.1)));
    parts.map_or_else(
        || sentence.to_owned(),
        |(policy, why)| format!("{policy} {why}"),
    )
}

impl WriteFailures {
    /// Returns a sentence about the rejected writes in the form of a condition's message; empty if there are none.
    pub fn sentence(&self) -> String {
        headline(self).sentence()
    }

    /// Groups the rejected writes by kind and message.
    pub fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: BTreeMap<(WriteVerb, &str), Vec<&NodeName>> = BTreeMap::new();
        for (node, failure) in self.failures() {
            let group = groups
                .entry((failure.write, &failure.sentence))
                .or_default();
            group.push(node);
        }
        let group = |((write, sentence), nodes)| Group {
            write,
            sentence,
            nodes,
        };
        groups.into_iter().map(group).collect()
    }
}
