//! Who set `partition` last, and when. A partition that was forgotten keeps nodes on an old version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::access::Access;
use super::daemonset_api::whole;
use crate::core::foreign::{WORD, cut};
use crate::core::instant;
use crate::core::settings::partition::PARTITION;
use crate::index::SetKey;

/// Returns a note about the client that set `partition` last; `None` if it is unknown, or if the caller may not read it.
pub(super) async fn note(access: &Access, key: &SetKey, now: Timestamp) -> Option<String> {
    let metadata = whole(&access.client, key).get_metadata(&key.name).await;
    let entries = metadata.ok()?.metadata.managed_fields?;
    origin(&entries, now)
}

fn origin(entries: &[ManagedFieldsEntry], now: Timestamp) -> Option<String> {
    let sets = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(has_partition)
    };
    let last = entries
        .iter()
        .filter(sets)
        .max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    let manager = cut(last.manager.as_deref()?, WORD);
    let passed = instant::between(last.time.as_ref()?.0, now);
    // The time is that of the manager's last write, which may have changed other fields, too.
    Some(format!(
        "partition was set by {manager}, whose last change was {passed} ago"
    ))
}

/// Returns true if these fields include the annotation, or the field of an Advanced DaemonSet.
fn has_partition(fields: &Value) -> bool {
    let annotation = &fields["f:metadata"]["f:annotations"][format!("f:{PARTITION}")];
    let field = &fields["f:spec"]["f:updateStrategy"]["f:rollingUpdate"]["f:partition"];
    !annotation.is_null() || !field.is_null()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, time: &str, fields: Value) -> ManagedFieldsEntry {
        let entry = json!({ "manager": manager, "time": time, "fieldsV1": fields });
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn the_last_writer_of_the_partition_is_named() {
        let now = "2026-01-04T00:00:00Z".parse().unwrap();
        let annotation =
            |key: &str| json!({ "f:metadata": { "f:annotations": { format!("f:{key}"): {} } } });
        let field = json!({ "f:spec": { "f:updateStrategy": { "f:rollingUpdate": { "f:partition": {} } } } });
        let day = |day: u8| format!("2026-01-0{day}T00:00:00Z");
        let other = entry("helm", &day(3), annotation("apps.openyurt.io/hold"));
        let by_edit = entry("kubectl-edit", &day(1), annotation(PARTITION));
        let by_field = entry("argocd", &day(2), field);
        let said = |entries: &[ManagedFieldsEntry]| origin(entries, now);
        assert_eq!(said(&[]), None);
        assert_eq!(said(std::slice::from_ref(&other)), None);
        assert_eq!(
            said(&[other, by_edit.clone()]).unwrap(),
            "partition was set by kubectl-edit, whose last change was 3d ago"
        );
        let text = said(&[by_field, by_edit]).unwrap();
        assert!(text.contains("by argocd"), "{text}");
    }
}
