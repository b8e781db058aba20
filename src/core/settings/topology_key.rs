//! `topology-key`: failure domains, which are updated one after the other.

use std::sync::Arc;

use super::error::Invalid;
use super::max_domains::{self, MAX_DOMAINS};
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use super::value::label_key;
use crate::core::foreign::quoted;
use crate::core::labels::Labels;

/// Node label whose values are failure domains that are updated one after the other (k/k#114010).
pub const TOPOLOGY_KEY: &str = "apps.openyurt.io/topology-key";

pub(super) const SETTING: Setting = Setting {
    key: TOPOLOGY_KEY,
    summary: "node label, such as the zone; nodes are updated one label value at a time, in alphabetical order",
    syntax: Syntax::Text("a label key, as `topology.kubernetes.io/zone`"),
    default: "off",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

/// Failure domains, with the number of them in which updates may be in progress at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Node label whose values are the failure domains.
    pub key: Arc<str>,
    /// Number of failure domains in which updates may be in progress at the same time, at least one.
    pub at_once: usize,
}

impl Topology {
    /// Returns the failure domain of a node with these labels: the value of the label `key`, or empty text if it is absent.
    pub fn domain_of<'a>(&self, labels: &'a Labels) -> &'a str {
        labels.get(&self.key).unwrap_or_default()
    }
}

/// Parses `topology-key` and `max-domains`. Without `topology-key`, `max-domains` has no effect.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Topology>, Invalid> {
    let at_once = max_domains::read(reader)?;
    if let Some(written) = reader.written(TOPOLOGY_KEY) {
        let key = written.read(|text| label_key(text).map(Arc::from))?;
        return Ok(Some(Topology { key, at_once }));
    }
    if let Some(written) = reader.written(MAX_DOMAINS) {
        let text = format!(
            "{} is {:?} and has no effect without {}; set both, or remove it",
            written.name,
            quoted(written.text),
            reader.name(TOPOLOGY_KEY)
        );
        reader.is_without_effect(MAX_DOMAINS, text);
    }
    Ok(None)
}
