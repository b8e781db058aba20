//! Messages about nodes that are being updated: the stage, its cause and the remedy.

use k8s_openapi::jiff::Timestamp;

use super::overdue;
use super::pods::{Answer, NodeView, problem_word, problem_words};
use super::rollout::awaits_proof;
use crate::core::engine::deadline::{is_between_crashes, is_between_pods, is_unscheduled, rejects};
use crate::core::engine::replacement::UpdateMethod;
use crate::core::engine::surge::SurgeRelease;
use crate::core::engine::terms::PROOF;
use crate::core::fleet::evictions::BACK_OFF;
use crate::core::fleet::in_place::Recreate;
use crate::core::fleet::{Pod, Targeting};
use crate::core::id::NodeName;
use crate::core::instant;
use crate::core::kind::SetKind;
use crate::core::plan::Stall;
use crate::core::remedy::{LOOK_FOR_IT, free_resources, other_revision, repair_node};
use crate::core::verdict::Progress;
use crate::core::words::{append, joined, named, spaced};

/// Note about a pod whose last eviction was rejected by its disruption budget. The budget would allow it now.
const EVICTED_LATER: &str = "to be evicted at the next attempt: its PodDisruptionBudget rejected the last one, but allows it now";

/// Describes the stage of the node's update, with the remedy.
pub(super) fn answer(view: NodeView<'_>, stage: Progress) -> Answer<'_> {
    let (reason, mut because) = view.stage(stage);
    if let Some(Stall::NoProgress | Stall::PodsNotCreated) = view.stall() {
        let why = overdue::words(view.rollout.fleet, view.node, view.verdict);
        append(&mut because, &format!("this takes too long: {why}"));
    }
    Answer::new(because, move || view.next_of(stage)).reason(reason)
}

/// Returns a phrase with the reason why the pod is recreated instead of updated in place; empty if no update in place was
/// requested.
pub(super) fn not_in_place(why: Option<Recreate>) -> String {
    why.map_or_else(String::new, |why| {
        format!("; not in place, because {}", why.words())
    })
}

/// Describes the surge pods that stay after yurt-ds stopped managing the DaemonSet, and when they will be deleted.
pub fn kept_words(released: &SurgeRelease) -> String {
    let names = released.kept.iter().map(NodeName::as_str);
    format!(
        "surge pods are kept on {}, because only they serve there. Each is deleted when the old pod on its node is available",
        named(names, 0)
    )
}

impl NodeView<'_> {
    fn stage(&self, stage: Progress) -> (String, String) {
        let (rollout, node) = (self.rollout, self.node);
        let controller = rollout.fleet.kind.controller();
        if is_between_pods(node, stage) {
            return self.ended_pods();
        }
        let pod = self.pod();
        let (reason, because) = match stage {
            Progress::Replacing => ("Replacing", self.replacing()),
            Progress::Terminating => (
                "Terminating",
                format!("is being updated: its pod{pod} is terminating"),
            ),
            Progress::Missing { .. } if node.targeting != Targeting::Run => (
                "Missing",
                format!(
                    "lost its old pod to this rollout and gets no new one: {}",
                    overdue::barrier(node)
                ),
            ),
            Progress::Missing { .. } => (
                "Missing",
                match &rollout.fleet.not_created {
                    Some(why) => format!("has no pod, and {controller} cannot create one: {why}"),
                    None => format!("has no pod; {controller} creates one"),
                },
            ),
            Progress::UpdatingInPlace { .. } => (
                "UpdatingInPlace",
                format!("is being updated: its pod{pod} gets new images in place"),
            ),
            Progress::Reverting { .. } => (
                "Reverting",
                format!(
                    "runs pod{pod}, which was rolled back in place{}, because the guard stopped revision{}; the pod is not available yet{}",
                    rollout.to_revision(),
                    spaced(rollout.revision()),
                    problem_words(node)
                ),
            ),
            Progress::Starting => return self.starting(),
            Progress::NotYetAvailable { available_at } => {
                return self.young(available_at, false);
            }
            Progress::SurgeYoung { available_at } => return self.young(available_at, true),
            Progress::SurgeTakingOver => ("SurgeTakingOver", self.taking_over()),
            Progress::SurgeLeaving => ("SurgeLeaving", self.surge_leaving()),
            Progress::SurgeStarting => ("SurgeStarting", self.surge_starting()),
            Progress::OldTerminating => {
                let alive = node.pods.iter().filter(|pod| !pod.terminating);
                let alive = alive.max_by_key(|pod| pod.created);
                let old = self.find(|pod| pod.terminating);
                (
                    "OldTerminating",
                    format!(
                        "has pod{}, and its previous pod{} is still terminating; the update ends when that pod is gone",
                        spaced(alive.map(|pod| &pod.name)),
                        spaced(old.map(|pod| &pod.name))
                    ),
                )
            }
            Progress::Surplus => (
                "Surplus",
                format!(
                    "has {} pods; {controller} has to remove all but one",
                    node.pods.len()
                ),
            ),
        };
        (reason.to_owned(), because)
    }

    fn starting(&self) -> (String, String) {
        let (node, pod) = (self.node, self.pod());
        let reason = problem_word(node).unwrap_or_else(|| "Starting".into());
        let because = match problem_words(node) {
            words if words.is_empty() && self.was_ready() => {
                format!("has pod{pod}, which is no longer Ready")
            }
            words if words.is_empty() => format!("has its new pod{pod}, which is not Ready yet"),
            words => format!("has its new pod{pod}, which does not start{words}"),
        };
        (reason, because)
    }

    /// Describes a pod that is Ready, but not available yet. `is_surge` is true for a surge pod.
    fn young(&self, available_at: Timestamp, is_surge: bool) -> (String, String) {
        let (rollout, node) = (self.rollout, self.node);
        let left = instant::between(rollout.now, available_at);
        let crashed = !is_surge && is_between_crashes(node, rollout.now);
        let proves = !crashed && awaits_proof(rollout, node, available_at);
        let reason = match (is_surge, proves) {
            (false, false) => "NotYetAvailable",
            (false, true) => "Proving",
            (true, false) => "SurgeYoung",
            (true, true) => "SurgeProving",
        };
        let (whose, then) = if is_surge {
            (self.surge_pod(), "; the old pod is deleted then")
        } else {
            (format!("its new pod{}", self.pod()), "")
        };
        let state = if crashed {
            format!("restarted after crashes; it counts as available in {left} if it keeps running")
        } else if proves && rollout.is_stopped() {
            format!("Ready; its first {}s end in {left}", PROOF.as_secs())
        } else if proves {
            format!(
                "Ready; other nodes follow when the first pods of the revision have been Ready for {}s, here in {left}",
                PROOF.as_secs()
            )
        } else {
            let min_ready = rollout.strategy.min_ready.as_secs();
            format!("Ready; it counts as available in {left} (minReadySeconds: {min_ready})")
        };
        let because = format!("has {whose}, which is {state}{then}");
        (reason.to_owned(), because)
    }

    fn taking_over(&self) -> String {
        let rollout = self.rollout;
        let then = match self.find(|pod| !pod.surge && !pod.terminating) {
            _ if let Some(why) = rollout.standstill() => format!("the old pod stays: {why}"),
            Some(_) if rollout.asks_again => format!("the old pod is {EVICTED_LATER}"),
            Some(_) => "the old pod is deleted next".to_owned(),
            None => "the DaemonSet adopts it next".to_owned(),
        };
        format!("has {}, which is available; {then}", self.surge_pod())
    }

    fn surge_leaving(&self) -> String {
        let then = match self.rollout.standstill() {
            Some(why) => format!("stays: {why}"),
            None if self.serves_by_surge() || self.stall().is_some() => {
                "is deleted when the old pod is available".to_owned()
            }
            None => "is to be deleted".to_owned(),
        };
        format!(
            "has {}, which is no longer needed and {then}",
            self.surge_pod()
        )
    }

    fn surge_starting(&self) -> String {
        if self.find(|pod| pod.surge).is_none() {
            return "is next: a surge pod is created in addition to the old pod".to_owned();
        }
        format!(
            "has {}, which is not Ready yet{}; the old pod serves until then",
            self.surge_pod(),
            problem_words(self.node)
        )
    }

    /// Returns the surge pod in words, with its name if it is known.
    fn surge_pod(&self) -> String {
        match self.find(|pod| pod.surge) {
            Some(pod) => format!("surge pod {}", pod.name),
            None => "a surge pod".to_owned(),
        }
    }

    /// Describes a node whose pod is replaced or updated next.
    fn replacing(&self) -> String {
        let pod = self.pod();
        match self.method() {
            UpdateMethod::InPlace(_) => format!("is next: its pod{pod} is updated in place"),
            UpdateMethod::Recreate(why) => {
                let how = if self.rollout.asks_again {
                    EVICTED_LATER
                } else {
                    "replaced"
                };
                format!("is next: its old pod{pod} is {how}{}", not_in_place(why))
            }
        }
    }

    /// Returns true if the newest pod was Ready before its current not-Ready period. That period then began more than [`PROOF`]
    /// after the pod got its revision.
    fn was_ready(&self) -> bool {
        let newest = self.node.pods.iter().max_by_key(|pod| pod.revised());
        newest.is_some_and(|pod| pod.unready() > instant::later(pod.revised(), PROOF))
    }

    /// Returns true if the node's surge pod is Ready and its old pod is not.
    fn serves_by_surge(&self) -> bool {
        let ready = |surge: bool| {
            let is_ready =
                |pod: &Pod| pod.surge == surge && !pod.terminating && pod.ready_since.is_some();
            self.find(is_ready).is_some()
        };
        ready(true) && !ready(false)
    }

    /// Describes a node on which pods keep ending.
    pub(super) fn ended_pods(&self) -> (String, String) {
        let problem = self.node.trouble.as_deref();
        let words = problem.map_or_else(String::new, |problem| {
            let count = match problem.ended {
                0 | 1 => String::new(),
                ended => format!(", {ended} pods so far"),
            };
            format!(": {}{count}", problem.words())
        });
        let reason = problem.map_or("Missing", |problem| problem.word());
        (
            reason.to_owned(),
            format!("has new pods that end one after another{words}"),
        )
    }

    /// Returns the remedy for the stage of the update.
    fn next_of(&self, stage: Progress) -> String {
        let (rollout, node) = (self.rollout, self.node);
        let (fleet, key, stall) = (rollout.fleet, &rollout.key, self.stall());
        let look = self.describe_pod();
        let other_revision = || other_revision(fleet, key);
        let no_action = || "no action needed".to_owned();
        if stall.is_some()
            && let Some(remedy) = self.end_pod()
        {
            return remedy;
        }
        if stall == Some(Stall::PodsDoNotStart) && rejects(node) {
            return repair_node(node.name.as_str(), fleet, key);
        }
        match stage {
            Progress::Replacing | Progress::SurgeTakingOver if rollout.asks_again => joined([
                format!(
                    "the controller retries the eviction within {}, or when a pod of the DaemonSet becomes Ready",
                    humantime::format_duration(BACK_OFF.1)
                ),
                format!("if it does not, {LOOK_FOR_IT}"),
            ]),
            Progress::Replacing => format!(
                "the controller updates the pod within seconds. If it does not, {LOOK_FOR_IT}"
            ),
            Progress::Terminating => format!(
                "a new pod is created when the old one has ended. If that takes longer than terminationGracePeriodSeconds, look for \
                 finalizers: kubectl -n {} get pod{} -o jsonpath={{.metadata.finalizers}}",
                key.namespace,
                self.pod()
            ),
            Progress::Missing { .. } if node.targeting != Targeting::Run => format!(
                "the node gets a pod when the template tolerates its taints and its labels match: kubectl describe node {}",
                node.name
            ),
            Progress::Missing { .. } if fleet.not_created.is_some() && fleet.kind == SetKind::Native => {
                format!(
                    "remove the cause: {}; Kubernetes then retries within 17 minutes. To retry at once: kubectl -n {} annotate daemonset {} \
                     retry=\"$(date)\" --overwrite",
                    self.failed_creations(),
                    key.namespace,
                    key.name
                )
            }
            Progress::Missing { .. } => format!(
                "the pod is usually created within seconds. If not, check quotas and admission webhooks: {}",
                self.failed_creations()
            ),
            Progress::UpdatingInPlace { .. } | Progress::Reverting { .. } => format!(
                "the kubelet restarts the changed containers. If that takes long: {look}"
            ),
            Progress::Starting => match stall {
                None => format!("no action needed, unless this lasts: {look}"),
                Some(Stall::PodsDoNotStart) if is_unscheduled(node) => {
                    joined([free_resources(node.name.as_str(), fleet, key), format!("details: {look}")])
                }
                Some(_) => joined([other_revision(), format!("details: {look}")]),
            },
            Progress::NotYetAvailable { .. } if is_between_crashes(node, rollout.now) => joined([
                format!("logs: kubectl -n {} logs{} --previous", key.namespace, self.pod()),
                "if it crashes again".to_owned(),
                other_revision(),
            ]),
            Progress::NotYetAvailable { .. } if stall.is_some() => {
                format!("check its readiness: {look}")
            }
            Progress::SurgeStarting if self.find(|pod| pod.surge).is_none() => {
                let (namespace, name) = (&key.namespace, &key.name);
                format!(
                    "the controller creates the pod within seconds. If it does not, check quotas and admission webhooks. Events: \
                     kubectl -n {namespace} get events --field-selector involvedObject.name={name}"
                )
            }
            Progress::SurgeStarting if stall.is_some() => joined([
                "the old pod still serves. Check readiness of the surge pod and room for two pods on the node".to_owned(),
                other_revision(),
                format!("details: {look}"),
            ]),
            Progress::SurgeStarting => format!("no action needed, unless this lasts: {look}"),
            Progress::SurgeTakingOver | Progress::SurgeLeaving if let Some(then) = rollout.after_standstill() => then,
            Progress::SurgeTakingOver if stall.is_some() => LOOK_FOR_IT.to_owned(),
            Progress::SurgeTakingOver => format!("no action needed. If this lasts, {LOOK_FOR_IT}"),
            Progress::SurgeLeaving if self.serves_by_surge() || stall.is_some() => {
                let own = self.find(|pod| !pod.surge && !pod.terminating);
                format!(
                    "check why the old pod is not available: kubectl -n {} describe pod{}",
                    key.namespace,
                    spaced(own.map(|pod| &pod.name))
                )
            }
            Progress::Surplus if stall.is_some() => {
                format!("check if {} runs, and its log", fleet.kind.process())
            }
            Progress::NotYetAvailable { .. }
            | Progress::SurgeYoung { .. }
            | Progress::OldTerminating
            | Progress::SurgeLeaving
            | Progress::Surplus => no_action(),
        }
    }

    /// Returns the remedy for a pod that has been terminating for too long.
    fn end_pod(&self) -> Option<String> {
        let pod = self.find(|pod| pod.terminating && pod.leaving.is_some())?;
        let (namespace, name) = (self.rollout.key.namespace, &pod.name);
        Some(if pod.exit.finalizers.is_empty() {
            format!(
                "check the kubelet on {}: kubectl -n {namespace} describe pod {name}; force the deletion only if nothing of the pod runs: kubectl -n \
                 {namespace} delete pod {name} --grace-period=0 --force",
                self.node.name
            )
        } else {
            format!(
                "the component that set finalizer {} has to remove it. If that component no longer exists: kubectl -n {namespace} patch pod \
                 {name} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'",
                pod.exit.finalizers.join(", ")
            )
        })
    }
}
