//! Rows of a plan, the same in every output format. Field names are stable for scripts.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::measure::{MeasuredPace, rounded};
use crate::core::forecast::{Forecast, Replacement, ReplacementManner, RolloutWait};
use crate::core::messages::HELD;
use crate::core::{Phase, SetKind, Verdict, instant};
use crate::ctl::row::{NodeRow, SetRow, api_version};
use crate::ctl::snapshot::RolloutSnapshot;

/// Description of the fields of `-o json` and `-o yaml`, for the reference.
pub(crate) const FIELDS: &str = "\
Fields of -o json and -o yaml (fields may be added, but not renamed; null if unknown):
  of a plan       kind, namespace, name, change (the requested change), from and to (revisions; null for one that does
                  not exist yet), targeted, replaced, batches, begins, ends, seconds, slowSeconds (if every pod were as slow
                  as the slowest tenth), pace, steps, waits, broke (names, with --break), left, phase, message, notes,
                  cut (not over at --horizon)
  of pace         startSeconds, slowStartSeconds, measuredPods, crowded (these started together with more pods
                  than the plan starts at once), endSeconds, endMeasured (in the last rollout), reaction (from the end of a pod to the beginning
                  of the next: milliseconds, measured), inPlaceSeconds, inPlaceReaction
  of a step       node, batch, manner (delete, surge, inPlace, or create if there was none), begins, ready, seconds (from the beginning)
  of a wait       from, until, phase, reason (of the condition during the wait; Held if it waits for holds of nodes to end), message
  of left         node, verdict, reason, message: every node that does not run the revision at the end
  without nodes   kind, namespace, name, change, from, to, unknown (nodes), pods, outdated (of another revision than to),
                  message; nothing is predicted, and the exit code is 7";

/// Time between the starts of two steps (updates of single nodes) after which a new batch begins if no pod of the old batch becomes
/// Ready.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// Simulated rollout.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanRow {
    /// Kind of the DaemonSet, serialized as its API version.
    #[serde(serialize_with = "api_version")]
    pub(super) kind: SetKind,
    pub(super) namespace: String,
    pub(super) name: String,
    /// Planned changes in words.
    pub(super) change: Vec<String>,
    /// Hash of the revision before the change; `null` if it does not exist yet.
    pub(super) from: Option<String>,
    /// Hash of the revision that nodes get; `null` if it does not exist yet.
    pub(super) to: Option<String>,
    /// Number of nodes that should run a pod of the DaemonSet.
    pub(super) targeted: usize,
    /// Number of nodes whose pod is replaced, or created if there is none.
    pub(super) replaced: usize,
    pub(super) batches: usize,
    pub(super) begins: String,
    /// End of the rollout; `null` if no pod is replaced.
    ///
    /// For an incomplete rollout, the time when the last pod becomes Ready, or is created if it never becomes Ready.
    pub(super) ends: Option<String>,
    pub(super) seconds: u64,
    pub(super) slow_seconds: u64,
    pub(super) pace: MeasuredPace,
    pub(super) steps: Vec<StepRow>,
    pub(super) waits: Vec<WaitRow>,
    pub(super) broke: Vec<String>,
    /// Nodes without the new revision at the end.
    pub(super) left: Vec<LeftRow>,
    /// Phase at the end of the simulation; `message` explains it.
    pub(super) phase: &'static str,
    pub(super) message: String,
    pub(super) notes: Vec<String>,
    pub(super) cut: bool,
    /// True if the rollout is complete at the end of the simulation.
    #[serde(skip)]
    pub(super) complete: bool,
}

/// Replacement of the pod of one node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StepRow {
    pub(super) node: String,
    /// Number of the batch, starting with 1.
    pub(super) batch: usize,
    pub(super) manner: ReplacementManner,
    pub(super) begins: String,
    pub(super) ready: Option<String>,
    /// Seconds from the start of the plan to the start of this step.
    pub(super) seconds: u64,
    #[serde(skip)]
    pub(super) ready_seconds: Option<u64>,
}

/// Period in which no node can be updated.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WaitRow {
    pub(super) from: String,
    pub(super) until: Option<String>,
    /// Phase of the rollout in this period.
    pub(super) phase: &'static str,
    /// Reason of the condition in this period, or `Held` if the rollout waits for holds of nodes to end. `message` explains it.
    pub(super) reason: &'static str,
    pub(super) message: String,
    #[serde(skip)]
    pub(super) seconds: u64,
}

/// A node without the new revision at the end of the simulation.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LeftRow {
    pub(super) node: String,
    pub(super) verdict: &'static str,
    pub(super) reason: Option<String>,
    pub(super) message: String,
}

/// Hashes of the revisions before and after a change; `None` for one that does not exist yet.
pub(super) struct RevisionChange {
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
}

impl PlanRow {
    /// Builds the row. `played` is the simulated rollout, and `at_end` is the state of the DaemonSet at its end.
    pub(super) fn new(
        played: &Forecast,
        at_end: &RolloutSnapshot,
        change: Vec<String>,
        revisions: RevisionChange,
        pace: MeasuredPace,
    ) -> Self {
        let end = SetRow::new(at_end, false);
        let since = |at: Timestamp| rounded(at.duration_since(played.began).unsigned_abs());
        let rows = played.steps.iter().zip(batches(&played.steps));
        let row = |(step, batch): (&Replacement, usize)| StepRow {
            node: step.node.to_string(),
            batch,
            manner: step.manner,
            begins: instant::words(step.begins),
            ready: step.ready.map(instant::words),
            seconds: since(step.begins),
            ready_seconds: step.ready.map(since),
        };
        let steps: Vec<StepRow> = rows.map(row).collect();
        let batches = steps.last().map_or(0, |last| last.batch);
        let complete = matches!(at_end.phase(), Phase::Complete { .. });
        let min_ready = at_end.strategy.min_ready;
        let last = over(played, min_ready, complete);
        let seconds = last.map_or(0, since);
        let slower = pace.slow_start_seconds - pace.start_seconds;
        let wait = |wait: &RolloutWait| WaitRow {
            from: instant::words(wait.from),
            until: wait.until.map(instant::words),
            phase: wait.phase.word(),
            reason: wait.awaited.reason,
            message: wait.awaited.sentence(),
            seconds: since(wait.from),
        };
        let mut waits: Vec<WaitRow> = played.waits.iter().map(wait).collect();
        // Omit waits after the last step of a complete rollout, except waits for holds (annotations that keep the pods of a Node
        // for a while): a hold may end after `--horizon`.
        let trailing = |wait: &WaitRow| {
            complete
                && wait.reason != HELD
                && steps.last().is_none_or(|last| last.seconds <= wait.seconds)
        };
        waits.retain(|wait| !trailing(wait));
        Self {
            kind: end.kind,
            namespace: end.namespace,
            name: end.name,
            change,
            from: revisions.from,
            to: revisions.to,
            targeted: played.plan.counts.targeted,
            replaced: steps.len(),
            batches,
            begins: instant::words(played.began),
            ends: last.map(instant::words),
            seconds,
            slow_seconds: seconds + slower * batches as u64,
            pace,
            steps,
            waits,
            broke: played.broke.iter().map(ToString::to_string).collect(),
            left: left(at_end),
            phase: end.phase,
            message: end.message,
            notes: at_end.notes.iter().map(|note| note.text.clone()).collect(),
            cut: played.cut && !complete,
            complete,
        }
    }
}

/// Returns the batch number of each step, counted from 1.
///
/// A batch has the steps that begin before its first pod is Ready. If each update begins when another one ends, a batch has as many
/// steps as nodes are updated at once.
fn batches(steps: &[Replacement]) -> Vec<usize> {
    let mut batches = Vec::with_capacity(steps.len());
    let mut free: Option<Timestamp> = None;
    let mut batch = 1;
    for (position, step) in steps.iter().enumerate() {
        let idle = position > 0 && step.begins.duration_since(steps[position - 1].begins) > PAUSE;
        if free.map_or(idle, |free| step.begins >= free) {
            batch += 1;
            free = None;
        }
        free = free.or(step.ready);
        batches.push(batch);
    }
    batches
}

/// Returns the time when all new pods are available and all old ones are gone.
///
/// For an incomplete rollout, returns the time when the last pod becomes Ready, or is created if it never becomes Ready.
fn over(played: &Forecast, min_ready: Duration, complete: bool) -> Option<Timestamp> {
    let steps = played.steps.iter();
    let ready = steps.map(|step| step.ready.unwrap_or(step.begins)).max()?;
    let available = ready.saturating_add(min_ready).unwrap_or(ready);
    Some(if complete {
        available.max(played.last.unwrap_or(available))
    } else {
        ready
    })
}

fn left(end: &RolloutSnapshot) -> Vec<LeftRow> {
    let rollout = end.rollout();
    let verdicts = end.plan.verdicts.iter().enumerate();
    let left =
        verdicts.filter(|(_, verdict)| !matches!(verdict, Verdict::Done | Verdict::NotTargeted));
    left.map(|(position, _)| {
        let row = NodeRow::new(&rollout, position);
        LeftRow {
            node: row.node,
            verdict: row.verdict,
            reason: row.reason,
            message: row.message,
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the batch number of each step. A step is given by the seconds in which it begins and its pod becomes Ready.
    fn of(steps: &[(i64, Option<i64>)]) -> Vec<usize> {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let step = |(begins, ready): &(i64, Option<i64>)| Replacement {
            node: "".into(),
            manner: ReplacementManner::Delete,
            begins: at(*begins),
            ready: ready.map(at),
        };
        batches(&steps.iter().map(step).collect::<Vec<_>>())
    }

    #[test]
    fn a_batch_is_one_round_of_the_slots() {
        let ready = |begins: i64, takes: i64| (begins, Some(begins + takes));
        let together = [ready(0, 5), ready(0, 9), ready(9, 5), ready(9, 5)];
        assert_eq!(of(&together), [1, 1, 2, 2]);
        // Two nodes are updated at once. The next step begins when one of their pods is Ready.
        let sliding = [
            ready(0, 5),
            ready(0, 3),
            ready(3, 4),
            ready(5, 2),
            ready(7, 5),
        ];
        assert_eq!(of(&sliding), [1, 1, 1, 2, 3]);
        let apart = [ready(0, 2), ready(60, 2), ready(120, 2)];
        assert_eq!(of(&apart), [1, 2, 3]);
        assert_eq!(of(&[(0, None), (0, None), (30, None)]), [1, 1, 2]);
    }
}
