//! The controller: caches, an index, `decide`, and one writer among the replicas.
//!
//! ```text
//!   watches ─► index ─► Fleet ─► decide ─► apply ─► status, Events, metrics
//!                                            ▲
//!                           lease: may_write()?      beside it: /live /ready /metrics, the permission check
//! ```

pub mod events;
pub mod identity;
pub mod lease;
pub mod metrics;
pub mod permissions;

use std::sync::Arc;

use anyhow::Result;
use kube::Client;
use tracing::info;

use crate::cli::{ControllerArgs, LeaseArgs};
use crate::client::{self, Role, Source};
use crate::clock::Clock;
use crate::serve::{self, Readiness};
use crate::shutdown::{self, Shutdown};
use events::Events;
use lease::{Election, Settings};
use metrics::Metrics;

/// Runs until the end is asked for, then finishes what it began and gives the Lease back.
///
/// # Errors
/// When it cannot start: no usable credentials, a port that is taken, durations that do not fit.
pub async fn run(args: ControllerArgs, mut shutdown: Shutdown) -> Result<()> {
    let source = Source {
        kubeconfig: args.kubeconfig.clone(),
        in_cluster: args.kubeconfig.is_none(),
        ..Source::default()
    };
    let client = client::connect(&source, Role::Controller).await?;
    let settings = settings(&args.lease, client.default_namespace())?;
    let listener = serve::bind(args.listen).await?;
    info!(address = %listener.local_addr()?, version = env!("CARGO_PKG_VERSION"), "Listening");

    let clock = Clock::System;
    let metrics = Metrics::new();
    let readiness = Readiness::default();
    let page = metrics.clone();
    let state = serve::State {
        readiness: readiness.clone(),
        metrics: Arc::new(move || page.encode()),
    };
    let (end_of_serving, serving_ends) = shutdown::channel();
    let server = tokio::spawn(serve::run(listener, state, serving_ends));

    let identity = settings.identity.clone();
    let namespace = settings.namespace.clone();
    let election = if args.lease.leader_elect {
        Election::start(client.clone(), settings, clock.clone(), metrics.clone())
    } else {
        Election::alone(&metrics)
    };
    let (events, sending) =
        events::start(client.clone(), &identity, clock.clone(), metrics.clone());
    let check = tokio::spawn(check_permissions(
        client.clone(),
        namespace,
        args.lease.leader_elect,
        metrics.clone(),
        events.clone(),
        election.leadership(),
    ));

    shutdown.requested().await;
    check.abort();
    election.release().await;
    drop(events);
    sending.finish().await;
    end_of_serving.request();
    let _ended = server.await;
    Ok(())
}

/// What was typed about the Lease, completed by what the machine knows.
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

/// Looks once for missing permissions; the leader says so in an Event.
async fn check_permissions(
    client: Client,
    namespace: String,
    elects: bool,
    metrics: Arc<Metrics>,
    events: Events,
    mut leadership: tokio::sync::watch::Receiver<lease::Leadership>,
) {
    let missing = permissions::missing(&client, &namespace, elects, &metrics).await;
    if leadership.wait_for(|now| now.may_write()).await.is_ok() {
        permissions::report(&missing, &namespace, &events);
    }
}
