//! State in the controller's reports about a DaemonSet. It is kept in memory, because the watch shows a report only later.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SetRecord;
use crate::core::{FailureRecord, PauseRecord, PodName};
use crate::index::last_reported::LastReported;

impl SetRecord {
    /// Returns the guard's record in the last report.
    pub fn last_record(&self) -> Option<FailureRecord> {
        self.guard.known(&self.state)
    }

    /// Returns the guard's record in the status of the DaemonSet.
    pub fn reported_record(&self) -> Option<FailureRecord> {
        self.state.guard.clone()
    }

    /// Sets the guard's record in the last report, which the watch may not show yet.
    pub fn set_last_record(&mut self, record: Option<FailureRecord>) {
        self.guard.set_last_reported(record);
    }

    /// Returns the reason why the API server rejects new pods; `None` if it doesn't, or if the reason is unknown.
    pub(in crate::index) fn not_created(&self) -> Option<Arc<str>> {
        self.not_created.or(|| self.state.not_created.clone())
    }

    /// Sets the reason why the API server rejects new pods.
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

    /// Returns the record of the pause in the last report.
    pub fn last_pause(&self) -> Option<PauseRecord> {
        let stands = || Some(self.state.pause.as_ref()?.record);
        self.pause.or(stands)
    }

    /// Sets the record of the pause in the last report, which the watch may not show yet.
    pub fn set_last_pause(&mut self, record: Option<PauseRecord>) {
        self.pause = LastReported::Reported(record);
    }

    /// Forgets the reports of this replica, so that the DaemonSet's status counts again. Another replica may have written it.
    pub fn forget_reported(&mut self) {
        self.lose_report();
        self.guard.forget_reported();
        self.pause = LastReported::Nothing;
        self.write_failures = LastReported::Nothing;
        self.not_created = LastReported::Nothing;
        self.not_ready = LastReported::Nothing;
    }
}
