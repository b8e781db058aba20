//! JSON with the same bytes as Go's encoder, which the API server uses.
//!
//! A ControllerRevision stores its data as the bytes that a client sent, and the data is immutable. When another field changes,
//! such as an owner or the number, the API server encodes the whole object again. If its encoding of the data differs from the
//! stored bytes, it rejects this request and every later one as a change of the data. Even orphaning by the garbage collector
//! then fails (seen with Kubernetes 1.36).

use serde_json::Value;

/// Characters that Go escapes in strings, with their escape sequences.
const ESCAPED: [(char, &str); 5] = [
    ('<', "\\u003c"),
    ('>', "\\u003e"),
    ('&', "\\u0026"),
    ('\u{2028}', "\\u2028"),
    ('\u{2029}', "\\u2029"),
];

/// Encodes a value like Go's `encoding/json` encodes a map: with sorted keys, and with some characters escaped.
pub fn go_json(value: &Value) -> String {
    // The characters can be replaced in the whole text, because they occur only inside JSON strings.
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
    fn what_go_escapes_is_escaped_and_means_the_same() {
        let value = json!({ "b": "a<b && c>d", "a": ["\u{2028}\u{2029}", "\n\"", 5, null] });
        let text = go_json(&value);
        assert_eq!(
            text,
            r#"{"a":["\u2028\u2029","\n\"",5,null],"b":"a\u003cb \u0026\u0026 c\u003ed"}"#
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
