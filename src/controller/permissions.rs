//! What the controller may do, asked at the start instead of found out in the middle of a rollout; and, where a write was refused
//! for want of it, until it is granted.
//!
//! [`NEEDED`] lists the rights of `manifests/base/rbac`, [`COMPONENTS`] and [`ADVANCED`] those of `manifests/components`, which only some
//! settings need. Tests compare them with the manifests in both directions.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::events::{Events, Severity, Subject};
use super::kinds::Kinds;
use super::metrics::Metrics;
use super::reflector::list_each;
use super::server;
use crate::core::names::{
    ADVANCED_RBAC, BASE_RBAC, IN_PLACE_RBAC, KRUISE_GROUP, LIFECYCLE_RBAC, MAX_SURGE_RBAC,
    PRE_PULL_RBAC,
};
use crate::core::settings::OnFailure;
use crate::core::{ParsedSettings, RollingUpdateType, SetKind, Strategy, WriteVerb};
use crate::index::{Index, SetKey};
use crate::k8s::DaemonSet;
use crate::k8s::client::{CallError, WRITE_DEADLINE, within};
use crate::k8s::permission::{Permission, PermissionScope, cluster, lease};

/// Reason of the Event about it.
pub const PERMISSION_MISSING: &str = "PermissionMissing";
/// How long is waited before a check that got no answer is tried again.
const PAUSE: Duration = Duration::from_secs(10);
/// How often a permission that is missing is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// Rights of every installation: enough to delete and evict pods and to write status.
pub const NEEDED: [Permission; 20] = [
    // What is to be rolled out, and the conditions that tools wait for.
    cluster("apps", "daemonsets", "get"),
    cluster("apps", "daemonsets", "list"),
    cluster("apps", "daemonsets", "watch"),
    cluster("apps", "daemonsets/status", "patch"),
    // Which revision is the current one.
    cluster("apps", "controllerrevisions", "get"),
    cluster("apps", "controllerrevisions", "list"),
    cluster("apps", "controllerrevisions", "watch"),
    // Which nodes are there, and which are online.
    cluster("", "nodes", "list"),
    cluster("", "nodes", "watch"),
    // The pods: deleting one updates its node, and its status carries PodNeedUpgrade and readiness gates.
    cluster("", "pods", "get"),
    cluster("", "pods", "list"),
    cluster("", "pods", "watch"),
    cluster("", "pods", "delete"),
    // With disruption: evict, instead of deleting it.
    cluster("", "pods/eviction", "create"),
    cluster("", "pods/status", "patch"),
    cluster("events.k8s.io", "events", "create"),
    // Jobs that pull images ahead on nodes.
    cluster("batch", "jobs", "list"),
    cluster("batch", "jobs", "watch"),
    // Why pods cannot be made, or do not become Ready.
    cluster("", "events", "list"),
    // A name cannot limit create: the object is not there yet.
    lease(PermissionScope::LeaseNamespace, "create"),
];

/// What the election adds.
pub const NEEDED_FOR_ELECTION: [Permission; 3] = [
    lease(PermissionScope::Lease, "get"),
    lease(PermissionScope::Lease, "update"),
    // To find another installation that serves the same DaemonSets.
    lease(PermissionScope::AnyLease, "list"),
];

/// Rights that a feature adds to the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// The rights.
    pub permissions: &'static [Permission],
    /// Name of the feature in a sentence.
    pub feature: &'static str,
    /// Folder of the manifests that grant them.
    pub folder: &'static str,
}

/// Updates in place: one patch of the running pod.
pub const IN_PLACE: Component = Component {
    permissions: &[cluster("", "pods", "patch")],
    feature: "updating pods in place",
    folder: IN_PLACE_RBAC,
};

/// Hooks: the mark on a pod that waits.
pub const LIFECYCLE: Component = Component {
    permissions: &[cluster("", "pods", "patch")],
    feature: "lifecycle",
    folder: LIFECYCLE_RBAC,
};

/// Surge: the new pod is created here, and handed over to the DaemonSet.
pub const MAX_SURGE: Component = Component {
    permissions: &[cluster("", "pods", "create"), cluster("", "pods", "patch")],
    feature: "max-surge",
    folder: MAX_SURGE_RBAC,
};

/// Images that are pulled ahead: a Job on the node.
pub const PRE_PULL: Component = Component {
    permissions: &[
        cluster("batch", "jobs", "create"),
        cluster("batch", "jobs", "delete"),
    ],
    feature: "pulling images ahead",
    folder: PRE_PULL_RBAC,
};

/// Components for settings of native DaemonSets.
pub const COMPONENTS: [Component; 4] = [IN_PLACE, LIFECYCLE, MAX_SURGE, PRE_PULL];

/// What Advanced DaemonSets add: their pods, revisions and status are made by this controller.
pub const ADVANCED: [Permission; 11] = [
    cluster(KRUISE_GROUP, "daemonsets", "get"),
    cluster(KRUISE_GROUP, "daemonsets", "list"),
    cluster(KRUISE_GROUP, "daemonsets", "watch"),
    cluster(KRUISE_GROUP, "daemonsets/status", "patch"),
    // Where API servers check it, only who may do this may name one as the owner that waits for its pods.
    cluster(KRUISE_GROUP, "daemonsets/finalizers", "update"),
    cluster("apps", "controllerrevisions", "create"),
    cluster("apps", "controllerrevisions", "patch"),
    cluster("apps", "controllerrevisions", "delete"),
    cluster("", "pods", "create"),
    cluster("", "pods", "patch"),
    // Whether Kruise's manager runs beside this one.
    lease(PermissionScope::KruiseLease, "get"),
];

impl Component {
    /// Whether a DaemonSet with this strategy needs it. Owners of nodes ask for images without a setting: what is missing is reported
    /// to them when they do.
    fn is_for(&self, strategy: &Strategy) -> bool {
        let is_in_place = strategy.rolling_update_type == RollingUpdateType::InPlaceIfPossible;
        match self.folder {
            IN_PLACE_RBAC => is_in_place || strategy.on_failure == OnFailure::RevertInPlace,
            LIFECYCLE_RBAC => strategy.pre_delete.as_ref().is_some_and(|hook| hook.asks()),
            MAX_SURGE_RBAC => !strategy.max_surge.is_zero(),
            _ => match strategy.image_predownload_parallelism {
                Some(nodes) => !nodes.is_zero(),
                None => is_in_place,
            },
        }
    }

    fn grants(&self, verb: &str, resource: &str) -> bool {
        is_among(self.permissions, verb, resource)
    }
}

fn is_among(known: &[Permission], verb: &str, resource: &str) -> bool {
    known.iter().any(|known| known.is_for(verb, resource))
}

/// Manifests that grant `verb` on `resource` for a DaemonSet of this kind; `write`: what the request was for, if it was a step of a
/// rollout. Several components grant the same right.
pub fn granted_by(
    verb: &str,
    resource: &str,
    kind: SetKind,
    write: Option<WriteVerb>,
) -> &'static str {
    let is_base =
        is_among(&NEEDED, verb, resource) || is_among(&NEEDED_FOR_ELECTION, verb, resource);
    let is_advanced = is_among(&ADVANCED, verb, resource);
    let component = COMPONENTS.iter().find(|one| one.grants(verb, resource));
    match (write, component) {
        _ if is_base => BASE_RBAC,
        (Some(write), _) => write.granted_by(kind),
        _ if is_advanced && kind == SetKind::Advanced => ADVANCED_RBAC,
        (None, Some(component)) => component.folder,
        (None, None) if is_advanced => ADVANCED_RBAC,
        (None, None) => BASE_RBAC,
    }
}

/// What the service account lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Of what is always needed.
    always: Vec<Permission>,
    /// Of what Advanced DaemonSets need.
    advanced: Vec<Permission>,
    /// Components that are in use and not granted.
    components: Vec<MissingComponent>,
}

/// A component that is in use and not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MissingComponent {
    component: Component,
    lacks: Vec<Permission>,
    /// DaemonSets that use it.
    users: Vec<SetKey>,
}

impl Missing {
    /// Whether the lists that `/ready` waits for, and with it the election, cannot arrive.
    pub fn keeps_unready(&self) -> bool {
        let mut lacking = self.always.iter().chain(&self.advanced);
        let is_listed =
            |resource| ["daemonsets", "controllerrevisions", "nodes"].contains(&resource);
        lacking.any(|lacks| ["list", "watch"].contains(&lacks.verb) && is_listed(lacks.resource))
    }
}

/// Settings of the controller that decide which permissions it needs.
#[derive(Clone, Copy, Debug)]
pub struct PermissionNeeds {
    /// Replicas elect a leader.
    pub elects: bool,
    /// Kinds of DaemonSets that are rolled out.
    pub kinds: Kinds,
}

/// Asks for every permission, each until there is an answer; logs and counts what is missing. What only settings need is missing
/// when a DaemonSet has them.
pub async fn missing(
    client: &Client,
    lease_namespace: &str,
    needs: PermissionNeeds,
    metrics: &Metrics,
) -> Missing {
    let PermissionNeeds { elects, kinds } = needs;
    let mut missing = Missing::default();
    for permission in needed(elects) {
        let is_of_native =
            permission.group == "apps" && permission.resource.starts_with("daemonsets");
        if is_of_native && !kinds.native {
            continue;
        }
        if !is_granted(client, lease_namespace, permission).await {
            note(permission, BASE_RBAC, metrics);
            missing.always.push(permission);
        }
    }
    let is_of_election = |permission: &Permission| {
        [PermissionScope::LeaseNamespace, PermissionScope::Lease].contains(&permission.scope)
    };
    if missing.always.iter().any(is_of_election) {
        warn!(
            namespace = lease_namespace,
            "The Lease is looked for in this namespace; the manifests grant it where they put the controller, which --lease-namespace names"
        );
    }
    // A cluster without the kind needs none of it.
    if kinds.advanced && server::serves_advanced(client).await {
        for permission in ADVANCED {
            if !is_granted(client, lease_namespace, permission).await {
                note(permission, ADVANCED_RBAC, metrics);
                missing.advanced.push(permission);
            }
        }
    }
    let mut ungranted = Vec::new();
    for component in COMPONENTS {
        let mut lacks = Vec::new();
        for permission in component.permissions.iter().copied() {
            if !is_granted(client, lease_namespace, permission).await {
                lacks.push(permission);
            }
        }
        if !lacks.is_empty() {
            ungranted.push((component, lacks));
        }
    }
    // Without that right the list would never be answered, and nothing be reported.
    let may_list = !is_among(&missing.always, "list", "daemonsets");
    if !ungranted.is_empty() && may_list {
        let (keys, index) = native_sets(client).await;
        for (component, lacks) in ungranted {
            let needs = |key: &&SetKey| {
                let reading = index.reading(key);
                let strategy = reading.as_deref().and_then(ParsedSettings::usable);
                strategy.is_some_and(|strategy| component.is_for(strategy))
            };
            let users: Vec<SetKey> = keys.iter().filter(needs).cloned().collect();
            if users.is_empty() {
                continue;
            }
            for permission in &lacks {
                note(*permission, component.folder, metrics);
            }
            missing.components.push(MissingComponent {
                component,
                lacks,
                users,
            });
        }
    }
    missing
}

fn note(permission: Permission, apply: &'static str, metrics: &Metrics) {
    let (verb, resource) = (permission.verb, permission.resource_and_group());
    warn!(verb, %resource, apply, "The service account lacks a permission that these manifests grant");
    metrics.permission_missing(verb, &resource, true);
}

/// Where it is told that a request was refused for want of a permission.
#[derive(Clone, Debug)]
pub struct DeniedPermissions(UnboundedSender<DeniedPermission>);

/// A right that a request lacked, and the manifests that grant it.
pub type DeniedPermission = (Permission, &'static str);

impl DeniedPermissions {
    /// Such a place, and what reads it.
    pub fn new() -> (Self, UnboundedReceiver<DeniedPermission>) {
        let (told, heard) = unbounded_channel();
        (Self(told), heard)
    }

    /// Reports that `verb` on `resource` (without its group) was refused.
    pub fn tell(&self, verb: &str, resource: &str) {
        let apply = granted_by(verb, resource, SetKind::Native, None);
        self.tell_write(verb, resource, apply);
    }

    /// Reports the same of a write; `apply`: the manifests that grant it.
    pub fn tell_write(&self, verb: &str, resource: &str, apply: &'static str) {
        let components = COMPONENTS.iter().flat_map(|one| one.permissions);
        let mut known = NEEDED.iter().chain(components).chain(&ADVANCED);
        let meant = known.find(|known| known.is_for(verb, resource));
        if let Some(permission) = meant {
            // Nobody hears it while the process ends.
            let _ended = self.0.send((*permission, apply));
        }
    }
}

/// Asks again for what is missing until it is granted, and for what refused requests tell of from then on: an API server that has
/// just started refuses everybody for a moment. `lost` is told of what is missing since. Costs nothing while nothing is missing.
pub async fn follow(
    client: &Client,
    lease_namespace: &str,
    missing: &Missing,
    mut told: UnboundedReceiver<DeniedPermission>,
    metrics: &Metrics,
    lost: impl Fn(Permission),
) {
    let components = missing.components.iter().flat_map(|one| &one.lacks);
    let known = missing.always.iter().chain(&missing.advanced);
    let mut lacking: BTreeSet<Permission> = known.chain(components).copied().collect();
    loop {
        let heard = tokio::select! {
            heard = told.recv() => heard,
            () = sleep(ASK_AGAIN), if !lacking.is_empty() => {
                for permission in lacking.clone() {
                    if is_granted(client, lease_namespace, permission).await {
                        let (verb, resource) = (permission.verb, permission.resource_and_group());
                        info!(verb, %resource, "The service account has a permission that it lacked");
                        metrics.permission_missing(verb, &resource, false);
                        lacking.remove(&permission);
                    }
                }
                continue;
            }
        };
        let Some((permission, apply)) = heard else {
            return;
        };
        if !lacking.contains(&permission) && !is_granted(client, lease_namespace, permission).await
        {
            lacking.insert(permission);
            note(permission, apply, metrics);
            lost(permission);
        }
    }
}

async fn is_granted(client: &Client, lease_namespace: &str, permission: Permission) -> bool {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let review = permission.review(lease_namespace);
    let ask = || {
        within(WRITE_DEADLINE, async {
            api.create(&PostParams::default(), &review).await
        })
    };
    let answer = until_answered(ask).await;
    answer.status.is_some_and(|status| status.allowed)
}

/// Native DaemonSets with their settings, at this moment. A missing right of a DaemonSet that gets a setting later is reported when it
/// is used.
async fn native_sets(client: &Client) -> (Vec<SetKey>, Index) {
    let list = || async {
        let mut index = Index::default();
        let apply = |set: DaemonSet| drop(index.apply_set(&set));
        list_each(client, None, "", apply).await?;
        Ok(index)
    };
    let index = until_answered(list).await;
    (index.keys().cloned().collect(), index)
}

/// The first answer.
async fn until_answered<T, F: Future<Output = Result<T, CallError>>>(call: impl Fn() -> F) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => debug!(%error, "Cannot ask for permissions yet"),
        }
        sleep(PAUSE).await;
    }
}

/// What is needed, with or without an election.
pub fn needed(elects: bool) -> Vec<Permission> {
    let mut needed: Vec<Permission> = NEEDED.to_vec();
    if elects {
        needed.extend(NEEDED_FOR_ELECTION);
    } else {
        needed.retain(|permission| permission.scope == PermissionScope::Cluster);
    }
    needed
}

/// One Warning Event that names them all, and the settings that are in use without what they need.
pub fn report(missing: &Missing, lease_namespace: &str, events: &Events) {
    let mut sentences = Vec::new();
    if !missing.always.is_empty() {
        let names: Vec<String> = missing.always.iter().map(Permission::describe).collect();
        sentences.push(format!(
            "The controller's service account lacks: {}. Grant it: kubectl apply -k {BASE_RBAC}.",
            names.join(", ")
        ));
    }
    if !missing.advanced.is_empty() {
        let names: Vec<String> = missing.advanced.iter().map(Permission::describe).collect();
        sentences.push(format!(
            "The controller's service account lacks: {}, which Advanced DaemonSets need. Grant it: kubectl apply -k {ADVANCED_RBAC}, \
             or run with --controllers native.",
            names.join(", ")
        ));
    }
    for MissingComponent {
        component,
        lacks,
        users,
    } in &missing.components
    {
        let names: Vec<String> = lacks.iter().map(Permission::describe).collect();
        let first = users.first().map(ToString::to_string).unwrap_or_default();
        let more = match users.len() {
            0 | 1 => String::new(),
            users => format!(" and {} more", users - 1),
        };
        sentences.push(format!(
            "The controller's service account lacks: {}, which {} of {first}{more} needs. Grant it: kubectl apply -k {}.",
            names.join(", "),
            component.feature,
            component.folder
        ));
    }
    if !sentences.is_empty() {
        let about = Subject::lease(lease_namespace);
        let note = sentences.join(" ");
        events.publish(&about, Severity::Warning, PERMISSION_MISSING, &note);
    }
}

/// A Warning Event that a list or a watch is refused that was not when the controller started. Of a write that is refused its
/// DaemonSet has one.
pub fn report_lost(permission: Permission, lease_namespace: &str, events: &Events) {
    if ["list", "watch"].contains(&permission.verb) {
        let lacks = permission.describe();
        let apply = match permission.group {
            KRUISE_GROUP => ADVANCED_RBAC,
            _ => BASE_RBAC,
        };
        let note = format!(
            "The controller's service account lacks: {lacks}. What it knew before may be old by now. Grant it: kubectl apply -k {apply}."
        );
        let about = Subject::lease(lease_namespace);
        events.publish(&about, Severity::Warning, PERMISSION_MISSING, &note);
    }
}

#[cfg(test)]
mod tests;
