//! Conversion of Rust types to the schema of a CustomResourceDefinition: structural, without `$ref`, no field nullable.
//!
//! API servers drop a `null` from a field that is not nullable before they apply defaults. So an explicit `null` has no effect.

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Schema extension for a field that is an integer or a string.
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Returns the schema of a type in the form that API servers require.
pub(super) fn structural<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::default().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let settings = settings.with_transform(Structural);
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// Type of a field that is an integer or a string.
pub(super) struct IntOrString;

impl JsonSchema for IntOrString {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "IntOrString".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ INT_OR_STRING: true })
    }
}

/// Schema transformation that removes everything that a structural schema must not contain.
#[derive(Clone, Debug)]
struct Structural;

impl Transform for Structural {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let unwrapped = without_null(schema);
        let fields = schema.ensure_object();
        if let Some(inner) = unwrapped {
            fields.remove("anyOf");
            for (key, value) in inner {
                fields.entry(key).or_insert(value);
            }
        }
        if fields.contains_key(INT_OR_STRING) {
            let either = json!([{ "type": "integer" }, { "type": "string" }]);
            fields.insert("anyOf".to_owned(), either);
        }
        // Set the maximum explicitly: Kubernetes 1.28 doesn't enforce the format, and clients that decode an int32 fail at larger
        // numbers.
        if fields.get("format").is_some_and(|format| format == "int32") {
            fields.insert("maximum".to_owned(), i32::MAX.into());
        }
        if let Some(Value::Array(types)) = fields.get("type") {
            let only = types.iter().find(|name| *name != "null").cloned();
            fields.insert("type".to_owned(), only.unwrap_or_default());
        }
        if let Some(Value::String(words)) = fields.get_mut("description") {
            *words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        fields.remove("title");
    }
}

/// Returns the other schema if `schema` allows either null or one other schema; otherwise `None`.
fn without_null(schema: &Schema) -> Option<serde_json::Map<String, Value>> {
    let choices = schema.get("anyOf")?.as_array()?;
    let is_null = |choice: &&Value| choice.get("type").is_some_and(|name| name == "null");
    choices.iter().find(is_null)?;
    let meant = choices.iter().find(|choice| !is_null(choice))?;
    meant.as_object().cloned()
}
