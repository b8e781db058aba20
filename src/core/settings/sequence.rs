//! Settings that say who goes before whom.

use std::collections::BTreeMap;

use super::read::{invalid, quoted};
use super::value::{count, label_key};
use super::{Invalid, Note, Topology};
use crate::core::names::{MAX_DOMAINS, TOPOLOGY_KEY};

/// `topology-key` and `max-domains`.
pub(super) fn topology(
    annotations: &BTreeMap<String, String>,
    notes: &mut Vec<Note>,
) -> Result<Option<Topology>, Invalid> {
    let limit = annotations.get(MAX_DOMAINS);
    let at_once = limit.map_or(Ok(1), |text| {
        count(text).map_err(|flaw| invalid(MAX_DOMAINS, text, flaw))
    })?;
    let Some(text) = annotations.get(TOPOLOGY_KEY) else {
        notes.extend(limit.map(|text| {
            Note::warning(format!(
                "{MAX_DOMAINS} is {:?} and has no effect without {TOPOLOGY_KEY}; set that, or remove it",
                quoted(text)
            ))
        }));
        return Ok(None);
    };
    let key = label_key(text).map_err(|flaw| invalid(TOPOLOGY_KEY, text, flaw))?;
    Ok(Some(Topology {
        key: key.into(),
        at_once,
    }))
}
