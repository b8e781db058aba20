//! A verdict in words: what holds the node where it is, and what would change that.

mod budgets;
mod cure;
mod guarded;
mod pulls;
mod refused;
mod slots;
#[cfg(test)]
mod tests;

use k8s_openapi::jiff::Timestamp;

pub(super) use cure::{cure, cure_repelled, holders, not_targeted};
use guarded::{
    failed, guarded_words, loss_aside, revert_words, reverted_later, reverting, settles,
};
pub(super) use guarded::{gone, reversal_words};
pub(super) use slots::about_to_be;

use super::age;
use super::picture::{Picture, verdict_since};
use crate::core::eligibility::Obstacle;
use crate::core::engine::overdue;
use crate::core::engine::replacement::{Way, way};
use crate::core::engine::revert::is_due;
use crate::core::fleet::in_place::Recreate;
use crate::core::names::{MAINTENANCE_WINDOW, MIN_INTERVAL};
use crate::core::said::behind_words;
use crate::core::selector::Selector;
use crate::core::{
    Behind, Guarded, Mode, Node, NodeWindow, Offline, Pod, PodRevision, Progress, Revert,
    RevisionState, Stall, Targeting, Verdict, is_between_crashes, stall_of,
};

/// What becomes of a pod whose budget has changed its mind.
const ASKED_AGAIN: &str = "evicted when its PodDisruptionBudget is asked again: it refused the last time, and allows it now";

/// Why one node is where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Explanation {
    /// One more word than the verdict's, where there is one: `ImagePullBackOff`, `NotReady`, …
    pub(super) reason: Option<String>,
    /// Since when, as far as known.
    pub(super) since: Option<Timestamp>,
    /// Continues "node NAME …".
    pub(super) because: String,
}

/// Why the node at `position` of the fleet is where it is.
pub(super) fn explain(picture: &Picture, position: usize) -> Explanation {
    let (node, verdict) = (
        &picture.fleet.nodes[position],
        &picture.plan.verdicts[position],
    );
    let (reason, because) = match *verdict {
        Verdict::Done => (None, done(picture, node)),
        Verdict::InProgress(progress) => in_progress(picture, node, progress),
        Verdict::HookPending { overdue, .. } => hook_pending(picture, node, overdue),
        Verdict::BlockedByPdb { obstruction, .. } => budgets::blocked(picture, node, obstruction),
        Verdict::Refused { .. } => refused::refused(picture, node),
        Verdict::Budget { broken: true } => (
            trouble_word(node),
            format!(
                "is outdated, and its old pod{} is not available{}: one of the first in the queue{}",
                pod_name(node),
                trouble_words(node),
                manner(picture, node)
            ),
        ),
        Verdict::Budget { .. } if node.pods.iter().any(|pod| pod.exit.preparing.is_some()) => {
            let (reason, _) = hook_pending(picture, node, false);
            let because = format!(
                "has its pod{} marked PreparingDelete and its hook is gone: it goes when a slot is free ({})",
                pod_name(node),
                slots::taken(picture, node)
            );
            (reason, because)
        }
        Verdict::Budget { broken: false } if let Some(why) = other_domain(picture, node) => {
            (None, why)
        }
        Verdict::Budget { broken: false } if let Some(ahead) = paced_by(picture, position) => (
            None,
            format!(
                "is outdated and waits for {ahead}, which is being replaced: with {MIN_INTERVAL} there is one at a time{}{}",
                pulls::aside(picture, node),
                manner(picture, node)
            ),
        ),
        Verdict::Budget { broken: false } if let Some(opens) = picture.plan.opens => (
            None,
            format!(
                "is outdated and waits: with {MIN_INTERVAL} nothing is replaced before {}{}{}",
                age::instant(opens),
                pulls::aside(picture, node),
                manner(picture, node)
            ),
        ),
        Verdict::Budget { broken: false } => (
            None,
            format!(
                "is outdated and waits for a free slot: {}{}{}",
                slots::taken(picture, node),
                pulls::aside(picture, node),
                manner(picture, node)
            ),
        ),
        Verdict::Offline(offline) => is_offline(picture, node, offline),
        Verdict::FailedByRevision { cause, .. } => failed(node, cause),
        Verdict::Paused { until } => (None, paused(until)),
        Verdict::Partition => (
            None,
            format!(
                "keeps its outdated pod: partition {} holds back {} of {} nodes",
                picture.strategy.partition,
                picture
                    .strategy
                    .partition
                    .resolve_down(picture.plan.counts.targeted),
                picture.plan.counts.targeted
            ),
        ),
        Verdict::NotSelected => (
            None,
            format!(
                "keeps its outdated pod: its labels do not match the selector {}",
                picture
                    .strategy
                    .selector
                    .as_ref()
                    .map(Selector::to_query)
                    .unwrap_or_default()
            ),
        ),
        Verdict::Held { until } => (None, held(node, until)),
        Verdict::Guarded(guarded) => guarded_words(picture, guarded),
        Verdict::Revert(revert) => revert_words(picture, node, revert),
        Verdict::WaveNotOpen { wave, why } => (
            None,
            format!(
                "is outdated, and its wave {} waits {}",
                picture.plan.waves.get(wave).map_or("", |stand| &stand.name),
                picture.plan.awaited_words(why)
            ),
        ),
        Verdict::OutOfWindow { opens } => (None, closed(picture, node, opens)),
        Verdict::PullPending(stage) => pulls::pending(picture, node, stage),
        Verdict::AwaitingOwner => pulls::awaiting_owner(node),
        Verdict::NativeControllerBehind => (behind_word(picture), waits_behind(picture)),
        Verdict::Invalid => {
            let invalid = picture.invalid.as_ref();
            let because = match invalid {
                Some(invalid) if invalid.is_native_update() => {
                    "is outdated, and Kubernetes' own rolling update replaces its pod at any moment, whatever the \
                     annotations say"
                        .to_owned()
                }
                _ => format!(
                    "is outdated, and yurt-ds leaves it alone: {} cannot be used",
                    invalid.map_or("a setting", |invalid| &invalid.key)
                ),
            };
            (None, because)
        }
        Verdict::UntoleratedTaint => (None, repelled(node, None)),
        Verdict::NotTargeted => (
            None,
            format!(
                "is not targeted, and its pod{} is the native controller's to remove",
                pod_name(node)
            ),
        ),
    };
    let because = because + &ended_hold(picture, node);
    let because = because + &refused::aside(picture, node, verdict);
    Explanation {
        reason,
        since: match verdict {
            // These hold as long as the rollout is in its state.
            Verdict::Budget { .. } => picture.incomplete_since(),
            // No pod has waited for longer than it has been there.
            Verdict::AwaitingOwner => {
                let revised = newest(node).map(Pod::revised);
                picture.state_since().max(revised)
            }
            Verdict::Guarded(Guarded::Stopped(_)) | Verdict::Revert(Revert::Pending) => {
                picture.state_since()
            }
            Verdict::Guarded(Guarded::Inconclusive { .. })
            | Verdict::Partition
            | Verdict::NotSelected
            | Verdict::UntoleratedTaint
            | Verdict::Held { .. }
            | Verdict::WaveNotOpen { .. }
            | Verdict::OutOfWindow { .. } => None,
            Verdict::PullPending(_) => pulls::since(node),
            Verdict::Paused { .. } => picture.fleet.pause.map(|told| told.since),
            Verdict::Invalid | Verdict::NativeControllerBehind => picture.state_since(),
            _ => verdict_since(node, verdict, picture.first_look),
        },
        because,
    }
}

fn done(picture: &Picture, node: &Node) -> String {
    let came = picture
        .pause()
        .filter(|stand| stand.newcomers.contains(&node.name));
    match came.and(newest(node)) {
        Some(pod) => format!(
            "runs the current revision, which it got at {} although the rollout is paused: the native DaemonSet controller \
             makes every new pod of the present template",
            age::instant(pod.revised())
        ),
        None => "runs the current revision".to_owned(),
    }
}

fn in_progress(picture: &Picture, node: &Node, progress: Progress) -> (Option<String>, String) {
    let (reason, because) = stage(picture, node, progress);
    (reason, because + &held_up(picture, node, progress))
}

/// How far its update is.
fn stage(picture: &Picture, node: &Node, progress: Progress) -> (Option<String>, String) {
    let pod = pod_name(node);
    match progress {
        Progress::Replacing => (Some("Replacing".into()), replacing(picture, node)),
        Progress::Terminating => (
            Some("Terminating".into()),
            format!("is being updated: its pod{pod} is terminating"),
        ),
        Progress::Missing { .. } if node.targeting != Targeting::Run => (
            Some("Missing".into()),
            "lost its old pod to this rollout, and now a taint or a label keeps the next one away"
                .to_owned(),
        ),
        Progress::Missing { .. } => (
            Some("Missing".into()),
            match &picture.fleet.not_created {
                Some(why) => {
                    format!(
                        "has no pod, and the native DaemonSet controller cannot make one: {why}"
                    )
                }
                None => "has no pod; the native DaemonSet controller has to make one".to_owned(),
            },
        ),
        Progress::UpdatingInPlace { .. } => (
            Some("UpdatingInPlace".into()),
            format!("has its turn: its pod{pod} gets its new images in place"),
        ),
        Progress::Reverting { .. } => reverting(picture, node),
        Progress::Starting => {
            let reason = trouble_word(node).unwrap_or_else(|| "Starting".into());
            let because = match trouble_words(node) {
                words if words.is_empty() => {
                    format!("has {}{pod}, which is not Ready yet", its_pod(node))
                }
                words => format!("has {}{pod}, which does not start{words}", its_pod(node)),
            };
            (Some(reason), because)
        }
        Progress::Young { available_at } if is_between_crashes(node, picture.now) => (
            Some("Young".into()),
            format!(
                "has {}{pod}, whose container crashed and was started again more than once; if it goes on running, it counts as \
                 available in {}",
                its_pod(node),
                age::between(picture.now, available_at)
            ),
        ),
        Progress::Young { available_at } => (
            Some("Young".into()),
            format!(
                "has {}{pod}, which counts as available in {} (minReadySeconds: {})",
                its_pod(node),
                age::between(picture.now, available_at),
                picture.strategy.min_ready.as_secs()
            ),
        ),
        Progress::SurgeStarting
        | Progress::SurgeYoung { .. }
        | Progress::SurgeTakingOver
        | Progress::SurgeLeaving => surging(picture, node, progress),
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
                "has {} pods; the native DaemonSet controller removes the surplus",
                node.pods.len()
            ),
        ),
    }
}

/// That a node is past its deadline, for other reasons than that its pods do not start; empty when it is not.
fn held_up(picture: &Picture, node: &Node, progress: Progress) -> String {
    let verdict = Verdict::InProgress(progress);
    match stall_of(node, &verdict, picture.now) {
        Some(Stall::NoProgress | Stall::PodsNotCreated) => {
            format!(
                "; held up for too long: {}",
                overdue::words(&picture.fleet, node, &verdict)
            )
        }
        _ => String::new(),
    }
}

fn replacing(picture: &Picture, node: &Node) -> String {
    let pod = pod_name(node);
    match way_of(picture, node) {
        Way::InPlace(_) => format!("has its turn: its pod{pod} is to be updated in place now"),
        Way::Recreate(why) => format!(
            "has its turn: its old pod{pod} is to be {}{}",
            match picture.asks_again() {
                true => ASKED_AGAIN,
                false => "replaced now",
            },
            not_in_place(why)
        ),
    }
}

/// How the outdated pod of a node gets the current revision.
pub(super) fn way_of(picture: &Picture, node: &Node) -> Way {
    let mut pods = node.pods.iter();
    let outdated = pods.find(|pod| !pod.terminating && pod.revision == PodRevision::Outdated);
    outdated.map_or(Way::Recreate(None), |pod| {
        way(&picture.strategy, &picture.fleet, pod)
    })
}

/// How it will get the current revision, where an update in place was asked for.
fn manner(picture: &Picture, node: &Node) -> String {
    match way_of(picture, node) {
        Way::InPlace(_) => "; its pod is updated in place then".to_owned(),
        Way::Recreate(why) => not_in_place(why),
    }
}

fn not_in_place(why: Option<Recreate>) -> String {
    why.map_or_else(String::new, |why| {
        format!("; not in place: {}", why.words())
    })
}

/// What is still on the pods of a node that has to go first.
pub(super) fn awaited(picture: &Picture, node: &Node) -> Vec<String> {
    let Some(hook) = &picture.strategy.pre_delete else {
        return Vec::new();
    };
    let alive = node
        .pods
        .iter()
        .filter(|pod| !pod.terminating && !pod.surge);
    alive.flat_map(|pod| hook.awaited(&pod.exit)).collect()
}

fn hook_pending(picture: &Picture, node: &Node, overdue: bool) -> (Option<String>, String) {
    let awaited = awaited(picture, node);
    let leaving = node.pods.iter().find(|pod| pod.exit.preparing.is_some());
    let pod = leaving.map_or_else(|| pod_name(node), |pod| format!(" {}", pod.name));
    let because = match awaited.is_empty() {
        true if picture.is_paused() => {
            format!(
                "has its pod{pod} marked PreparingDelete and its hook is gone; the rollout is paused"
            )
        }
        true if picture.plan.guarded.is_some() => {
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
        "Overdue"
    } else {
        "PreparingDelete"
    };
    (Some(overdue.into()), because)
}

/// The pod that stays, to follow a word.
fn living_name(node: &Node) -> String {
    let alive = node.pods.iter().filter(|pod| !pod.terminating);
    alive
        .max_by_key(|pod| pod.created)
        .map_or_else(String::new, |pod| format!(" {}", pod.name))
}

/// The pod that is terminating, to follow a word.
fn terminating_name(node: &Node) -> String {
    let mut pods = node.pods.iter();
    pods.find(|pod| pod.terminating)
        .map_or_else(String::new, |pod| format!(" ({})", pod.name))
}

/// Whether the pod that was made beside the old one serves, and that one does not.
pub(super) fn is_kept(node: &Node) -> bool {
    let ready = |surge: bool| {
        let mut pods = node.pods.iter();
        pods.any(|pod| pod.surge == surge && !pod.terminating && pod.ready_since.is_some())
    };
    ready(true) && !ready(false)
}

/// About a node with a second pod that was made beside the old one.
fn surging(picture: &Picture, node: &Node, progress: Progress) -> (Option<String>, String) {
    let made = node.pods.iter().filter(|pod| pod.surge);
    let name = |pod: &Pod| format!(" {}", pod.name);
    let made = made.map(name).next().unwrap_or_default();
    let (reason, because) = match progress {
        Progress::SurgeYoung { available_at } => (
            "SurgeYoung",
            format!(
                "has a new pod{made} beside the old one, which goes when the new one counts as available, in {} \
                 (minReadySeconds: {})",
                age::between(picture.now, available_at),
                picture.strategy.min_ready.as_secs()
            ),
        ),
        Progress::SurgeTakingOver => (
            "SurgeTakingOver",
            match node.pods.iter().any(|pod| !pod.surge && !pod.terminating) {
                true if picture.asks_again() => {
                    format!("has a new pod{made} that serves; the old one is to be {ASKED_AGAIN}")
                }
                true => format!("has a new pod{made} that serves; the old one goes now"),
                false => format!(
                    "has a new pod{made} that serves; it is handed over to the DaemonSet now (before Kubernetes 1.33 when \
                     the native controller has made a pod of its own, which goes then)"
                ),
            },
        ),
        Progress::SurgeLeaving => (
            "SurgeLeaving",
            match is_kept(node) {
                false => format!("has a second pod{made} that is not wanted any more, and goes"),
                true => format!(
                    "has a second pod{made} that is not wanted any more, and goes when the old one is available: until then \
                     it is the one that serves"
                ),
            },
        ),
        _ if made.is_empty() => (
            "SurgeStarting",
            "has its turn: a new pod is to be made beside the old one now".to_owned(),
        ),
        _ => (
            "SurgeStarting",
            format!(
                "has a new pod{made} beside the old one, which serves until the new one is available{}",
                trouble_words(node)
            ),
        ),
    };
    (Some(reason.into()), because)
}

fn is_offline(picture: &Picture, node: &Node, offline: Offline) -> (Option<String>, String) {
    let (reason, because) = match offline {
        Offline::NotReady { .. } if node.pods.is_empty() => (
            "NotReady",
            "is NotReady and has no pod; gets one of the current revision when it returns"
                .to_owned(),
        ),
        Offline::NotReady { .. } if picture.strategy.mode == Mode::Ota => (
            "NotReady",
            "is NotReady and outdated; its owner decides when to upgrade (OTA)".to_owned(),
        ),
        Offline::NotReady { .. } if picture.strategy.pause.is_some() => {
            ("NotReady", "is NotReady and outdated".to_owned())
        }
        Offline::NotReady { .. } => (
            "NotReady",
            "is NotReady and outdated; updated after it returns".to_owned(),
        ),
        Offline::Terminating { .. } => (
            "Terminating",
            format!(
                "is NotReady; its pod{} cannot finish terminating before it returns",
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
                age::between(picture.now, until)
            ),
        ),
        Offline::Updated { .. } if is_due(&picture.strategy, &picture.fleet, node) => {
            ("NotReady", reverted_later(picture, node))
        }
        Offline::Updated { .. } => (
            "NotReady",
            "is NotReady, and has the current revision already".to_owned(),
        ),
    };
    (Some(reason.into()), because + &loss_aside(picture, node))
}

/// The node whose replacement is not over, and that keeps the others of its wave waiting (`min-interval`).
fn paced_by(picture: &Picture, position: usize) -> Option<&str> {
    if picture.strategy.min_interval.is_zero() {
        return None;
    }
    let waves = picture.strategy.waves.as_ref();
    let wave = |node: &Node| waves.map(|waves| waves.of(node));
    let own = wave(&picture.fleet.nodes[position]);
    let mut others = picture.fleet.nodes.iter().zip(&picture.plan.verdicts);
    let ahead = others.find(|(node, verdict)| {
        let is_awaited = matches!(
            verdict,
            Verdict::HookPending { .. }
                | Verdict::InProgress(
                    Progress::Terminating | Progress::Replacing | Progress::Missing { .. }
                )
        );
        is_awaited && wave(node) == own
    });
    ahead.map(|(node, _)| node.name.as_str())
}

/// That another failure domain has its turn.
fn other_domain(picture: &Picture, node: &Node) -> Option<String> {
    let topology = picture.strategy.topology.as_ref()?;
    let (domain, now) = (topology.domain_of(node), &picture.plan.domains);
    if now.is_empty() || now.iter().any(|name| name == domain) {
        return None;
    }
    let named = |name: &str| match name {
        "" => "that of the nodes without this label".to_owned(),
        name => name.to_owned(),
    };
    let others: Vec<String> = now.iter().map(|name| named(name)).collect();
    Some(format!(
        "is outdated, and it is another domain's turn: its {} is {domain:?}, now at work: {}",
        topology.key,
        others.join(", ")
    ))
}

fn closed(picture: &Picture, node: &Node, opens: Option<Timestamp>) -> String {
    let windows = match (&node.window, &picture.strategy.window) {
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
            "is outdated and waits for its maintenance window ({windows}), which opens at {}",
            age::instant(opens)
        ),
        None => format!("is outdated, and its maintenance window ({windows}) never opens"),
    }
}

/// That a hold is over, for whoever forgot to remove it.
fn ended_hold(picture: &Picture, node: &Node) -> String {
    let hold = node.hold.as_ref().filter(|hold| !hold.holds(picture.now));
    match hold.and_then(|hold| hold.until) {
        Some(until) => format!(" (its hold ended at {})", age::instant(until)),
        None => String::new(),
    }
}

/// That no other pod would come to a node, and because of which taint, where that is known.
pub(super) fn repelled(node: &Node, obstacle: Option<&Obstacle>) -> String {
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

fn held(node: &Node, until: Option<Timestamp>) -> String {
    let reason = node.hold.as_ref().map_or("", |hold| &*hold.reason);
    let reason = match reason {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    match until {
        Some(until) => format!(
            "keeps its outdated pod until {}{reason}",
            age::instant(until)
        ),
        None => format!("keeps its outdated pod{reason}"),
    }
}

fn paused(until: Option<Timestamp>) -> String {
    match until {
        Some(until) => format!(
            "is outdated; the rollout is paused until {}",
            age::instant(until)
        ),
        None => "is outdated; the rollout is paused".to_owned(),
    }
}

fn behind_word(picture: &Picture) -> Option<String> {
    let word = match picture.fleet.revision {
        RevisionState::Behind(Behind::NotObserved) => "NotObserved",
        RevisionState::Behind(Behind::NoRevision) => "NoRevision",
        RevisionState::Behind(Behind::Tie) => "Tie",
        RevisionState::Behind(Behind::Mismatch) => "Mismatch",
        RevisionState::Behind(Behind::UnknownRevision) => "UnknownRevision",
        RevisionState::Current(_) => return None,
    };
    Some(word.into())
}

/// What the native controller has not done yet, of a node that waits for it.
fn waits_behind(picture: &Picture) -> String {
    let behind = match picture.fleet.revision {
        RevisionState::Behind(behind) => behind,
        RevisionState::Current(_) => Behind::NotObserved,
    };
    format!("waits: {}", behind_words(behind))
}

/// How much a person should look at a node: less is more urgent, `None` not at all.
pub(super) fn urgency(picture: &Picture, position: usize) -> Option<u8> {
    let (node, verdict) = (
        &picture.fleet.nodes[position],
        &picture.plan.verdicts[position],
    );
    let fails = matches!(verdict, Verdict::FailedByRevision { .. });
    if fails || stall_of(node, verdict, picture.now).is_some() {
        return Some(u8::from(!fails));
    }
    match *verdict {
        Verdict::BlockedByPdb { obstruction, .. } => obstruction.is_mistake().then_some(2),
        Verdict::Refused { .. } => Some(1),
        Verdict::HookPending { .. } => None,
        Verdict::InProgress(_) if !trouble_words(node).is_empty() => Some(1),
        Verdict::InProgress(
            Progress::Replacing | Progress::Young { .. } | Progress::SurgeYoung { .. },
        ) => None,
        Verdict::InProgress(_) => {
            let since = verdict_since(node, verdict, picture.first_look)?;
            let old = picture.now.as_second() - since.as_second() > OLD_SECONDS;
            old.then_some(2)
        }
        Verdict::Budget { broken: true } | Verdict::UntoleratedTaint => Some(3),
        Verdict::AwaitingOwner => pulls::has_failed(node).then_some(3),
        Verdict::Offline(Offline::NoNode | Offline::Terminating { .. }) => Some(4),
        Verdict::Offline(_) if !loss_aside(picture, node).is_empty() => Some(4),
        Verdict::Offline(Offline::NotReady { .. }) => Some(5),
        _ => None,
    }
}

/// In progress for longer than this deserves a look.
const OLD_SECONDS: i64 = 120;

fn newest(node: &Node) -> Option<&Pod> {
    node.pods.iter().max_by_key(|pod| pod.created)
}

/// Whether its pod is a new one, or an old one that was updated in place.
fn its_pod(node: &Node) -> &'static str {
    match newest(node).and_then(|pod| pod.in_place.update) {
        None => "its new pod",
        Some(_) => "its pod, updated in place,",
    }
}

/// The name of its pod, with a space before it.
fn pod_name(node: &Node) -> String {
    newest(node).map_or_else(String::new, |pod| format!(" {}", pod.name))
}

fn trouble_word(node: &Node) -> Option<String> {
    let trouble = newest(node)?.trouble.as_ref()?;
    Some(trouble.word().to_owned())
}

fn trouble_words(node: &Node) -> String {
    let Some(trouble) = newest(node).and_then(|pod| pod.trouble.as_ref()) else {
        return String::new();
    };
    match (trouble.words(), trouble.restarts) {
        (words, 0) => format!(" ({words})"),
        (words, 1) => format!(" ({words}, 1 restart)"),
        (words, restarts) => format!(" ({words}, {restarts} restarts)"),
    }
}

/// How the pods of a node are called in a sentence about revisions.
pub(super) fn revision_word(pod: &Pod) -> &'static str {
    match pod.revision {
        PodRevision::Current => "current",
        PodRevision::Outdated => "outdated",
        PodRevision::Unknown => "unknown",
    }
}
