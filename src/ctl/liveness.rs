//! Whether a controller is at work, as its Lease tells: without one nothing goes on by itself, and no condition says so.
//!
//! The Lease is looked for in every namespace, and where that is not allowed in that of the manifests. Ages are measured by
//! the clock of the API server, for that of whoever types may be wrong by minutes.

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

/// Whoever has not renewed the Lease for so long does not work: twelve times as long as a leader may be silent.
const SILENCE: SignedDuration = SignedDuration::from_mins(3);
/// One look at the Lease; an API server that needs longer is in trouble.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often somebody who waits looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Whoever has not renewed Kruise's Lease for so long does not work: twice as long as the Lease lasts.
const KRUISE_SILENCE: SignedDuration = SignedDuration::from_secs(30);
/// Where the manifests put the controller.
const HOME: &str = "yurt-ds";

/// What the Lease tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ControllerLiveness {
    /// A controller has spoken lately.
    Lately,
    /// One has, and it serves these kinds of DaemonSets alone.
    Partly(Kinds),
    /// One has, and handed the Lease back at that.
    HandedBack,
    /// None has, for longer than a leader may be silent.
    Silent {
        /// When one spoke last.
        since: Timestamp,
        /// For how long it has not.
        passed: SignedDuration,
        /// Namespace of the Lease.
        namespace: String,
    },
    /// There is no Lease, and what somebody who waits saw was to be done was not done for as long as that.
    Idle {
        /// Since when it is to be done.
        since: Timestamp,
        /// For how long it was not.
        passed: SignedDuration,
    },
    /// There is no Lease: no controller was ever there, or it runs without an election.
    #[default]
    NoLease,
    /// It may not be read.
    Forbidden,
    /// The API server did not answer in time.
    NoAnswer,
}

impl ControllerLiveness {
    /// Since when no controller has spoken, if that is too long.
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

    /// Corrects what the Lease tells by other signs: a controller that runs without an election lets an old Lease lie, but writes
    /// conditions, and while Kruise's manager makes the pods, ours is not needed.
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

    /// What there is to say of it beside a rollout that is to go on; `None`: nothing.
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
    /// Returns what is known, without what to do.
    pub(super) fn fact(&self) -> Option<String> {
        match self {
            Self::Silent { passed, .. } => Some(format!(
                "the yurt-ds controller has not renewed its Lease for {}: rollouts are stopped",
                instant::seconds(passed.as_secs().unsigned_abs())
            )),
            other => other.words(),
        }
    }

    /// Returns what to do about a controller that is not at work, the best first.
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

/// Looks at the Lease; `now` is what our clock says, in case the API server does not tell the time.
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

/// Whether Kruise's manager is at work, which makes the pods of Advanced DaemonSets itself. One look has to do for a person who waits; the
/// controller looks twice, and needs no clock.
///
/// # Errors
/// When its Lease may not be read, or nobody answers.
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

/// Whether somebody holds one of these Leases of Kruise's manager at `now`.
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

/// When it was renewed, unless that is in the future.
fn renewed(lease: &Lease, now: Timestamp) -> Option<Timestamp> {
    let at = lease.spec.as_ref()?.renew_time.as_ref()?.0;
    (at.duration_since(now) < SILENCE).then_some(at)
}

fn kinds_of(lease: &Lease) -> Kinds {
    Kinds::of_lease(lease).unwrap_or(Kinds::BOTH)
}

/// What Leases of that name, of one installation or several, tell at `now`.
///
/// A tenant who can create Leases in one namespace can claim there that a controller is at work. So if the namespace of the manifests has
/// a Lease, no other Lease counts for the kinds that it serves.
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

/// The Leases of that name, and what time it is where they are.
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

/// What is to be done, of every rollout that somebody waits for, and since when: where no Lease tells whether a controller is
/// at work, its work does.
#[derive(Default)]
pub(super) struct PendingActions(BTreeMap<SetKey, (Vec<Action>, Timestamp)>);

impl PendingActions {
    /// What is to be thought of the controller of a rollout of which these `actions` are to be done at `now`.
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

/// Looks at the Lease again and again, for somebody who waits.
pub(super) struct LivenessWatch {
    told: watch::Receiver<LivenessReport>,
    _looking: Task,
}

#[derive(Clone, Debug, Default)]
struct LivenessReport {
    liveness: ControllerLiveness,
    /// Since when the API server does not answer.
    unanswered: Option<Instant>,
}

impl LivenessWatch {
    /// Begins with what is known already.
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

    /// What the Lease told last.
    pub(super) fn liveness(&self) -> ControllerLiveness {
        self.told.borrow().liveness.clone()
    }

    /// For how long the API server has not answered.
    pub(super) fn unanswered(&self) -> Option<Duration> {
        let since = self.told.borrow().unanswered;
        since.map(|since| since.elapsed())
    }
}

impl LivenessReport {
    /// Takes in what came of a look that began at `begun`.
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
        // An older version does not write it.
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
        // That was somebody.
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
