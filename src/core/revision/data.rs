//! What a ControllerRevision of a DaemonSet holds: its template, in the words of a patch (Kubernetes, `getPatch` in
//! `pkg/controller/daemon/update.go`).

use serde_json::{Value, json};

/// Tells whoever applies it that the template takes the place of the present one. No part of the template.
const DIRECTIVE: &str = "$patch";

/// The `data` of a revision that holds this template.
pub fn data_of(mut template: Value) -> Value {
    template[DIRECTIVE] = json!("replace");
    json!({ "spec": { "template": template } })
}

/// The template in the `data` of a revision, as a DaemonSet has it; `None`: it holds none.
pub fn template_in(data: &Value) -> Option<Value> {
    let mut template = data.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove(DIRECTIVE);
    Some(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_taken_out() {
        let template = json!({ "spec": { "containers": [] } });
        let data = data_of(template.clone());
        assert_eq!(data["spec"]["template"]["$patch"], "replace");
        assert_eq!(template_in(&data), Some(template));
        for data in [
            json!({}),
            json!({ "spec": { "template": "x" } }),
            json!(null),
        ] {
            assert_eq!(template_in(&data), None);
        }
    }
}
