//! Shell completion: current names of DaemonSets, nodes and pods.
//!
//! The shell runs this program, in which `clap_complete` completes verbs, flags and values. Names come from the cluster that the
//! flags on the command line select. The user is waiting, so a query that fails or takes too long yields no names.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap_complete::Shell;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::Shells;
use k8s_openapi::NamespaceResourceScope;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::access::Access;
use super::daemonset_api::api_in;
use super::node::NodeClient;
use crate::core::settings::update_strategy::UPDATE_STRATEGY;
use crate::k8s::client::Source;
use crate::k8s::{AdvancedDaemonSet, DaemonSet, Node};

/// Timeout of a query. The user is waiting.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of names. A longer list would not help the user.
const MOST: u32 = 500;
/// Environment variable that a shell sets to request completions.
pub(super) const ASKED: &str = "YURT_DS_COMPLETE";

/// Writes the script that enables completion in a shell.
///
/// # Errors
/// Fails if the script cannot be written.
pub(super) fn script(shell: Shell, out: &mut dyn Write) -> std::io::Result<()> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(&name) else {
        return Err(std::io::Error::other(format!("no completion for {name}")));
    };
    shell.write_registration(ASKED, "yurt-ds", "yurt-ds", "yurt-ds", out)
}

/// Completes the names of managed DaemonSets.
pub(super) fn daemonsets(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = TypedLine::read();
    offer(current, async move {
        let access = Access::connect(&typed.source()).await.ok()?;
        let home = typed.namespace.as_deref().unwrap_or(&access.namespace);
        let params = ListParams::default().limit(MOST);
        let (native, advanced) = tokio::join!(
            names::<DaemonSet>(&access, typed.namespace.as_deref(), home, &params),
            names::<AdvancedDaemonSet>(&access, typed.namespace.as_deref(), home, &params)
        );
        let (native, advanced) = (native?, advanced.unwrap_or_default());
        Some(offered(&native, &advanced, home))
    })
}

/// Returns namespace and name of each DaemonSet of the kind `K` that the caller may read. The value is true for managed DaemonSets.
async fn names<K>(
    access: &Access,
    namespace: Option<&str>,
    home: &str,
    params: &ListParams,
) -> Option<BTreeMap<(String, String), bool>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug,
{
    let list = async |api: Api<K>| api.list_metadata(params).await.ok();
    let everywhere = match namespace {
        None => list(api_in(access, None)).await,
        Some(_) => None,
    };
    let found = match everywhere {
        Some(found) => found,
        None => list(api_in(access, Some(home))).await?,
    };
    let name = |set: PartialObjectMeta<K>| {
        let is_managed = set.annotations().contains_key(UPDATE_STRATEGY);
        let key = (set.namespace().unwrap_or_default(), set.name_any());
        (key, is_managed)
    };
    Some(found.items.into_iter().map(name).collect())
}

/// Returns the names to offer, in the form `namespace/name`. DaemonSets in the caller's namespace are also offered without it.
///
/// If DaemonSets of both kinds have the same name, each is prefixed with its kind.
fn offered(
    native: &BTreeMap<(String, String), bool>,
    advanced: &BTreeMap<(String, String), bool>,
    home: &str,
) -> Vec<String> {
    let managed = native.iter().filter(|(_, is_managed)| **is_managed);
    let managed = managed.map(|(key, _)| (key, "ds/", advanced.contains_key(key)));
    let others = advanced.keys();
    let others = others.map(|key| (key, "ads/", native.contains_key(key)));
    let forms = managed.chain(others).flat_map(|(key, kind, is_both)| {
        let (namespace, name) = key;
        let kind = if is_both { kind } else { "" };
        let short = (namespace == home).then(|| format!("{kind}{name}"));
        short
            .into_iter()
            .chain([format!("{kind}{namespace}/{name}")])
    });
    forms.collect()
}

/// Completes the names of the cluster's nodes.
pub(super) fn nodes(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = TypedLine::read();
    offer(current, async move {
        let access = Access::connect(&typed.source()).await.ok()?;
        let nodes: Api<Node> = Api::all(access.client);
        let found = nodes
            .list_metadata(&ListParams::default().limit(MOST))
            .await;
        Some(
            found
                .ok()?
                .items
                .iter()
                .map(kube::ResourceExt::name_any)
                .collect(),
        )
    })
}

/// Completes the names of the pods on the node where the command runs.
pub(super) fn pods(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = TypedLine::read();
    offer(current, async move {
        let client = NodeClient::find(typed.server.as_deref()).await;
        client.ok()?.names().await
    })
}

/// Returns the names that begin with `current`; none if the query fails or takes too long.
fn offer(
    current: &OsStr,
    names: impl Future<Output = Option<Vec<String>>>,
) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else {
        return Vec::new();
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let found = runtime.ok().and_then(|runtime| {
        let in_time = runtime.block_on(async { tokio::time::timeout(PATIENCE, names).await });
        in_time.ok().flatten()
    });
    let mut names = found.unwrap_or_default();
    names.retain(|name| name.starts_with(current));
    names.sort();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Flags on the command line that select the cluster or the node.
#[derive(Debug, Default, PartialEq, Eq)]
struct TypedLine {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    namespace: Option<String>,
    server: Option<String>,
}

impl TypedLine {
    fn read() -> Self {
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        Self::new(&words.collect::<Vec<_>>(), |name| std::env::var(name).ok())
    }

    fn new(words: &[String], variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |flags: &[&str], name: &str| {
            let after = words
                .windows(2)
                .find(|pair| flags.contains(&pair[0].as_str()))
                .map(|pair| pair[1].clone());
            let joined = || {
                let mut parts = words.iter().filter_map(|word| word.split_once('='));
                let found = parts.find(|(flag, _)| flags.contains(flag));
                found.map(|(_, value)| value.to_owned())
            };
            after.or_else(joined).or_else(|| variable(name))
        };
        Self {
            kubeconfig: value(&["--kubeconfig"], "YURT_DS_KUBECONFIG").map(PathBuf::from),
            context: value(&["--context"], "YURT_DS_CONTEXT"),
            namespace: value(&["-n", "--namespace"], "YURT_DS_NAMESPACE"),
            server: value(&["--server"], "YURT_DS_SERVER"),
        }
    }

    fn source(&self) -> Source {
        Source {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            in_cluster: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_uses_the_connection_flags_on_the_line() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
        let line = words("yurt-ds -- yurt-ds ctl --context=edge -n shop status we");
        let variable = |name: &str| (name == "YURT_DS_SERVER").then(|| "http://x".to_owned());
        let typed = TypedLine::new(&line, variable);
        let expected = TypedLine {
            kubeconfig: None,
            context: Some("edge".into()),
            namespace: Some("shop".into()),
            server: Some("http://x".into()),
        };
        assert_eq!(typed, expected);
    }

    #[test]
    fn names_of_both_kinds_are_completed_with_their_kind() {
        let sets = |names: &[(&str, bool)]| {
            let keys = names.iter().map(|(name, is_managed)| {
                let key = name.split_once('/').unwrap();
                ((key.0.to_owned(), key.1.to_owned()), *is_managed)
            });
            keys.collect::<BTreeMap<_, _>>()
        };
        let native = sets(&[("a/web", true), ("a/plain", false), ("a/log", true)]);
        let advanced = sets(&[("a/web", false), ("b/dns", false), ("a/plain", false)]);
        let mut offered = offered(&native, &advanced, "a");
        offered.sort();
        let expected = [
            "a/log",
            "ads/a/plain",
            "ads/a/web",
            "ads/plain",
            "ads/web",
            "b/dns",
            "ds/a/web",
            "ds/web",
            "log",
        ];
        assert_eq!(offered, expected);
    }

    #[test]
    fn every_shell_gets_a_script_that_calls_this_program() {
        for shell in [
            Shell::Bash,
            Shell::Elvish,
            Shell::Fish,
            Shell::PowerShell,
            Shell::Zsh,
        ] {
            let mut out = Vec::new();
            script(shell, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains(ASKED), "{shell}: {text}");
        }
    }
}
