//! A list in JSON, taken apart while it arrives: one item at a time is in memory beside what is made of it, never the whole.
//!
//! `serde_json` reads from what is there as a whole, and a page of large pods would be in memory two or three times.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// Takes an object apart into the elements of its array `items` and the rest: `{"kind":…,"items":[…],…}`.
///
/// It only looks for where items begin and end. Whether they are JSON is found out when they are read, and whether the
/// rest is, in [`finish`](Self::finish).
#[derive(Debug, Default)]
pub(super) struct ListSplitter {
    /// The object without its items.
    rest: Vec<u8>,
    /// The item that is arriving.
    item: Vec<u8>,
    /// The last string of the object itself, be it a key or a value; only its beginning when it is long.
    last: Vec<u8>,
    depth: usize,
    text: Text,
    place: Place,
    /// Items so far.
    count: usize,
}

/// Within a string or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Text {
    #[default]
    Outside,
    Inside,
    /// Behind a backslash.
    Escaped,
}

/// Whether the items have come yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Before,
    Items,
    After,
}

/// What a byte means that belongs to no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    /// The items begin.
    Open,
    /// One item ends, and another one follows.
    Comma,
    /// The items end.
    Close,
}

const KEY: &[u8] = b"items";

impl ListSplitter {
    /// Takes in what arrives next; `take` is given each item that is complete now.
    ///
    /// # Errors
    /// When an item is no JSON.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(Box<RawValue>),
    ) -> serde_json::Result<()> {
        let mut from = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let Some(edge) = self.step(*byte) else {
                continue;
            };
            if edge == Edge::Open {
                self.rest.extend_from_slice(&bytes[from..at]);
            } else {
                self.item.extend_from_slice(&bytes[from..at]);
                if let Some(item) = self.take_item(edge)? {
                    take(item);
                }
            }
            if edge != Edge::Comma {
                self.rest.push(*byte);
            }
            from = at + 1;
        }
        let into = match self.place {
            Place::Items => &mut self.item,
            Place::Before | Place::After => &mut self.rest,
        };
        into.extend_from_slice(&bytes[from..]);
        Ok(())
    }

    /// What is beside the items, when everything has arrived.
    ///
    /// # Errors
    /// When it has not, or is no such object.
    pub(super) fn finish<T: DeserializeOwned>(self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.rest)
    }

    /// Items so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn step(&mut self, byte: u8) -> Option<Edge> {
        if self.text != Text::Outside {
            self.step_in_text(byte);
            return None;
        }
        let among_items = self.place == Place::Items && self.depth == 2;
        match byte {
            b'"' => {
                self.text = Text::Inside;
                self.last.clear();
            }
            b'[' if self.depth == 1 && self.place == Place::Before && self.last == KEY => {
                (self.depth, self.place) = (2, Place::Items);
                return Some(Edge::Open);
            }
            b'{' | b'[' => self.depth += 1,
            b',' if among_items => return Some(Edge::Comma),
            b']' if among_items => {
                (self.depth, self.place) = (1, Place::After);
                return Some(Edge::Close);
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        None
    }

    fn step_in_text(&mut self, byte: u8) {
        self.text = match (self.text, byte) {
            (Text::Inside, b'\\') => Text::Escaped,
            (Text::Inside, b'"') => Text::Outside,
            _ => Text::Inside,
        };
        if self.depth == 1 && self.text != Text::Outside && self.last.len() <= KEY.len() {
            self.last.push(byte);
        }
    }

    /// The item that is complete; `None` for the end of an empty list.
    fn take_item(&mut self, edge: Edge) -> serde_json::Result<Option<Box<RawValue>>> {
        if edge == Edge::Close && self.count == 0 && self.item.trim_ascii().is_empty() {
            return Ok(None);
        }
        let item = serde_json::from_slice(&self.item)?;
        self.item.clear(); // its room is kept for the next
        self.count += 1;
        Ok(Some(item))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The items and the rest, whatever the pieces are in which the text arrives.
    fn split(text: &str, piece: usize) -> serde_json::Result<(Vec<String>, Value)> {
        let (mut splitter, mut items) = (ListSplitter::default(), Vec::new());
        for bytes in text.as_bytes().chunks(piece) {
            splitter.feed(bytes, |item| items.push(item.get().to_owned()))?;
        }
        assert_eq!(splitter.count(), items.len());
        Ok((items, splitter.finish()?))
    }

    #[test]
    fn items_come_out_byte_for_byte_in_whatever_pieces_they_arrive() {
        let (a, b) = (
            r#"{"a": "]}\",[{\\", "items":[1, 2,{"b":[]}]}"#,
            "{\"ä\":\"\u{1F600}\"}",
        );
        let text = format!(
            "{{\"kind\":\"items\",\"x\":{{\"items\":[7]}},\"items\" : [ {a} ,\n{b}, 3,\"s\"\n], \"metadata\":{{\"y\":[1]}} }}\n"
        );
        let rest =
            json!({"kind": "items", "x": {"items": [7]}, "items": [], "metadata": {"y": [1]}});
        for piece in [1, 2, 3, 7, 64, text.len()] {
            let (items, found) = split(&text, piece).unwrap();
            assert_eq!(items, [a, b, "3", "\"s\""], "{piece}");
            assert_eq!(found, rest, "{piece}");
        }
    }

    #[test]
    fn a_list_without_items_is_one() {
        for text in [r#"{"items":[]}"#, r#"{"items":[ ]}"#] {
            assert_eq!(split(text, 1).unwrap().0, Vec::<String>::new(), "{text}");
        }
        for text in [r#"{"items":null}"#, "{}"] {
            assert_eq!(split(text, 1).unwrap().0, Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn what_is_no_json_or_ends_early_is_no_list() {
        for text in [
            "",
            "<html>",
            r#"{"items":[{},]}"#,
            r#"{"items":[,{}]}"#,
            r#"{"items":[{}"#,
            r#"{"items":[{}]"#,
            r#"{"items":[{]}]}"#,
            r#"{"items":[}]}"#,
            r#"{"items":[a]}"#,
            r#"{"items":[]}}"#,
            r#"{"items":[1 2]}"#,
        ] {
            assert!(split(text, 3).is_err(), "{text}");
        }
        let mut splitter = ListSplitter::default();
        assert!(splitter.feed(b"{\"items\":[\"\xff\"]}", |_| {}).is_err());
    }
}
