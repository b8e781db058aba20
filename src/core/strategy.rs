//! What the owner of a DaemonSet asked for, read once from its annotations.
//!
//! `read` turns annotations into a [`Reading`], `value` knows how single values are spelled, `advice` knows the keys
//! that have no effect. Nobody looks at a raw annotation after that.

mod advice;
mod failing;
mod kruise;
mod read;
mod sequence;
mod surge;
#[cfg(test)]
mod tests;
mod value;
mod wave;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::fleet::Node;
use super::id::{Revision, RevisionState};
use super::lifecycle::PreDelete;
use super::names::UPDATE_STRATEGY_TYPE_FIELD;
use super::selector::Selector;
use super::window::Windows;

pub use advice::{is_setting, settings, stray};
pub use read::{DEFAULT_MAX_UNAVAILABLE, DEFAULT_READY_SETTLE, READY_SETTLE_LIMIT, Source, read};
pub use value::Flaw;
pub use wave::{Approval, REST, Wave, Waves};

pub(super) use read::quoted;

/// The settings of a DaemonSet that is ours, all of them valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Who starts a replacement.
    pub mode: Mode,
    /// How many targeted nodes may lack an available pod at once; only used by [`Mode::AdvancedRollingUpdate`].
    pub max_unavailable: Share,
    /// On how many targeted nodes a new pod may be made beside the old one at once; zero: on none.
    pub max_surge: Share,
    /// How many of the targeted nodes (percentages are rounded down) keep the old revision.
    pub partition: Share,
    /// Which nodes take part, by their labels; `None`: all.
    pub selector: Option<Selector>,
    /// The shortest time between the birth of a new pod and the next replacement; zero: none.
    pub min_interval: Duration,
    /// How many nodes may lack an available pod at the beginning of a rollout; `None`: as many as ever.
    pub ramp_up: Option<Share>,
    /// When replacements may begin, on nodes that say nothing of their own; `None`: always.
    pub window: Option<Arc<Windows>>,
    /// How many nodes pull the new images at once ahead of their replacement; `None`: none does.
    pub image_predownload_parallelism: Option<Share>,
    /// Whether a replacement waits for the images of its node; `None`: not said.
    pub predownload: Option<Predownload>,
    /// Pools of nodes that are rolled out one after the other; `None`: all at once.
    pub waves: Option<Arc<Waves>>,
    /// In how many failure domains something may be under way at once; `None`: in all.
    pub topology: Option<Topology>,
    /// Whether running pods are updated in place where that is possible.
    pub rolling_update_type: RollingUpdateType,
    /// Whether nodes whose old pod is broken are all replaced at once, whatever `max-unavailable` says.
    pub broken_unlimited: bool,
    /// How long after its new pod was made a node may fail on the revision's account; `None`: five minutes, or
    /// `min_ready` if that is longer.
    pub failure_window: Option<Duration>,
    /// How many targeted nodes may fail before the revision is stopped; `None`: as many as `max_unavailable`.
    pub failure_threshold: Option<Share>,
    /// What happens to nodes that have a revision when it is stopped.
    pub on_failure: OnFailure,
    /// The revision that goes on although nodes failed after they got it.
    pub resume: Option<Revision>,
    /// Who has to agree before a pod is deleted; `None`: nobody.
    pub pre_delete: Option<Arc<PreDelete>>,
    /// How a pod is made to go.
    pub disruption: Disruption,
    /// Whether, and until when, nothing is replaced.
    pub pause: Option<Pause>,
    /// How long a pod has to be Ready to be available (`spec.minReadySeconds`).
    pub min_ready: Duration,
    /// How long a node that returned has to be Ready before its pod is touched.
    pub ready_settle: Duration,
}

impl Strategy {
    /// The settings of a DaemonSet that says nothing but its mode.
    pub fn of(mode: Mode) -> Self {
        Self {
            mode,
            max_unavailable: DEFAULT_MAX_UNAVAILABLE,
            max_surge: Share::Number(0),
            partition: Share::Number(0),
            selector: None,
            min_interval: Duration::ZERO,
            ramp_up: None,
            window: None,
            image_predownload_parallelism: None,
            predownload: None,
            waves: None,
            topology: None,
            rolling_update_type: RollingUpdateType::Standard,
            broken_unlimited: false,
            failure_window: None,
            failure_threshold: None,
            on_failure: OnFailure::Stop,
            resume: None,
            pre_delete: None,
            disruption: Disruption::Delete,
            pause: None,
            min_ready: Duration::ZERO,
            ready_settle: DEFAULT_READY_SETTLE,
        }
    }
}

impl Strategy {
    /// What the owner should know about settings that are about one revision, now that the current one is known.
    pub fn notes_on(&self, state: &RevisionState) -> Option<Note> {
        match (&self.resume, state) {
            (Some(resume), RevisionState::Current(current)) => {
                Some(advice::on_resume(resume, current))
            }
            _ => None,
        }
    }
}

/// Who starts a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The controller does, within the budget.
    AdvancedRollingUpdate,
    /// The owner of the node does.
    Ota,
}

/// How a pod gets the current revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollingUpdateType {
    /// It is deleted, and a new one is made.
    Standard,
    /// It is changed in place where only images and metadata differ, see [`super::fleet::in_place`].
    InPlaceIfPossible,
}

/// What happens to the nodes that have a revision when the guard stops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Nothing.
    Stop,
    /// Their pods are taken back to the revision before in place, see [`super::engine::revert`].
    RevertInPlace,
}

/// An absolute number, or a percentage of the targeted nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// That many nodes.
    Number(u32),
    /// That many percent of the targeted nodes.
    Percent(u32),
}

/// What the images of a node mean for its replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predownload {
    /// It waits until they are there.
    Required,
    /// It does not wait; pulling only runs ahead.
    BestEffort,
}

/// How a pod is made to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// It is deleted.
    Delete,
    /// It is evicted: PodDisruptionBudgets have a say.
    Evict,
}

/// Which nodes fail together, and how many such domains may be touched at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The node label whose values are the domains.
    pub key: Arc<str>,
    /// How many of them at once; at least one.
    pub at_once: usize,
}

impl Topology {
    /// The domain of a node; empty when it lacks the label.
    pub fn domain_of<'a>(&self, node: &'a Node) -> &'a str {
        node.labels.get(&self.key).unwrap_or_default()
    }
}

/// A pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Until a person resumes.
    Indefinite,
    /// Until that instant.
    Until(Timestamp),
}

/// What the annotations of a DaemonSet say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// No update-strategy: not ours.
    NotOurs,
    /// Ours, but not usable.
    Invalid(Invalid),
    /// Ours.
    Strategy {
        /// The settings.
        strategy: Strategy,
        /// What the owner should know about them (an old key, a contradiction, an unused value).
        notes: Vec<Note>,
    },
}

/// A setting that cannot be used: key, value and what was expected. Its `Display` is one sentence with the cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The annotation or field.
    pub key: String,
    /// Its value as found, cut to a length that fits into an Event.
    pub value: String,
    /// What is wrong and the cure; continues the sentence "KEY is VALUE, …".
    pub why: String,
}

/// Something about valid settings that the owner should know, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether it is a mistake (Event type `Warning`) or advice (`Normal`).
    pub warning: bool,
    /// One sentence.
    pub text: String,
}

impl Invalid {
    /// Whether it is `spec.updateStrategy` that is not `OnDelete`: then the native controller replaces the pods.
    pub fn is_native_update(&self) -> bool {
        self.key == UPDATE_STRATEGY_TYPE_FIELD
    }

    /// What follows for the pods.
    pub fn consequence(&self) -> &'static str {
        match self.is_native_update() {
            true => {
                "yurt-ds replaces nothing; Kubernetes' own rolling update does, whatever the annotations say"
            }
            false => "nothing is replaced before the settings are corrected",
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {:?}, {}", self.key, self.value, self.why)
    }
}
