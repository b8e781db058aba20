//! Texts that are read without a copy.

use std::borrow::Cow;

use serde::Deserialize;

/// A text that is not copied where it stands in the input as it is.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);
