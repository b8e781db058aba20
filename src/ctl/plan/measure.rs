//! Measures how long the current pods took to start or to be updated in place, and how long pods may take to terminate.
//!
//! Kubernetes timestamps are whole seconds. So a single duration is wrong by up to a second, but the average of many is right. The
//! simulated durations keep this average. Their spread is the measured spread without the part that rounding causes.
//!
//! Pods that start at the same time slow each other down. If a plan starts fewer pods at once than the last rollout, only the pods
//! that started with the fewest others are measured.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::core::forecast::NodePace;
use crate::core::{Fleet, Node, NodeName, Pod, PodUid, Readiness, Revision};

/// Maximum time from container start to Ready. A pod that needed longer is not measured, because its node was offline in between.
const READY_WITHIN: Duration = Duration::from_secs(600);
/// Time in which the kubelet of a returned node reports its node and its pods as Ready. It may report the pods first.
const RETURNING: Duration = Duration::from_secs(10);
/// Assumed time to pull the new images in advance. The registry's speed is unknown.
pub(super) const PULL: Duration = Duration::from_secs(2);
/// Assumed start time of a pod if no pod can be measured.
const ASSUMED: Duration = Duration::from_secs(10);
/// Time by which a pod may exceed its expected start time. After it, the plan assumes that the pod never becomes Ready.
const LATE: Duration = Duration::from_secs(60);
/// Assumed time from the end of one pod to the start of the next if no rollout can be measured. In this time, the watches,
/// Kubernetes' DaemonSet controller, the API server and yurt-ds react one after the other.
const REACTION: Duration = Duration::from_millis(300);
/// Maximum time from the end of one pod to the start of the next. A longer time has another cause and is not used.
const REACTION_MAX: Duration = Duration::from_secs(2);
/// Kubernetes' default of `terminationGracePeriodSeconds`.
const GRACE: u64 = 30;
/// Minimum number of measured pods, even if many other pods started at the same time. In large fleets, the minimum is the number of
/// pods divided by [`ONE_IN`].
const LEAST: usize = 10;
const ONE_IN: usize = 20;
/// Variance in seconds² that rounding adds to a duration: one twelfth for each of the two timestamps.
const CUT: f64 = 1.0 / 6.0;

/// Durations that a plan reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MeasuredPace {
    /// Average time from a pod's creation until it is Ready, in seconds.
    pub(super) start_seconds: u64,
    /// Time within which nine of ten pods are Ready, in seconds.
    pub(super) slow_start_seconds: u64,
    /// Number of measured pods; 0 if the start time is assumed.
    pub(super) measured_pods: usize,
    /// True if more pods started together than the plan starts at once. The plan may then be slower than the rollout.
    pub(super) crowded: bool,
    /// Time from a pod's deletion until it is gone, in seconds.
    pub(super) end_seconds: u64,
    /// True if `end_seconds` was measured in the last rollout. Otherwise it is `--ends-in` or the grace period.
    pub(super) end_measured: bool,
    /// Additional time from the end of a pod to the start of the next.
    pub(super) reaction: ReactionTimes,
    /// Average time from the change until a pod that is updated in place is Ready, in seconds; `null` if none was measured.
    pub(super) in_place_seconds: Option<u64>,
    /// Additional time from the end of an in-place update to the start of the next one.
    pub(super) in_place_reaction: ReactionTimes,
}

/// Time from the end of one pod's update to the start of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ReactionTimes {
    pub(super) milliseconds: u64,
    /// True if the time was measured in the last rollout, false if it is assumed.
    pub(super) measured: bool,
}

impl ReactionTimes {
    fn new(measured: Option<Duration>) -> Self {
        let time = measured.unwrap_or(REACTION);
        Self {
            milliseconds: time.as_millis().try_into().unwrap_or(u64::MAX),
            measured: measured.is_some(),
        }
    }

    fn time(self) -> Duration {
        Duration::from_millis(self.milliseconds)
    }
}

/// Durations of starts and in-place updates by node.
#[derive(Debug)]
pub(super) struct Measured {
    starts: Times,
    changes: Times,
    end: Duration,
    end_measured: bool,
    reaction: ReactionTimes,
    change_reaction: ReactionTimes,
}

/// Rollout of the current revision, which is measured.
#[derive(Clone, Debug)]
pub(super) struct LastRollout {
    pub(super) revision: Revision,
    /// Number of nodes that were updated at the same time.
    pub(super) width: usize,
    /// Time that a pod had to be Ready to count as available (`minReadySeconds`).
    pub(super) min_ready: Duration,
}

impl Measured {
    /// Measures the current pods for a plan that updates about `width` nodes at once.
    ///
    /// Skips pods that only waited for their node to return. `ends` is the time from a pod's deletion until it is gone, if the
    /// caller knows it.
    pub(super) fn new(
        pods: &[(NodeName, Pod)],
        returns: &BTreeMap<NodeName, Timestamp>,
        template: &Value,
        ends: Option<Duration>,
        width: usize,
        last: Option<&LastRollout>,
    ) -> Self {
        let grace = template["spec"]["terminationGracePeriodSeconds"].as_u64();
        let grace = Duration::from_secs(grace.unwrap_or(GRACE));
        let turn = |seen: fn(&NodeName, &Pod) -> Option<PodSpan>| {
            last.and_then(|last| replacement_gap(pods, seen, last))
        };
        let (replaced, changed) = (turn(start_of), turn(change_of));
        // In the last rollout, the next pod started less than a grace period after the previous one was available. So pods end
        // before their grace period is over.
        let sooner = replaced.filter(|turn| ends.is_none() && *turn < grace);
        let end = sooner.map(|turn| turn.saturating_sub(REACTION));
        let (end, end_measured) = (end.or(ends).unwrap_or(grace), end.is_some());
        let undisturbed = |seen: fn(&NodeName, &Pod) -> Option<PodSpan>| {
            let seen = pods.iter().filter_map(|(node, pod)| seen(node, pod));
            seen.filter(|one| !one.waited_for(returns.get(&one.node)))
                .collect()
        };
        Self {
            starts: Times::new(undisturbed(start_of), width),
            changes: Times::new(undisturbed(change_of), width),
            end,
            end_measured,
            reaction: ReactionTimes::new(if end_measured {
                None
            } else {
                replaced.and_then(|turn| reaction(turn, end))
            }),
            change_reaction: ReactionTimes::new(
                changed.and_then(|turn| reaction(turn, Duration::ZERO)),
            ),
        }
    }

    pub(super) fn pace(&self) -> MeasuredPace {
        let starts = self.starts();
        MeasuredPace {
            start_seconds: rounded(self.start()),
            slow_start_seconds: rounded(starts.slow().unwrap_or(ASSUMED).max(self.start())),
            measured_pods: starts.all.len(),
            crowded: starts.crowded,
            end_seconds: rounded(self.end),
            end_measured: self.end_measured,
            reaction: self.reaction,
            in_place_seconds: self.changes.mean().map(rounded),
            in_place_reaction: self.change_reaction,
        }
    }

    /// Returns the average time from creation to Ready.
    pub(super) fn start(&self) -> Duration {
        self.starts().mean().unwrap_or(ASSUMED)
    }

    /// Returns the time from a pod's deletion until the next pod can start.
    pub(super) fn end(&self) -> Duration {
        self.end + self.reaction.time()
    }

    /// Returns a function that returns the durations for a node. They were measured on the node's own pod, or else are taken in
    /// turn from the measured pods.
    pub(super) fn by_node(&self, fleet: &Fleet) -> impl Fn(&NodeName) -> NodePace {
        let (mut starts, mut changes) = (self.starts().in_turn(), self.changes.in_turn());
        let assumed = NodePace {
            end: self.end(),
            start: self.start(),
            change: self.start() + self.change_reaction.time(),
        };
        let pace = |node: &Node| {
            let start = starts(&node.name).unwrap_or(assumed.start);
            let change = changes(&node.name).unwrap_or(start);
            let pace = NodePace {
                start,
                change: change + self.change_reaction.time(),
                ..assumed
            };
            (node.name.clone(), pace)
        };
        let all: BTreeMap<NodeName, NodePace> = fleet.nodes.iter().map(pace).collect();
        move |node| all.get(node).copied().unwrap_or(assumed)
    }

    /// Returns the UIDs of pods that are assumed never to become Ready. Such a pod is not Ready, and has a problem or is overdue.
    pub(super) fn broken(&self, pods: &[(NodeName, Pod)], now: Timestamp) -> BTreeSet<PodUid> {
        let patience = LATE + 2 * self.starts().slow().unwrap_or(ASSUMED);
        let is_broken = |pod: &&Pod| {
            let age = now.duration_since(pod.revised()).unsigned_abs();
            pod.ready_since.is_none() && (age > patience || pod.problem.is_some())
        };
        let broken = pods.iter().map(|(_, pod)| pod).filter(is_broken);
        broken.map(|pod| pod.uid.clone()).collect()
    }

    /// Returns the measured durations of pod starts. If there are none, returns those of in-place updates.
    fn starts(&self) -> &Times {
        if self.starts.all.is_empty() {
            &self.changes
        } else {
            &self.starts
        }
    }
}

/// Rounds to the nearest whole second.
pub(super) fn rounded(time: Duration) -> u64 {
    (time + Duration::from_millis(500)).as_secs()
}

/// Time span of one pod: from its creation, or its last in-place update, until it is Ready.
struct PodSpan {
    node: NodeName,
    began: Timestamp,
    ended: Timestamp,
}

impl PodSpan {
    fn seconds(&self) -> f64 {
        self.ended.duration_since(self.began).as_secs_f64()
    }

    /// Returns true if the pod became Ready only when its node returned. Its duration then includes the time when the node was
    /// offline.
    fn waited_for(&self, returned: Option<&Timestamp>) -> bool {
        let late = self.ended.saturating_add(RETURNING).unwrap_or(self.ended);
        returned.is_some_and(|returned| self.began < *returned && *returned <= late)
    }
}

/// Returns the name of a node and the time when it became Ready; `None` if it is not Ready.
pub(super) fn returned(node: &Node) -> Option<(NodeName, Timestamp)> {
    match node.readiness {
        Readiness::Ready { since } => Some((node.name.clone(), since)),
        _ => None,
    }
}

/// Measured durations of all starts or of all in-place updates.
#[derive(Debug, Default)]
struct Times {
    by_node: BTreeMap<NodeName, Duration>,
    /// All durations, in the order of node names.
    all: Vec<Duration>,
    /// True if too few pods started together with fewer than `width` others. Then `all` also has pods that started with more
    /// others.
    crowded: bool,
}

impl Times {
    /// Keeps the spans that began while fewer than `width` others were in progress. If too few remain, adds the spans with the
    /// fewest others in progress.
    fn new(seen: Vec<PodSpan>, width: usize) -> Self {
        let least = LEAST.max(seen.len() / ONE_IN);
        let mut crowds: Vec<(usize, PodSpan)> = crowds(&seen).into_iter().zip(seen).collect();
        crowds.sort_by(|(a, one), (b, other)| (a, &one.node).cmp(&(b, &other.node)));
        let quiet = crowds.partition_point(|(crowd, _)| *crowd < width);
        crowds.truncate(quiet.max(least));
        let crowded = crowds.len() > quiet;
        let seconds: Vec<f64> = crowds.iter().map(|(_, seen)| seen.seconds()).collect();
        let times = unrounded(&seconds).into_iter();
        let by_node: BTreeMap<NodeName, Duration> = crowds
            .into_iter()
            .map(|(_, seen)| seen.node)
            .zip(times)
            .collect();
        let all = by_node.values().copied().collect();
        Self {
            by_node,
            all,
            crowded,
        }
    }

    fn mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.all.len()).ok()?;
        self.all.iter().sum::<Duration>().checked_div(count)
    }

    /// Returns the time within which nine of ten spans ended.
    fn slow(&self) -> Option<Duration> {
        let mut sorted = self.all.clone();
        sorted.sort();
        let rank = (sorted.len() * 9).div_ceil(10).max(1) - 1;
        sorted.get(rank).copied()
    }

    /// Returns a function that returns the time of a node. Nodes without their own time get the times of the measured nodes in
    /// turn, so the same calls always get the same times.
    fn in_turn(&self) -> impl FnMut(&NodeName) -> Option<Duration> {
        let mut others = self.all.iter().cycle();
        move |node| {
            let own = self.by_node.get(node);
            own.or_else(|| others.next()).copied()
        }
    }
}

/// Returns the start times and the end times, each sorted.
fn sorted(seen: &[PodSpan]) -> (Vec<Timestamp>, Vec<Timestamp>) {
    let (mut began, mut ended): (Vec<_>, Vec<_>) =
        seen.iter().map(|one| (one.began, one.ended)).unzip();
    began.sort();
    ended.sort();
    (began, ended)
}

/// Returns the average time in the last rollout from the moment when a pod became available to the start of the next pod.
///
/// When `width` pods are updated at once, the pod at position `width` follows the first available pod, and so on. Only gaps near
/// the median are averaged, because pauses and offline nodes cause much longer gaps.
fn replacement_gap(
    pods: &[(NodeName, Pod)],
    seen: fn(&NodeName, &Pod) -> Option<PodSpan>,
    last: &LastRollout,
) -> Option<Duration> {
    let of_last = pods
        .iter()
        .filter(|(_, pod)| pod.in_place.revision.as_ref() == Some(&last.revision));
    let seen: Vec<PodSpan> = of_last.filter_map(|(node, pod)| seen(node, pod)).collect();
    let (began, ended) = sorted(&seen);
    let next = began.iter().skip(last.width.max(1));
    let gap = |(next, free): (&Timestamp, &Timestamp)| next.duration_since(*free).as_secs_f64();
    let mut gaps: Vec<f64> = next.zip(&ended).map(gap).collect();
    if gaps.len() < LEAST {
        return None;
    }
    gaps.sort_by(f64::total_cmp);
    // Keep gaps up to 1 s from the median: a real gap of 0.3 s is measured as 0 s or 1 s, and only the mean of both is right.
    let median = gaps[gaps.len() / 2];
    let near = |gap: &f64| (gap - median).abs() <= 1.0;
    gaps.retain(near);
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    Duration::try_from_secs_f64(mean - last.min_ready.as_secs_f64()).ok()
}

/// Returns the time between two replacements without the time that a pod takes to terminate; `None` if the result is negative or too long.
fn reaction(replacement_gap: Duration, end: Duration) -> Option<Duration> {
    let reaction = replacement_gap.checked_sub(end);
    reaction.filter(|reaction| *reaction <= REACTION_MAX)
}

/// Returns for each span the number of other spans that were in progress when it began. A span that ended in the same second is not
/// counted.
fn crowds(seen: &[PodSpan]) -> Vec<usize> {
    let (began, ended) = sorted(seen);
    let crowd = |one: &PodSpan| {
        let begun = began.partition_point(|time| *time <= one.began);
        let over = ended.partition_point(|time| *time <= one.began);
        (begun - over).saturating_sub(1)
    };
    seen.iter().map(crowd).collect()
}

/// Estimates the real durations behind whole seconds. Keeps the mean, and removes the variance that rounding causes.
fn unrounded(seconds: &[f64]) -> Vec<Duration> {
    let count = seconds.len() as f64;
    let mean = seconds.iter().sum::<f64>() / count;
    let spread = seconds.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / count;
    let share = if spread > CUT {
        ((spread - CUT) / spread).sqrt()
    } else {
        0.0
    };
    let time = |one: &f64| Duration::from_secs_f64((mean + (one - mean) * share).max(0.0));
    seconds.iter().map(time).collect()
}

/// Returns the span from creation to Ready of a pod without container restarts and in-place updates; otherwise `None`.
fn start_of(node: &NodeName, pod: &Pod) -> Option<PodSpan> {
    let mut containers = pod.in_place.containers.iter();
    if pod.in_place.update.is_some() || containers.any(|container| container.restarts > 0) {
        return None;
    }
    span(node, pod, pod.created)
}

/// Returns the span from a pod's last in-place update to Ready.
fn change_of(node: &NodeName, pod: &Pod) -> Option<PodSpan> {
    let update = pod.in_place.update.filter(|update| update.is_carried_out)?;
    span(node, pod, update.at)
}

fn span(node: &NodeName, pod: &Pod, began: Timestamp) -> Option<PodSpan> {
    let ended = pod.ready_since?;
    let ran = pod.started.unwrap_or(began).max(began);
    let prompt = ended <= ran || ended.duration_since(ran).unsigned_abs() <= READY_WITHIN;
    (ended >= began && prompt).then(|| PodSpan {
        node: node.clone(),
        began,
        ended,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::core::PodProblem;
    use crate::core::fleet::in_place::{InPlaceUpdate, RunningContainer};
    use crate::core::testing::{at, current, fleet, node};

    /// Builds a pod on `node` that was created at `created`, accepted by its kubelet at `started`, and Ready at `ready`.
    fn pod(node: &str, created: i64, ready: i64, restarts: u32, started: i64) -> (NodeName, Pod) {
        let mut pod = current(1);
        pod.uid = format!("u-{node}").as_str().into();
        (pod.created, pod.started, pod.ready_since) =
            (at(created), Some(at(started)), Some(at(ready)));
        let container = RunningContainer {
            name: "c".into(),
            image: "".into(),
            reported: "".into(),
            image_id: "".into(),
            restarts,
            is_init: false,
        };
        pod.in_place.containers = [container].into();
        (node.into(), pod)
    }

    fn measured(pods: &[(NodeName, Pod)], width: usize) -> Measured {
        Measured::new(pods, &BTreeMap::new(), &json!({}), None, width, None)
    }

    fn told(measured: &Measured, nodes: &[&str]) -> Vec<NodePace> {
        let named = |name: &&str| node(name, current(1));
        let fleet = fleet(nodes.iter().map(named).collect());
        let pace = measured.by_node(&fleet);
        nodes.iter().map(|name| pace(&(*name).into())).collect()
    }

    #[test]
    fn start_times_are_measured_only_on_uninterrupted_starts() {
        let mut pods: Vec<(NodeName, Pod)> = (1..=11)
            .map(|seconds| pod(&format!("n{seconds}"), 0, seconds, 0, 0))
            .collect();
        pods.push(pod("restarted", 0, 500, 3, 499));
        pods.push(pod("returned after a day", 0, 86_400, 0, 2));
        let pace = MeasuredPace {
            start_seconds: 6,
            slow_start_seconds: 10,
            measured_pods: 11,
            crowded: false,
            end_seconds: 30,
            end_measured: false,
            reaction: ReactionTimes::new(None),
            in_place_seconds: None,
            in_place_reaction: ReactionTimes::new(None),
        };
        assert_eq!(measured(&pods, 11).pace(), pace);
    }

    #[test]
    fn without_pods_a_start_time_is_assumed() {
        let template = json!({ "spec": { "terminationGracePeriodSeconds": 5 } });
        let pace = |ends| Measured::new(&[], &BTreeMap::new(), &template, ends, 1, None).pace();
        let assumed = pace(None);
        assert_eq!(
            (
                assumed.start_seconds,
                assumed.measured_pods,
                assumed.end_seconds
            ),
            (10, 0, 5)
        );
        assert_eq!(pace(Some(Duration::from_secs(1))).end_seconds, 1);
        let nodes = told(
            &Measured::new(&[], &BTreeMap::new(), &template, None, 1, None),
            &["n1"],
        );
        assert_eq!(nodes[0].start, ASSUMED);
    }

    #[test]
    fn every_node_keeps_its_measured_start_time_and_new_nodes_get_those_of_others() {
        let pods = [pod("quick", 0, 2, 0, 0), pod("slow", 100, 120, 0, 100)];
        let nodes = told(&measured(&pods, 1), &["new", "newer", "quick", "slow"]);
        let starts: Vec<u64> = nodes.iter().map(|node| rounded(node.start)).collect();
        assert_eq!(starts, [2, 20, 2, 20]);
    }

    #[test]
    fn rounding_to_whole_seconds_is_compensated() {
        let same = [Duration::from_secs_f64(1.2); 5];
        assert_eq!(unrounded(&[1.0, 1.0, 2.0, 1.0, 1.0]), same);
        let kept = unrounded(&[0.0, 10.0]);
        assert!(kept[0] < Duration::from_millis(50) && kept[1] > Duration::from_millis(9_950));
    }

    #[test]
    fn pods_started_in_a_crowd_are_measured_only_if_there_are_no_others() {
        let crowd = (0..300).map(|number| pod(&format!("c{number}"), 0, 20, 0, 19));
        let alone = (0..20).map(|number| {
            let made = 1_000 + 10 * number;
            pod(&format!("a{number}"), made, made + 3, 0, made + 3)
        });
        let pods: Vec<(NodeName, Pod)> = crowd.chain(alone).collect();
        assert_eq!(measured(&pods, 5).pace().start_seconds, 3);
        let crowded = measured(&pods[..300], 5).pace();
        assert_eq!((crowded.start_seconds, crowded.crowded), (20, true));
        let all = measured(&pods, 400).pace();
        assert_eq!((all.start_seconds, all.measured_pods), (19, 320));
        assert!(!all.crowded);
    }

    /// Regression test: a pod that ended in the second in which the next one began counted as concurrent with it. Too many pods
    /// then seemed to start together, so that only the fastest or slowest pods were measured.
    #[test]
    fn pods_that_follow_each_other_within_a_second_are_no_crowd() {
        // Two pods are updated at once. A start takes 1.4 s, and the next pod begins immediately after it.
        let pods = (0..40).map(|number: i64| {
            let began = 1_400 * (number / 2);
            let ended = began + 1_400;
            pod(&format!("n{number}"), began / 1_000, ended / 1_000, 0, 0)
        });
        let pods: Vec<(NodeName, Pod)> = pods.collect();
        let measured = measured(&pods, 2);
        assert_eq!(measured.pace().measured_pods, 40);
        assert_eq!(measured.start(), Duration::from_millis(1_400));
    }

    #[test]
    fn pods_that_became_ready_when_their_node_returned_are_not_measured() {
        let mut pods: Vec<(NodeName, Pod)> = (1..=11)
            .map(|number| pod(&format!("n{number}"), 0, 3, 0, 1))
            .collect();
        pods.push(pod("away", 0, 58, 0, 3));
        let measured = |name: &str, since: i64| {
            let returns = BTreeMap::from([(NodeName::from(name), at(since))]);
            let measured = Measured::new(&pods, &returns, &json!({}), None, 20, None);
            measured.pace().measured_pods
        };
        assert_eq!(measured("away", -500), 12);
        assert_eq!(measured("away", 59), 11);
        // The node became Ready long after the pod, so it did not delay the pod.
        assert_eq!(measured("away", 3_600), 12);
    }

    #[test]
    fn an_in_place_update_is_measured_from_the_request_to_the_new_container() {
        let mut changed = pod("n1", 0, 1_007, 1, 0);
        changed.1.in_place.update = Some(InPlaceUpdate {
            at: at(1_000),
            is_carried_out: true,
        });
        let measured = measured(&[changed], 1);
        assert_eq!(measured.pace().in_place_seconds, Some(7));
        assert_eq!(
            told(&measured, &["n1"])[0].change,
            Duration::from_secs(7) + REACTION
        );
    }

    #[test]
    fn the_time_between_pods_is_measured_on_the_last_rollout() {
        // Three pods are updated at once. A start takes 5 s. The end of the old pod and the reaction take 3 s.
        let mut pods: Vec<(NodeName, Pod)> = (0..30)
            .map(|number| {
                pod(
                    &format!("n{number}"),
                    8 * (number / 3),
                    8 * (number / 3) + 5,
                    0,
                    0,
                )
            })
            .collect();
        for (_, pod) in &mut pods {
            pod.in_place.revision = Some("b".into());
        }
        let last = |revision: &str, width, min_ready| LastRollout {
            revision: revision.into(),
            width,
            min_ready: Duration::from_secs(min_ready),
        };
        let end = Some(Duration::from_secs(2));
        let reaction = |last: &LastRollout, end| {
            let pace =
                Measured::new(&pods, &BTreeMap::new(), &json!({}), end, 3, Some(last)).pace();
            let reaction = pace.reaction;
            reaction.measured.then_some(reaction.milliseconds)
        };
        assert_eq!(reaction(&last("b", 3, 0), end), Some(1_000));
        assert_eq!(reaction(&last("b", 3, 1), end), Some(0));
        assert_eq!(
            reaction(&last("b", 25, 0), end),
            None,
            "too few followed others"
        );
        assert_eq!(
            reaction(&last("b", 6, 0), end),
            None,
            "something else took time"
        );
        assert_eq!(reaction(&last("a", 3, 0), end), None, "another revision");
        assert_eq!(
            reaction(&last("b", 3, 0), None),
            None,
            "it did not end so late"
        );
        let end = |last: &LastRollout, ends| {
            let pace =
                Measured::new(&pods, &BTreeMap::new(), &json!({}), ends, 3, Some(last)).pace();
            (pace.end_seconds, pace.end_measured)
        };
        assert_eq!(end(&last("b", 3, 0), None), (3, true), "2.7 s and 0.3 s");
        assert_eq!(
            end(&last("b", 3, 0), Some(Duration::from_secs(9))),
            (9, false)
        );
        assert_eq!(end(&last("a", 3, 0), None), (30, false), "another revision");
    }

    /// Found on a real cluster: a reaction of 0.3 s was measured as 0.1 s, so the planned duration of an in-place rollout was a
    /// sixth too short.
    #[test]
    fn the_time_between_pods_is_measured_below_a_second() {
        // Twenty pods are updated at once. A start takes 1.3 s, and the next pod begins 0.3 s later.
        let places = (0..20).flat_map(|round| (0..20).map(move |place| (round, place)));
        let pods = places.map(|(round, place)| {
            let began = 1_600 * round + 80 * place;
            let name = format!("n{round}-{place}");
            let mut pod = pod(&name, began / 1_000, (began + 1_300) / 1_000, 0, 0);
            pod.1.in_place.revision = Some("b".into());
            pod
        });
        let pods: Vec<(NodeName, Pod)> = pods.collect();
        let last = LastRollout {
            revision: "b".into(),
            width: 20,
            min_ready: Duration::ZERO,
        };
        let end = Some(Duration::ZERO);
        let pace = Measured::new(&pods, &BTreeMap::new(), &json!({}), end, 20, Some(&last)).pace();
        let milliseconds = pace.reaction.milliseconds;
        assert!((250..=350).contains(&milliseconds), "{milliseconds}");
    }

    /// Found on a real cluster: the plan expected a pod to start although the scheduler had reported that it fits on no node.
    #[test]
    fn an_unschedulable_pod_counts_as_broken() {
        let mut no_room = pod("n1", 8, 9, 0, 0);
        no_room.1.ready_since = None;
        no_room.1.problem = Some(Box::new(PodProblem {
            reason: "Unschedulable".into(),
            detail: "".into(),
            restarts: 0,
            ended: 0,
        }));
        let pods = [no_room];
        assert_eq!(measured(&pods, 1).broken(&pods, at(10)).len(), 1);
    }

    #[test]
    fn an_overdue_pod_counts_as_broken() {
        let mut late = pod("n2", 0, 3, 0, 0);
        late.1.ready_since = None;
        let pods = [pod("n1", 0, 3, 0, 0), late];
        let measured = measured(&pods, 1);
        assert_eq!(measured.broken(&pods, at(10)).len(), 0);
        assert_eq!(measured.broken(&pods, at(1000)).len(), 1);
    }
}
