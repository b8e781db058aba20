//! Story steps about the node agents: they start an agent, send requests to it, or cut its connection to the API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::join_all;
use kube::ResourceExt;
use serde_json::Value;
use tokio::time::Instant;

use super::agents::{Agent, Answer, Setup};
use super::link::{Asked, Link, Way};
use super::machine::BUSY;
use super::picture::{Picture, uid};
use super::player::Stage;
use super::said::{Names, Said, Shown, a_pod_list};
use super::story::{Step, Story, secs};

/// Directory below the agents' home directory for the manifests of static pods.
const MANIFESTS: &str = "manifests";

/// Time for which a story repeats a request that got status 503. On a busy machine, a real API server may respond too late for the
/// agent.
const SERVER_PATIENCE: Duration = Duration::from_secs(120);

/// Path under which agents serve pods, with a placeholder of [`Said`].
pub(crate) const PODS: &str = "/openyurt.io/v1/namespaces/{ns}/pods";

/// Action on an agent, or request to it, as a step of a story.
#[derive(Clone)]
pub(crate) enum Ask {
    /// Starts the agent of this node. A running one is killed first.
    Start(usize),
    /// Changes the state of the link between a node's agent and the API server.
    Way(usize, Way),
    /// Waits until the response to `GET /pods` is as expected.
    Shows(usize, Shown),
    /// Checks that the response to `GET /pods` is as expected now.
    ShowsNow(usize, Shown),
    /// Sends an agent a POST request for the pod of a node, usually the agent's own node.
    Post {
        agent: usize,
        pod_of: usize,
        action: &'static str,
        said: Said,
        /// Time for which the request is repeated if the response is not as expected.
        patience: Duration,
    },
    /// Sends an agent any request. The path may contain the placeholders of [`Said`]; they refer to the pod of the agent's node.
    Call {
        agent: usize,
        method: &'static str,
        path: String,
        said: Said,
    },
    /// Sends a node's agent the same POST request for its pod several times in parallel. The values are the node, the action, the
    /// number of requests, and the allowed responses.
    Parallel(usize, &'static str, usize, Vec<Said>),
    /// Stores the number of requests that each agent has sent to the API server so far.
    CountCalls,
    /// Checks the number of requests, without watches, that the node's agent has sent to the API server since
    /// [`Self::CountCalls`].
    Calls(usize, usize),
    /// Checks the number of deletions that the node's agent has requested since [`Self::CountCalls`].
    AskedDeletions(usize, usize),
}

impl Story {
    /// Starts the agent of a node. A running one is killed first.
    pub(crate) fn agent(self, node: usize) -> Self {
        self.step(Step::Ask(Ask::Start(node)))
    }

    /// Changes the state of the link between a node's agent and the API server.
    pub(crate) fn way(self, node: usize, way: Way) -> Self {
        self.step(Step::Ask(Ask::Way(node, way)))
    }

    /// Waits until the response to `GET /pods` is as expected.
    pub(crate) fn shows(self, node: usize, shown: Shown) -> Self {
        self.step(Step::Ask(Ask::Shows(node, shown)))
    }

    /// Checks that the response to `GET /pods` is as expected now.
    pub(crate) fn shows_now(self, node: usize, shown: Shown) -> Self {
        self.step(Step::Ask(Ask::ShowsNow(node, shown)))
    }

    /// Sends a node's agent a POST request for the pod of that node, and compares the response.
    pub(crate) fn post(self, node: usize, action: &'static str, said: Said) -> Self {
        self.post_for(node, node, action, said)
    }

    /// Sends an agent a POST request for the pod of another node, and compares the response.
    pub(crate) fn post_for(
        self,
        agent: usize,
        pod_of: usize,
        action: &'static str,
        said: Said,
    ) -> Self {
        self.step(Step::Ask(Ask::Post {
            agent,
            pod_of,
            action,
            said,
            patience: Duration::ZERO,
        }))
    }

    /// Repeats a POST request until the response is as expected.
    pub(crate) fn post_until(self, node: usize, action: &'static str, said: Said) -> Self {
        self.step(Step::Ask(Ask::Post {
            agent: node,
            pod_of: node,
            action,
            said,
            patience: secs(6) * BUSY,
        }))
    }

    /// Sends any request to the agent of a node and compares the response.
    pub(crate) fn call(self, agent: usize, method: &'static str, path: &str, said: Said) -> Self {
        let path = path.to_owned();
        self.step(Step::Ask(Ask::Call {
            agent,
            method,
            path,
            said,
        }))
    }

    /// Sends the same POST request `times` times in parallel. Each response must be one of `said`, and at least one must be the
    /// first one of `said`.
    pub(crate) fn post_at_once(
        self,
        node: usize,
        action: &'static str,
        times: usize,
        said: impl IntoIterator<Item = Said>,
    ) -> Self {
        let said = said.into_iter().collect();
        self.step(Step::Ask(Ask::Parallel(node, action, times, said)))
    }

    /// Resets the counts of the agents' requests to the API server to zero.
    pub(crate) fn count_calls(self) -> Self {
        self.step(Step::Ask(Ask::CountCalls))
    }

    /// Checks the number of requests, without watches, that the node's agent has sent to the API server since
    /// [`Self::count_calls`].
    pub(crate) fn calls(self, node: usize, expected: usize) -> Self {
        self.step(Step::Ask(Ask::Calls(node, expected)))
    }

    /// Checks the number of deletions that the node's agent has requested since [`Self::count_calls`].
    pub(crate) fn asked_deletions(self, node: usize, expected: usize) -> Self {
        self.step(Step::Ask(Ask::AskedDeletions(node, expected)))
    }
}

/// Agents of a story's nodes, with their directories and links. Clones share them.
#[derive(Clone)]
pub(crate) struct Agents {
    running: Arc<Mutex<BTreeMap<usize, Agent>>>,
    links: Arc<Mutex<BTreeMap<usize, Link>>>,
    counted: Arc<Mutex<BTreeMap<usize, Asked>>>,
    homes: Arc<tempfile::TempDir>,
}

impl Agents {
    /// Returns a set of agents, none of which runs.
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            running: Arc::default(),
            links: Arc::default(),
            counted: Arc::default(),
            homes: Arc::new(tempfile::tempdir()?),
        })
    }

    /// Returns the home directory of a node's agent. The agent's state there survives restarts.
    pub(crate) fn home(&self, node: usize) -> std::path::PathBuf {
        self.homes.path().join(node.to_string())
    }

    /// Returns the directory of a node's static pod manifests.
    pub(crate) fn manifests(&self, node: usize) -> std::path::PathBuf {
        self.homes.path().join(MANIFESTS).join(node.to_string())
    }

    /// Returns a client for the running agent of a node.
    pub(crate) fn of(&self, node: usize) -> anyhow::Result<Agent> {
        let found = lock(&self.running).get(&node).cloned();
        found.with_context(|| format!("no agent runs on node {node}"))
    }

    /// Returns the link between a node's agent and the API server. A restarted agent uses the same link.
    pub(crate) fn link(&self, node: usize) -> Link {
        lock(&self.links).entry(node).or_default().clone()
    }

    /// Kills all agents.
    pub(crate) fn end(&self) {
        lock(&self.running).clear();
    }

    /// Returns the ends of the logs of all running agents.
    pub(crate) fn logs(&self) -> String {
        let running = lock(&self.running);
        let logs = running
            .iter()
            .map(|(node, agent)| (node, agent.log()))
            .filter(|(_, log)| !log.is_empty());
        logs.map(|(node, log)| format!("\n--- agent of node {node}\n{log}"))
            .collect()
    }
}

impl Stage {
    /// Performs a step about an agent and compares the responses.
    pub(crate) async fn ask(&self, ask: &Ask) -> Result<(), String> {
        let asked = match ask {
            Ask::Start(node) => self.start_agent(*node).await,
            Ask::Way(node, way) => {
                self.agents.link(*node).set(*way);
                Ok(())
            }
            Ask::Shows(node, shown) => self.shows(*node, shown).await,
            Ask::ShowsNow(node, shown) => self.shows_now(*node, shown).await,
            Ask::Post {
                agent,
                pod_of,
                action,
                said,
                patience,
            } => self.post(*agent, *pod_of, action, said, *patience).await,
            Ask::Call {
                agent,
                method,
                path,
                said,
            } => self.call(*agent, method, path, said).await,
            Ask::Parallel(node, action, times, said) => {
                self.at_once(*node, action, *times, said).await
            }
            Ask::CountCalls => self.count_calls().await,
            Ask::Calls(node, expected) => self.compare_calls(*node, *expected, |_| true).await,
            Ask::AskedDeletions(node, expected) => {
                self.compare_calls(*node, *expected, |verb| verb == "delete")
                    .await
            }
        };
        asked.map_err(|error| format!("{error:#}"))
    }

    /// Starts the agent of a node. A running one is killed first.
    pub(crate) async fn start_agent(&self, node: usize) -> anyhow::Result<()> {
        lock(&self.agents.running).remove(&node);
        let setup = Setup {
            node: self.node(node),
            home: self.agents.home(node),
            manifests: self.agents.manifests(node),
            link: self.agents.link(node),
        };
        std::fs::create_dir_all(&setup.home)?;
        std::fs::create_dir_all(&setup.manifests)?;
        let agent = self.world.backend.agent(setup).await?;
        lock(&self.agents.running).insert(node, agent);
        Ok(())
    }

    async fn shows(&self, node: usize, shown: &Shown) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(3) * BUSY;
        loop {
            let found = self.shows_now(node, shown).await;
            if found.is_ok() || Instant::now() > deadline {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn shows_now(&self, node: usize, shown: &Shown) -> anyhow::Result<()> {
        let answer = self.agents.of(node)?.call("GET", "/pods", &[]).await?;
        let text = answer.text();
        ensure!(answer.status == 200, "{} {text}", answer.status);
        let kind = answer.header("content-type");
        ensure!(kind == "application/json", "the Content-Type is {kind:?}");
        let list: Value = serde_json::from_slice(&answer.body).context("the answer is no JSON")?;
        let name = self.node(node);
        let look = |picture: &Picture| {
            a_pod_list().holds(&list, picture, &name)?;
            shown.holds(&list, picture, &name)
        };
        let found = self.see(look).await;
        found.map_err(|why| anyhow::anyhow!("GET /pods does not show {}: {why}", shown.name))
    }

    async fn names(&self, node: usize) -> anyhow::Result<(Names, String)> {
        let pod = self.any_pod_on(node).await?;
        let hash = self.see(|picture| picture.current().cloned()).await;
        let names = Names {
            namespace: self.name.clone(),
            pod: pod.name_any(),
            node: self.node(node),
            hash: hash.unwrap_or_default(),
        };
        Ok((names, uid(&pod.metadata)))
    }

    async fn post(
        &self,
        agent: usize,
        pod_of: usize,
        action: &str,
        said: &Said,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let (names, uid) = self.names(pod_of).await?;
        let wished = action.starts_with("upgrade") && said.is_success();
        if wished {
            self.look(|picture| picture.wish(&uid)).await;
        }
        let path = names.fill(&format!("{PODS}/{{pod}}/{action}"));
        let begun = Instant::now();
        loop {
            let answer = self.agents.of(agent)?.call("POST", &path, &[]).await?;
            let found = compare(said, &answer, &names);
            // On a busy machine, an API server may take longer than the two seconds for which an agent waits. The agent then
            // responds 503.
            let patience = match answer.status.as_u16() {
                503 => patience.max(self.world.pace.pick(Duration::ZERO, SERVER_PATIENCE)),
                _ => patience,
            };
            if found.is_ok() || begun.elapsed() >= patience {
                if wished && answer.status != 200 {
                    self.look(|picture| picture.withdraw(&uid)).await;
                }
                return found.with_context(|| format!("POST {path}"));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn call(
        &self,
        agent: usize,
        method: &str,
        path: &str,
        said: &Said,
    ) -> anyhow::Result<()> {
        let names = match self.names(agent).await {
            Ok((names, _)) => names,
            Err(_) => Names::default(),
        };
        let path = names.fill(path);
        let answer = self.agents.of(agent)?.call(method, &path, &[]).await?;
        compare(said, &answer, &names).with_context(|| format!("{method} {path}"))
    }

    async fn at_once(
        &self,
        node: usize,
        action: &str,
        times: usize,
        said: &[Said],
    ) -> anyhow::Result<()> {
        let (names, uid) = self.names(node).await?;
        self.look(|picture| picture.wish(&uid)).await;
        let path = names.fill(&format!("{PODS}/{{pod}}/{action}"));
        let agent = self.agents.of(node)?;
        let answers = join_all((0..times).map(|_| agent.call("POST", &path, &[]))).await;
        let mut first = 0;
        for answer in answers {
            let answer = answer?;
            let fits = |said: &Said| said.compare(&answer, &names).is_ok();
            let (status, text) = (answer.status, answer.text());
            ensure!(said.iter().any(fits), "{status} {text}");
            first += usize::from(said.first().is_some_and(fits));
        }
        ensure!(first > 0, "none of {times} calls succeeded");
        Ok(())
    }

    /// Waits until the API server has counted all requests so far.
    async fn settle(&self) {
        let time = self
            .world
            .pace
            .pick(Duration::from_millis(100), Duration::from_secs(1));
        tokio::time::sleep(time).await;
    }

    async fn count_calls(&self) -> anyhow::Result<()> {
        self.settle().await;
        let nodes: Vec<usize> = lock(&self.agents.running).keys().copied().collect();
        for node in nodes {
            let asked = self.world.backend.asked(&self.node(node))?;
            lock(&self.agents.counted).insert(node, asked);
        }
        Ok(())
    }

    async fn compare_calls(
        &self,
        node: usize,
        expected: usize,
        counts: impl Fn(&str) -> bool,
    ) -> anyhow::Result<()> {
        self.settle().await;
        let asked = self.world.backend.asked(&self.node(node))?;
        let before = lock(&self.agents.counted).get(&node).cloned();
        let before = before.unwrap_or_default();
        let new: Vec<_> = asked
            .iter()
            .filter(|((verb, _), _)| counts(verb))
            .map(|(what, count)| (what, count - before.get(what).unwrap_or(&0)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let found: usize = new.iter().map(|(_, count)| count).sum();
        ensure!(
            found == expected,
            "{found} requests to the API server instead of {expected}: {new:?}"
        );
        Ok(())
    }
}

fn compare(said: &Said, answer: &Answer, names: &Names) -> anyhow::Result<()> {
    said.compare(answer, names).map_err(anyhow::Error::msg)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
