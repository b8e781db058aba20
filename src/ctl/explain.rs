//! A verdict in words: what holds the node where it is, and what would change that.

use k8s_openapi::jiff::Timestamp;

use super::age;
use super::picture::{Picture, State, verdict_since};
use crate::core::eligibility::Obstacle;
use crate::core::names::{MAX_UNAVAILABLE, PAUSED};
use crate::core::{
    Behind, Mode, Node, Offline, Pod, PodRevision, Progress, Stall, Verdict, stall_of,
};

/// Holders of slots that are named; the rest is counted.
const NAMED: usize = 5;

/// Why one node is where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Explanation {
    /// One more word than the verdict's, where there is one: `ImagePullBackOff`, `NotReady`, …
    pub(super) reason: Option<String>,
    /// Since when, as far as known.
    pub(super) since: Option<Timestamp>,
    /// Continues "node NAME …".
    pub(super) because: String,
}

/// Why the node at `position` of the fleet is where it is.
pub(super) fn explain(picture: &Picture, position: usize) -> Explanation {
    let (node, verdict) = (
        &picture.fleet.nodes[position],
        &picture.plan.verdicts[position],
    );
    let (reason, because) = match *verdict {
        Verdict::Done => (None, "runs the current revision".to_owned()),
        Verdict::InProgress(progress) => in_progress(picture, node, progress),
        Verdict::Budget { broken: true } => (
            trouble_word(node),
            format!(
                "is outdated, and its old pod{} is not available{}: one of the first in the queue",
                pod_name(node),
                trouble_words(node)
            ),
        ),
        Verdict::Budget { broken: false } => {
            let counts = &picture.plan.counts;
            (
                None,
                format!(
                    "is outdated and waits for a free slot: {} of {} taken",
                    counts.unavailable, counts.allowed
                ),
            )
        }
        Verdict::Offline(offline) => is_offline(picture, node, offline),
        Verdict::FailedByRevision { .. } => (
            Some("NotReady".into()),
            "turned NotReady soon after it got the current revision".to_owned(),
        ),
        Verdict::Paused { until } => (None, paused(until)),
        Verdict::AwaitingOwner => (
            None,
            "is outdated; its owner decides when to upgrade (OTA)".to_owned(),
        ),
        Verdict::NativeControllerBehind => (behind_word(picture), behind(picture).to_owned()),
        Verdict::Invalid => {
            let key = picture.invalid.as_ref().map(|invalid| invalid.key.as_str());
            (
                None,
                format!(
                    "is outdated and not touched: {} cannot be used",
                    key.unwrap_or("a setting")
                ),
            )
        }
        Verdict::NotTargeted => (
            None,
            format!(
                "is not targeted, and its pod{} is the native controller's to remove",
                pod_name(node)
            ),
        ),
    };
    Explanation {
        reason,
        since: match verdict {
            // These hold as long as the rollout is in its state.
            Verdict::Budget { .. } | Verdict::AwaitingOwner => picture.incomplete_since(),
            Verdict::Paused { .. } | Verdict::Invalid | Verdict::NativeControllerBehind => {
                picture.state_since()
            }
            _ => verdict_since(node, verdict, picture.first_look),
        },
        because,
    }
}

fn in_progress(picture: &Picture, node: &Node, progress: Progress) -> (Option<String>, String) {
    let pod = pod_name(node);
    match progress {
        Progress::Replacing => (
            Some("Replacing".into()),
            format!("has its turn: its old pod{pod} is to be replaced now"),
        ),
        Progress::Terminating => (
            Some("Terminating".into()),
            format!("is being updated: its pod{pod} is terminating"),
        ),
        Progress::Missing { .. } => (
            Some("Missing".into()),
            "has no pod; the native DaemonSet controller has to make one".to_owned(),
        ),
        Progress::Starting => {
            let reason = trouble_word(node).unwrap_or_else(|| "Starting".into());
            let because = match trouble_words(node) {
                words if words.is_empty() => {
                    format!("has its new pod{pod}, which is not Ready yet")
                }
                words => format!("has its new pod{pod}, which does not start{words}"),
            };
            (Some(reason), because)
        }
        Progress::Young { available_at } => (
            Some("Young".into()),
            format!(
                "has its new pod{pod}, which counts as available in {} (minReadySeconds: {})",
                age::between(picture.now, available_at),
                picture.strategy.min_ready.as_secs()
            ),
        ),
        Progress::Surplus => (
            Some("Surplus".into()),
            format!(
                "has {} pods; the native DaemonSet controller removes the surplus",
                node.pods.len()
            ),
        ),
    }
}

fn is_offline(picture: &Picture, node: &Node, offline: Offline) -> (Option<String>, String) {
    let (reason, because) = match offline {
        Offline::NotReady { .. } if node.pods.is_empty() => (
            "NotReady",
            "is NotReady and has no pod; gets one of the current revision when it returns"
                .to_owned(),
        ),
        Offline::NotReady { .. } if picture.strategy.mode == Mode::Ota => (
            "NotReady",
            "is NotReady and outdated; its owner decides when to upgrade (OTA)".to_owned(),
        ),
        Offline::NotReady { .. } if picture.strategy.pause.is_some() => {
            ("NotReady", "is NotReady and outdated".to_owned())
        }
        Offline::NotReady { .. } => (
            "NotReady",
            "is NotReady and outdated; updated after it returns".to_owned(),
        ),
        Offline::Terminating { .. } => (
            "Terminating",
            format!(
                "is NotReady; its pod{} cannot finish terminating before it returns",
                pod_name(node)
            ),
        ),
        Offline::NoNode => (
            "NoNode",
            format!(
                "holds pod{}, but there is no such Node object",
                pod_name(node)
            ),
        ),
        Offline::Settling { until } => (
            "Settling",
            format!(
                "is outdated and returned a moment ago; counts as back in {}",
                age::between(picture.now, until)
            ),
        ),
        Offline::Updated { .. } => (
            "NotReady",
            "is NotReady, and has the current revision already".to_owned(),
        ),
    };
    (Some(reason.into()), because)
}

fn paused(until: Option<Timestamp>) -> String {
    match until {
        Some(until) => format!(
            "is outdated; the rollout is paused until {}",
            age::instant(until)
        ),
        None => "is outdated; the rollout is paused".to_owned(),
    }
}

fn behind_word(picture: &Picture) -> Option<String> {
    let word = match picture.state() {
        State::Behind(behind) => match behind {
            Behind::NotObserved => "NotObserved",
            Behind::NoRevision => "NoRevision",
            Behind::Tie => "Tie",
            Behind::Mismatch => "Mismatch",
            Behind::UnknownRevision => "UnknownRevision",
        },
        _ => return None,
    };
    Some(word.into())
}

/// What is awaited of the native controller.
pub(super) fn behind(picture: &Picture) -> &'static str {
    match picture.state() {
        State::Behind(Behind::NoRevision) => {
            "waits: the native DaemonSet controller has not made a ControllerRevision yet"
        }
        State::Behind(Behind::Tie) => {
            "waits: the native DaemonSet controller is merging equal ControllerRevisions"
        }
        State::Behind(Behind::Mismatch) => {
            "waits: the newest ControllerRevision does not hold the present template yet"
        }
        State::Behind(Behind::UnknownRevision) => {
            "waits: a pod carries a revision that is not known yet"
        }
        _ => "waits: the native DaemonSet controller has not observed the latest change yet",
    }
}

/// What would change the verdict: one sentence or a few, with the commands.
pub(super) fn cure(picture: &Picture, position: usize) -> String {
    let (node, verdict) = (
        &picture.fleet.nodes[position],
        &picture.plan.verdicts[position],
    );
    match *verdict {
        Verdict::Done => "Nothing: it is done.".to_owned(),
        Verdict::InProgress(progress) => cure_progress(picture, node, verdict, progress),
        Verdict::Budget { .. } => queue(picture, position),
        Verdict::Offline(offline) => cure_offline(picture, node, offline),
        Verdict::FailedByRevision { .. } => format!(
            "It keeps a slot of the budget ({} of {} taken). Repair the node, and it counts again as soon as it is \
             Ready; or roll out another template: kubectl -n {} rollout undo daemonset/{}",
            picture.plan.counts.unavailable,
            picture.plan.counts.allowed,
            picture.key.namespace,
            picture.key.name
        ),
        Verdict::Paused { until } => {
            let resume = format!("yurt-ds ctl resume {}", picture.key);
            match until {
                Some(until) => format!(
                    "It goes on by itself in {}; earlier with: {resume}",
                    age::between(picture.now, until)
                ),
                None => format!("It goes on after: {resume}"),
            }
        }
        Verdict::AwaitingOwner => upgrade(picture, node),
        Verdict::NativeControllerBehind => {
            "It goes on by itself within seconds. If it does not, kube-controller-manager is down or cannot reach \
             the API server."
                .to_owned()
        }
        Verdict::Invalid => match &picture.invalid {
            Some(invalid) => format!("{invalid}."),
            None => String::new(),
        },
        Verdict::NotTargeted => "Nothing here: the native controller removes it.".to_owned(),
    }
}

fn cure_progress(picture: &Picture, node: &Node, verdict: &Verdict, progress: Progress) -> String {
    let (namespace, pod) = (&picture.key.namespace, newest(node));
    let pod = pod.map(|pod| pod.name.as_str()).unwrap_or_default();
    match progress {
        Progress::Replacing => {
            "The controller deletes the old pod, and the native DaemonSet controller makes a new one. If this answer \
             stays the same for more than a few seconds, no controller is at work: look for it with: kubectl get \
             leases -A"
                .to_owned()
        }
        Progress::Terminating => format!(
            "A new pod is made when the old one has ended. If that takes longer than its \
             terminationGracePeriodSeconds, look for finalizers: kubectl -n {namespace} describe pod {pod}"
        ),
        Progress::Missing { .. } if stall_of(node, verdict, picture.now).is_some() => format!(
            "Find out what refuses the pod, a quota or an admission webhook: kubectl -n {namespace} get events \
             --field-selector reason=FailedCreate"
        ),
        Progress::Missing { .. } => format!(
            "It usually takes a second or two. If it lasts, a quota or an admission webhook refuses the pod: kubectl \
             -n {namespace} get events --field-selector reason=FailedCreate"
        ),
        Progress::Starting => {
            let look = format!("kubectl -n {namespace} describe pod {pod}");
            match stall_of(node, verdict, picture.now) {
                None => format!("Nothing to do, unless it lasts: {look}"),
                Some(Stall::PodsDoNotStart) => format!(
                    "Correct the image or the template, or go back: kubectl -n {namespace} rollout undo daemonset/{}. \
                     More about it: {look}",
                    picture.key.name
                ),
                Some(_) => format!("Look at its readiness: {look}"),
            }
        }
        Progress::Young { .. } => "Nothing to do: its slot is free then.".to_owned(),
        Progress::Surplus => "Nothing to do, unless it lasts.".to_owned(),
    }
}

fn queue(picture: &Picture, position: usize) -> String {
    let own = &picture.plan.verdicts[position];
    let is_before = |other: usize, verdict: &Verdict| match (verdict, own) {
        (Verdict::Budget { broken: a }, Verdict::Budget { broken: b }) => {
            (!a, other) < (!b, position)
        }
        _ => false,
    };
    let verdicts = picture.plan.verdicts.iter().enumerate();
    let before = verdicts
        .filter(|(other, verdict)| is_before(*other, verdict))
        .count();
    let waiting = picture.plan.counts.by_word[own.index()];
    let (counts, share) = (&picture.plan.counts, picture.strategy.max_unavailable);
    let limit = format!(
        "max-unavailable {share} allows {} of {} nodes",
        counts.allowed, counts.targeted
    );
    let holders = holders(picture, position);
    let holders = if holders.is_empty() {
        "no other node holds a slot".to_owned()
    } else {
        format!("slots are held by {holders}")
    };
    let hint = match picture.state() {
        State::Stalled(_) => "None of them moves by itself: ask ctl why about them".to_owned(),
        _ => format!("To go faster, raise the annotation {MAX_UNAVAILABLE}"),
    };
    format!(
        "It is number {} of {waiting} in the queue and has its turn as soon as a slot is free: {limit}, and {holders}. \
         {hint}",
        before + 1
    )
}

/// The nodes that hold slots, but the one that asks.
fn holders(picture: &Picture, asking: usize) -> String {
    let holds = |verdict: &Verdict| {
        matches!(
            verdict,
            Verdict::InProgress(_)
                | Verdict::FailedByRevision { .. }
                | Verdict::Budget { broken: true }
        )
    };
    let holding: Vec<usize> = (0..picture.plan.verdicts.len())
        .filter(|position| *position != asking && holds(&picture.plan.verdicts[*position]))
        .collect();
    let mut named: Vec<String> = holding
        .iter()
        .take(NAMED)
        .map(|position| holder(picture, *position))
        .collect();
    if holding.len() > NAMED {
        named.push(format!("{} more", holding.len() - NAMED));
    }
    named.join(", ")
}

fn holder(picture: &Picture, position: usize) -> String {
    let Explanation { reason, since, .. } = explain(picture, position);
    let word = reason.unwrap_or_else(|| "not available".into());
    let name = &picture.fleet.nodes[position].name;
    match since {
        Some(since) => format!("{name} ({word} for {})", age::between(since, picture.now)),
        None => format!("{name} ({word})"),
    }
}

fn cure_offline(picture: &Picture, node: &Node, offline: Offline) -> String {
    let settle = humantime::format_duration(picture.strategy.ready_settle);
    let back = match (picture.strategy.mode, picture.strategy.pause, offline) {
        (_, _, Offline::Updated { .. }) => {
            return "Nothing to do: it needs no update when it returns.".to_owned();
        }
        (_, _, Offline::NoNode) => {
            let pods = node.pods.iter().map(|pod| pod.name.as_str());
            return format!(
                "It goes on when the Node exists again. If it never will, delete the pod: kubectl -n {} delete pod {}",
                picture.key.namespace,
                pods.collect::<Vec<_>>().join(" ")
            );
        }
        (_, _, Offline::Settling { .. }) => {
            return format!(
                "It goes on by itself when it stayed Ready for {settle} (annotation ready-settle)."
            );
        }
        (_, _, Offline::Terminating { .. }) => {
            return "It goes on by itself when the node is Ready again; others do not wait for it."
                .to_owned();
        }
        (Mode::Ota, ..) => "Its owner can upgrade it when it is Ready again".to_owned(),
        _ => format!("It goes on by itself when the node was Ready for {settle}"),
    };
    let paused = match picture.strategy.pause {
        Some(_) if picture.plan.counts.by_word[PAUSED_WORD] > 0 => {
            format!(" and the pause has ended ({PAUSED})")
        }
        _ => String::new(),
    };
    format!("{back}{paused}; others do not wait for it.")
}

/// Position of `Paused` in [`Verdict::WORDS`].
const PAUSED_WORD: usize = 5;

fn upgrade(picture: &Picture, node: &Node) -> String {
    let namespace = &picture.key.namespace;
    let Some(pod) = newest(node) else {
        return String::new();
    };
    let pulling = match &pod.image_ready {
        Some(image) if !image.status => {
            " A pre-pull of the image was asked for; the upgrade is refused until it is done."
        }
        _ => "",
    };
    format!(
        "On the node: curl -X POST http://127.0.0.1:10267/openyurt.io/v1/namespaces/{namespace}/pods/{pod}/upgrade - \
         or from here, which does the same: kubectl -n {namespace} delete pod {pod}.{pulling}",
        pod = pod.name
    )
}

/// Why no pod of the DaemonSet belongs on a node, and what would change that.
pub(super) fn not_targeted(obstacle: Option<&Obstacle>) -> (String, String) {
    let Some(obstacle) = obstacle else {
        return (
            "is not targeted: no pod of this DaemonSet belongs there".to_owned(),
            "Nothing, unless the template or the node changes.".to_owned(),
        );
    };
    let cure = match obstacle {
        Obstacle::Taint(taint) => format!(
            "A pod is made there when the template tolerates {taint}, or the node loses that taint."
        ),
        Obstacle::NodeSelector(_) => {
            "A pod is made there when the node has these labels, or the template asks for others."
                .to_owned()
        }
        Obstacle::NodeName(_) | Obstacle::NodeAffinity => {
            "A pod is made there when the template allows this node.".to_owned()
        }
    };
    (format!("is not targeted: {obstacle}"), cure)
}

/// How much a person should look at a node: less is more urgent, `None` not at all.
pub(super) fn urgency(picture: &Picture, position: usize) -> Option<u8> {
    let (node, verdict) = (
        &picture.fleet.nodes[position],
        &picture.plan.verdicts[position],
    );
    if stall_of(node, verdict, picture.now).is_some() {
        return Some(u8::from(!matches!(
            verdict,
            Verdict::FailedByRevision { .. }
        )));
    }
    match *verdict {
        Verdict::InProgress(_) if !trouble_words(node).is_empty() => Some(1),
        Verdict::InProgress(Progress::Replacing | Progress::Young { .. }) => None,
        Verdict::InProgress(_) => {
            let since = verdict_since(node, verdict, picture.first_look)?;
            let old = picture.now.as_second() - since.as_second() > OLD_SECONDS;
            old.then_some(2)
        }
        Verdict::Budget { broken: true } => Some(3),
        Verdict::Offline(Offline::NoNode | Offline::Terminating { .. }) => Some(4),
        Verdict::Offline(Offline::NotReady { .. }) => Some(5),
        _ => None,
    }
}

/// In progress for longer than this deserves a look.
const OLD_SECONDS: i64 = 120;

fn newest(node: &Node) -> Option<&Pod> {
    node.pods.iter().max_by_key(|pod| pod.created)
}

/// The name of its pod, with a space before it.
fn pod_name(node: &Node) -> String {
    newest(node).map_or_else(String::new, |pod| format!(" {}", pod.name))
}

fn trouble_word(node: &Node) -> Option<String> {
    let trouble = newest(node)?.trouble.as_ref()?;
    Some(match &*trouble.reason {
        "" => "Error".into(),
        reason => reason.to_owned(),
    })
}

fn trouble_words(node: &Node) -> String {
    let restarts = newest(node)
        .and_then(|pod| pod.trouble.as_ref())
        .map_or(0, |trouble| trouble.restarts);
    match (trouble_word(node), restarts) {
        (None, _) => String::new(),
        (Some(word), 0) => format!(" ({word})"),
        (Some(word), 1) => format!(" ({word}, 1 restart)"),
        (Some(word), restarts) => format!(" ({word}, {restarts} restarts)"),
    }
}

/// How the pods of a node are called in a sentence about revisions.
pub(super) fn revision_word(pod: &Pod) -> &'static str {
    match pod.revision {
        PodRevision::Current => "current",
        PodRevision::Outdated => "outdated",
        PodRevision::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::strategy::{DEFAULT_MAX_UNAVAILABLE, DEFAULT_READY_SETTLE};
    use crate::core::{
        Fleet, Pause, Plan, Readiness, RevisionState, Strategy, Targeting, Trouble, decide,
    };
    use std::time::Duration;

    const NOW: i64 = 10_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A node that is Ready for long, with one old pod that is available.
    fn node(name: &str) -> Node {
        Node {
            name: name.into(),
            targeting: Targeting::Run,
            readiness: Readiness::Ready { since: at(1) },
            pods: vec![pod(&format!("p-{name}"))],
            podless_since: None,
        }
    }

    fn pod(name: &str) -> Pod {
        Pod {
            name: name.into(),
            uid: name.into(),
            resource_version: "1".into(),
            created: at(100),
            revision: PodRevision::Outdated,
            terminating: false,
            ready_since: Some(at(110)),
            started: Some(at(101)),
            trouble: None,
            need_upgrade: None,
            image_ready: None,
        }
    }

    /// A node whose pod is new, and made so many seconds ago.
    fn updated(name: &str, ago: i64) -> Node {
        let mut node = node(name);
        node.pods[0].revision = PodRevision::Current;
        node.pods[0].created = at(NOW - ago);
        node.pods[0].ready_since = None;
        node
    }

    fn picture(nodes: Vec<Node>, pause: Option<Pause>) -> Picture {
        let strategy = Strategy {
            mode: Mode::AdvancedRollingUpdate,
            max_unavailable: DEFAULT_MAX_UNAVAILABLE,
            pause,
            min_ready: Duration::from_secs(20),
            ready_settle: DEFAULT_READY_SETTLE,
        };
        let fleet = Fleet {
            revision: RevisionState::Current("new".into()),
            replaces: true,
            nodes,
        };
        let plan: Plan = decide(&strategy, &fleet, at(NOW));
        Picture {
            key: "default/web".parse().unwrap(),
            strategy,
            invalid: None,
            notes: Vec::new(),
            fleet,
            plan,
            conditions: Vec::new(),
            first_look: at(NOW),
            now: at(NOW),
        }
    }

    /// What is said about the node `n1`, a node that stands first; `n2` runs the old revision.
    #[track_caller]
    fn case(n1: Node, verdict: &str, reason: Option<&str>, because: &str, next: &str) {
        let picture = picture(vec![n1, node("n2")], None);
        let found = explain(&picture, 0);
        assert_eq!(picture.plan.verdicts[0].word(), verdict, "{found:?}");
        assert_eq!(found.reason.as_deref(), reason, "{found:?}");
        assert!(found.because.contains(because), "{found:?}");
        let cure = cure(&picture, 0);
        assert!(cure.contains(next), "{cure}");
    }

    #[test]
    fn every_state_of_a_node_has_words() {
        let away = |mut node: Node| {
            node.readiness = Readiness::NotReady {
                since: Some(at(9_000)),
            };
            node
        };
        case(
            node("n1"),
            "InProgress",
            Some("Replacing"),
            "p-n1 is to be replaced",
            "kubectl get leases -A",
        );

        let mut young = updated("n1", 30);
        young.pods[0].ready_since = Some(at(NOW - 5));
        case(
            young,
            "InProgress",
            Some("Young"),
            "available in 15s (minReadySeconds: 20)",
            "Nothing to do",
        );

        let mut ending = node("n1");
        ending.pods[0].terminating = true;
        case(
            ending,
            "InProgress",
            Some("Terminating"),
            "p-n1 is terminating",
            "finalizers",
        );

        let mut two = node("n1");
        two.pods.push(pod("other"));
        case(
            two,
            "InProgress",
            Some("Surplus"),
            "has 2 pods",
            "Nothing to do",
        );

        let mut none = node("n1");
        none.pods.clear();
        none.podless_since = Some(at(NOW - 60));
        case(
            none,
            "InProgress",
            Some("Missing"),
            "has no pod",
            "Find out what refuses the pod",
        );

        let mut pulling = updated("n1", 60);
        pulling.pods[0].trouble = Some(Trouble {
            reason: "ImagePullBackOff".into(),
            restarts: 0,
        });
        case(
            pulling,
            "InProgress",
            Some("ImagePullBackOff"),
            "does not start (ImagePullBackOff)",
            "rollout undo daemonset/web",
        );

        case(
            updated("n1", 5),
            "InProgress",
            Some("Starting"),
            "not Ready yet",
            "unless it lasts",
        );
        case(
            away(node("n1")),
            "Offline",
            Some("NotReady"),
            "NotReady and outdated",
            "was Ready for 30s",
        );

        let mut stuck = away(node("n1"));
        stuck.pods[0].terminating = true;
        case(
            stuck,
            "Offline",
            Some("Terminating"),
            "cannot finish terminating",
            "Ready again",
        );

        let mut back = node("n1");
        back.readiness = Readiness::Ready {
            since: at(NOW - 10),
        };
        case(
            back,
            "Offline",
            Some("Settling"),
            "back in 20s",
            "stayed Ready for 30s",
        );

        let mut lost = node("n1");
        lost.readiness = Readiness::Gone;
        case(
            lost,
            "Offline",
            Some("NoNode"),
            "no such Node",
            "delete pod p-n1",
        );

        let mut killed = updated("n1", 1_100);
        killed.readiness = Readiness::NotReady {
            since: Some(at(NOW - 1_000)),
        };
        case(
            killed,
            "FailedByRevision",
            Some("NotReady"),
            "soon after it got",
            "keeps a slot",
        );
    }

    #[test]
    fn who_waits_is_told_the_place_in_the_queue_and_who_holds_the_slots() {
        let mut broken = node("n3");
        broken.pods[0].ready_since = None;
        let picture = picture(
            vec![updated("n1", 700), node("n2"), broken, node("n4")],
            None,
        );
        let place = |position| cure(&picture, position);
        assert!(place(2).contains("number 1 of 3"), "{}", place(2));
        assert!(place(1).contains("number 2 of 3"), "{}", place(1));
        assert!(place(3).contains("number 3 of 3"), "{}", place(3));
        assert!(
            place(3).contains("n1 (Starting for 11m), n3 (not available)"),
            "{}",
            place(3)
        );
    }

    #[test]
    fn a_pause_is_explained_with_its_end() {
        let picture = picture(vec![node("n1")], Some(Pause::Until(at(NOW + 300))));
        assert!(
            explain(&picture, 0)
                .because
                .contains("paused until 1970-01-01T02:51:40Z")
        );
        assert!(cure(&picture, 0).contains("by itself in 5m"));
    }
}
