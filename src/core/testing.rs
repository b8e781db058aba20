//! Builders of fleets for tests: `fleet(vec![node("a", old(1)), node("b", current(2)).away()])`.
//!
//! Unless a test changes them, every node has always been Ready, and every pod is created at second 0 and Ready at second 10.

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::fleet::in_place::{InPlaceTransition, RunningContainer, Shape};
use super::messages::rollout::SetName;
use super::messages::{RolloutStatus, StatusSentence};
use super::{
    Fleet, Labels, Mode, Node, Plan, Pod, PodRevision, Readiness, RevisionState, RollbackTarget,
    RollbackTargets, Strategy, Targeting,
};

/// Returns the timestamp of this second since the epoch.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(crate) fn status(fleet: &Fleet, plan: &Plan) -> StatusSentence {
    let about = RolloutStatus {
        set: SetName {
            namespace: "default",
            name: "agent",
        },
        fleet,
        plan,
        strategy: &Strategy::with_mode(Mode::AdvancedRollingUpdate),
    };
    about.describe(plan.phase)
}

/// Returns a fleet whose current revision is `new`. An older revision is known, too. `nodes` must be sorted by name.
pub(crate) fn fleet(nodes: Vec<Node>) -> Fleet {
    Fleet {
        revision: RevisionState::Current("new".into()),
        behind_since: None,
        made: None,
        adopted: None,
        is_proven: true,
        replaces: true,
        earlier: vec![("old".into(), 1)],
        undone: None,
        transitions: Default::default(),
        rollback_targets: Default::default(),
        evictions: Default::default(),
        write_failures: Default::default(),
        record: None,
        pause: None,
        kind: Default::default(),
        not_created: None,
        not_ready: Default::default(),
        in_order: true,
        nodes,
        crowd: Default::default(),
    }
}

/// Returns a node with this pod. The pod's name is that of the node.
pub(crate) fn node(name: &str, pod: Pod) -> Node {
    Node {
        name: name.into(),
        labels: Labels::default(),
        hold: None,
        window: None,
        targeting: Targeting::Run,
        native: Targeting::Run,
        readiness: Readiness::Ready { since: at(-1) },
        pods: [Pod {
            name: name.into(),
            uid: name.into(),
            ..pod
        }]
        .into(),
        disrupted_at: None,
        emptied: false,
        kept_away_by: None,
        had_pod: false,
        losses: None,
        cut_off: false,
        podless_since: None,
        trouble: None,
        has_images: false,
    }
}

/// Returns an outdated pod. `number` is the number of its revision.
pub(crate) fn old(number: i64) -> Pod {
    Pod {
        name: "".into(),
        uid: "".into(),
        resource_version: "1".into(),
        created: at(0),
        revision: PodRevision::Outdated,
        number,
        terminating: false,
        leaving: None,
        ready_since: Some(at(10)),
        unready_since: None,
        started: Some(at(0)),
        in_place: Default::default(),
        problem: None,
        exit: Default::default(),
        need_upgrade: None,
        image_ready: None,
        surge: false,
        of_template: true,
        in_doubt: false,
    }
}

/// Returns a pod of the current revision. `number` is the number of that revision.
pub(crate) fn current(number: i64) -> Pod {
    Pod {
        revision: PodRevision::Current,
        ..old(number)
    }
}

/// Returns the template of the revision `name`: one container with the image `name`.
fn template(name: &str) -> serde_json::Value {
    json!({ "spec": { "containers": [{ "name": "main", "image": name }] } })
}

/// Returns the revisions to which pods of `new` can be rolled back in place. Their numbers are ascending.
pub(super) fn rollback_targets(to: &[&str]) -> RollbackTargets {
    let past = |name: &str| {
        let shapes = ["new", name].map(|name| Shape::from_template(&template(name)));
        InPlaceTransition::between(&shapes[0], &shapes[1], None)
    };
    let revisions = (1..).zip(to).map(|(number, name)| {
        let transition = past(name);
        ((*name).into(), RollbackTarget { number, transition })
    });
    RollbackTargets {
        stands: true,
        revisions: revisions.collect(),
    }
}

impl Pod {
    /// Sets the revision of the pod, and the image of this revision.
    pub(super) fn named(mut self, revision: &str) -> Self {
        self.in_place.revision = Some(revision.into());
        let container = RunningContainer {
            name: "main".into(),
            image: revision.into(),
            reported: revision.into(),
            image_id: revision.into(),
            restarts: 0,
            is_init: false,
        };
        self.in_place.containers = [container].into();
        self
    }

    /// Marks the pod as rolled back in place from the revision `new` at `second`.
    pub(super) fn rolled_back(mut self, second: i64) -> Self {
        self.in_place.reverted_from = Some("new".into());
        self.in_place.update = Some(super::fleet::in_place::InPlaceUpdate {
            at: at(second),
            is_carried_out: false,
        });
        self
    }

    /// Sets the creation time of the pod to `second`. The pod becomes Ready ten seconds later.
    pub(super) fn made(self, second: i64) -> Self {
        Self {
            created: at(second),
            started: Some(at(second)),
            ready_since: Some(at(second + 10)),
            ..self
        }
    }

    /// Replaces all labels of the pod with this one.
    pub(super) fn labelled(self, key: &str, value: &str) -> Self {
        let exit = crate::core::Exit {
            labels: [(key, value)].into_iter().collect(),
            ..(*self.exit).clone()
        }
        .into();
        Self { exit, ..self }
    }

    pub(super) fn broken(self) -> Self {
        Self {
            ready_since: None,
            ..self
        }
    }
}

impl Node {
    /// Replaces all labels of the node with this one.
    pub(super) fn labelled(self, key: &str, value: &str) -> Self {
        Self {
            labels: [(key, value)].into_iter().collect(),
            ..self
        }
    }

    /// Makes the node NotReady since one second before the test begins.
    pub(super) fn away(self) -> Self {
        let since = Some(at(-1));
        Self {
            readiness: Readiness::NotReady { since },
            ..self
        }
    }
}

/// Hostile text for tests. It changes the clipboard and the title of a terminal, clears the screen, reorders and hides text, and
/// forges lines in a color of `ctl`.
pub(crate) const HOSTILE: &str = "\x1b]52;c;cm0gLXJmIH4=\x07\x1b]0;title\x1b\\\x1b[2J\x1b[32mFORGED\u{9b}2J\u{9d}0;t\u{9c}\0\x7f\u{202e}\u{2066}\u{200f}\
    \u{61c}\u{200b}\u{ad}\u{feff}\u{e0041}\r\nFORGED line\u{2028}FORGED line\u{85}FORGED line";

/// Checks that a displayed text is safe: it can't control a terminal, hides nothing, contains no forged line, and is not too long.
#[track_caller]
pub(crate) fn assert_safe(what: &str, text: &str) {
    for line in text.split('\n') {
        let forbidden = line
            .chars()
            .find(|letter| super::foreign::is_forbidden(*letter));
        assert_eq!(forbidden, None, "{what}: {line:?}");
        assert!(!line.trim_start().starts_with("FORGED"), "{what}: {text}");
    }
    assert!(text.len() < 64 << 10, "{what}: {} bytes", text.len());
}
