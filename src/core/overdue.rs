//! What holds a slot for longer than it should: every state that a node can be in while it is updated has a deadline.
//!
//! A pod that is being deleted has its grace period and [`MARGIN`]; a step of the native controller has [`MISSING_GRACE`],
//! and everything else [`PROGRESS_DEADLINE`]. What is past its deadline is told with the pod and what holds it, in one
//! sentence for conditions, Events and `ctl`.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::failing;
use super::fleet::{Fleet, Leaving, Node, Pod, Readiness};
use super::id::PodRevision;
use super::instant;
use super::instant::later;
use super::not_ready;
use super::phase::stuck;
use super::plan::{Plan, Stall};
use super::surge;
use super::verdict::{Progress, Verdict};
use super::words::named;

/// A kubelet has this long beyond the grace period of a pod, or after its node came back, to end it and to say so.
pub const MARGIN: Duration = Duration::from_secs(60);

/// The native controller makes a missing pod within a second or two; past this something refuses it.
pub(crate) const MISSING_GRACE: Duration = Duration::from_secs(15);

/// The native controller handles a change within a second; its replicas take over from each other, and are upgraded, within
/// minutes.
pub(crate) const BEHIND_PATIENCE: Duration = Duration::from_secs(300);

/// A node that takes longer than this is not just slow (Kubernetes, default of a Deployment's `progressDeadlineSeconds`).
pub(super) const PROGRESS_DEADLINE: Duration = Duration::from_secs(600);

/// Nodes that are past their deadline, by position in the fleet, and when the next one will be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Overdue {
    pub(super) nodes: Vec<usize>,
    pub(super) next: Option<Timestamp>,
}

impl Overdue {
    /// Who is at `now`. Nodes whose pods fail by themselves, or wait for somebody, are told elsewhere.
    ///
    /// `has_pairs`: some nodes have two pods.
    pub(super) fn of(fleet: &Fleet, verdicts: &[Verdict], has_pairs: bool, now: Timestamp) -> Self {
        let mut overdue = Self::default();
        for (position, verdict) in verdicts.iter().enumerate() {
            let is_told = matches!(verdict, Verdict::InProgress(_))
                || has_pairs && verdict.is_kept() && surge::is_followed(&fleet.nodes[position]);
            if !is_told {
                continue;
            }
            match stuck(&fleet.nodes[position], verdict, missing_grace(fleet), now) {
                Ok(Stall::NoProgress | Stall::PodsNotCreated) => overdue.nodes.push(position),
                Ok(_) => {}
                Err(at) => overdue.next = overdue.next.into_iter().chain(at).min(),
            }
        }
        overdue
    }
}

/// How long a missing pod may take. The first pods of a large fleet take their time: that is an installation, not a rollout.
pub(super) fn missing_grace(fleet: &Fleet) -> Duration {
    match fleet.replaces {
        true => MISSING_GRACE,
        false => PROGRESS_DEADLINE,
    }
}

/// When the last pod of this node that is being deleted should be gone; `None`: none is, or the API server has not said so.
pub(super) fn gone_by(node: &Node) -> Option<Timestamp> {
    let back = match node.readiness {
        Readiness::Ready { since } => since,
        Readiness::NotReady { .. } | Readiness::Gone => Timestamp::MAX,
    };
    let ends = ending(node).filter_map(|pod| Some(pod.leaving.as_deref()?.ends));
    Some(later(ends.max()?.max(back), MARGIN))
}

fn ending(node: &Node) -> impl Iterator<Item = &Pod> {
    node.pods.iter().filter(|pod| pod.terminating)
}

/// When a node in progress has to be further, and how it stalls if it is not; `None`: that depends on a change alone.
pub(super) fn deadline(
    node: &Node,
    progress: Progress,
    missing_grace: Duration,
) -> Option<(Timestamp, Stall)> {
    let no_progress = |since: Timestamp| Some((later(since, PROGRESS_DEADLINE), Stall::NoProgress));
    let revised = || node.pods.iter().map(Pod::revised).max();
    let made = || {
        let made = node.pods.iter().filter(|pod| pod.surge);
        made.map(|pod| pod.created).max()
    };
    let own = || surge::own(node).find(|pod| !pod.terminating);
    match progress {
        // The guard judges that before long.
        Progress::Missing { .. } if node.is_barred() => None,
        Progress::Missing { since } => Some((later(since?, missing_grace), Stall::PodsNotCreated)),
        Progress::Terminating
        | Progress::OldTerminating
        | Progress::SurgeLeaving
        | Progress::SurgeTakingOver
            if ending(node).next().is_some() =>
        {
            Some((gone_by(node)?, Stall::NoProgress))
        }
        // Ours waits for the pod that the native controller makes.
        Progress::SurgeTakingOver if own().is_none() => Some((
            later(node.podless_since?, MISSING_GRACE),
            Stall::PodsNotCreated,
        )),
        Progress::SurgeTakingOver => {
            let ready = node.pods.iter().filter_map(|pod| pod.ready_since).max();
            no_progress(ready.or_else(made)?)
        }
        // Ours waits until the other one serves.
        Progress::SurgeLeaving => {
            let unready = own().map(|own| own.unready_since.unwrap_or(own.revised()));
            no_progress(unready.max(made())?)
        }
        Progress::SurgeStarting => no_progress(made()?),
        Progress::Starting | Progress::UpdatingInPlace { .. } | Progress::Surplus => {
            no_progress(revised()?)
        }
        Progress::Reverting { since } => no_progress(since),
        // One that is Ready for the first time gets there by time alone; one that was late, or is so again and again, may not.
        Progress::Young { .. } | Progress::SurgeYoung { .. } => {
            let pod = node.pods.iter().max_by_key(|pod| pod.revised())?;
            let (by, stall) = no_progress(pod.revised())?;
            (pod.ready_since? >= by).then_some((by, stall))
        }
        Progress::Replacing | Progress::Terminating | Progress::OldTerminating => None,
    }
}

/// Whether a pod of this node fails by itself, in a state in which that is what holds it up.
pub(super) fn fails(node: &Node, progress: Progress) -> bool {
    let starts = matches!(
        progress,
        Progress::Starting
            | Progress::UpdatingInPlace { .. }
            | Progress::Reverting { .. }
            | Progress::SurgeStarting
    );
    starts && failing::any_on(node)
}

/// The pod of a node in progress that has to become available before the node is further; `None`: that is not what it waits for.
pub(super) fn awaited(node: &Node, progress: Progress) -> Option<&Pod> {
    let newest = || node.pods.iter().max_by_key(|pod| pod.created);
    let is_ending = ending(node).next().is_some();
    match progress {
        Progress::Starting
        | Progress::UpdatingInPlace { .. }
        | Progress::Reverting { .. }
        | Progress::Young { .. }
        | Progress::SurgeStarting
        | Progress::SurgeYoung { .. } => newest(),
        Progress::SurgeLeaving if !is_ending => surge::own(node).find(|pod| !pod.terminating),
        _ => None,
    }
}

/// What holds a node that is past its deadline; continues "node NAME: ".
pub fn words(fleet: &Fleet, node: &Node, verdict: &Verdict) -> String {
    let ending: Vec<String> = ending(node).map(does_not_end).collect();
    let Verdict::InProgress(progress) = verdict else {
        return ending.join("; ");
    };
    let newest = node.pods.iter().max_by_key(|pod| pod.created);
    let newest = newest.map_or("", |pod| pod.name.as_str());
    let own = surge::own(node).find(|pod| !pod.terminating);
    match progress {
        Progress::Terminating
        | Progress::OldTerminating
        | Progress::SurgeLeaving
        | Progress::SurgeTakingOver
            if !ending.is_empty() =>
        {
            ending.join("; ")
        }
        Progress::Missing { .. } => "the native DaemonSet controller makes no pod".to_owned(),
        Progress::SurgeTakingOver if own.is_none() => format!(
            "the native DaemonSet controller makes no pod of its own, which pod {newest} waits for"
        ),
        Progress::SurgeTakingOver => format!("the pod beside {newest} is not deleted"),
        Progress::SurgeLeaving => format!(
            "{}, and so the one beside it stays",
            not_ready::sentence(fleet, own.map_or("", |own| own.name.as_str()))
        ),
        Progress::Surplus => format!(
            "the native DaemonSet controller removes none of its {} pods",
            node.pods.len()
        ),
        _ => not_ready::sentence(fleet, newest),
    }
}

/// Nodes of which is said what holds them; of the rest the names.
pub(super) const EXPLAINED: usize = 3;

impl Plan {
    /// The nodes that are past their deadline, and what holds them: one sentence without a beginning.
    pub fn overdue_words(&self, fleet: &Fleet) -> String {
        let explained = self.overdue.iter().take(EXPLAINED).map(|position| {
            let (node, verdict) = (&fleet.nodes[*position], &self.verdicts[*position]);
            format!("{}: {}", node.name, words(fleet, node, verdict))
        });
        let rest = self.overdue.iter().skip(EXPLAINED);
        let mut rest = rest
            .map(|position| fleet.nodes[*position].name.as_str())
            .peekable();
        let is_more = rest.peek().is_some();
        let rest = is_more.then(|| format!("also {}", named(rest, 0)));
        let all: Vec<String> = explained.chain(rest).collect();
        format!("held up for too long: {}; see ctl why", all.join("; "))
    }

    /// Whether what is past its deadline is the end of outdated pods, and nothing else.
    pub(super) fn awaits_ends(&self, fleet: &Fleet) -> bool {
        self.overdue.iter().all(|position| {
            let node = &fleet.nodes[*position];
            let mut ending = ending(node).peekable();
            ending.peek().is_some() && ending.all(|pod| pod.revision == PodRevision::Outdated)
        })
    }

    /// The same, to follow a sentence; empty when there are none.
    pub fn overdue_aside(&self, fleet: &Fleet) -> String {
        match self.overdue.is_empty() {
            true => String::new(),
            false => format!("; {}", self.overdue_words(fleet)),
        }
    }
}

/// That a pod does not end, and what holds it.
fn does_not_end(pod: &Pod) -> String {
    let since = match pod.leaving.as_deref() {
        Some(Leaving { stamped, grace, .. }) if !grace.is_zero() => format!(
            " since {}, when its grace period of {} s was over",
            instant::words(*stamped),
            grace.as_secs()
        ),
        Some(Leaving { stamped, .. }) => format!(" since {}", instant::words(*stamped)),
        None => String::new(),
    };
    let finalizers: Vec<&str> = pod.exit.finalizers.iter().map(|name| &**name).collect();
    let held = match finalizers.as_slice() {
        [] => "its kubelet has not ended it (a hung volume, process or runtime)".to_owned(),
        [one] => format!("finalizer {one} holds it"),
        many => format!("finalizers {} hold it", many.join(", ")),
    };
    format!("pod {} is still terminating{since}: {held}", pod.name)
}

#[cfg(test)]
mod tests;
