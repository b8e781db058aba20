//! What the controller of the new kind made of the revisions that were there.

use std::time::Duration;

use serde_json::Value;

use super::revisions::{are_alike, number};
use crate::core::SetKind;
use crate::core::names::REVISION_HASH_LABEL;

/// How long the controller of that kind gets to look at what was made.
pub(super) fn patience(kind: SetKind) -> Duration {
    match kind {
        // Before that it is not certain that nobody is restarted.
        SetKind::Native => Duration::from_secs(60),
        // This controller restarts nobody, and may not run.
        SetKind::Advanced => Duration::from_secs(10),
    }
}

/// What became of a DaemonSet that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Adoption {
    /// Its controller has not looked at it in time.
    Unseen,
    /// It was deleted meanwhile, or another one has its name.
    Replaced,
    /// It goes on with a revision that was there.
    Known,
    /// It made a revision of its own although one with the same template was there.
    Foreign {
        /// The hash that pods carry.
        ours: String,
        /// That of the new one.
        theirs: String,
    },
}

impl Adoption {
    /// What these revisions tell, all that the DaemonSet controls.
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
    fn a_revision_for_a_template_that_was_there_is_noticed() {
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
