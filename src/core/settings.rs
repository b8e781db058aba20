//! What the owner of a DaemonSet asked for, read once from its annotations.
//!
//! ```text
//! error ─► value ─► reader ─► setting ─► one module for each ─► SETTINGS ─► Strategy
//! ```
//!
//! A module of a setting says everything about it: its key, what it does, how it is written, its limits and its default, who
//! heeds it and how it goes together with others; [`SETTINGS`] lists them. `reader` knows where values stand and what
//! their places are called, `advice` what looks like a setting and is none. Nobody looks at a raw annotation after [`read`].

mod advice;
pub mod approved_waves;
pub mod disruption;
mod error;
pub mod failure_threshold;
pub mod failure_window;
pub mod fields;
pub mod image_predownload_min_updated_ready_pods;
pub mod image_predownload_parallelism;
pub mod image_predownload_timeout_seconds;
mod kruise;
pub mod lifecycle;
pub mod maintenance_window;
pub mod max_domains;
pub mod max_surge;
pub mod max_unavailable;
pub mod min_interval;
mod mode;
pub mod on_failure;
pub mod partition;
pub mod paused;
pub mod predownload;
pub mod ramp_up;
mod reader;
pub mod ready_settle;
pub mod replace_broken_first;
pub mod resume;
pub mod rolling_update_type;
pub mod selector;
mod setting;
pub mod start_now;
mod state;
#[cfg(test)]
mod tests;
pub mod topology_key;
pub mod update_strategy;
mod value;
pub mod waves;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::id::{Revision, RevisionState};
use super::lifecycle::PreDelete;
use super::names::{ON_DELETE, UPDATE_STRATEGY_TYPE_FIELD};
use super::selector::Selector;
use super::window::Windows;
use reader::Reader;
use update_strategy::UPDATE_STRATEGY;

pub use advice::stray;
pub use approved_waves::Approval;
pub use disruption::Disruption;
pub use error::{Expected, Invalid, Note, ParseError};
pub use fields::{AdvancedSpec, DecidingFields, FieldSettings, Scaling, path_of};
pub use image_predownload_timeout_seconds::DEFAULT_IMAGE_PREDOWNLOAD_TIMEOUT;
pub use kruise::our_setting;
pub use max_unavailable::DEFAULT_MAX_UNAVAILABLE;
pub use mode::Mode;
pub use on_failure::OnFailure;
pub use paused::Pause;
pub use predownload::Predownload;
pub use reader::SettingsSource;
pub use ready_settle::DEFAULT_READY_SETTLE;
pub use rolling_update_type::RollingUpdateType;
pub use setting::{Setting, Syntax};
pub use state::{SettingState, SettingStatus, states};
pub use topology_key::Topology;
pub use value::IntOrPercent;
pub use waves::{REST, Wave, Waves};

/// Every setting.
pub const SETTINGS: &[Setting] = &[
    update_strategy::SETTING,
    max_unavailable::SETTING,
    max_surge::SETTING,
    paused::SETTING,
    partition::SETTING,
    selector::SETTING,
    min_interval::SETTING,
    ramp_up::SETTING,
    waves::SETTING,
    approved_waves::SETTING,
    start_now::SETTING,
    topology_key::SETTING,
    max_domains::SETTING,
    failure_threshold::SETTING,
    failure_window::SETTING,
    on_failure::SETTING,
    resume::SETTING,
    replace_broken_first::SETTING,
    maintenance_window::SETTING,
    image_predownload_parallelism::SETTING,
    predownload::SETTING,
    image_predownload_timeout_seconds::SETTING,
    image_predownload_min_updated_ready_pods::SETTING,
    rolling_update_type::SETTING,
    lifecycle::SETTING,
    disruption::SETTING,
    ready_settle::SETTING,
];

/// The setting that an annotation of a DaemonSet is, under its present key or an older one.
pub fn setting(key: &str) -> Option<&'static Setting> {
    let is_it = |setting: &&Setting| setting.keys().any(|known| known == key);
    SETTINGS.iter().find(is_it)
}

/// Whether an annotation of a DaemonSet is a setting of ours.
pub fn is_setting(key: &str) -> bool {
    setting(key).is_some()
}

/// The annotations of all settings, older keys included.
pub fn keys() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().flat_map(Setting::keys)
}

/// The settings of a DaemonSet that is ours, all of them valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Who starts a replacement.
    pub mode: Mode,
    /// How many targeted nodes may lack an available pod at once; only used by [`Mode::AdvancedRollingUpdate`].
    pub max_unavailable: IntOrPercent,
    /// On how many targeted nodes a new pod may be made beside the old one at once; zero: on none.
    pub max_surge: IntOrPercent,
    /// How many of the targeted nodes (percentages are rounded down) keep the old revision.
    pub partition: IntOrPercent,
    /// Which nodes take part, by their labels; `None`: all.
    pub selector: Option<Selector>,
    /// The shortest time between the birth of a new pod and the next replacement; zero: none.
    pub min_interval: Duration,
    /// How many nodes may lack an available pod at the beginning of a rollout; `None`: as many as ever.
    pub ramp_up: Option<IntOrPercent>,
    /// When replacements may begin, on nodes that say nothing of their own; `None`: always.
    pub window: Option<Arc<Windows>>,
    /// How many nodes pull the new images at once ahead of their replacement; `None`: none does.
    pub image_predownload_parallelism: Option<IntOrPercent>,
    /// Whether a replacement waits for the images of its node; `None`: not said.
    pub predownload: Option<Predownload>,
    /// How long a node may pull the new images in one attempt, whoever asked for it.
    pub image_predownload_timeout: Duration,
    /// How many targeted nodes (percentages are rounded up) have to run a Ready pod of the new revision before others pull its
    /// images ahead.
    pub image_predownload_min_updated_ready_pods: IntOrPercent,
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
    pub failure_threshold: Option<IntOrPercent>,
    /// What happens to nodes that have a revision when it is stopped.
    pub on_failure: OnFailure,
    /// The revision that does not wait for [`window`](Self::window) and [`min_interval`](Self::min_interval).
    pub start_now: Option<Revision>,
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
    /// In which order of names nodes have their turns.
    pub order: NodeOrder,
    /// Whether `partition` also keeps nodes from getting their first pod (`spec.scaleStrategy.partitionedScaling`, Kruise).
    pub partitioned: bool,
    /// How long a node that returned has to be Ready before its pod is touched.
    pub ready_settle: Duration,
    /// The settings that fields decide; the others are annotations.
    pub fields: DecidingFields,
}

impl Strategy {
    /// The settings of a DaemonSet that says nothing but its mode.
    pub fn with_mode(mode: Mode) -> Self {
        Self {
            mode,
            max_unavailable: DEFAULT_MAX_UNAVAILABLE,
            max_surge: IntOrPercent::NONE,
            partition: IntOrPercent::NONE,
            selector: None,
            min_interval: Duration::ZERO,
            ramp_up: None,
            window: None,
            image_predownload_parallelism: None,
            predownload: None,
            image_predownload_timeout: DEFAULT_IMAGE_PREDOWNLOAD_TIMEOUT,
            image_predownload_min_updated_ready_pods: IntOrPercent::NONE,
            waves: None,
            topology: None,
            rolling_update_type: RollingUpdateType::Standard,
            broken_unlimited: false,
            failure_window: None,
            failure_threshold: None,
            on_failure: OnFailure::Stop,
            start_now: None,
            resume: None,
            pre_delete: None,
            disruption: Disruption::Delete,
            pause: None,
            min_ready: Duration::ZERO,
            order: NodeOrder::Ascending,
            partitioned: false,
            ready_settle: DEFAULT_READY_SETTLE,
            fields: DecidingFields::default(),
        }
    }

    /// What sentences call a setting: its annotation, or the field that decides.
    pub fn name_of(&self, key: &'static str) -> &'static str {
        self.fields.path_of(key).unwrap_or(key)
    }

    /// The same with the word that goes before an annotation.
    pub fn place_of(&self, key: &'static str) -> String {
        match self.name_of(key) {
            annotation if annotation == key => format!("the annotation {annotation}"),
            field => field.to_owned(),
        }
    }

    /// What the owner should know about settings that are about one revision, now that the current one is known.
    pub fn notes_on(&self, state: &RevisionState) -> impl Iterator<Item = Note> {
        let current = state.current();
        let resume = self.resume.as_ref().zip(current);
        let start_now = self.start_now.as_ref().zip(current);
        let resume = resume.map(|(resume, current)| resume::note(resume, current));
        let start_now = start_now.map(|(named, current)| start_now::note(named, current));
        resume.into_iter().chain(start_now)
    }

    /// Returns the settings that count for a revision: without window and interval if it is to start now.
    pub fn on(&self, state: &RevisionState) -> Cow<'_, Self> {
        match (&self.start_now, state.current()) {
            (Some(named), Some(current)) if named == current => Cow::Owned(Self {
                window: None,
                min_interval: Duration::ZERO,
                ..self.clone()
            }),
            _ => Cow::Borrowed(self),
        }
    }
}

/// In which order of their names nodes have their turns, where nothing else decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOrder {
    /// The first one by name is the first.
    Ascending,
    /// The last one by name is the first, and `partition` keeps the first ones (Kruise).
    Descending,
}

impl NodeOrder {
    /// Whether the node called `name` has its turn before the `other` one.
    pub fn is_before<T: Ord>(self, name: T, other: T) -> bool {
        match self {
            Self::Ascending => name < other,
            Self::Descending => name > other,
        }
    }
}

/// What the annotations of a DaemonSet say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedSettings {
    /// No update-strategy: not ours.
    NotOurs,
    /// Managed, but some settings are invalid, so no rollout takes place. The strategy has the valid settings, and defaults for the
    /// others. Creation of pods, hooks and readiness gates use it.
    Invalid(Invalid, Box<Strategy>),
    /// Ours.
    Strategy {
        /// The settings.
        strategy: Box<Strategy>,
        /// What the owner should know about them (an old key, a contradiction, an unused value).
        notes: Vec<Note>,
    },
}

impl ParsedSettings {
    /// Returns the settings that can be used; `None`: the DaemonSet is not managed.
    pub fn usable(&self) -> Option<&Strategy> {
        match self {
            Self::NotOurs => None,
            Self::Invalid(_, strategy) => Some(strategy),
            Self::Strategy { strategy, .. } => Some(strategy),
        }
    }

    /// Returns the same settings of a DaemonSet of which something else cannot be used.
    pub fn refused(&self, invalid: Invalid) -> Self {
        let usable = self.usable().cloned();
        let usable = usable.unwrap_or_else(|| Strategy::with_mode(Mode::AdvancedRollingUpdate));
        Self::Invalid(invalid, Box::new(usable))
    }
}

/// Reads the settings of a DaemonSet.
///
/// One state for everything that cannot be used: [`Invalid`], which names the first such setting. What only is of no use (an
/// old key, a value that the mode does not look at) becomes a [`Note`].
pub fn read(source: &SettingsSource<'_>) -> ParsedSettings {
    let mut notes = Vec::new();
    let (mode, unreadable) = match update_strategy::read(source, &mut notes) {
        None => return ParsedSettings::NotOurs,
        Some(Err(invalid)) => (Mode::AdvancedRollingUpdate, Some(invalid)),
        Some(Ok(mode)) => (mode, None),
    };
    let mut reader = Reader::new(source, mode);
    reader.invalid = unreadable;
    let strategy = strategy(&mut reader);
    match reader.invalid.take() {
        Some(invalid) => ParsedSettings::Invalid(invalid, Box::new(strategy)),
        None => {
            notes.append(&mut reader.notes);
            let unused = source
                .fields
                .map(|fields| fields.advice(source.annotations));
            notes.extend(unused.into_iter().flatten());
            notes.extend(advice::on_keys(source.annotations, source.in_template));
            notes.extend(advice::on_percentages(source.annotations));
            if mode == Mode::Ota {
                notes.extend(advice::on_ota(source.annotations, &notes));
            }
            if source.fields.is_none() {
                notes.extend(kruise::advice(source.annotations));
            }
            ParsedSettings::Strategy {
                strategy: strategy.into(),
                notes,
            }
        }
    }
}

/// Reads every setting, in the order of the table. The reader keeps the first that cannot be used; each of those has its default.
fn strategy(reader: &mut Reader<'_>) -> Strategy {
    let default = Strategy::with_mode(reader.mode);
    match reader.source.fields {
        Some(fields) => reader.heed(true, fields.check(), ()),
        None => {
            reader.heed(true, require_on_delete(reader), ());
            let foreign = kruise::refuse(reader.source.annotations);
            reader.heed(reader.mode == Mode::AdvancedRollingUpdate, foreign, ());
        }
    }
    let read_shares = |reader: &mut Reader<'_>| max_unavailable::shares(reader).map(Some);
    let shares = max_surge::SETTING.read(reader, read_shares, None);
    let shares = shares.unwrap_or_else(|| max_unavailable::usable_shares(reader));
    Strategy {
        mode: reader.mode,
        max_unavailable: shares.max_unavailable,
        max_surge: shares.max_surge,
        pause: paused::SETTING.read(reader, paused::read, default.pause),
        partition: partition::SETTING.read(reader, partition::read, default.partition),
        selector: selector::SETTING.read(reader, selector::read, default.selector),
        min_interval: min_interval::SETTING.read(reader, min_interval::read, default.min_interval),
        ramp_up: ramp_up::SETTING.read(reader, ramp_up::read, default.ramp_up),
        waves: waves::SETTING.read(reader, waves::read, default.waves),
        topology: topology_key::SETTING.read(reader, topology_key::read, default.topology),
        failure_threshold: failure_threshold::SETTING.read(
            reader,
            failure_threshold::read,
            default.failure_threshold,
        ),
        failure_window: failure_window::SETTING.read(
            reader,
            failure_window::read,
            default.failure_window,
        ),
        on_failure: on_failure::SETTING.read(reader, on_failure::read, default.on_failure),
        start_now: start_now::SETTING.read(reader, start_now::read, default.start_now),
        resume: resume::SETTING.read(reader, resume::read, default.resume),
        broken_unlimited: replace_broken_first::SETTING.read(
            reader,
            replace_broken_first::read,
            default.broken_unlimited,
        ),
        window: maintenance_window::SETTING.read(reader, maintenance_window::read, default.window),
        image_predownload_parallelism: image_predownload_parallelism::SETTING.read(
            reader,
            image_predownload_parallelism::read,
            default.image_predownload_parallelism,
        ),
        predownload: predownload::SETTING.read(reader, predownload::read, default.predownload),
        image_predownload_timeout: image_predownload_timeout_seconds::SETTING.read(
            reader,
            image_predownload_timeout_seconds::read,
            default.image_predownload_timeout,
        ),
        image_predownload_min_updated_ready_pods: image_predownload_min_updated_ready_pods::SETTING
            .read(
                reader,
                image_predownload_min_updated_ready_pods::read,
                default.image_predownload_min_updated_ready_pods,
            ),
        rolling_update_type: rolling_update_type::SETTING.read(
            reader,
            rolling_update_type::read,
            default.rolling_update_type,
        ),
        pre_delete: lifecycle::SETTING.read(reader, lifecycle::read, default.pre_delete),
        disruption: disruption::SETTING.read(reader, disruption::read, default.disruption),
        ready_settle: ready_settle::SETTING.read(reader, ready_settle::read, default.ready_settle),
        min_ready: reader.source.min_ready(),
        order: match reader.source.fields {
            Some(_) => NodeOrder::Descending,
            None => NodeOrder::Ascending,
        },
        partitioned: (reader.source.fields).is_some_and(|fields| fields.scaling.partitioned),
        fields: deciding(&reader.source),
    }
}

/// The settings that fields of an Advanced DaemonSet decide, or would: those of which no annotation is there instead.
fn deciding(source: &SettingsSource<'_>) -> DecidingFields {
    let keys = SETTINGS.iter().map(|setting| setting.key);
    let is_field = |key: &&'static str| fields::path_of(key) == Some(source.name(key));
    let decided = keys.filter(is_field);
    decided.fold(DecidingFields::default(), DecidingFields::with)
}

fn require_on_delete(reader: &Reader<'_>) -> Result<(), Invalid> {
    // The API server's default.
    let found = reader.source.update_strategy.unwrap_or("RollingUpdate");
    if found == ON_DELETE {
        return Ok(());
    }
    let why = format!(
        "so the native controller replaces the pods; set it to {ON_DELETE}, or remove the annotation {}",
        reader.name(UPDATE_STRATEGY)
    );
    Err(Invalid::new(UPDATE_STRATEGY_TYPE_FIELD, found, why))
}
