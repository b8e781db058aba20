//! Conflicts about a DaemonSet's status: another client overwrites fields that this controller writes.
//!
//! The controller corrects the status after growing pauses, and reports the name of the other client.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Resource as _;
use kube::core::PartialObjectMeta;
use serde_json::Value;

use super::apply::{Writer, read};
use crate::backoff;
use crate::core::names::{CONTROLLER, OWN_CONDITIONS};
use crate::index::SetKey;
use crate::k8s;

/// Shortest and longest pause after a correction. The pause doubles with each correction.
///
/// A single overwrite is corrected at once. In a lasting conflict, the controller writes twelve times an hour.
pub(super) const PAUSES: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_secs(5 * 60));

/// Number of consecutive corrections at which the conflict is reported. The first two may correct mistakes of a user.
const REPORTED: u32 = 3;

/// Time without a correction after which corrections are counted from zero again. It is longer than the longest pause.
const FORGOTTEN: SignedDuration = SignedDuration::from_mins(15);

/// Number of consecutive corrections, and the time of the last one.
#[derive(Debug, Default)]
pub(super) struct Contest {
    corrections: u32,
    last: Option<Timestamp>,
}

impl Contest {
    /// Returns the end of the pause after the last correction. `None`: the pause is over.
    pub(super) fn holds(&self, now: Timestamp) -> Option<Timestamp> {
        let pause = backoff::pause(PAUSES.0, self.corrections, PAUSES.1);
        let pause = SignedDuration::try_from(pause).ok()?;
        let until = self.last?.checked_add(pause).ok()?;
        (until > now).then_some(until)
    }

    /// Records a correction at `now`. Returns true if the conflict has to be reported now.
    pub(super) fn note(&mut self, now: Timestamp) -> bool {
        if self
            .last
            .is_some_and(|last| now.duration_since(last) > FORGOTTEN)
        {
            self.corrections = 0;
        }
        self.corrections = self.corrections.saturating_add(1);
        self.last = Some(now);
        self.corrections == REPORTED
    }
}

impl Writer {
    /// Looks up which other field manager last wrote this controller's fields in the status; `None`: unknown.
    pub(super) async fn other_status_writer(&self, key: &SetKey) -> Option<String> {
        let namespace = Some(&*key.namespace);
        let path = if key.is_advanced() {
            k8s::AdvancedDaemonSet::url_path(&(), namespace)
        } else {
            k8s::DaemonSet::url_path(&(), namespace)
        };
        let found = read(self.client(), path, "daemonsets", &key.name).await;
        let found: PartialObjectMeta = found.ok()?;
        other_writer(&found.metadata, key.is_advanced())
    }
}

/// Returns the other field manager that last wrote the conditions that belong to this controller.
///
/// If `owns_numbers` is true, the other fields of the status, such as the numbers of pods, are considered too.
fn other_writer(meta: &ObjectMeta, owns_numbers: bool) -> Option<String> {
    let is_ours = |entry: &ManagedFieldsEntry| {
        let fields = entry
            .fields_v1
            .as_ref()
            .map_or(&Value::Null, |fields| &fields.0);
        let status = &fields["f:status"];
        let has = |kind: &&str| {
            let condition = format!(r#"k:{{"type":"{kind}"}}"#);
            !status["f:conditions"][condition.as_str()].is_null()
        };
        let mut names = status
            .as_object()
            .into_iter()
            .flat_map(|status| status.keys());
        let has_numbers = names.any(|name| name.starts_with("f:") && name != "f:conditions");
        OWN_CONDITIONS.iter().any(has) || owns_numbers && has_numbers
    };
    let entries = meta.managed_fields.iter().flatten();
    let others = entries.filter(|entry| entry.manager.as_deref() != Some(CONTROLLER));
    let last = others
        .filter(|entry| is_ours(entry))
        .max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    last.manager.clone()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn corrections_of_a_contested_status_back_off_and_are_reported_once() {
        let mut contest = Contest::default();
        let mut now = Timestamp::from_second(1_000).unwrap();
        let mut pauses = Vec::new();
        let mut reported = Vec::new();
        for correction in 1..=12 {
            assert_eq!(contest.holds(now), None);
            if contest.note(now) {
                reported.push(correction);
            }
            let until = contest.holds(now).unwrap();
            pauses.push(until.duration_since(now).as_secs());
            now = until;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(reported, [3]);
    }

    #[test]
    fn corrections_an_hour_apart_are_not_a_contest() {
        let mut contest = Contest::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        for mistake in 0..5 {
            assert!(!contest.note(at(mistake * 3_600)), "{mistake}");
            assert_eq!(contest.holds(at(mistake * 3_600 + 1)), None, "{mistake}");
        }
    }

    #[test]
    fn the_other_writer_is_the_last_manager_of_controller_fields() {
        #[track_caller]
        fn case(owns_numbers: bool, expected: Option<&str>) {
            let conditions = |kind: &str| {
                let key = format!(r#"k:{{"type":"{kind}"}}"#);
                json!({ "f:status": { "f:conditions": { key: { "f:message": {} } } } })
            };
            let entry = |manager: &str, time: &str, fields: Value| json!({ "manager": manager, "time": time, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields });
            let meta = json!({ "managedFields": [
                entry(CONTROLLER, "2026-01-01T00:00:09Z", conditions("Stalled")),
                entry("someone", "2026-01-01T00:00:08Z", conditions("Other")),
                entry("kubectl", "2026-01-01T00:00:07Z", json!({ "f:spec": {} })),
                entry("counter", "2026-01-01T00:00:06Z", json!({ "f:status": { "f:numberReady": {} } })),
                entry("meddler", "2026-01-01T00:00:05Z", conditions("RolloutComplete")),
                entry("earlier", "2026-01-01T00:00:04Z", conditions("RolloutComplete")),
            ] });
            let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
            assert_eq!(other_writer(&meta, owns_numbers).as_deref(), expected);
        }
        case(false, Some("meddler"));
        case(true, Some("counter"));
        assert_eq!(other_writer(&ObjectMeta::default(), true), None);
    }
}
