//! Checks of the DaemonSets: their settings, and the controllers that serve them.
//!
//! Faults of single DaemonSets are warnings. Otherwise a typing error in one namespace would make the test of an installation fail.

use k8s_openapi::jiff::Timestamp;

use super::finding::{CheckId, Finding};
use super::reader::{Unread, few, sentence};
use crate::controller::permissions::{Component, PRE_PULL};
use crate::core::words::plural;
use crate::core::{Mode, ParsedSettings, SetKind};
use crate::ctl::access::Access;
use crate::ctl::daemonset_api::qualified_name;
use crate::ctl::liveness::ControllerLiveness;
use crate::ctl::lookup;
use crate::ctl::view::{ClusterView, ListScope};
use crate::index::SetKey;

/// DaemonSets of the cluster or of one namespace, with their settings.
pub(super) struct ManagedDaemonSets(ClusterView);

impl ManagedDaemonSets {
    /// Lists the DaemonSets of both kinds.
    ///
    /// # Errors
    /// Fails if native DaemonSets cannot be listed. Advanced ones that cannot be listed are reported by [`Self::findings`].
    pub(super) async fn read(
        access: &Access,
        namespace: Option<&str>,
        now: Timestamp,
    ) -> Result<Self, Unread> {
        let (scope, doing) = match namespace {
            Some(name) => (
                ListScope::Namespace(name.to_owned()),
                format!("list the DaemonSets of namespace {name}"),
            ),
            None => (
                ListScope::Everywhere,
                "list the DaemonSets of all namespaces".to_owned(),
            ),
        };
        let unread = |error| Unread::from_cli(&doing, &error);
        let view = ClusterView::load_settings(access, &scope, now).await;
        let view = view.map_err(unread)?;
        if let (Some(namespace), true) = (namespace, view.present.is_empty()) {
            lookup::namespace(access, namespace).await.map_err(unread)?;
        }
        Ok(Self(view))
    }

    /// Returns the names of the DaemonSets that use the feature of a [`Component`], which grants the controller additional rights.
    ///
    /// Advanced DaemonSets count only for the component that pulls images: the rights of the others are part of the rights for
    /// Advanced DaemonSets.
    pub(super) fn users_of(&self, component: Component) -> Vec<String> {
        let is_user = |key: &&SetKey| {
            let reading = self.0.index.reading(key);
            let strategy = reading.as_deref().and_then(ParsedSettings::usable);
            (!key.is_advanced() || component == PRE_PULL)
                && strategy.is_some_and(|strategy| component.is_for(strategy))
        };
        let users = self.0.managed().filter(is_user);
        users.map(SetKey::to_string).collect()
    }

    /// Returns true if yurt-ds manages a DaemonSet of this kind.
    pub(super) fn has(&self, kind: SetKind) -> bool {
        self.0.managed().any(|key| key.kind == kind)
    }

    /// Returns the DaemonSets with the strategy OTA.
    pub(super) fn of_ota(&self) -> Vec<&SetKey> {
        let is_ota = |key: &&SetKey| {
            let reading = self.0.index.reading(key);
            let strategy = reading.as_deref().and_then(ParsedSettings::usable);
            strategy.is_some_and(|strategy| strategy.mode == Mode::Ota)
        };
        self.0.managed().filter(is_ota).collect()
    }

    /// Lists the nodes, and returns the names of those on which a DaemonSet with OTA should run a pod.
    ///
    /// # Errors
    /// Fails if the nodes cannot be listed.
    pub(super) async fn nodes_of_ota(&mut self, access: &Access) -> Result<Vec<String>, Unread> {
        let loaded = self.0.load_nodes(access).await.err();
        if let Some(error) = loaded.as_ref().or(self.0.unlisted_nodes.as_ref()) {
            return Err(Unread::from_cli("list nodes", error));
        }
        let sets = self.of_ota();
        let index = &self.0.index;
        let nodes = index.node_names();
        let targeted =
            nodes.filter(|node| sets.iter().any(|key| index.obstacle(key, node).is_none()));
        Ok(targeted.map(|node| node.as_str().to_owned()).collect())
    }

    /// Returns the findings about the settings, and about the controllers that serve each kind of DaemonSet.
    pub(super) fn findings(&self, liveness: &ControllerLiveness) -> Vec<Finding> {
        vec![self.valid(), self.effective(), self.served(liveness)]
    }

    fn valid(&self) -> Finding {
        let id = CheckId::SettingsValid;
        let error_of = |key: &SetKey| match self.0.index.reading(key).as_deref() {
            Some(ParsedSettings::Invalid(invalid, _)) => Some(invalid.to_string()),
            _ => None,
        };
        let invalid = self
            .0
            .managed()
            .filter_map(|key| Some((key, error_of(key)?)));
        let invalid: Vec<(&SetKey, String)> = invalid.collect();
        let Some((first, error)) = invalid.first() else {
            let all = self.0.managed().count();
            let sets = plural(all, "DaemonSet is", "DaemonSets are");
            return Finding::ok(id, format!("{all} {sets} managed, with valid settings."));
        };
        let names: Vec<String> = invalid.iter().map(|(key, _)| key.to_string()).collect();
        let message = match invalid.len() {
            1 => format!("The settings of {first} are invalid: {}", sentence(error)),
            more => format!("{more} DaemonSets have invalid settings: {}.", few(&names)),
        };
        let fix = format!("yurt-ds ctl settings {}", qualified_name(first));
        Finding::warning(id, message, fix)
    }

    fn effective(&self) -> Finding {
        let id = CheckId::SettingsEffective;
        let unmanaged: Vec<_> = self.0.index.unmanaged().collect();
        if let Some((first, stray)) = unmanaged.first() {
            let names: Vec<String> = unmanaged.iter().map(|(key, _)| key.to_string()).collect();
            let message = match unmanaged.len() {
                1 => format!("{first} is not managed: {}", sentence(&stray.text)),
                more => format!(
                    "{more} DaemonSets with settings of yurt-ds are not managed: {}.",
                    few(&names)
                ),
            };
            let fix = format!("yurt-ds ctl status {}", qualified_name(first));
            return Finding::warning(id, message, fix);
        }
        let mistaken = self.0.managed();
        let mistaken: Vec<(&SetKey, String)> = mistaken
            .filter_map(|key| Some((key, self.mistake(key)?)))
            .collect();
        let Some((first, mistake)) = mistaken.first() else {
            let message = "Every DaemonSet with settings of yurt-ds is managed.";
            return Finding::ok(id, message);
        };
        let names: Vec<String> = mistaken.iter().map(|(key, _)| key.to_string()).collect();
        let message = match mistaken.len() {
            1 => format!("On {first}, {}", sentence(mistake)),
            more => format!(
                "{more} DaemonSets have mistakes in their settings: {}.",
                few(&names)
            ),
        };
        let fix = format!("yurt-ds ctl settings {}", qualified_name(first));
        Finding::warning(id, message, fix)
    }

    /// Returns the first mistake in the settings of a DaemonSet that doesn't make them invalid, such as a misspelt key.
    fn mistake(&self, key: &SetKey) -> Option<String> {
        match self.0.index.reading(key).as_deref()? {
            ParsedSettings::Strategy { notes, .. } => notes
                .iter()
                .find(|note| note.warning)
                .map(|note| note.text.clone()),
            ParsedSettings::NotOurs | ParsedSettings::Invalid(..) => None,
        }
    }

    fn served(&self, liveness: &ControllerLiveness) -> Finding {
        let id = CheckId::DaemonSetsServed;
        if !matches!(
            liveness,
            ControllerLiveness::Lately | ControllerLiveness::Partly(_)
        ) {
            let why = "It is not known if a controller runs, or none runs.";
            return Finding::skipped(id, why);
        }
        let kinds = [
            (SetKind::Native, "native", "DaemonSets of apps/v1"),
            (SetKind::Advanced, "advanced", "Advanced DaemonSets"),
        ];
        let mut unserved = kinds
            .iter()
            .filter(|(kind, ..)| self.has(*kind) && !liveness.serves(*kind));
        if let Some((_, word, name)) = unserved.next() {
            return Finding::failed(
                id,
                format!("No controller serves {name}, so their rollouts are stopped."),
                format!(
                    "Run a controller with --controllers {word} and its own --lease-namespace, or let one serve both kinds."
                ),
            );
        }
        match &self.0.unlisted_advanced {
            Some(_) => Finding::skipped(
                id,
                Unread::forbidden(
                    "list Advanced DaemonSets (needed: ClusterRole yurt-ds-viewer-advanced)",
                )
                .0,
            ),
            None => Finding::ok(
                id,
                "A controller serves every kind of DaemonSet that exists.",
            ),
        }
    }
}

/// Returns the findings for a caller that cannot list DaemonSets.
pub(super) fn skipped(unread: &Unread) -> Vec<Finding> {
    [
        CheckId::SettingsValid,
        CheckId::SettingsEffective,
        CheckId::DaemonSetsServed,
    ]
    .map(|id| Finding::skipped(id, &*unread.0))
    .to_vec()
}
