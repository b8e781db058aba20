//! Converts Datadog's ExtendedDaemonSet to a DaemonSet of either kind: prints a manifest with equivalent settings, and the names of
//! settings without an equivalent.
//!
//! The API server checks the manifest in a dry run. Nothing is created. The pods of an ExtendedDaemonSet belong to one
//! ExtendedDaemonSetReplicaSet per template, and don't have the hash of a ControllerRevision. So the controller that adopts them
//! cannot know their template, and replaces each pod once.

use kube::api::{ApiResource, DynamicObject};
use kube::{Api, core::GroupVersionKind};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::native::to_native;
use super::steps::Migration;
use super::translation::{Translation, plain};
use super::{Purpose, messages};
use crate::cli::Output;
use crate::core::selector::Selector;
use crate::core::settings::failure_threshold::FAILURE_THRESHOLD;
use crate::core::settings::ramp_up::RAMP_UP;
use crate::core::settings::read;
use crate::core::settings::waves::WAVES;
use crate::core::{ParsedSettings, SetKind};
use crate::ctl::code::Code;
use crate::ctl::context::Context;
use crate::ctl::error::CliError;
use crate::ctl::lookup::TypedName;
use crate::ctl::print::document;
use crate::ctl::screen::Screen;
use crate::index::SetKey;
use crate::k8s::{AdvancedDaemonSet, DaemonSet};

const GROUP: &str = "datadoghq.com";
/// Prefix of the annotations of an ExtendedDaemonSet.
const PREFIX: &str = "extendeddaemonset.datadoghq.com/";
/// Label that Datadog's controller adds to the pods. Its value is the name of the ExtendedDaemonSet.
const NAME_LABEL: &str = "extendeddaemonset.datadoghq.com/name";
/// Annotations that stop rollouts or canaries.
const STOPS: [&str; 3] = ["rolling-update-paused", "rollout-frozen", "canary-paused"];

/// Returns the part after the kind if the user named an ExtendedDaemonSet, as in `eds/agent`; otherwise `None`.
pub(super) fn typed(name: &str) -> Option<&str> {
    let (kind, rest) = name.split_once('/')?;
    let kind = kind.to_ascii_lowercase();
    let plain = kind.split('.').next().unwrap_or(&kind);
    ["eds", "extendeddaemonset", "extendeddaemonsets"]
        .contains(&plain)
        .then_some(rest)
}

/// Prints the manifest that replaces an ExtendedDaemonSet.
pub(super) async fn show(
    context: &Context,
    name: &str,
    kind: SetKind,
    screen: &mut Screen<'_>,
) -> Result<(), CliError> {
    let key = TypedName::read(context, name)?.key().clone();
    let access = &context.access;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
        GROUP,
        "v1alpha1",
        "ExtendedDaemonSet",
    ));
    let api: Api<DynamicObject> =
        Api::namespaced_with(access.client.clone(), &key.namespace, &resource);
    let doing = format!("read ExtendedDaemonSet {key}");
    let found = access.find(&doing, api.get(&key.name)).await?;
    let found = found.and_then(|found| serde_json::to_value(found).ok());
    let found = found.ok_or_else(|| {
        let text = format!(
            "There is no ExtendedDaemonSet {} in namespace {}, or the cluster does not have that kind: kubectl get crd \
             extendeddaemonsets.{GROUP}",
            key.name, key.namespace
        );
        CliError::new(Code::NotFound, text)
    })?;
    let made = translate(&key, &found, kind)?;
    let migration = Migration::new(context, &key, kind, Purpose::GoOn);
    let unchecked = migration.check_printed(&made.object).await?;
    let manifest = document(&made.object, Output::Yaml)?;
    let heading: String = messages::of_extended(&key, kind, &made, unchecked.as_ref())
        .lines()
        .map(|line| format!("# {line}\n"))
        .collect();
    let _ = screen.print(&format!("{heading}{manifest}"));
    Ok(())
}

/// Converts an ExtendedDaemonSet to a DaemonSet of the given kind with the equivalent settings.
fn translate(key: &SetKey, extended: &Value, kind: SetKind) -> Result<Translation, CliError> {
    let mut made = to_advanced(extended);
    select(&mut made, key)?;
    if kind == SetKind::Advanced {
        return Ok(made);
    }
    let unreadable = |why: String| unusable(key, &why);
    let set: DaemonSet = AdvancedDaemonSet::deserialize(&made.object)
        .map_err(|error| unreadable(error.to_string()))?
        .into();
    let scaling = set.spec.fields.as_ref().map(|fields| fields.scaling);
    match read(&set.settings()) {
        ParsedSettings::Strategy { strategy, .. } => {
            let native = to_native(&made.object, &strategy, scaling.unwrap_or_default());
            Ok(Translation {
                object: native.object,
                moved: made.moved,
                lost: made.lost.into_iter().chain(native.lost).collect(),
            })
        }
        ParsedSettings::Invalid(invalid, _) => Err(unreadable(format!("{invalid}."))),
        ParsedSettings::NotOurs => Err(unreadable("it has no settings of yurt-ds.".to_owned())),
    }
}

/// Converts an ExtendedDaemonSet to an Advanced DaemonSet with the equivalent settings.
fn to_advanced(extended: &Value) -> Translation {
    let mut made = Translation::begin(extended, SetKind::Advanced);
    let strategy = &extended["spec"]["strategy"];
    rolling(&mut made, &strategy["rollingUpdate"]);
    if strategy["canary"].is_object() {
        canary(&mut made, &strategy["canary"]);
    }
    if !strategy["reconcileFrequency"].is_null() {
        made.lost
            .push("reconcileFrequency: yurt-ds watches objects and does not poll.".to_owned());
    }
    for key in made.annotated() {
        let Some(name) = key.strip_prefix(PREFIX) else {
            continue;
        };
        let value = made.take(&key).unwrap_or_default();
        if STOPS.contains(&name) && value == "true" {
            made.object["spec"]["updateStrategy"]["rollingUpdate"]["paused"] = json!(true);
            made.moved.push(format!("{key}: true becomes paused: true"));
        }
    }
    made
}

/// Adds a selector that matches the labels of the template.
///
/// Datadog's controller adds the label [`NAME_LABEL`] to every pod, and needs neither a selector nor labels in the template. If the
/// selector uses [`NAME_LABEL`], the template gets this label, too.
fn select(made: &mut Translation, key: &SetKey) -> Result<(), CliError> {
    let spec = &mut made.object["spec"];
    let labels = spec["template"]["metadata"]["labels"].as_object();
    let mut labels = labels.cloned().unwrap_or_default();
    let by_name = json!({ NAME_LABEL: &*key.name });
    let written = if spec["selector"].is_null() {
        Ok(Selector::default())
    } else {
        Selector::from_json(&spec["selector"])
    };
    let written =
        written.map_err(|invalid| unusable(key, &format!("spec.selector: {invalid}.")))?;
    if written.is_empty() {
        let matched = if labels.is_empty() {
            by_name.clone()
        } else {
            json!(labels)
        };
        spec["selector"] = json!({ "matchLabels": matched });
    }
    let selector = Selector::from_json(&spec["selector"]).unwrap_or_default();
    let matches = |labels: &Map<String, Value>| selector.matches(|key| labels.get(key)?.as_str());
    if matches(&labels) {
        return Ok(());
    }
    labels.extend(by_name.as_object().cloned().unwrap_or_default());
    if !matches(&labels) {
        let why = format!(
            "spec.selector ({}) does not match the labels of spec.template ({}). Correct one of them.",
            selector.to_query(),
            json!(labels)
        );
        return Err(unusable(key, &why));
    }
    if !spec["template"]["metadata"].is_object() {
        spec["template"]["metadata"] = json!({});
    }
    spec["template"]["metadata"]["labels"] = json!(labels);
    made.moved.push(format!(
        "{NAME_LABEL}: {}, which Datadog's controller adds to pods, becomes a label of the template",
        key.name
    ));
    Ok(())
}

/// Returns the error for an ExtendedDaemonSet that cannot be converted, with the reason.
fn unusable(key: &SetKey, why: &str) -> CliError {
    let text = format!("ExtendedDaemonSet {key} cannot be converted: {why}");
    CliError::new(Code::Invalid, text)
}

fn rolling(made: &mut Translation, rolling: &Value) {
    let unavailable = match &rolling["maxUnavailable"] {
        Value::Null => json!(1),
        written => written.clone(),
    };
    made.moved
        .push(format!("maxUnavailable: {} stays", plain(&unavailable)));
    made.object["spec"]["updateStrategy"] =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": unavailable } });
    let parallel = &rolling["maxParallelPodCreation"];
    if !parallel.is_null() {
        made.moved.push(format!(
            "maxParallelPodCreation: {} becomes burstReplicas",
            plain(parallel)
        ));
        made.object["spec"]["burstReplicas"] = parallel.clone();
    }
    let increase = &rolling["slowStartAdditiveIncrease"];
    if !increase.is_null() {
        let increase = plain(increase);
        made.moved.push(format!(
            "slowStartAdditiveIncrease: {increase} becomes {RAMP_UP}: the rollout starts with this number of nodes, \
             and doubles it after each success"
        ));
        made.annotate(RAMP_UP, &increase);
    }
    if !rolling["slowStartIntervalDuration"].is_null() {
        made.lost.push(
            "slowStartIntervalDuration: the next nodes are updated when the previous ones are available, not after a \
             fixed time.".to_owned(),
        );
    }
    if !rolling["maxPodSchedulerFailure"].is_null() {
        made.lost.push(
            "maxPodSchedulerFailure: an unscheduled pod uses a slot of maxUnavailable. Offline nodes use none."
                .to_owned(),
        );
    }
}

/// Converts the canary to a wave. If the canary needs manual validation, adds a second wave with all other nodes that needs an
/// approval. If the canary has a number of nodes but no selector, the operator has to label the nodes.
fn canary(made: &mut Translation, canary: &Value) {
    let waves = |selector: &Value| {
        let mut first = json!({ "name": "canary", "selector": selector });
        if canary["validationMode"] == "manual" {
            let others = json!({ "name": "field", "selector": {}, "approve": "manual" });
            return json!([first, others]).to_string();
        }
        first["soak"] = json!(canary["duration"].as_str().unwrap_or("10m"));
        json!([first]).to_string()
    };
    let selector = &canary["nodeSelector"];
    if selector.is_object() {
        let waves = waves(selector);
        made.moved.push(format!("canary becomes {WAVES}: {waves}"));
        made.annotate(WAVES, &waves);
        if !canary["replicas"].is_null() {
            made.lost.push(format!(
                "canary.replicas: {}: all nodes that match its nodeSelector are in the canary.",
                plain(&canary["replicas"])
            ));
        }
    } else {
        made.lost.push(format!(
            "canary.replicas without nodeSelector: yurt-ds does not choose nodes. Label the canary nodes \
             yurt-ds-canary=true, and set {WAVES}: {}",
            waves(&json!("yurt-ds-canary=true"))
        ));
    }
    let is_on = |name: &str| canary[name]["enabled"] != false;
    if is_on("autoPause") || is_on("autoFail") {
        made.moved.push(format!(
            "canary.autoPause, canary.autoFail become {FAILURE_THRESHOLD}: 0: the first failed node of any wave \
             stops the revision. A node fails if its pod crashes, its image cannot be pulled, or the node is lost"
        ));
        made.annotate(FAILURE_THRESHOLD, "0");
        made.lost.push(
            "canary.autoFail: yurt-ds does not restore the template automatically. To roll back: yurt-ds ctl undo"
                .to_owned(),
        );
    }
    for key in ["noRestartsDuration", "nodeAntiAffinityKeys"] {
        if !canary[key].is_null() {
            made.lost
                .push(format!("canary.{key}: {}.", plain(&canary[key])));
        }
    }
    for block in ["autoPause", "autoFail"] {
        let fields = canary[block].as_object();
        let limits = fields
            .into_iter()
            .flatten()
            .filter(|(key, _)| *key != "enabled");
        for (key, value) in limits {
            made.lost
                .push(format!("canary.{block}.{key}: {}.", plain(value)));
        }
    }
}

#[cfg(test)]
mod tests;
