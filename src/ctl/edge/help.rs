//! Examples, exit codes and fields for `--help` of the verbs on a node.

use std::fmt::Write as _;

use super::row::FIELDS;
use crate::ctl::code::Code;

/// Examples of `ctl pods`.
pub(in crate::ctl) const PODS: &str = "\
Asks the server of the node that this runs on; no kubeconfig is needed, and it works while the cloud is away.

Examples:
  yurt-ds ctl pods                       every pod of this node
  yurt-ds ctl pods -n default -o wide    with node, images, and the images that wait";

/// Examples of `ctl upgrade`.
pub(in crate::ctl) const UPGRADE: &str = "\
Asks the server of the node that this runs on; no kubeconfig is needed.

Examples:
  yurt-ds ctl upgrade                                        what would change
  yurt-ds ctl upgrade default/nginx-daemonset-bwzss --wait   replace that pod, wait until the new one is Ready
  yurt-ds ctl upgrade nginx-daemonset --wait --timeout 5m    the same by its DaemonSet, for at most five minutes";

/// Examples of `ctl imagepull`.
pub(in crate::ctl) const IMAGEPULL: &str = "\
Asks the server of the node that this runs on; no kubeconfig is needed. Once asked for, an upgrade is refused until the
images are there (or --force).

Examples:
  yurt-ds ctl imagepull                                        what could be pulled
  yurt-ds ctl imagepull default/nginx-daemonset-bwzss --wait   pull, wait until it is done";

/// What the exit codes mean here.
const CODES: [(Code, &str); 9] = [
    (
        Code::Complete,
        "done: listed, asked for, or with --wait: upgraded and Ready, pulled",
    ),
    (
        Code::Failed,
        "anything else that went wrong, e.g. the new pod still has the old revision",
    ),
    (
        Code::Usage,
        "the command line cannot be used, or the pod's name is ambiguous",
    ),
    (Code::Progressing, "not over at the end of --timeout"),
    (
        Code::Unreachable,
        "no answer, or none that can be used, from the server of this node",
    ),
    (Code::NotFound, "no such pod on this node"),
    (
        Code::Refused,
        "refused: nothing newer, deleting, images not ready, not of a DaemonSet under OTA",
    ),
    (
        Code::Disconnected,
        "the node has no contact with the cloud; nothing was done",
    ),
    (Code::PullFailed, "the images could not be pulled"),
];

/// For `-h`.
pub(in crate::ctl) fn short(examples: &str) -> String {
    let mut help = format!("{examples}\n\nExit codes:");
    for (code, meaning) in CODES {
        // Writing to a String cannot fail.
        let _ = write!(help, "\n  {:<2} {meaning}", code.number());
    }
    help
}

/// For `--help`.
pub(in crate::ctl) fn long(examples: &str) -> String {
    format!("{}\n\n{FIELDS}", short(examples))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_example_is_understood() {
        let all = [PODS, UPGRADE, IMAGEPULL].join("\n");
        let examples: Vec<&str> = all
            .lines()
            .filter(|line| line.starts_with("  yurt-ds "))
            .collect();
        assert_eq!(examples.len(), 7);
        for example in examples {
            let typed = example.trim().split("  ").next().unwrap();
            let parsed = Cli::try_parse_from(typed.split(' '));
            assert!(parsed.is_ok(), "{typed}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn codes_are_in_order() {
        assert!(
            CODES.is_sorted_by(|(one, _), (other, _)| one.number() < other.number()),
            "{CODES:?}"
        );
    }
}
