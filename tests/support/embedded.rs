//! Embedded cluster in virtual time. Each story gets its own cluster, and the controller runs in the test's process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use tokio::task::JoinSet;
use yurt_ds::cli::NotifyArgs;
use yurt_ds::clock::Clock;
use yurt_ds::controller::lease::Settings;
use yurt_ds::controller::metrics::Metrics;
use yurt_ds::controller::{self, ControllerConfig, Kinds, Notifications, WakeupBatching};
use yurt_ds::core::SetKind;
use yurt_ds::k8s::client::Role;
use yurt_ds::ota_server;
use yurt_ds::serve::ReadinessHandle;
use yurt_ds::shutdown::{self, Trigger};
use yurt_ds::sim::cluster::{Cluster, ClusterOptions, Fault, FaultGuard, RequestInfo};
use yurt_ds::sim::dice::mix;
use yurt_ds::sim::kubelet::{self, Kubelets, Outage};
use yurt_ds::sim::{daemonset, gc, job, scheduler};
use yurt_ds::task::Task;

use super::agents::{Agent, Setup, Stream};
use super::golden;
use super::link::{self, Asked};
use super::machine;
use super::player::play;
use super::story::{Pace, Scenario, Story};
use super::suite::Entry;
use super::world::{Backend, DENIED, Denied, FaultRule, Moment, PodWrites, World, is_read};

/// Virtual time at which every story begins.
const BEGIN: &str = "2026-01-05T08:00:00Z";

/// Identity of the controller replica with which every story begins.
const FIRST: &str = "suite-1";

/// Namespace of the Lease for which replicas of the controller compete.
const LEASE_NAMESPACE: &str = "kube-system";

/// Minor version of Kubernetes that the cluster simulates by default.
const KUBERNETES: u32 = 35;

/// First minor version of Kubernetes whose native controllers process changes of several objects in the order in which they happen.
const IN_ORDER: u32 = 33;

/// Time that a slow native controller takes to process each changed pod.
const BACKLOG: Duration = Duration::from_millis(700);

/// Largest random delay of a kubelet step in a setting with uneven nodes (nodes of different speeds).
const UNEVEN: Duration = Duration::from_millis(700);

/// Largest number of nodes for which kubelets have random delays. In larger stories, all nodes have the same speed.
const MANY: usize = 100;

/// Variant of the cluster on which a story runs.
#[derive(Clone, Copy, Debug)]
struct Setting {
    /// Minor version of Kubernetes that the cluster simulates.
    minor: u32,
    /// Largest random delay of every kubelet step. With zero, all nodes work at exactly the same speed, unlike real nodes.
    jitter: Duration,
    /// Seed for the random delays.
    seed: u64,
    /// True if the cluster serves Advanced DaemonSets.
    advanced: bool,
}

impl Setting {
    fn in_step(minor: u32) -> Self {
        Self {
            minor,
            jitter: Duration::ZERO,
            seed: 0,
            advanced: false,
        }
    }

    /// Returns a setting in which kubelets have random delays. The seed is derived from the name.
    fn uneven(minor: u32, name: &str) -> Self {
        let seed = name
            .bytes()
            .fold(0, |seed, byte| mix(seed ^ u64::from(byte)));
        Self {
            minor,
            jitter: UNEVEN,
            seed,
            advanced: false,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = if self.jitter.is_zero() {
            "nodes in step"
        } else {
            "uneven nodes"
        };
        write!(f, "Kubernetes 1.{}, {nodes}", self.minor)
    }
}

/// Returns the settings on which a story with this many nodes runs.
///
/// By default, a story runs once per Kubernetes version, with nodes of different speeds unless there are too many nodes. A deep run
/// uses every combination of version and nodes.
fn settings(name: &str, nodes: usize, older: Option<u32>) -> Vec<Setting> {
    let versions = || [KUBERNETES].into_iter().chain(older);
    let in_step = versions().map(Setting::in_step);
    let uneven = versions().map(|minor| Setting::uneven(minor, name));
    match (nodes <= MANY, machine::is_deep()) {
        (false, _) => in_step.collect(),
        (true, false) => uneven.collect(),
        (true, true) => in_step.chain(uneven).collect(),
    }
}

/// Runs the scenario with this name on all its settings and compares the writes with the golden corpus.
pub(crate) fn run(all: &[Entry], name: &str, older: Option<u32>) {
    let entry = all
        .iter()
        .find(|entry| entry.name == name)
        .expect("an entry of that name");
    let scenario = (entry.tell)(Pace::Virtual);
    if let Some(why) = scenario.only_real {
        eprintln!("SKIPPED on the embedded cluster: {why}");
        return;
    }
    let played = play_all(entry, &scenario, older);
    // Run the scenario again if its writes differ. The controller detects a frozen API server by timers, which may fire late on a
    // busy machine.
    let again = || play_all(entry, &scenario, older);
    let failures = match played {
        Ok(writes) => match golden::check(entry.name, &writes) {
            Err(_) if again().is_ok_and(|writes| golden::check(entry.name, &writes).is_ok()) => {
                Vec::new()
            }
            checked => Vec::from_iter(checked.err()),
        },
        Err(failures) => failures,
    };
    assert!(
        failures.is_empty(),
        "{}\n{}",
        entry.sentence(),
        failures.join("\n")
    );
}

/// Runs the stories of a scenario on all their settings. Returns the controller's writes, or all failures.
fn play_all(
    entry: &Entry,
    scenario: &Scenario,
    older: Option<u32>,
) -> Result<Vec<String>, Vec<String>> {
    let (mut failures, mut writes) = (Vec::new(), Vec::new());
    for (number, story) in scenario.stories.iter().enumerate() {
        let name = entry.short(number + 1);
        for setting in settings(&name, story.nodes, older) {
            match run_story(&name, story, setting) {
                Ok(written) => writes.extend(written),
                Err(failure) => failures.push(format!("{setting}: {failure}")),
            }
        }
    }
    if failures.is_empty() {
        Ok(writes)
    } else {
        Err(failures)
    }
}

/// Runs a story on a new cluster with this setting. Returns the controller's writes.
fn run_story(name: &str, story: &Story, setting: Setting) -> Result<Vec<String>, String> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let world = world_of(Setting {
            advanced: story.daemon.is_advanced(),
            ..setting
        });
        play(&world, name, story).await?;
        Ok(world.backend.writes())
    })
}

/// Runs a story on a new cluster whose nodes all have the same speed.
pub(crate) fn play_in_step(name: &str, story: &Story) -> Result<(), String> {
    run_story(name, story, Setting::in_step(KUBERNETES)).map(drop)
}

/// Returns a new cluster with a controller. The cluster serves only native DaemonSets.
pub(crate) fn world() -> World {
    world_of(Setting::in_step(KUBERNETES))
}

/// Returns a new cluster with a controller. The cluster also serves Advanced DaemonSets.
pub(crate) fn world_with_advanced() -> World {
    world_of(Setting {
        advanced: true,
        ..Setting::in_step(KUBERNETES)
    })
}

fn world_of(setting: Setting) -> World {
    let Setting {
        minor,
        jitter,
        seed,
        advanced,
    } = setting;
    let clock = Clock::starting_at(BEGIN.parse::<Timestamp>().expect("an instant"));
    let cluster = Cluster::new(ClusterOptions {
        minor,
        advanced,
        ..ClusterOptions::new(clock.clone(), 1)
    });
    let options = kubelet::KubeletOptions {
        offline: Outage::MARKED,
        jitter,
        seed,
        ..kubelet::KubeletOptions::default()
    };
    let kubelets = Kubelets::start(cluster.client("kubelet"), clock.clone(), options);
    let embedded = Embedded::start(cluster.clone(), clock.clone(), minor);
    World {
        client: cluster.client("yurt-ds-suite"),
        kubelets,
        clock,
        pace: Pace::Virtual,
        backend: Arc::new(embedded),
    }
}

/// Running replica of the controller in this process. It is killed when dropped.
struct Replica {
    metrics: Arc<Metrics>,
    _end: Trigger,
    _task: Task,
}

/// Starts a replica of the controller. Its user agent ends with its identity, so that faults can be limited to one replica.
fn replica(cluster: &Cluster, clock: &Clock, identity: &str, elects: bool) -> Replica {
    replica_of(
        LEASE_NAMESPACE,
        (cluster, clock),
        Kinds::BOTH,
        identity,
        elects,
    )
}

/// Starts a replica of the controller that has its Lease in `namespace`.
fn replica_of(
    namespace: &str,
    world: (&Cluster, &Clock),
    kinds: Kinds,
    identity: &str,
    elects: bool,
) -> Replica {
    start(config(namespace, world, kinds, identity, elects))
}

fn start(config: ControllerConfig) -> Replica {
    let (end, shutdown) = shutdown::channel();
    Replica {
        metrics: config.metrics.clone(),
        _end: end,
        _task: Task::spawn(controller::run(config, shutdown)),
    }
}

fn config(
    namespace: &str,
    (cluster, clock): (&Cluster, &Clock),
    kinds: Kinds,
    identity: &str,
    elects: bool,
) -> ControllerConfig {
    ControllerConfig {
        client: cluster.client(&format!("{} {identity}", Role::Controller.user_agent())),
        clock: clock.clone(),
        settings: Settings {
            namespace: namespace.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            renew_every: Duration::from_secs(5),
        },
        elects,
        metrics: Metrics::new(),
        readiness: ReadinessHandle::default(),
        gathering: WakeupBatching::default(),
        kinds,
        notifications: None,
        traces: None,
    }
}

struct Embedded {
    cluster: Cluster,
    minor: u32,
    clock: Clock,
    native: Mutex<Option<Task>>,
    replicas: Arc<Mutex<BTreeMap<String, Replica>>>,
    counted: Arc<Mutex<BTreeMap<String, usize>>>,
    /// The controller's writes so far, in order, except Events and the Lease.
    written: Arc<Mutex<Vec<String>>>,
    /// Number of requests of each agent, by user agent.
    asked: Arc<Mutex<BTreeMap<String, Asked>>>,
    guards: Mutex<Vec<FaultGuard>>,
    /// True if a fault may affect requests of the controller.
    is_faulty: AtomicBool,
    _counting: FaultGuard,
    _tasks: Vec<Task>,
}

impl Embedded {
    /// Applies this fault rule to the controller's requests until faults are removed.
    fn intercept(&self, rule: FaultRule) {
        let guard = self.cluster.faults().add(move |request| {
            if is_ours(&request.user_agent) {
                rule(request)
            } else {
                Fault::Pass
            }
        });
        lock(&self.guards).push(guard);
    }

    fn start(cluster: Cluster, clock: Clock, minor: u32) -> Self {
        let counted: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
        let asked: Arc<Mutex<BTreeMap<String, Asked>>> = Arc::default();
        let written: Arc<Mutex<Vec<String>>> = Arc::default();
        let (counts, asks, writes) = (counted.clone(), asked.clone(), written.clone());
        let counting = cluster.faults().add(move |request| {
            if is_ours(&request.user_agent)
                && !is_read(&request.verb)
                && !["leases", "events"].contains(&request.resource.as_str())
            {
                let (what, part) = (&request.resource, &request.subresource);
                let write = format!("{} {what} {part} {}", request.verb, request.name);
                lock(&writes).push(write);
            }
            if is_ours(&request.user_agent)
                && request.verb != "watch"
                && request.resource != "leases"
            {
                *lock(&counts).entry(request.namespace.clone()).or_default() += 1;
            }
            if request
                .user_agent
                .starts_with(&Role::OtaServer.user_agent())
                && request.verb != "watch"
            {
                let mut asks = lock(&asks);
                let asked = asks.entry(request.user_agent.clone()).or_default();
                let what = (request.verb.clone(), request.resource.clone());
                *asked.entry(what).or_default() += 1;
            }
            Fault::Pass
        });
        let tasks = vec![
            job::start(cluster.client("kube-controller-manager"), clock.clone()),
            scheduler::start(cluster.client("kube-scheduler")),
            gc::start(cluster.client("garbage-collector")),
        ];
        let first = replica(&cluster, &clock, FIRST, false);
        Self {
            native: Mutex::new(Some(native(&cluster, &clock, minor))),
            replicas: Arc::new(Mutex::new(BTreeMap::from([(FIRST.to_owned(), first)]))),
            guards: Mutex::default(),
            is_faulty: AtomicBool::new(false),
            _counting: counting,
            _tasks: tasks,
            cluster,
            minor,
            clock,
            counted,
            asked,
            written,
        }
    }
}

fn native(cluster: &Cluster, clock: &Clock, minor: u32) -> Task {
    let client = cluster.client("kube-controller-manager");
    let options = daemonset::DaemonSetsOptions {
        backlog: (minor < IN_ORDER).then_some(BACKLOG),
        ..daemonset::DaemonSetsOptions::default()
    };
    daemonset::start(client, clock.clone(), options)
}

fn is_ours(user_agent: &str) -> bool {
    user_agent.starts_with(&Role::Controller.user_agent())
}

/// Returns the user agent with which a node's agent sends its requests.
fn agent_name(node: &str) -> String {
    format!("{} {node}", Role::OtaServer.user_agent())
}

impl Backend for Embedded {
    fn pod_writes(&self, _namespace: &str) -> anyhow::Result<PodWrites> {
        let mut writes = PodWrites::default();
        let own = self.cluster.requests().into_iter();
        for count in own.filter(|count| is_ours(&count.user_agent) && count.resource == "pods") {
            for _ in 0..count.number {
                writes.count(&count.verb, &count.subresource, count.code.into());
            }
        }
        Ok(writes)
    }

    fn writes(&self) -> Vec<String> {
        lock(&self.written).clone()
    }

    fn requests(&self, namespace: &str) -> anyhow::Result<usize> {
        Ok(lock(&self.counted)
            .get(namespace)
            .copied()
            .unwrap_or_default())
    }

    fn native(&self, runs: bool) -> anyhow::Result<()> {
        *lock(&self.native) = runs.then(|| native(&self.cluster, &self.clock, self.minor));
        Ok(())
    }

    fn api_server(&self, runs: bool) -> anyhow::Result<()> {
        if runs {
            self.cluster.start()
        } else {
            self.cluster.stop()
        }
        Ok(())
    }

    fn kill_at(&self, number: usize, moment: Moment) -> anyhow::Result<()> {
        let (reached, mut here) = tokio::sync::mpsc::channel::<()>(1);
        let count = Mutex::new(0);
        self.intercept(Box::new(move |request| {
            if is_read(&request.verb) {
                return Fault::Pass;
            }
            let mut count = lock(&count);
            *count += 1;
            if *count != number {
                return Fault::Pass;
            }
            let _ = reached.try_send(());
            match moment {
                Moment::Before => Fault::Hang,
                Moment::After => Fault::ResetAfter,
            }
        }));
        let (cluster, clock, replicas) = (
            self.cluster.clone(),
            self.clock.clone(),
            self.replicas.clone(),
        );
        tokio::spawn(async move {
            if here.recv().await.is_some() {
                lock(&replicas).clear();
                let next = replica(&cluster, &clock, "suite-2", false);
                lock(&replicas).insert("suite-2".to_owned(), next);
            }
        });
        Ok(())
    }

    fn two_replicas(&self) -> anyhow::Result<()> {
        let mut replicas = lock(&self.replicas);
        replicas.clear();
        for identity in [FIRST, "suite-2"] {
            let elected = replica(&self.cluster, &self.clock, identity, true);
            replicas.insert(identity.to_owned(), elected);
        }
        Ok(())
    }

    fn second_installation(&self) -> anyhow::Result<()> {
        let world = (&self.cluster, &self.clock);
        let second = replica_of("default", world, Kinds::BOTH, "second", true);
        lock(&self.replicas).insert("second".to_owned(), second);
        Ok(())
    }

    fn notifying(&self, url: &str) -> anyhow::Result<()> {
        let mut replicas = lock(&self.replicas);
        replicas.clear();
        let world = (&self.cluster, &self.clock);
        let args = NotifyArgs {
            notify_url: Some(url.to_owned()),
            ..NotifyArgs::default()
        };
        let config = ControllerConfig {
            notifications: Notifications::from_args(&args)?,
            ..config(LEASE_NAMESPACE, world, Kinds::BOTH, FIRST, false)
        };
        replicas.insert(FIRST.to_owned(), start(config));
        Ok(())
    }

    fn one_kind_each(&self) -> anyhow::Result<()> {
        let mut replicas = lock(&self.replicas);
        replicas.clear();
        for (namespace, kind) in [
            ("default", SetKind::Native),
            (LEASE_NAMESPACE, SetKind::Advanced),
        ] {
            let world = (&self.cluster, &self.clock);
            let alone = replica_of(namespace, world, kind.into(), namespace, true);
            replicas.insert(namespace.to_owned(), alone);
        }
        Ok(())
    }

    fn kill(&self, identity: &str) -> anyhow::Result<()> {
        lock(&self.replicas)
            .remove(identity)
            .context("no such replica")
            .map(drop)
    }

    fn controller(&self, runs: bool) -> anyhow::Result<()> {
        let mut replicas = lock(&self.replicas);
        replicas.clear();
        if runs {
            let first = replica(&self.cluster, &self.clock, FIRST, false);
            replicas.insert(FIRST.to_owned(), first);
        }
        Ok(())
    }

    fn agent(&self, setup: Setup) -> BoxFuture<'_, anyhow::Result<Agent>> {
        Box::pin(async move {
            let client = link::client(&self.cluster, &agent_name(&setup.node), &setup.link);
            let agent = ota_server::Agent::start(ota_server::AgentConfig {
                client,
                node: setup.node,
                clock: self.clock.clone(),
                state_dir: Some(setup.home),
                manifest_dir: setup.manifests,
                allowed_hosts: Vec::new(),
                listen: None,
            })?;
            let connections = Mutex::new(JoinSet::new());
            let connect = move || {
                let (near, far) = tokio::io::duplex(64 * 1024);
                lock(&connections).spawn(ota_server::serve_stream(far, agent.clone()));
                async { Ok(Box::new(near) as Box<dyn Stream>) }
            };
            Ok(Agent::new((), String::new, connect))
        })
    }

    fn asked(&self, node: &str) -> anyhow::Result<Asked> {
        let asked = lock(&self.asked).get(&agent_name(node)).cloned();
        Ok(asked.unwrap_or_default())
    }

    fn lease_namespace(&self) -> &'static str {
        LEASE_NAMESPACE
    }

    fn permission(
        &self,
        whose: Role,
        verb: &'static str,
        resource: &'static str,
        granted: bool,
    ) -> BoxFuture<'_, anyhow::Result<()>> {
        self.mend();
        let mut guards = lock(&self.guards);
        if !granted {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let denied = move |request: &RequestInfo| {
                request.user_agent.starts_with(&whose.user_agent())
                    && request.verb == verb
                    && request.resource == resource
                    && (subresource.is_empty() || request.subresource == subresource)
            };
            guards.push(self.cluster.deny(denied));
        }
        Box::pin(async { Ok(()) })
    }

    fn policy<'a>(&'a self, denied: Denied<'a>, begins: bool) -> BoxFuture<'a, anyhow::Result<()>> {
        self.mend();
        let (verb, name) = (denied.verb, denied.on.map(|(_, pod)| pod.to_owned()));
        let rule = move |request: &RequestInfo| {
            let (verb, subresource) = match verb {
                "status" => ("patch", "status"),
                verb => (verb, ""),
            };
            let is_meant = request.verb == verb
                && (request.resource.as_str(), request.subresource.as_str())
                    == ("pods", subresource)
                && is_ours(&request.user_agent)
                && name.as_ref().is_none_or(|name| *name == request.name);
            if is_meant {
                Fault::Denied(
                    format!("ValidatingAdmissionPolicy 'keep' with binding 'keep' {DENIED}").into(),
                )
            } else {
                Fault::Pass
            }
        };
        if begins {
            self.intercept(Box::new(rule));
        }
        Box::pin(async { Ok(()) })
    }

    fn has_service_accounts(&self) -> bool {
        false
    }

    fn metrics(&self) -> BoxFuture<'_, anyhow::Result<Option<String>>> {
        let replicas = lock(&self.replicas);
        let mut running = replicas.values();
        let only = match (running.next(), running.next()) {
            (Some(replica), None) if !self.is_faulty.load(Ordering::Relaxed) => Some(replica),
            _ => None,
        };
        let page = only.map(|replica| replica.metrics.encode());
        Box::pin(async { Ok(page) })
    }

    fn fault(&self, rule: FaultRule) -> anyhow::Result<()> {
        self.is_faulty.store(true, Ordering::Relaxed);
        self.intercept(rule);
        Ok(())
    }

    fn mend(&self) {
        self.is_faulty.store(false, Ordering::Relaxed);
        lock(&self.guards).clear();
    }

    fn pages(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let replicas = lock(&self.replicas);
        let page =
            |(identity, replica): (&String, &Replica)| (identity.clone(), replica.metrics.encode());
        Ok(replicas.iter().map(page).collect())
    }

    fn disconnect_watches(&self) -> anyhow::Result<()> {
        self.cluster.disconnect_watches();
        Ok(())
    }

    fn forget_history(&self) -> anyhow::Result<()> {
        self.cluster.compact();
        self.cluster.disconnect_watches();
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
