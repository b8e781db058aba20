//! Messages about a pause: its end, its reminders, and the nodes that got the new revision during it.

use k8s_openapi::jiff::Timestamp;

use super::rollout::RolloutView;
use crate::core::id::NodeName;
use crate::core::instant;
use crate::core::plan::{PauseStand, Phase, Plan};
use crate::core::remedy::other_revision;
use crate::core::words::{joined, named, nodes, plural};

/// Describes the end of the pause.
pub fn paused_words(until: Option<Timestamp>) -> String {
    match until {
        None => "paused until an operator resumes it".to_owned(),
        Some(until) => format!("paused until {}", instant::words(until)),
    }
}

/// Returns the reminder about a rollout that has been paused for days, with the command that resumes it.
pub fn still_paused(plan: &Plan, stand: &PauseStand) -> String {
    let left = plan.counts.outdated + plan.counts.offline_outdated;
    let days = stand.record.reminded;
    let updated = named(stand.newcomers.iter().map(NodeName::as_str), 0);
    let updated = (!updated.is_empty()).then(|| format!("updated during the pause: {updated}"));
    let parts = [
        Some(format!(
            "still {}, since {} ({days} {})",
            paused_words(stand.until),
            stand.record.since,
            plural(usize::try_from(days).unwrap_or_default(), "day", "days")
        )),
        Some(format!("{} outdated", nodes(left))),
        updated,
        Some("resume: yurt-ds ctl resume".to_owned()),
    ];
    joined(parts.into_iter().flatten())
}

/// Returns a note that the rollout is paused; `None` if it isn't, or if the phase already says so.
pub fn quietly_paused(rollout: &RolloutView<'_>) -> Option<String> {
    let stand = rollout.pause()?;
    if matches!(rollout.phase, Phase::Paused { .. }) {
        return None;
    }
    let since = rollout.fleet.pause.map(|pause| pause.since);
    let since = since.map(|since| format!(" for {}", instant::between(since, rollout.now)));
    let end = match stand.until {
        Some(until) => format!("until {}", instant::words(until)),
        None => format!("until yurt-ds ctl resume {}", rollout.key),
    };
    Some(format!(
        "the rollout is paused{}: outdated pods are not replaced {end}",
        since.unwrap_or_default()
    ))
}

/// Describes the nodes whose pod was created during the pause, and so has the new revision.
pub fn newcomers(rollout: &RolloutView<'_>) -> Option<String> {
    let names = named(rollout.pause()?.newcomers.iter().map(NodeName::as_str), 0);
    (!names.is_empty())
        .then(|| format!("pods created during the pause have the new revision: {names}"))
}

impl RolloutView<'_> {
    /// Returns the reason why the whole rollout is blocked, including updates in progress; `None` if it continues.
    pub(super) fn standstill(&self) -> Option<&'static str> {
        match self.invalid {
            Some(_) => Some("a setting is invalid"),
            None => self.is_paused().then_some("the rollout is paused"),
        }
    }

    /// Describes when a rollout continues after a pause or after the correction of a setting; `None` if neither blocks it.
    pub(super) fn after_standstill(&self) -> Option<String> {
        match (self.invalid, self.pause()) {
            (Some(invalid), _) => Some(format!("correct the setting: {invalid}")),
            (None, Some(pause)) => Some(self.after_pause(pause.until)),
            (None, None) => None,
        }
    }

    /// Describes when a paused rollout continues.
    pub(super) fn after_pause(&self, until: Option<Timestamp>) -> String {
        if self.is_stopped() {
            let stopped = "the guard stopped this revision, so it stays stopped after the pause";
            joined([stopped.to_owned(), other_revision(self.fleet, &self.key)])
        } else {
            self.until_resumed(until)
        }
    }

    /// Describes when a rollout continues that only a pause blocks.
    pub(super) fn until_resumed(&self, until: Option<Timestamp>) -> String {
        let ends =
            until.map(|until| format!("the pause ends in {}", instant::between(self.now, until)));
        joined(
            ends.into_iter()
                .chain([format!("resume now: yurt-ds ctl resume {}", self.key)]),
        )
    }
}
