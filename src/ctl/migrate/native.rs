//! Converts an Advanced DaemonSet to a native one. The settings in its fields become annotations, and its update strategy becomes
//! `OnDelete`, so that yurt-ds continues the rollout and Kubernetes replaces no pods.

use serde_json::{Value, json};

use super::translation::Translation;
use crate::core::names::{
    ANNOTATION_PREFIX, KRUISE_PREDOWNLOADS, ON_DELETE, PROGRESSIVE_CREATE_POD,
    UPDATE_STRATEGY_TYPE_FIELD,
};
use crate::core::settings::fields::{DEFAULT_BURST, path_of};
use crate::core::settings::image_predownload_parallelism::IMAGE_PREDOWNLOAD_PARALLELISM;
use crate::core::settings::lifecycle::LIFECYCLE;
use crate::core::settings::max_surge::MAX_SURGE;
use crate::core::settings::max_unavailable::MAX_UNAVAILABLE;
use crate::core::settings::partition::PARTITION;
use crate::core::settings::paused::PAUSED;
use crate::core::settings::rolling_update_type::ROLLING_UPDATE_TYPE;
use crate::core::settings::selector::SELECTOR;
use crate::core::settings::update_strategy::{UPDATE_STRATEGY, UPGRADE_STRATEGY};
use crate::core::settings::{is_setting, our_setting, setting};
use crate::core::{Mode, Pause, RollingUpdateType, Scaling, SetKind, Strategy};

/// Settings that an Advanced DaemonSet has in fields.
const IN_FIELDS: [&str; 7] = [
    MAX_UNAVAILABLE,
    MAX_SURGE,
    PARTITION,
    SELECTOR,
    PAUSED,
    ROLLING_UPDATE_TYPE,
    LIFECYCLE,
];

/// Converts an Advanced DaemonSet with the settings `strategy` to a native one.
pub(super) fn to_native(source: &Value, strategy: &Strategy, scaling: Scaling) -> Translation {
    let mut made = Translation::begin(source, SetKind::Native);
    made.object["spec"]["updateStrategy"] = json!({ "type": ON_DELETE });
    match strategy.mode {
        Mode::AdvancedRollingUpdate => {
            made.take(UPGRADE_STRATEGY);
            if made.annotation(UPDATE_STRATEGY).is_none() {
                let mode = strategy.mode.to_string();
                made.moved.push(format!(
                    "{UPDATE_STRATEGY_TYPE_FIELD}: RollingUpdate becomes {UPDATE_STRATEGY}: {mode}"
                ));
                made.annotate(UPDATE_STRATEGY, &mode);
            }
            annotations(&mut made, source, strategy);
        }
        // OTA keeps its settings in annotations, and under OnDelete no setting has an effect. So there is nothing to move.
        Mode::Ota | Mode::OnDelete => {
            let rolling = &source["spec"]["updateStrategy"]["rollingUpdate"];
            if rolling.as_object().is_some_and(|fields| !fields.is_empty()) {
                made.lost.push(format!(
                    "spec.updateStrategy.rollingUpdate has no effect under {} and is removed.",
                    strategy.mode
                ));
            }
        }
    }
    for key in KRUISE_PREDOWNLOADS {
        let ours = our_setting(key);
        if let Some(value) = made.take(key) {
            match source["metadata"]["annotations"][&ours].as_str() {
                None => {
                    made.moved.push(format!("{key}: {value} becomes {ours}"));
                    if made.annotation(&ours).is_none() {
                        made.annotate(&ours, &value);
                    }
                }
                Some(own) => made.lost.push(format!(
                    "{key}: {value} has no effect, because {ours} is {own}, and is removed."
                )),
            }
        }
    }
    made.take(PROGRESSIVE_CREATE_POD);
    if scaling.partitioned {
        made.lost.push(
            "partitionedScaling: Kubernetes creates a pod on every new node immediately, regardless of partition.".to_owned(),
        );
    }
    if scaling.burst != DEFAULT_BURST {
        made.lost.push(format!(
            "spec.burstReplicas: {}: Kubernetes creates {DEFAULT_BURST} pods at once.",
            scaling.burst
        ));
    }
    made
}

/// Returns the equivalent settings of the native RollingUpdate. Kubernetes rejects two values above zero, so the surge is kept and
/// `maxUnavailable` becomes zero.
pub(in crate::ctl) fn rolling_update(strategy: &Strategy) -> Value {
    if strategy.max_surge.is_zero() {
        json!({ "maxUnavailable": strategy.max_unavailable.to_field() })
    } else {
        json!({ "maxSurge": strategy.max_surge.to_field(), "maxUnavailable": 0 })
    }
}

/// Returns a sentence that names the settings without a native equivalent; `None` if each setting has one.
pub(in crate::ctl) fn nothing_like<'a>(keys: impl Iterator<Item = &'a str>) -> Option<String> {
    let lost = keys.filter(|key| !setting(key).is_some_and(|setting| setting.is_native));
    let lost: Vec<&str> = lost
        .map(|key| key.trim_start_matches(ANNOTATION_PREFIX))
        .collect();
    let lost = (!lost.is_empty()).then(|| lost.join(", "));
    lost.map(|lost| format!("Settings without a native equivalent: {lost}."))
}

/// Converts the translation to the result of `ctl eject`: RollingUpdate, and no settings of yurt-ds.
pub(super) fn handed_back(mut made: Translation, strategy: &Strategy) -> Translation {
    made.moved.clear();
    made.object["spec"]["updateStrategy"] =
        json!({ "type": "RollingUpdate", "rollingUpdate": rolling_update(strategy) });
    let settings = made.annotated().into_iter().filter(|key| is_setting(key));
    let settings: Vec<String> = settings.collect();
    // Don't report the annotation `paused` as lost: the migration itself set it.
    let own = settings
        .iter()
        .map(String::as_str)
        .filter(|key| *key != PAUSED);
    let lost = nothing_like(own);
    for key in &settings {
        made.take(key);
    }
    made.lost.extend(lost);
    made
}

fn annotations(made: &mut Translation, source: &Value, strategy: &Strategy) {
    // Drop annotations that a field overrides. A native DaemonSet has no such field, so they would take effect.
    for key in IN_FIELDS {
        if strategy.name_of(key) != key {
            made.take(key);
        }
    }
    let (unavailable, surge) = (strategy.max_unavailable, strategy.max_surge);
    if surge.is_zero() || !unavailable.is_zero() {
        put(made, strategy, MAX_UNAVAILABLE, &unavailable.to_string());
    }
    if !surge.is_zero() {
        put(made, strategy, MAX_SURGE, &surge.to_string());
    }
    if !strategy.partition.is_zero() {
        put(made, strategy, PARTITION, &strategy.partition.to_string());
    }
    let rolling = &source["spec"]["updateStrategy"]["rollingUpdate"];
    if strategy.selector.is_some() {
        put(made, strategy, SELECTOR, &rolling["selector"].to_string());
    }
    if strategy.pause == Some(Pause::Indefinite) {
        put(made, strategy, PAUSED, "true");
    }
    let is_in_place = strategy.rolling_update_type == RollingUpdateType::InPlaceIfPossible;
    if is_in_place {
        put(made, strategy, ROLLING_UPDATE_TYPE, "InPlaceIfPossible");
    }
    if strategy.pre_delete.is_some() {
        put(
            made,
            strategy,
            LIFECYCLE,
            &source["spec"]["lifecycle"].to_string(),
        );
    }
    // For in-place updates, also write the value zero: without it, a native DaemonSet pulls the images first by default.
    let parallelism = strategy.image_predownload_parallelism;
    if let Some(parallelism) = parallelism.filter(|share| is_in_place || !share.is_zero()) {
        made.annotate(IMAGE_PREDOWNLOAD_PARALLELISM, &parallelism.to_string());
    }
}

/// Sets the annotation of a setting, unless the setting already comes from that annotation.
fn put(made: &mut Translation, strategy: &Strategy, key: &'static str, value: &str) {
    if strategy.name_of(key) == key {
        return;
    }
    if let Some(path) = path_of(key) {
        made.moved.push(format!("{path} becomes {key}: {value}"));
    }
    made.annotate(key, value);
}

#[cfg(test)]
mod tests;
