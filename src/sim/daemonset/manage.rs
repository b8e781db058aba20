//! Decides which pods to create and delete: one pod per eligible node, and the rolling update.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::pods::{ByNode, is_available, is_updated, ready_since};
use super::set::{NativeStrategy, Set, scaled};
use crate::core::Labels;
use crate::core::Targeting;
use crate::core::eligibility::{NodeFacts, Taint};
use crate::core::names::REVISION_HASH_LABEL;
use crate::k8s::Pod;

/// Node, reduced to the fields that decide if it is eligible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ManagedNode {
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
}

/// Pods to create and delete for one DaemonSet.
#[derive(Debug, Default)]
pub(super) struct ManagePlan<'a> {
    /// Nodes on which a pod is created.
    pub(super) create: Vec<&'a str>,
    pub(super) delete: Vec<&'a Pod>,
    /// Nodes whose failed pods are deleted. If pods fail repeatedly on a node, a back-off precedes the next deletion there.
    pub(super) failed: Vec<&'a str>,
}

/// State of one DaemonSet from which its pods are decided.
pub(super) struct ManagedView<'a> {
    pub(super) set: &'a Set,
    pub(super) hash: &'a str,
    pub(super) nodes: &'a BTreeMap<String, ManagedNode>,
    pub(super) pods: &'a ByNode<'a>,
    pub(super) now: Timestamp,
}

impl<'a> ManagedView<'a> {
    pub(super) fn targeting(&self, node: &str) -> Targeting {
        self.nodes.get(node).map_or(Targeting::No, |record| {
            self.set.scheduling.native_targeting(&NodeFacts {
                name: node,
                labels: &record.labels,
                taints: &record.taints,
            })
        })
    }

    fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.set.min_ready, self.now)
    }

    /// Returns the pods to create and delete so that every eligible node has exactly one pod and other nodes have none.
    ///
    /// `may_retry` returns true if the back-off of a node's failed pod has ended.
    pub(super) fn manage(&self, mut may_retry: impl FnMut(&str) -> bool) -> ManagePlan<'a> {
        let mut todo = ManagePlan::default();
        for node in self.nodes.keys() {
            let pods = self.pods.get(node.as_str());
            match (self.targeting(node), pods) {
                (Targeting::Run, None) => todo.create.push(node),
                (Targeting::Keep | Targeting::No, None) => {}
                (Targeting::No, Some(pods)) => {
                    let live = pods.iter().copied().filter(|pod| !pod.is_deleting());
                    todo.delete.extend(live);
                }
                (targeting, Some(pods)) => {
                    let running = self.without_ended(node, pods, &mut todo, &mut may_retry);
                    if !self.set.surges() {
                        todo.delete.extend(running.iter().skip(1));
                    } else if running.is_empty() && targeting == Targeting::Run {
                        todo.create.push(node);
                    } else {
                        self.surplus_of_surge(&running, &mut todo);
                    }
                }
            }
        }
        for (node, pods) in self.pods {
            let unbound = |pod: &&&Pod| pod.spec.node_name.as_deref().unwrap_or("").is_empty();
            if !self.nodes.contains_key(*node) {
                let lost = pods.iter().filter(unbound).filter(|pod| !pod.is_deleting());
                todo.delete.extend(lost);
            }
        }
        todo
    }

    /// Returns the running pods of a node, and adds the pods that have ended to the deletions.
    fn without_ended(
        &self,
        node: &'a str,
        pods: &[&'a Pod],
        todo: &mut ManagePlan<'a>,
        may_retry: &mut impl FnMut(&str) -> bool,
    ) -> Vec<&'a Pod> {
        let mut running = Vec::with_capacity(pods.len());
        for pod in pods.iter().copied().filter(|pod| !pod.is_deleting()) {
            match pod.status.phase.as_str() {
                "Failed" if !may_retry(node) => {}
                "Failed" => {
                    todo.delete.push(pod);
                    todo.failed.push(node);
                }
                "Succeeded" => todo.delete.push(pod),
                _ => running.push(pod),
            }
        }
        running
    }

    /// Adds the surplus pods of a node to the deletions, for a rolling update with surge.
    ///
    /// A node may have one old and one new pod. The old pod is deleted once the new one is available or the old one is not Ready.
    fn surplus_of_surge(&self, running: &[&'a Pod], todo: &mut ManagePlan<'a>) {
        if running.len() <= 1 {
            return;
        }
        let (new, old): (Vec<&Pod>, Vec<&Pod>) = running
            .iter()
            .partition(|pod| pod.label(REVISION_HASH_LABEL) == Some(self.hash));
        todo.delete.extend(new.iter().skip(1));
        todo.delete.extend(old.iter().skip(1));
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (ready_since(old).is_none() || self.is_available(new))
        {
            todo.delete.push(old);
        }
    }

    /// Returns the next step of the native rolling update. It is empty for OnDelete.
    pub(super) fn roll(&self) -> ManagePlan<'a> {
        let NativeStrategy::RollingUpdate {
            max_unavailable,
            max_surge,
        } = &self.set.strategy
        else {
            return ManagePlan::default();
        };
        let mut nodes: BTreeMap<&'a str, Targeting> = BTreeMap::new();
        let names = self.nodes.keys().map(String::as_str);
        nodes.extend(names.map(|node| (node, self.targeting(node))));
        let wanted = nodes.values().filter(|t| **t == Targeting::Run).count();
        let surge = scaled(max_surge, wanted, 0);
        let unavailable = match scaled(max_unavailable, wanted, 1) {
            0 if surge == 0 => 1,
            limit => limit,
        };
        // The limit is a share of the nodes that should get a pod. Other nodes use up the limit too if they keep an existing pod
        // but would get no new one. Unreachable nodes are an example (observed on Kubernetes 1.36).
        nodes.retain(|node, targeting| match targeting {
            Targeting::Run => true,
            Targeting::Keep => self.pods.contains_key(node),
            Targeting::No => false,
        });
        let nodes: Vec<&'a str> = nodes.into_keys().collect();
        match surge {
            0 => self.replace(&nodes, unavailable),
            _ => self.surge(&nodes, surge),
        }
    }

    /// Deletes old pods as long as fewer than `limit` nodes lack an available pod. NotReady nodes count, too.
    fn replace(&self, nodes: &[&'a str], limit: usize) -> ManagePlan<'a> {
        let mut unavailable = 0;
        let mut broken = Vec::new();
        let mut candidates = Vec::new();
        for node in nodes {
            match self.old_and_new(node) {
                Some((Some(old), None)) if self.is_available(old) => candidates.push(old),
                Some((Some(old), None)) => {
                    unavailable += 1;
                    broken.push(old);
                }
                Some((None, Some(new))) if self.is_available(new) => {}
                _ => unavailable += 1,
            }
        }
        candidates.truncate(limit.saturating_sub(unavailable));
        broken.extend(candidates);
        ManagePlan {
            delete: broken,
            ..ManagePlan::default()
        }
    }

    /// Creates new pods next to old ones on at most `limit` nodes at a time. When the new pod of a node is available, deletes the
    /// old one.
    fn surge(&self, nodes: &[&'a str], limit: usize) -> ManagePlan<'a> {
        let mut todo = ManagePlan::default();
        let mut candidates = Vec::new();
        let mut surging = 0;
        for node in nodes {
            match self.old_and_new(node) {
                Some((Some(old), None)) if self.is_available(old) => candidates.push(*node),
                Some((Some(_), None)) => todo.create.push(node),
                Some((Some(old), Some(new))) if self.is_available(new) => todo.delete.push(old),
                Some((None, _)) => {}
                _ => surging += 1,
            }
        }
        candidates.truncate(limit.saturating_sub(surging));
        todo.create.extend(candidates);
        todo
    }

    /// Returns the old and the new pod of a node, ignoring deleted pods. Returns `None` if the node has several old or several new
    /// pods.
    fn old_and_new(&self, node: &str) -> Option<(Option<&'a Pod>, Option<&'a Pod>)> {
        let (mut old, mut new) = (None, None);
        let pods = self.pods.get(node).into_iter().flatten().copied();
        for pod in pods.filter(|pod| !pod.is_deleting()) {
            let place = if is_updated(pod, self.set, self.hash) {
                &mut new
            } else {
                &mut old
            };
            if place.replace(pod).is_some() {
                return None;
            }
        }
        Some((old, new))
    }
}
