//! Schemas of custom resources, reduced to the features of structural schemas that the embedded cluster needs.
//!
//! A schema first removes unknown fields, as the API server does while decoding. Then it reports values that don't match.

use serde_json::Value;

use super::status::StatusCause;

/// Schema of a value.
pub(super) enum Shape {
    Anything,
    /// Any string.
    Text,
    /// String that satisfies a check. The function returns the violated requirement.
    TextThat(fn(&str) -> Option<&'static str>),
    /// One of these strings.
    Word(&'static [&'static str]),
    /// Whole number between these limits, inclusive.
    Number(i64, i64),
    /// Number or string that satisfies a check. The function returns the violated requirement.
    NumberOrText(fn(&Value) -> Option<&'static str>),
    Flag,
    /// Map from strings to values with this schema.
    Map(&'static Shape),
    /// List of at least this many values with this schema.
    List(usize, &'static Shape),
    /// Object that may have only these fields.
    Fields(&'static [Field]),
    /// Object with these fields. Other fields are kept and not checked.
    OpenFields(&'static [Field]),
}

/// Field of an object, with its schema.
pub(super) struct Field {
    name: &'static str,
    shape: Shape,
    required: bool,
}

/// Creates a field that must be set.
pub(super) const fn required(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        required: true,
    }
}

/// Creates a field that may be missing.
pub(super) const fn optional(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        required: false,
    }
}

impl Shape {
    /// Removes fields that are not in the schema.
    pub(super) fn prune(&self, value: &mut Value) {
        match (self, value) {
            (Self::Map(shape), Value::Object(map)) => {
                map.values_mut().for_each(|value| shape.prune(value));
            }
            (Self::List(_, shape), Value::Array(list)) => {
                list.iter_mut().for_each(|value| shape.prune(value));
            }
            (Self::Fields(fields) | Self::OpenFields(fields), Value::Object(map)) => {
                if matches!(self, Self::Fields(_)) {
                    map.retain(|key, _| fields.iter().any(|field| field.name == key));
                }
                for field in *fields {
                    if let Some(value) = map.get_mut(field.name) {
                        field.shape.prune(value);
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds a cause for every value at or below `path` that doesn't match the schema.
    pub(super) fn check(&self, value: &Value, path: &str, causes: &mut Vec<StatusCause>) {
        match (self, value) {
            (Self::Anything, _) | (Self::Text, Value::String(_)) | (Self::Flag, Value::Bool(_)) => {
            }
            (Self::TextThat(wrong), Value::String(text)) => {
                let wrong = wrong(text);
                causes.extend(wrong.map(|why| StatusCause::invalid(path, value, why)));
            }
            (Self::Word(words), Value::String(word)) => {
                if !words.contains(&word.as_str()) {
                    causes.push(StatusCause::unsupported(path, value, words));
                }
            }
            (Self::Number(least, most), Value::Number(number)) => match number.as_i64() {
                Some(number) if number < *least => {
                    let why = format!("{path} in body should be greater than or equal to {least}");
                    causes.push(StatusCause::invalid(path, value, &why));
                }
                Some(number) if number <= *most => {}
                _ => causes.push(other_type(path, value, "integer")),
            },
            (Self::NumberOrText(wrong), Value::Number(_) | Value::String(_)) => {
                let wrong = wrong(value);
                causes.extend(wrong.map(|why| StatusCause::invalid(path, value, why)));
            }
            (Self::Map(shape), Value::Object(map)) => {
                for (key, value) in map {
                    shape.check(value, &format!("{path}.{key}"), causes);
                }
            }
            (Self::List(least, shape), Value::Array(list)) => {
                if list.len() < *least {
                    let why = format!("{path} in body should have at least {least} items");
                    causes.push(StatusCause::invalid(path, &list.len().into(), &why));
                }
                for (at, value) in list.iter().enumerate() {
                    shape.check(value, &format!("{path}[{at}]"), causes);
                }
            }
            (Self::Fields(fields) | Self::OpenFields(fields), Value::Object(map)) => {
                for field in *fields {
                    let path = match path {
                        "" => field.name.to_owned(),
                        path => format!("{path}.{}", field.name),
                    };
                    match map.get(field.name) {
                        Some(value) => field.shape.check(value, &path, causes),
                        None if field.required => causes.push(StatusCause::required(path, "")),
                        None => {}
                    }
                }
            }
            _ => causes.push(other_type(path, value, self.word())),
        }
    }

    /// Returns the name of the type as in a CustomResourceDefinition.
    fn word(&self) -> &'static str {
        match self {
            Self::Anything | Self::Fields(_) | Self::OpenFields(_) | Self::Map(_) => "object",
            Self::Text | Self::TextThat(_) | Self::Word(_) => "string",
            Self::Number(..) => "integer",
            Self::NumberOrText(_) => "integer,string",
            Self::Flag => "boolean",
            Self::List(..) => "array",
        }
    }
}

fn other_type(path: &str, value: &Value, wanted: &str) -> StatusCause {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    StatusCause {
        reason: "FieldValueTypeInvalid",
        field: path.to_owned(),
        message: format!(
            "Invalid value: {found:?}: {path} in body must be of type {wanted}: {found:?}"
        ),
    }
}
