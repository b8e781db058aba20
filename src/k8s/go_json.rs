//! JSON in the bytes of Go: those in which the API server itself writes objects.
//!
//! The data of a ControllerRevision is kept as the bytes that somebody sent, and must never change. Whatever changes anything else
//! of it (an owner, its number) makes the API server write it anew, in its own bytes; where these are others the API server refuses
//! that as a change of the data, for ever, the garbage collector's orphaning included (seen with Kubernetes 1.36).

use serde_json::Value;

/// Characters that Go writes as escapes, in texts.
const ESCAPED: [(char, &str); 5] = [
    ('<', "\\u003c"),
    ('>', "\\u003e"),
    ('&', "\\u0026"),
    ('\u{2028}', "\\u2028"),
    ('\u{2029}', "\\u2029"),
];

/// JSON as Go's `encoding/json` writes a map: keys in order, and some characters of texts escaped.
pub fn go_json(value: &Value) -> String {
    // Outside of texts JSON has none of them.
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
