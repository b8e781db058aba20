//! What the controller reports about itself at `/ready?verbose`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use super::Metrics;
use crate::controller::freshness::STALE_AFTER;
use crate::controller::kinds::{self, Kinds};
use crate::core::SetKind;
use crate::k8s::UnreadableReason;
use crate::serve::SelfCheck;

/// State that the metrics also contain, but that can't be read from them.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Missing permissions: verbs and resources.
    pub(super) missing: BTreeSet<(&'static str, String)>,
    /// Number of unreadable objects by resource and reason.
    pub(super) unreadable: BTreeMap<(&'static str, UnreadableReason), usize>,
    /// Kinds of DaemonSets that no controller serves.
    pub(super) unserved: Option<Kinds>,
}

impl Metrics {
    /// Returns the state of this replica: its version, leadership, permissions, watches and skipped objects.
    pub fn self_checks(&self, now: Timestamp) -> Vec<SelfCheck> {
        let noted = self.noted();
        vec![
            good("version", env!("CARGO_PKG_VERSION").to_owned()),
            self.leader_check(now),
            self.installations_check(),
            kinds_check(noted.unserved),
            listed(
                "permissions",
                "none is missing",
                noted
                    .missing
                    .iter()
                    .map(|(verb, resource)| format!("{verb} {resource} is missing")),
            ),
            self.watches_check(),
            listed(
                "objects",
                "all are readable",
                noted.unreadable.iter().map(|((resource, reason), count)| {
                    format!("{count} {resource} skipped ({})", reason.word())
                }),
            ),
        ]
    }

    fn leader_check(&self, now: Timestamp) -> SelfCheck {
        let result = match (self.leader.get(), self.lease_age.get()) {
            (0, _) => "this replica does not lead".to_owned(),
            (_, 0) => "this replica works without a Lease".to_owned(),
            (_, renewed) => {
                let ago = now.as_second().saturating_sub(renewed).max(0);
                format!("this replica leads, its Lease was renewed {ago}s ago")
            }
        };
        good("leader", result)
    }

    fn installations_check(&self) -> SelfCheck {
        match self.other_installations.get() {
            0 => good("installations", "this is the only one".to_owned()),
            others => bad(
                "installations",
                format!("{others} more serve the same DaemonSets"),
            ),
        }
    }

    fn watches_check(&self) -> SelfCheck {
        let ages = self.watch_ages.by_resource();
        let is_stale = ages.values().any(|age| *age >= STALE_AFTER);
        let ages = ages
            .iter()
            .map(|(resource, age)| format!("{resource} {}s ago", age.as_secs()));
        let ages: Vec<String> = ages.collect();
        SelfCheck {
            name: "watches",
            is_good: !is_stale,
            result: if ages.is_empty() {
                "no data yet".to_owned()
            } else {
                format!("last data of {}", ages.join(", "))
            },
        }
    }
}

fn kinds_check(unserved: Option<Kinds>) -> SelfCheck {
    let kinds = [SetKind::Native, SetKind::Advanced].into_iter();
    let unserved = kinds.filter(|kind| unserved.is_some_and(|kinds| kinds.contains(*kind)));
    let unserved = unserved.map(|kind| format!("no controller serves {}", kinds::word(kind)));
    listed("kinds", "each configured one is served", unserved)
}

fn good(name: &'static str, result: String) -> SelfCheck {
    SelfCheck {
        name,
        is_good: true,
        result,
    }
}

fn bad(name: &'static str, result: String) -> SelfCheck {
    SelfCheck {
        is_good: false,
        ..good(name, result)
    }
}

/// Returns a check that lists faults, or says `none` without a fault.
fn listed(name: &'static str, none: &str, faults: impl Iterator<Item = String>) -> SelfCheck {
    let faults: Vec<String> = faults.collect();
    if faults.is_empty() {
        good(name, none.to_owned())
    } else {
        bad(name, faults.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn lines(metrics: &Metrics) -> Vec<String> {
        let now = Timestamp::from_second(1_000).unwrap();
        let checks = metrics.self_checks(now).into_iter();
        let checks = checks.filter(|check| check.name != "version");
        let line = |check: SelfCheck| format!("{} {} {}", check.is_good, check.name, check.result);
        checks.map(line).collect()
    }

    #[test]
    fn a_new_controller_has_no_fault() {
        let metrics = Metrics::new();
        let expected = [
            "true leader this replica does not lead",
            "true installations this is the only one",
            "true kinds each configured one is served",
            "true permissions none is missing",
            "true watches no data yet",
            "true objects all are readable",
        ];
        assert_eq!(lines(&metrics), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn each_fault_is_named_until_it_ends() {
        let metrics = Metrics::new();
        metrics.leader(true);
        metrics.lease_renewed(995);
        metrics.other_installations(1);
        metrics.unserved(Some(Kinds::from(SetKind::Advanced)));
        metrics.permission_missing("delete", "pods", true);
        metrics.unreadable(&BTreeMap::from([(("pods", UnreadableReason::TooLarge), 2)]));
        let watch = metrics.watch_ages().follow("nodes", &Clock::System);
        let found = lines(&metrics);
        assert_eq!(
            &found[..4],
            [
                "true leader this replica leads, its Lease was renewed 5s ago",
                "false installations 1 more serve the same DaemonSets",
                "false kinds no controller serves advanced",
                "false permissions delete pods is missing",
            ]
        );
        assert_eq!(found[5], "false objects 2 pods skipped (TooLarge)");
        metrics.permission_missing("delete", "pods", false);
        metrics.unreadable(&BTreeMap::new());
        metrics.unserved(None);
        let found = lines(&metrics);
        assert_eq!(found[2], "true kinds each configured one is served");
        assert_eq!(found[3], "true permissions none is missing");
        assert_eq!(found[5], "true objects all are readable");
        drop(watch);
    }
}
