//! Remedies for verdicts: one or two sentences with commands, for `ctl why`.

use k8s_openapi::jiff::Timestamp;

use super::guarded::{gone, settles};
use super::pods::{awaited, is_kept, newest, own, way_of};
use super::pulls;
use super::rollout::RolloutView;
use crate::core::eligibility::{CUT_OFF_TAINT, Obstacle};
use crate::core::engine::deadline::{is_between_crashes, is_unscheduled, rejects, stall_of};
use crate::core::engine::replacement::UpdateMethod;
use crate::core::engine::revert::is_due;
use crate::core::fleet::evictions::BACK_OFF;
use crate::core::fleet::{Node, Pod, Readiness, Targeting};
use crate::core::instant;
use crate::core::kind::SetKind;
use crate::core::plan::{Phase, Stall, WaveState};
use crate::core::remedy::{LOOK_FOR_IT, make_room, mend_nodes, nevertheless, way_on};
use crate::core::settings::lifecycle::LIFECYCLE;
use crate::core::settings::max_unavailable::MAX_UNAVAILABLE;
use crate::core::settings::paused::PAUSED;
use crate::core::settings::{Disruption, Mode};
use crate::core::verdict::{Cause, Guarded, Offline, Progress, Revert, Stopped, Verdict, WaveShut};

/// Returns the remedy for a node on which no new pod would be created.
pub fn remedy_repelled(
    rollout: &RolloutView<'_>,
    position: usize,
    obstacle: Option<&Obstacle>,
) -> String {
    let node = &rollout.fleet.nodes[position].name;
    let (tolerates, removes) = match obstacle {
        Some(Obstacle::Taint(taint)) => (
            format!("tolerates {taint}"),
            format!("kubectl taint node {node} {taint}-"),
        ),
        _ => (
            "tolerates the taint".to_owned(),
            format!("kubectl describe node {node} shows it"),
        ),
    };
    let turn = match rollout.strategy.mode {
        Mode::Ota => "Its owner can upgrade it",
        Mode::OnDelete => "It gets the new pod, once somebody deletes the old one,",
        Mode::AdvancedRollingUpdate => "It has its turn",
    };
    format!("{turn} when the node loses the taint ({removes}) or the template {tolerates}.")
}

/// Returns a sentence about the pause, to precede a remedy; empty if the rollout is not paused.
fn while_paused(rollout: &RolloutView<'_>) -> String {
    rollout.pause().map_or_else(String::new, |_| {
        format!(
            "The rollout is paused, and a rollback starts only after yurt-ds ctl resume {}. ",
            rollout.key
        )
    })
}

/// Describes if other nodes wait for a node that was lost with the revision.
fn waits_for_lost(rollout: &RolloutView<'_>) -> &'static str {
    let mut waves = rollout.plan.waves.iter();
    let shut = |state| matches!(state, WaveState::NotOpen(WaveShut::Charged { .. }));
    if waves.any(|stand| shut(stand.state)) {
        "It holds no slot, but later waves stay shut."
    } else {
        "Nobody waits for it."
    }
}

pub(super) fn remedy_failed(rollout: &RolloutView<'_>, node: &Node, cause: Cause) -> String {
    let (counts, namespace) = (&rollout.plan.counts, &rollout.key.namespace);
    let beside = node.pods.iter().any(|pod| pod.surge) || counts.allowed == 0;
    let slot = match beside && counts.surge_allowed > 0 {
        _ if rollout.strategy.mode != Mode::AdvancedRollingUpdate => {
            "Nobody waits for it.".to_owned()
        }
        true => format!(
            "It keeps a slot of max-surge ({} in all).",
            counts.surge_allowed
        ),
        false => format!(
            "It keeps a slot of the budget ({} of {} taken).",
            counts.unavailable, counts.allowed
        ),
    };
    let way_on = way_on(rollout.fleet, &rollout.key);
    let newest = newest(node);
    let pod = newest.map_or("", |pod| pod.name.as_str());
    let lost = waits_for_lost(rollout);
    let to_free = match rollout.strategy.mode {
        Mode::Ota | Mode::OnDelete => "If the revision is bad, ",
        Mode::AdvancedRollingUpdate => "To free it, ",
    };
    let paused = while_paused(rollout);
    match cause {
        Cause::NodeLost => format!("{lost} {paused}Repair the node, or {way_on}"),
        Cause::Crashing if rejects(node) => {
            let mended = mend_nodes(node.name.as_str(), rollout.fleet, &rollout.key);
            format!("{slot} {paused}{to_free}{mended}.")
        }
        Cause::Crashing => {
            format!(
                "{slot} {paused}{to_free}{way_on}. Why it crashes: kubectl -n {namespace} logs {pod} --previous{}",
                newest.map_or_else(String::new, crashing)
            )
        }
        Cause::NotStarting => format!(
            "{slot} {paused}{to_free}{way_on}. More about it: kubectl -n {namespace} describe pod {pod}"
        ),
    }
}

/// Returns the option of `kubectl logs` that selects the crashing container; empty if the pod has only one container.
fn crashing(pod: &Pod) -> String {
    let containers = &pod.in_place.containers;
    let worst = containers.iter().max_by_key(|container| container.restarts);
    match worst.filter(|_| containers.len() > 1) {
        Some(container) => format!(" -c {}", container.name),
        None => String::new(),
    }
}

pub(super) fn remedy_paused(rollout: &RolloutView<'_>, until: Option<Timestamp>) -> String {
    if rollout.is_stopped() {
        format!(
            "The guard stopped this revision, and holds it also when the pause has ended (yurt-ds ctl resume {}): {}",
            rollout.key,
            way_on(rollout.fleet, &rollout.key)
        )
    } else {
        until_resumed(rollout, until)
    }
}

/// Describes when the rollout continues if a pause or an invalid setting blocks it; `None` if there is neither.
fn after_standstill(rollout: &RolloutView<'_>) -> Option<String> {
    match (rollout.invalid, rollout.pause()) {
        (Some(invalid), _) => Some(format!("It goes on when that is corrected: {invalid}.")),
        (None, Some(pause)) => Some(remedy_paused(rollout, pause.until)),
        (None, None) => None,
    }
}

/// Describes when the rollout continues if only a pause blocks it.
fn until_resumed(rollout: &RolloutView<'_>, until: Option<Timestamp>) -> String {
    let resume = format!("yurt-ds ctl resume {}", rollout.key);
    match until {
        Some(until) => format!(
            "It goes on by itself in {}; earlier with: {resume}",
            instant::between(rollout.now, until)
        ),
        None => format!("It goes on after: {resume}"),
    }
}

pub(super) fn remedy_revert(rollout: &RolloutView<'_>, node: &Node, revert: Revert) -> String {
    let stays = remedy_guarded(rollout, Guarded::Stopped(Stopped::FailedByRevision));
    match revert {
        Revert::Done => format!("It stays so. {stays}"),
        Revert::Pending if let Some(pause) = rollout.pause() => {
            until_resumed(rollout, pause.until)
        }
        Revert::Pending if let Some(until) = settles(rollout, node) => format!(
            "It goes on by itself when its node has stayed Ready for {} (annotation ready-settle), in {}.",
            humantime::format_duration(rollout.strategy.ready_settle),
            instant::between(rollout.now, until)
        ),
        Revert::Pending if rollout.plan.counts.allowed == 0 => {
            let name = rollout.strategy.name_of(MAX_UNAVAILABLE);
            format!("{name} allows none to be down, so it keeps its pod. {stays}")
        }
        Revert::Pending => {
            "It goes on by itself when a slot of max-unavailable is free, its maintenance window is open and its \
             topology domain has its turn."
                .to_owned()
        }
    }
}

pub(super) fn remedy_guarded(rollout: &RolloutView<'_>, guarded: Guarded) -> String {
    let key = &rollout.key;
    match guarded {
        Guarded::Stopped(_) => format!(
            "Nothing new begins with this revision: {}; {}",
            way_on(rollout.fleet, key),
            nevertheless(key)
        ),
        Guarded::Inconclusive { until } => format!(
            "It goes on by itself in {}, or earlier when these nodes are back.",
            instant::between(rollout.now, until)
        ),
    }
}

pub(super) fn remedy_wave(rollout: &RolloutView<'_>, own: usize, why: WaveShut) -> String {
    let name = |wave: usize| rollout.plan.waves.get(wave).map_or("", |stand| &stand.name);
    match why {
        WaveShut::Approval { wave } => format!(
            "When all is well: yurt-ds ctl approve {} {}",
            rollout.key,
            name(wave)
        ),
        WaveShut::Soaking { wave, until } => {
            let soak = instant::between(rollout.now, until);
            match awaits_approval(rollout, wave, own) {
                None => {
                    format!("It goes on by itself in {soak}, unless a node of that wave fails.")
                }
                Some(asks) => format!(
                    "The soak of wave {} ends in {soak}, unless a node of it fails; then it waits for a person: {asks}",
                    name(wave)
                ),
            }
        }
        WaveShut::Unfinished { wave } => format!(
            "It goes on when all nodes of wave {} that are online are done{}. Its progress: yurt-ds ctl status {}",
            name(wave),
            match awaits_approval(rollout, wave, own) {
                None => String::new(),
                Some(asks) => format!(" and a person has agreed ({asks})"),
            },
            rollout.key
        ),
        WaveShut::Charged { .. } => {
            let (fleet, key) = (rollout.fleet, &rollout.key);
            let failed = rollout.plan.failed_words(fleet);
            format!("{failed}: {}; {}", way_on(fleet, key), nevertheless(key))
        }
    }
}

/// Returns the approvals that wave `own` needs once wave `done` is complete; `None` if it needs none.
fn awaits_approval(rollout: &RolloutView<'_>, done: usize, own: usize) -> Option<String> {
    let waves = rollout.strategy.waves.as_ref()?;
    let revision = rollout.revision()?;
    let asks = |wave: &usize| {
        let manual = waves.list.get(*wave).is_some_and(|wave| wave.approve);
        manual && !waves.is_approved(*wave, revision)
    };
    let wave = (done + 1..=own).find(asks)?;
    let name = &waves.list.get(wave)?.name;
    Some(format!("yurt-ds ctl approve {} {name}", rollout.key))
}

pub(super) fn remedy_progress(
    rollout: &RolloutView<'_>,
    node: &Node,
    verdict: &Verdict,
    progress: Progress,
) -> String {
    let (namespace, pod) = (&rollout.key.namespace, newest(node));
    let pod = pod.map(|pod| pod.name.as_str()).unwrap_or_default();
    if stall_of(node, verdict, rollout.now).is_some()
        && let Some(remedy) = remedy_ending(rollout, node)
    {
        return remedy;
    }
    if stall_of(node, verdict, rollout.now) == Some(Stall::PodsDoNotStart) && rejects(node) {
        let mended = mend_nodes(node.name.as_str(), rollout.fleet, &rollout.key);
        return format!("To free its slot, {mended}.");
    }
    match progress {
        Progress::Replacing | Progress::SurgeTakingOver if rollout.asks_again => format!(
            "The controller asks again within {} of the last refusal, or a moment after a pod of the fleet became Ready. If \
             nothing happens for longer, no controller is at work, or it lacks a right: {LOOK_FOR_IT}",
            humantime::format_duration(BACK_OFF.1)
        ),
        Progress::Replacing => {
            let does = match way_of(rollout, node) {
                UpdateMethod::InPlace(_) => {
                    "The controller patches the pod, and its kubelet restarts what changed."
                }
                UpdateMethod::Recreate(_) => {
                    let evicts = rollout.strategy.disruption == Disruption::Evict;
                    match (evicts, rollout.fleet.kind) {
                        (true, SetKind::Native) => {
                            "The controller evicts the old pod, and the native DaemonSet controller makes a new one."
                        }
                        (false, SetKind::Native) => {
                            "The controller deletes the old pod, and the native DaemonSet controller makes a new one."
                        }
                        (true, SetKind::Advanced) => {
                            "The controller evicts the old pod and makes a new one."
                        }
                        (false, SetKind::Advanced) => {
                            "The controller deletes the old pod and makes a new one."
                        }
                    }
                }
            };
            format!(
                "{does} If this answer stays the same for more than a few seconds, no controller is at work, or it lacks a \
                 right: {LOOK_FOR_IT}"
            )
        }
        Progress::Terminating => format!(
            "A new pod is made when the old one has ended. If that takes longer than its \
             terminationGracePeriodSeconds, look for finalizers: kubectl -n {namespace} describe pod {pod}"
        ),
        Progress::Missing { .. } if node.targeting != Targeting::Run => format!(
            "It goes on by itself when the node loses that taint, or has that label again (kubectl describe node {} shows \
             both), or when the template tolerates the taint.",
            node.name
        ),
        Progress::Missing { .. } if rollout.fleet.not_created.is_some() => {
            let events = format!(
                "kubectl -n {namespace} get events --field-selector reason=FailedCreate"
            );
            match rollout.fleet.kind {
                SetKind::Native => format!(
                    "When the cause is gone, Kubernetes creates the pod at its next attempt, up to 17 minutes later. To make it try \
                     at once: kubectl -n {namespace} annotate daemonset {} retry=\"$(date)\" --overwrite. The cause: {events}",
                    rollout.key.name
                ),
                SetKind::Advanced => format!(
                    "The controller creates the pod when the API server allows it. The cause: {events}"
                ),
            }
        }
        Progress::Missing { .. } if stall_of(node, verdict, rollout.now).is_some() => format!(
            "Find out what refuses the pod, a quota or an admission webhook: kubectl -n {namespace} get events \
             --field-selector reason=FailedCreate"
        ),
        Progress::Missing { .. } => format!(
            "It usually takes a second or two. If it lasts, a quota or an admission webhook refuses the pod: kubectl \
             -n {namespace} get events --field-selector reason=FailedCreate"
        ),
        Progress::UpdatingInPlace { .. } => format!(
            "The kubelet stops each changed container and starts it with its new image. If that lasts, look at it: \
             kubectl -n {namespace} describe pod {pod}"
        ),
        Progress::Reverting { .. } => format!(
            "The kubelet stops each changed container and starts it with its old image. If that lasts, look at it: \
             kubectl -n {namespace} describe pod {pod}"
        ),
        Progress::Starting => {
            let look = format!("kubectl -n {namespace} describe pod {pod}");
            match stall_of(node, verdict, rollout.now) {
                None => format!("Nothing to do, unless it lasts: {look}"),
                Some(Stall::PodsDoNotStart) if is_unscheduled(node) => format!(
                    "To free its slot, {}. More about it: {look}",
                    make_room(node.name.as_str(), rollout.fleet, &rollout.key)
                ),
                Some(Stall::PodsDoNotStart) => format!(
                    "To free its slot, {}. More about it: {look}",
                    way_on(rollout.fleet, &rollout.key)
                ),
                Some(_) => format!(
                    "Find out why it is not ready ({look}), or {}",
                    way_on(rollout.fleet, &rollout.key)
                ),
            }
        }
        Progress::NotYetAvailable { .. } if is_between_crashes(node, rollout.now) => format!(
            "If it crashes again, {}. What it says: kubectl -n {namespace} logs {pod} --previous",
            way_on(rollout.fleet, &rollout.key)
        ),
        Progress::NotYetAvailable { .. } if stall_of(node, verdict, rollout.now).is_some() => format!(
            "Its readiness comes and goes, or came late. See why: kubectl -n {namespace} describe pod {pod}"
        ),
        Progress::NotYetAvailable { .. } => "Nothing to do: its slot is free then.".to_owned(),
        Progress::SurgeStarting if node.pods.iter().any(|pod| pod.surge) => {
            let look = format!("kubectl -n {namespace} describe pod {pod}");
            match stall_of(node, verdict, rollout.now) {
                None => format!("Nothing to do, unless it lasts: {look}"),
                Some(_) => {
                    let runs = node.pods.iter().any(|pod| pod.surge && pod.started.is_some());
                    let repair = if runs { "Look at its readiness"
} else { "Make room on the node for two pods"
};
                    format!(
                        "Nothing is down. {repair}, or {}. More about it: {look}",
                        way_on(rollout.fleet, &rollout.key)
                    )
                }
            }
        }
        Progress::SurgeStarting => {
            "The controller makes a new pod beside the old one, and deletes the old one when the new one is available. \
             If this answer stays the same for more than a few seconds, no controller is at work, or a quota or an \
             admission webhook refuses the pod: look for its Events"
                .to_owned()
        }
        Progress::SurgeYoung { .. } => "Nothing to do: the old pod goes then.".to_owned(),
        Progress::SurgeTakingOver | Progress::SurgeLeaving
            if let Some(goes_on) = after_standstill(rollout) =>
        {
            goes_on
        }
        Progress::SurgeTakingOver if rollout.fleet.kind == SetKind::Advanced => format!(
            "Nothing to do. If it lasts, no controller is at work, or it lacks a right: {LOOK_FOR_IT}"
        ),
        Progress::SurgeTakingOver => format!(
            "Nothing to do. If it lasts, see whether the kube-controller-manager works, or a quota or an admission webhook \
             refuses its pods: kubectl -n {namespace} describe daemonset {}",
            rollout.key.name
        ),
        Progress::SurgeLeaving if is_kept(node) => format!(
            "Nothing is down. See why the old pod is not available: kubectl -n {namespace} describe pod {}",
            own(node)
        ),
        Progress::OldTerminating | Progress::SurgeLeaving | Progress::Surplus => {
            "Nothing to do, unless it lasts.".to_owned()
        }
    }
}

/// Returns the remedy for a pod that has been terminating for too long.
fn remedy_ending(rollout: &RolloutView<'_>, node: &Node) -> Option<String> {
    let mut pods = node.pods.iter();
    let pod = pods.find(|pod| pod.terminating && pod.leaving.is_some())?;
    let (namespace, name) = (&rollout.key.namespace, &pod.name);
    Some(if pod.exit.finalizers.is_empty() {
        format!(
            "See what its kubelet waits for (volumes, processes, its runtime): kubectl -n {namespace} describe pod {name}; \
             and the log of the kubelet on {}. When nothing of it runs there any more: kubectl -n {namespace} delete pod {name} \
             --grace-period=0 --force",
            node.name
        )
    } else {
        format!(
            "Whoever put {} there takes it away when the pod may vanish. If that program is gone for good: kubectl -n \
             {namespace} patch pod {name} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'",
            pod.exit.finalizers.join(", ")
        )
    })
}

pub(super) fn remedy_hook(rollout: &RolloutView<'_>, node: &Node) -> String {
    let awaited = awaited(rollout, node);
    if awaited.is_empty() {
        return match rollout.plan.guarded {
            _ if let Some(goes_on) = after_standstill(rollout) => goes_on,
            Some(guarded) => remedy_guarded(rollout, guarded),
            None => "The controller deletes it within seconds.".to_owned(),
        };
    }
    let hooked = node.outdated().or(newest(node));
    let pod = hooked.map(|pod| pod.name.as_str()).unwrap_or_default();
    format!(
        "Whoever put that on the pod takes it away when the pod may go ({}); it holds a slot until then, and nothing forces \
         it. To see it: kubectl -n {} get pod {pod} -o yaml. Without {} nobody is waited for.",
        awaited.join(", "),
        rollout.key.namespace,
        rollout.strategy.place_of(LIFECYCLE)
    )
}

pub(super) fn remedy_offline(rollout: &RolloutView<'_>, node: &Node, offline: Offline) -> String {
    let settle = humantime::format_duration(rollout.strategy.ready_settle);
    let returns = if node.cut_off {
        format!("loses the taint {CUT_OFF_TAINT}")
    } else {
        "is Ready again".to_owned()
    };
    if node.readiness == Readiness::Unreadable {
        return "Correct or delete the object that cannot be read; the node is left alone until then.".to_owned();
    }
    let back = match (rollout.strategy.mode, rollout.strategy.pause, offline) {
        (_, _, Offline::Updated { .. }) if !is_due(rollout.strategy, rollout.fleet, node) => {
            return "Nothing to do: it needs no update when it returns.".to_owned();
        }
        (_, _, Offline::NoNode) if let Some(gone) = gone(rollout, &node.name) => return gone.next,
        (_, _, Offline::NoNode) => {
            let pods = node.pods.iter().map(|pod| pod.name.as_str());
            return format!(
                "It goes on when the Node exists again. If it never will, delete the pod: kubectl -n {} delete pod {}",
                rollout.key.namespace,
                pods.collect::<Vec<_>>().join(" ")
            );
        }
        (_, _, Offline::Settling { .. }) => {
            return format!(
                "It goes on by itself when it stayed Ready for {settle} (annotation ready-settle){}.",
                held_back(rollout, node)
            );
        }
        (_, _, Offline::NotReady { .. }) if node.pods.is_empty() => {
            return format!(
                "It gets a pod by itself when the node {returns}; others do not wait for it."
            );
        }
        (_, _, Offline::Terminating { .. }) => {
            return format!(
                "It goes on by itself when the node {returns}; others do not wait for it."
            );
        }
        (Mode::Ota, ..) => format!("Its owner can upgrade it when it {returns}"),
        _ if node.cut_off => format!("It goes on by itself {settle} after the node {returns}"),
        _ => format!("It goes on by itself when the node has been Ready for {settle}"),
    };
    format!(
        "{back}{}; others do not wait for it.",
        held_back(rollout, node)
    )
}

/// Returns a phrase with the conditions for the update of an offline node besides its return.
fn held_back(rollout: &RolloutView<'_>, node: &Node) -> String {
    let paused = match rollout.phase {
        Phase::Paused { .. } => format!(
            " and the pause has ended ({})",
            rollout.strategy.name_of(PAUSED)
        ),
        _ => String::new(),
    };
    let reverts = is_due(rollout.strategy, rollout.fleet, node);
    if rollout.is_stopped() && !reverts {
        format!("{paused} and another revision comes, for the guard stopped this one")
    } else {
        paused
    }
}

pub(super) fn upgrade(rollout: &RolloutView<'_>, node: &Node) -> String {
    let namespace = &rollout.key.namespace;
    let Some(pod) = newest(node) else {
        return String::new();
    };
    let pulling = match &pod.image_ready {
        Some(_) if pulls::has_failed(node) => format!(
            " An upgrade is refused until a pull succeeds: yurt-ds ctl imagepull {namespace}/{pod} --wait, once more; or do \
             without: upgrade --force",
            pod = pod.name
        ),
        Some(image) if !image.status => {
            " A pre-pull of the image was asked for; the upgrade is refused until it is done."
                .to_owned()
        }
        _ => String::new(),
    };
    format!(
        "On the node: yurt-ds ctl upgrade {namespace}/{pod} (or curl -X POST \
         http://127.0.0.1:10267/openyurt.io/v1/namespaces/{namespace}/pods/{pod}/upgrade). From here, without the agent's \
         checks: kubectl -n {namespace} delete pod {pod}.{pulling}",
        pod = pod.name
    )
}

/// Returns the reason why no pod of the DaemonSet belongs on a node, and the remedy.
pub fn not_targeted(obstacle: Option<&Obstacle>) -> (String, String) {
    let Some(obstacle) = obstacle else {
        return (
            "is not targeted: no pod of this DaemonSet belongs there".to_owned(),
            "Nothing, unless the template or the node changes.".to_owned(),
        );
    };
    let remedy = match obstacle {
        Obstacle::Taint(taint) => format!(
            "A pod is made there when the template tolerates {taint}, or the node loses that taint."
        ),
        Obstacle::NodeSelector(_) => {
            "A pod is made there when the node has these labels, or the template asks for others."
                .to_owned()
        }
        Obstacle::NodeName(_) | Obstacle::NodeAffinity => {
            "A pod is made there when the template allows this node.".to_owned()
        }
    };
    (format!("is not targeted: {obstacle}"), remedy)
}
