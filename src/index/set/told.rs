//! What the controller told of a DaemonSet and has to remember.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SetRecord;
use crate::core::{FailureRecord, PauseRecord, PodName};
use crate::index::last_reported::LastReported;

impl SetRecord {
    /// What the guard has to remember, as it was told last.
    pub fn last_record(&self) -> Option<FailureRecord> {
        self.guard.known(&self.state)
    }

    /// What the guard has to remember, as it stands on the DaemonSet.
    pub fn record_that_stands(&self) -> Option<FailureRecord> {
        self.state.guard.clone()
    }

    /// From now on that is what the guard remembers, whether it shows on the DaemonSet yet or not.
    pub fn set_last_record(&mut self, record: Option<FailureRecord>) {
        self.guard.set_last_reported(record);
    }

    /// Why the native controller could not make a pod, as far as known.
    pub(in crate::index) fn not_created(&self) -> Option<Arc<str>> {
        self.not_created.or(|| self.state.not_created.clone())
    }

    /// From now on that is why.
    pub fn set_not_created(&mut self, why: Option<Arc<str>>) {
        self.not_created = LastReported::Reported(why);
    }

    /// Why pods do not become available, as far as known.
    pub(in crate::index) fn not_ready(&self) -> BTreeMap<PodName, Arc<str>> {
        let stands = || Some(self.state.not_ready.clone());
        self.not_ready.or(stands).unwrap_or_default()
    }

    /// From now on that is why, pod by pod.
    pub fn set_not_ready(&mut self, why: BTreeMap<PodName, Arc<str>>) {
        self.not_ready = LastReported::Reported(Some(why));
    }

    /// What is remembered of its pause, as it was told last.
    pub fn last_pause(&self) -> Option<PauseRecord> {
        let stands = || Some(self.state.pause.as_ref()?.record);
        self.pause.or(stands)
    }

    /// From now on that is remembered of its pause, whether it shows on the DaemonSet yet or not.
    pub fn set_last_pause(&mut self, record: Option<PauseRecord>) {
        self.pause = LastReported::Reported(record);
    }

    /// What stands on the DaemonSet counts again: another replica may have told something else.
    pub fn forget_reported(&mut self) {
        self.lose_report();
        self.guard.forget_reported();
        self.pause = LastReported::Nothing;
        self.write_failures = LastReported::Nothing;
        self.not_created = LastReported::Nothing;
        self.not_ready = LastReported::Nothing;
    }
}
