//! Text of Events about pods that cannot be created or don't become Ready. Other components write these Events.

use crate::core::words::{line, of_event};

/// Component name that kubelets set in their Events.
const KUBELET: &str = "kubelet";

/// Prefix that the native controller puts before the API server's message.
const PREFIX: &str = "Error creating: ";

/// Number of characters that Kubernetes appends to `generateName`.
const RANDOM: usize = 5;

/// Returns the message of an Event `FailedCreate`. The random part of the pod's name becomes `*`, because it differs between
/// attempts.
pub fn not_created(message: &str, set: &str) -> String {
    let message = of_event(message).trim_start_matches(PREFIX);
    let start = format!("\"{set}-");
    let mut text = String::new();
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(&start) {
        text.push_str(before);
        text.push_str(&start);
        let end = after.char_indices().nth(RANDOM).map(|(end, _)| end);
        rest = match end.filter(|end| after[*end..].starts_with('"')) {
            Some(end) => {
                text.push('*');
                &after[end..]
            }
            None => after,
        };
    }
    text.push_str(rest);
    line(&text)
}

/// Returns the text of an Event about a pod that doesn't become Ready, with its source. If `reason` is empty, the text is from the
/// pod's Ready condition.
pub fn not_ready(reason: &str, message: &str, source: &str) -> String {
    let source = match source {
        KUBELET | "" => "its kubelet",
        other => other,
    };
    let parts = [reason, of_event(message)].map(line);
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{source} reports {}", parts.join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_random_part_of_a_pod_name_is_masked() {
        let message = |pod: &str| {
            format!(
                "Error creating: pods \"web-{pod}\" is forbidden: exceeded quota: none, used: pods=3, limited: pods=3."
            )
        };
        let why = not_created(&message("x7k2p"), "web");
        assert_eq!(why, not_created(&message("abcde"), "web"));
        let combined = format!("(combined from similar events): {}", message("fghij"));
        assert_eq!(why, not_created(&combined, "web"));
        assert_eq!(
            why,
            "pods \"web-*\" is forbidden: exceeded quota: none, used: pods=3, limited: pods=3"
        );
        assert_eq!(not_created("\"web-\" \"web-a", "web"), "\"web-\" \"web-a");
    }

    #[test]
    fn an_unready_message_names_its_source() {
        let probe = not_ready(
            "Unhealthy",
            "Readiness probe failed: HTTP probe failed with statuscode: 500 \n",
            "kubelet",
        );
        assert_eq!(
            probe,
            "its kubelet reports Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 500"
        );
        let combined = "(combined from similar events): Readiness probe failed: HTTP probe failed with statuscode: 500";
        assert_eq!(not_ready("Unhealthy", combined, "kubelet"), probe);
        let ready = not_ready("", "containers with unready status: [main]", "");
        assert_eq!(
            ready,
            "its kubelet reports containers with unready status: [main]"
        );
        let other = not_ready("Evil", "x", "other-controller");
        assert_eq!(other, "other-controller reports Evil: x");
    }
}
