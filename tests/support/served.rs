//! Small embedded cluster in real time that an agent process can reach over HTTP. Tests can make single requests fail.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use tokio::net::TcpListener;
use yurt_ds::clock::Clock;
use yurt_ds::k8s::client::Role;
use yurt_ds::sim::cluster::{Fault, FaultGuard, RequestInfo};
use yurt_ds::sim::kubelet::{FakeNodeSpec, KubeletOptions};
use yurt_ds::sim::world::{World, WorldSetup};
use yurt_ds::task::Task;

use super::agents::{Agent, Setup};
use super::binary::{ANY_PORT, Process, agent_command};
use super::link::{Link, Proxy};
use super::machine::BUSY;
use super::objects::{DAEMON, Daemon, NEW, image_patch};
use super::picture::{condition_of, controller_of};
use super::player::from;

/// Prefix of the cluster's node names.
const NAME: &str = "served";

/// Namespace of the cluster's pods.
pub(crate) const NAMESPACE: &str = "default";

/// Cluster with one DaemonSet in OTA mode. The controller has announced a new version of it.
pub(crate) struct Served {
    /// Embedded cluster with a controller and kubelets.
    pub(crate) world: World,
    /// Link between agents and API server.
    pub(crate) link: Link,
    directory: tempfile::TempDir,
    proxy: Proxy,
    _serve: Task,
}

pub(crate) struct Running {
    /// Client that sends requests to the agent.
    pub(crate) agent: Agent,
    /// TCP address that the agent listens on.
    pub(crate) address: SocketAddr,
}

impl Served {
    /// Starts a cluster with this many nodes and waits until the controller has announced a new version on every pod.
    pub(crate) async fn start(nodes: usize) -> anyhow::Result<Self> {
        let world = World::start(WorldSetup {
            clock: Clock::System,
            seed: 1,
            kubelets: KubeletOptions::default(),
            controller: true,
            advanced: false,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let cluster = world.cluster.clone();
        let serve = Task::spawn(async move {
            let _ended = cluster.serve(listener, std::future::pending()).await;
        });
        let link = Link::default();
        let proxy = Proxy::start(address, Ipv4Addr::LOCALHOST, link.clone()).await?;
        let specs =
            (1..=nodes).map(|number| FakeNodeSpec::named(node(number)).label("scenario", NAME));
        world.kubelets.add_nodes(specs.collect()).await?;
        let served = Self {
            world,
            link,
            directory: tempfile::tempdir()?,
            proxy,
            _serve: serve,
        };
        let daemon: DaemonSet = from(Daemon::new().strategy("OTA").manifest(NAME))?;
        let daemons = Api::<DaemonSet>::namespaced(served.world.client(), NAMESPACE);
        daemons.create(&PostParams::default(), &daemon).await?;
        served.until_announced(nodes, "False").await?;
        let patch = Patch::Strategic(image_patch(NEW));
        daemons
            .patch(DAEMON, &PatchParams::default(), &patch)
            .await?;
        served.until_announced(nodes, "True").await?;
        Ok(served)
    }

    async fn until_announced(&self, nodes: usize, status: &str) -> anyhow::Result<()> {
        for _ in 0..600 * BUSY {
            let pods = self.pods().list(&ListParams::default()).await?;
            let is_announced = |pod: &&Pod| {
                condition_of(pod, "PodNeedUpgrade").is_some_and(|found| found.status == status)
                    && condition_of(pod, "Ready").is_some_and(|found| found.status == "True")
            };
            if pods.items.iter().filter(is_announced).count() == nodes {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("not every pod is announced as {status}")
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.world.client(), NAMESPACE)
    }

    /// Returns the pod of the DaemonSet on a node.
    pub(crate) async fn pod_on(&self, number: usize) -> anyhow::Result<Pod> {
        let pods = self.pods().list(&ListParams::default()).await?;
        let name = node(number);
        let is_meant = |pod: &Pod| {
            let place = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            place == Some(&name)
                && controller_of(&pod.metadata).is_some_and(|owner| owner.name == DAEMON)
        };
        let found = pods.items.into_iter().find(is_meant);
        found.with_context(|| format!("{name} has no pod"))
    }

    /// Returns the agent's path for an action on the pod of a node.
    pub(crate) async fn path(&self, number: usize, action: &str) -> anyhow::Result<String> {
        let name = self.pod_on(number).await?.name_any();
        Ok(path(&name, action))
    }

    /// Returns the directory with this name, in which an agent stores its state.
    pub(crate) fn home(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the command that runs the agent of a node with its state in this directory.
    pub(crate) fn command(&self, node: &str, home: &str, listen: &str) -> anyhow::Result<Command> {
        let setup = Setup {
            node: node.to_owned(),
            home: self.home(home),
            manifests: self.home("manifests"),
            link: self.link.clone(),
        };
        std::fs::create_dir_all(&setup.home)?;
        let config = self.home("kubeconfig");
        std::fs::write(&config, self.world.cluster.kubeconfig(self.proxy.address))?;
        Ok(agent_command(&setup, &config, listen))
    }

    /// Starts the agent of a node with its state in this directory. Waits until the agent listens, but not until it has listed its
    /// pods.
    pub(crate) async fn agent(&self, node: &str, home: &str) -> anyhow::Result<Running> {
        let mut command = self.command(node, home, ANY_PORT)?;
        let log = self.home(&format!("{home}.log"));
        let mut process = Process::start(&mut command, log)?;
        let address = process.address().await?;
        let process = Mutex::new(process);
        Ok(Running {
            agent: Agent::at(address, process, String::new),
            address,
        })
    }

    /// Waits until the agent has saved its pods in this directory.
    pub(crate) async fn until_kept(&self, home: &str) -> anyhow::Result<()> {
        let kept = self.home(home).join("pods.json");
        for _ in 0..60 * BUSY {
            if kept.exists() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("{} is not written", kept.display())
    }

    /// Starts the agent of a node and waits until it has listed its pods.
    pub(crate) async fn ready_agent(&self, number: usize) -> anyhow::Result<Running> {
        let name = node(number);
        let running = self.agent(&name, &name).await?;
        for _ in 0..300 * BUSY {
            let answer = running.agent.call("GET", "/ready", &[]).await?;
            if answer.status == 200 {
                return Ok(running);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("the agent does not become ready")
    }

    /// Applies a fault rule to the requests of agents until the returned guard is dropped.
    pub(crate) fn fault(
        &self,
        rule: impl Fn(&RequestInfo) -> Fault + Send + Sync + 'static,
    ) -> FaultGuard {
        self.world.cluster.faults().add(move |request| {
            if is_agent(&request.user_agent) {
                rule(request)
            } else {
                Fault::Pass
            }
        })
    }

    /// Returns the number of requests that agents have sent to the API server so far, without watches.
    pub(crate) fn asked(&self) -> u64 {
        let all = self.world.cluster.requests().into_iter();
        all.filter(|count| is_agent(&count.user_agent) && count.verb != "watch")
            .map(|count| count.number)
            .sum()
    }
}

/// Returns the agent's path for an action on a pod.
pub(crate) fn path(pod: &str, action: &str) -> String {
    format!("/openyurt.io/v1/namespaces/{NAMESPACE}/pods/{pod}/{action}")
}

/// Returns the name of the cluster's node with this number.
pub(crate) fn node(number: usize) -> String {
    format!("{NAME}-{number}")
}

fn is_agent(user_agent: &str) -> bool {
    user_agent.starts_with(&Role::OtaServer.user_agent())
}
