//! How the settings of one DaemonSet are read: where values stand, and what is told of them.

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

/// Where the settings of a DaemonSet stand.
#[derive(Clone, Copy, Debug)]
pub struct SettingsSource<'a> {
    /// `metadata.annotations`.
    pub annotations: &'a BTreeMap<String, String>,
    /// `spec.updateStrategy.type`; `None` stands for the API server's default, `RollingUpdate`.
    pub update_strategy: Option<&'a str>,
    /// `spec.updateStrategy.rollingUpdate.maxUnavailable`, left over from another type: used when the annotation is
    /// absent.
    pub rolling_update_max_unavailable: Option<&'a Value>,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i64,
    /// Settings among the annotations of the template, where they have no effect.
    pub in_template: &'a [String],
    /// Why two pods of the template cannot run on one node, if so.
    pub exclusive: Option<&'a Exclusive>,
    /// What lets pods of the template drive others off a node without room, if anything.
    pub preempting: Option<&'a Preempting>,
    /// What the fields of an Advanced DaemonSet say; `None`: it is a native one.
    pub fields: Option<&'a FieldSettings>,
}

impl<'a> SettingsSource<'a> {
    /// What is written for a setting, and what errors call its place. Only here it is known where values stand: another kind
    /// of object can have them in fields of its spec.
    pub(super) fn written(&self, key: &'static str) -> Option<Written<'a>> {
        if let Some((name, text)) = self.fields.and_then(|fields| fields.written(key)) {
            return Some(Written { name, text });
        }
        let text = self.annotations.get(key)?;
        Some(Written { name: key, text })
    }

    /// `spec.minReadySeconds`: the API server refuses what is negative or exceeds 32 bits; the bounds keep later sums from
    /// overflowing.
    pub(super) fn min_ready(&self) -> Duration {
        let seconds = self.min_ready_seconds.clamp(0, i64::from(i32::MAX));
        Duration::from_secs(seconds.unsigned_abs())
    }

    /// What sentences call a setting that stands here, or could.
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

/// Reads the settings of one DaemonSet, and gathers what its owner should know.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) source: SettingsSource<'a>,
    pub(super) mode: Mode,
    pub(super) notes: Vec<Note>,
    /// The first setting that cannot be used.
    pub(super) invalid: Option<Invalid>,
    /// Settings that turned out to do nothing beside the others, with the note that says so.
    pub(super) without_effect: Vec<(&'static str, String)>,
}

impl<'a> Reader<'a> {
    /// Nothing is read yet.
    pub(super) fn new(source: &SettingsSource<'a>, mode: Mode) -> Self {
        Self {
            source: *source,
            mode,
            notes: Vec::new(),
            invalid: None,
            without_effect: Vec::new(),
        }
    }

    /// What is written for a setting.
    pub(super) fn written(&self, key: &'static str) -> Option<Written<'a>> {
        self.source.written(key)
    }

    /// What sentences call a setting.
    pub(super) fn name(&self, key: &'static str) -> &'static str {
        self.source.name(key)
    }

    /// A setting as its type spells it; `None` when it is not set.
    pub(super) fn parse<T: FromStr<Err = ParseError>>(
        &self,
        key: &'static str,
    ) -> Result<Option<T>, Invalid> {
        let written = self.written(key);
        written.map(|written| written.parse()).transpose()
    }

    /// A setting that is a duration; `None` when it is not set.
    pub(super) fn duration(
        &self,
        key: &'static str,
        limit: Duration,
    ) -> Result<Option<Duration>, Invalid> {
        let written = self.written(key);
        let read = |text: &str| duration(text, limit);
        written.map(|written| written.read(read)).transpose()
    }

    /// A mistake that is no reason to stop.
    pub(super) fn warn(&mut self, text: String) {
        self.notes.push(Note::warning(text));
    }

    /// The same of a setting that does nothing beside the others.
    pub(super) fn is_without_effect(&mut self, key: &'static str, text: String) {
        self.without_effect.push((key, text.clone()));
        self.warn(text);
    }

    /// Returns the value, or `default` for one that cannot be used. The reader keeps the reason where the value `is_heeded`, and
    /// else warns.
    pub(super) fn heed<T>(&mut self, is_heeded: bool, value: Result<T, Invalid>, default: T) -> T {
        value.unwrap_or_else(|invalid| {
            if is_heeded {
                self.invalid.get_or_insert(invalid);
            } else {
                self.warn(unused(&invalid));
            }
            default
        })
    }
}

/// What is told of a value that cannot be used, and need not be.
pub(super) fn unused(invalid: &Invalid) -> String {
    format!("{invalid} (OTA does not use it)")
}
