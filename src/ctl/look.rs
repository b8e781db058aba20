//! A managed DaemonSet, judged or reported: which of the two depends on the caller's right to list nodes.

use k8s_openapi::jiff::Timestamp;

use super::code::Code;
use super::error::CliError;
use super::liveness::ControllerLiveness;
use super::reported::ReportedRollout;
use super::snapshot::RolloutSnapshot;
use super::view::ClusterView;
use crate::core::{Invalid, Mode, Phase, Revision, Stall, Strategy};
use crate::index::SetKey;

/// A managed DaemonSet, as far as the caller may look.
#[derive(Clone, Debug)]
pub(super) enum Look {
    /// Judged as the controller judges it.
    Judged(Box<RolloutSnapshot>),
    /// As the controller reported it: nodes may not be listed.
    Reported(Box<ReportedRollout>),
}

impl Look {
    /// Looks at a managed DaemonSet of the view; `None` when it is not one.
    pub(super) fn take(view: &mut ClusterView, key: &SetKey, now: Timestamp) -> Option<Self> {
        Some(match view.unlisted_nodes {
            None => Self::Judged(RolloutSnapshot::take(view, key, now)?.into()),
            Some(_) => Self::Reported(ReportedRollout::take(view, key, now)?.into()),
        })
    }

    /// Whether nodes could not be listed.
    pub(super) fn is_reported(&self) -> bool {
        matches!(self, Self::Reported(_))
    }

    /// The name of the DaemonSet.
    pub(super) fn key(&self) -> &SetKey {
        match self {
            Self::Judged(snapshot) => &snapshot.key,
            Self::Reported(reported) => &reported.key,
        }
    }

    /// Its settings; `None` where they cannot be used.
    pub(super) fn strategy(&self) -> Option<&Strategy> {
        match self {
            Self::Judged(snapshot) => {
                Some(&snapshot.strategy).filter(|_| snapshot.invalid.is_none())
            }
            Self::Reported(reported) => reported.strategy.as_ref(),
        }
    }

    /// The setting that cannot be used.
    pub(super) fn invalid(&self) -> Option<&Invalid> {
        match self {
            Self::Judged(snapshot) => snapshot.invalid.as_ref(),
            Self::Reported(reported) => reported.invalid.as_ref(),
        }
    }

    /// The revision that nodes should run; `None` while it is not known.
    pub(super) fn revision(&self) -> Option<&Revision> {
        match self {
            Self::Judged(snapshot) => snapshot.revision(),
            Self::Reported(reported) => reported.revision(),
        }
    }

    /// Returns the settings of a rolling update; `None` in another mode.
    ///
    /// # Errors
    /// If they cannot be used.
    pub(super) fn rolling_strategy(&self) -> Result<Option<&Strategy>, CliError> {
        if let Some(invalid) = self.invalid() {
            let key = self.key();
            return Err(CliError::new(
                Code::Invalid,
                format!("The settings of {key} cannot be used: {invalid}. Correct that first."),
            ));
        }
        let strategy = self.strategy();
        Ok(strategy.filter(|strategy| strategy.mode == Mode::AdvancedRollingUpdate))
    }

    /// Returns the revision that nodes should run.
    ///
    /// # Errors
    /// While it is not known.
    pub(super) fn known_revision(&self) -> Result<&Revision, CliError> {
        self.revision().ok_or_else(|| {
            let key = self.key();
            let text = format!(
                "The latest change of {key} is not handled yet by {}, so its revision is not known. Try again in a few seconds.",
                key.kind.controller()
            );
            CliError::new(Code::Refused, text)
        })
    }

    /// Takes in what the Lease tells.
    pub(super) fn note_liveness(&mut self, liveness: ControllerLiveness) {
        match self {
            Self::Judged(snapshot) => snapshot.note_liveness(liveness),
            Self::Reported(reported) => reported.note_liveness(liveness),
        }
    }

    /// Its exit code. `strict`: offline nodes that are left count as progress to be made.
    pub(super) fn code(&self, strict: bool) -> Code {
        match self {
            Self::Judged(snapshot) => snapshot.code(strict),
            Self::Reported(reported) => reported.code(strict),
        }
    }

    /// Whether waiting is in vain: nothing changes before a person acts.
    pub(super) fn needs_a_person(&self, strict: bool) -> bool {
        match self {
            Self::Judged(snapshot) => snapshot.needs_a_person(strict),
            Self::Reported(reported) => reported.needs_a_person(strict),
        }
    }

    /// Number of nodes that lack an available pod and may get one in a moment; 0 where that is not known.
    pub(super) fn recovering(&self) -> usize {
        match self {
            Self::Judged(snapshot) if snapshot.is_recovering() => snapshot.rollout().unavailable(),
            _ => 0,
        }
    }

    /// Whether the guard stopped the present revision.
    pub(super) fn is_stopped(&self) -> bool {
        match self {
            Self::Judged(snapshot) => {
                matches!(snapshot.phase(), Phase::Stalled(Stall::FailedByRevision))
            }
            Self::Reported(reported) => reported.is_stopped(),
        }
    }
}
