//! Data of every output format. Tables, JSON and YAML are rendered from the same rows.
//!
//! Field names are stable for scripts: fields may be added, but are never renamed or removed. Times are in RFC 3339.

use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::iter;

use super::command_form::CommandForm;
use super::liveness::ControllerLiveness;
use super::look::Look;
use super::reported::{NODES_UNKNOWN, PodCounts, ReportedRollout, UNKNOWN};
use super::snapshot::RolloutSnapshot;
use super::waves_and_domains::{self, DomainRow, WaveRow};
use crate::core::messages::node::{OFFLINE_URGENCY, cause, explain, urgency};
use crate::core::messages::rollout::RolloutView;
use crate::core::messages::{
    NextStep, fact, message, newcomers, next_steps, quietly_paused, revision_word,
};
use crate::core::remedy::{KRUISE_RUNS, LOOK_FOR_IT};
use crate::core::settings::partition::PARTITION;
use crate::core::words::nodes;
use crate::core::{
    FailureRecord, Guarded, Mode, NodeName, Note, Offline, Pause, Phase, Pod, SetKind, Verdict,
    instant,
};
use crate::index::SetKey;

/// Description of the fields of `-o json` and `-o yaml`, for the reference.
pub(crate) const FIELDS: &str = "\
Fields of -o json, -o jsonl and -o yaml (fields may be added, but not renamed; null if unknown):
  of a DaemonSet  kind (its API version: apps/v1, or apps.kruise.io/v1beta1 of an Advanced DaemonSet), namespace,
                  name, strategy, maxUnavailable, maxSurge, phase, message, next (what to do: commands), since, revision,
                  unknown (resources that you may not read: nodes, leases, poddisruptionbudgets; without nodes, the
                  phase is the reported one, numbers are null, and nodes lists only nodes with a pod),
                  podCounts (null if nodes are known), targeted,
                  base (targeted nodes that take part; max-unavailable and max-surge are shares of these),
                  updated, outdated, unavailable, allowed (to be unavailable), surging (nodes with a second
                  pod), surgeAllowed, offline (verdict Offline), offlineOutdated, inProgress, failed, brokenBefore, failures,
                  failureThreshold, guarded (FailedByRevision, ReplacedTwice, Inconclusive),
                  verdicts (nodes per word), notes,
                  nextWake (time of the next evaluation if nothing changes),
                  pause (null if not paused),
                  reversal (null if no stopped revision is being rolled back),
                  silentSince (last renewal of the controller's Lease; null if recent or unknown),
                  waves (empty without that setting), domains (empty without topology-key),
                  nodes (only when one DaemonSet is named, and not with --watch)
  of a jsonl line time, and those of a DaemonSet. With --wait and --watch, each change of a DaemonSet is a line
  of a pause      since, until (null: until ctl resume), updatedMeanwhile (nodes that got the revision during the
                  pause, because every new pod has it)
  of a reversal   to (the hash; null: no older revision is known), done, underWay (waiting, or not
                  available yet), stuck (keep the stopped revision), why (null if no node is stuck)
  of podCounts    pods, current, outdated, ready
  of a wave       wave, nodes, done, inFlight, allowed, state (Complete, Open, NotOpen), next
  of a domain     domain, nodes, done, inFlight, hasTurn
  of a node       node, verdict, reason, since, message, pods, needsAttention
  of a pod        name, revision (current, outdated or unknown), ready, terminating
  of why          those of a node, and kind, namespace, name, phase, phaseMessage, reversal, next, docs, unknown, notes
  phase           Complete, Progressing, AwaitingOwners, AwaitingDeletions, NativeControllerBehind,
                  Stalled, Paused, Invalid, NoController (exit code 12), Unknown (without nodes: not reported yet),
                  Superseded (last line of jsonl, exit code 13)
  verdict         Done, InProgress, Budget, AwaitingDomain, Offline, FailedByRevision, Paused, Partition,
                  NotSelected, Held, Guarded, Revert, WaveNotOpen, OutOfWindow, PullPending, HookPending,
                  BlockedByPDB, Refused, AwaitingOwner, AwaitingDeletion, NativeControllerBehind, Invalid,
                  NotTargeted, UntoleratedTaint, Unknown (without nodes)";

/// Phase of an incomplete rollout without a running controller.
pub(super) const NO_CONTROLLER: &str = "NoController";

/// Phase on the last line of `-o jsonl` for a DaemonSet that was replaced or deleted during a wait.
pub(super) const SUPERSEDED: &str = "Superseded";

/// State of a DaemonSet in the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetRow {
    /// Kind of the DaemonSet, serialized as its API version.
    #[serde(serialize_with = "api_version")]
    pub kind: SetKind,
    /// Namespace of the DaemonSet.
    pub namespace: String,
    /// Name of the DaemonSet.
    pub name: String,
    /// Update strategy: `AdvancedRollingUpdate` or `OTA`; `null` if the settings are invalid.
    pub strategy: Option<String>,
    /// Value of `max-unavailable`; `null` with OTA.
    pub max_unavailable: Option<String>,
    /// Value of `max-surge`; `null` if the setting is absent, and with OTA.
    pub max_surge: Option<String>,
    /// Phase of the rollout: `Complete`, `Progressing`, `AwaitingOwners`, `AwaitingDeletions`, `NativeControllerBehind`,
    /// `Stalled`, `Paused`, `Invalid`, `NoController` or `Unknown`.
    pub phase: &'static str,
    /// Sentence about the phase.
    pub message: String,
    /// Text of `message` without the next steps.
    #[serde(skip)]
    pub fact: String,
    /// Next steps, the most useful first.
    pub next: Vec<NextStep>,
    /// Start of this phase; `null` if no controller has reported it.
    pub since: Option<String>,
    /// Hash of the current revision; `null` if it is not known yet.
    pub revision: Option<String>,
    /// Resources that affect this row and that the caller may not read: `nodes`, `leases`, `poddisruptionbudgets`.
    ///
    /// Without `nodes`, `phase` is the one that the controller reported, and every number except `targeted` is `null`.
    pub unknown: Vec<&'static str>,
    /// Numbers of pods; `null` if the caller may list nodes.
    pub pod_counts: Option<PodCountsRow>,
    /// Number of targeted nodes: nodes that should run a pod of the DaemonSet.
    pub targeted: Option<usize>,
    /// Number of targeted nodes that take part in the rollout, because no selector, partition or hold excludes them. Percentages of
    /// `max_unavailable` refer to this number.
    pub base: Option<usize>,
    /// Number of nodes with an available pod of the current revision, plus offline nodes with a pod of the current revision.
    pub updated: Option<usize>,
    /// Number of online nodes with an outdated pod.
    pub outdated: Option<usize>,
    /// Number of online nodes without an available pod, including nodes that failed because of the revision.
    pub unavailable: Option<usize>,
    /// Number of nodes that may be unavailable at the same time.
    pub allowed: Option<usize>,
    /// Number of nodes with a surge pod in addition to the old pod.
    pub surging: Option<usize>,
    /// Number of nodes that may have a surge pod at the same time.
    pub surge_allowed: Option<usize>,
    /// Number of offline nodes (verdict `Offline`).
    pub offline: Option<usize>,
    /// Number of targeted nodes that are offline and have an outdated pod.
    pub offline_outdated: Option<usize>,
    /// Number of online nodes that are being updated and have no available pod.
    pub in_progress: Option<usize>,
    /// Number of nodes that failed because of the current revision and have not recovered.
    pub failed: Option<usize>,
    /// Number of online nodes whose outdated pod was already broken before the rollout.
    pub broken_before: Option<usize>,
    /// Number of nodes that failed because of the current revision, including nodes that have recovered or were deleted.
    pub failures: Option<usize>,
    /// Number of failures that the guard tolerates before it stops the revision; `null` with OTA.
    pub failure_threshold: Option<usize>,
    /// Reason why the guard allows no new updates: `FailedByRevision`, `ReplacedTwice` or `Inconclusive`; `null` if it allows them.
    pub guarded: Option<&'static str>,
    /// Number of nodes per verdict, which is the state of a node in the rollout.
    pub verdicts: BTreeMap<&'static str, usize>,
    /// Notes about the settings or the controller for the person who maintains the DaemonSet.
    pub notes: Vec<String>,
    /// Notes that are also shown in a list: mistakes in the settings, and effects of a missing controller or permission.
    #[serde(skip)]
    pub warnings: Vec<String>,
    /// Waves in the order in which they open; empty without the setting `waves`.
    pub waves: Vec<WaveRow>,
    /// Failure domains; empty without the setting `topology-key`.
    pub domains: Vec<DomainRow>,
    /// Time of the next evaluation if nothing changes before, for example when a window opens or a pause ends; `null` if no time is
    /// known.
    pub next_wake: Option<String>,
    /// Present pause; `null` if the rollout is not paused.
    pub pause: Option<PauseRow>,
    /// Progress of the automatic rollback of a revision that the guard stopped; `null` if there is none.
    pub reversal: Option<ReversalRow>,
    /// Time of the last renewal of the controller's Lease; `null` if it is unknown or less than three minutes ago.
    pub silent_since: Option<String>,
    /// All nodes. Present only in reports on a single DaemonSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<NodeRow>>,
}

/// Numbers of a DaemonSet's pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCountsRow {
    /// Number of all pods of the DaemonSet.
    pub pods: usize,
    /// Number of pods of the current revision.
    pub current: usize,
    /// Number of pods of other revisions.
    pub outdated: usize,
    /// Number of Ready pods.
    pub ready: usize,
}

impl PodCountsRow {
    fn from_counts(counts: PodCounts) -> Self {
        Self {
            pods: counts.pods,
            current: counts.current,
            outdated: counts.outdated,
            ready: counts.ready,
        }
    }
}

/// A pause of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseRow {
    /// Start of the pause; `null` if no controller has reported it.
    pub since: Option<String>,
    /// Time when the pause ends automatically; `null` for a pause without an end.
    pub until: Option<String>,
    /// Nodes that got a pod of the current revision during the pause; `null` if the caller may not list nodes.
    pub updated_meanwhile: Option<Vec<String>>,
}

impl PauseRow {
    fn of_reported(reported: &ReportedRollout) -> Option<Self> {
        reported.pause().map(|pause| Self {
            since: reported.paused.map(|pause| instant::words(pause.since)),
            until: match pause {
                Pause::Indefinite => None,
                Pause::Until(until) => Some(instant::words(until)),
            },
            updated_meanwhile: None,
        })
    }

    fn from_rollout(rollout: &RolloutView<'_>) -> Option<Self> {
        let stand = rollout.pause()?;
        let since = rollout.fleet.pause.map(|pause| pause.since);
        let names = stand.newcomers.iter().map(ToString::to_string);
        Some(Self {
            since: since.map(instant::words),
            until: stand.until.map(instant::words),
            updated_meanwhile: Some(names.collect()),
        })
    }
}

/// Progress of a rollback of a stopped revision (`on-failure: RevertInPlace`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReversalRow {
    /// Hash of the revision that pods return to; `null` if no older revision is known.
    pub to: Option<String>,
    /// Number of nodes that have been rolled back.
    pub done: usize,
    /// Number of nodes whose rollback has not begun, or whose pod is not available yet after it.
    pub under_way: usize,
    /// Number of nodes that keep the stopped revision.
    pub stuck: usize,
    /// Reason why the first of the `stuck` nodes keeps the stopped revision; `null` if there is none.
    pub why: Option<&'static str>,
}

impl ReversalRow {
    pub(super) fn from_snapshot(snapshot: &RolloutSnapshot) -> Option<Self> {
        let reversal = snapshot.plan.reversal.as_ref()?;
        let stuck = reversal.stuck.len();
        Some(Self {
            to: reversal.to.as_ref().map(ToString::to_string),
            done: reversal.done.len(),
            under_way: reversal.under_way.len(),
            stuck,
            why: (stuck > 0).then(|| reversal.why_words()),
        })
    }
}

/// A node of a DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// Name of the node.
    pub node: String,
    /// Verdict: state of the node in the rollout, one word of a fixed list.
    pub verdict: &'static str,
    /// Reason for the verdict, such as `NotReady`, `Missing` or `ImagePullBackOff`; `null` if the verdict needs none.
    pub reason: Option<String>,
    /// Time since which the node has been in this state; `null` if unknown.
    pub since: Option<String>,
    /// Explanation that continues the sentence "node NAME …".
    pub message: String,
    /// Pods of the DaemonSet on the node.
    pub pods: Vec<PodRow>,
    /// True if an operator should look at the node.
    pub needs_attention: bool,
    /// Cause of the verdict, for tables. The text is the same for all nodes in this situation, so that they can be grouped.
    #[serde(skip)]
    pub cause: String,
    /// Duration of the node's present state, for tables.
    #[serde(skip)]
    pub age: Option<String>,
    /// Urgency, for the order in tables. A lower number is more urgent.
    #[serde(skip)]
    pub urgency: Option<u8>,
}

/// A pod on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    /// Name of the pod.
    pub name: String,
    /// Revision of the pod: `current`, `outdated` or `unknown`.
    pub revision: &'static str,
    /// True if the pod is Ready.
    pub ready: bool,
    /// True if the pod is being deleted.
    pub terminating: bool,
}

impl SetRow {
    /// Builds the row of a DaemonSet. If `nodes` is true, it includes all known nodes.
    pub(super) fn of_look(look: &Look, nodes: bool) -> Self {
        match look {
            Look::Judged(snapshot) => Self::new(snapshot, nodes),
            Look::Reported(reported) => Self::of_reported(reported, nodes),
        }
    }

    /// Names the kind in all commands, because there is a DaemonSet of the other kind with the same name.
    pub(super) fn name_kind(&mut self, key: &SetKey) {
        let form = CommandForm {
            is_plugin: false,
            with_kind: Some(key.clone()),
        };
        let commands = self
            .next
            .iter_mut()
            .filter_map(|step| step.command.as_mut());
        let texts = [&mut self.message, &mut self.fact]
            .into_iter()
            .chain(commands);
        for text in texts.chain(&mut self.notes).chain(&mut self.warnings) {
            *text = form.apply(text).into_owned();
        }
    }

    fn of_reported(reported: &ReportedRollout, nodes: bool) -> Self {
        let phase = reported.phase();
        let rolling = reported.strategy.as_ref();
        let rolling = rolling.filter(|all| all.mode == Mode::AdvancedRollingUpdate);
        let warnings = reported.notes.iter().filter(|note| note.warning);
        let unknown = iter::once("nodes")
            .chain(unknown(&reported.liveness, reported.unread.as_ref()))
            .collect();
        let rows = reported.pods.iter();
        let silence = reported.liveness.silence(reported.code(false));
        let is_silent = silence.is_some();
        Self {
            kind: reported.key.kind,
            namespace: reported.key.namespace.to_string(),
            name: reported.key.name.to_string(),
            strategy: reported.strategy.as_ref().map(|all| all.mode.to_string()),
            max_unavailable: rolling.map(|all| all.max_unavailable.to_string()),
            max_surge: rolling
                .filter(|all| !all.max_surge.is_zero())
                .map(|all| all.max_surge.to_string()),
            phase: silence.as_ref().map_or(phase.word, |_| NO_CONTROLLER),
            next: if is_silent {
                reported.liveness.next()
            } else {
                Vec::new()
            },
            fact: reported
                .liveness
                .fact()
                .filter(|_| is_silent)
                .unwrap_or_else(|| phase.message.clone()),
            message: silence.unwrap_or(phase.message),
            since: phase.since.map(instant::words),
            revision: reported.revision().map(ToString::to_string),
            unknown,
            pod_counts: Some(PodCountsRow::from_counts(reported.counts())),
            targeted: reported.desired,
            base: None,
            updated: None,
            outdated: None,
            unavailable: None,
            allowed: None,
            surging: None,
            surge_allowed: None,
            offline: None,
            offline_outdated: None,
            in_progress: None,
            failed: None,
            broken_before: None,
            failures: reported.record.as_ref().map(FailureRecord::failures),
            failure_threshold: None,
            guarded: None,
            verdicts: BTreeMap::new(),
            notes: texts(&reported.notes)
                .chain(reported_notes(reported))
                .collect(),
            warnings: texts(warnings).chain(reported_notes(reported)).collect(),
            waves: Vec::new(),
            domains: Vec::new(),
            next_wake: None,
            pause: PauseRow::of_reported(reported),
            reversal: None,
            silent_since: reported.liveness.silent_since().map(instant::words),
            nodes: nodes.then(|| {
                rows.map(|(node, pods)| NodeRow::of_pods(node, pods))
                    .collect()
            }),
        }
    }

    /// Builds the row of an evaluated DaemonSet. If `nodes` is true, it includes all nodes.
    pub(super) fn new(snapshot: &RolloutSnapshot, nodes: bool) -> Self {
        let (rollout, counts) = (snapshot.rollout(), &snapshot.plan.counts);
        let usable = snapshot.invalid.is_none();
        let rolls = usable && snapshot.strategy.mode == Mode::AdvancedRollingUpdate;
        let surges = rolls && !snapshot.strategy.max_surge.is_zero();
        let verdicts = Verdict::WORDS
            .into_iter()
            .zip(counts.by_word)
            .filter(|(_, nodes)| *nodes > 0);
        let silence = snapshot.silence();
        let is_silent = silence.is_some();
        let sentence = snapshot.sentence();
        Self {
            kind: snapshot.key.kind,
            namespace: snapshot.key.namespace.to_string(),
            name: snapshot.key.name.to_string(),
            strategy: usable.then(|| snapshot.strategy.mode.to_string()),
            max_unavailable: rolls.then(|| snapshot.strategy.max_unavailable.to_string()),
            max_surge: surges.then(|| snapshot.strategy.max_surge.to_string()),
            phase: silence
                .as_ref()
                .map_or(rollout.phase.word(), |_| NO_CONTROLLER),
            next: if is_silent {
                snapshot.liveness.next()
            } else {
                next_steps(&rollout, &sentence)
            },
            fact: (snapshot.liveness.fact().filter(|_| is_silent))
                .unwrap_or_else(|| fact(&rollout, &sentence)),
            message: silence.unwrap_or_else(|| message(&rollout, &sentence)),
            since: rollout.phase_since.map(instant::words),
            revision: snapshot.revision().map(ToString::to_string),
            unknown: unknown(&snapshot.liveness, snapshot.unread.as_ref()),
            pod_counts: None,
            targeted: Some(counts.targeted),
            base: Some(counts.base),
            updated: Some(snapshot.plan.running()),
            outdated: Some(counts.outdated),
            unavailable: Some(rollout.unavailable()),
            allowed: Some(counts.allowed),
            surging: Some(rollout.surging()),
            surge_allowed: Some(counts.surge_allowed),
            offline: Some(counts.of_kind(Verdict::Offline(Offline::NoNode))),
            offline_outdated: Some(counts.offline_outdated),
            in_progress: Some(counts.in_progress.saturating_sub(rollout.next())),
            failed: Some(counts.failed),
            broken_before: Some(counts.broken_before),
            failures: Some(counts.failures),
            failure_threshold: rolls.then_some(counts.threshold),
            guarded: snapshot.plan.guarded.map(Guarded::word),
            verdicts: verdicts.collect(),
            notes: notes(snapshot),
            warnings: warnings(snapshot),
            waves: waves_and_domains::waves(snapshot),
            domains: waves_and_domains::domains(snapshot),
            next_wake: snapshot.plan.next_wake.map(instant::words),
            pause: PauseRow::from_rollout(&rollout),
            reversal: ReversalRow::from_snapshot(snapshot),
            silent_since: snapshot.liveness.silent_since().map(instant::words),
            nodes: nodes.then(|| {
                (0..snapshot.fleet.nodes.len())
                    .map(|position| NodeRow {
                        cause: cause(&rollout, position, is_silent),
                        ..NodeRow::new(&rollout, position)
                    })
                    .collect()
            }),
        }
    }

    /// Returns the row without texts that change as time passes. `--watch` prints a JSON or YAML document only if this row has
    /// changed.
    pub(super) fn summary(&self) -> Self {
        Self {
            message: String::new(),
            fact: String::new(),
            notes: Vec::new(),
            warnings: Vec::new(),
            next_wake: None,
            nodes: None,
            ..self.clone()
        }
    }

    /// Returns `namespace/name`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns `namespace/name`, followed by the kind of an Advanced DaemonSet.
    pub(super) fn title(&self) -> String {
        match self.kind {
            SetKind::Native => self.key(),
            SetKind::Advanced => format!("{} (Advanced DaemonSet)", self.key()),
        }
    }
}

impl NodeRow {
    /// Builds a row without pods, for a node that is not part of the evaluated fleet.
    pub(super) fn outside(node: &NodeName, verdict: &'static str, message: String) -> Self {
        Self {
            node: node.to_string(),
            verdict,
            reason: None,
            since: None,
            message,
            pods: Vec::new(),
            needs_attention: false,
            cause: String::new(),
            age: None,
            urgency: None,
        }
    }

    /// Builds the row of a node from its pods, for a caller without the right to list nodes.
    pub(super) fn of_pods(node: &NodeName, pods: &[Pod]) -> Self {
        let pods: Vec<PodRow> = pods.iter().map(PodRow::from_pod).collect();
        let named: Vec<String> = pods.iter().map(PodRow::text).collect();
        let message = match named.as_slice() {
            [] => "runs no pod of it".to_owned(),
            [pod] => format!("runs pod {pod}"),
            pods => format!("runs pods {}", pods.join(", ")),
        };
        Self {
            node: shown_name(node),
            pods,
            ..Self::outside(node, UNKNOWN, message)
        }
    }

    /// Builds the row of the node at `position` in the fleet.
    pub(super) fn new(rollout: &RolloutView<'_>, position: usize) -> Self {
        let node = &rollout.fleet.nodes[position];
        let explanation = explain(rollout, position);
        let urgency = urgency(rollout, position);
        let pods = node.pods.iter().map(PodRow::from_pod);
        Self {
            node: shown_name(&node.name),
            verdict: rollout.plan.verdicts[position].word(),
            reason: explanation.reason,
            since: explanation.since.map(instant::words),
            message: explanation.because,
            pods: pods.collect(),
            needs_attention: urgency.is_some_and(|urgency| urgency < OFFLINE_URGENCY),
            cause: cause(rollout, position, false),
            age: explanation
                .since
                .map(|since| instant::between(since, rollout.now)),
            urgency,
        }
    }
}

impl PodRow {
    fn from_pod(pod: &Pod) -> Self {
        Self {
            name: pod.name.to_string(),
            revision: revision_word(pod),
            ready: pod.ready_since.is_some(),
            terminating: pod.terminating,
        }
    }

    /// Returns name, revision and state of the pod as text.
    pub(super) fn text(&self) -> String {
        format!("{} ({}, {})", self.name, self.revision, self.state())
    }

    /// Returns the state of the pod in one or two words.
    pub(super) fn state(&self) -> &'static str {
        match (self.terminating, self.ready) {
            (true, _) => "terminating",
            (false, true) => "Ready",
            (false, false) => "not Ready",
        }
    }
}

/// Returns the name of a node for output. Pods without a node have an empty name, which is shown as `(none)`.
fn shown_name(node: &NodeName) -> String {
    match node.as_str() {
        "" => "(none)".to_owned(),
        name => name.to_owned(),
    }
}

/// Serializes the kind of a DaemonSet as its API version.
pub(super) fn api_version<S: Serializer>(kind: &SetKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.api_version())
}

/// Returns the resources other than nodes that the answer depends on and that the caller may not read.
pub(super) fn unknown(liveness: &ControllerLiveness, unread: Option<&String>) -> Vec<&'static str> {
    let leases = (*liveness == ControllerLiveness::Forbidden).then_some("leases");
    let budgets = unread.map(|_| "poddisruptionbudgets");
    leases.into_iter().chain(budgets).collect()
}

fn texts<'a>(notes: impl IntoIterator<Item = &'a Note>) -> impl Iterator<Item = String> {
    notes.into_iter().map(|note| note.text.clone())
}

/// Returns the notes of an answer without nodes: the unknown facts, and the reason.
pub(super) fn reported_notes(reported: &ReportedRollout) -> Vec<String> {
    if reported.is_of_kruise {
        return vec![NODES_UNKNOWN.to_owned(), KRUISE_RUNS.to_owned()];
    }
    let unreported = reported.conditions.is_empty();
    let notes = [
        Some(NODES_UNKNOWN.to_owned()),
        reported.unread.clone(),
        reported.liveness.message(),
        unreported.then(|| UNREPORTED.to_owned()),
    ];
    notes.into_iter().flatten().collect()
}

/// Returns the notes about faults, the most important first: a missing controller, then mistakes in the settings.
fn warnings(snapshot: &RolloutSnapshot) -> Vec<String> {
    let mistakes = texts(snapshot.notes.iter().filter(|note| note.warning));
    liveness_notes(snapshot)
        .into_iter()
        .chain(mistakes)
        .collect()
}

/// Returns all notes, the most important first, because a screen shows only some of them.
fn notes(snapshot: &RolloutSnapshot) -> Vec<String> {
    let rollout = snapshot.rollout();
    let mut notes = warnings(snapshot);
    notes.extend(everything_kept(snapshot));
    notes.extend(quietly_paused(&rollout));
    notes.extend(newcomers(&rollout));
    notes.extend(snapshot.partition_origin.clone());
    notes.extend(texts(snapshot.notes.iter().filter(|note| !note.warning)));
    notes
}

/// Returns a note if `partition` keeps all nodes on their present revision.
fn everything_kept(snapshot: &RolloutSnapshot) -> Option<String> {
    let (strategy, targeted) = (&snapshot.strategy, snapshot.plan.counts.targeted);
    let keeps_all = strategy.mode == Mode::AdvancedRollingUpdate
        && targeted > 0
        && strategy.partition.resolve_down(targeted) == targeted;
    keeps_all.then(|| {
        format!(
            "{} {} covers all {}, so no node is updated",
            strategy.name_of(PARTITION),
            strategy.partition,
            nodes(targeted)
        )
    })
}

/// Returns a note if the controller's conditions are about another revision than the current one.
fn outpaced(snapshot: &RolloutSnapshot) -> Option<String> {
    // A controller of this version doesn't overwrite the state that a newer version stored, so such a state can be old.
    let state = Some(&snapshot.state).filter(|state| !state.is_newer())?;
    let reported = state.reported.revision.as_ref()?;
    let present = snapshot.revision()?;
    (reported != present).then(|| {
        format!(
            "its conditions are still those of revision {reported}; if that persists, no controller is running, or it \
             cannot write them (see its Events WriteRefused and PermissionMissing): {LOOK_FOR_IT}"
        )
    })
}

/// Returns notes about a missing controller or permission, and its effect.
pub(super) fn liveness_notes(snapshot: &RolloutSnapshot) -> Vec<String> {
    if snapshot.is_of_kruise {
        return vec![KRUISE_RUNS.to_owned()];
    }
    let is_at_work = snapshot.liveness == ControllerLiveness::Lately;
    let is_silent = snapshot.liveness.silent_since().is_some();
    let unreported = (!snapshot.is_reported() && !is_silent).then(|| match snapshot.key.kind {
        SetKind::Advanced if is_at_work => UNSERVED.to_owned(),
        _ => UNREPORTED.to_owned(),
    });
    let is_forbidden = snapshot.liveness == ControllerLiveness::Forbidden;
    let matters = !is_forbidden || !matches!(snapshot.phase(), Phase::Complete { .. });
    let liveness_notes = snapshot.liveness.message().filter(|_| matters);
    let notes = [
        snapshot.unread.clone(),
        liveness_notes,
        unreported,
        outpaced(snapshot),
    ];
    notes.into_iter().flatten().collect()
}

/// Note for an Advanced DaemonSet on which the running controller has not reported.
const UNSERVED: &str = "no controller has reported yet; if that persists, the running one does not serve Advanced \
    DaemonSets (--controllers must include advanced, and manifests/components/advanced must be applied), or may not \
    write their status";

/// Note for a DaemonSet on which no controller has reported.
pub(super) const UNREPORTED: &str =
    "no controller has reported yet; if that persists, none is running (yurt-ds controller)";

#[cfg(test)]
mod tests;
