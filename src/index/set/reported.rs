//! State that the controller has reported about a DaemonSet, and remembers until the watch shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SetRecord;
use crate::core::{FailureRecord, PauseRecord, PodName};
use crate::index::last_reported::LastReported;

impl SetRecord {
    /// Returns the guard's record that was last reported.
    pub fn last_record(&self) -> Option<FailureRecord> {
        self.guard.known(&self.state)
    }

    /// Returns the guard's record that the status of the DaemonSet contains.
    pub fn reported_record(&self) -> Option<FailureRecord> {
        self.state.guard.clone()
    }

    /// Sets the guard's record that was last reported. The watch may not show it yet.
    pub fn set_last_record(&mut self, record: Option<FailureRecord>) {
        self.guard.set_last_reported(record);
    }

    /// Returns the error that kept the native controller from creating a pod, if known.
    pub(in crate::index) fn not_created(&self) -> Option<Arc<str>> {
        self.not_created.or(|| self.state.not_created.clone())
    }

    /// Sets the error that kept the native controller from creating a pod.
    pub fn set_not_created(&mut self, why: Option<Arc<str>>) {
        self.not_created = LastReported::Reported(why);
    }

    /// Returns the known reasons why pods don't become available, by pod.
    pub(in crate::index) fn not_ready(&self) -> BTreeMap<PodName, Arc<str>> {
        let stands = || Some(self.state.not_ready.clone());
        self.not_ready.or(stands).unwrap_or_default()
    }

    /// Sets the reasons why pods don't become available, by pod.
    pub fn set_not_ready(&mut self, why: BTreeMap<PodName, Arc<str>>) {
        self.not_ready = LastReported::Reported(Some(why));
    }

    /// Returns the state of the pause that was last reported.
    pub fn last_pause(&self) -> Option<PauseRecord> {
        let stands = || Some(self.state.pause.as_ref()?.record);
        self.pause.or(stands)
    }

    /// Sets the state of the pause that was last reported. The watch may not show it yet.
    pub fn set_last_pause(&mut self, record: Option<PauseRecord>) {
        self.pause = LastReported::Reported(record);
    }

    /// Replaces what was reported by the content of the DaemonSet's status, because another replica may have reported something
    /// else.
    pub fn forget_reported(&mut self) {
        self.lose_report();
        self.guard.forget_reported();
        self.pause = LastReported::Nothing;
        self.write_failures = LastReported::Nothing;
        self.not_created = LastReported::Nothing;
        self.not_ready = LastReported::Nothing;
    }
}
