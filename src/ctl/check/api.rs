//! Checks of the API server: it answers, its version is supported, it is fast, and its clock agrees with that of this machine.

use std::time::Duration;

use http_body_util::BodyExt as _;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822;
use kube::client::Body;
use kube::core::Status;
use serde::Deserialize;
use tokio::time::Instant;

use super::finding::{CheckId, Finding};
use super::reader::{Unread, sentence};
use crate::clock::Clock;
use crate::core::foreign::{WORD, one_line};
use crate::core::instant;
use crate::ctl::access::{Access, SELECT_CLUSTER};
use crate::ctl::error::CliError;
use crate::k8s::client::{CallError, Failure};
use crate::version::{NEWEST_KUBERNETES as NEWEST, OLDEST_KUBERNETES as OLDEST};

/// Number of requests. Their median is the latency, so that the first request, which also sets up the connection, does not matter.
const REQUESTS: usize = 3;
/// Latency above which rollouts become slow.
const SLOW: Duration = Duration::from_secs(1);
/// Difference of the clocks above which ages and times are misleading. The `Date` header has a resolution of a second.
const SKEW: Duration = Duration::from_secs(30);

/// Answers of the API server to a few small requests.
pub(super) struct ApiProbe {
    /// Version of Kubernetes; `None` if the caller may not read it.
    version: Option<ServerVersion>,
    /// Median time until the answer.
    latency: Duration,
    /// Difference between the clocks; `None` if the API server does not report its time.
    skew: Option<Duration>,
}

/// Version of Kubernetes, as the API server reports it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerVersion {
    major: String,
    minor: String,
    git_version: String,
}

impl ServerVersion {
    /// Returns the minor version of Kubernetes 1; `None` for anything else. Some providers append a `+`.
    fn minor(&self) -> Option<u32> {
        let minor = self.minor.trim_end_matches('+').parse().ok()?;
        (self.major == "1").then_some(minor)
    }
}

struct Answer {
    version: Option<ServerVersion>,
    time: Option<Timestamp>,
}

impl ApiProbe {
    /// Asks the API server for its version [`REQUESTS`] times.
    ///
    /// # Errors
    /// Fails if the API server does not answer, answers with an error of its own, or rejects the credentials.
    pub(super) async fn take(access: &Access, clock: &Clock) -> Result<Self, CallError> {
        let mut times = Vec::new();
        let (mut version, mut skew) = (None, None);
        for _ in 0..REQUESTS {
            let begun = Instant::now();
            let answer = access.wait(ask(access)).await?;
            let passed = begun.elapsed();
            times.push(passed);
            let now = clock.now();
            let between = |time: Timestamp| now.duration_since(time).unsigned_abs();
            // Subtract the time of the request itself, because the API server read its clock within that time.
            skew = answer.time.map(|time| between(time).saturating_sub(passed));
            version = answer.version;
        }
        times.sort();
        Ok(Self {
            version,
            latency: times[REQUESTS / 2],
            skew,
        })
    }

    /// Returns the version of Kubernetes as the API server writes it, such as `v1.34.1`.
    pub(super) fn kubernetes(&self) -> Option<String> {
        let version = self.version.as_ref()?;
        Some(one_line(&version.git_version, WORD))
    }

    /// Returns the findings about an API server that answered.
    pub(super) fn findings(&self, access: &Access) -> Vec<Finding> {
        vec![
            Finding::ok(
                CheckId::ApiReachable,
                format!("The API server {} answers.", access.server),
            ),
            version(self.version.as_ref()),
            latency(self.latency),
            clock(self.skew),
        ]
    }
}

/// Returns the finding about an API server that does not answer.
pub(super) fn unreachable(access: &Access, error: &CallError) -> Finding {
    let (server, origin) = (&access.server, &access.origin);
    let error_text = sentence(&error.to_string());
    let (message, fix) = if error.failure() == Failure::Forbidden {
        (
            format!(
                "The API server {server} does not accept the credentials of {origin}: {error_text}"
            ),
            "Renew the credentials, or select others with --kubeconfig or --context.",
        )
    } else {
        (
            format!("The API server {server} ({origin}) does not respond: {error_text}"),
            "Check that the API server is running and reachable from here, and check its certificate.",
        )
    };
    Finding::failed(CheckId::ApiReachable, message, fix)
}

/// Returns the finding about a missing or invalid kubeconfig.
pub(super) fn unconfigured(error: &CliError) -> Finding {
    let message = error.text.replace(SELECT_CLUSTER, "");
    Finding::failed(CheckId::ApiReachable, message.trim_end(), SELECT_CLUSTER)
}

/// Requests the version. A response that the caller may not read the version counts as an answer, too.
async fn ask(access: &Access) -> kube::Result<Answer> {
    let request = http::Request::get("/version").body(Body::empty());
    let request = request.map_err(|error| kube::Error::Service(Box::new(error)))?;
    let response = access.client.send(request).await?;
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    let code = head.status.as_u16();
    if !head.status.is_success() && code != 403 {
        let plain = || Status::failure("", "").with_code(code);
        let status = serde_json::from_slice(&body).unwrap_or_else(|_| plain());
        return Err(kube::Error::Api(Box::new(status)));
    }
    let date = head.headers.get(http::header::DATE);
    let date = date.and_then(|date| rfc2822::parse(date.to_str().ok()?).ok());
    Ok(Answer {
        version: serde_json::from_slice(&body).ok(),
        time: date.map(|date| date.timestamp()),
    })
}

fn version(version: Option<&ServerVersion>) -> Finding {
    let id = CheckId::ApiVersion;
    let Some(version) = version else {
        return Finding::skipped(id, Unread::forbidden("read the version of Kubernetes").0);
    };
    let name = one_line(&version.git_version, WORD);
    match version.minor() {
        Some(OLDEST..=NEWEST) => Finding::ok(id, format!("Kubernetes {name} is supported.")),
        Some(minor) if minor > NEWEST => Finding::warning(
            id,
            format!(
                "Kubernetes {name} is newer than 1.{NEWEST}, the newest version with which this version was tested."
            ),
            "Upgrade yurt-ds, or test your rollouts on this version first.",
        ),
        _ => Finding::warning(
            id,
            format!("Kubernetes {name} is not supported: yurt-ds needs 1.{OLDEST} or newer."),
            "Upgrade Kubernetes.",
        ),
    }
}

fn latency(latency: Duration) -> Finding {
    let text = humantime::format_duration(Duration::from_millis(
        u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
    ));
    if latency > SLOW {
        Finding::warning(
            CheckId::ApiLatency,
            format!("The API server needs {text} for a small request."),
            "Check the load of the API server, and the network from here to it.",
        )
    } else {
        Finding::ok(
            CheckId::ApiLatency,
            format!("The API server answers a small request in {text}."),
        )
    }
}

fn clock(skew: Option<Duration>) -> Finding {
    let id = CheckId::ApiClock;
    match skew {
        None => Finding::skipped(id, "The API server does not report its time."),
        Some(skew) if skew > SKEW => Finding::warning(
            id,
            format!(
                "The clock of this machine differs from that of the API server by {}, so ages and times in ctl are wrong.",
                instant::seconds(skew.as_secs())
            ),
            "Synchronize the clock of this machine, for example with NTP.",
        ),
        Some(_) => Finding::ok(id, "The clock of this machine is that of the API server."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::check::finding::CheckStatus;

    #[test]
    fn unsupported_kubernetes_versions_are_a_warning() {
        #[track_caller]
        fn case(major: &str, minor: &str, expected: CheckStatus) {
            let version = ServerVersion {
                major: major.into(),
                minor: minor.into(),
                git_version: format!("v{major}.{minor}.3"),
            };
            assert_eq!(super::version(Some(&version)).status, expected, "{minor}");
        }
        case("1", "27", CheckStatus::Warning);
        case("1", "28", CheckStatus::Ok);
        case("1", "36+", CheckStatus::Ok);
        case("1", "37", CheckStatus::Warning);
        case("2", "30", CheckStatus::Warning);
        case("1", "x", CheckStatus::Warning);
        assert_eq!(super::version(None).status, CheckStatus::Skipped);
        let chart = include_str!("../../../charts/yurt-ds/Chart.yaml");
        assert!(chart.contains(&format!("kubeVersion: \">=1.{OLDEST}.")));
    }

    #[test]
    fn slow_responses_and_wrong_clocks_are_a_warning() {
        let second = Duration::from_secs(1);
        assert_eq!(latency(second).status, CheckStatus::Ok);
        let slow = latency(Duration::from_millis(1001));
        assert_eq!(slow.status, CheckStatus::Warning);
        assert!(slow.message.contains("1s 1ms"), "{}", slow.message);
        assert_eq!(clock(Some(30 * second)).status, CheckStatus::Ok);
        let wrong = clock(Some(90 * second));
        assert_eq!(wrong.status, CheckStatus::Warning);
        assert!(wrong.message.contains("90s"), "{}", wrong.message);
        assert_eq!(clock(None).status, CheckStatus::Skipped);
    }
}
