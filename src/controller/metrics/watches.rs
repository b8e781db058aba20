//! Metric of the age of each watch's data, calculated when the metrics are requested.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::Resource;
use crate::controller::freshness::WatchAges;

impl Collector for WatchAges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let ages = self.by_resource().into_iter();
        let ages = ages.map(|(resource, age)| (Resource { resource }, age.as_secs_f64()));
        let help = "Time since the last event or bookmark on the watch of this resource; above 75 seconds, pods are not changed";
        super::rollouts::gauge(&mut encoder, "watch_age_seconds", help, ages)
    }
}
