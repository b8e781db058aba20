//! Waves: pools of nodes that are updated one after the other (openyurtio/openyurt#2008).
//!
//! A node belongs to the first wave whose selector it matches. If none matches, it belongs to the last wave. A wave opens when
//! these conditions are met:
//!
//! - Every earlier wave is complete.
//! - No failure in an earlier wave counts against the revision.
//! - Every wave with `approve: manual`, up to and including this one, is approved for this revision.
//!
//! A node whose wave is not open keeps its pod. If that pod is broken, it takes no slot, because the node doesn't take part yet.
//!
//! # When a wave is complete
//! A wave is complete when all its participating online nodes have run an available pod of the current revision for the duration of
//! `soak`. This follows from two timestamps per node: when the node became Ready, and when its pod of the current revision became
//! available. Between the two, the node *holds* the wave. No other state is needed, so a restart of the controller loses nothing.
//!
//! ```text
//! n1  ├────────── holds ─────────┤ done
//! n2  ├──── holds ────┤ done
//! n3                                    (soak)          ├─ returns late: the wave was complete, holds nothing ─┤ done
//! ────────────────────────────────┼──────────────┤ complete
//! ```
//!
//! Periods of holding that overlap, or that follow each other within `soak`, form one chain. The wave is complete `soak` after the
//! end of the first chain. A node that returns after that is updated at once and doesn't close later waves.
//!
//! A node that goes offline and returns during the soak restarts the soak, because it may have failed. A node whose failure counts
//! against the revision restarts the soak even if it returns later.
//!
//! The guard records the wave in which a node failed. Therefore later waves stay closed if that Node is deleted, relabelled or no
//! longer targeted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::class::Class;
use super::guard::attribution::FailureAttribution;
use super::pod_summary::{PodFacts, PodSummary};
use super::scope::RolloutScope;
use super::terms::Terms;
use crate::core::fleet::record::FailureRecord;
use crate::core::fleet::{Fleet, Node, Readiness, position_of};
use crate::core::id::{NodeName, RevisionState};
use crate::core::instant::later;
use crate::core::plan::{WaveStand, WaveState};
use crate::core::settings::{IntOrPercent, Mode, Strategy, Waves};
use crate::core::verdict::{Verdict, WaveShut};

#[derive(Debug)]
pub(super) struct WaveProgress<'a> {
    configured: Option<&'a Waves>,
    /// Wave of each node, by position in the fleet. The list is empty if there are no waves; then all nodes belong to wave 0.
    members: Vec<usize>,
    waves: Vec<WaveCounts>,
    /// True if a node failed in a wave that is unknown or no longer configured.
    unlisted: bool,
}

/// Returns the configured waves; `None` if there are none, or if the strategy is not `AdvancedRollingUpdate`.
fn configured(strategy: &Strategy) -> Option<&Waves> {
    let rolls = strategy.mode == Mode::AdvancedRollingUpdate;
    strategy.waves.as_deref().filter(|_| rolls)
}

/// Wave of each node by position, as input of [`WaveProgress::new`].
#[derive(Debug)]
pub(super) struct WaveMembership<'a> {
    strategy: &'a Strategy,
    configured: Option<&'a Waves>,
    waves: Vec<usize>,
}

impl<'a> WaveMembership<'a> {
    pub(super) fn new(strategy: &'a Strategy, nodes: usize) -> Self {
        let configured = configured(strategy);
        Self {
            strategy,
            configured,
            waves: Vec::with_capacity(configured.map_or(0, |_| nodes)),
        }
    }

    pub(super) fn note(&mut self, node: &Node) {
        self.waves
            .extend(self.configured.map(|waves| waves.index_for(&node.labels)));
    }
}

#[derive(Clone, Debug, Default)]
struct WaveCounts {
    /// Targeted nodes that take part; percentages refer to them.
    base: usize,
    done: usize,
    /// Nodes in flight, and Ready nodes whose new pod fails.
    under_way: usize,
    /// Nodes in flight that take a slot of `max-unavailable`.
    in_flight: usize,
    /// Nodes in flight whose old pod is still available, because the controller waits for its hook.
    serving: usize,
    broken: usize,
    /// Nodes with a second pod next to the old one.
    surging: usize,
    /// Nodes that are online, settled and outdated.
    outdated: usize,
    charged: bool,
    /// Time at which the wave is or was complete. `Err` while a node is not done; `None` if no later wave needs the time.
    complete: Option<Result<Timestamp, ()>>,
    shut: Option<WaveShut>,
}

impl<'a> WaveProgress<'a> {
    /// Computes the progress of all waves at `now`.
    pub(super) fn new(
        fleet: &Fleet,
        members: WaveMembership<'a>,
        classes: &[Class],
        summary: &PodSummary<'_>,
        attribution: &FailureAttribution,
        scope: &RolloutScope,
        now: Timestamp,
    ) -> Self {
        let WaveMembership {
            strategy,
            configured,
            waves: members,
        } = members;
        let mut wave_progress = Self {
            configured,
            members,
            waves: vec![WaveCounts::default(); configured.map_or(1, Waves::count)],
            unlisted: false,
        };
        if let Some(waves) = configured {
            wave_progress.tally(classes, scope);
            wave_progress.tally_failed(waves, fleet, classes, attribution);
            wave_progress.evaluate_completeness(
                strategy,
                fleet,
                classes,
                summary,
                attribution,
                scope,
            );
            wave_progress.evaluate_openness(waves, fleet, now);
            let terms = Terms::new(strategy, fleet, now);
            wave_progress.excuse_idle(strategy, classes, summary, terms);
        }
        wave_progress
    }

    /// Returns true if the outdated pod of the node at `position` takes no slot although it is broken.
    ///
    /// The pod is then idle: its wave is not open, and nothing shows that the controller made the pod unavailable.
    pub(super) fn is_idle(
        &self,
        position: usize,
        strategy: &Strategy,
        summary: &PodSummary<'_>,
        terms: Terms,
    ) -> bool {
        let holds = |until: Option<Timestamp>| until.is_some_and(|until| until > terms.now);
        self.shut_at(position).is_some()
            && !holds(summary.fresh_until(strategy, position))
            && !holds(summary.withheld_until(position, terms))
    }

    /// Returns the number of waves; 1 without waves.
    pub(super) fn count(&self) -> usize {
        self.waves.len()
    }

    pub(super) fn of_node(&self, position: usize) -> usize {
        self.members.get(position).copied().unwrap_or(0)
    }

    /// Returns the verdict of the node at `position` if its wave is not open; `None` if the wave is open.
    pub(super) fn shut_at(&self, position: usize) -> Option<Verdict> {
        let wave = self.of_node(position);
        let why = self.waves[wave].shut?;
        Some(Verdict::WaveNotOpen { wave, why })
    }

    /// Returns the time at which the state of the node's wave changes without an event; `None` if only an event can open the wave.
    pub(super) fn changes_at(&self, position: usize) -> Option<Timestamp> {
        match self.waves[self.of_node(position)].shut? {
            WaveShut::Soaking { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Returns true if the wave is open and a node in it waits for its update.
    pub(super) fn waits(&self, wave: usize) -> bool {
        self.configured.is_none()
            || self.waves[wave].shut.is_none() && self.waves[wave].outdated > 0
    }

    /// Returns two numbers of nodes of this wave that may be replaced now: nodes with a broken old pod, and nodes with an available
    /// old pod.
    ///
    /// `replace-broken-first: unlimited` allows all broken pods at once.
    pub(super) fn slots(&self, wave: usize, strategy: &Strategy) -> [usize; 2] {
        let (Some(waves), tally) = (self.configured, &self.waves[wave]) else {
            return [usize::MAX, usize::MAX];
        };
        let allowed = allowed(waves, wave, strategy.max_unavailable, tally.base);
        let for_broken = match strategy.broken_unlimited {
            true => usize::MAX,
            false => {
                let least = usize::from(strategy.max_surge.is_zero());
                let in_flight = tally.in_flight - tally.serving;
                allowed.max(least).saturating_sub(in_flight)
            }
        };
        let used = tally.in_flight + tally.broken;
        [for_broken, allowed.saturating_sub(used)]
    }

    /// Returns the number of available pods with completed hooks that may be deleted now in this wave.
    pub(super) fn for_waiting(&self, wave: usize, default: IntOrPercent) -> usize {
        let (Some(waves), tally) = (self.configured, &self.waves[wave]) else {
            return usize::MAX;
        };
        let used = tally.in_flight + tally.broken - tally.serving;
        allowed(waves, wave, default, tally.base).saturating_sub(used)
    }

    /// Takes one slot of the wave for the rollback of the available pod of the node at `position`.
    pub(super) fn take_slot(&mut self, position: usize) {
        let wave = self.of_node(position);
        self.waves[wave].in_flight += 1;
    }

    /// Returns the state of each wave for display; empty without waves. Nodes whose update begins in this plan are not in `taken`
    /// yet.
    pub(super) fn report(&self, default: IntOrPercent) -> Vec<WaveStand> {
        let Some(waves) = self.configured else {
            return Vec::new();
        };
        let stand = |(position, tally): (usize, &WaveCounts)| WaveStand {
            name: waves.name(position).to_owned(),
            nodes: tally.base,
            done: tally.done,
            in_flight: tally.under_way,
            taken: tally.in_flight + tally.broken,
            allowed: allowed(waves, position, default, tally.base),
            state: match (tally.shut, tally.outdated + tally.under_way) {
                (Some(_), 0) if tally.base > 0 && tally.done == tally.base => WaveState::Complete,
                (Some(why), _) => WaveState::NotOpen(why),
                (None, 0) => WaveState::Complete,
                (None, _) => WaveState::Open,
            },
        };
        self.waves.iter().enumerate().map(stand).collect()
    }

    fn tally(&mut self, classes: &[Class], scope: &RolloutScope) {
        for (position, class) in classes.iter().enumerate() {
            let takes_part = scope.contains(position) && !matches!(class, Class::Excluded(_));
            let tally = &mut self.waves[self.members[position]];
            tally.base += usize::from(class.is_targeted() && takes_part);
            tally.done += usize::from(takes_part && *class == Class::Done);
            tally.serving += usize::from(class.still_serves());
            tally.charged |= class.is_failed();
            tally.under_way += usize::from(class.is_in_flight());
            match class {
                Class::Surging(pair) => {
                    tally.surging += 1;
                    tally.broken += usize::from(!pair.served && pair.broken);
                    tally.in_flight += usize::from(!pair.served && !pair.broken);
                }
                _ => tally.in_flight += usize::from(class.is_in_flight()),
            }
            if let Class::Outdated {
                available,
                settling: None,
            } = class
            {
                tally.outdated += 1;
                tally.broken += usize::from(!available);
            }
        }
    }

    /// Frees the slots that the [idle](Self::is_idle) broken pods of a wave take.
    ///
    /// Without this step, idle pods could block another pod of the wave: a pod that was marked for deletion while the wave was
    /// open, and that waits for a slot.
    fn excuse_idle(
        &mut self,
        strategy: &Strategy,
        classes: &[Class],
        summary: &PodSummary<'_>,
        terms: Terms,
    ) {
        for (position, class) in classes.iter().enumerate() {
            let is_broken = matches!(
                class,
                Class::Outdated {
                    available: false,
                    settling: None
                }
            );
            if is_broken && self.is_idle(position, strategy, summary, terms) {
                let wave = self.of_node(position);
                self.waves[wave].broken -= 1;
            }
        }
    }

    /// Marks the waves in which a node failed and has not recovered. Nodes that no longer exist are included.
    ///
    /// The mark stays if the labels of the node or the list of waves change.
    fn tally_failed(
        &mut self,
        waves: &Waves,
        fleet: &Fleet,
        classes: &[Class],
        attribution: &FailureAttribution,
    ) {
        let Some(record) = attribution.record() else {
            return;
        };
        for name in &record.failed {
            let present = self.member(fleet, classes, name);
            if present.is_some_and(|(_, fails)| !fails) {
                continue;
            }
            let wave = match record.wave_of(name) {
                Some(known) => waves.position(known),
                None => present.map(|(wave, _)| wave),
            };
            match wave {
                Some(wave) => self.waves[wave].charged = true,
                None => self.unlisted = true,
            }
        }
    }

    /// Returns the wave of the node with this name, and true if the node failed or is not targeted. `None` if there is no such
    /// Node.
    fn member(&self, fleet: &Fleet, classes: &[Class], name: &NodeName) -> Option<(usize, bool)> {
        let position = position_of(&fleet.nodes, name).ok()?;
        let class = &classes[position];
        let fails = class.is_failed() || *class == Class::NotTargeted;
        (*class != Class::NoNode).then(|| (self.members[position], fails))
    }

    /// Stores the wave of each lost or failed node in `record`. A wave that is already stored for a node is kept.
    pub(super) fn note_waves(&self, record: &mut FailureRecord, fleet: &Fleet, classes: &[Class]) {
        let mut noted: BTreeMap<Arc<str>, BTreeSet<NodeName>> = BTreeMap::new();
        if let Some(waves) = self.configured {
            let lost = record.lost.keys().chain(&record.updated_before_loss);
            for name in record.failed.iter().chain(lost) {
                let wave = record.wave_of(name).cloned().or_else(|| {
                    let (wave, _) = self.member(fleet, classes, name)?;
                    Some(waves.name(wave).into())
                });
                if let Some(wave) = wave {
                    noted.entry(wave).or_default().insert(name.clone());
                }
            }
        }
        record.waves = noted;
    }

    /// Computes when each wave is complete. Waves after the last one with outdated nodes are skipped, because nothing waits for
    /// them.
    fn evaluate_completeness(
        &mut self,
        strategy: &Strategy,
        fleet: &Fleet,
        classes: &[Class],
        summary: &PodSummary<'_>,
        attribution: &FailureAttribution,
        scope: &RolloutScope,
    ) {
        // Without outdated nodes, nothing waits for a wave to open.
        let Some(last) = self.waves.iter().rposition(|tally| tally.outdated > 0) else {
            return;
        };
        let mut holds: Vec<Vec<(Timestamp, Option<Timestamp>)>> = vec![Vec::new(); last];
        for (position, class) in classes.iter().enumerate() {
            let wave = self.members[position];
            if wave < last && scope.contains(position) {
                let (node, living) = (&fleet.nodes[position], || summary.living(position));
                let hold = hold_of(strategy, node, living, class);
                holds[wave].extend(match attribution.is_charged(&node.name) {
                    // A node that counts against the revision restarts the soak whenever it returns.
                    true => hold.map(|(_, until)| (Timestamp::MIN, until)),
                    false => hold,
                });
            }
        }
        let waves = strategy.waves.as_deref();
        for (wave, mut holds) in holds.into_iter().enumerate() {
            let next = waves.and_then(|waves| waves.list.get(wave));
            let soak = next.map(|wave| wave.soak).unwrap_or_default();
            holds.sort_unstable_by_key(|(from, _)| *from);
            let mut end: Option<Timestamp> = None;
            let mut complete = Ok(());
            for (from, until) in holds {
                if end.is_some_and(|end| from > later(end, soak)) {
                    break;
                }
                match until {
                    Some(until) => end = end.max(Some(until)),
                    None => {
                        complete = Err(());
                        break;
                    }
                }
            }
            let at = end.map_or(Timestamp::MIN, |end| later(end, soak));
            self.waves[wave].complete = Some(complete.map(|()| at));
        }
    }

    fn evaluate_openness(&mut self, waves: &Waves, fleet: &Fleet, now: Timestamp) {
        let RevisionState::Current(revision) = &fleet.revision else {
            return;
        };
        // Reasons why later waves stay closed: `charged` for failures, `awaited` for the first condition that is not met.
        let mut charged = (self.unlisted).then_some(WaveShut::Charged { wave: None });
        let mut awaited = None;
        for wave in 0..self.waves.len() {
            let approval =
                (!waves.is_approved(wave, revision)).then_some(WaveShut::Approval { wave });
            awaited = awaited.or(approval);
            let tally = &mut self.waves[wave];
            tally.shut = charged.or(awaited);
            charged = charged.or(tally
                .charged
                .then_some(WaveShut::Charged { wave: Some(wave) }));
            awaited = awaited.or(match tally.complete {
                Some(Err(())) => Some(WaveShut::Unfinished { wave }),
                Some(Ok(until)) if until > now => Some(WaveShut::Soaking { wave, until }),
                _ => None,
            });
        }
    }
}

fn allowed(waves: &Waves, wave: usize, default: IntOrPercent, base: usize) -> usize {
    let own = waves.list.get(wave).and_then(|wave| wave.max_unavailable);
    own.unwrap_or(default).resolve(base)
}

/// Returns the period in which a participating node keeps its wave from being complete. The end is `None` if the period goes on.
///
/// A settling node counts as offline, because it may go offline again before its update.
fn hold_of(
    strategy: &Strategy,
    node: &Node,
    living: impl Fn() -> Option<PodFacts>,
    class: &Class,
) -> Option<(Timestamp, Option<Timestamp>)> {
    let Readiness::Ready { since } = node.readiness else {
        return None;
    };
    match class {
        Class::Done => {
            let pod = living()?;
            let available = later(pod.ready_since?, strategy.min_ready);
            Some((since, Some(available.max(pod.revised).max(since))))
        }
        Class::InProgress(_)
        | Class::Surging(_)
        | Class::Outdated { settling: None, .. }
        | Class::PreDeleteHook { .. } => Some((since, None)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
