//! Leases of other installations. Each installation has one in its namespace, and only one of them may act on a kind of DaemonSets.
//!
//! The installation with the oldest Lease acts, the others stand by. A replica that holds its Lease lists the Leases of this name
//! before it leads, and then every [`CHECK`].
//!
//! # Caveats
//! - A replica that lacks the right to list them leads without the check; the check of permissions reports that.
//! - When an older installation starts again, both act until the next check of the younger one.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::Instant;

use super::{CALL_DEADLINE, LeaseRecord, lasts};
use crate::controller::kinds::Kinds;
use crate::core::names;
use crate::k8s::client::{CallError, within};

/// Interval between checks of a leader: installing a second one is rare, and costs no pod that would not be replaced anyway.
const CHECK: Duration = Duration::from_secs(30);

/// Other installations that are active and serve kinds of DaemonSets that this one serves, too; by namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rivals {
    /// The oldest one, if that is older than this installation.
    pub(super) older: Option<String>,
    /// Those that are younger.
    pub(super) younger: Vec<String>,
}

impl Rivals {
    /// Number of them.
    pub(super) fn count(&self) -> usize {
        usize::from(self.older.is_some()) + self.younger.len()
    }

    /// Message for the operator of the installation in `namespace`; `None`: there is no other one.
    pub(super) fn message(&self) -> Option<String> {
        let (rival, consequence) = match (&self.older, self.younger.first()) {
            (Some(older), _) => (older, "This one is younger and waits"),
            (None, Some(younger)) => (younger, "That one is younger and has to wait"),
            (None, None) => return None,
        };
        Some(format!(
            "Another installation of yurt-ds in namespace {rival} serves the same DaemonSets. {consequence}. Remove one of them, or \
             give them different --controllers."
        ))
    }
}

/// Checks for other installations.
pub(super) struct OtherInstallations {
    leases: Api<Lease>,
    /// Namespace of this installation.
    namespace: String,
    kinds: Kinds,
    /// What their Leases looked like at the last check, and since when.
    seen: BTreeMap<String, (LeaseRecord, Instant)>,
    /// What the last check found.
    rivals: Rivals,
    due: Instant,
}

impl OtherInstallations {
    pub(super) fn new(client: Client, namespace: &str, kinds: Kinds) -> Self {
        Self {
            leases: Api::all(client),
            namespace: namespace.to_owned(),
            kinds,
            seen: BTreeMap::new(),
            rivals: Rivals::default(),
            due: Instant::now(),
        }
    }

    /// What the last check found.
    pub(super) fn rivals(&self) -> &Rivals {
        &self.rivals
    }

    /// Checks again, if that is due. Returns whether something changed.
    ///
    /// # Errors
    /// When the Leases cannot be listed; then what was known before stands.
    pub(super) async fn check(&mut self) -> Result<bool, CallError> {
        let now = Instant::now();
        // An installation that waits looks as often as it renews its own Lease.
        if now < self.due && self.rivals.older.is_none() {
            return Ok(false);
        }
        self.due = now + CHECK;
        let only = ListParams::default().fields(&format!("metadata.name={}", names::LEASE));
        let leases = within(CALL_DEADLINE, self.leases.list(&only)).await?;
        let found = self.judge(&leases.items, now);
        let is_news = found != self.rivals;
        self.rivals = found;
        Ok(is_news)
    }

    /// Returns the active installations among those with these Leases.
    fn judge(&mut self, leases: &[Lease], now: Instant) -> Rivals {
        let age = |lease: &Lease| {
            let created = lease.metadata.creation_timestamp.as_ref();
            (
                created.map(|created| created.0),
                lease.metadata.namespace.clone().unwrap_or_default(),
            )
        };
        let (own, others): (Vec<_>, Vec<_>) = leases
            .iter()
            .partition(|lease| lease.metadata.namespace.as_ref() == Some(&self.namespace));
        let Some(own) = own.first().map(|own| age(own)) else {
            return Rivals::default(); // it has just been deleted: the next renewal decides
        };
        let before = std::mem::take(&mut self.seen);
        let mut active = Vec::new();
        for lease in others {
            let (created, namespace) = age(lease);
            let spec = lease.spec.clone().unwrap_or_default();
            let lasts = lasts(&spec).unwrap_or(CHECK);
            let record = LeaseRecord::of(spec);
            let kinds = Kinds::of_lease(lease).unwrap_or(Kinds::BOTH);
            if record.holder.is_empty() || !kinds.meets(self.kinds) {
                continue;
            }
            let other = (created, namespace);
            // A younger one that was never seen to renew its Lease is most likely gone, and would have to wait.
            let first_seen = now
                .checked_sub(lasts)
                .filter(|_| other > own)
                .unwrap_or(now);
            let since = match before.get(&other.1) {
                Some((known, since)) if *known == record => *since,
                Some(_) => now,
                None => first_seen,
            };
            self.seen.insert(other.1.clone(), (record, since));
            if now < since + lasts {
                active.push(other);
            }
        }
        active.sort();
        let (older, younger): (Vec<_>, Vec<_>) = active.into_iter().partition(|other| *other < own);
        let namespace = |(_, namespace)| namespace;
        Rivals {
            older: older.into_iter().next().map(namespace),
            younger: younger.into_iter().map(namespace).collect(),
        }
    }
}
