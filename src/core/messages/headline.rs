//! Headline of a condition or an Event: fact, nodes, cause and next step, in that order and within a length limit.

use super::NextStep;
use crate::core::foreign::cut;
use crate::core::words::{append, nodes};

/// Maximum length of a headline, in characters. The message of a condition is the revision and the headline, and must not exceed
/// 200 characters.
pub(super) const ROOM: usize = 178;

const NAMED: usize = 3;

/// Minimum length to which a cause is truncated, in characters.
const LEAST: usize = 24;

/// Separator between the fact and the names of the nodes, if the fact contains their number.
pub(super) const COUNTED: &str = ": ";

/// Parts of a headline: the fact, the nodes, the cause and the next steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Headline {
    /// Fact, as the beginning of the sentence.
    pub(super) fact: String,
    /// Separator between the fact and the names of the nodes.
    pub(super) of: &'static str,
    /// Names of the affected nodes, in order.
    pub(super) nodes: Vec<String>,
    /// Number of further affected nodes that are counted and not named.
    pub(super) more: usize,
    /// Cause, as the API server, the kubelet or another component reports it.
    pub(super) cause: String,
    pub(super) next: Option<NextStep>,
    /// Alternative next step, included if there is enough space.
    pub(super) or: Option<NextStep>,
    /// Command that shows details. It is listed with the next steps, but the sentence doesn't contain it.
    pub(super) look: Option<NextStep>,
}

impl Headline {
    /// Returns an empty headline in which the nodes follow the word "on".
    pub(super) fn on_nodes() -> Self {
        Self {
            of: " on ",
            ..Self::default()
        }
    }

    /// Returns the headline as a sentence. If the sentence is too long, all names but one are removed first, then the cause is
    /// truncated. The next step and one name always stay.
    pub(super) fn sentence(&self) -> String {
        let fits = |text: &String| text.chars().count() <= ROOM;
        let longest = self.or.as_ref().map(|or| {
            let mut text = self.with(NAMED, &self.cause);
            append(&mut text, &or.to_string());
            text
        });
        if let Some(longest) = longest.filter(fits) {
            return longest;
        }
        let whole = [NAMED, 1].map(|names| self.with(names, &self.cause));
        let cut_to_fit = [NAMED, 1, 0].into_iter().filter_map(|names| {
            let bare = self.with(names, "").chars().count();
            let left = ROOM.checked_sub(bare + ". Cause: …".chars().count());
            let left = left.filter(|left| *left >= LEAST)?;
            Some(self.with(names, &cut(&self.cause, left)))
        });
        let bare = [1, 0].map(|names| self.with(names, ""));
        let mut all = whole.into_iter().chain(cut_to_fit).chain(bare);
        // Drop the command instead of truncating it, because a truncated command is useless.
        let shorter = || match self.next {
            None => cut(&self.with(0, ""), ROOM - 1).into_owned(),
            Some(_) => self.without_next(),
        };
        all.find(fits).unwrap_or_else(shorter)
    }

    fn without_next(&self) -> String {
        let without_next = Self {
            next: None,
            or: None,
            ..self.clone()
        };
        without_next.sentence()
    }

    /// Returns the headline without next steps. Unless the fact contains the number of nodes, the number replaces their names.
    pub(super) fn fact_alone(&self) -> String {
        if self.of == COUNTED {
            return self.without_next();
        }
        let counted = Self {
            more: self.more + self.nodes.len(),
            nodes: Vec::new(),
            ..self.clone()
        };
        counted.without_next()
    }

    /// Returns the next steps of the headline, best first.
    pub(super) fn steps(&self) -> Vec<NextStep> {
        let steps = [&self.next, &self.look, &self.or].into_iter();
        steps.flatten().cloned().collect()
    }

    fn with(&self, names: usize, cause: &str) -> String {
        let named: Vec<&str> = self.nodes.iter().take(names).map(String::as_str).collect();
        let more = self.more + self.nodes.len() - named.len();
        let mut text = match (named.is_empty(), more) {
            (true, 0) => self.fact.clone(),
            (true, more) => format!("{}{}{}", self.fact, self.of, nodes(more)),
            (false, 0) => format!("{}{}{}", self.fact, self.of, named.join(", ")),
            (false, more) => format!(
                "{}{}{} and {more} more",
                self.fact,
                self.of,
                named.join(", ")
            ),
        };
        if !cause.is_empty() {
            append(&mut text, &format!("cause: {cause}"));
        }
        if let Some(step) = &self.next {
            append(&mut text, &step.to_string());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(nodes: usize, cause: &str) -> Headline {
        Headline {
            fact: "the new pods do not start".to_owned(),
            of: " on ",
            nodes: (0..nodes)
                .map(|number| format!("edge-{number:0>20}"))
                .collect(),
            more: 0,
            cause: cause.to_owned(),
            next: Some(NextStep::command(
                "roll back",
                "yurt-ds ctl undo shop/agent",
            )),
            ..Headline::default()
        }
    }

    #[test]
    fn a_short_headline_is_not_cut() {
        assert_eq!(
            failing(1, "ErrImagePull: not found").sentence(),
            "the new pods do not start on edge-00000000000000000000. Cause: ErrImagePull: not found. Roll back: yurt-ds ctl undo shop/agent"
        );
    }

    #[test]
    fn a_command_in_a_headline_is_omitted_not_cut() {
        let long = Headline {
            next: Some(NextStep::command(
                "roll back",
                format!("yurt-ds ctl undo {}/{}", "s".repeat(63), "a".repeat(63)),
            )),
            ..failing(3, "no")
        };
        let text = long.sentence();
        assert!(
            text.starts_with("the new pods do not start on edge-"),
            "{text}"
        );
        assert!(
            !text.contains("undo") && text.chars().count() <= ROOM,
            "{text}"
        );
    }

    #[test]
    fn a_long_headline_is_cut_and_the_next_step_stays() {
        for nodes in [0, 1, 3, 4, 1000] {
            for cause in ["", "no", &"no ".repeat(500)] {
                let text = failing(nodes, cause).sentence();
                assert!(text.chars().count() <= ROOM, "{text}");
                assert!(
                    text.ends_with(". Roll back: yurt-ds ctl undo shop/agent"),
                    "{text}"
                );
            }
        }
    }
}
