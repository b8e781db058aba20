//! Who starts a replacement, and how that is spelled.

use std::fmt;
use std::str::FromStr;

use super::error::{Expected, ParseError};
use super::value::word;
use crate::core::names::ON_DELETE;

const EXPECTED: Expected =
    Expected("use AdvancedRollingUpdate (or its alias auto), SurgingRollingUpdate or OTA");

/// The KEP's name for a rolling update that surges ("DaemonSet RollingUpdate enhancement").
pub(super) const SURGING: &str = "SurgingRollingUpdate";

/// Who starts a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The controller does, within the budget.
    AdvancedRollingUpdate,
    /// The owner of the node does.
    Ota,
    /// Whoever deletes pods does (`updateStrategy.type: OnDelete` of an Advanced DaemonSet).
    OnDelete,
}

impl Mode {
    /// Every mode that an annotation can name.
    pub const ALL: [Self; 2] = [Self::AdvancedRollingUpdate, Self::Ota];
}

impl FromStr for Mode {
    type Err = ParseError;

    /// Any letter case; `auto` is an exact synonym of `AdvancedRollingUpdate`, and `SurgingRollingUpdate` one with another
    /// default of `max-surge`.
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

/// Whether this value of `update-strategy` is the KEP's name for a rolling update that surges.
pub(super) fn is_surging(text: &str) -> bool {
    text.eq_ignore_ascii_case(SURGING)
}
