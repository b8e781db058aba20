//! Agent of a node. It connects the cache, the watch and the routes.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use http::header::IF_NONE_MATCH;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::Body;
use kube::Client;
use tokio::task::JoinHandle;

use super::actions::{Actions, Setup};
use super::answer::Answer;
use super::answer_body::AnswerBody;
use super::body;
use super::cloud::Cloud;
use super::document::{self, Document};
use super::last_sync::LastSync;
use super::origin::{self, Endpoint, RequestOrigin};
use super::pod_cache::PodCache;
use super::reply::{self, Reply};
use super::route::{Route, is_subdomain, route};
use super::state::StateStore;
use super::watch::NodeWatch;
use crate::clock::Clock;

/// Configuration of an agent.
#[derive(Clone)]
pub struct AgentConfig {
    /// Client of the API server.
    pub client: Client,
    /// Name of this node.
    pub node: String,
    /// Source of time.
    pub clock: Clock,
    /// Directory for the last known state; `None` if the state is not saved.
    pub state_dir: Option<PathBuf>,
    /// Directory from which the kubelet reads static pods.
    pub manifest_dir: PathBuf,
    /// Names that are allowed in the header `Host` in addition to loopback names.
    pub allowed_hosts: Vec<String>,
    /// Address of the TCP listener; `None` without one. The header `Host` may also contain the IP address of this listener.
    pub listen: Option<std::net::SocketAddr>,
}

/// Agent of one node. Cheap to clone: its tasks end when the last clone is dropped.
#[derive(Clone)]
pub struct Agent(Arc<Inner>);

struct Inner {
    origin: RequestOrigin,
    pod_cache: PodCache,
    last_sync: LastSync,
    actions: Actions,
    watch: JoinHandle<()>,
    guard: JoinHandle<()>,
    keeper: Option<(StateStore, JoinHandle<()>)>,
}

impl Inner {
    fn stop(&self) {
        self.watch.abort();
        self.guard.abort();
        if let Some((_, keeping)) = &self.keeper {
            keeping.abort();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Agent {
    /// Starts the agent and its watch of the node's pods.
    ///
    /// # Errors
    /// Fails if the node's name or an allowed host name is invalid.
    pub fn start(config: AgentConfig) -> Result<Self> {
        if config.node.len() > 253 || !is_subdomain(&config.node) {
            bail!(
                "{:?} is not a valid name of a node (--node-name)",
                config.node
            );
        }
        for host in &config.allowed_hosts {
            if !origin::is_name(host) {
                bail!(
                    "{host:?} is not a valid host (--allowed-host): use a name or an address without a port"
                );
            }
        }
        let pod_cache = PodCache::default();
        let cloud = Cloud::default();
        let last_sync = LastSync::new(config.clock.clone());
        let keeper = config.state_dir.map(|directory| {
            let keeper = StateStore {
                directory,
                node: config.node.clone(),
                pod_cache: pod_cache.clone(),
                last_sync: last_sync.clone(),
                written: Arc::default(),
            };
            keeper.load();
            (keeper.clone(), tokio::spawn(keeper.run()))
        });
        let watch = NodeWatch {
            client: config.client.clone(),
            node: config.node.clone(),
            pod_cache: pod_cache.clone(),
            last_sync: last_sync.clone(),
            cloud: cloud.clone(),
        };
        let actions = Actions::new(Setup {
            client: config.client,
            pod_cache: pod_cache.clone(),
            cloud,
            node: config.node,
            clock: config.clock,
            manifest_dir: config.manifest_dir,
        });
        Ok(Self(Arc::new(Inner {
            origin: RequestOrigin::new(config.listen, &config.allowed_hosts),
            pod_cache,
            last_sync,
            watch: tokio::spawn(watch.run()),
            guard: tokio::spawn(actions.clone().guard_static_pods()),
            keeper,
            actions,
        })))
    }

    /// Stops the watch and saves the last state. The agent continues to serve cached data.
    pub async fn close(&self) {
        self.0.stop();
        if let Some((keeper, _)) = &self.0.keeper {
            keeper.finish().await;
        }
    }

    /// Returns true if the watch is live, so that the cache is up to date.
    pub fn is_live(&self) -> bool {
        self.0.pod_cache.is_live()
    }

    /// Answers one request. The answer to `HEAD` has a body, which the connection does not send.
    pub async fn answer<B: Body>(&self, request: Request<B>) -> Response<AnswerBody> {
        self.answer_after(request, Endpoint::Port, || {}).await
    }

    /// Answers one request like [`Agent::answer`]. Calls `begins` after the request was read completely, before the action starts.
    pub(super) async fn answer_after<B: Body>(
        &self,
        request: Request<B>,
        endpoint: Endpoint,
        begins: impl FnOnce(),
    ) -> Reply {
        let (head, body) = request.into_parts();
        let route = match self.admit(&head, endpoint) {
            Ok(route) => route,
            Err(refusal) => return *refusal,
        };
        match body::drain(body).await {
            Ok(()) => {
                begins();
                self.act(route, &head).await
            }
            Err(answer) => reply::words(&answer),
        }
    }

    /// Returns the route of an allowed request, after all checks that don't need the body.
    fn admit(&self, head: &Parts, endpoint: Endpoint) -> Result<Route, Box<Reply>> {
        let checked = self.0.origin.check(head, endpoint);
        checked.map_err(|answer| reply::words(&answer))?;
        let (method, path) = (&head.method, head.uri.path());
        let route = route(method, path, head.uri.query())
            .map_err(|reject| Box::new(reply::reject(&reject, method, path)))?;
        let is_probe = matches!(route, Route::Live | Route::Ready);
        match endpoint {
            Endpoint::Probes if !is_probe => Err(Box::new(reply::words(&probes_only()))),
            _ => Ok(route),
        }
    }

    /// Executes the operation of a route and returns the answer.
    async fn act(&self, route: Route, head: &Parts) -> Reply {
        let actions = &self.0.actions;
        match route {
            Route::Pods => self.pods(head),
            // Box the future, because it is by far the largest. Every connection would otherwise reserve 20 KB for it.
            Route::Upgrade { key, force } => {
                reply::words(&Box::pin(actions.upgrade(&key, force)).await)
            }
            Route::ImagePull { key } => reply::words(&Box::pin(actions.image_pull(&key)).await),
            Route::Upgrades => match Box::pin(actions.upgrades()).await {
                Ok(value) => reply::json(&value),
                Err(answer) => reply::words(&answer),
            },
            // All work runs on one thread. If it hangs, the probe gets no answer, and the kubelet restarts the agent.
            Route::Live => reply::plain(StatusCode::OK, reply::TEXT, "live".to_owned()),
            Route::Ready => self.readiness(),
        }
    }

    fn pods(&self, head: &Parts) -> Reply {
        let Some(document) = self.0.pod_cache.lend().and_then(Document::from_lent) else {
            let answer = Answer::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "NothingKnownYet",
                "Get pod list failed",
            );
            return reply::words(&answer);
        };
        let asked = head.headers.get_all(IF_NONE_MATCH).iter();
        let is_known = asked
            .filter_map(|value| value.to_str().ok())
            .any(|value| document::matches(value, &document.etag));
        reply::document(document, is_known, self.0.last_sync.age())
    }

    fn readiness(&self) -> Reply {
        if self.0.pod_cache.is_known() {
            return reply::plain(StatusCode::OK, reply::TEXT, "ready".to_owned());
        }
        reply::words(&Answer::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "NothingKnownYet",
            "The pods of this node are not known yet: the API server has not responded since the agent started, and no saved \
             state exists (--state-dir)",
        ))
    }
}

/// Returns the answer of the probe port to a request that is not a probe.
fn probes_only() -> Answer {
    Answer::new(
        StatusCode::FORBIDDEN,
        "ProbesOnly",
        "This port serves only /live and /ready (--probe-listen). Use the address of --listen or the --socket",
    )
}
