//! Messages about a pause: its end, the reminders, and nodes that got the revision during it.

use k8s_openapi::jiff::Timestamp;

use super::rollout::RolloutView;
use crate::core::id::NodeName;
use crate::core::instant;
use crate::core::plan::{PauseStand, Phase, Plan};
use crate::core::words::named;

/// Describes the end of the pause.
pub fn paused_words(until: Option<Timestamp>) -> String {
    match until {
        None => "paused until somebody resumes it".to_owned(),
        Some(until) => format!("paused until {}", instant::words(until)),
    }
}

/// Returns the reminder that the rollout has been paused for days, with the command that resumes it.
pub fn still_paused(plan: &Plan, stand: &PauseStand) -> String {
    let left = plan.counts.outdated + plan.counts.offline_outdated;
    let left = match left {
        0 => "no node is outdated now, and the next change will wait".to_owned(),
        1 => "1 node is outdated".to_owned(),
        nodes => format!("{nodes} nodes are outdated"),
    };
    let newcomers = if stand.newcomers.is_empty() {
        String::new()
    } else {
        format!(
            "; nodes that got it meanwhile: {}",
            named(stand.newcomers.iter().map(NodeName::as_str), 0)
        )
    };
    let days = match stand.record.reminded {
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    format!(
        "still {}, for {days} now (since {}); {left}; go on with: yurt-ds ctl resume{newcomers}",
        paused_words(stand.until),
        stand.record.since,
    )
}

/// Returns a note that the rollout is paused; `None` if it isn't, or if its phase already says so.
pub fn quietly_paused(rollout: &RolloutView<'_>) -> Option<String> {
    let stand = rollout.pause()?;
    if matches!(rollout.phase, Phase::Paused { .. }) {
        return None;
    }
    let since = rollout.fleet.pause.map(|told| told.since);
    let since = since.map(|since| format!(" for {}", instant::between(since, rollout.now)));
    let end = match stand.until {
        Some(until) => format!("until {}", instant::words(until)),
        None => format!("until yurt-ds ctl resume {}", rollout.key),
    };
    Some(format!(
        "it is paused{}: nothing that is outdated is replaced {end}",
        since.unwrap_or_default()
    ))
}

/// Describes the nodes that got the new revision despite the pause.
pub fn newcomers(rollout: &RolloutView<'_>) -> Option<String> {
    let newcomers = &rollout.pause()?.newcomers;
    (!newcomers.is_empty()).then(|| {
        format!(
            "got the revision although it is paused: {} (a new pod is always made of the present template)",
            named(newcomers.iter().map(NodeName::as_str), 0)
        )
    })
}
