//! The two clusters behind the same verbs.

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

/// A cluster with fake kubelets, and one controller that serves it.
#[derive(Clone)]
pub(crate) struct World {
    /// A client that may do everything.
    pub(crate) client: Client,
    /// The kubelets of all nodes.
    pub(crate) kubelets: Kubelets,
    /// Its time.
    pub(crate) clock: Clock,
    /// How fast that is.
    pub(crate) pace: Pace,
    /// What differs between the two.
    pub(crate) backend: Arc<dyn Backend>,
}

/// What goes wrong with the requests of the controller.
pub(crate) type FaultRule = Box<dyn Fn(&RequestInfo) -> Fault + Send + Sync>;

/// What an admission policy denies the controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denied<'a> {
    /// The namespace of the story.
    pub(crate) namespace: &'a str,
    /// The write to pods.
    pub(crate) verb: &'static str,
    /// The node, and the name of the pod that stands there; `None`: any.
    pub(crate) on: Option<(&'a str, &'a str)>,
}

/// What such a policy says, after who it is.
pub(crate) const DENIED: &str = "denied request: this pod is not to be touched";

/// Around a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// It never reaches the API server.
    Before,
    /// It is carried out, and nobody hears the answer.
    After,
}

/// What the two clusters do in their own ways.
pub(crate) trait Backend: Send + Sync {
    /// What the controller wrote to pods of a namespace so far, as the API server recorded it.
    fn pod_writes(&self, namespace: &str) -> anyhow::Result<PodWrites>;
    /// The controller's writes so far, in their order, but for Events and the Lease; empty where they cannot be seen in order.
    fn writes(&self) -> Vec<String> {
        Vec::new()
    }
    /// Requests of the controller for objects of a namespace so far, except watches and those for Leases.
    fn requests(&self, namespace: &str) -> anyhow::Result<usize>;
    /// Stops the native DaemonSet controller, or lets it go on.
    fn native(&self, runs: bool) -> anyhow::Result<()>;
    /// The API server answers nobody, or everybody again.
    fn api_server(&self, runs: bool) -> anyhow::Result<()>;
    /// Kills the controller at its `number`th write from now, and starts it again. A real API server cannot tell; there
    /// it happens after so many thirds of a second.
    fn kill_at(&self, number: usize, moment: Moment) -> anyhow::Result<()>;
    /// From now on two replicas of the controller compete for the Lease.
    fn two_replicas(&self) -> anyhow::Result<()>;
    /// Starts an installation of the controller with a Lease in another namespace, in addition to the one that runs.
    fn second_installation(&self) -> anyhow::Result<()> {
        anyhow::bail!("the manifests grant a Lease in one namespace")
    }
    /// Starts one controller for native and one for Advanced DaemonSets instead, with a Lease each.
    fn one_kind_each(&self) -> anyhow::Result<()> {
        anyhow::bail!("the manifests grant a Lease in one namespace")
    }
    /// Kills the replica of this identity.
    fn kill(&self, identity: &str) -> anyhow::Result<()>;
    /// Where the Lease is.
    fn lease_namespace(&self) -> &'static str;
    /// Takes a permission from the controller or from all agents, or gives it back.
    fn permission(
        &self,
        whose: Role,
        verb: &'static str,
        resource: &'static str,
        granted: bool,
    ) -> BoxFuture<'_, anyhow::Result<()>>;
    /// An admission policy that denies the controller this write (`delete`, `patch` or `create`) to pods of a namespace, to those
    /// on one node if that is named, begins or ends. A policy over `create` is one over all of them.
    fn policy<'a>(&'a self, denied: Denied<'a>, begins: bool) -> BoxFuture<'a, anyhow::Result<()>>;
    /// Whether every namespace gets a service account that pods wait for.
    fn has_service_accounts(&self) -> bool;

    /// What the one replica of the controller that runs shows of itself; `None` when none runs, or several do, or its requests
    /// are made to go wrong.
    fn metrics(&self) -> BoxFuture<'_, anyhow::Result<Option<String>>>;

    /// Kills all replicas of the controller, or starts it again.
    fn controller(&self, runs: bool) -> anyhow::Result<()>;
    /// Starts the agent of a node; at most one per node at a time.
    fn agent(&self, setup: Setup) -> BoxFuture<'_, anyhow::Result<Agent>>;
    /// What the agents of a node asked of the API server so far, except watches.
    fn asked(&self, node: &str) -> anyhow::Result<Asked>;

    /// From now on the controller's requests go wrong as the rule says.
    fn fault(&self, _rule: FaultRule) -> anyhow::Result<()> {
        bail!("no fault points on this cluster")
    }
    /// The end of the controller's log, where it has one.
    fn log(&self) -> String {
        String::new()
    }
    /// Ends all faults.
    fn mend(&self) {}
    /// The replicas of the controller whose metrics speak of DaemonSets.
    fn exporters(&self) -> anyhow::Result<Vec<String>> {
        bail!("the metrics of a replica are read on the embedded cluster only")
    }
    /// Breaks all watches.
    fn disconnect_watches(&self) -> anyhow::Result<()> {
        bail!("no fault points on this cluster")
    }
    /// What happened before now can be had by a new list only.
    fn forget_history(&self) -> anyhow::Result<()> {
        bail!("no fault points on this cluster")
    }
}

/// Whether a request changes nothing.
pub(crate) fn is_read(verb: &str) -> bool {
    ["get", "list", "watch"].contains(&verb)
}

/// Requests of the controller for the pods of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodWrites {
    /// Deletions that were carried out.
    pub(crate) deletions: usize,
    /// Evictions that were carried out.
    pub(crate) evictions: usize,
    /// Patches of pods themselves that were carried out.
    pub(crate) patches: usize,
    /// Deletions, evictions and such patches that were refused.
    pub(crate) refused: usize,
    /// The same because the pod had changed since it was looked at (409): nothing happened to it.
    pub(crate) conflicts: usize,
    /// The same because the API server, or the one who asked, did not live to see the answer (5xx).
    pub(crate) unanswered: usize,
    /// Patches of their status and whatever else.
    pub(crate) others: usize,
}

impl PodWrites {
    /// All of them.
    pub(crate) fn total(&self) -> usize {
        let done = self.deletions + self.evictions + self.patches;
        done + self.refused + self.conflicts + self.unanswered + self.others
    }

    /// Those after `earlier`.
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

    /// Counts one more request and the status code of its answer; reading is not counted.
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
    /// What the controller wrote to pods of a namespace so far.
    pub(crate) fn pod_writes(&self, namespace: &str) -> anyhow::Result<PodWrites> {
        self.backend.pod_writes(namespace)
    }

    /// Waits until pods can be made in a new namespace.
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
