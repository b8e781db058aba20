//! Static description of a setting.

use std::fmt;
use std::time::Duration;

use super::error::Invalid;
use super::mode::Mode;
use super::reader::Reader;
use crate::core::names::ANNOTATION_PREFIX;

/// Description of a setting and its check. Texts put literal values in backquotes.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Annotation.
    pub key: &'static str,
    /// Old annotation, which is read if the current one is absent.
    pub old_key: Option<&'static str>,
    /// Effect, in one line.
    pub summary: &'static str,
    /// Syntax of the value.
    pub syntax: Syntax,
    /// Value when the setting is not set.
    pub default: &'static str,
    /// Modes that use the setting. Other modes only report that it is set.
    pub modes: &'static [Mode],
    /// True if the setting can be dropped under Kubernetes' own rolling update, which has an equivalent or gives it no meaning.
    pub is_native: bool,
    /// Checks the value and adds notes for the owner.
    pub(super) check: fn(&mut Reader<'_>) -> Result<(), Invalid>,
    /// Default on a DaemonSet, if it depends on other settings.
    pub(super) default_on: fn(&mut Reader<'_>) -> Option<String>,
}

/// Syntax of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// Number or percentage of nodes: [`IntOrPercent`](super::IntOrPercent).
    IntOrPercent,
    /// Duration, with its maximum.
    Duration(Duration),
    /// Description in words.
    Text(&'static str),
}

impl Setting {
    /// Common values of most settings. Those affect replacements that the controller starts, and have a fixed default.
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

    /// Returns the key without the prefix, as users type it.
    pub fn name(&self) -> &'static str {
        self.key.trim_start_matches(ANNOTATION_PREFIX)
    }

    /// Returns the current key and the old one.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.key).chain(self.old_key)
    }

    /// Returns true if the setting has an effect in that mode.
    pub fn is_heeded_by(&self, mode: Mode) -> bool {
        self.modes.contains(&mode)
    }

    /// Returns the value parsed by `read`, or `default` if it is invalid.
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
