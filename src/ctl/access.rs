//! The cluster that `ctl` talks to, and error messages for calls that fail.

use std::future::Future;
use std::io::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::code::Code;
use super::error::CliError;
use crate::core::instant;
use crate::k8s::client::{self, CallError, Failure, Role, Source};

/// Timeout of a call to the API server. The user is waiting, and a healthy API server answers sooner.
pub(super) const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// Interval between reads of an object that another component is about to change.
pub(super) const REREAD_INTERVAL: Duration = Duration::from_millis(500);
/// Time without an answer from the API server after which a message is printed.
pub(super) const SLOW_WARNING: Duration = Duration::from_secs(3);

/// Remedy for a missing or invalid kubeconfig.
pub(super) const SELECT_CLUSTER: &str =
    "Select a kubeconfig with --kubeconfig or $KUBECONFIG, and one of its contexts with --context.";

/// A connection to a cluster, with the address of its API server and the file that the address was read from.
#[derive(Clone)]
pub struct Access {
    /// Client for the API server.
    pub client: kube::Client,
    /// Address of the API server.
    pub server: String,
    /// Source of the address, as in "kubeconfig FILE".
    pub origin: String,
    /// Namespace for names that were entered without a namespace.
    pub namespace: String,
    /// True after the warning about a slow API server was printed. It is printed only once.
    pub is_warned: Arc<AtomicBool>,
}

impl Access {
    /// Reads the kubeconfig. Sends no request.
    ///
    /// # Errors
    /// Returns an error that names the kubeconfig if it is missing or invalid.
    pub async fn connect(source: &Source) -> Result<Self, CliError> {
        let origin = origin(source);
        let unusable = |error: anyhow::Error| {
            let cause = cause(&error);
            let text = format!("No cluster is configured ({origin}): {cause}. {SELECT_CLUSTER}");
            CliError::new(Code::Unreachable, text)
        };
        let config = client::config(source).await.map_err(unusable)?;
        let server = config.cluster_url.to_string();
        let namespace = config.default_namespace.clone();
        let client = client::from_config(config, Role::Ctl).map_err(unusable)?;
        Ok(Self {
            client,
            server: server.trim_end_matches('/').to_owned(),
            origin,
            namespace,
            is_warned: Arc::default(),
        })
    }

    /// Returns the message for an API server that has not answered for the time `passed`.
    pub(super) fn unanswered(&self, passed: Duration) -> String {
        format!(
            "The API server {} has not answered for {}.",
            self.server,
            instant::seconds(passed.as_secs())
        )
    }

    /// Waits for a call, and prints a message if it takes long.
    ///
    /// # Errors
    /// Returns errors of the API server, and an error if it does not answer.
    pub(super) async fn wait<T>(
        &self,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, CallError> {
        let mut call = pin!(client::within(CALL_DEADLINE, call));
        if let Ok(answer) = tokio::time::timeout(SLOW_WARNING, &mut call).await {
            return answer;
        }
        if !self.is_warned.swap(true, Ordering::Relaxed) {
            // Ignore the error: if standard error cannot be written, there is no other place for this message.
            let _ = writeln!(
                std::io::stderr(),
                "{} Waiting up to {}.",
                self.unanswered(SLOW_WARNING),
                humantime::format_duration(CALL_DEADLINE)
            );
        }
        call.await
    }

    /// Makes a call and returns `None` if the object does not exist. `doing` describes the call in error messages, as in "list
    /// nodes".
    ///
    /// # Errors
    /// Returns other errors with an explanation for the user.
    pub(super) async fn find<T>(
        &self,
        doing: &str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<Option<T>, CliError> {
        match self.wait(call).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.failure() == Failure::Gone => Ok(None),
            Err(error) => Err(self.explain(doing, &error)),
        }
    }

    /// Makes a call like [`find`](Self::find), and also returns `None` if the caller lacks the right to read the object.
    ///
    /// # Errors
    /// Returns other errors with an explanation for the user.
    pub(super) async fn find_allowed<T>(
        &self,
        doing: &str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<Option<T>, CliError> {
        match self.wait(call).await {
            Ok(found) => Ok(Some(found)),
            Err(CallError::Kube(kube::Error::Api(status))) if [403, 404].contains(&status.code) => {
                Ok(None)
            }
            Err(error) => Err(self.explain(doing, &error)),
        }
    }

    /// Makes a call about an object that must exist: a missing object is an error, too.
    ///
    /// # Errors
    /// Returns each error with an explanation for the user.
    pub(super) async fn call<T>(
        &self,
        doing: &str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, CliError> {
        self.wait(call)
            .await
            .map_err(|error| self.explain(doing, &error))
    }

    /// Converts an error of the API server to an error for the user, with cause and next step.
    pub(super) fn explain(&self, doing: &str, error: &CallError) -> CliError {
        let (server, origin) = (&self.server, &self.origin);
        let unauthorized =
            matches!(error, CallError::Kube(kube::Error::Api(status)) if status.code == 401);
        let (code, text) = match error.failure() {
            _ if is_garbled(error) => (
                Code::Failed,
                format!(
                    "Cannot {doing}: the response of the API server {server} cannot be decoded: {error}."
                ),
            ),
            Failure::Unreachable if is_by_conversion(error) => (
                Code::Failed,
                format!(
                    "Cannot {doing}: {error}. The CustomResourceDefinition in the cluster is not that of yurt-ds, \
                     and its conversion webhook does not respond. Install that of yurt-ds: kubectl apply -k \
                     manifests/components/advanced (docs/coming-from-kruise.md)."
                ),
            ),
            Failure::Unreachable | Failure::Throttled => (
                Code::Unreachable,
                format!(
                    "Cannot {doing}: the API server {server} ({origin}) does not respond: {error}. Check that it is \
                     running and reachable from here, and check its certificate."
                ),
            ),
            Failure::Forbidden if unauthorized => (
                Code::Unreachable,
                format!(
                    "Cannot {doing}: the API server {server} does not accept the credentials of {origin}: {error}. \
                     Renew them, or select others with --kubeconfig or --context."
                ),
            ),
            // Admission (a quota, a policy, a terminating namespace) rejected the request. Don't suggest that the user ask for more
            // rights: they would not help.
            Failure::Forbidden if is_by_admission(error) => (
                Code::Failed,
                format!("Cannot {doing}: the API server {server} rejects the request: {error}."),
            ),
            Failure::Forbidden => {
                let text = format!(
                    "Not allowed to {doing}: {error}. Ask the administrator of {server} for the ClusterRole \
                     yurt-ds-viewer (to read) or yurt-ds-operator (to change). Advanced DaemonSets (apps.kruise.io) \
                     need the role of the same name with -advanced. To read nodes, a role needs a \
                     ClusterRoleBinding. Or select other credentials than those of {origin} with --kubeconfig or \
                     --context."
                );
                return CliError {
                    refusal: Some(error.to_string()),
                    ..CliError::new(Code::Unreachable, text)
                };
            }
            Failure::Gone | Failure::Conflict | Failure::Refused | Failure::Blocked => (
                Code::Failed,
                format!("Cannot {doing}: the API server {server} rejects the request: {error}."),
            ),
        };
        CliError::new(code, text)
    }
}

/// Returns true if the API server's response cannot be decoded.
fn is_garbled(error: &CallError) -> bool {
    matches!(error, CallError::Kube(kube::Error::SerdeError(_)))
}

/// Returns true if the API server cannot read stored objects because the conversion webhook of their CRD does not respond.
fn is_by_conversion(error: &CallError) -> bool {
    let CallError::Kube(kube::Error::Api(status)) = error else {
        return false;
    };
    status
        .message
        .contains("conversion webhook for apps.kruise.io")
}

/// Returns true if admission rejected the request. More rights would not help the caller.
fn is_by_admission(error: &CallError) -> bool {
    error.refused_by_admission().is_some()
}

/// Returns the causes of an error in one line, each of them once. Skips the outermost message if it has a cause.
fn cause(error: &anyhow::Error) -> String {
    let mut causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    if causes.len() > 1 {
        causes.remove(0); // The caller's message already says what was tried.
    }
    let mut text = String::new();
    for cause in causes.iter().filter(|cause| !cause.is_empty()) {
        if text.is_empty() {
            text.clone_from(cause);
        } else if !text.contains(cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Returns the file or environment that kube reads the API server's address and credentials from, for messages.
fn origin(source: &Source) -> String {
    if let Some(path) = &source.kubeconfig {
        return format!("kubeconfig {}", path.display());
    }
    // Read the variable only for the message: the client reads it independently.
    match std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) {
        Some(paths) => format!("kubeconfig {}", paths.display()),
        None => "kubeconfig ~/.kube/config".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn access() -> Access {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::empty()))
        });
        Access {
            client: kube::Client::new(service, "default"),
            server: "https://10.0.0.1:6443".into(),
            origin: "kubeconfig /home/a/config".into(),
            namespace: "default".into(),
            is_warned: Arc::default(),
        }
    }

    #[tokio::test]
    async fn errors_name_server_kubeconfig_and_remedy() {
        #[track_caller]
        fn case(error: CallError, code: Code, words: &[&str]) {
            let error = access().explain("list nodes", &error);
            assert_eq!(error.code, code, "{error}");
            for word in words {
                assert!(error.text.contains(word), "{word}: {error}");
            }
        }
        fn status(code: u16) -> CallError {
            let status = Status::failure("no way", "Reason").with_code(code);
            CallError::Kube(kube::Error::Api(status.boxed()))
        }
        let everything = ["list nodes", "https://10.0.0.1:6443", "/home/a/config"];
        let silent = CallError::TimedOut(Duration::from_secs(30));
        case(silent, Code::Unreachable, &everything);
        case(status(401), Code::Unreachable, &everything);
        case(status(403), Code::Unreachable, &everything);
        case(status(422), Code::Failed, &["no way"]);
        let terminating = "pods \"a\" is forbidden: unable to create new content in namespace b because it is being terminated";
        let status = Status::failure(terminating, "Forbidden").with_code(403);
        let error = access().explain(
            "create a",
            &CallError::Kube(kube::Error::Api(status.boxed())),
        );
        assert_eq!(error.code, Code::Failed);
        assert!(!error.text.contains("ClusterRole"), "{error}");
    }
}
