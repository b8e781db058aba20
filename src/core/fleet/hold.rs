//! Holds: the annotation `hold` on a Node, which keeps the node's pods on their revision for some time (strimzi/proposals#229).
//!
//! The value is a list of entries. Each entry names a DaemonSet and the time at which the hold ends. An entry without an end has to
//! give a reason:
//!
//! ```json
//! [{"daemonset": "default/nginx-daemonset", "until": "2030-01-31T18:00:00Z", "reason": "calibration"}]
//! ```
//!
//! If the annotation cannot be parsed, it holds the node for every DaemonSet, because its author wanted to protect a pod.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::core::foreign::one_line;
use crate::core::names::HOLD;

/// Maximum number of entries in one annotation.
const ENTRIES: usize = 64;
/// Maximum length of a reason, in characters.
const REASON: usize = 200;

/// Hold of a node for one DaemonSet. While it is in effect, the node's pod keeps its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// End of the hold; `None` if the hold lasts until a user removes it.
    pub until: Option<Timestamp>,
    /// Reason, as written in the annotation. It may be empty if the hold has an end.
    pub reason: Arc<str>,
    /// True if the annotation cannot be parsed. Then `reason` contains the parse error.
    pub unreadable: bool,
}

impl Hold {
    /// Returns true if the hold is in effect at `now`.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// All holds of one Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds(Box<[(HoldScope, Hold)]>);

/// DaemonSets to which an entry of the annotation applies.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HoldScope {
    Everybody,
    /// One DaemonSet, as `namespace/name`.
    DaemonSet(Box<str>),
}

/// Reason why an annotation cannot be parsed. Its `Display` text ends with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ParseError {
    NoList,
    TooMany,
    NoDaemonSet,
    /// The name of the DaemonSet doesn't have the form NAMESPACE/NAME.
    NoKey(String),
    NoTime(String),
    ForEver,
    /// An entry has an unknown key, usually a misspelt one.
    UnknownKey(String),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted;
        let why = match self {
            Self::NoList => "it is not a JSON list",
            Self::TooMany => "it has more than 64 entries",
            Self::NoDaemonSet => {
                "an entry lacks the key daemonset, such as \"default/nginx-daemonset\""
            }
            Self::NoKey(key) => {
                quoted = format!(
                    "the daemonset {key:?} of an entry is not NAMESPACE/NAME, such as \"default/nginx-daemonset\""
                );
                &quoted
            }
            Self::NoTime(until) => {
                quoted = format!(
                    "the time {until:?} of an entry (key until) is not valid; use a time such as \"2030-01-31T18:00:00Z\""
                );
                &quoted
            }
            Self::ForEver => "an entry has neither the key until nor the key reason",
            Self::UnknownKey(key) => {
                quoted = format!(
                    "an entry has the unknown key {key:?} (known: daemonset, until and reason)"
                );
                &quoted
            }
        };
        write!(
            f,
            "the annotation {} is invalid: {why}; correct or remove it",
            HOLD
        )
    }
}

impl Holds {
    /// Parses the value of the annotation.
    pub fn read(text: &str) -> Self {
        let entries = entries(text).unwrap_or_else(|flaw| {
            let hold = Hold {
                until: None,
                reason: flaw.to_string().into(),
                unreadable: true,
            };
            vec![(HoldScope::Everybody, hold)]
        });
        Self(entries.into())
    }

    /// Returns the hold for the DaemonSet `namespace/name`. If several entries apply, the one that ends last counts.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Hold> {
        let concerns = |scope: &HoldScope| match scope {
            HoldScope::Everybody => true,
            HoldScope::DaemonSet(key) => key.split_once('/') == Some((namespace, name)),
        };
        let holds = self.0.iter().filter(|(scope, _)| concerns(scope));
        let end = |hold: &&Hold| hold.until.unwrap_or(Timestamp::MAX);
        holds.map(|(_, hold)| hold).max_by_key(end)
    }
}

fn entries(text: &str) -> Result<Vec<(HoldScope, Hold)>, ParseError> {
    let Ok(Value::Array(entries)) = serde_json::from_str(text) else {
        return Err(ParseError::NoList);
    };
    if entries.len() > ENTRIES {
        return Err(ParseError::TooMany);
    }
    entries.iter().map(entry).collect()
}

fn entry(entry: &Value) -> Result<(HoldScope, Hold), ParseError> {
    let daemonset = entry["daemonset"].as_str().ok_or(ParseError::NoDaemonSet)?;
    let is_letter =
        |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || "-.".contains(one);
    let is_name = |part: &str| !part.is_empty() && part.chars().all(is_letter);
    if !daemonset
        .split_once('/')
        .is_some_and(|(namespace, name)| is_name(namespace) && is_name(name))
    {
        return Err(ParseError::NoKey(cut(daemonset)));
    }
    let known = ["daemonset", "until", "reason"];
    let mut keys = entry.as_object().into_iter().flat_map(|entry| entry.keys());
    if let Some(unknown) = keys.find(|key| !known.contains(&key.as_str())) {
        return Err(ParseError::UnknownKey(cut(unknown)));
    }
    let until = match &entry["until"] {
        Value::Null => None,
        Value::String(text) => Some(text.parse().map_err(|_| ParseError::NoTime(cut(text)))?),
        other => return Err(ParseError::NoTime(cut(&other.to_string()))),
    };
    let reason = entry["reason"].as_str().unwrap_or_default().trim();
    if until.is_none() && reason.is_empty() {
        return Err(ParseError::ForEver);
    }
    let hold = Hold {
        until,
        reason: one_line(reason, REASON).into(),
        unreadable: false,
    };
    Ok((HoldScope::DaemonSet(daemonset.into()), hold))
}

fn cut(text: &str) -> String {
    text.chars().take(REASON).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_misspelled_key_holds_the_node_and_is_named() {
        let holds = Holds::read(
            r#"[{"daemonset": "default/a", "untl": "2030-01-31T18:00:00Z", "reason": "x"}]"#,
        );
        let hold = holds.get("default", "b").expect("it holds for all");
        assert!(hold.holds(at("2031-01-31T18:00:00Z")));
        assert!(hold.reason.contains("\"untl\""), "{}", hold.reason);
    }

    #[test]
    fn a_hold_applies_to_its_daemonset_until_its_end() {
        let holds = Holds::read(
            r#"[{"daemonset": "default/a", "until": "2030-01-31T18:00:00Z", "reason": "calibration"},
                {"daemonset": "default/b", "reason": "broken disk"},
                {"daemonset": "default/a", "until": "2030-01-30T18:00:00Z"}]"#,
        );
        let a = holds.get("default", "a").unwrap();
        assert!(a.holds(at("2030-01-31T17:59:59Z")));
        assert!(!a.holds(at("2030-01-31T18:00:00Z")));
        assert_eq!(&*a.reason, "calibration");
        let b = holds.get("default", "b").unwrap();
        assert_eq!(b.until, None);
        assert!(b.holds(Timestamp::MAX));
        assert_eq!(holds.get("default", "c"), None);
        assert_eq!(holds.get("other", "a"), None);
        assert_eq!(Holds::read("[]").get("default", "a"), None);
    }

    #[test]
    fn an_invalid_hold_applies_to_all_daemonsets_and_gives_its_reason() {
        let many = format!("[{}]", ["{}"; ENTRIES + 1].join(","));
        for text in [
            "",
            "true",
            "{}",
            "[1]",
            "[{}]",
            r#"[{"daemonset": "a", "reason": "x"}]"#,
            r#"[{"daemonset": "a/b/c", "reason": "x"}]"#,
            r#"[{"daemonset": "*/*", "reason": "x"}]"#,
            r#"[{"daemonset": "a/b", "until": "tomorrow"}]"#,
            r#"[{"daemonset": "a/b", "until": 5}]"#,
            r#"[{"daemonset": "a/b"}]"#,
            r#"[{"daemonset": "a/b", "reason": " "}]"#,
            &many,
        ] {
            let holds = Holds::read(text);
            let hold = holds.get("any", "thing").unwrap();
            assert!(hold.unreadable, "{text}");
            assert!(hold.reason.ends_with("correct or remove it"), "{text}");
            assert!(hold.holds(Timestamp::MAX), "{text}");
        }
    }

    #[test]
    fn an_invalid_hold_quotes_the_invalid_value() {
        let why = |text: &str| {
            Holds::read(text)
                .get("any", "thing")
                .unwrap()
                .reason
                .to_string()
        };
        let no_namespace = why(r#"[{"daemonset": "nginx", "reason": "x"}]"#);
        assert!(
            no_namespace.contains("the daemonset \"nginx\" of an entry is not NAMESPACE/NAME"),
            "{no_namespace}"
        );
        let no_time = why(r#"[{"daemonset": "a/b", "until": "tomorrow"}]"#);
        assert!(
            no_time.contains("the time \"tomorrow\" of an entry (key until) is not valid"),
            "{no_time}"
        );
    }
}
