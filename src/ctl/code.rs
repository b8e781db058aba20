//! How `yurt-ds ctl` ends: one number per outcome, for scripts. This table is what `--help` prints.

use std::fmt::Write as _;

use crate::core::Phase;

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Done; for `status`: complete, nodes that are offline aside.
    Complete,
    /// Something that has no code of its own.
    Failed,
    /// The command line cannot be used.
    Usage,
    /// Under way.
    Progressing,
    /// Stopped by itself.
    Stalled,
    /// Paused.
    Paused,
    /// The settings cannot be used.
    Invalid,
    /// The API server cannot be reached, or does not let us in.
    Unreachable,
    /// A name that does not exist, or is not managed.
    NotFound,
    /// The server of the node says no, or what was asked for would restart pods.
    Refused,
    /// The node has no contact with the cloud, without which nothing is replaced.
    Disconnected,
    /// Images could not be pulled ahead.
    PullFailed,
    /// Not complete, and no controller is at work.
    Silent,
    /// What was waited for is not what is rolled out any more.
    Superseded,
}

impl Code {
    /// Every outcome, in the order of its number.
    pub const ALL: [Self; 14] = [
        Self::Complete,
        Self::Failed,
        Self::Usage,
        Self::Progressing,
        Self::Stalled,
        Self::Paused,
        Self::Invalid,
        Self::Unreachable,
        Self::NotFound,
        Self::Refused,
        Self::Disconnected,
        Self::PullFailed,
        Self::Silent,
        Self::Superseded,
    ];

    /// That of a rollout in this phase. `strict`: offline nodes that are left count as progress to be made.
    pub(super) fn of(phase: Phase, strict: bool) -> Self {
        match phase {
            Phase::Complete { offline, .. } if strict && offline > 0 => Self::Progressing,
            Phase::Complete { .. } => Self::Complete,
            Phase::Progressing
            | Phase::AwaitingOwners
            | Phase::AwaitingDeletions
            | Phase::RevisionUnknown(_)
            | Phase::Stale(_) => Self::Progressing,
            Phase::Stalled(_) => Self::Stalled,
            Phase::Paused { .. } => Self::Paused,
            Phase::Invalid => Self::Invalid,
        }
    }

    /// The number that the process exits with.
    pub fn number(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Progressing => 3,
            Self::Stalled => 4,
            Self::Paused => 5,
            Self::Invalid => 6,
            Self::Unreachable => 7,
            Self::NotFound => 8,
            Self::Refused => 9,
            Self::Disconnected => 10,
            Self::PullFailed => 11,
            Self::Silent => 12,
            Self::Superseded => 13,
        }
    }

    /// Its line in `--help`.
    fn meaning(self) -> &'static str {
        match self {
            Self::Complete => {
                "done; of status: complete, also when only offline nodes are left (see --strict)"
            }
            Self::Failed => "anything else that went wrong, such as a refused change",
            Self::Usage => "the command line cannot be used",
            Self::Progressing => {
                "progressing, or waiting for owners of nodes (OTA) or for Kubernetes; also at the end of --timeout, as \
                 4, 5 and 6 are; where you may not list nodes, also a revision on which no controller has reported"
            }
            Self::Stalled => "stalled: stopped by itself, somebody has to act",
            Self::Paused => "paused",
            Self::Invalid => "the settings of the DaemonSet cannot be used",
            Self::Unreachable => {
                "no API server: unreachable, no kubeconfig, or access denied; on a node: no answer from its server"
            }
            Self::NotFound => {
                "no such namespace, DaemonSet, node or pod, or one that is not managed"
            }
            Self::Refused => {
                "refused: by the server of the node, which says why; by eject, because nodes run an old revision; by undo, \
                 because there is nothing to go back to; by pause, because another pause lasts longer; by migrate, for the reason that it names"
            }
            Self::Disconnected => "on a node: it has no contact with the cloud, nothing was done",
            Self::PullFailed => "on a node: the images could not be pulled",
            Self::Silent => {
                "not complete, and no controller has spoken for three minutes (its Lease), or, where none has a Lease, done \
                 for three minutes of --wait what is to be done: nothing goes on by itself"
            }
            Self::Superseded => {
                "of status --wait: the revision has changed, or the DaemonSet was deleted or recreated"
            }
        }
    }

    /// How bad it is for a list of DaemonSets, whose code is that of the worst.
    fn gravity(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::Progressing => 1,
            Self::Paused => 2,
            Self::Silent => 3,
            Self::Stalled => 4,
            Self::Invalid => 5,
            Self::Usage | Self::NotFound | Self::Refused | Self::PullFailed | Self::Superseded => 6,
            Self::Failed | Self::Unreachable | Self::Disconnected => 7,
        }
    }

    /// The worst of them; complete when there is none.
    pub fn worst(codes: impl IntoIterator<Item = Self>) -> Self {
        codes
            .into_iter()
            .max_by_key(|code| code.gravity())
            .unwrap_or(Self::Complete)
    }

    /// The table for `-h`.
    pub fn help() -> String {
        let mut help = String::from("Exit codes (of a list: that of the worst DaemonSet):");
        for code in Self::ALL {
            // Writing to a String cannot fail.
            let _ = write!(help, "\n  {:<2} {}", code.number(), code.meaning());
        }
        help
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn numbers_are_distinct_and_in_order() {
        for (position, code) in Code::ALL.iter().enumerate() {
            assert_eq!(usize::from(code.number()), position);
        }
    }

    #[test]
    fn a_list_is_as_bad_as_its_worst() {
        assert_eq!(Code::worst([]), Code::Complete);
        assert_eq!(
            Code::worst([Code::Progressing, Code::Stalled, Code::Paused]),
            Code::Stalled
        );
    }

    #[test]
    fn help_tells_every_number_once() {
        let help = Code::help();
        for code in Code::ALL {
            assert_eq!(
                help.matches(&format!("\n  {:<2} ", code.number())).count(),
                1
            );
        }
    }
}
