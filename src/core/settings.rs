//! Settings of a DaemonSet, parsed once from its annotations.
//!
//! ```text
//! error ─► value ─► reader ─► setting ─► one module for each ─► SETTINGS ─► Strategy
//! ```
//!
//! The module of a setting contains everything about it: key, effect, syntax, limits, default, modes, and interaction with other
//! settings. [`SETTINGS`] lists all settings. `reader` knows where values are written, and how messages name them. `advice` finds
//! annotations that only look like settings. After [`read`], no code uses raw annotations.

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

pub use advice::{is_misspelt, stray};
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

/// All settings, in the order in which they are parsed.
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

/// Returns the setting with the annotation `key`, which may be an old key; `None` if it is no setting.
pub fn setting(key: &str) -> Option<&'static Setting> {
    let is_it = |setting: &&Setting| setting.keys().any(|known| known == key);
    SETTINGS.iter().find(is_it)
}

/// Returns true if the annotation `key` is a setting of yurt-ds.
pub fn is_setting(key: &str) -> bool {
    setting(key).is_some()
}

/// Returns the annotations of all settings, including old keys.
pub fn keys() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().flat_map(Setting::keys)
}

/// Valid settings of a managed DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Rollout mode. It decides if the controller or the node owner starts updates.
    pub mode: Mode,
    /// Number of targeted nodes that may lack an available pod at once; only used by [`Mode::AdvancedRollingUpdate`].
    pub max_unavailable: IntOrPercent,
    /// Number of targeted nodes on which a surge pod may run next to the old pod at the same time; zero disables surge.
    pub max_surge: IntOrPercent,
    /// Number of targeted nodes that keep the old revision (percentages are rounded down).
    pub partition: IntOrPercent,
    /// Selector of the nodes that take part; `None` means all nodes.
    pub selector: Option<Selector>,
    /// Minimum interval between the creation of a new pod and the next update; zero disables it.
    pub min_interval: Duration,
    /// Number of nodes that may lack an available pod at the start of a rollout. `None` if `max_unavailable` applies from the
    /// start.
    pub ramp_up: Option<IntOrPercent>,
    /// Maintenance windows for nodes without their own windows; `None` means that updates may begin at any time.
    pub window: Option<Arc<Windows>>,
    /// Number of nodes that pre-pull the new images at once; `None` means no pre-pulls.
    pub image_predownload_parallelism: Option<IntOrPercent>,
    /// Decides if the update of a node waits for the new images; `None` if the setting is absent.
    pub predownload: Option<Predownload>,
    /// Time limit for one attempt to pull images on a node, for pulls of the rollout and of node owners.
    pub image_predownload_timeout: Duration,
    /// Number of targeted nodes that have to run a Ready pod of the new revision before other nodes pre-pull its images.
    ///
    /// Percentages are rounded up.
    pub image_predownload_min_updated_ready_pods: IntOrPercent,
    /// Pools of nodes that are updated one after the other; `None` means that all nodes are updated together.
    pub waves: Option<Arc<Waves>>,
    /// Failure domains, such as zones, of which only some are updated at the same time; `None` means no such limit.
    pub topology: Option<Topology>,
    /// Method of updating pods: recreate them, or change them in place.
    pub rolling_update_type: RollingUpdateType,
    /// True if all nodes with a broken old pod are replaced at once, regardless of `max-unavailable`.
    pub broken_unlimited: bool,
    /// Time after the creation of a node's new pod within which a failure of the node counts against the revision.
    ///
    /// `None` means five minutes, or `min_ready` if that is longer.
    pub failure_window: Option<Duration>,
    /// Number of targeted nodes that may fail before the revision is stopped. `None` means as many as `max_unavailable` or
    /// `max_surge` allows, whichever is more.
    pub failure_threshold: Option<IntOrPercent>,
    /// Action for the pods of a revision that the guard stops.
    pub on_failure: OnFailure,
    /// Revision to which [`window`](Self::window) and [`min_interval`](Self::min_interval) don't apply.
    pub start_now: Option<Revision>,
    /// Revision whose rollout continues although the guard stopped it.
    pub resume: Option<Revision>,
    /// The preDelete hook, which has to agree before a pod is deleted; `None` if there is none.
    pub pre_delete: Option<Arc<PreDelete>>,
    /// Method of removing pods: delete or evict.
    pub disruption: Disruption,
    /// Pause of updates, with its end; `None` if the rollout is not paused.
    pub pause: Option<Pause>,
    /// Time that a pod has to be Ready to be available (`spec.minReadySeconds`).
    pub min_ready: Duration,
    /// Order of the nodes by name.
    pub order: NodeOrder,
    /// True if `partition` also keeps nodes without a pod from getting their first one (`spec.scaleStrategy.partitionedScaling`,
    /// Kruise).
    pub partitioned: bool,
    /// Time that a node has to be Ready after its return before its pod is updated.
    pub ready_settle: Duration,
    /// Settings that come from spec fields. All others come from annotations.
    pub fields: DecidingFields,
}

impl Strategy {
    /// Returns the settings of a DaemonSet that sets only its mode.
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

    /// Returns the name of a setting for messages: its annotation, or its spec field if the value comes from there.
    pub fn name_of(&self, key: &'static str) -> &'static str {
        self.fields.path_of(key).unwrap_or(key)
    }

    /// Returns the name as in [`Self::name_of`]. If it is the name of an annotation, it follows the words "the annotation".
    pub fn place_of(&self, key: &'static str) -> String {
        match self.name_of(key) {
            annotation if annotation == key => format!("the annotation {annotation}"),
            field => field.to_owned(),
        }
    }

    /// Returns notes about settings that name a revision. Each note tells if that is the current revision.
    pub fn notes_on(&self, state: &RevisionState) -> impl Iterator<Item = Note> {
        let current = state.current();
        let resume = self.resume.as_ref().zip(current);
        let start_now = self.start_now.as_ref().zip(current);
        let resume = resume.map(|(resume, current)| resume::note(resume, current));
        let start_now = start_now.map(|(named, current)| start_now::note(named, current));
        resume.into_iter().chain(start_now)
    }

    /// Returns the settings for the current revision. If `start-now` names it, the maintenance window and `min-interval` don't
    /// apply.
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

/// Order of nodes by name. It counts only after all other rules for the order of updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOrder {
    /// Ascending by name.
    Ascending,
    /// Descending by name. `partition` then keeps the first nodes by name (Kruise).
    Descending,
}

impl NodeOrder {
    /// Returns true if the node `name` is updated before the node `other`.
    pub fn is_before<T: Ord>(self, name: T, other: T) -> bool {
        match self {
            Self::Ascending => name < other,
            Self::Descending => name > other,
        }
    }
}

/// Result of parsing a DaemonSet's annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedSettings {
    /// The DaemonSet is not managed, because `update-strategy` is missing.
    NotOurs,
    /// The DaemonSet is managed, but a setting is invalid, so no rollout takes place.
    ///
    /// The strategy has the valid settings, and defaults for the invalid ones. It is used for everything but the replacement of
    /// pods, such as hooks and readiness gates.
    Invalid(Invalid, Box<Strategy>),
    /// The DaemonSet is managed, and all settings are valid.
    Strategy {
        /// Parsed settings.
        strategy: Box<Strategy>,
        /// Notes for the owner of the DaemonSet, for example about an old key, a contradiction or an unused value.
        notes: Vec<Note>,
    },
}

impl ParsedSettings {
    /// Returns the usable settings; `None` if the DaemonSet is not managed.
    pub fn usable(&self) -> Option<&Strategy> {
        match self {
            Self::NotOurs => None,
            Self::Invalid(_, strategy) => Some(strategy),
            Self::Strategy { strategy, .. } => Some(strategy),
        }
    }

    /// Returns these settings marked as invalid, with the error `invalid` about another part of the DaemonSet.
    pub fn refused(&self, invalid: Invalid) -> Self {
        let usable = self.usable().cloned();
        let usable = usable.unwrap_or_else(|| Strategy::with_mode(Mode::AdvancedRollingUpdate));
        Self::Invalid(invalid, Box::new(usable))
    }
}

/// Parses the settings of a DaemonSet.
///
/// If settings are invalid, the result has the error for the first of them. A setting without effect is reported by a [`Note`], for
/// example one that the mode doesn't use.
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

/// Parses every setting, in the order of [`SETTINGS`]. An invalid setting gets its default. The reader keeps the first error.
fn strategy(reader: &mut Reader<'_>) -> Strategy {
    let default = Strategy::with_mode(reader.mode);
    match reader.source.fields {
        Some(fields) => reader.value_or(true, fields.check(), ()),
        None => {
            reader.value_or(true, require_on_delete(reader), ());
            let foreign = kruise::refuse(reader.source.annotations);
            reader.value_or(reader.mode == Mode::AdvancedRollingUpdate, foreign, ());
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

/// Returns the settings of an Advanced DaemonSet whose value is in a spec field.
fn deciding(source: &SettingsSource<'_>) -> DecidingFields {
    let keys = SETTINGS.iter().map(|setting| setting.key);
    let is_field = |key: &&'static str| fields::path_of(key) == Some(source.name(key));
    let decided = keys.filter(is_field);
    decided.fold(DecidingFields::default(), DecidingFields::with)
}

fn require_on_delete(reader: &Reader<'_>) -> Result<(), Invalid> {
    // Without a type, the API server's default is `RollingUpdate`.
    let found = reader.source.update_strategy.unwrap_or("RollingUpdate");
    if found == ON_DELETE {
        return Ok(());
    }
    let why = format!(
        "so Kubernetes replaces the pods itself; set it to {ON_DELETE}, or remove the annotation {}",
        reader.name(UPDATE_STRATEGY)
    );
    Err(Invalid::new(UPDATE_STRATEGY_TYPE_FIELD, found, why))
}
