//! Why whoever makes pods could not make one, or the ControllerRevision that it is made of: what its Events say (`FailedCreate`),
//! in the sentence of the condition, from which `ctl` reads it back.

use crate::core::kind::SetKind;
use crate::core::words::{line, of_event};

/// What the native controller puts before the answer of the API server.
const PREFIX: &str = "Error creating: ";

const BEFORE: &str = " cannot create pods on ";
const AFTER: &str = " (Events with reason FailedCreate)";

/// What stands around the answer of the API server to the ControllerRevision.
const REFUSED: &str = " (the API server refuses it: ";

const TRIED_AGAIN: &str = "; it is tried again)";

/// The characters that Kubernetes adds to the name of a pod after `generateName`.
const RANDOM: usize = 5;

/// What a message of such an Event says, without what differs from one try to the next: the name of the pod.
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

/// That pods cannot be made on these nodes, and why.
pub(super) fn sentence(kind: SetKind, nodes: &str, why: &str) -> String {
    format!(
        "stopped: {}{BEFORE}{nodes}: {why}{AFTER}",
        kind.controller()
    )
}

/// That the template is in no ControllerRevision because the API server refuses it; to follow what is waited for.
pub(super) fn unrevised(why: &str) -> String {
    format!("{REFUSED}{why}{TRIED_AGAIN}")
}

/// What such a sentence gave as the reason.
pub fn read(message: &str) -> Option<&str> {
    if let Some((_, rest)) = message.split_once(REFUSED) {
        return rest.rsplit_once(TRIED_AGAIN).map(|(why, _)| why);
    }
    let (_, rest) = message.split_once(BEFORE)?;
    let (_, rest) = rest.split_once(": ")?;
    rest.rsplit_once(AFTER).map(|(why, _)| why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_try_says_what_the_next_one_does_and_it_is_read_back() {
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
        for kind in [SetKind::Native, SetKind::Advanced] {
            let sentence = sentence(kind, "n1, n2 and 3 more", &why);
            assert_eq!(
                read(&format!("revision 5d4f8: {sentence}; and more")),
                Some(why.as_str())
            );
        }
        let behind = format!("waiting: no revision{}", unrevised(&why));
        assert_eq!(read(&behind), Some(why.as_str()));
        assert_eq!(read(&format!("{behind}; see the log")), Some(why.as_str()));
        assert_eq!(read("revision 5d4f8: complete"), None);
        assert_eq!(said("\"web-\" \"web-a", "web"), "\"web-\" \"web-a");
    }
}
