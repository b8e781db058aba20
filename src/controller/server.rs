//! Properties of the API server that affect the controller.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tracing::{info, warn};

use crate::backoff::Backoff;
use crate::core::names::{KRUISE_LEASE, KRUISE_VERSION};
use crate::k8s::client::{CallError, Failure, WRITE_DEADLINE, within};

/// Minimum API server version (major, minor) at which the native controller certainly sees changes of several pods in order.
///
/// Controller managers see changes in order since 1.33 (client-go's `InOrderInformers`). A controller manager may be one minor
/// version older than the API server (Kubernetes version skew policy), so the API server has to be 1.34.
const IN_ORDER_SINCE: (u32, u32) = (1, 34);

/// Minimum API server version with which a watch can begin with a list (`sendInitialEvents`, KEP-3157), unless that is
/// disabled.
const STREAMS_SINCE: (u32, u32) = (1, 34);

/// Abilities that follow from the version of Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    /// See [`Fleet::in_order`](crate::core::Fleet::in_order).
    pub(super) in_order: bool,
    /// True if a watch can begin with all existing objects (streaming list).
    pub(super) streams: bool,
}

/// Reads the version of the API server. Waits until the API server responds.
///
/// If the version is forbidden or unreadable, returns the abilities of an old version. They are safe with every API server.
pub(super) async fn abilities(client: &Client) -> Abilities {
    let mut backoff = Backoff::default();
    loop {
        let error = match within(WRITE_DEADLINE, client.apiserver_version()).await {
            Ok(version) => {
                let able = Abilities::new(&version.major, &version.minor);
                let Abilities { in_order, streams } = able;
                info!(kubernetes = %version.git_version, in_order, streams, "Detected the Kubernetes version");
                return able;
            }
            Err(error) => error,
        };
        if !is_passing(&error) {
            warn!(%error, "Cannot read the API server's version; assuming a version before 1.34");
            return Abilities::default();
        }
        tokio::time::sleep(backoff.next().unwrap_or_default()).await;
    }
}

/// Returns true if the API server serves Advanced DaemonSets. Waits until the API server responds. If it rejects the check, assumes
/// that it serves them.
pub(super) async fn serves_advanced(client: &Client) -> bool {
    let mut backoff = Backoff::default();
    loop {
        match within(
            WRITE_DEADLINE,
            client.list_api_group_resources(KRUISE_VERSION),
        )
        .await
        {
            Ok(found) => {
                let mut resources = found.resources.iter();
                return resources.any(|resource| resource.name == "daemonsets");
            }
            Err(error) if error.failure() == Failure::Gone => return false,
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                warn!(%error, "Cannot check if the API server serves {KRUISE_VERSION}; assuming that it does");
                return true;
            }
        }
        tokio::time::sleep(backoff.next().unwrap_or_default()).await;
    }
}

/// Time between two reads of a Lease. A running holder renews its Lease within that time, so the second read shows a change.
const BETWEEN_LOOKS: Duration = Duration::from_secs(6);

/// Returns true if the Lease of Kruise's manager is being renewed. Then Kruise itself creates the pods of Advanced DaemonSets.
pub(super) async fn is_kruise_running(client: &Client) -> bool {
    let (namespace, name) = KRUISE_LEASE;
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let look = async || {
        let lease = within(WRITE_DEADLINE, leases.get_opt(name)).await;
        lease.ok().flatten()?.spec?.renew_time
    };
    let Some(before) = look().await else {
        return false;
    };
    tokio::time::sleep(BETWEEN_LOOKS).await;
    look().await.is_some_and(|renewed| renewed != before)
}

/// Returns true if another attempt may succeed. The error need not be logged, because the watches report an unreachable API server.
fn is_passing(error: &CallError) -> bool {
    let unreadable = matches!(error, CallError::Kube(kube::Error::SerdeError(_)));
    !unreadable && matches!(error.failure(), Failure::Unreachable | Failure::Throttled)
}

impl Abilities {
    /// Returns the abilities of a Kubernetes version. Distributions append text to the minor number (`28+`).
    fn new(major: &str, minor: &str) -> Self {
        let number = |text: &str| -> Option<u32> {
            let end = text.find(|c: char| !c.is_ascii_digit());
            text[..end.unwrap_or(text.len())].parse().ok()
        };
        let version = number(major).zip(number(minor));
        Self {
            in_order: version >= Some(IN_ORDER_SINCE),
            streams: version >= Some(STREAMS_SINCE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_server_version_is_treated_as_old() {
        for (major, minor, expected) in [
            ("1", "33", false),
            ("1", "34", true),
            ("1", "34+", true),
            ("1", "28+", false),
            ("1", "4", false),
            ("2", "0", true),
            ("1", "", false),
            ("", "40", false),
            ("one", "+", false),
        ] {
            let found = Abilities::new(major, minor);
            let both = (found.in_order, found.streams);
            assert_eq!(both, (expected, expected), "{major}.{minor}");
        }
    }
}
