//! Label selectors (string form and LabelSelector objects) and field selectors.

use std::collections::BTreeMap;

use serde_json::Value;

use super::object::Object;
use super::resources::Storage;

/// Requirements on labels, all of which have to hold; the default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<LabelRequirement>);

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Greater,
    Less,
}

impl LabelSelector {
    /// Reads the string form: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.
    ///
    /// # Errors
    /// Names the part that cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        split_outside_parentheses(text)
            .map_err(|()| format!("unable to parse requirement: unbalanced ( in {text:?}"))?
            .into_iter()
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(LabelRequirement::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Reads a LabelSelector object (`matchLabels`, `matchExpressions`).
    ///
    /// # Errors
    /// Names the expression that cannot be used.
    pub fn of_label_selector(selector: &Value) -> Result<Self, String> {
        let mut requirements: Vec<LabelRequirement> = selector
            .strings("/matchLabels")
            .into_iter()
            .map(|(key, value)| LabelRequirement {
                key,
                operator: Operator::In,
                values: vec![value],
            })
            .collect();
        let expressions = selector["matchExpressions"].as_array();
        for expression in expressions.into_iter().flatten() {
            requirements.push(LabelRequirement::of_expression(expression)?);
        }
        Ok(Self(requirements))
    }

    /// Do these labels satisfy every requirement?
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0
            .iter()
            .all(|requirement| requirement.holds(labels.get(&requirement.key).map(String::as_str)))
    }

    /// The same for an object's own labels.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0
            .iter()
            .all(|requirement| requirement.holds(labels[&requirement.key].as_str()))
    }

    /// Does it select everything?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl LabelRequirement {
    fn parse(text: &str) -> Result<Self, String> {
        let parsed = Self::parse_set(text)
            .or_else(|| Self::parse_comparison(text))
            .or_else(|| Self::parse_existence(text))
            .ok_or_else(|| format!("unable to parse requirement: {text:?}"))?;
        check_label_key(&parsed.key)?;
        for value in &parsed.values {
            check_label_value(value)?;
        }
        if matches!(parsed.operator, Operator::Greater | Operator::Less)
            && parsed.values[0].parse::<i64>().is_err()
        {
            return Err(format!(
                "unable to parse requirement: {text:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            ));
        }
        Ok(parsed)
    }

    fn parse_set(text: &str) -> Option<Self> {
        let (head, values) = text.strip_suffix(')')?.split_once('(')?;
        let (key, word) = head.trim().rsplit_once(char::is_whitespace)?;
        let operator = match word {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            _ => return None,
        };
        Some(Self {
            key: key.trim().to_owned(),
            operator,
            values: values
                .split(',')
                .map(|value| value.trim().to_owned())
                .collect(),
        })
    }

    fn parse_comparison(text: &str) -> Option<Self> {
        let tokens = [
            ("!=", Operator::NotIn),
            ("==", Operator::In),
            ("=", Operator::In),
            (">", Operator::Greater),
            ("<", Operator::Less),
        ];
        tokens.into_iter().find_map(|(token, operator)| {
            let (key, value) = text.split_once(token)?;
            Some(Self {
                key: key.trim().to_owned(),
                operator,
                values: vec![value.trim().to_owned()],
            })
        })
    }

    fn parse_existence(text: &str) -> Option<Self> {
        let (operator, key) = match text.strip_prefix('!') {
            Some(key) => (Operator::DoesNotExist, key.trim()),
            None => (Operator::Exists, text),
        };
        Some(Self {
            key: key.to_owned(),
            operator,
            values: Vec::new(),
        })
    }

    fn of_expression(expression: &Value) -> Result<Self, String> {
        let operator = match expression.text("/operator") {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => return Err(format!("{other:?} is not a valid label selector operator")),
        };
        let values: Vec<String> = expression["values"]
            .as_array()
            .map(|list| {
                list.iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect()
            })
            .unwrap_or_default();
        if matches!(operator, Operator::In | Operator::NotIn) && values.is_empty() {
            return Err("for 'in', 'notin' operators, values set can't be empty".to_owned());
        }
        Ok(Self {
            key: expression.text("/key").to_owned(),
            operator,
            values,
        })
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|allowed| allowed == value);
        let number = |text: &str| text.parse::<i64>().ok();
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Greater => value.and_then(number) > number(&self.values[0]),
            Operator::Less => value
                .and_then(number)
                .is_some_and(|have| number(&self.values[0]).is_some_and(|limit| have < limit)),
        }
    }
}

fn split_outside_parentheses(text: &str) -> Result<Vec<&str>, ()> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_i32, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return Err(());
        }
    }
    parts.push(&text[start..]);
    if depth == 0 { Ok(parts) } else { Err(()) }
}

/// Is this a qualified name (`prefix/name`)?
pub(crate) fn check_label_key(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let prefix_is_good = prefix.is_none_or(|prefix| {
        !prefix.is_empty()
            && prefix.len() <= 253
            && prefix
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'))
    });
    if prefix_is_good && !name.is_empty() && name.len() <= 63 && is_name(name) {
        return Ok(());
    }
    Err(format!(
        "{key:?} is not a qualified name: name part must consist of alphanumeric characters, '-', '_' or '.', \
         and must start and end with an alphanumeric character, with an optional DNS subdomain prefix and '/'"
    ))
}

/// Is this a value that a label may have?
pub(crate) fn check_label_value(value: &str) -> Result<(), String> {
    if value.is_empty() || (value.len() <= 63 && is_name(value)) {
        return Ok(());
    }
    Err(format!(
        "{value:?} is no label value: a valid label must be an empty string or consist of at most 63 alphanumeric \
         characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    ))
}

fn is_name(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next())
        && ends(text.chars().next_back())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Requirements on fields, all of which have to hold; the default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<(String, bool, String)>);

impl FieldSelector {
    /// Reads `metadata.name=a,spec.nodeName!=b`.
    ///
    /// # Errors
    /// Names the part that cannot be read, or the field that cannot be selected by.
    pub fn parse(text: &str, storage: Storage) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, equal, value) = if let Some((key, value)) = part.split_once("!=") {
                (key, false, value)
            } else if let Some((key, value)) = part.split_once("==") {
                (key, true, value)
            } else if let Some((key, value)) = part.split_once('=') {
                (key, true, value)
            } else {
                return Err(format!(
                    "invalid field selector {text:?}; can't understand '{part}'"
                ));
            };
            let key = stored_name(key);
            if !["metadata.name", "metadata.namespace"].contains(&key.as_str())
                && !selectable(storage).contains(&key.as_str())
            {
                return Err(format!("field label not supported: {key}"));
            }
            requirements.push((key, equal, value.to_owned()));
        }
        Ok(Self(requirements))
    }

    /// Does the object have these fields?
    pub(crate) fn selects(&self, object: &Value) -> bool {
        self.0
            .iter()
            .all(|(key, equal, value)| (field(object, key) == value.as_str()) == *equal)
    }

    /// The value that a field has to have, if it is a requirement.
    pub(crate) fn required(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, equal, _)| name == key && *equal)
            .map(|(_, _, value)| value.as_str())
    }

    /// Does it select everything?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// `events.k8s.io` calls the object of an event `regarding`; it is stored under its older name.
fn stored_name(key: &str) -> String {
    match key.strip_prefix("regarding.") {
        Some(rest) => format!("involvedObject.{rest}"),
        None if key == "reportingController" => "reportingComponent".to_owned(),
        None => key.to_owned(),
    }
}

fn selectable(storage: Storage) -> &'static [&'static str] {
    match storage {
        Storage::Pods => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        Storage::Events => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        Storage::Nodes => &["spec.unschedulable"],
        Storage::Secrets => &["type"],
        Storage::Jobs => &["status.successful"],
        Storage::Namespaces => &["status.phase"],
        Storage::Services => &["spec.clusterIP", "spec.type"],
        _ => &[],
    }
}

fn field<'a>(object: &'a Value, key: &str) -> &'a str {
    let mut place = object;
    let key = match key {
        "source" => "source.component",
        "status.successful" => "status.succeeded",
        key => key,
    };
    for part in key.split('.') {
        place = &place[part];
    }
    match place {
        Value::String(text) => text,
        Value::Bool(true) => "true",
        Value::Null | Value::Bool(false) if key == "spec.unschedulable" => "false",
        Value::Null | Value::Bool(false) if key == "spec.hostNetwork" => "false",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(selector: &str) -> bool {
        let labels = [("app", "web"), ("tier", "edge"), ("level", "7")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        LabelSelector::parse(selector)
            .unwrap()
            .matches(&BTreeMap::from(labels))
    }

    #[test]
    fn selectors_in_string_form_match_as_kubectl_writes_them() {
        let holds = [
            "",
            "app=web",
            "app==web",
            "app",
            "!none",
            "app!=db",
            "none!=x",
            "app in (web, db)",
            "app notin (db)",
            "none notin (x)",
            "level>6",
            "level<8",
            "app=web,tier in (edge),!none",
        ];
        for selector in holds {
            assert!(matches(selector), "{selector} selects");
        }
        let fails = [
            "app=db",
            "!app",
            "none",
            "app!=web",
            "app notin (web)",
            "none in (x)",
            "level>7",
            "level<7",
            "none>1",
            "none<1",
            "app=web,none",
        ];
        for selector in fails {
            assert!(!matches(selector), "{selector} does not select");
        }
    }

    #[test]
    fn unreadable_selectors_are_refused() {
        for selector in [
            "a===b", "a in (", "a in b", "a b", "!", "a>x", "-a=b", "a=b c", "a))",
        ] {
            assert!(
                LabelSelector::parse(selector).is_err(),
                "{selector} is refused"
            );
        }
    }

    #[test]
    fn label_selector_objects_match_by_every_operator() {
        let selects = |selector: Value| {
            let labels = [("app", "web")].map(|(key, value)| (key.to_owned(), value.to_owned()));
            LabelSelector::of_label_selector(&selector)
                .map(|all| all.matches(&BTreeMap::from(labels)))
        };
        let expression = |operator: &str, values: Value| json!({ "matchExpressions": [{ "key": "app", "operator": operator, "values": values }] });
        assert_eq!(selects(json!({})), Ok(true));
        assert_eq!(
            selects(json!({ "matchLabels": { "app": "db" } })),
            Ok(false)
        );
        assert_eq!(selects(expression("In", json!(["web"]))), Ok(true));
        assert_eq!(selects(expression("NotIn", json!(["web"]))), Ok(false));
        assert_eq!(selects(expression("Exists", Value::Null)), Ok(true));
        assert_eq!(selects(expression("DoesNotExist", Value::Null)), Ok(false));
        assert!(selects(expression("In", json!([]))).is_err());
        assert!(selects(expression("Near", json!(["web"]))).is_err());
    }

    #[test]
    fn fields_are_selected_only_where_the_kind_has_them() {
        let pod = json!({ "metadata": { "name": "p" }, "spec": { "nodeName": "n" } });
        let parse = |text| FieldSelector::parse(text, Storage::Pods);
        assert!(
            parse("spec.nodeName=n,metadata.name=p")
                .unwrap()
                .selects(&pod)
        );
        assert!(parse("status.phase!=Running").unwrap().selects(&pod));
        assert!(parse("spec.nodeName=").unwrap().selects(&json!({})));
        assert!(!parse("spec.nodeName!=n").unwrap().selects(&pod));
        assert!(parse("spec.colour=red").is_err());
        assert!(parse("spec.nodeName").is_err());
        assert!(FieldSelector::parse("spec.nodeName=n", Storage::Nodes).is_err());
    }
}
