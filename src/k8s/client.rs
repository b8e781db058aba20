//! Client of the API server: its configuration, time limits of calls, and classification of errors.
//!
//! Three defaults of `kube` are dangerous on slow connections, so this module changes them:
//!
//! - A `read_timeout` ends connections to servers that accept and never respond.
//! - Writes that could wait indefinitely have a deadline ([`within`]).
//! - Automatic retries (`default_retry`) are off, because they could delay a Lease renewal until the Lease has expired.

pub(crate) mod conditions;
pub(crate) mod eviction;
mod http2;

use std::ffi::OsStr;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use prometheus_client::metrics::gauge::Gauge;

use crate::core::foreign::{SENTENCE, one_line};
use crate::core::messages::refusals::lacks_permission;
use crate::core::words::named;

/// Timeout of a watch on the API server, for `watcher::Config::timeout`.
///
/// A dead connection goes unnoticed for at most this time. A short timeout costs little: a watch that ends is resumed by one
/// request, without a new list.
pub const WATCH_TIMEOUT_SECONDS: u32 = 120;

/// Time without data after which a connection is closed. It is slightly longer than a watch in which nothing happens.
const READ_TIMEOUT: Duration = Duration::from_secs(WATCH_TIMEOUT_SECONDS as u64 + 10);

/// Time limit for one write.
///
/// The limit is shorter than the 5 s between the end of leadership and the expiry of the Lease (`controller::lease`). So a write
/// that a leader began has ended before another replica can lead.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(4);

/// Component of yurt-ds that sends the requests, as part of their user agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `yurt-ds controller`.
    Controller,
    /// `yurt-ds ota-server`.
    OtaServer,
    /// `yurt-ds ctl`.
    Ctl,
    /// `yurt-ds sim`.
    Sim,
}

impl Role {
    /// Returns the `User-Agent` header of all requests of this role.
    pub fn user_agent(self) -> String {
        let role = match self {
            Self::Controller => "controller",
            Self::OtaServer => "ota-server",
            Self::Ctl => "ctl",
            Self::Sim => "sim",
        };
        format!("yurt-ds/{} ({role})", env!("CARGO_PKG_VERSION"))
    }
}

/// Source of the API server's address and of the credentials.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Kubeconfig file. If set, no other source is used.
    pub kubeconfig: Option<PathBuf>,
    /// Context to use instead of the kubeconfig's `current-context`.
    pub context: Option<String>,
    /// Source if `kubeconfig` is not set. If true, only the pod's service account. If false, the files that kubectl reads
    /// (`$KUBECONFIG`, `~/.kube/config`), and the service account if there is none.
    pub in_cluster: bool,
}

/// Creates a client without sending a request.
///
/// # Errors
/// Returns an error if a file or variable is missing or unusable. The error names it and the reason.
pub async fn connect(source: &Source, role: Role) -> Result<Client> {
    from_config(config(source).await?, role)
}

/// Creates a client like [`connect`]. The gauge `waiting` counts the watches of the controller that have waited for a response for
/// more than 5 s.
///
/// # Errors
/// Returns an error if a file or variable is missing or unusable. The error names it and the reason.
pub async fn connect_counted(source: &Source, role: Role, waiting: Gauge) -> Result<Client> {
    counted(config(source).await?, role, waiting)
}

/// Creates a client from a configuration.
///
/// # Errors
/// Returns an error if the certificates of the configuration cannot be used.
pub fn from_config(config: Config, role: Role) -> Result<Client> {
    counted(config, role, Gauge::default())
}

fn counted(mut config: Config, role: Role, waiting: Gauge) -> Result<Client> {
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    config.default_retry = false;
    if config.cluster_url.scheme_str() == Some("http") && config.root_cert.is_none() {
        config.root_cert = Some(Vec::new()); // plain HTTP needs no certificates, and the machine may have none
    }
    let agent = HeaderValue::from_str(&role.user_agent()).context("user agent")?;
    config.headers.push((USER_AGENT, agent));
    let url = config.cluster_url.clone();
    if role == Role::Controller && config.proxy_url.is_none() && config.auth_info.exec.is_none() {
        return http2::client(&config, waiting)
            .with_context(|| format!("cannot create a client for {url}"));
    }
    let builder = ClientBuilder::try_from(config);
    let builder = builder.with_context(|| format!("cannot create a client for {url}"))?;
    Ok(builder.build())
}

/// Returns the client configuration from a source.
///
/// # Errors
/// Returns an error if a file or variable is missing or unusable. The error names it and the reason.
pub async fn config(source: &Source) -> Result<Config> {
    let options = KubeConfigOptions {
        context: source.context.clone(),
        ..KubeConfigOptions::default()
    };
    if let Some(path) = &source.kubeconfig {
        let what = || format!("cannot use kubeconfig {}", path.display());
        let file = Kubeconfig::read_from(path)
            .map_err(without_content)
            .with_context(what)?;
        check_context(&file, source).with_context(what)?;
        return Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(without_content)
            .with_context(what);
    }
    if source.in_cluster {
        return Config::incluster().map_err(|error| {
            anyhow::anyhow!(
                "this process does not run in a pod with a service account ({error}). Outside of a cluster, set --kubeconfig"
            )
        });
    }
    let file = match std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
        Some(list) => merged(&list),
        None => Kubeconfig::read(),
    };
    if let Ok(file) = &file {
        check_context(file, source).context("cannot use the kubeconfig")?;
    }
    let config = match file {
        Ok(file) => Config::from_custom_kubeconfig(file, &options).await,
        Err(error) => Err(error),
    };
    match config {
        Ok(config) => Ok(config),
        Err(error) => Config::incluster().map_err(|_| {
            without_content(error).context(
                "no usable kubeconfig: set --kubeconfig or $KUBECONFIG, or create ~/.kube/config",
            )
        }),
    }
}

/// Reads and merges the files of `$KUBECONFIG`. Like kubectl, skips files that don't exist, except if none exists.
fn merged(list: &OsStr) -> Result<Kubeconfig, KubeconfigError> {
    let all: Vec<PathBuf> = std::env::split_paths(list)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    let is_there = |path: &&PathBuf| path.try_exists().unwrap_or(true);
    let present: Vec<&PathBuf> = all.iter().filter(is_there).collect();
    let read = if present.is_empty() {
        all.iter().take(1).collect()
    } else {
        present
    };
    let files = read.into_iter().map(Kubeconfig::read_from);
    files
        .reduce(|merged, next| merged?.merge(next?))
        .unwrap_or_else(Kubeconfig::read)
}

/// Returns an error if the kubeconfig doesn't contain the requested context.
fn check_context(file: &Kubeconfig, source: &Source) -> Result<()> {
    let Some(context) = &source.context else {
        return Ok(());
    };
    let names: Vec<&str> = file
        .contexts
        .iter()
        .map(|known| known.name.as_str())
        .collect();
    match (names.contains(&context.as_str()), names.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => bail!("it has no context {context:?} and no other contexts"),
        (false, false) => bail!(
            "it has no context {context:?}; available: {}",
            named(names, 0)
        ),
    }
}

/// Error of a request to the API server.
#[derive(Debug)]
pub enum CallError {
    /// No response arrived within the deadline. A write may have been applied, or may still be applied.
    TimedOut(Duration),
    /// The API server responded with an error, or the connection failed.
    Kube(kube::Error),
}

/// Class of a [`CallError`]. The reaction of callers depends only on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The object does not exist or no longer exists.
    Gone,
    /// Another client has changed the object, or a precondition is not met.
    Conflict,
    /// The credentials do not allow the request.
    Forbidden,
    /// The server rejects the request because of a quota, admission or validation.
    Refused,
    /// A PodDisruptionBudget doesn't allow the eviction now.
    Blocked,
    /// The server throttles requests.
    Throttled,
    /// No response, or an internal error of the server. A write may have been applied.
    Unreachable,
}

impl Failure {
    /// All classes, for metrics.
    pub const ALL: [Self; 7] = [
        Self::Gone,
        Self::Conflict,
        Self::Forbidden,
        Self::Refused,
        Self::Blocked,
        Self::Throttled,
        Self::Unreachable,
    ];

    /// Returns the label value for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Conflict => "conflict",
            Self::Forbidden => "forbidden",
            Self::Refused => "refused",
            Self::Blocked => "blocked",
            Self::Throttled => "throttled",
            Self::Unreachable => "unreachable",
        }
    }

    /// Returns the class of an HTTP status that is not a success.
    fn of_status(code: u16) -> Self {
        match code {
            404 | 410 => Self::Gone,
            409 | 412 => Self::Conflict,
            401 | 403 => Self::Forbidden,
            429 => Self::Throttled,
            400..=499 => Self::Refused,
            _ => Self::Unreachable,
        }
    }
}

impl CallError {
    /// Returns the class of the error.
    pub fn failure(&self) -> Failure {
        match self {
            Self::TimedOut(_) => Failure::Unreachable,
            Self::Kube(error) => failure(error),
        }
    }

    /// Returns the message of the policy, webhook or quota that rejected the request.
    ///
    /// `None` if the request failed for another reason, such as a missing permission (RBAC).
    pub fn refused_by_admission(&self) -> Option<&str> {
        let Self::Kube(kube::Error::Api(status)) = self else {
            return None;
        };
        let message = &status.message;
        let is_refusal = matches!(status.code, 400..=499)
            && (message.contains(" is forbidden: ") || message.starts_with("admission webhook "));
        (is_refusal && !lacks_permission(message)).then_some(message)
    }

    /// Returns true if the service account lacks a permission (RBAC).
    pub fn lacks_permission(&self) -> bool {
        matches!(self, Self::Kube(kube::Error::Api(status)) if lacks_permission(&status.message))
    }
}

/// Returns the class of an error of `kube`.
pub fn failure(error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) if eviction::refusal_in(status).is_some() => Failure::Blocked,
        kube::Error::Api(status) => Failure::of_status(status.code),
        _ => Failure::Unreachable,
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(deadline) => write!(f, "no response within {deadline:?}"),
            Self::Kube(kube::Error::Api(status)) => {
                let message = one_line(&status.message, SENTENCE);
                write!(f, "{message} (HTTP {})", status.code)
            }
            Self::Kube(error) => f.write_str(&chain(error)),
        }
    }
}

impl std::error::Error for CallError {}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        Self::Kube(error)
    }
}

/// Returns the error on one line. The parser quotes lines of the kubeconfig, which are omitted, because they may contain
/// credentials.
fn without_content(error: KubeconfigError) -> anyhow::Error {
    let KubeconfigError::Parse(error) = error else {
        return in_one_line(error);
    };
    match error.location() {
        Some(place) => anyhow::anyhow!(
            "it is not a valid kubeconfig: see line {}, column {}",
            place.line(),
            place.column()
        ),
        None => anyhow::anyhow!("it is not a valid kubeconfig"),
    }
}

/// Returns the error and its sources on one line.
fn in_one_line(error: impl std::error::Error) -> anyhow::Error {
    anyhow::Error::msg(chain(&error))
}

/// Joins an error and its sources into one text, without repetitions.
///
/// Without the sources, the text for a rejected TLS handshake would only be "client error (Connect)". Many errors of `kube` repeat
/// their source.
fn chain(error: &dyn std::error::Error) -> String {
    let mut last = error.to_string();
    let mut chain = last.clone();
    let mut next = error.source();
    while let Some(source) = next {
        let text = source.to_string();
        if !last.contains(&text) {
            chain = format!("{chain}: {text}");
        }
        last = text;
        next = source.source();
    }
    chain
}

/// Waits for a call for at most `deadline`.
///
/// # Errors
/// Returns the error of the call, or [`CallError::TimedOut`]. After a timeout, the connection of the call is closed.
pub async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(deadline, call).await {
        Ok(result) => result.map_err(CallError::Kube),
        Err(_) => Err(CallError::TimedOut(deadline)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::path::Path;

    async fn error_of(path: &Path) -> String {
        let source = Source {
            kubeconfig: Some(path.into()),
            ..Source::default()
        };
        let error = connect(&source, Role::Ctl).await.err().expect("an error");
        format!("{error:#}")
    }

    #[tokio::test]
    async fn a_missing_or_invalid_kubeconfig_is_named_with_the_reason() {
        let missing = error_of(Path::new("/nowhere/config")).await;
        assert!(
            missing.starts_with("cannot use kubeconfig /nowhere/config: "),
            "{missing}"
        );
        assert_eq!(missing.matches("No such file").count(), 1, "{missing}");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"apiVersion: v1\nkind: Config\nclusters: 3\n")
            .unwrap();
        let broken = error_of(file.path()).await;
        assert!(broken.ends_with("see line 3, column 11"), "{broken}");
    }

    #[test]
    fn files_of_a_list_that_do_not_exist_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            let text = format!("contexts:\n- name: {name}\n  context: {{cluster: c, user: u}}\n");
            std::fs::write(file(name), text).unwrap();
        }
        let contexts = |names: &[&str]| {
            let list = std::env::join_paths(names.iter().map(|name| file(name))).unwrap();
            let merged = merged(&list).map_err(|error| error.to_string())?;
            Ok::<_, String>(
                merged
                    .contexts
                    .into_iter()
                    .map(|one| one.name)
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(contexts(&["absent", "a", "gone", "b"]).unwrap(), ["a", "b"]);
        let error = contexts(&["absent", "gone"]).unwrap_err();
        assert!(error.contains("absent"), "{error}");
    }

    /// The parser's error quotes the lines around a syntax error in a kubeconfig. They may contain credentials.
    #[tokio::test]
    async fn errors_about_a_kubeconfig_contain_none_of_its_lines() {
        for (text, place) in [
            (
                "users:\n- name: u\n  user: {password: hunter2}}\n",
                "line 3, column 28",
            ),
            ("users:\n- name: u\n  user: hunter2\n", "line 3, column 9"),
            ("kind: [hunter2\n", "not a valid kubeconfig"),
        ] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let error = error_of(file.path()).await;
            assert!(error.contains(place), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[tokio::test]
    async fn every_request_names_program_version_and_role() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = from_config(Config::new(url.parse().unwrap()), Role::Controller).unwrap();
        let server = tokio::task::spawn_blocking(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut head = vec![0; 4096];
            let read = socket.read(&mut head).unwrap();
            head.truncate(read);
            head
        });
        assert!(client.apiserver_version().await.is_err());
        let head = server.await.unwrap();
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let wanted = format!(
            "user-agent: yurt-ds/{} (controller)",
            env!("CARGO_PKG_VERSION")
        );
        assert!(head.contains(&wanted), "{head}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unanswered_call_ends_at_its_deadline() {
        let call = std::future::pending::<kube::Result<()>>();
        let error = within(WRITE_DEADLINE, call).await.unwrap_err();
        assert_eq!(error.failure(), Failure::Unreachable);
        assert_eq!(error.to_string(), "no response within 4s");
    }

    /// The test cases are responses of Kubernetes 1.36.
    #[test]
    fn a_rejection_by_admission_is_no_missing_permission() {
        #[track_caller]
        fn case(code: u16, message: &str, by_admission: bool, lacks: bool) {
            let status = kube::core::Status::failure(message, "").with_code(code);
            let error = CallError::Kube(kube::Error::Api(Box::new(status)));
            let found = (error.refused_by_admission(), error.lacks_permission());
            assert_eq!(found, (by_admission.then_some(message), lacks), "{message}");
        }
        let policy = "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: no";
        let role = "pods \"a\" is forbidden: User \"system:serviceaccount:a:b\" cannot delete resource \"pods\" in API group \"\" in the namespace \"shop\"";
        case(403, policy, true, false);
        case(422, policy, true, false);
        case(403, role, false, true);
        case(
            400,
            "admission webhook \"guard.example.io\" denied the request: no",
            true,
            false,
        );
        case(401, "Unauthorized", false, false);
        case(500, "etcdserver: request timed out", false, false);
    }

    #[test]
    fn failures_are_classified_by_the_next_step() {
        fn case(code: u16, expected: Failure) {
            assert_eq!(Failure::of_status(code), expected, "{code}");
        }
        case(404, Failure::Gone);
        case(409, Failure::Conflict);
        case(403, Failure::Forbidden);
        case(422, Failure::Refused);
        case(429, Failure::Throttled);
        case(500, Failure::Unreachable);
        case(504, Failure::Unreachable);
    }
}
