//! Faults as values: a rule looks at a request and says what goes wrong with it, and is gone when its guard drops.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// What a rule may look at.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestInfo {
    /// The header `User-Agent`.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; the HTTP method in lower case
    /// for paths that are no resource.
    pub verb: String,
    /// API group, empty for core.
    pub group: String,
    /// Plural, or empty for paths that are no resource.
    pub resource: String,
    /// `status`, `eviction`, `binding`, or empty.
    pub subresource: String,
    /// Empty for cluster-wide requests.
    pub namespace: String,
    /// Empty for lists and creates.
    pub name: String,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing; later rules may still act.
    Pass,
    /// It is carried out after this time.
    Delay(Duration),
    /// It is refused with this status, and `Retry-After` in seconds.
    Status(u16, Option<u32>),
    /// An admission policy refuses it in these words, which follow the name of the object.
    Denied(Arc<str>),
    /// The connection breaks before it is carried out.
    ResetBefore,
    /// It is carried out, the answer is lost.
    ResetAfter,
    /// It is never answered.
    Hang,
}

type Rule = Arc<dyn Fn(&RequestInfo) -> Fault + Send + Sync>;
type Rules = Mutex<BTreeMap<u64, Rule>>;

/// The rules of one cluster; cheap to clone.
#[derive(Clone, Default)]
pub struct Faults {
    rules: Arc<Rules>,
}

/// Removes its rule when dropped.
#[must_use = "the rule ends when its guard is dropped"]
pub struct FaultGuard {
    rules: Weak<Rules>,
    id: u64,
}

impl Faults {
    /// Adds a rule; of several the first that does not pass decides, in the order in which they were added.
    pub fn add(&self, rule: impl Fn(&RequestInfo) -> Fault + Send + Sync + 'static) -> FaultGuard {
        let mut rules = lock(&self.rules);
        let id = rules.keys().next_back().map_or(0, |last| last + 1);
        rules.insert(id, Arc::new(rule));
        FaultGuard {
            rules: Arc::downgrade(&self.rules),
            id,
        }
    }

    /// What the rules say about a request.
    pub(crate) fn judge(&self, request: &RequestInfo) -> Fault {
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
