//! JSON in exactly the bytes that Go's encoder writes, because the API server uses that encoder.
//!
//! The API server stores the data of a ControllerRevision as the bytes that a client sent. The data is immutable. When another
//! field changes, such as an owner or the number, the API server encodes the whole object again. If its encoding of the data
//! differs from the stored bytes, it takes that for a change of the data. Then it rejects this request and every later one. Even
//! orphaning by the garbage collector fails (seen with Kubernetes 1.36).

use serde_json::Value;

/// Characters that Go escapes in strings, with their escape sequences.
const ESCAPED: [(char, &str); 5] = [
    ('<', "\\u003c"),
    ('>', "\\u003e"),
    ('&', "\\u0026"),
    ('\u{2028}', "\\u2028"),
    ('\u{2029}', "\\u2029"),
];

/// Encodes a value as Go's `encoding/json` encodes a map: sorted by key, and with some characters escaped.
pub fn go_json(value: &Value) -> String {
    // These characters occur only inside JSON strings, so they can be replaced in the whole text.
    let escaped = ESCAPED.iter();
    escaped.fold(value.to_string(), |text, (from, to)| {
        text.replace(*from, to)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn characters_that_go_escapes_are_escaped_without_changing_the_value() {
        let value = json!({ "b": "a<b && c>d", "a": ["\u{2028}\u{2029}", "\n\"", 5, null] });
        let text = go_json(&value);
        assert_eq!(
            text,
            r#"{"a":["\u2028\u2029","\n\"",5,null],"b":"a\u003cb \u0026\u0026 c\u003ed"}"#
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
