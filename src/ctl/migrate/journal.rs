//! Journal of a migration: the objects that still have to be created. It is stored in the cluster, so that the same command can
//! finish the migration after an interruption.
//!
//! The journal is a ControllerRevision, because that kind can hold any data, and the rights that `ctl migrate` needs anyway include
//! its creation. The journal has no labels, so no DaemonSet adopts it as a revision.

use kube::api::GetParams;
use kube::core::Request;
use serde_json::{Value, json};

use super::Purpose;
use super::revisions::{create, delete, path, send};
use crate::core::SetKind;
use crate::core::revision::TemplateFingerprint;
use crate::core::selector::Selector;
use crate::core::settings::paused::PAUSED;
use crate::ctl::access::Access;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::index::SetKey;

/// Values of the field `purpose` in the stored journal.
const MIGRATE: &str = "migrate";
const EJECT: &str = "eject";

/// Objects and state that a migration needs after an interruption.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Journal {
    /// UID of the old DaemonSet.
    pub(super) from: String,
    pub(super) purpose: Purpose,
    /// True if the migration created `object` paused. The migration removes this pause at its end.
    pub(super) held: bool,
    /// Revisions that have to be rewritten in Kubernetes' form, the oldest first.
    pub(super) revisions: Vec<Value>,
    /// New DaemonSet.
    pub(super) object: Value,
}

impl Journal {
    /// Returns the name of the ControllerRevision that holds the journal of the DaemonSet `key`.
    pub(super) fn name(key: &SetKey) -> String {
        format!("{}-migration", key.name)
    }

    /// Returns the kind of the new DaemonSet.
    pub(super) fn kind(&self) -> SetKind {
        SetKind::of_api_version(self.object["apiVersion"].as_str().unwrap_or_default())
    }

    /// Returns true if the new DaemonSet is created paused: the old one was paused, or the migration sets a pause.
    pub(super) fn is_paused(&self) -> bool {
        !self.object["metadata"]["annotations"][PAUSED].is_null()
    }

    /// Returns true if `set` is the old DaemonSet.
    pub(super) fn is_from(&self, set: &Value) -> bool {
        set["metadata"]["uid"] == *self.from
    }

    /// Reads the journal of a DaemonSet.
    ///
    /// # Errors
    /// Fails if the caller may not read the journal or the API server does not answer.
    pub(super) async fn find(access: &Access, key: &SetKey) -> Result<Option<Self>, CliError> {
        let name = Self::name(key);
        let request = Request::new(path(key)).get(&name, &GetParams::default());
        let doing = format!("read controllerrevision {name}");
        let found: Option<Value> = access.find(&doing, send(access, request)).await?;
        let Some(found) = found else {
            return Ok(None);
        };
        let journal = Self::from_data(&found["data"]).filter(|journal| journal.is_about(key));
        journal
            .map(Some)
            .ok_or_else(|| unknown(&name, &key.namespace))
    }

    /// Returns true if the journal's new DaemonSet has the name and namespace of `key`.
    fn is_about(&self, key: &SetKey) -> bool {
        let meta = &self.object["metadata"];
        (&meta["name"], &meta["namespace"]) == (&json!(&*key.name), &json!(&*key.namespace))
    }

    /// Returns true if `made` is the journal's new DaemonSet: selectors are equal, and templates create the same pods.
    pub(super) fn is_made(&self, made: &Value) -> bool {
        let of = |set: &Value| {
            let selector = Selector::from_json(&set["spec"]["selector"]).unwrap_or_default();
            (
                selector.to_query(),
                TemplateFingerprint::from_template(&set["spec"]["template"]),
            )
        };
        of(&self.object) == of(made)
    }

    fn from_data(data: &Value) -> Option<Self> {
        let (object, revisions) = data["items"].as_array()?.split_last()?;
        Some(Self {
            from: data["from"].as_str()?.to_owned(),
            purpose: if data["purpose"] == EJECT {
                Purpose::Eject
            } else {
                Purpose::GoOn
            },
            held: data["held"] == true,
            revisions: revisions.to_vec(),
            object: object.clone(),
        })
    }

    /// Returns the journal as a List object, which `kubectl create -f -` accepts too.
    fn data(&self) -> Value {
        let items: Vec<&Value> = self.revisions.iter().chain([&self.object]).collect();
        let purpose = match self.purpose {
            Purpose::GoOn => MIGRATE,
            Purpose::Eject => EJECT,
        };
        json!({
            "apiVersion": "v1",
            "kind": "List",
            "from": self.from,
            "purpose": purpose,
            "held": self.held,
            "items": items,
        })
    }

    /// Stores the journal in the cluster. Replaces the journal of an earlier attempt.
    ///
    /// # Errors
    /// Fails if the caller may not write the journal or it is too large for one object.
    pub(super) async fn keep(&self, access: &Access, key: &SetKey) -> Result<(), CliError> {
        self.forget(access, key).await?;
        let name = Self::name(key);
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": { "name": name, "namespace": &*key.namespace },
            "revision": 0,
            "data": self.data(),
        });
        create(access, key, &object).await
    }

    /// Removes the journal.
    ///
    /// # Errors
    /// Fails if the caller may not delete the journal.
    pub(super) async fn forget(&self, access: &Access, key: &SetKey) -> Result<(), CliError> {
        delete(access, key, &Self::name(key)).await
    }
}

/// Returns the error for a ControllerRevision that has the journal's name but is not a journal.
fn unknown(name: &str, namespace: &str) -> CliError {
    let text = format!(
        "The ControllerRevision {name} in namespace {namespace} has the name of the journal of migrate, but other \
         content, so nothing was changed. Check it, and delete it if it is not needed: kubectl -n {namespace} delete \
         controllerrevision {name}"
    );
    CliError::new(Code::Refused, text)
}
