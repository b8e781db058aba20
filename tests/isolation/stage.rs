//! Environment of a story: a tenant that does harm, its neighbor, and the controller.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::fleet::{Fleet, at_once};
use super::plane::{Controller, Plane, patience, until};
use super::{NOTICED, PROMPT};
use crate::support::faulty::FaultProxy;
use crate::support::objects::Daemon;

/// Moments at which a story checks its expectations. The flag is true if the controller restarts first.
pub(super) const MOMENTS: [(&str, bool); 2] =
    [("before a restart", false), ("after a restart", true)];

/// Tenant, neighbor and controller.
pub(super) struct Stage<'a> {
    pub(super) plane: &'a Plane,
    /// Tenant whose objects do harm. It has two nodes.
    pub(super) tenant: Fleet<'a>,
    /// Tenant whose rollouts must not be affected.
    pub(super) neighbour: Fleet<'a>,
    /// Proxy between controller and API server, if the story needs faults on that connection.
    proxy: Option<FaultProxy>,
    controller: Option<Controller>,
}

/// Settings of a [`Stage`], different for each story.
pub(super) struct Setup {
    /// Name of the story. It is unique, because the tenants' names contain it.
    pub(super) name: &'static str,
    pub(super) nodes: usize,
    pub(super) daemon: Daemon,
    /// True if the controller reaches the API server through a proxy.
    pub(super) by_proxy: bool,
}

impl Setup {
    /// Returns the default setup: the neighbor has two nodes that are updated at the same time, and there is no proxy.
    pub(super) fn named(name: &'static str) -> Self {
        Self {
            name,
            nodes: 2,
            daemon: at_once(),
            by_proxy: false,
        }
    }
}

impl<'a> Stage<'a> {
    /// Runs a story on a new stage, then deletes all its objects.
    pub(super) async fn play(
        plane: &'a Plane,
        setup: Setup,
        story: impl AsyncFnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut stage = Self::set(plane, setup).await.context("set the stage")?;
        let mut played = stage.start().await.context("start the controller");
        if played.is_ok() {
            played = story(&mut stage).await;
        }
        if let Some(proxy) = &stage.proxy {
            proxy.set(&[]);
        }
        let log = stage.controller.as_mut().map(Controller::tail);
        stage.controller = None;
        stage.tenant.remove().await;
        stage.neighbour.remove().await;
        played.with_context(|| format!("its log ends with\n{}\n", log.unwrap_or_default()))
    }

    async fn set(plane: &'a Plane, setup: Setup) -> anyhow::Result<Self> {
        // Add the process ID to the names, so that objects of an earlier run don't collide with those of this one.
        let name = |role| format!("{}-{role}-{}", setup.name, std::process::id());
        let (tenant, neighbour) = (name("tenant"), name("neighbour"));
        let (tenant, neighbour) = tokio::try_join!(
            Fleet::create(plane, &tenant, 2, at_once()),
            Fleet::create(plane, &neighbour, setup.nodes, setup.daemon),
        )?;
        let proxy = if setup.by_proxy {
            Some(FaultProxy::start(plane.client.clone()).await?)
        } else {
            None
        };
        Ok(Self {
            plane,
            tenant,
            neighbour,
            proxy,
            controller: None,
        })
    }

    /// Starts the first controller and waits until the rollouts of both tenants are complete.
    async fn start(&mut self) -> anyhow::Result<()> {
        self.start_controller().await?;
        self.controller()?.until_ready(patience()).await?;
        self.tenant.until_complete(patience()).await?;
        self.neighbour.until_complete(patience()).await
    }

    /// Restarts the controller and waits until it is ready. The time limit is [`PROMPT`].
    pub(super) async fn restart(&mut self) -> anyhow::Result<()> {
        self.start_controller().await?;
        let ready = self.controller()?.until_ready(PROMPT).await;
        ready.context("after a restart")
    }

    async fn start_controller(&mut self) -> anyhow::Result<()> {
        self.controller = None;
        self.controller = Some(match &self.proxy {
            Some(proxy) => self.plane.controller_by(&proxy.kubeconfig()).await?,
            None => self.plane.controller().await?,
        });
        Ok(())
    }

    pub(super) fn controller(&self) -> anyhow::Result<&Controller> {
        self.controller.as_ref().context("no controller runs")
    }

    /// Returns the running controller, with mutable access to read its log.
    pub(super) fn controller_mut(&mut self) -> anyhow::Result<&mut Controller> {
        self.controller.as_mut().context("no controller runs")
    }

    /// Returns the proxy between controller and API server.
    pub(super) fn proxy(&self) -> anyhow::Result<&FaultProxy> {
        self.proxy.as_ref().context("the stage has no proxy")
    }

    /// Checks that the neighbor's rollouts complete in time, before and after a restart of the controller.
    pub(super) async fn neighbour_goes_on(&mut self) -> anyhow::Result<()> {
        self.neighbour.roll().await.context("before a restart")?;
        self.restart().await?;
        self.neighbour.roll().await.context("after a restart")
    }

    /// Takes a node of the neighbor offline and brings it back. The controller must notice both in time.
    pub(super) async fn outage_is_noticed(&self) -> anyhow::Result<()> {
        self.until_offline(0, patience()).await?;
        self.neighbour.offline(1).await?;
        let noticed = self.until_offline(1, NOTICED).await;
        self.neighbour.online(1).await?;
        noticed.context("an outage of the neighbour's node")
    }

    /// Waits until the metrics show this number of offline nodes for the neighbor.
    async fn until_offline(&self, expected: u64, limit: Duration) -> anyhow::Result<()> {
        let what = format!("the metrics count {expected} nodes as offline");
        let namespace = format!("namespace=\"{}\"", self.neighbour.name);
        until(&what, limit, async || {
            let metrics = self.controller()?.metrics().await?;
            let is_meant = |line: &&str| {
                line.starts_with("yurt_ds_nodes{")
                    && line.contains(&namespace)
                    && line.contains("verdict=\"Offline\"")
            };
            let line = metrics.lines().find(is_meant);
            let line = line.with_context(|| format!("no such series; {metrics}"))?;
            let is_so = line.ends_with(&format!(" {expected}"));
            Ok((!is_so).then(|| line.to_owned()))
        })
        .await
    }

    /// Creates an object in the tenant's namespace that is not a DaemonSet. Returns an owner reference to that object.
    ///
    /// Test objects get this owner, because the native controller would adopt objects without an owner.
    pub(super) async fn other_owner(&self) -> anyhow::Result<serde_json::Value> {
        let path = self.tenant.path("configmaps");
        let owner = json!({ "metadata": { "name": "owner" } });
        self.plane.create(&path, &owner).await?;
        let owner = self.plane.read(&format!("{path}/owner")).await?;
        let uid = &owner["metadata"]["uid"];
        ensure!(uid.is_string(), "the owner has no UID");
        Ok(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": true,
        }))
    }
}
