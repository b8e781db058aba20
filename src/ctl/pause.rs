//! `ctl pause` and `ctl resume`: change one annotation, or one field of an Advanced DaemonSet, and report the effect.
//!
//! `resume` can also release a revision that the guard stopped because it failed on too many nodes. The rollout then continues.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::code::Code;
use super::context::Context;
use super::daemonset_api::whole;
use super::error::CliError;
use super::look::Look;
use super::lookup;
use super::reported::ReportedRollout;
use super::screen::Screen;
use super::snapshot::RolloutSnapshot;
use super::view::{ClusterView, ListedDaemonSet};
use super::write::FIELD_MANAGER;
use crate::cli::ctl::{PauseArgs, ResumeArgs};
use crate::core::messages::holders;
use crate::core::names::{ON_DELETE, UPDATE_STRATEGY_TYPE_FIELD};
use crate::core::settings::paused::PAUSED;
use crate::core::settings::resume::RESUME;
use crate::core::words::plural;
use crate::core::{
    FailureRecord, Invalid, Mode, ParsedSettings, Pause, Phase, Progress, Verdict, instant,
};
use crate::index::{SetKey, SetRecord};

pub(super) async fn pause(
    context: &Context,
    args: &PauseArgs,
    screen: &mut Screen<'_>,
) -> Result<(), CliError> {
    let until = end(args, context.clock.now())?;
    let key = lookup::target(context, &args.daemonset).await?;
    let view = lookup::find(&context.access, &key, context.clock.now()).await?;
    native_replaces(&view, &key)?;
    let before = present(&view, &key).and_then(|text| Pause::parse(&text).ok().flatten());
    if !args.force {
        keep_longer(&key, before, until, view.loaded)?;
    }
    let wanted = until.map_or_else(|| "true".to_owned(), instant::words);
    let changed = write(context, &view, &key, Some(&wanted)).await?;
    let snapshot = look_again(context, &key).await;
    let _ = screen.print(&paused(&key, until, changed, snapshot.as_ref()));
    Ok(())
}

/// Refuses to shorten an existing pause without `--force`, because another operator may have set it.
fn keep_longer(
    key: &SetKey,
    before: Option<Pause>,
    until: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), CliError> {
    let (Some(before), Some(until)) = (before, until) else {
        return Ok(());
    };
    let lasts = match before {
        Pause::Indefinite => "indefinitely".to_owned(),
        Pause::Until(end) if end > now && until < end => format!("until {}", instant::words(end)),
        Pause::Until(_) => return Ok(()),
    };
    let until = instant::words(until);
    Err(CliError::new(
        Code::Refused,
        format!(
            "{key} is already paused {lasts}. This command would end the pause at {until}, so nothing was changed. To set the \
             earlier end, add --force. To resume now: yurt-ds ctl resume {key}"
        ),
    ))
}

/// Checks that yurt-ds replaces the pods. A pause has no effect on the native controller.
///
/// # Errors
/// Fails if the native controller replaces the pods. The message says what to do instead.
fn native_replaces(view: &ClusterView, key: &SetKey) -> Result<(), CliError> {
    match view.index.reading(key).as_deref() {
        Some(ParsedSettings::Invalid(invalid, _))
            if invalid.is_native_update() && !key.is_advanced() =>
        {
            Err(CliError::new(
                Code::Invalid,
                format!(
                    "{key} was not paused: its {UPDATE_STRATEGY_TYPE_FIELD} is {}, so Kubernetes replaces the pods \
                     and ignores a pause. First set it to {ON_DELETE}, so that only yurt-ds replaces pods: kubectl \
                     -n {} patch daemonset {} --type merge -p \
                     '{{\"spec\":{{\"updateStrategy\":{{\"type\":\"{ON_DELETE}\",\"rollingUpdate\":null}}}}}}'. Then \
                     pause it again.",
                    invalid.value, key.namespace, key.name
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// Ends a pause. Without a pause, releases a revision that the guard stopped.
pub(super) async fn resume(
    context: &Context,
    args: &ResumeArgs,
    screen: &mut Screen<'_>,
) -> Result<(), CliError> {
    let key = lookup::target(context, &args.daemonset).await?;
    let view = lookup::find(&context.access, &key, context.clock.now()).await?;
    let set = view.index.set(&key);
    let paused = !is_off(present(&view, &key).as_deref(), view.loaded);
    // During a pause, `resume` only ends the pause. A second `resume` releases a stopped revision.
    let record = set.and_then(SetRecord::last_record).filter(|_| !paused);
    let stands = match &record {
        Some(record) if record.stopped.is_some() => true,
        // The stored record does not show whether the guard stopped a single wave. So evaluate the rollout.
        Some(record) if record.failures() > 0 => {
            let snapshot = look_again(context, &key).await;
            snapshot.is_some_and(|look| look.is_stopped())
        }
        _ => false,
    };
    let text = match record {
        Some(record) if stands => {
            let changed = release(context, &view, &key, &record).await?;
            released(&record, changed, look_again(context, &key).await.as_ref())
        }
        _ => {
            let changed = write(context, &view, &key, None).await?;
            resumed(&key, changed, look_again(context, &key).await.as_ref())
        }
    };
    let _ = screen.print(&text);
    Ok(())
}

/// Releases a revision that the guard stopped. Returns false if it was released before, so that nothing was written.
async fn release(
    context: &Context,
    view: &ClusterView,
    key: &SetKey,
    record: &FailureRecord,
) -> Result<bool, CliError> {
    if let Some(ParsedSettings::Strategy { strategy, .. }) = view.index.reading(key).as_deref()
        && strategy.resume.as_ref() == Some(&record.revision)
    {
        return Ok(false);
    }
    let value = Some(record.revision.as_str());
    annotate(context, key, uid(view, key)?, RESUME, value).await?;
    Ok(true)
}

/// Returns the end of the pause; `None` for a pause without an end.
fn end(args: &PauseArgs, now: Timestamp) -> Result<Option<Timestamp>, CliError> {
    let usage = |text: String| CliError::new(Code::Usage, text);
    match (args.for_, args.until) {
        (Some(span), _) => {
            let end = SignedDuration::try_from(span)
                .ok()
                .and_then(|span| now.checked_add(span).ok());
            let end = end.ok_or_else(|| {
                usage("--for is too long; without it, the pause lasts until ctl resume.".into())
            })?;
            if end.as_second() <= now.as_second() {
                return Err(usage("--for is too short: pause for at least 1s.".into()));
            }
            Ok(Some(end))
        }
        (None, Some(until)) if until <= now => Err(usage(format!(
            "--until {} is in the past (it is {} now).",
            instant::words(until),
            instant::words(now)
        ))),
        (None, until) => Ok(until),
    }
}

/// Sets or removes the pause. Returns false if it already had this value.
async fn write(
    context: &Context,
    view: &ClusterView,
    key: &SetKey,
    value: Option<&str>,
) -> Result<bool, CliError> {
    let uid = uid(view, key)?;
    let present = present(view, key);
    let present = present.as_deref();
    if present == value || (value.is_none() && is_off(present, view.loaded)) {
        return Ok(false);
    }
    let listed = view.present.get(key).filter(|_| key.is_advanced());
    match listed {
        Some(listed) => patch(context, key, in_field(uid, listed, value)).await?,
        None => annotate(context, key, uid, PAUSED, value).await?,
    }
    Ok(true)
}

/// Returns the patch that pauses an Advanced DaemonSet or ends its pause.
///
/// The boolean field overrides the annotation. So a pause without an end is set only in the field, and a pause with an end only in
/// the annotation.
fn in_field(uid: &str, listed: &ListedDaemonSet, value: Option<&str>) -> Value {
    let is_lasting = value == Some("true");
    let mut patch = json!({ "metadata": { "uid": uid } });
    let annotation = value.filter(|_| !is_lasting);
    if annotation.is_some() || listed.paused.is_some() {
        patch["metadata"]["annotations"][PAUSED] = json!(annotation);
    }
    if is_lasting || listed.paused_field.is_some() {
        let field = is_lasting.then_some(true);
        patch["spec"]["updateStrategy"]["rollingUpdate"]["paused"] = json!(field);
    }
    patch
}

/// Returns the UID that the DaemonSet had when it was read.
fn uid<'a>(view: &'a ClusterView, key: &SetKey) -> Result<&'a str, CliError> {
    let set = view.index.set(key);
    set.map(|set| &*set.uid)
        .ok_or_else(|| lookup::unmanaged(key))
}

/// Returns the value of the field `paused`. If the field is not set, returns the value of the annotation.
fn present(view: &ClusterView, key: &SetKey) -> Option<String> {
    let present = view.present.get(key)?;
    match &present.paused_field {
        Some(field) => Some(field.to_string()),
        None => present.paused.clone(),
    }
}

/// Sets or removes an annotation of the DaemonSet with the given UID.
pub(super) async fn annotate(
    context: &Context,
    key: &SetKey,
    uid: &str,
    name: &str,
    value: Option<&str>,
) -> Result<(), CliError> {
    patch(context, key, annotation(uid, name, value)).await
}

/// Returns the patch for an annotation. It has a UID, so that it fails for a new DaemonSet of the same name.
fn annotation(uid: &str, name: &str, value: Option<&str>) -> Value {
    json!({ "metadata": { "uid": uid, "annotations": { name: value } } })
}

async fn patch(context: &Context, key: &SetKey, patch: Value) -> Result<(), CliError> {
    let access = &context.access;
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    let doing = if patch["spec"].is_null() {
        format!("annotate DaemonSet {key}")
    } else {
        format!("change DaemonSet {key}")
    };
    let (api, patch) = (whole(&access.client, key), Patch::Merge(patch));
    access
        .call(&doing, api.patch(&key.name, &params, &patch))
        .await?;
    Ok(())
}

/// Returns true if the value of the annotation or field does not pause the rollout now.
fn is_off(present: Option<&str>, now: Timestamp) -> bool {
    match present.map(Pause::parse) {
        None | Some(Ok(None)) => true,
        Some(Ok(Some(Pause::Until(until)))) => until <= now,
        Some(Ok(Some(Pause::Indefinite)) | Err(_)) => false,
    }
}

/// Evaluates the rollout after a change; `None` if the objects cannot be read.
pub(super) async fn look_again(context: &Context, key: &SetKey) -> Option<Look> {
    let now = context.clock.now();
    let (_, look) = lookup::look(&context.access, key, now).await.ok()?;
    Some(look)
}

fn paused(key: &SetKey, until: Option<Timestamp>, changed: bool, look: Option<&Look>) -> String {
    let head = match (changed, until) {
        (false, None) => format!("{key} is already paused; nothing was changed."),
        (false, Some(until)) => format!(
            "{key} is already paused until {}; nothing was changed.",
            instant::words(until)
        ),
        (true, None) => format!("{key} is paused."),
        (true, Some(until)) => {
            format!(
                "{key} is paused until {} and resumes automatically then.",
                instant::words(until)
            )
        }
    };
    let follows = look.map_or_else(String::new, |look| match look {
        Look::Judged(snapshot) => after_pause(snapshot),
        Look::Reported(reported) => after_pause_reported(reported),
    });
    format!("{head}{follows}\nTo resume: yurt-ds ctl resume {key}\n")
}

/// Returns the effect of a pause if only the settings are known.
fn after_pause_by_settings(invalid: Option<&Invalid>, mode: Option<Mode>) -> Option<String> {
    Some(match (invalid, mode) {
        (Some(invalid), _) => {
            format!(" Its settings are invalid: {invalid}.")
        }
        (None, Some(Mode::OnDelete)) => {
            " Under OnDelete, yurt-ds replaces no pods. Kubernetes still creates a new pod when one is deleted."
                .to_owned()
        }
        (None, Some(Mode::Ota)) => {
            " Under OTA, new revisions are not announced and upgrades are rejected until it is resumed."
                .to_owned()
        }
        (None, _) => return None,
    })
}

fn after_pause_reported(reported: &ReportedRollout) -> String {
    let mode = reported.strategy.as_ref().map(|all| all.mode);
    let text = after_pause_by_settings(reported.invalid.as_ref(), mode);
    text.unwrap_or_else(|| match reported.counts().outdated {
        0 => " None of its pods is outdated. A new revision will wait.".to_owned(),
        left => format!(
            " {left} outdated {} {} as {}. The nodes in progress are not known, because you may not list nodes.",
            plural(left, "pod", "pods"),
            plural(left, "stays", "stay"),
            plural(left, "it is", "they are")
        ),
    })
}

/// Returns clauses about the nodes that keep an outdated pod although the rollout is complete, joined by `between`.
fn exceptions(snapshot: &RolloutSnapshot, between: &str) -> String {
    let clauses = snapshot
        .plan
        .exceptions(&snapshot.fleet, &snapshot.strategy);
    clauses.join(between)
}

fn after_pause(snapshot: &RolloutSnapshot) -> String {
    let mode = Some(snapshot.strategy.mode);
    if let Some(text) = after_pause_by_settings(snapshot.invalid.as_ref(), mode) {
        return text;
    }
    let counts = &snapshot.plan.counts;
    let under_way = counts.of_kind(Verdict::InProgress(Progress::Replacing));
    let mut text = match counts.outdated {
        0 if counts.kept > 0 => format!(
            " No pod would be replaced now: {}. A new revision will wait.",
            exceptions(snapshot, ", ")
        ),
        0 if matches!(snapshot.plan.phase, Phase::RevisionUnknown(_)) => {
            " The latest change has not been processed yet. It will wait.".to_owned()
        }
        0 => " No online node is outdated. A new revision will wait.".to_owned(),
        left => format!(
            " {left} outdated {} {} as {}. New nodes still get a pod.",
            plural(left, "node", "nodes"),
            plural(left, "stays", "stay"),
            plural(left, "it is", "they are")
        ),
    };
    let paired = counts.surging.min(under_way);
    if under_way > paired {
        let alone = under_way - paired;
        text.push_str(&format!(
            " {alone} {} being updated and will finish.",
            plural(alone, "node is", "nodes are")
        ));
    }
    if paired > 0 {
        text.push_str(&format!(
            " {paired} {} both pods until it is resumed.",
            plural(paired, "node keeps", "nodes keep")
        ));
    }
    text
}

fn resumed(key: &SetKey, changed: bool, look: Option<&Look>) -> String {
    let head = if changed {
        format!("{key} is resumed.")
    } else {
        format!("{key} is not paused; nothing was changed.")
    };
    let follows = look.map_or_else(String::new, after_resume_as_known);
    format!("{head}{follows}\n")
}

fn released(record: &FailureRecord, changed: bool, look: Option<&Look>) -> String {
    let revision = &record.revision;
    let head = if changed {
        format!(
            "Revision {revision} continues. The guard no longer stops it, however many nodes fail (annotation \
             resume)."
        )
    } else {
        format!("Revision {revision} was already resumed; nothing was changed.")
    };
    let failed = match record.failures() {
        0 => String::new(),
        1 => " 1 node failed with this revision.".to_owned(),
        nodes => format!(" {nodes} nodes failed with this revision."),
    };
    let follows = look.map_or_else(String::new, after_resume_as_known);
    format!("{head}{failed}{follows}\n")
}

fn after_resume_as_known(look: &Look) -> String {
    let reported = match look {
        Look::Judged(snapshot) => return after_resume(snapshot),
        Look::Reported(reported) => reported,
    };
    match (&reported.invalid, reported.counts().outdated) {
        (Some(invalid), _) => format!(" But its settings are invalid: {invalid}."),
        (None, 0) => " None of its pods is outdated.".to_owned(),
        (None, left) => format!(
            " {left} of its pods {} outdated. The next nodes are not known, because you may not list nodes. Follow \
             it: yurt-ds ctl status {} --watch",
            plural(left, "is", "are"),
            reported.key
        ),
    }
}

fn after_resume(snapshot: &RolloutSnapshot) -> String {
    let (rollout, counts) = (snapshot.rollout(), &snapshot.plan.counts);
    if rollout.is_stopped() {
        return format!(
            " But the guard has stopped this revision. Details: yurt-ds ctl status {key}. To continue it anyway, run \
             yurt-ds ctl resume {key} again.",
            key = snapshot.key
        );
    }
    match (rollout.phase, snapshot.strategy.mode) {
        (Phase::Invalid, _) => snapshot
            .invalid
            .as_ref()
            .map_or_else(String::new, |invalid| {
                format!(" But its settings are invalid: {invalid}.")
            }),
        (Phase::Complete { .. }, _) if counts.kept + counts.repelled > 0 => {
            format!(" Complete; {}.", exceptions(snapshot, "; "))
        }
        (Phase::Complete { offline: 0, .. }, _) => {
            " Every node runs the current revision.".to_owned()
        }
        (Phase::Complete { offline, .. }, _) => {
            format!(
                " Only offline nodes are left ({offline}); {}.",
                plural(
                    offline,
                    "it will be updated when it returns",
                    "they will be updated when they return"
                )
            )
        }
        (_, Mode::Ota) => format!(
            " {} outdated {} for {} (OTA).",
            counts.outdated,
            plural(counts.outdated, "node waits", "nodes wait"),
            plural(counts.outdated, "its owner", "their owners")
        ),
        (_, Mode::OnDelete) => format!(
            " {} outdated {} until {} deleted (updateStrategy.type: OnDelete).",
            counts.outdated,
            plural(counts.outdated, "node waits", "nodes wait"),
            plural(counts.outdated, "its pod is", "their pods are")
        ),
        (Phase::Stalled(_), _) => format!(" But the rollout is stalled: {}", snapshot.message()),
        _ => next_nodes(snapshot),
    }
}

/// Returns a text about the nodes that are updated next in a running rollout, or the reason why there are none.
fn next_nodes(snapshot: &RolloutSnapshot) -> String {
    let (rollout, counts) = (snapshot.rollout(), &snapshot.plan.counts);
    let key = &snapshot.key;
    let is_replaced = |verdict: &&Verdict| **verdict == Verdict::InProgress(Progress::Replacing);
    let begins = snapshot.plan.verdicts.iter().filter(is_replaced).count();
    let outdated = counts.outdated;
    let are = plural(outdated, "node is", "nodes are");
    if rollout.next() > 0 {
        return format!(
            " {outdated} outdated {}, at most {} at a time. Follow it: yurt-ds ctl status {key} --watch",
            plural(outdated, "node follows", "nodes follow"),
            counts.allowed + counts.surge_allowed,
        );
    }
    if begins > 0 {
        return format!(
            " {outdated} outdated {are} left: {begins} of them {} replaced now. Follow it: yurt-ds ctl status {key} --watch",
            plural(begins, "is", "are"),
        );
    }
    let holders = match holders(&rollout, None, false) {
        none if none.is_empty() => none,
        some => format!("; slots are held by {some}"),
    };
    format!(
        " {outdated} outdated {are} left, and none of them can start now: {}{holders}. Follow it: yurt-ds ctl status {key} --watch",
        snapshot.message(),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn args(for_: Option<Duration>, until: Option<&str>) -> PauseArgs {
        PauseArgs {
            daemonset: "default/x".into(),
            for_,
            until: until.map(|text| text.parse().unwrap()),
            force: false,
        }
    }

    #[test]
    fn a_pause_ends_in_the_future_or_never() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(end(&args(None, None), now), Ok(None));
        let two_hours = end(&args(Some(Duration::from_secs(7200)), None), now);
        assert_eq!(
            two_hours.unwrap().map(instant::words).as_deref(),
            Some("2026-01-01T02:00:00Z")
        );
        let later = end(&args(None, Some("2026-01-02T00:00:00+02:00")), now);
        assert_eq!(
            later.unwrap().map(instant::words).as_deref(),
            Some("2026-01-01T22:00:00Z")
        );
        let past = end(&args(None, Some("2025-01-01T00:00:00Z")), now).unwrap_err();
        assert_eq!(past.code, Code::Usage);
        assert!(past.text.contains("2025-01-01T00:00:00Z"), "{past}");
        let zero = end(&args(Some(Duration::ZERO), None), now).unwrap_err();
        assert_eq!(zero.code, Code::Usage);
        let endless = end(&args(Some(Duration::MAX), None), now).unwrap_err();
        assert_eq!(endless.code, Code::Usage);
    }

    #[test]
    fn a_patch_changes_one_annotation_of_one_object() {
        assert_eq!(
            annotation("u1", PAUSED, Some("true")),
            json!({ "metadata": { "uid": "u1", "annotations": { "apps.openyurt.io/paused": "true" } } })
        );
        assert_eq!(
            annotation("u1", PAUSED, None)["metadata"]["annotations"],
            json!({ "apps.openyurt.io/paused": null })
        );
    }

    #[test]
    fn an_advanced_daemonset_is_paused_by_either_the_field_or_the_annotation() {
        #[track_caller]
        fn case(
            annotation: Option<&str>,
            field: Option<bool>,
            value: Option<&str>,
            expected: (Value, Value),
        ) {
            let listed = ListedDaemonSet {
                deleting: false,
                paused: annotation.map(str::to_owned),
                paused_field: field.map(Value::from),
                on_delete: false,
                desired: None,
            };
            let patch = in_field("u1", &listed, value);
            assert_eq!(patch["metadata"]["uid"], "u1");
            let (annotations, spec) = expected;
            assert_eq!(patch["metadata"]["annotations"], annotations, "{patch}");
            assert_eq!(patch["spec"], spec, "{patch}");
        }
        let annotated = |value: Value| json!({ "apps.openyurt.io/paused": value });
        let field =
            |value: Value| json!({ "updateStrategy": { "rollingUpdate": { "paused": value } } });
        let (none, time) = (Value::Null, "2030-01-01T00:00:00Z");
        let lasting = Some("true");
        case(None, None, lasting, (none.clone(), field(json!(true))));
        case(
            Some(time),
            Some(false),
            lasting,
            (annotated(none.clone()), field(json!(true))),
        );
        case(
            None,
            None,
            Some(time),
            (annotated(json!(time)), none.clone()),
        );
        // The field would override the annotation, so the patch removes it.
        case(
            None,
            Some(true),
            Some(time),
            (annotated(json!(time)), field(none.clone())),
        );
        case(None, Some(true), None, (none.clone(), field(none.clone())));
        case(Some(time), None, None, (annotated(none.clone()), none));
    }
}
