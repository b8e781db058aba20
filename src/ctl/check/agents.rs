//! Checks of the agents (`yurt-ds ota-server`): their rollout, their versions, and the nodes that need an agent because a DaemonSet
//! uses the strategy OTA.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt as _};

use super::daemonsets::ManagedDaemonSets;
use super::finding::{CheckId, Finding};
use super::reader::{Unread, few, read, sentence};
use super::version::{OWN, VersionCounts, of_image};
use crate::core::words::{nodes, plural};
use crate::ctl::access::Access;
use crate::ctl::code::Code;
use crate::ctl::daemonset_api::whole;
use crate::ctl::list::list;
use crate::ctl::look::Look;
use crate::ctl::lookup;
use crate::ctl::row::SetRow;
use crate::ctl::view::{ClusterView, ListScope};
use crate::index::SetKey;
use crate::k8s::{DaemonSet, Listed, Pod};

/// Selector of the agents' DaemonSet and of its pods in the manifests.
const SELECTOR: &str = "app.kubernetes.io/component=ota-server";

/// Namespace of the agents in the manifests.
const HOME: &str = "yurt-ds-edge";

/// The agents of all nodes.
pub(super) struct Agents {
    /// DaemonSet of the agents; `None` if they are not installed.
    pub(super) set: Option<SetKey>,
    /// Numbers of nodes per version.
    versions: VersionCounts,
    /// Nodes that have an agent.
    nodes: BTreeSet<String>,
    /// State of the agents' rollout; `None` if they are not installed.
    state: Option<AgentsState>,
}

/// State of the rollout of the agents.
enum AgentsState {
    /// All online nodes have an available agent of the current revision.
    Updated(String),
    /// Some online nodes lack an available agent of the current revision.
    Incomplete(String),
}

impl Agents {
    /// Reads the DaemonSet of the agents, its rollout and its pods.
    ///
    /// # Errors
    /// Fails if one of them cannot be read.
    pub(super) async fn read(access: &Access, now: Timestamp) -> Result<Self, Unread> {
        let Some(key) = find(access).await? else {
            return Ok(Self {
                set: None,
                versions: VersionCounts::default(),
                nodes: BTreeSet::new(),
                state: None,
            });
        };
        let (state, pods) = tokio::join!(state(access, &key, now), pods(access, &key));
        let (mut versions, mut nodes) = (VersionCounts::default(), BTreeSet::new());
        for pod in pods? {
            let Some(node) = &pod.spec.node_name else {
                continue;
            };
            let image = pod.spec.containers.first().map(|one| one.image.as_str());
            versions.add(image.and_then(of_image));
            nodes.insert(node.clone());
        }
        Ok(Self {
            set: Some(key),
            versions,
            nodes,
            state: Some(state?),
        })
    }

    fn updated(&self) -> Finding {
        let id = CheckId::AgentsUpdated;
        match (&self.state, &self.set) {
            (Some(AgentsState::Updated(message)), _) => Finding::ok(id, message),
            (Some(AgentsState::Incomplete(message)), Some(key)) => {
                Finding::failed(id, message, format!("yurt-ds ctl status {key} -o wide"))
            }
            _ => Finding::ok(id, "Not installed. Only OTA needs the agents."),
        }
    }

    fn version(&self) -> Finding {
        let id = CheckId::AgentsVersion;
        if self.set.is_none() || self.nodes.is_empty() {
            return Finding::ok(id, "There is no agent.");
        }
        if self.versions.is_unknown() {
            let why = "The image of the agents has no version as its tag.";
            return Finding::skipped(id, why);
        }
        let text = self.versions.text("node", "nodes");
        if self.versions.is_own() {
            Finding::ok(id, format!("Agents: {text}. This is {OWN}."))
        } else {
            Finding::warning(
                id,
                format!("The agents have other versions than ctl: {text}. This is {OWN}."),
                "Use ctl of the agents' version, or upgrade the agents. Offline nodes follow when they reconnect.",
            )
        }
    }

    /// Returns the finding about nodes that need an agent. `needed` has the nodes on which a DaemonSet with OTA should run.
    fn for_ota(&self, needed: &[String]) -> Finding {
        let id = CheckId::AgentsForOta;
        let lacking = needed.iter().filter(|node| !self.nodes.contains(*node));
        let lacking: Vec<&String> = lacking.collect();
        if lacking.is_empty() {
            return Finding::ok(id, "Each node with a DaemonSet that uses OTA has an agent.");
        }
        let count = nodes(lacking.len());
        let fix = match &self.set {
            None => "kubectl apply -k manifests/base".to_owned(),
            Some(key) => format!(
                "kubectl -n {} describe daemonset {}",
                key.namespace, key.name
            ),
        };
        Finding::failed(
            id,
            format!(
                "{count} with a DaemonSet that uses OTA {} no agent, so updates cannot be confirmed there: {}.",
                plural(lacking.len(), "has", "have"),
                few(&lacking)
            ),
            fix,
        )
    }
}

/// Returns the findings about the agents.
pub(super) async fn findings(
    access: &Access,
    agents: &Result<Agents, Unread>,
    sets: &mut Result<ManagedDaemonSets, Unread>,
) -> Vec<Finding> {
    let agents = match agents {
        Ok(agents) => agents,
        Err(unread) => {
            return [
                CheckId::AgentsUpdated,
                CheckId::AgentsVersion,
                CheckId::AgentsForOta,
            ]
            .map(|id| Finding::skipped(id, &*unread.0))
            .to_vec();
        }
    };
    let for_ota = match sets {
        Ok(sets) if sets.of_ota().is_empty() => {
            Finding::ok(CheckId::AgentsForOta, "No DaemonSet uses OTA.")
        }
        Ok(sets) => match sets.nodes_of_ota(access).await {
            Ok(needed) => agents.for_ota(&needed),
            Err(unread) => Finding::skipped(CheckId::AgentsForOta, unread.0),
        },
        Err(unread) => Finding::skipped(CheckId::AgentsForOta, &*unread.0),
    };
    vec![agents.updated(), agents.version(), for_ota]
}

/// Finds the DaemonSet of the agents by its label.
async fn find(access: &Access) -> Result<Option<SetKey>, Unread> {
    let api: Api<DaemonSet> = Api::all(access.client.clone());
    let params = ListParams::default().labels(SELECTOR);
    let found = read(
        access,
        "list the DaemonSets of all namespaces",
        api.list_metadata(&params),
    );
    let found = found.await?.map(|list| list.items).unwrap_or_default();
    let key = |set: &PartialObjectMeta<DaemonSet>| {
        SetKey::new(&set.namespace().unwrap_or_default(), &set.name_any())
    };
    // Any user could give a DaemonSet this label. So the namespace of the manifests takes precedence.
    let keys = found.iter().map(key);
    Ok(keys.min_by_key(|key| &*key.namespace != HOME))
}

async fn pods(access: &Access, key: &SetKey) -> Result<Vec<Pod>, Unread> {
    let doing = format!("list the pods of namespace {}", key.namespace);
    let api: Api<Listed<Pod>> = Api::namespaced(access.client.clone(), &key.namespace);
    let listed = list(access, &doing, &api, ListParams::default().labels(SELECTOR)).await;
    let (pods, _) = listed.map_err(|error| Unread::from_cli(&doing, &error))?;
    Ok(pods.into_iter().filter_map(|pod| pod.item.ok()).collect())
}

/// Evaluates the rollout of the agents: like `ctl status` if yurt-ds manages their DaemonSet, otherwise from its status.
async fn state(access: &Access, key: &SetKey, now: Timestamp) -> Result<AgentsState, Unread> {
    let doing = format!("read DaemonSet {key}");
    let unread = |error| Unread::from_cli(&doing, &error);
    let scope = ListScope::One(key.clone());
    let view = ClusterView::load_settings(access, &scope, now).await;
    if view.map_err(unread)?.managed().next().is_none() {
        return native_state(access, key).await;
    }
    let look = Box::pin(lookup::look(access, key, now)).await;
    let (_, look) = look.map_err(unread)?;
    let row = SetRow::of_look(&look, false);
    let recovering = look.recovering();
    let message = match recovering {
        0 => format!("{key}: {}", sentence(&row.message)),
        count => format!(
            "{key}: {} {} no available agent.",
            nodes(count),
            plural(count, "has", "have")
        ),
    };
    Ok(if is_updated(&look) {
        AgentsState::Updated(message)
    } else {
        AgentsState::Incomplete(message)
    })
}

fn is_updated(look: &Look) -> bool {
    look.code(false) == Code::Complete && look.recovering() == 0
}

/// Returns the state of agents that Kubernetes updates, from the status of their DaemonSet. Offline nodes count, too.
async fn native_state(access: &Access, key: &SetKey) -> Result<AgentsState, Unread> {
    let doing = format!("read DaemonSet {key}");
    let api = whole(&access.client, key);
    let found = read(access, &doing, api.get(&key.name)).await?;
    let status = found
        .map(|set| set.data["status"].clone())
        .unwrap_or_default();
    let number = |field: &str| status[field].as_u64().unwrap_or_default();
    let desired = number("desiredNumberScheduled");
    let (updated, available) = (number("updatedNumberScheduled"), number("numberAvailable"));
    let message = format!("{key}: {updated} of {desired} agents updated, {available} available.");
    Ok(if updated >= desired && available >= desired {
        AgentsState::Updated(message)
    } else {
        AgentsState::Incomplete(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::check::finding::CheckStatus;

    #[test]
    fn nodes_without_an_agent_are_named_if_ota_needs_one() {
        let agents = |nodes: &[&str]| Agents {
            set: None,
            versions: VersionCounts::default(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            state: None,
        };
        let needed: Vec<String> = (1..=5).map(|n| format!("n{n}")).collect();
        let finding = agents(&["n5"]).for_ota(&needed);
        assert_eq!(finding.status, CheckStatus::Failed);
        assert!(
            finding.message.starts_with("4 nodes")
                && finding.message.ends_with("n1, n2, n3 and 1 more."),
            "{}",
            finding.message
        );
        let all = agents(&["n1", "n2", "n3", "n4", "n5"]).for_ota(&needed);
        assert_eq!(all.status, CheckStatus::Ok);
    }
}
