//! JSON of a rollout state, truncated to its maximum size.

use std::collections::BTreeSet;

use super::{LIMIT, RolloutState};
use crate::core::fleet::record::FailureRecord;
use crate::core::foreign::cut;
use crate::core::id::NodeName;

/// Limits to which a state is truncated if it is too large.
#[derive(Clone, Copy)]
struct Room {
    /// Maximum number of names in lists in which a missing name only makes the guard more careful.
    safe_names: usize,
    /// Maximum number of names in every other list.
    names: usize,
    /// Maximum number of characters in a message of another component.
    letters: usize,
}

/// Limits that are tried one after the other, from the widest to the narrowest.
const ROOM: [Room; 7] = [
    Room::new(200, 200, 240),
    Room::new(50, 200, 240),
    Room::new(0, 200, 120),
    Room::new(0, 100, 120),
    Room::new(0, 30, 60),
    Room::new(0, 10, 30),
    Room::new(0, 0, 0),
];

impl Room {
    const fn new(safe_names: usize, names: usize, letters: usize) -> Self {
        Self {
            safe_names,
            names,
            letters,
        }
    }
}

impl RolloutState {
    /// Returns the state as compact JSON of at most [`LIMIT`] bytes.
    ///
    /// Names that don't fit are omitted, and a count or a flag records that. If the name of a node whose loss is being evaluated is
    /// omitted, the node counts as failed. If the name of a node that was broken before its update is omitted, the node is
    /// evaluated like all others.
    pub fn to_json(&self) -> String {
        self.to_json_within(LIMIT)
    }

    /// Returns the state as JSON of at most `limit` bytes, if the limits in `ROOM` allow that.
    pub(in crate::core) fn to_json_within(&self, limit: usize) -> String {
        let whole = self.encode();
        if whole.len() <= limit {
            return whole;
        }
        let cut = ROOM.iter().map(|room| self.cut(*room));
        // Shorter lists may not be enough, because another writer of the status may have stored hashes of any length. Then keep
        // only the stop of the revision.
        let stop = self.guard.as_ref().map(|record| FailureRecord {
            stopped: record.stopped,
            ..FailureRecord::new(record.revision.clone())
        });
        let least = Self {
            guard: stop,
            ..Self::default()
        };
        let mut all = cut.chain([least]).map(|state| state.encode());
        let fitting = all.find(|json| json.len() <= limit);
        fitting.unwrap_or_else(|| Self::default().encode())
    }

    fn encode(&self) -> String {
        ascii(serde_json::to_string(self).unwrap_or_default())
    }

    fn cut(&self, room: Room) -> Self {
        let (names, letters) = (room.names, room.letters);
        let mut state = self.clone();
        state.unknown.clear();
        state.guard = state.guard.map(|record| record.cut(room));
        if let Some(pause) = &mut state.pause {
            pause.more |= pause.newcomers.len() > names;
            pause.newcomers.truncate(names);
        }
        if let Some(refused) = &mut state.refused {
            // Remove whole groups first. A group without nodes would mean nothing.
            refused.writes.truncate(names);
            for group in &mut refused.writes {
                group.more |= group.nodes.len() > names;
                group.nodes.truncate(names);
                group.message = cut(&group.message, letters).into();
            }
        }
        for message in [&mut state.not_created, &mut state.invalid] {
            *message = message.as_deref().map(|text| cut(text, letters).into());
        }
        let known = state.not_ready.into_iter().take(names);
        state.not_ready = known
            .map(|(pod, why)| (pod, cut(&why, letters).into()))
            .collect();
        state.failing.truncate(names);
        for failing in &mut state.failing {
            failing.nodes.truncate(names);
            failing.message = cut(&failing.message, letters).into();
        }
        state
    }
}

impl FailureRecord {
    /// Truncates each list of names. This makes the guard more careful: failed and lost nodes without names count as failed.
    ///
    /// If names in a wave are omitted, an artificial failed node is added. It keeps the later waves closed.
    fn cut(self, room: Room) -> Self {
        let lost = self.lost.keys().chain(&self.updated_before_loss);
        let lost: BTreeSet<NodeName> = lost.cloned().collect();
        let all: BTreeSet<&NodeName> = self.failed.union(&lost).collect();
        let mut failed = first(&self.failed, room.names);
        let open = lost.difference(&self.failed).take(room.names);
        let mut kept: BTreeSet<NodeName> = failed.iter().chain(open).cloned().collect();
        let mut waves = self.waves;
        for (position, names) in waves.values_mut().enumerate() {
            let all = names.len();
            names.retain(|name| kept.contains(name));
            if names.len() < all {
                let nameless = NodeName::from(format!("/{position}"));
                names.insert(nameless.clone());
                failed.insert(nameless.clone());
                kept.insert(nameless);
            }
        }
        let mut lost = self.lost;
        lost.retain(|name, _| kept.contains(name));
        Self {
            more: self.more + all.len().saturating_sub(kept.len()),
            failed,
            updated_before_loss: self
                .updated_before_loss
                .intersection(&kept)
                .cloned()
                .collect(),
            lost,
            waves,
            broken_before: first(&self.broken_before, room.safe_names),
            replaced_twice: first(&self.replaced_twice, room.names.max(1)),
            control_group: self
                .control_group
                .into_iter()
                .take(room.safe_names)
                .collect(),
            ..self
        }
    }
}

/// Escapes all non-ASCII characters in the JSON. Messages of other components may contain characters that control a terminal.
fn ascii(json: String) -> String {
    if json.is_ascii() {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() * 2);
    for letter in json.chars() {
        if letter.is_ascii() {
            escaped.push(letter);
            continue;
        }
        let mut units = [0; 2];
        for unit in letter.encode_utf16(&mut units) {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
    }
    escaped
}

fn first(names: &BTreeSet<NodeName>, most: usize) -> BTreeSet<NodeName> {
    names.iter().take(most).cloned().collect()
}
