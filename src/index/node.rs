//! Record of a Node: the fields that decisions need, and the times that the controller observed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::texts::Texts;
use crate::core::eligibility::{CUT_OFF_TAINT, Effect, NodeFacts, Taint};
use crate::core::engine::timeouts::FLAPS_WITHIN;
use crate::core::images::ImageKey;
use crate::core::instant::later;
use crate::core::names::HOLD;
use crate::core::settings::maintenance_window::MAINTENANCE_WINDOW;
use crate::core::{Holds, Labels, NodeName, NodeWindow, Readiness, Windows};
use crate::k8s;

/// Fields of a Node that decisions depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeRecord {
    labels: Labels,
    taints: Vec<Taint>,
    pub(super) readiness: Readiness,
    /// See [`Node::losses`](crate::core::Node::losses).
    pub(super) losses: Option<Arc<[Timestamp]>>,
    /// Holds, by which the node's owner keeps DaemonSets from being updated on this node.
    pub(super) holds: Holds,
    pub(super) window: Option<NodeWindow>,
    /// Images on the node, sorted. Only images of DaemonSets that pre-pull images are kept.
    images: Box<[ImageKey]>,
    /// `lastTransitionTime` of the Ready condition. If it changed while the watch was interrupted, the node was NotReady in
    /// between.
    stamped: Option<Timestamp>,
}

/// Accepted difference between the clocks of a node and of the controller.
///
/// A Ready time further in the future is ignored. A smaller difference only makes waits longer.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

impl NodeRecord {
    /// Reads a Node.
    ///
    /// `before` is the previous record. `texts` stores labels that nodes share. `wanted` contains the images of DaemonSets that
    /// pre-pull images.
    pub(super) fn read(
        node: &k8s::Node,
        before: Option<&Self>,
        texts: &mut Texts,
        wanted: &BTreeSet<ImageKey>,
        now: Timestamp,
    ) -> Self {
        let ready = node
            .status
            .conditions
            .iter()
            .find(|condition| condition.kind == "Ready");
        let taints = node.spec.taints.iter().filter_map(|taint| {
            let effect = Effect::from_word(&taint.effect)?;
            Some(Taint {
                key: texts.share(&taint.key),
                value: texts.share(&taint.value),
                effect,
            })
        });
        let taints: Vec<Taint> = taints.collect();
        // Ignore the Ready condition of a node that is cut off. Its `lastTransitionTime` doesn't show when the node was cut off.
        let ready = ready.filter(|_| !is_cut_off(&taints));
        let stamped = ready
            .and_then(|condition| condition.last_transition.as_ref())
            .map(|time| time.0);
        let is_ready = ready.is_some_and(|condition| condition.status == "True");
        let labels = node.metadata.labels.iter().flatten();
        let annotations = node.metadata.annotations.as_ref();
        let annotation = |key| annotations.and_then(|annotations| annotations.get(key));
        let images = node.status.images.iter().copied();
        let images: BTreeSet<ImageKey> = images.filter(|key| wanted.contains(key)).collect();
        let readiness = readiness(before, is_ready, stamped, now);
        Self {
            images: images.into_iter().collect(),
            labels: labels
                .map(|(key, value)| (texts.share(key), texts.share(value)))
                .collect(),
            taints,
            window: annotation(MAINTENANCE_WINDOW).map(|text| window(before, text)),
            holds: annotation(HOLD)
                .map(|text| Holds::read(text))
                .unwrap_or_default(),
            readiness,
            losses: losses(before, readiness),
            stamped,
        }
    }

    /// Returns the record of an unreadable Node: the previous record, if there is one, with [`Readiness::Unreadable`].
    pub(super) fn unreadable(before: Option<&Self>) -> Self {
        let unknown = Self {
            labels: Labels::default(),
            taints: Vec::new(),
            readiness: Readiness::Unreadable,
            losses: None,
            holds: Holds::default(),
            window: None,
            images: Box::default(),
            stamped: None,
        };
        Self {
            readiness: Readiness::Unreadable,
            ..before.cloned().unwrap_or(unknown)
        }
    }

    /// Returns true if the node has OpenYurt's taint for nodes that are cut off.
    pub(super) fn is_cut_off(&self) -> bool {
        is_cut_off(&self.taints)
    }

    pub(super) fn labels(&self) -> Labels {
        self.labels.clone()
    }

    /// Returns true if the Node lists this image. An image that is not listed may still be present.
    pub(super) fn lists(&self, image: ImageKey) -> bool {
        self.images.binary_search(&image).is_ok()
    }

    /// Returns the facts that decide if a pod should run on the node.
    pub(super) fn facts<'a>(&'a self, name: &'a NodeName) -> NodeFacts<'a> {
        NodeFacts {
            name: name.as_str(),
            labels: &self.labels,
            taints: &self.taints,
        }
    }
}

/// Parses the maintenance windows. If the text has not changed, the previous result is used, because Nodes are updated often and
/// their windows rarely.
fn window(before: Option<&NodeRecord>, text: &str) -> NodeWindow {
    match before.and_then(|before| before.window.as_ref()) {
        Some(NodeWindow::Windows(known)) if known.text() == text => {
            NodeWindow::Windows(known.clone())
        }
        _ => match Windows::read(text) {
            Ok(windows) => NodeWindow::Windows(windows.into()),
            Err(unreadable) => NodeWindow::Unreadable(unreadable.to_string().into()),
        },
    }
}

fn readiness(
    before: Option<&NodeRecord>,
    ready: bool,
    stamped: Option<Timestamp>,
    now: Timestamp,
) -> Readiness {
    match before {
        // The readiness is the same as before, so the known time stays.
        Some(before)
            if before.stamped == stamped
                && matches!(before.readiness, Readiness::Ready { .. }) == ready =>
        {
            before.readiness
        }
        // The controller saw the change itself, so the time by its own clock is used.
        Some(_) if ready => Readiness::Ready { since: now },
        Some(_) => Readiness::NotReady { since: Some(now) },
        None if ready => Readiness::Ready {
            since: stamped
                .filter(|at| at.duration_since(now) <= SKEW)
                .map_or(Timestamp::UNIX_EPOCH, |at| at.min(now)),
        },
        None => Readiness::NotReady {
            since: stamped.map(|at| at.min(now)),
        },
    }
}

fn is_cut_off(taints: &[Taint]) -> bool {
    taints.iter().any(|taint| *taint.key == *CUT_OFF_TAINT)
}

/// Maximum number of losses that are recorded per node.
///
/// Recorded losses are at least [`SPACING`] apart. So they cover the last half minute even if the node flaps.
const LOSSES: usize = 4;

/// Minimum time between two recorded losses.
const SPACING: Duration = Duration::from_secs(10);

/// Returns the recorded losses of a node, including the present one if the node is NotReady.
fn losses(before: Option<&NodeRecord>, readiness: Readiness) -> Option<Arc<[Timestamp]>> {
    let known = before.and_then(|before| before.losses.clone());
    let Readiness::NotReady { since: Some(since) } = readiness else {
        return known;
    };
    let last = known.as_deref().and_then(|losses| losses.last());
    if last.is_some_and(|last| since < later(*last, SPACING)) {
        return known;
    }
    let is_recent = |at: &Timestamp| since <= later(*at, FLAPS_WITHIN);
    let recent = known.iter().flat_map(|losses| losses.iter().copied());
    let recent: Vec<Timestamp> = recent.filter(is_recent).collect();
    let first = recent.len().saturating_sub(LOSSES - 1);
    Some(recent[first..].iter().copied().chain([since]).collect())
}
