//! Checks of the controller: its Lease, its pods and their version.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::Api;
use kube::api::ListParams;

use super::finding::{CheckId, Finding};
use super::reader::{SHOWN, Unread, few};
use super::version::{OWN, VersionCounts, of_image};
use crate::controller::Kinds;
use crate::core::foreign::one_line;
use crate::core::names::LEASE;
use crate::core::words::{capitalized, plural};
use crate::ctl::access::Access;
use crate::ctl::list::list;
use crate::ctl::liveness::{ControllerLease, ControllerLeases, ControllerLiveness, HOME};
use crate::k8s::permission::ServiceAccountName;
use crate::k8s::{Listed, meta_of};

/// Selector of the controller's pods in the manifests.
const SELECTOR: &str = "app.kubernetes.io/component=controller";
/// Label with the version of a pod's program, which takes precedence over the tag of the image.
const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// Maximum number of namespaces in which pods of the controller are searched. They are the namespaces of its Leases, and any user
/// with the right to create Leases can add one.
const NAMESPACES: usize = 4;

/// Pods of the controller.
#[derive(Debug, Default)]
pub(super) struct ControllerPods {
    pods: Vec<ControllerPod>,
    /// Pods that cannot be decoded, as `namespace/name`.
    unreadable: Vec<String>,
    /// Namespaces in which pods were searched.
    namespaces: Vec<String>,
}

/// A pod of the controller.
#[derive(Debug)]
struct ControllerPod {
    namespace: String,
    name: String,
    account: String,
    is_ready: bool,
    version: Option<String>,
    /// Reason why the pod is not Ready, in the words of Kubernetes.
    trouble: Option<String>,
}

impl ControllerPods {
    /// Lists the controller's pods in the namespaces of its Leases, and in that of the manifests.
    ///
    /// # Errors
    /// Fails if the pods of none of these namespaces can be listed.
    pub(super) async fn read(access: &Access, leases: &ControllerLeases) -> Result<Self, Unread> {
        let of_leases = leases.leases.iter().map(|lease| lease.namespace.as_str());
        let mut known = BTreeSet::new();
        let namespaces = std::iter::once(HOME).chain(of_leases);
        let namespaces: Vec<&str> = namespaces
            .filter(|namespace| known.insert(*namespace))
            .take(NAMESPACES)
            .collect();
        let mut found = Self::default();
        let mut failed = None;
        for namespace in namespaces {
            let doing = format!("list the pods of namespace {namespace}");
            let api: Api<Listed<Pod>> = Api::namespaced(access.client.clone(), namespace);
            match list(access, &doing, &api, ListParams::default().labels(SELECTOR)).await {
                Ok((pods, _)) => {
                    found.namespaces.push(namespace.to_owned());
                    pods.iter().for_each(|pod| found.take(pod));
                }
                Err(error) => failed = Some(Unread::from_cli(&doing, &error)),
            }
        }
        match failed {
            Some(unread) if found.namespaces.is_empty() => Err(unread),
            _ => Ok(found),
        }
    }

    fn take(&mut self, listed: &Listed<Pod>) {
        match &listed.item {
            Ok(pod) if pod.metadata.deletion_timestamp.is_some() => {}
            Ok(pod) => self.pods.extend(ControllerPod::new(pod)),
            Err(_) => {
                let meta = meta_of(&listed.item);
                let part = |text: &Option<String>| text.clone().unwrap_or_default();
                let key = format!("{}/{}", part(&meta.namespace), part(&meta.name));
                self.unreadable.push(key);
            }
        }
    }

    /// Returns true if a pod of a controller was found in the namespace.
    fn is_in(&self, namespace: &str) -> bool {
        self.pods.iter().any(|pod| pod.namespace == namespace)
    }

    /// Returns the service account of the controller; `None` if no pod of the controller was found.
    pub(super) fn account(&self) -> Option<ServiceAccountName> {
        let pod = self.pods.first()?;
        Some(ServiceAccountName {
            namespace: pod.namespace.clone(),
            name: pod.account.clone(),
        })
    }
}

impl ControllerPod {
    /// Reads a pod with the label of [`SELECTOR`]. `None` if it does not run yurt-ds: other software uses this label, too.
    fn new(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let container = spec.containers.iter().find(|one| is_controller(one))?;
        let label = pod.metadata.labels.as_ref();
        let label = label.and_then(|labels| labels.get(VERSION_LABEL));
        let image = container.image.as_deref().unwrap_or_default();
        let trouble = trouble(pod);
        Some(Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            account: account_of(spec),
            is_ready: is_true(pod, "Ready"),
            version: label.cloned().or_else(|| of_image(image)),
            trouble,
        })
    }
}

/// Returns true if the container runs `yurt-ds controller`.
fn is_controller(container: &Container) -> bool {
    let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
    let command = words(&container.command);
    let image = container.image.as_deref().unwrap_or_default();
    let program = command.first().map_or(image, String::as_str);
    let mut all = command.iter().cloned().chain(words(&container.args));
    program.contains("yurt-ds") && all.any(|word| word == "controller")
}

fn account_of(spec: &PodSpec) -> String {
    let account = spec.service_account_name.clone();
    account.unwrap_or_else(|| "default".to_owned())
}

fn is_true(pod: &Pod, kind: &str) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == kind && condition.status == "True")
}

/// Returns the reason why a pod is not Ready, as a waiting container or the scheduler reports it.
fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let mut waiting = containers.filter_map(|one| one.state.as_ref()?.waiting.as_ref());
    let waiting = waiting.find_map(|waiting| waiting.reason.clone());
    let conditions = status.conditions.iter().flatten();
    let mut unmet = conditions.filter(|one| one.type_ == "PodScheduled" && one.status == "False");
    let text = waiting.or_else(|| unmet.find_map(|one| one.message.clone()))?;
    Some(one_line(&text, SHOWN))
}

/// Returns the findings about the Leases of the controllers.
pub(super) fn lease_findings(
    leases: &ControllerLeases,
    pods: &Result<ControllerPods, Unread>,
) -> Vec<Finding> {
    let pods = pods.as_ref().ok();
    vec![lease(leases), single(&leases.leases, pods)]
}

fn lease(leases: &ControllerLeases) -> Finding {
    let id = CheckId::ControllerLease;
    let logs = |namespace: &str| format!("kubectl -n {namespace} get pods -l {SELECTOR}");
    match &leases.liveness {
        ControllerLiveness::Lately | ControllerLiveness::Partly(_) => {
            let live = leases.leases.iter().filter(|lease| lease.is_live());
            let live: Vec<String> = live.map(held).collect();
            Finding::ok(id, few(&live) + ".")
        }
        ControllerLiveness::NoLease => Finding::failed(
            id,
            format!(
                "There is no Lease {LEASE}: no controller has run yet, or it runs with --leader-elect=false."
            ),
            logs(HOME),
        ),
        ControllerLiveness::Forbidden => {
            Finding::skipped(id, Unread::forbidden(&format!("list the Lease {LEASE}")).0)
        }
        ControllerLiveness::NoAnswer => Finding::skipped(
            id,
            "The API server did not answer the request for the Lease in time.",
        ),
        other => Finding::failed(
            id,
            capitalized(&other.fact().unwrap_or_default()) + ".",
            logs(other.namespace().unwrap_or(HOME)),
        ),
    }
}

fn held(lease: &ControllerLease) -> String {
    format!(
        "{} in namespace {} serves {}",
        one_line(lease.holder.as_deref().unwrap_or_default(), SHOWN),
        lease.namespace,
        kinds(lease.kinds)
    )
}

/// Returns the kinds in words.
fn kinds(kinds: Kinds) -> &'static str {
    match (kinds.native, kinds.advanced) {
        (true, true) => "native and Advanced DaemonSets",
        (true, false) => "native DaemonSets",
        (false, true) => "Advanced DaemonSets",
        (false, false) => "no kind of DaemonSets",
    }
}

/// Checks that no two controllers serve the same kind.
///
/// With the right to create Leases in one namespace, any user can fake a second controller. So a Lease in a namespace where no pod of a
/// controller is found is only a warning.
fn single(leases: &[ControllerLease], pods: Option<&ControllerPods>) -> Finding {
    let id = CheckId::ControllerSingle;
    let live: Vec<&ControllerLease> = leases.iter().filter(|lease| lease.is_live()).collect();
    // Without a search in its namespace, a Lease counts as real.
    let is_real = |lease: &&ControllerLease| {
        pods.is_none_or(|pods| {
            pods.is_in(&lease.namespace) || !pods.namespaces.contains(&lease.namespace)
        })
    };
    let (real, doubtful): (Vec<_>, Vec<_>) = live.iter().copied().partition(is_real);
    let (all, twice) = (meeting(&live), meeting(&real));
    let doubtful = doubtful.iter().map(|lease| lease.namespace.as_str());
    let doubtful: Vec<&str> = doubtful.filter(|name| all.contains(name)).collect();
    match (twice.last(), doubtful.is_empty()) {
        (Some(last), _) => Finding::failed(
            id,
            format!(
                "Controllers in several namespaces serve the same kind of DaemonSets, and both replace pods: {}.",
                few(&twice)
            ),
            format!("Remove one installation: kubectl -n {last} get deployments,leases"),
        ),
        (None, false) => Finding::warning(
            id,
            format!(
                "There are Leases of several controllers for the same kind of DaemonSets: {}. No pod of a \
                 controller is found in namespace {}, so the Lease there may be forged.",
                few(&all),
                few(&doubtful)
            ),
            format!(
                "If no controller uses it: kubectl -n {} delete lease {LEASE}",
                if let [namespace] = doubtful[..] {
                    namespace
                } else {
                    "NAMESPACE"
                }
            ),
        ),
        _ => Finding::ok(id, "No kind of DaemonSets is served by two controllers."),
    }
}

/// Returns the namespaces of the Leases whose holders serve a kind that the holder of another one serves, too.
fn meeting<'a>(live: &[&'a ControllerLease]) -> Vec<&'a str> {
    let meets = |lease: &&&ControllerLease| {
        let mut others = live
            .iter()
            .filter(|other| other.namespace != lease.namespace);
        others.any(|other| other.kinds.meets(lease.kinds))
    };
    let meeting = live.iter().filter(meets);
    meeting.map(|lease| lease.namespace.as_str()).collect()
}

/// Returns the findings about the pods of the controller.
pub(super) fn pod_findings(pods: &Result<ControllerPods, Unread>) -> Vec<Finding> {
    match pods {
        Ok(pods) => vec![ready(pods), version(pods)],
        Err(unread) => [CheckId::ControllerReady, CheckId::ControllerVersion]
            .map(|id| Finding::skipped(id, &*unread.0))
            .to_vec(),
    }
}

fn ready(found: &ControllerPods) -> Finding {
    let id = CheckId::ControllerReady;
    if let Some(first) = found.unreadable.first() {
        return Finding::warning(
            id,
            format!(
                "Pods with the labels of the controller cannot be read: {}.",
                few(&found.unreadable)
            ),
            format!("kubectl get pod -o yaml -n {}", first.replace('/', " ")),
        );
    }
    let (ready, lacking): (Vec<_>, Vec<_>) = found.pods.iter().partition(|pod| pod.is_ready);
    let all = found.pods.len();
    let Some(first) = lacking.first() else {
        return match ready.first() {
            Some(_) => Finding::ok(
                id,
                format!(
                    "{all} of {all} {} Ready, with synced caches.",
                    plural(all, "pod is", "pods are")
                ),
            ),
            None => Finding::failed(
                id,
                format!(
                    "There is no pod of the controller in namespace {}.",
                    few(&found.namespaces)
                ),
                format!(
                    "kubectl -n {} get deployments",
                    found.namespaces.first().map_or(HOME, String::as_str)
                ),
            ),
        };
    };
    let (ready, namespace) = (ready.len(), &first.namespace);
    let verb = plural(ready, "is", "are");
    let why = first.trouble.as_ref();
    let why = why.map_or_else(String::new, |why| format!(" ({}: {why})", first.name));
    let message = format!("{ready} of {all} pods {verb} Ready{why}.");
    if ready > 0 {
        Finding::warning(
            id,
            message,
            format!("kubectl -n {namespace} describe pod {}", first.name),
        )
    } else {
        let log = format!("kubectl -n {namespace} logs {}", first.name);
        let describe = format!("kubectl -n {namespace} describe pod {}", first.name);
        Finding::failed(id, message, if why.is_empty() { log } else { describe })
    }
}

fn version(found: &ControllerPods) -> Finding {
    let id = CheckId::ControllerVersion;
    let mut counts = VersionCounts::default();
    for pod in &found.pods {
        counts.add(pod.version.clone());
    }
    if found.pods.is_empty() {
        return Finding::skipped(id, "The controller has no pod.");
    }
    if counts.is_unknown() {
        let why = "The image of the controller has no version as its tag.";
        return Finding::skipped(id, why);
    }
    let text = counts.text("pod", "pods");
    if counts.is_own() {
        Finding::ok(id, format!("Controller: {text}. This is {OWN}."))
    } else {
        Finding::warning(
            id,
            format!("The controller has another version than ctl: {text}. This is {OWN}."),
            "Use ctl of the controller's version, or upgrade the controller.",
        )
    }
}
