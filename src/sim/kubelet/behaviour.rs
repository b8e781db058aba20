//! What images do when a fake kubelet runs them: data, looked up by image and node.

use std::time::Duration;

/// How a container behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// How long a node pulls the image that it does not have yet.
    pub pull: Duration,
    /// From the end of the pull until the container runs.
    pub start: Duration,
    /// From running until ready.
    pub ready_after: Duration,
    /// How long it runs until it fails (exit code 1), again and again.
    pub crash_after: Option<Duration>,
    /// How long it runs until it ends by itself (exit code 0). Containers of pods that do not restart always (those
    /// of Jobs) end at once unless this says otherwise.
    pub completes_after: Option<Duration>,
    /// The image cannot be pulled: the registry does not have it.
    pub image_error: bool,
    /// The registry refuses connections. One that hangs is a `pull` that takes for ever.
    pub registry_down: bool,
    /// The registry wants the pull secret of this name.
    pub needs_secret: Option<String>,
    /// The image has no program `true`, nor any other but its own: a container that is told to run it does not start.
    pub no_shell: bool,
    /// It runs and never becomes ready.
    pub never_ready: bool,
    /// How long after its start it takes the whole node down, like a kernel panic.
    pub kills_node_after: Option<Duration>,
    /// It takes the whole node down when it is told to end, as what a node is reached by does (CNI, VPN, tunnel).
    pub kills_node_when_stopped: bool,
    /// The kubelet evicts each pod with it at once, for want of room on the disk of its node.
    pub evicted: bool,
}

impl Default for Behaviour {
    /// No pull, running and ready one second after the pod was bound.
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

/// A behaviour and where it holds. `*` in a pattern stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Pattern of the image's name.
    pub image: String,
    /// Pattern of the node's name.
    pub node: String,
    /// What such a container does there.
    pub behaviour: Behaviour,
}

/// All rules; of several that match, the one added last holds.
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

/// Whether `text` has the form of `pattern`, in which `*` stands for any text.
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
