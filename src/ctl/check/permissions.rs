//! Checks of the controller's rights, by one SubjectAccessReview per right. The controller checks itself with the same list of
//! rights.

use std::collections::BTreeSet;

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::PostParams;

use super::daemonsets::ManagedDaemonSets;
use super::finding::{CheckId, Finding};
use super::reader::{Unread, few};
use crate::controller::Kinds;
use crate::controller::permissions::{
    ADVANCED, COMPONENTS, Component, IN_PLACE, LIFECYCLE, MAX_SURGE, PermissionNeeds,
};
use crate::core::SetKind;
use crate::core::names::{ADVANCED_RBAC, BASE_RBAC};
use crate::ctl::access::Access;
use crate::k8s::permission::{Permission, ServiceAccountName};

/// Number of concurrent reviews.
const PARALLEL: usize = 8;

/// All checks of this file.
const ALL: [CheckId; 6] = [
    CheckId::PermissionsBase,
    CheckId::PermissionsInPlace,
    CheckId::PermissionsLifecycle,
    CheckId::PermissionsMaxSurge,
    CheckId::PermissionsPrePull,
    CheckId::PermissionsAdvanced,
];

/// Controller whose rights are checked.
pub(super) struct ReviewedController {
    /// Service account of its pods.
    pub(super) account: ServiceAccountName,
    /// Namespace of its Lease.
    pub(super) lease_namespace: String,
    /// Kinds of DaemonSets that it serves.
    pub(super) kinds: Kinds,
    /// True if the cluster serves Advanced DaemonSets.
    pub(super) is_advanced_served: bool,
}

/// Rights that a service account lacks.
struct LackingRights(BTreeSet<Permission>);

/// Returns the findings for a controller that cannot be reviewed.
pub(super) fn skipped(why: &str) -> Vec<Finding> {
    ALL.map(|id| Finding::skipped(id, why)).to_vec()
}

/// Returns the findings about the rights of a controller. A right for one feature is needed only if a DaemonSet uses the feature.
pub(super) async fn findings(
    access: &Access,
    controller: &ReviewedController,
    sets: &Result<ManagedDaemonSets, Unread>,
) -> Vec<Finding> {
    let lacking = match LackingRights::review(access, controller).await {
        Ok(lacking) => lacking,
        Err(unread) => return skipped(&unread.0),
    };
    let mut findings = vec![lacking.base(controller)];
    findings.extend(COMPONENTS.map(|component| lacking.component(component, sets)));
    findings.push(lacking.advanced(controller));
    findings
}

impl LackingRights {
    async fn review(access: &Access, controller: &ReviewedController) -> Result<Self, Unread> {
        let components = COMPONENTS.iter().flat_map(|one| one.permissions);
        let mut all: BTreeSet<Permission> = components.copied().collect();
        all.extend(needs(controller).base());
        if controller.needs_advanced() {
            all.extend(ADVANCED);
        }
        let all: Vec<Permission> = all.into_iter().collect();
        let mut lacking = BTreeSet::new();
        for some in all.chunks(PARALLEL) {
            let reviews = some.iter().map(|one| is_granted(access, controller, *one));
            for (permission, review) in some.iter().zip(join_all(reviews).await) {
                if !review? {
                    lacking.insert(*permission);
                }
            }
        }
        Ok(Self(lacking))
    }

    /// Returns the names of the given permissions that the account lacks.
    fn among(&self, permissions: &[Permission]) -> Vec<String> {
        let lacking = permissions.iter().filter(|one| self.0.contains(one));
        lacking.map(Permission::describe).collect()
    }

    fn base(&self, controller: &ReviewedController) -> Finding {
        let id = CheckId::PermissionsBase;
        let lacks = self.among(&needs(controller).base());
        let account = &controller.account;
        if lacks.is_empty() {
            return Finding::ok(
                id,
                format!("The service account {account} has all rights of the base."),
            );
        }
        Finding::failed(
            id,
            format!("The service account {account} lacks: {}.", few(&lacks)),
            format!("kubectl apply -k {BASE_RBAC}"),
        )
    }

    fn component(&self, component: Component, sets: &Result<ManagedDaemonSets, Unread>) -> Finding {
        let (id, feature) = (check_of(component), component.feature);
        let lacks = self.among(component.permissions);
        if lacks.is_empty() {
            return Finding::ok(id, format!("The rights for {feature} are granted."));
        }
        let users = match sets {
            Ok(sets) => sets.users_of(component),
            Err(unread) => {
                let why = format!("The rights for {feature} are not granted. {}", unread.0);
                return Finding::skipped(id, why);
            }
        };
        if users.is_empty() {
            return Finding::ok(id, format!("Not enabled: no DaemonSet uses {feature}."));
        }
        Finding::failed(
            id,
            format!(
                "The controller lacks: {}, needed for {feature} of {}.",
                few(&lacks),
                few(&users)
            ),
            format!("kubectl apply -k {}", component.folder),
        )
    }

    fn advanced(&self, controller: &ReviewedController) -> Finding {
        let id = CheckId::PermissionsAdvanced;
        if !controller.needs_advanced() {
            let why = if controller.is_advanced_served {
                "The controller does not serve Advanced DaemonSets."
            } else {
                "The cluster has no Advanced DaemonSets."
            };
            return Finding::ok(id, format!("Not needed. {why}"));
        }
        let lacks = self.among(&ADVANCED);
        if lacks.is_empty() {
            return Finding::ok(id, "The rights for Advanced DaemonSets are granted.");
        }
        Finding::failed(
            id,
            format!(
                "The controller lacks: {}, needed for Advanced DaemonSets.",
                few(&lacks)
            ),
            format!("kubectl apply -k {ADVANCED_RBAC}"),
        )
    }
}

impl ReviewedController {
    fn needs_advanced(&self) -> bool {
        self.is_advanced_served && self.kinds.contains(SetKind::Advanced)
    }
}

fn needs(controller: &ReviewedController) -> PermissionNeeds {
    PermissionNeeds {
        elects: true,
        kinds: controller.kinds,
    }
}

fn check_of(component: Component) -> CheckId {
    match component {
        IN_PLACE => CheckId::PermissionsInPlace,
        LIFECYCLE => CheckId::PermissionsLifecycle,
        MAX_SURGE => CheckId::PermissionsMaxSurge,
        _ => CheckId::PermissionsPrePull,
    }
}

async fn is_granted(
    access: &Access,
    controller: &ReviewedController,
    permission: Permission,
) -> Result<bool, Unread> {
    let doing = "create subjectaccessreviews, which tell the rights of the controller (needed: ClusterRole system:auth-delegator)";
    let api: Api<SubjectAccessReview> = Api::all(access.client.clone());
    let review = permission.review_of(&controller.account, &controller.lease_namespace);
    let created = async { api.create(&PostParams::default(), &review).await };
    match access.wait(created).await {
        Ok(answer) => Ok(answer.status.is_some_and(|status| status.allowed)),
        Err(error) => Err(Unread::new(doing, &error)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_component_has_its_own_check() {
        let found: BTreeMap<&str, CheckId> = COMPONENTS
            .map(|component| (component.feature, check_of(component)))
            .into();
        let distinct: BTreeSet<CheckId> = found.values().copied().collect();
        assert_eq!(distinct.len(), COMPONENTS.len(), "{found:?}");
    }
}
