//! Shapes of custom resources: the part of a structural schema that the embedded cluster needs.
//!
//! A shape first removes unknown fields, as the API server does on decoding. Then it reports values that don't match.

use serde_json::Value;

use super::status::StatusCause;

/// Shape of a value.
pub(super) enum Shape {
    /// Any value.
    Anything,
    /// String.
    Text,
    /// String with a check. The function returns the requirement if the string violates it.
    TextThat(fn(&str) -> Option<&'static str>),
    /// One of these words.
    Word(&'static [&'static str]),
    /// Whole number in this inclusive range.
    Number(i64, i64),
    /// Number or string with a check. The function returns the requirement if the value violates it.
    NumberOrText(fn(&Value) -> Option<&'static str>),
    /// Boolean.
    Flag,
    /// Map from strings to values of one shape.
    Map(&'static Shape),
    /// List of values of one shape, with a minimum length.
    List(usize, &'static Shape),
    /// Object with only these fields.
    Fields(&'static [Field]),
    /// Object with these fields and any others.
    OpenFields(&'static [Field]),
}

/// Field of an object.
pub(super) struct Field {
    name: &'static str,
    shape: Shape,
    required: bool,
}

/// Returns a field that must be set.
pub(super) const fn required(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        required: true,
    }
}

/// Returns a field that may be missing.
pub(super) const fn optional(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        required: false,
    }
}

impl Shape {
    /// Removes fields that the shape does not have.
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

    /// Adds a cause for every mismatch in the value at `path`.
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

    /// Returns its type in the words of a schema.
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
