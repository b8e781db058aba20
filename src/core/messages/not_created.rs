//! Sentences about pods and ControllerRevisions that cannot be created. They come from Events with the reason `FailedCreate`.

use crate::core::words::{line, of_event};

/// Prefix that the native controller puts before the API server's message.
const PREFIX: &str = "Error creating: ";

/// Number of characters that Kubernetes appends to `generateName`.
const RANDOM: usize = 5;

/// Returns the Event's message with `*` for the random part of the pod's name, which differs between attempts.
pub fn said(message: &str, set: &str) -> String {
    let message = of_event(message).trim_start_matches(PREFIX);
    let start = format!("\"{set}-");
    let mut said = String::new();
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(&start) {
        said.push_str(before);
        said.push_str(&start);
        let end = after.char_indices().nth(RANDOM).map(|(end, _)| end);
        rest = match end.filter(|end| after[*end..].starts_with('"')) {
            Some(end) => {
                said.push('*');
                &after[end..]
            }
            None => after,
        };
    }
    said.push_str(rest);
    line(&said)
}

/// Returns a phrase that says that the API server rejects the ControllerRevision for the template.
pub(super) fn unrevised(why: &str) -> String {
    format!(" (the API server refuses it: {why}; it is tried again)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_try_says_what_the_next_one_does() {
        let message = |pod: &str| {
            format!(
                "Error creating: pods \"web-{pod}\" is forbidden: exceeded quota: none, used: pods=3, limited: pods=3."
            )
        };
        let why = said(&message("x7k2p"), "web");
        assert_eq!(why, said(&message("abcde"), "web"));
        let combined = format!("(combined from similar events): {}", message("fghij"));
        assert_eq!(why, said(&combined, "web"));
        assert_eq!(
            why,
            "pods \"web-*\" is forbidden: exceeded quota: none, used: pods=3, limited: pods=3"
        );
        assert_eq!(said("\"web-\" \"web-a", "web"), "\"web-\" \"web-a");
    }
}
