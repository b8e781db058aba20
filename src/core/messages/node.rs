//! Messages for verdicts: the common cause of all nodes with a verdict, the reason for one node, and the remedy.

use k8s_openapi::jiff::Timestamp;

use super::groups::opening_words;
use super::pause::paused_words;
use super::pods::{Answer, NodeView, newest, problem_cause, problem_words};
use super::progress;
use super::refusals::lacks_permission;
use super::rollout::RolloutView;
use super::status::{behind_remedy, behind_words, unrevised};
use crate::core::eligibility::Obstacle;
use crate::core::engine::deadline::stall_of;
use crate::core::engine::timeouts::HOOK_PATIENCE;
use crate::core::fleet::write_failures::BACK_OFF;
use crate::core::fleet::{Leaving, Node, NodeWindow, Pod};
use crate::core::id::{RevisionState, RevisionUnknown};
use crate::core::instant;
use crate::core::kind::SetKind;
use crate::core::names::{BASE_RBAC, HOLD};
use crate::core::plan::Phase;
use crate::core::selector::Selector;
use crate::core::settings::NodeOrder;
use crate::core::settings::lifecycle::LIFECYCLE;
use crate::core::settings::maintenance_window::MAINTENANCE_WINDOW;
use crate::core::settings::partition::PARTITION;
use crate::core::settings::selector::SELECTOR;
use crate::core::verdict::{Guarded, Offline, Progress, Revert, Verdict};
use crate::core::words::{append, capitalized, has_command_at_end, joined, spaced};

/// Returns the cause of the verdict for the node at `position`, in at most 70 characters. Nodes with the same cause get the same
/// text.
///
/// `stands` is true if nothing is updated now, because no controller runs or the rollout is stopped.
pub fn cause(rollout: &RolloutView<'_>, position: usize, stands: bool) -> String {
    let node = &rollout.fleet.nodes[position];
    let verdict = &rollout.plan.verdicts[position];
    let cause = problem_cause(node).filter(|_| verdict.is_begun());
    cause.unwrap_or_else(|| meaning(rollout, verdict, stands).to_owned())
}

/// Returns the common cause of all nodes with this verdict.
fn meaning(rollout: &RolloutView<'_>, verdict: &Verdict, stands: bool) -> &'static str {
    let stands = stands || matches!(rollout.phase, Phase::Stalled(_) | Phase::Complete { .. });
    match verdict {
        Verdict::Done => "on the current version",
        Verdict::InProgress(Progress::Replacing) if stands => {
            "on the old version; next to be updated"
        }
        Verdict::InProgress(_) if stands => "no pod is available",
        Verdict::InProgress(_) => "being updated",
        Verdict::Budget { .. } if stands => "on the old version; the rollout is stopped",
        Verdict::Budget { .. } => "outdated; waiting for a free slot",
        Verdict::AwaitingDomain => "outdated; another failure domain is updated first",
        Verdict::Offline(Offline::Settling { .. }) => "outdated; reconnected a moment ago",
        Verdict::Offline(Offline::Updated { .. }) => "offline, with the current version",
        Verdict::Offline(_) => "offline; not blocking the rollout",
        Verdict::FailedByRevision { .. } => "failed with the new version",
        Verdict::Paused { .. } => "on the old version; the rollout is paused",
        Verdict::Partition => "kept on the old version by partition",
        Verdict::NotSelected => "kept on the old version: not matched by the selector",
        Verdict::Held { .. } => "kept on the old version by the annotation hold of the Node",
        Verdict::Guarded(Guarded::Stopped(_)) => "on the old version; the rollout is stopped",
        Verdict::Guarded(Guarded::Inconclusive { .. }) => {
            "outdated; the guard examines lost nodes first"
        }
        Verdict::Revert(Revert::Pending) => {
            "to be rolled back from the revision that the guard stopped"
        }
        Verdict::Revert(Revert::Done) => "rolled back from the revision that the guard stopped",
        Verdict::WaveNotOpen { .. } => "outdated; the wave is not open",
        Verdict::OutOfWindow { .. } => "outdated; the maintenance window is closed",
        Verdict::PullPending(_) => "outdated; the images are pulled first",
        Verdict::HookPending { .. } => "waiting for a preDelete hook of the pod (lifecycle)",
        Verdict::BlockedByPdb { .. } => "a PodDisruptionBudget blocks the eviction of the pod",
        Verdict::Refused { .. } => "the API server rejects the change to the pod",
        Verdict::AwaitingOwner => "outdated until the owner of the node upgrades it",
        Verdict::AwaitingDeletion => "outdated until the pod is deleted (OnDelete)",
        Verdict::NativeControllerBehind => match rollout.fleet.kind {
            SetKind::Native => "waiting for the native DaemonSet controller",
            SetKind::Advanced => "waiting for the revision that the yurt-ds controller creates",
        },
        Verdict::Invalid => "outdated; a setting is invalid",
        Verdict::NotTargeted => "not targeted by the DaemonSet, but with a pod",
        Verdict::UntoleratedTaint => "kept on the old version: a taint prevents a new pod",
    }
}

/// Reason for the verdict of one node, for `ctl why`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Reason that is more specific than the verdict, such as `ImagePullBackOff` or `NotReady`; `None` if there is none.
    pub reason: Option<String>,
    /// Time since which the node has this verdict, as far as it is known.
    pub since: Option<Timestamp>,
    /// Reason for the verdict, as text that follows "node NAME".
    pub because: String,
}

/// Explains why the node at `position` has its verdict.
pub fn explain(rollout: &RolloutView<'_>, position: usize) -> Explanation {
    let view = NodeView::new(rollout, position);
    let Answer {
        reason, because, ..
    } = view.answer();
    let hold = view
        .node
        .hold
        .as_ref()
        .filter(|hold| !hold.holds(rollout.now));
    let ended = hold.and_then(|hold| hold.until);
    // The hold has ended, but its annotation is still on the Node. Remind the operator to remove it.
    let ended = ended.map(|until| format!("its hold ended at {}", instant::words(until)));
    Explanation {
        reason,
        since: view.since(),
        because: joined(
            [Some(because), ended, refused_aside(rollout, position)]
                .into_iter()
                .flatten(),
        ),
    }
}

/// Returns the remedy for the node at `position`: one or more sentences with commands.
pub fn remedy(rollout: &RolloutView<'_>, position: usize) -> String {
    full_stop((NodeView::new(rollout, position).answer().next)())
}

/// Returns the text with a capital letter at the beginning and a full stop at the end. After a command, no full stop is added.
fn full_stop(text: String) -> String {
    let end = if has_command_at_end(&text) || text.ends_with('.') || text.is_empty() {
        ""
    } else {
        "."
    };
    capitalized(&text) + end
}

/// Returns a sentence about a rejected write on this node; `None` if there is none, or if the verdict already reports it.
pub fn refused_aside(rollout: &RolloutView<'_>, position: usize) -> Option<String> {
    let view = NodeView::new(rollout, position);
    let is_reported = matches!(view.verdict, Verdict::Refused { .. });
    view.rejected_write().filter(|_| !is_reported)
}

/// Describes a node on which no new pod would be created, with the taint that prevents it, if known.
pub fn repelled(node: &Node, obstacle: Option<&Obstacle>) -> String {
    let why = match obstacle {
        Some(obstacle) => obstacle.to_string(),
        None => "the template does not tolerate a NoSchedule taint of the node".to_owned(),
    };
    let pod = spaced(node.outdated().map(|pod| &pod.name));
    format!("keeps its outdated pod{pod}, because no new pod could be created: {why}")
}

/// Returns the remedy for a node on which no new pod would be created.
pub fn remedy_repelled(
    rollout: &RolloutView<'_>,
    position: usize,
    obstacle: Option<&Obstacle>,
) -> String {
    let node = &rollout.fleet.nodes[position].name;
    let (taint, command) = match obstacle {
        Some(Obstacle::Taint(taint)) => (
            format!("taint {taint}"),
            format!("taint node {node} {taint}-"),
        ),
        _ => ("that taint".to_owned(), format!("describe node {node}")),
    };
    format!(
        "An update is possible when the template tolerates {taint} or the node loses it: kubectl {command}"
    )
}

/// Returns the reason why a DaemonSet runs no pod on a node, and the remedy.
pub fn not_targeted(obstacle: Option<&Obstacle>) -> (String, String) {
    match obstacle {
        None => (
            "is not targeted by this DaemonSet".to_owned(),
            "No action needed.".to_owned(),
        ),
        Some(obstacle) => (
            format!("is not targeted: {obstacle}"),
            "A pod is created when the template allows this node.".to_owned(),
        ),
    }
}

impl<'a> NodeView<'a> {
    fn answer(self) -> Answer<'a> {
        let (rollout, node) = (self.rollout, self.node);
        let (fleet, plan) = (rollout.fleet, rollout.plan);
        let namespace = rollout.key.namespace;
        match *self.verdict {
            Verdict::Done => Answer::new(self.done(), move || match self.rejected_write() {
                Some(_) => self.permit(),
                None => "no action needed".to_owned(),
            }),
            Verdict::InProgress(stage) => progress::answer(self, stage),
            Verdict::HookPending { overdue, .. } => {
                let reason = if overdue {
                    "TimedOut"
                } else {
                    "PreparingDelete"
                };
                self.hook_pending(overdue).reason(reason)
            }
            Verdict::BlockedByPdb { obstruction, .. } => {
                let (reason, because) = self.blocked(obstruction);
                Answer::new(because, move || self.unblock(obstruction)).reason(reason)
            }
            Verdict::Refused { .. } => {
                let why = self.rejected_write();
                let why = why.unwrap_or_else(|| "the API server rejects the update".to_owned());
                Answer::new(format!("is next, but {why}"), move || self.permit())
            }
            Verdict::Budget { broken } => self.waits_for_slot(broken),
            Verdict::AwaitingDomain => self.waits_for_domain(),
            Verdict::Offline(offline) => self.is_offline(offline),
            Verdict::FailedByRevision { cause, .. } => self.failed(cause),
            Verdict::Guarded(guarded) => self.guarded(guarded),
            Verdict::Revert(revert) => self.rollback(revert),
            Verdict::Paused { until } => Answer::new(
                format!("is outdated; the rollout is {}", paused_words(until)),
                move || rollout.after_pause(until),
            ),
            Verdict::Partition => self.kept_by_partition(),
            Verdict::NotSelected => self.not_selected(),
            Verdict::Held { until } => self.held(until),
            Verdict::PullPending(stage) => self.pull_pending(stage),
            Verdict::WaveNotOpen { wave, why } => Answer::new(
                format!(
                    "is outdated, and its wave {} waits {}",
                    plan.wave_name(wave),
                    plan.awaited_words(why)
                ),
                move || rollout.open_wave(wave, why),
            ),
            Verdict::OutOfWindow { opens } => self.out_of_window(opens),
            Verdict::AwaitingOwner => self.awaits_owner(),
            Verdict::AwaitingDeletion => Answer::new(
                format!(
                    "is outdated until its pod{} is deleted: updateStrategy.type is OnDelete",
                    self.pod()
                ),
                move || format!("update it: kubectl -n {namespace} delete pod{}", self.pod()),
            ),
            Verdict::NativeControllerBehind => self.behind(),
            Verdict::Invalid => self.invalid(),
            Verdict::UntoleratedTaint => Answer::new(repelled(node, None), move || {
                remedy_repelled(rollout, self.position, None)
            }),
            Verdict::NotTargeted => {
                let controller = fleet.kind.controller();
                Answer::new(
                    format!(
                        "is not targeted, and {controller} removes its pod{}",
                        self.pod()
                    ),
                    || "no action needed".to_owned(),
                )
            }
        }
    }

    fn kept_by_partition(self) -> Answer<'a> {
        let (strategy, targeted) = (self.rollout.strategy, self.rollout.plan.counts.targeted);
        let because = format!(
            "{}: partition {} keeps {} of {targeted} nodes on the old version",
            if self.node.pods.is_empty() {
                "gets no pod yet"
            } else {
                "keeps its outdated pod"
            },
            strategy.partition,
            strategy.partition.resolve_down(targeted)
        );
        Answer::new(because, move || {
            let last = match strategy.order {
                NodeOrder::Ascending => "last",
                NodeOrder::Descending => "first",
            };
            format!(
                "updated when {} is lowered; the {last} nodes by name wait",
                strategy.place_of(PARTITION)
            )
        })
    }

    fn not_selected(self) -> Answer<'a> {
        let strategy = self.rollout.strategy;
        let selector = strategy.selector.as_ref().map(Selector::to_query);
        let because = format!(
            "keeps its outdated pod: its labels do not match the selector{}",
            spaced(selector)
        );
        Answer::new(because, move || {
            let place = strategy.place_of(SELECTOR);
            format!("updated when {place} matches the node's labels or is removed")
        })
    }

    fn held(self, until: Option<Timestamp>) -> Answer<'a> {
        let end = until.map_or_else(String::new, |until| {
            format!(" until {}", instant::words(until))
        });
        let reason = self.node.hold.as_ref().map_or("", |hold| &*hold.reason);
        let colon = if reason.is_empty() { "" } else { ": " };
        let because = format!("keeps its outdated pod: on hold{end}{colon}{reason}");
        Answer::new(because, move || {
            let end = until.map(|until| {
                let left = instant::between(self.rollout.now, until);
                format!("the hold ends in {left}")
            });
            let command = format!(
                "to end all holds of this node now: kubectl annotate node {} {HOLD}-",
                self.node.name
            );
            joined(end.into_iter().chain([command]))
        })
    }

    fn out_of_window(self, opens: Option<Timestamp>) -> Answer<'a> {
        Answer::new(self.window_closed(opens), move || match opens {
            Some(opens) => format!(
                "updated in {}, when a slot is free. The annotation {MAINTENANCE_WINDOW} of the Node or the DaemonSet sets the \
                 window",
                instant::between(self.rollout.now, opens)
            ),
            None => format!(
                "correct or remove the annotation: kubectl annotate node {} {MAINTENANCE_WINDOW}-",
                self.node.name
            ),
        })
    }

    fn invalid(self) -> Answer<'a> {
        let invalid = self.rollout.invalid;
        let because = match invalid {
            Some(invalid) if invalid.is_native_update() => {
                "is outdated, and Kubernetes' own rolling update may replace its pod at any time, regardless of annotations"
                    .to_owned()
            }
            _ => format!(
                "is outdated and not updated: {} is invalid",
                invalid.map_or("a setting", |invalid| &invalid.key)
            ),
        };
        Answer::new(because, move || {
            invalid.map_or_else(String::new, ToString::to_string)
        })
    }

    fn done(&self) -> &'static str {
        let pause = self.rollout.pause();
        let record = self.rollout.plan.record.as_ref();
        let has_failed = record.is_some_and(|record| record.failed.contains(&self.node.name));
        match pause.filter(|pause| pause.newcomers.contains(&self.node.name)) {
            _ if has_failed => {
                "runs the current revision, but has failed with it and counts as failed"
            }
            Some(_) => "runs the current revision, with which its pod was created during the pause",
            None => "runs the current revision",
        }
    }

    fn hook_pending(self, overdue: bool) -> Answer<'a> {
        let rollout = self.rollout;
        let pod = self.find(|pod| pod.exit.preparing.is_some());
        let pod = pod.map_or_else(|| self.pod(), |pod| format!(" {}", pod.name));
        let awaited = self.awaited_hooks().join(", ");
        if awaited.is_empty() {
            let then = match rollout.standstill() {
                Some(why) => why,
                None if rollout.plan.guarded.is_some() => "the guard allows no updates",
                None => "it is deleted next",
            };
            let because =
                format!("has pod{pod} marked PreparingDelete, and its hook is done; {then}");
            return Answer::new(because, move || match rollout.plan.guarded {
                _ if let Some(then) = rollout.after_standstill() => then,
                Some(guarded) => rollout.after_guard(guarded),
                None => "the controller deletes the pod within seconds".to_owned(),
            });
        }
        let place = rollout.strategy.place_of(LIFECYCLE);
        let waits = if overdue {
            let patience = humantime::format_duration(HOOK_PATIENCE);
            format!("has waited for more than {patience}")
        } else {
            "waits".to_owned()
        };
        let because =
            format!("is to be updated; its pod{pod} {waits} for its preDelete hook: {awaited}");
        Answer::new(because, move || {
            let check = if overdue {
                "check why it does not do so. "
            } else {
                ""
            };
            format!(
                "the component that set {awaited} has to remove it; the node holds a slot until then. {}Hooks are set by {place}. \
                 See the pod: kubectl -n {} get pod{pod} -o yaml",
                capitalized(check),
                rollout.key.namespace
            )
        })
    }

    fn window_closed(&self, opens: Option<Timestamp>) -> String {
        let rollout = self.rollout;
        let windows = match (&self.node.window, &rollout.strategy.window) {
            (Some(NodeWindow::Unreadable(why)), _) => {
                return format!(
                    "is outdated, and its annotation {MAINTENANCE_WINDOW} is invalid: {why}"
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
            None => format!("is outdated, and its maintenance window never opens: {windows}"),
        }
    }

    /// Describes a node that waits for the controller that creates its pods: the native one, or yurt-ds for an Advanced DaemonSet.
    fn behind(self) -> Answer<'a> {
        let fleet = self.rollout.fleet;
        let (behind, reason) = match fleet.revision {
            RevisionState::Unknown(behind) => (behind, Some(format!("{behind:?}"))),
            RevisionState::Current(_) => (RevisionUnknown::NotObserved, None),
        };
        let mut because = format!("waits: {}", behind_words(fleet.kind, behind));
        unrevised(fleet)
            .iter()
            .for_each(|why| append(&mut because, why));
        let is_stalled = matches!(self.rollout.plan.phase, Phase::Stalled(_));
        let answer = Answer::new(because, move || {
            let remedy = behind_remedy(fleet.kind, behind);
            match is_stalled || unrevised(fleet).is_some() {
                true => remedy.to_owned(),
                false => format!("continues within seconds; if not, {remedy}"),
            }
        });
        Answer { reason, ..answer }
    }

    /// Describes the write that the API server rejects on this node; `None` if there is none.
    pub(super) fn rejected_write(&self) -> Option<String> {
        let failure = self
            .rollout
            .fleet
            .write_failures
            .on(&self.node.name)
            .next()?;
        let (write, why) = (failure.write.words(), &failure.sentence);
        Some(format!("the API server refuses to {write} there: {why}"))
    }

    /// Returns the remedy for the rejected write.
    fn permit(&self) -> String {
        let (rollout, namespace) = (self.rollout, self.rollout.key.namespace);
        let failure = rollout.fleet.write_failures.on(&self.node.name).next();
        let why = failure.map_or("", |failure| &*failure.sentence);
        let remedy = if lacks_permission(why) {
            // Before it marks a pod or updates it in place, the controller writes a condition (`pods/status`). If that permission
            // is missing, the base manifest grants it.
            let part = failure.filter(|_| !why.contains("\"pods/status\""));
            let part = part.map_or(BASE_RBAC, |failure| {
                failure.write.granted_by(rollout.fleet.kind)
            });
            format!("grant the controller the permission: kubectl apply -k {part}")
        } else if why.contains("exceeded quota") {
            format!("raise or free the quota: kubectl -n {namespace} describe resourcequota")
        } else if why.contains("ValidatingAdmissionPolicy") {
            "change the policy, or exclude the controller's service account in its matchConditions: kubectl get \
             validatingadmissionpolicies"
                .to_owned()
        } else if why.contains("webhook") {
            "check the webhook, or exclude the controller's service account: kubectl get \
             validatingwebhookconfigurations,mutatingwebhookconfigurations"
                .to_owned()
        } else {
            "correct the template, or the policy that rejects the change".to_owned()
        };
        let others = match self.node.pods.len() {
            0 | 1 => "other nodes continue",
            _ => "the node keeps its slot of max-surge until then",
        };
        let every = humantime::format_duration(BACK_OFF.1);
        joined([format!("retried every {every}; {others}"), remedy])
    }

    /// Returns the time at which the node got its present verdict, as far as it is known.
    fn since(&self) -> Option<Timestamp> {
        let (rollout, node) = (self.rollout, self.node);
        let newest = newest(node);
        match *self.verdict {
            // These nodes have waited since the rollout became incomplete.
            Verdict::Budget { .. } | Verdict::AwaitingDomain => rollout.incomplete_since,
            // The phase can be older than the pod. A pod can't have waited before it existed.
            Verdict::AwaitingOwner | Verdict::AwaitingDeletion => {
                rollout.phase_since.max(newest.map(Pod::revised))
            }
            Verdict::Guarded(Guarded::Stopped(_))
            | Verdict::Revert(Revert::Pending)
            | Verdict::Invalid
            | Verdict::NativeControllerBehind => rollout.phase_since,
            Verdict::PullPending(_) => self.pull_since(),
            Verdict::Paused { .. } => rollout.fleet.pause.map(|pause| pause.since),
            Verdict::Done => newest?.ready_since,
            Verdict::Revert(Revert::Done) => Some(newest?.revised()),
            Verdict::InProgress(stage) => match stage {
                Progress::Replacing => None,
                Progress::Missing { since } => since.filter(|since| *since != rollout.first_read),
                Progress::UpdatingInPlace { since } | Progress::Reverting { since } => Some(since),
                Progress::Terminating | Progress::OldTerminating | Progress::SurgeLeaving => {
                    let leaving = node.pods.iter().filter_map(|pod| pod.leaving.as_deref());
                    leaving.map(Leaving::asked_at).max()
                }
                Progress::Starting | Progress::SurgeStarting => Some(newest?.unready()),
                Progress::Surplus => Some(newest?.revised()),
                Progress::NotYetAvailable { .. }
                | Progress::SurgeYoung { .. }
                | Progress::SurgeTakingOver => newest?.ready_since,
            },
            Verdict::Offline(
                Offline::NotReady { since }
                | Offline::Terminating { since }
                | Offline::Updated { since },
            )
            | Verdict::HookPending { since, .. } => since,
            Verdict::FailedByRevision { since, .. }
            | Verdict::BlockedByPdb { since, .. }
            | Verdict::Refused { since } => Some(since),
            _ => None,
        }
    }
}

/// Urgency of a node that is offline and has no other problem. It is updated after its return, so operators need not act.
pub const OFFLINE_URGENCY: u8 = 5;

/// Returns the urgency of a node for operators; lower numbers are more urgent. `None` if the node needs no attention.
pub fn urgency(rollout: &RolloutView<'_>, position: usize) -> Option<u8> {
    let (node, verdict) = (
        &rollout.fleet.nodes[position],
        &rollout.plan.verdicts[position],
    );
    let fails = verdict.is_failed();
    if fails || stall_of(node, verdict, rollout.now).is_some() {
        return Some(u8::from(!fails));
    }
    match *verdict {
        Verdict::BlockedByPdb { obstruction, .. } => obstruction.is_mistake().then_some(2),
        Verdict::Refused { .. } => Some(1),
        Verdict::HookPending { .. } => None,
        Verdict::InProgress(_) if !problem_words(node).is_empty() => Some(1),
        Verdict::InProgress(
            Progress::Replacing | Progress::NotYetAvailable { .. } | Progress::SurgeYoung { .. },
        ) => None,
        Verdict::InProgress(_) => {
            let since = NodeView::new(rollout, position).since()?;
            let old = rollout.now.as_second() - since.as_second() > OLD_SECONDS;
            old.then_some(2)
        }
        Verdict::Budget { broken: true } | Verdict::UntoleratedTaint => Some(3),
        Verdict::AwaitingOwner => NodeView::new(rollout, position)
            .has_failed_pull()
            .then_some(3),
        Verdict::Offline(Offline::NoNode | Offline::Terminating { .. }) => Some(4),
        Verdict::Offline(_) if NodeView::new(rollout, position).loss().is_some() => Some(4),
        Verdict::Offline(Offline::NotReady { .. }) => Some(OFFLINE_URGENCY),
        _ => None,
    }
}

/// Age of an update in seconds after which an operator should look at it.
const OLD_SECONDS: i64 = 120;
