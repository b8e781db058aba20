//! What is still to be made, kept in the cluster while the old DaemonSet goes: whoever types the command again, from wherever,
//! finishes what was begun.
//!
//! It is a ControllerRevision, for such objects hold any data and whoever may do the rest may make one. It has no labels, so
//! that nobody takes it for a revision of a DaemonSet.

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

/// A purpose, as it is written.
const MIGRATE: &str = "migrate";
const EJECT: &str = "eject";

/// What is still to be made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Journal {
    /// The UID of the DaemonSet that goes.
    pub(super) from: String,
    /// What for.
    pub(super) purpose: Purpose,
    /// Whether `object` is paused beyond what its owner asked for: a pause that ends with the migration.
    pub(super) held: bool,
    /// Revisions that are to be written anew, the oldest first.
    pub(super) revisions: Vec<Value>,
    /// The DaemonSet that comes.
    pub(super) object: Value,
}

impl Journal {
    /// The name of its object.
    pub(super) fn name(key: &SetKey) -> String {
        format!("{}-migration", key.name)
    }

    /// The kind of the DaemonSet that comes.
    pub(super) fn kind(&self) -> SetKind {
        SetKind::of_api_version(self.object["apiVersion"].as_str().unwrap_or_default())
    }

    /// Whether the DaemonSet that comes is paused at first, whoever asked for it.
    pub(super) fn is_paused(&self) -> bool {
        !self.object["metadata"]["annotations"][PAUSED].is_null()
    }

    /// Whether `set` is the DaemonSet that it tells of.
    pub(super) fn is_from(&self, set: &Value) -> bool {
        set["metadata"]["uid"] == *self.from
    }

    /// Reads that of a DaemonSet.
    ///
    /// # Errors
    /// When it may not be read, or nobody answers.
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

    /// Whether what it holds has that name.
    fn is_about(&self, key: &SetKey) -> bool {
        let meta = &self.object["metadata"];
        (&meta["name"], &meta["namespace"]) == (&json!(&*key.name), &json!(&*key.namespace))
    }

    /// Whether `made` is the DaemonSet that it holds: with the same selector, and a template that makes the same pods.
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

    /// What it holds, in a form that `kubectl create -f -` takes, too.
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

    /// Keeps it in the cluster, in place of what an earlier attempt left.
    ///
    /// # Errors
    /// When it may not be written, or is too big for one object.
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

    /// Removes it.
    ///
    /// # Errors
    /// When it may not be removed.
    pub(super) async fn forget(&self, access: &Access, key: &SetKey) -> Result<(), CliError> {
        delete(access, key, &Self::name(key)).await
    }
}

/// What has the name of a journal, and is none.
fn unknown(name: &str, namespace: &str) -> CliError {
    let text = format!(
        "The ControllerRevision {name} in namespace {namespace} has the name under which migrate keeps what is to be made, and is nothing \
         that migrate wrote; nothing was changed. Look at it, and remove it when nobody needs it: kubectl -n {namespace} delete \
         controllerrevision {name}"
    );
    CliError::new(Code::Refused, text)
}
