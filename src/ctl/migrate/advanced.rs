//! Converts a native DaemonSet to an Advanced one. A setting moves to a field if an Advanced DaemonSet has one for it. The other
//! settings remain annotations, because these have the same meaning on an Advanced DaemonSet.

use serde_json::{Value, json};

use super::translation::{Translation, plain};
use crate::core::names::{ON_DELETE, UPDATE_STRATEGY_TYPE_FIELD};
use crate::core::settings::fields::path_of;
use crate::core::settings::image_predownload_parallelism::IMAGE_PREDOWNLOAD_PARALLELISM;
use crate::core::settings::lifecycle::LIFECYCLE;
use crate::core::settings::max_surge::MAX_SURGE;
use crate::core::settings::max_unavailable::MAX_UNAVAILABLE;
use crate::core::settings::partition::PARTITION;
use crate::core::settings::paused::PAUSED;
use crate::core::settings::rolling_update_type::ROLLING_UPDATE_TYPE;
use crate::core::settings::selector::SELECTOR;
use crate::core::settings::update_strategy::{UPDATE_STRATEGY, UPGRADE_STRATEGY};
use crate::core::settings::{is_setting, setting};
use crate::core::{Mode, Pause, RollingUpdateType, SetKind, Strategy};

/// Converts a native DaemonSet to an Advanced one. `strategy` is `None` if yurt-ds does not manage it.
pub(super) fn to_advanced(source: &Value, strategy: Option<&Strategy>) -> Translation {
    let mut made = Translation::begin(source, SetKind::Advanced);
    match strategy {
        None => of_kubernetes(&mut made, &source["spec"]["updateStrategy"]),
        Some(strategy) if strategy.mode == Mode::AdvancedRollingUpdate => {
            made.object["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate" });
            for key in [UPDATE_STRATEGY, UPGRADE_STRATEGY] {
                if let Some(value) = made.take(key) {
                    made.moved.push(format!(
                        "{key}: {value} becomes {UPDATE_STRATEGY_TYPE_FIELD}: RollingUpdate"
                    ));
                }
            }
            fields(&mut made, strategy);
        }
        // With the other strategies (OTA, OnDelete), the annotation `update-strategy` remains and overrides the field.
        Some(_) => made.object["spec"]["updateStrategy"] = json!({ "type": ON_DELETE }),
    }
    made
}

/// Copies Kubernetes' own strategy. Removes annotations of yurt-ds, which have no effect on such a DaemonSet.
fn of_kubernetes(made: &mut Translation, native: &Value) {
    let mut strategy = json!({ "type": native["type"].as_str().unwrap_or("RollingUpdate") });
    if let Some(rolling) = native["rollingUpdate"].as_object() {
        strategy["rollingUpdate"] = json!(rolling);
    }
    made.object["spec"]["updateStrategy"] = strategy;
    for key in made.annotated() {
        if is_setting(&key)
            && let Some(value) = made.take(&key)
        {
            made.lost.push(format!(
                "{key}: {value} has no effect without {UPDATE_STRATEGY} and is removed, because it would take effect \
                 on an Advanced DaemonSet."
            ));
        }
    }
}

fn fields(made: &mut Translation, strategy: &Strategy) {
    let (unavailable, surge) = (strategy.max_unavailable, strategy.max_surge);
    match (unavailable.is_zero(), surge.is_zero()) {
        (_, true) => put(made, MAX_UNAVAILABLE, unavailable.to_field()),
        (true, false) => {
            for key in keys(MAX_UNAVAILABLE) {
                made.take(key);
            }
            put(made, MAX_SURGE, surge.to_field());
        }
        // Use annotations, because the API server rejects an Advanced DaemonSet in which both fields are above zero.
        (false, false) => {
            made.annotate(MAX_UNAVAILABLE, &unavailable.to_string());
            made.annotate(MAX_SURGE, &surge.to_string());
        }
    }
    if strategy.partition.is_zero() {
        drop(made.take(PARTITION))
    } else {
        put(made, PARTITION, strategy.partition.to_field())
    }
    if let Some(selector) = &strategy.selector {
        put(made, SELECTOR, selector.to_json());
    }
    match strategy.pause {
        Some(Pause::Indefinite) => put(made, PAUSED, json!(true)),
        // The boolean field `paused` cannot express when a pause ends, so the annotation remains.
        Some(Pause::Until(_)) => {}
        None => drop(made.take(PAUSED)),
    }
    if strategy.rolling_update_type != RollingUpdateType::InPlaceIfPossible {
        made.take(ROLLING_UPDATE_TYPE);
    } else {
        put(made, ROLLING_UPDATE_TYPE, json!("InPlaceIfPossible"));
        // On a native DaemonSet, an in-place update pulls the images first by default. An Advanced DaemonSet needs the annotation
        // for that.
        if strategy.image_predownload_parallelism.is_none() {
            made.annotate(IMAGE_PREDOWNLOAD_PARALLELISM, &unavailable.to_string());
        }
    }
    let hook = made
        .annotation(LIFECYCLE)
        .map(serde_json::from_str::<Value>);
    if let Some(Ok(hook)) = hook {
        put(made, LIFECYCLE, hook);
    }
}

/// Sets the field for the setting `key`, and removes the setting's annotation.
fn put(made: &mut Translation, key: &'static str, value: Value) {
    let Some(path) = path_of(key) else { return };
    let was: Vec<String> = keys(key)
        .filter_map(|key| made.take(key).map(|value| format!("{key}: {value}")))
        .collect();
    let was = if was.is_empty() {
        format!("{key}, which is not set,")
    } else {
        was.join(", ")
    };
    made.moved
        .push(format!("{was} becomes {path}: {}", plain(&value)));
    let mut place = &mut made.object;
    for part in path.split('.') {
        place = &mut place[part];
    }
    *place = value;
}

/// Returns every annotation key of the setting `key`.
fn keys(key: &'static str) -> impl Iterator<Item = &'static str> {
    setting(key).into_iter().flat_map(|setting| setting.keys())
}

#[cfg(test)]
mod tests;
