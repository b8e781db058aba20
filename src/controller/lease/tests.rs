//! Tests of leader elections, in paused time and with a Lease in memory.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::index::SetKind;

/// Simulated API server with one Lease, and with the Leases of other installations.
#[derive(Default)]
struct Server {
    lease: Mutex<Option<Value>>,
    others: Mutex<Vec<Value>>,
    /// True if the server rejects lists of Leases in all namespaces.
    refuses_lists: AtomicBool,
    /// Reasons of the Events that the server received.
    events: Mutex<Vec<String>>,
    log: Mutex<Vec<String>>,
    /// Replicas that get no response from the server.
    cut_off: Mutex<Vec<&'static str>>,
}

impl Server {
    fn client(self: &Arc<Self>, replica: &'static str) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.map(|all| all.to_bytes());
                let body = body.unwrap_or_default();
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                if lock(&server.cut_off).contains(&replica) {
                    std::future::pending::<()>().await;
                }
                let (code, body) = match head.uri.path() {
                    "/apis/coordination.k8s.io/v1/leases" => server.list(replica),
                    path if path.ends_with("/events") => {
                        let reason = body["reason"].as_str().unwrap_or_default();
                        lock(&server.events).push(reason.to_owned());
                        (201, body)
                    }
                    _ => {
                        lock(&server.log).push(format!("{replica} {}", head.method));
                        server.answer(&head.method, body)
                    }
                };
                let body = Full::new(Bytes::from(body.to_string()));
                let response = Response::builder().status(code).body(body);
                Ok::<_, Infallible>(response.expect("a response"))
            }
        });
        Client::new(service, "default")
    }

    fn list(&self, replica: &str) -> (u16, Value) {
        lock(&self.log).push(format!("{replica} LIST"));
        if self.refuses_lists.load(Ordering::Relaxed) {
            let status =
                json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": ""});
            return (403, status);
        }
        let own = lock(&self.lease).clone();
        let leases: Vec<Value> = own.into_iter().chain(lock(&self.others).clone()).collect();
        let list = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "metadata": {}, "items": leases});
        (200, list)
    }

    /// Renews the Lease of another installation in `namespace`, which serves `kinds`.
    fn renew(&self, namespace: &str, kinds: Option<&str>) {
        let mut others = lock(&self.others);
        let renewals = others
            .iter()
            .filter_map(|lease| lease["spec"]["leaseTransitions"].as_i64());
        let next = renewals.max().unwrap_or_default() + 1;
        others.retain(|lease| lease["metadata"]["namespace"] != namespace);
        others.push(json!({
            "metadata": {
                "name": names::LEASE, "namespace": namespace,
                "annotations": kinds.map(|kinds| json!({ names::LEASE_KINDS: kinds })),
            },
            "spec": {"holderIdentity": "z", "leaseDurationSeconds": 15, "leaseTransitions": next},
        }));
    }

    /// Renews the Lease of another installation every 5 s for a number of seconds.
    async fn renews(&self, namespace: &str, kinds: Option<&str>, for_seconds: u64) {
        for _ in 0..for_seconds / 5 {
            self.renew(namespace, kinds);
            pass(5).await;
        }
    }

    fn events(&self) -> Vec<String> {
        lock(&self.events).clone()
    }

    fn answer(&self, method: &Method, mut body: Value) -> (u16, Value) {
        let mut lease = lock(&self.lease);
        let version = lease
            .as_ref()
            .map(|lease| lease["metadata"]["resourceVersion"].clone());
        let failure = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "Conflict" };
            let status =
                json!({"status": "Failure", "code": code, "reason": reason, "message": ""});
            (code, status)
        };
        match (method, version) {
            (&Method::GET, Some(_)) => (200, lease.clone().unwrap_or_default()),
            (&Method::GET | &Method::PUT, None) => failure(404),
            (&Method::POST, Some(_)) => failure(409),
            (&Method::PUT, Some(version)) if body["metadata"]["resourceVersion"] != version => {
                failure(409)
            }
            (_, version) => {
                let version = version.and_then(|text| text.as_str()?.parse::<u64>().ok());
                let next = version.unwrap_or_default() + 1;
                body["metadata"]["resourceVersion"] = json!(next.to_string());
                *lease = Some(body.clone());
                (200, body)
            }
        }
    }

    fn holder(&self) -> String {
        let lease = lock(&self.lease).clone().unwrap_or_default();
        lease["spec"]["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    fn cut_off(&self, replica: &'static str) {
        lock(&self.cut_off).push(replica);
    }

    fn requests(&self) -> usize {
        let lists = self.lists();
        lock(&self.log).len() - lists
    }

    fn lists(&self) -> usize {
        let log = lock(&self.log);
        log.iter().filter(|line| line.ends_with("LIST")).count()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn settings(identity: &str) -> Settings {
    let settings = Settings {
        namespace: "yurt-ds".to_owned(),
        identity: identity.to_owned(),
        duration: seconds(15),
        renew_deadline: seconds(10),
        renew_every: seconds(5),
    };
    settings.checked().unwrap()
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn start(server: &Arc<Server>, replica: &'static str) -> Election {
    start_with(server, replica, clock(), ReadinessHandle::default())
}

fn start_with(
    server: &Arc<Server>,
    replica: &'static str,
    clock: Clock,
    readiness: ReadinessHandle,
) -> Election {
    start_for(Kinds::BOTH, (server, replica), clock, readiness)
}

fn start_for(
    kinds: Kinds,
    (server, replica): (&Arc<Server>, &'static str),
    clock: Clock,
    readiness: ReadinessHandle,
) -> Election {
    let (client, metrics) = (server.client(replica), Metrics::new());
    let (events, _sending) =
        crate::controller::events::start(client.clone(), replica, clock.clone(), metrics.clone());
    let parts = ElectionParts {
        settings: settings(replica),
        kinds,
        clock,
        metrics,
        log_throttle: LogThrottle::default(),
        events,
        readiness,
    };
    Election::start(client, parts)
}

fn clock() -> Clock {
    Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())
}

fn writes(election: &Election) -> bool {
    election.leadership().borrow().may_write()
}

async fn pass(n: u64) {
    tokio::time::sleep(seconds(n)).await;
}

/// Returns the first instant within 60 s at which `holds` is true.
async fn first_moment(holds: impl Fn() -> bool) -> Instant {
    for _ in 0..1200 {
        if holds() {
            return Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within a minute");
}

#[tokio::test(start_paused = true)]
async fn the_first_replica_leads_and_the_second_takes_over_after_a_release() {
    let server = Arc::new(Server::default());
    let a = start(&server, "a");
    pass(1).await;
    let b = start(&server, "b");
    pass(60).await;
    assert!(writes(&a) && !writes(&b));
    a.release().await;
    assert_eq!(server.holder(), "");
    pass(6).await;
    assert!(writes(&b));
    assert_eq!(server.holder(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_disconnected_leader_stops_five_seconds_before_another_replica_starts() {
    let server = Arc::new(Server::default());
    let (a, b) = (start(&server, "a"), start(&server, "b"));
    pass(31).await;
    let (old, new, lost) = if writes(&a) { (a, b, "a") } else { (b, a, "b") };
    server.cut_off(lost);
    let cut = Instant::now();
    let stopped = first_moment(|| !writes(&old)).await;
    assert!(stopped - cut <= seconds(10), "{:?}", stopped - cut);
    let began = first_moment(|| writes(&new)).await;
    assert!(!writes(&old));
    let gap = began - stopped;
    assert!(gap >= MARGIN && gap <= seconds(11), "{gap:?}");
}

#[tokio::test(start_paused = true)]
async fn watchers_are_notified_when_leadership_ends() {
    let server = Arc::new(Server::default());
    let a = start(&server, "a");
    pass(6).await;
    server.cut_off("a");
    let mut leadership = a.leadership();
    let ended = leadership.wait_for(|now| matches!(now, Leadership::Standby));
    tokio::time::timeout(seconds(11), ended)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_replica_sends_one_lease_request_every_five_seconds() {
    let server = Arc::new(Server::default());
    let a = start(&server, "a");
    pass(1).await;
    let before = server.requests();
    pass(100).await;
    assert_eq!(server.requests() - before, 20);
    let b = start(&server, "b");
    pass(1).await;
    let before = server.requests();
    pass(100).await;
    assert_eq!(server.requests() - before, 40);
    assert!(writes(&a) && !writes(&b));
}

#[tokio::test(start_paused = true)]
async fn a_leader_lists_other_installations_every_half_minute() {
    let server = Arc::new(Server::default());
    let (_a, _b) = (start(&server, "a"), start(&server, "b"));
    pass(20).await;
    let before = server.lists();
    pass(300).await;
    assert_eq!(server.lists() - before, 10);
    assert_eq!(server.events(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn another_installation_is_reported_once_and_stops_no_rollout() {
    let server = Arc::new(Server::default());
    server.renew("other", None);
    let a = start(&server, "a");
    pass(6).await;
    for _ in 0..40 {
        server.renews("other", None, 5).await;
        assert!(writes(&a));
    }
    assert_eq!(server.events(), [SECOND_INSTALLATION]);
}

#[tokio::test(start_paused = true)]
async fn expired_leases_and_installations_for_other_kinds_are_not_reported() {
    let server = Arc::new(Server::default());
    server.renew("left", None);
    let native = SetKind::Native.into();
    let _a = start_for(native, (&server, "a"), clock(), ReadinessHandle::default());
    server.renews("advanced", Some("advanced"), 200).await;
    assert_eq!(server.events(), Vec::<String>::new());
    server.renews("both", Some("native,advanced"), 100).await;
    assert_eq!(server.events(), [SECOND_INSTALLATION]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_permission_to_list_leases_keeps_leading() {
    let server = Arc::new(Server::default());
    server.refuses_lists.store(true, Ordering::Relaxed);
    let a = start(&server, "a");
    server.renews("other", None, 100).await;
    assert!(writes(&a));
    assert_eq!(server.events(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_the_holder_of_the_lease_does_not_serve_is_reported() {
    let server = Arc::new(Server::default());
    let alone = |kind: SetKind, replica, readiness| {
        start_for(kind.into(), (&server, replica), clock(), readiness)
    };
    let native = alone(SetKind::Native, "native", ReadinessHandle::default());
    pass(6).await;
    let readiness = ReadinessHandle::default();
    let advanced = alone(SetKind::Advanced, "advanced", readiness.clone());
    // A rolling update of the controller may take this long. So a kind that is not served yet must not be reported.
    pass(110).await;
    assert!(readiness.is_ready());
    pass(300).await;
    assert!(writes(&native) && !writes(&advanced));
    assert!(!readiness.is_ready());
    assert_eq!(server.events(), [NOT_SERVED]);
    native.release().await;
    pass(6).await;
    assert!(writes(&advanced) && readiness.is_ready());
    // No kind is reported if the holder serves both kinds, or is an older version that doesn't record its kinds.
    for kinds in [Some("native,advanced"), None] {
        let server = Arc::new(Server::default());
        let start =
            |readiness| start_for(SetKind::Native.into(), (&server, "a"), clock(), readiness);
        let readiness = ReadinessHandle::default();
        let election = start(readiness.clone());
        for patch in 0..80 {
            *lock(&server.lease) = Some(json!({
                "metadata": {
                    "name": names::LEASE, "resourceVersion": patch.to_string(),
                    "annotations": kinds.map(|kinds| json!({ names::LEASE_KINDS: kinds })),
                },
                "spec": {"holderIdentity": "z", "leaseDurationSeconds": 15, "leaseTransitions": patch},
            }));
            pass(5).await;
        }
        assert!(!writes(&election) && readiness.is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn the_renew_time_of_the_holder_is_ignored() {
    for stamp in ["1999-01-01T00:00:00.000000Z", "2199-01-01T00:00:00.000000Z"] {
        let server = Arc::new(Server::default());
        *lock(&server.lease) = Some(json!({
            "metadata": {"name": names::LEASE, "resourceVersion": "1"},
            "spec": {"holderIdentity": "z", "leaseDurationSeconds": 15, "renewTime": stamp},
        }));
        let a = start(&server, "a");
        pass(14).await;
        assert!(!writes(&a), "{stamp}");
        pass(2).await;
        assert!(writes(&a), "{stamp}");
    }
}

#[tokio::test(start_paused = true)]
async fn absurd_durations_and_empty_leases_do_not_block_a_replica_for_long() {
    for spec in [
        json!(null),
        json!({}),
        json!({"holderIdentity": "z"}),
        json!({"holderIdentity": "z", "leaseDurationSeconds": -5, "leaseTransitions": i32::MAX}),
        json!({"holderIdentity": "z", "leaseDurationSeconds": i32::MAX}),
    ] {
        let server = Arc::new(Server::default());
        let metadata = json!({"name": names::LEASE, "resourceVersion": "1"});
        *lock(&server.lease) = Some(json!({"metadata": metadata, "spec": spec}));
        let a = start(&server, "a");
        pass(21).await;
        assert!(writes(&a), "{spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_never_gives_two_leaders() {
    let server = Arc::new(Server::default());
    let a = start(&server, "a");
    pass(1).await;
    let b = start(&server, "b");
    pass(30).await;
    server.cut_off("a");
    *lock(&server.lease) = None;
    for _ in 0..400 {
        assert!(!(writes(&a) && writes(&b)));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(writes(&b));
}

#[test]
fn invalid_lease_durations_name_the_flag() {
    let case = |duration, deadline, every, expected: &str| {
        let settings = Settings {
            duration: seconds(duration),
            renew_deadline: seconds(deadline),
            renew_every: seconds(every),
            ..settings("a")
        };
        let error = settings.checked().unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    case(15, 11, 5, "--lease-duration 15s");
    case(15, 10, 10, "--lease-renew-every 10s");
    case(15, 10, 0, "--lease-renew-every 0ns");
    case(86_400, 10, 5, "--lease-duration 86400s");
}

/// While the machine is paused, timers stop. When it resumes, only the wall clock shows that the deadline has passed.
#[tokio::test(start_paused = true)]
async fn a_wall_clock_past_the_deadline_ends_leadership_until_the_next_renewal() {
    let server = Arc::new(Server::default());
    let clock = clock();
    let a = start_with(&server, "a", clock.clone(), ReadinessHandle::default());
    pass(6).await;
    assert!(writes(&a));
    clock.step(SignedDuration::from_secs(11));
    assert!(!writes(&a), "at once, before anything wakes up");
    pass(6).await;
    assert!(writes(&a), "the Lease was still its own");
}

#[tokio::test(start_paused = true)]
async fn after_a_machine_pause_the_replica_that_took_over_leads_alone() {
    let server = Arc::new(Server::default());
    let clock = clock();
    let a = start_with(&server, "a", clock.clone(), ReadinessHandle::default());
    pass(6).await;
    clock.step(SignedDuration::from_secs(60));
    lock(&server.lease).as_mut().unwrap()["spec"]["holderIdentity"] = json!("b");
    lock(&server.lease).as_mut().unwrap()["metadata"]["resourceVersion"] = json!("99");
    for _ in 0..240 {
        assert!(!writes(&a));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.holder(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_step_back_does_not_prolong_leadership() {
    let server = Arc::new(Server::default());
    let clock = clock();
    let a = start_with(&server, "a", clock.clone(), ReadinessHandle::default());
    pass(6).await;
    server.cut_off("a");
    clock.step(SignedDuration::from_hours(-1));
    assert!(writes(&a));
    let began = Instant::now();
    let stopped = first_moment(|| !writes(&a)).await;
    assert!(stopped - began <= seconds(10), "{:?}", stopped - began);
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_elected_only_when_ready_and_stays_leader_when_unready() {
    let server = Arc::new(Server::default());
    let readiness = ReadinessHandle::default();
    readiness.wait_for("nodes");
    let a = start_with(&server, "a", clock(), readiness.clone());
    pass(3600).await;
    assert!(!writes(&a));
    assert_eq!(server.requests(), 0);
    let b = start(&server, "b");
    pass(6).await;
    assert!(writes(&b));
    b.release().await;
    readiness.done("nodes");
    pass(6).await;
    assert!(writes(&a));
    readiness.wait_for("nodes");
    pass(60).await;
    assert!(writes(&a));
    a.release().await;
    assert_eq!(server.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn an_unready_replica_shuts_down_without_lease_requests() {
    let server = Arc::new(Server::default());
    let readiness = ReadinessHandle::default();
    readiness.wait_for("pods");
    let a = start_with(&server, "a", clock(), readiness);
    pass(1).await;
    a.release().await;
    assert_eq!(server.requests(), 0);
}
