//! Exit codes of `yurt-ds ctl`: one per outcome, for scripts. The reference lists them.

use crate::core::Phase;

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The command succeeded. For `status`: the rollout is complete, except on offline nodes. For `check`: no check failed.
    Complete,
    /// The command failed for a reason that has no exit code of its own. For `check`: a check failed.
    Failed,
    /// The command line is invalid.
    Usage,
    /// The rollout is in progress.
    Progressing,
    /// The rollout is stalled.
    Stalled,
    /// The rollout is paused.
    Paused,
    /// The settings of the DaemonSet are invalid.
    Invalid,
    /// The API server cannot be reached or rejects the credentials.
    Unreachable,
    /// No object has this name, or the DaemonSet is not managed.
    NotFound,
    /// The request was refused: by the node's server, or because it would restart pods.
    Refused,
    /// The node has no contact with the cloud, so its server does not replace the pod.
    Disconnected,
    /// The node could not pull the images of a new revision in advance.
    PullFailed,
    /// The rollout is incomplete, and no controller is running.
    Silent,
    /// Another revision or DaemonSet replaced the one that the command waited for.
    Superseded,
}

impl Code {
    /// All exit codes in the order of their numbers.
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

    /// Returns the exit code for a rollout in `phase`. With `strict`, a rollout with outdated offline nodes is not complete.
    pub(super) fn from_phase(phase: Phase, strict: bool) -> Self {
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

    /// Returns the exit code as a number.
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

    /// Returns the description of the code in the reference.
    fn meaning(self) -> &'static str {
        match self {
            Self::Complete => {
                "Success. status: the rollout is complete; with --strict, also on offline nodes. check: no check failed"
            }
            Self::Failed => "Other error. check: a check failed",
            Self::Usage => "Invalid command line",
            Self::Progressing => {
                "In progress, or waiting for node owners (OTA) or for Kubernetes. Also when --timeout ends, and when \
                 the caller may not list nodes and the controller has not reported on the revision"
            }
            Self::Stalled => "Stalled: the rollout stopped and needs an operator",
            Self::Paused => "Paused",
            Self::Invalid => "The settings of the DaemonSet are invalid",
            Self::Unreachable => {
                "No API server: unreachable, no kubeconfig, or access denied. On a node: its server does not answer"
            }
            Self::NotFound => "No such namespace, DaemonSet, node or pod, or it is not managed",
            Self::Refused => {
                "Refused, with the reason. undo: no revision to go back to; eject: nodes run an old revision; pause: another pause \
                 lasts longer"
            }
            Self::Disconnected => "On a node: no contact with the cloud. Nothing was done",
            Self::PullFailed => "On a node: the images cannot be pulled",
            Self::Silent => {
                "Not complete, and the controller has not renewed its Lease for three minutes (or, without a Lease, has not acted \
                 during three minutes of --wait)"
            }
            Self::Superseded => {
                "status --wait: the revision changed, or the DaemonSet was deleted or recreated"
            }
        }
    }

    /// Returns the severity of the code. `status` of several DaemonSets exits with the most severe code.
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

    /// Returns the most severe code; `Complete` if there is none.
    pub fn worst(codes: impl IntoIterator<Item = Self>) -> Self {
        codes
            .into_iter()
            .max_by_key(|code| code.gravity())
            .unwrap_or(Self::Complete)
    }

    /// Returns every exit code as a number with its description.
    pub fn meanings() -> impl Iterator<Item = (u8, &'static str)> {
        Self::ALL
            .into_iter()
            .map(|code| (code.number(), code.meaning()))
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn exit_codes_are_distinct_and_consecutive() {
        for (position, code) in Code::ALL.iter().enumerate() {
            assert_eq!(usize::from(code.number()), position);
        }
    }

    #[test]
    fn several_codes_combine_to_the_worst() {
        assert_eq!(Code::worst([]), Code::Complete);
        assert_eq!(
            Code::worst([Code::Progressing, Code::Stalled, Code::Paused]),
            Code::Stalled
        );
    }
}
