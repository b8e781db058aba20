//! Checks for pods that the new DaemonSet would not adopt in their present state.

use std::collections::BTreeSet;

use kube::api::ListParams;
use serde_json::Value;

use super::journal::Journal;
use super::messages::{self, PodPlace};
use super::steps::{Migration, selector, text};
use crate::core::selector::Selector;
use crate::ctl::code::Code;
use crate::ctl::daemonset_api::{api_in, list_advanced, qualified_name};
use crate::ctl::error::CliError;
use crate::ctl::list::list;
use crate::index::{PodController, SetKey};
use crate::k8s::{DaemonSet, Pod};

/// Pods of a DaemonSet, each with the object that controls it.
struct OwnPods(Vec<(Pod, PodController)>);

impl OwnPods {
    /// Returns the nodes whose pod is terminating. The new DaemonSet would not adopt such a pod, and would create a second one.
    fn ending(&self) -> Vec<String> {
        let pods = self.0.iter().map(|(pod, _)| pod);
        let ending = pods.filter(|pod| pod.is_deleting());
        let ending = ending.filter(|pod| !pod.is_over());
        ending.map(|pod| PodPlace::from_pod(pod).node).collect()
    }

    /// Returns the surge pods (`max-surge`): the pods that a ControllerRevision controls, and on each node all but the oldest pod.
    fn second(&self) -> Vec<PodPlace> {
        let mut pods: Vec<&(Pod, PodController)> = self.0.iter().collect();
        pods.sort_by_key(|(pod, _)| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
        let mut nodes = BTreeSet::new();
        let is_second = |(pod, controller): &&&(Pod, PodController)| {
            let is_staying = !pod.is_deleting();
            let by_revision = *controller == PodController::Revision;
            is_staying
                && (by_revision || !pod.is_over() && !nodes.insert(PodPlace::from_pod(pod).node))
        };
        let second = pods.iter().filter(is_second);
        second.map(|(pod, _)| PodPlace::from_pod(pod)).collect()
    }

    /// Returns true if a selector matches one of the pods.
    fn is_any_selected(&self, selector: &Selector) -> bool {
        let mut pods = self.0.iter();
        pods.any(|(pod, _)| selector.matches(|key: &str| pod.label(key)))
    }
}

impl PodPlace {
    fn from_pod(pod: &Pod) -> Self {
        Self {
            node: pod.spec.target_node().unwrap_or_default().to_owned(),
            pod: pod.name().to_owned(),
        }
    }
}

impl Migration<'_> {
    /// Checks that the new DaemonSet would adopt each pod in its present state.
    pub(super) async fn check_adoption(&self, source: &Value) -> Result<(), CliError> {
        let pods = self.own_pods(source).await?;
        match (pods.ending(), pods.second()) {
            (ending, _) if !ending.is_empty() => Err(self.no(messages::ending(&ending))),
            (_, second) if !second.is_empty() => {
                Err(self.no(messages::second(&self.source, &second)))
            }
            _ => self.check_neighbours(&pods).await,
        }
    }

    /// Returns the pods that match the selector of `set`.
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
        let pods = self.selected_pods(source).await?.into_iter();
        let own = pods.filter_map(|pod| {
            let controller = PodController::new(&pod.metadata, &uid)?;
            Some((pod, controller))
        });
        Ok(OwnPods(own.collect()))
    }

    /// Checks that pods are left that the journal's new DaemonSet can adopt.
    ///
    /// If there are none, a DaemonSet of the same name was created and deleted after the interruption, and the journal is obsolete.
    pub(super) async fn check_left(&self, journal: &Journal) -> Result<(), CliError> {
        let pods = self.selected_pods(&journal.object).await?;
        let is_left = |pod: &&Pod| {
            let is_own = pod
                .controller()
                .is_none_or(|owner| owner.uid == journal.from);
            is_own && !pod.is_deleting()
        };
        if pods.iter().any(|pod| is_left(&pod)) {
            Ok(())
        } else {
            Err(CliError::new(
                Code::Refused,
                messages::abandoned(&self.target),
            ))
        }
    }

    /// Checks that no other DaemonSet selects the pods. Such a DaemonSet would adopt the pods while they have no controller.
    async fn check_neighbours(&self, pods: &OwnPods) -> Result<(), CliError> {
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
                return Err(self.no(messages::selected(&qualified_name(&key))));
            }
        }
        Ok(())
    }
}
