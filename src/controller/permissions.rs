//! What the controller may do, asked at the start instead of found out in the middle of a rollout; and, where a write was refused
//! for want of it, until it is granted.
//!
//! [`NEEDED`] is the one list: the check below walks it, and a test compares it with `manifests/base/rbac`, both ways. [`EXTRA`] is
//! what only some settings need, compared with `manifests/components`: whoever may make pods can run anything anywhere.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::events::{Events, Severity, Subject};
use super::kinds::Kinds;
use super::metrics::Metrics;
use super::server;
use crate::core::names::{BASE_RBAC, KRUISE_GROUP, MAX_SURGE_RBAC};
use crate::core::{Reading, RollingUpdateType, Strategy};
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

/// Everything the controller asks of the API server, and nothing else.
pub const NEEDED: [Permission; 22] = [
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
    // The pods: deleting or patching one is how a node is updated, the status carries PodNeedUpgrade.
    cluster("", "pods", "get"),
    cluster("", "pods", "list"),
    cluster("", "pods", "watch"),
    cluster("", "pods", "delete"),
    // With disruption: evict, instead of deleting it.
    cluster("", "pods/eviction", "create"),
    cluster("", "pods", "patch"),
    cluster("", "pods/status", "patch"),
    cluster("events.k8s.io", "events", "create"),
    // Image pre-pull: the Jobs on nodes.
    cluster("batch", "jobs", "list"),
    cluster("batch", "jobs", "watch"),
    cluster("batch", "jobs", "delete"),
    // Why pods cannot be made, or do not become Ready.
    cluster("", "events", "list"),
    // A name cannot limit create: the object is not there yet.
    lease(PermissionScope::LeaseNamespace, "create"),
];

/// What the election adds.
pub const NEEDED_FOR_ELECTION: [Permission; 2] = [
    lease(PermissionScope::Lease, "get"),
    lease(PermissionScope::Lease, "update"),
];

/// The manifests that grant what is always needed.
pub const BASE: &str = BASE_RBAC;

/// A permission that only some settings need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionalPermission {
    /// What they need.
    pub permission: Permission,
    /// The settings.
    pub setting: &'static str,
    /// The manifests that grant it.
    pub component: &'static str,
}

/// With max-surge the new pod is made here, and handed over to the DaemonSet.
pub const SURGE: OptionalPermission = OptionalPermission {
    permission: cluster("", "pods", "create"),
    setting: "max-surge",
    component: MAX_SURGE_RBAC,
};

/// Image pre-pull: a Job on the node.
pub const PRE_PULL: OptionalPermission = OptionalPermission {
    permission: cluster("batch", "jobs", "create"),
    setting: "pulling images ahead",
    component: "manifests/components/pre-pull",
};

/// What Advanced DaemonSets add: their pods, revisions and status are made by this controller.
pub const ADVANCED: [Permission; 10] = [
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
    // Whether Kruise's manager runs beside this one.
    lease(PermissionScope::KruiseLease, "get"),
];

/// The manifests that grant it.
pub const ADVANCED_RBAC: &str = "manifests/components/advanced";

/// What settings add.
pub const EXTRA: [OptionalPermission; 2] = [SURGE, PRE_PULL];

impl OptionalPermission {
    /// Whether a DaemonSet with this strategy needs it. That owners may ask for images is no use of a setting: they are told
    /// what is missing when they do.
    fn is_for(&self, strategy: &Strategy) -> bool {
        match *self {
            SURGE => !strategy.max_surge.is_zero(),
            _ => match strategy.image_predownload_parallelism {
                Some(nodes) => !nodes.is_zero(),
                None => strategy.rolling_update_type == RollingUpdateType::InPlaceIfPossible,
            },
        }
    }
}

/// What grants a permission.
pub fn granted_by(verb: &str, resource: &str) -> &'static str {
    let extra = EXTRA
        .iter()
        .find(|extra| extra.permission.is_for(verb, resource));
    let is_advanced = || {
        let mut base = NEEDED.iter().chain(&NEEDED_FOR_ELECTION);
        let mut added = ADVANCED.iter();
        !base.any(|known| known.is_for(verb, resource))
            && added.any(|known| known.is_for(verb, resource))
    };
    match extra {
        Some(extra) => extra.component,
        None if is_advanced() => ADVANCED_RBAC,
        None => BASE,
    }
}

/// What the service account lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Of what is always needed.
    always: Vec<Permission>,
    /// Of what Advanced DaemonSets need.
    advanced: Vec<Permission>,
    /// Of what settings need, with the DaemonSets that have those settings.
    for_settings: Vec<(OptionalPermission, Vec<SetKey>)>,
}

/// Asks for every permission, each until there is an answer; logs and counts what is missing. What only settings need is missing
/// when a DaemonSet has them.
pub async fn missing(
    client: &Client,
    lease_namespace: &str,
    (elects, kinds): (bool, Kinds),
    metrics: &Metrics,
) -> Missing {
    let mut missing = Missing::default();
    for permission in needed(elects) {
        let is_of_native =
            permission.group == "apps" && permission.resource.starts_with("daemonsets");
        if is_of_native && !kinds.native {
            continue;
        }
        if !is_granted(client, lease_namespace, permission).await {
            note(permission, metrics);
            missing.always.push(permission);
        }
    }
    let is_of_election = |permission: &Permission| permission.scope != PermissionScope::Cluster;
    if missing.always.iter().any(is_of_election) {
        warn!(
            namespace = lease_namespace,
            "The Lease is looked for in this namespace; the manifests grant it where they put the controller, which --lease-namespace names"
        );
    }
    // Nobody needs it where there can be none.
    if kinds.advanced && server::serves_advanced(client).await {
        for permission in ADVANCED {
            if !is_granted(client, lease_namespace, permission).await {
                note(permission, metrics);
                missing.advanced.push(permission);
            }
        }
    }
    for extra in EXTRA {
        if !is_granted(client, lease_namespace, extra.permission).await {
            let users = users(client, extra).await;
            if !users.is_empty() {
                note(extra.permission, metrics);
                missing.for_settings.push((extra, users));
            }
        }
    }
    missing
}

fn note(permission: Permission, metrics: &Metrics) {
    let (verb, resource) = (permission.verb, permission.resource_and_group());
    let apply = granted_by(permission.verb, permission.resource);
    warn!(verb, %resource, apply, "The service account lacks a permission that these manifests grant");
    metrics.permission_missing(verb, &resource, true);
}

/// Where it is told that a request was refused for want of a permission.
#[derive(Clone, Debug)]
pub struct DeniedPermissions(UnboundedSender<Permission>);

impl DeniedPermissions {
    /// Such a place, and what reads it.
    pub fn new() -> (Self, UnboundedReceiver<Permission>) {
        let (told, heard) = unbounded_channel();
        (Self(told), heard)
    }

    /// That `verb` on `resource` (without its group) was refused so.
    pub fn tell(&self, verb: &str, resource: &str) {
        let extra = EXTRA.iter().map(|extra| &extra.permission);
        let mut known = NEEDED.iter().chain(extra).chain(&ADVANCED);
        let meant = known.find(|known| known.is_for(verb, resource));
        if let Some(permission) = meant {
            // Nobody hears it while the process ends.
            let _ended = self.0.send(*permission);
        }
    }
}

/// Asks again for what is missing until it is granted, and for what refused requests tell of from then on: an API server that has
/// just started refuses everybody for a moment. `lost` is told of what is missing since. Costs nothing while nothing is missing.
pub async fn follow(
    client: &Client,
    lease_namespace: &str,
    missing: &Missing,
    mut told: UnboundedReceiver<Permission>,
    metrics: &Metrics,
    lost: impl Fn(Permission),
) {
    let extra = missing
        .for_settings
        .iter()
        .map(|(extra, _)| extra.permission);
    let known = missing.always.iter().chain(&missing.advanced).copied();
    let mut lacking: BTreeSet<Permission> = known.chain(extra).collect();
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
        let Some(permission) = heard else {
            return;
        };
        if !lacking.contains(&permission) && !is_granted(client, lease_namespace, permission).await
        {
            lacking.insert(permission);
            note(permission, metrics);
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

/// The DaemonSets whose settings need it, at this moment. Who gets such a setting later is told when it is used.
async fn users(client: &Client, extra: OptionalPermission) -> Vec<SetKey> {
    let api: Api<DaemonSet> = Api::all(client.clone());
    let params = ListParams::default();
    let list = || within(WRITE_DEADLINE, async { api.list(&params).await });
    let sets = until_answered(list).await.items;
    let mut index = Index::default();
    for set in &sets {
        index.apply_set(set);
    }
    let keys = sets.iter().filter_map(|set| SetKey::of(&set.metadata));
    let needs = |key: &SetKey| match index.reading(key) {
        Some(Reading::Strategy { strategy, .. }) => extra.is_for(strategy),
        _ => false,
    };
    keys.filter(needs).collect()
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
            "The controller's service account lacks: {}. Apply manifests/base/rbac of this version.",
            names.join(", ")
        ));
    }
    if !missing.advanced.is_empty() {
        let names: Vec<String> = missing.advanced.iter().map(Permission::describe).collect();
        sentences.push(format!(
            "The controller's service account lacks: {}, which Advanced DaemonSets need. Apply {ADVANCED_RBAC} of this version, or \
             run with --controllers native.",
            names.join(", ")
        ));
    }
    for (extra, users) in &missing.for_settings {
        let first = users.first().map(ToString::to_string).unwrap_or_default();
        let more = match users.len() {
            0 | 1 => String::new(),
            users => format!(" and {} more", users - 1),
        };
        sentences.push(format!(
            "The controller's service account lacks: {}, which {} needs ({first}{more}). Apply {} of this version.",
            extra.permission.describe(),
            extra.setting,
            extra.component
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
            _ => BASE,
        };
        let note = format!(
            "The controller's service account lacks: {lacks}. What it knew before may be old by now. Apply {apply} of this version."
        );
        let about = Subject::lease(lease_namespace);
        events.publish(&about, Severity::Warning, PERMISSION_MISSING, &note);
    }
}

#[cfg(test)]
mod tests;
