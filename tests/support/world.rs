//! A common interface for the two clusters.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ResourceQuota, ServiceAccount};
use kube::{Api, Client};
use yurt_ds::clock::Clock;
use yurt_ds::k8s::client::Role;
use yurt_ds::sim::cluster::{Fault, RequestInfo};
use yurt_ds::sim::kubelet::Kubelets;

use super::agents::{Agent, Setup};
use super::link::Asked;
use super::machine::BUSY;
use super::player::has_service_account;
use super::story::Pace;

/// Cluster with fake kubelets and one controller.
#[derive(Clone)]
pub(crate) struct World {
    /// Client of a cluster administrator.
    pub(crate) client: Client,
    /// Kubelets of all nodes.
    pub(crate) kubelets: Kubelets,
    /// Clock of the cluster.
    pub(crate) clock: Clock,
    /// Speed of that clock.
    pub(crate) pace: Pace,
    /// Operations that differ between the two clusters.
    pub(crate) backend: Arc<dyn Backend>,
}

/// Rule that selects faults for requests of the controller.
pub(crate) type FaultRule = Box<dyn Fn(&RequestInfo) -> Fault + Send + Sync>;

/// Write that an admission policy denies the controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denied<'a> {
    /// Namespace of the story.
    pub(crate) namespace: &'a str,
    /// Verb of the write to pods.
    pub(crate) verb: &'static str,
    /// Node, and name of the pod on it. `None` means all pods.
    pub(crate) on: Option<(&'a str, &'a str)>,
}

/// Message of such a policy, after its name.
pub(crate) const DENIED: &str = "denied request: this pod is not to be touched";

/// Moment of a kill, relative to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The write never reaches the API server.
    Before,
    /// The write is carried out, but its answer is lost.
    After,
}

/// Operations that the two clusters implement differently.
pub(crate) trait Backend: Send + Sync {
    /// Returns the controller's writes to pods of a namespace so far, as recorded by the API server.
    fn pod_writes(&self, namespace: &str) -> anyhow::Result<PodWrites>;
    /// Returns the controller's writes so far in order, without Events and the Lease. Empty where their order is unknown.
    fn writes(&self) -> Vec<String> {
        Vec::new()
    }
    /// Returns the number of the controller's requests for objects of a namespace so far, without watches and Leases.
    fn requests(&self, namespace: &str) -> anyhow::Result<usize>;
    /// Stops the native DaemonSet controller, or resumes it.
    fn native(&self, runs: bool) -> anyhow::Result<()>;
    /// Freezes the API server, or resumes it.
    fn api_server(&self, runs: bool) -> anyhow::Result<()>;
    /// Kills the controller at its `number`th write from now, and restarts it.
    ///
    /// A real API server has no such trigger. On a real cluster it happens after `number` thirds of a second.
    fn kill_at(&self, number: usize, moment: Moment) -> anyhow::Result<()>;
    /// Starts a second replica of the controller that competes for the Lease.
    fn two_replicas(&self) -> anyhow::Result<()>;
    /// Starts a second installation of the controller with a Lease in another namespace.
    fn second_installation(&self) -> anyhow::Result<()> {
        anyhow::bail!("the manifests grant a Lease in one namespace")
    }
    /// Replaces the controller by two, one for native and one for Advanced DaemonSets, with a Lease each.
    fn one_kind_each(&self) -> anyhow::Result<()> {
        anyhow::bail!("the manifests grant a Lease in one namespace")
    }
    /// Kills the replica of this identity.
    fn kill(&self, identity: &str) -> anyhow::Result<()>;
    /// Returns the namespace of the Lease.
    fn lease_namespace(&self) -> &'static str;
    /// Revokes a permission of the controller or of all agents, or grants it again.
    fn permission(
        &self,
        whose: Role,
        verb: &'static str,
        resource: &'static str,
        granted: bool,
    ) -> BoxFuture<'_, anyhow::Result<()>>;
    /// Starts or stops an admission policy that denies the controller a write (`delete`, `patch` or `create`) to pods of a
    /// namespace.
    ///
    /// It covers the pods on one node if a node is named. A policy on `create` always covers all pods.
    fn policy<'a>(&'a self, denied: Denied<'a>, begins: bool) -> BoxFuture<'a, anyhow::Result<()>>;
    /// Returns true if every namespace gets a service account that pods wait for.
    fn has_service_accounts(&self) -> bool;

    /// Returns the metrics page of the controller. `None` unless exactly one replica runs and no fault affects its requests.
    fn metrics(&self) -> BoxFuture<'_, anyhow::Result<Option<String>>>;

    /// Kills all replicas of the controller, or starts it again.
    fn controller(&self, runs: bool) -> anyhow::Result<()>;
    /// Starts the agent of a node. At most one per node may run.
    fn agent(&self, setup: Setup) -> BoxFuture<'_, anyhow::Result<Agent>>;
    /// Returns the requests of a node's agents to the API server so far, without watches.
    fn asked(&self, node: &str) -> anyhow::Result<Asked>;

    /// Makes requests of the controller fail by this rule from now on.
    fn fault(&self, _rule: FaultRule) -> anyhow::Result<()> {
        bail!("no fault points on this cluster")
    }
    /// Returns the end of the controller's log. Empty if it has none.
    fn log(&self) -> String {
        String::new()
    }
    /// Ends all faults.
    fn mend(&self) {}
    /// Returns the controller replicas that export metrics about DaemonSets.
    fn exporters(&self) -> anyhow::Result<Vec<String>> {
        bail!("the metrics of a replica are read on the embedded cluster only")
    }
    /// Breaks all watches.
    fn disconnect_watches(&self) -> anyhow::Result<()> {
        bail!("no fault points on this cluster")
    }
    /// Drops the history of events, so that a watch can't resume and needs a new list.
    fn forget_history(&self) -> anyhow::Result<()> {
        bail!("no fault points on this cluster")
    }
}

/// Returns true if a request changes nothing.
pub(crate) fn is_read(verb: &str) -> bool {
    ["get", "list", "watch"].contains(&verb)
}

/// Counts of the controller's requests for the pods of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodWrites {
    /// Deletions that were carried out.
    pub(crate) deletions: usize,
    /// Evictions that were carried out.
    pub(crate) evictions: usize,
    /// Patches of pods, without their status, that were carried out.
    pub(crate) patches: usize,
    /// Deletions, evictions and such patches that were rejected.
    pub(crate) refused: usize,
    /// Requests that failed because the pod had changed since it was read (409).
    pub(crate) conflicts: usize,
    /// Requests without an answer, because the API server or the client ended before it (5xx).
    pub(crate) unanswered: usize,
    /// Patches of the status, and any other write.
    pub(crate) others: usize,
}

impl PodWrites {
    /// Returns the sum of all counts.
    pub(crate) fn total(&self) -> usize {
        let done = self.deletions + self.evictions + self.patches;
        done + self.refused + self.conflicts + self.unanswered + self.others
    }

    /// Returns the counts after `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            deletions: self.deletions - earlier.deletions,
            evictions: self.evictions - earlier.evictions,
            patches: self.patches - earlier.patches,
            refused: self.refused - earlier.refused,
            conflicts: self.conflicts - earlier.conflicts,
            unanswered: self.unanswered - earlier.unanswered,
            others: self.others - earlier.others,
        }
    }

    /// Counts a request and the status code of its answer. Reads are not counted.
    pub(crate) fn count(&mut self, verb: &str, subresource: &str, code: u64) {
        let done = match (verb, subresource) {
            ("delete", _) => &mut self.deletions,
            ("create", "eviction") => &mut self.evictions,
            ("patch", "") => &mut self.patches,
            (verb, _) if is_read(verb) => return,
            _ => {
                self.others += 1;
                return;
            }
        };
        match code {
            200..300 => *done += 1,
            409 => self.conflicts += 1,
            500.. => self.unanswered += 1,
            _ => self.refused += 1,
        }
    }
}

impl World {
    /// Returns the controller's writes to pods of a namespace so far.
    pub(crate) fn pod_writes(&self, namespace: &str) -> anyhow::Result<PodWrites> {
        self.backend.pod_writes(namespace)
    }

    /// Waits until pods can be created in a new namespace.
    pub(crate) async fn await_service_account(&self, namespace: &str) -> anyhow::Result<()> {
        if !self.backend.has_service_accounts() {
            return Ok(());
        }
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), namespace);
        for _ in 0..100 * BUSY {
            if has_service_account(&accounts).await {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("no service account `default` in {namespace}")
    }

    /// Waits until a new quota is in force.
    pub(crate) async fn await_quota(&self, namespace: &str) -> anyhow::Result<()> {
        let quotas = Api::<ResourceQuota>::namespaced(self.client.clone(), namespace);
        for _ in 0..100 * BUSY {
            let quota = quotas.get("none").await.context("read the quota")?;
            if quota.status.is_some_and(|status| status.hard.is_some())
                || !self.backend.has_service_accounts()
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("the quota in {namespace} is not in force")
    }
}
