//! Data of a DaemonSet's ControllerRevision. It contains the template as a patch (Kubernetes, `getPatch` in
//! `pkg/controller/daemon/update.go`).

use serde_json::{Value, json};

/// Key of the directive that makes the patch replace the whole template. The template itself doesn't contain it.
const DIRECTIVE: &str = "$patch";

/// Returns the `data` of a revision with `template`.
pub fn data_of(mut template: Value) -> Value {
    template[DIRECTIVE] = json!("replace");
    json!({ "spec": { "template": template } })
}

/// Returns the template in the `data` of a revision, as a DaemonSet contains it; `None` if there is none.
pub fn template_in(data: &Value) -> Option<Value> {
    let mut template = data.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove(DIRECTIVE);
    Some(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_round_trips_through_revision_data() {
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
