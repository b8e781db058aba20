//! Requests for images that we wrote to pods and do not see yet: without them a view that is a moment old would ask more
//! nodes than may pull at once.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::core::instant::later;
use crate::core::{OtaCondition, Pod, PodUid, Revision};

/// How long a request may stay unseen before somebody has to look.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was asked for, by pod, and when.
#[derive(Debug, Default)]
pub(super) struct Asked(BTreeMap<PodUid, (Revision, Timestamp)>);

impl Asked {
    /// It is being asked.
    pub(super) fn lay(&mut self, uid: PodUid, revision: Revision, at: Timestamp) {
        self.0.insert(uid, (revision, at));
    }

    /// It was not asked after all, or is gone.
    pub(super) fn lift(&mut self, uid: &PodUid) {
        self.0.remove(uid);
    }

    /// Forgets what the pod shows by now.
    pub(super) fn settle(&mut self, seen: &Pod) {
        let image = seen.image_ready.as_ref();
        let shown = image.and_then(|image| image.revision.as_ref());
        let open = self.0.get(&seen.uid).map(|(revision, _)| revision);
        // A second attempt shows when it waits, the first one as soon as it is there at all.
        let waits = image.is_some_and(|image| image.waits || image.status);
        if open.is_some() && open == shown && waits {
            self.0.remove(&seen.uid);
        }
    }

    /// Forgets what a complete list that began then would have shown.
    pub(super) fn retain_since(&mut self, began: Option<Timestamp>) {
        self.0
            .retain(|_, (_, at)| began.is_some_and(|began| *at > began));
    }

    /// When something should have shown.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let due = |(_, at): &(Revision, Timestamp)| later(*at, PATIENCE);
        self.0.values().map(due).min()
    }

    /// The condition of this pod as it is with the request.
    pub(super) fn over(&self, pod: &Pod) -> Option<OtaCondition> {
        let known = pod.image_ready.as_ref();
        let Some((revision, _)) = self.0.get(&pod.uid) else {
            return known.cloned();
        };
        let same = known.filter(|known| known.revision.as_ref() == Some(revision));
        Some(OtaCondition {
            status: false,
            revision: Some(revision.clone()),
            waits: true,
            repelled: false,
            failure: same.and_then(|known| known.failure.clone()),
        })
    }
}
