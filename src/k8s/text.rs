//! Strings that are deserialized without a copy.

use std::borrow::Cow;

use serde::Deserialize;

/// A string that borrows from the input unless it contains escapes.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);
