//! A condition of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer};

use super::meta::nullable;

/// A condition of any object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// When `status` changed last, by the clock of whoever wrote it.
    pub last_transition: Option<Time>,
    /// When it was looked at last; of pods' conditions only, and rarely said.
    pub last_probe: Option<Time>,
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Raw {
            #[serde(rename = "type", deserialize_with = "nullable")]
            kind: String,
            #[serde(deserialize_with = "nullable")]
            status: String,
            #[serde(deserialize_with = "nullable")]
            reason: String,
            #[serde(deserialize_with = "nullable")]
            message: String,
            last_transition_time: Option<Time>,
            last_probe_time: Option<Time>,
        }
        let Raw {
            kind,
            status,
            reason,
            message,
            last_transition_time,
            last_probe_time,
        } = Raw::deserialize(deserializer)?;
        Ok(Self {
            kind,
            status,
            reason,
            message,
            last_transition: last_transition_time,
            last_probe: last_probe_time,
        })
    }
}
