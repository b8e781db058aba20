//! Messages about outdated nodes that wait for a slot of `max-unavailable` or `max-surge`, for another node (`min-interval`), or
//! for another failure domain.

use super::node::{Explanation, explain};
use super::pods::{Answer, NodeView, problem_word, problem_words};
use super::progress::not_in_place;
use super::rollout::RolloutView;
use crate::core::engine::decide::queue as in_order;
use crate::core::engine::rate_limit::is_awaited;
use crate::core::engine::removal::is_withheld;
use crate::core::engine::replacement::UpdateMethod;
use crate::core::fleet::Node;
use crate::core::instant;
use crate::core::plan::{Phase, WaveStand};
use crate::core::remedy::LOOK_FOR_IT;
use crate::core::settings::max_domains::MAX_DOMAINS;
use crate::core::settings::max_surge::MAX_SURGE;
use crate::core::settings::max_unavailable::MAX_UNAVAILABLE;
use crate::core::settings::min_interval::MIN_INTERVAL;
use crate::core::settings::waves::WAVES;
use crate::core::verdict::Verdict;
use crate::core::words::{joined, named, nodes};

/// Maximum number of nodes with a slot that a message names. Further ones are counted.
const NAMED: usize = 5;

impl<'a> NodeView<'a> {
    /// Describes an outdated node that waits for a slot. `broken` is true if its old pod is not available.
    pub(super) fn waits_for_slot(self, broken: bool) -> Answer<'a> {
        let (rollout, node, pod) = (self.rollout, self.node, self.pod());
        let next = move || self.queue();
        if !broken && self.is_preparing() {
            let taken = taken(&self);
            let because = format!(
                "has pod{pod} marked PreparingDelete, and its hook is done; it waits for a free slot: {taken}"
            );
            return Answer::new(because, next).reason("PreparingDelete");
        }
        let waits = if broken {
            format!(
                "is outdated, and its old pod{pod} is not available{}; it is among the first",
                problem_words(node)
            )
        } else if let Some(ahead) = paced_by(rollout, self.position) {
            format!(
                "is outdated and waits for node {ahead}: {MIN_INTERVAL} updates one node at a time"
            )
        } else if let Some(opens) = rollout.plan.opens {
            format!(
                "is outdated and waits until {}: {MIN_INTERVAL}",
                instant::words(opens)
            )
        } else {
            format!("is outdated and waits for a free slot: {}", taken(&self))
        };
        let images = if broken { None } else { self.images() };
        let method = match self.method() {
            UpdateMethod::InPlace(_) => "; its pod is updated in place then".to_owned(),
            UpdateMethod::Recreate(why) => not_in_place(why),
        };
        let answer = Answer::new(
            format!("{waits}{}{method}", images.unwrap_or_default()),
            next,
        );
        let reason = problem_word(node).filter(|_| broken);
        Answer { reason, ..answer }
    }

    /// Describes the node's place in the queue, the nodes that take slots, and how to speed up the rollout.
    fn queue(&self) -> String {
        let (rollout, strategy) = (self.rollout, self.rollout.strategy);
        let (plan, key) = (rollout.plan, &rollout.key);
        let interval = humantime::format_duration(strategy.min_interval);
        if let Some(ahead) = paced_by(rollout, self.position) {
            return format!(
                "updated {interval} after node {ahead} has its new pod ({MIN_INTERVAL}). See: yurt-ds ctl why {key} {ahead}"
            );
        }
        let waits = |other: &usize| matches!(plan.verdicts[*other], Verdict::Budget { .. });
        let queue = in_order(strategy, rollout.fleet, rollout.now);
        let ahead = queue
            .into_iter()
            .take_while(|other| *other != self.position);
        // A pod that already waits for its hook is not in the queue, because its update has begun.
        let before = if self.is_preparing() {
            0
        } else {
            ahead.filter(waits).count()
        };
        let place = format!(
            "number {} of {} in the queue",
            before + 1,
            plan.counts.of_kind(*self.verdict)
        );
        let wave = full_wave(rollout, self.node);
        let (limit, faster) = match (wave, plan.opens) {
            (Some(wave), _) => (
                format!(
                    "wave {} allows {} of its {} nodes",
                    wave.name, wave.allowed, wave.nodes
                ),
                format!("maxUnavailable of the wave in the annotation {WAVES}"),
            ),
            (None, Some(opens)) => (
                format!(
                    "no update before {} ({MIN_INTERVAL} {interval})",
                    instant::words(opens)
                ),
                format!("the annotation {MIN_INTERVAL}"),
            ),
            (None, None) => limit(rollout),
        };
        let held = match holders(rollout, Some(self.position), wave.is_some()) {
            held if held.is_empty() => "no other node holds a slot".to_owned(),
            held => format!("slots are held by {held}"),
        };
        let is_begun =
            rollout.next() + rollout.next_surging() == 0 || wave.is_some() || is_taken(rollout);
        let hint = match rollout.phase {
            _ if !is_begun => {
                format!("the next update begins within seconds; if not, {LOOK_FOR_IT}")
            }
            Phase::Stalled(_) => format!("these nodes need a remedy: yurt-ds ctl why {key} NODE"),
            _ => format!("to go faster, change {faster}"),
        };
        joined([place, format!("limit: {limit}"), held, hint])
    }

    /// Describes a node that waits because another failure domain is updated first.
    pub(super) fn waits_for_domain(self) -> Answer<'a> {
        let rollout = self.rollout;
        let own = rollout.strategy.topology.as_ref().map(|topology| {
            format!(
                " (its {} is {:?})",
                topology.key,
                topology.domain_of(&self.node.labels)
            )
        });
        let because = format!(
            "is outdated; other failure domains are updated first: {}{}",
            domains_at_work(rollout),
            own.unwrap_or_default()
        );
        Answer::new(because, move || {
            format!(
                "the update follows automatically, domain by domain in alphabetical order. To update more domains at once, raise the annotation {MAX_DOMAINS}. \
                 Progress: yurt-ds ctl status {}",
                rollout.key
            )
        })
    }
}

/// Returns the node's wave if only the wave's own limit keeps the node from being updated.
fn full_wave<'a>(rollout: &RolloutView<'a>, node: &Node) -> Option<&'a WaveStand> {
    let (plan, waves) = (rollout.plan, rollout.strategy.waves.as_ref()?);
    let stand = plan.waves.get(waves.index_for(&node.labels))?;
    let is_free = plan.counts.unavailable < plan.counts.allowed;
    (is_free && stand.taken >= stand.allowed).then_some(stand)
}

/// Describes how many slots are in use, of the kind that the node waits for.
pub(super) fn taken(view: &NodeView<'_>) -> String {
    let rollout = view.rollout;
    match full_wave(rollout, view.node) {
        Some(wave) => format!(
            "{} of {} used in wave {}",
            wave.taken, wave.allowed, wave.name
        ),
        None => rollout.slots("") + &about_to_be(rollout),
    }
}

impl RolloutView<'_> {
    /// Describes the number of slots in use, of `max-unavailable`, `max-surge`, or both. `noun` is the word for a slot.
    pub(super) fn slots(&self, noun: &str) -> String {
        let counts = &self.plan.counts;
        let (unavailable, allowed) = (self.unavailable(), counts.allowed);
        let more = if unavailable > allowed && allowed > 0 {
            format!(" ({} unavailable)", nodes(unavailable))
        } else {
            String::new()
        };
        self.limits(
            format!("{} of {allowed}{noun} used{more}", unavailable.min(allowed)),
            format!(
                "{} of {}{noun} of max-surge used",
                self.surge_taken(),
                counts.surge_allowed
            ),
        )
    }
}

/// Describes the nodes that the controller updates next, as in `ctl status`. They take no slot yet.
pub fn about_to_be(rollout: &RolloutView<'_>) -> String {
    let replaced = match rollout.next() {
        0 => String::new(),
        next if rollout.asks_again => {
            format!(", {next} to be evicted at the next attempt")
        }
        next => format!(", {next} to be replaced now"),
    };
    match rollout.next_surging() {
        0 => replaced,
        next => format!("{replaced}, {next} to get a surge pod now"),
    }
}

/// Returns the limit for simultaneous updates, and the annotation or field that sets it.
fn limit(rollout: &RolloutView<'_>) -> (String, String) {
    let (counts, strategy) = (&rollout.plan.counts, rollout.strategy);
    let words = rollout.limits(
        format!(
            "max-unavailable {} allows {} of {} nodes",
            strategy.max_unavailable, counts.allowed, counts.base
        ),
        format!(
            "max-surge {} allows {} of {} nodes a surge pod",
            strategy.max_surge, counts.surge_allowed, counts.base
        ),
    );
    let setting = match counts.surge_allowed {
        0 => MAX_UNAVAILABLE,
        _ => MAX_SURGE,
    };
    (words, strategy.place_of(setting))
}

/// Returns true if all slots of `max-unavailable` and `max-surge` are in use, not counting the slots that this plan takes.
fn is_taken(rollout: &RolloutView<'_>) -> bool {
    let counts = &rollout.plan.counts;
    rollout.unavailable() >= counts.allowed && rollout.surge_taken() >= counts.surge_allowed
}

/// Returns the node that has to be updated before the node at `position` (`min-interval`). Both nodes are in the same wave.
fn paced_by<'a>(rollout: &RolloutView<'a>, position: usize) -> Option<&'a str> {
    if rollout.strategy.min_interval.is_zero() {
        return None;
    }
    let waves = rollout.strategy.waves.as_ref();
    let wave = |node: &Node| waves.map(|waves| waves.index_for(&node.labels));
    let own = wave(&rollout.fleet.nodes[position]);
    let mut others = rollout.fleet.nodes.iter().zip(&rollout.plan.verdicts);
    let ahead = others.find(|(node, verdict)| {
        let is_asked = matches!(
            verdict,
            Verdict::BlockedByPdb { .. } | Verdict::Refused { .. }
        );
        let is_leaving = is_asked && node.pods.iter().any(|pod| pod.exit.preparing.is_some());
        is_awaited(verdict, is_leaving) && wave(node) == own
    });
    ahead.map(|(node, _)| node.name.as_str())
}

/// Returns the failure domains in which updates are in progress or may begin.
fn domains_at_work(rollout: &RolloutView<'_>) -> String {
    let named = |name: &String| match name.as_str() {
        "" => "nodes without this label".to_owned(),
        name => name.to_owned(),
    };
    let names: Vec<String> = rollout.plan.domains.iter().map(named).collect();
    names.join(", ")
}

/// Describes the nodes that take slots, except the node at `asking`. If `of_wave` is true, only nodes in that node's wave are
/// included.
pub fn holders(rollout: &RolloutView<'_>, asking: Option<usize>, of_wave: bool) -> String {
    let waves = rollout.strategy.waves.as_ref().filter(|_| of_wave);
    let wave =
        |position: usize| waves.map(|waves| waves.index_for(&rollout.fleet.nodes[position].labels));
    // A node with two pods takes a slot of `max-surge`, even if neither pod can be removed.
    let has_two = |position: usize| {
        let of_surge = rollout.plan.counts.surge_allowed > 0;
        of_surge && rollout.fleet.nodes[position].pods.len() > 1
    };
    let holds = |position: usize| {
        let verdict = &rollout.plan.verdicts[position];
        let is_withheld = || {
            let node = &rollout.fleet.nodes[position];
            rollout.plan.counts.withheld > 0
                && is_withheld(rollout.strategy, rollout.fleet, node, rollout.now)
        };
        match verdict {
            Verdict::Held { .. } | Verdict::Partition | Verdict::NotSelected => is_withheld(),
            Verdict::Refused { .. } => has_two(position) || is_withheld(),
            verdict => verdict.is_in_flight() || *verdict == (Verdict::Budget { broken: true }),
        }
    };
    let holding: Vec<usize> = (0..rollout.plan.verdicts.len())
        .filter(|position| Some(*position) != asking && holds(*position))
        .filter(|position| asking.is_none_or(|asking| wave(*position) == wave(asking)))
        .collect();
    let names: Vec<String> = (holding.iter())
        .take(NAMED)
        .map(|position| holder(rollout, *position))
        .collect();
    named(
        names.iter().map(String::as_str),
        holding.len() - names.len(),
    )
}

fn holder(rollout: &RolloutView<'_>, position: usize) -> String {
    let Explanation { reason, since, .. } = explain(rollout, position);
    let refused = matches!(rollout.plan.verdicts[position], Verdict::Refused { .. });
    let word = reason.unwrap_or_else(|| if refused { "Refused" } else { "not available" }.into());
    let name = &rollout.fleet.nodes[position].name;
    match since {
        Some(since) => format!(
            "{name} ({word} for {})",
            instant::between(since, rollout.now)
        ),
        None => format!("{name} ({word})"),
    }
}
