//! Reader of the settings of one DaemonSet. It finds their values in annotations and fields, and collects notes.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde_json::Value;

use super::error::{Invalid, Note, ParseError};
use super::fields::{FieldSettings, path_of};
use super::mode::Mode;
use super::value::{Written, duration};
use crate::core::engine::surge::exclusive::Exclusive;
use crate::core::engine::surge::preempting::Preempting;

/// Parts of a DaemonSet that contain settings or affect them.
#[derive(Clone, Copy, Debug)]
pub struct SettingsSource<'a> {
    /// `metadata.annotations`.
    pub annotations: &'a BTreeMap<String, String>,
    /// `spec.updateStrategy.type`; `None` means the API server's default, `RollingUpdate`.
    pub update_strategy: Option<&'a str>,
    /// `spec.updateStrategy.rollingUpdate.maxUnavailable`, which a native DaemonSet may still have. It applies if the annotation is
    /// absent.
    pub rolling_update_max_unavailable: Option<&'a Value>,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i64,
    /// Settings found in the annotations of the pod template, where they have no effect.
    pub in_template: &'a [String],
    /// Reason why two pods of the template cannot run on one node; `None` if they can.
    pub exclusive: Option<&'a Exclusive>,
    /// Part of the template that lets the pods preempt other pods on a full node; `None` if they can't.
    pub preempting: Option<&'a Preempting>,
    /// Fields of an Advanced DaemonSet; `None` for a native one.
    pub fields: Option<&'a FieldSettings>,
}

impl<'a> SettingsSource<'a> {
    /// Returns the value of a setting, and the name of its annotation or field for messages.
    ///
    /// An Advanced DaemonSet can have values in fields of its spec. No other function depends on where a value is written.
    pub(super) fn written(&self, key: &'static str) -> Option<Written<'a>> {
        if let Some((name, text)) = self.fields.and_then(|fields| fields.written(key)) {
            return Some(Written { name, text });
        }
        let text = self.annotations.get(key)?;
        Some(Written { name: key, text })
    }

    /// Returns `spec.minReadySeconds`, limited so that later sums can't overflow.
    ///
    /// The API server itself rejects negative values, and values of more than 32 bits.
    pub(super) fn min_ready(&self) -> Duration {
        let seconds = self.min_ready_seconds.clamp(0, i64::from(i32::MAX));
        Duration::from_secs(seconds.unsigned_abs())
    }

    /// Returns the name of the annotation or field of a setting for messages, even if the setting is absent.
    pub(super) fn name(&self, key: &'static str) -> &'static str {
        let Some(fields) = self.fields else {
            return key;
        };
        match fields.written(key) {
            Some((name, _)) => name,
            None if self.annotations.contains_key(key) => key,
            None => path_of(key).unwrap_or(key),
        }
    }
}

/// Reader of one DaemonSet's settings. It collects notes for the owner of the DaemonSet.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) source: SettingsSource<'a>,
    pub(super) mode: Mode,
    pub(super) notes: Vec<Note>,
    /// Error for the first invalid setting.
    pub(super) invalid: Option<Invalid>,
    /// Settings that have no effect because of other settings, each with its note.
    pub(super) without_effect: Vec<(&'static str, String)>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &SettingsSource<'a>, mode: Mode) -> Self {
        Self {
            source: *source,
            mode,
            notes: Vec::new(),
            invalid: None,
            without_effect: Vec::new(),
        }
    }

    /// Returns the raw value of a setting; `None` if it is not set.
    pub(super) fn written(&self, key: &'static str) -> Option<Written<'a>> {
        self.source.written(key)
    }

    /// Returns the name of the annotation or field of a setting for messages.
    pub(super) fn name(&self, key: &'static str) -> &'static str {
        self.source.name(key)
    }

    /// Parses the value of a setting as type `T`; `None` if the setting is absent.
    pub(super) fn parse<T: FromStr<Err = ParseError>>(
        &self,
        key: &'static str,
    ) -> Result<Option<T>, Invalid> {
        let written = self.written(key);
        written.map(|written| written.parse()).transpose()
    }

    /// Parses the value of a setting as a duration; `None` if the setting is absent.
    pub(super) fn duration(
        &self,
        key: &'static str,
        limit: Duration,
    ) -> Result<Option<Duration>, Invalid> {
        let written = self.written(key);
        let read = |text: &str| duration(text, limit);
        written.map(|written| written.read(read)).transpose()
    }

    /// Adds a warning about a mistake that doesn't block the rollout.
    pub(super) fn warn(&mut self, text: String) {
        self.notes.push(Note::warning(text));
    }

    /// Adds a warning about a setting that has no effect because of another setting.
    pub(super) fn is_without_effect(&mut self, key: &'static str, text: String) {
        self.without_effect.push((key, text.clone()));
        self.warn(text);
    }

    /// Returns the value, or `default` if the value is invalid.
    ///
    /// The reader keeps the error if the mode uses the setting (`is_used`). Otherwise it adds a warning.
    pub(super) fn value_or<T>(
        &mut self,
        is_used: bool,
        value: Result<T, Invalid>,
        default: T,
    ) -> T {
        value.unwrap_or_else(|invalid| {
            if is_used {
                self.invalid.get_or_insert(invalid);
            } else {
                self.warn(unused(&invalid));
            }
            default
        })
    }
}

/// Returns the warning about an invalid value of a setting that the mode doesn't use.
pub(super) fn unused(invalid: &Invalid) -> String {
    format!("{invalid} (no effect under OTA)")
}
