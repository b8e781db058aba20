//! The fleet in the state right after a planned change. It is read from the cluster and changed only in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use super::change::PlannedChange;
use super::measure::LastRollout;
use super::row::RevisionChange;
use super::without_nodes::PlanWithoutNodes;
use crate::clock::Clock;
use crate::core::fleet::in_place::{InPlace, RunningContainer};
use crate::core::foreign::{SENTENCE, one_line};
use crate::core::id::ResourceVersion;
use crate::core::lifecycle::Exit;
use crate::core::names::REVISION_HASH_LABEL;
use crate::core::revision::{TemplateFingerprint, data_of};
use crate::core::settings::{Scaling, read};
use crate::core::{
    Disruption, Fleet, Labels, NodeName, ParsedSettings, Pod, PodRevision, Revision, RevisionState,
    SetKind, Strategy,
};
use crate::ctl::access::Access;
use crate::ctl::budgets::Budgets;
use crate::ctl::code::Code;
use crate::ctl::daemonset_api::{decode, whole};
use crate::ctl::error::CliError;
use crate::ctl::lookup;
use crate::ctl::snapshot::RolloutSnapshot;
use crate::ctl::view::ClusterView;
use crate::index::SetKey;
use crate::sim::cluster::{Cluster, ClusterOptions};

/// Hash of a revision that does not exist yet.
const PLANNED: &str = "planned";

/// A fleet with a planned change.
pub(super) struct PlannedRollout {
    /// Evaluated state of the DaemonSet right after the change.
    pub(super) snapshot: RolloutSnapshot,
    pub(super) revisions: RevisionChange,
    /// State of a new pod before it starts.
    pub(super) new_pod: Pod,
    /// Rules by which an Advanced DaemonSet creates pods; `None` for a native DaemonSet.
    pub(super) scaling: Option<Scaling>,
    /// Disruption budgets, if pods are evicted.
    pub(super) budgets: Budgets,
    /// Current pods with their nodes.
    pub(super) pods: Vec<(NodeName, Pod)>,
    /// Rollout of the current revision, if yurt-ds performed it.
    pub(super) last: Option<LastRollout>,
    /// Template of the new pods.
    pub(super) template: Value,
}

impl PlannedRollout {
    /// Reads a managed DaemonSet with its fleet, and applies the change in memory. Returns `Ok(Err(_))` if the caller may not list
    /// nodes.
    ///
    /// # Errors
    /// Fails if an object cannot be read, does not exist or cannot be planned.
    pub(super) async fn read(
        access: &Access,
        key: &SetKey,
        change: &PlannedChange,
        now: Timestamp,
    ) -> Result<Result<Self, PlanWithoutNodes>, CliError> {
        let mut view = lookup::load(access, key, now).await?;
        is_plannable(&view, key)?;
        let doing = format!("read DaemonSet {key}");
        let sets = whole(&access.client, key);
        let set: DynamicObject = access.call(&doing, sets.get(&key.name)).await?;
        let present = json!(set);
        let current = current(&mut view, key, now)?;
        let mut template = present["spec"]["template"].clone();
        change.to_template(&mut template)?;
        let to = revision_of(&view, key, &present, &template, current.as_ref());
        let mut planned = present.clone();
        json_patch::merge(&mut planned, &change.to_settings(key.kind));
        let strategy = usable(key.kind, planned.clone())?;
        if key.is_advanced() {
            accepted(&planned, now).await?;
        }
        let hash = |revision: Option<&Revision>| revision.map(Revision::to_string);
        let revisions = RevisionChange {
            from: hash(current.as_ref()),
            to: hash(to.as_ref()),
        };
        if view.unlisted_nodes.is_some() {
            return Ok(Err(PlanWithoutNodes::new(
                key,
                &view,
                change.descriptions(),
                revisions,
            )));
        }
        let last = last(access, &view, key, &present, current.as_ref()).await;
        planned["spec"]["template"] = template.clone();
        let is_new = to.is_none() || to != current;
        let number = apply(&mut view, key, planned, to.as_ref(), is_new, now);
        if strategy.disruption == Disruption::Evict {
            view.load_budgets(access).await;
            if let Some(why) = view.unread(key) {
                return Err(CliError::new(Code::Unreachable, format!("{why}.")));
            }
        }
        let set = view.index.set(key);
        let scaling = set.and_then(|set| Some(set.advanced.as_ref()?.scaling));
        let pods = set.into_iter().flat_map(|set| set.pods());
        let pods = pods
            .map(|(node, pod)| (node.clone(), pod.clone()))
            .collect();
        let first_read = view.loaded;
        let snapshot = RolloutSnapshot::new(&mut view.index, key, first_read, now);
        let mut snapshot = snapshot.ok_or_else(nothing_to_plan)?;
        forget_answers(&mut snapshot.fleet);
        snapshot.state = Arc::default();
        // Assume that the native controller sees changes of pods in order, as since Kubernetes 1.33. With an older version, a surge
        // only takes a moment longer.
        snapshot.fleet.in_order = true;
        Ok(Ok(Self {
            snapshot,
            revisions,
            new_pod: new_pod(&template, number),
            scaling,
            budgets: view.budgets,
            pods,
            last,
            template,
        }))
    }
}

/// Checks that there is a rollout to plan.
fn is_plannable(view: &ClusterView, key: &SetKey) -> Result<(), CliError> {
    let advanced = view.index.set(key).and_then(|set| set.advanced.as_ref());
    // An Advanced DaemonSet with unusable fields gets no pods, and an unreadable one is not changed. So nothing can be planned.
    let is_unworkable = advanced.is_some_and(|advanced| !advanced.is_workable);
    if let Some(ParsedSettings::Invalid(invalid, _)) = view.index.reading(key).as_deref()
        && (is_unworkable || invalid.is_object)
    {
        return Err(CliError::new(Code::Invalid, format!("{invalid}.")));
    }
    Ok(())
}

/// Returns the current revision; `None` if the yurt-ds controller has not created it yet.
fn current(
    view: &mut ClusterView,
    key: &SetKey,
    now: Timestamp,
) -> Result<Option<Revision>, CliError> {
    let fleet = view.index.fleet(key, now);
    match fleet.map(|fleet| fleet.revision.clone()) {
        Some(RevisionState::Current(current)) => Ok(Some(current)),
        Some(RevisionState::Unknown(behind)) if !key.is_advanced() => Err(CliError::new(
            Code::Progressing,
            format!(
                "{key} cannot be planned now: Kubernetes' DaemonSet controller has not processed its latest change \
                 ({behind:?}). Try again in a moment."
            ),
        )),
        _ => Ok(None),
    }
}

/// Returns the revision with the given template; `None` if there is none.
fn revision_of(
    view: &ClusterView,
    key: &SetKey,
    present: &Value,
    template: &Value,
    current: Option<&Revision>,
) -> Option<Revision> {
    let wanted = TemplateFingerprint::from_template(template);
    if wanted == TemplateFingerprint::from_template(&present["spec"]["template"])
        && current.is_some()
    {
        return current.cloned();
    }
    let uid = view.index.set(key).map(|set| set.uid.clone())?;
    let known = view.index.revisions_of(&uid).into_iter();
    let same = known.filter(|known| known.template == wanted);
    Some(same.max_by_key(|known| known.number)?.hash)
}

/// Validates an Advanced DaemonSet with the embedded API server. It checks types and limits of the fields like Kruise's CRD.
async fn accepted(planned: &Value, now: Timestamp) -> Result<(), CliError> {
    let cluster = Cluster::new(ClusterOptions::new(Clock::starting_at(now), 0));
    cluster.install_advanced();
    let set = json!({
        "apiVersion": planned["apiVersion"],
        "kind": planned["kind"],
        "metadata": { "name": planned["metadata"]["name"] },
        "spec": planned["spec"],
    });
    let key = SetKey::of_kind(SetKind::Advanced, "default", "planned");
    let Ok(set) = serde_json::from_value::<DynamicObject>(set) else {
        return Ok(());
    };
    let created = whole(&cluster.client("plan"), &key)
        .create(&PostParams::default(), &set)
        .await;
    match created {
        Err(kube::Error::Api(refusal)) if refusal.is_invalid() => Err(CliError::new(
            Code::Invalid,
            format!(
                "The API server would reject this change: {}.",
                one_line(&refusal.message, SENTENCE)
            ),
        )),
        _ => Ok(()),
    }
}

/// Applies the planned DaemonSet to the index, as if its controller had processed it. Returns the number of its revision.
fn apply(
    view: &mut ClusterView,
    key: &SetKey,
    mut planned: Value,
    to: Option<&Revision>,
    is_new: bool,
    now: Timestamp,
) -> i64 {
    let generation = planned["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
    planned["metadata"]["generation"] = json!(generation);
    planned["status"]["observedGeneration"] = json!(generation);
    let template = planned["spec"]["template"].clone();
    let uid = planned["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if let Some(set) = decode(key.kind, planned) {
        view.index.apply_set(&set);
    }
    let known = view.index.revisions_of(&uid);
    let greatest = known.iter().map(|known| known.number).max().unwrap_or(0);
    if !is_new {
        return greatest;
    }
    let hash = to.map_or(PLANNED, Revision::as_str);
    let name = to.and_then(|to| view.index.revision_name(&uid, to));
    let name = name.map_or_else(|| format!("{}-{PLANNED}", key.name), str::to_owned);
    // Keep the creation time of a restored revision. It marks the rollout as a rollback, which needs no proof that the revision
    // works.
    let same = known.iter().find(|known| Some(&known.hash) == to);
    let made = same.and_then(|known| known.made).unwrap_or(now);
    let revision = json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": &*key.namespace,
            "creationTimestamp": made.to_string(),
            "managedFields": [{ "manager": "plan", "operation": "Update", "apiVersion": "apps/v1", "time": now.to_string() }],
            "labels": { REVISION_HASH_LABEL: hash },
            "ownerReferences": [{
                "apiVersion": key.kind.api_version(),
                "kind": "DaemonSet",
                "name": &*key.name,
                "uid": uid,
                "controller": true,
            }],
        },
        "revision": greatest + 1,
        "data": data_of(template),
    });
    if let Ok(revision) = serde_json::from_value(revision) {
        view.index.apply_revision(&revision);
    }
    greatest + 1
}

/// Clears the rejected writes and evictions from before the change. The controller would try them again.
fn forget_answers(fleet: &mut Fleet) {
    fleet.write_failures = Default::default();
    fleet.evictions = Default::default();
    fleet.not_created = None;
    fleet.not_ready = BTreeMap::new();
}

/// Returns a pod of this template before it starts.
fn new_pod(template: &Value, number: i64) -> Pod {
    let labels = template["metadata"]["labels"].as_object();
    let labels = labels.into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
    let containers = template["spec"]["containers"].as_array();
    let container = |container: &Value| RunningContainer {
        name: container["name"].as_str().unwrap_or_default().into(),
        image: container["image"].as_str().unwrap_or_default().into(),
        reported: "".into(),
        image_id: "".into(),
        restarts: 0,
        is_init: false,
    };
    let containers = containers.into_iter().flatten().map(container);
    Pod {
        name: "".into(),
        uid: "".into(),
        resource_version: ResourceVersion::any(),
        created: Timestamp::UNIX_EPOCH,
        revision: PodRevision::Current,
        number,
        of_template: true,
        terminating: false,
        leaving: None,
        in_doubt: false,
        ready_since: None,
        unready_since: None,
        started: None,
        in_place: InPlace {
            containers: containers.collect(),
            ..InPlace::default()
        }
        .into(),
        problem: None,
        exit: Exit {
            labels: labels.collect::<Labels>(),
            ..Exit::default()
        }
        .into(),
        need_upgrade: None,
        image_ready: None,
        surge: false,
    }
}

/// Returns the settings. If they are invalid, the error has the controller's message.
fn usable(kind: SetKind, set: Value) -> Result<Strategy, CliError> {
    let set = decode(kind, set);
    match set.map(|set| read(&set.settings())) {
        Some(ParsedSettings::Strategy { strategy, .. }) => Ok(*strategy),
        Some(ParsedSettings::Invalid(invalid, _)) => {
            Err(CliError::new(Code::Invalid, format!("{invalid}.")))
        }
        Some(ParsedSettings::NotOurs) | None => Err(nothing_to_plan()),
    }
}

fn nothing_to_plan() -> CliError {
    CliError::new(
        Code::NotFound,
        "Without the annotation update-strategy, yurt-ds would not manage the DaemonSet, so there is nothing to \
         plan.",
    )
}

/// Returns the settings under which the current revision was rolled out. Kubernetes copies the DaemonSet's annotations of that time
/// to the ControllerRevision.
async fn last(
    access: &Access,
    view: &ClusterView,
    key: &SetKey,
    present: &Value,
    current: Option<&Revision>,
) -> Option<LastRollout> {
    let current = current?;
    let set = view.index.set(key)?;
    let name = view.index.revision_name(&set.uid, current)?;
    let api: Api<ControllerRevision> = Api::namespaced(access.client.clone(), &key.namespace);
    // Use a LIST with a field selector, because a caller with the right to list ControllerRevisions may lack the right to get one.
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let listing = api.list_metadata(&params);
    let found = access
        .call("list ControllerRevisions", listing)
        .await
        .ok()?;
    let mut then = present.clone();
    then["metadata"]["annotations"] = json!(found.items.into_iter().next()?.metadata.annotations?);
    let strategy = usable(key.kind, then).ok()?;
    Some(LastRollout {
        revision: current.clone(),
        width: width(&strategy, set.pods().count()),
        min_ready: strategy.min_ready,
    })
}

/// Returns the number of nodes that are updated at once if no setting but the budget limits it.
pub(super) fn width(strategy: &Strategy, pods: usize) -> usize {
    let shares = [strategy.max_unavailable, strategy.max_surge];
    let widths = shares.map(|share| share.resolve(pods));
    widths.into_iter().max().unwrap_or(1)
}
