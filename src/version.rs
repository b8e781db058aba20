//! `yurt-ds version`: what this program was built from, and what it works with.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use crate::core::rollout_state;
use crate::manifests;

/// Oldest supported minor version of Kubernetes 1.
pub const OLDEST_KUBERNETES: u32 = 28;
/// Newest minor version of Kubernetes 1 that the tests run on.
pub const NEWEST_KUBERNETES: u32 = 36;

/// Facts about this program, as `version -o json` prints them.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// Version of the release.
    pub version: &'static str,
    /// Git commit; `None` if the variable `YURT_DS_COMMIT` was not set during the build.
    pub git_commit: Option<&'static str>,
    /// Date of the commit, in UTC.
    pub git_commit_date: Option<&'static str>,
    /// Target triple.
    pub target: &'static str,
    /// Cargo profile; releases use `dist`.
    pub profile: &'static str,
    /// Compiler.
    pub rustc: &'static str,
    /// Supported versions of Kubernetes.
    pub kubernetes: Range,
    /// Version of the condition `RolloutState`.
    pub rollout_state: u32,
    /// Versions of the Advanced DaemonSet.
    pub advanced_daemon_set: Vec<&'static str>,
}

/// Range of Kubernetes versions, both included.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Range {
    /// First minor version.
    pub oldest: String,
    /// Last minor version.
    pub newest: String,
}

impl Version {
    /// Returns the facts about this program.
    pub fn of_this_program() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            git_commit: told(option_env!("YURT_DS_COMMIT")),
            git_commit_date: told(option_env!("YURT_DS_COMMIT_DATE")),
            target: env!("YURT_DS_TARGET"),
            profile: env!("YURT_DS_PROFILE"),
            rustc: env!("YURT_DS_RUSTC"),
            kubernetes: Range {
                oldest: format!("1.{OLDEST_KUBERNETES}"),
                newest: format!("1.{NEWEST_KUBERNETES}"),
            },
            rollout_state: rollout_state::VERSION,
            advanced_daemon_set: manifests::versions().to_vec(),
        }
    }
}

/// Treats an empty variable like a missing one, because a build argument without a value is empty.
fn told(variable: Option<&'static str>) -> Option<&'static str> {
    variable.filter(|text| !text.is_empty())
}

impl Display for Version {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "yurt-ds {}", self.version)?;
        let commit = self.git_commit.unwrap_or("unknown");
        let date = self.git_commit_date.unwrap_or_default();
        let commit = format!("{commit} {date}");
        writeln!(f, "commit               {}", commit.trim_end())?;
        writeln!(f, "target               {}", self.target)?;
        writeln!(f, "profile              {}", self.profile)?;
        writeln!(f, "compiler             {}", self.rustc)?;
        let Range { oldest, newest } = &self.kubernetes;
        writeln!(f, "Kubernetes           {oldest} to {newest}")?;
        writeln!(f, "RolloutState         {}", self.rollout_state)?;
        let kinds = self.advanced_daemon_set.join(", ");
        writeln!(f, "Advanced DaemonSet   {kinds}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_fact_is_part_of_json() {
        let version = Version::of_this_program();
        let json = serde_json::to_value(&version).unwrap();
        assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(json["kubernetes"]["oldest"], "1.28");
        assert_eq!(json["advancedDaemonSet"][1], "v1beta1");
        assert_eq!(json["rolloutState"], rollout_state::VERSION);
        for field in ["target", "profile", "rustc"] {
            let value = json[field].as_str().unwrap();
            assert!(!value.is_empty(), "{field}");
            assert!(version.to_string().contains(value), "{field}");
        }
    }

    #[test]
    fn a_build_outside_git_reports_an_unknown_commit() {
        let mut version = Version::of_this_program();
        version.git_commit = told(Some(""));
        version.git_commit_date = None;
        assert!(
            version
                .to_string()
                .contains("commit               unknown\n")
        );
        version.git_commit = told(Some("4054aee"));
        version.git_commit_date = told(Some("2026-11-29"));
        assert!(version.to_string().contains(" 4054aee 2026-11-29\n"));
    }
}
