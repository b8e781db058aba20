//! Splitter for JSON lists: it returns items while the list arrives, so that only one item at a time is in memory.
//!
//! `serde_json` needs the complete text. A page of large objects would then be in memory two or three times.

use serde::de::DeserializeOwned;

use super::object::LARGEST;

/// Splits a list object into the elements of its array `items` and the rest: `{"kind":…,"items":[…],…}`.
///
/// The splitter only finds where items begin and end. The caller parses each item, and [`finish`](Self::finish) parses the rest.
#[derive(Debug, Default)]
pub(crate) struct ListSplitter {
    /// Text of the object without its items.
    rest: Vec<u8>,
    /// Beginning of the current item. The rest of an item larger than [`LARGEST`] is dropped.
    item: Vec<u8>,
    /// Beginning of the last string outside the items, which may be the key `items`.
    last: Vec<u8>,
    depth: usize,
    text: Text,
    place: Place,
    count: usize,
}

/// Position inside or outside a JSON string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Text {
    #[default]
    Outside,
    Inside,
    /// Directly after a backslash in a string.
    Escaped,
}

/// Position before, in or after the array of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Before,
    Items,
    After,
}

/// Role of a byte at the boundary of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    /// Opening bracket of the array of items.
    Open,
    /// Comma between two items.
    Comma,
    /// Closing bracket of the array of items.
    Close,
}

const KEY: &[u8] = b"items";

impl ListSplitter {
    /// Processes the next bytes and passes each complete item to `take`. For an item larger than [`LARGEST`], only the beginning
    /// is passed.
    ///
    /// # Errors
    /// Returns the first error of `take`. An empty item is also an error.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(&[u8]) -> serde_json::Result<()>,
    ) -> serde_json::Result<()> {
        let mut from = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let Some(edge) = self.step(*byte) else {
                continue;
            };
            let piece = &bytes[from..at];
            match edge {
                Edge::Open => self.rest.extend_from_slice(piece),
                Edge::Comma | Edge::Close => self.end_item(piece, edge, &mut take)?,
            }
            if edge != Edge::Comma {
                self.rest.push(*byte);
            }
            from = at + 1;
        }
        match self.place {
            Place::Items if self.item.len() > LARGEST => {}
            Place::Items => self.item.extend_from_slice(&bytes[from..]),
            Place::Before | Place::After => self.rest.extend_from_slice(&bytes[from..]),
        }
        Ok(())
    }

    /// Parses everything except the items, after the whole text was passed to [`feed`](Self::feed).
    ///
    /// # Errors
    /// Returns an error if the text is incomplete or not a list object.
    pub(crate) fn finish<T: DeserializeOwned>(self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.rest)
    }

    pub(crate) fn count(&self) -> usize {
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

    /// Passes the item that ends with `piece` to `take`. At the end of an empty list, there is no item.
    fn end_item(
        &mut self,
        piece: &[u8],
        edge: Edge,
        take: &mut impl FnMut(&[u8]) -> serde_json::Result<()>,
    ) -> serde_json::Result<()> {
        // Most items arrive in one piece, which is passed without a copy.
        let item = match self.item.is_empty() {
            true => piece,
            false if self.item.len() > LARGEST => &self.item,
            false => {
                self.item.extend_from_slice(piece);
                &self.item
            }
        };
        if edge == Edge::Close && self.count == 0 && item.trim_ascii().is_empty() {
            return Ok(());
        }
        self.count += 1;
        let taken = take(item);
        self.item.clear();
        self.item.shrink_to(KEPT);
        taken
    }
}

/// Maximum capacity of the buffer that is reused for the next item, in bytes.
const KEPT: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use serde_json::{Value, json};

    use super::*;

    /// Splits `text` into the items and the rest. The text is passed in pieces of `piece` bytes.
    fn split(text: &str, piece: usize) -> serde_json::Result<(Vec<String>, Value)> {
        let (mut splitter, mut items) = (ListSplitter::default(), Vec::new());
        for bytes in text.as_bytes().chunks(piece) {
            splitter.feed(bytes, |item| {
                items.push(
                    serde_json::from_slice::<Box<RawValue>>(item)?
                        .get()
                        .to_owned(),
                );
                Ok(())
            })?;
        }
        assert_eq!(splitter.count(), items.len());
        Ok((items, splitter.finish()?))
    }

    #[test]
    fn items_are_split_byte_for_byte_at_any_chunk_size() {
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
    fn a_list_without_items_is_accepted() {
        for text in [r#"{"items":[]}"#, r#"{"items":[ ]}"#] {
            assert_eq!(split(text, 1).unwrap().0, Vec::<String>::new(), "{text}");
        }
        for text in [r#"{"items":null}"#, "{}"] {
            assert_eq!(split(text, 1).unwrap().0, Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn invalid_or_truncated_json_is_rejected() {
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
        let read = |item: &[u8]| serde_json::from_slice::<Box<RawValue>>(item).map(drop);
        assert!(splitter.feed(b"{\"items\":[\"\xff\"]}", read).is_err());
    }

    #[test]
    fn only_the_beginning_of_a_huge_item_is_kept() {
        let mut splitter = ListSplitter::default();
        let mut lengths = Vec::new();
        let mut take = |item: &[u8]| {
            lengths.push(item.len());
            Ok(())
        };
        splitter.feed(br#"{"items":["a",""#, &mut take).unwrap();
        let piece = vec![b'x'; 1 << 16];
        for _ in 0..3 * LARGEST / piece.len() {
            splitter.feed(&piece, &mut take).unwrap();
            assert!(splitter.item.len() <= LARGEST + piece.len());
        }
        splitter
            .feed(br#"","b"],"kind":"List"}"#, &mut take)
            .unwrap();
        assert_eq!((lengths.len(), lengths[0], lengths[2]), (3, 3, 3));
        assert!(lengths[1] > LARGEST);
        assert!(splitter.finish::<Value>().is_ok());
    }
}
