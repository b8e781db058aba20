//! Real control plane, with the built yurt-ds binary as its controller.
//!
//! The tests run only if `YURT_DS_SUITE_KUBECONFIG` names a kubeconfig of a cluster administrator. Only the kubelets are fake
//! (`sim::kubelet`). `.ci/run` starts such a control plane with an `audit.log` next to the kubeconfig, which records the author of
//! every write. On other clusters, the checks of the audit log are skipped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::BoxFuture;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use yurt_ds::clock::Clock;
use yurt_ds::k8s::client::Role;
use yurt_ds::sim::kubelet::{KubeletOptions, Kubelets, Outage};

use super::agents::{Agent, Setup};
use super::binary::{self, Installation, Process};
use super::link::{Asked, Proxy};
use super::player::from;
use super::story::Pace;
use super::world::{Backend, DENIED, Denied, Moment, PodWrites, World};

/// Environment variable with the kubeconfig of the cluster.
pub(crate) const KUBECONFIG: &str = "YURT_DS_SUITE_KUBECONFIG";

/// Environment variable that enables `agreement`, the comparison of conditions, Events, metrics and `ctl`. The comparison is always
/// enabled on the embedded cluster.
///
/// On a real cluster, the comparison takes time between the steps of a story, so it needs a quiet machine.
const AGREE: &str = "YURT_DS_SUITE_AGREE";

/// Returns the path in [`KUBECONFIG`], if it is set.
pub(crate) fn kubeconfig() -> Option<PathBuf> {
    std::env::var_os(KUBECONFIG).map(PathBuf::from)
}

/// Connects to the cluster of this kubeconfig.
pub(crate) async fn world(kubeconfig: &Path) -> anyhow::Result<World> {
    let client = client(kubeconfig, "yurt-ds-suite").await?;
    // The control plane of `.ci/run` ignores missing node heartbeats. On other clusters the fake kubelets must renew Leases.
    let own = kubeconfig
        .with_file_name("kube-controller-manager.pid")
        .exists();
    let options = KubeletOptions {
        offline: Outage::MARKED,
        lease: (!own).then_some(Duration::from_secs(10)),
        ..KubeletOptions::default()
    };
    let kubelets = client_for(kubeconfig, "yurt-ds-fake-kubelet").await?;
    let kubelets = Kubelets::start(kubelets, Clock::System, options);
    let audit = kubeconfig.with_file_name("audit.log");
    let installation = Installation::prepare(&client, kubeconfig).await?;
    let first = installation.start(FIRST)?;
    Ok(World {
        client: client.clone(),
        kubelets,
        clock: Clock::System,
        pace: Pace::Real,
        backend: Arc::new(Real {
            client,
            replicas: Arc::new(Mutex::new(Replicas {
                installation,
                running: BTreeMap::from([(FIRST.to_owned(), first)]),
            })),
            directory: kubeconfig.parent().map(Path::to_owned).unwrap_or_default(),
            server: server(kubeconfig).await?,
            sources: Mutex::default(),
            audit: audit.exists().then(|| Mutex::new(Audit::new(audit))),
            compares: std::env::var_os(AGREE).is_some(),
        }),
    })
}

/// Returns a client that uses this kubeconfig and this user agent.
pub(crate) async fn client(kubeconfig: &Path, user_agent: &'static str) -> anyhow::Result<Client> {
    client_for(kubeconfig, user_agent).await
}

async fn client_for(kubeconfig: &Path, user_agent: &'static str) -> anyhow::Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig).context(KUBECONFIG)?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.read_timeout = Some(Duration::from_secs(300));
    let agent = http::HeaderValue::from_static(user_agent);
    config.headers.push((http::header::USER_AGENT, agent));
    Ok(Client::try_from(config)?)
}

/// Returns the address of the API server in this kubeconfig.
async fn server(kubeconfig: &Path) -> anyhow::Result<SocketAddr> {
    let read = Kubeconfig::read_from(kubeconfig).context(KUBECONFIG)?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    let (host, port) = (config.cluster_url.host(), config.cluster_url.port_u16());
    let host = (host.unwrap_or_default(), port.unwrap_or(443));
    let mut found = tokio::net::lookup_host(host).await?;
    found
        .find(SocketAddr::is_ipv4)
        .context("no IPv4 address of the API server")
}

/// Identity of the first replica of the controller.
const FIRST: &str = "suite-1";

/// Controller replicas as processes.
struct Replicas {
    installation: Installation,
    running: BTreeMap<String, Process>,
}

impl Replicas {
    fn start(&mut self, identity: &str) -> anyhow::Result<()> {
        let started = self.installation.start(identity)?;
        self.running.insert(identity.to_owned(), started);
        Ok(())
    }
}

struct Real {
    client: Client,
    replicas: Arc<Mutex<Replicas>>,
    directory: PathBuf,
    server: SocketAddr,
    /// Source address of the requests from each node's agent.
    sources: Mutex<BTreeMap<String, Ipv4Addr>>,
    audit: Option<Mutex<Audit>>,
    /// True if `agreement` is enabled by [`AGREE`].
    compares: bool,
}

impl Backend for Real {
    fn pod_writes(&self, namespace: &str) -> anyhow::Result<PodWrites> {
        self.audit(|audit| audit.writes.get(namespace).copied())
    }

    fn requests(&self, namespace: &str) -> anyhow::Result<usize> {
        self.audit(|audit| audit.requests.get(namespace).copied())
    }

    fn native(&self, runs: bool) -> anyhow::Result<()> {
        self.signal(
            "kube-controller-manager",
            if runs { "-CONT" } else { "-STOP" },
        )
    }

    fn api_server(&self, runs: bool) -> anyhow::Result<()> {
        self.signal("kube-apiserver", if runs { "-CONT" } else { "-STOP" })
    }

    fn kill_at(&self, number: usize, moment: Moment) -> anyhow::Result<()> {
        let half = if moment == Moment::After { 150 } else { 0 };
        let delay = Duration::from_millis(300 * number as u64 + half);
        let replicas = self.replicas.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let mut replicas = lock(&replicas);
            replicas.running.clear();
            replicas.start(FIRST)
        });
        Ok(())
    }

    fn two_replicas(&self) -> anyhow::Result<()> {
        let mut replicas = lock(&self.replicas);
        for identity in [FIRST, "suite-2"] {
            if !replicas.running.contains_key(identity) {
                replicas.start(identity)?;
            }
        }
        Ok(())
    }

    fn kill(&self, identity: &str) -> anyhow::Result<()> {
        let killed = lock(&self.replicas).running.remove(identity);
        killed
            .with_context(|| format!("no replica {identity}"))
            .map(drop)
    }

    fn lease_namespace(&self) -> &'static str {
        binary::NAMESPACE
    }

    fn permission(
        &self,
        whose: Role,
        verb: &'static str,
        resource: &'static str,
        granted: bool,
    ) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            if granted {
                binary::grant(&self.client).await
            } else {
                binary::revoke(&self.client, whose, verb, resource).await
            }
        })
    }

    fn policy<'a>(&'a self, denied: Denied<'a>, begins: bool) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            let name = format!("{}-{}", denied.namespace, denied.verb);
            let policies = Api::<ValidatingAdmissionPolicy>::all(self.client.clone());
            let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(self.client.clone());
            if !begins {
                bindings.delete(&name, &DeleteParams::default()).await?;
                policies.delete(&name, &DeleteParams::default()).await?;
                return Ok(());
            }
            let resource = match denied.verb {
                "status" => "pods/status",
                _ => "pods",
            };
            let (operation, object) = match denied.verb {
                "delete" => ("DELETE", "oldObject"),
                "patch" | "status" => ("UPDATE", "object"),
                _ => ("CREATE", "object"),
            };
            let allowed = match denied.on {
                Some((node, _)) => format!("{object}.spec.nodeName != '{node}'"),
                None => "false".to_owned(),
            };
            let account = binary::ACCOUNT;
            let user = format!("system:serviceaccount:{}:{account}", binary::NAMESPACE);
            let said = DENIED.trim_start_matches("denied request: ");
            let policy = json!({
                "metadata": { "name": name },
                "spec": {
                    "failurePolicy": "Fail",
                    "matchConstraints": {
                        "namespaceSelector": {
                            "matchLabels": { "kubernetes.io/metadata.name": denied.namespace },
                        },
                        "resourceRules": [{
                            "apiGroups": [""], "apiVersions": ["v1"], "operations": [operation],
                            "resources": [resource],
                        }],
                    },
                    "matchConditions": [{
                        "name": "controller", "expression": format!("request.userInfo.username == '{user}'"),
                    }],
                    "validations": [{ "expression": allowed, "message": said }],
                },
            });
            let binding = json!({
                "metadata": { "name": name },
                "spec": { "policyName": name, "validationActions": ["Deny"] },
            });
            let parameters = PostParams::default();
            policies.create(&parameters, &from(policy)?).await?;
            bindings.create(&parameters, &from(binding)?).await?;
            // Wait, because the API server reloads its admission policies about once a second.
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(())
        })
    }

    fn metrics(&self) -> BoxFuture<'_, anyhow::Result<Option<String>>> {
        let replicas = lock(&self.replicas);
        let mut running = replicas.running.values();
        let only = match (running.next(), running.next()) {
            (Some(replica), None) if self.compares => replica.listens(),
            _ => None,
        };
        Box::pin(async move {
            match only {
                // Stories that kill the controller may have stopped it at this moment. So an error means that there are no metrics.
                Some(address) => Ok(page(address).await.ok()),
                None => Ok(None),
            }
        })
    }

    fn controller(&self, runs: bool) -> anyhow::Result<()> {
        let mut replicas = lock(&self.replicas);
        replicas.running.clear();
        if runs { replicas.start(FIRST) } else { Ok(()) }
    }

    fn agent(&self, setup: Setup) -> BoxFuture<'_, anyhow::Result<Agent>> {
        Box::pin(async move {
            let source = self.source(&setup.node)?;
            let proxy = Proxy::start(self.server, source, setup.link.clone()).await?;
            let mut process = lock(&self.replicas)
                .installation
                .agent(&setup, proxy.address)?;
            let address = process.address().await?;
            let process = Arc::new(Mutex::new(process));
            let tail = process.clone();
            let life = (process, proxy);
            Ok(Agent::at(address, life, move || lock(&tail).tail()))
        })
    }

    fn asked(&self, node: &str) -> anyhow::Result<Asked> {
        let source = self.source(node)?.to_string();
        self.audit(|audit| audit.asked.get(&source).cloned())
    }

    fn log(&self) -> String {
        let mut replicas = lock(&self.replicas);
        let logs = replicas
            .running
            .iter_mut()
            .map(|(name, running)| format!("--- {name}\n{}", running.tail()));
        logs.collect::<Vec<_>>().join("\n")
    }

    fn has_service_accounts(&self) -> bool {
        true
    }
}

impl Real {
    /// Returns the source address for a node's agent: 127.77.0.1 for the first node, and so on.
    fn source(&self, node: &str) -> anyhow::Result<Ipv4Addr> {
        let mut sources = lock(&self.sources);
        let next = u16::try_from(sources.len() + 1)?;
        let [high, low] = next.to_be_bytes();
        let source = sources.entry(node.to_owned());
        Ok(*source.or_insert(Ipv4Addr::new(127, 77, high, low)))
    }

    fn signal(&self, component: &str, signal: &str) -> anyhow::Result<()> {
        let file = self.directory.join(format!("{component}.pid"));
        let pid =
            std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let status = Command::new("kill").args([signal, pid.trim()]).status()?;
        ensure!(status.success(), "kill {signal} {pid}: {status}");
        Ok(())
    }

    /// Reads new lines of the audit log, then calls `look`. Without an audit log, returns the default.
    fn audit<T: Default>(&self, look: impl FnOnce(&Audit) -> Option<T>) -> anyhow::Result<T> {
        let Some(audit) = &self.audit else {
            return Ok(T::default());
        };
        let mut audit = lock(audit);
        audit.read()?;
        Ok(look(&audit).unwrap_or_default())
    }
}

/// Reads the metrics page of the controller at this address.
async fn page(address: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)
        .await
        .context("reach the metrics")?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    Ok(page)
}

/// Counts of the requests in the audit log, updated as the log grows.
struct Audit {
    path: PathBuf,
    read: u64,
    writes: BTreeMap<String, PodWrites>,
    requests: BTreeMap<String, usize>,
    /// Counts of the agents' requests, by source address.
    asked: BTreeMap<String, Asked>,
}

impl Audit {
    /// Starts at the current end of the log, because earlier runs used the same source addresses and namespaces.
    fn new(path: PathBuf) -> Self {
        let read = std::fs::metadata(&path).map_or(0, |file| file.len());
        Self {
            path,
            read,
            writes: BTreeMap::new(),
            requests: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    fn read(&mut self) -> anyhow::Result<()> {
        let mut file = File::open(&self.path).context("open the audit log")?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut lines = BufReader::new(file);
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 && line.ends_with('\n') {
            self.read += line.len() as u64;
            self.count(&line);
            line.clear();
        }
        Ok(())
    }

    fn count(&mut self, line: &str) -> Option<()> {
        if line.contains("(ota-server)") {
            return self.count_agent(line);
        }
        if !line.contains("(controller)") {
            return None;
        }
        let entry: Value = serde_json::from_str(line).ok()?;
        let (verb, object) = (entry["verb"].as_str()?, &entry["objectRef"]);
        let namespace = object["namespace"].as_str()?;
        if verb == "watch" || !entry["userAgent"].as_str()?.starts_with("yurt-ds/") {
            return None;
        }
        *self.requests.entry(namespace.into()).or_default() += 1;
        if object["resource"] == "pods" {
            let code = entry["responseStatus"]["code"].as_u64()?;
            self.writes.entry(namespace.into()).or_default().count(
                verb,
                object["subresource"].as_str().unwrap_or_default(),
                code,
            );
        }
        Some(())
    }

    fn count_agent(&mut self, line: &str) -> Option<()> {
        let entry: Value = serde_json::from_str(line).ok()?;
        let verb = entry["verb"].as_str().filter(|verb| *verb != "watch")?;
        let resource = entry["objectRef"]["resource"].as_str().unwrap_or_default();
        let source = entry["sourceIPs"][0].as_str()?;
        let asked = self.asked.entry(source.to_owned()).or_default();
        let count = asked.entry((verb.to_owned(), resource.to_owned()));
        *count.or_default() += 1;
        Some(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
