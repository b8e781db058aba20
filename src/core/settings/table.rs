//! Every setting, in the order in which people are told of them.

use super::setting::Setting;
use super::{
    approved_waves, disruption, failure_threshold, failure_window, image_predownload_parallelism,
    lifecycle, maintenance_window, max_domains, max_surge, max_unavailable, min_interval,
    on_failure, partition, paused, predownload, ramp_up, ready_settle, replace_broken_first,
    resume, rolling_update_type, selector, topology_key, update_strategy, waves,
};

/// Every setting.
pub const SETTINGS: &[Setting] = &[
    update_strategy::SETTING,
    max_unavailable::SETTING,
    max_surge::SETTING,
    paused::SETTING,
    partition::SETTING,
    selector::SETTING,
    min_interval::SETTING,
    ramp_up::SETTING,
    waves::SETTING,
    approved_waves::SETTING,
    topology_key::SETTING,
    max_domains::SETTING,
    failure_threshold::SETTING,
    failure_window::SETTING,
    on_failure::SETTING,
    resume::SETTING,
    replace_broken_first::SETTING,
    maintenance_window::SETTING,
    image_predownload_parallelism::SETTING,
    predownload::SETTING,
    rolling_update_type::SETTING,
    lifecycle::SETTING,
    disruption::SETTING,
    ready_settle::SETTING,
];

/// The setting that an annotation of a DaemonSet is, under its present key or an older one.
pub fn setting(key: &str) -> Option<&'static Setting> {
    let is_it = |setting: &&Setting| setting.keys().any(|known| known == key);
    SETTINGS.iter().find(is_it)
}

/// Whether an annotation of a DaemonSet is a setting of ours.
pub fn is_setting(key: &str) -> bool {
    setting(key).is_some()
}

/// The annotations of all settings, older keys included.
pub fn keys() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().flat_map(Setting::keys)
}
