//! Metric series of each DaemonSet. They are stored as numbers and encoded when the metrics are requested.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet};
use prometheus_client::metrics::MetricType;

use super::number;
use crate::core::{Counts, Phase, Plan, Verdict};
use crate::index::SetKey;

/// Exported numbers of every managed DaemonSet; `None`: the settings are unusable, so there are no numbers.
#[derive(Debug, Default)]
pub(super) struct Rollouts(Mutex<BTreeMap<SetKey, Option<Box<Rollout>>>>);

/// Numbers of one plan, as exported in metrics.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rollout {
    counts: Counts,
    phase: Phase,
    running: usize,
    /// Unix time at which the pause began.
    paused_since: Option<i64>,
}

impl Rollout {
    /// Reads the numbers of a plan. `phase` is the phase that the DaemonSet's conditions show.
    pub(super) fn new(plan: &Plan, phase: Phase) -> Self {
        Self {
            counts: plan.counts,
            phase,
            running: plan.running(),
            paused_since: (plan.pause.as_ref()).map(|stand| stand.record.since.as_second()),
        }
    }
}

/// Gauge with at most one series for each DaemonSet. If its value for a DaemonSet is `None`, the series is omitted.
struct Single {
    name: &'static str,
    help: &'static str,
    value: fn(&Rollout) -> Option<i64>,
}

const SINGLE: [Single; 11] = [
    Single {
        name: "rollout_complete",
        help: "1: all targeted online nodes run the current revision",
        value: |rollout| Some(matches!(rollout.phase, Phase::Complete { .. }).into()),
    },
    Single {
        name: "rollout_stalled",
        help: "1: the rollout stopped and needs an operator",
        value: |rollout| Some(matches!(rollout.phase, Phase::Stalled(_)).into()),
    },
    Single {
        name: "rollout_paused",
        help: "1: the rollout is paused and not complete",
        value: |rollout| Some(matches!(rollout.phase, Phase::Paused { .. }).into()),
    },
    Single {
        name: "paused_since_timestamp_seconds",
        help: "Start of the pause (Unix time), also if the rollout is complete; absent if not paused",
        value: |rollout| rollout.paused_since,
    },
    Single {
        name: "targeted",
        help: "Nodes that should run a pod",
        value: |rollout| Some(number(rollout.counts.targeted)),
    },
    Single {
        name: "allowed_unavailable",
        help: "Resolved value of max-unavailable; 0 under OTA, where node owners decide",
        value: |rollout| Some(number(rollout.counts.allowed)),
    },
    Single {
        name: "unavailable",
        help: "Targeted nodes that count against max-unavailable",
        value: |rollout| Some(number(rollout.counts.unavailable)),
    },
    Single {
        name: "updated",
        help: "Targeted nodes that run the current revision: their pod is available, or they are offline",
        value: |rollout| Some(number(rollout.running)),
    },
    Single {
        name: "offline_outdated",
        help: "Targeted nodes with an outdated pod that are offline, or were a moment ago",
        value: |rollout| Some(number(rollout.counts.offline_outdated)),
    },
    Single {
        name: "charged",
        help: "Nodes whose failure counts against the current revision, including deleted and recovering nodes",
        value: |rollout| Some(number(rollout.counts.failures)),
    },
    Single {
        name: "reverted",
        help: "Online nodes whose pod was or is being rolled back from the revision that the guard stopped",
        value: |rollout| Some(number(rollout.counts.reverted)),
    },
];

/// Maximum number of series per DaemonSet.
///
/// Labels contain the DaemonSet's name and fixed words. Annotations, status, nodes and pods can't add labels.
/// `docs/reference/metrics.md` documents the number.
#[cfg(test)]
pub(super) const SERIES: usize = Verdict::WORDS.len() + SINGLE.len() + LACKING + 1;

/// Number of series of the metric `without_available_pod` for one DaemonSet: one per reason.
const LACKING: usize = 4;

impl Rollouts {
    /// Exports these numbers for a DaemonSet; `None`: the settings are unusable, so there are no numbers.
    pub(super) fn set(&self, key: SetKey, rollout: Option<Rollout>) {
        self.lock().insert(key, rollout.map(Box::new));
    }

    pub(super) fn forget(&self, key: &SetKey) {
        self.lock().remove(key);
    }

    pub(super) fn forget_all(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SetKey, Option<Box<Rollout>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Rollouts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let known = self.lock();
        let plans = || {
            let known = known.iter();
            known.filter_map(|(key, rollout)| Some((key, rollout.as_deref()?)))
        };
        let words = plans().flat_map(|(key, rollout)| {
            let counts = Verdict::WORDS.into_iter().zip(rollout.counts.by_word);
            counts.map(|(word, count)| (series(key, "verdict", word), number(count)))
        });
        gauge(
            &mut encoder,
            "nodes",
            "Nodes of a DaemonSet by verdict",
            words,
        )?;
        for single in SINGLE {
            let series = plans().filter_map(|(key, rollout)| {
                let value = (single.value)(rollout)?;
                Some((labels(key), value))
            });
            gauge(&mut encoder, single.name, single.help, series)?;
        }
        let invalid = known.iter().map(|(key, rollout)| {
            let is_invalid = rollout
                .as_ref()
                .is_none_or(|known| known.phase == Phase::Invalid);
            (labels(key), i64::from(is_invalid))
        });
        let help = "1: the settings are invalid, so no pod is replaced";
        gauge(&mut encoder, "settings_invalid", help, invalid)?;
        let lacking = plans().flat_map(|(key, rollout)| {
            let counts: [_; LACKING] = rollout.counts.lacking();
            counts
                .into_iter()
                .map(|(reason, count)| (series(key, "reason", reason), number(count)))
        });
        let help = "Targeted nodes without an available pod, by reason";
        gauge(&mut encoder, "without_available_pod", help, lacking)
    }
}

/// Name and value of a label.
type Label<'a> = (&'static str, &'a str);

fn labels(key: &SetKey) -> [Label<'_>; 3] {
    [
        ("namespace", &key.namespace),
        ("daemonset", &key.name),
        ("group", key.kind.group()),
    ]
}

fn series<'a>(key: &'a SetKey, label: &'static str, value: &'static str) -> [Label<'a>; 4] {
    let [namespace, daemonset, group] = labels(key);
    [namespace, daemonset, group, (label, value)]
}

pub(super) fn gauge<L: EncodeLabelSet, V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl Iterator<Item = (L, V)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in series {
        metric.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}
