//! `yurt-ds controller`: watches API objects, decides which pods to update, and writes the changes.
//!
//! ```text
//!  caches ──► event_handler ──► index ──► engine ──► core::decide ──► apply   (pods)
//!  (watches)                               │  ▲                    └► report  (conditions, Events)
//!         live_reads ◄─────────────────────┘  │                       └► prepull (Jobs that pull images, conditions)
//!                                             └── lease: may_write()?      also: /live /ready /metrics, permissions
//! ```
//!
//! One task owns all state. Watches and writes are separate tasks, connected to it by channels. Everything that must survive a
//! restart is in API objects, so the process may be killed at any moment.

mod advanced;
mod apply;
mod caches;
mod contest;
mod engine;
mod event_handler;
pub mod events;
mod freshness;
mod gathering;
pub mod identity;
mod in_place;
mod kinds;
pub mod lease;
mod live_reads;
pub mod log_throttle;
pub mod metrics;
mod notify;
mod outbox;
mod owner;
pub mod permissions;
mod prepull;
mod reflector;
mod refused;
mod report;
mod server;
mod step;
mod surge;
mod trace;
mod watch_groups;
mod write_backoff;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::future::OptionFuture;
use kube::Client;
use tokio::sync::mpsc;
use tracing::info;

use crate::cli::{ControllerArgs, KindName, LeaseArgs};
use crate::clock::Clock;
use crate::index::SetKind;
use crate::k8s::client::{self, Role, Source};
use crate::serve::{self, ReadinessHandle};
use crate::shutdown::{self, Shutdown};
use caches::CacheParts;
use engine::{Engine, EngineParts};
use events::Events;
use lease::{Election, ElectionParts, Settings};
use log_throttle::LogThrottle;
use metrics::Metrics;
use permissions::{DeniedPermission, Missing, PermissionNeeds};
use prepull::Puller;

pub use gathering::WakeupBatching;
pub use kinds::Kinds;
pub use notify::Notifications;
pub use trace::Traces;

/// Configuration of the controller. Tests and the simulator set their own values.
pub struct ControllerConfig {
    /// Client for the API server.
    pub client: Client,
    /// Source of time.
    pub clock: Clock,
    /// Name and namespace of this replica, and the durations of its Lease.
    pub settings: Settings,
    /// True if replicas elect a leader. Otherwise this process always leads.
    pub elects: bool,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    /// Readiness of the process, as reported by `/ready`.
    pub readiness: ReadinessHandle,
    /// Sleep of the process's thread between two checks for new messages, so that it handles several messages at once.
    pub gathering: WakeupBatching,
    /// Kinds of DaemonSets that are rolled out.
    pub kinds: Kinds,
    /// Receiver of notifications; `None`: there are no notifications.
    pub notifications: Option<Notifications>,
    /// Collector of traces; `None`: there are no traces.
    pub traces: Option<Traces>,
}

/// Runs the controller process until `shutdown` is requested: serves HTTP and rolls out DaemonSets.
///
/// `gathering` determines how long the thread of the process sleeps between two checks for messages.
///
/// # Errors
/// If the process cannot start: there are no usable credentials, a port is in use, the durations of the Lease are inconsistent,
/// or the URL for notifications or traces is unusable.
pub async fn start(
    args: ControllerArgs,
    gathering: WakeupBatching,
    shutdown: Shutdown,
) -> Result<()> {
    let source = Source {
        kubeconfig: args.kubeconfig.clone(),
        in_cluster: args.kubeconfig.is_none(),
        ..Source::default()
    };
    let metrics = Metrics::new();
    let waiting = metrics.watch_streams_waiting();
    let client = client::connect_counted(&source, Role::Controller, waiting).await?;
    let settings = settings(&args.lease, client.default_namespace())?;
    let notifications = Notifications::from_args(&args.notify)?;
    let traces = Traces::from_endpoint(args.otlp_endpoint.as_deref())?;
    let listener = serve::bind(args.listen, "--listen").await?;
    info!(address = %listener.local_addr()?, version = env!("CARGO_PKG_VERSION"), "Listening");
    let readiness = ReadinessHandle::default();
    let (end_of_serving, serving_ends) = shutdown::channel();
    let mut servers = tokio::task::JoinSet::new();
    let page = metrics.clone();
    let page = serve::MetricsPage::new(move || page.encode());
    let checked = metrics.clone();
    let checks = Arc::new(move || checked.self_checks(Clock::System.now()));
    let answers = |page| serve::ServeState {
        readiness: readiness.clone(),
        page,
        checks: checks.clone(),
    };
    servers.spawn(serve::run(
        listener,
        answers(Some(page)),
        serving_ends.clone(),
    ));
    if let Some(address) = args.probe_listen {
        let listener = serve::bind(address, "--probe-listen").await?;
        info!(address = %listener.local_addr()?, "Answering probes");
        servers.spawn(serve::run(listener, answers(None), serving_ends));
    }
    let config = ControllerConfig {
        client,
        clock: Clock::System,
        settings,
        elects: args.lease.leader_elect,
        metrics,
        readiness,
        gathering,
        kinds: kinds(&args.controllers),
        notifications,
        traces,
    };
    run(config, shutdown).await;
    end_of_serving.request();
    while servers.join_next().await.is_some() {}
    Ok(())
}

/// Runs the controller until shutdown is requested. Then finishes pending writes and releases the Lease.
pub async fn run(config: ControllerConfig, shutdown: Shutdown) {
    let ControllerConfig {
        client,
        clock,
        settings,
        elects,
        metrics,
        readiness,
        gathering,
        kinds,
        notifications,
        traces,
    } = config;
    let watched = [
        (SetKind::Native, kinds.native),
        (SetKind::Advanced, kinds.advanced),
    ];
    for (kind, _) in watched.iter().filter(|(_, is_watched)| *is_watched) {
        readiness.wait_for(kinds::resource_of(*kind));
    }
    for resource in event_handler::CLUSTER_WIDE {
        readiness.wait_for(resource);
    }
    let lease_namespace = settings.namespace.clone();
    let (identity, namespace) = (settings.identity.clone(), settings.namespace.clone());
    let log_throttle = LogThrottle::default();
    let (events, sending) =
        events::start(client.clone(), &identity, clock.clone(), metrics.clone());
    let started = notifications.map(|receiver| receiver.start(&clock, &metrics));
    let (notifier, notifying) = started.unzip();
    let started = traces.map(|collector| collector.start(&clock, &metrics));
    let (tracer, tracing) = started.unzip();
    let election = if elects {
        let parts = ElectionParts {
            settings,
            kinds,
            clock: clock.clone(),
            metrics: metrics.clone(),
            log_throttle: log_throttle.clone(),
            events: events.clone(),
            readiness: readiness.clone(),
        };
        Election::start(client.clone(), parts)
    } else {
        Election::alone(&metrics)
    };
    let leadership = election.leadership();
    let (lacking, told) = permissions::DeniedPermissions::new();
    let check = tokio::spawn(check_permissions(
        client.clone(),
        namespace,
        PermissionNeeds { elects, kinds },
        metrics.clone(),
        events.clone(),
        leadership.clone(),
        told,
    ));
    let (caches, inputs) = caches::Watches::new(CacheParts {
        client: client.clone(),
        metrics: metrics.clone(),
        log_throttle,
        lacking: lacking.clone(),
        clock: clock.clone(),
    });
    let mut watches = vec![caches.version()];
    watches.extend(kinds.native.then(|| caches.sets()));
    watches.extend(kinds.advanced.then(|| caches.advanced_sets()));
    let writer = apply::Writer::new(client.clone(), metrics.clone(), leadership.clone());
    let (written, pull_writes) = mpsc::unbounded_channel();
    let puller = Puller::start(prepull::PullerParts {
        client: client.clone(),
        writer: writer.clone(),
        leadership: leadership.clone(),
        events: events.clone(),
        metrics: metrics.clone(),
        clock: clock.clone(),
        written,
    });
    let engine = Engine::new(EngineParts {
        feed: event_handler::EventHandler::new(caches, &kinds),
        inputs,
        writer,
        puller,
        pull_writes,
        leadership,
        lookups: live_reads::Lookups::new(client),
        lacking,
        events,
        notifier,
        tracer,
        metrics,
        readiness,
        gathering,
        clock,
        lease_namespace,
    });
    engine.run(shutdown).await;
    check.abort();
    drop(watches);
    election.release().await;
    let notified = OptionFuture::from(notifying.map(|notifying| notifying.finish()));
    let traced = OptionFuture::from(tracing.map(|tracing| tracing.finish()));
    tokio::join!(sending.finish(), notified, traced);
}

/// Converts the values of `--controllers`.
fn kinds(typed: &[KindName]) -> Kinds {
    Kinds {
        native: typed.contains(&KindName::Native),
        advanced: typed.contains(&KindName::Advanced),
    }
}

/// Converts the flags of the Lease to settings. Generates an identity if none is given.
fn settings(args: &LeaseArgs, default_namespace: &str) -> Result<Settings> {
    let namespace = args.lease_namespace.as_deref();
    let settings = Settings {
        namespace: namespace.unwrap_or(default_namespace).to_owned(),
        identity: args.identity.clone().unwrap_or_else(identity::unique),
        duration: args.lease_duration,
        renew_deadline: args.lease_renew_deadline,
        renew_every: args.lease_renew_every,
    };
    settings.checked()
}

/// Time after which a replica that can't become ready reports missing permissions, even if it doesn't lead.
const UNREADY: Duration = Duration::from_secs(30);

/// Checks for missing permissions, reports them in an Event, and checks them again until they are granted.
///
/// Normally the leader reports them. A replica that can't become ready can't become the leader, so it reports them after
/// [`UNREADY`].
async fn check_permissions(
    client: Client,
    namespace: String,
    needs: PermissionNeeds,
    metrics: Arc<Metrics>,
    events: Events,
    mut leadership: tokio::sync::watch::Receiver<lease::Leadership>,
    told: tokio::sync::mpsc::UnboundedReceiver<DeniedPermission>,
) {
    let missing = permissions::missing(&client, &namespace, needs, &metrics).await;
    let leads = leadership.clone();
    let report = async {
        // Without permission to list objects, a replica never becomes ready, so it never becomes the leader. Such a replica reports
        // the missing permissions after a delay.
        let unready = async {
            if missing.keeps_unready() {
                tokio::time::sleep(UNREADY).await
            } else {
                std::future::pending().await
            }
        };
        let tells = tokio::select! {
            leads = leadership.wait_for(|now| now.may_write()) => leads.is_ok(),
            () = unready => true,
        };
        if tells && missing != Missing::default() {
            // Check the permissions again: they may have changed while this replica waited to lead.
            let missing = permissions::missing(&client, &namespace, needs, &metrics).await;
            permissions::report(&missing, &namespace, &events);
        }
    };
    let lost = |permission| {
        if leads.borrow().may_write() {
            permissions::report_lost(permission, &namespace, &events);
        }
    };
    let follow = permissions::follow(&client, &namespace, &missing, told, &metrics, lost);
    tokio::join!(report, follow);
}
