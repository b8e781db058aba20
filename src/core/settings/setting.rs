//! What is known of a setting without any DaemonSet.

use std::fmt;
use std::time::Duration;

use super::error::Invalid;
use super::mode::Mode;
use super::reader::Reader;
use crate::core::names::ANNOTATION_PREFIX;

/// A setting, in words, and how it is checked. Texts quote what is typed by backquotes.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The annotation.
    pub key: &'static str,
    /// An older annotation that is read when the first is absent.
    pub old_key: Option<&'static str>,
    /// What it does, in one line.
    pub summary: &'static str,
    /// How its value is written.
    pub syntax: Syntax,
    /// What holds where it is not set.
    pub default: &'static str,
    /// The modes that heed it; the others only tell that it is there.
    pub modes: &'static [Mode],
    /// Whether nothing is lost without it under Kubernetes' own rolling update: that has the like, or there it means nothing.
    pub is_native: bool,
    /// Whether what is written can be used; tells what the owner should know of it.
    pub(super) check: fn(&mut Reader<'_>) -> Result<(), Invalid>,
    /// What the default comes to on a DaemonSet, where that depends on other settings.
    pub(super) default_on: fn(&mut Reader<'_>) -> Option<String>,
}

/// How the value of a setting is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// A number of nodes, or a percentage of them: [`IntOrPercent`](super::IntOrPercent).
    IntOrPercent,
    /// A duration of at most so long.
    Duration(Duration),
    /// Told in words.
    Text(&'static str),
}

impl Setting {
    /// What most settings have in common: they are about replacements that the controller begins, and have a default that no other
    /// setting changes.
    pub(super) const ROLLING: Self = Self {
        key: "",
        old_key: None,
        summary: "",
        syntax: Syntax::IntOrPercent,
        default: "",
        modes: &[Mode::AdvancedRollingUpdate],
        is_native: false,
        check: |_| Ok(()),
        default_on: |_| None,
    };

    /// Its key without the family's prefix, as people type it.
    pub fn name(&self) -> &'static str {
        self.key.trim_start_matches(ANNOTATION_PREFIX)
    }

    /// Every annotation that is this setting.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.key).chain(self.old_key)
    }

    /// Whether it has an effect under that mode.
    pub fn is_heeded_by(&self, mode: Mode) -> bool {
        self.modes.contains(&mode)
    }

    /// Returns the value as `read` reads it, or `default` for one that cannot be used ([`Reader::heed`]).
    pub(super) fn read<T>(
        &self,
        reader: &mut Reader<'_>,
        read: fn(&mut Reader<'_>) -> Result<T, Invalid>,
        default: T,
    ) -> T {
        let value = read(reader);
        reader.heed(self.is_heeded_by(reader.mode), value, default)
    }
}

impl fmt::Display for Syntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IntOrPercent => f.write_str("`3` or `10%`"),
            Self::Duration(limit) => {
                let limit = humantime::format_duration(*limit);
                write!(f, "`90s`, at most `{limit}`")
            }
            Self::Text(text) => f.write_str(text),
        }
    }
}
