//! Random stories of Advanced DaemonSets, whose pods the yurt-ds controller creates.
//!
//! Nodes join and leave, labels change, pods fail and are deleted, and requests are rejected. After the last of these events, every
//! eligible node has to get a pod of the current revision.
//!
//! In the model [`world`](super::world), the native controller creates the pods. Here, the yurt-ds controller creates them, and its
//! cache may not show a requested pod yet.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::story::{paces, rolling};
use super::world::{RateLimit, at};
use super::{Random, config};
use crate::core::fleet::in_place::InPlace;
use crate::core::settings::Scaling;
use crate::core::testing::{fleet, old};
use crate::core::{Strategy, *};

/// Event of a story, which happens at one tick (a second). Most events concern one node.
#[derive(Clone, Copy, Debug)]
enum Event {
    Template(u8),
    Offline(usize),
    Online(usize),
    /// The Node and its pods are deleted.
    Leave(usize),
    /// The Node is created without pods. It may have existed before.
    Join(usize),
    /// A label or taint of the node changes, so that it is no longer eligible.
    Unfit(usize),
    Fit(usize),
    Kill(usize),
    /// The node's pod ends (`Failed`).
    Fail(usize),
    /// The API server rejects the next request to create a pod.
    Refuse,
    /// The controller is down for so many ticks. After that, it doesn't know its earlier requests.
    WeStop(i64),
}

/// Last tick with events. After it, all nodes exist and are online and eligible. The rollout has to complete without another event.
const END: i64 = 150;

/// Pause before a rejected request is repeated, in seconds.
const PAUSE: i64 = 2;

fn events() -> impl Random<Vec<(i64, Event)>> {
    let node = || 0..12_usize;
    let event = prop_oneof![
        3 => (0..3_u8).prop_map(Event::Template),
        3 => node().prop_map(Event::Offline),
        3 => node().prop_map(Event::Online),
        2 => node().prop_map(Event::Leave),
        2 => node().prop_map(Event::Join),
        1 => node().prop_map(Event::Unfit),
        1 => node().prop_map(Event::Fit),
        2 => node().prop_map(Event::Kill),
        2 => node().prop_map(Event::Fail),
        1 => Just(Event::Refuse),
        1 => (1..20_i64).prop_map(Event::WeStop),
    ];
    vec((1..END, event), 0..60)
}

#[derive(Clone, Debug)]
struct OnePod {
    name: PodName,
    uid: PodUid,
    template: u8,
    created: i64,
    ready_at: i64,
    ready_since: Option<i64>,
    over: bool,
    gone_at: Option<i64>,
}

impl OnePod {
    fn counts(&self) -> bool {
        self.gone_at.is_none() && !self.over
    }

    fn view(&self, wanted: u8) -> Pod {
        Pod {
            name: self.name.clone(),
            uid: self.uid.clone(),
            created: at(self.created),
            revision: if self.template == wanted {
                PodRevision::Current
            } else {
                PodRevision::Outdated
            },
            terminating: self.gone_at.is_some(),
            ready_since: self.ready_since.filter(|_| !self.over).map(at),
            started: Some(at(self.created)),
            in_place: InPlace {
                is_over: self.over,
                ..InPlace::default()
            }
            .into(),
            ..old(1)
        }
    }
}

#[derive(Clone, Debug)]
struct Place {
    name: NodeName,
    pace: RateLimit,
    is_there: bool,
    fits: bool,
    readiness: Readiness,
    pods: Vec<OnePod>,
    podless_since: i64,
    had_pod: bool,
    /// True if the rollout deleted the node's pod and no pod has been created there since.
    emptied: bool,
}

impl Place {
    fn is_online(&self) -> bool {
        matches!(self.readiness, Readiness::Ready { .. })
    }

    fn belongs(&self) -> bool {
        self.is_there && self.fits
    }

    fn view(&self, wanted: u8) -> Option<Node> {
        let targeting = if self.fits {
            Targeting::Run
        } else {
            Targeting::No
        };
        let readiness = if self.is_there {
            self.readiness
        } else {
            Readiness::Gone
        };
        let is_seen = !self.pods.is_empty() || self.belongs();
        is_seen.then(|| Node {
            name: self.name.clone(),
            labels: Labels::default(),
            hold: None,
            window: None,
            targeting,
            native: targeting,
            readiness,
            pods: self.pods.iter().map(|pod| pod.view(wanted)).collect(),
            disrupted_at: None,
            emptied: self.emptied,
            kept_away_by: None,
            had_pod: self.had_pod,
            losses: None,
            cut_off: false,
            podless_since: self.pods.is_empty().then(|| at(self.podless_since)),
            trouble: None,
            has_images: false,
        })
    }

    fn kill(&mut self, tick: i64) {
        let gone_at = tick + self.pace.to_terminate;
        for pod in &mut self.pods {
            pod.gone_at.get_or_insert(gone_at);
        }
    }

    fn pass(&mut self, tick: i64) {
        let ends = self.is_online() || !self.is_there;
        let before = self.pods.len();
        self.pods.retain(|pod| {
            let is_gone = pod.gone_at.is_some_and(|gone_at| gone_at <= tick);
            !(ends && is_gone)
        });
        if before > 0 && self.pods.is_empty() {
            (self.podless_since, self.had_pod) = (tick, self.is_there);
        }
        let online = self.is_online();
        for pod in self.pods.iter_mut().filter(|pod| online && pod.counts()) {
            if pod.ready_at <= tick {
                pod.ready_since.get_or_insert(tick);
            }
        }
    }
}

/// Requested creation of a pod: its node, its template, and the tick at which it is carried out.
#[derive(Clone, Copy, Debug)]
struct Asked {
    node: usize,
    template: u8,
    due: i64,
}

struct Telling {
    places: Vec<Place>,
    strategy: Strategy,
    scaling: Scaling,
    wanted: u8,
    tick: i64,
    next_pod: usize,
    refuse_next: bool,
    we_are_back: i64,
    /// Requests in progress, which the controller also records in `creating`.
    asked: Vec<Asked>,
    creating: BTreeMap<NodeName, Timestamp>,
    backoff: FailedPodsBackoff,
    creations_wait: Option<i64>,
    record: Option<FailureRecord>,
    pause: Option<PauseRecord>,
    /// Input and results of the last decision.
    last: Option<(Fleet, Plan, Manage)>,
    stale: bool,
}

impl Telling {
    fn new(strategy: Strategy, scaling: Scaling, paces: &[RateLimit], settled: bool) -> Self {
        let place = |(i, pace): (usize, &RateLimit)| Place {
            name: format!("n{i:02}").into(),
            pace: *pace,
            is_there: true,
            fits: true,
            readiness: Readiness::Ready { since: at(-10_000) },
            pods: Vec::from_iter(settled.then(|| OnePod {
                name: format!("p{i}").into(),
                uid: format!("u{i}").into(),
                template: 0,
                created: -10_000,
                ready_at: -10_000,
                ready_since: Some(-10_000),
                over: false,
                gone_at: None,
            })),
            podless_since: 0,
            had_pod: false,
            emptied: false,
        };
        Self {
            places: paces.iter().enumerate().map(place).collect(),
            strategy,
            scaling,
            wanted: 0,
            tick: 0,
            next_pod: paces.len(),
            refuse_next: false,
            we_are_back: 0,
            asked: Vec::new(),
            creating: BTreeMap::new(),
            backoff: FailedPodsBackoff::default(),
            creations_wait: None,
            record: None,
            pause: None,
            last: None,
            stale: true,
        }
    }

    fn now(&self) -> Timestamp {
        at(self.tick)
    }

    fn happen(&mut self, event: Event) {
        let (tick, size, now) = (self.tick, self.places.len(), self.now());
        let place = |n: usize| n % size;
        match event {
            Event::Template(template) => self.wanted = template,
            Event::Offline(n) => self.set_online(place(n), false, now),
            Event::Online(n) => self.set_online(place(n), true, now),
            Event::Leave(n) => {
                let place = &mut self.places[place(n)];
                place.is_there = false;
                place.kill(tick);
                (place.had_pod, place.emptied) = (false, false);
            }
            Event::Join(n) => self.join(place(n)),
            Event::Unfit(n) => self.places[place(n)].fits = false,
            Event::Fit(n) => self.places[place(n)].fits = true,
            Event::Kill(n) => self.places[place(n)].kill(tick),
            Event::Fail(n) => {
                let place = &mut self.places[place(n)];
                if place.is_online() {
                    place.pods.iter_mut().for_each(|pod| pod.over = true);
                }
            }
            Event::Refuse => self.refuse_next = true,
            Event::WeStop(ticks) => {
                self.we_are_back = self.tick + ticks;
                self.creating.clear();
                self.asked.clear();
                self.creations_wait = None;
                self.backoff = FailedPodsBackoff::default();
                self.places.iter_mut().for_each(|place| {
                    (place.had_pod, place.emptied) = (false, false);
                });
                (self.last, self.stale) = (None, true);
            }
        }
    }

    fn join(&mut self, n: usize) {
        let (tick, now) = (self.tick, self.now());
        let place = &mut self.places[n];
        // A node can only join again after the old Node and its pods are gone, because the name is the same.
        if !place.is_there && place.pods.is_empty() {
            place.is_there = true;
            place.podless_since = tick;
            place.readiness = Readiness::Ready { since: now };
        }
    }

    fn set_online(&mut self, n: usize, online: bool, now: Timestamp) {
        let place = &mut self.places[n];
        if place.is_online() != online {
            place.readiness = if online {
                Readiness::Ready { since: now }
            } else {
                Readiness::NotReady { since: Some(now) }
            };
        }
    }

    fn fleet(&self) -> Fleet {
        let nodes = self.places.iter();
        Fleet {
            revision: RevisionState::Current(format!("hash-{}", self.wanted).into()),
            replaces: true,
            record: self.record.clone(),
            pause: self.pause,
            kind: SetKind::Advanced,
            ..fleet(nodes.filter_map(|place| place.view(self.wanted)).collect())
        }
    }

    /// Simulates one second: the cluster changes, and the controller decides if it has a reason.
    fn pass(&mut self) -> Result<(), TestCaseError> {
        self.tick += 1;
        let tick = self.tick;
        self.places.iter_mut().for_each(|place| place.pass(tick));
        self.answer();
        for place in &self.places {
            let counted = place.pods.iter().filter(|pod| pod.counts()).count();
            prop_assert!(counted <= 1, "two pods on {}", place.name);
        }
        let fleet = self.fleet();
        if self.tick >= self.we_are_back && self.has_reason(&fleet) {
            self.decide(fleet)?;
        }
        Ok(())
    }

    /// Carries out the requests that are due.
    fn answer(&mut self) {
        let (due, asked) = (self.asked.iter().copied()).partition(|asked| asked.due <= self.tick);
        self.asked = asked;
        let due: Vec<Asked> = due;
        for Asked { node, template, .. } in due {
            let place = &mut self.places[node];
            self.creating.remove(&place.name);
            self.stale = true;
            if std::mem::take(&mut self.refuse_next) {
                self.creations_wait = Some(self.tick + PAUSE);
                continue;
            }
            let number = self.next_pod;
            self.next_pod += 1;
            place.emptied = false;
            place.pods.push(OnePod {
                name: format!("p{number}").into(),
                uid: format!("u{number}").into(),
                template,
                created: self.tick,
                ready_at: self.tick + place.pace.to_start,
                ready_since: None,
                over: false,
                // If the node doesn't exist, its new pod is removed at once.
                gone_at: (!place.is_there).then_some(self.tick),
            });
        }
    }

    /// Returns true if the controller has a reason to decide: a change, or a time that it requested.
    fn has_reason(&self, fleet: &Fleet) -> bool {
        let now = self.now();
        let is_due = |wake: &Option<Timestamp>| wake.is_some_and(|wake| wake <= now);
        let waits = self.creations_wait.is_some_and(|until| until == self.tick);
        self.stale
            || waits
            || self.last.as_ref().is_none_or(|(seen, plan, managed)| {
                seen != fleet || is_due(&plan.next_wake) || is_due(&managed.wake)
            })
    }

    fn decide(&mut self, fleet: Fleet) -> Result<(), TestCaseError> {
        self.stale = false;
        let now = self.now();
        let terms = ManageTerms {
            strategy: Some(&self.strategy),
            keeps_pairs: false,
            scaling: self.scaling,
            creating: &self.creating,
            refused: &BTreeMap::new(),
            orphans: &BTreeMap::new(),
            backoff: &self.backoff,
            now,
        };
        let managed = manage(&fleet, terms);
        let plan = decide(&self.strategy, &fleet, now);
        self.judge_budget(&fleet, &plan, &managed)?;
        let replaced: BTreeSet<&PodUid> = plan
            .actions
            .iter()
            .map(|action| &action.pod().uid)
            .collect();
        let emptied: Vec<PodUid> = replaced
            .difference(&managed.leaving.iter().collect())
            .map(|uid| (*uid).clone())
            .collect();
        for action in managed.clone().with_rollout(plan.actions.clone()) {
            let (Action::Delete(pod) | Action::Evict(pod)) = &action else {
                panic!("the model knows no {action:?}");
            };
            let holds = |place: &&mut Place| place.pods.iter().any(|one| one.uid == pod.uid);
            let place = self.places.iter_mut().find(holds);
            let place = place.expect("the pod is there");
            let gone_at = self.tick + place.pace.to_terminate;
            let mut pods = place.pods.iter_mut();
            if let Some(pod) = pods.find(|one| one.uid == pod.uid) {
                pod.gone_at.get_or_insert(gone_at);
            }
            place.emptied |= emptied.contains(&pod.uid);
        }
        for (node, _) in &managed.over {
            self.backoff.note(node, now);
        }
        if self.creations_wait.is_none_or(|until| until <= self.tick) {
            self.creations_wait = None;
            self.ask(&managed.create)?;
        }
        (self.record, self.pause) = (
            plan.record.clone(),
            plan.pause.as_ref().map(|stand| stand.record),
        );
        self.last = Some((fleet, plan, managed));
        Ok(())
    }

    /// Requests pods on these nodes. Fails the test if `partition` forbids one of them.
    fn ask(&mut self, create: &[NodeName]) -> Result<(), TestCaseError> {
        for name in create {
            let node = self.places.iter().position(|place| place.name == *name);
            let node = node.expect("the node is there");
            prop_assert!(self.places[node].belongs(), "{name} gets a pod");
            self.creating.insert(name.clone(), self.now());
            let due = self.tick + self.places[node].pace.to_create.max(1);
            self.asked.push(Asked {
                node,
                template: self.wanted,
                due,
            });
        }
        let lost = self.places.iter().filter(|place| place.emptied).count();
        if self.scaling.partitioned && create.len() > lost {
            let targeted = self.places.iter().filter(|place| place.belongs()).count();
            let kept = self.strategy.partition.resolve_down(targeted);
            let asked = self.asked.iter().map(|asked| &self.places[asked.node]);
            let new = self.new_pods() + asked.filter(|place| place.belongs()).count();
            prop_assert!(
                new + kept <= targeted.max(kept),
                "{new} of {targeted}, {kept} kept"
            );
        }
        Ok(())
    }

    /// Returns the number of nodes with a pod of the current revision.
    fn new_pods(&self) -> usize {
        let is_new = |pod: &OnePod| pod.counts() && pod.template == self.wanted;
        let places = self.places.iter().filter(|place| place.belongs());
        places.filter(|place| place.pods.iter().any(is_new)).count()
    }

    /// Checks that the rollout stays within its budget, even if other clients delete pods.
    fn judge_budget(
        &self,
        fleet: &Fleet,
        plan: &Plan,
        managed: &Manage,
    ) -> Result<(), TestCaseError> {
        let now = self.now();
        let serves = |pod: &Pod| super::is_available(pod, &self.strategy, now);
        let taken = |pod: &Pod| {
            let mut actions = plan.actions.iter();
            actions.any(|action| action.pod().uid == pod.uid) && !managed.leaving.contains(&pod.uid)
        };
        let ready = fleet
            .nodes
            .iter()
            .filter(|node| node.is_ready() && node.targeting == Targeting::Run);
        let taken = ready
            .filter(|node| node.pods.iter().any(|pod| serves(pod) && taken(pod)))
            .count();
        let allowed = self.strategy.max_unavailable.resolve(plan.counts.targeted);
        prop_assert!(taken <= allowed, "{taken} of {allowed}");
        Ok(())
    }

    /// Simulates as many seconds as the update of the whole fleet needs, one node after the other.
    fn go_to_the_end(&mut self) -> Result<(), TestCaseError> {
        let per_node = 60 + 2 * self.strategy.min_ready.as_secs().cast_signed();
        let size = i64::try_from(self.places.len()).unwrap_or(i64::MAX);
        for _ in 0..(600 + per_node * size) {
            self.pass()?;
        }
        Ok(())
    }
}

fn scalings() -> impl Random<Scaling> {
    let burst = prop_oneof![
        Just(IntOrPercent::Percent(100)),
        (1..4_u32).prop_map(IntOrPercent::Number)
    ];
    (burst, any::<bool>()).prop_map(|(burst, partitioned)| Scaling {
        burst,
        partitioned,
        ..Scaling::default()
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_story_of_an_advanced_daemonset_ends_well(
        strategy in rolling(), scaling in scalings(), partition in prop_oneof![3 => Just(0), 1 => 1..6_u32],
        paces in paces(), settled in any::<bool>(), events in events(),
    ) {
        let partition = IntOrPercent::Number(partition);
        let strategy = Strategy { partition, partitioned: scaling.partitioned, ..strategy };
        let mut telling = Telling::new(strategy, scaling, &paces, settled);
        while telling.tick < END {
            let tick = telling.tick;
            for (_, event) in events.iter().filter(|(at, _)| *at == tick) {
                telling.happen(*event);
            }
            telling.pass()?;
        }
        // Wait until removed nodes and their pods are gone. Then let nodes with the same names join.
        for _ in 0..20 {
            telling.pass()?;
        }
        for node in 0..telling.places.len() {
            telling.happen(Event::Join(node));
            telling.happen(Event::Online(node));
            telling.happen(Event::Fit(node));
        }
        telling.refuse_next = false;
        telling.go_to_the_end()?;
        let (_, plan, managed) = telling.last.as_ref().expect("decided at least once");
        let is_complete = matches!(plan.phase, Phase::Complete { offline: 0, .. });
        prop_assert!(is_complete, "{:?}, {:?}", plan.phase, plan.verdicts);
        prop_assert_eq!(&managed.create, &Vec::<NodeName>::new());
        prop_assert_eq!(&managed.actions, &Vec::<Action>::new());
        prop_assert_eq!(&plan.actions, &[]);
        let all = telling.places.len();
        let kept = telling.strategy.partition.resolve_down(all);
        prop_assert!(telling.new_pods() >= all - kept, "{} new", telling.new_pods());
        let is_served = |place: &Place| place.pods.len() == 1 && place.pods[0].ready_since.is_some();
        let served = telling.places.iter().filter(|place| is_served(place)).count();
        let most = match scaling.partitioned { true => kept, false => 0 };
        prop_assert!(served >= all - most, "{served} of {all} have a pod");
    }
}
