//! Requests of a migration to the API server, one function per step.

use std::time::Duration;

use kube::Resource as _;
use kube::api::{DeleteParams, ListParams, Preconditions, PropagationPolicy};
use kube::core::Request;
use serde_json::{Value, json};

use super::adoption::{Adoption, patience};
use super::journal::Journal;
use super::revisions::{
    self, are_alike, is_controlled_by, is_written, name, number, path, posted, rewritten, send,
};
use super::translation::Translation;
use super::{Purpose, messages};
use crate::core::names::{TEMPLATE_GENERATION_ANNOTATION, TEMPLATE_GENERATION_LABEL};
use crate::core::revision::{data_of, template_in};
use crate::core::selector::Selector;
use crate::core::settings::paused::PAUSED;
use crate::core::settings::update_strategy::UPDATE_STRATEGY;
use crate::core::{Mode, SetKind};
use crate::ctl::access::REREAD_INTERVAL;
use crate::ctl::code::Code;
use crate::ctl::context::Context;
use crate::ctl::daemonset_api::whole;
use crate::ctl::error::CliError;
use crate::ctl::pause::annotate;
use crate::ctl::screen::Screen;
use crate::index::SetKey;
use crate::k8s::client::{CallError, Failure};
use crate::k8s::{AdvancedDaemonSet, DaemonSet};

/// Maximum number of attempts to delete the DaemonSet. An attempt fails if the DaemonSet's `resourceVersion` has changed since the
/// read, as after a status update.
const ATTEMPTS: usize = 20;
/// Maximum time for the garbage collector to orphan the pods. It patches about a thousand pods per minute.
const LETTING_GO: Duration = Duration::from_secs(600);
/// Metadata fields that the API server sets.
const SET_BY_SERVER: [&str; 5] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "generation",
];
/// Delay between the creation of two ControllerRevisions. Creation timestamps are whole seconds, and have to differ.
const APART: Duration = Duration::from_millis(1100);

/// Fields that must not change between the read and the deletion of the DaemonSet. The status may change.
const LOOKED_AT: [&str; 6] = [
    "/metadata/uid",
    "/metadata/deletionTimestamp",
    "/metadata/finalizers",
    "/metadata/annotations",
    "/metadata/labels",
    "/spec",
];

/// Error of a deletion that was not confirmed.
#[derive(Debug)]
pub(super) enum Undeleted {
    /// The old DaemonSet was certainly not deleted.
    Certainly(CliError),
    /// The response was lost. The old DaemonSet may have been deleted, or may be deleted soon.
    Perhaps(CliError),
}

/// A migration of a DaemonSet from one kind to the other.
pub(super) struct Migration<'a> {
    pub(super) context: &'a Context,
    /// Key of the old DaemonSet.
    pub(super) source: SetKey,
    /// Key of the new DaemonSet.
    pub(super) target: SetKey,
    pub(super) purpose: Purpose,
}

impl<'a> Migration<'a> {
    pub(super) fn new(context: &'a Context, key: &SetKey, to: SetKind, purpose: Purpose) -> Self {
        Self {
            context,
            source: key.as_kind(to.other()),
            target: key.as_kind(to),
            purpose,
        }
    }

    /// Reads the old and the new DaemonSet, each `None` if it does not exist.
    pub(super) async fn look(&self) -> Result<(Option<Value>, Option<Value>), CliError> {
        Ok((
            self.read(&self.source).await?,
            self.read(&self.target).await?,
        ))
    }

    async fn read(&self, key: &SetKey) -> Result<Option<Value>, CliError> {
        let access = &self.context.access;
        let doing = format!("read DaemonSet {key}");
        let found = access
            .find(&doing, whole(&access.client, key).get(&key.name))
            .await?;
        Ok(found.and_then(|found| serde_json::to_value(found).ok()))
    }

    /// Checks with dry runs that the migration is possible. Returns the objects to create, or the reason for a refusal.
    pub(super) async fn prepare(&self, source: &Value) -> Result<(Journal, Translation), CliError> {
        let translation = self.preflight(source).await?;
        let stored = self.try_create(&translation.object).await;
        let stored = stored.map_err(|error| self.not_taken(&error))?;
        self.try_delete(source).await?;
        let mut journal = Journal {
            from: text(&source["metadata"]["uid"]),
            purpose: self.purpose,
            held: self.has_to_be_held(&translation),
            revisions: Vec::new(),
            object: translation.object.clone(),
        };
        if self.target.kind == SetKind::Native {
            let generation = self.next_generation(source).await?;
            journal.object["metadata"]["annotations"][TEMPLATE_GENERATION_ANNOTATION] =
                json!(generation.to_string());
            if journal.held {
                journal.object["metadata"]["annotations"][PAUSED] = json!("true");
            }
            journal.revisions = self.in_native_form(source, &stored).await?;
            for revision in &journal.revisions {
                let (access, key) = (&self.context.access, &self.target);
                revisions::try_rewrite(access, key, revision).await?;
            }
        }
        Ok((journal, translation))
    }

    /// Creates the object in a dry run and returns what the API server would store.
    async fn try_create(&self, object: &Value) -> Result<Value, CallError> {
        let request =
            Request::new(self.path()).create(&posted(true), object.to_string().into_bytes());
        let access = &self.context.access;
        access.wait(send(access, request)).await
    }

    /// Lets the API server check a manifest that is only printed. If it could not check the manifest, returns the cause.
    ///
    /// # Errors
    /// Fails if the API server rejects the manifest.
    pub(super) async fn check_printed(&self, object: &Value) -> Result<Option<CliError>, CliError> {
        let Err(error) = self.try_create(object).await else {
            return Ok(None);
        };
        let explained = self.not_taken(&error);
        match explained.code {
            Code::Failed => Err(self.no(explained.text)),
            _ => Ok(Some(explained)),
        }
    }

    /// Returns the error for a DaemonSet whose creation the API server rejected in the dry run.
    fn not_taken(&self, error: &CallError) -> CliError {
        let key = &self.target;
        let doing = format!(
            "create the DaemonSet {key} of {} (dry run)",
            key.kind.api_version()
        );
        match error.failure() {
            Failure::Gone => CliError::new(Code::Refused, messages::not_served(key)),
            _ => self.context.access.explain(&doing, error),
        }
    }

    fn path(&self) -> String {
        let namespace = Some(&*self.target.namespace);
        match self.target.kind {
            SetKind::Native => DaemonSet::url_path(&(), namespace),
            SetKind::Advanced => AdvancedDaemonSet::url_path(&(), namespace),
        }
    }

    async fn try_delete(&self, source: &Value) -> Result<(), CliError> {
        let access = &self.context.access;
        let doing = format!("delete the DaemonSet {} (dry run)", self.source);
        // Omit the preconditions: a status update after the read would make the dry run fail.
        let params = DeleteParams {
            dry_run: true,
            preconditions: None,
            ..orphaning(source)
        };
        let api = whole(&access.client, &self.source);
        let call = api.delete(&self.source.name, &params);
        access.call(&doing, call).await.map(drop)
    }

    /// Returns a template generation that no pod has as its label. Kubernetes regards a pod as updated if its label has the
    /// DaemonSet's template generation, even if the pod was created from another template.
    async fn next_generation(&self, source: &Value) -> Result<i64, CliError> {
        let pods = self.selected_pods(source).await?;
        let carried = pods.iter().filter_map(|pod| {
            let label = pod
                .metadata
                .labels
                .as_ref()?
                .get(TEMPLATE_GENERATION_LABEL)?;
            label.parse::<i64>().ok()
        });
        Ok(carried.max().unwrap_or(0).max(0) + 1)
    }

    /// Returns the revisions that have to be rewritten in Kubernetes' form, the oldest first. `stored` is the native DaemonSet as
    /// the API server would store it.
    async fn in_native_form(&self, source: &Value, stored: &Value) -> Result<Vec<Value>, CliError> {
        let uid = text(&source["metadata"]["uid"]);
        let mut owned = self.revisions(&selector(source)).await?;
        owned.retain(|revision| is_controlled_by(revision, &uid));
        owned.sort_by_key(|revision| std::cmp::Reverse(number(revision)));
        let present = json!({ "data": data_of(source["spec"]["template"].clone()) });
        let mut taken: Vec<Value> = Vec::new();
        let mut revisions = Vec::new();
        for revision in owned {
            let template = if are_alike(&revision, &present) {
                Some(stored["spec"]["template"].clone())
            } else {
                self.stored_template(stored, &revision).await?
            };
            let Some(wanted) = template.map(data_of) else {
                continue;
            };
            // Of revisions with equal data, keep only the newest. Kubernetes attributes the pods of all of them to this one.
            if taken.contains(&wanted) {
                continue;
            }
            if !is_written(&revision, &wanted) {
                let made = text(&revision["metadata"]["creationTimestamp"]);
                revisions.push((made, rewritten(&revision, &wanted)));
            }
            taken.push(wanted);
        }
        revisions.sort_by_key(|(made, revision)| (made.clone(), number(revision)));
        Ok(revisions
            .into_iter()
            .map(|(_, revision)| revision)
            .collect())
    }

    /// Returns the template of an older revision in the form in which the API server would store it. `None` if the revision has no
    /// template, or the API server no longer accepts it.
    async fn stored_template(
        &self,
        stored: &Value,
        revision: &Value,
    ) -> Result<Option<Value>, CliError> {
        let Some(template) = template_in(&revision["data"]) else {
            return Ok(None);
        };
        let mut object = stored.clone();
        object["spec"]["template"] = template;
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.retain(|key, _| !SET_BY_SERVER.contains(&key.as_str()));
        }
        match self.try_create(&object).await {
            Ok(stored) => Ok(Some(stored["spec"]["template"].clone())),
            Err(error) if error.failure() == Failure::Refused => Ok(None),
            Err(error) => Err(self.not_taken(&error)),
        }
    }

    async fn revisions(&self, selector: &str) -> Result<Vec<Value>, CliError> {
        let access = &self.context.access;
        let doing = format!(
            "list controllerrevisions in namespace {}",
            self.source.namespace
        );
        let params = ListParams::default().labels(selector);
        let request = Request::new(path(&self.source)).list(&params);
        let list = access.call(&doing, send(access, request)).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Deletes the DaemonSet in the version that was read, and keeps its pods and revisions without an owner.
    pub(super) async fn orphan(&self, seen: &Value) -> Result<(), Undeleted> {
        let access = &self.context.access;
        let key = &self.source;
        let doing = format!("delete DaemonSet {key}");
        let api = whole(&access.client, key);
        for _ in 0..ATTEMPTS {
            let now = self.read(key).await.map_err(Undeleted::Certainly)?;
            let now = now.unwrap_or_default();
            let same = |path: &str| now.pointer(path) == seen.pointer(path);
            if !LOOKED_AT.into_iter().all(same) {
                break;
            }
            let params = orphaning(&now);
            let error = match access.wait(api.delete(&key.name, &params)).await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            match error.failure() {
                Failure::Conflict => {}
                Failure::Unreachable => {
                    return Err(Undeleted::Perhaps(access.explain(&doing, &error)));
                }
                _ => return Err(Undeleted::Certainly(access.explain(&doing, &error))),
            }
        }
        let text = "it changed in the meantime. Try again.";
        Err(Undeleted::Certainly(self.no(text.to_owned())))
    }

    /// Waits until the DaemonSet with the given UID is gone. If a user created it again, returns the new one.
    pub(super) async fn await_gone(
        &self,
        uid: &str,
        screen: &mut Screen<'_>,
    ) -> Result<Option<Value>, CliError> {
        let begun = tokio::time::Instant::now();
        let mut is_announced = false;
        loop {
            let found = self.read(&self.source).await?;
            if found
                .as_ref()
                .is_none_or(|found| found["metadata"]["uid"] != *uid)
            {
                return Ok(found);
            }
            if begun.elapsed() >= LETTING_GO {
                return Err(CliError::new(
                    Code::Failed,
                    format!(
                        "Kubernetes' garbage collector has not released the pods of {} for {}. Check that \
                         kube-controller-manager is running.",
                        self.source,
                        humantime::format_duration(LETTING_GO)
                    ),
                ));
            }
            if !is_announced && begun.elapsed() >= REREAD_INTERVAL * 6 {
                let _ = screen.print("Waiting for kube-controller-manager to release the pods.\n");
                is_announced = true;
            }
            tokio::time::sleep(REREAD_INTERVAL).await;
        }
    }

    /// Replaces each revision in the journal with one in Kubernetes' form.
    pub(super) async fn write_revisions(&self, journal: &Journal) -> Result<(), CliError> {
        let access = &self.context.access;
        let numbers: Vec<i64> = journal.revisions.iter().map(number).collect();
        // After a rollback, the revisions' numbers and ages have different orders. Create them in different seconds to keep the
        // order of their ages.
        let is_turned = !numbers.is_sorted();
        for (at, revision) in journal.revisions.iter().enumerate() {
            if is_turned && at > 0 {
                tokio::time::sleep(APART).await;
            }
            revisions::delete(access, &self.target, name(revision)).await?;
            revisions::create(access, &self.target, revision).await?;
        }
        Ok(())
    }

    pub(super) async fn create(&self, journal: &Journal) -> Result<Value, CliError> {
        let access = &self.context.access;
        let doing = format!("create DaemonSet {}", self.target);
        let object = journal.object.to_string();
        let request = Request::new(self.path()).create(&posted(false), object.into_bytes());
        access.call(&doing, send(access, request)).await
    }

    /// Checks that no user has created a DaemonSet of the old kind with this name again.
    pub(super) async fn refuse_two_kinds(&self) -> Result<(), CliError> {
        match self.read(&self.source).await? {
            None => Ok(()),
            Some(_) => Err(CliError::new(
                Code::Failed,
                messages::applied_beside(&self.source),
            )),
        }
    }

    /// Returns true if the migration has to add a pause to the new DaemonSet.
    fn has_to_be_held(&self, made: &Translation) -> bool {
        let mode = made.annotation(UPDATE_STRATEGY).map(str::parse::<Mode>);
        self.target.kind == SetKind::Native
            && mode == Some(Ok(Mode::AdvancedRollingUpdate))
            && made.annotation(PAUSED).is_none()
    }

    /// Removes the pause that the migration added.
    pub(super) async fn let_go_on(&self, made: &Value) -> Result<(), CliError> {
        let uid = text(&made["metadata"]["uid"]);
        annotate(self.context, &self.target, &uid, PAUSED, None).await
    }

    /// Waits until the controller of the new DaemonSet has processed it, and returns the revision that the controller uses.
    pub(super) async fn await_adoption(&self, made: &Value) -> Result<Adoption, CliError> {
        let end = tokio::time::Instant::now() + patience(self.target.kind);
        let uid = text(&made["metadata"]["uid"]);
        loop {
            let now = self.read(&self.target).await?.unwrap_or_default();
            if now["metadata"]["uid"] != *uid {
                return Ok(Adoption::Replaced);
            }
            let observed = now["status"]["observedGeneration"].as_i64();
            if observed.is_some_and(|observed| observed > 0) {
                return self.adoption(made, &uid).await;
            }
            if tokio::time::Instant::now() >= end {
                return Ok(Adoption::Unseen);
            }
            tokio::time::sleep(REREAD_INTERVAL).await;
        }
    }

    async fn adoption(&self, made: &Value, uid: &str) -> Result<Adoption, CliError> {
        let mut owned = self.revisions(&selector(made)).await?;
        owned.retain(|revision| is_controlled_by(revision, uid));
        Ok(Adoption::from_owned(owned))
    }
}

/// Returns parameters that delete a DaemonSet and keep its pods.
fn orphaning(set: &Value) -> DeleteParams {
    let meta = &set["metadata"];
    DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        preconditions: Some(Preconditions {
            uid: meta["uid"].as_str().map(str::to_owned),
            resource_version: meta["resourceVersion"].as_str().map(str::to_owned),
        }),
        ..DeleteParams::default()
    }
}

/// Returns the label selector of a DaemonSet as a query.
pub(super) fn selector(set: &Value) -> String {
    let selector = Selector::from_json(&set["spec"]["selector"]);
    selector.unwrap_or_default().to_query()
}

/// Returns a string value, or an empty string.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
