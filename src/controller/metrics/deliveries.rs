//! Counters of messages to a receiver outside the cluster.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::Outcome;

/// Final result for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum DeliveryOutcome {
    /// The receiver accepted the message.
    Delivered,
    /// The receiver rejected the message, or it is too large.
    Rejected,
    /// The receiver accepted the message in none of the attempts.
    Expired,
    /// The queue was full.
    QueueFull,
    /// The process ended first.
    Ending,
}

impl DeliveryOutcome {
    /// All outcomes.
    const ALL: [Self; 5] = [
        Self::Delivered,
        Self::Rejected,
        Self::Expired,
        Self::QueueFull,
        Self::Ending,
    ];

    /// Returns the label value for metrics.
    pub(in crate::controller) fn word(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::QueueFull => "queue_full",
            Self::Ending => "ending",
        }
    }
}

/// Counters of messages by outcome. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::controller) struct Deliveries(Family<Outcome, Counter>);

impl Deliveries {
    /// Creates the counter of each outcome. A counter has to exist before it rises; otherwise Prometheus misses the first loss.
    pub(super) fn new(family: &Family<Outcome, Counter>) -> Self {
        let deliveries = Self(family.clone());
        let outcomes = DeliveryOutcome::ALL.into_iter();
        outcomes.for_each(|outcome| deliveries.add(outcome, 0));
        deliveries
    }

    /// Counts messages with this outcome.
    pub(in crate::controller) fn add(&self, outcome: DeliveryOutcome, count: usize) {
        let outcome = outcome.word();
        let counter = self.0.get_or_create(&Outcome { outcome });
        counter.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }
}
