//! `rolling-update-type`: update method for running pods.

use std::str::FromStr;

use super::error::{Expected, Invalid, ParseError};
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use super::value::bare;

/// Update method for running pods: `Standard` or `InPlaceIfPossible` (Kruise).
pub const ROLLING_UPDATE_TYPE: &str = "apps.openyurt.io/rolling-update-type";

const EXPECTED: Expected = Expected("use Standard or InPlaceIfPossible");

pub(super) const SETTING: Setting = Setting {
    key: ROLLING_UPDATE_TYPE,
    summary: "`Standard` deletes and creates pods; `InPlaceIfPossible` changes images and metadata of the running pod, which \
              keeps its UID, IP address and node",
    syntax: Syntax::Text("`Standard` or `InPlaceIfPossible`"),
    default: "`Standard`",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

/// Update method for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollingUpdateType {
    /// Delete the pod and create a new one.
    Standard,
    /// Change the pod in place if only images and metadata differ; otherwise recreate it. See [`crate::core::fleet::in_place`].
    InPlaceIfPossible,
}

impl FromStr for RollingUpdateType {
    type Err = ParseError;

    /// Parses the value. Case is significant, as in Kruise.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        match bare(text, EXPECTED)? {
            "Standard" => Ok(Self::Standard),
            "InPlaceIfPossible" => Ok(Self::InPlaceIfPossible),
            _ => Err(ParseError::Unknown(EXPECTED)),
        }
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<RollingUpdateType, Invalid> {
    let kind = reader.parse(ROLLING_UPDATE_TYPE)?;
    Ok(kind.unwrap_or(RollingUpdateType::Standard))
}

/// Returns true if pods are updated in place. An invalid value counts as false.
pub(super) fn is_in_place(reader: &Reader<'_>) -> bool {
    reader.parse(ROLLING_UPDATE_TYPE) == Ok(Some(RollingUpdateType::InPlaceIfPossible))
}
