//! Messages about a node with a surge pod (`max-surge`).

use super::pods::{ASKED_AGAIN, is_kept, trouble_words};
use super::rollout::{RolloutView, awaits_proof};
use crate::core::engine::surge::SurgeRelease;
use crate::core::engine::terms::PROOF;
use crate::core::fleet::{Node, Pod};
use crate::core::id::NodeName;
use crate::core::instant;
use crate::core::kind::SetKind;
use crate::core::verdict::Progress;
use crate::core::words::named;

/// Describes the stage of a node with a surge pod.
pub(super) fn surging(
    rollout: &RolloutView<'_>,
    node: &Node,
    progress: Progress,
) -> (Option<String>, String) {
    let made = node.pods.iter().filter(|pod| pod.surge);
    let name = |pod: &Pod| format!(" {}", pod.name);
    let made = made.map(name).next().unwrap_or_default();
    let (reason, because) = match progress {
        Progress::SurgeYoung { available_at } if awaits_proof(rollout, node, available_at) => (
            "SurgeProving",
            format!(
                "has a new pod{made}, which is Ready, and still runs the old one. The revision is still being tested on its \
                 first nodes: the old pod is deleted when one of the revision's first pods has been Ready for {}s; the new pod \
                 reaches that in {}",
                PROOF.as_secs(),
                instant::between(rollout.now, available_at)
            ),
        ),
        Progress::SurgeYoung { available_at } => (
            "SurgeYoung",
            format!(
                "has a new pod{made} beside the old one, which goes when the new one counts as available, in {} \
                 (minReadySeconds: {})",
                instant::between(rollout.now, available_at),
                rollout.strategy.min_ready.as_secs()
            ),
        ),
        Progress::SurgeTakingOver if let Some(why) = rollout.standstill() => (
            "SurgeTakingOver",
            format!("has a new pod{made} that serves beside the old one, and both stay: {why}"),
        ),
        Progress::SurgeTakingOver => (
            "SurgeTakingOver",
            match node.pods.iter().any(|pod| !pod.surge && !pod.terminating) {
                true if rollout.asks_again => {
                    format!("has a new pod{made} that serves; the old one is to be {ASKED_AGAIN}")
                }
                true => format!("has a new pod{made} that serves; the old one goes now"),
                false if rollout.fleet.kind == SetKind::Advanced => {
                    format!("has a new pod{made} that serves, and the old one has gone")
                }
                false => format!(
                    "has a new pod{made} that serves; it is handed over to the DaemonSet now (before Kubernetes 1.33 when \
                     the native controller has made a pod of its own, which goes then)"
                ),
            },
        ),
        Progress::SurgeLeaving if let Some(why) = rollout.standstill() => (
            "SurgeLeaving",
            format!("has a second pod{made} that is not wanted any more, and stays: {why}"),
        ),
        Progress::SurgeLeaving => (
            "SurgeLeaving",
            if is_kept(node) {
                format!(
                    "has a second pod{made} that is not wanted any more, and goes when the old one is available: until then \
                     it is the one that serves"
                )
            } else {
                format!("has a second pod{made} that is not wanted any more, and goes")
            },
        ),
        _ if made.is_empty() => (
            "SurgeStarting",
            "has its turn: a new pod is to be made beside the old one now".to_owned(),
        ),
        _ => (
            "SurgeStarting",
            format!(
                "has a new pod{made} beside the old one, which serves until the new one is available{}",
                trouble_words(node)
            ),
        ),
    };
    (Some(reason.into()), because)
}

/// Describes the surge pods that are not deleted yet, and the condition for their deletion.
pub fn kept_words(released: &SurgeRelease) -> String {
    let names = released.kept.iter().map(NodeName::as_str);
    format!(
        "new pods stay beside the old ones on {}, because they serve and the old ones do not: each goes when the old pod on \
         its node is available, and takes its place when that one is deleted",
        named(names, 0)
    )
}
