//! Rollout while nodes join and leave.
//!
//! Half of the nodes leave, one at a time. They leave with an old pod, with a new pod, or during an update, and some of them have
//! just joined. A new node joins for each node that leaves. The benchmark checks the recorded changes in the order of their
//! resourceVersion. A node must never have two pods that are not terminating. At most `maxUnavailable` nodes may lack a pod because
//! of the controller. New nodes without a pod don't count.
//!
//! At the end, each node must have one new pod, and no pod of a deleted node may exist. The controller must not have listed nodes
//! or pods again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};

use super::compare::{Medians, figure};
use super::controller::Controller;
use super::history::{Entry, History, is_ready, node_of};
use super::nodes::{name, node};
use super::plane::{Plane, now, wait_within};
use super::replacing::Rollout;
use super::sets::{Sets, image};

const VERSION: &str = "v2";
/// Time between the departures of two nodes. With a thousand nodes, it is long enough that nodes leave until the rollout ends.
const PAUSE: Duration = Duration::from_millis(40);
/// Distance between the numbers of two nodes that leave one after the other. With a prime number, all nodes are reached, in an
/// irregular order.
const STRIDE: usize = 379;
/// One departure in this number is that of a node that has joined during the benchmark. All others are departures of original
/// nodes.
const SHORT_LIVED: usize = 5;
/// Interval between checks that all nodes and pods are in their final state.
const LOOK: Duration = Duration::from_secs(1);
/// Time until the audit log contains the watches of a killed controller.
const ENDED: Duration = Duration::from_secs(3);
/// Time within which the pod garbage collector must delete pods of deleted nodes. Kubernetes waits 40 s, and 20 s between checks.
const COLLECTED: Duration = Duration::from_secs(180);

/// Measures a rollout while nodes join and leave, and prints its cost.
///
/// # Errors
/// Returns an error if the rollout broke a promise.
pub(crate) async fn churn(
    binary: &Path,
    plane: &Plane,
    client: &Client,
    sets: &Sets,
    nodes: usize,
) -> Result<()> {
    let before = ended_lists(plane).await?;
    let controller = Controller::start(binary, plane, sets.kind).await?;
    sets.wait_for_reports().await?;
    drop(controller);
    let started = ended_lists(plane).await?;
    let controller = Controller::start(binary, plane, sets.kind).await?;
    sets.wait_for_reports().await?;
    let resident = controller.resident()?;
    let history = watch(client, sets.kind.name(0));
    let rollout = Rollout::until(&controller, async {
        sets.set_image(VERSION).await?;
        come_and_go(client, nodes).await?;
        sets.wait_for_new_pods(nodes).await
    })
    .await?;
    let complete = now();
    wait_within(COLLECTED, LOOK, "one new pod on each node", || {
        is_settled(client)
    })
    .await?;
    let collected = complete.elapsed().as_secs_f64();
    let after = controller.resident()?;
    drop(controller);
    let again = (ended_lists(plane).await? - started) as f64 - (started - before) as f64;
    let judge = Judge::of(&history.entries());
    let requests = rollout.usage.requests;
    let status = requests.to_status as f64 / rollout.wall;
    let figures = vec![
        figure("nodes that left, and as many joined", judge.left as f64, 0),
        figure("replaced pods", requests.deletions as f64, 0),
        figure("pods made", requests.creations as f64, 0),
        figure("most nodes down by us", judge.most_down as f64, 0),
        figure("wall time, s", rollout.wall, 1),
        figure("pods of gone nodes went after, s", collected, 0),
        figure("CPU, s", rollout.usage.cpu, 2),
        figure("RSS before, MiB", resident, 1),
        figure("peak RSS, MiB", rollout.peak, 1),
        figure("RSS after, MiB", after, 1),
        figure("API requests", requests.all as f64, 0),
        figure("status writes per second", status, 2),
        figure("lists of nodes and pods, beyond a start", again, 0),
    ];
    let title = format!("{}, {nodes} nodes, 10 %, churn", sets.kind.title());
    Medians::of_one(figures).print(&title);
    let broken = judge.broken.join("\n");
    ensure!(broken.is_empty(), "a promise was broken:\n{broken}");
    ensure!(
        again == 0.0,
        "the controller has listed nodes or pods again"
    );
    Ok(())
}

/// Returns the number of LIST requests by controllers that have ended.
async fn ended_lists(plane: &Plane) -> Result<usize> {
    tokio::time::sleep(ENDED).await;
    Ok(plane.requests("controller", "")?.lists)
}

/// Removes half of the nodes and adds the same number of new ones.
async fn come_and_go(client: &Client, nodes: usize) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    for turn in 0..nodes / 2 {
        let leaves = match turn.checked_sub(SHORT_LIVED) {
            Some(joined) if turn.is_multiple_of(SHORT_LIVED) => nodes + joined,
            _ => turn * STRIDE % nodes,
        };
        api.delete(&name(leaves), &DeleteParams::default()).await?;
        api.create(&PostParams::default(), &node(nodes + turn))
            .await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Returns true if each node has one new, Ready pod, and there are no other pods.
async fn is_settled(client: &Client) -> Result<bool> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list_metadata(&ListParams::default()).await?.items;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pods = pods.list(&ListParams::default()).await?.items;
    let new = image(VERSION);
    let is_new = |pod: &Pod| {
        let spec = pod.spec.as_ref();
        spec.is_some_and(|spec| spec.containers[0].image.as_ref() == Some(&new))
    };
    let good = pods.iter().filter(|pod| is_new(pod) && is_ready(pod));
    let served: BTreeSet<String> = good.filter_map(node_of).collect();
    let is_served = |name: String| served.contains(&name);
    Ok(pods.len() == nodes.len() && nodes.iter().map(ResourceExt::name_any).all(is_served))
}

/// Recorded change of an object.
#[derive(Clone)]
enum Fact {
    Node(String),
    NodeGone(String),
    Pod(PodFact),
    PodGone(String),
}

#[derive(Clone)]
struct PodFact {
    uid: String,
    node: String,
    ready: bool,
    terminating: bool,
}

/// Starts to record changes of the nodes and of the pods with this label.
fn watch(client: &Client, app: String) -> History<Fact> {
    let mut history = History::new();
    history.watch(Api::all(client.clone()), |node: &Node, gone| {
        let name = node.name_any();
        Some(if gone {
            Fact::NodeGone(name)
        } else {
            Fact::Node(name)
        })
    });
    history.watch(
        Api::default_namespaced(client.clone()),
        move |pod: &Pod, gone| {
            let uid = pod.uid()?;
            if gone {
                return Some(Fact::PodGone(uid));
            }
            let node = node_of(pod).filter(|_| pod.labels().get("app") == Some(&app))?;
            Some(Fact::Pod(PodFact {
                uid,
                node,
                ready: is_ready(pod),
                terminating: pod.metadata.deletion_timestamp.is_some(),
            }))
        },
    );
    history
}

/// Checks the recorded changes of a rollout.
#[derive(Default)]
struct Judge {
    nodes: BTreeSet<String>,
    pods: BTreeMap<String, PodFact>,
    /// Nodes that lack a Ready pod because of the controller. Their Ready pod was ended while the Node existed, and only the
    /// controller deletes pods of existing nodes.
    taken: BTreeSet<String>,
    /// Time at which the change under check was received.
    at: Duration,
    left: usize,
    most_down: usize,
    broken: Vec<String>,
}

impl Judge {
    fn of(entries: &[Entry<Fact>]) -> Self {
        let mut judge = Self::default();
        for entry in entries {
            judge.at = entry.at;
            judge.take(&entry.fact);
        }
        judge
    }

    fn take(&mut self, fact: &Fact) {
        match fact {
            Fact::Node(name) => {
                self.nodes.insert(name.clone());
            }
            Fact::NodeGone(name) => {
                self.left += usize::from(self.nodes.remove(name));
                self.taken.remove(name);
            }
            Fact::Pod(pod) => {
                let before = self.pods.insert(pod.uid.clone(), pod.clone());
                if pod.terminating {
                    self.note_end(before);
                }
                self.look_at(&pod.node);
            }
            Fact::PodGone(uid) => {
                let before = self.pods.remove(uid);
                self.note_end(before);
            }
        }
    }

    /// Records that a pod has ended or begun to terminate. `before` is its previous state.
    fn note_end(&mut self, before: Option<PodFact>) {
        let Some(pod) = before.filter(|pod| pod.ready && !pod.terminating) else {
            return;
        };
        if !self.nodes.contains(&pod.node) {
            return;
        }
        self.taken.insert(pod.node);
        let (down, allowed) = (self.taken.len(), self.nodes.len().div_ceil(10));
        self.most_down = self.most_down.max(down);
        if down > allowed {
            let said = format!("{down} nodes have no pod by our doing, {allowed} may");
            self.broken
                .push(format!("after {:.1} s {said}", self.at.as_secs_f64()));
        }
    }

    /// Checks the pods of a node after one of them changed.
    fn look_at(&mut self, node: &str) {
        let here = self.pods.values().filter(|pod| pod.node == node);
        let staying: Vec<&PodFact> = here.filter(|pod| !pod.terminating).collect();
        if staying.len() > 1 {
            let said = format!("{node} has {} pods that stay", staying.len());
            self.broken
                .push(format!("after {:.1} s {said}", self.at.as_secs_f64()));
        }
        if staying.iter().any(|pod| pod.ready) {
            self.taken.remove(node);
        }
    }
}
