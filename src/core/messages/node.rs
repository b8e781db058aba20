//! Messages for verdicts: the reason for a node's state, and the remedy.

use k8s_openapi::jiff::Timestamp;

use super::groups::opening_words;
use super::guarded::{loss_aside, reverted_later, reverting};
use super::overdue;
use super::pods::{
    ASKED_AGAIN, awaited, ending_words, its_pod, living_name, newest, not_in_place, pod_name,
    terminating_name, trouble_word, trouble_words, way_of,
};
use super::pulls;
use super::reasons::{behind_words, unrevised};
use super::rollout::{RolloutView, awaits_proof};
use super::since::verdict_since;
use super::surging::surging;
use crate::core::eligibility::{CUT_OFF_TAINT, Obstacle};
use crate::core::engine::deadline::{is_between_crashes, is_between_pods, stall_of};
use crate::core::engine::replacement::UpdateMethod;
use crate::core::engine::revert::is_due;
use crate::core::engine::terms::PROOF;
use crate::core::fleet::{Node, NodeWindow, Readiness, Targeting};
use crate::core::id::{RevisionState, RevisionUnknown};
use crate::core::instant;
use crate::core::plan::Stall;
use crate::core::settings::Mode;
use crate::core::settings::maintenance_window::MAINTENANCE_WINDOW;
use crate::core::verdict::{Offline, Progress, Verdict};

pub(super) fn done(rollout: &RolloutView<'_>, node: &Node) -> String {
    let came = rollout
        .pause()
        .filter(|stand| stand.newcomers.contains(&node.name));
    match came.and(newest(node)) {
        Some(pod) => format!(
            "runs the current revision, which it got at {} although the rollout is paused: {} makes every new pod of the \
             present template",
            instant::words(pod.revised()),
            rollout.fleet.kind.controller()
        ),
        None => "runs the current revision".to_owned(),
    }
}

pub(super) fn in_progress(
    rollout: &RolloutView<'_>,
    node: &Node,
    progress: Progress,
) -> (Option<String>, String) {
    let (reason, because) = stage(rollout, node, progress);
    (reason, because + &held_up(rollout, node, progress))
}

/// Describes the stage of the node's update.
fn stage(rollout: &RolloutView<'_>, node: &Node, progress: Progress) -> (Option<String>, String) {
    if is_between_pods(node, progress) {
        return ending_words(node);
    }
    let pod = pod_name(node);
    match progress {
        Progress::Replacing => (Some("Replacing".into()), replacing(rollout, node)),
        Progress::Terminating => (
            Some("Terminating".into()),
            format!("is being updated: its pod{pod} is terminating"),
        ),
        Progress::Missing { .. } if node.targeting != Targeting::Run => (
            Some("Missing".into()),
            format!(
                "lost its old pod to this rollout, and gets no other now: {}",
                kept_away_words(node)
            ),
        ),
        Progress::Missing { .. } => (
            Some("Missing".into()),
            match &rollout.fleet.not_created {
                Some(why) => {
                    format!(
                        "has no pod, and {} cannot make one: {why}",
                        rollout.fleet.kind.controller()
                    )
                }
                None => format!(
                    "has no pod; {} has to make one",
                    rollout.fleet.kind.controller()
                ),
            },
        ),
        Progress::UpdatingInPlace { .. } => (
            Some("UpdatingInPlace".into()),
            format!("has its turn: its pod{pod} gets its new images in place"),
        ),
        Progress::Reverting { .. } => reverting(rollout, node),
        Progress::Starting => {
            let reason = trouble_word(node).unwrap_or_else(|| "Starting".into());
            let because = match trouble_words(node) {
                words if words.is_empty() && was_ready(node) => {
                    format!("has pod{}, which is not Ready any more", pod_name(node))
                }
                words if words.is_empty() => {
                    format!("has {}{pod}, which is not Ready yet", its_pod(node))
                }
                words => format!("has {}{pod}, which does not start{words}", its_pod(node)),
            };
            (Some(reason), because)
        }
        Progress::NotYetAvailable { available_at } if is_between_crashes(node, rollout.now) => (
            Some("NotYetAvailable".into()),
            format!(
                "has {}{pod}, whose container crashed and was started again more than once; if it goes on running, it counts as \
                 available in {}",
                its_pod(node),
                instant::between(rollout.now, available_at)
            ),
        ),
        Progress::NotYetAvailable { available_at } if awaits_proof(rollout, node, available_at) => {
            (
                Some("Proving".into()),
                format!(
                    "has {}{pod}, which is Ready. The revision is still being tested on its first nodes: other nodes are updated \
                 when one of its first pods has been Ready for {}s; this pod reaches that in {}",
                    its_pod(node),
                    PROOF.as_secs(),
                    instant::between(rollout.now, available_at)
                ),
            )
        }
        Progress::NotYetAvailable { available_at } => (
            Some("NotYetAvailable".into()),
            format!(
                "has {}{pod}, which counts as available in {} (minReadySeconds: {})",
                its_pod(node),
                instant::between(rollout.now, available_at),
                rollout.strategy.min_ready.as_secs()
            ),
        ),
        Progress::SurgeStarting
        | Progress::SurgeYoung { .. }
        | Progress::SurgeTakingOver
        | Progress::SurgeLeaving => surging(rollout, node, progress),
        Progress::OldTerminating => (
            Some("OldTerminating".into()),
            format!(
                "has pod{}, and another one{} is still terminating beside it: nothing begins, and the node is not done, \
                 before that one is gone",
                living_name(node),
                terminating_name(node)
            ),
        ),
        Progress::Surplus => (
            Some("Surplus".into()),
            format!(
                "has {} pods; {} removes the surplus",
                node.pods.len(),
                rollout.fleet.kind.controller()
            ),
        ),
    }
}

/// Returns a clause about a missed deadline; empty if the deadline has not passed or the pod doesn't start.
fn held_up(rollout: &RolloutView<'_>, node: &Node, progress: Progress) -> String {
    let verdict = Verdict::InProgress(progress);
    match stall_of(node, &verdict, rollout.now) {
        Some(Stall::NoProgress | Stall::PodsNotCreated) => {
            format!(
                "; held up for too long: {}",
                overdue::words(rollout.fleet, node, &verdict)
            )
        }
        _ => String::new(),
    }
}

fn replacing(rollout: &RolloutView<'_>, node: &Node) -> String {
    let pod = pod_name(node);
    match way_of(rollout, node) {
        UpdateMethod::InPlace(_) => {
            format!("has its turn: its pod{pod} is to be updated in place now")
        }
        UpdateMethod::Recreate(why) => format!(
            "has its turn: its old pod{pod} is to be {}{}",
            if rollout.asks_again {
                ASKED_AGAIN
            } else {
                "replaced now"
            },
            not_in_place(why)
        ),
    }
}

/// Describes how the node's pod is updated, if in-place updates are enabled.
pub(super) fn manner(rollout: &RolloutView<'_>, node: &Node) -> String {
    match way_of(rollout, node) {
        UpdateMethod::InPlace(_) => "; its pod is updated in place then".to_owned(),
        UpdateMethod::Recreate(why) => not_in_place(why),
    }
}

pub(super) fn hook_pending(
    rollout: &RolloutView<'_>,
    node: &Node,
    overdue: bool,
) -> (Option<String>, String) {
    let awaited = awaited(rollout, node);
    let leaving = node.pods.iter().find(|pod| pod.exit.preparing.is_some());
    let pod = leaving.map_or_else(|| pod_name(node), |pod| format!(" {}", pod.name));
    let because = match awaited.is_empty() {
        true if let Some(why) = rollout.standstill() => {
            format!("has its pod{pod} marked PreparingDelete and its hook is gone; {why}")
        }
        true if rollout.plan.guarded.is_some() => {
            format!(
                "has its pod{pod} marked PreparingDelete and its hook is gone; the guard holds the revision"
            )
        }
        true => {
            format!("has its pod{pod} marked PreparingDelete and its hook is gone: it goes next")
        }
        false => format!(
            "is to be updated; its pod{pod} waits for its preDelete hook: {}",
            awaited.join(", ")
        ),
    };
    let overdue = if overdue {
        "TimedOut"
    } else {
        "PreparingDelete"
    };
    (Some(overdue.into()), because)
}

/// Returns true if the pod of a NotReady node was Ready before.
fn was_ready(node: &Node) -> bool {
    let newest = node.pods.iter().max_by_key(|pod| pod.revised());
    newest.is_some_and(|pod| pod.unready() > instant::later(pod.revised(), PROOF))
}

pub(super) fn is_offline(
    rollout: &RolloutView<'_>,
    node: &Node,
    offline: Offline,
) -> (Option<String>, String) {
    let (word, is_down) = if node.cut_off {
        ("CutOff", format!("is cut off (taint {CUT_OFF_TAINT})"))
    } else {
        ("NotReady", "is NotReady".to_owned())
    };
    let (reason, because) = match offline {
        _ if node.readiness == Readiness::Unreadable => (
            "Unreadable",
            "cannot be read, or a pod on it cannot: see Warning Events with reason Unreadable"
                .to_owned(),
        ),
        Offline::NotReady { .. } if node.pods.is_empty() => (
            word,
            format!("{is_down} and has no pod; gets one of the current revision when it returns"),
        ),
        Offline::NotReady { .. } if rollout.strategy.mode == Mode::Ota => (
            word,
            format!("{is_down} and outdated; its owner decides when to upgrade (OTA)"),
        ),
        Offline::NotReady { .. } if rollout.strategy.pause.is_some() => {
            (word, format!("{is_down} and outdated"))
        }
        Offline::NotReady { .. } => (
            word,
            format!("{is_down} and outdated; updated after it returns"),
        ),
        Offline::Terminating { .. } => (
            "Terminating",
            format!(
                "{is_down}; its pod{} cannot finish terminating before it returns",
                pod_name(node)
            ),
        ),
        Offline::NoNode => (
            "NoNode",
            format!(
                "holds pod{}, but there is no such Node object",
                pod_name(node)
            ),
        ),
        Offline::Settling { until } => (
            "Settling",
            format!(
                "is outdated and returned a moment ago; counts as back in {}",
                instant::between(rollout.now, until)
            ),
        ),
        Offline::Updated { .. } if is_due(rollout.strategy, rollout.fleet, node) => {
            (word, reverted_later(rollout, node))
        }
        Offline::Updated { .. } => (
            word,
            format!("{is_down}, and has the current revision already"),
        ),
    };
    (Some(reason.into()), because + &loss_aside(rollout, node))
}

pub(super) fn closed(rollout: &RolloutView<'_>, node: &Node, opens: Option<Timestamp>) -> String {
    let windows = match (&node.window, &rollout.strategy.window) {
        (Some(NodeWindow::Unreadable(why)), _) => {
            return format!(
                "is outdated, and its annotation {MAINTENANCE_WINDOW} cannot be used: {why}"
            );
        }
        (Some(NodeWindow::Windows(windows)), _) | (None, Some(windows)) => windows.to_string(),
        (None, None) => String::new(),
    };
    match opens {
        Some(opens) => format!(
            "is outdated, and its maintenance window is closed; opens {} (in {})",
            opening_words(rollout.fleet, rollout.plan, rollout.strategy, opens),
            instant::between(rollout.now, opens)
        ),
        None => format!("is outdated, and its maintenance window ({windows}) never opens"),
    }
}

/// Returns a note that the node's hold has expired, as a reminder to remove the annotation.
pub(super) fn ended_hold(rollout: &RolloutView<'_>, node: &Node) -> String {
    let hold = node.hold.as_ref().filter(|hold| !hold.holds(rollout.now));
    match hold.and_then(|hold| hold.until) {
        Some(until) => format!(" (its hold ended at {})", instant::words(until)),
        None => String::new(),
    }
}

/// Returns the reason why an emptied node gets no new pod.
pub(super) fn kept_away_words(node: &Node) -> &str {
    (node.kept_away_by.as_deref()).unwrap_or("a taint or a label of the node keeps it away")
}

/// Describes a node on which no new pod would be created, with the taint, if known.
pub fn repelled(node: &Node, obstacle: Option<&Obstacle>) -> String {
    let why = match obstacle {
        Some(obstacle) => obstacle.to_string(),
        None => "the template does not tolerate a taint of effect NoSchedule there".to_owned(),
    };
    format!(
        "keeps its outdated pod{}: {why}, so no other pod would come if this one went",
        node.outdated()
            .map(|pod| format!(" {}", pod.name))
            .unwrap_or_default()
    )
}

pub(super) fn held(node: &Node, until: Option<Timestamp>) -> String {
    let reason = node.hold.as_ref().map_or("", |hold| &*hold.reason);
    let reason = match reason {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    match until {
        Some(until) => format!(
            "keeps its outdated pod until {}{reason}",
            instant::words(until)
        ),
        None => format!("keeps its outdated pod{reason}"),
    }
}

pub(super) fn behind_word(rollout: &RolloutView<'_>) -> Option<String> {
    let word = match rollout.fleet.revision {
        RevisionState::Unknown(RevisionUnknown::NotObserved) => "NotObserved",
        RevisionState::Unknown(RevisionUnknown::NoRevision) => "NoRevision",
        RevisionState::Unknown(RevisionUnknown::Tie) => "Tie",
        RevisionState::Unknown(RevisionUnknown::Mismatch) => "Mismatch",
        RevisionState::Unknown(RevisionUnknown::UnknownRevision) => "UnknownRevision",
        RevisionState::Current(_) => return None,
    };
    Some(word.into())
}

/// Describes the step of the native controller, or of this one for an Advanced DaemonSet, that a waiting node needs.
pub(super) fn waits_behind(rollout: &RolloutView<'_>) -> String {
    let behind = match rollout.fleet.revision {
        RevisionState::Unknown(behind) => behind,
        RevisionState::Current(_) => RevisionUnknown::NotObserved,
    };
    format!(
        "waits: {}{}",
        behind_words(rollout.fleet.kind, behind),
        unrevised(rollout.fleet)
    )
}

/// Returns the urgency of a node for operators: lower is more urgent, `None` means that no attention is needed.
pub fn urgency(rollout: &RolloutView<'_>, position: usize) -> Option<u8> {
    let (node, verdict) = (
        &rollout.fleet.nodes[position],
        &rollout.plan.verdicts[position],
    );
    let fails = matches!(verdict, Verdict::FailedByRevision { .. });
    if fails || stall_of(node, verdict, rollout.now).is_some() {
        return Some(u8::from(!fails));
    }
    match *verdict {
        Verdict::BlockedByPdb { obstruction, .. } => obstruction.is_mistake().then_some(2),
        Verdict::Refused { .. } => Some(1),
        Verdict::HookPending { .. } => None,
        Verdict::InProgress(_) if !trouble_words(node).is_empty() => Some(1),
        Verdict::InProgress(
            Progress::Replacing | Progress::NotYetAvailable { .. } | Progress::SurgeYoung { .. },
        ) => None,
        Verdict::InProgress(_) => {
            let since = verdict_since(node, verdict, rollout.first_look)?;
            let old = rollout.now.as_second() - since.as_second() > OLD_SECONDS;
            old.then_some(2)
        }
        Verdict::Budget { broken: true } | Verdict::UntoleratedTaint => Some(3),
        Verdict::AwaitingOwner => pulls::has_failed(node).then_some(3),
        Verdict::Offline(Offline::NoNode | Offline::Terminating { .. }) => Some(4),
        Verdict::Offline(_) if !loss_aside(rollout, node).is_empty() => Some(4),
        Verdict::Offline(Offline::NotReady { .. }) => Some(5),
        _ => None,
    }
}

/// Age of an update, in seconds, after which operators should check it.
const OLD_SECONDS: i64 = 120;
