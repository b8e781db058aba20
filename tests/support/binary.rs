//! The real binary as the controller of a real cluster, with the service account and the role that manifests/ give it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::player::from;

/// Namespace and service account of manifests/base.
pub(crate) const NAMESPACE: &str = "yurt-ds";
const ACCOUNT: &str = "yurt-ds-controller";

/// What it may do, in the order in which it has to be applied.
const MANIFESTS: [&str; 5] = [
    "namespace.yaml",
    "rbac/serviceaccount.yaml",
    "rbac/clusterrole.yaml",
    "rbac/role.yaml",
    "rbac/bindings.yaml",
];

/// Everything that a controller needs to run on a cluster.
pub(crate) struct Installation {
    directory: tempfile::TempDir,
    kubeconfig: PathBuf,
}

/// A running process; killed when dropped.
pub(crate) struct Controller {
    child: Child,
    log: PathBuf,
}

impl Installation {
    /// Applies the manifests, and takes a token of the service account.
    pub(crate) async fn prepare(client: &Client, admin: &Path) -> anyhow::Result<Self> {
        grant(client).await?;
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        let token = token(client).await?;
        std::fs::write(&kubeconfig, restricted(admin, &token)?)?;
        Ok(Self {
            directory,
            kubeconfig,
        })
    }

    /// Starts a controller under this name.
    pub(crate) fn start(&self, name: &str) -> anyhow::Result<Controller> {
        let log = self.directory.path().join(format!("{name}.log"));
        let file = File::create(&log)?;
        let child = Command::new(env!("CARGO_BIN_EXE_yurt-ds"))
            .args([
                "controller",
                "--listen",
                "127.0.0.1:0",
                "--lease-namespace",
                NAMESPACE,
                "--identity",
                name,
            ])
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("start the controller")?;
        Ok(Controller { child, log })
    }
}

impl Controller {
    /// The end of its log; says first when it has ended by itself.
    pub(crate) fn tail(&mut self) -> String {
        let ended = self.child.try_wait().ok().flatten();
        let ended = ended.map_or(String::new(), |status| {
            format!("the controller has ended: {status}\n")
        });
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!(
            "{ended}{}",
            lines[lines.len().saturating_sub(40)..].join("\n")
        )
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Gives the controller everything that the manifests give it.
pub(crate) async fn grant(client: &Client) -> anyhow::Result<()> {
    for file in MANIFESTS {
        apply(client, &Path::new("manifests/base").join(file)).await?;
    }
    Ok(())
}

/// Takes one verb on one resource from its cluster role.
pub(crate) async fn revoke(client: &Client, verb: &str, resource: &str) -> anyhow::Result<()> {
    let roles = Api::<ClusterRole>::all(client.clone());
    let mut role = roles.get(ACCOUNT).await?;
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
    roles
        .replace(ACCOUNT, &PostParams::default(), &role)
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

async fn token(client: &Client) -> anyhow::Result<String> {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE);
    let request: TokenRequest =
        from(json!({ "spec": { "audiences": [], "expirationSeconds": 7200 } }))?;
    for _ in 0..50 {
        let made = accounts
            .create_token_request(ACCOUNT, &PostParams::default(), &request)
            .await;
        if let Some(status) = made.context("request a token")?.status {
            return Ok(status.token);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("no token for the service account {ACCOUNT}")
}

/// The kubeconfig of an administrator with another user in it.
fn restricted(admin: &Path, token: &str) -> anyhow::Result<String> {
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
    Ok(serde_json::to_string(&config)?)
}
