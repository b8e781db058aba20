//! Runs the real yurt-ds binary as controller of a real cluster and as agent of its nodes, with the permissions that `manifests/`
//! grants.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde_json::{Value, json};
use yurt_ds::k8s::client::Role;

use super::agents::Setup;
use super::machine::BUSY;
use super::objects::Daemon;
use super::player::from;

/// Namespace and service account of the controller in manifests/base.
pub(crate) const NAMESPACE: &str = "yurt-ds";
pub(crate) const ACCOUNT: &str = "yurt-ds-controller";

/// Cluster roles of the controller: the role in `manifests/base`, and the roles of components, which certain settings need.
const CONTROLLER_ROLES: [&str; 6] = [
    ACCOUNT,
    "yurt-ds-controller-advanced",
    "yurt-ds-controller-in-place",
    "yurt-ds-controller-lifecycle",
    "yurt-ds-controller-max-surge",
    "yurt-ds-controller-pre-pull",
];

/// Namespace and service account of the agents.
const AGENT_NAMESPACE: &str = "yurt-ds-edge";
const AGENT_ACCOUNT: &str = "yurt-ds-ota-server";

/// Loopback address for a server. The kernel selects a free port.
pub(crate) const ANY_PORT: &str = "127.0.0.1:0";

/// Manifests that grant permissions to controller and agents, in the order in which they must be applied.
const MANIFESTS: [&str; 20] = [
    "base/namespace.yaml",
    "base/rbac/serviceaccount.yaml",
    "base/rbac/clusterrole.yaml",
    "base/rbac/role.yaml",
    "base/rbac/bindings.yaml",
    "components/advanced/clusterrole.yaml",
    "components/advanced/binding.yaml",
    "components/in-place/clusterrole.yaml",
    "components/in-place/binding.yaml",
    "components/lifecycle/clusterrole.yaml",
    "components/lifecycle/binding.yaml",
    "components/max-surge/clusterrole.yaml",
    "components/max-surge/binding.yaml",
    "components/pre-pull/clusterrole.yaml",
    "components/pre-pull/binding.yaml",
    "base/ota-server/namespace.yaml",
    "base/ota-server/serviceaccount.yaml",
    "base/ota-server/clusterrole.yaml",
    "base/ota-server/binding.yaml",
    "overlays/static-pods/role.yaml",
];

/// Admission policies that limit the controller's service account. They need Kubernetes 1.30 or newer.
const POLICIES: [&str; 5] = [
    "components/controller-bound/pods.yaml",
    "components/controller-bound/managed.yaml",
    "components/controller-bound/jobs.yaml",
    "components/controller-bound/revisions.yaml",
    "components/controller-bound/status.yaml",
];

/// Manifest of the Advanced DaemonSet CRD.
const DEFINITION: &str = "components/advanced/crd.yaml";

/// Kubeconfigs of controller and agents for a cluster to which the manifests are applied.
pub(crate) struct Installation {
    directory: tempfile::TempDir,
    kubeconfig: PathBuf,
    admin: PathBuf,
    agent_token: String,
}

/// Running process of yurt-ds. It is killed when dropped.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Installation {
    /// Applies the manifests and requests tokens for the service accounts of controller and agents.
    pub(crate) async fn prepare(client: &Client, admin: &Path) -> anyhow::Result<Self> {
        define_advanced(client).await?;
        grant(client).await?;
        bind(client).await?;
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        let controller = token(client, NAMESPACE, ACCOUNT).await?;
        std::fs::write(&kubeconfig, restricted(admin, &controller, None)?)?;
        Ok(Self {
            directory,
            kubeconfig,
            admin: admin.to_owned(),
            agent_token: token(client, AGENT_NAMESPACE, AGENT_ACCOUNT).await?,
        })
    }

    /// Starts a controller with this name as its identity.
    pub(crate) fn start(&self, name: &str) -> anyhow::Result<Process> {
        let program = env!("CARGO_BIN_EXE_yurt-ds").as_ref();
        let mut command = controller_command(program, name, &self.kubeconfig);
        let log = self.directory.path().join(format!("{name}.log"));
        Process::start(&mut command, log).context("start the controller")
    }

    /// Returns the path of the kubeconfig with the controller's token.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Starts the agent of a node. `server` is the address of the API server.
    pub(crate) fn agent(&self, setup: &Setup, server: SocketAddr) -> anyhow::Result<Process> {
        let name = &setup.node;
        let kubeconfig = self.directory.path().join(format!("{name}.kubeconfig"));
        let config = restricted(&self.admin, &self.agent_token, Some(server))?;
        std::fs::write(&kubeconfig, config)?;
        let log = self.directory.path().join(format!("{name}.log"));
        let mut command = agent_command(setup, &kubeconfig, ANY_PORT);
        Process::start(&mut command, log).context("start an agent")
    }
}

/// Returns the command that runs this binary as a controller with this name as its identity.
pub(crate) fn controller_command(program: &Path, name: &str, kubeconfig: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["controller", "--listen", ANY_PORT]);
    command.args(["--lease-namespace", NAMESPACE, "--identity", name]);
    command.arg("--kubeconfig").arg(kubeconfig);
    command
}

/// Returns the command that runs the agent of a node.
pub(crate) fn agent_command(setup: &Setup, kubeconfig: &Path, listen: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yurt-ds"));
    command.args(["ota-server", "--listen", listen, "--node-name"]);
    command.arg(&setup.node);
    command.arg("--state-dir").arg(&setup.home);
    command.arg("--manifest-dir").arg(&setup.manifests);
    command.arg("--kubeconfig").arg(kubeconfig);
    command
}

impl Process {
    /// Starts a process whose output is written to this log file.
    pub(crate) fn start(command: &mut Command, log: PathBuf) -> anyhow::Result<Self> {
        let file = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        Ok(Self { child, log })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process has logged the address that it listens on, and returns the address.
    pub(crate) async fn address(&mut self) -> anyhow::Result<SocketAddr> {
        for _ in 0..200 * BUSY {
            if let Some(address) = self.listens() {
                return Ok(address);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("it has ended: {status}\n{}", self.tail());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("no address in its log\n{}", self.tail())
    }

    /// Stops the process with SIGTERM.
    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        let id = self.child.id().to_string();
        let killed = Command::new("kill").args(["-TERM", &id]).status()?;
        anyhow::ensure!(killed.success(), "kill {id}: {killed}");
        for _ in 0..200 * BUSY {
            if let Some(status) = self.child.try_wait()? {
                anyhow::ensure!(status.success(), "{status}\n{}", self.tail());
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("it does not end\n{}", self.tail())
    }

    /// Returns the address that the process listens on; `None` if the log doesn't contain it yet.
    pub(crate) fn listens(&self) -> Option<SocketAddr> {
        self.address_after("Listening")
    }

    /// Returns the address that follows these words in the log.
    pub(crate) fn address_after(&self, words: &str) -> Option<SocketAddr> {
        address_after(&self.log(), words)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the end of the log. If the process has ended, the first line reports that.
    pub(crate) fn tail(&mut self) -> String {
        let ended = self.child.try_wait().ok().flatten();
        let ended = ended.map_or(String::new(), |status| {
            format!("the process has ended: {status}\n")
        });
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        format!(
            "{ended}{}",
            lines[lines.len().saturating_sub(40)..].join("\n")
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds the loopback address and port that follow these words in a log.
fn address_after(log: &str, words: &str) -> Option<SocketAddr> {
    let log = &log[log.find(words)?..];
    let at = log.find("127.0.0.1:")?;
    let end = log[at..].find(|c: char| !(c.is_ascii_digit() || ".:".contains(c)))?;
    log[at..at + end].parse().ok()
}

/// Grants all permissions of the manifests to controller and agents.
pub(crate) async fn grant(client: &Client) -> anyhow::Result<()> {
    for file in MANIFESTS {
        apply(client, &Path::new("manifests").join(file)).await?;
    }
    Ok(())
}

/// Applies the admission policies of the manifests. A scenario then fails if the policies reject a write of the controller.
async fn bind(client: &Client) -> anyhow::Result<()> {
    let policies = Api::<ValidatingAdmissionPolicy>::all(client.clone());
    match policies.list(&ListParams::default().limit(1)).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(error).context("list policies"),
    }
    for file in POLICIES {
        apply(client, &Path::new("manifests").join(file)).await?;
    }
    Ok(())
}

/// Installs the Advanced DaemonSet CRD and waits until the API server serves it.
///
/// The CRD must exist before the controller starts. Otherwise the controller finds it only after some minutes.
async fn define_advanced(client: &Client) -> anyhow::Result<()> {
    apply(client, &Path::new("manifests").join(DEFINITION)).await?;
    let sets = Api::<DynamicObject>::all_with(client.clone(), &Daemon::advanced().resource());
    for _ in 0..100 * BUSY {
        if sets.list(&ListParams::default().limit(1)).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("Advanced DaemonSets are not served")
}

/// Removes a verb on a resource from the cluster roles of the controller or of the agents.
pub(crate) async fn revoke(
    client: &Client,
    whose: Role,
    verb: &str,
    resource: &str,
) -> anyhow::Result<()> {
    let names = match whose {
        Role::OtaServer => &[AGENT_ACCOUNT][..],
        _ => &CONTROLLER_ROLES,
    };
    let roles = Api::<ClusterRole>::all(client.clone());
    for name in names {
        revoke_from(&roles, name, verb, resource).await?;
    }
    Ok(())
}

async fn revoke_from(
    roles: &Api<ClusterRole>,
    name: &str,
    verb: &str,
    resource: &str,
) -> anyhow::Result<()> {
    let mut role = roles.get(name).await?;
    for rule in role.rules.iter_mut().flatten() {
        if rule
            .resources
            .iter()
            .flatten()
            .any(|named| named == resource)
        {
            rule.verbs.retain(|granted| granted != verb);
        }
    }
    // Remove rules without verbs: the API server rejects them.
    let rules = role.rules.iter_mut();
    rules.for_each(|rules| rules.retain(|rule| !rule.verbs.is_empty()));
    roles
        .replace(name, &PostParams::default(), &role)
        .await
        .map(drop)
        .context("revoke")
}

async fn apply(client: &Client, file: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    for document in text.split("\n---\n") {
        let object: Value =
            serde_saphyr::from_str(document).with_context(|| format!("read {}", file.display()))?;
        let word = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (word("apiVersion"), word("kind"));
        let (group, version) = version.rsplit_once('/').unwrap_or(("", &version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let params = PatchParams::apply("yurt-ds-suite").force();
        let applied = api.patch(name, &params, &Patch::Apply(&object)).await;
        applied.with_context(|| format!("apply {kind} {name}"))?;
    }
    Ok(())
}

async fn token(client: &Client, namespace: &str, account: &str) -> anyhow::Result<String> {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let request: TokenRequest =
        from(json!({ "spec": { "audiences": [], "expirationSeconds": 7200 } }))?;
    for _ in 0..50 * BUSY {
        let made = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await;
        if let Some(status) = made.context("request a token")?.status {
            return Ok(status.token);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("no token for the service account {account}")
}

/// Returns a copy of the administrator's kubeconfig with this token and, if given, another server address.
fn restricted(admin: &Path, token: &str, server: Option<SocketAddr>) -> anyhow::Result<String> {
    let mut config = Kubeconfig::read_from(admin)?;
    let context = config
        .current_context
        .clone()
        .context("no current context")?;
    let user = config
        .contexts
        .iter()
        .find(|named| named.name == context)
        .and_then(|named| named.context.as_ref()?.user.clone());
    config
        .auth_infos
        .retain(|named| Some(&named.name) == user.as_ref());
    for named in &mut config.auth_infos {
        named.auth_info = serde_json::from_value(Some(json!({ "token": token })).into())?;
    }
    if let Some(address) = server {
        for cluster in config
            .clusters
            .iter_mut()
            .filter_map(|c| c.cluster.as_mut())
        {
            let host = server_host(cluster.server.as_deref())?;
            cluster.tls_server_name.get_or_insert(host);
            cluster.server = Some(format!("https://{address}"));
        }
    }
    Ok(serde_json::to_string(&config)?)
}

fn server_host(url: Option<&str>) -> anyhow::Result<String> {
    let url: http::Uri = url.context("a cluster without server")?.parse()?;
    Ok(url.host().context("a server without host")?.to_owned())
}
