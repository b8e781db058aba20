//! Label selectors: parsing from JSON, evaluation, and conversion to the query of a LIST or WATCH request.
//!
//! If Kubernetes would reject a part of a selector, the whole selector is invalid. A guess about the meaning could select the wrong
//! objects.

mod query;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use serde_json::{Value, json};

pub use query::is_label_key;

/// Label selector. An object has to meet all requirements. A selector without requirements selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

/// Requirement for the value of one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: Box<str>,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<Box<str>>),
    NotIn(Vec<Box<str>>),
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
}

/// Set of operators that a requirement may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operators {
    /// Operators of a LabelSelector: `In`, `NotIn`, `Exists` and `DoesNotExist`.
    Labels,
    /// Operators of a LabelSelector plus `Gt` and `Lt`, as in node affinity.
    NodeAffinity,
    /// Operators `In` and `NotIn` with one value, as in `matchFields` of node affinity.
    Fields,
}

/// Error: a part of a selector that Kubernetes would reject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSelector {
    /// Rejected part, as JSON.
    pub part: String,
    /// Description of the expected form.
    pub expected: &'static str,
}

impl fmt::Display for InvalidSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "selector: {} is not {}", self.part, self.expected)
    }
}

impl std::error::Error for InvalidSelector {}

impl Selector {
    /// Parses a LabelSelector (`matchLabels`, `matchExpressions`). `{}` selects everything.
    ///
    /// # Errors
    /// Returns the first part that Kubernetes would reject. `null` is also an error, because it selects nothing in Kubernetes.
    pub fn from_json(selector: &Value) -> Result<Self, InvalidSelector> {
        let Some(selector) = selector.as_object() else {
            return Err(unusable(selector, "a LabelSelector"));
        };
        let mut requirements = match selector.get("matchLabels") {
            None | Some(Value::Null) => Vec::new(),
            Some(labels) => equal_to(labels)?,
        };
        match selector.get("matchExpressions") {
            None | Some(Value::Null) => {}
            Some(Value::Array(expressions)) => {
                for expression in expressions {
                    requirements.push(Requirement::from_json(expression, Operators::Labels)?);
                }
            }
            Some(other) => return Err(unusable(other, "a list of expressions")),
        }
        Ok(Self(requirements))
    }

    /// Parses a LabelSelector that a user wrote by hand.
    ///
    /// Fields that Kubernetes would ignore are errors. Otherwise a typo such as `matchlabels` would select everything.
    ///
    /// # Errors
    /// Returns the first part that is unknown or that Kubernetes would reject.
    pub fn from_written_json(selector: &Value) -> Result<Self, InvalidSelector> {
        let fields = "a LabelSelector with only matchLabels and matchExpressions";
        only_fields(selector, &["matchLabels", "matchExpressions"], fields)?;
        let labels = selector["matchLabels"].as_object();
        for (key, value) in labels.into_iter().flatten() {
            let fits = is_label_key(key) && value.as_str().is_some_and(is_label_value);
            if !fits {
                return Err(unusable(
                    &selector["matchLabels"],
                    "a map from label keys to label values",
                ));
            }
        }
        let expressions = selector["matchExpressions"].as_array();
        for expression in expressions.into_iter().flatten() {
            let fields = "an expression with only key, operator and values";
            only_fields(expression, &["key", "operator", "values"], fields)?;
            if !expression["key"].as_str().is_some_and(is_label_key) {
                return Err(unusable(expression, "an expression with a valid label key"));
            }
        }
        Self::from_json(selector)
    }

    /// Parses the syntax of `kubectl -l`: `pool=canary,tier!=x,zone in (a,b),gpu,!old`.
    ///
    /// # Errors
    /// Returns the first part that Kubernetes would reject.
    pub fn from_query(query: &str) -> Result<Self, InvalidSelector> {
        query::read(query).map(Self)
    }

    /// Returns true if the selector selects an object with these labels. `label` returns the value of a key; `None` if it is
    /// absent.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|r| r.matches(label(&r.key)))
    }

    /// Returns true if the selector has no requirements, so that it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the label keys of the selector. `None` if it has no requirements, if a requirement uses another operator than `In`,
    /// or if a key occurs twice.
    pub fn labels_with_values(&self) -> Option<BTreeSet<Box<str>>> {
        let has_values = |asked: &Requirement| !asked.values().is_empty();
        let labels: BTreeSet<Box<str>> = self.0.iter().map(|asked| asked.key.clone()).collect();
        let is_plain = !labels.is_empty() && labels.len() == self.0.len();
        (is_plain && self.0.iter().all(has_values)).then_some(labels)
    }

    /// Returns a selector for all objects that at least one of the given selectors selects, and possibly more.
    ///
    /// Selectors for values of the same labels are combined into one that accepts any of these values. Other selectors can't be
    /// combined, so the result selects everything. A single selector is returned unchanged.
    pub fn any_of<'a>(selectors: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut selectors = selectors.into_iter();
        let Some(first) = selectors.next() else {
            return Self::default();
        };
        let labels = first.labels_with_values();
        let mut values: BTreeMap<Box<str>, BTreeSet<Box<str>>> = BTreeMap::new();
        let mut note = |selector: &Self| {
            for asked in &selector.0 {
                let known = values.entry(asked.key.clone()).or_default();
                known.extend(asked.values().iter().cloned());
            }
        };
        let Some(second) = selectors.next() else {
            return first.clone();
        };
        note(first);
        for selector in std::iter::once(second).chain(selectors) {
            if labels.is_none() || selector.labels_with_values() != labels {
                return Self::default();
            }
            note(selector);
        }
        let asked = |(key, values): (Box<str>, BTreeSet<Box<str>>)| Requirement {
            key,
            test: Test::In(values.into_iter().collect()),
        };
        Self(values.into_iter().map(asked).collect())
    }

    pub(super) fn requirements(&self) -> &[Requirement] {
        &self.0
    }

    /// Returns an equivalent LabelSelector as JSON. `Gt` and `Lt` can't occur in it, because they exist only in node affinity.
    pub fn to_json(&self) -> Value {
        let expressions: Vec<Value> = self.0.iter().map(Requirement::to_json).collect();
        json!({ "matchExpressions": expressions })
    }

    /// Returns the value of `labelSelector` for a LIST or WATCH request, before percent-encoding.
    pub fn to_query(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_char(',')?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl Requirement {
    /// Returns the size of the requirement, to limit the memory of a selector: one, plus the number of its values.
    pub fn size(&self) -> usize {
        1 + match &self.test {
            Test::In(values) | Test::NotIn(values) => values.len(),
            Test::Exists | Test::DoesNotExist | Test::Gt(_) | Test::Lt(_) => 0,
        }
    }

    /// Parses `{key, operator, values}`.
    ///
    /// # Errors
    /// Returns the part that Kubernetes would reject.
    pub fn from_json(expression: &Value, operators: Operators) -> Result<Self, InvalidSelector> {
        let Some(key) = expression["key"].as_str().filter(|key| !key.is_empty()) else {
            return Err(unusable(expression, "an expression with a key"));
        };
        let values = match &expression["values"] {
            Value::Null => Vec::new(),
            Value::Array(values) => values.iter().map(text).collect::<Result<_, _>>()?,
            other => return Err(unusable(other, "a list of values")),
        };
        if operators != Operators::Fields && !values.iter().all(|v| is_label_value(v)) {
            return Err(unusable(
                expression,
                "an expression with valid label values",
            ));
        }
        let of_labels = operators != Operators::Fields;
        let enough = values.len() == 1 || (of_labels && !values.is_empty());
        let test = match (expression["operator"].as_str(), operators) {
            (Some("In"), _) if enough => Test::In(values),
            (Some("NotIn"), _) if enough => Test::NotIn(values),
            (Some("Exists"), _) if of_labels && values.is_empty() => Test::Exists,
            (Some("DoesNotExist"), _) if of_labels && values.is_empty() => Test::DoesNotExist,
            (Some("Gt"), Operators::NodeAffinity) => Test::Gt(only_integer(expression, &values)?),
            (Some("Lt"), Operators::NodeAffinity) => Test::Lt(only_integer(expression, &values)?),
            _ => {
                return Err(unusable(
                    expression,
                    "an expression with a valid operator and matching values",
                ));
            }
        };
        let key = key.into();
        Ok(Self { key, test })
    }

    /// Returns `{key, operator, values}`, in the format of [`Requirement::from_json`].
    fn to_json(&self) -> Value {
        let (operator, values) = match &self.test {
            Test::In(values) => ("In", values.clone()),
            Test::NotIn(values) => ("NotIn", values.clone()),
            Test::Exists => ("Exists", Vec::new()),
            Test::DoesNotExist => ("DoesNotExist", Vec::new()),
            Test::Gt(bound) => ("Gt", vec![bound.to_string().into()]),
            Test::Lt(bound) => ("Lt", vec![bound.to_string().into()]),
        };
        json!({ "key": self.key, "operator": operator, "values": values })
    }

    /// Returns the label key of the requirement.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the accepted values of the label; empty if the operator is not `In`.
    pub(super) fn values(&self) -> &[Box<str>] {
        match &self.test {
            Test::In(values) => values,
            _ => &[],
        }
    }

    /// Returns true if a label with this value meets the requirement; `None` stands for an absent label.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let among = |values: &[Box<str>]| value.is_some_and(|v| values.iter().any(|x| **x == *v));
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => among(values),
            Test::NotIn(values) => !among(values),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Gt(bound) => number().is_some_and(|n| n > *bound),
            Test::Lt(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            Test::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0]),
            Test::In(values) => write!(f, "{key} in ({})", values.join(",")),
            Test::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            Test::Exists => write!(f, "{key}"),
            Test::DoesNotExist => write!(f, "!{key}"),
            Test::Gt(bound) => write!(f, "{key}>{bound}"),
            Test::Lt(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

/// Returns one requirement for each entry of a JSON object that maps label keys to values.
///
/// # Errors
/// Returns an error if `labels` is not a JSON object.
pub fn equal_to(labels: &Value) -> Result<Vec<Requirement>, InvalidSelector> {
    let Some(labels) = labels.as_object() else {
        return Err(unusable(labels, "a map from label keys to label values"));
    };
    let equal = |(key, value): (&String, &Value)| {
        Ok(Requirement {
            key: key.as_str().into(),
            test: Test::In(vec![text(value)?]),
        })
    };
    labels.iter().map(equal).collect()
}

fn only_fields(
    value: &Value,
    known: &[&str],
    expected: &'static str,
) -> Result<(), InvalidSelector> {
    let mut fields = value.as_object().into_iter().flatten();
    if fields.all(|(field, _)| known.contains(&field.as_str())) {
        Ok(())
    } else {
        Err(unusable(value, expected))
    }
}

fn text(value: &Value) -> Result<Box<str>, InvalidSelector> {
    value
        .as_str()
        .map(Into::into)
        .ok_or_else(|| unusable(value, "a string"))
}

/// Returns true if Kubernetes accepts the text as a label value.
///
/// It must be empty, or at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
pub fn is_label_value(value: &str) -> bool {
    let ends = [value.chars().next(), value.chars().next_back()];
    value.len() <= 63
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && ends.iter().flatten().all(char::is_ascii_alphanumeric)
}

fn only_integer(expression: &Value, values: &[Box<str>]) -> Result<i64, InvalidSelector> {
    match values {
        [value] => value.parse().ok(),
        _ => None,
    }
    .ok_or_else(|| unusable(expression, "an expression with one integer as its value"))
}

fn unusable(part: &Value, expected: &'static str) -> InvalidSelector {
    let part = part.to_string().chars().take(100).collect();
    InvalidSelector { part, expected }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selector(selector: Value) -> Selector {
        Selector::from_json(&selector).unwrap()
    }

    #[test]
    fn a_kubectl_selector_round_trips_through_json() {
        let read = Selector::from_query("pool=canary,zone in (a,b),tier!=x,gpu,!old").unwrap();
        assert_eq!(
            Selector::from_written_json(&read.to_json()).as_ref(),
            Ok(&read)
        );
    }

    /// Returns a function that looks up a label in a list of pairs.
    fn labels<'a>(pairs: &'a [(&str, &'a str)]) -> impl Fn(&str) -> Option<&'a str> {
        |key| pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    #[test]
    fn all_requirements_must_match() {
        let selector = selector(json!({
            "matchLabels": {"app": "a"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["x", "y"]}],
        }));
        assert!(selector.matches(labels(&[("app", "a"), ("tier", "y"), ("other", "")])));
        assert!(!selector.matches(labels(&[("app", "a"), ("tier", "z")])));
        assert!(!selector.matches(labels(&[("app", "b"), ("tier", "y")])));
        assert!(!selector.matches(labels(&[])));
    }

    #[test]
    fn every_operator_treats_an_absent_label_as_kubernetes_does() {
        // Columns: operator, values, and the results for a node with k=1, with k=2, and without k.
        let cases = [
            ("In", json!(["1"]), [true, false, false]),
            ("NotIn", json!(["1"]), [false, true, true]),
            ("Exists", json!([]), [true, true, false]),
            ("DoesNotExist", json!(null), [false, false, true]),
            ("Gt", json!(["1"]), [false, true, false]),
            ("Lt", json!(["2"]), [true, false, false]),
        ];
        for (operator, values, expected) in cases {
            let expression = json!({"key": "k", "operator": operator, "values": values});
            let requirement = Requirement::from_json(&expression, Operators::NodeAffinity).unwrap();
            let found = [Some("1"), Some("2"), None].map(|value| requirement.matches(value));
            assert_eq!(found, expected, "{operator}");
        }
    }

    #[test]
    fn typos_in_a_written_selector_are_rejected() {
        let fine = [
            json!({}),
            json!({"matchLabels": null, "matchExpressions": null}),
            json!({"matchLabels": {"a/b": ""}, "matchExpressions": [{"key": "k", "operator": "Exists"}]}),
        ];
        for case in fine {
            let read = Selector::from_written_json(&case);
            assert_eq!(read, Selector::from_json(&case), "{case}");
        }
        let slips = [
            json!({"matchlabels": {"pool": "canary"}}),
            json!({"matchLabels": {}, "matchExpression": []}),
            json!({"matchLabels": {"pool": "canary "}}),
            json!({"matchLabels": {"a b": "x"}}),
            json!({"matchExpressions": [{"key": "k", "operator": "Exists", "value": ["x"]}]}),
            json!({"matchExpressions": [{"key": "a b", "operator": "Exists"}]}),
        ];
        for case in slips {
            assert!(Selector::from_written_json(&case).is_err(), "{case}");
        }
    }

    #[test]
    fn an_empty_selector_selects_everything() {
        assert!(selector(json!({})).matches(labels(&[])));
        assert_eq!(selector(json!({"matchLabels": null})).to_query(), "");
    }

    #[test]
    fn a_selector_is_converted_to_a_kubernetes_query() {
        let selector = selector(json!({
            "matchLabels": {"b": "2", "a": ""},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["x", "y"]},
                {"key": "d", "operator": "NotIn", "values": ["z"]},
                {"key": "example.com/e", "operator": "Exists"},
                {"key": "f", "operator": "DoesNotExist"},
            ],
        }));
        assert_eq!(
            selector.to_query(),
            "a=,b=2,c in (x,y),d notin (z),example.com/e,!f"
        );
    }

    #[test]
    fn a_combined_selector_matches_everything_that_one_of_its_parts_matches() {
        let any = |queries: &[&str]| {
            let all: Vec<Selector> = queries
                .iter()
                .map(|query| Selector::from_query(query).unwrap())
                .collect();
            Selector::any_of(&all).to_query()
        };
        assert_eq!(any(&["app=a", "app in (b,a)"]), "app in (a,b)");
        assert_eq!(any(&["a=1,b=2", "b=3,a=1"]), "a=1,b in (2,3)");
        assert_eq!(any(&["app=a,!old"]), "app=a,!old");
        for apart in [["app=a", "tier=a"], ["app=a", "app"], ["app=a", "app!=b"]] {
            assert_eq!(any(&apart), "", "{apart:?}");
        }
        assert_eq!(any(&[]), "");
    }

    #[test]
    fn invalid_json_selectors_are_rejected_with_a_short_error() {
        let expression = |expression: Value| json!({"matchExpressions": [expression]});
        let cases = [
            json!(null),
            json!([]),
            json!("app=a"),
            json!({"matchLabels": []}),
            json!({"matchLabels": {"a": 1}}),
            json!({"matchExpressions": {}}),
            expression(json!(null)),
            expression(json!({"operator": "Exists"})),
            expression(json!({"key": "", "operator": "Exists"})),
            expression(json!({"key": "a"})),
            expression(json!({"key": "a", "operator": "in", "values": ["1"]})),
            expression(json!({"key": "a", "operator": "In"})),
            expression(json!({"key": "a", "operator": "In", "values": []})),
            expression(json!({"key": "a", "operator": "In", "values": [1]})),
            expression(json!({"key": "a", "operator": "In", "values": "1"})),
            expression(json!({"key": "a", "operator": "NotIn", "values": ["a b"]})),
            expression(json!({"key": "a", "operator": "NotIn", "values": ["-a"]})),
            expression(json!({"key": "a", "operator": "Exists", "values": ["1"]})),
            expression(json!({"key": "a", "operator": "Gt", "values": ["1"]})),
        ];
        for case in cases {
            let error = Selector::from_json(&case).unwrap_err();
            assert!(error.to_string().starts_with("selector: "), "{case}");
        }
        let long = json!("x".repeat(1 << 20));
        assert!(Selector::from_json(&long).unwrap_err().to_string().len() < 200);
    }
}
