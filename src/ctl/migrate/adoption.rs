//! Adoption of the existing revisions by the controller of the new DaemonSet.

use std::time::Duration;

use serde_json::Value;

use super::revisions::{are_alike, number};
use crate::core::SetKind;
use crate::core::names::REVISION_HASH_LABEL;

/// Returns the maximum time that a command waits for the controller to process the new DaemonSet.
pub(super) fn patience(kind: SetKind) -> Duration {
    match kind {
        // Wait long, because the native controller may restart pods if it does not adopt their revision.
        SetKind::Native => Duration::from_secs(60),
        // Wait only briefly: this controller restarts no pod, and may not be running.
        SetKind::Advanced => Duration::from_secs(10),
    }
}

/// Result of the wait for the controller of a new DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Adoption {
    /// The controller did not process the DaemonSet in time.
    Unseen,
    /// The DaemonSet was deleted, or deleted and created again.
    Replaced,
    /// The DaemonSet uses an existing revision.
    Known,
    /// The controller created a new revision although an existing one has an equal template. The pods are outdated now.
    Foreign {
        /// Hash of the existing revision, which the pods have as a label.
        ours: String,
        /// Hash of the new revision.
        theirs: String,
    },
}

impl Adoption {
    /// Evaluates the revisions that the DaemonSet controls.
    pub(super) fn from_owned(mut owned: Vec<Value>) -> Self {
        owned.sort_by_key(number);
        let hash = |revision: &Value| {
            let label = &revision["metadata"]["labels"][REVISION_HASH_LABEL];
            label.as_str().unwrap_or_default().to_owned()
        };
        let twin = owned.pop().and_then(|newest| {
            let older = owned.iter().find(|older| are_alike(older, &newest))?;
            Some((hash(older), hash(&newest)))
        });
        match twin {
            Some((ours, theirs)) if ours != theirs => Self::Foreign { ours, theirs },
            _ => Self::Known,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_second_revision_for_a_known_template_is_detected() {
        let revision = |number: i64, image: &str, hash: &str| {
            let template = json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
            json!({
                "metadata": { "labels": { REVISION_HASH_LABEL: hash } },
                "revision": number,
                "data": { "spec": { "template": template } },
            })
        };
        let known = vec![revision(2, "b", "two"), revision(1, "a", "one")];
        assert_eq!(Adoption::from_owned(known.clone()), Adoption::Known);
        let own = revision(3, "b", "three");
        let foreign = Adoption::Foreign {
            ours: "two".to_owned(),
            theirs: "three".to_owned(),
        };
        assert_eq!(Adoption::from_owned([known, vec![own]].concat()), foreign);
    }
}
