//! What the controller may do, asked at the start instead of found out in the middle of a rollout.
//!
//! [`NEEDED`] is the one list: the check below walks it, and a test compares it with `manifests/base/rbac`, both ways.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::events::{Events, Severity, Subject};
use super::metrics::Metrics;
use crate::client::{CallError, WRITE_DEADLINE, within};
use crate::core::names;

/// Reason of the Event about it.
pub const PERMISSION_MISSING: &str = "PermissionMissing";
/// How long is waited before a check that got no answer is tried again.
const PAUSE: Duration = Duration::from_secs(10);

/// Where a permission is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// In all namespaces.
    Cluster,
    /// In the namespace of the Lease; any object.
    LeaseNamespace,
    /// The Lease itself.
    Lease,
}

/// One verb on one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// Where.
    pub scope: Scope,
    /// API group, empty for the core group.
    pub group: &'static str,
    /// Resource, or resource/subresource.
    pub resource: &'static str,
    /// As in a role.
    pub verb: &'static str,
}

/// A permission in all namespaces.
pub(crate) const fn cluster(
    group: &'static str,
    resource: &'static str,
    verb: &'static str,
) -> Permission {
    Permission {
        scope: Scope::Cluster,
        group,
        resource,
        verb,
    }
}

const fn lease(scope: Scope, verb: &'static str) -> Permission {
    Permission {
        scope,
        group: "coordination.k8s.io",
        resource: "leases",
        verb,
    }
}

/// Everything the controller asks of the API server, and nothing else.
pub const NEEDED: [Permission; 24] = [
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
    // With max-surge the new pod is made here, and handed over to the DaemonSet.
    cluster("", "pods", "create"),
    cluster("", "pods", "patch"),
    cluster("", "pods/status", "patch"),
    cluster("events.k8s.io", "events", "create"),
    // Image pre-pull: a Job on the node, and why it has no pod if it gets none.
    cluster("batch", "jobs", "create"),
    cluster("batch", "jobs", "list"),
    cluster("batch", "jobs", "watch"),
    cluster("batch", "jobs", "delete"),
    cluster("", "events", "list"),
    // A name cannot limit create: the object is not there yet.
    lease(Scope::LeaseNamespace, "create"),
];

/// What the election adds.
pub const NEEDED_FOR_ELECTION: [Permission; 2] =
    [lease(Scope::Lease, "get"), lease(Scope::Lease, "update")];

impl Permission {
    /// Resource and group as kubectl writes them.
    pub fn resource_and_group(&self) -> String {
        match self.group {
            "" => self.resource.to_owned(),
            group => format!("{}.{group}", self.resource),
        }
    }

    fn review(&self, lease_namespace: &str) -> SelfSubjectAccessReview {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (self.resource, None),
        };
        let namespace = (self.scope != Scope::Cluster).then(|| lease_namespace.to_owned());
        let name = (self.scope == Scope::Lease).then(|| names::LEASE.to_owned());
        SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some(self.group.to_owned()),
                    resource: Some(resource.to_owned()),
                    subresource,
                    verb: Some(self.verb.to_owned()),
                    namespace,
                    name,
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        }
    }
}

/// Asks for every permission, each until there is an answer; logs and counts what is missing.
pub async fn missing(
    client: &Client,
    lease_namespace: &str,
    elects: bool,
    metrics: &Metrics,
) -> Vec<Permission> {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut missing = Vec::new();
    for permission in needed(elects) {
        let allowed = loop {
            let review = permission.review(lease_namespace);
            match ask(&api, &review).await {
                Ok(allowed) => break allowed,
                Err(error) => debug!(%error, "Cannot ask for permissions yet"),
            }
            sleep(PAUSE).await;
        };
        let resource = permission.resource_and_group();
        if !allowed {
            let verb = permission.verb;
            warn!(verb, %resource, "The service account lacks a permission");
            metrics.permission_missing(verb, &resource, true);
            missing.push(permission);
        }
    }
    missing
}

/// What is needed, with or without an election.
pub fn needed(elects: bool) -> Vec<Permission> {
    let mut needed: Vec<Permission> = NEEDED.to_vec();
    if elects {
        needed.extend(NEEDED_FOR_ELECTION);
    } else {
        needed.retain(|permission| permission.scope == Scope::Cluster);
    }
    needed
}

async fn ask(
    api: &Api<SelfSubjectAccessReview>,
    review: &SelfSubjectAccessReview,
) -> Result<bool, CallError> {
    let answer = within(WRITE_DEADLINE, api.create(&PostParams::default(), review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// One Warning Event that names them all.
pub fn report(missing: &[Permission], lease_namespace: &str, events: &Events) {
    if missing.is_empty() {
        return;
    }
    let names: Vec<String> = missing
        .iter()
        .map(|permission| format!("{} {}", permission.verb, permission.resource_and_group()))
        .collect();
    let note = format!(
        "The controller's service account lacks: {}. Apply manifests/base/rbac of this version.",
        names.join(", ")
    );
    let about = Subject::lease(lease_namespace);
    events.publish(&about, Severity::Warning, PERMISSION_MISSING, &note);
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::granted;
