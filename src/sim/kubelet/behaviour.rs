//! Behavior of containers on fake kubelets, selected by image and node.

use std::time::Duration;

/// Behavior of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Time that a node needs to pull the image if it doesn't have it.
    pub pull: Duration,
    /// Time from the end of the pull until the container is running.
    pub start: Duration,
    /// Time from the start of the container until it is ready.
    pub ready_after: Duration,
    /// Time after each start at which the container fails with exit code 1; `None` if it never fails.
    pub crash_after: Option<Duration>,
    /// Time after each start at which the container ends with exit code 0.
    ///
    /// With `None`, the container runs forever. Exception: if the pod's restart policy is not `Always`, as for a Job, it ends
    /// immediately.
    pub completes_after: Option<Duration>,
    /// True if the registry does not have the image.
    pub image_error: bool,
    /// True if the registry rejects connections. For a registry that hangs, use an endless `pull` instead.
    pub registry_down: bool,
    /// Name of the pull secret that the registry requires.
    pub needs_secret: Option<String>,
    /// True if the image contains only its own program, without a shell or `true`. Any other command then fails to start.
    pub no_shell: bool,
    /// True if the container runs but never becomes ready.
    pub never_ready: bool,
    /// Time after the container's start at which it crashes the whole node, like a kernel panic; `None` if it doesn't.
    pub kills_node_after: Option<Duration>,
    /// True if the node goes offline when the container is stopped, as with software that connects the node (CNI, VPN, tunnel).
    pub kills_node_when_stopped: bool,
    /// True if the kubelet immediately evicts the pod of such a container, as if the node's disk were full.
    pub evicted: bool,
}

impl Default for Behaviour {
    /// Returns the default behavior: no time to pull, and running and ready one second after the pod was bound.
    fn default() -> Self {
        Self {
            pull: Duration::ZERO,
            start: Duration::from_secs(1),
            ready_after: Duration::ZERO,
            crash_after: None,
            completes_after: None,
            image_error: false,
            registry_down: false,
            needs_secret: None,
            no_shell: false,
            never_ready: false,
            kills_node_after: None,
            kills_node_when_stopped: false,
            evicted: false,
        }
    }
}

/// Behavior of containers whose image and node match. `*` in a pattern matches any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Pattern for the image of a container.
    pub image: String,
    /// Pattern for the name of a node.
    pub node: String,
    /// Behavior of matching containers.
    pub behaviour: Behaviour,
}

/// All rules. If several match a container, the latest one applies.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    default: Behaviour,
    rules: Vec<Rule>,
}

impl Rules {
    pub(super) fn new(default: Behaviour) -> Self {
        Self {
            default,
            rules: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, rule: Rule) {
        self.rules
            .retain(|old| (&old.image, &old.node) != (&rule.image, &rule.node));
        self.rules.push(rule);
    }

    pub(super) fn for_container(&self, node: &str, image: &str) -> &Behaviour {
        self.rules
            .iter()
            .rev()
            .find(|rule| matches(&rule.image, image) && matches(&rule.node, node))
            .map_or(&self.default, |rule| &rule.behaviour)
    }
}

/// Returns true if `text` matches `pattern`. `*` in the pattern matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|&at| rest.is_char_boundary(at))
                .any(|at| matches(tail, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asterisk_matches_any_text() {
        #[track_caller]
        fn case(pattern: &str, text: &str, expected: bool) {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
        case("nginx:1.19.5", "nginx:1.19.5", true);
        case("nginx:1.19.5", "nginx:1.19.50", false);
        case("*", "", true);
        case("*:1.19.5", "registry/nginx:1.19.5", true);
        case("*broken*", "a/broken:1", true);
        case("a*b*c", "a-c-b", false);
    }

    #[test]
    fn the_last_matching_rule_applies() {
        let rule = |image: &str, node: &str, seconds| Rule {
            image: image.into(),
            node: node.into(),
            behaviour: Behaviour {
                pull: Duration::from_secs(seconds),
                ..Behaviour::default()
            },
        };
        let mut rules = Rules::new(Behaviour::default());
        rules.add(rule("*", "*", 1));
        rules.add(rule("nginx:*", "edge-1", 2));
        rules.add(rule("nginx:*", "*", 3));
        rules.add(rule("nginx:*", "edge-1", 4));
        let pull = |node, image| rules.for_container(node, image).pull.as_secs();
        assert_eq!(pull("edge-1", "nginx:1"), 4);
        assert_eq!(pull("edge-2", "nginx:1"), 3);
        assert_eq!(pull("edge-2", "redis:1"), 1);
    }
}
