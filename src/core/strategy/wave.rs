//! Waves as they are written: a list of pools of nodes, one rolled out after the other.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::read::{invalid, quoted};
use super::value::{Expected, Flaw, duration, selector};
use super::{Invalid, Note, Share};
use crate::core::fleet::Node;
use crate::core::id::Revision;
use crate::core::names::{APPROVED_WAVES, WAVES};
use crate::core::near::distance;
use crate::core::selector::Selector;

/// The name of the last wave: every node that matches none of the list.
pub const REST: &str = "rest";
/// More waves than anybody looks after; a longer list is more likely a mistake.
const LIMIT: usize = 50;
/// Nobody soaks longer; a longer value is more likely a wrong unit.
const SOAK_LIMIT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// What an entry of the list may say.
const FIELDS: [&str; 6] = [
    "name",
    "selector",
    "maxUnavailable",
    "soak",
    "approve",
    "allowEmpty",
];

/// The waves of a DaemonSet, and which of them a person let pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waves {
    /// In their order, at least one; the nodes that match none form a last one.
    pub list: Vec<Wave>,
    /// What `approved-waves` says.
    pub approved: Vec<Approval>,
}

/// A wave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wave {
    /// Its name, unlike any other.
    pub name: Arc<str>,
    /// Its nodes, as far as no earlier wave has them.
    pub selector: Selector,
    /// How many of its nodes may lack an available pod at once; `None`: as the DaemonSet says.
    pub max_unavailable: Option<Share>,
    /// How long all has to be well before the next wave may open.
    pub soak: Duration,
    /// Whether a person has to approve it before it opens.
    pub approve: bool,
    /// Whether it may match no node; otherwise that is taken for a mistake.
    pub allow_empty: bool,
}

/// That a wave may open, for one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The wave.
    pub wave: Arc<str>,
    /// The revision that was approved for it.
    pub revision: Revision,
}

impl Waves {
    /// How many there are, the last one included.
    pub fn count(&self) -> usize {
        self.list.len() + 1
    }

    /// The name of the wave at a position.
    pub fn name(&self, position: usize) -> &str {
        self.list.get(position).map_or(REST, |wave| &wave.name)
    }

    /// The position of the wave with that name.
    pub fn position(&self, name: &str) -> Option<usize> {
        (0..self.count()).find(|position| self.name(*position) == name)
    }

    /// The position of the wave that a node belongs to: the first that it matches.
    pub fn of(&self, node: &Node) -> usize {
        let takes = |wave: &Wave| wave.selector.matches(|key| node.labels.get(key));
        let found = self.list.iter().position(takes);
        found.unwrap_or(self.list.len())
    }

    /// Whether the wave at a position may open for `revision`, as far as people decide that.
    pub fn is_approved(&self, position: usize, revision: &Revision) -> bool {
        let Some(wave) = self.list.get(position).filter(|wave| wave.approve) else {
            return true;
        };
        let approves =
            |approval: &Approval| approval.wave == wave.name && approval.revision == *revision;
        self.approved.iter().any(approves)
    }
}

impl fmt::Display for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.wave, self.revision)
    }
}

/// `waves` and `approved-waves`.
pub(super) fn read(
    annotations: &BTreeMap<String, String>,
    notes: &mut Vec<Note>,
) -> Result<Option<Arc<Waves>>, Invalid> {
    let approvals = annotations.get(APPROVED_WAVES);
    let Some(text) = annotations.get(WAVES) else {
        notes.extend(approvals.map(|_| {
            Note::warning(format!(
                "{APPROVED_WAVES} has no effect without {WAVES}; remove it"
            ))
        }));
        return Ok(None);
    };
    let waves = Waves {
        list: list(text)?,
        approved: approvals.map_or(Ok(Vec::new()), |text| approved(text))?,
    };
    let unknown = |approval: &&Approval| waves.position(&approval.wave).is_none();
    notes.extend(waves.approved.iter().find(unknown).map(|approval| {
        let names = waves.list.iter().map(|wave| &*wave.name);
        Note::warning(format!(
            "{APPROVED_WAVES} names the wave {}, which is not one of {WAVES} ({}); correct it, or remove it",
            approval.wave,
            names.collect::<Vec<_>>().join(", ")
        ))
    }));
    Ok(Some(Arc::new(waves)))
}

fn list(text: &str) -> Result<Vec<Wave>, Invalid> {
    let whole = |why: String| Invalid {
        key: WAVES.into(),
        value: quoted(text),
        why,
    };
    if text.trim().is_empty() {
        return Err(invalid(WAVES, text, Flaw::Empty(Expected::Waves)));
    }
    // YAML contains JSON.
    let read: Value = serde_saphyr::from_str(text).map_err(|error| {
        let error = error.to_string();
        let error = error.lines().next().unwrap_or_default();
        whole(format!(
            "which is neither YAML nor JSON ({error}); {}",
            Expected::Waves
        ))
    })?;
    let entries = match read {
        Value::Array(entries) if !entries.is_empty() => entries,
        _ => return Err(invalid(WAVES, text, Flaw::Unknown(Expected::Waves))),
    };
    if entries.len() > LIMIT {
        return Err(whole(format!(
            "a list of {} waves; use at most {LIMIT}",
            entries.len()
        )));
    }
    let mut list: Vec<Wave> = Vec::with_capacity(entries.len());
    for (position, entry) in entries.iter().enumerate() {
        let wave = Entry::of(position, entry)?.wave()?;
        if let Some(other) = list.iter().position(|other| other.name == wave.name) {
            return Err(Invalid {
                key: format!("{WAVES}[{position}].name"),
                value: quoted(&wave.name),
                why: format!(
                    "which waves[{other}] is called already; give every wave a name of its own"
                ),
            });
        }
        list.push(wave);
    }
    Ok(list)
}

/// An entry of the list, and where it stands.
struct Entry<'a> {
    position: usize,
    fields: &'a Map<String, Value>,
}

impl<'a> Entry<'a> {
    fn of(position: usize, value: &'a Value) -> Result<Self, Invalid> {
        let Value::Object(fields) = value else {
            let key = format!("{WAVES}[{position}]");
            return Err(invalid(&key, &shown(value), Flaw::Unknown(Expected::Wave)));
        };
        let entry = Self { position, fields };
        match fields
            .keys()
            .find(|field| !FIELDS.contains(&field.as_str()))
        {
            Some(field) => Err(entry.has_no(field)),
            None => Ok(entry),
        }
    }

    fn wave(&self) -> Result<Wave, Invalid> {
        let share = |text: &str| match text.parse::<Share>()? {
            share if share.is_zero() => Err(Flaw::Zero(Expected::Share)),
            share => Ok(share),
        };
        let approve = |text: &str| match text {
            "manual" => Ok(true),
            _ => Err(Flaw::Unknown(Expected::Approve)),
        };
        let allow_empty = |text: &str| match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Flaw::Unknown(Expected::AllowEmpty)),
        };
        let soak = |text: &str| duration(text, SOAK_LIMIT);
        Ok(Wave {
            name: self
                .text("name", name)?
                .ok_or_else(|| self.lacks("name", Expected::WaveName))?,
            selector: self.selector()?,
            max_unavailable: self.text("maxUnavailable", share)?,
            soak: self.text("soak", soak)?.unwrap_or_default(),
            approve: self.text("approve", approve)?.unwrap_or_default(),
            allow_empty: self.text("allowEmpty", allow_empty)?.unwrap_or_default(),
        })
    }

    fn selector(&self) -> Result<Selector, Invalid> {
        match self.field("selector") {
            None => Err(self.lacks("selector", Expected::WaveSelector)),
            Some(object @ Value::Object(_)) => Selector::from_written_json(object)
                .map_err(|_| self.flaw("selector", object, Flaw::Unknown(Expected::WaveSelector))),
            Some(text @ Value::String(_)) => {
                let read = |text: &str| {
                    selector(text).map_err(|flaw| flaw.expecting(Expected::WaveSelector))
                };
                read(&shown(text)).map_err(|flaw| self.flaw("selector", text, flaw))
            }
            Some(other) => Err(self.flaw("selector", other, Flaw::Unknown(Expected::WaveSelector))),
        }
    }

    /// What the field says; `null` is as good as nothing.
    fn field(&self, field: &str) -> Option<&'a Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    fn text<T>(
        &self,
        field: &str,
        read: impl Fn(&str) -> Result<T, Flaw>,
    ) -> Result<Option<T>, Invalid> {
        let Some(value) = self.field(field) else {
            return Ok(None);
        };
        let read = read(&shown(value)).map_err(|flaw| self.flaw(field, value, flaw))?;
        Ok(Some(read))
    }

    fn flaw(&self, field: &str, value: &Value, flaw: Flaw) -> Invalid {
        invalid(&self.key(field), &shown(value), flaw)
    }

    fn key(&self, field: &str) -> String {
        format!("{WAVES}[{}].{field}", self.position)
    }

    fn lacks(&self, field: &str, expected: Expected) -> Invalid {
        invalid(&self.key(field), "", Flaw::Missing(expected))
    }

    fn has_no(&self, field: &str) -> Invalid {
        let near = FIELDS.iter().min_by_key(|known| distance(field, known));
        let near = near.filter(|known| distance(field, known) <= 3);
        let meant = near.map_or_else(String::new, |known| format!("; {known} may be meant"));
        Invalid {
            key: self.key(&quoted(field)),
            value: quoted(&shown(&self.fields[field])),
            why: format!(
                "and no wave has such a field{meant}; use {}",
                FIELDS.join(", ")
            ),
        }
    }
}

/// A value as it was written, more or less.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A name that fits into messages, lists and labels: at most 63 letters, digits, `-`, `_` and `.`.
fn name(text: &str) -> Result<Arc<str>, Flaw> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match text {
        "" => Err(Flaw::Empty(Expected::WaveName)),
        REST => Err(Flaw::Unknown(Expected::WaveName)),
        _ if text.len() <= 63 && text.chars().all(is_plain) => Ok(text.into()),
        _ => Err(Flaw::Unknown(Expected::WaveName)),
    }
}

/// `canary@5d4f8c,pilot@5d4f8c`.
fn approved(text: &str) -> Result<Vec<Approval>, Invalid> {
    let entries = text
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty());
    let read = |entry: &str| match entry.split_once('@') {
        Some((wave, hash)) if !wave.is_empty() && !hash.is_empty() => Ok(Approval {
            wave: wave.into(),
            revision: hash.into(),
        }),
        _ => Err(invalid(
            APPROVED_WAVES,
            entry,
            Flaw::Unknown(Expected::Approvals),
        )),
    };
    entries.map(read).collect()
}
