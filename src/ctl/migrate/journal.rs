//! What is still to be made, kept in the cluster while the old DaemonSet goes: whoever types the command again, from wherever,
//! finishes what was begun.
//!
//! It is a ControllerRevision, for such objects hold any data and whoever may do the rest may make one. It has no labels, so
//! that nobody takes it for a revision of a DaemonSet.

use kube::Resource as _;
use kube::api::{DeleteParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};

use super::revisions::name;
use super::{Purpose, words};
use crate::core::SetKind;
use crate::core::revision::TemplateFingerprint;
use crate::core::selector::Selector;
use crate::core::settings::paused::PAUSED;
use crate::ctl::access::Access;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::write::FIELD_MANAGER;
use crate::index::SetKey;
use crate::k8s::{ControllerRevision, go_json};

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
        let request = Request::new(path(key)).get(&name, &kube::api::GetParams::default());
        let doing = format!("read controllerrevision {name}");
        let found: Option<Value> = access.find(&doing, send(access, request)).await?;
        let Some(found) = found else {
            return Ok(None);
        };
        let journal = Self::of(&found["data"]).filter(|journal| journal.is_about(key));
        let unknown = || CliError::new(Code::Refused, words::no_journal(&name, &key.namespace));
        journal.map(Some).ok_or_else(unknown)
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
                TemplateFingerprint::of(&set["spec"]["template"]),
            )
        };
        of(&self.object) == of(made)
    }

    fn of(data: &Value) -> Option<Self> {
        let (object, revisions) = data["items"].as_array()?.split_last()?;
        Some(Self {
            from: data["from"].as_str()?.to_owned(),
            purpose: match data["purpose"] == EJECT {
                true => Purpose::Eject,
                false => Purpose::GoOn,
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
        create_revision(access, key, &object).await
    }

    /// Removes it.
    ///
    /// # Errors
    /// When it may not be removed.
    pub(super) async fn forget(&self, access: &Access, key: &SetKey) -> Result<(), CliError> {
        delete_revision(access, key, &Self::name(key), &DeleteParams::default()).await
    }
}

/// Makes a ControllerRevision, in the bytes of Kubernetes' own controllers.
///
/// # Errors
/// When it may not be made.
pub(super) async fn create_revision(
    access: &Access,
    key: &SetKey,
    object: &Value,
) -> Result<(), CliError> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..PostParams::default()
    };
    let request = Request::new(path(key)).create(&params, go_json(object).into_bytes());
    let doing = format!("create controllerrevision {}", name(object));
    let made: Value = access.call(&doing, send(access, request)).await?;
    drop(made);
    Ok(())
}

/// Deletes a ControllerRevision; one that is gone is no matter.
///
/// # Errors
/// When it may not be deleted.
pub(super) async fn delete_revision(
    access: &Access,
    key: &SetKey,
    name: &str,
    params: &DeleteParams,
) -> Result<(), CliError> {
    let request = Request::new(path(key)).delete(name, params);
    let doing = format!("delete controllerrevision {name}");
    let gone: Option<Value> = access.find(&doing, send(access, request)).await?;
    drop(gone);
    Ok(())
}

/// Where ControllerRevisions of its namespace are found.
pub(super) fn path(key: &SetKey) -> String {
    ControllerRevision::url_path(&(), Some(&key.namespace))
}

/// Sends a request.
///
/// # Errors
/// Those of the API server.
pub(super) async fn send(
    access: &Access,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> kube::Result<Value> {
    let request = request.map_err(kube::Error::BuildRequest)?;
    access.client.request(request).await
}
