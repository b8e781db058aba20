//! Random stories with surge pods (`max-surge`). Pods are deleted, and the controller may crash at any write.
//!
//! In every story, neither the controller nor the native controller deletes the available pod of a node. At the end, every node has
//! one pod.
//!
//! This model is separate from [`world`](super::world), in which a node has only one pod. It models two pods on a node, with their
//! owners, their names and the native controller's choice between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::{Random, after, config, now};
use crate::core::testing::{fleet, old};
use crate::core::{Strategy, *};

/// Event of a story, which happens at one tick (a second).
#[derive(Clone, Copy, Debug)]
enum Event {
    Template(u8),
    /// A client other than the controller deletes the first or the second pod of a node.
    Kill(usize, usize),
    Offline(usize),
    Online(usize),
    Taint(usize),
    Untaint(usize),
    /// The controller crashes at one of its next writes, before or after the API server carries out the write. It is down for so
    /// many ticks.
    Die(usize, bool, i64),
    NativeStops(i64),
    /// If the DaemonSet owns exactly one pod on a node, this pod is not Ready for so many ticks. Surge pods stay Ready.
    Break(usize, i64),
    /// The strategy changes: yurt-ds stops or starts to update the pods.
    Abandon(Way),
    /// A user sets or removes a hold on a node.
    Hold(usize, bool),
    /// The program behind the hook agrees to the deletion of a node's pods.
    Unhook(usize),
    /// The value of `max-surge` changes.
    Surge(u32),
    /// The preDelete hooks are disabled in the settings.
    NoHooks,
}

/// Mode in a part of the story: rolling update, OTA, or not managed by yurt-ds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    RollOut,
    Ota,
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    Set,
    Revision(u8),
}

#[derive(Clone, Debug)]
struct ModelPod {
    name: String,
    template: u8,
    owner: Owner,
    created: i64,
    ready_at: i64,
    gone_at: Option<i64>,
    /// True if the pod may be deleted only after its preDelete hook has agreed.
    hooked: bool,
    preparing: bool,
    /// True if the controller's key in the readiness gate makes the pod not Ready.
    shut: bool,
}

#[derive(Clone, Debug)]
struct ModelNode {
    pods: Vec<ModelPod>,
    /// Creation times of pods that have ended, but that the native controller still sees, because it sees changes late.
    ghosts: Vec<i64>,
    online: Option<i64>,
    targeted: bool,
    held: bool,
}

#[derive(Clone, Copy, Debug)]
struct RateLimit {
    to_start: i64,
    to_terminate: i64,
}

struct World {
    strategy: Strategy,
    paces: Vec<RateLimit>,
    nodes: Vec<ModelNode>,
    wanted: u8,
    observed: u8,
    tick: i64,
    made: usize,
    /// Next crash: number of writes before the crash, and the other two values of `Event::Die`.
    dies: Option<(usize, bool, i64)>,
    away_until: i64,
    native_until: i64,
    /// True if the native controller sees changes in order.
    ///
    /// Otherwise, it sees the end of a pod as late as possible: when it creates the next pod.
    in_order: bool,
    way: Way,
    /// Number of nodes that may lack an available pod at once.
    allowed: usize,
    last: Option<Plan>,
}

/// Last tick with events. After it, nothing disturbs the rollout.
const END: i64 = 120;

impl World {
    fn new(strategy: Strategy, paces: Vec<RateLimit>, in_order: bool) -> Self {
        let pod = |node: usize| ModelPod {
            name: format!("a-x{node}"),
            template: 0,
            owner: Owner::Set,
            created: -1000,
            ready_at: -900,
            gone_at: None,
            hooked: true,
            preparing: false,
            shut: false,
        };
        let node = |node| ModelNode {
            pods: vec![pod(node)],
            ghosts: Vec::new(),
            online: Some(-5000),
            targeted: true,
            held: false,
        };
        Self {
            nodes: (0..paces.len()).map(node).collect(),
            strategy,
            paces,
            wanted: 0,
            observed: 0,
            tick: 0,
            made: 0,
            dies: None,
            away_until: 0,
            native_until: 0,
            in_order,
            way: Way::RollOut,
            allowed: 0,
            last: None,
        }
    }

    fn now(&self) -> k8s_openapi::jiff::Timestamp {
        after(now(), self.tick)
    }

    fn is_served(&self, node: usize) -> bool {
        let min_ready = self.strategy.min_ready.as_secs().cast_signed();
        let serves = |pod: &ModelPod| {
            pod.gone_at.is_none() && !pod.shut && self.tick >= pod.ready_at + min_ready
        };
        self.nodes[node].pods.iter().any(serves)
    }

    /// Makes a change to a node. Fails the test if the node loses its last available pod by the change, and more nodes than
    /// `allowed` have none.
    fn gently(
        &mut self,
        node: usize,
        what: &str,
        deed: impl FnOnce(&mut Self),
    ) -> Result<(), TestCaseError> {
        let before = (self.nodes[node].clone(), self.is_served(node));
        deed(self);
        let watched = self.nodes[node].online.is_some() && self.nodes[node].targeted;
        let unserved = (0..self.nodes.len()).filter(|node| !self.is_served(*node));
        prop_assert!(
            !watched || !before.1 || self.is_served(node) || unserved.count() <= self.allowed,
            "{what} left node {node} without an available pod at {}: {:?}",
            self.tick,
            before.0
        );
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        let (tick, size) = (self.tick, self.nodes.len());
        match event {
            Event::Template(template) => self.wanted = template,
            Event::Kill(node, pod) => {
                let node = node % size;
                let gone_at = tick + self.paces[node].to_terminate;
                let pods = &self.nodes[node].pods;
                let own = |pod: &&ModelPod| pod.owner == Owner::Set && pod.gone_at.is_none();
                // Don't delete a pod while the native controller has to choose between two. It may delete the other one, so that
                // the node would lose both because of this event.
                let is_choosing = pods.iter().filter(own).count() > 1;
                if let Some(pod) = pods.get(pod).filter(|_| !is_choosing) {
                    let name = pod.name.clone();
                    self.end(node, &name, gone_at);
                    self.haunt(node, &name);
                }
            }
            Event::Offline(node) => self.nodes[node % size].online = None,
            Event::Online(node) => {
                self.nodes[node % size].online.get_or_insert(tick);
            }
            Event::Taint(node) => self.nodes[node % size].targeted = false,
            Event::Untaint(node) => self.nodes[node % size].targeted = true,
            Event::Die(writes, before, ticks) => self.dies = Some((writes, before, ticks)),
            Event::NativeStops(ticks) => self.native_until = tick + ticks,
            Event::Break(node, ticks) => {
                let pods = self.nodes[node % size].pods.iter_mut();
                let mut own = pods.filter(|pod| pod.owner == Owner::Set && pod.gone_at.is_none());
                if let (Some(pod), None) = (own.next(), own.next()) {
                    pod.ready_at = pod.ready_at.max(tick + ticks);
                }
            }
            Event::Abandon(way) => self.way = way,
            Event::Hold(node, held) => self.nodes[node % size].held = held,
            Event::Surge(share) => self.strategy.max_surge = IntOrPercent::Number(share),
            Event::NoHooks => self.strategy.pre_delete = None,
            Event::Unhook(node) => {
                let pods = self.nodes[node % size].pods.iter_mut();
                pods.for_each(|pod| pod.hooked = false);
            }
        }
    }

    fn pass(&mut self) -> Result<(), TestCaseError> {
        self.tick += 1;
        let tick = self.tick;
        for node in self.nodes.iter_mut().filter(|node| node.online.is_some()) {
            node.pods
                .retain(|pod| pod.gone_at.is_none_or(|gone_at| gone_at > tick));
        }
        if tick >= self.native_until {
            self.native()?;
        }
        if tick >= self.away_until {
            self.decide()?;
        }
        Ok(())
    }

    /// Simulates the native controller: it observes the template, adopts pods of deleted revisions, creates missing pods and
    /// deletes surplus pods.
    fn native(&mut self) -> Result<(), TestCaseError> {
        let tick = self.tick;
        let min_ready = self.strategy.min_ready.as_secs().cast_signed();
        self.observed = self.wanted;
        let used: Vec<u8> = (self.nodes.iter().flat_map(|node| &node.pods))
            .filter(|pod| pod.owner == Owner::Set)
            .map(|pod| pod.template)
            .chain([self.wanted])
            .collect();
        for node in 0..self.nodes.len() {
            let ModelNode { pods, ghosts, .. } = &mut self.nodes[node];
            // Don't adopt a surge pod while the DaemonSet's own pod is unavailable. In reality, that pod recovers or is replaced
            // before so many new revisions exist.
            let waits = pods.iter().any(|pod| {
                let serves = !pod.shut && tick >= pod.ready_at + min_ready;
                pod.owner == Owner::Set && pod.gone_at.is_none() && !serves
            });
            for pod in pods {
                // When the ControllerRevision that owns a surge pod is deleted, the DaemonSet adopts the pod. Kubernetes deletes a
                // ControllerRevision only after several newer ones exist (`revisionHistoryLimit`).
                let is_in_use = |of| used.contains(of) || !ghosts.is_empty() || waits;
                if matches!(&pod.owner, Owner::Revision(of) if !is_in_use(of)) {
                    pod.owner = Owner::Set;
                }
            }
            let targeted = self.nodes[node].targeted;
            let own = self.nodes[node]
                .pods
                .iter()
                .filter(|pod| pod.owner == Owner::Set);
            if own.clone().count() == 0 && targeted {
                let name = format!("a-y{}", self.made);
                self.make(node, name, self.wanted, Owner::Set);
                self.nodes[node].ghosts.clear();
                continue;
            }
            let mut alive: Vec<_> = own.filter(|pod| pod.gone_at.is_none()).collect();
            alive.sort_by_key(|pod| (pod.created, pod.name.clone()));
            let oldest = alive.first().map(|pod| pod.created);
            let ghosts = self.nodes[node].ghosts.iter();
            let is_haunted = ghosts
                .min()
                .copied()
                .is_some_and(|ghost| oldest > Some(ghost));
            let kept = usize::from(!is_haunted);
            let surplus: Vec<String> = alive
                .iter()
                .skip(kept)
                .map(|pod| pod.name.clone())
                .collect();
            for name in surplus {
                let gone_at = tick + self.paces[node].to_terminate;
                self.gently(node, "the native controller", |world| {
                    world.end(node, &name, gone_at);
                })?;
            }
        }
        Ok(())
    }

    fn make(&mut self, node: usize, name: String, template: u8, owner: Owner) {
        self.made += 1;
        self.nodes[node].pods.push(ModelPod {
            name,
            template,
            owner,
            created: self.tick,
            ready_at: self.tick + self.paces[node].to_start,
            gone_at: None,
            hooked: true,
            preparing: false,
            shut: false,
        });
    }

    fn end(&mut self, node: usize, name: &str, gone_at: i64) {
        let mut pods = self.nodes[node].pods.iter_mut();
        if let Some(pod) = pods.find(|pod| pod.name == name) {
            pod.gone_at.get_or_insert(gone_at);
        }
    }

    /// Records that the pod `name` has ended, but that the native controller hasn't seen it.
    fn haunt(&mut self, node: usize, name: &str) {
        let Self {
            nodes, in_order, ..
        } = self;
        let ModelNode { pods, ghosts, .. } = &mut nodes[node];
        let own = |pod: &&ModelPod| pod.owner == Owner::Set && pod.name == name;
        let ghost = pods.iter().find(own).filter(|_| !*in_order);
        ghosts.extend(ghost.map(|pod| pod.created));
    }

    fn decide(&mut self) -> Result<(), TestCaseError> {
        let strategy = Strategy {
            mode: match self.way {
                Way::Ota => Mode::Ota,
                Way::RollOut | Way::Nothing => Mode::AdvancedRollingUpdate,
            },
            ..self.strategy.clone()
        };
        let (fleet, now) = (self.fleet(), self.now());
        let mut plan = decide(&strategy, &fleet, now);
        if self.way == Way::Nothing {
            plan.actions = release(&fleet, strategy.min_ready, now).actions;
        }
        for action in &plan.actions {
            let name = action.pod().name.to_string();
            let holds = |node: &ModelNode| node.pods.iter().any(|pod| pod.name == name);
            let node = self.nodes.iter().position(holds).expect("the pod is there");
            let gone_at = self.tick + self.paces[node].to_terminate;
            let writes: Vec<Write> = match action {
                Action::Delete(_) => vec![Write::End(name)],
                Action::TransferOwnership(_) => vec![Write::TransferOwnership(name)],
                Action::DeleteAfterSurge { successor, .. } => {
                    vec![
                        Write::End(name),
                        Write::TransferOwnership(successor.name.to_string()),
                    ]
                }
                Action::Surge { .. } => vec![Write::Make],
                Action::Mark {
                    preparing, gate, ..
                } => {
                    let shut = gate.as_ref().map(|gate| !gate.open);
                    vec![Write::Mark(name, *preparing, shut)]
                }
                Action::SetNeedUpgrade { .. } => continue,
                other => panic!("the model knows no {other:?}"),
            };
            for write in writes {
                let dies = self.dies.is_some_and(|(left, _, _)| left == 0);
                if let Some((left, ..)) = &mut self.dies {
                    *left = left.saturating_sub(1);
                }
                if dies && let Some((_, true, _)) = self.dies {
                    return self.die();
                }
                self.gently(node, "our write", |world| world.write(node, write, gone_at))?;
                if dies {
                    return self.die();
                }
            }
        }
        self.last = Some(plan);
        Ok(())
    }

    fn die(&mut self) -> Result<(), TestCaseError> {
        let ticks = self.dies.take().map_or(0, |(_, _, ticks)| ticks);
        self.away_until = self.tick + ticks;
        self.last = None;
        Ok(())
    }

    fn write(&mut self, node: usize, write: Write, gone_at: i64) {
        match write {
            Write::End(name) => {
                self.end(node, &name, gone_at);
                self.haunt(node, &name);
            }
            Write::TransferOwnership(name) => {
                let mut pods = self.nodes[node].pods.iter_mut();
                if let Some(pod) = pods.find(|pod| pod.name == name) {
                    pod.owner = Owner::Set;
                }
            }
            Write::Mark(name, preparing, shut) => {
                let now = self.tick;
                let mut pods = self.nodes[node].pods.iter_mut();
                if let Some(pod) = pods.find(|pod| pod.name == name) {
                    pod.preparing = preparing.unwrap_or(pod.preparing);
                    if shut == Some(false) && pod.shut {
                        pod.ready_at = pod.ready_at.max(now);
                    }
                    pod.shut = shut.unwrap_or(pod.shut);
                }
            }
            Write::Make => {
                let name = format!("a-0{}", self.made);
                self.make(node, name, self.wanted, Owner::Revision(self.wanted));
            }
        }
    }

    /// Returns the number of nodes with two pods, including terminating pods.
    fn doubled(&self) -> usize {
        let doubled = |node: &&ModelNode| node.pods.len() > 1;
        self.nodes.iter().filter(doubled).count()
    }

    fn spares(&self) -> usize {
        let online = self.nodes.iter().filter(|node| node.online.is_some());
        let pods = online.flat_map(|node| &node.pods);
        pods.filter(|pod| pod.owner != Owner::Set).count()
    }

    fn fleet(&self) -> Fleet {
        let node = |(number, node): (usize, &ModelNode)| Node {
            name: format!("n{number:02}").into(),
            labels: Labels::default(),
            hold: node.held.then(|| Hold {
                until: None,
                reason: "calibration".into(),
                unreadable: false,
            }),
            window: None,
            trouble: None,
            has_images: false,
            targeting: if node.targeted {
                Targeting::Run
            } else {
                Targeting::Keep
            },
            native: if node.targeted {
                Targeting::Run
            } else {
                Targeting::Keep
            },
            readiness: match node.online {
                Some(since) => Readiness::Ready {
                    since: after(now(), since),
                },
                None => Readiness::NotReady { since: None },
            },
            pods: node.pods.iter().map(|pod| self.view(pod)).collect(),
            disrupted_at: None,
            emptied: false,
            kept_away_by: None,
            had_pod: false,
            losses: None,
            cut_off: false,
            podless_since: node.pods.is_empty().then(|| self.now()),
        };
        Fleet {
            revision: if self.observed == self.wanted {
                RevisionState::Current(format!("h{}", self.wanted).into())
            } else {
                RevisionState::Unknown(RevisionUnknown::NotObserved)
            },
            in_order: self.in_order,
            ..fleet(self.nodes.iter().enumerate().map(node).collect())
        }
    }

    fn view(&self, pod: &ModelPod) -> Pod {
        let at = |tick: i64| after(now(), tick);
        Pod {
            name: pod.name.clone().into(),
            uid: pod.name.clone().into(),
            created: at(pod.created),
            revision: if pod.template == self.wanted {
                PodRevision::Current
            } else {
                PodRevision::Outdated
            },
            terminating: pod.gone_at.is_some(),
            ready_since: (pod.ready_at <= self.tick && !pod.shut).then(|| at(pod.ready_at)),
            // Without the controller's key in its readiness gate, the pod would be Ready.
            unready_since: (pod.ready_at <= self.tick && pod.shut).then(|| at(pod.ready_at)),
            exit: self.exit(pod).into(),
            started: Some(at(pod.created)),
            surge: pod.owner != Owner::Set,
            ..old(i64::from(pod.template) + 1)
        }
    }
}

impl World {
    /// Returns the labels, finalizers and marks of the pod that affect its deletion.
    fn exit(&self, pod: &ModelPod) -> Exit {
        let label = pod.hooked.then_some(("drain", "true"));
        let own = r#"[{"userAgent":"Lifecycle","key":"preDeleteHook"}]"#;
        let gate = Gate::read(Some(if pod.shut { (false, own) } else { (true, "") }));
        Exit {
            labels: label.into_iter().collect(),
            preparing: pod.preparing.then_some(PreDeleteHook { since: None }),
            gate: Some(gate.changed_at(Some(after(now(), pod.ready_at))).into()),
            ..Exit::default()
        }
    }
}

enum Write {
    End(String),
    TransferOwnership(String),
    /// Name of the pod, new mark for deletion, and new state of the readiness gate; `None` means no change.
    Mark(String, Option<bool>, Option<bool>),
    Make,
}

fn events() -> impl Random<Vec<(i64, Event)>> {
    let node = || 0..8_usize;
    let event = prop_oneof![
        4 => (0..3_u8).prop_map(Event::Template),
        3 => (node(), 0..2_usize).prop_map(|(node, pod)| Event::Kill(node, pod)),
        2 => node().prop_map(Event::Offline),
        3 => node().prop_map(Event::Online),
        1 => node().prop_map(Event::Taint),
        2 => node().prop_map(Event::Untaint),
        6 => (0..4_usize, any::<bool>(), 1..20_i64).prop_map(|(n, b, t)| Event::Die(n, b, t)),
        1 => (1..20_i64).prop_map(Event::NativeStops),
        3 => (node(), 1..40_i64).prop_map(|(node, ticks)| Event::Break(node, ticks)),
        3 => ways().prop_map(Event::Abandon),
        3 => (node(), any::<bool>()).prop_map(|(node, held)| Event::Hold(node, held)),
        4 => node().prop_map(Event::Unhook),
    ];
    vec((1..END, event), 0..30)
}

fn changes() -> impl Random<Event> {
    let node = || 0..8_usize;
    prop_oneof![
        4 => (0..3_u8).prop_map(Event::Template),
        4 => (node(), any::<bool>()).prop_map(|(node, held)| Event::Hold(node, held)),
        4 => node().prop_map(Event::Unhook),
        3 => (0..3_u32).prop_map(Event::Surge),
        1 => Just(Event::NoHooks),
    ]
}

fn ways() -> impl Random<Way> {
    prop_oneof![2 => Just(Way::RollOut), 1 => Just(Way::Ota), 1 => Just(Way::Nothing)]
}

/// Generates a preDelete hook or none. While a pod waits for the hook, it is not Ready.
fn hooks() -> impl Random<Option<Arc<PreDelete>>> {
    let hook = PreDelete {
        labels: BTreeMap::from([("drain".to_owned(), "true".to_owned())]),
        finalizers: Vec::new(),
        mark_not_ready: true,
    };
    option::weighted(0.4, Just(Arc::new(hook)))
}

fn paces() -> impl Random<Vec<RateLimit>> {
    let pace = (0..6_i64, 0..4_i64).prop_map(|(to_start, to_terminate)| RateLimit {
        to_start,
        to_terminate,
    });
    vec(pace, 1..8)
}

fn surging() -> impl Random<Strategy> {
    let min_ready = option::of(0..5_u64);
    let numbers = (super::shares(), min_ready, 0..10_u64, hooks());
    numbers.prop_map(|(max_surge, min_ready, settle, pre_delete)| Strategy {
        max_surge,
        max_unavailable: IntOrPercent::Number(0),
        pre_delete,
        min_ready: std::time::Duration::from_secs(min_ready.unwrap_or(0)),
        ready_settle: std::time::Duration::from_secs(settle),
        ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
    })
}

proptest! {
    #![proptest_config(config())]

    /// Checks that no controller deletes the last available pod of a node, and that every rollout completes with one pod per node.
    #[test]
    fn with_surge_no_served_node_is_ever_left_alone_and_every_story_ends_well(
        strategy in surging(), paces in paces(), events in events(), in_order: bool,
    ) {
        let mut world = World::new(strategy, paces, in_order);
        while world.tick < END {
            let tick = world.tick;
            for (_, event) in events.iter().filter(|(at, _)| *at == tick) {
                world.happen(*event);
            }
            world.pass()?;
        }
        for node in 0..world.nodes.len() {
            world.happen(Event::Online(node));
            world.happen(Event::Untaint(node));
            world.happen(Event::Hold(node, false));
        }
        world.happen(Event::Abandon(Way::RollOut));
        world.strategy.pre_delete = None;
        world.dies = None;
        for _ in 0..60 + 40 * world.nodes.len() {
            world.pass()?;
        }
        let plan = world.last.as_ref().expect("decided");
        prop_assert_eq!(plan.phase, Phase::Complete { offline: 0, kept: 0 }, "{:?}", plan.verdicts);
        prop_assert_eq!(&plan.actions, &[]);
        prop_assert_eq!(world.spares(), 0);
        prop_assert!(world.nodes.iter().all(|node| node.pods.len() == 1));
    }

    /// Checks that without faults exactly as many nodes have two pods as `max-surge` allows, and that no node is updated twice.
    #[test]
    fn with_surge_so_many_nodes_have_two_pods_and_not_one_more(
        strategy in surging(), paces in paces(), in_order: bool,
    ) {
        let strategy = Strategy { pre_delete: None, ..strategy };
        let mut world = World::new(strategy, paces, in_order);
        world.happen(Event::Template(1));
        let size = world.nodes.len();
        let allowed = world.strategy.max_surge.resolve(size);
        let mut most = 0;
        for _ in 0..60 + 40 * size {
            world.pass()?;
            most = most.max(world.doubled());
        }
        prop_assert_eq!(most, allowed);
        let thirds = if in_order { 0 } else { size };
        prop_assert_eq!(world.made, size + thirds);
        let plan = world.last.as_ref().expect("decided");
        prop_assert_eq!(plan.phase, Phase::Complete { offline: 0, kept: 0 }, "{:?}", plan.verdicts);
    }

    /// Checks the limit of nodes with two pods while the template changes often and pods terminate slowly.
    #[test]
    fn with_surge_fast_changes_leave_no_more_nodes_with_two_pods_and_no_node_with_three(
        strategy in surging(), paces in paces(), changes in vec((1..40_i64, 0..4_u8), 1..6), in_order: bool,
    ) {
        let strategy = Strategy { pre_delete: None, ..strategy };
        let mut world = World::new(strategy, paces, in_order);
        let size = world.nodes.len();
        let allowed = world.strategy.max_surge.resolve(size);
        for _ in 0..60 + 60 * size {
            let tick = world.tick;
            for (_, template) in changes.iter().filter(|(at, _)| *at == tick) {
                world.happen(Event::Template(*template));
            }
            world.pass()?;
            prop_assert!(world.doubled() <= allowed, "{} at {tick}", world.doubled());
            let most = world.nodes.iter().map(|node| node.pods.len()).max();
            prop_assert!(most <= Some(2), "{most:?} at {tick}");
            let plan = world.last.as_ref().expect("decided");
            let is_over = matches!(plan.phase, Phase::Complete { .. });
            prop_assert!(!is_over || world.doubled() == 0, "complete at {tick}");
        }
        let plan = world.last.as_ref().expect("decided");
        prop_assert_eq!(plan.phase, Phase::Complete { offline: 0, kept: 0 }, "{:?}", plan.verdicts);
    }

    /// Checks the limit of unavailable nodes while settings, holds, hooks and templates change.
    #[test]
    fn with_surge_and_a_budget_no_more_nodes_are_down_than_it_allows(
        strategy in surging(), paces in paces(), changes in vec((1..60_i64, changes()), 1..16), in_order: bool,
    ) {
        let strategy = Strategy { max_unavailable: IntOrPercent::Number(1), ..strategy };
        let mut world = World { allowed: 1, ..World::new(strategy, paces, in_order) };
        let size = world.nodes.len();
        for _ in 0..80 {
            let tick = world.tick;
            for (_, event) in changes.iter().filter(|(at, _)| *at == tick) {
                world.happen(*event);
            }
            world.pass()?;
        }
        for node in 0..size {
            world.happen(Event::Hold(node, false));
        }
        world.happen(Event::NoHooks);
        for _ in 0..60 + 40 * size {
            world.pass()?;
        }
        let plan = world.last.as_ref().expect("decided");
        prop_assert_eq!(plan.phase, Phase::Complete { offline: 0, kept: 0 }, "{:?}", plan.verdicts);
        prop_assert_eq!(world.spares(), 0);
    }
}
