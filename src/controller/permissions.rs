//! Permissions of the controller. They are checked at the start, so that a missing one is found before a rollout needs it.
//!
//! After a write is rejected for a missing permission, that permission is checked again until it is granted.
//!
//! [`NEEDED`] lists the rights of `manifests/base/rbac`. [`COMPONENTS`] and [`ADVANCED`] list those of `manifests/components`,
//! which only some settings need. Tests compare them with the manifests in both directions.

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

/// Reason of Events about missing permissions.
pub const PERMISSION_MISSING: &str = "PermissionMissing";
/// Pause before a permission check that got no response is repeated.
const PAUSE: Duration = Duration::from_secs(10);
/// Interval between checks of a missing permission.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// Rights of every installation: enough to delete and evict pods and to write status.
pub const NEEDED: [Permission; 20] = [
    // DaemonSets to roll out, and their conditions, which tools wait for.
    cluster("apps", "daemonsets", "get"),
    cluster("apps", "daemonsets", "list"),
    cluster("apps", "daemonsets", "watch"),
    cluster("apps", "daemonsets/status", "patch"),
    // Revisions of a DaemonSet, to find the current one.
    cluster("apps", "controllerrevisions", "get"),
    cluster("apps", "controllerrevisions", "list"),
    cluster("apps", "controllerrevisions", "watch"),
    // Nodes and their readiness.
    cluster("", "nodes", "list"),
    cluster("", "nodes", "watch"),
    // Pods: the controller deletes outdated ones, and writes `PodNeedUpgrade` and readiness gates to their status.
    cluster("", "pods", "get"),
    cluster("", "pods", "list"),
    cluster("", "pods", "watch"),
    cluster("", "pods", "delete"),
    // Eviction replaces deletion if `disruption` is set.
    cluster("", "pods/eviction", "create"),
    cluster("", "pods/status", "patch"),
    cluster("events.k8s.io", "events", "create"),
    // Jobs that pull images before an update.
    cluster("batch", "jobs", "list"),
    cluster("batch", "jobs", "watch"),
    // Events that say why pods cannot be created or don't become Ready.
    cluster("", "events", "list"),
    // `create` on all Leases of the namespace. A rule with a resource name can't grant `create`, because the object has no name
    // yet.
    lease(PermissionScope::LeaseNamespace, "create"),
];

/// Additional rights if replicas elect a leader.
pub const NEEDED_FOR_ELECTION: [Permission; 3] = [
    lease(PermissionScope::Lease, "get"),
    lease(PermissionScope::Lease, "update"),
    // Finds other installations of yurt-ds that serve the same DaemonSets.
    lease(PermissionScope::AnyLease, "list"),
];

/// Additional rights for one feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// Added rights.
    pub permissions: &'static [Permission],
    /// Name of the feature, for messages.
    pub feature: &'static str,
    /// Folder with the manifests that grant the rights.
    pub folder: &'static str,
}

/// Rights for in-place updates, which patch the running pod.
pub const IN_PLACE: Component = Component {
    permissions: &[cluster("", "pods", "patch")],
    feature: "in-place updates",
    folder: IN_PLACE_RBAC,
};

/// Rights for preDelete hooks. A hook is a label or finalizer that another program removes before a pod may be deleted. Until then,
/// the controller marks the pod with a label.
pub const LIFECYCLE: Component = Component {
    permissions: &[cluster("", "pods", "patch")],
    feature: "lifecycle",
    folder: LIFECYCLE_RBAC,
};

/// Rights for `max-surge`: the controller creates the new pod and transfers it to the DaemonSet.
pub const MAX_SURGE: Component = Component {
    permissions: &[cluster("", "pods", "create"), cluster("", "pods", "patch")],
    feature: "max-surge",
    folder: MAX_SURGE_RBAC,
};

/// Rights for image pre-pulls, which run as Jobs on the nodes.
pub const PRE_PULL: Component = Component {
    permissions: &[
        cluster("batch", "jobs", "create"),
        cluster("batch", "jobs", "delete"),
    ],
    feature: "image pre-pulls",
    folder: PRE_PULL_RBAC,
};

/// Components for settings of native DaemonSets.
pub const COMPONENTS: [Component; 4] = [IN_PLACE, LIFECYCLE, MAX_SURGE, PRE_PULL];

/// Additional rights for Advanced DaemonSets: the controller writes their pods, revisions and status.
pub const ADVANCED: [Permission; 11] = [
    cluster(KRUISE_GROUP, "daemonsets", "get"),
    cluster(KRUISE_GROUP, "daemonsets", "list"),
    cluster(KRUISE_GROUP, "daemonsets", "watch"),
    cluster(KRUISE_GROUP, "daemonsets/status", "patch"),
    // Required by API servers that restrict owner references with `blockOwnerDeletion` (OwnerReferencesPermissionEnforcement).
    cluster(KRUISE_GROUP, "daemonsets/finalizers", "update"),
    cluster("apps", "controllerrevisions", "create"),
    cluster("apps", "controllerrevisions", "patch"),
    cluster("apps", "controllerrevisions", "delete"),
    cluster("", "pods", "create"),
    cluster("", "pods", "patch"),
    // Checks whether Kruise's manager runs.
    lease(PermissionScope::KruiseLease, "get"),
];

impl Component {
    /// Returns true if a DaemonSet with this strategy needs the component.
    ///
    /// Node owners can request image pulls without any setting. Such a request fails if the right is missing.
    pub fn is_for(&self, strategy: &Strategy) -> bool {
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

/// Returns the manifests that grant `verb` on `resource` for a DaemonSet of this kind.
///
/// `write` is the rollout step that the request belongs to, if any. The step selects the component, because several components
/// grant the same right.
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

/// Rights that the service account lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Missing rights that every installation needs.
    always: Vec<Permission>,
    /// Missing rights for Advanced DaemonSets.
    advanced: Vec<Permission>,
    /// Components that DaemonSets use, but whose rights are not granted.
    components: Vec<MissingComponent>,
}

/// Component that DaemonSets use, but whose rights are not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MissingComponent {
    component: Component,
    lacks: Vec<Permission>,
    /// DaemonSets that use the component.
    users: Vec<SetKey>,
}

impl Missing {
    /// Returns true if a missing right keeps `/ready` false. Such a replica never takes part in the leader election.
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
    /// True if replicas elect a leader.
    pub elects: bool,
    /// Kinds of DaemonSets that are rolled out.
    pub kinds: Kinds,
}

impl PermissionNeeds {
    /// Returns the permissions that the base role has to grant to a controller with these settings.
    pub fn base(self) -> Vec<Permission> {
        let is_of_native = |permission: &Permission| {
            permission.group == "apps" && permission.resource.starts_with("daemonsets")
        };
        let mut base = needed(self.elects);
        base.retain(|permission| self.kinds.native || !is_of_native(permission));
        base
    }
}

/// Checks every permission, repeating each check until the API server responds. Logs and counts the missing rights.
///
/// A right that only some settings need counts as missing only if a DaemonSet has such a setting.
pub async fn missing(
    client: &Client,
    lease_namespace: &str,
    needs: PermissionNeeds,
    metrics: &Metrics,
) -> Missing {
    let kinds = needs.kinds;
    let mut missing = Missing::default();
    for permission in needs.base() {
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
            "The service account lacks permissions for the Lease in this namespace. The manifests grant them in the \
             controller's namespace; set --lease-namespace to it"
        );
    }
    // A cluster without Advanced DaemonSets needs none of these rights.
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
    // Without `list` on DaemonSets, `native_sets` would wait forever, and the other missing rights would never be reported.
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
    warn!(verb, %resource, apply, "The service account lacks a permission; these manifests grant it");
    metrics.permission_missing(verb, &resource, true);
}

/// Queue of requests that were denied for a missing permission.
#[derive(Clone, Debug)]
pub struct DeniedPermissions(UnboundedSender<DeniedPermission>);

/// Right that a request lacked, and the manifests that grant it.
pub type DeniedPermission = (Permission, &'static str);

impl DeniedPermissions {
    /// Creates the queue and its receiver.
    pub fn new() -> (Self, UnboundedReceiver<DeniedPermission>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// Reports that a request with `verb` on `resource` (without its group) was denied.
    pub fn report(&self, verb: &str, resource: &str) {
        let apply = granted_by(verb, resource, SetKind::Native, None);
        self.report_write(verb, resource, apply);
    }

    /// Reports that a write was denied. `apply` names the manifests that grant the right.
    pub fn report_write(&self, verb: &str, resource: &str, apply: &'static str) {
        let components = COMPONENTS.iter().flat_map(|one| one.permissions);
        let mut known = NEEDED.iter().chain(components).chain(&ADVANCED);
        let meant = known.find(|known| known.is_for(verb, resource));
        if let Some(permission) = meant {
            // Sending fails only during shutdown, when the receiver is gone.
            let _ended = self.0.send((*permission, apply));
        }
    }
}

/// Checks missing permissions again until they are granted. Also checks rights that denied requests report later.
///
/// An API server that has just started denies all requests for a moment. So a reported right is checked before it counts as
/// missing. Calls `lost` for each newly missing permission. Sends no requests unless a right is missing or reported.
pub async fn follow(
    client: &Client,
    lease_namespace: &str,
    missing: &Missing,
    mut denied: UnboundedReceiver<DeniedPermission>,
    metrics: &Metrics,
    lost: impl Fn(Permission),
) {
    let components = missing.components.iter().flat_map(|one| &one.lacks);
    let known = missing.always.iter().chain(&missing.advanced);
    let mut lacking: BTreeSet<Permission> = known.chain(components).copied().collect();
    loop {
        let next = tokio::select! {
            next = denied.recv() => next,
            () = sleep(ASK_AGAIN), if !lacking.is_empty() => {
                for permission in lacking.clone() {
                    if is_granted(client, lease_namespace, permission).await {
                        let (verb, resource) = (permission.verb, permission.resource_and_group());
                        info!(verb, %resource, "A missing permission was granted");
                        metrics.permission_missing(verb, &resource, false);
                        lacking.remove(&permission);
                    }
                }
                continue;
            }
        };
        let Some((permission, apply)) = next else {
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

/// Returns the native DaemonSets with their current settings.
///
/// Settings that are added later are not considered. A right that they need is reported when a request is denied.
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

/// Repeats `call` until the API server responds. Returns that response.
async fn until_answered<T, F: Future<Output = Result<T, CallError>>>(call: impl Fn() -> F) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => debug!(%error, "Cannot check the permissions yet"),
        }
        sleep(PAUSE).await;
    }
}

/// Returns the permissions that every installation needs, with or without leader election.
pub fn needed(elects: bool) -> Vec<Permission> {
    let mut needed: Vec<Permission> = NEEDED.to_vec();
    if elects {
        needed.extend(NEEDED_FOR_ELECTION);
    } else {
        needed.retain(|permission| permission.scope == PermissionScope::Cluster);
    }
    needed
}

/// Publishes one Warning Event with all missing rights and the settings that need them.
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
            "The controller's service account lacks: {}. Needed for {} of {first}{more}. Grant it: kubectl apply -k {}.",
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

/// Publishes a Warning Event about a `list` or `watch` right that was lost after the start.
///
/// A denied write is reported in an Event about its DaemonSet instead.
pub fn report_lost(permission: Permission, lease_namespace: &str, events: &Events) {
    if ["list", "watch"].contains(&permission.verb) {
        let lacks = permission.describe();
        let apply = match permission.group {
            KRUISE_GROUP => ADVANCED_RBAC,
            _ => BASE_RBAC,
        };
        let note = format!(
            "The controller's service account lacks: {lacks}. The controller's data may be outdated. Grant it: kubectl apply \
             -k {apply}."
        );
        let about = Subject::lease(lease_namespace);
        events.publish(&about, Severity::Warning, PERMISSION_MISSING, &note);
    }
}

#[cfg(test)]
mod tests;
