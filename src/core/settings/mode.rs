//! Rollout modes, and the words for them in annotations.

use std::fmt;
use std::str::FromStr;

use super::error::{Expected, ParseError};
use super::value::word;
use crate::core::names::ON_DELETE;

const EXPECTED: Expected =
    Expected("use AdvancedRollingUpdate (alias: auto), SurgingRollingUpdate or OTA");

/// Word for a rolling update with surge in the KEP ("DaemonSet RollingUpdate enhancement").
pub(super) const SURGING: &str = "SurgingRollingUpdate";

/// Rollout mode. It decides if the controller, the node owner or another client starts the update of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The controller starts updates, within the budget.
    AdvancedRollingUpdate,
    /// The node owner starts the update of the node's pod.
    Ota,
    /// Any client starts an update by deleting a pod (`updateStrategy.type: OnDelete` of an Advanced DaemonSet).
    OnDelete,
}

impl Mode {
    /// Modes that an annotation can name.
    pub const ALL: [Self; 2] = [Self::AdvancedRollingUpdate, Self::Ota];
}

impl FromStr for Mode {
    type Err = ParseError;

    /// Parses a mode, ignoring case.
    ///
    /// `auto` means `AdvancedRollingUpdate`. `SurgingRollingUpdate` means it, too, but with 1 as the default of `max-surge`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let words = [
            ("AdvancedRollingUpdate", Self::AdvancedRollingUpdate),
            ("auto", Self::AdvancedRollingUpdate),
            (SURGING, Self::AdvancedRollingUpdate),
            ("OTA", Self::Ota),
        ];
        word(text, words, EXPECTED)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AdvancedRollingUpdate => "AdvancedRollingUpdate",
            Self::Ota => "OTA",
            Self::OnDelete => ON_DELETE,
        })
    }
}

/// Returns true if this value of `update-strategy` is `SurgingRollingUpdate`, ignoring case.
pub(super) fn is_surging(text: &str) -> bool {
    text.eq_ignore_ascii_case(SURGING)
}
