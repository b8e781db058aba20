//! Common interface of the embedded cluster and a real one.

use std::collections::BTreeMap;
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

/// Cluster on which stories run, with fake kubelets and a controller.
#[derive(Clone)]
pub(crate) struct World {
    /// Client with the permissions of a cluster administrator.
    pub(crate) client: Client,
    /// Fake kubelets of all nodes.
    pub(crate) kubelets: Kubelets,
    pub(crate) clock: Clock,
    /// Speed of the cluster's clock.
    pub(crate) pace: Pace,
    /// Operations that the two kinds of cluster implement differently.
    pub(crate) backend: Arc<dyn Backend>,
}

/// Function that returns the fault for a request of the controller.
pub(crate) type FaultRule = Box<dyn Fn(&RequestInfo) -> Fault + Send + Sync>;

/// Kind of the controller's writes that an admission policy rejects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denied<'a> {
    pub(crate) namespace: &'a str,
    /// Verb that the policy rejects: `delete`, `patch`, `create` or `status`.
    pub(crate) verb: &'static str,
    /// Names of a node and of the pod on it; `None` for all pods of the namespace.
    pub(crate) on: Option<(&'a str, &'a str)>,
}

/// Message with which an admission policy of [`Backend::policy`] rejects a write. The API server prepends the policy's name.
pub(crate) const DENIED: &str = "denied request: this pod is not to be touched";

/// Moment at which the controller is killed, relative to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The write never reaches the API server.
    Before,
    /// The API server carries out the write, but the response is lost.
    After,
}

/// Operations that the embedded and the real cluster implement differently.
pub(crate) trait Backend: Send + Sync {
    /// Returns counts of the controller's writes to pods of a namespace so far, as the API server recorded them.
    fn pod_writes(&self, namespace: &str) -> anyhow::Result<PodWrites>;
    /// Returns the controller's writes so far in order, except Events and the Lease; empty if the order is unknown.
    fn writes(&self) -> Vec<String> {
        Vec::new()
    }
    /// Returns the number of the controller's requests for objects of a namespace so far, without watches and Leases.
    fn requests(&self, namespace: &str) -> anyhow::Result<usize>;
    /// Stops the native DaemonSet controller, or resumes it.
    fn native(&self, runs: bool) -> anyhow::Result<()>;
    /// Freezes the API server, or resumes it.
    fn api_server(&self, runs: bool) -> anyhow::Result<()>;
    /// Kills the controller at its `number`th write from now, and starts it again.
    ///
    /// A real cluster can't trigger an action at a write, so there the controller is killed after `number` thirds of a second.
    fn kill_at(&self, number: usize, moment: Moment) -> anyhow::Result<()>;
    /// Starts a second replica of the controller, which competes for the same Lease.
    fn two_replicas(&self) -> anyhow::Result<()>;
    /// Starts a second controller that uses a Lease in another namespace, like a second installation.
    fn second_installation(&self) -> anyhow::Result<()> {
        anyhow::bail!("the manifests grant a Lease in one namespace")
    }
    /// Replaces the controller with one that sends notifications to this URL.
    fn notifying(&self, _url: &str) -> anyhow::Result<()> {
        bail!("the controller of a real cluster keeps its flags")
    }
    /// Replaces the controller with two controllers that have separate Leases: one for native and one for Advanced DaemonSets.
    fn one_kind_each(&self) -> anyhow::Result<()> {
        anyhow::bail!("the manifests grant a Lease in one namespace")
    }
    /// Kills the replica of the controller with this identity.
    fn kill(&self, identity: &str) -> anyhow::Result<()>;
    /// Returns the namespace of the controller's Lease.
    fn lease_namespace(&self) -> &'static str;
    /// Revokes a permission of the controller or of the agents, or grants it again.
    fn permission(
        &self,
        whose: Role,
        verb: &'static str,
        resource: &'static str,
        granted: bool,
    ) -> BoxFuture<'_, anyhow::Result<()>>;
    /// Starts or stops an admission policy that rejects a write of the controller (`delete`, `patch` or `create`) to pods of a
    /// namespace.
    ///
    /// If `denied` names a node, the policy covers only the pods on that node. A policy on `create` always covers all pods.
    fn policy<'a>(&'a self, denied: Denied<'a>, begins: bool) -> BoxFuture<'a, anyhow::Result<()>>;
    /// Returns true if the cluster creates a service account in every namespace. Pods can't be created before it exists.
    fn has_service_accounts(&self) -> bool;

    /// Returns the metrics page of the controller; `None` if it can't be compared, because no or several replicas run, or because a
    /// fault affects requests.
    fn metrics(&self) -> BoxFuture<'_, anyhow::Result<Option<String>>>;

    /// Kills all replicas of the controller (false), or starts one (true).
    fn controller(&self, runs: bool) -> anyhow::Result<()>;
    /// Starts the agent of a node. A node can have only one agent.
    fn agent(&self, setup: Setup) -> BoxFuture<'_, anyhow::Result<Agent>>;
    /// Returns counts of the requests from a node's agent to the API server, without watches.
    fn asked(&self, node: &str) -> anyhow::Result<Asked>;

    /// Applies a fault rule to the controller's requests until [`Self::mend`].
    fn fault(&self, _rule: FaultRule) -> anyhow::Result<()> {
        bail!("no fault points on this cluster")
    }
    /// Returns the end of the controller's log; empty if there is no log.
    fn log(&self) -> String {
        String::new()
    }
    /// Removes all faults from the controller's requests.
    fn mend(&self) {}
    /// Returns the metrics page of each running replica of the controller, by identity.
    fn pages(&self) -> anyhow::Result<BTreeMap<String, String>> {
        bail!("the metrics of a replica are read on the embedded cluster only")
    }
    /// Breaks all open watches.
    fn disconnect_watches(&self) -> anyhow::Result<()> {
        bail!("no fault points on this cluster")
    }
    /// Drops the API server's history of events, so that a broken watch can't resume and needs a new list.
    fn forget_history(&self) -> anyhow::Result<()> {
        bail!("no fault points on this cluster")
    }
}

/// Returns true if a request changes nothing.
pub(crate) fn is_read(verb: &str) -> bool {
    ["get", "list", "watch"].contains(&verb)
}

/// Counts of the controller's writes to the pods of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodWrites {
    /// Deletions that were carried out.
    pub(crate) deletions: usize,
    /// Evictions that were carried out.
    pub(crate) evictions: usize,
    /// Patches of pods that were carried out, without patches of the status.
    pub(crate) patches: usize,
    /// Deletions, evictions and patches of pods that were rejected.
    pub(crate) refused: usize,
    /// Deletions, evictions and patches that failed because the pod had changed (409).
    pub(crate) conflicts: usize,
    /// Deletions, evictions and patches that failed because the API server or the client ended (5xx).
    pub(crate) unanswered: usize,
    /// All other writes, such as creations and patches of the status, with any result.
    pub(crate) others: usize,
}

impl PodWrites {
    /// Returns the sum of all counts.
    pub(crate) fn total(&self) -> usize {
        let done = self.deletions + self.evictions + self.patches;
        done + self.refused + self.conflicts + self.unanswered + self.others
    }

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

    /// Counts a request by its verb and the status code of its response. Reads are not counted.
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
    /// Returns the counts of the controller's writes to the pods of a namespace so far.
    pub(crate) fn pod_writes(&self, namespace: &str) -> anyhow::Result<PodWrites> {
        self.backend.pod_writes(namespace)
    }

    /// Waits until a new namespace has the default service account. Pods can't be created before it exists.
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

    /// Waits until a new resource quota is in force.
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
