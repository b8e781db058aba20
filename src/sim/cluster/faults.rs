//! Faults that tests inject: a rule returns the fault for a request. The rule is removed when its guard is dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Properties of a request that fault rules match.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestInfo {
    /// Value of the `User-Agent` header.
    pub user_agent: String,
    /// Verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`. For paths that name no
    /// resource, the lower-case HTTP method.
    pub verb: String,
    /// API group; empty for core.
    pub group: String,
    /// Plural resource name; empty for paths that name no resource.
    pub resource: String,
    /// Subresource: `status`, `eviction`, `binding`, or empty.
    pub subresource: String,
    /// Namespace; empty for requests across all namespaces.
    pub namespace: String,
    /// Name of the object; empty for lists and creations.
    pub name: String,
}

/// Fault that is injected into a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This rule injects no fault. Later rules may still return one.
    Pass,
    /// Waits for this time before the request is processed.
    Delay(Duration),
    /// Rejects the request with this status. The number is the value of `Retry-After` in seconds.
    Status(u16, Option<u32>),
    /// Rejects the request like an admission policy. The text is the end of the error message, after the name of the object.
    Denied(Arc<str>),
    /// Breaks the connection before the request is executed.
    ResetBefore,
    /// Executes the request and breaks the connection before the response.
    ResetAfter,
    /// Never responds to the request and does not execute it.
    Hang,
}

type Rule = Arc<dyn Fn(&RequestInfo) -> Fault + Send + Sync>;
type Rules = Mutex<BTreeMap<u64, Rule>>;

/// Fault rules of one cluster; cheap to clone.
#[derive(Clone, Default)]
pub struct Faults {
    rules: Arc<Rules>,
}

/// Guard that removes its rule when dropped.
#[must_use = "the rule ends when its guard is dropped"]
pub struct FaultGuard {
    rules: Weak<Rules>,
    id: u64,
}

impl Faults {
    /// Adds a rule. For each request, the first fault other than [`Fault::Pass`] is used, in the order in which rules were added.
    pub fn add(&self, rule: impl Fn(&RequestInfo) -> Fault + Send + Sync + 'static) -> FaultGuard {
        let mut rules = lock(&self.rules);
        let id = rules.keys().next_back().map_or(0, |last| last + 1);
        rules.insert(id, Arc::new(rule));
        FaultGuard {
            rules: Arc::downgrade(&self.rules),
            id,
        }
    }

    pub(crate) fn of(&self, request: &RequestInfo) -> Fault {
        let rules: Vec<Rule> = lock(&self.rules).values().cloned().collect();
        rules
            .iter()
            .map(|rule| rule(request))
            .find(|fault| *fault != Fault::Pass)
            .unwrap_or(Fault::Pass)
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        if let Some(rules) = self.rules.upgrade() {
            lock(&rules).remove(&self.id);
        }
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Faults({} rules)", lock(&self.rules).len())
    }
}

fn lock(rules: &Rules) -> MutexGuard<'_, BTreeMap<u64, Rule>> {
    rules.lock().unwrap_or_else(PoisonError::into_inner)
}
