//! `ctl eject`: returns a DaemonSet to the native RollingUpdate without restarting pods.
//!
//! ```text
//! look (GET, LIST) ─check─► refused, or: pause, if updates are in progress ──► ONE conditional write ──► conditions are removed
//!    ▲                                                                                │ conflict
//!    └────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The conditional write removes the annotations of yurt-ds and sets `RollingUpdate`. Before it, only yurt-ds may replace pods;
//! after it, only the native controller. It succeeds only if the specification and the annotations have not changed since they
//! were read.
//!
//! The pause before it is written without this condition, because a pause is always safe. An Advanced DaemonSet is first
//! converted to a native one, as `ctl migrate` does.

mod advanced;
mod candidate;
mod messages;

use std::time::Duration;

use json_patch::PatchOperation;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use serde_json::{Value, json};

use self::advanced::make_native;
use self::candidate::{EjectCandidate, OldNodes};
use super::access::{CALL_DEADLINE, REREAD_INTERVAL};
use super::code::Code;
use super::context::Context;
use super::error::CliError;
use super::liveness::liveness_of;
use super::lookup;
use super::migrate::{self, rolling_update};
use super::pause::annotate;
use super::screen::Screen;
use super::write::{FIELD_MANAGER, remove, set, write_if_unchanged};
use crate::cli::ctl::EjectArgs;
use crate::core::names::{
    PAUSED_CONDITION, POD_IMAGE_READY, POD_NEED_UPGRADE, REFUSED, ROLLED_BACK_FROM,
    ROLLOUT_COMPLETE,
};
use crate::core::settings::is_setting;
use crate::core::settings::paused::PAUSED;
use crate::core::{Mode, Phase, is_paused};
use crate::index::{OWN_CONDITIONS, SetKey};
use crate::k8s::client::conditions::{patch_conditions, removal};
use crate::k8s::client::{Failure, within};

/// Maximum number of attempts to write a DaemonSet that changes between the read and the write.
const ATTEMPTS: usize = 5;
/// Time for a running controller to react to a pause or to the hand-over.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns a DaemonSet of either kind to Kubernetes.
pub(super) async fn eject(
    context: &Context,
    args: &EjectArgs,
    screen: &mut Screen<'_>,
) -> Result<(), CliError> {
    let begun = migrate::begun(context, &args.daemonset).await?;
    let key = match &begun {
        Some(native) => native.clone(),
        None => lookup::target(context, &args.daemonset).await?,
    };
    let was_advanced = begun.is_some() || key.is_advanced();
    let key = if was_advanced {
        match make_native(context, args, &key, screen).await? {
            Some(native) => native,
            None => return Ok(()),
        }
    } else {
        key
    };
    let handed = hand_back(context, args, &key, screen).await;
    let handed = handed.map_err(|error| {
        if was_advanced {
            CliError::new(
                error.code,
                format!("{error} {}", messages::native_by_now(&key)),
            )
        } else {
            error
        }
    })?;
    if let Some(handed) = handed {
        let left = handed.clean(context).await?;
        if was_advanced {
            migrate::is_alone(context, &key).await?;
        }
        handed.refuse_applied_again(context).await?;
        let _ = screen.print(&left);
    }
    Ok(())
}

/// Returns a native DaemonSet to Kubernetes. The result is the DaemonSet's state before the write; `None` with `--dry-run`.
///
/// # Errors
/// Fails with the reason for a refusal, before anything is changed.
async fn hand_back(
    context: &Context,
    args: &EjectArgs,
    key: &SetKey,
    screen: &mut Screen<'_>,
) -> Result<Option<EjectCandidate>, CliError> {
    let mut was_paused = false;
    for _ in 0..ATTEMPTS {
        let candidate = EjectCandidate::look(context, key).await?;
        if !args.now {
            candidate.refuse_unfinished()?;
        }
        if args.dry_run {
            let _ = screen.print(&candidate.would());
            return Ok(None);
        }
        if candidate.is_replacing() {
            candidate.pause(context).await?;
            let _ = screen.print(&format!("{key} is paused while it is handed back.\n"));
            was_paused = true;
            candidate.await_pause(context).await?;
            continue;
        }
        if candidate.hand_over(context).await? {
            let _ = screen.print(&candidate.done());
            return Ok(Some(candidate));
        }
    }
    let paused = if was_paused {
        format!(" It stays paused. To resume it: yurt-ds ctl resume {key}")
    } else {
        String::new()
    };
    Err(CliError::new(
        Code::Failed,
        format!(
            "{key} was not handed back, because it changed during every attempt. Try again.{paused}"
        ),
    ))
}

impl EjectCandidate {
    /// Reads the DaemonSet, then its pods and nodes. Any change after the first read makes the write fail.
    async fn look(context: &Context, key: &SetKey) -> Result<Self, CliError> {
        let (access, now) = (&context.access, context.clock.now());
        let doing = format!("read DaemonSet {key}");
        let api = sets(context, key);
        let set = access.find(&doing, api.get(&key.name)).await?;
        let set = set.unwrap_or_default(); // For a missing DaemonSet, the next call returns the error.
        let (_, snapshot) = lookup::snapshot(access, key, now).await?;
        let settings = set.metadata.annotations.iter().flatten();
        let settings = settings.filter(|(key, _)| is_setting(key) || *key == ROLLED_BACK_FROM);
        let candidate = Self {
            key: key.clone(),
            settings: settings.map(|(k, v)| (k.clone(), v.clone())).collect(),
            old: OldNodes::new(&snapshot),
            set,
            snapshot,
        };
        match &candidate.snapshot.invalid {
            Some(invalid) if candidate.is_on_delete() => Err(CliError::new(
                Code::Invalid,
                format!(
                    "{key} was not handed back, because its settings are invalid: {invalid}. First correct or remove \
                     that annotation."
                ),
            )),
            _ => Ok(candidate),
        }
    }

    /// Refuses if pods are outdated: with RollingUpdate, the native controller would replace all of them.
    fn refuse_unfinished(&self) -> Result<(), CliError> {
        let is_over = self.old.known && self.old.nodes + self.old.ending == 0;
        // Without OnDelete, Kubernetes already replaces outdated pods, and `eject` does not change that.
        let acts_already = !self.is_on_delete() && !self.key.is_advanced();
        if acts_already || is_over {
            return Ok(());
        }
        Err(CliError::new(Code::Refused, self.refusal()))
    }

    /// Returns true if the yurt-ds controller may be replacing a pod now.
    fn is_replacing(&self) -> bool {
        self.is_on_delete()
            && self.snapshot.strategy.mode == Mode::AdvancedRollingUpdate
            && self.snapshot.is_reported()
            && !is_paused(&self.snapshot.strategy, self.snapshot.now)
            && matches!(
                self.snapshot.phase(),
                Phase::Progressing
                    | Phase::RevisionUnknown(_)
                    | Phase::Stale(_)
                    | Phase::Stalled(_)
            )
            && self.old.nodes > 0
    }

    /// Pauses the DaemonSet if it still has the UID that was read. No other precondition is needed: a pause is always safe.
    async fn pause(&self, context: &Context) -> Result<(), CliError> {
        let uid = self.set.metadata.uid.as_deref().unwrap_or_default();
        annotate(context, &self.key, uid, PAUSED, Some("true")).await
    }

    /// Waits until the controller reports the pause. Gives up after [`PATIENCE`], because then no controller is running to
    /// replace pods.
    async fn await_pause(&self, context: &Context) -> Result<(), CliError> {
        let paused = |set: &DaemonSet| holds(set, PAUSED_CONDITION);
        self.await_until(context, paused).await.map(drop)
    }

    /// Writes the DaemonSet with RollingUpdate and without yurt-ds settings. Returns false if it has changed since it was read.
    async fn hand_over(&self, context: &Context) -> Result<bool, CliError> {
        let settings = self.settings.keys();
        let removed = settings.map(|key| remove(&["metadata", "annotations", key]));
        let mut changes: Vec<PatchOperation> = removed.collect();
        if self.is_on_delete() {
            let native = rolling_update(&self.snapshot.strategy);
            let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": native });
            changes.push(set(&["spec", "updateStrategy"], strategy));
        }
        let doing = format!("hand back DaemonSet {}", self.key);
        write_if_unchanged(context, &doing, &self.key, &self.set.metadata, changes).await
    }

    /// Waits until `is` returns true or the DaemonSet is gone; returns false if that takes longer than [`PATIENCE`].
    async fn await_until(
        &self,
        context: &Context,
        is: impl Fn(&DaemonSet) -> bool,
    ) -> Result<bool, CliError> {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            if self.read(context).await?.as_ref().is_none_or(&is) {
                return Ok(true);
            }
            if tokio::time::Instant::now() >= end {
                return Ok(false);
            }
            tokio::time::sleep(REREAD_INTERVAL).await;
        }
    }

    /// Returns an error if the removed settings exist again, for example because a GitOps tool applied the old manifest.
    async fn refuse_applied_again(&self, context: &Context) -> Result<(), CliError> {
        let set = self.read(context).await?.unwrap_or_default();
        let again = set.metadata.annotations.unwrap_or_default();
        let again: Vec<&str> = (self.settings.keys().map(String::as_str))
            .filter(|key| again.contains_key(*key))
            .collect();
        if again.is_empty() {
            Ok(())
        } else {
            Err(CliError::new(
                Code::Failed,
                messages::applied_again(&self.key, &again),
            ))
        }
    }

    /// Reads the DaemonSet; `None` if it is gone.
    async fn read(&self, context: &Context) -> Result<Option<DaemonSet>, CliError> {
        let doing = format!("read DaemonSet {}", self.key);
        let sets = sets(context, &self.key);
        context.access.find(&doing, sets.get(&self.key.name)).await
    }

    /// Ensures that the conditions of yurt-ds are removed. If no controller removes them, this command does.
    async fn clean(&self, context: &Context) -> Result<String, CliError> {
        let announced = self.announced().count();
        if announced == 0 && !self.snapshot.is_reported() {
            return Ok(String::new());
        }
        let is_done = |set: &DaemonSet| is_clean(set) || is_withheld(set);
        if self.snapshot.is_reported() && self.await_until(context, is_done).await? {
            let set = self.read(context).await?;
            return Ok(if set.is_some_and(|set| is_withheld(&set)) {
                messages::at_work(&self.key)
            } else {
                messages::released(announced, true)
            });
        }
        let liveness = liveness_of(&context.access, context.clock.now()).await;
        if liveness.serves(self.key.kind) {
            return Ok(messages::at_work(&self.key));
        }
        let missing = |error: &dyn std::fmt::Display| {
            CliError::new(
                Code::Failed,
                format!(
                    "DaemonSet {} was handed back, but the conditions of yurt-ds could not be removed: {error}. They \
                     are harmless, and a controller removes them when it starts.",
                    self.key
                ),
            )
        };
        for (path, name, uid, kinds) in self.leftovers() {
            let requests = kube::core::Request::new(path);
            let removals = kinds.iter().map(|kind| removal(kind)).collect();
            let patch = patch_conditions(&requests, &name, &uid, FIELD_MANAGER, removals);
            let patch = patch.map_err(|error| missing(&error))?;
            let call = context.access.client.request::<Value>(patch);
            match within(CALL_DEADLINE, call).await {
                Ok(_) => {}
                // The object was deleted, together with its conditions.
                Err(error) if error.failure() == Failure::Gone => {}
                Err(error) => return Err(missing(&error)),
            }
        }
        Ok(messages::released(announced, false))
    }

    /// Returns the pods with a condition that announces an upgrade to their node owners (OTA).
    fn announced(&self) -> impl Iterator<Item = &crate::core::Pod> {
        let pods = self.snapshot.fleet.nodes.iter().flat_map(|node| &node.pods);
        pods.filter(|pod| pod.need_upgrade.is_some() || pod.image_ready.is_some())
    }

    /// Returns the objects with conditions of yurt-ds: URL path of the collection, name, UID and condition types of each.
    fn leftovers(&self) -> Vec<(String, String, String, Vec<&'static str>)> {
        let namespace = &self.key.namespace;
        let of_set = self.snapshot.is_reported().then(|| {
            (
                format!("/apis/apps/v1/namespaces/{namespace}/daemonsets"),
                self.key.name.to_string(),
                self.set.metadata.uid.clone().unwrap_or_default(),
                OWN_CONDITIONS.to_vec(),
            )
        });
        let of_pods = self.announced().map(|pod| {
            (
                format!("/api/v1/namespaces/{namespace}/pods"),
                pod.name.to_string(),
                pod.uid.to_string(),
                vec![POD_NEED_UPGRADE, POD_IMAGE_READY],
            )
        });
        of_set.into_iter().chain(of_pods).collect()
    }
}

fn sets(context: &Context, key: &SetKey) -> Api<DaemonSet> {
    Api::namespaced(context.access.client.clone(), &key.namespace)
}

fn conditions(set: &DaemonSet) -> impl Iterator<Item = (&str, &str)> {
    let status = set.status.iter();
    let conditions = status.flat_map(|status| status.conditions.iter().flatten());
    conditions.map(|condition| (condition.type_.as_str(), condition.status.as_str()))
}

fn holds(set: &DaemonSet, kind: &str) -> bool {
    conditions(set).any(|condition| condition == (kind, "True"))
}

/// Returns true if the controller has ended the rollout, but reports (`Refused`) that it lacks the rights to clean up.
fn is_withheld(set: &DaemonSet) -> bool {
    let rolls = conditions(set).any(|(kind, _)| kind == ROLLOUT_COMPLETE);
    holds(set, REFUSED) && !rolls
}

fn is_clean(set: &DaemonSet) -> bool {
    conditions(set).all(|(kind, _)| !OWN_CONDITIONS.contains(&kind))
}

#[cfg(test)]
mod tests;
