//! Last writer of a template.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

use crate::core::foreign::{WORD, one_line};
use crate::core::instant;
use crate::core::names::CTL_FIELD_MANAGER;

/// Field manager of `kubectl rollout undo`.
const KUBECTL_UNDO: &str = "kubectl-rollout";

/// Last writer of the template of a DaemonSet, from `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateWriter {
    manager: String,
    /// Time of its last write.
    pub at: Option<Timestamp>,
}

impl TemplateWriter {
    /// Returns the last writer; `None` if `managedFields` doesn't name one.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let writes = |entry: &&ManagedFieldsEntry| {
            let fields = entry.fields_v1.as_ref();
            fields.is_some_and(|fields| !fields.0["f:spec"]["f:template"].is_null())
        };
        let entries = meta.managed_fields.iter().flatten().filter(writes);
        let last = entries.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
        Some(Self {
            manager: last.manager.clone().unwrap_or_default(),
            at: last.time.as_ref().map(|time| time.0),
        })
    }

    /// Returns the last writer if it rolled the DaemonSet back.
    pub fn of_rollback(meta: &ObjectMeta) -> Option<Self> {
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        Self::of(meta).filter(|writer| writer.is_undo() && writer.at > created)
    }

    /// Returns true if this field manager writes templates only to roll back.
    pub fn is_undo(&self) -> bool {
        [CTL_FIELD_MANAGER, KUBECTL_UNDO].contains(&self.manager.as_str())
    }
}

impl fmt::Display for TemplateWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.manager, WORD))?;
        match self.at {
            Some(at) => write!(f, " at {}", instant::words(at)),
            None => Ok(()),
        }
    }
}
