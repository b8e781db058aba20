//! Detects from its Lease whether a controller is running. Without one, rollouts stop and no condition reports it.
//!
//! The Lease is looked up in all namespaces. If that is forbidden, only in the namespace of the manifests. Ages are measured by
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
use super::error::CliError;
use super::told::wrote_after;
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

/// Age of the last Lease renewal after which a controller counts as stopped: twelve times as long as a leader may be silent.
const SILENCE: SignedDuration = SignedDuration::from_mins(3);
/// Timeout for a read of the Lease. An API server that needs longer is in trouble.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interval between reads of the Lease for a waiting command.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Age of the last renewal after which Kruise's manager counts as stopped: twice the duration of its Lease.
const KRUISE_SILENCE: SignedDuration = SignedDuration::from_secs(30);
/// Namespace of the controller in the manifests.
const HOME: &str = "yurt-ds";

/// Liveness of the controller according to its Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ControllerLiveness {
    /// A controller renewed the Lease recently.
    Lately,
    /// A controller renewed the Lease recently, and serves only these kinds of DaemonSets.
    Partly(Kinds),
    /// A controller renewed the Lease recently, and released it.
    HandedBack,
    /// No controller has renewed the Lease for longer than a leader may be silent.
    Silent {
        /// Time of the last renewal.
        since: Timestamp,
        /// Time since the last renewal.
        passed: SignedDuration,
        /// Namespace of the Lease.
        namespace: String,
    },
    /// There is no Lease, and pending actions were not carried out while a command waited for them.
    Idle {
        /// Time when the actions became pending.
        since: Timestamp,
        /// Duration for which they have been pending.
        passed: SignedDuration,
    },
    /// There is no Lease: a controller never ran, or it runs without leader election.
    #[default]
    NoLease,
    /// The Lease may not be read.
    Forbidden,
    /// The API server did not answer in time.
    NoAnswer,
}

impl ControllerLiveness {
    /// Returns since when no controller has been active, if that is too long.
    pub(super) fn silent_since(&self) -> Option<Timestamp> {
        match self {
            Self::Silent { since, .. } | Self::Idle { since, .. } => Some(*since),
            _ => None,
        }
    }

    /// Returns true if a controller is at work on DaemonSets of this kind.
    pub(super) fn serves(&self, kind: SetKind) -> bool {
        match self {
            Self::Lately => true,
            Self::Partly(kinds) => kinds.contains(kind),
            _ => false,
        }
    }

    /// Corrects the Lease's result by other signs.
    ///
    /// A controller without leader election leaves an old Lease unchanged, but writes conditions. If Kruise's manager creates the
    /// pods, yurt-ds is not needed.
    pub(super) fn with_signs(
        self,
        kind: SetKind,
        conditions: &[Condition],
        is_of_kruise: bool,
    ) -> Self {
        let wrote = |since| wrote_after(conditions, since);
        if is_of_kruise || self.serves(kind) || self.silent_since().is_some_and(wrote) {
            Self::Lately
        } else {
            self
        }
    }

    /// Returns a warning to show with a rollout that is still to continue; `None` if there is none.
    pub(super) fn words(&self) -> Option<String> {
        match self {
            Self::Silent { namespace, .. } => Some(format!(
                "{}. Check: kubectl -n {namespace} get pods",
                self.fact()?
            )),
            Self::Idle { passed, .. } => Some(format!(
                "no controller has acted for {}: none is at work, or it lacks a right; {LOOK_FOR_IT}",
                instant::seconds(passed.as_secs().unsigned_abs())
            )),
            Self::Partly(kinds) => Some(format!(
                "no controller serves this kind of DaemonSets: the one that runs has --controllers {kinds}. Run another one with a \
                 --lease-namespace of its own, or let one serve both kinds"
            )),
            Self::Forbidden => Some(format!(
                "whether a controller is at work is not known: the Lease {LEASE} may not be read with these credentials \
                 (ClusterRole yurt-ds-viewer)"
            )),
            Self::Lately | Self::HandedBack | Self::NoLease | Self::NoAnswer => None,
        }
    }
}

impl ControllerLiveness {
    /// Returns the fact without the next steps.
    pub(super) fn fact(&self) -> Option<String> {
        match self {
            Self::Silent { passed, .. } => Some(format!(
                "the yurt-ds controller has not renewed its Lease for {}: rollouts are stopped",
                instant::seconds(passed.as_secs().unsigned_abs())
            )),
            other => other.words(),
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

/// Reads the Lease. `now` is the local time, used if the API server does not report its own.
pub(super) async fn liveness_of(access: &Access, now: Timestamp) -> ControllerLiveness {
    let everywhere = leases(access, None, LEASE).await;
    let found = match everywhere {
        Err(error) if error.failure() == Failure::Forbidden => {
            leases(access, Some(HOME), LEASE).await
        }
        found => found,
    };
    match found {
        Ok((leases, told)) => judge(&leases, told.unwrap_or(now)),
        Err(error) => match error.failure() {
            Failure::Forbidden => ControllerLiveness::Forbidden,
            Failure::Gone => ControllerLiveness::NoLease,
            _ => ControllerLiveness::NoAnswer,
        },
    }
}

/// Returns true if Kruise's manager is running, which creates the pods of Advanced DaemonSets.
///
/// A single read has to suffice because the caller waits. The controller reads twice and needs no clock.
///
/// # Errors
/// Fails if the Lease may not be read or the API server does not answer.
pub(super) async fn is_kruise_running(access: &Access, now: Timestamp) -> Result<bool, CliError> {
    let (namespace, name) = KRUISE_LEASE;
    match leases(access, Some(namespace), name).await {
        Ok((leases, told)) => Ok(renews(&leases, told.unwrap_or(now))),
        Err(error) if error.failure() == Failure::Gone => Ok(false),
        Err(error) => {
            let doing = format!(
                "read the Lease {namespace}/{name}, which tells whether Kruise's manager runs"
            );
            Err(access.explain(&doing, &error))
        }
    }
}

/// Returns true if one of these Leases of Kruise's manager is held at `now`.
fn renews(leases: &[Lease], now: Timestamp) -> bool {
    leases
        .iter()
        .filter_map(|lease| lease.spec.as_ref())
        .any(|spec| {
            let is_held =
                (spec.holder_identity.as_deref()).is_some_and(|holder| !holder.is_empty());
            let renewed = spec.renew_time.as_ref().map(|time| time.0);
            is_held && renewed.is_some_and(|at| now.duration_since(at) < KRUISE_SILENCE)
        })
}

/// Returns the time of the last renewal, unless it is in the future.
fn renewed(lease: &Lease, now: Timestamp) -> Option<Timestamp> {
    let at = lease.spec.as_ref()?.renew_time.as_ref()?.0;
    (at.duration_since(now) < SILENCE).then_some(at)
}

fn kinds_of(lease: &Lease) -> Kinds {
    Kinds::of_lease(lease).unwrap_or(Kinds::BOTH)
}

/// Evaluates the Leases of that name at `now`; there may be several installations.
///
/// A tenant who can create Leases in one namespace can pretend there that a controller is running. So if the manifests' namespace
/// has a Lease, no other Lease counts for the kinds that it serves.
fn judge(leases: &[Lease], now: Timestamp) -> ControllerLiveness {
    let leases = leases.iter().filter(|lease| renewed(lease, now).is_some());
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
        return ControllerLiveness::NoLease;
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
        false if is_held && kinds != Kinds::BOTH => ControllerLiveness::Partly(kinds),
        false if is_held => ControllerLiveness::Lately,
        false => ControllerLiveness::HandedBack,
    }
}

/// Lists the Leases of that name, and returns the API server's time.
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

/// Pending actions of every rollout that a command waits for, and since when they are pending.
///
/// If there is no Lease, only the controller's work shows that it is running.
#[derive(Default)]
pub(super) struct PendingActions(BTreeMap<SetKey, (Vec<Action>, Timestamp)>);

impl PendingActions {
    /// Returns the controller's liveness for a rollout with these pending `actions` at `now`.
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
            ControllerLiveness::NoLease
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
    told: watch::Receiver<LivenessReport>,
    _looking: Task,
}

#[derive(Clone, Debug, Default)]
struct LivenessReport {
    liveness: ControllerLiveness,
    /// Time when the API server stopped answering; `None` while it answers.
    unanswered: Option<Instant>,
}

impl LivenessWatch {
    /// Starts with a result that is already known.
    pub(super) fn start(access: Access, clock: Clock, liveness: ControllerLiveness) -> Self {
        let beat = LivenessReport {
            liveness,
            unanswered: None,
        };
        let (tell, told) = watch::channel(beat);
        let looking = Task::spawn(async move {
            loop {
                let next = Instant::now() + LOOK_EVERY;
                sleep_until(next).await;
                let liveness = liveness_of(&access, clock.now()).await;
                tell.send_modify(|beat| beat.take(liveness, next));
            }
        });
        Self {
            told,
            _looking: looking,
        }
    }

    /// Returns the last result.
    pub(super) fn liveness(&self) -> ControllerLiveness {
        self.told.borrow().liveness.clone()
    }

    /// Returns for how long the API server has not answered.
    pub(super) fn unanswered(&self) -> Option<Duration> {
        let since = self.told.borrow().unanswered;
        since.map(|since| since.elapsed())
    }
}

impl LivenessReport {
    /// Records the result of a read that began at `begun`.
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
        let fresh = lease("b", json!("2026-01-01T00:00:01.000000Z"));
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
        let words = silent.words().unwrap();
        assert!(
            words.contains("has not renewed its Lease for 3m")
                && words.ends_with("kubectl -n a get pods"),
            "{words}"
        );
    }

    #[test]
    fn a_lease_elsewhere_does_not_stand_for_the_controller() {
        let now: Timestamp = "2026-01-01T00:03:00Z".parse().unwrap();
        let own = lease(HOME, json!("2026-01-01T00:00:00.000000Z"));
        let forged = lease("tenant", json!("2026-01-01T00:02:59.000000Z"));
        let told = judge(&[forged.clone(), own], now);
        let ControllerLiveness::Silent { namespace, .. } = told else {
            panic!("{told:?}");
        };
        assert_eq!(namespace, HOME);
        assert_eq!(judge(&[forged], now), ControllerLiveness::Lately);
        let future = lease("tenant", json!("2999-01-01T00:00:00.000000Z"));
        assert_eq!(judge(&[future], now), ControllerLiveness::NoLease);
    }

    #[test]
    fn a_controller_serves_the_kinds_that_stand_on_its_lease() {
        let now: Timestamp = "2026-01-01T00:03:00Z".parse().unwrap();
        let serving = |namespace: &str, kinds: Option<SetKind>| {
            let mut lease = lease(namespace, json!("2026-01-01T00:02:59.000000Z"));
            let kinds = kinds.map(|kind| (LEASE_KINDS.to_owned(), Kinds::from(kind).to_string()));
            lease.metadata.annotations = kinds.map(|kinds| [kinds].into());
            lease
        };
        let (native, advanced) = (SetKind::Native, SetKind::Advanced);
        let told = judge(&[serving("a", Some(native))], now);
        assert_eq!(told, ControllerLiveness::Partly(native.into()));
        assert!(told.serves(native) && !told.serves(advanced));
        let of_kind = |kind| told.clone().with_signs(kind, &[], false);
        assert_eq!(of_kind(native), ControllerLiveness::Lately);
        assert_eq!(of_kind(advanced), told);
        assert!(told.words().is_some());
        let both = [serving("a", Some(native)), serving("b", Some(advanced))];
        assert_eq!(judge(&both, now), ControllerLiveness::Lately);
        // Older versions don't write the kinds.
        assert_eq!(
            judge(&[serving("a", None)], now),
            ControllerLiveness::Lately
        );
    }

    #[test]
    fn kruise_runs_while_somebody_holds_its_lease_and_renews_it() {
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
    fn without_a_lease_what_is_not_done_for_three_minutes_tells() {
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
        // These actions were carried out.
        assert_eq!(since(ControllerLiveness::NoLease, &second, 181), None);
        assert_eq!(since(ControllerLiveness::NoLease, &[], 200), None);
        assert_eq!(since(ControllerLiveness::NoLease, &[], 2000), None);
    }

    #[test]
    fn the_lease_is_looked_for_where_the_manifests_put_it() {
        let manifest = include_str!("../../manifests/base/rbac/role.yaml");
        assert!(manifest.contains(&format!("\n  namespace: {HOME}\n")));
        assert!(manifest.contains(LEASE));
    }
}
