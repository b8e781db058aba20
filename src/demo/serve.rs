//! `yurt-ds sim serve`: serves an embedded cluster in real time, for kubectl and other Kubernetes clients.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::cli::node::SERVER;
use crate::cli::sim::{BadRevision, ServeArgs};
use crate::clock::Clock;
use crate::demo::agents;
use crate::demo::{first_daemonset, screen};
use crate::ota_server;
use crate::shutdown::{self, Shutdown};
use crate::sim::cluster::{Cluster, FaultGuard};
use crate::sim::kubelet::{self, Behaviour, FakeNodeSpec, Kubelets, Outage};
use crate::sim::world::{World, WorldSetup};
use crate::task::Task;

/// Annotation of a Node. With the value `true`, the kubelet of the node is offline; otherwise it is online.
pub const OFFLINE_ANNOTATION: &str = "sim.yurt-ds.io/offline";

/// Commands that are printed at the start. They take a node offline, change the image, show the update of the other nodes, and
/// bring the node back.
const FIRST_STEPS: &str = "
  kubectl annotate node edge-2 sim.yurt-ds.io/offline=true
  kubectl set image ds/nginx-daemonset nginx=nginx:1.19.5
  kubectl get pods -o wide --watch                             # and: yurt-ds ctl status nginx-daemonset
  kubectl annotate node edge-2 sim.yurt-ds.io/offline-         # 30s later its pod is updated

";

/// Serves the cluster until shutdown is requested.
///
/// # Errors
///
/// Fails if the port is in use, the kubeconfig cannot be written, or the cluster cannot start.
pub async fn run(args: ServeArgs, mut shutdown: Shutdown) -> Result<ExitCode> {
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    let names: Vec<String> = (1..=args.nodes)
        .map(|number| format!("edge-{number}"))
        .collect();
    let door = match &args.ota_server {
        Some(node) => Some(AgentAddress::open(node, &names, args.ota_listen).await?),
        None => None,
    };
    let usual = Behaviour {
        pull: args.pull,
        ..Behaviour::default()
    };
    let world = World::start(WorldSetup {
        clock: Clock::System,
        seed: args.seed,
        kubelets: kubelet::KubeletOptions {
            behaviour: usual.clone(),
            offline: Outage::MARKED,
            lease: Some(Duration::from_secs(10)),
            jitter: Duration::from_millis(300),
            seed: args.seed,
            ..kubelet::KubeletOptions::default()
        },
        controller: !args.no_controller,
        advanced: true,
    });
    let nodes = names.iter().map(FakeNodeSpec::named).collect();
    world.kubelets.add_nodes(nodes).await?;
    for bad in BadRevision::value_variants() {
        let name = bad
            .to_possible_value()
            .context("a way to fail without a name")?;
        let images = format!("*:{}", name.get_name());
        let behaviour = bad.apply(usual.clone());
        world.kubelets.behaviour(&images, behaviour).await?;
    }
    if !args.empty {
        create_first(&world.client()).await?;
    }
    let cluster = world.cluster.clone();
    let _steering = Task::spawn(steer(cluster, world.client(), world.kubelets.clone()));
    let file = args.kubeconfig_out.clone();
    let file = file.unwrap_or_else(|| temporary(address));
    write_private(&file, &world.cluster.kubeconfig(address))?;
    let (end, mut ended) = shutdown::channel();
    let cluster = world.cluster.clone();
    let agent_ended = ended.clone();
    let server = tokio::spawn(async move { cluster.serve(listener, ended.requested()).await });
    screen::write(&welcome(address, &file, &args));
    let agent = match door {
        Some(door) => {
            screen::write(&door.welcome());
            Some(door.serve(&world, agent_ended).await?)
        }
        None => None,
    };
    shutdown.requested().await;
    end.request();
    if let Some(agent) = agent {
        agent.await.context("the ota-server")?;
    }
    world.finish().await;
    server
        .await
        .context("the server")?
        .context("cannot serve")?;
    Ok(ExitCode::SUCCESS)
}

/// Node with an ota-server, and the listener for its owner.
struct AgentAddress {
    node: String,
    listener: TcpListener,
    address: SocketAddr,
}

impl AgentAddress {
    /// Opens the listener of a node's ota-server.
    ///
    /// # Errors
    ///
    /// Fails if the node does not exist or the port is in use.
    async fn open(node: &str, nodes: &[String], listen: SocketAddr) -> Result<Self> {
        if !nodes.iter().any(|name| name == node) {
            bail!(
                "--ota-server {node}: there is no such node; use one of edge-1 to edge-{}",
                nodes.len()
            );
        }
        let listener = TcpListener::bind(listen).await;
        let listener =
            listener.with_context(|| format!("cannot listen on {listen} (--ota-listen)"))?;
        Ok(Self {
            node: node.to_owned(),
            address: listener.local_addr()?,
            listener,
        })
    }

    /// Starts the node's ota-server, which serves until shutdown is requested.
    async fn serve(self, world: &World, ended: Shutdown) -> Result<JoinHandle<()>> {
        let agent = agents::start(&world.cluster, &world.clock, &self.node, Some(self.address))?;
        Ok(tokio::spawn(ota_server::serve(self.listener, agent, ended)))
    }

    fn welcome(&self) -> String {
        format!(
            "The ota-server of {} answers at http://{}. Under update-strategy OTA its owner decides:\n\n  \
             kubectl annotate ds nginx-daemonset apps.openyurt.io/update-strategy=OTA --overwrite\n  \
             yurt-ds ctl pods{}\n\n",
            self.node,
            self.address,
            match format!("http://{}", self.address) {
                address if address == SERVER => String::new(),
                address => format!(" --server {address}"),
            }
        )
    }
}

/// Returns the path of a kubeconfig in the temporary directory. The file name has the port.
fn temporary(address: SocketAddr) -> PathBuf {
    std::env::temp_dir().join(format!("yurt-ds-sim-{}.kubeconfig", address.port()))
}

/// Writes a file that only the current user can read, because a kubeconfig may have credentials.
fn write_private(file: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let what = || format!("cannot write the kubeconfig to {}", file.display());
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(file).with_context(what)?;
    file.write_all(text.as_bytes()).with_context(what)
}

fn welcome(address: SocketAddr, file: &Path, args: &ServeArgs) -> String {
    let mut text = format!(
        "A cluster with {} nodes runs at http://{address} until Ctrl-C. In another terminal:\n\n  export KUBECONFIG={}\n",
        args.nodes,
        file.display()
    );
    text += if args.empty {
        "  kubectl get nodes\n"
    } else {
        FIRST_STEPS
    };
    text
}

/// Creates the DaemonSet of the play with offline nodes, with the image before the change.
async fn create_first(client: &Client) -> Result<()> {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), "default");
    let set = serde_json::from_value(first_daemonset()).context("the first DaemonSet")?;
    let created = sets.create(&PostParams::default(), &set).await;
    created.map(drop).context("create the first DaemonSet")
}

/// Watches the nodes, and takes each node offline or online according to [`OFFLINE_ANNOTATION`]. Also disconnects the agent of an
/// offline node.
async fn steer(cluster: Cluster, client: Client, kubelets: Kubelets) {
    let nodes: Api<Node> = Api::all(client);
    let mut offline: BTreeMap<String, FaultGuard> = BTreeMap::new();
    let mut events = std::pin::pin!(
        watcher(nodes, watcher::Config::default())
            .default_backoff()
            .applied_objects()
    );
    while let Some(event) = events.next().await {
        let Ok(node) = event else {
            continue;
        };
        let name = node.name_any();
        let wanted = node
            .annotations()
            .get(OFFLINE_ANNOTATION)
            .map(String::as_str)
            == Some("true");
        let steered = match (wanted, offline.contains_key(&name)) {
            (true, false) => {
                offline.insert(name.clone(), agents::cut(&cluster, &name));
                kubelets.set_offline(&name, Outage::MARKED).await
            }
            (false, true) => {
                offline.remove(&name);
                kubelets.set_online(&name).await
            }
            _ => Ok(()),
        };
        if let Err(error) = steered {
            tracing::warn!(node = name, %error, "Cannot control this node");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn world() -> World {
        let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
        World::start(WorldSetup {
            clock: Clock::starting_at(epoch),
            seed: 1,
            kubelets: kubelet::KubeletOptions::default(),
            controller: true,
            advanced: true,
        })
    }

    async fn ready_becomes(nodes: &Api<Node>, name: &str, wanted: &str) {
        let ready = |node: &Node| {
            let conditions = node.status.clone().unwrap_or_default().conditions;
            let mut ready = conditions.into_iter().flatten();
            ready.any(|one| one.type_ == "Ready" && one.status == wanted)
        };
        let waiting = async {
            while !ready(&nodes.get(name).await.unwrap()) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        waited.unwrap_or_else(|_| panic!("{name} never becomes Ready={wanted}"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_annotation_takes_a_node_offline_and_back() {
        let world = world();
        world
            .kubelets
            .add_node(FakeNodeSpec::named("edge-1"))
            .await
            .unwrap();
        let cluster = world.cluster.clone();
        let _steering = Task::spawn(steer(cluster, world.client(), world.kubelets.clone()));
        let agent = world.cluster.client(&agents::user_agent("edge-1"));
        let nodes: Api<Node> = Api::all(world.client());
        for (value, ready) in [(json!("true"), "Unknown"), (json!(null), "True")] {
            let patch = json!({ "metadata": { "annotations": { OFFLINE_ANNOTATION: value } } });
            let patch = kube::api::Patch::Merge(patch);
            nodes
                .patch("edge-1", &Default::default(), &patch)
                .await
                .unwrap();
            ready_becomes(&nodes, "edge-1", ready).await;
            let answered = agent.apiserver_version().await.is_ok();
            assert_eq!(answered, ready == "True", "the agent, while Ready={ready}");
        }
        world.finish().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_daemonset_rolls_out() {
        let world = world();
        world
            .kubelets
            .add_node(FakeNodeSpec::named("edge-1"))
            .await
            .unwrap();
        create_first(&world.client()).await.unwrap();
        let sets: Api<DaemonSet> = Api::namespaced(world.client(), "default");
        let complete = async {
            loop {
                let set = sets.get("nginx-daemonset").await.unwrap();
                let conditions = set
                    .status
                    .unwrap_or_default()
                    .conditions
                    .unwrap_or_default();
                let complete = |one: &k8s_openapi::api::apps::v1::DaemonSetCondition| {
                    one.type_ == "RolloutComplete" && one.status == "True"
                };
                if conditions.iter().any(complete) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), complete)
            .await
            .unwrap();
    }

    #[test]
    fn the_kubeconfig_is_readable_only_by_its_owner() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        write_private(&file, "{}").unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let error = write_private(&folder.path().join("no/where"), "").unwrap_err();
        assert!(format!("{error:#}").contains("no/where"), "{error:#}");
    }

    #[tokio::test]
    async fn the_agent_of_an_unknown_node_is_refused_with_the_known_names() {
        let nodes = ["edge-1".to_owned(), "edge-2".to_owned()];
        let anywhere = "127.0.0.1:0".parse().unwrap();
        let error = AgentAddress::open("edge-9", &nodes, anywhere)
            .await
            .err()
            .unwrap();
        assert!(error.to_string().contains("edge-1 to edge-2"), "{error}");
        let door = AgentAddress::open("edge-2", &nodes, anywhere)
            .await
            .unwrap();
        let taken = AgentAddress::open("edge-1", &nodes, door.address)
            .await
            .err()
            .unwrap();
        assert!(format!("{taken:#}").contains("--ota-listen"), "{taken:#}");
        assert!(
            door.welcome()
                .contains(&format!("ctl pods --server http://{}", door.address))
        );
    }
}
