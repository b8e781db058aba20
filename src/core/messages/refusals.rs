//! What is said of refusals: one sentence each, in Events, conditions and `ctl`, and the condition in which they are remembered.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::core::fleet::refusals::{Refusals, RefusedWrite};
use crate::core::id::{NodeName, Revision};

/// Nodes that are named in the condition, for each sentence.
const REMEMBERED: usize = 50;

/// Nodes that are named elsewhere.
const NAMED: usize = 10;

/// Different sentences that are told, and remembered in the condition.
const TOLD: usize = 3;
const KEPT: usize = 20;

/// Stands for those who are not named.
const OTHERS: &str = " and others";

/// What was refused in the same words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// What was asked for.
    pub write: RefusedWrite,
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
        self.naming(NAMED)
    }

    fn naming(&self, most: usize) -> String {
        let names: Vec<&str> = self.nodes.iter().map(|name| name.as_str()).collect();
        let others = if names.len() > most { OTHERS } else { "" };
        let names = names[..names.len().min(most)].join(", ");
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

impl Refusals {
    /// By what was refused and in which words.
    pub fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: BTreeMap<(RefusedWrite, &str), Vec<&NodeName>> = BTreeMap::new();
        for (node, denial) in self.denials() {
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
        match told.is_empty() {
            true => String::new(),
            false => format!("the API server refuses to {}{more}", told.join("; and to ")),
        }
    }

    /// The same, to follow a sentence; empty when nothing is.
    pub fn aside(&self) -> String {
        match self.words() {
            words if words.is_empty() => words,
            words => format!("; {words}"),
        }
    }

    /// What was remembered so of a DaemonSet, since then; empty when it cannot be read.
    pub fn read(message: &str, since: Timestamp) -> Self {
        let Some((revision, rest)) = head(message) else {
            return Self::default();
        };
        let refused = rest.lines().filter_map(refused_in);
        let refused = refused.flat_map(|(write, names, sentence)| {
            let sentence: Arc<str> = sentence.into();
            let names = names.strip_suffix(OTHERS).unwrap_or(names).split(", ");
            names.map(move |name| (NodeName::from(name), write, sentence.clone()))
        });
        Self::remember(revision, refused, since)
    }

    /// The same, and those whom the condition does not name: they are refused as well, in the words of which it says that they hold for
    /// others. `begun`: whose replacement is asked for although the controller says that nothing moves but what is refused.
    /// `None`: it names everybody.
    pub fn with_unnamed<'a>(
        &self,
        message: &str,
        since: Timestamp,
        begun: impl IntoIterator<Item = (&'a NodeName, RefusedWrite)>,
    ) -> Option<Self> {
        let (revision, rest) = head(message)?;
        let lines = rest.lines().filter_map(refused_in);
        let unnamed: BTreeMap<RefusedWrite, Arc<str>> = lines
            .filter(|(_, names, _)| names.ends_with(OTHERS))
            .map(|(write, _, sentence)| (write, sentence.into()))
            .collect();
        let known = self.denials().map(|(node, denial)| {
            let sentence = denial.sentence.clone();
            (node.clone(), denial.write, sentence)
        });
        let begun = begun.into_iter().filter_map(|(node, write)| {
            let sentence = unnamed.get(&write)?.clone();
            let is_new = !self.is_refused(node, write);
            is_new.then(|| (node.clone(), write, sentence))
        });
        let begun: Vec<_> = begun.collect();
        (!begun.is_empty()).then(|| Self::remember(revision, known.chain(begun), since))
    }
}

/// What a line of the condition says is refused, on which nodes, and in which words.
fn refused_in(line: &str) -> Option<(RefusedWrite, &str, &str)> {
    RefusedWrite::ALL.into_iter().find_map(|write| {
        let rest = line.strip_prefix(write.words())?.strip_prefix(" on ")?;
        let (names, sentence) = rest.split_once(": ")?;
        Some((write, names, sentence))
    })
}

fn head(message: &str) -> Option<(Revision, &str)> {
    let (revision, rest) = message.strip_prefix("revision ")?.split_once(": ")?;
    Some((revision.into(), rest))
}

/// The message of the condition in which it is remembered: [`Refusals::read`] reads it.
impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let revision = self.revision().map_or("", Revision::as_str);
        write!(f, "revision {revision}: ")?;
        for (number, group) in self.groups().iter().take(KEPT).enumerate() {
            let line = if number > 0 { "\n" } else { "" };
            write!(f, "{line}{}", group.naming(REMEMBERED))?;
        }
        Ok(())
    }
}
