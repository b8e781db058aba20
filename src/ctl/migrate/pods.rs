//! Which pods the new DaemonSet would not take over as they are.

use kube::api::ListParams;
use serde_json::Value;

use super::journal::Journal;
use super::steps::{Migration, selector, text};
use super::words;
use crate::core::selector::Selector;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::kinds::{api_in, list_advanced, unmistakable};
use crate::ctl::list::list;
use crate::index::SetKey;
use crate::k8s::{DaemonSet, Pod};

/// The pods that a DaemonSet controls.
pub(super) struct OwnPods(Vec<Pod>);

impl OwnPods {
    /// The nodes whose pod is ending: nobody adopts such a pod, so the new DaemonSet would make another one beside it.
    fn ending(&self) -> Vec<String> {
        let ending = self
            .0
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_some() && !pod.is_over());
        nodes(ending)
    }

    /// The nodes on which two stay.
    fn doubled(&self) -> Vec<String> {
        let staying = self
            .0
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none() && !pod.is_over());
        let mut all = nodes(staying);
        all.sort();
        let doubled = all.windows(2).filter(|pair| pair[0] == pair[1]);
        let mut doubled: Vec<String> = doubled.map(|pair| pair[0].clone()).collect();
        doubled.dedup();
        doubled
    }

    /// Whether a selector matches one of them.
    fn is_any_selected(&self, selector: &Selector) -> bool {
        self.0.iter().any(|pod| {
            let labels = pod.metadata.labels.as_ref();
            selector.matches(|key: &str| labels?.get(key).map(String::as_str))
        })
    }
}

impl Migration<'_> {
    /// Says why not, if the new DaemonSet would not take over each pod as it is.
    pub(super) async fn judge_adoption(&self, source: &Value) -> Result<(), CliError> {
        let pods = self.own_pods(source).await?;
        match (pods.ending(), pods.doubled()) {
            (ending, _) if !ending.is_empty() => Err(self.no(words::ending(&ending))),
            (_, doubled) if !doubled.is_empty() => {
                Err(self.no(words::doubled(&self.source, &doubled)))
            }
            _ => self.judge_neighbours(&pods).await,
        }
    }

    /// The pods that the selector of `set` matches.
    pub(super) async fn selected_pods(&self, set: &Value) -> Result<Vec<Pod>, CliError> {
        let access = &self.context.access;
        let api = api_in::<Pod>(access, Some(&self.source.namespace));
        let doing = format!("list the pods of {}", self.source);
        let params = ListParams::default().labels(&selector(set));
        let (pods, _) = list(access, &doing, &api, params).await?;
        Ok(pods)
    }

    async fn own_pods(&self, source: &Value) -> Result<OwnPods, CliError> {
        let uid = text(&source["metadata"]["uid"]);
        let mut pods = self.selected_pods(source).await?;
        pods.retain(|pod| {
            let mut owners = pod.metadata.owner_references.iter().flatten();
            owners.any(|owner| owner.controller == Some(true) && owner.uid == uid)
        });
        Ok(OwnPods(pods))
    }

    /// Whether pods are left for what is kept: where none is, the DaemonSet was made again by somebody and deleted since, and what is
    /// kept is not what anybody wants any more.
    pub(super) async fn judge_left(&self, journal: &Journal) -> Result<(), CliError> {
        let pods = self.selected_pods(&journal.object).await?;
        let is_left = |pod: &&Pod| {
            let mut owners = pod.metadata.owner_references.iter().flatten();
            let owner = owners.find(|owner| owner.controller == Some(true));
            let is_own = owner.is_none_or(|owner| owner.uid == journal.from);
            is_own && pod.metadata.deletion_timestamp.is_none()
        };
        match pods.iter().any(|pod| is_left(&pod)) {
            true => Ok(()),
            false => Err(CliError::new(Code::Refused, words::abandoned(&self.target))),
        }
    }

    /// While nobody owns the pods, whoever selects them takes them.
    async fn judge_neighbours(&self, pods: &OwnPods) -> Result<(), CliError> {
        let access = &self.context.access;
        let namespace = Some(&*self.source.namespace);
        let api = api_in::<DaemonSet>(access, namespace);
        let doing = format!("list the DaemonSets of namespace {}", self.source.namespace);
        let (native, advanced) = tokio::join!(
            list(access, &doing, &api, ListParams::default()),
            list_advanced(access, namespace)
        );
        let advanced = advanced?.map(|(sets, _)| sets).unwrap_or_default();
        let (native, _) = native?;
        let is_own = |key: &SetKey| *key == self.source || *key == self.target;
        for set in native.iter().chain(&advanced) {
            let Some(key) = SetKey::of_set(set).filter(|key| !is_own(key)) else {
                continue;
            };
            if Selector::from_json(&set.spec.selector)
                .is_ok_and(|selector| pods.is_any_selected(&selector))
            {
                return Err(self.no(words::selected(&unmistakable(&key))));
            }
        }
        Ok(())
    }
}

fn nodes<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<String> {
    pods.map(|pod| pod.spec.target_node().unwrap_or_default().to_owned())
        .collect()
}
