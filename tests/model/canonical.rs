//! Canonical form of states. Equivalent states become equal values, so that the search visits only one of them.
//!
//! Times are stored as ages in ticks. Beyond a certain age, all times have the same effect on the engine, so older times are set to
//! that age. This keeps the number of states finite. Pods get new numbers in the order of their nodes, because the engine doesn't
//! depend on the value of a UID.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::Rules;
use super::state::{Ago, FAR, Pod, State};
use super::writes::Pending;

impl State {
    /// Returns the canonical form of this state.
    pub(crate) fn canonical(mut self, rules: &Rules) -> Self {
        self.forget_denials();
        self.number_pods();
        self.forget_times(rules);
        self.shorten_times();
        self
    }

    /// Resets the times that the engine never reads with the settings of this test, so that they don't make states different.
    fn forget_times(&mut self, rules: &Rules) {
        let (settles, ripens) = (
            !rules.strategy.ready_settle.is_zero(),
            // The engine reads the time at which a pod became Ready if `minReadySeconds` is set, and with `max-surge` also if it
            // isn't.
            !rules.strategy.min_ready.is_zero() || !rules.strategy.max_surge.is_zero(),
        );
        let may_be_lost = self.faults.losses > 0 || rules.killer.is_some();
        let is_anybody_away = (0..self.nodes.len()).any(|n| self.is_absent(n));
        let ages = may_be_lost || is_anybody_away || !rules.strategy.min_interval.is_zero();
        if rules.remembers || rules.strategy.waves.is_some() || rules.hangs() {
            return;
        }
        let forget = |pod: &mut Pod| {
            if !ages && !settles && !ripens {
                pod.created = 0;
            }
            if !settles {
                pod.started = pod.started.and(Some(pod.created));
            }
            if !ripens {
                pod.ready_since = pod.ready_since.and(Some(pod.created));
            }
        };
        let known = self.nodes.iter_mut().map(|node| &mut node.pods);
        let seen = self.view.pods.iter_mut().flatten();
        known.chain(seen).flatten().for_each(forget);
        let known = self
            .nodes
            .iter_mut()
            .map(|node| (node.ready, &mut node.since));
        let seen = self
            .view
            .nodes
            .iter_mut()
            .flatten()
            .map(|seen| (seen.ready, &mut seen.since));
        for (_, since) in known.chain(seen).filter(|(ready, _)| *ready && !settles) {
            *since = 0;
        }
    }

    fn number_pods(&mut self) {
        let mut numbers: BTreeMap<u8, u8> = BTreeMap::new();
        let mut number = |uid: &mut u8| {
            let next = u8::try_from(numbers.len()).expect("few pods");
            *uid = *numbers.entry(*uid).or_insert(next);
        };
        let uids = |pods: &[Pod]| pods.iter().map(|pod| pod.uid).collect::<Vec<u8>>();
        let there: BTreeSet<u8> = self
            .nodes
            .iter()
            .flat_map(|node| uids(&node.pods))
            .collect();
        let known = self.nodes.iter_mut().map(|node| &mut node.pods);
        let seen = self.view.pods.iter_mut().flatten();
        let mut pods: Vec<&mut Pod> = known.chain(seen).flatten().collect();
        pods.iter_mut().for_each(|pod| number(&mut pod.uid));
        for pod in pods {
            pod.beside = pod.beside.filter(|beside| there.contains(beside));
            pod.beside.iter_mut().for_each(&mut number);
        }
        let pending = self.pending.iter_mut();
        pending.flat_map(Pending::uids_mut).for_each(&mut number);
        let denied = self.denials.iter_mut();
        denied
            .flat_map(|denial| &mut denial.uid)
            .for_each(&mut number);
        self.pending.sort_unstable();
        self.view
            .overlay
            .iter_mut()
            .for_each(|(uid, ..)| number(uid));
        self.view.overlay.sort_unstable();
        self.view.overlay.dedup();
    }

    /// Limits times to the ages that the engine distinguishes.
    ///
    /// On an online node, the engine compares times only with now. So times older than [`FAR`] ticks become [`FAR`] ticks old. On
    /// an offline node, the engine also compares times with the start of the outage, and outages with each other. So the order of
    /// all these times is kept, and only the distance between two neighboring times is limited to [`FAR`].
    fn shorten_times(&mut self) {
        let mut instants = BTreeSet::from([0]);
        for n in 0..self.nodes.len() {
            let is_absent = self.is_absent(n);
            self.each_instant_on(n, |instant| {
                if is_absent {
                    instants.insert(*instant);
                } else {
                    *instant = (*instant).max(-FAR)
                }
            });
        }
        let mut short = BTreeMap::new();
        let mut last: Option<(Ago, Ago)> = None;
        for instant in instants.into_iter().rev() {
            let moved = last.map_or(0, |(later, moved)| moved - (later - instant).min(FAR));
            short.insert(instant, moved);
            last = Some((instant, moved));
        }
        for n in 0..self.nodes.len() {
            if self.is_absent(n) {
                self.each_instant_on(n, |instant| *instant = short[instant]);
            }
        }
    }

    /// Returns true if a node is offline or the controller sees it as offline.
    fn is_absent(&self, n: usize) -> bool {
        let seen = self.view.nodes.as_ref();
        !self.nodes[n].ready || seen.is_some_and(|nodes| !nodes[n].ready)
    }

    /// Calls `act` for every time that is stored for a node and its pods, in the API server's state and in the controller's view.
    pub(crate) fn each_instant_on(&mut self, n: usize, mut act: impl FnMut(&mut Ago)) {
        if self.nodes[n].gone {
            return;
        }
        act(&mut self.nodes[n].since);
        self.nodes[n]
            .pods
            .iter_mut()
            .for_each(|pod| pod.each_instant(&mut act));
        if let Some(nodes) = &mut self.view.nodes {
            act(&mut nodes[n].since);
        }
        if let Some(nodes) = &mut self.view.pods {
            nodes[n]
                .iter_mut()
                .for_each(|pod| pod.each_instant(&mut act));
        }
    }
}
