//! Fleets in words, for tests: `fleet(vec![node("a", old(1)), node("b", current(2)).away()])`.
//!
//! Every node has been Ready for ever, every pod was made at 0 and is Ready ten seconds after that.

use k8s_openapi::jiff::Timestamp;

use super::{Fleet, Labels, Node, Pod, PodRevision, Readiness, RevisionState, Targeting};

/// So many seconds after the beginning of time.
pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A fleet whose current revision is `new`, and not the first one. The nodes have to be in the order of names.
pub(super) fn fleet(nodes: Vec<Node>) -> Fleet {
    Fleet {
        revision: RevisionState::Current("new".into()),
        replaces: true,
        successions: Default::default(),
        record: None,
        nodes,
    }
}

/// A node with a pod of its own name.
pub(super) fn node(name: &str, pod: Pod) -> Node {
    Node {
        name: name.into(),
        labels: Labels::default(),
        hold: None,
        window: None,
        targeting: Targeting::Run,
        readiness: Readiness::Ready { since: at(-1) },
        pods: vec![Pod {
            name: name.into(),
            uid: name.into(),
            ..pod
        }],
        podless_since: None,
        has_images: false,
    }
}

/// A pod of the revision of this number, which is not the current one.
pub(super) fn old(number: i64) -> Pod {
    Pod {
        name: "".into(),
        uid: "".into(),
        resource_version: "1".into(),
        created: at(0),
        revision: PodRevision::Outdated,
        number,
        terminating: false,
        ready_since: Some(at(10)),
        unready_since: None,
        started: Some(at(0)),
        in_place: Default::default(),
        trouble: None,
        exit: crate::core::Exit::default(),
        need_upgrade: None,
        image_ready: None,
        surge: false,
    }
}

/// A pod of the current revision, which has this number.
pub(super) fn current(number: i64) -> Pod {
    Pod {
        revision: PodRevision::Current,
        ..old(number)
    }
}

impl Pod {
    /// Made at that second, Ready ten seconds later.
    pub(super) fn made(self, second: i64) -> Self {
        Self {
            created: at(second),
            started: Some(at(second)),
            ready_since: Some(at(second + 10)),
            ..self
        }
    }

    /// Not Ready.
    pub(super) fn broken(self) -> Self {
        Self {
            ready_since: None,
            ..self
        }
    }
}

impl Node {
    /// With this label and no other.
    pub(super) fn labelled(self, key: &str, value: &str) -> Self {
        Self {
            labels: [(key, value)].into_iter().collect(),
            ..self
        }
    }

    /// NotReady, for ever.
    pub(super) fn away(self) -> Self {
        let since = Some(at(-1));
        Self {
            readiness: Readiness::NotReady { since },
            ..self
        }
    }
}
