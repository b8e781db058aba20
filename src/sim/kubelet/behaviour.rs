//! Behavior of images on a fake kubelet: data, looked up by image and node.

use std::time::Duration;

/// Behavior of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Time that a node takes to pull an image that it lacks.
    pub pull: Duration,
    /// Time from the end of the pull until the container runs.
    pub start: Duration,
    /// Time from running until ready.
    pub ready_after: Duration,
    /// Running time after which it fails with exit code 1, repeatedly.
    pub crash_after: Option<Duration>,
    /// Running time after which it ends with exit code 0.
    ///
    /// `None` means immediately for containers of pods that do not always restart, such as those of Jobs.
    pub completes_after: Option<Duration>,
    /// True if the registry does not have the image.
    pub image_error: bool,
    /// True if the registry refuses connections. A hanging registry is modeled by an endless `pull`.
    pub registry_down: bool,
    /// Name of the pull secret that the registry requires.
    pub needs_secret: Option<String>,
    /// True if the image contains only its own program, not even `true`. A container with another command fails to start.
    pub no_shell: bool,
    /// True if it runs but never becomes ready.
    pub never_ready: bool,
    /// Time after its start at which it takes the whole node down, like a kernel panic.
    pub kills_node_after: Option<Duration>,
    /// True if it takes the whole node down when it is stopped, like software that connects the node (CNI, VPN, tunnel).
    pub kills_node_when_stopped: bool,
    /// True if the kubelet evicts each pod with it immediately, because the node's disk is full.
    pub evicted: bool,
}

impl Default for Behaviour {
    /// Returns the default: no pull, running and ready one second after the pod was bound.
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

/// Behavior with its scope. `*` in a pattern matches any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Pattern of the image's name.
    pub image: String,
    /// Pattern of the node's name.
    pub node: String,
    /// Behavior of matching containers.
    pub behaviour: Behaviour,
}

/// All rules; if several match, the latest one applies.
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

/// Returns true if `text` matches `pattern`, in which `*` stands for any text.
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
    fn a_star_stands_for_any_text() {
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
    fn the_rule_added_last_holds() {
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
