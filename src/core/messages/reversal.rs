//! Progress of the rollback from a stopped revision, as reported by Events.

use crate::core::fleet::in_place::Recreate;
use crate::core::id::NodeName;
use crate::core::plan::{Reversal, ReversalStage};

impl Reversal {
    /// Returns the reason why nodes keep the stopped revision, as the end of a sentence.
    pub fn why_words(&self) -> &'static str {
        match self.why {
            None => "somebody gave it again to pods that were taken back",
            Some(Recreate::UnknownRevision) if self.to.is_none() => {
                "no revision is kept that was made before this one"
            }
            Some(Recreate::UnknownRevision) => {
                "the revision before is not in the history of the DaemonSet (revisionHistoryLimit)"
            }
            Some(why) => why.words(),
        }
    }

    /// Returns the reason of the Event, its message, and the affected nodes. Next steps are reported separately.
    ///
    /// The message changes when the rollback begins and when it ends, but not with every node.
    pub fn told(&self) -> Option<(&'static str, String, &[NodeName])> {
        let to = self.to.as_ref().map_or("an older one", |to| to.as_str());
        Some(match self.stage()? {
            ReversalStage::UnderWay => {
                let words =
                    format!("RevertInPlace: pods that have it are taken back in place to {to}");
                ("Reverting", words, &self.under_way)
            }
            ReversalStage::Stuck => {
                let words = format!(
                    "RevertInPlace is not possible, nodes keep the failed revision: {}",
                    self.why_words()
                );
                (NOT_REVERTED, words, &self.stuck)
            }
            ReversalStage::Away => {
                let words = format!(
                    "RevertInPlace: all nodes that have it are away; their pods are taken back in place to {to} when they return"
                );
                ("Reverting", words, &self.away)
            }
            ReversalStage::Done => {
                let words = format!(
                    "RevertInPlace: no node that answers has it any more; taken back in place to {to}"
                );
                ("Reverted", words, &self.done)
            }
        })
    }
}

/// Reason of the Event about nodes that keep the stopped revision.
pub const NOT_REVERTED: &str = "NotReverted";
