//! Detection of other installations by their Leases. Two installations that serve the same kinds would both replace pods, without
//! coordination.
//!
//! Every [`CHECK`], the leader lists the Leases of the controller's name in all namespaces, and reports the Leases that are being
//! renewed. The leader doesn't stop. Otherwise, any user who can create a Lease in one namespace could stop all rollouts.
//!
//! Unreadable Leases are skipped. Otherwise a tenant could make every check fail by creating an unreadable Lease.
//!
//! If the leader lacks the permission to list Leases, it skips the check. The permission check reports the missing right.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use tokio::time::{Instant, timeout};

use super::{CALL_DEADLINE, LeaseRecord};
use crate::controller::kinds::Kinds;
use crate::controller::reflector::{PAGE, list_selected};
use crate::core::names;
use crate::core::words::named;
use crate::k8s::client::CallError;

/// Interval between checks. Every installation renews its Lease at least once in this time.
const CHECK: Duration = Duration::from_secs(30);

/// Other installations, as known from periodic checks.
pub(super) struct OtherInstallations {
    client: Client,
    /// Namespace of this installation.
    namespace: String,
    kinds: Kinds,
    /// Leases of other installations at the last check, by namespace.
    seen: BTreeMap<String, LeaseRecord>,
    /// Namespaces of other installations that serve a common kind and renewed their Lease between the last two checks.
    active: BTreeSet<String>,
    due: Instant,
}

impl OtherInstallations {
    pub(super) fn new(client: Client, namespace: &str, kinds: Kinds) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            kinds,
            seen: BTreeMap::new(),
            active: BTreeSet::new(),
            due: Instant::now(),
        }
    }

    /// Number of other installations that are active.
    pub(super) fn count(&self) -> usize {
        self.active.len()
    }

    /// Returns a message for the operator; `None`: no other installation is active.
    pub(super) fn message(&self) -> Option<String> {
        let namespaces = self.active.iter().map(String::as_str);
        (!self.active.is_empty()).then(|| {
            format!(
                "Another installation of yurt-ds serves the same DaemonSets, and both replace pods. Its Lease is in namespace \
                 {}. Remove one installation, or run one with --controllers native and the other one with --controllers \
                 advanced.",
                named(namespaces, 0)
            )
        })
    }

    /// Returns true if it is time for the next check.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Checks for other installations. Returns true if the set of active ones changed.
    ///
    /// # Errors
    /// If the Leases cannot be listed. The result of the previous check remains.
    pub(super) async fn check(&mut self) -> Result<bool, CallError> {
        self.due = Instant::now() + CHECK;
        let only = format!("metadata.name={}", names::LEASE);
        let mut leases = Vec::new();
        let take = |lease| leases.push(lease);
        let list = list_selected(&self.client, None, "", &only, PAGE, take);
        let in_time = timeout(CALL_DEADLINE, list).await;
        in_time.map_err(|_| CallError::TimedOut(CALL_DEADLINE))??;
        let active = self.renewed(leases);
        let is_news = active != self.active;
        self.active = active;
        Ok(is_news)
    }

    /// Returns the namespaces of other installations that serve a common kind and renewed their Lease since the last check.
    fn renewed(&mut self, leases: Vec<Lease>) -> BTreeSet<String> {
        let before = std::mem::take(&mut self.seen);
        let mut renewed = BTreeSet::new();
        for lease in leases {
            let kinds = Kinds::of_lease(&lease).unwrap_or(Kinds::BOTH);
            let namespace = lease.metadata.namespace.unwrap_or_default();
            let record = LeaseRecord::from_spec(lease.spec.unwrap_or_default());
            let is_other = namespace != self.namespace && !record.holder.is_empty();
            if !is_other || !kinds.meets(self.kinds) {
                continue;
            }
            if before.get(&namespace).is_some_and(|known| *known != record) {
                renewed.insert(namespace.clone());
            }
            self.seen.insert(namespace, record);
        }
        renewed
    }
}
