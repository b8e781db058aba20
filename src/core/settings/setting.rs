//! Static description of a setting.

use std::fmt;
use std::time::Duration;

use super::error::Invalid;
use super::mode::Mode;
use super::reader::Reader;
use crate::core::names::ANNOTATION_PREFIX;

/// Description of a setting, with its check. In the texts, literal values are in backquotes.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Key of the annotation.
    pub key: &'static str,
    /// Old key of the annotation, which is read if the current key is absent.
    pub old_key: Option<&'static str>,
    /// Effect of the setting, in one line.
    pub summary: &'static str,
    /// Syntax of the setting's value.
    pub syntax: Syntax,
    /// Value that applies if the setting is absent.
    pub default: &'static str,
    /// Modes that use the setting. In other modes, a note says that it has no effect.
    pub modes: &'static [Mode],
    /// True if the setting is not needed with Kubernetes' own rolling update: it has an equivalent there, or no purpose.
    pub is_native: bool,
    /// Check of the value. It also adds notes for the owner of the DaemonSet.
    pub(super) check: fn(&mut Reader<'_>) -> Result<(), Invalid>,
    /// Default of the setting on a particular DaemonSet; `None` if it doesn't depend on the DaemonSet.
    pub(super) default_on: fn(&mut Reader<'_>) -> Option<String>,
}

/// Syntax of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// Number or percentage of nodes: [`IntOrPercent`](super::IntOrPercent).
    IntOrPercent,
    /// Duration with a maximum value.
    Duration(Duration),
    /// Description of the syntax in words.
    Text(&'static str),
}

impl Setting {
    /// Values that most settings share: a fixed default, and an effect only on updates that the controller starts.
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

    /// Returns the key without the prefix, as users enter it.
    pub fn name(&self) -> &'static str {
        self.key.trim_start_matches(ANNOTATION_PREFIX)
    }

    /// Returns the current key and the old one, if there is one.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.key).chain(self.old_key)
    }

    /// Returns true if the setting has an effect in that mode.
    pub fn is_used_by(&self, mode: Mode) -> bool {
        self.modes.contains(&mode)
    }

    /// Returns the value from `read`; `default` if it is invalid.
    pub(super) fn read<T>(
        &self,
        reader: &mut Reader<'_>,
        read: fn(&mut Reader<'_>) -> Result<T, Invalid>,
        default: T,
    ) -> T {
        let value = read(reader);
        reader.value_or(self.is_used_by(reader.mode), value, default)
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
