//! Forecast of a rollout for `ctl plan`: decides and carries out plans for a copy of the fleet, in virtual time and without I/O.
//!
//! ```text
//! Fleet ──decide──► Plan ──actions──► Fleet
//!   ▲                                   │
//!   └── pods end, start, change ◄───────┘  after the durations of their nodes
//! ```
//!
//! The caller estimates the durations of pod steps and the answers of disruption budgets. Offline nodes stay offline, preDelete
//! hooks are never completed, and the API server accepts every write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::action::{Action, PodRef};
use super::engine::decide::decide;
use super::engine::manage::{FailedPodsBackoff, ManageTerms, manage};
use super::fleet::evictions::Refusal;
use super::fleet::in_place::{InPlace, InPlacePatch, InPlaceUpdate, RunningContainer};
use super::fleet::{Fleet, Leaving, OtaCondition, Pod, Readiness, Targeting};
use super::id::{NodeName, PodName, PodRevision, PodUid, Revision};
use super::instant::later;
use super::lifecycle::PreDeleteHook;
use super::messages::{HELD, StatusSentence};
use super::plan::{Phase, Plan, Stall};
use super::settings::{Scaling, Strategy};
use super::verdict::Verdict;

/// Time without a change after which the forecast treats a rollout as stuck. The controller reports a stall earlier than that.
const STUCK: Duration = Duration::from_secs(660);
/// Shortest wait that a forecast reports. Shorter waits are a normal part of a rollout.
const WAIT: SignedDuration = SignedDuration::from_secs(60);
/// Time after which Kubernetes marks a node without heartbeats NotReady (`--node-monitor-grace-period`, and a check every 5 s).
const SILENCE: Duration = Duration::from_secs(45);
/// Maximum number of plans at one instant. A plan's writes can change the fleet so that another plan follows at once.
const ROUNDS: usize = 8;
/// Time per node within which events are handled together. A fleet of ten thousand nodes then needs one decision per second of
/// virtual time.
const TOGETHER: Duration = Duration::from_micros(100);

/// Durations of the steps of a pod on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePace {
    /// Time from the deletion of a pod until the next one is created.
    pub end: Duration,
    /// Time from the creation of a pod until it is Ready.
    pub start: Duration,
    /// Time from an update in place until the pod is Ready again.
    pub change: Duration,
}

/// Input of a forecast, in addition to the fleet.
pub struct ForecastTerms<'a> {
    /// Settings of the DaemonSet.
    pub strategy: &'a Strategy,
    /// Function that returns the durations of the pods of a node.
    pub pace: &'a dyn Fn(&NodeName) -> NodePace,
    /// Duration of an image pre-pull on any node.
    pub pull: Duration,
    /// Template for new pods: each one is a copy of this pod.
    pub new_pod: Pod,
    /// Existing pods that never become Ready.
    pub broken: BTreeSet<PodUid>,
    /// Number of nodes that are assumed to be lost when they get the new revision. They are the first nodes that the rollout
    /// updates.
    pub breaks: usize,
    /// Function that returns the reason why a disruption budget rejects an eviction; `None` if the pod may be evicted.
    pub refusal: &'a dyn Fn(&Fleet, &Pod) -> Option<Refusal>,
    /// Limits on pod creation of an Advanced DaemonSet; `None` if Kubernetes creates the pods.
    pub scaling: Option<Scaling>,
    /// Time at which the forecast ends at the latest.
    pub horizon: Timestamp,
}

/// Timeline and result of a rollout.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// Time at which the rollout started.
    pub began: Timestamp,
    /// Nodes that get the new revision, in order.
    pub steps: Vec<Replacement>,
    /// Periods in which no pod is replaced although outdated nodes are left.
    pub waits: Vec<RolloutWait>,
    /// Nodes that were lost when they got the new revision ([`ForecastTerms::breaks`]).
    pub broke: Vec<NodeName>,
    /// Time at which a pod last started, ended or changed.
    pub last: Option<Timestamp>,
    /// State of the fleet at the end of the forecast.
    pub fleet: Fleet,
    /// Plan at the end of the forecast.
    pub plan: Plan,
    /// Time at which the forecast ended.
    pub ended: Timestamp,
    /// True if the forecast ended at the horizon, before the rollout was over.
    pub cut: bool,
}

/// A period in which no pod is replaced although outdated nodes are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutWait {
    /// Time at which the wait started.
    pub from: Timestamp,
    /// Time at which the wait ends if nothing else changes; `None` if it ends only with a change.
    pub until: Option<Timestamp>,
    /// Phase of the rollout during the wait.
    pub phase: Phase,
    /// Status sentence during the wait.
    pub awaited: StatusSentence,
}

/// Update of one node to the new revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Name of the node.
    pub node: NodeName,
    /// Kind of replacement.
    pub manner: ReplacementManner,
    /// Time at which the old pod is deleted or updated. If the node has no pod, the time at which the new pod is created.
    pub begins: Timestamp,
    /// Time at which the new pod is Ready; `None` if it never is.
    pub ready: Option<Timestamp>,
}

/// Kind of replacement of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplacementManner {
    /// The old pod is deleted first.
    Delete,
    /// The new pod is created first.
    Surge,
    /// The pod stays, and its images are changed in place.
    InPlace,
    /// The node had no pod.
    Create,
}

/// Simulates the rollout of `fleet` from `began` on. `said` returns the status sentence of a plan.
pub fn forecast(
    fleet: Fleet,
    terms: &ForecastTerms<'_>,
    began: Timestamp,
    said: impl Fn(&Fleet, &Plan) -> StatusSentence,
) -> Forecast {
    let mut world = World::new(fleet, terms, began);
    let mut waits: Vec<(RolloutWait, usize)> = Vec::new();
    let (plan, cut) = loop {
        let plan = world.settle();
        let until = match world.next(&plan) {
            Next::Over => break (plan, false),
            Next::Moves(until) => until,
            Next::Waits(until) => {
                if until.is_none_or(|until| until.duration_since(world.now) > WAIT) {
                    let wait = RolloutWait {
                        from: world.now,
                        until,
                        phase: plan.phase,
                        awaited: said(&world.fleet, &plan),
                    };
                    note(&mut waits, wait, world.steps.len());
                }
                match until {
                    Some(until) => until,
                    None => break (plan, false),
                }
            }
        };
        if until > terms.horizon {
            break (plan, true);
        }
        world.pass(until);
    };
    // A wait that lasts beyond the horizon has no known end, because nothing is simulated after the horizon. A hold is the
    // exception: its annotation contains the end.
    let cut_off = waits.last_mut().filter(|_| cut);
    if let Some((last, _)) = cut_off.filter(|(last, _)| last.awaited.reason != HELD) {
        last.until = last.until.filter(|until| *until <= terms.horizon);
    }
    Forecast {
        began,
        steps: world.steps,
        waits: waits.into_iter().map(|(wait, _)| wait).collect(),
        broke: world.broke,
        last: world.last,
        fleet: world.fleet,
        plan,
        ended: world.now,
        cut,
    }
}

/// Records a wait. If no replacement began since the last wait and the reason is the same, the last wait is extended instead.
fn note(waits: &mut Vec<(RolloutWait, usize)>, wait: RolloutWait, steps: usize) {
    match waits.last_mut() {
        Some((last, before)) if *before == steps && last.awaited.reason == wait.awaited.reason => {
            last.until = wait.until;
            last.awaited = wait.awaited;
        }
        _ => waits.push((wait, steps)),
    }
}

/// Step of the forecast after a plan was carried out.
enum Next {
    Over,
    /// Advance to this time, at which the next event of a pod is due.
    Moves(Timestamp),
    /// Advance to this time, at which the plan changes without an event; `None` if nothing changes any more.
    Waits(Option<Timestamp>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Ends,
    Starts,
    Changed,
    Pulled,
    /// The node of the pod is lost.
    Lost,
}

struct World<'a> {
    terms: &'a ForecastTerms<'a>,
    fleet: Fleet,
    now: Timestamp,
    /// Scheduled events, by time, position of the node, and pod.
    due: BTreeSet<(Timestamp, usize, PodUid, Happening)>,
    steps: Vec<Replacement>,
    /// Position in `steps` of each node's replacement.
    step_of: BTreeMap<usize, usize>,
    /// Positions of the nodes that had a pod at any time.
    inhabited: BTreeSet<usize>,
    broke: Vec<NodeName>,
    last: Option<Timestamp>,
    /// Last known time at which the plan changes without an event of a pod. Until then, the rollout counts as waiting, not as
    /// stuck.
    woken: Option<Timestamp>,
    /// Position of each pod's node.
    home: BTreeMap<PodUid, usize>,
    made: u64,
    backoff: FailedPodsBackoff,
}

impl<'a> World<'a> {
    fn new(fleet: Fleet, terms: &'a ForecastTerms<'a>, now: Timestamp) -> Self {
        let mut world = Self {
            terms,
            now,
            due: BTreeSet::new(),
            steps: Vec::new(),
            step_of: BTreeMap::new(),
            inhabited: BTreeSet::new(),
            broke: Vec::new(),
            last: None,
            woken: None,
            home: BTreeMap::new(),
            made: 0,
            backoff: FailedPodsBackoff::default(),
            fleet,
        };
        for position in 0..world.fleet.nodes.len() {
            world.begin(position);
        }
        world
    }

    /// Schedules the events of the pods that are on the node when the forecast starts.
    fn begin(&mut self, position: usize) {
        let node = &self.fleet.nodes[position];
        for pod in node.pods.iter() {
            self.inhabited.insert(position);
            self.home.insert(pod.uid.clone(), position);
        }
        if !node.is_ready() {
            return;
        }
        let pace = (self.terms.pace)(&node.name);
        for pod in node.pods.iter() {
            let is_broken = self.terms.broken.contains(&pod.uid) || pod.in_place.is_over;
            let (at, happening) = if pod.terminating {
                let asked = pod.leaving.as_ref().map(|leaving| leaving.asked_at());
                (later(asked.unwrap_or(self.now), pace.end), Happening::Ends)
            } else if pod.in_place.is_under_way() {
                (later(pod.revised(), pace.change), Happening::Changed)
            } else if pod.ready_since.is_none() && !is_broken {
                (later(pod.created, pace.start), Happening::Starts)
            } else {
                continue;
            };
            self.due
                .insert((at.max(self.now), position, pod.uid.clone(), happening));
        }
        let position = node.pods.is_empty().then_some(position);
        if let Some(position) = position {
            self.create_where_missing(position);
        }
    }

    /// Decides and carries out plans until no further plan follows at this instant. Returns the last plan.
    fn settle(&mut self) -> Plan {
        let mut plan = self.decide();
        for _ in 0..ROUNDS {
            let managed = self.manage();
            if plan.actions.is_empty() && !managed {
                break;
            }
            for action in std::mem::take(&mut plan.actions) {
                self.apply(action);
            }
            plan = self.decide();
        }
        plan
    }

    fn decide(&mut self) -> Plan {
        let plan = decide(self.terms.strategy, &self.fleet, self.now);
        self.fleet.record = plan.record.clone();
        self.fleet.pause = plan.pause.as_ref().map(|stand| stand.record);
        plan
    }

    /// Creates and deletes the pods of an Advanced DaemonSet. Returns true if there was anything to do.
    fn manage(&mut self) -> bool {
        let Some(scaling) = self.terms.scaling else {
            return false;
        };
        let managed = manage(
            &self.fleet,
            ManageTerms {
                strategy: Some(self.terms.strategy),
                keeps_pairs: false,
                scaling,
                creating: &BTreeMap::new(),
                refused: &BTreeMap::new(),
                orphans: &BTreeMap::new(),
                backoff: &self.backoff,
                now: self.now,
            },
        );
        let acts = !managed.create.is_empty() || !managed.actions.is_empty();
        for (node, _) in &managed.over {
            self.backoff.note(node, self.now);
        }
        for action in managed.actions {
            self.apply(action);
        }
        for name in &managed.create {
            let position = super::fleet::position_of(&self.fleet.nodes, name);
            if let Ok(position) = position {
                self.create(position, false);
            }
        }
        acts
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Delete(pod) => self.remove(&pod, false),
            Action::Evict(pod) => self.remove(&pod, true),
            Action::UpdateInPlace { pod, patch } => self.update(&pod, patch),
            Action::Mark { pod, preparing, .. } => {
                let since = Some(self.now);
                self.change(&pod, |pod| {
                    if let Some(preparing) = preparing {
                        pod.exit.preparing = preparing.then_some(PreDeleteHook { since });
                    }
                });
            }
            Action::Surge { beside, .. } => {
                if let Some(position) = self.position(&beside) {
                    self.create(position, true);
                }
            }
            Action::DeleteAfterSurge {
                pod,
                successor,
                evict,
            } => {
                self.remove(&pod, evict);
                self.change(&successor, |pod| pod.surge = false);
            }
            Action::TransferOwnership(pod) => self.change(&pod, |pod| pod.surge = false),
            Action::SetNeedUpgrade {
                pod,
                needed,
                revision,
                repelled,
                ..
            } => self.change(&pod, |pod| {
                pod.need_upgrade = Some(Box::new(OtaCondition {
                    status: needed,
                    revision: Some(revision),
                    waits: false,
                    repelled,
                    failure: None,
                }));
            }),
            Action::AskForImages { pod, revision, .. } => self.ask_for_images(&pod, revision),
            Action::RemoveConditions { pod, .. } => self.change(&pod, |pod| {
                pod.need_upgrade = None;
                pod.image_ready = None;
            }),
        }
    }

    fn position(&self, pod: &PodRef) -> Option<usize> {
        self.home.get(&pod.uid).copied()
    }

    fn change(&mut self, pod: &PodRef, change: impl FnOnce(&mut Pod)) {
        if let Some(position) = self.position(pod) {
            self.change_at(position, &pod.uid, change);
        }
    }

    fn change_at(&mut self, position: usize, uid: &PodUid, change: impl FnOnce(&mut Pod)) {
        let mut pods = self.fleet.nodes[position].pods.iter_mut();
        if let Some(pod) = pods.find(|pod| pod.uid == *uid) {
            change(pod);
        }
    }

    /// Deletes a pod; with `evict`, only if no disruption budget rejects its eviction.
    fn remove(&mut self, pod: &PodRef, evict: bool) {
        let Some(position) = self.position(pod) else {
            return;
        };
        let pods = &self.fleet.nodes[position].pods;
        let present = pods.iter().find(|present| present.uid == pod.uid);
        let Some(present) = present.cloned() else {
            return;
        };
        if evict {
            if let Some(refusal) = (self.terms.refusal)(&self.fleet, &present) {
                self.fleet.evictions.refuse(&present, refusal, self.now);
                return;
            }
            self.fleet.evictions.accept(&present);
        }
        let now = self.now;
        let end = (self.terms.pace)(&self.fleet.nodes[position].name).end;
        let ends = later(now, end);
        self.change_at(position, &pod.uid, |pod| {
            pod.terminating = true;
            pod.leaving = Some(Box::new(Leaving {
                ends,
                stamped: ends,
                grace: end,
            }));
        });
        let node = &mut self.fleet.nodes[position];
        if present.revision != PodRevision::Current {
            (node.disrupted_at, node.emptied) = (Some(now), true);
            self.step(position, ReplacementManner::Delete);
        }
        self.due
            .insert((ends, position, pod.uid.clone(), Happening::Ends));
        self.last = Some(now);
    }

    fn update(&mut self, pod: &PodRef, patch: InPlacePatch) {
        let Some(position) = self.position(pod) else {
            return;
        };
        let now = self.now;
        let is_current = self.fleet.revision.current() == Some(&patch.revision);
        let number = self.number_of(&patch.revision);
        let image = |container: &RunningContainer| {
            let mut images = patch.change.images.iter();
            let found = images.find(|(name, _)| *name == container.name);
            RunningContainer {
                image: found.map_or_else(|| container.image.clone(), |(_, image)| image.clone()),
                ..container.clone()
            }
        };
        self.change_at(position, &pod.uid, |pod| {
            pod.revision = if is_current {
                PodRevision::Current
            } else {
                PodRevision::Outdated
            };
            (pod.number, pod.of_template) = (number, is_current);
            (pod.ready_since, pod.unready_since) = (None, Some(now));
            pod.problem = None;
            pod.in_place = InPlace {
                revision: Some(patch.revision.clone()),
                containers: pod.in_place.containers.iter().map(image).collect(),
                update: Some(InPlaceUpdate {
                    at: now,
                    is_carried_out: false,
                }),
                unfinished: patch.before.clone(),
                reverted_from: patch.reverts.clone(),
                ..InPlace::clone(&pod.in_place)
            }
            .into();
        });
        self.fleet.nodes[position].disrupted_at = Some(now);
        let change = (self.terms.pace)(&self.fleet.nodes[position].name).change;
        if is_current {
            self.step(position, ReplacementManner::InPlace);
        }
        let (takes, happening) = if is_current && self.is_lost(position) {
            (SILENCE, Happening::Lost)
        } else {
            (change, Happening::Changed)
        };
        self.due
            .insert((later(now, takes), position, pod.uid.clone(), happening));
        self.last = Some(now);
    }

    fn number_of(&self, revision: &Revision) -> i64 {
        let mut earlier = self.fleet.earlier.iter();
        let found = earlier.find(|(known, _)| known == revision);
        found.map_or(self.terms.new_pod.number, |(_, number)| *number)
    }

    /// Requests the images on the pod's node. Their pull begins at once.
    fn ask_for_images(&mut self, pod: &PodRef, revision: Revision) {
        self.change(pod, |pod| {
            pod.image_ready = Some(Box::new(OtaCondition {
                status: false,
                revision: Some(revision),
                waits: true,
                repelled: false,
                failure: None,
            }));
        });
        if let Some(position) = self.position(pod) {
            let at = later(self.now, self.terms.pull);
            self.due
                .insert((at, position, pod.uid.clone(), Happening::Pulled));
        }
    }

    fn create_where_missing(&mut self, position: usize) {
        let node = &self.fleet.nodes[position];
        let belongs = node.native == Targeting::Run && node.is_ready();
        if self.terms.scaling.is_none() && belongs && node.pods.is_empty() {
            self.create(position, false);
        }
    }

    /// Creates a pod of the current revision.
    fn create(&mut self, position: usize, surge: bool) {
        self.made += 1;
        let (now, made) = (self.now, self.made);
        let name = format!("new-{made}");
        let uid = PodUid::from(name.as_str());
        let revision = self.fleet.revision.current().cloned();
        let like = &self.terms.new_pod;
        let pod = Pod {
            name: PodName::from(name.as_str()),
            uid: uid.clone(),
            created: now,
            revision: PodRevision::Current,
            of_template: true,
            surge,
            in_place: InPlace {
                revision,
                ..InPlace::clone(&like.in_place)
            }
            .into(),
            ..like.clone()
        };
        let node = &mut self.fleet.nodes[position];
        node.pods.push(pod);
        node.podless_since = None;
        let (is_ready, start) = (node.is_ready(), (self.terms.pace)(&node.name).start);
        match surge {
            true => self.step(position, ReplacementManner::Surge),
            false if !self.inhabited.contains(&position) => {
                self.step(position, ReplacementManner::Create);
            }
            false => {}
        }
        self.inhabited.insert(position);
        self.home.insert(uid.clone(), position);
        self.last = Some(now);
        if is_ready {
            let (takes, happening) = if self.is_lost(position) {
                (SILENCE, Happening::Lost)
            } else {
                (start, Happening::Starts)
            };
            self.due
                .insert((later(now, takes), position, uid, happening));
        }
    }

    /// Returns true if the node is one of the first `breaks` nodes, which are lost before their new pods are Ready.
    fn is_lost(&self, position: usize) -> bool {
        let step = self.step_of.get(&position);
        step.is_some_and(|step| *step < self.terms.breaks)
    }

    fn step(&mut self, position: usize, manner: ReplacementManner) {
        if self.step_of.contains_key(&position) {
            return;
        }
        let node = self.fleet.nodes[position].name.clone();
        if self.steps.len() < self.terms.breaks {
            self.broke.push(node.clone());
        }
        self.step_of.insert(position, self.steps.len());
        self.steps.push(Replacement {
            node,
            manner,
            begins: self.now,
            ready: None,
        });
    }

    /// Advances to `until`. Also handles the events that follow within [`TOGETHER`] times the number of nodes.
    fn pass(&mut self, until: Timestamp) {
        let nodes = u32::try_from(self.fleet.nodes.len()).unwrap_or(u32::MAX);
        let together = later(until, TOGETHER.saturating_mul(nodes));
        self.now = self.now.max(until);
        while let Some((at, position, uid, happening)) = self.due.pop_first() {
            if at > together {
                self.due.insert((at, position, uid, happening));
                break;
            }
            self.now = self.now.max(at);
            self.happen(position, &uid, happening);
        }
    }

    fn happen(&mut self, position: usize, uid: &PodUid, happening: Happening) {
        let now = self.now;
        self.last = Some(now);
        match happening {
            Happening::Ends => {
                let node = &mut self.fleet.nodes[position];
                node.pods.retain(|pod| pod.uid != *uid);
                if node.pods.iter().all(|pod| pod.surge) {
                    node.podless_since = Some(now);
                }
                self.create_where_missing(position);
            }
            Happening::Starts | Happening::Changed => {
                self.change_at(position, uid, become_ready(now));
                let node = &mut self.fleet.nodes[position];
                (node.disrupted_at, node.emptied) = (None, false);
                let mut pods = node.pods.iter();
                let is_new =
                    pods.any(|pod| pod.uid == *uid && pod.revision == PodRevision::Current);
                let step = self.step_of.get(&position).filter(|_| is_new);
                if let Some(step) = step.and_then(|step| self.steps.get_mut(*step)) {
                    step.ready.get_or_insert(now);
                }
            }
            Happening::Pulled => self.change_at(position, uid, |pod| {
                if let Some(images) = &mut pod.image_ready {
                    (images.status, images.waits) = (true, false);
                }
            }),
            Happening::Lost => {
                let node = &mut self.fleet.nodes[position];
                node.readiness = Readiness::NotReady { since: Some(now) };
                node.losses = Some(Arc::new([now]));
            }
        }
    }

    /// Returns the next step of the forecast: the next event, or the next time at which the plan may change.
    fn next(&mut self, plan: &Plan) -> Next {
        let happens = self.due.first().map(|(at, ..)| *at);
        let wake = plan.next_wake.filter(|wake| *wake > self.now);
        let is_moving = |verdict: &Verdict| {
            matches!(
                verdict,
                Verdict::InProgress(_) | Verdict::PullPending(_) | Verdict::HookPending { .. }
            )
        };
        if happens.is_none() && plan.verdicts.iter().any(is_moving) {
            let last = self.last.max(self.woken).unwrap_or(self.now);
            let stuck = later(last, STUCK);
            let over =
                self.now >= stuck && (wake.is_none() || matches!(plan.phase, Phase::Stalled(_)));
            let stuck = Some(stuck).filter(|stuck| *stuck > self.now);
            return match wake.into_iter().chain(stuck).min().filter(|_| !over) {
                None => Next::Over,
                Some(until) => self.wakes(until, wake),
            };
        }
        if let Some(happens) = happens {
            let until = wake.map_or(happens, |wake| wake.min(happens));
            return self.wakes(until, wake);
        }
        // A maintenance window never opens, which stalls the rollout. Nodes whose holds end can still be updated later.
        let is_held = |verdict: &Verdict| matches!(verdict, Verdict::Held { until: Some(_) });
        let goes_on = match plan.phase {
            Phase::Stalled(Stall::WindowNeverOpens) => plan.verdicts.iter().any(is_held),
            phase => !phase.needs_a_person(),
        };
        let wake = wake.filter(|_| goes_on);
        self.woken = wake.or(self.woken);
        match (plan.phase, wake) {
            (Phase::Complete { .. }, None) => Next::Over,
            (_, wake) => Next::Waits(wake),
        }
    }

    fn wakes(&mut self, until: Timestamp, wake: Option<Timestamp>) -> Next {
        if wake == Some(until) {
            self.woken = wake;
        }
        Next::Moves(until)
    }
}

/// Makes a pod Ready with its present images.
fn become_ready(now: Timestamp) -> impl FnOnce(&mut Pod) {
    move |pod| {
        pod.ready_since = Some(now);
        pod.started.get_or_insert(now);
        pod.problem = None;
        if let Some(update) = pod.in_place.update {
            let ran = |container: &RunningContainer| RunningContainer {
                reported: container.image.clone(),
                image_id: container.image.clone(),
                ..container.clone()
            };
            pod.in_place = InPlace {
                containers: pod.in_place.containers.iter().map(ran).collect(),
                update: Some(InPlaceUpdate {
                    is_carried_out: true,
                    ..update
                }),
                unfinished: BTreeMap::new(),
                ..InPlace::clone(&pod.in_place)
            }
            .into();
        }
    }
}
