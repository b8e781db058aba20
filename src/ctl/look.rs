//! State of a managed DaemonSet. If the caller may list nodes, `ctl` evaluates it; otherwise `ctl` uses the controller's report.

use k8s_openapi::jiff::Timestamp;

use super::code::Code;
use super::error::CliError;
use super::liveness::ControllerLiveness;
use super::reported::ReportedRollout;
use super::snapshot::RolloutSnapshot;
use super::view::ClusterView;
use crate::core::{Invalid, Mode, Phase, Revision, Stall, Strategy};
use crate::index::SetKey;

/// State of a managed DaemonSet, from a source that depends on the caller's rights.
#[derive(Clone, Debug)]
pub(super) enum Look {
    /// State that `ctl` evaluated with the same rules as the controller.
    Judged(Box<RolloutSnapshot>),
    /// State that the controller reported, for a caller without the right to list nodes.
    Reported(Box<ReportedRollout>),
}

impl Look {
    /// Evaluates a managed DaemonSet of the view; `None` if it is not managed.
    pub(super) fn take(view: &mut ClusterView, key: &SetKey, now: Timestamp) -> Option<Self> {
        Some(match view.unlisted_nodes {
            None => Self::Judged(RolloutSnapshot::take(view, key, now)?.into()),
            Some(_) => Self::Reported(ReportedRollout::take(view, key, now)?.into()),
        })
    }

    /// Returns true if the state is the controller's report, because nodes could not be listed.
    pub(super) fn is_reported(&self) -> bool {
        matches!(self, Self::Reported(_))
    }

    pub(super) fn key(&self) -> &SetKey {
        match self {
            Self::Judged(snapshot) => &snapshot.key,
            Self::Reported(reported) => &reported.key,
        }
    }

    /// Returns the settings; `None` if they are invalid.
    pub(super) fn strategy(&self) -> Option<&Strategy> {
        match self {
            Self::Judged(snapshot) => {
                Some(&snapshot.strategy).filter(|_| snapshot.invalid.is_none())
            }
            Self::Reported(reported) => reported.strategy.as_ref(),
        }
    }

    /// Returns the error in the settings; `None` if they are valid.
    pub(super) fn invalid(&self) -> Option<&Invalid> {
        match self {
            Self::Judged(snapshot) => snapshot.invalid.as_ref(),
            Self::Reported(reported) => reported.invalid.as_ref(),
        }
    }

    /// Returns the current revision; `None` if it is not known yet.
    pub(super) fn revision(&self) -> Option<&Revision> {
        match self {
            Self::Judged(snapshot) => snapshot.revision(),
            Self::Reported(reported) => reported.revision(),
        }
    }

    /// Returns the settings of a rolling update; `None` with another strategy.
    ///
    /// # Errors
    /// Fails if the settings are invalid.
    pub(super) fn rolling_strategy(&self) -> Result<Option<&Strategy>, CliError> {
        if let Some(invalid) = self.invalid() {
            let key = self.key();
            return Err(CliError::new(
                Code::Invalid,
                format!("The settings of {key} are invalid: {invalid}. Correct them first."),
            ));
        }
        let strategy = self.strategy();
        Ok(strategy.filter(|strategy| strategy.mode == Mode::AdvancedRollingUpdate))
    }

    /// Returns the current revision.
    ///
    /// # Errors
    /// Fails if it is not known yet.
    pub(super) fn known_revision(&self) -> Result<&Revision, CliError> {
        self.revision().ok_or_else(|| {
            let key = self.key();
            let text = format!(
                "The current revision of {key} is not known, because {} has not processed its latest change. Try \
                 again in a few seconds.",
                key.kind.controller()
            );
            CliError::new(Code::Refused, text)
        })
    }

    /// Records the liveness of the controller according to its Lease.
    pub(super) fn note_liveness(&mut self, liveness: ControllerLiveness) {
        match self {
            Self::Judged(snapshot) => snapshot.note_liveness(liveness),
            Self::Reported(reported) => reported.note_liveness(liveness),
        }
    }

    /// Returns the exit code for the rollout. With `strict`, a rollout with outdated offline nodes is not complete.
    pub(super) fn code(&self, strict: bool) -> Code {
        match self {
            Self::Judged(snapshot) => snapshot.code(strict),
            Self::Reported(reported) => reported.code(strict),
        }
    }

    /// Returns true if waiting is pointless because nothing changes until an operator acts.
    pub(super) fn needs_a_person(&self, strict: bool) -> bool {
        match self {
            Self::Judged(snapshot) => snapshot.needs_a_person(strict),
            Self::Reported(reported) => reported.needs_a_person(strict),
        }
    }

    /// Returns the number of nodes without an available pod that may recover soon; 0 without the right to list nodes.
    pub(super) fn recovering(&self) -> usize {
        match self {
            Self::Judged(snapshot) if snapshot.is_recovering() => snapshot.rollout().unavailable(),
            _ => 0,
        }
    }

    /// Returns true if the guard stopped the current revision.
    pub(super) fn is_stopped(&self) -> bool {
        match self {
            Self::Judged(snapshot) => {
                matches!(snapshot.phase(), Phase::Stalled(Stall::FailedByRevision))
            }
            Self::Reported(reported) => reported.is_stopped(),
        }
    }
}
