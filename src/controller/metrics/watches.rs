//! The age of what each watch reported, worked out when the page is asked for.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::Resource;
use crate::controller::freshness::WatchAges;

impl Collector for WatchAges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let ages = self.by_resource().into_iter();
        let ages = ages.map(|(resource, age)| (Resource { resource }, age.as_secs_f64()));
        let about = (
            "watch_age_seconds",
            "Time since the API server last sent something on a watch of the resource; pods are not changed on data older than 75 seconds",
        );
        super::rollouts::gauge(&mut encoder, about, ages)
    }
}
