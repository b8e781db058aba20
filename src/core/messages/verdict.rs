//! Messages for each verdict: the common cause of all nodes with it, the reason for a single node, and the remedy.
//!
//! This file has a line for every verdict. Longer texts are in [`node`](super::node) (reasons) and [`next`](super::next)
//! (remedies).

use k8s_openapi::jiff::Timestamp;

use super::guarded::{failed, guarded_words, revert_words};
use super::next::{
    remedy_failed, remedy_guarded, remedy_hook, remedy_offline, remedy_paused, remedy_progress,
    remedy_repelled, remedy_revert, remedy_wave, upgrade,
};
use super::node::{
    behind_word, closed, done, ended_hold, held, hook_pending, in_progress, is_offline, manner,
    repelled, waits_behind,
};
use super::pause::paused_words;
use super::pods::{newest, pod_name, trouble_cause, trouble_word, trouble_words};
use super::reasons::{behind_remedy, unrevised};
use super::rollout::RolloutView;
use super::since::verdict_since;
use super::slots::{self, other_domain, paced_by};
use super::{budgets, pulls, refused};
use crate::core::engine::decide::queue as in_order;
use crate::core::engine::removal::is_withheld;
use crate::core::fleet::{Node, Pod};
use crate::core::id::{RevisionState, RevisionUnknown};
use crate::core::instant;
use crate::core::kind::SetKind;
use crate::core::names::HOLD;
use crate::core::plan::Phase;
use crate::core::remedy::LOOK_FOR_IT;
use crate::core::selector::Selector;
use crate::core::settings::NodeOrder;
use crate::core::settings::maintenance_window::MAINTENANCE_WINDOW;
use crate::core::settings::max_domains::MAX_DOMAINS;
use crate::core::settings::min_interval::MIN_INTERVAL;
use crate::core::settings::partition::PARTITION;
use crate::core::settings::selector::SELECTOR;
use crate::core::settings::waves::WAVES;
use crate::core::verdict::{Guarded, Offline, Progress, Revert, Verdict};

/// Maximum number of nodes with a slot that a message names. Further nodes are counted.
const NAMED: usize = 5;

/// Returns the cause of the verdict for the node at `position`: at most 70 characters, and equal for all nodes with that cause.
///
/// With `stands`, the rollout updates no node, because no controller runs or the rollout itself is stopped.
pub fn cause(rollout: &RolloutView<'_>, position: usize, stands: bool) -> String {
    let node = &rollout.fleet.nodes[position];
    let verdict = &rollout.plan.verdicts[position];
    let fails = matches!(
        verdict,
        Verdict::InProgress(_) | Verdict::FailedByRevision { .. }
    );
    let said = trouble_cause(node).filter(|_| fails);
    said.unwrap_or_else(|| meaning(rollout, verdict, stands).to_owned())
}

/// Returns the common cause of all nodes with this verdict.
fn meaning(rollout: &RolloutView<'_>, verdict: &Verdict, stands: bool) -> &'static str {
    let stands = stands || matches!(rollout.phase, Phase::Stalled(_) | Phase::Complete { .. });
    match verdict {
        Verdict::Done => "run the current revision",
        Verdict::InProgress(Progress::Replacing) if stands => {
            "still on the old version, next to be updated"
        }
        Verdict::InProgress(_) if stands => "have no available pod",
        Verdict::InProgress(_) => "are being updated",
        Verdict::Budget { .. } if stands => "still on the old version; the rollout is stopped",
        Verdict::Budget { .. } => "are outdated and wait for a free slot",
        Verdict::AwaitingDomain => "are outdated; another failure domain is updated first",
        Verdict::Offline(Offline::Settling { .. }) => "reconnected a moment ago",
        Verdict::Offline(Offline::Updated { .. }) => "are offline with the current revision",
        Verdict::Offline(_) => "are offline; they do not block the rollout",
        Verdict::FailedByRevision { .. } => "failed on the new version",
        Verdict::Paused { .. } => "still on the old version; the rollout is paused",
        Verdict::Partition => "stay on the old version: partition",
        Verdict::NotSelected => "stay on the old version: selector",
        Verdict::Held { .. } => "stay on the old version: annotation hold of the Node",
        Verdict::Guarded(Guarded::Stopped(_)) => "still on the old version; the rollout is stopped",
        Verdict::Guarded(Guarded::Inconclusive { .. }) => {
            "are outdated; the guard examines lost nodes first"
        }
        Verdict::Revert(_) => "got the earlier revision back, or are next",
        Verdict::WaveNotOpen { .. } => "are outdated; their wave is not open",
        Verdict::OutOfWindow { .. } => "are outdated; their maintenance window is closed",
        Verdict::PullPending(_) => "are outdated; they pull the images first",
        Verdict::HookPending { .. } => "wait for the preDelete hooks of their pods (lifecycle)",
        Verdict::BlockedByPdb { .. } => "a PodDisruptionBudget blocks the eviction of their pods",
        Verdict::Refused { .. } => "the API server denies the change to their pods",
        Verdict::AwaitingOwner => "are outdated until their owners upgrade them",
        Verdict::AwaitingDeletion => "are outdated until their pods are deleted (OnDelete)",
        Verdict::NativeControllerBehind => match rollout.fleet.kind {
            SetKind::Native => "wait for the native DaemonSet controller",
            SetKind::Advanced => "wait for the revision that the yurt-ds controller creates",
        },
        Verdict::Invalid => "are outdated; the settings cannot be used",
        Verdict::NotTargeted => "have a pod that does not belong there",
        Verdict::UntoleratedTaint => "keep the old pod: a taint there would keep a new one away",
    }
}

/// Reason for the verdict of one node, for `ctl why`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// More specific reason than the verdict, such as `ImagePullBackOff` or `NotReady`; `None` if there is none.
    pub reason: Option<String>,
    /// Time since which the node has this verdict, as far as known.
    pub since: Option<Timestamp>,
    /// Reason of the verdict as text, which follows "node NAME …".
    pub because: String,
}

/// Explains why the node at `position` has its verdict.
pub fn explain(rollout: &RolloutView<'_>, position: usize) -> Explanation {
    let (node, verdict) = (
        &rollout.fleet.nodes[position],
        &rollout.plan.verdicts[position],
    );
    let (reason, because) = match *verdict {
        Verdict::Done => (None, done(rollout, node)),
        Verdict::InProgress(progress) => in_progress(rollout, node, progress),
        Verdict::HookPending { overdue, .. } => hook_pending(rollout, node, overdue),
        Verdict::BlockedByPdb { obstruction, .. } => budgets::blocked(rollout, node, obstruction),
        Verdict::Refused { .. } => refused::refused(rollout, node),
        Verdict::Budget { broken: true } => (
            trouble_word(node),
            format!(
                "is outdated, and its old pod{} is not available{}: one of the first in the queue{}",
                pod_name(node),
                trouble_words(node),
                manner(rollout, node)
            ),
        ),
        Verdict::Budget { .. } if node.pods.iter().any(|pod| pod.exit.preparing.is_some()) => {
            let (reason, _) = hook_pending(rollout, node, false);
            let because = format!(
                "has its pod{} marked PreparingDelete and its hook is gone: it goes when a slot is free ({})",
                pod_name(node),
                slots::taken(rollout, node)
            );
            (reason, because)
        }
        Verdict::Budget { broken: false } if let Some(ahead) = paced_by(rollout, position) => (
            None,
            format!(
                "is outdated and waits for {ahead}, which is being replaced: with {MIN_INTERVAL} there is one at a time{}{}",
                pulls::aside(rollout, node),
                manner(rollout, node)
            ),
        ),
        Verdict::Budget { broken: false } if let Some(opens) = rollout.plan.opens => (
            None,
            format!(
                "is outdated and waits: with {MIN_INTERVAL} nothing is replaced before {}{}{}",
                instant::words(opens),
                pulls::aside(rollout, node),
                manner(rollout, node)
            ),
        ),
        Verdict::Budget { broken: false } => (
            None,
            format!(
                "is outdated and waits for a free slot: {}{}{}",
                slots::taken(rollout, node),
                pulls::aside(rollout, node),
                manner(rollout, node)
            ),
        ),
        Verdict::AwaitingDomain => (None, other_domain(rollout, node)),
        Verdict::Offline(offline) => is_offline(rollout, node, offline),
        Verdict::FailedByRevision { cause, .. } => failed(node, cause),
        Verdict::Paused { until } => (
            None,
            format!("is outdated; the rollout is {}", paused_words(until)),
        ),
        Verdict::Partition => (
            None,
            format!(
                "{}: partition {} holds back {} of {} nodes",
                if node.pods.is_empty() {
                    "gets no pod yet"
                } else {
                    "keeps its outdated pod"
                },
                rollout.strategy.partition,
                rollout
                    .strategy
                    .partition
                    .resolve_down(rollout.plan.counts.targeted),
                rollout.plan.counts.targeted
            ),
        ),
        Verdict::NotSelected => (
            None,
            format!(
                "keeps its outdated pod: its labels do not match the selector {}",
                rollout
                    .strategy
                    .selector
                    .as_ref()
                    .map(Selector::to_query)
                    .unwrap_or_default()
            ),
        ),
        Verdict::Held { until } => (None, held(node, until)),
        Verdict::Guarded(guarded) => guarded_words(rollout, guarded),
        Verdict::Revert(revert) => revert_words(rollout, node, revert),
        Verdict::WaveNotOpen { wave, why } => (
            None,
            format!(
                "is outdated, and its wave {} waits {}",
                rollout.plan.waves.get(wave).map_or("", |stand| &stand.name),
                rollout.plan.awaited_words(why)
            ),
        ),
        Verdict::OutOfWindow { opens } => (None, closed(rollout, node, opens)),
        Verdict::PullPending(stage) => pulls::pending(rollout, node, stage),
        Verdict::AwaitingOwner => pulls::awaiting_owner(node),
        Verdict::AwaitingDeletion => (
            None,
            format!(
                "is outdated, and its pod{} stays until somebody deletes it (updateStrategy.type: OnDelete)",
                pod_name(node)
            ),
        ),
        Verdict::NativeControllerBehind => (behind_word(rollout), waits_behind(rollout)),
        Verdict::Invalid => {
            let invalid = rollout.invalid;
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
                "is not targeted, and its pod{} is {}'s to remove",
                pod_name(node),
                rollout.fleet.kind.controller()
            ),
        ),
    };
    let because = because + &ended_hold(rollout, node);
    let because = because + &refused::aside(rollout, node, verdict);
    Explanation {
        reason,
        since: match verdict {
            // A node keeps such a verdict for as long as the rollout is incomplete.
            Verdict::Budget { .. } | Verdict::AwaitingDomain => rollout.incomplete_since,
            // The phase may be older than the pod. A pod cannot have waited for longer than it has existed.
            Verdict::AwaitingOwner | Verdict::AwaitingDeletion => {
                let revised = newest(node).map(Pod::revised);
                rollout.phase_since.max(revised)
            }
            Verdict::Guarded(Guarded::Stopped(_)) | Verdict::Revert(Revert::Pending) => {
                rollout.phase_since
            }
            Verdict::Guarded(Guarded::Inconclusive { .. })
            | Verdict::Partition
            | Verdict::NotSelected
            | Verdict::UntoleratedTaint
            | Verdict::Held { .. }
            | Verdict::WaveNotOpen { .. }
            | Verdict::OutOfWindow { .. } => None,
            Verdict::PullPending(_) => pulls::since(node),
            Verdict::Paused { .. } => rollout.fleet.pause.map(|told| told.since),
            Verdict::Invalid | Verdict::NativeControllerBehind => rollout.phase_since,
            _ => verdict_since(node, verdict, rollout.first_look),
        },
        because,
    }
}

/// Returns a clause about writes that the API server rejects on this node; empty if there are none.
pub fn refused_aside(rollout: &RolloutView<'_>, position: usize) -> String {
    let verdict = &rollout.plan.verdicts[position];
    refused::aside(rollout, &rollout.fleet.nodes[position], verdict)
}

fn deletion(rollout: &RolloutView<'_>, node: &Node) -> String {
    let pod = newest(node).map_or("POD", |pod| pod.name.as_str());
    let namespace = &rollout.key.namespace;
    format!("The next one has the new revision: kubectl -n {namespace} delete pod {pod}")
}

/// Returns the remedy for the node at `position`: one or more sentences with commands.
pub fn remedy(rollout: &RolloutView<'_>, position: usize) -> String {
    let kind = rollout.fleet.kind;
    let (node, verdict) = (
        &rollout.fleet.nodes[position],
        &rollout.plan.verdicts[position],
    );
    match *verdict {
        Verdict::Done if rollout.fleet.write_failures.on(&node.name).next().is_some() => {
            refused::remedy(rollout, node)
        }
        Verdict::Done => "Nothing: it is done.".to_owned(),
        Verdict::InProgress(progress) => remedy_progress(rollout, node, verdict, progress),
        Verdict::HookPending { .. } => remedy_hook(rollout, node),
        Verdict::BlockedByPdb { obstruction, .. } => budgets::remedy(rollout, node, obstruction),
        Verdict::Refused { .. } => refused::remedy(rollout, node),
        Verdict::Budget { .. } => queue(rollout, position),
        Verdict::AwaitingDomain => next_domain(rollout),
        Verdict::Offline(offline) => remedy_offline(rollout, node, offline),
        Verdict::FailedByRevision { cause, .. } => remedy_failed(rollout, node, cause),
        Verdict::Guarded(guarded) => remedy_guarded(rollout, guarded),
        Verdict::Revert(revert) => remedy_revert(rollout, node, revert),
        Verdict::Paused { until } => remedy_paused(rollout, until),
        Verdict::Partition => format!(
            "It has its turn when {} is lowered; nodes go by name, {}.",
            rollout.strategy.place_of(PARTITION),
            match rollout.strategy.order {
                _ if node.pods.is_empty() => "those that get their first pod are the first",
                NodeOrder::Ascending => "those that are held back are the last",
                NodeOrder::Descending => "from the last one on, and the first ones are held back",
            }
        ),
        Verdict::NotSelected => format!(
            "It has its turn when {} selects it or is removed, or the node gets such labels.",
            rollout.strategy.place_of(SELECTOR)
        ),
        Verdict::Held { until } => {
            let early = format!(
                "kubectl annotate node {} {HOLD}- (this also ends holds of other DaemonSets on the node; to keep them, remove only \
                 this entry from the list)",
                node.name
            );
            match until {
                Some(until) => format!(
                    "It has its turn by itself in {}; earlier with: {early}",
                    instant::between(rollout.now, until)
                ),
                None => format!("It has its turn after: {early}"),
            }
        }
        Verdict::PullPending(stage) => pulls::remedy(rollout, node, stage),
        Verdict::WaveNotOpen { wave, why } => remedy_wave(rollout, wave, why),
        Verdict::OutOfWindow { opens } => match opens {
            Some(opens) => format!(
                "It has its turn by itself in {}, when a slot is free. The annotation {MAINTENANCE_WINDOW} says when, on \
                 the Node or else on the DaemonSet.",
                instant::between(rollout.now, opens)
            ),
            None => format!(
                "Correct it, or remove it: kubectl annotate node {} {MAINTENANCE_WINDOW}-",
                node.name
            ),
        },
        Verdict::AwaitingOwner => upgrade(rollout, node),
        Verdict::AwaitingDeletion => deletion(rollout, node),
        Verdict::NativeControllerBehind => {
            let remedy = match rollout.fleet.revision {
                RevisionState::Unknown(behind) => behind_remedy(kind, behind),
                RevisionState::Current(_) => behind_remedy(kind, RevisionUnknown::NotObserved),
            };
            match rollout.plan.phase {
                Phase::Stalled(_) => format!("To end this, {remedy}."),
                _ if !unrevised(rollout.fleet).is_empty() => {
                    format!("It goes on by itself when the API server allows that; {remedy}.")
                }
                _ => format!("It goes on by itself within seconds. If it does not, {remedy}."),
            }
        }
        Verdict::Invalid => match rollout.invalid {
            Some(invalid) => format!("{invalid}."),
            None => String::new(),
        },
        Verdict::UntoleratedTaint => remedy_repelled(rollout, position, None),
        Verdict::NotTargeted => format!("Nothing here: {} removes it.", kind.controller()),
    }
}

fn queue(rollout: &RolloutView<'_>, position: usize) -> String {
    let own = &rollout.plan.verdicts[position];
    let waits = |other: &usize| matches!(rollout.plan.verdicts[*other], Verdict::Budget { .. });
    let queue = in_order(rollout.strategy, rollout.fleet, rollout.now);
    let ahead = queue.into_iter().take_while(|other| *other != position);
    // Nodes whose pod already waits for its preDelete hook are updated before all others.
    let drained = |position: usize| {
        let pods = &rollout.fleet.nodes[position].pods;
        pods.iter().any(|pod| pod.exit.preparing.is_some())
    };
    let before = if drained(position) {
        0
    } else {
        ahead.filter(waits).count()
    };
    let waiting = rollout.plan.counts.by_word[own.index()];
    let (limit, place) = slots::limit(rollout);
    let wave = slots::full_wave(rollout, &rollout.fleet.nodes[position]);
    let limit = match wave {
        None => limit,
        Some(wave) => format!(
            "its wave {} allows {} of its {} nodes",
            wave.name, wave.allowed, wave.nodes
        ),
    };
    let next = rollout.next() + rollout.next_surging();
    let is_begun = next == 0 || wave.is_some() || is_taken(rollout);
    let holders = holders(rollout, Some(position), wave.is_some());
    let holders = if holders.is_empty() {
        "no other node holds a slot".to_owned()
    } else {
        if is_begun {
            format!("slots are held by {holders}")
        } else {
            format!("slots are held, or about to be, by {holders}")
        }
    };
    let limit = match rollout.plan.opens {
        Some(opens) => format!(
            "{limit}, not before {} ({MIN_INTERVAL} {})",
            instant::words(opens),
            humantime::format_duration(rollout.strategy.min_interval)
        ),
        None => limit,
    };
    if let Some(ahead) = paced_by(rollout, position) {
        return format!(
            "With {MIN_INTERVAL} there is one replacement at a time: it has its turn {} after {ahead} has its new pod. What that \
             waits for: yurt-ds ctl why {} {ahead}",
            humantime::format_duration(rollout.strategy.min_interval),
            rollout.key
        );
    }
    if !is_begun {
        return format!(
            "It is number {} of {waiting} in the queue: {limit}, and {holders}. The next step is a matter of seconds: if nothing \
             happens, no controller is at work, or it lacks a right; {LOOK_FOR_IT}",
            before + 1
        );
    }
    let hint = match rollout.phase {
        Phase::Stalled(_) => "None of them moves by itself: ask ctl why about them".to_owned(),
        _ if wave.is_some() => {
            format!("To go faster, raise maxUnavailable of that wave in the annotation {WAVES}")
        }
        _ if rollout.plan.opens.is_some() => {
            format!("To go faster, shorten the annotation {MIN_INTERVAL}")
        }
        _ => format!("To go faster, raise {place}"),
    };
    format!(
        "It is number {} of {waiting} in the queue and has its turn as soon as a slot is free: {limit}, and {holders}. \
         {hint}",
        before + 1
    )
}

/// Returns the text that names the failure domains in progress and says when the next domain follows.
fn next_domain(rollout: &RolloutView<'_>) -> String {
    format!(
        "It has its turn when the domains at work are done, which are: {}; the next ones follow by the alphabet. How far they \
         are: yurt-ds ctl status {}. To have more of them at work at once, raise the annotation {MAX_DOMAINS}",
        slots::domains_at_work(rollout),
        rollout.key
    )
}

/// Returns true if all slots of `max-unavailable` and `max-surge` are used. Slots that this plan takes don't count.
fn is_taken(rollout: &RolloutView<'_>) -> bool {
    let counts = &rollout.plan.counts;
    rollout.unavailable() >= counts.allowed && rollout.surge_taken() >= counts.surge_allowed
}

/// Returns the nodes that use slots, except the node at `asking`. With `of_wave`, only nodes in that node's wave are returned.
pub fn holders(rollout: &RolloutView<'_>, asking: Option<usize>, of_wave: bool) -> String {
    let waves = rollout.strategy.waves.as_ref().filter(|_| of_wave);
    let wave =
        |position: usize| waves.map(|waves| waves.index_for(&rollout.fleet.nodes[position].labels));
    let holds = |verdict: &Verdict| {
        verdict.is_in_flight() || matches!(verdict, Verdict::Budget { broken: true })
    };
    // A node with two pods uses a slot of `max-surge`, whatever prevents either pod from being removed.
    let has_two = |position: usize| {
        let of_surge = rollout.plan.counts.surge_allowed > 0;
        of_surge && rollout.fleet.nodes[position].pods.len() > 1
    };
    let holds = |position: usize| {
        let verdict = &rollout.plan.verdicts[position];
        let is_withheld = || {
            let node = &rollout.fleet.nodes[position];
            rollout.plan.counts.withheld > 0
                && is_withheld(rollout.strategy, rollout.fleet, node, rollout.now)
        };
        match verdict {
            Verdict::Held { .. } | Verdict::Partition | Verdict::NotSelected => is_withheld(),
            Verdict::Refused { .. } => has_two(position) || is_withheld(),
            verdict => holds(verdict),
        }
    };
    let holding: Vec<usize> = (0..rollout.plan.verdicts.len())
        .filter(|position| Some(*position) != asking && holds(*position))
        .filter(|position| asking.is_none_or(|asking| wave(*position) == wave(asking)))
        .collect();
    let mut named: Vec<String> = holding
        .iter()
        .take(NAMED)
        .map(|position| holder(rollout, *position))
        .collect();
    if holding.len() > NAMED {
        named.push(format!("{} more", holding.len() - NAMED));
    }
    named.join(", ")
}

fn holder(rollout: &RolloutView<'_>, position: usize) -> String {
    let Explanation { reason, since, .. } = explain(rollout, position);
    let refused = matches!(rollout.plan.verdicts[position], Verdict::Refused { .. });
    let word = reason.unwrap_or_else(|| if refused { "Refused" } else { "not available" }.into());
    let name = &rollout.fleet.nodes[position].name;
    match since {
        Some(since) => format!(
            "{name} ({word} for {})",
            instant::between(since, rollout.now)
        ),
        None => format!("{name} ({word})"),
    }
}
