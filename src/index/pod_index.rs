//! Pods of a DaemonSet, by node and by UID.

use std::collections::BTreeMap;

use super::pod::PodRecord;
use crate::core::{NodeName, PodUid};

/// Records of all pods of a DaemonSet.
#[derive(Debug, Default)]
pub(super) struct PodIndex {
    nodes: BTreeMap<NodeName, Records>,
    places: BTreeMap<PodUid, NodeName>,
}

/// Pods of a node, oldest first. Nearly every node has one pod.
#[derive(Debug)]
enum Records {
    One(PodRecord),
    Several(Box<[PodRecord]>),
}

impl Records {
    fn slice(&self) -> &[PodRecord] {
        match self {
            Self::One(record) => std::slice::from_ref(record),
            Self::Several(records) => records,
        }
    }

    fn slice_mut(&mut self) -> &mut [PodRecord] {
        match self {
            Self::One(record) => std::slice::from_mut(record),
            Self::Several(records) => records,
        }
    }

    /// Sorts and returns the records; `None` if there are none.
    fn from_records(mut records: Vec<PodRecord>) -> Option<Self> {
        records.sort_by(|a, b| (a.pod.created, &a.pod.name).cmp(&(b.pod.created, &b.pod.name)));
        match records.len() {
            0 | 1 => records.pop().map(Self::One),
            _ => Some(Self::Several(records.into())),
        }
    }

    fn into_vec(self) -> Vec<PodRecord> {
        match self {
            Self::One(record) => vec![record],
            Self::Several(records) => records.into_vec(),
        }
    }
}

impl PodIndex {
    pub(super) fn get(&self, uid: &PodUid) -> Option<&PodRecord> {
        let pods = self.on(self.places.get(uid)?);
        pods.iter().find(|known| known.uid() == uid)
    }

    pub(super) fn place_of(&self, uid: &PodUid) -> Option<&NodeName> {
        self.places.get(uid)
    }

    pub(super) fn on(&self, node: &NodeName) -> &[PodRecord] {
        self.nodes.get(node).map_or(&[], Records::slice)
    }

    /// Returns the pods on a node to change them, oldest first.
    pub(super) fn on_mut(&mut self, node: &NodeName) -> &mut [PodRecord] {
        self.nodes.get_mut(node).map_or(&mut [], Records::slice_mut)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&NodeName, &PodRecord)> {
        let nodes = self.nodes.iter();
        nodes.flat_map(|(node, records)| records.slice().iter().map(move |record| (node, record)))
    }

    /// Returns the names of the nodes that have pods, sorted.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    pub(super) fn uids(&self) -> impl Iterator<Item = &PodUid> {
        self.places.keys()
    }

    /// Stores or replaces the record of a pod on a node.
    pub(super) fn insert(&mut self, node: &NodeName, record: PodRecord) {
        let uid = record.uid().clone();
        if self.places.get(&uid) == Some(node) {
            let mut known = self.on_mut(node).iter_mut();
            if let Some(known) = known.find(|known| known.uid() == record.uid()) {
                *known = record; // name and creation time of a pod never change, so the order is still right
                return;
            }
        }
        self.remove(&uid);
        self.places.insert(uid, node.clone());
        let mut records = self
            .nodes
            .remove(node)
            .map_or_else(Vec::new, Records::into_vec);
        records.push(record);
        self.keep(node, records);
    }

    /// Removes a pod. Returns the node that it was on.
    pub(super) fn remove(&mut self, uid: &PodUid) -> Option<NodeName> {
        let node = self.places.remove(uid)?;
        let records = self.nodes.remove(&node);
        let mut records = records.map_or_else(Vec::new, Records::into_vec);
        records.retain(|known| known.uid() != uid);
        self.keep(&node, records);
        Some(node)
    }

    fn keep(&mut self, node: &NodeName, records: Vec<PodRecord>) {
        if let Some(records) = Records::from_records(records) {
            self.nodes.insert(node.clone(), records);
        }
    }
}
