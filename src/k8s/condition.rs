//! Conditions in the status of objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer};

use super::text::Text;
use super::time;
use crate::core::names::UNTOLERATED_TAINT;
use crate::core::revision_in;

/// A condition in the status of any object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Type of the condition, such as `Ready`.
    pub kind: String,
    /// Status: `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason for the status, in one word.
    pub reason: String,
    /// Message about the status, in one sentence.
    pub message: String,
    /// Time of the last change of `status`, according to the clock of the component that wrote it.
    pub last_transition: Option<Time>,
    /// Time of the last check. Only conditions of pods have this field, and few set it.
    pub last_probe: Option<Time>,
}

impl Condition {
    /// Returns true if the condition's status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// Returns the revision hash in the message; `None` if the message contains none.
    pub fn hash(&self) -> Option<&str> {
        revision_in(&self.message).filter(|hash| !hash.is_empty())
    }

    /// Returns true if both conditions name a revision, and the revisions differ.
    pub fn names_other_revision(&self, other: &Self) -> bool {
        let hashes = self.hash().zip(other.hash());
        hashes.is_some_and(|(own, other)| own != other)
    }

    /// Returns true if this `PodNeedUpgrade` reports a taint of the node that a new pod wouldn't tolerate.
    ///
    /// The agent can't read Nodes. Therefore the controller reports the taint as the reason of the condition.
    pub fn is_repelled(&self) -> bool {
        self.is_true() && self.reason == UNTOLERATED_TAINT
    }
}

/// A condition before its type is checked. Most conditions are dropped, so it borrows its texts and doesn't parse times.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Raw<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    status: Option<Text<'a>>,
    #[serde(borrow)]
    reason: Option<Text<'a>>,
    #[serde(borrow)]
    message: Option<Text<'a>>,
    #[serde(borrow)]
    last_transition_time: Option<Text<'a>>,
    #[serde(borrow)]
    last_probe_time: Option<Text<'a>>,
}

impl Raw<'_> {
    fn read<E: serde::de::Error>(self) -> Result<Condition, E> {
        let text =
            |text: Option<Text<'_>>| text.map_or_else(String::new, |Text(text)| text.into_owned());
        let time = |text: Option<Text<'_>>| -> Result<Option<Time>, E> {
            let time = text.map(|Text(text)| time::read(&text));
            time.transpose().map_err(E::custom)
        };
        Ok(Condition {
            kind: text(self.kind),
            status: text(self.status),
            reason: text(self.reason),
            message: text(self.message),
            last_transition: time(self.last_transition_time)?,
            last_probe: time(self.last_probe_time)?,
        })
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Raw::deserialize(deserializer)?.read()
    }
}

/// Deserializes a list of conditions and keeps those of the given types.
pub(super) fn of_types<'de, D: Deserializer<'de>>(
    deserializer: D,
    types: &[&str],
) -> Result<Vec<Condition>, D::Error> {
    let all = Option::<Vec<Raw<'de>>>::deserialize(deserializer)?.unwrap_or_default();
    let is_kept = |raw: &Raw<'_>| {
        let kind = raw.kind.as_ref();
        kind.is_some_and(|Text(kind)| types.contains(&&**kind))
    };
    all.into_iter().filter(is_kept).map(Raw::read).collect()
}
