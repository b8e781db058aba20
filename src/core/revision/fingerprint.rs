//! Fingerprint of a pod template, which is the same for all encodings of the template.
//!
//! The API server and the native controller encode empty values differently: as `null`, as an empty `metadata`, `resources` or map
//! of strings, or by a `$patch`. Such values count as absent, and so do the defaults of the API server ([`defaults`]). Everything
//! else matters: the order in lists, `{}` in other fields, unknown fields.

use std::{fmt, io};

use serde_json::{Map, Number, Value};

use super::defaults;

/// Fingerprint of a pod template, independent of its encoding. Equal fingerprints mean equal templates.
#[derive(Clone, Copy)]
pub struct TemplateFingerprint {
    meaning: u128,
    spelling: u128,
}

impl PartialEq for TemplateFingerprint {
    fn eq(&self, other: &Self) -> bool {
        self.meaning == other.meaning
    }
}

impl Eq for TemplateFingerprint {}

impl fmt::Debug for TemplateFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TemplateFingerprint({:032x})", self.meaning)
    }
}

impl TemplateFingerprint {
    /// Returns the fingerprint of a DaemonSet's `spec.template` or a ControllerRevision's `data.spec.template`.
    pub fn from_template(template: &Value) -> Self {
        Self::of_whole(template.clone())
    }

    /// Returns the fingerprint of a template. Takes the template by value, because a copy of up to a megabyte would be expensive.
    pub fn of_whole(mut template: Value) -> Self {
        let (mut meaning, mut spelling) =
            (FingerprintHasher::default(), FingerprintHasher::default());
        // Writing to the hasher cannot fail.
        let _ = serde_json::to_writer(&mut spelling, &template);
        defaults::leave_out(&mut template);
        match &template {
            Value::Object(map) => meaning.object(map, TemplateField::Template),
            other => meaning.value(other, TemplateField::Elsewhere),
        }
        Self {
            meaning: meaning.0,
            spelling: spelling.0,
        }
    }

    /// Returns true if both templates are also encoded in the same way. The native controller merges revisions with equal
    /// encodings.
    pub fn is_twin(&self, other: &Self) -> bool {
        (self.meaning, self.spelling) == (other.meaning, other.spelling)
    }
}

/// Position of a value in the template. It decides if `{}` counts as absent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TemplateField {
    /// The template itself.
    Template,
    /// The `spec` of the template.
    Spec,
    /// A list of containers, or one of them.
    Containers,
    /// Any other position.
    Elsewhere,
}

impl TemplateField {
    fn under(self, key: &str) -> Self {
        match (self, key) {
            (Self::Template, "spec") => Self::Spec,
            (Self::Spec, "containers" | "initContainers" | "ephemeralContainers") => {
                Self::Containers
            }
            _ => Self::Elsewhere,
        }
    }

    /// Returns true if `{}` for this key counts as absent, because some writers store `{}` and others omit the key.
    fn may_leave_out_empty(self, key: &str) -> bool {
        // `metadata` needs no check of the position. It also occurs in volume claim templates. A label with this key has a string
        // as value.
        key == "metadata" || (self == Self::Containers && key == "resources")
    }
}

/// FNV-1a hasher with 128 bits. Each string is preceded by its length and each value by its type, so different templates give
/// different input.
struct FingerprintHasher(u128);

impl Default for FingerprintHasher {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl io::Write for FingerprintHasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FingerprintHasher {
    fn bytes(&mut self, bytes: &[u8]) {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }

    fn value(&mut self, value: &Value, place: TemplateField) {
        match value {
            Value::Null => self.bytes(b"n"),
            Value::Bool(true) => self.bytes(b"t"),
            Value::Bool(false) => self.bytes(b"f"),
            Value::Number(number) => self.number(number),
            Value::String(text) => self.text(text),
            Value::Array(list) => {
                self.bytes(b"[");
                for item in list {
                    self.value(item, place);
                }
                self.bytes(b"]");
            }
            Value::Object(map) => self.object(map, place),
        }
    }

    fn object(&mut self, map: &Map<String, Value>, place: TemplateField) {
        let mut fields: Vec<(&String, &Value)> = map
            .iter()
            .filter(|(key, value)| counts(key, value, place))
            .collect();
        // The order of keys in the document must not matter, so sort them.
        fields.sort_by_key(|(key, _)| *key);
        self.bytes(b"{");
        for (key, value) in fields {
            self.text(key);
            self.value(value, place.under(key));
        }
        self.bytes(b"}");
    }

    fn text(&mut self, text: &str) {
        self.bytes(b"\"");
        self.bytes(&text.len().to_be_bytes());
        self.bytes(text.as_bytes());
    }

    /// Hashes a number by its value, so that `1`, `1.0` and `1e0` are equal.
    fn number(&mut self, number: &Number) {
        if let Some(integer) = integer(number) {
            self.bytes(b"i");
            self.bytes(&integer.to_be_bytes());
        } else {
            self.bytes(b"d");
            self.bytes(&number.as_f64().unwrap_or(f64::NAN).to_bits().to_be_bytes());
        }
    }
}

/// Returns true if a field matters for the fingerprint, and false if it counts as absent.
fn counts(key: &str, value: &Value, place: TemplateField) -> bool {
    let is_directive = place == TemplateField::Template && key == "$patch";
    let is_nothing = value.is_null() || (place.may_leave_out_empty(key) && says_nothing(value));
    !is_directive && !is_nothing
}

/// Returns true for `{}`, and for an object with only `null` values.
fn says_nothing(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|map| map.values().all(Value::is_null))
}

/// Returns the value of a number without a fraction; `None` for all other numbers. Floating-point numbers with more than 53 bits
/// also give `None`, because they are not exact.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the bounds are checked before"
)]
fn integer(number: &Number) -> Option<i128> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let of_float = || {
        number
            .as_f64()
            .filter(|float| float.fract() == 0.0 && float.abs() <= EXACT)
            .map(|float| float as i128)
    };
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
        .or_else(of_float)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(template: Value) -> TemplateFingerprint {
        TemplateFingerprint::from_template(&template)
    }

    fn container(container: Value) -> Value {
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}})
    }

    #[test]
    fn spellings_of_the_same_template_are_equal() {
        let template = container(json!({"name": "c", "image": "i:1"}));
        let with = |key: &str, value: Value| {
            let mut template = template.clone();
            template[key] = value;
            template
        };
        assert_eq!(of(template.clone()), of(with("$patch", json!("replace"))));
        assert_eq!(of(template.clone()), of(with("new", json!(null))));
        for spelling in [
            json!({"name": "c", "image": "i:1", "resources": {}}),
            json!({"name": "c", "image": "i:1", "resources": {"limits": null}}),
            json!({"image": "i:1", "name": "c", "args": null}),
        ] {
            assert_eq!(of(template.clone()), of(container(spelling)));
        }
    }

    #[test]
    fn empty_metadata_equals_missing_metadata() {
        for metadata in [json!({}), json!(null), json!({"creationTimestamp": null})] {
            let template = json!({"metadata": metadata, "spec": {}});
            assert_eq!(of(template), of(json!({"spec": {}})));
        }
        let claim = |claim: Value| json!({"spec": {"volumes": [{"ephemeral": {"volumeClaimTemplate": claim}}]}});
        assert_eq!(
            of(claim(
                json!({"metadata": {"creationTimestamp": null}, "spec": {}})
            )),
            of(claim(json!({"spec": {}})))
        );
    }

    #[test]
    fn empty_objects_outside_metadata_are_significant() {
        let spec = |spec: Value| of(json!({"spec": spec}));
        assert_ne!(
            spec(json!({"volumes": [{"name": "v", "new": {}}]})),
            spec(json!({"volumes": [{"name": "v"}]}))
        );
        assert_ne!(
            spec(json!({"term": {"labelSelector": {}}})),
            spec(json!({"term": {}}))
        );
        assert_ne!(spec(json!({"resources": {}})), spec(json!({})));
        assert_ne!(spec(json!({"os": {}})), spec(json!({})));
    }

    #[test]
    fn api_server_defaults_count_as_absent() {
        let stored = |template: &Value| {
            let mut set = json!({ "spec": { "template": template } });
            crate::sim::cluster::defaults::fill_daemonset(&mut set);
            set["spec"]["template"].take()
        };
        let probe = json!({ "httpGet": { "port": 80 } });
        let written = json!({
            "metadata": { "labels": { "restartPolicy": "Always", "protocol": "TCP" } },
            "spec": {
                "hostNetwork": true,
                "serviceAccountName": "agent",
                "nodeSelector": { "protocol": "TCP" },
                "initContainers": [{ "name": "i", "image": "i" }],
                "containers": [
                    { "name": "a", "image": "a:1", "readinessProbe": probe,
                      "ports": [{ "containerPort": 80 }],
                      "env": [{ "name": "E", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }] },
                    { "name": "b", "image": "b:latest" },
                ],
                "volumes": [{ "name": "none" }, { "name": "c", "configMap": { "name": "c" } },
                            { "name": "h", "hostPath": { "path": "/" } },
                            { "name": "p", "projected": { "sources": [{ "serviceAccountToken": { "path": "t" } }] } }],
            },
        });
        let full = stored(&written);
        assert_ne!(full, written);
        assert_eq!(of(full.clone()), of(written.clone()));
        for (path, other) in [
            ("/spec/restartPolicy", json!("Never")),
            ("/spec/containers/0/imagePullPolicy", json!("Always")),
            ("/spec/containers/1/imagePullPolicy", json!("IfNotPresent")),
            ("/spec/containers/0/readinessProbe/periodSeconds", json!(5)),
            ("/spec/volumes/1/configMap/defaultMode", json!(0)),
            ("/metadata/labels/protocol", json!("UDP")),
            ("/spec/nodeSelector/protocol", json!("UDP")),
        ] {
            let mut changed = full.clone();
            *changed.pointer_mut(path).unwrap() = other;
            assert_ne!(of(changed), of(written.clone()), "{path}");
        }
        let shape = crate::core::fleet::in_place::Shape::from_template;
        assert_eq!(shape(&full), shape(&written));
    }

    #[test]
    fn the_order_of_keys_is_irrelevant_and_the_order_of_lists_is_not() {
        let one: Value = serde_json::from_str(r#"{"spec":{"a":1,"b":[1,2]}}"#).unwrap();
        let other: Value = serde_json::from_str(r#"{"spec":{"b":[1,2],"a":1}}"#).unwrap();
        let turned: Value = serde_json::from_str(r#"{"spec":{"a":1,"b":[2,1]}}"#).unwrap();
        assert_eq!(of(one.clone()), of(other));
        assert_ne!(of(one), of(turned));
    }

    #[test]
    fn unknown_fields_count() {
        let with = |value: Value| of(container(json!({"name": "c", "fromTheFuture": value})));
        assert_ne!(with(json!(null)), with(json!(true)));
        assert_ne!(with(json!({"a": 1})), with(json!({"a": 2})));
        assert_ne!(with(json!([null])), with(json!([])));
    }

    #[test]
    fn numbers_are_compared_by_value() {
        let number = |text: &str| of(serde_json::from_str(&format!("[{text}]")).unwrap());
        assert_eq!(number("1"), number("1.0"));
        assert_eq!(number("100"), number("1e2"));
        assert_eq!(number("0"), number("-0.0"));
        assert_ne!(number("1"), number("1.5"));
        assert_ne!(number("18446744073709551615"), number("-1"));
        assert_ne!(number("1"), of(json!(["1"])));
    }

    #[test]
    fn adjacent_strings_have_distinct_fingerprints() {
        assert_ne!(
            of(json!({"a": "b", "c": "d"})),
            of(json!({"a": "bc", "": "d"}))
        );
        assert_ne!(of(json!(["ab", "c"])), of(json!(["a", "bc"])));
        assert_ne!(of(json!([["a"], "b"])), of(json!([["a", "b"]])));
    }

    #[test]
    fn a_patch_directive_is_ignored_only_at_the_top() {
        let deep = |value: Value| of(json!({"spec": {"$patch": value}}));
        assert_ne!(deep(json!("replace")), deep(json!(null)));
    }

    #[test]
    fn every_json_value_has_its_own_fingerprint() {
        let values = [
            json!(null),
            json!(1),
            json!("x"),
            json!([]),
            json!({}),
            json!({"spec": 1}),
        ];
        for (i, a) in values.iter().enumerate() {
            for b in &values[i + 1..] {
                assert_ne!(
                    TemplateFingerprint::from_template(a),
                    TemplateFingerprint::from_template(b)
                );
            }
        }
    }
}
