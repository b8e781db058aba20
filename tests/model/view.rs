//! Conversion of the controller's view to the [`Fleet`] that the engine evaluates. In the real controller, the index does this.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;
use yurt_ds::core::fleet::in_place::{
    InPlace, InPlaceTransition, InPlaceTransitions, InPlaceUpdate, RunningContainer, Shape,
};
use yurt_ds::core::{
    Exit, FailureRecord, Fleet, Labels, Leaving, Node, NodeName, OtaCondition, Pod, PodProblem,
    PodRef, PodRevision, Pods, PreDeleteHook, Readiness, Revision, RevisionState, RevisionUnknown,
    RollingUpdateType, SetKind, Targeting,
};

use super::rules::Rules;
use super::state::{self, Ago, Set, Sheet, State, Template, Write};

/// Duration of a tick. The guard's failure window of five minutes has two ticks.
pub(crate) const TICK: Duration = Duration::from_secs(150);

/// Label that the preDelete hook selects.
pub(crate) const HOOK: (&str, &str) = ("drain", "true");
/// Hook state of a pod that is marked `PreparingDelete`. It has no start time, because the model doesn't measure how long the pod
/// waits.
const MARKED: PreDeleteHook = PreDeleteHook { since: None };

/// Returns the time of every decision. It is constant, because the model stores all other times as ages.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("an instant")
}

pub(crate) fn at(ago: Ago) -> Timestamp {
    let tick = i64::try_from(TICK.as_secs()).expect("a short tick");
    now() + SignedDuration::from_secs(i64::from(ago) * tick)
}

pub(crate) fn hash(template: Template) -> Revision {
    format!("hash-{template}").into()
}

/// Returns the template whose revision has this hash.
pub(crate) fn template_of(revision: &Revision) -> Template {
    let number = revision.as_str().strip_prefix("hash-");
    number.and_then(|n| n.parse().ok()).expect("a hash of ours")
}

/// Returns the model's number of a pod, which is part of its UID.
pub(crate) fn number(pod: &PodRef) -> u8 {
    let uid = pod.uid.to_string();
    let uid = uid.strip_prefix('u');
    uid.and_then(|n| n.parse().ok()).expect("a UID of ours")
}

/// Returns the model's index of a node, which is part of its name.
pub(crate) fn node_of(name: &NodeName) -> usize {
    let number = name.as_str().strip_prefix('n');
    number.and_then(|n| n.parse().ok()).expect("a name of ours")
}

pub(crate) fn name_of(node: usize) -> NodeName {
    format!("n{node}").into()
}

/// Converts the model's record of failed nodes to the engine's type; `None` if the record is empty.
fn record_of(sheet: &Sheet) -> Option<FailureRecord> {
    let names = |nodes: &BTreeSet<u8>| nodes.iter().map(|node| name_of((*node).into())).collect();
    (*sheet != Sheet::default()).then(|| FailureRecord {
        stopped: sheet.stopped.map(Into::into),
        before: sheet.before.map(hash),
        failed: names(&sheet.failed),
        broken_before: names(&sheet.broken_before),
        ..FailureRecord::new(hash(sheet.template))
    })
}

impl State {
    /// Returns the DaemonSet as the controller sees it.
    pub(crate) fn seen_set(&self) -> Set {
        self.view.set.unwrap_or(self.set)
    }

    /// Returns the fleet as the controller sees it.
    pub(crate) fn fleet(&self, rules: &Rules) -> Fleet {
        let set = self.seen_set();
        let revision = if set.observed == set.wanted {
            RevisionState::Current(hash(set.wanted))
        } else {
            RevisionState::Unknown(RevisionUnknown::NotObserved)
        };
        let revisions = set.numbers.iter().filter(|number| **number > 0);
        Fleet {
            revision,
            made: None,
            adopted: None,
            is_proven: true,
            behind_since: None,
            replaces: revisions.count() > 1,
            earlier: Vec::new(),
            undone: None,
            evictions: self.evictions(rules),
            write_failures: self.refusals(),
            transitions: transitions(&set, rules),
            rollback_targets: self.rollback_targets(&set, rules),
            record: record_of(&self.sheet),
            pause: None,
            kind: if rules.is_advanced {
                SetKind::Advanced
            } else {
                SetKind::Native
            },
            not_created: None,
            not_ready: Default::default(),
            in_order: rules.trusted,
            crowd: Default::default(),
            nodes: (0..self.nodes.len())
                .filter(|position| !self.nodes[*position].gone)
                .map(|position| self.node(position, rules))
                .collect(),
        }
    }

    fn node(&self, position: usize, rules: &Rules) -> Node {
        let node = &self.nodes[position];
        let seen = self.view.nodes.as_ref().map(|nodes| nodes[position]);
        let seen = seen.unwrap_or_else(|| node.seen());
        let pods = self.view.pods.as_ref().map(|nodes| &nodes[position]);
        let pods = pods.unwrap_or(&node.pods).iter();
        let own = pods.filter(|pod| !pod.orphan);
        let mut pods: Pods = own.map(|pod| self.pod(pod, rules)).collect();
        if let Some(surplus) = pods.surplus().filter(|_| rules.is_advanced) {
            let surplus = surplus.uid.clone();
            pods.iter_mut()
                .for_each(|pod| pod.surge = pod.uid == surplus);
        }
        let targeting = match (seen.unfit, seen.tainted) {
            (true, _) => Targeting::No,
            (false, true) => Targeting::Keep,
            (false, false) => Targeting::Run,
        };
        Node {
            name: name_of(position),
            labels: [("zone", rules.zone_of(position))]
                .into_iter()
                .collect::<Labels>(),
            hold: None,
            window: None,
            targeting,
            native: targeting,
            readiness: if seen.ready {
                Readiness::Ready {
                    since: at(seen.since),
                }
            } else {
                Readiness::NotReady {
                    since: Some(at(seen.since)),
                }
            },
            pods,
            disrupted_at: None,
            emptied: rules.scaling.partitioned && node.down,
            kept_away_by: None,
            had_pod: false,
            losses: None,
            cut_off: false,
            podless_since: None,
            trouble: None,
            has_images: false,
        }
    }

    pub(crate) fn pod(&self, pod: &state::Pod, rules: &Rules) -> Pod {
        let set = self.seen_set();
        let is_stuck = rules.broken == Some(pod.template) && pod.started.is_some();
        let mut seen = Pod {
            name: format!("p{:02}", pod.uid).into(),
            uid: format!("u{}", pod.uid).into(),
            resource_version: "1".into(),
            created: at(pod.created),
            revision: revision_of(pod.template, &set),
            number: set.numbers[usize::from(pod.template)].into(),
            terminating: pod.terminating,
            leaving: pod.left.map(|left| {
                Box::new(Leaving {
                    ends: at(left),
                    stamped: at(left),
                    grace: Duration::ZERO,
                })
            }),
            ready_since: pod.ready_since.map(at),
            unready_since: None,
            started: pod.started.map(at),
            in_place: InPlace {
                revision: Some(hash(pod.template)),
                containers: Arc::new([container(pod.template)]),
                is_over: pod.over,
                update: (pod.changing || pod.rolled_back.is_some()).then_some(InPlaceUpdate {
                    is_carried_out: !pod.changing,
                    ..under_way()
                }),
                unfinished: Default::default(),
                reverted_from: pod.rolled_back.map(hash),
                gate: None,
            }
            .into(),
            exit: Exit {
                labels: pod.hooked.then_some(HOOK).into_iter().collect(),
                preparing: pod.marked.then_some(MARKED),
                ..Exit::default()
            }
            .into(),
            problem: is_stuck.then(|| {
                PodProblem {
                    detail: Default::default(),
                    reason: "CrashLoopBackOff".into(),
                    restarts: 5,
                    ended: 0,
                }
                .into()
            }),
            need_upgrade: pod.need_upgrade.map(|(status, template)| {
                OtaCondition {
                    status,
                    revision: Some(hash(template)),
                    waits: !status,
                    repelled: false,
                    failure: None,
                }
                .into()
            }),
            image_ready: pod.images.map(|(template, are_there)| {
                OtaCondition {
                    status: are_there,
                    revision: Some(hash(template)),
                    waits: !are_there,
                    repelled: false,
                    failure: None,
                }
                .into()
            }),
            surge: pod.spare,
            of_template: true,
            in_doubt: false,
        };
        for (uid, write, doubt) in &self.view.overlay {
            match write {
                _ if *uid != pod.uid => {}
                Write::Deletion => {
                    (seen.in_doubt, seen.terminating) = (!seen.terminating && *doubt, true);
                }
                Write::PreDeleteHook => seen.exit.preparing = Some(MARKED),
                Write::Reversal { to, from } => {
                    seen.revision = revision_of(*to, &set);
                    seen.in_place.revision = Some(hash(*to));
                    seen.in_place.reverted_from = Some(hash(*from));
                    seen.in_place.update = Some(under_way());
                }
                Write::InPlacePatch => {
                    seen.revision = PodRevision::Current;
                    seen.in_place.update = Some(under_way());
                }
            }
        }
        seen
    }
}

fn revision_of(template: Template, set: &Set) -> PodRevision {
    match template {
        _ if set.observed != set.wanted => PodRevision::Unknown,
        template if template == set.wanted => PodRevision::Current,
        template if set.knows(template) => PodRevision::Outdated,
        _ => PodRevision::Unknown,
    }
}

fn under_way() -> InPlaceUpdate {
    InPlaceUpdate {
        at: now(),
        is_carried_out: false,
    }
}

fn image(template: Template) -> String {
    format!("image:{template}")
}

fn container(template: Template) -> RunningContainer {
    RunningContainer {
        name: "c".into(),
        image: image(template).into(),
        reported: image(template).into(),
        image_id: image(template).into(),
        restarts: 0,
        is_init: false,
    }
}

/// Returns the part of a template's spec that decides if an in-place update is possible. Templates 0 and 1 differ only in their
/// image. Template 2 also differs in its environment, so its pods can't be updated in place.
pub(crate) fn shape(template: Template) -> Shape {
    let env = json!([{ "name": "A", "value": (template / 2).to_string() }]);
    Shape::from_template(&json!({ "spec": { "containers": [
        { "name": "c", "image": image(template), "env": env }
    ] } }))
}

fn transitions(set: &Set, rules: &Rules) -> InPlaceTransitions {
    if rules.strategy.rolling_update_type == RollingUpdateType::Standard {
        return InPlaceTransitions::new();
    }
    let target = shape(set.wanted);
    let old = (0..3).filter(|template| *template != set.wanted && set.knows(*template));
    old.map(|old| {
        (
            hash(old),
            InPlaceTransition::between(&shape(old), &target, Some("1")),
        )
    })
    .collect()
}
