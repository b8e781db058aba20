//! Checks of the admission policies that limit what a stolen token can do. They are an option, so their absence is a warning.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::Value;

use super::finding::{CheckId, Finding};
use super::reader::{Unread, few};
use crate::ctl::access::Access;
use crate::ctl::list::list_where_served;
use crate::k8s::permission::ServiceAccountName;

/// Suffixes of the names of the policies for the controller.
const OF_CONTROLLER: [&str; 5] = [
    "-controller-pods",
    "-controller-managed",
    "-controller-jobs",
    "-controller-revisions",
    "-controller-status",
];
/// Suffixes of the names of the policies for the agents.
const OF_AGENT: [&str; 1] = ["-ota-server"];

/// Policies of the cluster, and the policies that are bound.
pub(super) struct AdmissionPolicies {
    policies: Vec<DynamicObject>,
    /// Names of the policies with a binding that denies requests.
    bound: Vec<String>,
}

impl AdmissionPolicies {
    /// Lists the policies and their bindings. Returns `None` if the cluster does not serve them.
    ///
    /// # Errors
    /// Fails if they cannot be listed.
    pub(super) async fn read(access: &Access) -> Result<Option<Self>, Unread> {
        let (policies, bindings) = tokio::join!(
            list_kind(
                access,
                "ValidatingAdmissionPolicy",
                "validatingadmissionpolicies"
            ),
            list_kind(
                access,
                "ValidatingAdmissionPolicyBinding",
                "validatingadmissionpolicybindings"
            )
        );
        let (Some(policies), Some(bindings)) = (policies?, bindings?) else {
            return Ok(None);
        };
        let denies = |spec: &Value| {
            let actions = spec["validationActions"].as_array();
            actions.is_some_and(|actions| actions.iter().any(|action| action == "Deny"))
        };
        let bound = bindings.iter().filter_map(|binding| {
            let spec = &binding.data["spec"];
            let name = spec["policyName"].as_str()?;
            denies(spec).then(|| name.to_owned())
        });
        Ok(Some(Self {
            policies,
            bound: bound.collect(),
        }))
    }

    /// Returns true if no policy has a name with one of the suffixes `ends`.
    fn has_none(&self, ends: &[&str]) -> bool {
        let is_of = |name: &str| ends.iter().any(|end| name.ends_with(end));
        !self.policies.iter().any(|policy| is_of(&name_of(policy)))
    }

    /// Returns a description of each policy that has no effect, by the suffixes of their names: it is missing, is for another
    /// service account, or has no binding that denies requests.
    fn lacking(&self, ends: &[&str], account: Option<&ServiceAccountName>) -> Vec<String> {
        let lack = |end: &&str| {
            let named = |policy: &&DynamicObject| name_of(policy).ends_with(*end);
            let named: Vec<&DynamicObject> = self.policies.iter().filter(named).collect();
            let what = format!("yurt-ds{end}");
            if named.is_empty() {
                return Some(format!("{what} is missing"));
            }
            let applies = |policy: &&DynamicObject| {
                account.is_none_or(|account| names(&policy.data, &account.user()))
            };
            let Some(policy) = named.into_iter().find(applies) else {
                return Some(format!("{what} names another service account"));
            };
            let name = name_of(policy);
            (!self.bound.contains(&name)).then(|| format!("{name} has no binding that denies"))
        };
        ends.iter().filter_map(lack).collect()
    }
}

/// Names, account and folder of the policies for one component.
struct PolicyTarget<'a> {
    id: CheckId,
    ends: &'a [&'a str],
    account: Option<&'a ServiceAccountName>,
    component: &'static str,
    of: &'static str,
}

/// Returns the findings about the policies. `has_agents` is false if the agents are not installed.
pub(super) fn findings(
    found: &Result<Option<AdmissionPolicies>, Unread>,
    controller: Option<&ServiceAccountName>,
    has_agents: bool,
) -> Vec<Finding> {
    let of_controller = PolicyTarget {
        id: CheckId::PolicyController,
        ends: &OF_CONTROLLER,
        account: controller,
        component: "controller-bound",
        of: "the controller",
    };
    let of_agent = PolicyTarget {
        id: CheckId::PolicyAgent,
        ends: &OF_AGENT,
        account: None,
        component: "agent-bound-to-node",
        of: "the agents",
    };
    let agent = if has_agents {
        finding(found, &of_agent)
    } else {
        Finding::ok(
            CheckId::PolicyAgent,
            "Not needed: the agents are not installed.",
        )
    };
    vec![finding(found, &of_controller), agent]
}

fn finding(
    found: &Result<Option<AdmissionPolicies>, Unread>,
    target: &PolicyTarget<'_>,
) -> Finding {
    let (id, of) = (target.id, target.of);
    let policies = match found {
        Ok(Some(policies)) => policies,
        Ok(None) => {
            let message =
                "This version of Kubernetes has no admission policies: they need 1.30 or newer.";
            return Finding::ok(id, message);
        }
        Err(unread) => return Finding::skipped(id, &*unread.0),
    };
    let lacking = policies.lacking(target.ends, target.account);
    if lacking.is_empty() {
        return Finding::ok(id, format!("Admission policies limit the writes of {of}."));
    }
    let why = if policies.has_none(target.ends) {
        "no admission policy is installed for its account".to_owned()
    } else {
        few(&lacking)
    };
    Finding::warning(
        id,
        format!("Only RBAC limits a stolen token of {of}: {why}."),
        format!("kubectl apply -k manifests/components/{}", target.component),
    )
}

fn name_of(object: &DynamicObject) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

/// Returns true if a match condition of the policy names the user.
fn names(policy: &Value, user: &str) -> bool {
    let conditions = policy["spec"]["matchConditions"].as_array();
    let mut expressions = conditions
        .into_iter()
        .flatten()
        .filter_map(|condition| condition["expression"].as_str());
    let quoted = format!("\"{user}\"");
    expressions.any(|expression| expression.contains(&quoted))
}

async fn list_kind(
    access: &Access,
    kind: &str,
    plural: &str,
) -> Result<Option<Vec<DynamicObject>>, Unread> {
    let doing = format!("list {plural}");
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    let api: Api<DynamicObject> = Api::all_with(access.client.clone(), &resource);
    let listed = list_where_served(access, &doing, &api, ListParams::default(), false).await;
    let listed = listed.map_err(|error| Unread::from_cli(&doing, &error))?;
    Ok(listed.map(|(objects, _)| objects))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names of the policies in a file of the manifests.
    fn policies_in(file: &str) -> Vec<String> {
        let documents = file.split("\n---\n");
        let objects = documents.map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
        objects
            .filter(|object| object["kind"] == "ValidatingAdmissionPolicy")
            .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn the_expected_policies_match_the_manifests() {
        let of_controller = [
            include_str!("../../../manifests/components/controller-bound/pods.yaml"),
            include_str!("../../../manifests/components/controller-bound/managed.yaml"),
            include_str!("../../../manifests/components/controller-bound/jobs.yaml"),
            include_str!("../../../manifests/components/controller-bound/revisions.yaml"),
            include_str!("../../../manifests/components/controller-bound/status.yaml"),
        ];
        let names: Vec<String> = of_controller.into_iter().flat_map(policies_in).collect();
        assert_eq!(names, OF_CONTROLLER.map(|end| format!("yurt-ds{end}")));
        let agent = include_str!("../../../manifests/components/agent-bound-to-node/policy.yaml");
        assert_eq!(
            policies_in(agent),
            OF_AGENT.map(|end| format!("yurt-ds{end}"))
        );
    }
}
