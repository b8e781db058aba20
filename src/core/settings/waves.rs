//! `waves`: pools of nodes that are updated one after the other.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::approved_waves::{self, APPROVED_WAVES, Approval};
use super::error::{Expected, Invalid, ParseError};
use super::reader::Reader;
use super::setting::{Setting, Syntax};
use super::value::{IntOrPercent, Written, duration, selector};
use crate::core::foreign::quoted;
use crate::core::id::Revision;
use crate::core::labels::Labels;
use crate::core::selector::Selector;
use crate::core::suggest::distance;

/// Pools of nodes that are updated one after the other, as a YAML or JSON list of [`Wave`]s.
pub const WAVES: &str = "apps.openyurt.io/waves";
/// Name of the last wave, which contains all nodes that match no wave in the list.
pub const REST: &str = "rest";
/// Maximum number of waves. A longer list is probably wrong.
const LIMIT: usize = 50;
/// Maximum soak time. A longer value probably has a wrong unit.
const SOAK_LIMIT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Names of the fields that an entry may have.
const FIELDS: [&str; 6] = [
    "name",
    "selector",
    "maxUnavailable",
    "soak",
    "approve",
    "allowEmpty",
];

const LIST: Expected = Expected(
    "use a YAML or JSON list of {name, selector, maxUnavailable, soak, approve, allowEmpty}",
);
const WAVE: Expected =
    Expected("use an object with name, selector, maxUnavailable, soak, approve and allowEmpty");
const NAME: Expected = Expected(
    "use at most 63 letters, digits, -, _ and .; the name rest is reserved for the last wave",
);
const NODES: Expected = Expected(
    "use a label selector for nodes such as pool=canary, a LabelSelector object (matchLabels, matchExpressions), or {} for \
     all nodes",
);
const APPROVE: Expected = Expected("use manual, or omit it");
const ALLOW_EMPTY: Expected = Expected("use true or false");

pub(super) const SETTING: Setting = Setting {
    key: WAVES,
    summary: "pools of nodes that are updated one after another, each `{name, selector, maxUnavailable, soak, approve, allowEmpty}`",
    syntax: Syntax::Text("a list in YAML or JSON"),
    default: "off",
    check: |reader| read(reader).map(drop),
    ..Setting::ROLLING
};

/// Waves of a DaemonSet with their approvals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waves {
    /// Configured waves in order, at least one. Nodes that match none of them form a last wave.
    pub list: Vec<Wave>,
    /// Approvals from the setting `approved-waves`.
    pub approved: Vec<Approval>,
}

/// Definition of a wave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wave {
    /// Name of the wave, unique in the list.
    pub name: Arc<str>,
    /// Selector of the wave's nodes. Nodes that match an earlier wave belong to that wave.
    pub selector: Selector,
    /// Number of nodes in the wave that may lack an available pod at the same time; `None` if the DaemonSet's limit applies.
    pub max_unavailable: Option<IntOrPercent>,
    /// Time for which all nodes of the wave have to be healthy before the next wave may open.
    pub soak: Duration,
    /// True if an operator has to approve the wave before it opens.
    pub approve: bool,
    /// True if the wave may contain no node. Otherwise a wave without nodes is reported as a mistake.
    pub allow_empty: bool,
}

impl Waves {
    /// Returns the number of waves, including the last one with the remaining nodes.
    pub fn count(&self) -> usize {
        self.list.len() + 1
    }

    /// Returns the name of the wave at a position.
    pub fn name(&self, position: usize) -> &str {
        self.list.get(position).map_or(REST, |wave| &wave.name)
    }

    /// Returns the position of the wave `name`; `None` if there is none.
    pub fn position(&self, name: &str) -> Option<usize> {
        (0..self.count()).find(|position| self.name(*position) == name)
    }

    /// Returns the position of the wave of a node with these labels: the first wave whose selector matches, otherwise the last
    /// wave.
    pub fn index_for(&self, labels: &Labels) -> usize {
        let takes = |wave: &Wave| wave.selector.matches(|key| labels.get(key));
        let found = self.list.iter().position(takes);
        found.unwrap_or(self.list.len())
    }

    /// Returns true if the wave at `position` is approved for `revision`, or needs no approval.
    pub fn is_approved(&self, position: usize, revision: &Revision) -> bool {
        let Some(wave) = self.list.get(position).filter(|wave| wave.approve) else {
            return true;
        };
        let approves =
            |approval: &Approval| approval.wave == wave.name && approval.revision == *revision;
        self.approved.iter().any(approves)
    }
}

/// Parses `waves` and `approved-waves`. Without `waves`, `approved-waves` has no effect.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Arc<Waves>>, Invalid> {
    let (key, approvals) = (reader.name(WAVES), reader.name(APPROVED_WAVES));
    let Some(written) = reader.written(WAVES) else {
        if reader.written(APPROVED_WAVES).is_some() {
            let text = format!("{approvals} has no effect without {key}; remove it");
            reader.is_without_effect(APPROVED_WAVES, text);
        }
        return Ok(None);
    };
    let waves = Waves {
        list: list(written)?,
        approved: approved_waves::read(reader)?,
    };
    let unknown = |approval: &&Approval| waves.position(&approval.wave).is_none();
    if let Some(approval) = waves.approved.iter().find(unknown) {
        let names = waves.list.iter().map(|wave| &*wave.name);
        let names = names.collect::<Vec<_>>().join(", ");
        reader.warn(format!(
            "{approvals} names the wave {}, which is not in {key} ({names}); correct or remove it",
            approval.wave
        ));
    }
    Ok(Some(Arc::new(waves)))
}

fn list(written: Written<'_>) -> Result<Vec<Wave>, Invalid> {
    let flaw = |flaw: ParseError| written.refused(flaw.to_string());
    if written.bounded()?.trim().is_empty() {
        return Err(flaw(ParseError::Empty(LIST)));
    }
    // The YAML parser also accepts JSON.
    let read: Value = serde_saphyr::from_str(written.text).map_err(|error| {
        let error = error.to_string();
        let error = error.lines().next().unwrap_or_default();
        written.refused(format!("which is neither YAML nor JSON ({error}); {LIST}"))
    })?;
    let entries = match read {
        Value::Array(entries) if !entries.is_empty() => entries,
        _ => return Err(flaw(ParseError::Unknown(LIST))),
    };
    if entries.len() > LIMIT {
        let why = format!("a list of {} waves; use at most {LIMIT}", entries.len());
        return Err(written.refused(why));
    }
    let mut list: Vec<Wave> = Vec::with_capacity(entries.len());
    for (position, entry) in entries.iter().enumerate() {
        let place = format!("{}[{position}]", written.name);
        let entry = Entry::new(&place, entry)?;
        let wave = entry.wave()?;
        if let Some(other) = list.iter().position(|other| other.name == wave.name) {
            let why =
                format!("which is also the name of waves[{other}]; give each wave its own name");
            return Err(Invalid::new(&entry.key("name"), &wave.name, why));
        }
        list.push(wave);
    }
    Ok(list)
}

/// Entry of the list of waves. Messages name it by `place`.
struct Entry<'a> {
    place: &'a str,
    fields: &'a Map<String, Value>,
}

impl<'a> Entry<'a> {
    fn new(place: &'a str, value: &'a Value) -> Result<Self, Invalid> {
        let Value::Object(fields) = value else {
            return Err(invalid(place, value, ParseError::Unknown(WAVE)));
        };
        let entry = Self { place, fields };
        match fields
            .keys()
            .find(|field| !FIELDS.contains(&field.as_str()))
        {
            Some(field) => Err(entry.has_no(field)),
            None => Ok(entry),
        }
    }

    fn wave(&self) -> Result<Wave, Invalid> {
        let approve = |text: &str| match text {
            "manual" => Ok(true),
            _ => Err(ParseError::Unknown(APPROVE)),
        };
        let allow_empty = |text: &str| match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(ParseError::Unknown(ALLOW_EMPTY)),
        };
        let soak = |text: &str| duration(text, SOAK_LIMIT);
        Ok(Wave {
            name: self
                .text("name", name)?
                .ok_or_else(|| self.lacks("name", NAME))?,
            selector: self.selector()?,
            max_unavailable: self.text("maxUnavailable", IntOrPercent::above_zero)?,
            soak: self.text("soak", soak)?.unwrap_or_default(),
            approve: self.text("approve", approve)?.unwrap_or_default(),
            allow_empty: self.text("allowEmpty", allow_empty)?.unwrap_or_default(),
        })
    }

    fn selector(&self) -> Result<Selector, Invalid> {
        match self.field("selector") {
            None => Err(self.lacks("selector", NODES)),
            Some(object @ Value::Object(_)) => Selector::from_written_json(object)
                .map_err(|_| self.flaw("selector", object, ParseError::Unknown(NODES))),
            Some(text @ Value::String(_)) => {
                let read = |text: &str| selector(text).map_err(|flaw| flaw.expecting(NODES));
                read(&shown(text)).map_err(|flaw| self.flaw("selector", text, flaw))
            }
            Some(other) => Err(self.flaw("selector", other, ParseError::Unknown(NODES))),
        }
    }

    /// Returns the value of a field of the entry; `null` counts as absent.
    fn field(&self, field: &str) -> Option<&'a Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    fn text<T>(
        &self,
        field: &str,
        read: impl Fn(&str) -> Result<T, ParseError>,
    ) -> Result<Option<T>, Invalid> {
        let Some(value) = self.field(field) else {
            return Ok(None);
        };
        let read = read(&shown(value)).map_err(|flaw| self.flaw(field, value, flaw))?;
        Ok(Some(read))
    }

    fn flaw(&self, field: &str, value: &Value, flaw: ParseError) -> Invalid {
        invalid(&self.key(field), value, flaw)
    }

    fn key(&self, field: &str) -> String {
        format!("{}.{field}", self.place)
    }

    fn lacks(&self, field: &str, expected: Expected) -> Invalid {
        Invalid::new(
            &self.key(field),
            "",
            ParseError::Missing(expected).to_string(),
        )
    }

    fn has_no(&self, field: &str) -> Invalid {
        let near = FIELDS.iter().min_by_key(|known| distance(field, known));
        let near = near.filter(|known| distance(field, known) <= 3);
        let meant = near.map_or_else(String::new, |known| format!(" (similar: {known})"));
        let why = format!(
            "which is not a field of a wave{meant}; use {}",
            FIELDS.join(", ")
        );
        Invalid::new(&self.key(&quoted(field)), &shown(&self.fields[field]), why)
    }
}

fn invalid(place: &str, value: &Value, flaw: ParseError) -> Invalid {
    Invalid::new(place, &shown(value), flaw.to_string())
}

/// Returns a value for messages, as close as possible to how it was written.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Parses the name of a wave: at most 63 letters, digits, `-`, `_` and `.`, so that messages and labels can contain it.
fn name(text: &str) -> Result<Arc<str>, ParseError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match text {
        "" => Err(ParseError::Empty(NAME)),
        REST => Err(ParseError::Unknown(NAME)),
        _ if text.len() <= 63 && text.chars().all(is_plain) => Ok(text.into()),
        _ => Err(ParseError::Unknown(NAME)),
    }
}
