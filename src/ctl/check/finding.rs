//! Results of checks: what was checked, how it ended, and what to do about it.

use serde::Serialize;

/// A check. Its name is stable, so that scripts can select it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CheckId {
    /// The API server answers.
    ApiReachable,
    /// The version of Kubernetes is supported.
    ApiVersion,
    /// The API server answers quickly.
    ApiLatency,
    /// The clocks of this machine and of the API server agree.
    ApiClock,
    /// A controller holds its Lease and renews it.
    ControllerLease,
    /// No two installations serve the same kind of DaemonSets.
    ControllerSingle,
    /// The pods of the controller are Ready, so their caches are synced.
    ControllerReady,
    /// Controller and `ctl` have the same version.
    ControllerVersion,
    /// The controller has the rights that `manifests/base` grants.
    PermissionsBase,
    /// The controller has the rights for updates in place, if they are used.
    PermissionsInPlace,
    /// The controller has the rights for lifecycle hooks, if they are used.
    PermissionsLifecycle,
    /// The controller has the rights for `max-surge`, if it is used.
    PermissionsMaxSurge,
    /// The controller has the rights to pull images ahead, if that is used.
    PermissionsPrePull,
    /// The controller has the rights for Advanced DaemonSets, if the cluster serves them.
    PermissionsAdvanced,
    /// The settings of all managed DaemonSets are valid.
    SettingsValid,
    /// All DaemonSets with settings are managed, and all settings have an effect.
    SettingsEffective,
    /// A controller serves each kind of DaemonSet that exists.
    DaemonSetsServed,
    /// Kruise's manager does not run.
    KruiseStopped,
    /// The CustomResourceDefinition of the Advanced DaemonSet equals the one in this version of yurt-ds.
    CrdCurrent,
    /// All online nodes have an available agent of the current revision.
    AgentsUpdated,
    /// The agents have the version of `ctl`.
    AgentsVersion,
    /// Each node with a DaemonSet that uses OTA has an agent.
    AgentsForOta,
    /// Admission policies limit the service account of the controller.
    PolicyController,
    /// Admission policies limit the service account of the agents.
    PolicyAgent,
    /// The caller may create the objects of the manifests.
    InstallRights,
    /// The caller may create the CustomResourceDefinition of the Advanced DaemonSet.
    InstallRightsAdvanced,
    /// No other software uses the names of the manifests.
    NamesFree,
}

/// A group of checks, printed as one line if all of them passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Category {
    Api,
    Controller,
    Permissions,
    DaemonSets,
    Advanced,
    Agents,
    Policies,
    Install,
}

/// Outcome of a check, ordered by severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckStatus {
    /// The check passed, or does not apply to this cluster.
    Ok,
    /// The check was not made. The message says why.
    Skipped,
    /// Rollouts work, but something should be changed.
    Warning,
    /// The installation does not work as it should.
    Failed,
}

/// Result of one check. Field names are stable for scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    #[serde(serialize_with = "name")]
    pub(super) id: CheckId,
    pub(super) category: Category,
    pub(super) status: CheckStatus,
    /// Result of the check, and its cause.
    pub(super) message: String,
    /// Command or action that repairs the fault; `null` if nothing has to be done.
    pub(super) fix: Option<String>,
    /// Documentation page, with its section.
    pub(super) docs: &'static str,
}

fn name<S: serde::Serializer>(id: &CheckId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(id.name())
}

impl CheckId {
    /// All checks, in the order in which they are printed.
    #[cfg(test)]
    pub(super) const ALL: [Self; 27] = [
        Self::ApiReachable,
        Self::ApiVersion,
        Self::ApiLatency,
        Self::ApiClock,
        Self::ControllerLease,
        Self::ControllerSingle,
        Self::ControllerReady,
        Self::ControllerVersion,
        Self::PermissionsBase,
        Self::PermissionsInPlace,
        Self::PermissionsLifecycle,
        Self::PermissionsMaxSurge,
        Self::PermissionsPrePull,
        Self::PermissionsAdvanced,
        Self::SettingsValid,
        Self::SettingsEffective,
        Self::DaemonSetsServed,
        Self::KruiseStopped,
        Self::CrdCurrent,
        Self::AgentsUpdated,
        Self::AgentsVersion,
        Self::AgentsForOta,
        Self::PolicyController,
        Self::PolicyAgent,
        Self::InstallRights,
        Self::InstallRightsAdvanced,
        Self::NamesFree,
    ];

    /// Returns the name of the check in all outputs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ApiReachable => "api-reachable",
            Self::ApiVersion => "api-version",
            Self::ApiLatency => "api-latency",
            Self::ApiClock => "api-clock",
            Self::ControllerLease => "controller-lease",
            Self::ControllerSingle => "controller-single",
            Self::ControllerReady => "controller-ready",
            Self::ControllerVersion => "controller-version",
            Self::PermissionsBase => "permissions-base",
            Self::PermissionsInPlace => "permissions-in-place",
            Self::PermissionsLifecycle => "permissions-lifecycle",
            Self::PermissionsMaxSurge => "permissions-max-surge",
            Self::PermissionsPrePull => "permissions-pre-pull",
            Self::PermissionsAdvanced => "permissions-advanced",
            Self::SettingsValid => "settings-valid",
            Self::SettingsEffective => "settings-effective",
            Self::DaemonSetsServed => "daemonsets-served",
            Self::KruiseStopped => "kruise-stopped",
            Self::CrdCurrent => "crd-current",
            Self::AgentsUpdated => "agents-updated",
            Self::AgentsVersion => "agents-version",
            Self::AgentsForOta => "agents-for-ota",
            Self::PolicyController => "policy-controller",
            Self::PolicyAgent => "policy-agent",
            Self::InstallRights => "install-rights",
            Self::InstallRightsAdvanced => "install-rights-advanced",
            Self::NamesFree => "names-free",
        }
    }

    /// Returns the group of the check.
    fn category(self) -> Category {
        match self {
            Self::ApiReachable | Self::ApiVersion | Self::ApiLatency | Self::ApiClock => {
                Category::Api
            }
            Self::ControllerLease
            | Self::ControllerSingle
            | Self::ControllerReady
            | Self::ControllerVersion => Category::Controller,
            Self::PermissionsBase
            | Self::PermissionsInPlace
            | Self::PermissionsLifecycle
            | Self::PermissionsMaxSurge
            | Self::PermissionsPrePull
            | Self::PermissionsAdvanced => Category::Permissions,
            Self::SettingsValid | Self::SettingsEffective | Self::DaemonSetsServed => {
                Category::DaemonSets
            }
            Self::KruiseStopped | Self::CrdCurrent => Category::Advanced,
            Self::AgentsUpdated | Self::AgentsVersion | Self::AgentsForOta => Category::Agents,
            Self::PolicyController | Self::PolicyAgent => Category::Policies,
            Self::InstallRights | Self::InstallRightsAdvanced | Self::NamesFree => {
                Category::Install
            }
        }
    }

    /// Returns the documentation page about a fault that the check finds, as a path in the repository.
    fn docs(self) -> &'static str {
        match self {
            Self::ApiReachable | Self::ApiLatency => {
                "docs/troubleshooting.md#ctl-check-the-api-server-is-slow-or-unreachable"
            }
            Self::ApiClock => "docs/troubleshooting.md#ctl-check-the-clocks-differ",
            Self::ApiVersion => "docs/reference/install.md",
            Self::ControllerLease | Self::ControllerReady => {
                "docs/troubleshooting.md#no-controller-runs-nocontroller-exit-code-12"
            }
            Self::ControllerSingle | Self::KruiseStopped => {
                "docs/troubleshooting.md#two-controllers-secondinstallation-kruiseruns"
            }
            Self::ControllerVersion | Self::AgentsVersion => {
                "docs/how-to/upgrade-and-uninstall.md#upgrade"
            }
            Self::PermissionsBase
            | Self::PermissionsInPlace
            | Self::PermissionsLifecycle
            | Self::PermissionsMaxSurge
            | Self::PermissionsPrePull
            | Self::PermissionsAdvanced => {
                "docs/troubleshooting.md#the-controller-lacks-a-right-permissionmissing"
            }
            Self::SettingsValid | Self::SettingsEffective => {
                "docs/troubleshooting.md#a-setting-has-no-effect-misspelt-annotation-unmanaged"
            }
            Self::DaemonSetsServed => "docs/reference/install.md#one-kind-each",
            Self::CrdCurrent => "docs/reference/install.md#advanced-daemonsets",
            Self::AgentsUpdated => "docs/troubleshooting.md#online-nodes-have-no-available-agent",
            Self::AgentsForOta => "docs/reference/install.md#omit-the-agents",
            Self::PolicyController | Self::PolicyAgent => {
                "docs/reference/install.md#what-a-stolen-token-can-do"
            }
            Self::InstallRights | Self::InstallRightsAdvanced | Self::NamesFree => {
                "docs/reference/install.md#check-the-installation"
            }
        }
    }
}

impl Category {
    /// Returns the name of the group in all outputs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Controller => "controller",
            Self::Permissions => "permissions",
            Self::DaemonSets => "daemonsets",
            Self::Advanced => "advanced",
            Self::Agents => "agents",
            Self::Policies => "policies",
            Self::Install => "install",
        }
    }
}

impl CheckStatus {
    /// Returns the outcome as a word for people.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "not checked",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

impl Finding {
    /// Creates the result of a check that passed.
    pub(super) fn ok(id: CheckId, message: impl Into<String>) -> Self {
        Self::new(id, CheckStatus::Ok, message.into(), None)
    }

    /// Creates the result of a check that was not made.
    pub(super) fn skipped(id: CheckId, why: impl Into<String>) -> Self {
        Self::new(id, CheckStatus::Skipped, why.into(), None)
    }

    /// Creates a warning. `fix` is the action that ends the warning.
    pub(super) fn warning(id: CheckId, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, CheckStatus::Warning, message.into(), Some(fix.into()))
    }

    /// Creates the result of a check that failed. `fix` is the action that repairs the fault.
    pub(super) fn failed(id: CheckId, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, CheckStatus::Failed, message.into(), Some(fix.into()))
    }

    fn new(id: CheckId, status: CheckStatus, message: String, fix: Option<String>) -> Self {
        Self {
            id,
            category: id.category(),
            status,
            message,
            fix,
            docs: id.docs(),
        }
    }
}
