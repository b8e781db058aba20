//! Complete cluster in one process: API server, native controllers, kubelets and, optionally, the yurt-ds controller.
//!
//! ```text
//!                    ┌─ scheduler, DaemonSets, Jobs, node lifecycle, garbage collection   (as in any cluster)
//! Cluster (API) ◄────┼─ fake kubelets
//!                    └─ controller::run                                                   (the real one)
//! ```

use std::time::Duration;

use kube::Client;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::controller::{self, lease, metrics};
use crate::k8s::client::Role;
use crate::serve::ReadinessHandle;
use crate::shutdown;
use crate::sim::cluster::{self, Cluster};
use crate::sim::kubelet::{self, Kubelets};
use crate::sim::pulse::SilentNodes;
use crate::sim::{daemonset, gc, job, node_lifecycle, scheduler};
use crate::task::Task;

/// User agent of the native controllers.
const NATIVE: &str = "kube-controller-manager (sim)";

/// Time for which the native DaemonSet controller collects changes, so that a thousand changed pods don't cause a thousand syncs.
const GATHER: Duration = Duration::from_millis(20);

/// Settings with which a world is started.
#[derive(Clone, Debug)]
pub struct WorldSetup {
    /// Source of the time.
    pub clock: Clock,
    /// Seed from which generated names and random decisions are derived.
    pub seed: u64,
    /// Options of the fake kubelets. `pulse` is set automatically.
    pub kubelets: kubelet::KubeletOptions,
    /// True to run the yurt-ds controller.
    pub controller: bool,
    /// True to serve Advanced DaemonSets.
    pub advanced: bool,
}

/// Running cluster. Dropping it stops all parts immediately.
pub struct World {
    /// API server of the cluster.
    pub cluster: Cluster,
    /// Handle to the fake kubelets.
    pub kubelets: Kubelets,
    /// Clock that all parts of the world use.
    pub clock: Clock,
    controller: Option<(shutdown::Trigger, JoinHandle<()>)>,
    _native: Vec<Task>,
}

impl World {
    /// Starts all parts. The cluster has no nodes yet.
    pub fn start(setup: WorldSetup) -> Self {
        let clock = setup.clock;
        let options = cluster::ClusterOptions::new(clock.clone(), setup.seed);
        let cluster = Cluster::new(if setup.advanced {
            options.with_advanced()
        } else {
            options
        });
        let client = |agent: &str| cluster.client(agent);
        let pulse = SilentNodes::default();
        let native = vec![
            scheduler::start(client("kube-scheduler (sim)")),
            daemonset::start(
                client(NATIVE),
                clock.clone(),
                daemonset::DaemonSetsOptions {
                    gather: GATHER,
                    ..daemonset::DaemonSetsOptions::default()
                },
            ),
            job::start(client(NATIVE), clock.clone()),
            gc::start(client(NATIVE)),
            node_lifecycle::start(
                client(NATIVE),
                clock.clone(),
                node_lifecycle::NodeLifecycleOptions {
                    pulse: Some(pulse.clone()),
                    ..node_lifecycle::NodeLifecycleOptions::default()
                },
            ),
        ];
        let options = kubelet::KubeletOptions {
            pulse: Some(pulse),
            ..setup.kubelets
        };
        let kubelets = Kubelets::start(client("kubelet (sim)"), clock.clone(), options);
        let controller = setup.controller.then(|| {
            let client = client(&Role::Controller.user_agent());
            let kinds = controller::Kinds {
                native: true,
                advanced: setup.advanced,
            };
            start_controller(client, clock.clone(), kinds)
        });
        Self {
            cluster,
            kubelets,
            clock,
            controller,
            _native: native,
        }
    }

    /// Returns a client with the simulator's user agent, for actions of users and for observers.
    pub fn client(&self) -> Client {
        self.cluster.client(&Role::Sim.user_agent())
    }

    /// Shuts the yurt-ds controller down gracefully.
    pub async fn finish(mut self) {
        if let Some((end, running)) = self.controller.take() {
            end.request();
            let _ended = running.await;
        }
    }
}

/// Starts the yurt-ds controller for DaemonSets of these kinds, with a client of an embedded cluster.
pub(crate) fn start_controller(
    client: Client,
    clock: Clock,
    kinds: impl Into<controller::Kinds>,
) -> (shutdown::Trigger, JoinHandle<()>) {
    let (end, shutdown) = shutdown::channel();
    let config = controller::ControllerConfig {
        client,
        clock,
        settings: lease::Settings {
            namespace: "default".to_owned(),
            identity: "sim".to_owned(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            renew_every: Duration::from_secs(5),
        },
        elects: false, // no leader election, because there is only one replica
        metrics: metrics::Metrics::new(),
        readiness: ReadinessHandle::default(),
        gathering: controller::WakeupBatching::default(),
        kinds: kinds.into(),
        notifications: None,
        traces: None,
    };
    (end, tokio::spawn(controller::run(config, shutdown)))
}
