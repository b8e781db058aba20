//! What is read of the live cluster, and nothing more: the DaemonSet, its pods, its revisions, the nodes; where pods are to be
//! evicted, disruption budgets.
//!
//! Lists come page by page, and what the plan does not need is skipped while parsing. Nothing is ever written.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Resource};
use serde_json::{Value, json};

use super::slim::{SlimNode, SlimPod, SlimRevision};
use crate::core::fleet::in_place::Shape;
use crate::core::images::of_template;
use crate::core::revision::{RevisionFacts, TemplateFingerprint, adopted, current};
use crate::core::{Reading, Revision, RevisionState, RevisionUnknown, SetKind};
use crate::ctl::access::Access;
use crate::ctl::budgets::list_of;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::kinds::whole;
use crate::ctl::list::list;
use crate::ctl::lookup;
use crate::index::SetKey;
use crate::k8s::{Listed, Readable};

/// So often everything is read again when the newest revision did not fit the template: a moment ago it was made.
const ATTEMPTS: usize = 2;

/// A DaemonSet on its fleet, as it is now.
pub(super) struct LiveFleet {
    /// Its name.
    pub(super) key: SetKey,
    /// The DaemonSet, whole.
    pub(super) set: DynamicObject,
    /// Which pods are its own, as a query for labels.
    pub(super) selector: String,
    /// Every node; none where they may not be listed.
    pub(super) nodes: Vec<SlimNode>,
    /// Why nodes could not be listed, where the caller lacks that right.
    pub(super) unlisted_nodes: Option<CliError>,
    /// Its pods, also those on their way to become its own (surge).
    pub(super) pods: Vec<SlimPod>,
    /// Its revisions.
    pub(super) revisions: Vec<SlimRevision>,
    /// Objects that cannot be read, each with the reason. They are not part of the fleet.
    pub(super) unreadable: Vec<String>,
    /// The one that holds its template; `None`: its controller has not made it yet (Advanced).
    pub(super) current: Option<Revision>,
    /// When it was read.
    pub(super) at: Timestamp,
}

impl LiveFleet {
    /// Reads a managed DaemonSet and its fleet.
    ///
    /// # Errors
    /// What may not be read, or does not exist, or is not ready to be planned, in a sentence.
    pub(super) async fn read(
        access: &Access,
        key: &SetKey,
        now: impl Fn() -> Timestamp,
    ) -> Result<Self, CliError> {
        for attempt in 1.. {
            let trust = attempt == ATTEMPTS;
            match Self::look(access, key, now(), trust).await? {
                Ok(live) => return Ok(live),
                Err(_) if !trust => {}
                Err(behind) => {
                    let text = format!(
                        "{key} cannot be planned now: Kubernetes' DaemonSet controller has not handled its latest change \
                         ({behind:?}). Try again in a moment."
                    );
                    return Err(CliError::new(Code::Progressing, text));
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    async fn look(
        access: &Access,
        key: &SetKey,
        at: Timestamp,
        trust: bool,
    ) -> Result<Result<Self, RevisionUnknown>, CliError> {
        let client = || access.client.clone();
        // In the words of `status` where there is none, or it is not ours.
        let found = lookup::find(access, key, at).await?;
        let set = found.index.set(key);
        // Without pods there is nothing to play, whatever is changed beside.
        let is_unworkable = set.is_some_and(|set| {
            let advanced = set.advanced.as_ref();
            advanced.is_some_and(|advanced| !advanced.is_workable)
        });
        if let Some(Reading::Invalid(invalid, _)) = found.index.reading(key).as_deref()
            && is_unworkable
        {
            return Err(CliError::new(Code::Invalid, format!("{invalid}.")));
        }
        let selector = set.map(|set| set.selector.clone());
        let selector = selector.unwrap_or_default();
        let labelled = ListParams::default().labels(&selector);
        let sets = whole(&access.client, key);
        let doing = format!("read DaemonSet {key}");
        let set = access.call(&doing, sets.get(&key.name)).await?;
        let mut unreadable = Vec::new();
        let nodes: Api<Listed<SlimNode>> = Api::all(client());
        let listed = list(access, "list nodes", &nodes, ListParams::default()).await;
        let (nodes, unlisted_nodes) = match listed {
            Err(error) if error.refusal.is_some() => (Vec::new(), Some(error)),
            listed => (readable(listed?.0, &mut unreadable), None),
        };
        let doing = format!("list pods in namespace {}", key.namespace);
        let pods: Api<Listed<SlimPod>> = Api::namespaced(client(), &key.namespace);
        let (pods, _) = list(access, &doing, &pods, labelled.clone()).await?;
        let mut pods = readable(pods, &mut unreadable);
        let doing = format!("list controllerrevisions in namespace {}", key.namespace);
        let revisions: Api<Listed<SlimRevision>> = Api::namespaced(client(), &key.namespace);
        let (revisions, _) = list(access, &doing, &revisions, labelled).await?;
        let mut revisions = readable(revisions, &mut unreadable);
        let uid = set.metadata.uid.clone().unwrap_or_default();
        // An Advanced DaemonSet takes over what nobody controls; of a native one Kubernetes has done so.
        let is_free = |owner: Option<&String>| owner.is_none() && key.is_advanced();
        revisions.retain(|revision| {
            let owner = owner(revision);
            owner == Some(&uid) || is_free(owner)
        });
        let owners: Vec<String> = revisions
            .iter()
            .filter_map(|one| one.metadata.uid.clone())
            .collect();
        pods.retain(|pod| match owner(pod) {
            Some(owner) => *owner == uid || owners.contains(owner),
            none => is_free(none),
        });
        let current = match key.kind {
            SetKind::Native => match revision_state(&set, &revisions, trust) {
                RevisionState::Unknown(behind) => return Ok(Err(behind)),
                RevisionState::Current(current) => Some(current),
            },
            // The plan has its controller, which makes what is missing.
            SetKind::Advanced => {
                let template = TemplateFingerprint::of(&set.data["spec"]["template"]);
                newest_with(&facts(&set, &revisions), &template)
            }
        };
        Ok(Ok(Self {
            key: key.clone(),
            set,
            selector,
            nodes,
            unlisted_nodes,
            pods,
            revisions,
            unreadable,
            current,
            at,
        }))
    }

    /// `spec.template`.
    pub(super) fn template(&self) -> &Value {
        &self.set.data["spec"]["template"]
    }

    /// The annotations that the DaemonSet had when the present revision was made: how it was rolled out. Kubernetes keeps
    /// them on the revision.
    pub(super) fn settings_of_last(&self) -> Option<&BTreeMap<String, String>> {
        let current = self.current.as_ref()?;
        let is_current = |one: &&SlimRevision| one.hash(&self.key.name) == current.as_str();
        let current = self.revisions.iter().find(is_current)?;
        current.metadata.annotations.as_ref()
    }

    /// The hash of the revision that holds this template, if one does.
    pub(super) fn revision_of(&self, template: &Value) -> Option<Revision> {
        let wanted = TemplateFingerprint::of(template);
        match wanted == TemplateFingerprint::of(self.template()) {
            true => self.current.clone(),
            false => newest_with(&facts(&self.set, &self.revisions), &wanted),
        }
    }
}

/// The newest revision that holds this template.
fn newest_with(revisions: &[RevisionFacts], template: &TemplateFingerprint) -> Option<Revision> {
    let same = revisions.iter().filter(|known| known.template == *template);
    let newest = same.max_by_key(|known| known.number)?;
    Some(newest.hash.clone())
}

/// The disruption budgets of a namespace, without what others say of them.
pub(super) async fn budgets(access: &Access, key: &SetKey) -> Result<Vec<Value>, CliError> {
    let (budgets, _) = list_of(access, &key.namespace).await?;
    let slim = |budget: PodDisruptionBudget| {
        json!({
            "apiVersion": <PodDisruptionBudget as k8s_openapi::Resource>::API_VERSION,
            "kind": <PodDisruptionBudget as k8s_openapi::Resource>::KIND,
            "metadata": {
                "name": budget.metadata.name,
                "namespace": budget.metadata.namespace,
                "uid": budget.metadata.uid,
                "generation": budget.metadata.generation,
                "creationTimestamp": budget.metadata.creation_timestamp,
            },
            "spec": budget.spec,
        })
    };
    Ok(budgets.into_iter().map(slim).collect())
}

fn revision_state(set: &DynamicObject, revisions: &[SlimRevision], trust: bool) -> RevisionState {
    let observed = set.data["status"]["observedGeneration"].as_i64();
    let observed = observed.is_some() && observed >= set.metadata.generation;
    let template = TemplateFingerprint::of(&set.data["spec"]["template"]);
    current(&facts(set, revisions), &template, observed, trust)
}

fn facts(set: &DynamicObject, revisions: &[SlimRevision]) -> Vec<RevisionFacts> {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let fact = |revision: &SlimRevision| RevisionFacts {
        number: revision.revision,
        hash: revision.hash(name).as_str().into(),
        made: revision
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0),
        adopted: adopted(&revision.metadata),
        template: TemplateFingerprint::of(&revision.data["spec"]["template"]),
        shape: Arc::new(Shape::of(&revision.data["spec"]["template"])),
        images: of_template(&revision.data["spec"]["template"]).into(),
    };
    revisions.iter().map(fact).collect()
}

/// Returns the objects that can be read, and adds the others to `unreadable`.
fn readable<K: Readable>(listed: Vec<Listed<K>>, unreadable: &mut Vec<String>) -> Vec<K> {
    let mut objects = Vec::with_capacity(listed.len());
    for object in listed {
        let name = object.meta().name.clone().unwrap_or_default();
        match object.item {
            Ok(object) => objects.push(object),
            Err(error) => unreadable.push(format!("{} {name} ({error})", K::kind(&()))),
        }
    }
    objects
}

fn owner(object: &impl Resource) -> Option<&String> {
    let owners = object.meta().owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.next().map(|owner| &owner.uid)
}
