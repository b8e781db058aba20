//! Detects whether a controller is running from the Lease that it renews. Without a controller, rollouts stop and no condition
//! reports it.
//!
//! The Lease is read from all namespaces or, if that is forbidden, only from the namespace of the manifests. Ages are measured by
//! the API server's clock, because the caller's clock may be wrong by minutes.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::BodyExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::fmt::rfc2822;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Resource as _;
use kube::api::ListParams;
use kube::client::Body;
use kube::core::{ObjectList, Request, Status};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::access::Access;
use super::code::Code;
use super::condition_times::wrote_after;
use super::error::CliError;
use crate::clock::Clock;
use crate::controller::Kinds;
use crate::core::messages::NextStep;
use crate::core::names::{KRUISE_LEASE, LEASE};
use crate::core::remedy::LOOK_FOR_IT;
use crate::core::{Action, SetKind, instant};
use crate::index::SetKey;
use crate::k8s::Condition;
use crate::k8s::client::{CallError, Failure, within};
use crate::k8s::object::Listed;
use crate::task::Task;

/// Age of the last Lease renewal after which the controller is assumed to have stopped. It is twelve times the interval in which a
/// leader has to renew the Lease.
const SILENCE: SignedDuration = SignedDuration::from_mins(3);
/// Time within which another controller takes over a Lease that is released or not renewed: two lease durations.
const HANDOVER: SignedDuration = SignedDuration::from_secs(30);
/// Timeout of a read of the Lease. A healthy API server answers sooner.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interval between reads of the Lease for a waiting command.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Age of the last Lease renewal after which Kruise's manager is assumed to have stopped: twice the duration of the Lease.
const KRUISE_SILENCE: SignedDuration = SignedDuration::from_secs(30);
/// Namespace of the controller in the manifests.
pub(super) const HOME: &str = "yurt-ds";

/// Liveness of the controller according to its Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ControllerLiveness {
    /// A controller renewed the Lease recently.
    Lately,
    /// A controller renewed the Lease recently, and serves only these kinds of DaemonSets.
    Partly(Kinds),
    /// A controller renewed the Lease recently and then released it, so the Lease has no holder.
    Released {
        /// Time since the last renewal.
        passed: SignedDuration,
        /// Namespace of the Lease.
        namespace: String,
    },
    /// A controller holds the Lease, but has not renewed it in time, and no other one has taken over yet.
    Expired {
        /// Time of the last renewal.
        since: Timestamp,
        /// Time since the last renewal.
        passed: SignedDuration,
        /// Namespace of the Lease.
        namespace: String,
    },
    /// The last Lease renewal is at least three minutes ago.
    Silent {
        /// Time of the last renewal.
        since: Timestamp,
        /// Time since the last renewal.
        passed: SignedDuration,
        /// Namespace of the Lease.
        namespace: String,
    },
    /// There is no Lease. A command waited for three minutes, and no controller took any of the rollout's next actions.
    Idle {
        /// Time since which the rollout's next actions have been the same.
        since: Timestamp,
        /// Time passed since `since`.
        passed: SignedDuration,
    },
    /// The time of the only Lease lies at least three minutes in the future, so it is not known if a controller is running.
    Ahead {
        /// Time from now to that of the Lease.
        ahead: SignedDuration,
        /// Namespace of the Lease.
        namespace: String,
    },
    /// There is no Lease: a controller never ran, or it runs without leader election.
    #[default]
    NoLease,
    /// The caller may not read the Lease.
    Forbidden,
    /// The API server did not answer in time.
    NoAnswer,
}

impl ControllerLiveness {
    /// Returns the time since which no controller has been active, if that is more than three minutes ago.
    pub(super) fn silent_since(&self) -> Option<Timestamp> {
        match self {
            Self::Silent { since, .. } | Self::Idle { since, .. } => Some(*since),
            _ => None,
        }
    }

    /// Returns the message that no controller is running if the exit code is [`Code::Silent`]; otherwise `None`.
    pub(super) fn silence(&self, code: Code) -> Option<String> {
        self.message().filter(|_| code == Code::Silent)
    }

    /// Returns true if a running controller serves DaemonSets of the given kind.
    pub(super) fn serves(&self, kind: SetKind) -> bool {
        match self {
            Self::Lately => true,
            Self::Partly(kinds) => kinds.contains(kind),
            _ => false,
        }
    }

    /// Corrects the result in two cases in which an old Lease has no meaning.
    ///
    /// A controller without leader election does not renew the Lease, but it writes conditions. If Kruise's manager creates the
    /// pods, yurt-ds is not needed.
    pub(super) fn with_signs(
        self,
        kind: SetKind,
        conditions: &[Condition],
        is_of_kruise: bool,
    ) -> Self {
        let since = match &self {
            Self::Silent { since, .. } | Self::Idle { since, .. } | Self::Expired { since, .. } => {
                Some(*since)
            }
            _ => None,
        };
        let wrote = |since| wrote_after(conditions, since);
        if is_of_kruise || self.serves(kind) || since.is_some_and(wrote) {
            Self::Lately
        } else {
            self
        }
    }

    /// Returns a warning for a rollout that is not complete; `None` if no warning is needed.
    pub(super) fn message(&self) -> Option<String> {
        let fact = self.fact()?;
        match self {
            // After a restart, another controller takes over within seconds.
            Self::Released { passed, .. } if *passed < HANDOVER => None,
            Self::Idle { .. } => Some(format!(
                "{fact}: none is running, or it lacks a permission; {LOOK_FOR_IT}"
            )),
            _ => Some(match self.namespace() {
                Some(namespace) => format!("{fact}. Check: kubectl -n {namespace} get pods"),
                None => fact,
            }),
        }
    }

    /// Returns what is wrong, without the next steps; `None` if a controller is running, or if there is no Lease.
    pub(super) fn fact(&self) -> Option<String> {
        let age = |time: &SignedDuration| instant::seconds(time.as_secs().unsigned_abs());
        match self {
            Self::Silent { passed, .. } => Some(format!(
                "the yurt-ds controller has not renewed its Lease for {}: rollouts are stopped",
                age(passed)
            )),
            Self::Expired { passed, .. } => Some(format!(
                "the yurt-ds controller has not renewed its Lease for {}",
                age(passed)
            )),
            Self::Released { passed, .. } => Some(format!(
                "no controller is active: the last one released its Lease {} ago",
                age(passed)
            )),
            Self::Ahead { ahead, namespace } => Some(format!(
                "it is not known if a controller is running: the time of its Lease in namespace {namespace} lies {} in the \
                 future, so the clocks differ or the Lease is forged",
                age(ahead)
            )),
            Self::Idle { passed, .. } => {
                Some(format!("no controller has acted for {}", age(passed)))
            }
            Self::Partly(kinds) => Some(format!(
                "no controller serves this kind of DaemonSet: the running one has --controllers {kinds}. Run another \
                 one with its own --lease-namespace, or let one serve both kinds"
            )),
            Self::Forbidden => Some(format!(
                "it is not known if a controller is running: these credentials may not read the Lease {LEASE} \
                 (needed: ClusterRole yurt-ds-viewer)"
            )),
            Self::Lately | Self::NoLease | Self::NoAnswer => None,
        }
    }

    /// Returns the namespace of the Lease that is the reason for [`Self::fact`].
    pub(super) fn namespace(&self) -> Option<&str> {
        match self {
            Self::Silent { namespace, .. }
            | Self::Expired { namespace, .. }
            | Self::Released { namespace, .. }
            | Self::Ahead { namespace, .. } => Some(namespace),
            _ => None,
        }
    }

    /// Returns the next steps if no controller is running, the most useful first.
    pub(super) fn next(&self) -> Vec<NextStep> {
        match self {
            Self::Silent { namespace, .. } => vec![
                NextStep::command("to check it", format!("kubectl -n {namespace} get pods")),
                NextStep::command(
                    "its log",
                    format!("kubectl -n {namespace} logs deploy/yurt-ds-controller"),
                ),
            ],
            Self::Ahead { namespace, .. } => vec![NextStep::command(
                "to see it",
                format!("kubectl -n {namespace} get lease {LEASE} -o yaml"),
            )],
            Self::Idle { .. } => {
                vec![NextStep::command(
                    "to check it",
                    "kubectl get pods -A -l app.kubernetes.io/name=yurt-ds",
                )]
            }
            _ => Vec::new(),
        }
    }
}

/// Lease of a controller at the time of one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ControllerLease {
    /// Namespace of the Lease.
    pub(super) namespace: String,
    /// Identity of the replica that leads; `None` if the Lease is released.
    pub(super) holder: Option<String>,
    /// Kinds of DaemonSets that the holder serves.
    pub(super) kinds: Kinds,
    /// Time since the last renewal.
    pub(super) age: SignedDuration,
}

impl ControllerLease {
    fn new(lease: &Lease, now: Timestamp) -> Option<Self> {
        let holder = lease.spec.as_ref()?.holder_identity.clone();
        Some(Self {
            namespace: lease.metadata.namespace.clone().unwrap_or_default(),
            holder: holder.filter(|holder| !holder.is_empty()),
            kinds: kinds_of(lease),
            age: now.duration_since(renewed(lease, now)?),
        })
    }

    /// Returns true if a controller holds the Lease and renewed it recently.
    pub(super) fn is_live(&self) -> bool {
        self.holder.is_some() && self.age < HANDOVER
    }
}

/// Leases of all controllers, and their common liveness.
#[derive(Clone, Debug, Default)]
pub(super) struct ControllerLeases {
    /// Liveness of the controllers.
    pub(super) liveness: ControllerLiveness,
    /// Leases that were renewed at least once: that in the namespace of the manifests first, then the most recent.
    pub(super) leases: Vec<ControllerLease>,
}

/// Reads the Lease. `now` is the local time. It is used if the API server does not report its own time.
pub(super) async fn liveness_of(access: &Access, now: Timestamp) -> ControllerLiveness {
    controller_leases(access, now).await.liveness
}

/// Reads the Leases of all controllers. `now` is used as in [`liveness_of`].
pub(super) async fn controller_leases(access: &Access, now: Timestamp) -> ControllerLeases {
    let everywhere = leases(access, None, LEASE).await;
    let found = match everywhere {
        Err(error) if error.failure() == Failure::Forbidden => {
            leases(access, Some(HOME), LEASE).await
        }
        found => found,
    };
    let failed = |liveness| ControllerLeases {
        liveness,
        leases: Vec::new(),
    };
    match found {
        Ok((found, server_time)) => {
            let now = server_time.unwrap_or(now);
            let leases = found.iter();
            let mut leases: Vec<ControllerLease> = leases
                .filter_map(|lease| ControllerLease::new(lease, now))
                .collect();
            leases.sort_by_key(|lease| (lease.namespace != HOME, lease.age));
            ControllerLeases {
                liveness: judge(&found, now),
                leases,
            }
        }
        Err(error) => match error.failure() {
            Failure::Forbidden => failed(ControllerLiveness::Forbidden),
            Failure::Gone => failed(ControllerLiveness::NoLease),
            _ => failed(ControllerLiveness::NoAnswer),
        },
    }
}

/// Returns true if Kruise's manager is running, which creates the pods of Advanced DaemonSets.
///
/// The result depends on one read and the clock, because the user is waiting. The controller reads the Lease twice instead and
/// needs no clock.
///
/// # Errors
/// Fails if the caller may not read the Lease or the API server does not answer.
pub(super) async fn is_kruise_running(access: &Access, now: Timestamp) -> Result<bool, CliError> {
    let (namespace, name) = KRUISE_LEASE;
    match leases(access, Some(namespace), name).await {
        Ok((leases, server_time)) => Ok(renews(&leases, server_time.unwrap_or(now))),
        Err(error) if error.failure() == Failure::Gone => Ok(false),
        Err(error) => {
            let doing = format!("read the Lease {namespace}/{name} of Kruise's manager");
            Err(access.explain(&doing, &error))
        }
    }
}

/// Returns true if Kruise's manager has renewed one of these Leases recently, as of `now`.
fn renews(leases: &[Lease], now: Timestamp) -> bool {
    leases
        .iter()
        .filter_map(|lease| lease.spec.as_ref())
        .any(|spec| {
            let is_held =
                (spec.holder_identity.as_deref()).is_some_and(|holder| !holder.is_empty());
            let renewed = spec.renew_time.as_ref().map(|time| time.0);
            // A time in the far future is forged or comes from another clock, and doesn't show that the holder is running.
            let is_recent = |at: Timestamp| now.duration_since(at).abs() < KRUISE_SILENCE;
            is_held && renewed.is_some_and(is_recent)
        })
}

/// Returns the time of the last renewal; `None` if it is at least [`SILENCE`] in the future.
fn renewed(lease: &Lease, now: Timestamp) -> Option<Timestamp> {
    let at = lease.spec.as_ref()?.renew_time.as_ref()?.0;
    (at.duration_since(now) < SILENCE).then_some(at)
}

fn kinds_of(lease: &Lease) -> Kinds {
    Kinds::of_lease(lease).unwrap_or(Kinds::BOTH)
}

/// Evaluates the controllers' Leases at `now`. There may be several installations.
///
/// A tenant that may create Leases in one namespace could fake a running controller. So a Lease in the namespace of the manifests
/// takes precedence: for the kinds that it serves, Leases in other namespaces are ignored.
fn judge(all: &[Lease], now: Timestamp) -> ControllerLiveness {
    let leases = all.iter().filter(|lease| renewed(lease, now).is_some());
    let is_home = |lease: &Lease| lease.metadata.namespace.as_deref() == Some(HOME);
    let home = leases.clone().find(|lease| is_home(lease)).map(kinds_of);
    let counts =
        |lease: &&Lease| is_home(lease) || home.is_none_or(|home| !home.meets(kinds_of(lease)));
    let leases: Vec<&Lease> = leases.filter(counts).collect();
    let spoken = leases.iter().filter_map(|lease| {
        let renewed = renewed(lease, now)?;
        let holder = lease.spec.as_ref()?.holder_identity.as_deref();
        Some((
            renewed,
            holder.is_some_and(|holder| !holder.is_empty()),
            lease.metadata.namespace.clone().unwrap_or_default(),
        ))
    });
    let Some((since, is_held, namespace)) = spoken.max() else {
        return ahead(all, now).unwrap_or(ControllerLiveness::NoLease);
    };
    let passed = now.duration_since(since);
    let is_recent =
        |lease: &&&Lease| renewed(lease, now).is_some_and(|at| now.duration_since(at) < SILENCE);
    let recent = leases.iter().filter(is_recent);
    let kinds = recent
        .map(|lease| kinds_of(lease))
        .fold(Kinds::NONE, Kinds::with);
    match passed >= SILENCE {
        true => ControllerLiveness::Silent {
            since,
            passed,
            namespace,
        },
        false if is_held && passed >= HANDOVER => ControllerLiveness::Expired {
            since,
            passed,
            namespace,
        },
        false if is_held && kinds != Kinds::BOTH => ControllerLiveness::Partly(kinds),
        false if is_held => ControllerLiveness::Lately,
        false => ControllerLiveness::Released { passed, namespace },
    }
}

/// Returns the liveness if there is no Lease except those whose time lies in the future. The one in the namespace of the manifests
/// comes first, then the one with the earliest time.
fn ahead(leases: &[Lease], now: Timestamp) -> Option<ControllerLiveness> {
    let ahead = leases.iter().filter_map(|lease| {
        let at = lease.spec.as_ref()?.renew_time.as_ref()?.0;
        let namespace = lease.metadata.namespace.clone().unwrap_or_default();
        Some((namespace != HOME, at, namespace))
    });
    let (_, at, namespace) = ahead.min()?;
    let ahead = at.duration_since(now);
    Some(ControllerLiveness::Ahead { ahead, namespace })
}

/// Lists the Leases with the given name, and returns the API server's time.
async fn leases(
    access: &Access,
    namespace: Option<&str>,
    name: &str,
) -> Result<(Vec<Lease>, Option<Timestamp>), CallError> {
    let request = Request::new(Lease::url_path(&(), namespace));
    let only = ListParams::default().fields(&format!("metadata.name={name}"));
    let request = request.list(&only).map_err(kube::Error::BuildRequest)?;
    within(PATIENCE, async {
        let response = access.client.send(request.map(Body::from)).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        if !head.status.is_success() {
            let plain = || Status::failure("", "").with_code(head.status.as_u16());
            let status = serde_json::from_slice(&body).unwrap_or_else(|_| plain());
            return Err(kube::Error::Api(Box::new(status)));
        }
        let list: ObjectList<Listed<Lease>> =
            serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?;
        let readable = list.items.into_iter().filter_map(|lease| lease.item.ok());
        let date = head.headers.get(http::header::DATE);
        let date = date.and_then(|date| rfc2822::parse(date.to_str().ok()?).ok());
        Ok((readable.collect(), date.map(|date| date.timestamp())))
    })
    .await
}

/// Actions that the controller should take next in each rollout that a command waits for, and the time since which these actions
/// have been the same.
///
/// Without a Lease, only a change of these actions shows that a controller is running.
#[derive(Default)]
pub(super) struct PendingActions(BTreeMap<SetKey, (Vec<Action>, Timestamp)>);

impl PendingActions {
    /// Returns the liveness of the controller for a rollout whose next actions at `now` are `actions`.
    pub(super) fn judge(
        &mut self,
        liveness: ControllerLiveness,
        key: &SetKey,
        actions: &[Action],
        now: Timestamp,
    ) -> ControllerLiveness {
        let since = match self.0.get(key) {
            Some((known, since)) if known == actions => *since,
            _ => {
                self.0.insert(key.clone(), (actions.to_vec(), now));
                now
            }
        };
        let passed = now.duration_since(since);
        match liveness {
            ControllerLiveness::NoLease | ControllerLiveness::Ahead { .. }
                if actions.iter().any(Action::begins) && passed >= SILENCE =>
            {
                ControllerLiveness::Idle { since, passed }
            }
            liveness => liveness,
        }
    }
}

/// Reads the Lease repeatedly for a waiting command.
pub(super) struct LivenessWatch {
    reports: watch::Receiver<LivenessReport>,
    _looking: Task,
}

#[derive(Clone, Debug, Default)]
struct LivenessReport {
    liveness: ControllerLiveness,
    /// Time when the API server stopped answering; `None` while it answers.
    unanswered: Option<Instant>,
}

impl LivenessWatch {
    /// Starts to read the Lease repeatedly. `liveness` is the result of an earlier read.
    pub(super) fn start(access: Access, clock: Clock, liveness: ControllerLiveness) -> Self {
        let beat = LivenessReport {
            liveness,
            unanswered: None,
        };
        let (sender, reports) = watch::channel(beat);
        let looking = Task::spawn(async move {
            loop {
                let next = Instant::now() + LOOK_EVERY;
                sleep_until(next).await;
                let liveness = liveness_of(&access, clock.now()).await;
                sender.send_modify(|beat| beat.take(liveness, next));
            }
        });
        Self {
            reports,
            _looking: looking,
        }
    }

    /// Returns the result of the last read.
    pub(super) fn liveness(&self) -> ControllerLiveness {
        self.reports.borrow().liveness.clone()
    }

    /// Returns the time for which the API server has not answered; `None` if it answers.
    pub(super) fn unanswered(&self) -> Option<Duration> {
        let since = self.reports.borrow().unanswered;
        since.map(|since| since.elapsed())
    }
}

impl LivenessReport {
    /// Records the result of a read that began at `begun`. If the API server did not answer, keeps the previous result.
    fn take(&mut self, liveness: ControllerLiveness, begun: Instant) {
        match liveness {
            ControllerLiveness::NoAnswer => drop(self.unanswered.get_or_insert(begun)),
            liveness => {
                *self = Self {
                    liveness,
                    unanswered: None,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::core::PodRef;
    use crate::core::names::LEASE_KINDS;

    fn lease(namespace: &str, renewed: Value) -> Lease {
        let meta = json!({ "name": LEASE, "namespace": namespace });
        let whole =
            json!({ "metadata": meta, "spec": { "renewTime": renewed, "holderIdentity": "a" } });
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_controller_is_silent_when_no_lease_was_renewed_for_three_minutes() {
        let now: Timestamp = "2026-01-01T00:03:00Z".parse().unwrap();
        let old = lease("a", json!("2026-01-01T00:00:00.000000Z"));
        let fresh = lease("b", json!("2026-01-01T00:02:31.000000Z"));
        assert_eq!(judge(&[], now), ControllerLiveness::NoLease);
        assert_eq!(
            judge(&[lease("a", Value::Null)], now),
            ControllerLiveness::NoLease
        );
        assert_eq!(
            judge(&[old.clone(), fresh], now),
            ControllerLiveness::Lately
        );
        let silent = judge(&[old], now);
        assert_eq!(silent.silent_since(), "2026-01-01T00:00:00Z".parse().ok());
        let late = lease("a", json!("2026-01-01T00:02:30.000000Z"));
        let expired = judge(&[late], now);
        assert!(
            matches!(expired, ControllerLiveness::Expired { .. }),
            "{expired:?}"
        );
        assert_eq!(expired.silent_since(), None);
        let text = silent.message().unwrap();
        assert!(
            text.contains("has not renewed its Lease for 3m")
                && text.ends_with("kubectl -n a get pods"),
            "{text}"
        );
    }

    #[test]
    fn a_lease_in_another_namespace_does_not_override_the_own_one() {
        let now: Timestamp = "2026-01-01T00:03:00Z".parse().unwrap();
        let own = lease(HOME, json!("2026-01-01T00:00:00.000000Z"));
        let forged = lease("tenant", json!("2026-01-01T00:02:59.000000Z"));
        let liveness = judge(&[forged.clone(), own], now);
        let ControllerLiveness::Silent { namespace, .. } = liveness else {
            panic!("{liveness:?}");
        };
        assert_eq!(namespace, HOME);
        assert_eq!(judge(&[forged], now), ControllerLiveness::Lately);
        let future = lease("tenant", json!("2026-01-01T02:03:00.000000Z"));
        let text = judge(&[future], now).message().unwrap();
        assert!(
            text.contains("namespace tenant lies 2h in the future")
                && text.ends_with("kubectl -n tenant get pods"),
            "{text}"
        );
        let soon = lease("tenant", json!("2026-01-01T00:05:59.000000Z"));
        assert_eq!(judge(&[soon], now), ControllerLiveness::Lately);
    }

    #[test]
    fn a_controller_serves_the_kinds_on_its_lease() {
        let now: Timestamp = "2026-01-01T00:03:00Z".parse().unwrap();
        let serving = |namespace: &str, kinds: Option<SetKind>| {
            let mut lease = lease(namespace, json!("2026-01-01T00:02:59.000000Z"));
            let kinds = kinds.map(|kind| (LEASE_KINDS.to_owned(), Kinds::from(kind).to_string()));
            lease.metadata.annotations = kinds.map(|kinds| [kinds].into());
            lease
        };
        let (native, advanced) = (SetKind::Native, SetKind::Advanced);
        let liveness = judge(&[serving("a", Some(native))], now);
        assert_eq!(liveness, ControllerLiveness::Partly(native.into()));
        assert!(liveness.serves(native) && !liveness.serves(advanced));
        let of_kind = |kind| liveness.clone().with_signs(kind, &[], false);
        assert_eq!(of_kind(native), ControllerLiveness::Lately);
        assert_eq!(of_kind(advanced), liveness);
        assert!(liveness.message().is_some());
        let both = [serving("a", Some(native)), serving("b", Some(advanced))];
        assert_eq!(judge(&both, now), ControllerLiveness::Lately);
        // A Lease without kinds is from an older controller, which serves all kinds.
        assert_eq!(
            judge(&[serving("a", None)], now),
            ControllerLiveness::Lately
        );
    }

    #[test]
    fn kruise_runs_while_its_lease_is_held_and_renewed() {
        let now: Timestamp = "2026-01-01T00:03:00Z".parse().unwrap();
        let fresh = lease("kruise-system", json!("2026-01-01T00:02:31.000000Z"));
        let old = lease("kruise-system", json!("2026-01-01T00:02:30.000000Z"));
        let mut released = fresh.clone();
        released.spec.get_or_insert_default().holder_identity = Some(String::new());
        assert!(renews(&[fresh], now));
        for none in [vec![], vec![old], vec![released]] {
            assert!(!renews(&none, now));
        }
    }

    #[test]
    fn without_a_lease_unchanged_pending_actions_for_three_minutes_mean_silence() {
        let mut pending = PendingActions::default();
        let key = SetKey::new("default", "web");
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let removal = |name: &str| {
            vec![Action::Delete(PodRef {
                name: name.into(),
                uid: "u".into(),
                resource_version: "1".into(),
            })]
        };
        let (first, second) = (removal("a"), removal("b"));
        let mut since = |liveness, actions: &[Action], seconds| {
            pending
                .judge(liveness, &key, actions, at(seconds))
                .silent_since()
        };
        assert_eq!(since(ControllerLiveness::NoLease, &first, 0), None);
        assert_eq!(since(ControllerLiveness::NoLease, &first, 179), None);
        assert_eq!(since(ControllerLiveness::Lately, &first, 180), None);
        assert_eq!(since(ControllerLiveness::NoLease, &first, 180), Some(at(0)));
        // The next actions have changed, so a controller is running.
        assert_eq!(since(ControllerLiveness::NoLease, &second, 181), None);
        assert_eq!(since(ControllerLiveness::NoLease, &[], 200), None);
        assert_eq!(since(ControllerLiveness::NoLease, &[], 2000), None);
    }

    #[test]
    fn the_lease_is_read_from_the_namespace_of_the_manifests() {
        let manifest = include_str!("../../manifests/base/rbac/role.yaml");
        assert!(manifest.contains(&format!("\n  namespace: {HOME}\n")));
        assert!(manifest.contains(LEASE));
    }
}
