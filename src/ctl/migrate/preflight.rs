//! Checks that a DaemonSet can be converted to the other kind now, and converts it.

use serde::Deserialize as _;
use serde_json::Value;

use super::Purpose;
use super::advanced::to_advanced;
use super::messages;
use super::native::to_native;
use super::steps::{Migration, text};
use super::translation::Translation;
use crate::core::names::GUARD;
use crate::core::settings::paused::PAUSED;
use crate::core::settings::read;
use crate::core::settings::update_strategy::UPDATE_STRATEGY;
use crate::core::{Mode, ParsedSettings, Scaling, SetKind, Strategy};
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::liveness::is_kruise_running;
use crate::ctl::lookup;
use crate::ctl::snapshot::RolloutSnapshot;
use crate::k8s::{AdvancedDaemonSet, DaemonSet};

impl Migration<'_> {
    /// Returns the converted DaemonSet, or the reason why it cannot be converted.
    pub(super) async fn preflight(&self, source: &Value) -> Result<Translation, CliError> {
        self.check_object(source)?;
        let (strategy, scaling) = self.settings(source)?;
        self.check_pods(source, strategy.as_ref()).await?;
        let (access, now) = (&self.context.access, self.context.clock.now());
        match (self.target.kind, strategy) {
            (SetKind::Advanced, strategy) => {
                if is_kruise_running(access, now).await? {
                    Err(self.no(messages::kruise_runs()))
                } else {
                    Ok(to_advanced(source, strategy.as_ref()))
                }
            }
            (SetKind::Native, Some(strategy)) => {
                if scaling.partitioned && !strategy.partition.is_zero() {
                    return Err(self.no(messages::partitioned()));
                }
                let mut made = to_native(source, &strategy, scaling);
                if self.purpose == Purpose::Eject {
                    hold(&mut made);
                }
                Ok(made)
            }
            // An Advanced DaemonSet has settings even without annotations: its field `updateStrategy`. So only an undecodable one
            // has none.
            (SetKind::Native, None) => Err(self.no("it cannot be read.".to_owned())),
        }
    }

    /// Returns the error for a DaemonSet that is not migrated because of `why`.
    pub(super) fn no(&self, why: String) -> CliError {
        CliError::new(Code::Refused, messages::not_migrated(&self.source, &why))
    }

    /// Checks everything that depends only on the DaemonSet object itself.
    fn check_object(&self, source: &Value) -> Result<(), CliError> {
        let meta = &source["metadata"];
        if !meta["deletionTimestamp"].is_null() {
            let text = format!("DaemonSet {} is being deleted.", self.source);
            return Err(CliError::new(Code::NotFound, text));
        }
        let finalizers = meta["finalizers"].as_array();
        let finalizers: Vec<&str> = finalizers
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if !finalizers.is_empty() {
            return Err(self.no(messages::finalizers(&finalizers)));
        }
        let owners = meta["ownerReferences"].as_array();
        let mut owners = owners.into_iter().flatten();
        if let Some(owner) = owners.find(|owner| owner["controller"] == true) {
            let owner = format!("{} {}", text(&owner["kind"]), text(&owner["name"]));
            return Err(self.no(messages::controlled(&owner)));
        }
        let conditions = source["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        if conditions.any(|condition| condition["type"] == GUARD && condition["status"] == "True") {
            Err(self.no(messages::stopped(&self.source)))
        } else {
            Ok(())
        }
    }

    /// Returns the settings of a DaemonSet as yurt-ds reads them; `None` if yurt-ds does not manage it.
    pub(super) fn settings(&self, source: &Value) -> Result<(Option<Strategy>, Scaling), CliError> {
        let unreadable = |error: serde_json::Error| {
            let text = messages::unreadable(&self.source, &error);
            CliError::new(Code::Invalid, text)
        };
        let set: DaemonSet = match self.source.kind {
            SetKind::Native => DaemonSet::deserialize(source).map_err(unreadable)?,
            SetKind::Advanced => AdvancedDaemonSet::deserialize(source)
                .map_err(unreadable)?
                .into(),
        };
        let scaling = set.spec.fields.as_ref().map(|fields| fields.scaling);
        let strategy = match read(&set.settings()) {
            ParsedSettings::NotOurs => None,
            ParsedSettings::Strategy { strategy, .. } => Some(*strategy),
            ParsedSettings::Invalid(invalid, _) => {
                let text = messages::invalid(&self.source, &invalid);
                return Err(CliError::new(Code::Invalid, text));
            }
        };
        Ok((strategy, scaling.unwrap_or_default()))
    }

    /// Checks that the new controller can take over every pod in its present state.
    pub(super) async fn check_pods(
        &self,
        source: &Value,
        strategy: Option<&Strategy>,
    ) -> Result<(), CliError> {
        self.check_adoption(source).await?;
        if strategy.is_none() {
            return Ok(());
        }
        let (access, now) = (&self.context.access, self.context.clock.now());
        let (_, snapshot) = lookup::snapshot(access, &self.source, now).await?;
        match half_done(&snapshot) {
            0 => Ok(()),
            nodes => Err(self.no(messages::half_done(&self.source, nodes))),
        }
    }
}

/// Returns the number of nodes with an in-place update in progress.
fn half_done(snapshot: &RolloutSnapshot) -> usize {
    let nodes = snapshot.fleet.nodes.iter();
    let is_half_done = |pods: &crate::core::fleet::Pods| {
        let mut living = pods
            .iter()
            .filter(|pod| !pod.terminating && !pod.has_ended());
        living.any(|pod| pod.in_place.is_under_way())
    };
    nodes.filter(|node| is_half_done(&node.pods)).count()
}

/// Adds a pause that lasts until the DaemonSet is returned to Kubernetes.
fn hold(made: &mut Translation) {
    if made.annotation(UPDATE_STRATEGY).is_none() {
        made.annotate(UPDATE_STRATEGY, &Mode::AdvancedRollingUpdate.to_string());
    }
    made.annotate(PAUSED, "true");
}
