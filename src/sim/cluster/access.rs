//! Access control: everything is allowed except requests that a rule denies.

use serde_json::{Value, json};

use super::faults::{Fault, FaultGuard, Faults, RequestInfo};
use super::object::Object;
use super::status::{ApiFailure, qualified};
use super::write::WriteOutcome;

/// User in error messages: the service account of `manifests/`, so that the messages have the length of real ones.
const USER: &str = "system:serviceaccount:yurt-ds:yurt-ds-controller";

/// Rules that deny requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessRules {
    rules: Faults,
}

impl AccessRules {
    /// Denies requests that match `rule` until the guard is dropped.
    pub(crate) fn deny(
        &self,
        rule: impl Fn(&RequestInfo) -> bool + Send + Sync + 'static,
    ) -> FaultGuard {
        self.rules.add(move |request| {
            if rule(request) {
                Fault::Status(403, None)
            } else {
                Fault::Pass
            }
        })
    }

    fn allows(&self, request: &RequestInfo) -> bool {
        self.rules.of(request) == Fault::Pass
    }

    /// Returns a 403 with RBAC's message for a denied request.
    pub(crate) fn check(&self, request: &RequestInfo) -> Result<(), ApiFailure> {
        if self.allows(request) {
            return Ok(());
        }
        let resource = match request.subresource.as_str() {
            "" => request.resource.clone(),
            sub => format!("{}/{sub}", request.resource),
        };
        let scope = match request.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let why = format!(
            "User {USER:?} cannot {} resource {resource:?} in API group {:?} {scope}",
            request.verb, request.group
        );
        let failure = ApiFailure::forbidden(&request.group, &request.resource, &request.name, &why);
        let name = match request.name.as_str() {
            "" => String::new(),
            name => format!(" {name:?}"),
        };
        let subject = qualified(&request.resource, &request.group);
        let subject = match request.subresource.as_str() {
            "" => subject,
            sub => format!("{subject}/{sub}"),
        };
        Err(failure.saying(format!("{subject}{name} is forbidden: {why}")))
    }

    /// Processes a SelfSubjectAccessReview or a SubjectAccessReview of `kind`: reports if the rules allow the requested access.
    ///
    /// The server has no users: its rules identify a client by the user agent. So the user in a SubjectAccessReview stands for a
    /// user agent. A SelfSubjectAccessReview is about the client that sends it, whose user agent is `asks`.
    pub(crate) fn review(
        &self,
        kind: &str,
        mut review: Value,
        asks: &str,
    ) -> Result<WriteOutcome, ApiFailure> {
        let attributes = &review["spec"]["resourceAttributes"];
        let asked = RequestInfo {
            user_agent: match review.text("/spec/user") {
                "" => asks.to_owned(),
                user => user.to_owned(),
            },
            verb: attributes.text("/verb").to_owned(),
            group: attributes.text("/group").to_owned(),
            resource: attributes.text("/resource").to_owned(),
            subresource: attributes.text("/subresource").to_owned(),
            namespace: attributes.text("/namespace").to_owned(),
            name: attributes.text("/name").to_owned(),
        };
        let non_resource = !review["spec"]["nonResourceAttributes"].is_null();
        if attributes.is_null() && !non_resource {
            return Err(ApiFailure::invalid(
                "authorization.k8s.io",
                kind,
                "",
                &[super::status::StatusCause::invalid(
                    "spec.resourceAttributes",
                    &Value::Null,
                    "exactly one of nonResourceAttributes or resourceAttributes must be specified",
                )],
            ));
        }
        let allowed = non_resource || self.allows(&asked);
        review["status"] = json!({ "allowed": allowed });
        Ok(WriteOutcome::new(201, review))
    }
}
